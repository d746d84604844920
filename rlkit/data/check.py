"""The linter of training rows: what would break a run, leak an answer or spoil an evaluation."""

import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from rlkit.data import rows
from rlkit.data.overlap import HeldOut, Tokens, common, near_duplicates
from rlkit.domains import resolve, sources
from rlkit.errors import UserError
from rlkit.models.prompts import control_tokens, encode_chats
from rlkit.types import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Severity = Literal["error", "warning"]

CHECKS: dict[str, tuple[Severity, str]] = {
    "schema": ("error", "a column is missing, empty or of the wrong type"),
    "unrouted": ("error", "no scorer is registered for the data_source"),
    "stringified": ("error", "a message list was turned into a string"),
    "control": ("warning", "the text has a control token of the tokenizer, which is read as text"),
    "overlong": ("error", "the prompt is longer than the window"),
    "self_score": ("error", "the ground truth does not score 1 against itself"),
    "spelling": ("error", "the ground truth is not met by itself as a model spells it"),
    "conflict": ("error", "the same prompt has different ground truths"),
    "held_out": ("error", "the prompt, or nearly its text, is in a held-out set"),
    "leak": ("warning", "the prompt states the answer"),
    "duplicate": ("warning", "the same prompt stands twice"),
    "near_duplicate": ("warning", "the prompt nearly repeats another one"),
    "held_out_numbers": ("warning", "a held-out problem with other numbers (generated data_sources apart)"),
    "imbalance": ("warning", "one answer is right for most rows of a data_source"),
    "empty": ("warning", "a file has no rows"),
}
"""Every check with its severity and its meaning."""

_CONTROL = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>"),
)
"""Control tokens of common chat templates, looked for where no tokenizer is given."""
_MARKS = (
    (re.compile(r"\\boxed\s*\{\s*"), re.compile(r"\s*\}")),
    (re.compile(r"<answer>\s*", re.IGNORECASE), re.compile(r"\s*<")),
    (re.compile(r"\b(?:answer|solution)\s*(?:is|:|=)\s*[\"'$]?", re.IGNORECASE), re.compile(r"(?!\w|\.\w)")),
)
"""What stands before a stated answer, and what after it."""
_EXAMPLE = re.compile(r"(e\.\s?g\.|for example|such as|like)[^.\n]{0,25}$", re.IGNORECASE)


class Finding(NamedTuple):
    """One defect; `row` counts from 0, and is -1 for a finding about a whole data_source."""

    check: str
    file: str
    row: int
    data_source: str
    detail: str

    @property
    def severity(self) -> Severity:
        return CHECKS[self.check][0]


@dataclass
class Report:
    """What the linter found, and the facts that the tables and plots of the report show."""

    findings: list[Finding] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """data_source of every row."""
    lengths: list[int] = field(default_factory=list)
    """Length of every row's prompt, in tokens where a tokenizer was given, else in characters."""
    length_unit: str = "characters"
    ungraded: int = 0
    """Rows that `score` could not check: no reference answer."""

    @property
    def exit_status(self) -> int:
        """0: clean. 1: warnings. 2: errors."""
        severities = {f.severity for f in self.findings}
        return 2 if "error" in severities else int("warning" in severities)

    def counts(self) -> Counter[str]:
        return Counter(f.check for f in self.findings)


def lint(
    files: Sequence[str | Path],
    *,
    held_out: Sequence[str | Path] = (),
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    max_prompt_length: int | None = None,
    score: bool = False,
    progress: bool = True,
) -> Report:
    """Check the rows of files.

    Args:
        files: parquet or JSON files in verl's columns.
        held_out: files that training rows must not repeat.
        tokenizer: counts prompt tokens under its chat template; without it lengths are in characters.
        max_prompt_length: the window in tokens; needs a tokenizer.
        score: whether to grade every ground truth against itself (slower).

    Raises:
        UserError: a file that cannot be read at all.
    """
    if max_prompt_length and tokenizer is None:
        raise UserError(f"max_prompt_length is {max_prompt_length} tokens without a tokenizer: give one too.")
    report = Report(files=[str(p) for p in files], length_unit="tokens" if tokenizer else "characters")
    control = control_tokens(tokenizer) if tokenizer is not None else _CONTROL
    linter = _Linter(report, [t for p in held_out for t in rows.tasks(p)], control)
    kept: list[tuple[str, int, Task]] = []
    for path in files:
        row = -1
        total, name = rows.count(path), Path(path).name
        for row, content in tqdm(rows.read(path), name, total, unit="row", disable=not progress):
            task = linter.row(str(path), row, content)
            if task is not None:
                linter.length(str(path), row, task, tokenizer, max_prompt_length)
                kept += [(str(path), row, task)] if score else []
        if row < 0:
            linter.find("empty", str(path), -1, "", "no rows")
    linter.finish()
    if score:
        _self_scores(report, kept, progress)
    report.findings.sort(key=lambda f: (list(CHECKS).index(f.check), f.file, f.row))
    return report


class _Linter:
    """Row-by-row checks, and the memory that checks between rows need."""

    def __init__(self, report: Report, held_out: Sequence[Task], control: Sequence[str]) -> None:
        self.report, self.control = report, control
        self.places: list[tuple[str, int, str]] = []  # of every compared row: file, row, data_source
        self.grams: list[np.ndarray] = []
        self.numbers: list[int] = []
        self.seen: dict[str, tuple[str, int, str]] = {}  # first of each problem: file, row, truth
        self.answers: dict[str, Counter[str]] = {}
        self.held = {t.problem for t in held_out}
        texts = [Tokens(_text(t)) for t in held_out]
        self.exact, self.masked = HeldOut(texts, 5, 0.7), HeldOut(texts, 8, 0.8, mask=True)

    def find(self, check: str, file: str, row: int, data_source: str, detail: str) -> None:
        self.report.findings.append(Finding(check, file, row, data_source, detail))

    def row(self, file: str, row: int, content: Mapping[str, Any]) -> Task | None:
        """All checks of one row; its task when it is one."""
        source, prompt = str(content.get("data_source")), content.get("prompt")
        if isinstance(prompt, str) and rows.is_stringified(prompt):
            self.find("stringified", file, row, source, f"prompt is the string {prompt[:60]!r}")
            return None
        try:
            task = rows.to_task(content, "row")
        except UserError as error:
            self.find("schema", file, row, source, str(error).removeprefix("row: "))
            return None
        self.report.sources.append(task.data_source)
        for check, test in (("unrouted", _unrouted), ("stringified", _stringified), ("leak", _leak)):
            detail = test(task)
            if detail:
                self.find(check, file, row, source, detail)
        text = _text(task)
        if names := [name for name in self.control if name in text]:
            self.find("control", file, row, source, f"the prompt has {', '.join(names)}")
        self._compare(file, row, task)
        return task

    def _compare(self, file: str, row: int, task: Task) -> None:
        """Against the rows before and the held-out sets."""
        source, truth = task.data_source, json.dumps(task.ground_truth, sort_keys=True)
        self.answers.setdefault(source, Counter())[truth] += 1
        first_file, first_row, first = self.seen.setdefault(task.problem, (file, row, truth))
        held = task.problem in self.held
        if held:
            self.find("held_out", file, row, source, "the same prompt is held out")
        if (first_file, first_row) != (file, row):
            where = f"{first_file}, row {first_row}"
            if first == truth:
                self.find("duplicate", file, row, source, f"the same as {where}")
            else:
                self.find(
                    "conflict", file, row, source, f"ground truth {truth[:60]}, but {first[:60]} in {where}"
                )
            return
        tokens = Tokens(_text(task))
        if not held:
            self.exact.add(len(self.places), tokens)
            self.masked.add(len(self.places), tokens)
        self.places.append((file, row, source))
        self.grams.append(tokens.grams(3))
        self.numbers.append(zlib.crc32(tokens.numbers().tobytes()))

    def length(
        self, file: str, row: int, task: Task, tokenizer: "PreTrainedTokenizerBase | None", limit: int | None
    ) -> None:
        if tokenizer is None:
            self.report.lengths.append(len(_text(task)))
            return
        try:
            size = len(encode_chats(tokenizer, [task.prompt])[0])
        except UserError as error:  # of the chat template
            self.find("schema", file, row, task.data_source, str(error))
            size = 0
        self.report.lengths.append(size)
        if limit and size > limit:
            self.find("overlong", file, row, task.data_source, f"{size} tokens, the window has {limit}")

    def finish(self) -> None:
        """Checks that need all rows."""
        template = common(self.grams)
        own = [np.setdiff1d(g, template, assume_unique=True) for g in self.grams]
        for row, earlier in near_duplicates(own, self.numbers):
            self.find(
                "near_duplicate",
                *self.places[row],
                f"nearly {self.places[earlier][0]}, row {self.places[earlier][1]}",
            )
        copies = set()
        for row, text, share in self.exact.found():
            copies.add(row)
            self.find(
                "held_out", *self.places[row], f"has {share:.0%} of the n-grams of held-out task {text}"
            )
        for row, text, share in self.masked.found():
            if row not in copies and not _generated(self.places[row][2]):
                detail = f"has {share:.0%} of the n-grams of held-out task {text}, numbers masked"
                self.find("held_out_numbers", *self.places[row], detail)
        for source, answers in self.answers.items():
            answer, n = answers.most_common(1)[0]
            if answers.total() >= 50 and n > 0.8 * answers.total():
                share = f"{answer[:60]} is right for {n} of {answers.total()} rows"
                self.find("imbalance", self.report.files[0], -1, source, share)


def _text(task: Task) -> str:
    return "\n".join(m["content"] for m in task.prompt)


def _unrouted(task: Task) -> str | None:
    return _no_scorer(task.data_source)


@cache
def _generated(data_source: str) -> bool:
    """Whether one of rlkit's generators makes it."""
    patterns = [pattern for kind in sources for pattern in sources[kind].makes]
    return any(fnmatchcase(data_source, pattern) for pattern in patterns)


@cache
def _no_scorer(data_source: str) -> str | None:
    try:
        resolve(data_source)
    except UserError as error:
        return str(error).split(" Known:")[0]
    return None


def _stringified(task: Task) -> str | None:
    bad = next((m["content"] for m in task.prompt if rows.is_stringified(m["content"])), None)
    return f"content begins {bad[:40]!r}" if bad else None


def _leak(task: Task) -> str | None:
    """An answer that the prompt marks as one, or a long one that stands in it word for word; not the
    format's example ("e.g. \\boxed{A}")."""
    truth, text = task.ground_truth, _text(task)
    if not isinstance(truth, str) or not truth.strip():
        return None
    answer = truth.strip().lower()
    for mark, end in _MARKS:
        for match in mark.finditer(text):
            rest = text[match.end() : match.end() + len(answer) + 3].lower()
            stated = rest.startswith(answer) and end.match(rest, len(answer))
            if stated and not _EXAMPLE.search(text[: match.start()]):
                return f"the prompt has {match.group()}{truth}"[:80]
    return "the ground truth stands in the prompt" if len(truth) >= 40 and truth in text else None


def _self_scores(report: Report, kept: list[tuple[str, int, Task]], progress: bool) -> None:
    """Grade every ground truth as an answer to its own row, and as a model would spell it."""
    from rlkit.config import RewardConfig
    from rlkit.data.reference import reference_response, spelled_by_a_model
    from rlkit.rewards import Router

    graded: list[tuple[str, str, int, Task, str]] = []
    for file, row, task in kept:
        if _unrouted(task):
            continue
        answer = reference_response(task, worked=False)
        report.ungraded += answer is None
        if answer is not None:
            graded.append(("self_score", file, row, task, answer))
        spelled = spelled_by_a_model(task)
        if spelled is not None and spelled != answer:
            graded.append(("spelling", file, row, task, spelled))
    with Router(RewardConfig()) as router:
        rewards = router.grade([(task, text) for *_, task, text in graded], progress=progress)
    for (check, file, row, task, text), reward in zip(graded, rewards, strict=True):
        if reward.value != 1:
            why = reward.error or f"{text!r} scores {reward.value:g}"
            report.findings.append(Finding(check, file, row, task.data_source, why[:200]))
