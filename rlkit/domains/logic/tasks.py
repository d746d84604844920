"""Generated logic puzzles, in the answer formats of Guru's logic files."""

from itertools import permutations
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.domains.logic.zebra import ATTRIBUTES, puzzle
from rlkit.seeds import generator
from rlkit.types import Task

BIRDS = ("owl", "hawk", "crow", "robin", "finch", "raven", "heron", "quail", "stork", "wren")


@sources.register("zebra")
class Zebra(Source):
    """Who lives where: clues that leave one grid of houses and attributes."""

    makes: ClassVar[tuple[str, ...]] = ("logic__zebra_puzzle_generated",)
    kind: Literal["zebra"] = "zebra"
    houses: Annotated[int, Field(ge=2, le=4)] = 3
    """Most houses; drawn evenly from 2 up to it."""
    attributes: Annotated[int, Field(ge=2, le=5)] = 3
    """Most attributes; drawn evenly from 2 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("zebra", self.houses, self.attributes, index)
        size, count = int(rng.integers(2, self.houses + 1)), int(rng.integers(2, self.attributes + 1))
        names = [list(ATTRIBUTES)[int(k)] for k in sorted(rng.permutation(len(ATTRIBUTES))[:count])]
        grid, clues = puzzle(rng, size, count)
        rows = [
            [str(house + 1), *(ATTRIBUTES[name][grid[a].index(house)] for a, name in enumerate(names))]
            for house in range(size)
        ]
        values = "\n".join(f"- {name}: {', '.join(ATTRIBUTES[name][:size])}" for name in names)
        lines = "\n".join(
            f"{i}. {text[0].upper()}{text[1:]}" for i, text in enumerate((c.text(names) for c in clues), 1)
        )
        question = (
            f"There are {size} houses in a row, numbered 1 to {size} from left to right. Each house has "
            f"one person, and the people differ in every attribute:\n{values}\nClues:\n{lines}\n"
            "Work out the whole grid. Give it as a dictionary with the keys header (a list of the column "
            f"names, {['House', *names]}) and rows (one list of strings a house, from house 1 on), in "
            "<answer> </answer> tags, for example <answer> {'header': [...], 'rows': [[...], [...]]} "
            "</answer>."
        )
        truth = {"header": ["House", *names], "rows": rows}
        info = {"index": index, "difficulty": size * count, "clues": len(clues)}
        return Task.ask("logic__zebra_puzzle_generated", question, truth, ability="logic", extra_info=info)


@sources.register("ordering")
class Ordering(Source):
    """Birds on a branch: relations that leave one order."""

    makes: ClassVar[tuple[str, ...]] = ("logic__ordering_puzzle_generated",)
    kind: Literal["ordering"] = "ordering"
    items: Annotated[int, Field(ge=3, le=7)] = 5
    """Most birds; drawn evenly from 3 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("ordering", self.items, index)
        size = int(rng.integers(3, self.items + 1))
        birds = [BIRDS[int(k)] for k in rng.permutation(len(BIRDS))[:size]]
        clues = _ordering_clues(rng, birds)
        listed = ", ".join(f"a {b}" if b != "owl" else "an owl" for b in sorted(birds))
        question = (
            f"{size} birds sit on a branch in a row: {listed}.\n"
            + "\n".join(clues)
            + "\nIn which order do they sit, "
            "from left to right? Give a list in <answer> </answer> tags, for example "
            "<answer> ['pigeon', 'sparrow', 'gull'] </answer>."
        )
        info = {"index": index, "difficulty": size}
        return Task.ask("logic__ordering_puzzle_generated", question, birds, ability="logic", extra_info=info)


def _ordering_clues(rng: np.random.Generator, birds: list[str]) -> list[str]:
    """Clues, none superfluous, that only this order satisfies."""
    size = len(birds)
    # column j of `places` is where bird j sits in each possible order; order 0 is the true one
    places = np.argsort(np.array(list(permutations(range(size)))), axis=1)
    clues: list[tuple[str, np.ndarray]] = []
    for i in range(size):
        clues.append((f"The {birds[i]} is number {i + 1} from the left.", places[:, i] == i))
        for j in range(i + 1, size):
            left = f"The {birds[i]} is to the left of the {birds[j]}."
            right = f"The {birds[j]} is to the right of the {birds[i]}."
            clues.append((left if rng.random() < 0.5 else right, places[:, i] < places[:, j]))
        if i + 2 < size:
            text = f"Exactly one bird sits between the {birds[i]} and the {birds[i + 2]}."
            clues.append((text, np.abs(places[:, i] - places[:, i + 2]) == 2))
    chosen = [clues[int(k)] for k in rng.permutation(len(clues))]
    for clue in list(chosen):
        rest = [c for c in chosen if c is not clue]
        if rest and np.logical_and.reduce([holds for _, holds in rest]).sum() == 1:
            chosen = rest
    return [text for text, _ in chosen]


@sources.register("graph_walk")
class GraphWalk(Source):
    """Where a walk ends: every node has one arrow, and the arrows are to be followed some steps."""

    makes: ClassVar[tuple[str, ...]] = ("logic__graph_logical_generated",)
    kind: Literal["graph_walk"] = "graph_walk"
    nodes: Annotated[int, Field(ge=3, le=40)] = 8
    """Nodes of the graph."""
    steps: Annotated[int, Field(ge=1, le=20)] = 4
    """Most steps; drawn evenly from 1 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("graph_walk", self.nodes, self.steps, index)
        names: list[str] = []
        while len(names) < self.nodes:
            name = "".join(chr(97 + int(k)) for k in rng.integers(26, size=6))
            names += [name] if name not in names else []
        arrows = [int(k) for k in rng.integers(self.nodes - 1, size=self.nodes)]
        arrows = [k + (k >= i) for i, k in enumerate(arrows)]  # no node points to itself
        steps = int(rng.integers(1, self.steps + 1))
        at = start = int(rng.integers(self.nodes))
        for _ in range(steps):
            at = arrows[at]
        lines = [f"{names[int(i)]} points to {names[arrows[int(i)]]}." for i in rng.permutation(self.nodes)]
        question = (
            "In a network, every node points to one other node:\n"
            + "\n".join(lines)
            + f"\nStart at {names[start]} and "
            f"follow the pointers {steps} time{'s' if steps > 1 else ''}. At which node do you end? Give "
            "its name in <answer> </answer> tags, for example <answer> abcdef </answer>."
        )
        info = {"index": index, "difficulty": steps}
        return Task.ask(
            "logic__graph_logical_generated", question, names[at], ability="logic", extra_info=info
        )


@sources.register("path")
class Path(Source):
    """A graph walk for the smallest models. Example: `ab bc ca a2` → `c` (from a, two arrows on)."""

    makes: ClassVar[tuple[str, ...]] = ("logic__path",)
    kind: Literal["path"] = "path"
    nodes: Annotated[int, Field(ge=3, le=26)] = 4
    """Nodes, named by letters."""
    steps: Annotated[int, Field(ge=1, le=9)] = 3
    """Most steps; drawn evenly from 1 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("path", self.nodes, self.steps, index)
        names = [chr(97 + int(k)) for k in rng.permutation(26)[: self.nodes]]
        arrows = [int(k) for k in rng.integers(self.nodes, size=self.nodes)]
        steps = int(rng.integers(1, self.steps + 1))
        at = start = int(rng.integers(self.nodes))
        for _ in range(steps):
            at = arrows[at]
        edges = " ".join(names[i] + names[j] for i, j in enumerate(arrows))
        info = {"index": index, "difficulty": steps}
        return Task.ask(
            "logic__path", f"{edges} {names[start]}{steps}", names[at], ability="logic", extra_info=info
        )
