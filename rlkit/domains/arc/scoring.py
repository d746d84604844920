"""Scoring grids (ARC, Chollet 2019; BARC): the whole grid or nothing."""

import re
from collections.abc import Mapping
from typing import Any

from rlkit.domains import scorer
from rlkit.domains.answers import tagged
from rlkit.errors import UserError
from rlkit.rewards.truth import parse
from rlkit.types import Reward

_GRID = re.compile(r"\[\s*(?:\[[0-9\s,]*\]\s*,?\s*)+\]")
_LONGEST = 20_000  # characters; 30 × 30 cells need 3,000


@scorer("simulation__arcagi*", "simulation__barc*", "logic__arcagi*", "logic__barc*")
def score(response: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Reward:
    """1 when the grid in the last `<answer>` is the truth, cell by cell.

    Rows may be separated by commas or, as numpy prints them, by blanks. Anything but whole numbers from
    0 to 9 (floats, booleans), ragged rows or a second grid is no grid. parts: cell_accuracy of a grid
    of the right shape.
    """
    truth = parse(ground_truth, list, "a grid")
    if not _is_grid(truth):
        raise UserError(f"The ground truth of a grid must be rows of colours 0-9: {str(truth)[:80]}.")
    grid = read(tagged(response) or "")
    if grid is None:
        return Reward.of(False, reason="no grid")
    if [len(row) for row in grid] != [len(row) for row in truth]:
        return Reward.of(False, reason="another shape")
    cells = [a == b for x, y in zip(grid, truth, strict=True) for a, b in zip(x, y, strict=True)]
    return Reward.of(all(cells), cell_accuracy=sum(cells) / len(cells))


def read(text: str) -> list[list[int]] | None:
    """The grid that a text holds, or None if it holds none or more than one."""
    start, end = text.find("[["), text.rfind("]]")
    if start < 0 or len(text) > _LONGEST:
        start, end = text.find("["), text.rfind("]") - 1
    body = text[start : end + 2].strip()
    if start < 0 or len(text) > _LONGEST or not _GRID.fullmatch(body):
        return None
    rows = [re.split(r"[\s,]+", row.strip(" \n\t,")) for row in re.findall(r"\[([^\[\]]*)\]", body)]
    if not all(re.fullmatch("[0-9]", cell) for row in rows for cell in row):
        return None
    grid = [[int(cell) for cell in row] for row in rows]
    return grid if _is_grid(grid) else None


def _is_grid(value: Any) -> bool:
    return (
        bool(value)
        and all(isinstance(row, list) and row and len(row) == len(value[0]) for row in value)
        and all(type(cell) is int and 0 <= cell <= 9 for row in value for cell in row)
    )
