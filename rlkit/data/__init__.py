"""How rows become batches: checks, the held-out set, the order of training tasks.

In: the `data` and `evaluation` sections of a RunConfig, files of rows. Out: batches of Task, the same for the same
step, held-out tasks and suites, and parquet files of them (stream.py); findings (check.py).
"""

from rlkit.data.stream import TaskStream, export, held_out, suites

__all__ = ["TaskStream", "export", "held_out", "suites"]
