"""Tables: generated ones with questions, in the format of Guru's table files, and their scorer."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rlkit.domains import Source, scorer, sources, vocabulary
from rlkit.domains.answers import FONT, TOLERANCE, given, in_percent, paired, side_by_side
from rlkit.errors import UserError
from rlkit.seeds import generator
from rlkit.types import Reward, Task

THEMES = vocabulary("themes")
"""Of each kind of table what a row is, the rows' names, what a category is, the categories, and the columns of whole
numbers (lowest, highest)."""

Table = dict[str, list[Any]]
"""Columns by name: the rows' names, their categories, and columns of whole numbers that hold no value twice."""
LEVELS = {"cell": 1, "extreme": 1, "difference": 2, "count": 2, "total": 3, "mean": 3, "top_two": 4, "best_group": 4,
          "extreme_in_group": 4}  # fmt: skip
"""Level of each kind of question."""
_COLUMNS = 3  # with numbers


def _ask(kind: str, table: Table, column: str, rng: np.random.Generator) -> tuple[str, list]:
    """A question of a kind about a number column, and its answers."""
    row, category, *_ = table
    names, categories, values = table[row], table[category], table[column]
    ranked = sorted(zip(values, names, categories, strict=True))
    match kind:
        case "cell":
            at = int(rng.integers(len(names)))
            return f"What is the {column} of {names[at]}?", [values[at]]
        case "extreme":
            word, place = ("highest", -1) if rng.integers(2) else ("lowest", 0)
            return f"Which {row} has the {word} {column}?", [ranked[place][1]]
        case "difference":
            low, high = (ranked[k] for k in sorted(map(int, rng.permutation(len(ranked))[:2])))
            return f"By how much is the {column} of {high[1]} above that of {low[1]}?", [high[0] - low[0]]
        case "count":
            bound = int(np.median(values)) + int(rng.integers(-3, 4))
            return f"How many rows have a {column} above {bound}?", [sum(v > bound for v in values)]
        case "mean":
            mean = sum(values) / len(values)
            return f"What is the mean {column} over all rows, to two decimals?", [f"{mean:.2f}"]
        case "top_two":
            best = [name for _, name, _ in ranked[:-3:-1]]
            return f"Which two entries of {row} have the highest {column}?", best
        case "best_group":
            totals = {g: sum(v for v, _, c in ranked if c == g) for g in sorted(categories)}
            best = [g for g, total in totals.items() if total == max(totals.values())]
            return f"Which {category} has the largest total {column}?", best
    group = _pick(categories, rng)
    inside, rows = [item for item in ranked if item[2] == group], f"the rows with {category} {group}"
    if kind == "total":
        return f"What is the total {column} of {rows}?", [sum(item[0] for item in inside)]
    return f"Among {rows}, which {row} has the lowest {column}?", [inside[0][1]]


@sources.register("tables")
class Tables(Source):
    """Questions about one table: look-ups, comparisons, counts, sums, means and groups."""

    makes: ClassVar[tuple[str, ...]] = ("table__generated",)
    kind: Literal["tables"] = "tables"
    rows: Annotated[int, Field(ge=3, le=10)] = 8
    """Most rows; drawn evenly from 3 up to it."""
    level: Annotated[int, Field(ge=1, le=4)] = 4
    """Hardest kind of question: 1 look-ups, 2 comparisons, 3 sums and means, 4 groups and rankings."""

    def task(self, index: int) -> Task:
        rng = generator("tables", self.rows, _COLUMNS, self.level, index)
        table = _table(self.rows, rng)
        kind = _pick([kind for kind, level in LEVELS.items() if level <= self.level], rng)
        question, answers = _ask(kind, table, _pick(list(table)[2:], rng), rng)
        lines = [list(table), ["---"] * len(table), *zip(*table.values(), strict=True)]
        bars = "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)
        form = "within \\boxed{}. If there are multiple answers, please output them separated by |."  # as in Guru
        text = f"Here is a table:\n{bars}\n{question} Please output the final answer {form}"
        difficulty, truth = LEVELS[kind] * len(lines[2:]), "|".join(map(str, answers))
        info = {"index": index, "difficulty": difficulty, "question": question, "family": kind}
        return Task.ask("table__generated", text, truth, ability="table", extra_info=info)


def _table(most: int, rng: np.random.Generator) -> Table:
    """A table of 3 to `most` rows. Number columns hold no value twice, so that rankings have one answer."""
    row, names, category, categories, numbers = THEMES[int(rng.integers(len(THEMES)))]
    rows = int(rng.integers(3, most + 1))
    table: Table = {row: [names[int(k)] for k in rng.permutation(len(names))[:rows]]}
    table[category] = [_pick(categories, rng) for _ in range(rows)]
    for k in sorted(rng.permutation(len(numbers))[:_COLUMNS]):
        column, (low, high) = list(numbers.items())[int(k)]
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
_SHORT = 100  # characters of a figure
_PLAIN = {0xFEE0 + code: code for code in range(0x21, 0x7F)} | str.maketrans("−‐‑‒–—‘’“”", "------''\"\"")
"""Full-width letters and signs, dashes and quotes, as ASCII has them."""
_POWER = re.compile(r"(\d) ?(?:\\times|\\cdot|×) ?10 ?\^ ?\{? ?([+-]?\d{1,3}) ?\}?")
_ABOUT = re.compile(
    r"(?:(?:\\approx|\\sim(?:eq)?|[≈≃~]|approx\.?|approximately|about|around|roughly|c(?:irc)?a\.?) ?){1,2}"
    r"(?=[-+$€£¥\\(.]{0,4}\d)"
)
_NAMED = re.compile(  # x = 5, total: 5
    r"(?:[a-z] ?=|(?:answer|result|value|total|sum|mean|average|count|difference|year) ?[:=]) ?(.+)"
)
_MEASURED = re.compile(  # measures alone: other words may change the number, as in 5 dozen, 5 below zero
    r"(.*\d) (?:[mck]m|(?:kilo)?met(?:er|re)s|inches|feet|miles|[mk]?g|(?:kilo)?grams|ton(?:ne)?s|pounds|lit(?:er|re)s"
    r"|acres|hectares|seconds|minutes|h|hours|days|weeks|months|years)"
)
_SPACED = re.compile(r"(?<![\d.,])(\d{1,3})((?: \d{3})+)(?![\d,])")
_UNITS, _TENS = vocabulary("number_words")
NUMBERS = {word: n for n, word in enumerate(_UNITS)} | {word: 20 + 10 * n for n, word in enumerate(_TENS)}
NUMBERS |= {f"{ten}-{_UNITS[n]}": NUMBERS[ten] + n for ten in _TENS for n in range(1, 10)}
_WORDS = NUMBERS | {f"{word}-hundred": 100 * n for word, n in NUMBERS.items() if n}


@scorer("table__*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the boxed answers, separated by `|`, are the truth's in any order, each as often. Figures with decimals
    agree within 0.1 %, whole ones exactly; a percent sign, a word such as million or a unit may be missing, and 12.3%
    is also 0.123 (but 0.123 is not 12.3%). Words agree without letter case."""
    truths = ground_truth if isinstance(ground_truth, list) else [ground_truth]
    known = all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in truths)
    theirs = members("|".join(map(str, truths))) if known else []
    if not theirs:
        raise UserError(f"The ground truth of a table question must be text: {str(ground_truth)[:80]!r}.")
    answer = given(response)
    if not answer or len(answer) > _LONGEST:
        return Reward.of(False, reason="no answer")
    right, boxes = same_members(answer, theirs), side_by_side(response)  # or one box a member
    several = len(boxes) == len(theirs) > 1 and answer.endswith(boxes[-1])
    return Reward.of(right or (several and same_members("|".join(boxes), theirs)))


def same_members(answer: str, theirs: list[str]) -> bool:
    """Whether a list has exactly the members `theirs`, in any order."""
    ours = members(answer)
    if len(ours) == 1 < len(theirs):
        listed = re.sub(r"^[\[{(](.*)[\])}]$", r"\1", ours[0])
        ours = members(re.sub(r",? and |, |; ?", "|", listed))
    return paired(ours, theirs, same_member)


def members(text: str) -> list[str]:
    """The parts between bars, each in comparable form; empty ones are left out."""
    return [part for piece in _typed(text).split("|") if (part := _unquoted(piece))]


def clean(text: str) -> str:
    """A text in comparable form: without typography, quotes and a final full stop, in lower case."""
    return _unquoted(_typed(text))


def _typed(text: str) -> str:
    """As one would type it: without LaTeX's commands for fonts and spaces, and with plain dashes and blanks."""
    text = re.sub(r"(?<=\w)--(?=\w)", "-", text.translate(_PLAIN).replace("{,}", ",").replace("\\!", ""))
    text = re.sub(r"\\(?:mid|vert)(?![a-zA-Z])", "|", text)
    for _ in range(3):
        text = re.sub(rf"{FONT}\s?\{{([^{{}}]*)\}}", r"\1", text)
    text = re.sub(r"\\([$%&_#{}|])", r"\1", re.sub(r"\\[,;: ]|(?<=\S)~", " ", text))
    text = " ".join(re.sub(r"\\[()\[\]]", "", text).split())
    return _SPACED.sub(lambda m: m[1] + m[2].replace(" ", ""), text)


def _unquoted(text: str) -> str:
    text = text.strip("'\"*` ").rstrip(".").strip("'\"*` ").casefold()
    return text[1:-1].strip() if len(text) > 2 and text[0] == "$" == text[-1] else text


class Figure(NamedTuple):
    value: float
    percent: bool
    scale: float


_FIGURE = re.compile(
    r"(?P<open>\()?\s*(?P<sign>[+-]?)\s*(?:\\?[$€£¥]|usd\s*)?\s*(?P<sign2>[+-]?)"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?P<power>e[+-]?\d{1,3})?"
    r"\s*(?P<scale>thousand|million|billion|trillion|k|m|mn|bn|tn)?\b\s*(?:dollars|usd|euros?)?"
    r"\s*(?P<percent>\\?%|percent|per cent|percentage points?)?\s*(?P<close>\))?",
    re.IGNORECASE,
)
_SCALES = {"t": 1e3, "k": 1e3, "m": 1e6, "b": 1e9, "tr": 1e12, "tn": 1e12}


def figure(text: str) -> Figure | None:
    """The figure that a text is, in digits or words; None if it is something else (a range, a formula, an infinity)."""
    if len(text) >= _SHORT or sum(map(str.isdigit, text.partition(".")[0])) > 15:
        return None  # floats tell whole numbers of 15 digits apart
    word, _, rest = text.strip().partition(" ")
    if (number := _WORDS.get(text.replace(" ", "-"))) is not None:
        text = str(number)
    elif word in _WORDS:
        text = f"{_WORDS[word]} {rest}"
    match = _FIGURE.fullmatch(_POWER.sub(r"\1e\2", _ABOUT.sub("", text, 1)).strip())
    if match is None or bool(match["open"]) != bool(match["close"]) or (match["sign"] and match["sign2"]):
        return None
    value, word = float(match["digits"].replace(",", "") + (match["power"] or "")), match["scale"] or ""
    scale = _SCALES.get(word[:2], _SCALES.get(word[:1], 1.0))
    negative = match["open"] or "-" in match["sign"] + match["sign2"]
    found = Figure(-value if negative else value, bool(match["percent"]), scale)
    return found if math.isfinite(value * scale) else None


def same_member(ours: str, theirs: str) -> bool:
    """Whether two members are the same words or the same figure; a bare one is met by one with a measure, as 5 km."""
    if ours == theirs:
        return True
    x, y = figure(ours), figure(theirs)
    measured = _MEASURED.fullmatch(ours[:_SHORT]) if theirs[-1:].isdigit() else None
    if x is None and (match := measured or _NAMED.fullmatch(ours[:_SHORT])):
        x = figure(match[1])
    if x is None or y is None or (x.percent != y.percent and x.scale != y.scale):
        return False
    if x.percent and not y.percent and not in_percent(y.value):
        return _near(x.value / 100, y.value)
    alike = x.scale == y.scale or 1.0 in (x.scale, y.scale)  # 1: the head may have it
    return (alike and _near(x.value, y.value)) or _near(x.value * x.scale, y.value * y.scale)


def _near(ours: float, theirs: float) -> bool:
    """Within TOLERANCE of the truth, and nearer to a whole truth than to any other whole number."""
    near = abs(ours - theirs) <= TOLERANCE * max(abs(ours), abs(theirs)) and (ours < 0) == (theirs < 0)
    return near and (theirs != round(theirs) or abs(ours - theirs) < 0.5)
