"""Splits, negatives, metrics and protocols: laws, on small random streams."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

from tidegraph import evaluation
from tidegraph.core.errors import DataError, EvaluationError, ParameterError
from tidegraph.evaluation import heuristics, metrics, negatives
from tidegraph.evaluation.memory import Asked, Memory
from tidegraph.events.batch import Op
from tidegraph.events.stream import EventStream, NodeLabels

IntArray = NDArray[np.int64]

SEEDS = st.integers(0, 2**32 - 1)


def random_stream(seed: int, *, events: int = 400, nodes: int = 30, span: int = 200) -> EventStream:
    """Events between two sides, with many repeated pairs and many equal times."""
    generator = np.random.default_rng(seed)
    src = generator.integers(0, nodes // 2, events)
    dst = nodes // 2 + (src * generator.integers(1, 4, events)) % (nodes - nodes // 2)
    t = np.sort(generator.integers(0, span, events))
    return EventStream(src, dst, t, nodes)


def crowd(seed: int, *, events: int = 500, per_time: int = 8) -> EventStream:
    """Any of 40 nodes with any other, many at a time: repeats, replies and ties."""
    src, dst = np.random.default_rng(seed).integers(0, 40, (2, events))
    return EventStream(src, dst, np.arange(events) // per_time, 40)


def batches(stream: EventStream, first: int, size: int = 40) -> list[EventStream]:
    return [stream[begin : begin + size] for begin in range(first, len(stream), size)]


def pairs(src: IntArray, dst: IntArray) -> set[tuple[int, int]]:
    return set(zip(src.tolist(), dst.tolist(), strict=True))


# Splits -------------------------------------------------------------------------------------------


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_training_ends_before_validation_and_knows_no_held_out_node(seed: int) -> None:
    stream = random_stream(seed)
    split = evaluation.tgn_split(stream, seed=seed % 100)
    t = stream.t
    assert t[split.train].max() < t[split.validation].min()
    assert t[split.validation].max() < t[split.test].min()
    touched = np.union1d(stream.src[split.train], stream.dst[split.train])
    assert not np.isin(split.held_out, touched).any()
    for rows, part in ((split.new_test, split.test), (split.new_validation, split.validation)):
        is_new = ~np.isin(stream.src[part], touched) | ~np.isin(stream.dst[part], touched)
        np.testing.assert_array_equal(rows, part[is_new])


def test_a_split_at_the_quantiles_is_the_split_at_these_times() -> None:
    stream = random_stream(1)
    by_share = evaluation.tgb_split(stream)
    by_time = evaluation.time_split(
        stream, validation_time=by_share.validation_time, test_time=by_share.test_time
    )
    assert by_share.sizes() == by_time.sizes()
    everything = np.concatenate([by_share.train, by_share.validation, by_share.test])
    np.testing.assert_array_equal(everything, np.arange(len(stream)))


def test_a_split_without_test_events_is_rejected_unless_none_are_wanted() -> None:
    stream = random_stream(1)
    with pytest.raises(EvaluationError, match=f"for test: of {len(stream)} events"):
        evaluation.time_split(stream, validation_time=50, test_time=10_000)
    split = evaluation.time_split(stream, validation_time=50, test_time=np.inf)
    assert len(split.test) == 0
    assert len(split.train) + len(split.validation) == len(stream)


@pytest.mark.parametrize("unit", ["us", "s", "min"])
def test_snapshots_are_cut_from_absolute_time_in_any_unit(unit: str) -> None:
    per_minute = {"us": 60_000_000, "s": 60, "min": 1}[unit]
    minutes = np.array([3, 3, 9, 10, 11, 20, 21, 22, 35, 36, 45, 45])
    src = np.zeros(len(minutes), dtype=np.int64)
    stream = EventStream(src, src + 1, minutes * per_minute, 2, unit=unit)
    split = evaluation.roland_split(stream, width_s=600, first_test=2)
    # Minute 9 belongs to the snapshot of minute 3; no snapshot is empty or of a single edge.
    np.testing.assert_array_equal(split.index, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4])
    assert (split.snapshots, split.test) == (5, range(2, 4))
    with pytest.raises(ParameterError, match=r"600 s .*'year'"):
        evaluation.roland_split(
            EventStream(src, src + 1, minutes, 2, unit="year"), width_s=600, first_test=2
        )


def test_a_snapshot_with_a_single_edge_is_dropped_and_the_rest_counted_on() -> None:
    t = np.array([0, 1, 10, 20, 21, 30, 31, 40, 41])
    src = np.zeros(len(t), dtype=np.int64)
    split = evaluation.roland_split(EventStream(src, src + 1, t, 2), width_s=10, first_test=1)
    np.testing.assert_array_equal(split.index, [0, 0, -1, 1, 1, 2, 2, 3, 3])


# Negatives ----------------------------------------------------------------------------------------


@given(SEEDS, st.sampled_from(evaluation.SAMPLERS))
@settings(max_examples=40, deadline=None)
def test_negatives_are_a_function_of_the_seed_and_as_many_as_positives(
    seed: int, name: str
) -> None:
    stream = random_stream(seed)
    drawn = []
    for _ in range(2):
        sampler = evaluation.negative_sampler(name, stream, seed=5, observed_until=100)
        assert sampler.name == name
        drawn.append([sampler.sample(b.src, b.dst, b.t) for b in batches(stream, 200)])
    for (src, dst), (again_src, again_dst), batch in zip(*drawn, batches(stream, 200), strict=True):
        np.testing.assert_array_equal(src, again_src)
        np.testing.assert_array_equal(dst, again_dst)
        assert src.shape == dst.shape == batch.src.shape
        if name.startswith("random"):
            np.testing.assert_array_equal(src, batch.src)


@given(SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_historical_negatives_were_seen_strictly_before_and_not_in_the_window(
    seed: int, published: bool
) -> None:
    stream = random_stream(seed)
    sampler = negatives.HistoricalEdges(stream, seed=2)
    sampler.published = published
    for batch in batches(stream, 120):
        start, end = int(batch.t[0]), int(batch.t[-1])
        before, window = stream.before(start), stream.between(start, end + 1)
        pool = pairs(before.src, before.dst) - pairs(window.src, window.dst)
        src, dst = sampler.sample(batch.src, batch.dst, batch.t)
        # Random pairs stand in front where the pool is too small; all of the pool is then used.
        added = max(0, len(batch) - len(pool))
        assert not pairs(src[:added], dst[:added]) & pairs(batch.src, batch.dst)
        drawn = pairs(src[added:], dst[added:])
        assert len(drawn) == len(batch) - added  # without replacement
        assert drawn <= pool


@pytest.mark.parametrize("published", [True, False])
def test_every_allowed_past_edge_is_drawn_equally_often(published: bool) -> None:
    stream = random_stream(4)
    batch = stream[-5:]
    sampler = negatives.HistoricalEdges(stream, seed=2)
    sampler.published = published
    before = stream.before(int(batch.t[0]))
    window = stream.between(int(batch.t[0]), int(batch.t[-1]) + 1)
    pool = pairs(before.src, before.dst) - pairs(window.src, window.dst)
    assert len(pool) > 4 * len(batch)  # else both draw alike
    draws = 40 * len(pool)
    drawn = [sampler.sample(batch.src, batch.dst, batch.t) for _ in range(draws // len(batch))]
    keys = np.concatenate([src * stream.nodes + dst for src, dst in drawn])
    counts = np.unique(keys, return_counts=True)[1]
    assert len(counts) == len(pool)
    # Hoeffding: no count of a fair draw is this far from its mean but once in 10^9.
    assert abs(counts - len(keys) / len(pool)).max() < np.sqrt(
        len(keys) * np.log(2e9 * len(pool)) / 2
    )


def test_past_edges_of_long_streams_are_drawn_otherwise_and_the_result_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = random_stream(4)
    split = evaluation.tgn_split(stream)
    asked: dict[str, Any] = {"samplers": ("historical",), "heuristics": list}
    score = lambda src, dst, t: src + 0.5 * dst  # noqa: E731
    usual = evaluation.evaluate_link(score, stream, split, **asked)
    monkeypatch.setattr(negatives, "EDGES_AS_PUBLISHED", 0)
    other = evaluation.evaluate_link(score, stream, split, **asked)
    assert ("past_edges" in other.settings, "past_edges" in usual.settings) == (True, False)


@given(SEEDS, st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_inductive_negatives_were_first_seen_after_what_training_observed(
    seed: int, until: int
) -> None:
    stream = random_stream(seed)  # most of its pairs have occurred by t = 20
    sampler = negatives.InductiveEdges(stream, seed=2, observed_until=until)
    observed = stream.before(until + 1)
    for batch in batches(stream, 100, size=10):
        start, end = int(batch.t[0]), int(batch.t[-1])
        before, window = stream.before(start), stream.between(start, end + 1)
        pool = pairs(before.src, before.dst) - pairs(window.src, window.dst)
        pool -= pairs(observed.src, observed.dst)
        src, dst = sampler.sample(batch.src, batch.dst, batch.t)
        added = max(0, len(batch) - len(pool))
        assert pairs(src[added:], dst[added:]) <= pool
        assert not pairs(src, dst) & pairs(batch.src, batch.dst)


def test_the_first_batch_of_all_gets_distinct_random_pairs_that_are_not_its_own() -> None:
    stream = random_stream(3)
    batch = stream[:100]
    src, dst = negatives.HistoricalEdges(stream, seed=0).sample(batch.src, batch.dst, batch.t)
    assert len(pairs(src, dst)) == len(batch)
    assert not pairs(src, dst) & pairs(batch.src, batch.dst)
    assert np.isin(src, stream.src).all()
    assert np.isin(dst, stream.dst).all()


def test_random_pairs_repeat_only_where_there_are_not_enough() -> None:
    src, dst = np.array([0, 0, 1, 1, 1]), np.array([2, 3, 2, 2, 2])
    stream = EventStream(src, dst, np.arange(5), 4)  # the only pair that never occurs is (1, 3)
    drawn = negatives.HistoricalEdges(stream, seed=0).sample(src, dst, stream.t)
    assert pairs(*drawn) == {(1, 3)}
    full = EventStream(src[:1], dst[:1], np.arange(1), 4)
    with pytest.raises(EvaluationError, match="all 1 pairs"):
        negatives.HistoricalEdges(full, seed=0).sample(full.src, full.dst, full.t)


def test_random_destinations_follow_the_two_draws_of_the_original_program() -> None:
    stream = random_stream(9)
    sampler = negatives.RandomDestinations(stream, seed=2)
    state = np.random.RandomState(2)
    for batch in batches(stream, 200):
        state.randint(0, len(np.unique(stream.src)), len(batch))
        expected = np.unique(stream.dst)[state.randint(0, len(np.unique(stream.dst)), len(batch))]
        np.testing.assert_array_equal(sampler.sample(batch.src, batch.dst, batch.t)[1], expected)


def test_given_negatives_come_in_order_and_running_out_is_an_error() -> None:
    stream = random_stream(2)
    sampler = evaluation.GivenNegatives(np.arange(5), np.arange(5) + 10)
    head, rest = stream[:3], stream[3:6]
    np.testing.assert_array_equal(sampler.sample(head.src, head.dst, head.t)[1], [10, 11, 12])
    with pytest.raises(EvaluationError, match=r"5 negatives .* 6 positives"):
        sampler.sample(rest.src, rest.dst, rest.t)


def test_negatives_and_times_that_are_not_integers_are_rejected() -> None:
    stream, examples = labelled(13)
    split = evaluation.tgb_split(stream)
    halves, large = np.full(len(stream), 0.5), np.full(len(stream), 2**63, dtype=np.uint64)
    for wrong, words in ((halves, "integers are needed, not 0.5"), (large, "does not fit")):
        rows = wrong[split.part("test")][:, None]
        with pytest.raises(DataError, match=f"nodes .*{words}"):
            evaluation.GivenNegatives(stream.src, wrong)
        with pytest.raises(DataError, match=f"nodes .*{words}"):
            evaluation.evaluate_ranking(None, stream, split, negatives=rows)
        with pytest.raises(DataError, match=f"times .*{words}"):
            evaluation.evaluate_nodes(None, stream, examples, known_at=wrong)
        with pytest.raises(EvaluationError, match=f"column .*{words}"):
            metrics.mrr_full([[0.1, 0.2]], [0], wrong[:1])


# Metrics ------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_batch_means_agree_with_each_batch_evaluated_alone(seed: int, levels: int) -> None:
    generator = np.random.default_rng(seed)
    # Few levels make many ties.
    true, false = generator.integers(0, levels + 1, (2, 130)).astype(float)
    result = metrics.link_metrics(true, false, batch_size=50)
    ap, auc = [], []
    for first in (0, 50, 100):
        part, other = true[first : first + 50], false[first : first + 50]
        labels = np.r_[np.ones(len(part)), np.zeros(len(other))]
        ap.append(metrics.average_precision(labels, np.r_[part, other]))
        auc.append(metrics.roc_auc(labels, np.r_[part, other]))
    assert result["ap"] == pytest.approx(np.mean(ap), abs=1e-12)
    assert result["auc"] == pytest.approx(np.mean(auc), abs=1e-12)
    labels = np.repeat([1, 0], 130)
    everything = np.r_[true, false]
    overall = metrics.average_precision(labels, everything), metrics.roc_auc(labels, everything)
    assert (result["ap_global"], result["auc_global"]) == pytest.approx(overall, abs=1e-15)


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_ties_are_in_the_models_favour_only_when_asked(seed: int, levels: int) -> None:
    generator = np.random.default_rng(seed)
    true, false = generator.integers(0, levels, 20), generator.integers(0, levels, (20, 15))
    lenient, half, strict = (
        metrics.ranks(true, false, ties=ties) for ties in ("for", "half", "against")
    )
    np.testing.assert_array_equal(half, (lenient + strict) / 2)
    tied = (false == true[:, None]).any(axis=1)
    assert (half[tied] > lenient[tied]).all()
    np.testing.assert_array_equal(metrics.ranks(true, false), half)
    shuffled = generator.permuted(false, axis=1)
    np.testing.assert_array_equal(metrics.ranks(true, shuffled), half)


def test_equal_scores_for_everything_earn_nothing() -> None:
    table = np.zeros((3, 101))
    rows, columns = np.array([0, 1, 2]), np.array([5, 50, 100])
    assert metrics.mrr_full(table, rows, columns) == pytest.approx(1 / 51)
    assert metrics.mrr_full(table, rows, columns, ties="against") == pytest.approx(1 / 101)
    assert metrics.mrr_sampled(table, rows, columns) == pytest.approx(1 / 1001)
    assert metrics.expected_mrr_sampled(table, rows, columns) == pytest.approx(1 / 1001)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_permuting_the_candidates_changes_no_rank(seed: int) -> None:
    generator = np.random.default_rng(seed)
    table = generator.integers(0, 6, (4, 40)).astype(float)
    rows = np.r_[np.arange(4), generator.integers(0, 4, 6)]
    keys = np.unique(rows * 40 + generator.integers(0, 40, len(rows)))
    rows, columns = keys // 40, keys % 40
    order = generator.permutation(40)
    place = np.argsort(order)
    for metric in (metrics.mrr_full, metrics.expected_mrr_sampled):
        permuted = metric(table[:, order], rows, place[columns])
        assert permuted == pytest.approx(metric(table, rows, columns), abs=1e-12)


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_the_order_in_which_scores_are_listed_changes_no_metric(seed: int, levels: int) -> None:
    generator = np.random.default_rng(seed)
    labels, scores = generator.permuted([0, 1] * 30), generator.integers(0, levels, 60)
    order = generator.permutation(60)
    by_label: dict[str, Callable[..., float]] = {
        "ap": metrics.average_precision,
        "auc": metrics.roc_auc,
        "precision@7": partial(metrics.precision_at, k=7),
        "ndcg@7": lambda truth, given: metrics.ndcg_at(truth[None], given[None], 7),
        "tied": lambda truth, given: metrics.tied_at_top(given, truth == 1).sum(),
    }
    for name, metric in by_label.items():
        permuted = metric(labels[order], scores[order])
        assert permuted == pytest.approx(metric(labels, scores), abs=1e-12), name
    true, false = generator.integers(0, levels, 60), generator.integers(0, levels, (60, 9))
    rank = metrics.ranks(true, false)
    ranked = metrics.ranks(true[order], generator.permuted(false[order], axis=1))
    np.testing.assert_array_equal(ranked, rank[order])
    # All of one batch: the mean over batches depends on which pairs are in which.
    whole = partial(metrics.link_metrics, batch_size=60)
    assert whole(true[order], false[order, 0]) == pytest.approx(whole(true, false[:, 0]), abs=1e-12)


@given(SEEDS, st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_a_tie_at_half_earns_no_more_than_a_random_order(seed: int, levels: int) -> None:
    generator = np.random.default_rng(seed)
    true, false = generator.integers(0, levels, 8), generator.integers(0, levels, (8, 12))
    first = metrics.ranks(true, false, ties="for").astype(int)
    last = metrics.ranks(true, false, ties="against").astype(int)
    at_random = [np.mean(1 / np.arange(a, b + 1)) for a, b in zip(first, last, strict=True)]
    assert (1 / metrics.ranks(true, false) <= np.array(at_random) + 1e-12).all()


def test_true_candidates_tie_at_the_top_only_with_false_ones() -> None:
    scores = np.array([[9, 9, 1], [9, 9, 9], [9, 5, 5], [9, 8, 8]])
    true = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]], dtype=bool)
    tied = metrics.tied_at_top(scores, true)
    np.testing.assert_array_equal(tied, [[0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]])
    with pytest.raises(EvaluationError, match=r"\(4, 3\) and true \(3,\)"):
        metrics.tied_at_top(scores, true[0])


def test_the_full_mrr_is_the_mean_over_sources_of_their_mean() -> None:
    table = np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
    value = metrics.mrr_full(table, np.array([0, 0, 1]), np.array([0, 3, 0]))
    assert value == pytest.approx(((1 + 1 / 4) / 2 + 1 / 4) / 2)


def test_the_expected_sampled_mrr_is_the_mean_over_seeds() -> None:
    generator = np.random.default_rng(0)
    table = generator.normal(size=(20, 300))
    rows, columns = np.repeat(np.arange(20), 2), generator.permuted(np.arange(300))[:40]
    draws = [
        metrics.mrr_sampled(table, rows, columns, negatives=50, seed=seed) for seed in range(400)
    ]
    error = np.std(draws) / math.sqrt(len(draws))
    expected = metrics.expected_mrr_sampled(table, rows, columns, negatives=50)
    assert abs(np.mean(draws) - expected) < 4 * error


def test_hits_count_ranks_up_to_k() -> None:
    assert metrics.hits_at([1, 1.5, 3, 10], 3) == 0.75
    assert metrics.mrr([1, 2, 4]) == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: metrics.average_precision([0, 1], bad),
        lambda bad: metrics.roc_auc([0, 1], bad),
        lambda bad: metrics.link_metrics(bad, bad),
        lambda bad: metrics.ranks(bad, np.reshape(bad, (-1, 1))),
        lambda bad: metrics.mrr(bad),
        lambda bad: metrics.mrr_full([bad, bad], [0, 1], [0, 0]),
        lambda bad: metrics.ndcg_at([bad], [bad]),
        lambda bad: metrics.calibration([0, 1], bad),
    ],
)
def test_every_metric_rejects_nan_and_empty_input(
    call: Callable[[list[float]], object],
) -> None:
    with pytest.raises(EvaluationError, match=r"nan at \[(0, )?1\]"):
        call([1.0, math.nan])
    with pytest.raises(EvaluationError, match="empty"):
        call([])


def test_one_class_alone_is_rejected() -> None:
    with pytest.raises(EvaluationError, match="3 labels are 1"):
        metrics.roc_auc([1, 1, 1], [0.1, 0.2, 0.3])


def test_classes_and_gains_are_counted() -> None:
    assert metrics.micro_f1([0, 1, 2, 2], [0, 2, 2, 2]) == 0.75
    assert metrics.ndcg_at([[1, 0, 0]], [[0.9, 0.1, 0.0]], k=1) == 1.0
    # All candidates tied: the one gain is shared by three places.
    assert metrics.ndcg_at([[1, 0, 0]], [[0.5, 0.5, 0.5]], k=1) == pytest.approx(1 / 3)


def test_probabilities_that_are_frequencies_are_calibrated() -> None:
    given_out = np.repeat([0.25, 0.75], 400)
    labels = np.r_[np.tile([1, 0, 0, 0], 100), np.tile([1, 1, 1, 0], 100)]
    table = metrics.calibration(labels, given_out)
    np.testing.assert_allclose(table.predicted, table.observed)
    assert table.weight.tolist() == [400, 400]
    assert table.error == pytest.approx(0)
    assert metrics.calibration(labels, 1 - given_out).error == pytest.approx(0.5)
    with pytest.raises(EvaluationError, match="-1 to 2"):
        metrics.calibration([0, 1], [-1.0, 2.0])


# Heuristics ---------------------------------------------------------------------------------------


def every_heuristic() -> list[heuristics.Heuristic]:
    return [*heuristics.link_heuristics(20.0), *heuristics.snapshot_heuristics(15.0)]


NUMBERS = range(len(every_heuristic()))
NAMES = [rule.name for rule in every_heuristic()]


def crowded_stream(seed: int, *, events: int = 250, nodes: int = 9, span: int = 60) -> EventStream:
    """Events among few nodes, with repeated and reversed pairs, self-loops and equal times."""
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, nodes, (2, events))
    return EventStream(src, dst, np.sort(generator.integers(0, span, events)), nodes)


def questions(stream: EventStream, seed: int, count: int = 120) -> tuple[IntArray, ...]:
    """Pairs, old and new, at times after the events that are known: src, dst, t, known."""
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, stream.nodes, (2, count))
    known = generator.integers(0, len(stream) + 1, count)
    known[:2] = 0, len(stream)
    t = np.append(-3, stream.t)[known] + generator.integers(0, 5, count)
    return src, dst, t, known


class Oracle:
    """All heuristics by their definitions, for one question, from a list of events."""

    def __init__(self, stream: EventStream, known: int) -> None:
        columns = (stream.src[:known], stream.dst[:known], stream.t[:known])
        self.times: dict[tuple[int, int], list[int]] = {}
        self.into: dict[int, list[int]] = {}
        for u, v, t in zip(*(column.tolist() for column in columns), strict=True):
            self.times.setdefault((u, v), []).append(t)
            self.into.setdefault(v, []).append(t)
        self.all = columns[2]

    def holds(self, u: int, v: int, memory: str) -> bool:
        if (u, v) not in self.times:
            return False
        mine, every = self.times[u, v], self.times.values()
        if memory == "repeat":
            return len(mine) >= Fraction(sum(map(len, every)), len(every))
        if memory == "window":
            return bool(mine[-1] >= np.quantile(self.all, 1 - 0.15))
        if memory == "interval":
            gaps = [Fraction(one[-1] - one[0], max(len(one) - 1, 1)) for one in every]
            return mine[-1] >= int(self.all[-1]) - sum(gaps) / len(gaps)
        return True

    def score(self, number: int, u: int, v: int, t: int) -> float:
        name, scale = NAMES[number], 20.0 if number < 9 else 15.0
        if name.startswith("edgebank-"):
            return float(self.holds(u, v, name.removeprefix("edgebank-")))
        pair, back, into = (
            *(self.times.get(key, []) for key in ((u, v), (v, u))),
            self.into.get(v, []),
        )
        if name.startswith("recency-"):
            series = pair if name == "recency-pair" else into
            return 1 / (1 + t - series[-1]) if series else 0.0
        if name == "popularity" and number < 9:
            return float(len(into))
        parts = name.split("+")
        weights = {"memory": 1.0, "reverse": 1.0, "popularity": 1e-3 if len(parts) > 1 else 1.0}
        return math.fsum(
            weights[part] * math.exp((event - t) / scale)
            for part, series in (("memory", pair), ("reverse", back), ("popularity", into))
            for event in series
            if part in parts
        )


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
@given(seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_heuristic_is_its_definition_after_any_number_of_events(number: int, seed: int) -> None:
    stream = crowded_stream(seed, span=60 if seed % 2 else 2000)
    src, dst, t, known = questions(stream, seed)
    found = every_heuristic()[number].score(Memory(stream).ask(src, dst, t, known))
    expected = [
        Oracle(stream, count).score(number, *one)
        for *one, count in zip(*(c.tolist() for c in (src, dst, t, known)), strict=True)
    ]
    if "memory" in NAMES[number] or "reverse" in NAMES[number] or number > 8:
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    else:
        np.testing.assert_array_equal(found, expected)
    nothing = every_heuristic()[number].score(Memory(stream[:0]).ask(src, dst, t, 0 * known))
    np.testing.assert_array_equal(nothing, np.zeros(len(src)))


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
@pytest.mark.parametrize("since", [1_700_000_000 * 10**9, 2**62 - 10_000, 10_000 - 2**62])
def test_a_heuristic_does_not_depend_on_when_time_began(number: int, since: int) -> None:
    if NAMES[number] == "edgebank-window":
        pytest.skip("a quantile of times, in float64 as published")
    stream = crowded_stream(15)
    src, dst, t, known = questions(stream, 4)
    later = replace(stream, t=stream.t + since)
    rule = every_heuristic()[number]
    np.testing.assert_array_equal(
        rule.score(Memory(later).ask(src, dst, t + since, known)),
        rule.score(Memory(stream).ask(src, dst, t, known)),
    )


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
def test_an_answer_depends_on_nothing_but_the_known_events(number: int) -> None:
    stream = crowded_stream(14)
    src, dst, t, known = questions(stream, 3)
    rule = every_heuristic()[number]
    together = rule.score(Memory(stream).ask(src, dst, t, known))
    for count in np.unique(known):
        asked = known == count
        own = Memory(stream[:count]).ask(src[asked], dst[asked], t[asked], known[asked])
        np.testing.assert_array_equal(together[asked], rule.score(own))
    assert len(np.unique(together)) > 1


def test_a_mean_gap_that_is_a_whole_number_is_reached() -> None:
    # Three pairs with mean gaps of 4/3, 5/3 and 0 have 1 in the mean, although no third is exact.
    src, dst = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2]), np.array([3, 3, 3, 3, 4, 4, 4, 4, 5])
    t = np.array([0, 1, 2, 4, 0, 1, 2, 5, 5])
    order = np.argsort(t, kind="stable")
    for unit in (1, 10**9 * 86_400 * 365):  # nanoseconds and longer than a day
        stream = EventStream(src[order], dst[order], t[order] * unit, 6)
        assert Memory(stream).mean_gap[-1] == unit
        late = np.full(3, 5 * unit)
        asked = Memory(stream).ask(np.arange(3), np.arange(3, 6), late, np.full(3, 9))
        assert heuristics.EdgeBank("interval").score(asked).tolist() == [1, 1, 1]


def test_pairs_of_equal_ages_have_the_same_score() -> None:
    # Wherever the events are among others, and whatever the time is: rounding decides no rank.
    generator = np.random.default_rng(0)
    ages = np.array([0, 3, 40, 41, 900])
    begin = np.sort(generator.integers(0, 10**9, 300))
    t = (begin[:, None] - ages).ravel()
    order = np.argsort(t, kind="stable")
    pair = np.repeat(np.arange(300), len(ages))
    stream = EventStream(pair[order], 300 + pair[order], t[order], 600)
    known = np.searchsorted(stream.t, begin + 7)
    asked = Memory(stream).ask(np.arange(300), np.arange(300, 600), begin + 7, known)
    for rule in (
        heuristics.EdgeMemory(scale=123.4),
        heuristics.EdgeMemory(scale=123.4, popularity=0.1),
    ):
        assert len(np.unique(rule.score(asked))) == 1


def test_edge_memory_sums_the_faded_events_of_a_pair_its_reverse_and_its_destination() -> None:
    stream = EventStream(np.array([0, 1, 0, 2]), np.array([1, 0, 1, 1]), np.array([0, 1, 4, 5]), 3)
    rule = heuristics.EdgeMemory(scale=2.0, reverse=0.5, popularity=0.1)
    forward = math.exp(-7 / 2) + math.exp(-3 / 2)
    backward, into = math.exp(-6 / 2), forward + math.exp(-2 / 2)
    asked = Memory(stream).ask(np.array([0]), np.array([1]), np.array([7]), np.array([4]))
    assert rule.score(asked)[0] == pytest.approx(forward + 0.5 * backward + 0.1 * into)


def test_each_edgebank_remembers_the_pairs_of_its_memory() -> None:
    # Pair (0, 1) occurs four times, early; (0, 2) twice, 10 apart; (0, 3) once, last.
    dst = np.array([1, 1, 1, 1, 2, 2, 3])
    t = np.array([0, 1, 2, 3, 80, 90, 100])
    stream = EventStream(np.zeros(7, dtype=np.int64), dst, t, 5)
    asked = Memory(stream).ask(
        np.zeros(4, dtype=np.int64), np.arange(1, 5), np.full(4, 100), np.full(4, 7)
    )
    held = {
        memory: heuristics.EdgeBank(memory, proportion=0.3).score(asked)
        for memory in ("unlimited", "window", "interval", "repeat")
    }
    assert held["unlimited"].tolist() == [1, 1, 1, 0]
    assert held["window"].tolist() == [0, 1, 1, 0]  # since the 70 % quantile of time, t = 82
    assert held["interval"].tolist() == [0, 0, 1, 0]  # mean gap (1 + 10 + 0) / 3
    assert held["repeat"].tolist() == [1, 0, 0, 0]  # mean count 7 / 3
    # A pair that occurred exactly at the beginning of the window is in it.
    five, zero = np.arange(5), np.zeros(5, dtype=np.int64)
    asked = Memory(EventStream(zero, five, five, 5)).ask(zero, five, zero + 9, zero + 5)
    sharp = heuristics.EdgeBank("window", proportion=0.25)
    assert sharp.score(asked).tolist() == [0, 0, 0, 1, 1]


class Counting(heuristics.OnlineHeuristic):
    """EdgeBank and popularity by dictionaries."""

    name = "counting"

    def __init__(self) -> None:
        self.pairs: set[tuple[int, int]] = set()
        self.into: dict[int, int] = {}

    def update(self, events: EventStream) -> None:
        self.pairs |= pairs(events.src, events.dst)
        for v in events.dst.tolist():
            self.into[v] = self.into.get(v, 0) + 1

    def answer(self, src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        both = zip(src.tolist(), dst.tolist(), strict=True)
        return np.array([1000.0 * ((u, v) in self.pairs) + self.into.get(v, 0) for u, v in both])


def test_a_heuristic_with_a_memory_of_its_own_is_shown_what_is_known() -> None:
    stream = crowded_stream(5)
    src, dst, t, known = questions(stream, 6)
    asked = Memory(stream).ask(src, dst, t, known)
    seen, popular = heuristics.EdgeBank().score(asked), heuristics.Popularity().score(asked)
    online = Counting()
    np.testing.assert_array_equal(online.score(asked), 1000 * seen + popular)
    with pytest.raises(EvaluationError, match=f"counting has seen {len(stream)} events.* 0;"):
        online.score(asked)


# Protocols ----------------------------------------------------------------------------------------


def oracle(stream: EventStream) -> Callable[[IntArray, IntArray, IntArray], list[float]]:
    """Return a scorer that knows which pairs happen at which time."""
    happened = set(zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True))

    def score(src: IntArray, dst: IntArray, t: IntArray) -> list[float]:
        return [
            float(key in happened)
            for key in zip(src.tolist(), dst.tolist(), t.tolist(), strict=True)
        ]

    return score


def test_an_oracle_gets_everything_right_and_a_constant_nothing() -> None:
    stream = random_stream(5, events=4000, span=2000)
    split = evaluation.tgn_split(stream)
    samplers = ("historical", "inductive")  # never a positive of the batch
    result = evaluation.evaluate_link(
        oracle(stream), stream, split, samplers=samplers, batch_size=20, parts=("test",)
    )
    for name in samplers:
        assert result.row(sampler=name).metrics == {
            "ap": 1.0,
            "auc": 1.0,
            "ap_global": 1.0,
            "auc_global": 1.0,
        }
    assert all("repeat a pair of their own batch" in warning for warning in result.warnings)
    constant = evaluation.evaluate_link(
        lambda src, dst, t: np.zeros(len(src)), stream, split, samplers=samplers, parts=("test",)
    )
    assert constant.row().metrics["auc"] == 0.5
    assert any("is ahead under historical" in warning for warning in constant.warnings)
    assert constant.verdict().outcome == "ahead"


def test_a_result_names_its_data_and_split_and_survives_json() -> None:
    stream = random_stream(6)
    split = evaluation.tgn_split(stream)
    result = evaluation.evaluate_link(
        oracle(stream), stream, split, model="cheat", training_negatives="random-dst"
    )
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["data"]["digest"] == stream.digest()
    assert plain["split"] == {"name": "tgn", "sizes": split.sizes(), "parameters": split.parameters}
    assert plain["training_negatives"] == "random-dst"
    seeds = {row["part"]: row["seed"] for row in plain["rows"]}
    assert seeds == {"test": 2, "new_test": 3}
    scorers = {row["scorer"] for row in plain["rows"]}
    assert {"cheat", "edgebank-unlimited", "popularity"} <= scorers
    assert "cheat" in str(result)
    with pytest.raises(EvaluationError, match="test/any/nobody"):
        result.row(scorer="nobody")


class Recorder(heuristics.Heuristic):
    """A heuristic that passes everything on to another and records its answers."""

    def __init__(self, rule: heuristics.Heuristic) -> None:
        self.name, self.rule = rule.name, rule
        self.answers: list[NDArray[np.float64]] = []

    def score(self, asked: Asked) -> NDArray[np.float64]:
        self.answers.append(self.rule.score(asked))
        return self.answers[-1]


def oracle_of_knowledge(t: IntArray, knowledge: str, size: int) -> IntArray:
    """The times before which all is known, event by event."""
    first = [k if knowledge == "event" else k // size * size for k in range(len(t))]
    return np.array([t[k] for k in first])


def answers_for(
    stream: EventStream, split: evaluation.Split, knowledge: str, size: int
) -> list[NDArray[np.float64]]:
    """What every heuristic answers for the test events, and then for the same false pairs."""
    recorders = [Recorder(rule) for rule in every_heuristic()]
    src, dst = np.random.default_rng(0).integers(0, stream.nodes, (2, len(split.test)))
    evaluation.evaluate_link(
        None,
        stream,
        split,
        parts=("test",),
        samplers=(evaluation.GivenNegatives(src, dst),),
        knowledge=knowledge,
        batch_size=size,
        heuristics=partial(list, recorders),
    )
    return [np.concatenate(one.answers) for one in recorders]


@pytest.mark.parametrize("knowledge", ["event", "batch"])
def test_changing_events_from_a_time_on_changes_no_answer_of_those_who_know_what_was_before(
    knowledge: str,
) -> None:
    stream = crowd(7, events=600, per_time=7)
    split = evaluation.tgb_split(stream)
    size, count = 10, len(split.test)
    t = stream.t[split.test]
    cut = int(t[count // 2])
    altered = replace(stream, dst=np.where(stream.t >= cut, stream.dst[0], stream.dst))
    as_of = oracle_of_knowledge(t, knowledge, size)
    same = np.concatenate([(as_of <= cut) & (t < cut), as_of <= cut])
    assert same[:count].any()
    assert not same[count:].all()
    changed = False
    for one, other in zip(
        *(answers_for(events, split, knowledge, size) for events in (stream, altered)), strict=True
    ):
        np.testing.assert_array_equal(one[same], other[same])
        changed |= not np.array_equal(one[count:], other[count:])
    assert changed  # the events do matter, later


@pytest.mark.parametrize("knowledge", ["event", "batch"])
def test_the_order_of_events_at_one_time_means_nothing(knowledge: str) -> None:
    stream = crowd(9, events=900, per_time=50)
    split = evaluation.tgb_split(stream)
    order = np.lexsort((np.random.default_rng(1).random(len(stream)), stream.t))
    shuffled = replace(stream, src=stream.src[order], dst=stream.dst[order])
    one, other = (answers_for(events, split, knowledge, 20) for events in (stream, shuffled))
    for before, after in zip(one, other, strict=True):
        np.testing.assert_array_equal(before[len(split.test) :], after[len(split.test) :])


def test_batches_within_one_time_know_what_each_event_knows_and_publications_know_more() -> None:
    # Of 400 events a time, each pair occurs twice in a row, 200 events apart.
    pair = np.tile(np.arange(200), 10) + np.repeat(np.arange(0, 1000, 200), 400)
    stream = EventStream(pair, 1000 + pair, np.repeat(np.arange(5), 400), 2000)
    split = evaluation.time_split(stream, validation_time=1, test_time=2)
    found = {
        (knowledge, row.scorer): row.metrics["auc"]
        for knowledge in ("event", "batch")
        for row in evaluation.evaluate_link(
            None, stream, split, parts=("test",), knowledge=knowledge
        ).rows
        if row.part == "test"
    }
    for (_, scorer), value in found.items():
        if scorer == "edgebank-unlimited@published":
            assert value > 0.7  # half of the positives are known from the batch before
        elif "pair" in scorer or "edgebank-unlimited" in scorer:
            assert value == found["event", scorer] == 0.5
        else:
            assert value == found["event", scorer]


class Witness(heuristics.OnlineHeuristic):
    """A heuristic that records how many events it has seen whenever it scores."""

    name = "witness"

    def __init__(self) -> None:
        self.shown = 0
        self.asked: list[tuple[int, int]] = []

    def update(self, events: EventStream) -> None:
        self.shown += len(events)

    def answer(self, src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        self.asked.append((self.shown, len(src)))
        return np.zeros(len(src))


@pytest.mark.parametrize("knowledge", ["event", "batch"])
def test_a_heuristic_is_shown_all_events_before_the_known_time_and_no_other(
    knowledge: str,
) -> None:
    stream = random_stream(8)
    split = evaluation.tgn_split(stream)
    witness = Witness()
    evaluation.evaluate_link(
        None,
        stream,
        split,
        parts=("test",),
        batch_size=25,
        knowledge=knowledge,
        heuristics=lambda: [witness],
    )
    as_of = oracle_of_knowledge(stream.t[split.test], knowledge, 25)
    # Positives and negatives that know the same are asked together.
    assert witness.asked == [
        (int((stream.t < time).sum()), 2 * int((as_of == time).sum())) for time in np.unique(as_of)
    ]


def test_a_batch_holds_at_least_one_event() -> None:
    stream = random_stream(8)
    split = evaluation.tgn_split(stream)
    for evaluate in (evaluation.evaluate_link, evaluation.evaluate_ranking):
        with pytest.raises(ParameterError, match="batch_size is 0"):
            evaluate(None, stream, split, batch_size=0)


def test_an_evaluation_reports_its_progress_until_all_is_done() -> None:
    stream = random_stream(8)
    split = evaluation.tgn_split(stream)
    snapshots = evaluation.roland_split(stream, width_s=20, first_test=6)
    for evaluate in (
        partial(evaluation.evaluate_link, None, stream, split, samplers=evaluation.SAMPLERS),
        partial(evaluation.evaluate_link, oracle(stream), stream, split, batch_size=7),
        partial(evaluation.evaluate_ranking, oracle(stream), stream, split, sample=9),
        partial(evaluation.evaluate_snapshots, None, stream, snapshots),
    ):
        seen: list[tuple[int, int, str]] = []
        evaluate(progress=lambda *report, seen=seen: seen.append(report))
        done, totals, _ = zip(*seen, strict=True)
        assert len(set(totals)) == 1
        assert done[0] > 0
        assert done[-1] == totals[0]
        assert all(np.diff(done) > 0)


@pytest.mark.slow
def test_eight_times_the_events_take_about_eight_times_as_long() -> None:
    # Almost every pair is new. With a memory that was rebuilt for each batch it was 60 times.
    def seconds(events: int) -> float:
        generator = np.random.default_rng(0)
        src, dst = generator.integers(0, 10_000, (2, events))
        stream = EventStream(src, dst, np.arange(events), 10_000)
        split = evaluation.tgb_split(stream)
        spent = []
        for _ in range(3):
            begun = time.process_time()
            evaluation.evaluate_link(None, stream, split, parts=("test",))
            spent.append(time.process_time() - begun)
        return min(spent)

    assert seconds(160_000) < 20 * seconds(20_000)


@pytest.mark.parametrize("evaluate", [evaluation.evaluate_link, evaluation.evaluate_ranking])
def test_heuristics_know_what_a_model_may_know(evaluate: Callable[..., evaluation.Result]) -> None:
    stream = random_stream(8)
    split = evaluation.tgn_split(stream)
    memory = Memory(stream)

    def same(
        src: IntArray, dst: IntArray, t: IntArray, as_of: IntArray | None = None
    ) -> NDArray[np.float64]:
        known = np.searchsorted(stream.t, t if as_of is None else as_of)
        return heuristics.Recency("pair").score(memory.ask(src, dst, t, known))

    found = []
    for knowledge in ("event", "batch"):
        result = evaluate(same, stream, split, knowledge=knowledge, batch_size=30)
        own, rule = (result.row(scorer=name) for name in (None, "recency-pair"))
        assert own.metrics == rule.metrics
        assert own.knowledge == rule.knowledge == result.knowledge == knowledge
        assert result.row(scorer="edgebank-window@published").knowledge == "published"
        found.append(own.metrics)
        assert json.loads(json.dumps(result.to_dict()))["knowledge"] == knowledge
    assert found[0] != found[1]
    with pytest.raises(ParameterError, match="knowledge is 'all'; give event or batch"):
        evaluate(None, stream, split, knowledge="all")


def test_only_heuristics_that_know_what_the_model_knows_are_compared_with_it() -> None:
    # Every pair meets twice in a row and never again: a memory of earlier batches is worth nothing.
    pair = np.arange(200) // 2
    stream = EventStream(pair, 100 + pair, np.arange(200), 200)

    def result(knowledge: str) -> evaluation.Result:
        return evaluation.evaluate_link(
            lambda src, dst, *times: np.zeros(len(src)),
            stream,
            evaluation.tgb_split(stream),
            parts=("test",),
            knowledge=knowledge,
            heuristics=lambda: [heuristics.EdgeBank()],
        )

    by_event, by_batch = result("event"), result("batch")
    assert by_event.row(scorer="edgebank-unlimited").metrics["auc"] == 0.75
    assert by_batch.row(scorer="edgebank-unlimited").metrics["auc"] == 0.5
    for each in (by_event, by_batch):
        assert each.row(scorer="edgebank-unlimited@published").metrics["auc"] == 0.5
        own = each.row(scorer="edgebank-unlimited").metrics["ap"]
        assert each.verdict().heuristics == {"edgebank-unlimited": own}
    assert any("edgebank-unlimited has AP 75" in warning for warning in by_event.warnings)


def test_ranking_leaves_out_what_the_source_reaches_at_the_same_time() -> None:
    # At t = 9 node 0 reaches 2 and 3; neither competes with the other.
    src = np.array([0, 0, 1, 0, 1, 0, 0])
    dst = np.array([2, 3, 4, 2, 4, 2, 3])
    stream = EventStream(src, dst, np.array([0, 1, 2, 3, 6, 9, 9]), 5)
    split = evaluation.time_split(stream, validation_time=4, test_time=7)
    result = evaluation.evaluate_ranking(oracle(stream), stream, split, heuristics=list)
    assert result.row().metrics["mrr"] == 1.0
    reverse = evaluation.evaluate_ranking(
        lambda src, dst, t: dst == 4, stream, split, heuristics=list
    )
    assert reverse.row().metrics["mrr"] == pytest.approx(1 / 2)
    given_ones = evaluation.evaluate_ranking(
        lambda src, dst, t: np.zeros(len(src)),
        stream,
        split,
        negatives=[[3, 4], [2, 4]],
        heuristics=list,
    )
    assert given_ones.row().metrics["mrr"] == pytest.approx(1 / 2)  # rank 2, ties half
    assert given_ones.row().sampler == "given"


def test_a_sample_is_ranked_with_the_same_memory_as_the_whole_part() -> None:
    stream = random_stream(15)
    split = evaluation.tgb_split(stream)
    recorders = []
    for sample in (None, 20):
        rule = Recorder(heuristics.EdgeBank("window"))
        recorders.append(rule)
        result = evaluation.evaluate_ranking(
            None, stream, split, sample=sample, batch_size=15, heuristics=partial(list, [rule])
        )
        assert result.rows[0].examples == (sample or len(split.test))
    width = len(np.unique(stream.dst))
    whole, some = (np.concatenate(rule.answers).reshape(-1, width) for rule in recorders)
    chosen = np.sort(np.random.default_rng(0).choice(len(whole), size=20, replace=False))
    np.testing.assert_array_equal(some, whole[chosen])


def met_before(stream: EventStream, a: int, b: int, t: int) -> bool:
    """Whether two nodes met before a time, by looking at every event."""
    events = zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True)
    return any({u, v} == {a, b} for u, v, when in events if when < t)


def test_first_meetings_are_those_that_a_search_through_all_events_finds() -> None:
    stream = crowd(21)
    split = evaluation.tgb_split(stream)
    generator = np.random.default_rng(0)
    false_src, false_dst = generator.integers(0, stream.nodes, (2, len(split.test)))
    value = generator.random((stream.nodes, stream.nodes)).round(2)

    def score(src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        return value[src, dst]

    result = evaluation.evaluate_link(
        score,
        stream,
        split,
        samplers=("random-dst", evaluation.GivenNegatives(false_src, false_dst), "historical"),
        parts=("test",),
        heuristics=list,
    )
    true, false = [], []
    for k, row in enumerate(split.test.tolist()):
        u, v, t = int(stream.src[row]), int(stream.dst[row]), int(stream.t[row])
        a, b = int(false_src[k]), int(false_dst[k])
        if not met_before(stream, u, v, t) and not met_before(stream, a, b, t + 1):
            true.append(value[u, v])
            false.append(value[a, b])
    labels = np.repeat([1, 0], len(true))
    assert 10 < len(true) < len(split.test) - 10
    own = result.row("first_test", "given")
    assert own.examples == len(true)
    assert own.metrics == {
        "ap": pytest.approx(average_precision_score(labels, true + false)),
        "auc": pytest.approx(roc_auc_score(labels, true + false)),
    }
    assert result.row("first_test", "random-dst").examples > 0
    assert not [row for row in result.rows if row.sampler == "historical" and "first" in row.part]


def test_first_meetings_are_ranked_among_destinations_that_the_source_has_not_met() -> None:
    stream = crowd(22)
    split = evaluation.tgb_split(stream)
    value = np.random.default_rng(0).random((stream.nodes, stream.nodes))
    result = evaluation.evaluate_ranking(
        lambda src, dst, t: value[src, dst], stream, split, heuristics=list
    )
    ranks = []
    for row in split.test.tolist():
        u, v, t = int(stream.src[row]), int(stream.dst[row]), int(stream.t[row])
        if not met_before(stream, u, v, t):
            strangers = [w for w in np.unique(stream.dst) if not met_before(stream, u, w, t + 1)]
            ranks.append(1 + (value[u, strangers] > value[u, v]).sum())
    own = result.row("first_test")
    assert own.examples == len(ranks) < len(split.test)
    assert own.metrics["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))


def test_a_ranking_has_the_standard_error_over_its_events() -> None:
    stream = crowd(23)
    split = evaluation.tgb_split(stream)
    asked: list[tuple[int, int]] = []

    def score(src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        asked.extend(zip(src.tolist(), t.tolist(), strict=True))
        return ((7 * src + 3 * dst + t) % 11).astype(np.float64)

    one, half = (
        evaluation.evaluate_ranking(score, stream, split, sample=sample, heuristics=list)
        for sample in (None, len(split.test) // 4)
    )
    # All candidates of an event are asked about in adjacent rows.
    width = len(np.unique(stream.dst))
    events = [(int(stream.src[k]), int(stream.t[k])) for k in split.test]
    assert asked[: width * len(events) : width] == events
    assert all(len(set(asked[k : k + width])) == 1 for k in range(0, len(asked), width))
    for result in (one, half):
        for row in result.rows:
            assert row.errors.keys() == row.metrics.keys()
            # A mean of values from 0 to 1 has no larger one than that of a share of as many.
            for metric, value in row.metrics.items():
                share = (value * row.examples + 1) / (row.examples + 2)
                largest = math.sqrt(share * (1 - share) / (row.examples + 2))
                assert 0 < row.errors[metric] < 1.000001 * largest
    assert half.row().errors["mrr"] > 1.5 * one.row().errors["mrr"]


def test_ranking_agrees_with_the_benchmarks_evaluator() -> None:
    generator = np.random.default_rng(0)
    positive, others = generator.integers(0, 9, 50), generator.integers(0, 9, (50, 30))
    answer = evaluation.tgb_evaluate(positive.astype(float), others.astype(float))
    assert answer["mrr"] == pytest.approx(metrics.mrr(metrics.ranks(positive, others)), rel=1e-5)


def test_snapshots_are_scored_from_those_up_to_the_task() -> None:
    stream = random_stream(11, events=800)
    split = evaluation.roland_split(stream, width_s=10, first_test=14)
    asked = []

    def next_edges(sources: IntArray, task: int) -> NDArray[np.float64]:
        asked.append(task)
        table = np.zeros((stream.nodes, stream.nodes))
        coming = split.index == task + 1
        table[stream.src[coming], stream.dst[coming]] = 1.0
        return table[sources]

    result = evaluation.evaluate_snapshots(next_edges, stream, split)
    assert asked == list(split.test)
    own = result.row().metrics
    assert own["mrr-1000"] == own["mrr-1000-expected"] == 1.0
    assert own["mrr-full"] < 1.0  # several true destinations share the first places
    with pytest.raises(EvaluationError, match=r"shape \(1,\) for task 14"):
        evaluation.evaluate_snapshots(lambda sources, task: [1.0], stream, split)


def saturated(logit: NDArray[Any]) -> NDArray[np.float32]:
    """Return probabilities as a network in float32 computes them."""
    return np.float32(1) / (np.float32(1) + np.exp(-np.asarray(logit, dtype=np.float32)))


def test_probabilities_that_are_all_one_are_warned_about_and_their_logits_are_not() -> None:
    stream = random_stream(12, events=800)
    split = evaluation.tgb_split(stream)
    snapshots = evaluation.roland_split(stream, width_s=10, first_test=14)
    spread = np.random.default_rng(0).uniform(20, 90, (stream.nodes, stream.nodes))
    assert (saturated(spread) == 1.0).all()

    def warnings(of: Callable[[NDArray[Any]], NDArray[Any]]) -> list[list[str]]:
        def score(src: IntArray, dst: IntArray, t: IntArray) -> NDArray[Any]:
            return of(spread[src, dst])

        results = [
            evaluation.evaluate_link(score, stream, split, parts=("test",)),
            evaluation.evaluate_ranking(score, stream, split),
            evaluation.evaluate_snapshots(
                lambda sources, task: of(spread[sources]), stream, snapshots
            ),
        ]
        return [[text for text in each.warnings if "float32" in text] for each in results]

    for found, sampler in zip(
        warnings(saturated), ("random-dst", "all-dst", "all-nodes"), strict=True
    ):
        (warning,) = found
        assert "model gives 100% of the positives of test" in warning
        assert f"{sampler} negatives" in warning
        assert "return logits" in warning
    assert warnings(lambda logit: logit) == [[], [], []]


def test_heuristics_are_allowed_to_tie() -> None:
    stream = random_stream(13, events=800)
    result = evaluation.evaluate_link(None, stream, evaluation.tgb_split(stream), parts=("test",))
    assert result.row(scorer="edgebank-unlimited").metrics["auc"] < 1.0
    assert not any("float32" in warning for warning in result.warnings)


def test_first_meetings_of_snapshots_are_ranked_among_nodes_that_the_source_has_not_met() -> None:
    stream = crowd(24, events=800)
    split = evaluation.roland_split(stream, width_s=5, first_test=14)
    value = np.random.default_rng(0).random((stream.nodes, stream.nodes))
    result = evaluation.evaluate_snapshots(
        lambda sources, task: value[sources], stream, split, heuristics=list
    )
    known = replace(stream, t=split.index)
    count, of_tasks = 0, []
    for task in split.test:
        coming = split.index == task + 1
        firsts: dict[int, list[float]] = {}
        for u, v in sorted(pairs(stream.src[coming], stream.dst[coming])):
            if not met_before(known, u, v, task + 1):
                rivals = [w for w in range(40) if not met_before(known, u, w, task + 1)]
                rank = 1 + (value[u, rivals] > value[u, v]).sum()
                firsts.setdefault(u, []).append(1 / rank)
                count += 1
        if firsts:
            of_tasks.append(np.mean([np.mean(each) for each in firsts.values()]))
    own = result.row("first_test")
    assert own.examples == count < result.row().examples
    assert own.metrics == {"mrr-full": pytest.approx(np.mean(of_tasks))}


def test_removals_are_not_links_to_predict() -> None:
    stream = random_stream(6)
    split = evaluation.tgn_split(stream)
    op = np.full(len(stream), Op.ADD, dtype=np.uint8)
    op[-1] = Op.REMOVE
    with pytest.raises(EvaluationError, match=r"Op\.ADD"):
        evaluation.evaluate_link(None, replace(stream, op=op), split)


def test_a_models_scores_must_be_one_finite_number_per_pair() -> None:
    stream = random_stream(6)
    split = evaluation.tgn_split(stream)
    with pytest.raises(EvaluationError, match=r"shape \(1,\)"):
        evaluation.evaluate_link(lambda src, dst, t: [1.0], stream, split)
    with pytest.raises(EvaluationError, match=r"at t=\d+ is nan"):
        evaluation.evaluate_link(lambda src, dst, t: src * np.nan, stream, split)


# Node classification ------------------------------------------------------------------------------


def labelled(seed: int) -> tuple[EventStream, NodeLabels]:
    stream = random_stream(seed)
    label = (stream.src % 2).astype(np.int64)  # a node never changes its class
    part = np.digitize(stream.t, [100, 150]).astype(np.uint8)
    return stream, NodeLabels(stream.src, stream.t, label, part)


def test_the_last_label_is_right_where_labels_never_change() -> None:
    stream, examples = labelled(12)
    result = evaluation.evaluate_nodes(
        lambda node, t: (node % 2).astype(float), stream, examples, parts=("test",)
    )
    assert result.row().metrics == {"micro-f1": 1.0, "auc": 1.0, "ap": 1.0}
    assert result.row(scorer="last-label").metrics["auc"] == 1.0
    assert result.row(scorer="majority").metrics["auc"] == 0.5


def test_last_label_uses_only_labels_known_before_the_time() -> None:
    stream, examples = labelled(13)
    never = evaluation.evaluate_nodes(
        None, stream, examples, known_at=np.full(len(stream), 10_000), parts=("test",)
    )
    assert never.row(scorer="last-label").metrics == never.row(scorer="majority").metrics
    train = NodeLabels(np.array([0, 1]), np.array([0, 0]), np.array([0, 1]))
    known = NodeLabels(np.array([4, 4]), np.array([5, 9]), np.array([1, 0]))
    rule = heuristics.LastLabel(known, train, classes=2)
    answer = rule.score(np.array([4, 4, 4, 4, 3]), np.array([5, 6, 9, 10, 10]))
    assert answer[:, 1].tolist() == [0.5, 1.0, 1.0, 0.0, 0.5]


def test_degrees_count_strictly_earlier_events() -> None:
    stream = EventStream(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([1, 2, 2]), 3)
    train = NodeLabels(np.array([0, 0, 0, 2]), np.array([1, 2, 3, 3]), np.array([0, 0, 1, 1]))
    rule = heuristics.DegreeOnly(stream, train, classes=2)
    answer = rule.score(np.array([0, 2, 0, 0]), np.array([3, 3, 2, 0]))[:, 1]
    assert answer[0] == answer[1] > answer[2] > answer[3]


def test_an_area_under_one_class_is_undefined_and_warned_about() -> None:
    stream, examples = labelled(14)
    label = np.where(examples.part == 2, 0, examples.label)
    result = evaluation.evaluate_nodes(
        lambda node, t: np.zeros(len(node)),
        stream,
        NodeLabels(examples.node, examples.t, label, examples.part),
        parts=("test",),
    )
    assert math.isnan(result.row().metrics["auc"])
    assert result.to_dict()["rows"][0]["metrics"]["auc"] is None
    assert any("only one class" in warning for warning in result.warnings)


@pytest.mark.parametrize("only", [0, 2])
def test_one_class_is_nothing_to_evaluate_whatever_its_number(only: int) -> None:
    stream, examples = labelled(15)
    same = replace(examples, label=np.full(len(stream), only))
    with pytest.raises(EvaluationError, match="at least two"):
        evaluation.evaluate_nodes(None, stream, same, parts=("test",))


def test_historical_negatives_give_away_positives_that_repeat_a_pair_of_their_batch() -> None:
    """On uniformly random pairs nothing can be known, but for what the sampler leaves out."""
    generator = np.random.default_rng(0)
    src, dst = generator.integers(0, 15, (2, 6000))
    stream = EventStream(src, dst, np.arange(6000) // 2, 15)
    split, samplers = evaluation.tgb_split(stream), ("random-dst", "historical")
    results = {
        knowledge: evaluation.evaluate_link(
            None, stream, split, samplers=samplers, parts=("test",), knowledge=knowledge
        )
        for knowledge in ("batch", "event")
    }
    auc = {
        (knowledge, sampler): result.row("test", sampler, "memory").metrics["auc_global"]
        for knowledge, result in results.items()
        for sampler in samplers
    }
    result = results["event"]
    test = split.test
    by_chance = 4 / math.sqrt(6 * len(test))  # four standard errors
    assert auc["event", "random-dst"] == pytest.approx(0.5, abs=by_chance)
    for sampler in samplers:  # knows of no repeat
        assert auc["batch", sampler] == pytest.approx(0.5, abs=by_chance)
    assert auc["event", "historical"] > 0.5 + 2 * by_chance
    repeats = 0
    for first in range(0, len(test), 200):
        rows = test[first : first + 200]
        events = [(src[k], dst[k], stream.t[k]) for k in rows]
        repeats += sum(any(o[:2] == e[:2] and o[2] < e[2] for o in events) for e in events)
    assert result.settings["repeated_in_batch"] == {"test": repeats / len(test)}
    (warning,) = result.warnings
    assert f"{repeats / len(test):.0%}" in warning
    assert not results["batch"].warnings


# Verdicts -----------------------------------------------------------------------------------------


def test_the_best_heuristic_is_the_highest_where_the_metric_is_defined() -> None:
    table: evaluation.Heuristics = {
        "memory": {"random-dst": {"all": {"ap": 0.7, "auc": None}}},
        "recency": {"random-dst": {"all": {"ap": 0.8}}},
        "nodes": {"none": {"all": {"auc": 0.9}}},
    }
    assert evaluation.best_heuristic(table, "random-dst", "all", "ap") == ("recency", 0.8)
    assert evaluation.best_heuristic(table, "none", "all", "auc") == ("nodes", 0.9)
    assert evaluation.best_heuristic(table, "random-dst", "all", "auc") is None
    assert evaluation.best_heuristic({}, "random-dst", "all", "ap") is None


def test_results_that_name_no_headline_are_compared_by_the_usual_metric() -> None:
    one = {"mean": 0.5, "std": 0.0, "per_seed": [0.5]}
    parts = {"all": {"micro_f1": one, "auc": one, "ap": one}}
    (nodes,) = evaluation.verdicts({"none": parts}, {}, {})
    (named,) = evaluation.verdicts({"none": parts}, {}, {"none": "micro_f1"})
    (links,) = evaluation.verdicts({"random-dst": parts}, {}, {})
    assert [nodes.metric, named.metric, links.metric] == ["auc", "micro_f1", "ap"]
    assert nodes.best is None
    assert nodes.outcome == ""
    assert "50.00" in str(nodes)


@pytest.mark.parametrize(("value", "examples"), [(0.9, 22), (0.5, 100), (0.97, 900)])
def test_equal_scorers_differ_by_more_than_the_noise_in_few_samples(
    value: float, examples: int
) -> None:
    shares = np.random.default_rng(examples).binomial(examples, value, (2000, 2)) / examples
    beyond = [abs(x - y) > evaluation.noise(x, y, examples) for x, y in shares]
    assert np.mean(beyond) < 0.07  # two standard errors: about one in twenty


def test_a_lead_on_few_examples_does_not_count() -> None:
    def verdict(examples: int | None, own: float = 0.9) -> evaluation.Verdict:
        heuristics = {"memory": 0.8}
        return evaluation.Verdict(
            "random-dst", "all", "ap", own, None, heuristics, examples=examples
        )

    assert [verdict(n).outcome for n in (22, 2000, None)] == ["about as good", "", ""]
    assert [verdict(n, 0.7).outcome for n in (22, 2000)] == ["about as good", "ahead"]
    assert [verdict(n).too_few for n in (22, 2000)] == [True, False]
    assert not verdict(22, 0.801).too_few  # nor would it count on any number of examples
    assert "22" in str(verdict(22))
    runs = {"a": verdict(22), "b": verdict(22, 0.8)}
    assert evaluation.leader(runs) is None
    assert evaluation.leader({name: verdict(2000, one.mean) for name, one in runs.items()}) == "a"
    assert evaluation.leader({"a": verdict(22)}) == "a"


def test_the_rarer_of_two_classes_decides_what_is_chance() -> None:
    stream, examples = labelled(14)
    label = np.zeros_like(examples.label)
    label[::12] = 1
    labels = NodeLabels(examples.node, examples.t, label, examples.part)
    result = evaluation.evaluate_nodes(
        lambda node, t: np.zeros(len(node)), stream, labels, parts=("test",)
    )
    assert examples.part is not None
    rare = int(label[examples.part == 2].sum())
    assert result.verdict().examples == rare < result.row().examples
    assert any(f"only {rare} examples" in warning for warning in result.warnings)
    assert evaluation.Scores.of([result]).examples == {"none": {"all": rare}}
