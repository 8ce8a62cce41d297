"""Sources of tables: text in any dialect, Parquet, Arrow, JSON, workbooks, databases, objects.

Every source yields Arrow batches of the columns asked for and can be read repeatedly.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import csv
import functools
import glob
import io
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
from tidegraph.events.tables.cells import (
    COMMA,
    NUMBER,
    is_date,
    is_text,
    plain_column,
    with_point,
)
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
_BLOCK_BYTES = 1 << 22
_HEAD_BYTES = 1 << 16
_STDIN = "standard input"
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
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_COMPRESSIONS |= {b"\x04\x22\x4d\x18": "lz4"}


@contextlib.contextmanager
def _read_as(kind: str, name: object) -> Iterator[None]:
    """Turn errors of reading into DataError."""
    import pyarrow as pa

    try:
        yield
    except MemoryError:  # Arrow derives its own from both
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name} cannot be read as {kind}: {error}") from error


@dataclass
class Source:
    """A table that can be read repeatedly, batch by batch, a few columns at a time."""

    name: str
    columns: list[str]
    headed: bool = True  # whether the names of the columns come from the table
    untyped: bool = False  # whether every cell is text
    ragged: int = 0  # rows skipped because they are none
    ragged_because: str = "wrong number of cells"
    comments: int = 0  # lines skipped as comments
    decimal: str = "."  # the mark before the fraction of a number in text
    remarks: tuple[str, ...] = ()  # on what was read of the source

    def batches(self, wanted: Sequence[str], on_bad: str) -> Iterator[pa.RecordBatch]:
        """Yield these columns from the beginning; `on_bad` decides about ragged rows."""
        raise NotImplementedError

    def kind(self, column: str) -> pa.DataType:
        """Return the type of a column."""
        raise NotImplementedError

    def is_number(self, column: str) -> bool:
        """Whether a column seems to hold numbers, without reading all of it."""
        import pyarrow as pa

        kind = self.kind(column)
        return bool(
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        )

    def is_text(self, column: str) -> bool:
        """Whether the cells of a column are text, of numbers or of words."""
        import pyarrow as pa

        return is_text(plain_column(pa.array([], self.kind(column))))

    def place(self, row: int) -> str:
        """Return where a person finds this row."""
        return f"row {row} (counted from 0)"


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
            _read_as("parquet", self.name),
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


class _Cleaned(io.RawIOBase):
    """A text stream without blank lines and comments; comments are counted.

    With white space as delimiter a comment may occur anywhere, and the output has single tabs as
    delimiters. In other tables a comment can only precede the first row: further down, "#tag" is a
    name.
    """

    def __init__(self, stream: Any, whitespace: bool) -> None:
        self.comments = 0
        self._stream = stream
        self._whitespace = whitespace
        self._beginning = self._heading = True
        self._rest = b""  # an unfinished line
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            block = self._stream.read(_BLOCK_BYTES)
            if self._beginning:
                block, self._beginning = block.removeprefix(codecs.BOM_UTF8), False
            text = self._rest + block
            cut = len(text) if not block else text.rfind(b"\n") + 1
            self._ready, self._rest = self._clean(text[:cut]), text[cut:]
            if not block:
                break
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _clean(self, text: bytes) -> bytes:
        if self._whitespace:
            text, comments = re.subn(rb"(?m)^[ \t]*[#%][^\n]*(\n|\Z)", b"", text)
            self.comments += comments
            text = re.sub(rb"(?m)^[ \t\r]*\n|^[ \t]+|[ \t\r]+$", b"", text)
            return re.sub(rb"[ \t]+", b"\t", text)
        if self._heading:
            head = re.match(rb"([ \t\r]*([#%][^\n]*)?\n)*", text)
            assert head is not None  # the pattern also matches the empty string
            self.comments += len(re.findall(rb"(?m)^[ \t]*[#%]", head[0]))
            text = text[head.end() :]
            self._heading = not text
        return text


@dataclass
class TextSource(Source):
    """A text file, perhaps compressed, delimited by commas, tabs, semicolons or white space.

    It can stand for its path.
    """

    path: Path = Path()
    delimiter: str = ","  # " " is any white space
    clean: bool = False
    first: tuple[str, ...] = ()  # the cells of the first row; none: there is only a header
    comment: str = ""  # the last line before the first row, if it is a comment

    def __fspath__(self) -> str:
        return str(self.path)

    def first_cell(self, column: str) -> str:
        """Return the cell of the first row, or an empty string if the row is ragged."""
        regular = len(self.first) == len(self.columns)
        return self.first[self.columns.index(column)] if regular else ""

    def kind(self, column: str) -> pa.DataType:
        import pyarrow as pa

        return pa.string()

    def is_number(self, column: str) -> bool:
        return re.match(NUMBER, with_point(self.first_cell(column), self.decimal)) is not None

    def place(self, row: int) -> str:
        ahead = row + int(self.headed)
        heading = True
        with _opened(self.path) as stream:
            lines = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
            for number, line in enumerate(lines, start=1):
                if not line.strip() or (
                    (heading or self.delimiter == " ") and line.lstrip()[0] in "#%"
                ):
                    continue
                heading = False
                if ahead == 0:
                    return f"line {number}"
                ahead -= 1
        return f"row {row} (counted from 0)"

    def batches(self, wanted: Sequence[str], on_bad: str) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv

        self.ragged = self.comments = 0
        ragged: list[Any] = []  # the first one

        def skip(row: Any) -> str:
            if not ragged:
                ragged.append(row)
            self.ragged += max(1, row.text.count("\n"))  # of lines, where a quote was not closed
            return "skip"

        def check() -> None:
            if ragged and on_bad == "error":
                row = ragged[0]
                line = "a row" if self.clean or row.number is None else f"line {row.number}"
                raise TableError(
                    f"{self.name}: {line} has {row.actual_columns} cells where"
                    f" {row.expected_columns} are expected: {row.text[:100]!r}",
                    "fix the file, or use {drop}",
                    drop=[{"on_bad": "drop"}],
                )

        try:
            with _opened(self.path) as stream:
                cleaned = _Cleaned(stream, self.delimiter == " ")
                text = pa.PythonFile(cleaned, mode="r") if self.clean else stream
                reader = arrow_csv.open_csv(
                    text,
                    arrow_csv.ReadOptions(
                        use_threads=False,
                        block_size=_BLOCK_BYTES,
                        column_names=self.columns,
                        skip_rows=int(self.headed),
                    ),
                    arrow_csv.ParseOptions(
                        delimiter="\t" if self.delimiter == " " else self.delimiter,
                        # With white space as delimiter a quotation mark is an ordinary character.
                        quote_char=False if self.delimiter == " " else '"',
                        invalid_row_handler=skip,
                    ),
                    arrow_csv.ConvertOptions(
                        include_columns=list(wanted),
                        column_types={name: pa.string() for name in self.columns},
                        null_values=[""],
                        strings_can_be_null=True,
                    ),
                )
                for batch in reader:
                    check()
                    yield batch
                check()
                self.comments = cleaned.comments
        except MemoryError:  # Arrow derives its own from both
            raise
        except (pa.ArrowException, OSError) as error:
            check()
            _check_encoding(self.path)
            if not self.first:
                return  # Arrow takes a file without rows for an error
            raise DataError(f"{self.name} cannot be read as text: {error}") from error


def _opened(path: Path) -> Any:
    import pyarrow as pa

    with path.open("rb") as file:
        begin = file.read(4)
    known = (name for magic, name in _COMPRESSIONS.items() if begin.startswith(magic))
    return pa.input_stream(str(path), compression=next(known, None))


def _check_encoding(path: Path) -> None:
    """Raise DataError, with the line, if the file is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, first = 1, b""
    with _opened(path) as stream:
        while True:
            block = stream.read(_BLOCK_BYTES)
            first = first or block[:2]
            kept = decoder.getstate()[0]  # the start of a character at the end of the last block
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                text = kept + block
                line += text[: error.start].count(b"\n")
                encoding = "utf-16" if first in (b"\xff\xfe", b"\xfe\xff") else "latin1"
                raise DataError(
                    f"{path} is not UTF-8: line {line} holds the byte 0x{text[error.start]:02x};"
                    f" convert it, perhaps with: iconv -f {encoding} -t utf-8 {path.name} >"
                    f" utf8-{path.name}"
                ) from None
            if not block:
                return
            line += block.count(b"\n")


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed: enough to recognise it."""
    with _read_as("text", path), _opened(path) as stream:
        return stream.read(_HEAD_BYTES)  # type: ignore[no-any-return]


def text_source(
    path: Path,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    head: bytes | None = None,
) -> TextSource:
    """Return the source of a text file, its dialect detected unless given.

    Programs that write decimals with a comma delimit cells by semicolons.

    head: what `read_head` returned for it, if the caller has it already.
    """
    name = _shown(path)
    text = (read_head(path) if head is None else head).decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    words = [k for k, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"]
    if not words:
        raise DataError(f"{name} holds no events; at least one row is needed")
    rows = [lines[k] for k in words]
    if "\ufffd" in rows[0]:
        _check_encoding(path)
    if delimiter is None:
        # An event has three cells or more: a single tab may occur among spaces.
        delimiter = next((mark for mark in ",\t;" if rows[0].count(mark) > 1), None)
        delimiter = delimiter or ("," if "," in rows[0] else " ")
    if len(delimiter) != 1:
        raise ParameterError(f"delimiter is {delimiter!r}; give one character, ' ' for white space")
    cells = _cells(rows[0], delimiter)
    if decimal is None:
        seen = {cell for row in rows[:-1] or rows for cell in _cells(row, delimiter)}
        comma = delimiter == ";" and any(re.match(COMMA, cell) for cell in seen)
        point = any(re.match(NUMBER, cell) and "." in cell for cell in seen)
        decimal = "," if comma and not point else "."
    elif decimal not in (".", ",") or decimal == delimiter:
        raise ParameterError(
            f"decimal is {decimal!r} in a table delimited by {delimiter!r}; give '.' or ','"
        )
    if header is None:
        header = not any(
            re.match(NUMBER, with_point(cell, decimal)) or is_date(cell) for cell in cells
        )
    first = next((_cells(row, delimiter) for row in rows[int(header) :]), [])
    names = [cell if header and cell else f"column {place}" for place, cell in enumerate(cells)]
    twice = {column for column in names if names.count(column) > 1}
    if twice:
        raise DataError(f"{name} has two columns called {min(twice)!r}; rename one")
    return TextSource(
        name,
        names,
        headed=header,
        untyped=True,
        decimal=decimal,
        remarks=("decimals are written with a comma",) if decimal == "," else (),
        path=path,
        delimiter=delimiter,
        clean=delimiter == " " or words[0] > 0,
        first=tuple(first),
        comment=lines[words[0] - 1] if words[0] else "",
    )


def _cells(line: str, delimiter: str) -> list[str]:
    cells = line.split() if delimiter == " " else next(csv.reader([line], delimiter=delimiter))
    return [cell.strip() for cell in cells]


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
    with (directory / _STDIN).open("wb") as file:
        shutil.copyfileobj(stream.buffer, file)
    return directory / _STDIN


def _shown(path: Path) -> str:
    return _STDIN if path.name == _STDIN else str(path)


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
    head, name = read_head(path), _shown(path)
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
        with _read_as("JSON", name):
            table, lines = json_table(name, functools.partial(_opened, path), head)
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

    with _read_as("parquet", path):
        schema = pq.read_schema(path)
    return ArrowSource(str(path), list(schema.names), parquet=path, schema=schema)


def _ipc(path: Path) -> pa.Table:
    import pyarrow as pa

    with _read_as("Arrow", path):
        mapped = pa.memory_map(str(path))
        try:
            return pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            return pa.ipc.open_stream(mapped).read_all()


def _in_memory(table: pa.Table, name: str, *remarks: str) -> ArrowSource:
    columns = list(table.column_names)
    return ArrowSource(name, columns, table=table, schema=table.schema, remarks=remarks)
