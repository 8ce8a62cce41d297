"""Temporal graphs by name or from a file, and generated ones of any size."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegraph.core.errors import DataError
from tidegraph.core.progress import Progress
from tidegraph.events import formats
from tidegraph.events.columns import IntArray
from tidegraph.events.datasets import registry
from tidegraph.events.datasets.generators.communities import generate_communities
from tidegraph.events.datasets.generators.gdelt import generate_gdelt_like
from tidegraph.events.datasets.generators.mag import generate_mag_features, generate_mag_like
from tidegraph.events.datasets.registry import (
    DATA_SETS,
    NAMES,
    DataSet,
    cache_directory,
    data_directory,
    fetch,
    find,
)
from tidegraph.events.datasets.storage import DESCRIPTION, open_directory
from tidegraph.events.stream import EventStream, NodeLabels
from tidegraph.events.tables import read_table

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "DATA_SETS",
    "NAMES",
    "DataSet",
    "cache_directory",
    "data_directory",
    "fetch",
    "find",
    "generate_communities",
    "generate_gdelt_like",
    "generate_mag_features",
    "generate_mag_like",
    "load_dataset",
]

_DAY_MIN = 24 * 60


def load_dataset(
    name: str | os.PathLike[str],
    *,
    directory: str | os.PathLike[str] | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> EventStream:
    """Return the events of a data set in `NAMES`, a file, or a directory written by a generator.

    A string that names a data set means the data set, even if a file has the same name; give
    "./NAME" or a `Path` for the file. A data set is looked for in `directory`, $TIDEGRAPH_DATA and
    the cache, in the compact form `NAME.csv.gz` and as its authors publish it; with `download` it
    is fetched if none of them has it.

    Ratings (Bitcoin's and MovieLens') are edge features, not weights. `labels` are the states of
    sources at their events; `node_labels` are labels of nodes with the time they become known: the
    delay of a flight on arrival (a day after departure if the arrival is not recorded), the class
    of a paper in its first year as a source.

    >>> load_dataset("nyc-flights").names[0]
    'N14228'
    """
    data_set = DATA_SETS.get(name) if isinstance(name, str) else None
    if data_set is not None:
        return _named(data_set, directory, download, progress)
    path = Path(name)
    if (path / DESCRIPTION).is_file():
        return open_directory(path)
    if not formats.is_there(name):
        raise DataError(
            f"there is no data set or file {os.fspath(name)!r}; give one of {', '.join(NAMES)}, or"
            " the path of a file of events (.csv, .csv.gz, .parquet, ...)"
        )
    try:
        return formats.read(name)
    except DataError as error:
        raise DataError(
            f"{error} (`tidegraph data import` converts a file once; it can name columns and sort)"
        ) from error


def _named(
    data_set: DataSet,
    directory: str | os.PathLike[str] | None,
    download: bool,
    progress: Progress | None,
) -> EventStream:
    found = find(data_set, directory)
    if found is None and download and data_set.published:
        fetch(data_set.name, directory=directory, progress=progress)
        found = find(data_set, directory)
    if found is None:
        raise registry.absent(data_set, directory)
    registry.check(data_set, found)
    stream = _READERS[found.form](data_set, found.paths)
    return stream._with(title=data_set.title)


# The forms of named data sets ---------------------------------------------------------------------


def _shipped(data_set: DataSet, paths: tuple[Path, ...]) -> EventStream:
    """Return flights with a label known on arrival: late or not, -1 if diverted."""
    import pyarrow.parquet as pq

    table = pq.read_table(paths[0])
    stream = read_table(table, src="src", dst="dst", t="t", unit=data_set.unit)
    late = table["late"].cast("int64").fill_null(-1).to_numpy()
    arrived = table["arrived"].fill_null(0).to_numpy()
    known = late >= 0
    return replace(
        stream, labels=late, node_labels=_by_time(stream.src[known], arrived[known], late[known])
    )


def _compact(data_set: DataSet, paths: tuple[Path, ...]) -> EventStream:
    ratings = ("weight",) if data_set.layout == "ratings" else ()
    labels = None if data_set.labelled else False
    stream = read_table(
        paths[0], weight=False, label=labels, edge_features=ratings, unit=data_set.unit
    )
    if data_set.name == "flights-3m" and stream.labels is not None:
        known = stream.t + _DAY_MIN  # its arrival is not recorded
        return replace(stream, node_labels=_by_time(stream.src, known, stream.labels))
    if data_set.name == "pubmed-temporal":
        import pyarrow.csv

        classes = pyarrow.csv.read_csv(paths[1])
        node, label = (classes[name].to_numpy() for name in ("node", "label"))
        return replace(stream, node_labels=_by_time(node, _first_years(stream)[node], label))
    return stream


def _published(data_set: DataSet, paths: tuple[Path, ...]) -> EventStream:
    if data_set.layout == "ratings":
        return _ratings(data_set, _headerless(paths[0], ["src", "dst", "rating", "time"]))
    if data_set.layout == "movielens":
        header = paths[0].suffix == ".inter"  # RecBole's form: the same lines after a header
        columns = ["user", "film", "rating", "time"]
        table = _headerless(paths[0], columns, delimiter="\t", skip=int(header))
        return _ratings(data_set, table, src="user", dst="film", bipartite=True)
    if data_set.layout == "tgl":
        return formats.read_tgl(paths[0].parent, unit=data_set.unit)
    read = formats.read_jodie if data_set.layout == "jodie" else formats.read_snap
    stream = read(paths[0], unit=data_set.unit)
    # Users and items are numbered as in the compact form, which has no names either.
    return stream._with(names=None) if data_set.layout == "jodie" else stream


_READERS = {"shipped": _shipped, "compact": _compact, "published": _published}


def _headerless(
    path: Path, columns: list[str], *, delimiter: str = ",", skip: int = 0
) -> pyarrow.Table:
    import pyarrow
    import pyarrow.csv

    try:
        return pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(column_names=columns, skip_rows=skip),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
        )
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path} cannot be read as lines of {delimiter.join(columns)}: {error}; fetch it again"
        ) from error


def _ratings(data_set: DataSet, table: pyarrow.Table, **options: Any) -> EventStream:
    features = ("rating",)
    return read_table(
        table, weight=False, edge_features=features, unit=data_set.unit, sort=True, **options
    )


def _first_years(stream: EventStream) -> IntArray:
    """Return when each node was first a source or, failing that, first appeared."""
    never = np.iinfo(np.int64).max
    cites = np.full(stream.nodes, never)
    np.minimum.at(cites, stream.src, stream.t)
    appears = cites.copy()
    np.minimum.at(appears, stream.dst, stream.t)
    return np.where(cites == never, appears, cites)


def _by_time(node: IntArray, t: IntArray, label: IntArray) -> NodeLabels:
    order = np.argsort(t, kind="stable")
    return NodeLabels(node=node[order], t=t[order], label=label[order])
