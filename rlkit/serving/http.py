"""A policy behind HTTP: its episodes, whose turns are sampled together, the answers to requests, and the process."""

import asyncio
import contextlib
import hmac
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import numpy as np
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, Field, PositiveFloat, PositiveInt

from rlkit import __version__
from rlkit.config import Section
from rlkit.environments.base import BaseEnvironment, BrokenEnvironment, Problem, environments
from rlkit.environments.episode import Episode, Trajectory
from rlkit.environments.rollout import ChatTokens, Limits, SampledEpisode
from rlkit.errors import UserError
from rlkit.params import validate
from rlkit.serving import MAX_CONCURRENT, TIMEOUT
from rlkit.types import Sample, Sampler

API_KEY = "RLKIT_API_KEY"  # environment variable; when set, requests need it as a bearer token
MOST_BYTES = 64 * 1024  # of a request
GRACE = 30  # seconds that running requests have when the server is told to stop
WINDOW = 0.001  # seconds in which those whose last turn has just been sampled ask again
TURN, LONG_TURN = 64, 512  # tokens of a turn of policies that do not say


class Settings(Section):
    """Limits of a server."""

    max_concurrent: PositiveInt = MAX_CONCURRENT
    """Episodes that run at a time; others wait a quarter of `timeout` at most (429 with Retry-After beyond)."""
    timeout: Annotated[PositiveFloat, Field(allow_inf_nan=False)] = TIMEOUT
    """Seconds of one episode (429 beyond)."""
    max_turn_length: PositiveInt | None = None
    """Tokens of one turn. None: as in training; if that is unknown, 512 where values have several lines, or 64."""
    context: PositiveInt = 4096
    """Most tokens of an episode; a model's own limit may be smaller."""


class Busy(Exception):
    """Too many episodes run to begin or to end another one in time."""


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
            call = partial(self.sampler.sample, prompts, 1, seed=0, max_tokens=max(limits), temperature=0.0)
            try:
                groups: Any = await asyncio.get_running_loop().run_in_executor(self._thread, call)
            except Exception as error:
                groups = [[error]] * len(batch)
            for future, (outcome,) in zip(futures, groups, strict=True):
                if not future.done():
                    failed = isinstance(outcome, Exception)
                    future.set_exception(outcome) if failed else future.set_result(outcome)


class Solver:
    """Plays episodes, `max_concurrent` at a time."""

    def __init__(self, policy: Any, sampler: Sampler, domains: dict[str, BaseEnvironment], settings: Settings) -> None:
        self.domains, self.settings, self.metrics = domains, settings, Metrics()
        self.chat, self.batcher = ChatTokens(policy), Batcher(sampler)
        self.context = min(settings.context, policy.base.config.max_position_embeddings)
        self._places = asyncio.Semaphore(settings.max_concurrent)

    def environment(self, domain: str) -> BaseEnvironment:
        """The environment of a domain. Raises UserError for an unknown one."""
        if domain not in self.domains:
            self.domains[domain] = environments.parse(domain)
        return self.domains[domain]

    async def solve(self, domain: str, problem: str | Problem) -> tuple[Trajectory, float]:
        """The episode and its seconds. Raises UserError for what cannot be played, BrokenEnvironment, and Busy."""
        try:
            async with asyncio.timeout(self.settings.timeout / 4):
                await self._places.acquire()
        except TimeoutError:
            raise Busy(f"{self.settings.max_concurrent} episodes are running; try again soon.") from None
        began = time.perf_counter()
        try:
            with self.metrics.active.track_inprogress():
                async with asyncio.timeout(self.settings.timeout):
                    trajectory = await self._episode(self.environment(domain), problem)
        except TimeoutError:
            raise Busy(f"The episode took longer than {self.settings.timeout:g} s; try again later.") from None
        finally:
            self._places.release()
        seconds = time.perf_counter() - began
        self.metrics.seconds.observe(seconds)
        self.metrics.episodes.labels(domain, str(trajectory.success).lower()).inc()
        for step in trajectory.transitions:
            self.metrics.actions.labels(domain, str(step.valid).lower()).inc()
        return trajectory, seconds

    async def _episode(self, environment: BaseEnvironment, problem: str | Problem) -> Trajectory:
        episode = Episode.begin(environment, problem)
        ids = self.chat.prompt(episode.messages)
        turn = self.settings.max_turn_length or (LONG_TURN if environment.multiline else TURN)
        if len(ids) + turn > self.context:
            raise UserError(f"The problem needs more than {self.context} tokens: shorten it.")
        limits = Limits(self.context - len(ids), turn)
        await SampledEpisode(episode, ids).play(self.batcher.sample, self.chat, limits)
        return episode.trajectory()


Domain = Annotated[str, Field(max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=8000)]


class Request(Section):
    """A problem in words or as the domain's JSON object, and the domain that it belongs to."""

    problem: Text | dict[str, Any]
    domain: Domain = "mathematics"


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


class Feedback(Section):
    """The user's verdict on an answer."""

    satisfied: bool
    domain: Domain = "mathematics"


STATUSES: dict[Any, int] = {BrokenEnvironment: 500, UserError: 422, Busy: 429}
"""What an episode that fails is answered with."""
_Given = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def _allowed(given: _Given) -> None:
    """Raises HTTPException for a wrong bearer token, where RLKIT_API_KEY is set."""
    key = os.environ.get(API_KEY, "")
    if key and not (given and hmac.compare_digest(given.credentials.encode(), key.encode())):
        raise HTTPException(401, "Send the API key as `Authorization: Bearer KEY`.", {"WWW-Authenticate": "Bearer"})


async def _failed(_: HttpRequest, error: Exception) -> JSONResponse:
    status = next(status for kind, status in STATUSES.items() if isinstance(error, kind))
    return JSONResponse({"detail": str(error)}, status, {"Retry-After": "1"} if status == 429 else None)


async def _invalid(_: HttpRequest, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    place = next((name for name in first["loc"][1:] if isinstance(name, str)), "the body")
    said = first.get("ctx", {}).get("error") or first["msg"]  # of the JSON parser, if it is no JSON
    return JSONResponse({"detail": f"{place[:100]}: {said}."}, 422)


def create_app(
    policy: Any, domains: dict[str, BaseEnvironment], sampler: Any, settings: Settings | None = None
) -> FastAPI:
    """The application: /solve, /feedback, /healthz, /metrics, /docs.

    Args:
        policy: from rlkit.models.loading.load_policy.
        domains: environments by name, with the options that the policy was trained with; others get defaults.
        sampler: any Sampler that holds the policy's weights.
    """
    list(environments)  # imports them all, before the first request has to wait for it
    solver = Solver(policy, sampler, dict(domains), settings or Settings())
    handlers: Any = {**dict.fromkeys(STATUSES, _failed), RequestValidationError: _invalid}
    app = FastAPI(title="rlkit", version=__version__, exception_handlers=handlers)
    app.state.solver = solver
    locked: Any = {"dependencies": [Depends(_allowed)]}

    @app.middleware("http")
    async def counted(request: HttpRequest, call: Callable[[HttpRequest], Awaitable[Response]]) -> Response:
        """Count a request, and refuse a body that is large, or of unknown length, before it is read."""
        status, known = 500, "transfer-encoding" not in request.headers
        try:
            if known and int(request.headers.get("content-length", 0)) <= MOST_BYTES:
                answer = await call(request)
            else:
                told = f"The request is larger than {MOST_BYTES} bytes, or has no `content-length`."
                answer = JSONResponse({"detail": told}, 413)
            status = answer.status_code
            return answer
        finally:
            path = getattr(request.scope.get("route"), "path", "other")
            solver.metrics.requests.labels(path, status).inc()

    @app.get("/solve", **locked)
    @app.post("/solve", **locked)
    async def solve(
        request: Request | None = None,
        problem: Annotated[Text | None, Query()] = None,
        domain: Annotated[Domain, Query()] = "mathematics",
    ) -> Solution:
        """Solve one problem step by step, given as JSON or as `?problem=` and `domain=`."""
        if request is None and problem is None:
            raise UserError('Give a problem, as JSON ({"problem": "3x + 7 = 16"}) or as ?problem=.')
        asked = request or Request(problem=problem or "", domain=domain)
        trajectory, seconds = await solver.solve(asked.domain, asked.problem)
        steps = trajectory.transitions
        chain = [Action(action=t.text, reward=t.reward, valid=t.valid, observation=t.next_state) for t in steps]
        told = {name: trajectory[name] for name in ("solution", "success", "total_reward")}
        return Solution(**told, actions=chain, domain=asked.domain, seconds=seconds)

    @app.post("/feedback", status_code=204, **locked)
    async def feedback(verdict: Feedback) -> None:
        """Count whether a user was satisfied with an answer."""
        solver.environment(verdict.domain)
        solver.metrics.feedback.labels(verdict.domain, str(verdict.satisfied).lower()).inc()

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        """Whether the server is up, and what it serves."""
        return {"status": "ok", "version": __version__, "domains": sorted(solver.domains)}

    @app.get("/metrics")
    async def prometheus() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(solver.metrics.registry), media_type="text/plain; version=0.0.4")

    return app


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address, before anything slow. Raises UserError where it is taken or none of ours."""
    if not 0 <= port < 2**16:
        raise UserError(f"--port is {port}: give one of 1 to 65535, or 0 for any that is free.")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        reason = f"cannot be listened on ({error.strerror})"
        raise UserError(f"--host {host} --port {port} {reason}: take another.") from None
    return bound


def serve(
    path: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: Settings | None = None,
    say: Callable[[str], Any] = print,
) -> None:
    """Serve a run's policy until Ctrl-C or SIGTERM. Raises UserError where the policy cannot be opened, the address is
    taken, or a host is open to others without an API key."""
    if host not in ("127.0.0.1", "localhost", "::1") and not os.environ.get(API_KEY):
        raise UserError(f"--host is {host!r}, open to others: set {API_KEY} first.")
    limits: Settings = validate(Settings, settings or {})
    bound = listen(host, port)
    say(f"Loading {path} …")

    import torch

    from rlkit.samplers.torch import TorchSampler
    from rlkit.training.export import open_saved

    # One core is for requests: torch's threads wait for each other spinning, and would wait for them.
    torch.set_num_threads(max(1, torch.get_num_threads() - 1))
    saved = open_saved(path, "cuda" if torch.cuda.is_available() else "cpu")
    policy = saved.policy
    limits = limits.model_copy(update={"max_turn_length": limits.max_turn_length or saved.max_turn_length or None})
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    config = uvicorn.Config(
        create_app(policy, saved.environments, sampler, limits),
        log_level="warning",
        # Longer than clients and proxies keep an idle connection (httpx 5 s, nginx 60 s): a server that closes it
        # first, at the moment of the next request, resets that request.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE,
    )
    # uvicorn raises the signal that stopped it once more, after all is done: here that is a clean end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    bound.listen()
    address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
    say(f"Serving {', '.join(sorted(saved.environments)) or 'any domain'} at {address}; see {address}/docs.")
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([bound])
