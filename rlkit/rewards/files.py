"""Answers in files: `score_file` grades a file of them, `audit` measures the graders on cases decided by hand.

The cases (cases.jsonl) are rows of `score_file` with `correct`, a `domain` and a `kind`: answer, cheat (it tries to get
a verdict without an answer) or hang (it never ends). Cheats and hangs have a `note` that says what they try.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.files import write_text
from rlkit.rewards.grading import scorer_of
from rlkit.rewards.pool import Router
from rlkit.seeds import content_hash
from rlkit.types import Reward

_WINDOW = 1024  # rows that are read and graded together
AUDIT_SECONDS = 5.0  # that an answer of the audit may take
_FIELDS = ("data_source", "response", "ground_truth")


def score_file(
    path: str | Path,
    out: str | Path | None = None,
    config: RewardConfig | None = None,
    *,
    progress: bool = True,
) -> dict[str, Any]:
    """Score a JSON-lines file (data_source, response, ground_truth, extra_info) into another one.

    Each line of `out` (default: NAME.scored.jsonl) has value, correct, parts, error, seconds, the row's
    `id` (a hash of its content) and the scorer, in the order of the input. A call that was interrupted
    continues after the last whole line. A line that is no such object gets an error.

    Returns:
        rows, correct, errors (counts) and out (the path).

    Raises:
        UserError: there is no such file, or `out` cannot be written, or was written from other rows or by another
            scorer.
    """
    from tqdm.auto import tqdm

    path, config = Path(path), config or RewardConfig()
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    out = Path(out) if out else path.with_name(path.stem + ".scored.jsonl")
    if out.resolve() == path.resolve():
        raise UserError(f"{out} is the input itself; name another file with --out.")
    scorer = "/".join(scorer_of(config).values())
    _require_writable(out)
    verdicts = [(row["correct"], row["error"]) for row in _written(out, path, scorer)]
    total, done = sum(1 for _ in _lines(path)), len(verdicts)
    bar = tqdm(total=total, initial=done, desc="grading", unit="answer", disable=not progress)
    with bar, Router(config) as router, out.open("ab") as target:
        left = islice(_lines(path), done, None)
        while window := list(islice(left, _WINDOW)):
            rows = [*map(_row, window)]
            outcomes = iter(router.submit(row for row in rows if not isinstance(row, str)))
            for line, row in zip(window, rows, strict=True):
                reward, seconds = (Reward.failed(row), 0.0) if isinstance(row, str) else next(outcomes)
                verdicts.append((reward.correct, reward.error))
                facts = {"seconds": round(seconds, 6), "id": _identity(line), "scorer": scorer}
                target.write(json.dumps(asdict(reward) | facts).encode() + b"\n")
                target.flush()
                bar.update()
    correct = sum(right is True for right, _ in verdicts)
    errors = sum(error is not None for _, error in verdicts)
    return {"rows": total, "correct": correct, "errors": errors, "out": str(out)}


def _require_writable(out: Path) -> None:
    """Before anything is graded."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("ab").close()
    except OSError as error:
        raise UserError(
            f"{out} cannot be written ({error.strerror}): name another file with --out."
        ) from None


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from (line for line in file if line.strip())


def _identity(line: bytes) -> str:
    return content_hash(line.strip().decode("utf-8", "backslashreplace"))


def _row(line: bytes) -> tuple[Any, Any, Any, Any] | str:
    """The row of a line, or why there is none."""
    try:
        row = json.loads(line)  # UnicodeDecodeError is a ValueError
    except (ValueError, RecursionError) as error:
        return f"The line is no JSON: {error}."
    if not isinstance(row, dict):
        return f"The line is a {type(row).__name__}, not an object."
    for name in _FIELDS:
        if name not in row:
            return f"The field {name!r} is missing."
    return row["data_source"], row["response"], row["ground_truth"], row.get("extra_info")


def _written(out: Path, path: Path, scorer: str) -> list[dict[str, Any]]:
    """The whole rows that an earlier call wrote; a torn last line is cut off."""
    *whole, torn = out.read_bytes().split(b"\n")
    try:
        rows = [json.loads(line) for line in whole]
        known = [(row["id"], row["scorer"], row["correct"], row["error"])[:2] for row in rows]
    except (ValueError, TypeError, KeyError):
        known, rows = [("", "")], []
    if known != [(_identity(line), scorer) for line in islice(_lines(path), len(known))]:
        raise UserError(
            f"{out} holds something else, scores of other rows or of another scorer: delete it or use --out."
        )
    with out.open("rb+") as file:
        file.truncate(out.stat().st_size - len(torn))
    return rows


@dataclass
class Audit:
    """The result of an audit: each case with its `verdict` (None for an error), `parts`, `error` and `seconds`."""

    scorer: str
    sandbox: str
    cases: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The cases with a wrong verdict or none."""
        return [case for case in self.cases if case["verdict"] is not case["correct"]]

    @property
    def rate(self) -> float:
        """Share of failures."""
        return len(self.failures) / len(self.cases)

    def table(self) -> str:
        """Each attack with its result, and the wrong verdicts of each domain, in 80 columns."""
        lines = [f"{'attack':<47}{'domain':<15}{'result':<9}{'seconds':>9}"]
        for case in self.cases:
            if case["kind"] != "answer":
                result = {True: "ACCEPTED", False: "refused", None: "error"}[case["verdict"]]
                lines.append(f"{case['note']:<47}{case['domain']:<15}{result:<9}{case['seconds']:>9.2f}")
        heads = f"{'cases':>7}{'false pos.':>12}{'false neg.':>12}{'errors':>8}{'seconds':>9}"
        lines += ["", f"{'domain':<15}{heads}"]
        for domain in dict.fromkeys(case["domain"] for case in self.cases):
            own = [case for case in self.cases if case["domain"] == domain]
            wrong = {v: sum(c["verdict"] is v is not c["correct"] for c in own) for v in (True, False, None)}
            seconds = sum(c["seconds"] for c in own)
            counts = f"{len(own):>7}{wrong[True]:>12}{wrong[False]:>12}{wrong[None]:>8}{seconds:>9.2f}"
            lines.append(f"{domain:<15}{counts}")
        share = f"{len(self.failures)} of {len(self.cases)}, {100 * self.rate:.2f} %"
        lines += ["", f"Scorer {self.scorer}, sandbox {self.sandbox}: {share} of the verdicts are wrong."]
        return "\n".join(lines)


def audit(config: RewardConfig | None = None, out: str | Path | None = None) -> Audit:
    """Grade the shipped cases and store the result as JSON in `out`.

    Raises:
        UserError: `out` cannot be written, or the reward function cannot be loaded.
    """
    from rlkit.sandbox.levels import choose

    config = config or RewardConfig(timeout=AUDIT_SECONDS)
    if out is not None:
        _require_writable(Path(out))
    try:
        sandbox = choose(config.sandbox)
    except UserError:
        sandbox = "none"
    result = Audit("/".join(scorer_of(config).values()), sandbox)
    wanted = cases()
    rows = [(c["data_source"], c["response"], c["ground_truth"], c["extra_info"]) for c in wanted]
    with Router(config) as router:
        for case, (reward, seconds) in zip(wanted, router.submit(rows), strict=True):
            found = {"verdict": reward.correct, "parts": dict(reward.parts), "error": reward.error}
            result.cases.append({**case, **found, "seconds": round(seconds, 3)})
    if out is not None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        write_text(out, json.dumps({**asdict(result), "rate": result.rate, "time": when}, indent=1))
    return result


def cases() -> list[dict[str, Any]]:
    """The shipped cases, as mappings of domain, kind, data_source, response, ground_truth, extra_info and correct."""
    text = resources.files("rlkit.rewards").joinpath("cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]
