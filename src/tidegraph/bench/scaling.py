"""Time and memory as graphs grow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import median
from typing import Any

import numpy as np

from tidegraph.bench.graphs import MEAN_DEGREE, PowerLaw
from tidegraph.bench.measuring import (
    BenchSettings,
    Measurement,
    Skipped,
    check_promise,
    spread_nodes,
)
from tidegraph.core import machine
from tidegraph.engine.channels import Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch, Op


class _Growing:
    """A power-law graph that random events change: two additions, then a removal, and so on."""

    columns = 64

    def __init__(self, nodes: int, settings: BenchSettings) -> None:
        self.nodes = nodes
        self._law = PowerLaw(nodes, settings.seed)
        start = time.perf_counter()
        self.propagator = Propagator(
            Sketch(self.columns, seed=settings.seed),
            nodes=nodes,
            threads=settings.threads,
            initial=self._law.edges(nodes * MEAN_DEGREE // 2),
        )
        self.build_s = time.perf_counter() - start
        self.access_ns = machine.row_access_ns(nodes, columns=self.columns, seed=settings.seed)
        self.times: list[float] = []
        self.events = self.pushes = self.edge_pushes = 0

    def add_events(self, count: int) -> None:
        """Apply pairs of additions, each followed by the removal of its first."""
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


def growth(settings: BenchSettings) -> Measurement:
    """Measure work and time per event on power-law graphs of 10^4, 10^5 and 10^6 nodes."""
    count = max(30, settings.scaled(2000))
    graphs = []
    for full_size in (10_000, 100_000, 1_000_000):
        nodes = max(100, settings.scaled(full_size))
        settings.report(f"building a graph of {nodes:,} nodes")
        graphs.append(_Growing(nodes, settings))
    settings.report("streaming events")
    for _ in range(settings.repeat):
        for graph in graphs:
            graph.add_events(count)
    for graph in graphs:
        check_promise(graph.propagator, spread_nodes(graph.nodes))
    rows = [graph.row() for graph in graphs]

    def spread(key: str) -> float | None:
        values = [row[key] for row in rows]
        return max(values) / min(values) if min(values) > 0 else None

    return Measurement(
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


def memory(settings: BenchSettings) -> Measurement:
    """Measure bytes per edge, and the peak memory of a static propagation in a new process.

    Edges are measured with weights that are all float32 numbers, as counts are, and with any
    weights, which take more. The peak is what a propagation adds to a process that already holds
    the rows of the graph and, where they are given as an array, the features. It is compared with
    the size of the graph and of three float32 arrays nodes x columns, for features, estimates and
    residuals: features in a plain array are copied, a read-only array and a sketch are not.
    """
    if not machine.memory_bytes():
        raise Skipped("this system does not report the memory of a process")
    nodes, columns = settings.scaled(1_000_000), 64
    arrays = 3 * nodes * columns * np.dtype(np.float32).itemsize
    details: dict[str, Any] = {}
    for source in ("array", "read_only", "sketch"):
        settings.report(f"propagating over {nodes:,} nodes in a new process, features: {source}")
        arguments = json.dumps([source, nodes, columns, settings.threads, settings.seed])
        code = f"from tidegraph.bench.scaling import _print_memory; _print_memory(*{arguments})"
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        details[source] = json.loads(child.stdout.splitlines()[-1])
    peaks = {
        source: of["peak_bytes"] / (of["graph_bytes"] + arrays) for source, of in details.items()
    }
    of = details["array"]
    return Measurement(
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
    """Print, as JSON, what a propagation adds to this process; `source` is that of the features."""
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
