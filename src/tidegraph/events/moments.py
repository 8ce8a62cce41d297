"""The times of a stream: units, dates as times, times as dates and as words."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tidegraph.core.errors import DataError
from tidegraph.core.words import counted
from tidegraph.events.columns import IntArray, whole_numbers

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Seconds in a unit; "step" has no length.
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0}
SECONDS |= {"day": 86_400.0, "year": 365.2425 * 86_400}
UNITS = (*SECONDS, "step")
_WORDS = (("year", SECONDS["year"]), ("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0))
# Times in this range are taken for dates; others count from an origin of their own.
_PLAUSIBLE = (np.datetime64("1980-01-01", "s"), np.datetime64("2100-01-01", "s"))
_EPOCHS = (631_152_000, 4_102_444_800)  # 1990 and 2100, in seconds


def moment(when: Any, unit: str) -> int:
    """Return a time in `unit` from a number of units, an ISO date or a datetime.

    A date without a zone is UTC.

    >>> moment("1970-01-02", "s"), moment(5, "s")
    (86400, 5)
    """
    if isinstance(when, (int, np.integer)) and not isinstance(when, bool):
        return int(when)
    accepted = f"a whole number of {unit}"
    if unit in PER_SECOND:
        accepted += ", or an ISO date like 2024-05-01T12:00"
    found = _moment(when, unit)
    if found is None:
        raise DataError(f"the time {when!r} is not understood; give {accepted}")
    if not -(2**63) <= found < 2**63:
        raise DataError(f"the time {when!r} is {found} {unit}, which does not fit into int64")
    return found


def _moment(when: Any, unit: str) -> int | None:
    """Return a time in `unit` that may be beyond int64; None if it is not understood."""
    if isinstance(when, str) and re.fullmatch("[+-]?[0-9]+", when.strip()):
        if unit in PER_SECOND and re.fullmatch("(19|20)[0-9]{2}(0[1-9]|1[0-2])[0-3][0-9]", when):
            return None  # a date or a number: nobody can tell
        return int(when)
    if unit not in PER_SECOND:
        return None
    if isinstance(when, np.datetime64):
        of, count = np.datetime_data(when.dtype)
        if np.isnat(when) or of == "generic":
            return None
        if of not in ("W", "D", "h", "m", "s", "ms", "us"):  # of no fixed length, or finer
            when, of, count = when.astype("datetime64[ns]"), "ns", 1
        per = int(np.array(1, f"m8[{of}]").astype("m8[ns]").astype(np.int64))
        nano = int(when.astype(np.int64)) * count * per
        return nano * PER_SECOND[unit] // 10**9
    if isinstance(when, str):
        with contextlib.suppress(ValueError):
            when = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", when))
    if not isinstance(when, datetime) or when != when:  # pandas' NaT is a datetime
        return None
    since = when.replace(tzinfo=when.tzinfo or timezone.utc) - datetime(
        1970, 1, 1, tzinfo=timezone.utc
    )
    micro = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    nano = micro * 1000 + int(getattr(when, "nanosecond", 0))  # pandas' Timestamp has them
    return nano * PER_SECOND[unit] // 10**9


def span(text: Any, unit: str) -> int:
    """Return a length of time in `unit` from words like 5s, 2min or 30day, or a whole number.

    >>> span("5s", "ms"), span("90min", "h"), span(7, "step")
    (5000, 1, 7)
    """
    if isinstance(text, (int, np.integer)) and not isinstance(text, bool) and text >= 0:
        return int(text)
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", str(text))
    number, of = (found[1], found[2] or unit) if found else ("", "")
    if of in (unit, f"{unit}s") and number.isdecimal():
        return int(number)
    of = of if of in SECONDS else of.removesuffix("s")
    if not number or of not in SECONDS or unit not in SECONDS:
        units = ", ".join(SECONDS) if unit in SECONDS else unit
        raise DataError(f"the span {text!r} is not understood; give a number and one of {units}")
    return int(float(number) * SECONDS[of] / SECONDS[unit])


def epoch_unit(number: int) -> str | None:
    """Return the unit in which a number since 1970 is a time between 1990 and 2100.

    >>> epoch_unit(1_704_067_444_000), epoch_unit(1_704_067_444), epoch_unit(17)
    ('ms', 's', None)
    """
    begin, end = _EPOCHS
    units = (unit for unit, per in PER_SECOND.items() if begin * per <= number < end * per)
    return next(units, None)


def times_of(values: Any, unit: str) -> IntArray:
    """Return times in `unit` as int64, in the same shape, from numbers, ISO dates or datetimes.

    >>> times_of(["1970-01-01T00:01", "1970-01-02"], "s")
    array([   60, 86400])
    """
    array = np.asarray(values)
    if array.size == 0 or array.dtype.kind in "iu":
        return time_numbers(array)
    moments = [moment(when, unit) for when in array.ravel()]
    return np.array(moments, dtype=np.int64).reshape(array.shape)


def time_numbers(values: ArrayLike) -> IntArray:
    """Return times as int64, in the same shape; raise DataError unless they are integers."""
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int64)  # an empty question may have any type
    advice = "times count the stream's unit, and stream.times_of(dates) converts dates"
    return whole_numbers(array, "times", advice=advice, error=DataError)


def dates(first: int, last: int, unit: str) -> tuple[str | None, str | None]:
    """Return two times as dates, in UTC, where they look like dates.

    >>> dates(1_388_534_400, 1_388_534_460, "s")
    ('2014-01-01 00:00:00', '2014-01-01 00:01:00')
    """
    if unit == "year":
        return str(first), str(last)
    if unit not in PER_SECOND:
        return None, None
    found = np.array([first, last]).astype(f"datetime64[{unit}]").astype("datetime64[s]")
    if not _PLAUSIBLE[0] <= found[0] <= found[1] < _PLAUSIBLE[1]:
        return None, None
    begin, end = (str(date).replace("T", " ") for date in found)
    return begin, end


def span_in_words(length: int, unit: str) -> str:
    """Return a length of time in words.

    >>> span_in_words(2_678_373, "s"), span_in_words(3, "year"), span_in_words(1, "step")
    ('31 days', '3 years', '1 step')
    """
    if unit in ("step", "year"):
        return counted(length, unit)
    seconds = length * SECONDS[unit]
    for word, of in _WORDS:
        amount = seconds / of
        if amount >= 2:
            return f"{amount:.1f} {word}s" if amount < 10 else f"{amount:,.0f} {word}s"
    return f"{seconds:.3g} seconds"
