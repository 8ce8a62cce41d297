"""The whole method in plain NumPy float64: the oracle of the tests, and the place to read it.

For each channel the propagator keeps an estimate `pi` and a residual `r` with, at every moment,

    pi + gamma0·r = gamma0·x + gamma·P·pi          P(i,j) = w(i,j) / (d(i)^beta · d(j)^(1-beta))

so that `pi` is exact where `r` is zero. A change of the graph is absorbed into `r` at the nodes
whose edges changed (`_Layer.correct`); then residuals above their threshold are pushed to the
neighbours (`_Layer.push`). The variables are those of the formulas and matrices are dense: it is
meant for graphs of up to a few thousand nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EventError
from tidegraph.engine.channels import Audit, Channel, Direction, EngineSettings, Sketch
from tidegraph.engine.features import Features
from tidegraph.events.batch import Batch, Op

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Pair: TypeAlias = tuple[int, int]

# A removal of this share more, or less, than the whole edge takes the whole edge.
_MORE, _LESS = 1e-6, 2.0**-32


class _Row(NamedTuple):
    """One edge row, with the weights before and after it in the user's graph."""

    pair: Pair
    op: Op
    weight: float
    old: float
    new: float
    t: Any  # int, or None if no channel needs it


class _Layer:
    """One channel: the version of the graph it sees, with the estimate and residual on it.

    Under decay, weights and self-loops are in the unit of the last boundary, a whole number of
    half-lives after the first time seen. Passing a boundary halves all weights and renews all
    self-loops; between boundaries a row renews those of the nodes it names. `clock` and `mark`
    count half-lives.
    """

    def __init__(self, channel: Channel, settings: EngineSettings, columns: int) -> None:
        self.channel, self.settings = channel, settings
        self.gamma0, self.gamma = channel.gamma0, channel.gamma
        self.beta, self.self_loop = settings.beta_of(channel), settings.self_loop
        self.pi = np.empty((0, columns))
        self.r = np.empty((0, columns))
        self.edges = np.empty((0, 0))  # [src, dst] as the user names them
        self.loops = np.empty(0)
        self.w = np.empty((0, 0))  # w(i,j) as of the last correction, self-loops included
        self.d = np.empty(0)  # its row sums
        self.pushes = self.edge_pushes = self.correction_rows = 0
        self.forget_bits = settings.forget_bits(channel.half_life) if channel.half_life else 0
        self.origin: int | None = None  # the first time seen
        self.clock, self.mark = 0.0, 0  # now, and the last boundary passed
        self.lightest = 1.0  # the least weight that any row has given or left
        self.events = 0
        self.queue: deque[tuple[int, Pair, list[float]]] = deque()  # (when, edge, weight left)
        self.live: dict[Pair, deque[list[float]]] = {}  # the same contributions, edge by edge

    # The graph ------------------------------------------------------------------------------------

    def add_nodes(self, x: FloatArray) -> None:
        """Append nodes with features `x`: pi = 0 and r = x."""
        count = len(x)
        self.pi = np.concatenate([self.pi, np.zeros_like(x)])
        self.r = np.concatenate([self.r, x])
        self.edges = np.pad(self.edges, (0, count))
        self.loops = np.append(self.loops, np.full(count, self.self_loop * self.grown()))
        self.update_matrix()

    def grown(self) -> float:
        """Return s(t), the stored weight of an edge that weighs 1 now."""
        return float(2.0 ** (self.clock - self.mark))

    def update_matrix(self) -> FloatArray:
        """Recompute `w` and `d` from edges and self-loops; return the change of `w`."""
        a, before = self.edges, np.pad(self.w, (0, len(self.edges) - len(self.w)))
        if not self.settings.directed or self.channel.direction == "both":
            a = a + a.T - (0 if self.settings.directed else np.diag(np.diag(a)))
        elif self.channel.direction == "in":
            a = a.T
        self.w = a + np.diag(self.loops)
        self.d = self.w.sum(axis=1)
        return self.w - before

    def follow(self, rows: Sequence[_Row], time: int | None, new: range) -> None:
        """Let time pass and apply the rows of a batch; the caller has to correct and push then."""
        if time is not None and self.channel.half_life is not None:
            origin = time if not rows or rows[0].t is None else rows[0].t
            self.origin = origin if self.origin is None else self.origin
            self._pass_time((time - self.origin) / self.channel.half_life)
        for row in rows:
            if self.channel.half_life is not None:
                self._decayed(row)
            elif self.channel.window is not None or self.channel.last is not None:
                self._windowed(row)
            else:
                self.edges[row.pair] = row.new
        if self.channel.last is not None:
            self._expire(self.events - self.channel.last)
        elif self.channel.window is not None and time is not None:
            self._expire(time - self.channel.window)
        self.loops[list(new)] = self.self_loop * self.grown()

    def remove_edges_of(self, node: int) -> None:
        self.edges[node, :] = self.edges[:, node] = 0.0
        for pair in [pair for pair in self.live if node in pair]:
            for left in self.live.pop(pair):
                left[0] = 0.0

    def _pass_time(self, clock: float) -> None:
        boundary = max(int(np.floor(clock)), self.mark)
        if boundary > self.mark:
            self.edges = self.edges * 2.0 ** max(self.mark - boundary, -1000)
            self.loops[:] = self.self_loop
            self.edges[self.edges < self._floor()] = 0.0
        self.clock, self.mark = clock, boundary

    def _floor(self) -> float:
        """Return the weight below which an edge is dropped: with self-loops, less than any digit.

        Without them the factor below 1 keeps edges of exactly that weight, despite rounding.
        """
        if self.self_loop:
            return self.self_loop * 2.0**-120
        return self.lightest * (1 - 2.0**-20) * 2.0**-self.forget_bits

    def _decayed(self, row: _Row) -> None:
        assert self.origin is not None
        assert self.channel.half_life is not None
        clock = (row.t - self.origin) / self.channel.half_life
        weights = [row.new] if row.op is Op.REMOVE else [row.weight, row.new]
        self.lightest = min([self.lightest, *(w for w in weights if w > 0)])
        weight = float(self.edges[row.pair])
        if row.op is Op.REMOVE:
            weight *= row.new / row.old
        else:
            kept = weight if row.op is Op.ADD else 0.0
            weight = kept + row.weight * 2.0 ** (clock - self.mark)
        self.edges[row.pair] = 0.0 if weight < self._floor() else weight
        if clock >= self.mark:
            self.loops[list(row.pair)] = self.self_loop * 2.0 ** (clock - self.mark)

    def _windowed(self, row: _Row) -> None:
        live = self.live.setdefault(row.pair, deque())
        spare = np.inf  # weight to take away, the oldest first
        if row.op is Op.ADD:
            spare = 0.0
        elif row.op is Op.REMOVE and row.new > 0:
            spare = sum(left[0] for left in live) - row.new
        while live and spare > 0:
            taken = min(live[0][0], spare)
            live[0][0] -= taken
            spare -= taken
            if live[0][0] == 0:
                live.popleft()
        if row.op is not Op.REMOVE:
            self.events += 1
            live.append([row.weight])
            when = row.t if self.channel.last is None else self.events
            self.queue.append((when, row.pair, live[-1]))
        self._weigh(row.pair, row.new)

    def _expire(self, until: int) -> None:
        """Drop contributions of time `until` or earlier that are still there."""
        while self.queue and self.queue[0][0] <= until:
            _, pair, left = self.queue.popleft()
            if left[0] > 0:
                self.live[pair].popleft()
                self._weigh(pair, float(self.edges[pair]))

    def _weigh(self, pair: Pair, at_most: float) -> None:
        self.edges[pair] = min(sum(left[0] for left in self.live[pair]), at_most)

    # Estimate and residual ------------------------------------------------------------------------

    def correct(self, x: FloatArray) -> set[int]:
        """Absorb changed weights into the estimates and residuals of their nodes; return these.

        Without self-loops a degree can rise from 0 (s = 0, pi stays) and fall to 0 (pi = 0, r = x;
        the neighbours see the ratio it had).
        """
        old, delta = self.d, self.update_matrix()
        u = np.flatnonzero(delta.any(axis=1))
        d, d_new, pi = old[u, None], self.d[u, None], self.pi[u]
        ratio = self.pi / _positive(np.where(old > 0, old, self.d))[:, None] ** (1 - self.beta)
        s = np.where(d > 0, d**self.beta * (pi + self.gamma0 * (self.r[u] - x[u])), 0.0)
        s += self.gamma * delta[u] @ ratio
        pi = np.where(d > 0, pi * (d_new / _positive(d)) ** (1 - self.beta), pi)
        pi = np.where(d_new > 0, pi, 0.0)
        r = x[u] + (s / _positive(d_new) ** self.beta - pi) / self.gamma0
        self.pi[u], self.r[u] = pi, np.where(d_new > 0, r, x[u])
        self.correction_rows += len(u) + int(np.count_nonzero(delta))
        return set(u.tolist())

    def push(self, theta: FloatArray) -> set[int]:
        """Push until every residual is within its threshold; return the pushed nodes."""
        limit = self.stop(theta)
        alone = self.d == 0
        self.pi[alone] += self.gamma0 * self.r[alone]  # exact
        self.r[alone] = 0.0
        pushed = set()
        waiting = deque(np.flatnonzero((np.abs(self.r) > limit).any(axis=1)).tolist())
        while waiting:
            i = waiting.popleft()
            if not (np.abs(self.r[i]) > limit[i]).any():
                continue
            p = self.p_column(i)
            q = self.r[i] / (1 - self.gamma * p[i])  # the self-loop, solved
            self.pi[i] += self.gamma0 * q
            to = np.flatnonzero(p)
            self.r[to] += self.gamma * p[to, None] * q
            self.r[i] = 0.0
            waiting.extend(to[(np.abs(self.r[to]) > limit[to]).any(axis=1)].tolist())
            pushed.add(i)
            self.pushes += 1
            self.edge_pushes += len(to)
        return pushed

    def p_column(self, i: int | slice) -> FloatArray:
        """Return column(s) of P; that of a node without edges is 0."""
        d = _positive(self.d)
        left = d**self.beta if isinstance(i, int) else d[:, None] ** self.beta
        return np.asarray(self.w[:, i] / (left * d[i] ** (1 - self.beta)))

    def unit(self) -> FloatArray:
        """Return the present d^(1-beta) [n]; 0 for nodes without edges."""
        d = self.d / self.grown()
        return np.where(d > 0, d ** (1 - self.beta), 0.0)

    def stop(self, theta: FloatArray) -> FloatArray:
        """Return the threshold of the residual [n, columns]."""
        unit = self.unit()
        return (unit if self.settings.scale_by_degree else np.minimum(unit, 1.0))[:, None] * theta

    def amplification(self) -> float:
        return abs(self.gamma0) / (1 - abs(self.gamma))

    def true_residual(self, x: FloatArray) -> FloatArray:
        """Return the residual that the invariant gives for the estimate [n, columns]."""
        gathered = self.p_column(slice(None)) @ self.pi
        return np.asarray(x + (self.gamma * gathered - self.pi) / self.gamma0)

    def rounding(self, x: FloatArray) -> FloatArray:
        """Return how far rounding can have moved `true_residual` [n, columns]."""
        size = np.abs(x) + 2 * np.abs(self.pi) / abs(self.gamma0)
        size += self.p_column(slice(None)) @ np.abs(self.pi) / abs(self.gamma0)
        terms = np.count_nonzero(self.w, axis=1) + 8
        return np.asarray(np.finfo(np.float64).eps * terms[:, None] * size)


def _positive(d: FloatArray) -> FloatArray:
    """Return degrees to divide by: 1 in place of 0, where the quotient is not used."""
    return np.where(d > 0, d, 1.0)


class Propagator:
    """Estimates of `gamma0 · Σ_k (gamma·P)^k · x` that follow a changing graph, in float64.

    Constructor and methods are those of `tidegraph.Propagator`: `options` are the fields of
    `EngineSettings`; `dtype` and `threads` are ignored.

    >>> p = Propagator(np.eye(3), r_max=1e-6)
    >>> p.apply(Batch(src=[0], dst=[1])).tolist()
    [0, 1]
    >>> bool((abs(p.embedding() - exact_of(p)) <= p.error_bound()).all())
    True
    """

    def __init__(
        self,
        features: ArrayLike | Sketch,
        *,
        nodes: int | None = None,
        dtype: str = "float32",
        threads: int | None = None,
        initial: Batch | None = None,
        **options: Any,
    ) -> None:
        settings = EngineSettings(**options)
        self.channels, self.directed = settings.channels, settings.directed
        self.beta, self.r_max, self.r_max_unit = settings.beta, settings.r_max, settings.r_max_unit
        self.dtype, self.threads = np.dtype(np.float64), 1
        self.time: int | None = None
        source = Features(features, nodes)
        source.check("float64")
        self._sketch, self.columns = source.sketch, source.columns
        self._x = source.matrix()  # [n, columns]
        self._norms = source.norms(self.r_max_unit)
        self._deleted = np.zeros(self.nodes, dtype=bool)
        self._graph: dict[Pair, float] = {}  # the user's
        self._events = 0
        self._layers = [_Layer(channel, settings, self.columns) for channel in self.channels]
        for layer in self._layers:
            layer.add_nodes(self._x)
        if initial is not None:
            _require_edge_rows(initial, "initial")
            rows = self._plan(initial)
            for layer in self._layers:
                layer.follow(rows, initial.time, range(0))
                layer.update_matrix()
            self._commit(initial, rows)
        self._push_all()

    @property
    def nodes(self) -> int:
        """The number of nodes, removed ones included."""
        return len(self._x)

    # What a batch does ----------------------------------------------------------------------------

    def apply(self, batch: Batch) -> IntArray:
        """Apply a batch; return the nodes it names, those of expired edges and all that moved.

        Everything is checked first: after an EventError nothing has changed.
        """
        rows = self._plan(batch)
        new = range(self.nodes, self.nodes + batch.new_nodes)
        removed = batch.removed_nodes.tolist()
        touched = {*new, *removed, *(i for row in rows for i in row.pair)}
        self._add_nodes(new, batch.new_features)
        if batch.feature_values is not None:
            at = batch.feature_nodes
            for layer in self._layers:
                layer.r[at] += batch.feature_values - self._x[at]
            self._x[at] = batch.feature_values
            touched.update(at.tolist())
        for layer in self._layers:
            layer.follow(rows, batch.time, new)
            touched |= layer.correct(self._x) | layer.push(self._theta())
        for layer in self._layers if removed else ():
            for node in removed:
                layer.remove_edges_of(node)
            touched |= layer.correct(self._x)
            layer.pi[removed] = layer.r[removed] = 0.0  # alone now: nobody's equation moves
            touched |= layer.push(self._theta())
        self._x[removed] = 0.0
        self._deleted[removed] = True
        self._commit(batch, rows)
        return np.array(sorted(touched), dtype=np.int64)

    def _add_nodes(self, new: range, x: FloatArray | None) -> None:
        if x is None:
            x = self._sketch.rows(new) if self._sketch else np.zeros((len(new), self.columns))
        self._x = np.concatenate([self._x, x])
        self._deleted = np.append(self._deleted, np.zeros(len(new), dtype=bool))
        for layer in self._layers:
            layer.add_nodes(x)

    def _plan(self, batch: Batch) -> list[_Row]:
        """Return the edge rows with the weights they leave; raise before anything has changed."""
        self._check_nodes(batch)
        if batch.rows and batch.t is None and any(c.timed for c in self.channels):
            raise EventError(
                "rows have no t; channels with half_life or window need a time per row"
            )
        first = batch.time if batch.t is None or not batch.rows else int(batch.t[0])
        if first is not None and self.time is not None and first < self.time:
            raise EventError(f"t is {first} after {self.time}; times must not run backwards")
        rows: list[_Row] = []
        weights: dict[Pair, float] = {}
        for k, pair in enumerate(self._pairs(batch)):
            op = Op.ADD if batch.op is None else Op(int(batch.op[k]))
            default = np.inf if op is Op.REMOVE else 1.0
            w = default if batch.weight is None else float(batch.weight[k])
            old = weights.get(pair, self._graph.get(pair, 0.0))
            if op is Op.SET:
                new = w
            elif op is Op.ADD:
                new = old + w
            elif old == 0:
                raise EventError(f"row {k} removes edge {pair}, which does not exist")
            elif w != np.inf and w > old * (1 + _MORE):
                raise EventError(
                    f"row {k} removes {w} from edge {pair} of weight {old}; remove at most that,"
                    " or inf for the whole edge"
                )
            else:
                new = 0.0 if w >= old * (1 - _LESS) else old - w
            if new > 2.0**64:
                raise EventError(f"row {k} would leave edge {pair} a weight of {new}, above 2**64")
            weights[pair] = new
            rows.append(_Row(pair, op, w, old, new, None if batch.t is None else int(batch.t[k])))
        return rows

    def _pairs(self, batch: Batch) -> list[Pair]:
        """Return the edges that rows name; undirected ones in one order."""
        pairs = zip(batch.src.tolist(), batch.dst.tolist(), strict=True)
        return [pair if self.directed else (min(pair), max(pair)) for pair in pairs]

    def _check_nodes(self, batch: Batch) -> None:
        if not isinstance(batch, Batch):
            raise EventError(f"got {type(batch).__name__}; give a Batch")
        after = self.nodes + batch.new_nodes
        for name in ("src", "dst", "feature_nodes", "removed_nodes"):
            n = self.nodes if name == "feature_nodes" else after  # new nodes have new_features
            for node in getattr(batch, name).tolist():
                if node >= n:
                    raise EventError(f"{name} names node {node} of {n}; add it with new_nodes")
                if node < self.nodes and self._deleted[node]:
                    raise EventError(f"{name} names node {node}, which was removed; use a new node")
        for name in ("new_features", "feature_values"):
            x = getattr(batch, name)
            if x is not None and x.shape[1] != self.columns:
                raise EventError(f"{name} has {x.shape[1]} columns; give {self.columns}")

    def _commit(self, batch: Batch, rows: Sequence[_Row]) -> None:
        """Update the user's graph and clock."""
        self._graph.update((row.pair, row.new) for row in rows)
        gone = set(batch.removed_nodes.tolist())
        self._graph = {p: w for p, w in self._graph.items() if w > 0 and gone.isdisjoint(p)}
        self.time = self.time if batch.time is None else batch.time
        self._events += batch.rows

    # Other ways to change -------------------------------------------------------------------------

    def apply_steps(self, batch: Batch, offsets: ArrayLike) -> IntArray:
        """Apply rows `offsets[s]:offsets[s+1]` as step s; return how many nodes each touched."""
        ends = np.asarray(offsets)
        _require_edge_rows(batch, "apply_steps")
        if ends.ndim != 1 or ends.size == 0 or ends.dtype.kind not in "iu":
            raise EventError("offsets must be a vector of integers [steps + 1]")
        if ends[0] != 0 or ends[-1] != batch.rows or (np.diff(ends) < 0).any():
            raise EventError(f"offsets must rise from 0 to the number of rows, {batch.rows}")
        touched = []
        for step, (start, end) in enumerate(pairwise(ends.tolist())):
            part: dict[str, Any] = {
                name: getattr(batch, name)[start:end]
                for name in ("src", "dst", "weight", "op", "t")
                if getattr(batch, name) is not None
            }
            try:
                touched.append(self.apply(Batch(**part)).size)
            except EventError as error:
                raise EventError(f"step {step} (from row {start}): {error}") from None
        return np.array(touched, dtype=np.int64)

    def apply_snapshot(
        self, src: ArrayLike, dst: ArrayLike, weight: ArrayLike | None = None, *, t: Any = None
    ) -> IntArray:
        """Change the graph to exactly these edges and return the touched nodes.

        Repeated rows add up. The difference is applied as one batch: removals, then new weights in
        the order given.
        """
        given = Batch(src, dst, weight=weight, t=t)
        wanted: dict[Pair, float] = {}
        for k, pair in enumerate(self._pairs(given)):
            w = 1.0 if given.weight is None else float(given.weight[k])
            wanted[pair] = wanted.get(pair, 0.0) + w
        gone = [pair for pair in self._graph if pair not in wanted]
        put = [pair for pair, w in wanted.items() if w != self._graph.get(pair)]
        pairs = np.array(gone + put, dtype=np.int64).reshape(-1, 2)
        weights = [np.inf] * len(gone) + [wanted[pair] for pair in put]
        op = [Op.REMOVE] * len(gone) + [Op.SET] * len(put)
        return self.apply(Batch(pairs[:, 0], pairs[:, 1], weight=weights, op=op, t=given.time))

    def refine(self, r_max: float) -> None:
        """Change every threshold to `r_max` and push."""
        self.r_max = EngineSettings(r_max=r_max).r_max
        self._push_all()

    def repair(self) -> None:
        """Replace the residuals by the true ones of the estimates, without drift, and push."""
        for layer in self._layers:
            layer.r = layer.true_residual(self._x)
        self._push_all()

    def _push_all(self) -> None:
        theta = self._theta()
        for layer in self._layers:
            layer.push(theta)

    def _theta(self) -> FloatArray:
        """Return the threshold per column, without the factor d^(1-beta)."""
        return self.r_max * self._norms

    # What can be read -----------------------------------------------------------------------------

    def embedding(self, nodes: ArrayLike | None = None) -> FloatArray:
        """Return estimates `[k, channels, columns]`."""
        return self._stack([layer.pi for layer in self._layers], nodes)

    def residual(self, nodes: ArrayLike | None = None) -> FloatArray:
        """Return residuals `[k, channels, columns]`."""
        return self._stack([layer.r for layer in self._layers], nodes)

    def features(self, nodes: ArrayLike | None = None) -> FloatArray:
        """Return features `[k, columns]`; zero for removed nodes."""
        return self._stack([self._x], nodes)[:, 0]

    def degree(self, nodes: ArrayLike | None = None) -> FloatArray:
        """Return present degrees `[k, channels]`, self-loops included."""
        return self._stack([layer.d / layer.grown() for layer in self._layers], nodes)

    def threshold(self, nodes: ArrayLike | None = None) -> FloatArray:
        """Return the promise `[k, channels, columns]`: theta·d^(1-beta)·|gamma0|/(1-|gamma|)."""
        theta = self._theta()
        promised = [layer.unit()[:, None] * theta * layer.amplification() for layer in self._layers]
        return self._stack(promised, nodes)

    def error_bound(self, nodes: ArrayLike | None = None) -> FloatArray:
        """Return a certificate `[k, channels, columns]`: how far estimates are from exact at most.

        The largest true residual per d^(1-beta), plus what rounding may hide of it, takes the place
        of theta.
        """
        bounds = []
        for layer in self._layers:
            unit, hidden = layer.unit()[:, None], layer.rounding(self._x)
            worst = np.abs(layer.true_residual(self._x)) + hidden
            scaled = np.where(unit > 0, worst / _positive(unit), 0.0).max(axis=0, initial=0.0)
            alone = abs(layer.gamma0) * hidden
            bounds.append(np.where(unit > 0, unit * scaled * layer.amplification(), alone))
        return self._stack(bounds, nodes)

    def audit(self) -> Audit:
        """Return drift and true residual of every channel, in stopping thresholds."""
        drift, residual = [], []
        for layer in self._layers:
            limit, true = layer.stop(self._theta()), layer.true_residual(self._x)
            share = np.where(limit > 0, 1 / _positive(limit), 0.0)
            drift.append((np.abs(layer.r - true) * share).max(initial=0.0))
            residual.append((np.abs(true) * share).max(initial=0.0))
        return Audit(np.array(drift), np.array(residual), np.zeros(len(drift)))

    def edges(self, channel: int | None = None) -> tuple[IntArray, IntArray, FloatArray]:
        """Return (src, dst, weight) of the user's graph, or of the version a channel sees now."""
        if channel is not None:
            layer = self._layers[channel]
            src, dst = np.nonzero(layer.edges)
            return src, dst, layer.edges[src, dst] / layer.grown()
        pairs = sorted(self._graph)
        ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return ends[:, 0], ends[:, 1], np.array([self._graph[pair] for pair in pairs], dtype=float)

    def loops(self, channel: int) -> FloatArray:
        """Return the present weight `[n]` of every node's self-loop in a channel."""
        return self._layers[channel].loops / self._layers[channel].grown()

    def statistics(self) -> dict[str, int]:
        """Return counts of work since the start, and sizes in bytes."""
        counts = {"events": self._events, "edges": len(self._graph)}
        for name in ("pushes", "edge_pushes", "correction_rows"):
            counts[name] = sum(getattr(layer, name) for layer in self._layers)
        counts["graph_bytes"] = sum(a.edges.nbytes + a.w.nbytes for a in self._layers)
        counts["state_bytes"] = sum(a.pi.nbytes + a.r.nbytes for a in self._layers) + self._x.nbytes
        return counts

    def _stack(self, per_channel: list[FloatArray], nodes: ArrayLike | None) -> FloatArray:
        ids = np.arange(self.nodes) if nodes is None else np.asarray(nodes)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise EventError("nodes must be a vector of integers")
        if ids.size and not (ids.min() >= 0 and ids.max() < self.nodes):
            raise EventError(f"nodes are 0 to {self.nodes - 1}; got {ids.min()} to {ids.max()}")
        return np.stack([values[ids.astype(np.int64)] for values in per_channel], axis=1)


def _require_edge_rows(batch: Batch, name: str) -> None:
    if batch.new_nodes or batch.feature_nodes.size or batch.removed_nodes.size:
        raise EventError(f"{name} takes edge rows only; apply() the rest")


# Exact solutions ----------------------------------------------------------------------------------


def _propagation_matrix(
    edges: tuple[ArrayLike, ArrayLike, ArrayLike | None],
    nodes: int,
    directed: bool,
    direction: Direction,
    loops: ArrayLike,
    beta: float,
) -> Any:
    """Return P as a scipy sparse array; repeated edges (src, dst, weight) add up.

    A self-edge counts once, but twice if both directions of a directed graph are added up.
    """
    from scipy import sparse

    ends = np.asarray(edges[0], dtype=np.int64), np.asarray(edges[1], dtype=np.int64)
    values = np.ones(len(ends[0])) if edges[2] is None else np.asarray(edges[2], dtype=np.float64)
    a: Any = sparse.csr_array(sparse.coo_array((values, ends), shape=(nodes, nodes)))
    if not directed or direction == "both":
        a = a + a.T - sparse.diags_array(0 * a.diagonal() if directed else a.diagonal())
    elif direction == "in":
        a = a.T
    a = a + sparse.diags_array(np.full(nodes, loops, dtype=np.float64))
    d = np.asarray(a.sum(axis=1))
    left, right = _positive(d) ** -beta, _positive(d) ** (beta - 1)
    return sparse.csr_array(sparse.diags_array(left) @ a @ sparse.diags_array(right))


def _channel_matrix(propagator: Any, c: int) -> Any:
    """Return P as channel `c` of any propagator sees it."""
    channel = propagator.channels[c]
    beta = propagator.beta if channel.beta is None else channel.beta
    kind = propagator.nodes, propagator.directed, channel.direction
    return _propagation_matrix(propagator.edges(c), *kind, propagator.loops(c), beta)


def _solve(p: Any, x: FloatArray, gamma0: float, gamma: float) -> FloatArray:
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import splu

    if len(x) == 0:
        return x.copy()
    system = csc_array(eye_array(len(x)) - gamma * p)
    factors = splu(system)
    pi = factors.solve(gamma0 * x)
    return np.asarray(pi + factors.solve(gamma0 * x - system @ pi))  # one step of refinement


def exact(
    src: ArrayLike,
    dst: ArrayLike,
    features: ArrayLike,
    *,
    nodes: int | None = None,
    weight: ArrayLike | None = None,
    directed: bool = False,
    direction: Direction = "out",
    loops: ArrayLike = 1.0,
    gamma0: float = 0.2,
    gamma: float = 0.8,
    beta: float = 0.5,
) -> FloatArray:
    """Return `pi = gamma0·x + gamma·P·pi`, `[n, columns]`, by a sparse solve (needs scipy).

    `loops` is the weight of self-loops, one for all nodes or one per node. A node without edges has
    an empty row in P, hence the solution `gamma0·x`.

    >>> exact([0], [1], [[1.0], [0.0]], loops=0.0, gamma0=0.5, gamma=0.5).round(3).tolist()
    [[0.667], [0.333]]
    """
    x = np.asarray(features, dtype=np.float64)
    n = len(x) if nodes is None else nodes
    p = _propagation_matrix((src, dst, weight), n, directed, direction, loops, beta)
    return _solve(p, x, gamma0, gamma)


def exact_of(propagator: Any) -> FloatArray:
    """Return the exact solution `[n, channels, columns]` that any propagator estimates."""
    x = np.asarray(propagator.features(), dtype=np.float64)
    solutions = [
        _solve(_channel_matrix(propagator, c), x, channel.gamma0, channel.gamma)
        for c, channel in enumerate(propagator.channels)
    ]
    return np.stack(solutions, axis=1)


def invariant_defect(propagator: Any) -> FloatArray:
    """Return `pi + gamma0·r - gamma0·x - gamma·P·pi`, `[n, channels, columns]`: about 0."""
    pi = np.asarray(propagator.embedding(), dtype=np.float64)
    r = np.asarray(propagator.residual(), dtype=np.float64)
    x = np.asarray(propagator.features(), dtype=np.float64)
    defect = np.empty_like(pi)
    for c, channel in enumerate(propagator.channels):
        gathered = _channel_matrix(propagator, c) @ pi[:, c]
        defect[:, c] = pi[:, c] + channel.gamma0 * (r[:, c] - x) - channel.gamma * gathered
    return defect
