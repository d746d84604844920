"""Which forms an answer has: a number with its unit, words, a group of parts, a relation; a set of real numbers."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rlkit.domains.math import units, values
from rlkit.domains.math.parse import is_wrapped, split
from rlkit.domains.math.units import Amount
from rlkit.domains.math.values import number
from rlkit.domains.table import NUMBERS


class Group(NamedTuple):
    """Parts in brackets: "()", "[)", "{}" …; "" for a bare list, "cup" for a union, ":" for a ratio, and "matrix" and
    "determinant", whose parts are rows such as (1,2)."""

    brackets: str
    parts: list[str]


class Relation(NamedTuple):
    """operands[0] operators[0] operands[1] …"""

    operands: list[str]
    operators: list[str]


Form = Amount | str | Group | Relation
"""A text is plain words in lower case, without typography."""

_SEPARATORS = {",", ";", "\\and", "\\or"}
_FONT = re.compile(r"\\(?:text|mathrm)(?![A-Za-z])\s*")
_IN_FONT = re.compile(_FONT.pattern + r"\{([^{}]*)\}")
_SYMBOL = (
    r"(?:m\s*)?(?:\\?[A-Za-z]+|\\(?:mathrm|text|mathcal)\s*\{[^{}]*\}"
    r"|\\(?:overline|vec|hat|bar|tilde|overrightarrow|widehat)\s*\{?\s*[A-Za-z]+\s*\}?)"
)
_NAME = re.compile(
    rf"\|?{_SYMBOL}'*(?:_(?:\{{[^{{}}]*\}}|\\?[A-Za-z0-9]+))?(?:\^\{{?-1\}}?|\^\\circ|'+)?"
    rf"(?:\s*[(\[]\s*[A-Za-z0-9, ]+\s*[)\]])?\|?"
    r"|\\?(?:sin|cos|tan|cot|sec|csc|log|ln|max|min|gcd|lcm|angle|triangle|deg|det|dim|Pr?|E|Var)"
    r"\s*(?:_\{[^{}]*\})?\s*(?:\\angle\s*)?\\?[A-Za-z]+|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\)|\[\s*[A-Z]+\s*\]"
)
_ENVIRONMENT = re.compile(
    r"(?P<open>\\det|\[|\(|\|)?\s*\\begin\s*\{(?P<name>[a-zA-Z]*matrix|array)\}\s*"
    r"(?:\{[lcr| ]*\})?(?P<body>.*)\\end\s*\{(?P=name)\}\s*(?:\]|\)|\|)?",
    re.DOTALL,
)
_BRACKETS = re.compile(r"(\\\{|\\langle(?![A-Za-z])|[(\[{])(.*?)(\\\}|\\rangle|[)\]}])", re.DOTALL)
_THOUSANDS = re.compile(
    r"(\$?-?\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?)(?=$|\s*(?:\\(?:text|mathrm)(?![a-z])|[A-Za-z]))"
)
_TIME = re.compile(r"0*(\d{1,2}:\d{2}(?::\d{2})?)(?:([ap])\.?m\.?)?", re.IGNORECASE)
_NOTHING = re.compile(
    r"(?:there (?:is|are|exists?) )?(?:no (?:(?:real|integer|such|positive|valid|possible|integral) )*"
    r"(?:solutions?|roots?|values?|numbers?|integers?|answers?|triples?|pairs?|functions?)(?: exists?)?"
    r"|none(?: exists?)?|(?:the )?(?:empty|null) set)|(?:solutions?|roots?) do(?:es)? not exist"
)
_SYNONYMS = {
    "does not exist": "dne", "limit does not exist": "dne", "the limit does not exist": "dne",
    "infinitely many solutions": "infinitely many", "infinite solutions": "infinitely many",
}  # fmt: skip
_MONTH = re.compile(
    r"(jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)(?:uary|ruary|ch|il|ust|t?(?:em)?ber|ober)?"
)
_UNKNOWNS = re.compile(r"[A-Za-z](?:\^\d)?(?: [A-Za-z](?:\^\d)?)*")


def read_forms(text: str) -> list[Form]:
    """Every sensible reading of a normalised answer, the likeliest first; most have one."""
    text = text.strip()
    if (match := _IN_FONT.fullmatch(text)) and re.search(r"\d|[A-Z]\s*,\s*[A-Z](?![a-z])", match[1]):
        text = match[1].strip()
    return list(_readings(text))


def _readings(text: str) -> Iterator[Form]:
    if "\\equiv" in text and "\\mod" in text:
        text = text.replace("\\equiv", "=")
    if match := _ENVIRONMENT.fullmatch(text):
        yield from _environment(match)
    elif date := _date(text):
        yield date
    elif "\\pm" in text or "\\mp" in text:
        first, second = (
            re.sub(r"\\(pm|mp)(?![A-Za-z])", lambda m, up=up: "+" if m[1] == up else "-", text)
            for up in ("pm", "mp")
        )
        yield Group("{}", [part.strip().removeprefix("+").strip() for part in (first, second)])
    elif whole := units.compound(text := _THOUSANDS.sub(lambda m: m[1].replace(",", ""), text, count=1)):
        yield whole
    elif len(parts := _list(text)) > 1:
        yield Group("", parts)
    elif len(parts := split(text, {"\\cup"})[0]) > 1:
        yield Group("cup", parts)
    elif len((found := split(text, RELATIONS))[0]) > 1:
        if found[1] == ["\\in"] or all(found[0]):
            yield Relation(*found)
    elif bracketed := _bracketed(text):
        yield bracketed
    else:
        yield from _single(text)


def _environment(match: re.Match[str]) -> Iterator[Form]:
    rows = [row for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", match["body"]) if row.strip()]
    cells = [[cell.strip(" ,;.") for cell in row.split("&")] for row in rows]
    kind = "determinant" if match["name"] == "vmatrix" or match["open"] in ("|", "\\det") else "matrix"
    yield Group(kind, [f"({','.join(row)})" for row in cells])
    if kind == "matrix" and all(len(row) == 1 for row in cells) and len(cells) > 1:
        yield Group("()", [row[0] for row in cells])  # a column vector as a point


def _date(text: str) -> str | None:
    """`5th of May 2020` as `2020 5 may`; None without a month in letters and a day or year."""
    if len(text) > 60 or not re.search(r"\d", text):
        return None
    words = re.findall(r"[a-z]+|\d+", _FONT.sub("", text).casefold())
    words = [month[1] if (month := _MONTH.fullmatch(word)) else word for word in words]
    found = [word for word in words if word not in ("of", "the", "st", "nd", "rd", "th")]
    dated = sum(map(str.isdecimal, found)) == len(found) - 1 < 3 and any(map(_MONTH.fullmatch, found))
    return " ".join(sorted(found)) if dated and re.fullmatch(r"[\w\s,.{}\\]*", text) else None


def _list(text: str) -> list[str]:
    """The parts of a bare list: at commas, semicolons, "and", "or"."""
    parts, found = split(text, _SEPARATORS)
    if "," in found and (", " in text or len(set(found)) > 1):  # in 1,000, 2,000 a comma is part of a number
        hidden = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "\0", text)
        parts = [part.replace("\0", "") for part in split(hidden, _SEPARATORS)[0]]
    return [part for part in parts if part] if found else [text]


def _bracketed(text: str) -> Group | None:
    """(a, b), [a, b), \\{a, b\\}, \\langle a, b\\rangle as a whole; all but a set's need a comma."""
    match = _BRACKETS.fullmatch(text)
    if match is None or not is_wrapped(text):
        return None
    start, inner, end = match[1].removeprefix("\\"), match[2].strip(), match[3].removeprefix("\\")
    brackets = {"langle": "("}.get(start, start) + {"rangle": ")"}.get(end, end)
    parts = [part for part in _list(inner) if part]
    if ("|" in inner) if match[1] == "\\{" else len(parts) < 2:
        return None  # a set described by a condition; an expression in brackets
    if brackets == "[]" and all(part.startswith("[") and part.endswith("]") for part in parts):
        return Group("matrix", [f"({part[1:-1]})" for part in parts])
    return Group(brackets, parts)


def _single(text: str) -> Iterator[Form]:
    """Readings of what has no parts."""
    plain = _FONT.sub("", text)
    if match := _TIME.fullmatch(re.sub(r"[{}~\s]", "", plain)):  # without a.m. or p.m. it is either
        yield from (f"{match[1]} {half}m" for half in (match[2] or "ap").lower())
        return
    if text == "\\emptyset":
        yield Group("{}", [])
        return
    if len(parts := split(text, {":"})[0]) > 1 and all(parts):
        yield Group(":", parts)
        ratio = f"({parts[0]})/({parts[1]})"
        if len(parts) == 2 and not values.same_expression(ratio, rf"\lfloor {ratio} \rfloor"):
            yield Amount(ratio)  # 2:1 is no way to write 2
        return
    words = _words(text)
    if words and (count := NUMBERS.get(words.replace(" ", "-"))) is not None:
        yield Amount(str(count))
    if words == "infinity":
        yield Amount("\\infty")
    if words is not None and _NOTHING.fullmatch(words):
        yield Group("{}", [])
    if words is not None and (len(words) > 1 or not text.isalpha()):
        yield _SYNONYMS.get(words, words)
        return
    amount = units.split_unit(text)
    yield amount
    if _UNKNOWNS.fullmatch(amount.unit):  # 3 m is also 3 times m
        yield Amount(text)


def _words(text: str) -> str | None:
    """The plain lower-case words if the answer is text, else None."""
    bare = _FONT.sub("", text)
    marked = bare != text
    if not marked and not re.fullmatch(r"[A-Za-z](?!'+$)[A-Za-z' .-]*", text):
        return None
    if re.search(r"\\(?:frac|sqrt|pi)(?![A-Za-z])", bare):
        return None  # a formula and its unit
    bare = re.sub(r"\\(and|or)\b", r"\1", re.sub(r"[{}~$\"]", " ", bare)).replace("\\", " ")
    if not re.fullmatch(r"[\s(]*[A-Za-zÀ-ɏ][^=<>+*/^_]*", bare) or re.search(r"\d\s{0,3}[A-Za-z]*$", bare):
        return None
    words = re.sub(r"[\s.,;:!?'()-]+", " ", bare).strip()
    spoken = re.search(r"[aeiouyAEIOUY]", words) and len(words.replace(" ", "")) >= 3
    # HTT: tosses in their order
    spoken = spoken or words.casefold() == "no" or re.fullmatch("[A-Z]{3,}", words)
    if not words or not (marked or spoken or len(words) == 1):
        return None
    return words.casefold() if len(words) > 1 else words


def is_name(text: str) -> bool:
    """A symbol, a function's left side or a named quantity: x, a_n, f(x), \\mathrm{Area}, \\overline{AB}, \\cos A."""
    text = text.strip()
    return len(text) < 60 and _NAME.fullmatch(text) is not None and text not in ("\\pi", "e", "i", "\\infty")


# Sets of real numbers as intervals: inequalities, points left out, words.

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
