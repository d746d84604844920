"""Numbers with units: splitting one from the other, and comparing them through pint."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import mpmath

from rlkit.domains.answers import in_percent
from rlkit.domains.math.values import number, same_expression


class Amount(NamedTuple):
    """A number or formula as text, and its unit, "" where it has none."""

    number: str
    unit: str = ""


_FONT = r"\\(?:text|mathrm|unit)(?![A-Za-z])"
_START = re.compile(rf"{_FONT}\s*\{{|\\degree\b|\\Omega\b|\\mu\b|\\%|%")
_PLAIN = re.compile(
    r"^(?P<number>.*[\d})\]])(?P<gap>\s*)(?P<unit>[A-Za-z][A-Za-z]*[A-Za-z0-9 .^/*{}()\\-]*)$", re.DOTALL
)
_LETTERS = frozenset("msghLlNJWVAKCFTH")  # units of one letter; only behind a number and a blank
_ABBREVIATIONS = (
    "mm cm dm km kg mg ml mL nm um ft in inch inches yd mi lb lbs oz mph kph hr hrs min mins sec secs kPa MPa atm torr "
    "mmHg bar psi cal kcal mol mmol rad deg ohm ms ns Hz kHz MHz GHz Pa kJ MJ eV keV MeV kW MW mW kWh kV mV mA kN"
)
_SHORT = frozenset(_ABBREVIATIONS.split())
_GENERIC = re.compile(
    r"(?:(?:(?:square|cubic|sq\.?|cu\.?|linear)\s+)?units?(?:\s*\^\s*\{?[23]\}?)?|(?:in\s+)?total|old|[^\x00-\x7f]+)?"
)
_FUNCTIONS = ("sin", "cos", "tan", "log", "mod", "sqrt", "cbrt", "exp", "infinity")
_ANGLE_OF = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")  # sin 30° is no angle
_NO_UNITS = ("e", "i", "d")  # constants in roman type
_NO_UNIT = re.compile(  # 3 to 4, 3 or more, 3%4, 18% of 50, 5 squared, 5 tenths, 5 is wrong
    r"\b(?:or|to|not|than|but|from|until|plus|minus|vs|is|are|was)\b|%\s*\d|(?<!per)(?<!/) \d|^[(\[/] ?\d(?!/)"
    r"|^\(?(?:and|below|above|under|over|less|fewer|more|times|squared|cubed|factorial|modulo|choose|score"
    r"|per mille|lakh|crore|googol|gross|myriad|tens|fold|(?:quadr|quint|sext|sept|oct|non|dec)illions?|twice"
    r"|doubled|tripled|halved|root|pi|except|excluded|excluding|without|almost"
    r"|at (?:most|least)|unlikely|isn['’]t|(?:with )?(?:a )?remainder|hal(?:f|ves)|quarters?"
    r"|(?:third|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)tie|hundred|thousand|million)th)s?)\b(?!-)"
    r"|^\(?(?:negative|inverse|reciprocal|radical|(?:in)?correct|wrong|false)\W*$"
)
_SCALE = re.compile(
    r"(?P<money>\$ ?)?(?P<word>hundred|thousand|million|billion|trillion|dozen)s?\b\s*(?P<unit>.*)"
)
_SCALES = {"hundred": 100, "dozen": 12, "thousand": 10**3, "million": 10**6, "billion": 10**9,
           "trillion": 10**12}  # fmt: skip
_MONEY = {"$": 1.0, "dollar": 1.0, "dollars": 1.0, "usd": 1.0, "cent": 0.01, "cents": 0.01, "¢": 0.01}
_PERCENT = {"%", "\\%", "percent", "per cent", "percentage", "pct"}
_UNIT_NAME = r"[A-Za-z]+(?![A-Za-z])(?:\^\(?-?[1-9]\)?|-?[1-9](?![0-9]))?"
_UNIT_TEXT = re.compile(rf"(?:{_UNIT_NAME}(?![\^(0-9])|[*/()]|1(?=\s*/)|[ .])+")  # no powers of powers
_PART = r"(\d{1,9}(?:\.\d{1,9})?) ?([A-Za-z]{1,12})(?![A-Za-z])"
_NUMERAL = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?")
_POWER_OF_TEN = re.compile(  # 3 * 10^8, 10^{-19}
    r"[-+]?(?:[\d.,]+ ?\* ?)?10 ?\^ ?(?:[-+]?\d+|\{ ?[-+]?\d+ ?\}|\( ?[-+]?\d+ ?\))"
)


def split_unit(text: str) -> Amount:
    """The number and its unit of an answer that has been normalised; `18 million dollars` is 18*10^6 dollars. The unit
    is "%" for every percentage, and "" for words of no particular unit, such as "square units"."""
    if residue := re.fullmatch(r"(.+?)[\s,]*\\mod (.+)", text):
        return Amount(residue[1], f"mod {residue[2]}")
    if based := re.fullmatch(r"\(?(\d+)\)?\s*_\s*\{?(\d{1,2})\}?", text):
        return Amount(based[1], f"base {based[2]}")
    number, unit = _split_money(text) or _split_words(text)
    if match := _SCALE.fullmatch(unit):
        number, unit = f"({number})*{_SCALES[match['word']]}", match["money"] or match["unit"]
    if unit.lower() in _PERCENT:
        unit = "%"
    return Amount(number, "" if _GENERIC.fullmatch(unit.lower()) else unit)


def _split_money(text: str) -> tuple[str, str] | None:
    if not (text.startswith("$") or text.endswith("$")):
        return None
    bare = text.strip("$ ")
    money = re.fullmatch(r"(-?[\d.,]+)(?:\s+|\s*\\text\s*\{\s*)([A-Za-z][A-Za-z ]{2,40}?)\}?", bare)
    return (money[1], f"$ {money[2]}") if money else (bare, "$")  # $18 per day


def _split_words(text: str) -> tuple[str, str]:
    for match in _START.finditer(text):
        number = text[: match.start()].strip()
        if number and number.count("{") == number.count("}"):
            unit = _clean(text[match.start() :])
            angle = "degree" in match.group() and _ANGLE_OF.search(number)
            return (text, "") if angle or unit in _NO_UNITS or _NO_UNIT.search(unit) else (number, unit)
    if (match := _PLAIN.match(text)) and not _NO_UNIT.search(unit := _clean(match["unit"])):
        first = re.split(r"[\s^/*.({]", match["unit"], maxsplit=1)[0]
        figure = match["number"].strip()
        figure = _NUMERAL.fullmatch(figure) or _POWER_OF_TEN.fullmatch(figure)
        letter = first in _LETTERS and match["gap"] and figure
        word = match["gap"] and len(first) >= 3 and first not in _FUNCTIONS
        if letter or word or first in _SHORT:
            return match["number"].strip(), unit
    return text, ""


def _clean(unit: str) -> str:
    """A unit's text without fonts and braces: `\\mathrm{cm/s^2}` is `cm/s^2`."""
    unit = re.sub(_FONT + r"\s*", "", unit)
    degree = re.compile(r"(?:\\degree\s*\{?\s*|(?<![A-Za-z])degrees?\s+)([cCfFK])(?:elsius|ahrenheit)?\b\}?")
    unit = degree.sub(lambda m: f" deg{m[1].upper()}", unit)
    for command, name in (("\\degree", "degree"), ("\\Omega", "ohm"), ("\\mu", "micro"), ("\\%", "%")):
        unit = unit.replace(command, name)
    unit = re.sub(r"\s+", " ", re.sub(r"[{}~$]|\\[,;:! ]?", " ", unit))
    return unit.replace("^ ", "^").replace(" ^", "^").strip(" .,")


def _conversion(unit: str, other: str) -> tuple[float, float] | None:
    """What a number in `unit` is multiplied by, and what is added then, to be one in `other`; None if it cannot be."""
    if ("%" in unit) != ("%" in other):
        return None  # 40% water
    if _words(unit) == _words(other):
        return 1.0, 0.0
    if unit.lower() in _MONEY and other.lower() in _MONEY:
        return _MONEY[unit.lower()] / _MONEY[other.lower()], 0.0
    a, b = _pint(unit), _pint(other)
    if a is None or b is None:
        x, y = set(_words(unit)), set(_words(other))
        return (1.0, 0.0) if a is None and b is None and (x <= y or y <= x) else None
    try:
        zero, one = (registry().Quantity(x, a).to(b).magnitude for x in (0.0, 1.0))
    except Exception:  # pint: of other dimensions, a logarithmic unit, an offset in a product
        return None
    return one - zero, zero


def _words(unit: str) -> list[str]:
    """Words in a comparable form; case is kept where it tells units apart (mW, MW)."""
    words = re.split(r"[\s*]+", unit)
    return [w.lower().rstrip("s") if len(w) > 3 else w for w in words if w not in ("of", "the", "")]


@lru_cache
def registry() -> Any:
    """pint's units."""
    import pint

    return pint.UnitRegistry(autoconvert_offset_to_baseunit=True)


@lru_cache(maxsize=512)
def _pint(unit: str) -> Any:
    """The pint unit, or None if pint does not know it. pint computes powers: only small ones are let through."""
    if len(unit) > 60:
        return None
    text = re.sub(r"\bmicro\s*\*?\s+", "micro", re.sub(r"\b(sq|cu)\.", r"\1", unit.replace("**", "^")))
    if not _UNIT_TEXT.fullmatch(text):
        return None
    text = re.sub(r"([A-Za-z])(-?[1-9])", r"\1^\2", text)
    try:
        return registry().parse_units(text.replace(".", " "))
    except Exception:  # pint raises anything from its own errors to KeyError for what is no unit
        return None


def same_amount(a: Amount, b: Amount) -> bool:
    """Whether two numbers with or without units are equal; a unit that one leaves out is the other's."""
    if "%" in (a.unit, b.unit):
        return _same_percent(a, b)
    if not a.unit or not b.unit or a.unit == b.unit:
        return same_expression(a.number, b.number) or _same_angle(a, b) or _same_angle(b, a)
    conversion = _conversion(a.unit, b.unit)
    if conversion == (1.0, 0.0):
        return same_expression(a.number, b.number)
    return conversion is not None and _converted(a.number, conversion, b.number, 1e-9)


def _same_percent(a: Amount, b: Amount) -> bool:
    if a.unit == b.unit:
        return same_expression(a.number, b.number)
    share, bare = (a, b) if a.unit == "%" else (b, a)
    value = number(bare.number) if _NUMERAL.fullmatch(bare.number) else None
    scale = 1 if value is not None and in_percent(value) else 100
    return not bare.unit and same_expression(f"({share.number})/{scale}", bare.number)


def _same_angle(degrees: Amount, other: Amount) -> bool:
    """90 degrees against pi/2: an angle without a unit is in radians if it is written with pi."""
    if degrees.unit not in ("degree", "degrees", "deg") or other.unit not in ("", "rad", "radians"):
        return False
    return "pi" in other.number and same_expression(f"({degrees.number})*\\pi/180", other.number)


def approximately(a: Amount, b: Amount, tolerance: float) -> bool:
    """Whether two amounts agree within a relative tolerance; two whole numbers of one unit never do, and no number is
    half a unit from a whole one."""
    if (a.unit == "%") != (b.unit == "%"):
        return False
    conversion = _conversion(a.unit, b.unit) if a.unit and b.unit else (1.0, 0.0)
    if conversion is None:
        return False
    whole = (
        [re.fullmatch(r"-?[\d,]+", amount.number) for amount in (a, b)] if conversion == (1.0, 0.0) else []
    )
    return not (whole and all(whole)) and _converted(
        a.number, conversion, b.number, tolerance, 0.5 if any(whole) else None
    )


def _converted(
    a: str, conversion: tuple[float, float], b: str, tolerance: float, most: float | None = None
) -> bool:
    x, y = number(a), number(b)
    if x is None or y is None or not mpmath.isfinite(x) or not mpmath.isfinite(y):
        return False
    apart = abs(x * conversion[0] + conversion[1] - y)
    return bool(apart <= tolerance * abs(y) and (most is None or apart < most))


def compound(text: str) -> Amount | None:
    """`3 hours 20 minutes`, `5 ft 4 in` as one amount in the last of its units; None for anything else."""
    bare = re.sub(r"[{}~]|\\and", " ", re.sub(_FONT, " ", text)).replace("and", " ")
    bare = re.sub(r"\s+", " ", bare).strip(" .")
    if len(bare) >= 100 or not re.fullmatch(rf"(?:{_PART}[ ,]*){{2,4}}", bare):
        return None
    parts = re.findall(_PART, bare)
    total, last = Fraction(0), parts[-1][1]
    for amount, unit in parts:
        conversion = _conversion(unit, last)
        if _pint(unit) is None or conversion is None or conversion[1]:
            return None
        total += Fraction(amount) * Fraction(conversion[0]).limit_denominator(10**6)
    return Amount(str(total), last) if len({unit for _, unit in parts}) == len(parts) else None
