"""The stream replayed through a new engine: its work over time, a map of the nodes, who moved."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.palette import SERIES
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel
from tidegraph.engine.explanation import explain
from tidegraph.engine.propagator import Propagator
from tidegraph.evaluation import Split
from tidegraph.events.moments import span_in_words
from tidegraph.events.stream import EventStream

if TYPE_CHECKING:
    from tidegraph.learning.tasks import LinkPredictor, NodeClassifier

__all__ = ["COLOURED_BY", "INTERVALS", "Gathered", "evenly", "replay"]

IntArray = NDArray[np.int64]
Gathered = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # facts and arrays, by name

INTERVALS = 60  # of a replay, and of other curves over time
_CERTIFIED_NODES = 512  # nodes whose certificates are read after each interval
_MAP_NODES = 1_500
_CANDIDATES = 50_000  # nodes among which the movers are searched
_MOVERS = 5
_EXPLAINED_EVENTS = 1_000  # at the end of the stream: an explanation takes about 1 ms for each
_EXPLAIN_S = 15.0  # after which movers are named and no longer explained
_EXPLAIN_STREAM = 2_000_000  # events up to which a stream is replayed for an explanation
_SHARES = 4  # events and nodes named per mover

# What the colour of a node on the map means.
COLOURED_BY = {
    "label": "its latest label",
    "side": "its side",
    "activity": "how many events it had",
}


def evenly(count: int, wanted: int) -> IntArray:
    """Return up to `wanted` of `count` positions, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(np.int64))


def replay(
    predictor: LinkPredictor | NodeClassifier, stream: EventStream, split: Split, report: Progress
) -> Gathered:
    """Return what the engine does over time, where the nodes are at the end, and who moved."""
    propagator, steps = predictor.propagator(stream), stream.steps()
    stretch = _last_stretch(stream, split)
    # Intervals end where steps do, one of them where the stretch begins.
    bounds = np.append(np.linspace(0, len(stream), INTERVALS + 1)[1:], stretch)
    cuts = np.unique(np.searchsorted(steps.offsets, bounds))
    cuts = cuts[cuts > 0]
    certified_nodes = evenly(stream.nodes, _CERTIFIED_NODES)
    movable = _movable(stream, stretch)
    before = propagator.embedding(movable)[:, 0]
    rows: list[tuple[int, int, int, float, int]] = []
    certified: list[NDArray[np.float64]] = []
    done = 0
    for cut in cuts.tolist():
        report(done, len(steps), "replaying the stream")
        offsets = steps.offsets[done : cut + 1]
        batch = steps.batch(done, cut)
        begun = time.perf_counter()
        touched = propagator.apply_steps(batch, offsets - offsets[0])
        seconds = time.perf_counter() - begun
        last = int(offsets[-1])
        count = last - int(offsets[0])
        rows.append((int(stream.t[last - 1]), count, cut - done, seconds, int(touched.sum())))
        certified.append(_certified(propagator, certified_nodes))
        done = cut
        if last == stretch:
            before = propagator.embedding(movable)[:, 0]
    when, events, taken, spent, reached = zip(*rows, strict=True)
    arrays: dict[str, NDArray[Any]] = {
        "replay.t": np.array(when, dtype=np.int64),
        "replay.events": np.array(events, dtype=np.float64),
        "replay.steps": np.array(taken, dtype=np.float64),
        "replay.seconds": np.array(spent, dtype=np.float64),
        "replay.touched": np.array(reached, dtype=np.float64),
        "replay.certified": np.stack(certified),
    }
    about: dict[str, Any] = {
        "channels": [_channel_name(channel, stream.unit) for channel in propagator.channels],
        "r_max": propagator.r_max,
        "r_max_unit": propagator.r_max_unit,
        "threads": propagator.threads,
    }
    for facts, found in (
        _map(propagator, stream),
        _movers(predictor, propagator, stream, stretch, movable, before, report),
    ):
        about |= facts
        arrays |= found
    return about, arrays


def _certified(propagator: Propagator, nodes: IntArray) -> NDArray[np.float64]:
    """Return, per channel, the largest certified error as a fraction of the threshold."""
    threshold = propagator.threshold(nodes)
    bound = propagator.error_bound(nodes)
    ratio = np.divide(bound, threshold, out=np.zeros_like(bound), where=threshold > 0)
    return np.asarray(ratio.max(axis=(0, 2)))


def _channel_name(channel: Channel, unit: str) -> str:
    name = "low-pass" if channel.gamma > 0 else "high-pass"
    if channel.half_life is None:
        return f"{name}, all edges"
    # If time counts steps, a half-life may be a fraction of one.
    length = (
        f"{channel.half_life:.3g} {unit}s"
        if unit in ("step", "year")
        else span_in_words(round(channel.half_life), unit)
    )
    return f"{name}, half-life {length}"


def _map(propagator: Propagator, stream: EventStream) -> Gathered:
    """Return the nodes in the two directions in which they differ most, and their groups."""
    events = np.bincount(stream.src, minlength=stream.nodes)
    events += np.bincount(stream.dst, minlength=stream.nodes)
    active = np.flatnonzero(events)
    generator = np.random.default_rng(0)
    nodes = np.sort(generator.permutation(active)[:_MAP_NODES])
    # Without the node's own feature, which has a direction to itself. And only the direction of
    # the state: its length follows the degree, which another figure shows.
    states = propagator.embedding(nodes)[:, 0].astype(np.float64)
    states -= propagator.channels[0].gamma0 * propagator.features(nodes)
    states /= np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-12)
    states -= states.mean(axis=0)
    left, spread, _ = np.linalg.svd(states, full_matrices=False)
    place = np.zeros((len(nodes), 2))
    kept = min(2, len(spread))
    place[:, :kept] = left[:, :kept] * spread[:kept]
    total = float(np.square(spread).sum()) or 1.0
    share = np.zeros(2)
    share[:kept] = np.square(spread[:kept]) / total
    by, names, group = _groups(stream, nodes, events)
    about = {
        "map": {
            "by": by,
            "groups": names,
            "share": share.tolist(),
            "active": len(active),
            "names": [_short(name) for name in stream.name(nodes)],
        }
    }
    arrays = {
        "map.place": place,
        "map.group": group.astype(np.int64),
        "map.events": events[nodes].astype(np.int64),
    }
    return about, arrays


def _groups(
    stream: EventStream, nodes: IntArray, events: IntArray
) -> tuple[str, list[str], IntArray]:
    """Return what the groups mean, their names, and the group of each node."""
    latest = _latest_labels(stream)
    if latest is not None:
        label, known = latest
        values, counts = np.unique(label[nodes][known[nodes]], return_counts=True)
        shown = np.sort(values[np.argsort(-counts, kind="stable")][:SERIES])
        group = np.full(len(nodes), len(shown))
        at = np.minimum(np.searchsorted(shown, label[nodes]), max(len(shown) - 1, 0))
        fits = known[nodes] & (len(shown) > 0)
        if len(shown):
            fits &= shown[at] == label[nodes]
        group[fits] = at[fits]
        rest = "no label" if len(shown) == len(values) else "other or none"
        return "label", [*(f"label {value}" for value in shown), rest], group
    if stream.bipartite:
        is_source = np.zeros(stream.nodes, dtype=bool)
        is_source[stream.src] = True
        group = np.where(is_source[nodes], 0, 1)
        return "side", ["source", "destination"], group
    quartiles = np.quantile(events[events > 0], [0.5, 0.75, 0.95])
    names = ["few events (half of the nodes)", "more", "many", "most (the top 5%)"]
    return "activity", names, np.searchsorted(quartiles, events[nodes])


def _latest_labels(stream: EventStream) -> tuple[IntArray, NDArray[np.bool_]] | None:
    """Return the latest label of each node and whether it has one; None without any labels."""
    if stream.node_labels is not None:
        given = stream.node_labels
        node, t, label = given.node, given.t, given.label
    elif stream.labels is not None:
        node, t, label = stream.src, stream.t, stream.labels
    else:
        return None
    order = np.argsort(t, kind="stable")
    order = order[label[order] >= 0]
    latest, known = np.zeros(stream.nodes, dtype=np.int64), np.zeros(stream.nodes, dtype=bool)
    latest[node[order]] = label[order]  # the last assignment wins
    known[node[order]] = True
    return latest, known


def _short(name: Any, limit: int = 40) -> str:
    text = str(name)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# Movers -------------------------------------------------------------------------------------------


def _last_stretch(stream: EventStream, split: Split) -> int:
    """Return where the last events of the test period begin, at the first event of a time."""
    rows = split.test if len(split.test) else split.validation
    first = max(int(rows[0]), len(stream) - _EXPLAINED_EVENTS)
    return int(np.searchsorted(stream.t, stream.t[first], side="left"))


def _movable(stream: EventStream, stretch: int) -> IntArray:
    """Return nodes that had an event before the stretch: new ones move anyway."""
    seen = np.zeros(stream.nodes, dtype=bool)
    seen[stream.src[:stretch]] = True
    seen[stream.dst[:stretch]] = True
    nodes = np.flatnonzero(seen)
    if len(nodes) > _CANDIDATES:
        nodes = np.sort(np.random.default_rng(0).permutation(nodes)[:_CANDIDATES])
    return nodes


class _OutOfTime(Exception):
    """Raised inside an explanation that takes too long."""


def _movers(
    predictor: LinkPredictor | NodeClassifier,
    propagator: Propagator,
    stream: EventStream,
    stretch: int,
    movable: IntArray,
    before: NDArray[Any],
    report: Progress,
) -> Gathered:
    """Return those that moved most since `stretch`, with reasons while there is time."""
    begin, end = int(stream.t[stretch]), int(stream.t[-1]) + 1
    about: dict[str, Any] = {
        "begin": begin,
        "end": end,
        "events": len(stream) - stretch,
        "among": len(movable),
        "rows": [],
    }
    if not len(movable):
        return {"movers": about}, {}
    moved = np.linalg.norm(propagator.embedding(movable)[:, 0] - before, axis=1)
    length = np.linalg.norm(before, axis=1)
    order = np.argsort(-moved, kind="stable")[:_MOVERS]
    own = np.bincount(stream.src[stretch:], minlength=stream.nodes)
    own += np.bincount(stream.dst[stretch:], minlength=stream.nodes)
    deadline = time.perf_counter() + _EXPLAIN_S
    for number, k in enumerate(order[moved[order] > 0].tolist()):
        report(number, _MOVERS, "explaining what moved most")
        node = int(movable[k])
        about["rows"].append(
            {
                "node": _short(stream.name([node])[0]),
                "moved": float(moved[k]),
                "relative": float(moved[k] / length[k]) if length[k] > 0 else None,
                "events": int(own[node]),
                "why": _why(predictor, propagator, stream, node, (begin, end), deadline),
            }
        )
    return {"movers": about}, {}


def _why(
    predictor: LinkPredictor | NodeClassifier,
    propagator: Propagator,
    stream: EventStream,
    node: int,
    span: tuple[int, int],
    deadline: float,
) -> dict[str, Any] | None:
    """Return the reasons in plain types, or None if finding them takes too long."""

    def watch(done: int, total: int, what: str) -> None:
        if time.perf_counter() > deadline:
            raise _OutOfTime

    if len(stream) > _EXPLAIN_STREAM or time.perf_counter() > deadline:
        return None
    try:
        found = explain(
            stream,
            node,
            *span,
            channel=propagator.channels[0],
            features=predictor.propagated(stream),
            beta=predictor.beta,
            top=_SHARES,
            progress=watch,
        ).to_dict()
    except _OutOfTime:
        return None
    for event in found["events"]:
        event["src"], event["dst"] = _short(event["src"]), _short(event["dst"])
    for neighbour in found["neighbours"]:
        neighbour["node"] = _short(neighbour["node"])
    kept = ("direct", "elsewhere", "time_passing", "unattributed", "events", "neighbours")
    return {name: found[name] for name in kept}
