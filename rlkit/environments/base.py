"""The contract of an environment: discrete actions, an observation in words, a reward for every step."""

import json
import math
import numbers
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from rlkit.errors import UserError
from rlkit.registry import Component, Registry
from rlkit.seeds import content_hash, generator
from rlkit.types import Message

environments = Registry(
    "environment", "rlkit.environments", hint="`rlkit new environment NAME` starts a new one."
)

Problem = Mapping[str, Any]  # any JSON mapping
Params = Mapping[str, Any]
Split = Literal["train", "test"]
TEST_ONE_IN = 5  # a problem belongs to the test split when its content hash is divisible by this


class InvalidAction(Exception):
    """Raised inside `act` for an action or parameter that cannot be carried out; the message is what the
    agent observes. It never leaves `step`."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What one step gives.

    Attributes:
        observation: what the agent reads next.
        reward: finite; of this step alone.
        done: the episode is over.
        info: `valid` (the action was carried out), `truncated` (ended by a limit: max_steps, or one of the
            environment's own) and, when done, `success`; an environment adds facts of its own.
    """

    observation: str
    reward: float
    done: bool
    info: dict[str, Any] = field(default_factory=dict)


class BaseEnvironment(Component):
    """A world with discrete actions. Subclasses give `actions`, `problem`, `begin` and `act`.

    `reset` and `step` are final: they count steps, turn invalid actions into a clear observation with the
    documented penalty, end an episode at `max_steps` and refuse results that break the contract. An
    environment is a frozen component (its options are its config) whose running episode is private, so it
    pickles, copies and can be named in YAML. Same problem and same actions, same results: randomness
    belongs into the problem.
    """

    actions: ClassVar[dict[str, str]] = {}
    """Every action and one line on what it does and which `value` it takes."""
    purpose: ClassVar[str] = "Solve the task step by step."
    """First line of the instructions that a model reads."""

    max_steps: Annotated[int, Field(gt=0)] = 20
    """Steps after which an unfinished episode is ended (truncated, without success)."""
    invalid_reward: Annotated[float, Field(le=0)] = -1.0
    """Reward of an action that does not exist here or cannot be carried out; the state stays as it is."""
    instructions: Literal["full", "brief"] = "full"
    """full: the prompt explains the actions. brief: the prompt is the first observation alone and a refused
    action is answered with `Invalid.`, for small models that are trained in the environment."""

    _state: Any = PrivateAttr(None)
    _steps: int = PrivateAttr(0)
    _over: bool = PrivateAttr(True)

    @abstractmethod
    def problem(self, rng: np.random.Generator) -> Problem:
        """A generated problem: a JSON mapping, a function of the options and of `rng` alone."""

    @abstractmethod
    def begin(self, problem: Problem) -> str:
        """Set up the episode of `problem` and return the first observation. Raises UserError for a problem
        that makes no sense."""

    @abstractmethod
    def act(self, action: str, params: Params) -> ActionResult:
        """Carry out one of the valid actions. Raises InvalidAction when its parameters make no sense."""

    def read(self, text: str) -> Problem:
        """The problem in a text: here a JSON object; a domain may read words. Raises UserError."""
        try:
            problem = json.loads(text)
        except json.JSONDecodeError:
            problem = None
        if not isinstance(problem, dict):
            example = json.dumps(self.problems("train", 1)[0])
            raise UserError(f"A {self.kind_name!r} problem is a JSON object such as {example}.")
        return problem

    def get_valid_actions(self) -> list[str]:
        """Names of the actions that make sense now; empty once the episode is over."""
        return [] if self._over else list(self.actions)

    def expert(self) -> tuple[str, Params]:
        """What a scripted expert does now. Optional; needed for demonstrations and optimality gaps."""
        raise UserError(f"The environment {self.kind_name!r} has no scripted expert.")

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        """Random parameters for an action, for exploring agents."""
        return {}

    def render(self) -> str:
        """The whole state for a human reader."""
        return str(self._state)

    def solution(self) -> str:
        """What the episode produced, for the user who asked."""
        return self.render()

    @property
    def slow(self) -> bool:
        """Steps take long (a sandbox, a judge): they run outside the event loop."""
        return False

    @property
    def kind_name(self) -> str:
        """The registered name."""
        return str(getattr(self, "kind", type(self).__name__))

    def reset(self, problem: str | Problem) -> str:
        """Begin the episode of a problem, a mapping or a text; returns the first observation.

        Raises:
            UserError: the problem makes no sense here.
        """
        problem = self.read(problem) if isinstance(problem, str) else problem
        try:
            observation = self.begin(problem)
        except UserError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(
                f"This is no {self.kind_name!r} problem ({reason}): {str(problem)[:200]}."
            ) from None
        if not isinstance(observation, str):
            raise UserError(
                f"begin() of {self.kind_name!r} returned a {type(observation).__name__}: return the first "
                "observation, a string."
            )
        self._steps, self._over = 0, False
        return observation

    def offered_actions(self) -> list[str]:
        """`get_valid_actions`, held to the contract while the episode goes on. Raises UserError."""
        names = self.get_valid_actions()
        if not self._over and not (names and all(name in self.actions for name in names)):
            raise UserError(
                f"get_valid_actions() of {self.kind_name!r} returned {names}: return names out of `actions`, at "
                "least one until the episode is over."
            )
        return names

    def step(self, action: str, params: Params | None = None) -> ActionResult:
        """Take one step. Nothing an agent does raises; a defect of the environment is a UserError."""
        if self._over:
            return ActionResult("The episode is over.", 0.0, True, {"valid": False, "truncated": False})
        valid = self.offered_actions()
        self._steps += 1
        try:
            if action not in valid:
                raise InvalidAction(
                    f"{str(action)[:40]!r} is not possible here. Valid actions: {', '.join(valid)}."
                )
            result = self._sound(action, self.act(action, params or {}))
            info = {"valid": True, "truncated": False, **result.info}
        except InvalidAction as problem:
            text = "Invalid." if self.instructions == "brief" else str(problem)
            result = ActionResult(text, self.invalid_reward, False)
            info = {"valid": False, "truncated": False}
        done = result.done or self._steps >= self.max_steps
        if done:
            self._over = True
            info["truncated"] = bool(not result.done or info["truncated"])
            info["success"] = bool(result.done and info.get("success", False))
        return ActionResult(result.observation, float(result.reward), bool(done), info)

    def _sound(self, action: str, result: Any) -> ActionResult:
        where = f"The environment {self.kind_name!r} answered {action!r} with"
        if not isinstance(result, ActionResult):
            raise UserError(f"{where} a {type(result).__name__}: act() returns an ActionResult.")
        if not isinstance(result.observation, str):
            raise UserError(
                f"{where} an observation of type {type(result.observation).__name__}: use a string."
            )
        if not isinstance(result.reward, numbers.Real) or not math.isfinite(result.reward):
            raise UserError(f"{where} the reward {result.reward!r}: a reward is a finite number.")
        if not isinstance(result.done, bool | np.bool_):
            raise UserError(f"{where} done = {result.done!r}: it is True or False.")
        if not isinstance(result.info, Mapping):
            raise UserError(f"{where} an info of type {type(result.info).__name__}: use a dictionary.")
        return result

    def problems(self, split: Split, n: int, seed: int = 0) -> list[Problem]:
        """`n` problems, generated independently, so that a small world repeats some. Splits are disjoint for any
        seeds: a problem's content decides its split.

        Raises:
            UserError: the environment's options leave one split (almost) empty, or a problem is no JSON mapping.
        """
        found: list[Problem] = []
        for i in range(100 * max(n, 10)):
            if len(found) == n:
                return found
            problem = self.problem(generator("environment", self.kind_name, seed, i))
            if self.split_of(problem) == split:
                found.append(problem)
        if len(found) < n:
            raise UserError(
                f"{self.kind_name!r} gave {len(found)} of {n} {split} problems: widen its options."
            )
        return found

    def split_of(self, problem: Problem) -> Split:
        """The split that a problem belongs to, by its content. Raises UserError where it is no JSON mapping."""
        try:
            return "train" if int(content_hash(dict(problem)), 16) % TEST_ONE_IN else "test"
        except (TypeError, ValueError) as error:
            raise UserError(f"A problem of {self.kind_name!r} is no JSON mapping: {error}.") from None

    def messages(self, observation: str) -> tuple[Message, ...]:
        """The chat messages with which a model's episode begins."""
        if self.instructions == "brief":
            return ({"role": "user", "content": observation},)
        listing = "\n".join(f"- {name}: {line}" for name, line in self.actions.items())
        text = f"{self.purpose}\nAnswer with one action a turn, its name first, then its value.\n{listing}"
        return ({"role": "system", "content": text}, {"role": "user", "content": observation})

    def parse_action(self, text: str) -> tuple[str, dict[str, Any]]:
        """The first known action in a model's answer; what follows is its value (or a JSON object of
        parameters). Without one, the first word is taken as the (invalid) action."""
        match = re.search(rf"(?<![\w])({'|'.join(map(re.escape, self.actions))})\b(.*)", text, re.DOTALL)
        if match is None:
            return (text.split() or [""])[0][:40], {}
        name, rest = match[1], match[2].lstrip(" :\t").rstrip()
        if rest.startswith("(") and rest.endswith(")") and _balanced(rest[1:-1]):
            rest = rest[1:-1]
        if rest.startswith("{"):
            try:
                return name, json.loads(rest)
            except (ValueError, RecursionError):
                pass
        return name, {"value": rest} if rest.strip() else {}

    def format_action(self, action: str, params: Params | None = None) -> str:
        """The text of an action, as `parse_action` reads it."""
        if not params:
            return action
        return f"{action} {params['value'] if list(params) == ['value'] else json.dumps(dict(params))}"


def _balanced(text: str) -> bool:
    return min(accumulate((c == "(") - (c == ")") for c in text), default=0) >= 0
