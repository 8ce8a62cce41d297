"""Anybody's table of edges as an event stream: text, Parquet, Arrow, data frames, arrays.

A source gives Arrow batches, a `Reading` turns each into checked rows, and two things are made of
rows: the chunks of `scan_table`, in bounded memory, or the one stream of `read_table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.stream import EventStream, NodeNames, ReadReport, counted
from tidegraph.events.tables import sources
from tidegraph.events.tables.columns import Column
from tidegraph.events.tables.numbering import Ids, Numbering, interleaved, kept_ids, renumbered
from tidegraph.events.tables.rows import Reading
from tidegraph.events.tables.sources import text_source
from tidegraph.events.tables.times import Clock, whole_times

__all__ = ["TableScan", "read_table", "scan_edges", "scan_table", "text_source", "whole_times"]

IntArray: TypeAlias = NDArray[np.int64]


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
    on_bad: Literal["error", "drop"] = "error",
    header: bool | None = None,
    delimiter: str | None = None,
) -> TableScan:
    """The table piece by piece, for tables that are larger than memory.

    Arguments are those of `read_table`; the rows must be in time order and weights positive.
    ids: "number" numbers nodes in the order in which they first appear, the source of a row before
        its destination; "keep" takes integers from 0 to 2**31 - 1 as they are.
    Times that are not integers cost a first pass over them, to find their unit.

    >>> scan = scan_table({"src": [7, 7], "dst": [8, 9], "t": [1, 2]})
    >>> [chunk.dst.tolist() for chunk in scan], scan.nodes
    ([[1, 2]], 3)
    """
    roles = {"src": src, "dst": dst, "t": t, "weight": weight, "op": op, "label": label}
    reading = Reading(
        source,
        unit=unit,
        on_bad=on_bad,
        header=header,
        delimiter=delimiter,
        edge_features=edge_features,
        roles=roles,
    )
    return TableScan(reading, ids)


def scan_edges(
    source: Any,
    *,
    src: Column | None = None,
    dst: Column | None = None,
    weight: Column | None = None,
) -> Iterator[tuple[Any, Any, NDArray[np.float64] | None]]:
    """The ids of a table's rows, and weights where a column is given, piece by piece.

    Weights are those that a graph can have; others are refused. There need be no times. Ids are as
    they stand there: int64 arrays, or Arrow arrays of strings.

    >>> [piece[1].tolist() for piece in scan_edges({"src": [7, 7], "dst": [8, 9]})]
    [[8, 9]]
    """
    roles = {"src": src, "dst": dst, "weight": False if weight is None else weight}
    reading = Reading(
        source,
        unit=None,
        on_bad="error",
        header=None,
        delimiter=None,
        edge_features=(),
        roles=roles | {"t": False, "op": False, "label": False},
        in_range=True,
    )
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
    bipartite: bool = False,
    on_bad: Literal["error", "drop"] = "error",
    header: bool | None = None,
    delimiter: str | None = None,
    title: str | None = None,
) -> EventStream:
    """The stream of a table of edges, with a `report` of how it was understood.

    source: the path of a text file (commas, tabs, semicolons or white space; compressed or not), of
        a Parquet, Arrow or Feather file; an Arrow table; a data frame of pandas or Polars; a dict
        of vectors; a structured array.
    src, dst, t, weight, op, label: the column's name, or its place from 0. Where None it is guessed
        from the header, or without one from the order src, dst, t, weight; False leaves out a
        weight, op or label that would be guessed. A guessed weight with values <= 0 becomes an edge
        feature. A missing label is -1.
    edge_features: columns of numbers; "rest" takes all that have no other role.
    unit: what numbers in t count, seconds by default. Fractions lead to the coarsest finer unit
        that holds them all, each digit as it is written; what is finer than ns is rounded, and
        counted. A number with an exponent is read as a float64. Dates are counted from 1970 in the
        coarsest of s, ms, us, ns. Times before zero are earlier, and nothing else.
    sort: sorts the rows by time; without it unsorted rows are an error.
    ids: "auto" keeps ids that are exactly 0 .. n-1 and numbers others in the order of appearance,
        all sources before the nodes that are only destinations; "number" numbers in any case;
        "keep" takes integers from 0 to 2**31 - 1 as they are, whether or not all of them occur.
    bipartite: an id means one node as a source and another as a destination, as in tables of users
        and items; destinations get the numbers after the sources.
    on_bad: "error" refuses a table with a row that cannot be used, "drop" drops and counts those.
    header, delimiter: of text, where the guess is wrong.

    >>> stream = read_table({"from": ["ann", "bob"], "to": ["bob", "eve"], "when": [1, 2]})
    >>> stream.names[2], stream.dst.tolist()
    ('eve', [1, 2])
    """
    if ids not in ("auto", "keep", "number"):
        raise ParameterError(f"ids is {ids!r}; give 'auto', 'keep' or 'number'")
    roles = {"src": src, "dst": dst, "t": t, "weight": weight, "op": op, "label": label}
    reading = Reading(
        source,
        unit=unit,
        on_bad=on_bad,
        header=header,
        delimiter=delimiter,
        edge_features=edge_features,
        roles=roles,
    )
    numberings = [Numbering()] * 2 if not bipartite else [Numbering(), Numbering()]
    clock = reading.clock()
    pieces: dict[str, list[Any]] = {name: [] for name in ("src", "dst", "weight", "op", "label")}
    pieces["features"], moments = [], []
    for rows in reading.rows(sorted_only=not sort, weights_only=False):
        if ids == "keep":
            both = [kept_ids(column, reading.source.name) for column in (rows.src, rows.dst)]
        elif bipartite:
            both = [
                number(ids) for number, ids in zip(numberings, (rows.src, rows.dst), strict=True)
            ]
        else:
            numbers = numberings[0](interleaved(rows.src, rows.dst))
            both = [numbers[0::2], numbers[1::2]]
        for name, values in zip(("src", "dst"), both, strict=True):
            pieces[name].append(np.ascontiguousarray(values))
        for name in ("weight", "op", "label", "features"):
            pieces[name].append(getattr(rows, name))
        clock.see(rows.t)
        moments.append(rows.t)
    found, sentence = reading.unit_by(clock)
    notes = [sentence]
    times = np.concatenate([clock.ticks(piece, found) for piece in moments])
    notes += _rounded(clock)
    moments.clear()
    early = int((np.diff(times) < 0).sum())
    if early:
        notes.append(
            f"{counted(early, 'row')} {'is' if early == 1 else 'are'} earlier than the row before;"
            " all were sorted by time"
        )
    columns = {name: _joined(pieces.pop(name)) for name in list(pieces)}
    if ids == "keep":
        both_ids, nodes, names = [columns["src"], columns["dst"]], None, None
    else:
        both_ids, nodes, names = renumbered(
            columns["src"], columns["dst"], numberings, ids, bipartite
        )
    features, weights = columns["features"], columns["weight"]
    if weights is not None and (weights <= 0).any():
        count = int((weights <= 0).sum())
        notes.append(
            f"column {reading.chosen.roles['weight']!r} is <= 0 in {count:,} rows, so it is kept as"
            " an edge feature (the last) and every event counts 1"
        )
        extra = weights.astype(np.float32)[:, None]
        features = extra if features is None else np.concatenate([features, extra], axis=1)
        weights = None
    stream = EventStream.from_arrays(
        both_ids[0],
        both_ids[1],
        times,
        weight=weights,
        op=columns["op"],
        edge_features=features,
        labels=columns["label"],
        nodes=nodes,
        names=names,
        unit=found,
        sort=sort,
        title=Path(reading.source.name).name if title is None else title,
    )
    repeats = _Repeats()
    for first in range(0, len(stream), sources.BATCH_ROWS):
        piece = slice(first, first + sources.BATCH_ROWS)
        repeats.see(stream.src[piece], stream.dst[piece], stream.t[piece])
    notes += _counted(int((stream.src == stream.dst).sum()), repeats.count)
    return replace(stream, report=reading.report(notes))


class TableScan:
    """A table as a sequence of streams, one per piece, in bounded memory; see `scan_table`.

    Every iteration reads anew. `report`, `names` and `nodes` speak of the last one and are there
    once it has reached the end.
    """

    def __init__(self, reading: Reading, ids: Ids) -> None:
        if ids not in ("keep", "number"):
            raise ParameterError(f"ids is {ids!r}; a scan takes 'keep' or 'number'")
        self._reading = reading
        self._ids = ids
        self._end: tuple[int, NodeNames | None, ReadReport] | None = None

    def __iter__(self) -> Iterator[EventStream]:
        self._end = None
        reading, numbering, repeats = self._reading, Numbering(), _Repeats()
        clock = reading.survey()
        unit, _ = reading.unit_by(clock)
        nodes = loops = 0
        table = reading.source.name
        for rows in reading.rows(sorted_only=True, weights_only=True):
            if self._ids == "keep":
                src, dst = kept_ids(rows.src, table), kept_ids(rows.dst, table)
                nodes = max(nodes, int(src.max()) + 1, int(dst.max()) + 1)
            else:
                numbers = numbering(interleaved(rows.src, rows.dst))
                src, dst = numbers[0::2], numbers[1::2]
                nodes = len(numbering)
            t = clock.ticks(rows.t, unit)
            repeats.see(src, dst, t)
            loops += int((src == dst).sum())
            yield EventStream.from_arrays(
                src,
                dst,
                t,
                weight=rows.weight,
                op=rows.op,
                edge_features=rows.features,
                labels=rows.label,
                nodes=nodes,
                unit=unit,
                title=Path(table).name,
            )
        names = None if self._ids == "keep" else NodeNames(numbering.ids())
        notes = [reading.unit_by(clock)[1], *_rounded(clock), *_counted(loops, repeats.count)]
        self._end = nodes, names, reading.report(notes)

    def _at_end(self) -> tuple[int, NodeNames | None, ReadReport]:
        if self._end is None:
            raise DataError("the scan has not reached its end; iterate over it first")
        return self._end

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self._at_end()[0]

    @property
    def names(self) -> NodeNames | None:
        """The ids of the file by number; None where they were kept."""
        return self._at_end()[1]

    @property
    def report(self) -> ReadReport:
        """What became of the rows, and how the columns were understood."""
        return self._at_end()[2]


def _rounded(clock: Clock) -> list[str]:
    if not clock.rounded:
        return []
    finest = clock.scale[0]
    if clock.rounded == 1:
        return [f"1 time is written finer than {finest} and rounded to it"]
    return [f"{clock.rounded:,} times are written finer than {finest} and rounded to it"]


def _joined(pieces: list[Any]) -> Any:
    return None if not pieces or pieces[0] is None else np.concatenate(pieces)


class _Repeats:
    """Counts the rows that say what an earlier row of the same time said: same nodes, same time."""

    def __init__(self) -> None:
        self.count = 0
        self._t: int | None = None
        self._pairs: IntArray = np.empty(0, dtype=np.int64)  # seen at the last time so far

    def see(self, src: NDArray[Any], dst: NDArray[Any], t: IntArray) -> None:
        pair = (src.astype(np.int64) << 31) | dst
        run = np.concatenate([[0], np.cumsum(t[1:] != t[:-1])])
        together = np.bincount(run)[run] > 1
        if together.any():
            order = np.lexsort((pair[together], run[together]))
            pairs, runs = pair[together][order], run[together][order]
            self.count += int(((pairs[1:] == pairs[:-1]) & (runs[1:] == runs[:-1])).sum())
        if self._t == int(t[0]):
            self.count += int(np.isin(np.unique(pair[run == 0]), self._pairs).sum())
        tail = np.unique(pair[run == run[-1]])
        if run[-1] == 0 and self._t == int(t[0]):
            tail = np.union1d(tail, self._pairs)
        self._t, self._pairs = int(t[-1]), tail


def _counted(loops: int, repeats: int) -> list[str]:
    notes = []
    if loops == 1:
        notes.append("1 event leads from a node to itself; it is kept")
    elif loops:
        notes.append(f"{loops:,} events lead from a node to itself; they are kept")
    if repeats == 1:
        notes.append("1 event repeats another of the same time; it is kept")
    elif repeats:
        notes.append(f"{repeats:,} events repeat another of the same time; they are kept")
    return notes
