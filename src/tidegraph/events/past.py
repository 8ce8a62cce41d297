"""`Past`: rows by key and time, looked up strictly before a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.columns import IntArray


class Past:
    """Rows grouped by key (a node, a pair of nodes), in time order within each group.

    order: the given rows sorted by key and then time; `span` returns positions in it.
    """

    def __init__(self, key: IntArray, t: IntArray) -> None:
        self.order: IntArray = np.lexsort((t, key))
        self._keys, count = np.unique(key, return_counts=True)
        self._first = np.concatenate([[0], np.cumsum(count)])
        # Keys and times become ranks, so that both fit into one number to search for.
        self._times = np.unique(t)
        self._width = len(self._times) + 1
        rank = np.searchsorted(self._times, t[self.order])
        self._moments = np.repeat(np.arange(len(self._keys)), count) * self._width + rank

    @property
    def begin(self) -> IntArray:
        """The first position of the same key, for every position."""
        return np.repeat(self._first[:-1], np.diff(self._first))

    def span(self, key: IntArray, t: IntArray) -> tuple[IntArray, IntArray]:
        """Return `(first, end)`: the positions in `order` of the rows of `key[b]` before `t[b]`."""
        if not len(self._keys):
            nothing = np.zeros(len(key), dtype=np.int64)
            return nothing, nothing
        place = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        moment = place * self._width + np.searchsorted(self._times, t)
        first = self._first[place]
        end = np.searchsorted(self._moments, moment)
        return first, np.where(self._keys[place] == key, end, first)

    def latest(self, key: IntArray, t: IntArray, k: int) -> tuple[IntArray, NDArray[np.bool_]]:
        """Return `(rows, known)`, `[B, k]` each: the latest rows before `t[b]`, newest first."""
        if not len(self.order):
            shape = (len(key), k)
            return np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        first, end = self.span(key, t)
        position = end[:, None] - 1 - np.arange(k)
        known = position >= first[:, None]
        return self.order[np.where(known, position, 0)], known
