"""Generated science problems: formulas with units, computed by pint, as numbers or as a choice of letters."""

from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.domains.stem.formulas import FORMULAS, Formula
from rlkit.seeds import generator
from rlkit.types import Task


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
            given, answer, unit = _instance(formula, level, rng)
            if 0.01 <= answer < 1e5:
                break
        value = _written(answer)
        question = formula.text.format(*given)
        solution = f"By ${formula.equation}$ with {', '.join(given)}: {value} {unit}."
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
    given: list[tuple[int, str]] = []
    for variable in formula.variables:
        unit = variable.units[int(rng.integers(len(variable.units)))] if level > 1 else variable.units[0]
        given.append((int(rng.integers(variable.low, variable.high + 1)), unit))
    unit = formula.units[int(rng.integers(len(formula.units)))] if level > 2 else formula.units[0]
    answer = formula.compute(*(_registry().Quantity(*q) for q in given)).to(unit)
    return [f"{value} {u}" for value, u in given], float(answer.magnitude), unit


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


@sources.register("ohm")
class Ohm(Source):
    """Ohm's law for the smallest models, in whole numbers. Example: `U12 R4 I` → `3`."""

    makes: ClassVar[tuple[str, ...]] = ("stem__ohm",)
    kind: Literal["ohm"] = "ohm"
    largest: Annotated[int, Field(ge=3, le=999)] = 30
    """Largest current and resistance."""

    def task(self, index: int) -> Task:
        rng = generator("ohm", self.largest, index)
        r, i = (int(k) for k in rng.integers(1, self.largest + 1, size=2))
        values = {"U": r * i, "R": r, "I": i}
        wanted = "URI"[int(rng.integers(3))]
        given = " ".join(f"{name}{value}" for name, value in values.items() if name != wanted)
        info = {"index": index, "difficulty": len(str(r * i))}
        return Task.ask(
            "stem__ohm", f"{given} {wanted}", str(values[wanted]), ability="stem", extra_info=info
        )
