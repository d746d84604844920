"""Whether two parsed expressions are equal: exactly where they are rational, numerically elsewhere.

Expressions with symbols are compared at fixed pseudo-random points with 40 digits (Schwartz 1980: two
different rational functions agree at a random point with negligible probability). Values whose digits
would fill memory are never computed: such expressions are equal only if their parts are.
"""

import hashlib
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import islice
from typing import Any

import mpmath

from rlkit.domains.math.parser import Node

_DIGITS = 40
_EQUAL = mpmath.mpf(10) ** -25  # relative difference below which two values are equal
_RESOLVED = mpmath.mpf(10) ** 40  # above this, 40 digits do not tell a number from its neighbour
_MAX_BITS = 5_000_000  # of an exact integer
_MAX_EXPONENT = mpmath.mpf(10) ** 15
_MAX_TERMS = 2_000  # of a sum or product
_POINTS = 4
_COUNTED = ("n", "k", "m")  # symbols that stand for whole numbers by convention

Point = Mapping[str, Any]


class TooBig(ArithmeticError):
    """The value is not computed because of its size."""


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
        elif item[0] in ("sum", "prod"):
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
    kind = node[0]
    if kind == "num":
        return node[1]
    if kind not in ("add", "mul", "neg", "inv", "pow", "fact"):
        return None
    values = [exact(child) for child in node[1:]]
    if any(v is None for v in values):
        return None
    parts: list[Fraction] = values  # type: ignore[assignment]
    if kind == "add":
        return sum(parts, Fraction(0))
    if kind == "neg":
        return -parts[0]
    if kind == "inv":
        return 1 / parts[0] if parts[0] else None
    if kind == "mul":
        product = Fraction(1)
        for part in parts:
            product *= part
        return product if _bits(product) <= _MAX_BITS else None
    if kind == "fact":
        n = parts[0]
        return Fraction(_factorial(int(n))) if n.denominator == 1 and 0 <= n <= 2000 else None
    return _exact_power(*parts)


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1 or abs(exponent) * max(_bits(base), 1) > _MAX_BITS:
        return None
    return None if base == 0 and exponent <= 0 else base ** int(exponent)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _factorial(n: int) -> int:
    import math

    return math.factorial(n)


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
    if kind == "num":
        return mpmath.mpf(node[1].numerator) / node[1].denominator
    if kind == "sym":
        return _CONSTANTS[node[1]]() if node[1] in _CONSTANTS else point[node[1]]
    if kind in ("sum", "prod"):
        return _series(node, point)
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
    if abs(argument) > limit:
        raise TooBig
    return function(argument)


def _function(name: str, arguments: list[Any]) -> Any:
    if name in ("gcd", "lcm"):
        import math

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
        with mpmath.workdps(_DIGITS):
            found = list(islice(samples((a, b), names), _POINTS if names else 1))
            equal = bool(found) and all(close(x, y) or _both_zero(x, y) for x, y in found)
            if equal and not names and abs(found[0][0]) > _RESOLVED:
                return same_parts(a, b)
            return equal
    except TooBig:
        return same_parts(a, b)


def _both_zero(x: Any, y: Any) -> bool:
    """Values that are zero up to rounding: 1 + cos(pi) against 0, but not 2^-98 against 2^-99."""
    tiny = mpmath.mpf(10) ** (8 - _DIGITS)
    return (abs(x) <= tiny and abs(y) <= tiny) and (x == 0 or y == 0)


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
