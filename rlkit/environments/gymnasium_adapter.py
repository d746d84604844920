"""Gymnasium both ways: rlkit environments as `gymnasium.Env`, and Gymnasium's environments here."""

import re
import string
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
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

LONGEST = 4096


class GymnasiumEnv(gymnasium.Env):
    """An rlkit environment under Gymnasium's interface; actions and observations are texts.

    `reset(options={"problem": …})` chooses the problem; otherwise the seed does. Observations longer than
    4,096 characters are cut at the front. `terminated` and `truncated` follow Gymnasium's meaning.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}

    def __init__(
        self, environment: BaseEnvironment, split: Split = "train", render_mode: str | None = None
    ) -> None:
        self.environment, self.render_mode = environment.model_copy(), render_mode
        self.split: Split = split
        self.action_space = Text(LONGEST, charset=string.printable)
        self.observation_space = Text(LONGEST, min_length=0, charset=frozenset(map(chr, range(0x2500))))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        problem = (options or {}).get("problem")
        if problem is None:
            problem = self.environment.problems(self.split, 1, int(self.np_random.integers(2**31)))[0]
        return self.environment.reset(problem)[-LONGEST:], {
            "valid_actions": self.environment.get_valid_actions()
        }

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        result = self.environment.step(*self.environment.parse_action(str(action)))
        truncated = bool(result.info["truncated"])
        info = {**result.info, "valid_actions": self.environment.get_valid_actions()}
        return result.observation[-LONGEST:], result.reward, result.done and not truncated, truncated, info

    def render(self) -> str | None:  # type: ignore[override]
        return self.environment.render() if self.render_mode == "ansi" else None


@environments.register("gymnasium")
class FromGymnasium(BaseEnvironment):
    """An environment of Gymnasium with discrete or text actions.

    Its observation is the `ansi` rendering where it has one, and otherwise what it returns.

    Discrete actions are called `names`, or action_0, action_1 …; text actions are the `value` of `act`. A
    problem is a seed. Success is a positive last reward at termination.
    """

    kind: Literal["gymnasium"] = "gymnasium"
    id: str = "FrozenLake-v1"
    """Gymnasium's id of the environment."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of gymnasium.make."""
    names: tuple[str, ...] = ()
    """Names of discrete actions, in order."""

    _env: Any = PrivateAttr(None)
    _names: tuple[str, ...] = PrivateAttr(())

    def model_post_init(self, context: Any) -> None:
        env = self._make()
        space = env.action_space
        if isinstance(space, Discrete):
            self._names = self.names or tuple(f"action_{i}" for i in range(int(space.n)))
            if len(self._names) != space.n:
                raise ValueError(f"names has {len(self._names)} entries, but {self.id} has {space.n} actions")
        elif isinstance(space, Text):
            self._names = ("act",)
        else:
            raise ValueError(
                f"{self.id} has actions of type {type(space).__name__}: only Discrete and Text can be named"
            )

    def _make(self) -> gymnasium.Env:
        try:
            modes = gymnasium.spec(self.id).kwargs.get("render_modes") or _modes(self.id)
            return gymnasium.make(self.id, render_mode="ansi" if "ansi" in modes else None, **self.options)
        except gymnasium.error.Error as error:
            raise UserError(f"environment.id is {self.id!r}: {error}") from None

    @property
    def actions(self) -> dict[str, str]:  # type: ignore[override]
        return {name: "its value is the action's text" if name == "act" else "" for name in self._names}

    def problem(self, rng: np.random.Generator) -> Problem:
        return {"seed": int(rng.integers(2**31))}

    def begin(self, problem: Problem) -> str:
        self._env = self._make()
        observation, _ = self._env.reset(seed=int(problem["seed"]))
        return self._text(observation)

    def act(self, action: str, params: Params) -> ActionResult:
        choice: Any = self._names.index(action)
        if action == "act":
            choice = str(params.get("value", ""))
            if not self._env.action_space.contains(choice):
                raise InvalidAction("That text is not in the environment's action space.")
        observation, reward, terminated, truncated, _ = self._env.step(choice)
        done = bool(terminated or truncated)
        return ActionResult(
            self._text(observation), float(reward), done, {"success": bool(terminated and reward > 0)}
        )

    def _text(self, observation: Any) -> str:
        shown = self._env.render() if self._env.render_mode == "ansi" else observation
        return re.sub(
            r"\x1b\[[1-9][0-9;]*m(.*?)\x1b\[0m", r"[\1]", str(shown)
        ).strip()  # colour marks the agent's place

    def render(self) -> str:
        return self._text("")


def _modes(env_id: str) -> list[str]:
    from gymnasium.envs.registration import load_env_creator

    entry = gymnasium.spec(env_id).entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    return list(getattr(creator, "metadata", {}).get("render_modes", []))
