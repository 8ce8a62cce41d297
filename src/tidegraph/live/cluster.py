"""Replicas behind one address on a Ray cluster: Ray Serve starts them, spreads requests over them
and replaces those that die.

Every replica follows the writer over HTTP. What Ray carries is requests and answers, never events
on their way to the disk of anything but the writer.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from tidegraph.core.errors import ClusterError, ParameterError
from tidegraph.core.workers import Watch, connected
from tidegraph.live.guard import is_loopback
from tidegraph.live.replica import Replica
from tidegraph.live.service import ServiceSettings, create_app
from tidegraph.live.serving import url

_APPLICATION = "tidegraph"
_AT_ONCE = 1000  # requests of a replica, streams included; the service has limits of its own
_LOOKED_AT_S = 0.5
_QUIET = {"log_level": "WARNING", "enable_access_log": False}  # paths hold names of nodes
_apps: list[Any] = []  # of this process, if it is a replica


def check(replicas: int, address: str | None, writer: str) -> None:
    """Raise an error if Ray Serve is missing, or others could not reach the writer."""
    import ray  # noqa: F401 (the error that it is missing)

    try:
        from ray import serve  # noqa: F401
    except ImportError as error:
        raise ClusterError(
            f"Ray is installed without Ray Serve ({error}); pip install 'tidegraph[ray]'"
        ) from None
    if replicas < 1:
        raise ParameterError(f"replicas is {replicas}; give 1 or more")
    if address is None and not is_loopback(writer):
        raise ParameterError(
            f"the writer would listen at {writer}, and all replicas are on this machine; leave it"
            " out, or give the address of a cluster"
        )


@contextlib.contextmanager
def ready(address: str | None, replicas: int) -> Iterator[None]:
    """Connect to Ray for the duration, and take the replicas away at the end."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    with connected(address, replicas):
        from ray import serve

        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the cluster is gone, and they with it
                if address is None:
                    serve.shutdown()
                else:
                    serve.delete(_APPLICATION)


def serve_until(
    stopping: threading.Event,
    writer: str,
    host: str,
    port: int,
    replicas: int,
    settings: ServiceSettings,
    started: Callable[[], None],
) -> None:
    """Run replicas of the writer at an URL behind one host and port, until stopped.

    started: called once they all answer. Raises ClusterError if they do not, or all are lost.
    """
    from ray import serve

    serve.start(
        proxy_location="EveryNode",
        http_options={"host": host, "port": port},
        logging_config=_QUIET,
    )
    options: dict[str, Any] = {
        "num_replicas": replicas,
        "max_ongoing_requests": _AT_ONCE,
        "health_check_period_s": 2,
        "health_check_timeout_s": 30,
        "graceful_shutdown_timeout_s": 5,
        "graceful_shutdown_wait_loop_s": 0.5,
        "logging_config": _QUIET,
    }
    bound = serve.deployment(name="Replica", **options)(_deployment()).bind(writer, settings)
    target = serve.RunTarget(bound, name=_APPLICATION, route_prefix="/", logging_config=_QUIET)
    serve.run_many([target], wait_for_applications_running=False)
    _wait_until_running(stopping)
    if stopping.is_set():
        return
    _check_reached(host, port)
    started()
    watch = Watch()
    try:
        while not stopping.wait(_LOOKED_AT_S):
            if not watch.responds():
                raise ClusterError(
                    "the Ray cluster has stopped responding; confirmed events are on disk: give the"
                    " command again once it is back"
                )
    finally:
        watch.end()


def _wait_until_running(stopping: threading.Event) -> None:
    from ray import serve

    while not stopping.wait(_LOOKED_AT_S):
        found = serve.status().applications.get(_APPLICATION)
        if found is not None and found.status == "RUNNING":
            return
        if found is not None and found.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            each = [one.message for one in found.deployments.values() if one.message]
            reason = " ".join(" ".join([found.message, *each]).split())
            raise ClusterError(f"the replicas did not start ({reason[-500:]})")


def _check_reached(host: str, port: int) -> None:
    """Raise ClusterError unless the replicas answer there."""
    at, until = url(host, port), time.monotonic() + 30
    while True:
        try:
            if httpx.get(f"{at}/readyz", trust_env=False, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > until:
            raise ClusterError(
                f"the replicas run, and {at} does not lead to them: Ray Serve may run there already"
                " with another host and port; stop it with `serve shutdown`, or give its own"
            )
        time.sleep(_LOOKED_AT_S)


# In the process of a replica ----------------------------------------------------------------------


def _deployment() -> Any:
    """Return the class of which Ray Serve makes replicas; each has a process of its own."""
    from ray import serve

    @serve.ingress(_app)
    class Following:
        def __init__(self, writer: str, settings: ServiceSettings) -> None:
            self._replica = _following(writer, settings)

        def check_health(self) -> None:
            self._replica.check()

    return Following


def _following(writer: str, settings: ServiceSettings) -> Replica:
    """Return a replica that has caught up, and make the application that answers by it."""
    from ray import serve

    name = serve.get_replica_context().replica_id.unique_id
    replica = Replica(writer, token=settings.token, name=name)
    replica.wait(timeout_s=math.inf)  # it gets no requests before
    _apps.append(create_app(replica, settings))
    return replica


def _app() -> Any:
    return _apps[-1]
