"""Scoring LiveBench's tasks of reasoning, language and data analysis, by `extra_info["task"]`.

The answer is the last `<solution>`, box or bold text outside the reasoning, or a short response as a whole. The score
of a task is LiveBench's: all or nothing, a share of groups (connections), an F1 (tablejoin) or a similarity of
orders (plot_unscrambling). An answer is correct when its score is 1; reward.partial_credit trains on the score.

Not covered: LiveBench's mathematics, coding and instruction following, which Guru leaves out as well.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import after_thinking, fences, last_box, literal
from rlkit.errors import UserError, did_you_mean
from rlkit.types import Reward

_SOLUTION = re.compile(r"<solution>(.*?)</solution>", re.DOTALL | re.IGNORECASE)
_BOLD = re.compile(r"\*\*\*?([^*\n]+)\*\*\*?")
_WHOLE = 200  # characters; a longer response without a marked answer has none
_NUMBERS = {w: str(n) for n, w in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight",
                                             "nine", "ten", "eleven", "twelve"])}  # fmt: skip


@scorer("ood__livebench", "livebench")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the task's score of the answer is 1. parts: score."""
    task = str(extra_info.get("task") or "")
    if task not in _TASKS:
        raise UserError(
            f"extra_info.task is {task!r}.{did_you_mean(task, _TASKS)} Known: {', '.join(sorted(_TASKS))}."
        )
    if ground_truth is None or ground_truth == "":
        raise UserError("The ground truth of a livebench row is empty.")
    answer = _answer(response)
    value = _TASKS[task](answer, ground_truth) if answer else 0.0
    return Reward.of(value == 1.0, value, score=value)


def _answer(response: str) -> str:
    text = after_thinking(response)
    if marked := _SOLUTION.findall(text):
        return marked[-1].strip()
    if box := last_box(text):
        return re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", box[1]).strip()
    if fenced := fences(text):
        return fenced[-1][1].strip()
    if bold := _BOLD.findall(text):
        return bold[-1].strip()
    return text.strip() if len(text.strip()) <= _WHOLE else ""


def _words(text: Any) -> list[str]:
    return [str(_NUMBERS.get(w, w)) for w in re.findall(r"[^\W_]+", str(text).lower())]


def _same_words(answer: str, truth: Any) -> float:
    return float(_words(answer) == _words(truth))


def _yes_no(answer: str, truth: Any) -> float:
    said = [w for w in _words(answer) if w in ("yes", "no", "unknown")]
    return float(said == _words(truth))


def _typos(answer: str, truth: Any) -> float:
    """The corrected text, letter for letter, blanks aside."""
    return float(" ".join(str(truth).split()) in " ".join(answer.split()))


def _connections(answer: str, truth: Any) -> float:
    """Share of the groups of four that the answer has, in any order."""
    items, right = ([" ".join(_words(w)) for w in _listed(t)] for t in (answer, truth))
    ours, theirs = ({frozenset(x[i : i + 4]) for i in range(0, len(x), 4)} for x in (items, right))
    return len(ours & theirs) / len(theirs) if len(items) == len(right) else 0.0


def _listed(text: Any) -> list[str]:
    value = text if isinstance(text, list) else re.split(r"[,\n]", str(text))
    flat = [x for item in value for x in (item if isinstance(item, list) else [item])]
    return [str(x) for x in flat if str(x).strip()]


def _plot(answer: str, truth: Any) -> float:
    """1 minus the edit distance of the orders of sentences over their number, as long as sentences are known."""
    theirs = [s for s in (_sentence(x) for x in re.split(r"(?<=[.!?])\s+", str(truth))) if s]
    ours = [_nearest(s, theirs) for s in (_sentence(x) for x in re.split(r"(?<=[.!?])\s+", answer)) if s]
    return max(0.0, 1 - _distance(ours, list(range(len(theirs)))) / max(len(theirs), 1))


def _sentence(text: str) -> str:
    return " ".join(_words(text))


def _nearest(sentence: str, known: list[str]) -> int:
    """The place of the most similar sentence; -1 where none is near."""
    if sentence in known:
        return known.index(sentence)
    ratios = [SequenceMatcher(None, sentence, other, autojunk=False).ratio() for other in known]
    best = max(range(len(known)), key=ratios.__getitem__, default=-1)
    return best if best >= 0 and ratios[best] > 0.8 else -1


def _distance(a: list[int], b: list[int]) -> int:
    """Levenshtein's edit distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def _table_join(answer: str, truth: Any) -> float:
    """F1 of the pairs of columns."""
    ours, theirs = (literal(t) if isinstance(t, str) else t for t in (answer, truth))
    if not isinstance(theirs, dict):
        raise UserError(f"The ground truth of tablejoin must be a mapping, not {str(truth)[:80]!r}.")
    if not isinstance(ours, dict) or not ours:
        return 0.0
    hits = sum(theirs.get(k) == v for k, v in ours.items())
    return 2 * hits / (len(ours) + len(theirs))


def _table_reformat(answer: str, truth: Any) -> float:
    ours, theirs = _table(answer), _table(str(truth))
    return float(ours is not None and ours == theirs)


def _table(text: str) -> list[list[str]] | None:
    """Rows of a table in JSON, markdown, HTML, CSV or TSV, header first, with numbers in one form."""
    text = text.strip()
    value = literal(text)
    if value is None and "\n" in text and text.startswith("{"):
        value = [literal(line) for line in text.splitlines()]
    if isinstance(value, dict):
        first = next(iter(value.values()), None)
        if isinstance(first, dict):  # by column or by index
            value = list(value.values())
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return [list(map(_cell, value[0])), *([_cell(v) for v in row.values()] for row in value)]
    if "<tr" in text.lower():
        rows = re.findall(r"<tr.*?>(.*?)</tr>", text, re.DOTALL | re.IGNORECASE)
        return [[_cell(c) for c in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", r, re.DOTALL | re.I)] for r in rows]
    if text.startswith("|"):
        rows = [line.strip().strip("|").split("|") for line in text.splitlines() if line.strip()]
        return [[_cell(c) for c in row] for row in rows if not all(re.fullmatch(r"[\s:-]+", c) for c in row)]
    delimiter = "\t" if "\t" in text else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    return [[_cell(c) for c in row] for row in rows if row] or None


def _cell(value: Any) -> str:
    text = "" if value is None else str(value).strip()
    try:
        return json.dumps(round(float(text), 6))
    except ValueError:
        return "" if text.lower() in ("nan", "null", "none") else text


_TASKS: dict[str, Callable[[str, Any], float]] = {
    "web_of_lies_v2": _yes_no,
    "web_of_lies_v3": _yes_no,
    "zebra_puzzle": _same_words,
    "spatial": _same_words,
    "house_traversal": _same_words,
    "cta": _same_words,
    "tablejoin": _table_join,
    "tablereformat": _table_reformat,
    "connections": _connections,
    "typos": _typos,
    "plot_unscrambling": _plot,
}
