"""`Source`: what every table is read through, and files as streams of bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegraph.core.errors import DataError
from tidegraph.events.tables.cells import is_text, plain_column

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD_BYTES = 1 << 16
STANDARD_INPUT = "standard input"
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_COMPRESSIONS |= {b"\x04\x22\x4d\x18": "lz4"}


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


@contextlib.contextmanager
def read_as(kind: str, name: object) -> Iterator[None]:
    """Turn errors of reading into DataError."""
    import pyarrow as pa

    try:
        yield
    except MemoryError:  # Arrow derives its own from both
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name} cannot be read as {kind}: {error}") from error


def opened(path: Path) -> Any:
    import pyarrow as pa

    with path.open("rb") as file:
        begin = file.read(4)
    known = (name for magic, name in _COMPRESSIONS.items() if begin.startswith(magic))
    return pa.input_stream(str(path), compression=next(known, None))


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed: enough to recognise it."""
    with read_as("text", path), opened(path) as stream:
        return stream.read(_HEAD_BYTES)  # type: ignore[no-any-return]


def shown(path: Path) -> str:
    return STANDARD_INPUT if path.name == STANDARD_INPUT else str(path)
