"""Linear equations as exact data that can be rewritten step by step.

A side is a tuple of terms; a term is a coefficient times a variable, times nothing ("") or times a bracketed
side. Terms are kept as written until a step combines them, so that `2x + 3x` and `2(x + 3)` are states of
their own. Everything is a tuple of Fractions and strings: hashable, exact, and a thousand times faster
than a computer-algebra expression. sympy solves what users state (`solve`) and checks the rest in the tests.
"""

import ast
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from rlkit.errors import UserError


class Term(NamedTuple):
    """coefficient · inner, where inner is a variable, "" (a number) or a bracketed side."""

    coefficient: Fraction
    inner: "str | tuple[Term, ...]"


Side = tuple[Term, ...]
Equation = tuple[Side, Side]

ZERO: Side = (Term(Fraction(0), ""),)
LONGEST = 300  # characters of an equation


@lru_cache(8192)
def parse_side(text: str) -> Side:
    """The side that a text such as `2(x - 3/4) + 5x` denotes. Raises UserError for anything not linear."""
    shown = text if len(text) <= 60 else text[:60] + "…"
    if len(text) > LONGEST:
        raise UserError(f"{shown!r} is longer than {LONGEST} characters.")
    plain = text.lower().replace("−", "-").replace("·", "*").strip()
    source = re.sub(r"(?<=[0-9a-z)])\s*(?=[a-z(])|(?<=\))\s*(?=[0-9])", "*", plain)
    try:
        return _terms(ast.parse(source, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        raise UserError(f"{shown!r} is no linear expression such as 2(x + 3) - x/4.") from None


def _terms(node: ast.expr) -> Side:
    """The terms of a syntax tree; ValueError where it is not linear. Nothing is ever evaluated."""
    match node:
        case ast.Constant(value=int() | float() as value) if (
            not isinstance(value, bool) and abs(value) <= 10**9
        ):
            return (Term(Fraction(str(value)), ""),)
        case ast.Name(id=name) if len(name) == 1:
            return (Term(Fraction(1), name),)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return scale(_terms(operand), Fraction(-1))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _terms(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _terms(left) + _terms(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _terms(left) + scale(_terms(right), Fraction(-1))
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            a, b = _terms(left), _terms(right)
            if isinstance(op, ast.Div):
                return _times(1 / _number(b), a)
            return _times(_number(a), b) if _is_number(a) else _times(_number(b), a)
    raise ValueError("not linear")


def _is_number(side: Side) -> bool:
    return all(t.inner == "" for t in side)


def _number(side: Side) -> Fraction:
    if not _is_number(side):
        raise ValueError("not a number")
    return sum((t.coefficient for t in side), Fraction(0))


def _times(factor: Fraction, side: Side) -> Side:
    return scale(side, factor) if len(side) == 1 else (Term(factor, side),)


def parse_number(text: str) -> Fraction:
    """An exact number such as -3, 7/2 or 0.5. Raises UserError."""
    try:
        return _number(parse_side(text))
    except ValueError:
        raise UserError(f"{text!r} is not a number.") from None


@lru_cache(8192)
def parse_equation(text: str) -> Equation:
    """The equation in a text with one equals sign. Raises UserError."""
    sides = text.split("=")
    if len(sides) != 2 or not all(s.strip() for s in sides):
        raise UserError(f"{text[:60]!r} is no equation such as 3x + 7 = 16.")
    return parse_side(sides[0].strip()), parse_side(sides[1].strip())


def combine(side: Side) -> Side:
    """Like terms added up, zeros dropped, brackets left alone."""
    sums: dict[str | Side, Fraction] = {}
    for coefficient, inner in side:
        sums[inner] = sums[inner] + coefficient if inner in sums else coefficient
    return tuple(Term(c, i) for i, c in sums.items() if c) or ZERO


def add(side: Side, terms: Side) -> Side:
    """Each of `terms` joins the first like term of the side, or follows as a new one; zeros are dropped."""
    result = list(side)
    for coefficient, inner in terms:
        at = next((i for i, t in enumerate(result) if t.inner == inner), None)
        if at is None:
            result.append(Term(coefficient, inner))
        else:
            result[at] = Term(result[at].coefficient + coefficient, inner)
    return tuple(t for t in result if t.coefficient) or ZERO


def scale(side: Side, factor: Fraction) -> Side:
    """Every term times `factor`; a bracket whose factor becomes 1 is opened."""
    result: list[Term] = []
    for coefficient, inner in side:
        if coefficient * factor == 1 and isinstance(inner, tuple):
            result += inner
        else:
            result.append(Term(coefficient * factor, inner))
    return tuple(result)


def distribute(side: Side) -> Side:
    """All brackets multiplied out, like terms left as they stand."""
    result: list[Term] = []
    for coefficient, inner in side:
        if isinstance(inner, tuple):
            result += distribute(scale(inner, coefficient))
        else:
            result.append(Term(coefficient, inner))
    return tuple(result)


def value(side: Side, at: Mapping[str, Fraction]) -> Fraction:
    """The side's value where the variables have the values `at`."""
    total = Fraction(0)
    for coefficient, inner in side:
        total += coefficient * (value(inner, at) if isinstance(inner, tuple) else at[inner] if inner else 1)
    return total


def variables(side: Side) -> set[str]:
    """The variables that occur in a side."""
    return set().union(*(variables(t.inner) if isinstance(t.inner, tuple) else {t.inner} for t in side)) - {
        ""
    }


def largest(side: Side) -> int:
    """The largest numerator or denominator in a side."""
    return max(
        max(abs(c.numerator), c.denominator, largest(inner) if isinstance(inner, tuple) else 0)
        for c, inner in side
    )


def render_side(side: Side) -> str:
    """The text that `parse_side` reads back."""
    text = ""
    for coefficient, inner in side:
        sign = "-" if coefficient < 0 else "+"
        body = _render_term(abs(coefficient), inner)
        text += f" {sign} {body}" if text else (f"-{body}" if sign == "-" else body)
    return text


def _render_term(coefficient: Fraction, inner: str | Side) -> str:
    if inner == "":
        return str(coefficient)
    body = f"({render_side(inner)})" if isinstance(inner, tuple) else inner
    top = body if coefficient.numerator == 1 else f"{coefficient.numerator}{body}"
    return top if coefficient.denominator == 1 else f"{top}/{coefficient.denominator}"


@lru_cache(8192)
def render_equation(equation: Equation) -> str:
    """`left = right`."""
    return f"{render_side(equation[0])} = {render_side(equation[1])}"


def solve(equations: tuple[Equation, ...]) -> dict[str, Fraction]:
    """The one solution, by sympy. Raises UserError when there is none or more than one."""
    import sympy

    names = sorted(set().union(*(variables(side) for e in equations for side in e)))
    symbols = sympy.symbols(names)
    at = dict(zip(names, symbols, strict=True))
    zero = [to_sympy(left, at) - to_sympy(right, at) for left, right in equations]
    found: Any = list(sympy.linsolve(zero, symbols)) if names else []
    if not found or any(part.free_symbols for part in found[0]):
        shown, count = "; ".join(map(render_equation, equations)), "more than one" if found else "no"
        raise UserError(f"{shown!r} has {count} solution; state a problem that has exactly one.")
    return {name: Fraction(int(part.p), int(part.q)) for name, part in zip(names, found[0], strict=True)}


def to_sympy(side: Side, at: Mapping):
    """The side as a sympy expression in the symbols `at`."""
    import sympy

    return sympy.Add(
        *(
            sympy.Rational(c.numerator, c.denominator)
            * (to_sympy(inner, at) if isinstance(inner, tuple) else at[inner] if inner else 1)
            for c, inner in side
        )
    )
