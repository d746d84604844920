"""Whether an answer is the truth: both are read into the same few forms (a number with its unit, words, a group of
parts, a relation, a set of real numbers) and compared part by part; an order matters where the notation says so."""

import re
from collections.abc import Callable
from itertools import combinations, pairwise, product
from typing import Any

from rlkit.domains.answers import choice_letter
from rlkit.domains.math import forms
from rlkit.domains.math.forms import Group, Relation, is_name, normalize, read_forms, squeeze
from rlkit.domains.math.parse import FONT, STEPS, split, steps_left
from rlkit.domains.math.units import Amount, same_amount, split_unit
from rlkit.domains.math.values import number, ratio_sign, same_expression

_LONGEST, _MOST_ITEMS, _MOST_INTERVALS = 2000, 200, 60  # characters that are read; parts of a list, of a set
_BROKEN = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def equivalent(answer: str, truth: str) -> bool:
    """Whether two final answers mean the same. What an answer breaks is wrong; what the truth breaks is raised."""
    if len(answer) > _LONGEST or len(truth) > _LONGEST:
        return answer == truth
    steps_left.set(STEPS)
    a, b = normalize(answer), normalize(truth)
    if not a or not b:
        return False
    _ = list(read_forms(b)), real_set(b)  # the truth first, alone
    try:
        return _same_option(a, b) or _same(a, b) or _same_qualified(a, b)
    except _BROKEN:
        return False


def approximately(answer: str, truth: str, tolerance: float) -> bool:
    """Whether two numbers, with or without units, agree within a relative tolerance; whole numbers must be equal."""
    steps_left.set(STEPS)
    theirs = [form for form in read_forms(normalize(truth)) if isinstance(form, Amount)]
    try:
        ours = [form for form in read_forms(normalize(answer)) if isinstance(form, Amount)]
        return any(same_amount(a, b, tolerance) for a, b in product(ours, theirs))
    except _BROKEN:
        return False


def _same(a: str, b: str) -> bool:
    """Whether two normalised answers are the same by any way that they can be read."""
    plain = [squeeze(forms.IN_FONT.sub(r"\1", text)) for text in (a, b)]
    if squeeze(a) == squeeze(b) or plain[0] == plain[1]:
        return True
    if (left := real_set(a)) and (right := real_set(b)):
        same_variable = left[0] in ("", right[0] or left[0])
        return same_variable and _matching(left[1], right[1], _same_group)
    return any(_same_form(x, y, a, b) for x, y in product(read_forms(a), read_forms(b)))


def _same_form(x: forms.Form, y: forms.Form, a: str, b: str) -> bool:
    """Whether a reading x of a and a reading y of b agree."""
    if type(x) is type(y):
        same = {Group: _same_group, Relation: _same_relation, Amount: same_amount, str: str.__eq__}
        return same[type(x)](x, y)
    if isinstance(x, Relation):
        return _gives(x, b, truth=False)
    return isinstance(y, Relation) and _gives(y, a, truth=True)


def _matching(a: list[Any], b: list[Any], same: Callable[[Any, Any], bool] = _same) -> bool:
    """Whether each part of one list is a part of the other, each used once."""
    if len(a) != len(b) or len(a) > _MOST_ITEMS:
        return False
    if all(isinstance(part, str) and number(part) is not None for part in a + b):
        a, b = sorted(a, key=number), sorted(b, key=number)  # 200 need 200 comparisons
    left = list(b)
    for part in a:
        found = next((i for i, other in enumerate(left) if same(part, other)), None)
        if found is None:
            return False
        del left[found]
    return True


def _pairwise(a: list[str], b: list[str]) -> bool:
    return len(a) == len(b) and all(map(_same, a, b))


def _same_group(a: Group, b: Group) -> bool:
    """Whether two groups have the same parts: in any order those of lists and sets."""
    kinds, parts = {a.brackets, b.brackets}, a.parts + b.parts
    if "\\ldots" not in parts and (kinds in ({""}, {"cup"}) or "{}" in kinds <= {"{}", "", "named"}):
        return _matching(a.parts, b.parts)
    mixed = kinds == {"", "()"} and any("=" in part for part in parts)  # x=1, 2 is no point
    ordered = len(kinds) == 1 or ("\\ldots" not in parts and kinds <= {"", "()", "named"} and not mixed)
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
    sign = ratio_sign(*(f"({r.operands[0]})-({r.operands[1]})" for r in (a, b)))
    operator = a.operators[0] if sign > 0 else _TURNED.get(a.operators[0], a.operators[0])
    return sign != 0 and operator == b.operators[0]


_TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_[A-Za-z0-9])?")
_DISTANCE = re.compile(r"\| ?(?P<factor>\d{0,3}) ?(?P<name>\\?[A-Za-z]+) ?(?P<shift>[+-][^|]+)?\|")
_BUILDER = re.compile(r"\\\{ ?(?P<name>\\?[A-Za-z]+) ?(?:\\in ?\\mathbb\{R\} ?)?[|:,] ?(?P<condition>.+)\\\}")
_REALS = re.compile(
    r"(?i)(?:\\?[a-z]\s*(?:\\in|=|is|can be)\s*)?(?:the set of )?(?:all|any|every)?\s*(?:of )?(?:the )?"
    r"(?:reals|real (?:numbers?|values?|line)|\\mathbb ?\{r\})(?: of \\?[a-z])?"
    r"(?:[\s,]*(?:\\setminus|-(?=\s*\\\{)|except(?: for)?|other than)\s*(?P<but>[^<>]+))?"
)
RealSet = tuple[str, list[Group]]  # the conditions' variable, "" without one; intervals, groups of two ends


def real_set(text: str) -> RealSet | None:
    """The set that a normalised answer is; None for anything else."""
    text = text.strip(" .")
    if match := _BUILDER.fullmatch(text):
        found = real_set(match["condition"])
        return ("", found[1]) if found and found[0] == match["name"] else None
    parts, signs = split(text, {"\\or", "\\cup"})
    if signs:
        sets = [found for part in parts[:_MOST_INTERVALS] if (found := real_set(part))]
        names, intervals = {name for name, _ in sets}, [interval for _, found in sets for interval in found]
        return (names.pop(), intervals) if len(sets) == len(parts) and len(names) == 1 else None
    plain = re.sub(r"\s+", " ", forms.IN_FONT.sub(r" \1 ", text)).strip()
    if match := _REALS.fullmatch(plain):
        return _without(re.sub(r"\\[{}]|\\?[A-Za-z]\s*(?:=|\\ne)", " ", match["but"] or ""))
    first, *others = split(text, {",", "\\and"})[0]
    left_out = [split(other, {"\\ne"})[0] for other in others]
    if others and all(len(parts) == 2 for parts in left_out):  # x > 0, x \ne 1
        found, but = real_set(first), _without(",".join(parts[1] for parts in left_out))
        if found and but and {found[0] or left_out[0][0]} == {parts[0] for parts in left_out}:
            return found[0], _common(found[1], but[1])
    operands, operators = split(text, forms.RELATIONS)
    if operators in (["\\in"], ["\\ne"]) and _VARIABLE.fullmatch(operands[0]):
        found = real_set(operands[1]) if operators == ["\\in"] else _without(operands[1])
        return (operands[0], found[1]) if found else None
    if len(operators) == 1 and (match := _DISTANCE.fullmatch(operands[0])):  # |x - 1| < 2
        turned, shift, factor = _TURNED.get(operators[0]), match["shift"] or 0, match["factor"] or 1
        low, high = (f"(-({shift}){sign}({operands[1]}))/{factor}" for sign in "-+")
        if operators[0] in ("<", "\\le"):
            return _bounds([low, match["name"], high], operators * 2)
        if turned:
            return real_set(f"{match['name']}{turned}{low}\\or {match['name']}{operators[0]}{high}")
    return _bounds(operands, operators) if operators else _interval(text)


def _common(a: list[Group], b: list[Group]) -> list[Group]:
    """The intervals of the numbers that are in an interval of a and in one of b."""
    found = []
    for pair in product(a, b):
        low = max(pair, key=lambda x: (number(x.parts[0]), x.brackets[0] == "("))
        high = min(pair, key=lambda x: (number(x.parts[1]), x.brackets[1] == "]"))
        one = _interval(f"{low.brackets[0]}{low.parts[0]},{high.parts[1]}{high.brackets[1]}")
        found += one[1] if one else []
    return found


def _without(points: str) -> RealSet | None:
    """All numbers but some."""
    left_out = [part for part in split(points, {",", ";", "\\and"})[0] if part]
    if len(left_out) > _MOST_INTERVALS or any(number(point) is None for point in left_out):
        return None
    ends = ["-\\infty", *sorted(left_out, key=number), "\\infty"]
    return "", [Group("()", list(bounds)) for bounds in pairwise(ends)]


def _bounds(operands: list[str], operators: list[str]) -> RealSet | None:
    """The set of `x < 3`, `1 \\le x < 3`."""
    if all(operator in (">", "\\ge") for operator in operators):
        operands, operators = operands[::-1], [_TURNED[operator] for operator in operators[::-1]]
    if len(operators) == 1:
        below = number(operands[0]) is None
        operands = ["-\\infty", *operands] if below else [*operands, "\\infty"]
        operators = ["<", *operators] if below else [*operators, "<"]
    if len(operators) > 2 or set(operators) - {"<", "\\le"} or not _VARIABLE.fullmatch(operands[1]):
        return None
    brackets = ("(" if operators[0] == "<" else "[") + (")" if operators[1] == "<" else "]")
    return _interval(f"{brackets[0]}{operands[0]},{operands[2]}{brackets[1]}", operands[1])


def _interval(text: str, name: str = "") -> RealSet | None:
    """The set of `(1, 2]` and `]1, 2]`; (3, 2) is a point."""
    ends = split(text[1:-1], {",", ";"})[0]
    values = [number(end) for end in ends if re.fullmatch(r"[\[(\]].+[\])\[]", text)]
    if len(values) != 2 or None in values or values[0] >= values[1]:
        return None
    return name, [Group(text[0].replace("]", "(") + text[-1].replace("[", ")"), ends)]


_OPTION = re.compile(  # (C) 15, C. 15, but not (C)-1
    rf"(?:{FONT}\{{\s*)?(?:\(\s*[A-Ja-j]\s*\)|[A-Ja-j][).:]|[A-J]$)\s*\}}?\s*(?!\s*[+*/^=!]|(?<=\))-)"
)
_MARKED = re.compile(r"[().:]|\\(?:text|mathrm)")


def _option(text: str) -> tuple[str, str]:
    """(letter, value) of `(C) 15`; one of them is "" for a letter or a value alone."""
    letter, mark = choice_letter(text) or "", _OPTION.match(text)
    return letter, (text[mark.end() :].strip() if mark else "") if letter else text


def _same_option(answer: str, truth: str) -> bool:
    """`(C) 15` against `15` or `(C)`; of two options both letter and value must agree."""
    (ours, p), (right, q) = _option(answer), _option(truth)
    if not ours or not right:
        return bool((ours or right) and p and q) and _same(p, q)
    small = ("(" in answer and right <= "J") or (bool(_MARKED.search(truth)) and right.upper() <= "J")
    return (ours == right or (small and ours.upper() == right.upper())) and (not (p and q) or _same(p, q))


_QUALIFIER = re.compile(
    r"[,;\s]*\(?(?:\\text\s*\{\s*)?,?\s*\(?(?:\\forall"
    r"|(?<![A-Za-z])(?:for|where|with(?! (?:a )?remainder))(?![A-Za-z]))(?P<rest>.*)"
    r"|\s*[,;(]\s*\(?[a-zCK](?:_\d)?(?:\s*,\s*[a-z])*\s*(?:\\in\s*(?:\\mathbb\s*\{?[A-Z]\}?|[ZNR])\S*"
    r"|(?:\\text\s*\{\s*)?(?:is |are |being )?(?:an? |any )?(?:arbitrary )?(?:integers?|constants?)\b.*)$"
)
_BOUND = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])|\d")
_KIND = re.compile(r"\b(?:even|odd|prime|positive|negative)\b|(?<=\\mathbb\{)[A-Z]")
# The letter of a formula.
_LETTER = re.compile(rf"{FONT}\{{[^{{}}]*\}}|\\[A-Za-z]+|[A-Za-z]{{3,}}|([A-Za-z](?:_\w)?)")
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
            return _same(x, _LETTER.sub(lambda m, old=old, new=new: new if m[1] == old else m[0], y))
    return False


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
