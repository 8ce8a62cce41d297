"""Temporal graphs by name or from a file, as columns sorted by time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.errors import DataError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["NAMES", "Events", "data_directory", "load"]

_SHIPPED = "nyc-flights"
# name -> (title, unit of time)
_KNOWN = {
    _SHIPPED: ("Departures from New York's airports in 2013, plane to destination", "s"),
    "wikipedia": ("Edits of Wikipedia pages, user to page", "s"),
    "uci": ("Messages between students (CollegeMsg)", "s"),
    "bitcoin-otc": ("Trust ratings on Bitcoin OTC", "s"),
    "bitcoin-alpha": ("Trust ratings on Bitcoin Alpha", "s"),
    "flights-3m": ("Flights between US airports in 2001, minutes since 1 January", "min"),
    "pubmed-temporal": ("Citations between papers on diabetes, by year", "year"),
}
NAMES = tuple(_KNOWN)
_SUFFIXES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True, eq=False, slots=True)
class Events:
    """Edges in the order in which they happened, between nodes 0 .. nodes-1."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    t: NDArray[np.int64]  # non-decreasing
    weight: NDArray[np.float64] | None  # None: every event counts 1
    nodes: int
    names: tuple[str, ...] | None  # the node ids of the file, where they were not 0 .. nodes-1
    title: str
    unit: str  # of t: "s", "us", "min", "year"

    def __len__(self) -> int:
        return len(self.t)


def data_directory() -> Path:
    """Where data sets that are not shipped are looked for: $TIDEGRAPH_DATA or ../shared/data."""
    return Path(os.environ.get("TIDEGRAPH_DATA") or "../shared/data")


def load(name_or_path: str | os.PathLike[str]) -> Events:
    """The events of a data set in `NAMES`, or of a CSV or Parquet file.

    A file has columns `src`, `dst`, `t` (or `time`) and may have `weight`; its rows are sorted by
    time. Node ids may be integers or names; those that are not exactly 0 .. n-1 are renumbered and
    kept in `names` (sources first, so that in bipartite data the second side follows the first).
    Times with fractions become whole microseconds. Of the named data sets no weight is read:
    Bitcoin's are ratings, which may be negative.

    >>> load("nyc-flights").names[0]
    'N14228'
    """
    name = os.fspath(name_or_path)
    if name in _KNOWN:
        path = _known_path(name)
        title, unit = _KNOWN[name]
        return _events(_read(path), path, title=title, unit=unit, weighted=False)
    path = Path(name)
    if not path.is_file():
        raise DataError(
            f"no data set and no file is called {name!r}; give one of {', '.join(NAMES)}, "
            f"or the path of a {', '.join(_SUFFIXES)} file"
        )
    if not path.name.endswith(_SUFFIXES):
        raise DataError(f"{path} is not a {', '.join(_SUFFIXES)} file; convert it to one of these")
    return _events(_read(path), path, title=path.name, unit="s", weighted=True)


def _known_path(name: str) -> Path:
    if name == _SHIPPED:
        return Path(__file__).parent / "data" / f"{name}.parquet"
    path = data_directory() / f"{name}.csv.gz"
    if not path.is_file():
        raise DataError(
            f"data set {name!r} was looked for at {path.absolute()} and is not there; set "
            f"TIDEGRAPH_DATA to the directory that holds {path.name} (header src,dst,time)"
        )
    return path


def _read(path: Path) -> pyarrow.Table:
    import pyarrow  # here: it takes longer to import than all else together
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.read_table(path)
        return pyarrow.csv.read_csv(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from error


def _events(table: pyarrow.Table, path: Path, *, title: str, unit: str, weighted: bool) -> Events:
    time = "t" if "t" in table.column_names else "time"
    for column in ("src", "dst", time):
        if column not in table.column_names:
            wanted = "t (or time)" if column == time else column
            raise DataError(
                f"{path} has columns {', '.join(table.column_names)}; "
                "src, dst and t (or time) are needed: rename or add " + wanted
            )
    if len(table) == 0:
        raise DataError(f"{path} holds no events; at least one row is needed")
    t, fractions = _times(_complete(table, time, path), path)
    src, dst, nodes, names = _ids(
        _complete(table, "src", path), _complete(table, "dst", path), path
    )
    weight = None
    if weighted and "weight" in table.column_names:
        weight = _weights(_complete(table, "weight", path), path)
    return Events(src, dst, t, weight, nodes, names, title, "us" if fractions else unit)


def _complete(table: pyarrow.Table, name: str, path: Path) -> pyarrow.Array:
    """The column as one array, every row filled."""
    column = table[name].combine_chunks()
    if column.null_count:
        row = int(np.argmax(column.is_null()))
        raise DataError(
            f"{path} has no {name} in row {row} (counted from 0) and {column.null_count - 1} more; "
            "every event needs one: fill or drop these rows"
        )
    return column


def _numbers(column: pyarrow.Array, what: str, path: Path) -> NDArray[Any]:
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind not in "iuf":
        raise DataError(f"{path}: {what} has type {column.type}; integers or floats are accepted")
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{path}: {what} is {numbers[row]} in row {row}; finite numbers are accepted"
        )
    return numbers


def _times(column: pyarrow.Array, path: Path) -> tuple[NDArray[np.int64], bool]:
    """The times as int64, and whether they are in microseconds because they had fractions."""
    given = _numbers(column, "t", path)
    fractions = bool(given.dtype.kind == "f" and (given != np.rint(given)).any())
    scaled = np.rint(given * 1e6) if fractions else given
    if scaled.dtype != np.int64 and (np.abs(scaled.astype(np.float64)) >= 2.0**63).any():
        raise DataError(
            f"{path}: t reaches {np.abs(given).max():g}, beyond 64-bit integers; use a coarser unit"
        )
    t = scaled.astype(np.int64)
    back = np.flatnonzero(t[1:] < t[:-1])
    if len(back):
        row = int(back[0]) + 1
        raise DataError(
            f"{path} is not in time order: t is {given[row]} in row {row} (counted from 0) after "
            f"{given[row - 1]}; sort the file by t"
        )
    return t, fractions


def _weights(column: pyarrow.Array, path: Path) -> NDArray[np.float64]:
    weight = _numbers(column, "weight", path).astype(np.float64)
    bad = weight <= 0
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{path}: weight is {weight[row]:g} in row {row} (counted from 0); weights are > 0: "
            "if the column means something else, rename it and every event counts 1"
        )
    return weight


def _ids(
    src: pyarrow.Array, dst: pyarrow.Array, path: Path
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, tuple[str, ...] | None]:
    """Both columns over one range 0 .. n-1, n, and the original ids where they were others."""
    import pyarrow as pa

    if pa.types.is_integer(src.type) and pa.types.is_integer(dst.type):
        ids = np.concatenate([src.to_numpy(), dst.to_numpy()]).astype(np.int64)
        if ids.min() >= 0 and ids.max() < len(ids):
            nodes = int(ids.max()) + 1
            if np.bincount(ids, minlength=nodes).all():
                return ids[: len(src)], ids[len(src) :], nodes, None
    for column in (src, dst):
        if pa.types.is_floating(column.type):
            raise DataError(
                f"{path}: node ids have type {column.type}; integers or names are accepted"
            )
    text = [column.cast(pa.string()) for column in (src, dst)]
    # Numbers follow first appearance, all sources before the destinations that are never a source.
    numbered = pa.concat_arrays(text).dictionary_encode()
    ids = numbered.indices.to_numpy().astype(np.int64)
    names = tuple(numbered.dictionary.to_pylist())
    return ids[: len(src)], ids[len(src) :], len(names), names
