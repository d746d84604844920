"""Linear algebra as moves: what a rewriting action does to a system of equations, and a scripted expert."""

import re
from fractions import Fraction
from functools import lru_cache
from math import lcm

from rlkit.environments.base import InvalidAction
from rlkit.environments.equations import (
    Equation,
    Side,
    add,
    combine,
    distribute,
    largest,
    parse_number,
    parse_side,
    render_side,
    scale,
    variables,
)
from rlkit.errors import UserError

System = tuple[Equation, ...]
Move = tuple[str, str]  # action, value
REWRITES = (
    "add_terms",
    "subtract_terms",
    "multiply_terms",
    "divide_terms",
    "distribute",
    "combine_like_terms",
)
LARGEST = 10**9  # numerators and denominators beyond it are refused, so that states stay small
MOST_TERMS = 12


@lru_cache(8192)
def rewrite(system: System, action: str, value: str) -> System:
    """The system after one move on both sides of one equation; solutions stay what they are.

    `value` is `7`, `2x + 3`, in a system also `3/2eq1` (a multiple of another equation), each preceded by
    `2:` where it is not about the first equation. Raises InvalidAction, with the reason for the agent.
    """
    index, value = _address(system, action, value)
    try:
        sides = _move(system, index, action, value)
    except UserError as error:
        raise InvalidAction(f"{action} does not understand its value: {error}") from None
    if any(largest(side) > LARGEST or len(side) > MOST_TERMS for side in sides):
        raise InvalidAction(f"{action} {value} would make the equation too long; choose a simpler step.")
    return (*system[:index], sides, *system[index + 1 :])


def _address(system: System, action: str, value: str) -> tuple[int, str]:
    """The equation that a value is about, and the rest: `2: 7`, or a bare `2` for moves without a value."""
    bare = action in ("distribute", "combine_like_terms")
    match = re.match(r"(\d)$" if bare else r"(\d)\s*:", value.strip())
    if match is None or len(system) == 1:
        return 0, value.strip()
    index = int(match[1]) - 1
    if not 0 <= index < len(system):
        raise InvalidAction(f"There is no equation {match[1]}; there are {len(system)}.")
    return index, value.strip()[match.end() :].strip()


def _move(system: System, index: int, action: str, value: str) -> Equation:
    left, right = system[index]
    match action:
        case "distribute":
            moved = distribute(left), distribute(right)
            if moved == (left, right):
                raise InvalidAction("There are no brackets to distribute.")
        case "combine_like_terms":
            moved = combine(left), combine(right)
            if moved == (left, right):
                raise InvalidAction("There are no like terms to combine.")
        case "multiply_terms" | "divide_terms":
            factor = parse_number(value)
            if factor in (0, 1):
                raise InvalidAction(f"{action} {value} is not a step: use a number other than 0 and 1.")
            factor = factor if action == "multiply_terms" else 1 / factor
            moved = scale(left, factor), scale(right, factor)
        case _:
            moved = _add(system, index, value, Fraction(1 if action == "add_terms" else -1))
    return moved


def _add(system: System, index: int, value: str, sign: Fraction) -> Equation:
    left, right = system[index]
    row = re.fullmatch(r"(\d+(?:/\d+)?)?\s*eq\s*(\d)", value)
    if row and len(system) > 1:
        other, factor = int(row[2]) - 1, sign * parse_number(row[1] or "1")
        if other == index or not 0 <= other < len(system) or not factor:
            raise InvalidAction(f"{value} is no multiple of another equation of this system.")
        first, second = (scale(distribute(side), factor) for side in system[other])
        return add(left, first), add(right, second)
    terms = combine(distribute(parse_side(value)))
    known = set().union(*(variables(side) for equation in system for side in equation))
    if not variables(terms) <= known or not any(t.coefficient for t in terms):
        raise InvalidAction(
            f"{value!r} is nothing to add: use a number or a multiple of {', '.join(sorted(known))}."
        )
    return add(left, scale(terms, sign)), add(right, scale(terms, sign))


@lru_cache(8192)
def distance(system: System, limit: int = 40) -> int:
    """How many moves the expert needs before it can state the answer."""
    moves = 0
    while (move := expert_move(system)) is not None and moves < limit:
        system = rewrite(system, *move)
        moves += 1
    return moves


@lru_cache(8192)
def expert_move(system: System) -> Move | None:
    """The move a careful student makes, or None when every equation reads `variable = number`."""
    for i, equation in enumerate(system):
        move = _tidy(equation)
        if move:
            return _addressed(move, i)
    return _isolate(system[0]) if len(system) == 1 else _eliminate(system)


def _addressed(move: Move, index: int) -> Move:
    action, value = move
    return (action, f"{index + 1}: {value}" if value else str(index + 1)) if index else move


def _tidy(equation: Equation) -> Move | None:
    """Open brackets and collect terms; None when both sides are plain sums."""
    brackets = [t for side in equation for t in side if isinstance(t.inner, tuple)]
    if brackets:
        common = lcm(*(t.coefficient.denominator for t in brackets))
        if common > 1:
            return "multiply_terms", str(common)
        alone = next((i for i in (0, 1) if equation[i] == (brackets[0],)), None)
        factor = brackets[0].coefficient
        if alone is not None and abs(factor) != 1 and _whole(scale(equation[1 - alone], 1 / factor)):
            return "divide_terms", str(factor)
        return "distribute", ""
    return ("combine_like_terms", "") if any(combine(side) != side for side in equation) else None


def _whole(side: Side) -> bool:
    return all(t.inner == "" and t.coefficient.denominator == 1 for t in side)


def _isolate(equation: Equation) -> Move | None:
    """Towards `variable = number` for one tidy equation."""
    parts = [_split(side) for side in equation]
    home, away = (0, 1) if parts[0][0] else (1, 0)
    if parts[away][0]:
        return _subtract(parts[away][0])
    if parts[home][1]:
        return _subtract(parts[home][1])
    return _normalise(parts[home][0][0].coefficient)


def _split(side: Side) -> tuple[Side, Side]:
    """Terms with a variable, and non-zero numbers."""
    return tuple(t for t in side if t.inner), tuple(t for t in side if not t.inner and t.coefficient)


def _subtract(terms: Side) -> Move:
    if terms[0].coefficient < 0:
        return "add_terms", render_side(scale(terms, Fraction(-1)))
    return "subtract_terms", render_side(terms)


def _normalise(coefficient: Fraction) -> Move | None:
    if coefficient == 1:
        return None
    if coefficient.numerator == 1:
        return "multiply_terms", str(coefficient.denominator)
    return "divide_terms", str(coefficient)


def _eliminate(system: System) -> Move | None:
    """Gauss and Jordan: variables to the left, one pivot an equation, last of all the coefficients."""
    for i, (left, right) in enumerate(system):
        misplaced = _split(right)[0] or _split(left)[1]
        if misplaced:
            return _addressed(_subtract(misplaced), i)
    rows = [{t.inner: t.coefficient for t in left if t.inner} for left, _ in system]
    free = list(range(len(rows)))
    for name in sorted(set().union(*rows)):
        pivot = next((i for i in free if name in rows[i]), None)
        if pivot is None:
            raise UserError(f"These equations leave {name} open: state a problem with exactly one solution.")
        free.remove(pivot)
        target = next((i for i, row in enumerate(rows) if i != pivot and name in row), None)
        if target is not None:
            factor = rows[target][name] / rows[pivot][name]
            multiple = "" if abs(factor) == 1 else str(abs(factor))
            name = "subtract_terms" if factor > 0 else "add_terms"
            return _addressed((name, f"{multiple}eq{pivot + 1}"), target)
    for i, row in enumerate(rows):
        move = _normalise(next(iter(row.values())))
        if move:
            return _addressed(move, i)
    return None
