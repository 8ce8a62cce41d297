"""In which order events take effect: a watermark says which are late, a buffer lets others wait.

Events are applied by time, those of one time together and in the order of their sequence numbers,
once the watermark has passed their time. An event that comes later than that is late. So what is
applied together, and in which order, depends on the accepted events alone, and not on how they were
divided into requests, or on when they were applied. Nothing here touches a disk or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.columns import IntArray

NOBODY = -1  # the number of a node that is not given
_MERGED = 4096  # rows that wait unsorted


@dataclass(frozen=True, eq=False)
class Rows:
    """Events of the log as columns; `src` and `dst` are numbers of nodes.

    weight: NaN where none was given. features: new ones of the node `src`, by sequence number.
    """

    t: IntArray
    seq: IntArray
    op: NDArray[np.uint8]
    src: IntArray
    dst: IntArray
    weight: NDArray[np.float64]
    features: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        t: Any,
        seq: Any,
        src: Any,
        dst: Any,
        op: Any = 0,
        weight: Any = np.nan,
        features: Mapping[int, bytes] | None = None,
    ) -> Rows:
        """Return rows of these columns; a single value holds for all of them."""
        count = len(t)
        return cls(
            np.asarray(t, dtype=np.int64),
            np.asarray(seq, dtype=np.int64),
            np.full(count, op, dtype=np.uint8) if np.ndim(op) == 0 else np.asarray(op, np.uint8),
            np.asarray(src, dtype=np.int64),
            np.asarray(dst, dtype=np.int64),
            np.full(count, weight) if np.ndim(weight) == 0 else np.asarray(weight, np.float64),
            features or {},
        )

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, places: Any) -> Rows:
        """Return the rows of a slice, or at some places."""
        t, seq, op, src, dst, weight = (column[places] for column in self.columns)
        return Rows(t, seq, op, src, dst, weight, self.features)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns but the features."""
        return self.t, self.seq, self.op, self.src, self.dst, self.weight

    @staticmethod
    def merged(parts: Sequence[Rows]) -> Rows:
        """Return all rows, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        features: dict[int, bytes] = {}
        for part in parts:
            features |= part.features
        if not parts:
            return Rows.of([], [], [], [])
        columns = zip(*(part.columns for part in parts), strict=True)
        t, seq, op, src, dst, weight = map(np.concatenate, columns)
        return Rows(t, seq, op, src, dst, weight, features)

    def without(self, node: int) -> Rows:
        """Return the rows of other nodes."""
        return self[(self.src != node) & (self.dst != node)]

    def sorted(self) -> Rows:
        """Return the rows in the order in which they take effect."""
        later = np.diff(self.t)
        if (later >= 0).all() and (np.diff(self.seq)[later == 0] > 0).all():
            return self
        return self[np.lexsort((self.seq, self.t))]


@dataclass(frozen=True)
class Watermark:
    """How far time has come.

    newest: the largest time so far; None before the first event.
    low: earlier events are late; everything before it can be applied.
    """

    newest: int | None = None
    low: int | None = None

    def admit(self, t: IntArray, lateness: int) -> tuple[Watermark, IntArray, NDArray[np.bool_]]:
        """Return the watermark after events in this order, when each takes effect, and which are
        late: those take effect at the watermark they met, if at all.
        """
        if not len(t):
            return self, t, np.zeros(0, dtype=np.bool_)
        newest = np.maximum.accumulate(t)
        if self.newest is not None:
            newest = np.maximum(newest, self.newest)
        # A late event is not the newest, so that it moves no watermark whether it is taken or not.
        low = newest - lateness
        if self.low is not None:
            low = np.maximum(low, self.low)
        met = np.concatenate([[t[0] if self.low is None else self.low], low[:-1]])
        late = t < met
        return Watermark(int(newest[-1]), int(low[-1])), np.where(late, met, t), late

    def marked(self) -> Watermark:
        """Return the watermark right after the newest event, which lets all events be applied."""
        assert self.newest is not None
        return Watermark(self.newest, max(self.newest + 1, self.low or self.newest + 1))

    @property
    def holds_back(self) -> bool:
        """Whether events at the newest time wait."""
        return self.newest is not None and (self.low is None or self.low <= self.newest)


class Buffer:
    """Events that wait for the watermark.

    Most of them are sorted; those that came last are not yet, so that one more event costs nothing
    that grows with the number of those that wait.
    """

    def __init__(self) -> None:
        self._sorted = Rows.of([], [], [], [])
        self._fresh: list[Rows] = []

    def __len__(self) -> int:
        return len(self._sorted) + sum(map(len, self._fresh))

    def add(self, rows: Rows) -> None:
        """Let rows wait, in any order."""
        if len(rows):
            self._fresh.append(rows)

    def release(self, low: int | None) -> Rows:
        """Return the rows before a time, in the order in which they take effect."""
        if low is None:
            return self._sorted[:0]
        due = int(np.searchsorted(self._sorted.t, low))
        ready, self._sorted = [self._sorted[:due]], self._sorted[due:]
        if self._fresh:
            fresh = Rows.merged(self._fresh)
            early = fresh.t < low
            ready.append(fresh[early])
            fresh = fresh[~early]
            self._fresh = [fresh] if len(fresh) else []
            if len(fresh) > max(_MERGED, len(self._sorted) // 8):
                self._sorted, self._fresh = Rows.merged([self._sorted, fresh]).sorted(), []
        return Rows.merged(ready).sorted()

    def all(self) -> Rows:
        """Return all rows, in the order in which they take effect."""
        return Rows.merged([self._sorted, *self._fresh]).sorted()

    def without(self, node: int) -> Buffer:
        """Return a buffer of the rows of other nodes."""
        other = Buffer()
        other.add(self.all().without(node))
        return other

    def first_seq(self, otherwise: int) -> int:
        """Return the smallest sequence number of those that wait."""
        return int(self.all().seq.min(initial=otherwise))
