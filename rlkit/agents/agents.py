"""Agents that are no language models, and the loop that plays episodes with any agent."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlkit.environments.base import ActionResult, BaseEnvironment, Params, Problem
from rlkit.environments.trajectory import Trajectory, Transition
from rlkit.seeds import content_hash, derive

Action = tuple[str, Params]
_SLOW = ThreadPoolExecutor(1, "environment")  # one thread: a sandbox serves one caller at a time


@dataclass(frozen=True)
class State:
    """What an agent decides on: the chat so far, whose last message is the current observation.

    Scripted agents may look at the `environment` itself; a learning agent reads the messages only. `memory` is the
    agent's own, from turn to turn of one episode.
    """

    messages: tuple[dict[str, str], ...]
    environment: BaseEnvironment
    seed: int
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def observation(self) -> str:
        return self.messages[-1]["content"]


class OutOfRoom(Exception):
    """Raised by an agent that cannot take another turn; its episode ends there, truncated."""


class BaseAgent(ABC):
    """Chooses actions. Subclasses give `select_action`, or `choose` where deciding means waiting."""

    @abstractmethod
    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        """The next action and its parameters."""

    async def choose(self, state: State, valid_actions: list[str]) -> tuple[Action, str, float | None]:
        """The action, its text, and the agent's probability of that text where it has one."""
        action, params = self.select_action(state, valid_actions)
        return (action, params), state.environment.format_action(action, params), None

    async def run_episode(
        self,
        env: BaseEnvironment,
        problem: str | Problem,
        *,
        seed: int = 0,
        on_step: Callable[[Transition], Any] | None = None,
    ) -> Trajectory:
        """Play one episode on a copy of `env`, so that any number can run at once."""
        env = env.model_copy()
        problem = env.read(problem) if isinstance(problem, str) else problem
        observation = env.reset(problem)
        messages = env.messages(observation)
        trajectory = Trajectory(env.kind_name, problem, messages, options=env.model_dump(mode="json"))
        result, memory = ActionResult(observation, 0.0, False), {}
        while not result.done:
            draw = derive("agent", seed, content_hash(dict(problem)), len(trajectory))
            state = State(messages, env, draw, memory)
            try:
                chosen = await self.choose(state, env.offered_actions())
            except OutOfRoom:
                result = replace(result, info={"success": False, "truncated": True})
                break
            (action, params), text, trajectory.confidence = chosen
            before = result.observation
            result = await _step(env, action, params)
            step = Transition(
                before, action, dict(params), text, result.reward, result.observation, result.info["valid"]
            )
            trajectory.transitions.append(step)
            messages = (
                *messages,
                {"role": "assistant", "content": text},
                {"role": "user", "content": result.observation},
            )
            if on_step:
                on_step(step)
            await asyncio.sleep(0)  # let the other episodes have their turn
        trajectory.success, trajectory.truncated = result.info["success"], result.info["truncated"]
        trajectory.solution = env.solution()
        return trajectory


async def _step(env: BaseEnvironment, action: str, params: Params) -> ActionResult:
    if not env.slow:
        return env.step(action, params)
    return await asyncio.get_running_loop().run_in_executor(_SLOW, env.step, action, params)


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

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        rng = np.random.default_rng(derive("noise", state.seed))
        agent = self._random if rng.random() < self.epsilon else self.agent
        return agent.select_action(state, valid_actions)


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

    return await asyncio.gather(*(one(i, p) for i, p in enumerate(problems)))


def run_episodes(
    agent: BaseAgent, env: BaseEnvironment, problems: Iterable[str | Mapping], **options: Any
) -> list[Trajectory]:
    """`play`, for callers without an event loop; in a notebook (which has one) it runs in a thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(play(agent, env, problems, **options))).result()
