"""Generated programs whose output is to be predicted."""

from typing import Annotated, Literal

from pydantic import Field

from rlkit.domains import Source, sources
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
