"""Every setting is declared once, and everything that shows or checks settings agrees with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidegraph import EventStream, LinkPredictor, NodeClassifier, evaluation
from tidegraph.core.declarations import assignments, declared
from tidegraph.core.errors import ParameterError
from tidegraph.learning import models, settings
from tidegraph.learning.presets import PRESETS, preset
from tidegraph.learning.settings import LinkSettings, NodeSettings
from tidegraph.runs.config import settings_by_key

ALL = {
    **{f"link {key}": each for key, each in settings_by_key("link").items()},
    **{f"node {key}": each for key, each in settings_by_key("node").items()},
}


@pytest.mark.parametrize("key", ALL)
def test_a_setting_has_a_meaning_and_accepts_its_default(key: str) -> None:
    each = ALL[key]
    assert each.meaning
    assert not each.meaning.endswith(".")
    each.check(each.default)
    assert each.accepted


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_made_of_settings(name: str) -> None:
    kind = NodeSettings if "node" in name else LinkSettings
    assert preset(name).keys() <= declared(kind).keys()
    kind(**preset(name))


def test_estimators_have_the_settings_that_are_declared() -> None:
    for estimator, kind in ((LinkPredictor, LinkSettings), (NodeClassifier, NodeSettings)):
        defaults = {name: each.default for name, each in declared(kind).items()}
        assert estimator().get_params() == defaults


@pytest.mark.parametrize("name", declared(LinkSettings)["encoder"].choices)
def test_every_encoder_that_can_be_chosen_can_be_made(name: Any) -> None:
    assert models.make_encoder(name, 4, 8) is not None


@pytest.mark.parametrize("name", declared(LinkSettings)["decoder"].choices)
def test_every_decoder_that_can_be_chosen_can_be_made(name: Any) -> None:
    assert models.make_decoder(name, 4, 4, hidden=8, layers=1, dropout=0.0) is not None


@pytest.mark.parametrize("name", settings.SAMPLERS)
def test_every_sampler_that_can_be_chosen_can_be_made(name: str) -> None:
    events = EventStream([0, 1], [1, 2], [5, 6])
    assert evaluation.negative_sampler(name, events, seed=0, observed_until=5).name == name


def test_settings_are_known_without_numpy_and_torch() -> None:
    code = "import sys, tidegraph.learning.settings; print({'numpy', 'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("half_lives=[60,3600.5]", [60, 3600.5]),
        ("encoder=lstm", "lstm"),
        ("past_weight=1", 1.0),
        ("alpha=.2", 0.2),
        ("learning_rate=5.e-3", 0.005),
        ("path=.5", ".5"),
        ("threads=none", None),
        ("path=5", "5"),
        ("high_pass=false", False),
    ],
)
def test_a_word_is_understood_as_its_setting_asks(word: str, value: Any) -> None:
    (found,) = assignments(LinkSettings, [word]).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("word", ["alpha=1", "epochs=0", "hidden=1.5", "encoder=rnn", "layer=2"])
def test_a_word_that_no_setting_accepts_is_rejected(word: str) -> None:
    with pytest.raises(ParameterError, match=word.partition("=")[0]):
        assignments(LinkSettings, [word])


def test_only_a_near_name_is_suggested() -> None:
    with pytest.raises(ParameterError, match=r"'epoch'; did you mean 'epochs'\?"):
        assignments(LinkSettings, ["epoch=1"])
    with pytest.raises(ParameterError, match="'nosuch'") as raised:
        assignments(LinkSettings, ["nosuch=1"])
    assert "did you mean" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("seed", 2**64 - 1, r"from 0 to 9223372036854775807"),
        ("learning_rate", 1e300, "between 0 and 100"),
        ("hidden", 100_000_000_000, "from 1 to 16384"),
        ("window", 10**11, "from 1 to 10000"),
        ("columns", 10**400, "from 1 to 10000"),
        ("r_max", 10**400, "above 0"),
    ],
)
def test_a_value_that_cannot_work_is_rejected_with_its_range(
    name: str, value: Any, accepted: str
) -> None:
    for kind in (LinkSettings, NodeSettings):
        with pytest.raises(
            ParameterError, match=rf"{name} is {re.escape(str(value))}; .*{accepted}"
        ):
            kind(**{name: value})


def test_the_tables_of_the_documentation_are_those_of_the_settings() -> None:
    script = Path(__file__).parents[1] / "docs" / "parameters.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0, (
        "run: python docs/parameters.py"
    )
