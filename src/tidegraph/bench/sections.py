"""The sections of `tidegraph bench propagation`: each measures one claim about the engine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.bench.competitors import PowerIteration, Skipped, Yardstick, needs_scipy
from tidegraph.bench.graphs import MEAN_DEGREE, PowerLaw, Stream, load_stream
from tidegraph.core import machine
from tidegraph.core.errors import DataError, ParameterError, TidegraphError
from tidegraph.engine.channels import Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.engine.verify import step_offsets
from tidegraph.events import datasets
from tidegraph.events.batch import Batch, Op

__all__ = ["SECTIONS", "BrokenPromise", "Measured", "Run"]

_WARM_STEPS = 50  # applied one by one before one is timed
_PROMISE = 1 + 1e-6  # what a certificate may be of the promise


class BrokenPromise(TidegraphError):
    """The engine was fast but not within the promised error, so that its times mean nothing."""


def _say_nothing(what: str) -> None:
    pass


@dataclass(frozen=True)
class Run:
    """How to measure. `scale` shrinks everything, for trying things out."""

    workplace: Path  # for files that nobody needs afterwards
    repeat: int = 5
    threads: int = 2
    scale: float = 1.0
    seed: int = 0
    say: Callable[[str], None] = field(default=_say_nothing)

    def __post_init__(self) -> None:
        if self.repeat < 1 or self.threads < 1 or not 0 < self.scale <= 1:
            raise ParameterError(
                f"repeat={self.repeat}, threads={self.threads}, scale={self.scale}; give at least"
                " 1 of the first two and a scale above 0 and at most 1"
            )

    def rounds(self, what: str) -> range:
        self.say(what)
        return range(self.repeat)

    def scaled(self, count: int) -> int:
        return max(1, round(count * self.scale))


@dataclass(frozen=True)
class Measured:
    """What a section found: headline numbers, and all that they were made of."""

    results: dict[str, Any]
    details: dict[str, Any]


def _worst_ratio(propagator: Propagator, nodes: NDArray[np.int64] | None = None) -> float:
    """The certified error over the promised one: the largest of the given nodes, or of all."""
    return float((propagator.error_bound(nodes) / propagator.threshold(nodes)).max())


def _check_promise(propagator: Propagator, nodes: NDArray[np.int64] | None = None) -> float:
    ratio = _worst_ratio(propagator, nodes)
    if not ratio <= _PROMISE:
        raise BrokenPromise(f"the certified error is {ratio:.3g} times the promised one")
    return ratio


def _median_ratio(slow: list[float], fast: list[float]) -> float:
    """The median over rounds: within a round both sides met the same machine."""
    return median(a / b for a, b in zip(slow, fast, strict=True))


def _spread_nodes(nodes: int, count: int = 4096) -> NDArray[np.int64]:
    """Nodes from all over; a bound per unit of degree is the same for all of them."""
    return np.unique(np.linspace(0, nodes - 1, min(nodes, count)).astype(np.int64))


# Streams against the yardstick --------------------------------------------------------------------


def _time_stream(stream: Stream, run: Run, threads: int) -> tuple[float, Propagator]:
    propagator = stream.propagator(threads, run.seed)
    start = time.perf_counter()
    propagator.apply_steps(stream.batch, stream.offsets)
    return time.perf_counter() - start, propagator


def _against_yardstick(run: Run, name: str) -> Measured:
    stream = load_stream(name, run.scale)
    run.say("compiling the yardstick")
    yardstick = Yardstick(run.workplace)
    file = yardstick.write(name, stream.text())
    single: list[list[float]] = []
    theirs: dict[bool, list[float]] = {True: [], False: []}
    certified = 0.0

    def time_engine() -> float:
        nonlocal certified
        elapsed_s, propagator = _time_stream(stream, run, run.threads)
        certified = max(certified, _check_promise(propagator))
        return elapsed_s

    for round_ in range(run.repeat):
        of = f"run {round_ + 1} of {run.repeat}"
        run.say(f"engine, {of}")
        around = [time_engine()]
        for merge, times in theirs.items():
            run.say(f"yardstick{', merged' if merge else ''}, {of}")
            times.append(
                yardstick.run(
                    file,
                    nodes=stream.nodes,
                    columns=stream.columns,
                    r_max=stream.r_max,
                    threads=run.threads,
                    steps=stream.steps,
                    merge=merge,
                )
            )
            around.append(time_engine())
        single.append(around)
    # A tenth of a second tells little about the quarter of a minute that the yardstick takes, so
    # the engine runs before, between and after.
    ours = [median(around) for around in single]
    return Measured(
        {
            f"yardstick_ratio_{name}": _median_ratio(theirs[False], ours),
            f"merged_ratio_{name}": _median_ratio(theirs[True], ours),
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


def uci(run: Run) -> Measured:
    """UCI messages in 89 snapshots, against the yardstick."""
    return _against_yardstick(run, "uci")


def wikipedia(run: Run) -> Measured:
    """Wikipedia edits, 20,000 steps, against the yardstick."""
    return _against_yardstick(run, "wikipedia")


# Against recomputation ----------------------------------------------------------------------------


def _limit(propagator: Propagator, ratio: float) -> NDArray[np.float64]:
    """`ratio` times the promise, per column, in the unit of `PowerIteration`."""
    channel = propagator.channels[0]
    beta = propagator.beta if channel.beta is None else channel.beta
    per_degree = propagator.degree([0])[0, 0] ** (1 - beta)
    return np.asarray(ratio * propagator.threshold([0])[0, 0] / per_degree)


def recompute(run: Run) -> Measured:
    """An update of Wikipedia's event stream, against power iteration from the solution before it.

    The competitor gets its matrix for free and stops at the engine's own certified error.
    """
    needs_scipy()
    events = datasets.load_dataset("wikipedia")
    offsets = step_offsets(events.t)
    offsets = offsets[: run.scaled(len(offsets) - 1) + 1]
    samples = min(max(2, run.scaled(200)), len(offsets) - 1)
    rng = np.random.default_rng(run.seed)
    steps = np.sort(rng.choice(len(offsets) - 1, samples, replace=False))
    batch = Batch(events.src, events.dst, t=events.t)
    # The second one only tells the competitor what to reach, so that the first runs as a stream
    # does: it is not read, and finds in the caches what the steps before left there.
    propagator, shadow = (
        Propagator(Sketch(128, seed=run.seed), nodes=events.nodes, threads=run.threads)
        for _ in range(2)
    )

    def apply_one(step: int) -> float:
        part = slice(int(offsets[step]), int(offsets[step + 1]))
        start = time.perf_counter()
        propagator.apply(Batch(events.src[part], events.dst[part], t=events.t[part]))
        return time.perf_counter() - start

    ours: list[float] = []
    theirs: list[float] = []
    iterations: list[int] = []
    solution: NDArray[np.float32] | None = None
    done = 0
    for k, step in enumerate(steps):
        run.say(f"step {k + 1} of {samples}")
        shadow.apply_steps(batch, offsets[done : step + 1])
        before = PowerIteration(shadow)
        first = before.first if solution is None else solution
        solution = before.solve(first, _limit(shadow, _worst_ratio(shadow))).ratio
        shadow.apply_steps(batch, offsets[step : step + 2])
        limit = _limit(shadow, _check_promise(shadow))
        after = PowerIteration(shadow).solve(solution, limit)
        theirs.append(after.elapsed_s)
        iterations.append(after.iterations)
        solution = after.ratio
        warm = max(done, step - _WARM_STEPS)
        propagator.apply_steps(batch, offsets[done : warm + 1])
        for earlier in range(warm, step):
            apply_one(earlier)
        ours.append(apply_one(step))
        done = int(step) + 1
    return Measured(
        {"recompute_ratio": sum(theirs) / sum(ours)},
        {
            "columns": 128,
            "r_max": 1e-2,
            "steps_sampled": steps.tolist(),
            "engine_s": ours,
            "scipy_s": theirs,
            "scipy_iterations": iterations,
            "scipy_threads": 1,
            "median_of_ratios": _median_ratio(theirs, ours),
        },
    )


def static(run: Run) -> Measured:
    """One propagation over a power-law graph, 1 M nodes and 10 M edges, against power iteration."""
    needs_scipy()
    nodes, columns = run.scaled(1_000_000), 64
    run.say(f"making a graph of {nodes:,} nodes")
    edges = PowerLaw(nodes, run.seed).edges(nodes * MEAN_DEGREE // 2)
    build_s: list[float] = []
    propagate_s: list[float] = []

    def propagate() -> Propagator:
        run.say(f"engine, run {len(build_s) + 1} of {run.repeat}")
        start = time.perf_counter()
        # With this r_max nothing is to be pushed: building and propagating can be told apart.
        propagator = Propagator(
            Sketch(columns, seed=run.seed),
            nodes=nodes,
            r_max=1e3,
            threads=run.threads,
            initial=edges,
        )
        middle = time.perf_counter()
        propagator.refine(1e-3)
        build_s.append(middle - start)
        propagate_s.append(time.perf_counter() - middle)
        return propagator

    propagator = propagate()
    ratio = _check_promise(propagator, _spread_nodes(nodes))
    limit = _limit(propagator, ratio)
    statistics = propagator.statistics()
    run.say("building scipy's matrix")
    competitor = PowerIteration(propagator)
    del propagator  # a gigabyte, which the competitor should not have to share the machine with
    scipy_s: list[float] = []
    iterations: list[int] = []
    while True:
        run.say(f"scipy, run {len(scipy_s) + 1} of {run.repeat}")
        solution = competitor.solve(competitor.first, limit)
        scipy_s.append(solution.elapsed_s)
        iterations.append(solution.iterations)
        del solution
        if len(scipy_s) == run.repeat:
            break
        propagate()
    return Measured(
        {
            "static_ratio_scipy": _median_ratio(scipy_s, propagate_s),
            "static_ratio_scipy_with_building": _median_ratio(
                [competitor.build_s + s for s in scipy_s],
                [b + p for b, p in zip(build_s, propagate_s, strict=True)],
            ),
        },
        {
            "nodes": nodes,
            "edges": statistics["edges"],
            "columns": columns,
            "r_max": 1e-3,
            "engine_build_s": build_s,
            "engine_propagate_s": propagate_s,
            "pushes": statistics["pushes"],
            "edge_pushes": statistics["edge_pushes"],
            "scipy_build_s": competitor.build_s,
            "scipy_iterate_s": scipy_s,
            "scipy_iterations": iterations,
            "scipy_threads": 1,
            "certified_over_promised": ratio,
        },
    )


# Growth -------------------------------------------------------------------------------------------


class _Growing:
    """A power-law graph that takes further random edges; a third of the events takes one back."""

    columns = 64

    def __init__(self, nodes: int, run: Run) -> None:
        self.nodes = nodes
        self._law = PowerLaw(nodes, run.seed)
        start = time.perf_counter()
        self.propagator = Propagator(
            Sketch(self.columns, seed=run.seed),
            nodes=nodes,
            threads=run.threads,
            initial=self._law.edges(nodes * MEAN_DEGREE // 2),
        )
        self.build_s = time.perf_counter() - start
        self.access_ns = machine.row_access_ns(nodes, columns=self.columns, seed=run.seed)
        self.times: list[float] = []
        self.events = self.pushes = self.edge_pushes = 0

    def add_events(self, count: int) -> None:
        """Pairs of additions, each pair followed by the removal of its first."""
        fresh = self._law.edges(2 * ((count + 2) // 3))
        order = np.arange(fresh.rows).reshape(-1, 2)
        rows = np.column_stack([order, order[:, 0]]).reshape(-1)[:count]
        batch = Batch(
            fresh.src[rows],
            fresh.dst[rows],
            weight=np.ones(count),
            op=np.where(np.arange(count) % 3 == 2, Op.REMOVE, Op.ADD).astype(np.uint8),
        )
        before = self.propagator.statistics()
        start = time.perf_counter()
        self.propagator.apply_steps(batch, np.arange(count + 1))
        self.times.append(time.perf_counter() - start)
        after = self.propagator.statistics()
        self.events += count
        self.pushes += after["pushes"] - before["pushes"]
        self.edge_pushes += after["edge_pushes"] - before["edge_pushes"]

    def row(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "edges": self.propagator.statistics()["edges"],
            "pushes_per_event": self.pushes / self.events,
            "edge_pushes_per_event": self.edge_pushes / self.events,
            "us_per_event": 1e6 * median(self.times) * len(self.times) / self.events,
            "random_access_ns": self.access_ns,
            "build_s": self.build_s,
        }


def growth(run: Run) -> Measured:
    """Work and time per event on power-law graphs of 10^4, 10^5 and 10^6 nodes."""
    count = max(30, run.scaled(2000))
    graphs = []
    for full_size in (10_000, 100_000, 1_000_000):
        nodes = max(100, run.scaled(full_size))
        run.say(f"building a graph of {nodes:,} nodes")
        graphs.append(_Growing(nodes, run))
    for _ in run.rounds("streaming events"):
        for graph in graphs:
            graph.add_events(count)
    for graph in graphs:
        _check_promise(graph.propagator, _spread_nodes(graph.nodes))
    rows = [graph.row() for graph in graphs]

    def spread(key: str) -> float | None:
        values = [row[key] for row in rows]
        return max(values) / min(values) if min(values) > 0 else None

    return Measured(
        {
            "growth": rows,
            "growth_pushes": spread("pushes_per_event"),
            "growth_edge_pushes": spread("edge_pushes_per_event"),
            "growth_time": spread("us_per_event"),
            "growth_random_access": spread("random_access_ns"),
        },
        {
            "columns": _Growing.columns,
            "r_max": 1e-2,
            "mean_degree": MEAN_DEGREE,
            "events_per_run": count,
            "stream_s": {str(graph.nodes): graph.times for graph in graphs},
        },
    )


# Threads, latency, memory -------------------------------------------------------------------------


def threads(run: Run) -> Measured:
    """One thread against several on the yardstick's streams, beside what memory bandwidth gains."""
    if run.threads == 1:
        raise Skipped("there is nothing to compare with --threads 1")
    if machine.cores() < run.threads:
        raise Skipped(f"{run.threads} threads were asked for on {machine.cores()} core(s)")
    streams = [load_stream("uci", run.scale), load_stream("wikipedia", run.scale)]
    megabytes = max(1, run.scaled(64))
    counts = (1, run.threads)
    times: dict[str, dict[int, list[float]]] = {s.name: {n: [] for n in counts} for s in streams}
    bandwidth: dict[int, list[float]] = {n: [] for n in counts}
    for round_ in range(-1, run.repeat):  # the first is thrown away
        run.say(f"run {round_ + 1} of {run.repeat}" if round_ >= 0 else "warming up")
        for count in counts if round_ % 2 else counts[::-1]:
            copied = machine.copy_bandwidth(count, megabytes=megabytes)
            elapsed = {stream.name: _time_stream(stream, run, count)[0] for stream in streams}
            if round_ >= 0:
                bandwidth[count].append(copied)
                for name, elapsed_s in elapsed.items():
                    times[name][count].append(elapsed_s)
    scaling = {name: _median_ratio(of[1], of[run.threads]) for name, of in times.items()}
    bandwidth_scaling = _median_ratio(bandwidth[run.threads], bandwidth[1])
    worse = min(scaling.values())
    return Measured(
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


def latency(run: Run) -> Measured:
    """One event at a time through Python: Wikipedia's first 5,000, and its last 5,000."""
    events = datasets.load_dataset("wikipedia")
    rows = min(5000, len(events) // 2, max(10, run.scaled(5000)))
    propagator = Propagator(
        Sketch(128, seed=run.seed), nodes=events.nodes, r_max=1e-2, threads=run.threads
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

    run.say(f"the first {rows:,} events")
    early = one_by_one(0)
    batch = Batch(events.src, events.dst, t=events.t)
    last = len(events) - rows
    run.say("the events between")
    propagator.apply_steps(batch, np.arange(rows, last + 1))
    run.say(f"the last {rows:,} events")
    late = one_by_one(last)
    _check_promise(propagator)
    return Measured(
        {
            "event_latency_us": float(np.median(early)),
            "event_latency_p99_us": float(np.quantile(early, 0.99)),
            "event_latency_late_us": float(np.median(late)),
            "event_latency_late_p99_us": float(np.quantile(late, 0.99)),
        },
        {"columns": 128, "r_max": 1e-2, "events": rows, "channels": 1},
    )


def memory(run: Run) -> Measured:
    """Bytes per edge, and the peak of a static propagation in a process of its own.

    An edge takes less while all weights are float32 numbers, as counts are, than with any weight.
    The peak is what a propagation adds to a process that holds the rows of the graph already, and
    the features, where they are given as an array: both are the user's own. It is set against the
    graph and three float32 arrays nodes x columns, for features, estimates and residuals: features
    in a plain array are copied, a read-only array and a sketch are not.
    """
    if not machine.memory_bytes():
        raise Skipped("this system does not tell a process how much memory it uses")
    nodes, columns = run.scaled(1_000_000), 64
    arrays = 3 * nodes * columns * np.dtype(np.float32).itemsize
    details: dict[str, Any] = {}
    for source in ("array", "read_only", "sketch"):
        run.say(f"propagating over {nodes:,} nodes in a new process, features: {source}")
        arguments = json.dumps([source, nodes, columns, run.threads, run.seed])
        code = f"from tidegraph.bench.sections import _print_memory; _print_memory(*{arguments})"
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        details[source] = json.loads(child.stdout.splitlines()[-1])
    peaks = {
        source: of["peak_bytes"] / (of["graph_bytes"] + arrays) for source, of in details.items()
    }
    of = details["array"]
    return Measured(
        {
            "bytes_per_edge": (of["graph_bytes"] - of["empty_graph_bytes"]) / of["edges"],
            "bytes_per_edge_any_weight": (of["weighted_graph_bytes"] - of["empty_graph_bytes"])
            / of["edges"],
            "graph_bytes_per_node": of["empty_graph_bytes"] / nodes,
            "peak_memory_ratio": peaks["array"],
            "peak_memory_ratio_read_only": peaks["read_only"],
            "peak_memory_ratio_sketch": peaks["sketch"],
        },
        {"nodes": nodes, "columns": columns, "r_max": 1e-3, **details},
    )


def _print_memory(source: str, nodes: int, columns: int, threads: int, seed: int) -> None:
    """What a propagation adds to this process, as JSON; `source` says where its features are."""
    edges = PowerLaw(nodes, seed).edges(nodes * MEAN_DEGREE // 2)
    features: Any = Sketch(columns, seed=seed)
    if source != "sketch":
        features = np.random.default_rng(seed).standard_normal((nodes, columns), dtype=np.float32)
        features.setflags(write=source == "array")
    baseline = machine.forget_peak_memory()
    propagator = Propagator(features, nodes=nodes, r_max=1e-3, threads=threads, initial=edges)
    peak = machine.memory_bytes(peak=True) - baseline
    statistics = propagator.statistics()
    empty = Propagator(Sketch(1), nodes=nodes, threads=threads).statistics()
    weights = np.random.default_rng(seed).lognormal(size=edges.rows)  # few of them float32 numbers
    weighted = Batch(edges.src, edges.dst, weight=weights)
    of_weights = Propagator(Sketch(1), nodes=nodes, threads=threads, r_max=1.0, initial=weighted)
    report = {
        "weighted_graph_bytes": of_weights.statistics()["graph_bytes"],
        "edges": statistics["edges"],
        "graph_bytes": statistics["graph_bytes"],
        "empty_graph_bytes": empty["graph_bytes"],
        "state_bytes": statistics["state_bytes"],
        "baseline_bytes": baseline,
        "peak_bytes": peak,
    }
    print(json.dumps(report))


SECTIONS: dict[str, Callable[[Run], Measured]] = {
    "uci": uci,
    "wikipedia": wikipedia,
    "recompute": recompute,
    "static": static,
    "growth": growth,
    "threads": threads,
    "latency": latency,
    "memory": memory,
}


def measure(name: str, run: Run) -> Measured:
    """One section; `Skipped` where what it needs is absent."""
    try:
        return SECTIONS[name](run)
    except DataError as error:
        raise Skipped(str(error)) from None
