"""Requests that a replica passes on to its writer, with the answer as it came."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tidegraph.core.errors import BusyError, TidegraphError
from tidegraph.live.bodies import RequestError, received
from tidegraph.live.failures import RETRY_S, failed, request_error
from tidegraph.live.replica import Replica

# What changes something, and questions whose answers are in files of the writer.
FORWARDED = frozenset(
    (
        *("POST /v1/events", "GET /v1/position", "POST /v1/forget"),
        *("GET /v1/history", "GET /v1/quality", "GET /v1/versions"),
        *("POST /v1/versions/train", "POST /v1/versions/rollback"),
    )
)


class Forwarded:
    """An ASGI application that lets a writer answer some requests, and another one the rest.

    most: bytes of a body. at_once: requests that are passed on at the same time; others get 429.
    """

    def __init__(self, app: Any, *, replica: Replica, most: int, at_once: int) -> None:
        self._app, self._replica, self._most, self._at_once = app, replica, most, at_once
        self._limiter = anyio.CapacityLimiter(at_once)
        self._passing = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not _is_forwarded(scope):
            await self._app(scope, receive, send)
            return
        scope["route"] = SimpleNamespace(path=scope["path"])  # which requests are counted by
        try:
            answer = await self._answered(Request(scope, receive))
        except TidegraphError as error:
            found = error if isinstance(error, RequestError) else request_error(error)
            answer = failed(found)
        except ClientDisconnect:
            answer = Response(status_code=400)  # nobody reads it
        await answer(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        if self._passing >= self._at_once:
            raise BusyError(f"{self._passing} requests are being passed on already", RETRY_S)
        self._passing += 1
        try:
            length = request.headers.get("content-length")
            body = await received(request.stream(), length, self._most)
            status, headers, content = await anyio.to_thread.run_sync(
                self._replica.forward,
                *(request.method, request.url.path, request.url.query),
                *(dict(request.headers), body),
                limiter=self._limiter,
            )
        finally:
            self._passing -= 1
        return Response(content, status, headers)


def _is_forwarded(scope: Any) -> bool:
    route = f"{scope['method']} {scope['path']}"
    if route == "GET /v1/embedding":  # those of the past come from the record
        return "at" in parse_qs(scope["query_string"].decode("latin-1"), True)
    return route in FORWARDED
