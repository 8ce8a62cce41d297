"""From scores to the curves that a report draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.report.observations import Observations

__all__ = [
    "Judged",
    "average_precision",
    "calibrated",
    "judged",
    "over_time",
    "precision_recall",
    "roc",
    "roc_area",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TIME_BINS = 24
_PER_TIME_BIN = 100  # examples, at least
_CALIBRATION_BINS = 10
_PER_CALIBRATION_BIN = 10  # examples, at least: fewer say nothing
_RARE = 0.1  # below this share of ones, probabilities are divided by rank and not by size


@dataclass(frozen=True, eq=False)
class Judged:
    """Questions with the answers 0 and 1, what was said of them, and when they were asked."""

    name: str
    label: IntArray
    score: FloatArray
    t: IntArray


def judged(observations: Observations) -> list[Judged]:
    """The questions of a run, one list per kind of false pair; classes against the others."""
    about, arrays = observations.about, observations.arrays
    t = arrays["score.t"]
    if about["task"] == "link":
        found = []
        for sampler, words in (
            ("random-dst", "against random destinations"),
            ("historical", "against pairs of the past"),
        ):
            scores = observations.scores(sampler)
            if scores is not None:
                found.append(Judged(words, *scores, np.tile(t, 2)))
        return found
    classes, label = arrays["score.classes"], arrays["score.label"]
    probability = arrays["score.probability"].astype(np.float64)
    if len(classes) == 2:
        is_second = (label == classes[1]).astype(np.int64)
        return [Judged(f"class {classes[1]}", is_second, probability[:, 1], t)]
    pooled = (label[:, None] == classes[None, :]).astype(np.int64)
    times = np.repeat(t, len(classes))
    return [Judged("each class against the rest", pooled.ravel(), probability.ravel(), times)]


def _counts(label: IntArray, score: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ones and zeros at or above each distinct score, the highest first."""
    order = np.argsort(-score, kind="stable")
    last = np.append(np.flatnonzero(np.diff(score[order])), len(order) - 1)  # ties enter together
    ones = np.cumsum(label[order])[last].astype(np.float64)
    return ones, last + 1 - ones


def roc(label: IntArray, score: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The share of zeros and of ones at or above every threshold, from (0, 0) to (1, 1)."""
    ones, zeros = _counts(label, score)
    return np.append(0.0, zeros / max(zeros[-1], 1)), np.append(0.0, ones / max(ones[-1], 1))


def roc_area(label: IntArray, score: FloatArray) -> float:
    """The area under `roc`."""
    x, y = roc(label, score)
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


def precision_recall(label: IntArray, score: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The share of ones found, and the share of ones among what is at or above each threshold."""
    ones, zeros = _counts(label, score)
    return ones / max(ones[-1], 1), ones / (ones + zeros)


def average_precision(label: IntArray, score: FloatArray) -> float:
    """The precision, averaged over the ones found."""
    recall, precision = precision_recall(label, score)
    return float(np.sum(np.diff(np.append(0.0, recall)) * precision))


def over_time(
    questions: Judged, measure: Callable[[IntArray, FloatArray], float], *, least: int = 1
) -> tuple[IntArray, FloatArray, IntArray]:
    """When, the measure, and how many questions, in pieces of the time with equally many questions.

    There are `least` of the rarer answer per piece on average, and a piece in which one of the two
    is missing has no value. Nothing comes back where there are too few questions for two pieces.
    """
    ones = int(questions.label.sum())
    rarer = min(ones, len(questions.label) - ones)
    pieces = min(_TIME_BINS, len(questions.t) // _PER_TIME_BIN, rarer // least)
    if pieces < 2:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
    order = np.argsort(questions.t, kind="stable")
    when, value, count = [], [], []
    for rows in np.array_split(order, pieces):
        ones = int(questions.label[rows].sum())
        enough = 0 < ones < len(rows)
        when.append(int(np.median(questions.t[rows])))
        value.append(measure(questions.label[rows], questions.score[rows]) if enough else np.nan)
        count.append(len(rows))
    return np.array(when), np.array(value), np.array(count)


def calibrated(observations: Observations) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Per group of questions the mean probability said, how often it came true, and its weight.

    Links are weighed as in training, since probabilities are about that mixture; of several
    classes the likeliest is judged.
    """
    about, arrays = observations.about, observations.arrays
    if about["task"] == "link":
        kinds: list[tuple[int, Any, float]] = [(1, arrays["score.true"], 1.0)]
        for sampler, each in about["training_weights"].items():
            if each > 0 and f"score.{sampler}" in arrays:
                kinds.append((0, arrays[f"score.{sampler}"], each))
        label = np.concatenate([np.full(len(scores), truth) for truth, scores, _ in kinds])
        weight = np.concatenate([np.full(len(scores), each) for _, scores, each in kinds])
        logit = np.concatenate([scores for _, scores, _ in kinds]).astype(np.float64)
        said = 1 / (1 + np.exp(-np.clip(logit, -60, 60)))
    else:
        probability = arrays["score.probability"].astype(np.float64)
        classes, truth = arrays["score.classes"], arrays["score.label"]
        if len(classes) == 2:
            said, label = probability[:, 1], (truth == classes[1]).astype(np.int64)
        else:
            said = probability.max(axis=1)
            label = (classes[probability.argmax(axis=1)] == truth).astype(np.int64)
        weight = np.ones(len(said))
    if not len(said):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    if np.average(label, weights=weight) < _RARE:
        rank = np.empty(len(said))
        rank[np.argsort(said, kind="stable")] = np.arange(len(said)) / len(said)
        place = (rank * _CALIBRATION_BINS).astype(np.int64)
    else:
        place = np.minimum((said * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1)
    enough = np.bincount(place, minlength=_CALIBRATION_BINS) >= _PER_CALIBRATION_BIN
    total = np.bincount(place, weight, _CALIBRATION_BINS)[enough].astype(np.float64)
    mean = np.bincount(place, weight * said, _CALIBRATION_BINS)[enough] / total
    came = np.bincount(place, weight * label, _CALIBRATION_BINS)[enough] / total
    return mean, came, total
