"""The rows of a table, checked: a bad row is an error, or dropped and counted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.words import counted
from tidegraph.events.columns import WEIGHT_MAX, WEIGHT_MIN, WEIGHT_RANGE, IntArray, Op
from tidegraph.events.moments import UNITS, dates, epoch_unit
from tidegraph.events.read_report import Conventions, ReadReport
from tidegraph.events.tables import cells
from tidegraph.events.tables.advice import Options, TableError
from tidegraph.events.tables.cells import DATE, Bad, Cells
from tidegraph.events.tables.columns import choose_columns, proposal
from tidegraph.events.tables.numbering import Numbering
from tidegraph.events.tables.source import Source
from tidegraph.events.tables.sources import source_of
from tidegraph.events.tables.text import TextSource
from tidegraph.events.tables.times import (
    Clock,
    Moments,
    date_pattern,
    day_and_month,
    read_times,
)

if TYPE_CHECKING:
    import pyarrow as pa

OnBad: TypeAlias = Literal["error", "drop", "drop-many"]
# "drop" drops at most this share of the rows, or this many of a small table.
_DROPPED_SHARE, _DROPPED_ROWS = 0.05, 10
NO_LABEL = -2  # of a row; whether -1 is a label depends on all rows
_ROWS_INSIDE = r"\n[^\n]*[,;\t|][^\n]*\n"  # a whole line with a delimiter


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
        date_format: str | None = None,
        words: Collection[str] | None = None,
        *,
        in_range: bool = False,
        **dialect: Any,
    ) -> None:
        """in_range: reject weights that no graph can have. dialect: options of `source_of`."""
        if on_bad not in get_args(OnBad):
            raise ParameterError(f"on_bad is {on_bad!r}; give one of {', '.join(get_args(OnBad))}")
        if unit is not None and unit not in UNITS:
            raise ParameterError(f"unit is {unit!r}; give one of {', '.join(UNITS)}")
        if date_format is not None:
            date_pattern(date_format)
        self.source = source_of(source, **dialect)
        self.chosen = choose_columns(self.source, roles, edge_features)
        self.on_bad, self._in_range = on_bad, in_range
        self.form = self._form(date_format, unit)
        if self.form and unit not in (None, "s", "ms", "us", "ns"):
            raise ParameterError(
                f"unit is {unit!r}, but t holds dates, which are counted in s, ms, us or ns"
            )
        self.unit = unit
        features, label = self.chosen.features, self.chosen.roles.get("label")
        if words is None:
            words = self._of_words([*features, *(() if label is None else (label,))])
        self.words = tuple(name for name in features if name in words)
        self.numbers = tuple(name for name in features if name not in words)
        self._word_labels = label in words
        self._by_size = False  # whether the size of the times says their unit
        self._written_unit: str | None = None  # of times that are numbers
        self._restart()

    def _restart(self) -> None:
        self._codes = {name: Numbering() for name in (*self.words, "label")}
        self.read = self.kept = self.unlabelled = 0
        self.dropped: dict[str, int] = {}
        self._examples: dict[str, tuple[Bad, Any]] = {}  # per reason to drop rows, one of the cells

    def clock(self) -> Clock:
        """Return a clock for the times of the source that has seen none yet."""
        return Clock("s" if self.form else self.unit or "s")

    def _form(self, given: str | None, unit: str | None) -> str | None:
        """Return how t is written: None for numbers, "iso", or a format of strptime.

        In text the first cell that is not empty says it. Of integers it does where they would be
        times of no age in any unit.
        """
        import pyarrow as pa

        column = self.chosen.roles.get("t")
        if column is None:
            return None
        kind = self.source.kind(column)
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            if given is not None:
                raise ParameterError(
                    f"date_format is {given!r}, but t has type {kind}; leave it out"
                )
            return "iso"
        text = cells.is_text(cells.plain_column(pa.array([], kind)))
        if given is not None or not (text or pa.types.is_integer(kind)):
            return given
        cell = first_cell(self.source, column)
        if cell is None:
            return None
        if unit is None and (found := re.match(cells.UNMARKED, cell)):
            return "%Y%m%d%H%M%S" if found["seconds"] else "%Y%m%d%H%M"
        if not text or re.match(cells.NUMBER, cell):
            return None
        if re.match(DATE, cell):
            return "iso"
        if found := re.match(cells.YEAR_FIRST, cell):
            return "%Y{0}%m{0}%d".format(found["mark"])
        found = re.match(cells.DAY_OR_MONTH, cell)
        return None if found is None else self._day_or_month(column, found["mark"])

    def _day_or_month(self, column: str, mark: str) -> str:
        """Return the format of dates whose year comes last; raise if it may be one of two.

        No month is above 12, so all dates together show which number is the day. Points are only
        used where the day comes first.
        """
        import pyarrow.compute as pc

        day_first, month_first = (form.replace(".", mark) for form in ("%d.%m.%Y", "%m.%d.%Y"))
        # A cell whose first or second number is above 12, and one whose numbers differ.
        above: list[str | None] = [None, None, None]
        for batch in self.source.batches([column], "drop"):
            first, second = day_and_month(batch.column(0))
            signs = pc.greater(first, 12), pc.greater(second, 12), pc.not_equal(first, second)
            for place, sign in enumerate(signs):
                row = pc.index(sign, True).as_py()
                if row >= 0 and above[place] is None:
                    above[place] = str(batch.column(0)[row]).strip()
        *above, unlike = above
        choices: list[Options] = [{"date_format": day_first}, {"date_format": month_first}]
        if all(above):
            raise TableError(
                f"{self.source.name}: t has dates with the day first and with the month first,"
                f" {above[0]!r} and {above[1]!r}",
                "write all of them alike, or use {form} and {drop}",
                form=choices,
                drop=[{"on_bad": "drop"}],
            )
        if not any(above) and unlike is not None and mark != ".":
            day, month, year = re.findall("[0-9]+", unlike)[:3]
            readings = [f"{year}-{m:0>2}-{d:0>2}" for d, m in ((day, month), (month, day))]
            raise TableError(
                f"{self.source.name}: t is {unlike!r}, which may be {readings[0]} or {readings[1]}:"
                " no date in the table has a number above 12 for the day",
                f"use {{day}} for {readings[0]}, {{month}} for {readings[1]}",
                day=choices[:1],
                month=choices[1:],
            )
        return month_first if above[1] else day_first

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
        """Return the clock of this source after a pass over its times.

        Of integers by type it sees the first only: they have no fractions.
        """
        import pyarrow as pa

        clock, column = self.clock(), self.chosen.roles["t"]
        whole = pa.types.is_integer(self.source.kind(column))
        for batch in self.source.batches([column], "drop"):
            found = self.times(batch.column(0))
            clock.see(found.values[~np.logical_or.reduce([bad.rows for bad in found.bad])])
            if whole and clock.span is not None:
                break
        return clock

    def times(self, column: pa.Array) -> Cells:
        """Return cells of times as `Moments`."""
        if self.form is None:
            column = cells.with_points(column, self.source.decimal)
        return read_times(column, self.form)

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
            self.dropped[self.source.ragged_because] = self.source.ragged
        dropped_rows = self.read - self.kept
        most = max(_DROPPED_ROWS, _DROPPED_SHARE * self.read)
        if self.kept and self.on_bad == "drop" and dropped_rows > most:
            raise self._with_columns(
                f"{self.source.name}: {dropped_rows:,} of {self.read:,} rows would be dropped,"
                f" {self._why_none()}",
                f"more than {_DROPPED_SHARE:.0%} are dropped only with {{drop}}",
                drop=[{"on_bad": "drop-many"}],
            )
        if self.kept == 0:
            dropped = ""
            if self.read:
                which = f"all {self.read:,} rows were" if self.read > 1 else "the only row was"
                dropped = f": {which} dropped, {self._why_none()}"
            raise self._with_columns(
                f"{self.source.name} holds no events{dropped}", "at least one row is needed"
            )

    def _with_columns(self, problem: str, advice: str, **remedies: Sequence[Options]) -> TableError:
        """Return an error that also proposes likelier columns, or how to read the cells."""
        hints = [_spelling(*example) for example in self._examples.values()]
        hint, reads = next((found for found in hints if found[0]), ("", []))
        likely = proposal(self.source, self.chosen) if "t" in self.chosen.roles else {}
        if likely:
            hint, reads = "perhaps other columns are meant: {reads}", [likely]
        return TableError(problem, f"{hint}; {advice}" if hint else advice, reads=reads, **remedies)

    def _usable(
        self, batch: pa.RecordBatch, first: int, weights_only: bool
    ) -> tuple[Rows, IntArray]:
        """Return the usable rows of a batch, and their positions in the table."""
        import pyarrow as pa

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        roles = self.chosen.roles
        numbers = {
            role: cells.with_points(columns[roles[role]], self.source.decimal)
            for role in ("weight", "label")
            if role in roles
        }
        found: dict[str, Cells] = {
            "src": self._ids(columns[roles["src"]], "src"),
            "dst": self._ids(columns[roles["dst"]], "dst"),
            "t": Cells(Moments(np.zeros(batch.num_rows, dtype=np.int64)), []),
        }
        if "t" in roles:
            found["t"] = self.times(columns[roles["t"]])
        if "op" in roles:
            found["op"] = cells.read_operations(columns[roles["op"]])
        if "weight" in roles:
            found["weight"] = self._weights(numbers["weight"], found.get("op"), weights_only)
        if "label" in roles:
            found["label"] = self._labels(numbers["label"], weights_only)
        names = self.chosen.features if weights_only else self.numbers
        pointed = [cells.with_points(columns[name], self.source.decimal) for name in names]
        features = [
            cells.read_numbers(column, f"column {name!r}")
            for name, column in zip(names, pointed, strict=True)
        ]
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
        self._examples = {bad.reason: (bad, cell)}
        return self._with_columns(problem, "fix or remove such rows, or use {drop}", drop=drop)

    def _why_none(self) -> str:
        """Return why no row was kept, with an example for each reason."""
        reasons = []
        for reason, rows in self.dropped.items():
            _, cell = self._examples.get(reason, (None, None))
            shown = "" if cell is None else f" ({cell!r})"
            reasons.append(f"{rows:,} because {reason}{shown}")
        return "; ".join(reasons)

    def _ids(self, column: pa.Array, what: str) -> Cells:
        import pyarrow as pa
        import pyarrow.compute as pc

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
        if self.source.untyped and pc.any(pc.match_substring(column, "\n")).as_py():
            problem = "has rows of the table in it, as if a quote were not closed"
            bad.append(Bad(what, problem, cells.matching(column, _ROWS_INSIDE)))
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
        text = cells.as_words(column)
        codes = np.full(len(text), -1, dtype=np.int64)
        codes[~cells.nulls(text)] = self._codes[name](text.drop_null())
        return codes

    def _labels(self, column: pa.Array, weights_only: bool) -> Cells:
        if self._word_labels and not weights_only:
            codes = self._coded(cells.without_missing(cells.as_words(column)), "label")
            self.unlabelled += int((codes < 0).sum())
            return Cells(codes, [])
        found = cells.read_numbers(column, "label")
        missing, bad = _without_missing(found.bad)
        whole = np.rint(found.values)
        self.unlabelled += int(missing.sum())
        bad.append(Bad("label", "not an integer", found.values != whole))
        bad.append(Bad("label", "below -1, which means no label", whole < -1))
        none = -1 if weights_only else NO_LABEL
        return Cells(np.where(missing, none, whole).astype(np.int64), bad)

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
        self._find_size(clock)
        found, factor = clock.scale
        self._written_unit = None if self.form else clock.scales[0][0]
        if self.form:
            if self.unit is not None:
                levels = [name for name, _ in clock.scales]
                if levels.index(self.unit) < levels.index(found):
                    raise DataError(
                        f"{self.source.name}: t needs unit {found}, but {self.unit} was given"
                    )
                found = self.unit
            like = "" if self.form == "iso" else f" like {self.form}"
            return (
                found,
                f"t holds dates{like}, counted in {found} since 1970 (UTC unless a zone is given)",
            )
        if factor != 1:
            return found, f"t has fractions of {clock.scales[0][0]} and is counted in {found}"
        if self._by_size and clock.span is not None:
            first, last = dates(*clock.span, found)
            return found, f"t counts {found} since 1970, by its size: {first} to {last}"
        how = "as given" if self.unit else "by default"
        return found, f"t counts {found}, {how}"

    def _find_size(self, clock: Clock) -> None:
        """Let the clock count ms, us or ns, if all times are such times of our age.

        Raise TableError for integers that may as well be dates.
        """
        if self.form or self.unit is not None or clock.span is None:
            return
        if clock.like_dates:
            shown = str(clock.span[0])
            raise TableError(
                f"{self.source.name}: t is {shown}, which may be the date"
                f" {shown[:4]}-{shown[4:6]}-{shown[6:]} or a number of seconds: all times are"
                " integers that are dates too",
                "use {date} for dates, {number} for seconds",
                date=[{"date_format": "%Y%m%d"}],
                number=[{"unit": "s"}],
            )
        first, last = map(epoch_unit, clock.span)
        if first and last and first != last:
            raise TableError(
                f"{self.source.name}: t reaches from {clock.span[0]}, which looks like {first}"
                f" since 1970, to {clock.span[1]}, which looks like {last}",
                "write all times in one unit, or say which it is with {unit}",
                unit=[{"unit": first}, {"unit": last}],
            )
        if first and first == last and first != "s":
            clock.count_in(first)
            self._by_size = True

    def report(
        self, remarks: Sequence[str], out_of_order: int = 0, *, bipartite: bool | None = False
    ) -> ReadReport:
        """Return the report of the last pass; see `Conventions` for `bipartite`."""
        remarks = [*self.source.remarks, *remarks]
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
            self.chosen.features,
            self.chosen.ignored,
            Conventions(self._written_unit, self.form, self.source.decimal, bipartite),
        )


def first_cell(source: Source, column: str) -> str | None:
    """Return the first cell of a column that is not empty, as text."""
    if isinstance(source, TextSource):
        cell = source.first_cell(column)
        if cell.lower() not in cells.MISSING_WORDS:
            return cell
    for batch in source.batches([column], "drop"):
        found = cells.without_missing(cells.as_words(batch.column(0))).drop_null()
        if len(found):
            return str(found[0])
    return None


def is_written(source: Source, column: str, form: str | None) -> bool:
    """Return whether the first cell of a column is a date of this format of strptime."""
    import pyarrow as pa

    if form in (None, "iso") or pa.types.is_temporal(source.kind(column)):
        return False
    cell = first_cell(source, column)
    return cell is not None and re.match(date_pattern(str(form)), cell) is not None


def _without_missing(found: list[Bad]) -> tuple[NDArray[np.bool_], list[Bad]]:
    """Return which rows are missing, and what else is bad."""
    missing = [bad.rows for bad in found if bad.problem == cells.MISSING]
    return np.logical_or.reduce(missing), [bad for bad in found if bad.problem != cells.MISSING]


def _spelling(bad: Bad, cell: Any) -> tuple[str, list[Options]]:
    """Return how the content of a cell should be written, or what reads it as it is."""
    if isinstance(cell, str) and re.match(cells.COMMA, cell.strip()):
        return "if decimals have a comma, use {reads}", [{"decimal": ","}]
    if bad.what == "t" and bad.problem not in (cells.MISSING, "not finite"):
        accepted = "times are all numbers, or all dates like 2024-03-01 10:01 or 31.12.2024"
        return f"{accepted}; for others use such as {{reads}}", [{"date_format": "%m/%d/%y"}]
    return "", []


def _shown(whole: int, rest: float) -> str:
    """Return a time as a decimal with at most nine digits after the point."""
    billionths = whole * 10**9 + round(rest * 10**9)
    sign, (before, after) = "-" if billionths < 0 else "", divmod(abs(billionths), 10**9)
    return f"{sign}{before}.{after:09d}".rstrip("0").rstrip(".")
