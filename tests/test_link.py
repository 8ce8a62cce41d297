"""Predicting links, end to end on small streams."""

from __future__ import annotations

import copy
import errno
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas.testing as pd_testing
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tidegraph import EventStream, LinkPredictor, Op, Sketch, evaluation, generate_communities
from tidegraph.core.errors import (
    DataError,
    EventError,
    ParameterError,
    StateFileError,
    StorageError,
    TidegraphError,
)
from tidegraph.engine.reference import exact
from tidegraph.evaluation import Split
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import Edges
from tidegraph.learning.history import History
from tidegraph.learning.models import Pair, Window
from tidegraph.learning.settings import default_epochs
from tidegraph.learning.tasks import link
from tidegraph.learning.training import read_arrays, write_arrays

SETTINGS: dict[str, Any] = {
    "columns": 16,
    "hidden": 32,
    "epochs": 4,
    "batch_size": 500,
    "threads": 1,
    "seed": 5,
}
NODES, EVENTS, LONER = 81, 3_000, 80  # the loner has no event


def communities() -> EventStream:
    stream = generate_communities(nodes=NODES - 1, events=EVENTS, communities=4, seed=1)
    return replace(stream, nodes=NODES, node_labels=None, labels=None)


STREAM = communities()
SPLIT = evaluation.tgb_split(STREAM)
CUT = int(SPLIT.test[0])  # the first test event
NOW = int(STREAM.t[CUT])


def predictor(**changes: Any) -> LinkPredictor:
    return LinkPredictor(**{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def fitted() -> LinkPredictor:
    """Fitted once, and only asked by the tests that share it."""
    return predictor().fit(STREAM, SPLIT)


def test_a_path_is_no_stream() -> None:
    with pytest.raises(ParameterError, match=r"given a str.*tidegraph\.read"):
        LinkPredictor().fit("calls.csv")  # type: ignore[arg-type]


# Settings of a model that reads representations, so that they are recorded.
RECORDED: dict[str, Any] = {"pair_features": ("history", "sketches")}
DISTRIBUTIONS: list[Any] = ["gaussian", "uniform", "sign"]


@pytest.mark.parametrize("chosen", DISTRIBUTIONS)
def test_states_are_those_of_the_chosen_features_alone(chosen: Any) -> None:
    how: dict[str, Any] = {"half_lives": (), "high_pass": False, "dtype": "float32"}
    model = predictor(distribution=chosen, epsilon=0.0, r_max=1e-3, **RECORDED, **how)
    model.observe(STREAM, SPLIT)
    nodes, end = np.arange(NODES), int(STREAM.t[-1]) + 1
    states, bound = model._trajectories.state(nodes, end), model._trajectories.bound(nodes, end)
    within = []
    for distribution in DISTRIBUTIONS:
        x = Sketch(SETTINGS["columns"], SETTINGS["seed"], distribution).rows(nodes)
        error = states[:, 0] - exact(STREAM.src, STREAM.dst, x)
        if (np.linalg.norm(error, axis=1) <= bound[:, 0]).all():
            within.append(distribution)
    assert within == [chosen]


def test_training_in_order_has_each_event_next_to_its_negatives() -> None:
    every, ordered = (predictor(in_order=in_order) for in_order in (False, True))
    found = []
    for model in (every, ordered):
        model.observe(STREAM, SPLIT)
        part = model._divided(SPLIT)[0]
        found.append(list(zip(part.src, part.dst, part.t, part.label, part.weight, strict=True)))
    assert sorted(found[0]) == sorted(found[1])
    labels = np.array([label for _, _, _, label, _ in found[1]]).reshape(len(SPLIT.train), -1)
    assert (labels == labels[0]).all()  # one event, then those that did not happen
    assert labels[0].tolist() == [1.0] + [0.0] * (labels.shape[1] - 1)
    t = np.array([t for _, _, t, _, _ in found[1]])
    assert np.array_equal(t, np.repeat(STREAM.t[SPLIT.train], labels.shape[1]))


def test_the_chosen_features_are_saved_with_the_model(tmp_path: Path) -> None:
    model = predictor(distribution="uniform", epochs=1).fit(STREAM[:CUT])
    model.save(tmp_path / "model")
    loaded = LinkPredictor.load(tmp_path / "model")
    for each in (model, loaded):
        each.partial_fit(STREAM[CUT:])
    asked = STREAM.src[CUT:], STREAM.dst[CUT:], STREAM.t[CUT:]
    assert np.array_equal(loaded.decision_function(*asked), model.decision_function(*asked))


def test_a_graph_to_start_from_is_known_from_the_first_event_on() -> None:
    half = EVENTS // 2
    later = replace(STREAM[half:], initial=Edges(STREAM.src[:half], STREAM.dst[:half], None))
    split = evaluation.tgb_split(later)
    nodes = np.unique(STREAM.src[:half])
    for how in ({}, RECORDED):
        with_past = predictor(epochs=1, **how).fit(later, split)
        without = predictor(epochs=1, **how).fit(replace(later, initial=None), split)
        first = int(later.t[0])
        known, unknown = (p.embeddings(first, nodes) for p in (with_past, without))
        assert np.abs(known - unknown).to_numpy().max() > 0.1


def test_no_negative_for_training_comes_from_events_kept_out_of_it() -> None:
    split = evaluation.tgn_split(STREAM)
    kept_out = np.setdiff1d(
        np.union1d(STREAM.src, STREAM.dst),
        np.union1d(*(c[split.train] for c in (STREAM.src, STREAM.dst))),
    )
    assert len(kept_out)
    learner = predictor(max_examples=200, past_negatives=3, epochs=1)
    learner.observe(STREAM, split)
    drawn = []
    examples = LinkPredictor._examples

    def watched(self: LinkPredictor, *args: Any, **options: Any) -> Any:
        drawn.append(examples(self, *args, **options))
        return drawn[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinkPredictor, "_examples", watched)
        learner.train(split)
    assert not np.isin([drawn[0].src, drawn[0].dst], kept_out).any()


def test_features_are_read_in_pieces_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = predictor(epochs=1, max_examples=50)
    learner.observe(STREAM, SPLIT)
    learner._features = learner._new_features()
    examples, _ = learner._divided(SPLIT)
    whole = learner._read(examples)
    monkeypatch.setattr(link, "_PAIRS_AT_ONCE", 64)
    seen: list[tuple[int, int]] = []
    pieces = learner._read_many(examples, lambda done, total, _: seen.append((done, total)))
    np.testing.assert_array_equal(pieces, whole)
    assert seen[0] == (64, len(whole))
    assert seen[-1] == (len(whole), len(whole))


def test_a_model_saved_before_records_had_a_choice_is_one_of_float32(tmp_path: Path) -> None:
    old = predictor(epochs=1, dtype="float32").fit(STREAM, SPLIT)
    old.save(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    weights, about = read_arrays(file)
    del about["settings"]["dtype"]
    write_arrays(file, weights, about)
    loaded = LinkPredictor.load(tmp_path / "model")
    assert loaded.dtype == "float32"
    src, dst, t = questions(20)
    np.testing.assert_array_equal(
        loaded.decision_function(src, dst, t), old.decision_function(src, dst, t)
    )


def test_a_model_of_another_release_is_rejected_with_what_to_do(tmp_path: Path) -> None:
    predictor(epochs=1).fit(STREAM, SPLIT).save(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    weights, about = read_arrays(file)
    for change, words in (
        ({"later_setting": 3}, "the setting later_setting, .* train again"),
        ({"pair_features": ["history"]}, r"train again: it reads \d+ numbers .* there are \d+"),
    ):
        write_arrays(file, weights, about | {"settings": about["settings"] | change})
        with pytest.raises(StateFileError, match=words):
            LinkPredictor.load(tmp_path / "model")
    write_arrays(file, weights, about | {"format": 2})  # it ranked by the logit of pairs
    with pytest.raises(StateFileError, match=r"format 2; .* format 3; .* train again"):
        LinkPredictor.load(tmp_path / "model")
    write_arrays(file, weights, about)
    history = tmp_path / "model" / "trajectories" / "history"
    content = history.read_bytes()
    history.unlink()  # the file may have other names
    history.write_bytes(content[:16] + b"\x01" + content[17:])
    with pytest.raises(StateFileError, match=r"version 1; .* train or record again"):
        LinkPredictor.load(tmp_path / "model")


def test_a_saved_model_answers_without_torch(tmp_path: Path) -> None:
    learner = predictor(epochs=1).fit(STREAM, SPLIT)
    learner.save(tmp_path / "model")
    code = (
        "import sys; from tidegraph.learning.tasks import LinkPredictor\n"
        f"learner = LinkPredictor.load({str(tmp_path / 'model')!r})\n"
        f"print(*learner.rank(0, {int(STREAM.t[-1]) + 1}, 3)[0])\n"
        f"learner.save({str(tmp_path / 'copy')!r})\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    ranked, imported = result.stdout.splitlines()
    assert ranked.split() == list(map(str, learner.rank(0, int(STREAM.t[-1]) + 1, 3)[0]))
    assert imported == "False"
    copied = LinkPredictor.load(tmp_path / "copy").train_further(np.arange(20))
    assert (copied.predict_proba(*questions(20)) != learner.predict_proba(*questions(20))).any()


def test_epochs_are_fewer_where_examples_are_many() -> None:
    counts = (0, 10**5, 250_000, 10**6, 10**7)
    assert [default_epochs(count) for count in counts] == [10, 10, 6, 5, 3]
    assert LinkPredictor()._training(2_000_000).epochs == 4
    assert LinkPredictor(epochs=7)._training(2_000_000).epochs == 7


def test_a_failed_observation_changes_nothing() -> None:
    learner = predictor(epochs=1, **RECORDED).fit(STREAM, SPLIT)
    src, dst, t = questions(20)
    before = learner.decision_function(src, dst, t)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.observe(STREAM[: EVENTS // 2], SPLIT, progress=stop)
    np.testing.assert_array_equal(learner.decision_function(src, dst, t), before)


Questions = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def questions(count: int = 200, *, until: int = NOW) -> Questions:
    """Random pairs at times up to and including `until`."""
    random = np.random.default_rng(2)
    first = int(STREAM.t[0])
    return (
        random.integers(0, NODES, count),
        random.integers(0, NODES, count),
        random.integers(first, until + 1, count),
    )


def test_links_are_predicted_better_than_by_chance(fitted: LinkPredictor) -> None:
    result = fitted.evaluate(SPLIT, samplers=("random-dst",))
    assert result.row("test").metrics["ap"] > 0.7
    assert result.training_negatives == fitted.training_negatives
    assert {row.scorer for row in result.rows} > {"tidegraph"}  # heuristics stand beside


def test_a_probability_is_the_squashed_score(fitted: LinkPredictor) -> None:
    asked = questions()
    expected = 1 / (1 + np.exp(-fitted.decision_function(*asked).astype(np.float64)))
    np.testing.assert_allclose(fitted.predict_proba(*asked), expected, rtol=1e-5)


def test_asking_changes_nothing(fitted: LinkPredictor) -> None:
    asked = questions()
    before = fitted.decision_function(*asked)
    fitted.rank(3, NOW)
    fitted.decision_function(*questions(50, until=int(STREAM.t[-1])))
    assert np.array_equal(fitted.decision_function(*asked), before)


def test_an_answer_does_not_depend_on_what_else_is_asked(fitted: LinkPredictor) -> None:
    src, dst, t = questions(20)
    asked = zip(src.tolist(), dst.tolist(), t.tolist(), strict=True)
    one_by_one = [fitted.decision_function(*pair)[0] for pair in asked]
    np.testing.assert_allclose(
        fitted.decision_function(src, dst, t), one_by_one, rtol=1e-4, atol=1e-4
    )


def test_the_same_seed_gives_the_same_scores(fitted: LinkPredictor) -> None:
    again = predictor().fit(STREAM, SPLIT)
    assert np.array_equal(
        again.decision_function(*questions()), fitted.decision_function(*questions())
    )
    other = predictor(seed=6).fit(STREAM, SPLIT)
    assert not np.array_equal(
        other.decision_function(*questions()), fitted.decision_function(*questions())
    )


def until_test(split: Split) -> Split:
    """The same training and validation events of a stream that ends where test begins."""
    nothing = np.zeros(0, dtype=np.int64)
    return replace(split, test=nothing, new_test=nothing)


def test_what_happens_at_or_after_a_time_has_no_part_in_answers_for_it(
    fitted: LinkPredictor,
) -> None:
    ended = predictor().fit(STREAM.before(NOW), until_test(SPLIT))
    expected = fitted.decision_function(*questions())
    assert np.array_equal(ended.decision_function(*questions()), expected)
    # Another future: the same times, other pairs.
    later = STREAM[int(np.searchsorted(STREAM.t, NOW)) :]
    ended.advance(replace(later, src=later.dst[::-1].copy(), dst=later.src.copy()))
    assert np.array_equal(ended.decision_function(*questions()), expected)
    past_it = questions(until=int(STREAM.t[-1]))
    assert not np.array_equal(ended.decision_function(*past_it), fitted.decision_function(*past_it))


def test_what_happens_at_or_after_the_known_time_has_no_part_in_answers_as_of_it(
    fitted: LinkPredictor,
) -> None:
    ended = predictor().fit(STREAM.before(NOW), until_test(SPLIT))
    src, dst, _ = questions()
    later = np.full(len(src), int(STREAM.t[-1]))
    as_of = fitted.decision_function(src, dst, later, NOW)
    assert np.array_equal(ended.decision_function(src, dst, later, NOW), as_of)
    assert not np.array_equal(fitted.decision_function(src, dst, later), as_of)
    now = np.full(len(src), NOW)
    assert np.array_equal(
        fitted.decision_function(src, dst, now, NOW), fitted.decision_function(src, dst, now)
    )


def test_a_model_of_batches_learns_and_answers_from_what_precedes_them() -> None:
    model = predictor(knowledge="batch", epochs=1)
    model.observe(STREAM, SPLIT)
    known = STREAM.t[np.arange(EVENTS) // 200 * 200]
    for events in (SPLIT.train, SPLIT.validation):
        examples = model._examples(events, np.arange(events[0]), seed=0)
        np.testing.assert_array_equal(examples.as_of[: len(events)], known[events])
        np.testing.assert_array_equal(examples.t[: len(events)], STREAM.t[events])
    model.train(SPLIT)
    result = model.evaluate(SPLIT, parts=("test",), heuristics=list)
    assert result.knowledge == "batch"
    per_event = model.evaluate(SPLIT, parts=("test",), heuristics=list, knowledge="event")
    assert per_event.row().metrics != result.row().metrics


def test_taking_in_events_later_equals_having_seen_them_at_once(fitted: LinkPredictor) -> None:
    ended = predictor().fit(STREAM.before(NOW), until_test(SPLIT))
    rest = STREAM[len(STREAM.before(NOW)) :]
    half = int(np.searchsorted(rest.t, rest.t[len(rest) // 2]))  # between two times
    ended.advance(rest[:half]).advance(rest[half:])
    asked = questions(until=int(STREAM.t[-1]) + 10)
    np.testing.assert_allclose(
        ended.decision_function(*asked), fitted.decision_function(*asked), rtol=1e-4, atol=1e-4
    )


def test_earlier_events_cannot_be_taken_in(fitted: LinkPredictor, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    copy = LinkPredictor.load(tmp_path / "model")
    before = copy.decision_function(*questions())
    with pytest.raises(TidegraphError, match="before these end"):
        copy.advance(STREAM[:10])
    assert np.array_equal(copy.decision_function(*questions()), before)


def test_a_ranking_lists_the_likeliest_first(fitted: LinkPredictor) -> None:
    source = int(STREAM.src[CUT])
    nodes, probability = fitted.rank(source, NOW, k=5)
    assert len(nodes) == len(set(nodes.tolist())) == 5
    assert (np.diff(probability) <= 0).all()
    np.testing.assert_allclose(
        fitted.predict_proba(source, nodes, NOW, given_src=True), probability, rtol=1e-4, atol=1e-5
    )
    everyone, all_of_them = fitted.rank(source, NOW, k=NODES)
    assert set(everyone.tolist()) == set(STREAM.before(NOW).dst.tolist()) - {source}
    np.testing.assert_allclose(all_of_them[0], probability[0], rtol=1e-6)


def test_a_source_that_acts_after_long_returns_to_where_it_was() -> None:
    # Every source has a page of its own, acts in bursts, and meets a popular page now and then.
    # Pairs of the past as negatives teach that sources at rest do not act, but say nothing about
    # where one goes that does.
    random = np.random.default_rng(0)
    burst = np.repeat(random.integers(0, 60, 700), 5)
    own = random.random(len(burst)) < 0.7
    dst = 60 + np.where(own, burst, random.integers(60, 70, len(burst)))
    stream = EventStream(burst, dst, np.arange(len(burst)), 130)
    split = evaluation.tgb_split(stream)
    model = predictor(epochs=8, past_negatives=2, past_weight=3.0).fit(stream, split)
    first = split.test[burst[split.test] != burst[split.test - 1]]  # of a burst
    asked = first[own[first]]
    places = {}
    for given_src in (True, False):
        scores = np.array(
            [
                model.decision_function(burst[k], np.arange(60, 130), k, given_src=given_src)
                for k in asked
            ]
        )
        true = scores[np.arange(len(asked)), dst[asked] - 60]
        places[given_src] = evaluation.metrics.mrr(1 + (scores > true[:, None]).sum(axis=1))
    assert places[True] > 0.95
    assert places[True] > places[False] + 0.05


def test_a_ranking_of_few_candidates_scores_them_as_that_of_all(fitted: LinkPredictor) -> None:
    sources = np.unique(STREAM.src[CUT:])[:4]
    everyone = len(np.unique(STREAM.before(NOW).dst))
    src, dst, probability = fitted.rank_all(NOW, 5, src=sources, most=12)
    np.testing.assert_array_equal(src, np.repeat(sources, 5))
    np.testing.assert_allclose(
        fitted.predict_proba(src, dst, NOW, given_src=True), probability, rtol=1e-4, atol=1e-5
    )
    source = int(sources[0])
    few = fitted._candidates.of(source, NOW, 12, lambda nodes: nodes != source)
    assert set(fitted.rank(source, NOW, k=12, most=12)[0].tolist()) == set(few.tolist())
    for whole in (fitted.rank_all(NOW, 5, src=sources, most=most) for most in (None, everyone)):
        assert (whole[2] >= probability - 1e-5).all()
    # As many as are wanted are read, however few that is.
    assert len(fitted.rank(source, NOW, k=20, most=3, without_self=False)[0]) == 20
    with pytest.raises(ParameterError, match="most is 0"):
        fitted.rank(source, NOW, most=0)


def test_a_ranking_leaves_out_what_is_not_wanted(fitted: LinkPredictor) -> None:
    past = STREAM.before(NOW)
    source = int(past.src[-1])
    known = set(past.dst[past.src == source].tolist())
    new, _ = fitted.rank(source, NOW, k=NODES, without_known=True)
    assert known
    assert not known & set(new.tolist())
    itself, _ = fitted.rank(source, NOW, k=NODES, candidates=[source, 1, 2], without_self=False)
    assert set(itself.tolist()) == {source, 1, 2}
    without, _ = fitted.rank(source, NOW, k=NODES, candidates=[source, 1, 2])
    assert set(without.tolist()) == {1, 2} - {source}
    assert len(fitted.rank(source, NOW, candidates=[source])[0]) == 0


def test_a_ranking_of_few_candidates_fills_up_with_those_that_are_wanted(
    fitted: LinkPredictor,
) -> None:
    past = STREAM.before(NOW)
    for source in np.unique(past.src)[:10].tolist():
        unknown = np.setdiff1d(past.dst, [*past.dst[past.src == source], source])
        new, _ = fitted.rank(source, NOW, k=6, most=6, without_known=True)
        assert len(new) == min(6, len(unknown))
        assert np.isin(new, unknown).all()
        assert len(fitted.rank(source, NOW, k=6, most=6)[0]) == 6  # without itself


def test_a_ranking_is_for_one_time(fitted: LinkPredictor) -> None:
    for times in ([NOW, NOW + 1], [NOW], []):
        with pytest.raises(DataError, match="one time"):
            fitted.rank_all(times, 3)


def test_unknown_nodes_are_named(fitted: LinkPredictor) -> None:
    with pytest.raises(TidegraphError, match=f"node {NODES}"):
        fitted.decision_function(0, NODES, NOW)
    with pytest.raises(TidegraphError, match="node -1"):
        fitted.decision_function(-1, 0, NOW)
    with pytest.raises(DataError, match="'ann'"):
        fitted.decision_function(["ann"], [0], [NOW])
    with pytest.raises(DataError, match=r"node 0\.5 .*integers and not as float64"):
        fitted.decision_function([0.5], [0], [NOW])


def test_a_time_beyond_int64_is_rejected_and_not_moved_into_the_past(fitted: LinkPredictor) -> None:
    with pytest.raises(DataError, match=r"times .* does not fit into int64"):
        fitted.decision_function(0, 1, np.uint64(2**63))


def test_candidates_that_are_unknown_are_named(fitted: LinkPredictor) -> None:
    with pytest.raises(TidegraphError, match=f"node {NODES + 3}"):
        fitted.rank(0, NOW, candidates=[1, 2, NODES + 3])
    with pytest.raises(TidegraphError, match=f"node {NODES}"):
        fitted.rank(NODES, NOW)


def test_a_node_without_history_gets_a_probability(fitted: LinkPredictor) -> None:
    beginning = int(STREAM.t[0])
    for answer in (
        fitted.predict_proba(LONER, np.arange(NODES), NOW),
        fitted.predict_proba(np.arange(NODES), LONER, NOW),
        fitted.predict_proba(np.arange(NODES), 0, beginning),  # when nobody has a history
    ):
        assert ((answer >= 0) & (answer <= 1)).all()
    assert len(fitted.rank(LONER, NOW)[0]) == 10


def test_nothing_is_answered_before_fitting(tmp_path: Path) -> None:
    for ask in (
        lambda: predictor().decision_function(0, 1, 2),
        lambda: predictor().rank(0, 1),
        lambda: predictor().save(tmp_path / "nothing"),
        lambda: predictor().advance(STREAM),
    ):
        with pytest.raises(ParameterError, match="call fit"):
            ask()
    assert not (tmp_path / "nothing").exists()


def test_a_saved_predictor_answers_the_same_and_goes_on(tmp_path: Path) -> None:
    first = predictor().fit(STREAM.before(NOW), until_test(SPLIT))
    first.save(tmp_path / "model")
    loaded = LinkPredictor.load(tmp_path / "model")
    assert np.array_equal(
        loaded.decision_function(*questions()), first.decision_function(*questions())
    )
    assert loaded.get_params() == first.get_params()
    assert loaded.epochs_ == first.epochs_
    rest = STREAM[len(STREAM.before(NOW)) :]
    asked = questions(until=int(STREAM.t[-1]))
    assert np.array_equal(
        loaded.advance(rest).decision_function(*asked),
        first.advance(rest).decision_function(*asked),
    )
    with pytest.raises(StateFileError, match="exists"):
        first.save(tmp_path / "model")


def test_further_training_moves_the_weights_and_the_state() -> None:
    model = predictor().fit(STREAM.before(NOW), until_test(SPLIT))
    before = model.decision_function(*questions())
    model.partial_fit(STREAM[len(STREAM.before(NOW)) :])
    after = model.decision_function(*questions())
    assert not np.array_equal(after, before)
    assert np.corrcoef(after, before)[0, 1] > 0.9  # it goes on from where it was
    assert model.evaluate(SPLIT, samplers=("random-dst",)).row("test").metrics["ap"] > 0.7


def test_a_training_goes_on_from_its_checkpoint(fitted: LinkPredictor, tmp_path: Path) -> None:
    model = predictor()
    model.observe(STREAM, SPLIT)

    class Stopped(Exception):
        pass

    def stop(done: int, total: int, text: str) -> None:
        if done > total // 2:
            raise Stopped

    with pytest.raises(Stopped):
        model.train(SPLIT, checkpoint=tmp_path / "training", progress=stop)
    model.train(SPLIT, checkpoint=tmp_path / "training")
    assert np.array_equal(
        model.decision_function(*questions()), fitted.decision_function(*questions())
    )


def test_settings_are_those_of_the_constructor_and_can_be_cloned() -> None:
    from sklearn.base import clone

    model = predictor(half_lives=(3.0, 5.0), encoder="gru", encoder_options={"layers": 1})
    cloned = clone(model)
    assert cloned is not model
    assert cloned.get_params() == model.get_params()
    assert model.set_params(hidden=8) is model
    assert (model.hidden, cloned.hidden) == (8, SETTINGS["hidden"])
    assert LinkPredictor(**model.get_params()).get_params() == model.get_params()


def test_a_wrong_setting_is_rejected_and_changes_nothing() -> None:
    model = predictor()
    before = model.get_params()
    with pytest.raises(ParameterError, match="no setting 'hiden'"):
        model.set_params(hidden=8, hiden=9)
    with pytest.raises(ParameterError, match="encoder is 'rnn'"):
        model.set_params(hidden=8, encoder="rnn")
    assert model.get_params() == before
    with pytest.raises(ParameterError, match="needs an encoder"):
        predictor(decoder="hadamard")
    with pytest.raises(ParameterError, match="at least one negative"):
        predictor(random_negatives=0, past_negatives=0)
    with pytest.raises(ParameterError, match="give some of history, local, sketches"):
        predictor(pair_features=[])
    with pytest.raises(ParameterError, match="pair_features is 'local'"):
        predictor(pair_features="local")


@pytest.mark.parametrize("parts", [["sketches"], ["local"], ["sketches", "history"]])
def test_a_model_reads_the_parts_it_is_given_and_saves_which(
    parts: list[str], fitted: LinkPredictor, tmp_path: Path
) -> None:
    model = predictor(pair_features=parts, epochs=1).fit(STREAM, SPLIT)
    names = model._features.names
    reads = {
        "sketches": "product x·z0" in names,
        "local": "hop_1" in names,
        "history": "pair.known" in names,
    }
    assert {part for part, read in reads.items() if read} == set(parts)
    answers = model.decision_function(*questions())
    assert not np.array_equal(answers, fitted.decision_function(*questions()))
    model.save(tmp_path / "model")
    assert np.array_equal(
        LinkPredictor.load(tmp_path / "model").decision_function(*questions()), answers
    )


def test_settings_of_the_record_change_no_answer_of_a_model_that_does_not_read_it() -> None:
    others = {"columns": 4, "alpha": 0.5, "half_lives": [1.0], "high_pass": False, "epsilon": 0.2}
    one, other = (predictor(epochs=1, **more).fit(STREAM, SPLIT) for more in ({}, others))
    answers = one.decision_function(*questions())
    assert np.array_equal(other.decision_function(*questions()), answers)


def test_without_a_split_the_last_events_decide_when_to_stop() -> None:
    model = predictor(epochs=1).fit(STREAM)
    assert np.isfinite(model.decision_function(*questions())).all()
    assert model._span == float(np.quantile(STREAM.t, 0.85)) - STREAM.t[0]
    with pytest.raises(DataError, match="no events"):
        predictor().fit(STREAM[:0])


def test_a_stream_without_validation_is_rejected() -> None:
    empty = replace(SPLIT, validation=np.zeros(0, dtype=np.int64))
    with pytest.raises(DataError, match="no events for validation"):
        predictor().fit(STREAM, empty)


class LastChange(nn.Module):
    """An encoder of one's own: a layer on the newest change."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(columns, width)

    def forward(self, window: Window) -> Tensor:
        return torch.tanh(self.layer(window.change[:, -1]))


def plain_pair(width: int, pair: int, **options: Any) -> nn.Module:
    """A decoder made by a function."""
    return Pair(width, pair, **options)


@pytest.mark.parametrize("encoder", ["state", "lstm", "transformer", LastChange])
def test_any_encoder_can_be_plugged_in(encoder: Any) -> None:
    model = predictor(encoder=encoder, width=8, window=4, epochs=1, max_examples=300)
    model.fit(STREAM, SPLIT)
    assert np.isfinite(model.decision_function(*questions())).all()


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [("lstm", "concatenation"), ("gru", "pair"), ("transformer", "hadamard")],
)
def test_windows_may_be_longer_than_any_history(encoder: str, decoder: str) -> None:
    short = STREAM[:200]
    model = predictor(
        encoder=encoder, decoder=decoder, width=8, window=70, epochs=1, random_negatives=1
    ).fit(short)
    now = int(short.t[-1]) + 1
    src, dst = questions(30)[:2]
    together = model.decision_function(src, dst, now)
    assert np.isfinite(together).all()
    # Nodes that are asked about several times are encoded once, and alone they are the same.
    alone = [model.decision_function(int(u), int(v), now)[0] for u, v in zip(src, dst, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)
    assert np.isfinite(model.decision_function(LONER, np.arange(NODES), now)).all()
    assert np.isfinite(model.decision_function(np.arange(NODES), 0, int(short.t[0]))).all()
    with pytest.raises(TidegraphError, match=f"node {NODES}"):
        model.decision_function(0, NODES, now)


def test_modules_of_ones_own_are_given_again_when_loading(tmp_path: Path) -> None:
    model = predictor(encoder=LastChange, decoder=plain_pair, width=8, epochs=1, max_examples=300)
    model.fit(STREAM, SPLIT).save(tmp_path / "model")
    with pytest.raises(StateFileError, match=r"LastChange.*load\(path, encoder=\.\.\.\)"):
        LinkPredictor.load(tmp_path / "model", decoder=plain_pair)
    with pytest.raises(StateFileError, match="plain_pair"):
        LinkPredictor.load(tmp_path / "model", encoder=LastChange)
    loaded = LinkPredictor.load(tmp_path / "model", encoder=LastChange, decoder=plain_pair)
    assert np.array_equal(
        loaded.decision_function(*questions()), model.decision_function(*questions())
    )


def test_channels_follow_the_settings() -> None:
    model = predictor(high_pass=False, half_lives=(20.0,), beta=0.3)
    model.observe(STREAM.before(NOW), SPLIT)
    channels = model.propagator(STREAM).channels
    assert [channel.half_life for channel in channels] == [None, 20.0]
    assert all(channel.gamma > 0 for channel in channels)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"hidden": 0}, "hidden is 0.* 1"),
        ({"hidden": "64"}, "hidden is '64'.*whole number"),
        ({"dropout": 1.0}, r"dropout is 1\.0.* 0 .*below 1"),
        ({"past_weight": -1.0}, r"past_weight is -1\.0.* 0"),
        ({"half_lives": [0.0]}, "half_lives"),
        ({"high_pass": 1}, "high_pass is 1.*true or false"),
        ({"device": "cuda:77"}, "'cpu' always can"),
        ({"alpha": 7.0}, "alpha"),
    ],
)
def test_settings_that_cannot_work_are_rejected(settings: dict[str, Any], advice: str) -> None:
    with pytest.raises(ParameterError, match=advice):
        LinkPredictor(**settings)


def test_a_saved_model_stays_as_it_is_when_one_loaded_from_it_goes_on(tmp_path: Path) -> None:
    early = replace(STREAM[:CUT])
    predictor(epochs=1).fit(early).save(tmp_path / "model")
    for _ in range(2):  # a second one starts from the same state
        model = LinkPredictor.load(tmp_path / "model")
        before = model.decision_function(*questions())
        model.advance(STREAM[CUT:])
        assert len(model.stream) == EVENTS
        np.testing.assert_array_equal(model.decision_function(*questions()), before)
    assert len(LinkPredictor.load(tmp_path / "model").stream) == CUT


def test_a_changed_setting_forgets_what_was_learned() -> None:
    model = predictor(epochs=1).fit(STREAM, SPLIT)
    model.set_params(threads=2, seed=SETTINGS["seed"])
    model.decision_function([0], [1], [NOW])
    model.set_params(seed=6)
    with pytest.raises(ParameterError, match="learned nothing yet"):
        model.decision_function([0], [1], [NOW])


def test_past_negatives_happened_strictly_before() -> None:
    ties = replace(STREAM, t=STREAM.t // 50 * 50)
    split = evaluation.tgb_split(ties)
    model = predictor(random_negatives=0, past_negatives=3)
    model.observe(ties, split)
    met: dict[tuple[int, int], int] = {}
    for src, dst, t in zip(ties.src.tolist(), ties.dst.tolist(), ties.t.tolist(), strict=True):
        met.setdefault((src, dst), t)
    for events in (split.train, split.validation):
        examples = model._examples(events, np.arange(events[0]), seed=0)
        rows = np.flatnonzero((examples.label == 0) & (examples.weight > 0))
        assert len(rows) > 100
        for row in rows.tolist():
            pair = int(examples.src[row]), int(examples.dst[row])
            assert met[pair] < examples.t[row]


def test_further_training_needs_a_first_one() -> None:
    with pytest.raises(ParameterError, match="learned nothing yet"):
        predictor().partial_fit(STREAM)


def test_a_ranking_is_of_one_source_and_of_some_length(fitted: LinkPredictor) -> None:
    for k in (0, -1, 2.5, 2.0, np.nan, "3"):
        with pytest.raises(ParameterError, match=f"k is {k!r}.*1"):
            fitted.rank(0, NOW, k=k)  # type: ignore[arg-type]
    assert len(fitted.rank(0, NOW, k=np.int64(2))[0]) == 2  # type: ignore[arg-type]
    with pytest.raises(DataError, match="one source at one time"):
        fitted.rank([0, 1], NOW)


@pytest.mark.parametrize("ask", ["decision_function", "predict_proba", "predict", "score"])
def test_columns_of_a_question_have_one_length(fitted: LinkPredictor, ask: str) -> None:
    method = getattr(fitted, ask)
    y = [[1, 0, 1]] if ask == "score" else []
    for dst in ([1, 2], []):
        with pytest.raises(ParameterError, match=rf"src 3, dst {len(dst)}"):
            method([0, 1, 2], dst, NOW, *y)
    for ragged in ([1, [2, 3], 4], [[1, 2], [3]], np.ones((3, 2), dtype=int)):
        with pytest.raises(ParameterError, match="dst is a list of lists"):
            method([0, 1, 2], ragged, NOW, *y)
        with pytest.raises(ParameterError, match="t is a list of lists"):
            method([0, 1, 2], 1, ragged, *y)
    method(0, [1, 2, 3], [NOW], *y)  # one value serves all
    if y:
        with pytest.raises(ParameterError, match="src 3, dst 1, t 1, y 2"):
            method([0, 1, 2], 1, NOW, [0, 1])


def test_a_failed_training_leaves_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = predictor(epochs=1).fit(STREAM[:CUT])
    asked = questions()
    before = model.decision_function(*asked)

    def stopped(done: int, total: int, what: str) -> None:
        if what.startswith("epoch"):
            raise KeyboardInterrupt

    other = replace(STREAM, src=STREAM.dst, dst=STREAM.src)
    with pytest.raises(KeyboardInterrupt):
        model.fit(other, SPLIT, progress=stopped)
    assert len(model.stream) == CUT
    assert np.array_equal(model.decision_function(*asked), before)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(STREAM[CUT:], progress=stopped)
    # The events are taken in; what was known before them is answered with the old weights.
    assert len(model.stream) == len(STREAM)
    assert np.array_equal(model.decision_function(*asked), before)
    fresh = predictor()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(STREAM, SPLIT, progress=stopped)
    with pytest.raises(ParameterError, match="learned nothing yet"):
        fresh.decision_function(*asked)


def test_a_save_that_was_killed_is_in_nobodys_way(
    fitted: LinkPredictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    with monkeypatch.context() as patch:
        patch.setattr(EventStream, "save", lambda *_: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            fitted.save(path)
    assert not path.exists()
    fitted.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    assert np.array_equal(
        LinkPredictor.load(path).decision_function(0, 1, NOW), fitted.decision_function(0, 1, NOW)
    )


def test_a_predictor_says_what_is_special_about_it(fitted: LinkPredictor) -> None:
    assert repr(LinkPredictor()) == "LinkPredictor()"
    assert repr(predictor(threads=None)).startswith("LinkPredictor(columns=16, hidden=32, epochs=4")
    assert eval(repr(predictor())).get_params() == predictor().get_params()
    assert f"fitted to EventStream({STREAM.title!r}, events=3000" in repr(fitted)


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    predictor(epochs=1).fit(STREAM, SPLIT, progress=lambda done, total, what: told.append(what))
    assert told[-1] == "epoch 1"
    quick = predictor(epochs=1, columns=4, max_examples=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegraph.core.display._QUIET_S", 0.0)
        quick.fit(STREAM, SPLIT, progress=True)
    assert "fit: " in capsys.readouterr().err
    quick.fit(STREAM, SPLIT, progress=False)
    assert capsys.readouterr().err == ""


def test_later_events_may_bring_new_nodes(tmp_path: Path) -> None:
    model = predictor(epochs=1).fit(STREAM[:CUT])
    late = STREAM[CUT:]
    nodes = NODES + 5
    random = np.random.default_rng(1)
    late = replace(late, src=random.integers(0, nodes, len(late)), nodes=nodes)
    asked = questions()
    before = model.decision_function(*asked)
    model.advance(late)
    assert np.array_equal(model.decision_function(*asked), before)  # the past is as it was
    end = int(late.t[-1]) + 1
    fresh = np.arange(NODES, nodes)
    scores = model.decision_function(fresh, late.dst[:5], end)
    assert np.isfinite(scores).all()
    # The history and the representations of new nodes are those of having known them all along.
    history = History(nodes, model._history.half_lives)
    history.append(model.stream)
    rows = history.of_nodes(fresh, np.full(5, end))
    assert np.array_equal(model._history.of_nodes(fresh, np.full(5, end)), rows)
    assert model.rank(NODES, end, 3)[0].shape == (3,)
    model.save(tmp_path / "model")
    assert np.array_equal(
        LinkPredictor.load(tmp_path / "model").decision_function(fresh, late.dst[:5], end), scores
    )


def test_a_saved_model_brings_its_history(
    fitted: LinkPredictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save(tmp_path / "model")
    file = tmp_path / "model" / "trajectories" / "history"
    assert [each.name for each in file.parent.glob("history*")] == ["history"]
    asked = questions()
    with monkeypatch.context() as patch:
        patch.setattr(History, "_merge", lambda *_: pytest.fail("built again"))
        model = LinkPredictor.load(tmp_path / "model")
        assert np.array_equal(model.decision_function(*asked), fitted.decision_function(*asked))
    # A model that was saved without one builds it in memory, and stays as it was saved.
    file.unlink()
    model = LinkPredictor.load(tmp_path / "model")
    assert np.array_equal(model.decision_function(*asked), fitted.decision_function(*asked))
    assert not file.exists()
    # One that has gone on brings all events.
    model = predictor(epochs=1).fit(STREAM[:CUT])
    model.advance(STREAM[CUT:])
    expected = model.decision_function(*asked)
    for name in ("first", "later"):
        model.save(tmp_path / name)
    with monkeypatch.context() as patch:
        patch.setattr(History, "_merge", lambda *_: pytest.fail("built again"))
        later = LinkPredictor.load(tmp_path / "later")
        assert len(later._history) == len(STREAM)
        assert np.array_equal(later.decision_function(*asked), expected)


# What strangers try -------------------------------------------------------------------------------


def named(fitted: LinkPredictor, names: list[Any] | NodeNames | None) -> LinkPredictor:
    """Return the same model, whose stream has names and seconds as its unit."""
    model = copy.copy(fitted)
    given = NodeNames(names) if isinstance(names, list) else names
    model._stream = replace(STREAM, names=given, unit="s", title="named")
    return model


def test_names_and_dates_are_accepted_wherever_numbers_are(fitted: LinkPredictor) -> None:
    model = named(fitted, [f"node-{number}" for number in range(NODES)])
    date = np.datetime64(NOW, "s")
    expected = fitted.predict_proba([3, 4], [5, 6], NOW)
    times: list[Any] = [NOW, str(date), date, date.item(), [NOW, str(date)], [str(date)] * 2]
    for t in times:
        found = model.predict_proba(["node-3", "node-4"], ["node-5", "node-6"], t)
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(model.predict_proba([3, 4], ["node-5", "node-6"], NOW), expected)
    candidates = ["node-7", "node-8"]
    for known, asked in zip(
        fitted.rank(3, NOW, candidates=[7, 8]),
        model.rank("node-3", str(date), candidates=candidates),
        strict=True,
    ):
        np.testing.assert_array_equal(known, asked)
    with pytest.raises(DataError, match="node-81"):
        model.rank("node-81", NOW)
    with pytest.raises(DataError, match="yesterday"):
        model.rank("node-3", "yesterday")


def test_ids_that_are_integers_may_be_given_as_text(fitted: LinkPredictor) -> None:
    expected = fitted.predict_proba([3, 4], 5, NOW)
    ids = named(fitted, list(range(1000, 1000 + NODES)))
    np.testing.assert_array_equal(ids.predict_proba(["1003", "1004"], "1005", NOW), expected)
    numbered = named(fitted, None)
    np.testing.assert_array_equal(numbered.predict_proba(["3", "4"], "5", NOW), expected)
    for model in (ids, numbered):
        with pytest.raises(DataError, match="ann"):
            model.predict_proba("ann", 5, NOW)


def test_an_id_may_be_one_node_as_a_source_and_another_as_a_destination(
    fitted: LinkPredictor,
) -> None:
    half = NODES // 2
    model = named(fitted, NodeNames.of_sides(range(half), range(NODES - half)))
    expected = fitted.predict_proba([3, 4], [half + 3, half + 9], NOW)
    np.testing.assert_array_equal(model.predict_proba(["3", "4"], ["3", "9"], NOW), expected)


def test_predictions_are_those_that_scikit_learn_would_give(fitted: LinkPredictor) -> None:
    events = slice(CUT, None)
    asked = STREAM.src[events], STREAM.dst[events], STREAM.t[events]
    probability = fitted.predict_proba(*asked)
    likely = fitted.predict(*asked)
    assert probability.shape == likely.shape == (len(asked[0]),)
    np.testing.assert_array_equal(likely, (probability > 0.5).astype(np.int64))
    assert 0 < likely.mean() < 1
    assert fitted.score(*asked, likely) == 1
    assert fitted.score(*asked, 1 - likely) == 0


def state_before(model: LinkPredictor, t: int) -> NDArray[Any]:
    """Representations as an engine has them that saw only the events before `t`."""
    engine = model.propagator(STREAM)
    engine.apply_steps(STREAM.before(t).steps())
    return engine.embedding().reshape(NODES, -1)


def test_embeddings_as_of_a_time_are_a_data_frame(fitted: LinkPredictor) -> None:
    model = named(fitted, [f"node-{number}" for number in range(NODES)])
    frame = model.embeddings(at=NOW)
    np.testing.assert_array_equal(frame.to_numpy(), state_before(fitted, NOW))
    assert list(frame.index[:2]) == ["node-0", "node-1"]
    assert frame.columns.is_unique
    assert list(frame.columns[[0, 16]]) == ["low_pass_0", "high_pass_0"]
    few = model.embeddings(at=np.datetime64(NOW, "s"), nodes=["node-3", "node-1"])
    assert few.equals(frame.loc[["node-3", "node-1"]])
    now = state_before(fitted, int(STREAM.t[-1]) + 1)
    np.testing.assert_array_equal(model.embeddings().to_numpy(), now)
    assert model.embeddings(at=NOW).equals(frame)  # back from a later time
    one = model.embeddings(at=NOW, nodes="node-3")
    assert one.equals(model.embeddings(at=NOW, nodes=["node-3"]))
    assert model.embeddings(nodes=3).shape == (1, frame.shape[1])
    assert model.embeddings(at=NOW, nodes=[]).shape == (0, frame.shape[1])
    with pytest.raises(ParameterError, match="nodes is a list of lists"):
        model.embeddings(nodes=[[1], [2, 3]])


def test_embeddings_with_and_without_a_record_agree_within_its_error() -> None:
    how: dict[str, Any] = {"epochs": 1, "epsilon": 0.0, "dtype": "float32"}
    recorded, replayed = (predictor(**how, **more).fit(STREAM, SPLIT) for more in (RECORDED, {}))
    for at in (int(STREAM.t[0]), NOW, int(STREAM.t[-1]) + 1, NOW):
        pd_testing.assert_frame_equal(recorded.embeddings(at), replayed.embeddings(at), rtol=1e-6)


def test_embeddings_of_a_model_that_learned_on_follow_new_nodes() -> None:
    times = np.array([1, 2]) + int(STREAM.t[-1])
    fresh = EventStream([NODES, 0], [1, NODES], times, unit=STREAM.unit)
    model = predictor(epochs=1).fit(STREAM, SPLIT)
    assert len(model.embeddings()) == NODES
    model.advance(fresh)
    whole = predictor(epochs=1).fit(STREAM.joined(fresh), SPLIT)
    assert model.embeddings().equals(whole.embeddings())
    assert len(model.embeddings()) == NODES + 1


def test_an_interrupted_replay_begins_again() -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    model = predictor(epochs=1).fit(STREAM, SPLIT)
    model.embeddings(at=int(STREAM.t[9]))
    with pytest.raises(KeyboardInterrupt):
        model.embeddings(progress=stop)
    np.testing.assert_array_equal(model.embeddings(at=NOW), state_before(model, NOW))


def test_a_model_that_reads_no_representations_records_none(tmp_path: Path) -> None:
    model = predictor(epochs=1, path=str(tmp_path / "kept")).fit(STREAM, SPLIT)
    model.save(tmp_path / "model")
    for kept in (tmp_path / "kept", tmp_path / "model" / "trajectories"):
        assert [file.name for file in kept.iterdir()] == ["history"]
    loaded = LinkPredictor.load(tmp_path / "model")
    assert loaded.embeddings(NOW).equals(model.embeddings(NOW))
    assert not LinkPredictor().reads_record
    assert LinkPredictor(encoder="lstm").reads_record
    assert LinkPredictor(**RECORDED).reads_record


def test_events_that_remove_edges_are_rejected() -> None:
    removed = replace(STREAM, op=np.where(np.arange(EVENTS) == 7, Op.REMOVE, Op.ADD))
    with pytest.raises(DataError, match=r"removes or sets edges.*Op\.ADD"):
        predictor(epochs=1).fit(removed, SPLIT)
    model = predictor(epochs=1).fit(STREAM, SPLIT)
    later = EventStream([0], [1], [int(STREAM.t[-1]) + 1], NODES, op=[Op.REMOVE])
    with pytest.raises(DataError, match="removes or sets edges"):
        model.advance(later)


def test_a_seed_below_zero_is_rejected() -> None:
    with pytest.raises(ParameterError, match=r"seed is -1.*whole number from 0"):
        LinkPredictor(seed=-1)


def test_what_is_not_there_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="nope does not exist; give a directory that save"):
        LinkPredictor.load(tmp_path / "nope")
    with pytest.raises(StateFileError, match="holds no model"):
        LinkPredictor.load(tmp_path)


def test_events_that_are_known_already_are_rejected_with_advice(fitted: LinkPredictor) -> None:
    again = fitted.stream
    with pytest.raises(EventError, match=rf"later\.where\(later\.t > {again.t[-1]}\)"):
        fitted.advance(again)


def test_a_saved_model_is_replaced_only_on_request(fitted: LinkPredictor, tmp_path: Path) -> None:
    path, asked = tmp_path / "model", ([0, 1], [2, 3], int(fitted.stream.t[-1]) + 1)
    fitted.save(path)
    with pytest.raises(StateFileError, match=r"exists; .*overwrite=True"):
        fitted.save(path)
    loaded = LinkPredictor.load(path)
    loaded.save(path, overwrite=True)  # onto what it reads itself
    assert np.array_equal(
        loaded.decision_function(*asked), LinkPredictor.load(path).decision_function(*asked)
    )
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    foreign = tmp_path / "letters"
    foreign.mkdir()
    (foreign / "to-ann.txt").write_text("dear Ann")
    with pytest.raises(StateFileError, match=r"give a directory that does not$"):
        fitted.save(foreign, overwrite=True)
    assert (foreign / "to-ann.txt").read_text() == "dear Ann"


def test_training_negatives_are_described_in_grammatical_numbers() -> None:
    assert "and 1 whole pair of the past" in LinkPredictor().training_negatives
    assert (
        "1 random node and 2 whole pairs"
        in LinkPredictor(random_negatives=1, past_negatives=2, any_node=True).training_negatives
    )


def test_a_save_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = generate_communities(20, 300)
    model = LinkPredictor(columns=2, epochs=1, hidden=4, **RECORDED).fit(stream)

    def full(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tidegraph.store.trajectories.link_or_copy", full)
    with pytest.raises(StorageError, match="No space left"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
