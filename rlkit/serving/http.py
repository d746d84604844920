"""What HTTP asks of the server and its answers with their statuses; and the process that serves it."""

import asyncio
import contextlib
import hmac
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Query
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from prometheus_client import generate_latest
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException

from rlkit import __version__
from rlkit.environments.base import BaseEnvironment, BrokenEnvironment, environments
from rlkit.errors import UserError
from rlkit.params import validate
from rlkit.serving.episodes import Busy, Settings, Solver, Stopping, TooSlow, UnknownDomain

logger = logging.getLogger("rlkit.serving")
API_KEY = "RLKIT_API_KEY"  # environment variable; when set, requests need it as a bearer token
bearer = HTTPBearer(auto_error=False, description=f"What {API_KEY} holds, where the server has one.")
MOST_BYTES = 64 * 1024  # of a request
# Longer than clients and proxies keep an idle connection (httpx 5 s, nginx 60 s): a server that closes it first, at
# the moment of the next request, resets that request.
KEEP_ALIVE = 75
# pydantic's names of what a value may be
FORMS = ("body", "query", "str", "constrained-str", "dict[str,any]")
STATUSES: dict[type[Exception], int] = {
    UnknownDomain: 404, BrokenEnvironment: 500, UserError: 422, Busy: 429, Stopping: 503, TooSlow: 504
}  # fmt: skip
"""What an episode that fails is answered with, the first that fits; `_guard` decides other statuses."""
RETRY_AFTER = {429: "1", 503: "5"}  # seconds
Domain = Annotated[str, Field(max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=8000)]


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


class Feedback(BaseModel):
    """The user's verdict on an answer."""

    model_config = ConfigDict(extra="forbid")

    satisfied: bool
    domain: Domain = "mathematics"


def create_app(
    policy: Any, domains: dict[str, BaseEnvironment], sampler: Any, settings: Settings | None = None
) -> FastAPI:
    """The application: /solve, /feedback, /healthz, /metrics, /docs.

    Args:
        policy: from rlkit.models.loading.load_policy.
        domains: environments by name, with the options that the policy was trained with; others get defaults.
        sampler: any Sampler that holds the policy's weights.
    """
    environments.names()  # imports them all, before the first request has to wait for it
    solver = Solver(policy, sampler, dict(domains), settings or Settings())
    app = FastAPI(title="rlkit", version=__version__)
    app.state.solver = solver
    _guard(app, solver)
    _answer_errors(app)
    locked: Any = {"dependencies": [Depends(bearer)]}  # for /docs; the key is compared in _guard

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
        told = {name: trajectory[name] for name in ("solution", "success", "total_reward")}
        steps = trajectory.transitions
        chain = [dict(action=t.text, reward=t.reward, valid=t.valid, observation=t.next_state) for t in steps]
        known = {"domain": asked.domain, "seconds": seconds, "actions": chain}
        return Solution.model_validate(told | known)

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


def _told(status: int, sentence: str, **headers: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers)


def _guard(app: FastAPI, solver: Solver) -> None:
    """Before a request is read: its key and its size. After it: what failed as JSON, and the count."""

    @app.middleware("http")
    async def guarded(request: HttpRequest, call: Callable[[HttpRequest], Awaitable[Response]]) -> Response:
        try:
            refused = await _refused(request) if request.method == "POST" else None
            answer = refused or await call(request)
        except Exception as error:
            if status := next((s for kind, s in STATUSES.items() if isinstance(error, kind)), 0):
                retry = {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else {}
                answer = _told(status, str(error), **retry)
            else:
                logger.exception("%s %s failed", request.method, request.url.path)
                answer = _told(500, f"The server failed: {type(error).__name__}.")
        path = getattr(request.scope.get("route"), "path", "other")
        solver.metrics.requests.labels(path, answer.status_code).inc()
        return answer


async def _refused(request: HttpRequest) -> Response | None:
    """The answer to a wrong bearer token, where RLKIT_API_KEY is set, and to a body that is large or of unknown
    length; None for other requests."""
    if key := os.environ.get(API_KEY):
        given = await bearer(request)
        if given is None or not hmac.compare_digest(given.credentials.encode(), key.encode()):
            asked = {"WWW-Authenticate": "Bearer"}
            return _told(401, "Send the API key as `Authorization: Bearer KEY`.", **asked)
    if "transfer-encoding" in request.headers:
        return _told(411, "Send the request with its `content-length`.")
    if int(request.headers.get("content-length", 0)) > MOST_BYTES:
        return _told(413, f"The request is larger than {MOST_BYTES} bytes.")
    return None


def _answer_errors(app: FastAPI) -> None:
    """What FastAPI refuses as `{"error": sentence}` with its status."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: HttpRequest, error: RequestValidationError) -> JSONResponse:
        deepest = max(error.errors(), key=lambda e: len(e["loc"]))  # of the forms that a problem can have
        if deepest["type"] == "json_invalid":
            sentence = f"The body is no JSON: {deepest['ctx']['error']}."
        elif "body" in deepest["loc"] and "json" not in request.headers.get("content-type", ""):
            sentence = "Send JSON, with the header `content-type: application/json`."
        else:
            where = ".".join(str(part) for part in deepest["loc"] if part not in FORMS) or "the body"
            sentence = f"{where[:100]}: {deepest['msg'].removeprefix('Value error, ')}."
        return _told(422, sentence)

    @app.exception_handler(HTTPException)
    async def unknown(_: HttpRequest, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # what FastAPI says of a body that its JSON parser gives up on
            return _told(422, "The body is no JSON: it is nested too deep.")
        return _told(error.status_code, f"{error.detail}: /docs lists the paths.", **(error.headers or {}))


class Server(uvicorn.Server):
    """uvicorn, which when told to stop takes no more connections; what runs after `grace` seconds gets a 503."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        solver = self.config.app.state.solver  # type: ignore[union-attr]
        asyncio.get_running_loop().call_later(solver.settings.grace, solver.stop)
        await super().shutdown(sockets)


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
    turn = limits.max_turn_length or saved.facts.get("max_turn_length") or None
    limits = limits.model_copy(update={"max_turn_length": turn})
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    config = uvicorn.Config(
        create_app(policy, saved.environments, sampler, limits),
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=round(limits.grace) + 5,  # for answers to reach slow clients
    )
    # uvicorn raises the signal that stopped it once more, after all is done: here that is a clean end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    bound.listen()
    address = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
    say(f"Serving {', '.join(sorted(saved.environments)) or 'any domain'} at {address}; see {address}/docs.")
    with contextlib.suppress(KeyboardInterrupt):
        Server(config).run([bound])
