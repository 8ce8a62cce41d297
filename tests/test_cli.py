"""The command line helps, answers at once, and fails with one line that says what to do."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tidegraph
from tidegraph import bench, cli
from tidegraph.cli import flights, terminal
from tidegraph.cli.terminal import failure
from tidegraph.core import display
from tidegraph.engine import verify
from tidegraph.events import datasets

VERIFY = ["verify", "--columns", "8", "--steps", "40", "--samples", "2"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, arguments)


def last_line(result: Result) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return report


def rejection(result: Result) -> str:
    """Return the error of a rejected command: one line on standard error, and nothing else."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def events_file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 12, (120, 2))
    t = np.sort(rng.integers(0, 400, 120))
    rows = [f"{u},{v},{when},{0.5 + u}" for (u, v), when in zip(ends, t, strict=True)]
    path = tmp_path / "events.csv"
    path.write_text("\n".join(["src,dst,t,weight", *rows]) + "\n")
    return path


# The front door -----------------------------------------------------------------------------------


def test_help_names_every_command_and_shows_how_to_start() -> None:
    text = run("--help").stdout
    for name in ("demo", "verify", "bench", "tidegraph demo", "Propagator("):
        assert name in text
    for words in (["verify"], ["bench"], ["bench", "propagation"], ["demo"]):
        assert run(*words, "--help").exit_code == 0


def test_help_starts_fast_and_imports_nothing_heavy() -> None:
    heavy = ["matplotlib", "pyarrow", "rich", "scipy", "torch", "tidegraph.engine"]
    code = (
        "import sys; from tidegraph import cli; cli.main(['--help'], standalone_mode=False);"
        f" print('imported:', *sorted(sys.modules.keys() & set({heavy})))"
    )
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        times.append(time.perf_counter() - start)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "imported:"
    assert min(times) < 1.5  # 0.3 s when nothing else runs


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert version("tidegraph") in run("--version").stdout


# verify -------------------------------------------------------------------------------------------


def test_verify_ends_with_one_json_object() -> None:
    result = run(*VERIFY, "--data", "nyc-flights", "--json", "--seed", "5")
    assert result.exit_code == 0, result.output
    report = last_line(result)
    assert 0 < report["worst_error_over_bound"] <= 1
    assert 0 < report["worst_error_over_threshold"] <= 1 + report["drift"]
    assert 0 <= report["drift"] < 0.01
    assert report["steps"] == 40
    assert report["events"] > 40
    assert report["events_per_s"] > 0
    settings = {"data": "nyc-flights", "columns": 8, "r_max": 0.01, "seed": 5, "dtype": "float32"}
    assert settings.items() <= report.items()
    assert "It holds" in result.stdout


def test_verify_reads_files_with_weights_decay_and_snapshots(events_file: Path) -> None:
    options = [
        "--half-life",
        "25",
        "--snapshot-seconds",
        "20",
        "--dtype",
        "float64",
        "--r-max",
        "1e-6",
    ]
    result = run(*VERIFY, "--data", str(events_file), *options, "--json")
    assert result.exit_code == 0, result.output
    report = last_line(result)
    assert report["steps"] <= 20  # what the file has, not what was asked for
    assert report["events"] == 120
    assert report["half_life"] == 25


def test_verify_fails_if_the_bound_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    def another_solution(propagator: tidegraph.Propagator) -> Any:
        return propagator.embedding() + 1.0

    monkeypatch.setattr(verify, "exact_of", another_solution)
    result = run(*VERIFY, "--json")
    assert result.exit_code == 1
    assert "does not hold" in result.stdout
    assert last_line(result)["holds"] is False


def test_a_sample_holds_within_bound_and_threshold_whatever_drifted() -> None:
    def holds(bound: float, threshold: float, drift: float) -> bool:
        return verify.Sample(1, 1, 1.0, bound, threshold, drift).holds

    assert holds(1.0, 1.0, 0.0)
    assert not holds(0.9, 1.001, 0.002)
    assert not holds(1.001, 0.5, 0.5)


def test_verify_reads_the_columns_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    path.write_text("a,b,when\n" + "".join(f"{k % 7},{k % 5},{k}\n" for k in range(60, 0, -1)))
    words = ["--data", str(path), "--src", "a", "--dst", "b", "--time", "when"]
    assert "--sort" in rejection(run(*VERIFY, *words))
    result = run(*VERIFY, *words, "--sort", "--json")
    assert result.exit_code == 0
    assert "src is column 'a', as given" in result.stdout
    assert "At 1.0000 the worst number would be as far off as it may be" in result.stdout
    assert json.loads(result.stdout.splitlines()[-1])["holds"]


def test_steps_cover_all_rows_and_no_step_is_empty() -> None:
    t = np.array([-7, -7, -1, 0, 4, 4, 9])
    stream = tidegraph.EventStream([0] * 7, [1] * 7, t)
    assert stream.steps().offsets.tolist() == [0, 2, 3, 4, 6, 7]
    assert stream.snapshots(5).offsets.tolist() == [0, 2, 3, 6, 7]
    assert stream[:0].steps().offsets.tolist() == [0]
    with pytest.raises(tidegraph.ParameterError, match="every is 0"):
        stream.snapshots(0)


def test_samples_are_spread_and_include_the_end() -> None:
    assert verify.sampled(100, 4) == [25, 50, 75, 100]
    assert verify.sampled(3, 8) == [1, 2, 3]
    assert verify.sampled(7, 1) == [7]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--data", "no-such-data"], "nyc-flights"),
        (["--r-max", "0"], "--r-max is 0.0"),
        (["--r-max", "1e-9"], "float64"),
        (["--alpha", "1"], "alpha"),
        (["--half-life", "-1"], "--half-life is -1.0"),
    ],
)
def test_wrong_options_end_verify_with_one_line(options: list[str], advice: str) -> None:
    assert advice in rejection(run(*VERIFY, *options))


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "permission denied; give another place"),
        (errno.EROFS, "the file system is read-only; give another place"),
        (errno.ENOSPC, "the disk is full; make room"),
        (errno.ENOTDIR, "part of this path is a file"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        ["run", "{events}", "--out", "{denied}", "--set", "columns=2", "--set", "epochs=1"],
        ["train", "{events}", "-o", "{denied}/model"],
        ["data", "import", "{events}", "-o", "{denied}/events.tide"],
        ["data", "info", "{events}", "--html", "{denied}/page.html"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_unwritable_path_ends_a_command_with_one_line(
    words: list[str], number: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied, events = tmp_path / "denied", tmp_path / "events.csv"
    rows = "".join(f"{k % 7},{k % 5 + 7},{k}\n" for k in range(200))
    events.write_text(f"src,dst,t\n{rows}")
    denied.mkdir()

    def denying(does: Any, *, always: bool) -> Any:
        def wrapped(path: Any, *arguments: Any, **options: Any) -> Any:
            writes = always or any(letter in str(arguments[:1]) for letter in "wx")
            if writes and str(path).startswith(f"{denied}/"):
                raise OSError(number, os.strerror(number), str(path))
            return does(path, *arguments, **options)

        return wrapped

    monkeypatch.setattr(os, "mkdir", denying(os.mkdir, always=True))
    for name in ("io.open", "builtins.open"):
        monkeypatch.setattr(name, denying(io.open, always=False))
    result = run(*(word.format(events=events, denied=denied) for word in words))
    assert result.exit_code == 1, result.output
    assert str(denied) in result.stderr
    assert advice in result.stderr or number == errno.ENOSPC  # what is intact is said instead
    assert "make room" in result.stderr or number != errno.ENOSPC
    assert "Traceback" not in result.output
    assert list(denied.iterdir()) == []


def test_an_error_of_another_kind_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(FileNotFoundError(errno.ENOENT, "gone", "x")) is None
    assert failure(OSError("without a number")) is None


def test_control_c_ends_a_command_with_130_and_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "exact_of", interrupted)
    result = run(*VERIFY)
    assert result.exit_code == 130
    assert "Stopped" in result.stderr
    assert "again" in result.stderr


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_scipy(propagator: object) -> None:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy.sparse")

    monkeypatch.setattr(verify, "exact_of", no_scipy)
    assert "needs scipy" in rejection(run(*VERIFY))


# bench and demo -----------------------------------------------------------------------------------


def test_the_help_of_bench_lists_its_sections() -> None:
    text = run("bench", "propagation", "--help").stdout
    assert all(f"  {name} " in text for name in bench.SECTIONS)


def test_bench_prints_a_table_and_ends_with_json(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    words = ["bench", "propagation", "--only", "growth", "--repeat", "1", "--scale", "0.001"]
    result = run(*words, "--json", "--output", str(output))
    assert result.exit_code == 0, result.output
    report = last_line(result)
    assert len(report["growth"]) == 3
    assert report["command"] == "tidegraph " + " ".join(words)
    assert {"details", "machine", "version", "commit", "seeds", "skipped"} <= set(report)
    assert "load average" in result.stdout
    assert "Skipped uci" in result.stdout
    assert json.loads(output.read_text()) == report


def test_bench_rejects_an_output_it_could_not_write() -> None:
    result = run("bench", "propagation", "--only", "growth", "--output", "/no/such/place/r.json")
    assert result.exit_code == 2
    assert "not a directory" in result.stderr


def test_bench_exits_with_1_if_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegraph.bench import measuring

    monkeypatch.setattr(measuring, "_PROMISE", 1e-9)
    result = run("bench", "propagation", "--only", "growth", "--scale", "0.001", "--json")
    assert result.exit_code == 1
    assert "promised" in last_line(result)["failed"]["growth"]


def test_demo_shows_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = datasets.load_dataset(flights.DATA)
    rows = np.r_[0:1500, len(whole) - 300 : len(whole)]  # a piece of January, a piece of December
    cut = whole.where(np.isin(np.arange(len(whole)), rows))
    monkeypatch.setattr(datasets, "load_dataset", lambda name: cut)
    result = run("demo")
    assert result.exit_code == 0, result.output
    for words in ("1,800 events", "events/s", "2013-01", "2013-12", "certified", "airport"):
        assert words in result.stdout
    story = flights.stream_flights()
    for month in story.months:
        assert 0 < max(month.certified_over_promised) < 1.01
    assert len(story.movers) == 10
    kinds = {mover.name: mover.kind for mover in story.movers}
    assert {len(name) for name, kind in kinds.items() if kind == "airport"} == {3}
    assert {name[0] for name, kind in kinds.items() if kind == "plane"} == {"N"}


# Progress -----------------------------------------------------------------------------------------


def test_progress_is_shown_on_standard_error_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display, "_QUIET_S", 0.001)
    monkeypatch.setattr(display, "_LINE_EVERY_S", 0.001)
    deadline = time.monotonic() + 20
    text = ""
    with terminal.progress("work") as report:
        report(3, 7, "something")
        while "3 of 7, something" not in text and time.monotonic() < deadline:
            text += capsys.readouterr().err
    assert "work: 3 of 7, something" in text
    assert capsys.readouterr().out == ""


def test_the_time_left_follows_the_pace_of_the_current_stage() -> None:
    pace = display._Pace()
    assert pace.left_s(1.0) is None
    pace.update(40, 100, 10.0)  # a run that goes on: these 40 cost nothing now
    assert pace.left_s(12.0) is None
    pace.update(60, 100, 14.0)
    assert pace.left_s(14.0) == pytest.approx(40 * 4 / 20)
    pace.update(0, 5, 20.0)  # the next stage
    assert pace.left_s(25.0) is None
    pace.update(1, 5, 30.0)
    assert pace.left_s(30.0) == pytest.approx(40)


def test_progress_is_silent_for_short_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with terminal.progress("work") as report:
        report(1, 1, "something")
    assert capsys.readouterr().err == ""


def test_a_progress_bar_accepts_reports() -> None:
    with display._bar("work") as report:
        report(1, 2, "half")
        report(2, 2, "all")
