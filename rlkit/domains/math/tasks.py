"""Generated mathematics problems."""

from typing import Annotated, Literal

from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.seeds import generator
from rlkit.types import Task


@sources.register("arithmetic")
class Arithmetic(Source):
    """Sums and differences of whole numbers, answered with the bare number.

    Example: `48+7=` → `55`. Short enough for a model of 30,000 parameters.
    """

    kind: Literal["arithmetic"] = "arithmetic"
    digits: Annotated[int, Field(ge=1, le=12)] = 2
    """Most digits of an operand; each operand's length is drawn evenly up to it."""
    operations: tuple[Literal["+", "-", "*"], ...] = ("+", "-")
    """Operations drawn from."""

    def task(self, index: int) -> Task:
        rng = generator("arithmetic", self.digits, *self.operations, index)
        a, b = (int(rng.integers(10 ** int(rng.integers(1, self.digits + 1)))) for _ in range(2))
        operation = self.operations[int(rng.integers(len(self.operations)))]
        answer = {"+": a + b, "-": a - b, "*": a * b}[operation]
        return Task.ask(
            "math__arithmetic",
            f"{a}{operation}{b}=",
            str(answer),
            ability="math",
            extra_info={"index": index, "difficulty": len(str(a)) + len(str(b))},
        )
