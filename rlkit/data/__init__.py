"""How rows become batches: checks, the held-out set, the order of training tasks.

In: the `data` and `evaluation` sections of a RunConfig, files of rows. Out: batches of Task, the same for the same
step, held-out tasks and suites (stream.py), findings (check.py) and parquet files (exporting.py).
"""

from rlkit.data.stream import TaskStream, held_out, suites

__all__ = ["TaskStream", "held_out", "suites"]
