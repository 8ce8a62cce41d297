"""A stream is checked once, cut without copying, and stepped through without looking ahead."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegraph import (
    Batch,
    DataError,
    EventError,
    EventStream,
    Op,
    Propagator,
    Steps,
    UnknownNodeError,
)
from tidegraph.core import statefile
from tidegraph.core.errors import ParameterError, StateFileError, TidegraphError
from tidegraph.events.moments import moment
from tidegraph.events.names import NodeNames
from tidegraph.events.read_report import ReadReport
from tidegraph.events.stream import Edges, NodeLabels


def random_stream(seed: int, *, events: int = 400, nodes: int = 12, weighted: bool = False) -> Any:
    random = np.random.default_rng(seed)
    return EventStream(
        random.integers(0, nodes, events),
        random.integers(0, nodes, events),
        np.cumsum(random.integers(0, 4, events)) - 50,
        weight=random.integers(1, 5, events) / 4 if weighted else None,
        nodes=nodes,
    )


def everything() -> EventStream:
    """A stream with something in every place."""
    return EventStream(
        [0, 1, 0],
        [2, 2, 3],
        [-5, 0, 2**61],
        weight=[1.5, np.inf, 2.0],
        op=[Op.ADD, Op.REMOVE, Op.SET],
        edge_features=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        labels=[0, -1, 7],
        names=["ann", "böb", "", "a rather long name 🚲"],
        unit="ns",
        initial=Edges(np.array([1]), np.array([2]), np.array([0.5])),
        node_features=np.arange(8.0).reshape(4, 2),
        node_labels=NodeLabels(np.array([3]), np.array([9]), np.array([1]), np.array([2])),
        title="all",
        report=ReadReport("here", 4, 3, {"t is missing": 1}, ("a note",)),
    )


def graph_of(propagator: Propagator) -> dict[tuple[int, int], float]:
    src, dst, weight = propagator.edges()
    pairs = zip(src.tolist(), dst.tolist(), strict=True)
    return dict(zip(((min(p), max(p)) for p in pairs), weight.tolist(), strict=True))


def played(steps: Steps, nodes: int, **more: Any) -> Propagator:
    propagator = Propagator(np.eye(nodes), r_max=1e-3, **more)
    for batch in steps:
        propagator.apply(batch)
    return propagator


def summed(stream: EventStream) -> dict[tuple[int, int], float]:
    """The undirected graph of all events of a stream, by hand."""
    graph: dict[tuple[int, int], float] = {}
    weight = np.ones(len(stream)) if stream.weight is None else stream.weight
    for u, v, w in zip(stream.src.tolist(), stream.dst.tolist(), weight.tolist(), strict=True):
        graph[min(u, v), max(u, v)] = graph.get((min(u, v), max(u, v)), 0.0) + w
    return graph


# Checking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"src": [0.0, 1.0]}, "src has dtype float64; integers"),
        ({"src": [True, False]}, "src has dtype bool"),
        ({"src": [[0, 1]]}, r"src has shape \(1, 2\)"),
        ({"dst": [1]}, r"dst has shape \(1,\); give \[2\]"),
        ({"src": [0, -1]}, "src of row 1 is -1"),
        ({"src": np.array([0, 2**63], dtype=np.uint64)}, str(2**63)),
        ({"dst": [1, 5], "nodes": 3}, "dst of row 1 is 5; .* 0 to 2"),
        ({"t": [5, 4]}, "t of row 1 is 4, after 5; .*sort=True"),
        ({"t": [0, 2**62]}, "times lie strictly between"),
        ({"t": [0, np.nan]}, "t has dtype float64"),
        ({"weight": [1.0, 0.0]}, "weight of row 1 is 0.0"),
        ({"weight": [-1.0, 1.0]}, "weight of row 0 is -1.0"),
        ({"weight": [np.nan, 1.0]}, "weight of row 0 is nan"),
        ({"weight": [1.0, np.inf]}, "weight of row 1 is inf.* REMOVE"),
        ({"weight": ["a", "b"]}, "weight has dtype"),
        ({"weight": [1.0]}, r"weight has shape \(1,\)"),
        ({"op": [0, 3]}, "op of row 1 is 3"),
        ({"op": ["add", "set"]}, "op has dtype"),
        ({"op": [0]}, "op has shape"),
        ({"edge_features": [1.0, 2.0]}, r"edge_features has shape \(2,\); give \[2, columns\]"),
        ({"edge_features": [[1.0], [np.nan]]}, "NaN or infinity in row 1"),
        ({"edge_features": [[1e300], [1.0]]}, "NaN or infinity in row 0"),
        ({"labels": [0.5, 1.0]}, "labels has dtype"),
        ({"names": ["a"]}, "src|dst"),
        ({"names": ["a", "b", "b"]}, "twice"),
        ({"names": ["a", "b", "c"], "nodes": 4}, "3 names for 4 nodes"),
        ({"node_features": [[1.0]] * 2, "nodes": 3}, "node_features has shape"),
        ({"unit": "fortnight"}, "unit is 'fortnight'"),
        ({"initial": Edges(np.array([9]), np.array([0])), "nodes": 3}, "initial.src of row 0 is 9"),
    ],
)
def test_a_bad_column_raises_with_advice(change: dict[str, Any], advice: str) -> None:
    columns: dict[str, Any] = {"src": [0, 1], "dst": [1, 2], "t": [4, 5], **change}
    with pytest.raises(EventError, match=advice):
        EventStream(**columns)


def test_sorting_keeps_events_of_one_time_in_their_order() -> None:
    stream = EventStream(
        [0, 1, 2, 3], [4, 4, 4, 4], [7, 3, 7, 3], labels=[10, 11, 12, 13], sort=True
    )
    assert stream.src.tolist() == [1, 3, 0, 2]
    assert stream.t.tolist() == [3, 3, 7, 7]
    assert stream.labels is not None
    assert stream.labels.tolist() == [11, 13, 10, 12]


def test_columns_cannot_be_written_to_and_right_ones_are_not_copied() -> None:
    src = np.array([0, 1], dtype=np.int64)
    stream = EventStream(src, [1, 2], [4, 5], weight=[1.0, 2.0])
    assert np.shares_memory(stream.src, src)
    assert src.flags.writeable
    for column in (stream.src, stream.dst, stream.t, stream.weight, stream.where([True, False]).t):
        assert column is not None
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 9


def test_an_empty_stream_has_no_steps() -> None:
    stream = EventStream([], [], [], nodes=3)
    for steps in (stream.steps(), stream.steps(events=2), stream.snapshots(5, window=2)):
        assert len(steps) == 0
        assert list(steps) == []


# Views --------------------------------------------------------------------------------------------


def test_views_share_memory_and_hold_the_events_they_name() -> None:
    stream = random_stream(0)
    early, middle = stream.before(100), stream.between(50, 100)
    assert (early.t < 100).all()
    assert len(early) == (stream.t < 100).sum()
    assert middle.t.tolist() == [t for t in stream.t.tolist() if 50 <= t < 100]
    together = stream.where((stream.t >= 50) & (stream.t < 100))
    for view in (early, middle, together, stream[10:30], stream[::7]):
        assert len(view) > 0
        for name in ("src", "dst", "t"):
            assert np.shares_memory(getattr(view, name), getattr(stream, name))
    assert together.t.tolist() == middle.t.tolist()
    apart = stream.where(stream.src == 3)
    assert (apart.src == 3).all()
    assert len(apart) == (stream.src == 3).sum()
    assert len(stream.between(100, 50)) == 0


@pytest.mark.parametrize("cut", [slice(None, None, -1), 3])
def test_a_stream_is_cut_by_ascending_slices_only(cut: Any) -> None:
    with pytest.raises(EventError, match="see where"):
        random_stream(0)[cut]


@pytest.mark.parametrize("mask", [[True], [1] * 400])
def test_a_mask_has_one_boolean_per_event(mask: Any) -> None:
    with pytest.raises(EventError, match="give booleans"):
        random_stream(0).where(mask)


# Nodes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["x", "ann", "böb"], [2**60, -7, 5]])
def test_numbers_and_names_are_inverse(names: list[Any]) -> None:
    stream = EventStream([0, 1], [1, 2], [0, 0], names=names)
    assert stream.name(stream.number(names)).tolist() == names
    assert stream.number(names[1]) == 1
    assert stream.names is not None
    assert stream.names[2] == names[2]
    with pytest.raises(DataError, match=f"node 99 is unknown|'99' is unknown.*{names[0]}"):
        stream.number([names[0], 99] if names[1] == -7 else [names[0], "99"])


def test_a_lookup_of_an_id_of_another_kind_names_it() -> None:
    with pytest.raises(DataError, match=r"'ann' .*5"):
        NodeNames([5, 6]).numbers(["ann"])
    stream = EventStream([0], [1], [0])
    with pytest.raises(DataError, match="node 2 is unknown; nodes are 0 to 1"):
        stream.name([0, 2])
    with pytest.raises(DataError, match="'ann' is unknown"):
        stream.number(["ann"])
    assert stream.number([1]).tolist() == [1]


def test_ids_are_found_exactly_whatever_integers_they_are_asked_in() -> None:
    names = NodeNames([-5, 2**62 + 1, 2**62 + 2])
    asked = np.array([2**62 + 2, 2**62 + 1], dtype=np.uint64)
    assert names.numbers(asked).tolist() == [2, 1]
    with pytest.raises(DataError, match=f"node {2**64 - 5} is unknown"):  # it is no -5
        names.numbers(np.array([2**64 - 5], dtype=np.uint64))
    with pytest.raises(DataError, match=f"names .*{2**63}"):
        NodeNames(np.array([2**63], dtype=np.uint64))


def test_many_integer_names_need_no_dictionary() -> None:
    ids = np.random.default_rng(0).permutation(300_000) * 7
    names = NodeNames(ids)
    assert np.array_equal(names.numbers(ids[::-1]), np.arange(len(ids))[::-1])
    assert names.values.nbytes == 8 * len(ids)


def test_bipartite_means_no_node_on_both_sides() -> None:
    stream = EventStream([0, 1], [3, 2], [0, 1])
    assert stream.bipartite
    assert stream.destinations.tolist() == [2, 3]
    assert not EventStream([0, 1], [1, 2], [0, 1]).bipartite


# Steps and snapshots ------------------------------------------------------------------------------


def test_steps_cut_at_every_time_or_after_so_many_events() -> None:
    stream = EventStream([0, 1, 2, 0], [1, 2, 0, 2], [3, 3, 5, 9])
    assert stream.steps().offsets.tolist() == [0, 2, 3, 4]
    assert stream.steps().times.tolist() == [3, 5, 9]
    assert stream.steps(events=3).offsets.tolist() == [0, 3, 4]
    with pytest.raises(ParameterError, match="events is 0"):
        stream.steps(events=0)


def test_snapshots_are_counted_from_the_origin_in_absolute_time() -> None:
    stream = EventStream([0, 1, 2, 0, 1], [1, 2, 0, 2, 0], [-1, 0, 9, 10, 35])
    steps = stream.snapshots(10)
    assert steps.offsets.tolist() == [0, 1, 3, 4, 5]  # snapshot 2 is empty and makes no step
    assert steps.times.tolist() == [-1, 9, 19, 39]
    assert stream.snapshots(10, origin=5).times.tolist() == [4, 14, 44]
    for q in (0, 10, 20, 40):  # the start of a snapshot sees all that came before it, and no more
        seen = int(np.searchsorted(steps.times, q, side="left"))
        assert int(steps.offsets[seen]) == len(stream.before(q))


@settings(deadline=None)
@given(seed=st.integers(0, 30), every=st.integers(1, 300), origin=st.integers(-500, 500))
def test_cumulative_snapshots_and_steps_end_alike(seed: int, every: int, origin: int) -> None:
    stream = random_stream(seed, events=60, weighted=True)
    one = played(stream.steps(), stream.nodes)
    other = played(stream.snapshots(every, origin=origin), stream.nodes)
    assert graph_of(one) == graph_of(other) == summed(stream)
    apart = np.abs(one.embedding().astype(np.float64) - other.embedding())
    assert (apart <= one.error_bound() + other.error_bound()).all()
    assert (apart <= 2 * one.threshold() * (1 + 1e-3)).all()


@settings(deadline=None)
@given(
    seed=st.integers(0, 30),
    every=st.integers(1, 60),
    window=st.integers(1, 6),
    weighted=st.booleans(),
)
def test_windowed_snapshots_hold_exactly_the_window_at_every_step(
    seed: int, every: int, window: int, weighted: bool
) -> None:
    stream = random_stream(seed, events=50, nodes=5, weighted=weighted)
    steps = stream.snapshots(every, window=window, origin=3)
    propagator = Propagator(np.eye(5))
    for step, batch in enumerate(steps):
        propagator.apply(batch)
        end = int(steps.times[step]) + 1
        assert graph_of(propagator) == summed(stream.between(end - window * every, end))
    assert int(steps.times[-1]) >= int(stream.t[-1])
    # Where a window has no step of its own, nothing has changed since the last.
    assert (np.diff(steps.times) > 0).all()


@pytest.mark.parametrize("directed", [False, True])
def test_weights_of_all_sizes_leave_a_window_without_a_trace(directed: bool) -> None:
    random = np.random.default_rng(3)
    src, dst = random.integers(0, 4, (2, 200))
    weight = 10 ** random.uniform(-3, 3, 200)
    stream = EventStream(src, dst, np.arange(200), weight=weight)
    steps = stream.snapshots(10, window=3, directed=directed)
    propagator = Propagator(np.eye(4), directed=directed)
    for step, batch in enumerate(steps):
        propagator.apply(batch)
        end = int(steps.times[step]) + 1
        expected = Propagator(np.eye(4), directed=directed)
        window = stream.between(end - 30, end)
        expected.apply(Batch(src=window.src, dst=window.dst, weight=window.weight))
        (src, dst, weight), wanted = propagator.edges(), expected.edges()
        order, other = np.lexsort((dst, src)), np.lexsort(wanted[1::-1])
        assert np.array_equal(src[order], wanted[0][other])
        assert np.array_equal(dst[order], wanted[1][other])
        # At most 30 additions in float32 on either side, each rounded by half a unit.
        np.testing.assert_allclose(weight[order], wanted[2][other], rtol=60 * 2.0**-24)


def test_departures_make_a_step_even_where_nothing_arrives() -> None:
    stream = EventStream([0, 0], [1, 2], [0, 50])
    steps = stream.snapshots(10, window=2)
    assert steps.times.tolist() == [9, 29, 59]
    assert steps.op is not None
    assert steps.op.tolist() == [Op.ADD, Op.REMOVE, Op.ADD]


def test_a_window_needs_events_that_add() -> None:
    stream = EventStream([0, 0], [1, 1], [0, 5], op=[Op.ADD, Op.REMOVE])
    with pytest.raises(EventError, match="op column; leave window out"):
        stream.snapshots(10, window=2)
    assert stream.snapshots(10).op is stream.op


@pytest.mark.parametrize(
    "options",
    [{"every": 0}, {"every": 1.5}, {"every": 5, "window": 0}, {"every": 5, "origin": 2**62}],
)
def test_impossible_snapshots_raise(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"every|window|origin"):
        random_stream(0).snapshots(**options)


@settings(deadline=None)
@given(seed=st.integers(0, 50), directed=st.booleans())
def test_given_snapshots_are_reached_one_after_the_other(seed: int, directed: bool) -> None:
    random = np.random.default_rng(seed)
    graphs = []
    for _ in range(4):
        rows = int(random.integers(0, 9))
        ends = random.integers(0, 4, (2, rows))
        graphs.append((ends[0], ends[1], random.integers(1, 9, rows) / 8))
    steps = Steps.from_snapshots(graphs, [1, 5, 6, 9], nodes=4, directed=directed)
    one = Propagator(np.eye(4), directed=directed)
    other = Propagator(np.eye(4), directed=directed)
    for batch, graph in zip(steps, graphs, strict=True):
        one.apply(batch)
        other.apply_snapshot(*graph)
        pairs = [sorted(zip(*(c.tolist() for c in p.edges()), strict=True)) for p in (one, other)]
        assert pairs[0] == pairs[1]


@pytest.mark.parametrize(
    ("graphs", "times", "advice"),
    [
        ([([0], [1])], [1, 2], "times has shape"),
        ([([0], [1]), ([0], [1])], [2, 2], "must ascend"),
        ([([0],)], [1], "snapshot 0 has 1 columns"),
        ([([0], [7])], [1], "dst of snapshot 0 of row 0 is 7"),
        ([([0], [1], [0.0])], [1], "weight of snapshot 0 of row 0 is 0.0"),
    ],
)
def test_bad_snapshots_raise(graphs: Any, times: Any, advice: str) -> None:
    with pytest.raises(EventError, match=advice):
        Steps.from_snapshots(graphs, times, nodes=4)


def test_no_snapshots_make_no_steps() -> None:
    assert len(Steps.from_snapshots([], [])) == 0


# Files --------------------------------------------------------------------------------------------


def test_a_saved_stream_comes_back_whole(tmp_path: Path) -> None:
    for number, stream in enumerate([everything(), random_stream(1)]):
        stream.save(tmp_path / f"{number}.stream")
        again = EventStream.load(tmp_path / f"{number}.stream")
        assert again.digest() == stream.digest()
        assert again.title == stream.title
        assert again.report == stream.report
        assert again.names == stream.names
        assert again.nodes == stream.nodes


def test_a_damaged_or_foreign_file_raises(tmp_path: Path) -> None:
    everything().save(tmp_path / "a")
    data = bytearray((tmp_path / "a").read_bytes())
    data[-3] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(StateFileError, match=r"names\.length"):
        EventStream.load(tmp_path / "a")
    Propagator(np.eye(2), initial=Batch(src=[0], dst=[1])).save(tmp_path / "b")
    with pytest.raises(StateFileError, match="event stream"):
        EventStream.load(tmp_path / "b")


@pytest.mark.parametrize(
    "change",
    [
        {"src": [1, 1, 0]},
        {"t": [-5, 1, 2**61]},
        {"weight": [1.5, 2.0, 2.0]},
        {"op": None, "weight": None},
        {"edge_features": None},
        {"edge_features": [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]},
        {"labels": [0, 0, 7]},
        {"names": ["ann", "bob", "", "x"]},
        {"names": None},
        {"initial": None},
        {"node_features": None},
        {"node_labels": None},
        {"unit": "us"},
    ],
)
def test_the_digest_covers_everything_the_stream_says(change: dict[str, Any]) -> None:
    stream = everything()
    fields = {name: getattr(stream, name) for name in EventStream.__slots__ if name[0] != "_"}
    same = EventStream(**{**fields, "title": "another", "report": None})
    assert same.digest() == stream.digest()
    assert EventStream(**{**fields, **change}).digest() != stream.digest()


def test_the_digest_distinguishes_names_that_run_together() -> None:
    one, other = (EventStream([0], [1], [0], names=names) for names in (["ab", "c"], ["a", "bc"]))
    assert one.digest() != other.digest()


def test_errors_are_of_one_family_and_reports_read_well() -> None:
    with pytest.raises(TidegraphError):
        EventStream([0], [1], [0.5])
    assert str(everything().report).splitlines() == [
        "here: 3 of 4 rows kept",
        "  dropped 1: t is missing",
        "  a note",
    ]
    assert "events=3" in repr(everything())


def test_views_may_be_cut_at_dates() -> None:
    day = 86_400
    stream = EventStream([0, 1, 2], [1, 2, 0], [0, day, 2 * day])
    assert stream.before("1970-01-02").t.tolist() == [0]
    assert stream.before(np.datetime64("1970-01-03")).t.tolist() == [0, day]
    assert stream.between("1970-01-02T01:00+01:00", 2 * day).t.tolist() == [day]
    assert replace(stream, unit="ms").time("1970-01-01T00:00:01.5Z") == 1500
    for wrong in ("soon", 1.5, None):
        with pytest.raises(DataError, match="is not understood; give a whole number of s"):
            stream.before(wrong)
    with pytest.raises(DataError, match=r"give a whole number of step$"):
        replace(stream, unit="step").before("1970-01-02")


def test_streams_with_other_ids_cannot_be_joined() -> None:
    names = NodeNames(["ann", "bob"])
    first = EventStream([0], [1], [1], nodes=2, names=names)
    later = EventStream([0], [1], [2], nodes=2, names=NodeNames(["bob", "ann"]))
    with pytest.raises(EventError, match="continuing"):
        first.joined(later)
    assert first.joined(replace(later, names=names)).t.tolist() == [1, 2]
    with pytest.raises(EventError, match="continuing"):
        first.joined(replace(later, names=None))


def test_a_stray_number_in_later_events_is_rejected() -> None:
    earlier = EventStream([0, 1], [1, 2], [1, 2])
    with pytest.raises(EventError, match="node 1000000000 would make 999999998 new nodes"):
        EventStream([0], [10**9], [3]).continuing(earlier)
    assert EventStream([0], [10**6], [3]).continuing(earlier).nodes == 10**6 + 1
    # As many nodes as numbers are no stray ones.
    many = np.arange(3, 1_500_003)
    assert EventStream(many, many + 1, np.full(len(many), 3)).continuing(earlier).nodes == 1_500_004


def test_later_events_may_bring_new_nodes() -> None:
    early = EventStream([0, 1], [1, 2], [1, 2], names=["ann", "bob", "cem"])
    late = EventStream([0, 1], [1, 2], [3, 4], names=["eve", "cem", "dan"])
    with pytest.raises(EventError, match="continuing"):
        early.joined(late)
    both = early.joined(late.continuing(early))
    assert both.name(both.src).tolist() == ["ann", "bob", "eve", "cem"]
    assert both.name(both.dst).tolist() == ["bob", "cem", "cem", "dan"]
    assert (both.nodes, both.number(["ann", "eve"]).tolist()) == (5, [0, 3])
    numbers = EventStream([0], [4], [3])
    assert EventStream([0], [1], [1]).joined(numbers).nodes == 5
    fewer = EventStream([0], [1], [9]).continuing(numbers)
    assert numbers.joined(fewer).nodes == 5
    with pytest.raises(EventError, match="only one of the two streams has names"):
        numbers.continuing(early)
    with pytest.raises(EventError, match="use one kind"):
        EventStream([0], [1], [1], names=[7, 8]).continuing(early)
    with pytest.raises(EventError, match=r"5 nodes.* 2 with features"):
        EventStream([0], [1], [1], node_features=np.eye(2)).joined(numbers)


def test_every_event_is_followed_by_its_reverse_where_wanted() -> None:
    stream = EventStream(
        [0, 2, 1],
        [1, 2, 0],
        [5, 5, 9],
        edge_features=[[1.0], [2.0], [3.0]],
        labels=[0, 1, 0],
        title="Letters",
    )
    both = stream.with_reversed()
    assert both.src.tolist() == [0, 1, 2, 1, 0]  # a loop is its own reverse
    assert both.dst.tolist() == [1, 0, 2, 0, 1]
    assert both.t.tolist() == [5, 5, 5, 9, 9]
    assert both.edge_features is not None
    assert both.edge_features[:, 0].tolist() == [1, 1, 2, 3, 3]
    assert both.labels is None
    assert both.title == "Letters, every edge also reversed"
    assert len(stream[:0].with_reversed()) == 0


# Names and dates where numbers are accepted -------------------------------------------------------


@pytest.mark.parametrize("names", [None, ["0", "b", "c"], [70, 80, 90]])
def test_integers_are_node_numbers_whatever_the_names(names: Any) -> None:
    stream = EventStream([0], [1], [0], 3, names=names)
    assert stream.nodes_of([2, 0]).tolist() == [2, 0]
    assert stream.nodes_of(1).shape == ()
    assert stream.nodes_of([]).tolist() == []


def test_text_is_a_name_also_where_names_are_integers() -> None:
    assert EventStream([0], [1], [0], names=["ann", "bob"]).nodes_of([["bob"]]).tolist() == [[1]]
    assert EventStream([0], [1], [0], names=[70, 80]).nodes_of(["80", "70"]).tolist() == [1, 0]
    assert EventStream([0], [1], [0]).nodes_of("1") == 1


@pytest.mark.parametrize(
    ("names", "asked", "facts"),
    [
        (["ann", "bob"], "anna", "'anna'.*'ann'"),
        (["007", "bob"], "7", "'7'.*'007'"),
        ([70, 80], "ann", "'ann'.*70"),
        ([70, 80], "75", "'75'.*70"),
        (None, "ann", "'ann'.* 0 to 1"),
        (None, 2, "2 .* 0 to 1"),
        (["ann", "bob"], -1, "-1 .* 0 to 1"),
        (["ann", "bob"], 0.5, "0.5"),
    ],
)
def test_an_unknown_node_is_one_error_that_names_it(names: Any, asked: Any, facts: str) -> None:
    stream = EventStream([0], [1], [0], names=names)
    with pytest.raises(UnknownNodeError, match=facts) as caught:
        stream.nodes_of([asked])
    assert isinstance(caught.value, DataError)
    assert isinstance(caught.value, EventError)


def test_an_id_of_both_sides_is_found_by_its_side() -> None:
    names = NodeNames.of_sides([7, 8], [7])
    stream = EventStream([0, 1], [2, 2], [0, 1], names=names)
    assert stream.nodes_of(["7"], "src").tolist() == [0]
    assert stream.nodes_of(["7"], "dst").tolist() == [2]
    assert stream.nodes_of(["dst 7"]).tolist() == [2]
    with pytest.raises(UnknownNodeError, match="'dst 8'"):
        stream.nodes_of(["8"], "dst")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_numbers_dates_or_datetimes(unit: str) -> None:
    stream = EventStream([0], [1], [0], unit=unit)
    day = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for asked in (
        [day, 2 * day],
        ["1970-01-02", "1970-01-03T01:00+01:00"],
        [datetime(1970, 1, 2), datetime(1970, 1, 3, tzinfo=timezone.utc)],
        np.array(["1970-01-02", "1970-01-03"], "datetime64[ns]"),
    ):
        assert stream.times_of(asked).tolist() == [day, 2 * day]
    assert stream.times_of("1970-01-02") == day
    for wrong in ("soon", 1.5, np.datetime64("NaT")):
        with pytest.raises(DataError, match="whole number"):
            stream.times_of([wrong])


def test_nanoseconds_of_dates_are_not_lost() -> None:
    stream = EventStream([0], [1], [0], unit="ns")
    assert stream.times_of(np.datetime64("1970-01-01T00:00:00.000000007")) == 7


# The constructor, the digest, the notebook --------------------------------------------------------


def test_the_digest_is_computed_once_and_not_handed_to_changed_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = random_stream(0)
    first = stream.digest()
    monkeypatch.setattr(hashlib, "blake2b", None)
    assert stream.digest() == first
    monkeypatch.undo()
    for other in (stream[1:], replace(stream, unit="ms"), stream.where(stream.t > 50)):
        assert other.digest() != first
    assert pickle.loads(pickle.dumps(stream)).digest() == first


def test_names_by_side_are_saved_and_found_in_files_that_do_not_say(tmp_path: Path) -> None:
    names = NodeNames.of_sides(["x"], ["x"])
    stream = EventStream([0], [1], [0], names=names)
    stream.save(tmp_path / "new")
    plain = replace(stream, names=NodeNames(names.values))
    plain.save(tmp_path / "plain")
    description, arrays = statefile.read(tmp_path / "new")
    del description["names_by_side"]
    statefile.write(tmp_path / "old", description, arrays)
    for name, by_side in (("new", True), ("plain", False), ("old", True)):
        loaded = EventStream.load(tmp_path / name)
        assert loaded.names is not None
        assert loaded.names.by_side is by_side
        assert loaded.digest() == stream.digest()


def test_the_report_of_an_older_file_is_still_read(tmp_path: Path) -> None:
    everything().save(tmp_path / "new")
    description, arrays = statefile.read(tmp_path / "new")
    description["report"] = {"source": "a", "read": 2, "kept": 2, "dropped": {}, "notes": ["x"]}
    statefile.write(tmp_path / "old", description, arrays)
    report = EventStream.load(tmp_path / "old").report
    assert report is not None
    assert (report.read, report.notes) == (2, ("x",))


def test_streams_steps_and_batches_show_what_they_hold() -> None:
    stream = replace(random_stream(0), title="Calls <of> one day")
    assert "Calls <of> one day" in repr(stream)
    assert "events=400, nodes=12" in repr(stream)
    assert "steps=" in repr(stream.steps())
    for shown in (stream, stream.steps(), stream.steps().batch(0, 2), everything()):
        html = shown._repr_html_()
        assert html.count("<tr>") <= 8
        assert "<of>" not in html
        ElementTree.fromstring(f"<div>{html.replace('<br>', ' ')}</div>")
    assert "böb" in everything()._repr_html_()


# Steps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"src": [0, -1]}, "src of row 1 is -1"),
        ({"dst": [1]}, "dst"),
        ({"t": [6, 5]}, "t .*5 .*6"),
        ({"weight": [1.0, 0.0]}, "weight of row 1"),
        ({"op": [0, 9]}, "op of row 1 is 9"),
        ({"offsets": [0, 1, 3]}, "offsets"),
        ({"offsets": [0, 2, 1]}, "offsets"),
        ({"offsets": [0, 2]}, "offsets"),
        ({"times": [6, 5]}, "times"),
        ({"times": [4, 6]}, "step 0"),
    ],
)
def test_steps_check_their_columns(change: dict[str, Any], facts: str) -> None:
    good = {"src": [0, 1], "dst": [1, 2], "t": [5, 6], "offsets": [0, 1, 2], "times": [5, 6]}
    assert len(Steps(**good)) == 2
    with pytest.raises(EventError, match=facts):
        Steps(**{**good, **change})


def test_some_of_the_steps_share_their_rows_and_do_the_same() -> None:
    steps = random_stream(3).steps(events=7)
    part = steps[4:9]
    assert np.shares_memory(part.src, steps.src)
    assert [batch.src.tolist() for batch in part] == [b.src.tolist() for b in steps][4:9]
    assert len(steps[5:3]) == 0
    with pytest.raises(EventError, match="slice"):
        steps[::2]
    whole, divided = (Propagator(np.eye(12), r_max=1e-3) for _ in range(2))
    touched = whole.apply_steps(steps)
    pieces = [divided.apply_steps(steps[first : first + 10]) for first in range(0, len(steps), 10)]
    assert np.array_equal(np.concatenate(pieces), touched)
    assert np.array_equal(divided.embedding(), whole.embedding())


def test_steps_reach_the_engine_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = random_stream(4)
    expected = Propagator(np.eye(12), r_max=1e-3)
    steps = stream.steps()
    expected.apply_steps(steps.batch(0, len(steps)), steps.offsets)
    monkeypatch.setattr(Steps, "batch", None)
    propagator = Propagator(np.eye(12), r_max=1e-3)
    propagator.apply_steps(stream.steps())
    assert np.array_equal(propagator.embedding(), expected.embedding())
    propagator.apply_steps(stream[::3].between(10**6, 10**7).steps())  # a view that skips rows


def test_names_and_numbers_do_not_mix() -> None:
    stream = EventStream([0], [1], [5], names=["3", "2", "1", "0"])
    np.testing.assert_array_equal(stream.nodes_of(["3", "0"]), [0, 3])
    np.testing.assert_array_equal(stream.nodes_of([3, 0]), [3, 0])
    np.testing.assert_array_equal(stream.nodes_of(np.array([3, 0], dtype=object)), [3, 0])
    wrong: list[Any] = [
        ["3", 3],
        np.array(["3", 3], dtype=object),
        np.array([True], dtype=object),
        [3, True],
        [[np.int64(3), np.False_]],
    ]
    for mixed in wrong:
        with pytest.raises(DataError, match="give all names or all numbers"):
            stream.nodes_of(mixed)


@pytest.mark.parametrize("wrong", ["0_1", " 1", "+1", "01", "1.0", "\u0661"])
def test_only_a_plain_integer_names_a_node_without_a_name(wrong: str) -> None:
    stream = EventStream([0], [1], [5])
    assert stream.nodes_of("1") == 1
    with pytest.raises(UnknownNodeError):
        stream.nodes_of(wrong)


def test_a_time_is_never_guessed_wrapped_or_cut() -> None:
    day = 86_400
    assert moment("2024-06-20", "s") == 19_894 * day
    with pytest.raises(DataError, match="20240620"):
        moment("20240620", "s")  # a date, or a number
    assert moment("20240620", "step") == 20_240_620
    assert moment("2024", "s") == 2024
    for beyond in (np.datetime64("3000-01-01"), "3000-01-01", np.datetime64(2**62, "D"), "9" * 20):
        with pytest.raises(DataError, match="does not fit into int64"):
            moment(beyond, "ns")
    assert moment(np.datetime64("2024-06-20T00:00:00.000000001"), "ns") % 1000 == 1
    pandas = pytest.importorskip("pandas")
    assert moment(pandas.Timestamp("2024-06-20T00:00:00.000000001"), "ns") % 1000 == 1
    for never in (pandas.NaT, np.datetime64("NaT")):
        with pytest.raises(DataError, match="NaT"):
            moment(never, "s")
