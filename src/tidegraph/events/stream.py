"""Events in the order in which they happened, as columns, and the steps in which to apply them."""

from __future__ import annotations

import contextlib
import hashlib
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core import statefile
from tidegraph.core.errors import DataError, EventError, ParameterError, StateFileError
from tidegraph.events.batch import TIME_LIMIT, WEIGHT_MAX, WEIGHT_MIN, Batch, Op, whole_numbers

__all__ = [
    "PER_SECOND",
    "UNITS",
    "Edges",
    "EventStream",
    "NodeLabels",
    "NodeNames",
    "ReadReport",
    "Steps",
    "counted",
    "known_nodes",
    "moment",
    "node_numbers",
    "time_numbers",
]

IntArray = NDArray[np.int64]

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNITS = ("ns", "us", "ms", "s", "min", "h", "day", "year", "step")
_ROWS = ("src", "dst", "t", "weight", "op", "edge_features", "labels")  # one entry per event
_FORMAT = 1  # of saved streams


class NodeNames:
    """The ids that a file gave its nodes: strings or integers, by number.

    `values[number]` is the id; strings are kept in NumPy's variable-width type.

    >>> NodeNames(["ann", "bob"]).numbers(["bob", "ann"])
    array([1, 0])
    """

    __slots__ = ("_order", "values")

    def __init__(self, values: ArrayLike) -> None:
        array = np.asarray(values)
        if array.ndim != 1:
            raise DataError(f"names have shape {array.shape}; give one per node")
        if array.dtype.kind in "iu":
            array = np.array(whole_numbers(array, "names", error=DataError))
        else:
            array = np.array(array.tolist() if array.dtype.kind == "O" else array, dtype=_STRING)
        array.setflags(write=False)
        self.values: NDArray[Any] = array
        self._order: Any = None  # integers: numbers in ascending order of ids; strings: Arrow array

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Any:
        value = self.values[number]
        return value if isinstance(value, str) else value.item()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeNames) and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    def numbers(self, ids: ArrayLike) -> IntArray:
        """The numbers of these ids, in the same shape; an unknown id is an error that names it."""
        wanted = np.asarray(ids)
        if self.values.dtype.kind == "i":
            found = self._integer_numbers(wanted)
        else:
            found = self._string_numbers(wanted)
        unknown = found.ravel() < 0
        if unknown.any():
            name = np.atleast_1d(wanted).ravel().tolist()[int(unknown.argmax())]
            known = f"ids look like {self[0]!r}" if len(self) else "no node has a name"
            raise DataError(f"node {name!r} is unknown; {known}")
        return found

    def _integer_numbers(self, wanted: NDArray[Any]) -> IntArray:
        if wanted.size == 0 or not len(self):
            return np.full(wanted.shape, -1, dtype=np.int64)
        if wanted.dtype.kind not in "iu":
            raise DataError(
                f"node {wanted.ravel().tolist()[0]!r} is unknown; ids are integers like {self[0]!r}"
            )
        if self._order is None:
            self._order = np.argsort(self.values, kind="stable")
        order = self._order
        # int64 against uint64 would be searched in float64; what wraps around here equals nothing.
        key = wanted.astype(np.int64)
        at = np.minimum(np.searchsorted(self.values, key, sorter=order), len(order) - 1)
        numbers = order[at]
        return np.where(self.values[numbers] == wanted, numbers, -1)

    def _string_numbers(self, wanted: NDArray[Any]) -> IntArray:
        import pyarrow as pa  # here: it takes longer to import than all else together
        import pyarrow.compute

        if self._order is None:
            self._order = pa.array(self.values, type=pa.large_string())
        asked = pa.array([str(name) for name in wanted.ravel().tolist()], type=pa.large_string())
        found = pyarrow.compute.index_in(asked, value_set=self._order).fill_null(-1)
        return found.to_numpy(zero_copy_only=False).astype(np.int64).reshape(wanted.shape)  # type: ignore[no-any-return]


_STRING = np.dtypes.StringDType()


def node_numbers(values: ArrayLike) -> IntArray:
    """The numbers of nodes as int64, in the same shape; whether there are such nodes stays open."""
    advice = "stream.number(ids) gives those of ids"
    return _asked(values, "nodes", advice)


def time_numbers(values: ArrayLike) -> IntArray:
    """Times as int64, in the same shape."""
    advice = "times count the stream's unit, and stream.time(date) gives that of a date"
    return _asked(values, "times", advice)


def _asked(values: ArrayLike, name: str, advice: str) -> IntArray:
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int64)  # no question, of whatever type
    return whole_numbers(array, name, advice=advice, error=DataError)


def known_nodes(numbers: ArrayLike, nodes: int) -> IntArray:
    """The numbers of nodes as int64, in the same shape; one that is no node is an error."""
    array = np.asarray(numbers)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DataError(
            f"node {array.ravel()[:1].tolist()[0]!r} is unknown; nodes are 0 to {nodes - 1}, given"
            f" as integers and not as {array.dtype}"
        )
    wrong = ((array < 0) | (array >= nodes)).ravel()
    if wrong.any():
        raise DataError(
            f"node {array.ravel()[int(wrong.argmax())]} is unknown; nodes are 0 to {nodes - 1}"
        )
    return array.astype(np.int64)


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

    def __str__(self) -> str:
        """One line of counts, then one per reason and per note."""
        lines = [f"{self.source}: {self.kept:,} of {counted(self.read, 'row')} kept"]
        lines += [f"  dropped {rows:,}: {reason}" for reason, rows in self.dropped.items()]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


# Columns, checked ---------------------------------------------------------------------------------


def _extends(names: NodeNames | None, known: NodeNames | None) -> bool:
    """Whether the names begin with those that are known."""
    if names is None or known is None:
        return names is known
    return np.array_equal(names.values[: len(known)], known.values)


def counted(count: int, noun: str) -> str:
    """So many of them, in words.

    >>> counted(1, "event"), counted(2000, "event"), counted(2, "pass")
    ('1 event', '2,000 events', '2 passes')
    """
    several = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else several}"


def moment(when: Any, unit: str) -> int:
    """A time in `unit`, given as a number of it, an ISO date (UTC unless it says) or a datetime."""
    if isinstance(when, (int, np.integer)) and not isinstance(when, bool):
        return int(when)
    accepted = f"a whole number of {unit}"
    if unit in PER_SECOND:
        accepted += ", or an ISO date like 2024-05-01T12:00"
        given = when.astype("datetime64[us]").item() if isinstance(when, np.datetime64) else when
        if isinstance(given, str):
            with contextlib.suppress(ValueError):
                return int(given)
            with contextlib.suppress(ValueError):
                given = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", given))
        if isinstance(given, datetime):
            given = given.replace(tzinfo=given.tzinfo or timezone.utc)
            since = given - datetime(1970, 1, 1, tzinfo=timezone.utc)
            micro = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
            return micro * PER_SECOND[unit] // 10**6
    elif isinstance(when, str):
        with contextlib.suppress(ValueError):
            return int(when)
    raise DataError(f"the time {when!r} is not understood; give {accepted}")


def _frozen(array: Any, dtype: Any = None) -> Any:
    result = np.ascontiguousarray(array, dtype=dtype)
    if result is array and result.flags.writeable:
        result = result.view()
    result.setflags(write=False)
    return result


def _integers(values: Any, name: str, rows: int | None = None) -> IntArray:
    """`values` as a read-only int64 vector; nothing that is not an integer is converted."""
    array = whole_numbers(values, name)
    if array.ndim != 1 or (rows is not None and len(array) != rows):
        wanted = "[events]" if rows is None else f"[{rows}], one per row"
        raise EventError(f"{name} has shape {array.shape}; give {wanted}")
    return _frozen(array, np.int64)  # type: ignore[no-any-return]


def _ids(values: Any, name: str, rows: int | None = None) -> IntArray:
    array = _integers(values, name, rows)
    if array.size and int(array.min()) < 0:
        row = int(np.argmax(array < 0))
        raise EventError(f"{name} of row {row} is {array[row]}; nodes count from 0")
    return array


def _below(array: IntArray, nodes: int, name: str) -> None:
    if array.size and int(array.max()) >= nodes:
        row = int(np.argmax(array >= nodes))
        raise EventError(f"{name} of row {row} is {array[row]}; there are nodes 0 to {nodes - 1}")


def _within_limit(t: IntArray, name: str = "t") -> None:
    if t.size and (int(t.min()) <= -TIME_LIMIT or int(t.max()) >= TIME_LIMIT):
        raise EventError(
            f"{name} spans {t.min()} to {t.max()}; times lie strictly between -2**62 and 2**62"
        )


def _operations(op: Any, rows: int) -> NDArray[np.uint8] | None:
    if op is None:
        return None
    array = np.asarray(op)
    if array.ndim == 0 and array.dtype.kind in "iu":
        array = np.full(rows, array)
    if array.shape != (rows,):
        raise EventError(f"op has shape {array.shape}; give [{rows}], one per row, or one Op")
    if array.dtype.kind not in "iu" and rows:
        raise EventError(f"op has dtype {array.dtype}; give Op.ADD (0), REMOVE (1) or SET (2)")
    bad = (array < 0) | (array > 2)
    if bad.any():
        row = int(bad.argmax())
        raise EventError(f"op of row {row} is {array[row]}; give Op.ADD (0), REMOVE (1) or SET (2)")
    return _frozen(array, np.uint8)  # type: ignore[no-any-return]


def _weights(values: Any, op: Any, rows: int, name: str = "weight") -> NDArray[np.float64] | None:
    if values is None:
        return None
    array = np.asarray(values)
    if array.dtype.kind not in "iuf" and rows:
        raise EventError(f"{name} has dtype {array.dtype}; floating-point numbers are needed")
    if array.shape != (rows,):
        raise EventError(f"{name} has shape {array.shape}; give [{rows}], one per row")
    array = array.astype(np.float64, copy=False)
    fine = (array >= WEIGHT_MIN) & (array <= WEIGHT_MAX)
    if op is not None:
        fine |= (op == Op.REMOVE) & (array > 0)
    if not fine.all():
        row = int(fine.argmin())
        raise EventError(
            f"{name} of row {row} is {array[row]}; weights are positive and between 2^-64 and"
            " 2^64, and only a REMOVE may say inf: the whole edge. If the column means something"
            " else, give it as edge_features"
        )
    return _frozen(array)  # type: ignore[no-any-return]


def _features(values: Any, rows: int, name: str) -> NDArray[np.float32] | None:
    if values is None:
        return None
    array = np.asarray(values)
    if array.dtype.kind not in "iufb":
        raise EventError(f"{name} has dtype {array.dtype}; numbers are needed")
    if array.ndim != 2 or len(array) != rows:
        raise EventError(f"{name} has shape {array.shape}; give [{rows}, columns]")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise EventError(f"{name} holds NaN or infinity in row {row}; fill or drop such rows")
    return _frozen(array)  # type: ignore[no-any-return]


def _edges(edges: Edges | None) -> Edges | None:
    if edges is None:
        return None
    src = _ids(edges.src, "initial.src")
    dst = _ids(edges.dst, "initial.dst", len(src))
    return Edges(src, dst, _weights(edges.weight, None, len(src), "initial.weight"))


def _node_labels(labels: NodeLabels | None) -> NodeLabels | None:
    if labels is None:
        return None
    node = _ids(labels.node, "node_labels.node")
    rows = len(node)
    t = _integers(labels.t, "node_labels.t", rows)
    _within_limit(t, "node_labels.t")
    part = labels.part
    if part is not None:
        part = _frozen(_integers(part, "node_labels.part", rows), np.uint8)
    return NodeLabels(node, t, _integers(labels.label, "node_labels.label", rows), part)


def _count(value: Any, name: str, accepted: str) -> int:
    try:
        count = 0 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        count = 0
    if not 0 < count < TIME_LIMIT:
        raise ParameterError(f"{name} is {value!r}; give {accepted}")
    return count


@dataclass(frozen=True, eq=False, slots=True)
class EventStream:
    """Edges in the order in which they happened, between nodes 0 .. nodes-1.

    Columns are read-only and as long as the stream; a view shares them. What stands beside the
    events (names, initial graph, node features and labels) belongs to all views alike.
    `from_arrays` makes one and checks everything; the constructor itself trusts its arguments.
    """

    src: IntArray
    dst: IntArray
    t: IntArray  # non-decreasing
    nodes: int
    unit: str = "s"  # of t
    weight: NDArray[np.float64] | None = None  # None: every event counts 1
    op: NDArray[np.uint8] | None = None  # None: every event adds
    edge_features: NDArray[np.float32] | None = None  # [events, columns]
    labels: IntArray | None = None  # of the event's source at the event; -1: not known
    names: NodeNames | None = None  # None: the file's ids were 0 .. nodes-1
    initial: Edges | None = None
    node_features: NDArray[np.float32] | None = None  # [nodes, columns]
    node_labels: NodeLabels | None = None
    title: str = ""
    report: ReadReport | None = None

    @classmethod
    def from_arrays(
        cls,
        src: ArrayLike,
        dst: ArrayLike,
        t: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        op: ArrayLike | Op | None = None,
        edge_features: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        nodes: int | None = None,
        names: NodeNames | ArrayLike | None = None,
        unit: str = "s",
        sort: bool = False,
        initial: Edges | None = None,
        node_features: ArrayLike | None = None,
        node_labels: NodeLabels | None = None,
        title: str = "",
        report: ReadReport | None = None,
    ) -> EventStream:
        """The stream of these columns, after checking all of them.

        Arrays that already have the stream's types are shared, not copied: leave them as they are.
        nodes: None takes as many as there are names, or node features, or as the largest id asks.
        sort: sorts by time, rows of one time in the order given; without it unsorted is an error.

        >>> EventStream.from_arrays([0, 1], [1, 2], [5, 5]).nodes
        3
        """
        if unit not in UNITS:
            raise EventError(f"unit is {unit!r}; give one of {', '.join(UNITS)}")
        columns: dict[str, Any] = {"src": _ids(src, "src")}
        rows = len(columns["src"])
        columns["dst"] = _ids(dst, "dst", rows)
        columns["t"] = times = _integers(t, "t", rows)
        _within_limit(times)
        columns["op"] = _operations(op, rows)
        columns["weight"] = _weights(weight, columns["op"], rows)
        columns["edge_features"] = _features(edge_features, rows, "edge_features")
        columns["labels"] = None if labels is None else _integers(labels, "labels", rows)
        back = times[1:] < times[:-1]
        if back.any():
            if not sort:
                row = int(back.argmax()) + 1
                raise EventError(
                    f"events are not in time order: t of row {row} is {times[row]}, after"
                    f" {times[row - 1]}; sort them, or say sort=True"
                )
            order = np.argsort(times, kind="stable")
            columns = {
                name: None if column is None else _frozen(column[order])
                for name, column in columns.items()
            }
        if names is not None and not isinstance(names, NodeNames):
            names = NodeNames(names)
            if len(np.unique(names.values)) != len(names):
                raise EventError("names holds a name twice; give every node its own")
        initial, node_labels = _edges(initial), _node_labels(node_labels)
        used = [("src", columns["src"]), ("dst", columns["dst"])]
        if initial is not None:
            used += [("initial.src", initial.src), ("initial.dst", initial.dst)]
        if node_labels is not None:
            used.append(("node_labels.node", node_labels.node))
        if nodes is None:
            if names is not None:
                nodes = len(names)
            elif node_features is not None:
                nodes = len(np.asarray(node_features))
            else:
                nodes = max((int(ids.max()) + 1 for _, ids in used if ids.size), default=0)
        nodes = operator.index(nodes)
        for name, ids in used:
            _below(ids, nodes, name)
        if names is not None and len(names) != nodes:
            raise EventError(f"there are {len(names)} names for {nodes} nodes; give one per node")
        return cls(
            **columns,
            nodes=nodes,
            unit=unit,
            names=names,
            initial=initial,
            node_features=_features(node_features, nodes, "node_features"),
            node_labels=node_labels,
            title=title,
            report=report,
        )

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        span = f", t={self.t[0]}..{self.t[-1]} {self.unit}" if len(self) else ""
        title = f"{self.title!r}, " if self.title else ""
        return f"EventStream({title}events={len(self)}, nodes={self.nodes}{span})"

    # Views ----------------------------------------------------------------------------------------

    def _take(self, rows: slice | NDArray[Any]) -> EventStream:
        taken: dict[str, Any] = {}
        for name in _ROWS:
            value = getattr(self, name)
            taken[name] = None if value is None else value[rows]
            if value is not None:
                taken[name].setflags(write=False)
        return replace(self, **taken)

    def __getitem__(self, rows: slice) -> EventStream:
        """The events at these positions, which must ascend."""
        if not isinstance(rows, slice):
            raise EventError(f"a stream is cut by a slice, not by {rows!r}; see where()")
        if rows.step is not None and rows.step < 1:
            raise EventError(f"a stream is cut by an ascending slice, not by {rows!r}; see where()")
        return self._take(rows)

    def where(self, mask: ArrayLike) -> EventStream:
        """The events for which `mask` is true; shares memory where they stand together."""
        chosen = np.asarray(mask)
        if chosen.dtype != np.bool_ or chosen.shape != (len(self),):
            raise EventError(
                f"mask has dtype {chosen.dtype} and shape {chosen.shape};"
                f" give booleans [{len(self)}], one per event"
            )
        count = int(np.count_nonzero(chosen))
        first = int(chosen.argmax()) if count else 0
        if chosen[first : first + count].all():
            return self._take(slice(first, first + count))
        return self._take(np.flatnonzero(chosen))

    def with_reversed(self) -> EventStream:
        """Every event and, right after it, the same one from destination to source.

        A loop is its own reverse. Labels of events are left out: they are about the source.
        """
        times = np.where(self.src == self.dst, 1, 2)
        both = replace(self, labels=None)._take(np.repeat(np.arange(len(self)), times))
        second = np.zeros(len(both), dtype=np.bool_)
        second[np.cumsum(times) - 1] = True
        return replace(
            both,
            src=_frozen(np.where(second, both.dst, both.src)),
            dst=_frozen(np.where(second, both.src, both.dst)),
            title=f"{self.title or 'Events'}, every edge also reversed",
        )

    def joined(self, later: EventStream) -> EventStream:
        """These events and the later ones, between the same nodes, and new ones after them."""
        if not _extends(later.names, self.names):
            raise EventError(
                "the later events number their nodes by other ids than these;"
                " later.continuing(stream) numbers them alike"
            )
        if later.nodes > self.nodes and self.node_features is not None:
            raise EventError(
                f"the later events are between {later.nodes} nodes, these between {self.nodes} with"
                " features, and those of the new nodes are unknown"
            )
        if later.nodes < self.nodes or later.unit != self.unit:
            raise EventError(
                f"the later events are between {later.nodes} nodes with times in {later.unit};"
                f" these are between {self.nodes} with times in {self.unit}"
            )
        if len(self) and len(later) and later.t[0] < self.t[-1]:
            raise EventError(
                f"the later events start at {later.t[0]}, before these end at {self.t[-1]}; leave"
                f" out what is known already: later.where(later.t > {self.t[-1]})"
            )
        columns: dict[str, Any] = {}
        for name in ("src", "dst", "t", "weight", "op", "edge_features", "labels"):
            parts = getattr(self, name), getattr(later, name)
            if (parts[0] is None) != (parts[1] is None):
                raise EventError(f"only one of the two streams has {name}; give it to both")
            columns[name] = None if parts[0] is None else _frozen(np.concatenate(parts))
        return replace(self, nodes=later.nodes, names=later.names, **columns)

    def continuing(self, earlier: EventStream) -> EventStream:
        """These events with their nodes numbered as in `earlier`, and new nodes after those.

        Ids are compared where both streams have names; where none has, numbers are ids already.

        >>> earlier = EventStream.from_arrays([0], [1], [5], names=["ann", "bob"])
        >>> later = EventStream.from_arrays([0], [1], [6], names=["eve", "ann"])
        >>> later.continuing(earlier).names.values.tolist()
        ['ann', 'bob', 'eve']
        """
        if (self.names is None) != (earlier.names is None):
            raise EventError("only one of the two streams has names; give them to both")
        if self.names is None or earlier.names is None:
            return replace(self, nodes=max(self.nodes, earlier.nodes))
        kinds = {names.values.dtype.kind for names in (self.names, earlier.names)}
        if len(kinds) > 1:
            raise EventError("one stream has integers as names, the other text; use one kind")
        known = {name: number for number, name in enumerate(earlier.names.values.tolist())}
        place = [known.setdefault(name, len(known)) for name in self.names.values.tolist()]
        number = np.array(place, dtype=np.int64)
        changes: dict[str, Any] = {"src": number[self.src], "dst": number[self.dst]}
        if self.node_labels is not None:
            changes["node_labels"] = replace(self.node_labels, node=number[self.node_labels.node])
        return replace(
            self,
            nodes=len(known),
            names=NodeNames(np.array(list(known), dtype=self.names.values.dtype)),
            initial=None,
            node_features=None,
            **changes,
        )

    def time(self, when: Any) -> int:
        """A moment in the stream's unit: from a number of it, an ISO date or a datetime.

        A date without a zone is UTC.
        """
        return moment(when, self.unit)

    def before(self, t: Any) -> EventStream:
        """The events strictly before `t`, a number in the stream's unit or a date."""
        return self._take(slice(0, int(np.searchsorted(self.t, self.time(t), side="left"))))

    def between(self, first: Any, last: Any) -> EventStream:
        """The events at `first <= t < last`, numbers in the stream's unit or dates."""
        moments = self.time(first), self.time(last)
        begin, end = np.searchsorted(self.t, moments, side="left")
        return self._take(slice(int(begin), max(int(begin), int(end))))

    # Nodes ----------------------------------------------------------------------------------------

    @property
    def destinations(self) -> IntArray:
        """The nodes that are the destination of an event, ascending."""
        return np.flatnonzero(self._occurs(self.dst))

    @property
    def bipartite(self) -> bool:
        """Whether no node is both source and destination."""
        return not bool((self._occurs(self.src) & self._occurs(self.dst)).any())

    def _occurs(self, ids: IntArray) -> NDArray[np.bool_]:
        flags = np.zeros(self.nodes, dtype=np.bool_)
        flags[ids] = True
        return flags

    def number(self, ids: ArrayLike) -> IntArray:
        """The numbers of nodes that the file calls `ids`; an unknown one is an error naming it."""
        if self.names is not None:
            return self.names.numbers(ids)
        return self._known(ids)

    def name(self, numbers: ArrayLike) -> NDArray[Any]:
        """What the file calls the nodes with these numbers."""
        known = self._known(numbers)
        return known if self.names is None else self.names.values[known]

    def _known(self, numbers: ArrayLike) -> IntArray:
        return known_nodes(numbers, self.nodes)

    # Steps ----------------------------------------------------------------------------------------

    def steps(self, *, events: int | None = None) -> Steps:
        """One step per distinct time, or per so many events."""
        if events is None:
            first = np.flatnonzero(np.diff(self.t)) + 1
        else:
            size = _count(events, "events", "a positive number of events per step")
            first = np.arange(size, len(self), size)
        bounds = _bounds(first, len(self))
        return Steps(
            self.src, self.dst, self.t, self.weight, self.op, bounds, self.t[bounds[1:] - 1]
        )

    def snapshots(
        self, every: int, window: int | None = None, origin: int = 0, *, directed: bool = False
    ) -> Steps:
        """One step per snapshot: the events at `origin + k·every <= t < origin + (k+1)·every`.

        Snapshot k has happened at its last tick, so that a question at the start of snapshot k+1
        sees it. A snapshot in which nothing changes makes no step.

        window: None lets edges stay. With `w`, an event counts during its snapshot and the w-1
            following ones: rows that precede the arrivals take away what leaves. The last step is
            that of the last event.
        directed: whether u→v and v→u are two edges, which matters to a window over weighted events;
            say the same to the `Propagator`.
        """
        every = _count(every, "every", "the length of a snapshot in ticks, 1 or more")
        origin = operator.index(origin)
        if not -TIME_LIMIT < origin < TIME_LIMIT:
            raise ParameterError(f"origin is {origin}; times lie between -2**62 and 2**62")
        index = (self.t - origin) // every
        if len(self) and origin + (int(index[-1]) + 1) * every > TIME_LIMIT:
            raise ParameterError(f"every is {every}; snapshots must end before 2**62")
        if window is None:
            bounds = _bounds(np.flatnonzero(np.diff(index)) + 1, len(self))
            times = origin + (index[bounds[:-1]] + 1) * every - 1
            return Steps(self.src, self.dst, self.t, self.weight, self.op, bounds, times)
        size = _count(window, "window", "a number of snapshots, 1 or more")
        if self.op is not None:
            raise EventError(
                "a window of snapshots needs events that add, and this stream has an op column;"
                " leave window out, or use a Channel with a window"
            )
        src, dst, when, weight, op = self._departures(index, size, directed)
        when = np.concatenate([when, index])
        # Both parts ascend; a stable sort puts the departures of a snapshot before its arrivals.
        order = np.argsort(when, kind="stable")
        bounds = _bounds(np.flatnonzero(np.diff(when[order])) + 1, len(when))
        arriving = np.ones(len(self)) if self.weight is None else self.weight
        return Steps(
            np.concatenate([src, self.src])[order],
            np.concatenate([dst, self.dst])[order],
            np.concatenate([origin + when[: len(src)] * every, self.t])[order],
            np.concatenate([weight, arriving])[order],
            np.concatenate([op, np.full(len(self), Op.ADD)])[order].astype(np.uint8),
            bounds,
            origin + (when[order][bounds[:-1]] + 1) * every - 1,
        )

    def _departures(
        self, index: IntArray, size: int, directed: bool
    ) -> tuple[IntArray, IntArray, IntArray, NDArray[np.float64], NDArray[Any]]:
        """src, dst, snapshot, weight and op of the rows that undo events after `size` snapshots."""
        last = int(index[-1]) if len(self) else 0
        leaving = int(np.searchsorted(index, last - size, side="right"))
        src, dst = self.src, self.dst
        if self.weight is None or leaving == 0:
            ones = np.ones(leaving)
            return src[:leaving], dst[:leaving], index[:leaving] + size, ones, ones * Op.REMOVE
        # Sums of float32 cannot be taken apart again: what remains is summed afresh, in float64.
        if not directed:
            src, dst = np.minimum(src, dst), np.maximum(src, dst)
        pair = np.unique(src * self.nodes + dst, return_inverse=True)[1]
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
        remaining = np.add.reduceat(np.append(self.weight[order], 0.0), ranges)[::2]
        stays = end > begin
        return (
            src[row],
            dst[row],
            when,
            np.where(stays, remaining, np.inf),
            np.where(stays, Op.SET, Op.REMOVE),
        )

    # Files ----------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Every column of the stream and of what stands beside it, under flat names."""
        found: dict[str, NDArray[Any] | None] = {name: getattr(self, name) for name in _ROWS}
        found["node_features"] = self.node_features
        if self.initial is not None:
            for name in ("src", "dst", "weight"):
                found[f"initial.{name}"] = getattr(self.initial, name)
        if self.node_labels is not None:
            for name in ("node", "t", "label", "part"):
                found[f"node_labels.{name}"] = getattr(self.node_labels, name)
        if self.names is not None:
            if self.names.values.dtype.kind == "i":
                found["names"] = self.names.values
            else:
                encoded = [name.encode() for name in self.names.values.tolist()]
                found["names.bytes"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
                found["names.length"] = np.array([len(name) for name in encoded], dtype=np.int64)
        return {name: array for name, array in found.items() if array is not None}

    def digest(self) -> str:
        """A hash of all that the stream says, whatever file it came from (title and report not)."""
        state = hashlib.blake2b(f"{self.nodes} {self.unit}".encode(), digest_size=16)
        for name, array in self._arrays().items():
            state.update(f"|{name} {array.dtype} {array.shape}|".encode())
            state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return state.hexdigest()

    def save(self, path: str | Path) -> None:
        """Writes the stream with all that stands beside it to one file, whole or not at all."""
        report = None
        if self.report is not None:
            report = {name: getattr(self.report, name) for name in ReadReport.__slots__}
        description = {
            "kind": "event stream",
            "format": _FORMAT,
            "nodes": self.nodes,
            "unit": self.unit,
            "title": self.title,
            "report": report,
        }
        statefile.write(path, description, self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> EventStream:
        """The stream that `save` wrote."""
        description, arrays = statefile.read(path)
        if description.get("kind") != "event stream" or description.get("format") != _FORMAT:
            raise StateFileError(
                f"{path} holds {description.get('kind', 'a state')!r}, format"
                f" {description.get('format')}; EventStream.load reads 'event stream', format"
                f" {_FORMAT}"
            )
        names = None
        if "names" in arrays:
            names = NodeNames(arrays["names"])
        elif "names.length" in arrays:
            data, ends = arrays["names.bytes"].tobytes(), np.cumsum(arrays["names.length"])
            starts = ends - arrays["names.length"]
            pieces = zip(starts.tolist(), ends.tolist(), strict=True)
            names = NodeNames(np.array([data[i:j].decode() for i, j in pieces], dtype=_STRING))
        initial = node_labels = None
        if "initial.src" in arrays:
            initial = Edges(*(arrays.get(f"initial.{name}") for name in ("src", "dst", "weight")))  # type: ignore[arg-type]
        if "node_labels.node" in arrays:
            parts = ("node", "t", "label", "part")
            node_labels = NodeLabels(*(arrays.get(f"node_labels.{name}") for name in parts))  # type: ignore[arg-type]
        report = description["report"]
        if report is not None:
            report = ReadReport(**{**report, "notes": tuple(report["notes"])})
        return cls.from_arrays(
            **{name: arrays.get(name) for name in _ROWS},  # type: ignore[arg-type]
            nodes=description["nodes"],
            names=names,
            unit=description["unit"],
            initial=initial,
            node_features=arrays.get("node_features"),
            node_labels=node_labels,
            title=description["title"],
            report=report,
        )


def _bounds(first: NDArray[Any], rows: int) -> IntArray:
    """Offsets of steps from the rows at which all but the first begin."""
    if rows == 0:
        return np.zeros(1, dtype=np.int64)
    return np.concatenate([[0], first, [rows]]).astype(np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Steps:
    """Rows to apply one step after the other: step `s` are the rows `offsets[s]:offsets[s+1]`.

    `times[s]` is when step `s` has happened: nothing of it may be seen by a question about that
    time or an earlier one; a question at `q` sees the steps with `times[s] < q`.
    """

    src: IntArray
    dst: IntArray
    t: IntArray
    weight: NDArray[np.float64] | None
    op: NDArray[np.uint8] | None
    offsets: IntArray
    times: IntArray

    @classmethod
    def from_snapshots(
        cls,
        graphs: Sequence[tuple[ArrayLike, ...]],
        times: ArrayLike,
        *,
        nodes: int | None = None,
        directed: bool = False,
    ) -> Steps:
        """The steps from each graph to the next, starting from no edges; one per graph.

        graphs: edge lists `(src, dst)` or `(src, dst, weight)`; rows of one edge are summed.
        times: when each graph holds, ascending. A graph equal to its predecessor makes an empty
            step.
        nodes: ids are below it, where given.
        directed: whether u→v and v→u are two edges; say the same to the `Propagator`.

        >>> Steps.from_snapshots([([0], [1]), ([1], [2])], [10, 20]).op.tolist()
        [2, 1, 2]
        """
        when = _integers(times, "times", len(graphs))
        _within_limit(when, "times")
        if (np.diff(when) <= 0).any():
            raise EventError("times of snapshots must ascend; put the graphs into their order")
        checked = [_snapshot(graph, number, nodes) for number, graph in enumerate(graphs)]
        base = max(
            (int(ids.max()) + 1 for graph in checked for ids in graph[:2] if ids.size), default=1
        )
        if base > 2**31:
            raise EventError(f"snapshots hold the node id {base - 1}; ids stay below 2**31")
        columns: list[tuple[NDArray[Any], ...]] = []
        old_key, old_weight = np.empty(0, dtype=np.int64), np.empty(0)
        offsets = [0]
        for time, (src, dst, weight) in zip(when.tolist(), checked, strict=True):
            low, high = (src, dst) if directed else (np.minimum(src, dst), np.maximum(src, dst))
            key, edge = np.unique(low * base + high, return_inverse=True)
            total = np.bincount(edge, weights=weight, minlength=len(key)).astype(np.float64)
            gone = np.setdiff1d(old_key, key, assume_unique=True)
            at = np.searchsorted(old_key, key)
            # A key past the end of the old ones, -1 and NaN, equals nothing.
            same = np.append(old_key, -1)[at] == key
            same &= np.append(old_weight, np.nan)[at] == total
            changed = np.concatenate([gone, key[~same]])
            columns.append(
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
        kinds = {"src": np.int64, "dst": np.int64, "t": np.int64, "weight": float, "op": np.uint8}
        joined: dict[str, Any] = {
            name: _frozen(np.concatenate([np.empty(0, kind), *(rows[k] for rows in columns)]), kind)
            for k, (name, kind) in enumerate(kinds.items())
        }
        return cls(**joined, offsets=np.array(offsets, dtype=np.int64), times=when)

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


def _snapshot(
    graph: tuple[ArrayLike, ...], number: int, nodes: int | None
) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
    """One given graph, checked: sources, destinations and weights of its rows."""
    if not 2 <= len(graph) <= 3:
        raise EventError(
            f"snapshot {number} has {len(graph)} columns; give (src, dst) or (src, dst, weight)"
        )
    src = _ids(graph[0], f"src of snapshot {number}")
    dst = _ids(graph[1], f"dst of snapshot {number}", len(src))
    if nodes is not None:
        _below(src, nodes, f"src of snapshot {number}")
        _below(dst, nodes, f"dst of snapshot {number}")
    given = graph[2] if len(graph) == 3 else None
    weight = _weights(given, None, len(src), f"weight of snapshot {number}")
    return src, dst, np.ones(len(src)) if weight is None else weight
