"""Logic: generated zebra puzzles, and scorers of Guru's zebra grids, orders and nodes of a graph."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources
from rlkit.domains.answers import after_thinking, fences, final_answer, last_box, literal, tagged
from rlkit.domains.table import clean
from rlkit.errors import UserError
from rlkit.rewards.grading import parse
from rlkit.seeds import generator
from rlkit.types import Reward, Task

ATTRIBUTES = {
    "Name": ("Alice", "Bruno", "Chloe", "Dmitri", "Elena"),
    "Color": ("red", "green", "blue", "white", "yellow"),
    "Pet": ("cat", "dog", "fish", "horse", "parrot"),
    "Drink": ("tea", "coffee", "milk", "juice", "water"),
    "Job": ("baker", "doctor", "farmer", "painter", "teacher"),
}
_RELATIONS = {
    "same": "is",
    "next": "lives next to",
    "directly": "lives directly to the left of",
    "left": "lives somewhere to the left of",
}
Grid = list[tuple[int, ...]]
"""`grid[attribute][value]` is a house."""


class Clue(NamedTuple):
    """`kind` relates the houses of two (attribute, value) pairs; for "at", the second is a house number."""

    kind: str
    first: tuple[int, int]
    second: tuple[int, int]

    def holds(self, grid: Grid) -> bool:
        """Whether it is true, or not yet decided by a grid of the first attributes only."""
        (a, v), (b, w) = self.first, self.second
        if a >= len(grid):
            return True
        x = grid[a][v]
        if self.kind == "at":
            return x == w
        if b >= len(grid):
            return True
        y = grid[b][w]
        return {"same": x == y, "next": abs(x - y) == 1, "directly": y - x == 1, "left": x < y}[self.kind]

    def text(self, names: list[str]) -> str:
        """The clue as a sentence; `names` are the attributes' names."""

        def person(attribute: int, value: int) -> str:
            name = names[attribute]
            return f"the person whose {name.lower()} is {ATTRIBUTES[name][value]}"

        if self.kind == "at":
            return f"{person(*self.first)} lives in house {self.second[1] + 1}."
        return f"{person(*self.first)} {_RELATIONS[self.kind]} {person(*self.second)}."


def solutions(clues: Iterable[Clue], size: int, attributes: int) -> Iterator[Grid]:
    """Every grid of `size` houses that satisfies the clues, attribute by attribute with backtracking."""
    clues, orders = list(clues), list(permutations(range(size)))

    def extend(grid: Grid) -> Iterator[Grid]:
        new = len(grid)
        if new == attributes:
            yield grid
            return
        decided = [c for c in clues if max(c.first[0], 0 if c.kind == "at" else c.second[0]) == new]
        for order in orders:
            if all(c.holds([*grid, order]) for c in decided):
                yield from extend([*grid, order])

    return extend([])


def unique(clues: list[Clue], size: int, attributes: int) -> bool:
    """Whether exactly one grid satisfies the clues."""
    found = solutions(clues, size, attributes)
    return next(found, None) is not None and next(found, None) is None


def puzzle(rng: np.random.Generator, size: int, attributes: int) -> tuple[Grid, list[Clue]]:
    """A grid and clues that leave no other one, none of which can be left out."""
    grid = [tuple(int(k) for k in rng.permutation(size)) for _ in range(attributes)]
    clues = [clue for clue in _true_clues(grid, size) if clue.kind != "at" or rng.random() < 0.3]
    clues = [clues[int(k)] for k in rng.permutation(len(clues))]
    enough = (clues[:n] for n in range(size, len(clues) + size, size) if unique(clues[:n], size, attributes))
    kept = next(enough, clues)
    for clue in list(kept):
        rest = [c for c in kept if c is not clue]
        if unique(rest, size, attributes):
            kept = rest
    return grid, kept


def _true_clues(grid: Grid, size: int) -> Iterator[Clue]:
    items = [(a, v) for a in range(len(grid)) for v in range(size)]
    for first in items:
        x = grid[first[0]][first[1]]
        yield Clue("at", first, (first[0], x))
        for second in items:
            if second == first:
                continue
            y = grid[second[0]][second[1]]
            if x == y and first < second:
                yield Clue("same", first, second)
            if abs(x - y) == 1 and first < second:
                yield Clue("next", first, second)
            if y - x == 1:
                yield Clue("directly", first, second)
            if y > x:
                yield Clue("left", first, second)


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
        texts = [clue.text(names) for clue in clues]
        lines = "\n".join(f"{i}. {text[0].upper()}{text[1:]}" for i, text in enumerate(texts, 1))
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


_LONGEST = 50_000  # characters of an answer that is read
Table = tuple[list[str], list[list[str]]]
"""Header and rows, in comparable form."""


@scorer("logic__zebra*", "zebra_puzzle_dataset")
def score_zebra(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when header and every row of the table in `<answer>`, or else in the last box or only fence, are the truth's,
    in order, blanks, bold and letter case aside.

    parts: cell_accuracy, the share of the truth's cells. The value is the share
    without the first column, whose positions are given away by the header.
    """
    truth = _table(parse(ground_truth, dict, "a zebra puzzle"))
    if truth is None:
        raise UserError("The ground truth of a zebra puzzle needs a header and rows, lists of texts.")
    answer = _table(_mapping(_answer(response)))
    if answer is None:
        return Reward.of(False, cell_accuracy=0.0, reason="no table")
    exact, ours, theirs = answer == truth, answer[1], truth[1]
    value = float(exact) if exact else _share([r[1:] for r in ours], [r[1:] for r in theirs])
    return Reward.of(exact, value, cell_accuracy=_share(ours, theirs))


def _mapping(text: str) -> Any:
    """What the one pair of outer braces in a text holds."""
    body = text[text.find("{") : text.rfind("}") + 1] if len(text) <= _LONGEST else ""
    return literal(body) if body else None


def _table(value: Any) -> Table | None:
    """A table in comparable form, or None if the value is none."""
    header, rows = (value.get("header"), value.get("rows")) if isinstance(value, Mapping) else (None, None)
    if not isinstance(header, list) or not isinstance(rows, list) or not rows:
        return None
    if not all(isinstance(row, list) for row in rows):
        return None
    return [_name(cell) for cell in header], [[_name(cell) for cell in row] for row in rows]


def _share(ours: list[list[str]], theirs: list[list[str]]) -> float:
    """Of the truth's cells, those that the answer has in the same place; 0 for a table of another size."""
    if [len(row) for row in ours] != [len(row) for row in theirs]:
        return 0.0
    cells = [a == b for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)]
    return sum(cells) / len(cells) if cells else 0.0


@scorer("logic__ordering*", "ordering_puzzle_dataset")
def score_ordering(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the list in `<answer>` or else in the last box, the only fence or an answer line is the truth, letter
    case aside; quotes, brackets and numbering may be left out, two lists are no answer."""
    truth = [_name(item) for item in parse(ground_truth, list, "an ordering puzzle")]
    if not truth or not all(truth):
        raise UserError(f"The ground truth of an ordering puzzle must be a list of names: {ground_truth!r}.")
    return Reward.of(items(_answer(response)) == truth)


@scorer("logic__graph*", "graph_logical_dataset")
def score_graph(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the node in `<answer>` or else in the last box is the truth, letter case, quotes and a full stop
    aside; a truth that is a list is a path, which may be written with arrows."""
    truth = items(ground_truth) if isinstance(ground_truth, str) else None
    if isinstance(ground_truth, list):
        truth = [_name(item) for item in ground_truth]
    if not truth or not all(truth):
        raise UserError(f"The ground truth of a graph puzzle must be a name or a path: {ground_truth!r}.")
    return Reward.of(items(_answer(response)) == truth)


def _answer(response: str) -> str:
    """What the last `<answer>` holds, or a box behind it; without a tag the last box, the only fence or an answer
    line; else nothing."""
    text, inside = after_thinking(response), tagged(response)
    box = last_box(text)
    if box and (inside is None or box[0] > text.lower().rfind("</answer>")):
        return box[1]
    if inside is None:
        blocks = fences(text)
        return blocks[0][1] if len(blocks) == 1 else final_answer(text) or ""
    box = last_box(inside)
    return box[1] if box else inside


_SEPARATOR = re.compile(
    r",|\n|;|-{1,2}>|→|⇒|=>|\\(?:long)?(?:right)?arrow(?![a-z])|\\to(?![a-z])|\\\\", re.IGNORECASE
)


def items(text: str) -> list[str] | None:
    """The names in a list, in comparable form: `['a', 'b']`, `[a, b]`, `a, b`, `a -> b`, `1. a\\n2. b`."""
    if len(text) > _LONGEST:
        return None
    blocks = fences(text) if "```" in text else []
    text = re.sub(r"\*\*|`", "", blocks[0][1] if len(blocks) == 1 else text).strip()
    text = re.sub(r"\\(?:left|right)(?=[\[\]()])", "", text)
    for _ in range(2):
        text = re.sub(r"\\(?:text|math)[a-z]{0,2}\{([^{}]*)\}", r"\1", text)
    value = literal(text) if text.startswith(("[", "(")) else None
    if isinstance(value, list | tuple):
        return [_name(item) for item in value]
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1]
    if re.search(r"[\[\]{}]", text):
        return None
    parts = [part.strip() for part in _SEPARATOR.split(text) if part.strip()]
    if len(parts) > 2:
        parts[-1] = re.sub(r"^and\s+", "", parts[-1])
    return [_name(re.sub(r"^(?:\d+[.):]|[-*•])\s+", "", part)) for part in parts] or None


def _name(value: Any) -> str:
    """A name or whole number in comparable form; empty for anything else."""
    plain = isinstance(value, str) or (isinstance(value, int) and abs(value) < 10**9)
    return clean(str(value)) if plain else ""
