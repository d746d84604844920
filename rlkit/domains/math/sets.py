"""Sets of real numbers, however they are written: intervals, inequalities, absolute values, points left out, words.

`1 < x \\le 3`, `(1,3]`, `\\{x : |x-2| < 1\\} \\cup \\{3\\}` are the same set of one interval.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from rlkit.domains.math.evaluate import close, exact, number, symbols, work
from rlkit.domains.math.read import Node, Unreadable, parse

RELATIONS = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"}
TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne"}
PIECE = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
OPEN = {"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"}
CLOSE = {")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"}
_ORDER = {"<", ">", "\\le", "\\ge", "\\ne"}
_NAME = re.compile(r"\\?[A-Za-z]+(?:_\{?[A-Za-z0-9]+\}?)?")
_CONSTANTS = ("\\pi", "e", "i", "\\infty")
_BUILDER = re.compile(
    r"\\\{\s*(?P<name>\\?[A-Za-z]+)\s*(?P<line>\\in\s*\\mathbb\s*\{R\}\s*)?(?:\||:|,)\s*(?P<condition>.+)\\\}"
)
_MINUS = re.compile(
    r"\s*(?:\\(?:setminus|smallsetminus|backslash)(?![A-Za-z])|-(?=\s*\\\{)|(?:\\and|,)?\s*\\except)\s*"
)
_ALL = re.compile(
    r"(?:(?:\\?[A-Za-z]\s*(?:\\in|=|is|can be|may be)?\s*)?(?:the set of )?(?:all|any|every)?\s*(?:of )?(?:the )?"
    r"(?:reals|real (?:numbers?|values?|line))(?: of \\?[A-Za-z])?"
    r"|\\?[A-Za-z] (?:is|can be) (?:real|any(?:thing| number| value))|for all (?:real )?\\?[A-Za-z]"
    r"|(?:for )?(?:all|any|every) (?:real (?:number )?\\?[A-Za-z]|(?:real )?\\?[A-Za-z] ?\\in ?reals))"
)
_EXCEPT = re.compile(r"\b(?:except(?: for)?|other than|besides|excluding|but not|but|without)\b")
_BOTH_SIGNS = re.compile(r"(\\?[A-Za-z]+\s*\\ne)\s*\\pm\s*([^,;<>=]+)$")
_LONGEST, _MOST = 2000, 60  # characters of a set; intervals of it


@dataclass(frozen=True)
class Interval:
    """From low to high, which are texts of numbers; a point is closed on both sides."""

    low: str = "-\\infty"
    high: str = "\\infty"
    low_in: bool = False
    high_in: bool = False


@dataclass(frozen=True)
class RealSet:
    """Disjoint intervals in order; those of letters as they were written. `name` is the variable, if it has one."""

    intervals: tuple[Interval, ...]
    name: str = ""
    bare: bool = False
    """Written as one pair of brackets, which can also be a point or a list."""


def split(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Parts and the separators between them, outside all brackets. Brackets of intervals need not match."""
    work().take(len(text) // 30)
    parts, found, depth, start = [], [], 0, 0
    for match in PIECE.finditer(text):
        piece = match.group()
        if piece in OPEN or piece.startswith("\\begin"):
            depth += 1
        elif piece in CLOSE or piece.startswith("\\end"):
            depth -= 1
        elif depth == 0 and piece in separators:
            parts.append(text[start : match.start()].strip())
            found.append(piece)
            start = match.end()
    return [*parts, text[start:].strip()], found


def real_set(text: str) -> RealSet | None:
    """The set that a normalised answer is; None for anything else."""
    if len(text) > _LONGEST:
        return None
    return _read(_spoken(text))


def _spoken(text: str) -> str:
    """Words in signs: `all real numbers except 2` as `\\mathbb{R} \\except 2`."""
    text = text.replace("\\forall", "for all ")
    if not re.search(r"[a-z]{3}", re.sub(r"\\[A-Za-z]+", "", text)):
        return text
    plain = re.sub(r"\\(?:text|textrm|mathrm|mbox)\s*\{([^{}]*)\}", r" \1 ", text)
    plain = re.sub(r"\s+", " ", _EXCEPT.sub(r" \\except ", plain)).strip()
    head, sign, points = plain.partition("\\except")
    if _ALL.fullmatch(head.strip(" ,.").replace("\\mathbb{R}", "reals").casefold()):
        return "\\mathbb{R}" + (f" \\except {points}" if sign else "")
    return plain if sign else text


def _read(text: str) -> RealSet | None:
    text = _BOTH_SIGNS.sub(r"\1 \2 \\and \1 -(\2)", text.strip(" ."))
    if match := _BUILDER.fullmatch(text):
        found = _read(match["condition"]) if match["name"] in match["condition"] else None
        return replace(found, name="") if found else None
    for separators, combine in (({"\\or", "\\cup"}, _union), ({"\\cap"}, _intersection)):
        parts, signs = split(text, separators)
        if signs:
            return _combined([_read(part) for part in parts], combine)
    if match := _MINUS.search(text):
        return _without(_read(text[: match.start()]), text[match.end() :])
    parts, signs = split(text, {",", ";", "\\and"})
    if signs:
        return _conditions([part for part in parts if part])
    return _single(text)


def _conditions(parts: list[str]) -> RealSet | None:
    """All of several conditions; `x \\ne 1, 2` leaves out both; disjoint ones, `x < 0, x > 1`, are alternatives."""
    if not parts:
        return None
    if "\\ne" in parts[0] and all(number(part) is not None for part in parts[1:]):
        head = parts[0].partition("\\ne")[0]
        parts = [parts[0], *(f"{head}\\ne {part}" for part in parts[1:])]
    found = [_read(part) for part in parts]
    if any(f is None or f.bare for f in found):
        return None
    both = _combined(found, _intersection)
    return both if both is None or both.intervals else _combined(found, _union)


def _combined(found: list[RealSet | None], combine: Any) -> RealSet | None:
    sets = [f for f in found if f is not None]
    names = {f.name for f in sets if f.name}
    if len(sets) != len(found) or len(names) > 1 or len(sets) > _MOST:
        return None
    result = sets[0].intervals
    for other in sets[1:]:
        result = combine(result, other.intervals)
        if result is None or len(result) > _MOST:
            return None
    return RealSet(result, next(iter(names), ""))


def _without(whole: RealSet | None, points: str) -> RealSet | None:
    points = points.strip(" .")
    if points.startswith("\\{") and points.endswith("\\}"):
        points = points[2:-2]
    listed = [
        re.sub(r"^\\?[A-Za-z]\s*(?:=|\\ne)\s*", "", p)
        for p in split(points, {",", ";", "\\and", "\\or"})[0]
        if p
    ]
    if whole is None or not listed or (len(listed) > 1 and any(number(p) is None for p in listed)):
        return None
    for point in listed:
        result = _intersection(whole.intervals, (Interval(high=point), Interval(low=point)))
        if result is None:
            return None
        whole = RealSet(result, whole.name)
    return whole


def _single(text: str) -> RealSet | None:
    if text in ("\\mathbb{R}", "\\mathbb {R}"):
        return RealSet((Interval(),))
    operands, operators = split(text, RELATIONS)
    if operators == ["\\in"]:
        found = _read(operands[1])
        return (
            replace(found, name=operands[0], bare=False) if found and _NAME.fullmatch(operands[0]) else None
        )
    if operators:
        return _chain(operands, operators) if set(operators) <= _ORDER and all(operands) else None
    if text.startswith("\\{") and text.endswith("\\}"):
        points = split(text[2:-2], {",", ";"})[0]
        if not all(points) or "\\ldots" in points or any("," in point for point in points):
            return None
        return _combined([RealSet((Interval(p, p, True, True),), bare=True) for p in points], _union)
    if len(text) > 2 and text[0] in "[(]" and text[-1] in "])[":
        bounds = split(text[1:-1], {",", ";"})[0]
        if len(bounds) == 2 and all(bounds):
            low, high = (re.sub(r"^\+\s*(?=\\infty)", "", bound) for bound in bounds)
            if (sizes := _sizes(Interval(low, high))) and sizes[0] > sizes[1]:
                return None  # (3, 2) is a point
            return RealSet((Interval(low, high, text[0] == "[", text[-1] == "]"),), bare=True)
    return None


def _chain(operands: list[str], operators: list[str]) -> RealSet | None:
    found = [_inequality(*pair) for pair in zip(operands, operators, operands[1:], strict=False)]
    return _combined(found, _intersection)


def _inequality(left: str, operator: str, right: str) -> RealSet | None:
    """One condition on one variable: bare, linear, or the absolute value of either."""
    if linear(left) is None:
        left, operator, right = right, TURNED[operator], left
    variable = linear(left)
    if variable is None or linear(right) is not None:
        return None
    name, slope, constant, absolute = variable
    bounds = [(operator, right)]
    if absolute:
        size = number(right)
        if size is None or size < 0:
            return None
        bounds.append((TURNED[operator], f"-({right})"))
    sets: list[RealSet | None] = []
    for sign, bound in bounds:
        if (slope, constant) != (1, 0):
            bound = f"(({bound})-({constant}))/({slope})"
        sets.append(RealSet(_ray(sign if slope > 0 else TURNED[sign], bound), name))
    if len(sets) == 1:
        return sets[0]
    return _combined(sets, _union if operator in (">", "\\ge") else _intersection)


def _ray(operator: str, bound: str) -> tuple[Interval, ...]:
    if operator == "\\ne":
        return (Interval(high=bound), Interval(low=bound))
    if operator in ("<", "\\le"):
        return (Interval(high=bound, high_in=operator == "\\le"),)
    return (Interval(low=bound, low_in=operator == "\\ge"),)


def linear(text: str) -> tuple[str, Fraction, Fraction, bool] | None:
    """(name, slope, constant, absolute) of x, 2x-1 or |x-3|."""
    text = text.strip()
    if _NAME.fullmatch(text) and text not in _CONSTANTS:
        return text, Fraction(1), Fraction(0), False
    absolute = len(text) > 2 and text[0] == text[-1] == "|" and "|" not in text[1:-1]
    try:
        node = parse(text[1:-1] if absolute else text)
        names = symbols(node)
    except (Unreadable, RecursionError):
        return None
    if len(names) != 1:
        return None
    name = names.pop()
    values = [exact(_at(node, name, Fraction(x))) for x in (0, 1, 2, 5)]
    if any(v is None for v in values):
        return None
    constant, slope = values[0], values[1] - values[0]  # type: ignore[operator]
    linear = slope and values[2] == constant + 2 * slope and values[3] == constant + 5 * slope  # type: ignore[operator]
    spelled = name if len(name) == 1 else f"\\{name}"
    return (spelled, slope, constant, absolute) if linear else None  # type: ignore[return-value]


def _at(node: Any, name: str, at: Fraction) -> Node:
    if not isinstance(node, tuple):
        return node
    return ("num", at) if node == ("sym", name) else tuple(_at(part, name, at) for part in node)


def _intersection(a: tuple[Interval, ...], b: tuple[Interval, ...]) -> tuple[Interval, ...] | None:
    found = []
    for x in a:
        for y in b:
            low = _bound(x.low, x.low_in, y.low, y.low_in, 1)
            high = _bound(x.high, x.high_in, y.high, y.high_in, -1)
            if low is None or high is None:
                return None
            both = Interval(low[0], high[0], low[1], high[1])
            if _sizes(both) is None or not _empty(both):
                found.append(both)
    return tuple(found)


def _bound(a: str, a_in: bool, b: str, b_in: bool, side: int) -> tuple[str, bool] | None:
    """The inner one of two lower (side 1) or upper (side -1) bounds; None where their order is not known."""
    infinite = "-\\infty" if side == 1 else "\\infty"
    if infinite in (a, b) or a == b:
        return (b, b_in) if a == infinite else (a, a_in if a != b else a_in and b_in)
    x, y = number(a), number(b)
    if x is None or y is None:
        return None
    if close(x, y):
        return a, a_in and b_in
    return (a, a_in) if (x - y) * side > 0 else (b, b_in)


def _sizes(interval: Interval) -> tuple[Any, Any] | None:
    low, high = number(interval.low), number(interval.high)
    return None if low is None or high is None else (low, high)


def _empty(interval: Interval) -> bool:
    sizes = _sizes(interval)
    if sizes is None:
        return False
    low, high = sizes
    return bool(low > high or close(low, high)) and not (
        close(low, high) and interval.low_in and interval.high_in
    )


def _union(a: tuple[Interval, ...], b: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """In order and merged where they touch; as they are where their order is not known."""
    together = [i for i in (*a, *b) if not _empty(i)]
    if any(_sizes(i) is None for i in together):
        return tuple(together)
    merged: list[Interval] = []
    for item in sorted(together, key=lambda i: (number(i.low), not i.low_in)):
        last = merged[-1] if merged else None
        if last is None or not _touch(last, item):
            merged.append(item)
            continue
        x, y = number(last.high), number(item.high)
        if close(x, y):
            merged[-1] = replace(last, high_in=last.high_in or item.high_in)
        elif y > x:
            merged[-1] = replace(last, high=item.high, high_in=item.high_in)
    return tuple(merged)


def _touch(a: Interval, b: Interval) -> bool:
    x, y = number(a.high), number(b.low)
    return (a.high_in or b.low_in) if close(x, y) else bool(x > y)
