"""Stores of trajectories: what they hold, what they answer, and what they survive."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.histories import History, histories, long_history

import tidegraph as tg
from tidegraph import Batch, Channel, EventStream, Propagator, Sketch, Steps, Trajectories
from tidegraph.engine.reference import exact, exact_of
from tidegraph.events import datasets
from tidegraph.events.names import NodeNames
from tidegraph.store import manifest as store_manifest
from tidegraph.store.trajectories import copy_store

BEGINNING = np.iinfo(np.int64).min
FOREVER = 2**62
CHANNELS = (
    Channel.low_pass(),
    Channel.high_pass(half_life=40.0),
    Channel.low_pass(0.4, window=30),
)


def random_stream(
    seed: int = 0, nodes: int = 25, events: int = 400, ties: float = 0.5
) -> EventStream:
    rng = np.random.default_rng(seed)
    src, dst = rng.zipf(1.6, events) % nodes, rng.integers(0, nodes, events)
    t = np.cumsum(rng.random(events) > ties, dtype=np.int64)
    return EventStream(src=src.astype(np.int64), dst=dst, t=t, nodes=nodes)


def later_steps() -> Steps:
    """One step after all of the stream."""
    return EventStream([0], [1], [999], nodes=25).steps()


def propagator_for(stream: EventStream, columns: int = 6, **options: Any) -> Propagator:
    return Propagator(
        Sketch(columns, seed=3), nodes=stream.nodes, **{"channels": CHANNELS, **options}
    )


class Recorded(NamedTuple):
    """What a recording should hold, computed by applying one step after the other."""

    records: list[list[tuple[int, NDArray[np.float32]]]]  # of each node: time and state
    embeddings: list[NDArray[Any]]  # before the first step and after each


def by_hand(steps: Steps, propagator: Propagator, epsilon: float) -> Recorded:
    """Apply the rule of recording in NumPy; for float32 stores only, since `last` is rounded."""
    now = propagator.embedding()
    records = [[(BEGINNING, now[node])] for node in range(propagator.nodes)]
    scales = propagator.threshold()[:, :, 0]
    embeddings = [now]
    for step, batch in enumerate(steps):
        propagator.apply(batch)
        now, scale = propagator.embedding(), propagator.threshold()[:, :, 0]
        ends = {*batch.src.tolist(), *batch.dst.tolist()}
        for node in range(propagator.nodes):
            last = records[node][-1][1].astype(np.float64)
            apart = np.linalg.norm(now[node] - last, axis=1)
            far = (apart > epsilon * np.linalg.norm(now[node].astype(np.float64), axis=1)).any()
            if node in ends or far or (scale[node] > scales[node] * (1 + 1e-6)).any():
                records[node].append((int(steps.times[step]), now[node]))
                scales[node] = scale[node]
        embeddings.append(now)
    return Recorded(records, embeddings)


# What is recorded ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_records_are_those_of_the_rule(tmp_path: Path, epsilon: float, dtype: Any) -> None:
    stream = random_stream(events=200)
    store = tg.record(
        stream, propagator_for(stream, dtype=dtype), tmp_path, epsilon=epsilon, segment_bytes=5000
    )
    expected = by_hand(stream.steps(), propagator_for(stream, dtype=dtype), epsilon).records
    assert store.records == sum(map(len, expected))
    for node in range(stream.nodes):
        times, states = store.changes(node)
        assert times.tolist() == [t for t, _ in expected[node]]
        assert states.tobytes() == b"".join(
            z.astype(np.float32).tobytes() for _, z in expected[node]
        )


def test_the_propagator_is_left_as_if_it_had_applied_the_steps(tmp_path: Path) -> None:
    stream = random_stream()
    steps = stream.steps()
    watched, plain = propagator_for(stream), propagator_for(stream)
    tg.record(steps, watched, tmp_path)
    plain.apply_steps(steps.batch(0, len(steps)), steps.offsets)
    assert watched._packed() == plain._packed()


def test_a_stream_without_events_leaves_every_node_where_it_was(tmp_path: Path) -> None:
    stream = random_stream()[:0]
    propagator = propagator_for(stream)
    store = tg.record(stream, propagator, tmp_path)
    assert store.records == stream.nodes
    assert store.state(range(25), 7).tobytes() == propagator.embedding().tobytes()
    assert not store.window(range(25), 7, 3)[2].any()


def test_progress_counts_up_to_the_last_step(tmp_path: Path) -> None:
    stream = random_stream()
    seen: list[tuple[int, int, str]] = []
    tg.record(
        stream,
        propagator_for(stream),
        tmp_path,
        segment_bytes=5000,
        progress=lambda *report: seen.append(report),
    )
    done = [report[0] for report in seen]
    assert done == sorted(done)
    assert seen[-1][:2] == (len(stream.steps()),) * 2
    assert "records" in seen[-1][2]


def test_a_store_describes_what_it_holds(tmp_path: Path) -> None:
    stream = random_stream()
    ids = [f"page {number}" for number in range(stream.nodes)]
    named = replace(stream, names=NodeNames(ids), unit="min")
    tg.record(named, propagator_for(stream), tmp_path, dtype="float16", epsilon=0.1)
    store = Trajectories.open(tmp_path, verify=True)
    assert (store.nodes, store.columns, store.channels) == (stream.nodes, 6, CHANNELS)
    assert (store.epsilon, store.dtype.name, store.unit) == (0.1, "float16", "min")
    assert store.names is not None
    assert store.names.numbers(["page 7"]).tolist() == [7]
    assert store.complete
    assert store.nbytes == sum(f.stat().st_size for f in tmp_path.glob("segment-*"))
    for fact in (str(tmp_path), "25 nodes", f"{store.records:,} records", "3 × 6 float16", "min"):
        assert fact in repr(store)


# What is answered ---------------------------------------------------------------------------------


def naive_window(
    store: Trajectories, node: int, t: int, k: int, g: str
) -> tuple[list[Any], list[int]]:
    times, states = store.changes(node)
    known = int((times < t).sum())
    states = states[:known]
    deltas: list[Any] = []
    for before, after in pairwise(states):
        if g == "difference":
            deltas.append(after - before)
            continue
        a, b = after.astype(np.float64), before.astype(np.float64)
        if g == "l2":
            deltas.append(np.linalg.norm(a - b, axis=1))
        else:
            norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            deltas.append(1 - (a * b).sum(axis=1) / norms)
    return deltas[-k:], [t - int(when) for when in times[1:known]][-k:]


@pytest.mark.parametrize("pieces", [1, 5])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("g", ["difference", "l2", "cosine"])
def test_windows_are_the_latest_changes_newest_last(
    tmp_path: Path, g: Any, dtype: Any, pieces: int
) -> None:
    stream = random_stream(events=600)
    cuts = np.searchsorted(stream.t, np.linspace(0, stream.t[-1] + 1, pieces + 1)[1:])
    store = tg.record(stream[: cuts[0]], propagator_for(stream), tmp_path, dtype=dtype)
    for first, last in pairwise(cuts):
        store.append(stream[int(first) : int(last)])
    assert len(store._view[0].segments) == pieces
    rng = np.random.default_rng(1)
    nodes = rng.integers(0, stream.nodes, 100)
    times = rng.integers(-1, stream.t[-1] + 3, 100)
    for k in (1, 3, 40):
        delta, dt, mask = store.window(nodes, times, k, g)
        states = store.state(nodes, times)
        for b in range(len(nodes)):
            deltas, gaps = naive_window(store, int(nodes[b]), int(times[b]), k, g)
            missing = k - len(deltas)
            assert mask[b].tolist() == [False] * missing + [True] * len(deltas)
            assert dt[b].tolist() == [0] * missing + gaps
            assert not delta[b, :missing].any()
            if deltas:
                tolerance = 0 if g == "difference" else 1e-6
                np.testing.assert_allclose(
                    delta[b, missing:], np.array(deltas), rtol=tolerance, atol=tolerance
                )
            when, all_states = store.changes(int(nodes[b]))
            assert (states[b] == all_states[(when < times[b]).sum() - 1]).all()


def test_answers_can_be_written_into_given_arrays(tmp_path: Path) -> None:
    stream = random_stream()
    store = tg.record(stream, propagator_for(stream), tmp_path)
    nodes, times = np.arange(25), np.full(25, 60)
    out = np.full((25, 2, 3, 6), 7, np.float32), np.full((25, 2), 7), np.ones((25, 2), bool)
    assert store.window(nodes, times, 2, out=out) == out
    for written, fresh in zip(out, store.window(nodes, times, 2), strict=True):
        np.testing.assert_array_equal(written, fresh)
    states = np.empty((25, 3, 6), np.float32)
    assert store.state(nodes, times, out=states) is states
    with pytest.raises(tg.ParameterError, match=r"out must be .* float32 \(25, 3, 6\)"):
        store.state(nodes, times, out=np.empty((25, 18), np.float32))


@pytest.mark.parametrize(
    ("query", "error", "facts"),
    [
        (lambda s: s.state([0, 25], [1, 1]), tg.DataError, "25 .* 0 to 24"),
        (lambda s: s.state([-1], [1]), tg.DataError, "-1 .* 0 to 24"),
        (lambda s: s.state(["ann"], [1]), tg.DataError, "'ann' .* 0 to 24"),
        (lambda s: s.state([0, 1, 2], [1, 2]), tg.DataError, "3 nodes and 2 times"),
        (lambda s: s.state([0.5], [1]), tg.DataError, "float64"),
        (lambda s: s.state([True], [1]), tg.DataError, "bool"),
        (lambda s: s.state([[0]], [1]), tg.DataError, r"\(1, 1\)"),
        (lambda s: s.state([0], ["now"]), tg.DataError, "'now'"),
        (lambda s: s.state([0], [1.5]), tg.DataError, "1.5"),
        (lambda s: s.state([0], [BEGINNING]), tg.DataError, "-2.*63"),
        (lambda s: s.state([0], [np.uint64(2**63)]), tg.DataError, "2.*63"),
        (lambda s: s.window([0], [1], 0), tg.ParameterError, "k is 0"),
        (lambda s: s.window([0], [1], True), tg.ParameterError, "k is True"),
        (lambda s: s.window([0], [1], 2**62), tg.ParameterError, f"{2**62}, .* look back less"),
        (lambda s: s.window([0], [1], 2**45), tg.ParameterError, f"{2**45}, .* look back less"),
        (lambda s: s.window([0], [1], 2, "angle"), tg.ParameterError, "g is 'angle'"),
        (lambda s: s.changes([0, 1]), tg.ParameterError, "2 nodes"),
        (lambda s: s.append("events"), tg.EventError, "EventStream or Steps"),
        (
            lambda s: s.append(replace(later_steps(), offsets=np.array([0.0, 1.5]))),
            tg.EventError,
            "offsets",
        ),
        (
            lambda s: s.append(replace(later_steps(), times=np.array([999.5]))),
            tg.EventError,
            "times",
        ),
        (lambda s: s.append(random_stream()), tg.EventError, "1; .* 196"),
        (lambda s: s.append(replace(random_stream(), unit="h")), tg.EventError, "'h'.*'s'"),
        (lambda s: s.append(random_stream(nodes=40).steps()), tg.EventError, "0 to 24"),
    ],
)
def test_a_bad_query_names_what_was_given_and_what_is_accepted(
    tmp_path: Path, query: Any, error: type[Exception], facts: str
) -> None:
    stream = random_stream()
    store = tg.record(stream, propagator_for(stream), tmp_path)
    with pytest.raises(error, match=facts):
        query(store)


def named_store(path: Path) -> Trajectories:
    """Events on four days of 2024 between nodes p0 to p24."""
    stream = random_stream(events=100)
    day = np.datetime64("2024-05-01", "s").astype(np.int64)
    named = replace(
        stream,
        names=NodeNames([f"p{number}" for number in range(stream.nodes)]),
        t=day + 86_400 * (np.arange(100) // 25),
    )
    return tg.record(named, propagator_for(named), path)


def test_nodes_may_be_given_by_name_and_times_as_dates(tmp_path: Path) -> None:
    store = named_store(tmp_path)
    numbers, names = [3, 0, 24], ["p3", "p0", "p24"]
    day = int(np.datetime64("2024-05-03", "s").astype(np.int64))
    expected = store.state(numbers, day)
    moments = (
        "2024-05-03",
        datetime(2024, 5, 3),
        np.datetime64("2024-05-03"),
        ["2024-05-03T02:00+02:00"] * 3,
        np.array(["2024-05-03"] * 3, dtype="datetime64[ms]"),
        pd.Series(pd.to_datetime(["2024-05-03"] * 3)),
    )
    for when in moments:
        for asked in (names, np.array(names), pd.Series(names), numbers):
            np.testing.assert_array_equal(store.state(asked, when), expected)
    for by_name, by_number in zip(
        (*store.window("p3", "2024-05-03", 2), *store.changes("p3"), store.bound("p3", moments[1])),
        (*store.window(3, day, 2), *store.changes(3), store.bound(3, day)),
        strict=True,
    ):
        np.testing.assert_array_equal(by_name, by_number)
    with pytest.raises(tg.DataError, match="'p25'"):
        store.state("p25", day)


def test_a_frame_holds_the_states_of_named_nodes_as_of_a_date(tmp_path: Path) -> None:
    store = named_store(tmp_path / "named")
    frame = store.frame("2024-05-03")
    assert frame.index.tolist() == [f"p{number}" for number in range(25)]
    assert frame.shape == (25, 3 * 6)
    np.testing.assert_array_equal(frame[1], store.state(range(25), "2024-05-03")[:, 1])
    some = store.frame("2024-05-03", ["p7", "p2"])
    assert some.equals(frame.loc[["p7", "p2"]])
    stream = random_stream()
    unnamed = tg.record(stream, propagator_for(stream), tmp_path / "unnamed")
    assert unnamed.frame(7, [4, 2]).index.tolist() == [4, 2]


def test_an_elapsed_time_too_long_for_64_bits_is_clipped(tmp_path: Path) -> None:
    stream = EventStream(
        src=np.array([0]), dst=np.array([1]), t=np.array([-(2**61)]), nodes=2, unit="ns"
    )
    store = tg.record(stream, propagator_for(stream, channels=(Channel.low_pass(),)), tmp_path)
    _, dt, mask = store.window([0], [2**63 - 1], 1)
    assert mask.all()
    assert dt[0, 0] == 2**63 - 1


# Time travel --------------------------------------------------------------------------------------


def check_bound(
    store: Trajectories, times: list[int], exact_states: list[NDArray[np.float64]]
) -> None:
    """Check that every node's state just after each step is within its bound of exact."""
    nodes = np.arange(store.nodes)
    for t, truth in zip(times, exact_states, strict=True):
        apart = np.linalg.norm(store.state(nodes, t) - truth, axis=2)
        assert (apart <= store.bound(nodes, t)).all(), (t, apart / store.bound(nodes, t))


def edge_steps(history: History) -> Steps:
    """Return the edge events of a history, one step per batch that has any."""
    batches = [batch for batch in history.batches() if batch.rows]
    rows = [batch.rows for batch in batches]
    empty = np.zeros(0)

    def column(name: str, dtype: Any, fill: float) -> NDArray[Any]:
        parts = []
        for batch in batches:
            value = getattr(batch, name)
            parts.append(np.full(batch.rows, fill) if value is None else value)
        return np.concatenate([empty, *parts]).astype(dtype)

    offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    t = column("t", np.int64, 0)
    return Steps(
        column("src", np.int64, 0),
        column("dst", np.int64, 0),
        t,
        column("weight", np.float64, 1.0),
        column("op", np.uint8, 0),
        offsets,
        t[offsets[1:] - 1],
    )


@settings(max_examples=25, deadline=None)
@given(
    history=histories(node_events=False),
    epsilon=st.sampled_from([0.0, 0.05, 0.6]),
    store_dtype=st.sampled_from(["float32", "float16"]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_any_past_state_is_within_its_bound_of_exact(
    tmp_path_factory: pytest.TempPathFactory,
    history: History,
    epsilon: float,
    store_dtype: Any,
    dtype: Any,
) -> None:
    path = tmp_path_factory.mktemp("store")
    steps = edge_steps(history)
    try:
        store = tg.record(
            steps,
            history.start(Propagator, dtype=dtype),
            path,
            epsilon=epsilon,
            dtype=store_dtype,
            segment_bytes=1,
        )
    except tg.PrecisionError:
        reject()  # the dtype cannot hold the threshold on these edges
    oracle = history.start(Propagator, dtype=dtype)
    times, truths = [-(2**62)], [exact_of(oracle)]
    for step, batch in enumerate(steps):
        oracle.apply(batch)
        last_of_its_time = step + 1 == len(steps) or steps.times[step + 1] > steps.times[step]
        if last_of_its_time:
            times.append(int(steps.times[step]) + 1)
            truths.append(exact_of(oracle))
    check_bound(store, times, truths)
    shutil.rmtree(path)


def test_the_bound_holds_along_a_long_history(tmp_path: Path) -> None:
    history = long_history(5, directed=True, nodes=30, columns=5, steps=120)
    steps = edge_steps(history)
    store = tg.record(steps, history.start(Propagator), tmp_path, segment_bytes=20_000)
    oracle = history.start(Propagator)
    times, truths = [], []
    for step, batch in enumerate(steps):
        oracle.apply(batch)
        if step % 9 == 0 and steps.times[min(step + 1, len(steps) - 1)] > steps.times[step]:
            times.append(int(steps.times[step]) + 1)
            truths.append(exact_of(oracle))
    assert len(times) > 5
    check_bound(store, times, truths)


@pytest.mark.parametrize("segment_bytes", [1, 5000, 1 << 20])
def test_a_bound_does_not_depend_on_what_happens_at_its_time_or_later(
    tmp_path: Path, segment_bytes: int
) -> None:
    stream = random_stream()
    options: dict[str, Any] = {"segment_bytes": segment_bytes}
    # Rounding matters at such an r_max.
    fine: dict[str, Any] = {"r_max": 2e-5, "channels": (Channel.low_pass(), CHANNELS[2])}
    whole = tg.record(stream, propagator_for(stream, **fine), tmp_path / "whole", **options)
    grown = None
    nodes = np.arange(stream.nodes)
    answers: dict[int, NDArray[np.float64]] = {}
    for cut in (1, 2, 40, 41, 150, int(stream.t[-1]) + 1):
        past = stream.before(cut)
        alone = tg.record(past, propagator_for(stream, **fine), tmp_path / f"{cut}", **options)
        if grown is None:
            grown = tg.record(past, propagator_for(stream, **fine), tmp_path / "grown", **options)
        else:
            grown.append(past.between(max(answers), cut))
        answers[cut] = alone.bound(nodes, cut)
        for t, answer in answers.items():
            for store in (alone, grown, whole):
                np.testing.assert_array_equal(store.bound(nodes, t), answer)


def test_the_bound_includes_the_drift_that_an_earlier_release_measured(tmp_path: Path) -> None:
    stream = random_stream()
    store = tg.record(stream.before(40), propagator_for(stream), tmp_path)
    manifest = tmp_path / "manifest.json"
    body = json.loads(manifest.read_text())
    del body["digest"]
    body["drift"] = [0.5, 0.0, 0.25]
    body["digest"] = store_manifest._json_digest(body)
    manifest.write_text(json.dumps(body))
    nodes, times = np.arange(25), np.full(25, 30)
    before = store.bound(nodes, times)
    assert store.refresh()
    answer = store.bound(nodes, times)
    assert (answer[:, [0, 2]] > before[:, [0, 2]]).all()
    store.append(stream.between(40, FOREVER))
    np.testing.assert_array_equal(store.bound(nodes, times), answer)


def test_past_states_of_uci_are_near_the_exact_ones_of_the_graph_then(tmp_path: Path) -> None:
    if datasets.find(datasets.DATA_SETS["uci"]) is None:
        pytest.skip("uci is not on this machine")
    events = datasets.load_dataset("uci")
    stream = EventStream(src=events.src, dst=events.dst, t=events.t, nodes=events.nodes)[:6000]
    channels = (Channel.low_pass(), Channel.high_pass())
    propagator = propagator_for(stream, columns=8, channels=channels)
    store = tg.record(stream, propagator, tmp_path)
    features = propagator.features()
    rng = np.random.default_rng(0)
    for t in [int(stream.t[0]), *rng.integers(stream.t[0], stream.t[-1], 4).tolist()]:
        past = stream.before(t)
        truth = np.stack(
            [exact(past.src, past.dst, features, gamma0=c.gamma0, gamma=c.gamma) for c in channels],
            axis=1,
        )
        check_bound(store, [t], [truth])
    # The bound is worth having: around a tenth of the state itself, idle nodes included.
    nodes = np.arange(stream.nodes)
    norm = np.linalg.norm(store.state(nodes, FOREVER), axis=2)
    assert np.median(store.bound(nodes, FOREVER) / norm) < 0.25


# Half precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-38, 1e-20, 1.0, 7e4, 1e30])
def test_half_precision_keeps_eleven_bits_at_any_size(tmp_path: Path, size: float) -> None:
    stream = random_stream()
    features = np.random.default_rng(0).normal(size=(25, 6)) * size
    features[3] = 0
    options: dict[str, Any] = {"channels": CHANNELS, "dtype": "float64"}
    store = tg.record(stream, Propagator(features, **options), tmp_path, dtype="float16", epsilon=0)
    plain = Propagator(features, **options)
    steps = stream.steps()
    plain.apply_steps(steps.batch(0, len(steps)), steps.offsets)
    exact_states = plain.embedding().astype(np.float32).astype(np.float64)
    states = store.state(np.arange(25), FOREVER).astype(np.float64)
    peak = np.abs(exact_states).max(axis=2, keepdims=True)
    # An idle node keeps what it had; those below moved in the last step in which they did.
    error = np.abs(states - exact_states)
    assert (error <= 2.0**-11 * np.abs(exact_states) + 2.0**-38 * peak + 2.0**-145).all()


def test_a_value_that_float32_cannot_hold_is_rejected(tmp_path: Path) -> None:
    stream = random_stream()
    propagator = Propagator(np.full((25, 2), 1e39), dtype="float64")
    with pytest.raises(tg.ParameterError, match=r"float32.*features"):
        tg.record(stream, propagator, tmp_path)


# Appending ----------------------------------------------------------------------------------------


def answers(store: Trajectories) -> bytes:
    nodes = np.repeat(np.arange(store.nodes), 40)
    times = np.tile(np.arange(-1, 39) * 6, store.nodes)
    delta, dt, mask = store.window(nodes, times, 4)
    parts: list[NDArray[Any]] = [store.state(nodes, times), delta, dt, mask]
    parts += [array for node in range(store.nodes) for array in store.changes(node)]
    return b"".join(array.tobytes() for array in parts)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_recording_in_parts_answers_as_recording_at_once(tmp_path: Path, dtype: Any) -> None:
    stream = random_stream()
    whole = tg.record(stream, propagator_for(stream), tmp_path / "whole", dtype=dtype)
    propagator = propagator_for(stream)
    parts = tg.record(stream.before(50), propagator, tmp_path / "parts", dtype=dtype)
    parts.append(stream.between(50, 51), propagator)
    parts.append(stream.between(51, 90))
    Trajectories.open(tmp_path / "parts").append(stream.between(90, FOREVER))
    assert parts.records < whole.records
    assert parts.refresh()
    assert not parts.refresh()
    assert answers(parts) == answers(whole)


def test_many_appended_pieces_are_merged_into_few(tmp_path: Path) -> None:
    stream = random_stream()
    propagator = propagator_for(stream)
    store = tg.record(stream.before(30), propagator, tmp_path)
    for t in range(30, 90, 3):
        store.append(stream.between(t, t + 3), propagator)
        assert len(list(tmp_path.glob("segment-*"))) <= 8
    whole = tg.record(stream.before(90), propagator_for(stream), tmp_path / "whole")
    assert answers(store) == answers(whole)
    Trajectories.open(tmp_path, verify=True)


def test_a_propagator_that_has_applied_other_events_is_rejected(tmp_path: Path) -> None:
    stream = random_stream()
    propagator = propagator_for(stream)
    store = tg.record(stream.before(50), propagator, tmp_path)
    propagator.apply(Batch(src=[0], dst=[1], t=50))
    with pytest.raises(tg.EventError, match=r"seen \d+ events.* after \d+"):
        store.append(stream.between(50, 60), propagator)
    with pytest.raises(tg.ParameterError, match=r"settings\.r_max .* 0\.1;"):
        store.append(stream.between(50, 60), propagator_for(stream, r_max=0.1))


def test_an_open_store_does_not_change_while_another_appends(tmp_path: Path) -> None:
    stream = random_stream(events=1500)
    store = tg.record(stream.before(100), propagator_for(stream), tmp_path, segment_bytes=3000)
    before = answers(store)
    failures: list[BaseException] = []
    generations: set[int] = set()
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                assert answers(store) == before
                generations.add(Trajectories.open(tmp_path).records)
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=ask)
    reader.start()
    try:
        writer = Trajectories.open(tmp_path)
        for t in range(100, 500, 40):
            writer.append(stream.between(t, t + 40))
    finally:
        done.set()
        reader.join()
    assert not failures
    assert generations
    assert store.refresh()
    assert answers(store) == answers(writer)


def test_a_second_writer_is_rejected(tmp_path: Path) -> None:
    stream = random_stream()
    store = tg.record(stream.before(50), propagator_for(stream), tmp_path)
    met: list[str] = []

    def interrupt(*_: Any) -> None:
        with pytest.raises(tg.StorageError) as rejected:
            Trajectories.open(tmp_path).append(stream.between(50, 60))
        met.append(str(rejected.value))

    store.append(stream.between(50, 60), progress=interrupt)
    assert str(tmp_path) in met[0]
    assert "another writer" in met[0]


def test_a_rejected_step_ends_the_recording_before_it(tmp_path: Path) -> None:
    stream = replace(random_stream(), op=np.zeros(400, np.uint8))
    assert stream.op is not None
    op = stream.op.copy()
    row = int(np.searchsorted(stream.t, 60))  # times begin at 1
    op[row] = tg.Op.REMOVE
    src, dst = stream.src.copy(), stream.dst.copy()
    src[row], dst[row] = 24, 24
    broken = replace(stream, op=op, src=src, dst=dst)
    propagator = propagator_for(stream)
    with pytest.raises(tg.EventError, match=r"step 59: .*append"):
        tg.record(broken, propagator, tmp_path)
    store = Trajectories.open(tmp_path)
    assert store.complete
    store.append(stream.between(60, FOREVER), propagator)
    mended = tg.record(stream, propagator_for(stream), tmp_path / "mended")
    assert answers(store) == answers(mended)


def test_steps_that_would_show_the_future_are_rejected(tmp_path: Path) -> None:
    stream = random_stream()
    steps = stream.steps()
    with pytest.raises(tg.EventError, match="later than its time"):
        tg.record(replace(steps, times=steps.times - 1), propagator_for(stream), tmp_path)
    with pytest.raises(tg.EventError, match=r"times.* offsets"):
        tg.record(replace(steps, times=steps.times[1:]), propagator_for(stream), tmp_path)


# Crashes ------------------------------------------------------------------------------------------

SMALL = 3000  # bytes of a segment: eleven of them, hence merges on the way


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def resumable_run(path: Path) -> Trajectories:
    stream = random_stream(7, events=150)
    return tg.record(
        stream,
        propagator_for(stream),
        path,
        dtype="float16",
        segment_bytes=SMALL,
        checkpoint_every_s=0.0,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("undisturbed")
    resumable_run(path)
    return files(path)


def test_a_finished_run_called_again_changes_nothing(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    resumable_run(tmp_path)
    stream = random_stream(7, events=150)
    again = propagator_for(stream)
    tg.record(stream, again, tmp_path, dtype="float16")
    assert files(tmp_path) == undisturbed
    assert again.statistics()["events"] == 150


class Stopped(Exception):
    pass


def stop_and_resume(path: Path, stops: list[int], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run once per stop, each ended before its n-th rename, then to the end.

    Return how many renames the last run made.
    """
    real, made = os.replace, 0

    def counted(*names: Any) -> None:
        nonlocal made
        if made == limit:
            raise Stopped
        made += 1
        real(*names)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", counted)
        for limit in [*stops, None]:
            made = 0
            if limit is None:
                resumable_run(path)
            else:
                with pytest.raises(Stopped):
                    resumable_run(path)
    return made


def test_a_run_stopped_now_and_again_resumes_to_the_same_bytes(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_and_resume(tmp_path, [0, 1, 2, 5, 7, 9, 3, 6], monkeypatch)
    assert files(tmp_path) == undisturbed


def test_nothing_is_left_of_a_run_that_ended_before_its_first_manifest(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = random_stream(7, events=150)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda old, new: shutil.copy(old, new))
        patch.setattr("tidegraph.store.manifest.StoreManifest.write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tg.record(stream, propagator_for(stream, r_max=0.3), tmp_path, dtype="float16")
    assert files(tmp_path)
    resumable_run(tmp_path)
    assert files(tmp_path) == undisturbed


@pytest.mark.slow
def test_a_run_stopped_at_any_write_resumes_to_the_same_bytes(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = stop_and_resume(tmp_path / "all", [], monkeypatch)
    assert writes > 30
    for stop in range(writes):
        stop_and_resume(tmp_path / str(stop), [stop], monkeypatch)
        assert files(tmp_path / str(stop)) == undisturbed


@pytest.mark.parametrize("target", ["write", "save"])
def test_a_full_disk_loses_nothing(
    tmp_path: Path,
    undisturbed: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
) -> None:
    module, name = (os, "fsync") if target == "write" else (Propagator, "save")
    real, left = getattr(module, name), [9]

    def full(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        with pytest.raises(tg.StorageError, match="No space left") as error:
            resumable_run(tmp_path)
    assert error.value.errno == errno.ENOSPC
    assert not list(tmp_path.glob("*.part*"))
    store = Trajectories.open(tmp_path, verify=True)
    assert not store.complete
    records = store.records
    resumable_run(tmp_path)
    assert store.refresh()
    assert store.records > records
    assert files(tmp_path) == undisturbed


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.test_trajectories import resumable_run
left, fsync = int(sys.argv[2]), os.fsync
def fatal(handle):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(handle)
os.fsync = fatal
resumable_run(Path(sys.argv[1]))
"""


def test_a_killed_run_resumes_to_the_same_bytes(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    """Killed with a file written but not yet safe, again and again."""
    chance = random.Random(3)
    for writes in (chance.randrange(8, 20) for _ in range(3)):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), str(writes)],
            cwd=Path(__file__).parents[1],
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        assert not Trajectories.open(tmp_path, verify=True).complete
    resumable_run(tmp_path)
    assert files(tmp_path) == undisturbed


def test_an_interrupted_append_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    stream = random_stream()

    def stop(*_: Any) -> None:
        raise Stopped

    stores = []
    for name in ("straight", "interrupted"):
        store = tg.record(
            stream.before(40), propagator_for(stream), tmp_path / name, segment_bytes=SMALL
        )
        if name == "interrupted":
            with pytest.raises(Stopped):
                store.append(stream.between(40, FOREVER), progress=stop)
            with pytest.raises(tg.EventError, match="not finished"):
                store.append(stream.between(40, 50))
        store.append(stream.between(40, FOREVER))
        stores.append(files(tmp_path / name))
    assert stores[0] == stores[1]


# New nodes ----------------------------------------------------------------------------------------


def growing_stream() -> tuple[EventStream, EventStream]:
    """Return a stream among 25 nodes and its continuation among 40, with the same names."""
    early = random_stream(nodes=25)
    late = random_stream(seed=1, nodes=40)
    late = replace(late, t=late.t + int(early.t[-1]) + 1)
    names = [f"n{number}" for number in range(40)]
    return replace(early, names=NodeNames(names[:25])), replace(late, names=NodeNames(names))


@pytest.mark.parametrize("given", [False, True])
def test_new_nodes_count_as_present_from_the_beginning(tmp_path: Path, given: bool) -> None:
    early, late = growing_stream()
    propagator = propagator_for(early)
    store = tg.record(early, propagator, tmp_path / "grown", segment_bytes=SMALL)
    before = Trajectories.open(tmp_path / "grown")
    store.append(late, propagator if given else None)
    whole = early.joined(late)
    expected = tg.record(whole, propagator_for(whole), tmp_path / "whole")
    assert store.nodes == 40
    rng = np.random.default_rng(5)
    nodes, times = rng.integers(0, 40, 500), rng.integers(-2, int(late.t[-1]) + 2, 500)
    apart = np.linalg.norm(store.state(nodes, times) - expected.state(nodes, times), axis=2)
    assert (apart <= store.bound(nodes, times) + expected.bound(nodes, times)).all()
    assert store.names == late.names
    assert Trajectories.open(tmp_path / "grown", verify=True).names == late.names
    # A reader that opened it before still sees the old store.
    assert before.nodes == 25
    assert np.array_equal(before.state(7, 3), store.state(7, 3))
    store.append(replace(late, t=late.t + int(late.t[-1])))
    assert store.complete


def test_an_append_with_new_nodes_stopped_at_any_write_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, late = growing_stream()
    begun = tmp_path / "begun"
    tg.record(early, propagator_for(early), begun)
    straight = Path(shutil.copytree(begun, tmp_path / "straight"))
    Trajectories.open(straight).append(late)
    real = os.replace
    for stop in range(20):
        path = Path(shutil.copytree(begun, tmp_path / str(stop)))
        left = stop

        def counted(*names: Any) -> None:
            nonlocal left
            if left == 0:
                raise Stopped
            left -= 1
            real(*names)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", counted)
            try:
                Trajectories.open(path).append(late)
            except Stopped:
                pass
            else:
                assert stop > 5
                return
        Trajectories.open(path, verify=True).append(late)
        assert files(path) == files(straight)
    raise AssertionError("there are more writes than expected")


def test_new_nodes_without_features_or_names_are_rejected(tmp_path: Path) -> None:
    early, late = growing_stream()
    features = np.random.default_rng(0).normal(size=(25, 6))
    store = tg.record(early, Propagator(features), tmp_path / "features")
    with pytest.raises(tg.EventError, match=r"40 nodes, .* 25; .* features"):
        store.append(late)
    store = tg.record(early, propagator_for(early), tmp_path / "names")
    with pytest.raises(tg.EventError, match=r"40 nodes, .* 25, .* names"):
        store.append(replace(late, names=None))
    with pytest.raises(tg.EventError, match="continuing"):
        store.append(replace(late, names=NodeNames([f"n{39 - k}" for k in range(40)])))
    with pytest.raises(tg.EventError, match="0 to 24"):
        store.append(late.steps())
    assert store.nodes == 25
    assert store.complete


def test_a_store_is_not_resumed_from_another_initial_graph(tmp_path: Path) -> None:
    stream = random_stream()
    initial = Batch(src=[0, 1], dst=[1, 2], t=-5)
    first = propagator_for(stream, initial=initial)
    tg.record(stream, first, tmp_path)
    bytes_before = files(tmp_path)
    for other in (
        None,
        Batch(src=[0, 1], dst=[1, 3], t=-5),
        Batch(src=[0, 1], dst=[1, 2], t=-4),
        Batch(src=[0, 1], dst=[1, 2], weight=[1, 2], t=-5),
    ):
        with pytest.raises(tg.ParameterError, match="another initial graph"):
            tg.record(stream, propagator_for(stream, initial=other), tmp_path)
    again = Batch(src=[1, 0], dst=[2, 1], t=-5)
    tg.record(stream, propagator_for(stream, initial=again), tmp_path)
    tg.record(stream, first, tmp_path)  # it has already applied the stream
    assert files(tmp_path) == bytes_before


def test_a_store_is_not_resumed_with_other_inputs(tmp_path: Path) -> None:
    stream = random_stream()
    tg.record(stream, propagator_for(stream), tmp_path)
    other = Propagator(np.eye(25)[:, :6], channels=CHANNELS)
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (stream, propagator_for(stream), {"resume": False}, "already"),
        (stream, propagator_for(stream), {"epsilon": 0.1}, r"epsilon 0\.05, .* 0\.1;"),
        (stream[:50], propagator_for(stream), {}, "other events"),
        (stream, propagator_for(stream, r_max=0.1), {}, r"settings\.r_max .* 0\.1;"),
        (stream, other, {}, "sketch .* None;"),
    ]
    for events, propagator, options, words in cases:
        with pytest.raises((tg.ParameterError, tg.EventError), match=words):
            tg.record(events, propagator, tmp_path, **options)


@pytest.mark.parametrize("option", [{"epsilon": 1.0}, {"epsilon": "5 %"}, {"dtype": "float64"}])
def test_invalid_settings_are_rejected_before_anything_is_written(
    tmp_path: Path, option: dict[str, Any]
) -> None:
    stream = random_stream()
    with pytest.raises(tg.ParameterError, match=f"{next(iter(option))} is"):
        tg.record(stream, propagator_for(stream), tmp_path / "new", **option)
    assert not (tmp_path / "new").exists()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    stream = random_stream()
    with pytest.raises(tg.ParameterError, match=r"thesis\.tex"):
        tg.record(stream, propagator_for(stream), tmp_path)
    with pytest.raises(tg.StateFileError, match=r"manifest\.json"):
        Trajectories.open(tmp_path)
    assert files(tmp_path) == {"thesis.tex": b"precious"}


# Damage -------------------------------------------------------------------------------------------


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    stream = random_stream()
    tg.record(stream, propagator_for(stream), tmp_path)
    return tmp_path


def only_segment(path: Path) -> Path:
    (segment,) = path.glob("segment-*")
    return segment


def test_a_truncated_segment_is_named_when_opened(finished: Path) -> None:
    segment = only_segment(finished)
    os.truncate(segment, segment.stat().st_size - 1)
    with pytest.raises(tg.StateFileError, match=f"{segment.name} is damaged"):
        Trajectories.open(finished)


def test_a_missing_segment_is_named(finished: Path) -> None:
    segment = only_segment(finished)
    segment.unlink()
    with pytest.raises(tg.StateFileError, match=f"{segment.name} is missing"):
        Trajectories.open(finished)


def test_any_altered_byte_is_found(finished: Path) -> None:
    segment = only_segment(finished)
    good = segment.read_bytes()
    for at in [3, 70, len(good) // 3, len(good) // 2, len(good) - 1]:
        bad = bytearray(good)
        bad[at] ^= 4
        segment.write_bytes(bad)
        with pytest.raises(tg.StateFileError, match=segment.name):
            Trajectories.open(finished, verify=True)
    segment.write_bytes(good)
    Trajectories.open(finished, verify=True)


def test_damaged_offsets_are_rejected_without_comparing_digests(
    finished: Path,
) -> None:
    segment = only_segment(finished)
    bad = bytearray(segment.read_bytes())
    first_offset = 64 + 25 * 8 + (-25 * 8) % 64
    assert bad[first_offset : first_offset + 8] == bytes(8)
    bad[first_offset + 15] = 0x7F
    segment.write_bytes(bad)
    with pytest.raises(tg.StateFileError, match=f"{segment.name} is damaged.*offsets"):
        Trajectories.open(finished)


def test_damage_is_not_merged_into_a_new_segment(finished: Path) -> None:
    segment = only_segment(finished)
    bad = bytearray(segment.read_bytes())
    bad[len(bad) // 2] ^= 4
    segment.write_bytes(bad)
    later = replace(random_stream(), t=np.arange(500, 900))
    store = Trajectories.open(finished)
    for part in range(7):
        store.append(later[50 * part : 50 * part + 50])
    with pytest.raises(tg.StateFileError, match=f"{segment.name} was altered"):
        store.append(later[350:])  # the ninth segment, too many


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2; .* version 1"),
        ({"epsilon": 0.5}, "altered"),
        ({"format": "something"}, "damaged or no"),
    ],
)
def test_a_foreign_or_altered_manifest_is_rejected(
    finished: Path, change: dict[str, Any], words: str
) -> None:
    manifest = finished / "manifest.json"
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**body, **change}))
    with pytest.raises(tg.StateFileError, match=words):
        Trajectories.open(finished)
    manifest.write_text("{")
    with pytest.raises(tg.StateFileError, match=r"manifest\.json is damaged"):
        Trajectories.open(finished)


def test_a_copied_store_shares_files_and_stays_as_it_was_when_the_other_goes_on(
    tmp_path: Path,
) -> None:
    stream = random_stream(ties=0.0)
    early, late = stream[:300], stream[300:]
    store = tg.record(early, propagator_for(stream), tmp_path / "one", segment_bytes=1 << 12)
    copy_store(tmp_path / "one", tmp_path / "two")
    before = {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    shared = [path for path in (tmp_path / "two").iterdir() if path.stat().st_nlink == 2]
    assert len(shared) == len(before)
    store.append(late)
    assert {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()} == before
    other = Trajectories.open(tmp_path / "two")
    assert other.records < store.records
    other.append(late)
    everyone = np.arange(stream.nodes)
    states = [each.state(everyone, np.full(stream.nodes, FOREVER)) for each in (store, other)]
    assert np.array_equal(states[0], states[1])
