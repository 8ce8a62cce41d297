"""What a model reads about a pair at a time: products of states, edge features, and all parts.

All of it strictly before the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import DataError
from tidegraph.engine.channels import Sketch
from tidegraph.events.columns import IntArray
from tidegraph.events.moments import time_numbers
from tidegraph.events.names import known_nodes
from tidegraph.events.past import Past
from tidegraph.events.stream import EventStream
from tidegraph.events.vocabulary import hashed
from tidegraph.store.shards import ShardedTrajectories
from tidegraph.store.trajectories import Trajectories

FloatArray = NDArray[np.float32]

_AT_ONCE = 1 << 14  # pairs whose states are in memory together
_TINY = 1e-9
RECENT = 8  # events whose features are averaged
_MANY = 32  # columns of edge features; more are projected
_PROJECTED = 16  # columns
_ROWS_AT_ONCE = 1 << 16
_BUCKETS = 8  # columns that the words of a column share


def last_and_mean(features: FloatArray, rows: IntArray, known: NDArray[np.bool_]) -> FloatArray:
    """Return the features of the newest of `rows[b]` and the mean of the known ones.

    The result is `[B, 2 · columns]`; `rows` and `known` are `[B, k]`, newest first, as
    `Past.latest` returns them.
    """
    if not len(features):
        return np.zeros((len(rows), 2 * features.shape[1]), dtype=np.float32)
    recent = features[rows] * known[:, :, None]  # [B, k, columns]
    mean = recent.sum(axis=1) / np.maximum(known.sum(axis=1), 1)[:, None]
    return np.concatenate([recent[:, 0], mean], axis=1).astype(np.float32, copy=False)


class EdgeFeatures:
    """The features of the latest events between two nodes, in both directions, and of each node.

    Each kind gives the features of the last event and their mean over the latest ones. In a stream
    with more than 32 columns, 16 random combinations replace them, the same for every stream of
    that width.
    """

    def __init__(self, stream: EventStream, features: FloatArray | None = None) -> None:
        """features: what events carry, `[events, columns]`; by default `carried(stream)`."""
        found = carried(stream) if features is None else features
        if found is None:
            raise DataError("the stream has no edge features; leave edge_features out")
        self._features = _few(found)
        self._nodes = stream.nodes
        self._pairs = Past(stream.src * stream.nodes + stream.dst, stream.t)
        # Every event is listed at both of its ends.
        self._ends = Past(np.concatenate([stream.src, stream.dst]), np.tile(stream.t, 2))
        columns = range(self._features.shape[1])
        self.link_names: tuple[str, ...] = tuple(
            f"{whose}.{which}_feature_{column}"
            for whose in ("pair", "reverse", "src", "dst")
            for which in ("last", "mean")
            for column in columns
        )

    def of_links(
        self, src: ArrayLike, dst: ArrayLike, t: ArrayLike, as_of: ArrayLike | None = None
    ) -> FloatArray:
        """Return a row for each pair, `[len(src), len(link_names)]`; 0 where nothing happened."""
        src, dst = known_nodes(src, self._nodes), known_nodes(dst, self._nodes)
        t = time_numbers(t if as_of is None else as_of)
        parts = [
            last_and_mean(self._features, *self._pairs.latest(key, t, RECENT))
            for key in (src * self._nodes + dst, dst * self._nodes + src)
        ]
        for node in (src, dst):
            rows, known = self._ends.latest(node, t, RECENT)
            events = rows % max(1, len(self._features))
            parts.append(last_and_mean(self._features, events, known))
        return np.concatenate(parts, axis=1)


def carried(stream: EventStream) -> FloatArray | None:
    """Return the numbers that events carry, and their words hashed to a few columns, or None."""
    words = list(stream.vocabulary.categories.values())
    if stream.categories is None or not len(words):
        return stream.edge_features
    parts = [] if stream.edge_features is None else [stream.edge_features]
    for known, codes in zip(words, stream.categories.T, strict=True):
        parts.append(one_hot(codes, hashed(known, _BUCKETS), _BUCKETS))
    return np.concatenate(parts, axis=1)


def one_hot(codes: IntArray, columns: Sequence[int], width: int) -> FloatArray:
    """Return a row per code with 1 in the column of its word; zeros where there is no word."""
    table = np.eye(width + 1, width, dtype=np.float32)
    found: FloatArray = table[[*columns, width]][codes]
    return found


def _few(features: FloatArray) -> FloatArray:
    rows, columns = features.shape
    if columns <= _MANY:
        return features
    mix = np.random.default_rng(columns).standard_normal((columns, _PROJECTED), dtype=np.float32)
    mix /= np.float32(np.sqrt(columns))
    projected = np.empty((rows, _PROJECTED), dtype=np.float32)
    for first in range(0, rows, _ROWS_AT_ONCE):
        piece = slice(first, first + _ROWS_AT_ONCE)
        projected[piece] = features[piece] @ mix
    return projected


class Sketches:
    """Inner products of the representations of two nodes, strictly before `t`.

    With random features `x` of unit variance the inner product of `z(u)` and `x(v)` estimates how
    much of `v` there is in `u`'s personalised PageRank, and that of `z(u)` and `z(v)` how much the
    two overlap. Both are taken between all channels of both nodes, raw and as a cosine, each on a
    scale that is linear around zero and logarithmic beyond. The norms follow.
    """

    def __init__(self, trajectories: Trajectories | ShardedTrajectories, sketch: Sketch) -> None:
        self._trajectories = trajectories
        self._x = sketch.rows(np.arange(trajectories.nodes)).astype(np.float32)
        kinds = ("x", *(f"z{channel}" for channel in range(len(trajectories.channels))))
        pairs = [f"{a}·{b}" for a in kinds for b in kinds]
        self.link_names: tuple[str, ...] = (
            *(f"product {pair}" for pair in pairs),
            *(f"cosine {pair}" for pair in pairs),
            *(f"norm {end}.{kind}" for end in ("src", "dst") for kind in kinds[1:]),
        )

    def of_links(
        self, src: IntArray, dst: IntArray, t: IntArray, as_of: IntArray | None = None
    ) -> FloatArray:
        """Return a row for each pair and time, `[len(src), len(link_names)]`."""
        t = t if as_of is None else as_of
        a, b = self._states(src, t), self._states(dst, t)  # [B, 1 + channels, columns]
        columns = a.shape[2]
        norm_a, norm_b = (np.sqrt(np.einsum("bcd,bcd->bc", z, z) / columns) for z in (a, b))
        product = np.matmul(a, b.transpose(0, 2, 1)) / columns
        cosine = product / (norm_a[:, :, None] * norm_b[:, None, :] + _TINY)
        return np.concatenate(
            [
                squash(product).reshape(len(src), -1),
                squash(cosine).reshape(len(src), -1),
                np.log(norm_a[:, 1:] + _TINY),
                np.log(norm_b[:, 1:] + _TINY),
            ],
            axis=1,
        )

    def _states(self, nodes: IntArray, t: IntArray) -> FloatArray:
        states = self._trajectories.state(nodes, t)
        return np.concatenate([self._x[nodes][:, None], states], axis=1)


class PartOfLinks(Protocol):
    """Numbers about pairs: `History`, `Ages`, `LocalPropagation`, `Sketches` or `EdgeFeatures`."""

    link_names: tuple[str, ...]

    def of_links(
        self, src: IntArray, dst: IntArray, t: IntArray, as_of: IntArray | None = None
    ) -> FloatArray:
        """Return a row for each pair and time, `[len(src), len(link_names)]`.

        It is about what happened strictly before `as_of`, by default `t`; only a history also says
        how long ago that is at `t`.
        """


class PairFeatures:
    """Numbers about pairs `(src, dst)` strictly before `t`, from several parts side by side."""

    def __init__(self, parts: Sequence[PartOfLinks]) -> None:
        self._parts = tuple(parts)
        self.names: tuple[str, ...] = tuple(name for part in parts for name in part.link_names)

    def __len__(self) -> int:
        return len(self.names)

    def __call__(
        self, src: IntArray, dst: IntArray, t: IntArray, as_of: IntArray | None = None
    ) -> FloatArray:
        """Return a row for each pair and time, `[len(src), len(names)]`.

        It is about what happened strictly before `as_of`, by default `t`, as long ago as it is at
        `t`.
        """
        as_of = t if as_of is None else as_of
        out = np.empty((len(src), len(self)), dtype=np.float32)
        for first in range(0, len(src), _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            asked = src[rows], dst[rows], t[rows], as_of[rows]
            np.concatenate([part.of_links(*asked) for part in self._parts], axis=1, out=out[rows])
        return out


def squash(values: FloatArray) -> FloatArray:
    """Return values on a scale that is linear around zero and logarithmic beyond."""
    squashed: FloatArray = np.sign(values) * np.log1p(100 * np.abs(values))
    return squashed
