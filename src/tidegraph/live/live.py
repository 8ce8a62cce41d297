"""`Live`: the verbs of a durable live state, and the threads behind them.

Callers check their events and queue. The first of them stores the events of all who queue in one
transaction; those that come meanwhile wait for the next one, which one of them makes. One thread
applies what the watermark has passed, another moves the watermark when nothing comes, a third saves
the state. What it is asked, `Questions` answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

import numpy as np

from tidegraph.core import statefile
from tidegraph.core.durable import only_writer, sync_names
from tidegraph.core.errors import (
    BusyError,
    ParameterError,
    StateFileError,
    StorageError,
    TidegraphError,
)
from tidegraph.core.machine import memory_bytes
from tidegraph.core.progress import Progress
from tidegraph.core.resume import make_directory, require_free
from tidegraph.events.moments import SECONDS, span
from tidegraph.live.answers import HEURISTICS, Answer, Receipt
from tidegraph.live.events import Incoming, Kind, is_key
from tidegraph.live.failpoints import reach
from tidegraph.live.intake import Intake
from tidegraph.live.log import FILE, GONE, Log
from tidegraph.live.models import Model
from tidegraph.live.movements import Movements
from tidegraph.live.names import Names
from tidegraph.live.order import NOBODY, Buffer, Rows, Watermark
from tidegraph.live.quality import Quality
from tidegraph.live.questions import Questions, check_count, directions, norm
from tidegraph.live.settings import LiveSettings
from tidegraph.live.snapshots import DIRECTORY as SNAPSHOTS
from tidegraph.live.snapshots import Snapshots
from tidegraph.live.sources import FIRST, Source, source_of
from tidegraph.live.state import About, Moment, State, replay, waiting
from tidegraph.live.versions import Versions

Wait: TypeAlias = Literal["durable", "applied"]

_PATIENCE_S = 30.0  # how long a call waits if it does not say
_GROUP = 2_000  # events after which a transaction takes no further caller in
_AT_ONCE = 16_384  # events that are applied together while there are more, so that readers get in
_LEAST_LINKS = 100
_WAL_BYTES = 16 << 20
_OWN = re.compile(
    r"snapshots|models|trajectories|quality\.json|.*\.(part\d*|new)"
)  # before there is a log


@dataclass(eq=False)
class _Request:
    """Events of one call on their way into the log."""

    events: Incoming
    key: str | None
    done: bool = False
    receipt: Receipt | None = None
    last: int | None = None  # the latest time among its rows
    error: BaseException | None = None


@dataclass(frozen=True)
class Handed:
    """What has been handed on to be applied: the log up to `seq`, which lets everything before
    `low` take effect, and the names of so many numbers.
    """

    seq: int
    low: int | None
    names: int


class Live(Questions):
    """A graph that is fed and asked at the same time, in a directory that survives crashes.

    `open` returns one. Events that `ingest` has returned for are on disk: whatever happens to the
    process or the machine, they are there exactly once when the directory is opened again. Any
    number of threads may call. One process at a time has a directory open.
    """

    def __init__(
        self,
        directory: Path,
        settings: LiveSettings,
        log: Log,
        state: State,
        buffer: Buffer,
        notes: list[str],
        unlock: contextlib.ExitStack,
    ) -> None:
        self.directory, self.settings, self.notes = directory, settings, notes
        self._log, self._state, self._buffer = log, state, buffer
        self._unlock = unlock
        self._lateness = lateness_of(settings, state.about)
        self._ahead = ahead_of(settings, state.about)
        self._watermark = Watermark(*log.meta["watermark"])
        self._counts = dict(log.meta["counts"])
        self._snapshots = Snapshots(directory)
        self._movements = Movements(directory, state, enabled=settings.record)
        self._versions = Versions(directory)
        self._quality = Quality(directory, state, settings.seed)
        self._changing = threading.RLock()  # held by who exchanges the model or the state
        self._wanted_training = False
        self._trained_without: int | None = None  # how many were forgotten, of what is trained on
        self._trainings = 0  # finished ones
        self._training_error: TidegraphError | None = None
        self._train_from = settings.train_after  # links; more after a failure
        # Guards the queues, and is notified of whatever a thread may wait for.
        self._news = threading.Condition()
        self._storing = threading.Lock()  # held by the caller that stores for all
        self._requests: deque[_Request] = deque()
        self._stored: deque[tuple[Rows, int, int | None]] = deque()
        self._waiting = 0  # events in both queues
        self._wanted_mark = False
        self._handed = Handed(log.last, self._watermark.low, len(state.names))
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._arrived = time.monotonic()
        self._pace: deque[tuple[float, int]] = deque(maxlen=64)  # when how many were applied
        self._saving = threading.Lock()
        self._saved = Moment(), time.monotonic(), 0
        self._threads: list[threading.Thread] = []

    # Opening and closing --------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: str | Path,
        source: Any = None,
        *,
        settings: LiveSettings | None = None,
        progress: Progress | None = None,
    ) -> Live:
        """Continue what a directory holds, or start a new one, empty or from a source.

        source: the directory of a run or model, a `LinkPredictor`, or an `EventStream`. A new
            directory takes its events, names, unit of time and model over. One that has a state
            ignores it if it is the same, and raises ParameterError otherwise.
        progress: called as `progress(events applied, events, text)` while the log is replayed.
        """
        path, settings = Path(directory), settings or LiveSettings()
        make_directory(path)
        with contextlib.ExitStack() as stack:
            stack.enter_context(only_writer(path))
            log = cls._opened_log(path, source, settings)
            stack.callback(log.close)
            notes: list[str] = []
            state, buffer = restored(path, log, notes, progress)
            live = cls(path, settings, log, state, buffer, notes, stack)
            live._finish_forgetting()
            live._continue_version()
            live._unlock = stack.pop_all()
        live._start()
        return live

    @classmethod
    def _opened_log(cls, path: Path, given: Any, settings: LiveSettings) -> Log:
        file = path / FILE
        if not _is_new(file):
            log = Log(file)
            if given is not None:
                was, now = log.meta["source"], source_of(given, settings).digest
                if was != now:
                    log.close()
                    raise ParameterError(
                        f"{path} was started from other events; leave the source out to continue"
                        " it, or give a new directory"
                    )
            return log
        for end in ("", "-journal", "-wal", "-shm"):  # of a start that was killed
            (path / f"{FILE}{end}").unlink(missing_ok=True)
        require_free(path, "a live state", own=_OWN, error=StateFileError)
        source = source_of(given, settings)
        lateness_of(settings, source.about)  # checks them before anything is written
        ahead_of(settings, source.about)
        sync_names(path.absolute().parent)  # a start that was killed may not have
        if source.model is not None:
            Versions(path).restart(source.model)
        return _created(file, source)

    def _start(self) -> None:
        for work in (self._apply, self._mark, self._keep, self._judge, self._learn):
            thread = threading.Thread(target=self._guarded, args=(work,), daemon=True)
            thread.name = f"tidegraph-live-{work.__name__.strip('_')}"
            self._threads.append(thread)
            thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run a thread; where it fails, the calls that wait for it fail too instead of hanging."""
        try:
            work()
        except BaseException as error:  # reported to every caller
            with self._news:
                self._failure = error
                self._news.notify_all()

    def close(self) -> None:
        """Store and apply what was accepted, save the state and stop."""
        with self._storing, self._news:  # whoever stores may finish
            if self._closing.is_set():
                return
            self._closing.set()
            self._news.notify_all()
        for thread in self._threads:
            thread.join()
        try:
            if self._failure is None:
                with contextlib.suppress(StorageError):  # a full disk: the log has everything
                    self.snapshot()
        finally:
            self._unlock.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Events ---------------------------------------------------------------------------------------

    def ingest(
        self,
        events: Any,
        *,
        key: str | None = None,
        wait: Wait = "durable",
        timeout_s: float | None = None,
    ) -> Receipt:
        """Store events, and return once they are on disk.

        events: objects with `src` and `dst`, and if wanted `t`, `weight`, `id` and `op` ("add",
            "remove", "set"; "remove_node" and "features" have `node` instead of the ends); columns
            of these; or an `EventStream`. Without `t` an event happens now. One whose `id` is known
            is a duplicate, and changes nothing.
        key: a call with the key of an earlier one changes nothing and returns its receipt.
        wait: "applied" waits until answers follow the events, which ends the wait for late ones
            after `idle_s`.
        timeout_s: raises StorageError after so long. The events may or may not be stored then: give
            them again, with the same key or ids.
        """
        if wait not in ("durable", "applied"):
            raise ParameterError(f"wait is {wait!r}; give durable or applied")
        if key is not None and not is_key(key):
            raise ParameterError(f"key is {str(key)[:40]!r}; give a text of 1 to 1,024 characters")
        read = self._state.about.reader.read(events, self.settings.max_batch, self._ahead)
        until = time.monotonic() + (_PATIENCE_S if timeout_s is None else timeout_s)
        request = _Request(read, key)
        with self._news:
            self.check_ready()
            if self._waiting and self._waiting + len(read) > self.settings.queue_events:
                raise BusyError(
                    f"{self._waiting:,} events wait already, and queue_events is"
                    f" {self.settings.queue_events:,}; send these again in a moment",
                    retry_after_s=max(0.1, self._waiting / max(1.0, self._events_per_s())),
                )
            self._requests.append(request)
            self._waiting += len(read)
        if not self._storing.acquire(timeout=max(0.0, until - time.monotonic())):
            raise _timed_out("stored")
        try:
            while not request.done:
                self.check_ready()
                self._store_group()
        finally:
            self._storing.release()
        if request.error is not None:
            raise _again(request.error)
        assert request.receipt is not None
        if wait == "applied":
            return self._applied(request, until)
        return request.receipt

    def position(self, source: str) -> str | None:
        """Return how far a source has been read: the last position among keys `SOURCE@POSITION`.

        A source that gives its events with such keys stores its position with them, so that it can
        go on there after any crash, without a gap and without repetition. Positions are compared
        as texts; write numbers with zeros in front.
        """
        return self._log.last_position(source)

    def _applied(self, request: _Request, until: float) -> Receipt:
        receipt, last = request.receipt, request.last
        assert receipt is not None
        marked = time.monotonic() + self.settings.idle_s

        def there() -> bool:
            now = self._state.moment
            return now.seq >= receipt.seq and (
                last is None or (now.until is not None and now.until > last)
            )

        with self._news:
            while not there():
                self.check_ready()
                now = time.monotonic()
                if now >= until:
                    raise _timed_out("applied")
                if now >= marked:
                    self._wanted_mark, marked = True, math.inf
                    self._news.notify_all()
                self._news.wait(min(until, marked) - now)
        return dataclasses.replace(receipt, applied=True, watermark=self._watermark.low)

    def check_ready(self) -> None:
        """Raise StorageError if it is closed, or if a thread of it has failed."""
        if self._failure is not None:
            raise _again(self._failure)
        if self._closing.is_set():
            raise StorageError(f"{self.directory} is being closed; open it again")

    def _mark(self) -> None:
        """Move the watermark on when nothing arrives, until closed: the work of a thread."""
        while not self._closing.is_set():
            with self._news:
                if not self._wanted_mark:
                    self._news.wait(self.settings.idle_s / 4)
            if self._mark_is_due():
                with self._storing:
                    if self._mark_is_due() and not self._closing.is_set():
                        self._store_mark()

    def _mark_is_due(self) -> bool:
        if not self._watermark.holds_back:
            self._wanted_mark = False
            return False
        return self._wanted_mark or time.monotonic() - self._arrived >= self.settings.idle_s

    def _store_mark(self) -> None:
        """Let everything that waits be applied; a row of the log, so that a replay repeats it."""
        watermark, seq = self._watermark.marked(), self._log.last + 1
        assert watermark.low is not None
        row = Rows.of([watermark.low - 1], [seq], [NOBODY], [NOBODY], Kind.MARK)
        self._wanted_mark = False
        self._arrived = time.monotonic()
        try:
            self._log.append(row, meta={"watermark": dataclasses.astuple(watermark)})
        except StorageError as error:  # a full disk: they wait until there is room
            self._note(str(error))
            return
        self._hand_on(row[:0], seq, watermark, 0)

    def _store_group(self) -> None:
        """Store what callers have queued, in one transaction; by the caller that may."""
        group: list[_Request] = []
        size = 0
        with self._news:
            while self._requests and (not group or size < _GROUP):
                group.append(self._requests.popleft())
                size += len(group[-1].events)
        try:
            taken = self._taken(group)
            rows = taken.rows
            names = [(number, name) for name, number in taken.new.items()]
            self._log.append(
                rows,
                names=names,
                ids=taken.ids,
                receipts=[(key, json.dumps(each.plain())) for key, each in taken.keys.items()],
                meta={
                    "watermark": dataclasses.astuple(taken.watermark),
                    "counts": taken.counts,
                },
            )
        except BaseException as error:
            with self._news:
                self._waiting -= size
            for request in group:
                request.error, request.done = error, True
            if not isinstance(error, Exception):  # Ctrl-C
                raise
            return
        self._state.names.add(names)
        self._counts = taken.counts
        self._arrived = time.monotonic()
        for request, receipt, last in zip(group, taken.receipts, taken.last, strict=True):
            request.receipt, request.last, request.done = receipt, last, True
        self._hand_on(rows, self._log.last, taken.watermark, size - len(rows))

    def _taken(self, group: list[_Request]) -> Intake:
        """Return what to store of the events of some callers, and what to answer them."""
        given = [each for request in group for each in request.events.id or () if each is not None]
        taken = Intake(
            self._watermark,
            self._log.last,
            dict(self._counts),
            self._state.names,
            self._lateness,
            self.settings.late == "reject",
            self.unit,
            self._log.known_ids(given) if given else set(),
        )
        for request in group:
            taken.take(request.events, request.key, lambda key: _receipt(self._log.receipt(key)))
        return taken

    def _hand_on(self, rows: Rows, seq: int, watermark: Watermark, dropped: int) -> None:
        with self._news:
            self._watermark = watermark
            self._stored.append((rows, seq, watermark.low))
            self._handed = Handed(seq, watermark.low, len(self._state.names))
            self._waiting -= dropped
            self._news.notify_all()

    def _apply(self) -> None:
        """Apply what is stored and due, until closed: the work of a thread."""
        while True:
            with self._news:
                while not self._stored:
                    if self._closing.is_set():
                        return
                    self._news.wait(1.0)
            self._apply_stored(_AT_ONCE)
            self._state.let_read()
            self._pace.append((time.monotonic(), self._state.counts["applied"]))

    def _apply_stored(self, most: float) -> None:
        """Apply about so many of the rows that are stored, as far as they are due."""
        # A snapshot has the rows that wait, or sees them applied.
        with self._state.lock:
            size, moment = 0, None
            with self._news:
                while self._stored and size < most:
                    rows, seq, low = self._stored.popleft()
                    self._buffer.add(rows)
                    size, moment = size + len(rows), Moment(seq, low)
            if moment is not None:
                self._state.apply(self._buffer.release(moment.until), moment)
        with self._news:
            self._waiting -= size
            self._news.notify_all()

    # Keeping --------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Save the state now and then, until closed: the work of a thread."""
        while not self._closing.wait(0.5):
            try:
                if self._is_due():
                    self.snapshot()
                elif self._log.wal_bytes > _WAL_BYTES:
                    self._log.checkpoint()
            except StorageError as error:  # a full disk: the log has everything
                self._note(str(error))

    def _is_due(self) -> bool:
        moment, at, applied = self._saved
        if self._state.moment == moment:
            return False
        return (
            self._state.counts["applied"] - applied >= self.settings.snapshot_every_events
            or time.monotonic() - at >= self.settings.snapshot_every_s
        )

    def snapshot(self) -> int:
        """Save the state now, and return the sequence number it stands at."""
        with self._saving:
            with self._state.lock:
                description, arrays = self._state.capture()
                moment = self._state.moment
                description["first_waiting"] = self._buffer.first_seq(moment.seq + 1)
                description["forgotten"] = self._forgotten
            if moment != self._saved[0] or not self._snapshots.numbers():
                self._snapshots.write(moment.seq, description, arrays)
                self._quality.save()
                self._log.checkpoint()
                self._compact()
            self._saved = moment, time.monotonic(), description["counts"]["applied"]
        return moment.seq

    def _compact(self) -> None:
        """Delete rows of the log that every snapshot contains and that are old enough."""
        if self.settings.keep_log == "all" or len(self._snapshots.numbers()) < 2:
            return
        kept = span(self.settings.keep_log, self.unit)
        oldest = statefile.describe(self._snapshots.path(self._snapshots.numbers()[0]))
        newest = self._watermark.newest or 0
        with self._storing:
            self._log.compact(oldest["first_waiting"], newest - kept)

    def _note(self, text: str) -> None:
        if not self.notes or self.notes[-1] != text:
            self.notes = [*self.notes[-19:], text]

    # Questions about the past ---------------------------------------------------------------------

    def _embedding_then(self, names: list[Any], at: Any) -> Answer:
        state = self._state
        store = self._movements.caught_up(_PATIENCE_S)
        with state.reading():
            now = state.moment
            numbers = [state.number(name) for name in names]
        t = self._asked_at(at, now)
        data = {"names": names, "at": t, "embedding": store.state(numbers, t)}
        return self._answer(now, data, norm(store.bound(numbers, t)))

    def history(self, name: Any, points: int = 200) -> Answer:
        """Return how a node moved: `times`, how far it `moved` at each, and its `similarity` then
        to where it is now, the mean of cosines over channels; at most so many points.
        """
        check_count(points)
        state = self._state
        store = self._movements.caught_up(_PATIENCE_S)
        now, number = state.moment, state.number(name)
        times, states = store.changes(number)
        chosen = np.unique(np.linspace(0, len(times) - 1, min(points + 1, len(times))).astype(int))
        times, states = times[chosen], states[chosen]
        moved = np.linalg.norm(np.diff(states, axis=0).reshape(len(times) - 1, -1), axis=1)
        turned = directions(states) @ directions(states[-1:])[0]
        data = {
            "name": state.name(number),
            "times": times[1:],  # the first record is from before any event
            "moved": moved,
            "similarity": turned[1:],
        }
        bound = store.bound([number], self._asked_at(None, now))
        return self._answer(now, data, norm(bound))

    # Learning -------------------------------------------------------------------------------------

    def _continue_version(self) -> None:
        """Answer by the version that was in use when the directory was closed, or by the newest
        one whose file is whole.
        """
        version = self._log.meta.get("version")
        others = [each for each in reversed(self._versions.all()) if each != version]
        for each in () if version is None else (version, *others):
            try:
                model = self._versions.read(each)
            except (TidegraphError, OSError) as error:
                self._note(f"{error}; another version answers, or heuristics")
            else:
                self._state.stand_on(model, model.span)
                return

    def _judge(self) -> None:
        """Score events before they are learned from, until closed: the work of a thread."""
        most, begin = 0.0, time.monotonic()
        while not self._closing.wait(0.25):
            now = time.monotonic()
            pace, begin = self.settings.judged_per_s * (now - begin), now
            most = min(most + pace, self.settings.judged_per_s)
            most -= self._quality.judge(self._state, int(most))

    def _learn(self) -> None:
        """Train models when it is time, until closed: the work of a thread."""
        while not self._closing.wait(0.25):
            if not (self._wanted_training or self._training_is_due()):
                continue
            self._wanted_training, error = True, None
            try:
                self._train_now()
            except TidegraphError as problem:
                error = problem
                self._train_from = len(self._state.meetings) * 5 // 4
                self._note(str(problem))
            with self._news:
                self._wanted_training, self._training_error = False, error
                self._trainings += 1
                self._news.notify_all()

    def _training_is_due(self) -> bool:
        settings, links = self.settings, len(self._state.meetings)
        if not settings.learn or self._log.meta.get("pinned") or links < self._train_from:
            return False
        model, _ = self._state.answering
        if model is None or links >= model.events + (settings.train_every_events or model.events):
            return True
        fresh = links - model.events >= settings.train_after
        return fresh and self._quality.has_fallen(settings.train_when_worse)

    def _train_now(self) -> None:
        """Train on the links so far; begin again if a node is forgotten meanwhile."""
        settings = {"seed": self.settings.seed, "max_examples": self.settings.max_examples}
        while not self._closing.is_set():
            with self._changing:
                forgotten = self._trained_without = self._forgotten
                stream = self._state.stream(meetings_only=True)
            try:
                if len(stream) < _LEAST_LINKS:
                    raise ParameterError(
                        f"{len(stream)} links are too few to learn from; at least {_LEAST_LINKS}"
                        " are needed"
                    )
                model = self._versions.train(
                    stream,
                    settings,
                    lambda: self._closing.is_set() or self._forgotten != self._trained_without,
                )
            finally:
                self._trained_without = None
            with self._changing:
                if model is not None and self._forgotten == forgotten:
                    self._switch(self._versions.add(model), pinned=False)
                    return

    def _switch(self, model: Model | None, *, pinned: bool) -> None:
        reach("version.switch.before")
        version = None if model is None else model.version
        with self._storing:
            self._log.store(version=version, pinned=pinned)
        reach("version.switch.after")
        self._state.stand_on(model, self._state.about.span if model is None else model.span)
        with self._news:
            self._news.notify_all()

    def train(self, *, wait: bool = False, timeout_s: float = 3600.0) -> None:
        """Train a model on the links so far, in the background, and answer by it then.

        wait: whether to return only then, or raise what went wrong.
        """
        until = time.monotonic() + timeout_s
        with self._news:
            self.check_ready()
            before = self._trainings
            self._wanted_training = True
            while wait and self._trainings == before:
                self.check_ready()
                if time.monotonic() >= until:
                    raise StorageError("the training has not finished in time; it goes on")
                self._news.wait(1.0)
            if wait and self._training_error is not None:
                raise self._training_error

    def versions(self) -> list[dict[str, Any]]:
        """Return the models that were trained, oldest first: `version`, how many links each has
        learned from as `events`, and which one is `current`.
        """
        current = self.version
        found = []
        for version in self._versions.all():
            try:
                about = statefile.describe(self._versions.path(version))
            except (TidegraphError, OSError) as error:
                self._note(str(error))
                continue
            found.append(
                {
                    "version": version,
                    "events": about["events"],
                    "span": about["span"],
                    "current": version == current,
                }
            )
        return found

    def rollback(self, version: str) -> str:
        """Answer by an earlier version from now on, or by "heuristics"; return which one.

        Nothing is trained by itself afterwards, until `train` is called.
        """
        model = None if version == HEURISTICS else self._versions.read(version)
        with self._changing:
            self.check_ready()
            self._switch(model, pinned=True)
        return self.version

    def quality(self) -> dict[str, Any]:
        """Return how well events were foreseen, by day: `buckets` with the average precision `ap`
        against one random destination, and `mrr` among ten, of the model and of heuristics.

        `share` says which part of the events was scored.
        """
        return {**self._quality.summary(), "unit": self.unit, "version": self.version}

    # Forgetting -----------------------------------------------------------------------------------

    @property
    def _forgotten(self) -> int:
        return int(self._log.meta.get("forgotten", 0))

    def forget(self, name: Any, *, refit: bool = False) -> Answer:
        """Remove a node with all its events from memory and from every file of the directory.

        Representations of all others are then those of a stream that never had it, within twice
        their bound. What remains is what models learned from it, which `remains` says; `refit`
        trains one anew and deletes the others. It takes about as long as applying all events.
        """
        with self._changing, self._saving:
            self.check_ready()
            with self._storing:
                self._finish_forgetting()  # of an earlier one that could not
            old = self._state
            number = old.named(name)
            fresh = old.without(number)
            with self._storing, old.lock:  # nothing is stored or applied meanwhile
                self.check_ready()
                self._apply_stored(math.inf)  # the new snapshot has them, or lets them wait
                row = Rows.of([0], [self._log.last + 1], [NOBODY], [NOBODY], GONE)
                self._log.append(row)  # so that the new snapshot has a number of its own
                old.moment = dataclasses.replace(old.moment, seq=self._log.last)
                old.catch_up(fresh, number)
                fresh.moment = old.moment
                buffer = self._buffer.without(number)
                self._write_forgetting(fresh, buffer)
                count = self._log.forget(
                    number,
                    forgotten=self._forgotten + 1,
                    numbers=len(old.names),
                    purging=True,
                )
                old.names.forget(number)
                self._state, self._buffer = fresh, buffer
                self._finish_forgetting()
                with self._news:
                    self._handed = dataclasses.replace(self._handed, seq=self._log.last)
                    self._news.notify_all()
            while self._trained_without not in (None, self._forgotten):
                time.sleep(0.05)  # a training that has to begin again deletes its files
            learned = self._versions.all()
        if refit and learned:
            self._refit(learned)
            learned = []
        data = {"node": name, "events": count, "remains": {"models": learned}}
        return self._answer(self._state.moment, data)

    def _write_forgetting(self, state: State, buffer: Buffer) -> None:
        description, arrays = state.capture()
        description["first_waiting"] = buffer.first_seq(state.moment.seq + 1)
        description["forgotten"] = self._forgotten + 1
        self._snapshots.write(state.moment.seq, description, arrays)
        self._saved = state.moment, time.monotonic(), description["counts"]["applied"]

    def _finish_forgetting(self) -> None:
        """Delete from files what the log no longer has; also what a killed process left."""
        if not self._log.meta.get("purging"):
            return
        self._snapshots.delete_others(NOBODY, self._forgotten)
        self._movements.delete()
        self._movements = Movements(self.directory, self._state, enabled=self.settings.record)
        self._log.purge()
        self._log.store(purging=False)

    def _refit(self, learned: list[str]) -> None:
        """Replace all models by one that never saw what was forgotten."""
        self.train(wait=True)
        current = self.version
        for version in learned:
            if version != current:
                self._versions.path(version).unlink(missing_ok=True)

    # Looking at it --------------------------------------------------------------------------------

    def _events_per_s(self) -> float:
        if len(self._pace) < 2:
            return 0.0
        (begin, first), (end, last) = self._pace[0], self._pace[-1]
        if time.monotonic() - end > 5:
            return 0.0
        return (last - first) / max(1e-3, end - begin)

    def stats(self) -> dict[str, Any]:
        """Return counts, times and sizes in plain types."""
        state, now = self._state, self._state.moment
        engine = state.propagator.statistics()
        return {
            "events": self._counts["events"],
            "seq": self._log.last,
            "applied_seq": now.seq,
            "applied": state.counts["applied"],
            "rejected": state.counts["rejected"],
            "watermark": self._watermark.low,
            "newest": self._watermark.newest,
            "lateness": self._lateness,
            "late": self._counts["late"],
            "duplicates": self._counts["duplicate"],
            "repeated_requests": self._counts["repeated"],
            "queue": self._waiting,
            "held_back": len(self._buffer),
            "nodes": len(state.known()),
            "edges": engine["edges"],
            "unit": self.unit,
            "memory_bytes": memory_bytes(),
            "disk_bytes": self._log.bytes + self._snapshots.bytes + self._versions.bytes,
            "events_per_s": self._events_per_s(),
            "certified_error": state.about.r_max,
            "version": self.version,
            "training": self._wanted_training,
            "forgotten": self._forgotten,
            "quality": self._quality.newest(),
            "notes": list(self.notes),
        }


def lateness_of(settings: LiveSettings, about: About) -> int:
    """Return how long to wait for late events, in the directory's unit."""
    timeless = about.unit not in SECONDS or about.unit == "year"
    if timeless and settings.lateness == LiveSettings.lateness:
        return 0
    return span(settings.lateness, about.unit)


def ahead_of(settings: LiveSettings, about: About) -> int | None:
    """Return how far ahead of the clock times may be; None where no clock or no setting says."""
    if settings.ahead == "any" or about.unit not in SECONDS or about.unit == "year":
        return None
    return span(settings.ahead, about.unit)


def _is_new(file: Path) -> bool:
    """Return whether a log was never begun, or its creation was never finished."""
    if not file.exists():
        return True
    try:
        with contextlib.closing(sqlite3.connect(file)) as connection:
            found = connection.execute("select count(*) from sqlite_master").fetchone()[0]
    except sqlite3.Error:
        return False  # what is there is damaged, which opening it says
    return bool(found == 0)


def _created(file: Path, source: Source) -> Log:
    """Return a new log that holds the events of a source, all at once or not at all."""
    names: dict[str, int] = {}
    rows = source.rows(names)
    watermark = Watermark()
    if len(rows):
        watermark = Watermark(int(rows.t.max())).marked()
    return Log(
        file,
        create={
            "about": dataclasses.asdict(source.about),
            "source": source.digest,
            "version": None if source.model is None else FIRST,
            "watermark": dataclasses.astuple(watermark),
            "counts": {"events": len(rows), "duplicate": 0, "late": 0, "repeated": 0},
            "id": uuid.uuid4().hex,
        },
        rows=rows,
        names=[(number, name) for name, number in names.items()],
    )


def restored(
    directory: Path,
    log: Log,
    notes: list[str],
    progress: Progress | None,
    *,
    into: State | None = None,
) -> tuple[State, Buffer]:
    """Return the state that the newest whole snapshot and the log after it describe.

    into: an empty state to apply the whole log to instead.
    """
    found = None if into else Snapshots(directory).newest(notes, log.meta.get("forgotten", 0))
    names = Names(log.nodes())
    names.reserve(log.meta.get("numbers", 0))
    if into is not None:
        state, first = into, 1
    elif found is None:
        state, first = State(About.of(log.meta["about"]), names, near=directory), 1
    else:
        state = State.restore(*found, names, str(directory / SNAPSHOTS), near=directory)
        first = found[0]["first_waiting"]
    if first < log.first:
        raise StateFileError(
            f"{directory} has no whole snapshot, and its log begins at event {log.first:,};"
            " restore the directory from a copy"
        )
    if state.moment.seq > log.last:
        raise StateFileError(
            f"{directory} has a snapshot of event {state.moment.seq:,}, and its log ends at"
            f" {log.last:,}: the log was replaced by an older one; restore the directory from a"
            " copy"
        )
    buffer, until = Buffer(), state.moment.until
    for rows in log.rows(first):
        buffer.add(waiting(rows, until))
    low = Watermark(*log.meta["watermark"]).low
    replay(state, buffer.release(low), Moment(log.last, low), progress)
    return state, buffer


def _receipt(values: dict[str, Any] | None) -> Receipt | None:
    return None if values is None else Receipt(**values)


def _again(error: BaseException) -> BaseException:
    """Return an error of another thread, to be raised in this one."""
    if isinstance(error, StorageError):
        return StorageError(*error.args)
    if isinstance(error, TidegraphError):
        return error
    return StorageError(f"the live state has stopped: {type(error).__name__}: {error}")


def _timed_out(what: str) -> StorageError:
    return StorageError(
        f"the events were not {what} in time; they may be stored: send them again with the same key"
        " or ids"
    )
