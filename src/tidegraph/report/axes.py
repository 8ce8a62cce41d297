"""Axes of charts: where values lie, and which of them are labelled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.events.moments import SECONDS, dates

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """One direction of a chart: its ends, and its labelled values."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, values: ArrayLike) -> FloatArray:
        """Return where values lie, from 0 at the low end to 1 at the high end."""
        given = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            given, low, high = np.log10(np.maximum(given, low)), math.log10(low), math.log10(high)
        return np.asarray((given - low) / ((high - low) or 1.0))


def compact(value: float) -> str:
    """Return a number short enough for an axis.

    >>> compact(0.25), compact(1500), compact(2_000_000), compact(0)
    ('0.25', '1,500', '2M', '0')
    """
    size = abs(value)
    for unit, word in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit:
            scale = 1e3 if word == "k" else unit
            return f"{value / scale:.3g}{word}" if size < 1e3 * scale else f"{value / scale:,.0f}k"
    if size and size < 1e-3:
        return f"{value:.2g}".replace("e-0", "e-")
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"


def _round_step(length: float, wanted: int) -> float:
    """Return a round number that fits about `wanted` times into a length."""
    raw = length / max(wanted, 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    return next(unit * k for k in (1, 2, 5, 10) if unit * k >= raw * 0.999)


def linear(
    label: str,
    values: ArrayLike,
    *,
    low: float | None = None,
    high: float | None = None,
    words: Callable[[float], str] = compact,
    wanted: int = 5,
) -> Axis:
    """Return an axis around the values; ends that are not given are rounded outwards."""
    given = np.asarray(values, dtype=np.float64)
    given = given[np.isfinite(given)]
    least = low if low is not None else float(given.min(initial=math.inf))
    most = high if high is not None else float(given.max(initial=-math.inf))
    if not least < most:  # one value, or none
        middle = least if math.isfinite(least) else 0.0
        least = middle - (abs(middle) * 0.1 or 1.0) if low is None else low
        most = max(middle, least) + (abs(middle) * 0.1 or 1.0)
    step = _round_step(most - least, wanted)
    if low is None:
        least = math.floor(least / step + 1e-9) * step
    if high is None:
        most = math.ceil(most / step - 1e-9) * step
    inside = range(math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9) + 1)
    return Axis(label, least, most, tuple((k * step, words(k * step + 0.0)) for k in inside))


def whole_numbers(label: str, first: float, last: float) -> Axis:
    """Return an axis that labels whole numbers only."""
    axis = linear(label, [first, last], low=first, high=last)
    ticks = tuple((tick, f"{tick:.0f}") for tick, _ in axis.ticks if tick == round(tick))
    return Axis(label, axis.low, axis.high, ticks or ((first, f"{first:.0f}"),))


def logarithmic(label: str, values: ArrayLike) -> Axis:
    """Return an axis of powers of ten around the positive values."""
    given = np.asarray(values, dtype=np.float64)
    given = given[given > 0]
    low = math.floor(math.log10(given.min())) if given.size else 0
    high = math.ceil(math.log10(given.max())) if given.size else 1
    high = max(high, low + 1)
    every = math.ceil((high - low) / 5)
    ticks = tuple((10.0**k, compact(10.0**k)) for k in range(low, high + 1, every))
    return Axis(label, 10.0**low, 10.0**high, ticks, log=True)


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# Units, coarse to fine, and the multiples that may be labelled. The first unit that fits three
# times into the axis is used.
_CALENDAR = {
    "Y": (1, 2, 5, 10, 20, 50, 100),
    "M": (1, 2, 3, 6),
    "D": (1, 2, 3, 5, 7, 14, 21),
    "h": (1, 2, 3, 6, 12),
    "m": (1, 2, 5, 10, 30),
    "s": (1, 2, 5, 10, 30),
}
_MOST_DATES = 6
_LENGTHS = (("years", "year"), ("days", "day"), ("hours", "h"), ("minutes", "min"))


def time_axis(first: float, last: float, unit: str, *, origin: float | None = None) -> Axis:
    """Return an axis of dates if times are dates, else of the time since `origin` in a usual unit.

    `origin` is the time of the first event, `first` by default.
    """
    last = max(last, first + 1)
    if unit != "year" and dates(int(first), int(last), unit)[0] is not None:
        return _calendar(first, last, unit)
    if unit in ("year", "step"):
        return whole_numbers(unit, first, last)
    seconds = (last - first) * SECONDS[unit]
    word, of = next(
        ((word, SECONDS[name]) for word, name in _LENGTHS if seconds >= 3 * SECONDS[name]),
        ("seconds", 1.0),
    )
    per = of / SECONDS[unit]
    zero = first if origin is None else origin
    begin, end = (first - zero) / per, (last - zero) / per
    since = linear("", [begin, end], low=begin, high=end)
    ticks = tuple((zero + tick * per, text) for tick, text in since.ticks)
    return Axis(f"{word} since the first event", first, last, ticks)


def _calendar(first: float, last: float, unit: str) -> Axis:
    ends = np.array([first, last]).astype(np.int64).astype(f"datetime64[{unit}]")
    counts = {
        code: int(np.diff(ends.astype(f"datetime64[{code}]")).astype(np.int64)[0])
        for code in _CALENDAR
    }
    code = next((code for code, count in counts.items() if count >= 3), "s")
    every = next((k for k in _CALENDAR[code] if counts[code] / k <= _MOST_DATES), 10**6)
    begin, end = ends.astype(f"datetime64[{code}]").astype(np.int64).tolist()
    numbers = np.arange(begin // every * every, end + 1, every)  # round ones: noon, not eleven
    moments = numbers.astype(f"datetime64[{code}]")
    moments = moments[moments >= ends[0]]
    ticks = tuple(
        (float(moment.astype(ends.dtype).astype(np.int64)), _date(str(moment), code))
        for moment in moments
    )
    day = "" if code in "YMD" else f", from {str(ends[0])[:10]}"
    return Axis(f"{'time' if day else 'date'} (UTC{day})", first, last, ticks)


def _date(iso: str, code: str) -> str:
    """Return a date in as few letters as distinguish it from its neighbours."""
    if code == "Y":
        return iso
    month = _MONTHS[int(iso[5:7]) - 1]
    if code == "M":
        return f"{month} {iso[2:4]}"
    if not iso[11:].strip("0:"):  # a day, or where one begins
        return f"{int(iso[8:10])} {month}"
    return f"{iso[11:13]}:00" if code == "h" else iso[11:]
