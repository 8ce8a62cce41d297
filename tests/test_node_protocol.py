"""The protocol of classes of nodes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.random_streams import (
    labelled,
)

from tidegraph import evaluation
from tidegraph.core.errors import EvaluationError
from tidegraph.evaluation import heuristics
from tidegraph.events.stream import EventStream, NodeLabels


def test_the_last_label_is_right_where_labels_never_change() -> None:
    stream, examples = labelled(12)
    result = evaluation.evaluate_nodes(
        lambda node, t: (node % 2).astype(float), stream, examples, parts=("test",)
    )
    assert result.row().metrics == {"micro-f1": 1.0, "auc": 1.0, "ap": 1.0}
    assert result.row(scorer="last-label").metrics["auc"] == 1.0
    assert result.row(scorer="majority").metrics["auc"] == 0.5


def test_last_label_uses_only_labels_known_before_the_time() -> None:
    stream, examples = labelled(13)
    never = evaluation.evaluate_nodes(
        None, stream, examples, known_at=np.full(len(stream), 10_000), parts=("test",)
    )
    assert never.row(scorer="last-label").metrics == never.row(scorer="majority").metrics
    train = NodeLabels(np.array([0, 1]), np.array([0, 0]), np.array([0, 1]))
    known = NodeLabels(np.array([4, 4]), np.array([5, 9]), np.array([1, 0]))
    rule = heuristics.LastLabel(known, train, classes=2)
    answer = rule.score(np.array([4, 4, 4, 4, 3]), np.array([5, 6, 9, 10, 10]))
    assert answer[:, 1].tolist() == [0.5, 1.0, 1.0, 0.0, 0.5]


def test_degrees_count_strictly_earlier_events() -> None:
    stream = EventStream(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([1, 2, 2]), 3)
    train = NodeLabels(np.array([0, 0, 0, 2]), np.array([1, 2, 3, 3]), np.array([0, 0, 1, 1]))
    rule = heuristics.DegreeOnly(stream, train, classes=2)
    answer = rule.score(np.array([0, 2, 0, 0]), np.array([3, 3, 2, 0]))[:, 1]
    assert answer[0] == answer[1] > answer[2] > answer[3]


def test_an_area_under_one_class_is_undefined_and_warned_about() -> None:
    stream, examples = labelled(14)
    label = np.where(examples.part == 2, 0, examples.label)
    result = evaluation.evaluate_nodes(
        lambda node, t: np.zeros(len(node)),
        stream,
        NodeLabels(examples.node, examples.t, label, examples.part),
        parts=("test",),
    )
    assert math.isnan(result.row().metrics["auc"])
    assert result.to_dict()["rows"][0]["metrics"]["auc"] is None
    assert any("only one class" in warning for warning in result.warnings)


@pytest.mark.parametrize("only", [0, 2])
def test_one_class_is_nothing_to_evaluate_whatever_its_number(only: int) -> None:
    stream, examples = labelled(15)
    same = replace(examples, label=np.full(len(stream), only))
    with pytest.raises(EvaluationError, match="at least two"):
        evaluation.evaluate_nodes(None, stream, same, parts=("test",))


def test_historical_negatives_give_away_positives_that_repeat_a_pair_of_their_batch() -> None:
    """On uniformly random pairs nothing can be known, but for what the sampler leaves out."""
    generator = np.random.default_rng(0)
    src, dst = generator.integers(0, 15, (2, 6000))
    stream = EventStream(src, dst, np.arange(6000) // 2, 15)
    split, samplers = evaluation.tgb_split(stream), ("random-dst", "historical")
    results = {
        knowledge: evaluation.evaluate_link(
            None, stream, split, samplers=samplers, parts=("test",), knowledge=knowledge
        )
        for knowledge in ("batch", "event")
    }
    auc = {
        (knowledge, sampler): result.row("test", sampler, "memory").metrics["auc_global"]
        for knowledge, result in results.items()
        for sampler in samplers
    }
    result = results["event"]
    test = split.test
    by_chance = 4 / math.sqrt(6 * len(test))  # four standard errors
    assert auc["event", "random-dst"] == pytest.approx(0.5, abs=by_chance)
    for sampler in samplers:  # knows of no repeat
        assert auc["batch", sampler] == pytest.approx(0.5, abs=by_chance)
    assert auc["event", "historical"] > 0.5 + 2 * by_chance
    repeats = 0
    for first in range(0, len(test), 200):
        rows = test[first : first + 200]
        events = [(src[k], dst[k], stream.t[k]) for k in rows]
        repeats += sum(any(o[:2] == e[:2] and o[2] < e[2] for o in events) for e in events)
    assert result.settings["repeated_in_batch"] == {"test": repeats / len(test)}
    (warning,) = result.warnings
    assert f"{repeats / len(test):.0%}" in warning
    assert not results["batch"].warnings
