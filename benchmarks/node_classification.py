"""Classify nodes on four data sets; write benchmarks/results/node_classification.json.

python benchmarks/node_classification.py [DATA ...] [--seeds N ...] [--output FILE]

Only the named data sets are measured again. Of a few candidate settings, the one with the best mean
validation metric over the seeds is chosen; its test metric is reported for every seed, next to the
heuristics. Wikipedia is classified without edge features (the compact file has none), flights-3m by
its first 500,000 events, and GDELT is a small generated stream in its shape, whose labels are asked
for two days after they changed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph import EventStream, NodeClassifier
from tidegraph.bench.results import circumstances, script_command, write_json
from tidegraph.evaluation import Result, Split, tgb_split, tgn_split, time_split
from tidegraph.events import datasets
from tidegraph.learning.presets import preset

# Tried on validation. None of these changes what is recorded of the graph.
CANDIDATES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no labels known": {"known_labels": False},
    "more dropout": {"dropout": 0.5},
    "all classes weigh the same": {"balance": 1.0},
    "larger": {"hidden": 128, "epochs": 20},
    "representations not read": {"states": False},
}
# Without node features, states are random and not read anyway.
WITHOUT_FEATURES = tuple(name for name in CANDIDATES if name != "representations not read")


@dataclass(frozen=True)
class Task:
    """A stream with labels, and its split."""

    stream: EventStream
    split: Split
    settings: dict[str, Any]
    metric: str
    candidates: tuple[str, ...] = tuple(CANDIDATES)


def wikipedia() -> Task:
    stream = datasets.load_dataset("wikipedia")
    return Task(stream, tgn_split(stream), preset("node", "wikipedia"), "auc", WITHOUT_FEATURES)


def pubmed() -> Task:
    stream = datasets.load_dataset("pubmed-temporal")
    split = time_split(stream, validation_time=2007, test_time=2008)
    settings = preset("node", "pubmed-temporal")
    return Task(stream, split, settings, "micro-f1", WITHOUT_FEATURES)


def flights() -> Task:
    stream = datasets.load_dataset("flights-3m")[:500_000]
    # Few candidates, since it takes the longest.
    candidates = ("defaults", "no labels known")
    return Task(stream, tgb_split(stream), preset("node", "flights-3m"), "auc", candidates)


def like_gdelt() -> Task:
    with tempfile.TemporaryDirectory() as directory:
        path = datasets.generate_gdelt_like(
            Path(directory) / "gdelt",
            nodes=1_000,
            events=100_000,
            pairs=6_000,
            steps=4_000,
            features=32,
            classes=8,
            changes=3.0,
        )
        stream = datasets.load_dataset(path)
        # Copied out of the files, which are deleted.
        stream = EventStream(
            np.array(stream.src),
            np.array(stream.dst),
            np.array(stream.t),
            nodes=stream.nodes,
            unit=stream.unit,
            node_features=np.array(stream.node_features),
            node_labels=stream.node_labels,
            title=stream.title,
        )
    # New labels are drawn at random: only later events depend on them.
    settings = {"ask_after": 2 * 24 * 60}
    return Task(stream, tgb_split(stream), settings, "micro-f1")


TASKS: dict[str, Callable[[], Task]] = {
    "wikipedia": wikipedia,
    "pubmed-temporal": pubmed,
    "flights-3m": flights,
    "like-gdelt": like_gdelt,
}


def measure(task: Task, seeds: list[int]) -> dict[str, Any]:
    """Return the results of the candidate that is best on validation."""
    tried: dict[str, list[dict[str, Any]]] = {name: [] for name in task.candidates}
    for seed in seeds:
        begun = time.perf_counter()
        classifier = NodeClassifier(**task.settings, seed=seed)
        classifier.observe(task.stream, task.split)
        recorded_s = round(time.perf_counter() - begun, 1)
        before = classifier.get_params()
        for name in task.candidates:
            classifier.set_params(**{**before, **CANDIDATES[name]})
            result, trained = _train(classifier, task)
            tried[name].append({"seed": seed, "recorded_s": recorded_s, **trained})
            print(f"  seed {seed}, {name}: {trained['validation']}", flush=True)
    on_validation = {
        name: statistics.mean(each["validation"][task.metric] for each in of_seeds)
        for name, of_seeds in tried.items()
    }
    chosen = max(on_validation, key=lambda name: on_validation[name])
    values = [each["test"][task.metric] for each in tried[chosen]]
    heuristics = {row.scorer: row.metrics for row in result.rows if row.part == "test"}
    del heuristics[str(result.model)]
    print(f"  {chosen}: test {task.metric} {values}", flush=True)
    return {
        "title": task.stream.title,
        "events": len(task.stream),
        "nodes": task.stream.nodes,
        "labels": result.split["sizes"],
        "metric": task.metric,
        "chosen_by": "validation metric, mean over the seeds",
        "mean_on_validation": on_validation,
        "settings": {**task.settings, **CANDIDATES[chosen]},
        "runs": tried[chosen],
        "test_mean": statistics.mean(values),
        "test_sd": statistics.stdev(values) if len(values) > 1 else None,
        "heuristics_on_test": heuristics,
    }


def _train(classifier: NodeClassifier, task: Task) -> tuple[Result, dict[str, Any]]:
    """Train on what was recorded; return the evaluation, and what of it is stored."""
    begun = time.perf_counter()
    classifier.train(task.split)
    result = classifier.evaluate(task.split)
    return result, {
        **{part: result.row(part).metrics for part in ("validation", "test")},
        "trained_and_asked_s": round(time.perf_counter() - begun, 1),
        "epochs": len(classifier.epochs_),
        "reads_states": classifier.reads_states_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", choices=[*TASKS, []], help="data sets; default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    output = Path(__file__).parent / "results" / "node_classification.json"
    parser.add_argument("--output", type=Path, default=output)
    options = parser.parse_args()
    old = json.loads(options.output.read_text()) if options.output.exists() else {}
    results: dict[str, Any] = old.get("results", {})
    for name in options.data or TASKS:
        print(f"{name} ...", flush=True)
        found = measure(TASKS[name](), options.seeds)
        results[name] = {**circumstances(script_command()), **found}
        ordered = {task: results[task] for task in TASKS if task in results}
        write_json({"results": ordered}, options.output)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
