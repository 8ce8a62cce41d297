"""`NodeClassifier`: the class of a node as of a time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import evaluation
from tidegraph.core.errors import DataError
from tidegraph.engine.channels import Sketch
from tidegraph.evaluation import Result, Split
from tidegraph.events.columns import IntArray
from tidegraph.events.stream import ALWAYS, EventStream, NodeLabels
from tidegraph.learning.settings import NodeSettings, Task
from tidegraph.learning.tasks.classifier import (
    TRAIN,
    VALIDATION,
    Classifier,
    learnable_classes,
)
from tidegraph.learning.tasks.node_features import NodeFeatures
from tidegraph.learning.tasks.recorded import check_lengths

if TYPE_CHECKING:
    from tidegraph.learning.models import Window

FloatArray = NDArray[np.float32]


@dataclass(eq=False, kw_only=True, repr=False)
class NodeClassifier(NodeSettings, Classifier):
    """A model of the class of a node at a time `t`, given the events before `t`.

    `fit(stream)` runs the stream once through the propagation engine (the stream's node features,
    or random ones where it has none), records how every node moved, and trains a few small networks
    on the labels: those of the events' sources, asked for at the event from what was strictly
    before it, or the stream's `node_labels` where events carry none. A label serves as input only
    where it was known before the question. Labels that hold at all times are asked for at the end
    of the stream, and those of nodes that train serve as input for all other nodes.
    `settings.NodeSettings` describes the settings.

    Nodes are given as node numbers or by the names they have in the data, times as numbers in the
    stream's unit or as dates. `classes_` holds the classes, ascending, `class_names` their names.
    """

    task: ClassVar[Task] = "node"

    # Labels ---------------------------------------------------------------------------------------

    def examples(self, stream: EventStream, split: Split) -> NodeLabels:
        """Return the stream's known labels in the parts of the split; `t` is when to ask for each.

        Where node labels come with parts of their own, these hold; those of the test train where
        the split has none.
        """
        labels = self._asked(stream)
        part = labels.part
        if part is not None and split.test_time == np.inf and stream.labels_hold_always:
            part = np.where(part == VALIDATION, part, TRAIN).astype(np.uint8)
        elif part is None:
            bounds = [split.validation_time, split.test_time]
            part = np.digitize(labels.t - self.ask_after, bounds, right=True).astype(np.uint8)
        known = labels.label >= 0
        return NodeLabels(labels.node[known], labels.t[known], labels.label[known], part[known])

    def _asked(self, stream: EventStream) -> NodeLabels:
        """Return the stream's labels with the times at which to ask for them: `ask_after` theirs.

        The time of an event's label is that of the event.
        """
        if stream.labels is not None:
            return NodeLabels(stream.src, stream.t + self.ask_after, stream.labels)
        if stream.node_labels is None:
            raise DataError("the stream has neither labels nor node_labels; nothing can be learned")
        t = stream.node_labels.t
        end = int(stream.t[-1]) + 1
        return replace(stream.node_labels, t=np.where(t == ALWAYS, end, t + self.ask_after))

    def known(self, stream: EventStream) -> NodeLabels:
        """Return the labels that may serve as input, each with the time from which it is known.

        The label of an event is known from the event on, unless node labels say otherwise. No label
        is known before it is asked for.
        """
        labels = self._asked(stream) if stream.node_labels is None else stream.node_labels
        t = labels.t
        if stream.node_labels is not None:
            t = np.where(t == ALWAYS, ALWAYS, t + self.ask_after)
        usable = labels.label >= 0
        if labels.part is not None and (stream.labels_hold_always or not _by_time(labels)):
            usable &= labels.part == TRAIN  # or labels of the test would be read in training
        return NodeLabels(labels.node[usable], t[usable], labels.label[usable])

    # Fitting --------------------------------------------------------------------------------------

    def _check_learnable(self, stream: EventStream, split: Split) -> None:
        examples = self.examples(stream, split)
        learnable_classes(examples.label, examples.part)

    def propagated(self, stream: EventStream) -> Sketch | ArrayLike:
        return self._sketch() if stream.node_features is None else stream.node_features

    def _new_features(self) -> NodeFeatures:
        stream, x = self._stream, self._stream.node_features
        if x is None:
            x = self._sketch().rows(np.arange(stream.nodes)).astype(np.float32)
        return NodeFeatures(
            stream,
            self._trajectories,
            self._history,
            x,
            self,
            span=self._span,
            states=self.reads_states_,
            known=self.known(stream) if self.known_labels else None,
            classes=self.classes_,
        )

    def _divided(self, split: Split) -> tuple[NodeLabels, NodeLabels]:
        examples = self.examples(self._stream, split)
        self.classes_ = learnable_classes(examples.label, examples.part)
        # Propagated random features identify the neighbours, which networks learn by heart.
        has_features = self._stream.node_features is not None
        self.reads_states_ = has_features if self.states is None else self.states
        assert examples.part is not None
        return (
            self._latest(examples, examples.part == TRAIN, self.max_examples),
            self._latest(examples, examples.part == VALIDATION, self.max_examples),
        )

    @property
    def starts_from_shares(self) -> bool:
        return self.known_labels and self._stream.labels_hold_always

    def _read(self, examples: NodeLabels) -> FloatArray:
        read: FloatArray = self._features(examples.node, examples.t)
        return read

    def _latest(self, examples: NodeLabels, chosen: NDArray[np.bool_], most: int) -> NodeLabels:
        """Return the latest of the chosen examples, of classes that are learned, in time order."""
        rows = np.flatnonzero(chosen & np.isin(examples.label, self.classes_))
        rows = rows[np.argsort(examples.t[rows], kind="stable")][-most:]
        return NodeLabels(examples.node[rows], examples.t[rows], examples.label[rows])

    def _wanted(self, examples: NodeLabels) -> IntArray:
        return examples.label

    def _windows(self, examples: NodeLabels, rows: IntArray) -> list[Window | None]:
        return [self._window(examples.node[rows], examples.t[rows])]

    # Questions ------------------------------------------------------------------------------------

    def predict_proba(self, nodes: ArrayLike, t: ArrayLike | None = None) -> FloatArray:
        """Return the probability of each of `classes_` for nodes at times, `[n, classes]`.

        Only events strictly before `t` count; None counts all. One time may be given for all nodes.
        """
        self._check_fitted()
        t = int(self._stream.t[-1]) + 1 if t is None else t
        asked, times = self._columns(nodes=nodes, t=t)
        nothing = np.full(len(asked), -1)
        return self._answers(
            len(asked), lambda rows: NodeLabels(asked[rows], times[rows], nothing[rows])
        )

    def predict(self, nodes: ArrayLike, t: ArrayLike | None = None) -> NDArray[Any]:
        """Return the likeliest class of each node at its time, `[n]`, as the data writes it."""
        return self._likeliest(self.predict_proba(nodes, t))

    def score(self, nodes: ArrayLike, t: ArrayLike, y: ArrayLike) -> float:
        """Return the accuracy of `predict` on nodes whose classes `y` are known.

        `evaluate` measures under a protocol, which says more.
        """
        check_lengths(nodes=nodes, t=t, y=y)
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

    def _joined(self, events: EventStream) -> EventStream:
        stream = super()._joined(events)
        return replace(stream, node_labels=merge_labels(stream.node_labels, events.node_labels))

    def _lessons(self, events: EventStream) -> NodeLabels | None:
        later = events.node_labels
        if events.labels is None and (later is None or later is self._stream.node_labels):
            return None
        return self._asked(events)

    def _taught(self, lessons: NodeLabels) -> IntArray:
        return lessons.label[_trainable(lessons)]

    def _further(self, lessons: NodeLabels, most: int, replay: float) -> NodeLabels | None:
        self._check_lessons(lessons, self._stream.vocabulary)
        later = self._latest(lessons, _trainable(lessons), most)
        if not len(later.node):
            return None
        self._stream.name(later.node)  # raises an error that names an unknown node
        first = int(later.t[0])
        known = self._asked(self._stream)
        earlier = self._latest(known, _trainable(known) & (known.t < first), len(known.t))
        again = self._repeated(len(later.node), len(earlier.node), replay, seed=abs(first))
        return NodeLabels(
            *(
                np.concatenate([getattr(earlier, name)[again], getattr(later, name)])
                for name in ("node", "t", "label")
            )
        )

    # Files ----------------------------------------------------------------------------------------

    def _learned(self) -> dict[str, Any]:
        return {**super()._learned(), "reads_states": self.reads_states_}

    def _restore(self, about: dict[str, Any]) -> None:
        super()._restore(about)
        self.reads_states_ = about["reads_states"]


def _trainable(labels: NodeLabels) -> NDArray[np.bool_]:
    """Return which labels are known and not in the part of validation or test."""
    known: NDArray[np.bool_] = labels.label >= 0
    return known if labels.part is None else known & (labels.part == TRAIN)


def merge_labels(known: NodeLabels | None, later: NodeLabels | None) -> NodeLabels | None:
    """Return known and later labels together; where they have parts, later ones may train."""
    if known is None or later is None or later is known:
        return later if known is None else known
    node, t, label = (
        np.concatenate([getattr(each, name) for each in (known, later)])
        for name in ("node", "t", "label")
    )
    part = None
    if known.part is not None or later.part is not None:
        parts = [
            np.zeros(len(each.node), np.uint8) if each.part is None else each.part
            for each in (known, later)
        ]
        part = np.concatenate(parts)
    return NodeLabels(node, t, label, part)


def _by_time(labels: NodeLabels) -> bool:
    """Whether validation follows training and the test follows both."""
    assert labels.part is not None
    spans = [labels.t[labels.part == part] for part in np.unique(labels.part)]
    return all(a.max() <= b.min() for a, b in itertools.pairwise(spans))
