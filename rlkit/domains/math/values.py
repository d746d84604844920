"""The values of expressions, and whether two are equal: exactly where they are rational, numerically elsewhere.

Expressions with symbols are compared at fixed pseudo-random points (Schwartz 1980: two different rational functions
agree at a random point with negligible probability), with so many digits that a small difference shows. Values whose
digits would fill memory are never computed: they equal nothing but their own text. Numbers with units are split from
them, converted (through pint) and compared."""

import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import mpmath

from rlkit.domains import vocabulary
from rlkit.domains.answers import in_percent
from rlkit.domains.math.parse import FONT, OF_ONE, Node, TooBig, Unreadable, parse, take_steps

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


class Amount(NamedTuple):
    """A number or formula as text, and its unit, "" where it has none."""

    number: str
    unit: str = ""


_START = re.compile(rf"{FONT}\{{|\\degree\b|\\Omega\b|\\mu\b|\\%|%")
_PLAIN = re.compile(r"(?P<number>(?s:.*)[\d})\]])(?P<gap>\s*)(?P<unit>[A-Za-z][A-Za-z0-9 .^/*{}()\\-]*)$")
_LETTERS = frozenset("msghLlNJWVAKCFTH")  # units of one letter; only behind a number and a blank
_SHORT = frozenset(vocabulary("units").split())
_ANGLE_OF = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")  # sin 30° is no angle
_NO_UNIT = re.compile(  # 3 to 4, 3 or more, 3%4, 18% of 50, 5 squared, 5 tenths, 5 is wrong, \mathrm{e}
    r"\b(?:or|to|not|than|but|from|until|plus|minus|vs|is|are|was)\b|%\s*\d|(?<!per)(?<!/) \d|^[(\[/] ?\d(?!/)"
    r"|^\(?(?:and|below|above|under|over|less|fewer|more|times|squared|cubed|factorial|modulo|choose|per ?mille"
    r"|(?:score|lakh|crore|googol|myriad|ten|fold|(?:ten|hundred)-thousand|(?:tr|quadr|quint|sext|sept|oct|non|dec)illion)s?"
    r"|gross(?:es)?|twice"
    r"|doubled|tripled|halved|root|pi|except|excluded|excluding|without|almost"
    r"|at (?:most|least)|unlikely|isn['’]t|(?:with )?(?:a )?remainder|hal(?:f|ves)|quarters?"
    r"|(?:third|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)tie|hundred|thousand|(?:m|b|tr|quadr)illion)th)s?)\b(?!-)"
    r"|^\(?(?:negative|inverse|reciprocal|radical|(?:in)?correct|wrong|false)\W*$|^[eid]$"
    r"|^(?:sin|cos|tan|log|mod|sqrt|cbrt|exp|infinity)\b"
)
_DEGREES = re.compile(r"(?:\\degree\s*\{?\s*|(?<![A-Za-z])degrees?\s+)([cCfFK])(?:elsius|ahrenheit)?\b\}?")
_MONEY = {"$": 1.0, "dollar": 1.0, "dollars": 1.0, "usd": 1.0, "cent": 0.01, "cents": 0.01, "¢": 0.01}
_PERCENT = {"%", "\\%", "percent", "per cent", "percentage", "pct"}
_WORD = re.compile(r"\w{4,}")  # shorter ones keep their case, which tells units apart (mW, MW)
_UNIT_NAME = r"[A-Za-z]+(?![A-Za-z])(?:\^\(?-?[1-9]\)?|-?[1-9](?![0-9]))?"
_UNIT_TEXT = re.compile(rf"(?:{_UNIT_NAME}(?![\^(0-9])|[*/()]|1(?=\s*/)|[ .])+")  # no powers of powers
_PART = r"(\d{1,9}(?:\.\d{1,9})?) ?([A-Za-z]{1,12})(?![A-Za-z])"
_NUMERAL = re.compile(  # 1.5e3, 3 * 10^8, 10^{-19}
    r"[-+]?(?:[\d.,]+(?:e[-+]?\d+)?|(?:[\d.,]+ ?\* ?)?10 ?\^ ?(?:[-+]?\d+|\{ ?[-+]?\d+ ?\}|\( ?[-+]?\d+ ?\)))"
)


def split_unit(text: str) -> Amount:
    """The number and its unit of a normalised answer. The unit is "%" for every percentage, "mod 7" for a residue,
    "base 5" for digits in a base."""
    if residue := re.fullmatch(r"(.+?)[\s,]*\\mod (.+)", text):
        return Amount(residue[1], f"mod {residue[2]}")
    if based := re.fullmatch(r"\(?(\d+)\)?\s*_\s*\{?(\d{1,2})\}?", text):
        return Amount(based[1], f"base {based[2]}")
    if text.startswith("$") or text.endswith("$"):
        bare = text.strip("$ ")
        money = re.fullmatch(r"(-?[\d.,]+)(?:\s+|\s*\\text\s*\{\s*)([A-Za-z][A-Za-z ']{2,60}?)\}?", bare)
        return Amount(money[1], f"$ {money[2]}") if money else Amount(bare, "$")  # $18 per day
    for match in _START.finditer(text):
        figure, unit = text[: match.start()].strip(), _clean(text[match.start() :])
        if figure and figure.count("{") == figure.count("}"):
            angle = "degree" in match.group() and _ANGLE_OF.search(figure)
            return Amount(text) if angle or _NO_UNIT.search(unit) else Amount(figure, unit)
    if (match := _PLAIN.match(text)) and not _NO_UNIT.search(unit := _clean(match["unit"])):
        first, figure = re.split(r"[\s^/*.({]", unit, maxsplit=1)[0], match["number"].strip()
        letter = first in _LETTERS and _NUMERAL.fullmatch(figure)
        if first in _SHORT or (match["gap"] and (letter or len(first) >= 3)):
            return Amount(figure, unit)
    return Amount(text)


def _clean(unit: str) -> str:
    """A unit's text without fonts and braces: `\\mathrm{cm/s^2}` is `cm/s^2`."""
    unit = _DEGREES.sub(lambda m: f" deg{m[1].upper()}", re.sub(FONT, "", unit))
    for command, name in (("\\degree", "degree"), ("\\Omega", "ohm"), ("\\mu ", "micro"), ("\\%", "%")):
        unit = unit.replace(command, name)
    unit = re.sub(r"\s+", " ", re.sub(r"[{}~$]|\\[,;:! ]?", " ", unit))
    unit = unit.replace("^ ", "^").replace(" ^", "^").strip(" .,")
    return "%" if unit.lower() in _PERCENT else unit


@lru_cache
def registry() -> Any:
    """pint's registry of units, and the names that it began with."""
    import pint

    units = pint.UnitRegistry(autoconvert_offset_to_baseunit=True)
    return units, frozenset(units)  # to whose names pint adds each one with a prefix that it reads


@lru_cache(maxsize=512)
def _pint(unit: str) -> Any:
    """The pint unit; any error where pint does not know it. pint computes powers: only small ones are let through."""
    if len(unit) > 60 or not _UNIT_TEXT.fullmatch(unit):
        raise ValueError(f"{unit} is no unit")
    units, known = registry()
    found = [units.parse_unit_name(name)[:1] for name in re.findall("[A-Za-z]+", unit)]
    if any(name not in known for first in found for _, name, _ in first):
        raise ValueError(f"{unit} has two prefixes")
    return units.parse_units(unit.replace(".", " "))


def _converted(figure: float, unit: str, other: str) -> float:
    """A number in one unit as one in the other; nan where that cannot be."""
    if unit.lower() in _MONEY and other.lower() in _MONEY:
        return figure * _MONEY[unit.lower()] / _MONEY[other.lower()]
    try:
        return registry()[0].Quantity(figure, _pint(unit)).to(_pint(other)).magnitude
    except Exception:  # pint: no unit, other dimensions, a logarithmic unit, an offset in a product
        return math.nan


def same_amount(a: Amount, b: Amount, tolerance: float = 0.0) -> bool:
    """Whether two numbers with or without units are equal; a unit that one leaves out is the other's. With a relative
    tolerance two whole numbers of one unit never agree, and no number is half a unit from a whole one."""
    if (a.unit == "%") != (b.unit == "%"):
        share, bare = (a, b) if a.unit == "%" else (b, a)
        value = number(bare.number) if _NUMERAL.fullmatch(bare.number) else None
        scale = 1 if value is not None and in_percent(value) else 100
        return not bare.unit and not tolerance and same_expression(f"({share.number})/{scale}", bare.number)
    ours, theirs = (_WORD.sub(lambda m: m[0].lower().rstrip("s"), x.unit.replace("*", " ")) for x in (a, b))
    same_unit = not a.unit or not b.unit or ours == theirs
    residues = f"{a.number} {b.number} {a.unit[4:]}" if ours == theirs and ours.startswith("mod ") else ""
    if re.fullmatch(r"-?\d{1,40} -?\d{1,40} \d{1,40}", residues):  # 2 mod 3 is -1 mod 3
        first, second, modulus = map(int, residues.split())
        return abs(first - second) in (0, modulus)
    if same_unit and not tolerance:
        return same_expression(a.number, b.number)
    x, y = number(a.number), number(b.number)
    if x is None or y is None:
        return False
    apart = abs((x if same_unit else _converted(float(x), a.unit, b.unit)) - y)
    whole = [same_unit and re.fullmatch(r"-?[\d,]+", text) for text in (a.number, b.number)]
    if all(whole) or (any(whole) and apart >= 0.5):
        return False
    return bool(mpmath.isfinite(y) and apart <= (tolerance or 1e-9) * abs(y))


def compound(text: str) -> Amount | None:
    """`3 hours 20 minutes`, `5 ft 4 in` as one amount in the last of its units; None for anything else."""
    bare = re.sub(r"\s+", " ", re.sub(rf"{FONT}|[{{}}~]|\\?and", " ", text)).strip(" .")
    if len(bare) >= 100 or not re.fullmatch(rf"(?:{_PART}[ ,]*){{2,4}}", bare):
        return None
    parts = re.findall(_PART, bare)
    last = parts[-1][1]
    total = sum(_converted(float(figure), unit, last) for figure, unit in parts)
    if math.isnan(total) or len({unit for _, unit in parts}) < len(parts):
        return None
    return Amount(str(Fraction(total).limit_denominator(10**6)), last)
