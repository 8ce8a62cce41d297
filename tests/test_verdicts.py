"""When a lead counts, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
from tests.random_streams import (
    labelled,
)

from tidegraph import evaluation
from tidegraph.events.stream import NodeLabels


def test_the_best_heuristic_is_the_highest_where_the_metric_is_defined() -> None:
    table: evaluation.Heuristics = {
        "memory": {"random-dst": {"all": {"ap": 0.7, "auc": None}}},
        "recency": {"random-dst": {"all": {"ap": 0.8}}},
        "nodes": {"none": {"all": {"auc": 0.9}}},
    }
    assert evaluation.best_heuristic(table, "random-dst", "all", "ap") == ("recency", 0.8)
    assert evaluation.best_heuristic(table, "none", "all", "auc") == ("nodes", 0.9)
    assert evaluation.best_heuristic(table, "random-dst", "all", "auc") is None
    assert evaluation.best_heuristic({}, "random-dst", "all", "ap") is None


def test_results_that_name_no_headline_are_compared_by_the_usual_metric() -> None:
    one = {"mean": 0.5, "std": 0.0, "per_seed": [0.5]}
    parts = {"all": {"micro_f1": one, "auc": one, "ap": one}}
    (nodes,) = evaluation.verdicts({"none": parts}, {}, {})
    (named,) = evaluation.verdicts({"none": parts}, {}, {"none": "micro_f1"})
    (links,) = evaluation.verdicts({"random-dst": parts}, {}, {})
    assert [nodes.metric, named.metric, links.metric] == ["auc", "micro_f1", "ap"]
    assert nodes.best is None
    assert nodes.outcome == ""
    assert "50.00" in str(nodes)


@pytest.mark.parametrize(("value", "examples"), [(0.9, 22), (0.5, 100), (0.97, 900)])
def test_equal_scorers_differ_by_more_than_the_noise_in_few_samples(
    value: float, examples: int
) -> None:
    shares = np.random.default_rng(examples).binomial(examples, value, (2000, 2)) / examples
    beyond = [abs(x - y) > evaluation.noise(x, y, examples) for x, y in shares]
    assert np.mean(beyond) < 0.07  # two standard errors: about one in twenty


def test_a_lead_on_few_examples_does_not_count() -> None:
    def verdict(examples: int | None, own: float = 0.9) -> evaluation.Verdict:
        heuristics = {"memory": 0.8}
        return evaluation.Verdict(
            "random-dst", "all", "ap", own, None, heuristics, examples=examples
        )

    assert [verdict(n).outcome for n in (22, 2000, None)] == ["about as good", "", ""]
    assert [verdict(n, 0.7).outcome for n in (22, 2000)] == ["about as good", "ahead"]
    assert [verdict(n).too_few for n in (22, 2000)] == [True, False]
    assert not verdict(22, 0.801).too_few  # nor would it count on any number of examples
    assert "22" in str(verdict(22))
    runs = {"a": verdict(22), "b": verdict(22, 0.8)}
    assert evaluation.leader(runs) is None
    assert evaluation.leader({name: verdict(2000, one.mean) for name, one in runs.items()}) == "a"
    assert evaluation.leader({"a": verdict(22)}) == "a"


def test_the_rarer_of_two_classes_decides_what_is_chance() -> None:
    stream, examples = labelled(14)
    label = np.zeros_like(examples.label)
    label[::12] = 1
    labels = NodeLabels(examples.node, examples.t, label, examples.part)
    result = evaluation.evaluate_nodes(
        lambda node, t: np.zeros(len(node)), stream, labels, parts=("test",)
    )
    assert examples.part is not None
    rare = int(label[examples.part == 2].sum())
    assert result.verdict().examples == rare < result.row().examples
    assert any(f"only {rare} examples" in warning for warning in result.warnings)
    assert evaluation.Scores.of([result]).examples == {"none": {"all": rare}}
