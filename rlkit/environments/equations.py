"""Linear equations: states that are exact and hashable, the moves between them, and a careful student's next move.

A side is a tuple of terms as they are written: a coefficient times a variable, times nothing ("") or times a bracketed
side. So `2x + 3x` and `2(x + 3)` are states of their own, which a computer-algebra system would simplify away.
"""

import ast
import re
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Literal, NamedTuple

import numpy as np

from rlkit.environments.base import InvalidAction
from rlkit.errors import UserError


class Term(NamedTuple):
    """coefficient · inner, where inner is a variable, "" (a number) or a bracketed side."""

    coefficient: Fraction
    inner: "str | tuple[Term, ...]"


Side = tuple[Term, ...]
Equation = tuple[Side, Side]
Move = tuple[str, str]  # action, value
Family = Literal["linear", "two_sided", "distribute", "combine", "fractions"]

ZERO: Side = (Term(Fraction(0), ""),)
LONGEST = 300  # characters of an equation
LARGEST = 10**9  # numerators and denominators beyond it are refused, so that states stay small
MOST_TERMS, MOST_MOVES = 12, 40
# Moves without a value, and what they change.
WHOLE = {"distribute": "brackets", "combine_like_terms": "like terms"}
REWRITES = ("add_terms", "subtract_terms", "multiply_terms", "divide_terms", *WHOLE)


def parse_side(text: str) -> Side:
    """The side that a text such as `2(x - 3/4) + 5x` denotes. Raises UserError for anything not linear."""
    if len(text) > LONGEST:
        raise UserError(f"{text[:60]!r} … is longer than {LONGEST} characters.")
    plain = text.lower().replace("−", "-").replace("·", "*").strip()
    source = re.sub(r"(?<=[0-9a-z)])\s*(?=[a-z(])|(?<=\))\s*(?=[0-9])", "*", plain)
    try:
        return _terms(ast.parse(source, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        raise UserError(f"{text[:60]!r} is no linear expression such as 2(x + 3) - x/4.") from None


def _terms(node: ast.expr) -> Side:
    """The terms of a syntax tree; ValueError where it is not linear. Nothing is ever evaluated."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and abs(number) <= LARGEST:
            return (Term(Fraction(str(number)), ""),)
        case ast.Name(id=name) if len(name) == 1:
            return (Term(Fraction(1), name),)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            return scale(_terms(operand), Fraction(-1)) if isinstance(op, ast.USub) else _terms(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            first, second = _terms(left), _terms(right)
            return first + (second if isinstance(op, ast.Add) else scale(second, Fraction(-1)))
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right):
            first, second = _terms(left), _terms(right)
            if isinstance(op, ast.Mult) and is_number(first):
                first, second = second, first
            factor = number_of(second) if isinstance(op, ast.Mult) else 1 / number_of(second)
            return scale(first, factor) if len(first) == 1 else (Term(factor, first),)
    raise ValueError("not linear")


def is_number(side: Side) -> bool:
    """Whether no variable is in a side."""
    return all(t.inner == "" for t in side)


def number_of(side: Side) -> Fraction:
    """The number that a side is. Raises UserError where it has a variable."""
    if not is_number(side):
        raise UserError(f"{render_side(side)!r} is not a number.")
    return sum((t.coefficient for t in side), Fraction(0))


def parse_equation(text: str) -> Equation:
    """The equation in a text with one equals sign. Raises UserError."""
    if text.count("=") != 1:
        raise UserError(f"{text[:60]!r} is no equation such as 3x + 7 = 16.")
    left, right = map(parse_side, text.split("="))
    return left, right


def render_side(side: Side) -> str:
    """The text that `parse_side` reads back."""
    text = ""
    for coefficient, inner in side:
        sign, size = ("-" if coefficient < 0 else "+"), abs(coefficient)
        body = f"({render_side(inner)})" if isinstance(inner, tuple) else inner
        if inner:
            top = body if size.numerator == 1 else f"{size.numerator}{body}"
            body = top if size.denominator == 1 else f"{top}/{size.denominator}"
        else:
            body = str(size)
        text += f" {sign} {body}" if text else (f"-{body}" if sign == "-" else body)
    return text


def render(equation: Equation) -> str:
    """`left = right`."""
    return " = ".join(map(render_side, equation))


def add(side: Side, terms: Side) -> Side:
    """Each of `terms` joins the first like term of the side, or follows as a new one; zeros are dropped."""
    result = list(side)
    for term in terms:
        at = next((i for i, t in enumerate(result) if t.inner == term.inner), len(result))
        like = sum((t.coefficient for t in result[at : at + 1]), term.coefficient)
        result[at : at + 1] = [Term(like, term.inner)]
    return tuple(t for t in result if t.coefficient) or ZERO


def combine(side: Side) -> Side:
    """Like terms added up, zeros dropped, brackets left alone."""
    return add((), side)


def scale(side: Side, factor: Fraction) -> Side:
    """Every term times `factor`; a bracket whose factor becomes 1 is opened."""
    result: list[Term] = []
    for coefficient, inner in side:
        opened = coefficient * factor == 1 and isinstance(inner, tuple)
        result += inner if opened else [Term(coefficient * factor, inner)]  # type: ignore[arg-type]
    return tuple(result)


def distribute(side: Side) -> Side:
    """All brackets multiplied out, like terms left as they stand."""
    result: list[Term] = []
    for term in side:
        bracket = isinstance(term.inner, tuple)
        result += distribute(scale(term.inner, term.coefficient)) if bracket else [term]  # type: ignore[arg-type]
    return tuple(result)


def variables(*sides: Side) -> set[str]:
    """The variables that occur in sides."""
    return {str(t.inner) for side in sides for t in distribute(side)} - {""}


def largest(side: Side) -> int:
    """The largest numerator or denominator in a side."""
    numbers = [number for c, _ in side for number in (abs(c.numerator), c.denominator)]
    return max(numbers + [largest(inner) for _, inner in side if isinstance(inner, tuple)])


def solve(equation: Equation) -> Fraction:
    """The one solution. Raises UserError when there is none, more than one or more than one unknown."""
    left, right = equation
    terms = {t.inner: t.coefficient for t in combine(distribute(left + scale(right, Fraction(-1))))}
    number = terms.pop("", Fraction(0))
    if len(terms) != 1 or len(variables(left, right)) != 1:
        told = "is no equation in one unknown with exactly one solution: state one that is"
        raise UserError(f"{render(equation)[:200]!r} {told}.")
    return -number / next(iter(terms.values()))


def rewrite(equation: Equation, action: str, value: str) -> Equation:
    """The equation after one move on both sides; its solution stays. `value` is `7` or `2x + 3`. Raises InvalidAction,
    with the reason for the agent, and UserError for a value that cannot be read."""
    left, right = equation
    if action in WHOLE:
        change = distribute if action == "distribute" else combine
        sides = change(left), change(right)
        if sides == equation:
            raise InvalidAction(f"There are no {WHOLE[action]} to {action.split('_')[0]}.")
    elif action in ("multiply_terms", "divide_terms"):
        factor = number_of(parse_side(value))
        if factor in (0, 1):
            raise InvalidAction(f"{action} {value} is not a step: use a number other than 0 and 1.")
        factor = factor if action == "multiply_terms" else 1 / factor
        sides = scale(left, factor), scale(right, factor)
    else:
        terms, known = combine(distribute(parse_side(value))), variables(left, right)
        if not variables(terms) <= known or terms == ZERO:
            fix = f"use a number or a multiple of {', '.join(known)}"
            raise InvalidAction(f"{value!r} is nothing to add: {fix}.")
        terms = terms if action == "add_terms" else scale(terms, Fraction(-1))
        sides = add(left, terms), add(right, terms)
    if any(largest(side) > LARGEST or len(side) > MOST_TERMS for side in sides):
        raise InvalidAction(f"{action} {value} would make the equation too long; choose a simpler step.")
    return sides


@lru_cache(1024)
def distance(equation: Equation) -> int:
    """How many moves the expert needs before it can state the answer."""
    moves = 0
    while moves < MOST_MOVES and (move := expert_move(equation)) is not None:
        equation, moves = rewrite(equation, *move), moves + 1
    return moves


def expert_move(equation: Equation) -> Move | None:
    """The move a careful student makes, or None when the equation reads `variable = number`."""
    brackets = [t for side in equation for t in side if isinstance(t.inner, tuple)]
    if brackets:
        return _open(equation, brackets)
    if any(combine(side) != side for side in equation):
        return "combine_like_terms", ""
    left, right = equation if variables(equation[0]) else equation[::-1]  # 16 = 3x + 7
    others = tuple(t for t in right if t.inner) or tuple(t for t in left if not t.inner and t.coefficient)
    if others:
        negative = others[0].coefficient < 0
        value = render_side(scale(others, Fraction(-1)) if negative else others)
        return "add_terms" if negative else "subtract_terms", value
    factor = left[0].coefficient
    if factor.numerator == 1:
        return ("multiply_terms", str(factor.denominator)) if factor != 1 else None
    return "divide_terms", str(factor)


def _open(equation: Equation, brackets: list[Term]) -> Move:
    """Towards an equation without brackets."""
    common = lcm(*(t.coefficient.denominator for t in brackets))
    if common > 1:
        return "multiply_terms", str(common)
    factor = brackets[0].coefficient
    if (brackets[0],) in equation and abs(factor) != 1:
        other = scale(equation[1 - equation.index((brackets[0],))], 1 / factor)
        if is_number(other) and all(t.coefficient.denominator == 1 for t in other):
            return "divide_terms", str(factor)
    return "distribute", ""


def generated(family: Family, rng: np.random.Generator, most: int, x: int) -> str:
    """A generated equation with the solution x; `most` is the largest constant."""
    match family:
        case "linear":
            a, b = int(rng.integers(2, 10)), _nonzero(rng, most)
            return f"{a}x + ({b}) = {a * x + b}"
        case "two_sided":
            a, c = map(int, rng.choice(np.arange(1, 10), 2, replace=False))
            b = _nonzero(rng, most)
            right = (a - c) * x + b
            return f"{a}x + ({b}) = {c}x" + (f" + ({right})" if right else "")
        case "distribute":
            a, b, c = int(rng.integers(2, 7)), _nonzero(rng, 9), int(rng.integers(2)) * _nonzero(rng, most)
            return f"{a}*(x + ({b}))" + (f" + ({c})" if c else "") + f" = {a * (x + b) + c}"
        case "combine":
            a, c, b = int(rng.integers(2, 10)), int(rng.integers(2, 10)), _nonzero(rng, most)
            return f"{a}x + ({b}) + {c}x = {(a + c) * x + b}"
        case "fractions":
            d, b = int(rng.integers(2, 7)), _nonzero(rng, most)
            if rng.random() < 0.5:
                return f"x/{d} + ({b}) = {Fraction(x, d) + b}"
            return f"(x + ({b}))/{d} = {Fraction(x + b, d)}"


def _nonzero(rng: np.random.Generator, most: int) -> int:
    number = int(rng.integers(1, most + 1))
    return number if rng.random() < 0.5 else -number
