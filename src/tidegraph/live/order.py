"""In which order events take effect: a watermark says which are late, a buffer lets others wait.

Events are applied by time, those of one time together and in the order of their sequence numbers,
once the watermark has passed their time. An event that comes later than that is late. So what is
applied together, and in which order, depends on the accepted events alone, and not on how they were
divided into requests, or on when they were applied. Nothing here touches a disk or a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.columns import IntArray


class Row(NamedTuple):
    """One event of the log; rows compare by time and sequence number."""

    t: int
    seq: int
    op: int
    src: str
    dst: str | None = None
    weight: float | None = None
    features: bytes | None = None


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
    """Events that wait for the watermark, sorted."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Sequence[Row]) -> None:
        """Let rows wait, in any order."""
        if not rows:
            return
        new = sorted(rows)
        # Disorder is short: all that is sorted again is what is not before the first new row.
        place = len(self._rows)
        if self._rows and new[0] < self._rows[-1]:
            place = bisect_left(self._rows, new[0])
            new = sorted(self._rows[place:] + new)
        self._rows[place:] = new

    def release(self, low: int | None) -> list[Row]:
        """Return the rows before a time, in the order in which they take effect."""
        if low is None:
            return []
        place = bisect_left(self._rows, (low,))
        ready = self._rows[:place]
        del self._rows[:place]
        return ready

    def first_seq(self, otherwise: int) -> int:
        """Return the smallest sequence number of those that wait."""
        return min((row.seq for row in self._rows), default=otherwise)

    def plain(self) -> list[Any]:
        """Return the rows that wait, without features."""
        return [list(row[:6]) for row in self._rows]
