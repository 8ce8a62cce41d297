"""What a model reads about a node at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.columns import IntArray
from tidegraph.events.moments import SECONDS
from tidegraph.events.past import Past
from tidegraph.events.stream import ALWAYS, EventStream, NodeLabels
from tidegraph.learning.features import RECENT, carried, last_and_mean, squash
from tidegraph.learning.history import History
from tidegraph.learning.settings import NodeSettings
from tidegraph.store.trajectories import Trajectories

FloatArray = NDArray[np.float32]

_AT_ONCE = 1 << 14  # nodes whose states are in memory together
_PARTNERS = 8  # of the latest events; their labels count, and those of their own partners
_TINY = 1e-9
_PERIODS_SEEN = 3  # with fewer in the training period there is nothing to learn


class NodeFeatures:
    """Numbers about nodes strictly before a time; the settings choose which.

    span: length of the training period, which must hold several days or weeks for the time of day
        or week to be read.
    settings: `products`, whether to read inner products of the node's own representations in all
        channels and of `x`, the propagated features, on a scale that is logarithmic away from zero
        (how much of its walks return to it, how far they spread), and the logarithms of their
        norms; `activity`, whether to read the numbers of `History` for the node and for its last
        partner, and the time of day and week; `edge_features`, whether to read those of the latest
        event and their mean over the latest ones; `since_first`, what to take from `states`.
    states: whether to read the representations themselves, less those before the first event where
        they are wanted since then.
    known: labels with the times from which they are known, or None. They give the node's last
        label and the share of each of `classes` among its own labels, among the last labels of its
        partners, and among the last labels of their partners. Where labels hold at all times, the
        node's own are left out, as they would be the answer, and all partners count besides.
    """

    def __init__(
        self,
        stream: EventStream,
        trajectories: Trajectories,
        history: History,
        x: FloatArray,
        settings: NodeSettings,
        *,
        span: float,
        states: bool,
        known: NodeLabels | None,
        classes: IntArray,
    ) -> None:
        self._trajectories, self._history, self._x = trajectories, history, x
        self._states, self._since_first = states, settings.since_first
        self._products_too, self._activity = settings.products, settings.activity
        self._edge_features = carried(stream) if settings.edge_features else None
        self._classes = len(classes)
        self._periods = periods(stream.unit, span)
        # Every event is listed at both of its ends.
        self._events = Past(np.concatenate([stream.src, stream.dst]), np.tile(stream.t, 2))
        self._partner = np.concatenate([stream.dst, stream.src])
        self._labels: Past | None = None
        if known is not None:
            chosen = np.isin(known.label, classes)
            node, t = known.node[chosen], known.t[chosen]
            self._label = np.searchsorted(classes, known.label[chosen])
            self._labels = Past(node, t)
            self._always = bool((t == ALWAYS).any())
            if self._always:  # whose labels a node meets, event by event
                of_node = np.full(stream.nodes, -1)
                of_node[node] = self._label
                theirs = of_node[self._partner]
                ends = np.concatenate([stream.src, stream.dst])
                met = (theirs >= 0) & (ends != self._partner)
                node, t = ends[met], np.tile(stream.t, 2)[met]
                self._by_class = Past(node * self._classes + theirs[met], t)
            else:
                self._by_class = Past(node * self._classes + self._label, t)

    def __call__(self, nodes: IntArray, t: IntArray) -> FloatArray:
        """Return a row for each node and time, `[len(nodes), numbers]`."""
        pieces = [
            self._piece(nodes[first : first + _AT_ONCE], t[first : first + _AT_ONCE])
            for first in range(0, max(1, len(nodes)), _AT_ONCE)
        ]
        return np.concatenate(pieces)

    def _piece(self, nodes: IntArray, t: IntArray) -> FloatArray:
        states = self._trajectories.state(nodes, t)  # [B, channels, columns]
        parts: list[NDArray[Any]] = [states[:, 0, :0]]  # nothing, if nothing else is read
        if self._products_too:
            parts.append(self._products(nodes, states))
        if self._states:
            if self._since_first:
                states = states - self._trajectories.state(nodes, ALWAYS)
            parts.append(states.reshape(len(nodes), -1))
        if self._activity:
            parts += [self._history.of_nodes(nodes, t), self._of_partner(nodes, t)]
            parts.append(of_day_and_week(t, self._periods))
        if self._edge_features is not None:
            parts.append(self._of_events(nodes, t, self._edge_features))
        if self._labels is not None:
            parts.append(self._of_labels(nodes, t, self._labels))
            if self._always:  # last: the network starts from it
                parts.append(self._log_shares(nodes, t))
        return np.concatenate(parts, axis=1).astype(np.float32, copy=False)

    def _products(self, nodes: IntArray, states: FloatArray) -> FloatArray:
        own = np.concatenate([self._x[nodes][:, None], states], axis=1)
        upper = np.triu_indices(own.shape[1])
        product = (np.matmul(own, own.transpose(0, 2, 1)) / own.shape[2])[:, upper[0], upper[1]]
        norm = np.sqrt(np.einsum("bcd,bcd->bc", states, states) / own.shape[2])
        return np.concatenate([squash(product), np.log(norm + _TINY)], axis=1)

    def _of_partner(self, nodes: IntArray, t: IntArray) -> FloatArray:
        rows, known = self._events.latest(nodes, t, 1)
        last = self._partner[rows[:, 0]] if len(self._partner) else rows[:, 0]
        return self._history.of_nodes(last, t) * known

    def _of_events(self, nodes: IntArray, t: IntArray, features: FloatArray) -> FloatArray:
        rows, known = self._events.latest(nodes, t, RECENT)
        # The first half of the rows are sources, the second destinations of the same events.
        return last_and_mean(features, rows % max(1, len(features)), known)

    def _of_labels(self, nodes: IntArray, t: IntArray, labels: Past) -> FloatArray:
        parts = self._class_shares(nodes, t)
        if not self._always:
            label, labelled = self._last_label(labels, nodes, t)
            parts.insert(0, np.eye(self._classes)[label] * labelled[:, None])
        partner, met = self._met(nodes, t)  # [B, partners]
        if self._always:
            met &= partner != nodes[:, None]
        then = np.repeat(t, _PARTNERS)
        found, known = self._met(partner.ravel(), then)
        theirs = found.reshape(len(nodes), -1)  # [B, partners · partners]
        also = known.reshape(theirs.shape) & np.repeat(met, _PARTNERS, axis=1)
        also &= theirs != nodes[:, None]
        shares = self._shares(labels, partner, met, t), self._shares(labels, theirs, also, t)
        return np.concatenate([*parts, *shares], axis=1).astype(np.float32)

    def _class_shares(self, nodes: IntArray, t: IntArray) -> list[NDArray[Any]]:
        """Return the share of each class among labels of the node, or met by it, and how many."""
        count = self._counts(nodes, t)
        total = count.sum(axis=1, keepdims=True)
        return [count / np.maximum(total, 1), np.log1p(total)]

    def _log_shares(self, nodes: IntArray, t: IntArray) -> NDArray[Any]:
        """Return logarithms of shares among labels met; all classes together count as one more."""
        count = self._counts(nodes, t) + 1 / self._classes
        logarithms: NDArray[Any] = np.log(count / count.sum(axis=1, keepdims=True))
        return logarithms

    def _counts(self, nodes: IntArray, t: IntArray) -> IntArray:
        """Return the labels of each class, of the node or met by it, `[B, classes]`."""
        own = nodes[:, None] * self._classes + np.arange(self._classes)
        first, end = self._by_class.span(own.ravel(), np.repeat(t, self._classes))
        return (end - first).reshape(own.shape)

    def _met(self, nodes: IntArray, t: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """Return the partners of the latest events and whether each is known, `[B, partners]`."""
        rows, known = self._events.latest(nodes, t, _PARTNERS)
        return (self._partner[rows] if len(self._partner) else rows), known

    def _shares(
        self, labels: Past, nodes: IntArray, chosen: NDArray[np.bool_], t: IntArray
    ) -> FloatArray:
        """Return the share of each class among the last labels of chosen nodes, and how many."""
        row, column = np.nonzero(chosen)
        label, known = self._last_label(labels, nodes[row, column], t[row])
        place = row[known] * self._classes + label[known]
        count = np.bincount(place, minlength=len(t) * self._classes).reshape(len(t), -1)
        total = count.sum(axis=1, keepdims=True)
        return np.concatenate([count / np.maximum(total, 1), np.log1p(total)], axis=1)

    def _last_label(
        self, labels: Past, nodes: IntArray, t: IntArray
    ) -> tuple[IntArray, NDArray[np.bool_]]:
        """Return the class of each node's last label, by position, and whether it has one."""
        rows, known = labels.latest(nodes, t, 1)
        label = self._label[rows[:, 0]] if len(self._label) else rows[:, 0]
        return label, known[:, 0]


def periods(unit: str, span: float) -> NDArray[np.float64]:
    """Return a day and a week in the stream's unit, where `span` holds several of them."""
    if SECONDS.get(unit, np.inf) >= SECONDS["day"]:
        return np.zeros(0)
    periods = np.array([1.0, 7.0]) * SECONDS["day"] / SECONDS[unit]
    return periods[periods * _PERIODS_SEEN <= span]


def of_day_and_week(t: IntArray, periods: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sines and cosines of times within these periods."""
    angle = 2 * np.pi * (t[:, None] % periods) / periods
    return np.concatenate([np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle)], 1)
