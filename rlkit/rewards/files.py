"""Scoring a file of answers, one JSON object a line."""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlkit.config import RewardConfig
from rlkit.errors import UserError
from rlkit.rewards import scorer_of
from rlkit.rewards.pool import Call, Router
from rlkit.seeds import content_hash
from rlkit.types import Reward

_WINDOW = 256  # rows written together; two windows are under way at a time
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
    goes on behind the last whole line. A line that is no such object gets an error.

    Returns:
        rows, correct, errors (counts) and out (the path).

    Raises:
        UserError: there is no such file, or `out` was written from other rows or by another scorer.
    """
    path, config = Path(path), config or RewardConfig()
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    out = Path(out) if out else path.with_name(path.stem + ".scored.jsonl")
    if out.resolve() == path.resolve():
        raise UserError(f"{out} is the input itself; name another file with --out.")
    scorer = "/".join(scorer_of(config).values())
    done = _written(out, path, scorer)
    with path.open("rb") as file:
        total = sum(1 for line in file if line.strip())
    counts = {"rows": total, "correct": 0, "errors": 0, "out": str(out)}
    for row in done:
        _count(counts, row)
    with Router(config) as router, out.open("ab") as target:
        for row in _bar(_scored(router, path, len(done), scorer), total, len(done), progress):
            _count(counts, row)
            target.write(json.dumps(row).encode() + b"\n")
            target.flush()
    return counts


def _count(counts: dict[str, Any], row: dict[str, Any]) -> None:
    counts["correct"] += row["correct"] is True
    counts["errors"] += row["error"] is not None


def _bar(rows: Iterator[dict[str, Any]], total: int, done: int, progress: bool) -> Iterator[dict[str, Any]]:
    if not progress:
        return rows
    from tqdm.auto import tqdm

    return iter(tqdm(rows, total=total, initial=done, desc="grading", unit="answer"))


def _lines(path: Path, skip: int = 0) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                if skip:
                    skip -= 1
                else:
                    yield line


def _identity(line: bytes) -> str:
    return content_hash(line.strip().decode("utf-8", "backslashreplace"))


def _scored(router: Router, path: Path, skip: int, scorer: str) -> Iterator[dict[str, Any]]:
    """The output rows, in order, with the next window always under way."""
    windows: deque[tuple[list[bytes], Call]] = deque()
    lines = _lines(path, skip)
    while True:
        window = [line for _, line in zip(range(_WINDOW), lines, strict=False)]
        if window:
            windows.append((window, router.submit([_fields(line) for line in window])))
        if not windows:
            return
        if len(windows) == 2 or not window:
            sources, call = windows.popleft()
            rewards = call.wait()
            for line, reward, seconds in zip(sources, rewards, call.seconds, strict=True):
                yield _row(line, reward, seconds, scorer)


def _fields(line: bytes) -> tuple[Any, Any, Any, Any] | str:
    """The row of a line, or why there is none."""
    try:
        row = json.loads(line)  # UnicodeDecodeError is a ValueError
    except (ValueError, RecursionError) as error:
        return f"The line is no JSON: {error}."
    if not isinstance(row, dict):
        return f"The line is a {type(row).__name__}, not an object."
    for field in _FIELDS:
        if field not in row:
            return f"The field {field!r} is missing."
    return row["data_source"], row["response"], row["ground_truth"], row.get("extra_info")


def _row(line: bytes, reward: Reward, seconds: float, scorer: str) -> dict[str, Any]:
    return {
        "value": reward.value,
        "correct": reward.correct,
        "parts": dict(reward.parts),
        "error": reward.error,
        "seconds": round(seconds, 6),
        "id": _identity(line),
        "scorer": scorer,
    }


def _written(out: Path, path: Path, scorer: str) -> list[dict[str, Any]]:
    """The whole rows that an earlier call wrote; a torn last line is cut off."""
    if not out.exists():
        return []
    rows, size = [], 0
    with out.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            rows.append(json.loads(line))
            size += len(line)
    other = UserError(f"{out} holds scores of other rows or of another scorer: delete it or use --out.")
    lines = _lines(path)
    for row in rows:
        line = next(lines, None)
        if line is None or row.get("id") != _identity(line) or row.get("scorer") != scorer:
            raise other
    with out.open("rb+") as file:
        file.truncate(size)
    return rows
