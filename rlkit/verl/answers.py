"""The answers log: one JSON line for every answer that verl's processes graded, errors included.

verl keeps no record of a sample from which pass@k, its errors or its exact length could be told, so the
processes that grade append one themselves, each to a file of its own in a folder that all machines share.
An answer is written before its reward is returned, hence before verl logs the step.
"""

import json
import os
import socket
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from rlkit.types import Reward
from rlkit.verl.tail import Tail

Split = Literal["train", "test"]


class Place(TypedDict):
    """Which answer it is: the step (of test answers, the steps done before), its prompt's `uid`, the number
    of the sample, and what the rollout knows of it."""

    step: int
    split: str
    uid: str
    sample: int
    task_id: str
    prompt_tokens: int
    tokens: int  # sampled ones
    response_tokens: int  # with observations
    finish_reason: str
    turns: int


def record(folder: str | Path, place: Mapping[str, Any], data_source: str, text: str, reward: Reward) -> None:
    """Append one answer. Safe from any thread and process: a line is one write to the process's own file."""
    row = {
        **place,
        "data_source": data_source,
        "value": reward.value,
        "correct": reward.correct,
        "error": reward.error,
        "parts": dict(reward.parts),
        "response": text,
    }
    path = Path(folder) / f"{socket.gethostname()}-{os.getpid()}.jsonl"
    line = (json.dumps(row, default=str) + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


class AnswerReader:
    """The answers of a folder, as they come in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = 0
        self._files: dict[Path, Tail] = {}
        self._waiting: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)

    def poll(self) -> None:
        """Read what was appended since the last call; a line that is still being written waits."""
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in self._files.setdefault(path, Tail(path)).lines():
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
