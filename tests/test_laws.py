"""Laws that hold for every propagator, whatever happens to its graph.

Tolerances come from the bounds that propagators certify. Allowances for rounding are computed:
operations times machine precision times the size of the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.histories import WHOLE, History, Row, Step, histories, long_history

from tidegraph import Propagator, reference
from tidegraph.core.errors import EventError, PrecisionError
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.events.batch import Batch, Op

FloatArray: TypeAlias = NDArray[np.float64]
Make: TypeAlias = Callable[..., Any]


REFERENCE = pytest.param(reference.Propagator, id="reference")
NATIVE = [
    pytest.param(partial(Propagator, dtype="float32"), id="float32"),
    pytest.param(partial(Propagator, dtype="float64"), id="float64"),
]
every = pytest.mark.parametrize("make", [REFERENCE, *NATIVE])
every_native = pytest.mark.parametrize("make", NATIVE)

# Of weights summed in another order, and the weight below which the engine drops decayed edges.
ROUNDING_OF_WEIGHTS = 64 * float(np.finfo(np.float64).eps)
FADED = 2.0**-32


def law(examples: int = 60) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# Tolerances --------------------------------------------------------------------------------------


def wide(values: Any) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def betas(propagator: Any) -> FloatArray:
    return wide([propagator.beta if c.beta is None else c.beta for c in propagator.channels])


def unit(propagator: Any) -> FloatArray:
    """Return d^(1-beta) [n, channels]; 1 for nodes without edges."""
    d = wide(propagator.degree())
    return wide(np.where(d > 0, d, 1.0) ** (1 - betas(propagator)))


def spread(propagator: Any, values: FloatArray) -> FloatArray:
    """Return how far a defect of the equation as large as `values` can move the solution.

    This is the error theorem: d(i)^(1-beta) · max_j |values(j)|/d(j)^(1-beta) / (1-|gamma|).
    """
    worst = (np.abs(values) / unit(propagator)[:, :, None]).max(axis=0, initial=0.0)
    contraction = 1 - np.abs([[c.gamma] for c in propagator.channels])
    return wide(unit(propagator)[:, :, None] * worst / contraction)


def solver_rounding(propagator: Any, exact: FloatArray) -> FloatArray:
    """Return how far the sparse solve may be from the exact solution."""
    terms = propagator.nodes + 16
    return wide(terms * np.finfo(np.float64).eps * spread(propagator, exact))


def grown(values: FloatArray, like: FloatArray) -> FloatArray:
    """Return the values, followed by zeros for nodes added since."""
    return np.concatenate([values, np.zeros_like(like[len(values) :])])


class Rounding:
    """A count of how far rounding may have moved a propagator from its invariant.

    A correction reads and writes `s = d^beta · (pi + gamma0·(r - x))`, so each rounding leaves an
    error of `eps·|s|`, at the largest degree the node had, until `s` decays with the weights. Every
    batch rounds a few times and every push once.
    """

    def __init__(self, propagator: Any) -> None:
        channels, columns = len(propagator.channels), propagator.columns
        self.largest = np.zeros((0, channels, columns))
        self.degree = np.zeros((0, channels))
        self.ratio = np.zeros((channels, columns))
        self.x = np.zeros((0, channels, columns))
        self.time = propagator.time
        self.batches = 0
        self.record(propagator, Step(0))

    def record(self, propagator: Any, step: Step) -> None:
        """Account for a batch, whose intermediate values mix those before and after it."""
        self.batches += 1
        channels, beta = propagator.channels, betas(propagator)
        before = self.degree, self.ratio, self.x
        self.degree = wide(propagator.degree())
        size = np.abs(wide(propagator.embedding())) / unit(propagator)[:, :, None]
        self.ratio = wide(size.max(axis=0, initial=0.0))
        self.x = np.abs(wide(propagator.features())[:, None, :] * [[c.gamma0] for c in channels])
        reach = self.degree + grown(before[0], self.degree)
        for row in step.rows:
            for node in {row.src, row.dst}:
                reach[node] += row.weight if row.weight < WHOLE else 0.0
        ratio = np.maximum(self.ratio, before[1])
        x = np.maximum(self.x, grown(before[2], self.x))
        for node, values in step.features:  # the node may be removed in the same batch
            x[node] = np.maximum(x[node], np.abs(wide(values) * [[c.gamma0] for c in channels]))
        self.largest = grown(self.largest, self.x)
        for c, channel in enumerate(channels):
            if channel.half_life is None or propagator.time is None or self.time is None:
                continue
            passed = (propagator.time - self.time) / channel.half_life
            self.largest[:, c] *= 2.0 ** (-passed * beta[c])
        self.time = propagator.time
        size = ratio * reach[:, :, None] + x * reach[:, :, None] ** beta[:, None]
        self.largest = np.maximum(self.largest, size)

    def defect(self, propagator: Any) -> FloatArray:
        """Return how large the defect of the invariant may be [n, channels, columns]."""
        operations = 8 * self.batches + propagator.statistics()["pushes"]
        d = np.where(self.degree > 0, self.degree, 1.0)[:, :, None] ** betas(propagator)[:, None]
        eps = np.finfo(propagator.dtype).eps
        read = 4 * spread(propagator, wide(propagator.embedding()))
        return wide(eps * (operations * self.largest / d + read))

    def error(self, propagator: Any) -> FloatArray:
        """Return how much that defect may add to the error."""
        return spread(propagator, self.defect(propagator))


def differences(propagator: Any) -> tuple[FloatArray, FloatArray]:
    """Return |exact - estimate| and its certified bound plus the solver's rounding."""
    bound = np.asarray(propagator.error_bound())
    exact = reference.exact_of(propagator)
    return np.abs(exact - propagator.embedding()), bound + solver_rounding(propagator, exact)


def assert_agree(one: Any, two: Any) -> None:
    """Assert that two estimates of one solution differ by at most the sum of their bounds."""
    exact = reference.exact_of(one)
    allowed = one.error_bound() + two.error_bound() + 2 * solver_rounding(one, exact)
    apart = np.abs(np.asarray(one.embedding(), dtype=np.float64) - two.embedding())
    assert (apart <= allowed).all(), (apart / allowed).max()


def assert_same_graph(one: Any, two: Any, channel: int | None, rounding: float = 0.0) -> None:
    """Assert that edges are equal and weights differ by at most `rounding` of the largest."""
    first, second = edge_table(one, channel), edge_table(two, channel)
    loose = rounding * max([*first.values(), *second.values(), 1.0])
    if channel is not None and one.channels[channel].half_life is not None:
        loose += FADED
    for pair in first.keys() | second.keys():
        assert abs(first.get(pair, 0.0) - second.get(pair, 0.0)) <= loose, (pair, first, second)
    if channel is not None:
        np.testing.assert_allclose(one.loops(channel), two.loops(channel), rtol=1e-12)


def edge_table(propagator: Any, channel: int | None) -> dict[tuple[int, int], float]:
    src, dst, weight = propagator.edges(channel)
    pairs = zip(np.asarray(src).tolist(), np.asarray(dst).tolist(), strict=True)
    return dict(zip(pairs, np.asarray(weight).tolist(), strict=True))


def followed(history: History, make: Make) -> Iterator[tuple[Any, Rounding]]:
    """Yield the propagator and its rounding at the start and after every batch."""
    rounding = None
    for propagator, step in zip(history.play(make), (Step(0), *history.steps), strict=True):
        if rounding is None:
            rounding = Rounding(propagator)
        else:
            rounding.record(propagator, step)
        yield propagator, rounding


def assert_bounded(history: History, make: Make) -> None:
    for propagator, rounding in followed(history, make):
        error, bound = differences(propagator)
        assert (error <= bound).all(), (error / bound).max()
        promise = propagator.threshold() + (bound - propagator.error_bound())
        if isinstance(propagator, reference.Propagator):  # whose promise excludes rounding
            promise += rounding.error(propagator)
        assert (error <= promise).all(), (error / promise).max()


# Laws ---------------------------------------------------------------------------------------------


@every
@law()
@given(history=histories())
def test_the_invariant_holds_after_every_batch(make: Make, history: History) -> None:
    for propagator, rounding in followed(history, make):
        defect, allowed = (
            np.abs(reference.invariant_defect(propagator)),
            rounding.defect(propagator),
        )
        assert (defect <= allowed).all(), np.argwhere(defect > allowed)
        if isinstance(propagator, Propagator):
            audit = propagator.audit()
            assert (audit.untracked == 0).all()
            assert (audit.residual <= 1).all()


@every
@law()
@given(history=histories())
def test_the_exact_solution_lies_within_bound_and_threshold(make: Make, history: History) -> None:
    assert_bounded(history, make)


@every
@law(40)
@given(history=histories(versions=["decay"]))
def test_the_bound_holds_over_many_half_lives(make: Make, history: History) -> None:
    assert_bounded(history, make)


@every_native
@law()
@given(history=histories())
def test_native_agrees_with_the_reference(make: Make, history: History) -> None:
    assert_native_agrees(history, make, every=1)


@every_native
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_native_agrees_with_the_reference_around_hubs_and_in_many_columns(
    make: Make, directed: bool
) -> None:
    history = long_history(1, directed=directed, nodes=100, columns=130, steps=50)
    assert_native_agrees(history, make, every=10)


def assert_native_agrees(history: History, make: Make, every: int) -> None:
    both = zip(history.play(make), history.play(reference.Propagator), strict=True)
    for number, (one, two) in enumerate(both):
        if number % every:
            continue
        assert_same_graph(one, two, None)
        for c in range(len(history.settings["channels"])):
            assert_same_graph(one, two, c, rounding=ROUNDING_OF_WEIGHTS)
        # Weights that were rounded differently have a different solution.
        apart = np.abs(one.embedding() - two.embedding())
        exact, other = reference.exact_of(one), reference.exact_of(two)
        allowed = one.error_bound() + two.error_bound() + np.abs(exact - other)
        assert (apart <= allowed + 2 * solver_rounding(two, exact)).all()
        assert one.time == two.time
        decays = any(c.half_life is not None for c in history.settings["channels"])
        np.testing.assert_allclose(one.degree(), two.degree(), rtol=FADED if decays else 1e-12)


@every
@law()
@given(
    history=histories(),
    merged=st.lists(st.booleans(), min_size=1, max_size=4),
    split=st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_any_batching_of_the_same_events_agrees(
    make: Make, history: History, merged: list[bool], split: list[bool]
) -> None:
    one, two = history.end(make), history.start(make)
    for batch in history.rebatched(merged, split):
        two.apply(batch)
    for c in range(len(history.settings["channels"])):
        assert_same_graph(one, two, c, rounding=ROUNDING_OF_WEIGHTS)
    assert_agree(one, two)


@every
@law(40)
@given(
    history=histories(versions=["all", "window"]),
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4),
)
def test_removing_added_edges_restores_the_estimate(
    make: Make, history: History, pairs: list[tuple[int, int]]
) -> None:
    propagator = history.end(make)
    removed = {node for step in history.steps for node in step.removed}
    known = edge_table(propagator, None)
    fresh = {pair for pair in pairs if max(pair) < propagator.nodes and not removed & set(pair)}
    fresh = {p for p in fresh if p not in known and p[::-1] not in known and p[0] <= p[1]}
    src, dst = [u for u, _ in fresh], [v for _, v in fresh]
    before, bound = propagator.embedding(), np.asarray(propagator.error_bound())
    edges = edge_table(propagator, 0)
    propagator.apply(Batch(src, dst, weight=[0.7] * len(src), t=history.steps[-1].t))
    propagator.apply(Batch(src[::-1], dst[::-1], op=Op.REMOVE, t=history.steps[-1].t))
    assert edge_table(propagator, 0) == edges
    after, exact = propagator.embedding(), reference.exact_of(propagator)
    allowed = bound + propagator.error_bound() + 2 * solver_rounding(propagator, exact)
    assert (np.abs(np.asarray(after, dtype=np.float64) - before) <= allowed).all()


@every
@law(40)
@given(history=histories(), seed=st.integers(0, 2**32 - 1))
def test_relabelling_the_nodes_commutes(make: Make, history: History, seed: int) -> None:
    nodes = len(history.features)
    order = np.random.default_rng(seed).permutation(nodes)
    one = history.end(make)
    two = history.relabelled(order.tolist()).end(make)
    all_nodes = np.append(order, np.arange(nodes, one.nodes))
    exact = reference.exact_of(one)
    apart = np.abs(np.asarray(one.embedding(), dtype=np.float64) - two.embedding(all_nodes))
    allowed = one.error_bound() + two.error_bound(all_nodes) + 2 * solver_rounding(one, exact)
    assert (apart <= allowed).all()


@every
@law(40)
@given(history=histories(versions=["all"]))
def test_incremental_agrees_with_recomputing(make: Make, history: History) -> None:
    one = history.end(make)
    src, dst, weight = one.edges()
    initial = Batch(src, dst, weight=weight)
    two = replace(history, features=one.features()).start(make, initial=initial)
    for c in range(len(history.settings["channels"])):
        assert_same_graph(one, two, c)
    assert_agree(one, two)


@every
@law(40)
@given(history=histories(node_events=False))
def test_a_history_given_as_initial_graph_agrees_with_applying_it(
    make: Make, history: History
) -> None:
    one = history.end(make)
    two = history.start(make, initial=everything(history))
    two.apply(Batch(t=history.steps[-1].t))
    for c in range(len(history.settings["channels"])):
        assert_same_graph(one, two, c, rounding=ROUNDING_OF_WEIGHTS)
    assert_agree(one, two)


def everything(history: History) -> Batch:
    """Return all edge rows of a history as one batch that starts when the history does."""
    rows = [(row, step.t) for step in history.steps for row in step.rows]
    first = history.steps[0]
    if not rows or rows[0][1] != first.t:
        # The first time seen fixes the boundaries of decay: add and remove an edge at that time.
        both = [(Row(0, 0), first.t), (Row(0, 0, Op.REMOVE, WHOLE), first.t)]
        rows = both + rows
    return Batch(
        [row.src for row, _ in rows],
        [row.dst for row, _ in rows],
        op=[row.op for row, _ in rows],
        weight=[row.weight for row, _ in rows],
        t=[t for _, t in rows],
    )


@every
@law(30)
@given(history=histories(), finer=st.sampled_from([0.5, 0.05]))
def test_refining_tightens_and_repairing_removes_the_drift(
    make: Make, history: History, finer: float
) -> None:
    *_, (propagator, rounding) = followed(history, make)
    try:
        propagator.refine(history.settings["r_max"] * finer)
    except PrecisionError:
        reject()
    assert propagator.r_max == history.settings["r_max"] * finer
    propagator.repair()
    error, bound = differences(propagator)
    promise = propagator.threshold() + rounding.error(propagator)
    assert (error <= bound).all()
    assert (error <= promise).all()
    assert (propagator.audit().residual <= 1).all()


@every
@law(40)
@given(history=histories(versions=["all", "window", "last"]))
def test_untouched_nodes_have_not_moved(make: Make, history: History) -> None:
    propagator = history.start(make)
    for step, batch in zip(history.steps, history.batches(), strict=True):
        nodes, before = propagator.nodes, propagator.embedding()
        touched = np.asarray(propagator.apply(batch))
        assert (np.diff(touched) > 0).all()
        assert {row.src for row in step.rows} <= set(touched.tolist())
        assert {row.dst for row in step.rows} <= set(touched.tolist())
        still = np.setdiff1d(np.arange(nodes), touched)
        np.testing.assert_array_equal(propagator.embedding(still), before[still])


@every
@law(40)
@given(history=histories(node_events=False))
def test_steps_in_one_call_equal_one_batch_after_another(make: Make, history: History) -> None:
    steps = [step for step in history.steps if step.rows]
    whole = everything(History(history.features, {}, tuple(steps))) if steps else Batch()
    offsets = np.cumsum([0] + [len(step.rows) for step in steps])
    one, two = history.start(make), history.start(make)
    touched = [
        one.apply(batch).size for batch in History(history.features, {}, tuple(steps)).batches()
    ]
    assert two.apply_steps(whole, offsets).tolist() == touched
    np.testing.assert_array_equal(one.embedding(), two.embedding())
    np.testing.assert_array_equal(one.residual(), two.residual())


@every
@law(40)
@given(history=histories(versions=["all"], node_events=False), target=histories(node_events=False))
def test_a_snapshot_leaves_exactly_its_edges(make: Make, history: History, target: History) -> None:
    one = history.end(make)
    rows = [row for step in target.steps for row in step.rows if row.op is not Op.REMOVE]
    rows = [row for row in rows if max(row.src, row.dst) < one.nodes]
    src, dst, weight = [r.src for r in rows], [r.dst for r in rows], [r.weight for r in rows]
    one.apply_snapshot(src, dst, weight, t=history.steps[-1].t)
    sums: dict[tuple[int, int], float] = {}
    for row in rows:
        pair = (row.src, row.dst)
        pair = pair if one.directed else (min(pair), max(pair))
        sums[pair] = sums.get(pair, 0.0) + row.weight
    assert edge_table(one, None) == sums
    merged = Batch([u for u, _ in sums], [v for _, v in sums], weight=list(sums.values()))
    assert_agree(one, history.start(make, initial=merged))


# Versions of the graph, derived from the events alone --------------------------------------------


def pair_of(row: Row, history: History) -> tuple[int, int]:
    pair = (row.src, row.dst)
    return pair if history.settings["directed"] else (min(pair), max(pair))


def contributions(
    history: History, pair: tuple[int, int]
) -> tuple[list[tuple[int, int, float]], int, float]:
    """Return (t, number, weight left) of all additions to an edge, the events, the largest sum."""
    left: list[tuple[int, int, float]] = []
    number, peak = 0, 0.0
    for step in history.steps:
        for row in step.rows:
            number += row.op is not Op.REMOVE
            if pair_of(row, history) != pair:
                continue
            if row.op is not Op.REMOVE:
                left = [*([] if row.op is Op.SET else left), (step.t, number, row.weight)]
                peak = max(peak, sum(w for _, _, w in left))
                continue
            spare = row.weight
            if spare >= sum(w for _, _, w in left) * (1 - 2.0**-32):
                left = []
            while left and spare > 0:
                t, k, w = left.pop(0)
                if w > spare:
                    left.insert(0, (t, k, w - spare))
                spare -= w
        if set(pair) & set(step.removed):
            left = []
    return left, number, peak


@every
@law(100)
@given(history=histories(versions=["window", "last"], max_steps=12))
def test_a_window_holds_the_weight_left_of_its_events(make: Make, history: History) -> None:
    propagator, now = history.end(make), history.steps[-1].t
    for c, channel in enumerate(history.settings["channels"]):
        table = edge_table(propagator, c)
        for pair in edge_table(propagator, None).keys() | table.keys():
            left, number, peak = contributions(history, pair)
            counted = sum(
                w
                for t, k, w in left
                if (channel.last is None and t > now - channel.window)
                or (channel.last is not None and k > number - channel.last)
            )
            # The user's weight is rounded at every event, and removals subtract from it.
            rounding = 4 * number * float(np.finfo(np.float64).eps) * peak
            assert abs(table.get(pair, 0.0) - counted) <= rounding


@every
@law()
@given(history=histories(versions=["decay"], node_events=False))
def test_decayed_weights_follow_the_formula(make: Make, history: History) -> None:
    propagator, now = history.end(make), history.steps[-1].t
    for c, channel in enumerate(history.settings["channels"]):
        user: dict[tuple[int, int], float] = {}
        weights: dict[tuple[int, int], float] = {}
        for step, after in pairwise([*history.steps, Step(now)]):
            for row in step.rows:
                pair = pair_of(row, history)
                if row.op is Op.REMOVE:
                    left = max(user[pair] - row.weight, 0.0)
                    left = 0.0 if left <= 2.0**-32 * user[pair] else left
                    weights[pair] *= left / user[pair] if left else 0.0
                    user[pair] = left
                else:
                    kept = row.op is Op.ADD
                    user[pair] = user.get(pair, 0.0) * kept + row.weight
                    weights[pair] = weights.get(pair, 0.0) * kept + row.weight
            for pair in weights:
                weights[pair] *= 2.0 ** -((after.t - step.t) / channel.half_life)
        table = edge_table(propagator, c)
        # Without self-loops an edge may have been dropped once it was below 2^-8 of the lightest
        # weight, at most 1, and additions may have made it grow again since.
        floor = 2.0**-32 if history.settings["self_loop"] else 2.0**-8
        for pair, weight in weights.items():
            rounding = 1e-12 * weight
            assert weight - floor - rounding <= table.get(pair, 0.0) <= weight + rounding


@every
@law()
@given(history=histories(versions=["decay"], node_events=False))
def test_decayed_self_loops_are_renewed_by_rows_and_at_boundaries(
    make: Make, history: History
) -> None:
    propagator, start = history.end(make), history.steps[0].t
    for c, channel in enumerate(history.settings["channels"]):
        renewed = np.zeros(propagator.nodes)  # in half-lives since the start
        for step in history.steps:
            now = (step.t - start) / channel.half_life
            renewed = np.maximum(renewed, np.floor(now))
            for row in step.rows:
                renewed[[row.src, row.dst]] = now
        expected = history.settings["self_loop"] * 2.0 ** (renewed - now)
        np.testing.assert_allclose(propagator.loops(c), expected, rtol=1e-12)


@every
@law(40)
@given(history=histories())
def test_degree_and_threshold_follow_the_formula(make: Make, history: History) -> None:
    propagator = history.end(make)
    x, kind = history.features, history.settings["r_max_unit"]
    sizes = {"rms": np.sqrt((x**2).mean(axis=0)), "l1": np.abs(x).sum(axis=0)}
    norm = sizes.get(kind, np.ones(propagator.columns))
    theta = history.settings["r_max"] * np.where(norm > 0, norm, 1.0)
    for c, channel in enumerate(history.settings["channels"]):
        degree = wide(propagator.loops(c)).copy()
        for (u, v), weight in edge_table(propagator, c).items():
            if not propagator.directed or channel.direction != "in":
                degree[u] += weight
            if u != v if not propagator.directed else channel.direction != "out":
                degree[v] += weight
        np.testing.assert_allclose(propagator.degree()[:, c], degree, rtol=1e-12)
        power = np.where(degree > 0, degree ** (1 - betas(propagator)[c]), 0.0)
        promised = power[:, None] * theta * abs(channel.gamma0) / (1 - abs(channel.gamma))
        threshold = propagator.threshold()[:, c]
        known = degree > 0
        np.testing.assert_allclose(threshold[known], promised[known], rtol=1e-6)
        own = np.abs(channel.gamma0 * wide(propagator.features()))[~known]
        assert (threshold[~known] <= 1e-5 * own).all()  # exact up to rounding


# Single cases -------------------------------------------------------------------------------------


@every
def test_bounds_hold_after_a_silence_of_a_million_half_lives(make: Make) -> None:
    channels = [Channel.low_pass(half_life=2.0, beta=beta) for beta in (0.0, 0.5, 1.0)]
    propagator = make(np.eye(3), channels=channels, r_max=1e-2)
    propagator.apply(Batch([0, 1], [1, 2], t=[3, 8]))
    propagator.apply(Batch(t=2_000_001))
    assert all(len(propagator.edges(c)[0]) == 0 for c in range(3))
    assert edge_table(propagator, None) == {(0, 1): 1.0, (1, 2): 1.0}
    propagator.apply(Batch([0], [2], t=2_000_002))
    propagator.apply(Batch([0], [1], op=Op.REMOVE, t=2_000_002))
    error, bound = differences(propagator)
    assert (error <= bound).all()
    assert (error <= propagator.threshold()).all()


@every
def test_a_heavy_edge_outlasts_a_silence_however_the_clock_is_moved(make: Make) -> None:
    channel = Channel.low_pass(half_life=1.0, beta=1.0)
    in_one, in_many = (make(np.eye(2), channels=[channel]) for _ in range(2))
    for propagator, times in ((in_one, [40]), (in_many, [13, 31, 40])):
        propagator.apply(Batch([0], [1], weight=[1e6], t=0))
        for t in times:
            propagator.apply(Batch(t=t))
    weight = 1e6 * 2.0**-40
    assert edge_table(in_many, 0) == {(0, 1): weight}
    assert edge_table(in_one, 0) == {(0, 1): weight}


@every
def test_a_sketch_gives_features_to_later_nodes_too(make: Make) -> None:
    sketch = Sketch(columns=5, seed=3)
    propagator = make(sketch, nodes=4, r_max=1e-3)
    propagator.apply(Batch([0, 4], [4, 5], new_nodes=2))
    expected = sketch.rows(np.arange(6))
    eps = float(np.finfo(propagator.dtype).eps)
    np.testing.assert_allclose(propagator.features(), expected, rtol=eps, atol=0)
    error, bound = differences(propagator)
    assert (error <= bound).all()


@every
def test_the_correction_of_an_event_costs_the_same_at_a_small_and_a_large_hub(make: Make) -> None:
    def correction_rows(degree: int) -> int:
        leaves = np.arange(1, degree + 1)
        initial = Batch(np.zeros_like(leaves), leaves)
        propagator = make(np.ones((degree + 2, 1)), r_max=0.5, initial=initial)
        before = propagator.statistics()["correction_rows"]
        propagator.apply(Batch([0], [degree + 1]))
        propagator.apply(Batch([0], [1], op=Op.REMOVE))
        return int(propagator.statistics()["correction_rows"] - before)

    large = 300 if make is reference.Propagator else 100_000
    assert correction_rows(10) == correction_rows(large) > 0


BAD_BATCHES = {
    "node out of range": Batch([0], [9], t=5),
    "removal of an absent edge": Batch([0, 2], [1, 2], op=[Op.ADD, Op.REMOVE], t=5),
    "removal of too much": Batch([0, 0], [1, 1], op=[0, 1], weight=[1.0, 2.5], t=5),
    "removal twice": Batch([0, 0], [1, 1], op=Op.REMOVE, t=5),
    "a sum beyond the range": Batch([0, 0], [1, 1], weight=[2.0**64, 2.0**64], t=5),
    "removed node": Batch([0], [3], t=5),
    "removed node again": Batch(removed_nodes=[3]),
    "features of a removed node": Batch(feature_nodes=[3], feature_values=[[1.0, 1.0]]),
    "time running backwards": Batch([0], [1], t=3),
    "no time": Batch([0], [1]),
    "wrong number of columns": Batch(feature_nodes=[0], feature_values=[[1.0]]),
    "wrong number of new columns": Batch(new_nodes=1, new_features=[[1.0]]),
    "late mistake": Batch([0, 1], [2, 7], t=5, new_nodes=1, removed_nodes=[0]),
}


@every
@pytest.mark.parametrize("batch", BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
def test_an_invalid_batch_is_rejected_and_changes_nothing(make: Make, batch: Batch) -> None:
    channels = [Channel.low_pass(), Channel.high_pass(half_life=3.0), Channel.low_pass(window=9)]
    propagator = make(np.arange(8.0).reshape(4, 2), channels=channels)
    propagator.apply(Batch([0, 1], [1, 2], t=[1, 4], removed_nodes=[3]))

    def state() -> list[Any]:
        arrays = [propagator.embedding(), propagator.residual(), propagator.degree()]
        arrays += [part for c in (None, 0, 1, 2) for part in propagator.edges(c)]
        return [np.asarray(array).tolist() for array in arrays] + [propagator.time]

    before = state()
    with pytest.raises(EventError):
        propagator.apply(batch)
    assert state() == before
    propagator.apply(Batch([0], [1], t=4))


@every
def test_the_error_names_a_failing_step_and_earlier_steps_stay_applied(make: Make) -> None:
    propagator = make(np.eye(4))
    batch = Batch([0, 1, 2, 0], [1, 2, 3, 3], op=[0, 0, 1, 0])
    with pytest.raises(EventError, match="step 1"):
        propagator.apply_steps(batch, [0, 2, 4])
    assert edge_table(propagator, None) == {(0, 1): 1.0, (1, 2): 1.0}
