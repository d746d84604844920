"""The check of training rows: what would break a run or spoil an evaluation."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from rlkit.data import rows
from rlkit.domains import resolve
from rlkit.errors import UserError
from rlkit.models.prompts import control_tokens
from rlkit.rewards import Router
from rlkit.types import Task

CHECKS = {
    "schema": ("error", "no rows, or a column is missing, empty or of the wrong type"),
    "unrouted": ("error", "no scorer is registered for the data_source"),
    "control": ("warning", "the text has a control token of the tokenizer, which is read as text"),
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


class _Row(NamedTuple):
    file: str
    number: int
    task: Task

    @property
    def place(self) -> str:
        return f"{Path(self.file).name}, row {self.number}"

    def finding(self, check: str, detail: str) -> Finding:
        return Finding(check, self.file, self.number, self.task.data_source, detail)


class Report(NamedTuple):
    """What was found: `rows` that are tasks, and how many of them, `ungraded`, have no reference answer to score."""

    rows: int
    findings: list[Finding]
    ungraded: int

    @property
    def exit_status(self) -> int:
        """0: clean. 1: warnings. 2: errors."""
        return max((2 if CHECKS[f.check][0] == "error" else 1 for f in self.findings), default=0)


def lint(
    files: Sequence[str | Path], *, held_out: Sequence[str | Path] = (), tokenizer: Any = None, score: bool = False
) -> Report:  # fmt: skip
    """Check the rows of parquet or JSON-lines files in verl's columns, which must not repeat those of the `held_out`
    files or have control tokens of `tokenizer` (of transformers); `score` grades every ground truth against itself.
    Raises UserError: a file that cannot be read at all."""
    found: list[Finding] = []
    checked = [row for file in files for row in _readable(str(file), found)]
    held = ((Path(path).name, k, task.problem) for path in held_out for k, task in enumerate(rows.tasks(path)))
    places = {problem: f"{name}, row {k}" for name, k, problem in held}
    control, first = control_tokens(tokenizer) if tokenizer else [], dict[str, _Row]()  # row of each problem
    routed = []
    for row in checked:
        try:
            resolve(row.task.data_source)
            routed.append(row)
        except UserError as error:
            found.append(row.finding("unrouted", str(error).split(" Known:")[0]))
        text = "\n".join(message["content"] for message in row.task.prompt)
        if names := [name for name in control if name in text]:
            found.append(row.finding("control", f"the prompt has {', '.join(names)}"))
        earlier = first.setdefault(row.task.problem, row)
        if as_spelled(row.task.ground_truth) != as_spelled(earlier.task.ground_truth):
            ours, theirs = (json.dumps(r.task.ground_truth)[:60] for r in (row, earlier))
            found.append(row.finding("conflict", f"ground truth {ours}, but {theirs} in {earlier.place}"))
        elif row is not earlier:
            found.append(row.finding("duplicate", f"the same as {earlier.place}"))
        if place := places.get(row.task.problem):
            found.append(row.finding("held_out", f"the prompt of {place}"))
    ungraded = _self_scores(routed, found) if score else 0
    found.sort(key=lambda f: (list(CHECKS).index(f.check), f.file, f.row))
    return Report(len(checked), found, ungraded)


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


def _self_scores(routed: Sequence[_Row], findings: list[Finding]) -> int:
    """Grade every ground truth as an answer to its own row; the number of those that have none to grade."""
    answers = [(row, answer) for row in routed if (answer := reference_response(row.task)) is not None]
    with Router() as router:
        rewards = router.grade([(row.task, answer) for row, answer in answers], progress=True)
    for (row, answer), reward in zip(answers, rewards, strict=True):
        if reward.value != 1:
            said = reward.error or f"{answer!r} scores {reward.value:g}"
            findings.append(row.finding("self_score", said[:200]))
    return len(routed) - len(answers)


_TAGGED = ("simulation__arcagi", "simulation__barc", "logic__", "reasoning_gym")


def reference_response(task: Task) -> str | None:
    """The ground truth as a model spells it, in the format that the prompt asks for. None for tests of a program
    without a reference solution."""
    info, truth = task.extra_info, task.ground_truth
    if task.ability == "codegen" or task.data_source.startswith("codegen"):
        code = info.get("reference") or info.get("solution")
        program = code if isinstance(code, str) and code.strip() else None
        return program if program is None or "```" in program else f"```python\n{program}\n```"
    text, prompt = truth if isinstance(truth, str) else json.dumps(truth), task.prompt[-1]["content"]
    if task.data_source.startswith("simulation__codeio"):
        return f"```json\n{{{text}}}\n```"
    if "<answer>" in prompt and task.data_source.startswith(_TAGGED):
        return f"<answer> {text} </answer>"
    return rf"\boxed{{{as_spelled(text)}}}" if "\\boxed" in prompt else text


def as_spelled(truth: Any) -> Any:
    """A text without doubled backslashes (apart from those that end a line of a matrix), the reasoning of GSM8K's
    answer column, a box of its own, and dollar signs around; another value as it is."""
    if not isinstance(truth, str):
        return truth
    text = truth.rpartition("####")[2].strip()
    if "\\begin{" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z{}%$,;!()\[\]])", r"\\", text)
    if match := re.fullmatch(r"(?:\\\(|\$)?\s*\\boxed\s*\{(.*)\}\s*(?:\\\)|\$)?", text, re.DOTALL):
        text = match[1]
    return match[1].strip() if (match := re.fullmatch(r"\$([^$]+)\$", text)) else text
