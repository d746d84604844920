"""Generated programming problems with real tests, in the formats of Guru's code files."""

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.domains.code.programs import PARAMETER, Program, Type, cases, compose
from rlkit.seeds import generator
from rlkit.types import Task

READ: dict[Type, str] = {
    "list": "list(map(int, input().split()))",
    "string": "input()",
    "integer": "int(input())",
}
SHOWN: dict[Type, str] = {"list": "a list of integers", "string": "a string", "integer": "an integer"}
LINE: dict[Type, str] = {
    "list": "integers separated by spaces",
    "string": "a string",
    "integer": "an integer",
}


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
        example, tests = tests[0], tests[1:]
        question, truth, code = (_stdin if stdin else _functional)(program, example, tests)
        return Task.ask(
            "codegen__composed",
            question,
            json.dumps(truth),
            ability="codegen",
            extra_info={
                "index": index,
                "difficulty": len(program.steps),
                "reference": code,
                "solution": f"```python\n{code}\n```",
            },
        )


def _functional(
    program: Program, example: tuple[Any, Any], tests: list[tuple[Any, Any]]
) -> tuple[str, Any, str]:
    question = (
        f"Write a Python function `solve({PARAMETER[program.takes]})` that takes {SHOWN[program.takes]} "
        f"and does the following: {program.words()}; then return the result.\nFor example, "
        f"solve({example[0]!r}) returns {example[1]!r}.\nAnswer with the function in a ```python fence."
    )
    checks = "\n".join(f"assert solve({value!r}) == {out!r}" for value, out in tests)
    return question, {"functional": checks}, program.source()


def _stdin(program: Program, example: tuple[Any, Any], tests: list[tuple[Any, Any]]) -> tuple[str, Any, str]:
    gives = program.steps[-1].gives
    question = (
        f"Write a Python program that reads one line with {LINE[program.takes]} and does the following: "
        f"{program.words()}; then print the result{' separated by spaces' if gives == 'list' else ''}.\n"
        f"For example, for the input\n{line(example[0])}\nit prints\n{line(example[1])}\n"
        "Answer with the whole program in a ```python fence."
    )
    printed = "print(*result)" if gives == "list" else "print(result)"
    code = f"{program.source()}\n\nresult = solve({READ[program.takes]})\n{printed}"
    truth = {"inputs": [line(v) + "\n" for v, _ in tests], "outputs": [line(out) + "\n" for _, out in tests]}
    return question, truth, code


def line(value: Any) -> str:
    """A value as one line of standard input or output."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
