"""Cells of a column as values: numbers, operations, and the cells that hold neither."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

MISSING, NOT_A_NUMBER, NOT_A_DATE = "missing", "not a number", "not an ISO date"
COMMA = r"^[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+),[0-9]+$"  # a decimal in many countries
_GROUPED = r"^([+-]?[0-9]{1,3}(\.[0-9]{3})+)(,|$)"
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^(?i:[+-]?inf(inity)?)$"
DATE = r"^[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
# Dates of other countries: the year before or after two other numbers, perhaps with a time.
DAY_OR_MONTH = r"^(?P<a>[0-9]{1,2})(?P<mark>[./-])(?P<b>[0-9]{1,2})[./-][0-9]{4}(?:[T, ].*)?$"
YEAR_FIRST = r"^[0-9]{4}(?P<mark>[./-])[0-9]{1,2}[./-][0-9]{1,2}(?:[T, ].*)?$"
# A date and a time of day without marks: 20240131235959, or without the seconds.
UNMARKED = (
    r"^(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])([01][0-9]|2[0-3])[0-5][0-9]"
    r"(?P<seconds>[0-5][0-9])?$"
)
MISSING_WORDS = ("", "na", "n/a", "nan", "nat", "null", "none")  # in columns of numbers and times
_OPS = {"add": 0, "remove": 1, "set": 2, "+": 0, "-": 1, "=": 2, "0": 0, "1": 1, "2": 2}


class Bad(NamedTuple):
    """Rows, perhaps none, that cannot be used because of one column, and why."""

    what: str
    problem: str
    rows: NDArray[np.bool_]

    @property
    def reason(self) -> str:
        return f"{self.what} is {self.problem}"


@dataclass
class Cells:
    """A column of one batch: its values, and which rows cannot be used and why."""

    values: Any
    bad: list[Bad]


def is_arrow(values: Any) -> bool:
    """Whether these are values of Arrow rather than of NumPy."""
    import pyarrow as pa

    return isinstance(values, pa.Array)


def is_date(cell: str) -> bool:
    """Whether a cell looks like a date that can be recognised."""
    return any(re.match(pattern, cell) for pattern in (DATE, DAY_OR_MONTH, YEAR_FIRST))


def with_point(cell: str, decimal: str) -> str:
    """Return a number in text with a point before its fraction; other points are no part of one.

    >>> with_point("1.234,5", ","), with_point("1.5", ",")
    ('1234.5', '1?5')
    """
    if decimal == ".":
        return cell
    if re.match(_GROUPED, cell):
        cell = cell.replace(".", "")
    return cell.replace(".", "?").replace(",", ".")


def with_points(column: pa.Array, decimal: str) -> pa.Array:
    """Return a column of numbers in text with points before fractions; others as they are."""
    import pyarrow as pa

    if decimal == "." or not is_text(plain := plain_column(column)):
        return column
    return pa.array([c and with_point(c, decimal) for c in plain.to_pylist()], pa.string())


def nulls(column: pa.Array) -> NDArray[np.bool_]:
    """Return which cells are empty."""
    return column.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def plain_column(column: pa.Array) -> pa.Array:
    """Return the column without dictionary encoding; text as one type, trimmed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column):
        column = pc.utf8_trim_whitespace(column.cast(pa.string()))
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    return column


def is_text(column: pa.Array) -> bool:
    """Whether the cells are strings of any Arrow type."""
    import pyarrow as pa

    kind = column.type
    views = getattr(pa.types, "is_string_view", lambda _: False)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or views(kind))


def as_words(column: pa.Array) -> pa.Array:
    """Return the column as text, whole numbers without a fraction; empty where it is NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain_column(column)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        column = cast_if_all_fit(column, pa.int64())
    return column if is_text(column) else column.cast(pa.string())


def without_missing(column: pa.Array) -> pa.Array:
    """Return text with the cells emptied that mean nothing: NA, null, ..."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pc.is_in(pc.utf8_lower(column), value_set=pa.array(MISSING_WORDS))
    return pc.if_else(missing, pa.scalar(None, pa.string()), column)


def matching(column: pa.Array, pattern: str) -> NDArray[np.bool_]:
    """Return which cells of text match the pattern; empty cells do."""
    import pyarrow.compute as pc

    matches = pc.match_substring_regex(column, pattern).fill_null(True)
    return matches.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def cast_if_all_fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the column as `kind`, or unchanged if a cell does not fit."""
    import pyarrow as pa

    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return column


def numerals(column: pa.Array, what: str) -> tuple[pa.Array, Bad]:
    """Return a column of text with only its numbers left, and which cells held anything else."""
    import pyarrow as pa

    column = without_missing(column)
    wrong = ~matching(column, NUMBER)
    if wrong.any():
        cells = np.where(wrong, None, column.to_numpy(zero_copy_only=False))
        column = pa.array(cells, pa.string())
    return column, Bad(what, NOT_A_NUMBER, wrong)


def empty_cells(column: pa.Array, what: str, known: Sequence[Bad] = ()) -> Bad:
    """Return which cells are empty, apart from those known to be bad."""
    missing = nulls(column)
    for bad in known:
        missing = missing & ~bad.rows
    return Bad(what, MISSING, missing)


def read_numbers(column: pa.Array, what: str) -> Cells:
    """Return int64 if all cells are integers, else float64; cells without a number hold 0."""
    import pyarrow as pa

    bad: list[Bad] = []
    column = plain_column(column)
    if is_text(column):
        column = cast_if_all_fit(column, pa.int64())
    if is_text(column):  # not all are integers: go cell by cell
        column, wrong = numerals(column, what)
        bad.append(wrong)
        column = cast_if_all_fit(column, pa.int64())
        if is_text(column):
            column = column.cast(pa.float64())
    if pa.types.is_null(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(f"{what} has type {column.type}; numbers are accepted")
    bad.append(empty_cells(column, what, bad))
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    if values.dtype == np.uint64 and values.size and int(values.max()) >= 2**63:
        values = values.astype(np.float64)
    if values.dtype.kind in "iu":
        return Cells(values.astype(np.int64), bad)
    strange = np.isnan(values)
    if strange.any():
        bad.append(Bad(what, MISSING, strange))
        values = np.where(strange, values.dtype.type(0), values)
    return Cells(values, bad)


def read_operations(column: pa.Array) -> Cells:
    """Return the column as codes of `Op`, from words, signs or codes."""
    import pyarrow as pa

    text = plain_column(column)
    if not is_text(text):
        text = text.cast(pa.string())
    codes = [_OPS.get((cell or "").lower(), -1) for cell in text.to_pylist()]
    values = np.array(codes, dtype=np.int64)
    bad = Bad("op", "none of add, remove, set", values < 0)
    return Cells(np.maximum(values, 0).astype(np.uint8), [bad])
