"""Gymnasium both ways: rlkit environments as `gymnasium.Env`, and Gymnasium's environments here."""

import contextlib
import re
import string
from typing import Any, ClassVar, Literal, Self

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Discrete, Text
from pydantic import Field, PrivateAttr

from rlkit.environments.base import (
    ActionResult,
    BaseEnvironment,
    InvalidAction,
    Params,
    Problem,
    Split,
    environments,
)
from rlkit.errors import UserError

LONGEST = 4096  # characters of an action or observation
ALPHABET = 0x2500  # observations have the code points below: letters, arrows, operators


class GymnasiumEnv(gymnasium.Env):
    """An rlkit environment under Gymnasium's interface; actions and observations are texts.

    `reset(options={"problem": …})` chooses the problem; otherwise the seed does. Observations longer than
    4,096 characters are cut at the front, and characters beyond the space's alphabet become "?". `terminated` and
    `truncated` follow Gymnasium's meaning.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(
        self, environment: BaseEnvironment, split: Split = "train", render_mode: str | None = None
    ) -> None:
        self.environment, self.render_mode = environment.own_copy(), render_mode
        self.split: Split = split
        self.action_space = Text(LONGEST, charset=string.printable)
        self.observation_space = Text(LONGEST, min_length=0, charset=frozenset(map(chr, range(ALPHABET))))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        problem = (options or {}).get("problem")
        if problem is None:
            problem = self.environment.problems(self.split, 1, int(self.np_random.integers(2**31)))[0]
        observation = self.environment.reset(problem)
        return self._observed(observation), {"valid_actions": self.environment.offered_actions()}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        result = self.environment.step(*self.environment.parse_action(str(action)))
        truncated = bool(result.info["truncated"])
        info = {**result.info, "valid_actions": self.environment.offered_actions()}
        terminated = result.done and not truncated
        return self._observed(result.observation), result.reward, terminated, truncated, info

    @staticmethod
    def _observed(text: str) -> str:
        return "".join(c if ord(c) < ALPHABET else "?" for c in text[-LONGEST:])

    def render(self) -> str | None:  # type: ignore[override]
        return self.environment.render() if self.render_mode == "ansi" else None


@environments.register("gymnasium")
class FromGymnasium(BaseEnvironment):
    """An environment of Gymnasium with discrete or text actions.

    Its observation is the `ansi` rendering where it has one, and otherwise what it returns.

    Discrete actions are called `names`, or action_0, action_1 …; text actions are the `value` of `act`. A
    problem is a seed. Gymnasium's own time limits truncate.
    """

    kind: Literal["gymnasium"] = "gymnasium"
    id: str = "FrozenLake-v1"
    """Gymnasium's id of the environment."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of gymnasium.make."""
    names: tuple[str, ...] = ()
    """Names of discrete actions, in order."""
    success_return: float | None = None
    """Return from which an episode is a success. Default: Gymnasium's reward_threshold of it; one without a threshold
    succeeds when it terminates itself."""

    _env: Any = PrivateAttr(None)
    _names: tuple[str, ...] = PrivateAttr(())
    _return: float = PrivateAttr(0.0)

    def model_post_init(self, context: Any) -> None:
        with contextlib.closing(self._make()) as env:
            space = env.action_space
        if isinstance(space, Discrete):
            self._names = self.names or tuple(f"action_{i}" for i in range(int(space.n)))
            if len(set(self._names)) != space.n:
                raise ValueError(
                    f"names has {len(set(self._names))} entries, but {self.id} has {space.n} actions"
                )
        elif isinstance(space, Text):
            self._names = ("act",)
        else:
            raise ValueError(
                f"{self.id} has actions of type {type(space).__name__}: only Discrete and Text can be named"
            )

    def _make(self) -> gymnasium.Env:
        try:
            entry = gymnasium.spec(self.id).entry_point
            creator = load_env_creator(entry) if isinstance(entry, str) else entry
            shows = "ansi" in getattr(creator, "metadata", {}).get("render_modes", [])
            mode: dict[str, Any] = {"render_mode": "ansi"} if shows else {}
            return gymnasium.make(self.id, **mode | self.options)
        except (gymnasium.error.Error, TypeError) as error:  # a TypeError for options that it does not take
            raise UserError(f"environment.id is {self.id!r}: {error}") from None

    def own_copy(self) -> Self:
        return type(self).model_validate(self.model_dump())  # begin() makes a new environment of Gymnasium

    @property
    def actions(self) -> dict[str, str]:  # type: ignore[override]
        return {name: "its value is the action's text" if name == "act" else "" for name in self._names}

    def begin(self, problem: Problem) -> str:
        seed = int(problem["seed"])
        if seed < 0:
            raise UserError(f"The problem's seed is {seed}: give a number from 0 on.")
        self._env, self._return = self._make(), 0.0
        observation, _ = self._env.reset(seed=seed)
        return self._text(observation)

    def act(self, action: str, params: Params) -> ActionResult:
        space = self._env.action_space
        if isinstance(space, Discrete):
            choice: Any = int(space.start) + self._names.index(action)
        elif not space.contains(choice := str(params.get("value", ""))):
            raise InvalidAction("That text is not in the environment's action space.")
        observation, reward, terminated, truncated, _ = self._env.step(choice)
        self._return += float(reward)
        threshold = self._env.spec.reward_threshold if self.success_return is None else self.success_return
        success = bool(terminated) if threshold is None else self._return >= threshold
        info = {"success": success, "truncated": bool(truncated and not terminated)}
        return ActionResult(self._text(observation), float(reward), bool(terminated or truncated), info)

    def _text(self, observation: Any) -> str:
        shown = self._env.render() if self._env.render_mode == "ansi" else observation
        # colour marks the agent's place
        marked = re.sub(r"\x1b\[[1-9][0-9;]*m(.*?)\x1b\[0m", r"[\1]", str(shown))
        return marked.strip()

    def render(self) -> str:
        return self._text("")
