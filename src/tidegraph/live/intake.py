"""What becomes of events that come in: which are stored, as which rows, and what callers are told.

It depends on the log so far and on the order of the events, and not on how they are divided into
calls. Nothing here touches a disk or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidegraph.events.columns import IntArray
from tidegraph.live.answers import Receipt
from tidegraph.live.events import Incoming
from tidegraph.live.names import Names
from tidegraph.live.order import Rows, Watermark


@dataclass(eq=False)
class Intake:
    """What one transaction stores, and the receipts of the callers.

    names: those known so far. new: those that come with it. reject: whether late events are not
    stored. last: until when answers have to follow to have the events of each caller.
    """

    watermark: Watermark
    seq: int
    counts: dict[str, int]
    names: Names
    lateness: int
    reject: bool
    unit: str
    known: set[str]  # ids of events that are stored, as far as these events have them
    new: dict[str, int] = field(default_factory=dict)
    ids: list[tuple[str, int]] = field(default_factory=list)
    keys: dict[str, Receipt] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    last: list[int | None] = field(default_factory=list)
    _rows: list[Rows] = field(default_factory=list)

    def take(
        self, events: Incoming, key: str | None, answered: Callable[[str], Receipt | None]
    ) -> None:
        """Take the events of one call; `answered` returns the receipt that a key had before."""
        if key is not None:
            first = self.keys.get(key) or answered(key)
            if first is not None:
                self.receipts.append(first)
                self.last.append(self.watermark.newest)  # they came before, and may still wait
                self.counts["repeated"] += 1
                return
        places, t, duplicate, late = self._admitted(events)
        if places is not None and len(places) < len(events):
            events = events.take(places)
        rows = self._numbered(events, t)
        receipt = Receipt(
            seq=self.seq + len(rows),
            first_seq=self.seq + 1,
            accepted=len(rows),
            duplicate=duplicate,
            late=late,
            watermark=self.watermark.low,
            applied=False,
            unit=self.unit,
        )
        self.seq += len(rows)
        self._rows.append(rows)
        self.receipts.append(receipt)
        last = int(t.max()) if len(t) else None
        self.last.append(self.watermark.newest if duplicate else last)
        if key is not None:
            self.keys[key] = receipt
        for name, count in (("events", len(rows)), ("duplicate", duplicate), ("late", late)):
            self.counts[name] += count

    @property
    def rows(self) -> Rows:
        """All rows to store."""
        return Rows.merged(self._rows)

    def _admitted(self, events: Incoming) -> tuple[Sequence[int] | None, IntArray, int, int]:
        """Return the places of events to store, None for all, when they take effect, and how many
        are duplicates and late; move the watermark.
        """
        places, repeated = self._not_known(events)
        t = events.t if places is None else events.t[places]
        watermark, effective, late = self.watermark.admit(t, self.lateness)
        if not late.any() or not self.reject:
            self.watermark = watermark
            return places, effective, len(events) - len(t), int(np.count_nonzero(late))
        if repeated:  # the first of two with one id may be late, and the second not a duplicate
            return self._one_by_one(events)
        self.watermark = watermark
        kept = np.flatnonzero(~late)
        chosen = kept.tolist() if places is None else [places[each] for each in kept]
        return chosen, effective[~late], len(events) - len(t), int(np.count_nonzero(late))

    def _not_known(self, events: Incoming) -> tuple[list[int] | None, bool]:
        """Return the places of events whose id is new, None for all, and whether one occurs twice
        among these.
        """
        if events.id is None:
            return None, False
        seen: set[str] = set()
        places, repeated = [], False
        for place, each in enumerate(events.id):
            if each is None:
                places.append(place)
            elif each in seen:
                repeated = True
            elif each not in self.known:
                seen.add(each)
                places.append(place)
        return places, repeated

    def _one_by_one(self, events: Incoming) -> tuple[Sequence[int], IntArray, int, int]:
        newest, low = self.watermark.newest, self.watermark.low
        places: list[int] = []
        seen: set[str] = set()
        duplicate = late = 0
        assert events.id is not None
        for place, (each, t) in enumerate(zip(events.id, events.t.tolist(), strict=True)):
            if each is not None and (each in self.known or each in seen):
                duplicate += 1
            elif low is not None and t < low:
                late += 1
            else:
                places.append(place)
                newest = t if newest is None else max(newest, t)
                low = newest - self.lateness if low is None else max(low, newest - self.lateness)
                if each is not None:
                    seen.add(each)
        self.watermark = Watermark(newest, low)
        return places, events.t[places], duplicate, late

    def _numbered(self, events: Incoming, t: IntArray) -> Rows:
        src, dst = self.names.numbered(events.src, events.dst, self.new)
        numbers = np.arange(self.seq + 1, self.seq + 1 + len(events))
        weight: Any = np.nan
        if events.weight is not None:
            weight = np.array(events.weight, dtype=np.float64)  # None becomes NaN
        features = None
        if events.features is not None:
            found = enumerate(events.features, self.seq + 1)
            features = {seq: values for seq, values in found if values is not None}
        if events.id is not None:
            ids = zip(events.id, numbers.tolist(), strict=True)
            self.ids += [(each, number) for each, number in ids if each is not None]
            self.known.update(each for each in events.id if each is not None)
        return Rows.of(t, numbers, src, dst, events.op or 0, weight, features)
