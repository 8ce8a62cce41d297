"""Shards of columns: together they equal one recording, wherever and whenever they are made."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import tidegraph as tg
from tidegraph import (
    Batch,
    Channel,
    ClusterError,
    EventError,
    EventStream,
    ParameterError,
    Propagator,
    ShardedTrajectories,
    Sketch,
    StateFileError,
    StorageError,
)
from tidegraph.cli import main
from tidegraph.core import workers
from tidegraph.engine.channels import EngineSettings
from tidegraph.events.stream import Edges
from tidegraph.learning.features import Sketches
from tidegraph.store import shards
from tidegraph.store.trajectories import ChangeKind

NODES, COLUMNS = 30, 7
SKETCH = Sketch(COLUMNS, seed=4)
SETTINGS = EngineSettings(channels=(Channel.low_pass(), Channel.high_pass(half_life=40.0)))
# Many segments and checkpoints.
SMALL: dict[str, Any] = {"segment_bytes": 20_000, "checkpoint_every_s": 0.0}


def random_stream(seed: int = 0, events: int = 500) -> EventStream:
    rng = np.random.default_rng(seed)
    src, dst = rng.zipf(1.6, events) % NODES, rng.integers(0, NODES, events)
    t = np.cumsum(rng.random(events) > 0.5, dtype=np.int64)
    return EventStream(src=src.astype(np.int64), dst=dst, t=t, nodes=NODES)


def recorded(path: Path, **options: Any) -> ShardedTrajectories:
    options = {"shards": 3, "settings": SETTINGS, **SMALL, **options}
    return tg.record_shards(random_stream(), SKETCH, path, **options)


def whole(path: Path, features: Any = SKETCH, **options: Any) -> tg.Trajectories:
    propagator = Propagator(
        features,
        nodes=NODES if isinstance(features, Sketch) else None,
        channels=SETTINGS.channels,
    )
    return tg.record(random_stream(), propagator, path, **options)


def content(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def queries(count: int = 200) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rng = np.random.default_rng(1)
    return rng.integers(0, NODES, count), rng.integers(-2, 280, count)


# Content and queries ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, COLUMNS])
def test_every_shard_is_the_recording_of_its_columns_alone(tmp_path: Path, count: int) -> None:
    store = recorded(tmp_path / "shards", shards=count)
    asked, first = queries(), 0
    widths = [part.columns for part in store.shards]
    assert sum(widths) == COLUMNS
    assert max(widths) - min(widths) <= 1
    for number, width in enumerate(widths):
        alone = whole(tmp_path / f"alone {number}", SKETCH.part(first, width), **SMALL)
        assert content(alone.path) == content(store.path / f"shard-{number:03d}")
        columns = store.state(*asked)[:, :, first : first + width]
        np.testing.assert_array_equal(columns, alone.state(*asked))
        first += width


def test_one_shard_answers_as_an_undivided_recording(tmp_path: Path) -> None:
    store, undivided = recorded(tmp_path / "shards", shards=1), whole(tmp_path / "whole", **SMALL)
    asked = queries()
    np.testing.assert_array_equal(store.state(*asked), undivided.state(*asked))
    kinds: tuple[ChangeKind, ...] = ("difference", "l2", "cosine")
    for kind in kinds:
        delta, dt, mask = store.window(*asked, 5, kind)
        expected_delta, expected_dt, expected_mask = undivided.window(*asked, 5, kind)
        np.testing.assert_array_equal(dt, expected_dt)
        np.testing.assert_array_equal(mask, expected_mask)
        # Sums of seven products in float32, in another order.
        np.testing.assert_allclose(delta, expected_delta, rtol=1e-4, atol=8 * 2.0**-24)
    np.testing.assert_allclose(store.bound(*asked), undivided.bound(*asked), rtol=1e-12)
    for node in range(NODES):
        for answer, expected in zip(store.changes(node), undivided.changes(node), strict=True):
            np.testing.assert_array_equal(answer, expected)
    about = (store.nodes, store.columns, store.channels, store.records, store.nbytes, store.unit)
    assert about == (
        *(undivided.nodes, undivided.columns, undivided.channels),
        *(undivided.records, undivided.nbytes, undivided.unit),
    )


def test_windows_hold_the_latest_changes_of_all_shards(tmp_path: Path) -> None:
    store = recorded(tmp_path, epsilon=0.3)
    nodes, times = queries()
    k = 4
    delta, dt, mask = store.window(nodes, times, k)
    spread = 0
    for row, (node, t) in enumerate(zip(nodes.tolist(), times.tolist(), strict=True)):
        moments = {int(m) for part in store.shards for m in part.changes(node)[0][1:] if m < t}
        each = [{int(m) for m in part.changes(node)[0][1:] if m < t} for part in store.shards]
        spread += any(own != moments for own in each)
        expected = sorted(moments)[-k:]
        assert mask[row].sum() == len(expected)
        assert (t - dt[row][mask[row]]).tolist() == expected
        for place, moment in zip(np.flatnonzero(mask[row]), expected, strict=True):
            moved = store.state(node, moment + 1) - store.state(node, moment)
            np.testing.assert_array_equal(delta[row, place], moved[0])
    assert spread > 0, "shards that always agree would test nothing"
    assert not delta[~mask].any()
    with pytest.raises(ParameterError, match="g is 'angle'"):
        store.window(nodes, times, k, "angle")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=f"{2**62}, .* look back less"):
        store.window(nodes, times, 2**62)


def test_changes_of_a_node_are_the_states_at_every_record_of_any_shard(tmp_path: Path) -> None:
    store = recorded(tmp_path, epsilon=0.3)
    for node in range(NODES):
        times, states = store.changes(node)
        assert times.tolist() == sorted({*times.tolist()})
        np.testing.assert_array_equal(
            states[1:], store.state(np.full(len(times) - 1, node), times[1:] + 1)
        )


def test_states_lie_within_the_bound_of_all_columns(tmp_path: Path) -> None:
    store = recorded(tmp_path)
    stream = random_stream()
    fine = Propagator(SKETCH, nodes=NODES, channels=SETTINGS.channels, r_max=1e-9, dtype="float64")
    steps = stream.steps()
    fine.apply_steps(steps.batch(0, len(steps)), steps.offsets)
    ids = np.arange(NODES)
    end = int(stream.t[-1]) + 1
    apart = np.linalg.norm(store.state(ids, end) - fine.embedding(), axis=2)
    assert (apart <= store.bound(ids, end)).all()
    assert apart.max() > 0


def test_given_features_are_divided_like_a_sketch(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).normal(size=(NODES, COLUMNS))
    store = tg.record_shards(random_stream(), rows, tmp_path / "a", shards=2, settings=SETTINGS)
    alone = whole(tmp_path / "b", np.ascontiguousarray(rows[:, 4:]))
    asked = queries()
    np.testing.assert_array_equal(store.state(*asked)[:, :, 4:], alone.state(*asked))


def test_every_shard_starts_from_the_initial_graph(tmp_path: Path) -> None:
    plain, begin = random_stream(), int(random_stream().t[0])
    src, dst = np.array([0, 1]), np.array([1, 2])
    linked = replace(plain, initial=Edges(src, dst, None))
    store = tg.record_shards(linked, SKETCH, tmp_path, shards=2, settings=SETTINGS)
    for part, (first, columns) in zip(store.shards, ((0, 4), (4, 3)), strict=True):
        expected = Propagator(
            SKETCH.part(first, columns),
            nodes=NODES,
            channels=SETTINGS.channels,
            initial=Batch(src=src, dst=dst, t=begin),
        ).embedding()
        np.testing.assert_array_equal(part.state(range(NODES), begin), expected)
        empty = Propagator(SKETCH.part(first, columns), nodes=NODES, channels=SETTINGS.channels)
        assert (expected != empty.embedding())[:3].all()


def test_half_precision_takes_half_the_space(tmp_path: Path) -> None:
    wide: dict[str, Any] = {"shards": 2, "settings": SETTINGS, "epsilon": 0.1}
    full, half = (
        tg.record_shards(random_stream(), Sketch(64), tmp_path / dtype, dtype=dtype, **wide)
        for dtype in ("float32", "float16")
    )
    assert half.dtype == np.float16
    assert half.nbytes < 0.6 * full.nbytes


def test_features_of_pairs_are_read_from_shards_as_from_one_store(tmp_path: Path) -> None:
    stores = recorded(tmp_path / "a", shards=1), whole(tmp_path / "b")
    (src, t), dst = queries(), np.random.default_rng(3).integers(0, NODES, 200)
    answers = [Sketches(store, SKETCH).of_links(src, dst, t) for store in stores]
    np.testing.assert_array_equal(answers[0], answers[1])


# Interruption, damage, misuse ---------------------------------------------------------------------


class Ended(Exception):
    """Raised to end a recording early."""


def test_an_interrupted_recording_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    def end(done: int, total: int, what: str) -> None:
        if done > total // 2:
            raise Ended

    path = tmp_path / "a"
    with pytest.raises(Ended):
        recorded(path, progress=end)
    with pytest.raises(StateFileError, match="not finished"):
        ShardedTrajectories.open(path)
    recorded(path)
    recorded(tmp_path / "b")
    assert content(path) == content(tmp_path / "b")
    seen: list[Any] = []
    recorded(path, progress=lambda *report: seen.append(report))
    assert not seen, "nothing is recorded twice"


def test_another_recording_is_rejected_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    recorded(path)
    before = content(path)
    with pytest.raises(ParameterError, match=r"shards 3, .* 2;"):
        recorded(path, shards=2)
    with pytest.raises(ParameterError, match=r"epsilon 0\.05, .* 0\.2;"):
        recorded(path, epsilon=0.2)
    with pytest.raises(ParameterError, match=r"settings\.r_max .* 0\.1;"):
        recorded(path, settings=replace(SETTINGS, r_max=0.1))
    assert content(path) == before


def test_a_changed_or_missing_shard_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a"
    recorded(path)
    manifest = path / "shards.json"
    good = manifest.read_text()
    manifest.write_text(good.replace('"epsilon": 0.05', '"epsilon": 0.06'))
    with pytest.raises(StateFileError, match="altered"):
        ShardedTrajectories.open(path)
    manifest.write_text(good)
    later = random_stream(5)
    later = replace(later, t=later.t + 1000)
    ShardedTrajectories.open(path).shards[1].append(later)
    with pytest.raises(StateFileError, match="shard-001 is missing or was changed"):
        ShardedTrajectories.open(path)
    with pytest.raises(EventError, match="other events"):
        recorded(path)
    shutil.rmtree(path / "shard-001")
    with pytest.raises(StateFileError, match="shard-001 is missing"):
        ShardedTrajectories.open(path)


def test_a_shard_that_was_deleted_is_recorded_again_and_no_other(tmp_path: Path) -> None:
    recorded(tmp_path)
    before = content(tmp_path)
    shutil.rmtree(tmp_path / "shard-001")
    seen: list[str] = []
    recorded(tmp_path, progress=lambda done, total, what: seen.append(what.partition(":")[0]))
    assert set(seen) == {"shard-001", "1 of 1 finished"}
    assert content(tmp_path) == before


def test_verifying_finds_a_damaged_segment(tmp_path: Path) -> None:
    store = recorded(tmp_path)
    segment = max((tmp_path / "shard-002").glob("*.records"), key=lambda file: file.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[-100] ^= 1
    segment.write_bytes(data)
    del store
    with pytest.raises(StateFileError, match="shard-002"):
        ShardedTrajectories.open(tmp_path, verify=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shards": 0}, "shards is 0"),
        ({"shards": COLUMNS + 1}, "shards is 8; .* 7"),
        ({"engine": "mpi"}, "'local' or 'ray'"),
        ({"workers": 2}, "workers.*'ray'"),
        ({"engine": "ray", "workers": 0}, "workers is 0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
    ],
)
def test_invalid_settings_are_rejected_before_anything_is_written(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        recorded(tmp_path / "a", **wrong)
    assert not (tmp_path / "a").exists()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(ParameterError, match=r"thesis\.tex"):
        recorded(tmp_path)


# Ray ----------------------------------------------------------------------------------------------
# Ray ends processes that it believes lost: `make test-slow` gives these tests one of their own.
# The one that loses a cluster comes before the others start theirs.


LOST = """
import os, signal, subprocess, sys, time
from pathlib import Path
from tests.test_shards import recorded
from tidegraph import ClusterError
from tidegraph.store import shards

work = shards._record_shard

def slow(common, shard, progress):
    if shard.name == "shard-001":
        time.sleep(100)  # longer than it takes to notice
    return work(common, shard, progress)

def lose(done, total, what):
    if what == "1 of 3 finished":
        lines = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True)
        for pid, parent, name in (line.split(None, 2) for line in lines.stdout.splitlines()):
            if parent == str(os.getpid()) and name in ("raylet", "gcs_server"):
                os.kill(int(pid), signal.SIGKILL)

shards._record_shard = slow
try:
    recorded(Path(sys.argv[1]), engine="ray", workers=1, progress=lose)
except ClusterError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.ray
def test_a_lost_cluster_is_reported_and_finished_shards_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    path = tmp_path / "a"
    # In a process of its own: Ray ends processes that it believes lost.
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(path)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Ray" in done.stdout
    first = content(path / "shard-000")
    assert json.loads(first["manifest.json"])["complete"]
    recorded(path)
    recorded(tmp_path / "b")
    assert content(path) == content(tmp_path / "b")
    assert content(path / "shard-000") == first


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Start one small cluster for all tests here, since starting one takes many seconds."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=100 << 20,
    )
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_a_cluster_records_the_same_bytes_as_one_process(tmp_path: Path) -> None:
    recorded(tmp_path / "here")
    seen: list[tuple[int, int, str]] = []
    store = recorded(
        tmp_path / "there", engine="ray", workers=2, progress=lambda *report: seen.append(report)
    )
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert store.columns == COLUMNS
    assert seen[-1] == (3000, 3000, "3 of 3 finished")
    random_stream().save(tmp_path / "events.tide")
    read_there = tg.record_shards(
        tmp_path / "events.tide",
        SKETCH,
        tmp_path / "file",
        shards=3,
        settings=SETTINGS,
        engine="ray",
        **SMALL,
    )
    assert content(read_there.path) == content(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "here")
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    work = shards._record_shard

    # Defined here, so that it is sent to the workers as it is.
    def mortal(common: Any, shard: Any, progress: Any) -> str:
        def fatal(done: int, total: int, what: str) -> None:
            mark = deaths / shard.name
            if done > total // 2 and not mark.exists():
                mark.write_text(f"{done} of {total}")
                os.kill(os.getpid(), signal.SIGKILL)

        return work(common, shard, fatal)

    monkeypatch.setattr(shards, "_record_shard", mortal)
    recorded(tmp_path / "there", engine="ray")
    assert len(list(deaths.iterdir())) == 3, "every worker died once"
    assert content(tmp_path / "there") == content(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_an_error_in_a_worker_is_the_error_of_the_run(tmp_path: Path) -> None:
    def full(common: Any, job: Any, progress: Any) -> None:
        raise StorageError(28, f"{job}: no space left")

    with pytest.raises(StorageError, match="b: no space left"):
        workers.run(full, None, {"a job": "b"}, tmp_path, engine="ray")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_a_worker_that_always_dies_is_given_up(tmp_path: Path) -> None:
    def doomed(common: Any, job: Any, progress: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ClusterError, match="a job"):
        workers.run(doomed, None, {"a job": 1}, tmp_path, engine="ray")
    assert not list(tmp_path.iterdir())


# The command --------------------------------------------------------------------------------------


def test_the_command_records_shards_and_resumes(tmp_path: Path) -> None:
    random_stream().save(tmp_path / "events.tide")
    path = tmp_path / "out"
    words = [
        *("record", str(tmp_path / "events.tide"), "-o", str(path), "--columns", str(COLUMNS)),
        *("--seed", "4", "--shards", "3", "--high-pass", "--half-life", "40", "--json"),
    ]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.splitlines()[-1])
    store = ShardedTrajectories.open(path)
    assert (summary["shards"], summary["columns"], summary["channels"]) == (3, COLUMNS, 4)
    assert (summary["records"], summary["disk_bytes"]) == (store.records, store.nbytes)
    before = content(path)
    assert CliRunner().invoke(main, words).exit_code == 0
    assert content(path) == before
    rejected = CliRunner().invoke(main, [*words, "--epsilon", "0.2"])
    assert rejected.exit_code == 2
    assert "epsilon 0.05, and this one has 0.2" in rejected.output


def test_the_command_rejects_invalid_options(tmp_path: Path) -> None:
    random_stream().save(tmp_path / "events.tide")
    words = ["record", str(tmp_path / "events.tide"), "-o", str(tmp_path / "out")]
    for more, message in (
        (["--workers", "2"], "--engine ray"),
        (["--node-features"], "has no node features"),
        (["--columns", "2", "--shards", "3"], "columns, 2"),
    ):
        done = CliRunner().invoke(main, [*words, *more])
        assert done.exit_code == 2
        assert message in done.output
    assert not (tmp_path / "out").exists()
