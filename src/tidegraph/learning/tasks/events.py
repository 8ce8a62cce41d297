"""`EventClassifier`: the class of an event, from what it carries and what was before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tidegraph import evaluation
from tidegraph.core.errors import DataError
from tidegraph.evaluation import Result, Split
from tidegraph.evaluation.metrics import log_loss
from tidegraph.events.columns import IntArray
from tidegraph.events.stream import EventStream
from tidegraph.learning.features import EdgeFeatures, PairFeatures, PartOfLinks, Sketches
from tidegraph.learning.settings import EventSettings, Task
from tidegraph.learning.tasks.classifier import TRAIN, VALIDATION, Classifier, learnable_classes
from tidegraph.learning.tasks.event_features import EventFeatures, KnownLabels, OwnColumns
from tidegraph.learning.tasks.node_features import periods

if TYPE_CHECKING:
    from tidegraph.learning.models import Window

FloatArray = NDArray[np.float32]

_TEMPERATURES = (-3.0, 3.0)  # logarithms of what is tried


@dataclass(eq=False, kw_only=True, repr=False)
class EventClassifier(EventSettings, Classifier):
    """A model of the class of an event, given what it carries and the events before it.

    `fit(stream)` learns from the stream's `labels`. Of an event it reads its own columns (weight,
    edge features, categories) and its time; all else lies strictly before it: history and
    representations of both ends and of the pair, what their latest events carried, and labels that
    were known by then. A label becomes known `label_delay` after its event. Probabilities are
    calibrated on the validation events by one temperature. `settings.EventSettings` describes the
    settings.

    Questions are events: a part of the stream, or what `tidegraph.read` returns for a table with
    the same columns. `classes_` holds the classes, ascending, `class_names` their words.
    """

    task: ClassVar[Task] = "events"

    _ends = 2

    # Labels ---------------------------------------------------------------------------------------

    @property
    def inputs(self) -> list[str]:
        """How the columns that events carry are read, in words."""
        return self.own_.described()

    def examples(self, stream: EventStream, split: Split) -> tuple[IntArray, NDArray[np.uint8]]:
        """Return the positions of labelled events, and their parts by the times of the split.

        Labels that become known only after the test has begun do not train or validate.
        """
        if stream.labels is None:
            raise DataError(
                "the stream has no labels; name the column that holds them: label=COLUMN, or"
                " --label COLUMN"
            )
        bounds = [split.validation_time, split.test_time]
        part = np.digitize(stream.t, bounds, right=True).astype(np.uint8)
        in_time = (part == 2) | (stream.t + self.label_delay <= split.test_time)
        rows = np.flatnonzero((stream.labels >= 0) & in_time)
        return rows, part[rows]

    # Fitting --------------------------------------------------------------------------------------

    def _check_learnable(self, stream: EventStream, split: Split) -> None:
        rows, part = self.examples(stream, split)
        assert stream.labels is not None
        learnable_classes(stream.labels[rows], part)

    def _divided(self, split: Split) -> tuple[EventStream, EventStream]:
        stream = self._stream
        rows, part = self.examples(stream, split)
        assert stream.labels is not None
        latest = np.concatenate(
            [np.flatnonzero(part == number)[-self.max_examples :] for number in (TRAIN, VALIDATION)]
        )
        rows, part = rows[latest], part[latest]
        self.classes_ = learnable_classes(stream.labels[rows], part)
        known = np.isin(stream.labels[rows], self.classes_)
        learned, held_out = (rows[known & (part == number)] for number in (TRAIN, VALIDATION))
        self.own_: OwnColumns = OwnColumns.fit(stream, learned)
        count = np.bincount(np.searchsorted(self.classes_, stream.labels[learned]))
        self._share: list[float] = (count / count.sum()).tolist()
        return self._chosen(learned), self._chosen(held_out)

    def _chosen(self, rows: IntArray) -> EventStream:
        mask = np.zeros(len(self._stream), dtype=np.bool_)
        mask[rows] = True
        return self._stream.where(mask)

    def _new_features(self) -> EventFeatures:
        stream = self._stream
        carried = self.own_(stream)
        parts: list[PartOfLinks] = [Sketches(self._trajectories, self._sketch()), self._history]
        if self.edge_features and carried.shape[1]:
            parts.append(EdgeFeatures(stream, carried))
        labels = None
        if self.known_labels:
            known_t = stream.t + self.label_delay
            labels = KnownLabels(stream, known_t, self.classes_, self._share, self._span)
        pairs = PairFeatures(parts)
        return EventFeatures(self.own_, pairs, labels, periods(stream.unit, self._span))

    def _read(self, examples: EventStream) -> FloatArray:
        read: FloatArray = self._features(examples)
        return read

    def _wanted(self, examples: EventStream) -> IntArray:
        assert examples.labels is not None
        return examples.labels

    def _windows(self, examples: EventStream, rows: IntArray) -> list[Window | None]:
        t = examples.t[rows]
        return [self._window(ends[rows], t) for ends in (examples.src, examples.dst)]

    def _calibrate(self, examples: EventStream, features: FloatArray) -> None:
        from scipy.optimize import minimize_scalar

        found = self._probabilities(examples, features)
        index = np.searchsorted(self.classes_, self._wanted(examples))

        def loss(log_temperature: float) -> float:
            return log_loss(index, _tempered(found, float(np.exp(log_temperature))))

        best = minimize_scalar(loss, bounds=_TEMPERATURES, method="bounded")
        self.temperature_: float = float(np.exp(best.x))

    # Questions ------------------------------------------------------------------------------------

    def predict_proba(self, events: EventStream) -> FloatArray:
        """Return the probability of each of `classes_` for events, `[n, classes]`.

        Only events of the model strictly before each of them count; `advance` adds later ones, such
        as the events themselves, and new nodes.
        """
        self._check_fitted()
        asked = self._known(events)
        found = self._answers(len(asked), lambda rows: asked[rows])
        return _tempered(found, self.temperature_)

    def _known(self, events: EventStream) -> EventStream:
        """Return events with the numbers and codes of the model's stream."""
        stream = self._stream
        if events.unit != stream.unit:
            raise DataError(
                f"times of the events count {events.unit}, those of the model {stream.unit}; read"
                " the events with the same unit"
            )
        if events.names is not stream.names or events.vocabulary != stream.vocabulary:
            events = events.continuing(stream)
        ends = np.maximum(events.src, events.dst)
        if len(ends) and ends.max() >= stream.nodes:
            place = int(np.argmax(ends >= stream.nodes))
            new = next(n for n in (events.src[place], events.dst[place]) if n >= stream.nodes)
            raise DataError(
                f"event {place} has the node {events.name(new)!s}, which no event of the model has;"
                " call advance(events) first, which adds new nodes and later events"
            )
        return events

    def predict(self, events: EventStream) -> NDArray[Any]:
        """Return the likeliest class of each event, `[n]`, as the data writes it."""
        return self._likeliest(self.predict_proba(events))

    def score(self, events: EventStream) -> float:
        """Return the accuracy of `predict` on events with labels; `evaluate` says more."""
        if events.labels is None:
            raise DataError("the events have no labels; give events with labels")
        asked = self._known(events).where(events.labels >= 0)
        found = self.classes_[self.predict_proba(asked).argmax(axis=1)]
        return float((found == asked.labels).mean())

    def evaluate(
        self, split: Split, *, parts: Sequence[str] = ("validation", "test"), **options: Any
    ) -> Result:
        """Return the metrics of `evaluation.evaluate_events`, of the model and of heuristics."""
        self._check_fitted()
        stream = self._stream
        rows, part = self.examples(stream, split)
        assert stream.labels is not None
        columns = int(stream.labels[rows].max()) + 1

        def score(asked: IntArray) -> FloatArray:
            found = np.zeros((len(asked), columns), dtype=np.float32)
            found[:, self.classes_] = self.predict_proba(self._chosen(asked))
            return found

        return evaluation.evaluate_events(
            score,
            stream,
            rows,
            part,
            label_delay=self.label_delay,
            parts=parts,
            split_name=split.name,
            model="tidegraph",
            **options,
        )

    # Learning on ----------------------------------------------------------------------------------

    def _joined(self, events: EventStream) -> EventStream:
        return super()._joined(_labelled(events, self._stream))

    def _lessons(self, events: EventStream) -> EventStream | None:
        return None if events.labels is None else events

    def _taught(self, lessons: EventStream) -> IntArray:
        labels = self._wanted(lessons)
        return labels[labels >= 0]

    def _further(self, lessons: EventStream, most: int, replay: float) -> EventStream | None:
        assert lessons.labels is not None
        self._check_lessons(lessons, lessons.vocabulary)
        later = lessons.where(lessons.labels >= 0)[-most:]
        if not len(later):
            return None
        first = int(later.t[0])
        before = self._wanted(self._stream.before(first))
        earlier = np.flatnonzero(np.isin(before, self.classes_))
        again = self._repeated(len(later), len(earlier), replay, seed=abs(first))
        return self._chosen(earlier[again]).joined(later)

    # Files ----------------------------------------------------------------------------------------

    def _learned(self) -> dict[str, Any]:
        return {
            **super()._learned(),
            "temperature": self.temperature_,
            "own": self.own_.plain(),
            "share": self._share,
        }

    def _restore(self, about: dict[str, Any]) -> None:
        super()._restore(about)
        self.temperature_, self._share = about["temperature"], about["share"]
        self.own_ = OwnColumns.of(about["own"])


def _tempered(probabilities: FloatArray, temperature: float) -> FloatArray:
    """Return probabilities whose logarithms are divided by a temperature."""
    logits = np.log(np.maximum(probabilities.astype(np.float64), 1e-30)) / temperature
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)  # type: ignore[no-any-return]


def _labelled(events: EventStream, like: EventStream) -> EventStream:
    """Return events whose labels are unknown where they have none."""
    if events.labels is not None or like.labels is None:
        return events
    return replace(events, labels=np.full(len(events), -1))
