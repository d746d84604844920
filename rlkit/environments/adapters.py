"""Environments of Gymnasium."""

import contextlib
import re
from typing import Any, Literal

import gymnasium
from gymnasium.spaces import Discrete
from pydantic import Field, PrivateAttr

from rlkit.environments.base import ActionResult, BaseEnvironment, Params, Problem, environments
from rlkit.errors import UserError


@environments.register("gymnasium")
class FromGymnasium(BaseEnvironment):
    """An environment of Gymnasium with discrete actions, called `names`, or action_0, action_1 …

    Its observation is the `ansi` rendering where it has one, and otherwise what it returns. A problem is a seed.
    Gymnasium's own time limits truncate.
    """

    kind: Literal["gymnasium"] = "gymnasium"
    id: str = "FrozenLake-v1"
    """Gymnasium's id of the environment."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of gymnasium.make."""
    names: tuple[str, ...] = ()
    """Names of discrete actions, in order."""
    success_return: float | None = None
    """Return from which an episode is a success. Default: Gymnasium's reward_threshold; without one, termination."""

    _env: Any = PrivateAttr(None)
    _mode: dict[str, Any] = PrivateAttr({})
    _names: tuple[str, ...] = PrivateAttr(())
    _return: float = PrivateAttr(0.0)

    def model_post_init(self, context: Any) -> None:
        with contextlib.closing(self._make()) as env:
            space, shows = env.action_space, "ansi" in env.metadata.get("render_modes", ())
        if not isinstance(space, Discrete):
            raise ValueError(f"{self.id} has {type(space).__name__} actions: only Discrete can be named")
        self._mode = {"render_mode": "ansi"} if shows else {}
        self._names = self.names or tuple(f"action_{i}" for i in range(int(space.n)))
        if (count := len(set(self._names))) != space.n:
            raise ValueError(f"environment.names has {count} entries, but {self.id} has {space.n} actions")

    def _make(self) -> gymnasium.Env:
        try:
            return gymnasium.make(self.id, **self._mode | self.options)
        except (gymnasium.error.Error, TypeError) as error:  # a TypeError for options that it does not take
            raise UserError(f"environment.id is {self.id!r}: {error}") from None

    @property
    def actions(self) -> dict[str, str]:  # type: ignore[override]
        return dict.fromkeys(self._names, "")

    def begin(self, problem: Problem) -> str:
        self._env, self._return = self._make(), 0.0
        observation, _ = self._env.reset(seed=int(problem["seed"]))
        return self._text(observation)

    def act(self, action: str, params: Params) -> ActionResult:
        choice = int(self._env.action_space.start) + self._names.index(action)
        observation, reward, terminated, truncated, _ = self._env.step(choice)
        self._return += float(reward)
        threshold = self._env.spec.reward_threshold if self.success_return is None else self.success_return
        success = bool(terminated) if threshold is None else self._return >= threshold
        info = {"success": success, "truncated": bool(truncated and not terminated)}
        return ActionResult(self._text(observation), float(reward), bool(terminated or truncated), info)

    def _text(self, observation: Any) -> str:
        shown = self._env.render() if self._env.render_mode == "ansi" else observation
        # colour marks the agent's place
        return re.sub(r"\x1b\[[1-9][0-9;]*m(.*?)\x1b\[0m", r"[\1]", str(shown)).strip()

    def render(self) -> str:
        return self._text("")
