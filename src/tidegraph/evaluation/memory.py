"""`Memory`: what was known of a pair, its reverse and its destination after any number of events;
`Meetings`: which pairs have met before, in either direction.

Events are grouped by key once. Every question is then a search, whatever its batch: all questions
of an evaluation cost about the same, and heuristics that ask about the same key share the answer.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.past import Past
from tidegraph.events.stream import EventStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Memory:
    """Events by pair and by destination.

    events: all of them; a question says how many of them are known.
    """

    def __init__(self, events: EventStream) -> None:
        self.events = events

    def ask(self, src: IntArray, dst: IntArray, t: IntArray, known: IntArray) -> Asked:
        """Ask about pairs at times, each from the first `known[b]` events and nothing else."""
        return Asked(self, src, dst, t, known)

    @cached_property
    def pairs(self) -> _Series:
        """Events by pair."""
        return _Series(self.events.src * self.events.nodes + self.events.dst, self.events.t)

    @cached_property
    def destinations(self) -> _Series:
        """Events by destination."""
        return _Series(self.events.dst, self.events.t)

    @cached_property
    def distinct(self) -> IntArray:
        """The number of pairs that have occurred among the first k events, for every k."""
        return self.pairs.added(self.pairs.number == 0)

    @cached_property
    def mean_gap(self) -> IntArray:
        """The mean over pairs of their mean time between events, rounded down, for every k.

        A pair that occurred once counts as 0. Sums of whole gaps are exact, and those of fractions
        are off by less than 2^-bits per pair: with that much added, no mean falls short of a whole
        number that it reaches.
        """
        series = self.pairs
        divisor = np.maximum(series.number, 1)
        gap, rest = np.divmod(series.t - series.t[series.begin], divisor)
        pairs = np.maximum(self.distinct, 1)
        bits = min(52, 61 - int(pairs[-1]).bit_length())  # a float64 has 53, an int64 63
        part = np.rint(np.ldexp(rest / divisor, bits)).astype(np.int64)
        high, low, fraction = (
            series.added(np.where(series.number > 0, value - np.roll(value, 1), 0))
            for value in (gap >> 32, gap & 0xFFFFFFFF, part)
        )
        low += (fraction + pairs) >> bits
        return ((high // pairs) << 32) + ((high % pairs << 32) + low) // pairs


class Asked:
    """Questions about pairs, each with the number of events that are known.

    src, dst, t, known: [B]. `memory` has all events; a heuristic that reads it itself must not
    look beyond the first `known[b]`.
    """

    def __init__(
        self, memory: Memory, src: IntArray, dst: IntArray, t: IntArray, known: IntArray
    ) -> None:
        self.memory, self.src, self.dst, self.t, self.known = memory, src, dst, t, known

    def __len__(self) -> int:
        return len(self.src)

    @cached_property
    def pair(self) -> Known:
        """What is known of src → dst."""
        return self._known(self.memory.pairs, self.src * self.memory.events.nodes + self.dst)

    @cached_property
    def reverse(self) -> Known:
        """What is known of dst → src."""
        return self._known(self.memory.pairs, self.dst * self.memory.events.nodes + self.src)

    @cached_property
    def destination(self) -> Known:
        """What is known of all events into dst."""
        return self._known(self.memory.destinations, self.dst)

    def _known(self, series: _Series, key: IntArray) -> Known:
        return Known(series, key, self.t, self.known)  # not of self: no cycle keeps it alive


class Known:
    """What is known of one key per question.

    count: [B], its events so far.
    met: the questions with a count above 0.
    """

    def __init__(self, series: _Series, key: IntArray, t: IntArray, known: IntArray) -> None:
        first, end = series.past.span(key, known)
        self.count: IntArray = end - first
        self.met: IntArray = np.flatnonzero(self.count)
        self._last = end[self.met] - 1
        self._series, self._t = series, t
        self._faded: dict[float, FloatArray] = {}

    @cached_property
    def last(self) -> IntArray:
        """The time of the latest event, [met]."""
        return self._series.t[self._last]

    def faded(self, scale: float) -> FloatArray:
        """Return the sum of e^(-age / scale) over the events, [B]."""
        if scale not in self._faded:
            result = np.zeros(len(self.count))
            age = self.last - self._t[self.met]
            result[self.met] = self._series.heat(scale)[self._last] * np.exp(age / scale)
            self._faded[scale] = result
        return self._faded[scale]


class Meetings:
    """When two nodes met, in either direction."""

    def __init__(self, events: EventStream) -> None:
        self._nodes = events.nodes
        self._past = Past(self._key(events.src, events.dst), events.t)

    def _key(self, src: IntArray, dst: IntArray) -> IntArray:
        return np.minimum(src, dst) * self._nodes + np.maximum(src, dst)

    def before(self, src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.bool_]:
        """Return whether they met strictly before `t`."""
        first, end = self._past.span(self._key(src, dst), t)
        return np.asarray(end > first)

    def by(self, src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.bool_]:
        """Return whether they met before `t` or at it."""
        return self.before(src, dst, t + 1)

    def at(self, src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.bool_]:
        """Return whether they met at `t`."""
        key = self._key(src, dst)
        return np.asarray(self._past.span(key, t + 1)[1] > self._past.span(key, t)[1])


class _Series:
    """Events by key, in their order.

    t, begin, number: of each position, its time, the first position of its key, and how many
    events of its key precede it.
    """

    def __init__(self, key: IntArray, t: IntArray) -> None:
        self.past = Past(key)
        self.t = t[self.past.order]
        self._heat: dict[float, FloatArray] = {}

    @property
    def begin(self) -> IntArray:
        return self.past.begin

    @property
    def number(self) -> IntArray:
        return np.arange(len(self.t)) - self.begin

    def added(self, change: NDArray[np.bool_] | IntArray) -> IntArray:
        """Return the sums of the changes that the first k events make, for every k from 0."""
        result = np.zeros(len(self.t) + 1, dtype=np.int64)
        result[1 + self.past.order] = change
        return np.cumsum(result)

    def heat(self, scale: float) -> FloatArray:
        """Return the sum of e^(-age / scale) right after each event, over it and those before."""
        if scale not in self._heat:
            heat, row, begin, length = np.ones(len(self.t)), np.arange(len(self.t)), self.begin, 1
            # Sums over the last 1, 2, 4, ... events, each from two of half the length: no power
            # of e exceeds 1, and the number of passes is that of the longest series' digits.
            while len(later := np.flatnonzero(row - length >= begin)):
                earlier = later - length
                faded = np.exp((self.t[earlier] - self.t[later]) / scale)
                heat[later] += faded * heat[earlier]
                length *= 2
            self._heat[scale] = heat
        return self._heat[scale]
