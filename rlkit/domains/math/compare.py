"""Whether an answer is the truth: both are read into the same few forms (a number with its unit, words, a group of
parts, a relation, a set of real numbers) and compared part by part; an order matters where the notation says so."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise, product
from typing import Any

import mpmath

from rlkit.domains.answers import choice_letter, paired
from rlkit.domains.math import forms
from rlkit.domains.math.equal_expressions import number, ratio_sign, same_expression
from rlkit.domains.math.forms import Group, Relation, is_name, normalize, read_forms, squeeze
from rlkit.domains.math.parse import FONT, STEPS, Unreadable, split, steps_left
from rlkit.domains.math.units import Amount, same_amount, split_unit

_LONGEST, _MOST_ITEMS, _MOST_INTERVALS = 2000, 200, 60  # characters that are read; parts of a list, of a set
_BROKEN = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def equivalent(answer: str, truth: str, tolerance: float = 0.0) -> bool:
    """Whether two final answers mean the same, or are numbers, with or without units, that agree within a relative
    tolerance (whole numbers must be equal). What an answer breaks is wrong; what the truth breaks is raised."""
    if len(answer) > _LONGEST or len(truth) > _LONGEST:
        return answer == truth
    steps_left.set(STEPS)
    a, b = normalize(answer), normalize(truth)
    if not a or not b:
        return False
    # The truth first, alone.
    theirs, _ = [form for form in read_forms(b) if isinstance(form, Amount)], real_set(b)
    try:
        if _same_option(a, b) or _same(a, b) or _same_qualified(a, b):
            return True
        ours = (form for form in read_forms(a) if tolerance and isinstance(form, Amount))
        return any(same_amount(x, y, tolerance) for x, y in product(ours, theirs))
    except _BROKEN:
        return False


def _same(a: str, b: str) -> bool:
    """Whether two normalised answers are the same by any way that they can be read."""
    plain = [squeeze(forms.IN_FONT.sub(r"\1", text)) for text in (a, b)]
    if squeeze(a) == squeeze(b) or plain[0] == plain[1]:
        return True
    if (left := real_set(a)) and (right := real_set(b)):
        same_variable = left[0] in ("", right[0] or left[0])
        ends = [[text for _, _, text in found] for _, found in (left, right)]
        return same_variable and [c[1] for c in left[1]] == [c[1] for c in right[1]] and _pairwise(*ends)
    either = split(a, {"\\or"})[0]
    equal = same_expression if "%" in a else _same  # 5% or 5 says two values
    if 1 < len(either) < 20 and all(equal(x, y) for x, y in combinations([*either, b], 2)):
        return True  # \frac{1}{2} or 0.5
    return any(_same_form(x, y, a, b) for x, y in product(read_forms(a), read_forms(b)))


def _same_form(x: forms.Form, y: forms.Form, a: str, b: str) -> bool:
    """Whether a reading x of a and a reading y of b agree."""
    if type(x) is type(y):
        same = {Group: _same_group, Relation: _same_relation, Amount: same_amount, str: str.__eq__}
        return same[type(x)](x, y)
    if isinstance(x, Relation):
        return _gives(x, b, truth=False)
    return isinstance(y, Relation) and _gives(y, a, truth=True)


def _matching(a: list[str], b: list[str]) -> bool:
    """Whether each part of one list is a part of the other, each used once."""
    if len(a) != len(b) or len(a) > _MOST_ITEMS:
        return False
    if all(number(part) is not None for part in a + b):
        a, b = sorted(a, key=number), sorted(b, key=number)  # 200 need 200 comparisons
    return paired(a, b, _same)


def _pairwise(a: list[str], b: list[str]) -> bool:
    return len(a) == len(b) and all(map(_same, a, b))


def _same_group(a: Group, b: Group) -> bool:
    """Whether two groups have the same parts: in any order those of lists and sets."""
    kinds, parts = {a.brackets, b.brackets}, a.parts + b.parts
    if "\\ldots" not in parts and (kinds in ({""}, {"cup"}) or "{}" in kinds <= {"{}", "", "named"}):
        return _matching(a.parts, b.parts)
    mixed = kinds == {"", "()"} and any("=" in part for part in parts)  # x=1, 2 is no point
    point = kinds <= {"", "()", "named"} and not mixed
    ordered = len(kinds) == 1 or (kinds == {"", "{}"} if "\\ldots" in parts else point)
    return ordered and _pairwise(a.parts, b.parts)


def _gives(relation: Relation, other: str, truth: bool) -> bool:
    """Whether `x = 5`, `\\overline{AB} = 2+3 = 5` or `2+3 = 5` says the other value; of answers also `m+n = 5`."""
    if relation.operators == ["\\in"]:
        return is_name(relation.operands[0]) and _same(relation.operands[1], other)
    if set(relation.operators) - {"=", "\\approx"}:
        return False
    name, *said = relation.operands
    formula = re.search(r"\d|^-|\\sqrt|!", name) and same_expression(name, name)  # 2x, but not m+n
    unknown = number(other) is not None and number(split_unit(name).number) is None and not formula
    if not is_name(name) and name != "e" and (truth or not unknown):
        said = relation.operands
    if truth:
        return all(_same(other, text) for text in said)
    said = [text for text in said[:-1] if not is_name(text)] + said[-1:]  # x = y = 5
    true = len(said) < 20 and all(_same(x, y) for x, y in combinations(said, 2))  # 1 m = 1 km says no 1
    return true and all(_same(text, other) for text in said)


def _same_relation(a: Relation, b: Relation) -> bool:
    if a.operators == b.operators and _pairwise(a.operands, b.operands):
        return True
    if len(a.operators) != 1 or len(b.operators) != 1:
        return False
    left, right = (_OF_LETTER.fullmatch(relation.operands[0]) for relation in (a, b))
    if left and right and left[1] == right[1] and left[2] != right[2] and a.operators == ["="]:
        renamed = _renamed(a.operands[1], left[2], right[2])  # f(x) = 2x, f(n) = 2n
        return right[2] not in _LETTER.findall(a.operands[1]) and _same(renamed, b.operands[1])
    sign = ratio_sign(*(f"({r.operands[0]})-({r.operands[1]})" for r in (a, b)))
    operator = a.operators[0] if sign > 0 else _TURNED.get(a.operators[0], a.operators[0])
    return sign != 0 and operator == b.operators[0]


_OF_LETTER = re.compile(r"([A-Za-z] ?[(_]) ?\{? ?([A-Za-z]) ?[)}]?")
_TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne", "\\in": ""}
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_[A-Za-z0-9])?")
_DISTANCE = re.compile(r"\| ?(?P<factor>\d{0,3}) ?(?P<name>\\?[A-Za-z]+) ?(?P<shift>[+-][^|]+)?\|")
_BUILDER = re.compile(r"\\\{ ?(?P<name>\\?[A-Za-z]+) ?(?:\\in ?\\mathbb\{R\} ?)?[|:,] ?(?P<condition>.+)\\\}")
_REALS = re.compile(
    r"(?i)(?:\\?[a-z]\s*(?:=|is|can be)\s*)?(?:the set of )?(?:all|any|every)?\s*(?:of )?(?:the )?"
    r"(?:reals|real (?:numbers?|values?|line)|\\mathbb ?\{r\})(?: of \\?[a-z])?"
)
_EXCEPT = re.compile(r",?\s*(?:-(?=\s*\\\{)|\bexcept(?: for)?\b|\bother than\b)\s*")
Cut = tuple[Any, bool, str]  # a number, whether the cut is behind it, and the number's text
RealSet = tuple[str, list[Cut]]  # the conditions' variable, "" without one; where parts begin and end in turn


def real_set(text: str) -> RealSet | None:
    """The set of real numbers that a normalised answer is; None for anything else, and for single numbers."""
    try:
        name, cuts = _set(re.sub(r"\s+", " ", forms.IN_FONT.sub(r" \1 ", text)).strip(" ."))
    except Unreadable:
        return None
    points = all(low[0] == high[0] for low, high in zip(cuts[::2], cuts[1::2], strict=True))
    return None if points else (name, cuts)


def _set(text: str) -> RealSet:
    """The set that a text is, also of single numbers. Unreadable: it is none."""
    if match := _BUILDER.fullmatch(text):
        return "", _joined([(match["name"], _ALL), _set(match["condition"])], least=2)[1]
    if _REALS.fullmatch(text):
        return "", _ALL
    parts, ors = split(_EXCEPT.sub(r" \\setminus ", text), {"\\or", "\\cup", "\\setminus"})
    conditions, ands = split(text, {",", "\\and", "\\cap"})
    if len(ors) + len(ands) > _MOST_INTERVALS:
        raise Unreadable(text)
    if ors:  # from left to right
        found = _set(parts[0])
        for sign, part in zip(ors, parts[1:], strict=True):
            if sign == "\\setminus":
                found = found[0], _members([found[1]], but=_points(part))
            else:
                name, cuts = _set(part)
                found = _joined([found, (name or found[0], cuts)])
        return found
    operands, operators = split(text, forms.RELATIONS)
    if len(operators) == 1:  # x \ne 1, 2
        return _condition(operands[0], operators[0], operands[1])
    if ands:
        sets = [_set(part) for part in conditions]
        if any(name for name, _ in sets) or set(ands) == {"\\cap"}:
            either = set(ands) == {","} and not _members([cuts for _, cuts in sets], least=len(sets))
            return _joined(sets, least=1 if either else len(sets))  # x<0, x>1
        found = _joined(sets)
        if len(found[1]) == 2 * len(sets) and all(re.search(r"[\[\]]|\\infty", part) for part in conditions):
            return found  # but (0, 1), (2, 3) can be points
    if operators:
        links = zip(pairwise(operands), operators, strict=True)
        return _joined([_condition(left, sign, right) for (left, right), sign in links], least=len(operators))
    if re.fullmatch(r"\\\{.+\\\}", text):
        return "", _points(text)
    ends = split(text[1:-1], {",", ";"})[0] if re.fullmatch(r"[\[(\]].+[\])\[]", text) else []
    if len(ends) != 2:
        raise Unreadable(text)
    return "", _interval(ends[0], ends[1], text[0] + text[-1])


def _condition(left: str, sign: str, right: str) -> RealSet:
    """The set of `x < 3`, `1 \\le x`, `|x - 1| \\ge 2`, `x \\in [0, 1]`."""
    if number(left) is not None:
        left, sign, right = right, _TURNED.get(sign, ""), left
    distance = _DISTANCE.fullmatch(left)
    known = _TURNED if _VARIABLE.fullmatch(left) else ("<", "\\le", ">", "\\ge") if distance else ()
    if sign not in known:
        raise Unreadable(left)
    if sign in ("=", "\\ne", "\\in"):
        return left, _members([_ALL], but=_points(right)) if sign == "\\ne" else _points(right)
    low, high, below = "-\\infty", right, sign in ("<", "\\le")
    if not below and number(right) == -mpmath.inf:
        return left, _ALL
    if distance:
        shift, factor = distance["shift"] or 0, distance["factor"] or 1
        low, high = (f"(-({shift}){side}({right}))/{factor}" for side in "-+")
    closed = sign in ("\\le", ">")  # the numbers up to `right`, or their complement
    near = _interval(low, high, ("[" if distance and closed else "(") + ("]" if closed else ")"))
    return distance["name"] if distance else left, near if below else _members([_ALL], but=near)


def _joined(sets: list[RealSet], least: int = 1) -> RealSet:
    """The numbers that are in `least` of some sets. Unreadable: there are none, or the conditions' variables differ."""
    names, cuts = {name for name, _ in sets}, _members([cuts for _, cuts in sets], least=least)
    if len(names) > 1 or not cuts:
        raise Unreadable("no set")
    return names.pop(), cuts


def _members(sets: list[list[Cut]], but: Sequence[Cut] = (), least: int = 1) -> list[Cut]:
    """The numbers that are in `least` of some sets, and not in another."""
    steps, texts = Counter[tuple[Any, bool]](), {}
    for size, cuts in [*((1, cuts) for cuts in sets), (-len(sets), but)]:
        for index, (value, behind, text) in enumerate(cuts):
            steps[value, behind] += -size if index % 2 else size
            texts[value, behind] = text
    found, inside = [], 0
    for place in sorted(steps):
        before, inside = inside, inside + steps[place]
        if (before >= least) != (inside >= least):
            found.append((*place, texts[place]))
    return found


def _points(text: str) -> list[Cut]:
    """The numbers of `\\{1, 2\\}`, `x=1, 2` or `1 and 2`, or those of a set."""
    listed = re.sub(r"\\[{}]|\\?[A-Za-z]\s*(?:=|\\ne)", " ", text)
    points = [part for part in split(listed, {",", ";", "\\and"})[0] if part]
    if len(points) == 1 and number(points[0]) is None:
        return _set(points[0])[1]
    return _members([_interval(point, point, "[]") for point in points])


def _interval(low: str, high: str, brackets: str) -> list[Cut]:
    """Both ends of `(1, 2]`, also of `]1, 2]`. Unreadable: it has none, or is a point such as (3, 2)."""
    first, last, ends = number(low), number(high), (brackets[0] != "[", brackets[1] == "]")
    if first is None or last is None or (first, ends[0]) >= (last, ends[1]):
        raise Unreadable("no interval")
    with mpmath.workdps(40):  # digits on which two ways to compute a number agree
        return [(+first, ends[0], low), (+last, ends[1], high)]


_ALL = _interval("-\\infty", "\\infty", "()")

_OPTION = re.compile(  # (C) 15, C. 15, but not (C)-1
    rf"(?:{FONT}\{{\s*)?(?:\(\s*[A-Ja-j]\s*\)|[A-Ja-j][).:]|[A-J]$)\s*\}}?\s*(?!\s*[+*/^=!]|(?<=\))-)"
)


def _option(text: str) -> tuple[str, str]:
    """(letter, value) of `(C) 15`; one of them is "" for a letter or a value alone."""
    letter, mark = choice_letter(text) or "", _OPTION.match(text)
    return letter, (text[mark.end() :].strip() if mark else "") if letter else text


def _same_option(answer: str, truth: str) -> bool:
    """`(C) 15` against `15` or `(C)`; of two options both letter and value must agree."""
    (ours, p), (right, q) = _option(answer), _option(truth)
    if not ours or not right:
        return bool((ours or right) and p and q) and _same(p, q)
    marked = re.search(r"[().:]|\\(?:text|mathrm)", truth) or ("(" in answer and right <= "J")
    small = bool(marked) and ours.upper() == right.upper() <= "J"
    return (ours == right or small) and (not (p and q) or _same(p, q))


_QUALIFIER = re.compile(
    r"[,;\s]*\(?(?:\\text\s*\{\s*)?,?\s*\(?(?:\\forall"
    r"|(?<![A-Za-z])(?:for|where|with(?! (?:a )?remainder))(?![A-Za-z]))(?P<rest>.*)"
    r"|\s*[,;(]\s*\(?[a-zCK](?:_\d)?(?:\s*,\s*[a-z])*\s*(?:\\in\s*(?:\\mathbb\s*\{?[A-Z]\}?|[ZNR])\S*"
    r"|(?:\\text\s*\{\s*)?(?:is |are |being )?(?:an? |any )?(?:arbitrary )?(?:integers?|constants?)\b.*)$"
)
_BOUND = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])|\d")
_KIND = re.compile(r"\b(?:even|odd|prime|positive|negative)\b|(?<=\\mathbb\{)[A-Z]")
_LETTER = re.compile(rf"{FONT}\{{[^{{}}]*\}}|\\[A-Za-z]+|[A-Za-z]{{3,}}|([A-Za-z](?:_\w)?)")  # of a formula
_WHOLE = re.compile(r"\\mathbb\s*\{?[ZN]|\\in\s*[ZN]\b|integer|whole|natural")
_PARAMETERS, _CONSTANTS = set("nkmljtpqr"), {"C", "c", "K", "C_1"}


def _same_qualified(a: str, b: str) -> bool:
    """Without "for all n" and the like, and with a whole parameter or constant of integration under another letter."""
    (x, x_condition), (y, y_condition) = _unqualified(a), _unqualified(b)
    if not _agree(x_condition, y_condition):
        return False
    if (x, y) != (a, b) and _same(x, y):
        return True
    ours, theirs = (set(_LETTER.findall(text.rpartition("=")[2])) - {""} for text in (x, y))
    angles = "\\pi" in x and "\\pi" in y and len(ours) == 1
    whole = angles or _WHOLE.search(x_condition) or _WHOLE.search(y_condition)
    for letters, allowed in ((_PARAMETERS, whole), (_CONSTANTS, ours & set("xtyzu"))):
        mine, other = ours & letters, theirs & letters
        one = len(mine) == len(other) == 1 and ours - mine == theirs - other
        if allowed and one and not mine & set(_LETTER.findall(y)):
            new, old = mine.pop(), other.pop()
            return _same(x, _renamed(y, old, new))
    return False


def _renamed(formula: str, old: str, new: str) -> str:
    """A formula with another letter for one of its own."""
    return _LETTER.sub(lambda match: new if match[1] == old else match[0], formula)


def _agree(a: str, b: str) -> bool:
    """Whether two qualifiers do not contradict each other in their bounds, kinds of numbers or sets."""
    x, y = set(_KIND.findall(a)), set(_KIND.findall(b))
    a, b = (re.sub(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])", "n", text) for text in (a, b))
    bounded = _BOUND.search(a) and _BOUND.search(b)
    return not (x and y and x != y) and (not bounded or _same(a, b))


def _unqualified(text: str) -> tuple[str, str]:
    """The answer and the qualifier behind it, "" where it has none: (`2n+1`, `n \\ge 0`) of `2n+1 for n \\ge 0`."""
    match = _QUALIFIER.search(text, 1) if len(text) < 500 else None
    body = text[: match.start()].strip(" ,;") if match else ""
    mathematical = re.search(r"[\d=^+]|\\(?!text|mathrm)", body) or len(body) == 1
    if match is None or not mathematical or re.search(r"\\or\s*[-\d]", match[0]):
        return text, ""
    return body, (match["rest"] or match[0]).strip(" ,;(){}")
