"""Incoming events: objects, columns or a stream, checked and as columns of plain Python types.

The one place that validates what comes in. An error names the row and the field, and none of the
events of its call is taken.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from tidegraph.core.declarations import nearest
from tidegraph.core.errors import DataError, EventError, RowError
from tidegraph.events.columns import TIME_LIMIT, WEIGHT_MAX, WEIGHT_MIN, WEIGHT_RANGE, IntArray
from tidegraph.events.moments import SECONDS, moment
from tidegraph.events.names import Side
from tidegraph.events.stream import EventStream

LONGEST = 1024  # characters of a name or an id
_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")


class Kind(IntEnum):
    """What a row of the log does; the first three are `Op`."""

    ADD = 0
    REMOVE = 1
    SET = 2
    REMOVE_NODE = 3
    FEATURES = 4
    MARK = 5


_OPS = {kind.name.lower(): int(kind) for kind in Kind if kind is not Kind.MARK}
_EDGE_FIELDS = ("src", "dst", "t", "weight", "op", "id")
_FIELDS = (*_EDGE_FIELDS, "node", "features")


@dataclass(frozen=True)
class Incoming:
    """Events as columns of plain types; a column of None stands for its default in every row."""

    op: list[int] | None
    src: list[str]  # the node, where the op is about one
    dst: Sequence[str | None]
    t: IntArray
    weight: list[float | None] | None
    id: list[str | None] | None
    features: list[bytes | None] | None

    def __len__(self) -> int:
        return len(self.src)

    def take(self, places: Sequence[int]) -> Incoming:
        """Return the events at some places."""

        def some(column: Any) -> Any:
            return None if column is None else [column[place] for place in places]

        return Incoming(
            some(self.op),
            some(self.src),
            some(self.dst),
            self.t[places],
            some(self.weight),
            some(self.id),
            some(self.features),
        )


@dataclass(frozen=True)
class Reader:
    """How a directory reads events.

    integers: whether names are whole numbers. by_side: whether an id is one node as a source and
    another as a destination. columns: of the features of a node.
    """

    unit: str
    integers: bool
    by_side: bool
    columns: int

    def read(self, events: Any, most: int, ahead: int | None = None) -> Incoming:
        """Return events as columns: a list of objects, one object, columns, or an `EventStream`.

        ahead: how far ahead of the clock their times may be; None: as far as they say.
        """
        found = self._incoming(events, most)
        if ahead is not None and len(found):
            row, last = int(found.t.argmax()), self.now() + ahead
            if found.t[row] > last:
                raise RowError(
                    f"row {row}: t is {found.t[row]}, which is later than {last}, the latest that"
                    f" the clock and the setting ahead allow; give times in {self.unit}",
                    row,
                    "t",
                )
        return found

    def _incoming(self, events: Any, most: int) -> Incoming:
        if isinstance(events, EventStream):
            return self._stream(events)
        if hasattr(events, "to_pydict"):  # of Arrow
            events = events.to_pydict()
        columns = self._columns(events)
        count = len(next(iter(columns.values()), ()))
        if count > most:
            raise EventError(f"{count:,} events in one call; give at most {most:,} at once")
        return self._read(columns, count)

    def name(self, value: Any, side: Side | None = None) -> str:
        """Return the name of a node as it is stored; raise DataError for what cannot be one."""
        kind = type(value)
        if kind is not str:
            if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
                value = str(int(value))
            elif isinstance(value, str):
                value = str(value)
            else:
                raise DataError(f"{value!r} is no name; give a text or a whole number")
        if len(value) > LONGEST:
            raise DataError(f"a name of {len(value):,} characters; give at most {LONGEST:,}")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise DataError(f"{value!r} is no name; give text that is valid Unicode") from None
        if self.integers and not _INTEGER.fullmatch(value):
            raise DataError(f"{value!r} is no name here; names are whole numbers")
        return value if side is None or not self.by_side else f"{side} {value}"

    def _columns(self, events: Any) -> dict[str, Sequence[Any]]:
        if isinstance(events, Mapping):
            given = {name: _listed(values) for name, values in events.items()}
            # The features of one event are a list, too.
            if any(isinstance(given[name], list) for name in given if name != "features"):
                return self._same_length(given)
            events = [events]
        if isinstance(events, (str, bytes)) or not isinstance(events, Iterable):
            raise EventError(
                f"events are a {type(events).__name__}; give a list of objects with src and dst,"
                " or an object of columns"
            )
        rows = events if isinstance(events, list) else list(events)
        for row, event in enumerate(rows):
            if not isinstance(event, Mapping):
                raise RowError(
                    f"row {row} is a {type(event).__name__}; give an object with src and dst", row
                )
        fields = set().union(*rows)
        if rows and not fields:
            raise RowError("row 0 has no src; give it a name", 0, "src")
        self._known(fields, lambda field: next(i for i, row in enumerate(rows) if field in row))
        return {field: [event.get(field) for event in rows] for field in _FIELDS if field in fields}

    def _same_length(self, columns: dict[str, Any]) -> dict[str, Sequence[Any]]:
        self._known(columns, lambda _: 0)
        lists = {name: values for name, values in columns.items() if isinstance(values, list)}
        lengths = {name: len(values) for name, values in lists.items()}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise EventError(f"columns differ in length: {found}; give one value per event")
        count = next(iter(lengths.values()))
        return {name: lists.get(name, [value] * count) for name, value in columns.items()}

    @staticmethod
    def _known(fields: Iterable[Any], row_of: Callable[[Any], int]) -> None:
        for field in fields:
            if field not in _FIELDS:
                near = nearest(str(field), _FIELDS)
                hint = f"did you mean {near!r}?" if near else f"fields are {', '.join(_FIELDS)}"
                row = row_of(field)
                raise RowError(f"row {row} has a field {field!r}; {hint}", row, str(field))

    def _read(self, columns: Mapping[str, Sequence[Any]], count: int) -> Incoming:
        op = self._ops(columns.get("op"))
        of_nodes = op is not None and max(op) > Kind.SET
        src: list[str]
        dst: Sequence[str | None]
        if of_nodes or "node" in columns or "features" in columns:
            src, dst, features = self._with_nodes(columns, op, count)
        else:
            for field in ("src", "dst"):
                if field not in columns and count:
                    raise RowError(f"row 0 has no {field}; give it a name", 0, field)
            src, dst = (self._names(columns.get(side, ()), side) for side in ("src", "dst"))
            features = None
        return Incoming(
            op,
            src,
            dst,
            self._times(columns.get("t"), count),
            self._weights(columns.get("weight"), op),
            self._ids(columns.get("id")),
            features,
        )

    def _ops(self, values: Sequence[Any] | None) -> list[int] | None:
        if values is None or not any(value is not None for value in values):
            return None
        found = []
        for row, value in enumerate(values):
            op = Kind.ADD if value is None else _OPS.get(value) if isinstance(value, str) else None
            if op is None:
                raise RowError(
                    f"row {row}: op is {value!r}; give one of {', '.join(_OPS)}", row, "op"
                )
            found.append(int(op))
        return found if any(found) else None

    def _names(self, values: Sequence[Any], side: Side | None) -> list[str]:
        simple = not self.integers and not self.by_side and set(map(type, values)) <= {str}
        if simple and "".join(values).isascii() and max(map(len, values), default=0) <= LONGEST:
            return list(values)  # nearly all events, without a call per name
        return [self._checked_name(value, row, side) for row, value in enumerate(values)]

    def _checked_name(self, value: Any, row: int, field: str | None, side: Any = ...) -> str:
        try:
            return self.name(value, field if side is ... else side)  # type: ignore[arg-type]
        except DataError as error:
            if value is None:
                raise RowError(f"row {row} has no {field}; give it a name", row, field) from None
            raise RowError(f"row {row}: {field}: {error}", row, field) from None

    def _with_nodes(
        self, columns: Mapping[str, Sequence[Any]], op: list[int] | None, count: int
    ) -> tuple[list[str], list[str | None], list[bytes | None] | None]:
        """Return the columns of events some of which are about a node."""
        empty: Sequence[Any] = [None] * count
        given = [columns.get(name, empty) for name in ("src", "dst", "node", "features")]
        src: list[str] = []
        dst: list[str | None] = []
        features: list[bytes | None] = []
        for row, (kind, a, b, node, values) in enumerate(
            zip(op or itertools.repeat(0, count), *given, strict=True)
        ):
            about_node = kind > Kind.SET
            wrong = ("src", "dst") if about_node else ("node",)
            for field, value in zip(("src", "dst", "node"), (a, b, node), strict=True):
                if field in wrong and value is not None:
                    takes = "node" if about_node else "src and dst"
                    word = Kind(kind).name.lower()
                    raise RowError(
                        f"row {row}: {word} has {field} {value!r}; it takes {takes}", row, field
                    )
            if (values is None) == (kind == Kind.FEATURES):
                verb = "needs" if values is None else "does not take"
                raise RowError(
                    f"row {row}: {Kind(kind).name.lower()} {verb} features", row, "features"
                )
            if about_node:
                src.append(self._checked_name(node, row, "node", None))
                dst.append(None)
            else:
                src.append(self._checked_name(a, row, "src"))
                dst.append(self._checked_name(b, row, "dst"))
            features.append(None if values is None else self._features(values, row))
        return src, dst, features if any(values is not None for values in features) else None

    def _features(self, values: Any, row: int) -> bytes:
        try:
            array = np.asarray(values, dtype=np.float64)
            fine = array.shape == (self.columns,) and bool((np.abs(array) <= 2.0**64).all())
        except (ValueError, TypeError, OverflowError):
            fine = False
        if not fine:
            raise RowError(
                f"row {row}: features are not {self.columns} finite numbers up to 2**64; give one"
                " per column",
                row,
                "features",
            )
        return array.tobytes()

    def _times(self, values: Sequence[Any] | None, count: int) -> IntArray:
        if values is None:
            return np.full(count, self._arrival(0) if count else 0, dtype=np.int64)
        if set(map(type, values)) <= {int}:
            numbers = values
        else:
            numbers = [self._time(value, row) for row, value in enumerate(values)]
        with contextlib.suppress(OverflowError):
            times = np.array(numbers, dtype=np.int64)
            if not len(times) or -TIME_LIMIT < times.min() <= times.max() < TIME_LIMIT - 1:
                return times
        row = next(k for k, t in enumerate(numbers) if not -TIME_LIMIT < t < TIME_LIMIT - 1)
        raise RowError(
            f"row {row}: t is {numbers[row]}; times lie strictly between -2**62 and 2**62 - 1",
            row,
            "t",
        )

    def _time(self, value: Any, row: int) -> int:
        if value is None:
            return self._arrival(row)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return int(value)
        try:
            return moment(value, self.unit)
        except DataError as error:
            raise RowError(f"row {row}: t: {error}", row, "t") from None

    def _arrival(self, row: int) -> int:
        """Return the present time."""
        if self.unit not in SECONDS or self.unit == "year":
            raise RowError(
                f"row {row} has no t; times here count {self.unit}s, so that the time of arrival is"
                " not one of them: give t",
                row,
                "t",
            )
        return self.now()

    def now(self) -> int:
        """Return the present time, in a unit that has a length."""
        return time.time_ns() // round(SECONDS[self.unit] * 10**9)

    def _weights(
        self, values: Sequence[Any] | None, op: list[int] | None
    ) -> list[float | None] | None:
        if values is None or not any(value is not None for value in values):
            return None
        found: list[float | None] = []
        for row, value in enumerate(values):
            kind = 0 if op is None else op[row]
            number = None if value is None else _number(value)
            if number is not None:
                whole = kind == Kind.REMOVE and number == math.inf
                if kind > Kind.SET or not (whole or WEIGHT_MIN <= number <= WEIGHT_MAX):
                    rule = WEIGHT_RANGE if kind <= Kind.SET else "an op about a node has none"
                    raise RowError(f"row {row}: weight is {value!r}; {rule}", row, "weight")
                number = None if whole else number
            found.append(number)
        return found

    @staticmethod
    def _ids(values: Sequence[Any] | None) -> list[str | None] | None:
        if values is None or not any(value is not None for value in values):
            return None
        found: list[str | None] = []
        for row, value in enumerate(values):
            known = value
            if isinstance(value, int) and not isinstance(value, bool):
                known = str(value)
            if known is not None and not is_key(known):
                raise RowError(
                    f"row {row}: id is {str(value)[:40]!r}; give a text of 1 to {LONGEST:,}"
                    " characters, or a whole number",
                    row,
                    "id",
                )
            found.append(known)
        return found

    def _stream(self, stream: EventStream) -> Incoming:
        """Return the events of a stream, whose names are whole ones already."""
        if stream.unit != self.unit:
            raise EventError(
                f"the events count time in {stream.unit}, and the directory in {self.unit}; read"
                f" them again with unit={self.unit!r}"
            )
        by_side = stream.names is not None and stream.names.by_side
        if by_side != self.by_side:
            one, other = ("by side", "alike") if by_side else ("alike", "by side")
            raise EventError(f"the events name their nodes {one}, and the directory {other}")
        src, dst = (stream.name(numbers).tolist() for numbers in (stream.src, stream.dst))
        plain = Reader(self.unit, self.integers, False, self.columns)  # names have their side
        op = None if stream.op is None else stream.op.tolist()
        weight = None if stream.weight is None else stream.weight.tolist()
        return Incoming(
            op,
            plain._names(src, None),
            plain._names(dst, None),
            stream.t,
            self._weights(weight, op),
            None,
            None,
        )


def _listed(values: Any) -> Any:
    """Return the values of a column as a list of plain types; one value as it is."""
    if hasattr(values, "tolist"):
        return values.tolist()
    return list(values) if isinstance(values, tuple) else values


def is_key(value: Any) -> bool:
    """Return whether a value can be an id or the key of a request."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True


def _number(value: Any) -> float:
    """Return a value as a float; NaN where it is no number."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return math.nan
    try:
        return float(value)
    except (OverflowError, TypeError):
        return math.nan
