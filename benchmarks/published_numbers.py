"""Measure what docs/published-numbers.md states; write benchmarks/results/published_numbers.json.

python benchmarks/published_numbers.py [--output FILE]

Ties: a scorer that learns nothing gives 1 to the 100 most popular nodes and 0 to others, and is
ranked on ROLAND's fixed split under several orders of equal scores. What "popular" means is varied,
and every variant is stored. Items: a rule against negatives from all nodes of Wikipedia. Knowledge:
heuristics on Wikipedia that know what precedes each batch, and each event. Padding:
the lengths that DyGFormer's settings would pad the true and the false pairs of a batch to.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.bench.results import circumstances, script_command, write_json
from tidegraph.evaluation import (
    ROLAND_SETTINGS,
    SnapshotSplit,
    evaluate_link,
    evaluate_ranking,
    metrics,
    negative_sampler,
    roland_split,
    tgn_split,
)
from tidegraph.evaluation.heuristics import Heuristic
from tidegraph.evaluation.memory import Asked
from tidegraph.evaluation.splits import in_units
from tidegraph.events.datasets import load_dataset
from tidegraph.events.past import Past
from tidegraph.events.stream import EventStream

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Order = Callable[[NDArray[np.float32]], IntArray]

# As ROLAND uses them: Bitcoin with every edge also reversed.
GRAPHS = {"bitcoin-otc": True, "bitcoin-alpha": True, "uci": False}
BEST = 100  # nodes that get the score 1

# Orders of scores, best first; what is true is listed before what is not. ROLAND's program sorts
# ascending by NumPy's default and reverses. Vector instructions, which recent NumPy uses for
# float32, order equal scores otherwise; no such code exists for long doubles, so these are sorted
# as all types were in the NumPy that the program names.
ORDERS: dict[str, Order] = {
    "program": lambda scores: np.flip(scores.astype(np.longdouble).argsort()),
    "program, this NumPy": lambda scores: np.flip(scores.argsort()),
    "program, stable sort": lambda scores: np.flip(scores.argsort(kind="stable")),
    "true first": lambda scores: np.argsort(-scores, kind="stable"),
}
# The weight of an event in the popularity of its destination, by its age in snapshots. The first
# is the heuristic `popularity` of tidegraph; the others are all that were tried.
POPULARITY: dict[str, Callable[[IntArray], FloatArray]] = {
    "e^(-age/3)": lambda age: np.exp(-age / 3),
    "e^(-age/5)": lambda age: np.exp(-age / 5),
    "e^(-age/7)": lambda age: np.exp(-age / 7),
    "e^(-age/8)": lambda age: np.exp(-age / 8),
    "e^(-age/10)": lambda age: np.exp(-age / 10),
    "0.9^age": lambda age: np.power(0.9, age),
    "last snapshot": lambda age: (age < 1).astype(float),
    "last 3": lambda age: (age < 3).astype(float),
    "last 8": lambda age: (age < 8).astype(float),
    "last 10": lambda age: (age < 10).astype(float),
    "last 12": lambda age: (age < 12).astype(float),
    "all": lambda age: np.ones(len(age)),
}
# Which of equally popular nodes are among the best, by number.
CUTS = {"lowest": 1, "highest": -1}


def row_mrr(order: IntArray, true: int) -> float:
    """Return the mean of 1 / place over the first `true` candidates, as ROLAND's program does."""
    return float(np.mean(1.0 / (1 + np.flatnonzero(order < true))))


def row_mrr_at_random(scores: NDArray[np.float32], true: int) -> float:
    """Return its mean over all orders of equal scores."""
    _, place, count = np.unique(-scores, return_inverse=True, return_counts=True)
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, len(scores) + 1))])
    end = np.cumsum(count)
    mean = (harmonic[end] - harmonic[end - count]) / count
    return float(np.mean(mean[place.reshape(-1)[:true]]))


def most_popular(weight: FloatArray, cut: str) -> IntArray:
    """Return the numbers of the most popular nodes."""
    way = CUTS[cut]
    by_weight = np.argsort(-weight[::way], kind="stable")[:BEST]
    return by_weight if way > 0 else len(weight) - 1 - by_weight


def learns_nothing(
    stream: EventStream,
    split: SnapshotSplit,
    weigh: Callable[[IntArray], FloatArray] = POPULARITY["e^(-age/3)"],
    cut: str = "lowest",
) -> dict[str, float]:
    """Return the MRR of 1 for the most popular nodes by order of ties, and of ties counted half."""
    found: dict[str, list[float]] = {name: [] for name in (*ORDERS, "at random", "half")}
    for task in split.test:
        known = (split.index >= 0) & (split.index <= task)
        weight = np.zeros(stream.nodes)
        np.add.at(weight, stream.dst[known], weigh(task - split.index[known]))
        scores = np.zeros(stream.nodes, dtype=np.float32)
        scores[most_popular(weight, cut)] = 1
        target = split.index == task + 1
        src, dst = stream.src[target], stream.dst[target]
        sources = np.unique(src)
        of_task: dict[str, list[float]] = {name: [] for name in found}
        for source in sources:
            true = dst[src == source]  # an edge that occurs twice is listed twice
            listed = np.concatenate([scores[true], np.delete(scores, true)])
            for name, order in ORDERS.items():
                of_task[name].append(row_mrr(order(listed), len(true)))
            of_task["at random"].append(row_mrr_at_random(listed, len(true)))
        table = np.tile(scores, (len(sources), 1))
        of_task["half"] = [metrics.mrr_full(table, np.searchsorted(sources, src), dst)]
        for name, values in of_task.items():
            found[name].append(float(np.mean(values)))
    return {name: float(np.mean(values)) for name, values in found.items()}


def graph(name: str) -> tuple[EventStream, SnapshotSplit]:
    """Return a graph as ROLAND's program lists it, reversed edges last, and its fixed split."""
    stream = load_dataset(name)
    src, dst, t = stream.src, stream.dst, stream.t
    if GRAPHS[name]:
        src, dst, t = np.concatenate([src, dst]), np.concatenate([dst, src]), np.tile(t, 2)
    width = in_units(ROLAND_SETTINGS[name]["width_s"], stream.unit)
    begin = t // width * width
    order = np.argsort(begin, kind="stable")
    listed = EventStream(src[order], dst[order], begin[order], stream.nodes, unit=stream.unit)
    return listed, roland_split(listed, **ROLAND_SETTINGS[name])


def ties(name: str) -> dict[str, dict[str, float]]:
    """Return what `learns_nothing` gives for every meaning of "popular"."""
    stream, split = graph(name)
    return {
        f"{meaning}, {cut}": learns_nothing(stream, split, weigh, cut)
        for meaning, weigh in POPULARITY.items()
        for cut in CUTS
    }


class SeenOrItem(Heuristic):
    """2 for pairs that have met, 1 for other pairs whose destination is an item, else 0."""

    name = "seen-or-item"

    def __init__(self, items: IntArray) -> None:
        self._items = items

    def score(self, asked: Asked) -> FloatArray:
        result = np.isin(asked.dst, self._items).astype(np.float64)
        result[asked.pair.met] = 2.0
        return result


def items() -> dict[str, dict[str, float]]:
    """Return the metrics of the rule on Wikipedia's test events, by sampler and knowledge."""
    stream = load_dataset("wikipedia")
    pages, split, samplers = np.unique(stream.dst), tgn_split(stream), ("random-all", "random-dst")
    return {
        f"{row.sampler}, {row.part}, {knowledge}": row.metrics
        for knowledge in ("event", "batch")
        for row in evaluate_link(
            *(None, stream, split),
            samplers=samplers,
            knowledge=knowledge,
            heuristics=lambda: [SeenOrItem(pages)],
        ).rows
        if row.part in ("test", "new_test")
    }


def knowledge() -> dict[str, dict[str, float]]:
    """Return the metrics of heuristics on Wikipedia's test events by what they know."""
    stream = load_dataset("wikipedia")
    about, found = (None, stream, tgn_split(stream)), {}
    for known in ("event", "batch"):
        pairs = evaluate_link(*about, samplers=("random-dst", "historical"), knowledge=known)
        for row in (*pairs.rows, *evaluate_ranking(*about, knowledge=known).rows):
            if row.part == "test" and row.knowledge == known:
                found[f"{row.sampler}, {row.scorer}, {known}"] = row.metrics
    return found


def padding(name: str, longest: int = 32, batch_size: int = 200) -> dict[str, int]:
    """Return in how many test batches true and false destinations are padded to other lengths.

    A sequence is a node and its earlier events, the latest `longest - 1` of them; a call pads all
    of its sequences to the longest one. Sources are the same in both calls.
    """
    stream = load_dataset(name)
    test = tgn_split(stream).test
    past = Past(np.concatenate([stream.src, stream.dst]), np.tile(stream.t, 2))
    sampler = negative_sampler("random-dst", stream, seed=2, observed_until=int(stream.t[test[0]]))

    def padded(nodes: IntArray, t: IntArray) -> int:
        first, end = past.span(nodes, t)
        return int(np.minimum(end - first, longest - 1).max()) + 1

    batches = differ = 0
    for begin in range(0, len(test), batch_size):
        rows = test[begin : begin + batch_size]
        src, dst, t = stream.src[rows], stream.dst[rows], stream.t[rows]
        _, drawn = sampler.sample(src, dst, t)
        batches += 1
        differ += padded(dst, t) != padded(drawn, t)
    return {"batches": batches, "differ": differ}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    output = Path(__file__).parent / "results" / "published_numbers.json"
    parser.add_argument("--output", type=Path, default=output)
    options = parser.parse_args()
    results: dict[str, Any] = {**circumstances(script_command()), "numpy": np.__version__}
    results["ties"] = {name: ties(name) for name in GRAPHS}
    results["items"] = items()
    results["knowledge"] = knowledge()
    results["padding"] = {name: padding(name) for name in ("wikipedia", "uci")}
    write_json(results, options.output)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
