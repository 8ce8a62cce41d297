"""Heuristics: what can be achieved without learning, to compare every result with.

Each scores pairs from the events that are known when it is asked, which are those that the model
it is compared with may know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.evaluation.memory import Asked
from tidegraph.events.past import Past
from tidegraph.events.stream import ALWAYS, EventStream, NodeLabels

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Heuristic(ABC):
    """A scorer of pairs that learns nothing.

    published: whether it is also scored with what it knows in publications.
    """

    name: str
    published: bool = False

    @abstractmethod
    def score(self, asked: Asked) -> FloatArray:
        """Return how likely each pair is at its time, from the events that are known."""


class OnlineHeuristic(Heuristic):
    """A heuristic that keeps its own memory: it is shown events, and asked, in turn.

    It never holds an event that it must not know. What is known grows from question to question.
    """

    _shown = 0

    @abstractmethod
    def update(self, events: EventStream) -> None:
        """Remember events, none of them earlier than those seen so far."""

    @abstractmethod
    def answer(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        """Return how likely each pair is at its time, none of them before the last event seen."""

    def score(self, asked: Asked) -> FloatArray:
        order = np.argsort(asked.known, kind="stable")
        known, first = np.unique(asked.known[order], return_index=True)
        if len(known) and known[0] < self._shown:
            raise EvaluationError(
                f"{self.name} has seen {self._shown} events and is asked what it knew after "
                f"{known[0]}; use a new one"
            )
        result = np.zeros(len(asked))
        for count, rows in zip(known.tolist(), np.split(order, first[1:]), strict=True):
            if count > self._shown:
                self.update(asked.memory.events[self._shown : count])
                self._shown = count
            result[rows] = self.answer(asked.src[rows], asked.dst[rows], asked.t[rows])
        return result


class EdgeBank(Heuristic):
    """1 for pairs in memory, 0 for others (Poursafaei and others, 2022).

    `memory` says which pairs it holds: all (`unlimited`), those that occurred in the last
    `proportion` of the events (`window`) or within the mean time between repetitions (`interval`),
    or those that occurred at least as often as the mean (`repeat`). Published results take the
    best of the four for each data set and sampler.
    """

    published = True

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

    def score(self, asked: Asked) -> FloatArray:
        result = np.zeros(len(asked))
        result[asked.pair.met] = self._holds(asked)
        return result

    def _holds(self, asked: Asked) -> NDArray[np.bool_] | bool:
        """Return whether it holds the pairs that have been met."""
        pair, memory, known = asked.pair, asked.memory, asked.known[asked.pair.met]
        if self._memory == "unlimited":
            return True
        if self._memory == "repeat":  # mean count: known / distinct
            return np.asarray(pair.count[pair.met] * memory.distinct[known] >= known)
        if self._memory == "window":
            return np.asarray(pair.last >= self._quantile(memory.events.t, known))
        return np.asarray(memory.events.t[known - 1] - pair.last <= memory.mean_gap[known])

    def _quantile(self, t: IntArray, known: IntArray) -> FloatArray:
        """Return what np.quantile does for the first `known[b]` times, which are sorted."""
        place = (known - 1) * (1 - self._proportion)
        below = place.astype(np.int64)
        share = place - below
        low, high = t[below], t[np.minimum(below + 1, known - 1)]
        step = high - low
        return np.where(share < 0.5, low + step * share, high - step * (1 - share))


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

    def score(self, asked: Asked) -> FloatArray:
        total = np.zeros(len(asked))
        if self._forward:
            total += self._forward * asked.pair.faded(self._scale)
        if self._reverse:
            total += self._reverse * asked.reverse.faded(self._scale)
        if self._popularity:
            total += self._popularity * asked.destination.faded(self._scale)
        return total


class Popularity(Heuristic):
    """The number of past events of the destination."""

    name = "popularity"

    def score(self, asked: Asked) -> FloatArray:
        return asked.destination.count.astype(np.float64)


class Recency(Heuristic):
    """1 / (1 + time since the last event of the pair or of the destination); 0 without one."""

    def __init__(self, of: str = "pair") -> None:
        if of not in ("pair", "destination"):
            raise ParameterError(f"recency of {of!r} is unknown; give pair or destination")
        self.name = f"recency-{of}"
        self._of_pair = of == "pair"

    def score(self, asked: Asked) -> FloatArray:
        known = asked.pair if self._of_pair else asked.destination
        result = np.zeros(len(asked))
        # Whole numbers first: times in nanoseconds are not exact as floats.
        result[known.met] = 1.0 / (1.0 + (asked.t[known.met] - known.last))
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


class Neighbours(NodeHeuristic):
    """The shares of the classes among known labels of all earlier partners, once per event.

    Class frequencies count as one partner more, and decide where no label is known.
    """

    name = "neighbours"

    def __init__(
        self, stream: EventStream, known: NodeLabels, train: NodeLabels, *, classes: int
    ) -> None:
        self._otherwise = Majority(train, classes=classes)
        self._classes = classes
        label = np.full(stream.nodes, -1)
        label[known.node] = known.label
        node = np.concatenate([stream.src, stream.dst])
        theirs = np.concatenate([label[stream.dst], label[stream.src]])
        met = (theirs >= 0) & np.tile(stream.src != stream.dst, 2)
        self._past = Past(node[met] * classes + theirs[met], np.tile(stream.t, 2)[met])

    def score(self, node: IntArray, t: IntArray) -> FloatArray:
        keys = node[:, None] * self._classes + np.arange(self._classes)
        first, end = self._past.span(keys.ravel(), np.repeat(t, self._classes))
        count = (end - first).reshape(keys.shape) + self._otherwise.score(node, t)
        shares: FloatArray = count / count.sum(axis=1, keepdims=True)
        return shares


class FeaturesOnly(NodeHeuristic):
    """Logistic regression on the node's own features."""

    name = "features"

    def __init__(self, stream: EventStream, train: NodeLabels, *, classes: int) -> None:
        from sklearn.linear_model import LogisticRegression

        assert stream.node_features is not None
        self._x, self._classes = stream.node_features, classes
        self._otherwise = Majority(train, classes=classes)
        self._model = None
        if len(np.unique(train.label)) > 1:
            self._model = LogisticRegression(max_iter=1000)
            self._model.fit(self._x[train.node], train.label)

    def score(self, node: IntArray, t: IntArray) -> FloatArray:
        result = self._otherwise.score(node, t)
        if self._model is not None:
            result[:] = 0
            result[:, self._model.classes_] = self._model.predict_proba(self._x[node])
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
    """Return heuristics for node classification, fitted to the training examples.

    Where labels hold at all times, those of partners are asked instead of the node's last one.
    """
    always = bool((known.t == ALWAYS).any())
    heuristics: list[NodeHeuristic] = [
        Majority(train, classes=classes),
        Neighbours(stream, known, train, classes=classes)
        if always
        else LastLabel(known, train, classes=classes),
        DegreeOnly(stream, train, classes=classes),
    ]
    if always and stream.node_features is not None:
        heuristics.append(FeaturesOnly(stream, train, classes=classes))
    return heuristics
