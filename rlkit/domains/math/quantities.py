"""Numbers with units, percentages and angles compared by value."""

import itertools
import re

import mpmath

from rlkit.domains.math import units
from rlkit.domains.math.evaluate import TooBig, value
from rlkit.domains.math.expressions import same_expression
from rlkit.domains.math.kinds import Expression, Quantity
from rlkit.domains.math.normalize import normalize
from rlkit.domains.math.parser import Unreadable, parse
from rlkit.domains.math.structure import read

_NUMERAL = re.compile(r"[-+]?[\d.,]+")


def approximately(answer: str, truth: str, tolerance: float) -> bool:
    """Whether two numbers, with or without units, agree within a relative tolerance; two whole numbers
    must be equal."""
    for a, b in itertools.product(read(normalize(answer)), read(normalize(truth))):
        if not (isinstance(a, Expression | Quantity) and isinstance(b, Expression | Quantity)):
            continue
        x, y = as_quantity(a), as_quantity(b)
        if units.is_generic(x.unit) or units.is_generic(y.unit):
            factor: float | tuple[float, float] | None = 1.0
        else:
            factor = units.factor(x.unit, y.unit)
        if factor is None or (x.number.isdigit() and y.number.isdigit() and factor == 1.0):
            continue
        scale, offset = factor if isinstance(factor, tuple) else (factor, 0.0)
        if _converted(x.number, scale, offset, y.number, tolerance):
            return True
        if offset and _converted(y.number, 1 / scale, -offset / scale, x.number, tolerance):
            return True  # on the other scale of temperature
    return False


def as_quantity(value: Expression | Quantity) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(value.text, "")


def same_quantity(a: Quantity, b: Quantity) -> bool:
    percent_a, percent_b = units.is_percent(a.unit), units.is_percent(b.unit)
    if percent_a or percent_b:
        if percent_a and percent_b:
            return same_expression(a.number, b.number)
        percent, plain = (a, b) if percent_a else (b, a)
        share = same_expression(f"({percent.number})/100", plain.number)
        forgiven = _NUMERAL.fullmatch(plain.number)  # 75 for 75 %, but not 3/4 for 0.75 %
        same = share or (forgiven and same_expression(percent.number, plain.number))
        return not plain.unit and bool(same)
    if units.is_generic(a.unit) or units.is_generic(b.unit) or a.unit == b.unit:
        return same_expression(a.number, b.number) or _radians(a, b) or _radians(b, a)
    factor = units.factor(a.unit, b.unit)
    if factor is None:
        return False
    scale, offset = factor if isinstance(factor, tuple) else (factor, 0.0)
    if (scale, offset) == (1.0, 0.0):
        return same_expression(a.number, b.number)
    return _converted(a.number, scale, offset, b.number)


def _converted(a: str, scale: float, offset: float, b: str, tolerance: float = 1e-9) -> bool:
    try:
        x, y = value(parse(a), {}), value(parse(b), {})
    except (Unreadable, TooBig, ArithmeticError, ValueError, TypeError, KeyError):
        return False
    return bool(
        mpmath.isfinite(x) and mpmath.isfinite(y) and abs(x * scale + offset - y) <= tolerance * abs(y)
    )


def _radians(degrees: Quantity, other: Quantity) -> bool:
    """90 degrees against pi/2: an angle without a unit is in radians if it is written with pi."""
    if degrees.unit not in ("degree", "degrees", "deg") or other.unit not in ("", "rad", "radians"):
        return False
    return "pi" in other.number and same_expression(f"({degrees.number})*\\pi/180", other.number)
