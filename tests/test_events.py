"""Batches, channels and sketches say what is wrong with their arguments, and keep good ones."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from tidegraph.core.errors import (
    DataError,
    EventError,
    ParameterError,
    PrecisionError,
    StateFileError,
    TidegraphError,
)
from tidegraph.engine.channels import Channel, EngineSettings, Sketch
from tidegraph.engine.features import Features
from tidegraph.events.batch import Batch, Op
from tidegraph.events.columns import TIME_LIMIT

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "error", [ParameterError, PrecisionError, EventError, StateFileError, DataError]
)
def test_every_error_is_a_tidegraph_error_and_a_value_error(error: type[Exception]) -> None:
    assert issubclass(error, TidegraphError)
    assert issubclass(error, ValueError)


# Batches ------------------------------------------------------------------------------------------

BAD_BATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "float ids": ({"src": [0.0], "dst": [1]}, "src has dtype float64"),
    "bool ids": ({"src": [True], "dst": [1]}, "src has dtype bool"),
    "text ids": ({"src": ["a"], "dst": [1]}, "src has dtype"),
    "empty float array as ids": ({"src": np.zeros(0), "dst": []}, "src has dtype float64"),
    "negative id": ({"src": [0], "dst": [-1]}, "dst of row 0 is -1"),
    "negative id among many": ({"src": [*range(99), -3], "dst": [*range(100)]}, "row 99 is -3"),
    "id beyond int64": ({"src": np.array([2**63], dtype=np.uint64), "dst": [0]}, str(2**63)),
    "id beyond every integer type": ({"src": [2**70], "dst": [0]}, "src"),
    "matrix of ids": ({"src": [[0]], "dst": [[1]]}, r"src has shape \(1, 1\)"),
    "a number for ids": ({"src": 0, "dst": 1}, r"src has shape \(\)"),
    "ragged ids": ({"src": [[0], [1, 2]], "dst": [0, 1]}, "src is not a vector"),
    "unequal lengths": ({"src": [0, 1], "dst": [1]}, r"dst has shape \(1,\); give \[2\]"),
    "NaN weight": ({"src": [0], "dst": [1], "weight": [NAN]}, "weight of row 0 is nan"),
    "zero weight": ({"src": [0, 0], "dst": [1, 1], "weight": [1, 0]}, "weight of row 1 is 0"),
    "negative weight": ({"src": [0], "dst": [1], "weight": [-2.0]}, "weight of row 0 is -2"),
    "infinite addition": ({"src": [0], "dst": [1], "weight": [INF]}, "weight of row 0 is inf"),
    "infinite setting": (
        {"src": [0, 0], "dst": [1, 1], "weight": [INF, INF], "op": [Op.REMOVE, Op.SET]},
        "weight of row 1 is inf",
    ),
    "NaN removal": ({"src": [0], "dst": [1], "weight": [NAN], "op": Op.REMOVE}, "row 0 is nan"),
    "enormous weight": ({"src": [0], "dst": [1], "weight": [1e31]}, "between 2\\^-64 and 2\\^64"),
    "tiny weight": ({"src": [0], "dst": [1], "weight": [1e-31]}, "between 2\\^-64 and 2\\^64"),
    "late bad weight": (
        {"src": [0] * 50, "dst": [1] * 50, "weight": [1.0] * 49 + [NAN]},
        "weight of row 49",
    ),
    "text weight": ({"src": [0], "dst": [1], "weight": ["a"]}, "weight has dtype"),
    "bool weight": ({"src": [0], "dst": [1], "weight": [True]}, "weight has dtype bool"),
    "too few weights": (
        {"src": [0, 1], "dst": [1, 2], "weight": [1.0]},
        r"weight has shape \(1,\)",
    ),
    "one weight for all": ({"src": [0], "dst": [1], "weight": 2.0}, r"weight has shape \(\)"),
    "unknown op": ({"src": [0], "dst": [1], "op": [3]}, "op of row 0 is 3"),
    "unknown op among many": ({"src": [0] * 50, "dst": [1] * 50, "op": [0] * 49 + [3]}, "49 is 3"),
    "op by name": ({"src": [0], "dst": [1], "op": ["add"]}, "op has dtype"),
    "float op": ({"src": [0], "dst": [1], "op": [0.0]}, "op has dtype float64"),
    "too many ops": ({"src": [0], "dst": [1], "op": [0, 1]}, r"op has shape \(2,\)"),
    "float time": ({"src": [0], "dst": [1], "t": 1.5}, "t is 1.5"),
    "float times": ({"src": [0], "dst": [1], "t": [1.0]}, "t has dtype float64"),
    "bool time": ({"src": [0], "dst": [1], "t": True}, "t is True"),
    "date as time": ({"t": np.datetime64("2013-01-01")}, "times are integers"),
    "dates as times": ({"src": [0], "dst": [1], "t": np.array(["2013-01-01"], "M8[s]")}, "t has"),
    "times running backwards": (
        {"src": [0, 1], "dst": [1, 2], "t": [5, 4]},
        "run backwards: row 1",
    ),
    "too few times": ({"src": [0, 1], "dst": [1, 2], "t": [5]}, r"t has shape \(1,\); give \[2\]"),
    "time beyond the limit": ({"t": TIME_LIMIT}, "strictly between"),
    "times beyond the limit": ({"src": [0], "dst": [1], "t": [-TIME_LIMIT]}, "strictly between"),
    "negative new nodes": ({"new_nodes": -1}, "new_nodes is -1"),
    "fractional new nodes": ({"new_nodes": 1.5}, "new_nodes is 1.5"),
    "bool new nodes": ({"new_nodes": True}, "new_nodes is True"),
    "features for no new node": ({"new_features": [[1.0]]}, "new_features has shape"),
    "vector as new features": ({"new_nodes": 1, "new_features": [1.0]}, "new_features has shape"),
    "NaN new features": ({"new_nodes": 1, "new_features": [[NAN]]}, "NaN or infinity"),
    "feature nodes alone": ({"feature_nodes": [0]}, "without feature_values"),
    "feature values alone": ({"feature_values": [[1.0]]}, "feature_values has shape"),
    "feature node twice": ({"feature_nodes": [2, 2], "feature_values": [[1.0], [2.0]]}, "node 2"),
    "infinite features": ({"feature_nodes": [0], "feature_values": [[INF]]}, "NaN or infinity"),
    "text features": ({"feature_nodes": [0], "feature_values": [["a"]]}, "dtype"),
    "node removed twice": ({"removed_nodes": [1, 1]}, "node 1 more than once"),
    "negative removed node": ({"removed_nodes": [-1]}, "removed_nodes of row 0 is -1"),
    "float removed node": ({"removed_nodes": [1.0]}, "removed_nodes has dtype"),
}


@pytest.mark.parametrize(("given", "message"), BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
def test_a_malformed_batch_is_rejected_with_what_was_wrong(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(EventError, match=message):
        Batch(**given)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64", ">i8"])
def test_ids_of_any_integer_type_become_int64(dtype: str) -> None:
    batch = Batch(np.array([1, 2], dtype=dtype), np.array([3, 4], dtype=dtype))
    assert batch.src.dtype == batch.dst.dtype == np.dtype(np.int64)
    assert batch.src.tolist() == [1, 2]


def test_a_batch_copies_what_it_is_given_and_cannot_be_changed() -> None:
    src, weight = np.array([0, 1, 2, 3])[::2], np.array([1.0, 2.0])
    batch = Batch(src, [1, 1], weight=weight, t=[1, 2])
    src[0], weight[0] = 7, 7.0
    assert batch.src.tolist() == [0, 2]
    assert batch.weight is not None
    assert batch.weight.tolist() == [1.0, 2.0]
    assert batch.src.flags.c_contiguous
    for array in (batch.src, batch.dst, batch.weight, batch.t):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    with pytest.raises(AttributeError):
        batch.src = batch.dst  # type: ignore[misc]


def test_one_time_stands_for_all_rows_and_moves_the_clock_without_rows() -> None:
    batch = Batch([0, 1], [1, 2], t=7)
    assert batch.t is not None
    assert batch.t.tolist() == [7, 7]
    assert batch.time == 7
    assert Batch(t=np.int32(9)).time == 9
    assert Batch([0, 1], [1, 2], t=[3, 8]).time == 8
    assert Batch([0], [1]).time is None
    assert Batch().rows == 0


def test_operations_are_kept_per_row_and_as_none_where_all_are_additions() -> None:
    assert Batch([0], [1]).op is None
    assert Batch([0], [1], op=Op.ADD).op is None
    removal = Batch([0, 1], [1, 2], op=Op.REMOVE)
    assert removal.op is not None
    assert removal.op.tolist() == [1, 1]
    assert removal.op.dtype == np.dtype(np.uint8)
    mixed = Batch([0, 1, 2], [1, 2, 0], op=[Op.ADD, Op.SET, Op.REMOVE], weight=[1.0, 2.0, INF])
    assert mixed.op is not None
    assert mixed.op.tolist() == [0, 2, 1]


def test_batches_survive_pickle_and_copy() -> None:
    batch = Batch([0], [1], t=4, new_nodes=1, new_features=[[1.0]], removed_nodes=[3])
    for twin in (pickle.loads(pickle.dumps(batch)), copy.copy(batch), copy.deepcopy(batch)):
        assert repr(twin) == repr(batch) == "Batch(rows=1, time=4, new_nodes=1, removed_nodes=1)"
        assert twin.src.tolist() == [0]
        assert twin.new_features is not None
        assert twin.new_features.tolist() == [[1.0]]


# Channels -----------------------------------------------------------------------------------------

BAD_CHANNELS: dict[str, tuple[dict[str, Any], str]] = {
    "gamma0 of zero": ({"gamma0": 0}, "gamma0 is 0"),
    "infinite gamma0": ({"gamma0": INF}, "gamma0 is inf"),
    "text gamma0": ({"gamma0": "0.2"}, "gamma0 is '0.2'"),
    "gamma of one": ({"gamma": 1.0}, r"gamma is 1.0.*0 < \|gamma\| < 1"),
    "gamma of minus one": ({"gamma": -1}, "gamma is -1"),
    "gamma of zero": ({"gamma": 0.0}, "gamma is 0.0"),
    "NaN gamma": ({"gamma": NAN}, "gamma is nan"),
    "bool gamma": ({"gamma": True}, "gamma is True"),
    "no half-life": ({"half_life": 0}, "half_life is 0"),
    "negative half-life": ({"half_life": -1.0}, "half_life is -1"),
    "endless half-life": ({"half_life": INF}, "half_life is inf"),
    "empty window": ({"window": 0}, "window is 0"),
    "fractional window": ({"window": 1.5}, "window is 1.5"),
    "negative count": ({"last": -3}, "last is -3"),
    "bool count": ({"last": True}, "last is True"),
    "two ways to forget": ({"half_life": 3.0, "last": 5}, "half_life=3.0, window=None, last=5"),
    "unknown direction": ({"direction": "up"}, "direction is 'up'"),
    "beta above one": ({"beta": 1.5}, "beta is 1.5"),
    "negative beta": ({"beta": -0.1}, "beta is -0.1"),
    "NaN beta": ({"beta": NAN}, "beta is nan"),
}


@pytest.mark.parametrize(("given", "message"), BAD_CHANNELS.values(), ids=BAD_CHANNELS.keys())
def test_a_channel_that_cannot_work_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Channel(**{"gamma0": 0.2, "gamma": 0.8, **given})


@pytest.mark.parametrize("alpha", [0, 1, -0.2, 1.2, NAN, "0.2", True])
def test_alpha_lies_strictly_between_zero_and_one(alpha: Any) -> None:
    for make in (Channel.low_pass, Channel.high_pass):
        with pytest.raises(ParameterError, match="alpha is"):
            make(alpha)


def test_the_two_filters_keep_even_and_odd_hops() -> None:
    low, high = Channel.low_pass(0.3, window=5), Channel.high_pass(0.3, window=5)
    assert (low.gamma0, low.gamma) == (0.3, 0.7)
    assert (high.gamma0, high.gamma) == (0.3, -0.7)
    assert low.window == high.window == 5
    assert {low, Channel.low_pass(0.3, window=5)} == {low}


BAD_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no channel": ({"channels": ()}, "one or more Channel"),
    "something else as channel": ({"channels": (0.2,)}, "one or more Channel"),
    "one channel without a list": ({"channels": Channel.low_pass()}, "one or more Channel"),
    "r_max of zero": ({"r_max": 0}, "r_max is 0"),
    "negative r_max": ({"r_max": -1e-3}, "r_max is -0.001"),
    "NaN r_max": ({"r_max": NAN}, "r_max is nan"),
    "unknown unit": ({"r_max_unit": "l2"}, "r_max_unit is 'l2'"),
    "beta above one": ({"beta": 1.01}, "beta is 1.01"),
    "negative self-loop": ({"self_loop": -1.0}, "self_loop is -1"),
    "infinite self-loop": ({"self_loop": INF}, "self_loop is inf"),
    "enormous self-loop": ({"self_loop": 1e31}, "self_loop is 1e"),
    "tiny self-loop": ({"self_loop": 1e-31}, "self_loop is 1e-31"),
    "directed without self-loop": ({"directed": True, "self_loop": 0.0}, "needs self_loop > 0"),
    "direction without directed": (
        {"channels": (Channel.low_pass(), Channel.low_pass(direction="in"))},
        "channel 1 has direction='in'",
    ),
    "directed by name": ({"directed": "yes"}, "directed is 'yes'"),
}


@pytest.mark.parametrize(("given", "message"), BAD_SETTINGS.values(), ids=BAD_SETTINGS.keys())
def test_settings_that_cannot_work_are_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        EngineSettings(**given)


def test_weights_are_forgotten_between_eight_and_twenty_four_half_lives() -> None:
    betas = {0.0: 8, 0.25: 10, 0.5: 16, 0.9: 24, 1.0: 24}
    for beta, bits in betas.items():
        channels = (Channel.low_pass(half_life=2.0), Channel.low_pass(half_life=3.0, beta=0.0))
        assert EngineSettings(channels, beta=beta).forget_bits(2.0) == bits


# Sketches -----------------------------------------------------------------------------------------

BAD_SKETCHES: dict[str, tuple[dict[str, Any], str]] = {
    "no columns": ({"columns": 0}, "columns is 0"),
    "fractional columns": ({"columns": 2.5}, "columns is 2.5"),
    "negative seed": ({"columns": 1, "seed": -1}, "seed is -1"),
    "seed beyond 64 bits": ({"columns": 1, "seed": 2**64}, "seed is"),
    "float seed": ({"columns": 1, "seed": 0.5}, "seed is 0.5"),
    "negative first column": ({"columns": 1, "first_column": -1}, "first_column is -1"),
    "unknown distribution": ({"columns": 1, "distribution": "cauchy"}, "distribution is 'cauchy'"),
}


@pytest.mark.parametrize(("given", "message"), BAD_SKETCHES.values(), ids=BAD_SKETCHES.keys())
def test_a_sketch_that_cannot_work_is_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Sketch(**given)


def splitmix_key(seed: int, node: int, column: int) -> int:
    """The key of a sketched feature in Python's own integers."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    h = mix(mix(seed + golden & mask) ^ (node + golden & mask))
    return mix(h ^ (column + golden & mask))


def test_sketched_features_are_those_of_integer_arithmetic() -> None:
    nodes, seed = [0, 1, 12345, 2**40], 2**64 - 1
    uniform = Sketch(3, seed, "uniform").rows(nodes)
    sign = Sketch(3, seed, "sign").rows(nodes)
    for i, node in enumerate(nodes):
        for column in range(3):
            key = splitmix_key(seed, node, column)
            assert uniform[i, column] == (key >> 11) * 2.0**-53
            assert sign[i, column] == (1.0 if key >> 63 else -1.0)


def test_parts_of_a_sketch_are_side_by_side_the_whole() -> None:
    whole = Sketch(7, seed=5, first_column=2)
    parts = [whole.part(first, columns).rows(range(9)) for first, columns in ((0, 3), (3, 4))]
    np.testing.assert_array_equal(np.hstack(parts), whole.rows(range(9)))
    np.testing.assert_array_equal(whole.rows(range(9)), Sketch(9, seed=5).rows(range(9))[:, 2:])


@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "sign"])
def test_sketched_features_have_the_norms_in_theory_that_they_have_in_fact(
    distribution: Any,
) -> None:
    sketch, nodes = Sketch(20, seed=1, distribution=distribution), 10_000
    x = sketch.rows(np.arange(nodes))
    # Columns are independent: 200,000 draws put each mean within 4/sqrt(200,000) of its value.
    for unit in ("rms", "l1"):
        theory, fact = sketch.norms(unit, nodes), Features(x, nodes).norms(unit)
        assert abs(fact.mean() / theory[0] - 1) < 0.01
    assert abs(float(np.mean(x[:, 0] * x[:, 1]) - x[:, 0].mean() * x[:, 1].mean())) < 0.04
    np.testing.assert_array_equal(sketch.rows([77, 5]), x[[77, 5]])


def test_an_empty_or_zero_column_counts_as_one() -> None:
    assert Features(np.zeros((3, 2)), 3).norms("rms").tolist() == [1.0, 1.0]
    assert Features(np.zeros((0, 2)), 0).norms("l1").tolist() == [1.0, 1.0]
    assert Features(Sketch(2), 0).norms("l1").tolist() == [1.0, 1.0]
    assert Features(np.array([[3.0], [-4.0]]), 2).norms("l1").tolist() == [7.0]


BAD_FEATURES: dict[str, tuple[Any, int | None, str]] = {
    "sketch without nodes": (Sketch(2), None, "nodes is None"),
    "sketch for fewer than no nodes": (Sketch(2), -1, "nodes is -1"),
    "vector": ([1.0, 2.0], None, "features have shape"),
    "no columns": (np.zeros((3, 0)), None, "features have shape"),
    "NaN": ([[NAN]], None, "node 0 in column 0 is nan"),
    "text": ([["a"]], None, "features have dtype"),
    "complex": ([[1j]], None, "features have dtype"),
    "ragged": ([[1.0], [1.0, 2.0]], None, "not a matrix"),
    "other number of nodes": ([[1.0]], 2, "nodes is 2"),
}


@pytest.mark.parametrize(
    ("features", "nodes", "message"), BAD_FEATURES.values(), ids=BAD_FEATURES.keys()
)
def test_features_that_cannot_be_used_are_rejected(
    features: Any, nodes: int | None, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        Features(features, nodes).check("float64")
