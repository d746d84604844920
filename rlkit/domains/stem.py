"""Science: generated one-formula problems with units, and the scorers of letters, quantities, formulas and words."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources
from rlkit.domains.answers import TOLERANCE, choice_letter, figure, given, last_box, same_figure, tagged
from rlkit.domains.table import clean
from rlkit.errors import UserError
from rlkit.rewards import judge
from rlkit.rewards.grading import Grading
from rlkit.seeds import generator
from rlkit.types import Reward, Task

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


# fmt: off
V = Variable
FORMULAS = (
    Formula("speed", "physics", "A train covers {} in {}. What is its average speed?",
            (V(2, 400, ("km", "m")), V(2, 90, ("min", "s", "h"))), lambda s, t: s / t, ("m/s", "km/h"), "v = s / t"),
    Formula("fall", "physics", "A stone falls from rest for {} (take g = 9.81 m/s^2, no air). How far does it fall?",
            (V(2, 40, ("s",)),), lambda t: 0.5 * 9.81 * _unit(t, "m/s^2") * t**2, ("m", "cm"), "s = g t^2 / 2"),
    Formula("force", "physics", "What net force gives a body of mass {} an acceleration of {}?",
            (V(2, 900, ("kg", "g")), V(2, 80, ("m/s^2", "cm/s^2"))), lambda m, a: m * a, ("N", "kN"), "F = m a"),
    Formula("kinetic", "physics", "What is the kinetic energy of a car of mass {} moving at {}?",
            (V(600, 2400, ("kg",)), V(5, 140, ("km/h", "m/s"))),
            lambda m, v: 0.5 * m * v**2, ("kJ", "J"), "E = m v^2 / 2"),
    Formula("ohm", "physics", "A voltage of {} lies across a resistor of {}. What current flows?",
            (V(2, 240, ("V", "mV")), V(3, 900, ("ohm", "kohm"))), lambda u, r: u / r, ("mA", "A"), "I = U / R"),
    Formula("wavelength", "physics", "A wave of frequency {} travels at {}. What is its wavelength?",
            (V(20, 900, ("Hz", "kHz")), V(200, 6000, ("m/s", "km/s"))), lambda f, v: v / f, ("m", "cm"), "λ = v / f"),
    Formula("density", "engineering", "A block of mass {} has a volume of {}. What is its density?",
            (V(20, 900, ("g", "kg")), V(10, 400, ("cm^3", "dm^3"))),
            lambda m, v: m / v, ("g/cm^3", "kg/m^3"), "ρ = m / V"),
    Formula("power", "engineering", "A hoist lifts {} by {} in {} (take g = 9.81 m/s^2). What power does it deliver?",
            (V(20, 800, ("kg",)), V(2, 40, ("m",)), V(4, 60, ("s", "min"))),
            lambda m, h, t: m * 9.81 * _unit(m, "m/s^2") * h / t, ("W", "kW"), "P = m g h / t"),
    Formula("pressure", "engineering", "A force of {} acts evenly on an area of {}. What is the pressure?",
            (V(10, 900, ("N", "kN")), V(2, 300, ("cm^2", "dm^2"))), lambda f, a: f / a, ("kPa", "bar"), "p = F / A"),
    Formula("molarity", "chemistry", "A solution holds {} of solute in {}. What is its concentration?",
            (V(5, 900, ("mmol", "mol")), V(50, 950, ("mL", "L"))),
            lambda n, v: n / v, ("mol/L", "mmol/L"), "c = n / V"),
    Formula("amount", "chemistry", "How much substance is {} of a compound with a molar mass of {}?",
            (V(5, 900, ("g", "mg")), V(18, 300, ("g/mol",))),
            lambda m, molar: m / molar, ("mol", "mmol"), "n = m / M"),
    Formula("gas", "chemistry",
            "{} of an ideal gas is held in {} at {} (take R = 8.314 J/(mol K)). What is its pressure?",
            (V(2, 90, ("mmol", "mol")), V(2, 60, ("L", "dm^3")), V(250, 400, ("K",))),
            lambda n, v, t: n * 8.314 * _unit(n, "J/(mol*K)") * t / v, ("kPa", "Pa"), "p = n R T / V"),
    Formula("heat", "chemistry", "How much heat warms {} of water by {} (take c = 4.18 J/(g K))?",
            (V(20, 900, ("g", "kg")), V(3, 70, ("K",))),
            lambda m, t: m * 4.18 * _unit(m, "J/(g*K)") * t, ("kJ", "J"), "Q = m c ΔT"),
    Formula("cardiac", "biology", "A heart pumps {} a beat and beats at {}. What is its output?",
            (V(45, 110, ("mL",)), V(45, 170, ("1/min",))), lambda v, f: v * f, ("L/min", "mL/s"), "Q = V f"),
    Formula("dose", "biology", "A drug is given at {} of body mass. How much does a patient of {} get?",
            (V(2, 40, ("mg/kg",)), V(6, 110, ("kg",))), lambda d, m: d * m, ("mg", "g"), "m = d M"),
    Formula("flow", "earth science", "A river with a cross-section of {} flows at {}. How much water passes?",
            (V(4, 600, ("m^2",)), V(10, 300, ("cm/s", "m/min"))), lambda a, v: a * v, ("m^3/s", "L/s"), "Q = A v"),
    Formula("light", "earth science", "A radar pulse returns from the Moon's direction after {} (it travels at "
            "299792 km/s, there and back). How far away is the reflector?",
            (V(5, 2600, ("ms", "s")),), lambda t: 299792 * _unit(t, "km/s") * t / 2, ("km", "m"), "d = c t / 2"),
)
# fmt: on


def _unit(like: Quantity, unit: str) -> Quantity:
    """One of a unit, in the registry of another quantity."""
    return like._REGISTRY(unit)


@cache
def _registry() -> Any:
    import pint

    return pint.UnitRegistry(cache_folder=None)


@sources.register("formulas")
class Formulas(Source):
    """One-formula problems of five subjects; the answer is a number with a unit, or the letter of one."""

    makes: ClassVar[tuple[str, ...]] = ("stem__units", "stem__choice")
    kind: Literal["formulas"] = "formulas"
    level: Annotated[int, Field(ge=1, le=3)] = 3
    """1: the formula's own units. 2: given quantities in other units. 3: the answer in another one too."""
    form: Literal["number", "choice", "both"] = "both"
    """number: a value and its unit in a box. choice: one of four letters in a box."""

    def task(self, index: int) -> Task:
        rng = generator("formulas", self.level, self.form, index)
        choice = self.form == "choice" or (self.form == "both" and bool(rng.integers(2)))
        while True:  # until the value is one that is comfortably written out
            formula = FORMULAS[int(rng.integers(len(FORMULAS)))]
            level = int(rng.integers(1, self.level + 1))
            known, answer, unit = _instance(formula, level, rng)
            if 0.01 <= answer < 1e5:
                break
        value = _written(answer)
        question = formula.text.format(*known)
        solution = f"By ${formula.equation}$ with {', '.join(known)}: {value} {unit}."
        info = {"index": index, "difficulty": level, "subject": formula.subject, "question": question}
        if choice:
            text, letter = _choices(question, answer, unit, rng)
            info["solution"] = f"{solution} The answer is \\boxed{{{letter}}}."
            return Task.ask("stem__choice", text, letter, ability="stem", extra_info=info)
        info["solution"] = f"{solution} The answer is \\boxed{{{value} {unit}}}."
        text = (
            f"{question} Give the answer in {unit}, to four significant digits. Please output the final "
            "answer, with its unit, within \\boxed{}."
        )
        return Task.ask("stem__units", text, f"{value} {unit}", ability="stem", extra_info=info)


def _instance(formula: Formula, level: int, rng: np.random.Generator) -> tuple[list[str], float, str]:
    """Given quantities as text, the answer's value and its unit; which units depends on the level."""
    known: list[tuple[int, str]] = []
    for variable in formula.variables:
        unit = variable.units[int(rng.integers(len(variable.units)))] if level > 1 else variable.units[0]
        known.append((int(rng.integers(variable.low, variable.high + 1)), unit))
    unit = formula.units[int(rng.integers(len(formula.units)))] if level > 2 else formula.units[0]
    answer = formula.compute(*(_registry().Quantity(*q) for q in known)).to(unit)
    return [f"{value} {u}" for value, u in known], float(answer.magnitude), unit


def _written(value: float) -> str:
    """Four significant digits, without an exponent."""
    return np.format_float_positional(value, precision=4, fractional=False, trim="-")


def _choices(question: str, value: float, unit: str, rng: np.random.Generator) -> tuple[str, str]:
    """The question with four options in random order, and the right one's letter."""
    factors = [0.1, 10, 2, 0.5, 3.6, 1 / 3.6, 1.5]
    wrong = [value * factors[int(k)] for k in rng.permutation(len(factors))[:3]]
    at = int(rng.integers(4))
    options = [*wrong[:at], value, *wrong[at:]]
    lines = "\n".join(
        f"{letter}. {_written(option)} {unit}" for letter, option in zip("ABCD", options, strict=True)
    )
    return (
        f"{question}\n{lines}\nPlease reason step by step and put the letter of the right option within "
        f"\\boxed{{}}, for example \\boxed{{A}}.",
        "ABCD"[at],
    )


_LONGEST = 20_000  # characters of an answer that is read


@scorer("stem__supergpqa*", "stem__gpqa*", "stem__choice*", "stem__mmlu*")
def score_choice(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the boxed or `Answer:` letter is the truth; never a guess: several letters are none."""
    truth = choice_letter(ground_truth) if isinstance(ground_truth, str) else None
    if truth is None:
        raise UserError(f"The ground truth of a multiple choice must be a letter, not {ground_truth!r}.")
    found = choice_letter(given(response), described=True)
    if found is None:
        return Reward.of(False, reason="no letter")
    return Reward.of(found.upper() == truth.upper())


@scorer("stem_web*", "stem__*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any], grading: Grading) -> Reward:
    """1 when the final answer is the truth: the same number in the same or a convertible unit (within
    0.1 % if it has decimals), the same formula, or the same words (singular and plural are one).

    Where `reward.judge_url` is set and the truth is text, the judge decides what the rules do not accept.
    """
    if isinstance(ground_truth, int | float) and not isinstance(ground_truth, bool):
        ground_truth = repr(ground_truth)
    if not isinstance(ground_truth, str) or not ground_truth.strip():
        raise UserError(f"The ground truth of a science question must be text: {str(ground_truth)[:80]!r}.")
    answer = given(response)
    if not answer or len(answer) > _LONGEST:
        return Reward.of(False, reason="no answer")
    if same_answer(answer, ground_truth):
        return Reward.of(True)
    if grading.settings.judge_url is None or not _needs_judge(ground_truth):
        return Reward.of(False)
    question = str(extra_info.get("question") or "")
    return Reward.of(judge.means_the_same(grading, question, ground_truth, answer), judged=True)


@scorer("searchR1_*")
def score_search(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the last `<answer>` has the words of one of the targets (exact match of question answering)."""
    truth = ground_truth.get("target") if isinstance(ground_truth, Mapping) else ground_truth
    targets = [truth] if isinstance(truth, str) else truth
    if not isinstance(targets, list) or not targets or not all(isinstance(t, str) for t in targets):
        raise UserError(f"The ground truth of a search question needs targets: {str(ground_truth)[:80]!r}.")
    inside = tagged(response) or ""
    box = last_box(inside)
    answer = _signed_words(box[1] if box else inside)
    return Reward.of(bool(answer) and any(answer == _signed_words(target) for target in targets))


def _signed_words(text: str) -> list[str]:
    """Words, and the signs of a figure: -12 and 12% are not 12."""
    return words(text) + re.findall(r"(?<!\w)[-−](?=\d)|%", text)


def same_answer(answer: str, truth: str) -> bool:
    """The rules: figures, mathematics, units, words."""
    from rlkit.domains.math.compare import approximately, equivalent

    x, y = figure(clean(answer), abbreviations=False), figure(clean(truth), abbreviations=False)
    if x is not None and y is not None:
        return same_figure(x, y)
    return equivalent(answer, truth) or approximately(answer, truth, TOLERANCE) or same_text(answer, truth)


def _needs_judge(truth: str) -> bool:
    """Whether a truth is more than a number: rules decide those."""
    return figure(clean(truth)) is None


_FONTS = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|mathit|mbox|operatorname|rm|ce|emph)\s*(?=\{)")
_ARTICLES = {"the", "a", "an", "it"}
_ENDINGS = (
    ("ies", "y"), ("ves", "f"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"),
    ("ia", "ion"), ("a", "um"), ("a", "on"), ("ae", "a"), ("i", "us"), ("ses", "sis"), ("ices", "ix"),
)  # fmt: skip


def same_text(answer: str, truth: str) -> bool:
    """Whether two short texts have the same words, or are the same formula of chemistry."""
    if formula(answer) == formula(truth):
        return True
    return _symbols(answer) == _symbols(truth) and _same_words(words(answer), words(truth))


def _symbols(text: str) -> list[str]:
    """Signs that carry meaning (a charge, an inequality), hyphens between letters apart."""
    return re.findall(r"(?<![A-Za-z])-|-(?![A-Za-z])|[+=<>/*]", formula(text))


def words(text: str) -> list[str]:
    """Words in lower case, without typography, articles and punctuation."""
    text = re.sub(r"[{}$\\~]", " ", _FONTS.sub("", text))
    found = re.findall(r"[^\W_]+(?:['’][^\W_]+)?", text)
    if any(char.isdigit() for char in text):  # 5 mW is not 5 MW
        found = [word.casefold() if len(word) > 3 else word for word in found]
    else:
        found = [word if _is_symbol(word) else word.casefold() for word in found]
    return [word for word in found if word not in _ARTICLES]


def _is_symbol(word: str) -> bool:
    """CO is not Co."""
    return len(word) == 2 and word.isupper() and word != "NO"


def _same_words(a: list[str], b: list[str]) -> bool:
    """Word by word; only where there are words at all: `5 - 3` has none."""
    spoken = any(word.isalpha() and len(word) > 1 for word in a + b)
    return spoken and len(a) == len(b) and all(map(_same_word, a, b))


def _same_word(a: str, b: str) -> bool:
    return a == b or (len(a) > 3 and len(b) > 3 and bool(_singulars(a) & _singulars(b)))


def _singulars(word: str) -> set[str]:
    found = {word}
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        found.add(word[:-1])
        if word.endswith("es"):
            found.add(word[:-2])
    for plural, singular in _ENDINGS:
        if word.endswith(plural) and len(word) > len(plural) + 2:
            found.add(word[: -len(plural)] + singular)
    return found


def formula(text: str) -> str:
    """A formula of chemistry without typography, in its own letter case: `\\mathrm{Na^+}` is `Na+`,
    `H_2O` is `H2O`."""
    text = _FONTS.sub("", text).translate(str.maketrans("₀₁₂₃₄₅₆₇₈₉⁺⁻−", "0123456789+--"))
    return re.sub(r"[\s{}$^_\\]", "", text).rstrip(".")
