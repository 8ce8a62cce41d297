"""Published tables are printed as they are, and our own numbers are stored cell by cell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tidegraph import EventStream, cli, evaluation
from tidegraph.core.errors import ParameterError
from tidegraph.evaluation.memory import Memory
from tidegraph.events import datasets
from tidegraph.learning.tasks import LinkPredictor
from tidegraph.reproduce import claims, driver, figures, targets
from tidegraph.reproduce import data as data_of_tables
from tidegraph.reproduce.cells import Cell, SeenOrItem, Workplace, fingerprint, measure
from tidegraph.reproduce.driver import OVERVIEW, reproduce
from tidegraph.reproduce.page import OURS, Row, Table, Value, published_rows
from tidegraph.reproduce.plan import Found, Plan, Target
from tidegraph.reproduce.targets import TARGETS
from tidegraph.reproduce.texts import best_published, number, published

PAPER = (
    Path(__file__).parents[2] / "shared" / "paper" / "decoupled-gnn-for-large-dynamic-graphs.tex"
)
# The label of the paper's table that each target reproduces.
LABELS = {
    "ctdg-link": "tab:exp_ctdg",
    "node-classification": "tab:nodecls",
    "dtdg-link": "tab:exp_dtdg",
    "large": "tab:large_nodecls",
    "time-cost": "tab:exp_ctdg_timecost",
    "ablation-high-pass": "tab:exp_ablation_study",
    "time-encoding": "tab:exp_time_encoding",
}
NETWORK = {"columns": 4, "epochs": 1, "hidden": 8, "batch_size": 64, "r_max": 0.05}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Use one thread: more only slow networks this small down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> EventStream:
    """Replace all data sets with one small generated stream."""
    stream = datasets.generate_communities(nodes=40, events=600, communities=4, seed=3)
    monkeypatch.setattr(data_of_tables, "load", lambda name, fast: stream)
    monkeypatch.setattr(data_of_tables, "absent", lambda name: None)
    return stream


# Published numbers --------------------------------------------------------------------------------


def printed_rows(label: str) -> list[str]:
    """Return the lines of a table of the paper that hold numbers, without markup."""
    if not PAPER.exists():
        pytest.skip(f"the paper is not at {PAPER}")
    text = PAPER.read_text(encoding="utf-8")
    begin = text.index(r"\begin{tabular}", text.index(rf"\label{{{label}}}"))
    table = text[begin : text.index(r"\end{table", begin)]
    plain = re.sub(r"\\(revision|ul|textbf|hline|multirow\{2\}\*?|multicolumn)", " ", table)
    plain = plain.replace(r"\%", "%").replace("{", " ").replace("}", " ")
    return [line for line in plain.splitlines() if "&" in line and re.search(r"\d\.\d|± ", line)]


@pytest.mark.parametrize("table", LABELS)
def test_every_row_of_the_papers_table_is_printed_with_its_numbers(table: str) -> None:
    lines = printed_rows(LABELS[table])
    _, rows = published(table)
    theirs = [row for row in rows if row["source"].startswith("the paper,")]
    assert len(theirs) == len(lines)
    for row, line in zip(theirs, lines, strict=True):
        values = [text for text in row["values"].values() if not text.endswith("%")]
        found = [" ".join(cell.split()).rstrip("\\ ") for cell in line.split("&")]
        assert [cell for cell in found if number(cell)] == values, row["name"]


def test_gains_of_the_ablation_are_those_of_the_paper() -> None:
    gains = re.findall(r"-?\d+\.\d+%", "\n".join(printed_rows(LABELS["ablation-high-pass"])))
    _, rows = published("ablation-high-pass")
    assert gains == [text for row in rows for text in row["values"].values() if text.endswith("%")]


def test_the_best_published_numbers_are_those_of_the_tables() -> None:
    columns, rows = published("samplers")
    for (data, sampler, part), (best, knowledge) in best_published().items():
        assert knowledge != "not said"
        column = f"{data} {sampler}"
        if part == "all" and column in columns:
            found = [row["values"][column] for row in rows if column in row["values"]]
            assert best.split()[1] == max(found, key=float)


@pytest.mark.parametrize("name", sorted(set(TARGETS) - {"sensitivity", "error-vs-speed", "parts"}))
def test_published_rows_come_first_and_with_their_source(name: str) -> None:
    plan = Plan([0], fast=True)
    (table,) = TARGETS[name].tables(Found({}, plan))
    _, rows, sources = published_rows(name)
    assert table.rows[: len(rows)] == rows
    assert table.sources == sources
    assert {row.whose for row in table.rows[: len(rows)]} == {"published"}
    for row in table.rows[len(rows) :]:
        assert row.whose != "published"
        assert all(value.mean is None for value in row.values.values())  # nothing was measured


def test_the_help_of_the_command_lists_the_targets() -> None:
    text = CliRunner().invoke(cli.main, ["reproduce", "--help"]).stdout
    for target in TARGETS.values():
        assert target.name in text
        assert target.summary.split(":")[0] in text


def test_a_page_says_how_much_was_trained_on() -> None:
    examples, epochs = (targets._FEWER[name] for name in ("max_examples", "epochs"))
    notes = " ".join(TARGETS["sensitivity"].notes)
    assert f"the latest {examples:,} events for {epochs} epochs" in notes


# Numbers and tables -------------------------------------------------------------------------------


def test_a_number_says_how_many_seeds_are_in_it() -> None:
    assert Value.of([0.991, 0.993], "ap").text == "99.20 ± 0.14 (n=2)"
    assert Value.of([0.25], "mrr_full").text == "0.2500 (n=1)"
    assert Value.printed("98.46 ± 0.1") == Value("98.46 ± 0.1", 98.46, 0.1)


def test_a_table_shows_negatives_and_metric_of_every_row() -> None:
    rows = [Row("ours", OURS, "random-dst", "ap", {"a": Value.of([0.5], "ap")})]
    text = Table("t", ["a", "b"], rows).markdown()
    assert "| model | whose | negatives  | metric | a           |" in text  # b is empty
    assert "| ours  | ours  | random-dst | ap     | 50.00 (n=1) |" in text


# Cells --------------------------------------------------------------------------------------------


def plan_of(r_max: tuple[float, ...]) -> Target:
    """Return a target that measures the engine at these thresholds."""

    def plan(plan: Plan) -> None:
        for each in r_max:
            plan.add("errors", "made-up", f"{each:g}", {"r_max": each, "steps": 50, "columns": 2})

    def tables(found: Found) -> list[Table]:
        rows = [
            Row(
                f"{each:g}",
                OURS,
                "",
                "",
                {"x": found.value("made-up", f"{each:g}", ["error_max"], "x")},
            )
            for each in r_max
        ]
        return [Table("errors", ["x"], rows)]

    def draw(tables: list[Table], found: Found, path: Path) -> None:
        path.write_text("<svg/>", encoding="utf-8")

    return Target("promises", plan, tables, draw, title="Promises", description="Kept.", seeds=2)


def cells_in(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (output / "cells").iterdir()}


def test_a_stored_cell_is_not_measured_again(tmp_path: Path, made_up: EventStream) -> None:
    first, _ = reproduce(plan_of((0.1, 0.01)), tmp_path)
    before = cells_in(tmp_path)
    again, tables = reproduce(plan_of((0.1, 0.01)), tmp_path)
    assert len(before) == 4  # two thresholds, two seeds
    assert cells_in(tmp_path) == before
    assert again["tables"] == first["tables"]
    assert again["missing"] == []
    assert "(n=2)" in tables[0].markdown()


def test_more_seeds_add_to_the_stored_cells(tmp_path: Path, made_up: EventStream) -> None:
    reproduce(plan_of((0.1,)), tmp_path, seeds=[0])
    before = cells_in(tmp_path)
    _, tables = reproduce(plan_of((0.1,)), tmp_path, seeds=[0, 1, 2])
    assert before.items() <= cells_in(tmp_path).items()
    assert "(n=3)" in tables[0].markdown()


def test_an_interrupted_reproduction_resumes_and_ends_the_same(
    tmp_path: Path, made_up: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Cell] = []

    def stopped(cell: Cell, *rest: Any) -> dict[str, Any]:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(cell)
        return measure(cell, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "measure", stopped)
        with pytest.raises(KeyboardInterrupt):
            reproduce(plan_of((0.1, 0.01)), tmp_path / "stopped")
    before = cells_in(tmp_path / "stopped")
    assert len(before) == 2
    resumed, _ = reproduce(plan_of((0.1, 0.01)), tmp_path / "stopped")
    assert before.items() <= cells_in(tmp_path / "stopped").items()
    at_once, _ = reproduce(plan_of((0.1, 0.01)), tmp_path / "at once")
    assert resumed["tables"] == at_once["tables"]


def test_without_a_budget_nothing_is_measured_and_all_seeds_are_missing(
    tmp_path: Path, made_up: EventStream
) -> None:
    results, tables = reproduce(plan_of((0.1,)), tmp_path, budget_s=0)
    assert cells_in(tmp_path) == {}
    assert results["missing"] == ["0.1 on made-up: 0 of 2 seeds"]
    assert "not measured yet" in tables[0].markdown()
    assert "0 of 2 seeds" in (tmp_path / "promises" / "README.md").read_text(encoding="utf-8")


def test_results_list_their_inputs(tmp_path: Path, made_up: EventStream) -> None:
    reproduce(plan_of((0.1,)), tmp_path, command=f"tidegraph --output {tmp_path}/x")
    results = json.loads((tmp_path / "promises" / "results.json").read_text(encoding="utf-8"))
    assert results["command"] == "tidegraph --output x"
    assert results["seeds"] == [0, 1]
    assert results["data"]["made-up"]["digest"] == made_up.digest()
    assert sorted(results["files"]) == sorted(cells_in(tmp_path))
    for text in cells_in(tmp_path).values():
        cell = json.loads(text)
        assert cell["settings"]["r_max"] == 0.1
        assert cell["holds"] is True
        assert {"commit", "machine", "version", "elapsed_s", "seed"} <= set(cell)


def test_a_fingerprint_depends_on_settings_seed_and_data(
    tmp_path: Path, made_up: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"r_max": 0.1, "steps": 50, "columns": 2}
    marks = [
        fingerprint(cell, Workplace(tmp_path, fast=False))
        for cell in (
            Cell("errors", "made-up", 0, settings),
            Cell("errors", "made-up", 1, settings),
            Cell("errors", "made-up", 0, {**settings, "r_max": 0.2}),
        )
    ]
    same = fingerprint(Cell("errors", "made-up", 0, settings), Workplace(tmp_path, fast=False))
    monkeypatch.setattr(data_of_tables, "load", lambda name, fast: made_up[:-1])
    marks.append(
        fingerprint(Cell("errors", "made-up", 0, settings), Workplace(tmp_path, fast=False))
    )
    assert same == marks[0]
    assert len(set(marks)) == len(marks)


def test_repeated_seeds_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"\[1, 1\]"):
        reproduce(plan_of((0.1,)), tmp_path, seeds=[1, 1])
    assert not any(tmp_path.iterdir())


def test_models_that_share_a_store_score_as_they_would_alone(
    tmp_path: Path, made_up: EventStream
) -> None:
    plan = Plan([0], fast=False)
    read: dict[str, Any] = {**NETWORK, "pair_features": ("history", "sketches")}
    plan.models("events", ["made-up"], "first", "default", **read)
    plan.models("events", ["made-up"], "second", "default", **read, layers=1)
    (first,), (second,) = plan.cells.values()
    assert first.recorded == second.recorded

    def silent(share: float, what: str) -> None:
        pass

    def metrics(cell: Cell, workplace: Workplace) -> Any:
        return measure(cell, workplace, silent)["metrics"]

    together, alone = (tmp_path / name for name in ("together", "alone"))
    for directory in (together, alone):
        directory.mkdir()
    shared = Workplace(together, fast=False)
    metrics(first, shared)
    inside = list(together.iterdir())
    of_second = metrics(second, shared)
    assert list(together.iterdir()) == inside  # no second store
    assert of_second == metrics(second, Workplace(alone, fast=False))


def test_absent_data_leaves_published_numbers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_of_tables, "absent", lambda name: "data not here")
    plan = Plan([0], fast=True)
    TARGETS["ctdg-link"].plan(plan)
    assert plan.cells == {}
    text = TARGETS["ctdg-link"].tables(Found({}, plan))[0].markdown()
    assert "data not here" in text
    assert "99.51 ± 0.5" in text


def test_a_cell_of_older_code_counts_only_on_request(
    tmp_path: Path, made_up: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce(plan_of((0.1,)), tmp_path, seeds=[0])
    before = cells_in(tmp_path)
    monkeypatch.setattr(driver, "code_digest", lambda: "another")
    nothing, _ = reproduce(plan_of((0.1,)), tmp_path, seeds=[0], budget_s=0)
    counted, _ = reproduce(plan_of((0.1,)), tmp_path, seeds=[0], budget_s=0, older=True)
    assert (nothing["cells"], counted["cells"]) == (0, 1)
    assert cells_in(tmp_path) == before
    reproduce(plan_of((0.1,)), tmp_path, seeds=[0])
    assert cells_in(tmp_path) != before


def test_rolands_rows_and_ours_are_on_the_same_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = datasets.generate_communities(nodes=40, events=600, communities=4, seed=3)
    stream = replace(stream, t=stream.t * 10**6, unit="s")
    monkeypatch.setattr(datasets, "load_dataset", lambda name: stream)
    monkeypatch.setattr(data_of_tables, "absent", lambda name: None)
    plan = Plan([0], fast=False)
    TARGETS["dtdg-link"].plan(plan)
    _, rows, _ = published_rows("dtdg-link")
    roland = {column for row in rows if "ROLAND" in row.name for column in row.values}
    assert roland == {"uci", "bitcoin-alpha-reversed", "bitcoin-otc-reversed"}
    for name in roland - {"uci"}:
        original = name.removesuffix("-reversed")
        both_ways = data_of_tables.trial(name, "roland", fast=False).stream
        assert both_ways.digest() == stream.with_reversed().digest()
        one_way = data_of_tables.trial(original, "roland", fast=False).stream
        assert one_way.digest() == stream.digest()
        for model in {model for _, model in plan.cells}:
            (cell,), (plain,) = plan.cells[name, model], plan.cells[original, model]
            assert cell.settings == plain.settings


def test_epochs_compared_with_tgn_cover_all_training_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_of_tables, "absent", lambda name: None)
    for target in ("ctdg-link", "time-cost"):
        plan = Plan([0], fast=False)
        TARGETS[target].plan(plan)
        for (name, _), (cell, *_) in plan.cells.items():
            if cell.kind == "events":
                assert cell.settings["max_examples"] >= datasets.DATA_SETS[name].events


def test_models_differ_only_in_the_parts_that_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_of_tables, "absent", lambda name: None)
    plan = Plan([0], fast=False)
    TARGETS["parts"].plan(plan)
    default = LinkPredictor().get_params()
    parts = {"pair_features", "edge_features", "encoder", "encoder_options"}
    read: dict[str, list[dict[str, Any]]] = {}
    for (name, _), (cell, *_) in plan.cells.items():
        if cell.kind == "events":
            read.setdefault(name, []).append(dict(cell.settings))
    assert len(read) == 5
    for models in read.values():
        for settings in models:
            assert {key for key in settings if settings[key] != default[key]} <= parts
        chosen = [[str(settings[part]) for part in sorted(parts)] for settings in models]
        assert len({tuple(each) for each in chosen}) == len(models) >= 6
    for name in ("movielens-100k", "bitcoin-otc"):  # the others have nothing more to read
        assert any(all(default[part] == each[part] for part in parts) for each in read[name])


def test_all_flights_that_train_fit_into_the_default_of_the_parts() -> None:
    trained = len(evaluation.tgn_split(datasets.load_dataset("nyc-flights")).train)
    assert trained <= LinkPredictor().max_examples
    assert f"nyc-flights, has {trained:,}" in " ".join(TARGETS["parts"].notes)


def test_a_table_of_parts_says_how_many_events_were_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_of_tables, "absent", lambda name: None if name == "uci" else "gone")
    plan = Plan([0], fast=True)
    TARGETS["parts"].plan(plan)
    score = {"random-dst": {"all": {"ap": 0.5}, "first": {"ap": 0.25}}}
    counts = {"random-dst": {"all": 1234, "first": 56}}
    results = {
        name: [{"metrics": score, "rules": {"memory": score}, "examples": counts}]
        for name in plan.cells
    }
    (table,) = TARGETS["parts"].tables(Found(results, plan))
    *models, best, judged = table.rows
    assert table.title == "uci"
    assert {row.knowledge for row in table.rows} == {"event"}
    for row in models:
        assert row.values["random-dst, first meetings"].text == "25.00 (n=1)"
    assert best.values["random-dst, all"].text == "50.00 (memory)"
    shown = {title: value.text for title, value in judged.values.items()}
    assert shown == {"random-dst, all": "1,234", "random-dst, first meetings": "56"}


def write_results(output: Path, target: str, tables: list[Table], **about: Any) -> None:
    """Write the part of `results.json` that the overview reads."""
    results = {"target": target, "title": target, "seeds": [0], "cells": 1, "missing": []}
    results |= {"fast": False, "tables": [table.plain() for table in tables], **about}
    (output / target).mkdir()
    (output / target / "results.json").write_text(json.dumps(results), encoding="utf-8")


def test_the_overview_compares_claims_with_measurements(tmp_path: Path) -> None:
    def of(name: str, **values: float) -> Row:
        shown = {key.replace("_", "-"): Value(f"{v:g} (n=1)", v) for key, v in values.items()}
        return Row(name, OURS, "", "mrr_1000", shown)

    gru, lstm = "tidegraph, paper-gru", "tidegraph, paper-lstm"
    rows = [of(lstm, uci=0.25, bitcoin_otc=0.5, other=0.1), of(gru, uci=0.125, bitcoin_otc=0.75)]
    write_results(tmp_path, "dtdg-link", [Table("MRR", [], rows)], missing=["a", "b"])
    words = ("low-pass only", "low- and high-pass")
    values = {words[0]: {"uci": 0.5, "bitcoin_otc": 0.5}, words[1]: {"uci": 0.5, "bitcoin_otc": 1}}
    rows = [
        of(f"{model}, {each}", **values[each])
        for model in (gru, "tidegraph, default")
        for each in words
    ]
    write_results(tmp_path, "ablation-high-pass", [Table("MRR", [], rows)], fast=True)
    along = {"random-dst": 99.0, "moved": 0.5, "records per event": 4.0}
    shown = {title: Value(f"{value:g}", value) for title, value in along.items()}
    varied = [Row(f"{lstm}, r_max {r:g}", OURS, "", "ap", shown) for r in (1e-9, 1e-2)]
    write_results(tmp_path, "sensitivity", [Table("alpha", [], []), Table("r_max", [], varied)])
    for name, content in {
        "broken": "<<<<<<< HEAD",
        "foreign": '{"target": 3}',
        "list": "[]",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(content, encoding="utf-8")
    page = claims.overview(tmp_path)
    lines = page.splitlines()

    def row(*facts: str) -> str:
        (found,) = (line for line in lines if all(fact in line for fact in facts))
        return found

    row("lstm", "1 of 2", "uci 0.25 against 0.125", "otc 0.5 against 0.75", "alpha not measured")
    row("1 of 2", "gru on uci +0.0 %", "gru on bitcoin-otc +100.0 %")
    row("random-dst", "1e-09: 99 (0.5)", "0.01: 99 (0.5)")
    row("records per event", "r_max 1e-09: 4", "r_max 0.01: 4")
    row("| alpha ", "not measured yet")
    row("TGN", "not measured yet", "| time-cost |")
    row("| [dtdg-link](dtdg-link/README.md) | 0 | 1 | 2 |")
    row("| [ablation-high-pass](ablation-high-pass/README.md), **fast", "| 0 | 1 |")
    for name in ("broken", "foreign", "list"):
        row(f"`{name}/results.json`")


def test_a_figure_that_fails_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    def failing(self: Figure, file: Any, **options: Any) -> None:
        if isinstance(file, Path):
            file.write_text("<svg")
        raise RuntimeError("no ink")

    table = Table("t", ["a"], [Row("ours", OURS, "", "ap", {"a": Value.of([0.5], "ap")})])
    figures.dots(table, tmp_path / "figure.svg")
    before = (tmp_path / "figure.svg").read_bytes()
    monkeypatch.setattr(Figure, "savefig", failing)
    with pytest.raises(RuntimeError, match="no ink"):
        figures.dots(table, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


# The heuristic of the samplers --------------------------------------------------------------------


def test_a_seen_pair_scores_above_an_item_and_an_item_above_the_rest() -> None:
    stream = EventStream(np.array([0, 1]), np.array([2, 3]), np.array([1, 2]), nodes=5)
    src, dst = np.array([0, 0, 0, 0]), np.array([2, 3, 4, 1])
    asked = Memory(stream).ask(src, dst, np.full(4, 3), np.full(4, 2))
    assert SeenOrItem().score(asked).tolist() == [2, 1, 0, 0]


@pytest.mark.slow
def test_on_wikipedia_a_heuristic_nearly_solves_random_all() -> None:
    if datasets.find(datasets.DATA_SETS["wikipedia"]) is None:
        pytest.skip("wikipedia is not in $TIDEGRAPH_DATA")
    stream = datasets.load_dataset("wikipedia")
    result = evaluation.evaluate_link(
        None,
        stream,
        evaluation.tgn_split(stream),
        samplers=("random-all", "random-dst"),
        parts=("test",),
        heuristics=lambda: [SeenOrItem()],
    )
    ap = {row.sampler: row.metrics["ap"] for row in result.rows if row.part == "test"}
    assert ap["random-all"] > 0.97
    assert ap["random-dst"] < 0.95


# All targets --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch_geometric's own
@pytest.mark.parametrize("name", TARGETS)
def test_the_fast_form_prints_and_writes_a_page(name: str, everything: Path) -> None:
    for needed in ("wikipedia", "uci", "bitcoin-otc", "bitcoin-alpha", "pubmed-temporal"):
        if datasets.find(datasets.DATA_SETS[needed]) is None:
            pytest.skip(f"{needed} is not in $TIDEGRAPH_DATA")
    words = ["reproduce", name, "--fast", "--output", str(everything), "--json"]
    result = CliRunner().invoke(cli.main, words)
    assert result.exit_code == 0, result.output
    results = json.loads(result.stdout.splitlines()[-1])[name]
    page = (everything / name / "README.md").read_text(encoding="utf-8")
    assert results["missing"] == []
    assert (everything / name / "figure.svg").read_text(encoding="utf-8").startswith("<?xml")
    for table in results["tables"]:
        for row in table["rows"]:
            assert row["name"] in page
        ours = [row for row in table["rows"] if row["whose"] == OURS]
        assert any(value["mean"] is not None for row in ours for value in row["values"].values())
    # The overview finds the rows it looks for.
    overview = (everything / OVERVIEW).read_text(encoding="utf-8")
    claimed = [line for line in overview.splitlines() if f"| [{name}]({name}/README.md) |" in line]
    assert len(claimed) == sum(claim.target == name for claim in claims._CLAIMS)
    assert not any("not measured yet" in line for line in claimed)
