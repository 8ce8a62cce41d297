"""Classes of events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import EvaluationError
from tidegraph.evaluation.event_heuristics import event_heuristics
from tidegraph.evaluation.protocols.classes import PARTS, RowScore, class_count, evaluate_classes
from tidegraph.evaluation.results import Result
from tidegraph.events.stream import EventStream

IntArray = NDArray[np.int64]


def evaluate_events(
    score: RowScore | None,
    stream: EventStream,
    events: IntArray,
    part: NDArray[np.uint8],
    *,
    label_delay: int = 0,
    parts: Sequence[str] = ("validation", "test"),
    split_name: str = "time",
    model: str = "model",
    heuristics: bool = True,
) -> Result:
    """Evaluate classes of events: AP, AUC and precision of class 1, or F1 of several classes.

    `events` are positions of labelled events in the stream, `part` divides them: 0 train, 1
    validation, 2 test. `score(rows)` of such positions returns probabilities, [B] of class 1 or [B,
    classes]. The label of an event is known `label_delay` after it, to events later than that. AP,
    AUC and precisions are over the whole part, and undefined (nan, with a warning) if only one
    class occurs; precision@positives is that among as many events as are positive.
    """
    if stream.labels is None:
        raise EvaluationError("the stream has no labels; read it with label=COLUMN")
    label = stream.labels[events]
    classes = class_count(label, part, parts)
    scorers: dict[str, RowScore] = {} if score is None else {model: score}
    if heuristics:
        train, known_t = events[part == PARTS["train"]], stream.t + label_delay
        scorers |= event_heuristics(stream, train, known_t, classes=classes)

    def of_rows(scorer: RowScore) -> RowScore:
        return lambda rows: scorer(events[rows])

    return evaluate_classes(
        "events",
        stream,
        label,
        part,
        {name: of_rows(scorer) for name, scorer in scorers.items()},
        model=None if score is None else model,
        parts=parts,
        split_name=split_name,
    )
