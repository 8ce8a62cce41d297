"""The times of a table: read without loss, then counted in the coarsest unit that holds them all.

A time is read as whole units and a remainder. Once a clock has seen all times it knows the unit and
returns them as integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.columns import TIME_LIMIT, FloatArray, IntArray, whole_numbers
from tidegraph.events.moments import PER_SECOND
from tidegraph.events.tables import cells
from tidegraph.events.tables.cells import DATE, Bad, Cells

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL = r"^(?P<sign>[+-]?)0*(?P<whole>[0-9]{0,18})(?:\.(?P<fraction>[0-9]*))?$"
_FRACTION_DIGITS = 18  # read of a decimal; as an integer they fit into int64
_FRACTION = 10**_FRACTION_DIGITS
_DATE_SLACK = 2.0**-52  # of the fraction of a second of a date: one division
_ZONED = r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
# The codes of strptime as expressions; a format without an hour may be followed by a time of day.
_CODES = {code: f"(?P<{code}>[0-9]{{1,2}})" for code in "dmHIMS"}
_CODES |= {"Y": "(?P<Y>[0-9]{4})", "y": "(?P<y>[0-9]{2})", "f": "(?P<f>[0-9]{1,9})", "%": "%"}
_CODES |= {"p": r"(?P<p>[AaPp])\.?[Mm]\.?", "z": "(?P<z>Z|UTC|[+-][0-9]{2}:?[0-9]{2})"}
_CODES |= dict.fromkeys("bB", "(?P<b>[A-Za-z]{3})[a-z]*")
_TIME_OF_DAY = (
    rf"(?:(?:T|,? +){_CODES['H']}:{_CODES['M']}(?::{_CODES['S']}(?:[.,]{_CODES['f']})?)?"
    rf"(?: ?{_CODES['p']})?(?: ?{_CODES['z']})?)?"
)
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"

# The next finer unit, and how many of it make one, down to nanoseconds.
_FINER = {"day": ("h", 24), "h": ("min", 60), "min": ("s", 60), "s": ("ms", 1000)}
_FINER |= {"ms": ("us", 1000), "us": ("ns", 1000)}


@dataclass
class Moments:
    """Times as whole units and remainders, so that nothing is lost before the unit is known.

    A remainder is known up to `slack`: what was lost when it was written as a float.
    """

    whole: IntArray
    rest: FloatArray | None = None  # None: all zero
    slack: FloatArray | None = None

    @classmethod
    def of(cls, whole: IntArray, rest: FloatArray, slack: FloatArray | float) -> Moments:
        """Return the moments, without remainders if all of them are zero."""
        if not rest.any():
            return cls(whole)
        return cls(whole, rest, np.broadcast_to(slack, rest.shape))

    def __getitem__(self, rows: NDArray[np.bool_]) -> Moments:
        if self.rest is None or self.slack is None:
            return Moments(self.whole[rows])
        return Moments(self.whole[rows], self.rest[rows], self.slack[rows])


class Clock:
    """Finds the coarsest unit that represents all the times it sees."""

    def __init__(self, unit: str) -> None:
        self.scales = [(unit, 1)]
        while self.scales[-1][0] in _FINER:
            finer, factor = _FINER[self.scales[-1][0]]
            self.scales.append((finer, factor * self.scales[-1][1]))
        self.rounded = 0  # times that had to be rounded so far
        self.span: tuple[int, int] | None = None  # the earliest and the latest time so far
        self.like_dates = True  # whether all times so far may be dates such as 20240131
        self._level = 0

    def see(self, moments: Moments) -> None:
        """Take times into account."""
        if not moments.whole.size:
            return
        low, high = int(moments.whole.min()), int(moments.whole.max())
        first, last = self.span or (low, high)
        self.span = min(first, low), max(last, high)
        self.like_dates = self.like_dates and moments.rest is None and _are_days(moments.whole)
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
                f"t has fractions of a {self.scales[0][0]}, which has no smaller unit here; give"
                " whole numbers"
            )

    def count_in(self, unit: str) -> None:
        """Take the numbers for a finer unit than was thought."""
        scales = Clock(unit).scales
        self.scales, self._level = scales, min(self._level, len(scales) - 1)

    @property
    def _reach(self) -> int:
        low, high = self.span or (0, 0)
        return max(0, -low, high + 1)

    @property
    def scale(self) -> tuple[str, int]:
        """The unit, and how many of it make one of the given unit."""
        level = self._level
        while level and self._reach * self.scales[level][1] >= TIME_LIMIT:
            level -= 1  # int64 has no room for the finer unit so far from zero
        if self._reach * self.scales[level][1] > TIME_LIMIT:
            raise DataError(
                f"t reaches {self._reach - 1}, beyond 62-bit integers; use a coarser unit"
            )
        return self.scales[level]

    def ticks(self, moments: Moments, unit: str | None = None) -> IntArray:
        """Return the times in the clock's unit, or in a finer one."""
        found, factor = self.scale
        finer = dict(self.scales)[unit or found] // factor
        if moments.rest is None:
            return moments.whole * factor * finer
        scaled = moments.rest * factor
        nearest = np.rint(scaled)
        if moments.slack is not None:
            self.rounded += int((np.abs(scaled - nearest) > moments.slack * factor).sum())
        return (moments.whole * factor + nearest.astype(np.int64)) * finer


def _are_days(numbers: IntArray) -> bool:
    """Whether all numbers, read as yyyymmdd, are days of the last century or this one."""
    if numbers.min() < 1900_01_01 or numbers.max() > 2099_12_31:
        return False
    month, day = numbers // 100 % 100, numbers % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


def _from_floats(values: NDArray[Any]) -> Moments:
    """Return finite floats exactly: a float is an integer plus a fraction that float64 holds."""
    slack = np.spacing(np.abs(values)).astype(np.float64)  # of the given type, which may be float32
    wide = values.astype(np.float64)
    if (np.abs(wide) >= TIME_LIMIT).any():
        raise DataError(
            f"t reaches {np.abs(wide).max():g}, beyond 62-bit integers; use a coarser unit"
        )
    whole = np.floor(wide)
    return Moments.of(whole.astype(np.int64), wide - whole, slack)


def _from_seconds(ticks: IntArray, per_second: int) -> Moments:
    whole, rest = np.divmod(ticks, per_second)
    return Moments.of(whole, rest / per_second, _DATE_SLACK)


def _from_decimals(column: pa.Array) -> Moments:
    """Return numbers as written, digit by digit; cells without a number are 0.

    A number with an exponent, or with more digits than any time has, was written by a program from
    a float and means that float.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.extract_regex(column, _DECIMAL)
    plain = ~cells.nulls(parts)
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
    written = np.flatnonzero(~plain & ~cells.nulls(column))
    if len(written):
        floats = _from_floats(column.take(pa.array(written)).cast(pa.float64()).to_numpy())
        whole[written] = floats.whole
        if floats.rest is not None and floats.slack is not None:
            rest[written], slack[written] = floats.rest, floats.slack
    return Moments.of(whole, rest, slack)


def read_times(column: pa.Array, form: str | None) -> Cells:
    """Return the column as `Moments`: of seconds for dates, of the given unit for numbers.

    form: None for numbers, "iso" for ISO dates and dates by their type, or a format of strptime.
    """
    import pyarrow as pa

    column = cells.plain_column(column)
    if form is None:
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.string())
        if cells.is_text(column):
            column = cells.cast_if_all_fit(column, pa.int64())
        if cells.is_text(column):
            return _written_times(column)
        found = cells.read_numbers(column, "t")
        if found.values.dtype.kind == "i":
            found.values = Moments(found.values)
            return found
        infinite = np.isinf(found.values)
        found.bad.append(Bad("t", "not finite", infinite))
        found.values = _from_floats(np.where(infinite, found.values.dtype.type(0), found.values))
        return found
    if form != "iso" and not cells.is_text(column):
        column = column.cast(pa.string())  # 20240131, as a number
    if cells.is_text(column):
        column = cells.without_missing(column)
        if form == "iso":
            return _written_dates(column)
        found = _written_dates(_as_iso(column, form))
        problem = f"not a date like {form}"
        return Cells(
            found.values,
            [Bad("t", problem, b.rows) if b.problem == cells.NOT_A_DATE else b for b in found.bad],
        )
    bad = cells.empty_cells(column, "t")
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    ticks = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return Cells(_from_seconds(ticks, PER_SECOND[column.type.unit]), [bad])


def _written_times(column: pa.Array) -> Cells:
    """Return numbers in text, not all of which are integers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column, wrong = cells.numerals(column, "t")
    missing = cells.empty_cells(column, "t", [wrong])
    infinite = cells.matching(column, r"^(?i:[+-]?inf(inity)?)$") & ~cells.nulls(column)
    column = pc.if_else(pa.array(infinite), pa.scalar(None, pa.string()), column)
    return Cells(_from_decimals(column), [wrong, missing, Bad("t", "not finite", infinite)])


def date_pattern(form: str) -> str:
    """Return the expression of a format of strptime; raise ParameterError if it has no year."""
    unknown = [code for code in re.findall("%(.?)", form) if code not in _CODES]
    groups = re.findall("%([^%])", form)
    timed = bool({"H", "I"} & set(groups))
    if (
        unknown
        or not {"Y", "y"} & set(groups)
        or len(set(groups)) < len(groups)
        or (not timed and set("MSfpz") & set(groups))
    ):
        raise ParameterError(
            f"date_format is {form!r}; give one like %d.%m.%Y or %m/%d/%y %I:%M %p, of"
            f" {' '.join('%' + code for code in _CODES)} (docs.python.org: strptime)"
        )
    pieces = re.split("%(.)", form)
    pattern = "".join(_CODES[p] if k % 2 else re.escape(p) for k, p in enumerate(pieces))
    return f"^{pattern.replace('?P<I>', '?P<H>')}{'' if timed else _TIME_OF_DAY}$"


def _as_iso(column: pa.Array, form: str) -> pa.Array:
    """Return dates in text as ISO dates; what is none as "?"."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pattern = date_pattern(form)
    parts = pc.extract_regex(column, pattern)

    def part(name: str, default: str, width: int = 2) -> pa.Array:
        if f"?P<{name}>" not in pattern:
            return pa.array([default] * len(column), pa.string())
        found = pc.struct_field(parts, name)
        return pc.utf8_lpad(pc.if_else(pc.equal(found, ""), default, found), width, "0")

    year, month, hour = part("Y", ""), part("m", "01"), part("H", "00")
    if "?P<y>" in pattern:
        short = part("y", "00")
        year = pc.binary_join_element_wise(
            pc.if_else(pc.less(short.cast(pa.int64()), 69), "20", "19"), short, ""
        )
    if "?P<b>" in pattern:
        number = pc.index_in(pc.utf8_lower(part("b", "")), value_set=pa.array(_MONTHS.split()))
        month = pc.utf8_lpad(pc.add(number, 1).cast(pa.string()), 2, "0")
    if "?P<p>" in pattern:
        half = pc.utf8_lower(part("p", "", 0))
        hours = hour.cast(pa.int64())
        noon = pc.subtract(hours, pc.multiply(pc.divide(hours, 12), 12))  # 12 AM is 0
        noon = pc.add(noon, pc.if_else(pc.equal(half, "p"), 12, 0))
        shifted = pc.utf8_lpad(noon.cast(pa.string()), 2, "0")
        hour = pc.if_else(pc.or_(pc.equal(half, ""), pc.greater(hours, 12)), hour, shifted)
    fraction, zone = part("f", "", 0), pc.replace_substring(part("z", "", 0), "UTC", "Z")
    pointed = pc.binary_join_element_wise(".", fraction, "")
    fraction = pc.if_else(pc.equal(fraction, ""), "", pointed)
    date = pc.binary_join_element_wise(year, month, part("d", "01"), "-")
    time = pc.binary_join_element_wise(hour, part("M", "00"), part("S", "00"), ":")
    iso = pc.binary_join_element_wise(date, "T", time, fraction, zone, "")
    return pc.if_else(pc.is_valid(column), iso.fill_null("?"), pa.scalar(None, pa.string()))


def day_and_month(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the first two numbers of dates whose year comes last; other cells are empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.extract_regex(cells.plain_column(column), cells.DAY_OR_MONTH)
    first, second = (pc.struct_field(parts, name).cast(pa.int64()) for name in "ab")
    return first, second


def _written_dates(column: pa.Array) -> Cells:
    """Return ISO dates; those without a zone are UTC."""
    import pyarrow as pa

    missing, wrong = cells.nulls(column), ~cells.matching(column, DATE)
    zoned = ~missing & cells.matching(column, _ZONED)
    whole, rest = np.zeros(len(column), np.int64), np.zeros(len(column))
    for zone, rows in (("UTC", zoned & ~wrong), (None, ~zoned & ~missing & ~wrong)):
        places = np.flatnonzero(rows)
        for first, size, moments in _parsed_dates(column.take(pa.array(places)), zone, 0):
            part = places[first : first + size]
            if moments is None:
                wrong[part] = True  # it looks like a date and is none: the 30th of February
                continue
            whole[part] = moments.whole
            rest[part] = 0 if moments.rest is None else moments.rest
    bad = [cells.empty_cells(column, "t"), Bad("t", cells.NOT_A_DATE, wrong)]
    return Cells(Moments.of(whole, rest, _DATE_SLACK), bad)


def _parsed_dates(
    column: pa.Array, zone: str | None, first: int
) -> Iterator[tuple[int, int, Moments | None]]:
    """Yield pieces `(first, size, moments)` of the column; moments is None for an invalid date."""
    import pyarrow as pa

    if not len(column):
        return
    for unit, per_second in PER_SECOND.items():
        ticks = cells.cast_if_all_fit(column, pa.timestamp(unit, zone))
        if not cells.is_text(ticks):
            moments = _from_seconds(ticks.cast(pa.int64()).to_numpy(), per_second)
            yield first, len(column), moments
            return
    if len(column) == 1:
        yield first, 1, None
        return
    half = len(column) // 2
    yield from _parsed_dates(column[:half], zone, first)
    yield from _parsed_dates(column[half:], zone, first + half)


def whole_times(values: Any, unit: str = "s") -> tuple[IntArray, str]:
    """Return numbers of `unit` as int64 in the coarsest unit, from `unit` down, that loses nothing.

    Numbers in text are read digit by digit.

    >>> whole_times([0.5, 2.0])
    (array([ 500, 2000]), 'ms')
    """
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return whole_numbers(array, "t", error=DataError), unit
    if array.dtype.kind in "OUT" and array.ndim == 1:
        import pyarrow as pa

        found = read_times(pa.array(array.tolist(), pa.string()), None)
        for bad in found.bad:
            if bad.rows.any():
                row = int(bad.rows.argmax())
                raise DataError(f"{bad.reason} in row {row}: {array[row]!r}; give finite numbers")
        moments = found.values
    elif array.dtype.kind != "f" or array.ndim != 1:
        raise DataError(f"t has dtype {array.dtype} and shape {array.shape}; give numbers [events]")
    elif not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array)))
        raise DataError(f"t of row {row} is {array[row]}; finite numbers are accepted")
    else:
        moments = _from_floats(array)
    clock = Clock(unit)
    clock.see(moments)
    return clock.ticks(moments), clock.scale[0]
