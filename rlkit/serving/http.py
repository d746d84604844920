"""What every request passes: the size of its body, the API key, errors as JSON."""

import hmac
import os
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from rlkit.serving.solver import Metrics, Problem, Refused

API_KEY = "RLKIT_API_KEY"  # environment variable; when set, requests need it as a bearer token


async def authorised(request: Request) -> None:
    """Compare the bearer token with RLKIT_API_KEY, where that is set."""
    key = os.environ.get(API_KEY)
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if key and not hmac.compare_digest(given.encode(), key.encode()):
        raise Refused(
            401, "Send the API key as `Authorization: Bearer KEY`.", **{"WWW-Authenticate": "Bearer"}
        )


def handle_errors(app: FastAPI, metrics: Metrics) -> None:
    """Every refusal as `{"error": sentence}` with its status, and a count of all answers."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return JSONResponse({"error": error.sentence}, error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return JSONResponse({"error": f"The body is no JSON: {first['ctx']['error']}."}, 422)
        known = [part for part in first["loc"] if isinstance(part, int) or part in Problem.model_fields]
        where = ".".join(map(str, known)) or "the body"
        return JSONResponse({"error": f"{where}: {first['msg']}."}, 422)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(
            {"error": f"{error.detail}: /docs lists the paths."}, error.status_code, error.headers
        )

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": f"The server failed: {type(error).__name__}."}, 500)

    @app.middleware("http")
    async def count(request: Request, call_next: Callable) -> Response:
        response = await call_next(request)
        route = request.scope.get("route")
        metrics.requests.labels(getattr(route, "path", "other"), response.status_code).inc()
        return response


class BodyLimit:
    """ASGI middleware: a body beyond `most` bytes, announced or not, is answered with 413."""

    def __init__(self, app: Any, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Any, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        body, more = b"", True
        while more and len(body) <= self.most:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > self.most:
            refusal = JSONResponse({"error": f"The request is larger than {self.most} bytes."}, 413)
            return await refusal(scope, receive, send)
        sent = False

        async def replay() -> Any:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        return await self.app(scope, replay, send)
