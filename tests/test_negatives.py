"""Samplers of pairs that did not happen, compared with plain definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.random_streams import (
    SEEDS,
    batches,
    labelled,
    pairs,
    random_stream,
)

from tidegraph import evaluation
from tidegraph.core.errors import DataError, EvaluationError
from tidegraph.evaluation import metrics, negatives
from tidegraph.events.stream import EventStream


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
