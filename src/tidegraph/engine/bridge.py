"""From Python to the native engine: settings as its arguments, threads, and the lock around it."""

from __future__ import annotations

import threading
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph import _native
from tidegraph.core.errors import ParameterError
from tidegraph.core.machine import cores
from tidegraph.engine.channels import Channel, EngineSettings
from tidegraph.engine.saving import Description

Native: TypeAlias = "_native.PropagatorF32 | _native.PropagatorF64"

# Codes that native/ knows.
_DISTRIBUTIONS = {"gaussian": 0, "uniform": 1, "sign": 2}
_DIRECTIONS = {"out": 0, "in": 1, "both": 2}
_ALL, _DECAY, _WINDOW, _LAST = range(4)
_COPIED, _SKETCHED, _IN_PLACE = range(3)
# From this many nodes on, the first propagation begins with sweeps over all nodes, which divide
# even a single block of columns among threads. Part of the result's bits.
_SWEEP_NODES = 1 << 20


def make_native(
    described: Description, thresholds: NDArray[np.float64], threads: int, *, in_place: bool
) -> Native:
    """Return a native propagator that has no features and no edges yet.

    in_place: features will be read where they lie, instead of being copied.
    """
    settings, sketch = described.settings, described.sketch
    block_columns: Any = described.block_columns
    if not isinstance(block_columns, int) or not 8 <= block_columns <= 256:
        raise ParameterError(f"block_columns is {block_columns!r}; give a number from 8 to 256")
    versions: list[tuple[int, float, int, int]] = []
    views: list[tuple[int, int]] = []
    channels: list[tuple[int, float, float, float]] = []
    for channel in settings.channels:
        view = _index(versions, _version(channel, settings)), _DIRECTIONS[channel.direction]
        beta = settings.beta_of(channel)
        channels.append((_index(views, view), channel.gamma0, channel.gamma, beta))
    source = (_IN_PLACE if in_place else _COPIED, 0, 0, 0)
    if sketch is not None:
        distribution = _DISTRIBUTIONS[sketch.distribution]
        source = (_SKETCHED, sketch.seed, sketch.first_column, distribution)
    make = _native.PropagatorF32 if described.dtype == "float32" else _native.PropagatorF64
    return make(
        described.nodes,
        thresholds,
        settings.directed,
        settings.self_loop,
        settings.scale_by_degree,
        block_columns,
        threads,
        versions,
        views,
        channels,
        source,
        _SWEEP_NODES,
    )


def _index(items: list[Any], item: Any) -> int:
    """Return the position of an item in a list, appending it if it is new."""
    if item not in items:
        items.append(item)
    return items.index(item)


def _version(channel: Channel, settings: EngineSettings) -> tuple[int, float, int, int]:
    """Return kind, half-life, span and forget bits of the version of the graph a channel reads."""
    if channel.half_life is not None:
        return _DECAY, channel.half_life, 0, settings.forget_bits(channel.half_life)
    if channel.window is not None:
        return _WINDOW, 0.0, channel.window, 0
    if channel.last is not None:
        return _LAST, 0.0, channel.last, 0
    return _ALL, 0.0, 0, 0


def thread_count(threads: Any) -> int:
    """Return the number of threads to use; None means all cores this process may run on."""
    if threads is None:
        return cores()
    whole = isinstance(threads, (int, np.integer)) and not isinstance(threads, bool)
    if not whole or not 1 <= threads <= 1024:
        raise ParameterError(
            f"threads is {threads!r}; give a number from 1 to 1024, or None for all cores"
        )
    return int(threads)


class CallLock:
    """A lock that raises where a signal handler would wait for the call it has interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise RuntimeError(
                "a signal handler called a propagator during a call that it interrupted; have the"
                " handler set a flag, and act on it after the call"
            )
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = None
        self._lock.release()
