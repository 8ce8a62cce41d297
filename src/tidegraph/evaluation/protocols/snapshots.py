"""The edges of the next snapshot among all pairs of its sources, as ROLAND evaluates."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.core.progress import Progress
from tidegraph.evaluation import metrics
from tidegraph.evaluation.heuristics import Heuristic, snapshot_heuristics
from tidegraph.evaluation.memory import Meetings, Memory
from tidegraph.evaluation.protocols import scoring
from tidegraph.evaluation.protocols.scoring import HeuristicFactory
from tidegraph.evaluation.results import Result, ResultBuilder, Row
from tidegraph.evaluation.splits import SnapshotSplit
from tidegraph.events.stream import EventStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
TableScore = Callable[[IntArray, int], ArrayLike]  # sources, task -> [sources, nodes]


def evaluate_snapshots(
    score_all: TableScore | None,
    stream: EventStream,
    split: SnapshotSplit,
    *,
    part: str = "test",
    negatives: int = 1000,
    seed: int = 0,
    heuristics: HeuristicFactory | None = None,
    model: str = "model",
    training_negatives: str | None = None,
    progress: Progress | None = None,
) -> Result:
    """Rank the edges of the next snapshot among all pairs of its sources, by both MRRs in use.

    `score_all(sources, k)` returns [sources, nodes] from the snapshots up to and including `k`.
    `mrr-full` ranks every true destination among all nodes and counts ties half; `mrr-1000` ranks
    the best one of each source against 1,000 drawn nodes and counts ties against it;
    `mrr-1000-expected` is its mean over all draws. Heuristics know the same snapshots. A pair that
    occurs several times in a snapshot counts once. Each value is the mean over sources, then over
    snapshots.

    First meetings (`first_test`) are pairs that have not met in any snapshot so far, in either
    direction, by `mrr-full` among the nodes that their source has not met.
    """
    scoring.reject_removals(stream)
    tasks = split.part(part)
    if len(tasks) == 0:
        raise EvaluationError(f"the split has no {part} tasks; there is nothing to evaluate")
    own = None if score_all is None else model
    builder = ResultBuilder("snapshots", stream, own, "mrr-full", training_negatives, "snapshot")
    order = np.argsort(split.index, kind="stable")
    bounds = np.searchsorted(split.index[order], np.arange(split.snapshots + 1))
    order = order[bounds[0] :]  # those in a snapshot
    bounds -= bounds[0]
    events = EventStream(
        stream.src[order], stream.dst[order], split.index[order], stream.nodes, unit="step"
    )
    memory = Memory(events)
    scorers: dict[str, TableScore] = {} if score_all is None else {model: score_all}
    for heuristic in (heuristics or snapshot_heuristics)():
        if heuristic.name in scorers:
            raise ParameterError(f"two scorers are called {heuristic.name!r}; rename one")
        scorers[heuristic.name] = partial(_table, heuristic, memory, bounds)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in scorers}
    spent = dict.fromkeys(scorers, 0.0)
    work = scoring.Work(progress, len(tasks) * len(scorers))
    pairs, tied, of_first, meetings = 0, 0, 0, Meetings(events)
    found_first: dict[str, list[float]] = {name: [] for name in scorers}
    for task in tasks:
        target = events[int(bounds[task + 1]) : int(bounds[task + 2])]
        keys = np.unique(target.src * stream.nodes + target.dst)
        sources, row = np.unique(keys // stream.nodes, return_inverse=True)
        column = keys % stream.nodes
        pairs += len(keys)
        first = ~meetings.by(sources[row], column, np.full(len(keys), task))
        of_first += int(first.sum())
        kept, row_first = np.unique(row[first], return_inverse=True)
        everyone = np.arange(stream.nodes)
        met = [meetings.by(*np.broadcast_arrays(one, everyone, task)) for one in sources[kept]]
        for name, scorer in scorers.items():
            begun = time.perf_counter()
            table = np.asarray(scorer(sources, task), dtype=np.float64)
            spent[name] += time.perf_counter() - begun
            if table.shape != (len(sources), stream.nodes):
                raise EvaluationError(
                    f"{name} returned scores of shape {table.shape} for task {task}; "
                    f"[{len(sources)}, {stream.nodes}] is needed, every node for each source"
                )
            if name == own:
                true = np.zeros(table.shape, dtype=bool)
                true[row, column] = True
                tied += int(metrics.tied_at_top(table, true).sum())
            found[name].append(
                {
                    "mrr-full": metrics.mrr_full(table, row, column),
                    f"mrr-{negatives}": metrics.mrr_sampled(
                        table, row, column, negatives=negatives, seed=seed + task
                    ),
                    f"mrr-{negatives}-expected": metrics.expected_mrr_sampled(
                        table, row, column, negatives=negatives
                    ),
                }
            )
            if first.any():
                # Below all others, those met before compete with nobody.
                strangers = np.where(met, np.nextafter(table.min(), -np.inf), table[kept])
                found_first[name].append(metrics.mrr_full(strangers, row_first, column[first]))
            work.add(1, f"snapshot {task + 1} by {name}")
    for name, values in found.items():
        means = {key: float(np.mean([value[key] for value in values])) for key in values[0]}
        builder.add(Row(part, "all-nodes", name, means, pairs, seed, spent[name]))
        if of_first:
            means = {"mrr-full": float(np.mean(found_first[name]))}
            about = scoring.FIRST + part, "all-nodes", name, means, of_first
            builder.add(Row(*about, seed, spent[name]))
    builder.warn_of_ties(part, "all-nodes", tied / pairs)
    return builder.result(split, {"negatives": negatives, "seed": seed})


def _table(
    heuristic: Heuristic, memory: Memory, bounds: IntArray, sources: IntArray, task: int
) -> FloatArray:
    """Score every node as destination of each source from the snapshots up to `task`."""
    nodes = np.arange(memory.events.nodes)
    table = np.empty((len(sources), len(nodes)))
    for rows in scoring.slices(len(sources), max(1, scoring.PAIRS_AT_ONCE // len(nodes))):
        src = np.repeat(sources[rows], len(nodes))
        dst = np.tile(nodes, len(sources[rows]))
        t, known = np.full(len(src), task), np.full(len(src), bounds[task + 1])
        table[rows] = heuristic.score(memory.ask(src, dst, t, known)).reshape(-1, len(nodes))
    return table
