"""Which forms an answer has: a number with its unit, words, a group of parts, a relation."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from rlkit.domains.math import sets, units, values
from rlkit.domains.math.parse import is_wrapped, split
from rlkit.domains.math.units import Amount
from rlkit.domains.table import NUMBERS


class Group(NamedTuple):
    """Parts in brackets: "()", "[)", "{}" …; "" for a bare list, "cup" for a union, ":" for a ratio, and "matrix",
    "determinant" and "cases", whose parts are rows such as (1,2)."""

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
    r"(?P<open>\\det|\[|\(|\\\{|\|)?\s*\\begin\s*\{(?P<name>[a-zA-Z]*matrix|array|d?cases|aligned)\}\s*"
    r"(?:\{[lcr| ]*\})?(?P<body>.*)\\end\s*\{(?P=name)\}\s*(?:\]|\)|\\\}|\|)?",
    re.DOTALL,
)
_BRACKETS = re.compile(r"(\\\{|\\langle(?![A-Za-z])|[(\[{])(.*?)(\\\}|\\rangle|[)\]}])", re.DOTALL)
_POINT = re.compile(r"^[ABDEGHIJLMNOQ-Z](?=\()")  # A(2,3); C(5,2) is a number, F(a,b) a function
_THOUSANDS = re.compile(
    r"(\$?-?\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?)(?=$|\s*(?:\\(?:text|mathrm)(?![a-z])|[A-Za-z]))"
)
_CONGRUENCE = re.compile(
    r"(?:(?P<name>[^=<>\\]{0,20}?)\s*(?:\\equiv|=))?\s*(?P<residues>[^=<>]{1,80}?)\s*[,(]?\s*\(?\s*\\mod\s*"
    r"(?P<modulus>[^()=<>]{1,30}?)\s*\)?"
)
_TIME = re.compile(r"0*(\d{1,2}(?::\d{2}){1,2}|\d{1,2}(?=[ap]\.?m))(?:([ap])\.?m\.?)?", re.IGNORECASE)
_PARTS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
          "eighth": 8, "ninth": 9, "tenth": 10}  # fmt: skip
_BASED = re.compile(
    r"\(?(?P<digits>[0-9][0-9A-Za-z]*|[A-Fa-f][0-9A-Fa-f]*(?=\)?\s*_\s*\{?\s*16))\)?\s*_"
    r"[{\s]*(?P<base>\d{1,9}|two|three|four|five|six|seven|eight|nine|ten|twelve|sixteen)[\s}]*"
)
_NOTHING = re.compile(
    r"(?:there (?:is|are|exists?) )?(?:no (?:(?:real|integer|such|positive|valid|possible|integral) )*"
    r"(?:solutions?|roots?|values?|numbers?|integers?|answers?|triples?|pairs?|functions?|[a-z]?)"
    r"(?: exists?| for [a-z])?|none(?: exists?)?|(?:the )?(?:empty|null) set"
    r"|(?:the )?(?:equation|system|inequality|it) has no (?:real )?(?:solutions?|roots?))"
    r"|(?:solutions?|roots?) do(?:es)? not exist|no such \w+ (?:exists?|is possible)"
)
_SYNONYMS = {"does not exist": "dne", "limit does not exist": "dne", "the limit does not exist": "dne"} | dict.fromkeys(
    ("infinite", "infinite solutions", "infinitely many solutions", "there are infinitely many solutions",
     "infinite number of solutions", "an infinite number of solutions"), "infinitely many"
)  # fmt: skip
_MONTH = re.compile(
    r"\b(jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)(?:uary|ruary|ch|il|ust|t?(?:em)?ber|ober)?\b",
    re.IGNORECASE,
)
_UNKNOWNS = re.compile(r"[A-Za-z](?:\^\d)?(?: [A-Za-z](?:\^\d)?)*")


def read_forms(text: str) -> list[Form]:
    """Every sensible reading of a normalised answer, the likeliest first; most have one."""
    text = text.strip()
    if (match := _IN_FONT.fullmatch(text)) and re.search(r"\d|[A-Z]\s*,\s*[A-Z](?![a-z])", match[1]):
        text = match[1].strip()
    return list(_readings(text))


def _readings(text: str) -> Iterator[Form]:
    if match := _ENVIRONMENT.fullmatch(text):
        yield from _environment(match)
    elif date := _date(text):
        yield date
    elif "\\mod" in text and (congruence := _congruence(text)):
        yield congruence
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
    elif len((found := split(text, sets.RELATIONS))[0]) > 1:
        if found[1] == ["\\in"] or all(found[0]):
            yield Relation(*found)
    elif bracketed := _bracketed(_POINT.sub("", text)):
        yield bracketed
    else:
        yield from _single(text)


def _environment(match: re.Match[str]) -> Iterator[Form]:
    rows = [row for row in re.split(r"\\\\(?:\s*\[[^\]]*\])?", match["body"]) if row.strip()]
    cells = [[cell.strip(" ,;.") for cell in row.split("&")] for row in rows]
    if match["name"] in ("cases", "dcases", "aligned") or match["open"] == "\\{":
        joined = ["".join(row) for row in cells]
        if len(joined) > 1 and all(split(row, {"="})[1] == ["="] for row in joined):
            yield Group("", joined)  # a system's solution: x = 1, y = 2
        else:
            yield Group("cases", [f"({','.join(map(_condition, row))})" for row in cells])
        return
    kind = "determinant" if match["name"] == "vmatrix" or match["open"] in ("|", "\\det") else "matrix"
    yield Group(kind, [f"({','.join(row)})" for row in cells])
    if kind == "matrix" and all(len(row) == 1 for row in cells) and len(cells) > 1:
        yield Group("()", [row[0] for row in cells])  # a column vector as a point


def _condition(cell: str) -> str:
    if cell.startswith("\\text"):
        cell = _FONT.sub("", cell).replace("{", " ").replace("}", " ")
    return re.sub(r"^\s*(?:if|for|when|where)\b", "", cell).strip(" ,;.")


def _date(text: str) -> str | None:
    """`5th of May 2020` as `2020 5 may`; None without a month in letters and a day or year."""
    month = _MONTH.search(text) if len(text) < 100 else None
    if month is None:
        return None
    rest = _FONT.sub("", _MONTH.sub(" ", text, count=1)).casefold()
    found = re.sub(r"[{}\\~,.]|\b(?:of|the|[a-z]{3,6}day)\b|(?<=\d)(?:st|nd|rd|th)\b", " ", rest).split()
    numbers = "".join(sorted("d" if len(word) < 3 else "y" for word in found if word.isdecimal()))
    valid = len(numbers) == len(found) and numbers in ("d", "y", "dy")
    return " ".join([*sorted(found), month[1].lower()]) if valid else None


def _congruence(text: str) -> Form | None:
    """`x ≡ 3 (mod 7)`, `3 mod 7`, `n ≡ 1, 3 (mod 8)`; several of them as a list of their texts."""
    several = [part for part in split(text, _SEPARATORS)[0] if part]
    if len(several) > 1 and all("\\mod" in part for part in several):
        return Group("", several)
    match = _CONGRUENCE.fullmatch(text)
    if match is None:
        return None
    modulus = match["modulus"]
    if match["name"]:
        return Relation([match["name"].strip(), f"{match['residues']} \\mod {modulus}"], ["="])
    residues = [part for part in split(match["residues"].strip("( "), _SEPARATORS)[0] if part]
    if len(residues) > 1:
        return Group("{}", [f"{residue} \\mod {modulus}" for residue in residues])
    return Amount(residues[0], f"mod {modulus.strip('{} ')}") if residues else None


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
    if match := time_of_day(text):  # without a.m. or p.m. it is either
        clock = match[1] if ":" in match[1] else f"{match[1]}:00"
        yield from (f"{clock} {half}m" for half in (match[2] or "ap").lower())
        if ":0" in match[1]:
            return  # 12:06 is no ratio
    if text == "\\emptyset":
        yield Group("{}", [])
        return
    if match := _BASED.fullmatch(re.sub(r"^\{(\w+)\}", r"\1", plain)):
        digits, base = match["digits"].lower(), match["base"]
        base = f"base {base if base.isdigit() else NUMBERS[base]}"
        yield Amount(digits, base) if digits.isdigit() else f"{digits} {base}"
        return
    if len(parts := split(text, {":"})[0]) > 1 and all(parts):
        yield Group(":", parts)
        ratio = f"({parts[0]})/({parts[1]})"
        whole = values.same_expression(ratio, rf"\lfloor {ratio} \rfloor")
        if len(parts) == 2 and not whole:  # 2:1 is no way to write 2
            yield Amount(ratio)
        return
    words = _words(text)
    if words and (number := _counted(words)):
        yield Amount(number)
    if words == "infinity":
        yield Amount("\\infty")
    if words is not None and _NOTHING.fullmatch(words):
        yield Group("{}", [])
    if words is not None and (len(words) > 1 or not text.isalpha()):
        yield _SYNONYMS.get(words, words)
        return
    amount = units.split_unit(text)
    yield amount
    formula = amount.unit == "%" and re.search(r"[\d)}]\s*[-+*/]", amount.number)
    if formula or _UNKNOWNS.fullmatch(amount.unit):  # 3 m is also 3 times m
        yield Amount(text)


def time_of_day(text: str) -> re.Match[str] | None:
    return _TIME.fullmatch(re.sub(r"[{}~\s]", "", _FONT.sub("", text)))


def _counted(words: str) -> str:
    """The number in words: twenty one, three fourths, a half; "" for other words."""
    count, _, part = words.rpartition(" ")
    if (whole := NUMBERS.get(words.replace(" ", "-"))) is not None:
        return str(whole)
    numerator = 1 if count in ("a", "an") or words == "half" else NUMBERS.get(count.replace(" ", "-"))
    denominator = _PARTS.get(part.removesuffix("s"))
    return f"{numerator}/{denominator}" if numerator is not None and denominator else ""


def _words(text: str) -> str | None:
    """The plain lower-case words if the answer is text, else None."""
    bare = _FONT.sub("", text)
    marked = bare != text
    if not marked and not re.fullmatch(r"[A-Za-z][A-Za-z' .-]*", text):
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
