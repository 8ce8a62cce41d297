"""Published formats of temporal graphs, read and written, and `read`, which recognises them.

| format | what it is |
|---|---|
| jodie | one CSV of users and items; the header names one column for all features |
| tgn | `ml_NAME.csv`, ids from 1; `ml_NAME.npy`, `ml_NAME_node.npy` with an empty first row |
| tgl | a directory with `edges.csv`, and where known `labels.csv` and features |
| snap | text, parted by white space, with `#` comments |
| pyg | a `TemporalData` object |
| tgb | a dict of arrays |
"""

from __future__ import annotations

import dataclasses
import gzip
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.stream import PER_SECOND, EventStream, NodeLabels, ReadReport
from tidegraph.events.tables import read_table, text_source, whole_times

__all__ = [
    "from_temporal_data",
    "from_tgb",
    "read",
    "read_jodie",
    "read_snap",
    "read_tgl",
    "read_tgn",
    "recognised",
    "to_temporal_data",
    "to_tgb",
    "write_jodie",
    "write_snap",
    "write_tgl",
    "write_tgn",
]

PathLike: TypeAlias = str | os.PathLike[str]
Format: TypeAlias = Literal["auto", "table", "jodie", "tgn", "tgl", "snap", "pyg", "tgb", "saved"]

_JODIE = ("user_id", "item_id", "timestamp", "state_label", "comma_separated_list_of_features")
_SAVED = b"tidegraph state\n"


def read(source: Any, format: Format = "auto", **options: Any) -> EventStream:
    """The stream behind a path or an object, in any format known here.

    format: "auto" recognises it; or "table", "jodie", "tgn", "tgl", "snap", "pyg" (TemporalData),
        "tgb" (a dict of arrays), "saved" (by `EventStream.save`).
    options: of a table, which is all that is none of the published formats, those of `read_table`:
        src, dst, t, weight, op, label   the column of each, by name or place; guessed where absent
        edge_features                    columns of numbers, or "rest"
        unit                             of numbers in t: ns, us, ms, s, min, h, day, year, step
        sort                             sorts by time instead of refusing
        ids                              "auto", "keep" or "number"
        bipartite                        an id is one node as src and another as dst
        on_bad                           "error", or "drop" and count
        header, delimiter                of text, where the guess is wrong
        title                            of the stream
        The published formats know their columns; all take unit and sort, files on_bad and title.

    >>> read({"sources": [0], "destinations": [1], "timestamps": [3]}).t.tolist()
    [3]
    """
    readers: dict[str, Callable[..., EventStream]] = {
        "table": read_table,
        "jodie": read_jodie,
        "tgn": read_tgn,
        "tgl": read_tgl,
        "snap": read_snap,
        "pyg": from_temporal_data,
        "tgb": from_tgb,
        "saved": EventStream.load,
    }
    if format == "auto":
        format = recognised(source)
    if format not in readers:
        raise ParameterError(f"format is {format!r}; give auto or one of {', '.join(readers)}")
    if format == "saved" and any(option is not None for option in options.values()):
        raise ParameterError(
            f"{source} is a stream saved by tidegraph already; its columns and times are settled,"
            f" and {', '.join(options)} do not apply: use it as it is"
        )
    return readers[format](source, **options)


def recognised(source: Any) -> Format:
    """The format in which `read` would read this."""
    if isinstance(source, Mapping):
        return "tgb" if {"sources", "destinations", "timestamps"} <= source.keys() else "table"
    if not isinstance(source, (str, os.PathLike)):
        # A data frame has its columns as attributes too.
        frame = hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__")
        like_pyg = all(hasattr(source, name) for name in ("src", "dst", "t"))
        return "pyg" if like_pyg and not frame else "table"
    path = Path(source)
    if path.is_dir():
        return "tgl" if (path / "edges.csv").is_file() else "tgn"
    if not path.is_file() or path.suffix in (".parquet", ".pq", ".arrow", ".feather", ".ipc"):
        return "table"
    with open(path, "rb") as file:
        if file.read(len(_SAVED)) == _SAVED:
            return "saved"
    text = text_source(path)
    if text.columns[:4] == list(_JODIE[:4]):
        return "jodie"
    if {"u", "i", "ts", "label", "idx"} <= set(text.columns):
        return "tgn"
    if path.name == "edges.csv" and {"src", "dst", "time", "ext_roll"} <= set(text.columns):
        return "tgl"
    return "snap" if text.delimiter == " " and not text.headed else "table"


def _changed(stream: EventStream, **changes: Any) -> EventStream:
    """The stream with other columns, checked again."""
    fields = {field.name: getattr(stream, field.name) for field in dataclasses.fields(stream)}
    return EventStream.from_arrays(**{**fields, **changes})


def _seconds(stream: EventStream) -> list[str]:
    """The times as decimal numbers of seconds, or of the stream's own unit where it is coarser."""
    per_second = PER_SECOND.get(stream.unit, 1)
    if per_second == 1:
        return [f"{time}.0" for time in stream.t.tolist()]
    digits = len(str(per_second)) - 1
    written = []
    for time in stream.t.tolist():
        whole, rest = divmod(abs(time), per_second)
        text = f"{'-' if time < 0 else ''}{whole}.{rest:0{digits}}"
        if round(float(text) * per_second) != time:
            raise DataError(
                f"t={time} {stream.unit} has more digits than the format's floating-point seconds"
                " hold; save the stream instead, or subtract its first time"
            )
        written.append(text)
    return written


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def _shortest(value: np.floating[Any]) -> str:
    return np.format_float_positional(value, trim="0", unique=True)


def _adds_only(stream: EventStream, name: str) -> None:
    for what, column in (("op", stream.op), ("initial", stream.initial)):
        if column is not None:
            raise DataError(f"{name} has no place for {what}; save the stream with save() instead")


# JODIE --------------------------------------------------------------------------------------------


def read_jodie(path: PathLike, **options: Any) -> EventStream:
    """Users and items: items are nodes after all users; every further column is a feature."""
    text = text_source(Path(path), header=True, delimiter=",")
    cells = len(_second_row(Path(path)))
    if cells < 4:
        raise DataError(f"{path} has {cells} cells per row; JODIE's files have 4 and more")
    features = [f"feature {number}" for number in range(cells - 4)]
    source = text_source(
        Path(path), header=True, delimiter=",", columns=[*text.columns[:4], *features]
    )
    return read_table(
        source,
        src=0,
        dst=1,
        t=2,
        label=3,
        edge_features=features,
        bipartite=True,
        **{"title": Path(path).name, **options},
    )


def _second_row(path: Path) -> list[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        file.readline()
        return file.readline().strip().split(",")


def write_jodie(stream: EventStream, path: PathLike) -> None:
    """Writes users, items, seconds, labels (0 where there are none) and features.

    Users and items are counted from 0 each; the format has no place for names and weights.
    """
    _adds_only(stream, "JODIE's format")
    if stream.weight is not None:
        raise DataError("JODIE's format has no place for weights; give them as edge_features")
    if not stream.bipartite:
        raise DataError("JODIE's format is for bipartite streams; here a node is on both sides")
    users = np.unique(stream.src, return_inverse=True)[1].tolist()
    items = np.unique(stream.dst, return_inverse=True)[1].tolist()
    labels = [0] * len(stream) if stream.labels is None else stream.labels.tolist()
    rows = zip(users, items, _seconds(stream), labels, strict=True)
    features = stream.edge_features

    def lines() -> Iterable[str]:
        yield ",".join(_JODIE)
        for number, row in enumerate(rows):
            tail = [] if features is None else [_shortest(value) for value in features[number]]
            yield ",".join([*map(str, row), *tail])

    _write_lines(Path(path), lines())


# TGN and DyGLib -----------------------------------------------------------------------------------


def _tgn_paths(path: PathLike, name: str | None = None) -> tuple[Path, Path, Path]:
    """The three files: events, edge features, node features."""
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
    """`ml_NAME.csv`, or a directory with one, and the features beside it. Node k+1 becomes k."""
    events, edge_file, node_file = _tgn_paths(path)
    # idx points into the features. It travels as the weight, in float64, through dropped and sorted
    # rows; as an edge feature, in float32, it would be rounded.
    stream = read_table(
        events,
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
    assert stream.report is not None
    notes = [note for note in stream.report.notes if not note.startswith("weight ")]
    notes += ["idx points into the features", "ids start at 1 and were lowered by 1"]
    report = dataclasses.replace(stream.report, notes=tuple(notes))
    return _changed(stream, report=report, weight=None, nodes=nodes, **changes)


def write_tgn(stream: EventStream, directory: PathLike, name: str) -> Path:
    """Writes `ml_NAME.csv` and the features there are, and returns the path of the former."""
    _adds_only(stream, "the TGN format")
    if stream.weight is not None:
        raise DataError("the TGN format has no place for weights; give them as edge_features")
    events, edge_file, node_file = _tgn_paths(Path(directory) / f"ml_{name}.csv")
    labels = [0] * len(stream) if stream.labels is None else stream.labels.tolist()
    rows = zip(stream.src.tolist(), stream.dst.tolist(), _seconds(stream), labels, strict=True)
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
            f"{torch_file} needs torch to be read; install tidegraph[train], or convert it to"
            f" {plain.name}"
        ) from None
    tensor = torch.load(torch_file, map_location="cpu", weights_only=True)
    return tensor.to(torch.float32).numpy()  # type: ignore[no-any-return]


def read_tgl(path: PathLike, **options: Any) -> EventStream:
    """The directory of `edges.csv` (or that file), with labels of nodes and features beside it."""
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
    changes: dict[str, Any] = {}
    for name in ("edge_features", "node_features"):
        features = _load_features(directory, name)
        if features is not None:
            changes[name] = features
    if "edge_features" in changes:
        changes["edge_features"] = _in_order(changes["edge_features"], directory, stream, options)
    nodes = max(stream.nodes, len(changes.get("node_features", ())))
    notes = ["the split in ext_roll is not kept for edges"]
    labels_file = directory / "labels.csv"
    if labels_file.is_file():
        known = _tgl_labels(labels_file, stream.unit)
        changes["node_labels"] = known
        nodes = max(nodes, int(known.node.max()) + 1 if len(known.node) else 0)
        notes.append(f"{len(known.node):,} labels of nodes come from {labels_file.name}")
    assert stream.report is not None
    report = dataclasses.replace(stream.report, notes=(*stream.report.notes, *notes))
    return _changed(stream, report=report, nodes=nodes, **changes)


def _in_order(
    features: NDArray[Any], directory: Path, stream: EventStream, options: dict[str, Any]
) -> NDArray[Any]:
    """Features of the rows of `edges.csv` as features of the events, which may be sorted."""
    import pyarrow as pa
    from pyarrow import csv

    assert stream.report is not None
    if stream.report.dropped:
        raise DataError(
            f"{directory} has edge features by row, and rows of edges.csv were dropped; mend the"
            " rows, or move the features away"
        )
    if not options.get("sort"):
        return features
    as_written = csv.ConvertOptions(include_columns=["time"], column_types={"time": pa.string()})
    table = csv.read_csv(directory / "edges.csv", convert_options=as_written)
    times, _ = whole_times(table["time"].to_numpy())
    return features[np.argsort(times, kind="stable")]


def _tgl_labels(path: Path, unit: str) -> NodeLabels:
    """Labels of nodes, their times in the unit of the edges."""
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
    """Writes the directory and returns it.

    split: the shares of events for training and validation, in order of time, for ext_roll.
    """
    _adds_only(stream, "the TGL format")
    if stream.weight is not None or stream.labels is not None:
        raise DataError(
            "the TGL format has no place for weights or labels of events; give edge_features or"
            " node_labels"
        )
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    bounds = np.rint(np.cumsum(split) * len(stream))
    part = np.searchsorted(bounds, np.arange(len(stream)), side="right").tolist()
    rows = zip(stream.src.tolist(), stream.dst.tolist(), _seconds(stream), part, strict=True)
    lines = [f"{number},{','.join(map(str, row))}" for number, row in enumerate(rows)]
    _write_lines(folder / "edges.csv", [",src,dst,time,ext_roll", *lines])
    known = stream.node_labels
    if known is not None:
        # Through a stream of its own, labels are written with the same care for their times.
        times = _seconds(dataclasses.replace(stream, t=known.t))
        parts = [0] * len(known.node) if known.part is None else known.part.tolist()
        entries = zip(known.node.tolist(), times, known.label.tolist(), parts, strict=True)
        lines = [f"{number},{','.join(map(str, row))}" for number, row in enumerate(entries)]
        _write_lines(folder / "labels.csv", [",node,time,label,ext_roll", *lines])
    for name in ("edge_features", "node_features"):
        if getattr(stream, name) is not None:
            np.save(folder / f"{name}.npy", getattr(stream, name))
    return folder


# SNAP ---------------------------------------------------------------------------------------------


def read_snap(path: PathLike, **options: Any) -> EventStream:
    """Rows `src dst t` or `src dst t weight`, parted by white space; `#` and `%` begin comments."""
    return read_table(path, **{"header": False, "delimiter": " ", **options})


def write_snap(stream: EventStream, path: PathLike) -> None:
    """Writes ids (the file's own, where they have no spaces), times in their unit, and weights."""
    _adds_only(stream, "SNAP's format")
    columns = [
        stream.name(stream.src).tolist(),
        stream.name(stream.dst).tolist(),
        stream.t.tolist(),
    ]
    if stream.weight is not None:
        columns.append([repr(weight) for weight in stream.weight.tolist()])
    names = () if stream.names is None else stream.names.values.tolist()
    for name in names:
        if isinstance(name, str) and (name.split() != [name] or name[0] in "#%"):
            raise DataError(f"node {name!r} cannot be told from its surroundings in SNAP's format")
    rows = zip(*columns, strict=True)
    head = f"# {stream.title or 'events'}: src dst t" + (" weight" if len(columns) == 4 else "")
    _write_lines(Path(path), [head.replace("\n", " "), *(" ".join(map(str, row)) for row in rows)])


# Objects ------------------------------------------------------------------------------------------


def _array(value: Any) -> NDArray[Any]:
    """A NumPy array of a tensor on any device, or of anything array-like."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def _matrix(value: Any) -> NDArray[Any] | None:
    if value is None:
        return None
    array = _array(value)
    return array[:, None] if array.ndim == 1 else array


def _labels(value: Any) -> NDArray[np.int64] | None:
    if value is None:
        return None
    array = _array(value)
    array = array.reshape(len(array)) if array.ndim == 2 and array.shape[1] == 1 else array
    rounded: NDArray[np.int64] = np.rint(array).astype(np.int64)
    if not np.array_equal(rounded, array):
        raise DataError("labels of events are not integers; give them as edge_features")
    return rounded


def from_temporal_data(data: Any, *, unit: str = "s", sort: bool = False) -> EventStream:
    """The stream of a PyG `TemporalData`, or anything with tensors src, dst, t, msg and y."""
    for name in ("src", "dst", "t"):
        if getattr(data, name, None) is None:
            raise DataError(f"the {type(data).__name__} has no {name}; src, dst and t are needed")
    t, found = whole_times(_array(data.t), unit)
    return EventStream.from_arrays(
        _array(data.src),
        _array(data.dst),
        t,
        edge_features=_matrix(getattr(data, "msg", None)),
        labels=_labels(getattr(data, "y", None)),
        unit=found,
        sort=sort,
        report=_all_kept(f"the {type(data).__name__}", len(t), f"t counts {found}"),
    )


def _all_kept(source: str, rows: int, *notes: str) -> ReadReport:
    return ReadReport(source, rows, rows, notes=notes)


def to_temporal_data(stream: EventStream) -> Any:
    """The stream as a PyG `TemporalData` with src, dst, t and, where there are any, msg and y."""
    _adds_only(stream, "TemporalData")
    if stream.weight is not None:
        raise DataError("TemporalData has no place for weights; give them as edge_features")
    try:
        torch, data = import_module("torch"), import_module("torch_geometric.data")
    except ImportError:
        raise DataError(
            "TemporalData needs torch_geometric, which is not installed: pip install"
            " 'tidegraph[bench]'"
        ) from None
    columns: dict[str, Any] = {"src": stream.src, "dst": stream.dst, "t": stream.t}
    more = {"msg": stream.edge_features, "y": stream.labels}
    columns |= {name: column for name, column in more.items() if column is not None}
    # Copies: a tensor has no way to say that it must not be written to.
    return data.TemporalData(**{name: torch.tensor(column) for name, column in columns.items()})


def from_tgb(arrays: Mapping[str, Any], *, unit: str = "s", sort: bool = False) -> EventStream:
    """The stream of TGB's arrays: sources, destinations, timestamps, edge_feat, w, edge_label.

    Weights or labels that are 1 everywhere say nothing and are left out; weights that are not all
    positive become the last edge feature.
    """
    missing = {"sources", "destinations", "timestamps"} - arrays.keys()
    if missing:
        raise DataError(f"the arrays lack {', '.join(sorted(missing))}; given {', '.join(arrays)}")
    t, found = whole_times(_array(arrays["timestamps"]), unit)
    notes = [f"t counts {found}"]
    features = _matrix(arrays.get("edge_feat"))
    weight = None if arrays.get("w") is None else _array(arrays["w"]).reshape(-1).astype(np.float64)
    labels = _labels(arrays.get("edge_label"))
    if weight is not None and (weight == 1).all():
        weight = None
        notes.append("w is 1 everywhere and left out")
    if weight is not None and not (weight > 0).all():
        extra = weight[:, None]
        features = extra if features is None else np.concatenate([features, extra], axis=1)
        weight = None
        notes.append("w is <= 0 in places and kept as the last edge feature")
    if labels is not None and (labels == 1).all():
        labels = None
        notes.append("edge_label is 1 everywhere and left out")
    return EventStream.from_arrays(
        _array(arrays["sources"]),
        _array(arrays["destinations"]),
        t,
        weight=weight,
        edge_features=features,
        labels=labels,
        unit=found,
        sort=sort,
        report=_all_kept("the arrays", len(t), *notes),
    )


def to_tgb(stream: EventStream) -> dict[str, NDArray[Any]]:
    """The stream as TGB's arrays; weights and labels are 1 where there are none."""
    _adds_only(stream, "TGB's format")
    rows = len(stream)
    arrays: dict[str, NDArray[Any]] = {
        "sources": stream.src.copy(),
        "destinations": stream.dst.copy(),
        "timestamps": stream.t.copy(),
        "edge_idxs": np.arange(1, rows + 1),
        "w": np.ones(rows) if stream.weight is None else stream.weight.copy(),
        "edge_label": np.ones(rows) if stream.labels is None else stream.labels.astype(np.float64),
    }
    if stream.edge_features is not None:
        arrays["edge_feat"] = stream.edge_features.copy()
    return arrays
