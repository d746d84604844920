"""Mathematics: linear equations and systems, solved move by move on a state that the environment owns.

A side is a tuple of terms as they are written: a coefficient times a variable, times nothing ("") or times a bracketed
side. So `2x + 3x` and `2(x + 3)` are states of their own, exact and hashable, which a computer-algebra system would
simplify away.
"""

import ast
import re
from fractions import Fraction
from functools import lru_cache
from itertools import dropwhile, takewhile
from math import lcm
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from pydantic import Field

from rlkit.environments.base import (
    ActionResult,
    BaseEnvironment,
    InvalidAction,
    Params,
    Problem,
    environments,
)
from rlkit.errors import UserError


class Term(NamedTuple):
    """coefficient · inner, where inner is a variable, "" (a number) or a bracketed side."""

    coefficient: Fraction
    inner: "str | tuple[Term, ...]"


Side = tuple[Term, ...]
Equation = tuple[Side, Side]
System = tuple[Equation, ...]
Move = tuple[str, str]  # action, value
Family = Literal["linear", "two_sided", "distribute", "combine", "fractions", "system"]

ZERO: Side = (Term(Fraction(0), ""),)
LONGEST = 300  # characters of an equation
LARGEST = 10**9  # numerators and denominators beyond it are refused, so that states stay small
MOST_TERMS, MOST_EQUATIONS = 12, 4
IDENTIFY, ANSWER = "identify_operation", "state_answer"
REWRITES = (
    "add_terms", "subtract_terms", "multiply_terms", "divide_terms", "distribute", "combine_like_terms",
)  # fmt: skip
IDENTIFIED, PROGRESS, ANSWERED, WASTED, WRONG = 1.5, 2.0, 3.0, -0.5, -1.0  # the rewards, documented below


# Reading and writing.


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
        case ast.Constant(value=int() | float() as number) if (
            not isinstance(number, bool) and abs(number) <= LARGEST
        ):
            return (Term(Fraction(str(number)), ""),)
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


def parse_equation(text: str) -> Equation:
    """The equation in a text with one equals sign. Raises UserError."""
    sides = text.split("=")
    if len(sides) != 2 or not all(s.strip() for s in sides):
        raise UserError(f"{text[:60]!r} is no equation such as 3x + 7 = 16.")
    return parse_side(sides[0].strip()), parse_side(sides[1].strip())


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


def render(system: System) -> str:
    """`left = right`, equations separated by `;`."""
    return "; ".join(f"{render_side(left)} = {render_side(right)}" for left, right in system)


# Algebra.


def combine(side: Side) -> Side:
    """Like terms added up, zeros dropped, brackets left alone."""
    return add((), side)


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
        opened = coefficient * factor == 1 and isinstance(inner, tuple)
        result += inner if opened else [Term(coefficient * factor, inner)]  # type: ignore[arg-type]
    return tuple(result)


def distribute(side: Side) -> Side:
    """All brackets multiplied out, like terms left as they stand."""
    result: list[Term] = []
    for coefficient, inner in side:
        result += (
            distribute(scale(inner, coefficient)) if isinstance(inner, tuple) else [Term(coefficient, inner)]
        )
    return tuple(result)


def variables(side: Side) -> set[str]:
    """The variables that occur in a side."""
    return {t.inner for t in distribute(side) if isinstance(t.inner, str)} - {""}


def largest(side: Side) -> int:
    """The largest numerator or denominator in a side."""
    return max(
        max(abs(c.numerator), c.denominator, largest(inner) if isinstance(inner, tuple) else 0)
        for c, inner in side
    )


def solve(system: System) -> dict[str, Fraction]:
    """The one solution. Raises UserError when there is none or more than one."""
    rows = [
        {t.inner: t.coefficient for t in combine(distribute(a + scale(b, Fraction(-1))))} for a, b in system
    ]
    names = sorted(set().union(*(variables(side) for equation in system for side in equation)))
    pivots: dict[str, dict[Any, Fraction]] = {}
    for name in names:
        pivot = next((row for row in rows if row.get(name)), None)
        if pivot is None:
            raise UserError(
                f"{render(system)[:200]!r} has more than one solution, or none: state a problem with one."
            )
        rows.remove(pivot)
        for row in (*rows, *pivots.values()):
            factor = row.get(name, Fraction(0)) / pivot[name]
            row.update({key: row.get(key, Fraction(0)) - factor * c for key, c in pivot.items()})
        pivots[name] = pivot
    if not names or any(row.get("") for row in rows):
        raise UserError(f"{render(system)[:200]!r} has no solution: state a problem that has exactly one.")
    return {name: -pivot.get("", Fraction(0)) / pivot[name] for name, pivot in pivots.items()}


# Moves.


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
    match = re.match(r"(\d)$" if bare else r"(\d)\s*:", value)
    if match is None or len(system) == 1:
        return 0, value
    index = int(match[1]) - 1
    if not 0 <= index < len(system):
        raise InvalidAction(f"There is no equation {match[1]}; there are {len(system)}.")
    return index, value[match.end() :].strip()


def _move(system: System, index: int, action: str, value: str) -> Equation:
    left, right = system[index]
    if action in ("distribute", "combine_like_terms"):
        change, what = (distribute, "brackets") if action == "distribute" else (combine, "like terms")
        if (moved := (change(left), change(right))) == (left, right):
            raise InvalidAction(f"There are no {what} to {action.split('_')[0]}.")
        return moved
    if action in ("multiply_terms", "divide_terms"):
        factor = parse_number(value)
        if factor in (0, 1):
            raise InvalidAction(f"{action} {value} is not a step: use a number other than 0 and 1.")
        factor = factor if action == "multiply_terms" else 1 / factor
        return scale(left, factor), scale(right, factor)
    sign = Fraction(1 if action == "add_terms" else -1)
    row = re.fullmatch(r"(\d+(?:/\d+)?)?\s*eq\s*(\d)", value)
    if row and len(system) > 1:
        other, factor = int(row[2]) - 1, sign * parse_number(row[1] or "1")
        if other == index or not 0 <= other < len(system) or not factor:
            raise InvalidAction(f"{value} is no multiple of another equation of this system.")
        first, second = (scale(distribute(side), factor) for side in system[other])
        return add(left, first), add(right, second)
    terms = combine(distribute(parse_side(value)))
    known = set().union(*(variables(side) for equation in system for side in equation))
    if not variables(terms) <= known or terms == ZERO:
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


def expert_move(system: System) -> Move | None:
    """The move a careful student makes, or None when every equation reads `variable = number`."""
    for i, equation in enumerate(system):
        if move := _tidy(equation):
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
        if alone is not None and abs(factor) != 1:
            other = scale(equation[1 - alone], 1 / factor)
            if _is_number(other) and all(t.coefficient.denominator == 1 for t in other):
                return "divide_terms", str(factor)
        return "distribute", ""
    return ("combine_like_terms", "") if any(combine(side) != side for side in equation) else None


def _isolate(equation: Equation) -> Move | None:
    """Towards `variable = number` for one tidy equation."""
    (named, numbers), (others, _) = map(_split, equation if _split(equation[0])[0] else equation[::-1])
    return _subtract(others or numbers) if others or numbers else _normalise(named[0].coefficient)


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
        if misplaced := _split(right)[0] or _split(left)[1]:
            return _addressed(_subtract(misplaced), i)
    rows = [{t.inner: t.coefficient for t in left if t.inner} for left, _ in system]
    free = list(range(len(rows)))
    for name in sorted(set().union(*rows)):
        pivot = next(i for i in free if name in rows[i])
        free.remove(pivot)
        target = next((i for i, row in enumerate(rows) if i != pivot and name in row), None)
        if target is not None:
            factor = rows[target][name] / rows[pivot][name]
            multiple = "" if abs(factor) == 1 else str(abs(factor))
            return _addressed(
                ("subtract_terms" if factor > 0 else "add_terms", f"{multiple}eq{pivot + 1}"), target
            )
    moves = (_normalise(next(iter(row.values()))) for row in rows)
    return next((_addressed(move, i) for i, move in enumerate(moves) if move), None)


# The environment.


class State(NamedTuple):
    """An episode: the equations now, their solution, the fewest moves left so far, whether the next
    operation was identified, and the answer once stated."""

    system: System
    solution: dict[str, Fraction]
    best: int
    identified: bool = False
    answer: str = ""


@environments.register("mathematics")
class Mathematics(BaseEnvironment):
    """Solve `3x + 7 = 16`: subtract 7, divide by 3, state 3. Every move rewrites both sides exactly.

    Rewards: 1.5 for identifying the operation that comes next, once an episode (-0.5 for a wrong guess);
    2.0 for each move by which the distance to the solution falls below its lowest so far; -0.5 for a move
    that is valid algebra but brings nothing; 3.0 for the right answer, -1.0 for a wrong one, which both end
    the episode; `invalid_reward` for what cannot be done. The distance is the number of moves the scripted
    expert would still need, so what an episode can earn does not depend on its path, and going in circles
    only costs. `3x + 7 = 16` done well earns 1.5 + 2.0 + 2.0 + 3.0 = 8.5.

    Not covered: inequalities, non-linear equations, systems without exactly one solution.
    """

    purpose: ClassVar[str] = "Solve the equation step by step; every operation acts on both sides."
    actions: ClassVar[dict[str, str]] = {
        IDENTIFY: "name the operation that should come next, e.g. identify_operation subtract_terms",
        "add_terms": "add a term to both sides, e.g. add_terms 2x; in a system also 2: 3eq1",
        "subtract_terms": "subtract a term from both sides, e.g. subtract_terms 7",
        "multiply_terms": "multiply both sides by a number, e.g. multiply_terms 4",
        "divide_terms": "divide both sides by a number, e.g. divide_terms 3",
        "distribute": "multiply out all brackets",
        "combine_like_terms": "add up like terms on each side",
        ANSWER: "state the solution and finish, e.g. state_answer 3, or state_answer x = 3, y = 2",
    }

    kind: Literal["mathematics"] = "mathematics"
    families: tuple[Family, ...] = Field(default=get_args(Family), min_length=1)
    """Kinds of generated problems, drawn evenly."""
    largest_solution: Annotated[int, Field(ge=2, le=1000)] = 12
    """Solutions are whole numbers between minus this and this."""
    largest_number: Annotated[int, Field(ge=4, le=1000)] = 20
    """Largest constant written into a problem; coefficients go to 9."""

    def problem(self, rng: np.random.Generator) -> Problem:
        family = self.families[int(rng.integers(len(self.families)))]
        names = ("x", "y") if family == "system" else ("x",)
        solution = {n: int(rng.integers(-self.largest_solution, self.largest_solution + 1)) for n in names}
        equations = _equations(family, rng, self.largest_number, *solution.values())
        written = [render((parse_equation(e),)) for e in equations]
        return {"family": family, "equations": written, "solution": {n: str(v) for n, v in solution.items()}}

    def read(self, text: str) -> Problem:
        """`3x + 7 = 16`, a system separated by `;`, or either in a sentence ("Solve for x: 3x + 7 = 16"). Raises
        UserError."""
        parts = re.split(r"(?<!\S)[A-Za-z]{2,}(?=[\s:;,.?!]|$)|,\s|[:;?!\n]", text)
        equations = [part.strip(" .") for part in parts if "=" in part]
        if not 1 <= len(equations) <= MOST_EQUATIONS or any(
            re.search(r"\d", p) for p in parts if "=" not in p
        ):
            raise UserError(
                f"{text[:60]!r} is no equation such as 3x + 7 = 16, nor 2 to {MOST_EQUATIONS} of them separated by ';'."
            )
        solution = solve(tuple(map(parse_equation, equations)))
        return {
            "family": "stated",
            "equations": equations,
            "solution": {n: str(v) for n, v in solution.items()},
        }

    def begin(self, problem: Problem) -> str:
        system = tuple(parse_equation(e) for e in problem["equations"])
        stated = {name: parse_number(str(v)) for name, v in problem["solution"].items()}
        names = set().union(*(variables(side) for equation in system for side in equation))
        if not 1 <= len(system) == len(names) <= MOST_EQUATIONS:
            raise UserError(
                f"{render(system)[:200]!r}: these are {len(system)} equations in {len(names)} unknowns; give 1 to "
                f"{MOST_EQUATIONS} equations in as many unknowns."
            )
        if stated != solve(system):
            shown = ", ".join(f"{n} = {v}" for n, v in stated.items())
            raise UserError(f"{shown} does not solve {render(system)}.")
        self._state = State(system, stated, distance(system))
        return self.render()

    def get_valid_actions(self) -> list[str]:
        names = super().get_valid_actions()
        return [n for n in names if n != IDENTIFY] if names and self._state.identified else names

    def act(self, action: str, params: Params) -> ActionResult:
        state, text = self._state, str(params.get("value", "")).strip()
        if action == ANSWER:
            return self._answer(_algebra_in(text.replace(" and ", ", ")))
        if action == IDENTIFY:
            right = text.split(" ")[0].removesuffix("_terms") == self.expert_move()[0].removesuffix("_terms")
            self._state = state._replace(identified=right)
            verdict, reward = ("Yes", IDENTIFIED) if right else ("No", WASTED)
            return ActionResult(f"{verdict}. {self.render()}", reward, False)
        system = rewrite(state.system, action, _algebra_in(text))
        left = distance(system)
        gained = max(state.best - left, 0)
        self._state = state._replace(system=system, best=min(state.best, left))
        return ActionResult(self.render(), gained * PROGRESS or WASTED, False, {"distance": left})

    def _answer(self, text: str) -> ActionResult:
        solution = self._state.solution
        stated = [part.split("=") for part in text.split(",")]
        named = len(solution) > 1
        if len(stated) != len(solution) or any(len(p) != 2 and (named or len(p) != 1) for p in stated):
            form = ", ".join(f"{n} = number" for n in solution)
            raise InvalidAction(f"{text!r} is no answer: write {ANSWER} {form}.")
        names = [p[0].strip() if len(p) == 2 else next(iter(solution)) for p in stated]
        try:
            right = dict(zip(names, (parse_number(p[-1].strip()) for p in stated), strict=True)) == solution
        except UserError as error:
            raise InvalidAction(str(error)) from None
        self._state = self._state._replace(answer=text)
        return ActionResult(
            "Right." if right else "Wrong.", ANSWERED if right else WRONG, True, {"success": right}
        )

    def expert_move(self) -> Move:
        """The operation that comes next and its value."""
        move = expert_move(self._state.system)
        if move is not None:
            return move
        pairs = [f"{name} = {value}" for name, value in self._state.solution.items()]
        return ANSWER, ", ".join(pairs) if len(pairs) > 1 else pairs[0].partition(" = ")[2]

    def expert(self) -> tuple[str, Params]:
        action, text = self.expert_move()
        if not self._state.identified:
            return IDENTIFY, {"value": action}
        return action, {"value": text} if text else {}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        state, most = self._state, self.largest_solution
        if action == IDENTIFY:
            return {"value": str(rng.choice([*REWRITES, ANSWER]))}
        if action in ("add_terms", "subtract_terms"):
            sides = [side for equation in state.system for side in equation]
            terms = [t for side in sides for t in side if not isinstance(t.inner, tuple)]
            if terms and rng.random() < 0.7:
                return {"value": render_side((terms[int(rng.integers(len(terms)))],))}
        if action == ANSWER:
            return {"value": ", ".join(f"{n} = {int(rng.integers(-most, most + 1))}" for n in state.solution)}
        bare = action in ("distribute", "combine_like_terms")
        return {} if bare else {"value": str(int(rng.integers(2, 10)))}

    def solution(self) -> str:
        return self._state.answer

    def render(self) -> str:
        return render(self._state.system)


def _algebra_in(text: str) -> str:
    """A value without the words before and behind it: `7` of `7 from both sides.`"""

    def is_word(piece: str) -> bool:
        return re.fullmatch(r"[A-Za-z]{2,}[,.;:!?]*", piece) is not None and piece.lower() != "eq"

    begun = dropwhile(is_word, text.split())
    return " ".join(takewhile(lambda piece: not is_word(piece), begun)).strip(" ,.;:!?")


def _equations(family: Family, rng: np.random.Generator, most: int, x: int, y: int = 0) -> list[str]:
    """Generated equations with the solution x (and y); `most` is the largest constant."""
    match family:
        case "linear":
            a, b = int(rng.integers(2, 10)), _nonzero(rng, most)
            return [f"{_sum((a, 'x'), (b, ''))} = {a * x + b}"]
        case "two_sided":
            a, c = map(int, rng.choice(np.arange(1, 10), 2, replace=False))
            b = _nonzero(rng, most)
            return [f"{_sum((a, 'x'), (b, ''))} = {_sum((c, 'x'), ((a - c) * x + b, ''))}"]
        case "distribute":
            a, b, c = int(rng.integers(2, 7)), _nonzero(rng, 9), int(rng.integers(2)) * _nonzero(rng, most)
            return [
                f"{a}*(x + ({b})) + ({c}) = {a * (x + b) + c}" if c else f"{a}*(x + ({b})) = {a * (x + b)}"
            ]
        case "combine":
            a, c, b = int(rng.integers(2, 10)), int(rng.integers(2, 10)), _nonzero(rng, most)
            return [f"{_sum((a, 'x'), (b, ''), (c, 'x'))} = {(a + c) * x + b}"]
        case "fractions":
            d, b = int(rng.integers(2, 7)), _nonzero(rng, most)
            if rng.random() < 0.5:
                return [f"x/{d} + ({b}) = {Fraction(x, d) + b}"]
            return [f"(x + ({b}))/{d} = {Fraction(x + b, d)}"]
        case "system":
            while True:
                a, b, c, d = (_nonzero(rng, 5) for _ in range(4))
                if a * d != b * c:
                    return [f"{_sum((p, 'x'), (q, 'y'))} = {p * x + q * y}" for p, q in ((a, b), (c, d))]


def _sum(*parts: tuple[int, str]) -> str:
    """`(3, "x"), (-7, "")` as `3x - 7`; zeros are left out."""
    return " + ".join(f"({c})*{name}" if name else f"({c})" for c, name in parts if c) or "0"


def _nonzero(rng: np.random.Generator, most: int) -> int:
    number = int(rng.integers(1, most + 1))
    return number if rng.random() < 0.5 else -number
