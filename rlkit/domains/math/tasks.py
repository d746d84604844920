"""Generated mathematics problems."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from rlkit.domains import Source, sources
from rlkit.domains.math.problems import FAMILIES
from rlkit.errors import UserError, did_you_mean
from rlkit.seeds import generator
from rlkit.types import Task


@sources.register("arithmetic")
class Arithmetic(Source):
    """Sums and differences of whole numbers, answered with the bare number.

    Example: `48+7=` → `55`. Short enough for a model of 30,000 parameters.
    """

    makes: ClassVar[tuple[str, ...]] = ("math__arithmetic",)
    kind: Literal["arithmetic"] = "arithmetic"
    digits: Annotated[int, Field(ge=1, le=12)] = 2
    """Most digits of an operand; each operand's length is drawn evenly up to it."""
    second_digits: Annotated[int, Field(ge=0, le=12)] = 0
    """Most digits of the second operand; 0 is as many as of the first."""
    operations: tuple[Literal["+", "-", "*"], ...] = ("+", "-")
    """Operations drawn from."""
    template: Annotated[str, Field(pattern=r"\{problem\}")] = "{problem}="
    """What is asked; `{problem}` is the sum, such as 48+7. Pretrained models want a sentence."""

    def task(self, index: int) -> Task:
        rng = generator("arithmetic", self.digits, self.second_digits, *self.operations, index)
        most = (self.digits, self.second_digits or self.digits)
        a, b = (int(rng.integers(10 ** int(rng.integers(1, digits + 1)))) for digits in most)
        operation = self.operations[int(rng.integers(len(self.operations)))]
        answer = {"+": a + b, "-": a - b, "*": a * b}[operation]
        return Task.ask(
            "math__arithmetic",
            self.template.replace("{problem}", f"{a}{operation}{b}"),
            str(answer),
            ability="math",
            extra_info={"index": index, "difficulty": len(str(a)) + len(str(b))},
        )


BOXED = " Please output the final answer within \\boxed{}."


@sources.register("math_problems")
class MathProblems(Source):
    """School algebra, number theory, calculus and counting in words, answered in a box, as in Guru.

    Every task carries a worked solution (`extra_info["solution"]`) for supervised training.
    """

    makes: ClassVar[tuple[str, ...]] = ("math__problems",)
    kind: Literal["math_problems"] = "math_problems"
    level: Annotated[int, Field(ge=1, le=5)] = 3
    """Hardest level; each task's level is drawn evenly up to it."""
    families: tuple[str, ...] = ()
    """Families drawn from (rlkit.domains.math.problems); empty is all."""
    instruction: str = BOXED
    """What follows the question. Small pretrained models rarely know the box."""

    @field_validator("families")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in FAMILIES:
                near = did_you_mean(name, FAMILIES)
                raise UserError(f"unknown family {name!r}.{near} Known: {', '.join(FAMILIES)}")
        return names

    def task(self, index: int) -> Task:
        rng = generator("math_problems", self.level, *self.families, index)
        names = self.families or tuple(FAMILIES)
        name, level = names[int(rng.integers(len(names)))], int(rng.integers(1, self.level + 1))
        question, answer, solution = FAMILIES[name](rng, level)
        return Task.ask(
            "math__problems",
            question + self.instruction,
            answer,
            ability="math",
            extra_info={
                "index": index,
                "difficulty": level,
                "family": name,
                "original_question": question,
                "solution": f"{solution} The answer is $\\boxed{{{answer}}}$.",
            },
        )
