"""Anybody's table of edges as an event stream: text, Parquet, Arrow, data frames, arrays.

A source gives Arrow batches, a `_Reading` turns each into checked rows, and two things are made of
rows: the chunks of `scan_table`, in bounded memory, or the one stream of `read_table`.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.errors import DataError, ParameterError
from tidegraph.events import TIME_LIMIT, Op
from tidegraph.stream import PER_SECOND, UNITS, EventStream, NodeNames, ReadReport, counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TableScan", "read_table", "scan_table", "whole_times"]

Column: TypeAlias = str | int
Ids: TypeAlias = Literal["auto", "keep", "number"]
IntArray: TypeAlias = NDArray[np.int64]
_Bad: TypeAlias = tuple[str, NDArray[np.bool_]]  # why rows cannot be used, and which

_BATCH_ROWS = 1 << 18
_BLOCK_BYTES = 1 << 22
_KEPT_IDS = 2**31  # "keep" takes ids below it
_MISSING = ("", "na", "n/a", "nan", "nat", "null", "none")  # in columns of numbers and times
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^(?i:[+-]?inf(inity)?)$"
_DECIMAL = r"^(?P<sign>[+-]?)0*(?P<whole>[0-9]{0,18})(?:\.(?P<fraction>[0-9]*))?$"
_FRACTION_DIGITS = 18  # that are read of a decimal; as a number they fit into int64
_FRACTION = 10**_FRACTION_DIGITS
_COMMA = r"^[+-]?[0-9]+,[0-9]+$"  # a decimal, in many countries
_DATE = r"^[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
_ZONED = r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_OPS = {"add": 0, "remove": 1, "set": 2, "+": 0, "-": 1, "=": 2, "0": 0, "1": 1, "2": 2}

# Names by which a column is recognised, the likeliest first.
_SYNONYMS = {
    "src": "src source sources source_id src_id user user_id userid from from_id u sender head"
    " caller fromnodeid from_node node1 source_node buyer payer absender von",
    "dst": "dst target destination destinations dest target_id dst_id item item_id itemid to to_id"
    " i v receiver recipient callee tail tonodeid to_node node2 target_node seller payee"
    " empfänger empfaenger an",
    "t": "t time timestamp timestamps ts date datetime time_stamp unixts unix_time created_at when"
    " created datum zeit zeitpunkt zeitstempel",
    "weight": "weight w weights amount value rating",
    "op": "op operation",
    "label": "label labels state_label edge_label y",
}
# What may follow such a name, and how a column of times may end: where only one does, it is it.
_OF_NODES = r"_(id|name|no|nr|number|user|node)$"
_OF_TIMES = r"(_(at|on|ts|time|date|when|datum|zeit)|time_?stamp|date_?time)$"
_NEEDED = ("src", "dst", "t")
_SAMPLE_ROWS = 100  # by which columns are judged that no name tells

# How many of a unit make one of the next, down to nanoseconds.
_FINER = {"day": ("h", 24), "h": ("min", 60), "min": ("s", 60), "s": ("ms", 1000)}
_FINER |= {"ms": ("us", 1000), "us": ("ns", 1000)}


# Sources: where batches come from -----------------------------------------------------------------


@dataclass
class _Source:
    """A table that can be read again and again, batch by batch, a few columns at a time."""

    name: str
    columns: list[str]
    headed: bool = True  # whether the columns' names mean something
    untyped: bool = False  # whether every cell is text as it stands in a file
    ragged: int = 0  # rows passed over because they had too few or too many cells
    comments: int = 0  # lines passed over as such

    def batches(self, wanted: Sequence[str], on_bad: str) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def is_number(self, column: str) -> bool:
        raise NotImplementedError

    def place(self, row: int) -> str:
        """Where a person finds this row."""
        return f"row {row} (counted from 0)"


@dataclass
class _Arrow(_Source):
    """A table in memory, an Arrow file (mapped into memory) or a Parquet file (read in pieces)."""

    table: pa.Table = None
    parquet: Path | None = None
    schema: pa.Schema = None

    def batches(self, wanted: Sequence[str], on_bad: str) -> Iterator[pa.RecordBatch]:
        if self.parquet is None:
            yield from self.table.select(list(wanted)).to_batches(max_chunksize=_BATCH_ROWS)
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # Row groups may be large: without pre-buffering only the pages in work are held.
            with pq.ParquetFile(self.parquet, pre_buffer=False, buffer_size=1 << 20) as file:
                yield from file.iter_batches(_BATCH_ROWS, columns=list(wanted), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.name} cannot be read as parquet: {error}") from error

    def is_number(self, column: str) -> bool:
        import pyarrow as pa

        kind = self.schema.field(column).type
        return bool(
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        )


class _Cleaned(io.RawIOBase):
    """A text stream without blank lines and comments, which are counted.

    Between words parted by white space a comment may stand anywhere, and cells are parted by single
    tabs afterwards. In other tables only what precedes the first row is a comment: further down,
    "#tag" is a name.
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
            assert head is not None  # it matches nothing, too
            self.comments += len(re.findall(rb"(?m)^[ \t]*[#%]", head[0]))
            text = text[head.end() :]
            self._heading = not text
        return text


@dataclass
class _Text(_Source):
    """A file of cells parted by commas, tabs, semicolons or white space; gzip and others too."""

    path: Path = Path()
    delimiter: str = ","  # " " is any white space
    clean: bool = False
    first: tuple[str, ...] = ()  # the cells of the first row

    def is_number(self, column: str) -> bool:
        cell = self.first[self.columns.index(column)] if self.first else ""
        return re.match(_NUMBER, cell) is not None

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
        refused: list[Any] = []

        def refuse(row: Any) -> str:
            if not refused:
                refused.append(row)
            self.ragged += 1
            return "skip"

        def check() -> None:
            if refused and on_bad == "error":
                row = refused[0]
                line = "a row" if self.clean or row.number is None else f"line {row.number}"
                raise DataError(
                    f"{self.name}: {line} has {row.actual_columns} cells where"
                    f" {row.expected_columns} are expected: {row.text[:100]!r}; mend the file, or"
                    " say on_bad='drop'"
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
                        # Between white space a quotation mark is a character like any other.
                        quote_char=False if self.delimiter == " " else '"',
                        invalid_row_handler=refuse,
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
        except (pa.ArrowException, OSError) as error:
            check()
            if "Empty CSV" in str(error):
                return
            if "UTF8" in str(error):
                _check_encoding(self.path)
            raise DataError(f"{self.name} cannot be read as text: {error}") from error


def _opened(path: Path) -> Any:
    import pyarrow as pa

    return pa.input_stream(str(path), compression="detect")


def _check_encoding(path: Path) -> None:
    """Refuses a file that is not UTF-8, and says where it is not."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, first = 1, b""
    with _opened(path) as stream:
        while True:
            block = stream.read(_BLOCK_BYTES)
            first = first or block[:2]
            kept = decoder.getstate()[0]  # a character that the last block began
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
    columns: Sequence[str] | None = None,
) -> _Text:
    """The file at `path`, its dialect found out where it is not said.

    columns: names that replace those of the header, which may name fewer than the rows have.
    """
    name = str(path)
    try:
        with _opened(path) as stream:
            text = stream.read(1 << 16).decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise DataError(f"{name} cannot be read as text: {error}") from error
    lines = text.splitlines()
    words = [k for k, line in enumerate(lines) if line.strip() and line.lstrip()[0] not in "#%"]
    if not words:
        raise DataError(f"{name} holds no events; at least one row is needed")
    rows = [lines[k] for k in words]
    if "\ufffd" in rows[0]:
        _check_encoding(path)
    if delimiter is None:
        # Two cells are no row of edges: a lone tab may stand among spaces.
        delimiter = next((mark for mark in ",\t;" if rows[0].count(mark) > 1), None)
        delimiter = delimiter or ("," if "," in rows[0] else " ")
    if len(delimiter) != 1:
        raise ParameterError(f"delimiter is {delimiter!r}; give one character, ' ' for white space")
    cells = _cells(rows[0], delimiter)
    if header is None:
        header = not any(re.match(_NUMBER, cell) or re.match(_DATE, cell) for cell in cells)
    first = _cells(rows[1], delimiter) if header and len(rows) > 1 else cells
    names = list(columns or cells)
    if columns is None:
        for place, cell in enumerate(cells):
            names[place] = cell if header and cell else f"column {place}"
    twice = {column for column in names if names.count(column) > 1}
    if twice:
        raise DataError(f"{name} has two columns called {min(twice)!r}; rename one")
    clean = delimiter == " " or words[0] > 0
    return _Text(
        name,
        names,
        headed=header,
        untyped=True,
        path=path,
        delimiter=delimiter,
        clean=clean,
        first=tuple(first) if len(first) == len(names) else (),
    )


def _cells(line: str, delimiter: str) -> list[str]:
    cells = line.split() if delimiter == " " else next(csv.reader([line], delimiter=delimiter))
    return [cell.strip() for cell in cells]


def _source(source: Any, header: bool | None, delimiter: str | None) -> _Source:
    import pyarrow as pa

    if isinstance(source, _Source):
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
        if isinstance(source, pa.Table):
            return _in_memory(source, "the table")
        if isinstance(source, pa.RecordBatch):
            return _in_memory(pa.Table.from_batches([source]), "the table")
        if hasattr(source, "__arrow_c_stream__"):
            table = pa.RecordBatchReader.from_stream(source).read_all()
            return _in_memory(table, f"the {kind}")
        if hasattr(source, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            return _in_memory(from_dataframe(source), f"the {kind}")
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"the {kind} cannot be read as a table: {error}") from error
    raise DataError(
        f"a {kind} is no table that can be read; give a path, an Arrow table, a data frame, or a"
        " dict of vectors"
    )


def _vector(values: Any, name: str) -> Any:
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"column {name!r} is no vector: {error}") from None
    if array.ndim != 1:
        raise DataError(f"column {name!r} has shape {array.shape}; give vectors, one cell per row")
    # A list of strings and Nones must not become an array of objects and then lose its Nones.
    return pa.array(values if array.dtype.kind in "OU" else array)


def _parquet(path: Path) -> _Arrow:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
    return _Arrow(str(path), list(schema.names), parquet=path, schema=schema)


def _ipc(path: Path) -> pa.Table:
    import pyarrow as pa

    try:
        mapped = pa.memory_map(str(path))
        try:
            return pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            return pa.ipc.open_stream(mapped).read_all()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Arrow: {error}") from error


def _in_memory(table: pa.Table, name: str) -> _Arrow:
    return _Arrow(name, list(table.column_names), table=table, schema=table.schema)


# Columns: which is which --------------------------------------------------------------------------


@dataclass
class _Chosen:
    """The column behind each role, and how that came about."""

    roles: dict[str, str]
    features: tuple[str, ...]
    guessed: set[str]
    notes: list[str]

    @property
    def wanted(self) -> list[str]:
        return list(dict.fromkeys([*self.roles.values(), *self.features]))


def _choose(source: _Source, given: Mapping[str, Any], features: Any) -> _Chosen:
    chosen = _Chosen({}, (), set(), [])
    free = list(source.columns)

    def find(column: Column, role: str) -> str:
        if isinstance(column, int) and -len(source.columns) <= column < len(source.columns):
            return source.columns[column]
        if column in source.columns:
            return str(column)
        trimmed = [name for name in source.columns if name.strip() == str(column).strip()]
        if len(trimmed) == 1:
            return trimmed[0]
        alike = {name.strip().casefold(): name for name in source.columns}
        near = difflib.get_close_matches(str(column).strip().casefold(), alike, n=1)
        advice = f"; did you mean {alike[near[0]]!r}?" if near else ""
        raise DataError(
            f"{role} is said to be column {column!r}; {source.name} has"
            f" {_listed(source.columns)}{advice}"
        )

    for role, column in given.items():
        if column is not None and column is not False:
            chosen.roles[role] = find(column, role)
            chosen.notes.append(f"{role} is column {chosen.roles[role]!r}, as given")
            if chosen.roles[role] in free:
                free.remove(chosen.roles[role])
    if features != "rest":
        if isinstance(features, (str, int)):
            features = (features,)
        chosen.features = tuple(find(column, "edge_features") for column in features)
        free = [column for column in free if column not in chosen.features]
    for place, role in enumerate(_SYNONYMS):
        if given.get(role) is not None:
            continue
        if source.headed:
            match = _named(role, free)
            how = "by its name"
        else:
            match = source.columns[place] if place < min(4, len(source.columns)) else None
            if match not in free or (role == "weight" and not source.is_number(match)):
                match = None
            how = "by its place"
        if match is not None:
            chosen.roles[role] = match
            chosen.guessed.add(role)
            chosen.notes.append(f"{role} is column {match!r}, {how}")
            free.remove(match)
    missing = [role for role in _NEEDED if role not in chosen.roles]
    if missing:
        likely = _likely(source, chosen.roles, free)
        advice = ", ".join(f"{role}={likely[role]!r}" for role in _NEEDED if role in likely)
        raise DataError(
            f"{source.name} has {_listed(source.columns)}; src, dst and t are needed: say which"
            f" column is {' and '.join(missing)}, perhaps {advice}"
        )
    for role, other in (("src", "dst"), ("src", "t"), ("dst", "t")):
        if chosen.roles[role] == chosen.roles[other]:
            raise DataError(
                f"column {chosen.roles[role]!r} is said to be both {role} and {other};"
                f" {source.name} has {_listed(source.columns)}: give each its own"
            )
    if features == "rest":
        chosen.features = tuple(column for column in free if source.is_number(column))
        free = [column for column in free if column not in chosen.features]
    if chosen.features:
        chosen.notes.append(f"edge_features are {_listed(chosen.features)}")
    if free:
        chosen.notes.append(f"ignored: {_listed(free)}")
    return chosen


def _named(role: str, columns: Sequence[str]) -> str | None:
    """The column whose name says that it is `role`."""
    plain = {re.sub(r"[\s.-]+", "_", column.strip().lower()): column for column in columns}
    names = _SYNONYMS[role].split()
    match = next((plain[name] for name in names if name in plain), None)
    if match is None and role in ("src", "dst"):
        cut = {re.sub(_OF_NODES, "", name): column for name, column in plain.items()}
        match = next((cut[name] for name in names if len(name) > 1 and name in cut), None)
    if match is None and role == "t":
        ending = [column for name, column in plain.items() if re.search(_OF_TIMES, name)]
        match = ending[0] if len(ending) == 1 else None
    return match


def _likely(source: _Source, roles: Mapping[str, str], free: Sequence[str]) -> dict[str, str]:
    """A column for each role that is needed, by what their first cells look like.

    Times are dates or numbers that grow; nodes come again, and are neither numbered rows nor
    fractions. A role for which nothing is left has none.
    """
    seen: dict[str, list[str]] = {column: [] for column in free}
    if free:
        for batch in source.batches(list(free), "drop"):
            head = batch.slice(0, _SAMPLE_ROWS).to_pydict()
            seen = {name: [str(cell) for cell in head[name] if cell is not None] for name in free}
            break

    def numbers(column: str) -> list[float]:
        cells = seen[column]
        return [float(cell) for cell in cells] if all(re.match(_NUMBER, c) for c in cells) else []

    def counts_rows(column: str) -> bool:
        steps = numbers(column)
        return len(steps) > 1 and all(b - a == 1 for a, b in itertools.pairwise(steps))

    def is_time(column: str) -> tuple[bool, ...]:
        cells, values = seen[column], numbers(column)
        dated = bool(cells) and all(re.match(_DATE, cell) for cell in cells)
        named = re.search(r"time|date|zeit|datum|when", column.lower()) is not None
        return dated, named, len(values) > 1 and values == sorted(values)

    def is_node(column: str) -> tuple[bool, bool]:
        cells = seen[column]
        fractions = any(value != int(value) for value in numbers(column) if abs(value) < 2**53)
        return not fractions, 1 < len(set(cells)) < len(cells)

    likely = {role: roles[role] for role in _NEEDED if role in roles}
    left = sorted(free, key=counts_rows)  # such a column is the last resort
    for role, best in (("t", is_time), ("src", is_node), ("dst", is_node)):
        if role not in likely and left:
            rated = [(not counts_rows(column), *best(column)) for column in left]
            likely[role] = left.pop(rated.index(max(rated)))
    return likely


def _listed(columns: Sequence[str]) -> str:
    shown = ", ".join(repr(column) for column in columns[:12])
    more = f" and {len(columns) - 12} more" if len(columns) > 12 else ""
    return f"column{'s' if len(columns) != 1 else ''} {shown}{more}"


# Times --------------------------------------------------------------------------------------------


@dataclass
class _Moments:
    """Times as whole units and what is left over, so that nothing is lost before a unit is known.

    A left-over is known up to `slack`: what was lost when it was written as a float.
    """

    whole: IntArray
    rest: NDArray[np.float64] | None = None  # None: all zero
    slack: NDArray[np.float64] | None = None

    def __getitem__(self, rows: NDArray[np.bool_]) -> _Moments:
        if self.rest is None or self.slack is None:
            return _Moments(self.whole[rows])
        return _Moments(self.whole[rows], self.rest[rows], self.slack[rows])


class _Clock:
    """Finds the coarsest unit that loses nothing of the times it sees."""

    def __init__(self, unit: str) -> None:
        self.scales = [(unit, 1)]
        while self.scales[-1][0] in _FINER:
            finer, factor = _FINER[self.scales[-1][0]]
            self.scales.append((finer, factor * self.scales[-1][1]))
        self.rounded = 0  # times that had to be rounded, of those turned into ticks so far
        self._level = 0
        self._reach = 0

    def see(self, moments: _Moments) -> None:
        if not moments.whole.size:
            return
        low, high = int(moments.whole.min()), int(moments.whole.max())
        self._reach = max(self._reach, -low, high + 1)
        if moments.rest is None or moments.slack is None:
            return
        while self._level + 1 < len(self.scales):
            scaled = moments.rest * self.scales[self._level][1]
            room = moments.slack * self.scales[self._level][1]
            if (np.abs(scaled - np.rint(scaled)) <= room).all():
                return
            self._level += 1
        if len(self.scales) == 1 and (moments.rest != 0).any():
            raise DataError(
                f"t has fractions of a {self.scales[0][0]}, which have no smaller unit here; give"
                " whole numbers"
            )

    @property
    def scale(self) -> tuple[str, int]:
        """The unit, and how many of it make one of the unit given."""
        level = self._level
        while level and self._reach * self.scales[level][1] >= TIME_LIMIT:
            level -= 1  # so far from zero int64 has no room for the finer unit
        if self._reach * self.scales[level][1] > TIME_LIMIT:
            raise DataError(
                f"t reaches {self._reach - 1}, beyond 62-bit integers; use a coarser unit"
            )
        return self.scales[level]

    def ticks(self, moments: _Moments) -> IntArray:
        factor = self.scale[1]
        if moments.rest is None:
            return moments.whole * factor
        scaled = moments.rest * factor
        nearest = np.rint(scaled)
        if moments.slack is not None:
            self.rounded += int((np.abs(scaled - nearest) > moments.slack * factor).sum())
        return moments.whole * factor + nearest.astype(np.int64)


def _from_floats(values: NDArray[Any]) -> _Moments:
    """Finite floats, exactly: every float is a whole number and a fraction that float64 holds."""
    slack = np.spacing(np.abs(values)).astype(np.float64)  # of the type given, be it float32
    wide = values.astype(np.float64)
    if (np.abs(wide) >= TIME_LIMIT).any():
        raise DataError(
            f"t reaches {np.abs(wide).max():g}, beyond 62-bit integers; use a coarser unit"
        )
    whole = np.floor(wide)
    rest = wide - whole
    return (
        _Moments(whole.astype(np.int64), rest, slack)
        if rest.any()
        else _Moments(whole.astype(np.int64))
    )


def _from_seconds(ticks: IntArray, per_second: int) -> _Moments:
    whole, rest = np.divmod(ticks, per_second)
    if not rest.any():
        return _Moments(whole)
    return _Moments(whole, rest / per_second, np.full(len(rest), 2.0**-52))


def _from_decimals(column: pa.Array) -> _Moments:
    """Numbers as they are written, digit by digit; cells without one are 0.

    A number with an exponent, or with more digits than any time has, is a float's way to be
    written, and has the meaning of that float.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.extract_regex(column, _DECIMAL)
    plain = ~_nulls(parts)
    digits = pc.utf8_slice_codeunits(pc.struct_field(parts, "fraction"), 0, _FRACTION_DIGITS)
    digits = pc.utf8_rpad(digits, _FRACTION_DIGITS, "0")
    whole, fraction = (
        text.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        for text in (pc.utf8_lpad(pc.struct_field(parts, "whole"), 1, "0"), digits)
    )
    below = pc.equal(pc.struct_field(parts, "sign"), "-").fill_null(False)
    below = below.to_numpy(zero_copy_only=False)
    whole = np.where(below, -whole - (fraction > 0), whole)
    fraction = np.where(below & (fraction > 0), _FRACTION - fraction, fraction)
    rest, slack = fraction / _FRACTION, np.full(len(column), 2.0**-51)  # two roundings, and a third
    written = np.flatnonzero(~plain & ~_nulls(column))
    if len(written):
        floats = _from_floats(column.take(pa.array(written)).cast(pa.float64()).to_numpy())
        whole[written] = floats.whole
        if floats.rest is not None and floats.slack is not None:
            rest[written], slack[written] = floats.rest, floats.slack
    return _Moments(whole, rest, slack) if rest.any() else _Moments(whole)


def whole_times(values: Any, unit: str = "s") -> tuple[IntArray, str]:
    """Numbers of `unit` as int64 in the coarsest unit, from `unit` down, that loses nothing.

    Numbers in text are taken digit by digit.

    >>> whole_times([0.5, 2.0])
    (array([ 500, 2000]), 'ms')
    """
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return array.astype(np.int64), unit
    if array.dtype.kind in "OUT" and array.ndim == 1:
        import pyarrow as pa

        cells = _times(pa.array(array.tolist(), pa.string()), dates=False)
        for reason, bad in cells.bad:
            row = int(bad.argmax())
            raise DataError(f"{reason} in row {row}: {array[row]!r}; give finite numbers")
        clock = _Clock(unit)
        clock.see(cells.values)
        return clock.ticks(cells.values), clock.scale[0]
    if array.dtype.kind != "f" or array.ndim != 1:
        raise DataError(f"t has dtype {array.dtype} and shape {array.shape}; give numbers [events]")
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array)))
        raise DataError(f"t of row {row} is {array[row]}; finite numbers are accepted")
    clock, moments = _Clock(unit), _from_floats(array)
    clock.see(moments)
    return clock.ticks(moments), clock.scale[0]


# Cells to numbers ---------------------------------------------------------------------------------


@dataclass
class _Cells:
    """A column of one batch: its values, and which rows cannot be used and why."""

    values: Any
    bad: list[_Bad] = field(default_factory=list)


def _nulls(column: pa.Array) -> NDArray[np.bool_]:
    return column.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _plain(column: pa.Array) -> pa.Array:
    """The column without dictionary encoding; text as one type, trimmed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column):
        column = pc.utf8_trim_whitespace(column.cast(pa.string()))
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    return column


def _is_text(column: pa.Array) -> bool:
    import pyarrow as pa

    kind = column.type
    views = getattr(pa.types, "is_string_view", lambda _: False)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or views(kind))


def _without_missing(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pc.is_in(pc.utf8_lower(column), value_set=pa.array(_MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), column)


def _matching(column: pa.Array, pattern: str) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    matches = pc.match_substring_regex(column, pattern).fill_null(True)
    return matches.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as `kind`, or as it is where a cell does not fit."""
    import pyarrow as pa

    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return column


def _numerals(column: pa.Array, what: str) -> tuple[pa.Array, list[_Bad]]:
    """A column of text with nothing but numbers in it, and what else there was."""
    import pyarrow as pa

    column = _without_missing(column)
    wrong = ~_matching(column, _NUMBER)
    if not wrong.any():
        return column, []
    kept = pa.array(np.where(wrong, None, column.to_numpy(zero_copy_only=False)), pa.string())
    return kept, [(f"{what} is not a number", wrong)]


def _missing(column: pa.Array, what: str, known: Sequence[_Bad] = ()) -> list[_Bad]:
    """Which cells are empty for no other reason that is known."""
    missing = _nulls(column)
    for _, wrong in known:
        missing = missing & ~wrong
    return [(f"{what} is missing", missing)] if missing.any() else []


def _numbers(column: pa.Array, what: str) -> _Cells:
    """int64 where all cells are such, float64 elsewhere; cells without a number hold 0."""
    import pyarrow as pa

    bad: list[_Bad] = []
    column = _plain(column)
    if _is_text(column):
        column = _cast(column, pa.int64())
    if _is_text(column):  # the common case is behind us; now cell by cell
        column, bad = _numerals(column, what)
        column = _cast(column, pa.int64())
        if _is_text(column):
            column = column.cast(pa.float64())
    if pa.types.is_null(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(f"{what} has type {column.type}; numbers are accepted")
    bad += _missing(column, what, bad)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    if values.dtype == np.uint64 and values.size and int(values.max()) >= 2**63:
        values = values.astype(np.float64)
    if values.dtype.kind in "iu":
        return _Cells(values.astype(np.int64), bad)
    strange = np.isnan(values)
    if strange.any():
        bad.append((f"{what} is missing", strange))
        values = np.where(strange, values.dtype.type(0), values)
    return _Cells(values, bad)


def _times(column: pa.Array, dates: bool) -> _Cells:
    """The column as `_Moments`: of seconds for dates, of the unit given for numbers."""
    import pyarrow as pa

    column = _plain(column)
    if not dates:
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.string())
        if _is_text(column):
            column = _cast(column, pa.int64())
        if _is_text(column):
            return _written_times(column)
        cells = _numbers(column, "t")
        if cells.values.dtype.kind == "i":
            cells.values = _Moments(cells.values)
            return cells
        infinite = np.isinf(cells.values)
        if infinite.any():
            cells.bad.append(("t is not finite", infinite))
        cells.values = _from_floats(np.where(infinite, cells.values.dtype.type(0), cells.values))
        return cells
    if _is_text(column):
        return _written_dates(_without_missing(column))
    bad = _missing(column, "t")
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    ticks = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return _Cells(_from_seconds(ticks, PER_SECOND[column.type.unit]), bad)


def _written_times(column: pa.Array) -> _Cells:
    """Numbers in text, not all of which are integers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column, bad = _numerals(column, "t")
    bad += _missing(column, "t", bad)
    infinite = _matching(column, r"^(?i:[+-]?inf(inity)?)$") & ~_nulls(column)
    if infinite.any():
        bad.append(("t is not finite", infinite))
        column = pc.if_else(pa.array(infinite), pa.scalar(None, pa.string()), column)
    return _Cells(_from_decimals(column), bad)


def _written_dates(column: pa.Array) -> _Cells:
    """ISO dates: those without a zone are UTC."""
    import pyarrow as pa

    missing, wrong = _nulls(column), ~_matching(column, _DATE)
    zoned = ~missing & _matching(column, _ZONED)
    whole, rest, slack = np.zeros(len(column), np.int64), np.zeros(len(column)), 2.0**-52
    for zone, rows in (("UTC", zoned & ~wrong), (None, ~zoned & ~missing & ~wrong)):
        places = np.flatnonzero(rows)
        for first, size, moments in _parsed_dates(column.take(pa.array(places)), zone, 0):
            part = places[first : first + size]
            if moments is None:
                wrong[part] = True  # it has the shape of a date and is none: the 30th of February
                continue
            whole[part] = moments.whole
            rest[part] = 0 if moments.rest is None else moments.rest
    bad = [("t is missing", missing)] if missing.any() else []
    if wrong.any():
        bad.append(("t is not an ISO date", wrong))
    if not rest.any():
        return _Cells(_Moments(whole), bad)
    return _Cells(_Moments(whole, rest, np.full(len(rest), slack)), bad)


def _parsed_dates(
    column: pa.Array, zone: str | None, first: int
) -> Iterator[tuple[int, int, _Moments | None]]:
    """Pieces `(first, size, moments)` of the column; a cell that is no date has None."""
    import pyarrow as pa

    if not len(column):
        return
    for unit, per_second in PER_SECOND.items():
        ticks = _cast(column, pa.timestamp(unit, zone))
        if not _is_text(ticks):
            moments = _from_seconds(ticks.cast(pa.int64()).to_numpy(), per_second)
            yield first, len(column), moments
            return
    if len(column) == 1:
        yield first, 1, None
        return
    half = len(column) // 2
    yield from _parsed_dates(column[:half], zone, first)
    yield from _parsed_dates(column[half:], zone, first + half)


def _operations(column: pa.Array) -> _Cells:
    import pyarrow as pa

    text = _plain(column)
    if not _is_text(text):
        text = text.cast(pa.string())
    codes = [_OPS.get((cell or "").lower(), -1) for cell in text.to_pylist()]
    values = np.array(codes, dtype=np.int64)
    bad = [("op is none of add, remove, set", values < 0)] if (values < 0).any() else []
    return _Cells(np.maximum(values, 0).astype(np.uint8), bad)


# Rows: a batch, checked ---------------------------------------------------------------------------


@dataclass
class _Rows:
    """Rows of one batch that can be used. Ids are int64 arrays, or Arrow arrays of strings."""

    src: Any
    dst: Any
    t: _Moments
    weight: NDArray[np.float64] | None = None
    op: NDArray[np.uint8] | None = None
    label: IntArray | None = None
    features: NDArray[np.float32] | None = None


class _Reading:
    """One pass over a source: batches become rows, and what is unusable is refused or counted."""

    def __init__(
        self,
        source: Any,
        *,
        unit: str | None,
        on_bad: str,
        header: bool | None,
        delimiter: str | None,
        edge_features: Any,
        roles: Mapping[str, Any],
    ) -> None:
        if on_bad not in ("error", "drop"):
            raise ParameterError(f"on_bad is {on_bad!r}; give 'error' or 'drop'")
        if unit is not None and unit not in UNITS:
            raise ParameterError(f"unit is {unit!r}; give one of {', '.join(UNITS)}")
        self.source = _source(source, header, delimiter)
        self.chosen = _choose(self.source, roles, edge_features)
        self.on_bad = on_bad
        self.dates = self._holds_dates()
        if self.dates and unit not in (None, "s", "ms", "us", "ns"):
            raise ParameterError(
                f"unit is {unit!r}, and t holds dates, which are kept in s, ms, us or ns"
            )
        self.unit = unit
        self._restart()

    def _restart(self) -> None:
        self.read = self.kept = self.unlabelled = 0
        self.dropped: dict[str, int] = {}
        self._examples: dict[str, Any] = {}  # a cell for every reason to drop rows

    def clock(self) -> _Clock:
        return _Clock("s" if self.dates else self.unit or "s")

    @property
    def counted(self) -> bool:
        """Whether the times are integers, whose unit is known before any is read."""
        import pyarrow as pa

        return not self.source.untyped and pa.types.is_integer(self._time_type())

    def _time_type(self) -> Any:
        assert isinstance(self.source, _Arrow)
        return self.source.schema.field(self.chosen.roles["t"]).type

    def _holds_dates(self) -> bool:
        """Whether t holds dates, told by its type, or in text by the first cell that has one."""
        import pyarrow as pa

        if not self.source.untyped:
            kind = self._time_type()
            if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
                return True
            if not _is_text(pa.array([], kind)):
                return False
        column = self.chosen.roles["t"]
        for batch in self.source.batches([column], "drop"):
            cells = _without_missing(_plain(batch.column(0))).drop_null()
            if len(cells):
                return re.match(_DATE, cells[0].as_py()) is not None
        return False

    def survey(self) -> _Clock:
        """The clock of this source, found by a pass over its times alone."""
        clock = self.clock()
        if not self.counted:
            for batch in self.source.batches([self.chosen.roles["t"]], "drop"):
                cells = _times(batch.column(0), self.dates)
                clock.see(cells.values)
        return clock

    def rows(self, *, sorted_only: bool, weights_only: bool) -> Iterator[_Rows]:
        """sorted_only: refuse times that run backwards. weights_only: refuse weights <= 0."""
        self._restart()
        last: tuple[int, float] | None = None
        for batch in self.source.batches(self.chosen.wanted, self.on_bad):
            first, self.read = self.read, self.read + batch.num_rows
            rows, index = self._usable(batch, first, weights_only)
            if sorted_only and len(index):
                last = self._check_order(rows.t, index, last)
            self.kept += len(index)
            if len(index):
                yield rows
        if self.source.ragged:
            self.read += self.source.ragged
            self.dropped["wrong number of cells"] = self.source.ragged
        if self.kept == 0:
            dropped = ""
            if self.read:
                which = f"all {self.read:,} rows were" if self.read > 1 else "the only row was"
                dropped = f": {which} dropped, {self._why_none()}"
            raise DataError(
                f"{self.source.name} holds no events{dropped}; at least one row is needed"
            )

    def _usable(
        self, batch: pa.RecordBatch, first: int, weights_only: bool
    ) -> tuple[_Rows, IntArray]:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        roles = self.chosen.roles
        cells: dict[str, _Cells] = {
            "src": self._ids(columns[roles["src"]], "src"),
            "dst": self._ids(columns[roles["dst"]], "dst"),
            "t": _times(columns[roles["t"]], self.dates),
        }
        if "op" in roles:
            cells["op"] = _operations(columns[roles["op"]])
        if "weight" in roles:
            cells["weight"] = self._weights(columns[roles["weight"]], cells.get("op"), weights_only)
        if "label" in roles:
            cells["label"] = self._labels(columns[roles["label"]])
        features = [_numbers(columns[name], f"column {name!r}") for name in self.chosen.features]
        used = np.ones(batch.num_rows, dtype=np.bool_)
        for what, column in [*cells.items(), *zip(self.chosen.features, features, strict=True)]:
            for reason, bad in column.bad:
                bad = bad & used
                if not bad.any():
                    continue
                row = int(bad.argmax())
                cell = columns[roles.get(what, what)][row].as_py()
                if self.on_bad == "error":
                    self._refuse(reason, cell, first + row, what)
                self._examples.setdefault(reason, cell)
                self.dropped[reason] = self.dropped.get(reason, 0) + int(bad.sum())
                used &= ~bad
        matrix = None
        if features:
            with np.errstate(over="ignore"):
                matrix = np.column_stack([column.values.astype(np.float32) for column in features])
        whole = bool(used.all())

        def kept(name: str) -> Any:
            if name not in cells or whole:
                return cells[name].values if name in cells else None
            values = cells[name].values
            return values.filter(_mask(used)) if _arrow(values) else values[used]

        rows = _Rows(
            kept("src"),
            kept("dst"),
            kept("t"),
            weight=kept("weight"),
            op=kept("op"),
            label=kept("label"),
            features=matrix if matrix is None or whole else matrix[used],
        )
        return rows, first + np.flatnonzero(used)

    def _refuse(self, reason: str, cell: Any, row: int, what: str) -> None:
        shown = "" if cell is None else f": {cell!r}"
        advice = "mend or drop such rows, or say on_bad='drop'"
        if hint := _written_how(reason, cell):
            advice = f"{hint}; {advice}"
        if what == "weight" and "not a number" not in reason:
            advice = (
                "weights are > 0: if the column means something else, say weight=False, or give it"
                " as edge_features; on_bad='drop' drops such rows"
            )
        if what == "label":
            advice = "labels are integers: say label=False to ignore the column"
        raise DataError(f"{self.source.name}, {self.source.place(row)}: {reason}{shown}; {advice}")

    def _why_none(self) -> str:
        """Why no row was kept, with a cell that shows it."""
        reasons = []
        for reason, rows in self.dropped.items():
            cell = self._examples.get(reason)
            shown = "" if cell is None else f" ({cell!r})"
            hint = _written_how(reason, cell)
            reasons.append(f"{rows:,} because {reason}{shown}" + (f": {hint}" if hint else ""))
        return "; ".join(reasons)

    def _ids(self, column: pa.Array, what: str) -> _Cells:
        import pyarrow as pa

        column = _plain(column)
        missing = _nulls(column)
        bad = [(f"{what} is missing", missing)] if missing.any() else []
        kind = column.type
        if pa.types.is_null(kind):
            column = column.cast(pa.string())
        if pa.types.is_integer(column.type):
            try:
                values = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                raise DataError(
                    f"{self.source.name}: {what} holds ids of 2**63 and more; give them as text"
                ) from None
            return _Cells(values, bad)
        if not _is_text(column):
            raise DataError(
                f"{self.source.name}: {what} has type {kind}; node ids are integers or names"
            )
        if self.source.untyped:
            numbers = _cast(column, pa.int64())
            # "007" stays a name: as a number it would be another's.
            if not _is_text(numbers) and numbers.cast(pa.string()).equals(column):
                return _Cells(numbers.fill_null(0).to_numpy(zero_copy_only=False), bad)
        if self.source.untyped and _matching(column, r"^-?[0-9]*\.[0-9]+$").all():
            raise DataError(
                f"{self.source.name}: {what} holds fractions like {column[0]}; node ids are"
                " integers or names"
            )
        return _Cells(column.fill_null(""), bad)

    def _weights(self, column: pa.Array, op: _Cells | None, only: bool) -> _Cells:
        cells = _numbers(column, "weight")
        values = cells.values = cells.values.astype(np.float64)
        infinite = np.isinf(values)
        if op is not None:
            infinite &= op.values != Op.REMOVE
        if infinite.any():
            cells.bad.append(("weight is not finite", infinite))
        if (only or "weight" not in self.chosen.guessed) and (values <= 0).any():
            cells.bad.append(("weight is not positive", values <= 0))
        return cells

    def _labels(self, column: pa.Array) -> _Cells:
        cells = _numbers(column, "label")
        missing = np.zeros(len(column), dtype=np.bool_)
        for reason, bad in cells.bad:
            if reason == "label is missing":
                missing |= bad
        cells.bad = [(reason, bad) for reason, bad in cells.bad if reason != "label is missing"]
        fraction = cells.values != np.rint(cells.values)
        if fraction.any():
            cells.bad.append(("label is not an integer", fraction))
        cells.values = np.where(missing, -1, np.rint(cells.values)).astype(np.int64)
        self.unlabelled += int(missing.sum())
        return cells

    def _check_order(
        self, t: _Moments, index: IntArray, last: tuple[int, float] | None
    ) -> tuple[int, float]:
        rest = np.zeros(len(t.whole)) if t.rest is None else t.rest
        whole = t.whole
        if last is not None:
            whole, rest = np.append(last[0], whole), np.append(last[1], rest)
        back = (whole[1:] < whole[:-1]) | ((whole[1:] == whole[:-1]) & (rest[1:] < rest[:-1]))
        if back.any():
            at = int(back.argmax())
            row = int(index[at + 1 if last is None else at])
            now, before = (_shown(int(whole[k]), float(rest[k])) for k in (at + 1, at))
            raise DataError(
                f"{self.source.name} is not in time order: t is {now} in {self.source.place(row)},"
                f" after {before}; sort it by t, or say sort=True to read_table"
            )
        return int(whole[-1]), float(rest[-1])

    def report(self, notes: Sequence[str]) -> ReadReport:
        notes = [*self.chosen.notes, *notes]
        if self.source.comments:
            lines = counted(self.source.comments, "line")
            notes.append(f"{lines} beginning with # or % passed over as comments")
        if self.unlabelled:
            notes.append(f"{counted(self.unlabelled, 'row')} without a label, which is kept as -1")
        return ReadReport(self.source.name, self.read, self.kept, dict(self.dropped), tuple(notes))


def _written_how(reason: str, cell: Any) -> str:
    """How what is in a cell is to be written, where that may be unknown."""
    if isinstance(cell, str) and re.match(_COMMA, cell.strip()):
        return "decimals are written with a point, as 1.5"
    if reason in ("t is not a number", "t is not an ISO date"):
        return "times are ISO dates like 2024-03-01 10:01, or numbers, and all of one kind"
    return ""


def _shown(whole: int, rest: float) -> str:
    """A time as a decimal with what digits it has, nine behind the point at most."""
    billionths = whole * 10**9 + round(rest * 10**9)
    sign, (before, after) = "-" if billionths < 0 else "", divmod(abs(billionths), 10**9)
    return f"{sign}{before}.{after:09d}".rstrip("0").rstrip(".")


def _arrow(values: Any) -> bool:
    return not isinstance(values, (np.ndarray, _Moments))


def _mask(used: NDArray[np.bool_]) -> Any:
    import pyarrow as pa

    return pa.array(used)


# Node numbers -------------------------------------------------------------------------------------


class _Numbering:
    """Numbers for ids, in the order in which they are first seen.

    Integers are looked up in one sorted array, which takes 12 bytes per node; the first name that
    is no integer turns all into names.
    """

    def __init__(self) -> None:
        self._sorted: IntArray = np.empty(0, dtype=np.int64)
        self._numbers: NDArray[np.int32] = np.empty(0, dtype=np.int32)  # of the ids in `_sorted`
        self._names: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self._sorted) if self._names is None else len(self._names)

    def __call__(self, ids: Any) -> NDArray[np.int32]:
        import pyarrow as pa

        if self._names is None and _arrow(ids):
            self._names = {str(name): number for number, name in enumerate(self.ids().tolist())}
            self._sorted, self._numbers = self._sorted[:0], self._numbers[:0]
        column = ids if _arrow(ids) else pa.array(ids)
        if self._names is not None:
            column = column.cast(pa.string())
        encoded = column.dictionary_encode()
        if self._names is not None:
            names = self._names
            new = [names.setdefault(name, len(names)) for name in encoded.dictionary.to_pylist()]
            numbers = np.array(new, dtype=np.int32)
        else:
            numbers = self._number(encoded.dictionary.to_numpy())
        return numbers[encoded.indices.to_numpy()]  # type: ignore[no-any-return]

    def _number(self, seen: IntArray) -> NDArray[np.int32]:
        """The numbers of distinct integers in the order of first appearance."""
        order = np.argsort(seen)
        ascending = seen[order]
        at = np.searchsorted(self._sorted, ascending)
        known = np.zeros(len(seen), dtype=np.bool_)
        inside = at < len(self._sorted)
        known[inside] = self._sorted[at[inside]] == ascending[inside]
        numbers = np.empty(len(seen), dtype=np.int32)
        numbers[order[known]] = self._numbers[at[known]]
        fresh = np.sort(order[~known])  # back in the order of appearance
        if len(self) + len(fresh) >= _KEPT_IDS:
            raise DataError("there are more than 2**31 nodes, which is more than can be numbered")
        if not len(fresh):
            return numbers
        numbers[fresh] = np.arange(len(self), len(self) + len(fresh), dtype=np.int32)
        self._numbers = np.insert(self._numbers, at[~known], numbers[order[~known]])
        self._sorted = np.insert(self._sorted, at[~known], ascending[~known])
        return numbers

    def ids(self) -> NDArray[Any]:
        """The ids by number."""
        if self._names is not None:
            return np.array(list(self._names), dtype=np.dtypes.StringDType())
        ids = np.empty(len(self), dtype=np.int64)
        ids[self._numbers] = self._sorted
        return ids


def _interleaved(src: Any, dst: Any) -> Any:
    """src[0], dst[0], src[1], dst[1], ...: numbers then do not depend on the size of batches."""
    import pyarrow as pa

    if not _arrow(src) and not _arrow(dst):
        return np.stack([src, dst], axis=1).ravel()
    both = [
        column if _arrow(column) else pa.array(column).cast(pa.string()) for column in (src, dst)
    ]
    order = np.arange(2 * len(src)).reshape(2, -1).T.ravel()
    return pa.concat_arrays(both).take(pa.array(order))


class _Repeats:
    """Counts the rows that say what an earlier row of the same time said: same nodes, same time."""

    def __init__(self) -> None:
        self.count = 0
        self._t: int | None = None
        self._pairs: IntArray = np.empty(0, dtype=np.int64)  # seen at the last time so far

    def see(self, src: NDArray[Any], dst: NDArray[Any], t: IntArray) -> None:
        pair = (src.astype(np.int64) << 31) | dst
        run = np.concatenate([[0], np.cumsum(t[1:] != t[:-1])])
        together = np.bincount(run)[run] > 1
        if together.any():
            order = np.lexsort((pair[together], run[together]))
            pairs, runs = pair[together][order], run[together][order]
            self.count += int(((pairs[1:] == pairs[:-1]) & (runs[1:] == runs[:-1])).sum())
        if self._t == int(t[0]):
            self.count += int(np.isin(np.unique(pair[run == 0]), self._pairs).sum())
        tail = np.unique(pair[run == run[-1]])
        if run[-1] == 0 and self._t == int(t[0]):
            tail = np.union1d(tail, self._pairs)
        self._t, self._pairs = int(t[-1]), tail


def _counted(loops: int, repeats: int) -> list[str]:
    notes = []
    if loops == 1:
        notes.append("1 event leads from a node to itself; it is kept")
    elif loops:
        notes.append(f"{loops:,} events lead from a node to itself; they are kept")
    if repeats == 1:
        notes.append("1 event repeats another of the same time; it is kept")
    elif repeats:
        notes.append(f"{repeats:,} events repeat another of the same time; they are kept")
    return notes


# The two ways to read -----------------------------------------------------------------------------


class TableScan:
    """A table as a sequence of streams, one per piece, in bounded memory; see `scan_table`.

    Every iteration reads anew. `report`, `names` and `nodes` speak of the last one and are there
    once it has reached the end.
    """

    def __init__(self, reading: _Reading, ids: Ids) -> None:
        if ids not in ("keep", "number"):
            raise ParameterError(f"ids is {ids!r}; a scan takes 'keep' or 'number'")
        self._reading = reading
        self._ids = ids
        self._end: tuple[int, NodeNames | None, ReadReport] | None = None

    def __iter__(self) -> Iterator[EventStream]:
        self._end = None
        reading, numbering, repeats = self._reading, _Numbering(), _Repeats()
        clock = reading.survey()
        unit, _ = _unit(reading, clock)
        nodes = loops = 0
        for rows in reading.rows(sorted_only=True, weights_only=True):
            if self._ids == "keep":
                src, dst = _kept_ids(rows.src, reading), _kept_ids(rows.dst, reading)
                nodes = max(nodes, int(src.max()) + 1, int(dst.max()) + 1)
            else:
                numbers = numbering(_interleaved(rows.src, rows.dst))
                src, dst = numbers[0::2], numbers[1::2]
                nodes = len(numbering)
            t = _ticks(clock, rows.t, unit)
            repeats.see(src, dst, t)
            loops += int((src == dst).sum())
            yield EventStream.from_arrays(
                src,
                dst,
                t,
                weight=rows.weight,
                op=rows.op,
                edge_features=rows.features,
                labels=rows.label,
                nodes=nodes,
                unit=unit,
                title=Path(reading.source.name).name,
            )
        names = None if self._ids == "keep" else NodeNames(numbering.ids())
        notes = [_unit(reading, clock)[1], *_rounded(clock), *_counted(loops, repeats.count)]
        self._end = nodes, names, reading.report(notes)

    def _at_end(self) -> tuple[int, NodeNames | None, ReadReport]:
        if self._end is None:
            raise DataError("the scan has not reached its end; iterate over it first")
        return self._end

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self._at_end()[0]

    @property
    def names(self) -> NodeNames | None:
        """The ids of the file by number; None where they were kept."""
        return self._at_end()[1]

    @property
    def report(self) -> ReadReport:
        """What became of the rows, and how the columns were understood."""
        return self._at_end()[2]


def _unit(reading: _Reading, clock: _Clock) -> tuple[str, str]:
    """The unit of the stream, and a sentence about it."""
    found, factor = clock.scale
    if reading.dates:
        if reading.unit is not None:
            levels = [name for name, _ in clock.scales]
            if levels.index(reading.unit) < levels.index(found):
                raise DataError(
                    f"{reading.source.name}: t needs unit {found}, and {reading.unit} was given"
                )
            found = reading.unit
        return found, f"t holds dates, kept in {found} since 1970 (UTC where no zone is written)"
    if factor != 1:
        return found, f"t has fractions of {clock.scales[0][0]} and is kept in {found}"
    how = "as given" if reading.unit else "as nothing else was said"
    return found, f"t counts {found}, {how}"


def _rounded(clock: _Clock) -> list[str]:
    if not clock.rounded:
        return []
    finest = clock.scale[0]
    if clock.rounded == 1:
        return [f"1 time is written finer than {finest} and rounded to it"]
    return [f"{clock.rounded:,} times are written finer than {finest} and rounded to it"]


def _ticks(clock: _Clock, moments: _Moments, unit: str) -> IntArray:
    """The times in `unit`, which may be finer than the clock asks for."""
    scales = dict(clock.scales)
    return clock.ticks(moments) * (scales[unit] // clock.scale[1])


def _kept_ids(ids: Any, reading: _Reading) -> NDArray[np.int32]:
    if _arrow(ids) or int(ids.min()) < 0 or int(ids.max()) >= _KEPT_IDS:
        shown = ids[0] if _arrow(ids) else ids[int(np.argmax((ids < 0) | (ids >= _KEPT_IDS)))]
        raise DataError(
            f"{reading.source.name} has the node id {shown}; ids='keep' takes integers from 0 to"
            " 2**31 - 1: say ids='number'"
        )
    return ids.astype(np.int32)  # type: ignore[no-any-return]


def scan_table(
    source: Any,
    *,
    src: Column | None = None,
    dst: Column | None = None,
    t: Column | None = None,
    weight: Column | None = None,
    op: Column | None = None,
    label: Column | None = None,
    edge_features: Sequence[Column] | Column = (),
    unit: str | None = None,
    ids: Ids = "number",
    on_bad: Literal["error", "drop"] = "error",
    header: bool | None = None,
    delimiter: str | None = None,
) -> TableScan:
    """The table piece by piece, for tables that are larger than memory.

    Arguments are those of `read_table`; the rows must be in time order and weights positive.
    ids: "number" numbers nodes in the order in which they first appear, the source of a row before
        its destination; "keep" takes integers from 0 to 2**31 - 1 as they are.
    Times that are not integers cost a first pass over them, to find their unit.

    >>> scan = scan_table({"src": [7, 7], "dst": [8, 9], "t": [1, 2]})
    >>> [chunk.dst.tolist() for chunk in scan], scan.nodes
    ([[1, 2]], 3)
    """
    roles = {"src": src, "dst": dst, "t": t, "weight": weight, "op": op, "label": label}
    reading = _Reading(
        source,
        unit=unit,
        on_bad=on_bad,
        header=header,
        delimiter=delimiter,
        edge_features=edge_features,
        roles=roles,
    )
    return TableScan(reading, ids)


def read_table(
    source: Any,
    *,
    src: Column | None = None,
    dst: Column | None = None,
    t: Column | None = None,
    weight: Column | None = None,
    op: Column | None = None,
    label: Column | None = None,
    edge_features: Sequence[Column] | Column = (),
    unit: str | None = None,
    sort: bool = False,
    ids: Ids = "auto",
    bipartite: bool = False,
    on_bad: Literal["error", "drop"] = "error",
    header: bool | None = None,
    delimiter: str | None = None,
    title: str | None = None,
) -> EventStream:
    """The stream of a table of edges, with a `report` of how it was understood.

    source: the path of a text file (commas, tabs, semicolons or white space; compressed or not), of
        a Parquet, Arrow or Feather file; an Arrow table; a data frame of pandas or Polars; a dict
        of vectors; a structured array.
    src, dst, t, weight, op, label: the column's name, or its place from 0. Where None it is guessed
        from the header, or without one from the order src, dst, t, weight; False leaves out a
        weight, op or label that would be guessed. A guessed weight with values <= 0 becomes an edge
        feature. A missing label is -1.
    edge_features: columns of numbers; "rest" takes all that have no other role.
    unit: what numbers in t count, seconds by default. Fractions lead to the coarsest finer unit
        that holds them all, each digit as it is written; what is finer than ns is rounded, and
        counted. A number with an exponent is read as a float64. Dates are counted from 1970 in the
        coarsest of s, ms, us, ns. Times before zero are earlier, and nothing else.
    sort: sorts the rows by time; without it unsorted rows are an error.
    ids: "auto" keeps ids that are exactly 0 .. n-1 and numbers others in the order of appearance,
        all sources before the nodes that are only destinations; "number" numbers in any case;
        "keep" takes integers from 0 to 2**31 - 1 as they are, whether or not all of them occur.
    bipartite: an id means one node as a source and another as a destination, as in tables of users
        and items; destinations get the numbers after the sources.
    on_bad: "error" refuses a table with a row that cannot be used, "drop" drops and counts those.
    header, delimiter: of text, where the guess is wrong.

    >>> stream = read_table({"from": ["ann", "bob"], "to": ["bob", "eve"], "when": [1, 2]})
    >>> stream.names[2], stream.dst.tolist()
    ('eve', [1, 2])
    """
    if ids not in ("auto", "keep", "number"):
        raise ParameterError(f"ids is {ids!r}; give 'auto', 'keep' or 'number'")
    roles = {"src": src, "dst": dst, "t": t, "weight": weight, "op": op, "label": label}
    reading = _Reading(
        source,
        unit=unit,
        on_bad=on_bad,
        header=header,
        delimiter=delimiter,
        edge_features=edge_features,
        roles=roles,
    )
    numberings = [_Numbering()] * 2 if not bipartite else [_Numbering(), _Numbering()]
    clock = reading.clock()
    pieces: dict[str, list[Any]] = {name: [] for name in ("src", "dst", "weight", "op", "label")}
    pieces["features"], moments = [], []
    for rows in reading.rows(sorted_only=not sort, weights_only=False):
        if ids == "keep":
            both = [_kept_ids(column, reading) for column in (rows.src, rows.dst)]
        elif bipartite:
            both = [
                number(ids) for number, ids in zip(numberings, (rows.src, rows.dst), strict=True)
            ]
        else:
            numbers = numberings[0](_interleaved(rows.src, rows.dst))
            both = [numbers[0::2], numbers[1::2]]
        for name, values in zip(("src", "dst"), both, strict=True):
            pieces[name].append(np.ascontiguousarray(values))
        for name in ("weight", "op", "label", "features"):
            pieces[name].append(getattr(rows, name))
        clock.see(rows.t)
        moments.append(rows.t)
    found, sentence = _unit(reading, clock)
    notes = [sentence]
    times = np.concatenate([_ticks(clock, piece, found) for piece in moments])
    notes += _rounded(clock)
    moments.clear()
    early = int((np.diff(times) < 0).sum())
    if early:
        notes.append(
            f"{counted(early, 'row')} {'is' if early == 1 else 'are'} earlier than the row before;"
            " all were sorted by time"
        )
    columns = {name: _joined(pieces.pop(name)) for name in list(pieces)}
    if ids == "keep":
        both_ids, nodes, names = [columns["src"], columns["dst"]], None, None
    else:
        both_ids, nodes, names = _renumbered(
            columns["src"], columns["dst"], numberings, ids, bipartite
        )
    features, weights = columns["features"], columns["weight"]
    if weights is not None and (weights <= 0).any():
        count = int((weights <= 0).sum())
        notes.append(
            f"column {reading.chosen.roles['weight']!r} is <= 0 in {count:,} rows, so it is kept as"
            " an edge feature (the last) and every event counts 1"
        )
        extra = weights.astype(np.float32)[:, None]
        features = extra if features is None else np.concatenate([features, extra], axis=1)
        weights = None
    stream = EventStream.from_arrays(
        both_ids[0],
        both_ids[1],
        times,
        weight=weights,
        op=columns["op"],
        edge_features=features,
        labels=columns["label"],
        nodes=nodes,
        names=names,
        unit=found,
        sort=sort,
        title=Path(reading.source.name).name if title is None else title,
    )
    repeats = _Repeats()
    for first in range(0, len(stream), _BATCH_ROWS):
        piece = slice(first, first + _BATCH_ROWS)
        repeats.see(stream.src[piece], stream.dst[piece], stream.t[piece])
    notes += _counted(int((stream.src == stream.dst).sum()), repeats.count)
    return replace(stream, report=reading.report(notes))


def _joined(pieces: list[Any]) -> Any:
    return None if not pieces or pieces[0] is None else np.concatenate(pieces)


def _renumbered(
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    numberings: Sequence[_Numbering],
    ids: Ids,
    bipartite: bool,
) -> tuple[list[IntArray], int, NodeNames | None]:
    """Both columns in their final numbers, the number of nodes and their names."""
    if bipartite:
        users, items = (numbering.ids() for numbering in numberings)
        whole = all(_is_range(side) for side in (users, items)) and ids == "auto"
        if whole:
            src_ids, dst_ids = users[src], items[dst] + len(users)
            return [src_ids, dst_ids], len(users) + len(items), None
        names = [f"src {name}" for name in users.tolist()]
        names += [f"dst {name}" for name in items.tolist()]
        columns = [src.astype(np.int64), dst.astype(np.int64) + len(users)]
        return columns, len(names), NodeNames(np.array(names, dtype=np.dtypes.StringDType()))
    given = numberings[0].ids()
    nodes = len(given)
    if ids == "auto" and _is_range(given):
        return [given[src], given[dst]], nodes, None
    if ids == "number":
        return [src.astype(np.int64), dst.astype(np.int64)], nodes, NodeNames(given)
    # Numbers follow first appearance already; what is left is to put the sources first.
    sources = np.zeros(nodes, dtype=np.bool_)
    sources[src] = True
    order = np.concatenate([_by_first_row(src, nodes), np.flatnonzero(~sources)])
    place = np.empty(nodes, dtype=np.int64)
    place[order] = np.arange(nodes)
    return [place[src], place[dst]], nodes, NodeNames(given[order])


def _by_first_row(ids: NDArray[np.int32], nodes: int) -> IntArray:
    """The nodes that occur, in the order in which they first do."""
    first = np.full(nodes, len(ids), dtype=np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return np.argsort(first, kind="stable")[: int((first < len(ids)).sum())]


def _is_range(ids: NDArray[Any]) -> bool:
    """Whether the ids are exactly 0 .. n-1, in any order."""
    if ids.dtype.kind != "i" or not len(ids) or int(ids.min()) != 0:
        return False
    return int(ids.max()) == len(ids) - 1  # they are distinct
