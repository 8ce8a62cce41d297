"""Plots as SVG: the frame of every drawing, and the tables of growth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidegraph.core.durable import replace_file


@contextmanager
def drawing(
    path: Path, rows: int, columns: int, size: tuple[float, float], **settings: Any
) -> Iterator[list[Any]]:
    """Yield axes `[rows * columns]`; write them at the end, the same file for the same drawing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen: Any = {"svg.hashsalt": "tidegraph", "font.size": 9, **settings}
    with pyplot.rc_context(chosen):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=size, layout="constrained", squeeze=False
        )
        yield list(axes.flat)
        replace_file(path, lambda file: figure.savefig(file, format="svg", metadata={"Date": None}))
        pyplot.close(figure)


def plot_growth(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot the work of an event over the number of nodes, and its time as it grows."""
    first, last = rows[0], rows[-1]
    nodes = [row["nodes"] for row in rows]

    def title(what: str, name: str) -> str:
        times = last["nodes"] / first["nodes"]
        return f"{what}: ×{last[name] / first[name]:.1f} on a graph {times:,.0f} times as large"

    with drawing(path, 1, 2, (9, 3)) as (work, times):
        for name, label in (
            ("edge_pushes_per_event", "edge pushes"),
            ("pushes_per_event", "pushes"),
        ):
            work.plot(nodes, [row[name] for row in rows], "o-", label=label)
        work.set(title=title("Work per event", "edge_pushes_per_event"), ylabel="per event")
        for name, what, unit, style in (
            ("random_access_ns", "one random memory access", "ns", "s--"),
            ("us_per_event", "one event", "µs", "o-"),
        ):
            label = f"{what}, {first[name]:.2g} to {last[name]:.2g} {unit}"
            times.plot(nodes, [row[name] / first[name] for row in rows], style, label=label)
        times.set(title=title("Time per event", "us_per_event"))
        times.set(ylabel="times that on the smallest graph")
        for axes in (work, times):
            axes.set(xscale="log", xlabel="nodes", ylim=(0, None))
            axes.legend(frameon=False, loc="center right" if axes is work else "lower right")
            axes.grid(alpha=0.3)


def plot_run_growth(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot time per event by stage, and memory and disk, of runs over the number of events."""
    made = [row for row in rows if row["data"].startswith("communities")]
    others = [row for row in rows if row not in made]
    with drawing(path, 1, 2, (8, 3.4)) as (times, sizes):

        def lines(panel: Any, label: str, name: str, stage: str | None, unit: float) -> None:
            colour = f"C{len(panel.get_lines()) // 2}"
            for some, style in ((made, "o-"), (others, "o")):
                found = [(row[name][stage] if stage else row[name]) for row in some]
                per = [row["events"] if stage else 1 for row in some]
                panel.plot(
                    [row["events"] for row in some],
                    [value / unit / each for value, each in zip(found, per, strict=True)],
                    style,
                    color=colour,
                    fillstyle="full" if some is made else "none",
                    label=label if some is made else None,
                )

        for stage in rows[0]["seconds"]:
            lines(times, stage, "seconds", stage, 1e-6)
        lines(sizes, "memory, anonymous", "peak_anonymous_bytes", None, 1e9)
        lines(sizes, "memory, resident", "peak_bytes", None, 1e9)
        lines(sizes, "disk", "disk_bytes", None, 1e9)
        hollow = f" (hollow: {', '.join(row['data'] for row in others)})" if others else ""
        times.set(title=f"µs per event{hollow}")
        sizes.set(title="GB")
        for axes in (times, sizes):
            axes.set(xscale="log", yscale="log", xlabel="events")
            axes.legend(frameon=False, fontsize=7)
            axes.grid(alpha=0.3)


def plot_scale(growth: dict[str, Any], larger: list[dict[str, Any]], path: Path) -> None:
    """Plot time, memory and disk of large graphs by edges, columns and r_max.

    growth: rows under "edges", "columns" and "r_max", as `benchmarks/scale.py` writes them.
    larger: more rows by edges, drawn hollow, since they may have other columns.
    """
    rows = growth["edges"]
    with drawing(path, 2, 2, (8, 6)) as axes:
        times, memory, by_columns, by_r_max = axes

        def by_edges(panel: Any, label: str, name: str, stage: str, unit: float = 1.0) -> None:
            for some, style in ((rows, "o-"), (larger, "o")):
                panel.plot(
                    [row["edges"] for row in some],
                    [row[name][stage] / unit for row in some],
                    style,
                    color=f"C{len(panel.get_lines()) // 2}",
                    fillstyle="full" if some is rows else "none",
                    label=label if some is rows else None,
                )

        for stage in rows[0]["seconds"]:
            by_edges(times, stage, "seconds", stage)
        by_edges(memory, "build, anonymous", "peak_anonymous_bytes", "build", 1e9)
        by_edges(memory, "first, anonymous", "peak_anonymous_bytes", "first", 1e9)
        by_edges(memory, "graph on disk", "disk_bytes", "build", 1e9)
        times.set(title="Seconds", xlabel="edges", xscale="log", yscale="log")
        memory.set(title="GB", xlabel="edges", xscale="log", yscale="log")
        for panel, name in ((by_columns, "columns"), (by_r_max, "r_max")):
            places = [row[name] for row in growth[name]]
            panel.plot(places, [row["cpu_s"]["first"] for row in growth[name]], "o-")
            edges = growth[name][0]["edges"]
            panel.set(title=f"First propagation, CPU s, {edges:,} edges", xlabel=name)
        by_r_max.set(xscale="log")
        for panel in axes:
            panel.grid(alpha=0.3)
        for panel in (times, memory):
            panel.legend(frameon=False)
