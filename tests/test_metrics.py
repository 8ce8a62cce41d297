"""Metrics, compared with plain definitions and scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.random_streams import (
    SEEDS,
)

from tidegraph.core.errors import EvaluationError
from tidegraph.evaluation import metrics


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
