"""Events in the order in which they happened, as columns, and the steps in which to apply them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.errors import DataError, EventError
from tidegraph.events import Batch, Op

__all__ = ["Edges", "EventStream", "NodeLabels", "NodeNames", "ReadReport", "Steps"]

IntArray = NDArray[np.int64]

UNITS = ("ns", "us", "ms", "s", "min", "h", "day", "year", "step")


class NodeNames:
    """The ids that a file gave its nodes: strings or integers, by number."""

    __slots__ = ("_numbers", "values")

    def __init__(self, values: ArrayLike) -> None:
        self.values = np.array(values)
        self.values.setflags(write=False)
        self._numbers: dict[Any, int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Any:
        return self.values[number].item()

    def numbers(self, ids: ArrayLike) -> IntArray:
        """The numbers of these ids; an unknown id is an error that names it."""
        if self._numbers is None:
            self._numbers = {name: number for number, name in enumerate(self.values.tolist())}
        wanted = np.asarray(ids).tolist()
        try:
            return np.array([self._numbers[name] for name in wanted], dtype=np.int64)
        except KeyError as error:
            raise DataError(
                f"node {error.args[0]!r} is unknown; ids look like {self.values[0].item()!r}"
            ) from None


@dataclass(frozen=True, eq=False, slots=True)
class Edges:
    """A graph as a list of edges, for instance the one a stream starts from."""

    src: IntArray
    dst: IntArray
    weight: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class NodeLabels:
    """What was observed of nodes: `label[k]` holds for `node[k]` and is known from `t[k]` on."""

    node: IntArray
    t: IntArray
    label: NDArray[np.int64]
    part: NDArray[np.uint8] | None = None  # 0 train, 1 validation, 2 test, where the data says so


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What became of the rows of a file, and how its columns were understood."""

    source: str
    read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> rows
    notes: tuple[str, ...] = ()  # "t: column 'timestamp', unit s", ...


def _frozen(array: Any, dtype: Any) -> Any:
    result = np.ascontiguousarray(array, dtype=dtype)
    if result is array and result.flags.writeable:
        result = result.view()
    result.setflags(write=False)
    return result


@dataclass(frozen=True, eq=False, slots=True)
class EventStream:
    """Edges in the order in which they happened, between nodes 0 .. nodes-1.

    Columns are read-only and as long as the stream; a view shares them. What stands beside the
    events (names, initial graph, node features and labels) belongs to all views alike.
    """

    src: IntArray
    dst: IntArray
    t: IntArray  # non-decreasing
    nodes: int
    unit: str = "s"  # of t
    weight: NDArray[np.float64] | None = None  # None: every event counts 1
    op: NDArray[np.uint8] | None = None  # None: every event adds
    edge_features: NDArray[np.float32] | None = None  # [events, columns]
    labels: IntArray | None = None  # of the event's source at the event
    names: NodeNames | None = None  # None: the file's ids were 0 .. nodes-1
    initial: Edges | None = None
    node_features: NDArray[np.float32] | None = None  # [nodes, columns]
    node_labels: NodeLabels | None = None
    title: str = ""
    report: ReadReport | None = None

    def __len__(self) -> int:
        return len(self.t)

    # Views ----------------------------------------------------------------------------------------

    def _take(self, rows: slice | NDArray[Any]) -> EventStream:
        columns = ("src", "dst", "t", "weight", "op", "edge_features", "labels")
        taken: dict[str, Any] = {}
        for name in columns:
            value = getattr(self, name)
            taken[name] = None if value is None else value[rows]
        return replace(self, **taken)

    def __getitem__(self, rows: slice) -> EventStream:
        """The events at these positions, which must ascend."""
        if rows.step is not None and rows.step < 1:
            raise EventError(f"a stream is cut by an ascending slice, not by {rows!r}; see where()")
        return self._take(rows)

    def where(self, mask: ArrayLike) -> EventStream:
        """The events for which `mask` is true."""
        chosen = np.asarray(mask)
        if chosen.dtype != np.bool_ or chosen.shape != (len(self),):
            raise EventError(
                f"mask has dtype {chosen.dtype} and shape {chosen.shape};"
                f" give booleans [{len(self)}], one per event"
            )
        return self._take(chosen)

    def before(self, t: int) -> EventStream:
        """The events strictly before `t`."""
        return self._take(slice(0, int(np.searchsorted(self.t, t, side="left"))))

    def between(self, first: int, last: int) -> EventStream:
        """The events at `first <= t < last`."""
        begin, end = np.searchsorted(self.t, [first, last], side="left")
        return self._take(slice(int(begin), int(end)))

    # Steps ----------------------------------------------------------------------------------------

    def steps(self, *, events: int | None = None) -> Steps:
        """One step per distinct time, or per so many events."""
        if events is None:
            first = np.flatnonzero(np.diff(self.t)) + 1
        else:
            first = np.arange(events, len(self), events)
        offsets = np.concatenate([[0], first, [len(self)]]) if len(self) else np.zeros(1)
        bounds = offsets.astype(np.int64)
        return Steps(
            self.src, self.dst, self.t, self.weight, self.op, bounds, self.t[bounds[1:] - 1]
        )

    def digest(self) -> str:
        """A hash of the events themselves, whatever file they came from."""
        state = hashlib.blake2b(digest_size=16)
        for column in (self.src, self.dst, self.t, self.weight, self.op, self.labels):
            state.update(b"-" if column is None else np.ascontiguousarray(column).tobytes())
        return state.hexdigest()


@dataclass(frozen=True, eq=False, slots=True)
class Steps:
    """Rows to apply one step after the other: step `s` are the rows `offsets[s]:offsets[s+1]`.

    `times[s]` is when step `s` has happened: nothing of it may be seen by a question about that
    time or an earlier one.
    """

    src: IntArray
    dst: IntArray
    t: IntArray
    weight: NDArray[np.float64] | None
    op: NDArray[np.uint8] | None
    offsets: IntArray
    times: IntArray

    def __len__(self) -> int:
        return len(self.times)

    def batch(self, first: int, last: int) -> Batch:
        """The rows of the steps `first` to `last` (not included) as one batch."""
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        return Batch(
            src=self.src[rows],
            dst=self.dst[rows],
            t=self.t[rows],
            weight=None if self.weight is None else self.weight[rows],
            op=Op.ADD if self.op is None else self.op[rows],
        )

    def __iter__(self) -> Iterator[Batch]:
        return (self.batch(step, step + 1) for step in range(len(self)))
