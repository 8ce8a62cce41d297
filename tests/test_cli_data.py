"""`tidegraph data` shows, makes and converts streams, and says what it could not do."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegraph import cli
from tidegraph.events import datasets


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGRAPH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, ["data", *map(str, arguments)])


def last_line(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return report


def test_every_command_has_help() -> None:
    for words in (
        [],
        ["list"],
        ["info"],
        ["fetch"],
        ["import"],
        ["generate"],
        ["generate", "communities"],
        ["generate", "gdelt"],
        ["generate", "mag"],
    ):
        result = run(*words, "--help")
        assert result.exit_code == 0
        assert len(result.stdout.splitlines()) > 4


def test_list_names_every_data_set_and_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reddit.csv").write_text("")
    result = run("list", "--json")
    rows = {row["name"]: row for row in last_line(result)["data_sets"]}
    assert list(rows) == list(datasets.NAMES)
    assert rows["reddit"]["files"] == [str(tmp_path / "data" / "reddit.csv")]
    assert rows["uci"]["files"] == []
    assert rows["gdelt"]["urls"][0].endswith("GDELT/edges.csv")
    for name in datasets.NAMES:
        assert name in result.stdout
    assert "shipped" in result.stdout


def test_info_tells_and_draws_in_plain_letters(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("info", "nyc-flights", "--html", page, "--json")
    report = last_line(result)
    assert (report["events"], report["nodes"], report["bipartite"]) == (328_521, 4_141, True)
    assert report["first_date"] == "2013-01-01 10:17:00"
    for words in ("328,521", "365 days", "86.5% of events repeat", "Events over time", "cite"):
        assert words in result.stdout
    pictures = result.stdout[result.stdout.index("Events over time") :]
    assert pictures.isascii()
    assert "<svg" in page.read_text()


def test_info_reads_the_columns_that_are_named(tmp_path: Path) -> None:
    source = tmp_path / "calls.csv"
    source.write_text("caller,callee,rating,when\nann,bob,-1,30\nbob,cem,2,10\n")
    words = ["info", str(source), "--src", "caller", "--dst", "callee"]
    refused = run(*words, "--time", "soon")
    assert refused.exit_code == 2
    assert "column 'soon'" in refused.stderr
    imported = run("import", *words[1:], "--time", "when", "-o", tmp_path / "calls.tide")
    assert "--sort\n" in imported.stderr
    unsorted = run(*words, "--time", "when")
    assert unsorted.exit_code == 0
    assert "1 row is earlier than the row before; all were sorted by time\n" in unsorted.stdout
    assert "ask for --sort" in unsorted.stdout
    result = run(*words, "--time", "when", "--sort", "--json")
    assert (last_line(result)["events"], last_line(result)["first"]) == (2, 10)
    assert "dst is column 'callee', as given" in result.stdout
    weighted = run(*words, "--time", "when", "--sort", "--weight", "rating")
    assert "name it by --edge-feature; --on-bad drop drops such rows" in weighted.stderr
    assert "leave out --time" in run("info", "nyc-flights", "--time", "t").stderr


def test_info_refuses_what_is_not_there(tmp_path: Path) -> None:
    for words, advice in (
        (["info", "nope"], "'nope'"),
        (["info", "uci"], "tidegraph data fetch uci"),
        (["info", "nyc-flights", "--html", "/no/such/place.html"], "not a directory"),
        (["fetch", "nyc-flights"], "nothing to fetch"),
    ):
        result = run(*words)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert advice in result.stderr


def test_import_says_what_it_understood_and_info_reads_the_result(tmp_path: Path) -> None:
    source = tmp_path / "calls.csv"
    source.write_text("caller,callee,when\nann,bob,30\nbob,cem,10\nann,cem,20\n")
    words = ["--src", "caller", "--dst", "callee", "--time", "when", "--unit", "day", "--sort"]
    result = run("import", source, "-o", tmp_path / "calls.tide", *words, "--json")
    report = last_line(result)
    assert (report["events"], report["nodes"], report["unit"]) == (3, 3, "day")
    assert (report["read"], report["kept"]) == (3, 3)
    assert "3 rows read, 3 kept" in result.stdout
    stream = datasets.load_dataset(tmp_path / "calls.tide")
    assert stream.t.tolist() == [10, 20, 30]
    assert stream.names is not None
    assert [stream.names[int(node)] for node in stream.src] == ["bob", "ann", "ann"]
    told = run("info", tmp_path / "calls.tide", "--json")
    assert last_line(told)["span"] == "20 days"
    assert told.stdout.startswith(f"{tmp_path / 'calls.tide'}: 3 events, 3 nodes\n")
    assert "rows read" not in told.stdout  # that was said when they were read
    assert "--sort" not in told.stdout


def test_an_error_proposes_options_that_can_be_copied(tmp_path: Path) -> None:
    source = tmp_path / "calls.csv"
    rows = "".join(f"x{k % 4},y{k % 5},2024-03-{k:02d}\n" for k in range(1, 21))
    source.write_text(f"wer ruft,wen,wann\n{rows}")
    refused = run("info", source)
    assert refused.exit_code == 2
    assert refused.stderr.endswith("perhaps --src 'wer ruft' --dst wen --time wann\n")
    words = shlex.split(refused.stderr.rpartition("perhaps ")[2])
    assert last_line(run("info", source, *words, "--json"))["events"] == 20
    source.write_text(re.sub("2024-03-..", "later", source.read_text()))
    without_time = run("info", source).stderr
    assert "perhaps --src 'wer ruft' --dst wen; none looks like a time" in without_time


def test_import_drops_and_counts_only_when_told_to(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("src,dst,t\n0,1,5\n1,,6\n1,0,7\n")
    refused = run("import", source, "-o", tmp_path / "a.tide")
    assert refused.exit_code == 2
    assert not (tmp_path / "a.tide").exists()
    result = run("import", source, "-o", tmp_path / "a.tide", "--on-bad", "drop", "--json")
    report = last_line(result)
    assert (report["read"], report["kept"], sum(report["dropped"].values())) == (3, 2, 1)
    assert "1 dropped" in result.stdout
    taken = run("import", source, "-o", tmp_path / "a.tide")
    assert "exists already" in taken.stderr
    both = run("import", source, "-o", tmp_path / "b.tide", "--format", "jodie", "--src", "src")
    assert both.exit_code == 2
    assert "leave out" in both.stderr


def test_communities_are_made_and_looked_at(tmp_path: Path) -> None:
    words = ["--nodes", "60", "--events", "500", "--seed", "4", "--json"]
    report = last_line(run("generate", "communities", "-o", tmp_path / "toy.tide", *words))
    assert (report["nodes"], report["seed"]) == (60, 4)
    made = datasets.load_dataset(tmp_path / "toy.tide")
    assert made.digest() == datasets.generate_communities(60, 500, seed=4).digest()
    what = last_line(run("info", tmp_path / "toy.tide", "--json"))
    assert (what["node_classes"], what["events"]) == (5, 500)
    again = run("generate", "communities", "-o", tmp_path / "toy.tide", *words)
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_large_ones_are_made_and_measured(tmp_path: Path) -> None:
    small = {
        "gdelt": ["--nodes", "200", "--events", "3000", "--pairs", "400", "--steps", "50"],
        "mag": ["--nodes", "500", "--edges", "3000", "--years", "20", "--features", "2"],
    }
    for kind, words in small.items():
        report = last_line(run("generate", kind, "-o", tmp_path / kind, *words, "--json"))
        assert report["events_per_s"] > 0
        assert report["bytes"] > 3000
        assert len(datasets.load_dataset(tmp_path / kind)) == 3000
    refused = run("generate", "gdelt", "-o", tmp_path / "other", "--pairs", "10")
    assert refused.exit_code == 2
    assert "pairs is 10; give 16,682 to" in refused.stderr


@pytest.mark.parametrize("here", ["file", "directory"])
@pytest.mark.parametrize(
    "words",
    [
        ["data", "info"],
        ["verify", "--steps", "1", "--columns", "2", "--data"],
        ["record", "-o", "out", "--columns", "2"],
    ],
    ids=lambda words: words[0],
)
def test_where_a_data_set_and_a_path_have_one_name_it_is_said_which_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], here: str
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = CliRunner().invoke(cli.main, [*words, "mag"])
    assert asked.exit_code == 2  # it is not on this machine
    assert "is taken as" not in asked.stderr
    if here == "file":
        (tmp_path / "mag").write_text("src,dst,t\n0,1,1\n1,2,2\n")
    else:
        datasets.generate_mag_like(tmp_path / "mag", nodes=40, edges=90, years=4, classes=3)
    asked = CliRunner().invoke(cli.main, [*words, "mag"])
    assert asked.exit_code == 2
    told = f"mag is taken as the name of a data set; for the {here} that lies here give ./mag"
    assert told in asked.stderr
    other = CliRunner().invoke(cli.main, [*words, "./mag"])
    assert other.exit_code == 0, other.output
    assert "is taken as" not in other.stderr


def test_a_whole_run_says_which_of_both_it_takes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mag").write_text("src,dst,t\n0,1,1\n1,2,2\n")
    asked = CliRunner().invoke(cli.main, ["run", "mag"])
    assert asked.exit_code == 2
    assert "for the file that lies here give ./mag" in asked.stderr


def test_a_path_is_never_the_name_of_a_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    datasets.generate_mag_like(tmp_path / "mag", nodes=40, edges=90, years=4, classes=3)
    assert len(datasets.load_dataset(Path("mag"))) == 90
    assert len(datasets.load_dataset("./mag")) == 90
