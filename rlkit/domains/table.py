"""Tables: generated ones with questions, in the format of Guru's table files, and their scorer."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources
from rlkit.domains.answers import TOLERANCE, Figure, figure, final_answer, given, in_percent, side_by_side
from rlkit.errors import UserError
from rlkit.seeds import generator
from rlkit.types import Reward, Task


class Theme(NamedTuple):
    """A kind of table: its row names, a category column and columns of whole numbers (low, high)."""

    row: str
    names: tuple[str, ...]
    category: str
    categories: tuple[str, ...]
    numbers: dict[str, tuple[int, int]]


# fmt: off
THEMES = (
    Theme("City", ("Arden", "Belmora", "Calder", "Dunmore", "Eastvale", "Farrow", "Glenby", "Harwick", "Inver",
                   "Juniper"),
          "Region", ("North", "South", "East", "West"),
          {"Population (thousands)": (20, 990), "Rainfall (mm)": (150, 2400), "Parks": (2, 80), "Schools": (5, 160)}),
    Theme("Product", ("lamp", "desk", "chair", "shelf", "mirror", "carpet", "clock", "vase", "bench", "stool"),
          "Store", ("Downtown", "Harbor", "Airport"),
          {"Units sold": (3, 400), "Price": (5, 900), "Returns": (0, 40), "Stock": (0, 700)}),
    Theme("Team", ("Falcons", "Bears", "Comets", "Rovers", "Lions", "Wolves", "Sharks", "Eagles", "Miners", "Pilots"),
          "Division", ("A", "B", "C"),
          {"Wins": (0, 30), "Goals": (10, 120), "Cards": (0, 60), "Points": (5, 99)}),
    Theme("Employee", ("Adler", "Brandt", "Castro", "Dietz", "Evans", "Fischer", "Garcia", "Holm", "Ito", "Jensen"),
          "Department", ("Sales", "Research", "Support", "Finance"),
          {"Age": (21, 64), "Years of service": (0, 35), "Projects": (1, 25), "Training hours": (0, 200)}),
)
# fmt: on

Table = dict[str, list[Any]]
"""Columns by name: the rows' names, their categories, and columns of whole numbers that hold no value twice."""
Answered = tuple[str, list[str]]
"""A question and its answers."""
Question = Callable[[Table, Theme, str, np.random.Generator], Answered]
"""Makes one from a table, its theme, a number column and a generator."""


def _ranked(table: Table, theme: Theme, column: str, group: str = "") -> list[tuple[int, str]]:
    """Values of a column with the rows' names, the lowest first; of one category, where it is given."""
    rows = zip(table[column], table[theme.row], table[theme.category], strict=True)
    return sorted((value, name) for value, name, category in rows if group in ("", category))


def _cell(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    at = int(rng.integers(len(table[theme.row])))
    return f"What is the {column} of {table[theme.row][at]}?", [str(table[column][at])]


def _extreme(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    word, place = ("highest", -1) if rng.integers(2) else ("lowest", 0)
    return f"Which {theme.row} has the {word} {column}?", [_ranked(table, theme, column)[place][1]]


def _difference(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    ranked = _ranked(table, theme, column)
    low, high = (ranked[k] for k in sorted(int(k) for k in rng.permutation(len(ranked))[:2]))
    return f"By how much is the {column} of {high[1]} above that of {low[1]}?", [str(high[0] - low[0])]


def _count(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    bound = int(np.median(table[column])) + int(rng.integers(-3, 4))
    above = sum(value > bound for value in table[column])
    return f"How many rows have a {column} above {bound}?", [str(above)]


def _total(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    group = _pick(table[theme.category], rng)
    total = sum(value for value, _ in _ranked(table, theme, column, group))
    return f"What is the total {column} of the rows with {theme.category} {group}?", [str(total)]


def _mean(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    mean = sum(table[column]) / len(table[column])
    return f"What is the mean {column} over all rows, to two decimals?", [f"{mean:.2f}"]


def _top_two(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    first, second = (name for _, name in _ranked(table, theme, column)[:-3:-1])
    return f"Which two entries of {theme.row} have the highest {column}?", [first, second]


def _best_group(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    groups = sorted(set(table[theme.category]))
    totals = {group: sum(value for value, _ in _ranked(table, theme, column, group)) for group in groups}
    best = [group for group in groups if totals[group] == max(totals.values())]
    return f"Which {theme.category} has the largest total {column}?", best


def _extreme_in_group(table: Table, theme: Theme, column: str, rng: np.random.Generator) -> Answered:
    group = _pick(table[theme.category], rng)
    question = f"Among the rows with {theme.category} {group}, which {theme.row} has the lowest {column}?"
    return question, [_ranked(table, theme, column, group)[0][1]]


QUESTIONS: dict[str, tuple[int, Question]] = {
    "cell": (1, _cell), "extreme": (1, _extreme), "difference": (2, _difference), "count": (2, _count),
    "total": (3, _total), "mean": (3, _mean), "top_two": (4, _top_two), "best_group": (4, _best_group),
    "extreme_in_group": (4, _extreme_in_group),
}  # fmt: skip
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
        rows = int(rng.integers(3, self.rows + 1))
        table = _table(theme, rows, self.columns, rng)
        name = _pick([name for name, (level, _) in QUESTIONS.items() if level <= self.level], rng)
        level, ask = QUESTIONS[name]
        question, answers = ask(table, theme, _pick(list(table)[2:], rng), rng)
        lines = [list(table), ["---"] * len(table), *zip(*table.values(), strict=True)]
        bars = "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines)  # as in Guru's prompts
        text = (
            f"Here is a table:\n{bars}\n{question} Please output the final answer within "
            f"\\boxed{{}}. If there are multiple answers, please output them separated by |."
        )
        info = {"index": index, "difficulty": level * rows, "question": question, "family": name}
        return Task.ask("table__generated", text, "|".join(answers), ability="table", extra_info=info)


def _table(theme: Theme, rows: int, columns: int, rng: np.random.Generator) -> Table:
    """Number columns hold no value twice, so that rankings have one answer."""
    table: Table = {
        theme.row: [theme.names[int(k)] for k in rng.permutation(len(theme.names))[:rows]],
        theme.category: [_pick(theme.categories, rng) for _ in range(rows)],
    }
    for k in sorted(rng.permutation(len(theme.numbers))[:columns]):
        column, (low, high) = list(theme.numbers.items())[int(k)]
        table[column] = [int(v) for v in rng.choice(np.arange(low, high + 1), size=rows, replace=False)]
    return table


def _pick(items: Sequence[str], rng: np.random.Generator) -> str:
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
        text = " ".join(f"{n}{v}" for n, v in zip(names, values, strict=True)) + f" {names[at]}"
        info = {"index": index, "difficulty": rows}
        return Task.ask("table__lookup", text, str(values[at]), ability="table", extra_info=info)


_LONGEST = 20_000  # characters of an answer that is read
_FONT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|tt)|mbox|operatorname|emph|underline)\s?\{([^{}]*)\}"
)
_PLAIN = {0xFEE0 + code: code for code in range(0x21, 0x7F)} | dict.fromkeys(map(ord, "−‐‑‒–—"), "-")
"""Full-width letters and signs, and dashes, as ASCII has them."""
_POWER = re.compile(r"(\d) ?(?:\\times|\\cdot|×) ?10 ?\^ ?\{? ?([+-]?\d{1,3}) ?\}?")
_ABOUT = re.compile(
    r"(?:(?:\\approx|\\sim(?:eq)?|[≈≃~]|approx\.?|approximately|about|around|roughly|circa|ca\.|c\.) ?){1,2}"
    r"(?=[-+$€£¥\\(.]{0,4}\d)"
)
_SPACED = re.compile(r"(?<![\d.,])(\d{1,3})((?: \d{3})+)(?![\d,])")
_LABELLED = re.compile(r"[a-z][a-z ]{0,40}[:=] ?(.+)")
_WITH_UNIT = re.compile(r"(.*\d[^a-z]{0,3}) ([a-z]{3,20}(?: [a-z]{2,20})?)")
# fmt: off
_NO_UNITS = {"or", "and", "not", "nor", "but", "to", "than", "vs", "versus", "from", "between", "least", "most", "plus",
             "minus", "if"}
_UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
          "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# fmt: on
_NUMBERS = {word: n for n, word in enumerate(_UNITS)} | {word: 20 + 10 * n for n, word in enumerate(_TENS)}
_NUMBERS |= {f"{ten}-{_UNITS[n]}": _NUMBERS[ten] + n for ten in _TENS for n in range(1, 10)}


@scorer("table__*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the boxed answers, separated by `|`, are the truth's in any order, each as often.

    Figures with decimals agree within 0.1 %, whole ones exactly; a percent sign, a word such as million or
    a unit may be missing, and 12.3% is also 0.123 (but 0.123 is not 12.3%, see `in_percent`). Words agree without
    letter case.
    Nothing is evaluated: `2019-2020` is a range of years, not -1.
    """
    truth = ground_truth
    if isinstance(truth, int | float) and not isinstance(truth, bool):
        truth = repr(truth)
    if isinstance(truth, list) and all(isinstance(item, str | int | float) for item in truth):
        truth = "|".join(map(str, truth))
    theirs = members(truth) if isinstance(truth, str) else []
    if not theirs:
        raise UserError(f"The ground truth of a table question must be text: {str(ground_truth)[:80]!r}.")
    answer = given(response)
    if not answer or len(answer) > _LONGEST:
        return Reward.of(False, reason="no answer")
    marked = final_answer(response) is not None
    boxes = side_by_side(response)  # one a member
    several = len(boxes) == len(theirs) > 1 and answer.endswith(boxes[-1])
    return Reward.of(
        same_members(answer, theirs, units=marked)
        or (several and same_members("|".join(boxes), theirs, units=True))
    )


def same_members(answer: str, theirs: list[str], units: bool = False) -> bool:
    """Whether a list has exactly the members `theirs`, in any order. With `units`, a bare figure in `theirs`
    is met by the figure and one or two words behind it."""
    ours = members(answer)
    if len(ours) == 1 < len(theirs):
        listed = re.sub(r"^[\[{(](.*)[\])}]$", r"\1", ours[0])
        ours = [part for text in re.split(r",? and |, |; ?", listed) if (part := _unquoted(text))]
    left = list(theirs) if len(ours) == len(theirs) else []
    for part in ours:
        found = next((i for i, other in enumerate(left) if same_member(part, other, units)), None)
        if found is None:
            return False
        del left[found]
    return bool(ours)


def members(text: str) -> list[str]:
    """The parts between bars, each in comparable form; empty ones are left out."""
    return [part for piece in _typed(text).split("|") if (part := _unquoted(piece))]


def clean(text: str) -> str:
    """A text in comparable form: without typography, quotes and a final full stop, in lower case."""
    return _unquoted(_typed(text))


def _typed(text: str) -> str:
    """As one would type it: without LaTeX's commands for fonts and spaces, and with plain dashes and blanks."""
    text = text.translate(_PLAIN).replace("{,}", ",").replace("\\!", "")
    text = re.sub(r"(?<=\w)--(?=\w)", "-", text)
    text = re.sub(r"\\(?:mid|vert)(?![a-zA-Z])", "|", text)
    for _ in range(3):
        text = _FONT.sub(r"\1", text)
    text = re.sub(r"\\([$%&_#{}|])", r"\1", re.sub(r"\\[,;: ]|(?<=\S)~", " ", text))
    text = " ".join(re.sub(r"\\[()\[\]]", "", text).split())
    return _SPACED.sub(lambda m: m[1] + m[2].replace(" ", ""), text)


def _unquoted(text: str) -> str:
    text = text.strip("'\"“”‘’*` ").rstrip(".").strip("'\"“”‘’*` ").casefold()
    return text[1:-1].strip() if len(text) > 2 and text[0] == "$" == text[-1] else text


def same_member(ours: str, theirs: str, units: bool = False) -> bool:
    """Whether two members are the same words or the same figure."""
    if ours == theirs:
        return True
    x, y = _number(ours), _number(theirs)
    if y is None:
        return False
    if x is None and units and theirs[-1:].isdigit() and (match := _WITH_UNIT.fullmatch(ours[:_SHORT])):
        x = None if _NO_UNITS & set(match[2].split()) else _number(match[1])
    if x is None and (match := _LABELLED.fullmatch(ours[:_SHORT])):
        x = _number(match[1])
    return x is not None and _same_number(x, y)


_SHORT = 100  # characters of a figure


def _number(text: str) -> Figure | None:
    """The figure that a text is: with an approximation sign, blanks between thousands, or in words."""
    if len(text) >= _SHORT or sum(map(str.isdigit, text.partition(".")[0])) > 15:
        return None  # floats tell whole numbers of 15 digits apart
    word, _, rest = text.partition(" ")
    if (number := _NUMBERS.get(text.replace(" ", "-"))) is not None:
        text = str(number)
    elif word in _NUMBERS:
        text = f"{_NUMBERS[word]} {rest}"
    found = figure(_POWER.sub(r"\1e\2", _ABOUT.sub("", text, 1)))
    return found if found is not None and np.isfinite(found.value * found.scale) else None


def _same_number(ours: Figure, theirs: Figure) -> bool:
    scaled = [(ours.value, theirs.value)]
    if ours.scale != theirs.scale:  # the table's head may have the word
        both = (ours.value * ours.scale, theirs.value * theirs.scale)
        scaled = [*scaled, both] if 1.0 in (ours.scale, theirs.scale) else [both]
    if ours.percent and not theirs.percent and not in_percent(theirs.value):
        scaled = [(ours.value / 100, theirs.value)]
    return any(_near(a, b) for a, b in scaled)


def _near(ours: float, theirs: float) -> bool:
    """Within TOLERANCE of the truth, and nearer to a whole truth than to any other whole number."""
    near = abs(ours - theirs) <= TOLERANCE * max(abs(ours), abs(theirs)) and (ours < 0) == (theirs < 0)
    return near and (theirs != round(theirs) or abs(ours - theirs) < 0.5)
