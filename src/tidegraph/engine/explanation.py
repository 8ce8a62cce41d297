"""Which events moved a node's representation in a span of time, and through which nodes.

With `p = pi / d^(1-beta)` the representation solves `M·p = gamma0·d^beta·x`, `M = D - gamma·W`. An
event that turns M into M' leaves in the equations of its endpoints, and nowhere else, the
correction `c = gamma0·(d'^beta - d^beta)·x - Δd·p + gamma·ΔW·p`, and p moves by `M'^-1·c`. What of
it arrives at one node v is `Σ_u a(u)·c(u)` with the adjoint `a = M'^-T·e_v`: one number per node of
the graph, whatever the number of columns, and kept up to date by pushing as the engine keeps p.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch, Op
from tidegraph.events.columns import TIME_LIMIT
from tidegraph.events.moments import dates
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import EventStream

__all__ = ["EventShare", "Explanation", "NeighbourShare", "explain"]

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

_TOLERANCE = 1e-3  # of the adjoint's residual between events, in r_max: estimates err by far more
_TIGHT = 1e-13  # of the same where the representation itself is read from it
_STANDS_STILL = 1e-10  # a relative movement that rounding can make
_SAME = 1e-15  # weights this close are one weight, read at two times
_MANY = 100  # changes of weight at once, after which residuals are computed afresh
_PIECE = 1 << 15  # nodes whose features are looked at together


# What comes back ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class EventShare:
    """What one event did to the node."""

    position: int  # in the stream
    src: int
    dst: int
    t: int
    op: Op
    weight: float
    share: float  # of the movement; negative: it pulled the other way
    norm: float  # of what it contributed, whatever the direction


@dataclass(frozen=True)
class NeighbourShare:
    """What came through one other node: its events with the node, and events elsewhere."""

    node: int
    share: float
    events: int
    direct: int  # how many of the events were with the node itself


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a node's representation moved from `span[0]` to `span[1]`.

    `direct + elsewhere + time_passing` is 1 up to `unattributed`. Where nothing moved, or all of it
    cancelled out, `moved` and all shares are 0. `str()` is a report.
    """

    node: int
    span: tuple[int, int]
    movement: FloatArray  # [columns]
    moved: float  # its Euclidean norm
    relative: float  # the norm over that of the representation at the beginning
    events: tuple[EventShare, ...]  # the largest shares, by size
    neighbours: tuple[NeighbourShare, ...]  # the largest shares, by size
    events_in_span: int
    direct: float  # share of all events that the node took part in
    elsewhere: float  # share of all other events
    time_passing: float  # share of edges that left a window, faded or were forgotten
    unattributed: float  # ‖movement - Σ contributions‖ / ‖movement‖
    names: NodeNames | None
    unit: str

    def name(self, node: int) -> Any:
        """Return what the stream calls a node."""
        return node if self.names is None else self.names[node]

    def to_dict(self) -> dict[str, Any]:
        """Return all but the movement's columns, in what JSON can hold; nodes by their names.

        What is infinite is None: the weight of a removal of the whole edge, and the relative
        movement of what was zero.
        """
        return {
            "node": self.name(self.node),
            "span": list(self.span),
            "unit": self.unit,
            "moved": self.moved,
            "relative": self.relative if np.isfinite(self.relative) else None,
            "events_in_span": self.events_in_span,
            "direct": self.direct,
            "elsewhere": self.elsewhere,
            "time_passing": self.time_passing,
            "unattributed": self.unattributed,
            "events": [
                {
                    "position": event.position,
                    "src": self.name(event.src),
                    "dst": self.name(event.dst),
                    "t": event.t,
                    "op": event.op.name.lower(),
                    "weight": event.weight if np.isfinite(event.weight) else None,
                    "share": event.share,
                    "norm": event.norm,
                }
                for event in self.events
            ],
            "neighbours": [
                {
                    "node": self.name(neighbour.node),
                    "share": neighbour.share,
                    "events": neighbour.events,
                    "direct": neighbour.direct,
                }
                for neighbour in self.neighbours
            ],
        }

    def __str__(self) -> str:
        begin, end = (self._moment(t) for t in self.span)
        if self.moved == 0 and not self.events:
            return (
                f"{self.name(self.node)} did not move from {begin} to {end}:"
                f" none of the {self.events_in_span:,} events in that span reached it."
            )
        lines = [
            f"{self.name(self.node)} moved by {self.moved:.4g} ({self.relative:.1%} of its length)"
            f" from {begin} to {end}.",
            f"Of the movement {_percent(self.direct)} came from its own events,"
            f" {_percent(self.elsewhere)} from events elsewhere and"
            f" {_percent(self.time_passing)} from time passing; the share left over is"
            f" {_percent(1 - self.direct - self.elsewhere - self.time_passing)}. What is not"
            f" attributed has {self.unattributed:.1%} of the movement's length (a length, not a"
            " share: it may point anywhere)."
            if self.moved
            else "It is back where it was: what the events did cancelled out.",
            "",
            f"Events ({len(self.events):,} of {self.events_in_span:,}, the largest shares first)",
        ]
        lines += _columns(
            ["share", "norm", "when", "src", "dst", "op", "weight", "position"],
            [
                [
                    f"{event.share:+.1%}",
                    f"{event.norm:.3g}",
                    self._moment(event.t),
                    str(self.name(event.src)),
                    str(self.name(event.dst)),
                    event.op.name.lower(),
                    f"{event.weight:g}" if np.isfinite(event.weight) else "all",
                    f"{event.position}",
                ]
                for event in self.events
            ],
        )
        lines += ["", "Nodes through which it came"]
        lines += _columns(
            ["share", "node", "events", "direct"],
            [
                [
                    f"{one.share:+.1%}",
                    str(self.name(one.node)),
                    f"{one.events:,}",
                    f"{one.direct:,}",
                ]
                for one in self.neighbours
            ],
        )
        return "\n".join(lines)

    def _moment(self, t: int) -> str:
        return dates(t, t, self.unit)[0] or f"{t}"


def _percent(share: float) -> str:
    return f"{round(share, 3) + 0.0:.1%}"  # + 0.0: no negative zero


def _columns(titles: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a plain table, aligned to the right."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    return [
        "  " + "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
        for row in [titles, *rows]
    ]


# The question -------------------------------------------------------------------------------------


def explain(
    stream: EventStream,
    node: int,
    t0: int,
    t1: int,
    *,
    channel: Channel | None = None,
    alpha: float = 0.2,
    features: ArrayLike | Sketch | None = None,
    top: int | None = 10,
    r_max: float = 1e-3,
    progress: Progress | None = None,
    **options: Any,
) -> Explanation:
    """Return the events at `t0 <= t < t1`, and the nodes, that moved a representation most.

    The movement is that of the node's exact representation (up to rounding) between what holds
    after all events before t0 and after all before t1, time having passed up to each. An event's
    share is the part of the movement that its contribution makes up,
    `⟨contribution, movement⟩ / ‖movement‖²`.

    Events count one after the other, in the stream's order, also those of one time: the shares
    belong to this order, since what an event does depends on the graph it meets. Contributions are
    computed from maintained estimates, and `unattributed` says what that leaves open; a smaller
    `r_max` makes it smaller. What happens to other edges than the event's own, because they leave
    a window, is the share of time passing. Under decay it is what happens at each whole number of
    half-lives after the first event: all self-loops count in full again, so that edges have faded
    beside them; without self-loops, edges that have become too light are forgotten. In between
    all weights fade alike, which moves nothing, until an event brings new weight and renews the
    self-loops at its ends; this is the event's.

    An event with the node itself came through its other endpoint, an event elsewhere through that
    of its endpoints which is nearer to the node: in which a change weighs more.

    node: its number in the stream; `stream.number` translates names.
    channel: what to compute; by default a low-pass filter with `alpha`.
    features: `[nodes, columns]`; by default a `Sketch` of 64 columns.
    top: how many events and nodes to list; None lists all that contributed.
    options: those of `Propagator`, such as `directed`, `beta` and `self_loop`; float64 by default.

    The time it takes goes with the events in the span, little for those far from the node. Where
    edges leave a window, and at every half-life, the whole graph is compared with the one before.

    >>> stream = EventStream.from_arrays([0, 1, 3], [1, 2, 4], [10, 20, 30])
    >>> [(event.position, round(event.share, 3)) for event in explain(stream, 2, 15, 40).events]
    [(1, 1.0)]
    """
    node, t0, t1, first, last = _asked(stream, node, t0, t1, top)
    features = Sketch(64) if features is None else features
    if not isinstance(features, Sketch) and np.shape(features)[:1] != (stream.nodes,):
        raise ParameterError(
            f"features have shape {np.shape(features)}; the stream has {stream.nodes} nodes, give"
            " [nodes, columns]"
        )
    filtered = Channel.low_pass(alpha) if channel is None else channel
    replay = _Replay(
        stream,
        node,
        t0,
        slice(first, last),
        filtered,
        features,
        {"dtype": "float64", **options, "r_max": r_max},
    )
    before = replay.representation()
    for position in range(first, last):
        if progress is not None:
            progress(position - first, last - first, "events explained")
        replay.move_clock(int(stream.t[position]))
        replay.apply(position)
    replay.move_clock(t1)
    return _summary(replay, before, replay.representation(), (t0, t1), top)


def _asked(stream: EventStream, node: Any, t0: Any, t1: Any, top: Any) -> tuple[int, ...]:
    """Check node and span and return them with the span's positions in the stream."""
    node, t0, t1 = (_whole(*given) for given in (("node", node), ("t0", t0), ("t1", t1)))
    if top is not None:
        top = _whole("top", top)
    if t0 <= -TIME_LIMIT or t1 >= TIME_LIMIT:
        raise ParameterError(f"the span is {t0} to {t1}; times lie between -2**62 and 2**62")
    if t0 >= t1:
        raise ParameterError(f"the span is {t0} to {t1}; t0 must be before t1")
    if top is not None and top < 1:
        raise ParameterError(f"top is {top}; give how many events to list, or None for all")
    if not 0 <= node < stream.nodes:
        raise DataError(f"node {node} is unknown; nodes are 0 to {stream.nodes - 1}")
    first, last = np.searchsorted(stream.t, [t0, t1], side="left").tolist()
    own = np.flatnonzero((stream.src == node) | (stream.dst == node))
    edges = stream.initial
    started = edges is not None and bool(((edges.src == node) | (edges.dst == node)).any())
    if not started and not (own.size and own[0] < last):
        when = f"its first is at {stream.t[own[0]]}" if own.size else "nor any later"
        raise DataError(
            f"node {stream.name([node])[0]} has no event before {t1}, {when}: nothing can have"
            " moved it yet; give a span that ends later, or another node"
        )
    return node, t0, t1, first, last


def _whole(name: str, value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ParameterError(f"{name} is {value!r}; give a whole number")


def _summary(
    replay: _Replay,
    before: FloatArray,
    after: FloatArray,
    span: tuple[int, int],
    top: int | None,
) -> Explanation:
    """Return the shares of the parts that a replay collected."""
    stream, node = replay.stream, replay.node
    movement = after - before
    length, moved = float(np.linalg.norm(before)), float(np.linalg.norm(movement))
    if moved <= _STANDS_STILL * (length + float(np.linalg.norm(after))):
        movement, moved = np.zeros_like(movement), 0.0
    first, last = replay.rows.start, replay.rows.stop
    norms = np.linalg.norm(replay.contributions, axis=1)
    shares = replay.contributions @ movement / (moved**2 or 1.0)
    order = np.lexsort([-norms, -np.abs(shares)])
    order = order[norms[order] > 0][:top]
    rest = movement - replay.contributions.sum(axis=0) - replay.passing
    src, dst = stream.src[first:last], stream.dst[first:last]
    direct = (src == node) | (dst == node)
    return Explanation(
        node=node,
        span=span,
        movement=movement,
        moved=moved,
        relative=moved / length if length else (np.inf if moved else 0.0),
        events=tuple(
            EventShare(
                position=first + at,
                src=int(src[at]),
                dst=int(dst[at]),
                t=int(stream.t[first + at]),
                op=_op(stream, first + at),
                weight=_weight(stream, first + at),
                share=float(shares[at]),
                norm=float(norms[at]),
            )
            for at in order.tolist()
        ),
        neighbours=tuple(_neighbours(replay.through, shares, direct)[:top]),
        events_in_span=last - first,
        direct=float(shares[direct].sum()),
        elsewhere=float(shares[~direct].sum()),
        time_passing=float(replay.passing @ movement / (moved**2 or 1.0)),
        unattributed=float(np.linalg.norm(rest)) / moved if moved else 0.0,
        names=stream.names,
        unit=stream.unit,
    )


def _neighbours(
    through: IntArray, shares: FloatArray, direct: NDArray[np.bool_]
) -> list[NeighbourShare]:
    """Return what came through each node, the largest share first."""
    came = through >= 0
    nodes, at = np.unique(through[came], return_inverse=True)
    columns = (
        nodes,
        np.bincount(at, shares[came], minlength=len(nodes)),
        np.bincount(at, minlength=len(nodes)),
        np.bincount(at[direct[came]], minlength=len(nodes)),
    )
    found = [NeighbourShare(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
    return sorted(found, key=lambda one: -abs(one.share))


def _op(stream: EventStream, position: int) -> Op:
    return Op.ADD if stream.op is None else Op(int(stream.op[position]))


def _weight(stream: EventStream, position: int) -> float:
    if stream.weight is not None:
        return float(stream.weight[position])
    return np.inf if _op(stream, position) is Op.REMOVE else 1.0


# The replay ---------------------------------------------------------------------------------------


class _Changes(NamedTuple):
    """Changes of entries of W."""

    i: IntArray
    j: IntArray
    delta: FloatArray


class _Replay:
    """The stream up to t0 in an engine of one channel, the adjoint beside it, and what follows.

    The engine decides what its version of the graph is; changes of weight are read back from it.
    Under decay they are counted in the unit of the last boundary, a whole number of half-lives
    after the first event, so that nothing changes in between unless an event changes it.
    """

    def __init__(
        self,
        stream: EventStream,
        node: int,
        t0: int,
        rows: slice,
        channel: Channel,
        features: ArrayLike | Sketch,
        options: dict[str, Any],
    ) -> None:
        self.stream, self.node, self.rows, self.channel = stream, node, rows, channel
        # Time begins with the first event, and so does an initial graph, which has no times.
        self._origin = int(stream.t[0]) if len(stream) else t0
        self._clock = max(t0, self._origin)
        self._engine = Propagator(
            features,
            nodes=stream.nodes,
            channels=(channel,),
            initial=self._rows_before(rows.start),
            **options,
        )
        events = rows.stop - rows.start
        self.contributions = np.zeros((events, self._engine.columns))
        self.passing = np.zeros(self._engine.columns)  # what came without an event
        self.through = np.full(events, -1)  # the node through which each event came; -1: none did
        if channel.timed:
            self._engine.apply(Batch(t=self._clock))
        self._beta = self._engine.beta if channel.beta is None else channel.beta
        self._loops = self._unit() * self._engine.loops(0)
        i, j, _ = self._entries(*self._engine.edges(0))
        span_i, span_j, _ = self._entries(stream.src[rows], stream.dst[rows])
        self._adjoint = _Adjoint(
            node,
            channel.gamma,
            np.concatenate([i, span_i]),
            np.concatenate([j, span_j]),
            stream.nodes,
        )
        self._adjoint.set_weights(*self._weights(), self._degree())

    def _rows_before(self, end: int) -> Batch | None:
        """Return the graph the stream starts from, and its rows up to `end`."""
        stream, edges = self.stream, self.stream.initial
        if edges is None:
            return stream[:end].steps(events=max(end, 1)).batch(0, 1) if end else None
        count = len(edges.src)
        weight = np.ones(count) if edges.weight is None else edges.weight
        op = np.zeros(end, dtype=np.uint8) if stream.op is None else stream.op[:end]
        later = np.where(op == Op.REMOVE, np.inf, 1.0)
        if stream.weight is not None:
            later = stream.weight[:end]
        return Batch(
            np.concatenate([edges.src, stream.src[:end]]),
            np.concatenate([edges.dst, stream.dst[:end]]),
            weight=np.concatenate([weight, later]),
            op=np.concatenate([np.zeros(count, dtype=np.uint8), op]),
            t=np.concatenate([np.full(count, self._origin), stream.t[:end]]),
        )

    # What the engine has now ------------------------------------------------------------------

    def _boundary(self, t: int) -> int:
        """Return how many half-lives have ended by `t`; none without decay."""
        half_life = self.channel.half_life
        return 0 if half_life is None else math.floor((t - self._origin) / half_life)

    def _unit(self) -> float:
        """Return what a weight of one now counts in the unit of the last boundary."""
        half_life = self.channel.half_life
        if half_life is None:
            return 1.0
        passed = self._boundary(self._clock) * Fraction(half_life)
        return float(2.0 ** (float(self._clock - self._origin - passed) / half_life))

    def _degree(self, nodes: IntArray | None = None) -> FloatArray:
        return self._unit() * self._engine.degree(nodes)[:, 0]

    def _entries(
        self, src: IntArray, dst: IntArray, weight: FloatArray | None = None
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return rows, columns and values of the entries of W that edges (of weight 1) make up."""
        weight = np.ones(len(src)) if weight is None else weight
        if self._engine.directed and self.channel.direction == "out":
            return src, dst, weight
        if self._engine.directed and self.channel.direction == "in":
            return dst, src, weight
        # Both directions of a self-edge count; an undirected one has no other direction.
        back = np.full(len(src), True) if self._engine.directed else src != dst
        return (
            np.concatenate([src, dst[back]]),
            np.concatenate([dst, src[back]]),
            np.concatenate([weight, weight[back]]),
        )

    def _weights(self) -> tuple[FloatArray, FloatArray]:
        """Return the entries of W in the adjoint's pattern, and its diagonal."""
        i, j, weight = self._entries(*self._engine.edges(0))
        weight = self._unit() * weight
        on, off = i == j, i != j
        at = self._adjoint.places(i[off], j[off])
        return (
            _sums(at, weight[off], len(self._adjoint.j)),
            self._loops + _sums(i[on], weight[on], self.stream.nodes),
        )

    # What happens -----------------------------------------------------------------------------

    def move_clock(self, t: int) -> None:
        """Let time pass: what the channel lets go of or renews is a part of time passing."""
        if not self.channel.timed or t <= self._clock:
            return
        halvings = self._boundary(t) - self._boundary(self._clock)
        changes = halvings > 0 or self._lets_go(t)
        estimate = self._engine.embedding()[:, 0] if changes else None
        self._engine.apply(Batch(t=t))
        self._clock = t
        if estimate is None:
            return
        if halvings:
            self._adjoint.fade(halvings, float(self._degree(np.array([self.node]))[0]))
        self._absorb([(self.passing, self._differences())], None, estimate)

    def _lets_go(self, t: int) -> bool:
        """Say whether edges can leave a window until `t`."""
        if self.channel.window is None:
            return False
        expiring = np.array([self._clock, t]) - self.channel.window
        begin, end = np.searchsorted(self.stream.t, expiring, side="right")
        initial = self.stream.initial is not None
        return bool(end > begin or (initial and expiring[0] < self._origin <= expiring[1]))

    def apply(self, position: int) -> None:
        """Apply one event and collect what it does to the node."""
        src, dst = int(self.stream.src[position]), int(self.stream.dst[position])
        # Any edge may leave the last events for this one.
        ids = None if self.channel.last is not None else np.unique([src, dst])
        estimate = self._engine.embedding(ids)[:, 0]
        self._engine.apply(
            Batch(
                [src],
                [dst],
                weight=[_weight(self.stream, position)],
                op=_op(self.stream, position),
                t=int(self.stream.t[position]),
            )
        )
        contribution = self.contributions[position - self.rows.start]
        if ids is not None:
            parts = [(contribution, self._differences_at(ids, src, dst))]
        else:
            found = self._differences()
            own = np.isin(found.i, [src, dst]) & np.isin(found.j, [src, dst])
            own &= (found.i == found.j) == (src == dst)
            parts = [
                (total, _Changes(found.i[which], found.j[which], found.delta[which]))
                for total, which in ((contribution, own), (self.passing, ~own))
            ]
        self._absorb(parts, ids, estimate)
        if contribution.any():
            self.through[position - self.rows.start] = self._nearer(src, dst)

    def _nearer(self, src: int, dst: int) -> int:
        """Return the endpoint, other than the node itself, in which the adjoint is larger.

        On the way from the node the adjoint falls from neighbour to neighbour.
        """
        if self.node in (src, dst):
            return dst if src == self.node else src
        values = np.abs(self._adjoint.values[[src, dst]])
        return src if values[0] >= values[1] else dst

    def _differences_at(self, ids: IntArray, src: int, dst: int) -> _Changes:
        """Return the changes of the edge and of the self-loops at its ends, told from degrees."""
        before, now = self._adjoint.degree[ids], self._degree(ids)
        change = now - before
        renewed = np.zeros(len(ids))
        if self.channel.half_life is not None:
            loops = self._unit() * self._engine.loops(0)[ids]
            renewed = loops - self._loops[ids]
            self._loops[ids] = loops
            change -= renewed
        i, j, _ = self._entries(np.array([src]), np.array([dst]))
        rows = np.searchsorted(ids, i)
        finest = rows[np.argmin(np.maximum(before, now)[rows])]  # the least rounding
        delta = np.full(len(i), change[finest] / np.count_nonzero(rows == finest))
        return _Changes(*map(np.concatenate, ([ids, i], [ids, j], [renewed, delta])))

    def _differences(self) -> _Changes:
        """Return the changes of all entries of W that are not what they were."""
        adjoint, everyone = self._adjoint, np.arange(self.stream.nodes)
        self._loops = self._unit() * self._engine.loops(0)
        old = np.concatenate([adjoint.weight, adjoint.diagonal])
        new = np.concatenate(self._weights())
        at = np.flatnonzero(np.abs(new - old) > _SAME * np.maximum(new, old))
        i, j = (np.concatenate([side, everyone]) for side in (adjoint.i, adjoint.j))
        return _Changes(i[at], j[at], new[at] - old[at])

    def _absorb(
        self,
        parts: list[tuple[FloatArray, _Changes]],
        ids: IntArray | None,
        estimate: NDArray[Any],
    ) -> None:
        """Take changes into the adjoint and add what each part does to the node to its own vector.

        `estimate` is what held before all of them at `ids`, or at all nodes; changes lie there.
        """
        adjoint, beta, channel = self._adjoint, self._beta, self.channel
        nodes = np.arange(self.stream.nodes) if ids is None else ids
        degrees = [adjoint.degree[nodes]]
        for _, changes in parts:
            adjoint.change(changes)
            degrees.append(adjoint.degree[nodes])
        degrees[-1] = adjoint.degree[nodes] = self._degree(ids)  # without what rounding adds up to
        if sum(len(changes.i) for _, changes in parts) > _MANY:
            adjoint.refresh()
        adjoint.settle(_TOLERANCE * min(self._engine.r_max, 1e-3))
        first, last = degrees[0], degrees[-1]
        # A node that had no edge keeps its estimate, whatever its first degree is.
        ratio = _power(np.where(first > 0, first, last), beta - 1)  # p over the estimate
        scale = _power(adjoint.degree[[self.node]], 1 - beta)[0]
        a = np.where(last > 0, scale * adjoint.values[nodes], 0.0)
        for (total, (i, j, delta)), old, new in zip(parts, degrees, degrees[1:], strict=False):
            i, j = np.searchsorted(nodes, i), np.searchsorted(nodes, j)
            arriving = a[i] * delta
            by_p = channel.gamma * _sums(j, arriving, len(nodes)) - _sums(i, arriving, len(nodes))
            by_x = channel.gamma0 * a * (_power(new, beta) - _power(old, beta))
            for own in np.flatnonzero(nodes == self.node).tolist():  # its estimate follows d
                by_p[own] += _power(new, 1 - beta)[own] - _power(old, 1 - beta)[own]
                by_x[own] += channel.gamma0 * (float(new[own] == 0) - float(old[own] == 0))
            by_estimate = by_p * ratio
            at = np.flatnonzero(by_estimate)
            total += by_estimate[at] @ estimate[at] + self._features(nodes, by_x)

    def _features(self, nodes: IntArray, factors: FloatArray) -> FloatArray:
        """Return the sum of the nodes' features, each times its factor."""
        total = np.zeros(self._engine.columns)
        counting = np.flatnonzero(factors)
        for start in range(0, len(counting), _PIECE):
            at = counting[start : start + _PIECE]
            total += factors[at] @ self._engine.features(nodes[at])
        return total

    def representation(self) -> FloatArray:
        """Return the node's exact representation `[columns]` on the graph of now."""
        adjoint, own = self._adjoint, np.array([self.node])
        if adjoint.degree[self.node] == 0:
            return self._features(own, np.array([self.channel.gamma0]))
        adjoint.refresh()
        adjoint.settle(_TIGHT, everywhere=True)
        scale = self.channel.gamma0 * _power(adjoint.degree[own], 1 - self._beta)
        factors = scale * adjoint.values * _power(adjoint.degree, self._beta)
        return self._features(np.arange(self.stream.nodes), factors)


def _power(d: FloatArray, exponent: float) -> FloatArray:
    """Return d^exponent; 0 for nodes without edges, which have no equation, even for d^0."""
    known = d > 0
    return np.where(known, np.where(known, d, 1.0) ** exponent, 0.0)


def _sums(at: IntArray, values: FloatArray, length: int) -> FloatArray:
    """Return the sum of the values that belong to each place."""
    # Without values bincount counts, in integers.
    return np.bincount(at, values, minlength=length).astype(np.float64)


class _Adjoint:
    """`values = M^-T·e_node` on a graph whose weights change inside a fixed pattern.

    A residual `rho = e_node - M^T·values` is kept at every moment, so that what is left after
    `settle` does not add up.
    """

    def __init__(self, node: int, gamma: float, i: IntArray, j: IntArray, nodes: int) -> None:
        """Take `i`, `j`: where W can have entries, in any order, repeated or on the diagonal."""
        self._node, self._gamma, self._nodes = node, gamma, nodes
        self._keys = np.unique((i * nodes + j)[i != j])
        self.i, self.j = self._keys // nodes, self._keys % nodes
        self._begin = np.searchsorted(self.i, np.arange(nodes + 1))
        self.weight = np.zeros(len(self._keys))
        self.diagonal, self.degree, self.values = (np.zeros(nodes) for _ in range(3))
        self._rho = np.zeros(nodes)
        self._rho[node] = 1.0
        self._changed = [np.empty(0, dtype=np.int64)]

    def places(self, i: IntArray, j: IntArray) -> IntArray:
        """Return where the entries off the diagonal stand in the pattern."""
        return np.searchsorted(self._keys, i * self._nodes + j)

    def set_weights(self, weight: FloatArray, diagonal: FloatArray, degree: FloatArray) -> None:
        """Start from a graph; only before anything was settled."""
        self.weight, self.diagonal, self.degree = weight, diagonal, degree

    def fade(self, halvings: int, degree: float) -> None:
        """Halve all weights, which nothing outside sees: neither P nor pi has a unit of weight.

        Stop early where the node comes to the degree that it is about to have: estimates err in
        proportion to what weights are still to change by, in units of what has faded.
        """
        old = float(self.degree[self._node])
        if old == 0 or degree == 0:  # nothing reaches the node
            self.values[:] = self._rho[:] = 0.0
            self._rho[self._node] = 1.0
            return
        factor = 2.0 ** -min(halvings, math.ceil(math.log2(old / degree)))
        for weights in (self.weight, self.diagonal, self.degree):
            weights *= factor
        self.values /= factor

    def refresh(self) -> None:
        """Recompute the residual, which takes out what rounding has added to it."""
        arriving = self._arriving(self.values) + self.diagonal * self.values
        self._rho = self._gamma * arriving - self.degree * self.values
        self._rho[self._node] += 1.0

    def _arriving(self, values: FloatArray) -> FloatArray:
        """Return the transpose of W times values, without the diagonal."""
        return _sums(self.j, self.weight * values[self.i], self._nodes)

    def change(self, changes: _Changes) -> None:
        """Change entries of W and the degrees of their rows."""
        i, j, delta = changes
        off = i != j
        np.add.at(self.diagonal, i[~off], delta[~off])
        np.add.at(self.weight, self.places(i[off], j[off]), delta[off])
        np.add.at(self.degree, i, delta)
        pushed = delta * self.values[i]
        np.add.at(self._rho, i, -pushed)
        np.add.at(self._rho, j, self._gamma * pushed)
        self._changed += [i, j]

    def settle(self, tolerance: float, *, everywhere: bool = False) -> None:
        """Push until no residual, at least of those that changed, is above the tolerance."""
        rho, gamma = self._rho, self._gamma
        everyone = np.arange(self._nodes)
        looked = everyone if everywhere else np.concatenate(self._changed)
        del self._changed[1:]
        while True:
            above = looked[(np.abs(rho[looked]) > tolerance) & (self.degree[looked] > 0)]
            if not above.size:
                return
            if looked is not everyone:
                above = np.unique(above)
            q = rho[above] / (self.degree[above] - gamma * self.diagonal[above])
            self.values[above] += q
            rho[above] = 0.0
            counts = self._begin[above + 1] - self._begin[above]
            reached = int(counts.sum())
            if 4 * reached > len(self.j):  # most of the graph: one pass over all of it
                pushed = np.zeros(self._nodes)
                pushed[above] = q
                rho += gamma * self._arriving(pushed)
                looked = everyone
            else:
                ends = np.cumsum(counts)
                at = np.arange(reached) + np.repeat(self._begin[above] - (ends - counts), counts)
                to = self.j[at]
                np.add.at(rho, to, gamma * self.weight[at] * np.repeat(q, counts))
                looked = to
