"""verl's reward function, `compute_score` over the router and its worker processes; and the answers log.

    reward.custom_reward_function.path=pkg://rlkit.verl.compute_score
    +reward.custom_reward_function.reward_kwargs.config={timeout: 10}

verl calls it in threads of its reward workers. An answer that cannot be graded raises: verl 0.9.1 then drops
this answer alone (its session fails, the others of the group are trained on), so an error is never a zero.

The answers log has one JSON line for every answer that verl's processes graded, errors included: verl keeps no record
of a sample from which pass@k, its errors or its exact length could be told, so the processes that grade append one
themselves, each to a file of its own in a folder that all machines share. An answer is written before its reward is
returned, hence before verl logs the step.
"""

import json
import os
import socket
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlkit.config import RewardConfig
from rlkit.data.rows import from_verl
from rlkit.environments.base import Split
from rlkit.rewards.pool import shared_router
from rlkit.types import Reward

PLACE = "rlkit"  # the key of extra_info under which our agent loop says which answer this is


class UngradedAnswer(RuntimeError):
    """An answer could not be graded; its message is the reason."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    answers: str | None = None,
    **_: Any,
) -> dict[str, float]:
    """The reward of one answer of a row that `rlkit data export` wrote, with the same keys for every data_source:
    `score` (what trains) and `correct` (1.0 or 0.0, what is reported). `config` is a `reward` section, `answers` the
    folder of the answers log, if any. Raises UngradedAnswer where the grader failed, which is logged."""
    info, settings = dict(extra_info or {}), RewardConfig.model_validate(dict(config or {}))
    router = shared_router(settings)  # pyright: ignore[reportArgumentType]  # frozen models hash
    truth, task_info = from_verl(ground_truth, info)
    [reward] = router.grade_rows([(data_source, solution_str, truth, task_info)])
    if answers and PLACE in info:
        record(answers, info[PLACE], data_source, solution_str, reward)
    return score_of(reward)


def score_of(reward: Reward) -> dict[str, float]:
    """A reward as verl takes it. Raises UngradedAnswer."""
    if reward.value is None:
        raise UngradedAnswer(reward.error)
    return {"score": reward.value, "correct": float(bool(reward.correct))}


def record(folder: str | Path, place: Mapping[str, Any], data_source: str, text: str, reward: Reward) -> None:
    """Append one answer. Safe from any thread and process: a line is one write to the process's own file.

    `place` says which answer it is, and what the rollout knows of it: step (of test answers, the steps done before),
    split, uid of its prompt, sample, task_id, prompt_tokens, tokens (sampled), response_tokens (with observations),
    finish_reason, turns."""
    row = {
        **place, "data_source": data_source, "value": reward.value, "correct": reward.correct, "error": reward.error,
        "parts": dict(reward.parts), "response": text,
    }  # fmt: skip
    path = Path(folder) / f"{socket.gethostname()}-{os.getpid()}.jsonl"
    with path.open("ab", buffering=0) as log:
        log.write((json.dumps(row, default=str) + "\n").encode())


class Tail:
    """What is appended to a file, in whole lines; `offset` counts the bytes that were read."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def lines(self) -> list[bytes]:
        """The whole lines since the last call, without their ends; none where there is no file yet."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self.offset += len(whole) + len(newline)
        return whole.split(b"\n") if newline else []


class AnswerReader:
    """The answers of a folder, as they come in; `seen` counts them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen = folder, 0
        self._files: dict[Path, Tail] = {}
        self._waiting: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)

    def poll(self) -> None:
        """Read what was appended since the last call."""
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in self._files.setdefault(path, Tail(path)).lines():
                with suppress(ValueError):  # a line that a full disk cut, so that its answer is missing
                    row = json.loads(line)
                    self._waiting[row["step"], row["split"]].append(row)
                    self.seen += 1

    def count(self, step: int, split: Split) -> int:
        """Answers of a step that are here."""
        return len(self._waiting.get((step, split), ()))

    def take(self, step: int, split: Split) -> list[dict[str, Any]]:
        """The answers of a step, prompt by prompt; they are forgotten here."""
        rows = self._waiting.pop((step, split), [])
        return sorted(rows, key=lambda row: (row["uid"], row["sample"]))
