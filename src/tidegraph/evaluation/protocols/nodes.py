"""Classes of nodes at times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError
from tidegraph.evaluation.heuristics import node_heuristics
from tidegraph.evaluation.protocols.classes import PARTS, RowScore, class_count, evaluate_classes
from tidegraph.evaluation.results import Result
from tidegraph.events.moments import time_numbers
from tidegraph.events.stream import EventStream, NodeLabels

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NodeScore = Callable[[IntArray, IntArray], ArrayLike]  # node, t -> [B] or [B, classes]


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
    classes = class_count(examples.label, examples.part, parts)
    assert examples.part is not None
    node, t = examples.node, examples.t
    train = _where(examples, examples.part == PARTS["train"])
    by_node: dict[str, NodeScore] = {} if score is None else {model: score}
    for heuristic in node_heuristics(stream, train, _known(examples, known_at), classes=classes):
        by_node[heuristic.name] = heuristic.score

    def of_rows(scorer: NodeScore) -> RowScore:
        return lambda rows: scorer(node[rows], t[rows])

    return evaluate_classes(
        "nodes",
        stream,
        examples.label,
        examples.part,
        {name: of_rows(scorer) for name, scorer in by_node.items()},
        model=None if score is None else model,
        parts=parts,
        split_name=split_name,
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
