"""Reading a final answer into what it is: a tuple, a set, a relation, a matrix, a quantity, text …

`read` gives every sensible reading, the likeliest first; most answers have one.
"""

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlkit.domains.math.units import is_generic, split_unit

_OPENING = re.compile(r"\\\{|\\(?:langle|lfloor|lceil)(?![A-Za-z])|[(\[{]")
_PIECE = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPEN = {"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"}
_CLOSE = {")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"}
_RELATION = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx"}
_ENVIRONMENT = re.compile(
    r"(?P<open>\[|\(|\\\{|\|)?\s*\\begin\s*\{(?P<name>[a-zA-Z]*matrix|array|cases)\}\s*(?:\{[lcr| ]*\})?"
    r"(?P<body>.*)\\end\s*\{(?P=name)\}\s*(?P<close>\]|\)|\\\}|\|)?",
    re.DOTALL,
)
_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathsf|mbox|operatorname|textsf|emph|rm)(?![A-Za-z])\s*"
)
_WRAPPED = re.compile(_TEXT.pattern + r"\{(?P<inner>[^{}]*)\}")
_TIME = re.compile(r"(?P<clock>\d{1,2}:\d{2}(?::\d{2})?)\s*(?P<half>[ap])?\.?\s?(?(half)m\.?)", re.IGNORECASE)
_BASED = re.compile(
    r"\(?(?P<digits>[0-9][0-9A-Za-z]*|[A-Fa-f][0-9A-Fa-f]*(?=\)?\s*_\s*\{?\s*16))\)?\s*_\s*(?:\{\s*(?P<a>\d+)\s*\}|(?P<b>\d+)"
    r"|[{\s]*(?P<c>two|three|four|five|six|seven|eight|nine|ten|twelve|sixteen)[\s}]*)"
)
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
               "nine": "9", "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_COUNTED.split())}
_FRENCH = re.compile(r"([\[\]])([^,;\[\]]+)[,;]([^,;\[\]]+)([\[\]])")
_MONTHS = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b", re.IGNORECASE)
_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\(?:mathrm|text|mathbf|operatorname)\s*\{[^{}]*\})'*(?:_\{?[A-Za-z0-9, +-]*\}?)?"
    r"(?:\s*\(\s*[A-Za-z0-9, ]+\s*\))?|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\)"
)
_THOUSANDS = re.compile(r"\$?-?\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?")


@dataclass
class Value:
    text: str


@dataclass
class Expression(Value):
    """A number or formula."""


@dataclass
class Opaque(Value):
    """Notation that is compared as it is written."""


@dataclass
class Text(Value):
    """Words, without their typography."""

    date: datetime.date | None = None


@dataclass
class Time(Value):
    """A time of day; `half` is "a", "p" or "" where it is left out."""

    clock: str
    half: str


@dataclass
class Items(Value):
    """Parts in brackets, or a bare list (no brackets); intervals are Items of two."""

    opening: str
    closing: str
    parts: list[str]

    @property
    def unordered(self) -> bool:
        return self.opening in ("", "\\{")


@dataclass
class Union(Value):
    parts: list[str]


@dataclass
class Relation(Value):
    """operands[0] operators[0] operands[1] …"""

    operands: list[str]
    operators: list[str]

    def reversed(self, flipped: Mapping[str, str]) -> "Relation":
        return Relation(self.text, self.operands[::-1], [flipped.get(o, o) for o in self.operators[::-1]])

    def variable(self) -> str:
        return next((o for o in self.operands if is_name(o) and o != "\\infty"), "")


@dataclass
class Matrix(Value):
    kind: str
    rows: list[list[str]]


@dataclass
class Cases(Value):
    rows: list[list[str]]


@dataclass
class Quantity(Value):
    """A number and its unit; `text` is the number."""

    unit: str

    @property
    def number(self) -> str:
        return self.text


@dataclass
class Based(Value):
    """Digits with the base as a subscript."""

    digits: str
    base: int


@dataclass
class Ratio(Value):
    parts: list[str]


def is_name(text: str) -> bool:
    """A symbol or a function's left side: x, a_n, f(x), \\mathrm{Area}."""
    return _NAME.fullmatch(text.strip()) is not None and text.strip() not in ("\\pi", "e", "i", "\\infty")


def split(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Parts and the separators between them, outside all brackets. Brackets of intervals need not match."""
    parts, found, depth, start = [], [], 0, 0
    for match in _PIECE.finditer(text):
        piece = match.group()
        if piece in _OPEN or piece.startswith("\\begin"):
            depth += 1
        elif piece in _CLOSE or piece.startswith("\\end"):
            depth -= 1
        elif depth == 0 and piece in separators:
            parts.append(text[start : match.start()].strip())
            found.append(piece)
            start = match.end()
    return [*parts, text[start:].strip()], found


def read(text: str) -> list[Value]:
    """Every reading of a normalised answer."""
    text = text.strip()
    if (match := _WRAPPED.fullmatch(text)) and re.search(r"\d", match["inner"]):
        text = match["inner"].strip()
    return list(_readings(text)) or [Opaque(text)]


def _readings(text: str) -> Iterator[Value]:
    if match := _ENVIRONMENT.fullmatch(text):
        yield _environment(match)
        return
    if _MONTHS.search(text) and (day := _date(words := re.sub(r"[{}\\~,]", " ", _TEXT.sub("", text)))):
        yield Text(words, day)
        return
    if _THOUSANDS.fullmatch(text):
        yield Expression(text.replace(",", "").lstrip("$"))
    if "\\pm" in text or "\\mp" in text:
        plus = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", text))
        minus = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", text))
        yield Items(text, "\\{", "\\}", [_tidy(plus), _tidy(minus)])
        return
    if len(parts := _list(text)) > 1:
        yield Items(text, "", "", parts)
        return
    if len(parts := split(text, {"\\cup"})[0]) > 1:
        yield Union(text, parts)
        return
    yield from _single(text)


def _single(text: str) -> Iterator[Value]:
    """Readings of what is no list."""
    operands, operators = split(text, _RELATION)
    if operators:
        if operators == ["\\in"] or all(operands):
            yield Relation(text, operands, operators)
        return
    if bracketed := _bracketed(text):
        yield bracketed
        return
    if text == "\\mathbb{R}":
        yield Items(text, "(", ")", ["-\\infty", "\\infty"])
        return
    if match := _TIME.fullmatch(re.sub(r"[{}~]", "", _TEXT.sub("", text))):
        yield Time(text, match["clock"], (match["half"] or "").lower())
    if text == "\\emptyset":
        yield Items(text, "\\{", "\\}", [])
        return
    if match := _BASED.fullmatch(re.sub(r"^\{(\w+)\}", r"\1", _TEXT.sub("", text))):
        base = match["a"] or match["b"] or _BASE_WORDS[match["c"]]
        yield Based(text, match["digits"], int(base))
        return
    if len(parts := split(text, {":"})[0]) > 1 and all(parts):
        yield Ratio(text, parts)
        return
    yield from _plain(text)


def _plain(text: str) -> Iterator[Value]:
    words = _words(text)
    if words is not None:
        if words in _NUMBER_WORDS:
            yield Expression(_NUMBER_WORDS[words])
        if words == "infinity":
            yield Expression("\\infty")
        if len(words) > 1 or not text.isalpha():
            yield Text(words, _date(words))
            return
    number, unit = split_unit(text)
    if unit:
        yield Quantity(number, "" if is_generic(unit) else unit)
        if not unit.isalpha() or len(unit) > 1:
            return
    yield Expression(text)


def _tidy(text: str) -> str:
    return re.sub(r"^\s*\+\s*", "", text)


def _list(text: str) -> list[str]:
    """The parts of a bare list: at commas, semicolons, "and", "or"."""
    parts, found = split(text, {",", ";", "\\and", "\\or"})
    spaced = ", " in text or ";" in found or "\\or" in found or "\\and" in found
    if spaced and "," in found:  # 1,000, 2,000: a comma between groups of three digits is no separator
        hidden = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "\0", text)
        parts = [p.replace("\0", "") for p in split(hidden, {",", ";", "\\and", "\\or"})[0]]
    return [part for part in parts if part] if found else [text]


def _bracketed(text: str) -> Items | None:
    """(a, b), [a, b), ]a, b[, \\{a, b\\}, \\langle a, b\\rangle as a whole; round brackets need a comma."""
    if french := _FRENCH.fullmatch(text):
        text = f"{'[' if french[1] == '[' else '('}{french[2]},{french[3]}{']' if french[4] == ']' else ')'}"
    opening = _OPENING.match(text)
    closing = re.search(r"(\\\}|\\rangle|[)\]])$", text)
    if not opening or not closing or opening.end() > closing.start() or not _wraps(text):
        return None
    inner = text[opening.end() : closing.start()].strip()
    if "|" in inner and opening.group() == "\\{":
        return None  # a set described by a condition
    parts = [p for p in _list(inner) if p]
    start = {"\\langle": "("}.get(opening.group(), opening.group())
    end = {"\\rangle": ")"}.get(closing.group(), closing.group())
    if len(parts) < 2 and start != "\\{":
        return None
    return Items(text, start, end, parts)


def _wraps(text: str) -> bool:
    """Whether the first bracket closes at the very end."""
    depth = 0
    for match in _PIECE.finditer(text):
        depth += (match.group() in _OPEN) - (match.group() in _CLOSE)
        if depth == 0:
            return match.end() == len(text)
    return False


def _environment(match: re.Match[str]) -> Value:
    rows = [row for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", match["body"]) if row.strip()]
    cells = [[cell.strip(" ,;.") for cell in row.split("&")] for row in rows]
    if match["name"] == "cases" or match["open"] == "\\{":
        return Cases(match.group(), [[_condition(cell) for cell in row] for row in cells])
    determinant = match["name"] == "vmatrix" or match["open"] == "|"
    return Matrix(match.group(), "determinant" if determinant else "matrix", cells)


def _condition(cell: str) -> str:
    return re.sub(r"^\s*(?:if|for|when|where)\b", "", _TEXT.sub("", cell).replace("{", " ").replace("}", " ")
                  if re.match(r"\\(?:text|mbox)", cell) else cell).strip(" ,;.")  # fmt: skip


def _words(text: str) -> str | None:
    """The plain lower-case words if the answer is text, else None."""
    bare = _TEXT.sub("", text)
    if bare == text and not re.fullmatch(r"[A-Za-z][A-Za-z' .-]*", text):
        return None
    bare = re.sub(r"[{}\\~$\"]", " ", bare)
    bare = re.sub(r"\\?(and|or)\b", r"\1", bare)
    if not re.fullmatch(r"[\s(]*[A-Za-zÀ-ɏ(][^=<>+*/^_]*", bare) or (
        re.search(r"\d\s*[A-Za-z]*$", bare) and not _MONTHS.search(bare)
    ):
        return None
    words = re.sub(r"[\s.,;:!?'()-]+", " ", bare).strip().casefold()
    if text == bare and not (
        len(words) == 1 or (len(words.replace(" ", "")) >= 3 and re.search(r"[aeiouy]", words))
    ):
        return None
    return words or None


def _date(words: str) -> datetime.date | None:
    if not _MONTHS.search(words) or not re.search(r"\d", words):
        return None
    from dateutil import parser

    try:
        return parser.parse(words).date()
    except (ValueError, OverflowError):
        return None


def as_interval(text: str) -> str | None:
    """`0 < x \\le 3` as `(0,3]`, `x > 1` as `(1,\\infty)`; None for anything else."""
    operands, operators = split(text, _RELATION)
    if len(operators) == 1 and operators[0] in ("<", ">", "\\le", "\\ge"):
        left, right = operands
        if is_name(right) and not is_name(left):
            left, right, operators = right, left, [_TURNED[operators[0]]]
        if not is_name(left):
            return None
        return {
            "<": f"(-\\infty,{right})", "\\le": f"(-\\infty,{right}]",
            ">": f"({right},\\infty)", "\\ge": f"[{right},\\infty)",
        }[operators[0]]  # fmt: skip
    if len(operators) == 2 and is_name(operands[1]):
        if set(operators) <= {">", "\\ge"}:
            operands, operators = operands[::-1], [_TURNED[o] for o in operators[::-1]]
        if set(operators) <= {"<", "\\le"}:
            opening, closing = "(["[operators[0] == "\\le"], ")]"[operators[1] == "\\le"]
            return f"{opening}{operands[0]},{operands[2]}{closing}"
    return None


_TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
