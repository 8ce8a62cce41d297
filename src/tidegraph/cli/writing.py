"""Tables that commands write: CSV or Parquet, by the ending of the name, piece by piece."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.options import OutputFile
from tidegraph.core.durable import put_in_place
from tidegraph.core.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Columns = Mapping[str, Sequence[Any]]  # of equal length


class _TableFile(OutputFile):
    """A new file that ends in .csv or .parquet."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        if path.suffix not in (".csv", ".parquet"):
            raise DataError(f"{path} ends in {path.suffix or 'nothing'}; give .csv or .parquet")
        return path


NEW_TABLE = _TableFile(new=True)


def write_table(path: Path, pieces: Iterable[Columns]) -> int:
    """Write pieces with the same columns to a new file and return the number of rows.

    The file appears when it is complete.
    """
    import pyarrow as pa

    aside = path.with_name(f".{path.name}.part")
    rows = 0
    try:
        with contextlib.ExitStack() as opened:
            writer = None
            for piece in pieces:
                table = pa.table(dict(piece))
                if writer is None:
                    writer = opened.enter_context(_writer(aside, table.schema))
                writer.write_table(table)
                rows += len(table)
        put_in_place(aside, path)
    finally:
        aside.unlink(missing_ok=True)  # present only after an error
    return rows


def write_answers(output: Path | None, columns: Columns) -> int:
    """Write a table to a file, or as CSV to standard output, and return the number of rows.

    Numbers in CSV have six digits.
    """
    if output is not None and output.suffix == ".parquet":
        return write_table(output, [columns])
    rows = zip(*columns.values(), strict=True)
    cells = [[f"{c:.6g}" if isinstance(c, float) else c for c in row] for row in rows]
    with click.open_file(str(output or "-"), "w", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([list(columns), *cells])
    return len(cells)


def _writer(path: Path, schema: pa.Schema) -> Any:
    if path.name.endswith(".csv.part"):
        from pyarrow import csv as arrow_csv

        options = arrow_csv.WriteOptions(quoting_style="needed")
        return arrow_csv.CSVWriter(path, schema, write_options=options)
    from pyarrow import parquet

    return parquet.ParquetWriter(path, schema)
