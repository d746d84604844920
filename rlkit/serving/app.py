"""The application, and the command that runs it."""

import asyncio
import contextlib
import json
import os
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.responses import Response, StreamingResponse
from prometheus_client import generate_latest
from pydantic import Field

from rlkit import __version__
from rlkit.environments.base import BaseEnvironment
from rlkit.environments.model_agent import Batcher, LanguageModelAgent
from rlkit.environments.trajectory import Transition
from rlkit.errors import UserError
from rlkit.serving.http import API_KEY, BodyLimit, authorised, handle_errors
from rlkit.serving.solver import Metrics, Problem, Refused, Settings, Solution, Solver, action_of


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
    agent = LanguageModelAgent(policy, batcher, constrained=settings.constrained, context=settings.context)
    solver = Solver(agent, dict(domains), settings, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()

    app = FastAPI(title="rlkit", version=__version__, lifespan=lifespan)
    app.state.solver = solver
    app.add_middleware(BodyLimit, most=settings.max_body)
    handle_errors(app, metrics)

    @app.post("/solve", dependencies=[Depends(authorised)])
    async def solve(request: Problem) -> Solution:
        """Solve one problem step by step."""
        return await solver.solve(request)

    @app.post("/solve/batch", dependencies=[Depends(authorised)])
    async def solve_batch(
        requests: Annotated[list[Problem], Field(min_length=1, max_length=settings.max_batch)],
    ) -> list[Any]:
        """Solve many problems together; one that is refused holds its `error` and disturbs no other."""
        solver.require_room(len(requests))
        results = await asyncio.gather(*(solver.solve(r) for r in requests), return_exceptions=True)
        return [_item(result) for result in results]

    @app.post("/solve/stream", dependencies=[Depends(authorised)])
    async def solve_stream(request: Problem) -> StreamingResponse:
        """Solve one problem, with every action as a server-sent event while it happens."""
        environment = solver.environment(request.domain)
        solver.require_room()
        return StreamingResponse(_events(solver, environment, request), media_type="text/event-stream")

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
        raise result
    return result


async def _events(solver: Solver, environment: BaseEnvironment, request: Problem) -> AsyncIterator[str]:
    steps: asyncio.Queue[Transition | None] = asyncio.Queue()
    task = solver.start(uuid.uuid4().hex, environment, request, steps.put_nowait)
    task.add_done_callback(lambda _: steps.put_nowait(None))
    try:
        while (step := await steps.get()) is not None:
            yield f"event: action\ndata: {action_of(step).model_dump_json()}\n\n"
        result = await task
        yield f"event: solution\ndata: {result.model_dump_json()}\n\n"
    except Refused as refused:
        yield f"event: error\ndata: {json.dumps({'error': refused.sentence, 'status': refused.status})}\n\n"
    finally:
        task.cancel()  # the client left


def serve(path: str, host: str = "127.0.0.1", port: int = 8000, settings: Settings | None = None) -> None:
    """Serve a run's policy until interrupted; running requests are finished first (30 s at most).

    Raises:
        UserError: the policy cannot be opened, or a non-loopback host without an API key.
    """
    import torch
    import uvicorn

    from rlkit.export import open_saved
    from rlkit.samplers.torch import TorchSampler

    if host not in ("127.0.0.1", "localhost", "::1") and not os.environ.get(API_KEY):
        raise UserError(f"--host is {host!r}, open to others: set {API_KEY} first.")
    # One core is for requests: torch's threads wait for each other spinning, and would wait for them.
    torch.set_num_threads(max(1, torch.get_num_threads() - 1))
    saved = open_saved(path, "cuda" if torch.cuda.is_available() else "cpu")
    policy = saved.policy
    sampler = TorchSampler(policy.model, policy.stop_ids, policy.pad_id)
    app = create_app(policy, saved.environments, sampler, settings)
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=30,
        timeout_keep_alive=75,  # under load, 5 s pass before the next request on a connection is looked at
    )
