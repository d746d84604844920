"""The contract of an environment: discrete actions, an observation in words, a reward for every step."""

import contextlib
import copy
import functools
import inspect
import json
import math
import numbers
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, dataclass_transform

import numpy as np
from pydantic import BaseModel, Field, PrivateAttr

from rlkit.environments.action_parsing import Params, as_mapping, read_action
from rlkit.errors import UserError
from rlkit.params import SentencesMeta
from rlkit.registry import Component, Registry
from rlkit.seeds import content_hash, generator
from rlkit.types import Message

environments = Registry(
    "environment",
    "rlkit.environments",
    hint="`rlkit new environment NAME` starts a new one, in a file that `plugins` names.",
)

Problem = Mapping[str, Any]  # any JSON mapping
Split = Literal["train", "test"]
HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair: no tokenizer encodes it
LISTED = 20  # valid actions that the answer to an invalid one names
TEST_ONE_IN = 5  # a problem belongs to the test split when its content hash is divisible by this


class InvalidAction(Exception):
    """Raised inside `act` for what cannot be carried out; its message is what the agent observes."""


class BrokenEnvironment(UserError):
    """A defect of the environment itself, whatever was asked of it."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What one step gives: what the agent reads next, the finite reward of this step, and whether the episode is over.
    Raises TypeError for values of other types.

    Attributes:
        info: `valid` (the action was carried out), `truncated` (ended by a limit: max_steps, or one of the
            environment's own) and, when done, `success`; an environment adds facts of its own.
    """

    observation: str
    reward: float
    done: bool
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(text := self.observation, str) or HALF.search(text):
            raise TypeError(f"the observation {text!r}: an observation is a string of whole characters")
        if not isinstance(self.reward, numbers.Real) or not math.isfinite(self.reward):
            raise TypeError(f"the reward {self.reward!r}: a reward is a finite number")
        if not isinstance(self.done, bool | np.bool_):
            raise TypeError(f"done = {self.done!r}: it is True or False")
        if not isinstance(self.info, Mapping):
            raise TypeError(f"the info {self.info!r}: it is a dictionary")
        for name in ("valid", "truncated", "success"):
            if not isinstance(value := self.info.get(name, False), bool | np.bool_ | int):
                raise TypeError(f"info[{name!r}] = {value!r}: it is True or False")


@dataclass_transform(kw_only_default=True, field_specifiers=(Field, PrivateAttr))
class AttributesMeta(SentencesMeta):
    """Attributes of an environment's class may stand without an annotation, as people write them: the new default of an
    option, or (in `starts`) a value with which every episode begins."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        notes = namespace.setdefault("__annotations__", {})
        starts, fields, known = {}, {}, set()
        for base in reversed(bases):
            starts |= getattr(base, "starts", {})
            fields |= getattr(base, "model_fields", {})
            known |= getattr(base, "__class_vars__", set()) | {"model_config"}
        for key, value in list(namespace.items()):
            if key.startswith("_") or key in notes or key in known or hasattr(type(value), "__get__"):
                continue
            if key in fields:
                notes[key] = Annotated[fields[key].annotation, *fields[key].metadata]
            elif not isinstance(value, type):
                notes[key] = ClassVar[Any]
                starts |= {} if key.isupper() else {key: value}  # capitals are of a constant
        made: Any = super().__new__(mcs, name, bases, namespace, **options)
        made.starts = starts
        return made


class BaseEnvironment(Component, metaclass=AttributesMeta):
    """A world with discrete actions.

    The short form writes `get_valid_actions()` and `step(action, params)`, and `reset(problem)` where it needs the
    problem; its attributes, and those of its class, begin every episode as they were before the first. The full form
    gives `actions`, `problem`, `begin` and `act`. In both, `reset` and `step` as others call them count steps, answer
    invalid actions with the documented penalty, end an episode at `max_steps`, and refuse what breaks the contract.

    An environment is a component (its fields are its options), so it can be named in YAML, pickled and copied. Same
    problem and same actions, same results: randomness belongs into the problem.
    """

    actions: ClassVar[dict[str, str]] = {}
    """Every action and one line on what it does and which `value` it takes. The short form may leave it empty."""
    purpose: ClassVar[str] = "Solve the task step by step."
    """First line of a model's instructions."""
    starts: ClassVar[dict[str, Any]] = {}
    """What the attributes of the class are when an episode begins."""
    multiline: ClassVar[bool] = False
    """The value of an action may have several lines; otherwise it ends with its line."""
    slow: ClassVar[bool] = False
    """Steps take long (a sandbox): they run outside the event loop, and side by side."""

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
    _at_start: dict[str, Any] | None = PrivateAttr(None)  # the attributes before the first episode

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """The short form's `step` and `reset` become `act` and `begin`, which those of this class call; its `__init__`
        need not call that of this class, and its `actions` may be a list."""
        own: Any = vars(cls)
        if isinstance(own.get("actions"), list | tuple):
            cls.actions = dict.fromkeys(cls.actions, "")
        if init := own.get("__init__"):

            @functools.wraps(init)
            def begun(self: Any, *args: Any, **options: Any) -> None:
                with contextlib.suppress(ValueError):  # of options that have no default
                    BaseModel.__init__(self)
                init(self, *args, **options)

            cls.__init__ = begun
        if step := own.get("step"):
            cls.act = lambda self, action, params: step(self, action, _alone(params, "value"))
            cls.step = BaseEnvironment.step
        if reset := own.get("reset"):
            cls.begin = lambda self, problem: (
                reset(self, _alone(problem, "problem")) or BaseEnvironment.begin(self, problem)
            )
            cls.reset = BaseEnvironment.reset

    def __setattr__(self, name: str, value: Any) -> None:
        """Options are frozen; any other attribute belongs to the episode that runs. Raises UserError."""
        own = f"{name!r} of {type(self).__name__!r}"
        if name.startswith("_"):
            super().__setattr__(name, value)
        elif name in type(self).model_fields:
            raise UserError(f"{own} is an option, which stays as it is: keep what changes under another name.")
        elif name != "problem" and hasattr(BaseEnvironment, name) and not hasattr(BaseModel, name):
            raise UserError(f"{own} belongs to every environment: keep yours under another name.")
        else:
            vars(self)[name] = value

    def call(self, method: str, *args: Any, what: str = "") -> Any:
        """What a method that the environment's author wrote returns. Raises BrokenEnvironment for what it raises, but
        for InvalidAction and UserError, and for one that is async."""
        try:
            result = getattr(type(self), method)(self, *args)
        except (InvalidAction, UserError):
            raise
        except (Exception, SystemExit) as error:
            ours = __file__, "<string>", inspect.getfile(BaseModel)
            frames = reversed(traceback.extract_tb(error.__traceback__))
            at = next((f for f in frames if f.filename not in ours), None)
            place = f" ({Path(at.filename).name}, line {at.lineno})" if at else ""
            told = f"{what or f'answered {method}() with'} {type(error).__name__}: {error}{place}"
            raise BrokenEnvironment(f"The environment {self.kind_name!r} {told}.") from error
        if inspect.iscoroutine(result):
            result.close()
            raise BrokenEnvironment(f"A method of {self.kind_name!r} is async: write it without.")
        return result

    def fresh(self) -> Self:
        """A copy that shares nothing with this environment. Raises BrokenEnvironment."""
        try:
            return self.model_copy(deep=True)
        except Exception as error:
            told = f"The environment {self.kind_name!r} cannot be copied ({error})"
            raise BrokenEnvironment(f"{told}: make in reset or step what cannot.") from None

    def problem(self, rng: np.random.Generator) -> Problem:
        """A generated problem: a JSON mapping, a function of the options and of `rng` alone."""
        return {"seed": int(rng.integers(2**31))}

    def begin(self, problem: Problem) -> str:
        """Set up the episode of `problem`; the first observation. Raises UserError where it makes no sense."""
        return str(problem["problem"]) if list(problem) == ["problem"] else json.dumps(dict(problem))

    def act(self, action: str, params: Params) -> ActionResult:
        """Carry out one of the valid actions. Raises InvalidAction when its parameters make no sense."""
        raise UserError(f"{self.kind_name!r} does nothing yet: write step(action, params).")

    def draw(self, rng: np.random.Generator) -> Problem:
        """A problem as `problem` gives it, a text as one of the short form's. Raises BrokenEnvironment."""
        problem = self.call("problem", rng)
        problem = {"problem": problem} if isinstance(problem, str) else problem
        try:
            json.dumps(dict(problem))
        except (TypeError, ValueError, RecursionError) as error:
            told = f"problem(rng) of {self.kind_name!r} returned {str(problem)[:200]}"
            fix = f"return a mapping of JSON's types, or a text ({error})"
            raise BrokenEnvironment(f"{told}: {fix}.") from None
        return problem

    def get_valid_actions(self) -> list[str]:
        """Names of the actions that make sense now; empty once the episode is over."""
        return [] if self._over else list(self.actions)

    def read(self, text: str) -> Problem:
        """The problem in a text: a JSON object, or in the short form any text. Raises UserError."""
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(problem := json.loads(text), dict):
                return problem
        example = self.problems("train", 1)[0]
        if type(self).problem is BaseEnvironment.problem or list(example) == ["problem"]:
            return {"problem": text}
        raise UserError(f"A {self.kind_name!r} problem is a JSON object such as {json.dumps(example)}.")

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
    def kind_name(self) -> str:
        """The registered name."""
        return str(getattr(self, "kind", type(self).__name__))

    def reset(self, problem: str | Problem) -> str:
        """Begin the episode of a problem, a mapping or a text; the first observation. Raises UserError."""
        problem = self.read(problem) if isinstance(problem, str) else problem
        own = vars(self).keys() - type(self).model_fields.keys()
        if self._at_start is None:
            self._at_start = copy.deepcopy(type(self).starts | {name: vars(self)[name] for name in own})
        for name in own:
            del vars(self)[name]
        vars(self).update(copy.deepcopy(self._at_start or {}))
        try:
            if inspect.iscoroutine(observation := self.begin(problem)):
                observation.close()
            if not isinstance(observation, str) or HALF.search(observation):
                raise TypeError(f"the first observation is {observation!r}, no string of whole characters")
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            told = f"({type(error).__name__}: {error}): {str(problem)[:200]}"
            raise UserError(f"This is no {self.kind_name!r} problem {told}.") from None
        self._steps, self._over = 0, False
        return observation

    def offered_actions(self) -> list[str]:
        """`get_valid_actions`, held to the contract: empty once the episode is over. Raises BrokenEnvironment."""
        if self._over:
            return []
        names = self.call("get_valid_actions")
        if isinstance(names, list | tuple | dict) and names and all(isinstance(n, str) for n in names):
            known = not self.actions or set(names) <= set(self.actions)
            if known and all(n and n == " ".join(n.split()) for n in names):
                return list(names)
        raise BrokenEnvironment(
            f"get_valid_actions() of {self.kind_name!r} returned {str(names)[:200]}: return a list of names, of those "
            "in `actions` where that is given, at least one until the episode is over; a name is words in one line."
        )

    def step(self, action: str, params: str | Params | None = None) -> ActionResult:
        """Take one step; `params` is the action's value, or a mapping with it as `value`. Nothing an agent does raises.
        Raises BrokenEnvironment for a defect of the environment."""
        if self._over:
            return ActionResult("The episode is over.", 0.0, True, {"valid": False, "truncated": False})
        valid, facts = self.offered_actions(), {"valid": True, "truncated": False}
        self._steps += 1
        try:
            if action not in valid:
                more = f" and {len(valid) - LISTED} more" if len(valid) > LISTED else ""
                listed = ", ".join(valid[:LISTED]) + more
                raise InvalidAction(f"{str(action)[:40]!r} is not possible here. Valid actions: {listed}.")
            result = self.call("act", action, as_mapping(params), what=f"answered {action!r} with")
            if not isinstance(result, ActionResult):
                told = f"The environment {self.kind_name!r} answered {action!r} with {str(result)[:200]!r}"
                raise BrokenEnvironment(f"{told}: return ActionResult(observation, reward, done, info).")
        except InvalidAction as problem:
            text, facts["valid"] = "Invalid." if self.instructions == "brief" else str(problem), False
            result = ActionResult(text, self.invalid_reward, False)
        info = facts | dict(result.info)
        self._over = bool(result.done) or self._steps >= self.max_steps
        if self._over:
            info["truncated"] = bool(not result.done or info["truncated"])
            info["success"] = bool(result.done and info.get("success", False))
        return ActionResult(result.observation, float(result.reward), self._over, info)

    def problems(self, split: Split, n: int, seed: int = 0) -> list[Problem]:
        """`n` problems, generated independently, so that a small world repeats some. Splits are disjoint for any
        seeds: a problem's content decides its split. Raises UserError where options leave a split almost empty."""
        if split not in ("train", "test") or n < 0:
            raise UserError(f"problems({split!r}, {n}): the split is 'train' or 'test', n at least 0.")
        streams = (generator("environment", self.kind_name, seed, i) for i in range(100 * max(n, 10)))
        drawn = (problem for problem in map(self.draw, streams) if self.split_of(problem) == split)
        found = list(islice(drawn, n))
        if (count := len(found)) < n:
            told = f"{self.kind_name!r} gave {count} of {n} {split} problems"
            raise UserError(f"{told}: widen its options, or what problem(rng) draws from.")
        return found

    def split_of(self, problem: Problem) -> Split:
        """The split that a problem, a JSON mapping, belongs to by its content."""
        return "train" if int(content_hash(dict(problem)), 16) % TEST_ONE_IN else "test"

    def messages(self, observation: str) -> tuple[Message, ...]:
        """The chat messages with which a model's episode begins."""
        if self.instructions == "brief":
            return ({"role": "user", "content": observation},)
        told = self.actions or dict.fromkeys(self.offered_actions(), "")
        listing = "\n".join(f"- {name}: {line}" if line else f"- {name}" for name, line in told.items())
        text = f"{self.purpose}\nAnswer with one action a turn, its name first, then its value.\n{listing}"
        return ({"role": "system", "content": text}, {"role": "user", "content": observation})

    def parse_action(self, text: str) -> tuple[str, dict[str, Any]]:
        """The action in a model's answer and its parameters (see `rlkit.environments.action_parsing.read_action`)."""
        return read_action(text, list(self.actions) or self.offered_actions(), self.multiline)

    def format_action(self, action: str, params: Params | None = None) -> str:
        """The text of an action, as `parse_action` reads it."""
        if not (params := as_mapping(params)):
            return action
        return f"{action} {params['value'] if list(params) == ['value'] else json.dumps(dict(params))}"


def as_environment(given: Any) -> BaseEnvironment:
    """An environment: itself, or what a name or a mapping with `kind` says. Raises UserError."""
    if not isinstance(given, BaseEnvironment | str | dict):
        raise UserError(f"The environment is {given!r}: give an instance of BaseEnvironment, or a name.")
    return environments.parse(given)


def _alone(values: Mapping[str, Any], key: str) -> Any:
    """What the mapping has under `key`, where that is all it has; None for an empty one."""
    return (values[key] if list(values) == [key] else values) if values else None
