"""From scores to the curves that a report draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegraph.evaluation.metrics import Calibration
from tidegraph.evaluation.metrics import calibration as calibration_of
from tidegraph.report.observations import Observations
from tidegraph.report.vocabulary import against

__all__ = ["ScoredExamples", "calibration", "over_time", "precision_recall", "roc", "scored"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TIME_BINS = 24
_PER_TIME_BIN = 100  # examples, at least
_PER_CALIBRATION_BIN = 10  # examples, at least: fewer mean nothing
_RARE = 0.1  # below this share of ones, probabilities are divided by rank and not by size


@dataclass(frozen=True, eq=False)
class ScoredExamples:
    """Examples of the classes 0 and 1 with their scores and times."""

    name: str
    label: IntArray
    score: FloatArray
    t: IntArray

    @property
    def has_both(self) -> bool:
        """Whether both classes occur."""
        return 0 < int(self.label.sum()) < len(self.label)


def scored(observations: Observations) -> list[ScoredExamples]:
    """Return the examples of a run: one list per sampler, or each class against the others."""
    about, arrays = observations.about, observations.arrays
    t = arrays["score.t"]
    if about["task"] == "link":
        true, found = arrays["score.true"], []
        for sampler in ("random-dst", "historical"):
            if (false := arrays.get(f"score.{sampler}")) is not None:
                label = np.repeat([1, 0], [len(true), len(false)])
                score = np.concatenate([true, false]).astype(np.float64)
                found.append(ScoredExamples(against(sampler), label, score, np.tile(t, 2)))
        return found
    classes, label = arrays["score.classes"], arrays["score.label"]
    probability = arrays["score.probability"].astype(np.float64)
    if len(classes) == 2:
        is_second = (label == classes[1]).astype(np.int64)
        return [ScoredExamples(f"class {classes[1]}", is_second, probability[:, 1], t)]
    pooled = (label[:, None] == classes[None, :]).astype(np.int64)
    times = np.repeat(t, len(classes))
    name = "each class against the others"
    return [ScoredExamples(name, pooled.ravel(), probability.ravel(), times)]


def roc(examples: ScoredExamples) -> tuple[FloatArray, FloatArray]:
    """Return the shares of zeros and of ones at or above every threshold, from (0, 0) to (1, 1)."""
    from sklearn.metrics import roc_curve

    zeros, ones, _ = roc_curve(examples.label, examples.score, drop_intermediate=False)
    return zeros, ones


def precision_recall(examples: ScoredExamples) -> tuple[FloatArray, FloatArray]:
    """Return the share of ones found (recall) and the precision at every threshold."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(examples.label, examples.score)
    # The highest threshold first, without the point (0, 1) that scikit-learn adds.
    return recall[-2::-1], precision[-2::-1]


def over_time(
    examples: ScoredExamples, measure: Callable[[IntArray, FloatArray], float], *, least: int = 1
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return times, the measure and the number of examples, in intervals of equally many examples.

    An interval has `least` of the rarer class on average, and no value if it has only one class.
    The arrays are empty if there are too few examples for two intervals.
    """
    ones = int(examples.label.sum())
    rarer = min(ones, len(examples.label) - ones)
    intervals = min(_TIME_BINS, len(examples.t) // _PER_TIME_BIN, rarer // least)
    if intervals < 2:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
    order = np.argsort(examples.t, kind="stable")
    when, value, count = [], [], []
    for rows in np.array_split(order, intervals):
        label, score = examples.label[rows], examples.score[rows]
        when.append(int(np.median(examples.t[rows])))
        value.append(measure(label, score) if 0 < label.sum() < len(rows) else np.nan)
        count.append(len(rows))
    return np.array(when), np.array(value), np.array(count)


def calibration(observations: Observations) -> Calibration | None:
    """Return how often predictions of a probability came true, or None without examples.

    Links are weighted as in training, since probabilities refer to that mixture. Of several
    classes the most probable one counts.
    """
    about, arrays = observations.about, observations.arrays
    if about["task"] == "link":
        kinds = [(1, arrays["score.true"], 1.0)]
        for sampler, each in about["training_weights"].items():
            if each > 0 and f"score.{sampler}" in arrays:
                kinds.append((0, arrays[f"score.{sampler}"], each))
        label = np.concatenate([np.full(len(scores), truth) for truth, scores, _ in kinds])
        weight = np.concatenate([np.full(len(scores), each) for _, scores, each in kinds])
        logit = np.concatenate([scores for _, scores, _ in kinds]).astype(np.float64)
        predicted = 1 / (1 + np.exp(-np.clip(logit, -60, 60)))
    else:
        probability = arrays["score.probability"].astype(np.float64)
        classes, truth = arrays["score.classes"], arrays["score.label"]
        if len(classes) == 2:
            predicted, label = probability[:, 1], (truth == classes[1]).astype(np.int64)
        else:
            predicted = probability.max(axis=1)
            label = (classes[probability.argmax(axis=1)] == truth).astype(np.int64)
        weight = np.ones(len(predicted))
    if not len(predicted):
        return None
    found = calibration_of(
        label,
        predicted,
        weights=weight,
        by_rank=bool(np.average(label, weights=weight) < _RARE),
        least=_PER_CALIBRATION_BIN,
    )
    return found if len(found.weight) else None
