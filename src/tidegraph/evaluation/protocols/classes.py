"""Scorers of classes compared on labelled examples, whatever these are about."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.core.words import counted
from tidegraph.evaluation import metrics
from tidegraph.evaluation.results import Result, ResultBuilder, Row
from tidegraph.evaluation.verdicts import noise
from tidegraph.events.stream import EventStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
RowScore = Callable[[IntArray], ArrayLike]  # positions of examples -> [B] or [B, classes]

_FEW = 100  # events of a class; differences of some 14 points are then chance
PARTS = {"train": 0, "validation": 1, "test": 2}


def class_count(label: IntArray, part: NDArray[np.uint8] | None, parts: Sequence[str]) -> int:
    """Return one more than the highest class; raise an error unless examples can be evaluated."""
    if part is None:
        raise EvaluationError(
            "the examples are not divided; give part: 0 train, 1 validation, 2 test"
        )
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        raise ParameterError(f"no part is called {unknown[0]!r}; give {', '.join(PARTS)}")
    if len(np.unique(label)) < 2 or label.min() < 0:
        raise EvaluationError("labels must be classes from 0 on, at least two; see NodeLabels")
    if not (part == PARTS["train"]).any():
        raise EvaluationError("no example is for training (part 0); the heuristics need some")
    return int(label.max()) + 1


def evaluate_classes(
    task: str,
    stream: EventStream,
    label: IntArray,
    part: NDArray[np.uint8],
    scorers: Mapping[str, RowScore],
    *,
    model: str | None,
    parts: Sequence[str],
    split_name: str,
) -> Result:
    """Return the metrics of scorers on the parts; `model` is the one that is not a heuristic.

    Results about events have more metrics than those about nodes, and compare by AP, not AUC.
    """
    columns = int(label.max()) + 1  # of scores
    known = np.arange(columns) if stream.vocabulary.labels else np.unique(label)
    label, classes = np.searchsorted(known, label), len(known)  # 1 and 2 are two classes
    by_event = task == "events"
    headline = ("ap" if by_event else "auc") if classes == 2 else "micro-f1"
    builder = ResultBuilder(task, stream, model, headline)
    for name in parts:
        rows = np.flatnonzero(part == PARTS[name])
        if len(rows) == 0:
            builder.warn(f"{name} is empty and was left out")
            continue
        truth = label[rows]
        one_class = len(np.unique(truth)) < 2
        if classes == 2 and one_class:
            builder.warn(f"only one class occurs in {name}: AUC and AP are undefined there")
        rarest = int(np.unique(truth, return_counts=True)[1].min())
        binary = classes == 2 and not one_class
        if (binary or (by_event and not one_class)) and rarest < _FEW:
            points = 100 * noise(0.5, 0.5, rarest)
            builder.warn(
                f"the rarest class has only {counted(rarest, 'example')} in {name}: differences of"
                f" some {points:.0f} points are chance"
            )
        decisive = rarest if binary else None
        for scorer, score in scorers.items():
            begun = time.perf_counter()
            scores = np.asarray(score(rows), dtype=np.float64)
            elapsed_s = time.perf_counter() - begun
            _check(scores, len(rows), columns, classes, scorer)
            scores = scores if scores.ndim == 1 else scores[:, known]
            measured = _event_metrics if by_event else _metrics
            values = measured(scores, truth, classes, defined=not one_class)
            builder.add(Row(name, "none", scorer, values, len(rows), None, elapsed_s, decisive))
    sizes = {name: int((part == number).sum()) for name, number in PARTS.items()}
    return builder.result(
        {"name": split_name, "sizes": sizes, "parameters": {}}, {"classes": classes}
    )


def _check(scores: FloatArray, rows: int, columns: int, classes: int, name: str) -> None:
    if scores.shape not in ((rows,), (rows, columns)):
        raise EvaluationError(
            f"{name} returned scores of shape {scores.shape} for {rows} examples; "
            f"return [{rows}] or [{rows}, {columns}]"
        )
    if not np.isfinite(scores).all():
        raise EvaluationError(f"{name} returned scores that are not finite numbers")
    if scores.ndim == 1 and classes != 2:
        raise EvaluationError(
            f"{name} returned one score per example, but there are {classes} classes"
        )


def _metrics(
    scores: FloatArray, labels: IntArray, classes: int, *, defined: bool
) -> dict[str, float]:
    predicted = (scores > 0.5).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
    values = {"micro-f1": metrics.micro_f1(labels, predicted)}
    if classes == 2:
        one = scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]
        values["auc"] = metrics.roc_auc(labels, one) if defined else math.nan
        values["ap"] = metrics.average_precision(labels, one) if defined else math.nan
    return values


def _event_metrics(
    scores: FloatArray, labels: IntArray, classes: int, *, defined: bool
) -> dict[str, float]:
    probability = scores if scores.ndim == 2 else np.stack([1 - scores, scores], axis=1)
    known = _metrics(scores, labels, classes, defined=defined)
    loss = {"log-loss": metrics.log_loss(labels, probability)}
    if classes > 2:
        predicted = probability.argmax(axis=1)
        return {**known, "macro-f1": metrics.macro_f1(labels, predicted), **loss}
    one, positives = probability[:, 1], int(labels.sum())
    precision = {
        f"precision@{name}": metrics.precision_at(labels, one, k) if defined else math.nan
        for name, k in (("positives", positives), ("100", 100))
    }
    brier = float(np.mean((one - labels) ** 2))
    ranked = {name: known[name] for name in ("ap", "auc")}
    return {**ranked, **precision, "brier": brier, **loss, "micro-f1": known["micro-f1"]}
