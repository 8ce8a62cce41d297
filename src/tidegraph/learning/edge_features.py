"""What the latest events of nodes and pairs carried, strictly before a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import DataError
from tidegraph.events.moments import time_numbers
from tidegraph.events.names import known_nodes
from tidegraph.events.past import Past
from tidegraph.events.stream import EventStream

__all__ = ["RECENT", "EdgeFeatures", "last_and_mean"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

RECENT = 8  # events whose features are averaged
_MANY = 32  # columns; more are projected
_PROJECTED = 16  # columns
_ROWS_AT_ONCE = 1 << 16


def last_and_mean(features: FloatArray, rows: IntArray, known: NDArray[np.bool_]) -> FloatArray:
    """`[B, 2 · columns]`: of the newest of `rows[b]`, and the mean of those that are known.

    rows, known: `[B, k]` each, newest first, as `Past.latest` gives them.
    """
    if not len(features):
        return np.zeros((len(rows), 2 * features.shape[1]), dtype=np.float32)
    recent = features[rows] * known[:, :, None]  # [B, k, columns]
    mean = recent.sum(axis=1) / np.maximum(known.sum(axis=1), 1)[:, None]
    return np.concatenate([recent[:, 0], mean], axis=1).astype(np.float32, copy=False)


class EdgeFeatures:
    """The features of the latest events between two nodes, in both directions, and of each node.

    Of each kind the last event's are told, and their mean over the latest ones. Where a stream has
    more than 32 columns, 16 random combinations of them stand in their place, the same ones for
    every stream of that width.
    """

    def __init__(self, stream: EventStream) -> None:
        if stream.edge_features is None:
            raise DataError("the stream has no edge features; leave edge_features out")
        self._features = _few(stream.edge_features)
        self._nodes = stream.nodes
        self._pairs = Past(stream.src * stream.nodes + stream.dst, stream.t)
        # Every event stands at both of its ends.
        self._ends = Past(np.concatenate([stream.src, stream.dst]), np.tile(stream.t, 2))
        columns = range(self._features.shape[1])
        self.link_names: tuple[str, ...] = tuple(
            f"{whose}.{which}_feature_{column}"
            for whose in ("pair", "reverse", "src", "dst")
            for which in ("last", "mean")
            for column in columns
        )

    def of_links(self, src: ArrayLike, dst: ArrayLike, t: ArrayLike) -> FloatArray:
        """`[len(src), len(link_names)]`; 0 where nothing has happened."""
        src, dst = known_nodes(src, self._nodes), known_nodes(dst, self._nodes)
        t = time_numbers(t)
        parts = [
            last_and_mean(self._features, *self._pairs.latest(key, t, RECENT))
            for key in (src * self._nodes + dst, dst * self._nodes + src)
        ]
        for node in (src, dst):
            rows, known = self._ends.latest(node, t, RECENT)
            events = rows % max(1, len(self._features))
            parts.append(last_and_mean(self._features, events, known))
        return np.concatenate(parts, axis=1)


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
