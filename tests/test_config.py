"""Settings are typed, named once, and come back from their file as they went."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tidegraph import evaluation
from tidegraph.core.errors import ParameterError
from tidegraph.learning.tasks import LinkPredictor, NodeClassifier
from tidegraph.runs import config, protocol
from tidegraph.runs.config import Data, Evaluation, Settings, assignments, settle

UCI = {"data": {"name": "uci"}}


def from_text(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "given.toml"
    path.write_text(text, encoding="utf-8")
    return settle(config.read(path))


def test_everything_but_the_data_has_a_default() -> None:
    settings = settle(UCI)
    assert settings.task == "link"
    assert settings.seeds == (0,)
    assert settings.evaluation == Evaluation()
    own = LinkPredictor().get_params()
    assert settings.model == {
        key: value for key, value in own.items() if key not in ("seed", "path")
    }
    with pytest.raises(ParameterError, match="no data is named"):
        settle({"task": "node"})


def test_what_is_written_out_is_what_there_is() -> None:
    hints = config._hints("evaluation", "link")
    assert get_args(hints["protocol"]) == protocol.PROTOCOLS
    several, _ = get_args(hints["samplers"])
    samplers = get_args(get_args(several)[0])
    assert sorted(samplers) == sorted(name for name in evaluation.SAMPLERS if name != "given")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("sead = [1]", "no setting 'sead'; did you mean 'seeds'?"),
        ("[model]\nepoch = 3", "no setting 'model.epoch'; did you mean 'model.epochs'?"),
        ("[data]\nprotocol = 'tgn'", "did you mean 'evaluation.protocol'?"),
        ("[modell]\nepochs = 3", "no setting 'modell'; did you mean 'model'?"),
        ("[model]\nmembers = 3", "no setting 'model.members'"),  # of NodeClassifier
        ("[model]\nseed = 3", "'model.seed' is decided by the run"),
        ("model = 3", "it is a section: write [model]"),
        ("task = 'edges'", "the setting task is 'edges'; give one of link, node"),
        ("seeds = 3", "the setting seeds is '3'; give a list like [0, 1, 2]"),
        ("seeds = [1, 1]", "each once"),
        ("seeds = []", "give at least one"),
        ("seeds = [-1]", "none below 0"),
        ("keep = 'yes'", "give true or false"),
        ("[model]\nepochs = 3.5", "the setting model.epochs is '3.5'; give a whole number"),
        ("[model]\nepochs = true", "give a whole number"),
        ("[model]\nalpha = 'much'", "give a number"),
        ("[model]\nencoder = 3", "give a word or none"),
        ("[model]\nhalf_lives = ['a']", "give a list like [60,3600] or none"),
        ("[model]\nr_max_unit = 'l3'", "give one of "),
        ("[model]\ndropout = 2", "dropout is 2"),
        ("[evaluation]\nsamplers = ['random']", "give a list of random-dst, "),
        ("preset = 'nothing'", "there is no preset 'nothing'"),
        ("preset = 'node'", "no preset of LinkPredictor"),
        ("task = ", "is not TOML"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(
    text: str, advice: str, tmp_path: Path
) -> None:
    whole = text if "[data]" in text else f"{text}\n[data]\n"
    with pytest.raises(ParameterError) as refused:
        from_text(tmp_path, whole.replace("[data]\n", "[data]\nname = 'uci'\n"))
    assert advice in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"cannot read .*nowhere\.toml"):
        config.read(tmp_path / "nowhere.toml")


def test_later_layers_override_earlier_ones_setting_by_setting() -> None:
    file = {"seeds": [4, 5], "model": {"epochs": 3, "columns": 16}, **UCI}
    options = {"model": {"epochs": 7}}
    words = assignments(["model.columns=8", "seeds=1,2", "evaluation.rank=true"])
    settings = settle(file, options, words)
    assert settings.seeds == (1, 2)
    assert (settings.model["epochs"], settings.model["columns"]) == (7, 8)
    assert settings.evaluation.rank
    assert settings.data.name == "uci"


def test_a_preset_lies_below_what_is_given() -> None:
    settings = settle(UCI, {"preset": "paper-gru", "model": {"hidden": 32}})
    assert settings.model["encoder"] == "gru"
    assert settings.model["hidden"] == 32  # 64 in the preset
    assert settings.model["learning_rate"] == 1e-3  # the paper's for UCI
    own = settle({"data": {"name": "my.csv"}, "preset": "paper-gru"}).model
    assert own["learning_rate"] == 1e-4  # the paper's for Wikipedia, as it has none for my.csv
    assert settle(UCI, {"evaluation": {"protocol": "roland"}}).model["any_node"]


def test_another_preset_or_task_begins_the_model_anew() -> None:
    kept = settle(UCI, {"model": {"hidden": 32}}).to_dict()  # as a config.toml has it: all settings
    assert settle(kept, {"preset": "paper-gru"}).model["encoder"] == "gru"
    assert settle(kept, {"preset": "paper-gru", "model": {"hidden": 7}}).model["hidden"] == 7
    assert settle(kept, {"task": "node"}).model["members"] == NodeClassifier().members
    assert settle(kept, {"task": "link", "seeds": [3]}).model["hidden"] == 32


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ({}, {"task": "link"}),
        ({}, {"preset": "default"}),
        ({"preset": "none"}, {"preset": "default"}),
        ({"evaluation": {"protocol": "roland"}}, {"preset": "snapshots"}),
        ({"task": "node"}, {"task": "node", "preset": "node"}),
    ],
)
def test_naming_what_holds_anyway_changes_nothing(
    file: dict[str, Any], options: dict[str, Any]
) -> None:
    both = {**UCI, **file, "model": {"epochs": 4}}
    assert settle(both, options).model == settle(both).model
    assert settle(both, options).model["epochs"] == 4


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ({}, {"evaluation": {"protocol": "roland"}}),
        ({"evaluation": {"protocol": "roland"}}, {"evaluation": {"protocol": "tgn"}}),
        ({"preset": "paper-lstm", "data": {"name": "wikipedia"}}, {"data": {"name": "uci"}}),
        ({"task": "node", "data": {"name": "pubmed-temporal"}}, {"data": {"name": "wikipedia"}}),
    ],
)
def test_a_kept_file_says_what_was_given_and_the_rest_follows_anew(
    before: dict[str, Any], then: dict[str, Any]
) -> None:
    own = {"model": {"epochs": 3, "dropout": 0.3}}
    kept = config.parse(settle(UCI, before, own).to_toml())
    assert settle(kept, then).model == settle(UCI, before, own, then).model
    assert settle(kept, then).model != settle(kept).model
    assert settle(kept, then).given == own["model"]


def test_a_file_shows_all_settings_and_sets_those_that_were_given() -> None:
    settings = settle(UCI, {"model": {"epochs": 3}})
    lines = settings.to_toml().splitlines()
    assert "epochs = 3" in lines
    for name in settings.model.keys() - {"epochs"}:
        assert any(line.startswith(f"# {name} = ") for line in lines), name
    with pytest.raises(ParameterError, match="no setting 'given'"):
        settle(UCI, {"given": {}})


def test_the_task_decides_on_the_model() -> None:
    words = assignments(["task=node", "members=2"])
    settings = settle(UCI, words)
    assert settings.model["members"] == 2
    assert settings.model["balance"] == NodeClassifier().balance
    assert "random_negatives" not in settings.model


@pytest.mark.parametrize(
    ("word", "section", "name", "value"),
    [
        ("epochs=4", "model", "epochs", 4),
        ("model.half_lives=[60, 3600]", "model", "half_lives", [60.0, 3600.0]),
        ("half_lives=none", "model", "half_lives", None),
        ('encoder_options={"layers": 2}', "model", "encoder_options", {"layers": 2}),
        ("learning_rate=1", "model", "learning_rate", 1.0),
        ("samplers=random-dst,inductive", "evaluation", "samplers", ("random-dst", "inductive")),
        ("samplers=historical", "evaluation", "samplers", ("historical",)),
        ("validation_after=2024-05-01", "evaluation", "validation_after", "2024-05-01"),
        ("test_after=77", "evaluation", "test_after", 77),
        ("src=7", "data", "src", "7"),
        ("html=false", "report", "html", False),
    ],
)
def test_a_word_sets_a_value_of_the_right_type(
    word: str, section: str, name: str, value: Any
) -> None:
    found = assignments([word])
    assert found == {section: {name: value}}
    assert type(found[section][name]) is type(value)


@pytest.mark.parametrize("word", ["epochs", "=3", "model.=3", "model=3", "model.data.name=x"])
def test_a_word_that_sets_nothing_is_refused(word: str) -> None:
    with pytest.raises(ParameterError, match=r"is not KEY=VALUE|there is no setting"):
        assignments([word])


plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@examples(deadline=None, max_examples=50)
@given(name=plain, src=st.none() | plain, key=plain, number=st.floats(allow_nan=False))
def test_settings_come_back_from_toml_as_they_were(
    name: str, src: str | None, key: str, number: float
) -> None:
    if src == "none":
        src = None  # the one word that has a meaning
    given = settle(UCI, {"model": {"half_lives": [1e-7, 3.0], "encoder": "lstm"}})
    options = {"encoder_options": {key: number, "layers": 2}}
    settings = dataclasses.replace(
        given,
        data=Data(name=name, src=src, edge_features=("a", key)),
        model={**given.model, **options},
        given={**given.given, **options},
    )
    again = settle(config.parse(settings.to_toml()))
    assert again.to_dict() == settings.to_dict()
    assert config.differences(settings, again) == []


def test_only_settings_that_may_change_a_number_make_a_difference() -> None:
    one = settle(UCI)
    other = settle(
        UCI, assignments(["threads=1", "keep=true", "html=false", "epochs=3", "seeds=0,1"])
    )
    assert sorted(config.differences(one, other)) == ["model.epochs", "seeds"]
