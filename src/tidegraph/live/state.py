"""The state that answers: engine, history and names in memory, moved on by rows of the log.

What it is depends on the rows that were applied and on nothing else: not on how they were divided
into calls, and not on when, or how often, it was saved and loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core import statefile
from tidegraph.core.errors import EventError, PrecisionError, StateFileError, UnknownNodeError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch
from tidegraph.events.columns import IntArray, Op
from tidegraph.events.moments import SECONDS
from tidegraph.events.names import Side
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream
from tidegraph.learning.candidates import Candidates
from tidegraph.learning.history import History
from tidegraph.learning.local import LocalPropagation
from tidegraph.learning.settings import activity_half_lives
from tidegraph.live.columns import Columns
from tidegraph.live.events import Kind, Reader
from tidegraph.live.failpoints import reach
from tidegraph.live.names import Names
from tidegraph.live.order import NOBODY, Rows

_FORMAT = 1
_ROOM = 1024  # nodes for which the engine has room at first
_RECENT = 1000  # applied rows that `recent` returns
# Later events take more memory until all are written anew, which takes a while: less often than
# usual, as ingest waits for it.
_MERGED = 262_144, 1 / 4
_YIELDED_S = 0.0005
_REPLAYED = 100_000  # rows at once, when nobody reads yet
_DAY_S = 86_400.0
_ENGINE = "engine."  # before the names of the engine's arrays


@dataclass(frozen=True)
class About:
    """What a directory is, for as long as it exists.

    span: the length of time that shapes what is counted as recent; see `activity_half_lives`.
    """

    unit: str
    by_side: bool
    integers: bool
    columns: int
    alpha: float
    half_lives: tuple[float, ...]
    high_pass: bool
    r_max: float
    seed: int
    span: float

    @classmethod
    def of(cls, values: dict[str, Any]) -> About:
        """Return what `dataclasses.asdict` made, read from JSON."""
        return cls(**{**values, "half_lives": tuple(values["half_lives"])})

    @property
    def reader(self) -> Reader:
        """How events are read."""
        return Reader(self.unit, self.integers, self.by_side, self.columns)

    def propagator(self, nodes: int = 0) -> Propagator:
        """Return a new engine without edges."""
        channels = []
        for half_life in (None, *self.half_lives):
            channels.append(Channel.low_pass(self.alpha, half_life=half_life))
            if self.high_pass:
                channels.append(Channel.high_pass(self.alpha, half_life=half_life))
        sketch = Sketch(self.columns, seed=self.seed)
        return Propagator(sketch, nodes=nodes, channels=channels, r_max=self.r_max)


def usual_span(unit: str) -> float:
    """Return the span of a directory that starts empty: a month, or 3,000 steps or years."""
    return 30 * _DAY_S / SECONDS[unit] if unit in SECONDS and unit != "year" else 3000.0


@dataclass(frozen=True)
class Moment:
    """What a state follows: the log up to `seq`, as far as it is about times before `until`."""

    seq: int = 0
    until: int | None = None


class Past:
    """What happened between nodes, as of any time: history, walks and candidates.

    half_lives: over which recent activity is counted.
    """

    def __init__(self, half_lives: Sequence[float], events: Meetings, near: Path | None) -> None:
        self.history = History(0, half_lives, near=near, merged=_MERGED)
        self.local = LocalPropagation(self.history)
        self.candidates = Candidates(events, self.local)

    def append(self, src: Any, dst: Any, t: Any, nodes: int) -> None:
        """Add later events."""
        self.history.append(EventStream(src, dst, t, nodes))


class Meetings:
    """The events that link two nodes, in time order, and how many nodes there are."""

    def __init__(self) -> None:
        self._columns = Columns(src=np.int64, dst=np.int64, t=np.int64)
        self.nodes = 0

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def src(self) -> IntArray:
        return self._columns["src"]

    @property
    def dst(self) -> IntArray:
        return self._columns["dst"]

    @property
    def t(self) -> IntArray:
        return self._columns["t"]

    def append(self, src: Any, dst: Any, t: Any, nodes: int) -> None:
        """Add later events."""
        self.nodes = nodes  # before the events that name them
        self._columns.append(len(src), src=src, dst=dst, t=t)


class State:
    """Engine and history after some rows of the log.

    names: those of all nodes of the log. near: a directory for files without a name.
    """

    def __init__(self, about: About, names: Names, *, near: Path | None = None) -> None:
        self.about, self.names, self._near = about, names, near
        self.propagator = about.propagator()
        self._room = 0
        self._seen = np.zeros(_ROOM, dtype=np.bool_)  # which nodes had an event
        self.meetings = Meetings()
        # Rows that are no meetings: removals and weights that were set. With the meetings, these
        # are all that the engine was given. `after`: how many meetings came before.
        self.others = Columns(
            src=np.int64, dst=np.int64, t=np.int64, weight=np.float64, op=np.uint8, after=np.int64
        )
        self._weights = Columns(weight=np.float64)  # of the meetings
        self._features: dict[int, bytes] = {}  # those that were set, by node
        # What answers about links: a model, or None, and what it reads. Read both at once.
        self.answering: tuple[Any, Past] = (
            None,
            Past(activity_half_lives(about.span), self.meetings, near),
        )
        self.counts = {"applied": 0, "rejected": 0, "features": 0}
        self.recent: deque[tuple[Rows, dict[int, str]]] = deque()  # and why some were left out
        self.moment = Moment()
        self._readers = 0
        self._followed = 0  # rows of the state it follows, if it follows one
        self.lock = threading.RLock()  # around changes, and around reading what must fit together

    # Rows -----------------------------------------------------------------------------------------

    def apply(self, rows: Rows, moment: Moment) -> None:
        """Apply rows, sorted, and stand at a moment then; all rows of one time come together.

        A row that does not fit the graph, such as the removal of an edge that does not exist, is
        left out and counted.
        """
        reach("state.apply.before")
        with self.lock:
            first = 0
            for place in np.flatnonzero(rows.op > Kind.SET).tolist():
                self._apply_edges(rows[first:place])
                self._apply_to_node(rows[place : place + 1])
                first = place + 1
            self._apply_edges(rows[first:])
            self.moment = moment
        reach("state.apply.after")

    def _apply_edges(self, rows: Rows) -> None:
        if not len(rows):
            return
        given = not np.isnan(rows.weight).all()
        whole = np.where(rows.op == Op.REMOVE, np.inf, 1.0)
        edges = _Edges(
            rows.src,
            rows.dst,
            rows.t,
            rows.op if rows.op.any() else None,
            np.where(np.isnan(rows.weight), whole, rows.weight) if given else None,
        )
        reasons = self._apply_places(edges, np.arange(len(rows)))
        if reasons:
            edges = edges.take(np.setdiff1d(np.arange(len(rows)), list(reasons)))
        self._remember(edges)
        self._note(rows, reasons)

    def _apply_places(self, edges: _Edges, places: IntArray) -> dict[int, str]:
        """Apply the rows at these places; return why some were rejected, by their place."""
        reasons: dict[int, str] = {}
        while len(places):
            largest = np.maximum(edges.src[places], edges.dst[places])
            beyond = np.flatnonzero(largest >= self._room)
            if len(beyond):
                # When nodes are added is part of the result's bits: right before the first step
                # that brings one for which there is no room, wherever calls begin and end.
                first = int(np.searchsorted(edges.t[places], edges.t[places[beyond[0]]]))
                if first == 0:
                    while self._room <= largest[beyond[0]]:
                        more = max(_ROOM, self._room // 4)
                        self.propagator.apply(Batch(new_nodes=more))
                        self._room += more
                    continue
            else:
                first = len(places)
            now, places = places[:first], places[first:]
            while len(now):
                now = self._apply_steps(edges, now, reasons)
        return reasons

    def _apply_steps(self, edges: _Edges, places: IntArray, reasons: dict[int, str]) -> IntArray:
        """Apply one step per time, up to the first that is rejected, and that row by row; return
        the places that are left.
        """
        taken = edges.take(places)
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(taken.t)) + 1, [len(places)]])
        steps = Steps._of(*taken.columns(), bounds, taken.t[bounds[1:] - 1])
        counts = np.zeros(len(steps), dtype=np.int64)
        done, reason, _ = self.propagator._apply_until_rejected(steps, bounds, counts)
        if not reason:
            return places[:0]
        begin, end = int(bounds[done]), int(bounds[done + 1])
        for place in places[begin:end]:
            row = edges.take(np.array([place]))
            src, dst, t, weight, op = row.columns()
            try:
                self.propagator.apply(Batch(src, dst, t=int(t[0]), weight=weight, op=op))
            except (EventError, PrecisionError) as error:
                reasons[int(place)] = str(error).removeprefix("row 0: ")
        return places[end:]

    def _remember(self, edges: _Edges) -> None:
        """Add rows that the engine has taken to what is known of the past."""
        if not len(edges.src):
            return
        nodes = max(self.meetings.nodes, int(edges.src.max()) + 1, int(edges.dst.max()) + 1)
        if nodes > len(self._seen):
            self._seen = np.concatenate([self._seen, np.zeros(nodes, dtype=np.bool_)])
        self._seen[edges.src] = self._seen[edges.dst] = True
        added: Any = slice(None) if edges.op is None else edges.op == Op.ADD
        src, dst, t = edges.src[added], edges.dst[added], edges.t[added]
        if edges.op is not None:
            rest = edges.take(np.flatnonzero(~added))
            weight = np.full(len(rest.src), np.nan) if rest.weight is None else rest.weight
            after = len(self.meetings) + np.cumsum(added)[~added]
            self.others.append(
                len(rest.src),
                src=rest.src,
                dst=rest.dst,
                t=rest.t,
                weight=weight,
                op=rest.op,
                after=after,
            )
        if edges.weight is not None or len(self._weights):
            missing = len(self.meetings) - len(self._weights)
            self._weights.append(missing, weight=1.0)
            self._weights.append(
                len(src), weight=1.0 if edges.weight is None else edges.weight[added]
            )
        self.meetings.append(src, dst, t, nodes)
        self.past.append(src, dst, t, nodes)

    def _apply_to_node(self, row: Rows) -> None:
        reason, number, t = None, int(row.src[0]), int(row.t[0])
        try:
            if not self.knows(number):
                raise EventError("there is no such node, and nothing to change")
            if row.op[0] == Kind.FEATURES:
                self._set_features(number, row.features[int(row.seq[0])], t)
                self.counts["features"] += 1
            else:
                src, dst, _ = self.propagator.edges_of(number)
                count = len(src)
                edges = _Edges(
                    src,
                    dst,
                    np.full(count, t),
                    np.full(count, Op.REMOVE, dtype=np.uint8),
                    np.full(count, np.inf),
                )
                if count:
                    self._apply_places(edges, np.arange(count))
                    self._remember(edges)
        except (EventError, PrecisionError) as error:
            reason = str(error)
        self._note(row, {} if reason is None else {0: reason})

    def _set_features(self, node: int, values: bytes, t: int | None) -> None:
        array = np.frombuffer(values)[None]
        self.propagator.apply(Batch(t=t, feature_nodes=[node], feature_values=array))
        self._features[node] = values

    def _note(self, rows: Rows, reasons: dict[int, str]) -> None:
        self.counts["applied"] += len(rows) - len(reasons)
        self.counts["rejected"] += len(reasons)
        self.recent.append((rows, reasons))
        kept = sum(len(each) for each, _ in self.recent)
        while kept - len(self.recent[0][0]) >= _RECENT:
            kept -= len(self.recent.popleft()[0])

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the state as it is while several parts of it are read."""
        self._readers += 1  # so that those who apply let others in
        try:
            with self.lock:
                yield
        finally:
            self._readers -= 1

    def let_read(self) -> None:
        """Wait until those who came to read hold the lock: it does not pass to them by itself."""
        if self._readers:
            time.sleep(_YIELDED_S)

    # Names ----------------------------------------------------------------------------------------

    def knows(self, number: int) -> bool:
        """Return whether a node had an event."""
        return number < len(self._seen) and bool(self._seen[number])

    def known(self) -> IntArray:
        """Return the numbers of all nodes that had an event."""
        return np.flatnonzero(self._seen)

    def number(self, name: Any, side: Side | None = None) -> int:
        """Return the number of a node that had an event, by its name, or by its id on a side."""
        number = self.named(name, side)
        if not self.knows(number):
            raise UnknownNodeError(
                f"node {name!r} has no event yet that was applied; those that came may still wait"
                " for the watermark"
            )
        return number

    def named(self, name: Any, side: Side | None = None) -> int:
        """Return the number of a node, also of one whose events still wait."""
        text = self.about.reader.name(name)
        found = [self.names.get(f"{prefix} {text}") for prefix in ("src", "dst")]
        if side is None and None not in found and self.about.by_side:
            raise UnknownNodeError(
                f"{text!r} is a source and, as another node, a destination; give 'src {text}' or"
                f" 'dst {text}'"
            )
        sides: tuple[str, ...] = ("",) if not self.about.by_side else ("", "src ", "dst ")
        if side is not None and self.about.by_side:
            sides = (f"{side} ", "")
        for prefix in sides:
            number = self.names.get(prefix + text)
            if number is not None:
                return number
        raise self.names.unknown(text)

    def name(self, number: int) -> str | int | None:
        """Return what the outside calls a node."""
        text = self.names[number] if number != NOBODY else None
        if text is None or not self.about.integers or self.about.by_side:
            return text
        return int(text)

    def first_seen(self, number: int) -> int | None:
        """Return the time of the first event of a node."""
        t, src, dst = self.meetings.t, self.meetings.src, self.meetings.dst
        own = np.flatnonzero((src[: len(t)] == number) | (dst[: len(t)] == number))[:1]
        return int(t[own[0]]) if len(own) else None

    @property
    def past(self) -> Past:
        """What happened between nodes."""
        return self.answering[1]

    # The past -------------------------------------------------------------------------------------

    def stand_on(self, model: Any, span: float) -> None:
        """Answer by a model from now on, or by none, with recent activity counted over half-lives
        that belong to this span.

        Questions are answered as before until the new counts are complete.
        """
        half_lives = activity_half_lives(span)
        fresh, done = self.past, len(self.meetings)
        if half_lives != fresh.history.half_lives:
            fresh, done = Past(half_lives, self.meetings, self._near), 0
        while True:
            with self.lock:
                count = len(self.meetings)
                if count - done <= _RECENT or fresh is self.past:  # the rest takes an instant
                    if fresh is not self.past:
                        self._fill(fresh, done, count)
                    self.answering = model, fresh
                    self.about = dataclasses.replace(self.about, span=span)
                    return
            self._fill(fresh, done, count)
            done = count

    def _fill(self, past: Past, first: int, last: int) -> None:
        if last > first:
            rows, events = slice(first, last), self.meetings
            past.append(events.src[rows], events.dst[rows], events.t[rows], events.nodes)

    def stream(self, *, meetings_only: bool = False) -> EventStream:
        """Return the applied rows as a stream; without names, numbered as here."""
        with self.lock:
            count, others, nodes = len(self.meetings), len(self.others), self.meetings.nodes
        events = self.meetings
        columns: dict[str, Any] = {
            "src": events.src[:count],
            "dst": events.dst[:count],
            "t": events.t[:count],
        }
        if not meetings_only:
            if len(self._weights):
                columns["weight"] = self._weights["weight"][:count]
            if others:
                columns = self._merged(columns, count, others)
        return EventStream(**columns, nodes=nodes, unit=self.about.unit)

    def _merged(self, columns: dict[str, Any], count: int, others: int) -> dict[str, Any]:
        """Return the columns of the meetings with all other rows at their places."""
        after = self.others["after"][:others]
        weight = self.others["weight"][:others]
        op = self.others["op"][:others]
        weight = np.where(np.isnan(weight), np.where(op == Op.REMOVE, np.inf, 1.0), weight)
        columns = {
            **columns,
            "weight": columns.get("weight", np.ones(count)),
            "op": np.zeros(count, dtype=np.uint8),
        }
        rest = {name: self.others[name][:others] for name in ("src", "dst", "t")}
        rest |= {"weight": weight, "op": op}
        return {name: np.insert(columns[name], after, rest[name]) for name in columns}

    # Saving ---------------------------------------------------------------------------------------

    def capture(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state as a description and arrays, which stay as they are."""
        with self.lock:
            # The engine's own arrays, which change while a snapshot is written.
            arrays = {f"{_ENGINE}{k}": v.copy() for k, v in self.propagator._arrays().items()}
            for name in ("src", "dst", "t"):
                arrays[name] = getattr(self.meetings, name)
            arrays |= {f"others.{name}": self.others[name] for name in _OTHERS}
            arrays["weight"] = self._weights["weight"]
            values = [np.frombuffer(each) for _, each in sorted(self._features.items())]
            arrays["features"] = np.array(values).reshape(-1, self.about.columns)
            arrays["features.node"] = np.array(sorted(self._features), dtype=np.int64)
            description = {
                "format": _FORMAT,
                "about": dataclasses.asdict(self.about),
                "engine": self.propagator._description(),
                "room": self._room,
                "counts": dict(self.counts),
                "moment": dataclasses.asdict(self.moment),
            }
        return description, arrays

    @classmethod
    def restore(
        cls,
        description: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        names: Names,
        source: str,
        *,
        near: Path | None = None,
    ) -> State:
        """Return the state that `capture` described; it continues to the bit."""
        if description.get("format") != _FORMAT:
            raise StateFileError(
                f"{source} has format {description.get('format')}; this release reads {_FORMAT}"
            )
        state = cls(About.of(description["about"]), names, near=near)
        engine = {k.removeprefix(_ENGINE): v for k, v in arrays.items() if k.startswith(_ENGINE)}
        state.propagator = Propagator._from_state(description["engine"], engine, source=source)
        state._room, state.counts = description["room"], description["counts"]
        others = {name: arrays[f"others.{name}"] for name in _OTHERS}
        state.others.append(len(others["src"]), **others)
        state._weights.append(len(arrays["weight"]), weight=arrays["weight"])
        ends = [arrays["src"], arrays["dst"], others["src"], others["dst"]]
        nodes = 1 + max(int(each.max(initial=NOBODY)) for each in ends)
        state._seen = np.zeros(max(_ROOM, nodes), dtype=np.bool_)
        for each in ends:
            state._seen[each] = True
        state.meetings.append(arrays["src"], arrays["dst"], arrays["t"], nodes)
        state._fill(state.past, 0, len(state.meetings))
        rows = zip(arrays["features.node"].tolist(), arrays["features"], strict=True)
        state._features = {node: values.tobytes() for node, values in rows}
        state.moment = Moment(**description["moment"])
        return state

    def without(self, node: int) -> State:
        """Return the state of the same rows without those of a node, at the same moment.

        The other nodes keep their numbers, and with these their random features. It shares the lock
        and follows later rows by `catch_up`.
        """
        model, past = self.answering
        fresh = State(self.about, self.names, near=self._near)
        self.catch_up(fresh, node)  # others go on with this one meanwhile
        fresh.lock = self.lock
        fresh.answering = model, fresh.past
        assert fresh.past.history.half_lives == past.history.half_lives
        return fresh

    def catch_up(self, other: State, node: int) -> None:
        """Bring a state that was made by `without` to this one's moment."""
        with self.lock:
            rows, moment = self._rows()[other._followed :], self.moment
            features, counts = dict(self._features), dict(self.counts)
        other._followed += len(rows)
        other.apply(rows.without(node), moment)
        changed = {k: v for k, v in features.items() if k != node and other._features.get(k) != v}
        for number, values in changed.items():
            if other.knows(number):
                other._set_features(number, values, other.propagator.time)
        other.counts = counts
        other.recent.clear()

    def _rows(self) -> Rows:
        """Return the applied rows about edges."""
        stream = self.stream()
        weight = np.nan if stream.weight is None else stream.weight
        op = 0 if stream.op is None else stream.op
        numbers = np.arange(len(stream))
        return Rows.of(stream.t, numbers, stream.src, stream.dst, op, weight)

    def digest(self) -> str:
        """Return a digest of all that answers depend on, the model apart."""
        with self.lock:
            description, arrays = self.capture()
            parts: list[Any] = [repr(sorted(description["counts"].items())).encode()]
            parts.append(repr((self._room, self.moment.until, self.names.plain())).encode())
            for name, array in sorted(arrays.items()):
                parts += [name.encode(), array]
            count = min(_RECENT, len(self.meetings))
            if count:  # what is derived from them is the same, too
                newest = slice(len(self.meetings) - count, len(self.meetings))
                src, dst = self.meetings.src[newest], self.meetings.dst[newest]
                t = self.meetings.t[newest]
                parts.append(self.past.history.of_links(src, dst, t))
                parts.append(self.past.local.of_links(src, dst, t))
            return statefile.digest(parts)


def waiting(rows: Rows, until: int | None) -> Rows:
    """Return those rows of the log that a state which stands at a time has not applied yet."""
    kept = rows.op < Kind.MARK
    if until is not None:
        kept &= rows.t >= until
    return rows[kept]


def replay(state: State, ready: Rows, moment: Moment, progress: Progress | None = None) -> None:
    """Apply many rows to a state that nobody reads yet, and stand at a moment then."""
    done = 0
    while done < len(ready):
        end = min(done + _REPLAYED, len(ready))
        end = int(np.searchsorted(ready.t, ready.t[end - 1], side="right"))
        state.apply(ready[done:end], Moment(moment.seq, int(ready.t[end - 1]) + 1))
        done = end
        if progress is not None:
            progress(done, len(ready), "replaying the log")
    state.moment = moment


_OTHERS = ("src", "dst", "t", "weight", "op", "after")


@dataclass(frozen=True)
class _Edges:
    """Rows about edges as columns, in time order."""

    src: IntArray
    dst: IntArray
    t: IntArray
    op: NDArray[np.uint8] | None
    weight: NDArray[np.float64] | None

    def take(self, places: IntArray) -> _Edges:
        if len(places) == len(self.t):
            return self
        return _Edges(
            self.src[places],
            self.dst[places],
            self.t[places],
            None if self.op is None else self.op[places],
            None if self.weight is None else self.weight[places],
        )

    def columns(self) -> tuple[Any, ...]:
        """Return the columns in the order of `Steps`."""
        return self.src, self.dst, self.t, self.weight, self.op
