"""Changes of a graph as columns: the one form in which events enter tidegraph."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EventError, TidegraphError

__all__ = [
    "TIME_LIMIT",
    "WEIGHT_MAX",
    "WEIGHT_MIN",
    "WEIGHT_RANGE",
    "Batch",
    "Op",
    "whole_numbers",
]

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]

TIME_LIMIT = 2**62  # |t| stays below it, so that no difference of two times leaves int64
_SMALL = 32  # up to here a Python loop over a list beats the fixed cost of a NumPy reduction
WEIGHT_MIN, WEIGHT_MAX = 2.0**-64, 2.0**64  # room for sums and decay in float32
WEIGHT_RANGE = "weights lie between 2**-64 and 2**64"
_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)
_NONE: tuple[()] = ()  # CPython keeps one empty tuple: `is` recognises the default
_set = object.__setattr__


class Op(IntEnum):
    """What a row does to its edge: add weight, remove weight, or set the weight."""

    ADD = 0
    REMOVE = 1
    SET = 2


def _frozen(array: NDArray[Any]) -> Any:
    array.setflags(write=False)
    return array


_NO_IDS: IntArray = _frozen(np.empty(0, dtype=np.int64))


def whole_numbers(
    values: Any,
    name: str,
    *,
    advice: str = "",
    error: type[TidegraphError] = EventError,
) -> IntArray:
    """`values` as int64, in the same shape; what is no integer, or too large, is an error.

    >>> whole_numbers(np.array([3], dtype=np.uint64), "nodes")
    array([3])
    """
    array = np.asarray(values)
    if array.dtype == _INT64:
        return array
    if array.size == 0 and not isinstance(values, np.ndarray):
        return array.astype(np.int64)  # an empty list has no type of its own
    if array.dtype.kind not in "iu":
        given = f", not {array.ravel()[:1].tolist()[0]!r}" if array.size else ""
        end = f": {advice}" if advice else ""
        raise error(f"{name} has dtype {array.dtype}; integers are needed{given}{end}")
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 2**63:
        raise error(
            f"{name} holds {int(array.max())}, which does not fit into int64; give integers below"
            " 2**63"
        )
    return array.astype(np.int64)


def _integers(values: Any, name: str) -> IntArray:
    """`values` as a fresh read-only int64 vector; nothing that is not an integer is converted."""
    try:
        array = np.array(values, order="C")
    except (ValueError, TypeError, OverflowError) as error:
        raise EventError(f"{name} is not a vector of integers: {error}") from None
    if array.ndim != 1:
        raise EventError(f"{name} has shape {array.shape}; give a vector [rows]")
    if array.dtype != _INT64:
        if array.size == 0 and not isinstance(values, np.ndarray):
            return _NO_IDS  # an empty list has no type of its own
        advice = "convert with .astype('int64') where no information is lost"
        array = whole_numbers(array, name, advice=advice)
    array.setflags(write=False)
    return array


def _ids(values: Any, name: str) -> IntArray:
    """Node ids: integers from 0 (whether they exist is the propagator's question)."""
    array = _integers(values, name)
    if array.size:
        low = min(array.tolist()) if array.size <= _SMALL else int(array.min())
        if low < 0:
            raise EventError(f"{name} holds the node id {low}; ids count from 0")
    return array


def _unique_ids(values: Any, name: str) -> IntArray:
    array = _ids(values, name)
    ids, counts = np.unique(array, return_counts=True)
    if ids.size != array.size:
        twice = int(ids[counts > 1][0])
        raise EventError(f"{name} names node {twice} more than once; give each node once")
    return array


def _feature_rows(values: Any, rows: int, name: str) -> FloatArray | None:
    """Feature rows as a fresh read-only float64 matrix with `rows` rows, all finite."""
    if values is None:
        return None
    try:
        array = np.array(values, order="C")
    except (ValueError, TypeError) as error:
        raise EventError(f"{name} is not a matrix of numbers: {error}") from None
    if array.dtype.kind not in "fiu":
        raise EventError(f"{name} has dtype {array.dtype}; floating-point numbers are needed")
    if array.ndim != 2 or array.shape[0] != rows:
        raise EventError(f"{name} has shape {array.shape}; give [{rows}, columns], a row per node")
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise EventError(f"{name} holds NaN or infinity; features must be finite")
    array.setflags(write=False)
    return array


def _operations(op: Any, rows: int) -> NDArray[np.uint8] | None:
    """`op` as a uint8 vector, or None where every row is an addition."""
    if isinstance(op, Op):
        return None if op is Op.ADD else _frozen(np.full(rows, int(op), dtype=np.uint8))
    array = np.array(op)
    if array.ndim == 0 and array.dtype.kind in "iu":
        array = np.full(rows, array)
    if array.shape != (rows,):
        raise EventError(
            f"op has shape {array.shape}; give one per row ({rows}), a single Op, or None: all ADD"
        )
    if rows == 0:
        return None
    known = array.dtype.kind in "iu"
    if known and rows <= _SMALL:
        known = all(0 <= code <= 2 for code in array.tolist())
    elif known:
        known = int(array.min()) >= 0 and int(array.max()) <= 2
    if not known:
        raise EventError("op holds something else than Op.ADD (0), Op.REMOVE (1) and Op.SET (2)")
    return _frozen(array.astype(np.uint8))  # type: ignore[no-any-return]


def _weights(weight: Any, op: NDArray[np.uint8] | None, rows: int) -> FloatArray:
    try:
        array = np.array(weight, order="C")
    except (ValueError, TypeError) as error:
        raise EventError(f"weight is not a vector of numbers: {error}") from None
    if array.dtype != _FLOAT64:
        if array.dtype.kind not in "fiu":
            raise EventError(f"weight has dtype {array.dtype}; floating-point numbers are needed")
        array = array.astype(np.float64)
    if array.shape != (rows,):
        raise EventError(f"weight has shape {array.shape}; give one per row ({rows}), or None")
    array.setflags(write=False)
    if op is None and rows <= _SMALL and all(WEIGHT_MIN <= w <= WEIGHT_MAX for w in array.tolist()):
        return array
    fine = (array >= WEIGHT_MIN) & (array <= WEIGHT_MAX)
    if op is not None:
        fine |= (op == Op.REMOVE) & (array > 0)  # inf takes the whole edge
    if not fine.all():
        row = int(fine.argmin())
        raise EventError(
            f"weight of row {row} is {array[row]}; weights are positive and between 2^-64 and"
            " 2^64; only a REMOVE may say inf: the whole edge"
        )
    return array


def _times(t: Any, rows: int) -> tuple[IntArray, int | None]:
    """Times per row, and the time at which the batch ends."""
    if type(t) is int or isinstance(t, np.integer):
        time = int(t)
        if not -TIME_LIMIT < time < TIME_LIMIT:
            raise EventError(f"t is {time}; times lie strictly between -2**62 and 2**62")
        if rows == 0:
            return _NO_IDS, time
        times = np.array([time], dtype=_INT64) if rows == 1 else np.full(rows, time, dtype=_INT64)
        return _frozen(times), time
    if not isinstance(t, (np.ndarray, list, tuple)) and np.ndim(t) == 0:
        raise EventError(f"t is {t!r}; times are integers (choose a unit that makes them whole)")
    array = _integers(t, "t")
    if array.size != rows:
        raise EventError(
            f"t has {array.size} entries for {rows} rows; give one per row or one for all"
        )
    if rows == 0:
        return array, None
    if rows > 1:
        back = array[1:] < array[:-1]
        if back.any():
            row = int(back.argmax()) + 1
            raise EventError(
                f"times run backwards: row {row} is at {array[row]}, the row before it"
                f" at {array[row - 1]}; sort the rows by time"
            )
    first, last = int(array[0]), int(array[-1])
    if first <= -TIME_LIMIT or last >= TIME_LIMIT:
        raise EventError(f"t spans {first} to {last}; times lie strictly between -2**62 and 2**62")
    return array, last


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Batch:
    """Changes of a graph that take effect together.

    Inside a batch the order is: new nodes, feature changes, edge rows as listed, node removals.
    Once a batch exists, everything that can be judged without knowing the graph has been checked;
    its arrays are copies and read-only.

    src, dst: node ids `[rows]`.
    weight: `[rows]`, or None: additions and settings are 1, removals take the whole edge.
        A single removal says `inf` for the whole edge.
    op: one per row, an `Op` for all rows, or None for additions; kept as None where all are.
    t: integer times `[rows]`, not decreasing, or one for all rows; kept as `[rows]`.
        Without rows a single time moves the clock: windows expire and decay goes on.
    new_nodes: how many nodes are appended.
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
    time: int | None  # when the batch ends: its last t, or where an empty batch moves the clock

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
        src_ids = _NO_IDS if src is _NONE else _ids(src, "src")
        dst_ids = _NO_IDS if dst is _NONE else _ids(dst, "dst")
        rows = len(src_ids)
        if len(dst_ids) != rows:
            raise EventError(
                f"src has {rows} entries, dst has {len(dst_ids)}; give one of each per row"
            )
        ops = None if op is None else _operations(op, rows)
        times, time = (None, None) if t is None else _times(t, rows)
        _set(self, "src", src_ids)
        _set(self, "dst", dst_ids)
        _set(self, "op", ops)
        _set(self, "weight", None if weight is None else _weights(weight, ops, rows))
        _set(self, "t", times)
        _set(self, "time", time)
        features_stay = new_features is None and feature_nodes is _NONE and feature_values is None
        if features_stay and new_nodes == 0 and removed_nodes is _NONE:
            _set(self, "new_nodes", 0)
            _set(self, "new_features", None)
            _set(self, "feature_nodes", _NO_IDS)
            _set(self, "feature_values", None)
            _set(self, "removed_nodes", _NO_IDS)
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
        try:
            count = -1 if isinstance(new_nodes, (bool, np.bool_)) else operator.index(new_nodes)
        except TypeError:
            count = -1
        if not 0 <= count < 2**62:
            raise EventError(
                f"new_nodes is {new_nodes!r}; give how many nodes to append, 0 or more"
            )
        changed = _unique_ids(feature_nodes, "feature_nodes")
        if feature_values is None and changed.size:
            raise EventError("feature_nodes came without feature_values; give a row per node")
        _set(self, "new_nodes", count)
        _set(self, "new_features", _feature_rows(new_features, count, "new_features"))
        _set(self, "feature_nodes", changed)
        _set(self, "feature_values", _feature_rows(feature_values, changed.size, "feature_values"))
        _set(self, "removed_nodes", _unique_ids(removed_nodes, "removed_nodes"))

    @property
    def rows(self) -> int:
        """The number of edge rows."""
        return len(self.src)

    def __repr__(self) -> str:
        parts = [f"rows={self.rows}"]
        if self.time is not None:
            parts.append(f"time={self.time}")
        if self.new_nodes:
            parts.append(f"new_nodes={self.new_nodes}")
        if self.feature_nodes.size:
            parts.append(f"feature_nodes={self.feature_nodes.size}")
        if self.removed_nodes.size:
            parts.append(f"removed_nodes={self.removed_nodes.size}")
        return f"Batch({', '.join(parts)})"
