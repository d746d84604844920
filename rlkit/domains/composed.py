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


STEPS = (
    Step("sort it in ascending order", "sorted(xs)"),
    Step("reverse it", "xs[::-1]"),
    Step("multiply every element by {k}", "[x * {k} for x in xs]"),
    Step("add {k} to every element", "[x + {k} for x in xs]"),
    Step("square every element", "[x * x for x in xs]"),
    Step("drop the first element", "xs[1:]"),
    Step("keep every second element from the first on", "xs[::2]"),
    Step("keep the even elements", "[x for x in xs if x % 2 == 0]"),
    Step("append its length", "xs + [len(xs)]"),
    Step("replace it by its running sums", "[sum(xs[:i + 1]) for i in range(len(xs))]"),
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


def compose(rng: np.random.Generator, length: int) -> Program:
    """A program of at most `length` steps, none of them twice; every third one gives an integer."""
    chosen = [STEPS[int(k)] for k in rng.permutation(len(STEPS))[:length]]
    if rng.integers(3) == 0:
        chosen[-1] = LAST[int(rng.integers(len(LAST)))]
    constants = (int(k) for k in rng.integers(2, 6, size=len(chosen)))
    return Program(
        tuple(Step(s.words.format(k=k), s.code.format(k=k)) for s, k in zip(chosen, constants, strict=True))
    )


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
    """What a composed program gives for an input, as in Guru's codeio."""

    makes: ClassVar[tuple[str, ...]] = ("simulation__codeio_generated",)
    kind: Literal["code_io"] = "code_io"
    steps: Annotated[int, Field(ge=1, le=8)] = 3
    """Most steps of the program; drawn evenly from 1 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("code_io", self.steps, index)
        program, xs = compose(rng, int(rng.integers(1, self.steps + 1))), an_input(rng)
        question = (
            f"Here is a Python function:\n{program.source()}\n\nIts input is {json.dumps(xs)}. What is its output? "
            'Please output the final answer within ```json``` as {"output": ...}.'
        )
        truth, info = f'"output": {program.run(xs)}', {"index": index, "difficulty": len(program.steps)}
        return Task.ask(
            "simulation__codeio_generated", question, truth, ability="simulation", extra_info=info
        )
