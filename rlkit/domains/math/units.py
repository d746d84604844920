"""Numbers with units: splitting one from the other, and comparing them through pint."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath

from rlkit.domains.answers import in_percent
from rlkit.domains.math.evaluate import number, same_expression

Amount = tuple[str, str]
"""A number's text and its unit, "" where it has none."""

_FONT = r"\\(?:text|mathrm|textrm|mbox|operatorname|textbf|mathit|mathbf|textit|rm|unit)(?![A-Za-z])"
_START = re.compile(rf"{_FONT}\s*\{{|\\degree\b|\\Omega\b|\\mu\b|\\%|%")
_PLAIN = re.compile(
    r"^(?P<number>.*[\d})\]])(?P<gap>\s*)(?P<unit>[A-Za-z][A-Za-z]*[A-Za-z0-9 .^/*{}()\\-]*)$", re.DOTALL
)
_LETTERS = frozenset("msghLlNJWVAKCFTH")  # units of one letter; only behind a number and a blank
_WORDS = (
    "mm cm dm km kg mg ml mL cl dl nm um ft in inch inches yd mi lb lbs oz mph kph hr hrs min mins sec secs "
    "dB Da kDa Bq Sv Gy lx lm cd sr bar atm torr mmHg ppm ppb psi cal kcal pc kpc Mpc ly AU hp "
    "ms ns Hz kHz MHz GHz Pa kPa MPa kJ MJ eV keV MeV kW MW mW Wh kWh mol mmol rad deg ohm kV mV mA mF kN "
    "degrees degree meters meter feet foot miles mile hours hour minutes minute seconds second days day "
    "years year weeks week months month dollars dollar cents cent percent units unit liters litres"
)
_SHORT = frozenset(_WORDS.split())
_GENERIC = re.compile(
    r"(?:(?:square|cubic|sq\.?|cu\.?|linear)\s+)?units?(?:\s*\^\s*\{?[23]\}?)?|(?:in\s+)?total|old|[^\x00-\x7f]+"
)
_FUNCTIONS = ("sin", "cos", "tan", "log", "mod", "sqrt", "cbrt", "exp", "infinity")
_ANGLE_OF = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")  # sin 30° is no angle
_NO_UNITS = ("e", "i", "d")  # constants in roman type
_NO_UNIT = re.compile(  # 3 to 4, 3 or more, 3%4, 18% of 50
    r"\b(?:or|to|not|than|but|from|until|plus|minus|vs)\b|%\s*\d|(?<!per)(?<!/) \d"
)
_SCALE = re.compile(
    r"(?P<money>\$ ?)?(?P<word>hundred|thousand|million|billion|trillion|dozen)s?\b\s*(?P<unit>.*)"
)
_SCALES = {
    "hundred": "100",
    "dozen": "12",
    "thousand": "10^3",
    "million": "10^6",
    "billion": "10^9",
    "trillion": "10^12",
}
_MONEY = {"$": 1.0, "dollar": 1.0, "dollars": 1.0, "usd": 1.0, "cent": 0.01, "cents": 0.01, "¢": 0.01}
_PERCENT = {"%", "\\%", "percent", "per cent", "percentage", "pct"}


def split_unit(text: str) -> tuple[str, str]:
    """The number's text and its unit ("" if there is none) of an answer that has been normalised."""
    if text.startswith("$") or text.endswith("$"):
        bare = text.strip("$ ")
        money = re.fullmatch(
            r"(-?[\d.,]+)(?:\s+|\s*\\text\s*\{\s*)([A-Za-z][A-Za-z ]{2,40}?)\}?", bare
        )  # $18 per day
        return (money[1], f"$ {money[2]}") if money else (bare, "$")
    for match in _START.finditer(text):
        number, unit = text[: match.start()], text[match.start() :]
        if number.strip() and number.count("{") == number.count("}"):
            if "degree" in match.group() and _ANGLE_OF.search(number):
                return text, ""
            unit = clean(unit)
            return (text, "") if unit in _NO_UNITS or _NO_UNIT.search(unit) else (number.strip(), unit)
    if match := _PLAIN.match(text):
        unit = match["unit"].strip()
        if _NO_UNIT.search(clean(unit)):
            return text, ""
        first = re.split(r"[\s^/*.({]", unit, maxsplit=1)[0]
        numeral = re.fullmatch(r"[-+]?[\d.,]+(?:e[-+]?\d+)?", match["number"])
        if first in _LETTERS and match["gap"] and numeral:
            return match["number"].strip(), clean(unit)
        if first in _SHORT or (match["gap"] and len(first) >= 3 and first not in _FUNCTIONS):
            return match["number"].strip(), clean(unit)
    return text, ""


def scaled(number: str, unit: str) -> Amount:
    """`18 million dollars` as 18*10^6 dollars; other amounts as they are."""
    match = _SCALE.fullmatch(unit)
    return (
        (f"({number})*{_SCALES[match['word']]}", match["money"] or match["unit"]) if match else (number, unit)
    )


def clean(unit: str) -> str:
    """A unit's text without fonts and braces: `\\mathrm{cm/s^2}` is `cm/s^2`."""
    unit = re.sub(_FONT + r"\s*", "", unit)
    unit = re.sub(r"\\cdot|\\times|⋅|·", "*", unit)
    unit = re.sub(
        r"(?<![A-Za-z])degrees?\s+([cCfFK])(?:elsius|ahrenheit)?\b", lambda m: f"deg{m[1].upper()}", unit
    )
    unit = re.sub(r"\\degree\s*\{?\s*([CFK])\b\}?", r" deg\1", unit)
    unit = (
        unit.replace("\\degree", "degree")
        .replace("\\Omega", "ohm")
        .replace("\\mu", "micro")
        .replace("\\%", "%")
    )
    unit = re.sub(r"[{}~$]|\\[,;:! ]?", " ", unit).replace("^ ", "^").replace(" ^", "^")
    return re.sub(r"\s+", " ", unit).strip(" .,")


def is_percent(unit: str) -> bool:
    return unit.lower() in _PERCENT


def is_generic(unit: str) -> bool:
    """Words that stand for no particular unit: "square units", a measure word of another language."""
    return not unit or _GENERIC.fullmatch(unit.lower()) is not None


def factor(unit: str, other: str) -> float | tuple[float, float] | None:
    """What a number in `unit` is multiplied by (and what is added then) to be one in `other`.

    None when one cannot be converted to the other.
    """
    if _words(unit) == _words(other):
        return 1.0
    if unit.lower() in _MONEY and other.lower() in _MONEY:
        return _MONEY[unit.lower()] / _MONEY[other.lower()]
    a, b = _quantity(unit), _quantity(other)
    if a is None or b is None:
        inside = set(_words(unit)) <= set(_words(other)) or set(_words(other)) <= set(_words(unit))
        return 1.0 if a is None and b is None and inside else None
    registry = _registry()
    try:
        if not a.is_compatible_with(b):
            return None
        zero, one = (registry.Quantity(x, a).to(b).magnitude for x in (0.0, 1.0))
    except Exception:  # pint: a logarithmic unit, an offset in a product
        return None
    return (one - zero) if zero == 0 else (one - zero, zero)


def _words(unit: str) -> list[str]:
    """Words in a comparable form; case is kept where it tells units apart (mW, MW)."""
    words = re.split(r"[\s*]+", unit)
    return [w.lower().rstrip("s") if len(w) > 3 else w for w in words if w not in ("of", "the", "")]


_UNIT_NAME = r"[A-Za-z]+(?:\s*\^\s*\(?-?[1-9]\)?|-?[1-9](?![0-9]))?"
_UNIT_TOKEN = re.compile(rf"{_UNIT_NAME}|[*/()]|1")
_UNIT_TEXT = re.compile(rf"(?:{_UNIT_NAME}|[*/()]|1(?=\s*/)|[ .])+")


@lru_cache
def _registry() -> Any:
    import pint

    return pint.UnitRegistry(autoconvert_offset_to_baseunit=True)


@lru_cache(maxsize=512)
def _quantity(unit: str) -> Any:
    """The pint unit, or None if pint does not know it."""
    if len(unit) > 60:
        return None
    text = re.sub(r"\bper\b", "/", unit)
    text = re.sub(r"([A-Za-z]+)\s+(squared|cubed)\b", lambda m: m[1] + "^" + "23"[m[2] == "cubed"], text)
    text = re.sub(r"\b(?:square|sq\.?)\s+([A-Za-z]+)", r"\1^2", text)
    text = re.sub(r"\b(?:cubic|cu\.?)\s+([A-Za-z]+)", r"\1^3", text)
    text = re.sub(r"\bmicro\s*\*?\s+", "micro", text.replace("**", "^"))
    try:
        return _product(_UNIT_TOKEN.findall(text)) if _UNIT_TEXT.fullmatch(text) else None
    except Exception:  # pint raises anything from its own errors to KeyError for what is no unit
        return None


def _product(tokens: list[str]) -> Any:
    """Names with small powers, multiplied or divided. pint is given single names: it would evaluate more."""
    found, sign, position = _registry().Unit(""), 1, 0
    signs: list[int] = []
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token == "(":
            signs.append(sign)
        elif token == ")":
            signs.pop()
            sign = 1
        elif token == "/":
            sign = -(signs[-1] if signs else 1)
        elif token in ("*", "1"):
            sign = signs[-1] if signs else 1
        else:
            name = re.fullmatch(r"([A-Za-z]+?)\s*(?:\^?\s*\(?(-?[1-9])\)?)?", token)
            assert name is not None
            found *= _registry().parse_units(name[1]) ** (sign * int(name[2] or 1))
            sign = signs[-1] if signs else 1
    return found


def same_amount(a: Amount, b: Amount) -> bool:
    """Whether two numbers with or without units are equal; a unit that one leaves out is the other's."""
    (x, unit), (y, other) = a, b
    if is_percent(unit) or is_percent(other):
        return _same_percent(a, b)
    if is_generic(unit) or is_generic(other) or unit == other:
        return same_expression(x, y) or _same_angle(a, b) or _same_angle(b, a)
    found = factor(unit, other)
    if found is None:
        return False
    scale, offset = found if isinstance(found, tuple) else (found, 0.0)
    return same_expression(x, y) if (scale, offset) == (1.0, 0.0) else _converted(x, scale, offset, y)


def _same_percent(a: Amount, b: Amount) -> bool:
    if is_percent(a[1]) and is_percent(b[1]):
        return same_expression(a[0], b[0])
    (percent, _), (bare, unit) = (a, b) if is_percent(a[1]) else (b, a)
    value = number(bare) if _NUMERAL.fullmatch(bare) else None
    scale = "1" if value is not None and in_percent(value) else "100"
    return not unit and same_expression(f"({percent})/{scale}", bare)


def _same_angle(degrees: Amount, other: Amount) -> bool:
    """90 degrees against pi/2: an angle without a unit is in radians if it is written with pi."""
    if degrees[1] not in ("degree", "degrees", "deg") or other[1] not in ("", "rad", "radians"):
        return False
    return "pi" in other[0] and same_expression(f"({degrees[0]})*\\pi/180", other[0])


def approximately(a: Amount, b: Amount, tolerance: float) -> bool:
    """Whether two amounts agree within a relative tolerance; two whole numbers of one unit never do."""
    (x, unit), (y, other) = a, b
    if is_percent(unit) != is_percent(other):
        return False
    found = 1.0 if is_generic(unit) or is_generic(other) else factor(unit, other)
    if found is None or (x.isdigit() and y.isdigit() and found == 1.0):
        return False
    scale, offset = found if isinstance(found, tuple) else (found, 0.0)
    if _converted(x, scale, offset, y, tolerance):
        return True
    return bool(offset) and _converted(
        y, 1 / scale, -offset / scale, x, tolerance
    )  # the other scale of temperature


def _converted(a: str, scale: float, offset: float, b: str, tolerance: float = 1e-9) -> bool:
    x, y = number(a), number(b)
    if x is None or y is None or not mpmath.isfinite(x) or not mpmath.isfinite(y):
        return False
    return bool(abs(x * scale + offset - y) <= tolerance * abs(y))


def compound(text: str) -> Amount | None:
    """`3 hours 20 minutes`, `5 ft 4 in` as one amount in the last of its units; None for anything else."""
    bare = re.sub(r"[{}~]", " ", re.sub(_FONT, " ", text)).replace("\\and", " ").replace("and", " ")
    bare = re.sub(r"\s+", " ", bare).strip(" .")
    parts = (
        re.findall(_PART, bare) if len(bare) < 100 and re.fullmatch(rf"(?:{_PART}[ ,]*){{2,4}}", bare) else []
    )
    if parts and parts[0][1] in ("h", "hr", "hrs"):  # 3h 20m
        parts = [(amount, "min" if unit == "m" else unit) for amount, unit in parts]
    total = Fraction(0)
    for amount, unit in parts:
        found = factor(unit, parts[-1][1])
        if _quantity(unit) is None or not isinstance(found, float):
            return None
        total += Fraction(amount) * Fraction(found).limit_denominator(10**6)
    if not parts or len({unit for _, unit in parts}) < len(parts):
        return None
    return f"({total.numerator})/({total.denominator})", parts[-1][1]


_PART = r"(\d{1,9}(?:\.\d{1,9})?) ?([A-Za-z]{1,12})(?![A-Za-z])"
_NUMERAL = re.compile(r"[-+]?[\d.,]+")
