"""Features of edges: counted by hand, nothing of the future, and of use where they tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tidegraph import EventStream, LinkPredictor, evaluation
from tidegraph.core.errors import DataError
from tidegraph.learning.features import RECENT, EdgeFeatures

NODES = 5


def random_stream(seed: int, *, events: int = 60, columns: int = 2) -> EventStream:
    """Few nodes and few times, so that pairs and times repeat."""
    generator = np.random.default_rng(seed)
    return EventStream(
        generator.integers(0, NODES, events),
        generator.integers(0, NODES, events),
        np.sort(generator.integers(0, 25, events)),
        nodes=NODES,
        edge_features=generator.standard_normal((events, columns)).astype(np.float32),
    )


def every_pair(t: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    src, dst = np.divmod(np.arange(NODES * NODES), NODES)
    return src, dst, np.full(NODES * NODES, t)


@given(st.integers(0, 2**16), st.integers(-1, 27))
@settings(max_examples=40, deadline=None)
def test_numbers_agree_with_counting_by_hand(seed: int, t: int) -> None:
    stream = random_stream(seed)
    features = stream.edge_features
    assert features is not None
    told = EdgeFeatures(stream).of_links(*every_pair(t))
    src, dst = stream.src.tolist(), stream.dst.tolist()
    past = [event for event in range(len(stream)) if stream.t[event] < t]
    for row, (u, v) in zip(told, np.ndindex(NODES, NODES), strict=True):
        expected: list[float] = []
        for whose in (
            [event for event in past if (src[event], dst[event]) == (u, v)],
            [event for event in past if (src[event], dst[event]) == (v, u)],
        ):
            recent = features[whose[-RECENT:]] if whose else np.zeros((1, 2))
            expected += [*recent[-1], *recent.mean(axis=0)]
        np.testing.assert_allclose(row[:8], expected, rtol=1e-5, atol=1e-6)
        # A node's events are those of both its ends; at one time destinations count as later.
        for end, node in enumerate((u, v)):
            own = [(stream.t[event], 0, event) for event in past if src[event] == node]
            own += [(stream.t[event], 1, event) for event in past if dst[event] == node]
            events = [event for _, _, event in sorted(own)]
            recent = features[events[-RECENT:]] if events else np.zeros((1, 2))
            expected = [*recent[-1], *recent.mean(axis=0)]
            np.testing.assert_allclose(
                row[8 + 4 * end : 12 + 4 * end], expected, rtol=1e-5, atol=1e-6
            )


def test_what_happens_at_or_after_a_time_is_not_read() -> None:
    stream = random_stream(3)
    features = stream.edge_features
    assert features is not None
    for t in (0, 7, 12, 25):
        other = features + 5 * (stream.t >= t)[:, None].astype(np.float32)
        changed = EdgeFeatures(replace(stream, edge_features=other))
        expected = EdgeFeatures(stream).of_links(*every_pair(t))
        np.testing.assert_array_equal(changed.of_links(*every_pair(t)), expected)
        cut = EdgeFeatures(stream.before(t))
        np.testing.assert_array_equal(cut.of_links(*every_pair(t)), expected)


def test_many_columns_become_few_the_same_way_however_many_events_there_are() -> None:
    stream = random_stream(4, columns=172)
    edges = EdgeFeatures(stream)
    assert len(edges.link_names) == 8 * 16
    told = edges.of_links(*every_pair(12))
    assert told.shape == (NODES * NODES, len(edges.link_names))
    np.testing.assert_allclose(
        EdgeFeatures(stream.before(12)).of_links(*every_pair(12)), told, rtol=1e-5, atol=1e-6
    )
    assert len(EdgeFeatures(random_stream(4, columns=32)).link_names) == 8 * 32


def test_a_stream_without_edge_features_is_rejected() -> None:
    with pytest.raises(DataError, match="no edge features"):
        EdgeFeatures(replace(random_stream(5), edge_features=None))


def test_a_pair_of_unknown_nodes_is_not_taken_for_another_pair() -> None:
    edges = EdgeFeatures(random_stream(5))
    for node in (NODES + 1, -1, 0.5, True):  # 0 and NODES + 1 have the key of 1 and 1
        with pytest.raises(DataError, match=f"node {node} is unknown; nodes are 0 to 4"):
            edges.of_links([0], [node], [9])
    with pytest.raises(DataError, match="does not fit into int64"):
        edges.of_links([0], [1], np.array([2**63], dtype=np.uint64))


def test_a_predictor_reads_them_where_there_are_any() -> None:
    # Sources alternate between two destinations; a number on the last edge says who is next.
    generator = np.random.default_rng(0)
    events, people = 4000, 20
    src = generator.integers(0, people, events)
    side = generator.integers(0, 2, events)
    following = np.zeros(events)
    for person in range(people):
        own = np.flatnonzero(src == person)
        following[own[:-1]] = side[own[1:]]
    stream = EventStream(
        src,
        people + 2 * src + side,
        np.arange(events),
        nodes=3 * people,
        edge_features=(2 * following - 1)[:, None].astype(np.float32),
    )
    split = evaluation.tgb_split(stream)
    small: dict[str, Any] = {
        "columns": 16,
        "hidden": 32,
        "epochs": 20,
        "patience": 20,
        "batch_size": 500,
        "threads": 1,
        "random_negatives": 4,
        "past_negatives": 2,
        "past_weight": 1.0,
    }
    other = people + 2 * src + 1 - side  # the destination that was not taken

    def share_right(model: LinkPredictor) -> float:
        test = split.test
        taken = model.decision_function(src[test], stream.dst[test], stream.t[test])
        return float(
            (taken > model.decision_function(src[test], other[test], stream.t[test])).mean()
        )

    seeing = LinkPredictor(**small).fit(stream, split)
    blind = LinkPredictor(**small, edge_features=False).fit(stream, split)
    assert len(seeing._features) == len(blind._features) + 8
    assert share_right(seeing) > 0.95
    assert share_right(blind) < 0.6
