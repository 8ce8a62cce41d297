"""Published formats come back as they were written, and are recognised without being named."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tidegraph import DataError, EventStream, Op, read
from tidegraph.core.errors import ParameterError
from tidegraph.events import formats
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import NodeLabels
from tidegraph.events.tables import source as base
from tidegraph.events.tables import text

JODIE_HEADER = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features"


def bipartite(*, unit: str = "s", features: int = 3, labels: bool = True) -> EventStream:
    """Every user and item occurs, so that their numbers are theirs in any order."""
    random = np.random.default_rng(5)
    src = np.concatenate([np.arange(4), random.integers(0, 4, 20)])
    dst = 4 + np.concatenate([[2, 1, 0, 2], random.integers(0, 3, 20)])
    return EventStream(
        src,
        dst,
        np.cumsum(random.integers(0, 7001, 24)) - 3001,
        edge_features=random.normal(size=(24, features)).astype(np.float32) if features else None,
        labels=random.integers(0, 2, 24) if labels else None,
        unit=unit,
    )


def events(**changes: Any) -> EventStream:
    random = np.random.default_rng(6)
    columns: dict[str, Any] = {
        "src": random.integers(0, 9, 30),
        "dst": random.integers(0, 9, 30),
        "t": np.sort(random.integers(0, 100, 30)),
        "nodes": 10,
    }
    return EventStream(**{**columns, **changes})


# Round trips --------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_jodie_comes_back(unit: str, name: str, tmp_path: Path) -> None:
    sides = NodeNames.of_sides(range(4), range(3))
    stream = replace(bipartite(unit=unit), names=sides)
    formats.write_jodie(stream, tmp_path / name)
    again = read(tmp_path / name)
    assert again.digest() == stream.digest()
    assert again.title == name
    assert again.number([2], "dst").tolist() == [6]  # what the file calls item 2
    bare = replace(bipartite(features=0), names=sides)
    formats.write_jodie(bare, tmp_path / name)
    assert read(tmp_path / name).digest() == bare.digest()


def test_a_jodie_file_as_published_is_understood(tmp_path: Path) -> None:
    text = f"{JODIE_HEADER}\n0,0,0.0,0,-0.1,1.5\n1,0,36.0,0,0.25,0\n0,1,77.0,1,3,4\n"
    (tmp_path / "wikipedia.csv").write_text(text)
    stream = read(tmp_path / "wikipedia.csv")
    assert stream.src.tolist() == [0, 1, 0]
    assert stream.dst.tolist() == [2, 2, 3]  # items after the two users
    assert (stream.t.tolist(), stream.unit, stream.nodes) == ([0, 36, 77], "s", 4)
    assert stream.labels is not None
    assert stream.labels.tolist() == [0, 0, 1]
    assert stream.edge_features is not None
    assert stream.edge_features.tolist() == [[np.float32(-0.1), 1.5], [0.25, 0], [3, 4]]
    (tmp_path / "b.csv").write_text(f"{JODIE_HEADER}\n0,0,0.0,0,1\n1,0,36.0,0,1,2\n")
    with pytest.raises(DataError, match="has 6 cells where 5 are expected"):
        read(tmp_path / "b.csv")


@pytest.mark.parametrize("nodes", [7, 9])
def test_tgn_comes_back(nodes: int, tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(nodes, 2)).astype(np.float32)
    names = NodeNames(np.arange(1, nodes + 1))
    stream = replace(bipartite(unit="ms"), nodes=nodes, node_features=features, names=names)
    path = formats.write_tgn(stream, tmp_path, "toy")
    for source in (path, tmp_path):
        again = read(source)
        assert again.digest() == stream.digest()
        assert again.title == "toy"
        assert again.number([5]) == again.nodes_of(["5"]) == [4]  # what the file calls 5
        assert again.name([4]) == [5]
    stored = np.load(tmp_path / "ml_toy.npy")
    assert len(stored) == len(stream) + 1
    assert not stored[0].any()
    assert (tmp_path / "ml_toy.csv").read_text().startswith(",u,i,ts,label,idx\n0,1,7,")


def test_tgn_files_that_do_not_fit_each_other_raise(tmp_path: Path) -> None:
    path = formats.write_tgn(bipartite(), tmp_path, "toy")
    np.save(tmp_path / "ml_toy.npy", np.zeros((5, 2)))
    with pytest.raises(DataError, match="has 5 rows, and idx reaches"):
        read(path)
    np.save(tmp_path / "ml_toy.npy", np.zeros((25, 2)))
    np.save(tmp_path / "ml_toy_node.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match="features of 2 nodes; 7 occur"):
        read(path)
    path.write_text(",u,i,ts,label,idx\n0,0,1,5.0,0.0,1\n")
    with pytest.raises(DataError, match="ids start at 1"):
        read(path)
    (tmp_path / "ml_other.csv").write_text("")
    with pytest.raises(DataError, match="2 files"):
        read(tmp_path)


@pytest.mark.parametrize("part", [None, np.array([0, 1, 2], dtype=np.uint8)])
def test_tgl_comes_back(part: Any, tmp_path: Path) -> None:
    known = NodeLabels(np.array([1, 9, 1]), np.array([5, 6, 50]), np.array([2, 0, 1]), part)
    random = np.random.default_rng(0)
    stream = events(
        t=np.arange(30) * 10 + 5,
        unit="ms",
        edge_features=random.normal(size=(30, 2)),
        node_features=random.normal(size=(10, 3)),
        node_labels=known,
    )
    again = read(formats.write_tgl(stream, tmp_path / "toy"))
    assert again.node_labels is not None
    if part is None:  # the format always says
        again = replace(again, node_labels=replace(again.node_labels, part=None))
    assert again.digest() == stream.digest()
    assert again.title == "toy"
    rolls = [line[-1] for line in (tmp_path / "toy" / "edges.csv").read_text().splitlines()[1:]]
    assert [rolls.count(roll) for roll in "012"] in ([21, 4, 5], [21, 5, 4])
    assert rolls == sorted(rolls)
    assert read(tmp_path / "toy" / "edges.csv").digest() == read(tmp_path / "toy").digest()


def test_features_saved_by_torch_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    formats.write_tgl(events(), tmp_path)
    torch.save(torch.ones(30, 2, dtype=torch.float16), tmp_path / "edge_features.pt")
    again = read(tmp_path)
    assert again.edge_features is not None
    assert again.edge_features.shape == (30, 2)
    (tmp_path / "labels.csv").write_text(",node,time\n0,1,2\n")
    with pytest.raises(DataError, match="columns node, time, label and ext_roll are needed"):
        read(tmp_path)


@pytest.mark.parametrize("weight", [None, np.linspace(0.1, 3, 30)])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_snap_comes_back(weight: Any, name: str, tmp_path: Path) -> None:
    stream = events(weight=weight, nodes=None)
    formats.write_snap(stream, tmp_path / name)
    again = read(tmp_path / name, ids="keep")
    assert again.digest() == stream.digest()
    named = read({"src": ["x", "y"], "dst": ["y", "z"], "t": [1, 2]})
    formats.write_snap(named, tmp_path / name)
    assert read(tmp_path / name).digest() == named.digest()
    spaced = read({"src": ["x y"], "dst": ["y"], "t": [1]})
    with pytest.raises(DataError, match="'x y'"):
        formats.write_snap(spaced, tmp_path / name)


def test_a_snap_file_as_published_is_understood(tmp_path: Path) -> None:
    text = "# Directed graph: CollegeMsg\n# SRC DST UNIXTS\n1 2 1082040961\n3\t4   1082155839\n"
    (tmp_path / "CollegeMsg.txt.gz").write_bytes(gzip.compress(text.encode()))
    stream = read(tmp_path / "CollegeMsg.txt.gz")
    assert stream.names is not None
    assert stream.names.values.tolist() == [1, 3, 2, 4]
    assert stream.t.tolist() == [1082040961, 1082155839]


@pytest.mark.parametrize("more", [{}, {"weight": np.arange(1.0, 31), "labels": np.arange(30)}])
def test_tgb_arrays_come_back(more: dict[str, Any]) -> None:
    stream = events(edge_features=np.ones((30, 2)), nodes=None, **more)
    arrays = formats.to_tgb(stream)
    assert {"sources", "destinations", "timestamps", "edge_feat", "w", "edge_label"} < set(arrays)
    again = read(arrays)
    assert again.digest() == stream.digest()
    negative = read({**arrays, "w": -arrays["w"]})
    assert negative.weight is None
    assert negative.edge_features is not None
    assert np.array_equal(negative.edge_features[:, -1], -arrays["w"].astype(np.float32))
    with pytest.raises(DataError, match="lack timestamps"):
        formats.from_tgb({"sources": [0], "destinations": [1]})


def test_anything_with_tensors_src_dst_t_is_read() -> None:
    torch = pytest.importorskip("torch")
    stream = bipartite()
    data = SimpleNamespace(
        src=torch.tensor(stream.src),
        dst=torch.tensor(stream.dst),
        t=torch.tensor(stream.t),
        msg=torch.tensor(stream.edge_features),
        y=torch.tensor(stream.labels)[:, None].to(torch.float32),
    )
    assert read(data).digest() == stream.digest()
    halves = SimpleNamespace(src=data.src, dst=data.dst, t=data.t.to(torch.float64) / 2)
    assert read(halves).unit == "ms"
    with pytest.raises(DataError, match="labels of events are not integers"):
        read(SimpleNamespace(src=data.src, dst=data.dst, t=data.t, y=data.y + 0.5))
    with pytest.raises(DataError, match="has no t"):
        formats.from_temporal_data(SimpleNamespace(src=data.src, dst=data.dst))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch_geometric's own, at its import
def test_temporal_data_comes_back() -> None:
    try:
        import torch_geometric.data  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
    except ImportError:
        with pytest.raises(DataError, match=r"tidegraph\[bench\]"):
            formats.to_temporal_data(bipartite())
        pytest.skip("torch_geometric is not installed")
    data = formats.to_temporal_data(bipartite())
    assert read(data).digest() == bipartite().digest()


def test_a_saved_stream_and_a_plain_table_are_recognised(tmp_path: Path) -> None:
    events().save(tmp_path / "a.stream")
    assert read(tmp_path / "a.stream").digest() == events().digest()
    (tmp_path / "a.csv").write_text("from,to,time\na,b,1\n")
    assert read(tmp_path / "a.csv").names is not None
    assert read(tmp_path / "a.csv", "table", title="x").title == "x"
    with pytest.raises(ParameterError, match="format is 'gml'"):
        read(tmp_path / "a.csv", "gml")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="there is no file"):
        read(tmp_path / "absent.csv")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_data_frame_is_not_taken_for_temporal_data(library: str) -> None:
    frames = pytest.importorskip(library)
    stream = read(frames.DataFrame({"src": ["a"], "dst": ["b"], "t": [1]}))
    assert stream.names is not None


# What a format cannot hold ------------------------------------------------------------------------


def test_nothing_is_lost_in_silence(tmp_path: Path) -> None:
    removing = events(op=np.full(30, int(Op.SET)))
    for writer in (
        lambda stream: formats.write_jodie(stream, tmp_path / "a"),
        lambda stream: formats.write_tgn(stream, tmp_path, "a"),
        lambda stream: formats.write_tgl(stream, tmp_path / "b"),
        lambda stream: formats.write_snap(stream, tmp_path / "a"),
        formats.to_tgb,
        formats.to_temporal_data,
    ):
        with pytest.raises(DataError, match=r"\bop\b"):
            writer(removing)
    with pytest.raises(DataError, match="bipartite"):
        formats.write_jodie(events(), tmp_path / "a")
    for weighted in (
        lambda: formats.write_jodie(replace(bipartite(), weight=np.ones(24)), tmp_path / "a"),
        lambda: formats.write_tgn(events(weight=np.ones(30)), tmp_path, "a"),
        lambda: formats.write_tgl(events(weight=np.ones(30)), tmp_path / "b"),
        lambda: formats.to_temporal_data(events(weight=np.ones(30))),
    ):
        with pytest.raises(DataError, match="weights"):
            weighted()
    fine = events(t=np.arange(30) + 1_700_000_000_123_456_789, unit="ns")
    with pytest.raises(DataError, match="more digits than"):
        formats.write_tgn(fine, tmp_path, "a")
    assert list(tmp_path.iterdir()) == []


def test_options_for_tables_do_not_apply_to_a_saved_stream(tmp_path: Path) -> None:
    stream = EventStream([0], [1], [5])
    stream.save(tmp_path / "saved")
    assert read(tmp_path / "saved").t.tolist() == [5]
    with pytest.raises(ParameterError, match="sort"):
        read(tmp_path / "saved", sort=True)


def test_edge_features_of_tgl_follow_their_events_when_sorted(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(",src,dst,time,ext_roll\n0,0,1,5,0\n1,1,2,3,0\n")
    np.save(tmp_path / "edge_features.npy", np.array([[50.0], [30.0]], dtype=np.float32))
    stream = formats.read_tgl(tmp_path, sort=True)
    assert stream.t.tolist() == [3, 5]
    assert stream.edge_features is not None
    assert stream.edge_features[:, 0].tolist() == [30.0, 50.0]


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "snap.txt", "jodie.csv"])
def test_the_head_of_a_file_is_read_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    if name == "snap.txt":
        formats.write_snap(events(), path)
    elif name == "jodie.csv":
        formats.write_jodie(bipartite(), path)
    else:
        rows = "src,dst,t\nann,bob,2024-01-01\nbob,eve,2024-01-02\n"
        path.write_bytes(gzip.compress(rows.encode()) if name.endswith("gz") else rows.encode())
    opened, really = [], base.opened

    def counting(path: Path) -> Any:
        opened.append(path)
        return really(path)

    for module in (base, text):
        monkeypatch.setattr(module, "opened", counting)
    assert len(read(path)) > 0
    assert len(opened) == 2  # the head, then all rows
