"""Episodes on request: limits, sharing of equal requests, a cache, metrics."""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel, Field, model_validator

from rlkit.agents.model_agent import LanguageModelAgent
from rlkit.environments.base import BaseEnvironment, environments
from rlkit.environments.trajectory import Transition
from rlkit.errors import UserError
from rlkit.seeds import content_hash


@dataclass(frozen=True)
class Settings:
    """Limits of a server.

    Attributes:
        max_body: bytes of a request (413 beyond).
        max_concurrent: episodes at a time (429 with Retry-After beyond).
        timeout: seconds of one episode (504 beyond), and until a request has arrived (408 beyond).
        grace: seconds that running episodes have when the server is told to stop (503 beyond).
        max_batch: problems of one batch request (422 beyond), and episodes a sampler call.
        cache: finished episodes kept.
        max_turn_length: tokens of one turn.
        constrained: only valid actions can be named (one more forward pass a turn).
        context: most tokens of an episode; a model's own limit may be smaller.
    """

    max_body: int = 64 * 1024
    max_concurrent: int = 256
    timeout: float = 60.0
    grace: float = 30.0
    max_batch: int = 256
    cache: int = 1024
    max_turn_length: int = 64
    constrained: bool = False
    context: int = 4096


class Problem(BaseModel):
    """A problem in words or as the domain's JSON object, and the domain that it belongs to."""

    problem: Annotated[str, Field(min_length=1, max_length=8000)] | dict[str, Any]
    domain: Annotated[str, Field(max_length=100)] = "mathematics"

    @model_validator(mode="after")
    def _sendable(self) -> "Problem":
        try:
            json.dumps(self.problem, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            raise ValueError("problem holds half a surrogate pair, which is no text") from None
        except ValueError:
            raise ValueError("problem holds a number that is not finite") from None
        return self

    @cached_property
    def key(self) -> str:
        """Equal for equal requests."""
        return content_hash([self.domain, self.problem])


class Action(BaseModel):
    """One step of the chain, and the seconds since the one before."""

    action: str
    reward: float
    valid: bool
    observation: str
    seconds: float


class Solution(BaseModel):
    """What came out, how, and how long it took."""

    solution: str
    success: bool
    total_reward: float
    actions: list[Action]
    domain: str
    seconds: float
    cached: bool = False


class Refused(Exception):
    """A request that is answered with a status and one sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


class Metrics:
    """Prometheus metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        on: Any = {"registry": self.registry}
        self.requests = Counter("rlkit_requests", "Requests by path and status.", ["path", "status"], **on)
        self.seconds = Histogram("rlkit_episode_seconds", "Seconds of an episode.", **on)
        self.batch = Histogram(
            "rlkit_batch_size", "Turns in a sampler call.", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256), **on
        )
        self.active = Gauge("rlkit_active_episodes", "Episodes that run now.", **on)
        self.cached = Counter("rlkit_cached", "Problems answered from the cache.", **on)
        self.reward = Counter("rlkit_reward", "Sum of the positive rewards of served episodes.", **on)


class Solver:
    """Plays episodes: at most `max_concurrent`, equal ones once, finished ones from the cache.

    A client that leaves ends its own waiting; the episode goes on, for others and for the cache, unless it was a
    stream.
    """

    def __init__(
        self,
        agent: LanguageModelAgent,
        domains: dict[str, BaseEnvironment],
        settings: Settings,
        metrics: Metrics,
    ):
        self.agent, self.domains, self.settings, self.metrics = agent, domains, settings, metrics
        self.stopping = False
        self._running: set[asyncio.Task[Solution]] = set()
        self._shared: dict[str, asyncio.Task[Solution]] = {}  # those of them that equal requests may join
        self._cache: OrderedDict[str, Solution] = OrderedDict()

    def environment(self, domain: str) -> BaseEnvironment:
        """The environment of a domain. Raises Refused (404)."""
        if domain in self.domains:
            return self.domains[domain]
        known = sorted({*self.domains, *environments.names()})
        if domain not in environments:
            raise Refused(404, f"Unknown domain {domain!r}. Known: {', '.join(known)}.")
        return self.domains.setdefault(domain, environments.parse(domain))

    def require_room(self, requests: Sequence[Problem]) -> None:
        """Raises Refused: 429 when what these requests would start is too much, 503 when the server stops."""
        if self.stopping:
            raise Refused(503, "The server is stopping.", **{"Retry-After": "5"})
        new = {r.key for r in requests} - self._cache.keys() - self._shared.keys()
        if len(self._running) + len(new) > self.settings.max_concurrent:
            raise Refused(
                429, f"{len(self._running)} episodes are running; try again soon.", **{"Retry-After": "1"}
            )

    def cached(self, request: Problem) -> Solution | None:
        """The kept solution of an equal request."""
        if request.key not in self._cache:
            return None
        self._cache.move_to_end(request.key)
        self.metrics.cached.inc()
        return self._cache[request.key].model_copy(update={"cached": True})

    async def solve(self, request: Problem) -> Solution:
        """The solution of a problem. Raises Refused."""
        if known := self.cached(request):
            return known
        task = self._shared.get(request.key)
        if task is None:
            task = self._shared[request.key] = self.start(request)
            task.add_done_callback(lambda _: self._shared.pop(request.key))
        return await asyncio.shield(task)

    def start(
        self, request: Problem, on_action: Callable[[Action], Any] = lambda _: None
    ) -> asyncio.Task[Solution]:
        """Begin an episode whose solution is kept. Raises Refused where it cannot begin."""
        environment = self.environment(request.domain)
        self.require_room([request])
        task = asyncio.create_task(self._play(environment, request, on_action))
        self._running.add(task)
        task.add_done_callback(lambda done: self._finished(request.key, done))
        self.metrics.active.set(len(self._running))
        return task

    def stop(self) -> None:
        """End what still runs: whoever waits for it is told so (503)."""
        self.stopping = True
        for task in self._running:
            task.cancel()

    def _finished(self, key: str, task: asyncio.Task[Solution]) -> None:
        self._running.discard(task)
        self.metrics.active.set(len(self._running))
        if not task.cancelled() and task.exception() is None:
            self._cache[key] = task.result()
            while len(self._cache) > self.settings.cache:
                self._cache.popitem(last=False)

    async def _play(
        self, environment: BaseEnvironment, request: Problem, on_action: Callable[[Action], Any]
    ) -> Solution:
        began = time.perf_counter()
        actions: list[Action] = []

        def on_step(step: Transition) -> None:
            passed = time.perf_counter() - began - sum(a.seconds for a in actions)
            actions.append(
                Action(
                    action=step.text,
                    reward=step.reward,
                    valid=step.valid,
                    observation=step.next_state,
                    seconds=passed,
                )
            )
            on_action(actions[-1])

        try:
            async with asyncio.timeout(self.settings.timeout):
                trajectory = await self.agent.run_episode(environment, request.problem, on_step=on_step)
        except UserError as error:
            raise Refused(422, str(error)) from None
        except TimeoutError:
            raise Refused(504, f"The episode took longer than {self.settings.timeout:g} s.") from None
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            raise Refused(503, "The server is stopping.", **{"Retry-After": "5"}) from None
        seconds = time.perf_counter() - began
        self.metrics.seconds.observe(seconds)
        self.metrics.reward.inc(max(trajectory.total_reward, 0.0))
        return Solution(
            solution=trajectory.solution,
            success=trajectory.success,
            total_reward=trajectory.total_reward,
            actions=actions,
            domain=request.domain,
            seconds=seconds,
        )
