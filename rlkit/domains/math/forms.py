"""What a final answer is: a number or formula, a list, a matrix, a relation, a quantity, text …

`read_forms` gives every sensible reading, the likeliest first; most answers have one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlkit.domains.math.sets import CLOSE, OPEN, PIECE, RELATIONS, split
from rlkit.domains.math.units import compound, is_generic, is_percent, scaled, split_unit


@dataclass
class Form:
    text: str


@dataclass
class Expression(Form):
    """A number or formula."""


@dataclass
class Opaque(Form):
    """Notation that is compared as it is written."""


@dataclass
class Text(Form):
    """Words, without their typography, and the (year, month, day) that they name, None for parts left out."""

    date: tuple[int | None, str, int | None] | None = None


@dataclass
class Time(Form):
    """A time of day; `half` is "a", "p" or "" where it is left out."""

    clock: str
    half: str


@dataclass
class Items(Form):
    """Parts in brackets, or a bare list (no brackets)."""

    opening: str
    closing: str
    parts: list[str]

    @property
    def unordered(self) -> bool:
        return self.opening in ("", "\\{")


@dataclass
class Union(Form):
    parts: list[str]


@dataclass
class Relation(Form):
    """operands[0] operators[0] operands[1] …"""

    operands: list[str]
    operators: list[str]

    def variable(self) -> str:
        return next((o for o in self.operands if is_name(o) and o != "\\infty"), "")


@dataclass
class Congruence(Form):
    """name ≡ residues (mod modulus); the name may be left out."""

    name: str
    residues: list[str]
    modulus: str


@dataclass
class Matrix(Form):
    kind: str
    rows: list[list[str]]


@dataclass
class Cases(Form):
    rows: list[list[str]]


@dataclass
class Quantity(Form):
    """A number and its unit; `text` is the number."""

    unit: str


@dataclass
class Based(Form):
    """Digits with the base as a subscript."""

    digits: str
    base: int


@dataclass
class Ratio(Form):
    parts: list[str] = field(default_factory=list)


_FUNCTION = r"\\?(?:sin|cos|tan|cot|sec|csc|log|ln|max|min|gcd|lcm|angle|triangle|deg|det|dim|Pr?|E|Var)"
_SYMBOL = (
    r"(?:m\s*)?(?:\\?[A-Za-z]+|\\(?:mathrm|text|textbf|mathbf|mathcal|operatorname)\s*\{[^{}]*\}"
    r"|\\(?:overline|vec|hat|bar|tilde|overrightarrow|widehat)\s*\{?\s*[A-Za-z]+\s*\}?)"
)
_NAME = re.compile(
    rf"\|?{_SYMBOL}'*(?:_(?:\{{[^{{}}]*\}}|\\?[A-Za-z0-9]+))?(?:\^\{{?-1\}}?|\^\\circ|'+)?"
    rf"(?:\s*[(\[]\s*[A-Za-z0-9, ]+\s*[)\]])?\|?"
    rf"|{_FUNCTION}\s*(?:_\{{[^{{}}]*\}})?\s*(?:\\angle\s*)?\\?[A-Za-z]+|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\)|\[\s*[A-Z]+\s*\]"
)
_OPENING = re.compile(r"\\\{|\\(?:langle|lfloor|lceil)(?![A-Za-z])|[(\[{]")
_ENVIRONMENT = re.compile(
    r"(?P<open>\\det|\[|\(|\\\{|\|)?\s*\\begin\s*\{(?P<name>[a-zA-Z]*matrix|array|d?cases|aligned)\}\s*"
    r"(?:\{[lcr| ]*\})?"
    r"(?P<body>.*)\\end\s*\{(?P=name)\}\s*(?P<close>\]|\)|\\\}|\|)?",
    re.DOTALL,
)
_FONT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathsf|mbox|operatorname|textsf|emph|rm)(?![A-Za-z])\s*"
)
_WRAPPED = re.compile(_FONT.pattern + r"\{(?P<inner>[^{}]*)\}")
_POINT = re.compile(r"^[ABDEGHIJLMNOQ-Z](?=\()")  # A(2,3); C(5,2) and P(5,2) are numbers, F(a,b) a function
_TIME = re.compile(r"(?P<clock>\d{1,2}:\d{2}(?::\d{2})?)\s*(?P<half>[ap])?\.?\s?(?(half)m\.?)", re.IGNORECASE)
_BASED = re.compile(
    r"\(?(?P<digits>[0-9][0-9A-Za-z]*|[A-Fa-f][0-9A-Fa-f]*(?=\)?\s*_\s*\{?\s*16))\)?\s*_"
    r"\s*(?:\{\s*(?P<a>\d+)\s*\}|(?P<b>\d+)"
    r"|[{\s]*(?P<c>two|three|four|five|six|seven|eight|nine|ten|twelve|sixteen)[\s}]*)"
)
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
               "nine": "9", "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_COUNTED.split())}
_NOTHING = re.compile(
    r"(?:there (?:is|are|exists?) )?(?:no (?:(?:real|integer|such|positive|valid|possible|integral) )*"
    r"(?:solutions?|roots?|values?|numbers?|integers?|answers?|triples?|pairs?|functions?|[a-z]?)"
    r"(?: exists?| for [a-z])?|none(?: exists?)?|(?:the )?(?:empty|null) set"
    r"|(?:the )?(?:equation|system|inequality|it) has no (?:real )?(?:solutions?|roots?))"
    r"|(?:solutions?|roots?) do(?:es)? not exist|no such \w+ (?:exists?|is possible)"
)
_MONTHS = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b", re.IGNORECASE)
_NO_PART_OF_A_DATE = re.compile(
    r"\b(?:of|the|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b|[,.]", re.IGNORECASE
)
_LETTERS = re.compile(r"(?:[A-Za-z](?:\^\d)?\s*)(?:\s[A-Za-z](?:\^\d)?)*")  # units, or unknowns multiplied
_THOUSANDS = re.compile(r"\$?-?\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?")
_THOUSANDS_OF = re.compile(_THOUSANDS.pattern + r"(?=\s*(?:\\(?:text|textrm|mathrm|mbox)(?![a-z])|[A-Za-z]))")
_CONGRUENCE = re.compile(
    r"(?:(?P<name>[^=<>\\]{0,20}?)\s*(?:\\equiv|=))?\s*(?P<residues>[^=<>]{1,80}?)\s*[,(]?\s*\(?\s*\\mod\s*(?P<modulus>[^()=<>]{1,30}?)\s*\)?"
)
_MOST_ITEMS = 200


def is_name(text: str) -> bool:
    """A symbol, a function's left side or a named quantity: x, a_n, f(x), \\mathrm{Area}, \\overline{AB}, \\cos A."""
    text = text.strip()
    return len(text) < 60 and _NAME.fullmatch(text) is not None and text not in ("\\pi", "e", "i", "\\infty")


def read_forms(text: str) -> list[Form]:
    """Every reading of a normalised answer."""
    text = text.strip()
    if (match := _WRAPPED.fullmatch(text)) and re.search(r"\d|[A-Z]\s*,\s*[A-Z](?![a-z])", match["inner"]):
        text = match["inner"].strip()
    return list(_readings(text)) or [Opaque(text)]


def _readings(text: str) -> Iterator[Form]:
    if match := _ENVIRONMENT.fullmatch(text):
        yield _environment(match)
        return
    if _MONTHS.search(text) and (day := _date(words := re.sub(r"[{}\\~,]", " ", _FONT.sub("", text)))):
        yield Text(words, day)
        return
    if "\\mod" in text and (congruences := _congruences(text)):
        yield congruences
        return
    if match := _THOUSANDS_OF.match(text):  # 1,000 dollars
        text = match.group().replace(",", "") + text[match.end() :]
    if _THOUSANDS.fullmatch(text):
        yield Expression(text.replace(",", "").lstrip("$"))
        return
    if "\\pm" in text or "\\mp" in text:
        yield _both_signs(text)
        return
    if whole := compound(text):
        yield Quantity(*whole)
        return
    if len(parts := _list(text)) > 1:
        yield Items(text, "", "", parts)
        return
    if len(parts := split(text, {"\\cup"})[0]) > 1:
        yield Union(text, parts)
        return
    yield from _single(text)


def _both_signs(text: str) -> Items:
    plus = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", text))
    minus = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", text))
    return Items(text, "\\{", "\\}", [re.sub(r"^\s*\+\s*", "", part) for part in (plus, minus)])


def _single(text: str) -> Iterator[Form]:
    """Readings of what is no list."""
    operands, operators = split(text, RELATIONS)
    if operators:
        if operators == ["\\in"] or all(operands):
            yield Relation(text, operands, operators)
        return
    if bracketed := _bracketed(_POINT.sub("", text)):
        yield bracketed
        return
    if match := _TIME.fullmatch(re.sub(r"[{}~]", "", _FONT.sub("", text))):
        yield Time(text, match["clock"], (match["half"] or "").lower())
    if text == "\\emptyset":
        yield Items(text, "\\{", "\\}", [])
        return
    if match := _BASED.fullmatch(re.sub(r"^\{(\w+)\}", r"\1", _FONT.sub("", text))):
        base = match["a"] or match["b"] or _BASE_WORDS[match["c"]]
        yield Based(text, match["digits"], int(base[:9]))
        return
    if len(parts := split(text, {":"})[0]) > 1 and all(parts):
        yield Ratio(text, parts)
        return
    yield from _plain(text)


def _plain(text: str) -> Iterator[Form]:
    if number := _counted(text):
        yield Expression(number)
    words = _words(text)
    if words is not None:
        if words in _NUMBER_WORDS:
            yield Expression(_NUMBER_WORDS[words])
        if words == "infinity":
            yield Expression("\\infty")
        if _NOTHING.fullmatch(words):
            yield Items(text, "\\{", "\\}", [])
        if len(words) > 1 or not text.isalpha():
            yield Text(words, _date(words))
            return
    amount = split_unit(text)
    number, unit = scaled(*amount)
    if unit or number != amount[0]:
        yield Quantity(number, "" if is_generic(unit) else unit)
        if number != amount[0] or (is_percent(unit) and not re.search(r"[\d)}]\s*[-+*/]", number)):
            return
        if len(unit) > 1 and not _LETTERS.fullmatch(unit):
            return
    yield Expression(text)


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
    if text[:1] in ("[", "]") and text[-1:] in ("[", "]") and (text[0] == "]" or text[-1] == "["):
        text = ("[" if text[0] == "[" else "(") + text[1:-1] + ("]" if text[-1] == "]" else ")")
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


def _environment(match: re.Match[str]) -> Form:
    rows = [row for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", match["body"]) if row.strip()]
    cells = [[cell.strip(" ,;.") for cell in row.split("&")] for row in rows]
    if match["name"] in ("cases", "dcases", "aligned") or match["open"] == "\\{":
        joined = ["".join(row) for row in cells]
        if len(joined) > 1 and all(
            split(row, {"="})[1] == ["="] for row in joined
        ):  # a system's solution: x = 1, y = 2
            return Items(match.group(), "", "", joined)
        return Cases(match.group(), [[_condition(cell) for cell in row] for row in cells])
    determinant = match["name"] == "vmatrix" or match["open"] in ("|", "\\det")
    return Matrix(match.group(), "determinant" if determinant else "matrix", cells)


def _condition(cell: str) -> str:
    if re.match(r"\\(?:text|mbox)", cell):
        cell = _FONT.sub("", cell).replace("{", " ").replace("}", " ")
    return re.sub(r"^\s*(?:if|for|when|where)\b", "", cell).strip(" ,;.")


def _congruences(text: str) -> Form | None:
    """`x ≡ 3 (mod 7)`, `3 mod 7`, `n ≡ 1, 3 (mod 8)`; several of them as a list of their texts."""
    several = [part for part in split(text, {",", ";", "\\and", "\\or"})[0] if part]
    if len(several) > 1 and all("\\mod" in part for part in several):
        return Items(text, "", "", several)
    match = _CONGRUENCE.fullmatch(text)
    if match is None:
        return None
    modulus = match["modulus"].strip("{} ")
    residues = [part for part in split(match["residues"].strip("( "), {",", "\\and", "\\or"})[0] if part]
    return (
        Congruence(text, (match["name"] or "").strip(), residues, modulus) if residues and modulus else None
    )


def _words(text: str) -> str | None:
    """The plain lower-case words if the answer is text, else None."""
    bare = _FONT.sub("", text)
    if bare == text and not re.fullmatch(r"[A-Za-z][A-Za-z' .-]*", text):
        return None
    if re.search(r"\\(?:frac|sqrt|pi)(?![A-Za-z])", bare):
        return None  # a formula and its unit
    bare = re.sub(r"[{}\\~$\"]", " ", bare)
    bare = re.sub(r"\\?(and|or)\b", r"\1", bare)
    if not re.fullmatch(r"[\s(]*[A-Za-zÀ-ɏ(][^=<>+*/^_]*", bare) or (
        re.search(r"\d\s{0,3}[A-Za-z]*$", bare) and not _MONTHS.search(bare)
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
    month = _MONTHS.search(words) if len(words) < 60 else None
    rest = _NO_PART_OF_A_DATE.sub(" ", _MONTHS.sub(" ", words, count=1))
    numbers = [re.fullmatch(r"(\d{1,4})(?:st|nd|rd|th)?", word, re.IGNORECASE) for word in rest.split()]
    if month is None or not 1 <= len(numbers) <= 2 or not all(numbers):
        return None
    days = [int(n[1]) for n in numbers if n and len(n[1]) < 3]
    years = [int(n[1]) for n in numbers if n and len(n[1]) >= 3]
    if len(days) > 1 or len(years) > 1 or not all(1 <= day <= 31 for day in days):
        return None
    return (years[0] if years else None), month[1].lower(), (days[0] if days else None)


def _choices(letter: str) -> list[re.Pattern[str]]:
    """C(5,2), {}_5C_2, ^5C_2 and C_5^2, for C or P."""
    symbol = rf"\\?(?:mathrm\s*\{{)?{letter}\}}?"
    n, k = (rf"\{{?\s*(?P<{name}>\d{{1,4}})\s*\}}?" for name in "nk")
    return [
        re.compile(rf"{symbol}\s*\(\s*(?P<n>\d{{1,4}})\s*,\s*(?P<k>\d{{1,4}})\s*\)"),
        re.compile(rf"(?:\{{\s*\}}\s*)?[_^]\s*{n}\s*{symbol}\s*_\s*{k}"),
        re.compile(rf"{symbol}\s*_\s*{n}\s*\^\s*{k}"),
    ]


_COMBINATIONS, _PERMUTATIONS = _choices("C"), [*_choices("P"), _choices("A")[2]]


def _counted(text: str) -> str | None:
    """`C(5,2)` as \\binom{5}{2}, `P(5,2)` as the product 5·4; None for anything else."""
    for form in _COMBINATIONS:
        if match := form.fullmatch(text):
            return rf"\binom{{{match['n']}}}{{{match['k']}}}"
    for form in _PERMUTATIONS:
        if (match := form.fullmatch(text)) and int(match["k"]) <= int(match["n"]) <= 1000:
            return rf"\frac{{{match['n']}!}}{{({match['n']}-{match['k']})!}}"
    return None


def determinant(rows: list[list[str]]) -> str | None:
    """The determinant of a square matrix of up to 5 rows, written out along its first row (Laplace)."""
    if not 1 <= len(rows) <= 5 or any(len(row) != len(rows) for row in rows):
        return None
    if len(rows) == 1:
        return rows[0][0]
    terms = []
    for column, cell in enumerate(rows[0]):
        minor = determinant([row[:column] + row[column + 1 :] for row in rows[1:]])
        terms.append(f"{'-' if column % 2 else '+'}({cell})*({minor})")
    return "0" + "".join(terms)
