"""Streams from and to objects of other libraries: PyG's `TemporalData`, TGB's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError
from tidegraph.events.read_report import ReadReport
from tidegraph.events.stream import EventStream
from tidegraph.events.tables import whole_times


def require_plain(stream: EventStream, name: str, *, weights: bool = False) -> None:
    """Raise DataError if the stream has what the format cannot hold; some can hold weights."""
    for what in ("op", "initial", "categories"):
        if getattr(stream, what) is not None:
            raise DataError(f"{name} cannot hold {what}; use EventStream.save() instead")
    if stream.weight is not None and not weights:
        raise DataError(f"{name} cannot hold weights; give them as edge_features")


def _array(value: Any) -> NDArray[Any]:
    """Return a NumPy array of a tensor on any device, or of anything array-like."""
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
    """Return the stream of a PyG `TemporalData`, or anything with tensors src, dst, t, msg, y."""
    for name in ("src", "dst", "t"):
        if getattr(data, name, None) is None:
            raise DataError(f"the {type(data).__name__} has no {name}; src, dst and t are needed")
    t, found = whole_times(_array(data.t), unit)
    return EventStream(
        _array(data.src),
        _array(data.dst),
        t,
        edge_features=_matrix(getattr(data, "msg", None)),
        labels=_labels(getattr(data, "y", None)),
        unit=found,
        sort=sort,
        report=_report(f"the {type(data).__name__}", len(t), f"t counts {found}"),
    )


def _report(source: str, rows: int, *remarks: str) -> ReadReport:
    return ReadReport(source, rows, rows, remarks=remarks)


def to_temporal_data(stream: EventStream) -> Any:
    """Return the stream as a PyG `TemporalData` with src, dst, t and, if it has them, msg and y."""
    require_plain(stream, "TemporalData")
    try:
        torch, data = import_module("torch"), import_module("torch_geometric.data")
    except ImportError:
        raise DataError(
            "TemporalData needs torch_geometric, which is not installed: pip install"
            " torch_geometric"
        ) from None
    columns: dict[str, Any] = {"src": stream.src, "dst": stream.dst, "t": stream.t}
    more = {"msg": stream.edge_features, "y": stream.labels}
    columns |= {name: column for name, column in more.items() if column is not None}
    # Copies, because a tensor cannot be read-only.
    return data.TemporalData(**{name: torch.tensor(column) for name, column in columns.items()})


def from_tgb(arrays: Mapping[str, Any], *, unit: str = "s", sort: bool = False) -> EventStream:
    """Return the stream of TGB's arrays.

    These are sources, destinations, timestamps, edge_feat, w and edge_label. Weights or labels that
    are all 1 are left out; weights that are not all positive become the last edge feature.
    """
    missing = {"sources", "destinations", "timestamps"} - arrays.keys()
    if missing:
        raise DataError(f"the arrays lack {', '.join(sorted(missing))}; given {', '.join(arrays)}")
    t, found = whole_times(_array(arrays["timestamps"]), unit)
    remarks = [f"t counts {found}"]
    features = _matrix(arrays.get("edge_feat"))
    weight = None if arrays.get("w") is None else _array(arrays["w"]).reshape(-1).astype(np.float64)
    labels = _labels(arrays.get("edge_label"))
    if weight is not None and (weight == 1).all():
        weight = None
        remarks.append("w is 1 everywhere and left out")
    if weight is not None and not (weight > 0).all():
        extra = weight[:, None]
        features = extra if features is None else np.concatenate([features, extra], axis=1)
        weight = None
        remarks.append("w is <= 0 in places and becomes the last edge feature")
    if labels is not None and (labels == 1).all():
        labels = None
        remarks.append("edge_label is 1 everywhere and left out")
    return EventStream(
        _array(arrays["sources"]),
        _array(arrays["destinations"]),
        t,
        weight=weight,
        edge_features=features,
        labels=labels,
        unit=found,
        sort=sort,
        report=_report("the arrays", len(t), *remarks),
    )


def to_tgb(stream: EventStream) -> dict[str, NDArray[Any]]:
    """Return the stream as TGB's arrays; weights and labels are 1 where it has none."""
    require_plain(stream, "TGB's format", weights=True)
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
