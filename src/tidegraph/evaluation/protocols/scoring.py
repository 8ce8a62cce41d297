"""How models and heuristics are asked about pairs: what the protocols for links share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.evaluation.heuristics import Heuristic, link_heuristics
from tidegraph.evaluation.splits import Split
from tidegraph.events.batch import Op
from tidegraph.events.stream import EventStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
PairScore = Callable[[IntArray, IntArray, IntArray], ArrayLike]  # src, dst, t -> [B]
HeuristicFactory = Callable[[], Sequence[Heuristic]]

# A model is a function of its arguments, so it can score many batches at once.
PAIRS_AT_ONCE = 1 << 16


def reject_removals(stream: EventStream) -> None:
    """Raise EvaluationError unless every event adds an edge."""
    if stream.op is not None and (stream.op != Op.ADD).any():
        raise EvaluationError(
            "the stream removes or sets edges, and only added edges can be predicted; "
            "evaluate on stream.where(stream.op == Op.ADD)"
        )


def batches_of(positions: IntArray, size: int) -> list[IntArray]:
    """Divide positions into batches; the last one may be smaller."""
    if size < 1:
        raise ParameterError(f"batch_size is {size}; it must be at least 1")
    return [positions[first : first + size] for first in range(0, len(positions), size)]


def columns(stream: EventStream, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return sources, destinations and times of some events."""
    return stream.src[rows], stream.dst[rows], stream.t[rows]


def without_features(stream: EventStream) -> EventStream:
    """Return sources, destinations and times alone, parts of which are cheap to take."""
    return EventStream(stream.src, stream.dst, stream.t, stream.nodes)


def ask(score: PairScore, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
    """Return one finite score per pair; raise EvaluationError if `score` gives anything else."""
    found = []
    for first in range(0, len(src), PAIRS_AT_ONCE):
        rows = slice(first, first + PAIRS_AT_ONCE)
        answer = np.asarray(score(src[rows], dst[rows], t[rows]), dtype=np.float64)
        if answer.shape != src[rows].shape:
            raise EvaluationError(
                f"scores of shape {answer.shape} were returned for {len(src[rows])} pairs; "
                "return one number per pair"
            )
        if not np.isfinite(answer).all():
            pair = int(np.argmin(np.isfinite(answer)))
            raise EvaluationError(
                f"the score of ({src[rows][pair]}, {dst[rows][pair]}) at t={t[rows][pair]} is "
                f"{answer[pair]}; scores must be finite numbers"
            )
        found.append(answer)
    return np.concatenate(found)


def heuristics_for(stream: EventStream, split: Split) -> HeuristicFactory:
    """Return the default heuristics.

    Their memories fade within a thirtieth of the training time: a day if that is a month.
    """
    scale = max(1.0, float(np.ptp(stream.t[split.train])) / 30)
    return partial(link_heuristics, scale)


def per_event_scores(heuristics: Sequence[Heuristic], stream: EventStream) -> dict[str, PairScore]:
    """Return, by name, those that can score each event from all events before it."""
    events = without_features(stream)
    scores = {f"{one.name}@event": one.per_event(events) for one in heuristics}
    return {name: score for name, score in scores.items() if score is not None}


def with_memory(
    heuristic: Heuristic, stream: EventStream, split: Split, batches: Sequence[IntArray]
) -> Iterator[IntArray]:
    """Yield each batch after showing the heuristic every event of the split before it."""
    visible = np.zeros(len(stream), dtype=bool)
    for rows in (split.train, split.validation, split.test):
        visible[rows] = True
    events = without_features(stream)
    done = 0
    for batch in batches:
        first = int(batch[0])
        heuristic.update(events[done:first].where(visible[done:first]))
        done = first
        yield batch
