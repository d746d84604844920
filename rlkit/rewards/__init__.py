"""Rewards: a router over worker processes, the sandbox for untrusted programs, and the audit.

Scoring never runs in the trainer's process. Scorers live beside their tasks in rlkit/domains/.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rlkit.rewards.grading import VERL, grading_metrics, version_of

if TYPE_CHECKING:
    from rlkit.config import RewardConfig

SCORER_VERSION = "3"
"""Changes whenever any scorer's verdict changes; stored with every run."""


def scorer_of(config: "RewardConfig") -> dict[str, str]:
    """What grades the answers of a RewardConfig: `scorer`, and `scorer_version`, which changes with its verdicts.

    Raises:
        UserError: reward.custom_reward_function cannot be loaded.
    """
    if (own := config.custom_reward_function) is not None:
        return {"scorer": own, "scorer_version": version_of(own)}
    if config.scorer == "verl":
        from importlib.metadata import version

        return {"scorer": f"{VERL}:default_compute_score", "scorer_version": version("verl")}
    return {"scorer": config.scorer, "scorer_version": SCORER_VERSION}


def isolation(config: "RewardConfig") -> str | None:
    """What a run says of where foreign scorers run, which may evaluate the text of answers; None for rlkit's own."""
    if config.custom_reward_function is not None:
        return (
            "reward.custom_reward_function runs outside the sandbox, as nobody where we are root, with no variable of "
            "our environment but reward.env_vars: if it evaluates what answers say, they can forge verdicts."
        )
    if config.scorer == "verl":
        return "reward.scorer verl evaluates what answers say, in the sandbox: an answer can forge its own verdict."
    return None


_PUBLIC = {"Router": "pool", "score": "pool", "score_file": "files", "audit": "audit"}

__all__ = ["SCORER_VERSION", "grading_metrics", "isolation", "scorer_of", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """What needs rlkit.config, whose default sources are in the domains, which import rlkit.rewards.grading."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rlkit.rewards' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlkit.rewards.{_PUBLIC[name]}"), name)
