"""The last stage of `scale.py`: classify nodes from stored embeddings."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from watch import Progress, Watch, disk_bytes

from tidegraph import Batch, Channel, Propagator, Sketch, load_dataset
from tidegraph.engine import compact, passes
from tidegraph.evaluation.metrics import micro_f1
from tidegraph.events.datasets import generate_mag_features

_TRAIN, _VALIDATION, _TEST = range(3)
_MOST = {_TRAIN: 200_000, _VALIDATION: 20_000, _TEST: 50_000}  # papers of each part
progress = Progress()


@dataclass(frozen=True)
class Questions:
    """Nodes whose class is to be predicted, with earlier ones to learn from."""

    label: NDArray[np.int64]
    part: NDArray[np.int8]  # training, validation, test
    inputs: dict[str, Callable[[NDArray[np.int64]], NDArray[np.float32]]]  # of rows, by name

    def of(self, part: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.part == part)


def classify(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Predict the classes of the latest nodes with networks that read stored embeddings by row."""
    prepare = _papers if options.section.startswith("mag") else _actors
    with Watch() as watch:
        questions, about = prepare(home, options)
        begin = time.perf_counter()
        train, test = questions.of(_TRAIN), questions.of(_TEST)
        truth = questions.label[test]
        majority = int(np.bincount(questions.label[train]).argmax())
        scores: dict[str, Any] = {"majority": micro_f1(truth, np.full(len(test), majority))}
        for name, read in questions.inputs.items():
            scores[name] = [_learned(questions, read, seed) for seed in options.seeds]
        train_s = time.perf_counter() - begin
    return watch.report() | {
        **about,
        "train_s": round(train_s, 2),
        "questions": {
            name: int((questions.part == part).sum())
            for name, part in (("train", _TRAIN), ("validation", _VALIDATION), ("test", _TEST))
        },
        "classes": int(questions.label.max()) + 1,
        "micro_f1": about["micro_f1"] | scores if "micro_f1" in about else scores,
        "seeds": options.seeds,
        "r_max": options.r_max,
    }


def _learned(
    questions: Questions,
    read: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    seed: int,
) -> float:
    """Fit a small network to the training nodes; return its micro-F1 on the test nodes."""
    import torch

    from tidegraph.learning.models import mlp
    from tidegraph.learning.training import Training, fit

    train, validation, test = (questions.of(part) for part in (_TRAIN, _VALIDATION, _TEST))
    torch.set_num_threads(1)  # more would slow so small a network down
    known = read(train[:: max(1, len(train) // 20_000)])
    mean, scale = known.mean(axis=0), known.std(axis=0) + 1e-6
    torch.manual_seed(seed)
    network = mlp(known.shape[1], 128, 2, int(questions.label.max()) + 1, dropout=0.1)
    label = torch.from_numpy(questions.label)

    def logits(rows: NDArray[np.int64]) -> torch.Tensor:
        out: torch.Tensor = network(torch.from_numpy((read(rows) - mean) / scale))
        return out

    def loss(positions: NDArray[np.int64]) -> torch.Tensor:
        rows = train[positions]
        return torch.nn.functional.cross_entropy(logits(rows), label[rows])

    @torch.no_grad()
    def score(rows: NDArray[np.int64]) -> float:
        pieces = np.array_split(rows, max(1, len(rows) // 10_000))
        guessed = np.concatenate([logits(piece).argmax(dim=1).numpy() for piece in pieces])
        return micro_f1(questions.label[rows], guessed)

    training = Training(epochs=8, batch_size=1000, learning_rate=5e-3, patience=8, seed=seed)
    fit(network, len(train), loss, lambda: score(validation), training)
    return score(test)


def _directions(embeddings: NDArray[Any]) -> NDArray[np.float32]:
    """Return `[k, channels · columns]` without lengths, which depend on degree, not on class."""
    length = np.linalg.norm(embeddings, axis=2, keepdims=True)
    return np.asarray(embeddings / np.maximum(length, 1e-12)).reshape(len(embeddings), -1)


def _sampled(part: NDArray[np.int8], most: dict[int, int]) -> NDArray[np.int64]:
    """Return positions of at most `most` nodes of each part, the same for all seeds."""
    rng = np.random.default_rng(0)
    chosen = [
        rng.permutation(np.flatnonzero(part == which))[:count] for which, count in most.items()
    ]
    return np.sort(np.concatenate(chosen))


def _papers(home: Path, options: argparse.Namespace) -> tuple[Questions, dict[str, Any]]:
    """Return papers of 2019, to be learned from those up to 2017, as in OGB's task.

    All citations are known. A paper's features are noise around the centre of its class, and say
    little alone; papers cite their own class more often, which propagation makes use of.
    """
    import pyarrow.parquet as pq

    begin = time.perf_counter()
    features = generate_mag_features(home / "data", options.columns, progress=progress)
    features_s, begin = time.perf_counter() - begin, time.perf_counter()
    graph = compact.open_graph(home / "graph")
    own = np.load(features, mmap_mode="r")
    stored = passes.propagate_in_passes(
        graph,
        own,
        home / "embeddings",
        memory=options.memory,
        r_max=options.r_max,
        progress=progress,
    )
    propagate_s = time.perf_counter() - begin
    table = pq.read_table(home / "data" / "labels.parquet", columns=["t", "label"])
    years = table["t"].to_numpy()  # papers are rows
    part = np.digitize(years, [years.max() - 1, years.max()]).astype(np.int8)
    node = _sampled(part, _MOST)
    offsets = graph.sources[0]

    def degree(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        count = offsets[node[rows] + 1] - offsets[node[rows]]
        return np.asarray(np.log1p(count, dtype=np.float32)[:, None])

    questions = Questions(
        label=table["label"].to_numpy()[node].astype(np.int64),
        part=part[node],
        inputs={
            "degree": degree,
            "own_features": lambda rows: np.asarray(own[node[rows]]),
            "stored_embeddings": lambda rows: _directions(stored[node[rows]]),
        },
    )
    return questions, {
        "nodes": graph.nodes,
        "edges": graph.edges,
        "columns": options.columns,
        "features_s": round(features_s, 2),
        "propagate_s": round(propagate_s, 2),
        "passes": len(stored.residuals),
        "residual_over_promise": float(stored.residuals.max()),
        "embedding_bytes": disk_bytes(home / "embeddings"),
        "features_bytes": features.stat().st_size,
    }


def _actors(home: Path, options: argparse.Namespace) -> tuple[Questions, dict[str, Any]]:
    """Return labels of actors that have changed, asked for at the end of the epoch of the change.

    A random code of each actor's last known label is propagated. A label becomes known, as a change
    of features, when its epoch has ended and all labels of the epoch have been asked for. Edges
    fade with a half-life of half an epoch. With a low-pass and a high-pass filter, even steps,
    which lead back to an actor's own old label, can be distinguished from odd ones. The embeddings
    of all actors are stored after each epoch. The previous label is always wrong.
    """
    stream = load_dataset(str(home / "data"))
    labels = stream.node_labels
    assert labels is not None
    columns = min(options.columns, 64)
    codes = Sketch(columns).rows(np.arange(int(labels.label.max()) + 1))
    begins = np.unique(labels.t)
    epoch = np.searchsorted(begins, labels.t)
    last = np.zeros(stream.nodes, dtype=np.int64)
    before = np.zeros(len(epoch), dtype=np.int64)  # the label before the one of the row
    folder = home / "moments"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begin = time.perf_counter()
    ends = [*begins[1:].tolist(), int(stream.t[-1]) + 1]
    half_life = float(np.diff(begins).mean()) / 2
    started = epoch == 0
    last[labels.node[started]] = labels.label[started]
    propagator = Propagator(
        codes[last],
        channels=[Channel.low_pass(half_life=half_life), Channel.high_pass(half_life=half_life)],
        r_max=options.r_max,
        self_loop=0.0,
    )
    for number, end in enumerate(ends):
        rows = slice(*np.searchsorted(stream.t, [begins[number], end]))
        # At once, since no state within an epoch is used.
        propagator.apply(Batch(src=stream.src[rows], dst=stream.dst[rows], t=stream.t[rows]))
        np.save(folder / f"embeddings-{number:03}.npy", propagator.embedding())
        np.save(folder / f"degrees-{number:03}.npy", propagator.degree()[:, 0])
        now = np.flatnonzero((epoch == number) & ~started)
        if len(now):
            node = labels.node[now]
            before[now], last[node] = last[node], labels.label[now]
            propagator.apply(Batch(feature_nodes=node, feature_values=codes[last[node]]))
        progress(rows.stop, len(stream), f"events, {number + 1} of {len(ends)} epochs")
    propagate_s = time.perf_counter() - begin
    asked = np.flatnonzero(~started)
    part = np.digitize(epoch[asked], [0.7 * len(ends), 0.85 * len(ends)]).astype(np.int8)
    moments = {
        what: [
            np.load(folder / f"{what}-{number:03}.npy", mmap_mode="r")
            for number in range(len(ends))
        ]
        for what in ("embeddings", "degrees")
    }

    def stored(what: str, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        out = np.empty((len(rows), *moments[what][0].shape[1:]), dtype=np.float32)
        of = asked[rows]
        for number in np.unique(epoch[of]):
            here = epoch[of] == number
            out[here] = moments[what][number][labels.node[of[here]]]
        return out

    def degree(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.asarray(np.log1p(stored("degrees", rows)[:, None]))

    test = asked[part == _TEST]
    audit = propagator.audit()
    return Questions(
        label=labels.label[asked].astype(np.int64),
        part=part,
        inputs={
            "degree": degree,
            "stored_embeddings": lambda rows: _directions(stored("embeddings", rows)),
        },
    ), {
        "nodes": stream.nodes,
        "events": len(stream),
        "columns": columns,
        "epochs": len(ends),
        "propagate_s": round(propagate_s, 2),
        "residual_over_promise": float(audit.residual.max()),
        "embedding_bytes": disk_bytes(folder),
        "micro_f1": {"last_label": micro_f1(labels.label[test], before[test])},
    }
