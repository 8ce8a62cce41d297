"""Who may come next: all destinations before a time, or the likeliest of them for one source."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.columns import IntArray
from tidegraph.events.stream import EventStream
from tidegraph.learning.local import LocalPropagation

Wanted: TypeAlias = Callable[[IntArray], NDArray[np.bool_]]  # which of some nodes

_NEVER = np.iinfo(np.int64).max
_FADING = 30  # half-lives of popularity between the first event and a question
_RENEWED = 1000  # times within the stream that popularity is counted again


class Candidates:
    """The nodes that were destinations strictly before a time.

    A ranking of a source cannot read the features of a million pairs. Where there are more
    candidates than it may read, it takes those that a short walk from the source reaches, which
    include its latest partners, and the most popular ones of late.
    """

    def __init__(self, stream: EventStream, local: LocalPropagation) -> None:
        self._stream, self._local = stream, local
        self._popular: tuple[int, IntArray] = (-_NEVER, np.empty(0, dtype=np.int64))

    @cached_property
    def _since(self) -> IntArray:
        """When each node was a destination first.

        A pass over all events, for rankings alone: not every state that follows a stream has one.
        """
        since = np.full(self._stream.nodes, _NEVER)
        since[self._stream.dst[::-1]] = self._stream.t[::-1]  # of several values the last one stays
        return since

    def before(self, t: int) -> IntArray:
        """Return all destinations before `t`, ascending."""
        return np.flatnonzero(self._since < t)

    def of(self, source: int, t: int, most: int, wanted: Wanted) -> IntArray:
        """Return at most so many destinations before `t` that are wanted, ascending, for one
        source.
        """
        reached = self._local.likeliest(source, t, self._stream.nodes)
        reached = reached[self._since[reached] < t]
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
        stream = self._stream
        if not len(stream):
            return self._popular[1]
        first = int(stream.t[0])
        pace = max(1, (int(stream.t[-1]) - first) // _RENEWED)
        as_of = min(first + (t - first) // pace * pace, int(stream.t[-1]) + 1)
        popular = self._popular  # once: another thread may renew it meanwhile
        if popular[0] != as_of:
            past = stream.before(as_of)
            fading = np.exp2((past.t - as_of) * (_FADING / max(1, as_of - first)))
            weight = np.bincount(past.dst, fading, stream.nodes)
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
