"""The values of expressions, and whether two are equal: exactly where they are rational, numerically elsewhere.

Expressions with symbols are compared at fixed pseudo-random points with 40 digits (Schwartz 1980: two different
rational functions agree at a random point with negligible probability). Values whose digits would fill memory are
never computed: such expressions are equal only if their parts are.
"""

import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from itertools import islice, pairwise, product
from typing import Any

import mpmath

from rlkit.domains.math.parse import Node, TooBig, Unreadable, parse, split, work

_DIGITS = 40
_EQUAL = mpmath.mpf(10) ** -25  # relative difference below which two values are equal
_RESOLVED = 10**40  # above this, 40 digits do not tell a number from its neighbour
_DECIMALS = 6  # from which a decimal may stand for the exact value it rounds or cuts
_SIGNIFICANT = 5  # digits of such a decimal that are not leading zeros
_MAX_BITS = 2_000_000  # of an exact integer
_MAX_FRACTION_BITS = 50_000  # of an exact fraction, whose sums take the square of it
_MAX_EXPONENT = 10**15
_MAX_TERMS = 2_000  # of a sum or product
_POINTS = 4
_WHOLE = ("n", "k", "m")  # symbols that stand for whole numbers by convention
_UNDEFINED = (ArithmeticError, ValueError, TypeError, KeyError)

Point = Mapping[str, Any]
"""Values of the symbols; `log` is the function that log stands for, the natural one if missing."""


def value(node: Node, point: Point) -> Any:
    """The value at a point: a Fraction where arithmetic is exact, else mpmath's number.

    Raises:
        TooBig: a power, factorial or sum beyond what is computed.
        ArithmeticError, ValueError, KeyError: undefined at this point.
    """
    kind, *parts = node
    work().take()
    if kind == "num":
        return parts[0]
    if kind == "sym":
        return _CONSTANTS[parts[0]]() if parts[0] in _CONSTANTS else point[parts[0]]
    if kind in ("sum", "prod"):
        name, low, high, body = parts
        start, end = (int(mpmath.nint(value(bound, point))) for bound in (low, high))
        if end - start > _MAX_TERMS:
            raise TooBig
        values = [value(body, {**point, name: Fraction(i)}) for i in range(start, end + 1)]
        kind = {"sum": "add", "prod": "mul"}[kind]
    else:
        values = [value(part, point) for part in parts if isinstance(part, tuple)]
    if kind == "fn":
        work().take(10)
        name, values = parts[0], [_float(v) for v in values]
        if name not in _OF_LARGE and any(abs(v) > _MAX_EXPONENT for v in values):
            raise TooBig
        return point["log"](*values) if name == "log" and "log" in point else _FUNCTIONS[name](*values)
    if not all(isinstance(v, Fraction) for v in values):
        values = [_float(v) for v in values]
    if kind in _UNARY:
        return _sized(_UNARY[kind](values[0]))
    return reduce(lambda a, b: _sized(_BINARY[kind](a, b)), values)


def _sized(number: Any) -> Any:
    """A fraction with many digits as mpmath's number, which has 40."""
    if not isinstance(number, Fraction):
        return number
    work().take(_bits(number) // 100)
    return number if _bits(number) <= _most_bits(number) else _float(number)


def _float(number: Any) -> Any:
    """As mpmath's number; of a long integer the first digits alone, since mpmath takes the square of its length."""
    if not isinstance(number, Fraction):
        return number
    shift = max(0, number.numerator.bit_length() - 2000)
    return mpmath.ldexp(mpmath.mpf(number.numerator >> shift), shift) / number.denominator


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _most_bits(number: Fraction) -> int:
    return _MAX_BITS if number.denominator == 1 else _MAX_FRACTION_BITS


def _power(base: Any, exponent: Any) -> Any:
    if base == 0 and mpmath.re(exponent) <= 0:
        raise ZeroDivisionError
    if isinstance(base, Fraction) and exponent.denominator == 1:
        most = _most_bits(base) if exponent >= 0 else _MAX_FRACTION_BITS
        if abs(exponent) * _bits(base) <= most:
            return base ** int(exponent)
    base, exponent = _float(base), _float(exponent)
    if abs(exponent) > _MAX_EXPONENT or abs(mpmath.log(abs(base) or 1)) > _MAX_EXPONENT:
        raise TooBig
    if base.imag == 0 and base.real < 0 and exponent.imag == 0:
        root = mpmath.nint(1 / exponent.real)
        if root % 2 == 1 and abs(1 / exponent.real - root) < _EQUAL and root > 1:
            return -mpmath.power(-base, exponent)  # the real odd root, as \sqrt[3]{-8} is read
    return mpmath.power(base, exponent)


def _factorial(n: Any) -> Any:
    if isinstance(n, Fraction) and n.denominator == 1 and 0 <= n <= 2000:
        return Fraction(math.factorial(int(n)))
    work().take(10)
    if abs(n) > 10**9:
        raise TooBig
    return mpmath.factorial(_float(n))


def _whole(function: Callable[..., int]) -> Callable[..., Any]:
    return lambda *numbers: mpmath.mpf(function(*map(int, numbers)))


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "pi": lambda: +mpmath.pi, "e": lambda: +mpmath.e, "i": lambda: mpmath.mpc(0, 1), "infty": lambda: mpmath.inf,
}  # fmt: skip
_BINARY: dict[str, Callable[..., Any]] = {"add": operator.add, "mul": operator.mul, "pow": _power}
_UNARY: dict[str, Callable[..., Any]] = {"neg": operator.neg, "inv": lambda x: 1 / x, "fact": _factorial}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "cot": mpmath.cot, "sec": mpmath.sec,
    "csc": mpmath.csc, "arcsin": mpmath.asin, "arccos": mpmath.acos, "arctan": mpmath.atan,
    "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh, "log": mpmath.log, "ln": mpmath.log,
    "lg": mpmath.log10, "exp": mpmath.exp, "abs": abs, "floor": mpmath.floor, "ceil": mpmath.ceil,
    "binom": mpmath.binomial, "max": max, "min": min, "gcd": _whole(math.gcd), "lcm": _whole(math.lcm),
}  # fmt: skip
_OF_LARGE = {"abs", "ln", "log", "lg", "max", "min", "gcd", "lcm"}  # functions of numbers of any size


def symbols(*nodes: Node) -> set[str]:
    """Names of the unknowns of expressions (not pi, e, i, infinity and the index of a sum)."""
    found: set[str] = set()
    for node in nodes:
        kind, *parts = node
        if kind == "sym":
            found |= {parts[0]} - _CONSTANTS.keys()
        elif kind in ("sum", "prod"):
            found |= symbols(parts[1], parts[2]) | (symbols(parts[3]) - {parts[0]})
        else:
            found |= symbols(*(part for part in parts if isinstance(part, tuple)))
    return found


def _points(names: set[str]) -> Iterator[dict[str, Any]]:
    """Fixed sample points, one if there are no names; the first is all positive, later ones have mixed signs."""
    for index in range(100 if names else 1):
        yield {name: _coordinate(name, index) for name in sorted(names)}


def _coordinate(name: str, index: int) -> Fraction:
    digest = hashlib.sha256(f"{name}/{index}".encode()).digest()
    if name in _WHOLE:
        return Fraction(1 + index + digest[0] % 3)
    size = Fraction(int.from_bytes(digest[:4], "big"), 2**31) + Fraction(3, 10)
    return -size if index and digest[8] % 2 else size


def _samples(nodes: tuple[Node, ...], extra: Point | None = None) -> Iterator[list[Any]]:
    """The expressions' values at the points where all are defined; real ones are preferred."""
    complex_ones = []
    for point in _points(symbols(*nodes)):
        try:
            found = [value(node, {**point, **(extra or {})}) for node in nodes]
        except TooBig:
            raise
        except _UNDEFINED:
            continue
        if any(v != v for v in found):  # nan
            continue
        if all(abs(v.imag) <= _EQUAL * (1 + abs(v)) for v in found):
            yield found
        else:
            complex_ones.append(found)
    yield from complex_ones


def close(a: Any, b: Any) -> bool:
    """Equal, of fractions exactly, of others to 25 digits; infinities only to themselves."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = _float(a), _float(b)
    if mpmath.isinf(a) or mpmath.isinf(b):
        return a == b
    return abs(a - b) <= _EQUAL * max(abs(a), abs(b))


def same(a: Node, b: Node, extra: Point | None = None) -> bool:
    """Whether two expressions have the same value wherever both are defined."""
    if a == b:
        return True
    try:
        for digits in (_DIGITS, 3 * _DIGITS):  # 1 + cos(pi) is 0 up to rounding with any number of digits
            with mpmath.workdps(digits):
                found = list(islice(_samples((a, b), extra), _POINTS))
                if not found or not all(close(x, y) or _tiny(x, y, digits) for x, y in found):
                    return False
            x, y = found[0]
            if (
                not (isinstance(x, Fraction) and isinstance(y, Fraction))
                and abs(x) > _RESOLVED
                and not symbols(a, b)
            ):
                return _same_parts(a, b)
            if all(close(x, y) for x, y in found):
                return True
        return True
    except TooBig:
        return _same_parts(a, b)


def _tiny(x: Any, y: Any, digits: int) -> bool:
    return max(abs(_float(v)) for v in (x, y)) <= mpmath.mpf(10) ** (8 - digits)


def _same_parts(a: Node, b: Node) -> bool:
    """Equal operation by operation: for values that are too big to compute."""
    if a[0] != b[0] or len(a) != len(b):
        return False
    pairs = zip(a[1:], b[1:], strict=True)
    return all(same(x, y) if isinstance(x, tuple) and isinstance(y, tuple) else x == y for x, y in pairs)


def number(text: str) -> Any:
    """The real value of an expression without unknowns, as mpmath's number; None for anything else."""
    known = work().numbers
    if text not in known:
        try:
            with mpmath.workdps(_DIGITS):
                found = _float(value(parse(text), {}))
                real = found == found and abs(found.imag) <= _EQUAL * abs(found)
                known[text] = found.real if real else None
        except (*_UNDEFINED, RecursionError):
            known[text] = None
    return known[text]


def same_expression(a: str, b: str) -> bool:
    """Whether two formulas are equal, log being the natural or, if that fails, the decimal logarithm; a long decimal
    may stand for the value it rounds."""
    try:
        left, right = parse(a), parse(b)
    except Unreadable:
        return False
    decimal = {"log": mpmath.log10}
    equal = same(left, right) or ("log" in a + b and same(left, right, decimal))
    return equal or _rounded(a, right) or _rounded(b, left)


def _rounded(text: str, precise: Node) -> bool:
    """A decimal with many digits for an exact value without a decimal form of that length."""
    match = re.fullmatch(r"[+-]?\d*\.(\d+)", text.strip())
    places = len(match[1]) if match else 0
    if not _DECIMALS <= places <= 1000 or symbols(precise):
        return False
    if len(text.strip("+-0. ").replace(".", "").lstrip("0")) < _SIGNIFICANT:
        return False
    try:
        with mpmath.workdps(_DIGITS + places):
            found = value(precise, {})
            if isinstance(found, Fraction) and (found * 10**places).denominator == 1:
                return False  # it has a decimal form of that length, which this is not
            return bool(mpmath.isfinite(found) and abs(mpmath.mpf(text) - found) <= mpmath.mpf(10) ** -places)
    except _UNDEFINED:
        return False


def ratio_sign(a: Node, b: Node) -> int:
    """1 or -1 if a is a constant positive or negative multiple of b, else 0."""
    try:
        with mpmath.workdps(_DIGITS):
            found = [(x, y) for x, y in islice(_samples((a, b)), _POINTS + 2) if x != 0 and y != 0]
            if len(found) < (3 if symbols(a, b) else 1):
                return 0
            first = found[0][0] / found[0][1]
            if first.imag or not all(close(x / y, first) for x, y in found):
                return 0
            return 1 if first > 0 else -1
    except TooBig:
        return int(_same_parts(a, b))


def same_antiderivative(a: str, b: str, constant: str) -> bool:
    """Whether two formulas with `+ constant` differ by a number alone."""
    try:
        left, right = parse(a), parse(b)
        if symbols(left) != symbols(right) or len(symbols(left)) < 2:
            return False
        with mpmath.workdps(_DIGITS):
            zero, one = (list(islice(_samples((left, right), {constant: Fraction(c)}), 5)) for c in (0, 1))
            added = [
                y - x for at_0, at_1 in zip(zero, one, strict=True) for x, y in zip(at_0, at_1, strict=True)
            ]
            apart = [_float(x - y) for x, y in zero]
            return (
                len(apart) > 2
                and all(close(step, 1) for step in added)
                and all(abs(d - apart[0]) <= _EQUAL * (1 + abs(apart[0])) for d in apart)
            )
    except (Unreadable, *_UNDEFINED):
        return False


# Sets of real numbers: intervals, inequalities, absolute values, points left out, words.

RELATIONS = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"}
_HOLDS: dict[str, Callable[[int], bool]] = {
    "<": lambda sign: sign < 0, ">": lambda sign: sign > 0, "\\ne": lambda sign: sign != 0,
    "\\le": lambda sign: sign <= 0, "\\ge": lambda sign: sign >= 0,
}  # fmt: skip
_BUILDER = re.compile(
    r"\\\{\s*(?P<name>\\?[A-Za-z]+)\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:|,)\s*(?P<condition>.+)\\\}"
)
_MINUS = re.compile(
    r"\s*(?:\\(?:setminus|smallsetminus|backslash)(?![A-Za-z])|-(?=\s*\\\{)|(?:\\and|,)?\s*\\except)\s*"
)
_ALL = re.compile(
    r"(?:(?:\\?[A-Za-z]\s*(?:\\in|=|is|can be|may be)?\s*)?(?:the set of )?(?:all|any|every)?\s*(?:of )?(?:the )?"
    r"(?:reals|real (?:numbers?|values?|line))(?: of \\?[A-Za-z])?"
    r"|\\?[A-Za-z] (?:is|can be) (?:real|any(?:thing| number| value))|for all (?:real )?\\?[A-Za-z]"
    r"|(?:for )?(?:all|any|every) (?:real (?:number )?\\?[A-Za-z]|(?:real )?\\?[A-Za-z] ?\\in ?reals))"
)
_EXCEPT = re.compile(r"\b(?:except(?: for)?|other than|besides|excluding|but not|but|without)\b")
_BOTH_SIGNS = re.compile(r"(\\?[A-Za-z]+\s*\\ne)\s*\\pm\s*([^,;<>=]+)$")
_LONGEST, _MOST = 2000, 60  # characters of a set; parts of it


@dataclass(frozen=True)
class RealSet:
    """Which real numbers belong to it, and the numbers between which that does not change."""

    contains: Callable[[Any], bool]
    ends: tuple[Any, ...] = ()
    name: str = ""
    """The variable of its conditions, if it has one."""
    bare: bool = False
    """Written as one pair of brackets, which can also be a point or a list."""


def same_set(a: RealSet, b: RealSet) -> bool:
    with mpmath.workdps(_DIGITS):
        named_apart = a.name and b.name and a.name != b.name
        return not named_apart and all(a.contains(x) == b.contains(x) for x in _probes(a.ends + b.ends))


def _probes(ends: tuple[Any, ...]) -> list[Any]:
    """The ends of intervals, and a number in each of them."""
    finite = sorted(x for x in ends if mpmath.isfinite(x)) or [mpmath.mpf(0)]
    outside = [finite[0] - 1 - abs(finite[0]), finite[-1] + 1 + abs(finite[-1])]
    return [*finite, *((x + y) / 2 for x, y in pairwise(finite)), *outside]


def real_set(text: str) -> RealSet | None:
    """The set that a normalised answer is; None for anything else."""
    if len(text) > _LONGEST:
        return None
    with mpmath.workdps(_DIGITS):
        return _read(_spoken(text))


def _spoken(text: str) -> str:
    """Words in signs: `all real numbers except 2` as `\\mathbb{R} \\except 2`."""
    text = text.replace("\\forall", "for all ")
    if not re.search(r"[a-z]{3}", re.sub(r"\\[A-Za-z]+", "", text)):
        return text
    plain = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r" \1 ", text)
    plain = re.sub(r"\s+", " ", _EXCEPT.sub(r" \\except ", plain)).strip()
    head, sign, points = plain.partition("\\except")
    if _ALL.fullmatch(head.strip(" ,.").replace("\\mathbb{R}", "reals").casefold()):
        return "\\mathbb{R}" + sign + points
    return plain if sign else text


def _read(text: str) -> RealSet | None:
    text = _BOTH_SIGNS.sub(r"\1 \2 \\and \1 -(\2)", text.strip(" ."))
    if match := _BUILDER.fullmatch(text):
        found = _read(match["condition"]) if match["name"] in match["condition"] else None
        return replace(found, name="") if found else None
    for separators, combine in (({"\\or", "\\cup"}, any), ({"\\cap"}, all)):
        parts, signs = split(text, separators)
        if signs:
            return _combined([_read(part) for part in parts], combine)
    if match := _MINUS.search(text):
        return _without(_read(text[: match.start()]), text[match.end() :])
    parts, signs = split(text, {",", ";", "\\and"})
    return _conditions([part for part in parts if part]) if signs else _single(text)


def _combined(found: list[RealSet | None], combine: Callable[[Iterator[bool]], bool]) -> RealSet | None:
    sets = [f for f in found if f is not None]
    names = {f.name for f in sets if f.name}
    if not 0 < len(sets) == len(found) <= _MOST or len(names) > 1:
        return None
    ends = tuple(x for f in sets for x in f.ends)
    return RealSet(lambda x: combine(f.contains(x) for f in sets), ends, next(iter(names), ""))


def _conditions(parts: list[str]) -> RealSet | None:
    """All of several conditions; `x \\ne 1, 2` leaves out both; disjoint ones, `x < 0, x > 1`, are alternatives."""
    if parts and "\\ne" in parts[0] and all(number(part) is not None for part in parts[1:]):
        head = parts[0].partition("\\ne")[0]
        parts = [parts[0], *(f"{head}\\ne {part}" for part in parts[1:])]
    found = [_read(part) for part in parts]
    both = _combined([None if f is None or f.bare else f for f in found], all)
    if both is None or any(map(both.contains, _probes(both.ends))):
        return both
    return _combined(found, any)


def _points_listed(text: str) -> tuple[Any, ...] | None:
    """The numbers of `1, 2`, `\\{1, 2\\}` or `x = 1`; None for anything else."""
    text = text.strip(" .").removeprefix("\\{").removesuffix("\\}")
    parts = [p for p in split(text, {",", ";", "\\and", "\\or"})[0] if p]
    found = tuple(number(re.sub(r"^\\?[A-Za-z]\s*(?:=|\\ne)\s*", "", part)) for part in parts)
    return None if not found or None in found else found


def _listed(points: tuple[Any, ...], x: Any) -> bool:
    return any(close(x, point) for point in points)


def _without(whole: RealSet | None, text: str) -> RealSet | None:
    points = _points_listed(text)
    if whole is None or points is None:
        return None
    return RealSet(lambda x: whole.contains(x) and not _listed(points, x), whole.ends + points, whole.name)


def _single(text: str) -> RealSet | None:
    if re.fullmatch(r"\\mathbb ?\{R\}", text):
        return RealSet(lambda x: True)
    operands, operators = split(text, RELATIONS)
    if operators == ["\\in"]:
        found, name = _read(operands[1]), _symbol(operands[0])
        return replace(found, name=name, bare=False) if found and name else None
    if operators:
        pairs = zip(operands, operators, operands[1:], strict=False)
        return (
            _combined([_inequality(*pair) for pair in pairs], all)
            if set(operators) <= _HOLDS.keys()
            else None
        )
    if text.startswith("\\{") and text.endswith("\\}") and (points := _points_listed(text)):
        return RealSet(lambda x: _listed(points, x), points, bare=True)
    if len(text) > 2 and text[0] in "[(]" and text[-1] in "])[":
        bounds = [number(re.sub(r"^\+\s*(?=\\infty)", "", part)) for part in split(text[1:-1], {",", ";"})[0]]
        if len(bounds) == 2 and None not in bounds and bounds[0] <= bounds[1]:  # (3, 2) is a point
            low, high = bounds
            closed = [
                bound for bound, sign in zip(bounds, (text[0] == "[", text[-1] == "]"), strict=True) if sign
            ]
            return RealSet(
                lambda x: _listed(tuple(closed), x) or (low < x < high and not _listed((low, high), x)),
                (low, high),
                bare=True,
            )
    return None


def _symbol(text: str) -> str:
    """The name of a variable, "" for anything else."""
    try:
        node = parse(text)
    except Unreadable:
        return ""
    return node[1] if node[0] == "sym" and symbols(node) else ""


def _inequality(left: str, operator: str, right: str) -> RealSet | None:
    """One condition on one variable, linear but for an absolute value on either side."""
    try:
        nodes = parse(left), parse(right)
        (name,) = symbols(*nodes)
        sides = [[n[2], ("neg", n[2])] if n[:2] == ("fn", "abs") else [n] for n in nodes]
        ends = tuple(x for a, b in product(*sides) for x in _roots(("add", a, ("neg", b)), name))
    except (Unreadable, *_UNDEFINED):
        return None

    def contains(x: Any) -> bool:
        a, b = (_float(value(node, {name: x})) for node in nodes)
        return _HOLDS[operator](0 if close(a, b) else 1 if a > b else -1)

    return RealSet(contains, ends, name)


def _roots(node: Node, name: str) -> list[Any]:
    """Where a linear function is zero. ValueError: it is not linear."""
    at = {x: value(node, {name: Fraction(x)}) for x in (0, 1, 2, 5)}
    if mpmath.isinf(_float(at[0])):
        return []
    slope = at[1] - at[0]
    if not all(close(at[x], at[0] + x * slope) for x in (2, 5)):
        raise ValueError("not linear")
    return [_float(-at[0] / slope)] if slope else []
