"""History tells what happened strictly before a time, and nothing else."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.history_oracle import age_row, link_row

from tidegraph.core.errors import DataError, EventError, ParameterError
from tidegraph.events.stream import EventStream
from tidegraph.learning.history import Ages, History

NODES = 5
HALF_LIVES = (3.0, 40.0)
events = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, 60)),
    max_size=25,
).map(lambda rows: sorted(rows, key=lambda row: row[2]))


def stream_of(rows: list[tuple[int, int, int]]) -> EventStream:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return EventStream(columns[:, 0], columns[:, 1], columns[:, 2], NODES)


def history_of(rows: list[tuple[int, int, int]]) -> History:
    history = History(NODES, HALF_LIVES)
    history.append(stream_of(rows))
    return history


def kept_in_a_file(rows: list[tuple[int, int, int]], later: list[tuple[int, int, int]]) -> History:
    """Return a history whose first events are in a file, and the later ones in lists."""
    history = history_of(rows)
    with tempfile.TemporaryDirectory() as directory:
        history.save(Path(directory) / "history")
    history.append(stream_of(later))
    return history


def told_of_node(rows: list[tuple[int, int, int]], node: int, t: int) -> list[float]:
    unseen = np.log1p(max(t - rows[0][2], 0)) + 1
    told: list[float] = []
    for role in (0, 1):
        past = [row[2] for row in rows if row[2] < t and row[role] == node]
        gaps = [np.log1p(t - past[-k]) if len(past) >= k else unseen for k in (1, 2, 5)]
        recent = [np.log1p(10 * sum(2 ** (-(t - w) / h) for w in past)) for h in HALF_LIVES]
        told += [np.log1p(len(past)), *gaps, *recent]
    return told


def told_of_pair(rows: list[tuple[int, int, int]], src: int, dst: int, t: int) -> list[float]:
    before = [row for row in rows if row[2] < t]
    at = [i for i, row in enumerate(before) if row[:2] == (src, dst)]
    unseen = np.log1p(max(t - rows[0][2], 0)) + 1
    gap = np.log1p(t - before[at[-1]][2]) if at else unseen
    recent = [np.log1p(10 * sum(2 ** (-(t - before[i][2]) / h) for i in at)) for h in HALF_LIVES]
    later = before[at[-1] + 1 :] if at else before
    since = [
        np.log1p(sum((row[0] == node) + (row[1] == node) for row in later)) for node in (src, dst)
    ]
    return [float(bool(at)), np.log1p(len(at)), gap, *recent, *since]


def told_of_habits(
    rows: list[tuple[int, int, int]], node: int, partner: int, role: int, t: int
) -> list[float]:
    unseen = np.log1p(max(t - rows[0][2], 0)) + 1
    partners = [row[1 - role] for row in rows if row[2] < t and row[role] == node]
    new = [met not in partners[:i] for i, met in enumerate(partners)]
    repeated = [i > 0 and met == partners[i - 1] for i, met in enumerate(partners)]
    shares = [np.mean(kind[-k:]) if kind else 0 for kind in (new, repeated) for k in (5, 20)]
    recent = partner in partners[-64:]
    behind = partners[len(partners) - partners[::-1].index(partner) :] if recent else partners
    others = [met for met in partners if met != partners[-1]]
    told = [np.log1p(sum(new)), *shares, float(recent), np.log1p(len(set(behind)))]
    for before in (partners[-1:], others[-1:]):
        times: list[int] = []  # of `partner` coming next after it, whoever met both
        for each in range(NODES):
            own = [row for row in rows if row[2] < t and row[role] == each]
            times += [
                b[2] for a, b in pairwise(own) if [a[1 - role], b[1 - role]] == [*before, partner]
            ]
        gap = np.log1p(t - max(times)) if times else unseen
        recent_times = [sum(2 ** (-(t - w) / h) for w in times) for h in HALF_LIVES]
        told += [np.log1p(len(times)), gap, *(np.log1p(10 * value) for value in recent_times)]
    return told


@settings(max_examples=60, deadline=None)
@given(rows=events.filter(bool), t=st.integers(-5, 70))
def test_numbers_agree_with_counting_by_hand(rows: list[tuple[int, int, int]], t: int) -> None:
    history = history_of(rows)
    pairs = [(src, dst) for src in range(NODES) for dst in range(NODES)]
    src, dst = np.array(pairs).T
    told = history.of_links(src, dst, np.full(len(pairs), t))
    expected = [
        told_of_node(rows, u, t)
        + told_of_node(rows, v, t)
        + told_of_pair(rows, u, v, t)
        + told_of_pair(rows, v, u, t)
        + told_of_habits(rows, u, v, 0, t)
        + told_of_habits(rows, v, u, 1, t)
        + [np.log1p(10 * sum(2 ** (-(t - w) / h) for *_, w in rows if w < t)) for h in HALF_LIVES]
        for u, v in pairs
    ]
    np.testing.assert_allclose(told, expected, rtol=2e-5, atol=1e-5)
    assert told.shape[1] == len(history.link_names)
    nodes = np.arange(NODES)
    np.testing.assert_array_equal(
        history.of_nodes(nodes, np.full(NODES, t)),
        told[src == dst][:, : len(history.node_names)],
    )


@settings(max_examples=60, deadline=None)
@given(rows=events.filter(bool), later=events, t=st.integers(0, 70))
def test_what_happens_at_or_after_a_time_is_not_read(
    rows: list[tuple[int, int, int]], later: list[tuple[int, int, int]], t: int
) -> None:
    past = [row for row in rows if row[2] < t]
    if not past:
        return
    future = [(u, v, max(w, t)) for u, v, w in later]
    src, dst = np.meshgrid(np.arange(NODES), np.arange(NODES))
    ask = (src.ravel(), dst.ravel(), np.full(src.size, t))
    other = history_of(past + sorted(future, key=lambda row: row[2]))
    np.testing.assert_array_equal(history_of(past).of_links(*ask), other.of_links(*ask))


@settings(max_examples=60, deadline=None)
@given(rows=events, later=events, as_of=st.integers(-5, 70), wait=st.integers(0, 90))
def test_what_is_known_ends_at_one_time_and_its_age_is_counted_to_another(
    rows: list[tuple[int, int, int]], later: list[tuple[int, int, int]], as_of: int, wait: int
) -> None:
    past, t = [row for row in rows if row[2] < as_of], as_of + wait
    future = sorted(((u, v, max(w, as_of)) for u, v, w in later), key=lambda row: row[2])
    pairs = [(src, dst) for src in range(NODES) for dst in range(NODES)]
    src, dst = np.array(pairs).T
    told = history_of(past + future).of_links(
        src, dst, np.full(len(pairs), t), np.full(len(pairs), as_of)
    )
    expected = [link_row(past + future, u, v, t, HALF_LIVES, as_of=as_of) for u, v in pairs]
    np.testing.assert_array_equal(told, expected)
    np.testing.assert_array_equal(told, [link_row(past, u, v, t, HALF_LIVES) for u, v in pairs])


@settings(max_examples=60, deadline=None)
@given(rows=events, later=events, as_of=st.integers(-5, 70), wait=st.integers(0, 90))
def test_the_age_of_a_node_is_the_time_since_its_first_event_in_a_role(
    rows: list[tuple[int, int, int]], later: list[tuple[int, int, int]], as_of: int, wait: int
) -> None:
    past, t = [row for row in rows if row[2] < as_of], as_of + wait
    future = sorted(((u, v, max(w, as_of)) for u, v, w in later), key=lambda row: row[2])
    pairs = [(src, dst) for src in range(NODES) for dst in range(NODES)]
    src, dst = np.array(pairs).T
    times, known = np.full(len(pairs), t), np.full(len(pairs), as_of)
    for history in (history_of(past + future), kept_in_a_file(past, future)):
        told = Ages(history).of_links(src, dst, times, known)
        np.testing.assert_array_equal(told, [age_row(past, u, v, t) for u, v in pairs])
    asked_then = Ages(history_of(past + future)).of_links(src, dst, known)
    np.testing.assert_array_equal(asked_then, [age_row(past, u, v, as_of) for u, v in pairs])


def test_ages_are_named_by_node_and_role() -> None:
    history = history_of([(0, 1, 5), (1, 2, 8), (0, 1, 9)])
    told = dict(zip(Ages.link_names, Ages(history).of_links([0], [1], [10])[0], strict=True))
    never = np.log1p(5) + 1
    assert told == pytest.approx(
        {
            "src.time_since_first_as_src": np.log1p(5),
            "src.time_since_first_as_dst": never,
            "dst.time_since_first_as_src": np.log1p(2),
            "dst.time_since_first_as_dst": np.log1p(5),
        }
    )
    with pytest.raises(DataError, match="as_of is 8 for a question about 7"):
        Ages(history).of_links([0], [1], [7], [8])


def test_what_happens_after_a_time_cannot_be_known_at_it() -> None:
    history = history_of([(0, 1, 5)])
    with pytest.raises(DataError, match="as_of is 8 for a question about 7"):
        history.of_links([0, 0], [1, 1], [9, 7], [9, 8])


def test_partners_are_recent_for_a_number_of_events() -> None:
    src = [0] * 70
    dst = [1, 2, 1] + [3, 4] * 33 + [3]
    history = history_of([(u, v, t) for t, (u, v) in enumerate(zip(src, dst, strict=True))])
    names = list(history.link_names)
    told = history.of_links([0, 0, 0], [1, 1, 3], [66, 70, 70])
    recent = told[:, names.index("src_habits.dst_is_recent")]
    since = np.expm1(told[:, names.index("src_habits.different_dst_since")])
    np.testing.assert_array_equal(recent, [1, 0, 1])
    np.testing.assert_allclose(since, [2, 4, 0], rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(rows=events.filter(bool), cut=st.integers(0, 25))
def test_appending_in_parts_is_appending_at_once(
    rows: list[tuple[int, int, int]], cut: int
) -> None:
    parts = History(NODES, HALF_LIVES)
    parts.append(stream_of(rows[:cut]))
    parts.append(stream_of(rows[cut:]))
    nodes, t = np.arange(NODES), np.full(NODES, 61)
    np.testing.assert_array_equal(parts.of_nodes(nodes, t), history_of(rows).of_nodes(nodes, t))


def test_bad_input_is_named() -> None:
    history = history_of([(0, 1, 5)])
    with pytest.raises(EventError, match="start at 4, but the history reaches 5"):
        history.append(stream_of([(0, 1, 4)]))
    with pytest.raises(DataError, match="node 5 is unknown"):
        history.of_nodes([5], [9])
    with pytest.raises(DataError, match="dtype float64"):
        history.of_nodes([1], [9.5])
    with pytest.raises(DataError, match="one length"):
        history.of_links([1], [2, 3], [9])
    with pytest.raises(ParameterError, match="half_lives"):
        History(3, (0.0,))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (0.9, r"node 0\.9 is unknown; nodes are 0 to 4, given as integers and not as float64"),
        (True, "node True is unknown; nodes are 0 to 4, given as integers and not as bool"),
        ("1", "node '1' is unknown; nodes are 0 to 4"),
        (np.uint64(2**64 - 1), "node 18446744073709551615 is unknown; nodes are 0 to 4"),
    ],
)
def test_a_node_that_is_no_integer_is_not_taken_for_another(node: Any, words: str) -> None:
    history = history_of([(0, 1, 5)])
    with pytest.raises(DataError, match=words):
        history.of_nodes([node], [9])
    for pair in ((node, 0), (0, node)):
        with pytest.raises(DataError, match=words):
            history.of_links([pair[0]], [pair[1]], [9])


@pytest.mark.parametrize(
    ("t", "words"),
    [
        (9.5, r"times has dtype float64; integers are needed, not 9\.5: .*stream\.time"),
        (True, "times has dtype bool; integers are needed, not True"),
        ("9", "integers are needed, not '9'"),
        (np.uint64(2**64 - 1), r"18446744073709551615, which does not fit .* below 2\*\*63"),
    ],
)
def test_a_time_that_is_no_integer_or_too_large_is_not_taken_for_another(
    t: Any, words: str
) -> None:
    history = history_of([(0, 1, 5)])
    with pytest.raises(DataError, match=words):
        history.of_nodes([0], [t])


def test_asking_and_appending_may_happen_at_once() -> None:
    history = History(NODES, HALF_LIVES)
    nodes = np.arange(NODES)

    def append(t: int) -> None:
        history.append(stream_of([(t % NODES, (t + 1) % NODES, 5)] * 50))

    def ask(t: int) -> None:
        assert np.isfinite(history.of_links(nodes, nodes[::-1], np.full(NODES, t))).all()

    with ThreadPoolExecutor(4) as pool:
        for task in [pool.submit(work, t) for t in range(200) for work in (append, ask)]:
            task.result()
    assert len(history) == 200 * 50
