"""What a model reads about a node at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.columns import IntArray
from tidegraph.events.moments import SECONDS
from tidegraph.events.past import Past
from tidegraph.events.stream import EventStream, NodeLabels
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

    Always: inner products of the node's own representations in all channels and of `x`, the
    propagated features, on a scale that is logarithmic away from zero (how much of its walks return
    to it, how far they spread), and the logarithms of their norms.

    span: length of the training period, which must hold several days or weeks for the time of day
        or week to be read.
    settings: `activity`, whether to read the numbers of `History` for the node and for its last
        partner, and the time of day and week; `edge_features`, whether to read those of the latest
        event and their mean over the latest ones.
    states: whether to read the representations themselves too.
    known: labels with the times from which they are known, or None. They give the node's last
        label and the share of each of `classes` among its own labels, among the last labels of its
        partners, and among the last labels of their partners.
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
        self._states, self._activity = states, settings.activity
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
            self._labels_by_class = Past(node * self._classes + self._label, t)

    def __call__(self, nodes: IntArray, t: IntArray) -> FloatArray:
        """Return a row for each node and time, `[len(nodes), numbers]`."""
        pieces = [
            self._piece(nodes[first : first + _AT_ONCE], t[first : first + _AT_ONCE])
            for first in range(0, max(1, len(nodes)), _AT_ONCE)
        ]
        return np.concatenate(pieces)

    def _piece(self, nodes: IntArray, t: IntArray) -> FloatArray:
        states = self._trajectories.state(nodes, t)  # [B, channels, columns]
        parts: list[NDArray[Any]] = [self._products(nodes, states)]
        if self._states:
            parts.append(states.reshape(len(nodes), -1))
        if self._activity:
            parts += [self._history.of_nodes(nodes, t), self._of_partner(nodes, t)]
            parts.append(of_day_and_week(t, self._periods))
        if self._edge_features is not None:
            parts.append(self._of_events(nodes, t, self._edge_features))
        if self._labels is not None:
            parts.append(self._of_labels(nodes, t, self._labels))
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
        label, labelled = self._last_label(labels, nodes, t)
        last = np.eye(self._classes)[label] * labelled[:, None]
        own = nodes[:, None] * self._classes + np.arange(self._classes)
        first, end = self._labels_by_class.span(
            own.ravel(), np.broadcast_to(t[:, None], own.shape).ravel()
        )
        count = (end - first).reshape(own.shape)
        total = count.sum(axis=1, keepdims=True)
        partner, met = self._met(nodes, t)  # [B, partners]
        then = np.repeat(t, _PARTNERS)
        found, known = self._met(partner.ravel(), then)
        theirs = found.reshape(len(nodes), -1)  # [B, partners · partners]
        also = known.reshape(theirs.shape) & np.repeat(met, _PARTNERS, axis=1)
        also &= theirs != nodes[:, None]
        return np.concatenate(
            [
                last,
                count / np.maximum(total, 1),
                np.log1p(total),
                self._shares(labels, partner, met, t),
                self._shares(labels, theirs, also, t),
            ],
            axis=1,
        ).astype(np.float32)

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
