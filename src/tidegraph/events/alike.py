"""Later events read as those of a stream were, so that they continue it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.columns import TIME_LIMIT
from tidegraph.events.formats import Format, look, read
from tidegraph.events.moments import dates, epoch_unit
from tidegraph.events.names import STRING, NodeNames
from tidegraph.events.own_columns import carried_columns
from tidegraph.events.read_report import Conventions
from tidegraph.events.stream import EventStream
from tidegraph.events.tables.advice import TableError
from tidegraph.events.tables.columns import choose_columns
from tidegraph.events.tables.rows import is_written
from tidegraph.events.tables.source import Source
from tidegraph.events.tables.sources import source_of
from tidegraph.events.tables.times import Clock
from tidegraph.events.vocabulary import are_integers

_FAR = 100  # lengths of the stream from its ends, beyond which times count something else


def read_like(
    stream: EventStream, source: Any, *, format: Format = "auto", **options: Any
) -> EventStream:
    """Return the events of a source, read as those of the stream were and continuing it.

    A table has the columns of the stream's own, of words where those hold words. Dates, decimals
    and ids mean what they mean there, and times are in the stream's unit; times since 1970 show
    theirs by their size. Where the column of labels is missing, labels are unknown. Raise an error
    for times far from the stream's, which count something else.

    options: of `read`; what they say goes first, and with a unit no time is too far.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if format == "auto":
        of_tables = given.keys() - {"unit", "sort", "on_bad", "title"}
        format, source = ("table", source) if of_tables else look(source)
    if format in ("table", "snap"):
        format = "table"
        source, given = _like_its_table(stream, source, given)
    elif format == "saved":  # it is sorted, and has no bad rows
        given = {name: given[name] for name in given.keys() - {"sort", "on_bad"}}
    else:
        given = {"unit": _unit(stream)} | given
    events = read(source, format, **given)
    merged = options.get("bipartite") is False
    return continued(events, stream, sure=options.get("unit") is not None, merged=merged)


def continued(
    events: EventStream, stream: EventStream, *, sure: bool = False, merged: bool = False
) -> EventStream:
    """Return events with the unit, nodes, columns and codes of the stream.

    sure: accept times however far they are. merged: whether an id is surely one node, be it a
    source or a destination.
    """
    events = _in_unit(events, stream)
    if not sure:
        _check_near(events, stream)
    if stream.weight is None:
        events = replace(events, weight=None)
    if (events.labels is None) != (stream.labels is None):
        unknown = None if stream.labels is None else np.full(len(events), -1)
        events = replace(events, labels=unknown, vocabulary=replace(events.vocabulary, labels=()))
    if are_integers(stream.vocabulary.labels):  # and 1.0 is 1
        words = tuple(re.sub(r"\.0+$", "", word) for word in events.vocabulary.labels)
        events = replace(events, vocabulary=replace(events.vocabulary, labels=words))
    events = _named_alike(events, stream).continuing(stream)
    if not merged and _conventions(stream).bipartite is None:
        _check_sides(events, stream)
    return events


def _conventions(stream: EventStream) -> Conventions:
    return (None if stream.report is None else stream.report.conventions) or Conventions()


# Options ------------------------------------------------------------------------------------------


_ROLES = ("src", "dst", "t", "weight", "op", "label")
_DIALECT = ("header", "delimiter", "decimal", "query")


def _like_its_table(
    stream: EventStream, source: Any, given: Mapping[str, Any]
) -> tuple[Source, dict[str, Any]]:
    """Return a source, and the options of `read_table` that read it as the stream's table."""
    conventions = _conventions(stream)
    table = _source({name: given.get(name) for name in _DIALECT}, source, conventions.decimal)
    uses = {} if stream.report is None else stream.report.columns
    roles: dict[str, Any] = {role: use.column for role, use in uses.items() if use.by != "place"}
    if stream.weight is None:
        roles["weight"] = False  # one that was <= 0 is a feature
    if stream.labels is None or roles.get("label", table.columns[0]) not in table.columns:
        roles["label"] = False
    options = {
        **roles,
        "edge_features": carried_columns(stream),
        "bipartite": stream.names is not None and stream.names.by_side,
        "unit": _unit(stream),
        **{name: value for name, value in given.items() if name not in _DIALECT},
    }
    chosen = choose_columns(table, {role: options.get(role) for role in _ROLES}, ()).roles
    options["words"] = [*stream.vocabulary.categories]
    if "label" in chosen and stream.vocabulary.labels:
        options["words"].append(chosen["label"])
    if is_written(table, chosen["t"], conventions.date_format):
        options.setdefault("date_format", conventions.date_format)
    return table, options


def _source(dialect: dict[str, Any], source: Any, decimal: str) -> Source:
    """Return the source of a table; its decimals have a comma if those of another table have."""
    if decimal == "," and dialect["decimal"] is None:
        with contextlib.suppress(ParameterError):  # commas delimit its cells
            return source_of(source, **dialect | {"decimal": decimal})
    return source_of(source, **dialect)


# Times --------------------------------------------------------------------------------------------


def _since_1970(stream: EventStream) -> bool:
    """Whether the times of a stream are such of our age, in its unit."""
    ends = stream.t[[0, -1]].tolist() if len(stream) else []
    return bool(ends) and all(epoch_unit(end) == stream.unit for end in ends)


def _unit(stream: EventStream) -> str | None:
    """Return the unit of numbers as the stream's table has them; None if their size shows it."""
    return None if _since_1970(stream) else _conventions(stream).unit


def _in_unit(events: EventStream, stream: EventStream) -> EventStream:
    """Return the events with times in the unit of the stream."""
    if events.unit == stream.unit or events.node_labels is not None:
        return events
    reach = int(np.abs(events.t).max(initial=0))
    finer = dict(Clock(events.unit).scales).get(stream.unit, 0)
    coarser = dict(Clock(stream.unit).scales).get(events.unit, 0)
    if finer and reach * finer < TIME_LIMIT:
        return replace(events, t=events.t * finer, unit=stream.unit)
    if coarser and not (events.t % coarser).any():
        return replace(events, t=events.t // coarser, unit=stream.unit)
    units = f"count {events.unit}, those of earlier events {stream.unit}"
    problem = f"times of {_title(events)} {units}"
    if coarser:
        raise DataError(
            f"{problem}, and some of them lie in between; round them to whole {stream.unit}, or"
            " train on all events together"
        )
    raise TableError(
        problem, "give the unit they count, such as {unit}", unit=[{"unit": stream.unit}]
    )


def _check_near(events: EventStream, stream: EventStream) -> None:
    """Raise TableError if times are so far from those of the stream that they count another unit.

    Times since 1970 must be followed by such times.
    """
    if not len(events) or not len(stream):
        return
    first, last, begin, end = (
        int(t) for t in (stream.t[0], stream.t[-1], events.t[0], events.t[-1])
    )
    room = _FAR * max(last - first, 1)
    if _since_1970(stream):
        if _since_1970(events):
            return
    elif first - room <= begin and end <= last + room:
        return
    known, found = (
        " to ".join(str(each or t) for t, each in zip(ends, dates(*ends, stream.unit), strict=True))
        for ends in ((first, last), (begin, end))
    )
    written = None if events.report is None else events.report.conventions
    counted = (written and written.unit) or events.unit
    raise TableError(
        f"times of {_title(events)}, read as {counted}, are {found} ({stream.unit}), far from"
        f" those of earlier events, {known}",
        "say which unit they count, or {unit} if this is right",
        unit=[{"unit": counted}],
    )


def _title(events: EventStream) -> str:
    return events.title or "the events"


# Nodes --------------------------------------------------------------------------------------------


def _named_alike(events: EventStream, stream: EventStream) -> EventStream:
    """Return the events with names of the kind that the stream has, and only where it has some."""
    known, names = stream.names, events.names
    if known is None and names is None:
        return events
    sides = [each is not None and each.by_side for each in (known, names)]
    if sides[0] != sides[1]:
        means = ("one node, be it a source or a destination", "another node as a destination")
        raise TableError(
            f"an id of {_title(events)} is {means[sides[1]]}, and one of the earlier events"
            f" {means[sides[0]]}",
            "read both alike, the later ones with {sides}",
            sides=[{"bipartite": sides[0]}],
        )
    if names is None:
        names = NodeNames(np.arange(events.nodes))
    if known is not None and not known.are_integers and names.are_integers:
        names = NodeNames(names.values.astype(STRING))
    if known is not None and known.are_integers == names.are_integers:
        return replace(events, names=names)
    ids = names.values
    if not names.are_integers or (known is None and ids.min() < 0):
        kind = "integers from 0 on" if known is None else "integers"
        plain = re.compile(r"0|[1-9]\d*" if known is None else r"0|-?[1-9]\d*")
        others = (name for name in ids.tolist() if not plain.fullmatch(str(name)))
        other = next(others, max(ids.tolist(), key=lambda name: len(str(name))))  # it is too large
        raise DataError(
            f"ids of earlier events are {kind}, and {_title(events)} has others, such as {other};"
            " give such ids, or train on all events together"
        )
    src, dst = ids[events.src], ids[events.dst]
    return replace(events, src=src, dst=dst, nodes=int(ids.max()) + 1, names=None)


def _check_sides(events: EventStream, stream: EventStream) -> None:
    """Raise TableError if an id is on both sides now, and the columns are of two kinds of nodes."""
    src, dst = (np.union1d(getattr(events, side), getattr(stream, side)) for side in ("src", "dst"))
    both = np.intersect1d(src, dst)
    if not len(both):
        return
    assert stream.report is not None
    uses = stream.report.columns
    raise TableError(
        f"the id {events.name(both[0])} is in both {uses['src'].column!r} and"
        f" {uses['dst'].column!r}; by their names these are different nodes, but earlier events"
        " had no id in both, so that ids do not say their side",
        "train on all events together, or use {merged} if it is the same node",
        merged=[{"bipartite": False}],
    )
