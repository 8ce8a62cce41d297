"""Walks from one node over the events before a time, and the candidates they find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.stream import EventStream
from tidegraph.learning.candidates import Candidates
from tidegraph.learning.history import History
from tidegraph.learning.local import LocalPropagation

NODES, EVENTS = 30, 400
HALF_LIVES = (5.0, 50.0, 500.0, 2000.0)


def stream_of(seed: int = 0, events: int = EVENTS) -> EventStream:
    random = np.random.default_rng(seed)
    src, dst = (random.zipf(1.5, events) % NODES for _ in range(2))
    return EventStream(src, dst, np.cumsum(random.integers(0, 4, events)), NODES)


def history_of(stream: EventStream) -> History:
    history = History(NODES, HALF_LIVES)
    history.append(stream)
    return history


def everyone(nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.ones(len(nodes), dtype=np.bool_)


def exact(stream: EventStream, half_life: float | None, node: int, t: int) -> NDArray[np.float64]:
    """Return the first two hops of a walk over all events before `t`, from matrices."""
    past = stream.before(t)
    weight = np.exp2((past.t - t) / half_life) if half_life else np.ones(len(past))
    graph = np.zeros((NODES, NODES))
    np.add.at(graph, (past.src, past.dst), weight)
    graph = graph + graph.T
    step = graph / np.maximum(graph.sum(axis=0), 1e-300)
    start = np.eye(NODES)[node]
    return np.stack([step @ start, step @ step @ start], axis=1)


@pytest.mark.parametrize(("own", "neighbours"), [(256, 256), (3, 2), (64, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_the_exact_walk_lies_between_the_estimate_and_what_is_missing(
    seed: int, own: int, neighbours: int
) -> None:
    stream = stream_of(seed, events=200)
    local = LocalPropagation(history_of(stream), own=own, neighbours=neighbours, followed=2)
    for t in (int(stream.t[50]), int(stream.t[-1]) + 1, int(stream.t[-1]) + 3000):
        for node in (1, 2, 7):
            nodes, reached, missing = local.spread(node, t)
            for channel, half_life in enumerate(local.channels):
                walk = exact(stream, half_life, node, t)
                found = np.zeros((NODES, 2))
                found[nodes] = reached[:, :, channel]
                assert (found <= walk + 1e-5).all()
                assert (walk <= found + missing[:, channel] + 1e-5).all()
    if own == 256 and neighbours == 256:
        assert (missing < 1e-3).all()  # all events of a node are read, and only r_max cuts


def test_the_channels_are_no_decay_and_the_longest_half_lives() -> None:
    local = LocalPropagation(history_of(stream_of()))
    assert local.channels == (None, 2000.0, 500.0, 50.0)
    assert len(set(local.link_names)) == len(local.link_names) == 32


def test_what_happens_at_a_time_or_later_changes_no_walk() -> None:
    stream = stream_of(1)
    t = int(stream.t[200])
    other = stream_of(2)
    first = int(np.searchsorted(stream.t, t))
    later = EventStream(
        np.concatenate([stream.src[:first], other.src[first:]]),
        np.concatenate([stream.dst[:first], other.dst[first:]]),
        np.concatenate([stream.t[:first], np.full(EVENTS - first, t)]),
        NODES,
    )
    pairs = np.divmod(np.arange(NODES * NODES), NODES)
    answers = [
        LocalPropagation(history_of(each)).of_links(*pairs, np.full(NODES * NODES, t))
        for each in (stream, later)
    ]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert answers[0].any()


def test_a_node_without_a_past_reaches_nobody() -> None:
    local = LocalPropagation(history_of(stream_of()))
    nodes, reached, missing = local.spread(3, 0)
    assert len(nodes) == 0
    assert reached.shape == (0, 2, 4)
    assert (missing == 1).all()
    assert not local.of_links([3], [4], [0]).any()


def test_limits_and_nodes_out_of_range_are_rejected() -> None:
    history = history_of(stream_of())
    wrong: dict[str, Any] = {
        "own": 0,
        "neighbours": 257,
        "followed": -1,
        "following": 65,
        "r_max": -1.0,
    }
    for limit, value in wrong.items():
        with pytest.raises(ParameterError, match=f"{limit} is {value}; give"):
            LocalPropagation(history, **{limit: value})
    few = LocalPropagation(history, own=3)  # and what followed all of them, at most
    assert few.of_links([0], [1], [500]).any()
    with pytest.raises(DataError):
        LocalPropagation(history).of_links([0], [NODES], [5])


def test_candidates_were_destinations_before_and_include_the_latest_partners() -> None:
    stream = stream_of(3)
    candidates = Candidates(stream, LocalPropagation(history_of(stream)))
    for t in (int(stream.t[0]), int(stream.t[60]), int(stream.t[-1]) + 1):
        past = stream.before(t)
        known = np.unique(past.dst)
        np.testing.assert_array_equal(candidates.before(t), known)
        for source in np.unique(past.src)[:5].tolist():
            few = candidates.of(source, t, 8, everyone)
            assert len(few) <= 8
            assert (np.diff(few) > 0).all()
            assert np.isin(few, known).all()
            assert past.dst[past.src == source][-1] in few
            np.testing.assert_array_equal(candidates.of(source, t, NODES, everyone), known)
            others = known[known % 3 > 0]
            few = candidates.of(source, t, 8, lambda nodes: nodes % 3 > 0)
            assert len(few) == min(8, len(others))
            assert np.isin(few, others).all()


def test_there_are_enough_candidates_though_popularity_is_counted_now_and_then() -> None:
    burst = np.arange(NODES)
    stream = EventStream(
        np.append(burst, 0), np.append((burst + 1) % NODES, 1), np.append(0 * burst, 10**9), NODES
    )
    candidates = Candidates(stream, LocalPropagation(history_of(stream)))
    assert len(candidates.of(0, 1, 20, everyone)) == 20


def test_another_thread_that_asks_meanwhile_about_another_time_changes_no_candidates() -> None:
    class Shared(Candidates):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "_popular":  # another thread, at once, with what is popular at its time
                super().__setattr__(name, (0, np.zeros(0, np.int64)))

    stream = stream_of(4)
    local, end = LocalPropagation(history_of(stream)), int(stream.t[-1]) + 1
    alone, shared = (kind(stream, local).of(1, end, 8, everyone) for kind in (Candidates, Shared))
    np.testing.assert_array_equal(alone, shared)
