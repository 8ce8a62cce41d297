"""Bodies of requests: read up to a limit, and decoded by their content type."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tidegraph.core.errors import TidegraphError
from tidegraph.core.words import counted

if TYPE_CHECKING:
    from pyarrow import RecordBatch

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
ARROW = "application/vnd.apache.arrow.stream"
EVENT_TYPES = (JSON, *NDJSON, ARROW)
_BODY_S = 60.0  # for a body to arrive
_ONE_LINE = msgspec.json.Decoder()


class _Event(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event in the fields and types that nearly all have; a body of others is read as objects,
    one by one.
    """

    src: str | int
    dst: str | int
    t: int | float | str | None = None
    weight: int | float | None = None
    op: str | None = None
    id: str | int | None = None


_EVENT = msgspec.json.Decoder(_Event)
_EVENTS = msgspec.json.Decoder(list[_Event])
# What a decoder raises.
_DECODING = msgspec.DecodeError, UnicodeDecodeError, RecursionError


class RequestError(TidegraphError):
    """A request that cannot be answered: its status code, and the line and field at fault."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        line: int | None = None,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.line, self.field, self.retry_after_s = line, field, retry_after_s


@dataclass(frozen=True)
class Decoded:
    """The events of a body, and the line of the body that each of them is on."""

    events: Any  # a list of objects, or columns
    lines: list[int] | None  # None: event k is number k + 1

    def __len__(self) -> int:
        if isinstance(self.events, dict):
            return max(map(len, self.events.values()), default=0)
        return len(self.events)

    def line(self, row: int) -> int:
        """Return where the reader of the body finds an event, counted from 1."""
        return row + 1 if self.lines is None else self.lines[row]


async def read_body(stream: AsyncIterator[bytes], length: str | None, most: int) -> bytes:
    """Return the body of a request, or raise RequestError (413) once it is larger than `most`."""
    if length is not None and length.isdecimal() and int(length[:20]) > most:
        raise _too_large(most)
    pieces, size = [], 0
    async for piece in stream:
        size += len(piece)
        if size > most:
            raise _too_large(most)
        pieces.append(piece)
    return b"".join(pieces)


async def received(stream: AsyncIterator[bytes], length: str | None, most: int) -> bytes:
    """Return what `read_body` does; raise RequestError (408) if it takes too long."""
    try:
        return await asyncio.wait_for(read_body(stream, length, most), _BODY_S)
    except asyncio.TimeoutError:
        raise RequestError(
            408, "timeout", f"the body did not arrive within {_BODY_S:.0f} s; send it again"
        ) from None


def _too_large(most: int) -> RequestError:
    return RequestError(
        413, "too_large", f"the body is larger than {most:,} bytes; send it in several requests"
    )


def media_type(header: str | None, encoding: str | None, accepted: tuple[str, ...]) -> str:
    """Return the media type of a body, or raise RequestError (415) if it is not accepted."""
    given = (header or "").partition(";")[0].strip().lower()
    if given not in accepted:
        raise RequestError(
            *(415, "unsupported_media_type"),
            f"the Content-Type is {header!r}; send one of {', '.join(accepted)}",
        )
    if encoding not in (None, "", "identity"):
        raise RequestError(
            *(415, "unsupported_media_type"),
            f"the Content-Encoding is {encoding!r}; send the body as it is",
        )
    return given


def decode_events(body: bytes, kind: str, most: int) -> Decoded:
    """Return the events of a body, or raise RequestError (400) if it is not of this kind.

    most: of Arrow, whose few bytes may stand for any number of rows.
    """
    if kind == ARROW:
        return Decoded(_arrow_columns(body, most), None)
    if kind == JSON:
        with contextlib.suppress(*_DECODING):
            return Decoded(_columns(_EVENTS.decode(body)), None)
        found = _json(body, None)
        events = found if isinstance(found, list) else [found]
        _check_objects(events, Decoded(events, None))
        return Decoded(events, None)
    return _lines(body)


def _columns(events: list[_Event]) -> dict[str, list[Any]]:
    """Return the columns of events; those that none of them has are left out."""
    columns: dict[str, list[Any]] = {
        "src": [event.src for event in events],
        "dst": [event.dst for event in events],
        "t": [event.t for event in events],
        "weight": [event.weight for event in events],
        "op": [event.op for event in events],
        "id": [event.id for event in events],
    }
    return {k: each for k, each in columns.items() if not each or each.count(None) < len(each)}


def _lines(body: bytes) -> Decoded:
    with contextlib.suppress(*_DECODING):
        usual = _EVENT.decode_lines(body)
        return Decoded(_columns(usual), _line_numbers(body, len(usual)))
    try:
        events = _ONE_LINE.decode_lines(body)
        lines = _line_numbers(body, len(events))
    except _DECODING:
        # Find the line; a body without line ends is one.
        numbered = [(k, line) for k, line in enumerate(body.split(b"\n"), 1) if line.strip()]
        lines = [k for k, _ in numbered]
        events = [_json(line, k) for k, line in numbered]
    decoded = Decoded(events, lines)
    _check_objects(events, decoded)
    return decoded


def _line_numbers(body: bytes, events: int) -> list[int] | None:
    """Return the line of each event; None if no line is empty."""
    if events == body.count(b"\n") + (not body.endswith(b"\n")):
        return None
    return [k for k, line in enumerate(body.split(b"\n"), 1) if line.strip()]


def _check_objects(events: list[Any], decoded: Decoded) -> None:
    for row, event in enumerate(events):
        if type(event) is not dict:
            raise RequestError(
                *(422, "bad_event"),
                f"this event is {_shown(event)}; each is an object like"
                ' {"src": "ann", "dst": "bob", "t": 1700000000000}',
                line=decoded.line(row),
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _json(body: bytes, line: int | None) -> Any:
    try:
        return _ONE_LINE.decode(body)
    except _DECODING as error:
        message = f"this is not JSON: {error}"
        raise RequestError(400, "bad_json", message, line=line) from None


def _arrow_columns(body: bytes, most: int) -> dict[str, Any]:
    """Return the columns of an Arrow stream; a missing value is None."""
    import pyarrow as pa

    try:
        _check_batches(body, most)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            batches: list[RecordBatch] = list(reader)
            table = pa.Table.from_batches(batches, schema=reader.schema)
            table.validate(full=True)
            return {name: _values(table.column(name)) for name in table.column_names}
    # Damaged bytes surface as any of these; the reader checks all lengths against the buffer.
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError, struct.error) as error:
        first = str(error).partition("\n")[0]
        raise RequestError(
            400, "bad_arrow", f"this is not a stream of Arrow record batches: {first}"
        ) from None


def _check_batches(body: bytes, most: int) -> None:
    """Raise RequestError for an Arrow stream that takes far more memory than bytes: with too many
    rows (413), compressed (415), or of types whose values may repeat the same bytes (422).
    """
    import pyarrow as pa

    rows = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        if message.type == "schema":
            for field in pa.ipc.read_schema(message):
                if not _is_plain(field.type):
                    raise RequestError(
                        *(422, "bad_event"),
                        f"the column {field.name} is of {field.type}; send texts, numbers, times or"
                        " lists of numbers",
                        field=field.name,
                    )
        elif message.type in ("record batch", "dictionary"):
            header = _Table.root(message.metadata.to_pybytes()).table(2)
            batch = header if message.type == "record batch" else header.table(1)
            if batch.at(3) is not None:
                raise RequestError(
                    *(415, "unsupported_media_type"),
                    "the record batches are compressed; send them as they are",
                )
            rows += batch.number(0) if message.type == "record batch" else 0
            check_count(rows, most)


def _is_plain(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return _is_plain(kind.value_type) and not types.is_dictionary(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind):
        kind = kind.value_type
        return bool(types.is_integer(kind) or types.is_floating(kind))
    fits = (types.is_integer, types.is_floating, types.is_boolean, types.is_temporal, types.is_null)
    return any(each(kind) for each in (*fits, types.is_string, types.is_large_string))


@dataclass(frozen=True)
class _Table:
    """A table of FlatBuffers, the format of what Arrow says about a message."""

    content: bytes
    place: int

    @classmethod
    def root(cls, content: bytes) -> _Table:
        return cls(content, _UINT.unpack_from(content)[0])

    def at(self, field: int) -> int | None:
        """Return where a field is; None where it has its default."""
        described = self.place - _INT.unpack_from(self.content, self.place)[0]
        if 4 + 2 * field >= _USHORT.unpack_from(self.content, described)[0]:
            return None
        offset = _USHORT.unpack_from(self.content, described + 4 + 2 * field)[0]
        return self.place + offset if offset else None

    def table(self, field: int) -> _Table:
        place = self.at(field)
        if place is None:
            raise ValueError("a message has no header")
        return _Table(self.content, place + _UINT.unpack_from(self.content, place)[0])

    def number(self, field: int) -> int:
        place = self.at(field)
        return 0 if place is None else int(_LONG.unpack_from(self.content, place)[0])


_USHORT, _INT, _UINT, _LONG = map(struct.Struct, ("<H", "<i", "<I", "<q"))


def _values(column: Any) -> Any:
    """Return a column as an array if it holds numbers only, else as a list."""
    import pyarrow.types as types

    if types.is_dictionary(column.type):  # each text once, however often it occurs
        found: list[Any] = []
        for chunk in column.chunks:
            values = chunk.dictionary.to_pylist()
            found += [None if at is None else values[at] for at in chunk.indices.to_pylist()]
        return found
    number = types.is_integer(column.type) or types.is_floating(column.type)
    return column.to_numpy() if number and not column.null_count else column.to_pylist()


def check_count(count: int, most: int) -> None:
    """Raise RequestError (413) for more events than one request may hold."""
    if count > most:
        raise RequestError(
            *(413, "too_large"),
            f"the request has {counted(count, 'event')}; send at most {most:,} at a time",
        )


def parse_json(body: bytes, model: Any) -> Any:
    """Return a body as an instance of a pydantic model, or raise RequestError (400, 422)."""
    from pydantic import ValidationError

    _json(body, None)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        raise RequestError(
            422, "bad_request", f"{field or 'the body'}: {first['msg']}", field=field
        ) from None
