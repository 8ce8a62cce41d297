"""Live models learn from snapshots that were scored, and from nothing else."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tidegraph import EventStream, LinkPredictor
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.runs import evaluate
from tidegraph.runs.protocol import Protocol
from tidegraph.runs.trials import LIVE, Trial, make_trial

IntArray = NDArray[np.int64]

NODES, SNAPSHOTS, EDGES, FIRST_TEST = 20, 18, 30, 12
QUICK: dict[str, Any] = {"columns": 8, "hidden": 16, "epochs": 2, "batch_size": 500, "threads": 1}
# Edges that carry something, and negatives from the past: all that an example may be made of.
ALL_OF_IT = {**QUICK, "past_negatives": 1, "any_node": False}


def random_stream(seed: int) -> EventStream:
    generator = np.random.default_rng(seed)
    count = SNAPSHOTS * EDGES
    return EventStream(
        generator.integers(0, NODES, count),
        generator.integers(0, NODES, count),
        np.repeat(np.arange(SNAPSHOTS), EDGES),
        nodes=NODES,
        edge_features=generator.normal(size=(count, 2)).astype(np.float32),
    )


def trial_of(stream: EventStream, *, live: bool = True, **settings: Any) -> Trial:
    protocol = Protocol("roland", snapshot_seconds=1, first_test=FIRST_TEST, live=live)
    return make_trial(stream, protocol, settings={**QUICK, **settings})


def trained(trial: Trial) -> LinkPredictor:
    model = trial.model(seed=3, path=None)
    assert isinstance(model, LinkPredictor)
    model.observe(trial.events, trial.training)
    model.train(trial.training)
    return model


def scores(
    trial: Trial, model: LinkPredictor, patch: pytest.MonkeyPatch
) -> dict[int, NDArray[np.float32]]:
    """Return the answers of the model during an evaluation, by the snapshot they are about."""
    answers = {}
    score = LinkPredictor.decision_function

    def noted(self: LinkPredictor, src: Any, dst: Any, t: Any, *, given_src: bool) -> Any:
        answers[int(t)] = score(self, src, dst, t, given_src=given_src)
        return answers[int(t)]

    with patch.context() as spied:
        spied.setattr(LinkPredictor, "decision_function", noted)
        trial.evaluate(model)
    return answers


@pytest.mark.parametrize("changed", [FIRST_TEST + 1, FIRST_TEST + 3])
def test_no_score_depends_on_its_own_or_a_later_snapshot(
    changed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = random_stream(1)
    later = stream.t >= changed
    assert stream.edge_features is not None
    features = np.where(later[:, None], -stream.edge_features, stream.edge_features)
    # The same sources, so that both are asked the same questions.
    dst = np.where(later, (stream.dst + 7) % NODES, stream.dst)
    both = []
    for one in (stream, replace(stream, dst=dst, edge_features=features)):
        trial = trial_of(one, **ALL_OF_IT)
        both.append(scores(trial, trained(trial), monkeypatch))
    assert list(both[0]) == list(range(FIRST_TEST + 1, SNAPSHOTS))
    for snapshot in both[0]:
        same = np.array_equal(both[0][snapshot], both[1][snapshot])
        assert same == (snapshot <= changed)  # what happens does show, in the next one


def test_only_live_models_change_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = random_stream(2)
    model = trained(trial_of(stream))
    asked = np.arange(NODES), np.arange(NODES)[::-1], FIRST_TEST
    before = model.decision_function(*asked)
    live = scores(trial_of(stream), model, monkeypatch)
    still = scores(trial_of(stream, live=False), model, monkeypatch)
    # Snapshots of the validation period are known before the first test task.
    assert not any(np.array_equal(live[snapshot], still[snapshot]) for snapshot in still)
    np.testing.assert_array_equal(
        model.decision_function(*asked), before
    )  # the model itself has not moved
    again = scores(trial_of(stream), model, monkeypatch)
    assert all(np.array_equal(live[snapshot], again[snapshot]) for snapshot in live)


def changing_habits() -> EventStream:
    """Up to the test nobody meets the same one twice running; from then on everybody does."""
    src = np.tile(np.arange(NODES), SNAPSHOTS)
    t = np.repeat(np.arange(SNAPSHOTS), NODES)
    dst = (src + 1 + np.minimum(t, FIRST_TEST) * 3) % NODES
    return EventStream(src, dst, t, nodes=NODES)


def test_a_live_model_notices_that_habits_have_changed() -> None:
    stream = changing_habits()
    # All nodes do alike: only sketches tell them apart.
    model = trained(trial_of(stream, epochs=20, pair_features=("history", "sketches")))
    found = [
        trial_of(stream, live=live)
        .evaluate(model)
        .table["tidegraph"]["all-nodes"]["all"]["mrr_full"]
        for live in (False, True)
    ]
    assert found[1] > found[0]


def test_refining_makes_its_events_likelier_and_replay_keeps_earlier_ones() -> None:
    trial = trial_of(changing_habits(), epochs=20)
    events = trial.events
    before, now = (np.flatnonzero(events.t == FIRST_TEST + step) for step in (-1, 2))

    def lead(model: LinkPredictor, chosen: IntArray) -> float:
        """How far true pairs are ahead of others, on average."""
        src, t = events.src[chosen], events.t[chosen]
        others = [
            model.decision_function(src, (events.dst[chosen] + k) % NODES, t)
            for k in range(1, NODES)
        ]
        return float(model.decision_function(src, events.dst[chosen], t).mean() - np.mean(others))

    first = trained(trial)
    forgetful, mindful = (copy.copy(first) for _ in range(2))
    assert forgetful.train_further(now, epochs=20, pace=1.0) is forgetful
    mindful.train_further(now, epochs=20, pace=1.0, replay=4.0)
    assert lead(forgetful, now) > lead(first, now)
    assert lead(mindful, now) > lead(first, now)
    assert lead(mindful, before) > lead(forgetful, before)
    assert first.train_further(now[:0]) is first  # nothing to learn from


@pytest.mark.parametrize(
    ("events", "options", "advice"),
    [
        ([3, 2], {}, "ascending"),
        (np.array([3, 2], dtype=np.uint64), {}, "ascending"),
        ([2, 2], {}, "ascending"),
        ([-1, 2], {}, "ascending"),
        ([0, SNAPSHOTS * EDGES], {}, "from 0 to below 540"),
        ([0.5], {}, "whole numbers"),
        ([5], {"replay": -1.0}, "replay is -1.0"),
        ([[5]], {}, r"int64 \[1, 1\].*numbers \[k\]"),
        ([5], {"pace": 0.0}, "pace is 0.0"),
        ([5], {"pace": float("nan")}, "pace is nan"),
        ([5], {"pace": float("inf")}, "pace is inf"),
        ([5], {"pace": [0.1]}, r"pace is \[0.1\]"),
        ([5], {"pace": "0.1"}, "pace is '0.1'"),
        ([5], {"pace": True}, "pace is True"),
        ([5], {"replay": float("nan")}, "replay is nan"),
        ([5], {"replay": None}, "replay is None"),
        ([5], {"epochs": 0}, "epochs is 0"),
        ([5], {"epochs": [1]}, r"epochs is \[1\]"),
        ([5], {"epochs": 1.5}, "epochs is 1.5"),
    ],
)
def test_training_further_rejects_events_it_cannot_learn_from(
    events: list[Any], options: dict[str, Any], advice: str, steady: LinkPredictor
) -> None:
    before = steady.decision_function(0, np.arange(NODES), FIRST_TEST)
    with pytest.raises(ParameterError if options else DataError, match=advice):
        steady.train_further(events, **options)
    np.testing.assert_array_equal(steady.decision_function(0, np.arange(NODES), FIRST_TEST), before)


@pytest.fixture(scope="module")
def steady() -> LinkPredictor:
    return trained(trial_of(random_stream(2)))


@pytest.mark.parametrize(
    ("replay", "latest", "repeated"), [(0.0, 40, 0), (1.0, 20, 20), (3.0, 10, 30), (1e300, 1, 39)]
)
def test_training_further_uses_at_most_max_examples_events(
    replay: float,
    latest: int,
    repeated: int,
    steady: LinkPredictor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = copy.copy(steady)
    model.max_examples = 40
    chosen: list[IntArray] = []
    examples = LinkPredictor._examples

    def noted(self: LinkPredictor, events: IntArray, earlier: IntArray, *, seed: int) -> Any:
        chosen.append(events)
        return examples(self, events, earlier, seed=seed)

    monkeypatch.setattr(LinkPredictor, "_examples", noted)
    count = len(model.stream)
    model.train_further(np.arange(100, count), replay=replay)
    assert len(chosen[0]) == latest + repeated
    np.testing.assert_array_equal(chosen[0][repeated:], np.arange(count - latest, count))
    assert (chosen[0][:repeated] < count - latest).all()
    chosen.clear()
    model.train_further([7, 9, 12])  # fewer than that are all taken
    assert chosen[0].tolist() == [7, 9, 12]


def test_a_live_model_rejects_tasks_out_of_order() -> None:
    trial = trial_of(random_stream(4))
    score_all = trial._scorer(trained(trial))  # type: ignore[attr-defined]
    score_all(np.array([0]), FIRST_TEST + 1)
    score_all(np.array([0]), FIRST_TEST + 1)
    with pytest.raises(AssertionError, match=f"task {FIRST_TEST} after {FIRST_TEST + 1}"):
        score_all(np.array([0]), FIRST_TEST)


def test_only_roland_has_live_models() -> None:
    assert Protocol("roland", live=True).title == "roland+live"
    for name in ("tgn", "tgb"):
        with pytest.raises(ParameterError, match="live belongs to the protocol roland"):
            Protocol(name, live=True)


def test_results_of_live_models_say_so() -> None:
    stream = random_stream(5)
    found = [
        evaluate(stream, protocol=trial_of(stream, live=live).protocol, seeds=[0], settings=QUICK)
        for live in (False, True)
    ]
    assert [one["protocol"] for one in found] == ["roland", "roland+live"]
    assert [one["live"] for one in found] == [None, LIVE]
    assert found[0]["heuristics"] == found[1]["heuristics"]
    assert found[0]["metrics"] != found[1]["metrics"]
