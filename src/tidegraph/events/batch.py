"""`Batch`: changes of a graph that take effect together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EventError
from tidegraph.events import columns
from tidegraph.events.columns import FloatArray, IntArray, Op, frozen
from tidegraph.events.notebook import event_rows, html_table

__all__ = ["Batch", "Op"]

_INT64 = np.dtype(np.int64)
_NONE: tuple[()] = ()  # CPython has a single empty tuple: `is` recognises the default
_NO_NODES: IntArray = frozen(np.empty(0, dtype=np.int64), own=True)
_set = object.__setattr__


def _distinct_nodes(values: Any, name: str) -> IntArray:
    array = columns.nodes(values, name, copy=True)
    nodes, counts = np.unique(array, return_counts=True)
    if nodes.size != array.size:
        twice = int(nodes[counts > 1][0])
        raise EventError(f"{name} names node {twice} more than once; give each node once")
    return array


def _times(t: Any, rows: int) -> tuple[IntArray, int | None]:
    """Return the time of every row, and the time at which the batch ends."""
    if type(t) is int or isinstance(t, np.integer):
        time = int(t)
        columns.check_time(time)
        if rows == 0:
            return _NO_NODES, time
        return frozen(np.full(rows, time, dtype=_INT64), own=True), time
    if not isinstance(t, (np.ndarray, list, tuple)) and np.ndim(t) == 0:
        raise EventError(f"t is {t!r}; times are integers: choose a unit that makes them whole")
    array = columns.times(t, "t", rows, copy=True)
    row = columns.first_decrease(array)
    if row is not None:
        raise EventError(
            f"times run backwards: row {row} is at {array[row]}, the row before it at"
            f" {array[row - 1]}; sort the rows by time"
        )
    return array, int(array[-1]) if rows else None


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Batch:
    """Changes of a graph that take effect together.

    The order within a batch is: new nodes, feature changes, edge rows as listed, node removals.
    The constructor checks everything that can be checked without the graph. The arrays are
    read-only copies.

    src, dst: node numbers `[rows]`.
    weight: `[rows]`, or None: rows that add or set have weight 1, removals remove the whole edge.
        A single removal with weight `inf` removes the whole edge.
    op: one per row, one `Op` for all rows, or None for additions.
    t: integer times `[rows]`, non-decreasing, or one for all rows; stored as `[rows]`.
        Without rows a single time advances the clock: windows expire and decay continues.
    new_nodes: how many nodes to append.
    new_features: `[new_nodes, columns]`, or None: sketched, or zero where features were given.
    feature_nodes, feature_values: nodes `[k]` and their new features `[k, columns]`.
    removed_nodes: nodes that disappear together with their edges.

    >>> batch = Batch(src=[0, 1], dst=[1, 2], t=5)
    >>> batch.rows, batch.time
    (2, 5)
    """

    src: IntArray
    dst: IntArray
    weight: FloatArray | None
    op: NDArray[np.uint8] | None
    t: IntArray | None  # [rows]
    new_nodes: int
    new_features: FloatArray | None
    feature_nodes: IntArray
    feature_values: FloatArray | None
    removed_nodes: IntArray
    time: int | None  # when the batch ends: its last t, or where an empty batch sets the clock

    def __init__(
        self,
        src: ArrayLike = (),
        dst: ArrayLike = (),
        *,
        weight: ArrayLike | None = None,
        op: ArrayLike | Op | None = None,
        t: ArrayLike | int | None = None,
        new_nodes: int = 0,
        new_features: ArrayLike | None = None,
        feature_nodes: ArrayLike = (),
        feature_values: ArrayLike | None = None,
        removed_nodes: ArrayLike = (),
    ) -> None:
        sources = _NO_NODES if src is _NONE else columns.nodes(src, "src", copy=True)
        rows = len(sources)
        if dst is _NONE and rows == 0:
            destinations = _NO_NODES
        else:
            destinations = columns.nodes(dst, "dst", rows, copy=True)
        ops = None if op is None else columns.operations(op, rows, copy=True)
        times, time = (None, None) if t is None else _times(t, rows)
        _set(self, "src", sources)
        _set(self, "dst", destinations)
        _set(self, "op", ops)
        _set(self, "weight", columns.weights(weight, ops, rows, copy=True))
        _set(self, "t", times)
        _set(self, "time", time)
        features_stay = new_features is None and feature_nodes is _NONE and feature_values is None
        if features_stay and new_nodes == 0 and removed_nodes is _NONE:
            _set(self, "new_nodes", 0)
            _set(self, "new_features", None)
            _set(self, "feature_nodes", _NO_NODES)
            _set(self, "feature_values", None)
            _set(self, "removed_nodes", _NO_NODES)
        else:
            self._set_node_events(
                new_nodes, new_features, feature_nodes, feature_values, removed_nodes
            )

    def _set_node_events(
        self,
        new_nodes: int,
        new_features: ArrayLike | None,
        feature_nodes: ArrayLike,
        feature_values: ArrayLike | None,
        removed_nodes: ArrayLike,
    ) -> None:
        accepted = "how many nodes to append, 0 or more"
        count = columns.count(new_nodes, "new_nodes", accepted, least=0, error=EventError)
        changed = _distinct_nodes(feature_nodes, "feature_nodes")
        if feature_values is None and changed.size:
            raise EventError("feature_nodes came without feature_values; give a row per node")
        _set(self, "new_nodes", count)
        _set(self, "feature_nodes", changed)
        for name, values, rows in (
            ("new_features", new_features, count),
            ("feature_values", feature_values, changed.size),
        ):
            matrix = columns.features(values, rows, name, dtype=np.float64, copy=True)
            _set(self, name, matrix)
        _set(self, "removed_nodes", _distinct_nodes(removed_nodes, "removed_nodes"))

    @property
    def rows(self) -> int:
        """The number of edge rows."""
        return len(self.src)

    def _facts(self) -> dict[str, int]:
        facts = {
            "new_nodes": self.new_nodes,
            "feature_nodes": self.feature_nodes.size,
            "removed_nodes": self.removed_nodes.size,
        }
        time = {} if self.time is None else {"time": self.time}
        return {"rows": self.rows, **time, **{name: size for name, size in facts.items() if size}}

    def __repr__(self) -> str:
        return f"Batch({', '.join(f'{name}={value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        return html_table("Batch", self._facts(), event_rows(self))
