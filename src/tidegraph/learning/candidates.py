"""Who may come next: all destinations before a time, or the likeliest of them for one source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.columns import IntArray
from tidegraph.learning.local import LocalPropagation

Wanted: TypeAlias = Callable[[IntArray], NDArray[np.bool_]]  # which of some nodes

_NEVER = np.iinfo(np.int64).max
_FADING = 30  # half-lives of popularity between the first event and a question
_RENEWED = 1000  # times within the stream that popularity is counted again


class Destinations(Protocol):
    """Events in time order, of which later ones may be added: an `EventStream`, or a live state."""

    @property
    def dst(self) -> IntArray:
        """The destination of every event."""

    @property
    def t(self) -> IntArray:
        """The time of every event."""

    @property
    def nodes(self) -> int:
        """The number of nodes, which may grow."""


class Candidates:
    """The nodes that were destinations strictly before a time.

    A ranking of a source cannot read the features of a million pairs. Where there are more
    candidates than it may read, it takes those that a short walk from the source reaches, which
    include its latest partners, and the most popular ones of late.
    """

    def __init__(self, events: Destinations, local: LocalPropagation) -> None:
        self._events, self._local = events, local
        self._first: tuple[int, IntArray] = (0, np.empty(0, dtype=np.int64))  # of so many events
        self._popular: tuple[int, IntArray] = (-_NEVER, np.empty(0, dtype=np.int64))

    def _since(self) -> IntArray:
        """Return when each node was a destination first.

        It takes a pass over the events since the last question, for rankings alone: not every state
        that follows a stream has one.
        """
        known, since = self._first  # once: another thread may renew it meanwhile
        dst, t = self._events.dst, self._events.t
        count, nodes = min(len(dst), len(t)), self._events.nodes
        if count > known or nodes > len(since):
            later = np.full(nodes, _NEVER)
            # Of several values the last one stays.
            later[dst[known:count][::-1]] = t[known:count][::-1]
            later[: len(since)] = np.minimum(since, later[: len(since)])
            self._first = count, later
            since = later
        return since

    def before(self, t: int) -> IntArray:
        """Return all destinations before `t`, ascending."""
        return np.flatnonzero(self._since() < t)

    def of(self, source: int, t: int, most: int, wanted: Wanted) -> IntArray:
        """Return at most so many destinations before `t` that are wanted, ascending, for one
        source.
        """
        reached = self._local.likeliest(source, t, self._events.nodes)
        since = self._since()
        reached = reached[since[reached] < t]
        found = _with_more(reached[:0], reached, max(1, most // 2), wanted)
        found = _with_more(found, self._most_popular(t), most, wanted)
        if len(found) < most:  # few were popular just before
            found = _with_more(found, reached, most, wanted)
            found = _with_more(found, self.before(t), most, wanted)
        return np.sort(found)

    def _most_popular(self, t: int) -> IntArray:
        """Return destinations by their events of late, most first, as known at `t` or just before.

        Counting takes a pass over all events, so it is done anew only when time has passed.
        """
        times, dst = self._events.t, self._events.dst  # in this order: both may grow meanwhile
        if not len(times):
            return self._popular[1]
        first, last = int(times[0]), int(times[-1])
        pace = max(1, (last - first) // _RENEWED)
        as_of = min(first + (t - first) // pace * pace, last + 1)
        popular = self._popular  # once: another thread may renew it meanwhile
        if popular[0] != as_of:
            past = slice(0, int(np.searchsorted(times, as_of, side="left")))
            fading = np.exp2((times[past] - as_of) * (_FADING / max(1, as_of - first)))
            weight = np.bincount(dst[past], fading, self._events.nodes)
            nodes = np.flatnonzero(weight)
            popular = self._popular = as_of, nodes[np.argsort(-weight[nodes], kind="stable")]
        return popular[1]


def _with_more(found: IntArray, nodes: IntArray, most: int, wanted: Wanted) -> IntArray:
    """Add the first of the nodes that are wanted and not found yet, up to so many in all."""
    begin, size = 0, most
    while len(found) < most and begin < len(nodes):
        piece = nodes[begin : begin + size]
        more = piece[wanted(piece) & ~np.isin(piece, found)]
        found = np.append(found, more)[:most]
        begin, size = begin + size, 2 * size
    return found
