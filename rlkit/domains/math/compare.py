"""Whether an answer is the truth: both are read into the same few forms (a number with its unit, words, a group of
parts, a relation) and compared part by part; an order matters where the notation says so."""

import re
from itertools import product

from rlkit.domains.answers import choice_letter
from rlkit.domains.math import units, values
from rlkit.domains.math.forms import TURNED, Form, Group, Relation, is_name, read_forms, real_set
from rlkit.domains.math.parse import is_expression, start_work
from rlkit.domains.math.typography import normalize, squeeze
from rlkit.domains.math.units import Amount

_LONGEST, _MOST_ITEMS = 2000, 200  # characters of an answer that is read; parts of a list
_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def equivalent(answer: str, truth: str) -> bool:
    """Whether two final answers mean the same. What an answer breaks is wrong; what the truth breaks is raised."""
    if len(answer) > _LONGEST or len(truth) > _LONGEST:
        return answer == truth
    start_work()
    a, b = normalize(answer), normalize(truth)
    if not a or not b:
        return False
    for read in (read_forms, real_set):
        read(b)  # the truth first, alone
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


def _same(a: str, b: str) -> bool:
    """Whether two normalised answers are the same by any way that they can be read."""
    if squeeze(a) == squeeze(b) or squeeze(_TEXT.sub(r"\1", a)) == squeeze(_TEXT.sub(r"\1", b)):
        return True
    left, right = real_set(a), real_set(b)
    if left and right and not (left.bare and right.bare):
        return left.name in ("", right.name or left.name) and _matching(left.intervals, right.intervals)
    return any(_same_form(x, y, a, b) for x, y in product(read_forms(a), read_forms(b)))


def _same_form(x: Form, y: Form, a: str, b: str) -> bool:
    """Whether a reading x of a and a reading y of b agree."""
    if isinstance(x, Relation) and isinstance(y, Relation):
        return _same_relation(x, y)
    if isinstance(x, Relation):
        return _gives(x, b, truth=False)
    if isinstance(y, Relation):
        return _gives(y, a, truth=True)
    if isinstance(x, Group) or isinstance(y, Group):
        return isinstance(x, Group) and isinstance(y, Group) and _same_group(x, y)
    if isinstance(x, Amount) and isinstance(y, Amount):
        return units.same_amount(x, y)
    return _spoken(x, a) == _spoken(y, b)


def _spoken(form: Form, text: str) -> str:
    return form if isinstance(form, str) else squeeze(text).casefold() if len(text) > 1 else text


# Groups and relations.


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


def _same_group(a: Group, b: Group) -> bool:
    kinds = {a.brackets, b.brackets}
    if "\\ldots" in a.parts or "\\ldots" in b.parts:
        return len(kinds) == 1 and _pairwise(a.parts, b.parts)
    if kinds == {":"}:
        (first, *ours), (other, *theirs) = a.parts, b.parts
        pairs = list(zip(ours, theirs, strict=False))
        return len(ours) == len(theirs) and all(
            values.same_expression(f"({x})/({first})", f"({y})/({other})") for x, y in pairs
        )
    if kinds == {""}:
        x, y = _values_by_name(a.parts), _values_by_name(b.parts)
        if x and y and (x is a.parts) != (y is b.parts):
            return _pairwise(x, y)  # a=1, b=2 is 1, 2
    if kinds <= {"cup", ""}:
        return _matching(a.parts, b.parts)
    if kinds <= {"{}", ""}:
        return _same_members(a.parts, b.parts)
    if kinds == {"", "()"}:
        return _pairwise(*(_values_by_name(g.parts) if g.brackets == "" else g.parts for g in (a, b)))
    return len(kinds) == 1 and _pairwise(a.parts, b.parts)


def _values_by_name(parts: list[str]) -> list[str]:
    """`y=3, x=2` as the values of x, y; a list without names as it is; nothing for a mixture of both."""
    relations = [form for part in parts for form in read_forms(part) if isinstance(form, Relation)]
    if not relations:
        return parts
    named = {
        r.operands[0]: r.operands[1] for r in relations if r.operators == ["="] and is_name(r.operands[0])
    }
    return [named[name] for name in sorted(named)] if len(named) == len(relations) == len(parts) else []


def _gives(relation: Relation, other: str, truth: bool) -> bool:
    """Whether `x = 5`, `\\overline{AB} = 2+3 = 5` or `2+3 = 5` says the other value; of answers also `m+n = 5`."""
    if relation.operators == ["\\in"]:
        return is_name(relation.operands[0]) and _same(relation.operands[1], other)
    if set(relation.operators) - {"=", "\\approx"}:
        return False
    turned = is_name(relation.operands[-1]) and not is_name(relation.operands[0])  # 5 = x
    name, *said = relation.operands[::-1] if turned else relation.operands
    unknown = values.number(other) is not None and values.number(name) is None
    unknown = unknown and not (re.search(r"\d|^-|\\sqrt|!", name) and is_expression(name))  # m+n, not 2x
    if not is_name(name) and name != "e" and (truth or not unknown):
        said = relation.operands
    if truth:
        return all(_same(other, text) for text in said)
    return all(_same(text, other) for text in said if text is said[-1] or not is_name(text))


def _same_relation(a: Relation, b: Relation) -> bool:
    turned = Relation(b.operands[::-1], [TURNED.get(o, o) for o in b.operators[::-1]])
    if any(a.operators == r.operators and _pairwise(a.operands, r.operands) for r in (b, turned)):
        return True
    if len(a.operators) != 1 or len(b.operators) != 1:
        return False
    sign = values.ratio_sign(*(f"({r.operands[0]})-({r.operands[1]})" for r in (a, b)))
    operator = a.operators[0] if sign > 0 else TURNED.get(a.operators[0], a.operators[0])
    return sign != 0 and operator == b.operators[0]


# An option's letter with its value.

_OPTION = re.compile(  # \text{(C) } 15, (C) 15, C. 15
    r"(?:\\(?:text|mathrm)\s*\{\s*)?(?:\(\s*[A-J]\s*\)|[A-J][).:])\s*\}?\s*(?P<value>.*)", re.DOTALL
)
_MARKED = re.compile(r"[().:]|\\(?:text|mathrm)")


def _option(text: str) -> tuple[str, str]:
    """(letter, value) of `(C) 15`; one of them is "" for a letter or a value alone."""
    letter, match = choice_letter(text), _OPTION.fullmatch(text)
    return (letter, match["value"].strip() if match else "") if letter else ("", text)


def _same_option(answer: str, truth: str) -> bool:
    """`(C) 15` against `15` or `(C)`; of two options both letter and value must agree."""
    (ours, p), (right, q) = _option(answer), _option(truth)
    if not ours or not right:
        return bool((ours or right) and p and q) and _same(p, q)
    same_letter = ours == right or (ours.upper() == right.upper() and _MARKED.search(truth) is not None)
    return same_letter and "A" <= right.upper() <= "J" and (not (p and q) or _same(p, q))


# Qualifiers, whole parameters and constants of integration.

_QUALIFIER = re.compile(
    r"[,;\s]*\(?(?:\\text\s*\{\s*)?,?\s*\(?(?:\\forall"
    r"|(?<![A-Za-z])(?:for|where|with(?! (?:a )?remainder))(?![A-Za-z]))(?P<rest>.*)"
    r"|\s*[,;(]\s*\(?[a-zCK](?:_\d)?(?:\s*,\s*[a-z])*\s*(?:\\in\s*(?:\\mathbb\s*\{?[A-Z]\}?|[ZNR])\S*"
    r"|(?:\\text\s*\{\s*)?(?:is |are |being )?(?:an? |any )?(?:arbitrary )?(?:integers?|constants?)\b.*)$",
    re.DOTALL,
)
_BOUND = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])|\d")
_KIND = re.compile(r"\b(?:even|odd|prime|positive|negative)\b")
_DOMAIN = re.compile(r"\\mathbb\s*\{?([A-Z])")
_WHOLE = re.compile(r"\\mathbb\s*\{?[ZN]|\\in\s*[ZN]\b|integer|whole|natural")
_PARAMETERS, _CONSTANTS = set("nkmljtpqr"), {"C", "c", "K", "C_1", "c_1"}


def _same_qualified(a: str, b: str) -> bool:
    """Without "for all n" and the like, and with a whole parameter or constant of integration under another letter."""
    (x, x_condition), (y, y_condition) = _unqualified(a), _unqualified(b)
    if x_condition and y_condition and not _agree(x_condition, y_condition):
        return False
    if (x, y) != (a, b) and _same(x, y):
        return True
    if units.split_unit(x).unit or units.split_unit(y).unit:
        return False  # 25 K is not 25 C
    ours, theirs = (_letters(text.rpartition("=")[2]) for text in (x, y))
    angles = "\\pi" in x and "\\pi" in y and len(ours) == 1
    whole = angles or _WHOLE.search(x_condition) or _WHOLE.search(y_condition)
    for letters, allowed in ((_PARAMETERS, whole), (_CONSTANTS, ours & set("xtyzu"))):
        mine, other = ours & letters, theirs & letters
        fresh = mine == other or not mine & _letters(y)
        if allowed and fresh and len(mine) == len(other) == 1 and ours - mine == theirs - other:
            return _same(x, _renamed(y, *other, *mine))
    return False


def _agree(a: str, b: str) -> bool:
    """Whether two qualifiers do not contradict each other: in their bounds, kinds of numbers or sets."""
    for pattern in (_KIND, _DOMAIN):
        x, y = set(pattern.findall(a)), set(pattern.findall(b))
        if x and y and x != y:
            return False
    a, b = (re.sub(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])", "n", text) for text in (a, b))
    return not (_BOUND.search(a) and _BOUND.search(b)) or _same(a, b)


def _unqualified(text: str) -> tuple[str, str]:
    """The answer and the qualifier behind it, "" where it has none: (`2n+1`, `n \\ge 0`) of `2n+1 for n \\ge 0`."""
    match = _QUALIFIER.search(text, 1) if len(text) < 500 else None
    body = text[: match.start()].strip(" ,;") if match else ""
    mathematical = re.search(r"[\d=^+]|\\(?!text|mathrm)", body) or len(body) == 1
    balanced = body.count("{") == body.count("}") and body.count("(") == body.count(")")
    if match is None or not mathematical or not balanced or re.search(r"\\or\s*[-\d]", match[0]):
        return text, ""
    return body, (match["rest"] or match[0]).strip(" ,;(){}")


def _letters(text: str) -> set[str]:
    """The letters of a formula, with their subscripts; none of its commands and words."""
    bare = re.sub(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]{3,}", " ", text)
    return {re.sub("[{}]", "", name) for name in re.findall(r"[A-Za-z](?:_\{?\w\}?)?", bare)}


def _renamed(text: str, old: str, new: str) -> str:
    """With a letter in place of another, commands apart."""
    letter = re.escape(old).replace("_", r"_\{?") + (r"\}?" if "_" in old else r"(?!_)")
    return re.sub(rf"\\[A-Za-z]+|{letter}", lambda m: m[0] if m[0].startswith("\\") else new, text)
