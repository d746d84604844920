"""Programs on a list of integers, composed of steps: tasks to write one, and to predict what one gives or was given."""

import json
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.seeds import generator
from rlkit.types import Task


class Step(NamedTuple):
    """`code` is an expression of xs; `{k}` stands for a constant from 2 to 5."""

    words: str
    code: str
    invertible: bool = False


STEPS = (
    Step("sort it in ascending order", "sorted(xs)"),
    Step("reverse it", "xs[::-1]", True),
    Step("multiply every element by {k}", "[x * {k} for x in xs]", True),
    Step("add {k} to every element", "[x + {k} for x in xs]", True),
    Step("square every element", "[x * x for x in xs]"),
    Step("drop the first element", "xs[1:]"),
    Step("keep every second element from the first on", "xs[::2]"),
    Step("keep the even elements", "[x for x in xs if x % 2 == 0]"),
    Step("append its length", "xs + [len(xs)]", True),
    Step("replace it by its running sums", "[sum(xs[:i + 1]) for i in range(len(xs))]", True),
)
LAST = (
    Step("take the sum of its elements", "sum(xs)"),
    Step("take its largest element, or 0 if it is empty", "max(xs, default=0)"),
)
"""Steps that give an integer."""


class Program(NamedTuple):
    """A chain of steps."""

    steps: tuple[Step, ...]

    def words(self) -> str:
        return "; then ".join(step.words for step in self.steps)

    def run(self, xs: Any) -> Any:
        for step in self.steps:
            xs = eval(step.code, {"xs": xs})  # of the tables above
        return xs

    def source(self, name: str = "solve") -> str:
        """The function's source: one assignment a step."""
        return "\n    ".join([f"def {name}(xs):", *(f"xs = {step.code}" for step in self.steps), "return xs"])


def compose(rng: np.random.Generator, length: int, invertible: bool = False) -> Program:
    """A program of at most `length` steps, none of them twice; every third one gives an integer."""
    pool = [step for step in STEPS if step.invertible or not invertible]
    chosen = [pool[int(k)] for k in rng.permutation(len(pool))[:length]]
    if not invertible and rng.integers(3) == 0:
        chosen[-1] = LAST[int(rng.integers(len(LAST)))]
    constants = (int(k) for k in rng.integers(2, 6, size=len(chosen)))
    pairs = zip(chosen, constants, strict=True)
    return Program(tuple(Step(s.words.format(k=k), s.code.format(k=k), s.invertible) for s, k in pairs))


def an_input(rng: np.random.Generator) -> list[int]:
    """3 to 8 numbers of -20 … 40."""
    return rng.integers(-20, 41, size=int(rng.integers(3, 9))).tolist()


def cases(rng: np.random.Generator, program: Program, count: int) -> list[tuple[list[int], Any]]:
    """Inputs with their outputs."""
    return [(xs, program.run(xs)) for xs in (an_input(rng) for _ in range(count))]


@sources.register("programs")
class Programs(Source):
    """Functions of a list, composed of steps, with generated tests; `extra_info["solution"]` is a right one."""

    makes: ClassVar[tuple[str, ...]] = ("codegen__composed",)
    kind: Literal["programs"] = "programs"
    steps: Annotated[int, Field(ge=1, le=6)] = 3
    """Most steps; drawn evenly from 1 up to it."""
    tests: Annotated[int, Field(ge=3, le=50)] = 8
    """Hidden tests."""

    def task(self, index: int) -> Task:
        rng = generator("programs", self.steps, self.tests, index)
        program, tests = Program(()), []
        while len({repr(out) for _, out in tests}) < self.tests // 2:  # outputs that tell programs apart
            program = compose(rng, int(rng.integers(1, self.steps + 1)))
            tests = cases(rng, program, self.tests + 1)
        (given, result), *hidden = tests
        question = (
            "Write a Python function `solve(xs)` that takes a list of integers and does the following: "
            f"{program.words()}; then return the result.\nFor example, solve({given!r}) returns {result!r}.\n"
            "Answer with the function in a ```python fence."
        )
        truth = {"functional": "\n".join(f"assert solve({value!r}) == {out!r}" for value, out in hidden)}
        code = program.source()
        info = {"index": index, "difficulty": len(program.steps), "reference": code}
        info |= {"solution": f"```python\n{code}\n```"}
        return Task.ask("codegen__composed", question, json.dumps(truth), ability="codegen", extra_info=info)


@sources.register("code_io")
class CodeIO(Source):
    """What a composed program gives for an input, or which input gives an output, as in Guru's codeio.

    Inputs are asked for only where every step can be undone, so that the answer is the only one.
    """

    makes: ClassVar[tuple[str, ...]] = ("simulation__codeio_generated",)
    kind: Literal["code_io"] = "code_io"
    steps: Annotated[int, Field(ge=1, le=8)] = 3
    """Most steps of the program; drawn evenly from 1 up to it."""
    predict: Literal["output", "input", "both"] = "both"
    """What is asked for."""

    def task(self, index: int) -> Task:
        rng = generator("code_io", self.steps, self.predict, index)
        wanted = self.predict if self.predict != "both" else ("output", "input")[int(rng.integers(2))]
        program = compose(rng, int(rng.integers(1, self.steps + 1)), invertible=wanted == "input")
        xs = an_input(rng)
        pair = {"input": {"xs": xs}, "output": program.run(xs)}
        given = "output" if wanted == "input" else "input"
        form = " (a mapping with the key xs)" if wanted == "input" else ""
        question = (
            f"Here is a Python function:\n{program.source()}\n\n"
            f"Its {given} is {json.dumps(pair[given])}. What is its {wanted}{form}? Please output the final answer "
            f'within ```json``` as {{"{wanted}": ...}}.'
        )
        truth = f'"{wanted}": {json.dumps(pair[wanted])}'
        info = {"index": index, "difficulty": len(program.steps)}
        return Task.ask(
            "simulation__codeio_generated", question, truth, ability="simulation", extra_info=info
        )
