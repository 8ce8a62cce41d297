"""The laws of `tests.fuzz_playing` on 200 histories, the oracle, and laws that can be broken."""

from __future__ import annotations

import math
import os
import pickle
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.fuzz import Summary, fuzz
from tests.fuzz_histories import History, Step, write
from tests.fuzz_playing import Outcome, play
from tests.fuzz_shrinking import script, shrink
from tests.fuzz_workers import Task, Workers
from tests.oracle import LONG_EPS, Oracle, Refused, solve

from tidegraph import Propagator
from tidegraph.core.errors import EventError
from tidegraph.engine.channels import Channel
from tidegraph.events.batch import Batch, Op

HISTORIES = 200


def test_no_history_breaks_a_law() -> None:
    summary = fuzz(range(HISTORIES), seed=0, jobs=2, limit_s=20.0)
    assert summary.histories == HISTORIES
    assert summary.hangs == []
    assert summary.crashes == []
    assert summary.messages == {}
    assert summary.unstarted == 0
    assert summary.refused_share < 0.15  # more would leave too little to check
    assert summary.checks > 20 * HISTORIES


# The oracle --------------------------------------------------------------------------------------


def test_elimination_solves_systems_that_need_pivots_and_scaling() -> None:
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((3, 6, 6)).astype(np.longdouble)
    matrices[0] *= np.longdouble(10) ** np.arange(-12, 12, 4)[:, None]
    matrices[1] = np.eye(6)[::-1]
    x = rng.standard_normal((3, 6, 2)).astype(np.longdouble)
    assert np.abs(solve(matrices, matrices @ x) - x).max() < 1e4 * LONG_EPS


def test_two_nodes_agree_with_the_solution_by_hand() -> None:
    # d = 2 and P = 1/2 everywhere, so P² = P and pi = 0.2·(x + 4·P·x).
    answer = Oracle([[1.0], [0.0]], initial=Batch([0], [1])).answer()
    assert answer.pi[:, 0, 0] == pytest.approx([0.6, 0.4], rel=1e-17)
    assert answer.degree.tolist() == [[2], [2]]
    # r_max · RMS · d^(1/2) · 0.2/0.2
    assert answer.threshold[:, 0, 0] == pytest.approx([0.01, 0.01], rel=1e-15)


def test_a_node_without_edges_keeps_its_own_features() -> None:
    answer = Oracle([[1.0], [3.0], [5.0]], self_loop=0.0, initial=Batch([0], [1])).answer()
    assert answer.degree[:, 0].tolist() == [1, 1, 0]
    assert float(answer.pi[2, 0, 0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("direction", "degrees"), [("out", [1 + 2 + 3, 1]), ("in", [1 + 2, 1 + 3]), ("both", [8, 4])]
)
def test_directions_read_a_self_edge_once_or_from_both_ends(
    direction: Any, degrees: list[float]
) -> None:
    oracle = Oracle(
        np.eye(2),
        directed=True,
        channels=[Channel.low_pass(direction=direction)],
        initial=Batch([0, 0], [0, 1], weight=[2.0, 3.0]),
    )
    assert oracle.answer().degree[:, 0].tolist() == degrees


def test_an_undirected_self_edge_counts_once() -> None:
    oracle = Oracle(np.eye(2), initial=Batch([0], [0], weight=[2.0]))
    assert oracle.answer().degree[:, 0].tolist() == [3, 1]


def test_edges_decay_and_loops_are_renewed_by_rows_and_boundaries() -> None:
    oracle = Oracle(np.eye(3), channels=[Channel.low_pass(half_life=2.0)])
    oracle.apply(Batch([0], [1], t=10))
    oracle.apply(Batch([1], [1], weight=[4.0], t=13))
    oracle.apply(Batch(t=13))
    # The boundary at 12 renews all loops, the row at 13 that of node 1.
    loops = oracle.loops(oracle.channels[0])
    assert loops == pytest.approx(np.array([2**-0.5, 1.0, 2**-0.5]))
    edges = oracle.edges(oracle.channels[0])
    assert edges[0, 1] == pytest.approx(2**-1.5)
    assert edges[1, 1] == 4
    oracle.apply(Batch([0], [1], op=Op.REMOVE, weight=[0.75], t=14))
    assert oracle.edges(oracle.channels[0])[0, 1] == pytest.approx(2**-2 / 4)


@pytest.mark.parametrize("weight", [1.0, 1e-5])
def test_without_loops_edges_are_dropped_after_some_half_lives(weight: float) -> None:
    oracle = Oracle(np.eye(3), self_loop=0.0, channels=[Channel.low_pass(half_life=1.0)])
    oracle.apply(Batch([0, 1], [1, 2], weight=[weight, 2 * weight], t=0))
    last = 16  # half-lives, for beta = 1/2
    oracle.apply(Batch(t=last))
    assert oracle.edges(oracle.channels[0]).keys() == {(0, 1), (1, 2)}
    oracle.apply(Batch(t=last + 1))
    assert oracle.edges(oracle.channels[0]).keys() == {(1, 2)}
    assert oracle.graph.keys() == {(0, 1), (1, 2)}


def test_a_window_drops_the_oldest_first() -> None:
    channels = [Channel.low_pass(window=10), Channel.low_pass(last=1), Channel.low_pass()]
    oracle = Oracle(np.eye(2), channels=channels)
    oracle.apply(Batch([0, 0], [1, 1], weight=[3.0, 2.0], t=[0, 5]))
    oracle.apply(Batch([1], [0], op=Op.REMOVE, weight=[2.0], t=9))
    assert [oracle.edges(c)[0, 1] for c in channels] == [3, 2, 3]
    oracle.apply(Batch(t=10))
    assert [oracle.edges(c)[0, 1] for c in channels] == [2, 2, 3]
    oracle.apply(Batch([0], [1], op=Op.SET, weight=[7.0], t=11))
    assert [oracle.edges(c)[0, 1] for c in channels] == [7, 7, 7]
    oracle.apply(Batch(removed_nodes=[0], t=11))
    assert [oracle.edges(c) for c in channels] == [{}, {}, {}]


def test_removals_take_the_whole_edge_within_their_tolerance() -> None:
    def left(amount: float) -> float:
        oracle = Oracle(np.eye(2), initial=Batch([0], [1], weight=[8.0]))
        oracle.apply(Batch([0], [1], op=Op.REMOVE, weight=[amount]))
        return oracle.graph.get((0, 1), 0.0)

    assert left(math.inf) == left(8.0) == left(8 * (1 + 1e-7)) == left(8 * (1 - 2.0**-40)) == 0
    assert left(8 * (1 - 2.0**-20)) == 8 * 2.0**-20
    with pytest.raises(Refused):
        left(8.1)


def test_a_rejected_batch_changes_nothing_in_the_oracle() -> None:
    oracle = Oracle(np.eye(2), initial=Batch([0], [1]))
    before = pickle.dumps(oracle)
    with pytest.raises(Refused):
        oracle.apply(Batch([0, 0], [0, 5], t=3))
    assert pickle.dumps(oracle) == before


# Propagators that break the laws -----------------------------------------------------------------

SIMPLE = History(
    features=[[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]],
    nodes=3,
    options={
        "channels": (Channel.low_pass(), Channel.high_pass(last=2)),
        "r_max": 1e-3,
        "dtype": "float64",
        "threads": 1,
    },
    initial={"src": [0], "dst": [1]},
    steps=(
        Step("apply", {"src": [1, 2], "dst": [2, 2]}),
        Step("clone", {"by": "copy", "keep": "original"}),
        Step("apply_steps", {"src": [0, 0], "dst": [2, 1], "offsets": [0, 1, 2]}),
        Step("apply", {"src": [1, 0], "dst": [1, 9]}, wrong="unknown"),
        Step("apply_snapshot", {"src": [0], "dst": [1]}),
    ),
)


class _TooFar(Propagator):
    def embedding(self, nodes: Any = None) -> NDArray[Any]:
        estimates = super().embedding(nodes)
        estimates[1] += 1.5 * self.error_bound(nodes)[1] + 1e-12
        return estimates


class _NotANumber(Propagator):
    def error_bound(self, nodes: Any = None) -> NDArray[np.float64]:
        return super().error_bound(nodes) * np.nan


class _Loose(Propagator):
    def error_bound(self, nodes: Any = None) -> NDArray[np.float64]:
        return 1.01 * self.threshold(nodes)


class _PromisesMore(Propagator):
    def threshold(self, nodes: Any = None) -> NDArray[np.float64]:
        return super().threshold(nodes) * (1 + 1e-8)


class _Miscounts(Propagator):
    def degree(self, nodes: Any = None) -> NDArray[np.float64]:
        return super().degree(nodes) * (1 - 1e-8)


class _Misreports(Propagator):
    def edges(self, channel: Any = None) -> Any:
        src, dst, weight = super().edges(channel)
        return src, dst, weight * (1 + 1e-8)


class _Forgets(Propagator):
    def edges(self, channel: Any = None) -> Any:
        src, dst, weight = super().edges(channel)
        return src[1:], dst[1:], weight[1:]


class _HalfRejects(Propagator):
    def apply(self, batch: Batch) -> NDArray[np.int64]:
        try:
            return super().apply(batch)
        except EventError:
            super().apply(Batch(batch.src[:1], batch.dst[:1]))
            raise


class _AcceptsAnything(Propagator):
    def apply(self, batch: Batch) -> NDArray[np.int64]:
        try:
            return super().apply(batch)
        except EventError:
            return np.empty(0, dtype=np.int64)


class _RejectsAll(Propagator):
    def apply(self, batch: Batch) -> NDArray[np.int64]:
        raise EventError("no")


class _CopiesBadly(Propagator):
    def __copy__(self) -> Propagator:
        twin = super().__copy__()
        twin.apply(Batch([0], [0]))
        return twin


class _Breaks(Propagator):
    def apply_snapshot(self, *_: Any, **__: Any) -> NDArray[np.int64]:
        raise RuntimeError("out of luck")


def test_a_simple_history_breaks_no_law() -> None:
    outcome = play(SIMPLE)
    assert outcome.violations == []
    assert outcome.steps == len(SIMPLE.steps)
    assert outcome.misfits == 1
    assert 0 < outcome.error_over_bound <= 1
    assert 0 < outcome.bound_over_threshold <= 1


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (_TooFar, "error"),
        (_NotANumber, "finite"),
        (_Loose, "bound"),
        (_PromisesMore, "threshold"),
        (_Miscounts, "degree"),
        (_Misreports, "edges"),
        (_Forgets, "edges"),
        (_HalfRejects, "refusal"),
        (_AcceptsAnything, "refusal"),
        (_RejectsAll, "refusal"),
        (_CopiesBadly, "clone"),
        (_Breaks, "exception"),
    ],
)
def test_a_tampered_propagator_breaks_a_law(make: type[Propagator], law: str) -> None:
    assert law in play(SIMPLE, make).laws


def _hang(task: Task) -> Outcome:
    if isinstance(task, tuple) and task[1] == 1:
        time.sleep(600)
    return Outcome(number=task[1] if isinstance(task, tuple) else -1)


def _die(task: Task) -> Outcome:
    if isinstance(task, tuple) and task[1] == 2:
        os.abort()
    return Outcome(number=task[1] if isinstance(task, tuple) else -1)


def test_hangs_and_crashes_are_counted_and_the_others_go_on() -> None:
    for work, limit_s in [(_hang, 0.5), (_die, 60.0)]:
        summary = Summary()
        with Workers(jobs=2, limit_s=limit_s, work=work) as workers:
            for outcome in workers.play((0, number) for number in range(8)):
                summary.add(outcome)
        assert summary.histories == 8
        assert summary.hangs == ([1] if work is _hang else [])
        assert summary.crashes == ([2] if work is _die else [])


# Histories ---------------------------------------------------------------------------------------


def test_a_history_is_a_function_of_its_seed_and_number() -> None:
    for number in range(20):
        assert write(3, number) == write(3, number)
        assert pickle.loads(pickle.dumps(write(3, number))) == write(3, number)
    assert write(3, 1) != write(4, 1)


def test_histories_cover_what_a_user_can_do() -> None:
    histories = [write(0, number) for number in range(300)]
    calls = {step.call for history in histories for step in history.steps}
    assert calls == {
        "apply",
        "apply_steps",
        "apply_snapshot",
        "refine",
        "repair",
        "clone",
    }
    fields = {name for h in histories for step in h.steps for name in step.arguments}
    assert fields >= {"new_nodes", "new_features", "feature_nodes", "removed_nodes", "t", "op"}
    options = [history.options for history in histories]
    assert {o["self_loop"] for o in options} == {0.0, 1e-6, 0.25, 1.0, 3.0, 1e6, 2.0**40}
    assert {o["dtype"] for o in options} == {"float32", "float64"}
    assert {o["r_max_unit"] for o in options} == {"rms", "absolute", "l1"}
    channels = [channel for o in options for channel in o["channels"]]
    assert {channel.direction for channel in channels} == {"out", "in", "both"}
    for rule in ("half_life", "window", "last", "beta"):
        assert len({getattr(channel, rule) for channel in channels}) > 3


def test_shrinking_leaves_the_least_that_fails() -> None:
    def has_self_edge(history: History) -> bool:
        return any(
            src == dst
            for step in history.steps
            for src, dst in zip(
                step.arguments.get("src", ()), step.arguments.get("dst", ()), strict=True
            )
        )

    number = next(k for k in range(100) if has_self_edge(write(0, k)))
    smallest = shrink(write(0, number), has_self_edge)
    assert len(smallest.steps) == 1
    assert len(smallest.steps[0].arguments["src"]) == 1
    assert len(smallest.options["channels"]) == smallest.nodes == 1
    assert len(np.atleast_2d(smallest.feature_array())[0]) == 1
    compile(script(smallest), "script", "exec")


def test_a_shrunken_script_shows_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(history: History) -> bool:
        return "refusal" in play(history, _AcceptsAnything).laws

    smallest = shrink(replace(SIMPLE, initial=None), fails)
    assert len(smallest.steps) == 1
    exec(script(smallest), {})  # an untampered propagator rejects the step
    assert "rejected" in capsys.readouterr().out
