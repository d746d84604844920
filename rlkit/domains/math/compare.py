"""Whether an answer is the truth: numbers, expressions, and what is built of them.

Both are read into the same few forms (a number with its unit, words, a group of parts, a relation) and compared part by
part; an order matters where the notation says so.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from rlkit.domains.answers import choice_letter
from rlkit.domains.math import units, values
from rlkit.domains.math.parse import is_wrapped, normalize, parse, rational, split, squeeze, start_work
from rlkit.domains.math.units import Amount
from rlkit.domains.table import NUMBERS

_LONGEST, _MOST_ITEMS = 20_000, 200  # characters of an answer that is read; parts of a list
_BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def equivalent(answer: str, truth: str) -> bool:
    """Whether two final answers mean the same. What an answer breaks is wrong; what the truth breaks is raised."""
    if len(answer) > _LONGEST or len(truth) > _LONGEST:
        return answer == truth
    start_work()
    a, b = normalize(answer), normalize(truth)
    if not a or not b:
        return False
    read_forms(b), values.real_set(b)  # the truth first, alone
    try:
        return _same_option(a, b) or _same(a, b) or _same_qualified(a, b)
    except _BROKEN:
        return False


def approximately(answer: str, truth: str, tolerance: float) -> bool:
    """Whether two numbers, with or without units, agree within a relative tolerance; whole numbers must be equal."""
    start_work()
    theirs = [form for form in read_forms(normalize(truth)) if isinstance(form, Amount)]
    try:
        ours = [form for form in read_forms(normalize(answer)) if isinstance(form, Amount)]
        return any(units.approximately(a, b, tolerance) for a, b in product(ours, theirs))
    except _BROKEN:
        return False


# How an answer is read.


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
_TIME = re.compile(r"0*(\d{1,2}:\d{2}(?::\d{2})?)\s*(?:([ap])\.?\s?m\.?)?", re.IGNORECASE)
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
    elif len((found := split(text, values.RELATIONS))[0]) > 1:
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
    rest = _FONT.sub("", text[: month.start()] + " " + text[month.end() :]).casefold()
    found = re.sub(r"[{}\\~,.]|\b(?:of|the|[a-z]{3,6}day)\b|(?<=\d)(?:st|nd|rd|th)\b", " ", rest).split()
    numbers = "".join("d" if len(word) < 3 else "y" for word in sorted(found, key=len) if word.isdecimal())
    valid = len(numbers) == len(found) and numbers in ("d", "y", "dy")
    return " ".join([*sorted(found), month[1].lower()]) if valid else None


def _congruence(text: str) -> Form | None:
    """`x ≡ 3 (mod 7)`, `3 mod 7`, `n ≡ 1, 3 (mod 8)`; several of them as a list of their texts."""
    several = [part for part in split(text, {",", ";", "\\and", "\\or"})[0] if part]
    if len(several) > 1 and all("\\mod" in part for part in several):
        return Group("", several)
    match = _CONGRUENCE.fullmatch(text)
    if match is None:
        return None
    if match["name"]:
        return Relation([match["name"].strip(), f"{match['residues']} \\mod {match['modulus']}"], ["="])
    unit = f"mod {match['modulus'].strip('{} ')}"
    residues = [part for part in split(match["residues"].strip("( "), {",", "\\and", "\\or"})[0] if part]
    if len(residues) > 1:
        return Group("{}", [f"{residue} \\mod {match['modulus']}" for residue in residues])
    return Amount(residues[0], unit) if residues else None


def _list(text: str) -> list[str]:
    """The parts of a bare list: at commas, semicolons, "and", "or"."""
    separators = {",", ";", "\\and", "\\or"}
    parts, found = split(text, separators)
    if "," in found and (", " in text or len(set(found)) > 1):  # in 1,000, 2,000 a comma is part of a number
        hidden = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "\0", text)
        parts = [part.replace("\0", "") for part in split(hidden, separators)[0]]
    return [part for part in parts if part] if found else [text]


def _bracketed(text: str) -> Group | None:
    """(a, b), [a, b), \\{a, b\\}, \\langle a, b\\rangle as a whole; all but a set's need a comma."""
    match = _BRACKETS.fullmatch(text)
    if match is None or not is_wrapped(text):
        return None
    start, inner, end = match[1].removeprefix("\\"), match[2].strip(), match[3].removeprefix("\\")
    brackets = {"langle": "("}.get(start, start) + {"rangle": ")"}.get(end, end)
    is_set = match[1] == "\\{"
    parts = [part for part in _list(inner) if part]
    if (is_set and "|" in inner) or (len(parts) < 2 and not is_set):
        return None  # a set described by a condition; an expression in brackets
    if brackets == "[]" and all(part.startswith("[") and part.endswith("]") for part in parts):
        return Group("matrix", [f"({part[1:-1]})" for part in parts])
    return Group(brackets, parts)


def _single(text: str) -> Iterator[Form]:
    """Readings of what has no parts."""
    plain = _FONT.sub("", text)
    if match := _TIME.fullmatch(re.sub(r"[{}~]", "", plain)):  # without a.m. or p.m. it is either
        yield from (f"{match[1]} {half}m" for half in (match[2] or "ap").lower())
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
    spoken = len(words.replace(" ", "")) >= 3 and re.search(r"[aeiouyAEIOUY]", words)
    if not words or not (marked or spoken or len(words) == 1):
        return None
    return words.casefold() if len(words) > 1 else words


# How two forms are compared.


def _same(a: str, b: str) -> bool:
    """Whether two normalised answers are the same by any way that they can be read."""
    if squeeze(a) == squeeze(b):
        return True
    left, right = values.real_set(a), values.real_set(b)
    if left and right and not (left.bare and right.bare):
        return values.same_set(left, right)
    return any(_same_form(x, y, a, b) for x, y in product(read_forms(a), read_forms(b)))


def _same_form(x: Form, y: Form, a: str, b: str) -> bool:
    """Whether a reading x of a and a reading y of b agree."""
    if isinstance(x, Relation) and isinstance(y, Relation):
        return _same_relation(x, y)
    if isinstance(x, Relation):
        return _gives(x, b, truth=False)
    if isinstance(y, Relation):
        return _gives(y, a, truth=True)
    if isinstance(x, Group) and isinstance(y, Group):
        return _same_group(x, y, a, b)
    if isinstance(x, Group) or isinstance(y, Group):
        group, other, text = (x, y, b) if isinstance(x, Group) else (y, x, a)
        one = isinstance(group, Group) and group.brackets in ("", "{}") and len(group.parts) == 1
        return one and not isinstance(other, str) and _same(group.parts[0], text)  # type: ignore[union-attr]
    if isinstance(x, Amount) and isinstance(y, Amount):
        return units.same_amount(x, y) or _same_residue(x, y) or _same_residue(y, x)
    return _spoken(x, a) == _spoken(y, b)


def _spoken(form: Form, text: str) -> str:
    return form if isinstance(form, str) else squeeze(text).casefold() if len(text) > 1 else text


def _same_residue(a: Amount, b: Amount) -> bool:
    """`3 mod 7` against `10 mod 7`, or against `7k+3` with a whole number k."""
    modulus, residue, letters = (
        re.fullmatch(r"mod ([1-9]\d*)", a.unit),
        rational(a.number),
        _letters(b.number),
    )
    if modulus is None or residue is None or b.unit not in ("", a.unit):
        return False
    if other := rational(b.number):
        return bool(b.unit) and (residue - other) % int(modulus[1]) == 0
    shifts = (f"{residue}+{modulus[1]}*{shift}".format(*letters) for shift in _SHIFTS if len(letters) == 1)
    return letters <= _PARAMETERS and any(values.same_expression(shift, b.number) for shift in shifts)


def _matching(a: list[str], b: list[str]) -> bool:
    """Whether each part of one list is a part of the other, each used once."""
    if len(a) != len(b) or len(a) > _MOST_ITEMS:
        return False
    if None not in map(values.number, a + b):  # numbers in order: 200 need 200 comparisons
        return _pairwise(sorted(a, key=values.number), sorted(b, key=values.number))
    left = list(b)
    for part in a:
        found = next((i for i, other in enumerate(left) if _same(part, other)), None)
        if found is None:
            return False
        del left[found]
    return True


def _pairwise(a: list[str], b: list[str]) -> bool:
    return len(a) == len(b) and all(map(_same, a, b))


def _same_members(a: list[str], b: list[str]) -> bool:
    """Whether two sets have the same members, however often each is named."""
    if max(len(a), len(b)) > _MOST_ITEMS:
        return False
    return all(any(_same(x, y) for x in a) for y in b) and all(any(_same(x, y) for y in b) for x in a)


def _same_group(a: Group, b: Group, a_text: str, b_text: str) -> bool:
    kinds = {a.brackets, b.brackets}
    for group, text in ((a, b_text), (b, a_text)):
        if group.brackets == "{}" and len(group.parts) == 1 and not kinds <= {"{}", ""}:
            return _same(group.parts[0], text)  # {(2,3)}
    if "\\ldots" in a.parts or "\\ldots" in b.parts:
        return _same_sequence(a.parts, b.parts)
    if kinds == {":"}:
        return len(a.parts) == len(b.parts) and all(
            values.same_expression(f"({x})/({y})", f"({a.parts[0]})/({b.parts[0]})")
            for x, y in zip(a.parts[1:], b.parts[1:], strict=True)
        )
    if kinds == {"cases"} or kinds == {""} or kinds == {"cup"} or kinds == {"cup", ""}:
        return _matching(a.parts, b.parts)
    if kinds == {"{}"} or kinds == {"{}", ""}:
        return _same_members(a.parts, b.parts)
    if kinds == {"", "()"}:
        return _pairwise(*(_values_by_name(g.parts) if g.brackets == "" else g.parts for g in (a, b)))
    return len(kinds) == 1 and _pairwise(a.parts, b.parts)


def _same_sequence(a: list[str], b: list[str]) -> bool:
    """`1, 2, 3, …`: the same members on both sides of the ellipsis, one of which may show more of them."""
    a, b = _filled(a), _filled(b)
    if "\\ldots" not in a or "\\ldots" not in b:
        return _pairwise(a, b)
    i, j = a.index("\\ldots"), b.index("\\ldots")
    shown = min(i, j)
    return (i == j or shown >= 3) and _pairwise(a[:shown], b[:shown]) and _pairwise(a[i:], b[j:])


def _filled(parts: list[str]) -> list[str]:
    """`2, 4, …, 10` written out, where the members are whole numbers of one step."""
    *shown, dots, last = parts
    whole = all(re.fullmatch(r"-?\d{1,6}", part) for part in (*shown, last))
    if dots != "\\ldots" or len(shown) < 2 or not whole:
        return parts
    first, step, end = int(shown[0]), int(shown[1]) - int(shown[0]), int(last)
    every = list(map(str, range(first, end + step, step))) if step and abs(end - first) < 1000 else []
    return every if every[: len(shown)] == shown and every[-1] == last else parts


def _values_by_name(parts: list[str]) -> list[str]:
    """`y=3, x=2` as the values of x, y; a list without names as it is; nothing for a mixture of both."""
    relations = [form for part in parts for form in read_forms(part) if isinstance(form, Relation)]
    if not relations:
        return parts
    named = all(r.operators == ["="] and is_name(r.operands[0]) for r in relations)
    if not named or len({r.operands[0] for r in relations}) < len(parts):
        return []
    return [r.operands[1] for r in sorted(relations, key=lambda r: r.operands[0])]


def is_name(text: str) -> bool:
    """A symbol, a function's left side or a named quantity: x, a_n, f(x), \\mathrm{Area}, \\overline{AB}, \\cos A."""
    text = text.strip()
    return len(text) < 60 and _NAME.fullmatch(text) is not None and text not in ("\\pi", "e", "i", "\\infty")


def _gives(relation: Relation, other: str, truth: bool) -> bool:
    """Whether `x = 5`, `\\overline{AB} = 2+3 = 5` or `2+3 = 5` says the other value; of answers also `m+n = 5`."""
    if relation.operators == ["\\in"]:
        return is_name(relation.operands[0]) and _same(relation.operands[1], other)
    if set(relation.operators) - {"=", "\\approx"}:
        return False
    name, *said = relation.operands
    unknown = values.number(other) is not None and values.number(name) is None and not re.search(r"\d", name)
    if not is_name(name) and (truth or not unknown):
        said = relation.operands
    if truth:
        return all(_same(other, text) for text in said)
    return all(_same(text, other) for text in said if text is said[-1] or not is_name(text))


_TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}


def _same_relation(a: Relation, b: Relation) -> bool:
    turned = Relation(b.operands[::-1], [_TURNED.get(o, o) for o in b.operators[::-1]])
    if any(a.operators == r.operators and _pairwise(a.operands, r.operands) for r in (b, turned)):
        return True
    if len(a.operators) != 1 or len(b.operators) != 1:
        return False
    try:
        left, right = (parse(f"({r.operands[0]})-({r.operands[1]})") for r in (a, b))
    except ValueError:
        return False
    sign = values.ratio_sign(left, right)
    operator = a.operators[0] if sign > 0 else _TURNED.get(a.operators[0], a.operators[0])
    return sign != 0 and operator == b.operators[0]


# An option's letter with its value.

_OPTION = re.compile(  # \text{(C) } 15, (C) 15, C. 15, \text{(C) 15}
    r"(?:\\(?:text|mathrm)\s*\{\s*)?(?:\(\s*(?P<a>[A-J])\s*\)|(?P<b>[A-J])[).:])\s*(?P<close>\}?)\s*(?P<value>.*)",
    re.DOTALL,
)
_MARKED = re.compile(r"[().:]|\\(?:text|mathrm)")


def _option(text: str) -> tuple[str, str]:
    """(letter, value) of `(C) 15`; one of them is "" for a letter or a value alone."""
    letter, match = choice_letter(text), _OPTION.fullmatch(text)
    value = match["value"].strip() if match else ""
    if match and text.startswith("\\") and not match["close"]:
        value = value[:-1].strip() if value.endswith("}") else ""
    return (letter, value) if letter else ("", text)


def _same_option(answer: str, truth: str) -> bool:
    """`(C) 15` against `15` or `(C)`; of two options both letter and value must agree."""
    (ours, p), (right, q) = _option(answer), _option(truth)
    if not ours or not right:
        return bool((ours or right) and p and q) and _same(p, q)
    same_letter = ours == right or (ours.upper() == right.upper() and _MARKED.search(truth) is not None)
    return same_letter and "A" <= right.upper() <= "J" and (not (p and q) or _same(p, q))


# Qualifiers, whole parameters and constants of integration.

_QUALIFIER = re.compile(
    r"[,;\s]*\(?(?:\\text\s*\{\s*)?,?\s*\(?(?:\\forall|(?<![A-Za-z])(?:for|where|with)(?![A-Za-z]))(?P<rest>.*)"
    r"|\s*[,;(]\s*\(?[a-zCK](?:_\d)?(?:\s*,\s*[a-z])*\s*(?:\\in\s*(?:\\mathbb\s*\{?[A-Z]\}?|[ZNR])\S*"
    r"|(?:\\text\s*\{\s*)?(?:is |are |being )?(?:an? |any )?(?:arbitrary )?(?:integers?|constants?)\b.*)$",
    re.DOTALL,
)
_FAMILY = re.compile(r"\\\{(?P<body>[^:|]+)[:|]\s*(?P<rest>[a-z]\s*\\in\s*\\mathbb\s*\{Z\}[^:|]{0,20})\\\}")
_NAMED = re.compile(r"(?:\\?[A-Za-z]+|[A-Za-z]_\{?\w\}?)\s*=")
_WHOLE = re.compile(r"\\mathbb\s*\{?[ZN]|\\in\s*[ZN]\b|integer|whole|natural")
_PARAMETERS, _CONSTANTS = set("nkmljtpqr"), {"C", "c", "K", "k", "A", "C_1", "c_1", "C_0"}
_CONSTANT_WORD = re.compile(r"\\(?:text|mathrm)\s*\{\s*(?:an? )?(?:arbitrary )?const(?:ant|\.)?\s*\}")
_SHIFTS = ("({})", "({}+1)", "({}-1)", "(-{})", "(-{}+1)", "(-{}-1)")


def _same_qualified(a: str, b: str) -> bool:
    """Without "for all n" and the like, and with a whole parameter or constant of integration under another letter."""
    (x, x_condition), (y, y_condition) = (_unqualified(_CONSTANT_WORD.sub("C", text)) for text in (a, b))
    x, y = _without_name(x, y)
    angles = "\\pi" in x and "\\pi" in y
    if _agree(x_condition, y_condition) and (x, y) != (a, b) and _same(x, y):
        return True
    if units.split_unit(x).unit or units.split_unit(y).unit:
        return False  # 25 K is not 25 C
    ours, theirs = _letters(x), _letters(y)
    if (pair := _renamed(ours, theirs, _CONSTANTS)) and pair[1] not in ("A", "k", squeeze(y)):
        renamed = _substituted(y, pair[1], pair[0])
        sides = (x.rpartition("=")[2], renamed.rpartition("=")[2])
        constant = pair[0] != pair[1] or "C" in pair
        return (constant and values.same_antiderivative(*sides, pair[0])) or _same(x, renamed)
    pair = _renamed(ours, theirs, _PARAMETERS)
    whole = _WHOLE.search(x_condition) or _WHOLE.search(y_condition)
    if pair is None or not (whole or (angles and ours == {pair[0]})):
        return False
    renamed = _substituted(y, pair[1], pair[0])
    shifts = _SHIFTS if angles and _agree(x_condition, y_condition) else _SHIFTS[:1]
    return any(_same(_substituted(x, pair[0], shift), renamed) for shift in shifts)


def _without_name(x: str, y: str) -> tuple[str, str]:
    """Both without a name in front (`x =`) that only one has, or that both families of angles have."""
    ours, theirs = (match[0] if (match := _NAMED.match(text)) else "" for text in (x, y))
    angles = ours == theirs and "\\pi" in x and "\\pi" in y
    alone = "" in (ours, theirs) and "=" not in (y if ours else x) and "," not in x + y
    return (x.removeprefix(ours), y.removeprefix(theirs)) if angles or alone else (x, y)


def _unqualified(text: str) -> tuple[str, str]:
    """The answer and the qualifier behind it, "" where it has none: (`2n+1`, `n \\ge 0`) of `2n+1 for n \\ge 0`."""
    if len(text) >= 500:
        return text, ""
    if family := _FAMILY.fullmatch(text):
        return family["body"].strip(), family["rest"]
    match = _QUALIFIER.search(text, 1)
    body = text[: match.start()].strip(" ,;") if match else ""
    mathematical = re.search(r"[\d=^+]|\\(?!text|mathrm)", body) or len(body) == 1
    balanced = body.count("{") == body.count("}") and body.count("(") == body.count(")")
    if match is None or not mathematical or not balanced or re.search(r"\\or\s*[-\d]", match[0]):
        return text, ""
    return body, (match["rest"] or match[0]).strip(" ,;(){}")


def _agree(a: str, b: str) -> bool:
    """Whether two qualifiers do not contradict each other: only one of two bounds is a contradiction."""
    bounded = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])|\d")
    return not (bounded.search(a) and bounded.search(b)) or _same(a, b)


def _letters(text: str) -> set[str]:
    """The letters of a formula, with their subscripts; none of its commands and words."""
    bare = re.sub(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]{3,}", " ", text)
    return {re.sub("[{}]", "", name) for name in re.findall(r"[A-Za-z](?:_\{?\w\}?)?", bare)}


def _substituted(text: str, name: str, template: str) -> str:
    """With the letter `name` put into the template."""
    letter = re.escape(name).replace("_", r"_\{?") + (r"\}?" if "_" in name else r"(?!_)")
    replacement = template.format(name)
    return re.sub(rf"\\[A-Za-z]+|{letter}", lambda m: m[0] if m[0].startswith("\\") else replacement, text)


def _renamed(ours: set[str], theirs: set[str], letters: set[str]) -> tuple[str, str] | None:
    """The one of some letters that each formula has, if the formulas have the same letters but for it."""
    mine, other = ours & letters, theirs & letters
    if len(mine) != 1 or len(other) != 1 or ours - mine != theirs - other:
        return None
    return next(iter(mine)), next(iter(other))
