"""Sets of real numbers: intervals, inequalities, absolute values, points left out, words."""

import operator
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import mpmath

from rlkit.domains.math.parse import split
from rlkit.domains.math.values import DIGITS, close, number

RELATIONS = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"}
_HOLDS = {
    "<": operator.lt, ">": operator.gt, "\\le": operator.le, "\\ge": operator.ge, "=": operator.eq, "\\ne": operator.ne,
}  # fmt: skip
TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
_VARIABLE = re.compile(r"[A-Za-z]+(?:_[A-Za-z0-9])?")
_BUILDER = re.compile(
    r"\\\{\s*(?P<name>\\?[A-Za-z]+)\s*(?:\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:|,)\s*(?P<condition>.+)\\\}"
)
_MINUS = re.compile(r"\s*(?:\\(?:setminus|smallsetminus|backslash)(?![A-Za-z])|-(?=\s*\\\{)|\\except)\s*")
_ALL = re.compile(
    r"(?:\\?[A-Za-z]\s*(?:\\in|=|is|can be)\s*)?(?:the set of )?(?:all|any|every)?\s*(?:of )?(?:the )?"
    r"(?:reals|real (?:numbers?|values?|line))(?: of \\?[A-Za-z])?"
)
_EXCEPT = re.compile(r"\b(?:except(?: for)?|other than|excluding|but not)\b")
_MEMBER = "\\omicron"  # the variable of a set that names none
_LONGEST, _MOST = 2000, 60  # characters of a set; parts of it


class RealSet(NamedTuple):
    """Which real numbers belong to it, and the numbers between which that does not change."""

    contains: Callable[[Any], bool]
    ends: tuple[Any, ...] = ()
    name: str = ""
    """The variable of its conditions, if it has one."""
    bare: bool = False
    """Written as one pair of brackets, which can also be a point or a list."""


def same_set(a: RealSet, b: RealSet) -> bool:
    with mpmath.workdps(DIGITS):
        named_apart = a.name and b.name and a.name != b.name
        return not named_apart and all(a.contains(x) == b.contains(x) for x in _probes(a.ends + b.ends))


def _probes(ends: tuple[Any, ...]) -> list[Any]:
    """The ends of intervals, and a number in each of them."""
    finite = sorted(x for x in ends if mpmath.isfinite(x)) or [mpmath.mpf(0)]
    outside = [finite[0] - 1 - abs(finite[0]), finite[-1] + 1 + abs(finite[-1])]
    return [*finite, *((x + y) / 2 for x, y in pairwise(finite)), *outside]


def real_set(text: str) -> RealSet | None:
    """The set that a normalised answer is; None for anything else."""
    if len(text) > _LONGEST:
        return None
    with mpmath.workdps(DIGITS):
        return _read(_spoken(text))


def _spoken(text: str) -> str:
    """Words in signs: `all real numbers except 2` as `\\mathbb{R} \\except 2`."""
    if not re.search(r"[a-z]{3}", re.sub(r"\\[A-Za-z]+", "", text)):
        return text
    plain = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r" \1 ", text)
    plain = re.sub(r"\s+", " ", _EXCEPT.sub(r" \\except ", plain)).strip()
    head, sign, points = plain.partition("\\except")
    if _ALL.fullmatch(head.strip(" ,.").replace("\\mathbb{R}", "reals").casefold()):
        return "\\mathbb{R}" + sign + points
    return plain if sign else text


def _read(text: str) -> RealSet | None:
    text = text.strip(" .")
    if match := _BUILDER.fullmatch(text):
        found = _read(match["condition"]) if match["name"] in match["condition"] else None
        return found._replace(name="") if found else None
    for separators, combine in (({"\\or", "\\cup"}, any), ({"\\cap"}, all)):
        parts, signs = split(text, separators)
        if signs:
            return _combined([_read(part) for part in parts], combine)
    if match := _MINUS.search(text):
        points = re.sub(r"\\?[A-Za-z]\s*(?:=|\\ne)", "", text[match.end() :])
        left_out = _read(points if points.startswith("\\{") else f"\\{{{points}\\}}")
        whole = _read(text[: match.start()])
        return _combined([whole, left_out], lambda inside: next(inside) and not next(inside))
    parts, signs = split(text, {",", ";", "\\and"})
    if not signs:
        return _single(text)
    found = [_read(part) for part in parts if part]
    both = _combined([None if f is None or f.bare else f for f in found], all)
    return both if both and any(map(both.contains, _probes(both.ends))) else None  # x < 0, x > 1 is no set


def _combined(found: list[RealSet | None], combine: Callable[[Iterator[bool]], bool]) -> RealSet | None:
    sets = [f for f in found if f is not None]
    names = {f.name for f in sets if f.name}
    if not 0 < len(sets) == len(found) <= _MOST or len(names) > 1:
        return None
    ends = tuple(x for f in sets for x in f.ends)
    return RealSet(lambda x: combine(f.contains(x) for f in sets), ends, next(iter(names), ""))


def _single(text: str) -> RealSet | None:
    if re.fullmatch(r"\\mathbb ?\{R\}", text):
        return RealSet(lambda x: True)
    operands, operators = split(text, RELATIONS)
    if operators == ["\\in"]:
        found, name = _read(operands[1]), operands[0].removeprefix("\\")
        return found._replace(name=name, bare=False) if found and _VARIABLE.fullmatch(name) else None
    if operators:
        return None if "=" in operators else _chain(operands, operators)
    if text.startswith("\\{") and text.endswith("\\}"):
        points = [part for part in split(text[2:-2], {",", ";", "\\and"})[0] if part]
        found = _combined([_inequality(_MEMBER, "=", point) for point in points], any)
        return found._replace(name="", bare=True) if found else None
    bounds = split(text[1:-1], {",", ";"})[0]
    if not re.fullmatch(r"[\[(\]].+[\])\[]", text) or len(bounds) != 2:
        return None
    found = _chain(
        [bounds[0], _MEMBER, bounds[1].removeprefix("+")],
        ["\\le" if text[0] == "[" else "<", "\\le" if text[-1] == "]" else "<"],
    )
    if found is None or not any(map(found.contains, _probes(found.ends))):
        return None  # (3, 2) is a point
    return found._replace(name="", bare=text[0] != "]" and text[-1] != "[")


def _chain(operands: list[str], operators: list[str]) -> RealSet | None:
    pairs = zip(operands, operators, operands[1:], strict=False)
    return _combined([_inequality(*pair) for pair in pairs], all)


def _inequality(left: str, sign: str, right: str) -> RealSet | None:
    """One bound of a variable."""
    if _VARIABLE.fullmatch(right.removeprefix("\\")) and number(right) is None:
        left, sign, right = right, TURNED.get(sign, sign), left
    holds, name, bound = _HOLDS[sign], left.removeprefix("\\"), number(right)
    if bound is None or number(left) is not None or not _VARIABLE.fullmatch(name):
        return None
    return RealSet(lambda x: holds(0 if close(x, bound) else x - bound, 0), (bound,), name)
