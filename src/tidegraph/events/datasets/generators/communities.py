"""A small stream, in memory: communities between which nodes move."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import ParameterError
from tidegraph.events.columns import IntArray
from tidegraph.events.datasets.generators.draws import Draws, normal, require
from tidegraph.events.stream import EventStream, NodeLabels


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
    """Return a stream among communities between which nodes move.

    A node switches `switches` times on average, at random times. With probability `repeats` an
    event repeats a recent pair; otherwise it goes to a node of another community with probability
    `mixing`. Some nodes are much more active than others. `labels` is the community of the event's
    source at the event, `node_labels` that of each node from the start and from each switch on.
    `features` columns of noise around a community's centre describe nodes as they were at the
    start, so they become outdated.

    >>> stream = generate_communities(nodes=50, events=200, seed=1)
    >>> len(stream), stream.nodes
    (200, 50)
    """
    require(nodes=(nodes, 2 * communities), events=(events, 1))
    require(communities=(communities, 2), features=(features, 0))
    for name, share in (("mixing", mixing), ("repeats", repeats)):
        if not 0 <= share < 1:
            raise ParameterError(f"{name} is {share}; give a share of at least 0 and below 1")
    for name, value in (("switches", switches), ("events_per_time", events_per_time)):
        if not (math.isfinite(value) and value >= 0) or (value == 0 and name != "switches"):
            raise ParameterError(f"{name} is {value}; give a positive number")
    draws = Draws(seed)
    rows = np.arange(events)
    gaps = draws.exponential(0, rows) / events_per_time
    t = np.cumsum(gaps).astype(np.int64)
    membership = _Membership(draws, nodes, communities, switches, int(t[-1]))

    # Every event repeats an earlier one or, at the end of the chain, itself.
    reach = np.minimum(rows, 2 * nodes)
    earlier = rows - 1 - (draws.uniform(1, rows) * reach).astype(np.int64)
    origin = np.where((draws.uniform(2, rows) < repeats) & (rows > 0), earlier, rows)
    while not np.array_equal(origin[origin], origin):
        origin = origin[origin]

    activity = np.cumsum(np.exp(1.2 * normal(draws, 3, np.arange(nodes))))
    pick = draws.uniform(5, rows) * activity[-1]
    src = np.minimum(np.searchsorted(activity, pick, side="right"), nodes - 1)
    inside = draws.uniform(6, rows) >= mixing
    dst = membership.partners(draws, src, t, inside)
    src, dst = src[origin], dst[origin]

    node_features = None
    if features:
        centres = normal(draws, 7, np.arange(communities * features)).reshape(-1, features)
        noise = normal(draws, 9, np.arange(nodes * features)).reshape(-1, features)
        at_start = membership.at(np.arange(nodes), np.zeros(nodes, dtype=np.int64))
        node_features = (centres[at_start] + noise).astype(np.float32)
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


class _Membership:
    """The community of each node at each time."""

    _SLICES = 64  # partners are chosen among the members at the start of a slice of time

    def __init__(
        self, draws: Draws, nodes: int, communities: int, switches: float, last: int
    ) -> None:
        moves = round(nodes * switches)
        every = np.arange(moves)
        movers = (draws.uniform(20, every) * nodes).astype(np.int64)
        when = 1 + (draws.uniform(21, every) * last).astype(np.int64)
        node = np.concatenate([np.arange(nodes), movers])
        since = np.concatenate([np.zeros(nodes, dtype=np.int64), when])
        order = np.lexsort([since, node])
        node, since = node[order], since[order]
        # Two switches of a node at the same time are one.
        alone = np.append((np.diff(node) != 0) | (np.diff(since) != 0), True)
        self._node, self._since = node[alone], since[alone]
        # A switch leads to any other community: a step of 1 .. communities-1 around the ring.
        count = len(self._node)
        step = 1 + (draws.uniform(22, np.arange(count)) * (communities - 1)).astype(np.int64)
        starts = np.searchsorted(self._node, np.arange(nodes))
        step[starts] = (draws.uniform(23, np.arange(nodes)) * communities).astype(np.int64)
        walked = np.cumsum(step)
        before = walked[starts] - step[starts]
        self._label = (walked - before[self._node]) % communities
        self._communities, self._nodes, self._last = communities, nodes, last
        self._key = self._node * (last + 2) + self._since

    def at(self, node: IntArray, t: IntArray) -> IntArray:
        place = np.searchsorted(self._key, node * (self._last + 2) + t, side="right") - 1
        return np.asarray(self._label[place])

    def partners(
        self, draws: Draws, src: IntArray, t: IntArray, inside: NDArray[np.bool_]
    ) -> IntArray:
        """Return another node per source: of its own community where `inside`, else of another."""
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
            # A community without other members has no partners: then any node will do.
            low, high = np.where(high - low < 2, 0, low), np.where(high - low < 2, len(label), high)
            place = low + ((high - low) * uniform[part]).astype(np.int64)
            again = low + (place - low + 1) % (high - low)
            partners[part] = members[np.where(members[place] == src[part], again, place)]
        return partners

    def labels(self) -> NodeLabels:
        order = np.argsort(self._since, kind="stable")
        return NodeLabels(node=self._node[order], t=self._since[order], label=self._label[order])
