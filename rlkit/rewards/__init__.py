"""Rewards: a router over worker processes, and the audit. Scorers live beside their tasks in rlkit/domains/."""

from rlkit.rewards.files import audit, score_file
from rlkit.rewards.grading import grading_metrics, isolation, scorer_of
from rlkit.rewards.pool import Router, score

__all__ = ["Router", "audit", "grading_metrics", "isolation", "score", "score_file", "scorer_of"]
