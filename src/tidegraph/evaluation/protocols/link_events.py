"""Test events against sampled negatives, as TGN evaluates."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import ParameterError
from tidegraph.evaluation import metrics
from tidegraph.evaluation.heuristics import Heuristic
from tidegraph.evaluation.negatives import GivenNegatives, NegativeSampler, negative_sampler
from tidegraph.evaluation.protocols import scoring
from tidegraph.evaluation.protocols.scoring import HeuristicFactory, PairScore
from tidegraph.evaluation.results import Result, ResultBuilder, Row
from tidegraph.evaluation.splits import Split
from tidegraph.events.stream import EventStream

__all__ = ["SEEDS", "evaluate_link"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_Negatives = Mapping[str, Sequence[tuple[IntArray, IntArray]]]  # [sampler]: pairs of each batch
_Scores = tuple[FloatArray, dict[str, FloatArray], float]  # positives, negatives, seconds

SEEDS = {"validation": 0, "new_validation": 1, "test": 2, "new_test": 3}


def evaluate_link(
    score: PairScore | None,
    stream: EventStream,
    split: Split,
    *,
    samplers: Sequence[str | GivenNegatives] = ("random-dst",),
    parts: Sequence[str] = ("test", "new_test"),
    batch_size: int = 200,
    seeds: Mapping[str, int] = SEEDS,
    heuristics: HeuristicFactory | None = None,
    model: str = "model",
    training_negatives: str | None = None,
) -> Result:
    """Evaluate each true pair against one false pair: AP and AUC, per batch and global, as TGN.

    `score(src, dst, t)` returns a number per pair; with None only the heuristics are evaluated. A
    negative has the time of its positive. Negatives of `validation` and `test` are drawn from the
    whole stream, those of the new-node parts from their own events; `inductive` excludes edges
    that occurred before the part began. Heuristics know the events of training, validation and
    test that precede the batch or, as `<name>@event`, every event of the stream that precedes the
    scored one, including those of nodes held out of training. `heuristics` returns fresh ones,
    or none.
    """
    unseeded = [part for part in parts if part not in seeds]
    if unseeded:
        raise ParameterError(f"{unseeded[0]} has no seed; seeds are given for {', '.join(seeds)}")
    scoring.reject_removals(stream)
    own = None if score is None else model
    builder = ResultBuilder("link", stream, own, "ap", training_negatives)
    make = heuristics or scoring.heuristics_for(stream, split)
    per_event = scoring.per_event_scores(make(), stream)
    for part in parts:
        positions = split.part(part)
        if len(positions) == 0:
            builder.warn(f"{part} is empty and was left out")
            continue
        batches = scoring.batches_of(positions, batch_size)
        drawn: dict[str, list[tuple[IntArray, IntArray]]] = {}
        for wanted in samplers:
            sampler = _sampler(wanted, stream, split, part, seeds)
            drawn[sampler.name] = [
                sampler.sample(*scoring.columns(stream, batch)) for batch in batches
            ]
        scores = [] if score is None else [(model, _scores_of(score, stream, batches, drawn))]
        for heuristic in make():
            of_batches = _scores_by_batch(heuristic, stream, split, batches, drawn)
            scores.append((heuristic.name, of_batches))
        for name, of_event in per_event.items():
            scores.append((name, _scores_of(of_event, stream, batches, drawn)))
        for name in drawn:
            seed = None if name == GivenNegatives.name else seeds[part]
            for scorer, (positive, negative, elapsed_s) in scores:
                values = metrics.link_metrics(positive, negative[name], batch_size=batch_size)
                builder.add(Row(part, name, scorer, values, len(positive), seed, elapsed_s))
    return builder.result(split, {"batch_size": batch_size, "seeds": dict(seeds)})


def _scores_of(
    score: PairScore, stream: EventStream, batches: Sequence[IntArray], drawn: _Negatives
) -> _Scores:
    """Ask a scorer that answers for any time about all batches together."""
    begun = time.perf_counter()
    src, dst, t = scoring.columns(stream, np.concatenate(batches))
    positive = scoring.ask(score, src, dst, t)
    negative = {}
    for name, pairs in drawn.items():
        sources, destinations = zip(*pairs, strict=True)
        negative[name] = scoring.ask(
            score, np.concatenate(sources), np.concatenate(destinations), t
        )
    return positive, negative, time.perf_counter() - begun


def _scores_by_batch(
    heuristic: Heuristic,
    stream: EventStream,
    split: Split,
    batches: Sequence[IntArray],
    drawn: _Negatives,
) -> _Scores:
    """Ask a heuristic about each batch before it sees it."""
    begun = time.perf_counter()
    positive: list[FloatArray] = []
    negative: dict[str, list[FloatArray]] = {name: [] for name in drawn}
    for number, batch in enumerate(scoring.with_memory(heuristic, stream, split, batches)):
        src, dst, t = scoring.columns(stream, batch)
        positive.append(heuristic.score(src, dst, t))
        for name, pairs in drawn.items():
            negative[name].append(heuristic.score(*pairs[number], t))
    merged = {name: np.concatenate(scores) for name, scores in negative.items()}
    return np.concatenate(positive), merged, time.perf_counter() - begun


def _sampler(
    wanted: str | GivenNegatives,
    stream: EventStream,
    split: Split,
    part: str,
    seeds: Mapping[str, int],
) -> NegativeSampler:
    if isinstance(wanted, GivenNegatives):
        return wanted
    pool = stream
    if part.startswith("new_"):
        inside = np.zeros(len(stream), dtype=bool)
        inside[split.part(part)] = True
        pool = scoring.without_features(stream).where(inside)
    before = split.train if part.endswith("validation") else split.validation
    observed_until = int(stream.t[before[-1]])
    return negative_sampler(wanted, pool, seed=seeds[part], observed_until=observed_until)
