"""`EventStream`: events in the order in which they happened, as columns."""

from __future__ import annotations

import hashlib
import json
import operator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core import statefile
from tidegraph.core.errors import EventError, StateFileError
from tidegraph.events import columns, steps
from tidegraph.events.columns import IntArray, Op, frozen
from tidegraph.events.moments import UNITS, dates, moment, times_of
from tidegraph.events.names import (
    NodeNames,
    Side,
    as_names_or_numbers,
    known_nodes,
    parsed_integers,
)
from tidegraph.events.notebook import event_rows, html_table
from tidegraph.events.read_report import ReadReport
from tidegraph.events.steps import Steps
from tidegraph.events.vocabulary import Vocabulary, padded

# One entry per event.
_ROWS = ("src", "dst", "t", "weight", "op", "edge_features", "categories", "labels")
_FORMAT = 1  # of saved streams
_UNUSED_NODES = 1_000_000  # numbers that later events may leave out before their next node
_set = object.__setattr__
ALWAYS = 1 - columns.TIME_LIMIT  # the time of a label that holds before all events


@dataclass(frozen=True, eq=False, slots=True)
class Edges:
    """A graph as a list of edges, e.g. the one a stream starts from."""

    src: IntArray
    dst: IntArray
    weight: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class NodeLabels:
    """Observed labels of nodes: `label[k]` holds for `node[k]` and is known from `t[k]` on.

    A label that holds at all times has the time `ALWAYS`; then `part` divides the nodes.
    """

    node: IntArray
    t: IntArray
    label: NDArray[np.int64]
    part: NDArray[np.uint8] | None = None  # 0 train, 1 validation, 2 test; None: no split


def _edges(edges: Edges | None) -> Edges | None:
    if edges is None:
        return None
    src = columns.nodes(edges.src, "initial.src")
    dst = columns.nodes(edges.dst, "initial.dst", len(src))
    return Edges(src, dst, columns.weights(edges.weight, None, len(src), "initial.weight"))


def _node_labels(labels: NodeLabels | None) -> NodeLabels | None:
    if labels is None:
        return None
    node = columns.nodes(labels.node, "node_labels.node")
    rows = len(node)
    part = labels.part
    if part is not None:
        given = columns.integers(part, "node_labels.part", rows)
        part = frozen(given.astype(np.uint8), own=True)
    return NodeLabels(
        node,
        columns.times(labels.t, "node_labels.t", rows),
        columns.integers(labels.label, "node_labels.label", rows),
        part,
    )


@dataclass(frozen=True, eq=False, slots=True, init=False, repr=False)
class EventStream:
    """Events in the order in which they happened, between nodes 0 .. nodes-1.

    The constructor checks everything. Columns are read-only and as long as the stream; arrays that
    have the right types already are shared, not copied, so leave them unchanged. A view shares the
    columns of its stream. Names, initial graph, node features and node labels belong to all views
    alike.

    nodes: None: as many as there are names, or node features, or as the largest number requires.
    sort: sort by time, rows of equal time in the given order; otherwise unsorted is an error.

    >>> EventStream([0, 1], [1, 2], [5, 5]).nodes
    3
    """

    src: IntArray
    dst: IntArray
    t: IntArray  # non-decreasing
    nodes: int
    unit: str  # of t
    weight: NDArray[np.float64] | None  # None: every event counts 1
    op: NDArray[np.uint8] | None  # None: every event adds
    edge_features: NDArray[np.float32] | None  # [events, columns]
    categories: IntArray | None  # [events, columns], codes of words; -1: no word
    labels: IntArray | None  # of the event, or of its source at the event; -1: unknown
    names: NodeNames | None  # None: the file's ids are 0 .. nodes-1
    initial: Edges | None
    node_features: NDArray[np.float32] | None  # [nodes, columns]
    node_labels: NodeLabels | None
    vocabulary: Vocabulary
    title: str
    report: ReadReport | None
    _digest: str | None = field(default=None, init=False)  # computed on first use

    def __init__(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        t: ArrayLike,
        nodes: int | None = None,
        unit: str = "s",
        *,
        weight: ArrayLike | None = None,
        op: ArrayLike | Op | None = None,
        edge_features: ArrayLike | None = None,
        categories: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        names: NodeNames | ArrayLike | None = None,
        sort: bool = False,
        initial: Edges | None = None,
        node_features: ArrayLike | None = None,
        node_labels: NodeLabels | None = None,
        vocabulary: Vocabulary | None = None,
        title: str = "",
        report: ReadReport | None = None,
    ) -> None:
        if unit not in UNITS:
            raise EventError(f"unit is {unit!r}; give one of {', '.join(UNITS)}")
        rows: dict[str, Any] = {"src": columns.nodes(src, "src")}
        count = len(rows["src"])
        rows["dst"] = columns.nodes(dst, "dst", count)
        rows["t"] = times = columns.times(t, "t", count)
        rows["op"] = columns.operations(op, count)
        rows["weight"] = columns.weights(weight, rows["op"], count)
        rows["edge_features"] = columns.features(edge_features, count, "edge_features")
        rows["categories"] = columns.features(categories, count, "categories", dtype=np.int64)
        rows["labels"] = None if labels is None else columns.integers(labels, "labels", count)
        vocabulary = vocabulary or Vocabulary()
        if edge_features is None and vocabulary.features:
            vocabulary = replace(vocabulary, features=())
        vocabulary.check(rows)
        early = columns.first_decrease(times)
        if early is not None:
            if not sort:
                raise EventError(
                    f"events are not in time order: t of row {early} is {times[early]}, after"
                    f" {times[early - 1]}; sort them, or pass sort=True"
                )
            order = np.argsort(times, kind="stable")
            rows = {
                name: None if column is None else frozen(column[order], own=True)
                for name, column in rows.items()
            }
        if names is not None and not isinstance(names, NodeNames):
            names = NodeNames(names)
            if len(np.unique(names.values)) != len(names):
                raise EventError("names holds a name twice; give every node its own")
        initial, node_labels = _edges(initial), _node_labels(node_labels)
        used = [("src", rows["src"]), ("dst", rows["dst"])]
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
                nodes = max((int(ends.max()) + 1 for _, ends in used if ends.size), default=0)
        nodes = operator.index(nodes)
        for name, ends in used:
            columns.require_below(ends, nodes, name)
        if names is not None and len(names) != nodes:
            raise EventError(f"there are {len(names)} names for {nodes} nodes; give one per node")
        self._assign(
            **rows,
            nodes=nodes,
            unit=unit,
            names=names,
            initial=initial,
            node_features=columns.features(node_features, nodes, "node_features"),
            node_labels=node_labels,
            vocabulary=vocabulary,
            title=title,
            report=report,
        )

    def _assign(self, **values: Any) -> None:
        _set(self, "_digest", None)
        for name, value in values.items():
            _set(self, name, value)

    def _with(self, **changes: Any) -> EventStream:
        """Return the stream with other fields, which are checked already."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        stream = EventStream.__new__(EventStream)
        stream._assign(**values | changes)
        return stream

    def __len__(self) -> int:
        return len(self.t)

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"events": len(self), "nodes": self.nodes}
        if len(self):
            first, last = int(self.t[0]), int(self.t[-1])
            facts["t"] = f"{first}..{last} {self.unit}"
        for name in ("edge_features", "node_features"):
            if getattr(self, name) is not None:
                facts[name] = getattr(self, name).shape[1]
        return facts

    def __repr__(self) -> str:
        title = [repr(self.title)] if self.title else []
        return f"EventStream({', '.join(title + [f'{k}={v}' for k, v in self._facts().items()])})"

    def _repr_html_(self) -> str:
        facts = self._facts()
        if len(self):
            begin, end = dates(int(self.t[0]), int(self.t[-1]), self.unit)
            facts |= {} if begin is None else {"t": f"{begin} to {end}"}
        rows = event_rows(self, self.name, lambda t: dates(t, t, self.unit)[0] or t)
        return html_table(self.title or "EventStream", facts, rows)

    # Views ----------------------------------------------------------------------------------------

    def _take(self, rows: slice | NDArray[Any]) -> EventStream:
        taken: dict[str, Any] = {}
        for name in _ROWS:
            value = getattr(self, name)
            taken[name] = None if value is None else frozen(value[rows], own=True)
        return self._with(**taken)

    def __getitem__(self, rows: slice) -> EventStream:
        """Return the events at these positions, which must ascend."""
        if not isinstance(rows, slice):
            raise EventError(f"a stream is indexed by a slice, not by {rows!r}; see where()")
        if rows.step is not None and rows.step < 1:
            raise EventError(f"a slice of a stream must ascend, unlike {rows!r}; see where()")
        return self._take(rows)

    def where(self, mask: ArrayLike) -> EventStream:
        """Return the events for which `mask` is true; shares memory where they are contiguous."""
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

    def without(self, node: int | str) -> EventStream:
        """Return the stream as if it had never had a node, but for its number, which stays unused.

        Its events go, and with them its edges at the beginning, labels, features, name, and words
        that no other event carries. All others keep their numbers, and so their random features.

        node: its number, or its name as text.

        >>> EventStream([0, 1], [1, 2], [5, 6], names=["ann", "bob", "eve"]).without("eve")
        EventStream(events=1, nodes=3, t=5..5 s)
        """
        number = int(self.nodes_of(node))
        name = str(self.name(number))
        if self.names is not None and self.names.by_side:
            name = name[4:]  # as the file calls it, without "src " or "dst "
        rest = self.where((self.src != number) & (self.dst != number))
        initial, labels, features = self.initial, self.node_labels, self.node_features
        if initial is not None:
            kept = (initial.src != number) & (initial.dst != number)
            weight = None if initial.weight is None else initial.weight[kept]
            initial = _edges(Edges(initial.src[kept], initial.dst[kept], weight))
        if labels is not None:
            kept = labels.node != number
            part = None if labels.part is None else labels.part[kept]
            labels = _node_labels(
                NodeLabels(labels.node[kept], labels.t[kept], labels.label[kept], part)
            )
        if features is not None:
            features = features.copy()
            features[number] = 0
            features = frozen(features, own=True)
        report = self.report
        return rest._with(
            names=None if self.names is None else self.names.without(number),
            initial=initial,
            node_labels=labels,
            node_features=features,
            vocabulary=self.vocabulary.without_unused(self.categories, rest.categories),
            report=None if report is None else report.without(name, len(self) - len(rest)),
        )

    def with_reversed(self) -> EventStream:
        """Return every event and, right after it, its reverse from destination to source.

        A self-edge is its own reverse. Event labels are dropped: they describe the source.
        """
        times = np.where(self.src == self.dst, 1, 2)
        both = self._with(labels=None)._take(np.repeat(np.arange(len(self)), times))
        second = np.zeros(len(both), dtype=np.bool_)
        second[np.cumsum(times) - 1] = True
        return both._with(
            src=frozen(np.where(second, both.dst, both.src)),
            dst=frozen(np.where(second, both.src, both.dst)),
            title=f"{self.title or 'Events'}, every edge also reversed",
        )

    def joined(self, later: EventStream) -> EventStream:
        """Return these events followed by later ones, which may bring new nodes.

        New nodes are numbered after the known ones.
        """
        known, names = self.names, later.names
        if (known is None) != (names is None) or (known and names and not names.extends(known)):
            raise EventError(
                "the later events name their nodes differently;"
                " later.continuing(stream) numbers them alike"
            )
        if later.nodes > self.nodes and self.node_features is not None:
            raise EventError(
                f"the later events have {later.nodes} nodes, these have {self.nodes} with features;"
                " the features of the new nodes are unknown"
            )
        if later.nodes < self.nodes or later.unit != self.unit:
            raise EventError(
                f"the later events have {later.nodes} nodes and times in {later.unit}; these have"
                f" {self.nodes} nodes and times in {self.unit}"
            )
        if len(self) and len(later) and later.t[0] < self.t[-1]:
            raise EventError(
                f"the later events start at {later.t[0]}, before these end at {self.t[-1]}; leave"
                f" out the events known already: later.where(later.t > {self.t[-1]})"
            )
        merged: dict[str, Any] = {}
        for name in _ROWS:
            parts = getattr(self, name), getattr(later, name)
            if (parts[0] is None) != (parts[1] is None):
                raise EventError(f"only one of the two streams has {name}; give it to both")
            if name == "edge_features" and parts[0] is not None:
                parts = padded(parts[0], parts[1].shape[1]), parts[1]
            merged[name] = None if parts[0] is None else frozen(np.concatenate(parts))
        if not later.vocabulary.extends(self.vocabulary):
            raise EventError(
                "the later events have other columns or words;"
                " later.continuing(stream) gives words the same codes"
            )
        return self._with(nodes=later.nodes, names=names, vocabulary=later.vocabulary, **merged)

    def continuing(self, earlier: EventStream) -> EventStream:
        """Return these events with their nodes numbered as in `earlier`, new nodes after those.

        Nodes are identified by name if both streams have names, by number if neither has. Columns
        and words have the places and codes they have in `earlier`.

        >>> earlier = EventStream([0], [1], [5], names=["ann", "bob"])
        >>> later = EventStream([0], [1], [6], names=["eve", "ann"])
        >>> later.continuing(earlier).names.values.tolist()
        ['ann', 'bob', 'eve']
        """
        if (self.names is None) != (earlier.names is None):
            raise EventError("only one of the two streams has names; give them to both")
        rows = {name: getattr(self, name) for name in ("labels", "categories", "edge_features")}
        of_nodes = self.node_labels if self.labels is None else None
        if of_nodes is not None:
            rows["labels"] = of_nodes.label
        labelled = earlier.labels is not None or earlier.node_labels is not None
        changes = self.vocabulary.continuing(earlier.vocabulary, rows, labelled=labelled)
        if of_nodes is not None and "labels" in changes:
            changes["node_labels"] = replace(of_nodes, label=frozen(changes.pop("labels")))
        if self.names is None or earlier.names is None:
            self._check_dense(earlier.nodes)
            return self._with(nodes=max(self.nodes, earlier.nodes), **changes)
        if self.names.are_integers != earlier.names.are_integers:
            raise EventError("one stream has integers as names, the other text; use one kind")
        known = {name: number for number, name in enumerate(earlier.names.values.tolist())}
        names = self.names.values.tolist()
        # By their first event, so that the number of a node does not depend on later ones.
        nodes, first = np.unique(np.column_stack([self.src, self.dst]), return_index=True)
        for node in nodes[np.argsort(first)].tolist():
            known.setdefault(names[node], len(known))
        number = np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)
        changes |= {"src": frozen(number[self.src]), "dst": frozen(number[self.dst])}
        labels = changes.get("node_labels", self.node_labels)
        if labels is not None:
            changes["node_labels"] = replace(labels, node=number[labels.node])
        values = np.array(list(known), dtype=self.names.values.dtype)
        return self._with(
            nodes=len(known),
            names=NodeNames(values, by_side=self.names.by_side and earlier.names.by_side),
            initial=None,
            node_features=None,
            **changes,
        )

    def _check_dense(self, known: int) -> None:
        """Reject a number so far beyond the known nodes that a stray id is likelier than a node."""
        ends = np.concatenate([self.src, self.dst])
        new = np.unique(ends[ends >= known])
        if len(new) and new[-1] > known + _UNUSED_NODES + 100 * len(new):
            raise EventError(
                f"node {new[-1]} would make {new[-1] + 1 - known} new nodes, of which these events"
                f" use {len(new)}; correct the id, or give both streams names so that nodes are"
                " numbered as they appear"
            )

    def before(self, t: Any) -> EventStream:
        """Return the events strictly before `t`, a number in the stream's unit or a date."""
        return self._take(slice(0, int(np.searchsorted(self.t, self.time(t), side="left"))))

    def between(self, first: Any, last: Any) -> EventStream:
        """Return the events with `first <= t < last`, numbers in the stream's unit or dates."""
        begin, end = np.searchsorted(self.t, self.times_of([first, last]), side="left")
        return self._take(slice(int(begin), max(int(begin), int(end))))

    # Times ----------------------------------------------------------------------------------------

    def time(self, when: Any) -> int:
        """Return one time in the stream's unit, from a number, an ISO date or a datetime.

        A date without a zone is UTC.
        """
        return moment(when, self.unit)

    def times_of(self, values: Any) -> IntArray:
        """Return times in the stream's unit, in the same shape, from numbers or dates as `time`.

        >>> EventStream([0], [1], [5]).times_of(["1970-01-02", "1970-01-03"])
        array([ 86400, 172800])
        """
        return times_of(values, self.unit)

    # Nodes ----------------------------------------------------------------------------------------

    @property
    def destinations(self) -> IntArray:
        """The nodes that are the destination of an event, ascending."""
        return np.flatnonzero(self._occurs(self.dst))

    @property
    def bipartite(self) -> bool:
        """Whether no node is both source and destination."""
        return not bool((self._occurs(self.src) & self._occurs(self.dst)).any())

    @property
    def labels_hold_always(self) -> bool:
        """Whether the labels to learn are those of nodes, and hold at all times."""
        labels = self.node_labels
        return self.labels is None and labels is not None and bool((labels.t == ALWAYS).any())

    def _occurs(self, nodes: IntArray) -> NDArray[np.bool_]:
        flags = np.zeros(self.nodes, dtype=np.bool_)
        flags[nodes] = True
        return flags

    def nodes_of(self, values: ArrayLike, side: Side | None = None) -> IntArray:
        """Return node numbers, in the same shape, from node numbers or from names given as text.

        Integers are node numbers, text is names. Use `number` for names that are integers.

        side: whether names are ids of sources or of destinations; see `NodeNames.by_side`.

        >>> stream = EventStream([0], [1], [5], names=["ann", "bob"])
        >>> stream.nodes_of("bob"), stream.nodes_of([0, 1])
        (array(1), array([0, 1]))
        """
        array = as_names_or_numbers(values)
        if array.size and array.dtype.kind in "OUT":
            return self.number(array, side)
        return known_nodes(array, self.nodes)

    def number(self, names: ArrayLike, side: Side | None = None) -> IntArray:
        """Return the numbers of nodes by name; raise `UnknownNodeError` for an unknown one."""
        if self.names is not None:
            return self.names.numbers(names, side)
        array = np.asarray(names)
        spelled = array.dtype.kind in "OUT"
        return known_nodes(parsed_integers(array) if spelled else array, self.nodes)

    def name(self, numbers: ArrayLike) -> NDArray[Any]:
        """Return the names of the nodes with these numbers."""
        known = known_nodes(numbers, self.nodes)
        return known if self.names is None else self.names.values[known]

    # Steps ----------------------------------------------------------------------------------------

    def steps(self, *, events: int | None = None) -> Steps:
        """Return one step per distinct time, or per `events` events."""
        return steps.by_time(self) if events is None else steps.by_count(self, events)

    def snapshots(
        self, every: int, window: int | None = None, origin: int = 0, *, directed: bool = False
    ) -> Steps:
        """Return one step per snapshot: events with `origin + k·every <= t < origin + (k+1)·every`.

        Snapshot k has happened at its last tick, so that a query at the start of snapshot k+1 sees
        it. A snapshot without changes makes no step.

        window: None keeps all edges. With `w`, an event counts during its snapshot and the next
            w-1: rows before the arrivals remove what leaves. The last step is that of the last
            event.
        directed: whether u→v and v→u are two edges, which matters to a window over weighted events;
            pass the same value to `Propagator`.
        """
        return steps.by_snapshot(self, every, window, origin, directed)

    # Files ----------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return every array of the stream under a flat name."""
        found: dict[str, NDArray[Any] | None] = {name: getattr(self, name) for name in _ROWS}
        found["node_features"] = self.node_features
        for part, value in (("initial", self.initial), ("node_labels", self.node_labels)):
            if value is not None:
                found |= {f"{part}.{f.name}": getattr(value, f.name) for f in fields(value)}
        if self.names is not None:
            found |= self.names.as_arrays()
        return {name: array for name, array in found.items() if array is not None}

    def digest(self) -> str:
        """Return a digest of the content, whatever its source; title and report do not count.

        It is computed once per stream.
        """
        if self._digest is not None:
            return self._digest
        state = hashlib.blake2b(f"{self.nodes} {self.unit}".encode(), digest_size=16)
        for name, array in self._arrays().items():
            state.update(f"|{name} {array.dtype} {array.shape}|".encode())
            state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        if self.vocabulary.categories or self.vocabulary.labels:
            words = self.vocabulary.categories, self.vocabulary.labels
            state.update(json.dumps(words).encode())
        _set(self, "_digest", state.hexdigest())
        return state.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the stream with everything that belongs to it to one file, atomically."""
        description = {
            "kind": "event stream",
            "format": _FORMAT,
            "nodes": self.nodes,
            "unit": self.unit,
            "title": self.title,
            "vocabulary": asdict(self.vocabulary),
            "report": None if self.report is None else self.report.to_dict(),
            "names_by_side": self.names is not None and self.names.by_side,
        }
        statefile.write(path, description, self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> EventStream:
        """Return the stream that `save` wrote."""
        description, arrays = statefile.read(path)
        if description.get("kind") != "event stream" or description.get("format") != _FORMAT:
            raise StateFileError(
                f"{path} holds {description.get('kind', 'a state')!r}, format"
                f" {description.get('format')}; EventStream.load reads 'event stream', format"
                f" {_FORMAT}"
            )

        def part(kind: Any, name: str) -> Any:
            values = {f.name: arrays.get(f"{name}.{f.name}") for f in fields(kind)}
            return kind(**values) if any(value is not None for value in values.values()) else None

        report = description["report"]
        return cls(
            **{name: arrays.get(name) for name in _ROWS},  # type: ignore[arg-type]
            nodes=description["nodes"],
            names=NodeNames.of_arrays(arrays, description.get("names_by_side")),
            unit=description["unit"],
            initial=part(Edges, "initial"),
            node_features=arrays.get("node_features"),
            node_labels=part(NodeLabels, "node_labels"),
            vocabulary=Vocabulary.of(description.get("vocabulary", {})),
            title=description["title"],
            report=None if report is None else ReadReport.from_dict(report),
        )
