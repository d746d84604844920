"""Whether two parsed expressions are equal: exactly where they are rational, numerically elsewhere.

Expressions with symbols are compared at fixed pseudo-random points with 40 digits (Schwartz 1980: two
different rational functions agree at a random point with negligible probability). Values whose digits
would fill memory are never computed: such expressions are equal only if their parts are.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any

import mpmath

from rlkit.domains.math.read import Node, Unreadable, parse, rational

_DIGITS = 40
_EQUAL = mpmath.mpf(10) ** -25  # relative difference below which two values are equal
_APART = mpmath.mpf(10) ** -4  # relative difference of values that are not worth a closer look
_DECIMALS = 6  # from which a decimal may stand for the exact value it rounds or cuts
_SIGNIFICANT = 5  # digits of such a decimal that are not leading zeros
_TINY = mpmath.mpf(10) ** (8 - _DIGITS)
_RESOLVED = mpmath.mpf(10) ** 40  # above this, 40 digits do not tell a number from its neighbour
_MAX_BITS = 2_000_000  # of an exact integer
_MAX_FRACTION_BITS = 50_000  # of an exact fraction, whose sums take the square of it
_STEPS = 30_000  # operations that one pair of answers may take
_MAX_EXPONENT = mpmath.mpf(10) ** 15
_MAX_TERMS = 2_000  # of a sum or product
_POINTS = 4
_COUNTED = ("n", "k", "m")  # symbols that stand for whole numbers by convention

Point = Mapping[str, Any]


class TooBig(ArithmeticError):
    """The value is not computed because of its size."""


@dataclass
class Work:
    """What the comparison of one pair of answers has left, and the values that it has found."""

    steps: int = _STEPS
    values: dict[str, Any] = field(default_factory=dict)

    def take(self, steps: int = 1) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise TooBig


_work: ContextVar[Work] = ContextVar("work")


def start_work() -> None:
    """Before a pair of answers is compared: its operations are counted from here."""
    _work.set(Work())


def work() -> Work:
    if _work.get(None) is None:
        start_work()
    return _work.get()


def symbols(node: Node) -> set[str]:
    """Names of the unknowns of an expression (not pi, e, i and infinity)."""
    return {name for name in _names(node) if name not in _CONSTANTS}


def _names(node: Any) -> Iterator[str]:
    stack = [node]
    while stack:
        item = stack.pop()
        if not isinstance(item, tuple):
            continue
        if item[0] == "sym":
            yield item[1]
        elif item[0] in ("sum", "prod", "int"):
            stack += [item[2], item[3], _bind(item[4], item[1])]
        else:
            stack += item[1:]


def _bind(body: Any, name: str) -> Any:
    """The body without its bound variable, for counting unknowns."""
    if not isinstance(body, tuple):
        return body
    return ("num", Fraction(1)) if body == ("sym", name) else tuple(_bind(part, name) for part in body)


def exact(node: Node) -> Fraction | None:
    """The rational value, or None if it is not rational by plain arithmetic or has too many digits."""
    try:
        return _exact(node)
    except TooBig:
        return None


def _exact(node: Node) -> Fraction | None:
    kind = node[0]
    if kind == "num":
        return node[1]
    if kind not in ("add", "mul", "neg", "inv", "pow", "fact"):
        return None
    parts: list[Fraction] = []
    for child in node[1:]:
        part = _exact(child)
        if part is None:
            return None
        parts.append(part)
    if kind == "add":
        total = parts[0]
        for part in parts[1:]:
            total = _checked_size(total + part)
        return total
    if kind == "neg":
        return -parts[0]
    if kind == "inv":
        return 1 / parts[0] if parts[0] else None
    if kind == "mul":
        product = parts[0]
        for part in parts[1:]:
            product = _checked_size(product * part)
        return product
    if kind == "fact":
        n = parts[0]
        return Fraction(math.factorial(int(n))) if n.denominator == 1 and 0 <= n <= 2000 else None
    return _exact_power(*parts)


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    most = _MAX_BITS if base.denominator == 1 and exponent >= 0 else _MAX_FRACTION_BITS
    if exponent.denominator != 1 or abs(exponent) * max(_bits(base), 1) > most:
        return None
    if base == 0 and exponent <= 0:
        return None
    return _checked_size(base ** int(exponent))


def _checked_size(value: Fraction) -> Fraction:
    bits = _bits(value)
    if bits > (_MAX_BITS if value.denominator == 1 else _MAX_FRACTION_BITS):
        raise TooBig
    work().take(1 + bits // 100)
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


_CONSTANTS: dict[str, Any] = {
    "pi": lambda: +mpmath.pi,
    "e": lambda: +mpmath.e,
    "i": lambda: mpmath.mpc(0, 1),
    "infty": lambda: mpmath.inf,
}
_FUNCTIONS: dict[str, Any] = {
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "cot": mpmath.cot, "sec": mpmath.sec,
    "csc": mpmath.csc, "arcsin": mpmath.asin, "arccos": mpmath.acos, "arctan": mpmath.atan,
    "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh, "log": mpmath.log, "ln": mpmath.log,
    "lg": mpmath.log10, "exp": mpmath.exp, "abs": abs, "floor": mpmath.floor, "ceil": mpmath.ceil,
    "binom": mpmath.binomial, "max": max, "min": min,
}  # fmt: skip


def value(node: Node, point: Point) -> Any:
    """The numeric value at a point, as an mpmath number.

    Raises:
        TooBig: a power, factorial or sum beyond what is computed.
        ArithmeticError, ValueError: undefined at this point.
    """
    kind = node[0]
    work().take()
    if kind == "num":
        return mpmath.mpf(node[1].numerator) / node[1].denominator
    if kind == "sym":
        return _CONSTANTS[node[1]]() if node[1] in _CONSTANTS else point[node[1]]
    if kind in ("sum", "prod"):
        return _series(node, point)
    if kind == "int":
        _, name, low, high, body = node
        bounds = [value(low, point), value(high, point)]
        return mpmath.quad(lambda x: value(body, {**point, name: x}), bounds)
    if kind == "diff":
        _, name, body = node
        return mpmath.diff(lambda x: value(body, {**point, name: x}), point.get(name, mpmath.mpf(1)))
    if kind == "fn":
        return _function(node[1], [value(child, point) for child in node[2:]])
    values = [value(child, point) for child in node[1:]]
    if kind == "add":
        return mpmath.fsum(values)
    if kind == "mul":
        return mpmath.fprod(values)
    if kind == "neg":
        return -values[0]
    if kind == "inv":
        return 1 / values[0]
    if kind == "fact":
        return _checked(mpmath.factorial, values[0], limit=mpmath.mpf(10) ** 9)
    return _power(*values)


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > _MAX_EXPONENT or abs(mpmath.log(abs(base) or 1)) > _MAX_EXPONENT:
        raise TooBig
    if base == 0 and mpmath.re(exponent) <= 0:
        raise ZeroDivisionError
    if mpmath.im(base) == 0 and mpmath.re(base) < 0 and mpmath.im(exponent) == 0:
        inverse = 1 / exponent if exponent else exponent
        root = mpmath.nint(mpmath.re(inverse))
        if root % 2 == 1 and abs(inverse - root) < _EQUAL and root > 1:
            return -(mpmath.power(-base, exponent))  # the real odd root, as \sqrt[3]{-8} is read
    return mpmath.power(base, exponent)


def _checked(function: Any, argument: Any, limit: Any) -> Any:
    work().take(10)
    if abs(argument) > limit:
        raise TooBig
    return function(argument)


def _function(name: str, arguments: list[Any]) -> Any:
    work().take(10)
    if name in ("gcd", "lcm"):
        return mpmath.mpf(getattr(math, name)(*(int(a) for a in arguments)))
    if any(abs(a) > _MAX_EXPONENT for a in arguments) and name not in (
        "abs",
        "ln",
        "log",
        "lg",
        "max",
        "min",
    ):
        raise TooBig
    return _FUNCTIONS[name](*arguments)


def _series(node: Node, point: Point) -> Any:
    kind, name, low, high, body = node
    start, end = (int(mpmath.nint(value(bound, point))) for bound in (low, high))
    if end - start > _MAX_TERMS:
        raise TooBig
    terms = [value(body, {**point, name: mpmath.mpf(i)}) for i in range(start, end + 1)]
    return mpmath.fsum(terms) if kind == "sum" else mpmath.fprod(terms)


def points(names: set[str]) -> Iterator[dict[str, Any]]:
    """Endless fixed sample points; the first is all positive, later ones have mixed signs."""
    for index in range(100):
        yield {name: _coordinate(name, index) for name in sorted(names)}


def _coordinate(name: str, index: int) -> Any:
    digest = hashlib.sha256(f"{name}/{index}".encode()).digest()
    if name in _COUNTED:
        return mpmath.mpf(1 + index + digest[0] % 3)
    size = mpmath.mpf(int.from_bytes(digest[:8], "big")) / 2**63 + mpmath.mpf("0.3")
    return -size if index and digest[8] % 2 else size


def samples(nodes: tuple[Node, ...], names: set[str]) -> Iterator[list[Any]]:
    """The expressions' values at the points where all are finite; real points are preferred."""
    complex_ones = []
    for point in points(names):
        try:
            found = [value(node, point) for node in nodes]
        except TooBig:
            raise
        except (ArithmeticError, ValueError, TypeError, KeyError):
            continue
        if any(mpmath.isnan(v) for v in found):
            continue
        if all(abs(mpmath.im(v)) < _EQUAL * (1 + abs(v)) for v in found):
            yield found
        else:
            complex_ones.append(found)
    yield from complex_ones


def close(a: Any, b: Any) -> bool:
    """Equal to 25 digits, relatively; infinities only to themselves."""
    if mpmath.isinf(a) or mpmath.isinf(b):
        return a == b
    return abs(a - b) <= _EQUAL * max(abs(a), abs(b), mpmath.mpf(1e-300) if a == b else 0)


def same(a: Node, b: Node) -> bool:
    """Whether two expressions have the same value wherever both are defined; log is the natural or, if
    that fails, the decimal logarithm."""
    return _same(a, b) or ("log" in _functions(a, b) and _same(_decimal(a), _decimal(b)))


def _functions(*nodes: Any) -> set[str]:
    found, stack = set(), list(nodes)
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            found |= {item[1]} if item[0] == "fn" else set()
            stack += item[1:]
    return found


def _decimal(node: Any) -> Any:
    """With lg for log."""
    if not isinstance(node, tuple):
        return node
    node = tuple(_decimal(part) for part in node)
    return ("fn", "lg", *node[2:]) if node[:2] == ("fn", "log") else node


def _same(a: Node, b: Node) -> bool:
    if a == b:
        return True
    exact_a, exact_b = exact(a), exact(b)
    if exact_a is not None and exact_b is not None:
        return exact_a == exact_b
    names = symbols(a) | symbols(b)
    try:
        found = _sampled(a, b, names, _DIGITS)
        if not found or not all(close(x, y) or _tiny(x, y) for x, y in found):
            return False
        if not names and abs(found[0][0]) > _RESOLVED:
            return same_parts(a, b)
        if all(close(x, y) for x, y in found):
            return True
        # Zero up to rounding: 1 + cos(pi) against 0, which shrinks with more digits as e^{-100} does not.
        finer = _sampled(a, b, names, 3 * _DIGITS)
        return len(finer) == len(found) and all(
            close(x, y) or abs(p - q) <= abs(x - y) * _EQUAL
            for (x, y), (p, q) in zip(found, finer, strict=True)
        )
    except TooBig:
        return same_parts(a, b)


def _sampled(a: Node, b: Node, names: set[str], digits: int) -> list[list[Any]]:
    with mpmath.workdps(digits):
        return list(islice(samples((a, b), names), _POINTS if names else 1))


def _tiny(x: Any, y: Any) -> bool:
    return bool(abs(x) <= _TINY and abs(y) <= _TINY)


def number(text: str) -> Any:
    """The real value of an expression without unknowns, as mpmath's number; None for anything else."""
    values = work().values
    if text not in values:
        values[text] = _number(text)
    return values[text]


def _number(text: str) -> Any:
    try:
        node = parse(text)
        if symbols(node):
            return None
        with mpmath.workdps(_DIGITS):
            found = value(node, {})
    except (Unreadable, ArithmeticError, ValueError, TypeError, KeyError, RecursionError):
        return None
    if mpmath.isnan(found) or abs(mpmath.im(found)) > _EQUAL * abs(found):
        return None
    return mpmath.re(found)


def same_parts(a: Node, b: Node) -> bool:
    """Equal operation by operation: for values that are too big to compute."""
    if a[0] != b[0] or len(a) != len(b):
        return False
    pairs = zip(a[1:], b[1:], strict=True)
    return all(same(x, y) if isinstance(x, tuple) and isinstance(y, tuple) else x == y for x, y in pairs)


def ratio_sign(a: Node, b: Node) -> int:
    """1 or -1 if a is a constant positive or negative multiple of b, else 0."""
    names = symbols(a) | symbols(b)
    try:
        with mpmath.workdps(_DIGITS):
            found = [(x, y) for x, y in islice(samples((a, b), names), _POINTS + 2) if x != 0 and y != 0]
            if len(found) < (3 if names else 1):
                return 0
            first = found[0][0] / found[0][1]
            if mpmath.im(first) or not all(close(x / y, first) for x, y in found):
                return 0
            return 1 if first > 0 else -1
    except TooBig:
        return int(same_parts(a, b))


def same_expression(a: str, b: str) -> bool:
    """Whether two formulas are equal, exactly or numerically; a long decimal may stand for the value it rounds."""
    x, y = rational(a), rational(b)
    if x is not None and x == y:
        return True
    p, q = number(a), number(b)
    apart = p is not None and q is not None and not abs(p - q) <= _APART * max(abs(p), abs(q))
    if apart and p != q and "log" not in a + b:
        return False
    try:
        left, right = parse(a), parse(b)
    except Unreadable:
        return False
    return same(left, right) or _rounded(a, right) or _rounded(b, left)


def _rounded(text: str, precise: Node) -> bool:
    """A decimal with many digits for an exact value without a decimal form of that length."""
    match = re.fullmatch(r"[+-]?\d*\.(\d+)", text.strip())
    places = len(match[1]) if match else 0
    if not _DECIMALS <= places <= 1000 or symbols(precise):
        return False
    if len(text.strip("+-0. ").replace(".", "").lstrip("0")) < _SIGNIFICANT:
        return False
    whole = exact(precise)
    if whole is not None and (whole * 10**places).denominator == 1:
        return False  # it has a decimal form of that length, which this is not
    try:
        with mpmath.workdps(_DIGITS + places):
            found = value(precise, {})
            return bool(mpmath.isfinite(found) and abs(mpmath.mpf(text) - found) <= mpmath.mpf(10) ** -places)
    except (ArithmeticError, ValueError, TypeError):
        return False


def same_antiderivative(a: str, b: str, constant: str) -> bool:
    """Whether two formulas with `+ constant` differ by a constant alone."""
    try:
        nodes = [parse(a), parse(b)]
        names = symbols(nodes[0]) | symbols(nodes[1])
        if names - symbols(nodes[0]) or names - symbols(nodes[1]) or len(names) < 2:
            return False
        with mpmath.workdps(_DIGITS):
            found = []
            for point in islice(points(names), 3 * _POINTS):
                try:
                    rows = [[value(n, {**point, constant: mpmath.mpf(c)}) for n in nodes] for c in (0, 1)]
                except (ValueError, TypeError, ZeroDivisionError):
                    continue
                if any(not close(rows[1][k] - rows[0][k], mpmath.mpf(1)) for k in (0, 1)):
                    return False
                found.append(rows[0][0] - rows[0][1])
            return len(found) > 2 and all(abs(d - found[0]) <= _EQUAL * (1 + abs(found[0])) for d in found)
    except (Unreadable, ArithmeticError, KeyError):
        return False
