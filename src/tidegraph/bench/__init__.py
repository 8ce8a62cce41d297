"""Measurements of the engine, as ratios on one machine, and what results are stored with.

May import from all packages but `reproduce` and `cli`; only these two import it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.progress import Progress

__all__ = ["GOALS", "NOT_ASKED_FOR", "SECTIONS", "propagation", "write"]

NOT_ASKED_FOR = "not asked for"
# By name, which is also that of the function: its module, imported when needed, and its subject.
SECTIONS = {
    "uci": ("streams", "UCI messages in snapshots, against the yardstick"),
    "wikipedia": ("streams", "Wikipedia edits, against the yardstick"),
    "recompute": ("recomputing", "an update, against warm-started power iteration"),
    "static": ("recomputing", "one propagation of 10 M edges, against scipy"),
    "growth": ("scaling", "work per event at 10^4, 10^5 and 10^6 nodes"),
    "threads": ("streams", "one thread against several"),
    "latency": ("streams", "one event at a time through Python"),
    "memory": ("scaling", "bytes per edge, peak of a propagation"),
}
# The project's own goals on a quiet machine with two cores: (at least | at most, value).
GOALS: dict[str, tuple[str, float]] = {
    "yardstick_ratio_uci": ("≥", 100),
    "merged_ratio_uci": ("≥", 35),
    "yardstick_ratio_wikipedia": ("≥", 100),
    "merged_ratio_wikipedia": ("≥", 45),
    "recompute_ratio": ("≥", 50),
    "static_ratio_scipy": ("≥", 3),
    "growth_pushes": ("≤", 1.5),
    "growth_edge_pushes": ("≤", 1.5),
    "growth_time": ("≤", 8),
    "thread_efficiency": ("≥", 0.85),
    "event_latency_us": ("≤", 200),
    "bytes_per_edge": ("≤", 24),
    "peak_memory_ratio": ("≤", 1),
    "peak_memory_ratio_sketch": ("≤", 1),
}


def propagation(
    *,
    only: Sequence[str] = (),
    repeat: int = 5,
    threads: int = 2,
    scale: float = 1.0,
    seed: int = 0,
    command: str = "tidegraph.bench.propagation",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return all numbers about the engine, with `details`, `machine`, `skipped` and `failed`.

    only: names of sections; all by default.
    repeat: rounds in which the sides of a comparison take turns; the median counts.
    scale: shrinks graphs and streams. Only numbers at scale 1 are worth quoting.
    """
    unknown = sorted(set(only) - set(SECTIONS))
    if unknown:
        raise ParameterError(
            f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}"
        )
    from tidegraph.bench.measuring import BenchSettings, BrokenPromise, Skipped
    from tidegraph.bench.results import circumstances
    from tidegraph.core import machine

    load_before = machine.load_average()
    results: dict[str, Any] = {"details": {}, "skipped": {}, "failed": {}}
    with tempfile.TemporaryDirectory(prefix="tidegraph-bench-") as workplace:
        for k, (name, (module, _)) in enumerate(SECTIONS.items()):
            if only and name not in only:
                results["skipped"][name] = NOT_ASKED_FOR
                continue

            def report(what: str, k: int = k, name: str = name) -> None:
                if progress is not None:
                    progress(k, len(SECTIONS), f"{name}: {what}")

            settings = BenchSettings(Path(workplace), repeat, threads, scale, seed, report)
            section = getattr(import_module(f"{__name__}.{module}"), name)
            try:
                measured = section(settings)
            except (Skipped, DataError) as reason:
                results["skipped"][name] = str(reason)
            except BrokenPromise as error:
                results["failed"][name] = str(error)
            else:
                results.update(measured.results)
                results["details"][name] = measured.details
    about = circumstances(command)
    about["machine"] |= {
        "load_average_before": load_before,
        "load_average_after": machine.load_average(),
    }
    return {
        **results,
        "repeat": repeat,
        "threads": threads,
        "scale": scale,
        "seeds": {"features, graphs and samples": seed, "yardstick": 0},
        **about,
    }


def write(results: dict[str, Any], path: Path) -> list[Path]:
    """Write the results as JSON, and a plot of the growth table next to it.

    Return the files written; there is no plot without matplotlib.
    """
    from tidegraph.bench.results import write_json

    write_json(results, path)
    if "growth" not in results:
        return [path]
    from tidegraph.bench.plots import plot_growth

    picture = path.with_name(f"{path.stem}-growth.svg")
    try:
        plot_growth(results["growth"], picture)
    except ImportError:
        return [path]
    return [path, picture]
