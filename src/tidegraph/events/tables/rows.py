"""The rows of a table, checked: a bad row is an error, or dropped and counted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.words import counted
from tidegraph.events.columns import WEIGHT_MAX, WEIGHT_MIN, WEIGHT_RANGE, IntArray, Op
from tidegraph.events.moments import UNITS
from tidegraph.events.read_report import ReadReport
from tidegraph.events.tables import cells
from tidegraph.events.tables.advice import Options, TableError
from tidegraph.events.tables.cells import DATE, Bad, Cells
from tidegraph.events.tables.columns import choose_columns
from tidegraph.events.tables.numbering import Numbering
from tidegraph.events.tables.sources import ArrowSource, TextSource, source_of
from tidegraph.events.tables.times import Clock, Moments, read_times

if TYPE_CHECKING:
    import pyarrow as pa

_COMMA = r"^[+-]?[0-9]+,[0-9]+$"  # a decimal in many countries


@dataclass
class Rows:
    """The usable rows of one batch. Ids are int64 arrays, or Arrow arrays of strings.

    All times are zero if the table is read without times.
    """

    src: Any
    dst: Any
    t: Moments
    weight: NDArray[np.float64] | None = None
    op: NDArray[np.uint8] | None = None
    label: IntArray | None = None
    features: NDArray[np.float32] | None = None
    missing: NDArray[np.bool_] | None = None  # [rows, columns] of features
    categories: IntArray | None = None


class Reading:
    """One pass over a source: batches become rows; bad rows raise or are counted."""

    def __init__(
        self,
        source: Any,
        roles: Mapping[str, Any],
        edge_features: Any = (),
        unit: str | None = None,
        on_bad: str = "error",
        header: bool | None = None,
        delimiter: str | None = None,
        *,
        in_range: bool = False,
    ) -> None:
        """in_range: reject weights that no graph can have."""
        if on_bad not in ("error", "drop"):
            raise ParameterError(f"on_bad is {on_bad!r}; give 'error' or 'drop'")
        if unit is not None and unit not in UNITS:
            raise ParameterError(f"unit is {unit!r}; give one of {', '.join(UNITS)}")
        self.source = source_of(source, header, delimiter)
        self.chosen = choose_columns(self.source, roles, edge_features)
        self.on_bad, self._in_range = on_bad, in_range
        self.dates = self._holds_dates()
        if self.dates and unit not in (None, "s", "ms", "us", "ns"):
            raise ParameterError(
                f"unit is {unit!r}, but t holds dates, which are counted in s, ms, us or ns"
            )
        self.unit = unit
        features, label = self.chosen.features, self.chosen.roles.get("label")
        words = self._of_words([*features, *(() if label is None else (label,))])
        self.words = tuple(name for name in features if name in words)
        self.numbers = tuple(name for name in features if name not in words)
        self._word_labels = label in words
        self._restart()

    def _restart(self) -> None:
        self._codes = {name: Numbering() for name in (*self.words, "label")}
        self.read = self.kept = self.unlabelled = 0
        self.dropped: dict[str, int] = {}
        self._examples: dict[str, tuple[Bad, Any]] = {}  # per reason to drop rows, one of the cells

    def clock(self) -> Clock:
        """Return a clock for the times of the source that has seen none yet."""
        return Clock("s" if self.dates else self.unit or "s")

    def _time_type(self) -> Any:
        assert isinstance(self.source, ArrowSource)
        return self.source.schema.field(self.chosen.roles["t"]).type

    def _holds_dates(self) -> bool:
        """Whether t holds dates, by its type, or in text by its first cell that is not empty."""
        import pyarrow as pa

        if "t" not in self.chosen.roles:
            return False
        if not self.source.untyped:
            kind = self._time_type()
            if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
                return True
            if not cells.is_text(pa.array([], kind)):
                return False
        column = self.chosen.roles["t"]
        if isinstance(self.source, TextSource):
            cell = self.source.first_cell(column)
            if cell.lower() not in cells.MISSING_WORDS:
                return re.match(DATE, cell) is not None
        for batch in self.source.batches([column], "drop"):
            found = cells.without_missing(cells.plain_column(batch.column(0))).drop_null()
            if len(found):
                return re.match(DATE, found[0].as_py()) is not None
        return False

    def _of_words(self, columns: Sequence[str]) -> set[str]:
        """Return those of the columns in which most of the first cells are words, not numbers."""
        found: set[str] = set()
        asked = [name for name in columns if not self.source.is_number(name)]
        for batch in self.source.batches(asked, "drop") if asked else ():
            for name, column in zip(asked, map(cells.plain_column, batch.columns), strict=True):
                text = cells.without_missing(column).drop_null() if cells.is_text(column) else ()
                if len(text) and cells.matching(text, cells.NUMBER).mean() < 0.5:
                    found.add(name)
            break
        return found

    def words_of(self, column: str) -> tuple[str, ...]:
        """Return the words of a column, or of `label`, in the order of their codes."""
        return tuple(str(word) for word in self._codes[column].ids().tolist())

    def survey(self) -> Clock:
        """Return the clock of this source after a pass over its times, if they may be fractions."""
        import pyarrow as pa

        clock = self.clock()
        if self.source.untyped or not pa.types.is_integer(self._time_type()):
            for batch in self.source.batches([self.chosen.roles["t"]], "drop"):
                clock.see(read_times(batch.column(0), self.dates).values)
        return clock

    def rows(self, *, sorted_only: bool, weights_only: bool) -> Iterator[Rows]:
        """Yield the usable rows of every batch.

        sorted_only: raise if times run backwards. weights_only: reject weights <= 0, and words and
        missing numbers in features, whose place depends on all rows.
        """
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
        """Return the usable rows of a batch, and their positions in the table."""
        import pyarrow as pa

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        roles = self.chosen.roles
        found: dict[str, Cells] = {
            "src": self._ids(columns[roles["src"]], "src"),
            "dst": self._ids(columns[roles["dst"]], "dst"),
            "t": Cells(Moments(np.zeros(batch.num_rows, dtype=np.int64)), []),
        }
        if "t" in roles:
            found["t"] = read_times(columns[roles["t"]], self.dates)
        if "op" in roles:
            found["op"] = cells.read_operations(columns[roles["op"]])
        if "weight" in roles:
            found["weight"] = self._weights(columns[roles["weight"]], found.get("op"), weights_only)
        if "label" in roles:
            found["label"] = self._labels(columns[roles["label"]], weights_only)
        names = self.chosen.features if weights_only else self.numbers
        features = [cells.read_numbers(columns[name], f"column {name!r}") for name in names]
        missing = codes = None
        if not weights_only:
            missing = np.zeros((batch.num_rows, len(names)), dtype=np.bool_)
            for place, column in enumerate(features):
                missing[:, place], column.bad = _without_missing(column.bad)
        if self.words and not weights_only:
            codes = np.column_stack([self._coded(columns[name], name) for name in self.words])
        used = np.ones(batch.num_rows, dtype=np.bool_)
        for what, column in [*found.items(), *zip(names, features, strict=True)]:
            for bad in column.bad:
                rejected = bad.rows & used
                if not rejected.any():
                    continue
                row = int(rejected.argmax())
                name = roles.get(what, what)
                cell = columns[name][row].as_py()
                if self.on_bad == "error":
                    raise self._rejection(bad, cell, first + row, name)
                self._examples.setdefault(bad.reason, (bad, cell))
                count = int(rejected.sum())
                self.dropped[bad.reason] = self.dropped.get(bad.reason, 0) + count
                used &= ~rejected
        matrix = None
        if features:
            with np.errstate(over="ignore"):
                matrix = np.column_stack([column.values.astype(np.float32) for column in features])
        kept = {name: column.values for name, column in found.items()}
        kept |= {"features": matrix, "missing": missing, "categories": codes}
        if not used.all():
            for name, values in kept.items():
                if cells.is_arrow(values):
                    kept[name] = values.filter(pa.array(used))
                elif values is not None:
                    kept[name] = values[used]
        return Rows(**kept), first + np.flatnonzero(used)

    def _rejection(self, bad: Bad, cell: Any, row: int, column: str) -> TableError:
        shown = "" if cell is None else f": {cell!r}"
        problem = f"{self.source.name}, {self.source.place(row)}: {bad.reason}{shown}"
        drop = [{"on_bad": "drop"}]
        as_feature: Options = {"edge_features": [column]}
        if bad.what == "weight" and bad.problem != cells.NOT_A_NUMBER and self._in_range:
            return TableError(problem, f"{WEIGHT_RANGE}: use another unit, or leave out such rows")
        if bad.what == "weight" and bad.problem != cells.NOT_A_NUMBER:
            return TableError(
                problem,
                "weights are > 0: if the column means something else, use {other}; to drop such"
                " rows, use {drop}",
                other=[{"weight": False}, as_feature],
                drop=drop,
            )
        if bad.what == "label":
            other: list[Options] = [{"label": False}, as_feature]
            return TableError(
                problem,
                "labels are integers or words: if the column is no label, use {other}",
                other=other,
            )
        hint = _spelling(bad, cell)
        fix = "fix or remove such rows, or use {drop}"
        return TableError(problem, f"{hint}; {fix}" if hint else fix, drop=drop)

    def _why_none(self) -> str:
        """Return why no row was kept, with an example for each reason."""
        reasons = []
        for reason, rows in self.dropped.items():
            bad, cell = self._examples.get(reason, (None, None))
            shown = "" if cell is None else f" ({cell!r})"
            hint = "" if bad is None else _spelling(bad, cell)
            reasons.append(f"{rows:,} because {reason}{shown}" + (f": {hint}" if hint else ""))
        return "; ".join(reasons)

    def _ids(self, column: pa.Array, what: str) -> Cells:
        import pyarrow as pa

        column = cells.plain_column(column)
        bad = [cells.empty_cells(column, what)]
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
        if not cells.is_text(column):
            raise DataError(
                f"{self.source.name}: {what} has type {kind}; node ids are integers or names"
            )
        if self.source.untyped:
            numbers = cells.cast_if_all_fit(column, pa.int64())
            # "007" stays a name: as a number it would be the node 7.
            if not cells.is_text(numbers) and numbers.cast(pa.string()).equals(column):
                return Cells(numbers.fill_null(0).to_numpy(zero_copy_only=False), bad)
        if self.source.untyped and cells.matching(column, r"^-?[0-9]*\.[0-9]+$").all():
            raise DataError(
                f"{self.source.name}: {what} holds fractions like {column[0]}; node ids are"
                " integers or names"
            )
        return Cells(column.fill_null(""), bad)

    def _weights(self, column: pa.Array, op: Cells | None, only: bool) -> Cells:
        found = cells.read_numbers(column, "weight")
        values = found.values = found.values.astype(np.float64)
        infinite = np.isinf(values)
        if op is not None:
            infinite &= op.values != Op.REMOVE
        found.bad.append(Bad("weight", "not finite", infinite))
        if only or not self.chosen.is_guess("weight"):
            found.bad.append(Bad("weight", "not positive", values <= 0))
        if self._in_range:
            outside = (values < WEIGHT_MIN) | (values > WEIGHT_MAX)
            found.bad.append(Bad("weight", "too small or too large", outside))
        return found

    def _coded(self, column: pa.Array, name: str) -> IntArray:
        """Return the codes of a column of words; -1 where it is empty."""
        text = cells.plain_column(column)
        codes = np.full(len(text), -1, dtype=np.int64)
        codes[~cells.nulls(text)] = self._codes[name](text.drop_null())
        return codes

    def _labels(self, column: pa.Array, weights_only: bool) -> Cells:
        if self._word_labels and not weights_only:
            codes = self._coded(cells.without_missing(cells.plain_column(column)), "label")
            self.unlabelled += int((codes < 0).sum())
            return Cells(codes, [])
        found = cells.read_numbers(column, "label")
        missing, bad = _without_missing(found.bad)
        whole = np.rint(found.values)
        self.unlabelled += int(missing.sum())
        bad.append(Bad("label", "not an integer", found.values != whole))
        return Cells(np.where(missing, -1, whole).astype(np.int64), bad)

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
            raise TableError(
                f"{self.source.name} is not in time order: t is {now} in {self.source.place(row)},"
                f" after {before}",
                "sort it by t, or read it with {sort}",
                sort=[{"sort": True}],
            )
        return int(whole[-1]), float(rest[-1])

    def unit_by(self, clock: Clock) -> tuple[str, str]:
        """Return the unit of the stream once the clock has seen all times, and a remark on it."""
        found, factor = clock.scale
        if self.dates:
            if self.unit is not None:
                levels = [name for name, _ in clock.scales]
                if levels.index(self.unit) < levels.index(found):
                    raise DataError(
                        f"{self.source.name}: t needs unit {found}, but {self.unit} was given"
                    )
                found = self.unit
            return (
                found,
                f"t holds dates, counted in {found} since 1970 (UTC unless a zone is given)",
            )
        if factor != 1:
            return found, f"t has fractions of {clock.scales[0][0]} and is counted in {found}"
        how = "as given" if self.unit else "by default"
        return found, f"t counts {found}, {how}"

    def report(self, remarks: Sequence[str], out_of_order: int = 0) -> ReadReport:
        """Return the report of the last pass."""
        remarks = [*self.chosen.remarks(), *remarks]
        if self.source.comments:
            lines = counted(self.source.comments, "line")
            remarks.append(f"{lines} beginning with # or % skipped as comments")
        if self.unlabelled:
            remarks.append(f"{counted(self.unlabelled, 'row')} without a label, read as -1")
        return ReadReport(
            self.source.name,
            self.read,
            self.kept,
            dict(self.dropped),
            tuple(remarks),
            dict(self.chosen.uses),
            out_of_order,
        )


def _without_missing(found: list[Bad]) -> tuple[NDArray[np.bool_], list[Bad]]:
    """Return which rows are missing, and what else is bad."""
    missing = [bad.rows for bad in found if bad.problem == cells.MISSING]
    return np.logical_or.reduce(missing), [bad for bad in found if bad.problem != cells.MISSING]


def _spelling(bad: Bad, cell: Any) -> str:
    """Return how the content of a cell should be written, where that may be unknown."""
    if isinstance(cell, str) and re.match(_COMMA, cell.strip()):
        return "write decimals with a point, as in 1.5"
    if bad.what == "t" and bad.problem in (cells.NOT_A_NUMBER, cells.NOT_A_DATE):
        return "times are all ISO dates like 2024-03-01 10:01, or all numbers"
    return ""


def _shown(whole: int, rest: float) -> str:
    """Return a time as a decimal with at most nine digits after the point."""
    billionths = whole * 10**9 + round(rest * 10**9)
    sign, (before, after) = "-" if billionths < 0 else "", divmod(abs(billionths), 10**9)
    return f"{sign}{before}.{after:09d}".rstrip("0").rstrip(".")
