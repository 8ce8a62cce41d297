"""Graphs near the size of memory: time, memory and disk by stage, on made-up look-alikes.

python benchmarks/scale.py mag-hundredth | mag-tenth | mag-full | gdelt
    [--directory /tmp/tidegraph-scale] [--memory 8G] [--columns N] [--r-max 1e-2] [--out FILE]

Every stage runs in a process of its own, so that peaks of memory are its own, and is kept in the
directory: the same command goes on after the last whole stage, and inside the building of a graph
and the updates of GDELT where they stood. Results are added to benchmarks/results/scale.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph import Batch, Propagator, Sketch, compact, load_dataset, passes
from tidegraph.bench import machine
from tidegraph.datasets import generate_gdelt_like, generate_mag_like

RESULTS = Path(__file__).parent / "results" / "scale.json"
MAG_NODES, MAG_EDGES = 121_751_665, 1_297_748_926
GDELT_EVENTS, GDELT_STEPS = 19_129_088, 17_052
CHECKPOINT_S = 300.0
MAG_STAGES = ["generate", "build", "first"]
SECTIONS: dict[str, dict[str, Any]] = {
    "mag-hundredth": {
        "part": 100,
        "columns": 16,
        "stages": ["generate", "build", "first", "years"],
    },
    "mag-tenth": {"part": 10, "columns": 16, "stages": ["generate", "build", "first", "years"]},
    "mag-full": {"part": 1, "columns": 4, "stages": ["generate", "build", "first"]},
    "gdelt": {"columns": 413, "stages": ["generate", "events"]},
}


class Watch:
    """Seconds, those of all threads together, and the highest memory, of what runs inside."""

    def __enter__(self) -> Watch:
        self.peak_anonymous = 0
        machine.forget_peak_memory()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        self._begin, self._cpu = time.perf_counter(), time.process_time()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.05):
            self.peak_anonymous = max(self.peak_anonymous, _anonymous_bytes())

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begin
        self.cpu_s = time.process_time() - self._cpu
        self._over.set()
        self._thread.join()

    def report(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 2),
            "cpu_s": round(self.cpu_s, 2),
            "peak_rss_bytes": machine.memory_bytes(peak=True),
            "peak_anonymous_bytes": max(self.peak_anonymous, _anonymous_bytes()),
        }


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def _disk_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _say(done: int, total: int, what: str) -> None:
    now = time.monotonic()
    if now - _say.last > 10 or done == total:  # type: ignore[attr-defined]
        _say.last = now  # type: ignore[attr-defined]
        print(f"  {done:,} of {total:,} {what}", file=sys.stderr, flush=True)


_say.last = 0.0  # type: ignore[attr-defined]


# Stages -------------------------------------------------------------------------------------------


def generate(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    data = home / "data"
    shutil.rmtree(data, ignore_errors=True)
    part = SECTIONS[options.section].get("part")
    with Watch() as watch:
        if part is None:
            generate_gdelt_like(data, events=GDELT_EVENTS, steps=GDELT_STEPS, progress=_say)
        else:
            generate_mag_like(data, nodes=MAG_NODES // part, edges=MAG_EDGES // part, progress=_say)
    return watch.report() | {"disk_bytes": _disk_bytes(data)}


def build(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    description = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    with Watch() as watch:
        graph = compact.build(
            home / "data",
            home / "graph",
            nodes=description["nodes"],
            memory=options.memory,
            progress=_say,
        )
    return watch.report() | {
        "nodes": graph.nodes,
        "edges": graph.edges,
        "rows": description["events"],
        "disk_bytes": graph.disk_bytes,
        "bytes_per_edge": graph.disk_bytes / graph.edges,
    }


def first(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The first propagation of one block of columns, and its certificate."""
    with Watch() as watch:
        begin = time.perf_counter()
        graph = compact.open_graph(home / "graph")
        opened_s = time.perf_counter() - begin
        propagator = Propagator(Sketch(columns=options.columns), initial=graph, r_max=options.r_max)
    report = watch.report()
    begin = time.perf_counter()
    audit = propagator.audit()
    planned = passes.plan(
        graph.nodes, graph.edges, options.columns, memory=options.memory, r_max=options.r_max
    )
    return report | {
        "open_s": opened_s,
        "audit_s": time.perf_counter() - begin,
        "residual_over_promise": float(audit.residual.max()),
        "drift_over_promise": float(audit.drift.max()),
        "columns": options.columns,
        "r_max": options.r_max,
        "statistics": propagator.statistics(),
        "planned": asdict(planned),
    }


def years(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The whole graph once more as it grew, year by year, from no edge at all."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(home / "data" / "edges.parquet")
    description = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    done: list[float] = []
    rows = 0

    def whole_years() -> Any:
        """Batches of the rows of one year, which may lie in several row groups."""
        waiting: list[Any] = []
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["src", "dst", "t"])
            src, dst, t = (table[name].to_numpy() for name in ("src", "dst", "t"))
            cuts = [0, *(np.flatnonzero(np.diff(t)) + 1).tolist(), len(t)]
            for begin, end in itertools.pairwise(cuts):
                if waiting and waiting[-1][2] != t[begin]:
                    yield waiting
                    waiting = []
                waiting.append((src[begin:end], dst[begin:end], t[begin]))
        yield waiting

    with Watch() as watch:
        propagator = Propagator(
            Sketch(columns=options.columns), nodes=description["nodes"], r_max=options.r_max
        )
        for pieces in whole_years():
            src, dst = (np.concatenate([piece[i] for piece in pieces]) for i in (0, 1))
            batch = Batch(src=src, dst=dst, t=int(pieces[0][2]))
            begin = time.perf_counter()
            propagator.apply(batch)
            done.append(round(time.perf_counter() - begin, 3))
            rows += batch.rows
            _say(rows, description["events"], f"rows, year {int(pieces[0][2])}")
    report = watch.report()
    audit = propagator.audit()
    return report | {
        "steps": len(done),
        "rows": rows,
        "apply_s": round(sum(done), 2),
        "slowest_step_s": max(done),
        "residual_over_promise": float(audit.residual.max()),
        "columns": options.columns,
        "r_max": options.r_max,
        "statistics": propagator.statistics(),
    }


def events(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A stream of many repeated edges, kept up to date step by step; goes on from checkpoints."""
    state, notes = home / "state", home / "notes.json"
    stream = load_dataset(str(home / "data"))
    steps = stream.steps()
    offsets = np.asarray(steps.offsets)
    so_far: dict[str, Any] = {"step": 0, "apply_s": 0.0}
    with Watch() as watch:
        if state.is_file():
            so_far = json.loads(notes.read_text(encoding="utf-8"))
            propagator = Propagator.load(state)
        else:
            assert stream.node_features is not None
            features = np.ascontiguousarray(stream.node_features[:, : options.columns])
            features.setflags(write=False)
            propagator = Propagator(features, r_max=options.r_max)
        saved = time.monotonic()
        while so_far["step"] < len(offsets) - 1:
            begin, end = so_far["step"], min(so_far["step"] + 100, len(offsets) - 1)
            rows = slice(int(offsets[begin]), int(offsets[end]))
            batch = Batch(src=stream.src[rows], dst=stream.dst[rows], t=stream.t[rows])
            start = time.perf_counter()
            propagator.apply_steps(batch, offsets[begin : end + 1] - offsets[begin])
            so_far["apply_s"] += time.perf_counter() - start
            so_far["step"] = end
            _say(int(offsets[end]), len(stream), f"events, {so_far['apply_s']:.0f} s")
            if time.monotonic() - saved > CHECKPOINT_S:
                propagator.save(state)
                notes.write_text(json.dumps(so_far), encoding="utf-8")
                saved = time.monotonic()
    report = watch.report()
    audit = propagator.audit()
    return report | {
        "steps": len(offsets) - 1,
        "events": len(stream),
        "apply_s": round(so_far["apply_s"], 2),
        "events_per_s": len(stream) / so_far["apply_s"],
        "residual_over_promise": float(audit.residual.max()),
        "columns": options.columns,
        "r_max": options.r_max,
        "statistics": propagator.statistics(),
    }


STAGES: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "generate": generate,
    "build": build,
    "first": first,
    "years": years,
    "events": events,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", choices=list(SECTIONS))
    parser.add_argument("--directory", type=Path, default=Path("/tmp/tidegraph-scale"))
    parser.add_argument("--memory", default="8G", help="for building, and what is planned for")
    parser.add_argument("--columns", type=int)
    parser.add_argument("--r-max", type=float, default=1e-2)
    parser.add_argument("--stages", nargs="+", help="only these")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--stage", help=argparse.SUPPRESS)  # run by this script itself
    options = parser.parse_args()
    options.columns = options.columns or SECTIONS[options.section]["columns"]
    home = options.directory / options.section
    home.mkdir(parents=True, exist_ok=True)
    if options.stage:
        result = STAGES[options.stage](home, options)
        result |= {"load_average": machine.load_average()}
        (home / f"{options.stage}.json").write_text(json.dumps(result), encoding="utf-8")
        return
    stages: dict[str, Any] = {}
    for stage in options.stages or SECTIONS[options.section]["stages"]:
        kept = home / f"{stage}.json"
        if not kept.is_file():
            print(f"{options.section}: {stage}", file=sys.stderr, flush=True)
            subprocess.run([sys.executable, *sys.argv, "--stage", stage], check=True)
        stages[stage] = json.loads(kept.read_text(encoding="utf-8"))
    described = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    entry = {
        "nodes": described["nodes"],
        "edges": stages.get("build", {}).get("edges", described.get("pairs")),
        "events": described["events"],
        "columns": options.columns,
        "r_max": options.r_max,
        "seconds": {stage: result["seconds"] for stage, result in stages.items()},
        "peak_rss_bytes": max(result["peak_rss_bytes"] for result in stages.values()),
        "peak_anonymous_bytes": max(result["peak_anonymous_bytes"] for result in stages.values()),
        "disk_bytes": _disk_bytes(home),
        "stages": stages,
        "command": " ".join(["python", *sys.argv]),
        "commit": subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip(),
        "machine": machine.describe(),
    }
    results = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
    results[options.section] = entry
    options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({options.section: entry}, indent=2))


if __name__ == "__main__":
    main()
