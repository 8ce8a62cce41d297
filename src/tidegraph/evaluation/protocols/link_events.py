"""Test events against sampled negatives, as TGN evaluates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import ParameterError
from tidegraph.core.progress import Progress
from tidegraph.evaluation import metrics
from tidegraph.evaluation.memory import Meetings
from tidegraph.evaluation.negatives import (
    GivenNegatives,
    HistoricalEdges,
    InductiveEdges,
    NegativeSampler,
    negative_sampler,
)
from tidegraph.evaluation.protocols import scoring
from tidegraph.evaluation.protocols.scoring import FIRST, HeuristicFactory, PairScore
from tidegraph.evaluation.results import Result, ResultBuilder, Row
from tidegraph.evaluation.splits import Split
from tidegraph.events.stream import EventStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_Pairs = tuple[IntArray, IntArray]
_Scores = tuple[str, FloatArray, list[FloatArray], float]  # scorer, true, false, seconds

SEEDS = {"validation": 0, "new_validation": 1, "test": 2, "new_test": 3}
_AVOID_BATCH = (HistoricalEdges.name, InductiveEdges.name)  # samplers that avoid pairs of the batch
_REPEATS_WORTH_A_NOTE = 0.03  # of the positives


def evaluate_link(
    score: PairScore | None,
    stream: EventStream,
    split: Split,
    *,
    samplers: Sequence[str | GivenNegatives] = ("random-dst",),
    parts: Sequence[str] = ("test", "new_test"),
    knowledge: str = "event",
    batch_size: int = scoring.BATCH_SIZE,
    seeds: Mapping[str, int] = SEEDS,
    heuristics: HeuristicFactory | None = None,
    model: str = "model",
    training_negatives: str | None = None,
    progress: Progress | None = None,
) -> Result:
    """Evaluate each true pair against one false pair: AP and AUC, per batch and global, as TGN.

    `score(src, dst, t)` returns a number per pair; with None only the heuristics are evaluated. A
    negative has the time of its positive. Negatives of `validation` and `test` are drawn from the
    whole stream, those of the new-node parts from their own events; `inductive` excludes edges
    that occurred before the part began.

    knowledge: what is known of the stream when an event is asked about, the same for the model and
        the heuristics: everything before its time (`event`), or before the time of the first event
        of its batch (`batch`). In that case `score(src, dst, t, as_of)` is asked, and must not
        depend on any event at or after `as_of`. `<name>@published` are heuristics as published,
        which know the events of training, validation and test that precede the batch, whatever
        their time.
    heuristics: returns fresh ones, or none.

    First meetings are a part of their own, `first_test` beside `test`: the events whose two nodes
    have not met before, in either direction, each against its negative, if those two have not met
    by then either. AP and AUC are over all of them at once. Samplers of past edges have none.

    `settings["repeated_in_batch"][part]` is the share of positives whose pair has occurred earlier
    in their batch. Samplers of past edges never draw such a pair, so whoever knows the events
    within a batch recognises these positives; a warning says so.
    """
    unseeded = [part for part in parts if part not in seeds]
    if unseeded:
        raise ParameterError(f"{unseeded[0]} has no seed; seeds are given for {', '.join(seeds)}")
    scoring.reject_removals(stream)
    own = None if score is None else model
    builder = ResultBuilder("link", stream, own, "ap", training_negatives, knowledge)
    make = heuristics or scoring.heuristics_for(stream, split)
    memories, meetings = scoring.Memories(stream, split), Meetings(stream)
    scorers = len(scoring.Panel(make, memories).names) + (score is not None)
    # Every negative is drawn, every pair scored by all, and the metrics count the negatives again.
    kinds, events = len(samplers), sum(len(split.part(part)) for part in parts)
    work = scoring.Work(progress, events * (kinds + scorers * (2 * kinds + 1)))
    as_published = True
    repeated: dict[str, float] = {}
    for part in parts:
        positions = split.part(part)
        if len(positions) == 0:
            builder.warn(f"{part} is empty and was left out")
            continue
        src, dst, t = scoring.columns(stream, positions)
        row = scoring.begin_of_batch(positions, batch_size)
        as_of = scoring.known_before(t, knowledge, batch_size)
        times = (t,) if knowledge == "event" else (t, as_of)
        repeated[part] = _repeated_in_batch(src * stream.nodes + dst, t, batch_size)
        drawn: dict[str, _Pairs] = {}
        for wanted in samplers:
            sampler = _sampler(wanted, stream, split, part, seeds)
            as_published &= getattr(sampler, "published", True)
            batches = []
            for rows in scoring.slices(len(positions), batch_size):
                batches.append(sampler.sample(src[rows], dst[rows], t[rows]))
                work.add(len(src[rows]), f"{part}, drawing {sampler.name}")
            sources, destinations = zip(*batches, strict=True)
            drawn[sampler.name] = np.concatenate(sources), np.concatenate(destinations)
        avoiding = [name for name in drawn if name in _AVOID_BATCH]
        if avoiding and knowledge == "event" and repeated[part] > _REPEATS_WORTH_A_NOTE:
            builder.warn(
                f"{repeated[part]:.0%} of the positives of {part} repeat a pair of their own batch,"
                f" which {' and '.join(avoiding)} negatives never do: scorers that know the events"
                " within a batch, as all do with the knowledge event, recognise them; see"
                " docs/protocols.md"
            )
        pairs = [(src, dst), *drawn.values()]
        scores: list[_Scores] = []
        if score is not None:
            begun = time.perf_counter()
            report = partial(work.add, what=f"{part}, scoring")
            true, *false = _by_model(score, pairs, times, report)
            scores.append((model, true, false, time.perf_counter() - begun))
            for name, others in zip(drawn, false, strict=True):
                positive = np.arange(2 * len(true)) < len(true)
                tied = metrics.tied_at_top(np.concatenate([true, others]), positive)
                builder.warn_of_ties(part, name, float(tied.sum()) / len(true))
        panel = scoring.Panel(make, memories)
        scores += _by_heuristics(panel, pairs, (t, as_of, row), work, part)
        new = ~meetings.before(src, dst, t) & (not part.startswith("new_"))
        for number, (name, negatives) in enumerate(drawn.items()):
            seed = None if name == GivenNegatives.name else seeds[part]
            first = new & (name not in _AVOID_BATCH)
            first[first] = ~meetings.by(*(end[first] for end in (*negatives, t)))
            for scorer, true, false, elapsed_s in scores:
                values = metrics.link_metrics(true, false[number], batch_size=batch_size)
                builder.add(Row(part, name, scorer, values, len(true), seed, elapsed_s))
                if first.any():
                    values = metrics.pair_metrics(true[first], false[number][first])
                    about = FIRST + part, name, scorer, values, int(first.sum())
                    builder.add(Row(*about, seed, elapsed_s))
                work.add(len(true), f"{part}, measuring {scorer}")
    settings: dict[str, Any] = {"batch_size": batch_size, "seeds": dict(seeds)}
    settings["repeated_in_batch"] = repeated
    if not as_published:
        settings["past_edges"] = "drawn by rejection"  # see docs/protocols.md
    return builder.result(split, settings)


def _repeated_in_batch(pair: IntArray, t: IntArray, batch_size: int) -> float:
    """Return the share of events whose pair occurs in their batch at an earlier time."""
    batch = np.arange(len(pair)) // batch_size
    _, number = np.unique(pair, return_inverse=True)
    keys = batch * len(pair) + number.reshape(-1)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return float(np.mean(t[first[place.reshape(-1)]] < t))


def _by_model(
    score: PairScore,
    pairs: Sequence[_Pairs],
    times: tuple[IntArray, ...],
    report: Callable[[int], None],
) -> FloatArray:
    """Ask about true pairs and the false ones of each sampler; return scores, [1 + samplers, B].

    The pairs of an event are next to each other, since most have its source: a model that walks
    from there walks once.
    """
    kinds, count = len(pairs), len(times[0])
    found = np.empty((kinds, count))
    for rows in scoring.slices(count, max(1, scoring.PAIRS_AT_ONCE // kinds)):
        src, dst = (np.stack([some[end][rows] for some in pairs], axis=1) for end in (0, 1))
        when = (np.repeat(column[rows], kinds) for column in times)
        answers = scoring.ask(score, src.ravel(), dst.ravel(), *when, report=report)
        found[:, rows] = answers.reshape(-1, kinds).T
    return found


def _by_heuristics(
    panel: scoring.Panel,
    pairs: Sequence[_Pairs],
    when: tuple[IntArray, ...],
    work: scoring.Work,
    part: str,
) -> Iterator[_Scores]:
    """Ask all heuristics about true pairs and the false ones of each sampler, in pieces.

    `when` are the times, those before which all is known, and the first event of each one's batch.
    """
    kinds, count = len(pairs), len(when[0])
    found = np.empty((len(panel.names), kinds, count))
    for rows in scoring.slices(count, max(1, scoring.PAIRS_AT_ONCE // kinds)):
        src, dst = (np.concatenate([some[end][rows] for some in pairs]) for end in (0, 1))
        answers = panel.scores(src, dst, *(np.tile(column[rows], kinds) for column in when))
        for scorer, answer in enumerate(answers):
            found[scorer, :, rows] = answer.reshape(kinds, -1)
            work.add(len(answer), f"{part}, scoring by {panel.names[scorer]}")
    for name, (true, *false), elapsed_s in zip(panel.names, found, panel.elapsed_s, strict=True):
        yield name, true, false, elapsed_s


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
