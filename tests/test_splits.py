"""Which events train, validate and test: laws, on small random streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests.random_streams import (
    SEEDS,
    random_stream,
)

from tidegraph import evaluation
from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.events.stream import EventStream


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
