"""Sets of real numbers, however they are written, as intervals: conditions, set-builders, the line without points.

Texts in, texts out, in the notation that `rlkit.domains.math.structure` reads: `(0,3]`, `(-\\infty,1)\\cup(2,\\infty)`.
"""

import re
from itertools import pairwise

from rlkit.domains.math.kinds import is_name, split

RELATIONS = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"}
_TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "\\ne": "\\ne"}
_LINE = r"(?:x\s*\\in\s*)?(?:\\mathbb\s*\{R\}|\(\s*-\\infty\s*,\s*\\infty\s*\))"
_WITHOUT = re.compile(
    _LINE
    + r"\s*(?:\\(?:setminus|smallsetminus|backslash)|-)\s*\\\{(?P<points>[^{}]*(?:\{[^{}]*\}[^{}]*)*)\\\}"
)
_BUILDER = re.compile(
    r"\\\{\s*(?P<name>[A-Za-z])\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:)\s*(?P<condition>.+)\\\}"
)
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d+)?|\\frac\s*\{\d+\}\s*\{\d+\}|\d+/\d+)")
_FRACTION = re.compile(r"\\frac\s*\{(\d+)\}\s*\{(\d+)\}")


def as_interval(text: str) -> str | None:
    """`0 < x \\le 3` as `(0,3]`, `x \\ne 0` as `(-\\infty,0)\\cup(0,\\infty)`; None for anything else."""
    operands, operators = split(text, RELATIONS)
    if operators == ["\\in"] and is_name(operands[0]):
        return operands[1]
    if len(operators) == 1 and operators[0] in _TURNED:
        left, right = operands
        if is_name(right) and not is_name(left):
            left, right, operators = right, left, [_TURNED[operators[0]]]
        if not is_name(left):
            return None
        return {
            "<": f"(-\\infty,{right})", "\\le": f"(-\\infty,{right}]", "\\ne": _without([right]),
            ">": f"({right},\\infty)", "\\ge": f"[{right},\\infty)",
        }[operators[0]]  # fmt: skip
    if len(operators) == 2 and is_name(operands[1]):
        if set(operators) <= {">", "\\ge"}:
            operands, operators = operands[::-1], [_TURNED[o] for o in operators[::-1]]
        if set(operators) <= {"<", "\\le"}:
            opening, closing = "(["[operators[0] == "\\le"], ")]"[operators[1] == "\\le"]
            return f"{opening}{operands[0]},{operands[2]}{closing}"
    return None


def plain(text: str) -> str:
    """`\\mathbb{R}\\setminus\\{0\\}` as two intervals, `\\{x : x < 3\\}` as its condition; others as they are."""
    if (match := _WITHOUT.fullmatch(text)) and (intervals := _without(match["points"].split(","))):
        return intervals
    if (match := _BUILDER.fullmatch(text)) and match["name"] in match["condition"]:
        return match["condition"].strip()
    return text


def _without(points: list[str]) -> str | None:
    """The intervals between `points`; None for several that are no plain numbers, whose order is unknown."""
    points = [p.strip() for p in points]
    if len(points) > 1:
        if not all(_NUMBER.fullmatch(p) for p in points):
            return None
        points = sorted(points, key=_size)
    bounds = ["-\\infty", *points, "\\infty"]
    return "\\cup".join(f"({a},{b})" for a, b in pairwise(bounds))


def _size(number: str) -> float:
    top, _, bottom = _FRACTION.sub(r"\1/\2", number).partition("/")
    return float(top) / float(bottom or 1)
