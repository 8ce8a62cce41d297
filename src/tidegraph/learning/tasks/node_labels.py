"""The labels of node classification: when each is asked for, and from when it is known."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError
from tidegraph.evaluation import Split
from tidegraph.events.stream import EventStream, NodeLabels

__all__ = [
    "TRAIN",
    "VALIDATION",
    "asked_labels",
    "known_labels",
    "merge_labels",
    "questions",
    "trainable",
]

TRAIN, VALIDATION = 0, 1  # as in `NodeLabels.part`


def asked_labels(stream: EventStream, ask_after: int) -> NodeLabels:
    """Return the stream's labels with the times at which to ask for them.

    Labels of events are asked for at the event, node labels `ask_after` their time.
    """
    if stream.labels is not None:
        return NodeLabels(stream.src, stream.t, stream.labels)
    return _node_labels(stream, ask_after)


def questions(stream: EventStream, split: Split, ask_after: int) -> NodeLabels:
    """Return the stream's known labels with the times at which to ask for them, in parts.

    Parts follow the times of the split, unless node labels come with parts of their own.
    """
    labels = asked_labels(stream, ask_after)
    delay = ask_after if stream.labels is None else 0
    bounds = [split.validation_time, split.test_time]
    part = labels.part
    if part is None:
        part = np.digitize(labels.t - delay, bounds, right=True).astype(np.uint8)
    known = labels.label >= 0
    return NodeLabels(labels.node[known], labels.t[known], labels.label[known], part[known])


def trainable(labels: NodeLabels) -> NDArray[np.bool_]:
    """Return which labels are known and not in the part of validation or test."""
    known: NDArray[np.bool_] = labels.label >= 0
    return known if labels.part is None else known & (labels.part == TRAIN)


def known_labels(stream: EventStream, ask_after: int) -> NodeLabels:
    """Return the labels that may serve as input, each with the time from which it is known.

    The label of an event is known from the event on, unless node labels say otherwise. No label is
    known before it is asked for.
    """
    if stream.labels is None:
        labels = _node_labels(stream, ask_after)
    elif stream.node_labels is None:
        labels = NodeLabels(stream.src, stream.t, stream.labels)
    else:
        labels = stream.node_labels
    usable = labels.label >= 0
    if labels.part is not None and not _by_time(labels):
        usable &= labels.part == TRAIN  # or labels of the test would be read in training
    return NodeLabels(labels.node[usable], labels.t[usable], labels.label[usable])


def merge_labels(known: NodeLabels | None, later: NodeLabels | None) -> NodeLabels | None:
    """Return known and later labels together; where they have parts, later ones may train."""
    if known is None or later is None or later is known:
        return later if known is None else known
    node, t, label = (
        np.concatenate([getattr(each, name) for each in (known, later)])
        for name in ("node", "t", "label")
    )
    part = None
    if known.part is not None or later.part is not None:
        parts = [
            np.zeros(len(each.node), np.uint8) if each.part is None else each.part
            for each in (known, later)
        ]
        part = np.concatenate(parts)
    return NodeLabels(node, t, label, part)


def _node_labels(stream: EventStream, ask_after: int) -> NodeLabels:
    labels = stream.node_labels
    if labels is None:
        raise DataError("the stream has neither labels nor node_labels; nothing can be learned")
    return replace(labels, t=labels.t + ask_after)


def _by_time(labels: NodeLabels) -> bool:
    """Whether validation follows training and the test follows both."""
    assert labels.part is not None
    spans = [labels.t[labels.part == part] for part in np.unique(labels.part)]
    return all(a.max() <= b.min() for a, b in itertools.pairwise(spans))
