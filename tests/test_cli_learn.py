"""`tidegraph train`, `predict` and `evaluate`: from a CSV to predictions and numbers."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from tidegraph import EventStream, cli, evaluation
from tidegraph.cli import predict
from tidegraph.cli import train as train_command
from tidegraph.core.durable import only_writer
from tidegraph.core.errors import (
    DataError,
    ParameterError,
    PrecisionError,
    StateFileError,
    StorageError,
)
from tidegraph.core.progress import Progress
from tidegraph.events import datasets
from tidegraph.events.names import NodeNames
from tidegraph.learning.models import Pair
from tidegraph.learning.presets import preset
from tidegraph.learning.tasks import MODELS, LinkPredictor
from tidegraph.runs import Protocol, evaluate, train
from tidegraph.runs.training import unfinished
from tidegraph.runs.trials import LIVE, make_trial

QUICK = {"columns": 8, "epochs": 3, "hidden": 16, "batch_size": 256, "threads": 1}
QUICKLY = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
AWKWARD = ["--src", "Customer Name", "--dst", "Shop", "--time", "Bought At", "--sort"]
FIRST = datetime(2023, 3, 1)


def run(*words: object, text: str | None = None) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)), input=text)


def succeeded(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def rejection(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


def last_line(result: Result) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(succeeded(result).stdout.splitlines()[-1])
    return report


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Networks this small only wait for each other's threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def purchases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an unsorted file with dates, spaces, semicolons, several scripts and extra columns."""
    random = np.random.default_rng(5)
    customers = ["Ann O'Neil", "Жуков", "Dé, Li", "4711", "Eve  Roth", *map(str, range(15))]
    path = tmp_path_factory.mktemp("data") / "my purchases.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Receipt No", "Bought At", "Customer Name", "Till", "Shop", "Amount €"])
        for _ in range(600):
            customer = int(random.integers(20))
            favourite = random.random() < 0.85
            shop = (
                (customer * 7 + int(random.integers(2))) % 12 if favourite else random.integers(12)
            )
            at = FIRST + timedelta(minutes=int(random.integers(60 * 24 * 60)))
            row = [customers[customer], "a", f"shop-{shop:02d}", f"{random.random():.2f}"]
            writer.writerow([random.integers(10**6), at.isoformat(sep=" "), *row])
    return path


@pytest.fixture(scope="module")
def model(purchases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "purchases.model"
    succeeded(run("train", purchases, *AWKWARD, *QUICKLY, "-o", path))
    return path


# train --------------------------------------------------------------------------------------------


def test_train_reports_columns_scores_and_next_steps(purchases: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    result = run("train", "--data", purchases, *AWKWARD, *QUICKLY, "-o", path, "--json")
    report = last_line(result)
    assert (report["events"], report["nodes"], report["unit"]) == (600, 32, "s")
    assert report["settings"]["columns"] == 8
    assert 0.5 < report["validation"]["ap"] <= 1
    for words in (
        "src is column 'Customer Name'",
        f"Validation AP {report['validation']['ap']:.4f}",
        "heuristic",
        f"Saved in {path}",
        f"tidegraph predict {path} --src ",
    ):
        assert words in result.stdout
    assert not unfinished(path).exists()


def killed(at: str) -> Callable[..., contextlib.AbstractContextManager[Any]]:
    """Return a progress that interrupts the command when it reports these words."""

    @contextlib.contextmanager
    def progress(title: str, *, quiet: bool) -> Iterator[Progress]:
        def report(done: int, total: int, what: str) -> None:
            if at in what:
                raise KeyboardInterrupt

        yield report

    return progress


def test_an_interrupted_training_resumes_to_the_same_weights(
    purchases: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    words = ["train", purchases, *AWKWARD, *QUICKLY, "-o", path]
    for stage in ("records", "epoch 3", "saving"):
        with monkeypatch.context() as patch:
            patch.setattr(train_command, "progress", killed(stage))
            stopped = run(*words)
        assert stopped.exit_code == 130
        assert "give the same command again" in stopped.stderr
        assert not path.exists()
        assert unfinished(path).is_dir()
    assert "not finished" in rejection(run("predict", path, "--src", "4711", "--rank", "1"))
    other = run("train", purchases, *AWKWARD, *QUICKLY, "--set", "alpha=0.3", "-o", path)
    assert re.search(r"alpha 0\.2\b.*\b0\.3", rejection(other))
    assert "Resuming" in succeeded(run(*words)).stdout
    # Apart from how long each epoch took, which the header tells.
    kept, same = LinkPredictor.load(path), LinkPredictor.load(model)
    for name, tensor in kept._network.state_dict().items():
        assert (tensor == same._network.state_dict()[name]).all(), name
    assert len(kept.epochs_) == QUICK["epochs"]
    assert not unfinished(path).exists()


def test_wrong_settings_are_rejected_before_data_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for word, advice in (
        ("epoch=3", "did you mean 'epochs'?"),
        ("nonsense=3", "there is no setting 'nonsense'"),
        ("epochs=3.5", "give a whole number"),
        ("epochs=many", "give a whole number"),
        ("alpha=none", "give a number"),
        ('half_lives=["a"]', "give a list like [60,3600] or none"),
        ("half_lives=60", "give a list like [60,3600] or none"),
        ("epochs", "is not NAME=VALUE"),
        ("epochs=0", "epochs is 0; "),
        ("dropout=2", "dropout is 2; "),
        ("seed=18446744073709551615", "seed is 18446744073709551615; give a whole number from 0"),
        ("learning_rate=1e300", "learning_rate is 1e+300; give a number between 0 and 100"),
        ("hidden=100000000000", "hidden is 100000000000; give a whole number from 1 to 16384"),
        ("path=x", "decided by the run"),
    ):
        assert advice in rejection(run("train", __file__, "-o", path, "--set", word))
    assert not list(tmp_path.iterdir())  # nor an unfinished model
    listed = succeeded(run("train", "--set", "help")).stdout
    meant = dict(line.split(maxsplit=1) for line in listed.splitlines() if line.startswith("  "))
    names = {name for model in MODELS.values() for name in model().get_params()}
    assert {word.partition("=")[0] for word in meant} == names
    assert "high_pass=true" in meant  # as it may be given back


def test_train_rejects_wrong_arguments_and_data(purchases: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    for words, advice in (
        ([], "give DATA or --data"),
        ([purchases, "--data", "uci"], "give DATA or --data"),
        ([purchases], "perhaps --src 'Customer Name' --dst Shop --time 'Bought At'"),
        ([purchases, *AWKWARD[:-1]], "--sort"),
        (["absent.csv"], "'absent.csv'"),
        (["nyc-flights", "--sort"], "leave out --sort"),
        ([purchases, *AWKWARD, "--set", "path=x"], "decided by the run"),
        ([purchases, *AWKWARD, "--set", "encoder=lstn"], "lstm"),
        ([purchases, *AWKWARD, "--protocol", "time"], "give --validation-after and --test-after"),
        ([purchases, *AWKWARD, "--test-after", "9"], "belong to the protocol 'time'"),
    ):
        assert advice in rejection(run("train", *words, "-o", path))
        assert not path.exists()
        assert not unfinished(path).exists()
    for text, advice in (
        ("src,dst,t\n0,1,5\n1,2,5\n", "events at different times"),
        ("src,dst,t,op\n0,1,5,add\n0,1,6,remove\n", "stream.where"),
        ("src,dst,t\n0,1,5\n0,,6\n", "--on-bad drop"),
    ):
        (tmp_path / "few.csv").write_text(text)
        assert advice in rejection(run("train", tmp_path / "few.csv", "-o", path))
    words = ["train", purchases, *AWKWARD, *QUICKLY, "-o", path]
    assert "r_max" in rejection(run(*words, "--set", "r_max=-1"))
    succeeded(run(*words))  # rejected attempts left nothing in the way
    shutil.rmtree(path)
    path.mkdir()
    (path / "thesis.tex").write_text("")
    assert f"{path} exists" in rejection(run("train", purchases, *AWKWARD, "-o", path))
    assert (path / "thesis.tex").exists()


def test_test_events_of_a_protocol_do_not_train(tmp_path: Path) -> None:
    stream = datasets.generate_communities(40, 800, seed=2)
    split = evaluation.tgb_split(stream)
    trained = train(stream, tmp_path / "a", protocol="tgb", settings=QUICK)
    # The same past, and after the split's end another future.
    dst = stream.dst.copy()
    dst[split.test] = dst[split.test][::-1]
    changed = EventStream(stream.src, dst, stream.t, nodes=stream.nodes, unit=stream.unit)
    other = train(changed, tmp_path / "b", protocol="tgb", settings=QUICK)
    for name, tensor in trained.predictor._network.state_dict().items():
        assert (tensor == other.predictor._network.state_dict()[name]).all(), name


# predict ------------------------------------------------------------------------------------------


def test_a_pair_and_a_file_of_pairs_agree_and_a_ranking_descends(
    model: Path, tmp_path: Path
) -> None:
    ranked = cells(succeeded(run("predict", model, "--src", "Ann O'Neil", "--rank", "3")).stdout)
    assert [row["rank"] for row in ranked] == ["1", "2", "3"]
    values = [float(row["probability"]) for row in ranked]
    assert values == sorted(values, reverse=True)
    best = ranked[0]
    one = run("predict", model, "--src", "Ann O'Neil", "--dst", best["dst"])
    (answer,) = cells(succeeded(one).stdout)
    predictor = LinkPredictor.load(model)
    now = int(predictor.stream.t[-1]) + 1
    src, dst = predictor.stream.number(["Ann O'Neil", best["dst"]])
    (in_order,) = predictor.predict_proba(src, dst, now, given_src=True)
    assert values[0] == pytest.approx(float(in_order), rel=1e-4)
    asked = tmp_path / "asked.csv"
    asked.write_text(
        f'dst,note,src\n{best["dst"]},"a, b",Ann O\'Neil\nshop-03,,"Dé, Li"\n', encoding="utf-8"
    )
    answers = tmp_path / "answers.csv"
    succeeded(run("predict", model, "--pairs", asked, "-o", answers))
    rows = cells(answers.read_text(encoding="utf-8"))
    assert list(rows[0]) == ["dst", "note", "src", "probability"]
    assert [row["note"] for row in rows] == ["a, b", ""]
    assert rows[0]["probability"] == answer["probability"]
    numbers = predictor.stream.number(["Dé, Li", "shop-03"])
    expected = predictor.predict_proba(numbers[:1], numbers[1:], now)
    assert float(rows[1]["probability"]) == pytest.approx(float(expected[0]), rel=1e-4)


def test_a_date_and_its_number_are_the_same_time(model: Path) -> None:
    words = ["predict", model, "--src", "4711", "--dst", "shop-05", "--as-of"]
    number = int((datetime(2023, 4, 2, 10) - datetime(1970, 1, 1)).total_seconds())
    found = {
        cells(succeeded(run(*words, when)).stdout)[0]["probability"]
        for when in ("2023-04-02T10:00", "2023-04-02 12:00:00+02:00", "2023-04-02T10:00Z", number)
    }
    assert len(found) == 1
    rows = f"src,dst,t\n4711,shop-05,{number}\n4711,shop-05,2023-04-02T10:00\n"
    answers = cells(succeeded(run("predict", model, "--pairs", "-", text=rows)).stdout)
    assert {row["probability"] for row in answers} == found
    report = last_line(run("predict", model, "--pairs", "-", "--json", text=rows))
    assert [answer["t"] for answer in report["answers"]] == [str(number), "2023-04-02T10:00"]
    assert {f"{answer['probability']:.6g}" for answer in report["answers"]} == found
    assert "ISO" in rejection(run(*words, "2.4.2023"))
    for far in ("1999-01-01", "2099-01-01"):
        assert "expect little" in succeeded(run(*words, far)).stderr


def test_new_leaves_out_known_destinations(model: Path) -> None:
    stream = LinkPredictor.load(model).stream
    node = stream.number(["Жуков"])[0]
    met = set(map(str, stream.name(stream.dst[stream.src == node])))
    words = ["predict", model, "--src", "Жуков", "--rank", "100"]
    everything = {row["dst"] for row in cells(succeeded(run(*words)).stdout)}
    new = {row["dst"] for row in cells(succeeded(run(*words, "--new")).stdout)}
    assert met <= everything
    assert new == everything - met


def test_predict_names_what_it_cannot_answer(model: Path, tmp_path: Path) -> None:
    for words, advice in (
        (["--src", "Ann ONeil", "--rank", "3"], 'the nearest name is "Ann O\'Neil"'),
        (["--src", "4711", "--dst", "zzz"], "--dst: node 'zzz' is unknown"),
        (["--src", "4711"], "--rank K"),
        (["--dst", "shop-01"], "give --src"),
        (["--src", "4711", "--dst", "shop-01", "--rank", "2"], "for one pair"),
        (["--src", "4711", "--dst", "shop-01", "--new"], "--new belongs to --rank"),
        (["--pairs", "-", "--src", "4711"], "--pairs goes with --as-of"),
        (
            ["--src", "4711", "--rank", "1", "-o", tmp_path / "no" / "x.csv"],
            f"{tmp_path / 'no'} is not a directory",
        ),
    ):
        assert advice in rejection(run("predict", model, *words))
    for text, advice in (
        ("src|dst\n4711|shop-01\n", "has the columns src|dst; src and dst are needed"),
        ("", "at least one row is needed"),
        ("src,dst\n4711\n", "line 2 has 1 cells where 2 are expected: '4711'; fix the file"),
        ("src,dst,t\n\n4711,shop-01,soon\n", "line 3, t: the time 'soon'"),
    ):
        assert advice in rejection(run("predict", model, "--pairs", "-", text=text))
    own = run("predict", model, "--pairs", "-", text="src,dst,probability\n4711,shop-01,1\n")
    assert "column 'probability'" in rejection(own)
    text = 'src,dst\n4711,shop-01\n4711,shop-77\n"Ann\nB",x\n\n4711,shop-01\n'
    note = succeeded(run("predict", model, "--pairs", "-", text=text)).stderr
    assert "2 of 4 rows" in note
    assert "line 3: shop-77, line 4: Ann B and x)" in note
    assert "holds no model" in rejection(run("predict", tmp_path, "--src", "a", "--rank", "1"))
    nowhere = tmp_path / "nada.model"
    assert f"{nowhere} does not exist" in rejection(
        run("predict", nowhere, "--src", "a", "--rank", "1")
    )


def test_pairs_may_be_separated_by_semicolons(model: Path) -> None:
    by_commas, by_semicolons = (
        cells(succeeded(run("predict", model, "--pairs", "-", text=text)).stdout)
        for text in ("src,dst\n4711,shop-01\n", "src;dst\n4711;shop-01\n")
    )
    assert by_commas == by_semicolons


def test_a_ranking_has_numbers_in_json_and_reports_missing_ranks(model: Path) -> None:
    result = run("predict", model, "--src", "4711", "--rank", "500", "--json")
    answers = last_line(result)["answers"]
    assert [answer["rank"] for answer in answers] == list(range(1, len(answers) + 1))
    assert f"there are only {len(answers)} nodes that were destinations before" in result.stderr


def test_a_distant_time_is_shown_as_a_date(model: Path) -> None:
    result = run("predict", model, "--src", "4711", "--dst", "shop-01", "--as-of", "2031-01-01")
    assert "2031-01-01T00:00:00 UTC) is far from the events" in succeeded(result).stderr
    assert "2023-03-01T" in result.stderr


def test_distant_times_of_pairs_are_noted(model: Path, tmp_path: Path) -> None:
    last = int(LinkPredictor.load(model).stream.t[-1])

    def asked(*times: object) -> str:
        rows = [f"4711,shop-01,{t}" for t in times]
        (tmp_path / "asked.csv").write_text("\n".join(["src,dst,t", *rows]))
        return succeeded(run("predict", model, "--pairs", tmp_path / "asked.csv")).stderr

    assert "far from" not in asked(last, last + 1)
    note = asked(last, 1000 * last, 1000 * last)
    assert "2 of 3 times" in note
    assert "looks like ms since 1970" in note
    assert "far from the events" in asked("2031-01-01")
    assert "far from the events" in asked(0)


@pytest.mark.parametrize("encoding", ["latin1", "utf-16"])
def test_pairs_in_another_encoding_are_rejected_as_events_are(
    encoding: str, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes("src,dst,t\nJosé,shop-01,5\n".encode(encoding))
    error = rejection(run("predict", model, "--pairs", path))
    assert f"{path} is not UTF-8" in error
    assert f"iconv -f {encoding} -t utf-8 pairs.csv" in error
    assert error == rejection(run("train", path, "-o", tmp_path / "other"))


def test_a_long_cell_of_a_pair_is_read(model: Path) -> None:
    text = f"src,dst,note\n4711,shop-01,{'x' * 200_000}\n"
    answer = succeeded(run("predict", model, "--pairs", "-", text=text)).stdout
    assert f",{'x' * 200_000}," in answer


def test_pairs_without_rows_have_answers_without_rows(model: Path) -> None:
    result = succeeded(run("predict", model, "--pairs", "-", text="src,dst\n"))
    assert result.stdout == "src,dst,probability\n"


def test_an_id_that_lost_its_zeros_is_recognised() -> None:
    names = NodeNames(["000042", "482", "0", "x 07"])
    stream = EventStream(np.array([0, 1]), np.array([2, 3]), np.array([1, 2]), 4, names=names)
    for asked, meant in {"42": "000042", "0000482": "482", "000": "0", "x 7": "x 07"}.items():
        pairs = predict._Pairs({"src": ["482", asked, "x"]}, lambda row: f"row {row}")
        with pytest.raises(DataError, match=f"row 1, src: .* the nearest name is '{meant}'"):
            pairs.nodes("src", stream)


def test_the_same_id_may_be_a_user_and_an_item(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    lines = ["user_id,item_id,timestamp,state_label,comma_separated_list_of_features"]
    # Every user from 0 to 9 and item from 0 to 4, so that ids alone do not tell them apart.
    for second in range(200):
        lines.append(f"{second % 10},{(second % 10 + int(random.integers(2))) % 5},{second},0,0.5")
    source = tmp_path / "edits.csv"
    source.write_text("\n".join(lines) + "\n")
    path = tmp_path / "model"
    succeeded(run("train", source, *QUICKLY, "-o", path))
    rows = cells(succeeded(run("predict", path, "--src", "9", "--rank", "9")).stdout)
    assert {row["dst"] for row in rows} == set("01234")
    unknown = rejection(run("predict", path, "--src", "9", "--dst", "7"))
    assert "--dst: node 'dst 7' is unknown; the nearest name is 'dst " in unknown
    assert unknown.rstrip()[-2] in "01234"
    succeeded(run("predict", path, "--src", "9", "--dst", "4"))


# evaluate -----------------------------------------------------------------------------------------


def test_an_evaluation_has_a_number_per_seed_and_one_per_heuristic(
    purchases: Path, tmp_path: Path
) -> None:
    words = ["--sampler", "random-dst", "--sampler", "historical", "--seeds", "0,3"]
    output = tmp_path / "results.json"
    result = run(
        *("evaluate", purchases, *AWKWARD, *QUICKLY, *words),
        *("--rank-sample", "20", "-o", output, "--json"),
    )
    report = last_line(result)
    assert json.loads(output.read_text()) == report
    assert report["seeds"] == [0, 3]
    assert report["data"]["events"] == 600
    assert report["split"]["sizes"]["test"] == 90
    assert list(report["metrics"]) == ["random-dst", "historical", "all-dst"]
    for sampler in ("random-dst", "historical"):
        for part in ("all", "new"):
            for metric in ("ap", "auc"):
                value = report["metrics"][sampler][part][metric]
                assert len(value["per_seed"]) == 2
                assert value["mean"] == pytest.approx(np.mean(value["per_seed"]))
                assert value["std"] == pytest.approx(np.std(value["per_seed"], ddof=1))
                assert all(0 <= each <= 1 for each in value["per_seed"])
                for rule in report["heuristics"].values():
                    assert 0 <= rule[sampler][part][metric] <= 1
    assert {"mrr", "hits_10"} <= set(report["metrics"]["all-dst"]["all"])
    stages = dict(report["elapsed_s"])
    total = stages.pop("total")
    assert {"read", "heuristics", "record", "train", "score"} == set(stages)
    assert sum(stages.values()) <= total + 0.01
    assert "edgebank-unlimited" in result.stdout


@pytest.mark.parametrize("knowledge", ["event", "batch"])
def test_an_evaluation_agrees_with_a_predictor_fitted_by_hand(knowledge: Any) -> None:
    stream = datasets.generate_communities(40, 900, seed=4)
    split = evaluation.tgn_split(stream)
    asked = Protocol(samplers=("inductive",), knowledge=knowledge)
    report = evaluate(stream, protocol=asked, seeds=(7,), settings=QUICK)
    own = {"seed": 7, "knowledge": knowledge}
    predictor = LinkPredictor(**QUICK, **own).fit(stream, split)  # type: ignore[arg-type]
    assert report["knowledge"] == report["settings"]["knowledge"] == knowledge
    result = predictor.evaluate(split, samplers=("inductive",))
    assert result.knowledge == knowledge
    for part, name in (("test", "all"), ("new_test", "new")):
        ap = report["metrics"]["inductive"][name]["ap"]
        assert ap["per_seed"] == [result.row(part).metrics["ap"]]
        assert ap["std"] == 0
        bank = report["heuristics"]["edgebank-unlimited"]["inductive"][name]
        assert bank["ap"] == result.row(part, scorer="edgebank-unlimited").metrics["ap"]
    assert report["training_negatives"] == predictor.training_negatives


def test_a_heuristic_that_wins_is_named() -> None:
    # Who meets whom is settled from the beginning: memory is perfect, one epoch is not.
    src = np.arange(600) % 20
    stream = EventStream(src, 20 + src, np.arange(600))
    report = evaluate(
        stream,
        protocol="tgb",
        seeds=(0,),
        settings={**QUICK, "epochs": 1, "learning_rate": 1e-9},
    )
    own = report["metrics"]["random-dst"]["all"]["ap"]["mean"]
    best = max(rule["random-dst"]["all"]["ap"] for rule in report["heuristics"].values())
    assert best > own
    assert report["verdicts"][0].startswith("A heuristic is ahead under random-dst: ")
    assert f"has AP {100 * best:.2f}, the model {100 * own:.2f}" in report["verdicts"][0]
    test = report["split"]["sizes"]["test"]
    points = 100 * evaluation.noise(0.5, 0.5, test)
    assert report["warnings"][0].startswith(f"evaluated on only {test} events:")
    assert f" {points:.0f} points " in report["warnings"][0]


def test_an_unwritable_output_is_rejected_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    words = ["evaluate", "nyc-flights", "-o", tmp_path / "e.json"]
    assert "may not be written to; give another place" in rejection(run(*words))


def test_a_heuristic_that_ties_has_not_won() -> None:
    outcome = evaluation.outcome_of_heuristic
    assert outcome(0.92, 0.9) == "ahead"
    assert outcome(0.905, 0.9) == "about as good"  # one seed, and less than a point
    assert outcome(0.905, 0.9, 0.002) == "ahead"
    assert outcome(0.92, 0.9, 0.03) == "about as good"  # less than the spread over seeds
    assert outcome(0.9, 0.90001) == outcome(1.0, 1.0, 0.0) == "about as good"
    assert not outcome(0.88, 0.9)
    assert outcome(0.895, 0.9) == "about as good"  # a model's lead is doubted as a heuristic's is
    assert not outcome(0.895, 0.9, 0.002)
    assert outcome(0.88, 0.9, 0.03) == "about as good"


def test_verdicts_cover_every_sampler_and_part_and_auc_if_it_disagrees() -> None:
    def over(*values: float) -> dict[str, Any]:
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return {"mean": float(np.mean(values)), "std": spread, "per_seed": list(values)}

    metrics = {
        "random-dst": {"all": {"ap": over(0.9, 0.92), "auc": over(0.9, 0.92)}},
        "historical": {
            "all": {"ap": over(0.7, 0.72), "auc": over(0.7, 0.72)},
            "new": {"ap": over(0.6, 0.7), "auc": over(0.6, 0.61)},
        },
    }
    one = {"ap": 0.8, "auc": 0.8}
    rules = {
        "memory": {"random-dst": {"all": one}, "historical": {"all": one, "new": one}},
        "popularity": {
            "random-dst": {"all": {"ap": 0.5, "auc": 0.95}},
            "historical": {"all": {"ap": 0.5, "auc": 0.5}, "new": {"ap": 0.5, "auc": 0.9}},
        },
    }
    found = evaluation.verdicts(metrics, rules, {"random-dst": "ap", "historical": "ap"})
    assert list(map(str, found)) == [
        "The model is ahead under random-dst: AP 91.00 ± 1.41, the best heuristic (memory) 80.00.",
        "By AUC popularity is ahead under random-dst: 95.00, the model 91.00 ± 1.41.",
        "A heuristic is ahead under historical: memory has AP 80.00, the model 71.00 ± 1.41.",
        "By AUC memory is ahead under historical: 80.00, the model 71.00 ± 1.41.",
        "A heuristic is ahead under historical on new nodes: memory has AP 80.00, the model"
        " 65.00 ± 7.07.",
        "By AUC popularity is ahead under historical on new nodes: 90.00, the model 60.50 ± 0.71.",
    ]


def test_a_setting_that_is_rejected_late_leaves_no_files(tmp_path: Path) -> None:
    stream = datasets.generate_communities(20, 200)
    with pytest.raises(PrecisionError):
        train(stream, tmp_path / "model", settings={**QUICK, "r_max": 1e-30})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ParameterError, False),
        (TypeError, False),
        (OSError, True),
        (KeyboardInterrupt, True),
    ],
)
def test_a_training_leaves_behind_only_what_can_be_resumed(
    error: type[BaseException], kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error("as soon as it begins")

    stream, path = datasets.generate_communities(20, 200), tmp_path / "model"
    recorded = {**QUICK, "pair_features": ["history", "sketches"]}
    with monkeypatch.context() as patch:
        patch.setattr(LinkPredictor, "train", fail)
        with pytest.raises(error):
            train(stream, path, settings=recorded)
    assert unfinished(path).exists() == kept
    assert not path.exists()
    # A start with other settings is rejected and does not touch what can be resumed.
    if kept:
        with pytest.raises(StateFileError, match="setting alpha"):
            train(stream, path, settings={**recorded, "alpha": 0.3})
        assert unfinished(path).exists()
    train(stream, path, settings=recorded)
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_a_setting_that_cannot_be_written_is_rejected_first(tmp_path: Path) -> None:
    stream = datasets.generate_communities(20, 200)
    with pytest.raises(ParameterError, match="'seed' is"):
        train(stream, tmp_path / "model", settings={**QUICK, "seed": np.int64(3)})
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_training_killed_at_its_end_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "model"
    stream = datasets.generate_communities(20, 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            train(stream, path, settings={**QUICK, "epochs": 1})
    assert unfinished(path).exists()
    with pytest.raises(StateFileError, match=f"{path} exists"):
        train(stream, path, settings={**QUICK, "epochs": 1})
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    assert len(LinkPredictor.load(path).stream) == 300


def test_two_trainings_do_not_write_one_model(purchases: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    unfinished(path).mkdir()
    with only_writer(unfinished(path)):
        result = run("train", purchases, *AWKWARD, *QUICKLY, "-o", path)
        with pytest.raises(StorageError, match=str(unfinished(path))):
            train(datasets.generate_communities(20, 200), path, settings=QUICK)
    assert result.exit_code == 1
    assert str(unfinished(path)) in result.stderr


def test_a_custom_module_is_rejected_by_a_resumable_training(tmp_path: Path) -> None:
    stream = datasets.generate_communities(20, 200)
    with pytest.raises(ParameterError, match=r"'decoder' is .*Pair"):
        train(stream, tmp_path / "model", settings={"decoder": Pair})
    assert list(tmp_path.iterdir()) == []


def test_roland_ranks_all_nodes_from_earlier_snapshots(tmp_path: Path) -> None:
    stream = datasets.generate_communities(30, 1500, seed=1)
    hours = stream.t * 0 + np.arange(1500) // 75 * 3600  # twenty snapshots
    stream = EventStream(
        stream.src,
        stream.dst,
        hours,
        nodes=stream.nodes,
        names=NodeNames([f"n{k}" for k in range(30)]),
    )
    stream.save(tmp_path / "toy.tide")
    words = ["--snapshot-seconds", "3600", "--first-test", "15", "--seeds", "0", "--json"]
    report = last_line(
        run("evaluate", tmp_path / "toy.tide", "--protocol", "roland", *words, *QUICKLY)
    )
    assert report["split"]["sizes"] == {"snapshots": 20, "train": 13, "validation": 2, "test": 4}
    own = report["metrics"]["all-nodes"]["all"]
    assert 0 < own["mrr_1000"]["mean"] <= 1
    assert 0 < report["heuristics"]["memory"]["all-nodes"]["all"]["mrr_full"] <= 1
    # The model's own scores, asked for by hand.
    split = evaluation.roland_split(stream, width_s=3600, first_test=15)
    predictor = LinkPredictor.preset("snapshots", None, **QUICK, seed=0)
    in_steps = EventStream(stream.src, stream.dst, hours // 3600, nodes=30, unit="step")
    predictor.fit(in_steps, evaluation.time_split(in_steps, validation_time=13, test_time=15))

    def score_all(sources: Any, task: int) -> Any:
        return [
            predictor.decision_function(int(source), np.arange(30), task + 1) for source in sources
        ]

    expected = evaluation.evaluate_snapshots(score_all, stream, split, heuristics=list)
    assert own["mrr_full"]["mean"] == pytest.approx(expected.row().metrics["mrr-full"])


def test_settings_start_from_the_preset(purchases: Path, tmp_path: Path) -> None:
    changes = {"columns": 8, "epochs": 1, "threads": 1, "r_max": 0.01}
    words = [*AWKWARD, "--json"]
    for name, value in changes.items():
        words += ["--set", f"{name}={value}"]
    report = last_line(
        run("evaluate", purchases, "--preset", "paper-gru+time", "--seeds", "0", *words)
    )
    expected = {**preset("paper-gru+time"), **changes}
    assert {name: report["settings"][name] for name in expected} == json.loads(json.dumps(expected))
    trained = last_line(
        run("train", purchases, "--preset", "historical", *words, "-o", tmp_path / "model")
    )
    assert trained["settings"]["past_weight"] == preset("historical")["past_weight"]
    for wrong, advice in (("paper-rnn", "paper-transformer"), ("paper-node", "LinkPredictor")):
        assert advice in rejection(run("evaluate", purchases, *AWKWARD, "--preset", wrong))
    assert "'paper-lstm' for 'nyc-flights'" in rejection(
        run("evaluate", "nyc-flights", "--preset", "paper-lstm")
    )


def test_reversed_edges_count_as_well(tmp_path: Path) -> None:
    # Everyone writes to the next one. Only of reversed edges can the one before be the answer.
    src = np.tile(np.arange(10), 40)
    stream = EventStream(src, (src + 1) % 10, np.arange(400) // 20 * 3600, nodes=10)
    stream.save(tmp_path / "ring.tide")
    words = ["evaluate", tmp_path / "ring.tide", "--seeds", "0", "--json", *QUICKLY]
    snapshots = ["--protocol", "roland", "--snapshot-seconds", "3600", "--first-test", "15"]
    plain = last_line(run(*words, *snapshots))
    both = last_line(run(*words, *snapshots, "--reversed"))
    assert (plain["data"]["events"], both["data"]["events"]) == (400, 800)
    assert "also reversed" in both["data"]["title"]
    for report, mrr in ((plain, 1.0), (both, 0.75)):  # two answers share ranks 1 and 2, ties half
        memory = report["heuristics"]["memory"]["all-nodes"]["all"]["mrr_full"]
        assert memory == pytest.approx(mrr, abs=0.1)
    assert "belongs to --protocol roland" in rejection(run(*words, "--reversed"))


def test_live_models_learn_from_scored_snapshots(tmp_path: Path) -> None:
    src = np.tile(np.arange(10), 40)
    stream = EventStream(src, (src + 1) % 10, np.arange(400) // 20 * 3600, nodes=10)
    stream.save(tmp_path / "ring.tide")
    words = ["evaluate", tmp_path / "ring.tide", "--seeds", "0", "--json", *QUICKLY, "--live"]
    snapshots = ["--protocol", "roland", "--snapshot-seconds", "3600", "--first-test", "15"]
    shown = run(*words, *snapshots)
    assert "protocol roland+live" in " ".join(shown.output.split())
    assert last_line(shown)["live"] == LIVE
    assert "live belongs to the protocol roland" in rejection(run(*words))


def test_evaluate_rejects_wrong_arguments(purchases: Path) -> None:
    for words, advice in (
        (["--seeds", "1,1"], "each once"),
        (["--set", "epochs=0"], "epochs is 0"),
        (["--protocol", "roland"], "needs --snapshot-seconds"),
        (["--protocol", "time"], "give --validation-after"),
    ):  # before anything is read
        assert advice in rejection(run("evaluate", __file__, *words))
    for words, advice in (
        (["--seeds", "a,b"], "separated by commas"),
        (["--seeds", "1,1"], "each once"),
        (["--set", "seed=4"], "decided by the run"),
        (["--set", "path=here"], "decided by the run"),
        (["--protocol", "roland"], "needs --snapshot-seconds"),
        (["--protocol", "roland", "--sampler", "historical"], "ranks all nodes"),
        (["--protocol", "time"], "give --validation-after and --test-after"),
        (
            ["--protocol", "time", "--validation-after", "soon", "--test-after", "9"],
            "the time 'soon'",
        ),
    ):
        assert advice in rejection(run("evaluate", purchases, *AWKWARD, *words))
    with pytest.raises(ParameterError, match="protocol is 'tgx'"):
        evaluate(datasets.generate_communities(20, 100), protocol="tgx")


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ({"name": "tgx"}, "give one of tgn, tgb, time, roland"),
        ({"task": "edge"}, "give one of link, node, events"),
        ({"name": "roland", "task": "node"}, "is about links"),
        ({"name": "roland", "rank": True}, "ranks all nodes"),
        ({"task": "node", "rank_sample": 5}, "has no negatives"),
        ({"knowledge": "all"}, "knowledge is 'all'; give event or batch"),
        ({"name": "roland", "knowledge": "batch"}, "snapshot by snapshot"),
        ({"task": "events", "knowledge": "batch"}, "leave it out"),
        ({"name": "time", "test_after": 9}, "give validation_after and test_after"),
        ({"name": "tgb", "test_after": 9}, "belong to the protocol 'time'"),
    ],
)
def test_a_protocol_rejects_conflicting_settings(words: dict[str, Any], advice: str) -> None:
    with pytest.raises(ParameterError, match=advice):
        Protocol(**words)


def test_a_protocol_divides_at_dates_as_at_their_numbers() -> None:
    src = np.arange(600) % 20
    stream = EventStream(src, 20 + src, 1_700_000_000 + np.arange(600), unit="s")
    times = [int(np.quantile(stream.t, share)) for share in (0.6, 0.8)]
    dates = [str(np.datetime64(time, "s")) for time in times]
    by_number, by_date = (
        make_trial(stream, Protocol("time", validation_after=first, test_after=last)).training
        for first, last in (times, dates)
    )
    assert len(by_number.validation)
    assert np.array_equal(by_number.validation, by_date.validation)
    assert np.array_equal(by_number.test, by_date.test)


def test_a_foreign_directory_is_not_an_unfinished_training(tmp_path: Path) -> None:
    path = tmp_path / "model"
    unfinished(path).mkdir()
    (unfinished(path) / "letters").mkdir()
    stream = datasets.generate_communities(20, 200)
    with pytest.raises(StateFileError, match="letters; give an empty or a new directory"):
        train(stream, path, settings=QUICK)
    shutil.rmtree(unfinished(path))
    with pytest.raises(StateFileError, match=f"{tmp_path / 'no'} is not a directory"):
        train(stream, tmp_path / "no" / "model", settings=QUICK)
