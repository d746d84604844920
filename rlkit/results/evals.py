"""evals.parquet: a row a sample of every evaluation, here or on verl.

A new column gets its type here, and its value where an answer is made: rlkit.evaluation.samples and, of a run on verl,
rlkit.verl.answers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rlkit.files import replacing
from rlkit.types import Task

ANSWER = {
    "correct": "boolean",  # null where the answer could not be graded
    "value": "Float64", "error": "string", "tokens": "Int64", "finish_reason": "string", "response": "string",
}  # fmt: skip
"""Columns of an answer, with their types; beside them stands which step, task and sample it is of."""
_TYPES = {"step": "int64", "task_id": "string", "data_source": "string", "sample": "int64"} | ANSWER


def eval_row(task: Task, sample: int, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a task's answer number `sample`; what `answer` lacks is null."""
    asked = {"task_id": task.id, "data_source": task.data_source, "sample": sample}
    return asked | {name: answer.get(name) for name in ANSWER}


def add(path: Path, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of an evaluation, in place of one of the same step. They may have other columns, too."""
    new = pd.DataFrame([{"step": step, **row} for row in rows]).astype(_TYPES)
    if path.exists():
        old = pd.read_parquet(path)
        new = pd.concat([old[old["step"] != step], new], ignore_index=True)
    with replacing(path) as temporary:
        new.to_parquet(temporary, index=False)


def truncate(path: Path, step: int) -> None:
    """Drop the rows of later steps."""
    if path.exists():
        evals = pd.read_parquet(path)
        with replacing(path) as temporary:
            evals[evals["step"] <= step].to_parquet(temporary, index=False)
