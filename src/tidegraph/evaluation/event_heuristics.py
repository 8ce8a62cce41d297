"""Heuristics for classes of events: the last label of either end, and what an event carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.evaluation.heuristics import LastLabel, Majority
from tidegraph.events.own_columns import own_numbers
from tidegraph.events.stream import EventStream, NodeLabels

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
EventScore = Callable[[IntArray], FloatArray]  # positions in the stream -> [B, classes]

_CATEGORIES = 255  # that gradient boosting tells apart; rarer ones count as missing


def event_heuristics(
    stream: EventStream, train: IntArray, known_t: IntArray, *, classes: int
) -> dict[str, EventScore]:
    """Return heuristics by name, fitted to the training events `train`.

    `known_t` says when the label of each event became known. What no column allows is left out.
    """
    assert stream.labels is not None
    examples = NodeLabels(stream.src[train], stream.t[train], stream.labels[train])
    majority = Majority(examples, classes=classes)
    found: dict[str, EventScore] = {
        "majority": lambda rows: majority.score(stream.src[rows], stream.t[rows])
    }
    labelled = (stream.labels >= 0) & (stream.labels < classes)  # others become known too late
    for name, ends in (("source", stream.src), ("destination", stream.dst)):
        known = NodeLabels(ends[labelled], known_t[labelled], stream.labels[labelled])
        last = LastLabel(known, examples, classes=classes)
        found[f"{name}-last-label"] = _asking(last, ends, stream.t)
    names, numbers = own_numbers(stream)
    label = stream.labels[train]
    if len(np.unique(label)) > 1:
        if names:
            best = _best_column(numbers[train], label)
            found[f"{names[best]}-alone"] = _alone(numbers[:, best], train, label, classes)
        if names or stream.categories is not None:
            found["gradient-boosting"] = _boosting(stream, numbers, train, label, classes)
    return found


def _asking(last: LastLabel, ends: IntArray, t: IntArray) -> EventScore:
    return lambda rows: last.score(ends[rows], t[rows])


def _logarithms(values: FloatArray) -> FloatArray:
    logarithms: FloatArray = np.nan_to_num(np.sign(values) * np.log1p(np.abs(values)))
    return logarithms


def _best_column(numbers: FloatArray, label: IntArray) -> int:
    """Return the column whose logarithms differ most between classes."""
    from sklearn.feature_selection import f_classif

    with np.errstate(all="ignore"):  # a constant column differs nowhere
        found, _ = f_classif(_logarithms(numbers), label)
    return int(np.nanargmax(np.nan_to_num(found, posinf=np.finfo(np.float64).max)))


def _alone(values: FloatArray, train: IntArray, label: IntArray, classes: int) -> EventScore:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    read = _logarithms(values)[:, None]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(read[train], label)
    return _predicting(model, read, classes)


def _boosting(
    stream: EventStream, numbers: FloatArray, train: IntArray, label: IntArray, classes: int
) -> EventScore:
    from sklearn.ensemble import HistGradientBoostingClassifier

    words = [] if stream.categories is None else list(stream.categories.T)
    columns = [*numbers.T, *(_frequent(codes, train) for codes in words)]
    read = np.column_stack(columns)
    model = HistGradientBoostingClassifier(
        categorical_features=[k >= numbers.shape[1] for k in range(len(columns))],
        # By default it holds rows back where there are many, of each class one or more.
        early_stopping="auto" if np.unique(label, return_counts=True)[1].min() > 1 else False,
        random_state=0,
    )
    return _predicting(model.fit(read[train], label), read, classes)


def _frequent(codes: IntArray, train: IntArray) -> FloatArray:
    """Return the ranks of words by their number of training events; NaN for rare words or none."""
    seen = codes[train]
    count = np.bincount(seen[seen >= 0], minlength=int(codes.max()) + 1 if len(codes) else 0)
    order = np.argsort(-count, kind="stable")[:_CATEGORIES]
    rank = np.full(len(count) + 1, np.nan)
    rank[order] = np.where(count[order] > 0, np.arange(len(order)), np.nan)
    return rank[codes]


def _predicting(model: Any, read: FloatArray, classes: int) -> EventScore:
    def score(rows: IntArray) -> FloatArray:
        result = np.zeros((len(rows), classes))
        if len(rows):
            result[:, model.classes_] = model.predict_proba(read[rows])
        return result

    return score
