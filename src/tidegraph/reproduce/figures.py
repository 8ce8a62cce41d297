"""Figures of the tables as SVG, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegraph.bench.plots import drawing
from tidegraph.reproduce.page import HERE, HEURISTIC, OURS, PUBLISHED, Row, Table, Value

_LOOK = {
    PUBLISHED: ("#6b7785", "o"),
    OURS: ("#0b6e99", "D"),
    HEURISTIC: ("#b84e12", "^"),
    HERE: ("#7b4fa3", "s"),
}
_PANELS_ACROSS = 4
_TEXT: Any = {"svg.fonttype": "none"}  # text stays text


def dots(table: Table, path: Path) -> None:
    """Draw a panel per column and a line per row: the mean as a dot, the spread as a bar."""
    shown = [name for name in table.columns if any(row.is_measured(name) for row in table.rows)]
    rows = [row for row in table.rows if any(map(row.is_measured, shown))]
    if not rows:
        shown, rows = table.columns[:1], table.rows
    labels = _labels(rows)
    across = min(len(shown), _PANELS_ACROSS)
    down = -(-len(shown) // across)
    height = 0.3 + down * (0.9 + 0.19 * len(rows))
    with drawing(path, down, across, (3.2 + 2.3 * across, height), **_TEXT) as axes:
        for place, panel in enumerate(axes):
            if place >= len(shown):
                panel.set_visible(False)
                continue
            for line, row in enumerate(rows):
                if row.is_measured(shown[place]):
                    value, (colour, marker) = row.values[shown[place]], _LOOK[row.whose]
                    panel.errorbar(
                        value.mean, line, xerr=value.std, fmt=marker, color=colour, markersize=4.5
                    )
            first = place % across == 0
            panel.set_yticks(range(len(rows)), labels if first else [""] * len(rows))
            for tick, row in zip(panel.get_yticklabels(), rows, strict=True):
                tick.set_color(_LOOK[row.whose][0])
            panel.set_ylim(len(rows) - 0.5, -0.5)
            panel.set(title=shown[place], xscale="log" if table.log else "linear")
            panel.grid(axis="x", alpha=0.3)
            panel.spines[["top", "right", "left"]].set_visible(False)
            panel.tick_params(axis="y", length=0)
        axes[0].figure.suptitle(table.title, fontsize=10)
        for whose, (colour, marker) in _LOOK.items():
            if any(row.whose == whose for row in rows):
                axes[0].plot([], [], marker, color=colour, label=whose)
        axes[0].figure.legend(loc="outside lower center", ncols=len(_LOOK), frameon=False)


def _labels(rows: Sequence[Row]) -> list[str]:
    """Return the names of rows, with negatives and metric if these differ between rows."""
    labels = [row.name for row in rows]
    for more in ([row.sampler for row in rows], [row.metric for row in rows]):
        if len(set(more)) > 1:
            labels = [
                f"{name} · {word}" if word else name
                for name, word in zip(labels, more, strict=True)
            ]
    return labels


def curves(
    panels: Sequence[tuple[str, str, Mapping[str, Sequence[tuple[float, Value]]]]],
    path: Path,
    *,
    y: str,
    log_x: Sequence[bool],
    log_y: bool = False,
) -> None:
    """Draw panels (title, name of x, curves by name); a curve is a list of points (x, value)."""
    across = min(len(panels), 2)
    down = -(-len(panels) // across)
    with drawing(path, down, across, (4.2 * across, 2.9 * down), **_TEXT) as axes:
        for panel, (title, x, lines), log in zip(axes, panels, log_x, strict=True):
            for (name, points), marker in zip(lines.items(), "oDs^v", strict=False):
                known = [(at, value) for at, value in points if value.mean is not None]
                panel.errorbar(
                    [at for at, _ in known],
                    [value.mean for _, value in known],
                    yerr=[value.std or 0.0 for _, value in known],
                    fmt=f"{marker}-",
                    markersize=4,
                    label=name,
                )
            panel.set(title=title, xlabel=x, ylabel=y, xscale="log" if log else "linear")
            if log_y:
                panel.set_yscale("log")
            panel.grid(alpha=0.3)
            panel.spines[["top", "right"]].set_visible(False)
        axes[0].legend(frameon=False)
