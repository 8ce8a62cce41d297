"""Trials: events to learn from, models to learn with, and how a protocol evaluates them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
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
from tidegraph.learning.tasks import LinkPredictor, NodeClassifier
from tidegraph.runs.protocol import Protocol, split_stream

__all__ = [
    "LIVE",
    "MODEL",
    "Model",
    "Trial",
    "make_trial",
    "trial_settings",
    "with_settings",
]

IntArray = NDArray[np.int64]
Model = LinkPredictor | NodeClassifier
_AnyModel = TypeVar("_AnyModel", LinkPredictor, NodeClassifier)

MODEL = "tidegraph"  # among scorers
# How a live model learns from a snapshot, as arguments of `LinkPredictor.train_further`: the best
# of seven tried on the validation tasks of Bitcoin-Alpha with one seed. None beat not learning.
LIVE: Mapping[str, Any] = {"epochs": 3, "pace": 0.03, "replay": 2.0}
# What results call the parts of the protocols.


class Trial(ABC):
    """Events to learn from, models to learn with, and a way to evaluate them."""

    stream: EventStream  # as given
    protocol: Protocol
    name: str | None
    events: EventStream  # as a model sees it
    training: Split

    def __init__(
        self,
        stream: EventStream,
        protocol: Protocol,
        name: str | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.stream, self.protocol, self.name = stream, protocol, name
        self._settings = settings

    @abstractmethod
    def model(self, *, seed: int, path: str | None) -> Model:
        """Return a model that has not learned yet and records to `path`."""

    @abstractmethod
    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        """Score the test events with the model, or with the heuristics if it is None."""


class _LinkTrial(Trial):
    def model(self, *, seed: int, path: str | None) -> LinkPredictor:
        return with_settings(LinkPredictor(), self._settings, {"seed": seed, "path": path})


class _EventTrial(_LinkTrial):
    """Test events against sampled negatives, and among all destinations."""

    def __init__(self, *about: Any, split: Split) -> None:
        super().__init__(*about)
        self.events, self.training = self.stream, split

    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        assert not isinstance(model, NodeClassifier)
        score = None if model is None else model.decision_function
        asked = self.protocol
        options = _options(model) | {"progress": progress}
        samplers = asked.samplers or ("random-dst",)
        results = [
            evaluation.evaluate_link(
                score, self.events, self.training, samplers=samplers, **options
            )
        ]
        if asked.ranks:
            results.append(
                evaluation.evaluate_ranking(
                    score, self.events, self.training, sample=asked.rank_sample, **options
                )
            )
        return Scores.of(results)


class _SnapshotTrial(_LinkTrial):
    """The edges of the next snapshot among all pairs of its sources.

    Time counts snapshots: what is known strictly before `task + 1` are the snapshots up to `task`.
    """

    def __init__(self, *about: Any, split: SnapshotSplit) -> None:
        super().__init__(*about)
        inside = split.index >= 0
        self.events = replace(
            self.stream.where(inside), t=split.index[inside], unit="step", node_labels=None
        )
        # Task k is about snapshot k + 1, so the last snapshot to train on is that of the last task.
        self.training = evaluation.time_split(
            self.events, validation_time=split.validation.start, test_time=split.test.start
        )
        self._split = split

    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        assert not isinstance(model, NodeClassifier)
        score = None if model is None else self._scorer(model)
        options = _options(model) | {"progress": progress}
        return Scores.of(
            [evaluation.evaluate_snapshots(score, self.stream, self._split, **options)]
        )

    def _scorer(self, model: LinkPredictor) -> Callable[[IntArray, int], NDArray[np.float32]]:
        """Return what scores all nodes by source and task; the model itself does not change.

        A live model has to be asked about tasks in their order.
        """
        model = copy.copy(model)
        nodes = self.events.nodes
        learned = self._split.validation.start  # the last snapshot that trained

        def score_all(sources: IntArray, task: int) -> NDArray[np.float32]:
            nonlocal learned
            # Otherwise later snapshots, already learned, would help to answer for this one.
            assert not self.protocol.live or task >= learned, f"task {task} after {learned}"
            while self.protocol.live and learned < task:
                learned += 1
                model.train_further(np.flatnonzero(self.events.t == learned), **LIVE)
            pairs = np.repeat(sources, nodes), np.tile(np.arange(nodes), len(sources))
            return model.decision_function(*pairs, task + 1).reshape(len(sources), nodes)

        return score_all


def _options(model: Model | None) -> dict[str, Any]:
    """Return the options of an evaluation, which scores heuristics only if there is no model."""
    return {"model": MODEL} if model is None else {"model": MODEL, "heuristics": list}


class _NodeTrial(Trial):
    """Labels of nodes in the test period."""

    def __init__(self, *about: Any, split: Split) -> None:
        super().__init__(*about)
        self.events, self.training = self.stream, split
        if self.stream.labels is None and self.stream.node_labels is None:
            raise DataError(
                "the task node needs labels, and the data has none; name the column that holds them"
                " (--label COLUMN, label under [data]), or give the task link"
            )

    def model(self, *, seed: int, path: str | None) -> NodeClassifier:
        return with_settings(NodeClassifier(), self._settings, {"seed": seed, "path": path})

    def evaluate(self, model: Model | None, *, progress: Progress = silent) -> Scores:
        if model is not None:
            assert isinstance(model, NodeClassifier)
            return Scores.of([model.evaluate(self.training, parts=("test",))])
        unlearned = self.model(seed=0, path=None)
        return Scores.of(
            [
                evaluation.evaluate_nodes(
                    None,
                    self.events,
                    unlearned.examples(self.events, self.training),
                    known_at=unlearned.known(self.events),
                    parts=("test",),
                    split_name=self.training.name,
                )
            ]
        )


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
        return _SnapshotTrial(
            *about, split=evaluation.roland_split(stream, width_s=width_s, first_test=first)
        )
    split = split_stream(stream, protocol)
    return (_NodeTrial if protocol.task == "node" else _EventTrial)(*about, split=split)


# Settings -----------------------------------------------------------------------------------------


def trial_settings(
    protocol: Protocol, settings: Mapping[str, Any] | None, preset: str | None, name: str | None
) -> dict[str, Any]:
    """Return all settings of a trial's model; raise ParameterError if the model rejects them."""
    chosen = model_settings(
        settings, task=protocol.task, protocol=protocol.name, named=preset, data=name
    )
    own = {"seed": 0, "path": None}
    if protocol.task == "node":
        with_settings(NodeClassifier(), chosen, own)
    else:
        with_settings(LinkPredictor(), chosen, own)
    return chosen


def with_settings(
    model: _AnyModel, settings: Mapping[str, Any] | None, own: Mapping[str, Any]
) -> _AnyModel:
    """Give a model the user's settings and those that only the run decides (`own`)."""
    given = dict(settings or {})
    for name in own:
        if name in given:
            raise ParameterError(f"the setting {name!r} is decided by the run; leave it out")
    return model.set_params(**given, **own)
