"""Business decisions: choose one of several options whose payoffs are hidden until they are looked into."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

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

TAIL = 0.25  # probability mass of the worst outcomes that CVaR averages
BEST, INFEASIBLE = 10.0, -5.0  # rewards of the best and of an infeasible decision
FEE = {"analyze_situation": 0.1, "identify_options": 0.1, "evaluate_risks": 0.3}
STATES = ("boom", "steady", "slump")
COMPANIES = ("a bakery chain", "a bicycle maker", "a software studio", "a hotel", "a farm", "a clinic")
VENTURES = (
    "open a second site", "launch a new product", "buy a competitor", "automate production",
    "expand abroad", "train the staff", "lower the prices", "start an online shop",
)  # fmt: skip


class Option(NamedTuple):
    """Cost now, people needed, and the payoff in each market state."""

    title: str
    cost: float
    staff: int
    payoffs: tuple[float, ...]


class State(NamedTuple):
    """A case, what the agent has found out (`known` holds "market", "options" and option names) and its
    decision."""

    options: dict[str, Option]
    chances: tuple[float, ...]
    budget: float
    staff: int
    aversion: float
    known: frozenset[str] = frozenset()
    decision: str = ""


def expected(values: Sequence[float], chances: Sequence[float]) -> float:
    """The expected value."""
    return float(np.dot(values, chances))


def cvar(values: Sequence[float], chances: Sequence[float], tail: float = TAIL) -> float:
    """Mean of the worst `tail` of the probability mass (Rockafellar and Uryasev 2000), exact."""
    left, total = tail, 0.0
    for value, chance in sorted(zip(values, chances, strict=True)):
        mass = min(chance, left)
        total, left = total + value * mass, left - mass
    return total / tail


@environments.register("business")
class Business(BaseEnvironment):
    """Find out what is worth knowing, then decide.

    A case has a budget, a staff, a hidden market (chances of boom, steady and slump) and options with a
    cost, people needed and a payoff in each market state. An option's worth is EV + aversion · CVaR of its
    profit, CVaR over the worst quarter of outcomes.

    Information costs: analyze_situation (the market) and identify_options (cost and staff) 0.1 each,
    evaluate_risks of one option 0.3: its EV, CVaR and ROI, or only the range of its payoffs while the market
    is unknown. make_decision ends the episode with 10 for the best feasible option, 0 for the worst, in
    proportion to worth between, and -5 for one beyond budget or staff. Success is the best feasible option.
    """

    purpose: ClassVar[str] = (
        "Choose the option with the highest EV + aversion * CVaR within budget and staff."
    )
    actions: ClassVar[dict[str, str]] = {
        "analyze_situation": "learn the chances of each market state (costs 0.1)",
        "identify_options": "learn cost and staff of every option (costs 0.1)",
        "evaluate_risks": "learn EV, CVaR and ROI of one option, e.g. evaluate_risks B (costs 0.3)",
        "make_decision": "choose an option and finish, e.g. make_decision B",
    }

    kind: Literal["business"] = "business"
    options: Annotated[int, Field(ge=2, le=8)] = 4
    """Options of a generated case."""

    def problem(self, rng: np.random.Generator) -> Problem:
        while True:
            case = self._draw(rng)
            state = self._parse(case)
            worths = sorted(self._worth(state, name) for name in state.options if self._feasible(state, name))
            if len(worths) >= 2 and worths[-1] - worths[-2] >= 2:  # a decision that is there to be made
                return case

    def _draw(self, rng: np.random.Generator) -> dict[str, Any]:
        chances = rng.dirichlet((2, 3, 2)).round(2)
        chances[1] = round(1 - chances[0] - chances[2], 2)
        titles = rng.choice(VENTURES, self.options, replace=False)
        options = {}
        for letter, title in zip("ABCDEFGH", titles, strict=False):
            cost = int(rng.integers(10, 100))
            factors = np.sort(rng.uniform(-0.2, 2.6, 3))[::-1]
            payoffs = [round(cost * float(f)) for f in factors]
            options[letter] = {
                "title": str(title),
                "cost": cost,
                "staff": int(rng.integers(1, 11)),
                "payoffs": payoffs,
            }
        return {
            "company": str(rng.choice(COMPANIES)),
            "budget": int(rng.integers(50, 100)),
            "staff": int(rng.integers(5, 11)),
            "aversion": float(rng.choice((0.2, 0.5, 1.0))),
            "chances": [float(c) for c in chances],
            "options": options,
        }

    def _parse(self, problem: Problem) -> State:
        options = {
            name.upper(): Option(
                str(o["title"]), float(o["cost"]), int(o["staff"]), tuple(map(float, o["payoffs"]))
            )
            for name, o in problem["options"].items()
        }
        chances = tuple(map(float, problem["chances"]))
        if len(chances) != len(STATES) or not (min(chances) >= 0 and abs(sum(chances) - 1) <= 1e-6):
            raise UserError(
                f"chances is {list(chances)}: give one of {', '.join(STATES)} each, none negative, with the sum 1."
            )
        numbers = float(problem["budget"]), int(problem["staff"]), float(problem["aversion"])
        amounts = [*numbers, *(x for o in options.values() for x in (o.cost, *o.payoffs))]
        if not all(map(math.isfinite, amounts)):
            raise UserError("budget, aversion, costs and payoffs are finite numbers.")
        if len(options) < len(problem["options"]):
            raise UserError("Two options have names that differ in case only; give them different names.")
        if any(len(o.payoffs) != len(chances) or o.cost <= 0 for o in options.values()):
            raise UserError("Every option has a positive cost and one payoff a market state.")
        return State(options, chances, *numbers)

    def begin(self, problem: Problem) -> str:
        state = self._parse(problem)
        if not any(self._feasible(state, name) for name in state.options):
            raise UserError("No option is within budget and staff; give a case that can be decided.")
        self._state = state
        titles = "; ".join(f"{name}: {o.title}" for name, o in state.options.items())
        return (
            f"You advise {problem.get('company', 'a company')}. Budget {state.budget:g}, "
            f"staff {state.staff}, aversion {state.aversion:g}. Options: {titles}."
        )

    @staticmethod
    def _feasible(state: State, name: str) -> bool:
        return state.options[name].cost <= state.budget and state.options[name].staff <= state.staff

    @staticmethod
    def _profits(state: State, name: str) -> list[float]:
        return [payoff - state.options[name].cost for payoff in state.options[name].payoffs]

    def _worth(self, state: State, name: str) -> float:
        profits = self._profits(state, name)
        return expected(profits, state.chances) + state.aversion * cvar(profits, state.chances)

    def act(self, action: str, params: Params) -> ActionResult:
        state: State = self._state
        if action == "analyze_situation":
            text = ", ".join(f"{s} {c:.0%}" for s, c in zip(STATES, state.chances, strict=False))
            return self._learn("market", action, f"Market: {text}.")
        if action == "identify_options":
            rows = [
                f"{name} costs {o.cost:g} and needs {o.staff} people" for name, o in state.options.items()
            ]
            return self._learn("options", action, "; ".join(rows) + ".")
        name = str(params.get("value", "")).strip().upper().removeprefix("OPTION ")
        if name not in state.options:
            raise InvalidAction(f"{name[:40]!r} is no option: name one of {', '.join(state.options)}.")
        return (
            self._learn(name, action, self._risks(name)) if action == "evaluate_risks" else self._decide(name)
        )

    def _learn(self, what: str, action: str, text: str) -> ActionResult:
        self._state = self._state._replace(known=self._state.known | {what})
        return ActionResult(text, -FEE[action], False)

    def _risks(self, name: str) -> str:
        state: State = self._state
        profits = self._profits(state, name)
        if "market" not in state.known:
            return f"{name}: profit from {min(profits):g} to {max(profits):g}; analyze_situation tells more."
        mean, tail = expected(profits, state.chances), cvar(profits, state.chances)
        return f"{name}: EV {mean:.1f}, CVaR {tail:.1f}, ROI {mean / state.options[name].cost:.0%}."

    def _decide(self, name: str) -> ActionResult:
        state: State = self._state
        worths = {n: self._worth(state, n) for n in state.options if self._feasible(state, n)}
        profits = self._profits(state, name)
        self._state = state._replace(decision=name)
        parts = {
            "expected_value": expected(profits, state.chances),
            "cvar": cvar(profits, state.chances),
            "roi": expected(profits, state.chances) / state.options[name].cost,
            "feasible": name in worths,
            "success": name in worths and worths[name] == max(worths.values()),
        }
        if name not in worths:
            return ActionResult(f"{name} is beyond budget or staff.", INFEASIBLE, True, parts)
        low, high = min(worths.values()), max(worths.values())
        share = (worths[name] - low) / (high - low) if high > low else 1.0
        return ActionResult(f"{name} reaches {share:.0%} of what was possible.", BEST * share, True, parts)

    def expert(self) -> tuple[str, Params]:
        """Learn the market and the costs, look into what is feasible, then take the best."""
        state: State = self._state
        if "market" not in state.known:
            return "analyze_situation", {}
        if "options" not in state.known:
            return "identify_options", {}
        feasible = [name for name in state.options if self._feasible(state, name)]
        unknown = [name for name in feasible if name not in state.known]
        if unknown:
            return "evaluate_risks", {"value": unknown[0]}
        return "make_decision", {"value": max(feasible, key=lambda name: self._worth(state, name))}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        if action not in ("evaluate_risks", "make_decision"):
            return {}
        return {"value": str(rng.choice(list(self._state.options)))}

    def solution(self) -> str:
        return self._state.decision

    def render(self) -> str:
        state: State = self._state
        known = ", ".join(sorted(state.known)) or "nothing yet"
        return f"budget {state.budget:g}, staff {state.staff}, {len(state.options)} options; known: {known}"
