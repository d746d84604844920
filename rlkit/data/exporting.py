"""A run's data as files in the order of the mixture, and right answers as responses."""

import json
import re
from pathlib import Path
from typing import Any

from rlkit.config import RunConfig
from rlkit.data import rows
from rlkit.data.stream import TaskStream, held_out
from rlkit.types import Task


def export(config: RunConfig, out: str | Path, *, progress: bool = True) -> dict[str, int]:
    """Write the parquet files `train`, the rows of all steps, step after step (read it without shuffling), and `test`,
    held-out tasks and suites; the number of rows of each. Raises UserError: the sources cannot give the tasks."""
    out, tests = Path(out), held_out(config)
    stream = TaskStream(config, tests)
    stream.batch(1)  # what is wrong with the sources shows before a file is begun
    tests += [task for tasks in stream.suites.values() for task in tasks]
    train = (task for batch in stream for task in batch)
    return {
        "train": rows.write(out / "train.parquet", train, progress=progress),
        "test": rows.write(out / "test.parquet", tests, split="test", progress=progress),
    }


_TAGGED = ("simulation__arcagi", "simulation__barc", "logic__", "reasoning_gym")


def reference_response(task: Task) -> str | None:
    """The ground truth as a model spells it, in the format that the prompt asks for. None for tests of a program
    without a reference solution."""
    info, truth = task.extra_info, task.ground_truth
    if task.ability == "codegen" or task.data_source.startswith("codegen"):
        code = info.get("reference") or info.get("solution")
        program = code if isinstance(code, str) and code.strip() else None
        return program if program is None or "```" in program else f"```python\n{program}\n```"
    text, prompt = truth if isinstance(truth, str) else json.dumps(truth), task.prompt[-1]["content"]
    if task.data_source.startswith("simulation__codeio"):
        return f"```json\n{{{text}}}\n```"
    if "<answer>" in prompt and task.data_source.startswith(_TAGGED):
        return f"<answer> {text} </answer>"
    return rf"\boxed{{{as_spelled(text)}}}" if "\\boxed" in prompt else text


def as_spelled(truth: Any) -> Any:
    """A text without doubled backslashes (apart from those that end a line of a matrix), the reasoning of GSM8K's
    answer column, a box of its own, and dollar signs around; another value as it is."""
    if not isinstance(truth, str):
        return truth
    text = truth.rpartition("####")[2].strip()
    if "\\begin{" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z{}%$,;!()\[\]])", r"\\", text)
    if match := re.fullmatch(r"(?:\\\(|\$)?\s*\\boxed\s*\{(.*)\}\s*(?:\\\)|\$)?", text, re.DOTALL):
        text = match[1]
    return match[1].strip() if (match := re.fullmatch(r"\$([^$]+)\$", text)) else text
