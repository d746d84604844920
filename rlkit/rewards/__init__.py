"""Rewards: a router over worker processes, the sandbox for untrusted programs, and the audit.

Scoring never runs in the trainer's process. Scorers live beside their tasks in rlkit/domains/.
"""

import importlib
from typing import Any

SCORER_VERSION = "3"
"""Changes whenever any scorer's verdict changes; stored with every run."""


def scorer_of(config: Any) -> dict[str, str]:
    """What grades the answers of a RewardConfig: `scorer`, and `scorer_version`, which changes with its verdicts.

    Raises:
        UserError: reward.custom_reward_function cannot be loaded.
    """
    if (own := config.custom_reward_function) is None:
        return {"scorer": config.scorer, "scorer_version": SCORER_VERSION}
    from rlkit.rewards.grading import version_of

    return {"scorer": own, "scorer_version": version_of(own)}


_PUBLIC = {
    "Router": "rlkit.rewards.pool",
    "score": "rlkit.rewards.pool",
    "score_file": "rlkit.rewards.files",
    "audit": "rlkit.rewards.audit",
}

__all__ = ["SCORER_VERSION", "scorer_of", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.rewards' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value
