"""Sources of tables: text in any dialect, Parquet, Arrow, data frames, arrays.

Every source yields Arrow batches of the columns asked for and can be read repeatedly.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.tables.advice import TableError
from tidegraph.events.tables.cells import DATE, NUMBER, is_text, plain_column

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 18
_BLOCK_BYTES = 1 << 22
_HEAD_BYTES = 1 << 16


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
    ragged: int = 0  # rows skipped because they had too few or too many cells
    comments: int = 0  # lines skipped as comments

    def batches(self, wanted: Sequence[str], on_bad: str) -> Iterator[pa.RecordBatch]:
        """Yield these columns from the beginning; `on_bad` decides about ragged rows."""
        raise NotImplementedError

    def is_number(self, column: str) -> bool:
        """Whether a column seems to hold numbers, without reading all of it."""
        raise NotImplementedError

    def is_text(self, column: str) -> bool:
        """Whether the cells of a column are text, of numbers or of words."""
        return True

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

    def is_number(self, column: str) -> bool:
        import pyarrow as pa

        kind = self.schema.field(column).type
        return bool(
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        )

    def is_text(self, column: str) -> bool:
        import pyarrow as pa

        return is_text(plain_column(pa.array([], self.schema.field(column).type)))


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

    def __fspath__(self) -> str:
        return str(self.path)

    def first_cell(self, column: str) -> str:
        """Return the cell of the first row, or an empty string if the row is ragged."""
        regular = len(self.first) == len(self.columns)
        return self.first[self.columns.index(column)] if regular else ""

    def is_number(self, column: str) -> bool:
        return re.match(NUMBER, self.first_cell(column)) is not None

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
            self.ragged += 1
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

    return pa.input_stream(str(path), compression="detect")


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
    head: bytes | None = None,
) -> TextSource:
    """Return the source of a text file, its dialect detected unless given.

    head: what `read_head` returned for it, if the caller has it already.
    """
    name = str(path)
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
    if header is None:
        header = not any(re.match(NUMBER, cell) or re.match(DATE, cell) for cell in cells)
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
        path=path,
        delimiter=delimiter,
        clean=delimiter == " " or words[0] > 0,
        first=tuple(first),
    )


def _cells(line: str, delimiter: str) -> list[str]:
    cells = line.split() if delimiter == " " else next(csv.reader([line], delimiter=delimiter))
    return [cell.strip() for cell in cells]


def source_of(source: Any, header: bool | None, delimiter: str | None) -> Source:
    """Return the source of anything `read_table` accepts; header and delimiter apply to text."""
    import pyarrow as pa

    if isinstance(source, TextSource) and (
        header not in (None, source.headed) or delimiter not in (None, source.delimiter)
    ):
        return text_source(source.path, header=header, delimiter=delimiter)
    if isinstance(source, Source):
        return source
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.is_file():
            raise DataError(f"there is no file {path}; give the path of a table")
        suffix = path.suffix.lower()
        if suffix in (".parquet", ".pq"):
            return _parquet(path)
        if suffix in (".arrow", ".feather", ".ipc"):
            return _in_memory(_ipc(path), str(path))
        return text_source(path, header=header, delimiter=delimiter)
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
        f"cannot read a table from {kind}; give a path, an Arrow table, a data frame, or a dict of"
        " vectors"
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


def _in_memory(table: pa.Table, name: str) -> ArrowSource:
    return ArrowSource(name, list(table.column_names), table=table, schema=table.schema)
