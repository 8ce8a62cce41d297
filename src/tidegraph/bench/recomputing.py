"""The engine against scipy: an update against recomputing, and one propagation from nothing."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from tidegraph.bench.competitors import PowerIteration, needs_scipy
from tidegraph.bench.graphs import MEAN_DEGREE, PowerLaw
from tidegraph.bench.measuring import (
    BenchSettings,
    Measurement,
    check_promise,
    median_ratio,
    spread_nodes,
    worst_ratio,
)
from tidegraph.engine.channels import Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events import datasets
from tidegraph.events.batch import Batch

_WARM_STEPS = 50  # applied one by one before a step is timed


def _limit(propagator: Propagator, ratio: float) -> NDArray[np.float64]:
    """Return `ratio` times the threshold, per column, in the unit of `PowerIteration`."""
    channel = propagator.channels[0]
    beta = propagator.beta if channel.beta is None else channel.beta
    per_degree = propagator.degree([0])[0, 0] ** (1 - beta)
    return np.asarray(ratio * propagator.threshold([0])[0, 0] / per_degree)


def recompute(settings: BenchSettings) -> Measurement:
    """Compare an update on Wikipedia's events with power iteration from the previous solution.

    The competitor's matrix is built outside the timing, and it stops at the engine's own error.
    """
    needs_scipy()
    events = datasets.load_dataset("wikipedia")
    offsets = events.steps().offsets
    offsets = offsets[: settings.scaled(len(offsets) - 1) + 1]
    samples = min(max(2, settings.scaled(200)), len(offsets) - 1)
    rng = np.random.default_rng(settings.seed)
    steps = np.sort(rng.choice(len(offsets) - 1, samples, replace=False))
    batch = Batch(events.src, events.dst, t=events.t)
    # The second propagator only provides the error that the competitor has to reach. So the first
    # is never read between steps, and finds the caches as the previous steps left them.
    propagator, shadow = (
        Propagator(Sketch(128, seed=settings.seed), nodes=events.nodes, threads=settings.threads)
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
        settings.report(f"step {k + 1} of {samples}")
        shadow.apply_steps(batch, offsets[done : step + 1])
        before = PowerIteration(shadow)
        first = before.first if solution is None else solution
        solution = before.solve(first, _limit(shadow, worst_ratio(shadow))).ratio
        shadow.apply_steps(batch, offsets[step : step + 2])
        limit = _limit(shadow, check_promise(shadow))
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
    return Measurement(
        {"recompute_ratio": sum(theirs) / sum(ours)},
        {
            "columns": 128,
            "r_max": 1e-2,
            "steps_sampled": steps.tolist(),
            "engine_s": ours,
            "scipy_s": theirs,
            "scipy_iterations": iterations,
            "scipy_threads": 1,
            "median_of_ratios": median_ratio(theirs, ours),
        },
    )


def static(settings: BenchSettings) -> Measurement:
    """Compare one propagation over a power-law graph, 1 M nodes and 10 M edges, with scipy."""
    needs_scipy()
    nodes, columns = settings.scaled(1_000_000), 64
    settings.report(f"generating a graph of {nodes:,} nodes")
    edges = PowerLaw(nodes, settings.seed).edges(nodes * MEAN_DEGREE // 2)
    build_s: list[float] = []
    propagate_s: list[float] = []

    def propagate() -> Propagator:
        settings.report(f"engine, round {len(build_s) + 1} of {settings.repeat}")
        start = time.perf_counter()
        # With this r_max nothing is pushed: building and propagating can be timed separately.
        propagator = Propagator(
            Sketch(columns, seed=settings.seed),
            nodes=nodes,
            r_max=1e3,
            threads=settings.threads,
            initial=edges,
        )
        middle = time.perf_counter()
        propagator.refine(1e-3)
        build_s.append(middle - start)
        propagate_s.append(time.perf_counter() - middle)
        return propagator

    propagator = propagate()
    ratio = check_promise(propagator, spread_nodes(nodes))
    limit = _limit(propagator, ratio)
    statistics = propagator.statistics()
    settings.report("building scipy's matrix")
    competitor = PowerIteration(propagator)
    del propagator  # a gigabyte that would slow the competitor down
    scipy_s: list[float] = []
    iterations: list[int] = []
    while True:
        settings.report(f"scipy, round {len(scipy_s) + 1} of {settings.repeat}")
        solution = competitor.solve(competitor.first, limit)
        scipy_s.append(solution.elapsed_s)
        iterations.append(solution.iterations)
        del solution
        if len(scipy_s) == settings.repeat:
            break
        propagate()
    return Measurement(
        {
            "static_ratio_scipy": median_ratio(scipy_s, propagate_s),
            "static_ratio_scipy_with_building": median_ratio(
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
