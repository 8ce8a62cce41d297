"""The true destination of each test event among others, as TGB evaluates."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError
from tidegraph.evaluation import metrics
from tidegraph.evaluation.negatives import GivenNegatives
from tidegraph.evaluation.protocols import scoring
from tidegraph.evaluation.protocols.scoring import HeuristicFactory, PairScore
from tidegraph.evaluation.results import Result, ResultBuilder, Row
from tidegraph.evaluation.splits import Split
from tidegraph.events.names import node_numbers
from tidegraph.events.stream import EventStream

__all__ = ["evaluate_ranking", "tgb_evaluate"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def evaluate_ranking(
    score: PairScore | None,
    stream: EventStream,
    split: Split,
    *,
    negatives: ArrayLike | None = None,
    part: str = "test",
    sample: int | None = None,
    seed: int = 0,
    batch_size: int = 200,
    heuristics: HeuristicFactory | None = None,
    model: str = "model",
    training_negatives: str | None = None,
) -> Result:
    """Rank each true destination among others as TGB does: MRR and hits, a tie counts half.

    The others are `negatives` [events of the part, K] (`given`), or every destination of the
    stream (`all-dst`) except those that the same source reaches at the same time. With `sample`,
    only that many events, drawn by `seed`, are ranked. Heuristics know what they know in
    `evaluate_link`.
    """
    scoring.reject_removals(stream)
    positions = split.part(part)
    given = None if negatives is None else node_numbers(negatives)
    if given is not None and (given.ndim != 2 or len(given) != len(positions)):
        raise EvaluationError(
            f"negatives have shape {given.shape}; {part} has {len(positions)} events, "
            "each of which needs a row"
        )
    if len(positions) == 0:
        raise EvaluationError(f"{part} is empty; there is nothing to rank")
    own = None if score is None else model
    builder = ResultBuilder("ranking", stream, own, "mrr", training_negatives)
    chosen = np.arange(len(positions))
    if sample is not None and sample < len(positions):
        generator = np.random.default_rng(seed)
        chosen = np.sort(generator.choice(len(positions), size=sample, replace=False))
    destinations = np.unique(stream.dst)
    reached = _reached(stream) if given is None else None
    sampler = "all-dst" if given is None else GivenNegatives.name
    width = 1 + (len(destinations) if given is None else given.shape[1])
    at_once = max(1, scoring.PAIRS_AT_ONCE // width)

    def ranked(score: PairScore, batch: IntArray) -> FloatArray:
        return np.concatenate(
            [ranked_at_once(score, rows) for rows in scoring.batches_of(batch, at_once)]
        )

    def ranked_at_once(score: PairScore, batch: IntArray) -> FloatArray:
        src, dst, t = scoring.columns(stream, positions[batch])
        others = np.tile(destinations, (len(batch), 1)) if given is None else given[batch]
        candidates = np.concatenate([dst[:, None], others], axis=1)  # [B, width]
        flat = scoring.ask(score, np.repeat(src, width), candidates.ravel(), np.repeat(t, width))
        table = flat.reshape(candidates.shape)
        true = None if reached is None else reached(src, t, others)
        return metrics.ranks(table[:, 0], table[:, 1:], without=true)

    def add(scorer: str, rank: FloatArray, begun: float) -> None:
        values = {"mrr": metrics.mrr(rank)}
        values |= {f"hits@{k}": metrics.hits_at(rank, k) for k in (1, 3, 10)}
        elapsed_s = time.perf_counter() - begun
        builder.add(Row(part, sampler, scorer, values, len(rank), None, elapsed_s))

    make = heuristics or scoring.heuristics_for(stream, split)
    if score is not None:
        begun = time.perf_counter()
        add(model, ranked(score, chosen), begun)
    # Batches are those of the whole part, so that a sample meets the same memory as the whole.
    batches = scoring.batches_of(np.arange(len(positions)), batch_size)
    for heuristic in make():
        begun = time.perf_counter()
        shown = scoring.with_memory(
            heuristic, stream, split, [positions[batch] for batch in batches]
        )
        found = []
        for batch, _ in zip(batches, shown, strict=True):
            asked = batch[np.isin(batch, chosen)]
            if len(asked):
                found.append(ranked(heuristic.score, asked))
        add(heuristic.name, np.concatenate(found), begun)
    for name, of_event in scoring.per_event_scores(make(), stream).items():
        begun = time.perf_counter()
        add(name, ranked(of_event, chosen), begun)
    return builder.result(split, {"batch_size": batch_size, "sample": sample, "seed": seed})


def _reached(
    stream: EventStream,
) -> Callable[[IntArray, IntArray, IntArray], NDArray[np.bool_]]:
    """Return a test of which candidates [B, K] a source [B] truly reaches at a time [B]."""
    times = np.unique(stream.t)
    # One number per (source, time) that occurs, so that a triple fits into 64 bits.
    events = stream.src * len(times) + np.searchsorted(times, stream.t)
    moments, number = np.unique(events, return_inverse=True)
    triples = np.unique(number.reshape(-1) * stream.nodes + stream.dst)

    def true(src: IntArray, t: IntArray, candidates: IntArray) -> NDArray[np.bool_]:
        moment = np.searchsorted(moments, src * len(times) + np.searchsorted(times, t))
        wanted = moment[:, None] * stream.nodes + candidates
        place = np.minimum(np.searchsorted(triples, wanted), len(triples) - 1)
        return np.asarray(triples[place] == wanted)

    return true


def tgb_evaluate(
    positive: ArrayLike, negatives: ArrayLike, *, data_set: str = "tgbl-wiki"
) -> dict[str, float | str]:
    """Return the MRR of scores [B] against [B, K] by TGB's evaluator, or ours if it is missing.

    Both rank by (optimistic + pessimistic) / 2 + 1. `evaluator` says which of them was used.
    """
    rank = metrics.ranks(positive, negatives)
    try:
        from tgb.linkproppred.evaluate import Evaluator
    except ImportError:
        return {"mrr": metrics.mrr(rank), "evaluator": "tidegraph"}
    answer = Evaluator(name=data_set).eval(
        {
            "y_pred_pos": np.asarray(positive, dtype=np.float64),
            "y_pred_neg": np.asarray(negatives, dtype=np.float64),
            "eval_metric": ["mrr"],
        }
    )
    return {"mrr": float(np.mean(answer["mrr"])), "evaluator": "py-tgb"}
