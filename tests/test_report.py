"""Reports show what was evaluated, survive any names in the data, and fit every screen."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import auc
from tests.browser import NAMES, Browser, executable

from tidegraph import EventStream, LinkPredictor, NodeClassifier, evaluation, generate_communities
from tidegraph.core import palette, statefile
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.evaluation import heuristics
from tidegraph.evaluation.memory import Meetings
from tidegraph.events.describe import describe
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import NodeLabels
from tidegraph.report import (
    OBSERVATIONS,
    Observations,
    answering,
    read_observations,
    save_observations,
    telemetry,
    vocabulary,
    write,
    write_comparison,
)
from tidegraph.report.axes import Axis, linear, logarithmic, time_axis
from tidegraph.report.figures import _width, chart
from tidegraph.report.markup import Html, element, table
from tidegraph.report.sections import quality
from tidegraph.report.sections.stream import mover

NODES, EVENTS = 80, 3_000
EVIL = "<script>document.title='taken'</script>&\"'"
SMALL: dict[str, Any] = {"columns": 16, "hidden": 32, "epochs": 3, "threads": 1, "seed": 5}
FIGURES = {
    "headline",
    "training",
    "roc",
    "precision",
    "over-time",
    "calibration",
    "certified",
    "speed",
    "touched",
    "activity",
    "degrees",
    "repeats",
    "map",
    "mover",
}


def communities() -> EventStream:
    """Dates for times, and names that would break a page that trusted them."""
    stream = generate_communities(nodes=NODES, events=EVENTS, communities=4, seed=1)
    names = NodeNames([f"{EVIL}{k}" if k % 2 else f"{'long-' * 30}{k}" for k in range(NODES)])
    t = 1_700_000_000 + stream.t * 600
    return replace(stream, t=t, unit="s", names=names, node_labels=None, title=f"Data {EVIL}")


STREAM = communities()
SPLIT = evaluation.tgb_split(STREAM)


def finished(directory: Path, predictor: Any, result: evaluation.Result, **more: Any) -> Path:
    """A directory as a finished run leaves it."""
    directory.mkdir()
    scores = evaluation.Scores.of([result])
    own = scores.table.pop("tidegraph")
    seeds = [
        {
            sampler: {
                part: {metric: value + shift for metric, value in values.items()}
                for part, values in parts.items()
            }
            for sampler, parts in own.items()
        }
        for shift in (-0.01, 0.01)
    ]
    results = {
        "config": {"model": {"epochs": 3}},
        "command": f"tidegraph run {EVIL}",
        "version": "0.1.0",
        "data": {"title": STREAM.title, "hash": "abc", "events": EVENTS, "nodes": NODES},
        "protocol": "tgb",
        "knowledge": result.knowledge,
        "split": result.split,
        "seeds": [0, 1],
        "metrics": evaluation.over_seeds(seeds),
        "heuristics": scores.table,
        "headlines": scores.headlines,
        "elapsed_s": {"train": 1.5, "total": 3.0},
        "warnings": [f"a note on {EVIL}"],
        "machine": {"cpu": "one", "cores": 2},
        **more,
    }
    (directory / "metrics.json").write_text(json.dumps(results))
    (directory / "config.toml").write_text(f'name = "{EVIL}"\n')
    save_observations(directory / OBSERVATIONS, predictor=predictor, stream=STREAM, split=SPLIT)
    return directory


@pytest.fixture(autouse=True, scope="module")
def _a_short_stretch_to_explain() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry, "_EXPLAINED_EVENTS", 100)
        yield


@pytest.fixture(scope="module")
def predictor() -> LinkPredictor:
    return LinkPredictor(**SMALL, batch_size=500).fit(STREAM, SPLIT)


@pytest.fixture(scope="module")
def result(predictor: LinkPredictor) -> evaluation.Result:
    return predictor.evaluate(SPLIT, samplers=("random-dst", "historical"), parts=("test",))


@pytest.fixture(scope="module")
def run(
    predictor: LinkPredictor,
    result: evaluation.Result,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    return finished(tmp_path_factory.mktemp("runs") / "links", predictor, result)


@pytest.fixture(scope="module")
def of_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    classifier = NodeClassifier(**SMALL, members=1).fit(STREAM, SPLIT)
    result = classifier.evaluate(SPLIT, parts=("test",))
    return finished(tmp_path_factory.mktemp("runs") / "nodes", classifier, result)


@pytest.fixture(scope="module")
def seen(run: Path) -> Observations:
    found = read_observations(run / OBSERVATIONS)
    assert found is not None
    return found


def changed(run: Path, to: Path, **more: Any) -> Path:
    """The same run with other results."""
    to.mkdir()
    results = json.loads((run / "metrics.json").read_text())
    (to / "metrics.json").write_text(json.dumps({**results, **more}))
    (to / OBSERVATIONS).write_bytes((run / OBSERVATIONS).read_bytes())
    return to


def _section(page: Path, name: str) -> str:
    found = re.search(rf'<section id="{name}">.*?</section>', page.read_text(), re.DOTALL)
    assert found is not None
    return found[0]


def _ap(heuristic: float) -> dict[str, Any]:
    """Results in which a heuristic has this AP and the model 0.9 ± 0.02."""
    own = {"ap": {"mean": 0.9, "std": 0.02, "per_seed": [0.88, 0.92]}}
    rule = {"random-dst": {"all": {"ap": heuristic}}}
    return {"metrics": {"random-dst": {"all": own}}, "heuristics": {"rule": rule}}


# Observations -------------------------------------------------------------------------------------


def test_curves_have_the_areas_that_the_evaluation_reports(
    seen: Observations, result: evaluation.Result
) -> None:
    for examples, sampler in zip(quality.scored(seen), ("random-dst", "historical"), strict=True):
        reported = result.row(sampler=sampler).metrics
        assert auc(*quality.roc(examples)) == pytest.approx(reported["auc_global"], abs=1e-6)
        recall, precision = quality.precision_recall(examples)
        area = np.sum(np.diff(recall, prepend=0) * precision)
        assert area == pytest.approx(reported["ap_global"], abs=1e-6)


def test_the_replay_covers_the_stream_and_keeps_its_promise(seen: Observations) -> None:
    assert seen.arrays["replay.events"].sum() == EVENTS
    assert seen.arrays["replay.t"][-1] == STREAM.t[-1]
    assert (np.diff(seen.arrays["replay.t"]) >= 0).all()
    assert 0 < seen.arrays["replay.certified"].max() < 1.05


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """The telemetry of a recording."""
    watch = telemetry.Telemetry(STREAM, SPLIT)
    model = LinkPredictor(
        **SMALL, pair_features=("history", "sketches"), path=str(tmp_path / "store")
    )
    model.observe(STREAM, SPLIT, watch=watch)
    watch.save(tmp_path / "telemetry")
    return tmp_path / "telemetry"


def observed(predictor: LinkPredictor, split: evaluation.Split, watched: Path) -> Observations:
    path = watched.with_name("observations")
    save_observations(path, predictor=predictor, stream=STREAM, split=split, telemetry=watched)
    found = read_observations(path)
    assert found is not None
    return found


def test_telemetry_of_a_recording_equals_that_of_a_replay(
    predictor: LinkPredictor, seen: Observations, watched: Path
) -> None:
    found = observed(predictor, SPLIT, watched)
    assert found.about == {**seen.about, "recorded": True}
    assert found.arrays.keys() == seen.arrays.keys()
    for name in found.arrays.keys() - {"replay.seconds"}:
        assert np.array_equal(found.arrays[name], seen.arrays[name]), name


@pytest.mark.parametrize("damage", ["other split", "cut off", "absent"])
def test_telemetry_that_does_not_fit_is_replaced_by_a_replay(
    damage: str, predictor: LinkPredictor, watched: Path
) -> None:
    split = SPLIT
    if damage == "other split":
        begin, end = STREAM.t[[-200, -50]].astype(float).tolist()
        split = evaluation.time_split(STREAM, validation_time=begin, test_time=end)
    elif damage == "cut off":
        watched.write_bytes(watched.read_bytes()[:-100])
    else:
        watched.unlink()
    found = observed(predictor, split, watched)
    assert not found.about["recorded"]
    assert found.arrays["replay.events"].sum() == EVENTS


def test_a_resumed_recording_leaves_no_telemetry(predictor: LinkPredictor, tmp_path: Path) -> None:
    watch = telemetry.Telemetry(STREAM, SPLIT)
    assert watch(predictor.propagator(STREAM), 7, 0) == len(watch.steps)
    assert watch(predictor.propagator(STREAM), len(watch.steps), 0) == len(watch.steps)
    watch.save(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_the_repeat_rate_over_time_adds_up_to_that_of_the_stream(seen: Observations) -> None:
    pieces = len(seen.arrays["repeat.rate"])
    assert EVENTS % pieces == 0  # so that all pieces weigh the same
    assert seen.arrays["repeat.rate"].mean() == pytest.approx(describe(STREAM).repeat_rate)


def test_movers_come_farthest_first_with_shares_of_the_whole(seen: Observations) -> None:
    rows = seen.about["movers"]["rows"]
    assert len(rows) == 5
    moved = [row["moved"] for row in rows]
    assert moved == sorted(moved, reverse=True)
    for row in rows:
        why = row["why"]
        total = why["direct"] + why["elsewhere"] + why["time_passing"]
        assert total == pytest.approx(1, abs=why["unattributed"] + 1e-9)


def test_movers_are_named_when_there_is_no_time_to_explain_them(
    predictor: LinkPredictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_EXPLAIN_S", 0.0)
    hurried = changed(run, tmp_path / "hurried")
    save_observations(hurried / OBSERVATIONS, predictor=predictor, stream=STREAM, split=SPLIT)
    found = read_observations(hurried / OBSERVATIONS)
    assert found is not None
    assert [row["why"] for row in found.about["movers"]["rows"]] == [None] * 5
    assert write(hurried).read_text().count("Not explained") == 5


def test_epochs_may_be_given_or_are_those_the_predictor_remembers(
    predictor: LinkPredictor, seen: Observations, tmp_path: Path
) -> None:
    assert [epoch["loss"] for epoch in seen.about["history"]] == [
        epoch.loss for epoch in predictor.epochs_
    ]
    given = [{"epoch": 1, "loss": 1.0, "validation": -2.0, "seconds": 3.0}]
    save_observations(
        tmp_path / "file", predictor=predictor, stream=STREAM, split=SPLIT, history=given
    )
    found = read_observations(tmp_path / "file")
    assert found is not None
    assert found.about["history"] == given


def test_without_a_test_period_a_predictor_is_observed_on_validation(tmp_path: Path) -> None:
    time = float(np.quantile(STREAM.t, 0.85))
    split = evaluation.time_split(STREAM, validation_time=time, test_time=np.inf)
    small = LinkPredictor(**{**SMALL, "epochs": 1}).fit(STREAM, split)
    save_observations(tmp_path / "file", predictor=small, stream=STREAM, split=split)
    found = read_observations(tmp_path / "file")
    assert found is not None
    assert found.about["part"] == "validation"
    assert found.about["examples"] == len(split.validation)


def test_observations_of_earlier_runs_have_words_for_the_colours_of_the_map(
    seen: Observations, run: Path, tmp_path: Path
) -> None:
    old = changed(run, tmp_path / "old")
    about = {**seen.about, "map": {**seen.about["map"], "by": "its latest label"}}
    statefile.write(old / OBSERVATIONS, about, seen.arrays)
    found = read_observations(old / OBSERVATIONS)
    assert found is not None
    assert found.about["map"]["by"] == "label" == seen.about["map"]["by"]
    assert "its latest label" in write(old).read_text()


# Answers ------------------------------------------------------------------------------------------


def test_ranks_are_those_of_the_evaluation(
    predictor: LinkPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_PAIRS", NODES * EVENTS)
    about, arrays = answering.next_links(predictor, STREAM, SPLIT)
    assert about["ranking"] == {"destinations": NODES, "events": len(SPLIT.test), "of": 450}
    score = functools.partial(predictor.decision_function, given_src=True)
    reported = evaluation.evaluate_ranking(score, STREAM, SPLIT, heuristics=list).row().metrics
    assert evaluation.metrics.mrr(arrays["rank.place"]) == pytest.approx(reported["mrr"])
    assert evaluation.metrics.hits_at(arrays["rank.place"], 10) == reported["hits@10"]


def test_where_ranking_would_take_long_nothing_is_ranked(
    predictor: LinkPredictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_PAIRS", 49 * NODES)
    large = changed(run, tmp_path / "large")
    save_observations(large / OBSERVATIONS, predictor=predictor, stream=STREAM, split=SPLIT)
    found = read_observations(large / OBSERVATIONS)
    assert found is not None
    assert found.about["ranking"]["events"] == 0
    assert len(found.about["answers"]["rows"]) == 10
    page = write(large).read_text()
    assert "hits@10" not in page
    assert "rank_sample" in page
    assert "rank_sample" not in _section(write(run), "meaning")


def test_a_report_states_what_was_known_and_how_many_events_were_judged(
    run: Path, result: evaluation.Result, tmp_path: Path
) -> None:
    known = "Model and heuristics know all events before"
    assert f"{known} each test event." in write(run).read_text()
    judged = result.row("first_test").examples
    more = {"knowledge": "batch", "examples": {"random-dst": {"first": judged}}}
    page = write(changed(run, tmp_path / "by-batch", **more)).read_text()
    assert f"{known} the first of each batch of 200" in page
    assert f"others that never did, {judged:,} of them" in page
    assert "at first meetings" in page
    assert "(as published)" in page


def test_first_meetings_compete_with_strangers_and_repeats_with_pairs_that_met(
    seen: Observations,
) -> None:
    keys = [tuple(sorted(pair)) for pair in zip(STREAM.src, STREAM.dst, strict=True)]
    times = STREAM.t.tolist()
    before = [{keys[k] for k in range(EVENTS) if times[k] < times[row]} for row in SPLIT.test]
    met = np.array([keys[row] in of for row, of in zip(SPLIT.test, before, strict=True)])
    first, repeats = seen.about["meetings"]
    assert (first["first"], first["of"]) == (True, (~met).sum())
    assert (repeats["first"], repeats["of"]) == (False, met.sum())
    pairs, random = Meetings(STREAM), np.random.default_rng(7)
    true = STREAM.src[SPLIT.test], STREAM.dst[SPLIT.test], STREAM.t[SPLIT.test]
    at = {(key, t) for key, t in zip(keys, times, strict=True)}
    for draw, wanted in ((answering._strangers, False), (answering._acquainted, True)):
        (src, dst, t), usable = draw(STREAM, true, pairs, random)
        assert usable.mean() > 0.9
        for k in np.flatnonzero(usable).tolist():
            key = tuple(sorted((src[k], dst[k])))
            assert (key in before[k]) == wanted
            assert (key, t[k]) not in at


def test_a_share_of_comparisons_counts_ties_half() -> None:
    above = answering._above(np.array([2.0, 1.0, 0.0, 5.0]), np.array([1.0, 1.0, 1.0, 0.0]))
    assert answering._share(above) == {
        "share": 0.625,
        "error": pytest.approx(np.std([1, 0.5, 0, 1, 0, 1]) / np.sqrt(6)),
    }
    assert (
        evaluation.metrics.standard_error(np.ones(10))
        > evaluation.metrics.standard_error(np.ones(1_000))
        > 0
    )


def test_the_likeliest_links_are_those_the_predictor_ranks_first(
    predictor: LinkPredictor, seen: Observations
) -> None:
    about = seen.about["answers"]
    counts = np.bincount(STREAM.src[SPLIT.test], minlength=NODES)
    assert [row["events"] for row in about["rows"]] == np.sort(counts)[::-1][:10].tolist()
    node = int(np.argmax(counts))
    found, probability = predictor.rank(node, about["t"], k=3)
    answers = about["rows"][0]["answers"]
    assert [one["probability"] for one in answers] == pytest.approx(probability.tolist())
    assert [one["what"] for one in answers] == [telemetry.short(n) for n in STREAM.name(found)]


def test_of_two_classes_the_nodes_likeliest_of_the_second_are_shown(of_nodes: Path) -> None:
    class Classifier:
        classes_ = np.array([0, 3])

        def examples(self, stream: EventStream, split: evaluation.Split) -> NodeLabels:
            nodes = np.arange(0, NODES, 2)
            return NodeLabels(nodes, np.zeros_like(nodes), np.zeros_like(nodes))

        def predict_proba(self, node: np.ndarray[Any, Any], t: int) -> np.ndarray[Any, Any]:
            return np.stack([1 - node / NODES, node / NODES], axis=1)

    about, _ = answering.next_classes(Classifier(), STREAM, SPLIT)  # type: ignore[arg-type]
    assert about["answers"]["looked_for"] == "class 3"
    found = [row["answers"] for row in about["answers"]["rows"]]
    wanted = [node / NODES for node in range(NODES - 2, NODES - 22, -2)]  # all of them are active
    assert [one["probability"] for (one,) in found] == pytest.approx(wanted)
    seen = read_observations(of_nodes / OBSERVATIONS)
    assert seen is not None  # of several classes the likeliest
    for row in seen.about["answers"]["rows"]:
        shares = [one["probability"] for one in row["answers"]]
        assert shares == sorted(shares, reverse=True)


# Words --------------------------------------------------------------------------------------------


def test_every_heuristic_has_a_plain_name_and_a_formula() -> None:
    made = [*heuristics.link_heuristics(1.0), *heuristics.snapshot_heuristics()]
    names = {one.name for one in made} | {"majority", "last-label", "degree"}
    words = [vocabulary.heuristic_words(name) for name in names]
    assert len(set(words)) == len(names)
    for name in names - {"popularity"}:
        assert name not in words
    assert all(vocabulary.formula(name) for name in names)
    assert vocabulary.heuristic_words("mine") == "mine"


@pytest.mark.parametrize("sampler", [*evaluation.SAMPLERS, "all-dst", "all-nodes", "none"])
def test_a_number_is_given_a_meaning_in_one_sentence(sampler: str) -> None:
    shares = ("auc", "ap", "micro_f1") if sampler == "none" else ("auc", "ap", "hits_10")
    for metric in shares:
        sentence = vocabulary.meaning(metric, sampler, 0.984)
        assert sentence is not None
        assert "98 of 100" in sentence
        assert not re.search(r"[{}]", sentence)
    if sampler != "none":
        assert "place 2.5" in str(vocabulary.meaning("mrr", sampler, 0.4))


# Curves -------------------------------------------------------------------------------------------


def test_curves_have_a_point_for_each_threshold_and_ties_share_one() -> None:
    label, score = np.array([1, 0, 1, 0, 1]), np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    examples = quality.ScoredExamples("", label, score, np.arange(5))
    zeros, ones = quality.roc(examples)
    assert zeros == pytest.approx([0, 0, 1, 1])
    assert ones == pytest.approx([0, 1 / 3, 2 / 3, 1])
    recall, precision = quality.precision_recall(examples)
    assert recall == pytest.approx([1 / 3, 2 / 3, 1])
    assert precision == pytest.approx([1, 1 / 2, 3 / 5])


def test_links_are_calibrated_in_the_mixture_they_were_trained_on() -> None:
    # A false pair weighs 3: of those given 1/2 there are three true ones for a false one.
    logit = np.log([1 / 3, 1.0, 2.0])
    true, false = np.repeat(logit, [300, 300, 600]), np.repeat(logit, [300, 100, 100])
    about = {"task": "link", "training_weights": {"random-dst": 3.0, "historical": 0.0}}
    found = quality.calibration(
        Observations(about, {"score.true": true, "score.random-dst": false})
    )
    assert found is not None
    assert found.predicted == pytest.approx([1 / 4, 1 / 2, 2 / 3])
    assert found.observed == pytest.approx(found.predicted)
    assert found.weight == pytest.approx([1200, 600, 900])


def test_rare_classes_as_frequent_as_predicted_are_calibrated() -> None:
    random = np.random.default_rng(3)
    p = random.uniform(0, 0.1, 100_000)
    arrays = {
        "score.classes": np.array([0, 1]),
        "score.label": (random.random(len(p)) < p).astype(np.int64),
        "score.probability": np.stack([1 - p, p], axis=1),
    }
    found = quality.calibration(Observations({"task": "node"}, arrays))
    assert found is not None
    predicted = found.predicted
    assert len(predicted) == 10  # divided by rank: all of them lie below a tenth
    # Four standard deviations of a frequency among ten thousand.
    error = np.abs(found.observed - predicted)
    assert (error < 4 * np.sqrt(predicted * (1 - predicted) / 10_000)).all()


def test_quality_over_time_has_gaps_where_only_one_class_occurs() -> None:
    t = np.arange(1_000)
    label = np.where(t < 500, t % 2, 0)
    when, value, count = quality.over_time(
        quality.ScoredExamples("", label, label.astype(np.float64), t), evaluation.metrics.roc_auc
    )
    assert count.sum() == 1_000
    assert (value[when < 500] == 1).all()
    assert np.isnan(value[when > 500]).all()


# Axes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "min", "h", "day", "year", "step"])
@pytest.mark.parametrize("first", [0, 1_700_000_000])
@pytest.mark.parametrize("span", [0, 1, 7, 100, 5_000, 10**5, 3 * 10**6, 4 * 10**7, 10**9])
def test_time_axes_write_moments_inside_the_time_they_show(
    unit: str, first: int, span: int
) -> None:
    axis = time_axis(first, first + span, unit)
    places = [place for place, _ in axis.ticks]
    assert 1 <= len(places) <= 12
    assert axis.low <= places[0]
    assert places[-1] <= axis.high
    assert places == sorted(set(places))
    assert all(a != b for (_, a), (_, b) in itertools.pairwise(axis.ticks))


@pytest.mark.parametrize("first", [0, 1_356_998_400, 1_372_636_800, 1_709_164_800, 1_721_001_600])
def test_a_time_axis_of_any_number_of_days_labels_some_of_them(first: int) -> None:
    for days in range(1, 801):
        axis = time_axis(first, first + days * 86_400, "s")
        assert 3 <= len(axis.ticks) <= 8, days


def test_a_time_axis_of_centuries_labels_some_of_the_years() -> None:
    for years in range(1, 260):
        axis = time_axis(0, int(years * 365.25 * 86_400), "s")
        assert 3 <= len(axis.ticks) <= 8, years


def test_a_year_of_seconds_is_written_as_months() -> None:
    begin = 1_356_998_400  # 2013-01-01
    axis = time_axis(begin, begin + 365 * 86_400 - 1, "s")
    assert axis.ticks[:3] == (
        (begin, "Jan 13"),
        (begin + 59 * 86_400, "Mar 13"),
        (begin + 120 * 86_400, "May 13"),
    )


@pytest.mark.parametrize("values", [[], [5.0], [0.0, 0.0], [-3.0, 8.0], [1e-9, 2e-9], [1e12]])
def test_axes_hold_their_values_whatever_they_are(values: list[float]) -> None:
    axes: list[Axis] = [linear("", values)]
    if all(value > 0 for value in values):
        axes.append(logarithmic("", values))
    for axis in axes:
        assert axis.low < axis.high
        places = axis.place(values)
        assert ((places >= -1e-9) & (places <= 1 + 1e-9)).all()
        assert len({text for _, text in axis.ticks}) == len(axis.ticks) > 0


# Pages --------------------------------------------------------------------------------------------


def test_markup_escapes_all_that_is_not_markup() -> None:
    made = element("p", "<b>", Html("<i></i>"), ["&", None], title='"', class_=None)
    assert made == '<p title="&quot;">&lt;b&gt;<i></i>&amp;</p>'
    assert "<script>" not in table([EVIL], [[EVIL]])


def test_a_report_is_one_small_file_that_loads_nothing(run: Path) -> None:
    text = write(run).read_text()
    assert len(text) < 2_000_000
    assert not re.search(r"https?:|<link|<script|<img|@import|url\(|\bsrc=|\bhref=", text)
    assert {path.name for path in run.iterdir()} == {
        "metrics.json",
        "config.toml",
        "observations",
        "report.html",
    }


@pytest.mark.parametrize("which", ["run", "of_nodes"])
def test_a_report_has_every_figure_with_a_description_in_words(
    which: str, request: pytest.FixtureRequest
) -> None:
    text = write(request.getfixturevalue(which)).read_text()
    assert set(re.findall(r'data-figure="([^"]+)"', text)) == FIGURES
    for picture in re.findall(r"<svg[^>]*>", text):
        assert re.search(r'role="img" aria-label="[^"]{20,}"', picture), picture
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_the_same_run_gives_the_same_report(run: Path) -> None:
    assert write(run).read_bytes() == write(run).read_bytes()


def test_labels_below_an_axis_do_not_touch() -> None:
    begin = int(np.datetime64("2013-01-01", "s").astype(np.int64))
    spans = [(off, days) for off in (0, 39, 130, 273) for days in range(5, 800, 7)]
    for (off, days), large in itertools.product([*spans, (0, 547)], [1.2e-4, 3e5]):
        first = begin + off * 86_400
        axis = time_axis(first, first + days * 86_400, "s")
        drawn = str(chart("t", "aid", axis, linear("y", [0, large]), []))
        labels = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="middle">([^<]*)', drawn)
        ends = [(float(x) - _width(text) / 2, float(x) + _width(text) / 2) for x, text in labels]
        for one, other in itertools.pairwise(ends):
            assert one[1] + 3.9 < other[0], (off, days, labels)


def test_a_share_that_pulled_the_other_way_lies_left_of_the_mark() -> None:
    why = {"direct": 1.3, "elsewhere": -0.3, "time_passing": 0.0, "events": [], "neighbours": []}
    row = {"node": "ann", "moved": 1.0, "relative": None, "events": 2, "why": why}
    drawn = str(mover(row, "s"))
    bar = re.search(r'class="share".*?</div>', drawn)
    assert bar is not None
    left, mark, right = bar[0].partition("<b></b>")
    assert mark
    assert re.findall(r'class="c(\d)"', left) == ["1"]
    assert re.findall(r'class="c(\d)"', right) == ["0", "2"]
    assert "-30.0%" in drawn
    why["elsewhere"] = 0.3
    assert "<b></b>" not in str(mover(row, "s"))


def test_a_heuristic_that_is_ahead_by_auc_alone_is_reported_too(run: Path, tmp_path: Path) -> None:
    values = {"mean": 0.9, "std": 0.01, "per_seed": [0.89, 0.91]}
    metrics = {"random-dst": {"all": {"ap": values, "auc": values}}}
    rules = {"popularity": {"random-dst": {"all": {"ap": 0.5, "auc": 0.95}}}}
    page = write(changed(run, tmp_path / "run", metrics=metrics, heuristics=rules)).read_text()
    (note,) = re.findall(r'<p class="small note">([^<]*AUC[^<]*)</p>', page)
    for fact in ("ahead", "random destinations", "popularity", "AUC", "0.9500", "0.9000 ± 0.0100"):
        assert fact in note


def test_the_verdict_names_who_is_ahead(run: Path, tmp_path: Path) -> None:
    def summary(heuristic: float) -> str:
        page = write(changed(run, tmp_path / f"{heuristic}", **_ap(heuristic))).read_text()
        verdict = re.search(r'id="verdict">(.*?)</p>', page)
        assert verdict is not None
        return re.sub(r"<[^>]*>", "", verdict[1])

    lost = summary(0.95)
    for fact in ("heuristic is ahead", "random destinations", "rule", "0.9500", "0.9000 ± 0.0200"):
        assert fact in lost
    assert "about as good" in summary(0.9)  # learning gained nothing
    assert "about as good" in summary(0.89)  # less than the spread over seeds
    assert "model is ahead" in summary(0.5)


def test_colours_follow_the_weight_of_the_evidence(run: Path, tmp_path: Path) -> None:
    for heuristic, kind in ((0.95, "bad"), (0.89, "soft"), (0.5, "good")):
        section = _section(write(changed(run, tmp_path / kind, **_ap(heuristic))), "headline")
        assert re.findall(r'<span class="(\w+)">\([+-]', section) == [kind]
        assert ("within chance" in section) == (kind == "soft")


def test_the_parts_of_the_split_add_up_on_the_page(run: Path, tmp_path: Path) -> None:
    sizes = {"train": 2_000, "validation": 300, "test": 400, "new_validation": 7, "new_test": 9}
    page = write(changed(run, tmp_path / "run", split={"name": "tgn", "sizes": sizes}))
    rows = re.findall(r'<td class="number">([\d,]+)</td>', _section(page, "split"))
    *parts, total = (int(row.replace(",", "")) for row in rows)
    assert parts == [2_000, 300, 300, 400]  # train, hidden, validation, test
    assert sum(parts) == total == EVENTS


def test_the_telemetry_of_the_engine_is_folded_away(run: Path) -> None:
    engine = _section(write(run), "engine")
    folded = re.search(r"<details>.*</details>", engine, re.DOTALL)
    assert folded is not None
    assert folded[0].count("<figure") == engine.count("<figure") == 3


def test_a_run_of_an_earlier_release_has_a_page_without_answers(
    run: Path, seen: Observations, tmp_path: Path
) -> None:
    old = changed(run, tmp_path / "old")
    added = {"answers", "ranking", "meetings", "hidden_nodes"}
    about = {name: value for name, value in seen.about.items() if name not in added}
    arrays = {name: of for name, of in seen.arrays.items() if not name.startswith("rank.")}
    statefile.write(old / OBSERVATIONS, about, arrays)
    page, whole = write(old).read_text(), write(run).read_text()
    for name in ("answers", "meetings"):
        assert f'id="{name}"' not in page
        assert f'id="{name}"' in whole
    assert set(re.findall(r'data-figure="([^"]+)"', page)) == FIGURES


def test_a_run_without_observations_or_heuristics_is_reported_with_what_there_is(
    run: Path, tmp_path: Path
) -> None:
    bare = changed(run, tmp_path / "bare", heuristics={}, config=None, machine=None)
    (bare / OBSERVATIONS).unlink()
    text = write(bare).read_text()
    assert "no observations" in text
    assert "No heuristic was evaluated" in text
    assert set(re.findall(r'data-figure="([^"]+)"', text)) == {"headline"}


def test_a_directory_without_a_finished_run_is_rejected(run: Path, tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="tidegraph resume"):
        write(tmp_path)
    broken = changed(run, tmp_path / "broken")
    before = write(broken).read_bytes()
    data = bytearray((broken / OBSERVATIONS).read_bytes())
    data[-1] ^= 1
    (broken / OBSERVATIONS).write_bytes(data)
    with pytest.raises(StateFileError, match="altered"):
        write(broken)
    assert (broken / "report.html").read_bytes() == before
    (broken / "metrics.json").write_text("[]")
    with pytest.raises(StateFileError, match=r"metrics\.json"):
        write(broken)


def test_a_comparison_shows_what_differs_and_warns_if_runs_do_not_compare(
    run: Path, of_nodes: Path, tmp_path: Path
) -> None:
    config = {"model": {"epochs": 9, "dropout": 0.2}}
    other = changed(run, tmp_path / "other", config=config)
    text = write_comparison([run, other], tmp_path / "two.html").read_text()
    settings = re.search(r'id="settings">.*?</section>', text, re.DOTALL)
    assert settings is not None
    assert re.findall(r'<th scope="row">([^<]*)<', settings[0]) == [
        "model.dropout",
        "model.epochs",
    ]
    assert "cannot be compared" not in text
    assert set(re.findall(r'data-figure="([^"]+)"', text)) == {
        "headline",
        "training",
        "roc",
        "over-time",
    }
    differs: dict[str, Any] = {"data": {"hash": "xyz"}, "protocol": "tgn", "knowledge": "batch"}
    elsewhere = changed(of_nodes, tmp_path / "elsewhere", **differs)
    text = write_comparison([run, run, elsewhere], tmp_path / "three.html").read_text()
    assert "different data" in text
    assert "different protocols" in text
    assert "different knowledge (batch, event)" in text
    assert "links (1)" in text
    assert "links (2)" in text
    with pytest.raises(ParameterError, match="no runs"):
        write_comparison([], tmp_path / "none.html")


def test_a_comparison_prints_only_leads_beyond_chance_in_bold(run: Path, tmp_path: Path) -> None:
    def bold(lead: float) -> int:
        better = _ap(0.5)
        of = better["metrics"]["random-dst"]["all"]["ap"]
        of["mean"] += lead
        runs = [
            changed(run, tmp_path / f"{k}{lead}", **one) for k, one in enumerate((better, _ap(0.5)))
        ]
        return _section(write_comparison(runs, tmp_path / "two.html"), "headline").count("<strong>")

    assert bold(0.01) == 0
    assert bold(0.05) == 1


def test_a_comparison_keeps_settings_of_one_name_apart(run: Path, tmp_path: Path) -> None:
    every = [
        changed(run, tmp_path / str(k), config={"data": data, "model": model})
        for k, (data, model) in enumerate(
            [
                ({"edge_features": ["price"]}, {"edge_features": True}),
                ({"edge_features": []}, {"edge_features": False}),
            ]
        )
    ]
    text = write_comparison(every, tmp_path / "two.html").read_text()
    for name in ("data.edge_features", "model.edge_features"):
        assert f'<th scope="row">{name}<' in text


def test_a_comparison_needs_no_scores(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "scored", lambda seen: [])
    text = write_comparison([run, run], tmp_path / "two.html").read_text()
    assert set(re.findall(r'data-figure="([^"]+)"', text)) == {"headline", "training"}


@pytest.mark.parametrize("scheme", [palette.LIGHT, palette._DARK], ids=["light", "dark"])
def test_text_is_readable_on_every_background(scheme: str) -> None:
    def luminance(name: str) -> float:
        found = re.search(rf"--{name}: #(\w{{6}})", scheme)
        assert found is not None
        channels = np.frombuffer(bytes.fromhex(found[1]), dtype=np.uint8) / 255
        linear = np.where(channels > 0.04045, ((channels + 0.055) / 1.055) ** 2.4, channels / 12.92)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for text, below in itertools.product(("ink", "soft", "good", "bad"), ("paper", "card")):
        dark, light = sorted((luminance(text), luminance(below)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, below)  # WCAG 2, level AA


# In a browser -------------------------------------------------------------------------------------

_LOOK = """(() => {
  document.querySelectorAll("details").forEach(one => one.open = true);
  const outside = [], small = [], touching = [], cut = [];
  for (const one of document.querySelectorAll("body *")) {
    if (one.closest(".scroll") && !one.classList.contains("scroll")) continue;
    const box = one.getBoundingClientRect();
    if (box.right > innerWidth + 0.5 || box.left < -0.5) outside.push(one.outerHTML.slice(0, 90));
  }
  for (const picture of document.querySelectorAll("svg")) {
    const frame = picture.getBoundingClientRect();
    const scale = frame.width / picture.viewBox.baseVal.width;
    const texts = [...picture.querySelectorAll("text")].filter(one => one.textContent);
    const boxes = texts.map(one => one.getBoundingClientRect());
    texts.forEach((one, k) => {
      const a = boxes[k], words = one.textContent;
      if (scale * parseFloat(getComputedStyle(one).fontSize) < 10) small.push(words);
      if (a.left < frame.left - 1 || a.right > frame.right + 1 ||
          a.top < frame.top - 1 || a.bottom > frame.bottom + 1) cut.push(words);
      for (let j = 0; j < k; j++) {
        const b = boxes[j];
        if (a.left < b.right - 1 && b.left < a.right - 1 &&
            a.top < b.bottom - 3 && b.top < a.bottom - 3)
          touching.push(texts[j].textContent + " / " + words);
      }
    });
  }
  const lopsided = [];  // figures that leave one side of their row blank
  for (const grid of document.querySelectorAll(".figures")) {
    const whole = grid.getBoundingClientRect(), rows = new Map();
    for (const one of grid.children) {
      const box = one.getBoundingClientRect(), row = rows.get(box.top) ?? [Infinity, -Infinity];
      rows.set(box.top, [Math.min(row[0], box.left), Math.max(row[1], box.right)]);
    }
    for (const [left, right] of rows.values())
      if (Math.abs(left - whole.left - (whole.right - right)) > 2)
        lopsided.push(grid.lastChild.dataset.figure);
  }
  const empty = [...document.querySelectorAll("svg")]
    .filter(one => !one.querySelector(".curve, .mark, .faint")).length;
  return { wide: document.documentElement.scrollWidth - innerWidth, outside, small, touching, cut,
    lopsided, empty, title: document.title, scripts: document.scripts.length,
    paper: getComputedStyle(document.body).backgroundColor,
    figures: [...new Set([...document.querySelectorAll("[data-figure]")]
      .map(one => one.dataset.figure))] };
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = executable()
    if path is None:
        pytest.skip(f"no browser is installed (looked for {', '.join(NAMES)})")
    with Browser(path) as shown:
        yield shown


@pytest.mark.parametrize("which", ["run", "of_nodes", "comparison"])
def test_a_page_fits_phones_and_desks_in_light_and_dark(
    which: str, browser: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if which == "comparison":
        run = request.getfixturevalue("run")
        runs = [run, run, request.getfixturevalue("of_nodes")]
        page = write_comparison(runs, tmp_path / "comparison.html")
        figures, title = {"training", "roc"}, "Runs compared"  # other tasks, other headlines
    else:
        page, figures = write(request.getfixturevalue(which)), FIGURES
        title = STREAM.title
    papers = set()
    for width, dark in itertools.product((390, 900, 1280), (False, True)):
        browser.open(page, width=width, dark=dark)
        found = browser.evaluate(_LOOK)
        papers.add(found["paper"])
        assert found["wide"] <= 0
        for flaw in ("outside", "small", "touching", "cut", "lopsided"):
            assert found[flaw] == [], f"{flaw} at {width}"
        assert found["empty"] == 0
        assert found["scripts"] == 0
        assert found["title"] == f"{title} · tidegraph"
        assert set(found["figures"]) == figures
    assert browser.problems == []
    assert len(papers) == 2  # one for each scheme
    assert browser.pdf().startswith(b"%PDF")
