"""Events of a file, a table or a pipe sent to a server, batch by batch, resuming where it stopped.

The key of a batch is `SOURCE@END:BEGIN:DIGEST`. The server stores it with the events, so how far it
has a source is known to the server alone, and no file here could disagree with it.
"""

from __future__ import annotations

import hashlib
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from tidegraph.core.errors import DataError, RowError
from tidegraph.core.progress import Progress, silent
from tidegraph.events.moments import SECONDS
from tidegraph.live.answers import Receipt

if TYPE_CHECKING:
    from tidegraph.events.stream import EventStream
    from tidegraph.live.client import Client

_DIGITS = 20
_BATCH_S = 0.2  # after which the lines of a pipe are sent, however few
_LONGEST = 8 << 20  # bytes of a batch


@dataclass(frozen=True)
class Batch:
    """Lines to be sent together, where they begin and end, and how many were sent before them."""

    begin: int
    end: int
    body: bytes
    first_row: int = 0

    @property
    def position(self) -> str:
        """Where the source stands after it, with what is needed to recognise it."""
        digest = hashlib.sha256(self.body).hexdigest()[:16]
        return f"{self.end:0{_DIGITS}}:{self.begin:0{_DIGITS}}:{digest}"


@dataclass
class Sent:
    """What became of the events that were sent, and where the source was resumed."""

    accepted: int = 0
    duplicate: int = 0
    late: int = 0
    seq: int = 0
    resumed_at: int = 0

    def add(self, receipt: Receipt) -> None:
        """Count the events of a receipt."""
        self.accepted += receipt.accepted
        self.duplicate += receipt.duplicate
        self.late += receipt.late
        self.seq = receipt.seq


class Lines(Protocol):
    """A source of lines that can be read from any position."""

    end: int
    of: str
    unfinished: bool

    def batches(self, begin: int, size: int) -> Iterator[Batch]:
        """Yield the batches from a position on."""

    def read(self, begin: int, end: int) -> bytes:
        """Return the lines between two positions."""


class LineFile:
    """A file of one JSON object per line; positions are bytes.

    unfinished: whether the last line is left out, as somebody still writes it.
    """

    of = "bytes"
    unfinished = False

    def __init__(self, path: Path) -> None:
        self._path, self.end = path, path.stat().st_size

    def batches(self, begin: int, size: int) -> Iterator[Batch]:
        row = 0
        with self._path.open("rb") as file:
            file.seek(begin)
            while lines := _some_lines(file, size):
                if _is_cut(lines[-1]):
                    self.unfinished = True
                    lines.pop()
                    if not lines:
                        return
                body = b"".join(lines)
                yield Batch(begin, begin + len(body), body, row)
                begin, row = begin + len(body), row + len(lines)

    def read(self, begin: int, end: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)


def _is_cut(line: bytes) -> bool:
    """Return whether a line is the beginning of an object whose end is not there yet."""
    if line.endswith(b"\n"):
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return "truncated" in str(error) or isinstance(error, UnicodeDecodeError)
    except RecursionError:
        return False
    return False


def _some_lines(file: IO[bytes], size: int) -> list[bytes]:
    lines: list[bytes] = []
    length = 0
    while len(lines) < size and length < _LONGEST and (line := file.readline()):
        lines.append(line)
        length += len(line)
    return lines


class StreamRows:
    """The events of a stream as lines; positions are rows."""

    of = "events"
    unfinished = False

    def __init__(self, stream: EventStream) -> None:
        self._stream, self.end = stream, len(stream)
        self._sides = stream.names is not None and stream.names.by_side

    def batches(self, begin: int, size: int) -> Iterator[Batch]:
        for first in range(begin, self.end, size):
            last = min(first + size, self.end)
            yield Batch(first, last, self.read(first, last), first - begin)

    def due(self, begin: int, size: int, speed: float) -> Iterator[Batch]:
        """Yield the events from a row on when they are due, so many times as fast as they were."""
        unit, t = self._stream.unit, self._stream.t
        if unit not in SECONDS:
            raise DataError(f"times that count {unit}s do not say when an event is due")
        begun, row, per_s = time.monotonic(), begin, speed / SECONDS[unit]
        while row < self.end:
            time.sleep(max(0.0, begun + (int(t[row]) - int(t[begin])) / per_s - time.monotonic()))
            now = int(t[begin]) + (time.monotonic() - begun) * per_s
            last = min(row + size, max(row + 1, int(np.searchsorted(t, now, "right"))))
            yield Batch(row, last, self.read(row, last), row - begin)
            row = last

    def read(self, begin: int, end: int) -> bytes:
        part = slice(begin, end)
        stream = self._stream
        columns: dict[str, list[Any]] = {
            "src": stream.name(stream.src[part]).tolist(),
            "dst": stream.name(stream.dst[part]).tolist(),
            "t": stream.t[part].tolist(),
        }
        if self._sides:  # "src ann": the server adds the side itself
            for side in ("src", "dst"):
                columns[side] = [name.partition(" ")[2] for name in columns[side]]
        if stream.weight is not None:
            columns["weight"] = stream.weight[part].tolist()
        if stream.op is not None:
            columns["op"] = [("add", "remove", "set")[op] for op in stream.op[part].tolist()]
        rows = zip(*columns.values(), strict=True)
        encode = msgspec.json.encode
        return b"".join(encode(dict(zip(columns, row, strict=True))) + b"\n" for row in rows)


def source_name(path: Path) -> str:
    """Return the name under which a server knows the position of a file."""
    whole = os.fsencode(path.resolve())
    short = "".join(c for c in path.name if c.isascii() and (c.isalnum() or c in ".-_"))[:60]
    return f"{short or 'file'}-{hashlib.sha256(whole).hexdigest()[:12]}"


def send_lines(
    client: Client,
    lines: Lines,
    source: str,
    *,
    size: int = 1000,
    speed: float | None = None,
    progress: Progress = silent,
) -> Sent:
    """Send what a server does not have of a source yet.

    speed: send events when they are due, so many times as fast as they happened; None: at once.
    Raise DataError if the lines that were sent last time are not the same any more.
    """
    sent = Sent()
    begin = sent.resumed_at = _resumed(client, lines, source)
    batches = lines.batches(begin, size)
    if speed is not None:
        if not isinstance(lines, StreamRows):
            raise DataError("only events of a table can be sent when they are due")
        batches = lines.due(begin, size, speed)
    for batch in batches:
        try:
            sent.add(client.send(batch.body, key=f"{source}@{batch.position}"))
        except RowError as error:
            where = batch.first_row + error.row + 1
            place = f"{where:,}" if not begin else f"{where:,} after those that were sent before"
            raise DataError(
                f"line {place} is rejected: {error}. The {batch.first_row:,} lines before it were"
                " sent; correct it and give the command again"
            ) from None
        progress(batch.end, max(lines.end, batch.end), lines.of)
    return sent


def _resumed(client: Client, lines: Lines, source: str) -> int:
    """Return from where on to send, after a look at the last lines that were sent."""
    position = client.position(source)
    if position is None:
        return 0
    end, begin, _ = position.split(":")
    first, last = int(begin), int(end)
    if last > lines.end or Batch(first, last, lines.read(first, last)).position != position:
        raise DataError(
            f"the server has {last:,} {lines.of} of {source}, and they are not those that are"
            " there now; give --name NEW to send them all as another source"
        )
    return last


def send_pipe(client: Client, pipe: IO[bytes], *, size: int = 1000) -> Sent:
    """Send the lines of a pipe as they come, until it ends."""
    sent, rows = Sent(), 0
    for lines in _arriving(pipe, size):
        try:
            sent.add(client.send(b"".join(lines)))
        except RowError as error:
            raise DataError(
                f"line {rows + error.row + 1:,} is rejected: {error}. Lines up to {rows:,} were"
                " sent"
            ) from None
        rows += len(lines)
    return sent


def _arriving(pipe: IO[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield lines together that come within a short time."""
    rest, lines = b"", list[bytes]()
    due: float | None = None
    while True:
        wait = None if due is None else max(0.0, due - time.monotonic())
        ready = select.select([pipe], [], [], wait)[0]
        piece = os.read(pipe.fileno(), 1 << 16) if ready else b""
        *whole, rest = (rest + piece).split(b"\n")
        lines += [line + b"\n" for line in whole]
        ended = bool(ready) and not piece
        if ended and rest:
            lines.append(rest)
        while len(lines) >= size:
            yield lines[:size]
            lines, due = lines[size:], None
        if lines and due is None:
            due = time.monotonic() + _BATCH_S
        if lines and due is not None and (ended or time.monotonic() >= due):
            yield lines
            lines, due = [], None
        if ended:
            return
