"""RunConfig: everything that decides what a run computes, under verl's names wherever verl has one.

In: a params file and dotted overrides. Out: one frozen, checked RunConfig. A file here has a section of the YAML, with
its defaults and checks; run.py puts them together, and tiny.py makes the reduced form of a file.
"""

from rlkit.config.actor import Actor, Critic, Optimizer
from rlkit.config.algorithm import Algorithm, RolloutCorrection
from rlkit.config.data import Data
from rlkit.config.evaluation import Evaluation
from rlkit.config.model import LINEAR, Model
from rlkit.config.reward import OverlongBuffer, RewardConfig
from rlkit.config.rollout import RolloutConfig
from rlkit.config.run import UNHASHED, RunConfig, load
from rlkit.config.trainer import Trainer
from rlkit.params import Section

__all__ = [
    "LINEAR", "UNHASHED", "Actor", "Algorithm", "Critic", "Data", "Evaluation", "Model", "Optimizer", "OverlongBuffer",
    "RewardConfig", "RolloutConfig", "RolloutCorrection", "RunConfig", "Section", "Trainer", "load",
]  # fmt: skip
