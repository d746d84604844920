"""Episodes on request: limits, metrics, and one episode for equal requests (decoding is greedy)."""

import asyncio
import json
import time
from typing import Annotated, Any

from cachetools import LRUCache
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from rlkit.agents.agents import LanguageModelAgent
from rlkit.config import Section
from rlkit.environments.base import BaseEnvironment, BrokenEnvironment, environments
from rlkit.errors import UserError
from rlkit.seeds import content_hash

KEPT = 1024  # episodes, for equal requests
START = 8  # episodes at a time until it is known how long they take
STOPPING = "The server is stopping."
Domain = Annotated[str, Field(max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=8000)]


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


class Request(BaseModel):
    """A problem in words or as the domain's JSON object, and the domain that it belongs to."""

    model_config = ConfigDict(extra="forbid")

    problem: Text | dict[str, Any]
    domain: Domain = "mathematics"

    @model_validator(mode="after")
    def _is_json(self) -> "Request":
        try:
            json.dumps(self.problem, ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            raise ValueError("problem holds a number that is not finite, or half a surrogate pair") from None
        return self


class Action(BaseModel):
    """One step of the chain."""

    action: str
    reward: float
    valid: bool
    observation: str


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
    domain: Domain = "mathematics"


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
        self.seconds = Histogram("rlkit_episode_seconds", "Seconds of an episode.", **on)
        self.active = Gauge("rlkit_active_episodes", "Episodes that run now.", **on)

    def count(self, solution: Solution) -> None:
        """A finished episode."""
        self.episodes.labels(solution.domain, str(solution.success).lower()).inc()
        for action in solution.actions:
            self.actions.labels(solution.domain, str(action.valid).lower()).inc()
        self.seconds.observe(solution.seconds)


class Solver:
    """Plays episodes, one for equal requests, also later ones.

    As many run at a time as were seen to take half of `timeout`; others wait, a quarter of it at most (429 beyond, and
    where an episode beside others outlasts `timeout`). A client that leaves ends its own waiting; the episode goes on.
    """

    def __init__(
        self, agent: LanguageModelAgent, domains: dict[str, BaseEnvironment], settings: Settings
    ) -> None:
        self.agent, self.domains, self.settings, self.metrics = agent, domains, settings, Metrics()
        self.stopping, self._asked = False, 0  # episodes that were asked for
        self._running: set[asyncio.Task[Solution]] = set()
        self._playing, self._limit, self._line = 0, float(START), asyncio.Condition()
        self._kept: LRUCache[str, asyncio.Task[Solution]] = LRUCache(KEPT)

    def environment(self, domain: str) -> BaseEnvironment:
        """The environment of a domain. Raises Refused (404)."""
        if domain not in self.domains:
            if domain not in environments:
                known = ", ".join(sorted({*self.domains, *environments.names()}))
                raise Refused(404, f"Unknown domain {domain!r}. Known: {known}.")
            self.domains[domain] = environments.parse(domain)
        return self.domains[domain]

    async def solve(self, request: Request) -> Solution:
        """Raises Refused."""
        key = content_hash([request.domain, request.problem])
        if (task := self._kept.get(key)) is None:
            task = self._kept[key] = self._start(request)
            task.add_done_callback(lambda done: self._finished(key, done))
        elif task.done():
            return task.result().model_copy(update={"cached": True})
        return await asyncio.shield(task)

    def stop(self) -> None:
        """End what still runs: whoever waits for it is told so (503)."""
        self.stopping = True
        for task in self._running:
            task.cancel()

    def _start(self, request: Request) -> asyncio.Task[Solution]:
        self._asked += 1
        if self.stopping:
            raise Refused(503, STOPPING, **{"Retry-After": "5"})
        if len(self._running) >= self.settings.max_concurrent:
            raise self._busy()
        task = asyncio.create_task(self._play(self.environment(request.domain), request))
        self._running.add(task)
        self.metrics.active.inc()
        return task

    def _busy(self) -> Refused:
        sentence = f"{self._playing} episodes are running; try again soon."
        return Refused(429, sentence, **{"Retry-After": "1"})

    def _finished(self, key: str, task: asyncio.Task[Solution]) -> None:
        self._running.discard(task)
        self.metrics.active.dec()
        if (task.cancelled() or task.exception()) and self._kept.get(key) is task:
            del self._kept[key]

    async def _play(self, environment: BaseEnvironment, request: Request) -> Solution:
        try:
            await self._wait()
            began, beside, limit, asked = time.perf_counter(), self._playing, self._limit, self._asked
            try:
                async with asyncio.timeout(self.settings.timeout):
                    trajectory = await self.agent.run_episode(environment, request.problem)
                self._learn(time.perf_counter() - began, beside, limit)
            except TimeoutError:
                self._learn(self.settings.timeout, beside, limit)
                if beside > 1 or len(self._running) > 1 or self._asked > asked:  # alone it might have ended
                    raise self._busy() from None
                raise
            finally:
                self._playing -= 1
                async with self._line:
                    self._line.notify_all()
        except UserError as error:
            raise Refused(500 if isinstance(error, BrokenEnvironment) else 422, str(error)) from None
        except TimeoutError:
            raise Refused(504, f"The episode took longer than {self.settings.timeout:g} s.") from None
        except asyncio.CancelledError:
            raise Refused(503, STOPPING, **{"Retry-After": "5"}) from None
        actions = [
            Action(action=t.text, reward=t.reward, valid=t.valid, observation=t.next_state)
            for t in trajectory.transitions
        ]
        told = {name: trajectory[name] for name in ("solution", "success", "total_reward")}
        told |= {"domain": request.domain, "seconds": time.perf_counter() - began}
        solution = Solution(**told, actions=actions)
        self.metrics.count(solution)
        return solution

    async def _wait(self) -> None:
        """Return when another episode may run. Raises Refused (429)."""
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
