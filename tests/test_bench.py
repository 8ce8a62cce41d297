"""Benchmarks compare like with like, store what they were computed from, skip what is absent."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegraph import bench
from tidegraph.bench import competitors, measuring, recomputing, scaling
from tidegraph.bench.competitors import PowerIteration, Yardstick
from tidegraph.bench.graphs import MEAN_DEGREE, PowerLaw, Stream, load_stream
from tidegraph.bench.measuring import BenchSettings, Skipped
from tidegraph.bench.results import circumstances
from tidegraph.core import machine
from tidegraph.core.errors import ParameterError
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.engine.reference import exact_of
from tidegraph.events.batch import Batch
from tidegraph.events.datasets import registry

YARDSTICK = Path(os.environ["TIDEGRAPH_YARDSTICK"])  # before a test changes it
# Takes the arguments of the real one and claims to have taken a second, merged a quarter of one.
STAND_IN = """
#include <cstdio>
#include <cstdlib>
int main(int, char** a) {
    const double s = std::atoi(a[7]) ? 0.25 : 1;
    std::printf("initial_s 9.000 stream_s %.3f steps %s events 1 checksum 0.5\\n", s, a[6]);
}
"""


@pytest.fixture
def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write data sets with the names of the benchmarks', small enough to run them all."""
    rng = np.random.default_rng(3)
    for name, length in (("uci", 190_080), ("wikipedia", 1)):
        lines = ["src,dst,time,label"] + [f"{i},{i + 30},0,0" for i in range(30)]
        t = np.sort(rng.integers(1, 120, 400)) * length
        ends = rng.integers(0, 60, (400, 2))
        lines += [f"{u},{v},{when},0" for (u, v), when in zip(ends, t, strict=True)]
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt") as file:
            file.write("\n".join(lines) + "\n")
    monkeypatch.setenv("TIDEGRAPH_DATA", str(tmp_path))
    monkeypatch.setenv("TIDEGRAPH_YARDSTICK", str(tmp_path))
    monkeypatch.setattr(registry, "check", lambda *_: None)  # these are not the real files
    return tmp_path


def assert_positive(value: Any) -> None:
    """Check that every number in it, however deep, is finite and above zero."""
    if isinstance(value, dict):
        value = list(value.values())
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, (dict, list)):
            assert_positive(one)
        else:
            assert np.isfinite(one)
            assert one > 0


PEAKS = ["peak_memory_ratio", "peak_memory_ratio_sketch"]


def test_every_section_gives_its_numbers(small_data: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("the yardstick is compiled with g++")
    (small_data / "yardstick.cpp").write_text(STAND_IN)
    results = bench.propagation(repeat=2, scale=0.002, threads=min(2, machine.cores()))
    assert results["failed"] == {}
    assert set(results["skipped"]) <= {"threads", "memory"}  # one core; a system without /proc
    assert results["repeat"] == 2
    names = ["yardstick_ratio_uci", "merged_ratio_uci", "recompute_ratio", "static_ratio_scipy"]
    names += ["yardstick_ratio_wikipedia", "merged_ratio_wikipedia", "event_latency_us"]
    if "threads" not in results["skipped"]:
        names += ["thread_scaling", "bandwidth_scaling", "thread_efficiency"]
    if "memory" not in results["skipped"]:
        names += ["bytes_per_edge", *PEAKS, "peak_memory_ratio_read_only"]
    assert_positive([results[name] for name in names])
    assert_positive(results["growth"])
    assert [row["nodes"] for row in results["growth"]] == [100, 200, 2000]
    assert set(bench.GOALS) - {"thread_efficiency", "bytes_per_edge", *PEAKS} <= set(results)
    # The stand-in's times do not depend on the machine: four times as long unmerged.
    assert results["yardstick_ratio_uci"] == pytest.approx(4 * results["merged_ratio_uci"])
    assert len(results["details"]["uci"]["engine_s"]) == 2
    json.dumps(results, allow_nan=False)


def test_sections_without_their_data_are_skipped_with_the_reason(
    small_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results = bench.propagation(only=["uci"], repeat=1, scale=0.01)
    assert "TIDEGRAPH_YARDSTICK" in results["skipped"]["uci"]
    assert "yardstick_ratio_uci" not in results
    (small_data / "yardstick.cpp").write_text("this is not C++")
    assert "compile" in bench.propagation(only=["uci"], repeat=1)["skipped"]["uci"]
    monkeypatch.setenv("TIDEGRAPH_DATA", str(tmp_path / "nowhere"))
    names = ["uci", "wikipedia", "recompute", "threads", "latency"]
    results = bench.propagation(only=names, repeat=1)
    for name in names:
        if not (name == "threads" and machine.cores() == 1):
            assert "TIDEGRAPH_DATA" in results["skipped"][name]
    assert "asked" in results["skipped"]["growth"]


def test_times_without_the_promised_error_are_not_reported(
    small_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_PROMISE", 1e-9)
    results = bench.propagation(only=["latency"], scale=0.01)
    assert "promised" in results["failed"]["latency"]
    assert "event_latency_us" not in results


def test_an_unknown_section_or_setting_is_rejected() -> None:
    with pytest.raises(ParameterError, match=r"nothing.* uci, wikipedia"):
        bench.propagation(only=["nothing"])
    with pytest.raises(ParameterError, match="scale"):
        bench.propagation(only=["growth"], scale=0.0)


def test_results_are_written_with_a_plot(tmp_path: Path) -> None:
    results = bench.propagation(only=["growth"], repeat=1, scale=0.001)
    written = bench.write(results, tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text())["growth"] == results["growth"]
    assert [path.name for path in written] == ["result.json", "result-growth.svg"]
    assert "</svg>" in written[1].read_text()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(
    not YARDSTICK.is_dir() or shutil.which("g++") is None,
    reason="there is no $TIDEGRAPH_YARDSTICK, or no g++ to compile it",
)
def test_the_yardstick_reads_what_the_engine_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_data: Path
) -> None:
    monkeypatch.setenv("TIDEGRAPH_YARDSTICK", str(YARDSTICK))
    stream = load_stream("uci")
    yardstick = Yardstick(tmp_path)
    yardstick.write(stream)
    assert yardstick.run(stream, threads=1, merge=True) > 0


def test_a_yardstick_that_stops_early_is_an_error(small_data: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("the yardstick is compiled with g++")
    (small_data / "yardstick.cpp").write_text(STAND_IN.replace("steps %s", "steps 0%.0s"))
    stream = Stream("x", Batch([0] * 3, [0] * 3), np.arange(4), nodes=1, columns=1)
    with pytest.raises(RuntimeError, match="0 of 3 steps"):
        Yardstick(small_data).run(stream, threads=1, merge=False)


@pytest.mark.parametrize("channel", [Channel.low_pass(), Channel.high_pass(0.1, beta=0.3)])
def test_power_iteration_reaches_the_error_it_certifies(channel: Channel) -> None:
    edges = PowerLaw(300, seed=1).edges(1500)
    propagator = Propagator(Sketch(5), nodes=300, channels=[channel], initial=edges)
    # As tight as float32 allows, so that the certificate leaves little room.
    limit = np.full(5, 1e-4)
    competitor = PowerIteration(propagator)
    solution = competitor.solve(competitor.first, limit)
    beta = 0.5 if channel.beta is None else channel.beta
    exact = exact_of(propagator)[:, 0] / propagator.degree() ** (1 - beta)
    assert solution.iterations > 1
    assert np.abs(solution.ratio - exact).max() <= limit[0]
    again = competitor.solve(solution.ratio, limit)
    assert again.iterations == 1


def test_the_limit_of_power_iteration_is_the_engines_own_bound() -> None:
    edges = PowerLaw(300, seed=2).edges(1500)
    propagator = Propagator(Sketch(5), nodes=300, initial=edges)
    limit = recomputing._limit(propagator, 1.0)
    np.testing.assert_allclose(
        limit * np.sqrt(propagator.degree()), propagator.threshold()[:, 0], rtol=1e-12
    )


def test_a_power_law_graph_has_the_expected_degrees() -> None:
    nodes = 20_000
    law = PowerLaw(nodes, seed=5)
    edges = law.edges(nodes * MEAN_DEGREE // 2)
    degree = np.bincount(np.concatenate([edges.src, edges.dst]), minlength=nodes)
    assert degree.mean() == MEAN_DEGREE
    largest = np.sqrt(MEAN_DEGREE * nodes)
    assert 0.7 * largest < degree.max() < 1.3 * largest
    # Of a power law with exponent 2.5 a fraction ~ 8^-1.5 has more than 8 times the median.
    heavy = np.mean(degree > 8 * np.median(degree))
    assert 0.3 * 16**-1.5 < heavy < 3 * 8**-1.5


def test_a_power_law_graph_is_a_function_of_its_seed() -> None:
    one, same, other = (PowerLaw(1000, seed).edges(10).src.tolist() for seed in (5, 5, 6))
    assert one == same
    assert one != other


def test_streams_are_cut_as_the_yardstick_counts_steps(small_data: Path) -> None:
    stream = load_stream("uci")
    rows = np.array([line.split() for line in stream.text().splitlines()], dtype=np.int64)
    assert rows[:, 0].tolist() == stream.batch.src.tolist()
    assert (np.diff(rows[:, 2]) >= 0).all()
    assert rows[-1, 2] + 1 == stream.steps == 89


def test_without_scipy_its_sections_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real_import = builtins.__import__

    def no_scipy(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real_import(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", no_scipy)
    with pytest.raises(Skipped, match="scipy"):
        competitors.needs_scipy()
    results = bench.propagation(only=["static"], scale=0.001)
    assert "scipy" in results["skipped"]["static"]


def test_probes_measure_something() -> None:
    assert machine.copy_bandwidth(2, megabytes=1, copies=2) > 1e6
    assert 0 < machine.row_access_ns(1000, columns=64) < 1e6
    assert machine.describe()["cores"] >= 1


def test_growing_removes_only_what_it_added(tmp_path: Path) -> None:
    graph = scaling._Growing(200, BenchSettings(tmp_path, threads=1))
    before = weights(graph.propagator)
    graph.add_events(31)
    after = weights(graph.propagator)
    # 31 events are 10 times (add, add, remove the first) and one more addition.
    assert after.sum() - before.sum() == pytest.approx(11)
    assert (after - before >= 0).all()


def weights(propagator: Propagator) -> Any:
    dense = np.zeros((propagator.nodes, propagator.nodes))
    src, dst, weight = propagator.edges()
    dense[src, dst] = weight
    return dense


def test_a_stream_is_a_batch_of_plain_additions(small_data: Path) -> None:
    batch = load_stream("wikipedia").batch
    assert isinstance(batch, Batch)
    assert batch.op is None
    assert batch.weight is None


def test_the_same_numbers_are_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from tidegraph.bench.plots import plot_scale

    rows = [
        {
            "edges": edges,
            "columns": columns,
            "r_max": r_max,
            "seconds": {"build": edges / 1e6, "first": edges / 1e5},
            "cpu_s": {"first": columns / r_max},
            "peak_anonymous_bytes": {"build": 9 * edges, "first": 100 * edges},
            "disk_bytes": {"build": 8 * edges},
        }
        for edges, columns, r_max in ((10**6, 4, 1e-1), (10**7, 16, 1e-2))
    ]
    growth = dict.fromkeys(("edges", "columns", "r_max"), rows)
    plot_scale(growth, [rows[0] | {"edges": 10**9}], tmp_path / "one.svg")
    plot_scale(growth, [rows[0] | {"edges": 10**9}], tmp_path / "other.svg")
    plot_scale(growth, [], tmp_path / "less.svg")
    one, other, less = (
        (tmp_path / f"{name}.svg").read_bytes() for name in ("one", "other", "less")
    )
    assert one == other
    assert one.count(b"<use") > less.count(b"<use")


def test_circumstances_hold_no_path_of_the_machine(tmp_path: Path) -> None:
    command = f"python benchmarks/scale.py --out {tmp_path}/x.json --directory={tmp_path} uci"
    about = circumstances(command)
    expected = f"python benchmarks/scale.py --out x.json --directory={tmp_path.name} uci"
    assert about["command"] == expected
    assert str(tmp_path.parent) not in json.dumps(about)


RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def test_committed_results_hold_no_path_of_the_machine() -> None:
    path = re.compile(r"""(?:^|["'\s=(])(?:/\w[\w.-]*){2,}|(?:^|[\s"'])(?:~|\.\.)/""", re.MULTILINE)
    for file in sorted(RESULTS.rglob("*")):
        if file.suffix in (".json", ".md"):
            found = path.search(file.read_text(encoding="utf-8"))
            assert found is None, f"{file.relative_to(RESULTS)} holds {found[0]!r}"


@pytest.mark.slow
def test_runs_of_growing_streams_are_measured_once(tmp_path: Path) -> None:
    from tidegraph.bench.plots import plot_run_growth
    from tidegraph.bench.run_growth import run_growth

    path = tmp_path / "growth.json"
    options = ["--quick", "--set", "epochs=1"]
    (row,) = run_growth(path, events=[1000], data=[], options=options)["rows"]
    assert row["events"] == 1000
    assert {"record", "train", "score", "other", "total"} <= row["seconds"].keys()
    assert row["seconds"]["total"] == pytest.approx(
        sum(value for stage, value in row["seconds"].items() if stage != "total"), abs=0.1
    )
    for name in ("peak_bytes", "peak_anonymous_bytes", "disk_bytes", "cpu_s"):
        assert row[name] > 0
    written = path.read_bytes()
    assert run_growth(path, events=[1000], data=[], options=options)["rows"] == [row]
    assert path.read_bytes() == written
    plot_run_growth([row], tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").read_text(encoding="utf-8").startswith("<?xml")
