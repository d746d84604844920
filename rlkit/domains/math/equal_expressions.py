"""The values of expressions, and whether two are equal: exactly where they are rational, numerically elsewhere.

Expressions with symbols are compared at fixed pseudo-random points (Schwartz 1980: two different rational functions
agree at a random point with negligible probability), with so many digits that a small difference shows. Values whose
digits would fill memory are never computed: they equal nothing but their own text."""

import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

import mpmath

from rlkit.domains.math.parse import OF_ONE, Node, TooBig, Unreadable, parse, take_steps

_DIGITS, _MORE_DIGITS, _MOST_OF_LARGE = 50, 500, 1000  # the last: more digits for large values
_EQUAL = mpmath.mpf(10) ** -25  # relative difference below which two values are equal
_SIGNIFICANT = 5  # digits of a decimal, leading zeros apart, that may stand for an exact value
_MAX_BITS = 2_000_000  # of an exact integer
_MAX_FRACTION_BITS = 50_000  # of an exact fraction, whose sums take the square of it
_LARGEST = 10**15  # argument of a function
_POINTS = 4
_WHOLE = (3, 8, 12, 1, 20, 7, 30, 49, 2, 16, 27, 60, 11, 25, 36, 101, 50, 72, 14, 125, 33, 18, 240, 91)
"""Values of letters that stand for whole numbers by convention, at which floors and divisors differ."""
_STARTS = {"n": 0, "k": 8, "m": 13, "r": 18}
_DISCRETE = {"binom", "floor", "ceil", "gcd", "lcm", "max", "min"}
_UNDEFINED = (ArithmeticError, ValueError, TypeError, KeyError)


def value(node: Node, point: dict[str, Fraction]) -> Any:
    """The value at a point: a Fraction where arithmetic is exact, else mpmath's number. TooBig: it has more digits than
    are computed. ArithmeticError, ValueError, KeyError: it is undefined at this point."""
    kind, *parts = node
    take_steps()
    if kind == "num":
        return parts[0]
    if kind == "sym":
        return _CONSTANTS[parts[0]]() if parts[0] in _CONSTANTS else point[parts[0]]
    values = [value(part, point) for part in parts if isinstance(part, tuple)]
    if kind == "fn" or not all(isinstance(v, Fraction) for v in values):
        values = list(map(_to_float, values))
    if kind == "fn":
        take_steps(10)
        if parts[0] not in _OF_LARGE and any(abs(v) > _LARGEST for v in values):
            raise TooBig
        return _FUNCTIONS[parts[0]](*values)
    if kind in _UNARY:
        return _UNARY[kind](*values)
    found = values[0]
    for other in values[1:]:
        found = _BINARY[kind](found, other)
        if isinstance(found, Fraction):
            take_steps(_bits(found) // 100)
            if _bits(found) > (_MAX_BITS if found.denominator == 1 else _MAX_FRACTION_BITS):
                raise TooBig
    return found


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _to_float(number: Any) -> Any:
    """A fraction as mpmath's number of as many digits as are set; other values as they are."""
    if not isinstance(number, Fraction):
        return number
    if _bits(number) > _MAX_FRACTION_BITS:
        raise TooBig  # mpmath takes the square of the length
    return mpmath.mpf(number.numerator) / number.denominator


def _power(base: Any, exponent: Any) -> Any:
    if base == 0 and mpmath.re(exponent) <= 0:
        raise ZeroDivisionError
    if isinstance(base, Fraction) and exponent.denominator == 1:
        if abs(exponent) * _bits(base) > _MAX_BITS:
            raise TooBig
        return base ** int(exponent)
    base, exponent = _to_float(base), _to_float(exponent)
    take_steps(mpmath.mp.dps // 5)
    if abs(exponent) > _LARGEST or abs(mpmath.log(abs(base) or 1)) > _LARGEST:
        raise TooBig
    if base.imag == exponent.imag == 0 > base.real and exponent:
        root = mpmath.nint(1 / exponent.real)
        if root > 1 and root % 2 == 1 and abs(1 / exponent.real - root) < _EQUAL:
            return -mpmath.power(-base, exponent)  # the real odd root, as \sqrt[3]{-8} is read
    return mpmath.power(base, exponent)


def _of_whole(function: Callable[..., int], most: float) -> Callable[..., Any]:
    """A function of whole numbers up to a limit; it is undefined for others."""

    def compute(*numbers: Any) -> Any:
        if (largest := max(map(abs, numbers))) > most:
            raise TooBig
        take_steps(10 + min(int(largest) // 50, 400))
        if any(n != int(n) for n in numbers):
            raise ValueError("of whole numbers only")
        return Fraction(function(*map(int, numbers)))

    return compute


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "pi": lambda: +mpmath.pi, "e": lambda: +mpmath.e, "i": lambda: mpmath.mpc(0, 1), "infty": lambda: mpmath.inf,
}  # fmt: skip
_UNARY = {"neg": operator.neg, "inv": lambda x: 1 / x, "fact": _of_whole(math.factorial, 3000)}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {"add": operator.add, "mul": operator.mul, "pow": _power}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(mpmath, name, abs) for name in OF_ONE.split()}, "max": max, "min": min,
    "binom": _of_whole(math.comb, 20_000), "gcd": _of_whole(math.gcd, 2.0**1000), "lcm": _of_whole(math.lcm, 2.0**1000),
}  # fmt: skip
_OF_LARGE = {"abs", "ln", "log", "log10", "max", "min", "gcd", "lcm"}  # functions of numbers of any size


def _parts(node: Node) -> list[Node]:
    return [part for part in node[1:] if isinstance(part, tuple)]


def symbols(*nodes: Node) -> set[str]:
    """Names of the unknowns of expressions (not pi, e, i and infinity)."""
    named = {node[1] for node in nodes if node[0] == "sym"} - _CONSTANTS.keys()
    return named.union(*(symbols(*_parts(node)) for node in nodes))


def _has_whole(node: Node) -> bool:
    """Whether n, k and m stand for whole numbers in it: n!, binomials, floors, (-1)^n, sin(n pi)."""
    kind, *parts = node
    whole = kind == "fact" or (kind == "pow" and parts[0][0] == "neg")
    whole = whole or (kind == "fn" and (parts[0] in _DISCRETE or "'pi'" in repr(parts)))
    return (whole and bool(symbols(node))) or any(map(_has_whole, _parts(node)))


def _coordinate(name: str, place: int, index: int, whole: bool) -> Fraction:
    """The value of a symbol, the one at `place` of all, at a fixed sample point. All are positive at the first point,
    negative at the second; at the next two, each of four symbols has other signs than the others."""
    if whole and name in _STARTS:
        return Fraction(_WHOLE[(index + _STARTS[name]) % 24] + 97 * (index // 24))
    digest = hashlib.sha256(f"{name}/{index}".encode()).digest()
    size = Fraction(int.from_bytes(digest[:4], "big"), 2**31) + Fraction(3, 10)
    size *= (1, 19, 1, 170)[index % 4] if whole else 1
    negative = (0, 1, place, place // 2)[index] if index < 4 else digest[8]
    return -size if negative % 2 else size


def _samples(*nodes: Node) -> Iterator[list[Any]]:
    """The expressions' values at up to 100 points where all are defined, at one without symbols; real ones first."""
    complex_ones, names, whole = [], sorted(symbols(*nodes)), any(map(_has_whole, nodes))
    for index in range(100 if names else 1):
        point = {name: _coordinate(name, place, index, whole) for place, name in enumerate(names)}
        try:
            found = [value(node, point) for node in nodes]
        except _UNDEFINED:
            continue
        if all(abs(v.imag) <= _EQUAL * (1 + abs(v)) for v in found):
            yield found
        else:
            complex_ones.append(found)
    yield from complex_ones


def _close(a: Any, b: Any, least: int = 0) -> bool:
    """Equal, of fractions exactly, of others to 25 digits (of `least`, too); infinities only to themselves."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = _to_float(a), _to_float(b)
    size = max(abs(a), abs(b), least)
    return a == b or (not mpmath.isinf(size) and abs(a - b) <= _EQUAL * size)


def same(a: Node, b: Node) -> bool:
    """Whether two expressions have the same value wherever both are defined. TooBig: they have too many digits."""
    if a == b:
        return True
    points = 6 * _POINTS if _has_whole(a) or _has_whole(b) else _POINTS
    with mpmath.workdps(_DIGITS):
        rough = list(islice(_samples(a, b), points))
        enough = len(rough) >= (_POINTS if symbols(a, b) else 1)  # x! is defined at few
        if not enough or not all(_close(x, y, least=1) for x, y in rough):
            return False
    if all(isinstance(v, Fraction) for pair in rough for v in pair):
        return True
    size = max(1, *(abs(_to_float(v)) for pair in rough[:2] for v in pair))
    with mpmath.workdps(_MORE_DIGITS + int(min(_MOST_OF_LARGE, max(0, mpmath.log10(size) - 100)))):
        return all(map(_converge, rough, islice(_samples(a, b), 2)))


def _converge(rough: list[Any], exact: list[Any]) -> bool:
    """Whether the difference of two values vanishes as their digits become more: 1 + cos(pi) is 0, e^{-1000} is not."""
    before, after = (abs(_to_float(x) - _to_float(y)) for x, y in (rough, exact))
    terms = before * mpmath.mpf(10) ** _DIGITS if before else 1  # the size of those that cancel each other
    size = max(terms, *(abs(_to_float(v)) for v in exact))
    return bool(after <= size * mpmath.mpf(10) ** (20 - mpmath.mp.dps))


def number(text: str) -> Any:
    """The real value of an expression without unknowns, as mpmath's number; None for anything else."""
    try:
        with mpmath.workdps(_DIGITS):
            found = _to_float(value(parse(text), {}))
            return found.real if found == found and abs(found.imag) <= _EQUAL * abs(found) else None
    except (*_UNDEFINED, TooBig, RecursionError):
        return None


def same_expression(a: str, b: str) -> bool:
    """Whether two formulas are equal; a long decimal may stand for the value it rounds."""
    try:
        left, right = parse(a), parse(b)
        return same(left, right) or _rounded(a, right) or _rounded(b, left)
    except (Unreadable, TooBig):
        return False


def _rounded(text: str, precise: Node) -> bool:
    """A decimal with many digits for an exact value without a decimal form of that length."""
    match = re.fullmatch(r"[+-]?\d*\.(\d{6,1000})", text.strip())
    if not match or symbols(precise) or len(re.sub(r"\D", "", text).strip("0")) < _SIGNIFICANT:
        return False
    unit, given = Fraction(1, 10 ** len(match[1])), Fraction(match[0])
    try:
        with mpmath.workdps(_DIGITS + len(match[1])):
            found = value(precise, {})
            if isinstance(found, Fraction) and (found / unit).denominator == 1:
                return False  # it has a decimal form of that length, which this is not
            behind = (_to_float(found) - _to_float(given)) / _to_float(unit if given > 0 else -unit)
            return bool(-0.5 <= behind < 1)  # rounded, or cut off
    except (*_UNDEFINED, TooBig):
        return False


def ratio_sign(a: str, b: str) -> int:
    """1 or -1 if a is a constant positive or negative multiple of b, else 0."""
    try:
        left, right = parse(a), parse(b)
        with mpmath.workdps(_DIGITS):
            ratios = [x / y for x, y in islice(_samples(left, right), _POINTS + 2) if x != 0 and y != 0]
            if len(ratios) < (3 if symbols(left, right) else 1) or ratios[0].imag:
                return 0
            constant = all(_close(ratio, ratios[0]) for ratio in ratios)
            return (1 if ratios[0] > 0 else -1) if constant else 0
    except (Unreadable, TooBig):
        return 0
