"""The check of training rows: what would break a run or spoil an evaluation."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from rlkit.data import rows
from rlkit.data.exporting import as_spelled, reference_response
from rlkit.domains import resolve
from rlkit.errors import UserError
from rlkit.types import Task

CHECKS = {
    "schema": ("error", "no rows, or a column is missing, empty or of the wrong type"),
    "unrouted": ("error", "no scorer is registered for the data_source"),
    "self_score": ("error", "the ground truth, as a model spells it, does not score 1"),
    "conflict": ("error", "the same prompt has different ground truths"),
    "held_out": ("error", "the prompt is in a held-out set"),
    "duplicate": ("warning", "the same prompt stands twice"),
}
"""Every check with its severity and its meaning."""


class Finding(NamedTuple):
    """One defect; `row` counts from 0, and is -1 for a finding about a whole file."""

    check: str
    file: str
    row: int
    data_source: str
    detail: str


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


class _Row(NamedTuple):
    file: str
    number: int
    task: Task

    @property
    def place(self) -> str:
        return f"{Path(self.file).name}, row {self.number}"

    def finding(self, check: str, detail: str) -> Finding:
        return Finding(check, self.file, self.number, self.task.data_source, detail)


def lint(files: Sequence[str | Path], *, held_out: Sequence[str | Path] = (), score: bool = False) -> Report:
    """Check the rows of files.

    Args:
        files: parquet or JSON-lines files in verl's columns.
        held_out: files that training rows must not repeat.
        score: whether to grade every ground truth against itself (slower).

    Raises:
        UserError: a file that cannot be read at all.
    """
    held = {
        task.problem: f"{Path(path).name}, row {k}"
        for path in held_out
        for k, task in enumerate(rows.tasks(path))
    }
    report = Report()
    checked = [row for file in files for row in _readable(str(file), report.findings)]
    report.rows = len(checked)
    first: dict[str, _Row] = {}  # row of each problem
    for row in checked:
        try:
            resolve(row.task.data_source)
        except UserError as error:
            report.findings.append(row.finding("unrouted", str(error).split(" Known:")[0]))
        if place := held.get(row.task.problem):
            report.findings.append(row.finding("held_out", f"the prompt of {place}"))
        earlier = first.setdefault(row.task.problem, row)
        if _spelled(row.task) != _spelled(earlier.task):
            ours, theirs = (json.dumps(r.task.ground_truth)[:60] for r in (row, earlier))
            said = f"ground truth {ours}, but {theirs} in {earlier.place}"
            report.findings.append(row.finding("conflict", said))
        elif row is not earlier:
            report.findings.append(row.finding("duplicate", f"the same as {earlier.place}"))
    if score:
        report.findings += _self_scores(report, checked)
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


def _spelled(task: Task) -> Any:
    truth = task.ground_truth
    return as_spelled(truth) if isinstance(truth, str) else truth


def _self_scores(report: Report, checked: Sequence[_Row]) -> Iterator[Finding]:
    """Every ground truth as an answer to its own row."""
    from rlkit.rewards import Router

    unrouted = {(f.file, f.row) for f in report.findings if f.check == "unrouted"}
    given = [(r, reference_response(r.task)) for r in checked if (r.file, r.number) not in unrouted]
    answers = [(row, answer) for row, answer in given if answer is not None]
    report.ungraded = len(given) - len(answers)
    with Router() as router:
        rewards = router.grade([(row.task, answer) for row, answer in answers], progress=True)
    for (row, answer), reward in zip(answers, rewards, strict=True):
        if reward.value != 1:
            yield row.finding("self_score", (reward.error or f"{answer!r} scores {reward.value:g}")[:200])
