"""Generated programs whose output, or input, is to be predicted."""

import json
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.domains.code.programs import PARAMETER, an_input, compose
from rlkit.seeds import generator
from rlkit.types import Task

_PROGRAMS = {
    "sorted": lambda s: "".join(sorted(s)),
    "reversed": lambda s: s[::-1],
    "max": max,
    "min": min,
    "last": lambda s: s[-1],
    "rotate": lambda s: s[1:] + s[0],
}


@sources.register("string_trace")
class StringTrace(Source):
    """What a one-line string program gives. Example: `sorted dbca` → `abcd`."""

    makes: ClassVar[tuple[str, ...]] = ("simulation__string_trace",)
    kind: Literal["string_trace"] = "string_trace"
    length: Annotated[int, Field(ge=2, le=20)] = 4
    """Most letters of the input; drawn evenly from 2 up to it."""
    letters: Annotated[int, Field(ge=2, le=26)] = 8
    """Size of the alphabet."""

    def task(self, index: int) -> Task:
        rng = generator("string_trace", self.length, self.letters, index)
        size = int(rng.integers(2, self.length + 1))
        text = "".join(chr(97 + int(k)) for k in rng.integers(self.letters, size=size))
        name = list(_PROGRAMS)[int(rng.integers(len(_PROGRAMS)))]
        return Task.ask(
            "simulation__string_trace",
            f"{name} {text}",
            _PROGRAMS[name](text),
            ability="simulation",
            extra_info={"index": index, "difficulty": size},
        )


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
        name = PARAMETER[program.takes]
        value = an_input(rng, program.takes)
        pair = {"input": {name: value}, "output": program.run(value)}
        given = "output" if wanted == "input" else "input"
        question = (
            f"Here is a Python function:\n{program.source()}\n\n"
            f"Its {given} is {json.dumps(pair[given])}. What is its {wanted}"
            f"{f' (a mapping with the key {name})' if wanted == 'input' else ''}? Please output the final "
            "answer "
            f'within ```json``` as {{"{wanted}": ...}}.'
        )
        truth = f'"{wanted}": {json.dumps(pair[wanted])}'
        info = {"index": index, "difficulty": len(program.steps)}
        return Task.ask(
            "simulation__codeio_generated", question, truth, ability="simulation", extra_info=info
        )
