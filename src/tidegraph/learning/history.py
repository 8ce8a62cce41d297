"""Numbers about what happened to nodes and pairs before a time, for a model to read."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import _native
from tidegraph.core.errors import DataError, EventError, ParameterError
from tidegraph.events.moments import time_numbers
from tidegraph.events.names import known_nodes
from tidegraph.events.stream import EventStream

_GAPS = ("last", "second_last", "fifth_last")
_LAST = (5, 20)  # events over which a share is taken


class History:
    """Counts, gaps, recent activity and habits of nodes and pairs, as of any time.

    Answers depend only on events strictly before the time of the question. Every number is a
    logarithm (of 1 + count, of 1 + time) except truth values and shares.

    nodes: the number of nodes.
    half_lives: recent activity is counted once with each, in the stream's unit of time.
    """

    def __init__(self, nodes: int, half_lives: Sequence[float] = ()) -> None:
        if any(not 0 < half_life < np.inf for half_life in half_lives):
            raise ParameterError(f"half_lives is {tuple(half_lives)}; give positive numbers")
        self.half_lives = tuple(float(half_life) for half_life in half_lives)
        self._native = _native.History(nodes, list(self.half_lives))
        recent = [f"events_within_{half_life:g}" for half_life in self.half_lives]
        role = ("events", *(f"time_since_{gap}" for gap in _GAPS), *recent)
        # The names of the columns of `of_nodes` and `of_links`.
        self.node_names = tuple(f"{name}_as_{end}" for end in ("src", "dst") for name in role)
        self.link_names = _link_names(self.node_names, recent)
        self._last: int | None = None
        self._lock = threading.Lock()  # the native calls release the interpreter's

    def __len__(self) -> int:
        return self._native.events

    @property
    def nodes(self) -> int:
        return self._native.nodes

    def append(self, stream: EventStream) -> None:
        """Add later events."""
        if not len(stream):
            return
        columns = self._nodes(stream.src), self._nodes(stream.dst), _times(stream.t)
        with self._lock:
            if self._last is not None and int(stream.t[0]) < self._last:
                raise EventError(
                    f"events start at {int(stream.t[0])}, but the history reaches {self._last};"
                    " append events in time order"
                )
            self._native.append(*columns)
            self._last = int(stream.t[-1])

    def of_nodes(self, nodes: ArrayLike, t: ArrayLike) -> NDArray[np.float32]:
        """Return a row for each node and time, `[len(nodes), len(node_names)]`."""
        numbers, times = self._nodes(nodes), _times(t)
        out = np.empty((len(numbers), self._native.node_columns), dtype=np.float32)
        _same_length(numbers, times)
        with self._lock:
            self._native.node_rows(numbers, times, out)
        return out

    def of_links(self, src: ArrayLike, dst: ArrayLike, t: ArrayLike) -> NDArray[np.float32]:
        """Return a row for each pair and time, `[len(src), len(link_names)]`."""
        sources, targets, times = self._nodes(src), self._nodes(dst), _times(t)
        _same_length(sources, targets, times)
        out = np.empty((len(sources), self._native.link_columns), dtype=np.float32)
        with self._lock:
            self._native.link_rows(sources, targets, times, out)
        return out

    def _nodes(self, nodes: ArrayLike) -> NDArray[np.int64]:
        return np.ascontiguousarray(known_nodes(nodes, self.nodes))


def _times(t: ArrayLike) -> NDArray[np.int64]:
    return np.ascontiguousarray(time_numbers(t))


def _same_length(*columns: NDArray[np.int64]) -> None:
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        shapes = ", ".join(str(column.shape) for column in columns)
        raise DataError(f"columns have shapes {shapes}; give vectors of one length")


def _link_names(node_names: Sequence[str], recent: Sequence[str]) -> tuple[str, ...]:
    pair = ("known", "events", "time_since_last", *recent, "src_events_since", "dst_events_since")
    parts = {
        "src": node_names,
        "dst": node_names,
        "pair": pair,
        "reverse": pair,
        "src_habits": _habits("dst", recent),
        "dst_habits": _habits("src", recent),
        "all": recent,
    }
    return tuple(f"{part}.{name}" for part, names in parts.items() for name in names)


def _habits(partner: str, recent: Sequence[str]) -> list[str]:
    return [
        f"different_{partner}",
        *(f"share_of_{kind}_in_{k}" for kind in ("new", "repeated") for k in _LAST),
        f"{partner}_is_recent",
        f"different_{partner}_since",
        *(
            f"{name}_after_{before}_{partner}"
            for before in ("last", "last_other")
            for name in ("events", "time_since", *recent)
        ),
    ]
