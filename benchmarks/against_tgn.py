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
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import TGNMemory, TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader

from tidegraph import EventStream, bench, datasets, evaluation
from tidegraph.bench import machine
from tidegraph.evaluation import SEEDS, Split, metrics
from tidegraph.tasks import LinkPredictor

TARGET = 0.990
BATCH = 200
LEARNING_RATE = 1e-3
WIDTH = 100  # of memory, time encoding and embedding
NEIGHBOURS = 10
JUDGED_AFTER = (5, 10)  # epochs
RESULTS = Path(__file__).parent / "results" / "against_tgn.json"
IntArray = NDArray[np.int64]


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


class Tgn(nn.Module):
    """A memory per node, read through one layer of attention over its last neighbours."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.memory = TGNMemory(
            nodes,
            1,  # of a message: there are no edge features, and it takes no less
            WIDTH,
            WIDTH,
            message_module=IdentityMessage(1, WIDTH, WIDTH),
            aggregator_module=LastAggregator(),
        )
        self.attention = TransformerConv(
            WIDTH, WIDTH // 2, heads=2, dropout=0.1, edge_dim=1 + WIDTH
        )
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))


class Replay:
    """Goes through events batch by batch: scores each with what came before, then takes it in."""

    def __init__(self, stream: EventStream, split: Split, seed: int) -> None:
        torch.manual_seed(seed)
        self._stream = stream
        self._model = Tgn(stream.nodes)
        self._optimiser = torch.optim.Adam(self._model.parameters(), lr=LEARNING_RATE)
        self._neighbours = LastNeighborLoader(stream.nodes, size=NEIGHBOURS)
        self._place = torch.empty(stream.nodes, dtype=torch.long)
        # The loader numbers events in the order in which it was shown them.
        shown = np.concatenate([split.train, split.validation, split.test])
        self._shown_t = torch.from_numpy(stream.t[shown].copy())

    def forget(self) -> None:
        self._model.memory.reset_state()
        self._neighbours.reset_state()

    def train(self, positions: IntArray, generator: np.random.Generator) -> float:
        """The mean loss of one pass, against one random destination each."""
        self.forget()
        self._model.train()
        destinations = np.unique(self._stream.dst)
        total, batches = 0.0, 0
        for batch in self._batches(positions):
            drawn = generator.choice(destinations, len(batch))
            positive, negative = self._scores(batch, self._stream.src[batch], drawn)
            loss = nn.functional.binary_cross_entropy_with_logits(
                torch.cat([positive, negative]),
                torch.cat([torch.ones_like(positive), torch.zeros_like(negative)]),
            )
            self._take_in(batch)
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()
            self._model.memory.detach()
            total, batches = total + float(loss.detach()), batches + 1
        return total / batches

    @torch.no_grad()
    def judge(self, positions: IntArray, part: str) -> dict[str, float]:
        """AP and AUC of a part, whose events are taken in after they were scored."""
        self._model.eval()
        sampler = evaluation.negative_sampler("random-dst", self._stream, seed=SEEDS[part])
        found: list[tuple[Tensor, Tensor]] = []
        for batch in self._batches(positions):
            columns = self._stream.src[batch], self._stream.dst[batch], self._stream.t[batch]
            found.append(self._scores(batch, *sampler.sample(*columns)))
            self._take_in(batch)
        positive, negative = (torch.cat(scores).numpy() for scores in zip(*found, strict=True))
        return metrics.link_metrics(positive, negative, batch_size=BATCH)

    def _batches(self, positions: IntArray) -> list[IntArray]:
        return [positions[first : first + BATCH] for first in range(0, len(positions), BATCH)]

    def _scores(
        self, batch: IntArray, negative_src: IntArray, negative_dst: IntArray
    ) -> tuple[Tensor, Tensor]:
        src, dst = self._stream.src[batch], self._stream.dst[batch]
        pairs = [torch.from_numpy(ids.copy()) for ids in (src, dst, negative_src, negative_dst)]
        nodes, edges, event = self._neighbours(torch.cat(pairs).unique())
        self._place[nodes] = torch.arange(len(nodes))
        state, updated = self._model.memory(nodes)
        gap = (updated[edges[0]] - self._shown_t[event]).to(state.dtype)
        message = torch.zeros(len(event), 1)
        about = torch.cat([self._model.memory.time_enc(gap), message], dim=1)
        z = self._model.attention(state, edges, about)
        ends = [z[self._place[ids]] for ids in pairs]
        return (
            self._model.head(torch.cat(ends[:2], dim=1)).squeeze(1),
            self._model.head(torch.cat(ends[2:], dim=1)).squeeze(1),
        )

    def _take_in(self, batch: IntArray) -> None:
        columns = (self._stream.src, self._stream.dst, self._stream.t)
        src, dst, t = (torch.from_numpy(column[batch].copy()) for column in columns)
        self._model.memory.update_state(src, dst, t, torch.zeros(len(batch), 1))
        self._neighbours.insert(src, dst)


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
        "settings": {
            "batch": BATCH,
            "learning_rate": LEARNING_RATE,
            "width": WIDTH,
            "neighbours": NEIGHBOURS,
            "epochs": epochs,
        },
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
