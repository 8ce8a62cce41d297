"""Measurements of the engine, as ratios within one run.

It may import from every package below it: all but `reproduce` and `cli`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tidegraph.bench.competitors import Skipped
from tidegraph.bench.sections import SECTIONS, BrokenPromise, Run, measure
from tidegraph.core import machine
from tidegraph.core.durable import replace_file
from tidegraph.core.errors import ParameterError
from tidegraph.core.progress import Progress

__all__ = ["GOALS", "NOT_ASKED_FOR", "SECTIONS", "propagation", "write"]

NOT_ASKED_FOR = "not asked for"
# What the project asks of itself on a quiet machine with two cores: (at least | at most, value).
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
    """All numbers about the engine, flat, with `details`, `machine`, `skipped` and `failed`.

    only: names of sections; all where none is given.
    repeat: rounds in which all sides of a comparison take turns; the median counts.
    scale: shrinks graphs and streams. Only 1 gives numbers worth quoting.
    """
    unknown = sorted(set(only) - set(SECTIONS))
    if unknown:
        raise ParameterError(
            f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}"
        )
    load_before = machine.load_average()
    results: dict[str, Any] = {}
    details: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="tidegraph-bench-") as workplace:
        for k, name in enumerate(SECTIONS):

            def say(what: str, k: int = k, name: str = name) -> None:
                if progress is not None:
                    progress(k, len(SECTIONS), f"{name}: {what}")

            run = Run(Path(workplace), repeat, threads, scale, seed, say)
            if only and name not in only:
                skipped[name] = NOT_ASKED_FOR
                continue
            try:
                measured = measure(name, run)
            except Skipped as reason:
                skipped[name] = str(reason)
            except BrokenPromise as error:
                failed[name] = str(error)
            else:
                results.update(measured.results)
                details[name] = measured.details
    return {
        **results,
        "details": details,
        "skipped": skipped,
        "failed": failed,
        "repeat": repeat,
        "threads": threads,
        "scale": scale,
        "seeds": {"features, graphs and samples": seed, "yardstick": 0},
        "machine": {
            **machine.describe(),
            "load_average_before": load_before,
            "load_average_after": machine.load_average(),
        },
        "command": command,
        "version": version("tidegraph"),
        **_commit(),
    }


def _commit() -> dict[str, Any]:
    """The commit of the source tree this package is run from, and whether it was changed since."""
    package = Path(__file__).parents[1]
    root = package.parents[1]
    if not (root / ".git").exists() or package != root / "src" / "tidegraph":
        return {"commit": None}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src", "native", "CMakeLists.txt")
        return {"commit": git("rev-parse", "HEAD"), "changed_since_commit": bool(changed)}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None}


def write(results: dict[str, Any], path: Path) -> list[Path]:
    """Writes the results as JSON, whole or not at all, and a plot of the growth table beside it.

    Returns the files written; without matplotlib there is no plot.
    """
    replace_file(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    written = [path]
    if "growth" in results:
        from tidegraph.bench.plots import plot_growth

        picture = path.with_name(f"{path.stem}-growth.svg")
        try:
            plot_growth(results["growth"], picture)
        except ImportError:
            return written
        written.append(picture)
    return written
