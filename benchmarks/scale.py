"""Measure graphs near the size of memory: time, memory and disk by stage, on generated look-alikes.

python benchmarks/scale.py mag-hundredth | mag-tenth | mag-full | gdelt-tenth | gdelt
    [--directory SCRATCH] [--memory 8G] [--columns N] [--r-max 1e-2] [--out FILE]
    [--stages STAGE ...] [--seeds N ...]
python benchmarks/scale.py growth [--edges 1000000 10000000] [--directory SCRATCH] [--out FILE]

Growth measures the first three stages by number of edges, and the first propagation of one graph by
columns and r_max; its plot includes the results of larger look-alikes.

Every stage runs in its own process, so that its peak memory is its own, and is stored in the
directory: the same command resumes after the last finished stage, and inside the building of a
graph and the updates of GDELT. Results are added to benchmarks/results/scale.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scale_classification import classify
from watch import Progress, Watch, disk_bytes

from tidegraph import Batch, Propagator, Sketch, load_dataset
from tidegraph.bench.plots import plot_scale
from tidegraph.bench.results import circumstances, script_command, write_json
from tidegraph.core import machine
from tidegraph.engine import building, compact, planning
from tidegraph.events.datasets import generate_gdelt_like, generate_mag_like

RESULTS = Path(__file__).parent / "results" / "scale.json"
MAG_NODES, MAG_EDGES = 121_751_665, 1_297_748_926
GDELT_EVENTS, GDELT_STEPS = 19_129_088, 17_052
CHECKPOINT_S = 300.0
SECTIONS: dict[str, dict[str, Any]] = {
    "mag-hundredth": {
        "part": 100,
        "columns": 16,
        "stages": ["generate", "build", "first", "years", "classify"],
    },
    "mag-tenth": {
        "part": 10,
        "columns": 16,
        "stages": ["generate", "build", "first", "years", "classify"],
    },
    "mag-full": {"part": 1, "columns": 4, "stages": ["generate", "build", "first"]},
    "gdelt-tenth": {"fewer": 10, "columns": 413, "stages": ["generate", "events", "classify"]},
    "gdelt": {"fewer": 1, "columns": 413, "stages": ["generate", "events", "classify"]},
    "growth": {"columns": 16, "stages": ["generate", "build", "first"]},
}
GROWTH_COLUMNS, GROWTH_R_MAX = (1, 4, 8, 16, 32), (1e-1, 1e-2, 1e-3)


progress = Progress()


# Stages -------------------------------------------------------------------------------------------


def generate(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Generate the look-alike."""
    data = home / "data"
    shutil.rmtree(data, ignore_errors=True)
    section = SECTIONS[options.section]
    with Watch() as watch:
        if "fewer" in section:
            events, steps = GDELT_EVENTS // section["fewer"], GDELT_STEPS // section["fewer"]
            generate_gdelt_like(data, events=events, steps=steps, progress=progress)
        else:
            edges = options.edges[0] if options.edges else MAG_EDGES // section["part"]
            nodes = edges * MAG_NODES // MAG_EDGES
            generate_mag_like(data, nodes=nodes, edges=edges, progress=progress)
    return watch.report() | {"disk_bytes": disk_bytes(data)}


def build(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Build a compact graph of it."""
    description = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    with Watch() as watch:
        graph = building.build(
            home / "data",
            home / "graph",
            nodes=description["nodes"],
            memory=options.memory,
            progress=progress,
        )
    return watch.report() | {
        "nodes": graph.nodes,
        "edges": graph.edges,
        "rows": description["events"],
        "disk_bytes": graph.disk_bytes,
        "bytes_per_edge": graph.disk_bytes / graph.edges,
    }


def first(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Propagate one block of columns, and compute the certificate."""
    with Watch() as watch:
        begin = time.perf_counter()
        graph = compact.open_graph(home / "graph")
        opened_s = time.perf_counter() - begin
        propagator = Propagator(Sketch(columns=options.columns), initial=graph, r_max=options.r_max)
    report = watch.report()
    begin = time.perf_counter()
    audit = propagator.audit()
    planned = planning.plan(
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
    """Apply the whole graph year by year, starting without edges."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(home / "data" / "edges.parquet")
    description = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    done: list[float] = []
    rows = 0

    def whole_years() -> Any:
        """Yield the pieces of one year, which may lie in several row groups."""
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
            progress(rows, description["events"], f"rows, year {int(pieces[0][2])}")
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
    """Apply a stream of many repeated edges step by step; resume from checkpoints."""
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
            progress(int(offsets[end]), len(stream), f"events, {so_far['apply_s']:.0f} s")
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
    "classify": classify,
}


def _stages(home: Path, names: list[str], *words: str) -> dict[str, Any]:
    """Return the reports of the stages; run those without a stored report, each in a process."""
    stages: dict[str, Any] = {}
    for stage in names:
        stored = home / f"{stage}.json"
        if not stored.is_file():
            print(f"{home.name}: {stage}", file=sys.stderr, flush=True)
            command = [sys.executable, *sys.argv, *words, "--stage", stage, "--home", str(home)]
            subprocess.run(command, check=True)
        stages[stage] = json.loads(stored.read_text(encoding="utf-8"))
    return stages


def look_alike(options: argparse.Namespace) -> dict[str, Any]:
    """Run all stages of a look-alike."""
    home = options.directory / options.section
    home.mkdir(parents=True, exist_ok=True)
    stages = _stages(home, options.stages or SECTIONS[options.section]["stages"])
    described = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    return {
        "nodes": described["nodes"],
        "edges": stages.get("build", {}).get("edges", described.get("pairs")),
        "events": described["events"],
        "columns": options.columns,
        "r_max": options.r_max,
        "seconds": {stage: result["seconds"] for stage, result in stages.items()},
        "peak_rss_bytes": max(result["peak_rss_bytes"] for result in stages.values()),
        "peak_anonymous_bytes": max(result["peak_anonymous_bytes"] for result in stages.values()),
        "disk_bytes": disk_bytes(home),
        "stages": stages,
        **circumstances(script_command()),
    }


def growth(options: argparse.Namespace) -> dict[str, Any]:
    """Return rows of time and memory by edges, by columns and by r_max."""
    names = SECTIONS["growth"]["stages"]

    def row(edges: int, columns: int, r_max: float) -> dict[str, Any]:
        home = options.directory / "growth" / f"{edges}-edges"
        home.mkdir(parents=True, exist_ok=True)
        words = ["--edges", str(edges), "--columns", str(columns), "--r-max", str(r_max)]
        # They share the graph, but not the propagation.
        own = home / f"{columns}-columns-{r_max:g}"
        own.mkdir(exist_ok=True)
        for name in ("data", "graph"):
            if not (own / name).is_symlink():
                (own / name).symlink_to(home / name)
        stages = _stages(home, names[:2], *words) | _stages(own, names[2:], *words)
        return _growth_row(stages)

    middle = max(edges for edges in options.edges if edges <= 10**7 or edges == min(options.edges))
    columns, r_max = SECTIONS["growth"]["columns"], options.r_max
    return {
        "edges": [row(edges, columns, r_max) for edges in sorted(options.edges)],
        "columns": [row(middle, count, r_max) for count in GROWTH_COLUMNS],
        "r_max": [row(middle, columns, limit) for limit in GROWTH_R_MAX],
        **circumstances(script_command()),
    }


def _growth_row(stages: dict[str, Any]) -> dict[str, Any]:
    """Return the reports of one size as a row of growth."""
    first, build = stages["first"], stages["build"]
    return {
        "nodes": build["nodes"],
        "edges": build["edges"],
        "columns": first["columns"],
        "r_max": first["r_max"],
        "seconds": {name: stages[name]["seconds"] for name in SECTIONS["growth"]["stages"]},
        "cpu_s": {name: stages[name]["cpu_s"] for name in SECTIONS["growth"]["stages"]},
        "peak_anonymous_bytes": {
            name: stages[name]["peak_anonymous_bytes"] for name in SECTIONS["growth"]["stages"]
        },
        "disk_bytes": {name: stages[name]["disk_bytes"] for name in ("generate", "build")},
        "sweeps": first["statistics"]["sweeps"],
        "edge_pushes": first["statistics"]["edge_pushes"],
        "planned_bytes": first["planned"]["memory_bytes"],
        "load_average": first["load_average"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", choices=list(SECTIONS))
    parser.add_argument(
        "--directory", type=Path, default=Path(tempfile.gettempdir()) / "tidegraph-scale"
    )
    parser.add_argument("--memory", default="8G", help="for building a graph and planning passes")
    parser.add_argument("--columns", type=int)
    parser.add_argument("--r-max", type=float, default=1e-2)
    parser.add_argument("--stages", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of classify")
    parser.add_argument("--edges", type=int, nargs="+", help="of growth; default: 1e6 and 1e7")
    parser.add_argument("--out", type=Path, default=RESULTS)
    # For the processes that this script starts:
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.columns = options.columns or SECTIONS[options.section]["columns"]
    if options.stage:
        result = STAGES[options.stage](options.home, options)
        result |= {"load_average": machine.load_average()}
        (options.home / f"{options.stage}.json").write_text(json.dumps(result), encoding="utf-8")
        return
    results = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
    if options.section == "growth":
        options.edges = options.edges or [10**6, 10**7]
        results["growth"] = growth(options)
    else:
        results[options.section] = look_alike(options)
    write_json(results, options.out)
    print(json.dumps({options.section: results[options.section]}, indent=2))
    if "growth" in results:
        larger = [
            _growth_row(results[name]["stages"])
            for name in ("mag-tenth", "mag-full")
            if set(SECTIONS["growth"]["stages"]) <= set(results.get(name, {}).get("stages", ()))
        ]
        plot_scale(results["growth"], larger, options.out.with_name("scale-growth.svg"))


if __name__ == "__main__":
    main()
