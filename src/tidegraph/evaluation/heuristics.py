"""Heuristics: what can be achieved without learning, to compare every result with.

Each remembers the events it has seen and scores from that memory alone. As published, the protocols
show them every event before a batch and none of the batch itself. Some can also score, as models
do, from all events before each single one (`per_event`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.events.past import Past
from tidegraph.events.stream import EventStream, NodeLabels

__all__ = [
    "DegreeOnly",
    "EdgeBank",
    "EdgeMemory",
    "Heuristic",
    "LastLabel",
    "Majority",
    "NodeHeuristic",
    "Popularity",
    "Recency",
    "link_heuristics",
    "node_heuristics",
    "snapshot_heuristics",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
EventScore = Callable[[IntArray, IntArray, IntArray], FloatArray]  # src, dst, t -> [B]


class Heuristic(ABC):
    """A scorer of pairs that remembers events and learns nothing."""

    name: str

    @abstractmethod
    def update(self, events: EventStream) -> None:
        """Remember events, none of them earlier than those seen so far."""

    @abstractmethod
    def score(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        """Return how likely each pair is at its time, none of them before the last event seen."""

    def score_all(self, src: IntArray, t: int, nodes: int) -> FloatArray:
        """Return scores [sources, nodes] of every node as destination; sources are distinct."""
        flat = self.score(
            np.repeat(src, nodes), np.tile(np.arange(nodes), len(src)), np.full(len(src) * nodes, t)
        )
        return flat.reshape(len(src), nodes)

    def per_event(self, events: EventStream) -> EventScore | None:
        """Return a scorer that remembers, for each pair, all of `events` strictly before its time.

        None if the memory is only defined as a whole. Events that this object has seen itself do
        not count.
        """
        return None


class _Pairs:
    """The slots of all pairs that have occurred, found by binary search."""

    def __init__(self) -> None:
        self.nodes = 0
        self.keys = np.zeros(0, dtype=np.int64)

    def slots(self, src: IntArray, dst: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """Return the slots of pairs and whether they have one; if not, the slot means nothing."""
        wanted = src * self.nodes + dst
        if len(self.keys) == 0:
            return np.zeros(len(wanted), dtype=np.int64), np.zeros(len(wanted), dtype=bool)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return place, self.keys[place] == wanted

    def admit(self, src: IntArray, dst: IntArray, nodes: int) -> tuple[IntArray, IntArray]:
        """Return the slots of pairs, old or new, and where the old slots have moved."""
        if self.nodes not in (0, nodes):
            raise EvaluationError(
                f"events have {nodes} nodes, and those seen before had {self.nodes}; "
                "use one stream, or a new heuristic"
            )
        self.nodes = nodes
        given = src * nodes + dst
        before = self.keys
        self.keys = np.union1d(before, given)
        return np.searchsorted(self.keys, given), np.searchsorted(self.keys, before)


def _moved(values: NDArray[np.float64], to: IntArray, size: int, empty: float) -> FloatArray:
    result = np.full(size, empty)
    result[to] = values
    return result


class EdgeBank(Heuristic):
    """1 for pairs in memory, 0 for others (Poursafaei and others, 2022).

    `memory` says which pairs it holds: all (`unlimited`), those that occurred in the last
    `proportion` of the events (`window`) or within the mean time between repetitions (`interval`),
    or those that occurred at least as often as the mean (`repeat`). Published results take the
    best of the four for each data set and sampler.
    """

    def __init__(self, memory: str = "unlimited", *, proportion: float = 0.15) -> None:
        if memory not in ("unlimited", "window", "interval", "repeat"):
            raise ParameterError(
                f"EdgeBank has no memory {memory!r}; give unlimited, window, interval or repeat"
            )
        if not 0 < proportion < 1:
            raise ParameterError(
                f"proportion is {proportion}; give a share of the events, above 0 and below 1"
            )
        self.name = f"edgebank-{memory}"
        self._memory, self._proportion = memory, proportion
        self._pairs = _Pairs()
        self._count, self._first, self._last = np.zeros(0), np.zeros(0), np.zeros(0)
        self._times: list[IntArray] = []

    def update(self, events: EventStream) -> None:
        if len(events) == 0:
            return
        slot, old = self._pairs.admit(events.src, events.dst, events.nodes)
        size = len(self._pairs.keys)
        self._count = _moved(self._count, old, size, 0.0) + np.bincount(slot, minlength=size)
        self._first = _moved(self._first, old, size, np.inf)
        self._last = _moved(self._last, old, size, -np.inf)
        np.minimum.at(self._first, slot, events.t)
        np.maximum.at(self._last, slot, events.t)
        if self._memory == "window":
            self._times.append(events.t)

    def score(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        slot, known = self._pairs.slots(src, dst)
        if not known.any():
            return np.zeros(len(src))
        return np.where(known, self._in_memory()[slot], 0.0)

    def per_event(self, events: EventStream) -> EventScore | None:
        if self._memory != "unlimited":
            return None
        past = _pairs_of(events)

        def score(src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
            first, end = past.span(src * events.nodes + dst, t)
            return (end > first).astype(np.float64)

        return score

    def _in_memory(self) -> FloatArray:
        if self._memory == "unlimited":
            return np.ones(len(self._count))
        if self._memory == "repeat":
            return np.asarray(self._count >= self._count.mean(), dtype=np.float64)
        if self._memory == "window":
            start = np.quantile(np.concatenate(self._times), 1 - self._proportion)
        else:
            gaps = (self._last - self._first) / np.maximum(self._count - 1, 1)
            start = self._last.max() - gaps.mean()  # a single occurrence counts as a gap of 0
        return np.asarray(self._last >= start, dtype=np.float64)


class EdgeMemory(Heuristic):
    """Sums of e^(-age / scale) over the past events of a pair, of its reverse, and of v.

    The score of (u, v) is `forward`·(events u → v) + `reverse`·(events v → u) +
    `popularity`·(events into v). The small weight of popularity in `snapshot_heuristics` makes it
    decide among pairs without a past and hardly anywhere else.
    """

    def __init__(
        self,
        *,
        scale: float,
        forward: float = 1.0,
        reverse: float = 0.0,
        popularity: float = 0.0,
        name: str | None = None,
    ) -> None:
        if not scale > 0:
            raise ParameterError(
                f"scale is {scale}; the time in which memories fade must be above 0"
            )
        parts = {"memory": forward, "reverse": reverse, "popularity": popularity}
        if not any(parts.values()) or min(parts.values()) < 0:
            raise ParameterError(
                f"forward={forward}, reverse={reverse} and popularity={popularity}: "
                "weights must not be negative, and not all 0"
            )
        self.name = name or "+".join(part for part, weight in parts.items() if weight)
        self._scale = scale
        self._forward, self._reverse, self._popularity = forward, reverse, popularity
        self._pairs = _Pairs()
        self._heat, self._into = np.zeros(0), np.zeros(0)  # of pairs, and of destinations
        self._now = 0  # the time at which the heats are valid

    def update(self, events: EventStream) -> None:
        if len(events) == 0:
            return
        now = int(events.t[-1])
        slot, old = self._pairs.admit(events.src, events.dst, events.nodes)
        size = len(self._pairs.keys)
        if len(self._into):
            cooled = np.exp((self._now - now) / self._scale)
            self._heat, self._into = self._heat * cooled, self._into * cooled
        else:
            self._into = np.zeros(events.nodes)
        fresh = np.exp((events.t - now) / self._scale)
        self._heat = _moved(self._heat, old, size, 0.0)
        self._heat += np.bincount(slot, weights=fresh, minlength=size)
        self._into += np.bincount(events.dst, weights=fresh, minlength=events.nodes)
        self._now = now

    def score(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        total = np.zeros(len(src))
        if len(self._heat) == 0:
            return total
        for weight, (slot, known) in (
            (self._forward, self._pairs.slots(src, dst)),
            (self._reverse, self._pairs.slots(dst, src)),
        ):
            total += weight * np.where(known, self._heat[slot], 0.0)
        total += self._popularity * self._into[dst]
        return total * np.exp((self._now - t) / self._scale)

    def score_all(self, src: IntArray, t: int, nodes: int) -> FloatArray:
        # From the pairs in memory to the table, instead of looking up every cell of it.
        if len(self._heat) == 0:
            return np.zeros((len(src), nodes))
        row = np.full(nodes, -1)
        row[src] = np.arange(len(src))
        u, v = self._pairs.keys // nodes, self._pairs.keys % nodes
        total = np.tile(self._popularity * self._into, (len(src), 1))
        for weight, near, far in ((self._forward, u, v), (self._reverse, v, u)):
            asked = row[near] >= 0
            total[row[near[asked]], far[asked]] += weight * self._heat[asked]
        return total * float(np.exp((self._now - t) / self._scale))

    def per_event(self, events: EventStream) -> EventScore:
        pairs = _Heat(_pairs_of(events), events.t, self._scale)
        into = _Heat(Past(events.dst, events.t), events.t, self._scale)

        def score(src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
            total = np.zeros(len(src))
            for weight, heat, key in (
                (self._forward, pairs, src * events.nodes + dst),
                (self._reverse, pairs, dst * events.nodes + src),
                (self._popularity, into, dst),
            ):
                if weight:
                    total += weight * heat.before(key, t)
            return total

        return score


class Popularity(Heuristic):
    """The number of past events of the destination."""

    name = "popularity"

    def __init__(self) -> None:
        self._into = np.zeros(0)

    def update(self, events: EventStream) -> None:
        more = np.bincount(events.dst, minlength=events.nodes).astype(np.float64)
        self._into = more + self._into if len(self._into) else more

    def score(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        return self._into[dst] if len(self._into) else np.zeros(len(dst))

    def per_event(self, events: EventStream) -> EventScore:
        past = Past(events.dst, events.t)

        def score(src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
            first, end = past.span(dst, t)
            return (end - first).astype(np.float64)

        return score


class Recency(Heuristic):
    """1 / (1 + time since the last event of the pair or of the destination); 0 without one."""

    def __init__(self, of: str = "pair") -> None:
        if of not in ("pair", "destination"):
            raise ParameterError(f"recency of {of!r} is unknown; give pair or destination")
        self.name = f"recency-{of}"
        self._of_pair = of == "pair"
        self._pairs = _Pairs()
        self._last = np.zeros(0)

    def update(self, events: EventStream) -> None:
        src = events.src if self._of_pair else np.zeros_like(events.dst)
        slot, old = self._pairs.admit(src, events.dst, events.nodes)
        self._last = _moved(self._last, old, len(self._pairs.keys), -np.inf)
        np.maximum.at(self._last, slot, events.t)

    def score(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        slot, known = self._pairs.slots(src if self._of_pair else np.zeros_like(dst), dst)
        if not known.any():
            return np.zeros(len(dst))
        return np.where(known, 1.0 / (1.0 + t - self._last[slot]), 0.0)

    def per_event(self, events: EventStream) -> EventScore:
        past = _pairs_of(events) if self._of_pair else Past(events.dst, events.t)

        def score(src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
            row, known = past.latest(src * events.nodes + dst if self._of_pair else dst, t, 1)
            result = np.zeros(len(dst))
            met = known[:, 0]
            result[met] = 1.0 / (1.0 + t[met] - events.t[row[met, 0]])
            return result

        return score


def _pairs_of(events: EventStream) -> Past:
    return Past(events.src * events.nodes + events.dst, events.t)


class _Heat:
    """Sums of e^(-age / scale) over past events, as of any time."""

    def __init__(self, past: Past, t: IntArray, scale: float) -> None:
        self._past, self._scale = past, scale
        self._t = t[past.order]
        self._heat = np.ones(len(t))  # right after each event, of it and those of its key before
        # Sums over the last 1, 2, 4, ... events, each from two of half the length: no power of e
        # exceeds 1, and the number of passes is that of the longest series' binary digits.
        row, begin, length = np.arange(len(t)), past.begin, 1
        while len(later := np.flatnonzero(row - length >= begin)):
            earlier = later - length
            faded = np.exp((self._t[earlier] - self._t[later]) / scale)
            self._heat[later] += faded * self._heat[earlier]
            length *= 2

    def before(self, key: IntArray, t: IntArray) -> FloatArray:
        first, end = self._past.span(key, t)
        result = np.zeros(len(key))
        known = np.flatnonzero(end > first)
        last = end[known] - 1
        result[known] = self._heat[last] * np.exp((self._t[last] - t[known]) / self._scale)
        return result


def link_heuristics(scale: float) -> list[Heuristic]:
    """Return fresh heuristics for streams of events; memories fade within the time `scale`."""
    return [
        EdgeBank(),
        EdgeBank("window"),
        EdgeBank("interval"),
        EdgeBank("repeat"),
        EdgeMemory(scale=scale),
        EdgeMemory(scale=scale, reverse=1.0, popularity=1e-3),
        Popularity(),
        Recency("pair"),
        Recency("destination"),
    ]


def snapshot_heuristics(scale: float = 3.0) -> list[Heuristic]:
    """Return fresh heuristics for snapshots; memories fade within `scale` of them."""
    return [
        EdgeMemory(scale=scale),
        EdgeMemory(scale=scale, forward=0.0, reverse=1.0),
        EdgeMemory(scale=scale, forward=0.0, popularity=1.0),
        EdgeMemory(scale=scale, forward=0.0, reverse=1.0, popularity=1e-3),
        EdgeMemory(scale=scale, reverse=1.0, popularity=1e-3),
    ]


# Nodes --------------------------------------------------------------------------------------------


class NodeHeuristic(ABC):
    """A scorer that gives nodes a probability for each class."""

    name: str

    @abstractmethod
    def score(self, node: IntArray, t: IntArray) -> FloatArray:
        """Return probabilities [B, classes] of nodes, from what was known strictly before."""


class Majority(NodeHeuristic):
    """The class frequencies of the training examples, the same for every node."""

    name = "majority"

    def __init__(self, train: NodeLabels, *, classes: int) -> None:
        self._share = np.bincount(train.label, minlength=classes) / len(train.label)

    def score(self, node: IntArray, t: IntArray) -> FloatArray:
        return np.tile(self._share, (len(node), 1))


class LastLabel(NodeHeuristic):
    """The node's last known label; class frequencies if none is known.

    `known.t` is when each label became known.
    """

    name = "last-label"

    def __init__(self, known: NodeLabels, train: NodeLabels, *, classes: int) -> None:
        self._otherwise = Majority(train, classes=classes)
        self._classes = classes
        self._past, self._label = Past(known.node, known.t), known.label

    def score(self, node: IntArray, t: IntArray) -> FloatArray:
        result = self._otherwise.score(node, t)
        row, known = self._past.latest(node, t, 1)
        found = known[:, 0]
        result[found] = np.eye(self._classes)[self._label[row[found, 0]]]
        return result


class DegreeOnly(NodeHeuristic):
    """Logistic regression on the logarithm of the number of earlier events of the node."""

    name = "degree"

    def __init__(self, stream: EventStream, train: NodeLabels, *, classes: int) -> None:
        from sklearn.linear_model import LogisticRegression

        self._past = Past(np.concatenate([stream.src, stream.dst]), np.tile(stream.t, 2))
        self._classes = classes
        self._present = np.unique(train.label)
        self._model = None
        if len(self._present) > 1:
            self._model = LogisticRegression().fit(self._degrees(train.node, train.t), train.label)

    def _degrees(self, node: IntArray, t: IntArray) -> FloatArray:
        first, end = self._past.span(node, t)
        return np.asarray(np.log1p(end - first)[:, None], dtype=np.float64)

    def score(self, node: IntArray, t: IntArray) -> FloatArray:
        result = np.zeros((len(node), self._classes))
        if self._model is None:
            result[:, self._present] = 1.0
        else:
            result[:, self._present] = self._model.predict_proba(self._degrees(node, t))
        return result


def node_heuristics(
    stream: EventStream, train: NodeLabels, known: NodeLabels, *, classes: int
) -> list[NodeHeuristic]:
    """Return heuristics for node classification, fitted to the training examples."""
    return [
        Majority(train, classes=classes),
        LastLabel(known, train, classes=classes),
        DegreeOnly(stream, train, classes=classes),
    ]
