"""Zebra puzzles: a hidden grid and a minimal set of clues that leaves no other grid."""

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np

ATTRIBUTES = {
    "Name": ("Alice", "Bruno", "Chloe", "Dmitri", "Elena"),
    "Color": ("red", "green", "blue", "white", "yellow"),
    "Pet": ("cat", "dog", "fish", "horse", "parrot"),
    "Drink": ("tea", "coffee", "milk", "juice", "water"),
    "Job": ("baker", "doctor", "farmer", "painter", "teacher"),
}


class Clue(NamedTuple):
    """`kind` relates the houses of two (attribute, value) pairs; for "at", the second is a house number."""

    kind: str
    first: tuple[int, int]
    second: tuple[int, int]

    def holds(self, houses: list[tuple[int, ...]]) -> bool:
        """Whether it is true, or not yet decided: `houses[attribute][value]` is a house, for the first
        attributes only."""
        (a, v), (b, w) = self.first, self.second
        if a >= len(houses):
            return True
        x = houses[a][v]
        if self.kind == "at":
            return x == w
        if b >= len(houses):
            return True
        y = houses[b][w]
        return {"same": x == y, "next": abs(x - y) == 1, "directly": y - x == 1, "left": x < y}[self.kind]

    def text(self, names: list[str]) -> str:
        def noun(attribute: int, value: int) -> str:
            word = ATTRIBUTES[names[attribute]][value]
            return f"the person whose {names[attribute].lower()} is {word}"

        first = noun(*self.first)
        if self.kind == "at":
            return f"{first} lives in house {self.second[1] + 1}."
        relation = {
            "same": "is",
            "next": "lives next to",
            "directly": "lives directly to the left of",
            "left": "lives somewhere to the left of",
        }[self.kind]
        return f"{first} {relation} {noun(*self.second)}."


def solutions(clues: Iterable[Clue], size: int, attributes: int) -> Iterator[list[tuple[int, ...]]]:
    """Every grid that satisfies the clues, attribute by attribute with backtracking."""
    clues = list(clues)
    orders = list(permutations(range(size)))

    def extend(houses: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
        if len(houses) == attributes:
            yield houses
            return
        new = len(houses)
        decided = [c for c in clues if max(c.first[0], 0 if c.kind == "at" else c.second[0]) == new]
        for order in orders:
            grid = [*houses, order]
            if all(c.holds(grid) for c in decided):
                yield from extend(grid)

    return extend([])


def unique(clues: list[Clue], size: int, attributes: int) -> bool:
    """Whether exactly one grid satisfies the clues."""
    found = solutions(clues, size, attributes)
    return next(found, None) is not None and next(found, None) is None


def puzzle(rng: np.random.Generator, size: int, attributes: int) -> tuple[list[tuple[int, ...]], list[Clue]]:
    """A grid (`houses[attribute][value]` = house) and clues none of which can be left out."""
    houses = [tuple(int(k) for k in rng.permutation(size)) for _ in range(attributes)]
    clues = [clue for clue in _all_true(houses, size) if clue.kind != "at" or rng.random() < 0.3]
    clues = [clues[int(k)] for k in rng.permutation(len(clues))]
    kept = _enough(clues, size, attributes)
    for clue in list(kept):
        rest = [c for c in kept if c is not clue]
        if unique(rest, size, attributes):
            kept = rest
    return houses, kept


def _enough(clues: list[Clue], size: int, attributes: int) -> list[Clue]:
    """The shortest prefix of the true clues, to a multiple of `size`, that decides the grid."""
    for count in range(size, len(clues) + size, size):
        if unique(clues[:count], size, attributes):
            return clues[:count]
    return clues  # left and directly clues of every pair: always decides


def _all_true(houses: list[tuple[int, ...]], size: int) -> Iterator[Clue]:
    items = [(a, v) for a in range(len(houses)) for v in range(size)]
    for first in items:
        x = houses[first[0]][first[1]]
        yield Clue("at", first, (first[0], x))
        for second in items:
            if second[0] == first[0] and second[1] == first[1]:
                continue
            y = houses[second[0]][second[1]]
            if x == y and first < second:
                yield Clue("same", first, second)
            if abs(x - y) == 1 and first < second:
                yield Clue("next", first, second)
            if y - x == 1:
                yield Clue("directly", first, second)
            if y > x:
                yield Clue("left", first, second)
