"""What a model reads about a pair at a time: products of states, history, edge features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegraph.engine.channels import Sketch
from tidegraph.learning.edge_features import EdgeFeatures
from tidegraph.learning.history import History
from tidegraph.store.shards import ShardedTrajectories
from tidegraph.store.trajectories import Trajectories

__all__ = ["PairFeatures", "squash"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_AT_ONCE = 1 << 14  # pairs whose states are in memory together
_TINY = 1e-9


class PairFeatures:
    """Numbers about pairs `(src, dst)` strictly before `t`.

    With random features `x` of unit variance the inner product of `z(u)` and `x(v)` estimates how
    much of `v` there is in `u`'s personalised PageRank, and that of `z(u)` and `z(v)` how much the
    two overlap. Both are taken between all channels of both nodes, raw and as a cosine, each on a
    scale that is linear around zero and logarithmic beyond. The norms, the numbers of `History` and
    edge features, where given, follow.
    """

    def __init__(
        self,
        trajectories: Trajectories | ShardedTrajectories,
        history: History,
        sketch: Sketch,
        edges: EdgeFeatures | None = None,
    ) -> None:
        self._trajectories = trajectories
        self._history = history
        self._edges = edges
        self._x = sketch.rows(np.arange(trajectories.nodes)).astype(np.float32)
        channels = len(trajectories.channels)
        kinds = ("x", *(f"z{channel}" for channel in range(channels)))
        pairs = [f"{a}·{b}" for a in kinds for b in kinds]
        self.names: tuple[str, ...] = (
            *(f"product {pair}" for pair in pairs),
            *(f"cosine {pair}" for pair in pairs),
            *(f"norm {end}.{kind}" for end in ("src", "dst") for kind in kinds[1:]),
            *history.link_names,
            *(() if edges is None else edges.link_names),
        )

    def __len__(self) -> int:
        return len(self.names)

    def __call__(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        """Return a row for each pair and time, `[len(src), len(names)]`."""
        out = np.empty((len(src), len(self)), dtype=np.float32)
        for first in range(0, len(src), _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            asked = src[rows], dst[rows], t[rows]
            parts = [self._products(*asked), self._history.of_links(*asked)]
            if self._edges is not None:
                parts.append(self._edges.of_links(*asked))
            np.concatenate(parts, axis=1, out=out[rows])
        return out

    def _products(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
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


def squash(values: FloatArray) -> FloatArray:
    """Return values on a scale that is linear around zero and logarithmic beyond."""
    squashed: FloatArray = np.sign(values) * np.log1p(100 * np.abs(values))
    return squashed
