"""`Questions`: what a state is asked, by whoever keeps it up to date.

Questions about links see the past strictly before a time and need no lock. Those about
representations wait for the step that is being applied. The same state gives the same bytes,
whoever is asked.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core import statefile
from tidegraph.core.errors import ParameterError
from tidegraph.events.columns import IntArray
from tidegraph.events.moments import moment
from tidegraph.live.answers import HEURISTICS, Answer
from tidegraph.live.events import Kind
from tidegraph.live.models import Model, probability
from tidegraph.live.order import Buffer
from tidegraph.live.state import Moment, State

_PAIRS = 1_000  # candidates whose features a ranking reads
_BLOCK = 1 << 16  # nodes compared at once


class Questions(ABC):
    """The questions that a state answers, and their answers."""

    _state: State
    _buffer: Buffer  # what waits to be applied

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Return counts, times and sizes in plain types."""

    @abstractmethod
    def check_ready(self) -> None:
        """Raise an error if requests cannot be served."""

    @property
    def unit(self) -> str:
        """The unit of all times."""
        return self._state.about.unit

    def _asked_at(self, at: Any, now: Moment) -> int:
        """Return the time of a question: by default right after the last applied event."""
        if now.until is None:
            return 0
        return now.until if at is None else min(now.until, self._time(at))

    def _time(self, at: Any) -> int:
        if isinstance(at, float) and at.is_integer():
            at = int(at)
        return moment(at, self.unit)

    def _answer(
        self, now: Moment, data: dict[str, Any], error: NDArray[np.float64] | None = None
    ) -> Answer:
        return self._answer_by(self._state.answering[0], now, data, error)

    @staticmethod
    def _answer_by(
        model: Model | None,
        now: Moment,
        data: dict[str, Any],
        error: NDArray[np.float64] | None = None,
    ) -> Answer:
        return Answer(
            data=data,
            as_of_seq=now.seq,
            as_of_time=now.until,
            error=error,
            version=_version(model),
        )

    @property
    def version(self) -> str:
        """The model that answers about links, or "heuristics"."""
        return _version(self._state.answering[0])

    def score(self, src: Any, dst: Any, at: Any = None) -> Answer:
        """Return the `probability` [n] of links between `src` and `dst`, one or many of each.

        It is asked for right after the last applied event, or at an earlier time `at`, with what
        was known by then.
        """
        state = self._state
        now, (model, past) = state.moment, state.answering
        sources, targets = _many(src), _many(dst)
        if len(sources) != len(targets) and 1 not in (len(sources), len(targets)):
            raise ParameterError(
                f"there are {len(sources)} src and {len(targets)} dst; give as many of each, or one"
            )
        ends = [[state.number(name, "src") for name in sources]]
        ends.append([state.number(name, "dst") for name in targets])
        a, b = (np.ascontiguousarray(each) for each in np.broadcast_arrays(*map(_numbers, ends)))
        t = np.full(len(a), self._asked_at(at, now))
        found = probability(model, past, a, b, t)
        return self._answer_by(model, now, {"src": sources, "dst": targets, "probability": found})

    def top(self, node: Any, k: int = 10, at: Any = None) -> Answer:
        """Return the `k` likeliest next destinations of a node: `names` and `probability`."""
        check_count(k)
        state = self._state
        now, (model, past) = state.moment, state.answering
        number, t = state.number(node, "src"), self._asked_at(at, now)
        everyone = past.candidates.before(t)
        wanted = everyone[everyone != number]
        if len(wanted) > max(_PAIRS, k):
            wanted = past.candidates.of(number, t, max(_PAIRS, k), lambda nodes: nodes != number)
        count = len(wanted)
        asked = np.full(count, number), wanted, np.full(count, t)
        found = probability(model, past, *asked, given_src=True)
        best = np.lexsort((wanted, -found))[:k]
        names = [state.name(each) for each in wanted[best].tolist()]
        return self._answer_by(
            model, now, {"node": node, "names": names, "probability": found[best]}
        )

    def similar(self, node: Any, k: int = 10) -> Answer:
        """Return the `k` nodes nearest to one by representation: `names`, and as `similarity` the
        mean of their cosines over the channels.
        """
        check_count(k)
        state = self._state
        with state.reading():
            now, number, everyone = state.moment, state.number(node), state.known()
            nodes = len(everyone)
            own = directions(state.propagator.embedding([number]))[0]
            error = self._promised([number])
            found = np.empty(nodes, dtype=np.float32)
            for first in range(0, nodes, _BLOCK):
                block = slice(first, first + _BLOCK)
                found[block] = directions(state.propagator.embedding(everyone[block])) @ own
        found[everyone == number] = -np.inf
        best = np.argpartition(-found, k - 1)[:k] if nodes > k else np.arange(nodes)
        best = best[np.lexsort((best, -found[best]))]
        best = best[everyone[best] != number]
        names = [state.name(each) for each in everyone[best].tolist()]
        return self._answer(now, {"node": node, "names": names, "similarity": found[best]}, error)

    def embedding(self, nodes: Any, at: Any = None) -> Answer:
        """Return representations: `names`, and `embedding` [n, channels, columns].

        The `error` of the answer bounds, per node, the distance from the exact ones. Those of an
        earlier time `at` come from the record, which is completed first.
        """
        state = self._state
        asked = _many(nodes)
        if at is not None:
            return self._embedding_then(asked, at)
        return self.embedding_of([state.number(name) for name in asked], asked)

    def _embedding_then(self, names: list[Any], at: Any) -> Answer:
        raise ParameterError("representations of the past come from the record of the writer")

    def numbers(self) -> IntArray:
        """Return the numbers of all nodes that had an event."""
        with self._state.reading():
            return self._state.known()

    def embedding_of(self, numbers: Sequence[int], names: Sequence[Any] | None = None) -> Answer:
        """Return the representations of nodes by their numbers, as `embedding` does."""
        state = self._state
        with state.reading():
            if names is None:
                names = [state.name(number) for number in numbers]
            data = {"names": names, "embedding": state.propagator.embedding(numbers)}
            return self._answer(state.moment, data, self._promised(list(numbers)))

    def _promised(self, numbers: list[int]) -> NDArray[np.float64]:
        return norm(self._state.propagator.threshold(numbers))

    def node(self, name: Any) -> Answer:
        """Return who a node is: `events_as_src`, `events_as_dst`, `degree`, `first` and `last`
        time, and its newest `partners` with times and directions.
        """
        state = self._state
        with state.reading():
            now, number = state.moment, state.number(name)
            degree = len(state.propagator.edges_of(number)[0])
        t = self._asked_at(None, now)
        history = state.past.history
        counts = history.of_nodes([number], [t])[0]
        column = history.node_names.index
        times, partners, as_src = history.latest(number, t, 20)
        data: dict[str, Any] = {
            "name": state.name(number),
            "number": number,
            "degree": degree,
            "first": state.first_seen(number),
            "last": int(times[0]) if len(times) else None,
            "partners": [
                {"name": state.name(partner), "t": when, "as_src": bool(role)}
                for partner, when, role in zip(
                    partners.tolist(), times.tolist(), as_src.tolist(), strict=True
                )
            ],
        }
        for role in ("src", "dst"):
            data[f"events_as_{role}"] = round(math.expm1(counts[column(f"events_as_{role}")]))
        return self._answer(now, data)

    def explain(self, src: Any, dst: Any, at: Any = None) -> Answer:
        """Return the `probability` of a pair, `facts` about it, and `reasons` that drive it: what
        the network reads, in groups, and how much the logit falls without each.
        """
        state = self._state
        now, (model, past) = state.moment, state.answering
        a, b, t = state.number(src, "src"), state.number(dst, "dst"), self._asked_at(at, now)
        pair = np.array([a]), np.array([b]), np.array([t])
        read = past.history.of_links(*pair)[0]
        column = past.history.link_names.index
        times, partners, _ = past.history.latest(a, t, 256)
        met = times[partners == b]
        walks = past.local.of_links(*pair)[0]
        facts = {
            "meetings": round(math.expm1(read[column("pair.events")])),
            "last_met": int(met[0]) if len(met) else None,
            "source_events": round(math.expm1(read[column("src.events_as_src")])),
            "destination_events": round(math.expm1(read[column("dst.events_as_dst")])),
            "in_common": float(np.expm1(walks[past.local.link_names.index("common_neighbours")])),
        }
        data = {
            "src": src,
            "dst": dst,
            "probability": float(probability(model, past, *pair)[0]),
            "facts": facts,
            "reasons": [] if model is None else model.reasons(past, a, b, t),
        }
        return self._answer_by(model, now, data)

    def recent(self, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return what was applied last, oldest first: at most so many rows behind a `place`.

        Places count the rows in the order they were applied, which is that of time, not that of
        `seq`. `rejected` says why a row did not fit the graph; it is None for those that did.
        """
        state = self._state
        with state.lock:
            end = state.counts["applied"] + state.counts["rejected"]
            held = list(state.recent)
        name, found = state.name, list[dict[str, Any]]()
        for rows, reasons in reversed(held):
            for place in range(len(rows) - 1, -1, -1):
                if end <= after or len(found) == limit:
                    return found[::-1]
                t, seq, op, src, dst, weight = (each.item() for each in rows[place].columns)
                found.append(
                    {
                        "place": end,
                        "seq": seq,
                        "t": t,
                        "op": Kind(op).name.lower(),
                        "src": name(src),
                        "dst": name(dst),
                        "weight": None if math.isnan(weight) else weight,
                        "rejected": reasons.get(place),
                    }
                )
                end -= 1
        return found[::-1]

    def digest(self) -> str:
        """Return a digest of all that answers depend on, the model apart."""
        state = self._state
        with state.lock:
            t, _, *waiting = self._buffer.all().columns  # numbers only order them
            return statefile.digest([state.digest().encode(), t, *waiting])


def _version(model: Model | None) -> str:
    return HEURISTICS if model is None else str(model.version)


def _many(values: Any) -> list[Any]:
    """Return one name or several as a list."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _numbers(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def check_count(value: Any) -> None:
    """Raise ParameterError unless a value is a number of results."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ParameterError(f"{value!r} is no number of results; give 1 or more")


def directions(states: NDArray[Any]) -> NDArray[np.float32]:
    """Return states [n, channels, columns] whose products are means of cosines over channels."""
    norms = np.linalg.norm(states, axis=2, keepdims=True)
    scaled = states / np.maximum(norms, 1e-12) / math.sqrt(states.shape[1])
    found: NDArray[np.float32] = scaled.reshape(len(states), -1).astype(np.float32)
    return found


def norm(bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return bounds of all channels and columns of a node as one, in the L2 norm."""
    norms: NDArray[np.float64] = np.linalg.norm(bounds.reshape(len(bounds), -1), axis=1)
    return norms
