"""A language model as an agent, and the queue that joins the turns of many episodes into one sampler call."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from rlkit.agents.agents import Action, BaseAgent, OutOfRoom, State
from rlkit.environments.chat import ChatTokens
from rlkit.errors import UserError
from rlkit.seeds import derive
from rlkit.types import Sample, Sampler

WINDOW = 0.001  # seconds in which those whose last turn has just been sampled ask again


class Batcher:
    """Collects what coroutines want sampled while the sampler is busy, and samples it in one call.

    The sampler runs in a thread of its own, so the event loop stays free. With a temperature, what a request
    gets depends on who shares its call; greedy decoding does not.

    Args:
        sampler: any Sampler.
        max_tokens: of one request.
        temperature: 0 is greedy.
        max_batch: requests a call.
        on_batch: told the size of every call.
    """

    def __init__(
        self,
        sampler: Sampler,
        max_tokens: int,
        *,
        temperature: float = 0.0,
        max_batch: int = 256,
        seed: int = 0,
        on_batch: Callable[[int], Any] = lambda size: None,
    ) -> None:
        self.sampler, self.max_batch, self.seed = sampler.session(max_batch), max_batch, seed
        self.max_tokens, self.temperature, self.on_batch = max_tokens, temperature, on_batch
        self._waiting: list[tuple[np.ndarray, asyncio.Future[Sample]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "sampler")
        self._calls = 0

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
            waiting = [(ids, future) for ids, future in self._waiting if not future.done()]
            batch, self._waiting = waiting[: self.max_batch], waiting[self.max_batch :]
            if not batch:
                continue
            self.on_batch(len(batch))
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
        self._calls += 1
        seed = derive(self.seed, "batch", self._calls)
        groups = self.sampler.sample(
            prompts, 1, seed=seed, max_tokens=self.max_tokens, temperature=self.temperature
        )
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

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        return asyncio.run(self.choose(state, valid_actions))[0]

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
