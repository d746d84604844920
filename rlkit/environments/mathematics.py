"""Mathematics: linear equations and systems, solved move by move on a state that the environment owns."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from pydantic import Field

from rlkit.environments.algebra import REWRITES, System, distance, expert_move, rewrite
from rlkit.environments.base import (
    ActionResult,
    BaseEnvironment,
    InvalidAction,
    Params,
    Problem,
    environments,
)
from rlkit.environments.equations import (
    parse_equation,
    parse_number,
    render_equation,
    render_side,
    solve,
    value,
    variables,
)
from rlkit.errors import UserError

MOST_EQUATIONS = 4
Family = Literal["linear", "two_sided", "distribute", "combine", "fractions", "system"]
IDENTIFY, ANSWER = "identify_operation", "state_answer"
IDENTIFIED, PROGRESS, ANSWERED, WASTED, WRONG = 1.5, 2.0, 3.0, -0.5, -1.0  # the rewards, documented below


class State(NamedTuple):
    """An episode: the equations now, their solution, the fewest moves left so far, whether the next
    operation was identified, and the answer once stated."""

    system: System
    solution: Mapping[str, Fraction]
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
        equations = _GENERATORS[family](rng, self.largest_number, *solution.values())
        written = [render_equation(parse_equation(e)) for e in equations]
        return {"family": family, "equations": written, "solution": {n: str(v) for n, v in solution.items()}}

    def read(self, text: str) -> Problem:
        """`3x + 7 = 16`, or a system with its equations separated by `;`. Raises UserError."""
        text = text.strip().removeprefix("Solve").removeprefix("solve").strip(" :.")
        equations = [part.strip() for part in text.replace("\n", ";").split(";") if part.strip()]
        if not 1 <= len(equations) <= MOST_EQUATIONS:
            raise UserError(
                f"A mathematics problem is 1 to {MOST_EQUATIONS} equations separated by ';', not {text[:60]!r}."
            )
        solution = solve(tuple(parse_equation(e) for e in equations))
        return {
            "family": "stated",
            "equations": equations,
            "solution": {n: str(v) for n, v in solution.items()},
        }

    def begin(self, problem: Problem) -> str:
        system = tuple(parse_equation(e) for e in problem["equations"])
        solution = {name: parse_number(str(v)) for name, v in problem["solution"].items()}
        names = set().union(*(variables(side) for equation in system for side in equation))
        if not 1 <= len(system) <= MOST_EQUATIONS or len(system) != len(names) or names != set(solution):
            shown = "; ".join(map(render_equation, system))[:200]
            raise UserError(
                f"{shown!r}: these are {len(system)} equations in {len(names)} unknowns, with a solution for "
                f"{len(solution)}; give 1 to {MOST_EQUATIONS} equations in as many unknowns."
            )
        self._check(system, solution)
        self._state = State(system, solution, distance(system))
        return self.render()

    def _check(self, system: System, solution: Mapping[str, Fraction]) -> None:
        if any(value(left, solution) != value(right, solution) for left, right in system):
            shown = ", ".join(f"{n} = {v}" for n, v in solution.items())
            raise UserError(f"{shown} does not solve {'; '.join(map(render_equation, system))}.")

    def get_valid_actions(self) -> list[str]:
        names = super().get_valid_actions()
        return [n for n in names if n != IDENTIFY] if names and self._state.identified else names

    def act(self, action: str, params: Params) -> ActionResult:
        text = str(params.get("value", "")).strip()
        if action == ANSWER:
            return self._answer(text)
        state: State = self._state
        if action == IDENTIFY:
            right = text.removesuffix("_terms") == (self.expert_move()[0]).removesuffix("_terms")
            self._state = state._replace(identified=right)
            verdict, reward = ("Yes", IDENTIFIED) if right else ("No", WASTED)
            return ActionResult(f"{verdict}. {self.render()}", reward, False)
        system = rewrite(state.system, action, text)
        self._check(system, state.solution)  # exact: a move that lost the solution would be a defect
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
        try:
            answer = {
                p[0].strip() if len(p) == 2 else next(iter(solution)): parse_number(p[-1].strip())
                for p in stated
            }
        except UserError as error:
            raise InvalidAction(str(error)) from None
        right = answer == solution
        self._state = self._state._replace(answer=text)
        return ActionResult(
            "Right." if right else "Wrong.", ANSWERED if right else WRONG, True, {"success": right}
        )

    def expert_move(self) -> tuple[str, str]:
        """The operation that comes next and its value."""
        state: State = self._state
        move = expert_move(state.system)
        if move is not None:
            return move
        found = {
            t.inner: other[0].coefficient
            for e in state.system
            for side, other in (e, e[::-1])
            for t in side
            if t.inner
        }
        pairs = [f"{n} = {found[n]}" for n in state.solution]
        return ANSWER, ", ".join(pairs) if len(pairs) > 1 else str(next(iter(found.values())))

    def expert(self) -> tuple[str, Params]:
        action, text = self.expert_move()
        if not self._state.identified:
            return IDENTIFY, {"value": action}
        return action, {"value": text} if text else {}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        if action == IDENTIFY:
            return {"value": str(rng.choice([*REWRITES, ANSWER]))}
        terms = [
            t
            for equation in self._state.system
            for side in equation
            for t in side
            if not isinstance(t.inner, tuple)
        ]
        if action in ("add_terms", "subtract_terms") and terms and rng.random() < 0.7:
            return {"value": render_side((terms[int(rng.integers(len(terms)))],))}
        if action == ANSWER:
            numbers = [
                f"{n} = {int(rng.integers(-self.largest_solution, self.largest_solution + 1))}"
                for n in self._state.solution
            ]
            return {"value": ", ".join(numbers)}
        return (
            {"value": str(int(rng.integers(2, 10)))}
            if action.endswith("_terms") and action != "combine_like_terms"
            else {}
        )

    def solution(self) -> str:
        return self._state.answer

    def render(self) -> str:
        return "; ".join(map(render_equation, self._state.system))


def _sum(*parts: tuple[int, str]) -> str:
    """`(3, "x"), (-7, "")` as `3x - 7`; zeros are left out."""
    return " + ".join(f"({c})*{name}" if name else f"({c})" for c, name in parts if c) or "0"


def _nonzero(rng: np.random.Generator, most: int) -> int:
    number = int(rng.integers(1, most + 1))
    return number if rng.random() < 0.5 else -number


def _linear(rng: np.random.Generator, most: int, x: int) -> list[str]:
    a, b = int(rng.integers(2, 10)), _nonzero(rng, most)
    return [f"{_sum((a, 'x'), (b, ''))} = {a * x + b}"]


def _two_sided(rng: np.random.Generator, most: int, x: int) -> list[str]:
    a, c = rng.choice(np.arange(1, 10), 2, replace=False)
    b = _nonzero(rng, most)
    return [f"{_sum((int(a), 'x'), (b, ''))} = {_sum((int(c), 'x'), (int(a - c) * x + b, ''))}"]


def _distribute(rng: np.random.Generator, most: int, x: int) -> list[str]:
    a, b, c = int(rng.integers(2, 7)), _nonzero(rng, 9), int(rng.integers(2)) * _nonzero(rng, most)
    return [
        f"{a}*(x + ({b})) + {_sum((c, ''))} = {a * (x + b) + c}" if c else f"{a}*(x + ({b})) = {a * (x + b)}"
    ]


def _combine(rng: np.random.Generator, most: int, x: int) -> list[str]:
    a, c, b = int(rng.integers(2, 10)), int(rng.integers(2, 10)), _nonzero(rng, most)
    return [f"{_sum((a, 'x'), (b, ''), (c, 'x'))} = {(a + c) * x + b}"]


def _fractions(rng: np.random.Generator, most: int, x: int) -> list[str]:
    d, b = int(rng.integers(2, 7)), _nonzero(rng, most)
    if rng.random() < 0.5:
        return [f"x/{d} + ({b}) = {Fraction(x, d) + b}"]
    return [f"(x + ({b}))/{d} = {Fraction(x + b, d)}"]


def _system(rng: np.random.Generator, most: int, x: int, y: int) -> list[str]:
    while True:
        a, b, c, d = (_nonzero(rng, 5) for _ in range(4))
        if a * d != b * c:
            return [f"{_sum((p, 'x'), (q, 'y'))} = {p * x + q * y}" for p, q in ((a, b), (c, d))]


_GENERATORS: dict[str, Any] = {
    "linear": _linear,
    "two_sided": _two_sided,
    "distribute": _distribute,
    "combine": _combine,
    "fractions": _fractions,
    "system": _system,
}
