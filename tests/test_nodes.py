"""Classifying nodes, end to end on small streams."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from tidegraph import EventStream, LinkPredictor, NodeClassifier, evaluation, generate_communities
from tidegraph.core.errors import DataError, ParameterError, StateFileError, TidegraphError
from tidegraph.evaluation import Split
from tidegraph.events.names import NodeNames
from tidegraph.events.past import Past
from tidegraph.events.stream import NodeLabels
from tidegraph.events.vocabulary import Vocabulary
from tidegraph.learning.models import Window
from tidegraph.learning.tasks.nodes import merge_labels

SETTINGS: dict[str, Any] = {
    "columns": 16,
    "hidden": 32,
    "members": 2,
    "epochs": 4,
    "batch_size": 300,
    "learning_rate": 1e-2,
    "threads": 1,
    "seed": 5,
}
NODES, EVENTS, LONER = 81, 3_000, 80  # the loner has no event
CLASSES = 3


def communities() -> EventStream:
    """Sources carry their community at every event; nobody is told of it beforehand."""
    stream = generate_communities(
        nodes=NODES - 1, events=EVENTS, communities=CLASSES, switches=0.3, seed=1
    )
    return replace(stream, nodes=NODES, node_labels=None)


STREAM = communities()
SPLIT = evaluation.tgb_split(STREAM)
NOW = int(STREAM.t[SPLIT.test[0]])


def labels_of(stream: EventStream) -> NDArray[np.int64]:
    assert stream.labels is not None
    return stream.labels


def classifier(**changes: Any) -> NodeClassifier:
    return NodeClassifier(**{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def fitted() -> NodeClassifier:
    """Fitted once, and only asked by the tests that share it."""
    return classifier().fit(STREAM, SPLIT)


def questions(count: int = 200, *, until: int = NOW) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    random = np.random.default_rng(2)
    return random.integers(0, NODES, count), random.integers(int(STREAM.t[0]), until + 1, count)


def until_test(split: Split) -> Split:
    nothing = np.zeros(0, dtype=np.int64)
    return replace(split, test=nothing, new_test=nothing)


def test_classes_are_predicted_better_than_by_the_most_frequent_one(
    fitted: NodeClassifier,
) -> None:
    result = fitted.evaluate(SPLIT)
    ours = result.row("test").metrics["micro-f1"]
    assert ours > result.row("test", scorer="majority").metrics["micro-f1"] + 0.2
    assert {row.scorer for row in result.rows} == {"tidegraph", "majority", "last-label", "degree"}


def test_structure_alone_separates_classes() -> None:
    model = classifier(
        known_labels=False, activity=False, states=True, epochs=12, half_lives=(100.0,), columns=32
    )
    result = model.fit(STREAM, SPLIT).evaluate(SPLIT, parts=("test",))
    ours = result.row("test").metrics["micro-f1"]
    assert ours > result.row("test", scorer="majority").metrics["micro-f1"] + 0.1


def test_probabilities_are_those_of_the_classes(fitted: NodeClassifier) -> None:
    probability = fitted.predict_proba(*questions())
    assert probability.shape == (200, CLASSES)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert np.array_equal(fitted.predict(*questions()), probability.argmax(axis=1))
    assert fitted.predict_proba([1, 2, 3], NOW).shape == (3, CLASSES)
    assert fitted.predict_proba([], NOW).shape == (0, CLASSES)


def test_asking_changes_nothing(fitted: NodeClassifier) -> None:
    before = fitted.predict_proba(*questions())
    fitted.predict(*questions(20, until=int(STREAM.t[-1])))
    assert np.array_equal(fitted.predict_proba(*questions()), before)


def test_the_same_seed_gives_the_same_answers(fitted: NodeClassifier) -> None:
    again = classifier().fit(STREAM, SPLIT)
    assert np.array_equal(again.predict_proba(*questions()), fitted.predict_proba(*questions()))
    other = classifier(seed=6).fit(STREAM, SPLIT)
    assert not np.array_equal(other.predict_proba(*questions()), fitted.predict_proba(*questions()))


def test_what_happens_at_or_after_a_time_has_no_part_in_answers_for_it(
    fitted: NodeClassifier,
) -> None:
    ended = classifier().fit(STREAM.before(NOW), until_test(SPLIT))
    expected = fitted.predict_proba(*questions())
    assert np.array_equal(ended.predict_proba(*questions()), expected)
    # Another future: the same times, other pairs, other labels.
    later = STREAM[len(STREAM.before(NOW)) :]
    other = replace(
        later,
        src=later.dst[::-1].copy(),
        dst=later.src.copy(),
        labels=(labels_of(later) + 1) % CLASSES,
    )
    ended.advance(other)
    assert np.array_equal(ended.predict_proba(*questions()), expected)
    past_it = questions(until=int(STREAM.t[-1]))
    assert not np.array_equal(ended.predict_proba(*past_it), fitted.predict_proba(*past_it))


def test_taking_in_events_later_equals_having_seen_them_at_once(fitted: NodeClassifier) -> None:
    ended = classifier().fit(STREAM.before(NOW), until_test(SPLIT))
    ended.advance(STREAM[len(STREAM.before(NOW)) :])
    asked = questions(until=int(STREAM.t[-1]) + 10)
    np.testing.assert_allclose(
        ended.predict_proba(*asked), fitted.predict_proba(*asked), rtol=1e-4, atol=1e-5
    )


def test_a_label_is_read_only_after_it_has_become_known(fitted: NodeClassifier) -> None:
    """Labels of the future change no answer; a label known before does."""
    relabelled = replace(STREAM, labels=(labels_of(STREAM) + 1) % CLASSES)
    fitted_features = fitted._features
    try:
        expected = fitted.predict_proba(*questions())
        for since, same in ((NOW, True), (int(STREAM.t[0]), False)):
            changed = np.where(STREAM.t >= since, labels_of(relabelled), labels_of(STREAM))
            fitted._stream = replace(STREAM, labels=changed)
            fitted._features = fitted._new_features()
            assert np.array_equal(fitted.predict_proba(*questions()), expected) is same
    finally:
        fitted._stream, fitted._features = STREAM, fitted_features


def test_an_outcome_that_is_known_late_is_not_used_early() -> None:
    never = int(STREAM.t[-1]) + 1
    known = NodeLabels(STREAM.src, np.full(EVENTS, never), labels_of(STREAM))
    late = replace(STREAM, node_labels=known)
    model = classifier(activity=False).fit(late, SPLIT)
    result = model.evaluate(SPLIT, parts=("test",))
    rule, nothing = (result.row("test", scorer=s).metrics for s in ("last-label", "majority"))
    assert rule == nothing
    features = model._features(*questions(until=never))
    width = 3 * CLASSES + 3 + CLASSES
    assert not features[:, -width:].any()
    assert model._features(np.array([int(STREAM.src[0])]), np.array([never + 1]))[:, -width:].any()


def test_node_labels_are_asked_for_after_their_time_where_wanted() -> None:
    node = np.arange(NODES)
    labels = NodeLabels(node, np.full(NODES, 7), node % 2)
    stream = replace(STREAM, labels=None, node_labels=labels)
    model = classifier(ask_after=3)
    examples = model.examples(stream, SPLIT)
    assert set(examples.t.tolist()) == {10}
    assert set(model.known(stream).t.tolist()) == {10}  # and not before it was asked for


def test_labels_of_events_asked_for_after_them_may_follow_from_the_event() -> None:
    random = np.random.default_rng(4)
    src, dst = random.integers(0, 40, 1_500), random.integers(40, 80, 1_500)
    # Whom a source meets decides its class, and one meeting says nothing about the next.
    stream = EventStream(src, dst, np.arange(0, 3_000, 2), nodes=80, labels=dst % 2)
    split = evaluation.tgb_split(stream)
    only: dict[str, Any] = {"known_labels": False, "activity": False, "states": True}
    only |= {"half_lives": (1.0,), "columns": 64, "hidden": 64, "epochs": 12}
    before, after = (classifier(ask_after=delay, **only).fit(stream, split) for delay in (0, 1))
    f1 = [
        model.evaluate(split, parts=("test",)).row("test").metrics["micro-f1"]
        for model in (before, after)
    ]
    assert f1[0] < 0.6
    assert f1[1] > 0.75
    same = [model.examples(stream, split) for model in (before, after)]
    assert same[0].part is not None
    assert same[1].part is not None
    assert np.array_equal(same[0].part, same[1].part)
    assert (same[1].t - same[0].t == 1).all()


@pytest.mark.parametrize("twice", [False, True])
def test_a_label_asked_for_after_its_event_is_no_part_of_the_question(twice: bool) -> None:
    labels = labels_of(STREAM)
    own = NodeLabels(STREAM.src, STREAM.t, labels) if twice else None
    known = classifier(ask_after=1).known(replace(STREAM, node_labels=own))
    assert np.array_equal(known.t, STREAM.t + 1)  # and only what is known before counts


def test_states_can_be_read_as_what_changed_since_the_first_event() -> None:
    only: dict[str, Any] = {"known_labels": False, "activity": False, "products": False}
    model = classifier(states=True, since_first=True, epochs=1, **only).fit(STREAM, SPLIT)
    nodes, t = questions()
    read = model._features(nodes, t).reshape(200, -1, SETTINGS["columns"])
    for node, at, row in zip(nodes.tolist(), t.tolist(), read, strict=True):
        times, states = model._trajectories.changes(node)
        np.testing.assert_array_equal(row, states[times < at][-1] - states[0])
    assert not model._features(np.array([LONER]), np.array([NOW])).any()
    assert read.any()


def test_a_classifier_that_reads_nothing_is_rejected() -> None:
    nothing: dict[str, Any] = {"known_labels": False, "activity": False, "products": False}
    with pytest.raises(ParameterError, match="nothing to read"):
        classifier(**nothing).fit(STREAM, SPLIT)
    classifier(encoder="gru", width=8, epochs=1, **nothing).fit(STREAM, SPLIT)


def test_a_division_that_comes_with_the_labels_stands() -> None:
    node, t = np.arange(NODES), np.full(NODES, 7)
    part = (node % 3).astype(np.uint8)
    labels = NodeLabels(node, t, np.where(node % 5, 1, -1), part)
    stream = replace(STREAM, labels=None, node_labels=labels)
    examples = classifier().examples(stream, SPLIT)
    assert examples.part is not None
    assert np.array_equal(examples.part, part[node % 5 > 0])
    assert (examples.label == 1).all()  # what is below 0 is not known


def test_features_and_labels_of_nodes_can_be_learned_from() -> None:
    stream = generate_communities(
        nodes=120, events=2_000, communities=2, switches=0, features=4, seed=3
    )
    assert stream.node_labels is not None
    start = stream.node_labels  # one label per node, which stays
    when = np.quantile(stream.t, [0.2, 0.75, 0.95]).astype(np.int64)
    labels = NodeLabels(np.tile(start.node, 3), np.repeat(when, 120), np.tile(start.label, 3))
    stream = replace(stream, labels=None, node_labels=labels)
    split = evaluation.tgb_split(stream)
    model = classifier(known_labels=False, epochs=12, batch_size=20).fit(stream, split)
    assert model.reads_states_  # features are worth reading, random ones are not
    assert model._trajectories.columns == 4
    result = model.evaluate(split, parts=("test",))
    assert result.row("test").metrics["micro-f1"] > 0.8


def test_features_of_edges_are_read_where_there_are_any() -> None:
    random = np.random.default_rng(0)
    label = random.integers(0, 2, EVENTS)
    # The event before tells the label, and nothing else does.
    feature = np.zeros((EVENTS, 2), dtype=np.float32)
    order = np.argsort(STREAM.src, kind="stable")
    feature[order[:-1], 0] = label[order[1:]] * 2 - 1
    bipartite = replace(STREAM, dst=STREAM.dst + NODES, nodes=2 * NODES)
    stream = replace(bipartite, labels=label, edge_features=feature)
    quiet = {"known_labels": False, "activity": False, "epochs": 8}
    model = classifier(**quiet).fit(stream, SPLIT)
    assert model.evaluate(SPLIT).row("test").metrics["auc"] > 0.9
    blind = classifier(**quiet, edge_features=False).fit(stream, SPLIT)
    assert blind.evaluate(SPLIT).row("test").metrics["auc"] < 0.7


def rare() -> EventStream:
    """One event in fifty is of class 1, and only very active sources have such events."""
    random = np.random.default_rng(4)
    busy = np.bincount(STREAM.src, minlength=NODES)[STREAM.src] > 100
    return replace(STREAM, labels=(busy & (random.random(EVENTS) < 0.1)).astype(np.int64))


def test_a_rare_class_is_found_and_its_probability_stays_small() -> None:
    stream = rare()
    share = labels_of(stream).mean()
    assert 0.005 < share < 0.1
    model = classifier(known_labels=False, epochs=8).fit(stream, SPLIT)
    assert model.evaluate(SPLIT).row("test").metrics["auc"] > 0.6
    test = SPLIT.test
    predicted = model.predict_proba(stream.src[test], stream.t[test])[:, 1].mean()
    assert share / 3 < predicted < share * 3


def test_without_a_split_the_last_labels_decide_when_to_stop() -> None:
    model = classifier(epochs=1).fit(STREAM)
    assert np.isfinite(model.predict_proba(*questions())).all()
    with pytest.raises(DataError, match="no events"):
        classifier().fit(STREAM[:0])


def test_a_class_without_recent_examples_does_no_harm() -> None:
    early = np.where(np.arange(EVENTS) < 100, 1, 0)
    model = classifier(max_examples=200, epochs=1).fit(replace(STREAM, labels=early), SPLIT)
    assert model.classes_.tolist() == [0, 1]
    assert np.isfinite(model.predict_proba(*questions())).all()


def test_one_class_alone_is_rejected() -> None:
    same = replace(STREAM, labels=np.full(EVENTS, 2))
    with pytest.raises(DataError, match="only class 2 occurs"):
        classifier().fit(same, SPLIT)
    unknown = replace(STREAM, labels=np.full(EVENTS, -1))
    with pytest.raises(DataError, match="there is no label"):
        classifier().fit(unknown, SPLIT)
    with pytest.raises(DataError, match="neither labels nor node_labels"):
        classifier().fit(replace(STREAM, labels=None), SPLIT)
    gone = replace(STREAM, labels=np.where(STREAM.t > SPLIT.validation_time, -1, labels_of(STREAM)))
    with pytest.raises(DataError, match="in the validation period"):
        classifier().fit(gone, SPLIT)


def test_a_class_that_training_never_saw_is_an_error_in_every_prediction() -> None:
    late = np.where(STREAM.t > SPLIT.test_time, CLASSES, labels_of(STREAM))
    model = classifier(epochs=1).fit(replace(STREAM, labels=late), SPLIT)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.evaluate(SPLIT, parts=("test",)).row("test").metrics["micro-f1"] == 0


def test_unknown_nodes_are_named(fitted: NodeClassifier) -> None:
    with pytest.raises(TidegraphError, match=f"node {NODES} is unknown"):
        fitted.predict_proba([0, NODES], NOW)
    with pytest.raises(TidegraphError, match="node -1 is unknown"):
        fitted.predict_proba(-1, NOW)
    with pytest.raises(DataError, match="'ann'"):
        fitted.predict_proba(["ann"], [NOW])


def test_a_time_beyond_int64_is_rejected_and_not_moved_into_the_past(
    fitted: NodeClassifier,
) -> None:
    with pytest.raises(DataError, match=r"times .* does not fit into int64"):
        fitted.predict_proba(0, np.uint64(2**63))


@pytest.mark.parametrize("ask", ["predict_proba", "predict", "score"])
def test_columns_of_a_question_have_one_length(fitted: NodeClassifier, ask: str) -> None:
    method = getattr(fitted, ask)
    y = [[1, 0, 1]] if ask == "score" else []
    with pytest.raises(ParameterError, match="nodes 3, t 2"):
        method([0, 1, 2], [NOW, NOW], *y)
    with pytest.raises(ParameterError, match="nodes is a list of lists"):
        method([[0, 1], [2]], NOW, *y)
    if y:
        with pytest.raises(ParameterError, match="nodes 3, t 1, y 2"):
            method([0, 1, 2], NOW, [0, 1])


def test_a_node_without_history_gets_probabilities(fitted: NodeClassifier) -> None:
    for answer in (
        fitted.predict_proba(LONER, NOW),
        fitted.predict_proba(np.arange(NODES), int(STREAM.t[0])),
    ):
        assert np.isfinite(answer).all()
        np.testing.assert_allclose(answer.sum(axis=1), 1, rtol=1e-5)


def test_nothing_is_answered_before_fitting(tmp_path: Path) -> None:
    for ask in (
        lambda: classifier().predict_proba(0, 1),
        lambda: classifier().evaluate(SPLIT),
        lambda: classifier().save(tmp_path / "nothing"),
        lambda: classifier().advance(STREAM),
    ):
        with pytest.raises(ParameterError, match="call fit"):
            ask()


def test_a_saved_classifier_answers_the_same_and_goes_on(tmp_path: Path) -> None:
    first = classifier().fit(STREAM.before(NOW), until_test(SPLIT))
    first.save(tmp_path / "model")
    loaded = NodeClassifier.load(tmp_path / "model")
    asked = questions()
    assert np.array_equal(loaded.predict_proba(*asked), first.predict_proba(*asked))
    assert loaded.get_params() == first.get_params()
    rest, later = STREAM[len(STREAM.before(NOW)) :], questions(until=int(STREAM.t[-1]))
    loaded.advance(rest)
    first.advance(rest)
    assert np.array_equal(loaded.predict_proba(*later), first.predict_proba(*later))
    with pytest.raises(StateFileError, match="holds a NodeClassifier"):
        LinkPredictor.load(tmp_path / "model")


# Learning on --------------------------------------------------------------------------------------


def accuracy(model: NodeClassifier, events: EventStream) -> float:
    return model.score(events.src, events.t, labels_of(events))


@pytest.fixture
def early() -> NodeClassifier:
    return classifier().fit(STREAM.before(NOW), until_test(SPLIT))


REST = STREAM[len(STREAM.before(NOW)) :]


def test_a_score_is_the_share_of_right_predictions(fitted: NodeClassifier) -> None:
    asked = questions()
    likely = fitted.predict(*asked)
    assert fitted.score(*asked, likely) == 1
    assert fitted.score(*asked, (likely + 1) % CLASSES) == 0


def test_names_and_dates_are_accepted_wherever_numbers_are(fitted: NodeClassifier) -> None:
    model = copy.copy(fitted)
    names = NodeNames([f"node-{number}" for number in range(NODES)])
    model._stream = replace(STREAM, names=names, unit="s")
    date = str(np.datetime64(NOW, "s"))
    expected = fitted.predict_proba([3, 4], NOW)
    np.testing.assert_array_equal(model.predict_proba(["node-3", "node-4"], date), expected)
    np.testing.assert_array_equal(model.predict_proba([3, 4], [date, date]), expected)
    assert model.embeddings(at=date, nodes=["node-3"]).index.tolist() == ["node-3"]


def test_partial_fit_advances_and_learns(early: NodeClassifier, tmp_path: Path) -> None:
    # From here on communities are called by other numbers, which only labels can teach.
    renamed = replace(REST, labels=(labels_of(REST) + 1) % CLASSES)
    half = len(renamed) // 2
    early.save(tmp_path / "model")
    frozen = NodeClassifier.load(tmp_path / "model").advance(renamed)
    learning = early.partial_fit(renamed[:half])
    assert len(learning.stream) == len(STREAM) - len(renamed) + half
    assert not np.array_equal(
        learning.predict_proba(*questions()), frozen.predict_proba(*questions())
    )
    known = labels_of(renamed)[:half]
    asked = NodeLabels(renamed.src[:half], renamed.t[:half], known)
    learning.train_further(asked, epochs=20, pace=1.0)
    learning.advance(renamed[half:])
    assert accuracy(learning, renamed[half:]) > accuracy(frozen, renamed[half:]) + 0.1


def test_training_further_repeats_earlier_labels_where_asked(early: NodeClassifier) -> None:
    wrong = NodeLabels(REST.src[:50], REST.t[:50], np.zeros(50, dtype=np.int64))
    forgetful, mindful = (copy.copy(early) for _ in range(2))
    before = STREAM.before(NOW)
    assert forgetful.train_further(wrong, epochs=20, pace=1.0) is forgetful
    mindful.train_further(wrong, epochs=20, pace=1.0, replay=8.0)
    assert accuracy(mindful, before) > accuracy(forgetful, before) + 0.05
    assert accuracy(early, before) == accuracy(copy.copy(early), before)


def test_what_is_learned_later_depends_on_no_later_event(
    early: NodeClassifier, tmp_path: Path
) -> None:
    half = len(REST) // 2
    bound = int(REST.t[half])
    first, rest = REST.before(bound), REST[len(REST.before(bound)) :]
    early.save(tmp_path / "model")
    seen, ahead = (NodeClassifier.load(tmp_path / "model") for _ in range(2))
    labels = NodeLabels(first.src, first.t, labels_of(first))
    seen.advance(first).train_further(labels)
    ahead.advance(first).advance(rest).train_further(labels)
    asked = questions(until=bound)
    assert np.array_equal(seen.predict_proba(*asked), ahead.predict_proba(*asked))


WORDS = tuple(f"community {k}" for k in range(CLASSES))


@pytest.mark.parametrize("of_nodes", [False, True])
def test_later_labels_are_recoded_to_the_classes_of_the_model(
    of_nodes: bool, tmp_path: Path
) -> None:
    def worded(
        events: EventStream, label: NDArray[np.int64], words: tuple[str, ...]
    ) -> EventStream:
        known = NodeLabels(events.src, events.t, label) if of_nodes else None
        events = replace(events, labels=None if of_nodes else label, node_labels=known)
        return replace(events, vocabulary=Vocabulary(labels=words))

    first = worded(STREAM.before(NOW), labels_of(STREAM.before(NOW)), WORDS)
    model = classifier(ask_after=1).fit(first, until_test(SPLIT))
    model.save(tmp_path / "model")
    label = labels_of(REST)
    expected = NodeClassifier.load(tmp_path / "model").partial_fit(worded(REST, label, WORDS))
    # The words of a later table are in the order of their own frequencies.
    other = worded(REST, CLASSES - 1 - label, WORDS[::-1])
    found = NodeClassifier.load(tmp_path / "model").partial_fit(other)
    asked = questions()
    np.testing.assert_array_equal(found.predict_proba(*asked), expected.predict_proba(*asked))
    # A new class is rejected, and leaves no trace.
    before, events = model.predict_proba(*asked), len(model.stream)
    new = worded(REST, label, (*WORDS[:-1], "newcomers"))
    with pytest.raises(DataError, match=r"newcomers.*community 0"):
        model.partial_fit(new)
    assert len(model.stream) == events
    np.testing.assert_array_equal(model.predict_proba(*asked), before)
    model.partial_fit(other)
    np.testing.assert_array_equal(model.predict_proba(*asked), expected.predict_proba(*asked))


def test_node_labels_that_come_later_are_learned_from() -> None:
    times = STREAM.t.astype(np.int64)
    labels = NodeLabels(STREAM.src, times, labels_of(STREAM))
    early, late = (
        NodeLabels(labels.node[rows], labels.t[rows], labels.label[rows])
        for rows in (times < NOW, times >= NOW)
    )
    bare = replace(STREAM, labels=None)
    model = classifier(ask_after=1)
    model.fit(replace(bare.before(NOW), node_labels=early), until_test(SPLIT))
    before = model.predict_proba(*questions())
    model.partial_fit(replace(bare[len(bare.before(NOW)) :], node_labels=late))
    assert not np.array_equal(model.predict_proba(*questions()), before)
    assert model.stream.node_labels is not None
    assert len(model.stream.node_labels.node) == len(STREAM)


@pytest.mark.parametrize(
    ("label", "options", "facts"),
    [
        (7, {}, "class 7.*0, 1, 2"),
        (1, {"epochs": 0}, "epochs is 0"),
        (1, {"pace": -1.0}, r"pace is -1\.0"),
        (1, {"replay": "all"}, "replay is 'all'"),
    ],
)
def test_training_further_rejects_what_it_cannot_learn_from(
    label: int, options: dict[str, Any], facts: str, fitted: NodeClassifier
) -> None:
    labels = NodeLabels(np.array([1]), np.array([NOW]), np.array([label]))
    before = fitted.predict_proba(*questions())
    with pytest.raises(TidegraphError, match=facts):
        fitted.train_further(labels, **options)
    with pytest.raises(TidegraphError, match=f"node {NODES}"):
        fitted.train_further(NodeLabels(np.array([NODES]), np.array([NOW]), np.array([1])))
    assert np.array_equal(fitted.predict_proba(*questions()), before)


def test_nothing_changes_where_no_label_comes(early: NodeClassifier) -> None:
    before = early.predict_proba(*questions())
    none = np.zeros(0, dtype=np.int64)
    nothing = NodeLabels(none, none, none)
    assert early.train_further(nothing) is early
    hidden = replace(REST, labels=np.full(len(REST), -1))
    assert np.array_equal(early.partial_fit(hidden).predict_proba(*questions()), before)


class LastChange(nn.Module):
    """An encoder of one's own."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(columns, width)

    def forward(self, window: Window) -> Tensor:
        return torch.tanh(self.layer(window.change[:, -1]))


def test_windows_can_be_encoded_and_encoders_of_ones_own_are_given_again(tmp_path: Path) -> None:
    model = classifier(encoder="gru", width=8, epochs=1).fit(STREAM, SPLIT)
    assert np.isfinite(model.predict_proba(*questions())).all()
    own = classifier(encoder=LastChange, width=8, epochs=1).fit(STREAM, SPLIT)
    own.save(tmp_path / "model")
    with pytest.raises(StateFileError, match=r"LastChange.*encoder=\.\.\."):
        NodeClassifier.load(tmp_path / "model")
    loaded = NodeClassifier.load(tmp_path / "model", encoder=LastChange)
    assert np.array_equal(loaded.predict_proba(*questions()), own.predict_proba(*questions()))


def test_settings_can_be_cloned_and_wrong_ones_are_rejected() -> None:
    from sklearn.base import clone

    model = classifier(half_lives=(3.0,))
    assert clone(model).get_params() == model.get_params()
    for wrong in (
        {"balance": 2.0},
        {"members": 0},
        {"ask_after": -1},
        {"encoder": "rnn"},
        {"epochs": 0},
    ):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            model.set_params(**wrong)
    assert model.get_params() == classifier(half_lives=(3.0,)).get_params()


rows = st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5)), max_size=30)


@given(rows, rows, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_the_latest_rows_before_a_time_are_found(
    known: list[tuple[int, int]], asked: list[tuple[int, int]], k: int
) -> None:
    node, t = np.array(known, dtype=np.int64).reshape(-1, 2).T
    past = Past(node, t)
    nodes, times = np.array(asked, dtype=np.int64).reshape(-1, 2).T
    found, there = past.latest(nodes, times, k)
    for question, (n, at) in enumerate(asked):
        before = [row for row, (other, when) in enumerate(known) if other == n and when < at]
        # Rows of one time stay in the order given.
        expected = sorted(before, key=lambda row: (known[row][1], row))[::-1][:k]
        assert found[question][there[question]].tolist() == expected


def test_labels_of_the_test_are_not_read_in_training() -> None:
    random = np.random.default_rng(0)
    node, t = random.integers(0, 20, 60), np.sort(random.integers(0, 100, 60))
    part = random.integers(0, 3, 60).astype(np.uint8)
    labels = NodeLabels(node, t, random.integers(0, 2, 60), part)
    stream = replace(STREAM, labels=None, node_labels=labels)
    assert len(NodeClassifier().known(stream).node) == (part == 0).sum()
    by_time = replace(labels, part=(np.arange(60) // 20).astype(np.uint8))
    assert len(NodeClassifier().known(replace(stream, node_labels=by_time)).node) == 60


def test_later_labels_join_the_division_of_the_earlier_ones() -> None:
    early = NodeLabels(np.array([0]), np.array([1]), np.array([1]), np.array([2], np.uint8))
    late = NodeLabels(np.array([3]), np.array([9]), np.array([0]))
    joined = merge_labels(early, late)
    assert joined is not None
    assert joined.part is not None
    assert joined.part.tolist() == [2, 0]
    assert merge_labels(None, late) is late
