"""What a writer tells those who follow it: snapshots, models, and the rows of the log since.

A follower names the last row it has. The answer has the rows after it, up to a moment at which the
writer's own state stands or will stand, and the names they brought.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from tidegraph.core.errors import ParameterError, StorageError
from tidegraph.live.log import packed

if TYPE_CHECKING:
    from tidegraph.live.live import Handed, Live

_AT_ONCE = 200_000  # rows of an answer; more follow in the next one
_COUNTED_S = 1.0  # figures are counted again after so long
_PRESENT_S = 60.0  # a follower that is silent for longer has died, or is as good as that


class Told(msgspec.Struct, frozen=True):
    """An answer to a follower.

    again: the follower has what is no longer so, or lacks what is no longer in the log: it starts
        again from a new snapshot. The rest is missing then.
    log: which log this is. seq, low: the moment of the writer.
    rows: some rows after the last one the follower has, as first number and bytes, without a gap.
        They end at `seq`, or the next answer continues.
    names: those the follower lacks, by number from the one it named on; None for forgotten nodes.
    version, span: the model that answers, or None; see `About.span`.
    stats: what `Live.stats` has returned lately.
    """

    again: bool
    log: str
    seq: int = 0
    low: int | None = None
    rows: list[tuple[int, bytes]] = []
    names: list[str | None] = []
    version: str | None = None
    span: float = 0.0
    forgotten: int = 0
    stats: dict[str, Any] = {}


class Asked(msgspec.Struct, frozen=True):
    """What a follower has: the rows of the log up to `after`, and so many names.

    forgotten, version: see `Told`. replica: its name. stands: the sequence number its answers
        follow; None before it gives any. dropped: how many forgotten nodes these know nothing of.
    """

    after: int
    names: int
    forgotten: int
    version: str | None
    replica: str
    stands: int | None = None
    dropped: int = 0


@dataclass
class _Follower:
    heard: float
    stands: int | None
    dropped: int


class Feed:
    """The followers of a live state, and what they are told. Any number of threads may ask."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._counted: tuple[float, dict[str, Any]] = (-_COUNTED_S, {})
        self._followers: dict[str, _Follower] = {}
        self._confirmed = threading.Condition()  # guards them; notified of each one heard

    @property
    def log(self) -> str:
        """The log that is followed."""
        return str(self._live._log.meta.get("id", ""))

    def told(self, asked: Asked, wait_s: float, *, anyway: bool) -> Told | None:
        """Return what is new for a follower; None if that is nothing within `wait_s`.

        anyway: whether to answer then, too.
        """
        self._note(asked)
        live = self._live
        with live._news:
            if wait_s > 0 and not self._has_news(asked):
                live._news.wait(wait_s)
            if not (anyway or self._has_news(asked)):
                return None
            handed, forgotten = live._handed, live._forgotten
        model, _ = live._state.answering
        names = live._state.names.between(asked.names, handed.names)
        rows = None if forgotten != asked.forgotten else self._rows(asked.after, handed)
        if rows is None or live._forgotten != forgotten:  # the second: since these were read
            return Told(True, self.log)
        return Told(
            again=False,
            log=self.log,
            seq=handed.seq,
            low=handed.low,
            rows=rows,
            names=names,
            version=None if model is None else model.version,
            span=live._state.about.span if model is None else model.span,
            forgotten=forgotten,
            stats=self._stats(),
        )

    def _has_news(self, asked: Asked) -> bool:
        live = self._live
        model, _ = live._state.answering
        version = None if model is None else model.version
        return (
            asked.after != live._handed.seq
            or asked.forgotten != live._forgotten
            or asked.version != version
        )

    def _rows(self, after: int, handed: Handed) -> list[tuple[int, bytes]] | None:
        """Return rows after a sequence number; None if not all of them are in the log."""
        log, found, count = self._live._log, list[tuple[int, bytes]](), 0
        if after > handed.seq or after + 1 < log.first:
            return None
        for rows in log.rows(after + 1) if after < handed.seq else ():
            rows = rows[rows.seq <= handed.seq]
            if not len(rows):
                break
            if int(rows.seq[0]) != after + count + 1:  # compacted meanwhile
                return None
            found.append((after + count + 1, packed(rows)))
            count += len(rows)
            if count >= _AT_ONCE:
                break
        return found

    def _stats(self) -> dict[str, Any]:
        now, (at, stats) = time.monotonic(), self._counted
        if now - at >= _COUNTED_S:
            stats = {**self._live.stats(), **self.plain()}
            self._counted = now, stats
        return stats

    # Files ----------------------------------------------------------------------------------------

    def snapshot(self) -> BinaryIO:
        """Return the newest snapshot, open; one is taken if there is none."""
        live = self._live
        with live._saving:  # which also keeps what is being forgotten from being sent
            numbers = live._snapshots.numbers()
            if numbers:
                return _opened(live._snapshots.path(numbers[-1]))
        live.snapshot()
        with live._saving:
            return _opened(live._snapshots.path(live._snapshots.numbers()[-1]))

    def version(self, version: str) -> BinaryIO:
        """Return the file of a model, open."""
        if version not in self._live._versions.all():
            raise ParameterError(f"there is no version {version!r}")
        return _opened(self._live._versions.path(version))

    # Followers ------------------------------------------------------------------------------------

    def _note(self, asked: Asked) -> None:
        now = time.monotonic()
        with self._confirmed:
            self._followers[asked.replica] = _Follower(now, asked.stands, asked.dropped)
            self._confirmed.notify_all()

    def _present(self) -> dict[str, _Follower]:
        now = time.monotonic()
        for name in [k for k, v in self._followers.items() if now - v.heard > _PRESENT_S]:
            del self._followers[name]
        return self._followers

    def still_know(self, timeout_s: float) -> int:
        """Wait until no follower knows a node that was forgotten; return how many still may."""
        until, forgotten = time.monotonic() + timeout_s, self._live._forgotten
        with self._confirmed:
            while True:
                left = sum(
                    each.stands is not None and each.dropped < forgotten
                    for each in self._present().values()
                )
                rest = until - time.monotonic()
                if not left or rest <= 0:
                    return left
                self._confirmed.wait(min(rest, 1.0))

    def plain(self) -> dict[str, Any]:
        """Return where the followers stand, in plain types."""
        now, last = time.monotonic(), self._live._handed.seq
        with self._confirmed:
            found = [
                {
                    "replica": name,
                    "applied_seq": each.stands,
                    "behind": None if each.stands is None else max(0, last - each.stands),
                    "silent_s": round(now - each.heard, 1),
                }
                for name, each in self._present().items()
            ]
        return {"replicas": found}


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise StorageError(error.errno, f"{path} cannot be read: {error.strerror}") from error
