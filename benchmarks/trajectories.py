"""Measure recording and reading trajectories; write benchmarks/results/trajectories.json.

python benchmarks/trajectories.py [SECTION ...] [--directory SCRATCH] [--output FILE]

Only the named sections are measured again. Recording: Wikipedia, and a generated stream of Reddit's
size, with two channels of 128 columns. Movement: how much nodes move by events of others. Reading:
windows of 8 changes out of 20 M records of 16 floats, against NumPy on the same mapped file. CPU
seconds are given as well, since they are more reliable on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph import Channel, EventStream, Propagator, Sketch, Trajectories, record
from tidegraph.bench.results import circumstances, script_command, write_json
from tidegraph.core import machine
from tidegraph.events import datasets
from tidegraph.store.recording import new_manifest
from tidegraph.store.segments import Layout, Records, Segment, write_segment

K = 8
IntArray = NDArray[np.int64]


def wikipedia() -> EventStream:
    events = datasets.load_dataset("wikipedia")
    return EventStream(
        src=events.src, dst=events.dst, t=events.t, nodes=events.nodes, unit=events.unit
    )


def like_reddit() -> EventStream:
    """Return posts of 10,000 users in 984 places, four of five in the previous place."""
    rng = np.random.default_rng(0)
    users, places, events = 10_000, 984, 672_447

    def heavy(count: int) -> IntArray:
        weight = np.arange(1, count + 1) ** -0.9
        return rng.choice(count, size=events, p=weight / weight.sum())

    src, drawn, again = heavy(users), heavy(places), rng.random(events) < 0.8
    # Returns go to the place of the user's latest event that was no return.
    order = np.argsort(src, kind="stable")
    fresh = ~again[order]
    fresh[np.flatnonzero(np.diff(src[order], prepend=-1))] = True
    dst = np.empty(events, dtype=np.int64)
    latest = np.maximum.accumulate(np.where(fresh, np.arange(events), 0))
    dst[order] = drawn[order][latest] + users
    t = np.cumsum(rng.exponential(4.0, events)).astype(np.int64)
    return EventStream(src=src, dst=dst, t=t, nodes=users + places, title="like Reddit")


def measure_recording(stream: EventStream, dtype: Any, directory: Path) -> dict[str, Any]:
    """Measure applying a stream with and without recording it."""

    def propagator() -> Propagator:
        channels = (Channel.low_pass(), Channel.high_pass())
        return Propagator(Sketch(128), nodes=stream.nodes, channels=channels)

    steps = stream.steps()
    plain, watched = propagator(), propagator()
    start = time.perf_counter(), time.process_time()
    plain.apply_steps(steps.batch(0, len(steps)), steps.offsets)
    between = time.perf_counter(), time.process_time()
    store = record(steps, watched, directory, dtype=dtype)
    end = time.perf_counter(), time.process_time()
    return {
        "events": len(stream),
        "steps": len(steps),
        "nodes": stream.nodes,
        "dtype": dtype,
        "seconds": round(end[0] - between[0], 2),
        "processor_seconds": round(end[1] - between[1], 2),
        "seconds_without_recording": round(between[0] - start[0], 2),
        "processor_seconds_without_recording": round(between[1] - start[1], 2),
        "records": store.records,
        "records_per_event": round((store.records - stream.nodes) / len(stream), 2),
        "megabytes": round(store.nbytes / 1e6, 1),
    }


def measure_movement(stream: EventStream, directory: Path) -> dict[str, Any]:
    """Return how much nodes move at times without an event of their own, with default settings."""
    store = record(stream.steps(), Propagator(Sketch(128), nodes=stream.nodes), directory)
    ends = np.concatenate([stream.src, stream.dst])
    times = np.tile(stream.t, 2)[np.argsort(ends, kind="stable")]
    first = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=stream.nodes))])
    records = np.zeros(2, dtype=np.int64)  # at times of own events, at others
    distance = np.zeros(2)
    moved_alone = active = 0
    for node in range(stream.nodes):
        own = times[first[node] : first[node + 1]]
        if own.size == 0:
            continue
        at, states = store.changes(node)
        steps = np.linalg.norm(np.diff(states.reshape(len(at), -1), axis=0), axis=1)
        alone = ~np.isin(at[1:], own)
        for which, chosen in enumerate((~alone, alone)):
            records[which] += chosen.sum()
            distance[which] += steps[chosen].sum()
        active += 1
        moved_alone += bool(alone.any())
    return {
        "events": len(stream),
        "nodes_with_events": active,
        "nodes_that_moved_without_own_event": moved_alone,
        "share_of_records_without_own_event": round(records[1] / records.sum(), 4),
        "share_of_distance_without_own_event": round(distance[1] / distance.sum(), 4),
    }


def synthetic_store(directory: Path, nodes: int, per_node: int, columns: int) -> Trajectories:
    """Write a store with `per_node` records of every node, at random times."""
    rng = np.random.default_rng(1)
    nothing = np.zeros(0, dtype=np.int64)
    stream = EventStream(src=nothing, dst=nothing, t=nothing, nodes=nodes)
    propagator = Propagator(Sketch(columns), nodes=nodes)
    directory.mkdir()
    layout = Layout(1, columns, "float32")
    manifest = new_manifest(
        directory, stream, stream.steps(), propagator, 0.05, layout, segment_bytes=1
    )

    def pieces() -> Iterator[Records]:
        for first in range(0, nodes, 10_000):
            count = min(10_000, nodes - first)
            times = np.sort(rng.integers(0, 1 << 30, (count, per_node)), axis=1)
            times[:, 0] = np.iinfo(np.int64).min
            rows = rng.standard_normal((count * per_node, columns), dtype=np.float32)
            scales = np.ones((count * per_node, 1), np.float32)
            exponents = np.zeros((count * per_node, 0), np.int8)
            yield Records(times.reshape(-1, 1), rows, exponents, scales)

    offsets = np.arange(nodes + 1) * per_node
    entry = write_segment(directory, layout, 0, 0, np.arange(nodes), offsets, pieces())
    replace(manifest, segments=(entry,), complete=True).write(directory)
    return Trajectories.open(directory)


class NumPyWindows:
    """The same windows in vectorised NumPy: one search in precomputed keys of (node, time)."""

    def __init__(self, segment: Segment) -> None:
        self._offsets = segment.offsets
        self._times = segment.records(0, segment.entry.records).times[:, 0]
        self._rows = segment.records(0, segment.entry.records).rows
        owner = np.repeat(segment.nodes, np.diff(segment.offsets))
        self._keys = (owner << 31) + np.maximum(self._times, -1) + 1

    def __call__(self, nodes: IntArray, times: IntArray) -> tuple[Any, Any, Any]:
        end = np.searchsorted(self._keys, (nodes << 31) + times + 1)
        index = end[:, None] - np.arange(K + 1, 0, -1)  # [B, K + 1]
        first = self._offsets[nodes][:, None]
        mask = index[:, :-1] >= first
        index = np.maximum(index, first)
        delta = np.diff(self._rows[index], axis=1)
        delta[~mask] = 0
        dt = np.where(mask, times[:, None] - self._times[index[:, 1:]], 0)
        return delta[:, :, None], dt, mask


def rates(work: Callable[[], Any], questions: int, repeats: int = 7) -> tuple[float, float]:
    """Return queries per second of wall time and of CPU time: medians after a warm-up."""
    clock, processor = [], []
    for _ in range(repeats + 1):
        start = time.perf_counter(), time.process_time()
        work()
        clock.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    return questions / statistics.median(clock[1:]), questions / statistics.median(processor[1:])


def measure_reading_from_disk(directory: Path) -> dict[str, Any]:
    """Measure windows with none of the store in the page cache, as if it exceeded memory."""
    nodes, questions = 200_000, 20_000
    synthetic_store(directory, nodes, 100, 16)  # not bound: mapped pages would stay in the cache
    rng = np.random.default_rng(2)
    ids, times = rng.integers(0, nodes, questions), rng.integers(0, 1 << 30, questions)
    for path in directory.iterdir():
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
    start = time.perf_counter()
    Trajectories.open(directory).window(ids, times, K)
    return {
        "questions": questions,
        "k": K,
        "windows_per_s": round(questions / (time.perf_counter() - start)),
    }


def measure_reading(directory: Path) -> dict[str, Any]:
    """Measure windows and states of a cached store, and the same windows with NumPy."""
    nodes, per_node, columns, questions = 200_000, 100, 16, 200_000
    start = time.perf_counter()
    store = synthetic_store(directory, nodes, per_node, columns)
    written_s = time.perf_counter() - start
    manifest = store._view[0]
    segment = Segment(directory, manifest.layout, manifest.segments[0])
    rng = np.random.default_rng(2)
    ids, times = rng.integers(0, nodes, questions), rng.integers(0, 1 << 30, questions)
    naive = NumPyWindows(segment)
    for ours, theirs in zip(store.window(ids, times, K), naive(ids, times), strict=True):
        if not (ours == theirs).all():
            raise AssertionError("NumPy and the store disagree")
    out = store.window(ids, times, K)
    single = Trajectories.open(directory, threads=1)
    contestants = {
        "windows": lambda: store.window(ids, times, K, out=out),
        "windows_into_fresh_arrays": lambda: store.window(ids, times, K),
        "windows_on_one_thread": lambda: single.window(ids, times, K, out=out),
        "states": lambda: store.state(ids, times),
        "numpy_windows": lambda: naive(ids, times),
    }
    result: dict[str, Any] = {
        "records": store.records,
        "columns": columns,
        "k": K,
        "questions": questions,
        "written_s": round(written_s, 1),
    }
    for name, work in contestants.items():
        clock, processor = rates(work, questions)
        result[f"{name}_per_s"] = round(clock)
        result[f"{name}_per_processor_s"] = round(processor)
    for unit in ("s", "processor_s"):
        ratio = result[f"windows_per_{unit}"] / result[f"numpy_windows_per_{unit}"]
        result[f"ratio_to_numpy_per_{unit}"] = round(ratio, 1)
    return result


SECTIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "reading": measure_reading,
    "reading_from_disk": measure_reading_from_disk,
    "wikipedia_float32": lambda path: measure_recording(wikipedia(), "float32", path),
    "wikipedia_float16": lambda path: measure_recording(wikipedia(), "float16", path),
    "like_reddit": lambda path: measure_recording(like_reddit(), "float32", path),
    "movement_wikipedia": lambda path: measure_movement(wikipedia(), path),
    "movement_uci": lambda path: measure_movement(datasets.load_dataset("uci"), path),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--directory", type=Path, help="where to write temporary stores")
    default = Path(__file__).parent / "results" / "trajectories.json"
    parser.add_argument("--output", type=Path, default=default)
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown sections: {', '.join(sorted(unknown))}")
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for name in options.sections or SECTIONS:
        with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
            load = machine.load_average()
            measured = SECTIONS[name](Path(scratch) / "store")
        results[name] = {
            **measured,
            "load_average_before": load,
            **circumstances(script_command()),
        }
        print(json.dumps({name: measured}), flush=True)
        write_json(results, options.output)


if __name__ == "__main__":
    main()
