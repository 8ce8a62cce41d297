"""Random histories of graphs for hypothesis: every kind of event, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from numpy.typing import NDArray

from tidegraph.core.errors import PrecisionError
from tidegraph.engine.channels import Channel
from tidegraph.events.batch import Batch, Op

FloatArray: TypeAlias = NDArray[np.float64]
Pair: TypeAlias = tuple[int, int]

WHOLE = float("inf")
WEIGHTS = [1.0, 0.01, 0.3, 0.5, 2.0, 3.7, 20.0, 1000.0]
PAUSES = [0, 0, 1, 2, 7, 40, 3000]


@dataclass(frozen=True)
class Row:
    """One edge row."""

    src: int
    dst: int
    op: Op = Op.ADD
    weight: float = 1.0


@dataclass(frozen=True)
class Step:
    """The events of one time."""

    t: int
    rows: tuple[Row, ...] = ()
    new_features: tuple[tuple[float, ...], ...] = ()
    features: tuple[tuple[int, tuple[float, ...]], ...] = ()
    removed: tuple[int, ...] = ()

    @property
    def edges_only(self) -> bool:
        return not (self.new_features or self.features or self.removed)


def batch_of(steps: Sequence[Step]) -> Batch:
    """Return one batch of several steps; the first may add nodes and the last remove them."""
    rows = [(row, step.t) for step in steps for row in step.rows]
    new, features, removed = steps[0].new_features, steps[0].features, steps[-1].removed
    return Batch(
        src=[row.src for row, _ in rows],
        dst=[row.dst for row, _ in rows],
        op=[row.op for row, _ in rows],
        weight=[row.weight for row, _ in rows],
        t=[t for _, t in rows] if rows else steps[-1].t,
        new_nodes=len(new),
        new_features=np.array(new) if new else None,
        feature_nodes=[node for node, _ in features],
        feature_values=np.array([x for _, x in features]) if features else None,
        removed_nodes=removed,
    )


@dataclass(frozen=True)
class History:
    """Features, the settings of a propagator, and the steps that follow."""

    features: FloatArray
    settings: dict[str, Any]
    steps: tuple[Step, ...] = field(default=())

    def batches(self) -> list[Batch]:
        return [batch_of([step]) for step in self.steps]

    def start(self, make: Callable[..., Any], **more: Any) -> Any:
        try:
            return make(self.features, **{**self.settings, **more})
        except PrecisionError:
            reject()  # the dtype cannot hold such a small r_max

    def play(self, make: Callable[..., Any], **more: Any) -> Iterator[Any]:
        """Yield the propagator at the start and after every batch."""
        propagator = self.start(make, **more)
        yield propagator
        for batch in self.batches():
            try:
                propagator.apply(batch)
            except PrecisionError:
                reject()
            yield propagator

    def end(self, make: Callable[..., Any], **more: Any) -> Any:
        """Return the propagator after all batches."""
        *_, last = self.play(make, **more)
        return last

    def relabelled(self, order: Sequence[int]) -> History:
        """Return the history with node i renamed to `order[i]`; later nodes keep their numbers."""
        name = dict(enumerate(order))

        def rename(step: Step) -> Step:
            return replace(
                step,
                rows=tuple(
                    replace(row, src=name.get(row.src, row.src), dst=name.get(row.dst, row.dst))
                    for row in step.rows
                ),
                features=tuple((name.get(node, node), x) for node, x in step.features),
                removed=tuple(name.get(node, node) for node in step.removed),
            )

        features = np.empty_like(self.features)
        features[list(order)] = self.features
        return replace(self, features=features, steps=tuple(map(rename, self.steps)))

    def rebatched(self, merged: Sequence[bool], split: Sequence[bool]) -> list[Batch]:
        """Return other batches of the same events: steps merged, or split into single rows.

        New nodes get the time at which their batch ends, so a step that adds some is not merged.
        """
        groups: list[list[Step]] = []
        for number, step in enumerate(self.steps):
            if split[number % len(split)]:
                first = replace(step, rows=(), removed=())
                last = Step(step.t, removed=step.removed)
                groups += [[first], *([Step(step.t, (row,))] for row in step.rows), [last]]
                continue
            before = groups[-1][-1] if groups else step
            fits = not (before.removed or before.new_features or step.new_features or step.features)
            if groups and fits and merged[number % len(merged)]:
                groups[-1].append(step)
            else:
                groups.append([step])
        # A batch ends at its last row: an empty step at its end needs a separate batch.
        batches = []
        for group in groups:
            batches.append(batch_of(group))
            if batches[-1].time != group[-1].t:
                batches.append(Batch(t=group[-1].t))
        return batches


@st.composite
def channels(draw: st.DrawFn, *, directed: bool, versions: Sequence[str]) -> Channel:
    """Draw a filter on a version of the graph."""
    rules: dict[str, tuple[str, list[Any]]] = {
        "all": ("half_life", [None]),
        "decay": ("half_life", [1.0, 3.0, 7.5, 1000.0]),
        "window": ("window", [1, 2, 8, 100]),
        "last": ("last", [1, 2, 5, 20]),
    }
    rule, values = rules[draw(st.sampled_from(list(versions)))]
    version: dict[str, Any] = {rule: draw(st.sampled_from(values))}
    if directed:
        version["direction"] = draw(st.sampled_from(["out", "in", "both"]))
    version["beta"] = draw(st.sampled_from([None, None, 0.0, 0.25, 0.5, 1.0]))
    kind = draw(st.sampled_from(["low", "high", "explicit"]))
    if kind == "explicit":
        gamma0 = draw(st.sampled_from([-1.5, 0.3, 2.0]))
        return Channel(gamma0, draw(st.sampled_from([-0.9, -0.3, 0.5, 0.95])), **version)
    alpha = draw(st.sampled_from([0.1, 0.2, 0.5, 0.9]))
    return (Channel.low_pass if kind == "low" else Channel.high_pass)(alpha, **version)


@st.composite
def settings(draw: st.DrawFn, *, versions: Sequence[str]) -> dict[str, Any]:
    """Draw keyword arguments of a propagator."""
    directed = draw(st.booleans())
    return {
        "channels": tuple(
            draw(st.lists(channels(directed=directed, versions=versions), min_size=1, max_size=3))
        ),
        "directed": directed,
        "beta": draw(st.sampled_from([0.5, 0.0, 0.3, 1.0])),
        "r_max": draw(st.sampled_from([1e-2, 1e-1, 1e-3])),
        "r_max_unit": draw(st.sampled_from(["rms", "rms", "absolute", "l1"])),
        "scale_by_degree": draw(st.booleans()),
        "self_loop": draw(st.sampled_from([1.0, 1.0, 0.25, 3.0] + [0.0] * (not directed))),
    }


class _Writer:
    """Draws steps that are valid one after another, by following the user's graph."""

    def __init__(self, draw: st.DrawFn, nodes: int, columns: int, directed: bool) -> None:
        self.draw, self.columns, self.directed = draw, columns, directed
        self.alive = list(range(nodes))
        self.count = nodes
        self.graph: dict[Pair, float] = {}

    def features(self) -> tuple[float, ...]:
        values = st.sampled_from([0.0, 1.0, -1.0, 0.25, -2.5, 3.0])
        return tuple(self.draw(st.lists(values, min_size=self.columns, max_size=self.columns)))

    def row(self) -> Row:
        op = self.draw(st.sampled_from([Op.ADD, Op.ADD, Op.REMOVE, Op.SET]))
        edges = [pair for pair in self.graph if set(pair) <= set(self.alive)]
        if op is Op.REMOVE and edges:
            pair = self.draw(st.sampled_from(edges))
            share = self.draw(st.sampled_from([None, 1.0, 0.25, 0.9]))
            weight = WHOLE if share is None else self.graph[pair] * share
            left = 0.0 if share in (None, 1.0) else self.graph[pair] - weight
            self.graph[pair] = left
            if left == 0:
                del self.graph[pair]
        else:
            op = Op.ADD if op is Op.REMOVE else op
            ends = st.sampled_from(self.alive)
            pair = (self.draw(ends), self.draw(ends))
            pair = pair if self.directed else (min(pair), max(pair))
            weight = self.draw(st.sampled_from(WEIGHTS))
            before = self.graph.get(pair, 0.0) if op is Op.ADD else 0.0
            self.graph[pair] = before + weight
        if not self.directed and self.draw(st.booleans()):
            return Row(pair[1], pair[0], op, weight)
        return Row(pair[0], pair[1], op, weight)

    def step(self, t: int, node_events: bool) -> Step:
        new: tuple[tuple[float, ...], ...] = ()
        features: tuple[tuple[int, tuple[float, ...]], ...] = ()
        removed: tuple[int, ...] = ()
        if node_events:
            some = st.lists(st.sampled_from(self.alive), unique=True, max_size=2)
            features = tuple((node, self.features()) for node in self.draw(some))
            new = tuple(self.features() for _ in range(self.draw(st.sampled_from([0, 0, 1, 2]))))
            self.alive += range(self.count, self.count + len(new))
            self.count += len(new)
        rows = tuple(self.row() for _ in range(self.draw(st.integers(0, 5))))
        if node_events and len(self.alive) > 2 and self.draw(st.integers(0, 3)) == 0:
            gone = self.draw(st.sampled_from(self.alive))
            removed = (gone,)
            self.alive.remove(gone)
            self.graph = {p: w for p, w in self.graph.items() if not set(p) & set(removed)}
        return Step(t, rows, new, features, removed)


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    versions: Sequence[str] = ("all", "decay", "window", "last"),
    node_events: bool = True,
    max_steps: int = 8,
) -> History:
    """Draw a history of a small graph, with many repeated edges, self-edges and emptied nodes."""
    chosen = draw(settings(versions=versions))
    nodes, columns = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    writer = _Writer(draw, nodes, columns, chosen["directed"])
    features = np.array([writer.features() for _ in range(nodes)])
    steps: list[Step] = []
    t = draw(st.sampled_from([0, -5, 10**9]))
    for _ in range(draw(st.integers(1, max_steps))):
        t += draw(st.sampled_from(PAUSES))
        steps.append(writer.step(t, node_events))
    return History(features, chosen, tuple(steps))


def long_history(seed: int, *, directed: bool, nodes: int, columns: int, steps: int) -> History:
    """Return a history with two hubs, whose edges come and go in waves."""
    rng = np.random.default_rng(seed)
    graph: dict[Pair, float] = {}
    written: list[Step] = []
    t = 0
    for number in range(steps):
        t += int(rng.choice([0, 1, 5]))
        rows: list[Row] = []
        removing = number % 25 >= 17  # ebb
        for _ in range(int(rng.integers(0, 40))):
            if graph and rng.random() < (0.8 if removing else 0.2):
                pairs = list(graph)
                pair = pairs[int(rng.integers(len(pairs)))]
                weight = graph.pop(pair) if rng.random() < 0.7 else graph[pair] / 4
                if pair in graph:
                    graph[pair] = graph[pair] - weight
                rows.append(Row(*pair, Op.REMOVE, weight))
                continue
            ends = [int(rng.integers(2 if rng.random() < 0.7 else nodes)), int(rng.integers(nodes))]
            rng.shuffle(ends)
            pair = (ends[0], ends[1]) if directed else (min(ends), max(ends))
            op = Op.ADD if rng.random() < 0.8 else Op.SET
            weight = float(rng.choice([0.3, 1.0, 2.5]))
            before = graph.get(pair, 0.0) if op is Op.ADD else 0.0
            graph[pair] = before + weight
            rows.append(Row(*pair, op, weight))
        written.append(Step(t, tuple(rows)))
    channels = (
        Channel.low_pass(),
        Channel.high_pass(half_life=30.0, direction="in" if directed else "out"),
        Channel.low_pass(0.5, window=40, direction="both" if directed else "out", beta=0.8),
        Channel(1.0, -0.5, last=60, beta=0.0),
    )
    features = rng.standard_normal((nodes, columns))
    return History(features, {"channels": channels, "directed": directed}, tuple(written))
