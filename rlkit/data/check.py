"""The check of training rows: what would break a run or spoil an evaluation."""

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from rlkit.data import rows
from rlkit.data.exporting import as_spelled, reference_response
from rlkit.domains import resolve
from rlkit.errors import UserError
from rlkit.models.prompts import control_tokens
from rlkit.types import Task

CHECKS = {
    "schema": ("error", "no rows, or a column is missing, empty or of the wrong type"),
    "unrouted": ("error", "no scorer is registered for the data_source"),
    "control": ("warning", "the text has a control token of the tokenizer, which is read as text"),
    "self_score": ("error", "the ground truth, as a model spells it, does not score 1"),
    "conflict": ("error", "the same prompt has different ground truths"),
    "held_out": ("error", "the prompt, or nearly its text, is in a held-out set"),
    "duplicate": ("warning", "the same prompt stands twice"),
    "near_duplicate": ("warning", "the prompt nearly repeats another one"),
}
"""Every check with its severity and its meaning."""
ALIKE = 0.7
"""Least share of a text's own n-grams that a near copy of it has."""
LEAST_OWN, LEAST_OWN_SHARE = 8, 0.25
"""Own n-grams that a text must have to be looked for, and their least share of all its n-grams."""


class Finding(NamedTuple):
    """One defect; `row` counts from 0, and is -1 for a finding about a whole file."""

    check: str
    file: str
    row: int
    data_source: str
    detail: str


class _Row(NamedTuple):
    file: str
    number: int
    task: Task

    @property
    def text(self) -> str:
        return "\n".join(message["content"] for message in self.task.prompt)

    @property
    def place(self) -> str:
        return f"{Path(self.file).name}, row {self.number}"


@dataclass
class Report:
    """What was found.

    Attributes:
        rows: how many rows are tasks.
        ungraded: rows that `score` could not check, since they have no reference answer.
    """

    rows: int = 0
    findings: list[Finding] = field(default_factory=list)
    ungraded: int = 0

    @property
    def exit_status(self) -> int:
        """0: clean. 1: warnings. 2: errors."""
        return max((2 if CHECKS[f.check][0] == "error" else 1 for f in self.findings), default=0)

    def add(self, row: _Row, check: str, detail: str) -> None:
        self.findings.append(Finding(check, row.file, row.number, row.task.data_source, detail))


def lint(
    files: Sequence[str | Path],
    *,
    held_out: Sequence[str | Path] = (),
    tokenizer: Any = None,
    score: bool = False,
) -> Report:
    """Check the rows of files.

    Args:
        files: parquet or JSON-lines files in verl's columns.
        held_out: files that training rows must not repeat.
        tokenizer: of transformers, whose control tokens are looked for.
        score: whether to grade every ground truth against itself (slower).

    Raises:
        UserError: a file that cannot be read at all.
    """
    held = [_Row(str(path), k, task) for path in held_out for k, task in enumerate(rows.tasks(path))]
    control = control_tokens(tokenizer) if tokenizer else []
    report, first = Report(), dict[str, _Row]()  # row of each problem
    checked = [row for file in files for row in _readable(str(file), report.findings)]
    report.rows = len(checked)
    for row in checked:
        try:
            resolve(row.task.data_source)
        except UserError as error:
            report.add(row, "unrouted", str(error).split(" Known:")[0])
        if names := [name for name in control if name in row.text]:
            report.add(row, "control", f"the prompt has {', '.join(names)}")
        earlier = first.setdefault(row.task.problem, row)
        if _spelled(row.task) != _spelled(earlier.task):
            ours, theirs = (json.dumps(r.task.ground_truth)[:60] for r in (row, earlier))
            report.add(row, "conflict", f"ground truth {ours}, but {theirs} in {earlier.place}")
        elif row is not earlier:
            report.add(row, "duplicate", f"the same as {earlier.place}")
    _compare(report, checked, [*first.values()], held)
    if score:
        _self_scores(report, checked)
    report.findings.sort(key=lambda f: (list(CHECKS).index(f.check), f.file, f.row))
    return report


def _readable(file: str, findings: list[Finding]) -> Iterator[_Row]:
    """The rows that are tasks; what is wrong with the others goes to the findings."""
    number = -1
    for number, row in enumerate(tqdm(rows.read(file), Path(file).name, unit="row")):
        try:
            yield _Row(file, number, rows.to_task(row, "row"))
        except UserError as error:
            said = str(error).removeprefix("row: ")
            findings.append(Finding("schema", file, number, str(row.get("data_source")), said))
    if number < 0:
        findings.append(Finding("schema", file, -1, "", "no rows"))


def _compare(report: Report, checked: Sequence[_Row], first: Sequence[_Row], held: Sequence[_Row]) -> None:
    """Prompts that are held-out ones, or nearly, and those that nearly repeat an earlier one."""
    places = {row.task.problem: row.place for row in held}
    for row in checked:
        if place := places.get(row.task.problem):
            report.add(row, "held_out", f"the prompt of {place}")
    new = [row for row in first if row.task.problem not in places]
    for check, others in (("held_out", held), ("near_duplicate", new)):
        for k, other in _near([row.text for row in new], [row.text for row in others], others is new).items():
            report.add(new[k], check, f"nearly {others[other].place}")


def _near(texts: Sequence[str], others: Sequence[str], earlier: bool) -> dict[int, int]:
    """Of each text that has most own n-grams of another one (where `earlier`, of one before it), and all its numbers in
    their order, the nearest such. N-grams of more than a few texts are left out: they are a template's."""
    own, sizes = _own_ngrams(texts if earlier else [*texts, *others], 5)
    mine, theirs, sizes = (
        own[: len(texts)],
        own[own.shape[0] - len(others) :],
        sizes[len(sizes) - len(others) :],
    )
    totals = theirs.sum(axis=1)
    comparable = totals >= np.maximum(LEAST_OWN, LEAST_OWN_SHARE * sizes)
    numbers, asked = ([re.findall(r"\d+", text) for text in some] for some in (texts, others))
    nearest: dict[int, int] = {}
    for start in range(0, len(texts), 1000):
        pairs = (mine[start : start + 1000] @ theirs.T).tocoo()
        text, share = pairs.row + start, pairs.data / totals[pairs.col]
        alike = comparable[pairs.col] & (share >= ALIKE) & ((pairs.col < text) | (not earlier))
        for _, k, other in sorted(zip(-share[alike], text[alike], pairs.col[alike], strict=True)):
            rest = iter(numbers[k])
            if k not in nearest and all(number in rest for number in asked[other]):
                nearest[int(k)] = int(other)
    return nearest


def _own_ngrams(texts: Sequence[str], n: int) -> tuple[Any, np.ndarray]:
    """(texts, n-grams) sparse, 1 where a text has one of those that only few texts have, and (texts,) the number of all
    distinct n-grams of each, of words, numbers and symbols; a text shorter than n is one."""
    from scipy.sparse import csr_array

    grams = []
    for text in texts:
        words = re.findall(r"\d+|[^\W\d_]+|[^\w\s]|_", text.lower())
        starts = range(max(len(words) - n + 1, bool(words)))
        hashed = {zlib.crc32(" ".join(words[k : k + n]).encode()) for k in starts}
        grams.append(np.fromiter(hashed, np.uint32, len(hashed)))
    sizes = np.array([len(some) for some in grams], int)
    everything = np.concatenate([np.zeros(0, np.uint32), *grams])
    _, columns, counts = np.unique(everything, return_inverse=True, return_counts=True)
    own = counts[columns] <= min(10, max(2, len(texts) // 10))
    places = np.repeat(np.arange(len(texts)), sizes)[own], columns[own]
    return csr_array((np.ones(len(places[0]), int), places), shape=(len(texts), len(counts))), sizes


def _spelled(task: Task) -> Any:
    truth = task.ground_truth
    return as_spelled(truth) if isinstance(truth, str) else truth


def _self_scores(report: Report, checked: Sequence[_Row]) -> None:
    """Grade every ground truth as an answer to its own row."""
    from rlkit.rewards import Router

    unrouted = {(f.file, f.row) for f in report.findings if f.check == "unrouted"}
    given = [(r, reference_response(r.task)) for r in checked if (r.file, r.number) not in unrouted]
    answers = [(row, answer) for row, answer in given if answer is not None]
    report.ungraded = len(given) - len(answers)
    with Router() as router:
        rewards = router.grade([(row.task, answer) for row, answer in answers], progress=True)
    for (row, answer), reward in zip(answers, rewards, strict=True):
        if reward.value != 1:
            report.add(row, "self_score", (reward.error or f"{answer!r} scores {reward.value:g}")[:200])
