"""`Replica`: a copy of a live state that follows its writer over HTTP and answers questions.

It starts from the writer's newest snapshot and applies the rows of the log that came after, as the
writer does, so that at the same sequence number both give the same bytes. It keeps no files: what
it downloads is in memory, or in files without a name.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, BinaryIO

import httpx
import msgspec

from tidegraph.core import statefile
from tidegraph.core.errors import ServerError, StateFileError
from tidegraph.core.machine import memory_bytes
from tidegraph.live.feed import Asked, Told
from tidegraph.live.log import unpacked
from tidegraph.live.models import Model
from tidegraph.live.names import Names
from tidegraph.live.order import Buffer, Rows
from tidegraph.live.questions import Questions
from tidegraph.live.state import Moment, State, replay, waiting

_ASKED_EVERY_S = 0.05  # at most; what came meanwhile is applied together
_FAILED_S = 0.5  # before the next try
_WAITED_S = 1.0  # for news, before the writer answers that there are none
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
_PATIENT = httpx.Timeout(3700.0, connect=5.0)  # until a training is complete
# Servers close connections that were idle for 5 s.
_LIMITS = httpx.Limits(max_connections=None, keepalive_expiry=2.0)
_PASSED_ON = ("content-type", "content-encoding", "idempotency-key", "accept")


class _Outdated(Exception):
    """What was followed is no longer so; a new snapshot is."""


@dataclass
class _Following:
    """A state on its way to where the writer stands.

    last: the last row it was given. rows: those that wait until it has all up to a moment.
    """

    state: State
    until: int | None
    last: int
    forgotten: int
    log: str
    buffer: Buffer = field(default_factory=Buffer)
    rows: list[Rows] = field(default_factory=list)


class Replica(Questions):
    """A state that follows the one of a writer, and answers the same questions.

    It answers once it has caught up, and from then on whatever happens to the writer. Verbs that
    change something are the writer's; `forward` passes requests on to it.

    url, token: of the writer, which was started with `feeds`. name: what statistics call it.
    """

    def __init__(self, url: str, *, token: str | None = None, name: str = "replica") -> None:
        self.url, self.name = url.rstrip("/"), name
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=_TIMEOUT, limits=_LIMITS, trust_env=False
        )
        self._answering: _Following | None = None
        self._told = Told(True, "")
        self._heard: float | None = None  # when the writer answered last
        self._problem: str | None = None
        self._failure: BaseException | None = None
        self._changed = threading.Condition()  # notified when it moves, or fails
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=f"tidegraph-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(2 * _WAITED_S)  # it may wait for an answer that never comes
        self._http.close()

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # What it stands at ----------------------------------------------------------------------------

    @property
    def _state(self) -> State:  # type: ignore[override]
        return self._standing.state

    @property
    def _buffer(self) -> Buffer:  # type: ignore[override]
        return self._standing.buffer

    @property
    def _standing(self) -> _Following:
        found = self._answering
        if found is None:
            reason = f" ({self._problem})" if self._problem else ""
            raise ServerError(f"the replica has not caught up with its writer yet{reason}")
        return found

    def check_ready(self) -> None:
        """Raise ServerError as long as it has not caught up once."""
        _ = self._standing

    def check(self) -> None:
        """Raise ServerError if it has stopped following for good."""
        if self._failure is not None or not (self._thread.is_alive() or self._closing.is_set()):
            raise ServerError(f"the replica has stopped following: {self._failure!r}")

    def wait(self, seq: int = 0, timeout_s: float = 60.0) -> None:
        """Wait until its answers follow the log up to a sequence number."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while self._answering is None or self._answering.state.moment.seq < seq:
                self.check()
                if time.monotonic() >= until or self._closing.is_set():
                    reason = f" ({self._problem})" if self._problem else ""
                    raise ServerError(f"the replica has not got to event {seq:,} in time{reason}")
                self._changed.wait(0.5)

    def stats(self) -> dict[str, Any]:
        """Return counts, times and sizes in plain types: those of the writer as it told them last,
        and its own where it stands. `behind` is how many events of the log it lacks.
        """
        standing, told = self._standing, self._told
        state = standing.state
        now = state.moment
        silent = None if self._heard is None else round(time.monotonic() - self._heard, 1)
        return {
            **told.stats,
            "seq": max(told.seq, now.seq),
            "applied_seq": now.seq,
            "applied": state.counts["applied"],
            "rejected": state.counts["rejected"],
            "watermark": now.until,
            "held_back": len(standing.buffer),
            "nodes": len(state.known()),
            "edges": state.propagator.statistics()["edges"],
            "unit": self.unit,
            "memory_bytes": memory_bytes(),
            "certified_error": state.about.r_max,
            "version": self.version,
            "forgotten": standing.forgotten,
            "replica": self.name,
            "pid": os.getpid(),
            "behind": max(0, told.seq - now.seq),
            "writer": {"answers": self._problem is None, "silent_s": silent},
            "notes": [*told.stats.get("notes", []), *filter(None, [self._problem])],
        }

    # Passing on -----------------------------------------------------------------------------------

    def forward(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Let the writer answer a request; raise ServerError if it does not."""
        passed = {name: value for name, value in headers.items() if name in _PASSED_ON}
        try:
            answer = self._http.request(
                method,
                f"{path}?{query}" if query else path,
                headers=passed,
                content=body,
                timeout=_PATIENT,
            )
        except (httpx.TransportError, RuntimeError) as error:  # the second: it is being closed
            reason = str(error) or type(error).__name__
            raise ServerError(
                f"the writer does not answer ({reason}); questions are answered as before, and"
                " events can be sent again with the same key"
            ) from None
        kept = {
            name: answer.headers[name]
            for name in ("content-type", "retry-after")
            if name in answer.headers
        }
        return answer.status_code, kept, answer.content

    # Following ------------------------------------------------------------------------------------

    def _guarded(self) -> None:
        try:
            self._follow()
        except BaseException as error:  # whoever looks after it starts another one
            self._failure = error
        with self._changed:
            self._changed.notify_all()

    def _follow(self) -> None:
        """Follow the writer, until closed: the work of a thread."""
        following: _Following | None = None
        while not self._closing.is_set():
            try:
                if following is None:
                    following = self._restored()
                self._advance(following)
                self._problem = None
                self._closing.wait(_ASKED_EVERY_S)
            except _Outdated:
                following = None
            except (httpx.TransportError, ServerError, StateFileError) as error:
                if self._closing.is_set():
                    return
                self._problem = f"the writer does not answer: {str(error) or type(error).__name__}"
                if isinstance(error, StateFileError):
                    following = None
                self._closing.wait(_FAILED_S)
            except RuntimeError:
                if not self._closing.is_set():  # else its connections were closed under it
                    raise

    def _restored(self) -> _Following:
        """Return what the writer's newest snapshot describes."""
        with self._downloaded("/v1/snapshot") as (file, headers):
            about, arrays = statefile.read_from(file, f"the snapshot of {self.url}")
        state = State.restore(about, arrays, Names(), f"the snapshot of {self.url}")
        return _Following(
            state,
            until=state.moment.until,
            last=about["first_waiting"] - 1,
            forgotten=about.get("forgotten", 0),
            log=headers.get("tidegraph-log", ""),
        )

    def _advance(self, following: _Following) -> None:
        """Ask what is new, and apply it once that is all up to a moment of the writer."""
        state, answering = following.state, self._answering
        model, _ = state.answering
        asked = Asked(
            after=following.last,
            names=len(state.names),
            forgotten=following.forgotten,
            version=None if model is None else model.version,
            replica=self.name,
            stands=None if answering is None else answering.state.moment.seq,
            dropped=0 if answering is None else answering.forgotten,
        )
        query = {k: v for k, v in msgspec.structs.asdict(asked).items() if v is not None}
        # Whoever does not answer yet, or waits to say what it dropped, is not to wait for news.
        wait_s = _WAITED_S if answering is following else 0.0
        answer = self._http.get("/v1/follow", params={**query, "wait_s": wait_s})
        self._check(answer)
        try:
            told = msgspec.msgpack.decode(answer.content, type=Told)
            rows = [unpacked(first, blob) for first, blob in told.rows]
        except (msgspec.DecodeError, ValueError) as error:
            raise ServerError(f"what it told cannot be read ({error})") from None
        self._heard = time.monotonic()
        if told.again or told.log != following.log:
            raise _Outdated
        for each in rows:
            if len(each) == 0 or int(each.seq[0]) != following.last + 1:
                raise _Outdated
            following.rows.append(waiting(each, following.until))
            following.last = int(each.seq[-1])
        first = len(state.names)
        state.names.add(
            (first + place, name) for place, name in enumerate(told.names) if name is not None
        )
        state.names.reserve(first + len(told.names))
        self._told = told
        if following.last == told.seq:
            self._apply(following, told)

    def _apply(self, following: _Following, told: Told) -> None:
        state, moment = following.state, Moment(told.seq, told.low)
        answers = following is self._answering
        if following.rows or moment != state.moment:
            with state.lock if answers else contextlib.nullcontext():
                for rows in following.rows:
                    following.buffer.add(rows)
                following.rows = []
                ready = following.buffer.release(moment.until)
                if answers:
                    state.apply(ready, moment)
                else:
                    replay(state, ready, moment)
            state.let_read()
        self._stand_on(state, told)
        with self._changed:
            self._answering = following
            self._changed.notify_all()

    def _stand_on(self, state: State, told: Told) -> None:
        """Answer by the model that the writer answers by."""
        model, _ = state.answering
        if told.version == (None if model is None else model.version):
            if told.version is None and told.span != state.about.span:
                state.stand_on(None, told.span)
            return
        fresh = None
        if told.version is not None:
            path = f"/v1/versions/{told.version}/file"
            with self._downloaded(path) as (file, _):
                fresh = Model.read_from(file, f"version {told.version} of {self.url}")
        state.stand_on(fresh, told.span)

    @contextlib.contextmanager
    def _downloaded(self, path: str) -> Iterator[tuple[BinaryIO, httpx.Headers]]:
        """Yield a file of the writer, which is nowhere on disk under any name, and its headers."""
        with tempfile.TemporaryFile() as file:
            with self._http.stream("GET", path) as answer:
                self._check(answer)
                for part in answer.iter_bytes(1 << 20):
                    file.write(part)
            file.seek(0)
            yield file, answer.headers

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code != 200:
            advice = {
                401: "its token is another one",
                404: "it is no writer that can be followed",
            }.get(answer.status_code, "")
            raise ServerError(f"it answers {answer.status_code} {advice}".rstrip())
