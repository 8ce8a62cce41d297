"""What a request is answered that fails: a status, a code, and what to do."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tidegraph.core.errors import (
    BusyError,
    DataError,
    EvaluationError,
    EventError,
    ParameterError,
    ServerError,
    ShortOfMemoryError,
    StorageError,
    TidegraphError,
    UnknownNodeError,
)
from tidegraph.live.bodies import JSON, RequestError

_log = logging.getLogger(__name__)
RETRY_S = 1.0  # after which a client that was turned away may try again


def add_handlers(app: FastAPI) -> None:
    """Let every error be answered in one shape, without a traceback."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, TidegraphError)
        found = error if isinstance(error, RequestError) else request_error(error)
        if found.status == 500:
            _log.error("a request failed", exc_info=error)
        return failed(found)

    async def of_parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        field = str(first["loc"][-1])
        message = f"{field}: {first['msg']}"
        return failed(RequestError(422, "bad_request", message, field=field))

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        message = f"{error.detail}; /docs lists what there is"
        return failed(RequestError(error.status_code, code, message), error.headers)

    async def of_client(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # nobody reads it

    app.add_exception_handler(TidegraphError, ours)
    app.add_exception_handler(RequestValidationError, of_parameters)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(ClientDisconnect, of_client)


def failed(error: RequestError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to a request that failed."""
    problem: dict[str, Any] = {"code": error.code, "message": str(error)}
    problem |= {} if error.line is None else {"line": error.line}
    problem |= {} if error.field is None else {"field": error.field}
    answer = Response(msgspec.json.encode({"error": problem}), media_type=JSON)
    answer.status_code = error.status
    answer.headers.update(headers or {})
    if error.retry_after_s is not None:
        answer.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return answer


def request_error(error: TidegraphError) -> RequestError:
    """Return the answer to a request that raised an error of the package."""
    message = " ".join(str(error).split())
    if isinstance(error, UnknownNodeError):
        return RequestError(404, "unknown_node", message)
    if isinstance(error, BusyError):
        return RequestError(429, "busy", message, retry_after_s=error.retry_after_s)
    if isinstance(error, ServerError):
        return RequestError(503, "away", message, retry_after_s=RETRY_S)
    if isinstance(error, (StorageError, ShortOfMemoryError)):
        return RequestError(503, "no_room", message, retry_after_s=5 * RETRY_S)
    if isinstance(error, (EventError, DataError, ParameterError, EvaluationError)):
        return RequestError(422, "bad_request", message, field=getattr(error, "field", None))
    return RequestError(500, "internal", message)
