"""Protocols of links: who knows what, and what is asked."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.random_streams import (
    IntArray,
    crowd,
    every_heuristic,
    pairs,
    random_stream,
)

from tidegraph import evaluation
from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.evaluation import heuristics, metrics
from tidegraph.evaluation.memory import Asked, Memory
from tidegraph.events.batch import Op
from tidegraph.events.stream import EventStream


def oracle(stream: EventStream) -> Callable[[IntArray, IntArray, IntArray], list[float]]:
    """Return a scorer that knows which pairs happen at which time."""
    happened = set(zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True))

    def score(src: IntArray, dst: IntArray, t: IntArray) -> list[float]:
        return [
            float(key in happened)
            for key in zip(src.tolist(), dst.tolist(), t.tolist(), strict=True)
        ]

    return score


def test_an_oracle_gets_everything_right_and_a_constant_nothing() -> None:
    stream = random_stream(5, events=4000, span=2000)
    split = evaluation.tgn_split(stream)
    samplers = ("historical", "inductive")  # never a positive of the batch
    result = evaluation.evaluate_link(
        oracle(stream), stream, split, samplers=samplers, batch_size=20, parts=("test",)
    )
    for name in samplers:
        assert result.row(sampler=name).metrics == {
            "ap": 1.0,
            "auc": 1.0,
            "ap_global": 1.0,
            "auc_global": 1.0,
        }
    assert all("repeat a pair of their own batch" in warning for warning in result.warnings)
    constant = evaluation.evaluate_link(
        lambda src, dst, t: np.zeros(len(src)), stream, split, samplers=samplers, parts=("test",)
    )
    assert constant.row().metrics["auc"] == 0.5
    assert any("is ahead under historical" in warning for warning in constant.warnings)
    assert constant.verdict().outcome == "ahead"


def test_a_result_names_its_data_and_split_and_survives_json() -> None:
    stream = random_stream(6)
    split = evaluation.tgn_split(stream)
    result = evaluation.evaluate_link(
        oracle(stream), stream, split, model="cheat", training_negatives="random-dst"
    )
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["data"]["digest"] == stream.digest()
    assert plain["split"] == {"name": "tgn", "sizes": split.sizes(), "parameters": split.parameters}
    assert plain["training_negatives"] == "random-dst"
    seeds = {row["part"]: row["seed"] for row in plain["rows"]}
    assert seeds == {"test": 2, "new_test": 3}
    scorers = {row["scorer"] for row in plain["rows"]}
    assert {"cheat", "edgebank-unlimited", "popularity"} <= scorers
    assert "cheat" in str(result)
    with pytest.raises(EvaluationError, match="test/any/nobody"):
        result.row(scorer="nobody")


class Recorder(heuristics.Heuristic):
    """A heuristic that passes everything on to another and records its answers."""

    def __init__(self, rule: heuristics.Heuristic) -> None:
        self.name, self.rule = rule.name, rule
        self.answers: list[NDArray[np.float64]] = []

    def score(self, asked: Asked) -> NDArray[np.float64]:
        self.answers.append(self.rule.score(asked))
        return self.answers[-1]


def oracle_of_knowledge(t: IntArray, knowledge: str, size: int) -> IntArray:
    """The times before which all is known, event by event."""
    first = [k if knowledge == "event" else k // size * size for k in range(len(t))]
    return np.array([t[k] for k in first])


def answers_for(
    stream: EventStream, split: evaluation.Split, knowledge: str, size: int
) -> list[NDArray[np.float64]]:
    """What every heuristic answers for the test events, and then for the same false pairs."""
    recorders = [Recorder(rule) for rule in every_heuristic()]
    src, dst = np.random.default_rng(0).integers(0, stream.nodes, (2, len(split.test)))
    evaluation.evaluate_link(
        None,
        stream,
        split,
        parts=("test",),
        samplers=(evaluation.GivenNegatives(src, dst),),
        knowledge=knowledge,
        batch_size=size,
        heuristics=partial(list, recorders),
    )
    return [np.concatenate(one.answers) for one in recorders]


@pytest.mark.parametrize("knowledge", ["event", "batch"])
def test_changing_events_from_a_time_on_changes_no_answer_of_those_who_know_what_was_before(
    knowledge: str,
) -> None:
    stream = crowd(7, events=600, per_time=7)
    split = evaluation.tgb_split(stream)
    size, count = 10, len(split.test)
    t = stream.t[split.test]
    cut = int(t[count // 2])
    altered = replace(stream, dst=np.where(stream.t >= cut, stream.dst[0], stream.dst))
    as_of = oracle_of_knowledge(t, knowledge, size)
    same = np.concatenate([(as_of <= cut) & (t < cut), as_of <= cut])
    assert same[:count].any()
    assert not same[count:].all()
    changed = False
    for one, other in zip(
        *(answers_for(events, split, knowledge, size) for events in (stream, altered)), strict=True
    ):
        np.testing.assert_array_equal(one[same], other[same])
        changed |= not np.array_equal(one[count:], other[count:])
    assert changed  # the events do matter, later


@pytest.mark.parametrize("knowledge", ["event", "batch"])
def test_the_order_of_events_at_one_time_means_nothing(knowledge: str) -> None:
    stream = crowd(9, events=900, per_time=50)
    split = evaluation.tgb_split(stream)
    order = np.lexsort((np.random.default_rng(1).random(len(stream)), stream.t))
    shuffled = replace(stream, src=stream.src[order], dst=stream.dst[order])
    one, other = (answers_for(events, split, knowledge, 20) for events in (stream, shuffled))
    for before, after in zip(one, other, strict=True):
        np.testing.assert_array_equal(before[len(split.test) :], after[len(split.test) :])


def test_batches_within_one_time_know_what_each_event_knows_and_publications_know_more() -> None:
    # Of 400 events a time, each pair occurs twice in a row, 200 events apart.
    pair = np.tile(np.arange(200), 10) + np.repeat(np.arange(0, 1000, 200), 400)
    stream = EventStream(pair, 1000 + pair, np.repeat(np.arange(5), 400), 2000)
    split = evaluation.time_split(stream, validation_time=1, test_time=2)
    found = {
        (knowledge, row.scorer): row.metrics["auc"]
        for knowledge in ("event", "batch")
        for row in evaluation.evaluate_link(
            None, stream, split, parts=("test",), knowledge=knowledge
        ).rows
        if row.part == "test"
    }
    for (_, scorer), value in found.items():
        if scorer == "edgebank-unlimited@published":
            assert value > 0.7  # half of the positives are known from the batch before
        elif "pair" in scorer or "edgebank-unlimited" in scorer:
            assert value == found["event", scorer] == 0.5
        else:
            assert value == found["event", scorer]


class Witness(heuristics.OnlineHeuristic):
    """A heuristic that records how many events it has seen whenever it scores."""

    name = "witness"

    def __init__(self) -> None:
        self.shown = 0
        self.asked: list[tuple[int, int]] = []

    def update(self, events: EventStream) -> None:
        self.shown += len(events)

    def answer(self, src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        self.asked.append((self.shown, len(src)))
        return np.zeros(len(src))


@pytest.mark.parametrize("knowledge", ["event", "batch"])
def test_a_heuristic_is_shown_all_events_before_the_known_time_and_no_other(
    knowledge: str,
) -> None:
    stream = random_stream(8)
    split = evaluation.tgn_split(stream)
    witness = Witness()
    evaluation.evaluate_link(
        None,
        stream,
        split,
        parts=("test",),
        batch_size=25,
        knowledge=knowledge,
        heuristics=lambda: [witness],
    )
    as_of = oracle_of_knowledge(stream.t[split.test], knowledge, 25)
    # Positives and negatives that know the same are asked together.
    assert witness.asked == [
        (int((stream.t < time).sum()), 2 * int((as_of == time).sum())) for time in np.unique(as_of)
    ]


def test_a_batch_holds_at_least_one_event() -> None:
    stream = random_stream(8)
    split = evaluation.tgn_split(stream)
    for evaluate in (evaluation.evaluate_link, evaluation.evaluate_ranking):
        with pytest.raises(ParameterError, match="batch_size is 0"):
            evaluate(None, stream, split, batch_size=0)


def test_an_evaluation_reports_its_progress_until_all_is_done() -> None:
    stream = random_stream(8)
    split = evaluation.tgn_split(stream)
    snapshots = evaluation.roland_split(stream, width_s=20, first_test=6)
    for evaluate in (
        partial(evaluation.evaluate_link, None, stream, split, samplers=evaluation.SAMPLERS),
        partial(evaluation.evaluate_link, oracle(stream), stream, split, batch_size=7),
        partial(evaluation.evaluate_ranking, oracle(stream), stream, split, sample=9),
        partial(evaluation.evaluate_snapshots, None, stream, snapshots),
    ):
        seen: list[tuple[int, int, str]] = []
        evaluate(progress=lambda *report, seen=seen: seen.append(report))
        done, totals, _ = zip(*seen, strict=True)
        assert len(set(totals)) == 1
        assert done[0] > 0
        assert done[-1] == totals[0]
        assert all(np.diff(done) > 0)


@pytest.mark.slow
def test_eight_times_the_events_take_about_eight_times_as_long() -> None:
    # Almost every pair is new. With a memory that was rebuilt for each batch it was 60 times.
    def seconds(events: int) -> float:
        generator = np.random.default_rng(0)
        src, dst = generator.integers(0, 10_000, (2, events))
        stream = EventStream(src, dst, np.arange(events), 10_000)
        split = evaluation.tgb_split(stream)
        spent = []
        for _ in range(3):
            begun = time.process_time()
            evaluation.evaluate_link(None, stream, split, parts=("test",))
            spent.append(time.process_time() - begun)
        return min(spent)

    assert seconds(160_000) < 20 * seconds(20_000)


@pytest.mark.parametrize("evaluate", [evaluation.evaluate_link, evaluation.evaluate_ranking])
def test_heuristics_know_what_a_model_may_know(evaluate: Callable[..., evaluation.Result]) -> None:
    stream = random_stream(8)
    split = evaluation.tgn_split(stream)
    memory = Memory(stream)

    def same(
        src: IntArray, dst: IntArray, t: IntArray, as_of: IntArray | None = None
    ) -> NDArray[np.float64]:
        known = np.searchsorted(stream.t, t if as_of is None else as_of)
        return heuristics.Recency("pair").score(memory.ask(src, dst, t, known))

    found = []
    for knowledge in ("event", "batch"):
        result = evaluate(same, stream, split, knowledge=knowledge, batch_size=30)
        own, rule = (result.row(scorer=name) for name in (None, "recency-pair"))
        assert own.metrics == rule.metrics
        assert own.knowledge == rule.knowledge == result.knowledge == knowledge
        assert result.row(scorer="edgebank-window@published").knowledge == "published"
        found.append(own.metrics)
        assert json.loads(json.dumps(result.to_dict()))["knowledge"] == knowledge
    assert found[0] != found[1]
    with pytest.raises(ParameterError, match="knowledge is 'all'; give event or batch"):
        evaluate(None, stream, split, knowledge="all")


def test_only_heuristics_that_know_what_the_model_knows_are_compared_with_it() -> None:
    # Every pair meets twice in a row and never again: a memory of earlier batches is worth nothing.
    pair = np.arange(200) // 2
    stream = EventStream(pair, 100 + pair, np.arange(200), 200)

    def result(knowledge: str) -> evaluation.Result:
        return evaluation.evaluate_link(
            lambda src, dst, *times: np.zeros(len(src)),
            stream,
            evaluation.tgb_split(stream),
            parts=("test",),
            knowledge=knowledge,
            heuristics=lambda: [heuristics.EdgeBank()],
        )

    by_event, by_batch = result("event"), result("batch")
    assert by_event.row(scorer="edgebank-unlimited").metrics["auc"] == 0.75
    assert by_batch.row(scorer="edgebank-unlimited").metrics["auc"] == 0.5
    for each in (by_event, by_batch):
        assert each.row(scorer="edgebank-unlimited@published").metrics["auc"] == 0.5
        own = each.row(scorer="edgebank-unlimited").metrics["ap"]
        assert each.verdict().heuristics == {"edgebank-unlimited": own}
    assert any("edgebank-unlimited has AP 75" in warning for warning in by_event.warnings)


def test_ranking_leaves_out_what_the_source_reaches_at_the_same_time() -> None:
    # At t = 9 node 0 reaches 2 and 3; neither competes with the other.
    src = np.array([0, 0, 1, 0, 1, 0, 0])
    dst = np.array([2, 3, 4, 2, 4, 2, 3])
    stream = EventStream(src, dst, np.array([0, 1, 2, 3, 6, 9, 9]), 5)
    split = evaluation.time_split(stream, validation_time=4, test_time=7)
    result = evaluation.evaluate_ranking(oracle(stream), stream, split, heuristics=list)
    assert result.row().metrics["mrr"] == 1.0
    reverse = evaluation.evaluate_ranking(
        lambda src, dst, t: dst == 4, stream, split, heuristics=list
    )
    assert reverse.row().metrics["mrr"] == pytest.approx(1 / 2)
    given_ones = evaluation.evaluate_ranking(
        lambda src, dst, t: np.zeros(len(src)),
        stream,
        split,
        negatives=[[3, 4], [2, 4]],
        heuristics=list,
    )
    assert given_ones.row().metrics["mrr"] == pytest.approx(1 / 2)  # rank 2, ties half
    assert given_ones.row().sampler == "given"


def test_a_sample_is_ranked_with_the_same_memory_as_the_whole_part() -> None:
    stream = random_stream(15)
    split = evaluation.tgb_split(stream)
    recorders = []
    for sample in (None, 20):
        rule = Recorder(heuristics.EdgeBank("window"))
        recorders.append(rule)
        result = evaluation.evaluate_ranking(
            None, stream, split, sample=sample, batch_size=15, heuristics=partial(list, [rule])
        )
        assert result.rows[0].examples == (sample or len(split.test))
    width = len(np.unique(stream.dst))
    whole, some = (np.concatenate(rule.answers).reshape(-1, width) for rule in recorders)
    chosen = np.sort(np.random.default_rng(0).choice(len(whole), size=20, replace=False))
    np.testing.assert_array_equal(some, whole[chosen])


def met_before(stream: EventStream, a: int, b: int, t: int) -> bool:
    """Whether two nodes met before a time, by looking at every event."""
    events = zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True)
    return any({u, v} == {a, b} for u, v, when in events if when < t)


def test_first_meetings_are_those_that_a_search_through_all_events_finds() -> None:
    stream = crowd(21)
    split = evaluation.tgb_split(stream)
    generator = np.random.default_rng(0)
    false_src, false_dst = generator.integers(0, stream.nodes, (2, len(split.test)))
    value = generator.random((stream.nodes, stream.nodes)).round(2)

    def score(src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        return value[src, dst]

    result = evaluation.evaluate_link(
        score,
        stream,
        split,
        samplers=("random-dst", evaluation.GivenNegatives(false_src, false_dst), "historical"),
        parts=("test",),
        heuristics=list,
    )
    true, false = [], []
    for k, row in enumerate(split.test.tolist()):
        u, v, t = int(stream.src[row]), int(stream.dst[row]), int(stream.t[row])
        a, b = int(false_src[k]), int(false_dst[k])
        if not met_before(stream, u, v, t) and not met_before(stream, a, b, t + 1):
            true.append(value[u, v])
            false.append(value[a, b])
    labels = np.repeat([1, 0], len(true))
    assert 10 < len(true) < len(split.test) - 10
    own = result.row("first_test", "given")
    assert own.examples == len(true)
    assert own.metrics == {
        "ap": pytest.approx(average_precision_score(labels, true + false)),
        "auc": pytest.approx(roc_auc_score(labels, true + false)),
    }
    assert result.row("first_test", "random-dst").examples > 0
    assert not [row for row in result.rows if row.sampler == "historical" and "first" in row.part]


def test_first_meetings_are_ranked_among_destinations_that_the_source_has_not_met() -> None:
    stream = crowd(22)
    split = evaluation.tgb_split(stream)
    value = np.random.default_rng(0).random((stream.nodes, stream.nodes))
    result = evaluation.evaluate_ranking(
        lambda src, dst, t: value[src, dst], stream, split, heuristics=list
    )
    ranks = []
    for row in split.test.tolist():
        u, v, t = int(stream.src[row]), int(stream.dst[row]), int(stream.t[row])
        if not met_before(stream, u, v, t):
            strangers = [w for w in np.unique(stream.dst) if not met_before(stream, u, w, t + 1)]
            ranks.append(1 + (value[u, strangers] > value[u, v]).sum())
    own = result.row("first_test")
    assert own.examples == len(ranks) < len(split.test)
    assert own.metrics["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))


def test_a_ranking_has_the_standard_error_over_its_events() -> None:
    stream = crowd(23)
    split = evaluation.tgb_split(stream)
    asked: list[tuple[int, int]] = []

    def score(src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        asked.extend(zip(src.tolist(), t.tolist(), strict=True))
        return ((7 * src + 3 * dst + t) % 11).astype(np.float64)

    one, half = (
        evaluation.evaluate_ranking(score, stream, split, sample=sample, heuristics=list)
        for sample in (None, len(split.test) // 4)
    )
    # All candidates of an event are asked about in adjacent rows.
    width = len(np.unique(stream.dst))
    events = [(int(stream.src[k]), int(stream.t[k])) for k in split.test]
    assert asked[: width * len(events) : width] == events
    assert all(len(set(asked[k : k + width])) == 1 for k in range(0, len(asked), width))
    for result in (one, half):
        for row in result.rows:
            assert row.errors.keys() == row.metrics.keys()
            # A mean of values from 0 to 1 has no larger one than that of a share of as many.
            for metric, value in row.metrics.items():
                share = (value * row.examples + 1) / (row.examples + 2)
                largest = math.sqrt(share * (1 - share) / (row.examples + 2))
                assert 0 < row.errors[metric] < 1.000001 * largest
    assert half.row().errors["mrr"] > 1.5 * one.row().errors["mrr"]


def test_ranking_agrees_with_the_benchmarks_evaluator() -> None:
    generator = np.random.default_rng(0)
    positive, others = generator.integers(0, 9, 50), generator.integers(0, 9, (50, 30))
    answer = evaluation.tgb_evaluate(positive.astype(float), others.astype(float))
    assert answer["mrr"] == pytest.approx(metrics.mrr(metrics.ranks(positive, others)), rel=1e-5)


def test_snapshots_are_scored_from_those_up_to_the_task() -> None:
    stream = random_stream(11, events=800)
    split = evaluation.roland_split(stream, width_s=10, first_test=14)
    asked = []

    def next_edges(sources: IntArray, task: int) -> NDArray[np.float64]:
        asked.append(task)
        table = np.zeros((stream.nodes, stream.nodes))
        coming = split.index == task + 1
        table[stream.src[coming], stream.dst[coming]] = 1.0
        return table[sources]

    result = evaluation.evaluate_snapshots(next_edges, stream, split)
    assert asked == list(split.test)
    own = result.row().metrics
    assert own["mrr-1000"] == own["mrr-1000-expected"] == 1.0
    assert own["mrr-full"] < 1.0  # several true destinations share the first places
    with pytest.raises(EvaluationError, match=r"shape \(1,\) for task 14"):
        evaluation.evaluate_snapshots(lambda sources, task: [1.0], stream, split)


def saturated(logit: NDArray[Any]) -> NDArray[np.float32]:
    """Return probabilities as a network in float32 computes them."""
    return np.float32(1) / (np.float32(1) + np.exp(-np.asarray(logit, dtype=np.float32)))


def test_probabilities_that_are_all_one_are_warned_about_and_their_logits_are_not() -> None:
    stream = random_stream(12, events=800)
    split = evaluation.tgb_split(stream)
    snapshots = evaluation.roland_split(stream, width_s=10, first_test=14)
    spread = np.random.default_rng(0).uniform(20, 90, (stream.nodes, stream.nodes))
    assert (saturated(spread) == 1.0).all()

    def warnings(of: Callable[[NDArray[Any]], NDArray[Any]]) -> list[list[str]]:
        def score(src: IntArray, dst: IntArray, t: IntArray) -> NDArray[Any]:
            return of(spread[src, dst])

        results = [
            evaluation.evaluate_link(score, stream, split, parts=("test",)),
            evaluation.evaluate_ranking(score, stream, split),
            evaluation.evaluate_snapshots(
                lambda sources, task: of(spread[sources]), stream, snapshots
            ),
        ]
        return [[text for text in each.warnings if "float32" in text] for each in results]

    for found, sampler in zip(
        warnings(saturated), ("random-dst", "all-dst", "all-nodes"), strict=True
    ):
        (warning,) = found
        assert "model gives 100% of the positives of test" in warning
        assert f"{sampler} negatives" in warning
        assert "return logits" in warning
    assert warnings(lambda logit: logit) == [[], [], []]


def test_heuristics_are_allowed_to_tie() -> None:
    stream = random_stream(13, events=800)
    result = evaluation.evaluate_link(None, stream, evaluation.tgb_split(stream), parts=("test",))
    assert result.row(scorer="edgebank-unlimited").metrics["auc"] < 1.0
    assert not any("float32" in warning for warning in result.warnings)


def test_first_meetings_of_snapshots_are_ranked_among_nodes_that_the_source_has_not_met() -> None:
    stream = crowd(24, events=800)
    split = evaluation.roland_split(stream, width_s=5, first_test=14)
    value = np.random.default_rng(0).random((stream.nodes, stream.nodes))
    result = evaluation.evaluate_snapshots(
        lambda sources, task: value[sources], stream, split, heuristics=list
    )
    known = replace(stream, t=split.index)
    count, of_tasks = 0, []
    for task in split.test:
        coming = split.index == task + 1
        firsts: dict[int, list[float]] = {}
        for u, v in sorted(pairs(stream.src[coming], stream.dst[coming])):
            if not met_before(known, u, v, task + 1):
                rivals = [w for w in range(40) if not met_before(known, u, w, task + 1)]
                rank = 1 + (value[u, rivals] > value[u, v]).sum()
                firsts.setdefault(u, []).append(1 / rank)
                count += 1
        if firsts:
            of_tasks.append(np.mean([np.mean(each) for each in firsts.values()]))
    own = result.row("first_test")
    assert own.examples == count < result.row().examples
    assert own.metrics == {"mrr-full": pytest.approx(np.mean(of_tasks))}


def test_removals_are_not_links_to_predict() -> None:
    stream = random_stream(6)
    split = evaluation.tgn_split(stream)
    op = np.full(len(stream), Op.ADD, dtype=np.uint8)
    op[-1] = Op.REMOVE
    with pytest.raises(EvaluationError, match=r"Op\.ADD"):
        evaluation.evaluate_link(None, replace(stream, op=op), split)


def test_a_models_scores_must_be_one_finite_number_per_pair() -> None:
    stream = random_stream(6)
    split = evaluation.tgn_split(stream)
    with pytest.raises(EvaluationError, match=r"shape \(1,\)"):
        evaluation.evaluate_link(lambda src, dst, t: [1.0], stream, split)
    with pytest.raises(EvaluationError, match=r"at t=\d+ is nan"):
        evaluation.evaluate_link(lambda src, dst, t: src * np.nan, stream, split)
