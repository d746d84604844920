"""Logic: generated zebra puzzles, and scorers of Guru's zebra grids, orders and nodes of a graph."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise, permutations
from operator import eq
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources, vocabulary
from rlkit.domains.answers import literal, marked
from rlkit.domains.grading import parse
from rlkit.domains.table import clean
from rlkit.errors import UserError
from rlkit.seeds import generator
from rlkit.types import Reward, Task

ATTRIBUTES = vocabulary("attributes")
RELATIONS = {
    "same": ("is", eq),
    "next": ("lives next to", lambda x, y: abs(x - y) == 1),
    "directly": ("lives directly to the left of", lambda x, y: y - x == 1),
    "left": ("lives somewhere to the left of", lambda x, y: x < y),
    "at": ("lives in", eq),
}
"""What a clue may say of two houses."""
Grid = list[tuple[int, ...]]
"""`grid[attribute][value]` is a house."""


class Clue(NamedTuple):
    """`kind` relates the houses of two (attribute, value) pairs; for "at", the second is (attribute, house)."""

    kind: str
    first: tuple[int, int]
    second: tuple[int, int]

    def holds(self, grid: Grid) -> bool:
        (a, v), (b, w) = self.first, self.second
        return RELATIONS[self.kind][1](grid[a][v], w if self.kind == "at" else grid[b][w])

    def text(self, names: list[str]) -> str:
        """The clue as a sentence; `names` are the attributes' names."""
        pairs = ((names[a], v) for a, v in (self.first, self.second))
        first, second = (f"the person whose {name.lower()} is {ATTRIBUTES[name][v]}" for name, v in pairs)
        second = f"house {self.second[1] + 1}" if self.kind == "at" else second
        return f"{first[0].upper()}{first[1:]} {RELATIONS[self.kind][0]} {second}."


def solutions(clues: list[Clue], size: int, attributes: int) -> Iterator[Grid]:
    """Every grid of `size` houses that satisfies the clues, attribute by attribute with backtracking."""
    if attributes == 0:
        return iter([[]])
    shorter = solutions(clues, size, attributes - 1)
    longer = ([*grid, order] for grid in shorter for order in permutations(range(size)))
    new = [clue for clue in clues if max(clue.first[0], clue.second[0]) == attributes - 1]
    return (grid for grid in longer if all(clue.holds(grid) for clue in new))


def unique(clues: list[Clue], size: int, attributes: int) -> bool:
    """Whether exactly one grid satisfies the clues."""
    return len(list(islice(solutions(clues, size, attributes), 2))) == 1


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
        yield Clue("at", first, (first[0], grid[first[0]][first[1]]))
        for second in items:
            for kind in ("same", "next", "directly", "left"):
                clue, symmetric = Clue(kind, first, second), kind in ("same", "next")
                if first != second and (first < second or not symmetric) and clue.holds(grid):
                    yield clue


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
        columns = [[ATTRIBUTES[name][grid[a].index(k)] for k in range(size)] for a, name in enumerate(names)]
        rows = [[str(k + 1), *(column[k] for column in columns)] for k in range(size)]
        values = "\n".join(f"- {name}: {', '.join(ATTRIBUTES[name][:size])}" for name in names)
        lines = "\n".join(f"{i}. {clue.text(names)}" for i, clue in enumerate(clues, 1))
        question = (
            f"There are {size} houses in a row, numbered 1 to {size} from left to right. Each house has one person, "
            f"and the people differ in every attribute:\n{values}\nClues:\n{lines}\nWork out the whole grid. "
            f"Give it as a dictionary with the keys header (a list of the column names, {['House', *names]}) and rows "
            "(one list of strings a house, from house 1 on), in <answer> </answer> tags, for example <answer> "
            "{'header': [...], 'rows': [[...], [...]]} </answer>."
        )
        truth = {"header": ["House", *names], "rows": rows}
        info = {"index": index, "difficulty": size * count, "clues": len(clues)}
        return Task.ask("logic__zebra_puzzle_generated", question, truth, ability="logic", extra_info=info)


@sources.register("ordering")
class Ordering(Source):
    """Who comes first, or last, for the smallest models. Example: `c<a d<c a<b first` → `d`."""

    makes: ClassVar[tuple[str, ...]] = ("logic__brief_ordering",)
    kind: Literal["ordering"] = "ordering"
    items: Annotated[int, Field(ge=2, le=26)] = 5
    """Most letters in the order; drawn evenly from 2 up to it."""

    def task(self, index: int) -> Task:
        rng = generator("ordering", self.items, index)
        size, end = int(rng.integers(2, self.items + 1)), int(rng.integers(2))
        order = [chr(97 + int(k)) for k in rng.permutation(26)[:size]]
        clues = [f"{a}<{b}" for a, b in pairwise(order)]
        text = " ".join([*(clues[int(k)] for k in rng.permutation(size - 1)), ("first", "last")[end]])
        info = {"index": index, "difficulty": size}
        return Task.ask("logic__brief_ordering", text, order[-end], ability="logic", extra_info=info)


_LONGEST = 50_000  # characters of an answer that is read


@scorer("logic__zebra*", "zebra_puzzle_dataset")
def score_zebra(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when header and every row of the table in `<answer>`, or else in the last box or only fence, are the truth's,
    in order, blanks, bold and letter case aside. parts: cell_accuracy, the share of the truth's cells; the value is the
    share without the first column, which the header gives away, and 0 under another header."""
    truth = _table(parse(ground_truth, dict, "a zebra puzzle"))
    if truth is None or any("" in row for row in truth[1:]):  # which any other value would meet
        raise UserError("The ground truth of a zebra puzzle needs a header and rows, lists of texts.")
    text = marked(response)
    answer = _table(literal(text[text.find("{") : text.rfind("}") + 1])) if len(text) <= _LONGEST else None
    if not answer or [len(row) for row in answer[1:]] != [len(row) for row in truth[1:]]:
        return Reward.of(False, cell_accuracy=0.0, reason="another size" if answer else "no table")
    same = [list(map(eq, ours, theirs)) for ours, theirs in zip(answer[1:], truth[1:], strict=True)]
    cells, inner = [cell for row in same for cell in row], [cell for row in same for cell in row[1:]]
    value = 1.0 if answer == truth else sum(inner) / max(1, len(inner)) * (answer[0] == truth[0])
    return Reward.of(answer == truth, value, cell_accuracy=sum(cells) / max(1, len(cells)))


def _table(value: Any) -> list[list[str]] | None:
    """The header and the rows of a table in comparable form, or None if the value is none."""
    match value:
        case {"header": list(header), "rows": list(rows)} if rows and all(isinstance(r, list) for r in rows):
            return [[_name(cell) for cell in row] for row in (header, *rows)]
    return None


@scorer("logic__ordering*", "ordering_puzzle_dataset", "logic__graph*", "graph_logical_dataset")
def score_names(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the list, path or node in `<answer>` or else in the last box, the only fence or an answer line is the
    truth, letter case aside; quotes, brackets and numbering may be left out, two lists are no answer."""
    truth = names(str(ground_truth)) if isinstance(ground_truth, str | list) else None
    if not truth or not all(truth):
        raise UserError(f"The ground truth of an order or a graph must be names: {ground_truth!r}.")
    return Reward.of(names(marked(response)) == truth)


_LABEL = re.compile(r"(?i)^(?:(?:the|my|final|correct)\s)*(?:order|answer|list|path|node)(?:\sis:?|:)\s+")
_MARK = re.compile(r"(?:\(?(\d{1,9})[.):]|[-*•])\s+")
_SEPARATOR = re.compile(r",|\n|;|\||-{1,2}>|→|=>|\\(?:long)?rightarrow(?![a-z])|\\to(?![a-z])|\\\\")


def names(text: str) -> list[str] | None:
    """The names in a list, in comparable form: `['a', 'b']`, `[a, b]`, `a, b`, `a -> b`, `1. a\n2. b`."""
    if len(text) > _LONGEST:
        return None
    text = re.sub(r"\*\*|`|</?b>|\\(?:left|right)(?=[\[\]()])", "", text)
    text = _LABEL.sub("", re.sub(r"[^\S\n]+", " ", text).strip())
    text = re.sub(r"\\(?:text|math)[a-z]{0,2}\{([^{}]*)\}", r"\1", text)
    value = literal(text) if text.startswith(("[", "(")) else None
    if isinstance(value, list | tuple):
        return list(map(_name, value))
    if text[:1] + text[-1:] in ("[]", "()"):
        text = text[1:-1]
    if re.search(r"[\[\]{}]", text):
        return None
    parts = [part.strip() for part in _SEPARATOR.split(text) if part.strip()]
    if len(parts) > 1:  # a, b and c
        parts[-1:] = filter(None, re.split(r"(?:^|\s+)(?:and|\\?&)\s+", parts[-1], maxsplit=1))
    marks = [_MARK.match(part) for part in parts]
    numbers = [int(mark[1]) for mark in marks if mark and mark[1]]
    if numbers and numbers != [1] * len(parts) and numbers != list(range(1, len(parts) + 1)):
        return None  # they tell another order
    return [_name(part[mark.end() if mark else 0 :]) for part, mark in zip(parts, marks, strict=True)] or None


def _name(value: Any) -> str:
    """A name or whole number in comparable form; empty for anything else."""
    plain = isinstance(value, str) or (isinstance(value, int) and abs(value) < 10**9)
    return clean(str(value)) if plain else ""
