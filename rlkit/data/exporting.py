"""A run's data as files in the order of the mixture, and right answers as responses for supervised rows."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rlkit.config import RunConfig
from rlkit.data import rows
from rlkit.data.stream import TaskStream, held_out, suites
from rlkit.errors import UserError
from rlkit.files import replacing
from rlkit.types import Task


def export(config: RunConfig, out: str | Path, *, progress: bool = True) -> dict[str, int]:
    """Write the parquet files `train`, `test` (held-out tasks and suites) and, with `data.sft_ratio`, `sft`.

    `train` has the rows of all steps, step after step: read it without shuffling. `sft` has the set-aside part of
    `data.train_max_samples` unique tasks (or as many as the ratio makes of the steps' tasks).

    Returns:
        The number of rows of each file.

    Raises:
        UserError: the sources cannot give the tasks, or a task of the supervised part has no reference solution.
    """
    out, tests = Path(out), held_out(config)
    tests += [task for tasks in suites(config).values() for task in tasks]
    total = config.trainer.total_training_steps * config.data.train_batch_size
    stream = TaskStream(config, tests)
    stream.batch(1)  # what is wrong with the sources shows before a file is begun
    train = (task for batch in stream for task in batch)
    written = {
        "train": rows.write(out / "train.parquet", train, total=total, progress=progress),
        "test": rows.write(out / "test.parquet", tests, split="test", total=len(tests), progress=progress),
    }
    ratio, unique = config.data.sft_ratio, config.data.train_max_samples
    if ratio:
        size = round(unique * ratio) if unique > 0 else round(total * ratio / (1 - ratio))
        supervised = TaskStream(config, tests, side="sft").first(size)
        written["sft"] = write_sft(out / "sft.parquet", supervised)
    return written


def write_sft(path: Path, tasks: Sequence[Task]) -> int:
    """Chat rows (`messages`) that end with a right answer; a task without one is a UserError."""
    chats = []
    for task in tasks:
        if (response := reference_response(task)) is None:
            raise UserError(
                f"A task of {task.data_source} (id {task.id}) has no reference solution to train on: "
                "leave this source out of the supervised part, or add extra_info.solution."
            )
        messages = [*task.prompt, {"role": "assistant", "content": response}]
        chats.append({"messages": messages, "data_source": task.data_source, "id": task.id})
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(chats), temporary)
    return len(chats)


_TAGGED = ("simulation__arcagi", "simulation__barc", "logic__", "reasoning_gym")


def reference_response(task: Task, worked: bool = True) -> str | None:
    """A right answer in the format that the prompt asks for: the worked solution where the source has one, else the
    ground truth as a model spells it. None for tests of a program without a reference solution."""
    info, truth = task.extra_info, task.ground_truth
    if task.ability == "codegen" or task.data_source.startswith("codegen"):
        code = info.get("reference") or info.get("solution")
        if not isinstance(code, str) or not code.strip():
            return None
        return code if "```" in code else f"```python\n{code}\n```"
    if worked and isinstance(info.get("solution"), str):
        return info["solution"]
    text = truth if isinstance(truth, str) else json.dumps(truth)
    prompt = task.prompt[-1]["content"]
    if task.data_source.startswith("simulation__codeio"):
        return f"```json\n{{{text}}}\n```"
    if "<answer>" in prompt and task.data_source.startswith(_TAGGED):
        return f"<answer> {text} </answer>"
    return rf"\boxed{{{_as_spelled(text)}}}" if "\\boxed" in prompt else text


def _as_spelled(truth: str) -> str:
    """A truth without doubled backslashes (apart from those that end a line of a matrix), the reasoning of GSM8K's
    answer column, a box of its own, and dollar signs around."""
    text = truth.rpartition("####")[2].strip()
    if "\\begin{" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z{}%$,;!()\[\]])", r"\\", text)
    if match := re.fullmatch(r"(?:\\\(|\$)?\s*\\boxed\s*\{(.*)\}\s*(?:\\\)|\$)?", text, re.DOTALL):
        text = match[1]
    dollars = len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1]
    return text[1:-1].strip() if dollars else text
