"""Environments of Gymnasium, TextArena and verifiers here, and environments here as theirs.

TextArena: arXiv 2504.11442, `pip install textarena`. verifiers: its MultiTurnEnv, `pip install "verifiers<0.4"`.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import threading
from collections.abc import Coroutine, Iterator
from functools import cache
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Discrete, Text
from pydantic import Field, PrivateAttr

from rlkit.environments.base import ActionResult, BaseEnvironment, Params, Problem, environments
from rlkit.environments.episode import Episode
from rlkit.errors import UserError
from rlkit.types import Message


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
    _names: tuple[str, ...] = PrivateAttr(())
    _return: float = PrivateAttr(0.0)

    def model_post_init(self, context: Any) -> None:
        with contextlib.closing(self._make()) as env:
            space = env.action_space
        if not isinstance(space, Discrete):
            raise ValueError(f"{self.id} has {type(space).__name__} actions: only Discrete can be named")
        self._names = self.names or tuple(f"action_{i}" for i in range(int(space.n)))
        if (count := len(set(self._names))) != space.n:
            raise ValueError(f"environment.names has {count} entries, but {self.id} has {space.n} actions")

    def _make(self) -> gymnasium.Env:
        try:
            entry = gymnasium.spec(self.id).entry_point
            creator = load_env_creator(entry) if isinstance(entry, str) else entry
            shows = "ansi" in getattr(creator, "metadata", {}).get("render_modes", [])
            mode: dict[str, Any] = {"render_mode": "ansi"} if shows else {}
            return gymnasium.make(self.id, **mode | self.options)
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


class GymnasiumEnv(gymnasium.Env):
    """An environment under Gymnasium's interface: actions and observations are texts, and the seed chooses the problem,
    or else `reset(options={"problem": …})`."""

    action_space = observation_space = Text(4096, min_length=0, charset=frozenset(map(chr, range(0x2500))))

    def __init__(self, environment: BaseEnvironment) -> None:
        self.environment = environment.fresh()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict]:
        super().reset(seed=seed)
        drawn = self.environment.problems("train", 1, int(self.np_random.integers(2**31)))[0]
        return self.environment.reset((options or {}).get("problem", drawn)), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict]:
        result = self.environment.step(*self.environment.parse_action(action))
        truncated = bool(result.info["truncated"])
        return result.observation, result.reward, result.done and not truncated, truncated, result.info


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

    @contextlib.contextmanager
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


@environments.register("verifiers")
class FromVerifiers(WholeAnswers):
    """An environment of verifiers that needs no tool calls. A whole answer of the model is its action. A problem is a
    row of its training data. The rubric's reward comes with the last step."""

    actions: ClassVar[dict[str, str]] = {"answer": "its value is the answer as the task asks for it"}
    multiline: ClassVar[bool] = True
    slow: ClassVar[bool] = True

    kind: Literal["verifiers"] = "verifiers"
    id: str
    """The name under which verifiers.load_environment finds it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its load_environment."""
    success_reward: float = 1.0
    """Reward from which an episode is a success; what is less is partial credit."""

    _chat: list[Any] = PrivateAttr(default_factory=list)  # verifiers' messages before the next answer

    def model_post_init(self, context: Any) -> None:
        try:
            _load(self.id, json.dumps(self.options))
        except Exception as error:  # whatever the package of the environment raises
            raise UserError(f"environment.id is {self.id!r}, which does not load here: {error}") from None

    def messages(self, observation: str) -> tuple[Message, ...]:
        return tuple({"role": m.role, "content": str(m.content)} for m in self._chat)

    def problem(self, rng) -> Problem:
        return {"row": int(rng.integers(len(_load(self.id, json.dumps(self.options)).get_dataset())))}

    def begin(self, problem: Problem) -> str:
        from verifiers.types import ClientConfig

        env, row = _load(self.id, json.dumps(self.options)), int(problem["row"])
        state = _await(env.init_state(dict(env.get_dataset()[row]), ClientConfig(), "rlkit"))
        if state["tool_defs"]:
            raise UserError(f"environment.id is {self.id!r}, which needs tool calls: use one of texts alone.")
        for name in ("client", "usage", "usage_tracker"):  # no model is asked; what is left can be copied
            state.pop(name, None)
        self._chat, self._state = [], _await(env.setup_state(state)) or state
        return self._heard(env).observation

    def act(self, action: str, params: Params) -> ActionResult:
        from verifiers.types import Response, ResponseMessage

        env, text = _load(self.id, json.dumps(self.options)), str(params.get("value", ""))
        said = ResponseMessage(content=text, finish_reason="stop", is_truncated=False)
        response = Response(id="", created=0, model="rlkit", message=said)
        _await(env.add_model_response(self._state, self._chat, response))
        return self._heard(env)

    def _heard(self, env: Any) -> ActionResult:
        """What was said since the last answer; at the end with the reward."""
        state, known = self._state, len(self._chat) and len(self._chat) + 1
        if not (ended := _await(env.is_completed(state))):
            self._chat = _await(env.get_prompt_messages(state))
            ended = _await(env.is_completed(state))
        told = "\n\n".join(str(dict(m)["content"]) for m in state["final_env_response"] or self._chat[known:])
        if not ended:
            return ActionResult(told, 0.0, False)
        _await(env.cleanup(state))
        _await(env.rubric.score_rollout(state))
        info = {"success": state["reward"] >= self.success_reward, "truncated": bool(state["is_truncated"])}
        return ActionResult(told, float(state["reward"]), True, info)


@cache
def _load(id: str, options: str) -> Any:
    import verifiers

    return verifiers.load_environment(id, **json.loads(options))


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _await(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, _loop(os.getpid())).result()


def verifiers_environment(environment: BaseEnvironment, problems: int = 1000, seed: int = 0) -> Any:
    """An environment as verifiers' MultiTurnEnv, on some problems of its train split: `total` is the return."""
    import verifiers
    from datasets import Dataset

    class World(verifiers.MultiTurnEnv):
        async def setup_state(self, state: Any) -> Any:
            state["episode"] = Episode.begin(environment, json.loads(state["answer"]))
            return state

        async def env_response(self, messages: Any, state: Any, **_: Any) -> list[Message]:
            episode = state["episode"]
            await asyncio.to_thread(episode.say, str(messages[-1].content))
            if episode.error is not None:
                raise verifiers.Error(episode.error)
            answer: list[Message] = [{"role": "user", "content": episode.observation}]
            state["final_env_response"] = answer if episode.finish else None
            return answer

    def total(state: Any) -> float:
        return float(state["episode"].reward().value)

    def success(state: Any) -> float:
        return float(state["episode"].success)

    drawn = environment.problems("train", problems, seed)
    asked = [list(Episode.begin(environment, problem).messages) for problem in drawn]
    rows = [{"prompt": chat, "answer": json.dumps(p)} for chat, p in zip(asked, drawn, strict=True)]
    rubric = verifiers.Rubric(funcs=[total, success], weights=[1.0, 0.0])
    return World(dataset=Dataset.from_list(rows), rubric=rubric)
