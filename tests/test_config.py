"""Settings are typed, named once, and come back from their file as they went."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tidegraph.core.errors import ParameterError
from tidegraph.learning.settings import Data, Evaluation
from tidegraph.learning.tasks import LinkPredictor, NodeClassifier
from tidegraph.runs import config
from tidegraph.runs.config import Settings, assignments, resolve

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

UCI = {"data": {"name": "uci"}}


def from_text(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "given.toml"
    path.write_text(text, encoding="utf-8")
    return resolve(config.read(path))


def test_everything_but_the_data_has_a_default() -> None:
    settings = resolve(UCI)
    assert settings.task == "link"
    assert settings.seeds == (0,)
    assert settings.evaluation == Evaluation()
    own = LinkPredictor().get_params()
    assert settings.model == {
        key: value for key, value in own.items() if key not in ("seed", "path", "knowledge")
    }
    nodes = NodeClassifier().get_params()
    assert resolve(UCI, {"task": "node"}).model.items() <= nodes.items()
    with pytest.raises(ParameterError, match="no data is named"):
        resolve({"task": "node"})


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("sead = [1]", "'sead' 'seeds'"),
        ("[model]\nepoch = 3", "'model.epoch' 'model.epochs'"),
        ("[data]\nprotocol = 'tgn'", "'data.protocol' 'evaluation.protocol'"),
        ("[modell]\nepochs = 3", "'modell' 'model'"),
        ("[model]\nmembers = 3", "'model.members'"),  # of NodeClassifier
        ("[model]\nseed = 3", "run 'model.seed'"),
        ("model = 3", "[model]"),
        ("task = 'edges'", "task 'edges' link node"),
        ("seeds = 3", "seeds 3 [0, 1, 2]"),
        ("seeds = [1, 1]", "[1, 1] once"),
        ("seeds = []", "[] one"),
        ("seeds = [-1]", "[-1] 0"),
        ("keep = 'yes'", "'yes' true false"),
        ("[model]\nepochs = 3.5", "model.epochs 3.5 whole 1"),
        ("[model]\nepochs = 0", "model.epochs 0 whole 1"),
        ("[model]\nepochs = true", "model.epochs True whole"),
        ("[model]\nalpha = 'much'", "'much' number 0 1"),
        ("[model]\nencoder = 3", "3 lstm none"),
        ("[model]\nencoder = 'rnn'", "'rnn' state lstm gru transformer none"),
        ("[model]\nhalf_lives = ['a']", "['a'] [60,3600] none"),
        ("[model]\nr_max_unit = 'l3'", "'l3' rms absolute l1"),
        ("[model]\ndropout = 2", "dropout 2 0 1"),
        ("[evaluation]\nsamplers = ['random']", "['random'] random-dst"),
        ("preset = 'nothing'", "'nothing' historical"),
        ("preset = 'node'", "'node' LinkPredictor historical"),
        ("task = ", "TOML"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(text: str, facts: str, tmp_path: Path) -> None:
    whole = text if "[data]" in text else f"{text}\n[data]\n"
    with pytest.raises(ParameterError) as caught:
        from_text(tmp_path, whole.replace("[data]\n", "[data]\nname = 'uci'\n"))
    assert all(fact in str(caught.value) for fact in facts.split()), caught.value


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"cannot read .*nowhere\.toml"):
        config.read(tmp_path / "nowhere.toml")


def test_later_layers_override_earlier_ones_setting_by_setting() -> None:
    file = {"seeds": [4, 5], "model": {"epochs": 3, "columns": 16}, **UCI}
    options = {"model": {"epochs": 7}}
    words = assignments(["model.columns=8", "seeds=1,2", "evaluation.rank=true"])
    settings = resolve(file, options, words)
    assert settings.seeds == (1, 2)
    assert (settings.model["epochs"], settings.model["columns"]) == (7, 8)
    assert settings.evaluation.rank
    assert settings.data.name == "uci"


def test_a_preset_lies_below_what_is_given() -> None:
    settings = resolve(UCI, {"preset": "paper-gru", "model": {"hidden": 32}})
    assert settings.model["encoder"] == "gru"
    assert settings.model["hidden"] == 32  # 64 in the preset
    assert settings.model["learning_rate"] == 1e-3  # the paper's for UCI
    own = resolve({"data": {"name": "my.csv"}, "preset": "paper-gru"}).model
    assert own["learning_rate"] == 1e-4  # the paper's for Wikipedia, as it has none for my.csv
    assert resolve(UCI, {"evaluation": {"protocol": "roland"}}).model["any_node"]


def test_another_preset_or_task_begins_the_model_anew() -> None:
    kept = resolve(
        UCI, {"model": {"hidden": 32}}
    ).to_dict()  # as a config.toml has it: all settings
    assert resolve(kept, {"preset": "paper-gru"}).model["encoder"] == "gru"
    assert resolve(kept, {"preset": "paper-gru", "model": {"hidden": 7}}).model["hidden"] == 7
    assert resolve(kept, {"task": "node"}).model["members"] == NodeClassifier().members
    assert resolve(kept, {"task": "link", "seeds": [3]}).model["hidden"] == 32


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
    assert resolve(both, options).model == resolve(both).model
    assert resolve(both, options).model["epochs"] == 4


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
    kept = tomllib.loads(resolve(UCI, before, own).to_toml())
    assert resolve(kept, then).model == resolve(UCI, before, own, then).model
    assert resolve(kept, then).model != resolve(kept).model
    assert resolve(kept, then).given == own["model"]


def test_a_file_shows_all_settings_and_sets_those_that_were_given() -> None:
    settings = resolve(UCI, {"model": {"epochs": 3}})
    lines = settings.to_toml().splitlines()
    assert "epochs = 3" in lines
    for name in settings.model.keys() - {"epochs"}:
        assert any(line.startswith(f"# {name} = ") for line in lines), name
    with pytest.raises(ParameterError, match="no setting 'given'"):
        resolve(UCI, {"given": {}})


def test_the_task_decides_on_the_model() -> None:
    words = assignments(["task=node", "members=2"])
    settings = resolve(UCI, words)
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
def test_a_word_that_sets_nothing_is_rejected(word: str) -> None:
    with pytest.raises(ParameterError, match=word.partition("=")[0] or "''"):
        assignments([word])


plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@examples(deadline=None, max_examples=50)
@given(name=plain, src=st.none() | plain, key=plain, number=st.floats(allow_nan=False))
def test_settings_come_back_from_toml_as_they_were(
    name: str, src: str | None, key: str, number: float
) -> None:
    if src == "none":
        src = None  # the one word that has a meaning
    given = resolve(UCI, {"model": {"half_lives": [0.125, 3e7], "encoder": "lstm"}})
    options = {"encoder_options": {key: number, "layers": 2}}
    settings = dataclasses.replace(
        given,
        data=Data(name=name, src=src, edge_features=("a", key)),
        model={**given.model, **options},
        given={**given.given, **options},
    )
    again = resolve(tomllib.loads(settings.to_toml()))
    assert again.to_dict() == settings.to_dict()
    assert config.differences(settings, again) == []


def test_only_settings_that_may_change_a_number_make_a_difference() -> None:
    one = resolve(UCI)
    other = resolve(
        UCI, assignments(["threads=1", "keep=true", "html=false", "epochs=3", "seeds=0,1"])
    )
    assert sorted(config.differences(one, other)) == ["model.epochs", "seeds"]
