"""How models and heuristics are asked about pairs: what the protocols for links share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.core.progress import Progress, silent
from tidegraph.evaluation.heuristics import Heuristic, link_heuristics
from tidegraph.evaluation.memory import Asked, Memory
from tidegraph.evaluation.splits import Split
from tidegraph.evaluation.verdicts import PUBLISHED
from tidegraph.events.batch import Op
from tidegraph.events.stream import EventStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# src, dst, t -> [B] with the knowledge `event`; src, dst, t, as_of -> [B] with `batch`
PairScore = Callable[..., ArrayLike]
HeuristicFactory = Callable[[], Sequence[Heuristic]]

BATCH_SIZE = 200  # events, as published
FIRST = "first_"  # before the name of a part: its first meetings
# Scorers answer for any time, so that they can be asked about many batches at once.
PAIRS_AT_ONCE = 1 << 16


def reject_removals(stream: EventStream) -> None:
    """Raise EvaluationError unless every event adds an edge."""
    if stream.op is not None and (stream.op != Op.ADD).any():
        raise EvaluationError(
            "the stream removes or sets edges, and only added edges can be predicted; "
            "evaluate on stream.where(stream.op == Op.ADD)"
        )


def slices(length: int, size: int) -> Iterator[slice]:
    """Yield pieces of some rows; the last one may be smaller."""
    for first in range(0, length, size):
        yield slice(first, min(first + size, length))


def begin_of_batch(values: IntArray, size: int) -> IntArray:
    """Return for each of the values, in batches of `size`, the first one of its batch."""
    if size < 1:
        raise ParameterError(f"batch_size is {size}; it must be at least 1")
    return values[np.arange(len(values)) // size * size]


def known_before(t: IntArray, knowledge: str, batch_size: int) -> IntArray:
    """Return the times before which everything is known when events at `t` are asked about.

    That is the time of the event itself, or of the first event of its batch. Either way what else
    happens at that time is unknown: the order of events at one time means nothing.
    """
    if knowledge not in ("event", "batch"):
        raise ParameterError(f"knowledge is {knowledge!r}; give event or batch")
    return t if knowledge == "event" else begin_of_batch(t, batch_size)


def columns(stream: EventStream, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return sources, destinations and times of some events."""
    return stream.src[rows], stream.dst[rows], stream.t[rows]


def without_features(stream: EventStream) -> EventStream:
    """Return sources, destinations and times alone, parts of which are cheap to take."""
    return EventStream(stream.src, stream.dst, stream.t, stream.nodes)


def ask(
    score: PairScore,
    src: IntArray,
    dst: IntArray,
    *times: IntArray,
    report: Callable[[int], None] = lambda pairs: None,
) -> FloatArray:
    """Return one finite score per pair; raise EvaluationError if `score` gives anything else.

    times: those of the pairs and, if these differ, those before which events are known.
    `report` is called with the number of pairs scored since the last call.
    """
    found = []
    for rows in slices(len(src), PAIRS_AT_ONCE):
        pairs = src[rows], dst[rows], *(t[rows] for t in times)
        found.append(_checked(score(*pairs), *pairs[:3]))
        report(len(found[-1]))
    return np.concatenate(found)


def _checked(answer: ArrayLike, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
    scores = np.asarray(answer, dtype=np.float64)
    if scores.shape != src.shape:
        raise EvaluationError(
            f"scores of shape {scores.shape} were returned for {len(src)} pairs; "
            "return one number per pair"
        )
    if not np.isfinite(scores).all():
        pair = int(np.argmin(np.isfinite(scores)))
        raise EvaluationError(
            f"the score of ({src[pair]}, {dst[pair]}) at t={t[pair]} is {scores[pair]}; "
            "scores must be finite numbers"
        )
    return scores


def heuristics_for(stream: EventStream, split: Split) -> HeuristicFactory:
    """Return the default heuristics.

    Their memories fade within a thirtieth of the training time: a day if that is a month.
    """
    scale = max(1.0, float(np.ptp(stream.t[split.train])) / 30)
    return partial(link_heuristics, scale)


class Work:
    """How much of an evaluation is done, in units of its own."""

    def __init__(self, report: Progress | None, total: int) -> None:
        self._report, self._total, self._done = report or silent, total, 0

    def add(self, units: int, what: str) -> None:
        """Report that more is done."""
        self._done += units
        self._report(self._done, self._total, what)


class Memories:
    """What heuristics may know: all events before a time or, as published, before a batch."""

    def __init__(self, stream: EventStream, split: Split) -> None:
        visible = np.zeros(len(stream), dtype=bool)
        for rows in (split.train, split.validation, split.test):
            visible[rows] = True
        events = without_features(stream)
        self._all = Memory(events)
        self._of_split = self._all if visible.all() else Memory(events.where(visible))
        self._visible = np.concatenate([[0], np.cumsum(visible)])  # among the first k events

    def before(self, src: IntArray, dst: IntArray, t: IntArray, as_of: IntArray) -> Asked:
        """Ask about time `t` from what happened strictly before `as_of`."""
        return self._all.ask(src, dst, t, np.searchsorted(self._all.events.t, as_of))

    def as_published(self, src: IntArray, dst: IntArray, t: IntArray, row: IntArray) -> Asked:
        """Ask what is known before the event in `row`, the first one of the batch.

        These are the events of training, validation and test in the order of the stream, those of
        the same time included, without those hidden from training.
        """
        return self._of_split.ask(src, dst, t, self._visible[row])


class Panel:
    """Fresh heuristics, asked together so that they share what they look up.

    names: as results call them; those that are also scored as published come last, with @published.
    elapsed_s: the seconds each has spent. What they share counts for the first that needs it.
    """

    def __init__(self, make: HeuristicFactory, memories: Memories) -> None:
        self._memories = memories
        self._equal = make()
        self._published = [one for one in make() if one.published]
        self.names = [one.name for one in self._equal]
        self.names += [one.name + PUBLISHED for one in self._published]
        self.elapsed_s = [0.0] * len(self.names)

    def scores(
        self, src: IntArray, dst: IntArray, t: IntArray, as_of: IntArray, row: IntArray
    ) -> Iterator[FloatArray]:
        """Yield the scores of each heuristic; `row[b]` is the first event of the batch.

        Everything before `as_of[b]` is known. Batches have to come in the order of time.
        """
        asked = self._memories.before(src, dst, t, as_of)
        yield from self._answers(self._equal, asked, first=0)
        if self._published:
            asked = self._memories.as_published(src, dst, t, row)
            yield from self._answers(self._published, asked, first=len(self._equal))

    def _answers(
        self, heuristics: Sequence[Heuristic], asked: Asked, *, first: int
    ) -> Iterator[FloatArray]:
        for number, heuristic in enumerate(heuristics, first):
            begun = time.perf_counter()
            scores = _checked(heuristic.score(asked), asked.src, asked.dst, asked.t)
            self.elapsed_s[number] += time.perf_counter() - begun
            yield scores
