"""Whether an answer is the truth: numbers, expressions, and what is built of them.

Both are read into the same forms (list, interval, relation, matrix, quantity, text …) and compared part by part; an
order matters where the notation says so.
"""

import itertools
import re
from collections.abc import Callable
from typing import Any

from rlkit.domains.answers import choice_letter
from rlkit.domains.math import units
from rlkit.domains.math.evaluate import (
    number,
    ratio_sign,
    same_antiderivative,
    same_expression,
    start_work,
)
from rlkit.domains.math.forms import (
    Based,
    Cases,
    Congruence,
    Expression,
    Form,
    Items,
    Matrix,
    Opaque,
    Quantity,
    Ratio,
    Relation,
    Text,
    Time,
    Union,
    determinant,
    is_name,
    read_forms,
)
from rlkit.domains.math.read import Unreadable, normalize, parse, squeeze
from rlkit.domains.math.sets import TURNED, RealSet, linear, real_set

_OPTION = re.compile(  # \text{(C) } 15, (C) 15, C. 15, \text{(C) 15}
    r"(?:\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{\s*)?(?:\(\s*(?P<a>[A-J])\s*\)|(?P<b>[A-J])[).:])"
    r"\s*(?P<close>\}?)\s*(?P<value>.*)",
    re.DOTALL,
)
_MARKED = re.compile(r"[().:]|\\(?:text|mathrm|mathbf|mbox)")
_FONT = r"(?:\\(?:text|textrm|mathrm|mbox)\s*\{\s*)?"
_QUALIFIER = re.compile(
    rf"[,;\s]*\(?{_FONT},?\s*\(?(?:\\forall|(?<![A-Za-z])(?:for|where|with)(?![A-Za-z]))(?P<rest>.*)"
    rf"|\s*[,;(]\s*\(?[a-zCK](?:_\d)?(?:\s*,\s*[a-z])*\s*"
    r"(?:\\in\s*(?:\\mathbb\s*\{?[A-Z]\}?|[ZNR])\S*"
    rf"|{_FONT}(?:is |are |being )?(?:an? |any )?(?:arbitrary )?(?:integers?|constants?)\b.*)$",
    re.DOTALL,
)
_FAMILY = re.compile(r"\\\{(?P<body>[^:|]+)[:|]\s*(?P<rest>[a-z]\s*\\in\s*\\mathbb\s*\{Z\}[^:|]{0,20})\\\}")
_NAMED = re.compile(r"(?:\\?[A-Za-z]+|[A-Za-z]_\{?\w\}?)\s*=")
_WHOLE = re.compile(r"\\mathbb\s*\{?[ZN]|\\in\s*[ZN]\b|integer|whole|natural")
_PARAMETERS, _CONSTANTS = set("nkmljtpqr"), {"C", "c", "K", "k", "A", "C_1", "c_1", "C_0"}
_CONSTANT_WORD = re.compile(r"\\(?:text|mathrm|mbox)\s*\{\s*(?:an? )?(?:arbitrary )?const(?:ant|\.)?\s*\}")
_SHIFTS = ("({}+1)", "({}-1)", "(-{})", "(-{}+1)", "(-{}-1)")
_SYNONYMS = {"does not exist": "dne", "limit does not exist": "dne", "the limit does not exist": "dne"} | dict.fromkeys(
    ("infinite", "infinite solutions", "infinitely many solutions", "there are infinitely many solutions",
     "infinite number of solutions", "an infinite number of solutions"), "infinitely many"
)  # fmt: skip
_LONGEST, _MOST_ITEMS = 20_000, 200  # characters of an answer that is read; parts of a list


def equivalent(answer: str, truth: str) -> bool:
    """Whether two final answers mean the same. What an answer breaks is wrong; what the truth breaks is raised."""
    if len(answer) > _LONGEST or len(truth) > _LONGEST:
        return answer == truth
    start_work()
    a, b = normalize(answer), normalize(truth)
    if not a or not b:
        return False
    read_forms(b), real_set(b)  # the truth first, alone
    try:
        return (
            squeeze(a) == squeeze(b)
            or _same_choice(a, b)
            or _same_option(a, b)
            or _same(a, b)
            or _same_qualified(a, b)
        )
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return False


def approximately(answer: str, truth: str, tolerance: float) -> bool:
    """Whether two numbers, with or without units, agree within a relative tolerance; whole numbers must be equal."""
    start_work()
    theirs = [form for form in read_forms(normalize(truth)) if isinstance(form, Expression | Quantity)]
    try:
        ours = [form for form in read_forms(normalize(answer)) if isinstance(form, Expression | Quantity)]
        pairs = itertools.product(ours, theirs)
        return any(units.approximately(_amount(a), _amount(b), tolerance) for a, b in pairs)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return False


def _same(a: str, b: str) -> bool:
    """Whether two normalised answers are the same by any way that they can be read."""
    if squeeze(a) == squeeze(b):
        return True
    left, right = real_set(a), real_set(b)
    if left and right and not (left.bare and right.bare):
        return _same_set(left, right)
    return any(_same_form(x, y) for x, y in itertools.product(read_forms(a), read_forms(b)))


def _same_set(a: RealSet, b: RealSet) -> bool:
    if (a.name and b.name and a.name != b.name) or len(a.intervals) != len(b.intervals):
        return False
    return _matching(list(a.intervals), list(b.intervals), _same_interval)


def _same_interval(x: Any, y: Any) -> bool:
    ends = (x.low_in, x.high_in) == (y.low_in, y.high_in)
    return ends and same_expression(x.low, y.low) and same_expression(x.high, y.high)


def _same_choice(answer: str, truth: str) -> bool:
    """A letter of a multiple choice, alone or in front of the option's text: `(B)`, `B. 12`."""
    right, ours = choice_letter(truth), choice_letter(answer)
    if right is None or ours is None or not "A" <= right.upper() <= "J":
        return False
    if _option(truth) is not None and _option(answer) is not None:
        return False  # both have a value too, which must agree
    return right == ours or (right.upper() == ours.upper() and _MARKED.search(truth) is not None)


def _option(text: str) -> tuple[str, str] | None:
    """(letter, value) of `(C) 15`; None for a letter or a value alone."""
    match = _OPTION.fullmatch(text)
    if match is None or not (value := match["value"].strip()):
        return None
    if text.startswith("\\") and not match["close"]:
        if not value.endswith("}"):
            return None
        value = value[:-1].strip()
    return (match["a"] or match["b"], value) if value else None


def _same_option(a: str, b: str) -> bool:
    """`(C) 15` against `15`; of two options both letter and value must agree."""
    x, y = _option(a), _option(b)
    if x is not None and y is not None:
        return x[0] == y[0] and _same(x[1], y[1])
    if x is not None:
        return choice_letter(b) is None and _same(x[1], b)
    return y is not None and choice_letter(a) is None and _same(a, y[1])


def _same_qualified(a: str, b: str) -> bool:
    """Without "for all n" and the like, and with a parameter or constant of integration under another letter."""
    a, b = _CONSTANT_WORD.sub("C", a), _CONSTANT_WORD.sub("C", b)
    (x, x_condition), (y, y_condition) = _unqualified(a), _unqualified(b)
    named = [_NAMED.match(text) for text in (x, y)]
    if named[0] and "=" not in y and "," not in x:
        x = x[named[0].end() :]
    elif named[1] and "=" not in x and "," not in y:
        y = y[named[1].end() :]
    elif named[0] and named[1] and named[0][0] == named[1][0] and "\\pi" in x and "\\pi" in y:
        x, y = x[named[0].end() :], y[named[1].end() :]
    whole = bool(_WHOLE.search(x_condition) or _WHOLE.search(y_condition))
    renamed = _renamed(x, y, whole)
    if renamed is not None:
        name, y = renamed
        y_condition = ""
        if name in _CONSTANTS and _same_up_to(x, y, name):
            return True
    if (x, y) != (a, b) and _agree(x_condition, y_condition) and _same(x, y):
        return True
    shared = (_letters(x) & _letters(y) & _PARAMETERS) if whole or "\\pi" in x else set()
    if len(shared) == 1 and ("\\pi" in x and "\\pi" in y) and _agree(x_condition, y_condition):
        name = next(iter(shared))
        return any(_same(_substituted(x, name, shift.format(name)), y) for shift in _SHIFTS)
    return "C" in _letters(x) & _letters(y) and _same_up_to(x, y, "C")


def _unqualified(text: str) -> tuple[str, str]:
    """The answer and the qualifier behind it, "" where it has none: (`2n+1`, `n \\ge 0`) of `2n+1 for n \\ge 0`."""
    if len(text) < 500 and (family := _FAMILY.fullmatch(text)):
        return family["body"].strip(), family["rest"]
    match = _QUALIFIER.search(text, 1) if len(text) < 500 else None
    if match is None:
        return text, ""
    body = text[: match.start()].strip(" ,;")
    mathematical = re.search(r"[\d=^+]|\\(?!text|mathrm|mbox)", body) or len(body) == 1
    if (
        not body
        or re.search(r"\\or\s*[-\d]", match[0])
        or not mathematical
        or body.count("{") != body.count("}")
        or body.count("(") != body.count(")")
    ):
        return text, ""
    return body, (match["rest"] or match[0]).strip(" ,;(){}")


def _agree(a: str, b: str) -> bool:
    """Whether two qualifiers do not contradict each other: only one of two bounds is a contradiction."""
    if not a or not b or squeeze(a) == squeeze(b):
        return True
    bounded = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])|\d")
    return not (bounded.search(a) and bounded.search(b)) or _same(a, b)


def _letters(text: str) -> set[str]:
    """The letters of a formula, with their subscripts; none of its commands and words."""
    bare = re.sub(r"\\(?:text|mathrm|mbox|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+", " ", text)
    found = re.findall(r"[A-Za-z](?:_\{?\w\}?)?", re.sub(r"[A-Za-z]{3,}", " ", bare))
    return {name.replace("{", "").replace("}", "") for name in found}


def _substituted(text: str, name: str, value: str) -> str:
    pattern = re.compile(
        r"\\[A-Za-z]+|" + re.escape(name).replace("_", r"_\{?") + (r"\}?" if "_" in name else r"(?!_)")
    )
    return pattern.sub(lambda m: m[0] if m[0].startswith("\\") else value, text)


def _renamed(a: str, b: str, whole: bool) -> tuple[str, str] | None:
    """(letter, the truth with that letter) where each has one letter that the other has not, and both may differ."""
    ours, theirs = _letters(a) - _letters(b), _letters(b) - _letters(a)
    if len(ours) != 1 or len(theirs) != 1 or units.split_unit(a)[1] or units.split_unit(b)[1]:
        return None  # 25 K is not 25 C
    mine, other = ours.pop(), theirs.pop()
    parameters = {mine, other} <= _PARAMETERS and (
        whole or ("\\pi" in a and "\\pi" in b and not _letters(a) & _letters(b))
    )
    constants = {mine, other} <= _CONSTANTS and other not in ("A", "k") and squeeze(b) != other
    return (mine, _substituted(b, other, mine)) if parameters or constants else None


def _same_up_to(a: str, b: str, constant: str) -> bool:
    """Two antiderivatives, which may differ by a constant; a left side is left out."""
    x, y = (text.rpartition("=")[2] for text in (a, b))
    return same_antiderivative(x, y, constant)


def _same_form(a: Form, b: Form) -> bool:
    if isinstance(a, Congruence) or isinstance(b, Congruence):
        return _same_congruence(a, b)
    if isinstance(a, Relation) or isinstance(b, Relation):
        return _same_relations(a, b)
    if isinstance(a, Items) or isinstance(b, Items):
        return _same_items(a, b)
    for kind, test in _TESTS.items():
        if isinstance(a, kind) and isinstance(b, kind):
            return test(a, b)
    a, b = _worked_out(a), _worked_out(b)
    if isinstance(a, Expression | Quantity) and isinstance(b, Expression | Quantity):
        return units.same_amount(_amount(a), _amount(b))
    for x, y in ((a, b), (b, a)):
        if isinstance(y, Expression) and isinstance(x, Ratio):
            whole = re.fullmatch(r"[-+]?\d+", y.text)  # 2:1 is no way to write 2
            return len(x.parts) == 2 and not whole and _same(f"({x.parts[0]})/({x.parts[1]})", y.text)
        if isinstance(y, Expression) and isinstance(x, Based):
            return y.text == x.digits  # the base left out
    return _as_text(a) == _as_text(b) != ""


def _worked_out(form: Form) -> Form:
    """A determinant as the expression of its cells."""
    small = isinstance(form, Matrix) and form.kind == "determinant" and len(form.text) < 400
    text = determinant(form.rows) if small else None  # type: ignore[union-attr]
    return Expression(text) if text else form


def _amount(form: Expression | Quantity) -> units.Amount:
    return (form.text, form.unit if isinstance(form, Quantity) else "")


def _as_text(form: Form) -> str:
    text = form.text if isinstance(form, Text) else squeeze(form.text)
    return text.casefold() if len(text) > 1 else text


def _same_text(a: Text, b: Text) -> bool:
    x, y = (_SYNONYMS.get(t.text, t.text) for t in (a, b))
    return x == y or (a.date is not None and a.date == b.date)


def _same_time(a: Time, b: Time) -> bool:
    return a.clock.lstrip("0") == b.clock.lstrip("0") and (a.half == b.half or not a.half or not b.half)


def _same_based(a: Based, b: Based) -> bool:
    return a.base == b.base and a.digits.lstrip("0").lower() == b.digits.lstrip("0").lower()


def _same_ratio(a: Ratio, b: Ratio) -> bool:
    if len(a.parts) != len(b.parts):
        return False
    first = f"({a.parts[0]})/({b.parts[0]})"
    return all(same_expression(f"({x})/({y})", first) for x, y in zip(a.parts[1:], b.parts[1:], strict=True))


def _same_matrix(a: Matrix, b: Matrix) -> bool:
    return a.kind == b.kind and _pairwise(a.rows, b.rows, lambda x, y: _pairwise(x, y, _same))


def _same_cases(a: Cases, b: Cases) -> bool:
    return _matching(a.rows, b.rows, lambda x, y: _pairwise(x, y, _same))


def _pairwise(a: list[Any], b: list[Any], test: Callable[[Any, Any], bool]) -> bool:
    return len(a) == len(b) and all(test(x, y) for x, y in zip(a, b, strict=True))


def _matching(a: list[Any], b: list[Any], test: Callable[[Any, Any], bool]) -> bool:
    """Whether each element of one list is an element of the other, each used once."""
    if len(a) != len(b) or len(a) > _MOST_ITEMS:
        return False
    values = [[number(x) if isinstance(x, str) else None for x in items] for items in (a, b)]
    if all(v is not None for items in values for v in items):
        # Numbers are compared in order: 200 need 200 comparisons.
        a, b = (
            [items[k] for k in sorted(range(len(v)), key=v.__getitem__)]  # type: ignore[arg-type]
            for v, items in zip(values, (a, b), strict=True)
        )
        return _pairwise(a, b, test)
    left = list(b)
    for item in a:
        found = next((i for i, other in enumerate(left) if test(item, other)), None)
        if found is None:
            return False
        del left[found]
    return True


def _same_members(a: list[str], b: list[str]) -> bool:
    """Whether two sets have the same members, however often each is named."""
    if max(len(a), len(b)) > _MOST_ITEMS:
        return False
    return all(any(_same(x, y) for x in a) for y in b) and all(any(_same(x, y) for y in b) for x in a)


def _same_items(a: Form, b: Form) -> bool:
    if isinstance(a, Union) or isinstance(b, Union):
        return _matching(_pieces(a), _pieces(b), _same)
    if not (isinstance(a, Items) and isinstance(b, Items)):
        items, other = (a, b) if isinstance(a, Items) else (b, a)
        one = isinstance(items, Items) and items.unordered and len(items.parts) == 1
        return one and not isinstance(other, Text) and _same(items.parts[0], other.text)  # type: ignore[union-attr]
    for single, other in ((a, b), (b, a)):
        if single.opening == "\\{" and len(single.parts) == 1 and other.opening == "(":
            return _same(single.parts[0], other.text)  # {(2,3)}
    if "\\ldots" in a.parts or "\\ldots" in b.parts:
        return _same_sequence(a.parts, b.parts)
    if a.unordered and b.unordered:
        return (_same_members if "\\{" in (a.opening, b.opening) else _same_list)(a.parts, b.parts)
    if a.unordered or b.unordered:
        bare, ordered = (a, b) if a.unordered else (b, a)
        if bare.opening or ordered.opening != "(":
            return False
        parts = _values_by_name(bare.parts)
        return _pairwise(*((parts, ordered.parts) if bare is a else (ordered.parts, parts)), _same)
    return (a.opening, a.closing) == (b.opening, b.closing) and _pairwise(a.parts, b.parts, _same)


def _same_list(a: list[str], b: list[str]) -> bool:
    return _matching(a, b, _same)


def _same_sequence(a: list[str], b: list[str]) -> bool:
    """`1, 2, 3, …`: the same members on both sides of the ellipsis, one of which may show more of them."""
    a, b = _filled(a), _filled(b)
    if "\\ldots" not in a or "\\ldots" not in b:
        return _pairwise(a, b, _same)
    i, j = a.index("\\ldots"), b.index("\\ldots")
    shown = min(i, j)
    return (
        (i == j or shown >= 3) and _pairwise(a[:shown], b[:shown], _same) and _pairwise(a[i:], b[j:], _same)
    )


def _filled(parts: list[str]) -> list[str]:
    """`2, 4, …, 10` written out, where the members are whole numbers of one step."""
    if "\\ldots" not in parts:
        return parts
    at = parts.index("\\ldots")
    shown = parts[:at]
    if (
        len(shown) < 2
        or at != len(parts) - 2
        or not all(re.fullmatch(r"-?\d{1,6}", p) for p in [*shown, parts[-1]])
    ):
        return parts
    first, step, last = int(shown[0]), int(shown[1]) - int(shown[0]), int(parts[-1])
    if not step or (last - first) % step or not 0 < (last - first) // step < _MOST_ITEMS:
        return parts
    every = [str(k) for k in range(first, last + (1 if step > 0 else -1), step)]
    return every if every[: len(shown)] == shown else parts


def _values_by_name(parts: list[str]) -> list[str]:
    """`y=3, x=2` as the values of x, y; a list without names as it is; nothing for a mixture of both."""
    relations = [next((v for v in read_forms(p) if isinstance(v, Relation)), None) for p in parts]
    if not any(relations):
        return parts
    named = all(r and r.operators == ["="] and is_name(r.operands[0]) for r in relations)
    if not named or len({r.operands[0] for r in relations if r}) < len(parts):
        return []
    return [r.operands[1] for r in sorted(relations, key=lambda r: r.operands[0])]  # type: ignore[union-attr]


def _pieces(form: Form) -> list[str]:
    """The parts of a union or of `A or B`."""
    if isinstance(form, Union) or (isinstance(form, Items) and not form.opening):
        return form.parts
    return [form.text]


def _same_congruence(a: Form, b: Form) -> bool:
    if not (isinstance(a, Congruence) and isinstance(b, Congruence)):
        congruence, other = (a, b) if isinstance(a, Congruence) else (b, a)
        assert isinstance(congruence, Congruence)
        text, value = ", ".join(congruence.residues), other.text
        if isinstance(other, Relation):
            if other.operators != ["="] or other.operands[0] != congruence.name:
                return False
            value = other.operands[1]
        return _same(text, value) or _same_residues(congruence, value)
    if (a.name and b.name and a.name != b.name) or not same_expression(a.modulus, b.modulus):
        return False
    modulus = a.modulus if re.fullmatch(r"[1-9]\d{0,99}", a.modulus) else ""
    whole = all(re.fullmatch(r"-?\d{1,99}", r) for r in a.residues + b.residues)
    if modulus and whole:
        return {int(r) % int(modulus) for r in a.residues} == {int(r) % int(modulus) for r in b.residues}
    return _same_members(a.residues, b.residues)


def _same_residues(congruence: Congruence, text: str) -> bool:
    """Whether `7k+3` with a whole number k has the residue 3 modulo 7."""
    found, residue = linear(text), congruence.residues[0]
    if (
        len(congruence.residues) != 1
        or found is None
        or not re.fullmatch(r"[1-9]\d{0,99}", congruence.modulus)
    ):
        return False
    name, slope, constant, absolute = found
    if absolute or name not in _PARAMETERS or not re.fullmatch(r"-?\d{1,99}", residue):
        return False
    return abs(slope) == int(congruence.modulus) and (constant - int(residue)) % int(congruence.modulus) == 0


def _same_relations(a: Form, b: Form) -> bool:
    if isinstance(a, Relation) and isinstance(b, Relation):
        return _same_relation(a, b)
    if isinstance(a, Relation):
        return _gives(a, b, truth=False)
    assert isinstance(b, Relation)
    return _gives(b, a, truth=True)


def _gives(relation: Relation, other: Form, truth: bool) -> bool:
    """Whether `x = 5`, `\\overline{AB} = 2+3 = 5` or `2+3 = 5` says the other value; of answers also `m+n = 5`."""
    if relation.operators == ["\\in"]:
        return is_name(relation.operands[0]) and _same(relation.operands[1], other.text)
    if set(relation.operators) - {"=", "\\approx"}:
        return False
    name, *values = relation.operands
    asked = (
        not truth and number(other.text) is not None and not re.search(r"\d", name) and number(name) is None
    )
    if not is_name(name) and not asked:
        values = relation.operands
    if truth:
        return all(_same(other.text, value) for value in values)
    return all(
        _same(value, other.text) for value in values if not (is_name(value) and value is not values[-1])
    )


def _same_relation(a: Relation, b: Relation) -> bool:
    turned = Relation(b.text, b.operands[::-1], [TURNED.get(o, o) for o in b.operators[::-1]])
    if _same_chain(a, b) or _same_chain(a, turned):
        return True
    if len(a.operators) != 1 or len(b.operators) != 1:
        return False
    try:
        left, right = (parse(f"({r.operands[0]})-({r.operands[1]})") for r in (a, b))
    except Unreadable:
        return False
    sign = ratio_sign(left, right)
    operator = a.operators[0] if sign > 0 else TURNED.get(a.operators[0])
    return sign != 0 and operator == b.operators[0]


def _same_chain(a: Relation, b: Relation) -> bool:
    return a.operators == b.operators and _pairwise(a.operands, b.operands, _same)


_TESTS: dict[type, Callable[[Any, Any], bool]] = {
    Expression: lambda a, b: same_expression(a.text, b.text),
    Text: _same_text,
    Time: _same_time,
    Based: _same_based,
    Ratio: _same_ratio,
    Matrix: _same_matrix,
    Cases: _same_cases,
    Union: lambda a, b: _same_list(a.parts, b.parts),
    Opaque: lambda a, b: squeeze(a.text) == squeeze(b.text),
}
