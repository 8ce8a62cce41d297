"""The true destination of each test event among others, as TGB evaluates."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError
from tidegraph.core.progress import Progress
from tidegraph.evaluation import metrics
from tidegraph.evaluation.memory import Meetings
from tidegraph.evaluation.negatives import GivenNegatives
from tidegraph.evaluation.protocols import scoring
from tidegraph.evaluation.protocols.scoring import FIRST, HeuristicFactory, PairScore
from tidegraph.evaluation.results import Result, ResultBuilder, Row
from tidegraph.evaluation.splits import Split
from tidegraph.events.names import node_numbers
from tidegraph.events.stream import EventStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_HITS = (1, 3, 10)


def evaluate_ranking(
    score: PairScore | None,
    stream: EventStream,
    split: Split,
    *,
    negatives: ArrayLike | None = None,
    part: str = "test",
    sample: int | None = None,
    seed: int = 0,
    knowledge: str = "event",
    batch_size: int = scoring.BATCH_SIZE,
    heuristics: HeuristicFactory | None = None,
    model: str = "model",
    training_negatives: str | None = None,
    progress: Progress | None = None,
) -> Result:
    """Rank each true destination among others as TGB does: MRR and hits, a tie counts half.

    Both come with their standard errors over events.
    The others are `negatives` [events of the part, K] (`given`), or every destination of the
    stream (`all-dst`) except those that the same source reaches at the same time. With `sample`,
    only that many events, drawn by `seed`, are ranked. `knowledge` is that of
    `evaluate_link`. First meetings (`first_test` beside `test`) are events whose two nodes have not
    met before, in either direction; there only candidates count that the source has not met by
    then.

    A call of `score` asks about all candidates of an event in adjacent rows, for many events.
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
    scorer = None if score is None else model
    builder = ResultBuilder("ranking", stream, scorer, "mrr", training_negatives, knowledge)
    chosen = np.arange(len(positions))
    if sample is not None and sample < len(positions):
        generator = np.random.default_rng(seed)
        chosen = np.sort(generator.choice(len(positions), size=sample, replace=False))
    destinations = np.unique(stream.dst)
    reached = _reached(stream) if given is None else None
    sampler = "all-dst" if given is None else GivenNegatives.name
    width = len(destinations) if given is None else 1 + given.shape[1]
    # Batches are those of the whole part, so that a sample meets the same memory as the whole.
    row = scoring.begin_of_batch(positions, batch_size)
    known = scoring.known_before(stream.t[positions], knowledge, batch_size)
    make = heuristics or scoring.heuristics_for(stream, split)
    panel = scoring.Panel(make, scoring.Memories(stream, split))
    names = [*([] if score is None else [model]), *panel.names]
    meetings, own_s, tied = Meetings(stream), 0.0, 0
    rank = np.empty((len(names), len(chosen)))
    rank_first = np.full(rank.shape, np.nan)
    work = scoring.Work(progress, len(names) * len(chosen))
    for rows in scoring.slices(len(chosen), max(1, scoring.PAIRS_AT_ONCE // width)):
        asked = chosen[rows]
        src, dst, t = scoring.columns(stream, positions[asked])
        if given is None:
            candidates = np.tile(destinations, (len(asked), 1))  # [B, width]
            place = np.searchsorted(destinations, dst)
        else:
            candidates = np.concatenate([dst[:, None], given[asked]], axis=1)
            place = np.zeros(len(asked), dtype=np.int64)
        without = (
            np.arange(width) == place[:, None] if reached is None else reached(src, t, candidates)
        )
        pairs = np.repeat(src, width), candidates.ravel(), np.repeat(t, width)
        first = ~meetings.before(src, dst, t)
        met = meetings.by(*(column.reshape(-1, width)[first].ravel() for column in pairs))
        or_met = without[first] | met.reshape(-1, width)
        as_of = np.repeat(known[asked], width)
        answers = panel.scores(*pairs, as_of, np.repeat(row[asked], width))
        if score is not None:
            begun = time.perf_counter()
            question = pairs if knowledge == "event" else (*pairs, as_of)
            answers = itertools.chain([scoring.ask(score, *question)], answers)
            own_s += time.perf_counter() - begun
        for number, answer in enumerate(answers):
            table = answer.reshape(candidates.shape)
            own = table[np.arange(len(table)), place]
            rank[number, rows] = metrics.ranks(own, table, without=without)
            if names[number] == scorer:
                at_top = metrics.tied_at_top(table, without)
                tied += int(at_top[np.arange(len(table)), place].sum())
            if first.any():
                of_first = metrics.ranks(own[first], table[first], without=or_met)
                rank_first[number, rows.start + np.flatnonzero(first)] = of_first
            work.add(len(asked), f"{part}, ranking by {names[number]}")
    builder.warn_of_ties(part, sampler, tied / len(chosen))
    spent = [*([] if score is None else [own_s]), *panel.elapsed_s]
    met_first = ~np.isnan(rank_first).any(axis=0)
    for kind, ranked in ((part, rank), (FIRST + part, rank_first[:, met_first])):
        for name, ranks, elapsed_s in zip(names, ranked, spent, strict=True):
            if len(ranks):
                values = {"mrr": metrics.mrr(ranks)}
                values |= {f"hits@{k}": metrics.hits_at(ranks, k) for k in _HITS}
                errors = {"mrr": metrics.standard_error(1 / ranks)}
                errors |= {f"hits@{k}": metrics.standard_error(ranks <= k) for k in _HITS}
                about = kind, sampler, name, values, len(ranks), None, elapsed_s
                builder.add(Row(*about, errors=errors))
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
