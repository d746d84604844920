"""Small Python programs composed of steps, each with its source, its meaning in words and its function.

The function and the source of a step say the same thing twice, so that ground truth needs no execution
of text; tests/test_domains_code_tasks.py runs the sources and compares.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

Type = Literal["list", "string", "integer"]
PARAMETER: dict[Type, str] = {"list": "xs", "string": "s", "integer": "n"}
HINT: dict[Type, str] = {"list": "list[int]", "string": "str", "integer": "int"}


class Step(NamedTuple):
    """`code` is an expression of the parameter's name; `{k}` stands for a constant from 2 to 5."""

    takes: Type
    gives: Type
    words: str
    code: str
    run: Callable[[Any, int], Any]
    invertible: bool = False


def _rotated(x: Any, k: int) -> Any:
    return x[k:] + x[:k]


STEPS = (
    Step("list", "list", "sort it in ascending order", "sorted(xs)", lambda x, k: sorted(x)),
    Step(
        "list",
        "list",
        "sort it in descending order",
        "sorted(xs, reverse=True)",
        lambda x, k: sorted(x)[::-1],
    ),
    Step("list", "list", "reverse it", "xs[::-1]", lambda x, k: x[::-1], True),
    Step(
        "list",
        "list",
        "multiply every element by {k}",
        "[x * {k} for x in xs]",
        lambda x, k: [v * k for v in x],
        True,
    ),
    Step(
        "list",
        "list",
        "add {k} to every element",
        "[x + {k} for x in xs]",
        lambda x, k: [v + k for v in x],
        True,
    ),
    Step("list", "list", "square every element", "[x * x for x in xs]", lambda x, k: [v * v for v in x]),
    Step("list", "list", "drop the first element", "xs[1:]", lambda x, k: x[1:]),
    Step("list", "list", "keep every second element from the first on", "xs[::2]", lambda x, k: x[::2]),
    Step(
        "list",
        "list",
        "keep the elements greater than {k}",
        "[x for x in xs if x > {k}]",
        lambda x, k: [v for v in x if v > k],
    ),
    Step(
        "list",
        "list",
        "keep the even elements",
        "[x for x in xs if x % 2 == 0]",
        lambda x, k: [v for v in x if v % 2 == 0],
    ),
    Step("list", "list", "append its length", "xs + [len(xs)]", lambda x, k: [*x, len(x)], True),
    Step(
        "list",
        "list",
        "replace it by its running sums",
        "[sum(xs[:i + 1]) for i in range(len(xs))]",
        lambda x, k: [sum(x[: i + 1]) for i in range(len(x))],
        True,
    ),
    Step("list", "integer", "take the sum of its elements", "sum(xs)", lambda x, k: sum(x)),
    Step(
        "list",
        "integer",
        "take the sum of the squares of its elements",
        "sum(x * x for x in xs)",
        lambda x, k: sum(v * v for v in x),
    ),
    Step(
        "list",
        "integer",
        "take its largest element, or 0 if it is empty",
        "max(xs, default=0)",
        lambda x, k: max(x, default=0),
    ),
    Step(
        "list",
        "integer",
        "take its largest element minus its smallest, or 0 if it is empty",
        "max(xs, default=0) - min(xs, default=0)",
        lambda x, k: max(x, default=0) - min(x, default=0),
    ),
    Step(
        "list",
        "string",
        "join its elements into a string with hyphens",
        '"-".join(map(str, xs))',
        lambda x, k: "-".join(map(str, x)),
        True,
    ),
    Step("string", "string", "reverse it", "s[::-1]", lambda x, k: x[::-1], True),
    Step("string", "string", "sort its characters", '"".join(sorted(s))', lambda x, k: "".join(sorted(x))),
    Step("string", "string", "convert it to upper case", "s.upper()", lambda x, k: x.upper()),
    Step("string", "string", "move its first {k} characters to the end", "s[{k}:] + s[:{k}]", _rotated, True),
    Step(
        "string",
        "string",
        "write every character twice",
        '"".join(c + c for c in s)',
        lambda x, k: "".join(c + c for c in x),
        True,
    ),
    Step("string", "string", "keep every second character from the first on", "s[::2]", lambda x, k: x[::2]),
    Step("string", "string", "append its first character", "s + s[:1]", lambda x, k: x + x[:1], True),
    Step("string", "string", "remove its last character", "s[:-1]", lambda x, k: x[:-1]),
    Step(
        "string",
        "list",
        "list its code points",
        "[ord(c) for c in s]",
        lambda x, k: [ord(c) for c in x],
        True,
    ),
    Step("string", "integer", "sum its code points", "sum(ord(c) for c in s)", lambda x, k: sum(map(ord, x))),
    Step("integer", "integer", "multiply it by {k}", "n * {k}", lambda x, k: x * k, True),
    Step("integer", "integer", "add {k}", "n + {k}", lambda x, k: x + k, True),
    Step("integer", "integer", "square it", "n * n", lambda x, k: x * x),
    Step(
        "integer",
        "integer",
        "add the sum of its decimal digits (ignoring a sign)",
        "n + sum(int(d) for d in str(abs(n)))",
        lambda x, k: x + sum(map(int, str(abs(x)))),
    ),
    Step("integer", "string", "write it as a decimal string", "str(n)", lambda x, k: str(x), True),
    Step(
        "integer",
        "list",
        "take the list of its decimal digits (ignoring a sign)",
        "[int(d) for d in str(abs(n))]",
        lambda x, k: [int(d) for d in str(abs(x))],
    ),
)


class Program(NamedTuple):
    """A chain of steps with their constants, applied to one parameter."""

    steps: tuple[Step, ...]
    constants: tuple[int, ...]

    @property
    def takes(self) -> Type:
        return self.steps[0].takes

    def run(self, value: Any) -> Any:
        for step, k in zip(self.steps, self.constants, strict=True):
            value = step.run(value, k)
        return value

    def source(self, name: str = "solve") -> str:
        """The function's source: one assignment a step."""
        lines = [f"def {name}({PARAMETER[self.takes]}: {HINT[self.takes]}) -> {HINT[self.steps[-1].gives]}:"]
        for step, k in zip(self.steps, self.constants, strict=True):
            lines.append(f"    {PARAMETER[step.gives]} = {step.code.format(k=k)}")
        return "\n".join([*lines, f"    return {PARAMETER[self.steps[-1].gives]}"])

    def words(self) -> str:
        return "; then ".join(s.words.format(k=k) for s, k in zip(self.steps, self.constants, strict=True))


def compose(rng: np.random.Generator, length: int, invertible: bool = False) -> Program:
    """A program of `length` steps whose types fit; no step stands twice."""
    pool = [s for s in STEPS if s.invertible or not invertible]
    kinds: list[Type] = ["list", "string", "integer"]
    at = kinds[int(rng.integers(3))]
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
