"""A right answer to a task as a response in the format that its prompt asks for.

Supervised rows are made of these, and a ground truth that scores below 1 in this form is defective.
"""

import json
import re
from dataclasses import replace
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


_ROWS = re.compile(r"\\begin\{([a-z]*matrix|array|cases|aligned?)\}.*?\\end\{\1\}", re.DOTALL)
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z{}%$,;!()\[\]])")
_BOX = re.compile(r"\s*(?:\\\(|\$)?\s*\\boxed\s*\{(.*)\}\s*(?:\\\)|\$)?\s*", re.DOTALL)


def spelled_by_a_model(task: Task) -> str | None:
    """The ground truth in a box as a model spells it, where the row spells it otherwise; None elsewhere.

    Rows have doubled backslashes (apart from those that end a line of a matrix), GSM8K's whole answer column, dollar
    signs around, or a box of their own.
    """
    truth = task.ground_truth
    if not isinstance(truth, str) or "\\boxed" not in task.prompt[-1]["content"]:
        return None
    text = truth.rpartition("####")[2].strip()
    if not _ROWS.search(text):
        text = _DOUBLED.sub(lambda _: "\\", text)
    if match := _BOX.fullmatch(text):
        text = match.group(1)
    if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1]:
        text = text[1:-1].strip()
    return None if text == truth else reference_response(replace(task, ground_truth=text), worked=False)
