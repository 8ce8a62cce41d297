"""`Steps`: the rows of a stream, grouped into what is applied together."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EventError, ParameterError
from tidegraph.events import columns
from tidegraph.events.batch import Batch
from tidegraph.events.columns import TIME_LIMIT, FloatArray, IntArray, Op, frozen
from tidegraph.events.notebook import event_rows, html_table

_set = object.__setattr__


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class Steps:
    """Rows to apply step by step: step `s` is the rows `offsets[s]:offsets[s+1]`.

    Step `s` has happened at `times[s]`. A query at time `q` sees the steps with `times[s] < q`.
    The constructor checks all columns and shares those that have the right types already.

    >>> Steps([0, 1], [1, 2], [5, 6], offsets=[0, 1, 2], times=[5, 6])
    Steps(steps=2, rows=2, times=5..6)
    """

    src: IntArray
    dst: IntArray
    t: IntArray  # non-decreasing
    weight: FloatArray | None
    op: NDArray[np.uint8] | None
    offsets: IntArray  # [steps + 1]
    times: IntArray  # [steps]

    def __init__(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        t: ArrayLike,
        weight: ArrayLike | None = None,
        op: ArrayLike | Op | None = None,
        offsets: ArrayLike = (0,),
        times: ArrayLike = (),
    ) -> None:
        sources = columns.nodes(src, "src")
        rows = len(sources)
        ops = columns.operations(op, rows)
        moments, bounds = columns.times(t, "t", rows), columns.integers(offsets, "offsets")
        ends = columns.times(times, "times")
        if len(bounds) != len(ends) + 1 or bounds[0] < 0 or bounds[-1] > rows:
            raise EventError(
                f"the steps have {len(ends)} times, {len(bounds)} offsets and {rows} rows; give one"
                " more offset than times, within the rows"
            )
        for name, values in (("t", moments), ("offsets", bounds), ("times", ends)):
            row = columns.first_decrease(values)
            if row is not None:
                raise EventError(
                    f"{name} of the steps must not decrease: {values[row]} at {row} follows"
                    f" {values[row - 1]}"
                )
        filled = np.flatnonzero(np.diff(bounds))
        late = moments[bounds[filled + 1] - 1] > ends[filled]
        if late.any():
            raise EventError(
                f"step {filled[late.argmax()]} has rows later than its time; a query at that time"
                " would see the future"
            )
        self._assign(
            sources,
            columns.nodes(dst, "dst", rows),
            moments,
            columns.weights(weight, ops, rows),
            ops,
            bounds,
            ends,
        )

    def _assign(self, *values: Any) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            _set(self, name, value)

    @classmethod
    def _of(cls, *values: Any) -> Steps:
        """Return the steps of columns that are checked already."""
        steps = cls.__new__(cls)
        steps._assign(*values)
        return steps

    @classmethod
    def from_snapshots(
        cls,
        graphs: Sequence[tuple[ArrayLike, ...]],
        times: ArrayLike,
        *,
        nodes: int | None = None,
        directed: bool = False,
    ) -> Steps:
        """Return the steps from each graph to the next, starting from no edges; one per graph.

        graphs: edge lists `(src, dst)` or `(src, dst, weight)`; rows of the same edge are summed.
        times: when each graph holds, ascending. A graph equal to its predecessor makes an empty
            step.
        nodes: node numbers must be below it, where given.
        directed: whether u→v and v→u are two edges; pass the same value to `Propagator`.

        >>> Steps.from_snapshots([([0], [1]), ([1], [2])], [10, 20]).op.tolist()
        [2, 1, 2]
        """
        when = columns.times(times, "times", len(graphs))
        if (np.diff(when) <= 0).any():
            raise EventError("times of snapshots must ascend; sort the graphs by time")
        checked = [_snapshot(graph, number, nodes) for number, graph in enumerate(graphs)]
        base = max(
            (int(ends.max()) + 1 for graph in checked for ends in graph[:2] if ends.size), default=1
        )
        if base > 2**31:
            raise EventError(f"snapshots hold node {base - 1}; node numbers stay below 2**31")
        changes: list[tuple[NDArray[Any], ...]] = []
        old_key, old_weight = np.empty(0, dtype=np.int64), np.empty(0)
        offsets = [0]
        for time, (src, dst, weight) in zip(when.tolist(), checked, strict=True):
            low, high = (src, dst) if directed else (np.minimum(src, dst), np.maximum(src, dst))
            key, edge = np.unique(low * base + high, return_inverse=True)
            total = np.bincount(edge, weights=weight, minlength=len(key)).astype(np.float64)
            gone = np.setdiff1d(old_key, key, assume_unique=True)
            at = np.searchsorted(old_key, key)
            # A key past the end of the old ones meets -1 and NaN, which equal nothing.
            same = np.append(old_key, -1)[at] == key
            same &= np.append(old_weight, np.nan)[at] == total
            changed = np.concatenate([gone, key[~same]])
            changes.append(
                (
                    changed // base,
                    changed % base,
                    np.full(len(changed), time, dtype=np.int64),
                    np.concatenate([np.full(len(gone), np.inf), total[~same]]),
                    np.repeat([Op.REMOVE, Op.SET], [len(gone), len(changed) - len(gone)]),
                )
            )
            offsets.append(offsets[-1] + len(changed))
            old_key, old_weight = key, total
        types: tuple[Any, ...] = (np.int64, np.int64, np.int64, np.float64, np.uint8)
        merged = (
            np.concatenate([np.empty(0, dtype), *(rows[k] for rows in changes)]).astype(dtype)
            for k, dtype in enumerate(types)
        )
        return cls._of(*map(frozen, merged), np.array(offsets, dtype=np.int64), when)

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, steps: slice) -> Steps:
        """Return consecutive steps; their rows are shared."""
        first, last, stride = steps.indices(len(self))
        if stride != 1:
            raise EventError(f"steps are consecutive, not {steps!r}; give a slice first:last")
        last = max(first, last)
        rows = (self.src, self.dst, self.t, self.weight, self.op)
        return Steps._of(*rows, self.offsets[first : last + 1], self.times[first:last])

    def batch(self, first: int, last: int) -> Batch:
        """Return the rows of the steps `first` to `last` (exclusive) as one batch."""
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        return Batch(
            src=self.src[rows],
            dst=self.dst[rows],
            t=self.t[rows],
            weight=None if self.weight is None else self.weight[rows],
            op=None if self.op is None else self.op[rows],
        )

    def __iter__(self) -> Iterator[Batch]:
        return (self.batch(step, step + 1) for step in range(len(self)))

    def _facts(self) -> dict[str, Any]:
        facts = {"steps": len(self), "rows": int(self.offsets[-1] - self.offsets[0])}
        return facts | ({"times": f"{self.times[0]}..{self.times[-1]}"} if len(self) else {})

    def __repr__(self) -> str:
        return f"Steps({', '.join(f'{name}={value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        return html_table("Steps", self._facts(), event_rows(self.batch(0, len(self))))


def _snapshot(
    graph: tuple[ArrayLike, ...], number: int, nodes: int | None
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return sources, destinations and weights of a given graph, checked."""
    if not 2 <= len(graph) <= 3:
        raise EventError(
            f"snapshot {number} has {len(graph)} columns; give (src, dst) or (src, dst, weight)"
        )
    src = columns.nodes(graph[0], f"src of snapshot {number}")
    dst = columns.nodes(graph[1], f"dst of snapshot {number}", len(src))
    if nodes is not None:
        columns.require_below(src, nodes, f"src of snapshot {number}")
        columns.require_below(dst, nodes, f"dst of snapshot {number}")
    given = graph[2] if len(graph) == 3 else None
    weight = columns.weights(given, None, len(src), f"weight of snapshot {number}")
    return src, dst, np.ones(len(src)) if weight is None else weight


# Steps of a stream --------------------------------------------------------------------------------

# A stream here is anything with src, dst, t, weight, op and nodes, its columns checked.


def by_time(stream: Any) -> Steps:
    """Return one step per distinct time."""
    return _grouped(stream, np.flatnonzero(np.diff(stream.t)) + 1)


def by_count(stream: Any, events: Any) -> Steps:
    """Return one step per `events` events."""
    size = columns.count(events, "events", "a positive number of events per step")
    return _grouped(stream, np.arange(size, len(stream.t), size))


def _grouped(stream: Any, first: NDArray[Any]) -> Steps:
    bounds = _bounds(first, len(stream.t))
    return Steps._of(*_rows(stream), bounds, stream.t[bounds[1:] - 1])


def _rows(stream: Any) -> list[Any]:
    """Return the columns of a stream as the engine reads them: a view may skip rows."""
    rows = (stream.src, stream.dst, stream.t, stream.weight, stream.op)
    return [None if column is None else frozen(column) for column in rows]


def by_snapshot(stream: Any, every: Any, window: Any, origin: Any, directed: bool) -> Steps:
    """Return one step per snapshot; see `EventStream.snapshots`."""
    every = columns.count(every, "every", "the length of a snapshot in ticks, 1 or more")
    origin = operator.index(origin)
    if not -TIME_LIMIT < origin < TIME_LIMIT:
        raise ParameterError(f"origin is {origin}; times lie between -2**62 and 2**62")
    index = (stream.t - origin) // every
    if len(index) and origin + (int(index[-1]) + 1) * every > TIME_LIMIT:
        raise ParameterError(f"every is {every}; snapshots must end before 2**62")
    if window is None:
        bounds = _bounds(np.flatnonzero(np.diff(index)) + 1, len(index))
        times = origin + (index[bounds[:-1]] + 1) * every - 1
        return Steps._of(*_rows(stream), bounds, times)
    size = columns.count(window, "window", "a number of snapshots, 1 or more")
    if stream.op is not None:
        raise EventError(
            "a window of snapshots needs events that add, and this stream has an op column;"
            " leave window out, or use a Channel with a window"
        )
    src, dst, leaving, weight, op = _departures(stream, index, size, directed)
    when = np.concatenate([leaving, index])
    # Both parts ascend; a stable sort puts the departures of a snapshot before its arrivals.
    order = np.argsort(when, kind="stable")
    bounds = _bounds(np.flatnonzero(np.diff(when[order])) + 1, len(when))
    arriving = np.ones(len(index)) if stream.weight is None else stream.weight
    return Steps._of(
        np.concatenate([src, stream.src])[order],
        np.concatenate([dst, stream.dst])[order],
        np.concatenate([origin + leaving * every, stream.t])[order],
        np.concatenate([weight, arriving])[order],
        np.concatenate([op, np.full(len(index), Op.ADD)])[order].astype(np.uint8),
        bounds,
        origin + (when[order][bounds[:-1]] + 1) * every - 1,
    )


def _departures(
    stream: Any, index: IntArray, size: int, directed: bool
) -> tuple[IntArray, IntArray, IntArray, FloatArray, NDArray[Any]]:
    """Return src, dst, snapshot, weight and op of rows that undo events after `size` snapshots."""
    last = int(index[-1]) if len(index) else 0
    leaving = int(np.searchsorted(index, last - size, side="right"))
    src, dst = stream.src, stream.dst
    if stream.weight is None or leaving == 0:
        ones = np.ones(leaving)
        return src[:leaving], dst[:leaving], index[:leaving] + size, ones, ones * Op.REMOVE
    # Subtracting from a float32 sum would leave rounding errors: sum what remains, in float64.
    if not directed:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    pair = np.unique(src * stream.nodes + dst, return_inverse=True)[1]
    moments = np.unique(np.concatenate([index, index[:leaving] + size]))
    place = pair * len(moments) + np.searchsorted(moments, index)  # by pair, then by snapshot
    order = np.argsort(place, kind="stable")
    gone, row = np.unique(place[:leaving], return_index=True)
    row = row[np.argsort(index[row], kind="stable")]
    gone, when = place[row], index[row] + size
    limit = pair[row] * len(moments) + np.searchsorted(moments, when)
    begin = np.searchsorted(place[order], gone, side="right")
    end = np.searchsorted(place[order], limit, side="left")
    ranges = np.stack([begin, end], axis=1).ravel()
    remaining = np.add.reduceat(np.append(stream.weight[order], 0.0), ranges)[::2]
    stays = end > begin
    return (
        src[row],
        dst[row],
        when,
        np.where(stays, remaining, np.inf),
        np.where(stays, Op.SET, Op.REMOVE),
    )


def _bounds(first: NDArray[Any], rows: int) -> IntArray:
    """Return the offsets of steps, given the rows at which all but the first begin."""
    if rows == 0:
        return np.zeros(1, dtype=np.int64)
    return np.concatenate([[0], first, [rows]]).astype(np.int64)
