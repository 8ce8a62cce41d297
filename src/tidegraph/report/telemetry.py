"""What the engine does while it propagates a stream: its work, a map of the nodes, who moved.

A run that records looks at the engine meanwhile, so that its report needs no second propagation.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core import statefile
from tidegraph.core.errors import StateFileError
from tidegraph.core.palette import SERIES
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel
from tidegraph.engine.explanation import explain
from tidegraph.engine.propagator import Propagator
from tidegraph.engine.verify import Replay
from tidegraph.evaluation import Split
from tidegraph.events.moments import span_in_words
from tidegraph.events.stream import EventStream

if TYPE_CHECKING:
    from tidegraph.learning.tasks import EventClassifier, LinkPredictor, NodeClassifier

IntArray = NDArray[np.int64]
Gathered = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # facts and arrays, by name

INTERVALS = 60  # of curves over time
REPLAYED = 200_000  # events at the end of a stream that are replayed one time after the other
_AT_ONCE = 1 << 17  # of the events before them, applied together
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


class Telemetry:
    """The `watch` of a recording, which looks at the engine after each of some `INTERVALS` parts.

    `gathered` is None until the whole stream has passed; it stays None if a recording is resumed,
    since nobody saw how it began.

    latest: look at about so many events at the end, which begin at the row `begin`; None: at all.
    """

    def __init__(self, stream: EventStream, split: Split, latest: int | None = None) -> None:
        self.gathered: Gathered | None = None
        self._stream, self.stretch = stream, _last_stretch(stream, split)
        begin = 0 if latest is None else min(max(0, len(stream) - latest), self.stretch)
        self.begin = int(np.searchsorted(stream.t, stream.t[begin], side="left"))
        self.steps = stream[self.begin :].steps()
        self._rows = self.begin + self.steps.offsets
        # Parts end where steps do, one of them where the stretch begins.
        bounds = np.append(np.linspace(self.begin, len(stream), INTERVALS + 1)[1:], self.stretch)
        self._stops = np.unique(np.searchsorted(self._rows, bounds))
        self._certified_nodes = evenly(stream.nodes, _CERTIFIED_NODES)
        self._movable = _movable(stream, self.stretch)
        self._looks: list[tuple[int, int, float]] = []  # steps, nodes touched, seconds since before
        self._certified: list[NDArray[np.float64]] = []
        self._left_at = time.perf_counter()

    def __call__(self, propagator: Propagator, done: int, touched: int) -> int:
        """Look at the engine after `done` steps; return after how many to look again."""
        seconds = time.perf_counter() - self._left_at
        if done and not self._looks:
            return len(self.steps)
        self._looks.append((done, touched, seconds))
        if done:
            self._certified.append(_certified(propagator, self._certified_nodes))
        if self._rows[done] == self.stretch:
            self._before = propagator.embedding(self._movable)[:, 0]
        if done == len(self.steps):
            self.gathered = self._gather(propagator)
            return done
        self._left_at = time.perf_counter()
        return int(self._stops[np.searchsorted(self._stops, done, side="right")])

    def _gather(self, propagator: Propagator) -> Gathered:
        stream = self._stream
        done, touched, seconds = (np.array(column) for column in zip(*self._looks, strict=True))
        ends = self._rows[done]
        about: dict[str, Any] = {
            "channels": [_channel_name(channel, stream.unit) for channel in propagator.channels],
            "r_max": propagator.r_max,
            "r_max_unit": propagator.r_max_unit,
            "threads": propagator.threads,
            "movers": self._movers(propagator),
        }
        arrays: dict[str, NDArray[Any]] = {
            "replay.t": stream.t[ends[1:] - 1],
            "replay.events": np.diff(ends).astype(np.float64),
            "replay.steps": np.diff(done).astype(np.float64),
            "replay.seconds": seconds[1:],
            "replay.touched": np.diff(touched).astype(np.float64),
            "replay.certified": np.stack(self._certified),
        }
        of_map, found = _map(propagator, stream)
        return about | of_map, arrays | found

    def _movers(self, propagator: Propagator) -> dict[str, Any]:
        """Return the nodes that moved most since the stretch began."""
        stream, stretch, movable = self._stream, self.stretch, self._movable
        moved = np.linalg.norm(propagator.embedding(movable)[:, 0] - self._before, axis=1)
        length = np.linalg.norm(self._before, axis=1)
        order = np.argsort(-moved, kind="stable")[:_MOVERS]
        own = _events_of(stream[stretch:])
        return {
            "begin": int(stream.t[stretch]),
            "end": int(stream.t[-1]) + 1,
            "events": len(stream) - stretch,
            "among": len(movable),
            "rows": [
                {
                    "number": int(movable[k]),
                    "node": short(stream.name([movable[k]])[0]),
                    "moved": float(moved[k]),
                    "relative": float(moved[k] / length[k]) if length[k] > 0 else None,
                    "events": int(own[movable[k]]),
                }
                for k in order[moved[order] > 0].tolist()
            ],
        }

    def save(self, path: Path) -> None:
        """Write what was gathered, if the whole stream was seen."""
        if self.gathered is not None:
            statefile.write(path, *self.gathered)


def engine(
    predictor: LinkPredictor | NodeClassifier | EventClassifier,
    stream: EventStream,
    split: Split,
    file: Path | None,
    report: Progress,
) -> Gathered:
    """Return the telemetry in the file, or that of a replay, and why nodes moved."""
    telemetry, about = Telemetry(stream, split, REPLAYED), None
    with contextlib.suppress(OSError, StateFileError):
        if file is not None:
            about, arrays = statefile.read(file)
    recorded = about is not None and about["movers"]["events"] == len(stream) - telemetry.stretch
    if about is None or not recorded:
        about, arrays = replay(predictor, stream, telemetry, report)
    movers = _explained(about["movers"], predictor, stream, report)
    return {**about, "movers": movers, "recorded": recorded}, arrays


def replay(
    predictor: LinkPredictor | NodeClassifier | EventClassifier,
    stream: EventStream,
    telemetry: Telemetry,
    report: Progress,
) -> Gathered:
    """Propagate the stream through a new engine for nothing but the telemetry."""
    propagator = predictor.propagator(stream)
    earlier = Replay(propagator, stream[: telemetry.begin].steps(events=_AT_ONCE), progress=report)
    earlier.advance(earlier.total)
    again = Replay(propagator, telemetry.steps, progress=report)
    while telemetry.gathered is None:
        again.advance(telemetry(propagator, again.steps, again.touched))
    return telemetry.gathered


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
    if unit in ("step", "year"):
        return f"{name}, half-life {channel.half_life:.3g} {unit}s"
    return f"{name}, half-life {span_in_words(round(channel.half_life), unit)}"


def _map(propagator: Propagator, stream: EventStream) -> Gathered:
    """Return the nodes in the two directions in which they differ most, and their groups."""
    events = _events_of(stream)
    active = np.flatnonzero(events)
    nodes = _some(active, _MAP_NODES)
    # Without the node's own feature, which has a direction to itself. And only the direction of
    # the state: its length follows the degree, which another figure shows.
    states = propagator.embedding(nodes)[:, 0].astype(np.float64)
    states -= propagator.channels[0].gamma0 * propagator.features(nodes)
    states /= np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-12)
    states -= states.mean(axis=0)
    left, spread, _ = np.linalg.svd(states, full_matrices=False)
    total = float(np.square(spread).sum()) or 1.0
    share = np.pad(np.square(spread) / total, (0, 2))[:2]  # there may be one column, and no second
    by, names, group = _groups(stream, nodes, events)
    about = {
        "map": {
            "by": by,
            "groups": names,
            "share": share.tolist(),
            "active": len(active),
            "names": [short(name) for name in stream.name(nodes)],
        }
    }
    arrays = {
        "map.place": np.pad(left * spread, ((0, 0), (0, 2)))[:, :2],
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
        label = latest[nodes]
        values, counts = np.unique(label[label >= 0], return_counts=True)
        shown = np.sort(values[np.argsort(-counts, kind="stable")][:SERIES])
        rest = "no label" if len(shown) == len(values) else "other or none"
        fits = np.column_stack([label[:, None] == shown, np.ones(len(nodes), dtype=bool)])
        return "label", [*(f"label {value}" for value in shown), rest], fits.argmax(axis=1)
    if stream.bipartite:
        return "side", ["source", "destination"], np.where(np.isin(nodes, stream.src), 0, 1)
    quartiles = np.quantile(events[events > 0], [0.5, 0.75, 0.95])
    names = ["few events (half of the nodes)", "more", "many", "most (the top 5%)"]
    return "activity", names, np.searchsorted(quartiles, events[nodes])


def _latest_labels(stream: EventStream) -> IntArray | None:
    """Return the latest label of each node, -1 for none; None if the stream has no labels."""
    if stream.node_labels is not None:
        given = stream.node_labels
        node, t, label = given.node, given.t, given.label
    elif stream.labels is not None:
        node, t, label = stream.src, stream.t, stream.labels
    else:
        return None
    order = np.argsort(t, kind="stable")
    order = order[label[order] >= 0]
    latest = np.full(stream.nodes, -1)
    latest[node[order]] = label[order]  # the last assignment wins
    return latest


def _some(nodes: IntArray, most: int) -> IntArray:
    return np.sort(np.random.default_rng(0).permutation(nodes)[:most])


def _events_of(stream: EventStream) -> IntArray:
    """Return the number of events of each node."""
    return np.bincount(np.concatenate([stream.src, stream.dst]), minlength=stream.nodes)


def short(name: Any, limit: int = 40) -> str:
    text = str(name)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# Movers -------------------------------------------------------------------------------------------


def _last_stretch(stream: EventStream, split: Split) -> int:
    """Return where the last events of the test period begin, at the first event of a time."""
    late = split.train[len(split.train) * 17 // 20 :]  # where labels divide the nodes, not the time
    rows = next((rows for rows in (split.test, split.validation) if len(rows)), late)
    first = max(int(rows[0]), len(stream) - _EXPLAINED_EVENTS)
    return int(np.searchsorted(stream.t, stream.t[first], side="left"))


def _movable(stream: EventStream, stretch: int) -> IntArray:
    """Return nodes that had an event before the stretch: new ones move anyway."""
    return _some(np.flatnonzero(_events_of(stream[:stretch])), _CANDIDATES)


class _OutOfTime(Exception):
    """Raised inside an explanation that takes too long."""


def _explained(
    movers: dict[str, Any],
    predictor: LinkPredictor | NodeClassifier | EventClassifier,
    stream: EventStream,
    report: Progress,
) -> dict[str, Any]:
    """Return the movers with reasons, as long as there is time to find them."""
    deadline = time.perf_counter() + _EXPLAIN_S

    def watch(done: int, total: int, what: str) -> None:
        if time.perf_counter() > deadline:
            raise _OutOfTime

    def why(node: int) -> dict[str, Any] | None:
        if len(stream) > _EXPLAIN_STREAM or time.perf_counter() > deadline:
            return None
        try:
            found = explain(
                stream,
                node,
                movers["begin"],
                movers["end"],
                channel=predictor._channels()[0],
                features=predictor.propagated(stream),
                beta=predictor.beta,
                top=_SHARES,
                progress=watch,
            ).to_dict()
        except _OutOfTime:
            return None
        for event in found["events"]:
            event["src"], event["dst"] = short(event["src"]), short(event["dst"])
        for neighbour in found["neighbours"]:
            neighbour["node"] = short(neighbour["node"])
        kept = ("direct", "elsewhere", "time_passing", "unattributed", "events", "neighbours")
        return {name: found[name] for name in kept}

    rows = []
    for done, row in enumerate(movers["rows"]):
        report(done, len(movers["rows"]), "explaining what moved most")
        rows.append({**row, "why": why(row["number"])})
    return {**movers, "rows": rows}
