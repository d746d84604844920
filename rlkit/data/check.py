"""The check of training rows: what would break a run, leak an answer or spoil an evaluation."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from rlkit.data import rows
from rlkit.data.exporting import reference_response
from rlkit.data.overlap import copies, near_duplicates
from rlkit.domains import resolve
from rlkit.errors import UserError
from rlkit.models.prompts import control_tokens, encode_chats
from rlkit.types import Reward, Task

CHECKS = {
    "schema": ("error", "a column is missing, empty or of the wrong type"),
    "unrouted": ("error", "no scorer is registered for the data_source"),
    "stringified": ("error", "a message list was turned into a string"),
    "control": ("warning", "the text has a control token of the tokenizer, which is read as text"),
    "overlong": ("error", "the prompt is longer than the window"),
    "self_score": ("error", "the ground truth, as a model spells it, does not score 1"),
    "conflict": ("error", "the same prompt has different ground truths"),
    "held_out": ("error", "the prompt, or nearly its text, is in a held-out set"),
    "leak": ("warning", "the prompt states the answer"),
    "duplicate": ("warning", "the same prompt stands twice"),
    "near_duplicate": ("warning", "the prompt nearly repeats another one"),
    "empty": ("warning", "a file has no rows"),
}
"""Every check with its severity and its meaning."""

_CONTROL = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>"),
)
"""Control tokens of common chat templates, looked for where no tokenizer is given."""


class Finding(NamedTuple):
    """One defect; `row` counts from 0, and is -1 for a finding about a whole file."""

    check: str
    file: str
    row: int
    data_source: str
    detail: str

    @property
    def place(self) -> str:
        return Path(self.file).name + (f", row {self.row}" if self.row >= 0 else "")


@dataclass
class Report:
    """What was found, and the facts that tables and plots show.

    Attributes:
        files, findings: what was read, and what is wrong in it.
        sources, lengths: data_source of every row that is a task, and the length of its prompt: in tokens where a
            tokenizer was given, else in characters.
        ungraded: rows that `score` could not check, since they have no reference answer.
    """

    files: list[str]
    findings: list[Finding] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
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
    def text(self) -> str:
        return "\n".join(message["content"] for message in self.task.prompt)

    def finding(self, check: str, detail: str) -> Finding:
        return Finding(check, self.file, self.number, self.task.data_source, detail)

    def place(self, file: str = "") -> str:
        """Where it is, for a finding in this file."""
        return f"row {self.number}" if self.file == file else f"{self.file}, row {self.number}"


def lint(
    files: Sequence[str | Path],
    *,
    held_out: Sequence[str | Path] = (),
    tokenizer: Any = None,
    max_prompt_length: int | None = None,
    score: bool = False,
    progress: bool = True,
) -> Report:
    """Check the rows of files.

    Args:
        files: parquet or JSON files in verl's columns.
        held_out: files that training rows must not repeat.
        tokenizer: of transformers; counts prompt tokens under its chat template. Without it lengths are in characters.
        max_prompt_length: the window in tokens; needs a tokenizer.
        score: whether to grade every ground truth against itself (slower).

    Raises:
        UserError: a file that cannot be read at all.
    """
    if max_prompt_length and tokenizer is None:
        raise UserError(f"max_prompt_length is {max_prompt_length} tokens without a tokenizer: give one too.")
    held = [_Row(Path(path).name, k, task) for path in held_out for k, task in enumerate(rows.tasks(path))]
    report = Report([str(path) for path in files])
    checked = [row for file in report.files for row in _readable(file, report.findings, progress)]
    control = _CONTROL if tokenizer is None else control_tokens(tokenizer)
    for row in checked:
        report.sources.append(row.task.data_source)
        report.findings += _alone(row, control)
        try:
            size = len(row.text) if tokenizer is None else len(encode_chats(tokenizer, [row.task.prompt])[0])
        except UserError as error:  # of the chat template
            size = 0
            report.findings.append(row.finding("schema", str(error)))
        report.lengths.append(size)
        if max_prompt_length and size > max_prompt_length:
            detail = f"{size} tokens, the window has {max_prompt_length}"
            report.findings.append(row.finding("overlong", detail))
    first: dict[str, _Row] = {}  # row of each problem
    report.findings += _repeated(checked, first)
    report.findings += _held_out(checked, first, held)
    if score:
        report.findings += _self_scores(report, checked, progress)
    report.findings.sort(key=lambda f: (list(CHECKS).index(f.check), f.file, f.row))
    return report


def _readable(file: str, findings: list[Finding], progress: bool) -> Iterator[_Row]:
    """The rows that are tasks; what is wrong with the others goes to the findings."""
    number, content = -1, tqdm(rows.read(file), Path(file).name, unit="row", disable=not progress)
    for number, row in enumerate(content):
        try:
            yield _Row(file, number, rows.to_task(row, "row"))
        except UserError as error:
            said = str(error).removeprefix("row: ")
            check = "stringified" if "turned into a string" in said else "schema"
            findings.append(Finding(check, file, number, str(row.get("data_source")), said))
    if number < 0:
        findings.append(Finding("empty", file, -1, "", "no rows"))


def _alone(row: _Row, control: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with one row by itself."""
    if said := _unrouted(row.task):
        yield row.finding("unrouted", said)
    if names := [name for name in control if name in row.text]:
        yield row.finding("control", f"the prompt has {', '.join(names)}")
    if said := _leak(row.text, row.task.ground_truth):
        yield row.finding("leak", said)


def _unrouted(task: Task) -> str:
    try:
        resolve(task.data_source)
    except UserError as error:
        return str(error).split(" Known:")[0]
    return ""


_STATED = re.compile(r"(?:(?P<open>\\boxed\s*\{|<answer>)|\b(?:answer|solution)\s*(?:is|:|=))\s*[\"'$]?")
_EXAMPLE = re.compile(r"(e\.\s?g\.|for example|such as|like)[^.\n]{0,25}$")


def _leak(text: str, truth: Any) -> str:
    """An answer that the prompt marks as one (other than the format's example, "e.g. \\boxed{A}"), or a long one that
    stands in it word for word."""
    if not isinstance(truth, str) or not (answer := truth.strip().lower()):
        return ""
    lower = text.lower()
    for match in _STATED.finditer(lower) if answer in lower else ():
        end = r"\s*[}<]" if match["open"] else r"(?!\w|\.\w)"
        stated = lower.startswith(answer, match.end()) and re.match(end, lower[match.end() + len(answer) :])
        if stated and not _EXAMPLE.search(lower[: match.start()]):
            return f"the prompt has {match.group()}{truth}"[:80]
    return "the ground truth stands in the prompt" if len(truth) >= 40 and truth in text else ""


def _repeated(checked: Sequence[_Row], first: dict[str, _Row]) -> Iterator[Finding]:
    """Prompts that repeat an earlier one, or nearly; the first row of each problem goes to `first`. Where the truths
    of equal prompts differ, the later row's grader says whether in spelling alone."""
    repeats = [
        (row, earlier) for row in checked if (earlier := first.setdefault(row.task.problem, row)) is not row
    ]
    answers = [
        (
            row.task,
            reference_response(replace(row.task, ground_truth=earlier.task.ground_truth), worked=False) or "",
        )
        for row, earlier in repeats
        if row.task.ground_truth != earlier.task.ground_truth
    ]
    rewards = iter(_graded(answers))
    for row, earlier in repeats:
        ours, theirs, place = row.task.ground_truth, earlier.task.ground_truth, earlier.place(row.file)
        if ours == theirs:
            yield row.finding("duplicate", f"the same as {place}")
        elif next(rewards).value == 1:
            yield row.finding("duplicate", f"the same as {place}, its truth spelled otherwise")
        else:
            said = f"ground truth {json.dumps(ours)[:60]}, but {json.dumps(theirs)[:60]} in {place}"
            yield row.finding("conflict", said)
    distinct = list(first.values())
    for later, near in near_duplicates([row.text for row in distinct]).items():
        row = distinct[later]
        yield row.finding("near_duplicate", f"nearly {distinct[near].place(row.file)}")


def _held_out(checked: Sequence[_Row], first: dict[str, _Row], held: Sequence[_Row]) -> Iterator[Finding]:
    """Prompts that are held-out ones, or nearly."""
    places = {row.task.problem: row.place() for row in held}
    for row in checked:
        if place := places.get(row.task.problem):
            yield row.finding("held_out", f"the prompt of {place}")
    others = [row for problem, row in first.items() if problem not in places]
    found = copies([row.text for row in others], [row.text for row in held])
    for k, (place, share) in found.items():
        yield others[k].finding("held_out", f"has {share:.0%} of the n-grams of {held[place].place()}")


def _self_scores(report: Report, checked: Sequence[_Row], progress: bool) -> Iterator[Finding]:
    """Every ground truth as an answer to its own row."""
    routed = [row for row in checked if not _unrouted(row.task)]
    given = [(row, reference_response(row.task, worked=False)) for row in routed]
    answers = [(row, answer) for row, answer in given if answer is not None]
    report.ungraded = len(given) - len(answers)
    rewards = _graded([(row.task, answer) for row, answer in answers], progress)
    for (row, answer), reward in zip(answers, rewards, strict=True):
        if reward.value != 1:
            yield row.finding("self_score", (reward.error or f"{answer!r} scores {reward.value:g}")[:200])


def _graded(answers: Sequence[tuple[Task, str]], progress: bool = False) -> list[Reward]:
    from rlkit.config import RewardConfig
    from rlkit.rewards import Router

    if not answers:
        return []
    with Router(RewardConfig()) as router:
        return router.grade(answers, progress=progress)
