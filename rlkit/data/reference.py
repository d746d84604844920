"""A right answer to a task as a response in the format that its prompt asks for.

Supervised rows are made of these, and a ground truth that scores below 1 in this form is defective.
"""

import json
from typing import Any

from rlkit.types import Task

_TAGGED = ("simulation__arcagi", "simulation__barc", "logic__", "reasoning_gym")


def reference_response(task: Task, worked: bool = True) -> str | None:
    """The worked solution where the source has one, else the bare answer in its format.

    None where the ground truth is no answer (tests of a program without a reference solution).
    """
    info, truth = task.extra_info, task.ground_truth
    if task.ability == "codegen" or task.data_source.startswith("codegen"):
        return _program(info)
    if worked and isinstance(info.get("solution"), str):
        return info["solution"]
    text = truth if isinstance(truth, str) else json.dumps(truth)
    prompt = task.prompt[-1]["content"]
    if task.data_source.startswith("simulation__codeio"):
        return f"```json\n{{{text}}}\n```"
    if "<answer>" in prompt and task.data_source.startswith(_TAGGED):
        return f"<answer> {text} </answer>"
    return rf"\boxed{{{text}}}" if "\\boxed" in prompt else text


def _program(info: Any) -> str | None:
    code = info.get("reference") or info.get("solution")
    if not isinstance(code, str) or not code.strip():
        return None
    return code if "```" in code else f"```python\n{code}\n```"
