"""Sweeps order settings by validation events, and compute nothing twice."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegraph import EventStream, ParameterError, StateFileError, evaluation, generate_communities
from tidegraph.cli import main
from tidegraph.cli.sweep import _alike
from tidegraph.runs import evaluating
from tidegraph.runs.sweep import sweep

GRID: dict[str, list[Any]] = {"alpha": [0.1, 0.3], "columns": [8, 16]}


def stream(seed: int = 0) -> EventStream:
    return generate_communities(nodes=40, events=600, communities=3, seed=seed)


class Ended(Exception):
    """Stands for whatever ends a process."""


class Trials:
    """Stands for training: scores depend on settings and seed, and calls are counted."""

    def __init__(self, survived: int = 1000) -> None:
        self.asked: list[tuple[float, int, int]] = []
        self._survived = survived

    def __call__(self, events: EventStream, **options: Any) -> dict[str, Any]:
        if len(self.asked) == self._survived:
            raise Ended
        settings, seed = options["settings"], options["seed"]
        self.asked.append((settings["alpha"], settings["columns"], seed))
        score = settings["alpha"] + settings["columns"] / 100 + seed / 1000
        metrics = dict.fromkeys(("ap", "ap_global", "auc_global"), score)
        metrics["auc"] = 1 - score
        return {"metrics": metrics, "events": 9, "epochs": 1, "elapsed_s": {"total": 1.0}}


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    stand_in = Trials()
    monkeypatch.setattr(evaluating, "validate", stand_in)
    return stand_in


def test_choices_are_ordered_by_their_mean_over_seeds(trials: Trials, tmp_path: Path) -> None:
    results = sweep(stream(), tmp_path, grid=GRID, seeds=(0, 10))
    assert len(trials.asked) == 8
    order = [tuple(row["settings"].values()) for row in results["choices"]]
    assert order == [(0.3, 16), (0.3, 8), (0.1, 16), (0.1, 8)]
    best = results["choices"][0]["metrics"]["ap"]
    assert best["per_seed"] == pytest.approx([0.46, 0.47])
    assert best["mean"] == pytest.approx(0.465)
    assert best["std"] == pytest.approx(0.01 / 2**0.5)
    by_auc = sweep(stream(), tmp_path, grid=GRID, seeds=(0, 10), metric="auc")
    assert [tuple(row["settings"].values()) for row in by_auc["choices"]] == order[::-1]
    assert len(trials.asked) == 8


def test_the_table_is_written_as_json_and_csv(trials: Trials, tmp_path: Path) -> None:
    results = sweep(stream(), tmp_path, grid=GRID)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["alpha"], rows[0]["columns"]) == ("0.3", "16")
    assert float(rows[0]["ap_mean"]) == results["choices"][0]["metrics"]["ap"]["mean"]


def test_a_sweep_that_was_stopped_resumes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second, undisturbed = Trials(survived=3), Trials(), Trials()
    monkeypatch.setattr(evaluating, "validate", first)
    with pytest.raises(Ended):
        sweep(stream(), tmp_path / "a", grid=GRID, seeds=(0, 1))
    monkeypatch.setattr(evaluating, "validate", second)
    results = sweep(stream(), tmp_path / "a", grid=GRID, seeds=(0, 1))
    assert len(second.asked) == 8 - 3
    assert not set(first.asked) & set(second.asked)
    monkeypatch.setattr(evaluating, "validate", undisturbed)
    assert results == sweep(stream(), tmp_path / "b", grid=GRID, seeds=(0, 1))


def test_a_larger_grid_computes_only_new_cells(trials: Trials, tmp_path: Path) -> None:
    sweep(stream(), tmp_path, grid=GRID)
    before = len(trials.asked)
    sweep(stream(), tmp_path, grid={**GRID, "alpha": [0.1, 0.2, 0.3]})
    assert [alpha for alpha, _, _ in trials.asked[before:]] == [0.2, 0.2]


def test_another_stream_or_protocol_is_rejected(trials: Trials, tmp_path: Path) -> None:
    sweep(stream(), tmp_path, grid=GRID)
    with pytest.raises(StateFileError, match="a sweep with events"):
        sweep(stream(1), tmp_path, grid=GRID)
    with pytest.raises(StateFileError, match="a sweep with protocol 'tgn'"):
        sweep(stream(), tmp_path, grid=GRID, protocol="tgb")


def test_a_damaged_cell_is_named(trials: Trials, tmp_path: Path) -> None:
    sweep(stream(), tmp_path, grid=GRID)
    cell = next(tmp_path.glob("cell-*.json"))
    cell.write_text("{")
    with pytest.raises(StateFileError, match=f"{cell.name} is damaged; delete it"):
        sweep(stream(), tmp_path, grid=GRID)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"grid": {}}, "the grid is empty"),
        ({"grid": {"alpha": []}}, "the grid is empty"),
        ({"grid": {"alpha": [0.1, 0.1]}}, "each value once"),
        ({"grid": {"alpha": [0.1, 7.0]}}, "alpha is 7.0"),
        ({"settings": {"alpha": 0.2}}, "in the grid and in the settings"),
        ({"grid": {"seed": [1]}}, "'seed' is decided by the run"),
        ({"metric": "f1"}, "metric is 'f1'"),
        ({"protocol": "roland"}, "protocol is 'roland'"),
        ({"seeds": ()}, "at least one"),
        ({"workers": 2}, "workers .* engine='ray'"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_is_written(
    trials: Trials, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        sweep(stream(), tmp_path / "a", **{"grid": GRID, **wrong})
    assert not (tmp_path / "a").exists()


def test_test_events_decide_nothing(tmp_path: Path) -> None:
    """The choice and its numbers are the same with other test events."""
    events = stream()
    split = evaluation.tgn_split(events)
    shuffled = events.dst.copy()
    late = split.test
    shuffled[late] = shuffled[late][::-1]
    other = EventStream(src=events.src, dst=shuffled, t=events.t, nodes=events.nodes)
    settings = {"columns": 8, "epochs": 1, "hidden": 16, "high_pass": False}
    both = [
        sweep(each, tmp_path / str(number), grid={"alpha": [0.1, 0.4]}, settings=settings)
        for number, each in enumerate((events, other))
    ]
    assert len(late)
    chosen = [
        [(row["settings"], row["metrics"]["ap"]["per_seed"]) for row in one["choices"]]
        for one in both
    ]
    assert chosen[0] == chosen[1]


def test_the_command_shows_the_table_and_tests_the_best_on_request(tmp_path: Path) -> None:
    stream().save(tmp_path / "toy.tide")
    words = [
        *("sweep", str(tmp_path / "toy.tide"), "-o", str(tmp_path / "found")),
        *("--grid", "half_lives=[20],[20,200]", "--seeds", "0", "--test", "--json"),
        *("--set", "columns=8", "--set", "epochs=1", "--set", "hidden=16"),
    ]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout.splitlines()[-1])
    tried = [row["settings"]["half_lives"] for row in results["choices"]]
    assert sorted(tried) == [[20], [20, 200]]
    assert results["test"]["settings"]["half_lives"] == tried[0]
    assert "results.csv" in done.stdout


@pytest.mark.parametrize("word", ["alpha", "alhpa=0.1", "columns=8,many"])
def test_a_malformed_grid_is_rejected(word: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["sweep", "x.csv", "-o", str(tmp_path / "a"), "--grid", word])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_choices_that_chance_may_have_ordered_are_named() -> None:
    def row(value: float, events: int) -> dict[str, Any]:
        metrics = {"ap": {"mean": value, "std": 0.0, "per_seed": [value]}}
        return {"metrics": metrics, "events": events}

    assert _alike(row(0.9, 100), row(0.85, 100), "ap")
    assert not _alike(row(0.9, 10_000), row(0.85, 10_000), "ap")
