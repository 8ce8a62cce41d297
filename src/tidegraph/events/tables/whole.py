"""Tables that are read whole: JSON, workbooks, and tables or queries of databases."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from tidegraph.core.errors import DataError
from tidegraph.events.tables.advice import TableError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 18  # fetched at once
DATABASES = ("sqlite", "duckdb", "postgresql", "postgres")


def is_address(source: Any) -> bool:
    """Whether this is the address of a database, such as sqlite:///calls.db."""
    return isinstance(source, str) and source.partition("://")[0] in DATABASES


@contextlib.contextmanager
def _needed(name: str, package: str) -> Iterator[None]:
    """Turn a failing import into advice to install the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise DataError(f"{name} needs {error.name} to be read; pip install {package}") from None


def _column(values: Sequence[Any]) -> pa.Array:
    """Return values of one kind as an array of it, and a mixture as text."""
    import pyarrow as pa

    present = [value for value in values if value is not None]
    if present and all(isinstance(v, (int, float)) for v in present):
        if all(float(v).is_integer() and abs(v) < 2**63 for v in present):  # workbooks have floats
            return pa.array([None if v is None else int(v) for v in values], pa.int64())
        return pa.array(values, pa.float64())
    try:
        return pa.array(values)
    except pa.ArrowException:
        return pa.array([None if v is None else str(v) for v in values], pa.string())


def _joined(pieces: Sequence[pa.Array]) -> pa.ChunkedArray:
    """Return pieces of a column as one: of their kind, else as fractions, else as text."""
    import pyarrow as pa

    kinds = {piece.type for piece in pieces if not pa.types.is_null(piece.type)}
    kind = pa.float64() if kinds == {pa.int64(), pa.float64()} else pa.string()
    kind = next(iter(kinds)) if len(kinds) == 1 else kind
    return pa.chunked_array([piece.cast(kind) for piece in pieces], kind)


# JSON ---------------------------------------------------------------------------------------------


@dataclass
class Lines:
    """Where the rows of a table of JSON lines are, and which lines are none."""

    rows: list[int]  # the line of each row, from 1
    bad: int = 0  # lines that are no objects
    first_bad: tuple[int, str] = (0, "")  # number and text


def json_table(name: str, opened: Callable[[], Any], head: bytes) -> tuple[pa.Table, Lines | None]:
    """Return lines of JSON objects, or one array of them; {"a": {"b": 1}} has a column a.b.

    Where a line is no object, or the values of a column are of several kinds, return what can be
    read, mixtures as text, and which lines cannot.

    head: the first bytes of the stream that `opened` returns.
    """
    import pyarrow as pa
    import pyarrow.json as arrow_json

    text = head.removeprefix(codecs.BOM_UTF8)
    stream, lines = opened(), None
    stream.read(len(head) - len(text))
    in_array = text.lstrip().startswith(b"[")
    try:
        if in_array:
            table = pa.Table.from_pylist(json.loads(stream.read()))
        else:
            table = arrow_json.read_json(stream, arrow_json.ReadOptions(block_size=1 << 24))
    except (pa.ArrowException, ValueError, AttributeError) as error:
        table, lines = (None, None) if in_array else _line_by_line(opened())
        if table is None:
            raise DataError(
                f"{name} cannot be read as lines of JSON objects, or one array of them: {error}"
            ) from error
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table, lines


def _line_by_line(stream: Any) -> tuple[pa.Table | None, Lines]:
    """Return the objects among lines of text, None if there are none, and where they are."""
    import pyarrow as pa

    lines, objects = Lines([]), []
    for number, line in enumerate(io.TextIOWrapper(stream, "utf-8-sig", "replace"), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if isinstance(found, dict):
            objects.append(_flat(found))
            lines.rows.append(number)
        else:
            lines.first_bad = lines.first_bad if lines.bad else (number, line.strip())
            lines.bad += 1
    names = dict.fromkeys(name for each in objects for name in each)
    columns = {name: _column([each.get(name) for each in objects]) for name in names}
    return (pa.table(columns) if columns else None), lines


def _flat(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an object and of those in it; a.b is the name of b in a."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": each for inner, each in _flat(value).items()}
        else:
            flat[name] = value
    return flat


# Workbooks ----------------------------------------------------------------------------------------


def workbook_table(path: Path, sheet: str | None) -> tuple[pa.Table, str]:
    """Return a sheet of a workbook, by default the first, and its name; its first row is names."""
    import pyarrow as pa

    with _needed(str(path), "python-calamine"):
        import python_calamine
    try:
        book = python_calamine.CalamineWorkbook.from_path(str(path))
    except Exception as error:  # the library has one class of errors per format
        raise DataError(f"{path} cannot be read as a workbook: {error}") from error
    names: list[str] = list(book.sheet_names)
    sheet = names[0] if sheet is None else sheet
    if sheet not in names:
        raise DataError(f"{path} has no sheet {sheet!r}; it has {', '.join(map(repr, names))}")
    cells = book.get_sheet_by_name(sheet).to_python(skip_empty_area=True)
    rows = [[None if cell == "" else cell for cell in row] for row in cells]
    rows = [row for row in rows if any(cell is not None for cell in row)]
    if len(rows) < 2:
        raise DataError(f"{path}: sheet {sheet!r} holds no events; at least one row is needed")
    heads = [f"column {k}" if head is None else str(head) for k, head in enumerate(rows[0])]
    if len(set(heads)) < len(heads):
        twice = next(head for head in heads if heads.count(head) > 1)
        raise DataError(f"{path} has two columns called {twice!r}; rename one")
    columns = zip(*rows[1:], strict=True)
    return pa.table(dict(zip(heads, map(_column, columns), strict=True))), sheet


# Databases ----------------------------------------------------------------------------------------


def database_table(address: str, query: str | None) -> pa.Table:
    """Return the rows of a query or a table; a database with one table needs neither.

    address: sqlite:///PATH, duckdb:///PATH (a fourth slash: an absolute path), or
        postgresql://USER@HOST/DATABASE.
    """
    parts = urlsplit(address)
    if parts.password:
        shown = urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}", "")))
        raise DataError(
            f"the address {shown} came with a password, which would be stored with the results;"
            " leave it out, and set PGPASSWORD or write it to ~/.pgpass"
        )
    path = unquote(parts.netloc + parts.path).removeprefix("/")
    if parts.scheme in ("sqlite", "duckdb") and not Path(path).is_file():
        raise DataError(f"there is no file {path}; give {parts.scheme}:///PATH of a database")
    listing = (
        "select table_name from information_schema.tables where table_schema not in"
        " ('information_schema', 'pg_catalog')"
    )
    failed: type[Exception]
    if parts.scheme == "sqlite":
        listing = "select name from sqlite_master where type in ('table', 'view')"
        opened, failed = _sqlite(path), sqlite3.Error
    elif parts.scheme == "duckdb":
        with _needed(address, "duckdb"):
            import duckdb
        opened, failed = _duckdb(duckdb, path), duckdb.Error
    else:
        with _needed(address, "adbc-driver-postgresql"):
            import adbc_driver_postgresql.dbapi as driver
        opened, failed = _postgresql(driver, address), driver.Error
    try:
        with opened as rows_of:
            tables = sorted(map(str, rows_of(listing).column(0).to_pylist()))
            if query is None and len(tables) != 1:
                raise TableError(
                    f"{address} has {len(tables)} tables: {', '.join(tables[:12]) or 'none'}",
                    "choose one, or columns of several, with {query}",
                    query=[{"query": f"select * from {tables[0] if tables else 'TABLE'}"}],
                )
            wanted = tables[0] if query is None else query
            if wanted in tables:
                quoted = wanted.replace('"', '""')
                wanted = f'select * from "{quoted}"'
            return rows_of(wanted)
    except failed as error:
        reason = " ".join(str(error).split())
        asked = "" if query is None else f" with {query!r}, a query or the name of a table"
        raise DataError(f"{address} cannot be read{asked}: {reason}") from error


@contextlib.contextmanager
def _sqlite(path: str) -> Iterator[Any]:
    import pyarrow as pa

    def rows_of(query: str) -> pa.Table:
        cursor = connection.execute(query)
        if cursor.description is None:
            raise sqlite3.OperationalError("it returns no rows")
        names = [column[0] for column in cursor.description]
        pieces: list[list[pa.Array]] = [[pa.nulls(0)] for _ in names]
        while rows := cursor.fetchmany(_ROWS):
            for piece, column in zip(pieces, zip(*rows, strict=True), strict=True):
                piece.append(_column(column))
        return pa.table(list(map(_joined, pieces)), names)

    # Nothing is ever written, whatever the query says.
    address = Path(path).absolute().as_uri() + "?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        yield rows_of


@contextlib.contextmanager
def _duckdb(duckdb: Any, path: str) -> Iterator[Any]:
    import pyarrow as pa

    with contextlib.closing(duckdb.connect(path, read_only=True)) as connection:
        yield lambda query: pa.RecordBatchReader.from_stream(connection.sql(query)).read_all()


@contextlib.contextmanager
def _postgresql(driver: Any, address: str) -> Iterator[Any]:
    import pyarrow as pa

    def rows_of(query: str) -> pa.Table:
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(query)
            table = cursor.fetch_arrow_table()
        # A numeric comes as text, in a type of its own.
        kinds = [getattr(field.type, "storage_type", field.type) for field in table.schema]
        columns = [column.cast(kind) for column, kind in zip(table.columns, kinds, strict=True)]
        return pa.table(columns, table.column_names)

    # Nothing is committed, whatever the query says.
    with contextlib.closing(driver.connect(address)) as connection:
        yield rows_of
