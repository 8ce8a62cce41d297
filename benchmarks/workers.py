"""Compare workers with threads on one machine; write benchmarks/results/workers.json.

python benchmarks/workers.py [--events N] [--columns D] [--repeat R] [--output FILE]
python benchmarks/workers.py --memory NODES EDGES COLUMNS [--output FILE]

Wikipedia's first events are recorded in two shards: in this process with one thread and with two,
and on a local Ray cluster with one worker and with two, of one thread each. All take turns in every
round, the median counts, and all must write the same bytes. Starting a cluster is measured
separately. On a shared machine, the spread shows how reliable the times are.

With --memory, a random graph is recorded as one shard, and the peak of anonymous memory is compared
with the engine's own count and the formula in docs/scaling.md; the row is added to the file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from watch import Watch, anonymous_bytes

from tidegraph import Channel, EventStream, Propagator, Sketch, record_shards
from tidegraph.bench.results import circumstances, script_command, write_json
from tidegraph.core import machine
from tidegraph.engine.channels import EngineSettings
from tidegraph.events import datasets

SHARDS = 2
SETTINGS = EngineSettings(channels=(Channel.low_pass(), Channel.high_pass()))


def content(path: Path) -> str:
    """Return a digest of all files in a directory."""
    state = hashlib.blake2b()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            state.update(str(file.relative_to(path)).encode())
            state.update(file.read_bytes())
    return state.hexdigest()


def peak_of_recording(nodes: int, edges: int, columns: int) -> dict[str, Any]:
    """Record a random graph, and compare the peak memory with what is expected."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, nodes, (2, edges))
    stream = EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 120, edges)), nodes=nodes)
    segment = 1 << 24
    before = anonymous_bytes()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "shards"
        options: dict[str, Any] = {"epsilon": 0.5, "segment_bytes": segment}
        with Watch(every_s=0.005) as watch:
            store = record_shards(stream, Sketch(columns), path, shards=1, threads=1, **options)
        saved = next((path / "shard-000").glob("checkpoint-*.state"))
        counted = Propagator.load(saved, threads=1).statistics()
    peak = watch.peak_anonymous - before
    engine = counted["graph_bytes"] + counted["state_bytes"]
    # The formula of docs/scaling.md: recorded states and those of a step; waiting records, up to a
    # step more than a segment, while they are sealed; the lists of a checkpoint; and the step of
    # every event.
    record = 8 + 4 + 4 * columns
    formula = (
        engine + 2 * 4 * columns * nodes + 2.5 * (segment + record * nodes) + 16 * edges + 8 * edges
    )
    return {
        "nodes": nodes,
        "edges": edges,
        "columns": columns,
        "channels": 1,
        "segment_bytes": segment,
        "peak_anonymous_bytes": peak,
        "engine_bytes": engine,
        "formula_bytes": int(formula),
        "peak_over_engine": round(peak / engine, 2),
        "peak_over_formula": round(peak / formula, 2),
        "records": store.records,
        "disk_bytes": store.nbytes,
        **circumstances(script_command()),
    }


def awake() -> None:
    """Import what a worker needs; wait, so that every worker runs this once."""
    import tidegraph.store.shards  # noqa: F401

    time.sleep(0.2)


def cluster(cores: int) -> float:
    """Start a local Ray cluster and one worker per core; return the seconds it took."""
    import ray

    begun = time.perf_counter()
    ray.init(
        address="local",
        num_cpus=cores,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=200 << 20,
    )
    ray.get([ray.remote(num_cpus=1)(awake).remote() for _ in range(cores)])
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/workers.json"))
    parser.add_argument("--memory", type=int, nargs=3, metavar=("NODES", "EDGES", "COLUMNS"))
    given = parser.parse_args()
    if given.memory is not None:
        results = json.loads(given.output.read_text(encoding="utf-8"))
        found = peak_of_recording(*given.memory)
        size = ("nodes", "edges", "columns")
        others = [
            entry
            for entry in results.get("memory", [])
            if [entry[name] for name in size] != [found[name] for name in size]
        ]
        results["memory"] = [*others, found]
        write_json(results, given.output)
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    whole = datasets.load_dataset("wikipedia")[: given.events]
    stream = EventStream(src=whole.src, dst=whole.dst, t=whole.t, nodes=whole.nodes)
    sketch = Sketch(given.columns)
    load_before = machine.load_average()
    seconds: dict[str, list[float]] = {}
    starts: dict[str, list[float]] = {}
    contents: set[str] = set()
    disk_bytes = 0

    def timed(name: str, **options: Any) -> None:
        nonlocal disk_bytes
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "shards"
            begun = time.perf_counter()
            store = record_shards(stream, sketch, path, shards=SHARDS, settings=SETTINGS, **options)
            seconds.setdefault(name, []).append(time.perf_counter() - begun)
            disk_bytes = store.nbytes
            contents.add(content(path))

    def on_ray(workers: int) -> Callable[[], None]:
        def measure() -> None:
            name = f"ray_{workers}_workers"
            starts.setdefault(name, []).append(cluster(workers))
            try:
                timed(name, engine="ray", workers=workers)
            finally:
                ray.shutdown()

        return measure

    sides: list[Callable[[], None]] = [
        lambda: timed("passes_1_thread", threads=1),
        lambda: timed("passes_2_threads", threads=2),
        on_ray(1),
        on_ray(2),
    ]
    for round_number in range(given.repeat):
        for side in sides:
            side()
        print(f"round {round_number + 1} of {given.repeat}", file=sys.stderr)
    if len(contents) != 1:
        raise SystemExit("the sides recorded different bytes")
    median = {name: statistics.median(values) for name, values in seconds.items()}
    old = json.loads(given.output.read_text()) if given.output.exists() else {}
    about = circumstances(script_command())
    about["machine"] |= {
        "load_average_before": load_before,
        "load_average_after": machine.load_average(),
    }
    results = {
        "data": "wikipedia",
        "events": len(stream),
        "nodes": stream.nodes,
        "columns": given.columns,
        "channels": len(SETTINGS.channels),
        "shards": SHARDS,
        "r_max": SETTINGS.r_max,
        "same_bytes": True,
        "seconds": {name: round(value, 3) for name, value in median.items()},
        "seconds_each": {name: [round(v, 3) for v in values] for name, values in seconds.items()},
        "cluster_start_s": {
            name: round(statistics.median(values), 3) for name, values in starts.items()
        },
        "ray_1_worker_over_1_thread": round(median["ray_1_workers"] / median["passes_1_thread"], 3),
        "ray_2_workers_over_2_threads": round(
            median["ray_2_workers"] / median["passes_2_threads"], 3
        ),
        "ray_1_worker_over_2_workers": round(median["ray_1_workers"] / median["ray_2_workers"], 3),
        "threads_1_over_2": round(median["passes_1_thread"] / median["passes_2_threads"], 3),
        "disk_bytes": disk_bytes,
        **about,
        "ray": ray.__version__,
        "memory": old.get("memory", []),
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(results, given.output)
    print(json.dumps(results["seconds"]))


if __name__ == "__main__":
    main()
