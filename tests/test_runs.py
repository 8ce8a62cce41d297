"""A run ends with the same numbers however it is interrupted, and repeats no work."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from tidegraph import EventStream, cli, evaluation, report, runs
from tidegraph.cli import run as cli_run
from tidegraph.core import durable, resume
from tidegraph.core.durable import only_writer
from tidegraph.core.errors import DataError, ParameterError, StateFileError, StorageError
from tidegraph.events import datasets
from tidegraph.learning.settings import RECORD_SETTINGS, TASKS
from tidegraph.learning.tasks import LinkPredictor, NodeClassifier
from tidegraph.report import telemetry
from tidegraph.report.sections.stream import engine
from tidegraph.runs import config, evaluate, fitting, stages
from tidegraph.runs import run as run_module
from tidegraph.runs.config import Settings
from tidegraph.runs.estimate import Estimate, estimate
from tidegraph.runs.protocol import Protocol
from tidegraph.runs.run import Run
from tidegraph.runs.trials import make_trial
from tidegraph.store import trajectories
from tidegraph.store.manifest import StoreManifest

QUICK = {"columns": 4, "epochs": 3, "hidden": 8, "batch_size": 512, "threads": 1}
QUICKLY = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
# Most runs here read representations, so that they have a record to be interrupted and shared.
RECORDED = {"pair_features": ["history", "sketches"]}
QUICKLY += ["--set", "pair_features=history,sketches"]


class Killed(BaseException):
    """Stands for a kill, which nothing in the package catches."""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Networks this small only wait for each other's threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _plain_report(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the report by a few lines, unless `real_report` is used: it has its own tests."""
    if "real_report" in request.fixturenames:
        return

    def save_observations(
        path: Path, *, predictor: Any, stream: EventStream, split: Any, history: Any, **more: Any
    ) -> None:
        assert len(predictor.epochs_) == len(history)
        assert split.train[-1] < len(stream)
        path.write_text(json.dumps(history))

    def write(directory: Path) -> Path:
        metrics = json.loads((directory / "metrics.json").read_text())
        epochs = json.loads((directory / "observations").read_text())
        page = directory / "report.html"
        page.write_text(f"{metrics['data']['title']}, {len(epochs)} epochs")
        return page

    def write_comparison(directories: list[Path], path: Path) -> Path:
        path.write_text(" ".join(map(str, directories)))
        return path

    for function in (save_observations, write, write_comparison):
        monkeypatch.setattr(report, function.__name__, function)


@pytest.fixture
def real_report() -> None:
    """Use the real report."""


@pytest.fixture(scope="module")
def stream() -> EventStream:
    made = datasets.generate_communities(30, 600, seed=3)
    return EventStream(made.src, made.dst, made.t, nodes=30, title="toy")


@pytest.fixture(scope="module")
def toy(stream: EventStream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "toy.tide"
    stream.save(path)
    return path


def settled(*words: str, **model: Any) -> Settings:
    tree = {
        "data": {"name": "toy"},
        "seeds": [0, 1],
        "evaluation": {"samplers": ["random-dst"]},
        "model": {**QUICK, **RECORDED, **model},
    }
    return config.resolve(tree, config.assignments(words))


def numbers(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results of a run without times and places."""
    passing = ("elapsed_s", "reused", "taken_from", "report", "command", "machine")
    return {name: value for name, value in results.items() if name not in passing}


@pytest.fixture(scope="module")
def whole(stream: EventStream, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run without a report, to be copied."""
    directory = tmp_path_factory.mktemp("runs") / "toy"
    Run(directory, settled("html=false"), stream).execute()
    return directory


@pytest.fixture(scope="module")
def undisturbed(whole: Path) -> dict[str, Any]:
    return runs.read_metrics(whole)


# The plan -----------------------------------------------------------------------------------------


SKETCHES = "pair_features=history,local,sketches"


def test_an_estimate_grows_with_events_and_columns() -> None:
    def cost(events: int, *words: str) -> Estimate:
        settings = config.resolve({"data": {"name": "toy"}}, config.assignments(words))
        return estimate(events, events // 100, settings)

    small, usual, large = cost(10**4), cost(10**6), cost(10**7)
    for less, more in (
        (small, usual),
        (usual, large),
        (cost(10**6, "columns=8", SKETCHES), cost(10**6, SKETCHES)),
        (cost(10**6, "quick=true", SKETCHES), cost(10**6, SKETCHES)),
        (usual, cost(10**6, SKETCHES)),
        (usual, cost(10**6, SKETCHES, "seeds=0,1,2", "keep=true", "dtype=float32")),
    ):
        assert less.seconds is not None
        assert more.seconds is not None
        assert less.seconds < more.seconds
        assert less.memory <= more.memory
        assert less.disk < more.disk
    assert cost(10**6, "skip=heuristics").seconds < usual.seconds  # type: ignore[operator]
    read = ("pair_features=history", "pair_features=history,local", SKETCHES)
    history, walks, sketches = (cost(10**6, each).seconds for each in read)
    assert history < walks == usual.seconds < sketches  # type: ignore[operator]
    assert cost(10**6, "preset=paper-lstm").seconds is None
    # Linear: no part grows faster than the events.
    assert large.seconds <= 10 * usual.seconds  # type: ignore[operator]
    assert large.memory <= 10 * usual.memory


def test_a_run_takes_no_more_disk_than_estimated(whole: Path, stream: EventStream) -> None:
    files = {path.stat().st_ino: path.stat().st_size for path in whole.rglob("*.records")}
    estimated = Run(whole, settled("html=false"), stream).estimate()
    assert sum(files.values()) <= estimated.disk


def test_a_run_that_the_disk_cannot_hold_is_rejected_and_changes_nothing(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=10**5))
    out = tmp_path / "runs"
    result = CliRunner().invoke(cli.main, ["run", str(toy), "--out", str(out), *QUICKLY])
    assert result.exit_code == 2, result.output
    for fact in ("100 kB", "--quick", "columns", "--out"):
        assert fact in result.output
    assert not out.exists()


# The numbers --------------------------------------------------------------------------------------


def test_a_run_has_the_numbers_of_an_evaluation(
    stream: EventStream, undisturbed: dict[str, Any]
) -> None:
    expected = evaluate(stream, seeds=(0, 1), settings={**QUICK, **RECORDED}, name="toy")
    for name in ("metrics", "heuristics", "split", "protocol", "seeds", "training_negatives"):
        assert undisturbed[name] == expected[name]
    assert undisturbed["elapsed_s"].keys() == {
        *("data", "heuristics", "record", "train", "score", "total")
    }


def test_a_run_without_heuristics_has_the_same_numbers_and_says_what_it_lacks(
    whole: Path, stream: EventStream, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    directory = tmp_path / "toy"
    without = settled("html=false", "skip=heuristics")
    skipped = Run(directory, without, stream).execute()
    for name in ("metrics", "split", "headlines", "evaluation"):
        assert skipped[name] == undisturbed[name]
    assert skipped["heuristics"] == {}
    assert "heuristics" not in skipped["elapsed_s"]
    assert any("skipped" in note for note in skipped["warnings"])
    assert runs.run_directory(tmp_path, None, settled()) == directory  # it can be made whole
    again = Run(directory, settled("html=false"), stream).execute()
    assert again["heuristics"] == undisturbed["heuristics"]
    assert "score/0" in again["reused"]


def test_a_quick_run_is_smaller_and_says_so(stream: EventStream, tmp_path: Path) -> None:
    tree = {"data": {"name": "toy"}, "quick": True, "report": {"html": False}}
    settings = config.resolve(tree, {"model": {"epochs": 2, "hidden": 8, "threads": 1}})
    assert [settings.model[name] for name in ("columns", "epochs")] == [16, 2]
    assert runs.run_directory(tmp_path, None, settings).name == "toy-quick"
    results = Run(tmp_path / "quick", settings, stream).execute()
    assert "quick" in results["warnings"][0]
    assert results["heuristics"]
    assert results["settings"]["columns"] == 16
    assert runs.read_settings(tmp_path / "quick") == settings


def test_a_run_on_nodes_has_the_numbers_of_the_classifier(
    stream: EventStream, tmp_path: Path
) -> None:
    labels = (stream.src % 2 + (np.arange(len(stream)) % 7 == 0)) % 2
    labelled = EventStream(stream.src, stream.dst, stream.t, labels=labels)
    own = {"columns": 4, "epochs": 2, "members": 1, "threads": 1}
    settings = config.resolve({"task": "node", "data": {"name": "toy"}, "model": own})
    results = Run(tmp_path / "nodes", settings, labelled).execute()
    trial = make_trial(labelled, Protocol(task="node"), settings=own)
    classifier = NodeClassifier(**own, seed=0).fit(labelled, trial.training)  # type: ignore[arg-type]
    expected = classifier.evaluate(trial.training, parts=("test",))
    found = results["metrics"]["none"]["all"]
    assert found["auc"]["per_seed"] == [expected.row("test").metrics["auc"]]
    assert results["headlines"] == {"none": "auc"}
    rule = next(row for row in expected.rows if row.scorer != "tidegraph")
    assert results["heuristics"][rule.scorer]["none"]["all"]["auc"] == rule.metrics["auc"]
    with pytest.raises(DataError, match="--label COLUMN"):
        Run(tmp_path / "none", settings, stream)
    assert not (tmp_path / "none").exists()


def test_a_finished_run_holds_all_that_repeating_it_needs(
    stream: EventStream, tmp_path: Path
) -> None:
    directory = tmp_path / "toy"
    results = Run(directory, settled(), stream, command="tidegraph run toy").execute()
    kept = runs.read_metrics(directory)
    assert {**kept, "report": str(directory / "report.html")} == results
    assert kept["command"] == "tidegraph run toy"
    assert kept["data"]["hash"] == stream.digest()
    assert runs.read_settings(directory) == settled()
    assert "train/1: finished" in (directory / "log.txt").read_text(encoding="utf-8")
    assert (directory / "report.html").read_text().endswith("3 epochs")
    # The model of the first seed answers; those of others are gone, but for their weights.
    model = LinkPredictor.load(directory / "seed-0" / "model")
    score = make_trial(stream).evaluate(model)
    found = score.table["tidegraph"]["random-dst"]["all"]["ap"]
    assert found == kept["metrics"]["random-dst"]["all"]["ap"]["per_seed"][0]
    assert sorted(path.name for path in (directory / "seed-1").iterdir()) == [
        *("history.json", "score.json", "training.safetensors")
    ]


@pytest.mark.usefixtures("real_report")
def test_a_run_propagates_its_stream_once_and_again_only_without_telemetry(
    stream: EventStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays = []
    replay = telemetry.replay

    def counted(*given: Any) -> Any:
        replays.append(given)
        return replay(*given)

    monkeypatch.setattr(telemetry, "replay", counted)
    monkeypatch.setattr(telemetry, "_EXPLAIN_S", 0.0)
    directory = tmp_path / "toy"
    Run(directory, settled(), stream).execute()
    assert replays == []
    assert "The stream was recorded" in (directory / "report.html").read_text()
    # As an earlier release left it.
    (directory / "seed-0" / "telemetry").unlink()
    (directory / "observations").unlink()
    Run.resumed(directory).execute()
    assert len(replays) == 1
    assert "The stream was replayed" in (directory / "report.html").read_text()


@pytest.mark.usefixtures("real_report")
def test_a_run_that_reads_no_representations_records_none_and_replays_the_latest_events(
    stream: EventStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "REPLAYED", 100)
    monkeypatch.setattr(telemetry, "_AT_ONCE", 64)
    monkeypatch.setattr(telemetry, "_EXPLAIN_S", 0.0)
    directory = tmp_path / "toy"
    settings = settled("pair_features=history,local")
    Run(directory, settings, stream).execute()
    assert not list(directory.rglob("*manifest.json"))
    seen = report.read_observations(directory / "observations")
    assert seen is not None
    # All events of the time at which the latest 100 begin belong to them.
    watched = len(stream) - int(np.searchsorted(stream.t, stream.t[len(stream) - 100]))
    assert seen.arrays["replay.events"].sum() == watched
    assert f"its latest {watched} events one time after the other" in str(engine(seen))
    again = Run(directory, settings, stream).execute()
    assert again["reused"] == ["data", "heuristics", "score/0", "score/1", "observations"]


# Interruptions ------------------------------------------------------------------------------------


def finished_later(directory: Path, settings: Settings, stream: EventStream) -> dict[str, Any]:
    """Resume the run, or start it again if it had saved nothing yet, and return its results."""
    if (directory / "config.toml").exists() and (directory / "events.tide").exists():
        return Run.resumed(directory).execute()
    return Run(directory, settings, stream).execute()


def writes_before_death(allowed: int) -> Callable[[Path, Any], None]:
    """Return a function that writes this many files and is killed before the next."""
    written = 0

    def write(path: Path, content: Any) -> None:
        nonlocal written
        written += 1
        if written > allowed:
            raise Killed
        durable.replace_file(path, content)

    return write


@pytest.mark.parametrize("survived", range(5))
def test_killed_while_replacing_a_run_settings_and_events_do_not_mix(
    survived: int,
    whole: Path,
    stream: EventStream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "toy"
    shutil.copytree(whole, directory)
    other = Run(directory, settled("html=false", "epochs=2"), stream[:500])
    with monkeypatch.context() as patch:
        write = writes_before_death(survived)
        for module in (run_module, resume):
            patch.setattr(module, "replace_file", write)
        with pytest.raises(Killed):
            other.execute()
    if survived < 3:  # the events were not kept yet
        with pytest.raises(StateFileError, match="start it again"):
            Run.resumed(directory)
    else:
        results = Run.resumed(directory).execute()
        assert (results["data"]["events"], results["settings"]["epochs"]) == (500, 2)


@pytest.mark.slow
def test_killed_before_any_write_a_run_ends_with_the_same_numbers(
    stream: EventStream,
    undisturbed: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settled("html=false")
    survived = 0
    while True:
        directory = tmp_path / f"killed-{survived}"
        with monkeypatch.context() as patch:
            write = writes_before_death(survived)
            for module in (run_module, resume):
                patch.setattr(module, "replace_file", write)
            try:
                Run(directory, settings, stream).execute()
                break
            except Killed:
                pass
        # Every run goes its own way: one could otherwise borrow what another has recorded.
        results = finished_later(directory, settings, stream)
        assert numbers(results) == numbers(undisturbed), survived
        directory.rename(tmp_path.parent / f"{tmp_path.name}-{survived}")
        survived += 1
    assert survived > 20


@pytest.mark.parametrize("moment", ["records", "epoch 2", "seed 1, epoch 3"])
def test_killed_within_a_stage_a_run_resumes_there(
    moment: str, stream: EventStream, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    def kill(done: int, total: int, what: str) -> None:
        if moment in what:
            raise Killed

    directory = tmp_path / "toy"
    with pytest.raises(Killed):
        Run(directory, settled("html=false"), stream).execute(progress=kill)
    with pytest.raises(StateFileError, match="tidegraph resume"):
        runs.read_metrics(directory)
    results = Run.resumed(directory).execute()
    assert numbers(results) == numbers(undisturbed)
    assert "ended by Killed" in (directory / "log.txt").read_text(encoding="utf-8")


def deletes_before_death(allowed: int) -> Callable[[Path], None]:
    """Return a function that deletes this many directories and is killed within the next."""
    deleted = 0

    def rmtree(path: Path) -> None:
        nonlocal deleted
        deleted += 1
        if deleted > allowed:
            for suffix in (".records", ".safetensors"):
                for file in sorted(path.rglob(f"*{suffix}"))[:1]:
                    file.unlink()
            raise Killed
        shutil.rmtree(path)

    return rmtree


@pytest.mark.parametrize(
    ("words", "survived", "then"),
    [
        (["alpha=0.3"], 0, ["epochs=2"]),  # the record of the first seed is asked for again
        (["alpha=0.3"], 1, ["samplers=historical"]),  # its model
        (["seeds=0"], 0, ["epochs=3"]),  # all of the second seed
    ],
)
def test_killed_while_removing_outputs_a_run_reuses_nothing_incomplete(
    words: list[str],
    survived: int,
    then: list[str],
    whole: Path,
    stream: EventStream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "toy"
    shutil.copytree(whole, directory)
    with monkeypatch.context() as patch:
        patch.setattr(stages, "shutil", SimpleNamespace(rmtree=deletes_before_death(survived)))
        with pytest.raises(Killed):
            Run(directory, settled("html=false", *words), stream).execute()
    settings = settled("html=false", *then)
    afresh = Run(tmp_path / "elsewhere" / "toy", settings, stream).execute()
    assert numbers(Run(directory, settings, stream).execute()) == numbers(afresh)
    names = {path.name for path in directory.iterdir()}
    assert names == {path.name for path in whole.iterdir()}


@pytest.mark.parametrize(("survived", "then"), [(0, "samplers=historical"), (1, "epochs=2")])
def test_killed_while_forgetting_a_seed_a_run_can_still_use_it(
    survived: int,
    then: str,
    stream: EventStream,
    undisturbed: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "toy"
    with monkeypatch.context() as patch:
        patch.setattr(stages, "shutil", SimpleNamespace(rmtree=deletes_before_death(survived)))
        with pytest.raises(Killed):
            Run(directory, settled("html=false"), stream).execute()
    shutil.copytree(directory, tmp_path / "apart" / "toy")
    assert numbers(Run.resumed(tmp_path / "apart" / "toy").execute()) == numbers(undisturbed)
    other = settled("html=false", then)
    afresh = Run(tmp_path / "elsewhere" / "toy", other, stream).execute()
    assert numbers(Run(directory, other, stream).execute()) == numbers(afresh)


def test_resuming_rejects_a_run_that_changed_since_it_was_read(
    whole: Path, stream: EventStream, tmp_path: Path
) -> None:
    directory = tmp_path / "toy"
    shutil.copytree(whole, directory)
    late = Run.resumed(directory)
    Run(directory, settled("html=false", "epochs=2"), stream).execute()
    with pytest.raises(StateFileError, match="changed by another process"):
        late.execute()
    assert runs.read_settings(directory).model["epochs"] == 2
    late = Run.resumed(directory)
    Run(directory, settled("html=false", "epochs=2"), stream[:500]).execute()
    with pytest.raises(StateFileError, match="changed by another process"):
        late.execute()
    assert runs.read_metrics(directory)["data"]["events"] == 500


@pytest.mark.slow
def test_a_run_survives_a_real_kill(undisturbed: dict[str, Any], toy: Path, tmp_path: Path) -> None:
    code = f"""
import os, signal
from tidegraph import EventStream, runs
from tidegraph.runs import config
def progress(done, total, what):
    if "seed 1, epoch 2" in what:
        os.kill(os.getpid(), signal.SIGKILL)
settings = config.resolve(config.tomllib.loads({settled("html=false").to_toml()!r}))
run = runs.Run({str(tmp_path / "toy")!r}, settings, EventStream.load({str(toy)!r}))
run.execute(progress=progress)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    results = Run.resumed(tmp_path / "toy").execute()
    assert numbers(results) == numbers(undisturbed)
    assert "score/0" in results["reused"]


def test_two_processes_do_not_write_one_run(stream: EventStream, tmp_path: Path) -> None:
    directory = tmp_path / "toy"
    directory.mkdir()
    with only_writer(directory), pytest.raises(StorageError, match=str(directory)):
        Run(directory, settled(), stream).execute()
    assert list(directory.iterdir()) == []


# Doing nothing twice ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reused"),
    [
        (["threads=2", "keep=true"], {"data", "heuristics", "score/0", "score/1"}),
        (["html=true"], {"data", "heuristics", "score/0", "score/1", "train/0"}),
        (["epochs=2"], {"data", "heuristics", "record/0"}),
        (["samplers=historical"], {"data", "train/0"}),
        (["alpha=0.3"], {"data", "heuristics"}),
        (["seeds=0,2"], {"data", "heuristics", "score/0"}),
        (["protocol=tgb"], {"data", "record/0"}),
        (["knowledge=batch"], {"data", "record/0"}),
    ],
)
def test_stages_with_the_same_inputs_are_reused(
    words: list[str], reused: set[str], whole: Path, stream: EventStream, tmp_path: Path
) -> None:
    directory = tmp_path / "toy"
    shutil.copytree(whole, directory)
    settings = settled("html=false", *words)
    results = Run(directory, settings, stream).execute()
    assert set(results["reused"]) == reused
    afresh = Run(tmp_path / "elsewhere" / "toy", settings, stream).execute()
    assert afresh["reused"] == []
    assert numbers(results) == numbers(afresh)
    assert (directory / "seed-1").exists() == (words != ["seeds=0,2"])


def test_other_events_reuse_nothing(whole: Path, stream: EventStream, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "toy")
    later = Run(tmp_path / "toy", settled("html=false"), stream[:500]).execute()
    assert later["reused"] == []
    assert later["data"]["events"] == 500
    assert Run.resumed(tmp_path / "toy").execute()["metrics"] == later["metrics"]


def test_a_record_is_taken_from_a_neighbouring_run(
    whole: Path, stream: EventStream, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "one")
    Run(tmp_path / "two", settled(epochs=2), stream).execute()
    log = (tmp_path / "two" / "log.txt").read_text(encoding="utf-8")
    assert f"record/0: taken from {tmp_path / 'one'}" in log
    assert "record/1: taken" not in log  # it was not kept
    store = [
        tmp_path / name / "seed-0" / "trajectories" / "manifest.json" for name in ("one", "two")
    ]
    assert store[0].read_bytes() == store[1].read_bytes()


def test_a_record_that_is_taken_comes_with_its_seconds(
    whole: Path, stream: EventStream, toy: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    shutil.copytree(whole, one)
    stages = json.loads((one / "stages.json").read_text())
    stages["record/0"]["elapsed_s"] = 5000.0
    (one / "stages.json").write_text(json.dumps(stages))
    words = ["--set", "samplers=random-dst", "--no-report", *QUICKLY]
    result = run("run", toy, "--out", tmp_path, "--name", "two", "--json", *words)
    found = last_line(result)
    assert found["taken_from"] == {"record/0": str(one)}
    assert f"record/0 was taken from {one}" in result.stdout
    assert 5000 < found["elapsed_s"]["record"] < found["elapsed_s"]["total"]
    again = last_line(run("resume", two, "--json"))
    assert again["taken_from"] == found["taken_from"]
    assert again["elapsed_s"]["record"] == found["elapsed_s"]["record"]


def _half_removed(store: Path) -> None:
    for file in sorted(store.glob("segment-*"))[:1]:
        file.unlink()


def _without_manifest(store: Path) -> None:
    (store / "manifest.json").unlink()


def _being_written(store: Path) -> None:
    manifest = dataclasses.replace(StoreManifest.read(store), complete=False)
    manifest.write(store)


@pytest.mark.parametrize("damage", [_half_removed, _without_manifest, _being_written])
def test_a_damaged_record_is_not_taken(
    damage: Callable[[Path], None],
    whole: Path,
    stream: EventStream,
    undisturbed: dict[str, Any],
    tmp_path: Path,
) -> None:
    shutil.copytree(whole, tmp_path / "one")
    damage(tmp_path / "one" / "seed-0" / "trajectories")
    results = Run(tmp_path / "two", settled("html=false"), stream).execute()
    assert numbers(results) == numbers(undisturbed)
    assert results["taken_from"] == {}
    assert not list((tmp_path / "two" / "seed-0").glob("*.part*"))


def test_a_record_that_vanishes_while_it_is_taken_is_made_again(
    whole: Path,
    stream: EventStream,
    undisturbed: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(whole, tmp_path / "one")

    def vanishing(source: Path, target: Path) -> None:
        _half_removed(source)
        trajectories.copy_store(source, target)
        shutil.rmtree(source)

    monkeypatch.setattr(fitting, "copy_store", vanishing)
    results = Run(tmp_path / "two", settled("html=false"), stream).execute()
    assert numbers(results) == numbers(undisturbed)


def test_other_code_reuses_nothing(
    whole: Path, stream: EventStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole, tmp_path / "toy")
    monkeypatch.setattr(stages, "code_digest", lambda: "another")
    assert Run(tmp_path / "toy", settled("html=false"), stream).execute()["reused"] == []


@pytest.mark.parametrize("preset", [None, "default", "snapshots", "historical", "paper-gru"])
def test_a_run_and_an_evaluation_start_from_the_same_settings(
    preset: str | None, stream: EventStream, tmp_path: Path
) -> None:
    asked = {"protocol": "roland", "snapshot_seconds": 20, "first_test": 10}
    tree: dict[str, Any] = {"data": {"name": "toy"}, "evaluation": asked, "model": QUICK}
    settings = config.resolve({**tree, "preset": preset or "none"})
    own = run_module._make_trial(stream, settings).model(seed=0, path=None).get_params()
    protocol = Protocol("roland", snapshot_seconds=20, first_test=10)
    trial = make_trial(stream, protocol, preset=preset, settings=QUICK)
    assert trial.model(seed=0, path=None).get_params() == own
    expected = LinkPredictor.preset(preset or "snapshots", **QUICK).get_params()  # type: ignore[arg-type]
    assert own == {**expected, "seed": 0, "path": None}


CHANGED = {
    "columns": 5,
    "distribution": "sign",
    "alpha": 0.3,
    "half_lives": [50.0],
    "high_pass": False,
    "beta": 0.4,
    "r_max": 2e-2,
    "r_max_unit": "l1",
    "scale_by_degree": False,
    "epsilon": 0.2,
    "dtype": "float32",
    "edge_features": False,
    "encoder": "lstm",
    "encoder_options": {"layers": 2},
    "decoder": "hadamard",
    "window": 3,
    "width": 4,
    "hidden": 5,
    "layers": 1,
    "dropout": 0.2,
    "pair_features": ("history",),
    "random_negatives": 2,
    "past_negatives": 2,
    "past_weight": 0.5,
    "any_node": True,
    "max_examples": 50,
    "epochs": 1,
    "batch_size": 100,
    "learning_rate": 1e-3,
    "in_order": True,
    "patience": 1,
    "threads": 2,
}


def test_the_record_depends_on_the_settings_in_its_fingerprint(
    stream: EventStream, tmp_path: Path
) -> None:
    def recorded(name: str, **changes: Any) -> bytes:
        options: dict[str, Any] = {**QUICK, "encoder": "gru", **changes}
        model = LinkPredictor(**options, path=str(tmp_path / name))
        model.observe(stream, make_trial(stream).training)
        return (tmp_path / name / "manifest.json").read_bytes()

    assert CHANGED.keys() == settled().model.keys() - {"device"}
    plain = recorded("plain")
    moving = {name for name, value in CHANGED.items() if recorded(name, **{name: value}) != plain}
    assert moving == set(RECORD_SETTINGS)


def test_a_run_without_a_name_gets_one_that_is_free(whole: Path, tmp_path: Path) -> None:
    assert runs.run_directory(tmp_path, None, settled()) == tmp_path / "toy"
    shutil.copytree(whole, tmp_path / "toy")
    assert runs.run_directory(tmp_path, None, settled("keep=true")) == tmp_path / "toy"
    other = settled("epochs=2")
    (tmp_path / "toy-2").mkdir()  # not a run
    assert runs.run_directory(tmp_path, None, other) == tmp_path / "toy-3"
    (tmp_path / "toy-3").mkdir()
    (tmp_path / "toy-3" / "config.toml").write_text(other.to_toml())  # nor is this
    assert runs.run_directory(tmp_path, None, other) == tmp_path / "toy-4"
    assert runs.run_directory(tmp_path, "mine", other) == tmp_path / "mine"
    for source, directory in (("-", "run"), ("logs/*.csv", "run"), ("logs/day-?.csv", "day-")):
        piped = dataclasses.replace(other, data=dataclasses.replace(other.data, name=source))
        assert runs.run_directory(tmp_path, None, piped) == tmp_path / directory
    for name in ("../mine", "..", ".", "", "a/b", "a\\b", "/mine"):
        with pytest.raises(ParameterError, match="without / and"):
            runs.run_directory(tmp_path, name, other)


def test_a_rejected_run_changes_nothing(whole: Path, stream: EventStream, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear").touch()
    with pytest.raises(StateFileError, match="is not a run"):
        Run(tmp_path / "letters", settled(), stream)
    with pytest.raises(StateFileError, match="is not a run"):
        Run.resumed(tmp_path / "letters")
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    with pytest.raises(ParameterError, match="give validation_after and test_after"):
        Run(whole, settled("protocol=time"), stream)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


@pytest.mark.parametrize(
    "files",
    [
        {"config.toml": "title = 'my site'", "report.html": "mine", "seed-1/packets": "mine"},
        {"config.toml": "[data]\nname = 'toy'\n", "report.html": "mine"},
        {"config.toml": "title = 'my site'", "stages.json": "{}"},
        {"config.toml": "[data]\nname = 'toy'\n", "stages.json": '["dev", "prod"]'},
        {"stages.json": '{"dev": {}}'},
        {"stages.json": "{}", "seed-1/packets": "mine"},
    ],
)
def test_a_foreign_directory_is_left_alone(
    files: dict[str, str], stream: EventStream, tmp_path: Path
) -> None:
    directory = tmp_path / "toy"
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    with pytest.raises(StateFileError, match="is not a run"):
        Run(directory, settled(), stream)
    found = {path for path in directory.rglob("*") if path.is_file()}
    assert {str(path.relative_to(directory)): path.read_text() for path in found} == files


def test_a_run_removes_only_its_own_seeds(whole: Path, stream: EventStream, tmp_path: Path) -> None:
    directory = tmp_path / "toy"
    shutil.copytree(whole, directory)
    for name in ("seed-77", "seed-packets"):
        (directory / name).mkdir()
    Run(directory, settled("html=false", "seeds=0"), stream).execute()
    assert sorted(path.name for path in directory.glob("seed-*")) == [
        *("seed-0", "seed-77", "seed-packets")
    ]


# TensorBoard --------------------------------------------------------------------------------------


def test_tensorboard_reads_the_curves(stream: EventStream, tmp_path: Path) -> None:
    accumulation = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    results = Run(tmp_path / "toy", settled("tensorboard=true"), stream).execute()
    for number in (0, 1):
        events = accumulation.EventAccumulator(str(tmp_path / "toy/tensorboard" / f"seed-{number}"))
        events.Reload()
        history = json.loads((tmp_path / "toy" / f"seed-{number}" / "history.json").read_text())
        found = [event.value for event in events.Scalars("training/loss")]
        assert found == pytest.approx([epoch["loss"] for epoch in history])
        (ap,) = events.Scalars("test/random-dst/all/ap")
        expected = results["metrics"]["random-dst"]["all"]["ap"]["per_seed"][number]
        assert ap.value == pytest.approx(expected)


def test_a_missing_tensorboard_is_reported_first(
    stream: EventStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "find_spec", lambda name: None)
    with pytest.raises(ParameterError, match=r"pip install tensorboard"):
        Run(tmp_path / "toy", settled("tensorboard=true"), stream)


# The commands -------------------------------------------------------------------------------------


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)))


def last_line(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.usefixtures("real_report")
def test_one_command_goes_from_an_awkward_file_to_a_report(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    people = ["ann", "Жуков", "Dé Li", "<b>", "4711", "fay"]
    rows = ["Call No;Caller;Callee;When;Note"]
    for number in random.permutation(300):
        caller = number % 6
        callee = (caller + 1 + int(random.random() < 0.2)) % 6
        at = f"2024-05-{1 + number // 15:02d} {number % 15:02d}:30"
        rows.append(f"{number};{people[caller]};{people[callee]};{at};x")
    file = tmp_path / "my calls.csv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    result = run("run", file, "--out", tmp_path / "runs", "--json", *QUICKLY)
    found = last_line(result)
    assert found["data"]["events"] == 300
    assert found["data"]["nodes"] == 6
    assert set(found["metrics"]) == {"random-dst", "historical"}
    assert Path(found["report"]) == tmp_path / "runs" / "my calls" / "report.html"
    page = Path(found["report"]).read_text(encoding="utf-8")
    assert "Жуков" in page
    assert f"{found['metrics']['random-dst']['all']['ap']['mean']:.4f}" in page
    assert re.search(r"\d+ rows are .* sorted", result.stdout)
    for words in ("src is column 'Caller'", "heuristic", f"Report: {found['report']}", "One seed"):
        assert words in result.stdout
    for name in ("metrics", "heuristics", "elapsed_s", "data", "seeds", "version", "report"):
        assert name in found
    # From anywhere, and without the file.
    file.unlink()
    again = last_line(run("resume", tmp_path / "runs" / "my calls", "--json", "--quiet"))
    assert numbers(again) == numbers(found)


def test_options_override_a_file_and_words_override_both(toy: Path, tmp_path: Path) -> None:
    file = tmp_path / "given.toml"
    file.write_text(
        f"seeds = [5]\n[data]\nname = {json.dumps(str(toy))}\n[evaluation]\nprotocol = 'tgb'\n"
        "samplers = ['inductive']\n[model]\nepochs = 1\n",
        encoding="utf-8",
    )
    common = ["--config", file, "--out", tmp_path, "--json", "--no-report", *QUICKLY]
    words = ["--name", "x", "--sampler", "random-dst", "--seeds", "3,4", "--set", "seeds=6"]
    found = last_line(run("run", *common, *words))
    assert found["seeds"] == [6]
    assert found["protocol"] == "tgb"
    assert list(found["metrics"]) == ["random-dst"]
    assert found["config"]["model"]["epochs"] == 3
    assert found["report"] is None
    assert not (tmp_path / "x" / "report.html").exists()


def test_quiet_prints_nothing_but_the_line_of_json(toy: Path, tmp_path: Path) -> None:
    words = ["run", toy, "--out", tmp_path, "--quiet", "--no-report", *QUICKLY]
    result = run(*words)
    assert (result.exit_code, result.output) == (0, "")
    result = run(*words, "--json")
    assert len(result.stdout.splitlines()) == 1
    assert last_line(result)["reused"] == ["data", "heuristics", "score/0"]
    assert "heuristics: reused" in run(*words, "--verbose").stderr


def test_control_c_says_how_to_resume(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    words = ["run", toy, "--out", tmp_path / "runs", *QUICKLY]
    with monkeypatch.context() as patch:
        patch.setattr(LinkPredictor, "train", interrupted)
        result = run(*words)
    assert result.exit_code == 130
    assert f"tidegraph resume {tmp_path / 'runs' / 'toy'} " in result.stderr
    assert "Traceback" not in result.output
    assert "not finished" in run("compare", tmp_path / "runs" / "toy").stderr
    resumed = last_line(run("resume", tmp_path / "runs" / "toy", "--json"))
    whole = last_line(run(*words[:3], tmp_path / "others", *QUICKLY, "--json"))
    assert numbers(resumed) == numbers(whole)


def test_a_locked_run_exits_with_1_and_a_mistake_with_2(toy: Path, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    with only_writer(tmp_path / "toy"):
        result = run("run", toy, "--out", tmp_path, "--name", "toy", *QUICKLY)
    assert result.exit_code == 1
    assert str(tmp_path / "toy") in result.stderr
    for words, advice in (
        (["run"], "no data is named"),
        (["run", "nowhere.csv"], "'nowhere.csv'"),
        (["run", toy, "--set", "epoch=3"], "did you mean 'model.epochs'?"),
        (["run", toy, "--seeds", "a"], "--seeds is 'a'"),
        (["run", toy, "--seeds", "-1"], "--seeds is '-1'"),
        (["run", toy, "--protocol", "time"], "give --validation-after and --test-after"),
        (["run", toy, "--protocol", "roland"], "needs --snapshot-seconds"),
        (["run", toy, "--task", "node"], "--label COLUMN"),
        (["run", toy, "--config", "nowhere.toml"], "nowhere.toml"),
        (["resume", tmp_path / "nowhere"], "is not a run"),
        (["compare", tmp_path], "is not a run"),
    ):
        result = run(*words, *(["--out", tmp_path] if words[0] == "run" else []))
        assert result.exit_code == 2, words
        assert advice in result.stderr
        assert result.stderr.count("\n") == 1


def test_comparing_runs_shows_numbers_and_the_settings_that_differ(
    stream: EventStream, tmp_path: Path
) -> None:
    for name, epochs in (("one", 1), ("two", 2)):
        Run(tmp_path / name, settled("html=false", epochs=epochs), stream).execute()
    Run(tmp_path / "three", settled("html=false"), stream[:500]).execute()
    page = tmp_path / "both.html"
    both = [tmp_path / "one", tmp_path / "two"]
    result = run("compare", *both, "--html", page, "--json")
    found = last_line(result)
    assert found["differences"] == {"model.epochs": [1, 2]}
    assert found["warnings"] == []
    assert page.read_text() == " ".join(map(str, both))
    for one in found["runs"]:
        assert f"{100 * one['metrics']['random-dst']['all']['ap']['mean']:.2f}" in result.stdout
    assert "different events" in run("compare", *both, tmp_path / "three").stdout


@pytest.mark.parametrize("text", ["", "{", "[]", '{"metrics": 3}'])
def test_a_damaged_metrics_file_is_named(text: str, whole: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(whole, broken)
    (broken / "metrics.json").write_text(text)
    result = run("compare", whole, broken)
    assert result.exit_code == 2
    assert f"{broken / 'metrics.json'} is damaged" in result.stderr
    assert result.stderr.count("\n") == 1


def test_predict_accepts_a_run_as_a_model(toy: Path, tmp_path: Path) -> None:
    words = ["--out", tmp_path, "--name", "a run", "--no-report", "--seeds", "3,1", *QUICKLY]
    shown = run("run", toy, *words)
    assert shown.exit_code == 0, shown.output
    directory = tmp_path / "a run"
    (kept,) = (line for line in shown.stdout.splitlines() if line.startswith("Files in "))
    for name in kept.removesuffix(".").rpartition(": ")[2].split(", "):
        assert (directory / name).exists(), name
    assert "seed-3/model" in kept
    assert "seed-1/model" not in kept  # of the first seed alone
    (line,) = (line for line in shown.stdout.splitlines() if "--rank 5" in line)
    by_run = run(*shlex.split(line)[1:])
    assert by_run.exit_code == 0, by_run.output
    asked = shlex.split(line)[3:]
    assert by_run.stdout == run("predict", directory / "seed-3" / "model", *asked).stdout


def test_help_lists_all_settings_of_all_tasks() -> None:
    text = run("run", "--set", "help").stdout
    meant = dict(line.split(maxsplit=1) for line in text.splitlines() if line.startswith("  "))
    for word in ("seeds=[0]", "model.random_negatives=6", "model.members=4", "report.html=true"):
        assert meant[word]
    keys = {key for task in TASKS for key in config.settings_by_key(task)}
    assert {word.partition("=")[0] for word in meant} == keys - {"task", "data.name"}


@pytest.mark.parametrize(
    "words",
    [
        ["run", "nowhere.csv"],
        ["run", "nyc-flights", "--set", "epoch=3"],
        ["train", "nowhere.csv", "-o", "a.model"],
        ["train", "nyc-flights", "--set", "epoch=3", "-o", "a.model"],
        ["evaluate", "nowhere.csv"],
        ["predict", "nowhere.model", "--src", "a", "--rank", "1"],
    ],
    ids=" ".join,
)
def test_early_rejections_do_not_wait_for_torch(words: list[str], tmp_path: Path) -> None:
    program = (
        "import sys\nfrom tidegraph import cli\n"
        f"try: cli.main({words!r})\n"
        "except SystemExit as end: sys.exit(99 if 'torch' in sys.modules else end.code)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert done.returncode == 2


def test_run_has_options_for_the_times_of_a_protocol(toy: Path, tmp_path: Path) -> None:
    times = EventStream.load(toy).t
    words = ["--validation-after", times[400], "--test-after", times[500], "--protocol", "time"]
    shown = run("run", toy, *words, "--out", tmp_path, "--no-report", "--json", *QUICKLY)
    sizes = last_line(shown)["split"]["sizes"]
    assert sizes["test"] == int((times > times[500]).sum())


def test_run_has_options_for_the_snapshots_of_a_protocol(
    toy: Path, stream: EventStream, tmp_path: Path
) -> None:
    words = ["--protocol", "roland", "--snapshot-seconds", "20", "--first-test", "10"]
    words += ["--out", str(tmp_path), "--name", "toy", "--no-report", "--json", *QUICKLY]
    shown = run("run", toy, *words)
    split = evaluation.roland_split(stream, width_s=20, first_test=10)
    found = last_line(shown)["split"]
    assert (found["sizes"], found["parameters"]) == (split.sizes(), split.parameters)
    live = last_line(run("run", toy, *words, "--live"))
    assert (live["protocol"], live["config"]["evaluation"]["live"]) == ("roland+live", True)
    # It begins from the same model, which learns on while it is scored.
    assert "train/0" in live["reused"]
    assert "score/0" not in live["reused"]


def test_comparing_one_run_is_rejected(whole: Path) -> None:
    result = run("compare", whole)
    assert result.exit_code == 2
    assert "give two or more" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_every_shell(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_TIDEGRAPH_COMPLETE={shell}_complete" in result.stdout


def test_data_sets_are_completed() -> None:
    import click

    found = cli_run._data_names(click.Context(cli_run.run), cli_run.run.params[0], "wiki")
    assert [item.value for item in found if item.type != "file"] == ["wikipedia"]
