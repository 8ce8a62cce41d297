"""Cells, the units of measurement: one model on one data set with one seed."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core import resume
from tidegraph.core.progress import Progress
from tidegraph.evaluation import Split, evaluate_link
from tidegraph.evaluation.heuristics import Heuristic
from tidegraph.evaluation.memory import Asked
from tidegraph.evaluation.results import Scores
from tidegraph.events.stream import EventStream
from tidegraph.reproduce import data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegraph.learning.tasks import LinkPredictor
    from tidegraph.learning.tasks.estimator import Estimator
    from tidegraph.runs.trials import Trial

IntArray = NDArray[np.int64]
Report: TypeAlias = Callable[[float, str], None]  # the finished share of a cell, and what it does


@dataclass(frozen=True, eq=False)
class Cell:
    """What is measured together and stored in one file."""

    kind: str  # a key of `_WORK`
    data: str
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recorded(self) -> str:
        """A digest that is equal for cells that can share one store of trajectories."""
        from tidegraph.learning.settings import RECORD_SETTINGS

        taken = {name: self.settings[name] for name in RECORD_SETTINGS if name in self.settings}
        return resume.fingerprint(kind=self.kind, data=self.data, seed=self.seed, settings=taken)


class Workplace:
    """Data in memory and one store on disk, reused while cells need the same."""

    def __init__(self, directory: Path, *, fast: bool) -> None:
        self.fast = fast
        self._directory = directory
        self._record_s: dict[str, float] = {}
        self.load = cache(lambda name: data.load(name, fast=fast))
        self.trial = cache(lambda name, protocol: data.trial(name, protocol, fast=fast))

    def stream(self, cell: Cell) -> EventStream:
        """Return the events of a cell."""
        if cell.kind.startswith("snapshot"):
            return self.trial_of(cell).events
        return self.load(cell.data)

    def trial_of(self, cell: Cell) -> Trial:
        """Return the events and the evaluation of a cell about links."""
        trial: Trial = self.trial(cell.data, "roland" if cell.kind.startswith("snap") else "tgn")
        return trial

    def division(self, cell: Cell) -> tuple[float, float] | None:
        """Return the times after which validation and test begin, if the cell has such parts."""
        if cell.kind == "errors":
            return None
        if cell.kind == "nodes":
            split = data.NODE_TASKS[cell.data].split(self.load(cell.data))
        else:
            split = self.trial_of(cell).training
        return float(split.validation_time), float(split.test_time)

    def record(self, cell: Cell) -> Path:
        """Return the path of the cell's store, whether it exists or not; remove other stores."""
        path = self._directory / cell.recorded
        for other in self._directory.iterdir():
            if other != path:
                shutil.rmtree(other)
        return path

    def record_s(self, cell: Cell, times: _StageTimes) -> float:
        """Return how long recording the cell's store took, for this or an earlier cell."""
        return self._record_s.setdefault(cell.recorded, times.stages()["elapsed_s"]["record"])


def fingerprint(cell: Cell, workplace: Workplace) -> str:
    """Return a fingerprint of all a cell depends on, except the code, which its file names."""
    digest, division = workplace.stream(cell).digest(), workplace.division(cell)
    about = [cell.kind, cell.data, digest, division, cell.seed, dict(cell.settings)]
    # Not `resume.fingerprint`: the names of stored cells end in this.
    text = json.dumps([*about, version("tidegraph")], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def measure(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    """Measure a cell; return its results in plain types."""
    return _WORK[cell.kind](cell, workplace, report)


# Links --------------------------------------------------------------------------------------------


def _link(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    from tidegraph.learning.tasks import LinkPredictor
    from tidegraph.runs.trials import MODEL

    times = _StageTimes()
    trial = workplace.trial_of(cell)
    predictor = LinkPredictor(**cell.settings, seed=cell.seed)
    if predictor.reads_record:
        predictor.set_params(path=str(workplace.record(cell)))
    learned = _learn(predictor, trial.events, trial.training, times, report)
    with times.stage("score"):
        scores = trial.evaluate(predictor)
    return {
        "metrics": scores.table[MODEL],
        "examples": scores.examples,
        "training_negatives": predictor.training_negatives,
        **({"moved": _moved(predictor, trial)} if predictor.reads_record else {}),
        **learned,
        "record_s": workplace.record_s(cell, times) if predictor.reads_record else 0.0,
        **times.stages(),
    }


def _learn(
    model: Estimator, events: EventStream, split: Split, times: _StageTimes, report: Report
) -> dict[str, Any]:
    """Record and train; return what the training was like."""
    with times.stage("record"):
        model.observe(events, split, progress=_part(report, 0.0, 0.3))
    with times.stage("train"):
        model.train(split, progress=_part(report, 0.3, 0.9))
    report(0.9, "scoring")
    epochs = model.epochs_
    learned = {
        "epochs": len(epochs),
        "best_epoch": 1 + int(np.argmax([epoch.validation for epoch in epochs])),
        "epoch_s": [round(epoch.elapsed_s, 3) for epoch in epochs],
    }
    if model.reads_record:
        learned["records_per_event"] = model._trajectories.records / max(1, len(model._stream))
    return learned


def _moved(predictor: LinkPredictor, trial: Trial) -> float:
    """Return the share of endpoints of test events whose last record before it was a change."""
    test, events = trial.training.test, trial.events
    nodes = np.concatenate([events.src[test], events.dst[test]])
    times = np.tile(events.t[test], 2)
    change, _, known = predictor._trajectories.window(nodes, times, 1, "l2")
    return float(((change > 0).any(axis=2) & known).mean())


def _heuristics(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    times = _StageTimes()
    trial = workplace.trial_of(cell)
    with times.stage("score"):
        scores = trial.evaluate(None, progress=_part(report, 0.0, 0.9))
        table = scores.table
        if cell.kind == "event-rules":
            about = trial.events, trial.training
            samplers = trial.protocol.samplers or ()
            result = evaluate_link(
                None, *about, samplers=samplers, heuristics=lambda: [SeenOrItem()]
            )
            table |= Scores.of([result]).table
    return {"rules": table, "examples": scores.examples, **times.stages()}


class SeenOrItem(Heuristic):
    """2 for pairs seen before, 1 for other nodes that have been a destination, 0 for the rest.

    It learns nothing, yet hardly errs against negatives from all nodes of a bipartite graph, since
    most of these are never a destination.
    """

    name = "seen, else is it an item?"

    def score(self, asked: Asked) -> NDArray[np.float64]:
        item = (asked.destination.count > 0).astype(np.float64)
        return np.where(asked.pair.count > 0, 2.0, item)


# Nodes --------------------------------------------------------------------------------------------


def _nodes(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    from tidegraph.learning.tasks import NodeClassifier

    times = _StageTimes()
    stream = workplace.load(cell.data)
    split = data.NODE_TASKS[cell.data].split(stream)
    classifier = NodeClassifier(**cell.settings, seed=cell.seed, path=str(workplace.record(cell)))
    learned = _learn(classifier, stream, split, times, report)
    with times.stage("score"):
        result = classifier.evaluate(split, parts=("test",))
    found = {
        row.scorer: {"none": {"all": {k: v for k, v in row.metrics.items() if np.isfinite(v)}}}
        for row in result.rows
    }
    return {
        "metrics": found.pop(str(result.model)),
        "rules": found,
        "sizes": result.split["sizes"],
        **learned,
        "record_s": workplace.record_s(cell, times),
        **times.stages(),
    }


# Speed and error ----------------------------------------------------------------------------------


def _tgn(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    """Time epochs of PyG's TGN on the same events."""
    from tidegraph.reproduce.tgn import SETTINGS, Replay

    trial = workplace.trial_of(cell)
    replay = Replay(trial.events, trial.training, seed=cell.seed)
    generator = np.random.default_rng(cell.seed)
    times, seconds = _StageTimes(), []
    with times.stage("train"):
        for epoch in range(cell.settings["epochs"]):
            report(epoch / cell.settings["epochs"], f"epoch {epoch + 1}")
            begun = time.perf_counter()
            replay.train(trial.training.train, generator)
            seconds.append(round(time.perf_counter() - begun, 3))
    return {"epoch_s": seconds, "tgn": SETTINGS, **times.stages()}


def _errors(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    """Measure the speed of the engine at a threshold, and its distance from the exact solution."""
    from tidegraph.engine.channels import Channel, Sketch
    from tidegraph.engine.propagator import Propagator
    from tidegraph.engine.reference import exact_of
    from tidegraph.engine.verify import Replay

    times = _StageTimes()
    options = dict(cell.settings)
    steps, columns = options.pop("steps"), options.pop("columns")
    stream = workplace.load(cell.data)
    replayed = stream.steps()[:steps]
    propagator = Propagator(
        Sketch(columns, seed=cell.seed),
        nodes=stream.nodes,
        channels=[Channel.low_pass(0.2), Channel.high_pass(0.2)],
        **options,
    )
    replay = Replay(propagator, replayed, progress=_part(report, 0.0, 0.8))
    with times.stage("engine"):
        replay.advance(len(replayed))
    report(0.8, "exact solution")
    with times.stage("exact"):
        error = np.abs(propagator.embedding() - exact_of(propagator))
    certified = propagator.error_bound()
    return {
        "events_per_s": replay.events / replay.elapsed_s,
        "touched_per_step": replay.touched / replay.steps,
        "error_rms": float(np.sqrt(np.mean(error**2))),
        "error_max": float(error.max()),
        "certified_max": float(certified.max()),
        "holds": bool((error <= certified).all()),
        **times.stages(),
    }


_WORK: dict[str, Callable[[Cell, Workplace, Report], dict[str, Any]]] = {
    "events": _link,
    "event-rules": _heuristics,
    "snapshots": _link,
    "snapshot-rules": _heuristics,
    "nodes": _nodes,
    "tgn": _tgn,
    "errors": _errors,
}


# Shared -------------------------------------------------------------------------------------------


class _StageTimes:
    """Seconds by stage: wall time, and CPU time, which depends less on a busy machine."""

    def __init__(self) -> None:
        self._wall_s: dict[str, float] = {}
        self._cpu_s: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun, begun_cpu = time.perf_counter(), time.process_time()
        yield
        self._wall_s[name] = round(time.perf_counter() - begun, 3)
        self._cpu_s[name] = round(time.process_time() - begun_cpu, 3)

    def stages(self) -> dict[str, dict[str, float]]:
        return {"elapsed_s": self._wall_s, "cpu_s": self._cpu_s}


def _part(report: Report, first: float, last: float) -> Progress:
    """Return a progress that maps a stage to its share of the cell."""
    return lambda done, total, what: report(first + (last - first) * done / max(1, total), what)
