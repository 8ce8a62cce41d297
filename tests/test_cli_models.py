"""`append`, `embeddings`, `report` and `predict --for-all`: what is done with a saved model."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from click.testing import CliRunner, Result

from tidegraph import cli
from tidegraph.core.durable import exchange
from tidegraph.core.progress import Progress
from tidegraph.events.tables import read_table
from tidegraph.learning.tasks import LinkPredictor, estimator

QUICK = {"columns": 4, "epochs": 1, "hidden": 8, "batch_size": 256, "threads": 1}
QUICKLY = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
NAMED = ["--src", "who", "--dst", "whom", "--time", "when"]
KEYS: dict[str, Any] = {"src": "who", "dst": "whom", "t": "when"}
FIRST = 1_700_000_000


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)))


def last_line(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return report


def rejection(result: Result) -> str:
    assert result.exit_code == 2, result.output
    return result.stderr


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def write(path: Path, rows: Sequence[tuple[str, str, object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("when", "who", "whom"), *((t, s, d) for s, d, t in rows)])
    return path


def calls(seed: int, count: int, people: int, first: int) -> list[tuple[str, str, int]]:
    src, step = np.random.default_rng(seed).integers(0, (people, 4), (count, 2)).T
    ends = zip(src, (src + 1 + step) % people, strict=True)
    return [(f"p{a}", f"p{b}", first + 60 * k) for k, (a, b) in enumerate(ends)]


EARLIER = calls(0, 400, 20, FIRST)
LATER = calls(1, 50, 24, EARLIER[-1][2] + 60)  # with four more people


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("models")
    file = write(home / "calls.csv", EARLIER)
    result = run("run", file, *NAMED, *QUICKLY, "--no-report", "--quiet", "--out", home)
    assert result.exit_code == 0, result.output
    return home / "calls"


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "seed-0" / "model", tmp_path / "calls.model"))


# append -------------------------------------------------------------------------------------------


def test_an_appended_model_answers_as_one_that_advanced(model: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "later.csv", LATER)
    expected = LinkPredictor.load(model)
    expected.advance(read_table(file, src="who", dst="whom", t="when").continuing(expected.stream))
    report = last_line(run("append", model, file, "--json"))
    assert (report["appended"], report["known"], report["late"]) == (50, 0, 0)
    assert (report["events"], report["new_nodes"]) == (450, 4)
    found = LinkPredictor.load(model)
    assert found.stream.digest() == expected.stream.digest()
    now = LATER[-1][2] + 1
    for src in ("p0", "p23"):
        nodes, probability = found.rank(src, now, 30)
        np.testing.assert_array_equal(nodes, expected.rank(src, now, 30)[0])
        np.testing.assert_array_equal(probability, expected.rank(src, now, 30)[1])


def test_known_and_late_events_are_left_out_and_counted(model: Path, tmp_path: Path) -> None:
    late = [("p1", "late", EARLIER[10][2] + 1), ("late", "p2", EARLIER[20][2] + 1)]
    rows = [*EARLIER[100:], *LATER, *late]  # not in the order of time either
    file = write(tmp_path / "mixed.csv", rows)
    report = last_line(run("append", model, file, "--json"))
    assert (report["read"], report["appended"]) == (len(rows), 50)
    assert (report["known"], report["late"]) == (300, 2)
    before = LinkPredictor.load(model).stream.digest()
    again = last_line(run("append", model, file, "--json"))
    assert (again["appended"], again["known"], again["late"]) == (0, 350, 2)
    assert "late" in rejection(run("append", model, write(tmp_path / "late.csv", late)))
    assert LinkPredictor.load(model).stream.digest() == before


def test_a_run_is_appended_to_another_place_and_stays_as_it_is(
    trained: Path, tmp_path: Path
) -> None:
    file, output = write(tmp_path / "later.csv", LATER), tmp_path / "more.model"
    before = LinkPredictor.load(trained / "seed-0" / "model").stream.digest()
    last_line(run("append", trained, file, "-o", output, "--json"))
    assert LinkPredictor.load(trained / "seed-0" / "model").stream.digest() == before
    assert len(LinkPredictor.load(output).stream) == 450
    assert str(output) in rejection(run("append", trained, file, "-o", output))


@pytest.mark.parametrize("done", [False, True])
def test_a_stopped_append_leaves_the_model_as_before_or_as_after(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    def stopped(aside: Path, path: Path) -> None:
        if done:
            exchange(aside, path)
        raise KeyboardInterrupt

    file = write(tmp_path / "later.csv", LATER)
    with monkeypatch.context() as patched:
        patched.setattr(estimator, "exchange", stopped)
        assert run("append", model, file).exit_code == 130
    assert len(LinkPredictor.load(model).stream) == (450 if done else 400)
    assert last_line(run("append", model, file, "--json"))["events"] == 450
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] in (
        [],
        [".calls.model.saving"] if done else [],
    )


@pytest.mark.parametrize("at_once", [True, False])
def test_directories_change_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"from {name}").touch()
    exchange(tmp_path / "a", tmp_path / "b")
    found = {path.parent.name: path.name for path in tmp_path.glob("*/*")}
    assert found == {"a": "from b", "b": "from a"}


def test_ids_that_are_numbers_from_zero_on_stay_what_they_are(tmp_path: Path) -> None:
    rows = [(str(k % 10), str((k + 1 + k % 3) % 10), FIRST + k) for k in range(300)]
    model = tmp_path / "model"
    file = write(tmp_path / "a.csv", rows)
    assert run("train", file, *NAMED, *QUICKLY, "-o", model).exit_code == 0
    file = write(tmp_path / "b.csv", [("7", "12", FIRST + 400), ("3", "7", FIRST + 401)])
    assert last_line(run("append", model, file, "--json"))["appended"] == 2
    stream = LinkPredictor.load(model).stream
    assert [stream.name(ends[-2:]).tolist() for ends in (stream.src, stream.dst)] == [
        [7, 3],
        [12, 7],
    ]
    words = write(tmp_path / "c.csv", [("ann", "bob", FIRST + 500)])
    assert "ann" in rejection(run("append", model, words))


def test_an_appended_table_is_read_as_the_one_of_the_training(tmp_path: Path) -> None:
    def dated(rows: list[tuple[str, str, int]]) -> list[tuple[str, str, Any]]:
        begin = datetime(2024, 5, 1, tzinfo=timezone.utc)
        days = [(begin + timedelta(hours=(t - FIRST) // 60)) for _, _, t in rows]
        return [(s, d, f"{day:%d/%m/%y %H:%M}") for (s, d, _), day in zip(rows, days, strict=True)]

    model, form = tmp_path / "model", "%d/%m/%y %H:%M"
    file = write(tmp_path / "a.csv", dated(EARLIER[:300]))
    words = "train", file, *NAMED, *QUICKLY, "-o", model, "--date-format", form
    assert run(*words).exit_code == 0
    file = write(tmp_path / "b.csv", dated(EARLIER[300:]))
    assert last_line(run("append", model, file, "--json"))["appended"] == 100
    expected = read_table(write(tmp_path / "c.csv", dated(EARLIER)), **KEYS, date_format=form)
    np.testing.assert_array_equal(LinkPredictor.load(model).stream.t, expected.t)
    far = write(tmp_path / "far.csv", [("p1", "p2", 7)])
    assert "--unit s" in rejection(run("append", model, far))


# Ctrl-C -------------------------------------------------------------------------------------------


def stopped(monkeypatch: pytest.MonkeyPatch, command: str, at: str, *words: object) -> str:
    """Return what is said when a command is stopped as soon as it reports to be `at` something."""

    @contextlib.contextmanager
    def progress(title: str, *, quiet: bool = False) -> Iterator[Progress]:
        def report(done: int, total: int, what: str) -> None:
            if at in what:
                raise KeyboardInterrupt

        yield report

    with monkeypatch.context() as patched:
        for module in (command, "reading"):
            patched.setattr(f"tidegraph.cli.{module}.progress", progress)
        result = run(command, *words)
    assert result.exit_code == 130, result.output
    return result.stderr


def test_a_stopped_run_names_what_is_finished_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "calls.csv", EARLIER)
    words = [file, *NAMED, *QUICKLY, "--no-report", "--out", tmp_path, "--name", "run"]
    assert "Nothing was written" in stopped(monkeypatch, "run", file.name, *words)
    assert not (tmp_path / "run").exists()
    kept = stopped(monkeypatch, "run", "epoch", *words)
    assert "Finished: data, heuristics, record/0;" in kept
    assert f"tidegraph resume {tmp_path / 'run'}" in kept
    assert run("resume", tmp_path / "run", "--quiet").exit_code == 0
    # Reading again has changed nothing of a run that is already there.
    assert "Finished" not in stopped(monkeypatch, "run", file.name, *words)
    assert run("report", tmp_path / "run").exit_code == 0


def test_stopped_commands_say_what_is_really_there(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, data = tmp_path / "out", [trained, *QUICKLY]
    assert f"{out}.unfinished" in stopped(monkeypatch, "train", "epoch", *data, "-o", out)
    assert "complete" in stopped(monkeypatch, "train", "validating", *data, "-o", out)
    assert LinkPredictor.load(out).stream.nodes == 20
    assert "keeps nothing" in stopped(monkeypatch, "evaluate", "epoch", *data)
    grid = ["--grid", "alpha=0.1,0.2", "--seeds", "0", "-o", tmp_path / "sweep"]
    assert "0 trainings" in stopped(monkeypatch, "sweep", "epoch", *data, *grid)
    top = tmp_path / "top.csv"
    words = [out, "--for-all", "-o", top]
    assert "Nothing was written" in stopped(monkeypatch, "predict", "ranking", *words)
    assert not top.exists()


# predict ------------------------------------------------------------------------------------------


def test_rows_with_unknown_nodes_are_marked_and_the_others_answered(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "asked.csv"
    file.write_text("src,dst\np1,p2\np1,zoe\n,p2\nzoe,bob\np3,p4\n")
    result = run("predict", model, "--pairs", file, "--json")
    answers = last_line(result)["answers"]
    assert [row["unknown"] for row in answers] == ["", "dst", "src", "src dst", ""]
    predictor = LinkPredictor.load(model)
    known = predictor.predict_proba(["p1", "p3"], ["p2", "p4"], EARLIER[-1][2] + 1)
    assert [row["probability"] for row in answers] == [known[0], None, None, None, known[1]]
    assert "3 of 5 rows" in result.stderr
    assert "zoe" in result.stderr
    file.write_text("src,dst\np1,p2\n")
    (answer,) = last_line(run("predict", model, "--pairs", file, "--json"))["answers"]
    assert "unknown" not in answer
    table = tmp_path / "answers.parquet"
    assert run("predict", model, "--pairs", file, "-o", table).exit_code == 0
    (row,) = pyarrow.parquet.read_table(table).to_pylist()
    assert row == {"src": "p1", "dst": "p2", "probability": pytest.approx(float(known[0]))}


@pytest.mark.parametrize("new", [False, True])
def test_a_ranking_for_all_is_that_of_each(model: Path, tmp_path: Path, new: bool) -> None:
    output = tmp_path / "top.parquet"
    options = ["--new"] if new else []
    assert run("predict", model, "--for-all", "-k", "3", *options, "-o", output).exit_code == 0
    rows = pyarrow.parquet.read_table(output).to_pylist()
    predictor = LinkPredictor.load(model)
    stream, now = predictor.stream, EARLIER[-1][2] + 1
    expected = []
    for src in np.unique(stream.src):
        nodes, probability = predictor.rank(int(src), now, 3, without_known=new)
        for rank, (dst, value) in enumerate(zip(nodes, probability, strict=True), 1):
            names = stream.name([src, dst]).tolist()
            row = {"src": names[0], "rank": rank, "dst": names[1], "probability": float(value)}
            expected.append(row)
    assert [{**row, "probability": pytest.approx(row["probability"])} for row in expected] == rows


def test_few_candidates_are_the_latest_partners_and_the_most_active(model: Path) -> None:
    predictor = LinkPredictor.load(model)
    stream, now = predictor.stream, EARLIER[-1][2] + 1
    src, dst, probability = predictor.rank_all(now, 4, most=4)
    weight = np.zeros(stream.nodes)
    half = (now - int(stream.t[0])) / 30
    np.add.at(weight, stream.dst, 0.5 ** ((now - stream.t) / half))
    active = np.argsort(-weight)[:2]  # which fill what walks leave, at least a half
    for source in np.unique(stream.src):
        found = dst[src == source]
        touching = np.flatnonzero((stream.src == source) | (stream.dst == source))
        partners = stream.src[touching] + stream.dst[touching] - source
        latest = partners[np.isin(partners, stream.dst)][-1]
        assert len(found) <= 4
        assert set(active) - {source} <= set(found)
        assert latest == source or latest in found
        assert (np.diff(probability[src == source]) <= 0).all()
    expected = predictor.predict_proba(src, dst, now, given_src=True)
    np.testing.assert_allclose(probability, expected, rtol=1e-5)


def test_a_ranking_of_few_candidates_does_not_say_that_there_are_no_others(model: Path) -> None:
    result = run("predict", model, "--src", "p1", "--rank", "9", "--candidates", "4")
    assert result.exit_code == 0
    assert "--candidates 20 ranks all" in result.stderr
    assert "there are only" not in result.stderr
    result = run("predict", model, "--src", "p1", "--rank", "90")
    assert "there are only 19 nodes" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--for-all", "--src", "p1"],
        ["--all-nodes", "--src", "p1", "--rank", "2"],
        ["--for-all", "--pairs", "-"],
        ["--for-all", "-o", "top.xlsx"],
    ],
)
def test_options_that_do_not_go_together_are_rejected(model: Path, words: list[str]) -> None:
    rejection(run("predict", model, *words))


# embeddings, report, and runs as data -------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_embeddings_are_those_of_the_model_at_the_time(
    trained: Path, tmp_path: Path, suffix: str
) -> None:
    output, when = tmp_path / f"nodes{suffix}", EARLIER[200][2]
    report = last_line(run("embeddings", trained, "--as-of", when, "-o", output, "--json"))
    assert (report["nodes"], report["t"]) == (20, when)
    expected = LinkPredictor.load(trained / "seed-0" / "model").embeddings(when)
    read = pyarrow.parquet.read_table if suffix == ".parquet" else pyarrow.csv.read_csv
    found = read(output).to_pandas().set_index("node")
    assert found.index.tolist() == expected.index.tolist()
    np.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-6)
    rejection(run("embeddings", trained))


def test_the_page_of_a_run_is_written_again(trained: Path, tmp_path: Path) -> None:
    page = trained / "report.html"
    assert not page.exists()
    assert last_line(run("report", trained, "--json"))["report"] == str(page)
    assert page.is_file()
    page.unlink()
    assert "not a run" in rejection(run("report", tmp_path))


def test_a_run_or_model_is_data_for_every_command(trained: Path, model: Path) -> None:
    span = ["--from", EARLIER[50][2], "--to", EARLIER[60][2]]
    for data in (trained, model):
        assert last_line(run("verify", data, "--steps", 20, "--samples", 1, "--json"))["holds"]
        asked = ["--node", "p1", *span, "--json"]
        assert run("explain", data, *asked).exit_code == 0
        options = ["--protocol", "tgb", "--seeds", "0", *QUICKLY, "--json"]
        assert last_line(run("evaluate", data, *options))["data"]["events"] == 400
