"""Classes of nodes at times."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.evaluation import metrics
from tidegraph.evaluation.heuristics import node_heuristics
from tidegraph.evaluation.results import Result, ResultBuilder, Row
from tidegraph.events.moments import time_numbers
from tidegraph.events.stream import EventStream, NodeLabels

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NodeScore = Callable[[IntArray, IntArray], ArrayLike]  # node, t -> [B] or [B, classes]

_PARTS = {"train": 0, "validation": 1, "test": 2}


def evaluate_nodes(
    score: NodeScore | None,
    stream: EventStream,
    examples: NodeLabels,
    *,
    known_at: ArrayLike | NodeLabels | None = None,
    parts: Sequence[str] = ("validation", "test"),
    split_name: str = "time",
    model: str = "model",
) -> Result:
    """Evaluate classes of nodes at times: AUC and AP if there are two classes, micro-F1 always.

    `score(node, t)` returns [B], the score of class 1, which is predicted above 0.5, or
    [B, classes]. `examples.part` divides the examples. `known_at` says when each label became
    known, for the heuristic that repeats the last one, or gives the labels with those times; by
    default each is known at its own time. AUC and AP are over the whole part, and undefined (nan,
    with a warning) if only one class occurs.
    """
    if examples.part is None:
        raise EvaluationError(
            "the examples are not divided; give part: 0 train, 1 validation, 2 test"
        )
    unknown = [part for part in parts if part not in _PARTS]
    if unknown:
        raise ParameterError(f"no part is called {unknown[0]!r}; give {', '.join(_PARTS)}")
    classes = int(examples.label.max()) + 1 if len(examples.label) else 0
    if classes < 2 or examples.label.min() < 0:
        raise EvaluationError("labels must be classes from 0 on, at least two; see NodeLabels")
    headline = "auc" if classes == 2 else "micro-f1"
    builder = ResultBuilder("nodes", stream, None if score is None else model, headline)
    known = _known(examples, known_at)
    train = _where(examples, examples.part == _PARTS["train"])
    if len(train.label) == 0:
        raise EvaluationError("no example is for training (part 0); the heuristics need some")
    scorers: dict[str, NodeScore] = {} if score is None else {model: score}
    for heuristic in node_heuristics(stream, train, known, classes=classes):
        scorers[heuristic.name] = heuristic.score
    for part in parts:
        asked = _where(examples, examples.part == _PARTS[part])
        if len(asked.label) == 0:
            builder.warn(f"{part} is empty and was left out")
            continue
        one_class = len(np.unique(asked.label)) < 2
        if classes == 2 and one_class:
            builder.warn(f"only one class occurs in {part}: AUC and AP are undefined there")
        for name, scorer in scorers.items():
            begun = time.perf_counter()
            scores = np.asarray(scorer(asked.node, asked.t), dtype=np.float64)
            elapsed_s = time.perf_counter() - begun
            values = _metrics(scores, asked.label, classes, name, defined=not one_class)
            builder.add(Row(part, "none", name, values, len(asked.label), None, elapsed_s))
    sizes = {part: int((examples.part == number).sum()) for part, number in _PARTS.items()}
    return builder.result(
        {"name": split_name, "sizes": sizes, "parameters": {}}, {"classes": classes}
    )


def _known(examples: NodeLabels, known_at: ArrayLike | NodeLabels | None) -> NodeLabels:
    if isinstance(known_at, NodeLabels):
        return known_at
    known_t = examples.t if known_at is None else time_numbers(known_at)
    if known_t.shape != examples.t.shape:
        raise EvaluationError(
            f"known_at has shape {known_t.shape}; {examples.t.shape} is needed, a time per example"
        )
    return NodeLabels(examples.node, known_t, examples.label)


def _where(labels: NodeLabels, mask: NDArray[np.bool_]) -> NodeLabels:
    return NodeLabels(labels.node[mask], labels.t[mask], labels.label[mask])


def _metrics(
    scores: FloatArray, labels: IntArray, classes: int, name: str, *, defined: bool
) -> dict[str, float]:
    if scores.shape not in ((len(labels),), (len(labels), classes)):
        raise EvaluationError(
            f"{name} returned scores of shape {scores.shape} for {len(labels)} examples; "
            f"return [{len(labels)}] or [{len(labels)}, {classes}]"
        )
    if not np.isfinite(scores).all():
        raise EvaluationError(f"{name} returned scores that are not finite numbers")
    if scores.ndim == 1 and classes != 2:
        raise EvaluationError(
            f"{name} returned one score per example, but there are {classes} classes"
        )
    predicted = (scores > 0.5).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
    values = {"micro-f1": metrics.micro_f1(labels, predicted)}
    if classes == 2:
        one = scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]
        values["auc"] = metrics.roc_auc(labels, one) if defined else math.nan
        values["ap"] = metrics.average_precision(labels, one) if defined else math.nan
    return values
