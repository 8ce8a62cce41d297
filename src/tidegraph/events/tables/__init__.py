"""Tables of edges as event streams: text, Parquet, Arrow, data frames, arrays.

A source yields Arrow batches and a `Reading` turns each into checked rows. Rows become the chunks
of `scan_table`, in bounded memory, or the single stream of `read_table`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.words import counted
from tidegraph.events.columns import IntArray
from tidegraph.events.names import NodeNames
from tidegraph.events.read_report import ReadReport
from tidegraph.events.stream import EventStream
from tidegraph.events.tables import sources
from tidegraph.events.tables.advice import TableError
from tidegraph.events.tables.columns import Column
from tidegraph.events.tables.numbering import EndNumbering, Ids, TwoKinds
from tidegraph.events.tables.rows import NO_LABEL, OnBad, Reading, Rows
from tidegraph.events.tables.times import Clock, whole_times
from tidegraph.events.vocabulary import IS_MISSING, Vocabulary

__all__ = ["TableError", "TableScan", "read_table", "scan_edges", "scan_table", "whole_times"]

_CLASSES = 1000  # different words of a label, at most


def scan_table(
    source: Any,
    *,
    src: Column | None = None,
    dst: Column | None = None,
    t: Column | None = None,
    weight: Column | None = None,
    op: Column | None = None,
    label: Column | None = None,
    edge_features: Sequence[Column] | Column = (),
    unit: str | None = None,
    ids: Ids = "number",
    bipartite: bool | None = None,
    on_bad: OnBad = "error",
    date_format: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    query: str | None = None,
) -> TableScan:
    """Return a scan that yields the table in chunks, for tables larger than memory.

    Arguments are those of `read_table`. Rows must be in time order and weights positive. Times that
    are not integers cost a first pass to find their unit.

    ids: "number" numbers nodes in order of first appearance, the source of a row before its
        destination; "keep" takes integers from 0 to 2**31 - 1 as they are.
    bipartite: None: whether the names of the columns say so, since the ids are not known before.

    >>> scan = scan_table({"src": [7, 7], "dst": [8, 9], "t": [1, 2]})
    >>> [chunk.dst.tolist() for chunk in scan], scan.nodes
    ([[1, 2]], 3)
    """
    roles = {"src": src, "dst": dst, "t": t, "weight": weight, "op": op, "label": label}
    dialect: Any = {"header": header, "delimiter": delimiter, "decimal": decimal, "query": query}
    return TableScan(
        Reading(source, roles, edge_features, unit, on_bad, date_format, **dialect), ids, bipartite
    )


def scan_edges(
    source: Any,
    *,
    src: Column | None = None,
    dst: Column | None = None,
    weight: Column | None = None,
) -> Iterator[tuple[Any, Any, NDArray[np.float64] | None]]:
    """Yield the ids of a table's rows, and weights if a column is given, chunk by chunk.

    Raise if a weight is one that no graph can have. The table needs no times. Ids are as they are
    in it: int64 arrays, or Arrow arrays of strings.

    >>> [piece[1].tolist() for piece in scan_edges({"src": [7, 7], "dst": [8, 9]})]
    [[8, 9]]
    """
    roles = {"src": src, "dst": dst, "weight": False if weight is None else weight}
    reading = Reading(source, roles | {"t": False, "op": False, "label": False}, in_range=True)
    for rows in reading.rows(sorted_only=False, weights_only=True):
        yield rows.src, rows.dst, rows.weight


def read_table(
    source: Any,
    *,
    src: Column | None = None,
    dst: Column | None = None,
    t: Column | None = None,
    weight: Column | None = None,
    op: Column | None = None,
    label: Column | None = None,
    edge_features: Sequence[Column] | Column = (),
    unit: str | None = None,
    sort: bool = False,
    ids: Ids = "auto",
    bipartite: bool | None = None,
    on_bad: OnBad = "error",
    date_format: str | None = None,
    words: Collection[str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    query: str | None = None,
    title: str | None = None,
) -> EventStream:
    """Return the stream of a table of edges, with a `report` of how it was understood.

    source: the path of a text file (commas, tabs, semicolons or white space; compressed or not),
        of a Parquet, Arrow or Feather file, of lines of JSON, a workbook or a database; a pattern
        such as "logs/*.csv" or a list of paths, of tables with the same columns; "-" for standard
        input; sqlite:///PATH, duckdb:///PATH or postgresql://USER@HOST/DATABASE; an Arrow table; a
        pandas or Polars data frame; a dict of vectors; a structured array.
    src, dst, t, weight, op, label: the column's name, or its position from 0, or from -1 backwards.
        None infers it from the header, or without one from the order src, dst, t. False ignores a
        weight, op or label that would be inferred. An inferred weight with values <= 0 becomes an
        edge feature. A missing label is -1, and so is -1 itself unless 1 is the only other. Words
        as labels become numbers, the most frequent 0, integers other than 0, 1, 2, ... do in their
        order; `vocabulary.labels` has what they are called.
    edge_features: columns of numbers or words; "rest" takes all that have no other role. Words
        become `categories`. A missing number is 0, and a column `NAME is missing` says so.
    unit: the unit of numbers in t. By default ms, us or ns if all are times since 1970, between
        1990 and 2100, in that unit; otherwise seconds. Fractions select the coarsest finer unit
        that represents them all, digit by digit as written; anything finer than ns is rounded, and
        the report counts it. A number with an exponent is read as a float64. Dates are counted from
        1970 in the coarsest of s, ms, us, ns. Negative times are allowed.
    sort: sort the rows by time; otherwise unsorted rows are an error.
    ids: "auto" keeps ids that are exactly 0 .. n-1 and numbers others in order of appearance, all
        sources before the nodes that are only destinations; "number" always numbers; "keep" takes
        integers from 0 to 2**31 - 1 as they are, whether or not all of them occur.
    bipartite: whether an id means one node as a source and another as a destination, as in tables
        of users and items; destinations are numbered after the sources. None: if the names of the
        columns say so, and ids="auto"; the report says what was decided.
    on_bad: "error" raises for a row that cannot be used, "drop" drops and counts such rows and
        raises if they are more than 5 percent (and 10), "drop-many" drops any number.
    date_format: of dates that are not recognised, in the codes of strptime, such as "%d/%m/%y".
    words: those of the edge features, and the label, that hold words; the others hold numbers.
        None: those in which most of the first cells are no numbers.
    header, delimiter, decimal: of text, where detection is wrong.
    query: which rows of a database, as SQL or the name of a table; which sheet of a workbook.

    >>> stream = read_table({"from": ["ann", "bob"], "to": ["bob", "eve"], "when": [1, 2]})
    >>> stream.names[2], stream.dst.tolist()
    ('eve', [1, 2])
    """
    if ids not in ("auto", "keep", "number"):
        raise ParameterError(f"ids is {ids!r}; give 'auto', 'keep' or 'number'")
    roles = {"src": src, "dst": dst, "t": t, "weight": weight, "op": op, "label": label}
    dialect: Any = {"header": header, "delimiter": delimiter, "decimal": decimal, "query": query}
    reading = Reading(source, roles, edge_features, unit, on_bad, date_format, words, **dialect)
    kinds = (reading.chosen.kinds or False) if bipartite is None else bipartite
    number = EndNumbering(ids, kinds, reading.source.name)
    clock = reading.clock()
    pieces: dict[str, list[Any]] = {field.name: [] for field in fields(Rows)}
    for rows in reading.rows(sorted_only=not sort, weights_only=False):
        clock.see(rows.t)
        ends = zip(("src", "dst"), number(rows.src, rows.dst), strict=True)
        numbered = {name: np.ascontiguousarray(values) for name, values in ends}
        for name, piece in (vars(rows) | numbered).items():
            pieces[name].append(piece)
    found, remark = reading.unit_by(clock)
    times = np.concatenate([clock.ticks(piece, found) for piece in pieces.pop("t")])
    remarks = [remark, *_rounded(clock)]
    early = int((np.diff(times) < 0).sum())
    columns = {name: _concatenated(pieces.pop(name)) for name in list(pieces)}
    src_nodes, dst_nodes, nodes, names = number.final(columns.pop("src"), columns.pop("dst"))
    remarks += _kinds(reading, number)
    features, weights = columns["features"], columns["weight"]
    feature_names = [*reading.numbers]
    for column, absent in zip(reading.numbers, columns["missing"].T, strict=True):
        if absent.any():
            rows_ = counted(int(absent.sum()), "row")
            remarks.append(f"column {column!r} is missing in {rows_}, flagged there")
            features = np.column_stack([features, absent.astype(np.float32)])
            feature_names.append(column + IS_MISSING)
    vocabulary, columns["label"] = _vocabulary(reading, feature_names, columns["label"], remarks)
    if weights is not None and (weights <= 0).any():
        count = int((weights <= 0).sum())
        remarks.append(
            f"column {reading.chosen.roles['weight']!r} is <= 0 in {count:,} rows, so it is an edge"
            " feature (the last) and every event counts 1"
        )
        extra = weights.astype(np.float32)[:, None]
        features = extra if features is None else np.concatenate([features, extra], axis=1)
        named = (*vocabulary.features, reading.chosen.roles["weight"])
        vocabulary = replace(vocabulary, features=named)
        weights = None
    stream = EventStream(
        src_nodes,
        dst_nodes,
        times,
        weight=weights,
        op=columns["op"],
        edge_features=features,
        categories=columns["categories"],
        labels=columns["label"],
        vocabulary=vocabulary,
        nodes=nodes,
        names=names,
        unit=found,
        sort=sort,
        title=Path(reading.source.name).name if title is None else title,
    )
    oddities = _Oddities()
    for first in range(0, len(stream), sources.BATCH_ROWS):
        piece = slice(first, first + sources.BATCH_ROWS)
        oddities.see(stream.src[piece], stream.dst[piece], stream.t[piece])
    undecided = bipartite is None and kinds == "two" and ids == "auto" and not number.shared
    sides = None if undecided else number.apart
    report = reading.report(remarks + oddities.remarks(), early, bipartite=sides)
    return stream._with(report=report)


class TableScan:
    """A table as a sequence of streams, one per chunk, in bounded memory; see `scan_table`.

    Every iteration reads the table again. `report`, `names` and `nodes` describe the last complete
    iteration.
    """

    def __init__(self, reading: Reading, ids: Ids, bipartite: bool | None = None) -> None:
        if ids not in ("keep", "number"):
            raise ParameterError(f"ids is {ids!r}; a scan takes 'keep' or 'number'")
        if ids == "keep" and bipartite:
            raise ParameterError("ids='keep' takes an id for one node; with bipartite use 'number'")
        self._reading = reading
        self._ids = ids
        guess = ids == "number" and reading.chosen.kinds == "two"
        self._bipartite, self._guessed = (
            guess if bipartite is None else bipartite,
            bipartite is None,
        )
        self._end: tuple[int, NodeNames | None, ReadReport] | None = None

    def __iter__(self) -> Iterator[EventStream]:
        self._end = None
        reading, oddities = self._reading, _Oddities()
        one_kind, two_kinds = EndNumbering(self._ids, False, reading.source.name), TwoKinds()
        number = two_kinds if self._bipartite else one_kind
        clock = reading.survey()
        unit, _ = reading.unit_by(clock)
        nodes = 0
        for rows in reading.rows(sorted_only=True, weights_only=True):
            src, dst = number(rows.src, rows.dst)
            nodes = max(nodes, int(src.max()) + 1, int(dst.max()) + 1)
            t = clock.ticks(rows.t, unit)
            oddities.see(src, dst, t)
            yield EventStream(
                src,
                dst,
                t,
                weight=rows.weight,
                op=rows.op,
                edge_features=rows.features,
                labels=rows.label,
                nodes=nodes,
                unit=unit,
                title=Path(reading.source.name).name,
            )
        names = None if self._ids == "keep" else NodeNames(one_kind.sides[0].ids())
        names = two_kinds.names() if self._bipartite else names
        remarks = [reading.unit_by(clock)[1], *_rounded(clock), *oddities.remarks()]
        if self._guessed and reading.chosen.kinds == "two":
            kept = self._ids == "keep"
            other, how = ("the same", "ids='number'") if kept else ("another", "bipartite=False")
            remarks.append(f"an id is {other} node in the other column; if it is not: {how}")
        self._end = nodes, names, reading.report(remarks, bipartite=self._bipartite)

    def _at_end(self) -> tuple[int, NodeNames | None, ReadReport]:
        if self._end is None:
            raise DataError("the scan is not complete; iterate over it first")
        return self._end

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self._at_end()[0]

    @property
    def names(self) -> NodeNames | None:
        """The node names; None if ids were kept as numbers."""
        return self._at_end()[1]

    @property
    def report(self) -> ReadReport:
        """How the columns were understood, and what became of the rows."""
        return self._at_end()[2]


def _vocabulary(
    reading: Reading, features: Sequence[str], labels: IntArray | None, remarks: list[str]
) -> tuple[Vocabulary, IntArray | None]:
    """Return names and words, and the labels, the most frequent word first; add remarks."""
    categories = {name: reading.words_of(name) for name in reading.words}
    for name, words in categories.items():
        remarks.append(f"column {name!r} holds {counted(len(words), 'different word')}")
    classes = reading.words_of("label")
    if classes and labels is not None:
        if len(classes) > _CLASSES:
            raise TableError(
                f"{reading.source.name}: label holds {len(classes):,} different words",
                f"labels are at most {_CLASSES:,}: if the column is no label, use {{other}}",
                other=[{"label": False}],
            )
        count = np.bincount(labels[labels >= 0], minlength=len(classes))
        order = sorted(range(len(classes)), key=lambda code: (-count[code], classes[code]))
        place = np.append(np.argsort(order), -1)
        labels, classes = place[labels], tuple(classes[code] for code in order)
        shown = ", ".join(f"{word!r} is {code}" for code, word in enumerate(classes[:5]))
        remarks.append(f"label holds words: {shown}{', ...' if len(classes) > 5 else ''}")
    elif labels is not None:
        labels, classes = _integer_classes(reading, labels, remarks)
    return Vocabulary(tuple(features), categories, classes), labels


def _integer_classes(
    reading: Reading, labels: IntArray, remarks: list[str]
) -> tuple[IntArray, tuple[str, ...]]:
    """Return the classes of labels that are integers, by number, and what they are called.

    0, 1, 2, ... are their own numbers and have no names. -1 is no label unless 1 is the only other.
    """
    values = np.unique(labels[labels != NO_LABEL])
    if values.tolist() != [-1, 1]:
        reading.unlabelled += int((labels == -1).sum())
        labels, values = np.where(labels == -1, NO_LABEL, labels), values[values >= 0]
    numbered = np.array_equal(values, np.arange(len(values)))
    if numbered or not 2 <= len(values) <= _CLASSES:  # one class, or ids: nothing to learn
        return np.maximum(labels, -1), ()
    shown = ", ".join(f"{value} is {code}" for code, value in enumerate(values[:5].tolist()))
    remarks.append(f"label holds classes by number: {shown}{', ...' if len(values) > 5 else ''}")
    codes = np.where(labels == NO_LABEL, -1, np.searchsorted(values, labels))
    return codes, tuple(map(str, values.tolist()))


def _kinds(reading: Reading, number: EndNumbering) -> list[str]:
    """Return what was made of ids that are both sources and destinations, where it was guessed."""
    if not number.shared:
        return []
    src, dst = (reading.chosen.roles[role] for role in ("src", "dst"))
    if number.apart:
        by = "the names" if reading.chosen.kinds == "two" else "the names and ids"
        return [
            f"bipartite: {src!r} and {dst!r} are different nodes, also the"
            f" {counted(number.shared, 'id')} in both, by {by} of the columns; if they are the"
            " same: --no-bipartite, bipartite=False"
        ]
    return [
        f"{counted(number.shared, 'id')} in both {src!r} and {dst!r} taken for the same nodes; if"
        " they are not: --bipartite, bipartite=True"
    ]


def _rounded(clock: Clock) -> list[str]:
    if not clock.rounded:
        return []
    times = "time is" if clock.rounded == 1 else "times are"
    return [f"{clock.rounded:,} {times} finer than {clock.scale[0]} and rounded"]


def _concatenated(pieces: list[Any]) -> Any:
    return None if not pieces or pieces[0] is None else np.concatenate(pieces)


class _Oddities:
    """Counts self-edges, and rows that repeat an earlier row: same nodes, same time."""

    def __init__(self) -> None:
        self._loops = self._repeats = 0
        self._t: int | None = None
        self._pairs: IntArray = np.empty(0, dtype=np.int64)  # seen at the latest time so far

    def see(self, src: NDArray[Any], dst: NDArray[Any], t: IntArray) -> None:
        self._loops += int((src == dst).sum())
        pair = (src.astype(np.int64) << 31) | dst
        run = np.concatenate([[0], np.cumsum(t[1:] != t[:-1])])
        together = np.bincount(run)[run] > 1
        if together.any():
            order = np.lexsort((pair[together], run[together]))
            pairs, runs = pair[together][order], run[together][order]
            self._repeats += int(((pairs[1:] == pairs[:-1]) & (runs[1:] == runs[:-1])).sum())
        if self._t == int(t[0]):
            self._repeats += int(np.isin(np.unique(pair[run == 0]), self._pairs).sum())
        tail = np.unique(pair[run == run[-1]])
        if run[-1] == 0 and self._t == int(t[0]):
            tail = np.union1d(tail, self._pairs)
        self._t, self._pairs = int(t[-1]), tail

    def remarks(self) -> list[str]:
        remarks = []
        if self._loops:
            lead = "event leads" if self._loops == 1 else "events lead"
            remarks.append(f"{self._loops:,} {lead} from a node to itself")
        if self._repeats:
            repeat = "event repeats" if self._repeats == 1 else "events repeat"
            remarks.append(f"{self._repeats:,} {repeat} another of the same time")
        return remarks
