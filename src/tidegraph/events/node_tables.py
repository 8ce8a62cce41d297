"""Tables about nodes: their classes, and numbers and words that describe them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.words import counted
from tidegraph.events.columns import IntArray
from tidegraph.events.moments import PER_SECOND, span_in_words
from tidegraph.events.names import Side
from tidegraph.events.read_report import ReadReport
from tidegraph.events.stream import ALWAYS, EventStream, NodeLabels
from tidegraph.events.tables import cells
from tidegraph.events.tables.advice import TableError
from tidegraph.events.tables.columns import Column, choose_columns, find_column
from tidegraph.events.tables.rows import Reading, is_written
from tidegraph.events.tables.source import Source, read_head
from tidegraph.events.tables.sources import source_of
from tidegraph.events.tables.times import Clock, Moments
from tidegraph.events.vocabulary import IS_MISSING, hashed

OnBad = Literal["error", "drop"]

PARTS = (0.6, 0.8)  # where validation and test begin, as shares of the nodes of a class
_FEWEST = 10  # labels
_CLASSES = 1000
_ONE_HOT = 32  # different words, or columns to which more of them are hashed
_COARSER = ("ns", "us", "ms", "s", "min", "h", "day")
# Names of columns, the likeliest first.
_NAMES = {
    "node": "node node_id nodeid id name vertex src source user user_id userid username account"
    " account_id customer customer_id person person_id member employee entity paper item item_id"
    " key",
    "label": "label labels class classes category target y type role group team community state"
    " status klasse",
}
_INTEGER = "^(0|-?([1-9][0-9]{0,17}|[1-8][0-9]{18}))$"  # and within 64 bits


# Classes ------------------------------------------------------------------------------------------


def with_node_labels(
    stream: EventStream,
    source: Any,
    *,
    node: Column | None = None,
    label: Column | None = None,
    t: Column | Literal[False] | None = None,
    side: Side | None = None,
    unit: str | None = None,
    date_format: str | None = None,
    on_bad: OnBad = "error",
    seed: int = 0,
) -> EventStream:
    """Return the stream with the classes of nodes in a table as its `node_labels`.

    With a time, a label is known from then on, and asked for then from what was before. Without
    one it holds at all times: nodes are divided at random, 60 % of each class to train, 20 % to
    validate and 20 % to test, and asked for at the end of the stream. Labels of events are dropped.

    source: anything `read_table` accepts; nodes are named as in the events.
    node, label, t: the column's name or position. None infers it from the header, or without one
        from the order node, label or node, time, label. t=False ignores the times.
    side: "src" or "dst", where an id means one node as a source and another as a destination. None:
        that whose column in the events has the name of this one, or that which has more of the ids;
        if both have as many, raise an error.
    unit: of the times; None: that of the stream or a coarser one, in which they lie within it.
    date_format: of dates, in the codes of strptime. None: that of the events, or recognised.
    on_bad: "error" raises for a node that has no event, a missing node and a bad time; "drop" drops
        such rows and counts them. An empty label is none.
    seed: of the division.

    Classes 0, 1, 2, ... stay what they are; others, such as words, are numbered from the most
    frequent to the rarest, and `stream.vocabulary.labels` has their names.

    >>> calls = EventStream([0, 1] * 5, [1, 2] * 5, range(10), names=["ann", "bob", "eve"])
    >>> times = {"who": ["ann", "bob"] * 5, "when": range(10), "role": ["a", "b"] * 5}
    >>> with_node_labels(calls, times, node="who", label="role").vocabulary.labels
    ('a', 'b')
    """
    table = _NodeTable.read(source, {"node": node, "label": label, "t": t}, on_bad)
    nodes = table.nodes(stream, side)
    words = table.words("label")
    labelled = ~cells.nulls(words)
    unlabelled = int((~labelled & table.used).sum())
    table.used &= labelled
    times = table.times(stream, unit, date_format) if "t" in table.roles else None
    kept = np.flatnonzero(table.used)
    nodes, when = nodes[kept], np.full(len(kept), ALWAYS) if times is None else times[kept]
    code, classes, count = _classes(words.take(pa.array(kept)), table.name)
    rows = _distinct(stream, nodes, when, code, [classes[k] for k in code.tolist()], table.name)
    if len(rows) < _FEWEST:
        raise DataError(
            f"{table.name} has {counted(len(rows), 'label')} of nodes in the events; at least"
            f" {_FEWEST} are needed, and some hundred for a result that means something"
        )
    again = len(nodes) - len(rows)
    rows = rows[np.argsort(when[rows], kind="stable")]
    part = None if times is not None else _parts(nodes[rows], code[rows], seed)
    shown = ", ".join(f"{name} {n:,}" for name, n in list(zip(classes, count, strict=True))[:8])
    remarks = [
        *table.remarks,
        f"{counted(len(rows), 'label')} of {counted(len(np.unique(nodes)), 'node')} of"
        f" {stream.nodes:,}, {counted(len(classes), 'class')}: {shown}"
        + (", ..." if len(classes) > 8 else ""),
        "labels hold at all times: nodes are divided at random, 60 % of each class train, 20 %"
        f" validate, 20 % test (seed {seed}), and are asked for at the end of the stream"
        if part is not None
        else "a label is asked for at its time, from what was before it",
    ]
    for number, what in (
        (unlabelled, "without a label"),
        (again, "that repeat another"),
        (0 if stream.labels is None else len(stream), "of events, whose own labels are not used"),
    ):
        if number:
            remarks.append(f"{counted(number, 'row')} {what}")
    rare = [name for name, n in zip(classes, count, strict=True) if n < 5]
    if rare and part is not None:
        remarks.append(f"too rare to be tested, with fewer than 5 nodes: {', '.join(rare[:5])}")
    plain = classes == tuple(map(str, range(len(classes))))
    return replace(
        stream,
        labels=None,
        node_labels=NodeLabels(nodes[rows], when[rows], code[rows], part),
        vocabulary=replace(stream.vocabulary, labels=() if plain else classes),
        report=_reported(stream, table.name, remarks),
    )


def _classes(words: pa.Array, name: str) -> tuple[IntArray, tuple[str, ...], IntArray]:
    """Return the class of each row by number, the names of classes, and how many rows have each."""
    encoded = words.dictionary_encode()
    found: list[str] = encoded.dictionary.to_pylist()
    if len(found) > _CLASSES:
        raise DataError(
            f"{name}: the labels have {len(found):,} different values, such as {found[0]!r} and"
            f" {found[1]!r}; classes are at most {_CLASSES:,}: name another column, or group them"
        )
    if len(found) == 1:
        raise DataError(f"{name}: every label is {found[0]!r}; two classes are needed")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    count = np.bincount(codes, minlength=len(found))
    numbered = {str(k) for k in range(len(found))} == set(found)
    order = sorted(
        range(len(found)), key=lambda k: int(found[k]) if numbered else (-count[k], found[k])
    )
    place = np.argsort(order)
    return place[codes], tuple(found[k] for k in order), count[order]


def _distinct(
    stream: EventStream,
    nodes: IntArray,
    t: IntArray,
    code: IntArray,
    said: Sequence[str],
    name: str,
) -> IntArray:
    """Return the first row of each node and time; raise DataError where two contradict."""
    order = np.lexsort([code, t, nodes])
    same = np.zeros(len(order), dtype=np.bool_)
    same[1:] = (np.diff(nodes[order]) == 0) & (np.diff(t[order]) == 0)
    differ = same & np.append(False, np.diff(code[order]) != 0)
    if differ.any():
        pairs = [
            f"{stream.name(nodes[order[k]])!s} is {said[order[k - 1]]!r} and {said[order[k]]!r}"
            for k in np.flatnonzero(differ)[:3].tolist()
        ]
        number = len(np.unique(nodes[order[differ]]))
        raise DataError(
            f"{name}: {counted(number, 'node')} {'has' if number == 1 else 'have'} labels that"
            f" contradict each other: {', '.join(pairs)}; give each node one label, or a column"
            " that says when each of them was known"
        )
    return np.sort(order[~same])


def _parts(nodes: IntArray, code: IntArray, seed: int) -> NDArray[np.uint8]:
    """Return the part of each node: 60, 20 and 20 % of every class, at random."""
    # By node, so that the order of the rows does not matter.
    by_node = np.argsort(nodes, kind="stable")
    shuffled = by_node[np.random.default_rng(seed).permutation(len(nodes))]
    order = shuffled[np.argsort(code[shuffled], kind="stable")]
    count = np.bincount(code)
    rank = np.arange(len(nodes)) - np.repeat(np.cumsum(count) - count, count)
    part = np.empty(len(nodes), dtype=np.uint8)
    part[order] = np.digitize(rank / np.repeat(count, count), PARTS)
    return part


# Features -----------------------------------------------------------------------------------------


def with_node_features(
    stream: EventStream,
    source: Any,
    *,
    node: Column | None = None,
    side: Side | None = None,
    on_bad: OnBad = "error",
) -> EventStream:
    """Return the stream with numbers and words that describe its nodes as `node_features`.

    Numbers, truth values and dates are standardised over the table's nodes. A column of up to 32
    different words becomes a column of 0 and 1 for each; more are hashed to 32 columns. A missing
    number is 0, and a column flags it. Nodes that the table lacks have zeros, and a flag; rows of
    nodes without events are counted and left out. Features that the stream has already stay.

    source: anything `read_table` accepts; nodes are named as in the events.
    node, side: the column with their names, and what they are; see `with_node_labels`.
    on_bad: "error" raises for a row without a node and a bad cell; "drop" drops such rows.

    >>> calls = EventStream([0], [1], [5], names=["ann", "bob"])
    >>> with_node_features(calls, {"name": ["bob", "ann"], "age": [30, 40]}).node_features.tolist()
    [[1.0], [-1.0]]
    """
    table = _NodeTable.read(source, {"node": node}, on_bad)
    nodes = table.nodes(stream, side, all_known=False)
    remarks, columns = [], []
    for name in table.others:
        found, how = _described(table, name)
        columns += found
        remarks.append(how)
    kept = np.flatnonzero(table.used)
    if not len(kept):
        raise DataError(f"{table.name} describes no node that has events; {_NAMED_ALIKE}")
    nodes = nodes[kept]
    matrix = np.column_stack([column[kept] for column in columns]) if columns else np.zeros((0, 0))
    if not matrix.size:
        raise DataError(
            f"{table.name} has no column of numbers or words that tells nodes apart, besides"
            f" {table.roles['node']!r}; leave it out, or add one"
        )
    _, first, place = np.unique(nodes, return_index=True, return_inverse=True)
    differ = (matrix != matrix[first[place]]).any(axis=1)
    if differ.any():
        twice = stream.name(np.unique(nodes[differ]))
        raise DataError(
            f"{table.name} has several rows that differ for {counted(len(twice), 'node')}, such as"
            f" {', '.join(map(str, twice[:3]))}; give one row per node"
        )
    # Standardised over the nodes the stream has, each of them once.
    whole = np.zeros((stream.nodes, matrix.shape[1]), dtype=np.float32)
    whole[nodes[first]] = matrix[first]
    lacking = np.ones(stream.nodes, dtype=np.bool_)
    lacking[nodes] = False
    if lacking.any():
        whole = np.column_stack([whole, lacking.astype(np.float32)])
        remarks.append(f"{counted(int(lacking.sum()), 'node')} not in it: zeros, and a flag")
    if stream.node_features is not None:
        whole = np.column_stack([stream.node_features, whole])
    remarks = [*table.remarks, *remarks, f"{counted(whole.shape[1], 'feature')} of nodes in all"]
    report = _reported(stream, table.name, remarks)
    return replace(stream, node_features=whole, report=report)


def _described(table: _NodeTable, name: str) -> tuple[list[NDArray[np.float32]], str]:
    """Return the features that a column becomes, by row, and a sentence on it."""
    column = table.columns[name]
    if cells.is_text(column):
        column = cells.without_missing(column)
        given = column.drop_null()
        if not len(given) or not cells.matching(given, cells.NUMBER).all():
            dates = table.dates(name)
            if dates is None:
                return _categories(column, table.used, name)
            column = pa.array(dates.whole, mask=cells.nulls(column))
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    values = cells.read_numbers(column, f"column {name!r}").values.astype(np.float64)
    missing = cells.nulls(column) | ~np.isfinite(values)
    if pa.types.is_floating(column.type):
        missing |= np.isnan(column.to_numpy(zero_copy_only=False))
    there = values[table.used & ~missing]
    if not len(there) or there.min() == there.max():
        return [], f"column {name!r} is the same for all nodes, and left out"
    scaled = np.where(missing, 0.0, (values - there.mean()) / there.std()).astype(np.float32)
    if not missing[table.used].any():
        return [scaled], f"column {name!r} holds numbers, standardised"
    flag = missing.astype(np.float32)
    rows = counted(int(missing[table.used].sum()), "row")
    return [scaled, flag], f"column {name!r} holds numbers, standardised;{IS_MISSING} in {rows}"


def _categories(
    column: pa.Array, used: NDArray[np.bool_], name: str
) -> tuple[list[NDArray[np.float32]], str]:
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    words, count = np.unique(codes[used & (codes >= 0)], return_counts=True)
    found = encoded.dictionary.to_pylist()
    if len(words) < 2:
        return [], f"column {name!r} is the same for all nodes, and left out"
    if len(words) > _ONE_HOT and (count == 1).all():
        return [], f"column {name!r} is different for every node, and left out"
    if len(words) <= _ONE_HOT:
        most = words[np.argsort(-count, kind="stable")].tolist()
        how = f"column {name!r} holds {len(words)} words, a column of 0 and 1 for each"
        return [(codes == word).astype(np.float32) for word in most], how
    bucket = np.array([*hashed(found, _ONE_HOT), -1])[codes]
    how = f"column {name!r} holds {len(words):,} words, hashed to {_ONE_HOT} columns of 0 and 1"
    return [(bucket == k).astype(np.float32) for k in range(_ONE_HOT)], how


# Tables -------------------------------------------------------------------------------------------

_NAMED_ALIKE = "nodes are named as in the events"


@dataclass
class _NodeTable:
    """A table in memory with a row per node, or per node and time."""

    name: str
    source: Source
    roles: dict[str, str]
    others: list[str]  # columns without a role
    columns: dict[str, pa.Array]
    on_bad: OnBad
    used: NDArray[np.bool_]  # rows that are not dropped
    remarks: list[str]

    @classmethod
    def read(cls, table: Any, roles: Mapping[str, Any], on_bad: OnBad) -> _NodeTable:
        if on_bad not in ("error", "drop"):
            raise ParameterError(f"on_bad is {on_bad!r}; give 'error' or 'drop'")
        source = source_of(table, None, _delimiter(table))
        found = _roles(source, roles)
        others = [column for column in source.columns if column not in found.values()]
        wanted = list(source.columns) if list(roles) == ["node"] else list(found.values())
        try:
            batches = list(source.batches(wanted, on_bad))
        except TableError as error:
            raise DataError(error.spelled(lambda _: "on_bad='drop'")) from error
        rows = sum(batch.num_rows for batch in batches)
        if not rows:
            raise DataError(f"{source.name} has no rows; give one for each node")
        whole = pa.Table.from_batches(batches)
        columns = {name: cells.plain_column(whole[name].combine_chunks()) for name in wanted}
        remarks = [f"{role} is column {column!r}" for role, column in found.items()]
        if len(wanted) < len(source.columns):
            remarks.append(f"ignored: {', '.join(map(repr, others))}")
        used = np.ones(rows, dtype=np.bool_)
        return cls(source.name, source, found, others, columns, on_bad, used, remarks)

    def _reject(self, rows: NDArray[np.bool_], problem: str, advice: str) -> None:
        """Drop rows, or raise DataError that says where the first of them is."""
        rows = rows & self.used
        if not rows.any():
            return
        if self.on_bad == "error":
            place = self.source.place(int(rows.argmax()))
            raise DataError(
                f"{self.name}, {place}: {problem}; {advice}, or drop such rows (on_bad='drop')"
            )
        self.used &= ~rows
        self.remarks.append(f"{counted(int(rows.sum()), 'row')} dropped: {problem}")

    def nodes(self, stream: EventStream, side: Side | None, *, all_known: bool = True) -> IntArray:
        """Return the number of each row's node; drop rows of nodes that the stream lacks."""
        column = self.columns[self.roles["node"]]
        self._reject(cells.nulls(column), "a node is missing", "fill it in")
        text = column if cells.is_text(column) else None
        if pa.types.is_floating(column.type):  # pandas makes floats of integers with gaps
            column = column.cast(pa.int64(), safe=False)
        names = stream.names
        if side not in (None, "src", "dst"):
            raise ParameterError(f"side is {side!r}; give 'src' or 'dst'")
        if names is not None and not names.are_integers:
            asked = column.cast(pa.string()).fill_null("").to_pylist()
            found = names.find(asked)
            if names.by_side and (found < 0).any():  # the table is about one of the sides
                found = np.where(found < 0, self._on_one_side(stream, asked, side), found)
        else:
            if text is not None:
                whole = cells.matching(text, _INTEGER) & ~cells.nulls(text)
                column = pc.if_else(pa.array(whole), text, None).cast(pa.int64())
            found = column.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            gone = cells.nulls(column)
            if names is None:
                found = np.where((found >= 0) & (found < stream.nodes), found, -1)
            else:
                found = names.find(found)
            found[gone] = -1
        self._without_unknown(found, all_known, stream)
        return found

    def _on_one_side(self, stream: EventStream, ids: list[str], side: Side | None) -> IntArray:
        """Return the numbers of ids as sources or destinations."""
        assert stream.names is not None
        uses = {} if stream.report is None else stream.report.columns
        sides: tuple[Side, ...] = ("src", "dst")
        named = [each for each in sides if each in uses and uses[each].column == self.roles["node"]]
        if side is None and len(named) == 1:
            side = named[0]
        found = {each: stream.names.find(ids, each) for each in sides}
        count = {each: int((numbers >= 0).sum()) for each, numbers in found.items()}
        if side is None and count["src"] == count["dst"] > 0:
            raise DataError(
                f"{self.name}: {counted(count['src'], 'row')} may be about sources or about"
                f" destinations, which are different nodes, such as {ids[0]}; give side='src' or"
                " side='dst' (in commands: FILE:side=src)"
            )
        return found[max(sides, key=lambda each: count[each]) if side is None else side]

    def _without_unknown(self, found: IntArray, all_known: bool, stream: EventStream) -> None:
        unknown = self.used & (found < 0)
        if not unknown.any():
            return
        ids = self.columns[self.roles["node"]].filter(pa.array(unknown)).unique()
        shown = ", ".join(str(each) for each in ids[:3].to_pylist())
        what = f"{counted(len(ids), 'node')} without events, such as {shown}"
        if all_known and self.on_bad == "error":
            known = self.used & (found >= 0)
            raise DataError(
                f"{self.name} has {what} ({int(known.sum()):,} rows have nodes of the events, which"
                f" are called like {stream.name(0)!s}); {_NAMED_ALIKE}: correct them, name the"
                " column (node=...), or drop such rows (on_bad='drop')"
            )
        self.used &= ~unknown
        self.remarks.append(f"left out: {what}")

    def words(self, role: str) -> pa.Array:
        """Return a column as text, whole numbers without a fraction; null where it is empty."""
        return cells.without_missing(cells.as_words(self.columns[self.roles[role]]))

    def _reading(self, column: str, date_format: str | None = None) -> Reading:
        """Return how a column of times is read, as those of events are."""
        others: dict[str, Any] = dict.fromkeys(("dst", "weight", "op", "label"), False)
        roles = {"src": self.roles["node"], "t": column, **others}
        return Reading(self.source, roles, date_format=date_format)

    def dates(self, name: str) -> Moments | None:
        """Return a column as dates; None if it holds others, or may be read in two ways."""
        with contextlib.suppress(TableError):
            reading = self._reading(name)
            if reading.form is not None:
                found = reading.times(self.columns[name])
                if not any(bad.rows.any() for bad in found.bad if bad.problem != cells.MISSING):
                    moments: Moments = found.values
                    return moments
        return None

    def times(
        self, stream: EventStream, unit: str | None, date_format: str | None = None
    ) -> IntArray:
        """Return the time of each row in the stream's unit."""
        column = self.columns[self.roles["t"]]
        known = None if stream.report is None else stream.report.conventions
        if date_format is None and known is not None:
            as_there = is_written(self.source, self.roles["t"], known.date_format)
            date_format = known.date_format if as_there else None
        reading = self._reading(self.roles["t"], date_format)
        dates = reading.form is not None
        if dates and stream.unit not in PER_SECOND:
            raise DataError(
                f"{self.name}: {self.roles['t']!r} holds dates, and the times of the events count"
                f" {stream.unit}; give numbers of {stream.unit}"
            )
        found = reading.times(column)
        for bad in found.bad:
            self._reject(bad.rows, bad.reason, f"give numbers of {stream.unit}, or dates")
        if dates:
            return _ticks(found.values, "s", stream.unit)
        # The stream may count a finer unit than its file, whose seconds had fractions.
        finest = _COARSER.index(stream.unit) if stream.unit in _COARSER else len(_COARSER)
        units = [stream.unit, *_COARSER[finest + 1 :]] if unit is None else [unit]
        first, last = int(stream.t[0]), int(stream.t[-1])
        read = {each: _ticks(found.values, each, stream.unit) for each in units}
        inside = {
            each: int(((times >= first) & (times <= last) & self.used).sum())
            for each, times in read.items()
        }
        best = max(units, key=lambda each: inside[each])
        if inside[best]:
            self.remarks.append(f"{self.roles['t']} counts {best}")
            return read[best]
        span = span_in_words(last - first, stream.unit)
        raise DataError(
            f"{self.name}: no time lies within the events, which are from {first} to {last}"
            f" {stream.unit} ({span}); the first is {int(found.values.whole[0])}: give times in the"
            " unit of the events, or leave the column out (t=False)"
        )


def _roles(source: Source, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the column of each role: node, and perhaps label and t.

    What no name tells is inferred by elimination, and without a header from the order node, t,
    label. A role given as False has no column.
    """
    found, free = {}, list(source.columns)
    for role, column in given.items():
        if column is None or column is False:
            continue
        found[role] = find_column(source, column, role)
        if found[role] not in free:
            raise DataError(
                f"{role} was given as column {column!r}, which has another role; {_has(source)}"
            )
        free.remove(found[role])
    wanted = [role for role in given if given[role] is None]
    if not source.headed:
        order = [role for role in ("node", "t", "label") if role in wanted]
        if len(free) < len(order) and "t" in order:
            order.remove("t")
        found |= dict(zip(order, free, strict=False))
        free = free[len(order) :]
    for role in wanted:
        match = None if role in found else _named(source, role, free)
        if match is not None:
            found[role] = match
            free.remove(match)
    lacking = [role for role in wanted if role not in found and role != "t"]
    if len(lacking) == 1 and len(free) == 1:
        found[lacking[0]] = free[0]
    elif lacking:
        raise DataError(
            f"{_has(source)}, none of which is called {' or '.join(lacking)}; name the one that is"
            f" meant: {', '.join(f'{role}=COLUMN' for role in lacking)} (in commands:"
            f" FILE:{','.join(f'{role}=COLUMN' for role in lacking)})"
        )
    return found


def _named(source: Source, role: str, columns: Sequence[str]) -> str | None:
    """Return the column whose name identifies it as `role`; times are named as in events."""
    if not columns or not source.headed:
        return None
    if role == "t":
        others = dict.fromkeys(("dst", "weight", "op", "label"), False)
        # Whatever else the table has is no time.
        taken = next((name for name in source.columns if name not in columns), columns[0])
        try:
            match = choose_columns(source, {"src": taken, "t": None, **others}, ()).roles["t"]
        except TableError:
            return None
        return match if match in columns else None
    plain = {re.sub(r"[\s.-]+", "_", name.strip().lower()): name for name in columns}
    return next((plain[name] for name in _NAMES[role].split() if name in plain), None)


def _has(source: Source) -> str:
    return f"{source.name} has the columns {', '.join(map(repr, source.columns[:12]))}"


def _ticks(moments: Moments, unit: str, wanted: str) -> IntArray:
    """Return moments in a finer unit; fractions of it are rounded up, as they are known later."""
    if unit == wanted:
        rest = 0 if moments.rest is None else np.ceil(moments.rest).astype(np.int64)
        return moments.whole + rest
    clock = Clock(unit)
    factors = dict(clock.scales)
    if wanted not in factors:
        raise DataError(f"times count {unit}, and the events {wanted}, which is not finer")
    scaled = moments.whole * factors[wanted]
    if moments.rest is not None:
        scaled = scaled + np.ceil(np.round(moments.rest * factors[wanted], 6)).astype(np.int64)
    return scaled


def _delimiter(table: Any) -> str | None:
    """Return what separates the cells of a text with two columns, which detection may miss."""
    if not isinstance(table, (str, os.PathLike)):
        return None
    path = Path(table)
    if not path.is_file() or path.suffix.lower() not in (".csv", ".tsv", ".txt"):
        return None
    head = read_head(path).decode("utf-8-sig", errors="replace").lstrip()
    marks = [mark for mark in ",;\t" if mark in head.partition("\n")[0]]
    return marks[0] if len(marks) == 1 else None


def _reported(stream: EventStream, name: str, remarks: Sequence[str]) -> ReadReport:
    """Return the report of the stream with remarks on a table about its nodes."""
    report = stream.report or ReadReport(stream.title, len(stream), len(stream))
    return replace(report, remarks=(*report.remarks, *(f"{name}: {line}" for line in remarks)))
