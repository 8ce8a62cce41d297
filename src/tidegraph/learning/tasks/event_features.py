"""What a model reads about an event: what it carries, the past of both ends, known labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError
from tidegraph.core.words import counted
from tidegraph.events.own_columns import own_numbers
from tidegraph.events.past import Past
from tidegraph.events.stream import EventStream
from tidegraph.events.vocabulary import hashed
from tidegraph.learning.features import PairFeatures, one_hot
from tidegraph.learning.tasks.node_features import of_day_and_week

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_ONE_HOT = 32  # words of a column that have an input each; where there are more, all are hashed
_BUCKETS = 32  # inputs that hashed words share
_TELLING = 0.5  # a column with more different words than this share of the events tells nothing
_FEW_CLASSES = 16  # up to which all numbers about labels are read


@dataclass(frozen=True)
class OwnColumns:
    """How the columns that events carry become inputs, as learned from training events.

    A number is read as the logarithm of its size in units of the column's median, with its sign; a
    missing one as the median, and flagged. A word has an input of its own, or shares one of a few
    with others of the same hash.
    """

    numbers: dict[str, tuple[float, float, bool]]  # unit, middle, whether one may be missing
    words: dict[str, tuple[str, ...]]  # by column: those with an input each; (): hashed
    left_out: tuple[str, ...] = ()

    @classmethod
    def fit(cls, stream: EventStream, rows: IntArray) -> OwnColumns:
        """Return what these training events of the stream tell about its columns."""
        names, values = own_numbers(stream)
        numbers, words, left_out = {}, {}, []
        for name, column in zip(names, values[rows].T, strict=True):
            present = column[np.isfinite(column)]
            sizes = np.abs(present[present != 0])
            unit = float(np.median(sizes)) if len(sizes) else 1.0
            middle = float(np.median(_logarithm(present, unit))) if len(present) else 0.0
            numbers[name] = unit, middle, len(present) < len(column)
        for place, (name, known) in enumerate(stream.vocabulary.categories.items()):
            assert stream.categories is not None
            seen = stream.categories[rows, place]
            different = np.unique(seen[seen >= 0])
            if len(different) > max(_ONE_HOT, _TELLING * len(rows)):
                left_out.append(name)
            else:
                few = len(different) <= _ONE_HOT
                words[name] = tuple(known[code] for code in different) if few else ()
        return cls(numbers, words, tuple(left_out))

    def __call__(self, stream: EventStream) -> FloatArray:
        """Return the inputs of all events of a stream, `[events, inputs]`."""
        names, values = own_numbers(stream)
        coded = {name: place for place, name in enumerate(stream.vocabulary.categories)}
        missing = [name for name in self.numbers if name not in names]
        missing += [name for name in self.words if name not in coded]
        if missing:
            raise DataError(
                f"the events have no column {', '.join(map(repr, missing))}, which the model reads;"
                " give events with the columns of the training"
            )
        parts: list[NDArray[Any]] = [np.zeros((len(stream), 0))]
        for name, (unit, middle, flagged) in self.numbers.items():
            column = values[:, names.index(name)]
            absent = ~np.isfinite(column)
            parts.append(np.where(absent, middle, _logarithm(column, unit))[:, None])
            if flagged:
                parts.append(absent[:, None])
        for name, known in self.words.items():
            assert stream.categories is not None
            words = stream.vocabulary.categories[name]
            place = {word: k for k, word in enumerate(known)}
            inputs = [place.get(word, len(known)) for word in words]  # the last: any other
            if not known:
                inputs = hashed(words, _BUCKETS)
            width = len(known) + 1 if known else _BUCKETS
            parts.append(one_hot(stream.categories[:, coded[name]], inputs, width))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def described(self) -> list[str]:
        """Return how each column is read, in words."""
        found = [
            f"{name}: a number{', missing ones flagged' if flagged else ''}"
            for name, (_, _, flagged) in self.numbers.items()
        ]
        for name, known in self.words.items():
            how = f"one-hot, {counted(len(known), 'word')}" if known else f"hashed to {_BUCKETS}"
            found.append(f"{name}: words, {how}")
        return found + [f"{name}: left out, since most words differ" for name in self.left_out]

    def plain(self) -> dict[str, Any]:
        """Return it in plain types, for `of`."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> OwnColumns:
        """Return what `plain` came from."""
        return cls(
            {name: tuple(each) for name, each in plain["numbers"].items()},
            {name: tuple(each) for name, each in plain["words"].items()},
            tuple(plain["left_out"]),
        )


def _logarithm(values: NDArray[Any], unit: float) -> NDArray[Any]:
    logarithm: NDArray[Any] = np.sign(values) * np.log1p(np.abs(values) / unit)
    return logarithm


class KnownLabels:
    """Labels of earlier events of the source, the destination and the pair, known before a time.

    For each of the two as source and as destination, and for the pair: the last label, the share of
    each class (shrunk to that of all events), how many there were, and how long ago the last was.

    known_t: when the label of each event became known.
    share: of each of `classes` in training.
    span: length of the training period, for classes that never occurred.
    """

    def __init__(
        self,
        stream: EventStream,
        known_t: IntArray,
        classes: IntArray,
        share: Sequence[float],
        span: float,
    ) -> None:
        assert stream.labels is not None
        self._nodes, self._share = stream.nodes, np.array(share)
        self._classes, self._never = len(classes), np.log1p(span)
        rows = np.flatnonzero(np.isin(stream.labels, classes))
        src, dst, self._t = stream.src[rows], stream.dst[rows], known_t[rows]
        self._label = np.searchsorted(classes, stream.labels[rows])
        keys = {"src": src, "dst": dst, "pair": src * stream.nodes + dst}
        self._last = {name: Past(key, self._t) for name, key in keys.items()}
        self._by_class = {
            name: Past(key * self._classes + self._label, self._t) for name, key in keys.items()
        }

    def __call__(self, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        """Return a row for each pair and time."""
        asked = [("src", src), ("dst", dst), ("pair", src * self._nodes + dst)]
        asked += [("dst", src), ("src", dst)]
        parts = [self._of(name, key, t) for name, key in asked]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _of(self, name: str, key: IntArray, t: IntArray) -> NDArray[np.float64]:
        classes, by_class = self._classes, self._by_class[name]
        rows, known = self._last[name].latest(key, t, 1)
        label = self._label[rows[:, 0]] if len(self._label) else rows[:, 0]
        last = np.eye(classes)[label] * known
        each = (key[:, None] * classes + np.arange(classes)).ravel()
        first, end = by_class.span(each, np.repeat(t, classes))
        count = (end - first).reshape(-1, classes)
        total = count.sum(axis=1, keepdims=True)
        parts = [last, (count + self._share) / (total + 1), np.log1p(total)]
        if classes <= _FEW_CLASSES:
            since = np.full(len(each), self._never)
            met = np.flatnonzero(end > first)
            when = self._t[by_class.order[end[met] - 1]]
            since[met] = np.log1p(np.repeat(t, classes)[met] - when)
            parts += [np.log1p(count), since.reshape(-1, classes)]
        return np.concatenate(parts, axis=1)


class EventFeatures:
    """Numbers about events: their own columns, and all else strictly before them.

    pairs: what is read about source and destination.
    labels: labels of earlier events, or None.
    periods: a day and a week, where these are read of the time.
    """

    def __init__(
        self,
        own: OwnColumns,
        pairs: PairFeatures,
        labels: KnownLabels | None,
        periods: NDArray[np.float64],
    ) -> None:
        self._own, self._pairs, self._labels, self._periods = own, pairs, labels, periods

    def __call__(self, events: EventStream) -> FloatArray:
        """Return a row for each event, whose nodes have the numbers of the model's stream."""
        asked = events.src, events.dst, events.t
        parts: list[NDArray[Any]] = [self._own(events), self._pairs(*asked)]
        parts.append(of_day_and_week(events.t, self._periods))
        if self._labels is not None:
            parts.append(self._labels(*asked))
        return np.concatenate(parts, axis=1, dtype=np.float32)
