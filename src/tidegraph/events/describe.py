"""Statistics of a stream: counts, rhythm, repetition, degrees; as numbers and text."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError
from tidegraph.core.words import counted
from tidegraph.events.columns import IntArray, Op
from tidegraph.events.moments import dates, span_in_words
from tidegraph.events.stream import EventStream

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_ACTIVITY_BINS = 60
_ENOUGH_GAPS = 3  # needed to compute burstiness


@dataclass(frozen=True, slots=True)
class Description:
    """What a user first wants to know about a stream."""

    title: str
    events: int
    nodes: int
    active_nodes: int  # with an event
    pairs: int  # distinct (source, destination)
    unit: str
    first: int
    last: int
    first_date: str | None  # None unless times are dates
    last_date: str | None
    span: str  # in words
    repeat_rate: float  # share of events whose pair had occurred before
    self_edges: int
    bipartite: bool  # no source is ever a destination
    sources: int
    destinations: int
    times: int  # distinct
    events_per_time_median: float
    events_per_time_max: int
    burstiness: float | None  # of the gaps between events: -1 clockwork, 0 Poisson, 1 bursts
    burstiness_of_nodes: float | None  # the median over nodes with three gaps or more
    events_per_node: tuple[int, ...]  # at QUANTILES, of active nodes; a self-edge counts once
    neighbours_per_node: tuple[int, ...]
    weighted: bool
    removals: int
    initial_edges: int
    edge_features: int
    node_features: int
    event_labels: dict[str, int]  # label -> events, the eight most frequent
    event_classes: int
    labelled_nodes: int
    node_classes: int
    label_changes: int
    activity: tuple[int, ...]  # events in equal parts of the span
    degrees: tuple[tuple[int, int, int], ...]  # (from, to, nodes with that many events)
    digest: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self) | {"quantiles": list(QUANTILES)}


def describe(stream: EventStream) -> Description:
    """Return the description of a stream; takes some seconds per ten million events."""
    src, dst, t = stream.src, stream.dst, stream.t
    if not len(stream):
        raise DataError("the stream holds no events; there is nothing to describe")
    first, last = int(t[0]), int(t[-1])
    loops = src == dst
    pairs = _distinct(src * stream.nodes + dst)
    events_of, gaps_of = _per_node(stream, loops)
    active = events_of > 0
    neighbours = _neighbours(pairs, stream.nodes)
    sources, destinations = (np.bincount(ends, minlength=stream.nodes) > 0 for ends in (src, dst))
    starts = np.flatnonzero(np.concatenate([[True], np.diff(t) != 0]))
    per_time = np.diff(np.append(starts, len(t)))
    first_date, last_date = dates(first, last, stream.unit)
    event_labels, event_classes = _event_labels(stream)
    return Description(
        title=stream.title,
        events=len(stream),
        nodes=stream.nodes,
        active_nodes=int(active.sum()),
        pairs=len(pairs),
        unit=stream.unit,
        first=first,
        last=last,
        first_date=first_date,
        last_date=last_date,
        span=span_in_words(last - first, stream.unit),
        repeat_rate=1 - len(pairs) / len(stream),
        self_edges=int(loops.sum()),
        bipartite=not (sources & destinations).any(),
        sources=int(sources.sum()),
        destinations=int(destinations.sum()),
        times=len(starts),
        events_per_time_median=float(np.median(per_time)),
        events_per_time_max=int(per_time.max()),
        burstiness=_burstiness(np.diff(t)),
        burstiness_of_nodes=gaps_of,
        events_per_node=_quantiles(events_of[active]),
        neighbours_per_node=_quantiles(neighbours[active]),
        weighted=stream.weight is not None,
        removals=0 if stream.op is None else int(np.count_nonzero(stream.op == Op.REMOVE)),
        initial_edges=0 if stream.initial is None else len(stream.initial.src),
        edge_features=_columns(stream.edge_features),
        node_features=_columns(stream.node_features),
        event_labels=event_labels,
        event_classes=event_classes,
        **_node_labels(stream),
        activity=_activity(t),
        degrees=_degree_histogram(events_of[active]),
        digest=stream.digest(),
    )


def _columns(features: NDArray[Any] | None) -> int:
    return 0 if features is None else int(features.shape[1])


def _distinct(values: IntArray) -> IntArray:
    """Return each value once, by sorting: np.unique hashes, which is far slower on millions."""
    ordered = np.sort(values)
    return np.asarray(ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]])


def _quantiles(values: IntArray) -> tuple[int, ...]:
    return tuple(np.quantile(values, QUANTILES, method="inverted_cdf").astype(int).tolist())


def _per_node(stream: EventStream, loops: NDArray[np.bool_]) -> tuple[IntArray, float | None]:
    """Return events per node, and the median over nodes of the burstiness of their gaps."""
    node = np.concatenate([stream.src, stream.dst[~loops]])
    event = np.concatenate([np.arange(len(stream)), np.flatnonzero(~loops)])
    events = np.bincount(node, minlength=stream.nodes)
    # By node and then by time: one combined key sorts much faster than two.
    node, event = np.divmod(np.sort(node * len(stream) + event), len(stream))
    same = node[1:] == node[:-1]
    gap, owner = np.diff(stream.t[event])[same].astype(np.float64), node[1:][same]
    count = np.bincount(owner, minlength=stream.nodes)
    enough = count >= _ENOUGH_GAPS
    if not enough.any():
        return events, None
    mean = np.bincount(owner, gap, stream.nodes)[enough] / count[enough]
    square = np.bincount(owner, gap**2, stream.nodes)[enough] / count[enough]
    spread = np.sqrt(np.maximum(square - mean**2, 0))
    known = mean + spread > 0
    ratio = (spread[known] - mean[known]) / (spread[known] + mean[known])
    return events, float(np.median(ratio)) if len(ratio) else None


def _burstiness(gaps: IntArray) -> float | None:
    """Return Goh and Barabási's (σ - μ) / (σ + μ)."""
    if len(gaps) < _ENOUGH_GAPS or not gaps.any():
        return None
    mean, spread = float(gaps.mean()), float(gaps.std())
    return (spread - mean) / (spread + mean)


def _neighbours(pairs: IntArray, nodes: int) -> IntArray:
    """Return the number of distinct neighbours of each node, itself not counted."""
    src, dst = np.divmod(pairs, nodes)
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    low, high = np.divmod(_distinct((low * nodes + high)[low != high]), nodes)
    return np.bincount(low, minlength=nodes) + np.bincount(high, minlength=nodes)


def _event_labels(stream: EventStream) -> tuple[dict[str, int], int]:
    if stream.labels is None:
        return {}, 0
    labels, counts = np.unique(stream.labels, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:8]
    return {str(labels[k]): int(counts[k]) for k in most}, len(labels)


def _node_labels(stream: EventStream) -> dict[str, int]:
    known = stream.node_labels
    if known is None:
        return {"labelled_nodes": 0, "node_classes": 0, "label_changes": 0}
    order = np.lexsort([known.t, known.node])
    node, label = known.node[order], known.label[order]
    changed = (node[1:] == node[:-1]) & (label[1:] != label[:-1])
    return {
        "labelled_nodes": int(np.count_nonzero(np.diff(node))) + 1 if len(node) else 0,
        "node_classes": len(_distinct(label)),
        "label_changes": int(changed.sum()),
    }


def _activity(t: IntArray) -> tuple[int, ...]:
    span = int(t[-1]) - int(t[0])
    bins = min(_ACTIVITY_BINS, span + 1)
    edges = t[0] + np.array([(span + 1) * k // bins for k in range(bins + 1)], dtype=np.int64)
    return tuple(np.diff(np.searchsorted(t, edges)).tolist())


def _degree_histogram(events_of: IntArray) -> tuple[tuple[int, int, int], ...]:
    """Return the nodes by number of events, in classes that double."""
    powers = np.floor(np.log2(events_of)).astype(np.int64)
    counts = np.bincount(powers)
    fewest = int(powers.min())
    return tuple((2**k, 2 ** (k + 1) - 1, int(counts[k])) for k in range(fewest, len(counts)))


# Words -------------------------------------------------------------------------------------------


def facts(what: Description) -> list[tuple[str, str]]:
    """Return the description as lines of (name, value)."""
    when = f"{what.first:,} to {what.last:,} ({what.unit})"
    if what.first_date is not None:
        when = f"{what.first_date} to {what.last_date}"
    silent = what.nodes - what.active_nodes
    sides = f"{what.sources:,} sources, {what.destinations:,} destinations"
    lines = [
        ("events", f"{what.events:,}"),
        ("nodes", f"{what.nodes:,}" + (f", {silent:,} of them without events" if silent else "")),
        ("pairs", f"{what.pairs:,} distinct"),
        ("span", f"{what.span}, {when}"),
        ("repeats", f"{what.repeat_rate:.1%} of events repeat a pair"),
        ("bipartite", f"yes: {sides}" if what.bipartite else f"no; {sides}"),
        ("self-edges", f"{what.self_edges:,}"),
        (
            "time steps",
            f"{what.times:,} distinct times; events in each: median"
            f" {what.events_per_time_median:g}, at most {what.events_per_time_max:,}",
        ),
    ]
    if what.burstiness is not None:
        of_nodes = what.burstiness_of_nodes
        typical = "" if of_nodes is None else f"; of a typical node {of_nodes:+.2f}"
        lines.append(
            ("burstiness", f"{what.burstiness:+.2f}{typical} (-1 clockwork, 0 random, 1 bursts)")
        )
    most = ", ".join(f"{label}: {count:,}" for label, count in what.event_labels.items())
    rest = ", ..." if what.event_classes > len(what.event_labels) else ""
    labelled = f"{what.labelled_nodes:,} nodes, {what.label_changes:,} changes"
    where_any = [
        ("weights", "yes", what.weighted),
        ("removals", f"{what.removals:,} events remove an edge", what.removals),
        ("starts from", f"a graph of {what.initial_edges:,} edges", what.initial_edges),
        ("event labels", f"{what.event_classes} classes ({most}{rest})", what.event_classes),
        ("node labels", f"{what.node_classes} classes, {labelled}", what.node_classes),
        ("edge features", counted(what.edge_features, "column"), what.edge_features),
        ("node features", counted(what.node_features, "column"), what.node_features),
    ]
    return [
        *lines,
        ("events/node", _quantile_words(what.events_per_node)),
        ("neighbours/node", _quantile_words(what.neighbours_per_node)),
        *((name, text) for name, text, amount in where_any if amount),
    ]


def _quantile_words(values: tuple[int, ...]) -> str:
    at = dict(zip(QUANTILES, values, strict=True))
    return f"median {at[0.5]:,}, 90% up to {at[0.9]:,}, 99% up to {at[0.99]:,}, at most {at[1.0]:,}"


# Bars ---------------------------------------------------------------------------------------------


def bars(values: tuple[int, ...], *, height: int = 4, plain: bool = False) -> list[str]:
    """Return a bar chart as lines of text, one column per value; `plain` uses only ASCII.

    >>> bars((0, 1, 2), height=1, plain=True)
    [' .:']
    """
    marks = " .:" if plain else " ▁▂▃▄▅▆▇█"
    full = len(marks) - 1
    peak = max(values, default=0) or 1
    # Rounded up, so that small values stay visible.
    levels = [math.ceil(value * height * full / peak) for value in values]
    return [
        "".join(marks[min(full, max(0, level - row * full))] for level in levels)
        for row in reversed(range(height))
    ]
