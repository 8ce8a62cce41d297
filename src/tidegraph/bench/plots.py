"""The growth table as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["plot_growth"]


def plot_growth(rows: list[dict[str, Any]], path: Path) -> None:
    """Writes work and time per event over the number of nodes; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    nodes = [row["nodes"] for row in rows]
    settings: Any = {
        "svg.hashsalt": "tidegraph",
        "font.size": 9,
    }  # the same file for the same numbers
    with pyplot.rc_context(settings):
        figure, (work, times) = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
        work.plot(nodes, [row["pushes_per_event"] for row in rows], "o-", label="pushes")
        work.plot(nodes, [row["edge_pushes_per_event"] for row in rows], "s-", label="edge pushes")
        work.set(title="Work per event", yscale="log")
        times.plot(nodes, [row["us_per_event"] for row in rows], "o-", label="event, µs")
        access = [row["random_access_ns"] for row in rows]
        times.plot(nodes, access, "s--", label="random row access, ns")
        times.set(title="Time", yscale="log")
        for axes in (work, times):
            axes.set(xscale="log", xlabel="nodes")
            axes.legend(frameon=False)
            axes.grid(alpha=0.3)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata)
        pyplot.close(figure)
