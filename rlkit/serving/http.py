"""What every request passes: the size of its body, the API key, errors as JSON."""

import asyncio
import hmac
import logging
import os
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from rlkit.serving.solver import Problem, Refused, Solver

logger = logging.getLogger("rlkit.serving")
API_KEY = "RLKIT_API_KEY"  # environment variable; when set, requests need it as a bearer token


async def authorised(request: Request) -> None:
    """Compare the bearer token with RLKIT_API_KEY, where that is set."""
    key = os.environ.get(API_KEY)
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if key and not hmac.compare_digest(given.encode(), key.encode()):
        raise Refused(
            401, "Send the API key as `Authorization: Bearer KEY`.", **{"WWW-Authenticate": "Bearer"}
        )


def handle_errors(app: FastAPI) -> None:
    """Every refusal as `{"error": sentence}` with its status."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return JSONResponse({"error": error.sentence}, error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        if "json" not in request.headers.get("content-type", ""):
            return JSONResponse(
                {"error": "Send JSON, with the header `content-type: application/json`."}, 422
            )
        deepest = max(error.errors(), key=lambda e: len(e["loc"]))  # of the forms that a problem can have
        if deepest["type"] == "json_invalid":
            return JSONResponse({"error": f"The body is no JSON: {deepest['ctx']['error']}."}, 422)
        known = [part for part in deepest["loc"] if isinstance(part, int) or part in Problem.model_fields]
        where = ".".join(map(str, known)) or "the body"
        return JSONResponse({"error": f"{where}: {deepest['msg'].removeprefix('Value error, ')}."}, 422)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(
            {"error": f"{error.detail}: /docs lists the paths."}, error.status_code, error.headers
        )


def broken(error: BaseException) -> str:
    """What a client is told when the server itself fails; its log has the rest."""
    return f"The server failed: {type(error).__name__}."


class Edge:
    """The outermost ASGI middleware: counts answers, turns what breaks into a 500, and tells clients of a server
    that stops not to use their connection again."""

    def __init__(self, app: Any, solver: Solver) -> None:
        self.app, self.solver = app, solver

    async def __call__(self, scope: Any, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status = None

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.solver.stopping:
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if status is not None:
                raise  # too late for another answer: the connection is closed
            await JSONResponse({"error": broken(error)}, 500)(scope, receive, watched)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self.solver.metrics.requests.labels(path, status or "none").inc()


class BodyLimit:
    """ASGI middleware: a body beyond `most` bytes, announced or not, is answered with 413, and one that has not
    arrived within `seconds` with 408."""

    def __init__(self, app: Any, most: int, seconds: float) -> None:
        self.app, self.most, self.seconds = app, most, seconds

    async def __call__(self, scope: Any, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        body, more = b"", True
        try:
            async with asyncio.timeout(self.seconds):
                while more and len(body) <= self.most:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body, more = body + message.get("body", b""), message.get("more_body", False)
        except TimeoutError:
            late = f"The request did not arrive within {self.seconds:g} s."
            return await JSONResponse({"error": late}, 408, {"connection": "close"})(scope, receive, send)
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
