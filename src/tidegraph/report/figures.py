"""Charts as inline SVG that takes its colours and its font from the page.

A chart is drawn for the width of a phone, and wider screens show two in a row, so that its text is
never scaled down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.palette import SERIES
from tidegraph.report.axes import Axis, linear
from tidegraph.report.markup import Html, details, element, join, table

FloatArray = NDArray[np.float64]

_WIDTH, _HEIGHT = 380.0, 240.0
_TOP, _RIGHT, _BOTTOM = 24.0, 10.0, 40.0
_RULE_LABEL = 14.0  # more at the top, if vertical lines have names
_LETTER = 7.7  # width of a letter at the size of labels, at most
_BROAD = 12.0  # the same of the broadest letters
_STRIP = 36.0  # height of a row of a strip
_GAP = 4.0  # between two tick labels
_CURVE_POINTS = 240  # more cannot be seen


def _width(text: str) -> float:
    broad = sum(letter in "%MWm" for letter in text)
    return broad * _BROAD + (len(text) - broad) * _LETTER


def _inside(text: str, at: float) -> float:
    """Return the middle of a label as near to `at` as the picture allows."""
    half = _width(text) / 2
    return min(max(at, half), _WIDTH - half)


def _centred(text: str, at: float, y: float) -> Html:
    return element("text", text, x=f"{_inside(text, at):.1f}", y=y, text_anchor="middle")


# What is drawn ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curve:
    """A line through points, with a gap where y is not a number."""

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
    words: Sequence[str] = ()  # shown when the mouse points at each
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
    """A dashed line to compare with: horizontal at `y`, vertical at `x`, or the diagonal."""

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
    """Return a figure: title, how to read it, legend, picture, and its numbers.

    `kind` names the figure in the page. `numbers` are the head and the rows of a table.
    """
    left = 8.0 + max([_width(text) for _, text in y.ticks], default=_LETTER)
    upright = any(rule.x is not None and rule.label for rule in rules)
    frame = _Frame(x, y, left, _TOP + _RULE_LABEL * upright)
    named = [(series.name, series.colour) for series in drawn if series.name]
    parts = [frame.axes(), *map(frame.series, drawn), *map(frame.rule, rules)]
    return figure(
        title,
        aid,
        legend(named) if len(named) > 1 else None,
        _picture(_HEIGHT, parts, f"{title}. {y.label} over {x.label}. {aid}"),
        None if numbers is None else details("The numbers", table(*numbers)),
        kind=kind,
    )


def _picture(height: float, parts: Sequence[Html], words: str) -> Html:
    box = f"0 0 {_WIDTH:g} {height:g}"
    return element("svg", *parts, viewBox=box, role="img", aria_label=words)


def figure(title: str, aid: str, *content: Html | None, kind: str) -> Html:
    """Return content below a title and a sentence on how to read it."""
    caption = element("figcaption", element("h3", title), element("p", aid))
    return element("figure", caption, *content, data_figure=kind or None)


def legend(named: Sequence[tuple[str, int]]) -> Html:
    """Return names with the numbers of their colours."""
    items = [element("li", element("span", name), class_=f"c{k}") for name, k in named]
    return element("ul", items, class_="legend")


def share_bar(shares: Sequence[tuple[str, float]]) -> Html:
    """Return shares as one bar; those that pulled the other way lie left of a mark."""
    size = sum(abs(share) for _, share in shares) or 1.0
    drawn = [
        (share, element("i", class_=f"c{k}", style=f"width:{100 * abs(share) / size:.1f}%"))
        for k, (_, share) in enumerate(shares)
    ]
    against = [piece for share, piece in drawn if share < 0]
    return element(
        "div",
        [*against, element("b")] if against else None,
        [piece for share, piece in drawn if share >= 0],
        class_="share",
        role="img",
        aria_label="; ".join(f"{name} {share:+.0%}" for name, share in shares),
    )


class _Frame:
    """The axes of a picture, and the drawing inside them."""

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
            y, x = f"{float(self.y(value)):.1f}", self._left - 6
            parts.append(element("line", x1=self._left, x2=right, y1=y, y2=y, class_="grid"))
            parts.append(element("text", text, x=x, y=y, dy="0.35em", text_anchor="end"))
        parts.append(element("line", x1=self._left, x2=right, y1=bottom, y2=bottom, class_="grid"))
        places = [(float(self.x(value)), text) for value, text in self._x.ticks]
        taken = -math.inf  # the right end of the last label
        for at, text in places[:: _stride(places)]:
            middle, half = _inside(text, at), _width(text) / 2
            parts.append(element("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="grid"))
            if middle - half >= taken + _GAP:  # else moved inwards from the edge, onto another
                taken = middle + half
                parts.append(_centred(text, at, bottom + 17))
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
            tall = max(bottom - float(top[k]), 1.0)  # a small value must still be visible
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
        titles = [element("title", text) if text else None for text in words]
        return join(
            [
                element("circle", title, cx=f"{a:.1f}", cy=f"{b:.1f}", r=radius, class_="faint")
                for a, b, title in zip(px, py, titles, strict=True)
            ]
        )

    def rule(self, rule: Rule) -> Html:
        right, bottom = self._left + self._width, self._top + self._height
        if rule.x is not None:
            at = float(self.x(rule.x))
            ends = (at, bottom, at, self._top)
            text = _centred(rule.label, at, self._top - 5)
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
    """Return k such that there is room for every k-th label."""
    widest = max((_width(text) for _, text in places), default=0.0) + _GAP
    nearest = min((b[0] - a[0] for a, b in itertools.pairwise(places)), default=math.inf)
    return max(1, math.ceil(widest / max(nearest, 1.0)))


def _visible(x: FloatArray, y: FloatArray) -> NDArray[np.int64]:
    """Return enough points to draw the same curve: evenly spaced along it, with both ends."""
    if len(x) <= _CURVE_POINTS:
        return np.arange(len(x))
    walked = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    wanted = np.linspace(0, walked[-1], _CURVE_POINTS)
    return np.unique(
        np.append(np.searchsorted(walked, wanted), [0, len(x) - 1]).clip(0, len(x) - 1)
    )


# Strips -------------------------------------------------------------------------------------------


def strip(
    title: str,
    aid: str,
    label: str,
    rows: Sequence[tuple[str, dict[str, tuple[float, float]], dict[str, float]]],
) -> Html:
    """Return a figure with a line of values per row: ours filled, with spread, the others hollow.

    A row is its name, our values by name as mean and spread, and the other values by name.
    """
    values = [value for _, _, others in rows for value in others.values()]
    for mean, spread in (one for _, own, _ in rows for one in own.values()):
        values += [mean - spread, mean + spread]
    axis = linear(label, values, high=1.0 if max(values, default=1) <= 1 else None)
    bottom = _STRIP * len(rows)
    parts = [element("text", label, x=_WIDTH - 8, y=bottom + 30, text_anchor="end")]
    for value, text in axis.ticks:
        at = _along(axis, value)
        parts.append(element("line", x1=at, x2=at, y1=0, y2=bottom, class_="grid"))
        parts.append(_centred(text, at, bottom + 14))
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
                    class_=f"c{k % SERIES}",
                )
            )
    named = [(who, k % SERIES) for k, who in enumerate(rows[0][1] if rows else [])]
    picture = _picture(bottom + 34, parts, f"{title}. {aid}")
    return figure(title, aid, legend(named), picture, kind="headline")


def _along(axis: Axis, value: float) -> float:
    return round(8 + (_WIDTH - 16) * float(np.clip(axis.place(value), 0, 1)), 1)
