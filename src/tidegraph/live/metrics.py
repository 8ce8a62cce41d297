"""Figures about a live state and its requests in the text format of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from tidegraph.live.questions import Questions

# Figures of `Live.stats`, by their name there.
_COUNTERS = {
    "events": "Events taken in",
    "late": "Events that came behind the watermark",
    "duplicates": "Events that were known already",
}
_GAUGES = {
    "seq": "Sequence number of the last event on disk",
    "applied_seq": "Sequence number that answers follow",
    "watermark": "Time before which events are late, in the unit of the server",
    "queue": "Events that wait to be applied",
    "nodes": "Nodes",
    "events_per_s": "Events applied per second, lately",
    "memory_bytes": "Memory of the process",
    "disk_bytes": "Files of the server",
    "certified_error": "Largest distance of a representation from the exact one",
}
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class _Figures(Collector):
    """What `Live.stats` returns, read when it is asked for."""

    def __init__(self, live: Questions) -> None:
        self._live = live

    def collect(self) -> Iterator[Metric]:
        stats = self._live.stats()
        for kind, names in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for name, meaning in names.items():
                value = stats.get(name)
                if isinstance(value, (int, float)):
                    yield kind(f"tidegraph_{name}", meaning, value=value)


class Metrics:
    """A registry of its own, so that several services may live in one process."""

    def __init__(self, live: Questions) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Figures(live))
        self._requests = Counter(
            *("tidegraph_requests", "Requests answered", ("method", "route", "status")),
            registry=self._registry,
        )
        self._seconds = Histogram(
            *("tidegraph_request_seconds", "Time to the end of an answer", ("route",)),
            registry=self._registry,
            buckets=_BUCKETS,
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> tuple[bytes, str]:
        """Return all figures, and their content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class Timed:
    """An ASGI application that counts the requests another one answers."""

    def __init__(self, app: Any, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, begun = 500, time.perf_counter()

        async def noting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            # Paths and methods that lead nowhere share one label, or anyone could fill the memory
            # with them.
            route = getattr(scope.get("route"), "path", "none")
            if route != "/v1/stream":  # lasts as long as its client
                method = "any" if route == "none" or status == 405 else scope["method"]
                self._metrics.count(method, route, status, time.perf_counter() - begun)
