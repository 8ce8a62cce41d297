"""Published formats of temporal graphs, read and written; `read` recognises them.

| format | what it is |
|---|---|
| jodie | one CSV of users and items; the header names one column for all features |
| tgn | `ml_NAME.csv`, ids from 1; `ml_NAME.npy`, `ml_NAME_node.npy` with an empty first row |
| tgl | a directory with `edges.csv`, perhaps `labels.csv` and features |
| snap | text delimited by white space, with `#` comments |
| pyg | a `TemporalData` object |
| tgb | a dict of arrays |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tidegraph.core.errors import ParameterError
from tidegraph.core.statefile import MAGIC
from tidegraph.events.formats.files import (
    JODIE_COLUMNS,
    PathLike,
    read_jodie,
    read_snap,
    read_tgl,
    read_tgn,
    write_jodie,
    write_snap,
    write_tgl,
    write_tgn,
)
from tidegraph.events.formats.objects import from_temporal_data, from_tgb, to_temporal_data, to_tgb
from tidegraph.events.stream import EventStream
from tidegraph.events.tables import read_table
from tidegraph.events.tables.source import read_head
from tidegraph.events.tables.sources import is_there, kind_of, located
from tidegraph.events.tables.text import TextSource, text_source
from tidegraph.events.tables.whole import is_address

__all__ = [
    "Format",
    "from_temporal_data",
    "from_tgb",
    "is_saved",
    "is_there",
    "look",
    "read",
    "read_jodie",
    "read_snap",
    "read_tgl",
    "read_tgn",
    "to_temporal_data",
    "to_tgb",
    "write_jodie",
    "write_snap",
    "write_tgl",
    "write_tgn",
]

Format: TypeAlias = Literal["auto", "table", "jodie", "tgn", "tgl", "snap", "pyg", "tgb", "saved"]


def read(source: Any, format: Format = "auto", **options: Any) -> EventStream:
    """Return the stream of a path or an object in any supported format.

    format: "auto" recognises it; or "table", "jodie", "tgn", "tgl", "snap", "pyg" (TemporalData),
        "tgb" (a dict of arrays), "saved" (by `EventStream.save`).
    options: for a table, which is anything but the published formats, those of `read_table`: which
        columns (src, dst, t, weight, op, label, edge_features), and unit, sort, ids, bipartite,
        on_bad, date_format, header, delimiter, decimal, query, title. Published formats define
        their columns; all take unit and sort, files on_bad and title.

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
        format, source = look(source)
    if format not in readers:
        raise ParameterError(f"format is {format!r}; give auto or one of {', '.join(readers)}")
    if format == "saved" and any(option is not None for option in options.values()):
        raise ParameterError(
            f"{source} is a stream saved by tidegraph, whose columns and times are fixed; leave out"
            f" {', '.join(options)}"
        )
    return readers[format](source, **options)


def is_saved(path: PathLike) -> bool:
    """Whether this is a file that `EventStream.save` wrote."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def look(source: Any) -> tuple[Format, Any]:
    """Return the format of a source, and the source as `read` takes it without a second look."""
    if isinstance(source, TextSource):
        return _format_of_text(source), source
    if isinstance(source, Mapping):
        arrays = {"sources", "destinations", "timestamps"} <= source.keys()
        return ("tgb" if arrays else "table"), source
    if not isinstance(source, (str, os.PathLike)):
        # A data frame has its columns as attributes as well.
        frame = hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__")
        like_pyg = all(hasattr(source, name) for name in ("src", "dst", "t"))
        return ("pyg" if like_pyg and not frame else "table"), source
    path = located(source)
    if is_address(source) or isinstance(path, list):
        return "table", path
    if path.is_dir():
        return ("tgl" if (path / "edges.csv").is_file() else "tgn"), source
    head = read_head(path)
    if head.startswith(MAGIC):
        return "saved", path
    if kind_of(path, head) != "text":
        return "table", path
    text = text_source(path, head=head)
    return _format_of_text(text), text


def _format_of_text(text: TextSource) -> Format:
    if text.columns[:4] == list(JODIE_COLUMNS[:4]):
        return "jodie"
    if {"u", "i", "ts", "label", "idx"} <= set(text.columns):
        return "tgn"
    if text.path.name == "edges.csv" and {"src", "dst", "time", "ext_roll"} <= set(text.columns):
        return "tgl"
    return "snap" if text.delimiter == " " and not text.headed else "table"
