"""A service run by this process until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import uvicorn

from tidegraph.core.errors import ParameterError, StorageError
from tidegraph.live.guard import is_loopback
from tidegraph.live.service import Described, ServiceSettings, create_app, stop_streams

if TYPE_CHECKING:
    from tidegraph.live.live import Live

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE_S = 10  # for requests that are being answered when the server stops


def check_token(host: str, token: str | None) -> None:
    """Raise ParameterError if others could reach a server without a token."""
    if token is None and not is_loopback(host):
        raise ParameterError(
            f"host is {host}, which other machines can reach; give a token, or host 127.0.0.1"
        )
    if token is not None and (not token.isascii() or not token.isprintable() or len(token) < 8):
        raise ParameterError("the token is not 8 or more visible ASCII characters; give another")


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio lets answers out at once; they would wait 40 ms otherwise.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except (OSError, OverflowError) as error:
        made.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        advice = "something else listens there; give another port" if taken else str(error)
        raise StorageError(f"cannot listen on port {port} of {host}: {advice}") from None
    return made


def address(made: socket.socket) -> str:
    """Return the address at which a socket is reached from this machine."""
    return url(*made.getsockname()[:2])


def url(host: str, port: int) -> str:
    """Return the address of a host and port, as this machine reaches it."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(
    live: Live,
    made: socket.socket,
    settings: ServiceSettings,
    *,
    more: Sequence[Described] = (),
    started: Callable[[], None] = lambda: None,
    meanwhile: Callable[[threading.Event], None] | None = None,
) -> None:
    """Answer requests at a socket until SIGINT or SIGTERM; a second one does not wait for them.

    meanwhile: work for another thread, which ends soon after the event is set. If it raises, the
        server stops and the error is raised again.
    """
    stopping = threading.Event()
    app = create_app(live, settings, more)
    server = _Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
            lifespan="off",
        )
    )

    def stop(*_: Any) -> None:
        server.force_exit = server.should_exit
        server.should_exit = True
        stopping.set()
        stop_streams(app)

    async def serve() -> None:
        task = asyncio.create_task(server.serve(sockets=[made]))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started:
            started()
            if meanwhile is not None:
                try:
                    await asyncio.to_thread(meanwhile, stopping)
                finally:
                    if not stopping.is_set():
                        stop()
                    await task
        await task

    before = {each: signal.signal(each, stop) for each in _SIGNALS}
    try:
        asyncio.run(serve())
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
