"""Trials: events to learn from, models to learn with, and how a protocol evaluates them."""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegraph import evaluation
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.progress import Progress, silent
from tidegraph.evaluation import SnapshotSplit, Split
from tidegraph.evaluation.results import Scores
from tidegraph.events.stream import EventStream
from tidegraph.learning.presets import model_settings
from tidegraph.learning.tasks import MODELS, EventClassifier, LinkPredictor, NodeClassifier
from tidegraph.learning.tasks.event_features import OwnColumns
from tidegraph.runs.protocol import Protocol, split_stream

IntArray = NDArray[np.int64]
Model = LinkPredictor | NodeClassifier | EventClassifier
_AnyModel = TypeVar("_AnyModel", bound=Model)

MODEL = "tidegraph"  # among scorers
# How a live model learns from a snapshot, as arguments of `LinkPredictor.train_further`: the best
# of seven tried on the validation tasks of Bitcoin-Alpha with one seed. None beat not learning.
LIVE: Mapping[str, Any] = {"epochs": 3, "pace": 0.03, "replay": 2.0}


@dataclass(frozen=True, eq=False)
class Trial(ABC):
    """Events to learn from, models to learn with, and a way to evaluate them."""

    stream: EventStream  # as given
    protocol: Protocol
    name: str | None
    settings: Mapping[str, Any]  # of the model
    events: EventStream  # as a model sees it
    training: Split

    def model(self, *, seed: int, path: str | None) -> Model:
        """Return a model that has not learned yet and records to `path`."""
        own = decided(self.protocol, seed=seed, path=path)
        return with_settings(MODELS[self.protocol.task](), self.settings, own)

    @property
    def title(self) -> str:
        """How examples are divided, in results."""
        return self.protocol.title

    def about(self) -> dict[str, Any]:
        """Return what results say about the task besides the numbers."""
        return {}

    @abstractmethod
    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        """Score the test events with the model, or with the heuristics if it is None."""


class _LinkTrial(Trial):
    """Test events against sampled negatives, and among all destinations."""

    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        assert model is None or isinstance(model, LinkPredictor)
        asked = self.protocol
        options = _options(model) | {"knowledge": asked.knowledge, "progress": progress}
        about = self.events, self.training
        samplers = asked.samplers or ("random-dst",)
        score = None if model is None else model.decision_function
        results = [evaluation.evaluate_link(score, *about, samplers=samplers, **options)]
        if asked.ranks:
            rank = None if score is None else functools.partial(score, given_src=True)
            options["sample"] = asked.rank_sample
            results.append(evaluation.evaluate_ranking(rank, *about, **options))
        return Scores.of(results)


@dataclass(frozen=True, eq=False)
class _SnapshotTrial(Trial):
    """The edges of the next snapshot among all pairs of its sources.

    Time counts snapshots: what is known strictly before `task + 1` are the snapshots up to `task`.
    """

    snapshots: SnapshotSplit

    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        assert model is None or isinstance(model, LinkPredictor)
        score = None if model is None else self._scorer(model)
        options = _options(model) | {"progress": progress}
        return Scores.of(
            [evaluation.evaluate_snapshots(score, self.stream, self.snapshots, **options)]
        )

    def _scorer(self, model: LinkPredictor) -> Callable[[IntArray, int], NDArray[np.float32]]:
        """Return what scores all nodes by source and task; the model itself does not change.

        A live model has to be asked about tasks in their order.
        """
        model = copy.copy(model)
        nodes = self.events.nodes
        learned = self.snapshots.validation.start  # the last snapshot that trained

        def score_all(sources: IntArray, task: int) -> NDArray[np.float32]:
            nonlocal learned
            # Otherwise later snapshots, already learned, would help to answer for this one.
            assert not self.protocol.live or task >= learned, f"task {task} after {learned}"
            while self.protocol.live and learned < task:
                learned += 1
                model.train_further(np.flatnonzero(self.events.t == learned), **LIVE)
            pairs = np.repeat(sources, nodes), np.tile(np.arange(nodes), len(sources))
            found = model.decision_function(*pairs, task + 1, given_src=True)
            return found.reshape(len(sources), nodes)

        return score_all


def _options(model: Model | None) -> dict[str, Any]:
    """Return the options of an evaluation, which scores heuristics only if there is no model."""
    return {"model": MODEL} if model is None else {"model": MODEL, "heuristics": list}


class _NodeTrial(Trial):
    """Labels of nodes in the test period."""

    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        asked = self.model(seed=0, path=None) if model is None else model
        assert isinstance(asked, NodeClassifier)
        if model is not None:
            return Scores.of([asked.evaluate(self.training, parts=("test",))])
        result = evaluation.evaluate_nodes(
            None,
            self.events,
            asked.examples(self.events, self.training),
            known_at=asked.known(self.events),
            parts=("test",),
            split_name=self.training.name,
        )
        return Scores.of([result])

    @property
    def title(self) -> str:
        return self.training.name if self.events.labels_hold_always else super().title

    def about(self) -> dict[str, Any]:
        return {"classes": list(self.events.vocabulary.labels)}


class _EventTrial(Trial):
    """Labels of events in the test period."""

    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        if model is not None:
            assert isinstance(model, EventClassifier)
            found = model.evaluate(self.training, parts=("test",), heuristics=False)
            return Scores.of([found])
        asked, rows, part = self._examples()
        result = evaluation.evaluate_events(
            None,
            self.events,
            rows,
            part,
            label_delay=asked.label_delay,
            parts=("test",),
            split_name=self.training.name,
        )
        return Scores.of([result])

    def _examples(self) -> tuple[EventClassifier, IntArray, NDArray[np.uint8]]:
        asked = self.model(seed=0, path=None)
        assert isinstance(asked, EventClassifier)
        return asked, *asked.examples(self.events, self.training)

    def about(self) -> dict[str, Any]:
        asked, rows, part = self._examples()
        learned = rows[part == 0][-asked.max_examples :]
        return {
            "classes": list(self.events.vocabulary.labels),
            "inputs": OwnColumns.fit(self.events, learned).described(),
        }


_TRIALS: Mapping[str, type[Trial]] = {
    "link": _LinkTrial,
    "node": _NodeTrial,
    "events": _EventTrial,
}


def make_trial(
    stream: EventStream,
    protocol: Protocol | str = "tgn",
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Trial:
    """Return the trial of a protocol on a stream; the other arguments are those of `evaluate`."""
    protocol = Protocol.of(protocol)
    about = stream, protocol, name, trial_settings(protocol, settings, preset, name)
    if protocol.name == "roland":
        width_s, first = protocol.snapshots(name)
        split = evaluation.roland_split(stream, width_s=width_s, first_test=first)
        inside = split.index >= 0
        events = replace(stream.where(inside), t=split.index[inside], unit="step", node_labels=None)
        # Task k is about snapshot k + 1, so the last snapshot to train on is that of the last task.
        training = evaluation.time_split(
            events, validation_time=split.validation.start, test_time=split.test.start
        )
        return _SnapshotTrial(*about, events, training, split)
    task = protocol.task
    found = stream.labels is not None or (task == "node" and stream.node_labels is not None)
    if task != "link" and not found:
        raise DataError(
            f"the task {task} needs labels, and the data has none; name the column that holds them"
            " (--label COLUMN, label under [data]), or give the task link"
        )
    if task == "node" and stream.labels_hold_always:
        return _NodeTrial(*about, stream, evaluation.node_split(stream))
    return _TRIALS[task](*about, stream, split_stream(stream, protocol))


# Settings -----------------------------------------------------------------------------------------


def trial_settings(
    protocol: Protocol, settings: Mapping[str, Any] | None, preset: str | None, name: str | None
) -> dict[str, Any]:
    """Return all settings of a trial's model; raise ParameterError if the model rejects them."""
    chosen = model_settings(
        settings, task=protocol.task, protocol=protocol.name, named=preset, data=name
    )
    with_settings(MODELS[protocol.task](), chosen, decided(protocol))
    return chosen


def decided(protocol: Protocol, *, seed: int = 0, path: str | None = None) -> dict[str, Any]:
    """Return the settings of a model that its user does not give."""
    of_links = {"knowledge": protocol.knowledge} if protocol.task == "link" else {}
    return {"seed": seed, "path": path, **of_links}


def with_settings(
    model: _AnyModel, settings: Mapping[str, Any] | None, own: Mapping[str, Any]
) -> _AnyModel:
    """Give a model the user's settings and those that only the run decides (`own`)."""
    given = dict(settings or {})
    for name in own:
        if name in given:
            raise ParameterError(f"the setting {name!r} is decided by the run; leave it out")
    model.set_params(**given, **own)
    return model
