"""Mathematics: linear equations, solved move by move on a state that the environment owns. Below the environment the
algebra: states that are exact and hashable, the moves between them, and a careful student's next move.

A side is a tuple of terms as they are written: a coefficient times a variable, times nothing ("") or times a bracketed
side. So `2x + 3x` and `2(x + 3)` are states of their own, which a computer-algebra system would simplify away.
"""

import ast
import re
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Annotated, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from pydantic import Field, PrivateAttr

from rlkit.environments import ActionResult, BaseEnvironment, InvalidAction, environments
from rlkit.environments.base import Params, Problem
from rlkit.errors import UserError

IDENTIFY, ANSWER = "identify_operation", "state_answer"
IDENTIFIED, PROGRESS, ANSWERED, WASTED, WRONG = 1.5, 2.0, 3.0, -0.5, -1.0  # the rewards, documented below


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


@environments.register("mathematics")
class Mathematics(BaseEnvironment):
    """Solve `3x + 7 = 16`: subtract 7, divide by 3, state 3. Every move rewrites both sides exactly.

    Rewards: 1.5 for identifying the operation that comes next, once an episode (-0.5 for a wrong guess); 2.0 for each
    move by which the distance to the solution (the moves that the scripted expert would still need) falls below its
    lowest so far, so that circles only cost; -0.5 for a move that is valid algebra but brings nothing; 3.0 for the
    right answer, -1.0 for a wrong one, which both end the episode; `invalid_reward` for what cannot be done.
    `3x + 7 = 16` done well earns 1.5 + 2.0 + 2.0 + 3.0 = 8.5.
    """

    purpose: ClassVar[str] = "Solve the equation step by step; every operation acts on both sides."
    actions: ClassVar[dict[str, str]] = {
        IDENTIFY: "name the operation that should come next, e.g. identify_operation subtract_terms",
        "add_terms": "add a term to both sides, e.g. add_terms 2x",
        "subtract_terms": "subtract a term from both sides, e.g. subtract_terms 7",
        "multiply_terms": "multiply both sides by a number, e.g. multiply_terms 4",
        "divide_terms": "divide both sides by a number, e.g. divide_terms 3",
        "distribute": "multiply out all brackets",
        "combine_like_terms": "add up like terms on each side",
        ANSWER: "state the solution and finish, e.g. state_answer 3",
    }

    kind: Literal["mathematics"] = "mathematics"
    families: tuple[Family, ...] = Field(default=get_args(Family), min_length=1)
    """Kinds of generated problems, drawn evenly."""
    largest_solution: Annotated[int, Field(ge=2, le=1000)] = 12
    """Solutions are whole numbers between minus this and this."""
    largest_number: Annotated[int, Field(ge=4, le=1000)] = 20
    """Largest constant written into a problem; coefficients go to 9."""

    _equation: Equation = PrivateAttr()
    _unknown: str = PrivateAttr("")
    _solution: Fraction = PrivateAttr()
    _best: int = PrivateAttr(0)  # the fewest moves that were left so far
    _identified: bool = PrivateAttr(False)
    _answer: str = PrivateAttr("")

    def problem(self, rng: np.random.Generator) -> Problem:
        family = self.families[int(rng.integers(len(self.families)))]
        solution = int(rng.integers(-self.largest_solution, self.largest_solution + 1))
        text = generated(family, rng, self.largest_number, solution)
        written = render(parse_equation(text))
        return {"family": family, "equations": [written], "solution": {"x": str(solution)}}

    def read(self, text: str) -> Problem:
        """`3x + 7 = 16`, alone or in a sentence ("Solve for x: 3x + 7 = 16"). Raises UserError."""
        parts = re.split(r"(?<!\S)[A-Za-z]{2,}(?=[\s:;,.?!]|$)|,\s|[:;?!\n]", text)
        found = [part.strip(" .") for part in parts if "=" in part]
        if len(found) != 1 or any(re.search(r"\d", part) for part in parts if "=" not in part):
            raise UserError(f"{text[:60]!r} is no equation such as 3x + 7 = 16.")
        equation = parse_equation(found[0])
        number, (unknown,) = solve(equation), variables(*equation)
        return {"family": "stated", "equations": found, "solution": {unknown: str(number)}}

    def begin(self, problem: Problem) -> str:
        (written,), ((name, value),) = problem["equations"], problem["solution"].items()
        equation = parse_equation(written)
        stated = number_of(parse_side(str(value)))
        if stated != solve(equation) or variables(*equation) != {name}:
            raise UserError(f"{name} = {value} does not solve {render(equation)}.")
        self._equation, self._unknown, self._solution = equation, name, stated
        self._best, self._identified, self._answer = distance(equation), False, ""
        return self.render()

    def get_valid_actions(self) -> list[str]:
        return [n for n in super().get_valid_actions() if n != IDENTIFY or not self._identified]

    def act(self, action: str, params: Params) -> ActionResult:
        text = str(params.get("value", "")).strip()
        if action == IDENTIFY:
            right = text.split(" ")[0].removesuffix("_terms") == self.expert_move()[0].removesuffix("_terms")
            self._identified = right
            verdict, reward = ("Yes", IDENTIFIED) if right else ("No", WASTED)
            return ActionResult(f"{verdict}. {self.render()}", reward, False)
        try:
            if action == ANSWER:
                return self._judged(_algebra_in(text))
            equation = rewrite(self._equation, action, _algebra_in(text))
        except UserError as error:
            raise InvalidAction(f"{action} does not understand its value: {error}") from None
        left = distance(equation)
        gained = max(self._best - left, 0)
        self._equation, self._best = equation, min(self._best, left)
        return ActionResult(self.render(), gained * PROGRESS or WASTED, False, {"distance": left})

    def _judged(self, text: str) -> ActionResult:
        name, equals, number = text.rpartition("=")
        if set(name) & set("=,"):
            raise InvalidAction(f"{text!r} is no answer: write {ANSWER} {self._unknown} = number.")
        stated = number_of(parse_side(number.strip()))
        right = stated == self._solution and (not equals or name.strip() == self._unknown)
        self._answer = text
        verdict, reward = ("Right.", ANSWERED) if right else ("Wrong.", WRONG)
        return ActionResult(verdict, reward, True, {"success": right})

    def expert_move(self) -> Move:
        """The operation that comes next and its value."""
        return expert_move(self._equation) or (ANSWER, str(self._solution))

    def expert(self) -> tuple[str, Params]:
        action, text = self.expert_move()
        if not self._identified:
            return IDENTIFY, {"value": action}
        return action, {"value": text} if text else {}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        most = self.largest_solution
        if action == IDENTIFY:
            return {"value": str(rng.choice([*REWRITES, ANSWER]))}
        if action in ("add_terms", "subtract_terms"):
            terms = [t for side in self._equation for t in side if not isinstance(t.inner, tuple)]
            if terms and rng.random() < 0.7:
                return {"value": render_side((terms[int(rng.integers(len(terms)))],))}
        if action == ANSWER:
            return {"value": f"{self._unknown} = {int(rng.integers(-most, most + 1))}"}
        return {} if action in WHOLE else {"value": str(int(rng.integers(2, 10)))}

    def solution(self) -> str:
        return self._answer

    def render(self) -> str:
        return render(self._equation)


def _algebra_in(text: str) -> str:
    """A value without the words before and behind it: `7` of `7 from both sides.`"""
    word = r"[A-Za-z]{2,}[,.;:!?]*(?=\s|$)"
    begun = re.sub(rf"^\s*(?:{word}\s*)+", "", text)
    return re.split(rf"\s{word}", begun)[0].strip(" ,.;:!?")


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
