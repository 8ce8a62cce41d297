"""The promise at every magnitude: each case once hung the engine or broke its threshold."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracle import Oracle

from tidegraph import Batch, Channel, EventStream, PrecisionError, Propagator, record
from tidegraph.core.errors import ParameterError
from tidegraph.engine import bridge, building
from tidegraph.events.batch import Op

DTYPES = ("float32", "float64")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def assert_kept(propagator: Propagator, oracle: Oracle) -> None:
    """Assert that certificate and promise hold according to the oracle."""
    answer = oracle.answer()
    error = np.abs(propagator.embedding().astype(np.longdouble) - answer.pi)
    bound, threshold = propagator.error_bound(), propagator.threshold()
    assert (error <= bound + answer.rounding).all(), float((error / bound).max())
    assert (bound <= threshold * (1 + 1e-6)).all(), float((bound / threshold).max())


def follow(features: Any, batches: Sequence[Batch], **options: Any) -> Propagator:
    """Apply batches to a propagator and an oracle, compare them after each, return the former."""
    propagator = Propagator(features, **options)
    known = {name: value for name, value in options.items() if name not in ("dtype", "threads")}
    oracle = Oracle(features, **known)
    for batch in batches:
        propagator.apply(batch)
        oracle.apply(batch)
        assert_kept(propagator, oracle)
    return propagator


PATH = Batch([0, 1, 2, 3, 4], [1, 2, 3, 4, 5])


@every_dtype
@pytest.mark.parametrize("as_new_node", [False, True])
def test_a_huge_feature_is_accepted_or_rejected_before_anything_changes(
    dtype: Any, as_new_node: bool
) -> None:
    features = np.eye(6, 3)
    propagator = Propagator(features, initial=PATH, dtype=dtype)
    oracle = Oracle(features, initial=PATH)
    before = propagator.embedding()
    row = np.full((1, 3), 1e6)
    batch = (
        Batch(new_nodes=1, new_features=row)
        if as_new_node
        else Batch(feature_nodes=[2], feature_values=row)
    )
    if dtype == "float32":
        with pytest.raises(PrecisionError, match=r"refine\(\)"):
            propagator.apply(batch)
        assert propagator.nodes == 6
        np.testing.assert_array_equal(propagator.embedding(), before)
        propagator.refine(10.0)
        oracle.refine(10.0)
    propagator.apply(batch)
    oracle.apply(batch)
    assert_kept(propagator, oracle)


@every_dtype
@pytest.mark.parametrize("weight", [1e6, 1e8, 1e10, 1e18])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_removing_a_heavy_edge_leaves_no_error(dtype: Any, weight: float, beta: float) -> None:
    batches = [Batch([1], [4], weight=[weight]), Batch([1], [4], op=Op.REMOVE)]
    features = np.random.default_rng(0).normal(size=(6, 5))
    follow(features, batches, initial=PATH, dtype=dtype, beta=beta)


@every_dtype
def test_light_edges_without_self_loops_converge_or_are_rejected(dtype: Any) -> None:
    features = np.random.default_rng(1).normal(size=(4, 2))
    light = Batch([0, 1, 2], [1, 2, 3], weight=[1e-6] * 3)
    options: dict[str, Any] = {"beta": 0.0, "self_loop": 0.0, "dtype": dtype}
    if dtype == "float32":
        with pytest.raises(PrecisionError, match="weight 1e-06"):
            follow(features, [light], **options)
        options["r_max"] = 1e3
    follow(features, [light], **options)


def test_later_features_are_rejected_like_those_at_the_start() -> None:
    large = np.full((3, 1), 1e3)
    edges = Batch([0, 1], [1, 2])
    options: dict[str, Any] = {"r_max": 1e-4, "r_max_unit": "absolute", "initial": edges}
    with pytest.raises(PrecisionError):
        Propagator(large, **options)
    propagator = Propagator(np.ones((3, 1)), **options)
    with pytest.raises(PrecisionError):
        propagator.apply(Batch(feature_nodes=[0, 1, 2], feature_values=large))
    assert propagator.features().tolist() == [[1.0]] * 3


def test_large_features_and_light_edges_can_be_rejected_only_together() -> None:
    def start() -> Propagator:
        return Propagator(np.ones((3, 1)), self_loop=0.0, r_max_unit="absolute", r_max=1e-2)

    features: dict[str, Any] = {"feature_nodes": [0], "feature_values": [[30.0]]}
    edge: dict[str, Any] = {"src": [0], "dst": [1], "weight": [1e-6]}
    start().apply(Batch(**features))
    start().apply(Batch(**edge))
    propagator = start()
    with pytest.raises(PrecisionError):
        propagator.apply(Batch(**features, **edge))
    assert propagator.features().tolist() == [[1.0]] * 3
    assert propagator.statistics()["edges"] == 0
    propagator.apply(Batch(**edge))


@every_dtype
@pytest.mark.parametrize("sigma", [2.0, 5.0])
def test_a_window_over_heavy_tailed_flows_keeps_the_promise(dtype: Any, sigma: float) -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(40, 4))
    batches = [
        Batch(
            rng.integers(0, 40, 30),
            rng.integers(0, 40, 30),
            weight=np.clip(rng.lognormal(0, sigma, 30), 1e-9, 1e9),
            t=t,
        )
        for t in range(0, 300, 10)
    ]
    channels = [Channel.low_pass(window=50), Channel.high_pass(half_life=20.0)]
    batches.append(Batch(t=10_000))  # after which no edge is left
    follow(features, batches, channels=channels, dtype=dtype)


@every_dtype
def test_weights_are_those_the_user_gave(dtype: Any) -> None:
    propagator = Propagator(np.eye(3), dtype=dtype)
    for batch in (
        Batch([0], [1], weight=[1000000.5]),
        Batch([0], [1], weight=[1e6], op=Op.REMOVE),
        Batch([1] * 200_000, [2] * 200_000, weight=[0.1] * 200_000),
    ):
        propagator.apply(batch)
    total = sum([0.1] * 200_000)
    assert propagator.edges()[2].tolist() == [0.5, total]
    follow(
        np.eye(3),
        [Batch([0, 1, 2], [1, 2, 0], weight=[0.1, 0.7, 0.3])],
        dtype="float64",
        r_max=1e-10,
    )


def test_an_undecayed_graph_that_no_channel_reads_rejects_nothing() -> None:
    channels = [Channel.low_pass(half_life=1.0)]
    batches = [Batch([0], [1], weight=[1e12], t=0), Batch([0], [1], weight=[1e-9], t=100)]
    follow(np.eye(2), batches, channels=channels)


@every_dtype
def test_a_decayed_edge_fades_without_a_jump(dtype: Any) -> None:
    channels = [Channel.low_pass(half_life=1.0)]
    propagator = Propagator(np.eye(2), channels=channels, dtype=dtype)
    propagator.apply(Batch([0], [1], weight=[64.0], t=0))
    seen = []
    for t in range(1, 90):
        propagator.apply(Batch(t=t))
        seen.append(float(propagator.embedding()[0, 0, 1]))
    assert seen[-1] == pytest.approx(0, abs=0.01)
    assert (np.abs(np.diff(seen)) < 0.1).all()
    assert len(propagator.edges(0)[0]) == 0


@every_dtype
@pytest.mark.parametrize("weight", [1.0, 1e-5])
def test_without_self_loops_edges_last_relative_to_their_weights(dtype: Any, weight: float) -> None:
    channels = [Channel.low_pass(half_life=1.0)]
    options: dict[str, Any] = {"channels": channels, "self_loop": 0.0, "dtype": dtype}
    options["r_max"] = 0.1 if dtype == "float64" else 10.0
    batches = [Batch([0, 1], [1, 2], weight=[weight, 2 * weight], t=0)]
    batches += [Batch(t=t) for t in (3, 16, 17, 40)]
    follow(np.eye(3), batches, **options)


@every_dtype
@pytest.mark.parametrize("size", [1e-280, 1e-40, 1e-12, 1e12, 1e30])
def test_the_bound_holds_for_features_of_any_size(dtype: Any, size: float) -> None:
    features = np.array([[size], [0.0], [-size], [0.5 * size]])
    if dtype == "float32" and size < 1e-35:
        with pytest.raises(ParameterError, match="range of float32"):
            Propagator(features, dtype=dtype, r_max_unit="l1")
        return
    follow(features, [Batch([0, 1], [1, 2]), Batch([2], [3])], dtype=dtype, r_max_unit="l1")


def test_an_estimate_beyond_the_largest_number_is_an_error() -> None:
    channels = [Channel(1e30, 0.5)]
    batch = Batch([0], [1])
    single = Propagator(np.eye(2) * 1e20, channels=channels, initial=batch)
    with pytest.raises(PrecisionError, match=r"3\.4e\+38, .*float32"):
        single.embedding()
    follow(np.eye(2) * 1e20, [batch], channels=channels, dtype="float64")


def test_both_directions_of_a_self_edge_add_up() -> None:
    batches = [Batch([0, 0], [0, 1], weight=[2.0, 3.0])]
    channels = [Channel.low_pass(direction="both")]
    propagator = follow(np.eye(2), batches, directed=True, channels=channels)
    assert propagator.degree()[:, 0].tolist() == [8.0, 4.0]


def test_the_lightest_edge_of_a_graph_in_files_is_checked(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    src, dst = np.unique(np.sort(rng.integers(0, 40, (2, 90)), axis=0), axis=1)
    table = pa.table({"src": src, "dst": dst, "w": rng.uniform(1e-9, 2e-9, len(src))})
    pq.write_table(table, tmp_path / "edges.parquet")
    graph = building.build(tmp_path / "edges.parquet", tmp_path / "graph", weight="w", nodes=40)
    options: dict[str, Any] = {"self_loop": 0.0, "beta": 0.0}
    features = rng.normal(size=(40, 2))
    edges = Batch(src, dst, weight=table["w"].to_numpy())
    for initial in (graph, edges):
        with pytest.raises(PrecisionError):
            Propagator(features, initial=initial, **options)
    for initial in (graph, edges):
        propagator = Propagator(features, initial=initial, dtype="float64", **options)
        assert_kept(propagator, Oracle(features, initial=edges, **options))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("sweep", [False, True])
def test_a_graph_from_files_keeps_the_promise_for_the_weights_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, directed: bool, sweep: bool
) -> None:
    rng = np.random.default_rng(seed)
    nodes, rows = 12, 60
    src, dst = rng.integers(0, nodes, (2, rows))  # repeated edges and self-edges among them
    weight = 10 ** rng.uniform(-15, 15, rows)
    table = pa.table({"src": src, "dst": dst, "w": weight})
    pq.write_table(table, tmp_path / "edges.parquet")
    where = tmp_path / "edges.parquet", tmp_path / "graph"
    graph = building.build(*where, weight="w", nodes=nodes, directed=directed)
    monkeypatch.setattr(bridge, "_SWEEP_NODES", 0 if sweep else 1 << 20)
    directions: tuple[Any, ...] = ("out", "in", "both") if directed else ("out",)
    options: dict[str, Any] = {
        "channels": [Channel.low_pass(direction=which) for which in directions],
        "directed": directed,
        "r_max": 1e-10,
    }
    features = rng.normal(size=(nodes, 3))
    edges = Batch(src, dst, weight=weight)
    from_files = Propagator(features, initial=graph, dtype="float64", **options)
    assert_kept(from_files, Oracle(features, initial=edges, **options))
    # The rows of an edge add up in their order in either form.
    from_rows = Propagator(features, initial=edges, dtype="float64", **options)
    np.testing.assert_array_equal(from_files.embedding(), from_rows.embedding())
    np.testing.assert_array_equal(from_files.residual(), from_rows.residual())
    np.testing.assert_array_equal(from_files.degree(), from_rows.degree())
    options["r_max"] = 1e-4
    coarse = Propagator(features, initial=graph, **options)
    assert_kept(coarse, Oracle(features, initial=edges, **options))


def test_the_advised_lightest_edge_is_accepted_for_good() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(3, 1))
        options: dict[str, Any] = {"self_loop": 0.0, "beta": float(rng.uniform(0, 0.5))}
        options["r_max"] = float(10 ** rng.uniform(-3, -1))
        with pytest.raises(PrecisionError) as caught:
            Propagator(features, **options).apply(Batch([0], [1], weight=[2.0**-64]))
        found = re.search(r"lightest\D*([0-9.e+-]+);", str(caught.value))
        assert found is not None
        lightest = float(found[1]) * (1 + 1e-5)  # the error has six digits
        propagator = Propagator(features, **options)
        propagator.apply(Batch([0], [1], weight=[lightest]))
        propagator.apply(Batch([1], [2]))
        assert (propagator.error_bound() <= propagator.threshold()).all()


@pytest.mark.parametrize("size", [1e-44, 1e-50])
def test_a_promise_below_the_smallest_float32_is_rejected(size: float) -> None:
    with pytest.raises(ParameterError, match=r"range of float32; .*float64"):
        Propagator(np.eye(3) * size, initial=Batch([0], [1]), beta=1.0)


def test_tightening_cannot_leave_the_range_of_the_dtype() -> None:
    features = np.eye(3) * 1e-30
    propagator = Propagator(features, r_max=1e14, r_max_unit="absolute", initial=Batch([0], [1]))
    with pytest.raises(PrecisionError):
        propagator.refine(1e-33)
    assert np.isfinite(propagator.audit().drift).all()


def test_a_node_of_a_graph_with_repeated_edges_can_be_removed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"src": [0, 0, 0, 0], "dst": [1, 1, 2, 3]}), tmp_path / "e.parquet")
    graph = building.build(tmp_path / "e.parquet", tmp_path / "graph")
    propagator = Propagator(np.eye(4), initial=graph)
    propagator.apply(Batch(removed_nodes=[1]))
    assert propagator.degree()[:, 0].tolist() == [3.0, 1.0, 2.0, 2.0]
    oracle = Oracle(np.eye(4), initial=Batch([0, 0, 0, 0], [1, 1, 2, 3]))
    oracle.apply(Batch(removed_nodes=[1]))
    assert_kept(propagator, oracle)


@pytest.mark.parametrize("t", [10, 10**7, 10**9])
def test_a_new_node_may_arrive_when_half_lives_round_to_a_whole_number(t: int) -> None:
    batches = [
        Batch([0], [1], t=0),
        Batch([0], [2], t=t, new_nodes=1, new_features=[[1.0]]),
        Batch([2], [1], t=t + 1),
    ]
    channels = [Channel.low_pass(half_life=0.1)]
    follow(np.ones((2, 1)), batches, channels=channels, r_max=1e-9, dtype="float64")


def test_a_feature_that_overflows_with_a_heavy_degree_is_rejected() -> None:
    edges = Batch([0, 1], [1, 2], weight=[2.0**64, 1.0])
    propagator = Propagator(np.ones((3, 1)), initial=edges, beta=1.0, r_max=1e-3)
    propagator.refine(1e12)
    with pytest.raises(PrecisionError):
        propagator.apply(Batch(feature_nodes=[0], feature_values=[[3e17]]))
    assert np.isfinite(propagator.residual()).all()


# Work and interrupts -----------------------------------------------------------------------------


@every_dtype
def test_the_pushes_of_a_step_are_bounded_in_advance(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(50, 3))
    src, dst = rng.integers(0, 50, (2, 400))
    edges = Batch(src, dst, weight=10.0 ** rng.uniform(-3, 3, 400))
    channels = [Channel(1.0, 0.99), Channel(1.0, -0.99)]
    coarse = Propagator(features, channels=channels, initial=edges, dtype=dtype, r_max=1e3)
    finest = coarse._native.finest_tolerance()
    propagator = Propagator(
        features, channels=channels, initial=edges, dtype=dtype, r_max=1e3 * 1.01 * finest
    )
    for _ in range(20):
        before = propagator.statistics()
        a, b = rng.integers(0, 50, (2, 5))
        propagator.apply(Batch(a, b, weight=10.0 ** rng.uniform(-3, 3, 5)))
        after = propagator.statistics()
        assert after["pushes"] - before["pushes"] <= after["most_pushes"]
        assert after["stalled"] == 0


def slow_case(threads: int) -> tuple[Propagator, Batch]:
    """Return a propagator and a batch that takes a second."""
    rng = np.random.default_rng(4)
    nodes = 16_000
    src, dst = rng.integers(0, nodes, (2, 8 * nodes))
    propagator = Propagator(
        rng.normal(size=(nodes, 32)),
        channels=[Channel.low_pass(0.01)],
        dtype="float64",
        r_max=1e-8,
        threads=threads,
    )
    return propagator, Batch(src, dst)


def interrupt_soon() -> threading.Timer:
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupted_batch_is_applied_or_not(threads: int) -> None:
    """Ctrl-C ends a long call at once, and the next call completes the batch."""
    propagator, batch = slow_case(threads)
    begun = time.monotonic()
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        propagator.apply(batch)
    assert time.monotonic() - begun < 5
    whole, _ = slow_case(threads)
    whole.apply(batch)
    assert propagator.statistics()["edges"] == whole.statistics()["edges"]
    np.testing.assert_array_equal(propagator.embedding(), whole.embedding())


def test_an_interrupted_tightening_has_begun_or_not() -> None:
    propagator, batch = slow_case(2)
    propagator.refine(0.1)
    propagator.apply(batch)
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        propagator.refine(1e-8)
    assert propagator.r_max == pytest.approx(1e-8 * propagator._native.tolerance)
    assert (propagator.error_bound() <= propagator.threshold() * (1 + 1e-6)).all()
    propagator.refine(1e-3)
    assert propagator.r_max == 1e-3
    assert propagator._native.tolerance == pytest.approx(1e5)


def test_recording_after_an_interrupted_batch_starts_with_complete_states(tmp_path: Path) -> None:
    propagator, batch = slow_case(2)
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        propagator.apply(batch)
    stream = EventStream([0], [1], [5], nodes=propagator.nodes)
    store = record(stream, propagator, tmp_path)
    nodes = np.arange(propagator.nodes)
    first = store.state(nodes, np.full(len(nodes), 5))
    whole, _ = slow_case(2)
    whole.apply(batch)
    apart = np.linalg.norm(first.astype(np.float64) - whole.embedding(), axis=2)
    assert (apart <= 2 * store.bound(nodes, np.full(len(nodes), 5))).all()


def test_a_signal_handler_cannot_call_the_interrupted_propagator() -> None:
    propagator, batch = slow_case(1)
    before = signal.signal(signal.SIGINT, lambda *_: print(propagator.statistics()))
    try:
        interrupt_soon()
        with pytest.raises(RuntimeError, match="signal handler"):
            propagator.apply(batch)
    finally:
        signal.signal(signal.SIGINT, before)
    assert propagator.statistics()["edges"] > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupted_stream_stops_between_two_steps(threads: int) -> None:
    rng = np.random.default_rng(5)
    nodes, steps = 3000, 200_000
    src, dst = rng.integers(0, nodes, (2, steps))
    batch, offsets = Batch(src, dst), np.arange(steps + 1)

    def start() -> Propagator:
        return Propagator(rng_features, r_max=1e-4, threads=threads)

    rng_features = rng.normal(size=(nodes, 64))
    propagator = start()
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        propagator.apply_steps(batch, offsets)
    done = propagator.statistics()["events"]
    assert 0 < done < steps
    other = start()
    other.apply_steps(Batch(src[:done], dst[:done]), np.arange(done + 1))
    np.testing.assert_array_equal(propagator.embedding(), other.embedding())
    propagator.apply(Batch([0], [1]))
    other.apply(Batch([0], [1]))
    np.testing.assert_array_equal(propagator.embedding(), other.embedding())


@every_dtype
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_degrees_far_above_one_cost_no_more_pushes_where_limits_do_not_grow_with_them(
    dtype: Any, beta: float
) -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((40, 3))
    batches = [
        Batch(
            rng.integers(0, 40, 30), rng.integers(0, 40, 30), weight=rng.uniform(0.5, 2, 30) * 2**40
        )
        for _ in range(6)
    ]
    heavy = {"scale_by_degree": False, "self_loop": 2.0**40, "beta": beta, "dtype": dtype}
    propagator = follow(features, batches, **heavy)
    assert propagator.statistics()["stalled"] == 0
    assert propagator.statistics()["pushes"] < 40 * 40 * len(batches)
