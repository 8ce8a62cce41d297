"""Exact solutions for the tests, from the mathematics alone and in extended precision.

`Oracle` receives the same events as a propagator, follows them independently and solves
`pi = gamma0·x + gamma·P·pi` by elimination on dense matrices. It shares no code with the engine or
with `tidegraph.reference`, and reads nothing back from either.

The definition of a user's graph:

- The weight of an edge is the float64 that its rows make up in their order.
- A removal takes the whole edge if its weight is absent, inf, or from 2^-32 below to 1e-6 above the
  weight of the edge. What it leaves applies to every version: a window keeps its newest
  contributions up to that weight, a decayed edge keeps the same share of its present weight.
- Half-lives count from the first time ever given. At every whole number of them, a boundary, all
  self-loops are renewed; between boundaries a row renews those of the nodes it names.
- Without self-loops a decayed edge is dropped when its weight at the last boundary is below 2^-F of
  the lightest weight given or left so far. This is checked when a batch passes a boundary, and when
  a row names the edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.engine.channels import Channel, EngineSettings, RMaxUnit, Sketch
from tidegraph.events.batch import Batch, Op

__all__ = ["LONG_EPS", "Oracle", "Refused", "Unclear", "Verdict", "solve"]

LongArray: TypeAlias = NDArray[np.longdouble]
Pair: TypeAlias = tuple[int, int]
Verdict: TypeAlias = Literal["fits", "refused", "either", "unclear"]

LONG_EPS = float(np.finfo(np.longdouble).eps)
_LIGHTEST, _HEAVIEST = 2.0**-64, 2.0**64
_WHOLE_BELOW = 2.0**-32  # a removal takes the whole edge if it leaves at most this share …
_WHOLE_ABOVE = 1e-6  # … or exceeds the weight by at most this share
_LOW_PASS = (Channel.low_pass(),)
_LARGE_FEATURE = 2.0**50  # in thresholds: an engine may reject larger ones


class Refused(Exception):
    """Raised for a batch that does not fit the graph."""


class Unclear(Exception):
    """Raised for a batch so close to the edge of a rule that rounding decides."""


def solve(matrices: LongArray, right: LongArray) -> LongArray:
    """Return the solutions of `matrices @ x = right`, `[k, n, n]` and `[k, n, columns]`.

    Gauss-Jordan elimination with partial pivoting, all `k` at once, and one step of iterative
    refinement.
    """
    count, n, _ = matrices.shape
    every = np.arange(count)
    work = np.concatenate(
        [matrices, np.broadcast_to(np.eye(n, dtype=np.longdouble), matrices.shape)], axis=2
    )
    for k in range(n):
        pivots = k + np.argmax(np.abs(work[:, k:, k]), axis=1)
        rows = work[every, pivots]
        work[every, pivots] = work[:, k]
        rows = rows / rows[:, k, None]
        factors = work[:, :, k].copy()
        factors[:, k] = 0
        work[:, k] = rows
        work -= factors[:, :, None] * rows[:, None, :]
    inverse = work[:, :, n:]
    solution = inverse @ right
    solution += inverse @ (right - matrices @ solution)
    return np.asarray(solution, dtype=np.longdouble)


@dataclass
class _Contribution:
    """What is left of the weight that one row added to an edge, windows aside."""

    t: int | None
    serial: int  # of the row, among those that add or set
    weight: np.longdouble


@dataclass
class _Decayed:
    """The weight of an edge at a time, under one half-life."""

    t: int
    weight: np.longdouble


@dataclass(frozen=True)
class _Row:
    """A row, with the user's weight before and after it."""

    pair: Pair
    op: Op
    weight: float
    before: float
    after: float
    t: int | None


def _long(value: Any) -> LongArray:
    return np.asarray(value, dtype=np.longdouble)


class Oracle:
    """The exact solutions of a propagator's channels, following the same events.

    The arguments are those of `tidegraph.Propagator` that decide what is computed.
    """

    def __init__(
        self,
        features: ArrayLike | Sketch,
        *,
        nodes: int | None = None,
        channels: Sequence[Channel] = _LOW_PASS,
        directed: bool = False,
        beta: float = 0.5,
        r_max: float = 1e-2,
        r_max_unit: RMaxUnit = "rms",
        scale_by_degree: bool = True,
        self_loop: float = 1.0,
        initial: Batch | None = None,
    ) -> None:
        self._settings = EngineSettings(
            channels=tuple(channels),
            directed=directed,
            beta=beta,
            r_max=r_max,
            r_max_unit=r_max_unit,
            scale_by_degree=scale_by_degree,
            self_loop=self_loop,
        )
        self.channels = tuple(channels)
        self.directed, self.self_loop, self.r_max = directed, self_loop, r_max
        self._sketch = features if isinstance(features, Sketch) else None
        if self._sketch is not None:
            assert nodes is not None
            self.features = _long(self._sketch.rows(np.arange(nodes)))
            self.norms = _long(self._sketch.norms(r_max_unit, nodes))
        else:
            self.features = _long(np.array(features, dtype=np.float64))
            self.norms = _norms(self.features, r_max_unit)
        self.removed = [False] * self.nodes
        self.start: int | None = None  # the first time ever given
        self.now: int | None = None
        self.graph: dict[Pair, float] = {}
        self._serial = 0
        self._contributions: dict[Pair, list[_Contribution]] = {}
        self._decayed: dict[float, dict[Pair, _Decayed]] = {
            c.half_life: {} for c in self.channels if c.half_life is not None
        }
        self._renewed: list[int | None] = [None] * self.nodes  # None: at the start
        self._lightest = 1.0  # weight given or left so far
        self._boundaries = dict.fromkeys(self._decayed, 0)  # the last one passed
        if initial is not None:
            self.apply(initial)

    @property
    def nodes(self) -> int:
        """The number of nodes, removed ones included."""
        return len(self.features)

    @property
    def columns(self) -> int:
        return int(self.features.shape[1])

    # Following events ----------------------------------------------------------------------------

    def judge(self, batch: Batch) -> Verdict:
        """Return whether the batch fits; "either" if an engine may accept it or not."""
        try:
            rows = self._rows(batch)
        except Refused:
            return "refused"
        except Unclear:
            return "unclear"
        # A change of weight too small for float64 may be an error or have no effect.
        lost = any(row.op is not Op.SET and row.after == row.before for row in rows)
        return "either" if lost or self._large(batch) else "fits"

    def _large(self, batch: Batch) -> bool:
        theta = self.r_max * self.norms
        return any(
            values is not None and bool((np.abs(values) > _LARGE_FEATURE * theta).any())
            for values in (batch.new_features, batch.feature_values)
        )

    def apply(self, batch: Batch) -> None:
        """Follow a batch; raise `Refused`, with nothing changed, if it does not fit."""
        rows = self._rows(batch)
        if batch.feature_values is not None:
            self.features[batch.feature_nodes] = _long(batch.feature_values)
        if batch.time is not None:
            if self.start is None:
                self.start = batch.time if batch.t is None or not batch.rows else int(batch.t[0])
            self.now = batch.time
            self._pass_boundaries(batch.time)
        self._append(batch)
        for row in rows:
            self._follow(row)
        for node in batch.removed_nodes.tolist():
            self._remove(node)

    def apply_snapshot(self, batch: Batch) -> None:
        """Change the graph to exactly the edges of a batch of additions, at its time."""
        self.apply(self.difference(batch))

    def difference(self, snapshot: Batch) -> Batch:
        """Return the rows that lead to exactly these edges: removals, then new weights."""
        wanted: dict[Pair, float] = {}
        for row in range(snapshot.rows):
            weight = 1.0 if snapshot.weight is None else float(snapshot.weight[row])
            pair = self._pair(int(snapshot.src[row]), int(snapshot.dst[row]))
            for node in pair:
                if node >= self.nodes or self.removed[node]:
                    raise Refused(f"there is no node {node}")
            if not _LIGHTEST <= weight <= _HEAVIEST:
                raise Refused(f"weight {weight} is out of range")
            wanted[pair] = wanted.get(pair, 0.0) + weight
            if wanted[pair] > _HEAVIEST:
                raise Refused(f"weight {wanted[pair]} is out of range")
        gone = [pair for pair in self.graph if pair not in wanted]
        changed = [pair for pair, weight in wanted.items() if self.graph.get(pair) != weight]
        pairs = gone + changed
        return Batch(
            src=[pair[0] for pair in pairs],
            dst=[pair[1] for pair in pairs],
            weight=[math.inf] * len(gone) + [wanted[pair] for pair in changed],
            op=[int(Op.REMOVE)] * len(gone) + [int(Op.SET)] * len(changed),
            t=snapshot.time,
        )

    def refine(self, r_max: float) -> None:
        """Promise another `r_max`."""
        self.r_max = r_max

    def _pair(self, src: int, dst: int) -> Pair:
        return (src, dst) if self.directed or src <= dst else (dst, src)

    def _rows(self, batch: Batch) -> list[_Row]:
        """Return the effect of each row; raise, with nothing changed, if the batch does not fit."""
        self._check_frame(batch)
        nodes = self.nodes + batch.new_nodes
        weights: dict[Pair, float] = {}
        rows: list[_Row] = []
        for number, (src, dst) in enumerate(
            zip(batch.src.tolist(), batch.dst.tolist(), strict=True)
        ):
            for node in (src, dst):
                if node >= nodes or (node < self.nodes and self.removed[node]):
                    raise Refused(f"row {number}: there is no node {node}")
            op = Op.ADD if batch.op is None else Op(int(batch.op[number]))
            default = math.inf if op is Op.REMOVE else 1.0
            weight = default if batch.weight is None else float(batch.weight[number])
            pair = self._pair(src, dst)
            before = weights.get(pair, self.graph.get(pair, 0.0))
            after = _weight_after(op, weight, before)
            weights[pair] = after
            t = self.now if batch.t is None else int(batch.t[number])
            rows.append(_Row(pair, op, weight, before, after, t))
        return rows

    def _check_frame(self, batch: Batch) -> None:
        if batch.rows and batch.time is None and any(c.timed for c in self.channels):
            raise Refused("the rows have no times")
        if batch.time is not None and self.now is not None:
            begin = int(batch.t[0]) if batch.t is not None and batch.rows else batch.time
            if begin < self.now:
                raise Refused(f"time runs backwards from {self.now} to {begin}")
        for values in (batch.new_features, batch.feature_values):
            if values is not None and len(values) and values.shape[1] != self.columns:
                raise Refused(f"features have {values.shape[1]} columns")
        for node in batch.feature_nodes.tolist():
            if node >= self.nodes + batch.new_nodes:
                raise Refused(f"there is no node {node} to give features to")
            if node >= self.nodes:
                raise Unclear(f"node {node} comes with this batch")
            if self.removed[node]:
                raise Refused(f"node {node} was removed")
        for node in batch.removed_nodes.tolist():
            if node >= self.nodes + batch.new_nodes or (node < self.nodes and self.removed[node]):
                raise Refused(f"there is no node {node} to remove")

    def _append(self, batch: Batch) -> None:
        count = batch.new_nodes
        if not count:
            return
        if batch.new_features is not None:
            rows = _long(batch.new_features)
        elif self._sketch is not None:
            rows = _long(self._sketch.rows(np.arange(self.nodes, self.nodes + count)))
        else:
            rows = np.zeros((count, self.columns), dtype=np.longdouble)
        self.features = np.concatenate([self.features, rows])
        self.removed += [False] * count
        self._renewed += [self.now] * count

    def _follow(self, row: _Row) -> None:
        pair, op, t = row.pair, row.op, row.t
        given = () if op is Op.REMOVE else (row.weight,)
        self._lightest = min([self._lightest, *given, row.after or math.inf])
        if row.after > 0:
            self.graph[pair] = row.after
        else:
            self._drop_edge(pair)
        weight = np.longdouble(row.weight)
        if op is not Op.REMOVE:
            self._serial += 1
        if op is Op.SET:
            self._contributions[pair] = [_Contribution(t, self._serial, weight)]
        elif op is Op.ADD:
            contribution = _Contribution(t, self._serial, weight)
            self._contributions.setdefault(pair, []).append(contribution)
        elif row.after > 0:
            _lower(self._contributions[pair], np.longdouble(row.after))
        if t is None:
            return  # then no channel decays
        for half_life, edges in self._decayed.items():
            if op is Op.SET or (op is Op.ADD and pair not in edges):
                edges[pair] = _Decayed(t, weight)
            elif op is Op.ADD:
                left = edges[pair].weight * _decay(t - edges[pair].t, half_life)
                edges[pair] = _Decayed(t, left + weight)
            elif row.after > 0 and pair in edges:
                edges[pair].weight *= np.longdouble(row.after) / np.longdouble(row.before)
            self._forget_light(half_life, [pair])
        for node in pair:
            renewed = self._renewed[node]
            self._renewed[node] = t if renewed is None else max(renewed, t)

    def _drop_edge(self, pair: Pair) -> None:
        for edges in (self.graph, self._contributions, *self._decayed.values()):
            edges.pop(pair, None)  # type: ignore[attr-defined]

    def _remove(self, node: int) -> None:
        for pair in [pair for pair in self.graph if node in pair]:
            self._drop_edge(pair)
        self.features[node] = 0
        self.removed[node] = True

    def _half_lives(self, t: int, half_life: float) -> float:
        """Return half-lives since the start, in float64: whole numbers are boundaries."""
        assert self.start is not None
        return (t - self.start) / half_life

    def _pass_boundaries(self, t: int) -> None:
        for half_life, edges in self._decayed.items():
            boundary = math.floor(self._half_lives(t, half_life))
            if boundary > self._boundaries[half_life]:
                self._boundaries[half_life] = boundary
                self._forget_light(half_life, list(edges))

    def _forget_light(self, half_life: float, pairs: list[Pair]) -> None:
        if self.self_loop > 0:
            return
        assert self.start is not None
        bits = self._settings.forget_bits(half_life)
        floor = np.longdouble(self._lightest) * (1 - 2.0**-20) * 2.0**-bits
        boundary = self._boundaries[half_life] * Fraction(half_life)
        for pair in pairs:
            edge = self._decayed[half_life].get(pair)
            if edge is None:
                continue
            elapsed = float(boundary - (edge.t - self.start))
            half_lives = np.longdouble(elapsed) / np.longdouble(half_life)
            if edge.weight * np.exp2(-half_lives) < floor:
                del self._decayed[half_life][pair]

    # Solving -------------------------------------------------------------------------------------

    def edges(self, channel: Channel) -> dict[Pair, np.longdouble]:
        """Return the present weights in the version of a channel."""
        if channel.half_life is not None:
            decayed = self._decayed[channel.half_life]
            return {
                pair: edge.weight * _decay(self._since(edge.t), channel.half_life)
                for pair, edge in decayed.items()
            }
        if channel.window is None and channel.last is None:
            return {pair: np.longdouble(weight) for pair, weight in self.graph.items()}
        seen: dict[Pair, np.longdouble] = {}
        for pair, contributions in self._contributions.items():
            inside = [c.weight for c in contributions if self._inside(c, channel)]
            if inside:
                seen[pair] = np.sum(_long(inside))
        return seen

    def _inside(self, contribution: _Contribution, channel: Channel) -> bool:
        if channel.last is not None:
            return contribution.serial > self._serial - channel.last
        assert contribution.t is not None
        assert channel.window is not None
        return self._since(contribution.t) < channel.window

    def _since(self, t: int) -> int:
        assert self.now is not None
        return self.now - t

    def loops(self, channel: Channel) -> LongArray:
        """Return the present self-loop of every node in a channel."""
        whole = np.full(self.nodes, self.self_loop, dtype=np.longdouble)
        if channel.half_life is None or self.now is None or self.self_loop == 0:
            return whole
        half_life = channel.half_life
        boundary = math.floor(self._half_lives(self.now, half_life))
        assert self.start is not None
        rest = Fraction(self.now - self.start) - boundary * Fraction(half_life)
        since_boundary = np.longdouble(float(rest)) / np.longdouble(half_life)
        for node, t in enumerate(self._renewed):
            if t is not None and self._half_lives(t, half_life) >= boundary:
                whole[node] *= _decay(self.now - t, half_life)
            else:
                whole[node] *= np.exp2(-since_boundary)
        return whole

    def matrix(self, channel: Channel) -> LongArray:
        """Return the weights W of a channel, self-loops included, `[nodes, nodes]`."""
        matrix = np.diag(self.loops(channel))
        for (src, dst), weight in self.edges(channel).items():
            if not self.directed:
                matrix[src, dst] += weight
                if src != dst:
                    matrix[dst, src] += weight
                continue
            if channel.direction != "in":
                matrix[src, dst] += weight
            if channel.direction != "out":
                matrix[dst, src] += weight
        return matrix

    def _matrices(self) -> LongArray:
        return np.stack([self.matrix(channel) for channel in self.channels])

    def answer(self) -> Answer:
        """Return the exact solution and the promise about estimates of it."""
        weights = self._matrices()  # [channels, nodes, nodes]
        degrees = weights.sum(axis=2)  # [channels, nodes]
        known = degrees > 0
        safe = np.where(known, degrees, np.longdouble(1))
        beta = _long([self._settings.beta_of(c) for c in self.channels])[:, None]
        gamma0 = _long([c.gamma0 for c in self.channels])[:, None, None]
        gamma = _long([c.gamma for c in self.channels])[:, None, None]
        unit = safe ** (1 - beta)  # d^(1-beta); 1 for a node without edges
        # In p = pi / d^(1-beta) the matrix is 1 - gamma·W/d, rows of which sum to 1 - gamma.
        identity = np.eye(self.nodes, dtype=np.longdouble)
        right = gamma0 * self.features[None] / unit[:, :, None]
        p = solve(identity - gamma * weights / safe[:, :, None], right)
        contraction = 1 - np.abs(gamma)
        peak = np.abs(p).max(axis=1, keepdims=True)
        # Each entry of the matrix, the residual and the refinement is rounded a few times, and
        # 1/contraction bounds the inverse.
        rounding = 4 * (self.nodes + 8) * LONG_EPS * peak / contraction
        theta = self.r_max * self.norms
        scale = np.where(known, degrees, np.longdouble(0)) ** (1 - beta)
        promise = np.abs(gamma0) / contraction * theta * scale[:, :, None]
        return Answer(
            pi=np.moveaxis(p * unit[:, :, None], 0, 1),
            rounding=np.moveaxis(rounding * unit[:, :, None], 0, 1),
            degree=degrees.T,
            threshold=np.moveaxis(promise, 0, 1),
        )


@dataclass(frozen=True)
class Answer:
    """The answer of an oracle, in extended precision."""

    pi: LongArray  # [nodes, channels, columns]
    rounding: LongArray  # shaped as pi: its largest possible error
    degree: LongArray  # [nodes, channels]
    threshold: LongArray  # [nodes, channels, columns]; undefined where the degree is 0


def _norms(features: LongArray, unit: RMaxUnit) -> LongArray:
    """Return the unit of `r_max` per column."""
    columns = features.shape[1]
    if unit == "absolute" or len(features) == 0:
        return np.ones(columns, dtype=np.longdouble)
    if unit == "rms":
        norms = np.sqrt(np.square(features).sum(axis=0) / len(features))
    else:
        norms = np.abs(features).sum(axis=0)
    return _long(np.where(norms > 0, norms, np.longdouble(1)))


def _weight_after(op: Op, weight: float, before: float) -> float:
    """Return the user's weight of an edge after a row."""
    if op is not Op.REMOVE:
        if not _LIGHTEST <= weight <= _HEAVIEST:
            raise Refused(f"weight {weight} is out of range")
        after = weight if op is Op.SET else before + weight
        if after > _HEAVIEST:
            raise Refused(f"weight {after} is out of range")
        return after
    if before == 0:
        raise Refused("there is no such edge")
    if math.isinf(weight):
        return 0.0
    excess, rest = weight / before - 1, 1 - weight / before
    if excess > 0.5 * _WHOLE_ABOVE:
        if excess < 2 * _WHOLE_ABOVE:
            raise Unclear("a removal of hardly more than the whole edge")
        raise Refused("a removal of more than the whole edge")
    if rest < 2 * _WHOLE_BELOW:
        if rest > 0.5 * _WHOLE_BELOW:
            raise Unclear("a removal of hardly less than the whole edge")
        return 0.0
    if before - weight < _LIGHTEST or weight < _LIGHTEST:
        raise Unclear("a removal at the end of the range")
    return before - weight


def _lower(contributions: list[_Contribution], to: np.longdouble) -> None:
    """Keep the newest contributions up to a sum of `to`, the oldest of them in part."""
    left = to
    for number in reversed(range(len(contributions))):
        if contributions[number].weight >= left:
            contributions[number].weight = left
            del contributions[:number]
            return
        left -= contributions[number].weight


def _decay(elapsed: int, half_life: float) -> np.longdouble:
    """Return what is left of a weight of 1 after some time."""
    return np.longdouble(np.exp2(-np.longdouble(elapsed) / np.longdouble(half_life)))
