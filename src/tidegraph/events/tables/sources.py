"""Sources of tables: found for a path, a pattern, an address or an object.

Every source yields Arrow batches of the columns asked for and can be read repeatedly.
"""

from __future__ import annotations

import atexit
import functools
import glob
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.tables.advice import TableError
from tidegraph.events.tables.source import (
    STANDARD_INPUT,
    Source,
    opened,
    read_as,
    read_head,
    shown,
)
from tidegraph.events.tables.text import TextSource, text_source
from tidegraph.events.tables.whole import (
    Lines,
    database_table,
    is_address,
    json_table,
    workbook_table,
)

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 18
# The kind of a file by its first bytes, or by its name if these say nothing.
_MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow",
    b"PK\x03\x04": "workbook",
    b"\xd0\xcf\x11\xe0": "workbook",
    b"SQLite format 3\x00": "sqlite",
}
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".jsonl": "JSON", ".ndjson": "JSON"}
_SUFFIXES |= {".arrow": "Arrow", ".feather": "Arrow", ".ipc": "Arrow", ".json": "JSON"}


@dataclass
class ArrowSource(Source):
    """A table in memory, an Arrow file (mapped into memory) or a Parquet file (read in pieces)."""

    table: pa.Table = None
    parquet: Path | None = None
    schema: pa.Schema = None

    def batches(self, wanted: Sequence[str], on_bad: str) -> Iterator[pa.RecordBatch]:
        if self.parquet is None:
            yield from self.table.select(list(wanted)).to_batches(max_chunksize=BATCH_ROWS)
            return
        import pyarrow.parquet as pq

        # Row groups may be large: without pre-buffering only the current pages are in memory.
        with (
            read_as("parquet", self.name),
            pq.ParquetFile(self.parquet, pre_buffer=False, buffer_size=1 << 20) as file,
        ):
            yield from file.iter_batches(BATCH_ROWS, columns=list(wanted), use_threads=False)

    def kind(self, column: str) -> pa.DataType:
        return self.schema.field(column).type


@dataclass
class JsonSource(ArrowSource):
    """Lines of JSON, not all of which can be read, or not in the same way."""

    lines: Lines = field(default_factory=lambda: Lines([]))
    ragged_because: str = "not an object of JSON"

    def batches(self, wanted: Sequence[str], on_bad: str) -> Iterator[pa.RecordBatch]:
        if self.lines.bad and on_bad == "error":
            number, text = self.lines.first_bad
            raise TableError(
                f"{self.name}: line {number} is {self.ragged_because}: {text[:100]!r}",
                "fix the file, or use {drop}",
                drop=[{"on_bad": "drop"}],
            )
        self.ragged = self.lines.bad
        yield from super().batches(wanted, on_bad)

    def place(self, row: int) -> str:
        return f"line {self.lines.rows[row]}"


@dataclass
class SeveralSources(Source):
    """Tables with the same columns, read one after the other."""

    parts: list[Source] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)  # rows up to the end of each part read so far

    def batches(self, wanted: Sequence[str], on_bad: str) -> Iterator[pa.RecordBatch]:
        self._ends, self.ragged, self.comments = [], 0, 0
        for part in self.parts:
            self._ends.append(self._ends[-1] if self._ends else 0)
            for batch in part.batches(wanted, on_bad):
                self._ends[-1] += batch.num_rows
                yield batch.select(list(wanted))
            self.ragged += part.ragged
            self.ragged_because = part.ragged_because if part.ragged else self.ragged_because
            self.comments += part.comments

    def kind(self, column: str) -> pa.DataType:
        import pyarrow as pa

        kinds = {part.kind(column): part.name for part in self.parts}
        if len(kinds) > 1 and not self.is_number(column):
            found = ", ".join(f"{kind} in {name}" for kind, name in kinds.items())
            raise DataError(f"column {column!r} has several types: {found}; give tables alike")
        return next(iter(kinds)) if len(kinds) == 1 else pa.float64()

    def is_number(self, column: str) -> bool:
        return all(part.is_number(column) for part in self.parts)

    def place(self, row: int) -> str:
        number = next(k for k, end in enumerate(self._ends) if row < end)
        part = self.parts[number]
        return f"{part.name}, {part.place(row - ([0, *self._ends][number]))}"


def is_there(source: Any) -> bool:
    """Whether there is something to read under a path, a pattern, an address or `-`."""
    return source == "-" or is_address(source) or bool(_paths(source))


def _paths(source: Any) -> list[Path]:
    """Return the file or directory of this path, or all files of this pattern, by name."""
    if Path(source).exists():
        return [Path(source)]
    return [Path(name) for name in sorted(glob.glob(os.fspath(source), recursive=True))]


def located(source: Any) -> Any:
    """Return a path, pattern or `-` as the path of a file, or several; all else as it is."""
    if source == "-":
        return _spooled(sys.stdin)
    if not isinstance(source, (str, os.PathLike)) or is_address(source):
        return source
    paths = _paths(source)
    if not paths:
        raise DataError(f"there is no file {source}; give the path of a table")
    return paths[0] if len(paths) == 1 else paths


@functools.lru_cache(1)
def _spooled(stream: Any) -> Path:
    """Return a file with what standard input holds, which then can be read repeatedly."""
    if stream.isatty():
        raise DataError("standard input is a terminal; pipe a table into the command")
    directory = Path(tempfile.mkdtemp(prefix="tidegraph-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with (directory / STANDARD_INPUT).open("wb") as file:
        shutil.copyfileobj(stream.buffer, file)
    return directory / STANDARD_INPUT


def kind_of(path: Path, head: bytes) -> str:
    """Return what a file is, from its first bytes, decompressed, or else from its name."""
    known = (kind for magic, kind in _MAGIC.items() if head.startswith(magic))
    kind = next(known, None) or ("duckdb" if head[8:12] == b"DUCK" else None)
    if kind is None and re.match(rb"(\xef\xbb\xbf)?\s*(\{\s*[\"}]|\[\s*\{)", head):
        kind = "JSON"
    return kind or _SUFFIXES.get(path.suffix.lower(), "text")


def _file_source(
    path: Path, header: bool | None, delimiter: str | None, decimal: str | None, query: str | None
) -> Source:
    head, name = read_head(path), shown(path)
    kind = kind_of(path, head)
    if query is not None and kind not in ("workbook", "sqlite", "duckdb"):
        raise ParameterError(
            f"query is {query!r}, but {name} is {kind}; it chooses rows of a database, or a sheet"
        )
    if kind == "parquet":
        return _parquet(path)
    if kind == "Arrow":
        return _in_memory(_ipc(path), name)
    if kind == "JSON":
        with read_as("JSON", name):
            table, lines = json_table(name, functools.partial(opened, path), head)
        if lines is None:
            return _in_memory(table, name)
        return JsonSource(name, table.column_names, table=table, schema=table.schema, lines=lines)
    if kind == "workbook":
        table, sheet = workbook_table(path, query)
        return _in_memory(table, name, f"the sheet is {sheet!r}")
    if kind in ("sqlite", "duckdb"):
        return _in_memory(database_table(f"{kind}:///{quote(str(path))}", query), name)
    return text_source(path, header=header, delimiter=delimiter, decimal=decimal, head=head)


def _several(sources: Sequence[Any], *options: Any) -> Source:
    parts = [source_of(source, *options) for source in sources]
    if not parts:
        raise DataError("the list of tables is empty; give one path or more")
    first = parts[0]
    for part in parts[1:]:
        if set(part.columns) != set(first.columns) or part.untyped != first.untyped:
            raise DataError(
                f"{part.name} has columns {', '.join(part.columns)}, but {first.name} has"
                f" {', '.join(first.columns)}; give tables with the same columns"
            )
    return SeveralSources(
        f"{first.name} and {len(parts) - 1} more" if len(parts) > 1 else first.name,
        first.columns,
        headed=first.headed,
        untyped=first.untyped,
        decimal="," if any(part.decimal == "," for part in parts) else ".",
        remarks=(f"read from {len(parts)} tables, one after the other", *first.remarks),
        parts=parts,
    )


def source_of(
    source: Any,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    query: str | None = None,
) -> Source:
    """Return the source of anything `read_table` accepts.

    header, delimiter and decimal apply to text, query to databases and workbooks.
    """
    import pyarrow as pa

    options = header, delimiter, decimal, query
    if isinstance(source, TextSource):
        found = source.headed, source.delimiter, source.decimal, None
        if any(asked not in (None, known) for asked, known in zip(options, found, strict=True)):
            return _file_source(source.path, *options)
    if isinstance(source, Source):
        return source
    if is_address(source):
        return _in_memory(database_table(source, query), source)
    if isinstance(source, (str, os.PathLike)):
        source = located(source)
    if isinstance(source, Path):
        if not source.is_file():
            raise DataError(f"{source} is a directory; give the path of a table")
        return _file_source(source, *options)
    if isinstance(source, (list, tuple)):
        return _several(source, *options)
    kind = type(source).__name__
    try:
        if isinstance(source, np.ndarray):
            if source.dtype.names is None:
                raise DataError(
                    f"an array of shape {source.shape} has no columns; give a structured array or"
                    " a dict of vectors"
                )
            source = {name: source[name] for name in source.dtype.names}
        if isinstance(source, Mapping):
            return _in_memory(pa.table({k: _vector(v, k) for k, v in source.items()}), "the table")
        if isinstance(source, (pa.Table, pa.RecordBatch)):
            return _in_memory(pa.table(source), "the table")
        if hasattr(source, "__arrow_c_stream__"):
            table = pa.RecordBatchReader.from_stream(source).read_all()
            return _in_memory(table, f"the {kind}")
        if hasattr(source, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            return _in_memory(from_dataframe(source), f"the {kind}")
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"the {kind} cannot be read as a table: {error}") from error
    raise DataError(
        f"cannot read a table from {kind}; give a path or several, an Arrow table, a data frame, or"
        " a dict of vectors"
    )


def _vector(values: Any, name: str) -> Any:
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"column {name!r} is not a vector: {error}") from None
    if array.ndim != 1:
        raise DataError(f"column {name!r} has shape {array.shape}; give vectors, one cell per row")
    # A list of strings and Nones must not become an object array, which would lose the Nones.
    return pa.array(values if array.dtype.kind in "OU" else array)


def _parquet(path: Path) -> ArrowSource:
    import pyarrow.parquet as pq

    with read_as("parquet", path):
        schema = pq.read_schema(path)
    return ArrowSource(str(path), list(schema.names), parquet=path, schema=schema)


def _ipc(path: Path) -> pa.Table:
    import pyarrow as pa

    with read_as("Arrow", path):
        mapped = pa.memory_map(str(path))
        try:
            return pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            return pa.ipc.open_stream(mapped).read_all()


def _in_memory(table: pa.Table, name: str, *remarks: str) -> ArrowSource:
    columns = list(table.column_names)
    return ArrowSource(name, columns, table=table, schema=table.schema, remarks=remarks)
