"""What a scorer may know about the answer it grades besides its arguments: settings and the deadline.

Set by the worker process around each answer; scorers read `context.settings` and `context.remaining()`.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """The part of RewardConfig that scorers obey."""

    scorer: str = "strict"
    custom_reward_function: str | None = None
    timeout: float = 10.0
    sandbox: str = "auto"
    partial_credit: bool = False
    judge_url: str | None = None
    judge_model: str = "TIGER-Lab/general-verifier"

    @classmethod
    def of(cls, config: Any) -> "Settings":
        """The fields of a RewardConfig that are named here."""
        return cls(**{name: getattr(config, name) for name in cls.__dataclass_fields__})


_LOADING = 120.0  # seconds that loading a library may take

settings = Settings()
batch: list[Any] = []
"""The rows (data_source, response, ground_truth, extra_info) that are graded with this one; a scorer that
asks a service may ask for all of them at once, and then empties it."""
_deadline = float("inf")


def slow() -> None:
    """Called before anything that can take long. A worker replaces it by one that first sends what it
    has already graded, so that nothing waits for this answer."""


def announce(seconds: float, module: str) -> None:
    """Tell the router how long to wait for the next word from here. Replaced by the worker's."""


@contextmanager
def loading(module: str = "") -> Iterator[None]:
    """Around the import of a slow library or the start of a service: it takes nothing from the answer's
    time, and workers that are forked later have the module from the start."""
    if module in sys.modules:
        yield
        return
    announce(_LOADING, module)
    start = time.monotonic()
    try:
        yield
    finally:
        global _deadline
        _deadline += time.monotonic() - start
        announce(remaining(), module)


def begin(timeout: float) -> None:
    """Start the clock of one answer."""
    global _deadline
    _deadline = time.monotonic() + timeout


def remaining() -> float:
    """Seconds left for this answer."""
    return _deadline - time.monotonic()
