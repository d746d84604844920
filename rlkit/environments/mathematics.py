"""Mathematics: linear equations, solved move by move on a state that the environment owns."""

import re
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
from pydantic import Field, PrivateAttr

from rlkit.environments import ActionResult, BaseEnvironment, InvalidAction, environments, equations
from rlkit.environments.base import Params, Problem
from rlkit.errors import UserError

IDENTIFY, ANSWER = "identify_operation", "state_answer"
IDENTIFIED, PROGRESS, ANSWERED, WASTED, WRONG = 1.5, 2.0, 3.0, -0.5, -1.0  # the rewards, documented below


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
    families: tuple[equations.Family, ...] = Field(default=get_args(equations.Family), min_length=1)
    """Kinds of generated problems, drawn evenly."""
    largest_solution: Annotated[int, Field(ge=2, le=1000)] = 12
    """Solutions are whole numbers between minus this and this."""
    largest_number: Annotated[int, Field(ge=4, le=1000)] = 20
    """Largest constant written into a problem; coefficients go to 9."""

    _equation: equations.Equation = PrivateAttr()
    _unknown: str = PrivateAttr("")
    _solution: Fraction = PrivateAttr()
    _best: int = PrivateAttr(0)  # the fewest moves that were left so far
    _identified: bool = PrivateAttr(False)
    _answer: str = PrivateAttr("")

    def problem(self, rng: np.random.Generator) -> Problem:
        family = self.families[int(rng.integers(len(self.families)))]
        solution = int(rng.integers(-self.largest_solution, self.largest_solution + 1))
        text = equations.generated(family, rng, self.largest_number, solution)
        written = equations.render(equations.parse_equation(text))
        return {"family": family, "equations": [written], "solution": {"x": str(solution)}}

    def read(self, text: str) -> Problem:
        """`3x + 7 = 16`, alone or in a sentence ("Solve for x: 3x + 7 = 16"). Raises UserError."""
        parts = re.split(r"(?<!\S)[A-Za-z]{2,}(?=[\s:;,.?!]|$)|,\s|[:;?!\n]", text)
        found = [part.strip(" .") for part in parts if "=" in part]
        if len(found) != 1 or any(re.search(r"\d", part) for part in parts if "=" not in part):
            raise UserError(f"{text[:60]!r} is no equation such as 3x + 7 = 16.")
        equation = equations.parse_equation(found[0])
        number, (unknown,) = equations.solve(equation), equations.variables(*equation)
        return {"family": "stated", "equations": found, "solution": {unknown: str(number)}}

    def begin(self, problem: Problem) -> str:
        (written,), ((name, value),) = problem["equations"], problem["solution"].items()
        equation = equations.parse_equation(written)
        stated = equations.number_of(equations.parse_side(str(value)))
        if stated != equations.solve(equation) or equations.variables(*equation) != {name}:
            raise UserError(f"{name} = {value} does not solve {equations.render(equation)}.")
        self._equation, self._unknown, self._solution = equation, name, stated
        self._best, self._identified, self._answer = equations.distance(equation), False, ""
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
            equation = equations.rewrite(self._equation, action, _algebra_in(text))
        except UserError as error:
            raise InvalidAction(f"{action} does not understand its value: {error}") from None
        left = equations.distance(equation)
        gained = max(self._best - left, 0)
        self._equation, self._best = equation, min(self._best, left)
        return ActionResult(self.render(), gained * PROGRESS or WASTED, False, {"distance": left})

    def _judged(self, text: str) -> ActionResult:
        name, equals, number = text.rpartition("=")
        if set(name) & set("=,"):
            raise InvalidAction(f"{text!r} is no answer: write {ANSWER} {self._unknown} = number.")
        stated = equations.number_of(equations.parse_side(number.strip()))
        right = stated == self._solution and (not equals or name.strip() == self._unknown)
        self._answer = text
        verdict, reward = ("Right.", ANSWERED) if right else ("Wrong.", WRONG)
        return ActionResult(verdict, reward, True, {"success": right})

    def expert_move(self) -> equations.Move:
        """The operation that comes next and its value."""
        return equations.expert_move(self._equation) or (ANSWER, str(self._solution))

    def expert(self) -> tuple[str, Params]:
        action, text = self.expert_move()
        if not self._identified:
            return IDENTIFY, {"value": action}
        return action, {"value": text} if text else {}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        most = self.largest_solution
        if action == IDENTIFY:
            return {"value": str(rng.choice([*equations.REWRITES, ANSWER]))}
        if action in ("add_terms", "subtract_terms"):
            terms = [t for side in self._equation for t in side if not isinstance(t.inner, tuple)]
            if terms and rng.random() < 0.7:
                return {"value": equations.render_side((terms[int(rng.integers(len(terms)))],))}
        if action == ANSWER:
            return {"value": f"{self._unknown} = {int(rng.integers(-most, most + 1))}"}
        return {} if action in equations.WHOLE else {"value": str(int(rng.integers(2, 10)))}

    def solution(self) -> str:
        return self._answer

    def render(self) -> str:
        return equations.render(self._equation)


def _algebra_in(text: str) -> str:
    """A value without the words before and behind it: `7` of `7 from both sides.`"""
    word = r"[A-Za-z]{2,}[,.;:!?]*(?=\s|$)"
    begun = re.sub(rf"^\s*(?:{word}\s*)+", "", text)
    return re.split(rf"\s{word}", begun)[0].strip(" ,.;:!?")
