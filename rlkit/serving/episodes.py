"""Episodes of a policy on request, their turns sampled together: limits and metrics."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import Field, PositiveFloat, PositiveInt

from rlkit.config import Section
from rlkit.environments.base import BaseEnvironment, Problem, environments
from rlkit.environments.episode import Episode, Trajectory
from rlkit.environments.rollout import ChatTokens, Limits, SampledEpisode
from rlkit.errors import UserError
from rlkit.types import Sample, Sampler

WINDOW = 0.001  # seconds in which those whose last turn has just been sampled ask again
TURN, LONG_TURN = 64, 512  # tokens of a turn of policies that do not say
START = 8  # episodes at a time until it is known how long they take
STOPPING = "The server is stopping."
Played = tuple[Trajectory, float]  # an episode and its seconds


class Settings(Section):
    """Limits of a server."""

    max_concurrent: PositiveInt = 256
    """Episodes that run or wait (429 with Retry-After beyond)."""
    timeout: Annotated[PositiveFloat, Field(allow_inf_nan=False)] = 60.0
    """Seconds of one episode (beyond, 429 beside other episodes and 504 alone)."""
    grace: Annotated[PositiveFloat, Field(allow_inf_nan=False)] = 30.0
    """Seconds that running episodes have when the server is told to stop (503 beyond)."""
    max_turn_length: PositiveInt | None = None
    """Tokens of one turn. None: as in training; if that is unknown, 512 where values have several lines, or 64."""
    context: PositiveInt = 4096
    """Most tokens of an episode; a model's own limit may be smaller."""


class UnknownDomain(UserError):
    """There is no environment of that name."""


class Busy(Exception):
    """Too many episodes run to begin or to end another one in time."""


class TooSlow(Exception):
    """An episode that ran alone took too long."""


class Stopping(Exception):
    """The server is told to stop."""


class Metrics:
    """Prometheus metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        on: Any = {"registry": self.registry}
        self.requests = Counter("rlkit_requests", "Requests by path and status.", ["path", "status"], **on)
        self.episodes = Counter("rlkit_episodes", "Episodes played.", ["domain", "success"], **on)
        self.actions = Counter("rlkit_actions", "Actions taken.", ["domain", "valid"], **on)
        self.feedback = Counter("rlkit_feedback", "Verdicts of users.", ["domain", "satisfied"], **on)
        self.seconds = Histogram("rlkit_episode_seconds", "Seconds of an episode.", **on)
        self.active = Gauge("rlkit_active_episodes", "Episodes that run now.", **on)

    def count(self, domain: str, trajectory: Trajectory, seconds: float) -> None:
        """A finished episode."""
        self.episodes.labels(domain, str(trajectory.success).lower()).inc()
        for step in trajectory.transitions:
            self.actions.labels(domain, str(step.valid).lower()).inc()
        self.seconds.observe(seconds)


class Batcher:
    """Collects what episodes want sampled while the sampler is busy, and samples it in one call. Decoding is greedy:
    what an episode gets does not depend on which others share its call."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._waiting: list[tuple[np.ndarray, int, asyncio.Future[Sample]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "sampler")

    async def sample(self, ids: np.ndarray, most: int) -> Sample:
        """A turn after the ids so far (S,), of `most` tokens, or of more where others in the call may have more. A
        caller that is cancelled leaves the queue."""
        future: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, most, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            await asyncio.sleep(WINDOW)
            batch, self._waiting = [asked for asked in self._waiting if not asked[2].done()], []
            if not batch:
                continue
            prompts, limits, futures = zip(*batch, strict=True)
            call = partial(self._call, prompts, max(limits))
            try:
                outcomes: Any = await asyncio.get_running_loop().run_in_executor(self._thread, call)
            except Exception as error:
                outcomes = [error] * len(batch)
            for future, outcome in zip(futures, outcomes, strict=True):
                if not future.done():
                    failed = isinstance(outcome, Exception)
                    future.set_exception(outcome) if failed else future.set_result(outcome)

    def _call(self, prompts: Sequence[np.ndarray], most: int) -> list[Sample]:
        groups = self.sampler.sample(prompts, 1, seed=0, max_tokens=most, temperature=0.0)
        return [group[0] for group in groups]


class Solver:
    """Plays episodes.

    As many run at a time as were seen to take half of `timeout`; others wait, a quarter of it at most (429 beyond, and
    where an episode beside others outlasts `timeout`). A client that leaves ends its own waiting; the episode goes on.
    """

    def __init__(self, policy: Any, sampler: Sampler, domains: dict[str, BaseEnvironment], settings: Settings) -> None:
        self.domains, self.settings, self.metrics = domains, settings, Metrics()
        self.chat, self.batcher = ChatTokens(policy), Batcher(sampler)
        usual = LONG_TURN if any(e.multiline for e in domains.values()) else TURN
        self.turn = settings.max_turn_length or usual
        self.context = min(settings.context, policy.base.config.max_position_embeddings)
        self.stopping, self._asked = False, 0  # episodes that were asked for
        self._running: set[asyncio.Task[Played]] = set()
        self._playing, self._limit, self._line = 0, float(START), asyncio.Condition()
        self.metrics.active.set_function(lambda: len(self._running))

    def environment(self, domain: str) -> BaseEnvironment:
        """The environment of a domain. Raises UnknownDomain."""
        if domain not in self.domains:
            if domain not in environments:
                known = ", ".join(sorted({*self.domains, *environments.names()}))
                raise UnknownDomain(f"Unknown domain {domain!r}. Known: {known}.")
            self.domains[domain] = environments.parse(domain)
        return self.domains[domain]

    async def solve(self, domain: str, problem: str | Problem) -> Played:
        """The episode and its seconds. Raises UserError for what cannot be played, BrokenEnvironment, Busy, TooSlow and
        Stopping."""
        self._asked += 1
        if self.stopping:
            raise Stopping(STOPPING)
        if len(self._running) >= self.settings.max_concurrent:
            raise self._busy()
        task = asyncio.create_task(self._play(domain, problem))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    def stop(self) -> None:
        """End what still runs: whoever waits for it is told so (503)."""
        self.stopping = True
        for task in self._running:
            task.cancel()

    def _busy(self) -> Busy:
        return Busy(f"{self._playing} episodes are running; try again soon.")

    async def _play(self, domain: str, problem: str | Problem) -> Played:
        try:
            await self._wait()
            began, beside, limit, asked = time.perf_counter(), self._playing, self._limit, self._asked
            try:
                async with asyncio.timeout(self.settings.timeout):
                    trajectory = await self._episode(self.environment(domain), problem)
                self._learn(time.perf_counter() - began, beside, limit)
            except TimeoutError:
                self._learn(self.settings.timeout, beside, limit)
                if beside > 1 or len(self._running) > 1 or self._asked > asked:  # alone it might have ended
                    raise self._busy() from None
                raise TooSlow(f"The episode took longer than {self.settings.timeout:g} s.") from None
            finally:
                self._playing -= 1
                async with self._line:
                    self._line.notify_all()
        except asyncio.CancelledError:
            raise Stopping(STOPPING) from None
        seconds = time.perf_counter() - began
        self.metrics.count(domain, trajectory, seconds)
        return trajectory, seconds

    async def _episode(self, environment: BaseEnvironment, problem: str | Problem) -> Trajectory:
        episode = Episode.begin(environment, problem)
        ids = self.chat.prompt(episode.messages)
        if len(ids) + self.turn > self.context:
            raise UserError(f"The problem needs more than {self.context} tokens: shorten it.")
        limits = Limits(self.context - len(ids), self.turn)
        await SampledEpisode(episode, ids).play(self.batcher.sample, self.chat, limits)
        return episode.trajectory()

    async def _wait(self) -> None:
        """Return when another episode may run. Raises Busy."""
        try:
            async with asyncio.timeout(self.settings.timeout / 4), self._line:
                await self._line.wait_for(lambda: self._playing < self._limit)
                self._playing += 1
        except TimeoutError:
            raise self._busy() from None

    def _learn(self, seconds: float, beside: int, limit: float) -> None:
        """How many may run, after an episode that began with `beside` running of `limit`."""
        share = self.settings.timeout / 2 / seconds
        if share < 2 / 3:
            self._limit = max(1.0, min(self._limit, limit * share))
        else:
            self._limit = max(self._limit, min(beside * share, 2.0 * beside))
