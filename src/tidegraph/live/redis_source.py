"""Events of a Redis stream, each taken in exactly once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from tidegraph.core.errors import BusyError, ParameterError, RowError, StorageError, TidegraphError

if TYPE_CHECKING:
    from tidegraph.live.live import Live

_AT_ONCE = 1000
_BLOCK_MS = 500
_PAUSE_S = 1.0
_NUMBERS = ("weight",)
_JSON = "event"  # a field with the whole event


class RedisSource:
    """A thread that reads a Redis stream into a live state from where the state has it.

    An entry has the fields of an event (`src`, `dst`, `t` ...), or one field `event` with a JSON
    object. The position is stored with the events, in one transaction, so a crash on either side
    neither loses nor repeats any. Entries that are no event are passed over, and counted.

    url: `redis://HOST:PORT/STREAM`, or `redis://HOST:PORT/DATABASE/STREAM`.
    """

    def __init__(self, live: Live, url: str) -> None:
        self._live = live
        self._server, self._stream = _parts(url)
        self.name = f"redis:{urlsplit(url).hostname}:{urlsplit(url).port or 6379}/{self._stream}"
        if len(self.name) > 150 or "@" in self.name:
            raise ParameterError(f"the stream {self._stream!r} has no name of 1 to 150 characters")
        self.taken = self.passed_over = 0
        self.problem: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="tidegraph-redis")

    def __enter__(self) -> RedisSource:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def plain(self) -> dict[str, Any]:
        """Return what was read and what is wrong, if anything."""
        return {
            "source": self.name,
            "position": self._live.position(self.name),
            "taken": self.taken,
            "passed_over": self.passed_over,
            "problem": self.problem,
        }

    def _work(self) -> None:
        import redis

        while not self._stopped.is_set():
            try:
                with redis.Redis.from_url(self._server, socket_connect_timeout=5) as server:
                    self._follow(server)
            except (redis.RedisError, StorageError, OSError) as error:
                self.problem = str(error)  # until it is over
                self._stopped.wait(_PAUSE_S)
            except TidegraphError as error:
                self.problem = str(error)
                return

    def _follow(self, server: Any) -> None:
        after = _entry(self._live.position(self.name))
        while not self._stopped.is_set():
            found = server.xread({self._stream: after}, count=_AT_ONCE, block=_BLOCK_MS)
            self.problem = None
            if found:
                entries = found[0][1]
                self._take([fields for _, fields in entries], entries[-1][0])
                after = entries[-1][0]

    def _take(self, entries: list[dict[bytes, bytes]], last: bytes) -> None:
        events = [event for fields in entries if (event := _event(fields)) is not None]
        passed_over = len(entries) - len(events)
        key = f"{self.name}@{_position(last)}"
        while not self._stopped.is_set():
            try:
                receipt = self._live.ingest(events, key=key)
            except RowError as error:
                del events[error.row]
                passed_over += 1
            except BusyError as error:
                self._stopped.wait(error.retry_after_s)
            else:
                self.taken += receipt.accepted
                self.passed_over += passed_over
                return


def _parts(url: str) -> tuple[str, str]:
    """Return the address of a server and the name of a stream."""
    parts = urlsplit(url)
    *database, stream = parts.path.strip("/").split("/")
    fits = len(database) <= 1 and all(each.isdecimal() for each in database)
    if parts.scheme not in ("redis", "rediss") or not parts.hostname or not stream or not fits:
        raise ParameterError(
            f"the source is {url!r}; give redis://HOST:PORT/STREAM, or"
            " redis://HOST:PORT/DATABASE/STREAM"
        )
    server = urlunsplit((parts.scheme, parts.netloc, "/".join(database), "", ""))
    return server, stream


def _position(entry: bytes) -> str:
    """Return the id of an entry as a text whose order is that of the stream."""
    milliseconds, number = entry.decode().split("-")
    return f"{int(milliseconds):020}-{int(number):020}"


def _entry(position: str | None) -> str:
    if position is None:
        return "0"
    milliseconds, number = position.split("-")
    return f"{int(milliseconds)}-{int(number)}"


def _event(fields: dict[bytes, bytes]) -> dict[str, Any] | None:
    """Return an entry as an event; None for one that is none."""
    try:
        texts = {name.decode(): value.decode() for name, value in fields.items()}
        if texts.keys() == {_JSON}:
            found = msgspec.json.decode(texts[_JSON])
            return found if isinstance(found, dict) else None
        event: dict[str, Any] = dict(texts)
        for name in _NUMBERS:
            if name in event:
                event[name] = float(event[name])
        if "features" in event:
            event["features"] = msgspec.json.decode(event["features"])
        if "t" in event and event["t"].lstrip("-").isdecimal():
            event["t"] = int(event["t"])
    except (UnicodeDecodeError, ValueError, msgspec.DecodeError, RecursionError):
        return None
    return event
