"""How rows become batches: checks, the held-out set, the order of training tasks.

In: the `data` and `evaluation` sections of a RunConfig, files of rows. Out: batches of Task, the same for the same
step (stream.py), held-out tasks and suites (held_out_tasks.py), and parquet files of them; findings (check.py).
"""

from rlkit.data.held_out_tasks import held_out, suites
from rlkit.data.stream import TaskStream, export

__all__ = ["TaskStream", "export", "held_out", "suites"]
