"""Reading a final answer into what it is: a tuple, a set, a relation, a matrix, a quantity, text …

`read` gives every sensible reading, the likeliest first; most answers have one.
"""

import re
from collections.abc import Iterator

from rlkit.domains.math.counting import counted
from rlkit.domains.math.kinds import (
    CLOSE,
    OPEN,
    PIECE,
    Based,
    Cases,
    Expression,
    Items,
    Matrix,
    Opaque,
    Quantity,
    Ratio,
    Relation,
    Text,
    Time,
    Union,
    Value,
    split,
)
from rlkit.domains.math.sets import RELATIONS, plain
from rlkit.domains.math.units import is_generic, split_unit

_OPENING = re.compile(r"\\\{|\\(?:langle|lfloor|lceil)(?![A-Za-z])|[(\[{]")
_ENVIRONMENT = re.compile(
    r"(?P<open>\\det|\[|\(|\\\{|\|)?\s*\\begin\s*\{(?P<name>[a-zA-Z]*matrix|array|cases)\}\s*(?:\{[lcr| ]*\})?"
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
_NO_PART_OF_A_DATE = re.compile(
    r"\b(?:of|the|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b|[,.]", re.IGNORECASE
)
_LETTERS = re.compile(r"(?:[A-Za-z](?:\^\d)?\s*)(?:\s[A-Za-z](?:\^\d)?)*")  # units, or unknowns multiplied
_THOUSANDS = re.compile(r"\$?-?\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?")


def read(text: str) -> list[Value]:
    """Every reading of a normalised answer."""
    text = text.strip()
    if (match := _WRAPPED.fullmatch(text)) and re.search(r"\d|[A-Z]\s*,\s*[A-Z](?![a-z])", match["inner"]):
        text = match["inner"].strip()
    text = plain(text)
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
        return
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
    operands, operators = split(text, RELATIONS)
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
    if number := counted(text):
        yield Expression(number)
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
        if len(unit) > 1 and not _LETTERS.fullmatch(unit):
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
    for match in PIECE.finditer(text):
        depth += (match.group() in OPEN) - (match.group() in CLOSE)
        if depth == 0:
            return match.end() == len(text)
    return False


def _environment(match: re.Match[str]) -> Value:
    rows = [row for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", match["body"]) if row.strip()]
    cells = [[cell.strip(" ,;.") for cell in row.split("&")] for row in rows]
    if match["name"] == "cases" or match["open"] == "\\{":
        return Cases(match.group(), [[_condition(cell) for cell in row] for row in cells])
    determinant = match["name"] == "vmatrix" or match["open"] in ("|", "\\det")
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
    words = re.sub(r"[\s.,;:!?'()-]+", " ", bare).strip()
    words = words.casefold() if len(words) > 1 else words
    if text == bare and not (
        len(words) == 1 or (len(words.replace(" ", "")) >= 3 and re.search(r"[aeiouy]", words))
    ):
        return None
    return words or None


def _date(words: str) -> tuple[int | None, str, int | None] | None:
    """(year, month, day) of a date with its month in letters; None for a part that is left out."""
    month = _MONTHS.search(words)
    rest = _NO_PART_OF_A_DATE.sub(" ", _MONTHS.sub(" ", words, count=1))
    numbers = [re.fullmatch(r"(\d{1,4})(?:st|nd|rd|th)?", word, re.I) for word in rest.split()]
    if month is None or not 1 <= len(numbers) <= 2 or not all(numbers):
        return None
    days = [int(n[1]) for n in numbers if n and len(n[1]) < 3]
    years = [int(n[1]) for n in numbers if n and len(n[1]) >= 3]
    if len(days) > 1 or len(years) > 1 or not all(1 <= day <= 31 for day in days):
        return None
    return (years[0] if years else None), month[1].lower(), (days[0] if days else None)
