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

WINDOW = 0.001  # seconds without a newcomer, after which a call begins


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
        self.sampler = sampler.session(max_batch)
        self.max_tokens, self.temperature = max_tokens, temperature
        self.max_batch, self.seed, self.on_batch = max_batch, seed, on_batch
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
            await self._join()
            self._waiting = [(ids, future) for ids, future in self._waiting if not future.done()]
            batch, self._waiting = self._waiting[: self.max_batch], self._waiting[self.max_batch :]
            if not batch:
                continue
            self.on_batch(len(batch))
            try:
                outcomes: Any = await self.between(self._call, [ids for ids, _ in batch])
            except Exception as error:
                outcomes = [error] * len(batch)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():
                    failed = isinstance(outcome, Exception)
                    future.set_exception(outcome) if failed else future.set_result(outcome)

    async def _join(self) -> None:
        """Wait as long as more keep coming: those whose last turn has just been sampled are about to ask again."""
        before = -1
        while before < len(self._waiting) < self.max_batch:
            before = len(self._waiting)
            await asyncio.sleep(WINDOW)

    def _call(self, prompts: list[np.ndarray]) -> list[Sample]:
        self._calls += 1
        groups = self.sampler.sample(
            prompts,
            1,
            seed=derive(self.seed, "batch", self._calls),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
        )
        return [group[0] for group in groups]

    async def between(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)` in the sampler's thread, so between its calls and beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """End the sampler's thread once its call is over."""
        self._thread.shutdown(wait=False)


class LanguageModelAgent(BaseAgent):
    """A policy that acts. Its answer is parsed for the first known action, and its sampled ids stay in the chat as
    they are, as in training.

    Args:
        policy: has `tokenizer`, `stop_ids` (and `model`, for `constrained`).
        batcher: shared by all episodes that should be sampled together.
        constrained: take the valid action whose name the model finds most probable, and let it write only the
            value; otherwise the model may name an invalid action and pays for it.
        context: most tokens of an episode, which ends (truncated) where no other turn fits.
    """

    def __init__(
        self, policy: Any, batcher: Batcher, *, constrained: bool = False, context: int = 4096
    ) -> None:
        self.policy, self.batcher, self.constrained, self.context = policy, batcher, constrained, context
        self.chat = ChatTokens(policy)

    def select_action(self, state: State, valid_actions: list[str]) -> Action:
        return asyncio.run(self.choose(state, valid_actions))[0]

    async def choose(self, state: State, valid_actions: list[str]) -> tuple[Action, str, float | None]:
        ids = self._context(state)
        if len(ids) + self.batcher.max_tokens > self.context:
            if "ids" in state.memory:
                raise OutOfRoom
            raise UserError(f"The problem needs more than {self.context} tokens: shorten it.")
        name = ""
        if self.constrained:
            name = await self.batcher.between(self.most_probable, ids, valid_actions)
            ids = np.concatenate([ids, self._encode(name)])
        sample = await self.batcher.sample(ids)
        said, text = sample.ids, name + self.chat.decode(sample.ids)
        action, params = state.environment.parse_action(text)
        if name and action != name:  # the model went on writing the name into another one
            action, params, text, said = name, {}, name, sample.ids[:0]
        state.memory["ids"] = np.concatenate([ids, said])
        return (action, params), text, float(np.exp(sample.logprobs.sum()))

    def _context(self, state: State) -> np.ndarray:
        """The chat's ids: those of the turn before, followed by what was observed since."""
        if "ids" not in state.memory:
            return self.chat.prompt(state.messages)
        before = state.memory["ids"]
        return np.concatenate([before, self.chat.follow(state.observation, int(before[-1]))])

    def _encode(self, name: str) -> np.ndarray:
        return np.asarray(self.chat.tokenizer.encode(name, add_special_tokens=False), np.int64)

    def most_probable(self, ids: np.ndarray, names: list[str]) -> str:
        """The name that the model is most likely to begin its turn with, by one forward pass over all.

        A name that begins longer ones (action_1, action_10) counts only as far as none of them follows.
        """
        import torch

        from rlkit.models.decoder import Decoder
        from rlkit.training.forward import Rows, text_batch, token_logprobs

        device = self.policy.model.device
        tokens = [self._encode(name) for name in names]
        batch = text_batch([ids] * len(names), tokens, self.policy.pad_id, device)
        rows = Rows.of(batch, torch.arange(len(names), device=device))
        with torch.no_grad():
            logprobs, _ = token_logprobs(Decoder(self.policy.model), rows)
        chances, alone = logprobs.double().sum(-1).exp().tolist(), {}
        for i in sorted(range(len(names)), key=lambda i: -len(tokens[i])):
            begun = [alone[j] for j in alone if tokens[j][: len(tokens[i])].tolist() == tokens[i].tolist()]
            alone[i] = chances[i] - sum(begun)
        return names[max(alone, key=lambda i: alone[i])]
