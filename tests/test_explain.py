"""An explanation accounts for the exact movement of a node, event by event."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from tests.oracle import Oracle

import tidegraph
from tidegraph import cli, reference
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.explanation import Explanation, explain
from tidegraph.events.batch import Batch, Op
from tidegraph.events.stream import Edges, EventStream

FloatArray = NDArray[np.float64]

NODES, EVENTS = 14, 60
FINE: dict[str, Any] = {"r_max": 1e-7, "dtype": "float64"}
SKETCH = Sketch(6, seed=3)
# Dozens of events at degrees of some tens; estimates are within 1e-7.
CLOSE = 1e-5


def a_stream(
    seed: int, *, changes: bool = False, initial: bool = False, every: int = 1
) -> EventStream:
    """Random weighted events between 14 nodes, up to three at a time; perhaps removals, settings.

    The last two nodes keep to themselves.
    """
    rng = np.random.default_rng(seed)
    t = np.sort(rng.integers(0, EVENTS // 2, EVENTS)) * every
    present: dict[tuple[int, int], float] = {}
    rows = []
    for k in range(EVENTS):
        pair = tuple(rng.integers(0, NODES - 2, 2).tolist()) if k % 9 else (NODES - 1, NODES - 2)
        op, weight = Op.ADD, float(rng.choice([0.5, 1.0, 3.0]))
        if changes and present and rng.random() < 0.4:
            op = Op(int(rng.integers(1, 3)))
            if op is Op.REMOVE:
                pair = list(present)[int(rng.integers(len(present)))]
                weight = float(rng.choice([np.inf, present[pair] / 2]))
        key = (pair[0], pair[1])
        # Both orientations of a pair are one edge or two: only what was added as such is removed.
        left = {Op.ADD: present.get(key, 0.0) + weight, Op.SET: weight}.get(op)
        if left is None:
            left = 0.0 if weight == np.inf else present[key] - weight
        present[key] = left
        for other in {key, key[::-1]} if op is Op.SET else ():
            present.pop(other, None)
        if left == 0:
            present.pop(key)
        rows.append((*key, op, weight))
    src, dst, op_, weight_ = zip(*rows, strict=True)
    return EventStream(
        src,
        dst,
        t,
        op=np.array(op_, dtype=np.uint8) if changes else None,
        weight=weight_,
        nodes=NODES,
        initial=Edges(np.array([0, 1]), np.array([1, 2])) if initial else None,
    )


def an_oracle(stream: EventStream, channel: Channel, **settings: Any) -> Oracle:
    """Return the oracle before the first event."""
    start = None
    if stream.initial is not None:
        start = Batch(stream.initial.src, stream.initial.dst, t=int(stream.t[0]))
    return Oracle(SKETCH, nodes=stream.nodes, channels=(channel,), initial=start, **settings)


def exact(truth: Oracle) -> FloatArray:
    """Return exact representations `[nodes, columns]`."""
    return truth.answer().pi[:, 0].astype(np.float64)


def batch(stream: EventStream, rows: slice) -> Batch:
    return Batch(
        stream.src[rows],
        stream.dst[rows],
        weight=None if stream.weight is None else stream.weight[rows],
        op=None if stream.op is None else stream.op[rows],
        t=stream.t[rows],
    )


def exact_movements(
    stream: EventStream, t0: int, t1: int, channel: Channel, **settings: Any
) -> tuple[FloatArray, FloatArray]:
    """Return what events of the span and time passing do to exact representations.

    `[events, nodes, columns]` and `[nodes, columns]`: time passes up to an event before it happens.
    """
    first, last = np.searchsorted(stream.t, [t0, t1]).tolist()
    truth = an_oracle(stream, channel, **settings)
    if first:
        truth.apply(batch(stream, slice(0, first)))
    truth.apply(Batch(t=t0))
    at = [exact(truth)]
    for row in range(first, last):
        truth.apply(Batch(t=int(stream.t[row])))
        at.append(exact(truth))
        truth.apply(batch(stream, slice(row, row + 1)))
        at.append(exact(truth))
    truth.apply(Batch(t=t1))
    at.append(exact(truth))
    movements = np.diff(at, axis=0)
    return movements[1::2], movements[::2].sum(axis=0)


def shares(explanation: Explanation) -> dict[int, float]:
    return {event.position: event.share for event in explanation.events}


# Laws ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("changes", [False, True], ids=["additions", "all ops"])
@pytest.mark.parametrize(
    ("channel", "settings"),
    [
        (Channel.low_pass(), {}),
        (Channel.high_pass(), {}),
        (Channel.low_pass(0.1), {"beta": 0.0}),
        (Channel.low_pass(), {"beta": 1.0, "directed": True}),
        (Channel.high_pass(direction="in"), {"directed": True, "beta": 0.2}),
        (Channel.low_pass(direction="both"), {"directed": True}),
        (Channel.low_pass(), {"self_loop": 0.0}),
        (Channel.high_pass(beta=0.0), {"self_loop": 0.0}),
        (Channel.low_pass(half_life=3.0), {}),
        (Channel.high_pass(half_life=3.0, direction="in"), {"directed": True}),
        (Channel.low_pass(half_life=2.5, direction="both"), {"directed": True}),
        (Channel.low_pass(half_life=0.3), {}),
        (Channel.low_pass(half_life=0.001), {"beta": 0.2}),
        (Channel.high_pass(half_life=1.0), {"self_loop": 0.0}),
        (Channel.low_pass(half_life=1.0), {"self_loop": 0.0, "beta": 0.0}),
        (Channel.low_pass(window=7), {}),
    ],
    ids=[
        *("low", "high", "beta 0", "out", "in", "both", "bare", "bare, beta 0"),
        *("decay", "decay in", "decay both", "fast decay", "instant decay"),
        *("bare decay", "bare decay, beta 0", "window"),
    ],
)
def test_every_event_is_given_what_it_did_to_the_exact_representation(
    channel: Channel, settings: dict[str, Any], changes: bool, seed: int
) -> None:
    stream = a_stream(seed, changes=changes, initial=seed == 0)
    t0, t1 = 12, 24
    first = int(np.searchsorted(stream.t, t0))
    movements, passing = exact_movements(stream, t0, t1, channel, **settings)
    for node in (0, 5, NODES - 1):
        steps = movements[:, node]
        found = explain(
            stream, node, t0, t1, channel=channel, features=SKETCH, top=None, **FINE, **settings
        )
        movement = steps.sum(axis=0) + passing[node]
        np.testing.assert_allclose(found.movement, movement, atol=1e-10)
        if not channel.timed:
            assert abs(found.time_passing) < 1e-12
        norms = {event.position - first: event.norm for event in found.events}
        for row, step in enumerate(steps):
            assert norms.get(row, 0.0) == pytest.approx(np.linalg.norm(step), abs=CLOSE)
        if not found.moved:  # a pair without self-loops, or a node that nothing reached
            continue
        assert found.unattributed * found.moved < CLOSE
        close = CLOSE / found.moved
        square = movement @ movement
        got = shares(found)
        np.testing.assert_allclose(
            [got.get(first + row, 0.0) for row in range(len(steps))],
            steps @ movement / square,
            atol=close,
        )
        assert found.time_passing == pytest.approx(passing[node] @ movement / square, abs=close)
        by_events = found.direct + found.elsewhere
        assert by_events + found.time_passing == pytest.approx(1, abs=close)
        assert sum(one.share for one in found.neighbours) == pytest.approx(by_events, abs=close)


@pytest.mark.parametrize("changes", [False, True], ids=["additions", "all ops"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"directed": True}, {"self_loop": 0.0}],
    ids=["undirected", "directed", "bare"],
)
@pytest.mark.parametrize(
    ("version", "every"),
    [
        ({"half_life": 3.0}, 1),
        ({"half_life": 4.0}, 100),
        ({"window": 7}, 1),
        ({"last": 9}, 1),
    ],
    ids=["decay", "long pauses", "window", "last"],
)
def test_forgetting_has_its_share_and_nothing_is_left_over(
    version: dict[str, Any], every: int, settings: dict[str, Any], changes: bool
) -> None:
    channel = Channel.low_pass(**version)
    stream = a_stream(4, changes=changes, initial=True, every=every)
    t0, t1 = 12 * every + 1, 25 * every + 1
    truth = an_oracle(stream, channel, **settings)
    ends = []
    for since, until in ((None, t0), (t0, t1)):
        part = stream.before(until) if since is None else stream.between(since, until)
        truth.apply(batch(part, slice(None)))
        truth.apply(Batch(t=until))
        ends.append(exact(truth))
    passing, moved = [], []
    for node in range(NODES):
        found = explain(stream, node, t0, t1, channel=channel, features=SKETCH, **FINE, **settings)
        np.testing.assert_allclose(found.movement, (ends[1] - ends[0])[node], atol=1e-9)
        if found.moved:
            assert found.unattributed * found.moved < CLOSE
            total = found.direct + found.elsewhere + found.time_passing
            assert total == pytest.approx(1, abs=CLOSE / found.moved)
        passing.append(abs(found.time_passing))
        moved.append(found.moved)
    assert max(moved) > 0.01
    if "self_loop" in settings and channel.half_life == 3:  # too short a time to forget anything
        assert max(passing) < 1e-12
    else:
        assert max(passing) > 0.01


@pytest.mark.parametrize(
    "version", [{"half_life": 3.5}, {"half_life": 0.4}, {"window": 7}, {"last": 9}]
)
@pytest.mark.parametrize("initial", [False, True], ids=["from nothing", "from a graph"])
def test_a_span_may_begin_before_the_first_event(version: dict[str, Any], initial: bool) -> None:
    channel = Channel.low_pass(**version)
    stream = a_stream(5, initial=initial)
    truth = an_oracle(stream, channel)
    before = exact(truth)
    truth.apply(batch(stream, slice(None)))
    truth.apply(Batch(t=31))
    movement = exact(truth) - before
    moved = []
    for node in (2, 4, 6, NODES - 1):
        found = explain(stream, node, -50, 31, channel=channel, features=SKETCH, **FINE)
        np.testing.assert_allclose(found.movement, movement[node], atol=1e-9)
        moved.append(found.moved)
        assert found.unattributed * found.moved < CLOSE
    assert max(moved) > 0.01


@pytest.mark.parametrize("version", [{"half_life": 3.5}, {"window": 7}, {"last": 9}])
def test_movements_of_spans_that_meet_add_up(version: dict[str, Any]) -> None:
    channel = Channel.low_pass(**version)
    stream = a_stream(6, changes=True, initial=True)
    for node in range(3):
        whole, *parts = (
            explain(stream, node, *span, channel=channel, features=SKETCH).movement
            for span in ((-50, 31), (-50, -7), (-7, 8), (8, 20), (20, 31))
        )
        np.testing.assert_allclose(sum(parts), whole, atol=1e-10)


def test_half_lives_are_counted_to_the_last_digit_however_many_there_were() -> None:
    channel = Channel.low_pass(half_life=3.3)
    near, long_ago = a_stream(7), 10**15
    assert near.weight is not None
    stream = EventStream(
        np.append(0, near.src),
        np.append(1, near.dst),
        np.append(0, near.t + long_ago),
        weight=[1.0, *near.weight.tolist()],
        nodes=NODES,
    )
    t0, t1 = long_ago + 12, long_ago + 24
    movements, passing = exact_movements(stream, t0, t1, channel)
    for node in (0, 5, NODES - 1):
        found = explain(stream, node, t0, t1, channel=channel, features=SKETCH, **FINE)
        movement = movements[:, node].sum(axis=0) + passing[node]
        np.testing.assert_allclose(found.movement, movement, atol=1e-10)
        assert found.unattributed * found.moved < CLOSE


def test_a_coarser_engine_leaves_more_unattributed_and_says_so() -> None:
    stream = a_stream(0)
    found = {
        r_max: explain(stream, 0, 12, 24, features=SKETCH, top=None, r_max=r_max)
        for r_max in (1e-1, 1e-3)
    }
    np.testing.assert_allclose(found[1e-1].movement, found[1e-3].movement, atol=1e-10)
    assert 10 * found[1e-3].unattributed < found[1e-1].unattributed
    for one in found.values():
        assert abs(1 - sum(shares(one).values())) <= one.unattributed


# Decay and self-edges -----------------------------------------------------------------------------


def test_self_loops_are_renewed_at_every_half_life_also_where_nothing_happens() -> None:
    channel = Channel.low_pass(half_life=10.0)
    stream = EventStream([0, 1, 3], [1, 2, 4], [100, 103, 147])
    lines: dict[str, Any] = {"channel": channel, "features": SKETCH, **FINE}
    for span in ((104, 109), (110, 119), (125, 126)):  # no boundary lies in between
        found = explain(stream, 0, *span, **lines)
        assert (found.moved, found.events, found.time_passing) == (0, (), 0)
    for span in ((104, 111), (109, 110), (104, 140), (115, 10_000), (104, 150)):
        _, passing = exact_movements(stream, *span, channel)
        found = explain(stream, 0, *span, **lines)
        np.testing.assert_allclose(found.movement, passing[0], atol=1e-10)
        assert found.moved > 0.01
        assert found.events == ()  # that of 147 is elsewhere
        assert found.time_passing == pytest.approx(1, abs=CLOSE / found.moved)
        assert "100.0% from time passing" in str(found)


def test_an_event_at_a_boundary_meets_renewed_self_loops_and_renews_its_own_in_between() -> None:
    channel = Channel.low_pass(half_life=10.0)
    for t in (110, 113):
        stream = EventStream([0, 1, 0], [1, 2, 1], [100, 103, t], weight=[1, 1, 1e-9])
        movements, passing = exact_movements(stream, 104, t + 1, channel)
        found = explain(stream, 2, 104, t + 1, channel=channel, features=SKETCH, top=None, **FINE)
        movement = movements[0, 2] + passing[2]
        (event,) = found.events
        assert found.elsewhere == event.share
        assert event.norm == pytest.approx(np.linalg.norm(movements[0, 2]), abs=CLOSE)
        assert (event.norm > 0.001) == (t == 113)
        wanted = passing[2] @ movement / (movement @ movement)
        assert found.time_passing == pytest.approx(wanted, abs=CLOSE / found.moved)


def test_without_self_loops_decay_moves_nothing_until_an_edge_is_forgotten() -> None:
    channel = Channel.low_pass(half_life=10.0)  # F is 16: what weighs 1 goes after 16 half-lives
    settings: dict[str, Any] = {"self_loop": 0.0}
    lines: dict[str, Any] = {"channel": channel, "features": SKETCH, **FINE, **settings}
    stream = EventStream([0, 1, 2, 0], [1, 2, 3, 1], [0, 34, 35, 201], weight=[1.0, 2.0, 8.0, 1.0])
    faded = explain(stream, 1, 36, 169, **lines)
    assert (faded.moved, faded.time_passing) == (0, 0)
    _, passing = exact_movements(stream, 36, 201, channel, **settings)
    forgotten = explain(stream, 1, 36, 201, **lines)
    assert forgotten.moved > 0.01
    np.testing.assert_allclose(forgotten.movement, passing[1], atol=1e-10)
    assert forgotten.time_passing == pytest.approx(1, abs=CLOSE / forgotten.moved)
    # Node 0 is alone in between, and all are in the end, however long that is.
    for span in ((36, 199), (36, 202), (199, 203), (36, 10**6), (10**5, 10**6)):
        movements, passing = exact_movements(stream, *span, channel, **settings)
        for node in range(4):
            found = explain(stream, node, *span, top=None, **lines)
            movement = movements[:, node].sum(axis=0) + passing[node]
            np.testing.assert_allclose(found.movement, movement, atol=1e-10)
            assert found.unattributed * found.moved < CLOSE
            assert np.isfinite(found.time_passing)


@pytest.mark.parametrize("rows", ["out", "in", "both", "undirected"])
@pytest.mark.parametrize("version", [{}, {"half_life": 4.0}, {"window": 9}, {"last": 3}])
def test_a_self_edge_counts_in_both_directions_where_both_count(
    version: dict[str, Any], rows: Any
) -> None:
    settings: dict[str, Any] = {"directed": rows != "undirected", **FINE}
    channel = Channel.low_pass(direction="out" if rows == "undirected" else rows, **version)
    stream = EventStream(
        [0, 1, 1, 1, 1, 1],
        [1, 1, 0, 1, 1, 1],
        [0, 1, 2, 5, 6, 7],
        weight=[1.0, 2.0, 1.0, 4.0, 1.0, np.inf],
        op=[Op.ADD, Op.ADD, Op.ADD, Op.SET, Op.REMOVE, Op.REMOVE],
    )
    for span in ((0, 6), (3, 6), (6, 7), (6, 9)):
        movements, passing = exact_movements(stream, *span, channel, directed=settings["directed"])
        for node in range(2):
            found = explain(stream, node, *span, channel=channel, features=SKETCH, **settings)
            movement = movements[:, node].sum(axis=0) + passing[node]
            np.testing.assert_allclose(found.movement, movement, atol=1e-10)
            assert found.unattributed * found.moved < CLOSE


# What anybody would expect ------------------------------------------------------------------------


def test_the_shares_in_the_report_add_up_to_the_movement() -> None:
    stream = a_stream(3)
    node = int(stream.dst[-2])
    text = str(explain(stream, node, int(stream.t[10]), int(stream.t[-1]) + 1, r_max=0.3))
    percents = [float(number) for number in re.findall(r"(-?[0-9.]+)%", text.splitlines()[1])]
    assert sum(percents[:4]) == pytest.approx(100, abs=0.2 + 1e-9)  # four numbers, each rounded
    assert "a length, not a share" in text


def test_an_event_in_another_component_has_no_share() -> None:
    stream = a_stream(1)
    found = explain(stream, 0, 0, 30, top=None)
    apart = set(np.flatnonzero(stream.src >= NODES - 2).tolist())
    assert apart
    assert apart.isdisjoint(shares(found))
    assert {one.node for one in found.neighbours} <= set(range(NODES - 2))


def test_the_only_event_of_a_span_has_the_whole_share() -> None:
    stream = EventStream([0, 1, 2], [1, 2, 3], [10, 20, 30])
    found = explain(stream, 0, 15, 25)
    (event,) = found.events
    assert (event.position, event.src, event.dst, event.t, event.op) == (1, 1, 2, 20, Op.ADD)
    assert event.share == pytest.approx(1, abs=found.unattributed + 1e-12)
    assert found.unattributed < 0.01
    assert event.norm == pytest.approx(found.moved, rel=0.01)
    assert (found.direct, found.elsewhere) == (0, event.share)
    assert [(one.node, one.direct) for one in found.neighbours] == [(1, 0)]  # the nearer end


def test_events_with_the_node_count_for_the_partner_alone() -> None:
    stream = EventStream([0, 0, 2], [1, 2, 0], [10, 20, 30])
    found = explain(stream, 0, 0, 40)
    assert {(one.node, one.events, one.direct) for one in found.neighbours} == {
        (1, 1, 1),
        (2, 2, 2),
    }
    assert found.elsewhere == 0


def test_leaving_out_the_event_with_the_largest_share_changes_the_node_most() -> None:
    channel = Channel.low_pass()
    largest, others = [], []
    for seed in range(20):
        stream = a_stream(100 + seed)
        node, t0, t1 = seed % 5, 20, 30
        found = explain(stream, node, t0, t1, features=SKETCH, top=None)
        if len(found.events) < 5:
            continue

        def end_without(position: int, stream: EventStream = stream, node: int = node) -> Any:
            kept = stream.where(np.arange(EVENTS) != position)
            return reference.exact(
                kept.src,
                kept.dst,
                SKETCH.rows(np.arange(NODES)),
                weight=kept.weight,
                gamma0=channel.gamma0,
                gamma=channel.gamma,
            )[node]

        end = end_without(-1)
        change = [np.linalg.norm(end_without(event.position) - end) for event in found.events]
        largest.append(change[0] / max(change))
        others.append(np.mean(change[1:]) / max(change))
    assert len(largest) > 10
    assert np.mean(largest) > 3 * np.mean(others)


def test_a_node_that_nothing_reached_did_not_move() -> None:
    stream = EventStream([0, 2, 2], [1, 3, 4], [10, 20, 30])
    for t0, t1 in ((15, 40), (12, 14)):
        found = explain(stream, 0, t0, t1)
        assert (found.moved, found.relative, found.unattributed) == (0, 0, 0)
        assert (found.events, found.neighbours) == ((), ())
        assert "did not move" in str(found)


def test_top_keeps_the_largest() -> None:
    stream = a_stream(2)
    every, some = (explain(stream, 0, 5, 25, top=top) for top in (None, 3))
    assert some.events == every.events[:3]
    assert some.neighbours == every.neighbours[:3]
    sizes = [abs(event.share) for event in every.events]
    assert sizes == sorted(sizes, reverse=True)
    assert (some.direct, some.elsewhere) == (every.direct, every.elsewhere)


@pytest.mark.parametrize(
    ("question", "error", "says"),
    [
        ((99, 0, 10), DataError, "node 99 .* 0 to 5"),
        ((-1, 0, 10), DataError, "unknown"),
        ((0, 10, 10), ParameterError, "10 to 10"),
        ((0, 20, 10), ParameterError, "20 to 10"),
        ((0, 1.5, 10), DataError, "1.5"),
        ((True, 0, 10), DataError, "True"),
        (([0, 1], 0, 10), ParameterError, r"\[0, 1\]"),
        ((0, 0, np.uint64(2**63)), ParameterError, r"2\*\*62"),
        ((4, 0, 15), DataError, "node 4 .* at 20"),
        ((5, 0, 99), DataError, "node 5 .* before 99"),
    ],
)
def test_a_question_without_an_answer_is_rejected(
    question: tuple[Any, ...], error: type[Exception], says: str
) -> None:
    stream = EventStream([0, 3], [1, 4], [10, 20], nodes=6)
    with pytest.raises(error, match=says):
        explain(stream, *question)


def test_features_and_top_that_do_not_fit_are_rejected() -> None:
    stream = EventStream([0, 3], [1, 4], [10, 20])
    with pytest.raises(ParameterError, match=r"\(4, 4\).* 5 nodes"):
        explain(stream, 0, 0, 30, features=np.eye(4))
    with pytest.raises(ParameterError, match="top is 0"):
        explain(stream, 0, 0, 30, top=0)


# How it reads -------------------------------------------------------------------------------------


def test_the_report_and_the_dictionary_name_nodes_as_the_stream_does() -> None:
    stream = EventStream(
        [0, 1, 1],
        [1, 2, 2],
        [5, 6, 7],
        op=[Op.ADD, Op.ADD, Op.REMOVE],
        names=["ann", "bob", "cid"],
        unit="step",
    )
    found = tidegraph.explain(stream, 0, 6, 8)
    answer = json.loads(json.dumps(found.to_dict()))
    assert answer["node"] == "ann"
    assert [(event["src"], event["dst"]) for event in answer["events"]] == [("bob", "cid")] * 2
    assert {(event["op"], event["weight"]) for event in answer["events"]} == {
        ("add", 1.0),
        ("remove", None),
    }
    assert answer["moved"] == 0
    assert "cancelled out" in str(found)
    later = tidegraph.explain(stream, 0, 6, 7)
    text = str(later)
    for word in ("ann moved by", "from 6 to 7", "bob", "cid", "+100.0%", "time passing"):
        assert word in text
    assert "'ann' moved by" in repr(later)
    assert "\n" not in repr(later)


def test_a_node_can_be_named_and_a_span_given_as_dates() -> None:
    day = 86_400
    stream = EventStream(
        [0, 1], [1, 2], [10 * day, 20 * day], names=["ann", "bob", "<i>"], unit="s"
    )
    by_number = tidegraph.explain(stream, 2, 15 * day, 25 * day)
    for span in (("1970-01-16", "1970-01-26"), (datetime(1970, 1, 16), np.int64(25 * day))):
        by_name = tidegraph.explain(stream, "<i>", *span)
        assert by_name.to_dict() == by_number.to_dict()
    with pytest.raises(DataError, match="'eve'"):
        tidegraph.explain(stream, "eve", 15 * day, 25 * day)
    with pytest.raises(DataError, match="'soon'"):
        tidegraph.explain(stream, "ann", "soon", 25 * day)


def test_a_notebook_shows_the_tables_of_the_report() -> None:
    stream = EventStream([0, 1], [1, 2], [10, 20], names=["ann", "bob", "<i>"])
    page = tidegraph.explain(stream, "<i>", 15, 25)._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 2
    assert "&lt;i&gt; moved by" in page
    assert "<td>+100.0%</td>" in page
    assert "<i>" not in page


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, ["explain", *map(str, arguments)])


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    path = tmp_path / "messages.csv"
    path.write_text(
        "src,dst,t\nann,bob,1388534400\nbob,cid,1388534500\nann,cid,1388620800\ndan,eve,1388620900\n"
    )
    return path


def test_the_command_takes_dates_and_names(messages: Path) -> None:
    result = run(
        *("--data", messages, "--node", "ann", "--from", "2014-01-02", "--to", "2014-01-03 12:00"),
        "--json",
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout.splitlines()[-1])
    assert answer["span"] == [1388620800, 1388750400]
    assert [event["dst"] for event in answer["events"]] == ["cid"]
    assert "2014-01-02 00:00:00" in result.stdout


def test_the_command_reads_the_columns_that_are_named(messages: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(messages.read_text().replace("src,dst,t", "who,whom,sent"))
    span = ["--node", "ann", "--from", "2014-01-02", "--to", "2014-01-03 12:00", "--json"]
    expected = run("--data", messages, *span).stdout.splitlines()[-1]
    words = ["--data", str(other), "--src", "who", "--dst", "whom"]
    assert "perhaps --src who --dst whom --time sent\n" in run(*words, *span).stderr
    result = run(*words, "--time", "sent", *span)
    assert json.loads(result.stdout.splitlines()[-1])["events"] == json.loads(expected)["events"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--node", "zoe", "--from", "0", "--to", "9"], "'zoe'"),
        (
            ["--node", "ann", "--from", "soon", "--to", "9"],
            "'soon'",
        ),
        (
            ["--node", "ann", "--from", "2014-01-05", "--to", "2014-01-02"],
            "--from 2014-01-05 is not before --to 2014-01-02",
        ),
    ],
)
def test_the_command_rejects_in_one_line(messages: Path, words: list[str], says: str) -> None:
    result = run("--data", messages, *words)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_help_shows_how_to_ask() -> None:
    text = run("--help").stdout
    for word in ("tidegraph explain --node", "share", "direct", "--half-life"):
        assert word in text
    assert "explain" in CliRunner().invoke(cli.main, ["--help"]).stdout


def test_the_examples_of_the_help_can_be_run() -> None:
    result = run("--node", "HNL", "--from", "2013-02-01", "--to", "2013-02-02")
    assert result.exit_code == 0, result.output
    assert "HNL moved by" in result.stdout
