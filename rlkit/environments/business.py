"""Business decisions: choose one of several options whose payoffs are hidden until they are looked into."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, PrivateAttr, model_validator

from rlkit.domains import vocabulary
from rlkit.environments import ActionResult, BaseEnvironment, InvalidAction, environments
from rlkit.environments.base import Params, Problem
from rlkit.errors import UserError
from rlkit.params import validate

TAIL = 0.25  # probability mass of the worst outcomes that CVaR averages
BEST, INFEASIBLE = 10.0, -5.0  # rewards of the best and of an infeasible decision
FEE = {"analyze_situation": 0.1, "identify_options": 0.1, "evaluate_risks": 0.3}
STATES = ("boom", "steady", "slump")
COMPANIES, VENTURES = map(vocabulary, ("companies", "ventures"))


def cvar(values: Sequence[float], chances: Sequence[float]) -> float:
    """Mean of the worst quarter of the probability mass (Rockafellar and Uryasev 2000), exact."""
    left, total = TAIL, 0.0
    for value, chance in sorted(zip(values, chances, strict=True)):
        mass = min(chance, left)
        total, left = total + value * mass, left - mass
    return total / TAIL


class Option(BaseModel):
    """What a venture costs, the people it needs, and its payoff in each of STATES."""

    title: str
    cost: Annotated[FiniteFloat, Field(gt=0)]
    staff: int
    payoffs: tuple[FiniteFloat, FiniteFloat, FiniteFloat]


class Case(BaseModel):
    """A company's options, its limits, and the chances of each market state."""

    company: str = "a company"
    budget: FiniteFloat
    staff: int
    aversion: FiniteFloat
    chances: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=3, max_length=3)]
    options: dict[str, Option]

    @model_validator(mode="after")
    def _decidable(self) -> "Case":
        if abs(sum(self.chances) - 1) > 1e-6:
            raise ValueError(f"chances is {self.chances}: give one of {', '.join(STATES)} each, sum 1")
        self.options, before = {name.strip().upper(): o for name, o in self.options.items()}, self.options
        if len(self.options) < len(before):
            raise ValueError("two options have names that differ in case only")
        return self

    def feasible(self, name: str) -> bool:
        """Whether an option is within budget and staff."""
        return self.options[name].cost <= self.budget and self.options[name].staff <= self.staff

    def figures(self, name: str) -> tuple[float, float, float]:
        """Expected profit of an option, its CVaR and its return on investment."""
        option = self.options[name]
        profits = [payoff - option.cost for payoff in option.payoffs]
        mean = float(np.dot(profits, self.chances))
        return mean, cvar(profits, self.chances), mean / option.cost

    def worth(self, name: str) -> float:
        """EV + aversion · CVaR of an option's profit."""
        mean, tail, _ = self.figures(name)
        return mean + self.aversion * tail


@environments.register("business")
class Business(BaseEnvironment):
    """Find out what is worth knowing, then decide.

    A case has a budget, a staff, a hidden market (chances of boom, steady and slump) and options with a cost, people
    needed and a payoff in each market state. An option's worth is EV + aversion · CVaR of its profit, CVaR over the
    worst quarter of outcomes.

    analyze_situation (the market) and identify_options (cost and staff) cost 0.1 each, evaluate_risks 0.3 (an option's
    EV, CVaR and ROI; only the range of its payoffs while the market is unknown). make_decision ends the episode with 10
    for the best feasible option (success), 0 for the worst, in proportion to worth between, and -5 for one beyond
    budget or staff.
    """

    purpose: ClassVar[str] = "Choose the option with the highest EV + aversion * CVaR within budget and staff."
    actions: ClassVar[dict[str, str]] = {
        "analyze_situation": "learn the chances of each market state (costs 0.1)",
        "identify_options": "learn cost and staff of every option (costs 0.1)",
        "evaluate_risks": "learn EV, CVaR and ROI of one option, e.g. evaluate_risks B (costs 0.3)",
        "make_decision": "choose an option and finish, e.g. make_decision B",
    }

    kind: Literal["business"] = "business"
    options: Annotated[int, Field(ge=2, le=8)] = 4
    """Options of a generated case."""

    _case: Case = PrivateAttr()
    _known: frozenset[str] = PrivateAttr()  # what the agent has found out: "market", "options", names of options
    _decision: str = PrivateAttr("")

    def problem(self, rng: np.random.Generator) -> Problem:
        while True:
            drawn = self._draw(rng)
            case = Case.model_validate(drawn)
            worths = sorted(case.worth(name) for name in case.options if case.feasible(name))
            if len(worths) >= 2 and worths[-1] - worths[-2] >= 2:  # a decision that is there to be made
                return drawn

    def _draw(self, rng: np.random.Generator) -> dict[str, Any]:
        chances = rng.dirichlet((2, 3, 2)).round(2).tolist()
        chances[1] = round(1 - chances[0] - chances[2], 2)
        options = {}
        for letter, title in zip("ABCDEFGH", rng.choice(VENTURES, self.options, replace=False), strict=False):
            cost = int(rng.integers(10, 100))
            payoffs = [round(cost * float(f)) for f in np.sort(rng.uniform(-0.2, 2.6, 3))[::-1]]
            staff = int(rng.integers(1, 11))
            options[letter] = {"title": str(title), "cost": cost, "staff": staff, "payoffs": payoffs}
        return {
            "company": str(rng.choice(COMPANIES)),
            "budget": int(rng.integers(50, 100)),
            "staff": int(rng.integers(5, 11)),
            "aversion": float(rng.choice((0.2, 0.5, 1.0))),
            "chances": chances,
            "options": options,
        }

    def begin(self, problem: Problem) -> str:
        case = validate(Case, problem, "business problem")
        if not any(map(case.feasible, case.options)):
            raise UserError("No option is within budget and staff; give a case that can be decided.")
        self._case, self._known, self._decision = case, frozenset(), ""
        titles = "; ".join(f"{name}: {o.title}" for name, o in case.options.items())
        return (
            f"You advise {case.company}. Budget {case.budget:g}, staff {case.staff}, aversion {case.aversion:g}. "
            f"Options: {titles}."
        )

    def act(self, action: str, params: Params) -> ActionResult:
        case = self._case
        if action == "analyze_situation":
            text = ", ".join(f"{s} {c:.0%}" for s, c in zip(STATES, case.chances, strict=True))
            return self._learn("market", action, f"Market: {text}.")
        if action == "identify_options":
            rows = [f"{n} costs {o.cost:g} and needs {o.staff} people" for n, o in case.options.items()]
            return self._learn("options", action, "; ".join(rows) + ".")
        said = str(params.get("value", "")).strip().upper()
        name = said if said in case.options else said.removeprefix("OPTION ")
        if name not in case.options:
            raise InvalidAction(f"{name[:40]!r} is no option: name one of {', '.join(case.options)}.")
        if action == "make_decision":
            return self._decide(name)
        if "market" in self._known:
            mean, tail, share = case.figures(name)
            return self._learn(name, action, f"{name}: EV {mean:.1f}, CVaR {tail:.1f}, ROI {share:.0%}.")
        option = case.options[name]
        low, high = min(option.payoffs) - option.cost, max(option.payoffs) - option.cost
        text = f"{name}: profit from {low:g} to {high:g}; analyze_situation tells more."
        return self._learn(name, action, text)

    def _learn(self, what: str, action: str, text: str) -> ActionResult:
        self._known |= {what}
        return ActionResult(text, -FEE[action], False)

    def _decide(self, name: str) -> ActionResult:
        case, self._decision = self._case, name
        worths = {n: case.worth(n) for n in case.options if case.feasible(n)}
        low, high = min(worths.values()), max(worths.values())
        parts = dict(zip(("expected_value", "cvar", "roi"), case.figures(name), strict=True))
        info = {**parts, "feasible": name in worths, "success": worths.get(name) == high}
        if name not in worths:
            return ActionResult(f"{name} is beyond budget or staff.", INFEASIBLE, True, info)
        share = (worths[name] - low) / (high - low) if high > low else 1.0
        return ActionResult(f"{name} reaches {share:.0%} of what was possible.", BEST * share, True, info)

    def expert(self) -> tuple[str, Params]:
        """Learn the market and the costs, look into what is feasible, then take the best."""
        case, known = self._case, self._known
        if "market" not in known:
            return "analyze_situation", {}
        if "options" not in known:
            return "identify_options", {}
        feasible = [name for name in case.options if case.feasible(name)]
        unknown = [name for name in feasible if name not in known]
        if unknown:
            return "evaluate_risks", {"value": unknown[0]}
        return "make_decision", {"value": max(feasible, key=case.worth)}

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        if action not in ("evaluate_risks", "make_decision"):
            return {}
        return {"value": str(rng.choice(list(self._case.options)))}

    def solution(self) -> str:
        return self._decision
