"""What every request passes before it is answered: host, origin and token; and the headers of
every answer."""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_log = logging.getLogger(__name__)
_Message = MutableMapping[str, Any]
_App = Callable[[Any, Any, Any], Awaitable[None]]

# The page and the probes show nothing of the data, so they need no token.
OPEN_PATHS = frozenset(
    ("/", "/icon.svg", "/page.css", "/page.js", "/docs", "/openapi.json", "/livez", "/readyz")
)
_IN_QUERY = ("token", "access_token", "api_key", "authorization")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        b" img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _parts(url: str) -> tuple[str, str]:
    """Return host, and host with port, of an address; nothing for what is none."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.netloc
    except ValueError:  # half of a bracket
        return "", ""


class Guard:
    """An ASGI application that lets only permitted requests through to another one.

    token: what `Authorization: Bearer ...` has to hold; None: nothing is asked for.
    origins: other sites whose pages may ask, as in `https://example.org`.
    """

    def __init__(self, app: _App, *, token: str | None, origins: tuple[str, ...] = ()) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._origins = origins

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        begun = False

        async def with_headers(message: _Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        headers = {name.lower(): value for name, value in scope["headers"]}
        problem = self._problem(scope, headers)
        if problem is None:
            try:
                await self._app(scope, receive, with_headers)
                return
            except Exception:
                _log.exception("a request to %s failed", scope["path"].split("/nodes/")[0])
                if begun:
                    raise
                problem = (500, "internal", "the server failed; its log has the reason")
        status, code, text = problem
        body = json.dumps({"error": {"code": code, "message": text}}).encode()
        answer = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if status == 401:
            answer.append((b"www-authenticate", b"Bearer"))
        await with_headers({"type": "http.response.start", "status": status, "headers": answer})
        await with_headers({"type": "http.response.body", "body": body})

    def _problem(self, scope: Any, headers: dict[bytes, bytes]) -> tuple[int, str, str] | None:
        """Return status, code and message for a request that is not permitted, else None."""
        host = headers.get(b"host", b"").decode("latin-1")
        # Without a token, a page of another site must not reach the server under a name that its
        # owner makes point to this machine.
        if self._token is None and not is_loopback(_parts(f"//{host}")[0]):
            return (
                *(403, "wrong_host"),
                f"the Host is {host!r}; without a token, ask 127.0.0.1 or localhost",
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._same_site(origin.decode("latin-1"), host):
            return (
                *(403, "wrong_origin"),
                "pages of other sites may not ask; start the server with --cors ORIGIN to let one",
            )
        if self._token is None or scope["path"] in OPEN_PATHS:
            return None
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        # In constant time: how long it takes shows nothing of the token.
        same = hmac.compare_digest(given.strip(), self._token)
        if kind.lower() == b"bearer" and same:
            return None
        if scope["method"] == "OPTIONS" and origin is not None:  # asks without a token, by design
            return None
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
        message = "send the token of the server in the header Authorization: Bearer TOKEN"
        if any(name.lower() in _IN_QUERY for name, _ in query):
            message += "; in an address it would end up in logs"
        return 401, "unauthorized", message

    def _same_site(self, origin: str, host: str) -> bool:
        return origin in self._origins or _parts(origin)[1] == host
