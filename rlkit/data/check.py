"""The linter of training rows: what would break a run, leak an answer or spoil an evaluation."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tqdm.auto import tqdm

from rlkit.data import rows
from rlkit.data.overlap import copies, repeats
from rlkit.domains import resolve, sources
from rlkit.errors import UserError
from rlkit.models.prompts import control_tokens, encode_chats
from rlkit.types import Reward, Task

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

AT_ONCE = 1024
"""Prompts whose tokens are counted together."""
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

    def find(self, check: str, file: str, row: int, data_source: str, detail: str) -> None:
        self.findings.append(Finding(check, file, row, data_source, detail))

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
    linter = _Linter(report, held_out, tokenizer, max_prompt_length)
    kept: list[_Row] = []
    for path in files:
        number = -1
        total, name = rows.count(path), Path(path).name
        for number, content in tqdm(rows.read(path), name, total, unit="row", disable=not progress):
            row = linter.row(str(path), number, content)
            kept += [row] if score and row else []
        if number < 0:
            report.find("empty", str(path), -1, "", "no rows")
    linter.finish()
    if score:
        _self_scores(report, kept, progress)
    report.findings.sort(key=lambda f: (list(CHECKS).index(f.check), f.file, f.row))
    return report


class _Row(NamedTuple):
    file: str
    number: int
    task: Task

    def beside(self, other: "_Row") -> str:
        """Where it is, in a finding of the other row."""
        return f"row {self.number}" if self.file == other.file else f"{self.file}, row {self.number}"


class _Linter:
    """Row-by-row checks, and the memory that checks between rows need."""

    def __init__(
        self,
        report: Report,
        held_out: Sequence[str | Path],
        tokenizer: "PreTrainedTokenizerBase | None",
        limit: int | None,
    ) -> None:
        self.report, self.tokenizer, self.limit = report, tokenizer, limit
        self.control = control_tokens(tokenizer) if tokenizer is not None else _CONTROL
        held = [(f"{Path(p).name}, row {k}", task) for p in held_out for k, task in enumerate(rows.tasks(p))]
        self.held = {task.problem: place for place, task in held}
        self.held_places = [place for place, _ in held]
        self.held_texts = [_text(task) for _, task in held]
        self.first: dict[str, _Row] = {}  # row of each problem, without the problem
        self.texts: dict[str, str] = {}
        self.differing: list[tuple[_Row, _Row]] = []  # equal prompts, other truths
        self.answers: dict[str, Counter[str]] = {}
        self.unmeasured: list[_Row] = []

    def row(self, file: str, number: int, content: Mapping[str, Any]) -> _Row | None:
        """All checks of one row; what it is when it is a task."""
        source, prompt = str(content.get("data_source")), content.get("prompt")
        if isinstance(prompt, str) and rows.is_stringified(prompt):
            self.report.find("stringified", file, number, source, f"prompt is the string {prompt[:60]!r}")
            return None
        try:
            task = rows.to_task(content, "row")
        except UserError as error:
            self.report.find("schema", file, number, source, str(error).removeprefix("row: "))
            return None
        row = _Row(file, number, task)
        self.report.sources.append(task.data_source)
        for check, test in (("unrouted", _unrouted), ("stringified", _stringified), ("leak", _leak)):
            if detail := test(task):
                self._find(check, row, detail)
        text = _text(task)
        if names := [name for name in self.control if name in text]:
            self._find("control", row, f"the prompt has {', '.join(names)}")
        if task.problem in self.held:
            self._find("held_out", row, f"the prompt of {self.held[task.problem]}")
        truth = json.dumps(task.ground_truth, sort_keys=True)
        self.answers.setdefault(task.data_source, Counter())[truth] += 1
        slim = _Row(file, number, replace(task, prompt=(), extra_info={}))
        first = self.first.setdefault(task.problem, slim)
        if first is slim:
            self.texts[task.problem] = text
        elif first.task.ground_truth == task.ground_truth:
            self._find("duplicate", row, f"the same as {first.beside(row)}")
        else:
            self.differing.append((first, row))
        self.unmeasured.append(row)
        if len(self.unmeasured) == AT_ONCE:
            self._measure()
        return row

    def _find(self, check: str, row: _Row, detail: str) -> None:
        self.report.find(check, row.file, row.number, row.task.data_source, detail)

    def _measure(self) -> None:
        """Lengths of the prompts since the last call."""
        part, self.unmeasured = self.unmeasured, []
        for row, size in zip(part, self._lengths(part), strict=True):
            self.report.lengths.append(size)
            if self.limit and size > self.limit:
                self._find("overlong", row, f"{size} tokens, the window has {self.limit}")

    def _lengths(self, part: Sequence[_Row]) -> list[int]:
        if self.tokenizer is None:
            return [len(_text(row.task)) for row in part]
        try:
            return list(map(len, encode_chats(self.tokenizer, [row.task.prompt for row in part])))
        except UserError as error:  # of the chat template, for one of them
            if len(part) > 1:
                return [size for row in part for size in self._lengths([row])]
            self._find("schema", part[0], str(error))
            return [0]

    def finish(self) -> None:
        """Checks that need all rows."""
        self._measure()
        self._equal_prompts()
        compared, texts = list(self.first.values()), list(self.texts.values())
        for later, earlier in repeats(texts):
            self._find(
                "near_duplicate", compared[later], f"nearly {compared[earlier].beside(compared[later])}"
            )
        fresh = [k for k, problem in enumerate(self.first) if problem not in self.held]
        compared, texts = [compared[k] for k in fresh], [texts[k] for k in fresh]
        found = set()
        for k, text, share in copies(texts, self.held_texts, 5, 0.7):
            found.add(k)
            self._find("held_out", compared[k], f"has {share:.0%} of the n-grams of {self.held_places[text]}")
        for k, text, share in copies(texts, self.held_texts, 8, 0.8, mask=True):
            if k not in found and not _generated(compared[k].task.data_source):
                detail = f"has {share:.0%} of the n-grams of {self.held_places[text]}, numbers masked"
                self._find("held_out_numbers", compared[k], detail)
        for source, answers in self.answers.items():
            answer, n = answers.most_common(1)[0]
            if answers.total() >= 50 and n > 0.8 * answers.total():
                share = f"{answer[:60]} is right for {n} of {answers.total()} rows"
                self.report.find("imbalance", self.report.files[0], -1, source, share)

    def _equal_prompts(self) -> None:
        """Equal prompts whose truths differ in spelling alone are no conflict: the later row's grader says which."""
        from rlkit.data.reference import reference_response, spelled_by_a_model

        spelled = [replace(row.task, ground_truth=first.task.ground_truth) for first, row in self.differing]
        answers = [spelled_by_a_model(t) or reference_response(t, worked=False) or "" for t in spelled]
        rewards = _graded([(row.task, text) for (_, row), text in zip(self.differing, answers, strict=True)])
        for (first, row), reward in zip(self.differing, rewards, strict=True):
            if reward.value == 1:
                self._find("duplicate", row, f"the same as {first.beside(row)}, its truth spelled otherwise")
                continue
            ours, theirs = (json.dumps(one.task.ground_truth)[:60] for one in (row, first))
            self._find("conflict", row, f"ground truth {ours}, but {theirs} in {first.beside(row)}")


def _text(task: Task) -> str:
    return "\n".join(m["content"] for m in task.prompt)


@cache
def _generated(data_source: str) -> bool:
    """Whether one of rlkit's generators makes it."""
    patterns = [pattern for kind in sources for pattern in sources[kind].makes]
    return any(fnmatchcase(data_source, pattern) for pattern in patterns)


def _unrouted(task: Task) -> str | None:
    try:
        resolve(task.data_source)
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


def _self_scores(report: Report, kept: Sequence[_Row], progress: bool) -> None:
    """Grade every ground truth as an answer to its own row, and as a model would spell it."""
    from rlkit.data.reference import reference_response, spelled_by_a_model

    graded: list[tuple[str, _Row, str]] = []
    for row in kept:
        if _unrouted(row.task):
            continue
        answer, spelled = reference_response(row.task, worked=False), spelled_by_a_model(row.task)
        report.ungraded += answer is None
        graded += [("self_score", row, answer)] if answer is not None else []
        graded += [("spelling", row, spelled)] if spelled is not None and spelled != answer else []
    rewards = _graded([(row.task, text) for _, row, text in graded], progress)
    for (check, row, text), reward in zip(graded, rewards, strict=True):
        if reward.value != 1:
            why = reward.error or f"{text!r} scores {reward.value:g}"
            report.find(check, row.file, row.number, row.task.data_source, why[:200])


def _graded(answers: Sequence[tuple[Task, str]], progress: bool = False) -> list[Reward]:
    from rlkit.config import RewardConfig
    from rlkit.rewards import Router

    if not answers:
        return []
    with Router(RewardConfig()) as router:
        return router.grade(answers, progress=progress)
