"""Scoring logic puzzles: zebra grids, orders, and nodes of a graph."""

import re
from collections.abc import Mapping
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import literal, tagged
from rlkit.errors import UserError
from rlkit.rewards.truth import parse
from rlkit.types import Reward

_LONGEST = 50_000  # characters of an answer that is read


@scorer("logic__zebra*", "zebra_puzzle_dataset")
def score_zebra(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when header and every row of the table in `<answer>` are the truth's, in order, blanks and letter
    case aside.

    parts: cell_accuracy, the share of the truth's cells. With reward.partial_credit the value is the
    share without the first column, whose positions are given away by the header.
    """
    truth = parse(ground_truth, dict, "a zebra puzzle")
    if not _is_table(truth):
        raise UserError("The ground truth of a zebra puzzle needs a header and rows.")
    answer = _value(tagged(response) or "")
    if not isinstance(answer, dict) or not _is_table(answer):
        return Reward.of(False, cell_accuracy=0.0, reason="no table")
    ours, theirs = ([[_cell(c) for c in row] for row in t["rows"]] for t in (answer, truth))
    exact = ours == theirs and list(map(_cell, answer["header"])) == list(map(_cell, truth["header"]))
    share = _share(ours, theirs)
    value = float(exact) if exact else _share([r[1:] for r in ours], [r[1:] for r in theirs])
    return Reward.of(exact, value, cell_accuracy=share)


def _is_table(value: Mapping[str, Any]) -> bool:
    header, rows = value.get("header"), value.get("rows")
    return (
        isinstance(header, list)
        and isinstance(rows, list)
        and bool(rows)
        and all(isinstance(row, list) for row in rows)
    )


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).casefold()


def _share(ours: list[list[str]], theirs: list[list[str]]) -> float:
    """Of the truth's cells, those that the answer has in the same place; 0 for a table of another size."""
    if [len(row) for row in ours] != [len(row) for row in theirs]:
        return 0.0
    cells = [a == b for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)]
    return sum(cells) / len(cells) if cells else 0.0


@scorer("logic__ordering*", "ordering_puzzle_dataset")
def score_ordering(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the list in `<answer>` is the truth, letter case aside; quotes, brackets and numbering may
    be left out, two lists are no answer."""
    truth = [_name(item) for item in parse(ground_truth, list, "an ordering puzzle")]
    if not truth:
        raise UserError("The ground truth of an ordering puzzle is empty.")
    return Reward.of(items(tagged(response) or "") == truth)


@scorer("logic__graph*", "graph_logical_dataset")
def score_graph(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the node in `<answer>` is the truth, letter case, quotes and a full stop aside; a truth that
    is a list is a path, which may be written with arrows."""
    answer = tagged(response) or ""
    truth = items(ground_truth) if isinstance(ground_truth, str) else None
    if isinstance(ground_truth, list):
        truth = [_name(item) for item in ground_truth]
    if not truth or not all(truth):
        raise UserError(f"The ground truth of a graph puzzle must be a name or a path: {ground_truth!r}.")
    return Reward.of(items(answer) == truth)


@scorer("logic__path")
def score_path(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the response, without blanks around it, is the truth."""
    return Reward.of(response.strip() == ground_truth)


def items(text: str) -> list[str] | None:
    """The names in a list, in comparable form: `['a', 'b']`, `[a, b]`, `a, b`, `a -> b`, `1. a\\n2. b`."""
    text = text.strip()
    value = _value(text)
    if isinstance(value, list | tuple):
        return [_name(item) for item in value] if all(isinstance(i, str | int) for i in value) else None
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if re.search(r"[\[\]{}]", text) or len(text) > _LONGEST:
        return None
    parts = [p for p in re.split(r"\s*(?:,|\n|;|-+>|→|⇒|=>)\s*", text) if p.strip()]
    return [_name(re.sub(r"^\s*(?:\d+[.):]|[-*•])\s+", "", part)) for part in parts] or None


def _name(value: Any) -> str:
    return " ".join(str(value).split()).strip("'\"`“”‘’*").rstrip(".").strip("'\"").casefold()


def _value(text: str) -> Any:
    """The JSON or Python value that a text is, or None."""
    text = re.sub(r"^```\w*\s*|\s*```$", "", text.strip())
    readable = len(text) <= _LONGEST and text.startswith(("{", "[", "("))
    return literal(text) if readable else None
