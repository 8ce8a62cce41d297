"""Made-up streams of any size, with what real ones have: tails, rhythm, communities, drift.

Small ones come back in memory. Large ones are written to a directory in bounded memory, from which
`tidegraph.load_dataset` reads them. Every random number is a function of the seed, of what it is
for and of its row, so a stream does not depend on how the work was cut into pieces.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.progress import Progress
from tidegraph.events.datasets import storage
from tidegraph.events.datasets.storage import DESCRIPTION, EDGES, LABELS, NODE_FEATURES, Target
from tidegraph.events.stream import EventStream, NodeLabels

__all__ = [
    "VERSION",
    "generate_communities",
    "generate_gdelt_like",
    "generate_mag_features",
    "generate_mag_like",
]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

VERSION = 1  # of what a seed stands for: it grows when the same seed gives another stream


# Numbers from counters ----------------------------------------------------------------------------


class _Draws:
    """Random numbers addressed by purpose and row (the mixing function of SplitMix64)."""

    def __init__(self, seed: int) -> None:
        _between("seed", seed, 0, 2**63 - 1)
        self._seed = _mix(np.array([seed], dtype=np.uint64))

    def bits(self, purpose: int, rows: NDArray[Any]) -> NDArray[np.uint64]:
        key = _mix(self._seed + np.uint64(purpose))
        return _mix(key + rows.astype(np.uint64))

    def uniform(self, purpose: int, rows: NDArray[Any]) -> FloatArray:
        """Numbers in [0, 1)."""
        return np.asarray((self.bits(purpose, rows) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)

    def exponential(self, purpose: int, rows: NDArray[Any]) -> FloatArray:
        """Numbers with mean 1."""
        return -np.log1p(-self.uniform(purpose, rows))


def _mix(counter: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # Wraps around, as it should. Plus one, because nought would stay nought.
    mixed = (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _shares(weights: FloatArray, total: int) -> IntArray:
    """Where each share of `total` begins, `[len + 1]`: whole numbers in proportion to weights."""
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    return np.asarray(np.rint(cumulative * (total / cumulative[-1])), dtype=np.int64)


def _first_of(uniform: FloatArray, sizes: IntArray | int, skew: float) -> IntArray:
    """Numbers below `sizes`, small ones likelier: counts have a tail of exponent 1 + k/(k-1).

    k is `skew`: number `r` is drawn about `r^(1/k - 1)` times as often as the first.
    """
    numbers: IntArray = (sizes * uniform**skew).astype(np.int64)
    return np.minimum(numbers, np.subtract(sizes, 1))


# Communities, in memory ---------------------------------------------------------------------------


def generate_communities(
    nodes: int = 1_000,
    events: int = 50_000,
    *,
    communities: int = 5,
    switches: float = 1.0,
    mixing: float = 0.1,
    repeats: float = 0.3,
    events_per_time: float = 2.0,
    features: int = 0,
    seed: int = 0,
) -> EventStream:
    """A stream among communities between which nodes move.

    A node switches `switches` times on average, at any moment. A fresh event goes to a node of
    another community with probability `mixing`; with probability `repeats` an event is not fresh
    but repeats a recent pair. Some nodes are much more active than others. `labels` is the
    community of the event's source at the event, `node_labels` that of each node from the start
    and from each switch on. `features` columns of noise around a community's centre describe nodes
    as they were at the start: they go stale.

    >>> stream = generate_communities(nodes=50, events=200, seed=1)
    >>> len(stream), stream.nodes
    (200, 50)
    """
    _at_least("nodes", nodes, 2 * communities)
    _at_least("events", events, 1)
    _at_least("communities", communities, 2)
    _at_least("features", features, 0)
    for name, share in (("mixing", mixing), ("repeats", repeats)):
        if not 0 <= share < 1:
            raise ParameterError(f"{name} is {share}; give a share of at least 0 and below 1")
    for name, value in (("switches", switches), ("events_per_time", events_per_time)):
        if not (math.isfinite(value) and value >= 0) or (value == 0 and name != "switches"):
            raise ParameterError(f"{name} is {value}; give a positive number")
    draws = _Draws(seed)
    rows = np.arange(events)
    gaps = draws.exponential(0, rows) / events_per_time
    t = np.cumsum(gaps).astype(np.int64)
    membership = _Membership(draws, nodes, communities, switches, int(t[-1]))

    # Every event repeats an earlier one or, ending the chain, is itself.
    reach = np.minimum(rows, 2 * nodes)
    earlier = rows - 1 - (draws.uniform(1, rows) * reach).astype(np.int64)
    origin = np.where((draws.uniform(2, rows) < repeats) & (rows > 0), earlier, rows)
    while not np.array_equal(origin[origin], origin):
        origin = origin[origin]

    activity = np.cumsum(np.exp(1.2 * _normal(draws, 3, np.arange(nodes))))
    pick = draws.uniform(5, rows) * activity[-1]
    src = np.minimum(np.searchsorted(activity, pick, side="right"), nodes - 1)
    inside = draws.uniform(6, rows) >= mixing
    dst = membership.partners(draws, src, t, inside)
    src, dst = src[origin], dst[origin]

    node_features = None
    if features:
        centres = _normal(draws, 7, np.arange(communities * features)).reshape(-1, features)
        noise = _normal(draws, 9, np.arange(nodes * features)).reshape(-1, features)
        node_features = (centres[membership.at_start()] + noise).astype(np.float32)
    return EventStream(
        src=src,
        dst=dst,
        t=t,
        nodes=nodes,
        unit="step",
        labels=membership.at(src, t),
        node_features=node_features,
        node_labels=membership.labels(),
        title=f"{communities} communities between which {nodes:,} nodes move (seed {seed})",
    )


def _normal(draws: _Draws, purpose: int, rows: IntArray) -> FloatArray:
    """Normal numbers (Box and Muller's transform); takes this purpose and the next."""
    radius = np.sqrt(2 * draws.exponential(purpose, rows))
    return np.asarray(radius * np.cos(2 * np.pi * draws.uniform(purpose + 1, rows)))


class _Membership:
    """To which community each node belongs at each time."""

    _SLICES = 64  # partners are chosen among the members at the start of such a piece of time

    def __init__(
        self, draws: _Draws, nodes: int, communities: int, switches: float, last: int
    ) -> None:
        moves = round(nodes * switches)
        every = np.arange(moves)
        movers = (draws.uniform(20, every) * nodes).astype(np.int64)
        when = 1 + (draws.uniform(21, every) * last).astype(np.int64)
        node = np.concatenate([np.arange(nodes), movers])
        since = np.concatenate([np.zeros(nodes, dtype=np.int64), when])
        order = np.lexsort([since, node])
        node, since = node[order], since[order]
        # Two switches of one node at one time are one.
        alone = np.append((np.diff(node) != 0) | (np.diff(since) != 0), True)
        self._node, self._since = node[alone], since[alone]
        self._begin = np.searchsorted(self._node, np.arange(nodes + 1))
        # A switch leads to any other community: a step of 1 .. communities-1 around the ring.
        count = len(self._node)
        step = 1 + (draws.uniform(22, np.arange(count)) * (communities - 1)).astype(np.int64)
        starts = self._begin[:-1]
        step[starts] = (draws.uniform(23, np.arange(nodes)) * communities).astype(np.int64)
        walked = np.cumsum(step)
        before = walked[starts] - step[starts]
        self._label = (walked - before[self._node]) % communities
        self._communities, self._nodes, self._last = communities, nodes, last
        self._key = self._node * (last + 2) + self._since

    def at(self, node: IntArray, t: IntArray) -> IntArray:
        place = np.searchsorted(self._key, node * (self._last + 2) + t, side="right") - 1
        return np.asarray(self._label[place])

    def at_start(self) -> IntArray:
        return np.asarray(self._label[self._begin[:-1]])

    def partners(
        self, draws: _Draws, src: IntArray, t: IntArray, inside: NDArray[np.bool_]
    ) -> IntArray:
        """For each source another node: of its own community where `inside`, else of another."""
        own = self.at(src, t)
        rows = np.arange(len(src))
        step = 1 + (draws.uniform(24, rows) * (self._communities - 1)).astype(np.int64)
        community = np.where(inside, own, (own + step) % self._communities)
        uniform = draws.uniform(25, rows)
        partners = np.empty_like(src)
        everyone = np.arange(self._nodes)
        cuts = np.linspace(0, self._last + 1, self._SLICES + 1).astype(np.int64)
        for first, last in itertools.pairwise(cuts):
            part = slice(*np.searchsorted(t, [first, last]))
            label = self.at(everyone, np.full(self._nodes, first))
            members = np.argsort(label, kind="stable")
            begin = np.searchsorted(label[members], np.arange(self._communities + 1))
            low, high = begin[community[part]], begin[community[part] + 1]
            # An emptied community has no partners to offer: then any node is one.
            low, high = np.where(high - low < 2, 0, low), np.where(high - low < 2, len(label), high)
            place = low + ((high - low) * uniform[part]).astype(np.int64)
            again = low + (place - low + 1) % (high - low)
            partners[part] = members[np.where(members[place] == src[part], again, place)]
        return partners

    def labels(self) -> NodeLabels:
        order = np.argsort(self._since, kind="stable")
        return NodeLabels(node=self._node[order], t=self._since[order], label=self._label[order])


# Like GDELT: few nodes, very many repeated edges, labels that change ------------------------------


def generate_gdelt_like(
    path: str | os.PathLike[str],
    *,
    nodes: int = 16_682,
    events: int = 191_290_882,
    pairs: int = 200_000,
    steps: int = 170_522,
    features: int = 413,
    classes: int = 81,
    changes: float = 8.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Writes a stream shaped like GDELT into the directory `path` and returns it.

    Actors meet in `steps` steps of 15 minutes, with the rhythm of days and weeks and with bursts.
    Exactly `pairs` pairs occur, each at least once; a few of them most of the time, and which ones
    shifts slowly. Every actor has one of `classes` labels, which is drawn anew `changes` times on
    average; actors of the same label meet more often. `features` binary columns depend on the
    label an actor started with. Defaults are the numbers of the real data set, except for `pairs`.
    """
    _at_least("classes", classes, 2)
    _at_least("nodes", nodes, 2 * classes)
    _between("pairs", pairs, nodes, nodes * (nodes - 1) // 2)
    _at_least("events", events, pairs)
    _at_least("steps", steps, 1)
    _at_least("features", features, 0)
    _between("changes", changes, 0.0, _News.EPOCHS / 2)
    news = _News(_Draws(seed), nodes, events, pairs, steps, classes, changes)
    target = Target(path, progress)
    target.columns(EDGES, events, news.rows, {"src": "int32", "dst": "int32", "t": "int64"})
    node, t, label = news.labels()
    target.columns(
        LABELS,
        len(node),
        lambda first, last: {
            "node": node[first:last],
            "t": t[first:last],
            "label": label[first:last],
        },
        {"node": "int32", "t": "int64", "label": "int16"},
    )
    if features:
        target.matrix(
            NODE_FEATURES,
            nodes,
            lambda first, last: news.features(first, last, features),
            features,
            "uint8",
        )
    return target.close(
        {
            "generator": "gdelt",
            "title": f"Made up in the shape of GDELT: {events:,} events (seed {seed})",
            "unit": "min",
            "events": events,
            "nodes": nodes,
            "pairs": pairs,
            "steps": steps,
            "classes": classes,
            "changes": changes,
            "features": features,
            "seed": seed,
            "version": VERSION,
        }
    )


class _News:
    """The numbers of a GDELT-like stream, row by row."""

    EPOCHS = 64  # labels change at the borders of so many equal pieces of time, at most
    STEP_MIN = 15
    _SKEW = 4.0
    _TRIES = 4  # pairs looked at for one whose actors have the same label

    def __init__(
        self,
        draws: _Draws,
        nodes: int,
        events: int,
        pairs: int,
        steps: int,
        classes: int,
        changes: float,
    ) -> None:
        self._draws = draws
        self._nodes, self._events, self._pairs, self._classes = nodes, events, pairs, classes
        self._begin = _shares(self._rhythm(steps), events)
        self._steps = steps
        self._epochs = min(self.EPOCHS, steps)
        self._label = self._labels(changes)
        self._src, self._dst = self._pool()
        self._guaranteed = events // pairs  # every so many events, the next pair of the pool

    def _rhythm(self, steps: int) -> FloatArray:
        step = np.arange(steps)
        hour = step / 4
        day = 1 + 0.5 * np.sin(2 * np.pi * hour / 24)
        week = np.where(hour // 24 % 7 < 5, 1.0, 0.6)
        burst = (
            1 - self._draws.uniform(0, step // 96)
        ) ** -0.4  # of a whole day, with a heavy tail
        return np.asarray(day * week * burst * (0.5 + self._draws.exponential(1, step)))

    def _labels(self, changes: float) -> NDArray[np.int16]:
        """`[nodes, epochs]`"""
        cells = np.arange(self._nodes * self._epochs).reshape(self._nodes, self._epochs)
        label = _first_of(self._draws.uniform(2, cells), self._classes, 1.5)
        stays = self._draws.uniform(3, cells) >= changes / max(1, self._epochs - 1)
        stays[:, 0] = False
        since = np.maximum.accumulate(np.where(stays, 0, cells), axis=1)
        return np.asarray(label.ravel()[since], dtype=np.int16)

    def _pool(self) -> tuple[IntArray, IntArray]:
        """Distinct pairs, no self-edges, every node in one of them, in random order."""
        popularity = _normalised((1 - self._draws.uniform(4, np.arange(self._nodes))) ** -0.6)
        everyone = np.arange(self._nodes)
        chosen = everyone * self._nodes + (everyone + 1) % self._nodes
        row = 0
        while len(chosen) < self._pairs:
            wanted = 2 * (self._pairs - len(chosen)) + 100
            rows = np.arange(row, row + wanted)
            row += wanted
            src = np.searchsorted(popularity, self._draws.uniform(5, rows), side="right")
            dst = self._partners(src, rows)
            # Popular nodes run out of partners: then any pair will do.
            anyone = self._draws.uniform(6, rows) < min(1.0, 0.1 + row / (50 * self._pairs))
            src = np.where(anyone, (self._draws.uniform(7, rows) * self._nodes).astype(int), src)
            dst = np.where(anyone, (self._draws.uniform(8, rows) * self._nodes).astype(int), dst)
            fresh = (src * self._nodes + dst)[src != dst]
            _, first = np.unique(fresh, return_index=True)
            fresh = fresh[np.sort(first)]
            fresh = fresh[~np.isin(fresh, chosen)]
            chosen = np.concatenate([chosen, fresh[: self._pairs - len(chosen)]])
        chosen = chosen[np.argsort(self._draws.bits(9, chosen), kind="stable")]
        return chosen // self._nodes, chosen % self._nodes

    def _partners(self, src: IntArray, rows: IntArray) -> IntArray:
        """A node that has the label of `src` at a random epoch."""
        epoch = (self._draws.uniform(10, rows) * self._epochs).astype(np.int64)
        label = self._label[src, epoch].astype(np.int64)
        order = np.argsort(self._label.T, axis=1, kind="stable")  # [epochs, nodes]
        wanted = np.arange(self._classes + 1)
        begin = np.array(
            [
                np.searchsorted(of_epoch[members], wanted)
                for of_epoch, members in zip(self._label.T, order, strict=True)
            ]
        )
        low, high = begin[epoch, label], begin[epoch, label + 1]
        return order[epoch, low + _first_of(self._draws.uniform(11, rows), high - low, 2.0)]

    def rows(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        rows = np.arange(first, last)
        step = np.searchsorted(self._begin, rows, side="right") - 1
        epoch = step * self._epochs // self._steps
        # Half of the attention stays where it always is, half wanders over the pool.
        wander = step * min(2_000, self._pairs // 100) // self._steps
        seeks_like = self._draws.uniform(30, rows) < 0.8
        chosen = np.empty(len(rows), dtype=np.int64)
        waiting = np.arange(len(rows))
        for attempt in range(self._TRIES):
            uniform = self._draws.uniform(31 + attempt, rows[waiting])
            today = uniform < 0.5
            uniform = np.where(today, 2 * uniform, 2 * uniform - 1)
            pair = _first_of(uniform, self._pairs, self._SKEW)
            pair = np.where(today, (pair + wander[waiting]) % self._pairs, pair)
            chosen[waiting] = pair
            now = epoch[waiting]
            alike = self._label[self._src[pair], now] == self._label[self._dst[pair], now]
            waiting = waiting[~alike & seeks_like[waiting]]
        turn = rows // self._guaranteed
        chosen = np.where((rows % self._guaranteed == 0) & (turn < self._pairs), turn, chosen)
        return {"src": self._src[chosen], "dst": self._dst[chosen], "t": step * self.STEP_MIN}

    def labels(self) -> tuple[IntArray, IntArray, NDArray[np.int16]]:
        """Node, time and label at the start and at each change, by time."""
        changed = np.diff(self._label, axis=1, prepend=np.int16(-1)) != 0
        epoch, node = np.nonzero(changed.T)
        # The first step of an epoch: rows() counts it to that epoch and the one before it not.
        t = -(-epoch * self._steps // self._epochs) * self.STEP_MIN
        return node, t, self._label[node, epoch]

    def features(self, first: int, last: int, columns: int) -> NDArray[np.uint8]:
        cell = np.arange(first * columns, last * columns).reshape(-1, columns)
        column = np.arange(columns)
        rare = 0.3 * (1 + column) ** -0.7
        of_class = self._label[first:last, :1].astype(np.int64) * columns + column
        typical = self._draws.uniform(50, of_class) < 0.1
        chance = np.where(typical, np.minimum(0.8, 10 * rare), rare)
        return (self._draws.uniform(51, cell) < chance).astype(np.uint8)


def _normalised(weights: FloatArray) -> FloatArray:
    cumulative = np.cumsum(weights)
    return np.asarray(cumulative / cumulative[-1])


# Like MAG: a citation graph that grows ------------------------------------------------------------


def generate_mag_like(
    path: str | os.PathLike[str],
    *,
    nodes: int = 121_751_665,
    edges: int = 1_297_748_926,
    years: int = 120,
    classes: int = 152,
    features: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Writes a citation graph shaped like MAG into the directory `path` and returns it.

    Papers are numbered in the order of their years, of which the last is 2019, and grow
    exponentially in number. A paper cites papers of its own year or earlier ones, never itself,
    recent ones more, those of its own class more, and a few of each year and of each class in it
    very much more (in-degrees have a tail with exponent 2.5). A pair may occur twice. `features`
    columns of float32 are noise around the centre of the class. Labels are known from a paper's
    year on. Memory is that of one year's papers; defaults are the numbers of the real data set.
    """
    _at_least("classes", classes, 1)
    _at_least("years", years, 1)
    _between("nodes", nodes, max(2, years), 2**31 - 1)
    _at_least("edges", edges, 1)
    _at_least("features", features, 0)
    papers = _Papers(_Draws(seed), nodes, edges, years, classes)
    target = Target(path, progress)
    target.columns(EDGES, edges, papers.rows, {"src": "int32", "dst": "int32", "t": "int16"})
    target.columns(LABELS, nodes, papers.labels, {"node": "int32", "t": "int16", "label": "int16"})
    if features:
        target.matrix(
            NODE_FEATURES,
            nodes,
            lambda first, last: papers.features(first, last, features),
            features,
            "float32",
        )
    return target.close(
        {
            "generator": "mag",
            "title": f"Made up in the shape of MAG: {edges:,} citations (seed {seed})",
            "unit": "year",
            "events": edges,
            "nodes": nodes,
            "years": years,
            "classes": classes,
            "features": features,
            "seed": seed,
            "version": VERSION,
        }
    )


def generate_mag_features(
    path: str | os.PathLike[str], columns: int, *, progress: Progress | None = None
) -> Path:
    """Gives a MAG-like directory that has no features `columns` of them and returns their file.

    The file is the one that `generate_mag_like` writes with `features=columns`: what a graph of
    hundreds of millions of edges is to be used for need not be known when it is generated.
    """
    _at_least("columns", columns, 1)
    directory = Path(path)
    try:
        described = json.loads((directory / DESCRIPTION).read_text(encoding="utf-8"))
        if described["generator"] != "mag" or described["version"] != VERSION:
            raise ValueError("it was not made by this release's generate_mag_like")
        sizes = [described[name] for name in ("nodes", "events", "years", "classes")]
        papers = _Papers(_Draws(described["seed"]), *sizes)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{directory} holds no generated citations: {error}") from error
    file = directory / NODE_FEATURES
    if described["features"] not in (0, columns):
        raise DataError(
            f"{directory} has {described['features']} features already; ask for as many, or"
            " generate another one"
        )
    if not described["features"]:
        nodes: int = described["nodes"]
        report = progress or (lambda done, total, what: None)
        storage.write_matrix(
            file,
            nodes,
            lambda first, last: papers.features(first, last, columns),
            columns,
            "float32",
            lambda done: report(done, nodes, f"rows of {NODE_FEATURES}"),
        )
        storage.describe(directory, described | {"features": columns})
    return file


class _Papers:
    """The numbers of a MAG-like graph, row by row.

    The papers of a year stand in a hidden order, class after class and in each class those first
    that it cites most; a bijection of the year's numbers hides it. So the class of any paper and
    the papers of any class are computed, not stored.
    """

    _LAST_YEAR = 2019
    _GROWTH = 0.055  # of the number of papers, per year
    _HALF_LIFE = 8.0  # of the attention a paper gets, in years
    _SKEW = 3.0
    _OWN_CLASS = 0.6

    def __init__(self, draws: _Draws, nodes: int, edges: int, years: int, classes: int) -> None:
        self._draws = draws
        self._years, self._classes = years, classes
        year = np.arange(years)
        # One paper a year at least, so that no year is empty.
        self._first = _shares(np.exp(self._GROWTH * year), nodes - years) + np.arange(years + 1)
        papers = np.diff(self._first)
        references = papers * (1 + year / 30.0)
        references[self._first[1:] < 2] = 0.0  # nobody to cite
        self._edges = _shares(references, edges)
        popularity = (1.0 + np.arange(classes, dtype=np.float64)) ** -0.5
        self._class = np.array(
            [_shares(popularity, count) for count in papers]
        )  # [years, classes + 1]
        # One sorted list for all years: places of later years come after those of earlier ones.
        self._class_first = (self._class[:, :-1] + self._first[:-1, None]).ravel()
        age = year[:, None] - year
        attention = np.where(age >= 0, papers * 2.0 ** (-age / self._HALF_LIFE), 0.0)
        self._cited_year = np.cumsum(attention, axis=1) / attention.sum(axis=1, keepdims=True)
        self._factor = np.array([_coprime(1_000_000_007, count) for count in papers.tolist()])
        self._fame = np.array([_coprime(998_244_353, count) for count in papers.tolist()])
        self._inverse = np.array(
            [
                pow(int(a), -1, int(n)) if n > 1 else 0
                for a, n in zip(self._factor, papers, strict=True)
            ]
        )
        self._shift = (draws.uniform(0, year) * papers).astype(np.int64)
        self._lengths: dict[int, FloatArray] = {}

    def _year_of(self, node: IntArray) -> IntArray:
        return np.searchsorted(self._first, node, side="right") - 1

    def _number(self, year: NDArray[Any], place: IntArray) -> IntArray:
        """The paper at a place of its year's hidden order."""
        count = self._first[year + 1] - self._first[year]
        return np.asarray(
            self._first[year] + (place * self._factor[year] + self._shift[year]) % count
        )

    def _class_of(self, node: IntArray, year: IntArray) -> IntArray:
        first = self._first[year]
        count = self._first[year + 1] - first
        place = (node - first - self._shift[year]) % count * self._inverse[year] % count
        found = np.searchsorted(self._class_first, first + place, side="right") - 1
        return np.asarray(found - year * self._classes)

    def _references(self, year: int) -> FloatArray:
        """Up to which share of the year's citations each of its papers goes."""
        lengths = self._lengths.get(year)
        if lengths is None:
            papers = np.arange(self._first[year], self._first[year + 1])
            lengths = _normalised(self._draws.exponential(1, papers))
            # Of two years at most, because threads work on neighbouring rows. They may both get
            # here; then one of them computes it once more.
            self._lengths = {**dict(list(self._lengths.items())[-1:]), year: lengths}
        return lengths

    def rows(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        pieces = []
        year = int(np.searchsorted(self._edges, first, side="right")) - 1
        while first < last:
            end = min(last, int(self._edges[year + 1]))
            if end > first:
                pieces.append(self._rows_of(year, first, end))
            first, year = max(first, end), year + 1
        src, dst, t = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return {"src": src, "dst": dst, "t": t}

    def _rows_of(self, year: int, first: int, last: int) -> tuple[IntArray, IntArray, IntArray]:
        rows = np.arange(first, last)
        begin, end = self._edges[year], self._edges[year + 1]
        share = (rows - begin + 0.5) / (end - begin)
        src = self._first[year] + np.searchsorted(self._references(year), share)
        cited = np.searchsorted(self._cited_year[year], self._draws.uniform(2, rows), side="right")
        cited = np.minimum(cited, year)
        label = self._class_of(src, np.full(len(src), year))
        low, high = self._class[cited, label], self._class[cited, label + 1]
        papers = self._first[cited + 1] - self._first[cited]
        own = (self._draws.uniform(3, rows) < self._OWN_CLASS) & (high > low)
        sizes = np.where(own, high - low, papers)
        rank = _first_of(self._draws.uniform(4, rows), sizes, self._SKEW)
        # Who is famous in a year is spread over its hidden order and so over the classes.
        place = np.where(own, low + rank, rank * self._fame[cited] % papers)
        dst = self._number(cited, place)
        neighbour = np.where(src > 0, src - 1, 1)
        return src, np.where(dst == src, neighbour, dst), np.full(len(rows), self._date(year))

    def _date(self, year: Any) -> Any:
        return self._LAST_YEAR - self._years + 1 + year

    def labels(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        node = np.arange(first, last)
        year = self._year_of(node)
        return {"node": node, "t": self._date(year), "label": self._class_of(node, year)}

    def features(self, first: int, last: int, columns: int) -> NDArray[np.float32]:
        node = np.arange(first, last)
        label = self._class_of(node, self._year_of(node))
        cell = np.arange(first * columns, last * columns).reshape(-1, columns)
        centre = self._draws.uniform(50, label[:, None] * columns + np.arange(columns)) - 0.5
        noise = 4 * (self._draws.uniform(51, cell) - 0.5)
        return (centre + noise).astype(np.float32)


def _coprime(start: int, count: int) -> int:
    """The first number from `start` on that has no divisor in common with `count`, modulo it."""
    return next(k for k in itertools.count(start) if math.gcd(k, count) == 1) % count


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ParameterError(f"{name} is {value:,}; give at least {least:,}")


def _between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ParameterError(f"{name} is {value:,}; give {least:,} to {most:,}")
