"""Local propagation: walks from one node over the events before a time, for a model to read."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.declarations import Setting
from tidegraph.learning.history import History

FloatArray = NDArray[np.float32]

_CHANNELS = 4  # at most, as in native/local.hpp
_LIMITS = (
    Setting("own", int, 64, "newest events of a node", least=1, most=256),
    Setting("neighbours", int, 128, "newest events of a neighbour", least=1, most=256),
    Setting("followed", int, 16, "own events after which to look", least=0, most=256),
    Setting("following", int, 8, "how many events later", least=0, most=64),
    Setting("r_max", float, 1e-5, "least share passed on", least=0),
)
_MEASURES = (
    "hop_1",
    "hop_2",
    "met_after_2",
    "common_neighbours",
    "met_after_3",
    "overlap_after_2",
    "followed_next",
    "followed_soon",
)


class LocalPropagation:
    """How likely short random walks from a node reach others, as of any time.

    The graph of a time has the events strictly before it as undirected edges, and a walk steps to
    the partner of any of a node's events: with equal chances, or with chances that halve with every
    half-life of the history, in a channel of its own for each of its longest ones. This is the
    propagation of one node's indicator, hop by hop. Each node is left over its newest events only,
    so that the work does not grow with the graph; `spread` says how much of each hop that misses.

    Besides, it counts what followed: others who met the same partners, and whom they met next.

    own, neighbours: how many of the newest events of a node are walked over, for the node that is
        asked about and for its neighbours; at most 256.
    followed, following: for how many of its newest events to look at what followed, and how far.
    r_max: the least share that a neighbour passes on to each of its own.
    """

    def __init__(
        self,
        history: History,
        *,
        own: int = 64,
        neighbours: int = 128,
        followed: int = 16,
        following: int = 8,
        r_max: float = 1e-5,
    ) -> None:
        self._history = history
        longest = np.argsort(np.negative(history.half_lives), kind="stable")[: _CHANNELS - 1]
        self._half_lives = longest.tolist()
        given = (own, neighbours, followed, following, r_max)
        for limit, value in zip(_LIMITS, given, strict=True):
            limit.check(value)
        self._limits = (own, neighbours, min(followed, own), following, r_max)
        self.channels: tuple[float | None, ...] = (
            None,
            *(history.half_lives[number] for number in self._half_lives),
        )
        self.link_names = tuple(
            measure if half_life is None else f"{measure}_within_{half_life:g}"
            for measure in _MEASURES
            for half_life in self.channels
        )

    def of_links(
        self, src: ArrayLike, dst: ArrayLike, t: ArrayLike, as_of: ArrayLike | None = None
    ) -> FloatArray:
        """Return a row for each pair and time, `[len(src), len(link_names)]`, as logarithms.

        as_of: walk over the events strictly before this; by default `t`.
        Pairs of one source and time take less time in adjacent rows.
        """
        known = t if as_of is None else as_of
        limits = self._half_lives, self._limits
        return self._history.walks_to(*limits, src, dst, known, len(_MEASURES))

    def spread(self, node: int, t: int) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
        """Return who is reached from a node before `t`, how, and what is missing.

        nodes: `[n]`, ascending; no other node was reached.
        reached: `[n, 2, channels]`, the chance to be there after one hop and after two. The exact
            chance lies between this and this plus what is missing, for every node.
        missing: `[2, channels]`, the chance that the walk was not followed to the end of the hop.
        """
        nodes, values = self._history.walk_from(self._half_lives, self._limits, node, t)
        reached = values.reshape(len(nodes), 4, len(self.channels))[:, :2]  # then what followed
        order = np.argsort(nodes)
        order = order[reached[order].any(axis=(1, 2))]  # not those that only followed
        reached = reached[order]
        missing = np.clip(1 - reached.sum(axis=0, dtype=np.float64), 0, 1).astype(np.float32)
        return nodes[order].astype(np.int64), reached, missing

    def likeliest(self, node: int, t: int, most: int) -> NDArray[np.int64]:
        """Return the latest partners of a node before `t`, newest first, and then those that a walk
        of two or three hops reaches most likely, or that followed, at most so many in all.
        """
        return self._history.likeliest(self._half_lives, self._limits, node, t, most)
