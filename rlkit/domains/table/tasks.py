"""Generated tables with questions that pandas answers, in the format of Guru's table files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, sources
from rlkit.seeds import generator
from rlkit.types import Task

if TYPE_CHECKING:
    import pandas as pd


class Theme(NamedTuple):
    """A kind of table: its row names, a category column and columns of whole numbers (low, high)."""

    row: str
    names: tuple[str, ...]
    category: str
    categories: tuple[str, ...]
    numbers: dict[str, tuple[int, int]]


THEMES = (
    Theme(
        "City",
        (
            "Arden",
            "Belmora",
            "Calder",
            "Dunmore",
            "Eastvale",
            "Farrow",
            "Glenby",
            "Harwick",
            "Inver",
            "Juniper",
        ),
        "Region",
        ("North", "South", "East", "West"),
        {
            "Population (thousands)": (20, 990),
            "Rainfall (mm)": (150, 2400),
            "Parks": (2, 80),
            "Schools": (5, 160),
        },
    ),
    Theme(
        "Product",
        ("lamp", "desk", "chair", "shelf", "mirror", "carpet", "clock", "vase", "bench", "stool"),
        "Store",
        ("Downtown", "Harbor", "Airport"),
        {"Units sold": (3, 400), "Price": (5, 900), "Returns": (0, 40), "Stock": (0, 700)},
    ),
    Theme(
        "Team",
        ("Falcons", "Bears", "Comets", "Rovers", "Lions", "Wolves", "Sharks", "Eagles", "Miners", "Pilots"),
        "Division",
        ("A", "B", "C"),
        {"Wins": (0, 30), "Goals": (10, 120), "Cards": (0, 60), "Points": (5, 99)},
    ),
    Theme(
        "Employee",
        ("Adler", "Brandt", "Castro", "Dietz", "Evans", "Fischer", "Garcia", "Holm", "Ito", "Jensen"),
        "Department",
        ("Sales", "Research", "Support", "Finance"),
        {"Age": (21, 64), "Years of service": (0, 35), "Projects": (1, 25), "Training hours": (0, 200)},
    ),
)

Question = Callable[["pd.DataFrame", Theme, str, np.random.Generator], tuple[str, list[str]]]
"""Of a table, its theme, a number column and a generator: the question and its answers."""


def _cell(table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator) -> tuple[str, list[str]]:
    name = _pick(table[theme.row].tolist(), rng)
    value = table.set_index(theme.row).at[name, column]
    return f"What is the {column} of {name}?", [str(value)]


def _extreme(
    table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator
) -> tuple[str, list[str]]:
    highest = bool(rng.integers(2))
    row = table[column].idxmax() if highest else table[column].idxmin()
    return f"Which {theme.row} has the {'highest' if highest else 'lowest'} {column}?", [
        str(table.at[row, theme.row])
    ]


def _difference(
    table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator
) -> tuple[str, list[str]]:
    values = table.set_index(theme.row)[column].sort_values()
    low, high = sorted(int(k) for k in rng.permutation(len(values))[:2])
    question = f"By how much is the {column} of {values.index[high]} above that of {values.index[low]}?"
    return question, [str(values.iloc[high] - values.iloc[low])]


def _count(table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator) -> tuple[str, list[str]]:
    bound = int(table[column].median()) + int(rng.integers(-3, 4))
    return f"How many rows have a {column} above {bound}?", [str(int((table[column] > bound).sum()))]


def _total(table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator) -> tuple[str, list[str]]:
    group = _pick(table[theme.category].tolist(), rng)
    part = table.loc[table[theme.category] == group, column]
    return f"What is the total {column} of the rows with {theme.category} {group}?", [str(part.sum())]


def _mean(table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator) -> tuple[str, list[str]]:
    return f"What is the mean {column} over all rows, to two decimals?", [f"{table[column].mean():.2f}"]


def _top_two(
    table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator
) -> tuple[str, list[str]]:
    names = table.nlargest(2, column)[theme.row].tolist()
    return f"Which two entries of {theme.row} have the highest {column}?", [str(n) for n in names]


def _best_group(
    table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator
) -> tuple[str, list[str]]:
    totals = table.groupby(theme.category)[column].sum()
    return f"Which {theme.category} has the largest total {column}?", [
        str(g) for g in totals[totals == totals.max()].index
    ]


def _extreme_in_group(
    table: pd.DataFrame, theme: Theme, column: str, rng: np.random.Generator
) -> tuple[str, list[str]]:
    group = _pick(table[theme.category].tolist(), rng)
    part = table[table[theme.category] == group]
    name = part.at[part[column].idxmin(), theme.row]
    return f"Among the rows with {theme.category} {group}, which {theme.row} has the lowest {column}?", [
        str(name)
    ]


QUESTIONS: dict[str, tuple[int, Question]] = {
    "cell": (1, _cell),
    "extreme": (1, _extreme),
    "difference": (2, _difference),
    "count": (2, _count),
    "total": (3, _total),
    "mean": (3, _mean),
    "top_two": (4, _top_two),
    "best_group": (4, _best_group),
    "extreme_in_group": (4, _extreme_in_group),
}
"""Level and maker of each kind of question."""


@sources.register("tables")
class Tables(Source):
    """Questions about one table: look-ups, comparisons, counts, sums, means and groups."""

    makes: ClassVar[tuple[str, ...]] = ("table__generated",)
    kind: Literal["tables"] = "tables"
    rows: Annotated[int, Field(ge=3, le=10)] = 8
    """Most rows; drawn evenly from 3 up to it."""
    columns: Annotated[int, Field(ge=1, le=4)] = 3
    """Number columns."""
    level: Annotated[int, Field(ge=1, le=4)] = 4
    """Hardest kind of question: 1 look-ups, 2 comparisons, 3 sums and means, 4 groups and rankings."""

    def task(self, index: int) -> Task:
        rng = generator("tables", self.rows, self.columns, self.level, index)
        theme = THEMES[int(rng.integers(len(THEMES)))]
        table = _table(theme, int(rng.integers(3, self.rows + 1)), self.columns, rng)
        names = [name for name, (level, _) in QUESTIONS.items() if level <= self.level]
        name = _pick(names, rng)
        level, ask = QUESTIONS[name]
        question, answers = ask(table, theme, _pick(list(table.columns[2:]), rng), rng)
        text = (
            f"Here is a table:\n{markdown(table)}\n{question} Please output the final answer within "
            f"\\boxed{{}}. If there are multiple answers, please output them separated by |."
        )
        info = {"index": index, "difficulty": level * len(table), "question": question, "family": name}
        return Task.ask("table__generated", text, "|".join(answers), ability="table", extra_info=info)


def _table(theme: Theme, rows: int, columns: int, rng: np.random.Generator) -> pd.DataFrame:
    """A table whose number columns hold no value twice, so that rankings have one answer."""
    import pandas as pd

    content: dict[str, list[str] | list[int]] = {
        theme.row: [theme.names[int(k)] for k in rng.permutation(len(theme.names))[:rows]],
        theme.category: [_pick(list(theme.categories), rng) for _ in range(rows)],
    }
    for k in sorted(rng.permutation(len(theme.numbers))[:columns]):
        column, (low, high) = list(theme.numbers.items())[int(k)]
        content[column] = [int(v) for v in rng.choice(np.arange(low, high + 1), size=rows, replace=False)]
    return pd.DataFrame(content)


def markdown(table: pd.DataFrame) -> str:
    """The table with bars between cells, as in Guru's prompts."""
    lines = [list(table.columns), ["---"] * table.shape[1], *table.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _pick(items: list[str], rng: np.random.Generator) -> str:
    return items[int(rng.integers(len(items)))]


@sources.register("lookup")
class Lookup(Source):
    """A table for the smallest models. Example: `a31 b58 c10 b` → `58`."""

    makes: ClassVar[tuple[str, ...]] = ("table__lookup",)
    kind: Literal["lookup"] = "lookup"
    rows: Annotated[int, Field(ge=2, le=26)] = 4
    """Most rows; drawn evenly from 2 up to it."""
    digits: Annotated[int, Field(ge=1, le=6)] = 2
    """Digits of a value."""

    def task(self, index: int) -> Task:
        rng = generator("lookup", self.rows, self.digits, index)
        rows = int(rng.integers(2, self.rows + 1))
        names = [chr(97 + int(k)) for k in rng.permutation(26)[:rows]]
        values = [int(k) for k in rng.integers(10 ** (self.digits - 1), 10**self.digits, size=rows)]
        at = int(rng.integers(rows))
        text = " ".join(f"{n}{v}" for n, v in zip(names, values, strict=True))
        info = {"index": index, "difficulty": rows}
        return Task.ask(
            "table__lookup", f"{text} {names[at]}", str(values[at]), ability="table", extra_info=info
        )
