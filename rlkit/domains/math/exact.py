"""Plain numbers compared exactly, without a parser: whole numbers, decimals and fractions of them."""

import re
from fractions import Fraction

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_RATIONAL = re.compile(
    r"(?P<sign>[+-]?)(?:"
    r"(?P<number>[0-9]*\.?[0-9]+|[0-9]+\.)"
    r"|(?P<a>[+-]?[0-9]+)\s*/\s*(?P<b>[+-]?[0-9]+)"
    r"|\\[dt]?frac\s*\{\s*(?P<c>[+-]?[0-9]+)\s*\}\s*\{\s*(?P<d>[+-]?[0-9]+)\s*\}"
    r"|\\[dt]?frac\s*(?P<e>[0-9])\s*(?P<f>[0-9]))"
)
_LONGEST = 4000  # characters; Python refuses to convert longer digit strings


def same_integer(a: str, b: str) -> bool | None:
    """Whether two plain whole numbers are equal; None if one is something else."""
    if _INTEGER.fullmatch(a) and _INTEGER.fullmatch(b):
        return int(a) == int(b)
    return None


def rational(text: str) -> Fraction | None:
    """The value of a whole number, a decimal, a/b or \\frac{a}{b}; None for anything else."""
    match = _RATIONAL.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    if match["number"]:
        value = Fraction(match["number"].rstrip("."))
    else:
        top, bottom = match["a"] or match["c"] or match["e"], match["b"] or match["d"] or match["f"]
        if int(bottom) == 0:
            return None
        value = Fraction(int(top), int(bottom))
    return -value if match["sign"] == "-" else value
