"""Sets of real numbers as intervals: inequalities, points left out, words."""

import re
from itertools import pairwise
from typing import NamedTuple

from rlkit.domains.math.parse import split
from rlkit.domains.math.values import number

RELATIONS = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"}
TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_[A-Za-z0-9])?")
_BUILDER = re.compile(
    r"\\\{\s*(?P<name>\\?[A-Za-z]+)\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:|,)\s*(?P<condition>.+)\\\}"
)
_ALL = re.compile(
    r"(?:\\?[A-Za-z]\s*(?:\\in|=|is|can be)\s*)?(?:the set of )?(?:all|any|every)?\s*(?:of )?(?:the )?"
    r"(?:reals|real (?:numbers?|values?|line))(?: of \\?[A-Za-z])?"
)
_WITHOUT = re.compile(
    r"(?P<all>.+?)\s*(?:\\(?:setminus|smallsetminus|backslash)(?![A-Za-z])|-(?=\s*\\\{)|except(?: for)?|other than)\s*"
    r"(?P<points>[^<>]+)"
)
_REALS = re.compile(r"\\mathbb ?\{R\}")
_LONGEST, _MOST = 2000, 60  # characters of a set; intervals of it


class RealSet(NamedTuple):
    """A union of intervals such as (1,2]; the variable of its conditions, if it has one; whether it is written as one
    pair of brackets, which can also be a point or a list."""

    intervals: list[str]
    name: str = ""
    bare: bool = False


def real_set(text: str) -> RealSet | None:
    """The set that a normalised answer is; None for anything else."""
    text = text.strip(" .")
    if len(text) > _LONGEST:
        return None
    if match := _BUILDER.fullmatch(text):
        found = real_set(match["condition"])
        return RealSet(found.intervals) if found and found.name == match["name"] else None
    parts, signs = split(text, {"\\or", "\\cup"})
    if signs:
        sets = [found for part in parts[:_MOST] if (found := real_set(part))]
        names = {found.name for found in sets}
        intervals = [interval for found in sets for interval in found.intervals]
        return RealSet(intervals, names.pop()) if len(sets) == len(parts) and len(names) == 1 else None
    plain = re.sub(r"\s+", " ", re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r" \1 ", text)).strip()
    without = _WITHOUT.fullmatch(plain)
    head = without["all"] if without else plain
    if _REALS.fullmatch(head) or _ALL.fullmatch(_REALS.sub("reals", head).strip(" ,").casefold()):
        return _without(re.sub(r"\\[{}]|\\?[A-Za-z]\s*(?:=|\\ne)", " ", without["points"]) if without else "")
    return _conditions(text)


def _without(points: str, name: str = "") -> RealSet | None:
    """All numbers but some."""
    left_out = [part for part in split(points, {",", ";", "\\and"})[0] if part]
    if len(left_out) > _MOST or any(number(point) is None for point in left_out):
        return None
    ends = ["-\\infty", *sorted(left_out, key=number), "\\infty"]
    return RealSet([f"({a},{b})" for a, b in pairwise(ends)], name)


def _conditions(text: str) -> RealSet | None:
    """Bounds of one variable, or an interval."""
    operands, operators = split(text, RELATIONS)
    if operators == ["\\in"] and _VARIABLE.fullmatch(operands[0]):
        found = real_set(operands[1])
        return RealSet(found.intervals, operands[0]) if found else None
    if operators == ["\\ne"] and _VARIABLE.fullmatch(operands[0]):
        return _without(operands[1], operands[0])
    if operators and all(operator in (">", "\\ge") for operator in operators):
        operands, operators = operands[::-1], [TURNED[operator] for operator in operators[::-1]]
    if operators and (len(operators) > 2 or any(operator not in ("<", "\\le") for operator in operators)):
        return None
    if len(operators) == 1:
        variable_first = number(operands[0]) is None
        operands = ["-\\infty", *operands] if variable_first else [*operands, "\\infty"]
        operators = ["<", *operators] if variable_first else [*operators, "<"]
    if operators:
        low, name, high = operands
        brackets = ("[" if operators[0] == "\\le" else "(") + ("]" if operators[1] == "\\le" else ")")
    else:
        bounds = split(text[1:-1], {",", ";"})[0]
        if not re.fullmatch(r"[\[(\]].+[\])\[]", text) or len(bounds) != 2:
            return None
        (low, high), name = bounds, ""
        brackets = ("[" if text[0] == "[" else "(") + ("]" if text[-1] == "]" else ")")
    ends, known = [number(bound) for bound in (low, high)], not name or _VARIABLE.fullmatch(name)
    if not known or None in ends or ends[0] >= ends[1]:
        return None  # (3, 2) is a point
    bare = not operators and text[0] != "]" and text[-1] != "["
    return RealSet([f"{brackets[0]}{low},{high.removeprefix('+')}{brackets[1]}"], name, bare)
