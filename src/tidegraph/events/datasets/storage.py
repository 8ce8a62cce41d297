"""A data set as a directory, written in pieces, for streams larger than memory.

dataset.json           title, unit, counts, and its generator's settings; written last
edges.parquet          src, dst, t, in time order
labels.parquet         node, t, label: the label of a node from t on, in time order
node_features.npy      [nodes, columns], if there are features
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.durable import replace_file, sync
from tidegraph.core.errors import DataError
from tidegraph.core.progress import Progress, silent
from tidegraph.events.columns import frozen
from tidegraph.events.stream import EventStream, NodeLabels

if TYPE_CHECKING:
    import pyarrow

MakeRows: TypeAlias = Callable[[int, int], dict[str, NDArray[Any]]]  # first, last
MakeFeatures: TypeAlias = Callable[[int, int, int], NDArray[Any]]  # first, last, columns

DESCRIPTION = "dataset.json"
EDGES, LABELS, NODE_FEATURES = "edges.parquet", "labels.parquet", "node_features.npy"
ROW_GROUP = 1 << 20
_CHUNK = 1 << 16  # rows made at once, few enough for the processor's cache
_WORKERS = 2  # row groups made in parallel
_ASCENDING = ("src", "node", "t")  # columns worth storing as differences


def write_directory(
    path: str | os.PathLike[str],
    tables: Mapping[str, tuple[int, MakeRows, dict[str, str]]],
    make_features: MakeFeatures,
    kind: str,
    description: dict[str, Any],
    progress: Progress | None,
) -> Path:
    """Write a data set into a new or empty directory and return the path.

    tables: the rows of each file, what makes them, and the types of their columns. Threads call
        `make(first, last)` in any order.
    kind: the type of the features, as many as the description says.
    """
    directory = Path(path)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise DataError(f"{directory} exists already; give a new or an empty directory")
    directory.mkdir(parents=True, exist_ok=True)
    for name, (rows, make, types) in tables.items():
        _write_table(directory / name, rows, make, types, progress or silent)
    if description["features"]:
        write_features(directory, make_features, kind, description, progress)
    describe(directory, description)
    return directory


def describe(directory: Path, description: dict[str, Any]) -> None:
    """Write the description of a data set, which declares it complete."""
    text = json.dumps(description, indent=2) + "\n"
    replace_file(directory / DESCRIPTION, text, only_writer=True)


def _write_table(
    path: Path, rows: int, make: MakeRows, types: dict[str, str], report: Progress
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(column, pa.type_for_alias(kind)) for column, kind in types.items()])

    def group(first: int) -> pyarrow.Table:
        last = min(first + ROW_GROUP, rows)
        arrays = {column: np.empty(last - first, dtype=kind) for column, kind in types.items()}
        for begin in range(first, last, _CHUNK):
            end = min(begin + _CHUNK, last)
            for column, values in make(begin, end).items():
                arrays[column][begin - first : end - first] = values
        return pa.table(arrays, schema=schema)

    encoding = {
        column: "DELTA_BINARY_PACKED" if column in _ASCENDING else "PLAIN" for column in types
    }
    options = {"compression": "zstd", "use_dictionary": False, "column_encoding": encoding}
    done = 0
    with pq.ParquetWriter(path, schema, **options) as writer:
        for table in _ahead(group, range(0, rows, ROW_GROUP)):
            writer.write_table(table, row_group_size=ROW_GROUP)
            done += len(table)
            report(done, rows, f"rows of {path.name}")
    with path.open("rb") as file:
        sync(file)  # before the description, which declares it complete


def write_features(
    directory: Path,
    make: MakeFeatures,
    kind: str,
    description: dict[str, Any],
    progress: Progress | None,
) -> None:
    """Write the rows that `make(first, last, columns)` returns as one array, atomically.

    Written rather than mapped, so that a full disk raises an error instead of killing the process.
    """
    rows, columns = description["nodes"], description["features"]
    piece = max(1, _CHUNK // columns)
    header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (rows, columns)}
    report = progress or silent

    def write(file: Any) -> None:
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, rows, piece):
            last = min(first + piece, rows)
            file.write(np.ascontiguousarray(make(first, last, columns), dtype=kind).data)
            report(last, rows, f"rows of {NODE_FEATURES}")

    replace_file(directory / NODE_FEATURES, write, only_writer=True)


def _ahead(make: Callable[[int], pyarrow.Table], firsts: range) -> Iterator[pyarrow.Table]:
    """Yield what `make` returns for each, in order, while the next ones are being made."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        waiting = deque(pool.submit(make, first) for first in firsts[:_WORKERS])
        for first in firsts[_WORKERS:]:
            waiting.append(pool.submit(make, first))
            yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def open_directory(path: Path) -> EventStream:
    """Return the stream in a directory; features that are float32 already stay on disk."""
    try:
        description: dict[str, Any] = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
        nodes, title, unit, events = (
            description[name] for name in ("nodes", "title", "unit", "events")
        )
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{path / DESCRIPTION} does not describe a data set ({error!r}); generate it again"
        ) from error
    src, dst, t = _read(path / EDGES, ("src", "dst", "t"))
    if len(t) != events:
        raise DataError(
            f"{path / EDGES} holds {len(t):,} rows, but {DESCRIPTION} says {events:,};"
            " generate it again"
        )
    node, known, label = _read(path / LABELS, ("node", "t", "label"))
    features: NDArray[Any] | None = None
    if (path / NODE_FEATURES).is_file():
        features = np.load(path / NODE_FEATURES, mmap_mode="r")
        if features.dtype != np.float32:
            features = features.astype(np.float32)
    # The generator wrote valid columns, and reading all features to check them may take minutes.
    empty = EventStream([], [], [], nodes=nodes, unit=unit, title=title)
    return empty._with(
        src=src,
        dst=dst,
        t=t,
        node_features=features,
        node_labels=NodeLabels(node=node, t=known, label=label),
    )


def _read(path: Path, columns: tuple[str, ...]) -> Iterator[NDArray[np.int64]]:
    import pyarrow
    import pyarrow.parquet as pq

    try:
        # One column at a time, because int64 takes more memory than the narrow types of the file.
        for column in columns:
            values = pq.read_table(path, columns=[column])[column].to_numpy()
            yield frozen(values.astype(np.int64), own=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}; generate it again") from error
