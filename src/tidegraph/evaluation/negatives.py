"""Pairs that did not happen, to distinguish from those that did.

A sampler has a name and a seed, and draws for one batch after another in time order: the same seed
and batches give the same negatives, whatever is evaluated. NumPy's old generator is used because
the published negatives came from it. `random-dst` and the two samplers of whole past edges follow
the programs behind the published numbers (TGN's and DyGLib's).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.events.names import node_numbers
from tidegraph.events.stream import EventStream

IntArray = NDArray[np.int64]
EDGES_AS_PUBLISHED = 200_000  # distinct edges of a stream, up to which draws are the published ones


class NegativeSampler(ABC):
    """One negative pair for every positive one."""

    name: ClassVar[str]

    @abstractmethod
    def sample(self, src: IntArray, dst: IntArray, t: IntArray) -> tuple[IntArray, IntArray]:
        """Return sources and destinations of the negatives for a batch of positives in time order.

        The window of a batch is from its first time to its last, both included.
        """


class RandomDestinations(NegativeSampler):
    """The positive's source with any destination that occurs among the given events.

    A negative may happen to be a positive of the batch, as in the original.
    """

    name = "random-dst"

    def __init__(self, events: EventStream, *, seed: int) -> None:
        _not_empty(events)
        self._sources = len(np.unique(events.src))
        self._destinations = np.unique(events.dst)
        self._random = np.random.RandomState(seed)

    def sample(self, src: IntArray, dst: IntArray, t: IntArray) -> tuple[IntArray, IntArray]:
        # TGN's sampler also draws a source and drops it; without this draw all later ones differ.
        self._random.randint(0, self._sources, len(src))
        drawn = self._random.randint(0, len(self._destinations), len(src))
        return src, self._destinations[drawn]


class RandomNodes(NegativeSampler):
    """The positive's source with any node at all: easy if the graph is bipartite."""

    name = "random-all"

    def __init__(self, events: EventStream, *, seed: int) -> None:
        self._nodes = events.nodes
        self._random = np.random.RandomState(seed)

    def sample(self, src: IntArray, dst: IntArray, t: IntArray) -> tuple[IntArray, IntArray]:
        return src, self._random.randint(0, self._nodes, len(src)).astype(np.int64)


class HistoricalEdges(NegativeSampler):
    """Whole edges seen strictly before the batch's window and not in it, without replacement.

    A stream with more than 200,000 distinct edges gets other draws than the published ones, from
    the same distribution, in time that does not grow with the past. If there are too few, random
    pairs of a source and a destination that occur among the events come first; none of these is a
    positive of the batch.
    """

    name = "historical"

    def __init__(self, events: EventStream, *, seed: int) -> None:
        _not_empty(events)
        self._random = np.random.RandomState(seed)
        self._sources, self._destinations = np.unique(events.src), np.unique(events.dst)
        self._t = events.t
        keys = events.src * events.nodes + events.dst
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        # Edges are numbered by their first event: those seen before some time are a prefix.
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        self._edge = rank[number.reshape(-1)]  # of each event
        self._first_t = events.t[first[order]]
        self._src, self._dst = events.src[first[order]], events.dst[first[order]]
        self._skip = 0  # edges that are never drawn, at the beginning
        # As DyGLib draws, which permutes all past edges for every batch.
        self.published = len(order) <= EDGES_AS_PUBLISHED

    def sample(self, src: IntArray, dst: IntArray, t: IntArray) -> tuple[IntArray, IntArray]:
        start, end = t[0], t[-1]
        seen = int(np.searchsorted(self._first_t, start, side="left"))
        rows = slice(
            int(np.searchsorted(self._t, start, side="left")),
            int(np.searchsorted(self._t, end, side="right")),
        )
        in_window = np.unique(self._edge[rows])
        barred = in_window[(in_window >= self._skip) & (in_window < seen)] - self._skip
        pool = max(0, seen - self._skip) - len(barred)
        missing = len(src) - pool
        if missing <= 0:
            drawn = (
                self._random.choice(pool, size=len(src), replace=False)
                if self.published
                else _distinct(self._random, pool, len(src))
            )
            chosen = self._skip + _outside(drawn, barred)
            return self._src[chosen], self._dst[chosen]
        chosen = self._skip + _outside(np.arange(pool), barred)
        more_src, more_dst = self._random_pairs(missing, src, dst)
        return (
            np.concatenate([more_src, self._src[chosen]]),
            np.concatenate([more_dst, self._dst[chosen]]),
        )

    def _random_pairs(self, wanted: int, src: IntArray, dst: IntArray) -> tuple[IntArray, IntArray]:
        """Return distinct pairs outside the batch, repeated only if there are not enough."""
        columns = len(self._destinations)
        pairs = len(self._sources) * columns
        row, column = np.searchsorted(self._sources, src), np.searchsorted(self._destinations, dst)
        row, column = np.minimum(row, len(self._sources) - 1), np.minimum(column, columns - 1)
        inside = (self._sources[row] == src) & (self._destinations[column] == dst)
        positive = np.unique((row * columns + column)[inside])
        if pairs - len(positive) < wanted:
            free = np.setdiff1d(np.arange(pairs), positive)
            if len(free) == 0:
                raise EvaluationError(
                    f"all {pairs} pairs of a source and a destination are positives of this batch; "
                    "use smaller batches or another sampler"
                )
            drawn = self._random.choice(free, size=wanted, replace=True)
        else:
            drawn = _outside(_distinct(self._random, pairs - len(positive), wanted), positive)
        return self._sources[drawn // columns], self._destinations[drawn % columns]


class InductiveEdges(HistoricalEdges):
    """Historical edges first seen after `observed_until`, the end of what training knew."""

    name = "inductive"

    def __init__(self, events: EventStream, *, seed: int, observed_until: int) -> None:
        super().__init__(events, seed=seed)
        self._skip = int(np.searchsorted(self._first_t, observed_until, side="right"))


class GivenNegatives(NegativeSampler):
    """Fixed negatives, row by row in the order of the positives, as benchmark files list them.

    Each row is used once: make a new sampler for every evaluation.
    """

    name = "given"

    def __init__(self, src: ArrayLike, dst: ArrayLike) -> None:
        self._src, self._dst = node_numbers(src), node_numbers(dst)
        if self._src.ndim != 1 or self._src.shape != self._dst.shape:
            raise ParameterError(
                f"given negatives have shapes {self._src.shape} and {self._dst.shape}; "
                "give one source and one destination per positive"
            )
        self._next = 0

    def sample(self, src: IntArray, dst: IntArray, t: IntArray) -> tuple[IntArray, IntArray]:
        rows = slice(self._next, self._next + len(src))
        if rows.stop > len(self._src):
            raise EvaluationError(
                f"{len(self._src)} negatives were given for {rows.stop} positives or more; "
                "give one negative for each"
            )
        self._next = rows.stop
        return self._src[rows], self._dst[rows]


SAMPLERS = tuple(
    each.name for each in (RandomDestinations, RandomNodes, HistoricalEdges, InductiveEdges)
)


def negative_sampler(
    name: str, events: EventStream, *, seed: int, observed_until: int | None = None
) -> NegativeSampler:
    """Return the sampler of this name over some events; `inductive` needs `observed_until`."""
    if name == InductiveEdges.name:
        if observed_until is None:
            raise ParameterError("inductive negatives need observed_until, the end of training")
        return InductiveEdges(events, seed=seed, observed_until=observed_until)
    for kind in (RandomDestinations, RandomNodes, HistoricalEdges):
        if name == kind.name:
            return kind(events, seed=seed)
    raise ParameterError(f"no sampler is called {name!r}; give one of {', '.join(SAMPLERS)}")


def _not_empty(events: EventStream) -> None:
    if len(events) == 0:
        raise EvaluationError("negatives are drawn from events, but the stream is empty")


def _outside(positions: IntArray, barred: IntArray) -> IntArray:
    """Return the numbers at these positions among those that are not barred (ascending)."""
    # Position k is number k + (barred ones before it).
    return positions + np.searchsorted(barred - np.arange(len(barred)), positions, side="right")


def _distinct(generator: np.random.RandomState, below: int, wanted: int) -> IntArray:
    """Return distinct uniform numbers below `below`; cheap if few of many are wanted."""
    if below < 4 * wanted:
        return generator.choice(below, size=wanted, replace=False).astype(np.int64)
    drawn = np.zeros(0, dtype=np.int64)
    while len(drawn) < wanted:
        more = generator.randint(0, below, wanted - len(drawn), dtype=np.int64)
        together = np.concatenate([drawn, more])
        _, first = np.unique(together, return_index=True)
        drawn = together[np.sort(first)]
    return drawn
