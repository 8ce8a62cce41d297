"""Compare tidegraph with PyG's TGN; write benchmarks/results/against_tgn.json.

python benchmarks/against_tgn.py [--epochs 10] [--events N] [--output FILE]

Both learn Wikipedia without edge features, on TGN's split, against one negative per event from the
destination set (`random-dst`, the protocol's seed), with AP per batch of 200. tidegraph runs with
its default settings; its clock includes reading the CSV, pauses while a finished epoch is scored on
the test events, and shows when AP 0.990 was reached. TGN is torch_geometric's, with the sizes of
its example, batch 200, learning rate 1e-3; its clock counts training only. TGN scores with the
state at the start of a batch, tidegraph with all strictly earlier events. --events takes the
beginning of the stream to try everything out, and prints the results without writing them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric

from tidegraph import EventStream, evaluation
from tidegraph.bench.results import circumstances, script_command, write_json
from tidegraph.core import machine
from tidegraph.evaluation import Split
from tidegraph.events import datasets
from tidegraph.learning.tasks import LinkPredictor
from tidegraph.reproduce.tgn import SETTINGS, Replay

TARGET = 0.990
SCORED_AFTER = (5, 10)  # epochs
RESULTS = Path(__file__).parent / "results" / "against_tgn.json"


class Stopwatch:
    """Seconds since it was created, without pauses."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._paused_s = 0.0

    def seconds(self) -> float:
        return time.perf_counter() - self._begun - self._paused_s

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        since = time.perf_counter()
        yield
        self._paused_s += time.perf_counter() - since


def events(count: int | None) -> tuple[EventStream, Split]:
    """Return the stream without edge features, and TGN's split of it."""
    stream = datasets.load_dataset("wikipedia")[:count]
    bare = EventStream(stream.src, stream.dst, stream.t, stream.nodes, stream.unit)
    return bare, evaluation.tgn_split(bare)


# Ours ---------------------------------------------------------------------------------------------


def tidegraph(count: int | None) -> dict[str, Any]:
    """Return seconds and test AP after every epoch, and at the end."""
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
        with clock.paused():
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
    """Return seconds per epoch of training, and test AP after some of them."""
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
        if epoch in SCORED_AFTER or epoch == epochs:
            validation = replay.evaluate(split.validation, "validation")
            test = replay.evaluate(split.test, "test")
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
    parser.add_argument("--epochs", type=int, default=max(SCORED_AFTER), help="of TGN")
    parser.add_argument("--events", type=int, help="use only the first N")
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
        "load_average": {"before": load, "after": machine.load_average()},
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        **circumstances(script_command()),
    }
    print(json.dumps(results))
    if given.events is None:
        write_json(results, given.output)


if __name__ == "__main__":
    main()
