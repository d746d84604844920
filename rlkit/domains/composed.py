"""Programs composed of steps: tasks to write one, with generated tests. simulation.py asks what one returns."""

import json
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, sources, vocabulary
from rlkit.seeds import generator
from rlkit.types import Task

TYPES = vocabulary("types")
"""Of each parameter its type, that in words, what a line of input with it holds, and the code that reads that."""


class Step(NamedTuple):
    """`code` is an expression of the parameter's name; `{k}` in it and in `words` is a constant from 2 to 5."""

    takes: str
    gives: str
    words: str
    code: str
    invertible: bool = False


STEPS = tuple(Step(*row) for row in vocabulary("steps"))


class Program(tuple[Step, ...]):
    """A chain of steps with constants, applied to one parameter."""

    def words(self) -> str:
        return "; then ".join(step.words for step in self)

    def run(self, value: Any) -> Any:
        for step in self:
            value = eval(step.code, {step.takes: value})  # of vocabulary.json
        return value

    def source(self, name: str = "solve") -> str:
        """The function's source: one assignment a step."""
        takes, gives = self[0].takes, self[-1].gives
        lines = (f"    {step.gives} = {step.code}" for step in self)
        head = f"def {name}({takes}: {TYPES[takes][0]}) -> {TYPES[gives][0]}:"
        return "\n".join([head, *lines, f"    return {gives}"])


def compose(rng: np.random.Generator, length: int, invertible: bool = False) -> Program:
    """A program of `length` steps whose types fit, or fewer where none is left; no step stands twice."""
    pool = [s for s in STEPS if s.invertible or not invertible]
    at = list(TYPES)[int(rng.integers(3))]
    chosen: list[Step] = []
    while len(chosen) < length and (fitting := [s for s in pool if s.takes == at and s not in chosen]):
        chosen.append(fitting[int(rng.integers(len(fitting)))])
        at = chosen[-1].gives
    filled = zip(chosen, rng.integers(2, 6, size=len(chosen)).tolist(), strict=True)
    return Program(s._replace(words=s.words.format(k=k), code=s.code.format(k=k)) for s, k in filled)


def an_input(rng: np.random.Generator, kind: str) -> Any:
    """A random argument: 3 to 8 numbers of -20 … 40, 4 to 9 letters, or a number of -99 … 999."""
    if kind == "xs":
        return [int(k) for k in rng.integers(-20, 41, size=int(rng.integers(3, 9)))]
    if kind == "s":
        return "".join(chr(97 + int(k)) for k in rng.integers(26, size=int(rng.integers(4, 10))))
    return int(rng.integers(-99, 1000))


def cases(rng: np.random.Generator, program: Program, count: int) -> list[tuple[Any, Any]]:
    """`count` different inputs with their outputs."""
    found: dict[str, tuple[Any, Any]] = {}
    while len(found) < count:
        value = an_input(rng, program[0].takes)
        found[repr(value)] = (value, program.run(value))
    return list(found.values())


TESTS = 8  # hidden ones of a program
TEST_TIMEOUT = 3.0  # seconds for a right program's microseconds: each endless one holds up a step as long


@sources.register("programs")
class Programs(Source):
    """Programs composed of steps: half are functions with assertions, half read a line and print. All tests were
    computed from the reference solution, `extra_info["reference"]`."""

    makes: ClassVar[tuple[str, ...]] = ("codegen__composed",)
    kind: Literal["programs"] = "programs"
    steps: Annotated[int, Field(ge=1, le=6)] = 3
    """Most steps; drawn evenly from 1 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("programs", self.steps, TESTS, "both", index)
        stdin = bool(rng.integers(2))
        program, tests = Program(), []
        while len({repr(out) for _, out in tests}) < TESTS // 2:  # outputs that tell programs apart
            program = compose(rng, int(rng.integers(1, self.steps + 1)))
            tests = cases(rng, program, TESTS + 1)
        question, truth, code = (_stdin if stdin else _functional)(program, tests)
        info = {"index": index, "difficulty": len(program), "reference": code, "test_timeout": TEST_TIMEOUT}
        info |= {"solution": f"```python\n{code}\n```"}
        return Task.ask("codegen__composed", question, json.dumps(truth), ability="codegen", extra_info=info)


def _functional(program: Program, tests: list[tuple[Any, Any]]) -> tuple[str, Any, str]:
    """Question, ground truth and solution; the first test is shown."""
    (given, result), *hidden = tests
    question = (
        f"Write a Python function `solve({program[0].takes})` that takes {TYPES[program[0].takes][1]} and does the "
        f"following: {program.words()}; then return the result.\nFor example, solve({given!r}) returns {result!r}.\n"
        "Answer with the function in a ```python fence."
    )
    checks = "\n".join(f"assert solve({value!r}) == {out!r}" for value, out in hidden)
    return question, {"functional": checks}, program.source()


def _stdin(program: Program, tests: list[tuple[Any, Any]]) -> tuple[str, Any, str]:
    (_, _, called, read), many = TYPES[program[0].takes], program[-1].gives == "xs"
    (given, *inputs), (result, *outputs) = (list(map(_line, side)) for side in zip(*tests, strict=True))
    question = (
        f"Write a Python program that reads one line with {called} and does the following: {program.words()}; then "
        f"print the result{' separated by spaces' if many else ''}.\nFor example, for the input\n{given}it prints\n"
        f"{result}Answer with the whole program in a ```python fence."
    )
    code = f"{program.source()}\n\nresult = solve({read})\nprint({'*' if many else ''}result)"
    return question, {"inputs": inputs, "outputs": outputs}, code


def _line(value: Any) -> str:
    return " ".join(map(str, value if isinstance(value, list) else [value])) + "\n"


@sources.register("code_io")
class CodeIO(Source):
    """What a composed program gives for an input, as in Guru's codeio, or which input gives an output: then every step
    can be undone, so that the answer is the only one."""

    makes: ClassVar[tuple[str, ...]] = ("simulation__codeio_generated",)
    kind: Literal["code_io"] = "code_io"
    steps: Annotated[int, Field(ge=1, le=8)] = 3
    """Most steps of the program; drawn evenly from 1 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("code_io", self.steps, "both", index)
        wanted, given = (("output", "input"), ("input", "output"))[int(rng.integers(2))]
        program = compose(rng, int(rng.integers(1, self.steps + 1)), invertible=wanted == "input")
        value = an_input(rng, takes := program[0].takes)
        pair = {"input": {takes: value}, "output": program.run(value)}
        form = f" (a mapping with the key {takes})" if wanted == "input" else ""
        question = (
            f"Here is a Python function:\n{program.source()}\n\n"
            f"Its {given} is {json.dumps(pair[given])}. What is its {wanted}{form}? Please output the final answer "
            f'within ```json``` as {{"{wanted}": ...}}.'
        )
        truth = f'"{wanted}": {json.dumps(pair[wanted])}'
        fields = {"ability": "simulation", "extra_info": {"index": index, "difficulty": len(program)}}
        return Task.ask("simulation__codeio_generated", question, truth, **fields)
