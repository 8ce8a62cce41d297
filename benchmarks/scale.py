"""Graphs near the size of memory: time, memory and disk by stage, on made-up look-alikes.

python benchmarks/scale.py mag-hundredth | mag-tenth | mag-full | gdelt-tenth | gdelt
    [--directory /tmp/tidegraph-scale] [--memory 8G] [--columns N] [--r-max 1e-2] [--out FILE]
    [--stages STAGE ...] [--seeds N ...]
python benchmarks/scale.py growth [--edges 1000000 10000000] [--directory ...] [--out FILE]

Growth tells the first three stages against the number of edges, and the first propagation of one
graph against columns and r_max; what results hold of larger look-alikes is drawn with it.

Every stage runs in a process of its own, so that peaks of memory are its own, and is kept in the
directory: the same command goes on after the last whole stage, and inside the building of a graph
and the updates of GDELT where they stood. Results are added to benchmarks/results/scale.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph import Batch, Channel, Propagator, Sketch, load_dataset
from tidegraph.bench.plots import plot_scale
from tidegraph.core import machine
from tidegraph.engine import building, compact, passes, planning
from tidegraph.evaluation.metrics import micro_f1
from tidegraph.events.datasets import generate_gdelt_like, generate_mag_features, generate_mag_like

RESULTS = Path(__file__).parent / "results" / "scale.json"
MAG_NODES, MAG_EDGES = 121_751_665, 1_297_748_926
GDELT_EVENTS, GDELT_STEPS = 19_129_088, 17_052
CHECKPOINT_S = 300.0
_TRAIN, _VALIDATION, _TEST = range(3)
_MOST = {_TRAIN: 200_000, _VALIDATION: 20_000, _TEST: 50_000}  # papers asked for
SECTIONS: dict[str, dict[str, Any]] = {
    "mag-hundredth": {
        "part": 100,
        "columns": 16,
        "stages": ["generate", "build", "first", "years", "classify"],
    },
    "mag-tenth": {
        "part": 10,
        "columns": 16,
        "stages": ["generate", "build", "first", "years", "classify"],
    },
    "mag-full": {"part": 1, "columns": 4, "stages": ["generate", "build", "first"]},
    "gdelt-tenth": {"fewer": 10, "columns": 413, "stages": ["generate", "events", "classify"]},
    "gdelt": {"fewer": 1, "columns": 413, "stages": ["generate", "events", "classify"]},
    "growth": {"columns": 16, "stages": ["generate", "build", "first"]},
}
GROWTH_COLUMNS, GROWTH_R_MAX = (1, 4, 8, 16, 32), (1e-1, 1e-2, 1e-3)


class Watch:
    """Seconds, those of all threads together, and the highest memory, of what runs inside."""

    def __enter__(self) -> Watch:
        self.peak_anonymous = 0
        machine.forget_peak_memory()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        self._begin, self._cpu = time.perf_counter(), time.process_time()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.05):
            self.peak_anonymous = max(self.peak_anonymous, _anonymous_bytes())

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begin
        self.cpu_s = time.process_time() - self._cpu
        self._over.set()
        self._thread.join()

    def report(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 2),
            "cpu_s": round(self.cpu_s, 2),
            "peak_rss_bytes": machine.memory_bytes(peak=True),
            "peak_anonymous_bytes": max(self.peak_anonymous, _anonymous_bytes()),
        }


def _anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def _disk_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _say(done: int, total: int, what: str) -> None:
    now = time.monotonic()
    if now - _say.last > 10 or done == total:  # type: ignore[attr-defined]
        _say.last = now  # type: ignore[attr-defined]
        print(f"  {done:,} of {total:,} {what}", file=sys.stderr, flush=True)


_say.last = 0.0  # type: ignore[attr-defined]


# Stages -------------------------------------------------------------------------------------------


def generate(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    data = home / "data"
    shutil.rmtree(data, ignore_errors=True)
    section = SECTIONS[options.section]
    with Watch() as watch:
        if "fewer" in section:
            events, steps = GDELT_EVENTS // section["fewer"], GDELT_STEPS // section["fewer"]
            generate_gdelt_like(data, events=events, steps=steps, progress=_say)
        else:
            edges = options.edges[0] if options.edges else MAG_EDGES // section["part"]
            nodes = edges * MAG_NODES // MAG_EDGES
            generate_mag_like(data, nodes=nodes, edges=edges, progress=_say)
    return watch.report() | {"disk_bytes": _disk_bytes(data)}


def build(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    description = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    with Watch() as watch:
        graph = building.build(
            home / "data",
            home / "graph",
            nodes=description["nodes"],
            memory=options.memory,
            progress=_say,
        )
    return watch.report() | {
        "nodes": graph.nodes,
        "edges": graph.edges,
        "rows": description["events"],
        "disk_bytes": graph.disk_bytes,
        "bytes_per_edge": graph.disk_bytes / graph.edges,
    }


def first(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The first propagation of one block of columns, and its certificate."""
    with Watch() as watch:
        begin = time.perf_counter()
        graph = compact.open_graph(home / "graph")
        opened_s = time.perf_counter() - begin
        propagator = Propagator(Sketch(columns=options.columns), initial=graph, r_max=options.r_max)
    report = watch.report()
    begin = time.perf_counter()
    audit = propagator.audit()
    planned = planning.plan(
        graph.nodes, graph.edges, options.columns, memory=options.memory, r_max=options.r_max
    )
    return report | {
        "open_s": opened_s,
        "audit_s": time.perf_counter() - begin,
        "residual_over_promise": float(audit.residual.max()),
        "drift_over_promise": float(audit.drift.max()),
        "columns": options.columns,
        "r_max": options.r_max,
        "statistics": propagator.statistics(),
        "planned": asdict(planned),
    }


def years(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The whole graph once more as it grew, year by year, from no edge at all."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(home / "data" / "edges.parquet")
    description = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    done: list[float] = []
    rows = 0

    def whole_years() -> Any:
        """Batches of the rows of one year, which may lie in several row groups."""
        waiting: list[Any] = []
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["src", "dst", "t"])
            src, dst, t = (table[name].to_numpy() for name in ("src", "dst", "t"))
            cuts = [0, *(np.flatnonzero(np.diff(t)) + 1).tolist(), len(t)]
            for begin, end in itertools.pairwise(cuts):
                if waiting and waiting[-1][2] != t[begin]:
                    yield waiting
                    waiting = []
                waiting.append((src[begin:end], dst[begin:end], t[begin]))
        yield waiting

    with Watch() as watch:
        propagator = Propagator(
            Sketch(columns=options.columns), nodes=description["nodes"], r_max=options.r_max
        )
        for pieces in whole_years():
            src, dst = (np.concatenate([piece[i] for piece in pieces]) for i in (0, 1))
            batch = Batch(src=src, dst=dst, t=int(pieces[0][2]))
            begin = time.perf_counter()
            propagator.apply(batch)
            done.append(round(time.perf_counter() - begin, 3))
            rows += batch.rows
            _say(rows, description["events"], f"rows, year {int(pieces[0][2])}")
    report = watch.report()
    audit = propagator.audit()
    return report | {
        "steps": len(done),
        "rows": rows,
        "apply_s": round(sum(done), 2),
        "slowest_step_s": max(done),
        "residual_over_promise": float(audit.residual.max()),
        "columns": options.columns,
        "r_max": options.r_max,
        "statistics": propagator.statistics(),
    }


def events(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A stream of many repeated edges, kept up to date step by step; goes on from checkpoints."""
    state, notes = home / "state", home / "notes.json"
    stream = load_dataset(str(home / "data"))
    steps = stream.steps()
    offsets = np.asarray(steps.offsets)
    so_far: dict[str, Any] = {"step": 0, "apply_s": 0.0}
    with Watch() as watch:
        if state.is_file():
            so_far = json.loads(notes.read_text(encoding="utf-8"))
            propagator = Propagator.load(state)
        else:
            assert stream.node_features is not None
            features = np.ascontiguousarray(stream.node_features[:, : options.columns])
            features.setflags(write=False)
            propagator = Propagator(features, r_max=options.r_max)
        saved = time.monotonic()
        while so_far["step"] < len(offsets) - 1:
            begin, end = so_far["step"], min(so_far["step"] + 100, len(offsets) - 1)
            rows = slice(int(offsets[begin]), int(offsets[end]))
            batch = Batch(src=stream.src[rows], dst=stream.dst[rows], t=stream.t[rows])
            start = time.perf_counter()
            propagator.apply_steps(batch, offsets[begin : end + 1] - offsets[begin])
            so_far["apply_s"] += time.perf_counter() - start
            so_far["step"] = end
            _say(int(offsets[end]), len(stream), f"events, {so_far['apply_s']:.0f} s")
            if time.monotonic() - saved > CHECKPOINT_S:
                propagator.save(state)
                notes.write_text(json.dumps(so_far), encoding="utf-8")
                saved = time.monotonic()
    report = watch.report()
    audit = propagator.audit()
    return report | {
        "steps": len(offsets) - 1,
        "events": len(stream),
        "apply_s": round(so_far["apply_s"], 2),
        "events_per_s": len(stream) / so_far["apply_s"],
        "residual_over_promise": float(audit.residual.max()),
        "columns": options.columns,
        "r_max": options.r_max,
        "statistics": propagator.statistics(),
    }


# Node classification from stored embeddings -------------------------------------------------------


@dataclass(frozen=True)
class Questions:
    """Nodes with a class that is to be told, the earlier ones to learn from.

    `read(rows)` gives what is stored of the nodes at these places, from files, `[k, columns]`.
    """

    label: NDArray[np.int64]
    part: NDArray[np.int8]  # training, validation, test
    inputs: dict[str, Callable[[NDArray[np.int64]], NDArray[np.float32]]]  # what to judge by

    def of(self, part: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.part == part)


def classify(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The classes of the latest nodes, by networks that read stored embeddings row by row."""
    prepare = _papers if "part" in SECTIONS[options.section] else _actors
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
    """Micro-F1 on the test questions of a small network fitted to the training ones."""
    import torch

    from tidegraph.learning.models.decoders import mlp
    from tidegraph.learning.training import Training, fit

    train, validation, test = (questions.of(part) for part in (_TRAIN, _VALIDATION, _TEST))
    torch.set_num_threads(1)  # so small a network is slowed down by more
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
    """`[k, channels · columns]`: how long an embedding is tells of the degree, not of a class."""
    length = np.linalg.norm(embeddings, axis=2, keepdims=True)
    return np.asarray(embeddings / np.maximum(length, 1e-12)).reshape(len(embeddings), -1)


def _sampled(part: NDArray[np.int8], most: dict[int, int]) -> NDArray[np.int64]:
    """Places of at most so many questions of each part, drawn once for all seeds."""
    rng = np.random.default_rng(0)
    chosen = [
        rng.permutation(np.flatnonzero(part == which))[:count] for which, count in most.items()
    ]
    return np.sort(np.concatenate(chosen))


def _papers(home: Path, options: argparse.Namespace) -> tuple[Questions, dict[str, Any]]:
    """Papers of 2019, learnt from those up to 2017; all citations are known, as in OGB's task.

    A paper's features are noise around the centre of its class, so that by them alone little can
    be told; that papers cite their own class more is what propagation makes use of.
    """
    import pyarrow.parquet as pq

    begin = time.perf_counter()
    features = generate_mag_features(home / "data", options.columns, progress=_say)
    features_s, begin = time.perf_counter() - begin, time.perf_counter()
    graph = compact.open_graph(home / "graph")
    own = np.load(features, mmap_mode="r")
    stored = passes.propagate_in_passes(
        graph, own, home / "embeddings", memory=options.memory, r_max=options.r_max, progress=_say
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
        "embedding_bytes": _disk_bytes(home / "embeddings"),
        "features_bytes": features.stat().st_size,
    }


def _actors(home: Path, options: argparse.Namespace) -> tuple[Questions, dict[str, Any]]:
    """Labels of actors that have changed, asked for when the epoch of the change ends.

    What is propagated is a random code of the label an actor was last known to have; a label is
    told, as a change of features, when its epoch has ended and all have been asked. Edges are
    forgotten with a half-life of half an epoch. Of a low-pass and a high-pass filter the even
    steps, which lead back to an actor's own old label, can be told from the odd ones. After each
    epoch the embeddings of all actors are stored. The label before, being another one, is never
    right.
    """
    stream = load_dataset(str(home / "data"))
    labels = stream.node_labels
    assert labels is not None
    columns = min(options.columns, 64)
    codes = Sketch(columns).rows(np.arange(int(labels.label.max()) + 1))
    begins = np.unique(labels.t)
    epoch = np.searchsorted(begins, labels.t)
    last = np.zeros(stream.nodes, dtype=np.int64)
    before = np.zeros(len(epoch), dtype=np.int64)  # the label, when the row's became true
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
        # At once: nobody looks at the states within an epoch.
        propagator.apply(Batch(src=stream.src[rows], dst=stream.dst[rows], t=stream.t[rows]))
        np.save(folder / f"embeddings-{number:03}.npy", propagator.embedding())
        np.save(folder / f"degrees-{number:03}.npy", propagator.degree()[:, 0])
        now = np.flatnonzero((epoch == number) & ~started)
        if len(now):
            node = labels.node[now]
            before[now], last[node] = last[node], labels.label[now]
            propagator.apply(Batch(feature_nodes=node, feature_values=codes[last[node]]))
        _say(rows.stop, len(stream), f"events, {number + 1} of {len(ends)} epochs")
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
        "embedding_bytes": _disk_bytes(folder),
        "micro_f1": {"last_label": micro_f1(labels.label[test], before[test])},
    }


STAGES: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "generate": generate,
    "build": build,
    "first": first,
    "years": years,
    "events": events,
    "classify": classify,
}


def _stages(home: Path, names: list[str], *words: str) -> dict[str, Any]:
    """What the stages report, those that are not kept yet done now, in processes of their own."""
    stages: dict[str, Any] = {}
    for stage in names:
        kept = home / f"{stage}.json"
        if not kept.is_file():
            print(f"{home.name}: {stage}", file=sys.stderr, flush=True)
            command = [sys.executable, *sys.argv, *words, "--stage", stage, "--home", str(home)]
            subprocess.run(command, check=True)
        stages[stage] = json.loads(kept.read_text(encoding="utf-8"))
    return stages


def _made() -> dict[str, Any]:
    """With what, and where, numbers were made."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip(),
        "machine": machine.describe(),
    }


def look_alike(options: argparse.Namespace) -> dict[str, Any]:
    home = options.directory / options.section
    home.mkdir(parents=True, exist_ok=True)
    stages = _stages(home, options.stages or SECTIONS[options.section]["stages"])
    described = json.loads((home / "data" / "dataset.json").read_text(encoding="utf-8"))
    return {
        "nodes": described["nodes"],
        "edges": stages.get("build", {}).get("edges", described.get("pairs")),
        "events": described["events"],
        "columns": options.columns,
        "r_max": options.r_max,
        "seconds": {stage: result["seconds"] for stage, result in stages.items()},
        "peak_rss_bytes": max(result["peak_rss_bytes"] for result in stages.values()),
        "peak_anonymous_bytes": max(result["peak_anonymous_bytes"] for result in stages.values()),
        "disk_bytes": _disk_bytes(home),
        "stages": stages,
        **_made(),
    }


def growth(options: argparse.Namespace) -> dict[str, Any]:
    """Rows of time and memory by edges, by columns and by r_max."""
    names = SECTIONS["growth"]["stages"]

    def row(edges: int, columns: int, r_max: float) -> dict[str, Any]:
        home = options.directory / "growth" / f"{edges}-edges"
        home.mkdir(parents=True, exist_ok=True)
        words = ["--edges", str(edges), "--columns", str(columns), "--r-max", str(r_max)]
        # The graph is the same for all of them, and what is read of it is not.
        own = home / f"{columns}-columns-{r_max:g}"
        own.mkdir(exist_ok=True)
        for name in ("data", "graph"):
            if not (own / name).is_symlink():
                (own / name).symlink_to(home / name)
        stages = _stages(home, names[:2], *words) | _stages(own, names[2:], *words)
        return _growth_row(stages)

    middle = max(edges for edges in options.edges if edges <= 10**7 or edges == min(options.edges))
    columns, r_max = SECTIONS["growth"]["columns"], options.r_max
    return {
        "edges": [row(edges, columns, r_max) for edges in sorted(options.edges)],
        "columns": [row(middle, count, r_max) for count in GROWTH_COLUMNS],
        "r_max": [row(middle, columns, limit) for limit in GROWTH_R_MAX],
        **_made(),
    }


def _growth_row(stages: dict[str, Any]) -> dict[str, Any]:
    """What the stages of one size took, as the tables of growth have it."""
    first, build = stages["first"], stages["build"]
    return {
        "nodes": build["nodes"],
        "edges": build["edges"],
        "columns": first["columns"],
        "r_max": first["r_max"],
        "seconds": {name: stages[name]["seconds"] for name in SECTIONS["growth"]["stages"]},
        "cpu_s": {name: stages[name]["cpu_s"] for name in SECTIONS["growth"]["stages"]},
        "peak_anonymous_bytes": {
            name: stages[name]["peak_anonymous_bytes"] for name in SECTIONS["growth"]["stages"]
        },
        "disk_bytes": {name: stages[name]["disk_bytes"] for name in ("generate", "build")},
        "sweeps": first["statistics"]["sweeps"],
        "edge_pushes": first["statistics"]["edge_pushes"],
        "planned_bytes": first["planned"]["memory_bytes"],
        "load_average": first["load_average"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", choices=list(SECTIONS))
    parser.add_argument("--directory", type=Path, default=Path("/tmp/tidegraph-scale"))
    parser.add_argument("--memory", default="8G", help="for building, and what is planned for")
    parser.add_argument("--columns", type=int)
    parser.add_argument("--r-max", type=float, default=1e-2)
    parser.add_argument("--stages", nargs="+", help="only these")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of classify")
    parser.add_argument("--edges", type=int, nargs="+", help="of growth; default: 1e6 and 1e7")
    parser.add_argument("--out", type=Path, default=RESULTS)
    # Of the processes that this script starts itself:
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.columns = options.columns or SECTIONS[options.section]["columns"]
    if options.stage:
        result = STAGES[options.stage](options.home, options)
        result |= {"load_average": machine.load_average()}
        (options.home / f"{options.stage}.json").write_text(json.dumps(result), encoding="utf-8")
        return
    results = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else {}
    if options.section == "growth":
        options.edges = options.edges or [10**6, 10**7]
        results["growth"] = growth(options)
    else:
        results[options.section] = look_alike(options)
    options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({options.section: results[options.section]}, indent=2))
    if "growth" in results:
        larger = [
            _growth_row(results[name]["stages"])
            for name in ("mag-tenth", "mag-full")
            if set(SECTIONS["growth"]["stages"]) <= set(results.get(name, {}).get("stages", ()))
        ]
        plot_scale(results["growth"], larger, options.out.with_name("scale-growth.svg"))


if __name__ == "__main__":
    main()
