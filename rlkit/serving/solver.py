"""Episodes on request: limits, sharing of equal requests, a cache, metrics."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Any

from cachetools import LRUCache
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from rlkit.agents.model_agent import LanguageModelAgent
from rlkit.environments.base import BaseEnvironment, BrokenEnvironment, environments
from rlkit.environments.trajectory import Transition
from rlkit.errors import UserError
from rlkit.seeds import content_hash


class Settings(BaseModel):
    """Limits of a server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body: PositiveInt = 64 * 1024
    """Bytes of a request (413 beyond)."""
    max_concurrent: PositiveInt = 256
    """Episodes at a time (429 with Retry-After beyond)."""
    timeout: PositiveFloat = 60.0
    """Seconds of one episode (504 beyond), and until a request has arrived (408 beyond)."""
    grace: PositiveFloat = 30.0
    """Seconds that running episodes have when the server is told to stop (503 beyond)."""
    max_batch: PositiveInt = 256
    """Problems of one batch request (422 beyond), and episodes a sampler call."""
    cache: NonNegativeInt = 1024
    """Finished episodes kept."""
    max_turn_length: PositiveInt | None = None
    """Tokens of one turn. None: as the policy was trained with; 512 where values have several lines, otherwise 64, if
    that is unknown."""
    constrained: bool = False
    """Only valid actions can be named (one more forward pass a turn)."""
    context: PositiveInt = 4096
    """Most tokens of an episode; a model's own limit may be smaller."""


class Request(BaseModel):
    """A problem in words or as the domain's JSON object, and the domain that it belongs to."""

    model_config = ConfigDict(extra="forbid")

    problem: Annotated[str, Field(min_length=1, max_length=8000)] | dict[str, Any]
    domain: Annotated[str, Field(max_length=100)] = "mathematics"

    @model_validator(mode="after")
    def _sendable(self) -> "Request":
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


class Feedback(BaseModel):
    """The user's verdict on an answer."""

    model_config = ConfigDict(extra="forbid")

    satisfied: bool
    domain: Annotated[str, Field(max_length=100)] = "mathematics"


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
        self.episodes = Counter("rlkit_episodes", "Episodes played.", ["domain", "success"], **on)
        self.actions = Counter("rlkit_actions", "Actions taken.", ["domain", "valid"], **on)
        self.feedback = Counter("rlkit_feedback", "Verdicts of users.", ["domain", "satisfied"], **on)
        self.reward = Gauge("rlkit_reward_sum", "Sum of the returns of all episodes.", **on)
        self.seconds = Histogram("rlkit_episode_seconds", "Seconds of an episode.", **on)
        self.batch = Histogram(
            "rlkit_batch_size", "Turns in a sampler call.", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256), **on
        )
        self.active = Gauge("rlkit_active_episodes", "Episodes that run now.", **on)
        self.cached = Counter("rlkit_cached", "Problems answered from the cache.", **on)


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
        self._cache: LRUCache[str, Solution] = LRUCache(settings.cache)

    def environment(self, domain: str) -> BaseEnvironment:
        """The environment of a domain. Raises Refused (404)."""
        if domain in self.domains:
            return self.domains[domain]
        known = sorted({*self.domains, *environments.names()})
        if domain not in environments:
            raise Refused(404, f"Unknown domain {domain!r}. Known: {', '.join(known)}.")
        return self.domains.setdefault(domain, environments.parse(domain))

    def require_room(self, requests: Sequence[Request]) -> None:
        """Raises Refused: 429 when what these requests would start is too much, 503 when the server stops."""
        if self.stopping:
            raise Refused(503, "The server is stopping.", **{"Retry-After": "5"})
        new = {r.key for r in requests} - self._cache.keys() - self._shared.keys()
        if len(self._running) + len(new) > self.settings.max_concurrent:
            raise Refused(
                429, f"{len(self._running)} episodes are running; try again soon.", **{"Retry-After": "1"}
            )

    def cached(self, request: Request) -> Solution | None:
        """The kept solution of an equal request."""
        if (known := self._cache.get(request.key)) is None:
            return None
        self.metrics.cached.inc()
        return known.model_copy(update={"cached": True})

    async def solve(self, request: Request) -> Solution:
        """The solution of a problem. Raises Refused."""
        if known := self.cached(request):
            return known
        task = self._shared.get(request.key)
        if task is None:
            task = self._shared[request.key] = self.start(request)
            task.add_done_callback(lambda _: self._shared.pop(request.key))
        return await asyncio.shield(task)

    def start(
        self, request: Request, on_action: Callable[[Action], Any] = lambda _: None
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
        if self.settings.cache and not task.cancelled() and task.exception() is None:
            self._cache[key] = task.result()

    async def _play(
        self, environment: BaseEnvironment, request: Request, on_action: Callable[[Action], Any]
    ) -> Solution:
        began = before = time.perf_counter()
        actions: list[Action] = []

        def on_step(step: Transition) -> None:
            nonlocal before
            now = time.perf_counter()
            facts = {"action": step.text, "observation": step.next_state, "seconds": now - before}
            actions.append(Action(reward=step.reward, valid=step.valid, **facts))
            before = now
            on_action(actions[-1])

        try:
            async with asyncio.timeout(self.settings.timeout):
                trajectory = await self.agent.run_episode(environment, request.problem, on_step=on_step)
        except UserError as error:
            raise Refused(500 if isinstance(error, BrokenEnvironment) else 422, str(error)) from None
        except TimeoutError:
            raise Refused(504, f"The episode took longer than {self.settings.timeout:g} s.") from None
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            raise Refused(503, "The server is stopping.", **{"Retry-After": "5"}) from None
        solution = Solution(
            solution=trajectory.solution,
            success=trajectory.success,
            total_reward=trajectory.total_reward,
            actions=actions,
            domain=request.domain,
            seconds=time.perf_counter() - began,
        )
        self._measure(solution)
        return solution

    def _measure(self, solution: Solution) -> None:
        metrics, domain = self.metrics, solution.domain
        metrics.episodes.labels(domain, str(solution.success).lower()).inc()
        for action in solution.actions:
            metrics.actions.labels(domain, str(action.valid).lower()).inc()
        metrics.seconds.observe(solution.seconds)
        metrics.reward.inc(solution.total_reward)
