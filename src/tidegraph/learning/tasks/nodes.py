"""`NodeClassifier`: the class of a node as of a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tidegraph import evaluation
from tidegraph.core.declarations import declared
from tidegraph.core.errors import DataError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Sketch
from tidegraph.evaluation import Result, Split
from tidegraph.events.stream import EventStream, NodeLabels
from tidegraph.learning.models import Window, make_encoder, mlp
from tidegraph.learning.settings import NodeSettings, TrainingSettings
from tidegraph.learning.tasks.estimator import Estimator, all_or_nothing
from tidegraph.learning.tasks.node_features import NodeFeatures
from tidegraph.learning.tasks.node_labels import (
    TRAIN,
    VALIDATION,
    asked_labels,
    known_labels,
    merge_labels,
    questions,
    trainable,
)
from tidegraph.learning.training import Loss, Training

__all__ = ["NodeClassifier"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_NODES_AT_ONCE = 1 << 15
_CLIP = 8.0  # standard deviations; values beyond were not seen in training


class _Network(nn.Module):
    """Several networks of one shape from standardised features and an encoded window to logits."""

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
        """Return the logits of the weighted loss, `[members, B, classes]`."""
        read = ((features - self.mean) / self.scale).clamp(-_CLIP, _CLIP)
        if self.encoder is not None:
            read = torch.cat([read, self.encoder(window)], dim=-1)
        return torch.stack([member(read) for member in self.members])

    def probabilities(self, features: Tensor, window: Window | None) -> Tensor:
        """Return the members' mean, `[B, classes]`, for classes as frequent as in training.

        Class weights shift the logits of a fitted network by their logarithms; undo that here.
        """
        logits = self(features, window) - self.log_weight
        return torch.softmax(logits, dim=-1).mean(dim=0)


@dataclass(eq=False, kw_only=True, repr=False)
class NodeClassifier(NodeSettings, Estimator):
    """A model of the class of a node at a time `t`, given the events before `t`.

    `fit(stream)` runs the stream once through the propagation engine (the stream's node features,
    or random ones where it has none), records how every node moved, and trains a few small networks
    on the labels: those of the events' sources, asked for at the event from what was strictly
    before it, or the stream's `node_labels` where events carry none. A label serves as input only
    where it was known before the question. `settings.NodeSettings` describes the settings.

    Nodes are given as node numbers or by the names they have in the data, times as numbers in the
    stream's unit or as dates. `classes_` holds the classes, ascending.
    """

    task: ClassVar[Literal["link", "node"]] = "node"

    def _training(self, examples: int) -> Training:
        own = {name: getattr(self, name) for name in declared(TrainingSettings)}
        if self.batch_size is None:
            own["batch_size"] = min(max(examples // 50, 64), 2000)
        return Training(**own, weight_decay=self.weight_decay)

    # Labels ---------------------------------------------------------------------------------------

    def examples(self, stream: EventStream, split: Split) -> NodeLabels:
        """Return the stream's known labels in the parts of the split; `t` is when to ask for each.

        Where node labels come with parts of their own, these hold.
        """
        return questions(stream, split, self.ask_after)

    def known(self, stream: EventStream) -> NodeLabels:
        """Return the stream's labels, each with the time from which it counts as known."""
        return known_labels(stream, self.ask_after)

    # Fitting --------------------------------------------------------------------------------------

    def _check_learnable(self, stream: EventStream, split: Split) -> None:
        self._classes(self.examples(stream, split))

    def _classes(self, examples: NodeLabels) -> IntArray:
        """Return the classes of the training labels; raise DataError where they teach nothing."""
        classes = np.unique(examples.label[examples.part == TRAIN])
        if len(classes) < 2:
            seen = f"only class {classes[0]} occurs" if len(classes) else "there is no label"
            raise DataError(
                f"{seen} in the training period, and two classes are needed; give a longer stream"
                " or another split"
            )
        if not np.isin(examples.label[examples.part == VALIDATION], classes).any():
            raise DataError(
                "there is no label of a known class in the validation period; give a longer stream"
                " or another split"
            )
        return classes

    def propagated(self, stream: EventStream) -> Sketch | ArrayLike:
        return self._sketch() if stream.node_features is None else stream.node_features

    def _sketch(self) -> Sketch:
        return Sketch(self.columns, seed=self.seed)

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
        """Fit the networks to what `observe` recorded: the part of `fit` that needs no graph."""
        examples = self.examples(self._stream, split)
        self.classes_: IntArray = self._classes(examples)
        assert examples.part is not None
        learned = self._latest(examples, examples.part == TRAIN, self.max_examples)
        held_out = self._latest(examples, examples.part == VALIDATION, self.max_examples)
        index = np.searchsorted(self.classes_, learned.label)
        count = np.maximum(np.bincount(index, minlength=len(self.classes_)), 1)
        # Propagated random features identify the neighbours, which networks learn by heart.
        has_features = self._stream.node_features is not None
        self.reads_states_ = has_features if self.states is None else self.states
        self._features = self._new_features()
        features = torch.from_numpy(self._features(learned.node, learned.t))
        held_features = torch.from_numpy(self._features(held_out.node, held_out.t))
        torch.manual_seed(self.seed)
        network = self._new_network(features.shape[1])
        network.mean.copy_(features.mean(0))
        network.scale.copy_(features.std(0) + 1e-3)
        weight = (len(learned.label) / (len(count) * count)) ** self.balance
        weight *= len(learned.label) / (weight * count).sum()  # 1 on average
        network.log_weight.copy_(torch.from_numpy(np.log(weight)))
        self._network = network

        def validate() -> float:
            total = 0.0
            for first in range(0, len(held_out.label), _NODES_AT_ONCE):
                rows = slice(first, first + _NODES_AT_ONCE)
                asked = held_out.node[rows], held_out.t[rows], held_out.label[rows]
                with torch.no_grad():
                    total -= float(self._loss(held_features[rows], *asked)) * len(asked[0])
            return total / len(held_out.label)

        loss = self._loss_on(learned, features)
        self._fit(len(learned.label), loss, validate, checkpoint, progress)

    def _latest(self, examples: NodeLabels, chosen: NDArray[np.bool_], most: int) -> NodeLabels:
        """Return the latest of the chosen examples, of classes that are learned, in time order."""
        rows = np.flatnonzero(chosen & np.isin(examples.label, self.classes_))
        rows = rows[np.argsort(examples.t[rows], kind="stable")][-most:]
        return NodeLabels(examples.node[rows], examples.t[rows], examples.label[rows])

    def _loss_on(self, examples: NodeLabels, features: Tensor) -> Loss:
        """Return the loss of examples by their positions, given the features of all of them."""

        def loss(rows: IntArray) -> Tensor:
            asked = examples.node[rows], examples.t[rows], examples.label[rows]
            return self._loss(features[torch.from_numpy(rows)], *asked)

        return loss

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

    # Questions ------------------------------------------------------------------------------------

    def predict_proba(self, nodes: ArrayLike, t: ArrayLike) -> FloatArray:
        """Return the probability of each of `classes_` for nodes at times, `[n, classes]`.

        Only events strictly before `t` count. One time may be given for all nodes.
        """
        self._check_fitted()
        asked, times = self._asked(t, nodes=nodes)
        self._stream.name(asked)  # raises an error that names an unknown node
        out = np.empty((len(asked), len(self.classes_)), dtype=np.float32)
        for first in range(0, len(asked), _NODES_AT_ONCE):
            rows = slice(first, first + _NODES_AT_ONCE)
            features = torch.from_numpy(self._features(asked[rows], times[rows]))
            window = self._window(asked[rows], times[rows])
            with torch.no_grad():
                out[rows] = self._network.probabilities(features.to(self.device), window).cpu()
        return out

    def predict(self, nodes: ArrayLike, t: ArrayLike) -> IntArray:
        """Return the likeliest class of each node at its time, `[n]`."""
        likeliest: IntArray = self.classes_[self.predict_proba(nodes, t).argmax(axis=1)]
        return likeliest

    def score(self, nodes: ArrayLike, t: ArrayLike, y: ArrayLike) -> float:
        """Return the accuracy of `predict` on nodes whose classes `y` are known.

        `evaluate` measures under a protocol, which says more.
        """
        return float((self.predict(nodes, t) == np.asarray(y)).mean())

    def evaluate(
        self, split: Split, *, parts: Sequence[str] = ("validation", "test"), **options: Any
    ) -> Result:
        """Return micro-F1, and AUC and AP where there are two classes, of model and heuristics."""
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

    # Learning on ----------------------------------------------------------------------------------

    def advance(self, events: EventStream) -> NodeClassifier:
        """Add later events and their labels to the state, without learning from them; return self.

        Node labels other than those the classifier was fitted with are added to them.
        """
        self._check_fitted()
        stream = self._stream.joined(events)  # checks them before anything changes
        stream = replace(stream, node_labels=merge_labels(stream.node_labels, events.node_labels))
        self._append(events, stream)
        self._features = self._new_features()
        return self

    def partial_fit(
        self, events: EventStream, *, progress: Progress | None = None
    ) -> NodeClassifier:
        """Add later events to the state and train further on their labels; return self.

        These are the labels of the events, or, where events carry none, their node labels, unless
        the classifier was fitted with them already.
        """
        self._check_fitted()
        known = self._stream.node_labels
        self.advance(events)
        if events.labels is None and (events.node_labels is None or events.node_labels is known):
            return self  # they bring no labels
        labels = asked_labels(events, self.ask_after)
        return self.train_further(labels, progress=progress)

    @all_or_nothing
    def train_further(
        self,
        labels: NodeLabels,
        *,
        epochs: int = 1,
        pace: float = 0.1,
        replay: float = 0.0,
        progress: Progress | None = None,
    ) -> NodeClassifier:
        """Train the networks further on labels of the stream's nodes; return self.

        What they learn depends on no event after the times of the labels. By default it is one
        careful pass. Class weights stay those of the training.

        labels: nodes, the times at which to ask for their classes, and the classes, which must be
            among `classes_`; below 0 is unknown. Labels in the part of validation or test are left
            out. Where they and the repeated ones are more than `max_examples`, only the latest are
            used.
        pace: learning rate, as a share of that of the training.
        replay: how many earlier labels, drawn at random, to repeat per label, so that what was
            learned from them is not forgotten.
        """
        self._check_further(epochs, pace, replay)
        usable = trainable(labels)
        unknown = np.setdiff1d(labels.label[usable], self.classes_)
        if len(unknown):
            raise DataError(
                f"class {unknown[0]} was not among the classes of the training"
                f" ({', '.join(map(str, self.classes_))}); call fit on all events to learn it"
            )
        later = self._latest(labels, usable, self._most_further(replay))
        if not len(later.node):
            return self
        self._stream.name(later.node)  # raises an error that names an unknown node
        first = int(later.t[0])
        known = asked_labels(self._stream, self.ask_after)
        earlier = self._latest(known, trainable(known) & (known.t < first), len(known.t))
        again = self._repeated(len(later.node), len(earlier.node), replay, seed=abs(first))
        node, t, label = (
            np.concatenate([getattr(earlier, name)[again], getattr(later, name)])
            for name in ("node", "t", "label")
        )
        features = torch.from_numpy(self._features(node, t))
        self._network = copy.deepcopy(self._network)  # so that a failure can restore it
        loss = self._loss_on(NodeLabels(node, t, label), features)
        self._fit_further(len(node), loss, epochs=epochs, pace=pace, progress=progress)
        return self

    # Files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write weights, settings, the events and the record of all nodes to a directory.

        overwrite: whether to replace a model that is already there.
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
        """Return the model that `save` wrote; learning on leaves the saved files as they are.

        An encoder that is not one of the package's must be given again.
        """
        classifier, tensors, about = cls._read(path, {"encoder": encoder})
        classifier.classes_ = np.array(about["classes"], dtype=np.int64)
        classifier.reads_states_ = about["reads_states"]
        classifier._open(classifier._stream)
        classifier._features = classifier._new_features()
        classifier._restore(classifier._new_network(about["features"]), tensors)
        return classifier
