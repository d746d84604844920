"""Environments: worlds in which a model acts step by step and is rewarded for what its steps change.

In: problems, and actions in words. Out: observations and a reward a step (base.py), whole episodes of a model
(rollout.py) as Trajectory. An environment is one file with one registered class, here or a plugin;
`rlkit new environment NAME` writes one.
"""

from rlkit.environments.authoring import check_environment
from rlkit.environments.base import ActionResult, BaseEnvironment, InvalidAction, environments
from rlkit.environments.episode import Trajectory, Transition

__all__ = [
    "ActionResult",
    "BaseEnvironment",
    "InvalidAction",
    "Trajectory",
    "Transition",
    "check_environment",
    "environments",
]
