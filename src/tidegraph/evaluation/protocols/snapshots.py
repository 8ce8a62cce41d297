"""The edges of the next snapshot among all pairs of its sources, as ROLAND evaluates."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.evaluation import metrics
from tidegraph.evaluation.heuristics import snapshot_heuristics
from tidegraph.evaluation.protocols import scoring
from tidegraph.evaluation.protocols.scoring import HeuristicFactory
from tidegraph.evaluation.results import Result, ResultBuilder, Row
from tidegraph.evaluation.splits import SnapshotSplit
from tidegraph.events.stream import EventStream

__all__ = ["evaluate_snapshots"]

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
) -> Result:
    """Rank the edges of the next snapshot among all pairs of its sources, by both MRRs in use.

    `score_all(sources, k)` returns [sources, nodes] from the snapshots up to and including `k`.
    `mrr-full` ranks every true destination among all nodes and counts ties half; `mrr-1000` ranks
    the best one of each source against 1,000 drawn nodes and counts ties against it;
    `mrr-1000-expected` is its mean over all draws. Heuristics know the same snapshots. A pair that
    occurs several times in a snapshot counts once. Each value is the mean over sources, then over
    snapshots.
    """
    scoring.reject_removals(stream)
    tasks = split.part(part)
    if len(tasks) == 0:
        raise EvaluationError(f"the split has no {part} tasks; there is nothing to evaluate")
    own = None if score_all is None else model
    builder = ResultBuilder("snapshots", stream, own, "mrr-full", training_negatives)
    order = np.argsort(split.index, kind="stable")
    bounds = np.searchsorted(split.index[order], np.arange(split.snapshots + 1))

    def snapshots(first: int, last: int) -> EventStream:
        taken = order[bounds[first] : bounds[last]]
        return EventStream(
            stream.src[taken], stream.dst[taken], split.index[taken], stream.nodes, unit="step"
        )

    known = list((heuristics or snapshot_heuristics)())
    scorers: dict[str, TableScore] = {} if score_all is None else {model: score_all}
    for heuristic in known:
        if heuristic.name in scorers:
            raise ParameterError(f"two scorers are called {heuristic.name!r}; rename one")
        scorers[heuristic.name] = partial(heuristic.score_all, nodes=stream.nodes)
        heuristic.update(snapshots(0, tasks[0]))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in scorers}
    spent = dict.fromkeys(scorers, 0.0)
    pairs = 0
    for task in tasks:
        for heuristic in known:
            heuristic.update(snapshots(task, task + 1))
        target = snapshots(task + 1, task + 2)
        keys = np.unique(target.src * stream.nodes + target.dst)
        sources, row = np.unique(keys // stream.nodes, return_inverse=True)
        column = keys % stream.nodes
        pairs += len(keys)
        for name, scorer in scorers.items():
            begun = time.perf_counter()
            table = np.asarray(scorer(sources, task), dtype=np.float64)
            spent[name] += time.perf_counter() - begun
            if table.shape != (len(sources), stream.nodes):
                raise EvaluationError(
                    f"{name} returned scores of shape {table.shape} for task {task}; "
                    f"[{len(sources)}, {stream.nodes}] is needed, every node for each source"
                )
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
    for name, values in found.items():
        means = {key: float(np.mean([value[key] for value in values])) for key in values[0]}
        builder.add(Row(part, "all-nodes", name, means, pairs, seed, spent[name]))
    return builder.result(split, {"negatives": negatives, "seed": seed})
