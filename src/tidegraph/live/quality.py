"""How good the answers are: events are scored before anything is learned from them.

An answer about a time depends on nothing that happened at that time or later, so that events can be
scored some time after they came, and to the bit as they would have been when they came.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import StateFileError
from tidegraph.core.resume import read_json, write_json
from tidegraph.evaluation.metrics import mrr, pair_metrics, ranks
from tidegraph.events.columns import IntArray
from tidegraph.events.moments import SECONDS
from tidegraph.live.answers import HEURISTICS
from tidegraph.live.models import Heuristics, probability
from tidegraph.live.state import State

FILE = "quality.json"
_NEGATIVES = 10  # random destinations among which an event is ranked
_DAY_S = 86_400
_WITHOUT_CLOCK = 1  # steps or years of a bucket
_LEAST = 50  # events of a bucket that says something
_MOST = 2000  # buckets that are kept
_AT_ONCE = 500
_KEPT = 100  # calls of `judge`


class Quality:
    """Average precision against one random destination, and mean reciprocal rank among ten, of the
    answers given and of heuristics, by day.
    """

    def __init__(self, directory: Path, state: State, seed: int) -> None:
        self._path, self._seed = directory / FILE, seed
        clock = state.about.unit in SECONDS and state.about.unit != "year"
        self._by_day = clock
        self.bucket = round(_DAY_S / SECONDS[state.about.unit]) if clock else _WITHOUT_CLOCK
        self.bucket = max(1, self.bucket)
        self._lock = threading.Lock()
        self._buckets: list[dict[str, Any]] = []
        # Those of the newest bucket, as many as a measure needs.
        self._scores: deque[tuple[str, dict[str, NDArray[Any]]]] = deque(maxlen=_KEPT)
        self._seen = 0  # links that were judged or passed over
        try:
            found = read_json(self._path) if self._path.exists() else {}
        except (StateFileError, OSError):
            found = {}
        if _is_whole(found):  # it is counted anew otherwise
            self._buckets, self._seen = found["buckets"], found["seen"]

    def judge(self, state: State, most: int) -> int:
        """Score at most so many of the links that were applied since the last time, spread evenly,
        and return how many.
        """
        events, moment = state.meetings, state.moment
        model, past = state.answering
        t = events.t
        end = int(np.searchsorted(t, moment.until)) if moment.until is not None else 0
        trained_on = 0 if model is None else model.events  # what was learned from says nothing
        self._seen = min(self._seen, len(events))  # there are fewer after one was forgotten
        begin = max(self._seen, trained_on)
        if begin >= end or most < 1:
            return 0
        places = np.unique(
            np.linspace(begin, end - 1, min(most, _AT_ONCE, end - begin)).astype(int)
        )
        src, dst, t = events.src[places], events.dst[places], t[places]
        generator = np.random.default_rng((self._seed, begin))
        known = past.candidates.before(int(t[0]))
        if len(known) > _NEGATIVES:
            others = generator.choice(known, (len(places), _NEGATIVES))
            shape = len(places), 1 + _NEGATIVES
            targets = np.column_stack([dst, others]).ravel()
            asked = np.repeat(src, shape[1]), targets, np.repeat(t, shape[1])
            scores = dict(Heuristics.scores(past, *asked))
            scores[HEURISTICS] = Heuristics.probability(past, *asked)
            if model is not None:
                scores["model"] = probability(model, past, *asked, given_src=True)
            tables = {name: each.reshape(shape) for name, each in scores.items()}
            version = HEURISTICS if model is None else model.version
            self._add(version, t, tables, end - begin)
        with self._lock:
            self._seen = end
        return len(places)

    def _add(self, version: str, t: IntArray, tables: dict[str, NDArray[Any]], events: int) -> None:
        days = t // self.bucket
        with self._lock:
            for day in np.unique(days).tolist():
                rows = days == day
                time = day * self.bucket
                if not self._buckets or self._is_over(self._buckets[-1], time):
                    self._measure()
                    del self._buckets[: -_MOST + 1]
                    self._buckets.append({"time": time, "events": 0, "judged": 0})
                    self._scores.clear()
                self._scores.append((version, {k: v[rows] for k, v in tables.items()}))
                self._buckets[-1]["judged"] += int(rows.sum())
                self._buckets[-1]["events"] += round(events * rows.mean())

    def _is_over(self, bucket: dict[str, Any], time: int) -> bool:
        """Return whether a time belongs to another bucket: steps may have one event each."""
        return bool(bucket["time"] < time) and (self._by_day or bucket["judged"] >= _LEAST)

    def _measure(self) -> None:
        """Measure the newest bucket, by what the newest version has scored in it."""
        if not self._scores:
            return
        version = self._scores[-1][0]
        tables = [each for name, each in self._scores if name == version]
        found: dict[str, Any] = {"version": version, "model": None, "heuristics": {}}
        for name in tables[0]:
            table = np.concatenate([each[name] for each in tables])
            precision = pair_metrics(table[:, 0], table[:, 1])["ap"]
            measures = {"ap": precision, "mrr": mrr(ranks(table[:, 0], table[:, 1:]))}
            if name == "model":
                found["model"] = measures
            else:
                found["heuristics"][name] = measures
        self._buckets[-1] |= found

    def summary(self) -> dict[str, Any]:
        """Return all buckets, oldest first."""
        with self._lock:
            self._measure()
            buckets = [dict(each) for each in self._buckets]
        judged, events = (sum(each[name] for each in buckets) for name in ("judged", "events"))
        return {
            "bucket": self.bucket,
            "judged": judged,
            "share": judged / events if events else None,
            "negatives": _NEGATIVES,
            "buckets": buckets,
        }

    def newest(self) -> dict[str, Any] | None:
        """Return the newest bucket that says something."""
        with self._lock:
            self._measure()
            enough = [each for each in self._buckets if each["judged"] >= _LEAST]
            return dict(enough[-1]) if enough else None

    def has_fallen(self, by: float) -> bool:
        """Return whether the average precision of the model is this far below its best."""
        with self._lock:
            self._measure()
            found = [
                each["model"]["ap"]
                for each in self._buckets
                if each["judged"] >= _LEAST and each.get("model")
            ]
        return len(found) > 1 and found[-1] < max(found) - by

    def save(self) -> None:
        """Write what was measured to a file."""
        with self._lock:
            self._measure()
            content = {"seen": self._seen, "buckets": self._buckets}
        write_json(self._path, content)


def _is_whole(found: Any) -> bool:
    """Return whether what a file holds was written by `save`."""
    try:
        for each in found["buckets"]:
            each["model"] = each.get("model")
            measured = [each["model"] or {"ap": 0.0}, *each.get("heuristics", {}).values()]
            sum([each["time"], each["events"], each["judged"], *(one["ap"] for one in measured)])
        return isinstance(found["seen"], int)
    except (TypeError, KeyError, AttributeError):
        return False
