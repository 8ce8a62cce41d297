"""The log: every accepted event in a SQLite database, on disk before it is acknowledged.

A transaction holds the events of all callers that waited, the names they bring, the ids and keys by
which repetitions are recognised, and how far time has come. It is one write and one fsync to the
write-ahead log. The events of a transaction are one row of columns, with a checksum of its own:
a thousand events cost little more than one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.core.errors import StateFileError, StorageError
from tidegraph.core.machine import disk_bytes
from tidegraph.live.failpoints import reach
from tidegraph.live.order import NOBODY, Rows

FILE = "log.sqlite"
_FORMAT = 1
_BUSY_S = 10.0  # how long a transaction waits for a checkpoint or a reader
_AT_ONCE = 50_000  # events after which reading pauses, or a batch ends
GONE = 255  # the op of an event that was forgotten
_SCHEMA = """
create table meta (name text primary key, value text not null) without rowid;
create table nodes (number integer primary key, name text not null);
create table batches (
    first integer primary key, count integer not null, latest integer not null, rows blob not null
);
create table ids (id text primary key, seq integer not null) without rowid;
create table requests (key text primary key, receipt text not null) without rowid;
"""
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) if hasattr(sqlite3, "SQLITE_FULL") else (13, 10)


class Log:
    """The events of a directory in the order of their sequence numbers, which count from 1.

    Writes come from one thread; any number of threads may read.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: Mapping[str, Any] | None = None,
        rows: Rows | None = None,
        names: Iterable[tuple[int, str]] = (),
    ) -> None:
        """create: what a new log knows about itself, by name; None where there must be one.
        rows, names: its first ones, which are there with the log itself or not at all.
        """
        self.path = path
        self._reading = threading.Lock()
        with self._as_errors():
            self._writer = self._connect()
            self._writer.execute("pragma synchronous = full")
            self._writer.execute("pragma wal_autocheckpoint = 32768")  # pages; see `checkpoint`
            self._reader = self._connect()
            if create is not None:
                self._create(create, rows, names)
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
        connection.execute("pragma temp_store = memory")
        return connection

    def _create(
        self, about: Mapping[str, Any], rows: Rows | None, names: Iterable[tuple[int, str]]
    ) -> None:
        reach("log.create.before")
        with self._transaction() as writer:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                writer.execute(statement)
            self._set(writer, {"format": _FORMAT, **about})
            writer.executemany("insert into nodes values (?, ?)", names)
            self._insert(writer, rows)
        reach("log.create.after")

    def _check(self) -> None:
        """Raise StateFileError if the file is damaged or rows are missing."""
        problem = self._writer.execute("pragma quick_check(1)").fetchone()[0]
        if problem == "ok":
            first, end, count = self._writer.execute(
                "select min(first), max(first + count), sum(count) from batches"
            ).fetchone()
            if count is None:  # none yet, or all of them compacted: the numbers go on
                row = self._writer.execute(
                    "select value from meta where name = 'last_seq'"
                ).fetchone()
                self.last: int = json.loads(row[0]) if row else 0
                self.first: int = self.last + 1
                return
            self.first, self.last = first, end - 1
            if count == end - first:
                return
            problem = f"it holds {count:,} events, numbered {first:,} to {end - 1:,}"
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
        rows: Rows,
        *,
        names: Iterable[tuple[int, str]] = (),
        ids: Iterable[tuple[str, int]] = (),
        receipts: Iterable[tuple[str, str]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Store rows, which continue the sequence numbers, and all that belongs to them, at once.

        After it returned they are on disk; after it raised, nothing has changed.
        """
        reach("log.insert.before")
        with self._transaction() as writer:
            self._insert(writer, rows)
            writer.executemany("insert into nodes values (?, ?)", names)
            writer.executemany("insert into ids values (?, ?)", ids)
            kept = [(_kept(key), receipt) for key, receipt in receipts]
            writer.executemany("insert into requests values (?, ?)", kept)
            if meta:
                self._set(writer, meta)
            reach("log.insert.after")
            reach("log.commit.before")
        reach("log.commit.after")
        self.meta |= meta or {}
        if len(rows):
            self.last = int(rows.seq[-1])

    @staticmethod
    def _insert(writer: sqlite3.Connection, rows: Rows | None) -> None:
        for first in range(0, 0 if rows is None else len(rows), _AT_ONCE):
            assert rows is not None
            some = rows[first : first + _AT_ONCE]
            values = int(some.seq[0]), len(some), int(some.t.max()), packed(some)
            writer.execute("insert into batches values (?, ?, ?, ?)", values)

    def store(self, **meta: Any) -> None:
        """Store what the log knows about itself."""
        with self._transaction() as writer:
            self._set(writer, meta)
        self.meta |= meta

    def compact(self, before: int, t: int) -> int:
        """Delete events with sequence numbers below one, up to the first whose transaction has any
        of this time or later; return how many. Their ids stay known.
        """
        reach("log.compact.before")
        with self._transaction() as writer:
            kept = writer.execute(
                "select first from batches where latest >= ? or first + count > ?"
                " order by first limit 1",
                (t, before),
            ).fetchone()
            end = self.last + 1 if kept is None else kept[0]
            writer.execute("delete from batches where first < ?", (end,))
            self._set(writer, {"last_seq": self.last})
        reach("log.compact.after")
        count, self.first = max(0, end - self.first), max(self.first, end)
        return count

    def forget(self, node: int, **meta: Any) -> int:
        """Delete the events of a node, their ids and its name at once, and return how many events
        it had. The bytes are gone after `purge`.
        """
        gone: list[int] = []
        reach("log.forget.before")
        with self._transaction() as writer:
            for rows in self._batches(0):
                of_node = (rows.src == node) | (rows.dst == node)
                if of_node.any():
                    gone += rows.seq[of_node].tolist()
                    rest = _without(rows, of_node)
                    writer.execute(
                        "update batches set latest = ?, rows = ? where first = ?",
                        (int(rest.t.max()), packed(rest), int(rest.seq[0])),
                    )
            writer.execute("create temp table gone (seq integer primary key)")
            writer.executemany("insert into gone values (?)", [(seq,) for seq in gone])
            writer.execute("delete from ids where seq in (select seq from gone)")
            writer.execute("drop table gone")
            writer.execute("delete from nodes where number = ?", (node,))
            self._set(writer, meta)
        reach("log.forget.after")
        self.meta |= meta
        return len(gone)

    def purge(self) -> None:
        """Write the database anew, so that no deleted byte stays in its files."""
        reach("log.purge.before")
        with self._as_errors(), self._reading:
            self._writer.execute("vacuum")
            busy = self._writer.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
            if busy:
                raise StorageError(
                    f"{self.path} is being read by another program, and deleted bytes stay until"
                    " then: close it and forget the node again"
                )
        reach("log.purge.after")

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
                "select receipt from requests where key = ?", (_kept(key),)
            ).fetchone()
        return None if row is None else json.loads(row[0])

    def last_position(self, source: str) -> str | None:
        """Return the last position, in the order of its bytes, among keys `SOURCE@POSITION`."""
        first = _kept(f"{source}@")
        with self._as_errors(), self._reading:
            row = self._reader.execute(
                "select max(key) from requests where key >= ? and key < ?",
                (first, first + "\U0010ffff"),
            ).fetchone()
        return None if row[0] is None else row[0].removeprefix(first)

    def rows(self, first: int) -> Iterator[Rows]:
        """Yield the rows from a sequence number on, some at once."""
        while first <= self.last:
            parts, count = [], 0
            for rows in self._batches(first):
                parts.append(rows[max(0, first - int(rows.seq[0])) :])
                count += len(rows)
                if count >= _AT_ONCE:
                    break
            if not parts:
                return
            merged = Rows.merged(parts)
            first = int(merged.seq[-1]) + 1
            yield merged

    def _batches(self, first: int) -> Iterator[Rows]:
        """Yield the batches from the one with a sequence number on."""
        query = (
            "select first, rows from batches where first >="
            " coalesce((select max(first) from batches where first <= ?), 0) order by 1"
        )
        with (
            self._as_errors(),
            self._reading,
            contextlib.closing(self._reader.execute(query, (first,))) as found,
        ):
            for begin, blob in found:
                yield self._unpacked(begin, blob)

    def _unpacked(self, first: int, blob: bytes) -> Rows:
        try:
            return unpacked(first, blob)
        except ValueError as error:
            raise self._damaged(f"the events from {first:,} on: {error}") from None

    def nodes(self) -> list[tuple[int, str]]:
        """Return the numbers and names of all nodes."""
        with self._as_errors():
            return self._writer.execute("select number, name from nodes order by number").fetchall()

    @property
    def wal_bytes(self) -> int:
        """The size of what was written ahead."""
        file = self.path.with_name(f"{self.path.name}-wal")
        return disk_bytes([file])

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return disk_bytes(self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm"))

    def close(self) -> None:
        """Close the files."""
        with contextlib.suppress(sqlite3.Error):
            self._reader.close()
        with contextlib.suppress(sqlite3.Error):
            self._writer.close()


_HEAD = struct.Struct("<IIB")  # checksum of the rest, events, which columns follow
_OPS, _WEIGHTS, _FEATURES = 1, 2, 4
_PLACE = struct.Struct("<II")  # of an event that has features, and their bytes


def _kept(key: str) -> str:
    """Return what the log keeps of a key: callers may write the names of nodes into keys, which
    are to be gone once they are forgotten. The position of a source stays readable.
    """
    source, at, position = key.rpartition("@")
    if not at:
        source, position = key, ""
    return f"{hashlib.blake2b(source.encode(), digest_size=16).hexdigest()}{at}{position}"


def packed(rows: Rows) -> bytes:
    """Return the columns of rows as bytes; their sequence numbers follow from the first one."""
    parts = [rows.t.tobytes(), rows.src.astype(np.int32).tobytes()]
    parts.append(rows.dst.astype(np.int32).tobytes())
    kinds = 0
    if rows.op.any():
        kinds |= _OPS
        parts.append(rows.op.tobytes())
    if not np.isnan(rows.weight).all():
        kinds |= _WEIGHTS
        parts.append(rows.weight.tobytes())
    if rows.features:
        kinds |= _FEATURES
        for place, seq in enumerate(rows.seq.tolist()):
            values = rows.features.get(seq)
            if values is not None:
                parts += [_PLACE.pack(place, len(values)), values]
    content = _HEAD.pack(0, len(rows), kinds)[4:] + b"".join(parts)
    return struct.pack("<I", zlib.crc32(content)) + content


def unpacked(first: int, blob: bytes) -> Rows:
    """Return the rows that `packed` made; raise ValueError if they are damaged."""
    if len(blob) < _HEAD.size:
        raise ValueError("there are too few bytes")
    checksum, count, kinds = _HEAD.unpack_from(blob)
    if zlib.crc32(blob[4:]) != checksum:
        raise ValueError("they do not match their checksum")
    at = _HEAD.size

    def column(dtype: Any) -> Any:
        nonlocal at
        values = np.frombuffer(blob, dtype, count, at)
        at += values.nbytes
        return values

    t, src, dst = column(np.int64), column(np.int32), column(np.int32)
    op = column(np.uint8) if kinds & _OPS else 0
    weight = column(np.float64) if kinds & _WEIGHTS else np.nan
    features = {}
    while kinds & _FEATURES and at < len(blob):
        place, size = _PLACE.unpack_from(blob, at)
        features[first + place] = blob[at + _PLACE.size : at + _PLACE.size + size]
        at += _PLACE.size + size
    return Rows.of(t, np.arange(first, first + count), src, dst, op, weight, features)


def _without(rows: Rows, gone: Any) -> Rows:
    """Return rows of which some say nothing any more, so that the others keep their numbers."""
    lost = set(rows.seq[gone].tolist())
    return Rows(
        np.where(gone, 0, rows.t),
        rows.seq,
        np.where(gone, GONE, rows.op).astype(np.uint8),
        np.where(gone, NOBODY, rows.src),
        np.where(gone, NOBODY, rows.dst),
        np.where(gone, np.nan, rows.weight),
        {seq: values for seq, values in rows.features.items() if seq not in lost},
    )
