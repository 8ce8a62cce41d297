"""Columns in passes: planned, propagated within a memory limit, resumed and read by node."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import tidegraph
from tidegraph import Channel, Propagator, Sketch
from tidegraph.cli import main
from tidegraph.core import durable
from tidegraph.core.durable import only_writer
from tidegraph.core.errors import (
    DataError,
    EventError,
    ParameterError,
    PrecisionError,
    StorageError,
)
from tidegraph.engine import building, compact, embeddings, passes
from tidegraph.engine.compact import CompactGraph
from tidegraph.engine.embeddings import Embeddings
from tidegraph.engine.passes import propagate_in_passes
from tidegraph.engine.planning import pass_bytes, plan

NODES = 3000


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> CompactGraph:
    path = tmp_path_factory.mktemp("passes")
    src, dst = np.random.default_rng(0).integers(0, NODES, (2, 20_000))
    pq.write_table(pa.table({"src": src, "dst": dst}), path / "edges.parquet")
    return building.build(path / "edges.parquet", path / "graph", nodes=NODES)


def memory_for(columns: int, channels: int = 1) -> int:
    return pass_bytes(NODES, columns, channels)


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_passes_give_what_one_propagation_gives(
    tmp_path: Path, graph: CompactGraph, stored: Any
) -> None:
    sketch, filters = Sketch(30, seed=3), (Channel.low_pass(), Channel.high_pass())
    out = tmp_path / "out"
    made = propagate_in_passes(
        graph, sketch, out, memory=memory_for(8, 2), channels=filters, stored=stored
    )
    assert made.shape == (NODES, 2, 30)
    assert len(made.residuals) == 4
    assert made.residuals.max() <= 1
    assert made.dtype == stored
    whole = Propagator(sketch, initial=graph, channels=filters)
    nodes = np.array([5, 0, NODES - 1, 5])
    expected = whole.embedding(nodes)
    rounding = np.abs(expected) * (2.0**-10 if stored == "float16" else 0) + 1e-6
    # Either is within its promise of the exact solution.
    distance = np.abs(Embeddings.open(out)[nodes] - expected)
    assert (distance <= 2 * whole.threshold(nodes) + rounding).all()


def test_passes_keep_the_promise_for_weights_that_are_no_float32_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    src, dst = rng.integers(0, 300, (2, 2000))
    weight = 10 ** rng.uniform(-15, 15, 2000)
    pq.write_table(pa.table({"src": src, "dst": dst, "w": weight}), tmp_path / "edges.parquet")
    graph = building.build(tmp_path / "edges.parquet", tmp_path / "graph", weight="w")
    assert graph.sources[3] is not None
    sketch, options = Sketch(4), {"r_max": 1e-5, "dtype": "float64"}
    made = propagate_in_passes(graph, sketch, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert made.residuals.max() <= 1
    exact = Propagator(sketch, initial=graph.rows(), nodes=300, r_max=1e-10, dtype="float64")
    promise = Propagator(sketch, initial=graph, **options).threshold()  # type: ignore[arg-type]
    rounding = 2.0**-23 * np.abs(exact.embedding()) + exact.threshold()
    assert (np.abs(made[np.arange(300)] - exact.embedding()) <= promise + rounding).all()


def test_given_features_are_propagated_in_passes_like_any_others(
    tmp_path: Path, graph: CompactGraph
) -> None:
    matrix = np.random.default_rng(1).normal(size=(NODES, 10))
    np.save(tmp_path / "features.npy", matrix)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    out = tmp_path / "out"
    made = propagate_in_passes(graph, mapped, out, memory=memory_for(4))
    assert made.shape == (NODES, 1, 10)
    assert len(made.residuals) == 3
    assert sorted(path.suffix for path in out.iterdir()) == [".json", ".npy", ".npy", ".npy"]
    whole = Propagator(matrix, initial=graph)
    distance = np.abs(made[np.arange(NODES)] - whole.embedding())
    assert (distance <= 2.001 * whole.threshold()).all()
    with pytest.raises(StorageError, match="out holds"):
        propagate_in_passes(graph, matrix + 1, out, memory=memory_for(4))
    with pytest.raises(ParameterError, match=r"\(2999, 10\).*\[3000, columns\]"):
        propagate_in_passes(graph, matrix[1:], tmp_path / "x")


def test_the_columns_of_a_sketch_do_not_depend_on_the_pass() -> None:
    wide = Sketch(12, seed=9)
    np.testing.assert_array_equal(
        wide.rows([4, 7])[:, 5:9], Sketch(4, seed=9, first_column=5).rows([4, 7])
    )
    part = Propagator(Sketch(4, seed=9, first_column=5), nodes=8, dtype="float64")
    np.testing.assert_allclose(part.features([4, 7]), wide.rows([4, 7])[:, 5:9], rtol=1e-14)
    with pytest.raises(ParameterError, match="first_column"):
        Sketch(4, first_column=-1)


def test_an_interrupted_call_resumes_after_its_last_complete_pass(
    tmp_path: Path, graph: CompactGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    sketch, memory = Sketch(12), memory_for(4)
    whole = propagate_in_passes(graph, sketch, tmp_path / "whole", memory=memory)
    audit, calls = Propagator.audit, 0

    def dying(self: Propagator) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return audit(self)

    monkeypatch.setattr(Propagator, "audit", dying)
    with pytest.raises(KeyboardInterrupt):
        propagate_in_passes(graph, sketch, tmp_path / "cut", memory=memory)
    with pytest.raises(DataError, match="4 of 12 columns"):
        Embeddings.open(tmp_path / "cut")
    first = (tmp_path / "cut" / "block-000.npy").stat().st_mtime_ns
    resumed = propagate_in_passes(graph, sketch, tmp_path / "cut", memory=memory)
    assert (tmp_path / "cut" / "block-000.npy").stat().st_mtime_ns == first
    everyone = np.arange(NODES)
    np.testing.assert_array_equal(resumed[everyone], whole[everyone])
    with pytest.raises(StorageError, match="cut holds"):
        propagate_in_passes(graph, Sketch(12, seed=1), tmp_path / "cut", memory=memory)


def test_a_plan_keeps_to_the_memory_it_was_given() -> None:
    for memory in ("400M", "1G", "8G"):
        made = plan(10**6, 10**7, 200, memory=memory)
        assert made.memory_bytes <= compact.memory_bytes(memory)
        assert made.passes * made.columns_per_pass >= 200
        assert (made.passes - 1) * made.columns_per_pass < 200
    little = plan(10**6, 10**7, 200, memory="400M")
    assert plan(10**6, 10**7, 200, memory="8G").passes < little.passes
    with pytest.raises(ParameterError, match=r"memory=1G .* memory=\S+G"):
        plan(10**9, 10**9, 1, memory="1G")


PROMISE = """
import resource, sys
from tidegraph import Sketch
from tidegraph.engine import compact
from tidegraph.engine import passes
limit, dtype = int(sys.argv[3]), sys.argv[4]
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
graph = compact.open_graph(sys.argv[1])
made = passes.propagate_in_passes(
    graph, Sketch(40), sys.argv[2], memory=limit, threads=2, dtype=dtype
)
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(len(made.residuals), int(lines["RssAnon"].split()[0]) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of data are Linux's")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_passes_keep_within_the_memory_promised(tmp_path: Path, dtype: Any) -> None:
    nodes = 300_000
    src, dst = np.random.default_rng(1).integers(0, nodes, (2, 600_000))
    pq.write_table(pa.table({"src": src, "dst": dst}), tmp_path / "edges.parquet")
    graph = building.build(tmp_path / "edges.parquet", tmp_path / "graph", nodes=nodes)
    limit = pass_bytes(nodes, 16, 1, dtype)
    wanted = pass_bytes(nodes, 40, 1, dtype)
    assert limit < wanted  # 40 columns at once would not fit
    done = subprocess.run(
        [sys.executable, "-c", PROMISE, str(graph.path), str(tmp_path / "out"), str(limit), dtype],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, anonymous = map(int, done.stdout.split())
    assert count == 3
    assert anonymous <= limit


def test_invalid_nodes_options_and_directories_are_rejected(
    tmp_path: Path, graph: CompactGraph
) -> None:
    made = propagate_in_passes(graph, Sketch(3), tmp_path / "out")
    with pytest.raises(EventError, match=r"node 3000 .* 0 to 2999"):
        made[[NODES]]
    with pytest.raises(EventError, match=r"0\.5"):
        made[[0.5]]
    with pytest.raises(EventError, match=str(2**63)):
        made[np.array([2**63], dtype=np.uint64)]
    with pytest.raises(ParameterError, match="stored"):
        propagate_in_passes(graph, Sketch(3), tmp_path / "x", stored="int8")  # type: ignore[arg-type]
    (tmp_path / "out" / "block-000.npy").unlink()
    with pytest.raises(DataError, match=r"block-000\.npy is missing"):
        Embeddings.open(tmp_path / "out")


def test_the_commands_build_plan_and_propagate(tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text("src,dst,t\n0,1,1\n1,2,2\n2,2,3\n")
    run = CliRunner()

    def last_line(*words: str) -> dict[str, Any]:
        result = run.invoke(main, [*words, "--json"])
        assert result.exit_code == 0, result.output
        facts: dict[str, Any] = json.loads(result.output.splitlines()[-1])
        return facts

    built = last_line("graph", "build", str(edges), "-o", str(tmp_path / "graph"))
    assert (built["nodes"], built["edges"]) == (3, 3)
    assert last_line("graph", "info", str(tmp_path / "graph"), "--verify")["verified"]
    planned = last_line("plan", "--nodes", "1000000", "--edges", "10000000", "--columns", "64")
    assert planned["passes"] == 1
    halved = last_line(
        *("plan", "--nodes", "1000000", "--edges", "10000000", "--columns", "64"),
        *("--stored", "float16"),
    )
    assert 2 * halved["embedding_bytes"] == planned["embedding_bytes"]
    weighted = last_line(
        *("plan", "--nodes", "1000000", "--edges", "10000000", "--columns", "64", "--weighted")
    )
    assert weighted["graph_bytes"] == planned["graph_bytes"] + 8 * 2 * 10**7
    spools = weighted["build_disk_bytes"] - planned["build_disk_bytes"]
    assert spools == 8 * 2 * 10**7 + 8 * 10**7 + 4 * 10**6
    out = str(tmp_path / "out")
    made = last_line("propagate", str(tmp_path / "graph"), "--columns", "5", "-o", out)
    assert made["columns"] == 5
    assert made["residual"] <= 1
    assert Embeddings.open(out)[[0, 2]].shape == (2, 1, 5)
    np.save(tmp_path / "x.npy", np.eye(3, 2))
    words = ["--features", str(tmp_path / "x.npy"), "-o", str(tmp_path / "given")]
    assert last_line("propagate", str(tmp_path / "graph"), *words)["columns"] == 2
    both = run.invoke(main, ["propagate", str(tmp_path / "graph"), "--columns", "2", *words])
    assert both.exit_code == 2
    assert "one of the two" in both.output
    assert last_line("embeddings", out, "--verify")["verified"]
    rejected = run.invoke(main, ["graph", "info", str(tmp_path)])
    assert rejected.exit_code == 2
    assert "no compact graph" in rejected.output


def test_a_rejected_call_leaves_the_directory_free_for_a_valid_one(
    tmp_path: Path, graph: CompactGraph
) -> None:
    out = tmp_path / "out"
    with pytest.raises(ParameterError, match="r_max"):
        propagate_in_passes(graph, Sketch(4), out, r_max=-1.0)
    assert propagate_in_passes(graph, Sketch(4), out).shape == (graph.nodes, 1, 4)
    with pytest.raises(StorageError, match="out holds"):
        propagate_in_passes(graph, Sketch(5), out)


def test_a_call_that_met_a_full_disk_at_the_start_can_be_repeated(
    tmp_path: Path, graph: CompactGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out"
    monkeypatch.setattr(durable, "sync", full)
    with pytest.raises(StorageError, match=os.strerror(errno.ENOSPC)):
        propagate_in_passes(graph, Sketch(4), out)
    monkeypatch.undo()
    np.testing.assert_array_equal(
        propagate_in_passes(graph, Sketch(4), out)[[0, 1]],
        propagate_in_passes(graph, Sketch(4), tmp_path / "whole")[[0, 1]],
    )


def test_a_damaged_manifest_or_header_is_named(tmp_path: Path, graph: CompactGraph) -> None:
    out = tmp_path / "out"
    propagate_in_passes(graph, Sketch(4), out)
    block = out / "block-000.npy"
    whole = block.read_bytes()
    block.write_bytes(whole.replace(b"<f4", b">f4", 1))  # the numbers are the same bytes
    with pytest.raises(DataError, match="block-000"):
        Embeddings.open(out)
    block.write_bytes(whole)
    manifest = out / "embeddings.json"
    manifest.write_bytes(manifest.read_bytes()[:100])
    with pytest.raises(StorageError, match=r"embeddings\.json"):
        propagate_in_passes(graph, Sketch(4), out)


@pytest.mark.parametrize("kind", ["empty", "several", "text"])
def test_a_file_without_an_array_is_rejected_as_features(
    tmp_path: Path, graph: CompactGraph, kind: str
) -> None:
    file = tmp_path / "features"
    if kind == "several":
        np.savez(tmp_path / "features.npz", np.zeros((graph.nodes, 2)))
        file = tmp_path / "features.npz"
    else:
        file.write_text("" if kind == "empty" else "1,2,3\n")
    arguments = ["propagate", str(graph.path), "--features", str(file), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "numpy.save" in result.output
    assert not (tmp_path / "out").exists()


def test_an_interrupted_command_explains_how_to_resume(
    tmp_path: Path, graph: CompactGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(passes, "propagate_in_passes", stop)
    out = tmp_path / "out"
    words = ["propagate", str(graph.path), "--columns", "4", "-o", str(out)]
    for there in (False, True):
        if there:
            out.mkdir()
            (out / "a pass").touch()
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 130
        assert ("Nothing was written" in result.output) != there
        assert ("give the same command again to resume" in result.output) == there


def invoke(*words: object) -> tuple[int, str]:
    """Return the exit code of a command and its output as one line."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, " ".join(result.output.split())


# Residuals ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> CompactGraph:
    """Return a graph with hubs, on which rounding in float32 matters."""
    path = tmp_path_factory.mktemp("drifting")
    generator = np.random.default_rng(0)
    src = (20_000 * generator.random(60_000) ** 3).astype(np.int64)
    dst = generator.integers(0, 20_000, 60_000)
    pq.write_table(pa.table({"src": src, "dst": dst}), path / "edges.parquet")
    return building.build(path / "edges.parquet", path / "graph", nodes=20_000)


def test_a_pass_is_within_the_promise_at_the_finest_r_max_that_is_accepted(
    tmp_path: Path, drifting: CompactGraph
) -> None:
    with pytest.raises(PrecisionError) as caught:
        Propagator(Sketch(4), initial=drifting, r_max=1e-9)
    found = re.search(r"r_max >= (\S+)", str(caught.value))
    assert found is not None
    finest = float(found[1])
    made = propagate_in_passes(drifting, Sketch(4), tmp_path / "out", r_max=finest)
    assert 0.5 < made.residuals.max() <= 1
    exact = Propagator(Sketch(4), initial=drifting, r_max=1e-3 * finest, dtype="float64")
    promise = Propagator(Sketch(4), initial=drifting, r_max=finest).threshold()
    bound = promise + exact.threshold()
    assert (np.abs(made[np.arange(drifting.nodes)] - exact.embedding()) <= bound).all()


def test_float64_holds_what_float32_cannot(tmp_path: Path, drifting: CompactGraph) -> None:
    out = tmp_path / "out"
    words = ["propagate", drifting.path, "--columns", 4, "--r-max", 1e-8, "-o", out]
    code, output = invoke(*words)
    assert code == 2
    assert "--r-max" in output
    assert "--dtype float64" in output
    code, output = invoke(*words, "--dtype", "float64")
    assert code == 0
    assert "within the promise" in output
    assert Embeddings.open(out).computed_in == "float64"


def test_a_residual_above_the_promise_is_reported_with_advice(
    tmp_path: Path, graph: CompactGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As files of earlier releases may have it.
    monkeypatch.setattr(passes, "_checked_residuals", lambda *_: np.array([1.02]))
    out = tmp_path / "out"
    code, output = invoke("propagate", graph.path, "--columns", 4, "-o", out, "--json")
    assert code == 0
    assert "by 2.00%" in output
    assert "--dtype float64" in output
    assert "--r-max" in output
    assert '"residual": 1.02, "within_promise": false' in output
    assert json.loads((out / "embeddings.json").read_text())["blocks"][0]["residual"] == [1.02]
    assert Embeddings.open(out).excess == pytest.approx(0.02)


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_graph_whose_lists_contradict_each_other_gives_an_error_and_no_embeddings(
    tmp_path: Path, share: float
) -> None:
    src, dst = np.random.default_rng(0).integers(0, NODES, (2, 20_000))
    pq.write_table(pa.table({"src": src, "dst": dst}), tmp_path / "edges.parquet")
    graph = building.build(tmp_path / "edges.parquet", tmp_path / "graph", nodes=NODES)
    lists = np.fromfile(graph.path / "sources.neighbours", dtype=np.uint32)
    lists[: int(share * len(lists))] = 7
    lists.tofile(graph.path / "sources.neighbours")
    out = tmp_path / "out"
    code, output = invoke("propagate", graph.path, "--columns", 4, "-o", out)
    assert code == 1
    assert "--r-max" in output
    assert f"tidegraph graph info {graph.path} --verify" in output
    with pytest.raises(DataError, match="0 of 4 columns"):
        Embeddings.open(out)


# Directories that exist already -------------------------------------------------------------------


def test_a_directory_with_another_writer_is_left_alone(tmp_path: Path, graph: CompactGraph) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with only_writer(out):
        code, output = invoke("propagate", graph.path, "--columns", 4, "-o", out)
    assert code == 1
    assert str(out) in output
    assert "wait" in output
    assert list(out.iterdir()) == []
    edges = tmp_path / "edges.csv"
    edges.write_text("src,dst,t\n0,1,1\n")
    with only_writer(out):
        code, output = invoke("graph", "build", edges, "-o", out)
    assert code == 1
    assert str(out) in output
    assert "wait" in output
    assert list(out.iterdir()) == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["flipped", "truncated", "header", "missing"])
def test_repeating_the_command_mends_a_damaged_block(
    tmp_path: Path, graph: CompactGraph, kind: str
) -> None:
    out, memory = tmp_path / "out", memory_for(8)
    words = ["propagate", graph.path, "--columns", 20, "--memory", memory, "-o", out, "--json"]
    assert invoke(*words)[0] == 0
    whole = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(whole) == 4
    block = out / "block-001.npy"
    untouched = (out / "block-002.npy").stat().st_mtime_ns
    if kind == "flipped":
        flip(block)
    elif kind == "truncated":
        block.write_bytes(whole[block.name][:-8])
    elif kind == "header":
        block.write_bytes(whole[block.name][:20])
    else:
        block.unlink()
    with pytest.raises(DataError, match=r"block-001\.npy is (damaged|missing)"):
        Embeddings.open(out, verify=True)
    if kind != "flipped":
        with pytest.raises(DataError, match=r"block-001\.npy is (damaged|missing)"):
            Embeddings.open(out)
    less = [word if word != memory else memory_for(4) for word in words]
    code, output = invoke(*less)
    assert code == 2
    assert re.search(rf"--memory {memory_for(4)} .* 8 columns", output)
    code, output = invoke(*words)
    assert code == 0
    assert f"{block} was damaged" in output
    assert '"mended": ["block-001.npy"]' in output
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole
    assert (out / "block-002.npy").stat().st_mtime_ns == untouched
    assert "was damaged" not in invoke(*words)[1]


def test_resuming_mends_damaged_blocks_of_earlier_passes(
    tmp_path: Path, graph: CompactGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    sketch, memory = Sketch(12), memory_for(4)
    whole = propagate_in_passes(graph, sketch, tmp_path / "whole", memory=memory)
    assert whole.mended == ()
    store, calls = passes._Manifest.store, 0

    def dying(*about: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        store(*about)

    monkeypatch.setattr(passes._Manifest, "store", dying)
    with pytest.raises(KeyboardInterrupt):
        propagate_in_passes(graph, sketch, tmp_path / "cut", memory=memory)
    flip(tmp_path / "cut" / "block-000.npy")
    resumed = propagate_in_passes(graph, sketch, tmp_path / "cut", memory=memory)
    assert resumed.mended == ("block-000.npy",)
    everyone = np.arange(NODES)
    np.testing.assert_array_equal(resumed[everyone], whole[everyone])


def test_embeddings_without_digests_can_be_read_but_not_verified(
    tmp_path: Path, graph: CompactGraph
) -> None:
    out = tmp_path / "out"
    propagate_in_passes(graph, Sketch(4), out)
    manifest = out / "embeddings.json"
    body = json.loads(manifest.read_text())
    del body["blocks"][0]["digest"]
    manifest.write_text(json.dumps(body))
    assert Embeddings.open(out).shape == (NODES, 1, 4)
    assert propagate_in_passes(graph, Sketch(4), out).mended == ()
    code, output = invoke("embeddings", out, "--verify")
    assert code == 2
    assert "block-000.npy" in output
    assert "without digests" in output


def test_the_info_command_describes_and_verifies(tmp_path: Path, graph: CompactGraph) -> None:
    out = tmp_path / "out"
    propagate_in_passes(graph, Sketch(1), out)
    code, output = invoke("embeddings", out, "--verify", "--json")
    assert code == 0
    assert "3,000 nodes, 1 channel, 1 column in 1 pass within the promise" in output
    assert '"verified": true' in output
    flip(out / "block-000.npy")
    assert invoke("embeddings", out)[0] == 0
    code, output = invoke("embeddings", out, "--verify")
    assert code == 2
    assert "block-000.npy is damaged" in output


def test_building_planning_and_passes_need_one_import(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,2\n")
    graph = tidegraph.build(tmp_path / "edges.csv", tmp_path / "graph")
    assert isinstance(graph, tidegraph.CompactGraph)
    assert tidegraph.plan(graph.nodes, graph.edges, 4).passes == 1
    made = tidegraph.propagate_in_passes(graph, Sketch(4), tmp_path / "out")
    assert isinstance(made, tidegraph.Embeddings)
    assert repr(made) == (
        f"Embeddings({str(tmp_path / 'out')!r}, nodes=3, channels=1, columns=4, dtype=float32,"
        f" computed_in=float32, residual={made.residuals.max():.3g})"
    )


# Values that do not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        (1e300, r"node 2900 in column 3 is 1e\+300, .*3.4e\+38, .*float32"),
        (-1e39, r"node 2900 in column 3 is -1e\+39"),
        (np.nan, "node 2900 in column 3 is nan"),
        (np.inf, "node 2900 in column 3 is inf"),
    ],
)
def test_features_that_cannot_be_held_are_named(
    tmp_path: Path, graph: CompactGraph, value: float, facts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "PIECE_BYTES", 1 << 12)
    matrix = np.random.default_rng(0).normal(size=(NODES, 5))
    matrix[2900, 3] = value
    out = tmp_path / "out"
    with pytest.raises(ParameterError, match=facts):
        propagate_in_passes(graph, matrix, out)
    assert not out.exists()


def test_values_beyond_the_range_of_the_files_are_rejected(
    tmp_path: Path, graph: CompactGraph
) -> None:
    matrix = np.random.default_rng(0).normal(size=(NODES, 10))
    matrix[:, 7] *= 1e6
    np.save(tmp_path / "features.npy", matrix)
    out = tmp_path / "out"
    words = ["propagate", graph.path, "--features", tmp_path / "features.npy", "-o", out]
    code, output = invoke(*words, "--memory", memory_for(4), "--stored", "float16")
    assert code == 2
    assert re.search(r"column 7, .*6\.6e\+04, .*float16", output)
    assert "--stored float32" in output
    assert invoke(*words[:-1], tmp_path / "wider")[0] == 0
    assert np.isfinite(Embeddings.open(tmp_path / "wider")[np.arange(NODES)]).all()


@pytest.mark.skipif(sys.platform != "linux", reason="links to nowhere are errors of their own")
def test_an_unreadable_block_does_not_count_as_damaged(tmp_path: Path, graph: CompactGraph) -> None:
    out = tmp_path / "out"
    propagate_in_passes(graph, Sketch(4), out)
    block = out / "block-000.npy"
    block.unlink()
    block.symlink_to(block)  # an error of the system, as a disk that fails is
    with pytest.raises(StorageError, match="symbolic links"):
        propagate_in_passes(graph, Sketch(4), out)
    with pytest.raises(DataError, match="symbolic links"):
        Embeddings.open(out)


def test_the_advised_amount_of_memory_is_enough(tmp_path: Path, graph: CompactGraph) -> None:
    scale = ["--nodes", 10**8, "--edges", 10**9, "--columns", 4]
    code, output = invoke("plan", *scale, "--memory", "2G")
    assert code == 2
    assert re.search("--memory 2G .* 100,000,000 nodes", output)
    enough = output.split("give --memory ")[1].split()[0]
    assert invoke("plan", *scale, "--memory", enough)[0] == 0
    code, output = invoke("plan", *scale, "--memory", "lots")
    assert code == 2
    assert "--memory lots" in output
    assert "500M" in output
    words = ["propagate", graph.path, "--columns", 4, "-o", tmp_path / "out", "--memory"]
    code, output = invoke(*words, "10M")
    assert "--memory 10M" in output
    assert invoke(*words, output.split("give --memory ")[1].split()[0])[0] == 0


def test_a_single_pass_and_column_are_written_in_the_singular() -> None:
    output = invoke("plan", "--nodes", 1000, "--edges", 1000, "--columns", 1)[1]
    assert output.startswith("1 pass of 1 column, ")
    output = invoke("plan", "--nodes", 10**7, "--edges", 1000, "--columns", 90, "--memory", "1G")[1]
    assert " passes of 4 columns, " in output


# Names ------------------------------------------------------------------------------------------


@pytest.fixture
def named(tmp_path: Path) -> CompactGraph:
    """Return a ring of twenty named nodes."""
    words = [f"node {k}" for k in range(20)]
    table = pa.table({"src": words, "dst": words[1:] + words[:1]})
    pq.write_table(table, tmp_path / "edges.parquet")
    return building.build(tmp_path / "edges.parquet", tmp_path / "graph")


@pytest.mark.parametrize("linked", [True, False])
def test_embeddings_are_read_by_name_even_without_the_graph(
    tmp_path: Path, named: CompactGraph, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    if not linked:

        def rejected(*_: Any) -> None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        monkeypatch.setattr(os, "link", rejected)
    features = np.zeros((20, 1), dtype=np.float32)
    features[named.number("node 7")] = 1
    made = propagate_in_passes(named, features, tmp_path / "out")
    assert (tmp_path / "out" / "names.text").samefile(named.path / "names.text") == linked
    shutil.rmtree(named.path)
    found = Embeddings.open(tmp_path / "out", verify=True)
    assert found.name([19, 0]).tolist() == ["node 19", "node 0"]
    rows = found[["node 6", "node 7", "node 8", "node 17"]][:, 0, 0]
    np.testing.assert_array_equal(rows, made[[6, 7, 8, 17]][:, 0, 0])
    assert rows.argmax() == 1
    assert rows[0] == pytest.approx(rows[2], abs=1e-2)
    with pytest.raises(DataError, match="'node 20'"):
        found[["node 7", "node 20"]]
    assert found.number(["node 7"]).tolist() == [7]


def test_damaged_names_of_embeddings_are_reported_and_mended(
    tmp_path: Path, named: CompactGraph
) -> None:
    out = tmp_path / "out"
    whole = propagate_in_passes(named, Sketch(2), out)[[0, 19]]
    text = (named.path / "names.text").read_bytes()
    (out / "names.text").unlink()
    with pytest.raises(DataError, match=r"names\.text is missing"):
        Embeddings.open(out)
    (out / "names.text").write_bytes(text[::-1])
    with pytest.raises(DataError, match=r"names\.text is damaged"):
        Embeddings.open(out, verify=True)
    mended = propagate_in_passes(named, Sketch(2), out)
    assert mended.number("node 19") == 19
    np.testing.assert_array_equal(mended[[0, 19]], whole)
    (named.path / "names.text").write_bytes(text[::-1])  # shared by both
    with pytest.raises(StorageError, match=r"names\.text is damaged: build"):
        propagate_in_passes(named, Sketch(2), out)


def test_without_names_numbers_serve_as_names(tmp_path: Path, graph: CompactGraph) -> None:
    made = propagate_in_passes(graph, Sketch(2), tmp_path / "out")
    assert made.number([2, 5]).tolist() == made.name([2, 5]).tolist() == [2, 5]
    with pytest.raises(DataError, match=f"node {NODES} "):
        made.number([NODES])
