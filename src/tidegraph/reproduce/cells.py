"""The smallest pieces of a table that are worth keeping: one model, one data set, one seed."""

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

from tidegraph.core.progress import Progress
from tidegraph.evaluation import evaluate_link
from tidegraph.evaluation.heuristics import EdgeBank, Heuristic, Popularity
from tidegraph.events.stream import EventStream
from tidegraph.reproduce import data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegraph.learning.tasks import LinkPredictor
    from tidegraph.learning.tasks.estimator import Estimator
    from tidegraph.runs.experiment import Trial

__all__ = ["Cell", "Workplace", "fingerprint", "measure"]

IntArray = NDArray[np.int64]
Report: TypeAlias = Callable[[float, str], None]  # share of the cell that is done, what goes on

_MODEL = "tidegraph"


@dataclass(frozen=True, eq=False)
class Cell:
    """What is measured at once and kept in a file of its own."""

    kind: str  # of work, one of those in `_WORK`
    data: str
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recorded(self) -> str:
        """Cells for which this is the same share one record of the stream."""
        from tidegraph.learning.settings import RECORD_SETTINGS

        taken = {name: self.settings[name] for name in RECORD_SETTINGS if name in self.settings}
        return _digest([self.kind, self.data, self.seed, taken])


class Workplace:
    """Data in memory and one record of a stream on disk, for as long as cells ask for the same."""

    def __init__(self, directory: Path, *, fast: bool) -> None:
        self.fast = fast
        self._directory = directory
        self._made_in_s: dict[str, float] = {}
        self.load = cache(lambda name: data.load(name, fast=fast))
        self.trial = cache(lambda name, protocol: data.trial(name, protocol, fast=fast))

    def stream(self, cell: Cell) -> EventStream:
        """The events that a cell is about."""
        if cell.kind.startswith("snapshot"):
            events: EventStream = self.trial(cell.data, "roland").events
            return events
        return self.load(cell.data)

    def division(self, cell: Cell) -> tuple[float, float] | None:
        """After which times validation and test begin, where there are any."""
        if cell.kind == "errors":
            return None
        if cell.kind == "nodes":
            split = data.NODE_TASKS[cell.data].split(self.load(cell.data))
        else:
            protocol = "roland" if cell.kind.startswith("snapshot") else "tgn"
            split = self.trial(cell.data, protocol).training
        return float(split.validation_time), float(split.test_time)

    def record(self, cell: Cell) -> Path:
        """Where the record of the cell's stream lies, or is to be written; others are removed."""
        path = self._directory / cell.recorded
        for other in self._directory.iterdir():
            if other != path:
                shutil.rmtree(other)
        return path

    def made_in_s(self, cell: Cell, clock: _Clock) -> float:
        """How long it took to make the cell's record, be it for this cell or for one before."""
        return self._made_in_s.setdefault(cell.recorded, clock.stages()["elapsed_s"]["record"])


def fingerprint(cell: Cell, workplace: Workplace) -> str:
    """A short hash of all that the outcome depends on but the code, which a cell's file names."""
    digest, division = workplace.stream(cell).digest(), workplace.division(cell)
    about = [cell.kind, cell.data, digest, division, cell.seed, dict(cell.settings)]
    return _digest([*about, version("tidegraph")])


def _digest(about: list[Any]) -> str:
    text = json.dumps(about, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def measure(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    """What the cell shows, in plain types."""
    return _WORK[cell.kind](cell, workplace, report)


# Links --------------------------------------------------------------------------------------------


def _events(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    return _link(cell, workplace.trial(cell.data, "tgn"), workplace, report)


def _snapshots(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    return _link(cell, workplace.trial(cell.data, "roland"), workplace, report)


def _link(cell: Cell, trial: Trial, workplace: Workplace, report: Report) -> dict[str, Any]:
    from tidegraph.learning.tasks import LinkPredictor

    clock = _Clock()
    predictor = LinkPredictor(**cell.settings, seed=cell.seed, path=str(workplace.record(cell)))
    with clock.stage("record"):
        predictor.observe(trial.events, trial.training, progress=_part(report, 0.0, 0.3))
    with clock.stage("train"):
        predictor.train(trial.training, progress=_part(report, 0.3, 0.9))
    report(0.9, "scoring")
    with clock.stage("score"):
        table = trial.judge(predictor).table[_MODEL]
    return {
        "metrics": table,
        "training_negatives": predictor.training_negatives,
        "moved": _moved(predictor, trial),
        **_about(predictor),
        "record_s": workplace.made_in_s(cell, clock),
        **clock.stages(),
    }


def _moved(predictor: LinkPredictor, trial: Trial) -> float:
    """The share of the ends of test events whose last record before it was a movement."""
    asked, events = trial.training.test, trial.events
    nodes = np.concatenate([events.src[asked], events.dst[asked]])
    times = np.tile(events.t[asked], 2)
    change, _, known = predictor._trajectories.window(nodes, times, 1, "l2")
    return float(((change > 0).any(axis=2) & known).mean())


def _about(predictor: Estimator) -> dict[str, Any]:
    epochs = predictor.epochs_
    events = max(1, len(predictor._stream))
    return {
        "epochs": len(epochs),
        "best_epoch": 1 + int(np.argmax([epoch.validation for epoch in epochs])),
        "epoch_s": [round(epoch.elapsed_s, 3) for epoch in epochs],
        "records_per_event": predictor._trajectories.records / events,
    }


def _event_rules(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    clock = _Clock()
    trial = workplace.trial(cell.data, "tgn")
    with clock.stage("score"):
        rules = trial.judge(None).table
        rules |= _seen_or_item(trial)
    return {"rules": rules, **clock.stages()}


def _snapshot_rules(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    clock = _Clock()
    with clock.stage("score"):
        rules = workplace.trial(cell.data, "roland").judge(None).table
    return {"rules": rules, **clock.stages()}


class SeenOrItem(Heuristic):
    """2 for pairs seen before, 1 for other nodes that have been a destination, 0 for the rest.

    Against negatives from all nodes of a bipartite graph it hardly errs, and it has learned
    nothing: most of those negatives are no destinations at all.
    """

    name = "seen, else is it an item?"

    def __init__(self) -> None:
        self._pairs, self._items = EdgeBank(), Popularity()

    def update(self, events: EventStream) -> None:
        self._pairs.update(events)
        self._items.update(events)

    def score(self, src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        item = (self._items.score(src, dst, t) > 0).astype(np.float64)
        return np.where(self._pairs.score(src, dst, t) > 0, 2.0, item)


def _seen_or_item(trial: Trial) -> dict[str, Any]:
    """As `Trial.judge` has it: [rule][sampler][part][metric]."""
    result = evaluate_link(
        None,
        trial.events,
        trial.training,
        samplers=("random-dst", "historical", "inductive", "random-all"),
        heuristics=lambda: [SeenOrItem()],
    )
    table: dict[str, Any] = {}
    for row in result.rows:
        parts = table.setdefault(row.scorer, {}).setdefault(row.sampler, {})
        parts["new" if row.part.startswith("new") else "all"] = dict(row.metrics)
    return table


# Nodes --------------------------------------------------------------------------------------------


def _nodes(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    from tidegraph.learning.tasks import NodeClassifier

    clock = _Clock()
    stream = workplace.load(cell.data)
    split = data.NODE_TASKS[cell.data].split(stream)
    classifier = NodeClassifier(**cell.settings, seed=cell.seed, path=str(workplace.record(cell)))
    with clock.stage("record"):
        classifier.observe(stream, split, progress=_part(report, 0.0, 0.4))
    with clock.stage("train"):
        classifier.train(split, progress=_part(report, 0.4, 0.9))
    report(0.9, "scoring")
    with clock.stage("score"):
        result = classifier.evaluate(split, parts=("test",))
    found = {row.scorer: {"none": {"all": _finite(row.metrics)}} for row in result.rows}
    return {
        "metrics": found.pop(str(result.model)),
        "rules": found,
        "sizes": result.split["sizes"],
        **_about(classifier),
        "record_s": workplace.made_in_s(cell, clock),
        **clock.stages(),
    }


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if np.isfinite(value)}


# Speed and error ----------------------------------------------------------------------------------


def _tgn(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    """Epochs of PyG's TGN on the same events."""
    from tidegraph.reproduce.tgn import SETTINGS, Replay

    trial = workplace.trial(cell.data, "tgn")
    replay = Replay(trial.events, trial.training, seed=cell.seed)
    generator = np.random.default_rng(cell.seed)
    clock, seconds = _Clock(), []
    with clock.stage("train"):
        for epoch in range(cell.settings["epochs"]):
            report(epoch / cell.settings["epochs"], f"epoch {epoch + 1}")
            begun = time.perf_counter()
            replay.train(trial.training.train, generator)
            seconds.append(round(time.perf_counter() - begun, 3))
    return {"epoch_s": seconds, "tgn": SETTINGS, **clock.stages()}


def _errors(cell: Cell, workplace: Workplace, report: Report) -> dict[str, Any]:
    """How fast the engine is under some promise, and how far from the exact solution it ends."""
    from tidegraph.engine.channels import Channel, Sketch
    from tidegraph.engine.propagator import Propagator
    from tidegraph.engine.reference import exact_of
    from tidegraph.engine.verify import Replay, step_offsets

    clock = _Clock()
    options = dict(cell.settings)
    steps, columns = options.pop("steps"), options.pop("columns")
    stream = workplace.load(cell.data)
    offsets = step_offsets(stream.t)[: steps + 1]
    propagator = Propagator(
        Sketch(columns, seed=cell.seed),
        nodes=stream.nodes,
        channels=[Channel.low_pass(0.2), Channel.high_pass(0.2)],
        **options,
    )
    replay = Replay(propagator, stream, offsets, progress=_part(report, 0.0, 0.8))
    with clock.stage("engine"):
        replay.advance(len(offsets) - 1)
    report(0.8, "exact solution")
    with clock.stage("exact"):
        error = np.abs(propagator.embedding() - exact_of(propagator))
    certified = propagator.error_bound()
    return {
        "events_per_s": replay.events / replay.elapsed_s,
        "touched_per_step": replay.touched / replay.steps,
        "error_rms": float(np.sqrt(np.mean(error**2))),
        "error_max": float(error.max()),
        "certified_max": float(certified.max()),
        "holds": bool((error <= certified).all()),
        **clock.stages(),
    }


_WORK: dict[str, Callable[[Cell, Workplace, Report], dict[str, Any]]] = {
    "events": _events,
    "event-rules": _event_rules,
    "snapshots": _snapshots,
    "snapshot-rules": _snapshot_rules,
    "nodes": _nodes,
    "tgn": _tgn,
    "errors": _errors,
}


# What they share ----------------------------------------------------------------------------------


class _Clock:
    """Seconds spent by stage: on the wall, and of all cores, which a busy machine changes less."""

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
    """A stage's own progress as that of the part of a cell it makes up."""
    return lambda done, total, what: report(first + (last - first) * done / max(1, total), what)
