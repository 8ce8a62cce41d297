"""What a report shows of a fitted predictor, gathered once and kept as plain arrays in one file."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core import statefile
from tidegraph.core.errors import EvaluationError, StateFileError
from tidegraph.core.progress import Progress, silent
from tidegraph.engine.channels import Channel
from tidegraph.engine.explanation import explain
from tidegraph.engine.propagator import Propagator
from tidegraph.evaluation import SEEDS, Split, negative_sampler
from tidegraph.events.describe import describe, facts
from tidegraph.events.moments import span_in_words
from tidegraph.events.stream import EventStream

if TYPE_CHECKING:  # torch takes seconds to import, and reading a report needs none of it
    from tidegraph.learning.tasks import LinkPredictor, NodeClassifier

__all__ = ["Observations", "read_observations", "save_observations"]

IntArray = NDArray[np.int64]
_Gathered = tuple[dict[str, Any], dict[str, NDArray[Any]]]

_FORMAT = 1
_SCORED = 50_000  # test examples that curves are drawn from, evenly over the test period
_BATCH = 200  # positives for which negatives are drawn together, as in the evaluation
_PIECES = 60  # of a replay, and of what is shown over time
_CERTIFIED_NODES = 512  # whose certificates are looked at after each piece
_MAP_NODES = 1_500
_MAP_GROUPS = 7  # colours that can be told apart; further groups are one
_CANDIDATES = 50_000  # nodes among which the movers are looked for
_MOVERS = 5
_EXPLAINED_EVENTS = 1_000  # at the end of the stream: an explanation takes about 1 ms for each
_EXPLAIN_S = 15.0  # after which movers are named and no longer explained
_EXPLAIN_STREAM = 2_000_000  # events up to which a stream is replayed for an explanation
_SHARES = 4  # events and nodes named per mover


@dataclass(frozen=True, eq=False)
class Observations:
    """What `save_observations` gathered."""

    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def scores(self, sampler: str) -> tuple[IntArray, NDArray[np.float64]] | None:
        """Labels and scores of the true pairs and of one sampler's false ones; of links only."""
        false = self.arrays.get(f"score.{sampler}")
        if false is None:
            return None
        true = self.arrays["score.true"]
        labels = np.repeat([1, 0], [len(true), len(false)])
        return labels, np.concatenate([true, false]).astype(np.float64)


def read_observations(path: str | Path) -> Observations | None:
    """What is kept at `path`, or None where nothing is."""
    if not Path(path).exists():
        return None
    about, arrays = statefile.read(path)
    if about.get("format") != _FORMAT:
        raise StateFileError(
            f"{path} holds observations of format {about.get('format')}, and this release reads"
            f" {_FORMAT}: delete it and run again"
        )
    return Observations(about, arrays)


def save_observations(
    path: str | Path,
    *,
    predictor: LinkPredictor | NodeClassifier,
    stream: EventStream,
    split: Split,
    history: Sequence[Mapping[str, Any]] | None = None,
    progress: Progress | None = None,
) -> None:
    """Gathers what the figures of a report need into one file, written whole or not at all.

    `stream` and `split` are those the predictor was fitted with. `history` are its epochs, each
    with `epoch` (from 1), `loss`, `validation` and `seconds`; by default those it remembers.

    The stream is replayed once through a new engine with the predictor's settings. Explanations of
    those that moved most stop after some seconds; who is left is named without one.
    """
    report = progress or silent
    if history is None:
        history = [epoch.plain() for epoch in predictor.epochs_]
    gather: Callable[..., _Gathered] = (
        _link_scores if hasattr(predictor, "training_negatives") else _node_scores
    )
    about: dict[str, Any] = {
        "format": _FORMAT,
        "time": _times(stream, split),
        "history": [dict(epoch) for epoch in history],
        "settings": _plain(predictor.get_params()),
        "defaults": _plain(type(predictor)().get_params()),
        "versions": _versions(),
    }
    arrays: dict[str, NDArray[Any]] = {}
    parts: list[tuple[str, Callable[[], _Gathered]]] = [
        ("scores", lambda: gather(predictor, stream, split)),
        ("the data", lambda: _data(stream)),
        ("replay", lambda: _replay(predictor, stream, split, report)),
    ]
    for number, (what, part) in enumerate(parts):
        report(number, len(parts), f"observing {what}")
        told, found = part()
        about |= told
        arrays |= found
    statefile.write(path, about, arrays)


def _times(stream: EventStream, split: Split) -> dict[str, Any]:
    def finite(t: float) -> float | None:
        return float(t) if np.isfinite(t) else None

    return {
        "unit": stream.unit,
        "first": int(stream.t[0]),
        "last": int(stream.t[-1]),
        "validation": finite(split.validation_time),
        "test": finite(split.test_time),
    }


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON holds them; modules of one's own by their names."""

    def plain(value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Mapping):
            return {str(name): plain(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return getattr(value, "__qualname__", str(value))

    return {name: plain(value) for name, value in settings.items()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("tidegraph", "numpy", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


# Scores -------------------------------------------------------------------------------------------


def _evenly(count: int, wanted: int) -> IntArray:
    """Up to `wanted` of `count` positions, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, wanted)).round().astype(np.int64))


def _link_scores(predictor: LinkPredictor, stream: EventStream, split: Split) -> _Gathered:
    """True pairs of the test period, and false ones of each sampler, with their scores."""
    part = "test" if len(split.test) else "validation"
    asked = split.part(part)
    rows = asked[_evenly(len(asked), _SCORED)]
    src, dst, t = stream.src[rows], stream.dst[rows], stream.t[rows]
    arrays: dict[str, NDArray[Any]] = {
        "score.t": t,
        "score.true": predictor.score(src, dst, t).astype(np.float32),
    }
    # Those it was trained against are there whatever else is shown: probabilities are about them.
    own = "random-all" if predictor.any_node else "random-dst"
    for name in dict.fromkeys(["random-dst", "historical", own]):
        sampler = negative_sampler(name, stream, seed=SEEDS[part])
        try:
            drawn = [
                sampler.sample(src[k : k + _BATCH], dst[k : k + _BATCH], t[k : k + _BATCH])
                for k in range(0, len(rows), _BATCH)
            ]
        except EvaluationError:  # so small a graph that all pairs happen
            continue
        false_src, false_dst = (np.concatenate(ends) for ends in zip(*drawn, strict=True))
        arrays[f"score.{name}"] = predictor.score(false_src, false_dst, t).astype(np.float32)
    about = {
        "task": "link",
        "part": part,
        "examples": len(rows),
        "examples_of": len(asked),
        "training_negatives": predictor.training_negatives,
        # How much false pairs of each kind weigh in training, a true one weighing 1.
        "training_weights": {
            own: float(predictor.random_negatives),
            "historical": predictor.past_negatives * predictor.past_weight,
        },
    }
    return about, arrays


def _node_scores(classifier: NodeClassifier, stream: EventStream, split: Split) -> _Gathered:
    """Labels of the test period and the probabilities of all classes."""
    examples = classifier.examples(stream, split)
    assert examples.part is not None  # examples are divided
    number, part = (2, "test") if (examples.part == 2).any() else (1, "validation")
    of_part = np.flatnonzero(examples.part == number)
    of_part = of_part[np.argsort(examples.t[of_part], kind="stable")]
    rows = of_part[_evenly(len(of_part), _SCORED)] if len(of_part) else of_part
    arrays: dict[str, NDArray[Any]] = {
        "score.t": examples.t[rows],
        "score.label": examples.label[rows].astype(np.int64),
        "score.probability": classifier.predict_proba(examples.node[rows], examples.t[rows]),
        "score.classes": classifier.classes_,
    }
    about = {"task": "node", "part": part, "examples": len(rows), "examples_of": len(of_part)}
    return about, arrays


# The data -----------------------------------------------------------------------------------------


def _data(stream: EventStream) -> _Gathered:
    what = describe(stream)
    _, first = np.unique(stream.src * stream.nodes + stream.dst, return_index=True)
    repeated = np.ones(len(stream))
    repeated[first] = 0.0
    bounds = np.unique(np.linspace(0, len(stream), _PIECES + 1).round().astype(np.int64))
    about = {
        "title": what.title,
        "facts": [list(fact) for fact in facts(what)],
        "activity": list(what.activity),
        "degrees": [list(degree) for degree in what.degrees],
    }
    arrays = {
        "repeat.t": stream.t[bounds[1:] - 1],
        "repeat.rate": np.add.reduceat(repeated, bounds[:-1]) / np.diff(bounds),
    }
    return about, arrays


# The engine ---------------------------------------------------------------------------------------


def _replay(
    predictor: LinkPredictor | NodeClassifier, stream: EventStream, split: Split, report: Progress
) -> _Gathered:
    """What the engine does over time, where it leaves the nodes, and who moved at the end."""
    propagator, steps = predictor.propagator(stream), stream.steps()
    stretch = _last_stretch(stream, split)
    # Pieces end where steps do, one of them where the stretch begins.
    bounds = np.append(np.linspace(0, len(stream), _PIECES + 1)[1:], stretch)
    cuts = np.unique(np.searchsorted(steps.offsets, bounds))
    cuts = cuts[cuts > 0]
    certified_nodes = _evenly(stream.nodes, _CERTIFIED_NODES)
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
    for told, found in (
        _map(propagator, stream),
        _movers(predictor, propagator, stream, stretch, movable, before, report),
    ):
        about |= told
        arrays |= found
    return about, arrays


def _certified(propagator: Propagator, nodes: IntArray) -> NDArray[np.float64]:
    """Per channel the largest certified error over the promised one."""
    promised = propagator.threshold(nodes)
    bound = propagator.error_bound(nodes)
    ratio = np.divide(bound, promised, out=np.zeros_like(bound), where=promised > 0)
    return np.asarray(ratio.max(axis=(0, 2)))


def _channel_name(channel: Channel, unit: str) -> str:
    name = "low-pass" if channel.gamma > 0 else "high-pass"
    if channel.half_life is None:
        return f"{name}, all edges"
    # Where time counts steps a half-life may be part of one.
    length = (
        f"{channel.half_life:.3g} {unit}s"
        if unit in ("step", "year")
        else span_in_words(round(channel.half_life), unit)
    )
    return f"{name}, half-life {length}"


def _map(propagator: Propagator, stream: EventStream) -> _Gathered:
    """The two directions in which nodes differ most at the end, and what colours them."""
    events = np.bincount(stream.src, minlength=stream.nodes)
    events += np.bincount(stream.dst, minlength=stream.nodes)
    active = np.flatnonzero(events)
    generator = np.random.default_rng(0)
    nodes = np.sort(generator.permutation(active)[:_MAP_NODES])
    # What comes from others: a feature of one's own lies in a direction of its own. And where it
    # points to, not how far: that follows the degree, which is shown elsewhere.
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
    """By what nodes are coloured, the names of the groups, and the group of each node."""
    latest = _latest_labels(stream)
    if latest is not None:
        label, known = latest
        values, counts = np.unique(label[nodes][known[nodes]], return_counts=True)
        shown = np.sort(values[np.argsort(-counts, kind="stable")][: _MAP_GROUPS - 1])
        group = np.full(len(nodes), len(shown))
        at = np.minimum(np.searchsorted(shown, label[nodes]), max(len(shown) - 1, 0))
        fits = known[nodes] & (len(shown) > 0)
        if len(shown):
            fits &= shown[at] == label[nodes]
        group[fits] = at[fits]
        rest = "no label" if len(shown) == len(values) else "other or none"
        return "its latest label", [*(f"label {value}" for value in shown), rest], group
    if stream.bipartite:
        is_source = np.zeros(stream.nodes, dtype=bool)
        is_source[stream.src] = True
        group = np.where(is_source[nodes], 0, 1)
        return "its side", ["source", "destination"], group
    quartiles = np.quantile(events[events > 0], [0.5, 0.75, 0.95])
    names = ["few events (half of the nodes)", "more", "many", "most (the top 5 %)"]
    return "how many events it had", names, np.searchsorted(quartiles, events[nodes])


def _latest_labels(stream: EventStream) -> tuple[IntArray, NDArray[np.bool_]] | None:
    """The label each node had last, and whether it had one; None where there are no labels."""
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
    latest[node[order]] = label[order]  # the last assignment stands
    known[node[order]] = True
    return latest, known


def _short(name: Any, limit: int = 40) -> str:
    text = str(name)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# Movers -------------------------------------------------------------------------------------------


def _last_stretch(stream: EventStream, split: Split) -> int:
    """Where the last events of the test period begin, at the first event of its time."""
    rows = split.test if len(split.test) else split.validation
    first = max(int(rows[0]), len(stream) - _EXPLAINED_EVENTS)
    return int(np.searchsorted(stream.t, stream.t[first], side="left"))


def _movable(stream: EventStream, stretch: int) -> IntArray:
    """Nodes that had an event before: what is new moves anyway."""
    seen = np.zeros(stream.nodes, dtype=bool)
    seen[stream.src[:stretch]] = True
    seen[stream.dst[:stretch]] = True
    nodes = np.flatnonzero(seen)
    if len(nodes) > _CANDIDATES:
        nodes = np.sort(np.random.default_rng(0).permutation(nodes)[:_CANDIDATES])
    return nodes


class _OutOfTime(Exception):
    """An explanation that would take too long."""


def _movers(
    predictor: LinkPredictor | NodeClassifier,
    propagator: Propagator,
    stream: EventStream,
    stretch: int,
    movable: IntArray,
    before: NDArray[Any],
    report: Progress,
) -> _Gathered:
    """Those that moved most from `stretch` on, with the reasons for as long as there is time."""
    begin, end = int(stream.t[stretch]), int(stream.t[-1]) + 1
    told: dict[str, Any] = {
        "begin": begin,
        "end": end,
        "events": len(stream) - stretch,
        "among": len(movable),
        "rows": [],
    }
    if not len(movable):
        return {"movers": told}, {}
    moved = np.linalg.norm(propagator.embedding(movable)[:, 0] - before, axis=1)
    length = np.linalg.norm(before, axis=1)
    order = np.argsort(-moved, kind="stable")[:_MOVERS]
    own = np.bincount(stream.src[stretch:], minlength=stream.nodes)
    own += np.bincount(stream.dst[stretch:], minlength=stream.nodes)
    deadline = time.perf_counter() + _EXPLAIN_S
    for number, k in enumerate(order[moved[order] > 0].tolist()):
        report(number, _MOVERS, "explaining what moved most")
        node = int(movable[k])
        told["rows"].append(
            {
                "node": _short(stream.name([node])[0]),
                "moved": float(moved[k]),
                "relative": float(moved[k] / length[k]) if length[k] > 0 else None,
                "events": int(own[node]),
                "why": _why(predictor, propagator, stream, node, (begin, end), deadline),
            }
        )
    return {"movers": told}, {}


def _why(
    predictor: LinkPredictor | NodeClassifier,
    propagator: Propagator,
    stream: EventStream,
    node: int,
    span: tuple[int, int],
    deadline: float,
) -> dict[str, Any] | None:
    """The reasons in plain types, or None where finding them would take too long."""

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
