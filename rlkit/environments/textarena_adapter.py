"""TextArena (arXiv 2504.11442, `pip install textarena`) both ways: games for one player, and ours as its games."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import PrivateAttr

from rlkit.environments.base import ActionResult, BaseEnvironment, Params, Problem, environments
from rlkit.errors import UserError
from rlkit.types import Message


class WholeAnswers(BaseEnvironment):
    """A world with one action, whose value is a whole answer of the model."""

    def parse_action(self, text: str) -> tuple[str, dict[str, Any]]:
        return next(iter(self.actions)), {"value": text}

    def format_action(self, action: str, params: Params | None = None) -> str:
        return str((params or {}).get("value", ""))

    def sample_params(self, action: str, rng: np.random.Generator) -> Params:
        return {"value": f"[{rng.integers(1, 21)}]"}


@environments.register("textarena")
class FromTextArena(WholeAnswers):
    """A game of TextArena for one player. A whole answer of the model is its move, and the game's own text its
    prompt. A problem is a seed. The reward of a game comes with its last step."""

    actions: ClassVar[dict[str, str]] = {"play": "its value is the move as the game asks for it"}

    kind: Literal["textarena"] = "textarena"
    id: str = "GuessTheNumber-v0"
    """TextArena's id of the game."""
    success_reward: float = 1.0
    """Reward from which a game is won; what is less is partial credit."""

    _game: Any = PrivateAttr(None)
    _random: Any = PrivateAttr(None)  # the state of Python's generator, which games draw from

    def model_post_init(self, context: Any) -> None:
        self.begin({"seed": 0})

    def messages(self, observation: str) -> tuple[Message, ...]:
        return ({"role": "user", "content": observation},)

    def begin(self, problem: Problem) -> str:
        self._random = random.getstate()
        with self._own_random():
            try:
                import textarena

                self._game = textarena.make(f"{self.id}-raw")  # without the history, which the chat holds
                self._game.reset(num_players=1, seed=int(problem["seed"]))
            # TextArena is not installed, has no such game or one for more players, lacks word lists …
            except Exception as error:
                told, reason = "which does not begin here", str(error).strip().partition("\n")[0]
                raise UserError(f"environment.id is {self.id!r}, {told}: {reason}") from None
        return self._heard()

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        """Python's generator as this game left it, so that games side by side do not draw from one another's."""
        outside = random.getstate()
        random.setstate(self._random)
        try:
            yield
        finally:
            self._random = random.getstate()
            random.setstate(outside)

    def act(self, action: str, params: Params) -> ActionResult:
        with self._own_random():
            done, _ = self._game.step(action=str(params.get("value", "")))
        if not done:
            return ActionResult(self._heard(), 0.0, False)
        rewards, facts = self._game.close()
        reward = float((rewards or {}).get(0, 0.0))
        info = {"success": reward >= self.success_reward, "reason": str(facts[0].get("reason", ""))}
        return ActionResult(info["reason"] or "The game is over.", reward, True, info)

    def _heard(self) -> str:
        """What the game has said since the player's last move."""
        player, messages = self._game.get_observation()
        return "\n".join(text for speaker, text, *_ in messages if speaker != player).strip()


class TextArenaEnv:
    """An environment with the methods of `textarena.Env`: one player acts in texts; the seed chooses the problem."""

    def __init__(self, environment: BaseEnvironment) -> None:
        self.environment = environment.fresh()

    def reset(self, num_players: int = 1, seed: int | None = None) -> None:
        (problem,) = self.environment.problems("train", 1, seed or 0)
        messages = self.environment.messages(self.environment.reset(problem))
        self.heard, self.total, self.info = "\n\n".join(m["content"] for m in messages), 0.0, dict[str, Any]()

    def get_observation(self) -> tuple[int, str]:
        return 0, self.heard

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        result = self.environment.step(*self.environment.parse_action(action))
        self.heard, self.total, self.info = result.observation, self.total + result.reward, result.info
        return result.done, self.info

    def close(self) -> tuple[dict[int, float], dict[int, dict[str, Any]]]:
        return {0: self.total}, {0: self.info}
