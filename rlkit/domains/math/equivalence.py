"""Whether an answer is the truth: numbers, expressions, and what is built of them.

Two answers are read into the same structure (tuple, set, interval, relation, matrix, cases, quantity,
text) and compared part by part; an order matters where the notation says so. What the parser here does
not know is left to math-verify.
"""

import itertools
import re
from collections.abc import Callable
from typing import Any

from rlkit.domains.answers import choice_letter
from rlkit.domains.math.counting import determinant
from rlkit.domains.math.evaluate import ratio_sign
from rlkit.domains.math.expressions import by_math_verify, same_expression
from rlkit.domains.math.kinds import (
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
    is_name,
)
from rlkit.domains.math.normalize import normalize, squeeze
from rlkit.domains.math.parser import Unreadable, parse
from rlkit.domains.math.quantities import as_quantity, same_quantity
from rlkit.domains.math.sets import as_interval
from rlkit.domains.math.structure import read

_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne"}
_OPTION = re.compile(  # \text{(C) } 15, (C) 15, C. 15, \text{(C) 15}
    r"(?:\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{\s*)?(?:\(\s*(?P<a>[A-J])\s*\)|(?P<b>[A-J])[).:])"
    r"\s*(?P<close>\}?)\s*(?P<value>.*)",
    re.DOTALL,
)
_MARKED = re.compile(r"[().:]|\\(?:text|mathrm|mathbf|mbox)")
_LONGEST = 20_000  # characters of an answer that is parsed


def equivalent(answer: str, truth: str) -> bool:
    """Whether two final answers mean the same."""
    if len(answer) > _LONGEST or len(truth) > _LONGEST:
        return answer == truth
    a, b = normalize(answer), normalize(truth)
    if not a or not b:
        return False
    return squeeze(a) == squeeze(b) or _same_choice(a, b) or _same_option(a, b) or compare(a, b)


def _same_choice(answer: str, truth: str) -> bool:
    """A letter of a multiple choice, alone or in front of the option's text: `(B)`, `B. 12`."""
    right, given = choice_letter(truth), choice_letter(answer)
    if right is None or given is None or not "A" <= right.upper() <= "J":
        return False
    if _option(truth) is not None and _option(answer) is not None:
        return False  # both have a value too, which must agree
    return right == given or (right.upper() == given.upper() and _MARKED.search(truth) is not None)


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
    if x is None and y is None:
        return False
    if x is not None and y is not None:
        return x[0] == y[0] and (squeeze(x[1]) == squeeze(y[1]) or compare(x[1], y[1]))
    option, other = (x, b) if x is not None else (y, a)
    assert option is not None
    return choice_letter(other) is None and (
        squeeze(option[1]) == squeeze(other) or compare(option[1], other)
    )


def compare(a: str, b: str) -> bool:
    """`equivalent` for two normalised answers, by every way that they can be read."""
    return any(_same_value(x, y) for x, y in itertools.product(read(a), read(b)))


def _same_value(a: Value, b: Value) -> bool:
    if isinstance(a, Relation) or isinstance(b, Relation):
        return _relations(a, b)
    if isinstance(a, Items) or isinstance(b, Items):
        return _items(a, b)
    for kind, test in _TESTS.items():
        if isinstance(a, kind) and isinstance(b, kind):
            return test(a, b)
    a, b = _worked_out(a), _worked_out(b)
    numeric = (Expression, Quantity)
    if isinstance(a, numeric) and isinstance(b, numeric):
        return same_quantity(as_quantity(a), as_quantity(b))
    for x, y in ((a, b), (b, a)):
        if isinstance(y, Expression) and isinstance(x, Ratio):
            whole = re.fullmatch(r"[-+]?\d+", y.text)  # 2:1 is no way to write 2
            return len(x.parts) == 2 and not whole and compare(f"({x.parts[0]})/({x.parts[1]})", y.text)
        if isinstance(y, Expression) and isinstance(x, Based):
            return y.text == x.digits  # the base left out
    return _as_text(a) == _as_text(b) != ""


def _worked_out(value: Value) -> Value:
    """A determinant as the expression of its cells."""
    if isinstance(value, Matrix) and value.kind == "determinant" and (text := determinant(value.rows)):
        return Expression(text)
    return value


def _as_text(value: Value) -> str:
    text = value.text if isinstance(value, Text) else squeeze(value.text)
    return text.casefold() if len(text) > 1 else text


def _expressions(a: Expression, b: Expression) -> bool:
    return same_expression(a.text, b.text)


def _texts(a: Text, b: Text) -> bool:
    return a.text == b.text or (a.date is not None and a.date == b.date)


def _times(a: Time, b: Time) -> bool:
    return a.clock.lstrip("0") == b.clock.lstrip("0") and (a.half == b.half or not a.half or not b.half)


def _based(a: Based, b: Based) -> bool:
    return a.base == b.base and a.digits.lstrip("0").lower() == b.digits.lstrip("0").lower()


def _ratios(a: Ratio, b: Ratio) -> bool:
    if len(a.parts) != len(b.parts):
        return False
    first = f"({a.parts[0]})/({b.parts[0]})"
    return all(same_expression(f"({x})/({y})", first) for x, y in zip(a.parts[1:], b.parts[1:], strict=True))


def _matrices(a: Matrix, b: Matrix) -> bool:
    return a.kind == b.kind and _pairwise(a.rows, b.rows, lambda x, y: _pairwise(x, y, compare))


def _cases(a: Cases, b: Cases) -> bool:
    return _matching(a.rows, b.rows, lambda x, y: _pairwise(x, y, _same_cell))


def _same_cell(a: str, b: str) -> bool:
    return squeeze(a) == squeeze(b) or compare(a, b)


def _unions(a: Union, b: Union) -> bool:
    return _matching(a.parts, b.parts, _same_cell)


def _opaque(a: Opaque, b: Opaque) -> bool:
    return squeeze(a.text) == squeeze(b.text) or by_math_verify(a.text, b.text)


def _pairwise(a: list[Any], b: list[Any], test: Callable[[Any, Any], bool]) -> bool:
    return len(a) == len(b) and all(test(x, y) for x, y in zip(a, b, strict=True))


def _matching(a: list[Any], b: list[Any], test: Callable[[Any, Any], bool]) -> bool:
    """Whether each element of one list is an element of the other, each used once."""
    left = list(b)
    if len(a) != len(b) or len(a) > 200:
        return False
    for item in a:
        found = next((i for i, other in enumerate(left) if test(item, other)), None)
        if found is None:
            return False
        del left[found]
    return True


def _distinct(items: list[str]) -> list[str]:
    found: list[str] = []
    for item in items[:200]:
        if not any(_same_cell(item, other) for other in found):
            found.append(item)
    return found


def _items(a: Value, b: Value) -> bool:
    if isinstance(a, Union) or isinstance(b, Union):
        return _matching(_pieces(a), _pieces(b), _same_cell)
    if not (isinstance(a, Items) and isinstance(b, Items)):
        items, other = (a, b) if isinstance(a, Items) else (b, a)
        one = isinstance(items, Items) and items.unordered and len(items.parts) == 1
        return one and _same_cell(items.parts[0], other.text)  # type: ignore[union-attr]
    if a.unordered and b.unordered:
        if "\\{" in (a.opening, b.opening):
            return _matching(_distinct(a.parts), _distinct(b.parts), _same_cell)
        return _matching(a.parts, b.parts, _same_cell)
    if a.unordered or b.unordered:
        bare, ordered = (a, b) if a.unordered else (b, a)
        if bare.opening or ordered.opening != "(":
            return False
        return _pairwise(_values_by_name(bare.parts), ordered.parts, _same_cell)
    return (a.opening, a.closing) == (b.opening, b.closing) and _pairwise(a.parts, b.parts, _same_cell)


def _values_by_name(parts: list[str]) -> list[str]:
    """`y=3, x=2` as the values of x, y; other lists as they are."""
    relations = [next((v for v in read(p) if isinstance(v, Relation)), None) for p in parts]
    if not all(r and r.operators == ["="] and is_name(r.operands[0]) for r in relations):
        return parts
    return [r.operands[1] for r in sorted(relations, key=lambda r: r.operands[0])]  # type: ignore[union-attr]


def _pieces(value: Value) -> list[str]:
    """The intervals of a union, or of `x < 1 or x > 3`."""
    parts = value.parts if isinstance(value, Union) else [value.text]
    if isinstance(value, Items) and not value.opening:
        parts = value.parts
    return [piece for part in parts for piece in [as_interval(part) or part]]


def _relations(a: Value, b: Value) -> bool:
    if isinstance(a, Relation) and isinstance(b, Relation):
        return _same_relation(a, b)
    relation, other = (a, b) if isinstance(a, Relation) else (b, a)
    assert isinstance(relation, Relation)
    if len(relation.operands) == 2 and relation.operators[0] in ("=", "\\in", "\\approx"):
        return is_name(relation.operands[0]) and _same_cell(relation.operands[1], other.text)
    interval = as_interval(relation.text)
    return interval is not None and _same_cell(interval, other.text)


def _same_relation(a: Relation, b: Relation) -> bool:
    if _chain(a, b) or _chain(a, b.reversed(_FLIPPED)):
        return True
    interval_a, interval_b = as_interval(a.text), as_interval(b.text)
    if interval_a and interval_b:
        return a.variable() == b.variable() and compare(interval_a, interval_b)
    if len(a.operators) != 1 or len(b.operators) != 1:
        return False
    try:
        left, right = (parse(f"({r.operands[0]})-({r.operands[1]})") for r in (a, b))
    except (Unreadable, RecursionError):
        return False
    sign = ratio_sign(left, right)
    operator = a.operators[0] if sign > 0 else _FLIPPED.get(a.operators[0])
    return sign != 0 and operator == b.operators[0]


def _chain(a: Relation, b: Relation) -> bool:
    return a.operators == b.operators and _pairwise(a.operands, b.operands, _same_cell)


_TESTS: dict[type, Callable[[Any, Any], bool]] = {
    Expression: _expressions,
    Quantity: same_quantity,
    Text: _texts,
    Time: _times,
    Based: _based,
    Ratio: _ratios,
    Matrix: _matrices,
    Cases: _cases,
    Union: _unions,
    Opaque: _opaque,
}
