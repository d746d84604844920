"""The application: what is asked, what is answered, and what every request passes first."""

import asyncio
import contextlib
import hmac
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPBearer
from prometheus_client import generate_latest
from pydantic import BaseModel, Field, ValidationError
from starlette import requests
from starlette.exceptions import HTTPException

from rlkit import __version__
from rlkit.agents.model_agent import Batcher, LanguageModelAgent
from rlkit.environments.base import BaseEnvironment, environments
from rlkit.serving.solver import Action, Feedback, Metrics, Refused, Request, Settings, Solution, Solver

logger = logging.getLogger("rlkit.serving")
API_KEY = "RLKIT_API_KEY"  # environment variable; when set, requests need it as a bearer token
bearer = HTTPBearer(auto_error=False, description=f"What {API_KEY} holds, where the server has one.")
TURN, LONG_TURN = 64, 512  # tokens of a turn of policies that do not say


def create_app(
    policy: Any, domains: dict[str, BaseEnvironment], sampler: Any, settings: Settings | None = None
) -> FastAPI:
    """The application: /solve, /solve/batch, /solve/stream, /feedback, /healthz, /metrics, /docs.

    Args:
        policy: from rlkit.models.load_policy.
        domains: environments by name, with the options that the policy was trained with; others get defaults.
        sampler: any Sampler that holds the policy's weights.
    """
    settings, metrics = settings or Settings(), Metrics()
    turn = settings.max_turn_length or (LONG_TURN if any(e.multiline for e in domains.values()) else TURN)
    batcher = Batcher(sampler, turn, max_batch=settings.max_batch, on_batch=metrics.batch.observe)
    context = min(settings.context, policy.base.config.max_position_embeddings)
    agent = LanguageModelAgent(policy, batcher, constrained=settings.constrained, context=context)
    environments.names()  # imports them all, before the first request has to wait for it
    solver = Solver(agent, dict(domains), settings, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()

    app = FastAPI(title="rlkit", version=__version__, lifespan=lifespan)
    app.state.solver = solver
    app.add_middleware(Edge, solver=solver)
    _answer_errors(app)
    locked: Any = {"dependencies": [Depends(bearer)]}  # for /docs; the key is compared in Edge
    most = min(settings.max_batch, settings.max_concurrent)

    @app.post("/solve", **locked)
    async def solve(request: Annotated[Request, Depends(_asked)]) -> Solution:
        """Solve one problem step by step, given as JSON or as `?problem=` and `domain=`."""
        return await solver.solve(request)

    @app.post("/solve/batch", **locked)
    async def solve_batch(
        requests: Annotated[list[Request], Field(min_length=1, max_length=most)],
    ) -> list[Any]:
        """Solve many problems together; one that is refused holds its `error` and disturbs no other."""
        solver.require_room(requests)
        results = await asyncio.gather(*(solver.solve(r) for r in requests), return_exceptions=True)
        return [_item(result) for result in results]

    @app.post("/solve/stream", **locked)
    async def solve_stream(request: Annotated[Request, Depends(_asked)]) -> StreamingResponse:
        """Solve one problem, with every action as a server-sent event while it happens."""
        if known := solver.cached(request):
            return _stream(_replayed(known))
        actions: asyncio.Queue[Action | None] = asyncio.Queue()
        task = solver.start(request, actions.put_nowait)
        task.add_done_callback(lambda _: actions.put_nowait(None))
        return _stream(_live(actions, task))

    @app.post("/feedback", status_code=204, **locked)
    async def feedback(verdict: Feedback) -> None:
        """Count whether a user was satisfied with an answer."""
        solver.environment(verdict.domain)
        metrics.feedback.labels(verdict.domain, str(verdict.satisfied).lower()).inc()

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        """Whether the server is up, and what it serves."""
        return {"status": "ok", "version": __version__, "domains": sorted(solver.domains)}

    @app.get("/metrics")
    async def prometheus() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")

    return app


def _asked(
    body: Annotated[Request | None, Body()] = None,
    problem: Annotated[str | None, Query()] = None,
    domain: Annotated[str, Query()] = "mathematics",
) -> Request:
    """The request in a body or, without one, in the address."""
    if body is not None:
        return body
    if problem is None:
        raise Refused(422, 'problem: Field required, as JSON ({"problem": "3x + 7 = 16"}) or as ?problem=.')
    try:
        return Request(problem=problem, domain=domain)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _item(result: Solution | BaseException) -> Solution | dict[str, Any]:
    if isinstance(result, Refused):
        return {"error": result.sentence, "status": result.status}
    if isinstance(result, BaseException):
        logger.error("an item of a batch failed", exc_info=result)
        return {"error": _broken(result), "status": 500}
    return result


def _stream(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})


def _event(kind: str, data: BaseModel | dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {data.model_dump_json() if isinstance(data, BaseModel) else json.dumps(data)}\n\n"


async def _replayed(solution: Solution) -> AsyncIterator[str]:
    for action in solution.actions:
        yield _event("action", action)
    yield _event("solution", solution)


async def _live(actions: asyncio.Queue[Action | None], task: asyncio.Task[Solution]) -> AsyncIterator[str]:
    try:
        while (action := await actions.get()) is not None:
            yield _event("action", action)
        yield _event("solution", await task)
    except Exception as error:  # the status has been sent: the last event says what happened
        yield _event("error", _item(error))
    finally:
        task.cancel()  # the client left


def _broken(error: BaseException) -> str:
    """What a client is told when the server itself fails; its log has the rest."""
    return f"The server failed: {type(error).__name__}."


def _refusal(error: Refused) -> JSONResponse:
    return JSONResponse({"error": error.sentence}, error.status, error.headers)


def _answer_errors(app: FastAPI) -> None:
    """Every refusal as `{"error": sentence}` with its status."""

    @app.exception_handler(Refused)
    async def refused(_: requests.Request, error: Refused) -> JSONResponse:
        return _refusal(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: requests.Request, error: RequestValidationError) -> JSONResponse:
        deepest = max(error.errors(), key=lambda e: len(e["loc"]))  # of the forms that a problem can have
        if deepest["type"] == "json_invalid":
            sentence = f"The body is no JSON: {deepest['ctx']['error']}."
        elif "body" in deepest["loc"] and "json" not in request.headers.get("content-type", ""):
            sentence = "Send JSON, with the header `content-type: application/json`."
        else:
            forms = ("body", "query", "str", "constrained-str", "dict[str,any]")
            where = ".".join(str(part) for part in deepest["loc"] if part not in forms) or "the body"
            sentence = f"{where[:100]}: {deepest['msg'].removeprefix('Value error, ')}."
        return JSONResponse({"error": sentence}, 422)

    @app.exception_handler(HTTPException)
    async def unknown(_: requests.Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # what FastAPI says of a body that its JSON parser gives up on
            return JSONResponse({"error": "The body is no JSON: it is nested too deep."}, 422)
        return JSONResponse(
            {"error": f"{error.detail}: /docs lists the paths."}, error.status_code, error.headers
        )


class Edge:
    """ASGI middleware around the application: asks for the key, limits a body's size and time, turns what breaks into
    a 500, and counts answers."""

    def __init__(self, app: Any, solver: Solver) -> None:
        self.app, self.solver, self.settings = app, solver, solver.settings

    async def __call__(self, scope: Any, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status = None

        async def watched(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            request = requests.Request(scope, receive)
            await self._require_key(request)
            body = await self._body(request)
            await self.app(scope, _replay(body, receive), watched)
        except requests.ClientDisconnect:
            return
        except Refused as error:
            await _refusal(error)(scope, receive, watched)
        except Exception as error:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if status is not None:
                raise  # too late for another answer: the connection is closed
            await JSONResponse({"error": _broken(error)}, 500)(scope, receive, watched)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self.solver.metrics.requests.labels(path, status or "none").inc()

    async def _require_key(self, request: requests.Request) -> None:
        """Before anything is read of a POST: the bearer token is RLKIT_API_KEY, where that is set."""
        key = os.environ.get(API_KEY)
        if key and request.method == "POST":
            given = await bearer(request)
            if given is None or not hmac.compare_digest(given.credentials.encode(), key.encode()):
                raise Refused(
                    401, "Send the API key as `Authorization: Bearer KEY`.", **{"WWW-Authenticate": "Bearer"}
                )

    async def _body(self, request: requests.Request) -> bytes:
        body = b""
        try:
            async with asyncio.timeout(self.settings.timeout):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self.settings.max_body:
                        raise Refused(413, f"The request is larger than {self.settings.max_body} bytes.")
        except TimeoutError:
            late = f"The request did not arrive within {self.settings.timeout:g} s."
            raise Refused(408, late, connection="close") from None
        return body


def _replay(body: bytes, receive: Callable) -> Callable:
    """`receive` with the body, which has been read, once more."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return messages.pop() if messages else await receive()

    return replay
