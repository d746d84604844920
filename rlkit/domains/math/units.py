"""Numbers with units: how they are split, converted (through pint) and compared."""

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import mpmath

from rlkit.domains import vocabulary
from rlkit.domains.answers import in_percent
from rlkit.domains.math.equal_expressions import number, same_expression
from rlkit.domains.math.parse import FONT


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
