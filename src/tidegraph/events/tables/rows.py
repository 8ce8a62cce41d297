"""The rows of a table, checked: what cannot be used is refused, or dropped and counted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.batch import Op
from tidegraph.events.stream import UNITS, ReadReport, counted
from tidegraph.events.tables.cells import (
    DATE,
    Cells,
    cast_if_all_fit,
    empty_cells,
    is_arrow,
    is_text,
    matching,
    plain_column,
    read_numbers,
    read_operations,
    without_missing,
)
from tidegraph.events.tables.columns import choose_columns
from tidegraph.events.tables.sources import ArrowSource, source_of
from tidegraph.events.tables.times import Clock, Moments, read_times

if TYPE_CHECKING:
    import pyarrow as pa

IntArray: TypeAlias = NDArray[np.int64]

_COMMA = r"^[+-]?[0-9]+,[0-9]+$"  # a decimal, in many countries


@dataclass
class Rows:
    """Rows of one batch that can be used. Ids are int64 arrays, or Arrow arrays of strings.

    Where the table is read without times, all are zero.
    """

    src: Any
    dst: Any
    t: Moments
    weight: NDArray[np.float64] | None = None
    op: NDArray[np.uint8] | None = None
    label: IntArray | None = None
    features: NDArray[np.float32] | None = None


class Reading:
    """One pass over a source: batches become rows, and what is unusable is refused or counted."""

    def __init__(
        self,
        source: Any,
        *,
        unit: str | None,
        on_bad: str,
        header: bool | None,
        delimiter: str | None,
        edge_features: Any,
        roles: Mapping[str, Any],
    ) -> None:
        if on_bad not in ("error", "drop"):
            raise ParameterError(f"on_bad is {on_bad!r}; give 'error' or 'drop'")
        if unit is not None and unit not in UNITS:
            raise ParameterError(f"unit is {unit!r}; give one of {', '.join(UNITS)}")
        self.source = source_of(source, header, delimiter)
        self.chosen = choose_columns(self.source, roles, edge_features)
        self.on_bad = on_bad
        self.dates = self._holds_dates()
        if self.dates and unit not in (None, "s", "ms", "us", "ns"):
            raise ParameterError(
                f"unit is {unit!r}, and t holds dates, which are kept in s, ms, us or ns"
            )
        self.unit = unit
        self._restart()

    def _restart(self) -> None:
        self.read = self.kept = self.unlabelled = 0
        self.dropped: dict[str, int] = {}
        self._examples: dict[str, Any] = {}  # a cell for every reason to drop rows

    def clock(self) -> Clock:
        """A clock for the times of the source, which has seen none yet."""
        return Clock("s" if self.dates else self.unit or "s")

    @property
    def counted(self) -> bool:
        """Whether the times are integers, whose unit is known before any is read."""
        import pyarrow as pa

        return not self.source.untyped and pa.types.is_integer(self._time_type())

    def _time_type(self) -> Any:
        assert isinstance(self.source, ArrowSource)
        return self.source.schema.field(self.chosen.roles["t"]).type

    def _holds_dates(self) -> bool:
        """Whether t holds dates, told by its type, or in text by the first cell that has one."""
        import pyarrow as pa

        if "t" not in self.chosen.roles:
            return False
        if not self.source.untyped:
            kind = self._time_type()
            if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
                return True
            if not is_text(pa.array([], kind)):
                return False
        column = self.chosen.roles["t"]
        for batch in self.source.batches([column], "drop"):
            cells = without_missing(plain_column(batch.column(0))).drop_null()
            if len(cells):
                return re.match(DATE, cells[0].as_py()) is not None
        return False

    def survey(self) -> Clock:
        """The clock of this source, found by a pass over its times alone."""
        clock = self.clock()
        if not self.counted:
            for batch in self.source.batches([self.chosen.roles["t"]], "drop"):
                cells = read_times(batch.column(0), self.dates)
                clock.see(cells.values)
        return clock

    def rows(self, *, sorted_only: bool, weights_only: bool) -> Iterator[Rows]:
        """sorted_only: refuse times that run backwards. weights_only: refuse weights <= 0."""
        self._restart()
        last: tuple[int, float] | None = None
        for batch in self.source.batches(self.chosen.wanted, self.on_bad):
            first, self.read = self.read, self.read + batch.num_rows
            rows, index = self._usable(batch, first, weights_only)
            if sorted_only and len(index):
                last = self._check_order(rows.t, index, last)
            self.kept += len(index)
            if len(index):
                yield rows
        if self.source.ragged:
            self.read += self.source.ragged
            self.dropped["wrong number of cells"] = self.source.ragged
        if self.kept == 0:
            dropped = ""
            if self.read:
                which = f"all {self.read:,} rows were" if self.read > 1 else "the only row was"
                dropped = f": {which} dropped, {self._why_none()}"
            raise DataError(
                f"{self.source.name} holds no events{dropped}; at least one row is needed"
            )

    def _usable(
        self, batch: pa.RecordBatch, first: int, weights_only: bool
    ) -> tuple[Rows, IntArray]:
        """The rows of a batch that can be used, and where they stand in the table."""
        import pyarrow as pa

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        roles = self.chosen.roles
        cells: dict[str, Cells] = {
            "src": self._ids(columns[roles["src"]], "src"),
            "dst": self._ids(columns[roles["dst"]], "dst"),
            "t": read_times(columns[roles["t"]], self.dates)
            if "t" in roles
            else Cells(Moments(np.zeros(batch.num_rows, dtype=np.int64)), []),
        }
        if "op" in roles:
            cells["op"] = read_operations(columns[roles["op"]])
        if "weight" in roles:
            cells["weight"] = self._weights(columns[roles["weight"]], cells.get("op"), weights_only)
        if "label" in roles:
            cells["label"] = self._labels(columns[roles["label"]])
        features = [
            read_numbers(columns[name], f"column {name!r}") for name in self.chosen.features
        ]
        used = np.ones(batch.num_rows, dtype=np.bool_)
        for what, column in [*cells.items(), *zip(self.chosen.features, features, strict=True)]:
            for reason, bad in column.bad:
                bad = bad & used
                if not bad.any():
                    continue
                row = int(bad.argmax())
                cell = columns[roles.get(what, what)][row].as_py()
                if self.on_bad == "error":
                    self._refuse(reason, cell, first + row, what)
                self._examples.setdefault(reason, cell)
                self.dropped[reason] = self.dropped.get(reason, 0) + int(bad.sum())
                used &= ~bad
        matrix = None
        if features:
            with np.errstate(over="ignore"):
                matrix = np.column_stack([column.values.astype(np.float32) for column in features])
        whole = bool(used.all())

        def kept(name: str) -> Any:
            if name not in cells or whole:
                return cells[name].values if name in cells else None
            values = cells[name].values
            return values.filter(pa.array(used)) if is_arrow(values) else values[used]

        rows = Rows(
            kept("src"),
            kept("dst"),
            kept("t"),
            weight=kept("weight"),
            op=kept("op"),
            label=kept("label"),
            features=matrix if matrix is None or whole else matrix[used],
        )
        return rows, first + np.flatnonzero(used)

    def _refuse(self, reason: str, cell: Any, row: int, what: str) -> None:
        shown = "" if cell is None else f": {cell!r}"
        advice = "mend or drop such rows, or say on_bad='drop'"
        if hint := _written_how(reason, cell):
            advice = f"{hint}; {advice}"
        if what == "weight" and "not a number" not in reason:
            advice = (
                "weights are > 0: if the column means something else, say weight=False, or give it"
                " as edge_features; on_bad='drop' drops such rows"
            )
        if what == "label":
            advice = "labels are integers: say label=False to ignore the column"
        raise DataError(f"{self.source.name}, {self.source.place(row)}: {reason}{shown}; {advice}")

    def _why_none(self) -> str:
        """Why no row was kept, with a cell that shows it."""
        reasons = []
        for reason, rows in self.dropped.items():
            cell = self._examples.get(reason)
            shown = "" if cell is None else f" ({cell!r})"
            hint = _written_how(reason, cell)
            reasons.append(f"{rows:,} because {reason}{shown}" + (f": {hint}" if hint else ""))
        return "; ".join(reasons)

    def _ids(self, column: pa.Array, what: str) -> Cells:
        import pyarrow as pa

        column = plain_column(column)
        bad = empty_cells(column, what)
        kind = column.type
        if pa.types.is_null(kind):
            column = column.cast(pa.string())
        if pa.types.is_integer(column.type):
            try:
                values = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                raise DataError(
                    f"{self.source.name}: {what} holds ids of 2**63 and more; give them as text"
                ) from None
            return Cells(values, bad)
        if not is_text(column):
            raise DataError(
                f"{self.source.name}: {what} has type {kind}; node ids are integers or names"
            )
        if self.source.untyped:
            numbers = cast_if_all_fit(column, pa.int64())
            # "007" stays a name: as a number it would be another's.
            if not is_text(numbers) and numbers.cast(pa.string()).equals(column):
                return Cells(numbers.fill_null(0).to_numpy(zero_copy_only=False), bad)
        if self.source.untyped and matching(column, r"^-?[0-9]*\.[0-9]+$").all():
            raise DataError(
                f"{self.source.name}: {what} holds fractions like {column[0]}; node ids are"
                " integers or names"
            )
        return Cells(column.fill_null(""), bad)

    def _weights(self, column: pa.Array, op: Cells | None, only: bool) -> Cells:
        cells = read_numbers(column, "weight")
        values = cells.values = cells.values.astype(np.float64)
        infinite = np.isinf(values)
        if op is not None:
            infinite &= op.values != Op.REMOVE
        if infinite.any():
            cells.bad.append(("weight is not finite", infinite))
        if (only or "weight" not in self.chosen.guessed) and (values <= 0).any():
            cells.bad.append(("weight is not positive", values <= 0))
        return cells

    def _labels(self, column: pa.Array) -> Cells:
        cells = read_numbers(column, "label")
        missing = np.zeros(len(column), dtype=np.bool_)
        for reason, bad in cells.bad:
            if reason == "label is missing":
                missing |= bad
        cells.bad = [(reason, bad) for reason, bad in cells.bad if reason != "label is missing"]
        fraction = cells.values != np.rint(cells.values)
        if fraction.any():
            cells.bad.append(("label is not an integer", fraction))
        cells.values = np.where(missing, -1, np.rint(cells.values)).astype(np.int64)
        self.unlabelled += int(missing.sum())
        return cells

    def _check_order(
        self, t: Moments, index: IntArray, last: tuple[int, float] | None
    ) -> tuple[int, float]:
        rest = np.zeros(len(t.whole)) if t.rest is None else t.rest
        whole = t.whole
        if last is not None:
            whole, rest = np.append(last[0], whole), np.append(last[1], rest)
        back = (whole[1:] < whole[:-1]) | ((whole[1:] == whole[:-1]) & (rest[1:] < rest[:-1]))
        if back.any():
            at = int(back.argmax())
            row = int(index[at + 1 if last is None else at])
            now, before = (_shown(int(whole[k]), float(rest[k])) for k in (at + 1, at))
            raise DataError(
                f"{self.source.name} is not in time order: t is {now} in {self.source.place(row)},"
                f" after {before}; sort it by t, or give sort=True"
            )
        return int(whole[-1]), float(rest[-1])

    def unit_by(self, clock: Clock) -> tuple[str, str]:
        """The unit of the stream, once the clock has seen all times, and a sentence about it."""
        found, factor = clock.scale
        if self.dates:
            if self.unit is not None:
                levels = [name for name, _ in clock.scales]
                if levels.index(self.unit) < levels.index(found):
                    raise DataError(
                        f"{self.source.name}: t needs unit {found}, and {self.unit} was given"
                    )
                found = self.unit
            return (
                found,
                f"t holds dates, kept in {found} since 1970 (UTC where no zone is written)",
            )
        if factor != 1:
            return found, f"t has fractions of {clock.scales[0][0]} and is kept in {found}"
        how = "as given" if self.unit else "as nothing else was said"
        return found, f"t counts {found}, {how}"

    def report(self, notes: Sequence[str]) -> ReadReport:
        notes = [*self.chosen.notes, *notes]
        if self.source.comments:
            lines = counted(self.source.comments, "line")
            notes.append(f"{lines} beginning with # or % passed over as comments")
        if self.unlabelled:
            notes.append(f"{counted(self.unlabelled, 'row')} without a label, which is kept as -1")
        return ReadReport(self.source.name, self.read, self.kept, dict(self.dropped), tuple(notes))


def _written_how(reason: str, cell: Any) -> str:
    """How what is in a cell is to be written, where that may be unknown."""
    if isinstance(cell, str) and re.match(_COMMA, cell.strip()):
        return "decimals are written with a point, as 1.5"
    if reason in ("t is not a number", "t is not an ISO date"):
        return "times are ISO dates like 2024-03-01 10:01, or numbers, and all of one kind"
    return ""


def _shown(whole: int, rest: float) -> str:
    """A time as a decimal with what digits it has, nine behind the point at most."""
    billionths = whole * 10**9 + round(rest * 10**9)
    sign, (before, after) = "-" if billionths < 0 else "", divmod(abs(billionths), 10**9)
    return f"{sign}{before}.{after:09d}".rstrip("0").rstrip(".")
