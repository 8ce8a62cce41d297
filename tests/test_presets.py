"""Settings by name, compared with the paper's tables where the paper is at hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegraph import LinkPredictor, NodeClassifier, evaluation, generate_communities
from tidegraph.core.errors import ParameterError
from tidegraph.events import datasets
from tidegraph.learning.presets import LINK_PRESETS, NODE_PRESETS, preset
from tidegraph.reproduce import data as reproduced

PAPER = Path("../shared/paper/decoupled-gnn-for-large-dynamic-graphs.tex")
NAMES = {"UCI-Message": "uci"}  # where ours is not the paper's in small letters


def table(label: str) -> dict[str, dict[str, float]]:
    """Rows of one of the paper's tables of hyper-parameters."""
    if not PAPER.exists():
        pytest.skip(f"{PAPER} is not there")
    text = PAPER.read_text(encoding="utf-8")
    body = text[text.index(f"\\label{{{label}}}") :].partition("\\end{table}")[0]
    columns = ("alpha", "beta", "r_max", "dropout", "hidden", "batch_size", "learning_rate")
    found = {}
    for name, cells in re.findall(r"^([A-Z][\w-]+) +&(.+?)\\\\", body, flags=re.MULTILINE):
        power = re.sub(r"\$(\d+) \\times 10\^\{(-\d+)\}\$", r"\1e\2", cells)
        values = [float(cell) for cell in power.split("&")]
        found[NAMES.get(name, name.lower())] = dict(zip(columns, values, strict=True))
    return found


def read(settings: dict[str, Any], names: Any) -> dict[str, Any]:
    return {name: settings[name] for name in names}


@pytest.mark.parametrize("encoder", ["lstm", "gru", "transformer"])
def test_settings_for_links_are_those_of_the_paper(encoder: str) -> None:
    rows = table("tab:parameter_link")
    assert len(rows) == 5
    for data, row in rows.items():
        settings = preset(f"paper-{encoder}", data)
        assert read(settings, row) == row
        assert settings["encoder"] == encoder
        assert settings["width"] == row["hidden"]


def test_settings_for_nodes_are_those_of_the_paper() -> None:
    rows = table("tab:parameter_node")
    assert len(rows) == 4
    for data, row in rows.items():
        assert read(preset("paper-node", data), row) == row


@pytest.mark.parametrize("name", LINK_PRESETS)
@pytest.mark.parametrize("data", [None, "wikipedia", "bitcoin-otc"])
def test_every_preset_for_links_makes_a_predictor(name: str, data: str | None) -> None:
    model = LinkPredictor.preset(name, data, seed=9)
    assert model.seed == 9
    settings = preset(name, data)
    assert read(model.get_params(), settings) == settings


@pytest.mark.parametrize("name", NODE_PRESETS)
def test_every_preset_for_nodes_makes_a_classifier(name: str) -> None:
    model = NodeClassifier.preset(name, "wikipedia", seed=9)
    assert model.seed == 9
    assert read(model.get_params(), preset(name)) == preset(name)


def test_the_default_is_the_default() -> None:
    assert LinkPredictor.preset("default").get_params() == LinkPredictor().get_params()
    assert NodeClassifier.preset("node").get_params() == NodeClassifier().get_params()
    assert NodeClassifier.preset("node", "pubmed-temporal").ask_after == 1


def test_high_pass_filters_are_where_the_paper_has_them_unless_set_otherwise() -> None:
    assert not preset("paper-lstm", "wikipedia")["high_pass"]
    assert preset("paper-lstm", "uci")["high_pass"]
    assert preset("paper-lstm+high-pass", "wikipedia")["high_pass"]
    assert not preset("paper-lstm-high-pass", "uci")["high_pass"]


@pytest.mark.parametrize("data", ["uci", "bitcoin-alpha", "bitcoin-otc"])
def test_the_first_19_snapshots_do_not_train_the_papers_settings(data: str) -> None:
    known = datasets.DATA_SETS[data]
    if datasets.find(known) is None:
        pytest.skip(f"{data} is not here")
    trial = reproduced.trial(data, "roland", fast=False)
    late = (trial.events.t[trial.training.train] >= 19).sum()  # counted from 0
    assert preset("paper-lstm", data)["max_examples"] == late


def test_times_are_encoded_where_wanted() -> None:
    for name, expected in (
        ("", False),
        ("+time", True),
        ("-time", False),
        ("-high-pass+time", True),
    ):
        options = preset(f"paper-gru{name}", "uci")["encoder_options"]
        assert options["time_encoding"] is expected
    assert preset("paper-transformer")["encoder_options"]["heads"] == 4


@pytest.mark.parametrize(
    "name", ["paper", "paper-rnn", "paper-lstm+wings", "paper-lstm+time-time", "+time", ""]
)
def test_an_unknown_preset_is_rejected_with_those_there_are(name: str) -> None:
    with pytest.raises(ParameterError, match="paper-transformer"):
        preset(name)


def test_a_preset_without_variants_or_data_says_so() -> None:
    with pytest.raises(ParameterError, match="no variants"):
        preset("default+time")
    with pytest.raises(ParameterError, match=r"'gdelt'.*wikipedia, reddit, uci"):
        preset("paper-lstm", "gdelt")
    with pytest.raises(ParameterError, match=r"'uci'.*gdelt, mag"):
        preset("paper-node", "uci")


def test_a_preset_of_another_task_is_rejected() -> None:
    with pytest.raises(ParameterError, match="no preset of NodeClassifier"):
        NodeClassifier.preset("paper-lstm")
    with pytest.raises(ParameterError, match="no preset of LinkPredictor"):
        LinkPredictor.preset("paper-node")


def test_the_papers_settings_run() -> None:
    stream = generate_communities(nodes=120, events=900, communities=2, seed=2)
    split = evaluation.tgb_split(stream)
    small: dict[str, Any] = {"epochs": 1, "threads": 1}
    link = LinkPredictor.preset("paper-transformer+time", "uci", **small).fit(stream, split)
    assert np.isfinite(link.decision_function(stream.src[:5], stream.dst[:5], stream.t[-5:])).all()
    node = NodeClassifier.preset("paper-node", "wikipedia", **small).fit(stream, split)
    assert node.predict_proba(stream.src[:5], stream.t[-5:]).shape == (5, 2)
