"""Science: generated one-formula problems with units, and the scorers of letters, quantities, formulas and words."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources
from rlkit.domains.answers import TOLERANCE, choice_letter, given
from rlkit.domains.math.typography import from_unicode
from rlkit.errors import UserError
from rlkit.seeds import generator
from rlkit.types import Reward, Task


class Formula(NamedTuple):
    """A product or quotient of two quantities. Of each: its lowest and highest whole number, its unit, and others that
    it may be given in; `units` are the answer's and another."""

    subject: str
    text: str
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    units: tuple[str, ...]
    equation: str


# fmt: off
FORMULAS = (
    Formula("physics", "A train covers {} in {}. What is its average speed?",
            (2, 400, "km", "m"), (2, 90, "min", "s", "h"), ("m/s", "km/h"), "v = s / t"),
    Formula("physics", "A voltage of {} lies across a resistor of {}. What current flows?",
            (2, 240, "V", "mV"), (3, 900, "ohm", "kohm"), ("mA", "A"), "I = U / R"),
    Formula("engineering", "A force of {} acts evenly on an area of {}. What is the pressure?",
            (10, 900, "N", "kN"), (2, 300, "cm^2", "dm^2"), ("kPa", "bar"), "p = F / A"),
    Formula("chemistry", "A solution holds {} of solute in {}. What is its concentration?",
            (5, 900, "mmol", "mol"), (50, 950, "mL", "L"), ("mol/L", "mmol/L"), "c = n / V"),
    Formula("biology", "A heart pumps {} a beat and beats at {}. What is its output?",
            (45, 110, "mL"), (45, 170, "1/min"), ("L/min", "mL/s"), "Q = V f"),
    Formula("earth science", "A river with a cross-section of {} flows at {}. How much water passes?",
            (4, 600, "m^2"), (10, 300, "cm/s", "m/min"), ("m^3/s", "L/s"), "Q = A v"),
)
# fmt: on


@sources.register("formulas")
class Formulas(Source):
    """One-formula problems of five subjects; the answer is a number with a unit."""

    makes: ClassVar[tuple[str, ...]] = ("stem__units",)
    kind: Literal["formulas"] = "formulas"
    level: Annotated[int, Field(ge=1, le=3)] = 3
    """1: the formula's own units. 2: given quantities in other units. 3: the answer in another one too."""

    def task(self, index: int) -> Task:
        rng = generator("formulas", self.level, index)
        while True:  # until the value is one that is comfortably written out
            formula = FORMULAS[int(rng.integers(len(FORMULAS)))]
            level = int(rng.integers(1, self.level + 1))
            known, answer, unit = _instance(formula, level, rng)
            if 0.01 <= answer < 1e5:
                break
        value = np.format_float_positional(answer, precision=4, fractional=False, trim="-")
        question, truth = formula.text.format(*known), f"{value} {unit}"
        text = (
            f"{question} Give the answer in {unit}, to four significant digits. Please output the final answer, with "
            "its unit, within \\boxed{}."
        )
        solution = (
            f"By ${formula.equation}$ with {', '.join(known)}: {truth}. The answer is \\boxed{{{truth}}}."
        )
        info = {"index": index, "difficulty": level, "subject": formula.subject, "question": question}
        return Task.ask("stem__units", text, truth, ability="stem", extra_info={**info, "solution": solution})


def _instance(formula: Formula, level: int, rng: np.random.Generator) -> tuple[list[str], float, str]:
    """Given quantities as text, the answer's value and its unit; which units depends on the level."""
    from rlkit.domains.math.units import registry  # mpmath and pint are imported where they are needed

    known = []
    for low, high, *units in (formula.first, formula.second):
        unit = units[int(rng.integers(len(units)))] if level > 1 else units[0]
        known.append((int(rng.integers(low, high + 1)), unit))
    unit = formula.units[int(rng.integers(len(formula.units)))] if level > 2 else formula.units[0]
    a, b = (registry().Quantity(*quantity) for quantity in known)
    answer = (a / b if "/" in formula.equation else a * b).to(unit)
    return [f"{value} {u}" for value, u in known], float(answer.magnitude), unit


_LONGEST = 20_000  # characters of an answer that is read


@scorer("stem__supergpqa*", "stem__gpqa*", "stem__choice*", "stem__mmlu*")
def score_choice(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the boxed or `Answer:` letter is the truth; never a guess: several letters are none."""
    truth = choice_letter(ground_truth) if isinstance(ground_truth, str) else None
    if truth is None:
        raise UserError(f"The ground truth of a multiple choice must be a letter, not {ground_truth!r}.")
    answer = re.sub(r"^(?:I|we)\s+(?:choose|pick|select)\s+", "", given(response), flags=re.IGNORECASE)
    if found := choice_letter(answer, described=True):
        return Reward.of(found.upper() == truth.upper())
    return Reward.of(False, reason="no letter")


@scorer("stem_web*", "stem__*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the final answer is the truth: the same number in the same or a convertible unit (within
    0.1 % if it has decimals), the same formula, or the same words (singular and plural are one).
    """
    if isinstance(ground_truth, int | float) and not isinstance(ground_truth, bool):
        ground_truth = repr(ground_truth)
    if not isinstance(ground_truth, str) or not ground_truth.strip():
        raise UserError(f"The ground truth of a science question must be text: {str(ground_truth)[:80]!r}.")
    answer = given(response)
    if not answer or len(answer) > _LONGEST:
        return Reward.of(False, reason="no answer")
    return Reward.of(same_answer(answer, ground_truth))


def same_answer(answer: str, truth: str) -> bool:
    """The rules: mathematics, units, words."""
    from rlkit.domains.math.compare import approximately, equivalent

    return equivalent(answer, truth) or approximately(answer, truth, TOLERANCE) or same_text(answer, truth)


_FONTS = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|mathit|mbox|operatorname|rm|ce|emph)\s*(?=\{)")
_ARTICLES = {"the", "a", "an", "it"}
_ENDINGS = (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("es", "is"), ("ae", "a"), ("i", "us"))
"""Of plurals and their singulars."""
_IN_A = ("bacterium", "spectrum", "mitochondrion", "stratum", "quantum", "criterion", "phenomenon", "datum")
"""Words with a plural in a; silica is no silicon."""


def same_text(answer: str, truth: str) -> bool:
    """Whether two short texts have the same words, or are the same formula of chemistry."""
    a, b = words(answer), words(truth)
    if formula(answer) == formula(truth):
        return True
    spoken = any(word.isalpha() and len(word) > 1 for word in a + b)  # `5 - 3` has no words
    return spoken and _signs(answer) == _signs(truth) and len(a) == len(b) and all(map(_same_word, a, b))


def _signs(text: str) -> list[str]:
    """Signs that carry meaning (a charge, an inequality), hyphens between letters apart."""
    return re.findall(r"(?<![A-Za-z])-|-(?![A-Za-z])|[+=<>/*!%]", formula(text))


def words(text: str) -> list[str]:
    """Words in lower case, without typography, articles and punctuation."""
    text = re.sub(r"[{}$\\~]", " ", _FONTS.sub("", from_unicode(text)))
    figures = any(map(str.isdigit, text))

    def keeps_case(word: str) -> bool:  # 5 mW is not 5 MW, CO is not Co
        return len(word) <= 3 if figures else len(word) == 2 and word.isupper() and word != "NO"

    found = re.findall(r"\d+(?:[.,:]\d+)+|[^\W_]+(?:['’][^\W_]+)?", text)
    found = [word if keeps_case(word) else word.casefold() for word in found]
    return [word for word in found[:-1] if word not in _ARTICLES] + found[-1:]  # vitamin A


def _same_word(a: str, b: str) -> bool:
    return a == b or (len(a) > 2 and len(b) > 2 and bool(_singulars(a) & _singulars(b)))


def _singulars(word: str) -> set[str]:
    endings = _ENDINGS[1:] if word.endswith(("ss", "us", "is")) else _ENDINGS
    stems = [(word.removesuffix(plural), singular) for plural, singular in endings]
    return (
        {word}
        | {one for one in _IN_A if one[:-2] + "a" == word}
        | {stem + singular for stem, singular in stems if stem != word and len(stem) > 1}
    )


def formula(text: str) -> str:
    """A formula of chemistry without typography, in its own letter case: `\\mathrm{Na^+}` is `Na+`,
    `H_2O` is `H2O`."""
    text = re.sub(r"\\(?:to|\w*[rR]ightarrow)(?![A-Za-z])", "->", _FONTS.sub("", from_unicode(text)))
    text = re.sub(r"[\s{}$\\]", "", text).rstrip(".")
    text = re.sub(r"(?<=[A-Za-z)\]])_", "", text)  # H_2O, but not 3_2
    # Na^+, 1s^2, sp^3, ^14C, but not 10^5
    return re.sub(r"\^(?=\d?[+-](?!\w))|(?<=\d[spdf])\^|(?<=sp)\^|^\^(?=\d+[A-Z])", "", text)
