"""Measures workers against threads on one machine; writes benchmarks/results/workers.json.

python benchmarks/workers.py [--events N] [--columns D] [--repeat R] [--output FILE]
python benchmarks/workers.py --memory NODES EDGES COLUMNS [--output FILE]

Wikipedia's first events are recorded in two shards: in passes with one thread, in passes with two,
and by a local Ray cluster with one worker and with two, each with one thread. All take turns in
every round, the median counts, and all must leave the same bytes. Starting a cluster is measured
apart from working on it. On a machine that others use too the spread tells how much to believe.

With --memory a random graph is recorded as one shard, and the peak of anonymous memory is compared
with what engine and docs/scaling.md account for; the row is added to the file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph import Channel, EventStream, Propagator, Sketch, record_shards
from tidegraph.bench import _commit
from tidegraph.core import machine
from tidegraph.engine.channels import EngineSettings
from tidegraph.events import datasets

SHARDS = 2
SETTINGS = EngineSettings(channels=(Channel.low_pass(), Channel.high_pass()))


def content(path: Path) -> str:
    state = hashlib.blake2b()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            state.update(str(file.relative_to(path)).encode())
            state.update(file.read_bytes())
    return state.hexdigest()


def anonymous_bytes() -> int:
    """Memory of this process that no file stands behind."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def peak_of_recording(nodes: int, edges: int, columns: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, nodes, (2, edges))
    stream = EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 120, edges)), nodes=nodes)
    segment = 1 << 24
    before = peak = anonymous_bytes()
    over = threading.Event()

    def look() -> None:
        nonlocal peak
        while not over.wait(0.005):
            peak = max(peak, anonymous_bytes())

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "shards"
        store = record_shards(
            stream, Sketch(columns), path, shards=1, threads=1, epsilon=0.5, segment_bytes=segment
        )
        over.set()
        looking.join()
        saved = next((path / "shard-000").glob("checkpoint-*.state"))
        counted = Propagator.load(saved, threads=1).statistics()
    engine = counted["graph_bytes"] + counted["state_bytes"]
    # As docs/scaling.md has it: states as readers see them and those of a step; records that wait,
    # of up to a step more than a segment, while they are sealed; the lists in a checkpoint; and
    # which step an event belongs to.
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
        "peak_anonymous_bytes": peak - before,
        "engine_bytes": engine,
        "formula_bytes": int(formula),
        "peak_over_engine": round((peak - before) / engine, 2),
        "peak_over_formula": round((peak - before) / formula, 2),
        "records": store.records,
        "disk_bytes": store.nbytes,
        "command": shlex.join(["python", *sys.argv]),
        **_commit(),
    }


def awake() -> None:
    """What a worker does before it can work; long enough that no other does it in its place."""
    import tidegraph.store.shards  # noqa: F401

    time.sleep(0.2)


def cluster(cores: int) -> float:
    """Starts a local Ray cluster and one worker per core; the seconds that took."""
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
        given.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
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
    kept = json.loads(given.output.read_text()) if given.output.exists() else {}
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
        "machine": {
            **machine.describe(),
            "load_average_before": load_before,
            "load_average_after": machine.load_average(),
        },
        "ray": ray.__version__,
        "command": shlex.join(["python", *sys.argv]),
        **_commit(),
        "memory": kept.get("memory", []),
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results["seconds"]))


if __name__ == "__main__":
    main()
