"""Formulas of physics, chemistry, biology, earth science and engineering, with quantities in real units."""

from collections.abc import Callable
from typing import Any, NamedTuple

Quantity = Any  # pint.Quantity; pint is imported where a task is made


class Variable(NamedTuple):
    """A given quantity: a whole number from low to high in the first unit, or converted to another one."""

    low: int
    high: int
    units: tuple[str, ...]


class Formula(NamedTuple):
    """A question with a blank for each variable; `compute` takes pint quantities in that order."""

    name: str
    subject: str
    text: str
    variables: tuple[Variable, ...]
    compute: Callable[..., Quantity]
    units: tuple[str, ...]
    equation: str


V = Variable

FORMULAS = (
    Formula(
        "speed",
        "physics",
        "A train covers {} in {}. What is its average speed?",
        (V(2, 400, ("km", "m")), V(2, 90, ("min", "s", "h"))),
        lambda s, t: s / t,
        ("m/s", "km/h"),
        "v = s / t",
    ),
    Formula(
        "fall",
        "physics",
        "A stone falls from rest for {} (take g = 9.81 m/s^2, no air). How far does it fall?",
        (V(2, 40, ("s",)),),
        lambda t: 0.5 * 9.81 * _unit(t, "m/s^2") * t**2,
        ("m", "cm"),
        "s = g t^2 / 2",
    ),
    Formula(
        "force",
        "physics",
        "What net force gives a body of mass {} an acceleration of {}?",
        (V(2, 900, ("kg", "g")), V(2, 80, ("m/s^2", "cm/s^2"))),
        lambda m, a: m * a,
        ("N", "kN"),
        "F = m a",
    ),
    Formula(
        "kinetic",
        "physics",
        "What is the kinetic energy of a car of mass {} moving at {}?",
        (V(600, 2400, ("kg",)), V(5, 140, ("km/h", "m/s"))),
        lambda m, v: 0.5 * m * v**2,
        ("kJ", "J"),
        "E = m v^2 / 2",
    ),
    Formula(
        "ohm",
        "physics",
        "A voltage of {} lies across a resistor of {}. What current flows?",
        (V(2, 240, ("V", "mV")), V(3, 900, ("ohm", "kohm"))),
        lambda u, r: u / r,
        ("mA", "A"),
        "I = U / R",
    ),
    Formula(
        "wavelength",
        "physics",
        "A wave of frequency {} travels at {}. What is its wavelength?",
        (V(20, 900, ("Hz", "kHz")), V(200, 6000, ("m/s", "km/s"))),
        lambda f, v: v / f,
        ("m", "cm"),
        "λ = v / f",
    ),
    Formula(
        "density",
        "engineering",
        "A block of mass {} has a volume of {}. What is its density?",
        (V(20, 900, ("g", "kg")), V(10, 400, ("cm^3", "dm^3"))),
        lambda m, v: m / v,
        ("g/cm^3", "kg/m^3"),
        "ρ = m / V",
    ),
    Formula(
        "power",
        "engineering",
        "A hoist lifts {} by {} in {} (take g = 9.81 m/s^2). What power does it deliver?",
        (V(20, 800, ("kg",)), V(2, 40, ("m",)), V(4, 60, ("s", "min"))),
        lambda m, h, t: m * 9.81 * _unit(m, "m/s^2") * h / t,
        ("W", "kW"),
        "P = m g h / t",
    ),
    Formula(
        "pressure",
        "engineering",
        "A force of {} acts evenly on an area of {}. What is the pressure?",
        (V(10, 900, ("N", "kN")), V(2, 300, ("cm^2", "dm^2"))),
        lambda f, a: f / a,
        ("kPa", "bar"),
        "p = F / A",
    ),
    Formula(
        "molarity",
        "chemistry",
        "A solution holds {} of solute in {}. What is its concentration?",
        (V(5, 900, ("mmol", "mol")), V(50, 950, ("mL", "L"))),
        lambda n, v: n / v,
        ("mol/L", "mmol/L"),
        "c = n / V",
    ),
    Formula(
        "amount",
        "chemistry",
        "How much substance is {} of a compound with a molar mass of {}?",
        (V(5, 900, ("g", "mg")), V(18, 300, ("g/mol",))),
        lambda m, molar: m / molar,
        ("mol", "mmol"),
        "n = m / M",
    ),
    Formula(
        "gas",
        "chemistry",
        "{} of an ideal gas is held in {} at {} (take R = 8.314 J/(mol K)). What is its pressure?",
        (V(2, 90, ("mmol", "mol")), V(2, 60, ("L", "dm^3")), V(250, 400, ("K",))),
        lambda n, v, t: n * 8.314 * _unit(n, "J/(mol*K)") * t / v,
        ("kPa", "Pa"),
        "p = n R T / V",
    ),
    Formula(
        "heat",
        "chemistry",
        "How much heat warms {} of water by {} (take c = 4.18 J/(g K))?",
        (V(20, 900, ("g", "kg")), V(3, 70, ("K",))),
        lambda m, t: m * 4.18 * _unit(m, "J/(g*K)") * t,
        ("kJ", "J"),
        "Q = m c ΔT",
    ),
    Formula(
        "cardiac",
        "biology",
        "A heart pumps {} a beat and beats at {}. What is its output?",
        (V(45, 110, ("mL",)), V(45, 170, ("1/min",))),
        lambda v, f: v * f,
        ("L/min", "mL/s"),
        "Q = V f",
    ),
    Formula(
        "dose",
        "biology",
        "A drug is given at {} of body mass. How much does a patient of {} get?",
        (V(2, 40, ("mg/kg",)), V(6, 110, ("kg",))),
        lambda d, m: d * m,
        ("mg", "g"),
        "m = d M",
    ),
    Formula(
        "flow",
        "earth science",
        "A river with a cross-section of {} flows at {}. How much water passes?",
        (V(4, 600, ("m^2",)), V(10, 300, ("cm/s", "m/min"))),
        lambda a, v: a * v,
        ("m^3/s", "L/s"),
        "Q = A v",
    ),
    Formula(
        "light",
        "earth science",
        "A radar pulse returns from the Moon's direction after {} (it travels at 299792 km/s, "
        "there and back). How far away is the reflector?",
        (V(5, 2600, ("ms", "s")),),
        lambda t: 299792 * _unit(t, "km/s") * t / 2,
        ("km", "m"),
        "d = c t / 2",
    ),
)


def _unit(like: Quantity, unit: str) -> Quantity:
    """One of a unit, in the registry of another quantity."""
    return like._REGISTRY(unit)
