"""A data set as a directory, written in pieces, for streams larger than memory.

dataset.json           title, unit, counts, and its generator's settings; written last
edges.parquet          src, dst, t, in time order
labels.parquet         node, t, label: the label of a node from t on, in time order
node_features.npy      [nodes, columns], if there are features
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.durable import replace_file, sync
from tidegraph.core.errors import DataError
from tidegraph.core.progress import Progress
from tidegraph.events.columns import frozen
from tidegraph.events.stream import EventStream, NodeLabels

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DESCRIPTION", "EDGES", "LABELS", "NODE_FEATURES", "Target", "open_directory"]

DESCRIPTION = "dataset.json"
EDGES, LABELS, NODE_FEATURES = "edges.parquet", "labels.parquet", "node_features.npy"
ROW_GROUP = 1 << 20
_CHUNK = 1 << 16  # rows made at once, few enough for the processor's cache
_WORKERS = 2  # row groups made in parallel
_ASCENDING = ("src", "node", "t")  # columns worth storing as differences


class Target:
    """A directory into which a data set is written; its description comes last."""

    def __init__(self, path: str | os.PathLike[str], progress: Progress | None = None) -> None:
        self.path = Path(path)
        self._progress = progress
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise DataError(f"{self.path} exists already; give a new or an empty directory")
        self.path.mkdir(parents=True, exist_ok=True)

    def columns(
        self,
        name: str,
        rows: int,
        make: Callable[[int, int], dict[str, NDArray[Any]]],
        types: dict[str, str],
    ) -> None:
        """Write the rows that `make(first, last)` returns; threads call it in any order."""
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

        with pq.ParquetWriter(
            self.path / name,
            schema,
            compression="zstd",
            use_dictionary=False,
            column_encoding={
                column: "DELTA_BINARY_PACKED" if column in _ASCENDING else "PLAIN"
                for column in types
            },
        ) as writer:
            for first, table in _ahead(group, range(0, rows, ROW_GROUP)):
                writer.write_table(table, row_group_size=ROW_GROUP)
                self._report(first + len(table), rows, name)
        with (self.path / name).open("rb") as file:
            sync(file)  # before the description, which declares it complete

    def matrix(
        self,
        name: str,
        rows: int,
        make: Callable[[int, int], NDArray[Any]],
        columns: int,
        kind: str,
    ) -> None:
        """Write the rows that `make(first, last)` returns as one array."""
        write_matrix(
            self.path / name,
            rows,
            make,
            columns,
            kind,
            lambda done: self._report(done, rows, name),
        )

    def _report(self, done: int, total: int, name: str) -> None:
        if self._progress is not None:
            self._progress(done, total, f"rows of {name}")

    def close(self, description: dict[str, Any]) -> Path:
        """Write the description, which completes the data set, and return its path."""
        describe(self.path, description)
        return self.path


def describe(path: Path, description: dict[str, Any]) -> None:
    """Write the description of the data set in a directory, replacing any other."""
    replace_file(path / DESCRIPTION, json.dumps(description, indent=2) + "\n", only_writer=True)


def write_matrix(
    path: Path,
    rows: int,
    make: Callable[[int, int], NDArray[Any]],
    columns: int,
    kind: str,
    report: Callable[[int], None],
) -> None:
    """Write the rows that `make(first, last)` returns as one array, atomically.

    Written rather than mapped, so that a full disk raises an error instead of killing the process.
    """
    piece = max(1, _CHUNK // columns)
    header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (rows, columns)}

    def write(file: Any) -> None:
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, rows, piece):
            last = min(first + piece, rows)
            file.write(np.ascontiguousarray(make(first, last), dtype=kind).data)
            report(last)

    replace_file(path, write, only_writer=True)


def _ahead(
    make: Callable[[int], pyarrow.Table], firsts: range
) -> Iterator[tuple[int, pyarrow.Table]]:
    """Yield what `make` returns for each, in order, while the next ones are being made."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        waiting = [(first, pool.submit(make, first)) for first in firsts[:_WORKERS]]
        for following in [*firsts[_WORKERS:], *[None] * len(waiting)]:
            first, future = waiting.pop(0)
            if following is not None:
                waiting.append((following, pool.submit(make, following)))
            yield first, future.result()


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
