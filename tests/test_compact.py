"""Graphs in files: built in bounded memory, read in place, changed by copying."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tidegraph import Batch, Channel, Propagator, Sketch, reference
from tidegraph.core import durable
from tidegraph.core.errors import DataError, ParameterError, StateFileError, StorageError
from tidegraph.engine import base_graph, bridge, building, compact, spooling
from tidegraph.engine import propagator as engine
from tidegraph.engine.building import build
from tidegraph.engine.compact import CompactGraph, open_graph
from tidegraph.events import stored_names
from tidegraph.events.batch import Op
from tidegraph.events.datasets import storage
from tidegraph.events.tables.numbering import Numbering

IntArray = NDArray[np.int64]
RANGE = r"weights lie between 2\*\*-64 and 2\*\*64"


def write_edges(path: Path, rows: dict[str, Any], group: int = 50) -> Path:
    pq.write_table(pa.table(rows), path, row_group_size=group)
    return path


def some_pairs(seed: int, nodes: int, rows: int) -> tuple[IntArray, IntArray]:
    """Return pairs with hubs, repetitions and self-edges."""
    rng = np.random.default_rng(seed)
    return tuple(np.minimum(nodes - 1, rng.geometric(3 / nodes, (2, rows))))


def labels(kind: str) -> NDArray[Any]:
    """Return ids that are not numbers from 0 on, in no order."""
    rng = np.random.default_rng(17)
    large = rng.permutation(np.arange(500) * (2**53 + 1) - 2**60)
    if kind == "large":
        return large
    words = [f"{'näme' if k % 3 else 'name'} {k}" for k in large.tolist()]
    return np.array(words, dtype=object)


LABELS = {kind: labels(kind) for kind in ("large", "words")}


def any_weights(seed: int, rows: int) -> NDArray[np.float64]:
    """Weights of every size, hardly any of them a float32 number."""
    return np.asarray(10 ** np.random.default_rng(seed).uniform(-15, 15, rows))


def sums_of_rows(
    src: IntArray, dst: IntArray, weight: NDArray[Any], directed: bool
) -> dict[tuple[int, int], float]:
    """What the rows of every edge add up to in their order; undirected ones as `rows` has them."""
    sums: dict[tuple[int, int], float] = {}
    for a, b, w in zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True):
        edge = (a, b) if directed else (min(a, b), max(a, b))
        sums[edge] = sums.get(edge, 0.0) + w
    return sums


def contents(graph: CompactGraph) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in graph.path.iterdir()}


def lists_of(node: IntArray, neighbour: IntArray, nodes: int) -> tuple[IntArray, IntArray]:
    """Return offsets and neighbours, by sorting with NumPy."""
    order = np.lexsort([neighbour, node])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=nodes))])
    return offsets, neighbour[order]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("memory", [20_000, 10**9])
def test_lists_agree_with_sorting_all_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directed: bool, memory: int
) -> None:
    monkeypatch.setattr(spooling, "_OVERHEAD", 0)
    nodes = 500
    src, dst = some_pairs(1, nodes, 3000)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst})
    graph = build(edges, tmp_path / "graph", nodes=nodes, directed=directed, memory=memory)
    apart = src != dst
    ends = [(dst[apart], src[apart])] if directed else []
    ends += [(src[apart], dst[apart])] if directed else []
    if not directed:
        both = np.concatenate([src, dst])[np.tile(apart, 2)]
        ends = [(both, np.concatenate([dst, src])[np.tile(apart, 2)])]
    for lists, (node, neighbour) in zip([graph.sources, graph.targets], ends, strict=False):
        offsets, neighbours = lists_of(node, neighbour, nodes)
        np.testing.assert_array_equal(lists[0], offsets)
        np.testing.assert_array_equal(lists[1], neighbours)
        assert lists[2] is None
    loops, counts = np.unique(src[~apart], return_counts=True)
    np.testing.assert_array_equal(graph.self_edges[0], loops)
    np.testing.assert_array_equal(graph.self_edges[1], counts)
    pairs = np.stack([src, dst], axis=1)
    distinct = np.unique(pairs if directed else np.sort(pairs, axis=1), axis=0)
    assert graph.edges == len(distinct)
    graph.verify()


def test_weights_of_repeated_edges_add_up(tmp_path: Path) -> None:
    src, dst = some_pairs(2, 40, 2000)
    weight = np.random.default_rng(2).choice([0.25, 0.5, 2.0, 3.0], 2000)
    edges = write_edges(tmp_path / "e.parquet", {"a": src, "b": dst, "w": weight})
    graph = build(edges, tmp_path / "graph", src="a", dst="b", weight="w", directed=True)
    dense = np.zeros((40, 40))
    np.add.at(dense, (src, dst), weight)
    found = np.zeros((40, 40))
    rows = graph.rows()
    assert rows.weight is not None
    found[rows.src, rows.dst] = rows.weight
    np.testing.assert_array_equal(found, dense)
    assert graph.edges == (dense > 0).sum()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("file", ["e.parquet", "e.csv"])
def test_weights_are_those_of_the_table_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directed: bool, file: str
) -> None:
    monkeypatch.setattr(spooling, "_OVERHEAD", 0)
    monkeypatch.setattr(spooling, "_SPLIT", 100)
    src, dst = some_pairs(31, 60, 3000)
    weight = any_weights(31, 3000)
    if file == "e.csv":
        pa_csv.write_csv(pa.table({"src": src, "dst": dst, "w": weight}), tmp_path / file)
    else:
        write_edges(tmp_path / file, {"src": src, "dst": dst, "w": weight})
    sums = sums_of_rows(src, dst, weight, directed)
    assert len(sums) < 3000 - 100
    assert any(a == b for a, b in sums)
    found = []
    for memory, threads in ((20_000, 1), (20_000, 3), (10**8, 2)):
        path = tmp_path / f"{memory}.{threads}"
        options: dict[str, Any] = {"directed": directed, "memory": memory, "threads": threads}
        graph = build(tmp_path / file, path, weight="w", **options)
        rows = graph.rows()
        assert rows.weight is not None
        pairs = zip(rows.src.tolist(), rows.dst.tolist(), strict=True)
        assert dict(zip(pairs, rows.weight.tolist(), strict=True)) == sums
        assert graph.edges == rows.rows == len(sums)
        assert graph.self_edges[2] is not None
        graph.verify()
        found.append(contents(graph))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("directed", "weight", "fingerprint"),
    [
        (False, None, "abe204ea58921acd1cdede735f7f4e0e"),
        (False, "w", "ac4355dcfcaab2cc093456707b0ab305"),
        (True, None, "6ddbf4df6e8546250a48a1ad40886c4b"),
        (True, "w", "c14bd357e17cca80ebee023a2df2c7fc"),
    ],
)
def test_a_graph_of_float32_weights_has_the_bytes_it_had_before_there_were_others(
    tmp_path: Path, directed: bool, weight: str | None, fingerprint: str
) -> None:
    k = np.arange(3000)
    rows = {"src": k * 37 % 61, "dst": k * k % 53, "w": (k % 13 + 1) / 8}
    edges = write_edges(tmp_path / "e.parquet", rows)
    graph = build(edges, tmp_path / "graph", directed=directed, weight=weight)
    assert graph.fingerprint == fingerprint
    assert graph.sources[3] is None
    assert graph.self_edges[2] is None
    assert not list(graph.path.glob("*.fractions"))


@pytest.mark.slow
def test_an_edge_may_be_repeated_more_often_than_float32_can_count(tmp_path: Path) -> None:
    rows = 2**24 + 1
    edges = write_edges(
        tmp_path / "e.parquet",
        {"src": np.zeros(rows, dtype=np.int8), "dst": np.ones(rows, dtype=np.int8)},
        group=1 << 20,
    )
    graph = build(edges, tmp_path / "graph")
    assert graph.rows().weight == [float(rows)]
    assert Propagator(np.eye(2), initial=graph).degree().tolist() == [[rows + 1.0]] * 2


@pytest.mark.parametrize("weight", ["0.0", "-1.0", "1e-20", "1e+20", "inf", "-inf", "nan"])
@pytest.mark.parametrize("name", ["edges.parquet", "edges.csv", "edges.arrow", "stream"])
def test_weights_out_of_range_are_rejected_by_file_row_and_value(
    tmp_path: Path, name: str, weight: str
) -> None:
    table = pa.table({"src": [0, 1, 2], "dst": [1, 2, 3], "w": [1.0, 2.0, float(weight)]})
    given = file = tmp_path / name
    place = r"row 2 \(counted from 0\)"
    if name == "edges.csv":
        file.write_text(f"src,dst,w\n0,1,1.0\n1,2,2.0\n2,3,{weight}\n")
        place = "line 4"
    elif name == "edges.arrow":
        pa.feather.write_feather(table, file)
    elif name == "stream":
        given.mkdir()
        (given / storage.DESCRIPTION).write_text("{}")
        pq.write_table(table, file := given / storage.EDGES)
    else:
        pq.write_table(table, file, row_group_size=2)
    value = weight.removesuffix(".0").replace("+", r"\+")
    with pytest.raises(DataError, match=f"{file}, {place}: .*{value}.*; {RANGE}: use another unit"):
        build(given, tmp_path / "graph", weight="w")
    with pytest.raises(DataError, match="unfinished graph"):
        open_graph(tmp_path / "graph")
    # The corrected table takes the place of the rejected one.
    right = write_edges(tmp_path / "right.parquet", {"src": [0], "dst": [1], "w": [3.0]})
    build(right, tmp_path / "graph", weight="w").verify()


@pytest.mark.parametrize("kind", ["kept", "large", "words"])
@pytest.mark.parametrize("loop", [False, True])
def test_an_edge_whose_rows_add_up_to_too_much_is_rejected_by_name(
    tmp_path: Path, kind: str, loop: bool
) -> None:
    called = LABELS.get(kind, np.arange(500))
    one, other = (2, 2) if loop else (1, 2)
    src, dst = called[[0, one, other]], called[[1, other, one]]
    weight = [1.0, 2.0**64, 2.0**63]
    edges = write_edges(tmp_path / "e.parquet", {"src": src, "dst": dst, "w": weight})
    ends = " and ".join(repr(called.tolist()[node]) for node in sorted((one, other)))
    said = f"e.parquet: the weights of the edge between {ends} add up to 2.76701e\\+19; {RANGE}"
    for _ in range(2):  # also where the rows have been read already
        with pytest.raises(DataError, match=said + ": use another unit"):
            build(edges, tmp_path / "graph", weight="w")
        with pytest.raises(DataError, match="unfinished graph"):
            open_graph(tmp_path / "graph")


def test_the_heaviest_and_the_lightest_weights_are_taken(tmp_path: Path) -> None:
    weight = [2.0**64, 2.0**63, 2.0**63, 2.0**-64, np.nextafter(2.0**-64, 1), 2.0**64]
    table = {"src": [0, 1, 2, 2, 3, 4], "dst": [1, 2, 1, 3, 4, 4], "w": weight}
    graph = build(write_edges(tmp_path / "e.parquet", table), tmp_path / "graph", weight="w")
    assert graph.rows().weight is not None
    assert sorted(graph.rows().weight.tolist()) == sorted([*weight[3:], 2.0**64, 2.0**64])  # type: ignore[union-attr]
    Propagator(np.eye(5), initial=graph, dtype="float64")


def test_a_graph_with_weights_that_no_engine_takes_opens_and_is_not_propagated(
    tmp_path: Path,
) -> None:
    table = {"src": [0, 1, 2], "dst": [1, 2, 2], "w": [1.0, 2.0, 3.0]}
    graph = build(write_edges(tmp_path / "e.parquet", table), tmp_path / "graph", weight="w")
    for name in ("sources.weights", "selves.weights"):  # as an earlier release could leave them
        intact = (graph.path / name).read_bytes()
        (graph.path / name).write_bytes(np.array([np.inf], dtype=np.float32).tobytes() + intact[4:])
        old = open_graph(graph.path)
        with pytest.raises(DataError, match=f"graph: .*weight of inf; {RANGE}.*another unit"):
            Propagator(np.eye(3), initial=old)
        (graph.path / name).write_bytes(intact)
    Propagator(np.eye(3), initial=graph)


def test_a_graph_of_a_later_version_is_rejected(tmp_path: Path) -> None:
    table = {"src": [0], "dst": [1], "w": [0.1]}
    graph = build(write_edges(tmp_path / "e.parquet", table), tmp_path / "graph", weight="w")
    header = json.loads((graph.path / "graph.json").read_text())
    assert header["graph"].pop("version") == 2
    compact.write_header(graph.path, {**header["graph"], "version": 3})
    with pytest.raises(DataError, match=r"has version 3 .* reads versions 1 to 2: build"):
        open_graph(graph.path)


def test_where_repetitions_prevail_they_are_merged_into_weights(tmp_path: Path) -> None:
    src, dst = some_pairs(3, 20, 5000)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst})
    graph = build(edges, tmp_path / "graph")
    assert graph.weighted
    assert graph.sources[2] is not None
    assert graph.sources[2].sum() == 2 * (src != dst).sum()
    offsets, neighbours, _, _ = graph.sources
    for node in range(graph.nodes):
        others = np.concatenate([dst[src == node], src[dst == node]])
        np.testing.assert_array_equal(graph.neighbours(node), np.unique(others[others != node]))
    assert offsets[-1] == len(neighbours)


def test_a_text_file_of_edges_gives_the_same_graph(tmp_path: Path) -> None:
    src, dst = some_pairs(4, 30, 200)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst})
    text = tmp_path / "edges.csv"
    lines = (f"{a},{b},{t}" for t, (a, b) in enumerate(zip(src, dst, strict=True)))
    text.write_text("\n".join(["src,dst,t", *lines]))
    one, other = build(edges, tmp_path / "one"), build(text, tmp_path / "other")
    assert contents(one) == contents(other)


@pytest.mark.parametrize("kind", ["plain", "weighted", "repeated"])
def test_one_window_of_lists_is_freed_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(spooling, "_OVERHEAD", 0)
    monkeypatch.setattr(spooling, "_SPLIT", 256)
    nodes, rows, memory = 2000, 100_000, 400_000  # lists of 800 or 2,400 kB: several windows
    src, dst = some_pairs(9, nodes if kind != "repeated" else 200, rows)
    columns: dict[str, NDArray[Any]] = {"src": src, "dst": dst}
    if kind == "weighted":
        columns["weight"] = any_weights(9, rows)
    edges = write_edges(tmp_path / "edges.parquet", columns)
    peaks = {}

    def watched(stage: str) -> Callable[..., None]:
        work = getattr(building._Build, stage)

        def run(*arguments: Any) -> None:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            work(*arguments)
            peaks[stage] = tracemalloc.get_traced_memory()[1] - before

        return run

    stages = ["_fill", "_merge"] if kind == "repeated" else ["_fill"]
    for stage in stages:
        monkeypatch.setattr(building._Build, stage, watched(stage))
    tracemalloc.start()
    try:
        weight = "weight" if kind == "weighted" else None
        build(edges, tmp_path / "graph", nodes=nodes, memory=memory, weight=weight)
    finally:
        tracemalloc.stop()
    assert list(peaks) == stages
    assert max(peaks.values()) < 1.2 * memory


@pytest.mark.parametrize(
    ("rows", "ids"),
    [(400, ""), (4000, ""), (400, "large"), (400, "words"), (400, "late"), (400, "weighted")],
)
def test_a_build_killed_anywhere_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, ids: str
) -> None:
    monkeypatch.setattr(spooling, "_OVERHEAD", 0)
    monkeypatch.setattr(spooling, "_GROUPS", 2)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disk stays when a process is killed
    src, dst = some_pairs(5, 60, rows)
    called = LABELS.get(ids, np.arange(60))
    columns = {"src": called[src], "dst": called[dst]}
    if ids == "late":  # until then, and at several points of resuming, all ids could be kept
        columns["src"][-1] = 2**40
    weight = "w" if ids == "weighted" else None
    if ids == "weighted":
        columns["w"] = any_weights(5, rows)
    edges = write_edges(tmp_path / "edges.parquet", columns, group=rows // 8)
    # Ids take more while they are numbered than lists do.
    memory = {"large": 2000, "words": 30_000, "late": 2000, "weighted": 3000}.get(ids, rows * 3)
    options: dict[str, Any] = {"directed": True, "weight": weight}
    whole = contents(build(edges, tmp_path / "whole", memory=memory, **options))
    assert ("names.order" in whole) == (ids not in ("", "weighted"))
    assert ("targets.fractions" in whole) == ("selves.fractions" in whole) == (ids == "weighted")
    sync = durable.sync

    class Killed(BaseException):
        pass

    survived = False
    kills = 0
    while not survived:
        kills += 1
        calls = 0

        def dying(*files: Any, fatal: int = kills) -> None:
            nonlocal calls
            calls += 1
            if calls == fatal:
                raise Killed  # before what was written is safe
            sync(*files)

        path = tmp_path / f"killed{kills}"
        for module in (building, durable, spooling):
            monkeypatch.setattr(module, "sync", dying)
        try:
            build(edges, path, memory=memory, **options)
            survived = True
        except Killed:
            with pytest.raises(DataError, match="unfinished"):
                open_graph(path)
            for module in (building, durable, spooling):
                monkeypatch.setattr(module, "sync", sync)
            assert contents(build(edges, path, memory=2 * memory, **options)) == whole
    assert kills > 8


def test_a_directory_with_another_build_in_it_is_left_alone(tmp_path: Path) -> None:
    src, dst = some_pairs(6, 30, 100)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst})
    build(edges, tmp_path / "graph")
    with pytest.raises(StorageError, match="already"):
        build(edges, tmp_path / "graph")
    with pytest.raises(ParameterError, match="or more"):
        build(edges, tmp_path / "poor", memory="1M")
    with pytest.raises(StorageError, match=r"holds .*build"):
        build(edges, tmp_path / "poor", nodes=30)


def test_a_rejected_build_leaves_its_directory_free_for_a_valid_one(tmp_path: Path) -> None:
    src, dst = some_pairs(6, 30, 100)
    edges = write_edges(tmp_path / "edges.parquet", {"a": src, "b": dst})
    graph = tmp_path / "graph"
    with pytest.raises(DataError, match="src and dst are needed"):
        build(edges, graph)
    with pytest.raises(DataError, match=r"node 2\d; .* 0 to 19"):
        build(edges, graph, src="a", dst="b", nodes=20)
    build(edges, graph, src="a", dst="b")
    assert contents(open_graph(graph)) == contents(build(edges, tmp_path / "g", src="a", dst="b"))


def test_a_table_of_edges_needs_no_times_and_no_order(tmp_path: Path) -> None:
    src, dst = some_pairs(7, 40, 300)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst})
    whole = contents(build(edges, tmp_path / "whole"))
    pairs = [f"{a},{b}" for a, b in zip(src, dst, strict=True)]
    tables = {
        "pairs.csv": ["src,dst", *pairs],
        "bare.txt": [pair.replace(",", " ") for pair in pairs],
        "backwards.csv": ["t,from,to", *(f"{-row},{pair}" for row, pair in enumerate(pairs))],
    }
    for name, lines in tables.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        assert contents(build(tmp_path / name, tmp_path / f"{name}.graph")) == whole


def test_the_error_names_an_id_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("src,dst\nann,bob\n")
    with pytest.raises(DataError, match=r"'ann'; .*ids='auto'"):
        build(tmp_path / "names.csv", tmp_path / "graph", ids="keep")
    with pytest.raises(DataError, match=r"'ann'; .*leave out nodes"):
        build(tmp_path / "names.csv", tmp_path / "graph", nodes=2)
    (tmp_path / "large.csv").write_text(f"src,dst\n0,{10**18}\n")
    with pytest.raises(DataError, match=f"node {10**18}; .*ids='number'$"):
        build(tmp_path / "large.csv", tmp_path / "graph", ids="keep")
    with pytest.raises(ParameterError, match=r"nodes=\d+ .*ids='number'"):
        build(tmp_path / "large.csv", tmp_path / "graph", ids="number", nodes=2)
    with pytest.raises(ParameterError, match="'auto', 'keep' or 'number'"):
        build(tmp_path / "large.csv", tmp_path / "graph", ids="all")  # type: ignore[arg-type]


def first_appearances(src: IntArray, dst: IntArray) -> IntArray:
    """Return nodes in the order of rows, the source of a row before its destination."""
    both, first = np.unique(np.stack([src, dst], axis=1).ravel(), return_index=True)
    return both[np.argsort(first)]


@pytest.mark.parametrize("kind", ["large", "words", "categories", "either", "text", "unsigned"])
def test_ids_of_any_kind_are_numbered_in_the_order_of_first_appearance(
    tmp_path: Path, kind: str
) -> None:
    src, dst = some_pairs(21, 500, 900)
    order = first_appearances(src, dst)
    number = np.empty(500, dtype=np.int64)
    number[order] = np.arange(len(order))
    called: Any = LABELS["large" if kind in ("large", "unsigned") else "words"]
    columns: dict[str, Any] = {"src": called[src], "dst": called[dst]}
    if kind == "unsigned":
        called = (called + 2**60).astype(np.uint64) + np.uint64(2**63)
        columns = {"src": called[src], "dst": called[dst]}
        called = called.astype(str)
    elif kind == "categories":
        columns = {name: pa.array(ids).dictionary_encode() for name, ids in columns.items()}
    elif kind == "either":  # numbers first: their column is read as such until a word appears
        called = np.array([str(k) if k < 250 else f"w{k}" for k in range(500)], dtype=object)
        columns = {"src": called[src], "dst": called[dst]}
    path = tmp_path / "table"
    if kind in ("either", "text"):
        pa_csv.write_csv(pa.table(columns), path)
    else:
        write_edges(path, columns)
    graph = build(path, tmp_path / "graph")
    assert graph.named == ("integers" if kind == "large" else "texts")
    rows = write_edges(tmp_path / "numbers.parquet", {"src": number[src], "dst": number[dst]})
    plain = build(rows, tmp_path / "plain")
    assert plain.named is None
    named = contents(graph)
    for name, content in contents(plain).items():
        assert name == "graph.json" or named[name] == content
    assert graph.nodes == plain.nodes == len(order)
    assert graph.name(np.arange(graph.nodes)).tolist() == called[order].tolist()
    np.testing.assert_array_equal(graph.number(called[order]), np.arange(graph.nodes))
    assert graph.number(called[order[7]]).item() == 7
    assert graph.name([[1, 0]]).tolist() == [[called[order[1]], called[order[0]]]]
    assert graph.number([]).shape == (0,)
    for unknown in ("nobody", -1, 2**63 + 5):
        with pytest.raises(DataError, match=f"node {unknown!r} "):
            graph.number([unknown])
    with pytest.raises(DataError, match=f"0 to {graph.nodes - 1}"):
        graph.name(graph.nodes)
    graph.verify()
    order_file = graph.path / "names.order"
    order_file.write_bytes(order_file.read_bytes()[::-1])
    with pytest.raises(StorageError, match=r"names\.order"):
        graph.verify()


def test_integers_from_zero_on_have_names_only_on_request(tmp_path: Path) -> None:
    edges = write_edges(tmp_path / "edges.parquet", {"src": [5, 2], "dst": [2, 9]})
    kept, numbered = (build(edges, tmp_path / ids, ids=ids) for ids in ("keep", "number"))
    assert (kept.nodes, numbered.nodes) == (10, 3)
    assert kept.number([9, 2]).tolist() == kept.name([9, 2]).tolist() == [9, 2]
    assert numbered.name([0, 1, 2]).tolist() == [5, 2, 9]
    with pytest.raises(DataError, match="nodes are 0 to 9"):
        kept.number(["ann"])
    few = write_edges(tmp_path / "few.parquet", {"src": [0], "dst": [2**31]})
    with pytest.raises(ParameterError, match="ids='number'"):
        build(few, tmp_path / "few", memory="300M")


@pytest.mark.parametrize("group", [50, 5000])
@pytest.mark.parametrize("pieces", [7, 1 << 14])
def test_numbers_do_not_depend_on_how_a_table_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int, pieces: int
) -> None:
    src, dst = some_pairs(22, 500, 700)
    called = LABELS["words"]
    columns = {"src": called[src], "dst": called[dst]}
    whole = build(write_edges(tmp_path / "a.parquet", columns, group=200), tmp_path / "whole")
    monkeypatch.setattr(stored_names, "_TEXT_ROWS", pieces)
    monkeypatch.setattr(spooling, "_TEXT_ROWS", pieces)
    other = build(write_edges(tmp_path / "b.parquet", columns, group=group), tmp_path / "other")
    assert contents(other) == contents(whole)


def test_the_advised_memory_is_enough_to_number_all_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spooling, "_OVERHEAD", 0)
    monkeypatch.setattr(spooling, "_GROUPS", 2)
    monkeypatch.setattr(spooling, "_TEXT_ROWS", 50)
    src = np.arange(0, 400, 2)
    called = LABELS["words"]
    columns = {"src": called[src], "dst": called[src + 1]}
    edges = write_edges(tmp_path / "edges.parquet", columns, group=50)
    for _ in range(2):  # also when resuming
        with pytest.raises(ParameterError, match=r"memory=\S+ .* ids in") as rejected:
            build(edges, tmp_path / "graph", memory=50_000)
    enough = str(rejected.value).split("give memory=")[1].split(",")[0]
    assert compact.memory_bytes(enough) > 50_000
    graph = build(edges, tmp_path / "graph", memory=enough)
    assert contents(graph) == contents(build(edges, tmp_path / "whole"))


def test_a_damaged_table_is_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    src, dst = some_pairs(8, 3000, 5000)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst}, group=5000)
    data = bytearray(edges.read_bytes())
    data[100:3000] = bytes(2900)
    edges.write_bytes(data)
    with pytest.raises(DataError, match=r"edges\.parquet"):
        build(edges, tmp_path / "graph")


PROMISE = """
import resource, sys
from tidegraph.cli import main
limit = int(sys.argv[-1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
main(["graph", "build", *sys.argv[1:]])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of data are Linux's")
@pytest.mark.parametrize("name", ["edges.parquet", "edges.csv", "weighted.parquet"])
def test_a_build_keeps_within_the_memory_promised_also_from_one_large_row_group(
    tmp_path: Path, name: str
) -> None:
    rows = {"edges.parquet": 6_000_000, "edges.csv": 500_000, "weighted.parquet": 1_500_000}[name]
    src, dst = np.random.default_rng(1).integers(0, 100_000, (2, rows))
    table = pa.table({"src": src, "dst": dst})
    limit = spooling._OVERHEAD + (4 << 20)
    order = [tmp_path / name, "-o", tmp_path / "graph"]
    if name == "weighted.parquet":
        src[:50_000] = 7  # a list that takes much memory to be sorted
        table = pa.table({"src": src, "dst": dst, "w": any_weights(1, rows)})
        order += ["--weight", "w"]
    if name == "edges.csv":
        pa_csv.write_csv(table, tmp_path / name)
    else:
        pq.write_table(table, tmp_path / name, row_group_size=rows)
        assert 8 * table.nbytes > limit  # as a whole, decoded and as lists, it would not fit
    order += ["--memory", str(limit)]
    words = [sys.executable, "-c", PROMISE, *map(str, order)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert open_graph(tmp_path / "graph").nodes == 100_000


@pytest.mark.skipif(sys.platform != "linux", reason="limits of data are Linux's")
@pytest.mark.parametrize("kind", ["large", "words"])
def test_nodes_are_numbered_within_the_memory_promised(tmp_path: Path, kind: str) -> None:
    nodes, rows = 400_000, 500_000
    rng = np.random.default_rng(4)
    src, dst = rng.integers(0, nodes, (2, rows))
    called: Any = np.arange(nodes) * 2**40
    if kind == "words":
        called = np.array([f"a rather long name of node {k}" for k in range(nodes)])
    table = {"src": called[src], "dst": called[dst]}
    write_edges(tmp_path / "edges.parquet", table, group=1 << 16)
    numbering = Numbering()
    numbering(pa.array(called) if kind == "words" else called)
    limit = spooling._OVERHEAD + numbering.nbytes
    order = [tmp_path / "edges.parquet", "-o", tmp_path / "graph", "--memory", str(limit)]
    words = [sys.executable, "-c", PROMISE, *map(str, order)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    graph = open_graph(tmp_path / "graph")
    assert graph.name(graph.number(called[src[:5]])).tolist() == called[src[:5]].tolist()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of data are Linux's")
def test_any_number_of_self_edges_is_built_within_the_memory_promised(tmp_path: Path) -> None:
    nodes = 1_500_000
    loops = np.random.default_rng(2).permutation(nodes)
    write_edges(tmp_path / "edges.parquet", {"src": loops, "dst": loops}, group=1 << 17)
    limit = spooling._OVERHEAD + 4 * nodes + (1 << 20)
    order = [tmp_path / "edges.parquet", "-o", tmp_path / "graph", "--memory", str(limit)]
    words = [sys.executable, "-c", PROMISE, *map(str, order)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found, weights, fractions = open_graph(tmp_path / "graph").self_edges
    np.testing.assert_array_equal(found, np.arange(nodes))
    assert (weights == 1).all()
    assert fractions is None


def test_self_edges_add_up_in_the_order_of_rows_whatever_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spooling, "_OVERHEAD", 0)
    monkeypatch.setattr(spooling, "_READ_ROWS", 1000)
    nodes, rows = 150_000, 9000  # several windows of nodes, several pieces of rows
    rng = np.random.default_rng(3)
    loops = rng.choice(rng.integers(0, nodes, 2000), rows)
    weight = rng.random(rows) * 10.0 ** rng.integers(-8, 8, rows)
    edges = write_edges(
        tmp_path / "edges.parquet", {"src": loops, "dst": loops, "w": weight}, group=700
    )
    sums: dict[int, float] = {}
    for node, value in zip(loops.tolist(), weight.tolist(), strict=True):
        sums[node] = sums.get(node, 0.0) + value
    for memory in (1_000_000, 10**9):
        graph = build(edges, tmp_path / f"{memory}", nodes=nodes, weight="w", memory=memory)
        assert graph.self_edges[0].tolist() == sorted(sums)
        weights = compact.joined_weights(*graph.self_edges[1:])
        assert weights.tolist() == [sums[node] for node in sorted(sums)]


def test_damaged_graphs_are_rejected(tmp_path: Path) -> None:
    src, dst = some_pairs(7, 30, 200)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst})
    graph = build(edges, tmp_path / "graph")
    lists = graph.path / "sources.neighbours"
    intact = lists.read_bytes()
    lists.write_bytes(intact[:-4])
    with pytest.raises(DataError, match="bytes"):
        open_graph(graph.path)
    lists.write_bytes(bytes([intact[0] ^ 1]) + intact[1:])
    with pytest.raises(StorageError, match="damaged"):
        open_graph(graph.path).verify()
    lists.unlink()
    with pytest.raises(DataError, match="None bytes"):
        open_graph(graph.path)
    lists.write_bytes(intact)
    open_graph(graph.path).verify()
    header = json.loads((graph.path / "graph.json").read_text())
    header["graph"]["nodes"] += 1
    (graph.path / "graph.json").write_text(json.dumps(header))
    with pytest.raises(DataError, match="altered"):
        open_graph(graph.path)
    with pytest.raises(DataError, match="no compact graph"):
        open_graph(tmp_path)


# The engine on such a graph -----------------------------------------------------------------------


@st.composite
def beginnings(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "seed": draw(st.integers(0, 2**32)),
        "nodes": draw(st.sampled_from([2, 9, 50])),
        "directed": draw(st.booleans()),
        "weighted": draw(st.sampled_from(["", "float32", "float64"])),
        "columns": draw(st.sampled_from([1, 3, 8, 40])),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
        "sweep": draw(st.booleans()),
    }


class Changes:
    """Random batches of every kind, valid one after another."""

    def __init__(self, propagator: Propagator, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._of = propagator
        self._removed: set[int] = set()

    def batch(self) -> Batch:
        rng, of = self._rng, self._of
        alive = np.array(sorted(set(range(of.nodes)) - self._removed))
        src, dst, _ = of.edges()
        leave = rng.random(len(src)) < 0.2
        change = ~leave & (rng.random(len(src)) < 0.2)
        fresh = rng.choice(alive, (2, 4)) if len(alive) else np.empty((2, 0), dtype=np.int64)
        ops = [
            *[Op.REMOVE] * int(leave.sum()),
            *[Op.SET] * int(change.sum()),
            *[Op.ADD] * fresh.shape[1],
        ]
        new = int(rng.integers(0, 3))
        gone = alive[rng.permutation(len(alive))[: int(len(alive) > 2 and rng.random() < 0.3)]]
        self._removed |= set(gone.tolist())
        named = rng.choice(np.setdiff1d(alive, gone), 1)
        return Batch(
            src=np.concatenate([src[leave], src[change], fresh[0]]),
            dst=np.concatenate([dst[leave], dst[change], fresh[1]]),
            weight=np.concatenate(
                [np.full(leave.sum(), np.inf), rng.random(change.sum()) + 0.5, rng.random(4) + 0.5]
            )[: len(ops)],
            op=ops,
            new_nodes=new,
            new_features=rng.normal(size=(new, of.columns)) if new else None,
            feature_nodes=named,
            feature_values=rng.normal(size=(1, of.columns)),
            removed_nodes=gone,
        )


def same(one: Propagator, other: Propagator) -> None:
    np.testing.assert_array_equal(one.embedding(), other.embedding())
    np.testing.assert_array_equal(one.residual(), other.residual())
    np.testing.assert_array_equal(one.degree(), other.degree())
    np.testing.assert_array_equal(np.array(one.edges()), np.array(other.edges()))
    assert one.statistics()["edges"] == other.statistics()["edges"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(beginnings())
def test_the_form_of_the_graph_changes_no_bit(
    tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("compact")
    rng = np.random.default_rng(case["seed"])
    nodes = case["nodes"]
    pairs = rng.integers(0, nodes, (3 * nodes, 2))
    pairs = np.unique(pairs if case["directed"] else np.sort(pairs, axis=1), axis=0)
    rng.shuffle(pairs)
    weight = rng.random(len(pairs)) + 0.5 if case["weighted"] else np.ones(len(pairs))
    if case["weighted"] == "float32":
        weight = weight.astype(np.float32)
    rows = {"src": pairs[:, 0], "dst": pairs[:, 1], "w": weight}
    edges = write_edges(path / "edges.parquet", rows)
    graph = build(
        edges,
        path / "graph",
        nodes=nodes,
        directed=case["directed"],
        weight="w" if case["weighted"] else None,
    )
    assert not graph.weighted or case["weighted"]
    assert graph.sources[3] is None or case["weighted"] == "float64"
    directions = ("out", "in", "both") if case["directed"] else ("out",)
    options: dict[str, Any] = {
        "channels": [Channel.low_pass(direction=d) for d in directions] + [Channel.high_pass()],
        "directed": case["directed"],
        "dtype": case["dtype"],
    }
    features = rng.normal(size=(nodes, case["columns"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bridge, "_SWEEP_NODES", 0 if case["sweep"] else 1 << 20)
        initial = Batch(src=pairs[:, 0], dst=pairs[:, 1], weight=weight)
        one = Propagator(features, initial=initial, **options)
        other = Propagator(features, initial=graph, **options)
        narrow = Propagator(features, initial=graph, threads=1, **options)
        merging_always(patch)
        merging = Propagator(features, initial=graph, **options)
        same(one, other)
        changes = Changes(one, case["seed"])
        for step in range(6):
            batch = changes.batch()
            for propagator in (one, other, narrow, merging):
                propagator.apply(batch)
            same(one, other)
            same(one, narrow)
            same(one, merging)
            if step == 3:
                other.save(path / "state")
                merging.save(path / "merged")
                assert (path / "state").read_bytes() == (path / "merged").read_bytes()
                other = Propagator.load(path / "state")
                same(one, other)
    exact = reference.exact_of(other)
    assert (np.abs(exact - other.embedding()) <= other.error_bound()).all()


@pytest.mark.parametrize("directed", [False, True])
def test_threads_change_no_bit_of_a_long_stream_over_a_compact_graph(
    tmp_path: Path, directed: bool
) -> None:
    # So many small steps that each thread goes through them on its own copy of the graph; in the
    # second call it copies one whose lists have been changed in part.
    nodes, steps = 300, 4000
    rng = np.random.default_rng(11)
    pairs = rng.integers(0, nodes, (2 * steps, 2))
    pairs = np.unique(pairs if directed else np.sort(pairs, axis=1), axis=0)
    rng.shuffle(pairs)
    edges = write_edges(tmp_path / "edges.parquet", {"src": pairs[:, 0], "dst": pairs[:, 1]})
    graph = build(edges, tmp_path / "graph", nodes=nodes, directed=directed)
    features, filters = rng.normal(size=(nodes, 8)), (Channel.low_pass(), Channel.high_pass())
    ordinary, one, two = (
        Propagator(features, initial=initial, directed=directed, channels=filters, threads=threads)
        for initial, threads in ((Batch(pairs[:, 0], pairs[:, 1]), 1), (graph, 1), (graph, 2))
    )
    for part in np.split(np.arange(steps), 2):
        leave = part % 3 == 0
        src, dst = np.where(leave, pairs[part].T, rng.integers(0, nodes, (2, len(part))))
        weight, op = np.where(leave, np.inf, 1), np.where(leave, Op.REMOVE, Op.ADD)
        batch, offsets = Batch(src, dst, weight=weight, op=op), np.arange(len(part) + 1)
        touched = one.apply_steps(batch, offsets)
        for other in (two, ordinary):
            np.testing.assert_array_equal(other.apply_steps(batch, offsets), touched)
            same(one, other)
    assert touched.min() > 0
    one.save(tmp_path / "one")
    two.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def iterated(propagator: Propagator) -> NDArray[np.float64]:
    """Return the solution of an undirected graph too large for a solver, by 120 iterations."""
    import scipy.sparse as sp

    src, dst, weight = propagator.edges()
    nodes, x = propagator.nodes, propagator.features()
    apart = src != dst
    half = sp.coo_array((weight[apart], (src[apart], dst[apart])), shape=(nodes, nodes))
    loops = propagator.loops(0) + np.bincount(src[~apart], weight[~apart], minlength=nodes)
    scale = 1 / np.sqrt(propagator.degree()[:, :1])
    found = []
    for channel in propagator.channels:
        pi = channel.gamma0 * x
        for _ in range(120):
            y = scale * pi
            pi = channel.gamma0 * x + channel.gamma * scale * (
                half @ y + half.T @ y + loops[:, None] * y
            )
        found.append(pi)
    return np.stack(found, axis=1)


@pytest.mark.parametrize("columns", [2, 5])
def test_sweeps_keep_the_promise_over_repeated_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr(bridge, "_SWEEP_NODES", 0)
    src, dst = some_pairs(8, 20_000, 100_000)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst}, group=30_000)
    graph = build(edges, tmp_path / "graph")
    assert not graph.weighted
    assert graph.edges < len(src)
    sketch = Sketch(columns=columns)
    filters = (Channel.low_pass(), Channel.high_pass())
    one = Propagator(sketch, initial=graph.path, threads=1, channels=filters)
    two = Propagator(sketch, initial=graph, threads=2, channels=filters)
    same(one, two)
    assert one.statistics()["sweeps"] > 0
    error = np.abs(iterated(one) - one.embedding())
    assert (error <= one.error_bound()).all()
    assert (error <= (1 + one.audit().drift.max()) * one.threshold()).all()
    # Copying a list out of the base merges its repetitions.
    batch = Batch(src=src[:200], dst=dst[:200], op=[Op.SET] * 200)
    one.apply(batch)
    error = np.abs(iterated(one) - one.embedding())
    assert (error <= one.error_bound()).all()


def merging_always(patch: pytest.MonkeyPatch) -> None:
    """Merge changed lists with the graph after every call."""
    patch.setattr(base_graph, "_MERGE_BYTES", 0)
    patch.setattr(base_graph, "_MERGE_SHARE", 0)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_merging_changes_keeps_every_bit_and_the_bound_also_over_repeated_edges(
    tmp_path: Path, directed: bool, weight: float
) -> None:
    nodes = 400
    src, dst = some_pairs(11, nodes, 1500)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst})
    graph = build(edges, tmp_path / "graph", nodes=nodes, directed=directed)
    assert not graph.weighted
    assert graph.edges < len(src)
    plain = Propagator(Sketch(5), initial=graph, directed=directed)
    with pytest.MonkeyPatch.context() as patch:
        merging_always(patch)
        merging = Propagator(Sketch(5), initial=graph, directed=directed)
        more = np.random.default_rng(12).integers(0, nodes, (2, 900))
        gone = np.unique(np.stack([src, dst])[:, :300], axis=1)
        changes = Batch(
            src=np.concatenate([more[0], gone[0]]),
            dst=np.concatenate([more[1], gone[1]]),
            weight=np.concatenate([np.full(900, weight), np.full(gone.shape[1], 3.0)]),
            op=[Op.ADD] * 900 + [Op.SET] * gone.shape[1],
        )
        offsets = np.arange(0, changes.rows + 1, 10).clip(max=changes.rows)
        patch.setattr(engine, "_ROWS_BETWEEN_MERGES", 25)
        at_once = plain.apply_steps(changes, offsets)
        np.testing.assert_array_equal(merging.apply_steps(changes, offsets), at_once)
    same(plain, merging)
    exact = reference.exact_of(merging)
    assert (np.abs(exact - merging.embedding()) <= merging.error_bound()).all()


def test_merging_gives_the_memory_of_changed_lists_back(tmp_path: Path) -> None:
    nodes = 30_000
    src, dst = some_pairs(13, nodes, 200_000)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst}, group=60_000)
    graph = build(edges, tmp_path / "graph", nodes=nodes)
    files = contents(graph)
    added = Batch(src=np.arange(nodes), dst=np.arange(nodes)[::-1])
    plain = Propagator(Sketch(2), initial=graph)
    plain.apply(added)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_graph, "_MERGE_BYTES", 1 << 10)
        merging = Propagator(Sketch(2), initial=graph)
        before = merging.statistics()["graph_bytes"]
        merging.apply(added)
    assert plain.statistics()["graph_bytes"] > before + 8 * graph.entries
    # What is left in memory: the places of a step, and a bit for every list that changed.
    assert merging.statistics()["graph_bytes"] <= before + 4 * nodes + nodes
    same(plain, merging)
    assert contents(graph) == files


def test_changes_stay_in_memory_if_there_is_no_room_to_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = 300
    src, dst = some_pairs(14, nodes, 900)
    edges = write_edges(tmp_path / "edges.parquet", {"src": src, "dst": dst})
    graph = build(edges, tmp_path / "graph", nodes=nodes)
    merging_always(monkeypatch)
    tries = 0

    def full(*_: Any) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    merging = Propagator(Sketch(3), initial=graph)
    monkeypatch.setattr(base_graph, "_MERGE_BYTES", 1 << 40)
    plain = Propagator(Sketch(3), initial=graph)
    for k in range(1, 20):
        batch = Batch(src=np.arange(nodes - k), dst=np.arange(k, nodes))
        plain.apply(batch)
        merging.apply(batch)
    assert 0 < tries < 19  # not at every step again
    same(plain, merging)


def test_windows_read_a_compact_graph_as_rows(tmp_path: Path) -> None:
    edges = write_edges(tmp_path / "edges.parquet", {"src": [0, 1], "dst": [1, 2]})
    graph = build(edges, tmp_path / "graph")
    recent = Propagator(np.eye(3), initial=graph, channels=[Channel.low_pass(last=1)])
    assert len(recent.edges(0)[0]) == 1
    assert len(recent.edges()[0]) == 2


def test_a_state_needs_the_graph_it_was_saved_with(tmp_path: Path) -> None:
    edges = write_edges(tmp_path / "edges.parquet", {"src": [0, 1], "dst": [1, 2]})
    graph = build(edges, tmp_path / "graph")
    Propagator(np.eye(3), initial=graph).save(tmp_path / "state")
    moved = graph.path.rename(tmp_path / "moved")
    with pytest.raises(StateFileError, match="no compact graph"):
        Propagator.load(tmp_path / "state")
    other = write_edges(tmp_path / "others.parquet", {"src": [0, 0], "dst": [1, 2]})
    build(other, graph.path)
    with pytest.raises(StateFileError, match=r"another graph .*graph"):
        Propagator.load(tmp_path / "state")
    assert open_graph(moved).fingerprint == graph.fingerprint


def test_a_graph_that_does_not_fit_is_rejected(tmp_path: Path) -> None:
    edges = write_edges(tmp_path / "edges.parquet", {"src": [0, 1], "dst": [1, 2]})
    graph = build(edges, tmp_path / "graph")
    with pytest.raises(ParameterError, match="directed=False"):
        Propagator(np.eye(3), initial=graph, directed=True)
    with pytest.raises(ParameterError, match="3 nodes"):
        Propagator(np.eye(2), initial=graph)
    later = Propagator(np.eye(4), initial=graph)
    later.apply(Batch(src=[3], dst=[0]))
    assert later.degree([0, 3]).tolist() == [[3.0], [2.0]]


def test_memory_is_given_in_bytes_or_as_text() -> None:
    assert compact.memory_bytes("500M") == compact.memory_bytes("500 MiB") == 500 << 20
    assert compact.memory_bytes(123) == 123
    for wrong in ("", "much", "0G", -1, True, 1.5):
        with pytest.raises(ParameterError, match="memory="):
            compact.memory_bytes(wrong)  # type: ignore[arg-type]
