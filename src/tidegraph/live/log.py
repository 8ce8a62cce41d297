"""The log: every accepted event in a SQLite database, on disk before it is acknowledged.

A transaction holds the events of all callers that waited, the ids and keys by which repetitions are
recognised, and how far time has come. It is one write and one fsync to the write-ahead log.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegraph.core.errors import StateFileError, StorageError
from tidegraph.live.failpoints import reach
from tidegraph.live.order import Row

FILE = "log.sqlite"
_FORMAT = 1
_BUSY_S = 10.0  # how long a transaction waits for a checkpoint or a reader
_AT_ONCE = 50_000  # rows read between two checks for interrupts
_SCHEMA = """
create table meta (name text primary key, value text not null) without rowid;
create table events (
    seq integer primary key, t integer not null, op integer not null, src text not null,
    dst text, weight real, features blob
);
create table ids (id text primary key, seq integer not null) without rowid;
create table requests (key text primary key, receipt text not null) without rowid;
"""
_INSERT = "insert into events (t, seq, op, src, dst, weight, features) values (?, ?, ?, ?, ?, ?, ?)"
_COLUMNS = "t, seq, op, src, dst, weight, features"
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) if hasattr(sqlite3, "SQLITE_FULL") else (13, 10)


class Log:
    """The events of a directory in the order of their sequence numbers, which count from 1.

    Writes come from one thread; any number of threads may read.
    """

    def __init__(
        self, path: Path, *, create: Mapping[str, Any] | None = None, rows: Sequence[Row] = ()
    ) -> None:
        """create: what a new log knows about itself, by name; None where there must be one.
        rows: its first ones, which are there with the log itself or not at all.
        """
        self.path = path
        self._reading = threading.Lock()
        with self._as_errors():
            self._writer = self._connect()
            self._writer.execute("pragma synchronous = full")
            self._writer.execute("pragma wal_autocheckpoint = 32768")  # pages; see `checkpoint`
            self._reader = self._connect()
            if create is not None:
                self._create(create, rows)
            self._check()
            self.meta: dict[str, Any] = {
                name: json.loads(value)
                for name, value in self._writer.execute("select name, value from meta")
            }
        if self.meta.get("format") != _FORMAT:
            raise StateFileError(
                f"{path} has format {self.meta.get('format')}; this release reads {_FORMAT}: open"
                " it with the release that wrote it"
            )

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma secure_delete = on")
        return connection

    def _create(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
        reach("log.create.before")
        with self._transaction() as writer:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                writer.execute(statement)
            self._set(writer, {"format": _FORMAT, **about})
            writer.executemany(_INSERT, rows)
        reach("log.create.after")

    def _check(self) -> None:
        """Raise StateFileError if the file is damaged or rows are missing."""
        problem = self._writer.execute("pragma quick_check(1)").fetchone()[0]
        if problem == "ok":
            first: int
            last: int
            first, last, count = self._writer.execute(
                "select min(seq), max(seq), count(*) from events"
            ).fetchone()
            self.first, self.last = (1, 0) if count == 0 else (first, last)
            if count == self.last - self.first + 1:
                if count == 0:  # compacted: the numbers go on
                    row = self._writer.execute(
                        "select value from meta where name = 'last_seq'"
                    ).fetchone()
                    self.last = json.loads(row[0]) if row else 0
                    self.first = self.last + 1
                return
            problem = f"it holds {count:,} events, numbered {first:,} to {last:,}"
        raise self._damaged(problem)

    def _damaged(self, problem: str) -> StateFileError:
        return StateFileError(
            f"{self.path} is damaged ({problem}); restore the directory from a copy, or save what"
            f" can be read with sqlite3 {self.path} .recover"
        )

    @contextlib.contextmanager
    def _as_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if isinstance(error, sqlite3.OperationalError) and (
                code is None or code & 0xFF in (*_FULL, 5, 14)  # busy, cannot open
            ):
                raise StorageError(
                    28 if code is not None and code & 0xFF == _FULL[0] else 5,
                    f"{self.path} cannot be written ({error}); events stored before are safe: make"
                    " room and send again",
                ) from error
            raise self._damaged(str(error)) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._as_errors():
            self._writer.execute("begin immediate")
            try:
                yield self._writer
                self._writer.execute("commit")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("rollback")
                raise

    @staticmethod
    def _set(writer: sqlite3.Connection, values: Mapping[str, Any]) -> None:
        writer.executemany(
            "insert or replace into meta values (?, ?)",
            [(name, json.dumps(value)) for name, value in values.items()],
        )

    # Writing --------------------------------------------------------------------------------------

    def append(
        self,
        rows: Sequence[Row],
        *,
        ids: Iterable[tuple[str, int]] = (),
        receipts: Iterable[tuple[str, str]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Store rows, which continue the sequence numbers, and all that belongs to them, at once.

        After it returned they are on disk; after it raised, nothing has changed.
        """
        reach("log.insert.before")
        with self._transaction() as writer:
            writer.executemany(_INSERT, rows)
            writer.executemany("insert into ids values (?, ?)", ids)
            writer.executemany("insert into requests values (?, ?)", receipts)
            if meta:
                self._set(writer, meta)
            reach("log.insert.after")
            reach("log.commit.before")
        reach("log.commit.after")
        self.meta |= meta or {}
        if rows:
            self.last = rows[-1].seq

    def compact(self, before: int, t: int) -> int:
        """Delete the events up to the first with this sequence number, or of this time or later;
        return how many. Their ids stay known.
        """
        reach("log.compact.before")
        with self._transaction() as writer:
            recent = writer.execute(
                "select seq from events where t >= ? and seq < ? order by seq limit 1", (t, before)
            ).fetchone()
            before = before if recent is None else recent[0]
            count = writer.execute("delete from events where seq < ?", (before,)).rowcount
            self._set(writer, {"last_seq": self.last})
        reach("log.compact.after")
        self.first = max(self.first, min(before, self.last + 1))
        return count

    def checkpoint(self) -> None:
        """Move what was written ahead to the database, so that the file of it does not grow."""
        reach("log.checkpoint.before")
        with self._as_errors(), self._reading:
            self._reader.execute("pragma wal_checkpoint(passive)").fetchone()
        reach("log.checkpoint.after")

    # Reading --------------------------------------------------------------------------------------

    def known_ids(self, ids: Sequence[str]) -> set[str]:
        """Return those of the ids that events in the log have."""
        found: set[str] = set()
        with self._as_errors():
            for first in range(0, len(ids), 500):
                some = ids[first : first + 500]
                marks = ",".join("?" * len(some))
                query = f"select id from ids where id in ({marks})"
                found.update(row[0] for row in self._writer.execute(query, some))
        return found

    def receipt(self, key: str) -> dict[str, Any] | None:
        """Return the receipt that a request with this key was given, if there was one."""
        with self._as_errors():
            row = self._writer.execute(
                "select receipt from requests where key = ?", (key,)
            ).fetchone()
        return None if row is None else json.loads(row[0])

    def last_key(self, prefix: str) -> str | None:
        """Return the last key, in the order of their bytes, of a request that begins like this."""
        with self._as_errors(), self._reading:
            row = self._reader.execute(
                "select max(key) from requests where key >= ? and key < ?",
                (prefix, prefix + "\U0010ffff"),
            ).fetchone()
        return None if row is None else row[0]

    def rows(self, first: int, *, since: int | None = None) -> Iterator[list[Row]]:
        """Yield the rows from a sequence number on, of this time or later, some at once."""
        since = -(2**63) if since is None else since
        while True:
            with self._as_errors(), self._reading:
                found = self._reader.execute(
                    f"select {_COLUMNS} from events where seq >= ? order by seq limit ?",
                    (first, _AT_ONCE),
                ).fetchall()
            if not found:
                return
            first = found[-1][1] + 1
            yield [Row._make(row) for row in found if row[0] >= since]

    @property
    def wal_bytes(self) -> int:
        """The size of what was written ahead."""
        file = self.path.with_name(f"{self.path.name}-wal")
        return file.stat().st_size if file.exists() else 0

    @property
    def bytes(self) -> int:
        """The size of its files."""
        files = (self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Close the files."""
        with contextlib.suppress(sqlite3.Error):
            self._reader.close()
        with contextlib.suppress(sqlite3.Error):
            self._writer.close()
