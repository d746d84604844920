"""Rows, mixtures and curricula: from sources of tasks to checked, ordered training data."""

from rlkit.data.stream import TaskStream, held_out, suites

__all__ = ["TaskStream", "held_out", "suites"]
