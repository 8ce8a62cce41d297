"""Charts as inline SVG that takes its colours and its font from the page.

A chart is drawn for the width of a phone and stands beside others on wider screens, so that its
text is never scaled down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.events.moments import SECONDS, dates
from tidegraph.report.markup import Html, details, element, join, table

__all__ = [
    "COLOURS",
    "Axis",
    "Bars",
    "Curve",
    "Points",
    "Rule",
    "chart",
    "compact",
    "linear",
    "logarithmic",
    "strip",
    "time_axis",
]

FloatArray = NDArray[np.float64]

COLOURS = 7  # classes c0 to c6 of the page, the last of them grey
_WIDTH, _HEIGHT = 380.0, 240.0
_TOP, _RIGHT, _BOTTOM = 24.0, 10.0, 40.0
_RULE_LABEL = 14.0  # more at the top, where upright lines have names
_LETTER = 7.7  # width of a letter at the size of labels, generously
_BROAD = 12.0  # the same of the broadest ones
_STRIP = 36.0  # height of a line of numbers
_GAP = 4.0  # between two tick labels
_CURVE_POINTS = 240  # more cannot be seen


def _width(text: str) -> float:
    broad = sum(letter in "%MWm" for letter in text)
    return broad * _BROAD + (len(text) - broad) * _LETTER


# Axes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """What one direction means: its ends, and where to write what."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, values: ArrayLike) -> FloatArray:
        """From 0 at the low end to 1 at the high end."""
        given = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            given, low, high = np.log10(np.maximum(given, low)), math.log10(low), math.log10(high)
        return np.asarray((given - low) / ((high - low) or 1.0))


def compact(value: float) -> str:
    """A number as it fits below an axis.

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
    """A round number that fits about `wanted` times into a length."""
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
    """An axis around the values; ends that are given stand, others are rounded outwards."""
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


def logarithmic(label: str, values: ArrayLike) -> Axis:
    """An axis of powers of ten around the positive values."""
    given = np.asarray(values, dtype=np.float64)
    given = given[given > 0]
    low = math.floor(math.log10(given.min())) if given.size else 0
    high = math.ceil(math.log10(given.max())) if given.size else 1
    high = max(high, low + 1)
    every = math.ceil((high - low) / 5)
    ticks = tuple((10.0**k, compact(10.0**k)) for k in range(low, high + 1, every))
    return Axis(label, 10.0**low, 10.0**high, ticks, log=True)


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# Of these units, coarse to fine, the first that occurs three times is written; every how many.
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
    """Dates where times are dates, else the time since `origin` in a unit people use.

    `origin` is the time of the first event, `first` by default.
    """
    last = max(last, first + 1)
    if unit != "year" and dates(int(first), int(last), unit)[0] is not None:
        return _calendar(first, last, unit)
    if unit in ("year", "step"):
        axis = linear("year" if unit == "year" else "step", [first, last], low=first, high=last)
        whole = tuple((tick, f"{tick:.0f}") for tick, _ in axis.ticks if tick == round(tick))
        return Axis(axis.label, first, last, whole or ((first, f"{first:.0f}"),))
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
    """A moment in as few letters as tell it from its neighbours."""
    if code == "Y":
        return iso
    month = _MONTHS[int(iso[5:7]) - 1]
    if code == "M":
        return f"{month} {iso[2:4]}"
    if code == "D":
        return f"{int(iso[8:10])} {month}"
    if iso[11:] in ("00", "00:00", "00:00:00"):  # a day begins
        return f"{int(iso[8:10])} {month}"
    return f"{iso[11:13]}:00" if code == "h" else iso[11:]


# What is drawn ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curve:
    """A line through points; where y is not a number it has a gap."""

    name: str
    x: ArrayLike
    y: ArrayLike
    colour: int = 0
    dots: bool = False


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars from 0, each from `left` to `right`."""

    name: str
    left: ArrayLike
    right: ArrayLike
    height: ArrayLike
    words: Sequence[str] = ()  # what each says when pointed at
    colour: int = 0


@dataclass(frozen=True, eq=False)
class Points:
    """Points of one colour."""

    name: str
    x: ArrayLike
    y: ArrayLike
    words: Sequence[str] = ()
    colour: int = 0


@dataclass(frozen=True)
class Rule:
    """A dashed line to compare with: across at `y`, upright at `x`, or the diagonal."""

    label: str
    x: float | None = None
    y: float | None = None


def chart(
    title: str,
    aid: str,
    x: Axis,
    y: Axis,
    drawn: Sequence[Curve | Bars | Points],
    *,
    rules: Sequence[Rule] = (),
    numbers: tuple[list[Any], list[list[Any]]] | None = None,
    kind: str = "",
) -> Html:
    """A figure: title, a sentence on how to read it, a legend, the picture, and its numbers.

    `kind` names the figure in the page. `numbers` are the head and the rows of a table.
    """
    left = 8.0 + max([_width(text) for _, text in y.ticks], default=_LETTER)
    upright = any(rule.x is not None and rule.label for rule in rules)
    frame = _Frame(x, y, left, _TOP + _RULE_LABEL * upright)
    named = [series for series in drawn if series.name]
    legend = _legend([(one.name, one.colour) for one in named]) if len(named) > 1 else None
    picture = element(
        "svg",
        frame.axes(),
        [frame.series(series) for series in drawn],
        [frame.rule(rule) for rule in rules],
        viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        role="img",
        aria_label=f"{title}. {y.label} over {x.label}. {aid}",
    )
    shown = None if numbers is None else details("The numbers", table(*numbers))
    caption = element("figcaption", element("h3", title), element("p", aid))
    return element("figure", caption, legend, picture, shown, data_figure=kind or None)


class _Frame:
    """Where things are inside a picture."""

    def __init__(self, x: Axis, y: Axis, left: float, top: float) -> None:
        self._x, self._y, self._left, self._top = x, y, left, top
        self._width, self._height = _WIDTH - left - _RIGHT, _HEIGHT - top - _BOTTOM

    def x(self, values: ArrayLike) -> FloatArray:
        return self._left + self._width * np.clip(self._x.place(values), 0, 1)

    def y(self, values: ArrayLike) -> FloatArray:
        return self._top + self._height * (1 - np.clip(self._y.place(values), 0, 1))

    def axes(self) -> Html:
        bottom, right = self._top + self._height, self._left + self._width
        parts = [element("text", self._y.label, x=0, y=12)]
        for value, text in self._y.ticks:
            y = f"{float(self.y(value)):.1f}"
            parts.append(element("line", x1=self._left, x2=right, y1=y, y2=y, class_="grid"))
            parts.append(
                element("text", text, x=self._left - 6, y=y, dy="0.35em", text_anchor="end")
            )
        parts.append(element("line", x1=self._left, x2=right, y1=bottom, y2=bottom, class_="grid"))
        places = [(float(self.x(value)), text) for value, text in self._x.ticks]
        taken = -math.inf  # up to where there are labels
        for at, text in places[:: _stride(places)]:
            half = _width(text) / 2
            middle = min(max(at, half), _WIDTH - half)
            parts.append(element("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="grid"))
            if middle - half < taken + _GAP:  # pushed inwards from the edge, onto another
                continue
            taken = middle + half
            parts.append(
                element("text", text, x=f"{middle:.1f}", y=bottom + 17, text_anchor="middle")
            )
        parts.append(element("text", self._x.label, x=right, y=bottom + 34, text_anchor="end"))
        return join(parts)

    def series(self, series: Curve | Bars | Points) -> Html:
        draw = {Curve: self._curve, Bars: self._bars, Points: self._points}[type(series)]
        return element("g", draw(series), class_=f"c{series.colour}")  # type: ignore[operator]

    def _curve(self, curve: Curve) -> Html:
        x, y = np.asarray(curve.x, dtype=np.float64), np.asarray(curve.y, dtype=np.float64)
        known = np.isfinite(y)
        px, py = self.x(x), self.y(np.where(known, y, self._y.low))
        parts = []
        for run in np.split(np.arange(len(x)), np.flatnonzero(np.diff(known)) + 1):
            if len(run) and known[run[0]]:
                kept = run[_visible(px[run], py[run])]
                corners = [f"{a:.1f},{b:.1f}" for a, b in zip(px[kept], py[kept], strict=True)]
                if len(kept) > 1:
                    parts.append(element("polyline", points=" ".join(corners), class_="curve"))
                if curve.dots or len(kept) == 1:
                    parts += [
                        element("circle", cx=f"{a:.1f}", cy=f"{b:.1f}", r=2.6, class_="mark")
                        for a, b in zip(px[kept], py[kept], strict=True)
                    ]
        return join(parts)

    def _bars(self, bars: Bars) -> Html:
        left, right = self.x(bars.left), self.x(bars.right)
        height = np.asarray(bars.height, dtype=np.float64)
        top, bottom = self.y(height), self._top + self._height
        parts = []
        for k in np.flatnonzero(height > 0).tolist():
            tall = max(bottom - float(top[k]), 1.0)  # what is not nothing shows
            gap = min(1.0, 0.15 * float(right[k] - left[k]))
            parts.append(
                element(
                    "rect",
                    element("title", bars.words[k]) if bars.words else None,
                    x=f"{left[k] + gap / 2:.1f}",
                    y=f"{bottom - tall:.1f}",
                    width=f"{max(right[k] - left[k] - gap, 0.4):.1f}",
                    height=f"{tall:.1f}",
                    class_="mark",
                )
            )
        return join(parts)

    def _points(self, points: Points) -> Html:
        px, py = self.x(points.x), self.y(points.y)
        radius = 2.2 if len(px) > 300 else 3.2
        words = points.words or [""] * len(px)
        return join(
            [
                element(
                    "circle",
                    element("title", text) if text else None,
                    cx=f"{a:.1f}",
                    cy=f"{b:.1f}",
                    r=radius,
                    class_="faint",
                )
                for a, b, text in zip(px, py, words, strict=True)
            ]
        )

    def rule(self, rule: Rule) -> Html:
        right, bottom = self._left + self._width, self._top + self._height
        if rule.x is not None:
            at = float(self.x(rule.x))
            ends = (at, bottom, at, self._top)
            half = _width(rule.label) / 2
            x = f"{min(max(at, half), _WIDTH - half):.1f}"
            text = element("text", rule.label, x=x, y=self._top - 5, text_anchor="middle")
        elif rule.y is not None:
            at = float(self.y(rule.y))
            ends = (self._left, at, right, at)
            above = at - 5 if at > self._top + 16 else at + 13
            text = element("text", rule.label, x=self._left + 4, y=f"{above:.1f}")
        else:
            ends = (self._left, bottom, right, self._top)
            text = element("text", rule.label, x=right - 4, y=bottom - 8, text_anchor="end")
        x1, y1, x2, y2 = (f"{end:.1f}" for end in ends)
        return join(element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="rule"), text)


def _stride(places: Sequence[tuple[float, str]]) -> int:
    """Every how many labels there is room for one."""
    widest = max((_width(text) for _, text in places), default=0.0) + _GAP
    nearest = min((b[0] - a[0] for a, b in itertools.pairwise(places)), default=math.inf)
    return max(1, math.ceil(widest / max(nearest, 1.0)))


def _visible(x: FloatArray, y: FloatArray) -> NDArray[np.int64]:
    """Points enough to draw the same curve: evenly spaced along it, both ends kept."""
    if len(x) <= _CURVE_POINTS:
        return np.arange(len(x))
    walked = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    wanted = np.linspace(0, walked[-1], _CURVE_POINTS)
    return np.unique(
        np.append(np.searchsorted(walked, wanted), [0, len(x) - 1]).clip(0, len(x) - 1)
    )


# Numbers beside each other ------------------------------------------------------------------------


def strip(
    title: str,
    aid: str,
    label: str,
    rows: Sequence[tuple[str, dict[str, tuple[float, float]], dict[str, float]]],
    *,
    kind: str,
) -> Html:
    """Values on one line per row: ours as filled marks with their spread, others as rings.

    A row is its name, ours by name as mean and spread, and the others by name.
    """
    values = [value for _, _, others in rows for value in others.values()]
    values += [
        mean + side * spread
        for _, own, _ in rows
        for mean, spread in own.values()
        for side in (-1, 1)
    ]
    axis = linear(label, values, high=1.0 if max(values, default=1) <= 1 else None)
    bottom = _STRIP * len(rows)
    parts = [element("text", label, x=_WIDTH - 8, y=bottom + 30, text_anchor="end")]
    for value, text in axis.ticks:
        at, half = _along(axis, value), _width(text) / 2
        middle = min(max(at, half), _WIDTH - half)
        parts.append(element("line", x1=at, x2=at, y1=0, y2=bottom, class_="grid"))
        parts.append(element("text", text, x=f"{middle:.1f}", y=bottom + 14, text_anchor="middle"))
    for number, (name, own, others) in enumerate(rows):
        y = _STRIP * number + 26
        parts.append(element("text", name, x=0, y=y - 12))
        for other, value in others.items():
            words = element("title", f"{other}: {value:.4f}")
            at = _along(axis, value)
            parts.append(element("circle", words, cx=at, cy=y, r=3.4, class_="hollow"))
        for k, (who, (mean, spread)) in enumerate(own.items()):
            words = element("title", f"{who}: {mean:.4f} ± {spread:.4f}")
            low, at, high = (_along(axis, mean + side * spread) for side in (-1, 0, 1))
            parts.append(
                element(
                    "g",
                    element("line", x1=low, x2=high, y1=y, y2=y, class_="curve"),
                    element("circle", words, cx=at, cy=y, r=4.2, class_="mark"),
                    class_=f"c{k % (COLOURS - 1)}",
                )
            )
    picture = element(
        "svg",
        parts,
        viewBox=f"0 0 {_WIDTH:g} {bottom + 34:g}",
        role="img",
        aria_label=f"{title}. {aid}",
    )
    names = list(rows[0][1]) if rows else []
    caption = element("figcaption", element("h3", title), element("p", aid))
    legend = _legend([(who, k % (COLOURS - 1)) for k, who in enumerate(names)])
    return element("figure", caption, legend, picture, data_figure=kind)


def _along(axis: Axis, value: float) -> float:
    return round(8 + (_WIDTH - 16) * float(np.clip(axis.place(value), 0, 1)), 1)


def _legend(named: Sequence[tuple[str, int]]) -> Html:
    items = [element("li", element("span", name), class_=f"c{k}") for name, k in named]
    return element("ul", items, class_="legend")
