"""Settings of a LinkPredictor as options: --set, --preset, and what they accept."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import click

from tidegraph.cli.reading import require_exists as check_there
from tidegraph.core.errors import ParameterError
from tidegraph.runs.config import value_of

__all__ = [
    "MEANINGS",
    "PRESET_OPTION",
    "PROTOCOLS",
    "SAMPLERS",
    "SETTINGS_OPTION",
    "check_early",
    "preset_settings",
    "settings_of",
]

# Written out here, and compared by a test with what they stand for: those modules are slow.
PROTOCOLS = ("tgn", "tgb", "time", "roland")
SAMPLERS = ("random-dst", "random-all", "historical", "inductive")
_PRESETS = (
    "default",
    "snapshots",
    "historical",
    "paper-lstm",
    "paper-gru",
    "paper-transformer",
)

# What the settings of a LinkPredictor mean, for the shell; a test keeps the list whole.
MEANINGS = {
    "columns": "random feature columns per channel: more is finer and slower",
    "alpha": "how far a node looks: at 0.9 hardly beyond itself, at 0.05 far",
    "half_lives": "of the channels that forget, as [60,3600] in the data's unit; none: one, a"
    " thirtieth of the training period",
    "high_pass": "whether there are filters that tell neighbours apart beside those that average",
    "beta": "how the degrees of both ends share the normalisation; 0.5 is symmetric",
    "r_max": "the promised error of representations, in r_max_unit",
    "r_max_unit": "rms, l1 (of a feature column) or absolute",
    "scale_by_degree": "whether nodes with many edges are allowed a larger error",
    "epsilon": "how far a node moves, as a part of its norm, before it is recorded again",
    "edge_features": "whether to read those of the latest events, where the data has any",
    "encoder": "reads a node's latest changes: none, state, lstm, gru or transformer",
    "encoder_options": 'of the encoder, as {"heads": 4}',
    "decoder": "joins two nodes: pair, or with an encoder concatenation or hadamard",
    "window": "how many changes an encoder sees",
    "width": "of an encoder's answer",
    "hidden": "width of the decoder's layers",
    "layers": "of the decoder",
    "dropout": "share of its inputs a layer forgets in training",
    "random_negatives": "per event, pairs of its source and a random destination",
    "past_negatives": "per event, pairs that met before",
    "past_weight": "what each of those counts",
    "any_node": "random negatives from all nodes, not from destinations alone",
    "max_examples": "events to train on, the latest ones",
    "epochs": "passes over the events, at most",
    "batch_size": "examples per step of training",
    "learning_rate": "its highest value; it rises and falls",
    "patience": "epochs without a better validation after which to stop",
    "seed": "of features, weights and negatives",
    "threads": "of the propagation; none: all cores",
    "device": "on which the network is trained: cpu, cuda, ...",
    "path": "decided by the command",
}


def _help_on_settings(
    ctx: click.Context, param: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    if "help" in words:
        from tidegraph.learning.tasks import LinkPredictor

        for name, default in LinkPredictor().get_params().items():
            value = "none" if default is None else str(default).lower()
            click.echo(f"  {f'{name}={value}':<24} {MEANINGS.get(name, '')}".rstrip())
        ctx.exit()
    return words


SETTINGS_OPTION = click.option(
    "--set",
    "settings",
    multiple=True,
    is_eager=True,
    callback=_help_on_settings,
    metavar="NAME=VALUE",
    help="A setting of LinkPredictor, such as epochs=20; may be given several times."
    " `--set help` lists them.",
)


PRESET_OPTION = click.option(
    "--preset",
    metavar="NAME",
    help=f"Settings by name, to which --set makes changes: {', '.join(_PRESETS)}. Those of the"
    " paper depend on the data set (a file gets Wikipedia's) and may be followed by +high-pass or"
    " -high-pass, +time or -time.",
)


# Settings -----------------------------------------------------------------------------------------


def preset_settings(name: str | None, data: str | None) -> dict[str, Any]:
    """Return the settings of a preset for what the user gave as DATA."""
    if name is None:
        return {}
    from tidegraph.events import datasets
    from tidegraph.learning.tasks import LinkPredictor, preset

    known = data if data in datasets.DATA_SETS else None
    LinkPredictor.preset(name, known)  # raises for presets of other tasks
    return preset(name, known)


def _named(words: Sequence[str]) -> list[tuple[str, str]]:
    """Name and value of `NAME=VALUE` words, after checking the names."""
    named = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--set")
        if name not in MEANINGS:
            near = difflib.get_close_matches(name, MEANINGS, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]!r}? " if near else ""
            raise ParameterError(
                f"there is no setting {name!r}; {advice}`--set help` lists what there is"
            )
        named.append((name, text))
    return named


def check_early(data: str | None, words: Sequence[str]) -> None:
    """Refuses data that is not there and settings that do not exist, before torch is imported."""
    _named(words)
    if data is not None:
        check_there(data)


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` words as settings of a LinkPredictor; values are of the type they should be."""
    named = _named(words)
    from typing import get_type_hints

    from tidegraph.learning.tasks import LinkPredictor

    hints = get_type_hints(LinkPredictor)
    return {name: value_of(name, text, hints[name]) for name, text in named}
