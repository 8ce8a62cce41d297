"""A stream replayed event by event, with the movement of one node attributed to what caused it.

An event that turns the matrix M (see `adjoint`) into M' leaves in the equations of its endpoints,
and nowhere else, the correction `c = gamma0·(d'^beta - d^beta)·x - Δd·p + gamma·ΔW·p`, and p moves
by `M'^-1·c`. The part of it that reaches the node is the product with its adjoint, which is
maintained by pushing, as the engine maintains p.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.engine.adjoint import Adjoint, Changes, FloatArray, IntArray, sums
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch, Op
from tidegraph.events.stream import EventStream

_TOLERANCE = 1e-3  # of the adjoint's residual between events, in r_max: estimates err by far more
_TIGHT = 1e-13  # of the same when the representation itself is read from it
_SAME = 1e-15  # weights this close are one weight, read at two times
_MANY = 100  # changes of weight at once, after which residuals are recomputed
_PIECE = 1 << 15  # nodes whose features are read at once


class Attribution:
    """An engine of one channel with the stream up to t0, the node's adjoint, and the parts so far.

    The engine decides what its version of the graph is; changes of weight are read back from it.
    Under decay they are in the unit of the last boundary, a whole number of half-lives after the
    first event, so that between boundaries only events change weights.

    contributions: `[events, columns]`, the part of each event.
    passing: `[columns]`, the part of time passing.
    through: `[events]`, the node through which each event reached the node; -1 if it did not.
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
        self._events = stream.steps(events=1)
        # Time starts with the first event, also for an initial graph, which has no times.
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
        self.passing = np.zeros(self._engine.columns)
        self.through = np.full(events, -1)
        if channel.timed:
            self._engine.apply(Batch(t=self._clock))
        self._beta = self._engine.beta if channel.beta is None else channel.beta
        self._loops = self._unit() * self._engine.loops(0)
        src, dst, _ = self._engine.edges(0)
        ends = np.concatenate([src, stream.src[rows]]), np.concatenate([dst, stream.dst[rows]])
        i, j, _ = self._entries(*ends)
        self._adjoint = Adjoint(node, channel.gamma, i, j, stream.nodes)
        self._adjoint.set_weights(*self._weights(), self._degree())

    def _rows_before(self, end: int) -> Batch | None:
        """Return the initial graph of the stream, followed by its rows up to `end`."""
        stream, edges = self.stream, self.stream.initial
        if edges is None:
            return self._events.batch(0, end) if end else None
        count = len(edges.src)
        weight = np.ones(count) if edges.weight is None else edges.weight
        op = np.full(end, Op.ADD) if stream.op is None else stream.op[:end]
        later = np.where(op == Op.REMOVE, np.inf, 1.0)
        if stream.weight is not None:
            later = stream.weight[:end]
        return Batch(
            np.concatenate([edges.src, stream.src[:end]]),
            np.concatenate([edges.dst, stream.dst[:end]]),
            weight=np.concatenate([weight, later]),
            op=np.concatenate([np.full(count, Op.ADD), op]),
            t=np.concatenate([np.full(count, self._origin), stream.t[:end]]),
        )

    # The state of the engine ------------------------------------------------------------------

    def _boundary(self, t: int) -> int:
        """Return how many half-lives have ended by `t`; 0 without decay."""
        half_life = self.channel.half_life
        return 0 if half_life is None else math.floor((t - self._origin) / half_life)

    def _unit(self) -> float:
        """Return a present weight of 1 in the unit of the last boundary."""
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
        """Return rows, columns and values of the entries of W for edges, by default of weight 1."""
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
            sums(at, weight[off], len(self._adjoint.j)),
            self._loops + sums(i[on], weight[on], self.stream.nodes),
        )

    # Events and time --------------------------------------------------------------------------

    def move_clock(self, t: int) -> None:
        """Let time pass, and attribute what the channel drops or renews to time passing."""
        if not self.channel.timed or t <= self._clock:
            return
        halvings = self._boundary(t) - self._boundary(self._clock)
        changes = halvings > 0 or self._can_expire(t)
        estimate = self._engine.embedding()[:, 0] if changes else None
        self._engine.apply(Batch(t=t))
        self._clock = t
        if estimate is None:
            return
        if halvings:
            self._adjoint.fade(halvings, float(self._degree(np.array([self.node]))[0]))
        self._absorb([(self.passing, self._differences())], None, estimate)

    def _can_expire(self, t: int) -> bool:
        """Return whether edges can leave a window until `t`."""
        if self.channel.window is None:
            return False
        expiring = np.array([self._clock, t]) - self.channel.window
        begin, end = np.searchsorted(self.stream.t, expiring, side="right")
        initial = self.stream.initial is not None
        return bool(end > begin or (initial and expiring[0] < self._origin <= expiring[1]))

    def apply(self, position: int) -> None:
        """Apply one event and record its contribution."""
        src, dst = int(self.stream.src[position]), int(self.stream.dst[position])
        # This event may push any edge out of the last events.
        ids = None if self.channel.last is not None else np.unique([src, dst])
        estimate = self._engine.embedding(ids)[:, 0]
        self._engine.apply(self._events.batch(position, position + 1))
        contribution = self.contributions[position - self.rows.start]
        if ids is not None:
            parts = [(contribution, self._differences_at(ids, src, dst))]
        else:
            found = self._differences()
            own = np.isin(found.i, [src, dst]) & np.isin(found.j, [src, dst])
            own &= (found.i == found.j) == (src == dst)
            parts = [
                (total, Changes(found.i[which], found.j[which], found.delta[which]))
                for total, which in ((contribution, own), (self.passing, ~own))
            ]
        self._absorb(parts, ids, estimate)
        if contribution.any():
            self.through[position - self.rows.start] = self._nearer(src, dst)

    def _nearer(self, src: int, dst: int) -> int:
        """Return the endpoint, other than the node itself, with the larger adjoint.

        The adjoint decreases along every path away from the node.
        """
        if self.node in (src, dst):
            return dst if src == self.node else src
        values = np.abs(self._adjoint.values[[src, dst]])
        return src if values[0] >= values[1] else dst

    def _differences_at(self, ids: IntArray, src: int, dst: int) -> Changes:
        """Return the changes of an edge and of the self-loops at its ends, from the degrees."""
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
        return Changes(*map(np.concatenate, ([ids, i], [ids, j], [renewed, delta])))

    def _differences(self) -> Changes:
        """Return the changes of all entries of W since the last time."""
        adjoint, everyone = self._adjoint, np.arange(self.stream.nodes)
        self._loops = self._unit() * self._engine.loops(0)
        old = np.concatenate([adjoint.weight, adjoint.diagonal])
        new = np.concatenate(self._weights())
        at = np.flatnonzero(np.abs(new - old) > _SAME * np.maximum(new, old))
        i, j = (np.concatenate([side, everyone]) for side in (adjoint.i, adjoint.j))
        return Changes(i[at], j[at], new[at] - old[at])

    def _absorb(
        self, parts: list[tuple[FloatArray, Changes]], ids: IntArray | None, estimate: NDArray[Any]
    ) -> None:
        """Apply changes to the adjoint and add what each part does to the node to its vector.

        `estimate` is the estimate before all changes at `ids`, or at all nodes; all changes are
        there.
        """
        adjoint, beta, channel = self._adjoint, self._beta, self.channel
        nodes = np.arange(self.stream.nodes) if ids is None else ids
        degrees = [adjoint.degree[nodes]]
        for _, changes in parts:
            adjoint.change(changes)
            degrees.append(adjoint.degree[nodes])
        degrees[-1] = adjoint.degree[nodes] = self._degree(ids)  # free of rounding
        if sum(len(changes.i) for _, changes in parts) > _MANY:
            adjoint.refresh()
        adjoint.converge(_TOLERANCE * min(self._engine.r_max, 1e-3))
        first, last = degrees[0], degrees[-1]
        # A node without edges keeps its estimate when it gets its first degree.
        ratio = _power(np.where(first > 0, first, last), beta - 1)  # p over the estimate
        scale = _power(adjoint.degree[[self.node]], 1 - beta)[0]
        a = np.where(last > 0, scale * adjoint.values[nodes], 0.0)
        for (total, (i, j, delta)), old, new in zip(parts, degrees, degrees[1:], strict=False):
            i, j = np.searchsorted(nodes, i), np.searchsorted(nodes, j)
            arriving = a[i] * delta
            by_p = channel.gamma * sums(j, arriving, len(nodes)) - sums(i, arriving, len(nodes))
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
        """Return the node's exact representation `[columns]` on the present graph."""
        adjoint, own = self._adjoint, np.array([self.node])
        if adjoint.degree[self.node] == 0:
            return self._features(own, np.array([self.channel.gamma0]))
        adjoint.refresh()
        adjoint.converge(_TIGHT, everywhere=True)
        scale = self.channel.gamma0 * _power(adjoint.degree[own], 1 - self._beta)
        factors = scale * adjoint.values * _power(adjoint.degree, self._beta)
        return self._features(np.arange(self.stream.nodes), factors)


def _power(d: FloatArray, exponent: float) -> FloatArray:
    """Return d^exponent; 0 for nodes without edges, which have no equation, even if it is d^0."""
    known = d > 0
    return np.where(known, np.where(known, d, 1.0) ** exponent, 0.0)
