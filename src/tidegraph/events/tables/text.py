"""Tables in text: commas, tabs, semicolons or white space between cells, compressed or not."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.tables.advice import TableError
from tidegraph.events.tables.cells import COMMA, NUMBER, is_date, with_point
from tidegraph.events.tables.source import Source, opened, read_head, shown

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_BYTES = 1 << 22


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
        with opened(self.path) as stream:
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
            with opened(self.path) as stream:
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


def _check_encoding(path: Path) -> None:
    """Raise DataError, with the line, if the file is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, first = 1, b""
    with opened(path) as stream:
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
    name = shown(path)
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
