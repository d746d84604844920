"""What a scorer may know about the answer it grades besides its arguments: settings and the deadline.

Set by the worker process around each answer; scorers read `context.settings` and `context.remaining()`.
"""

import time
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


settings = Settings()
_deadline = float("inf")


def slow() -> None:
    """Called before anything that can take long. A worker replaces it by one that first sends what it
    has already graded, so that nothing waits for this answer."""


def begin(timeout: float) -> None:
    """Start the clock of one answer."""
    global _deadline
    _deadline = time.monotonic() + timeout


def remaining() -> float:
    """Seconds left for this answer."""
    return _deadline - time.monotonic()
