"""`Past`: rows by key and time, looked up strictly before a time or before a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.columns import IntArray


class Past:
    """Rows grouped by key (a node, a pair of nodes), in time order within each group.

    Without `t` a row's time is its number.

    order: the given rows sorted by key and then time; `span` returns positions in it.
    """

    def __init__(self, key: IntArray, t: IntArray | None = None) -> None:
        by_key = (key,) if t is None else (t, key)
        self.order: IntArray = np.lexsort(by_key)
        ordered = key[self.order]
        first = _changes(ordered)
        self._keys = ordered[first]
        self._first = np.append(first, len(key))
        # Keys and times become ranks, so that both fit into one number to search for.
        self._times, rank = None, self.order
        self._width = len(key) + 1
        if t is not None:
            times = np.sort(t)
            self._times = times[_changes(times)]
            self._width = len(self._times) + 1
            rank = np.searchsorted(self._times, t[self.order])
        number = np.repeat(np.arange(len(first)), np.diff(self._first))
        self._moments = number * self._width + rank

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
        first = self._first[place]
        end = first.copy()
        found = np.flatnonzero(self._keys[place] == key)
        rank = t[found] if self._times is None else np.searchsorted(self._times, t[found])
        end[found] = np.searchsorted(self._moments, place[found] * self._width + rank)
        return first, end

    def latest(self, key: IntArray, t: IntArray, k: int) -> tuple[IntArray, NDArray[np.bool_]]:
        """Return `(rows, known)`, `[B, k]` each: the latest rows before `t[b]`, newest first."""
        if not len(self.order):
            shape = (len(key), k)
            return np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        first, end = self.span(key, t)
        position = end[:, None] - 1 - np.arange(k)
        known = position >= first[:, None]
        return self.order[np.where(known, position, 0)], known


def _changes(ordered: IntArray) -> IntArray:
    """Return where sorted values differ from the one before."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
