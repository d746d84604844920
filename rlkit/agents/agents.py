"""Agents that are no language models, and the loop that plays episodes with any agent."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from rlkit.environments.base import BaseEnvironment, Params, Problem
from rlkit.environments.episode import Episode
from rlkit.environments.trajectory import Trajectory, Transition
from rlkit.seeds import content_hash, derive

Action = tuple[str, str | Params | None]  # its name, and its value or parameters


@dataclass(frozen=True)
class State(Mapping):
    """What an agent decides on; a mapping of its attributes, too: `state["observation"]`.

    Attributes:
        observation: what the environment said last.
        messages: the chat so far, whose last message is the observation.
        problem: the episode's.
        environment: for scripted agents; a learning agent reads the messages only.
        seed: of this turn.
        memory: the agent's own, from turn to turn of one episode.
    """

    observation: str
    messages: tuple[dict[str, str], ...]
    problem: Problem
    environment: BaseEnvironment
    seed: int
    memory: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))


class OutOfRoom(Exception):
    """Raised by an agent that cannot take another turn; its episode ends there, truncated."""


class BaseAgent(ABC):
    """Chooses actions. Subclasses give `select_action`, or `choose` where deciding means waiting."""

    @abstractmethod
    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        """The next action, and its value or parameters."""

    async def choose(self, state: State, valid_actions: list[str]) -> tuple[Action, str | None, float | None]:
        """The action, and of a language model its text and the probability of that text."""
        return self.select_action(state, valid_actions), None, None

    async def run_episode(
        self,
        env: BaseEnvironment,
        problem: str | Problem,
        *,
        seed: int = 0,
        on_step: Callable[[Transition], Any] | None = None,
    ) -> Trajectory:
        """Play one episode on a copy of `env`, so that any number can run at once. Raises UserError for a problem
        that makes no sense, BrokenEnvironment where the environment fails."""
        episode, memory = Episode.begin(env, problem), {}
        messages, identity = episode.messages, content_hash(dict(episode.problem))
        while episode.finish is None:
            draw = derive("agent", seed, identity, len(episode.transitions))
            state = State(episode.observation, messages, episode.problem, episode.environment, draw, memory)
            try:
                chosen = await self.choose(state, episode.environment.offered_actions())
            except OutOfRoom:
                episode.finish = "length"
                break
            (action, params), text, episode.confidence = chosen
            if env.slow:
                await asyncio.to_thread(episode.act, action, params, text)
            else:
                episode.act(action, params, text)
            if episode.finish != "error":
                step = episode.transitions[-1]
                said = {"role": "assistant", "content": step.text}
                messages = (*messages, said, {"role": "user", "content": step.next_state})
                if on_step:
                    on_step(step)
            await asyncio.sleep(0)  # let the other episodes have their turn
        return episode.trajectory()


class ExpertAgent(BaseAgent):
    """Does what the environment's scripted expert does."""

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        return state.environment.expert()


class RandomAgent(BaseAgent):
    """Draws a valid action evenly, and random parameters for it."""

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        rng = np.random.default_rng(derive("random agent", state.seed))
        action = str(rng.choice(valid_actions))
        return action, state.environment.sample_params(action, rng)


class NoisyAgent(BaseAgent):
    """Follows `agent`, but with probability `epsilon` acts at random."""

    def __init__(self, agent: BaseAgent, epsilon: float) -> None:
        self.agent, self.epsilon, self._random = agent, epsilon, RandomAgent()

    def _drawn(self, state: State) -> BaseAgent:
        rng = np.random.default_rng(derive("noise", state.seed))
        return self._random if rng.random() < self.epsilon else self.agent

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        return self._drawn(state).select_action(state, valid_actions)

    async def choose(self, state: State, valid_actions: list[str]) -> tuple[Action, str | None, float | None]:
        return await self._drawn(state).choose(state, valid_actions)


async def play(
    agent: BaseAgent,
    env: BaseEnvironment,
    problems: Iterable[str | Problem],
    *,
    seed: int = 0,
    concurrency: int = 1000,
) -> list[Trajectory]:
    """One episode a problem, `concurrency` at a time; results in the order of the problems."""
    gate = asyncio.Semaphore(concurrency)

    async def one(index: int, problem: str | Problem) -> Trajectory:
        async with gate:
            return await agent.run_episode(env, problem, seed=derive("episode", seed, index))

    return await asyncio.gather(*(one(i, p) for i, p in enumerate(each(problems))))


def each(problems: str | Problem | Iterable[str | Problem]) -> list[str | Problem]:
    """Problems as a list, also where there is one alone."""
    alone = isinstance(problems, str | Mapping)
    return [cast(str | Problem, problems)] if alone else list(cast(Iterable[str | Problem], problems))


def run_episodes(
    agent: BaseAgent, env: BaseEnvironment, problems: Iterable[str | Problem], **options: Any
) -> list[Trajectory]:
    """`play`, for callers without an event loop; in a notebook (which has one) it runs in a thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(play(agent, env, problems, **options))).result()
