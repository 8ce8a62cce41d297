"""Classes of events: what events carry, what was known before them, and how answers compare."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.payments import payments, payments_file

import tidegraph
from tidegraph import DataError, EventClassifier, EventStream, cli, evaluation
from tidegraph.core.errors import EventError
from tidegraph.evaluation import metrics
from tidegraph.events.alike import read_like
from tidegraph.events.own_columns import own_numbers
from tidegraph.events.tables import read_table
from tidegraph.events.vocabulary import Vocabulary
from tidegraph.learning.tasks.event_features import KnownLabels, OwnColumns

SMALL: dict[str, Any] = {"columns": 8, "epochs": 3, "members": 1, "hidden": 32, "threads": 1}
OWN = ["amount", "channel", "device"]


def stream_of(table: pd.DataFrame) -> EventStream:
    return tidegraph.read(table, t="when", label="outcome", weight=False, edge_features=OWN)


@pytest.fixture(scope="module")
def paid() -> EventStream:
    return stream_of(payments(3_000, accounts=250))


@pytest.fixture(scope="module")
def split(paid: EventStream) -> evaluation.Split:
    return evaluation.tgb_split(paid)


@pytest.fixture(scope="module")
def fitted(paid: EventStream, split: evaluation.Split) -> EventClassifier:
    return EventClassifier(**SMALL).fit(paid, split)


# Reading ------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["web", "app", "in person", "ß", None])


@given(st.lists(st.tuples(WORDS, st.sampled_from(["ok", "bad", None])), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_words_come_back_from_their_codes_also_from_a_file(
    rows: list[tuple[str | None, str | None]],
) -> None:
    channel, label = map(list, zip(*rows, strict=True))
    table: dict[str, Any] = {
        "src": [0] * len(rows),
        "dst": [1] * len(rows),
        "t": list(range(len(rows))),
    }
    # The first row makes both columns columns of words.
    columns = {name: [column[0], *column] for name, column in table.items()}
    columns |= {"channel": ["web", *channel], "label": ["ok", *label]}
    stream = read_table(pd.DataFrame(columns), edge_features="channel")
    words, classes = stream.vocabulary.categories["channel"], stream.vocabulary.labels
    assert stream.categories is not None
    assert stream.labels is not None
    read = [words[code] if code >= 0 else None for code in stream.categories[1:, 0]]
    assert read == channel
    assert [classes[code] if code >= 0 else None for code in stream.labels[1:]] == label
    count = np.bincount(stream.labels[stream.labels >= 0])
    assert (np.diff(count) <= 0).all()  # the most frequent first


def test_a_missing_number_is_flagged_and_no_row_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("src,dst,t,fee\n0,1,1,\n0,1,2,5\n1,0,3,NA\n")
    stream = read_table(path, edge_features="fee")
    assert len(stream) == 3
    assert stream.vocabulary.features == ("fee", "fee is missing")
    names, values = own_numbers(stream)
    assert names == ("fee",)
    np.testing.assert_array_equal(values[:, 0], [np.nan, 5, np.nan])
    assert any("missing in 2 rows" in note for note in stream.report.notes)  # type: ignore[union-attr]


def test_one_wrong_cell_in_a_column_of_numbers_is_an_error_and_no_word(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("src,dst,t,fee\n0,1,1,3\n0,1,2,x\n1,0,3,4\n")
    with pytest.raises(DataError, match=r"line 3: column 'fee' is not a number: 'x'"):
        read_table(path, edge_features="fee")


def test_free_text_is_no_label() -> None:
    count = 1_200
    table: dict[str, Any] = {"src": [0] * count, "dst": [1] * count, "t": range(count)}
    table["label"] = [f"text {k}" for k in range(count)]
    with pytest.raises(DataError, match=r"1,200 different words.*label=False"):
        read_table(pd.DataFrame(table))


def test_a_saved_stream_keeps_its_words(paid: EventStream, tmp_path: Path) -> None:
    paid.save(tmp_path / "paid")
    again = EventStream.load(tmp_path / "paid")
    assert again.vocabulary == paid.vocabulary
    assert again.digest() == paid.digest()
    other = replace(paid.vocabulary, labels=("fine", "fraud"))
    assert replace(paid, vocabulary=other).digest() != paid.digest()


def test_names_of_columns_do_not_change_the_digest_of_a_stream() -> None:
    bare = EventStream([0], [1], [5], edge_features=[[2.0]])
    named = replace(bare, vocabulary=Vocabulary(("fee",)))
    assert named.digest() == bare.digest()


def test_later_events_get_the_codes_of_earlier_ones(paid: EventStream) -> None:
    table = payments(3_000, accounts=250)
    later = stream_of(table[2_000:].iloc[::-1].sort_values("when"))
    earlier = stream_of(table[:2_000])
    assert earlier.vocabulary.categories["channel"] != later.vocabulary.categories["channel"]
    with pytest.raises(EventError, match="continuing"):
        earlier.joined(
            replace(
                later,
                names=earlier.names,
                nodes=earlier.nodes,
                src=later.src % 9,
                dst=later.dst % 9,
            )
        )
    joined = earlier.joined(later.continuing(earlier))
    for name, known in joined.vocabulary.categories.items():
        place = list(joined.vocabulary.categories).index(name)
        codes = joined.categories[:, place]  # type: ignore[index]
        assert [known[code] for code in codes] == table[name].tolist()
    words = joined.vocabulary.labels
    assert [words[k] for k in joined.labels] == table["outcome"].tolist()  # type: ignore[union-attr]


def test_codes_without_words_are_rejected() -> None:
    with pytest.raises(EventError, match="1 columns and the vocabulary 0"):
        EventStream([0], [1], [5], categories=[[0]])
    with pytest.raises(EventError, match="codes from 2 to 2 for 1 words"):
        EventStream(
            [0], [1], [5], categories=[[2]], vocabulary=Vocabulary(categories={"a": ("x",)})
        )


# What is read -------------------------------------------------------------------------------------


def test_own_columns_learn_from_training_events_alone(paid: EventStream) -> None:
    rows = np.arange(1_000)
    own = OwnColumns.fit(paid, rows)
    changed = paid.edge_features.copy()  # type: ignore[union-attr]
    changed[1_000:] *= 50
    assert OwnColumns.fit(replace(paid, edge_features=changed), rows) == own
    assert OwnColumns.of(json.loads(json.dumps(own.plain()))) == own
    read = own(paid)
    assert read.shape == (len(paid), 2 + 5 + 32)  # a number and its flag, one-hot, hashed
    assert np.isfinite(read).all()
    assert (read[:, 2:7].sum(axis=1) == 1).all()
    unseen = replace(
        paid.vocabulary,
        categories={**paid.vocabulary.categories, "channel": ("card", "new", "app", "cash")},
    )
    assert own(replace(paid, vocabulary=unseen))[:, 6].sum() > 0  # the input of any other word


def test_a_column_of_ids_is_left_out_and_a_lacking_one_is_named() -> None:
    table = payments(300, accounts=50)
    table["id"] = [f"id {k}" for k in range(300)]
    stream = tidegraph.read(
        table, t="when", label="outcome", weight=False, edge_features=["id", "channel"]
    )
    own = OwnColumns.fit(stream, np.arange(300))
    assert own.left_out == ("id",)
    with pytest.raises(DataError, match="no column 'channel'"):
        own(tidegraph.read(table, t="when", label="outcome", weight=False))


@given(st.integers(0, 2**32 - 1), st.integers(0, 4))
@settings(max_examples=30, deadline=None)
def test_labels_are_read_once_they_are_known(seed: int, delay: int) -> None:
    random = np.random.default_rng(seed)
    count = 40
    src, dst = random.integers(0, 4, (2, count))
    t, label = np.sort(random.integers(0, 15, count)), random.integers(-1, 3, count)
    stream = EventStream(src, dst, t, nodes=4, labels=label)
    classes, share = np.arange(3), [0.5, 0.3, 0.2]
    found = KnownLabels(stream, t + delay, classes, share, 100.0)(src, dst, t)
    width = found.shape[1] // 5
    for k in range(count):
        for part, mine in enumerate(
            (
                src == src[k],
                dst == dst[k],
                (src == src[k]) & (dst == dst[k]),
                dst == src[k],
                src == dst[k],
            )
        ):
            known = np.flatnonzero(mine & (label >= 0) & (t + delay < t[k]))
            number = np.bincount(label[known], minlength=3)
            expected = (number + share) / (len(known) + 1)
            row = found[k, part * width : (part + 1) * width]
            np.testing.assert_allclose(row[3:6], expected, rtol=1e-6)
            np.testing.assert_allclose(row[7:10], np.log1p(number), rtol=1e-6)
            last = [
                np.log1p(t[k] - (t + delay)[known[label[known] == c]].max(initial=-(10**9)))
                if number[c]
                else np.log1p(100.0)
                for c in range(3)
            ]
            np.testing.assert_allclose(row[10:13], last, rtol=1e-6)


def test_answers_do_not_depend_on_what_comes_at_the_same_time_or_later(
    fitted: EventClassifier, paid: EventStream
) -> None:
    """The model is the same; the state it answers from differs from some time on."""
    cut = int(paid.t[2_500])
    asked = paid.where((paid.t >= cut - 10**6) & (paid.t <= cut))
    later = paid.t >= cut
    other = fitted._features
    assert paid.labels is not None
    assert paid.categories is not None
    changed = replace(
        paid,
        labels=np.where(later, 1 - paid.labels, paid.labels),
        categories=np.where(later[:, None], 0, paid.categories),
    )
    before = other(asked)
    stream = fitted._stream
    try:
        fitted._stream = changed
        np.testing.assert_array_equal(fitted._new_features()(asked), before)
    finally:
        fitted._stream = stream


# Measures -----------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=12),
    st.integers(1, 14),
)
def test_precision_at_is_the_mean_over_all_orders_of_ties(
    rows: list[tuple[int, int]], k: int
) -> None:
    label, score = (np.array(column) for column in zip(*rows, strict=True))
    generator = np.random.default_rng(0)
    k_ = min(k, len(rows))
    best = [
        label[np.lexsort((generator.random(len(rows)), -score))[:k_]].mean() for _ in range(400)
    ]
    assert abs(metrics.precision_at(label, score, k) - np.mean(best)) < 0.1


def test_log_loss_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import log_loss

    random = np.random.default_rng(1)
    probability = random.dirichlet(np.ones(3), 50)
    label = np.concatenate([np.arange(3), random.integers(0, 3, 47)])
    assert metrics.log_loss(label, probability) == pytest.approx(log_loss(label, probability))


# The model ----------------------------------------------------------------------------------------


def test_the_model_is_ahead_of_boosting_on_what_events_carry(
    fitted: EventClassifier, split: evaluation.Split
) -> None:
    result = fitted.evaluate(split)
    ap = {row.scorer: row.metrics["ap"] for row in result.rows if row.part == "test"}
    assert set(ap) == {
        "tidegraph",
        "majority",
        "source-last-label",
        "destination-last-label",
        "amount-alone",
        "gradient-boosting",
    }
    assert ap["tidegraph"] > 2 * ap["gradient-boosting"]
    assert ap["tidegraph"] > ap["destination-last-label"]
    assert result.headline == "ap"
    assert fitted.class_names == ["ok", "fraud"]


def test_calibration_does_not_change_the_order_and_lowers_the_loss(
    fitted: EventClassifier, paid: EventStream, split: evaluation.Split
) -> None:
    held = paid.where((paid.t > split.validation_time) & (paid.t <= split.test_time))
    calibrated = fitted.predict_proba(held)
    temperature, fitted.temperature_ = fitted.temperature_, 1.0
    try:
        plain = fitted.predict_proba(held)
    finally:
        fitted.temperature_ = temperature
    assert held.labels is not None
    assert metrics.log_loss(held.labels, calibrated) <= metrics.log_loss(held.labels, plain) + 1e-6
    order = np.argsort(plain[:, 1], kind="stable")
    assert (np.diff(calibrated[order, 1]) >= 0).all()
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, rtol=1e-5)


def test_a_saved_model_answers_the_same_and_takes_new_nodes_by_advancing(
    fitted: EventClassifier, paid: EventStream, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "model")
    model = EventClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_proba(paid[-20:]), fitted.predict_proba(paid[-20:]))
    assert set(model.predict(paid[-20:])) <= {"ok", "fraud"}
    table = payments(3_000, accounts=250)[-3:].drop(columns="outcome")
    table["when"] += 10**6
    table["payer"] = ["A0001", "newcomer", "newcomer"]
    later = tidegraph.read(table, t="when", weight=False, edge_features=OWN)
    with pytest.raises(DataError, match=r"newcomer.*advance"):
        model.predict_proba(later)
    later = later.continuing(model.stream)
    found = model.advance(later).predict_proba(later)
    assert found.shape == (3, 2)
    assert np.isfinite(found).all()


def test_several_classes_given_as_numbers(paid: EventStream) -> None:
    stream = replace(
        paid[:1_500], labels=paid.src[:1_500] % 3, vocabulary=replace(paid.vocabulary, labels=())
    )
    split = evaluation.tgb_split(stream)
    model = EventClassifier(**SMALL, encoder="state").fit(stream, split)
    result = model.evaluate(split, parts=("test",))
    assert set(result.row("test").metrics) == {"micro-f1", "macro-f1", "log-loss"}
    assert result.row("test").metrics["micro-f1"] > 0.8  # labels of the source are known
    assert model.score(stream[-100:]) > 0.8


@pytest.mark.parametrize("values", [(1, 2), (-1, 1), (0, 7)])
def test_integers_that_do_not_count_from_zero_are_classes_by_their_own_values(
    values: tuple[int, int], tmp_path: Path
) -> None:
    table = payments(1_500, accounts=150)
    table["outcome"] = np.where(table["outcome"] == "fraud", values[1], values[0])
    zero = table.assign(outcome=(table["outcome"] == values[1]).astype(int))
    stream, expected = stream_of(table), stream_of(zero)
    assert stream.vocabulary.labels == tuple(map(str, values))
    np.testing.assert_array_equal(stream.labels, expected.labels)
    gaps = table.astype({"outcome": float})  # as pandas writes integers with gaps
    gaps.loc[5, "outcome"] = np.nan
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    for source in (gaps, tmp_path / "gaps.csv"):
        found = tidegraph.read(source, t="when", label="outcome", weight=False)
        assert found.vocabulary == replace(stream.vocabulary, features=(), categories={})
        assert found.labels[5] == -1  # type: ignore[index]
    # Later rows have the codes of the model, also where they show less.
    for rows in (table[-50:], table[-50:].assign(outcome=float(values[0]))):
        later = read_like(stream, rows)
        words = np.array([*map(int, later.vocabulary.labels), 99])
        np.testing.assert_array_equal(words[later.labels], rows["outcome"])


def test_classes_are_learned_and_evaluated_wherever_their_numbers_begin(paid: EventStream) -> None:
    stream = paid[:800]
    assert stream.labels is not None
    plain = replace(stream.vocabulary, labels=())
    same = (
        replace(stream, vocabulary=replace(plain, labels=("1", "2"))),
        replace(stream, vocabulary=plain, labels=stream.labels + 1),  # given as arrays
    )
    split, own = evaluation.tgb_split(stream), {**SMALL, "epochs": 1, "encoder": None}
    only: dict[str, Any] = {"parts": ("test",), "heuristics": False}
    expected = EventClassifier(**own).fit(stream, split).evaluate(split, **only)
    assert "ap" in expected.row("test").metrics
    for each in same:
        model = EventClassifier(**own).fit(each, split)
        assert model.evaluate(split, **only).row("test").metrics == expected.row("test").metrics
        assert model.class_names == ["1", "2"]
        assert set(model.predict(each[-200:]).tolist()) <= {1, 2}


def test_minus_one_is_no_label_next_to_several_classes() -> None:
    table = {"src": [0] * 4, "dst": [1] * 4, "t": range(4)}
    for labels, codes, words in (
        ([-1, 0, 1, 1], [-1, 0, 1, 1], ()),
        ([-1, 1, 2, 1], [-1, 0, 1, 0], ("1", "2")),
        ([-1, 1, 1, 1], [0, 1, 1, 1], ("-1", "1")),
        ([-1, 0, 0, 0], [-1, 0, 0, 0], ()),
        ([3, 3, 3, 3], [3, 3, 3, 3], ()),
    ):
        stream = read_table({**table, "label": labels})
        assert (stream.labels.tolist(), stream.vocabulary.labels) == (codes, words)  # type: ignore[union-attr]


def test_integers_continue_integers_and_words_words() -> None:
    def of(labels: list[int], words: tuple[str, ...] = ()) -> EventStream:
        ends = [0] * len(labels), [1] * len(labels), range(len(labels))
        return EventStream(*ends, labels=labels, vocabulary=Vocabulary(labels=words))

    earlier, later = of([0, 1, 2]), of([0, 1, -1], ("2", "1"))
    assert later.continuing(earlier).labels.tolist() == [2, 1, -1]  # type: ignore[union-attr]
    joined = earlier.continuing(of([0, 1], ("1", "2")))
    assert (joined.labels.tolist(), joined.vocabulary.labels) == ([2, 0, 1], ("1", "2", "0"))  # type: ignore[union-attr]
    for one, other in ((earlier, of([0], ("x",))), (of([0], ("x",)), earlier)):
        with pytest.raises(EventError, match="use one kind"):
            one.continuing(other)


def test_labels_that_are_known_late_do_not_train(paid: EventStream) -> None:
    split = evaluation.tgb_split(paid)
    delay = int(split.test_time - split.validation_time) * 2
    rows, part = EventClassifier(label_delay=delay).examples(paid, split)
    assert (paid.t[rows[part < 2]] + delay <= split.test_time).all()
    assert (part == 2).sum() == (paid.t > split.test_time).sum()


def test_training_further_learns_from_later_labels(paid: EventStream) -> None:
    first, rest = paid[:2_500], paid[2_500:]
    model = EventClassifier(**SMALL).fit(first)
    before = model.predict_proba(rest[:1])
    model.partial_fit(rest)
    assert len(model.stream) == len(paid)
    assert (model.predict_proba(rest[:1]) != before).any()
    with pytest.raises(DataError, match="class 7"):
        model.train_further(
            replace(
                rest, labels=np.full(len(rest), 7), vocabulary=replace(rest.vocabulary, labels=())
            )
        )


def test_a_stream_without_labels_names_the_option() -> None:
    stream = EventStream([0, 1, 0, 1], [1, 0, 1, 0], [1, 2, 3, 4])
    with pytest.raises(DataError, match="--label COLUMN"):
        EventClassifier(**SMALL).fit(stream)


# The command line ---------------------------------------------------------------------------------

QUICK = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]


def command(*words: object) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)))


def last_line(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return payments_file(tmp_path_factory.mktemp("paid") / "payments.csv", 1_500, accounts=150)


@pytest.fixture(scope="module")
def run(file: Path) -> Path:
    out = file.parent / "runs"
    words = "run", file, "--task", "events", "--label", "outcome", "--out", out, *QUICK
    results = last_line(command(*words, "--label-delay", 3600, "--json"))
    assert results["task"] == "events"
    assert results["classes"] == ["ok", "fraud"]
    assert [line.partition(":")[0] for line in results["inputs"]] == OWN
    assert results["settings"]["label_delay"] == 3600
    assert results["headlines"] == {"none": "ap"}
    assert set(results["metrics"]["none"]["all"]) == set(
        results["heuristics"]["gradient-boosting"]["none"]["all"]
    )
    return out / "payments-events"


def test_a_report_says_what_is_read_and_names_the_class(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Which class does each event have?" in page
    assert "channel: words, one-hot, 4 words" in page
    assert "class fraud" in page


def test_predictions_of_rows_use_rows_before_them_and_take_new_accounts(
    run: Path, file: Path, tmp_path: Path
) -> None:
    table = pd.read_csv(file)[-3:]
    table["when"] = ["2025-01-01 10:00", "2025-01-01 11:00", "2025-01-01 11:00"]
    table["payer"] = ["newcomer", "newcomer", "A0001"]
    asked = tmp_path / "asked.csv"
    table.drop(columns="outcome").to_csv(asked, index=False)
    answers = last_line(command("predict", run, "--events", asked, "--json"))["answers"]
    assert [answer["src"] for answer in answers] == table["payer"].tolist()
    for answer in answers:
        assert answer["probability of ok"] + answer["probability of fraud"] == pytest.approx(1)
    assert answers[0] != answers[1]
    table.drop(columns=["outcome", "amount"]).to_csv(asked, index=False)
    result = command("predict", run, "--events", asked)
    assert result.exit_code == 2
    assert "'amount'" in result.stderr
    # Rows that the model knows are answered from what was before them.
    old = tmp_path / "old.csv"
    pd.read_csv(file)[1_200:1_210].to_csv(old, index=False)
    found = last_line(command("predict", run, "--events", old, "--json"))["answers"]
    model = EventClassifier.load(run / "seed-0" / "model")
    expected = model.predict_proba(model.stream[1_200:1_210])
    given = [answer["probability of fraud"] for answer in found]
    np.testing.assert_allclose(given, expected[:, 1], rtol=1e-4)


def test_rows_to_predict_are_read_as_the_data_of_the_model(
    run: Path, file: Path, tmp_path: Path
) -> None:
    table = pd.read_csv(file)[1_200:1_210]
    asked = tmp_path / "asked.csv"
    table.to_csv(asked, index=False)
    expected = last_line(command("predict", run, "--events", asked, "--json"))["answers"]
    table["when"] = pd.to_datetime(table["when"]).dt.strftime("%d/%m/%Y %H:%M:%S")
    table.to_csv(asked, index=False, sep=";", decimal=",")
    words = "predict", run, "--events", asked, "--date-format", "%d/%m/%Y", "--json"
    assert last_line(command(*words))["answers"] == expected
    table["when"] = range(10)
    table.to_csv(asked, index=False)
    result = command("predict", run, "--events", asked)
    assert result.exit_code == 2
    assert "--unit s" in result.stderr


def test_a_model_says_how_to_ask_it(run: Path, file: Path) -> None:
    result = command("predict", run, "--src", "A0001", "--rank", 3)
    assert result.exit_code == 2
    assert "--events" in result.stderr
    result = command("predict", run, "--events", file, "--rank", 3)
    assert result.exit_code == 2


def test_training_and_evaluating_classes_of_events(file: Path, tmp_path: Path) -> None:
    words = file, "--task", "events", "--label", "outcome", "--edge-feature", "amount", *QUICK
    trained = last_line(command("train", *words, "-o", tmp_path / "model", "--json"))
    assert trained["validation"]["ap"] > 0
    assert EventClassifier.load(tmp_path / "model").own_.words == {}
    evaluated = last_line(command("evaluate", *words, "--seeds", 0, "--json"))
    assert evaluated["inputs"] == ["amount: a number, missing ones flagged"]


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["--task", "events"], "--label COLUMN"),
        (["--task", "events", "--label", "outcome", "--sampler", "random-dst"], "no negatives"),
        (["--task", "events", "--label", "outcome", "--protocol", "roland"], "roland"),
        (["--label-delay", "5"], "--task events"),
        (["--task", "events", "--label", "outcme"], "'outcome'"),
    ],
)
def test_what_does_not_fit_the_task_is_rejected(
    words: list[str], fact: str, file: Path, tmp_path: Path
) -> None:
    result = command("evaluate", file, *words)
    assert result.exit_code == 2
    assert fact in result.stderr


def test_the_guide_states_what_was_measured() -> None:
    root = Path(__file__).parent.parent
    measured = json.loads((root / "benchmarks/results/event_classes.json").read_bytes())["results"]
    guide = (root / "docs/guides/event-classes.md").read_text(encoding="utf-8")
    rows = [line for line in guide.splitlines() if "-last-label" in line and "|" in line]
    for row, (name, found) in zip(rows[-3:], measured.items(), strict=True):
        assert row.lower().startswith(f"| {name}")
        own = found["metrics"]["none"]["all"]
        best = max(each["none"]["all"]["ap"] for each in found["heuristics"].values())
        for value in (own["ap"]["mean"], own["auc"]["mean"], best):
            assert f"{100 * value:.1f}" in row


# Classes that are rare, late or cut off -----------------------------------------------------------


def labelled_stream(labels: list[int]) -> EventStream:
    rows = np.arange(len(labels))
    return EventStream(rows % 7, 7 + rows % 5, rows, labels=labels)


def test_a_class_that_max_examples_cuts_off_is_not_learned() -> None:
    stream = labelled_stream([2] * 3 + [k % 2 for k in range(297)])
    model = EventClassifier(columns=2, epochs=1, hidden=4, max_examples=100).fit(stream)
    assert model.classes_.tolist() == [0, 1]
    probability = model.predict_proba(stream[-5:])
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)


def test_a_label_that_becomes_known_after_the_test_began_is_no_class_of_the_heuristics() -> None:
    stream = labelled_stream([2 if k == 290 else k % 2 for k in range(400)])
    split = evaluation.time_split(stream, validation_time=200, test_time=299)
    model = EventClassifier(columns=2, epochs=1, hidden=4, label_delay=30).fit(stream, split)
    rows = {row.scorer for row in model.evaluate(split).rows}
    assert {"source-last-label", "destination-last-label"} <= rows


def test_new_nodes_are_numbered_by_their_first_event() -> None:
    earlier = EventStream([0], [1], [1], names=["ann", "bob"])
    one = EventStream([0], [1], [5], names=["eve", "sam"])
    more = EventStream([0, 1], [2, 3], [5, 6], names=["eve", "zoe", "sam", "tim"])
    for later in (one, more):
        names = later.continuing(earlier).names
        assert names is not None
        assert names.values.tolist()[:4] == ["ann", "bob", "eve", "sam"]


def test_negative_labels_other_than_the_one_for_none_are_bad(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("src,dst,t,label\na,b,1,0\nb,a,2,-7\n")
    with pytest.raises(DataError, match="below -1"):
        tidegraph.read(tmp_path / "b.csv")
