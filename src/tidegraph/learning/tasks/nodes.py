"""What a node is, as of a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tidegraph import evaluation
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import RMaxUnit, Sketch
from tidegraph.evaluation import Result, Split
from tidegraph.events.moments import time_numbers
from tidegraph.events.names import node_numbers
from tidegraph.events.stream import EventStream, NodeLabels
from tidegraph.learning.history import History
from tidegraph.learning.models import Window, check_encoder, make_encoder, mlp
from tidegraph.learning.tasks.estimator import (
    Estimator,
    all_or_nothing,
    shown,
    train_and_validation,
)
from tidegraph.learning.tasks.node_features import NodeFeatures
from tidegraph.learning.tasks.presets import NODE_PRESETS
from tidegraph.learning.training import Training, fit
from tidegraph.store.trajectories import Trajectories

__all__ = ["NodeClassifier"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_NODES_AT_ONCE = 1 << 15
_CLIP = 8.0  # standard deviations; what lies beyond was not seen in training
_HISTORY_PARTS = (3000, 300, 30, 3)  # of the training period: half-lives of recent activity
_TRAIN, _VALIDATION = 0, 1  # as `NodeLabels.part` has them


class _Network(nn.Module):
    """Standardised features and an encoded window to logits, by several networks of one shape."""

    mean: Tensor
    scale: Tensor
    log_weight: Tensor  # of each class in the loss

    def __init__(self, settings: NodeClassifier, columns: int, features: int, classes: int) -> None:
        super().__init__()
        self.encoder: nn.Module | None = None
        if settings.encoder is not None:
            self.encoder = make_encoder(
                settings.encoder, columns, settings.width, settings.encoder_options
            )
        read = features + (0 if self.encoder is None else settings.width)
        shape = settings.hidden, settings.layers, classes
        self.members = nn.ModuleList(
            mlp(read, *shape, dropout=settings.dropout) for _ in range(settings.members)
        )
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.register_buffer("log_weight", torch.zeros(classes))

    def forward(self, features: Tensor, window: Window | None) -> Tensor:
        """Logits `[members, B, classes]` as the weighted loss has them."""
        read = ((features - self.mean) / self.scale).clamp(-_CLIP, _CLIP)
        if self.encoder is not None:
            read = torch.cat([read, self.encoder(window)], dim=-1)
        return torch.stack([member(read) for member in self.members])

    def probabilities(self, features: Tensor, window: Window | None) -> Tensor:
        """`[B, classes]`: the members' mean, for classes as frequent as in training.

        Weights shift the logits of a fitted network by their logarithms, which is undone here.
        """
        logits = self(features, window) - self.log_weight
        return torch.softmax(logits, dim=-1).mean(dim=0)


@dataclass(eq=False, kw_only=True, repr=False)
class NodeClassifier(Estimator):
    """Predicts the class of a node at time `t`, from what happened before `t`.

    `fit(stream)` runs the stream once through the propagation engine and records how every node
    moved (what is propagated are the stream's node features, or random ones where it has none);
    then it trains a few small networks on the labels: those of the events' sources (asked for at
    the event, from what was strictly before it), or the stream's `node_labels` where events carry
    none. A label may serve as input only where it was known before the question.
    """

    presets: ClassVar[tuple[str, ...]] = NODE_PRESETS

    # Propagation and its record.
    columns: int = 64  # random feature columns per channel, where nodes have no features
    alpha: float = 0.2  # of the filters
    half_lives: Sequence[float] | None = None  # of channels that forget; None: training period / 30
    high_pass: bool = True  # whether there are high-pass filters beside the low-pass ones
    beta: float = 0.5
    r_max: float = 1e-2  # the promised error, in r_max_unit
    r_max_unit: RMaxUnit = "rms"
    scale_by_degree: bool = True
    epsilon: float = 0.05  # how far a node moves before it is recorded again
    # What is read.
    states: bool | None = None  # representations themselves; None: where nodes have features
    activity: bool = True  # how often and when it and its last partner met others
    known_labels: bool = True  # of the node and of those it met, as far as known
    edge_features: bool = True  # of its latest events, where there are any
    ask_after: int = 0  # how long after the time of a node label (not an event's) it is asked for
    encoder: str | Callable[..., nn.Module] | None = None  # over the latest changes
    encoder_options: dict[str, Any] | None = None
    window: int = 8  # changes an encoder sees
    width: int = 64  # of an encoder's answer
    # The networks.
    members: int = 4  # networks whose answers are averaged
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.1
    # Training.
    balance: float = 0.5  # classes weigh their rarity to this power: 0 as they are, 1 all the same
    max_examples: int = 200_000  # labels to train on, the latest ones
    epochs: int = 12
    batch_size: int | None = None  # None: a fiftieth of the labels, from 64 to 2,000
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    patience: int = 5
    seed: int = 0
    threads: int | None = None
    device: str = "cpu"
    path: str | None = None  # of the record; None: a temporary directory

    def __post_init__(self) -> None:
        check_encoder(self.encoder)
        self._check_at_least_one("members", "window", "max_examples", "hidden", "layers")
        if not 0 <= self.balance <= 1:
            raise ParameterError(f"balance is {self.balance}; give a number from 0 to 1")
        if self.ask_after < 0:
            raise ParameterError(
                f"ask_after is {self.ask_after}; a label is asked for at its time (0) or later"
            )
        self._training(0)  # judges its own settings

    def _training(self, examples: int) -> Training:
        fiftieth = min(max(examples // 50, 64), 2000)
        return Training(
            epochs=self.epochs,
            batch_size=fiftieth if self.batch_size is None else self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            patience=self.patience,
            seed=self.seed,
            device=self.device,
        )

    # Labels ---------------------------------------------------------------------------------------

    def examples(self, stream: EventStream, split: Split) -> NodeLabels:
        """The questions that the stream's labels answer, divided by the times of the split.

        `t` is when a question is asked. Labels below 0 are unknown and left out; where node labels
        come with a division of their own, it stands.
        """
        bounds = [split.validation_time, split.test_time]
        part: NDArray[Any]
        if stream.labels is not None:
            node, t, label = stream.src, stream.t, stream.labels
            part = np.digitize(t, bounds, right=True)
        else:
            asked = self._asked_later(stream)
            node, t, label = asked.node, asked.t, asked.label
            given = asked.part
            part = np.digitize(t - self.ask_after, bounds, right=True) if given is None else given
        known = label >= 0
        return NodeLabels(node[known], t[known], label[known], part[known].astype(np.uint8))

    def _asked_later(self, stream: EventStream) -> NodeLabels:
        """The stream's node labels with the times at which they are asked for."""
        labels = stream.node_labels
        if labels is None:
            raise DataError("the stream has neither labels nor node_labels; nothing can be learned")
        return replace(labels, t=labels.t + self.ask_after)

    def known(self, stream: EventStream) -> NodeLabels:
        """The stream's labels, each with the time from which it counts as known.

        The label of an event is known from the event on, unless `node_labels` say otherwise. A
        label is never known before it was asked for.
        """
        if stream.labels is None:
            labels = self._asked_later(stream)
        elif stream.node_labels is None:
            labels = NodeLabels(stream.src, stream.t, stream.labels)
        else:
            labels = stream.node_labels
        given = labels.label >= 0
        if labels.part is not None and not _by_time(labels):
            given &= labels.part == 0  # or labels to be judged by would be told in training
        return NodeLabels(labels.node[given], labels.t[given], labels.label[given])

    # Fitting --------------------------------------------------------------------------------------

    @all_or_nothing
    def fit(
        self,
        stream: EventStream,
        split: Split | None = None,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | bool | None = None,
    ) -> NodeClassifier:
        """Learns from labels of the split's training period, stops by those of its validation.

        Without a split the labels of the last 15 % of the events decide when to stop, and all
        earlier ones train. `progress=True` shows a bar; a function is called with
        (done, of how many, what is going on). A failure leaves what was fitted before.
        """
        split = train_and_validation(stream) if split is None else split
        self._judge(self.examples(stream, split))
        with shown(progress) as report:
            self.observe(stream, split, progress=report)
            self.train(split, checkpoint=checkpoint, progress=report)
        return self

    def _judge(self, examples: NodeLabels) -> IntArray:
        """The classes of the training labels; refuses labels from which nothing can be learned."""
        classes = np.unique(examples.label[examples.part == _TRAIN])
        if len(classes) < 2:
            seen = f"only class {classes[0]} occurs" if len(classes) else "there is no label"
            raise DataError(
                f"{seen} in the training period, and two classes are needed; give a longer stream"
                " or another split"
            )
        if not np.isin(examples.label[examples.part == _VALIDATION], classes).any():
            raise DataError(
                "there is no label of a known class in the validation period; give a longer stream"
                " or another split"
            )
        return classes

    @all_or_nothing
    def observe(
        self, stream: EventStream, split: Split, *, progress: Progress | None = None
    ) -> None:
        """Propagates and records: the part of `fit` that works on the graph."""
        self._span = max(1.0, float(split.validation_time) - float(stream.t[0]))
        self._record(stream, progress)
        self._stream = stream
        self._open()

    def propagated(self, stream: EventStream) -> Sketch | ArrayLike:
        return self._sketch() if stream.node_features is None else stream.node_features

    def _sketch(self) -> Sketch:
        return Sketch(self.columns, seed=self.seed)

    def _open(self) -> None:
        stream = self._stream
        self._trajectories = Trajectories.open(self._directory)
        self._history = History(stream.nodes, [self._span / part for part in _HISTORY_PARTS])
        self._history.append(stream)

    def _new_features(self) -> NodeFeatures:
        stream, x = self._stream, self._stream.node_features
        if x is None:
            x = self._sketch().rows(np.arange(stream.nodes)).astype(np.float32)
        return NodeFeatures(
            stream,
            self._trajectories,
            self._history,
            x,
            span=self._span,
            states=self.reads_states_,
            activity=self.activity,
            edge_features=self.edge_features,
            known=self.known(stream) if self.known_labels else None,
            classes=self.classes_,
        )

    @all_or_nothing
    def train(
        self,
        split: Split,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fits the networks to what `observe` recorded: the part of `fit` that needs no graph."""
        examples = self.examples(self._stream, split)
        self.classes_: IntArray = self._judge(examples)
        learned = self._chosen(examples, _TRAIN)
        held_back = self._chosen(examples, _VALIDATION)
        index = np.searchsorted(self.classes_, learned.label)
        count = np.maximum(np.bincount(index, minlength=len(self.classes_)), 1)
        # Propagated random features name neighbours, which networks learn by heart.
        has_features = self._stream.node_features is not None
        self.reads_states_ = has_features if self.states is None else self.states
        self._features = self._new_features()
        features = torch.from_numpy(self._features(learned.node, learned.t))
        held_features = torch.from_numpy(self._features(held_back.node, held_back.t))
        torch.manual_seed(self.seed)
        network = self._new_network(features.shape[1])
        network.mean.copy_(features.mean(0))
        network.scale.copy_(features.std(0) + 1e-3)
        weight = (len(learned.label) / (len(count) * count)) ** self.balance
        weight *= len(learned.label) / (weight * count).sum()  # 1 on average
        network.log_weight.copy_(torch.from_numpy(np.log(weight)))
        self._network = network

        def loss(rows: IntArray) -> Tensor:
            asked = learned.node[rows], learned.t[rows]
            return self._loss(features[torch.from_numpy(rows)], *asked, learned.label[rows])

        def validate() -> float:
            total = 0.0
            for first in range(0, len(held_back.label), _NODES_AT_ONCE):
                rows = slice(first, first + _NODES_AT_ONCE)
                asked = held_back.node[rows], held_back.t[rows], held_back.label[rows]
                with torch.no_grad():
                    total -= float(self._loss(held_features[rows], *asked)) * len(asked[0])
            return total / len(held_back.label)

        self.epochs_ = fit(
            network,
            len(learned.label),
            loss,
            validate,
            self._training(len(learned.label)),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            progress=progress,
        )

    def _chosen(self, examples: NodeLabels, part: int) -> NodeLabels:
        """The latest examples of a part, of classes that are learned."""
        rows = np.flatnonzero((examples.part == part) & np.isin(examples.label, self.classes_))
        rows = rows[np.argsort(examples.t[rows], kind="stable")][-self.max_examples :]
        return NodeLabels(examples.node[rows], examples.t[rows], examples.label[rows])

    def _new_network(self, features: int) -> _Network:
        columns = len(self._trajectories.channels) * self._trajectories.columns
        return _Network(self, columns, features, len(self.classes_)).to(self.device)

    def _loss(self, features: Tensor, nodes: IntArray, t: IntArray, label: IntArray) -> Tensor:
        logits = self._network(features.to(self.device), self._window(nodes, t))
        wanted = torch.from_numpy(np.searchsorted(self.classes_, label)).to(self.device)
        each = nn.functional.cross_entropy(
            logits.flatten(0, 1), wanted.repeat(len(logits)), reduction="none"
        )
        weight = self._network.log_weight.exp()[wanted]
        loss: Tensor = (each.view(len(logits), -1) * weight).mean()
        return loss

    # Asking ---------------------------------------------------------------------------------------

    def predict_proba(self, nodes: ArrayLike, t: ArrayLike) -> FloatArray:
        """The probability of each of `classes_`, `[len(nodes), classes]`, for nodes at times.

        Nodes are numbers of the stream; `stream.number(ids)` gives them. One time may be given for
        all of them.
        """
        self._check_fitted()
        columns = node_numbers(nodes), time_numbers(t)
        given = np.broadcast_arrays(*(np.atleast_1d(column) for column in columns))
        asked, times = (np.ascontiguousarray(column) for column in given)
        self._stream.name(asked)  # an unknown one is an error that names it
        out = np.empty((len(asked), len(self.classes_)), dtype=np.float32)
        for first in range(0, len(asked), _NODES_AT_ONCE):
            rows = slice(first, first + _NODES_AT_ONCE)
            features = torch.from_numpy(self._features(asked[rows], times[rows]))
            window = self._window(asked[rows], times[rows])
            with torch.no_grad():
                out[rows] = self._network.probabilities(features.to(self.device), window).cpu()
        return out

    def predict(self, nodes: ArrayLike, t: ArrayLike) -> IntArray:
        """The likeliest class of each node at its time."""
        likeliest: IntArray = self.classes_[self.predict_proba(nodes, t).argmax(axis=1)]
        return likeliest

    def evaluate(
        self, split: Split, *, parts: Sequence[str] = ("validation", "test"), **options: Any
    ) -> Result:
        """Micro-F1, and AUC and AP where there are two classes, with the heuristics beside."""
        self._check_fitted()
        examples = self.examples(self._stream, split)
        columns = int(examples.label.max()) + 1

        def score(nodes: IntArray, t: IntArray) -> FloatArray:
            found = np.zeros((len(nodes), columns), dtype=np.float32)
            found[:, self.classes_] = self.predict_proba(nodes, t)
            return found

        return evaluation.evaluate_nodes(
            score,
            self._stream,
            examples,
            known_at=self.known(self._stream),
            parts=parts,
            split_name=split.name,
            model="tidegraph",
            **options,
        )

    # Going on -------------------------------------------------------------------------------------

    def advance(self, events: EventStream) -> NodeClassifier:
        """Takes later events and their labels into the state; the weights stay.

        Node labels other than those the classifier was fitted with are added to them.
        """
        self._check_fitted()
        stream = self._stream.joined(events)  # judges them before anything has changed
        stream = replace(stream, node_labels=_joined(stream.node_labels, events.node_labels))
        self._append(events)
        self._history = self._history_with(events, stream)
        self._stream = stream
        self._features = self._new_features()
        return self

    # Files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Weights, settings, the events and the record of all nodes, in a directory.

        overwrite: a model that is there already is replaced.
        """
        self._check_fitted()
        self._write(
            path,
            overwrite,
            classes=self.classes_.tolist(),
            reads_states=self.reads_states_,
            features=len(self._network.mean),
        )

    @classmethod
    def load(
        cls, path: str | Path, *, encoder: Callable[..., nn.Module] | None = None
    ) -> NodeClassifier:
        """What `save` wrote: it answers as before. It may go on; what was saved stays as it is.

        An encoder that is not one of the package's has to be given again.
        """
        classifier, tensors, about = cls._read(path, {"encoder": encoder})
        classifier.classes_ = np.array(about["classes"], dtype=np.int64)
        classifier.reads_states_ = about["reads_states"]
        classifier._open()
        classifier._features = classifier._new_features()
        classifier._restore(classifier._new_network(about["features"]), tensors)
        return classifier


def _joined(known: NodeLabels | None, later: NodeLabels | None) -> NodeLabels | None:
    """Labels known so far and later ones; in a division of their own the later ones may train."""
    if known is None or later is None or later is known:
        return later if known is None else known
    node, t, label = (
        np.concatenate([getattr(each, name) for each in (known, later)])
        for name in ("node", "t", "label")
    )
    part = None
    if known.part is not None or later.part is not None:
        part = np.concatenate(
            [
                np.zeros(len(each.node), np.uint8) if each.part is None else each.part
                for each in (known, later)
            ]
        )
    return NodeLabels(node, t, label, part)


def _by_time(labels: NodeLabels) -> bool:
    """Whether validation follows training and the test follows both."""
    assert labels.part is not None
    spans = [labels.t[labels.part == part] for part in np.unique(labels.part)]
    return all(a.max() <= b.min() for a, b in itertools.pairwise(spans))
