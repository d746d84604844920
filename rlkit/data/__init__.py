"""How rows become batches: checks, the held-out set, the order of training tasks.

In: the `data` and `evaluation` sections of a RunConfig, files of rows. Out: batches of Task, the same for the same
step (stream.py), held-out tasks and suites (held_out_set.py), findings (check.py) and parquet files (exporting.py).
"""

from rlkit.data.held_out_set import held_out, suites
from rlkit.data.stream import TaskStream

__all__ = ["TaskStream", "held_out", "suites"]
