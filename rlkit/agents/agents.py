"""Who acts: scripted agents, and the loop that plays their episodes."""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rlkit.environments.action_parsing import Params, as_action
from rlkit.environments.base import BaseEnvironment, Problem
from rlkit.environments.episode import Episode, Trajectory
from rlkit.errors import UserError
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
    """

    observation: str
    messages: tuple[dict[str, str], ...]
    problem: Problem
    environment: BaseEnvironment
    seed: int

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))


class BaseAgent:
    """Chooses actions. Subclasses give `select_action`, which may be async where deciding means waiting."""

    def select_action(self, state: State, valid_actions: list[str]) -> Action | Awaitable[Action]:
        """The next action, and its value or parameters."""
        raise UserError(f"{type(self).__name__} does nothing yet: write select_action(state, valid_actions).")

    async def run_episode(self, env: BaseEnvironment | str, problem: str | Problem, *, seed: int = 0) -> Trajectory:
        """Play one episode on a copy of `env`, or of the environment of that name, so that any number can run at once.
        Raises UserError for a problem that makes no sense, BrokenEnvironment where the environment fails."""
        episode = Episode.begin(env, problem)
        messages, identity = episode.messages, content_hash(dict(episode.problem))
        while episode.finish is None:
            draw = derive("agent", seed, identity, len(episode.transitions))
            state = State(episode.observation, messages, episode.problem, episode.environment, draw)
            chosen = self.select_action(state, episode.environment.offered_actions())
            chosen = await chosen if inspect.isawaitable(chosen) else chosen
            action, params = as_action(chosen, f"select_action of {type(self).__name__}")
            if episode.environment.slow:
                await asyncio.to_thread(episode.act, action, params)
            else:
                episode.act(action, params)
            if episode.finish != "error":
                step = episode.transitions[-1]
                said = {"role": "assistant", "content": step.text}
                messages = (*messages, said, {"role": "user", "content": step.next_state})
            await asyncio.sleep(0)  # let the other episodes have their turn
        return episode.trajectory()


class ExpertAgent(BaseAgent):
    """Does what the environment's scripted expert does."""

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        return state.environment.call("expert")


class RandomAgent(BaseAgent):
    """Draws a valid action evenly, and random parameters for it."""

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        rng = np.random.default_rng(derive("random agent", state.seed))
        action = str(rng.choice(valid_actions))
        return action, state.environment.call("sample_params", action, rng)


class NoisyAgent(BaseAgent):
    """Follows `agent`, but with probability `epsilon` acts at random."""

    def __init__(self, agent: BaseAgent, epsilon: float) -> None:
        if not isinstance(epsilon, int | float) or not 0 <= epsilon <= 1:
            raise UserError(f"epsilon is {epsilon!r}: give a probability, from 0 to 1.")
        self.agent, self.epsilon = agent, epsilon

    def select_action(self, state: State, valid_actions: list[str]) -> Action | Awaitable[Action]:
        rng = np.random.default_rng(derive("noise", state.seed))
        agent = RandomAgent() if rng.random() < self.epsilon else self.agent
        return agent.select_action(state, valid_actions)


def each(problems: str | Problem | Iterable[str | Problem]) -> list[str | Problem]:
    """Problems as a list, also where there is one alone."""
    if isinstance(problems, str | Mapping):
        return [cast(str | Problem, problems)]
    if not isinstance(problems, Iterable):
        raise UserError(f"The problems are {problems!r}: give a list of texts or mappings.")
    return list(problems)


def run_episodes(
    agent: BaseAgent, env: BaseEnvironment | str, problems: Iterable[str | Problem], *, seed: int = 0
) -> list[Trajectory]:
    """One episode a problem, all side by side; results in the order of the problems. In a thread, so that a notebook,
    which has an event loop, may call it; `agent.run_episode` is for callers that await. Raises UserError."""
    if not isinstance(agent, BaseAgent):
        raise UserError(f"The agent is {agent!r}: give an instance of BaseAgent first, then the environment.")

    async def all_of_them() -> list[Trajectory]:
        listed = enumerate(each(problems))
        runs = [agent.run_episode(env, p, seed=derive("episode", seed, i)) for i, p in listed]
        return await asyncio.gather(*runs)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, all_of_them()).result()
