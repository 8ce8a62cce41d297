"""Published file formats: JODIE, TGN and DyGLib, TGL, SNAP."""

from __future__ import annotations

import dataclasses
import gzip
import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError
from tidegraph.events.formats.objects import require_plain
from tidegraph.events.moments import PER_SECOND
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import EventStream, NodeLabels
from tidegraph.events.tables import read_table, whole_times
from tidegraph.events.tables.text import TextSource, text_source

PathLike: TypeAlias = str | os.PathLike[str]

JODIE_COLUMNS = (
    "user_id",
    "item_id",
    "timestamp",
    "state_label",
    "comma_separated_list_of_features",
)


def _seconds(times: NDArray[np.int64], unit: str) -> list[str]:
    """Return the times as decimal seconds, or in the stream's own unit if that is coarser."""
    per_second = PER_SECOND.get(unit, 1)
    if per_second == 1:
        return [f"{time}.0" for time in times.tolist()]
    digits = len(str(per_second)) - 1
    written = []
    for time in times.tolist():
        whole, rest = divmod(abs(time), per_second)
        text = f"{'-' if time < 0 else ''}{whole}.{rest:0{digits}}"
        if round(float(text) * per_second) != time:
            raise DataError(
                f"t={time} {unit} has more digits than the format's floating-point seconds"
                " hold; save the stream instead, or subtract its first time"
            )
        written.append(text)
    return written


def _completed(stream: EventStream, remarks: list[str], **changes: Any) -> EventStream:
    """Return a stream with what lies outside its table, and remarks about that in its report."""
    report = stream.report
    assert report is not None
    uses = report.columns.items()
    columns = {role: use for role, use in uses if changes.get(role, use) is not None}
    report = dataclasses.replace(report, columns=columns, remarks=(*report.remarks, *remarks))
    return dataclasses.replace(stream, report=report, **changes)


def _times_and_labels(stream: EventStream) -> tuple[list[str], list[int]]:
    labels = [0] * len(stream) if stream.labels is None else stream.labels.tolist()
    return _seconds(stream.t, stream.unit), labels


def _write_numbered(path: Path, header: str, *columns: Iterable[Any]) -> None:
    """Write columns after that of the row's number."""
    rows = enumerate(zip(*columns, strict=True))
    _write_lines(path, [header, *(f"{k},{','.join(map(str, row))}" for k, row in rows)])


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def _shortest(value: np.floating[Any]) -> str:
    return np.format_float_positional(value, trim="0", unique=True)


# JODIE --------------------------------------------------------------------------------------------


def read_jodie(path: PathLike, **options: Any) -> EventStream:
    """Read users and items: items are numbered after all users; further columns are features."""
    text = path
    if not isinstance(text, TextSource):
        text = text_source(Path(path), header=True, delimiter=",")
    cells = len(text.first)
    if cells < 4:
        raise DataError(f"{path} has {cells} cells per row; JODIE's files have 4 or more")
    features = [f"feature {number}" for number in range(cells - 4)]
    return read_table(
        dataclasses.replace(text, columns=[*text.columns[:4], *features]),
        src=0,
        dst=1,
        t=2,
        label=3,
        edge_features=features,
        bipartite=True,
        **{"title": Path(path).name, **options},
    )


def write_jodie(stream: EventStream, path: PathLike) -> None:
    """Write users, items, seconds, labels (0 without labels) and features.

    Users and items are each numbered from 0; the format cannot hold names or weights.
    """
    require_plain(stream, "JODIE's format")
    if not stream.bipartite:
        raise DataError("JODIE's format needs a bipartite stream; here a node is on both sides")
    users = np.unique(stream.src, return_inverse=True)[1].tolist()
    items = np.unique(stream.dst, return_inverse=True)[1].tolist()
    rows = zip(users, items, *_times_and_labels(stream), strict=True)
    features = stream.edge_features

    def lines() -> Iterable[str]:
        yield ",".join(JODIE_COLUMNS)
        for number, row in enumerate(rows):
            tail = [] if features is None else [_shortest(value) for value in features[number]]
            yield ",".join([*map(str, row), *tail])

    _write_lines(Path(path), lines())


# TGN and DyGLib -----------------------------------------------------------------------------------


def _tgn_paths(path: PathLike, name: str | None = None) -> tuple[Path, Path, Path]:
    """Return the three files: events, edge features, node features."""
    given = Path(path)
    if given.is_dir():
        found = [given / f"ml_{name}.csv"] if name else sorted(given.glob("ml_*.csv"))
        if len(found) != 1:
            raise DataError(
                f"{given} holds {len(found)} files ml_*.csv and no edges.csv; give the path of one"
                " file"
            )
        given = found[0]
    return given, given.with_suffix(".npy"), given.with_name(f"{given.stem}_node.npy")


def read_tgn(path: PathLike, **options: Any) -> EventStream:
    """Read `ml_NAME.csv`, or a directory with one, and its feature files.

    Ids start at 1 and stay the names of nodes: the number of node 1 is 0.
    """
    events, edge_file, node_file = _tgn_paths(path)
    # idx points into the features. Read as the weight, in float64, it follows its row when rows are
    # dropped or sorted; as an edge feature, in float32, it would be rounded.
    stream = read_table(
        path if isinstance(path, TextSource) else events,
        src="u",
        dst="i",
        t="ts",
        label="label",
        weight="idx",
        ids="keep",
        **{"title": events.stem.removeprefix("ml_"), **options},
    )
    for column in (stream.src, stream.dst):
        if len(column) and int(column.min()) == 0:
            raise DataError(f"{events} has node 0; in this format ids start at 1")
    assert stream.weight is not None
    changes: dict[str, Any] = {"src": stream.src - 1, "dst": stream.dst - 1}
    nodes = stream.nodes - 1
    if edge_file.is_file():
        rows = np.load(edge_file, mmap_mode="r", allow_pickle=False)
        index = stream.weight.astype(np.int64)
        if len(index) and int(index.max()) >= len(rows):
            raise DataError(
                f"{edge_file} has {len(rows)} rows, and idx reaches {index.max()}; row 0 is empty"
            )
        changes["edge_features"] = rows[index]
    if node_file.is_file():
        changes["node_features"] = np.load(node_file, allow_pickle=False)[1:]
        nodes = max(nodes, len(changes["node_features"]))
        if len(changes["node_features"]) < nodes:
            raise DataError(
                f"{node_file} has features of {len(changes['node_features'])} nodes; {nodes} occur"
            )
    remarks = ["idx points into the features", "ids start at 1: the number of node 1 is 0"]
    names = NodeNames(np.arange(1, nodes + 1))
    return _completed(stream, remarks, weight=None, nodes=nodes, names=names, **changes)


def write_tgn(stream: EventStream, directory: PathLike, name: str) -> Path:
    """Write `ml_NAME.csv` and the features, if any, and return the path of the former."""
    require_plain(stream, "the TGN format")
    events, edge_file, node_file = _tgn_paths(Path(directory) / f"ml_{name}.csv")
    rows = zip(stream.src.tolist(), stream.dst.tolist(), *_times_and_labels(stream), strict=True)
    lines = [",u,i,ts,label,idx"]
    for number, (src, dst, time, label) in enumerate(rows):
        lines.append(f"{number},{src + 1},{dst + 1},{time},{label}.0,{number + 1}")
    _write_lines(events, lines)
    for path, features in ((edge_file, stream.edge_features), (node_file, stream.node_features)):
        if features is not None:
            np.save(path, np.concatenate([np.zeros_like(features[:1]), features]))
    return events


# TGL ----------------------------------------------------------------------------------------------


def _load_features(directory: Path, name: str) -> NDArray[Any] | None:
    plain, torch_file = directory / f"{name}.npy", directory / f"{name}.pt"
    if plain.is_file():
        return np.load(plain, allow_pickle=False)  # type: ignore[no-any-return]
    if not torch_file.is_file():
        return None
    try:
        torch = import_module("torch")
    except ImportError:
        raise DataError(
            f"{torch_file} needs torch to be read; pip install torch, or convert it to {plain.name}"
        ) from None
    tensor = torch.load(torch_file, map_location="cpu", weights_only=True)
    return tensor.to(torch.float32).numpy()  # type: ignore[no-any-return]


def read_tgl(path: PathLike, **options: Any) -> EventStream:
    """Read the directory of `edges.csv` (or that file) with its node labels and features."""
    directory = Path(path) if Path(path).is_dir() else Path(path).parent
    stream = read_table(
        directory / "edges.csv",
        src="src",
        dst="dst",
        t="time",
        weight=False,
        ids="keep",
        **{"title": directory.name, **options},
    )
    names = ("edge_features", "node_features")
    loaded = {name: _load_features(directory, name) for name in names}
    changes: dict[str, Any] = {name: each for name, each in loaded.items() if each is not None}
    if "edge_features" in changes:
        changes["edge_features"] = _in_order(changes["edge_features"], directory, stream, options)
    nodes = max(stream.nodes, len(changes.get("node_features", ())))
    remarks = ["the split of edges in ext_roll is ignored"]
    labels_file = directory / "labels.csv"
    if labels_file.is_file():
        known = _tgl_labels(labels_file, stream.unit)
        changes["node_labels"] = known
        nodes = max(nodes, int(known.node.max()) + 1 if len(known.node) else 0)
        remarks.append(f"{len(known.node):,} node labels come from {labels_file.name}")
    return _completed(stream, remarks, nodes=nodes, **changes)


def _in_order(
    features: NDArray[Any], directory: Path, stream: EventStream, options: dict[str, Any]
) -> NDArray[Any]:
    """Return the features of the rows of `edges.csv` in the order of the events."""
    import pyarrow as pa
    from pyarrow import csv

    assert stream.report is not None
    if stream.report.dropped:
        raise DataError(
            f"{directory} has features by row, but rows of edges.csv were dropped; fix them, or"
            " move the features away"
        )
    if not options.get("sort"):
        return features
    as_written = csv.ConvertOptions(include_columns=["time"], column_types={"time": pa.string()})
    table = csv.read_csv(directory / "edges.csv", convert_options=as_written)
    times, _ = whole_times(table["time"].to_numpy())
    return features[np.argsort(times, kind="stable")]


def _tgl_labels(path: Path, unit: str) -> NodeLabels:
    """Return node labels, their times in the unit of the edges."""
    import pyarrow as pa
    from pyarrow import csv

    try:
        as_written = csv.ConvertOptions(column_types={"time": pa.string()})
        table = csv.read_csv(path, convert_options=as_written)
        node, time, label, part = (
            table[name].to_numpy() for name in ("node", "time", "label", "ext_roll")
        )
    except (pa.ArrowException, KeyError) as error:
        raise DataError(
            f"{path} cannot be read: {error}; columns node, time, label and ext_roll are needed"
        ) from error
    t, found = whole_times(time)
    factor = PER_SECOND.get(unit, 1) // PER_SECOND.get(found, 1)
    if factor == 0:
        raise DataError(f"{path} has times in {found}, finer than the {unit} of edges.csv")
    return NodeLabels(node, t * factor, np.rint(label).astype(np.int64), part)


def write_tgl(
    stream: EventStream, directory: PathLike, *, split: tuple[float, float] = (0.7, 0.15)
) -> Path:
    """Write the directory and return it.

    split: the shares of events for training and validation, in time order, for ext_roll.
    """
    require_plain(stream, "the TGL format")
    if stream.labels is not None:
        raise DataError("the TGL format cannot hold event labels; give them as node_labels")
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    bounds = np.rint(np.cumsum(split) * len(stream))
    part = np.searchsorted(bounds, np.arange(len(stream)), side="right")
    times = _seconds(stream.t, stream.unit)
    header = ",src,dst,time,ext_roll"
    src, dst = stream.src.tolist(), stream.dst.tolist()
    _write_numbered(folder / "edges.csv", header, src, dst, times, part.tolist())
    known = stream.node_labels
    if known is not None:
        times = _seconds(known.t, stream.unit)
        parts = [0] * len(known.node) if known.part is None else known.part
        header = ",node,time,label,ext_roll"
        _write_numbered(folder / "labels.csv", header, known.node, times, known.label, parts)
    for name in ("edge_features", "node_features"):
        if getattr(stream, name) is not None:
            np.save(folder / f"{name}.npy", getattr(stream, name))
    return folder


# SNAP ---------------------------------------------------------------------------------------------


def read_snap(path: PathLike, **options: Any) -> EventStream:
    """Read rows `src dst t`; `#` and `%` begin comments.

    A fourth column is a weight if a comment calls it so, as `write_snap` does, or if weight=3.
    """
    if not isinstance(path, TextSource):
        path = text_source(Path(path), header=False, delimiter=" ")
    if len(path.columns) == 4 and path.comment.split()[-1:] == ["weight"]:
        options = {"weight": 3, **options}
    return read_table(path, **{"header": False, "delimiter": " ", **options})


def write_snap(stream: EventStream, path: PathLike) -> None:
    """Write names (which must have no spaces), times in their unit, and weights."""
    require_plain(stream, "SNAP's format", weights=True)
    columns = [each.tolist() for each in (*map(stream.name, (stream.src, stream.dst)), stream.t)]
    if stream.weight is not None:
        columns.append([repr(weight) for weight in stream.weight.tolist()])
    names = () if stream.names is None else stream.names.values.tolist()
    for name in names:
        if isinstance(name, str) and (name.split() != [name] or name[0] in "#%"):
            raise DataError(f"node {name!r} cannot be written in SNAP's format; rename it")
    rows = zip(*columns, strict=True)
    head = f"# {stream.title or 'events'}: src dst t" + (" weight" if len(columns) == 4 else "")
    _write_lines(Path(path), [head.replace("\n", " "), *(" ".join(map(str, row)) for row in rows)])
