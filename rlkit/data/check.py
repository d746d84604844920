"""The check of training rows: what would break a run or spoil an evaluation."""

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from tqdm.auto import tqdm

from rlkit.data import rows
from rlkit.data.exporting import as_spelled, reference_response
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
    "held_out": ("error", "the prompt, or nearly its text, is in a held-out set"),
    "duplicate": ("warning", "the same prompt stands twice"),
    "near_duplicate": ("warning", "the prompt nearly repeats another one"),
}
"""Every check with its severity and its meaning."""
ALIKE = 0.7  # least share of a text's own n-grams that a near copy of it has
LEAST_OWN, LEAST_OWN_SHARE = 8, 0.25  # own n-grams of a text that is compared: at least so many, and of all


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

    @property
    def text(self) -> str:
        return "\n".join(message["content"] for message in self.task.prompt)

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
    held = [_Row(str(path), k, task) for path in held_out for k, task in enumerate(rows.tasks(path))]
    control, first = control_tokens(tokenizer) if tokenizer else [], dict[str, _Row]()  # row of each problem
    routed = []
    for row in checked:
        try:
            resolve(row.task.data_source)
            routed.append(row)
        except UserError as error:
            found.append(row.finding("unrouted", str(error).split(" Known:")[0]))
        if names := [name for name in control if name in row.text]:
            found.append(row.finding("control", f"the prompt has {', '.join(names)}"))
        earlier = first.setdefault(row.task.problem, row)
        if as_spelled(row.task.ground_truth) != as_spelled(earlier.task.ground_truth):
            ours, theirs = (json.dumps(r.task.ground_truth)[:60] for r in (row, earlier))
            found.append(row.finding("conflict", f"ground truth {ours}, but {theirs} in {earlier.place}"))
        elif row is not earlier:
            found.append(row.finding("duplicate", f"the same as {earlier.place}"))
    places = {row.task.problem: row.place for row in held}
    same = [row for row in checked if row.task.problem in places]
    found += [row.finding("held_out", f"the prompt of {places[row.task.problem]}") for row in same]
    new = [row for row in first.values() if row.task.problem not in places]
    found += [row.finding("held_out", f"nearly {other.place}") for row, other in _near(new, held)]
    found += [row.finding("near_duplicate", f"nearly {other.place}") for row, other in _near(new)]
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


def _near(new: Sequence[_Row], others: Sequence[_Row] | None = None) -> Iterator[tuple[_Row, _Row]]:
    """Each row whose text has most own n-grams of another one's, and all its numbers in their order, with the nearest
    such: of the others, or without them of the rows before it. N-grams of more than a few texts are a template's."""
    every = [*new, *(others or [])]
    start = 0 if others is None else len(new)  # of those that are compared with
    own, sizes = _own_ngrams([row.text for row in every])
    theirs, totals = own[start:], own[start:].sum(axis=1)
    comparable = totals >= np.maximum(LEAST_OWN, LEAST_OWN_SHARE * sizes[start:])
    numbers = [re.findall(r"\d+", row.text) for row in every]
    nearest: dict[int, int] = {}
    for block in range(0, len(new), 1000):
        pairs = (own[block : min(block + 1000, len(new))] @ theirs.T).tocoo()
        text, share = pairs.row + block, pairs.data / totals[pairs.col]
        alike = comparable[pairs.col] & (share >= ALIKE) & ((pairs.col < text) | (others is not None))
        for _, k, other in sorted(zip(-share[alike], text[alike], pairs.col[alike], strict=True)):
            rest = iter(numbers[k])
            if k not in nearest and all(number in rest for number in numbers[start + other]):
                nearest[k] = other
    return ((new[k], every[start + other]) for k, other in nearest.items())


def _own_ngrams(texts: Sequence[str], n: int = 5) -> tuple[Any, np.ndarray]:
    """(texts, n-grams) sparse, 1 where a text has one of those that only few texts have, and (texts,) the number of all
    distinct n-grams of each, of words, numbers and symbols; a text shorter than n is one."""
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


def _self_scores(routed: Sequence[_Row], findings: list[Finding]) -> int:
    """Grade every ground truth as an answer to its own row; the number of those that have none to grade."""
    given = [(row, reference_response(row.task)) for row in routed]
    answers = [(row, answer) for row, answer in given if answer is not None]
    with Router() as router:
        rewards = router.grade([(row.task, answer) for row, answer in answers], progress=True)
    for (row, answer), reward in zip(answers, rewards, strict=True):
        if reward.value != 1:
            said = reward.error or f"{answer!r} scores {reward.value:g}"
            findings.append(row.finding("self_score", said[:200]))
    return len(given) - len(answers)
