"""Rewards: grading any answer safely. Scorers stand beside their tasks in rlkit/domains/.

In: tasks, or rows of a file, with responses, and `reward.*` of a RunConfig. Out: a Reward each, or the reason why
there is none: pool.py routes answers to processes (worker.py), in which grading.py calls the scorer.
"""

from rlkit.rewards.files import audit, score_file
from rlkit.rewards.grading import grading_metrics, isolation, scorer_of
from rlkit.rewards.pool import Router, score

__all__ = ["Router", "audit", "grading_metrics", "isolation", "score", "score_file", "scorer_of"]
