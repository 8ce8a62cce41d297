"""How `tidegraph run` grows: seconds by stage, memory and disk, from a file to the report."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.bench.results import circumstances, write_json
from tidegraph.core import machine
from tidegraph.core.durable import replace_file
from tidegraph.core.errors import StateFileError
from tidegraph.core.progress import Progress, silent
from tidegraph.core.resume import read_json
from tidegraph.events.datasets import generate_communities

EVENTS, DATA = (10**5, 10**6, 10**7), ("flights-3m",)
_EVENTS_PER_NODE = 100
_LOOK_EVERY_S = 0.2
_ROWS_AT_ONCE = 1 << 20


def run_growth(
    path: Path,
    *,
    events: Sequence[int] = EVENTS,
    data: Sequence[str] = DATA,
    options: Sequence[str] = (),
    command: str = "tidegraph.bench.run_growth",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure runs on generated streams of so many events and on data sets; return all rows.

    Each is written to `path` once it is measured, and one that is there is not measured again.
    `options` are those of `tidegraph run`.
    """
    report = progress or silent
    known: list[dict[str, Any]] = read_json(path)["rows"] if path.exists() else []
    asked = [(f"communities-{count}", count) for count in events] + [(name, 0) for name in data]
    for number, (name, count) in enumerate(asked):
        if any(row["data"] == name for row in known):
            continue
        with tempfile.TemporaryDirectory(prefix="tidegraph-growth-", dir=path.parent) as place:
            report(number, len(asked), f"{name}: generating")
            source = _written(Path(place) / f"{name}.csv", count) if count else name
            report(number, len(asked), f"{name}: running")
            row = {
                "data": name,
                **_measured(str(source), Path(place), options),
                **circumstances(command),
            }
        known = sorted([*known, row], key=lambda one: one["events"])
        write_json({"rows": known}, path)
    return {"rows": known}


def _written(path: Path, events: int) -> Path:
    """Write a stream of communities as a table."""
    stream = generate_communities(max(1000, events // _EVENTS_PER_NODE), events)

    def lines() -> Iterator[bytes]:
        yield b"src,dst,t\n"
        for first in range(0, events, _ROWS_AT_ONCE):
            rows = slice(first, first + _ROWS_AT_ONCE)
            columns = np.stack([stream.src[rows], stream.dst[rows], stream.t[rows]], axis=1)
            yield ("\n".join(f"{u},{v},{t}" for u, v, t in columns.tolist()) + "\n").encode()

    replace_file(path, lambda file: file.writelines(lines()))
    return path


def _measured(source: str, place: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run the command in a process of its own and return what it took."""
    words = ["run", source, "--out", str(place), "--name", "run", *options]
    words += ["--unit", "step"] if source.endswith(".csv") else []
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    load = machine.load_average()
    with (place / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegraph", *words], stdout=output, stderr=output
        )
        peak = {"VmHWM": 0, "RssAnon": 0}
        disk = 0
        while process.poll() is None:
            for field in peak:
                peak[field] = max(peak[field], machine.memory_field(field, process.pid))
            disk = max(disk, _size(place / "run"))
            time.sleep(_LOOK_EVERY_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        lines = (place / "output.txt").read_text(encoding="utf-8").strip().splitlines()
        raise StateFileError(f"tidegraph run {source} failed: {lines[-1] if lines else '?'}")
    results = read_json(place / "run" / "metrics.json")
    stages = results["elapsed_s"]
    total_s = time.perf_counter() - begun
    # Reading the table, starting up and writing the page belong to no stage.
    seconds = {**stages, "other": total_s - stages["total"], "total": total_s}
    count = results["data"]["events"]
    return {
        "events": count,
        "nodes": results["data"]["nodes"],
        "seconds": {stage: round(value, 2) for stage, value in seconds.items()},
        "us_per_event": round(1e6 * total_s / count, 1),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "peak_bytes": peak["VmHWM"],
        "peak_anonymous_bytes": peak["RssAnon"],
        "disk_bytes": _size(place / "run"),
        "peak_disk_bytes": disk,
        "ap": {
            sampler: round(parts["all"]["ap"]["mean"], 5)
            for sampler, parts in results["metrics"].items()
        },
        "load_average_before": load,
    }


def _size(directory: Path) -> int:
    """Return the bytes of all files below a directory, each counted once."""
    files: dict[int, int] = {}
    for path in directory.rglob("*"):
        try:
            about = path.stat()
        except OSError:  # replaced while we look
            continue
        if path.is_file():
            files[about.st_ino] = about.st_size
    return sum(files.values())
