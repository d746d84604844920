"""Who acts: scripted agents, language models whose turns are sampled together, and the loop that plays episodes."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from rlkit.environments.actions import Params, as_action
from rlkit.environments.base import BaseEnvironment, Problem
from rlkit.environments.episode import Episode
from rlkit.environments.rollout import ChatTokens
from rlkit.environments.trajectory import Trajectory
from rlkit.errors import UserError
from rlkit.seeds import content_hash, derive
from rlkit.types import Sample, Sampler

WINDOW = 0.001  # seconds in which those whose last turn has just been sampled ask again
REMEMBERED = 64  # prompts whose keys and values stay for their next turn: of Qwen2.5-0.5B 12 KB a token
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


class BaseAgent:
    """Chooses actions. Subclasses give `select_action`, or `choose` where deciding means waiting."""

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        """The next action, and its value or parameters."""
        raise UserError(f"{type(self).__name__} does nothing yet: write select_action(state, valid_actions).")

    async def choose(self, state: State, valid_actions: list[str]) -> tuple[Action, str | None, float | None]:
        """The action, and of a language model its text and the probability of that text."""
        return self.select_action(state, valid_actions), None, None

    async def run_episode(
        self, env: BaseEnvironment | str, problem: str | Problem, *, seed: int = 0
    ) -> Trajectory:
        """Play one episode on a copy of `env`, or of the environment of that name, so that any number can run at once.
        Raises UserError for a problem that makes no sense, BrokenEnvironment where the environment fails."""
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
            act, text, episode.confidence = chosen
            action, params = as_action(act, f"select_action of {type(self).__name__}")
            if episode.environment.slow:
                await asyncio.to_thread(episode.act, action, params, text)
            else:
                episode.act(action, params, text)
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

    async def choose(self, state: State, valid_actions: list[str]) -> tuple[Action, str | None, float | None]:
        rng = np.random.default_rng(derive("noise", state.seed))
        agent = RandomAgent() if rng.random() < self.epsilon else self.agent
        return await agent.choose(state, valid_actions)


class Batcher:
    """Collects what coroutines want sampled while the sampler is busy, and samples it in one call, `max_tokens` a
    request. Decoding is greedy: what a request gets does not depend on who shares its call."""

    def __init__(self, sampler: Sampler, max_tokens: int) -> None:
        self.sampler, self.max_tokens = sampler.session(REMEMBERED), max_tokens
        self._waiting: list[tuple[np.ndarray, asyncio.Future[Sample]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "sampler")

    async def sample(self, ids: np.ndarray) -> Sample:
        """One sample after the prompt `ids` (S,). A caller that is cancelled leaves the queue."""
        future: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            await asyncio.sleep(WINDOW)
            batch, self._waiting = [pair for pair in self._waiting if not pair[1].done()], []
            if not batch:
                continue
            prompts, loop = [ids for ids, _ in batch], asyncio.get_running_loop()
            try:
                outcomes: Any = await loop.run_in_executor(self._thread, self._call, prompts)
            except Exception as error:
                outcomes = [error] * len(batch)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():
                    failed = isinstance(outcome, Exception)
                    future.set_exception(outcome) if failed else future.set_result(outcome)

    def _call(self, prompts: list[np.ndarray]) -> list[Sample]:
        groups = self.sampler.sample(prompts, 1, seed=0, max_tokens=self.max_tokens, temperature=0.0)
        return [group[0] for group in groups]


class LanguageModelAgent(BaseAgent):
    """A policy that acts. Its answer is parsed for the first known action, and its sampled ids stay in the chat as
    they are, as in training.

    Args:
        policy: has `tokenizer` and `stop_ids`.
        batcher: shared by all episodes that should be sampled together.
        context: most tokens of an episode, which ends (truncated) where no other turn fits.
    """

    def __init__(self, policy: Any, batcher: Batcher, *, context: int = 4096) -> None:
        self.batcher, self.context, self.chat = batcher, context, ChatTokens(policy)

    async def choose(self, state: State, valid_actions: list[str]) -> tuple[Action, str, float | None]:
        if (before := state.memory.get("ids")) is None:
            ids = self.chat.prompt(state.messages)
        else:
            ids = np.concatenate([before, self.chat.follow(state.observation, int(before[-1]))])
        if len(ids) + self.batcher.max_tokens > self.context:
            if before is not None:
                raise OutOfRoom
            raise UserError(f"The problem needs more than {self.context} tokens: shorten it.")
        sample = await self.batcher.sample(ids)
        state.memory["ids"] = np.concatenate([ids, sample.ids])
        text = self.chat.decode(sample.ids)
        return state.environment.parse_action(text), text, float(np.exp(sample.logprobs.sum()))


async def play(
    agent: BaseAgent, env: BaseEnvironment | str, problems: Iterable[str | Problem], *, seed: int = 0
) -> list[Trajectory]:
    """One episode a problem, all side by side; results in the order of the problems. Raises UserError."""
    if not isinstance(agent, BaseAgent):
        raise UserError(f"The agent is {agent!r}: give an instance of BaseAgent first, then the environment.")
    listed = enumerate(each(problems))
    runs = [agent.run_episode(env, p, seed=derive("episode", seed, i)) for i, p in listed]
    return await asyncio.gather(*runs)


def each(problems: str | Problem | Iterable[str | Problem]) -> list[str | Problem]:
    """Problems as a list, also where there is one alone."""
    alone = isinstance(problems, str | Mapping)
    if not alone and not isinstance(problems, Iterable):
        raise UserError(f"The problems are {problems!r}: give a list of texts or mappings.")
    return [cast(str | Problem, problems)] if alone else list(cast(Iterable[str | Problem], problems))


def run_episodes(
    agent: BaseAgent, env: BaseEnvironment | str, problems: Iterable[str | Problem], **options: Any
) -> list[Trajectory]:
    """`play`, for callers without an event loop; in a notebook (which has one) it runs in a thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(play(agent, env, problems, **options))).result()
