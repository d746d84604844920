"""What packing a study's runs was worth: their throughput beside that of one after another."""

import json
import statistics
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from rlkit.files import write_text
from rlkit.store import read_jsonl

ALONE = 5
"""Steps that a study's first run is given alone, so that there is a pace to compare with."""
PATIENCE = 180.0
"""Seconds that the others wait for them at most: a long warm start holds nobody up."""


@dataclass(frozen=True)
class Throughput:
    """`together`: runs at a time, on average; `slowdown`: a step's time beside others over its time alone."""

    runs: int
    seconds: float
    together: float
    slowdown: float

    @property
    def gain(self) -> float:
        """Throughput over that of the same runs one after another."""
        return self.together / self.slowdown

    def sentence(self) -> str:
        return (
            f"{self.runs} runs in {self.seconds:.0f} s, {self.together:.1f} at a time on average; a step took "
            f"{self.slowdown:.2f} times as long as alone: {self.gain:.1f} times the throughput of one after another."
        )

    def write(self, folder: Path) -> None:
        """Keep it beside the study's runs."""
        content = {**asdict(self), "gain": self.gain}
        write_text(folder / "throughput.json", json.dumps(content, indent=1) + "\n")


def throughput(spans: dict[str, tuple[float, float]], first: Path) -> Throughput | None:
    """What packing was worth; None where the first run made no step beside another.

    Args:
        spans: when each run began and ended, seconds since the epoch.
        first: the folder of the run that was alone for its first steps.
    """
    rows = [(row["step"], row["time"]) for row in read_jsonl(first / "metrics.jsonl")]
    others = [begin for begin, _ in sorted(spans.values())[1:]]
    if not others:
        return None
    gaps = [(b, b[1] - a[1]) for a, b in pairwise(rows) if b[0] == a[0] + 1]
    alone = [gap for (_, time), gap in gaps[1:] if time <= others[0]]
    beside = [gap for (_, time), gap in gaps if time - gap > others[0]]
    if not alone or not beside:
        return None
    begin, end = min(b for b, _ in spans.values()), max(e for _, e in spans.values())
    busy = sum(e - b for b, e in spans.values())
    slowdown = max(1.0, statistics.median(beside) / statistics.median(alone))
    return Throughput(len(spans), end - begin, busy / (end - begin), slowdown)
