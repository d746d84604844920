"""Whether two formulas are equal: exactly, numerically, or as math-verify finds."""

import logging
import re
from typing import Any

import mpmath

from rlkit.domains.math.evaluate import TooBig, same, symbols, value
from rlkit.domains.math.evaluate import exact as exactly
from rlkit.domains.math.exact import rational
from rlkit.domains.math.parser import Node, Unreadable, parse

_SIGNIFICANT = 5  # digits of it that are not leading zeros
_APPROXIMATE = 6  # decimals from which a decimal may stand for the exact value it rounds or cuts
_VERIFIABLE = re.compile(r"\\(?:int|lim|mathbb|setminus|sum|prod|partial)(?![A-Za-z])")


def same_expression(a: str, b: str) -> bool:
    """Whether two expressions are equal; math-verify decides what the parser here cannot read."""
    x, y = rational(a), rational(b)
    if x is not None and x == y:
        return True
    try:
        left, right = parse(a), parse(b)
    except (Unreadable, RecursionError):
        return by_math_verify(a, b)
    if same(left, right) or _rounded(a, left, right) or _rounded(b, right, left):
        return True
    return "\\infty" in a + b and "\\sum" in a + b and by_math_verify(a, b)


def _rounded(text: str, decimal: Node, exact: Node) -> bool:
    """A decimal with many digits for an exact value without a decimal form of that length."""
    match = re.fullmatch(r"[+-]?\d*\.(\d+)", text.strip())
    if match is None or len(match.group(1)) < _APPROXIMATE:
        return False
    places = len(match.group(1))
    if symbols(exact) or len(text.strip("+-0. ").replace(".", "").lstrip("0")) < _SIGNIFICANT:
        return False
    whole = exactly(exact)
    if whole is not None and (whole * 10**places).denominator == 1:
        return False  # it has a decimal form of that length, which this is not
    try:
        with mpmath.workdps(40 + places):
            x, y = value(decimal, {}), value(exact, {})
            return bool(mpmath.isfinite(y) and abs(x - y) <= mpmath.mpf(10) ** -places)
    except (TooBig, ArithmeticError, ValueError, TypeError):
        return False


def by_math_verify(a: str, b: str) -> bool:
    """math-verify's verdict; only on notation of its own, since it guesses at everything else."""
    if not (_VERIFIABLE.search(a) or _VERIFIABLE.search(b)) or max(len(a), len(b)) > 500:
        return False
    import math_verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of each call without its timeouts
    options: dict[str, Any] = {"parsing_timeout": None, "extraction_mode": "first_match"}
    left, right = (math_verify.parse(f"${text}$", **options) for text in (a, b))
    if not left or not right or isinstance(left[0], str) or isinstance(right[0], str):
        return False
    return bool(math_verify.verify(right, left, timeout_seconds=None))
