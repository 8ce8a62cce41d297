"""Measures tidegraph and PyG's TGN one after the other; writes benchmarks/results/against_tgn.json.

python benchmarks/against_tgn.py [--epochs 10] [--events N] [--output FILE]

Wikipedia without edge features, TGN's split, one destination from the destination set per event
(`random-dst`, the protocol's seed), AP per batch of 200. Ours: the default settings; the clock runs
from reading the CSV, stands while a finished epoch is judged on the test events, and shows when AP
0.990 was passed. TGN: memory, time encoding and attention of torch_geometric in the sizes of its
example, batch 200, learning rate 1e-3; the clock counts training alone. It answers with the state
at the start of a batch, ours with all strictly earlier events. --events takes the beginning of the
stream, to see that all of it works; that is printed, not written.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric

from tidegraph import EventStream, bench, evaluation
from tidegraph.core import machine
from tidegraph.evaluation import Split
from tidegraph.events import datasets
from tidegraph.learning.tasks import LinkPredictor
from tidegraph.reproduce.tgn import SETTINGS, Replay

TARGET = 0.990
JUDGED_AFTER = (5, 10)  # epochs
RESULTS = Path(__file__).parent / "results" / "against_tgn.json"


class Stopwatch:
    """Seconds while it is not held."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._held_s = 0.0

    def seconds(self) -> float:
        return time.perf_counter() - self._begun - self._held_s

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        since = time.perf_counter()
        yield
        self._held_s += time.perf_counter() - since


def events(count: int | None) -> tuple[EventStream, Split]:
    """Who met whom and when, divided as TGN does."""
    stream = datasets.load_dataset("wikipedia")[:count]
    bare = EventStream(stream.src, stream.dst, stream.t, stream.nodes, stream.unit)
    return bare, evaluation.tgn_split(bare)


# Ours ---------------------------------------------------------------------------------------------


def tidegraph(count: int | None) -> dict[str, Any]:
    """Seconds and test AP after every epoch, and at the end."""
    clock = Stopwatch()
    stream, split = events(count)
    predictor = LinkPredictor()
    spent = {"read": clock.seconds()}
    predictor.observe(stream, split)
    spent["record"] = clock.seconds() - spent["read"]
    curve: list[dict[str, float]] = []

    def watch(done: int, total: int, what: str) -> None:
        batches = total // predictor.epochs
        if done % batches:
            return
        seconds, epoch = clock.seconds(), done // batches
        with clock.held():
            predictor._network.eval()
            result = predictor.evaluate(split, samplers=("random-dst",), heuristics=list)
            predictor._network.train()
            ap = result.row("test").metrics["ap"]
            curve.append({"epoch": epoch, "seconds": seconds, "ap": ap})
            print(f"tidegraph: {seconds:.1f} s, epoch {epoch}, test AP {ap:.4f}", flush=True)

    predictor.train(split, progress=watch)
    total_s = clock.seconds()
    spent["train"] = total_s - spent["read"] - spent["record"]
    passed = [point for point in curve if point["ap"] >= TARGET]
    result = predictor.evaluate(split, samplers=("random-dst",), heuristics=list)
    return {
        "settings": predictor.get_params(),
        "training_negatives": predictor.training_negatives,
        "curve": curve,
        "target_ap": TARGET,
        "seconds_to_target": passed[0]["seconds"] if passed else None,
        "seconds_total": total_s,
        "seconds_by_stage": spent,
        "ap": result.row("test").metrics["ap"],
        "ap_new": result.row("new_test").metrics["ap"],
    }


# TGN ----------------------------------------------------------------------------------------------


def tgn(count: int | None, epochs: int) -> dict[str, Any]:
    """Seconds per epoch of training, and test AP after some of them."""
    stream, split = events(count)
    replay = Replay(stream, split, seed=0)
    generator = np.random.default_rng(0)
    seconds: list[float] = []
    curve: list[dict[str, float]] = []
    for epoch in range(1, epochs + 1):
        begun = time.perf_counter()
        loss = replay.train(split.train, generator)
        seconds.append(time.perf_counter() - begun)
        line = f"tgn: epoch {epoch}, {seconds[-1]:.1f} s, loss {loss:.4f}"
        if epoch in JUDGED_AFTER or epoch == epochs:
            validation = replay.judge(split.validation, "validation")
            test = replay.judge(split.test, "test")
            curve.append(
                {
                    "epoch": epoch,
                    "seconds": sum(seconds),
                    "ap_validation": validation["ap"],
                    "ap": test["ap"],
                }
            )
            line += f", test AP {test['ap']:.4f}"
        print(line, flush=True)
    return {
        "settings": {**SETTINGS, "epochs": epochs},
        "epoch_seconds": seconds,
        "seconds_total": sum(seconds),
        "curve": curve,
        "ap": curve[-1]["ap"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=max(JUDGED_AFTER), help="of TGN")
    parser.add_argument("--events", type=int, help="take so many, to try it out")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    load = machine.load_average()
    results: dict[str, Any] = {"data": "wikipedia", "events": given.events}
    results["tidegraph"] = tidegraph(given.events)
    results["tgn"] = tgn(given.events, given.epochs)
    ours, theirs = results["tidegraph"], results["tgn"]
    if ours["seconds_to_target"] is not None:
        results["tgn_training_over_ours_until_target"] = (
            theirs["seconds_total"] / ours["seconds_to_target"]
        )
    results |= {
        "command": shlex.join(["python", "benchmarks/against_tgn.py", *sys.argv[1:]]),
        "machine": machine.describe(),
        "load_average": {"before": load, "after": machine.load_average()},
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        **bench._commit(),
    }
    print(json.dumps(results))
    if given.events is None:
        bench.write(results, given.output)


if __name__ == "__main__":
    main()
