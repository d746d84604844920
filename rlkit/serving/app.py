"""The application: what is asked, and what is answered."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.responses import Response, StreamingResponse
from prometheus_client import generate_latest
from pydantic import BaseModel, Field

from rlkit import __version__
from rlkit.agents.model_agent import Batcher, LanguageModelAgent
from rlkit.environments.base import BaseEnvironment, environments
from rlkit.serving.http import BodyLimit, Edge, authorised, broken, handle_errors, logger
from rlkit.serving.solver import Action, Metrics, Problem, Refused, Settings, Solution, Solver


def create_app(
    policy: Any, domains: dict[str, BaseEnvironment], sampler: Any, settings: Settings | None = None
) -> FastAPI:
    """The application: /solve, /solve/batch, /solve/stream, /healthz, /metrics, /docs.

    Args:
        policy: from rlkit.models.load_policy.
        domains: environments by name, with the options that the policy was trained with; others get defaults.
        sampler: any Sampler that holds the policy's weights.
    """
    settings, metrics = settings or Settings(), Metrics()
    batcher = Batcher(
        sampler, settings.max_turn_length, max_batch=settings.max_batch, on_batch=metrics.batch.observe
    )
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
    app.add_middleware(BodyLimit, most=settings.max_body, seconds=settings.timeout)
    app.add_middleware(Edge, solver=solver)  # the last is the outermost
    handle_errors(app)

    @app.post("/solve", dependencies=[Depends(authorised)])
    async def solve(request: Problem) -> Solution:
        """Solve one problem step by step."""
        return await solver.solve(request)

    most = min(settings.max_batch, settings.max_concurrent)

    @app.post("/solve/batch", dependencies=[Depends(authorised)])
    async def solve_batch(
        requests: Annotated[list[Problem], Field(min_length=1, max_length=most)],
    ) -> list[Any]:
        """Solve many problems together; one that is refused holds its `error` and disturbs no other."""
        solver.require_room(requests)
        results = await asyncio.gather(*(solver.solve(r) for r in requests), return_exceptions=True)
        return [_item(result) for result in results]

    @app.post("/solve/stream", dependencies=[Depends(authorised)])
    async def solve_stream(request: Problem) -> StreamingResponse:
        """Solve one problem, with every action as a server-sent event while it happens."""
        if known := solver.cached(request):
            return _stream(_replayed(known))
        actions: asyncio.Queue[Action | None] = asyncio.Queue()
        task = solver.start(request, actions.put_nowait)
        task.add_done_callback(lambda _: actions.put_nowait(None))
        return _stream(_live(actions, task))

    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        """Whether the server is up, and what it serves."""
        return {"status": "ok", "version": __version__, "domains": sorted(solver.domains)}

    @app.get("/metrics")
    async def prometheus() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")

    return app


def _item(result: Solution | BaseException) -> Solution | dict[str, Any]:
    if isinstance(result, Refused):
        return {"error": result.sentence, "status": result.status}
    if isinstance(result, BaseException):
        logger.error("an item of a batch failed", exc_info=result)
        return {"error": broken(result), "status": 500}
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
