"""Programs composed of steps: tasks to write one, with generated tests. simulation.py asks what one returns."""

import json
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.seeds import generator
from rlkit.types import Task

Type = Literal["list", "string", "integer"]


class _Spelling(NamedTuple):
    parameter: str
    hint: str
    read: str
    """The code that reads a line of it."""
    words: str
    line: str


_TYPES: dict[Type, _Spelling] = {
    "list": _Spelling("xs", "list[int]", "list(map(int, input().split()))", "a list of integers",
                      "integers separated by spaces"),
    "string": _Spelling("s", "str", "input()", "a string", "a string"),
    "integer": _Spelling("n", "int", "int(input())", "an integer", "an integer"),
}  # fmt: skip


class Step(NamedTuple):
    """`code` is an expression of the parameter's name; `{k}` stands for a constant from 2 to 5."""

    takes: Type
    gives: Type
    words: str
    code: str
    invertible: bool = False


# fmt: off
STEPS = (
    Step("list", "list", "sort it in ascending order", "sorted(xs)"),
    Step("list", "list", "sort it in descending order", "sorted(xs, reverse=True)"),
    Step("list", "list", "reverse it", "xs[::-1]", True),
    Step("list", "list", "multiply every element by {k}", "[x * {k} for x in xs]", True),
    Step("list", "list", "add {k} to every element", "[x + {k} for x in xs]", True),
    Step("list", "list", "square every element", "[x * x for x in xs]"),
    Step("list", "list", "drop the first element", "xs[1:]"),
    Step("list", "list", "keep every second element from the first on", "xs[::2]"),
    Step("list", "list", "keep the elements greater than {k}", "[x for x in xs if x > {k}]"),
    Step("list", "list", "keep the even elements", "[x for x in xs if x % 2 == 0]"),
    Step("list", "list", "append its length", "xs + [len(xs)]", True),
    Step("list", "list", "replace it by its running sums", "[sum(xs[:i + 1]) for i in range(len(xs))]", True),
    Step("list", "integer", "take the sum of its elements", "sum(xs)"),
    Step("list", "integer", "take the sum of the squares of its elements", "sum(x * x for x in xs)"),
    Step("list", "integer", "take its largest element, or 0 if it is empty", "max(xs, default=0)"),
    Step("list", "integer", "take its largest element minus its smallest, or 0 if it is empty",
         "max(xs, default=0) - min(xs, default=0)"),
    Step("list", "string", "join its elements into a string with hyphens", '"-".join(map(str, xs))', True),
    Step("string", "string", "reverse it", "s[::-1]", True),
    Step("string", "string", "sort its characters", '"".join(sorted(s))'),
    Step("string", "string", "convert it to upper case", "s.upper()"),
    Step("string", "string", "move its first {k} characters to the end", "s[{k}:] + s[:{k}]", True),
    Step("string", "string", "write every character twice", '"".join(c + c for c in s)', True),
    Step("string", "string", "keep every second character from the first on", "s[::2]"),
    Step("string", "string", "append its first character", "s + s[:1]", True),
    Step("string", "string", "remove its last character", "s[:-1]"),
    Step("string", "list", "list its code points", "[ord(c) for c in s]", True),
    Step("string", "integer", "sum its code points", "sum(ord(c) for c in s)"),
    Step("integer", "integer", "multiply it by {k}", "n * {k}", True),
    Step("integer", "integer", "add {k}", "n + {k}", True),
    Step("integer", "integer", "square it", "n * n"),
    Step("integer", "integer", "add the sum of its decimal digits (ignoring a sign)",
         "n + sum(int(d) for d in str(abs(n)))"),
    Step("integer", "string", "write it as a decimal string", "str(n)", True),
    Step("integer", "list", "take the list of its decimal digits (ignoring a sign)", "[int(d) for d in str(abs(n))]"),
)
# fmt: on


class Program(NamedTuple):
    """A chain of steps with their constants, applied to one parameter."""

    steps: tuple[Step, ...]
    constants: tuple[int, ...]

    @property
    def takes(self) -> Type:
        return self.steps[0].takes

    @property
    def parameter(self) -> str:
        return _TYPES[self.takes].parameter

    def expressions(self) -> list[str]:
        return [step.code.format(k=k) for step, k in zip(self.steps, self.constants, strict=True)]

    def run(self, value: Any) -> Any:
        for step, code in zip(self.steps, self.expressions(), strict=True):
            value = eval(code, {_TYPES[step.takes].parameter: value})  # of the table above
        return value

    def source(self, name: str = "solve") -> str:
        """The function's source: one assignment a step."""
        gives = _TYPES[self.steps[-1].gives]
        lines = [f"def {name}({self.parameter}: {_TYPES[self.takes].hint}) -> {gives.hint}:"]
        for step, code in zip(self.steps, self.expressions(), strict=True):
            lines.append(f"    {_TYPES[step.gives].parameter} = {code}")
        return "\n".join([*lines, f"    return {gives.parameter}"])

    def words(self) -> str:
        return "; then ".join(s.words.format(k=k) for s, k in zip(self.steps, self.constants, strict=True))


def compose(rng: np.random.Generator, length: int, invertible: bool = False) -> Program:
    """A program of `length` steps whose types fit; no step stands twice."""
    pool = [s for s in STEPS if s.invertible or not invertible]
    at = list(_TYPES)[int(rng.integers(3))]
    chosen: list[Step] = []
    while len(chosen) < length:
        fitting = [s for s in pool if s.takes == at and s not in chosen]
        if not fitting:  # a dead end: all steps of this type are used
            break
        chosen.append(fitting[int(rng.integers(len(fitting)))])
        at = chosen[-1].gives
    return Program(tuple(chosen), tuple(int(k) for k in rng.integers(2, 6, size=len(chosen))))


def an_input(rng: np.random.Generator, kind: Type) -> Any:
    """A random argument: 3 to 8 numbers of -20 … 40, 4 to 9 letters, or a number of -99 … 999."""
    if kind == "list":
        return [int(k) for k in rng.integers(-20, 41, size=int(rng.integers(3, 9)))]
    if kind == "string":
        return "".join(chr(97 + int(k)) for k in rng.integers(26, size=int(rng.integers(4, 10))))
    return int(rng.integers(-99, 1000))


def cases(rng: np.random.Generator, program: Program, count: int) -> list[tuple[Any, Any]]:
    """`count` different inputs with their outputs."""
    found: dict[str, tuple[Any, Any]] = {}
    while len(found) < count:
        value = an_input(rng, program.takes)
        found[repr(value)] = (value, program.run(value))
    return list(found.values())


@sources.register("programs")
class Programs(Source):
    """Functions of a list, a string or an integer, composed of steps, with generated tests.

    `extra_info["solution"]` is the reference solution in a fence; all tests were computed from it.
    """

    makes: ClassVar[tuple[str, ...]] = ("codegen__composed",)
    kind: Literal["programs"] = "programs"
    steps: Annotated[int, Field(ge=1, le=6)] = 3
    """Most steps; drawn evenly from 1 up to it."""
    tests: Annotated[int, Field(ge=3, le=50)] = 8
    """Hidden tests."""
    form: Literal["functional", "stdin", "both"] = "both"
    """functional: assertions on a function. stdin: a whole program that reads and prints."""

    def task(self, index: int) -> Task:
        rng = generator("programs", self.steps, self.tests, self.form, index)
        stdin = self.form == "stdin" or (self.form == "both" and bool(rng.integers(2)))
        program, tests = Program((), ()), []
        while len({repr(out) for _, out in tests}) < self.tests // 2:  # outputs that tell programs apart
            program = compose(rng, int(rng.integers(1, self.steps + 1)))
            tests = cases(rng, program, self.tests + 1)
        question, truth, code = (_stdin if stdin else _functional)(program, tests[0], tests[1:])
        difficulty, solution = len(program.steps), f"```python\n{code}\n```"
        info = {"index": index, "difficulty": difficulty, "reference": code, "solution": solution}
        return Task.ask("codegen__composed", question, json.dumps(truth), ability="codegen", extra_info=info)


Case = tuple[Any, Any]


def _functional(program: Program, example: Case, tests: list[Case]) -> tuple[str, Any, str]:
    question = (
        f"Write a Python function `solve({program.parameter})` that takes {_TYPES[program.takes].words} "
        f"and does the following: {program.words()}; then return the result.\nFor example, "
        f"solve({example[0]!r}) returns {example[1]!r}.\nAnswer with the function in a ```python fence."
    )
    checks = "\n".join(f"assert solve({value!r}) == {out!r}" for value, out in tests)
    return question, {"functional": checks}, program.source()


def _stdin(program: Program, example: Case, tests: list[Case]) -> tuple[str, Any, str]:
    takes, many = _TYPES[program.takes], program.steps[-1].gives == "list"
    question = (
        f"Write a Python program that reads one line with {takes.line} and does the following: "
        f"{program.words()}; then print the result{' separated by spaces' if many else ''}.\n"
        f"For example, for the input\n{_line(example[0])}\nit prints\n{_line(example[1])}\n"
        "Answer with the whole program in a ```python fence."
    )
    code = f"{program.source()}\n\nresult = solve({takes.read})\nprint({'*' if many else ''}result)"
    inputs, outputs = ([_line(value) + "\n" for value in values] for values in zip(*tests, strict=True))
    return question, {"inputs": inputs, "outputs": outputs}, code


def _line(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
