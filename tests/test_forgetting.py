"""A node that is forgotten in a run or a model is in no file of it, and the others are the same."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tidegraph import (
    EventClassifier,
    EventStream,
    LinkPredictor,
    NodeClassifier,
    Propagator,
    Sketch,
    record,
    runs,
)
from tidegraph.cli.commands import main
from tidegraph.core import durable
from tidegraph.core.durable import only_writer
from tidegraph.core.errors import DataError, StateFileError, StorageError, UnknownNodeError
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import Edges, NodeLabels
from tidegraph.events.vocabulary import Vocabulary
from tidegraph.learning.tasks import Estimator
from tidegraph.runs import forgetting

SECRET = "somebody-quite-special"
NAMES = [*(f"n{each}" for each in range(6)), SECRET, *(f"m{each}" for each in range(6))]
NUMBER = NAMES.index(SECRET)
SETTINGS: dict[str, Any] = {"columns": 4, "epochs": 1, "hidden": 8, "threads": 1}
RECORDED: dict[str, Any] = {"pair_features": ("history", "sketches")}


class Killed(BaseException):
    """Stands for a kill, which nothing in the package catches."""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stream(count: int = 300, **more: Any) -> EventStream:
    generator = np.random.default_rng(0)
    src, dst = generator.integers(0, len(NAMES), (2, count))
    return EventStream(src, dst, np.arange(count) * 10, names=NAMES, **more)


def table(path: Path, count: int = 300) -> Path:
    """Write the events of `stream` as a table."""
    events = stream(count)
    names = zip(events.name(events.src), events.name(events.dst), events.t, strict=True)
    path.write_text("src,dst,t\n" + "".join(f"{a},{b},{t}\n" for a, b, t in names))
    return path


def contains(path: Path, text: str = SECRET) -> list[str]:
    files = [each for each in path.rglob("*") if each.is_file()]
    return [each.name for each in files if text.encode() in each.read_bytes()]


def content(path: Path) -> dict[str, bytes]:
    files = [each for each in path.rglob("*") if each.is_file()]
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


def beside(path: Path) -> list[str]:
    return [each.name for each in path.parent.iterdir() if each.name.startswith(".")]


def saved(path: Path, model: Estimator | None = None, events: EventStream | None = None) -> Path:
    model = LinkPredictor(**SETTINGS, **RECORDED) if model is None else model
    model.fit(stream() if events is None else events).save(path)
    return path


def test_a_stream_without_a_node_keeps_the_numbers_of_all_others() -> None:
    words = Vocabulary(categories={"by": ("n1", SECRET, "of the secret", "of all")})
    labels = NodeLabels(np.array([1, NUMBER]), np.array([5, 5]), np.array([0, 1]))
    initial = Edges(np.array([0, NUMBER]), np.array([1, 2]))
    events = stream(
        categories=np.zeros((300, 1), dtype=np.int64),
        vocabulary=words,
        node_labels=labels,
        initial=initial,
        node_features=np.ones((len(NAMES), 2)),
    )
    codes = np.where((events.src == NUMBER) | (events.dst == NUMBER), 2, 3)
    events = events._with(categories=codes[:, None])
    rest = events.without(SECRET)
    kept = (events.src != NUMBER) & (events.dst != NUMBER)
    assert np.array_equal(rest.src, events.src[kept])
    assert np.array_equal(rest.t, events.t[kept])
    assert rest.nodes == events.nodes
    assert rest.names is not None
    assert rest.names.forgotten().tolist() == [NUMBER]
    others = np.delete(np.arange(len(NAMES)), NUMBER)
    assert np.array_equal(rest.name(others), events.name(others))
    assert rest.vocabulary.categories["by"] == ("n1", SECRET, "(forgotten 2)", "of all")
    assert rest.node_labels is not None
    assert rest.node_labels.node.tolist() == [1]
    assert rest.initial is not None
    assert rest.initial.src.tolist() == [0]
    assert rest.node_features is not None
    assert not rest.node_features[NUMBER].any()
    assert events.node_features is not None
    assert events.node_features[NUMBER].all()


def test_names_that_are_integers_or_have_sides_are_forgotten() -> None:
    names = NodeNames([10, 20, -5]).without(2)
    assert names.forgotten().tolist() == [2]
    assert names.find([-5, 10]).tolist() == [-1, 0]
    sides = NodeNames.of_sides([7], [7, 8]).without(1)
    assert sides.forgotten().tolist() == [1]
    assert sides.numbers(["7", "8"]).tolist() == [0, 2]
    assert sides.find("7", side="dst") == -1
    with pytest.raises(DataError):
        NodeNames(["(forgotten 1)", "ann"]).without(1)


@pytest.mark.parametrize("settings", [{}, RECORDED], ids=["counted", "recorded"])
def test_a_model_keeps_its_weights_and_nothing_of_the_node(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    path = saved(tmp_path / "model", LinkPredictor(**SETTINGS, **settings))
    before = LinkPredictor.load(path)
    assert contains(path)
    assert not runs.audit_forgetting(path, SECRET).holds
    done = runs.forget(path, SECRET)
    assert done.events == len(stream()) - len(stream().without(SECRET))
    assert done.remains == {"models": ["model"]}
    assert not contains(tmp_path)
    assert not beside(path)
    after = LinkPredictor.load(path)
    for name, weights in before._weights().items():
        assert np.array_equal(weights, after._weights()[name])
    rest = stream().without(SECRET)
    assert after.stream.digest() == rest.digest()
    # Others' counts, records and answers are those of a model that never saw the node.
    never = before.rebuilt(rest)
    nodes, t = np.arange(rest.nodes), np.full(rest.nodes, 2500)
    assert np.array_equal(after._history.of_nodes(nodes, t), never._history.of_nodes(nodes, t))
    if after._record is not None and never._record is not None:
        far = np.linalg.norm(after._record.state(nodes, t) - never._record.state(nodes, t), axis=2)
        assert (far <= after._record.bound(nodes, t) + never._record.bound(nodes, t)).all()
        assert len(after._record.changes(NUMBER)[0]) == 1
    pairs = rest.src[-50:], rest.dst[-50:], rest.t[-50:]
    assert np.array_equal(after.decision_function(*pairs), never.decision_function(*pairs))
    certificate = runs.audit_forgetting(path, SECRET)
    assert certificate.holds
    assert (certificate.forgotten, certificate.remains) == (1, {"models": ["model"]})
    with pytest.raises(UnknownNodeError):
        after.rank(SECRET, 2500)
    # Another one, later.
    runs.forget(path, "n1")
    assert LinkPredictor.load(path).forgotten_since_ == 2
    assert runs.audit_forgetting(path, SECRET).forgotten == 2


def test_a_model_that_is_trained_anew_is_one_that_never_saw_the_node(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    done = runs.forget(path, SECRET, refit=True)
    assert done.remains == {"models": []}
    never = LinkPredictor(**SETTINGS, **RECORDED).fit(stream().without(SECRET))
    for name, weights in LinkPredictor.load(path)._weights().items():
        assert np.array_equal(weights, never._weights()[name])
    certificate = runs.audit_forgetting(path, SECRET)
    assert certificate.holds
    assert certificate.remains == {"models": []}


@pytest.mark.parametrize("kind", [NodeClassifier, EventClassifier])
def test_classifiers_forget(tmp_path: Path, kind: type[Estimator]) -> None:
    labels = np.arange(300) % 2
    path = saved(tmp_path / "model", kind(**SETTINGS), stream(labels=labels))
    runs.forget(path, SECRET)
    assert not contains(path)
    assert runs.audit_forgetting(path, SECRET).holds


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_leaves_the_old_model_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = saved(tmp_path / "model")
    old = content(path)

    def killed(aside: Path, whole: Path) -> None:
        if moment == "after":
            durable.exchange(aside, whole)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(forgetting, "exchange", killed)
        patched.setattr(shutil, "rmtree", lambda *args, **options: None)
        with pytest.raises(Killed):
            runs.forget(path, SECRET)
    assert contains(path.with_name(".model.forgetting")) or moment == "before"
    if moment == "before":
        assert content(path) == old
        runs.forget(path, SECRET)
    else:
        assert not contains(path)
        certificate = runs.audit_forgetting(path, SECRET)
        assert not certificate.holds  # the old one lies beside it
        with pytest.raises(UnknownNodeError):
            runs.forget(path, SECRET)
    assert not contains(tmp_path)
    assert runs.audit_forgetting(path, SECRET).holds
    assert LinkPredictor.load(path).stream.digest() == stream().without(SECRET).digest()


def test_what_is_wrong_changes_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path / "model")
    old = content(path)
    with pytest.raises(UnknownNodeError):
        runs.forget(path, "nobody")
    with only_writer(path), pytest.raises(StorageError):
        runs.forget(path, SECRET)
    (path / "notes.txt").write_text(f"about {SECRET}")
    with pytest.raises(StateFileError, match=r"notes\.txt"):
        runs.forget(path, SECRET)
    (path / "notes.txt").write_text("about nobody")
    assert content(path) == {**old, "notes.txt": b"about nobody"}
    assert not beside(path)
    runs.forget(path, SECRET)
    assert (path / "notes.txt").read_text() == "about nobody"


def test_other_directories_are_rejected(tmp_path: Path) -> None:
    record(stream(), Propagator(Sketch(columns=2), nodes=len(NAMES)), tmp_path / "store")
    (tmp_path / "empty").mkdir()
    for name, text in (("store", "record again"), ("empty", "no run, no model")):
        with pytest.raises(StateFileError, match=text):
            runs.forget(tmp_path / name, SECRET)
        with pytest.raises(StateFileError, match=text):
            runs.audit_forgetting(tmp_path / name, SECRET)
    pair = EventStream([NUMBER, NUMBER], [0, 1], [1, 2], names=NAMES)
    only = LinkPredictor.load(saved(tmp_path / "model"))
    only._stream = pair
    only.save(tmp_path / "only")
    with pytest.raises(DataError, match="delete the directory"):
        runs.forget(tmp_path / "only", SECRET)


def test_nodes_without_names_are_forgotten_by_number(tmp_path: Path) -> None:
    numbered = stream()
    numbered = EventStream(numbered.src, numbered.dst, numbered.t)
    path = saved(tmp_path / "model", events=numbered)
    assert runs.audit_forgetting(path, "6").known
    runs.forget(path, "6")
    assert runs.audit_forgetting(path, "6").holds
    with pytest.raises(UnknownNodeError):
        runs.forget(path, "6")


def test_one_side_of_an_id_is_forgotten(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    src, dst = generator.integers(0, 5, (2, 300))
    users, items = ["a", "b", SECRET, "d", "e"], ["v", "w", "x", "y", "z"]
    names = NodeNames.of_sides(users, items)
    events = EventStream(src, dst + 5, np.arange(300), names=names)
    path = saved(tmp_path / "model", events=events)
    (path / "notes.txt").write_text(SECRET)
    for name in (SECRET, f"src {SECRET}"):
        with pytest.raises(StateFileError, match=r"notes\.txt"):
            runs.forget(path, name)
        assert not runs.audit_forgetting(path, name).holds
    (path / "notes.txt").unlink()
    runs.forget(path, f"src {SECRET}")
    assert not contains(tmp_path)
    assert runs.audit_forgetting(path, SECRET).holds
    assert runs.audit_forgetting(path, f"src {SECRET}").holds
    both = EventStream(src, dst + 5, np.arange(300), names=NodeNames.of_sides(users, users))
    path = saved(tmp_path / "both", events=both)
    with pytest.raises(UnknownNodeError, match="dst"):
        runs.forget(path, SECRET)
    runs.forget(path, f"src {SECRET}")
    assert runs.audit_forgetting(path, f"src {SECRET}").holds
    runs.forget(path, f"dst {SECRET}")
    assert not contains(path)


def test_a_name_that_is_part_of_others_is_told_from_them(tmp_path: Path) -> None:
    names = [name if name != SECRET else "evening" for name in NAMES]
    names[0] = "good evening-dress"
    names[1] = "evenings"
    events = stream()
    path = saved(
        tmp_path / "model", events=EventStream(events.src, events.dst, events.t, names=names)
    )
    assert not runs.audit_forgetting(path, "evening").holds
    runs.forget(path, "evening")
    assert runs.audit_forgetting(path, "evening").holds
    assert "evenings" in LinkPredictor.load(path).stream.name(np.arange(3)).tolist()


# Runs ---------------------------------------------------------------------------------------------


def made(path: Path, source: Path) -> Path:
    words = [f"{name}={value}" for name, value in SETTINGS.items()]
    words.append("pair_features=history,sketches")
    options = [option for word in words for option in ("--set", word)]
    command = ["run", str(source), "-q", "--out", str(path.parent), "--name", path.name, *options]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    return made(place / "calls", table(place.parent / "calls.csv"))


def test_a_run_is_made_again_without_the_node(a_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "calls"
    shutil.copytree(a_run, path)
    out = tmp_path / "certificate.json"
    audit = ["audit", "forgetting", str(path), "--node", SECRET, "-o", str(out)]
    assert CliRunner().invoke(main, audit).exit_code == 1
    assert "calls/events.tide" in json.loads(out.read_text())["found"]
    with pytest.raises(StateFileError, match="belongs to a run"):
        runs.forget(path / "seed-0" / "model", SECRET)
    command = ["forget", str(path), "--node", SECRET, "--json"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["events"] == len(stream()) - len(stream().without(SECRET))
    assert [Path(each).name for each in found["outside"]] == ["calls.csv"]
    assert "About" in found["estimate"]
    assert not contains(path)
    metrics = runs.read_metrics(path)
    assert metrics["data"]["events"] == len(stream()) - found["events"]
    assert (path / "report.html").is_file()
    result = CliRunner().invoke(main, audit)
    assert result.exit_code == 0, result.output
    # It equals a run on the events without the node.
    rest = EventStream.load(path / "events.tide")
    settings = runs.read_settings(path)
    apart = tmp_path / "apart"
    apart.mkdir()
    again = runs.Run(apart / "calls", settings, rest).execute()
    assert again["metrics"] == metrics["metrics"]
    assert again["heuristics"] == metrics["heuristics"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_leaves_the_old_run_or_one_to_be_resumed(
    a_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = tmp_path / "calls"
    shutil.copytree(a_run, path)
    old = content(path)

    def killed(aside: Path, whole: Path) -> None:
        if moment == "after":
            durable.exchange(aside, whole)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(forgetting, "exchange", killed)
        with pytest.raises(Killed):
            runs.forget(path, SECRET)
    if moment == "before":
        assert content(path) == old
    else:
        assert not contains(path)
        assert sorted(content(path)) == ["command.txt", "config.toml", "events.tide", "stages.json"]
        settings = runs.read_settings(path)
        assert dataclasses.asdict(settings) == dataclasses.asdict(runs.read_settings(a_run))
        certificate = runs.audit_forgetting(path, SECRET)
        assert certificate.holds
    with pytest.raises(UnknownNodeError):
        runs.forget(path, "nobody")
