"""A service on a free port of this machine, in a thread of the test."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from tidegraph.live.service import ServiceSettings, create_app, stop_streams
from tidegraph.live.serving import address, listening


class Served(httpx.Client):
    """A client of a service, with the service's application."""

    app: FastAPI


@contextlib.contextmanager
def served(live: Any, *, port: int = 0, **settings: Any) -> Iterator[Served]:
    """Serve a live state over HTTP, and yield a client of it."""
    app = create_app(live, ServiceSettings(**settings))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
    with listening("127.0.0.1", port) as made:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [made]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server ended before it started"
                time.sleep(0.01)
            with Served(base_url=address(made), timeout=30, trust_env=False) as client:
                client.app = app
                yield client
        finally:
            stop_streams(app)
            server.should_exit = True
            thread.join(20)
