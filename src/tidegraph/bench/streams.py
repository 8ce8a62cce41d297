"""Recorded streams: against the yardstick, over threads, and one event at a time."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tidegraph.bench.competitors import Yardstick
from tidegraph.bench.graphs import Stream, load_stream
from tidegraph.bench.measuring import (
    BenchSettings,
    Measurement,
    Skipped,
    check_promise,
    median_ratio,
)
from tidegraph.core import machine
from tidegraph.engine.channels import Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events import datasets
from tidegraph.events.batch import Batch


def _time_stream(stream: Stream, settings: BenchSettings, threads: int) -> tuple[float, Propagator]:
    propagator = stream.propagator(threads, settings.seed)
    start = time.perf_counter()
    propagator.apply_steps(stream.batch, stream.offsets)
    return time.perf_counter() - start, propagator


def _against_yardstick(settings: BenchSettings, name: str) -> Measurement:
    stream = load_stream(name, settings.scale)
    settings.report("compiling the yardstick")
    yardstick = Yardstick(settings.workplace)
    yardstick.write(stream)
    single: list[list[float]] = []
    theirs: dict[bool, list[float]] = {True: [], False: []}
    certified = 0.0

    def time_engine() -> float:
        nonlocal certified
        elapsed_s, propagator = _time_stream(stream, settings, settings.threads)
        certified = max(certified, check_promise(propagator))
        return elapsed_s

    for round_ in range(settings.repeat):
        of = f"round {round_ + 1} of {settings.repeat}"
        settings.report(f"engine, {of}")
        around = [time_engine()]
        for merge, times in theirs.items():
            settings.report(f"yardstick{', merged' if merge else ''}, {of}")
            times.append(yardstick.run(stream, threads=settings.threads, merge=merge))
            around.append(time_engine())
        single.append(around)
    # The engine takes a tenth of a second, the yardstick a quarter of a minute: the engine is
    # timed before, between and after, so that both sides meet the same machine.
    ours = [median(around) for around in single]
    return Measurement(
        {
            f"yardstick_ratio_{name}": median_ratio(theirs[False], ours),
            f"merged_ratio_{name}": median_ratio(theirs[True], ours),
        },
        {
            **stream.settings(),
            "engine_s": ours,
            "engine_single_s": single,
            "yardstick_s": theirs[False],
            "yardstick_merged_s": theirs[True],
            "yardstick_build": yardstick.build,
            "certified_over_promised": certified,
        },
    )


def uci(settings: BenchSettings) -> Measurement:
    """Compare UCI messages in 89 snapshots with the yardstick."""
    return _against_yardstick(settings, "uci")


def wikipedia(settings: BenchSettings) -> Measurement:
    """Compare Wikipedia edits, 20,000 steps, with the yardstick."""
    return _against_yardstick(settings, "wikipedia")


def threads(settings: BenchSettings) -> Measurement:
    """Compare several threads with one on the yardstick's streams, and with memory bandwidth."""
    if settings.threads == 1:
        raise Skipped("threads is 1; give 2 or more to compare")
    if machine.cores() < settings.threads:
        raise Skipped(f"threads is {settings.threads}; this machine has {machine.cores()} core(s)")
    streams = [load_stream("uci", settings.scale), load_stream("wikipedia", settings.scale)]
    megabytes = max(1, settings.scaled(64))
    counts = (1, settings.threads)
    times: dict[str, dict[int, list[float]]] = {s.name: {n: [] for n in counts} for s in streams}
    bandwidth: dict[int, list[float]] = {n: [] for n in counts}
    for round_ in range(-1, settings.repeat):  # the first does not count
        settings.report(f"round {round_ + 1} of {settings.repeat}" if round_ >= 0 else "warming up")
        for count in counts if round_ % 2 else counts[::-1]:
            copied = machine.copy_bandwidth(count, megabytes=megabytes)
            elapsed = {stream.name: _time_stream(stream, settings, count)[0] for stream in streams}
            if round_ >= 0:
                bandwidth[count].append(copied)
                for name, elapsed_s in elapsed.items():
                    times[name][count].append(elapsed_s)
    scaling = {name: median_ratio(of[1], of[settings.threads]) for name, of in times.items()}
    bandwidth_scaling = median_ratio(bandwidth[settings.threads], bandwidth[1])
    worse = min(scaling.values())
    return Measurement(
        {
            "thread_scaling": worse,
            **{f"thread_scaling_{name}": value for name, value in scaling.items()},
            "bandwidth_scaling": bandwidth_scaling,
            "thread_efficiency": worse / bandwidth_scaling,
        },
        {
            "threads": counts,
            "thread_scaling": "the worse of the two streams",
            "engine_s": times,
            "copied_gb_per_s": {n: [b / 1e9 for b in values] for n, values in bandwidth.items()},
        },
    )


def latency(settings: BenchSettings) -> Measurement:
    """Measure one event at a time through Python: Wikipedia's first 5,000 and last 5,000."""
    events = datasets.load_dataset("wikipedia")
    rows = min(5000, len(events) // 2, max(10, settings.scaled(5000)))
    propagator = Propagator(
        Sketch(128, seed=settings.seed), nodes=events.nodes, r_max=1e-2, threads=settings.threads
    )
    src, dst, t = events.src.tolist(), events.dst.tolist(), events.t.tolist()

    def one_by_one(first: int) -> NDArray[np.float64]:
        times = np.empty(rows)
        for row in range(rows):
            k = first + row
            start = time.perf_counter()
            propagator.apply(Batch(src=[src[k]], dst=[dst[k]], t=t[k]))
            times[row] = time.perf_counter() - start
        return 1e6 * times

    settings.report(f"the first {rows:,} events")
    early = one_by_one(0)
    batch = Batch(events.src, events.dst, t=events.t)
    last = len(events) - rows
    settings.report("the events between")
    propagator.apply_steps(batch, np.arange(rows, last + 1))
    settings.report(f"the last {rows:,} events")
    late = one_by_one(last)
    check_promise(propagator)
    return Measurement(
        {
            "event_latency_us": float(np.median(early)),
            "event_latency_p99_us": float(np.quantile(early, 0.99)),
            "event_latency_late_us": float(np.median(late)),
            "event_latency_late_p99_us": float(np.quantile(late, 0.99)),
        },
        {"columns": 128, "r_max": 1e-2, "events": rows, "channels": 1},
    )
