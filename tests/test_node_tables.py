"""Classes and features of nodes from tables, from the file to the predicted table."""

from __future__ import annotations

import csv
import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegraph import (
    EventStream,
    NodeClassifier,
    cli,
    evaluation,
    read_table,
    with_node_features,
    with_node_labels,
)
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import ALWAYS, NodeLabels
from tidegraph.runs import config
from tidegraph.runs.protocol import Protocol

PEOPLE = [f"p{k:02d}" for k in range(60)]
TEAMS = ["sales", "support"]
QUICK: dict[str, Any] = {"columns": 8, "epochs": 2, "hidden": 16, "members": 1, "threads": 1}


def team(person: str) -> str:
    return TEAMS[int(person[1:]) % 3 == 0]  # support is the rarer one


def mails(events: int = 900) -> EventStream:
    """People write to people of their own team."""
    random = np.random.default_rng(3)
    src = random.integers(0, 60, events)
    dst = (src + 3 * random.integers(1, 10, events)) % 60
    return EventStream(src, dst, np.arange(events) * 100, names=PEOPLE)


STREAM = mails()
ALL = {"person": PEOPLE, "team": [team(person) for person in PEOPLE]}


def labels_of(stream: EventStream) -> NodeLabels:
    assert stream.node_labels is not None
    return stream.node_labels


def told(stream: EventStream) -> dict[str, str]:
    """What the stream says about nodes, by name."""
    labels, words = labels_of(stream), stream.vocabulary.labels
    return {
        str(stream.name(n)): words[k] if words else str(k)
        for n, k in zip(labels.node, labels.label, strict=True)
    }


def features_of(stream: EventStream) -> np.ndarray[Any, Any]:
    assert stream.node_features is not None
    return stream.node_features


# Classes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("order", [("person", "team"), ("team", "person")])
def test_columns_are_found_by_their_names_in_any_order(
    tmp_path: Path, mark: str, order: tuple[str, str]
) -> None:
    with (tmp_path / "teams.csv").open("w", newline="") as file:
        rows = zip(*(ALL[name] for name in order), strict=True)
        csv.writer(file, delimiter=mark).writerows([order, *rows])
    read = with_node_labels(STREAM, tmp_path / "teams.csv")
    assert told(read) == dict(zip(*ALL.values(), strict=True))
    assert read.vocabulary.labels == ("sales", "support")  # the most frequent first
    assert (labels_of(read).t == ALWAYS).all()


def test_a_file_without_a_header_is_read_by_the_order_of_its_columns(tmp_path: Path) -> None:
    numbered = EventStream(STREAM.src, STREAM.dst, STREAM.t)
    path = tmp_path / "labels.csv"
    path.write_text("".join(f"{k},{k % 2}\n" for k in range(60)))
    assert told(with_node_labels(numbered, path)) == {str(k): str(k % 2) for k in range(60)}
    path.write_text("".join(f"{k},{k * 100},{k % 2}\n" for k in range(60)))
    labels = labels_of(with_node_labels(numbered, path))
    assert labels.t.tolist() == [k * 100 for k in range(60)]
    assert labels.part is None


@pytest.mark.parametrize("kind", ["parquet", "dict", "arrow"])
def test_a_table_may_have_any_form_that_events_have(tmp_path: Path, kind: str) -> None:
    table: Any = pa.table(ALL)
    if kind == "parquet":
        pq.write_table(table, tmp_path / "teams.parquet")
        table = tmp_path / "teams.parquet"
    table = ALL if kind == "dict" else table
    assert told(with_node_labels(STREAM, table)) == dict(zip(*ALL.values(), strict=True))


@pytest.mark.parametrize("labels", [[-1, 1], [3, 7], [1.0, 2.0], [True, False]])
def test_classes_that_do_not_count_from_zero_are_names(labels: list[Any]) -> None:
    given_ = [labels[k % 3 == 0] for k in range(60)]
    read = with_node_labels(STREAM, {"node": PEOPLE, "label": given_})
    spelled = [str(int(k)) if isinstance(k, float) else str(k).lower() for k in given_]
    assert told(read) == dict(zip(PEOPLE, spelled, strict=True))
    assert np.bincount(labels_of(read).label).tolist() == [40, 20]


def test_classes_that_count_from_zero_stay_what_they_are() -> None:
    read = with_node_labels(STREAM, {"node": PEOPLE, "label": [k % 3 for k in range(60)]})
    assert read.vocabulary.labels == ()
    assert told(read) == {person: str(k % 3) for k, person in enumerate(PEOPLE)}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=20, max_size=60), st.integers(0, 99), st.randoms())
def test_each_class_is_divided_alike_whatever_the_order_of_rows(
    classes: list[int], seed: int, random: Any
) -> None:
    classes[:2] = [0, 1]
    rows = [(person, f"class {k}") for person, k in zip(PEOPLE, classes, strict=False)]
    shuffled = random.sample(rows, len(rows))
    tables = [
        dict(zip(("node", "label"), zip(*each, strict=True), strict=True))
        for each in (rows, shuffled)
    ]
    one, other = (labels_of(with_node_labels(STREAM, table, seed=seed)) for table in tables)
    assert one.part is not None
    assert other.part is not None
    assert dict(zip(one.node, one.part, strict=True)) == dict(
        zip(other.node, other.part, strict=True)
    )
    for k in np.unique(one.label):
        count = np.bincount(one.part[one.label == k], minlength=3)
        total = count.sum()
        assert count.tolist() == [
            sum(low <= rank / total < high for rank in range(total))
            for low, high in ((0, 0.6), (0.6, 0.8), (0.8, 1))
        ]


def test_labels_with_times_keep_their_times_in_the_unit_of_the_events(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("src,dst,t\n" + "".join(f"a{k % 20},b,{k}.5\n" for k in range(100)))
    fine = read_table(path)
    assert fine.unit == "ms"
    table = {"node": [f"a{k}" for k in range(20)], "time": list(range(20)), "label": [0, 1] * 10}
    assert labels_of(with_node_labels(fine, table)).t.tolist() == [k * 1000 for k in range(20)]
    dated = read_table({"src": ["a", "b"], "dst": ["b", "a"], "t": ["2024-01-01", "2024-03-01"]})
    table = {
        "node": ["a", "b"] * 6,
        "when": [f"2024-02-{k + 1:02d}" for k in range(12)],
        "label": ["x", "y"] * 6,
    }
    expected = dated.times_of(table["when"]).tolist()
    assert labels_of(with_node_labels(dated, table)).t.tolist() == expected
    timed = {**ALL, "when": range(60)}
    assert labels_of(with_node_labels(STREAM, timed)).part is None
    assert with_node_labels(STREAM, timed, t=False).labels_hold_always


@pytest.mark.parametrize(
    ("events", "labels", "options"),
    [
        ("%Y-%m-%d", "%d.%m.%Y", {}),
        ("%Y-%m-%d", "%m/%d/%Y", {}),
        ("%Y-%m-%d", "%Y%m%d%H%M%S", {}),
        ("%d/%m/%y", "%d/%m/%y", {}),  # as the events
        ("%Y%m%d", "%Y%m%d", {}),
        ("%d/%m/%y", "%Y-%m-%d", {}),
        ("%Y-%m-%d", "%d %b %y", {"date_format": "%d %b %y"}),
    ],
)
def test_dates_of_labels_are_read_as_those_of_events(
    events: str, labels: str, options: dict[str, Any]
) -> None:
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=9 * k) for k in range(14)]
    ends = {"src": [f"a{k}" for k in range(14)], "dst": ["b"] * 14}
    form = events if events != "%Y-%m-%d" else None
    stream = read_table({**ends, "t": [f"{day:{events}}" for day in days]}, date_format=form)
    table = {
        "node": ends["src"],
        "when": [f"{day:{labels}}" for day in days],
        "label": ["x", "y"] * 7,
    }
    found = with_node_labels(stream, table, **options)
    assert labels_of(found).t.tolist() == stream.times_of([f"{day}" for day in days]).tolist()


def test_dates_of_any_format_are_numbers_among_features() -> None:
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=9 * k) for k in range(60)]
    expected = with_node_features(STREAM, {"node": PEOPLE, "since": [f"{d}" for d in days]})
    found = with_node_features(STREAM, {"node": PEOPLE, "since": [f"{d:%m/%d/%Y}" for d in days]})
    np.testing.assert_array_equal(features_of(found), features_of(expected))
    assert features_of(found).shape == (60, 1)


def broken(**changes: Any) -> dict[str, Any]:
    return {**ALL, **changes}


@pytest.mark.parametrize(
    ("table", "facts"),
    [
        (broken(person=["Ann", "Bob", *PEOPLE[2:]]), "2 nodes Ann Bob p00 on_bad"),
        (broken(team=["sales"] * 60), "'sales' two classes"),
        ({"node": PEOPLE[:4], "label": [0, 1, 0, 1]}, "4 labels 10"),
        (broken(person=["p00", "p00", *PEOPLE[2:]]), "p00 'sales' 'support' contradict"),
        (broken(person=["", *PEOPLE[1:]]), "row 0 node missing"),
        ({"node": PEOPLE, "label": range(60), "t": [10**15] * 60}, "89900 within"),
        ({"who": PEOPLE, "what": ALL["team"]}, "'who' 'what' node label"),
        ({"node": PEOPLE * 20, "label": range(1200)}, "1,200 1,000"),
    ],
)
def test_a_table_that_cannot_be_used_is_rejected_with_the_facts(
    table: dict[str, Any], facts: str
) -> None:
    with pytest.raises(DataError) as caught:
        with_node_labels(STREAM, table)
    for fact in facts.split():
        assert fact in str(caught.value)


def test_rows_that_cannot_be_used_are_dropped_and_counted_if_asked() -> None:
    table = {"node": ["Ann", "", *PEOPLE], "label": ["sales", "sales", *ALL["team"]]}
    read = with_node_labels(STREAM, table, on_bad="drop")
    assert told(read) == told(with_node_labels(STREAM, ALL))
    assert read.report is not None
    assert any("Ann" in note for note in read.report.notes)


def test_empty_labels_are_none_and_repeated_rows_count_once() -> None:
    table = {
        "node": [*PEOPLE, "p00"],
        "label": [*ALL["team"][:50], *([""] * 5), *(["NA"] * 5), ALL["team"][0]],
    }
    read = with_node_labels(STREAM, table)
    assert told(read) == dict(zip(PEOPLE[:50], ALL["team"], strict=False))


def test_an_id_of_two_sides_is_asked_for_unless_something_says_which() -> None:
    names = NodeNames.of_sides(range(30), range(30))
    sides = EventStream(np.arange(30), np.arange(30, 60), np.arange(30), names=names)
    table = {"user": range(30), "label": [0, 1] * 15}
    for read, rows in ((with_node_labels, table), (with_node_features, table)):
        with pytest.raises(DataError, match=r"30 rows.*side='src' or side='dst'"):
            read(sides, rows)
    with pytest.raises(ParameterError, match="'left'"):
        with_node_labels(sides, table, side="left")  # type: ignore[arg-type]
    for side, numbers in (("src", range(30)), ("dst", range(30, 60))):
        found = with_node_labels(sides, table, side=side)  # type: ignore[arg-type]
        assert sorted(labels_of(found).node.tolist()) == list(numbers)
        columns = {"src": "user", "dst": "item"} if side == "src" else {"src": "who", "dst": "user"}
        ends = {columns["src"]: range(30), columns["dst"]: range(30), "t": range(30)}
        named = read_table(ends, src=columns["src"], dst=columns["dst"], bipartite=True)
        assert sorted(labels_of(with_node_labels(named, table)).node.tolist()) == list(numbers)
    other = {"user": [f"dst {k}" for k in range(30)], "label": [0, 1] * 15}
    assert sorted(labels_of(with_node_labels(sides, other)).node.tolist()) == list(range(30, 60))


def test_a_saved_stream_keeps_classes_and_features(tmp_path: Path) -> None:
    table = {"name": PEOPLE, "age": range(60)}
    read = with_node_features(with_node_labels(STREAM, ALL), table)
    read.save(tmp_path / "mails.tide")
    again = EventStream.load(tmp_path / "mails.tide")
    assert again.digest() == read.digest()
    assert told(again) == told(read)
    assert again.labels_hold_always


# Learning -----------------------------------------------------------------------------------------


def with_changed(stream: EventStream, nodes: np.ndarray[Any, Any]) -> EventStream:
    """The stream with other labels for some nodes, in the same parts."""
    labels = labels_of(stream)
    changed = np.where(np.isin(labels.node, nodes), 1 - labels.label, labels.label)
    return replace(stream, node_labels=replace(labels, label=changed))


def test_labels_of_the_test_have_no_effect_on_the_answers() -> None:
    stream = with_node_labels(STREAM, ALL)
    labels, split = labels_of(stream), evaluation.node_split(stream)
    assert labels.part is not None
    other = with_changed(stream, labels.node[labels.part == 2])
    one, two = (NodeClassifier(**QUICK).fit(each, split) for each in (stream, other))
    np.testing.assert_array_equal(one.predict_proba(PEOPLE), two.predict_proba(PEOPLE))


def test_a_label_is_no_input_for_its_own_node_but_for_others() -> None:
    stream = with_node_labels(STREAM, ALL)
    labels, split = labels_of(stream), evaluation.node_split(stream)
    assert labels.part is not None
    node = labels.node[labels.part == 0][:1]
    one = NodeClassifier(**QUICK).fit(stream, split)
    before = one.predict_proba(np.arange(60))
    one._stream = with_changed(stream, node)
    one._features = one._new_features()
    after = one.predict_proba(np.arange(60))
    np.testing.assert_array_equal(before[node], after[node])
    assert (before != after).any()


def test_without_a_test_its_labels_train() -> None:
    stream = with_node_labels(STREAM, ALL)
    classifier = NodeClassifier(**QUICK)
    parts = [
        np.bincount(examples.part, minlength=3).tolist()
        for split in (evaluation.node_split(stream), evaluation.latest_split(stream))
        if (examples := classifier.examples(stream, split)).part is not None
    ]
    assert parts == [[36, 12, 12], [48, 12, 0]]


def test_answers_have_the_names_of_the_classes_and_beat_the_majority() -> None:
    stream = with_node_labels(STREAM, ALL)
    split = evaluation.node_split(stream)
    classifier = NodeClassifier(**{**QUICK, "epochs": 30, "patience": 30}).fit(stream, split)
    assert classifier.class_names == ["sales", "support"]
    assert set(classifier.predict(PEOPLE)) == set(TEAMS)
    assert classifier.score(PEOPLE, stream.t[-1] + 1, ALL["team"]) > 0.9
    rows = {row.scorer: row.metrics["micro-f1"] for row in classifier.evaluate(split).rows}
    assert rows["neighbours"] == 1  # people write within their team only
    assert rows["tidegraph"] > rows["majority"]


# Features -----------------------------------------------------------------------------------------


def test_numbers_are_standardised_and_words_one_hot() -> None:
    table = {
        "name": [*PEOPLE[:50], "nobody"],
        "age": [*range(49), None, 7],
        "city": [["Rome", "Oslo"][k % 2] for k in range(51)],
        "same": [1] * 51,
        "note": [f"text {k}" for k in range(51)],
        "joined": [f"20{10 + k % 10}-01-01" for k in range(51)],
    }
    read = with_node_features(STREAM, table)
    x = features_of(read)
    assert x.shape == (60, 6)  # age and its flag, two cities, the date, and the flag of nodes
    there = x[:49, 0]
    assert abs(there.mean()) < 1e-5
    assert abs(there.std() - 1) < 1e-5
    assert x[49, :2].tolist() == [0, 1]
    assert x[:50, 2:4].sum(axis=1).tolist() == [1] * 50
    assert not x[50:, :5].any()
    assert x[:, 5].tolist() == [0] * 50 + [1] * 10
    assert read.report is not None
    notes = " ".join(read.report.notes)
    assert all(word in notes for word in ("'same'", "'note'", "nobody", "10 nodes"))


def test_many_words_are_hashed() -> None:
    words = [f"word {k % 40}" for k in range(60)]
    x = features_of(with_node_features(STREAM, {"node": PEOPLE, "word": words}))
    assert x.shape == (60, 32)
    assert (x.sum(axis=1) == 1).all()
    assert (x[:20] == x[40:]).all()


def test_a_second_table_adds_columns() -> None:
    users = {"node": PEOPLE[:30], "age": range(30)}
    items = {"node": PEOPLE[30:], "price": range(30)}
    x = features_of(with_node_features(with_node_features(STREAM, users), items))
    assert x.shape == (60, 4)
    assert x[:, [1, 3]].sum(axis=1).tolist() == [1] * 60


@pytest.mark.parametrize(
    ("table", "facts"),
    [
        ({"node": ["p00", "p00"], "age": [1, 2]}, "1 node p00 one row"),
        ({"node": ["Ann"], "age": [1]}, "no node"),
        ({"node": PEOPLE, "age": [1] * 60}, "no column 'node'"),
    ],
)
def test_features_that_cannot_be_used_are_rejected(table: dict[str, Any], facts: str) -> None:
    with pytest.raises(DataError) as caught:
        with_node_features(STREAM, table)
    for fact in facts.split():
        assert fact in str(caught.value)


def test_a_classifier_reads_the_features_of_nodes() -> None:
    """Nothing but the feature tells the classes apart: partners are drawn at random."""
    random = np.random.default_rng(0)
    src, dst = random.integers(0, 60, (2, 300))
    stream = EventStream(src, dst, np.arange(300), names=PEOPLE)
    stream = with_node_labels(stream, ALL)
    split = evaluation.node_split(stream)
    kind = [int(each == "sales") for each in ALL["team"]]
    told_apart = with_node_features(stream, {"node": PEOPLE, "x": kind})
    options = {**QUICK, "epochs": 60, "patience": 60, "learning_rate": 0.03, "known_labels": False}
    f1 = [
        NodeClassifier(**options).fit(each, split).evaluate(split).row("test").metrics["micro-f1"]
        for each in (stream, told_apart)
    ]
    assert f1[0] < 0.8 < 0.9 < f1[1]


# Commands -----------------------------------------------------------------------------------------


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)))


def test_a_task_has_one_name_in_the_singular_and_the_plural() -> None:
    assert Protocol("tgb", task="nodes").task == "node"
    data = {"data": {"name": "x.csv"}}
    assert config.resolve({**data, "task": "nodes"}).task == "node"
    assert config.resolve(data, config.assignments(["task=nodes", "members=2"])).task == "node"


@pytest.mark.parametrize("command", [["run"], ["evaluate"], ["train", "-o", "x.model"]])
def test_tables_that_no_model_of_the_task_reads_are_rejected(
    tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "mails.csv"
    path.write_text("src,dst,t\na,b,1\nb,a,2\n")
    for words in (["--node-features", path], ["--labels", path, "--task", "link"]):
        asked = run(*command, path, *words)
        assert asked.exit_code == 2
        assert str(words[0]) in asked.output
        assert "--task nodes" in asked.output


def test_from_files_to_a_table_of_classes(tmp_path: Path) -> None:
    events, teams, ages = (tmp_path / f"{name}.csv" for name in ("mails", "teams", "ages"))
    pairs = zip(STREAM.name(STREAM.src), STREAM.name(STREAM.dst), STREAM.t, strict=True)
    events.write_text("src,dst,t\n" + "".join(f"{a},{b},{t}\n" for a, b, t in pairs))
    teams.write_text("person,team\n" + "".join(f"{p},{team(p)}\n" for p in PEOPLE[:40]))
    ages.write_text("person,age\n" + "".join(f"{p},{k}\n" for k, p in enumerate(PEOPLE)))
    quick = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
    given_ = [events, "--labels", teams, "--node-features", ages, *quick]
    done = run("run", *given_, "--out", tmp_path / "runs", "--no-report", "--json")
    assert done.exit_code == 0, done.output
    answers = tmp_path / "classes.csv"
    asked = run("predict", tmp_path / "runs" / "mails-nodes", "--unlabelled", "-o", answers)
    assert asked.exit_code == 0, asked.output
    with answers.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["node"] for row in rows} == set(PEOPLE[40:])
    for row in rows:
        shares = {name: float(row[f"probability of {name}"]) for name in TEAMS}
        assert abs(sum(shares.values()) - 1) < 1e-4
        assert row["class"] == max(shares, key=lambda name: shares[name])
    # The same from `train`, and as Parquet of every node.
    model, table = tmp_path / "mails.model", tmp_path / "classes.parquet"
    trained = run("train", *given_, "-o", model, "--task", "nodes")
    assert trained.exit_code == 0, trained.output
    asked = run("predict", model, "-o", table)
    assert asked.exit_code == 0, asked.output
    known = dict(
        zip(*(pq.read_table(table)[name].to_pylist() for name in ("node", "label")), strict=True)
    )
    assert known == {p: team(p) if p in PEOPLE[:40] else None for p in PEOPLE}
    wrong = run("predict", model, "--src", "p00", "--rank", 3)
    assert wrong.exit_code == 2
    assert "--node" in wrong.output


def test_columns_of_tables_about_nodes_are_named_in_commands(tmp_path: Path) -> None:
    ends = zip(STREAM.name(STREAM.src), STREAM.name(STREAM.dst), STREAM.t, strict=True)
    rows = [f"{src},{dst},{t}" for src, dst, t in ends]
    (tmp_path / "mails.csv").write_text("\n".join(["src,dst,t", *rows]))
    rows = [f"{person},{team(person)},{k}" for k, person in enumerate(PEOPLE)]
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["foo,bar,baz", *rows]))
    words = ["run", tmp_path / "mails.csv", "--no-report", "--out", tmp_path]
    words += [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    unnamed = run(*words, "--labels", tmp_path / "a.csv")
    assert unnamed.exit_code == 2
    assert "FILE:node=COLUMN" in " ".join(unnamed.output.split())
    done = run(
        *(*words, "--labels", f"{tmp_path}/a.csv:node=foo,label=bar"),
        *("--node-features", f"{tmp_path}/b.csv:node=0"),
    )
    assert done.exit_code == 0, done.output
    stream = EventStream.load(tmp_path / "mails-nodes" / "events.tide")
    assert told(stream) == dict(zip(*ALL.values(), strict=True))
    assert features_of(stream).shape == (60, 3)


def test_a_table_of_labels_is_rejected_as_features(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("src,dst,t\n" + "\n".join(f"a,b,{k}" for k in range(20)))
    (tmp_path / "n.csv").write_text("node,label\na,x\nb,y\n")
    words = ["run", tmp_path / "e.csv", "--labels", tmp_path / "n.csv", "--out", tmp_path / "runs"]
    done = run(*words, "--node-features", tmp_path / "n.csv")
    assert done.exit_code == 2
    assert "labels would be read as features" in " ".join(done.output.split())
    assert not (tmp_path / "runs").exists()


def test_a_table_is_about_one_side_where_ids_mean_two_nodes() -> None:
    rows = {"user": range(1, 51), "item": [k % 100 + 1 for k in range(50, 100)], "t": range(50)}
    stream = read_table(rows, bipartite=True)
    items = {"item": range(51, 101), "label": [k % 2 for k in range(50)]}
    stream = with_node_labels(stream, items)
    assert stream.node_labels is not None
    assert set(stream.name(stream.node_labels.node)) == {f"dst {k}" for k in range(51, 101)}


def test_times_of_labels_are_read_in_the_unit_in_which_most_lie_within_the_events() -> None:
    times = [f"{k}.25" for k in range(995)]
    stream = read_table({"src": ["a", "b"] * 497 + ["a"], "dst": ["c"] * 995, "t": times})
    assert stream.unit == "ms"
    seconds = [100 + 80 * k for k in range(10)]
    labels = {"node": ["a", "b"] * 5, "t": seconds, "label": ["x", "y"] * 5}
    found = with_node_labels(stream, labels).node_labels
    assert found is not None
    assert found.t.tolist() == [1000 * second for second in seconds]


def test_integers_of_nineteen_digits_name_nodes() -> None:
    ids = [1_234_567_890_123_456_789 + k for k in range(12)]
    stream = read_table({"src": ids[:6], "dst": ids[6:], "t": range(6)})
    found = with_node_labels(stream, {"node": list(map(str, ids)), "label": ["x", "y"] * 6})
    assert found.node_labels is not None
    assert sorted(stream.name(found.node_labels.node).tolist()) == ids
