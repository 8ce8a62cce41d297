"""The native propagator beyond the laws: invalid input, saving, threads, forks, precision."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidegraph as tg
from tidegraph import Batch, Channel, EventError, EventStream, Op, Propagator, Sketch
from tidegraph.engine.features import Features
from tidegraph.engine.reference import exact_of

EVERY_VERSION = (
    Channel.low_pass(),
    Channel.high_pass(),
    Channel.low_pass(half_life=50.0),
    Channel.low_pass(window=40),
    Channel.high_pass(last=30),
)


def random_batches(seed: int, nodes: int, steps: int, rows: int = 4) -> list[Batch]:
    rng = np.random.default_rng(seed)
    batches = []
    for step in range(steps):
        src, dst = rng.integers(0, nodes, (2, rows))
        batches.append(Batch(src=src, dst=dst, weight=rng.uniform(0.2, 3, rows), t=3 * step))
    return batches


def busy_propagator(**options: Any) -> Propagator:
    """Return a small propagator with a history in every kind of version."""
    features = np.random.default_rng(1).normal(size=(60, 40))
    propagator = Propagator(features, **{"channels": EVERY_VERSION, "r_max": 5e-3, **options})
    for batch in random_batches(2, 60, 40):
        propagator.apply(batch)
    return propagator


def state_bytes(propagator: Propagator) -> bytes:
    return propagator._packed()


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ({"src": [0], "dst": [60]}, "node 60 .*60 nodes"),
        ({"src": [0, 7], "dst": [1, 7], "op": [Op.ADD, Op.REMOVE]}, "row 1.*edge"),
        (
            {"src": [0, 0], "dst": [1, 1], "op": [Op.SET, Op.REMOVE], "weight": [2.0, 2.5]},
            r"2\.5 .*weight 2",
        ),
        ({"src": [0], "dst": [1], "t": 5}, "200.*5|5.*200"),
        ({"src": [0], "dst": [1], "t": None}, r"\bt\b"),
        ({"removed_nodes": [60]}, "removed_nodes .*60"),
        (
            {"feature_nodes": [60], "feature_values": np.zeros((1, 40))},
            "feature_nodes .*60",
        ),
        ({"feature_nodes": [6], "feature_values": np.zeros((1, 39))}, "40"),
        ({"new_nodes": 2, "new_features": np.zeros((2, 41))}, "40"),
        ({"src": [0, 1], "dst": [1, 99], "new_nodes": 3}, r"node 99 .*\b63\b"),
        ({"src": [0, 0], "dst": [1, 1], "weight": [2.0**64] * 2}, r"2\*\*-64 .*2\*\*64"),
    ],
)
def test_a_batch_that_does_not_fit_changes_nothing(rows: dict[str, Any], facts: str) -> None:
    propagator = busy_propagator()
    propagator.apply(Batch(src=[0], dst=[1], t=200))
    before = state_bytes(propagator)
    with pytest.raises(tg.EventError, match=facts):
        propagator.apply(Batch(**{"t": 300, **rows}))
    assert state_bytes(propagator) == before
    propagator.apply(Batch(src=[0], dst=[1], t=300))


def test_batches_that_name_a_removed_node_are_rejected() -> None:
    propagator = busy_propagator()
    propagator.apply(Batch(removed_nodes=[3], t=200))
    before = state_bytes(propagator)
    for batch in (
        Batch(src=[3], dst=[4], t=201),
        Batch(removed_nodes=[3], t=201),
        Batch(feature_nodes=[3], feature_values=np.ones((1, 40)), t=201),
    ):
        with pytest.raises(tg.EventError, match="removed"):
            propagator.apply(batch)
    assert state_bytes(propagator) == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"r_max": 0.0}, tg.ParameterError),
        ({"r_max": -1.0}, tg.ParameterError),
        ({"r_max": float("nan")}, tg.ParameterError),
        ({"beta": 1.5}, tg.ParameterError),
        ({"dtype": "float16"}, tg.ParameterError),
        ({"threads": 0}, tg.ParameterError),
        ({"block_columns": 4}, tg.ParameterError),
        ({"directed": True, "self_loop": 0.0}, tg.ParameterError),
        ({"channels": ()}, tg.ParameterError),
        ({"channels": (Channel.low_pass(direction="in"),)}, tg.ParameterError),
        ({"initial": Batch(src=[0], dst=[5])}, tg.EventError),
        ({"initial": Batch(src=[0], dst=[1], op=Op.REMOVE)}, tg.EventError),
        ({"initial": Batch(new_nodes=1)}, tg.EventError),
    ],
)
def test_invalid_settings_are_rejected(options: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        Propagator(np.ones((3, 2)), **options)


@pytest.mark.parametrize(
    "features",
    [
        np.array([["a"]]),
        np.ones(3),
        np.ones((3, 0)),
        np.array([[np.nan]]),
        np.array([[np.inf]]),
        "x",
    ],
)
def test_features_that_are_not_a_matrix_are_rejected(features: Any) -> None:
    with pytest.raises(tg.ParameterError):
        Propagator(features)


def test_the_error_names_the_rejected_step_and_earlier_ones_stay_applied() -> None:
    one, other = (Propagator(np.eye(4)) for _ in range(2))
    batch = Batch(src=[0, 1, 2, 0], dst=[1, 2, 9, 3])
    with pytest.raises(tg.EventError, match=r"step 2: row 0 .*node 9.*\b2 steps"):
        one.apply_steps(batch, [0, 1, 2, 3, 4])
    other.apply_steps(Batch(src=[0, 1], dst=[1, 2]), [0, 1, 2])
    assert state_bytes(one) == state_bytes(other)
    for offsets in ([0, 5], [2, 1], [-1, 2], [0.0, 1.0], []):
        with pytest.raises(tg.EventError, match="offsets"):
            one.apply_steps(batch, offsets)


def test_reading_unknown_nodes_is_an_error() -> None:
    propagator = Propagator(np.eye(3))
    for nodes in ([3], [-1], [0.5], [[0]]):
        with pytest.raises(tg.EventError, match="node"):
            propagator.embedding(nodes)


def test_an_r_max_beyond_float32_is_rejected_with_advice_that_works() -> None:
    sketch = Sketch(8)
    with pytest.raises(tg.PrecisionError, match=r"r_max >= (\S+) .*dtype='float64'") as caught:
        Propagator(sketch, nodes=100, r_max=1e-8)
    advised = float(str(caught.value).split("r_max >= ")[1].split()[0])
    Propagator(sketch, nodes=100, r_max=advised)
    propagator = Propagator(sketch, nodes=100, r_max=1e-8, dtype="float64")
    with pytest.raises(tg.PrecisionError):
        propagator.refine(1e-19)
    assert propagator.r_max == 1e-8


def test_the_advice_after_refining_is_in_the_unit_of_the_user() -> None:
    propagator = Propagator(Sketch(8), nodes=100, r_max=1e-2)
    propagator.refine(1e-4)
    with pytest.raises(tg.PrecisionError, match=r"r_max=1e-09 .* r_max >= ") as caught:
        propagator.refine(1e-9)
    propagator.refine(float(str(caught.value).split("r_max >= ")[1].split()[0]))


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_features_of_any_size_are_propagated(size: float) -> None:
    features = np.random.default_rng(0).normal(size=(6, 3)) * size
    edges = Batch(src=[0, 1, 2], dst=[1, 2, 3])
    propagator = Propagator(features, initial=edges, dtype="float64", r_max=1e-6)
    error = np.abs(propagator.embedding() - exact_of(propagator))
    assert (error <= propagator.error_bound()).all()
    assert (propagator.embedding() != 0).all()


def test_the_error_names_a_feature_that_the_dtype_cannot_hold() -> None:
    features = np.ones((5000, 3))
    edges = Batch(src=[0, 1, 2], dst=[1, 2, 3])
    for value, facts in (
        (1e300, r"node 4321 in column 2 is 1e\+300, .*3.4e\+38, .*float32"),
        (np.nan, "node 4321 in column 2 is nan"),
        (-np.inf, "node 4321 in column 2 is -inf"),
    ):
        features[4321, 2] = value
        with pytest.raises(tg.ParameterError, match=facts):
            Propagator(features, initial=edges)
        with pytest.raises(tg.ParameterError, match=facts):
            tg.propagate(edges.src, edges.dst, features)
    features[4321, 2] = 1e300
    propagator = Propagator(features, initial=edges, dtype="float64")
    assert np.isfinite(propagator.embedding()).all()
    single = Propagator(np.full((6, 1), 1e30), initial=edges)
    with pytest.raises(tg.PrecisionError, match=r"1e\+11 times"):
        single.apply(Batch(feature_nodes=[0], feature_values=[[1e39]]))


def test_features_far_beyond_the_first_are_rejected() -> None:
    propagator = Propagator(np.eye(6), initial=Batch(src=[0, 1], dst=[1, 2]))
    before = state_bytes(propagator)
    for batch in (
        Batch(feature_nodes=[0], feature_values=np.full((1, 6), 1e38)),
        Batch(new_nodes=1, new_features=np.full((1, 6), 1e38)),
    ):
        with pytest.raises(tg.PrecisionError, match="dtype='float64'"):
            propagator.apply(batch)
    assert state_bytes(propagator) == before


def test_a_rejected_first_batch_does_not_start_the_clock() -> None:
    propagator = Propagator(np.eye(3), channels=(Channel.low_pass(half_life=2.0),))
    before = state_bytes(propagator)
    with pytest.raises(tg.EventError):
        propagator.apply(Batch(src=[0], dst=[99], t=5))
    assert state_bytes(propagator) == before


def test_more_half_lives_than_an_edge_has_weights_are_rejected() -> None:
    channels = [Channel.low_pass(half_life=float(h)) for h in range(1, 65)]
    with pytest.raises(tg.ParameterError, match=r"64 .*63"):
        Propagator(np.eye(3), channels=channels)
    Propagator(np.eye(3), channels=channels[:63]).apply(Batch(src=[0], dst=[1], t=1))


def test_units_far_from_the_start_lose_no_digits() -> None:
    channels = (Channel.low_pass(half_life=1.0, beta=0.3),)
    propagator = Propagator(Sketch(8), nodes=10, channels=channels)
    rng = np.random.default_rng(0)
    propagator.apply(Batch(src=[0], dst=[1], t=0))
    for step in range(60):
        src, dst = rng.integers(0, 10, (2, 2))
        propagator.apply(Batch(src=src, dst=dst, t=2**44 + 3 * step))
    assert propagator.audit().drift.max() < 0.05


def test_unknown_channels_are_rejected() -> None:
    propagator = Propagator(np.eye(3))
    for channel in (1, -1, "low"):
        with pytest.raises(tg.ParameterError, match="0 to 0"):
            propagator.loops(channel)  # type: ignore[arg-type]
        with pytest.raises(tg.ParameterError, match="0 to 0"):
            propagator.edges(channel)  # type: ignore[arg-type]


def test_refining_tightens_the_promise_and_keeps_it() -> None:
    propagator = busy_propagator(r_max=5e-2)
    loose = propagator.threshold()
    propagator.refine(5e-3)
    np.testing.assert_allclose(propagator.threshold(), loose / 10)
    error = np.abs(propagator.embedding() - exact_of(propagator))
    assert (error <= propagator.error_bound()).all()
    # Drift and the rounding of the output come on top of the promise.
    rounding = 2.0**-22 * np.abs(exact_of(propagator))
    assert (error <= propagator.threshold() * (1 + propagator.audit().drift.max()) + rounding).all()
    for batch in random_batches(8, 60, 5):
        propagator.apply(Batch(src=batch.src, dst=batch.dst, t=1000))
    assert propagator.audit().residual.max() <= 1 + propagator.audit().drift.max()


def test_repair_removes_drift() -> None:
    propagator = busy_propagator()
    before = propagator.audit().drift.max()
    propagator.repair()
    assert propagator.audit().drift.max() < before


@pytest.mark.slow
@pytest.mark.parametrize("r_max", [1e-2, 1e-3, 1e-4])
def test_the_bound_survives_a_million_random_additions_and_removals_in_float32(
    r_max: float,
) -> None:
    rng = np.random.default_rng(3)
    nodes, edges, events, piece = 1000, 10_000, 1_000_000, 100_000
    src, dst = rng.integers(0, nodes, (2, edges))
    propagator = Propagator(
        Sketch(8, seed=4), nodes=nodes, r_max=r_max, initial=Batch(src=src, dst=dst)
    )
    present = list(zip(src.tolist(), dst.tolist(), strict=True))
    for _ in range(events // piece):
        rows = []
        for _ in range(piece // 2):  # one added, one removed: degrees stay near twenty
            new = (int(rng.integers(nodes)), int(rng.integers(nodes)))
            at = int(rng.integers(len(present)))
            rows += [(*new, 0), (*present[at], 1)]
            present[at] = new
        a, b, op = np.array(rows).T
        batch = Batch(src=a, dst=b, op=op, weight=np.ones(piece))
        propagator.apply_steps(batch, np.arange(piece + 1))
        error = np.abs(propagator.embedding() - exact_of(propagator))
        assert (error <= propagator.error_bound()).all()
        assert (propagator.error_bound() <= propagator.threshold() * 1.01).all()
    assert propagator.audit().drift.max() < 0.01


def reload_file(propagator: Propagator, path: Path) -> Propagator:
    propagator.save(path / "state")
    return Propagator.load(path / "state")


@pytest.mark.parametrize(
    "again",
    [
        reload_file,
        lambda propagator, _: pickle.loads(pickle.dumps(propagator)),
        lambda propagator, _: copy.copy(propagator),
        lambda propagator, _: copy.deepcopy(propagator),
    ],
    ids=["save", "pickle", "copy", "deepcopy"],
)
@pytest.mark.parametrize("options", [{}, {"dtype": "float64"}, {"directed": True}])
def test_a_restored_propagator_continues_to_the_bit(
    again: Callable[[Propagator, Path], Propagator], options: dict[str, Any], tmp_path: Path
) -> None:
    propagator = busy_propagator(**options)
    other = again(propagator, tmp_path)
    assert state_bytes(other) == state_bytes(propagator)
    for batch in (
        Batch(new_nodes=2, new_features=np.ones((2, 40)), src=[60, 61], dst=[0, 1], t=150),
        Batch(src=[5, 5], dst=[6, 7], t=170),
        Batch(removed_nodes=[5], t=171),
        Batch(t=2000),
        Batch(src=[8], dst=[9], t=2001),
    ):
        np.testing.assert_array_equal(propagator.apply(batch), other.apply(batch))
    assert state_bytes(other) == state_bytes(propagator)


def test_a_sketch_goes_on_for_nodes_added_after_loading(tmp_path: Path) -> None:
    propagator = reload_file(Propagator(Sketch(16, seed=9), nodes=5), tmp_path)
    propagator.apply(Batch(new_nodes=3))
    np.testing.assert_allclose(
        propagator.features(), Sketch(16, seed=9).rows(np.arange(8)), rtol=2**-23
    )


def test_any_damage_to_a_state_file_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "state"
    busy_propagator(channels=(Channel.low_pass(),)).save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    for at in [*rng.integers(0, len(whole), 60).tolist(), 0, 17, 30, len(whole) - 1]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(tg.StateFileError):
            Propagator.load(path)
    for size in (0, 10, 44, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(tg.StateFileError):
            Propagator.load(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(tg.StateFileError, match="bytes"):
        Propagator.load(path)
    path.write_bytes(whole)
    Propagator.load(path)
    with pytest.raises(tg.StateFileError, match="absent"):
        Propagator.load(tmp_path / "absent")


def test_a_failed_save_leaves_the_old_file_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    propagator = busy_propagator()
    propagator.save(tmp_path / "state")
    before = (tmp_path / "state").read_bytes()
    propagator.apply(Batch(src=[0], dst=[1], t=500))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        propagator.save(tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == before
    assert os.listdir(tmp_path) == ["state"]


def test_any_number_of_threads_gives_the_same_bits() -> None:
    states = {state_bytes(busy_propagator(threads=threads)) for threads in (1, 2, 3, 5)}
    assert len(states) == 1


def test_calls_from_several_threads_queue() -> None:
    propagator = Propagator(Sketch(64), nodes=200)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for batch in random_batches(seed, 200, 50):
                propagator.apply(Batch(src=batch.src, dst=batch.dst))
                assert np.isfinite(propagator.embedding([seed])).all()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert propagator.statistics()["events"] == 4 * 50 * 4
    error = np.abs(propagator.embedding() - exact_of(propagator))
    assert (error <= propagator.error_bound()).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_goes_on_like_its_parent() -> None:
    propagator = busy_propagator(threads=2)
    batch = Batch(src=[1, 2, 3], dst=[4, 5, 6], t=400)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            propagator.apply(batch)
            os.write(write, propagator.embedding().tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        received = pipe.read()
    os.waitpid(child, 0)
    propagator.apply(batch)
    assert received == propagator.embedding().tobytes()


def test_a_snapshot_applies_only_the_difference() -> None:
    propagator = Propagator(np.eye(5), r_max=1e-3)
    propagator.apply_snapshot([0, 0, 1], [1, 1, 2])
    src, dst, weight = propagator.edges()
    assert sorted(zip(src, dst, weight, strict=True)) == [(0, 1, 2.0), (1, 2, 1.0)]
    events = propagator.statistics()["events"]
    propagator.apply_snapshot([1, 2], [0, 3], [2.0, 0.5])
    assert propagator.statistics()["events"] - events == 2  # (0, 1) stays as it is
    src, dst, weight = propagator.edges()
    assert sorted(zip(src, dst, weight, strict=True)) == [(0, 1, 2.0), (2, 3, 0.5)]
    fresh = Propagator(np.eye(5), r_max=1e-3, initial=Batch([0, 2], [1, 3], weight=[2.0, 0.5]))
    bound = propagator.error_bound() + fresh.error_bound()
    assert (np.abs(propagator.embedding() - fresh.embedding()) <= bound).all()
    assert propagator.apply_snapshot([], []).tolist() == [0, 1, 2, 3]
    with pytest.raises(tg.EventError, match="node 5"):
        propagator.apply_snapshot([0], [5])


def test_the_error_of_a_snapshot_names_the_row_given() -> None:
    propagator = Propagator(np.eye(5), channels=(Channel.low_pass(half_life=1.0),))
    propagator.apply(Batch(src=[0, 2], dst=[1, 3], t=10))
    propagator.apply(Batch(removed_nodes=[4], t=10))
    before = state_bytes(propagator)
    for src, dst, t, facts in (
        ([0, 2, 1], [1, 3, 5], 10, r"row 2 \(1, 5\): node 5 "),
        ([0, 2, 4], [1, 3, 2], 10, r"row 2 \(4, 2\): node 4 .*removed"),
        ([0], [1], 9, "10.*9|9.*10"),
        ([0], [1], None, r"\bt\b"),
    ):
        with pytest.raises(EventError, match=facts):
            propagator.apply_snapshot(src, dst, t=t)
        assert state_bytes(propagator) == before


def test_steps_in_one_call_equal_steps_one_by_one() -> None:
    features = np.random.default_rng(0).normal(size=(30, 20))
    one, other = (Propagator(features) for _ in range(2))
    batches = random_batches(6, 30, 20)
    joined = Batch(
        src=np.concatenate([b.src for b in batches]),
        dst=np.concatenate([b.dst for b in batches]),
        weight=np.concatenate([b.weight for b in batches if b.weight is not None]),
    )
    counts = one.apply_steps(joined, np.arange(0, 81, 4))
    touched = [other.apply(Batch(b.src, b.dst, weight=b.weight)).size for b in batches]
    assert counts.tolist() == touched
    assert state_bytes(one) == state_bytes(other)


def test_nodes_that_decay_moved_are_touched_even_if_many_new_ones_arrive() -> None:
    propagator = Propagator(
        Sketch(8),
        nodes=40,
        channels=(Channel.low_pass(half_life=1.0),),
        initial=Batch([0], [1], t=0),
    )
    touched = propagator.apply(Batch(new_nodes=2000, src=[2], dst=[40], t=500))
    assert touched.tolist() == [0, 1, 2, *range(40, 2040)]


@pytest.mark.parametrize(
    "r_max",
    [pytest.param(0.5, id="few nodes move"), pytest.param(1e-4, id="all nodes move")],
)
def test_a_long_call_counts_the_nodes_touched_in_each_of_its_steps(r_max: float) -> None:
    nodes, steps = 300, 600
    src, dst = np.random.default_rng(6).integers(0, nodes, (2, steps))
    one, other = (Propagator(Sketch(16), nodes=nodes, r_max=r_max) for _ in range(2))
    counts = one.apply_steps(Batch(src, dst), np.arange(steps + 1))
    touched = [other.apply(Batch([a], [b])).size for a, b in zip(src, dst, strict=True)]
    assert counts.tolist() == touched
    assert (counts.max() > 0.9 * nodes) == (r_max == 1e-4)


def test_the_native_sketch_equals_the_one_in_numpy() -> None:
    for distribution in ("gaussian", "uniform", "sign"):
        sketch = Sketch(7, seed=2**63 + 5, distribution=distribution)
        propagator = Propagator(
            sketch, nodes=300, dtype="float64", r_max_unit="absolute", r_max=1.0
        )
        np.testing.assert_array_equal(propagator.features(), sketch.rows(np.arange(300)))


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("heaviest", [1.0, 2.0**20])
def test_a_silence_of_any_length_leaves_no_significant_drift(heaviest: float, beta: float) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 16))
    src, dst = rng.integers(0, 60, (2, 200))
    weight = np.where(np.arange(200) % 10 == 0, heaviest, 1.0)
    options: dict[str, Any] = {
        "channels": (Channel.low_pass(half_life=1000.0),),
        "beta": beta,
        "dtype": "float64",
    }
    finest = Propagator(features, r_max=1.0, **options)._native.finest_tolerance()
    for half_lives in (4, 8, 9, 12, 16, 20, 24, 28, 30, 32, 33, 40):
        propagator = Propagator(features, r_max=100 * finest, **options)
        propagator.apply(Batch(src=src, dst=dst, weight=weight, t=0))
        propagator.apply(Batch(src=[1], dst=[2], t=1000 * half_lives))
        audit = propagator.audit()
        assert audit.drift.max() < 0.01  # the precision is a hundredth of r_max
        assert audit.residual.max() < 1.01


def test_a_node_idle_for_thousands_of_half_lives_stays_finite() -> None:
    propagator = Propagator(Sketch(8), nodes=10, channels=(Channel.low_pass(half_life=1.0),))
    time = 0
    for pause in (0, 1, 30, 31, 33, 500, 5000, 10**6, 10**12):
        time += pause
        propagator.apply(Batch(src=[0, 1], dst=[1, 2], t=time))
        error = np.abs(propagator.embedding() - exact_of(propagator))
        assert (error <= propagator.error_bound()).all()
        assert np.isfinite(propagator.degree()).all()
        assert (propagator.degree() > 0).all()


def test_propagate_equals_a_static_propagator() -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 50, (2, 200))
    features = rng.normal(size=(50, 6))
    propagator = Propagator(features, initial=Batch(src, dst), r_max=1e-4)
    result = tg.propagate(src, dst, features, r_max=1e-4)
    np.testing.assert_array_equal(result, propagator.embedding()[:, 0])
    assert (np.abs(result - exact_of(propagator)[:, 0]) <= propagator.error_bound()[:, 0]).all()


def test_the_steps_of_a_stream_are_applied_as_they_are() -> None:
    random = np.random.default_rng(3)
    stream = EventStream(random.integers(0, 20, 90), random.integers(0, 20, 90), np.arange(90) // 3)
    one, other = (Propagator(Sketch(8), nodes=20, threads=1) for _ in range(2))
    steps = stream.steps()
    counts = one.apply_steps(steps)
    expected = other.apply_steps(steps.batch(0, len(steps)), steps.offsets)
    assert np.array_equal(counts, expected)
    assert np.array_equal(one.embedding(), other.embedding())
    with pytest.raises(EventError, match="offsets"):
        one.apply_steps(steps, [0, 1])
    with pytest.raises(EventError, match=r"Batch .*offsets.*Steps"):
        one.apply_steps(Batch(src=[0], dst=[1]))


def test_propagating_once_copies_no_features() -> None:
    features = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    assert Features(features, None, unchanging=True).in_place() is features
    assert Features(features, None).in_place() is None  # somebody may write to it later


@pytest.mark.parametrize(
    "one",
    [
        Channel.low_pass(),
        Channel.high_pass(0.3, window=40, beta=0.0),
        Channel(gamma0=1.0, gamma=0.5, direction="in"),
        Channel(gamma0=0.2, gamma=0.8, half_life=2, last=None),
        Sketch(8),
        Sketch(8, seed=3, distribution="sign", first_column=5),
    ],
    ids=repr,
)
def test_the_repr_of_a_channel_or_sketch_is_the_call_that_makes_it(one: Channel | Sketch) -> None:
    assert eval(repr(one), {"Channel": Channel, "Sketch": Sketch}) == one
    assert "None" not in repr(one)


def test_propagators_and_engine_settings_have_the_same_defaults() -> None:
    settings = tg.EngineSettings()
    parameters = inspect.signature(Propagator).parameters
    for field in dataclasses.fields(settings):
        assert parameters[field.name].default == getattr(settings, field.name)
    assert Propagator(np.eye(3)).settings == settings


def test_the_repr_of_a_propagator_shows_what_it_computes() -> None:
    propagator = busy_propagator(directed=True)
    for fact in (
        "directed",
        "nodes=60",
        "columns=40",
        "time=117",
        "Channel.low_pass(0.2, window=40)",
    ):
        assert fact in repr(propagator)
    assert "time" not in repr(Propagator(np.eye(3)))
    assert propagator.settings.channels == EVERY_VERSION


def test_steps_without_nodes_do_nothing() -> None:
    empty = Propagator(
        Sketch(64), nodes=0, channels=[Channel.low_pass(), Channel.high_pass()], threads=2
    )
    assert empty.apply_steps(Batch(src=[], dst=[]), [0, 0, 0]).tolist() == [0, 0]
