"""Numbers about what happened to nodes and pairs before a time, for a model to read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import _native
from tidegraph.core.durable import only_writer
from tidegraph.core.errors import (
    DataError,
    EventError,
    ParameterError,
    StateFileError,
    StorageError,
)
from tidegraph.events.columns import IntArray
from tidegraph.events.moments import time_numbers
from tidegraph.events.names import known_nodes
from tidegraph.events.stream import EventStream
from tidegraph.learning.history_file import HistoryFile, Take

_GAPS = ("last", "second_last", "fifth_last")
_LAST = (5, 20)  # events over which a share is taken


# Later events are kept in growing lists, some 400 bytes each. Once there are this many, and this
# share of those in the file, all are written to a new file.
_MERGE_EVENTS = 4096
_MERGE_SHARE = 1 / 16
_MOST_EVENTS = 2**32 - 2  # they are counted in 32 bits


WalkLimits: TypeAlias = tuple[int, int, int, int, float]  # as of `local.LocalPropagation`


class History:
    """Counts, gaps, recent activity and habits of nodes and pairs, as of any time.

    Answers depend only on events strictly before the time of the question. Every number is a
    logarithm (of 1 + count, of 1 + time) except truth values and shares.

    Events lie in a mapped file and cost only page cache. Appending a few takes microseconds each;
    now and then it moves all of them to a new file. No bit of an answer depends on that.
    Any number of threads may ask while one appends.

    nodes: the number of nodes; it grows with the streams that are appended.
    half_lives: recent activity is counted once with each, in the stream's unit of time.
    near: a directory for files without a name; by default the system's temporary directory.
    merged: how many later events are moved to a file, at least, and as a share of those in it.
    """

    def __init__(
        self,
        nodes: int,
        half_lives: Sequence[float] = (),
        *,
        near: Path | None = None,
        merged: tuple[int, float] | None = None,
    ) -> None:
        if any(not 0 < half_life < np.inf for half_life in half_lives):
            raise ParameterError(f"half_lives is {tuple(half_lives)}; give positive numbers")
        self.half_lives = tuple(float(half_life) for half_life in half_lives)
        self._near = near
        self._merged = merged or (_MERGE_EVENTS, _MERGE_SHARE)
        self._file: HistoryFile | None = None
        self._native = _native.History(nodes, list(self.half_lives), {})
        recent = [f"events_within_{half_life:g}" for half_life in self.half_lives]
        role = ("events", *(f"time_since_{gap}" for gap in _GAPS), *recent)
        # The names of the columns of `of_nodes` and `of_links`.
        self.node_names = tuple(f"{name}_as_{end}" for end in ("src", "dst") for name in role)
        self.link_names = _link_names(self.node_names, recent)
        self._last: int | None = None
        self._merge_from = 0  # number of later events
        # The native calls release the interpreter's lock. A merge only reads, so that questions
        # are answered meanwhile: it holds the first of these locks, and the other one for an
        # instant at its end.
        self._appending = threading.Lock()
        self._lock = threading.Lock()

    @classmethod
    def of(
        cls, stream: EventStream, half_lives: Sequence[float], path: Path, *, keep: bool = True
    ) -> History:
        """Return the history of a stream, from a file if it holds that of its first events.

        keep: whether to write the file if there is none of this stream. Where files are to stay as
            they are, a damaged one is rejected; otherwise it is replaced.
        """
        found = cls(stream.nodes, half_lives, near=path.parent)
        if path.exists():
            try:
                file = HistoryFile.open(path)
                if found._fits(file, stream):
                    found._stand_on(file)
            except StateFileError:
                if not keep:
                    raise
        if keep and len(found) < len(stream):
            # Another process may be writing the same, or there is no room: then do without.
            with contextlib.suppress(StorageError), only_writer(path.parent):
                found._merge(stream[len(found) :], path)
        found.append(stream[len(found) :])
        return found

    def _fits(self, file: HistoryFile, stream: EventStream) -> bool:
        """Return whether a file holds the first events of a stream, with these half-lives."""
        about = file.description
        if about["half_lives"] != list(self.half_lives) or about["nodes"] > stream.nodes:
            return False
        native = self._mapped(file, about["nodes"])
        return native.holds(*_columns(stream[: native.events]))

    def _mapped(self, file: HistoryFile, nodes: int) -> _native.History:
        try:
            return _native.History(nodes, list(self.half_lives), file.arrays)
        except (KeyError, ValueError) as error:
            raise StateFileError(f"{file.path} is damaged: {error}; record again") from None

    def _stand_on(self, file: HistoryFile) -> None:
        """Answer from a file instead of the events so far, which it holds."""
        native = self._mapped(file, max(self.nodes, file.description["nodes"]))
        with self._lock:
            self._file, self._native = file, native
            self._last = file.description["last"]
            least, share = self._merged
            self._merge_from = max(least, int(share * native.events))

    def _merge(self, stream: EventStream, path: Path | None) -> None:
        """Write all events and these later ones to a file, and answer from it.

        path: None for a file without a name.
        """
        self._check_room(stream)
        nodes = max(self.nodes, stream.nodes)
        about = {
            "nodes": nodes,
            "half_lives": list(self.half_lives),
            "events": len(self) + len(stream),
            "last": int(stream.t[-1]) if len(stream) else self._last,
        }
        columns = _columns(stream)

        def produce(take: Take) -> None:
            try:
                self._native.merge(*columns, nodes, take)
            except ValueError as error:
                raise StateFileError(f"{error}; record again") from None

        self._stand_on(HistoryFile.create(path, self._near, about, produce))

    def _check_room(self, stream: EventStream) -> None:
        count = len(self) + len(stream)
        if count > _MOST_EVENTS:
            raise EventError(
                f"{count:,} events are too many; a history holds at most {_MOST_EVENTS:,}"
            )

    def save(self, path: Path) -> None:
        """Write the history to a file, atomically; share that of these events if there is one."""
        with self._appending:
            if self._file is None or self._native.later_events:
                self._merge(EventStream([], [], [], self.nodes), path)
            else:
                self._file.save(path)

    def verify(self) -> None:
        """Compare every byte of the file with its digest; raise StateFileError if one differs."""
        if self._file is not None:
            self._file.verify()

    def __len__(self) -> int:
        return self._native.events

    @property
    def nodes(self) -> int:
        return self._native.nodes

    def append(self, stream: EventStream) -> None:
        """Add later events, which may bring new nodes."""
        if not len(stream):
            return
        with self._appending:
            if self._last is not None and int(stream.t[0]) < self._last:
                raise EventError(
                    f"events start at {int(stream.t[0])}, but the history reaches {self._last};"
                    " append events in time order"
                )
            self._check_room(stream)
            later = self._native.later_events + len(stream)
            if later > max(self._merged[0], self._merge_from):
                try:
                    self._merge(stream, None)
                    return
                except StorageError:  # keep them in memory, and try again when there are twice as
                    self._merge_from = 2 * later  # many
            columns = _columns(stream)
            with self._lock:
                self._native.append(*columns, stream.nodes)
                self._last = int(stream.t[-1])

    def of_nodes(self, nodes: ArrayLike, t: ArrayLike) -> NDArray[np.float32]:
        """Return a row for each node and time, `[len(nodes), len(node_names)]`."""
        numbers, times = self._nodes(nodes), _times(t)
        out = np.empty((len(numbers), self._native.node_columns), dtype=np.float32)
        _same_length(numbers, times)
        with self._lock:
            self._native.node_rows(numbers, times, out)
        return out

    def of_links(
        self, src: ArrayLike, dst: ArrayLike, t: ArrayLike, as_of: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return a row for each pair and time, `[len(src), len(link_names)]`.

        It is about what happened before `as_of`, by default `t`, as long ago as it is at `t`.
        """
        asked = self._asked(src, dst, t, as_of)
        out = np.empty((len(asked[0]), self._native.link_columns), dtype=np.float32)
        with self._lock:
            self._native.link_rows(*asked, out)
        return out

    def ages(
        self, src: ArrayLike, dst: ArrayLike, t: ArrayLike, as_of: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return since when both nodes of each pair are known; see `Ages`."""
        asked = self._asked(src, dst, t, as_of)
        out = np.empty((len(asked[0]), len(Ages.link_names)), dtype=np.float32)
        with self._lock:
            self._native.age_rows(*asked, out)
        return out

    def _asked(
        self, src: ArrayLike, dst: ArrayLike, t: ArrayLike, as_of: ArrayLike | None
    ) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return the columns of a question about pairs, checked; `as_of` is `t` by default."""
        sources, targets, times = self._nodes(src), self._nodes(dst), _times(t)
        known = times if as_of is None else _times(as_of)
        _same_length(sources, targets, times, known)
        if (known > times).any():
            late = int(np.argmax(known > times))
            raise DataError(
                f"as_of is {known[late]} for a question about {times[late]}; what happens after a"
                " time cannot be known at it"
            )
        return sources, targets, times, known

    def walks_to(
        self,
        half_lives: Sequence[int],
        limits: WalkLimits,
        src: ArrayLike,
        dst: ArrayLike,
        t: ArrayLike,
        measures: int,
    ) -> NDArray[np.float32]:
        """Return what walks from `src` say about `dst`; see `local.LocalPropagation`."""
        sources, targets, times = self._nodes(src), self._nodes(dst), _times(t)
        _same_length(sources, targets, times)
        out = np.empty((len(sources), measures * (1 + len(half_lives))), dtype=np.float32)
        with self._lock, _as_parameters():
            self._native.local_rows(list(half_lives), *limits, sources, targets, times, out)
        return out

    def walk_from(
        self, half_lives: Sequence[int], limits: WalkLimits, node: int, t: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Return the nodes that a walk reaches and numbers about each; see `LocalPropagation`."""
        (source,), (time,) = self._nodes([node]), _times([t])
        with self._lock, _as_parameters():
            return self._native.local_spread(list(half_lives), *limits, int(source), int(time))

    def likeliest(
        self, half_lives: Sequence[int], limits: WalkLimits, node: int, t: int, most: int
    ) -> NDArray[np.int64]:
        """Return the nodes that a walk reaches most likely; see `LocalPropagation`."""
        (source,), (time,) = self._nodes([node]), _times([t])
        with self._lock, _as_parameters():
            found = self._native.local_likeliest(
                list(half_lives), *limits, int(source), int(time), most
            )
        return found.astype(np.int64)

    def latest(
        self, node: int, t: int, most: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return the newest events of a node before `t`, newest first, up to 256 of them: their
        times, the other ends, and whether the node was the source.
        """
        (asked,), (time,) = self._nodes([node]), _times([t])
        with self._lock:
            times, partners, role = self._native.latest(int(asked), int(time), most)
        return times, partners, role == 0

    def _nodes(self, nodes: ArrayLike) -> NDArray[np.int64]:
        return np.ascontiguousarray(known_nodes(nodes, self.nodes))


class Ages:
    """How long ago both nodes of a pair were first a source, and first a destination.

    Numbers are logarithms of 1 + time, from events strictly before the time of the question. A node
    that never was one gets a longer time than any other.
    """

    link_names: tuple[str, ...] = tuple(
        f"{end}.time_since_first_as_{role}" for end in ("src", "dst") for role in ("src", "dst")
    )

    def __init__(self, history: History) -> None:
        self._history = history

    def of_links(
        self, src: ArrayLike, dst: ArrayLike, t: ArrayLike, as_of: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Return a row for each pair and time, `[len(src), len(link_names)]`.

        It is about what happened before `as_of`, by default `t`, as long ago as it is at `t`.
        """
        return self._history.ages(src, dst, t, as_of)


@contextlib.contextmanager
def _as_parameters() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ParameterError(str(error)) from None


def _columns(stream: EventStream) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    columns = stream.src, stream.dst, stream.t
    src, dst, t = (np.ascontiguousarray(column) for column in columns)
    return src, dst, t


def _times(t: ArrayLike) -> NDArray[np.int64]:
    return np.ascontiguousarray(time_numbers(t))


def _same_length(*columns: NDArray[np.int64]) -> None:
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        shapes = ", ".join(str(column.shape) for column in columns)
        raise DataError(f"columns have shapes {shapes}; give vectors of one length")


def _link_names(node_names: Sequence[str], recent: Sequence[str]) -> tuple[str, ...]:
    pair = ("known", "events", "time_since_last", *recent, "src_events_since", "dst_events_since")
    parts = {
        "src": node_names,
        "dst": node_names,
        "pair": pair,
        "reverse": pair,
        "src_habits": _habits("dst", recent),
        "dst_habits": _habits("src", recent),
        "all": recent,
    }
    return tuple(f"{part}.{name}" for part, names in parts.items() for name in names)


def _habits(partner: str, recent: Sequence[str]) -> list[str]:
    return [
        f"different_{partner}",
        *(f"share_of_{kind}_in_{k}" for kind in ("new", "repeated") for k in _LAST),
        f"{partner}_is_recent",
        f"different_{partner}_since",
        *(
            f"{name}_after_{before}_{partner}"
            for before in ("last", "last_other")
            for name in ("events", "time_since", *recent)
        ),
    ]
