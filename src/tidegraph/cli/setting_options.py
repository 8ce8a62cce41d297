"""Options made from the declarations in `learning.settings`: types, choices and help texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from tidegraph.core.declarations import Setting, declared
from tidegraph.learning.presets import LINK_PRESETS, preset_for
from tidegraph.learning.settings import PROTOCOLS, Data, Evaluation, LinkSettings, RunSettings

__all__ = [
    "PRESET_OPTION",
    "READING_NAMES",
    "SETTINGS_OPTION",
    "SPLITTING_PROTOCOLS",
    "preset_settings",
    "print_settings",
    "reading_options",
    "setting_option",
    "snapshot_options",
    "time_options",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])

SPLITTING_PROTOCOLS = tuple(name for name in PROTOCOLS if name != "roland")


def setting_option(
    kind: type, name: str, *declarations: str, note: str = "", **options: Any
) -> Callable[[_Command], _Command]:
    """Return the click option of a setting; a note follows its meaning in the help text.

    The option of a truth value is a flag, and one that is left out has the default.
    """
    each = declared(kind)[name]
    if each.choices:
        options.setdefault("type", click.Choice(each.choices))
    elif each.hint is bool:
        options.setdefault("is_flag", True)
    elif each.least is not None:
        options.setdefault("type", click.IntRange(min=int(each.least)))
    meaning = each.meaning.removeprefix("whether to ").removeprefix("whether ")
    help_text = f"{meaning[0].upper()}{meaning[1:]}{note}.".replace("; none: ", ". Default: ")
    options.setdefault("help", help_text)
    return click.option(*(declarations or (f"--{name.replace('_', '-')}",)), **options)


def _column(name: str, *declarations: str, **options: Any) -> Callable[[_Command], _Command]:
    return setting_option(Data, name, *declarations, metavar="COLUMN", **options)


_READING = (
    setting_option(Data, "format", "--format", "format_", default="auto", show_default=True),
    _column("src"),
    _column("dst"),
    _column("time", "--time", "t"),
    _column("weight"),
    _column("label"),
    _column(
        "edge_features",
        "--edge-feature",
        "edge_features",
        multiple=True,
        note="; may be given several times",
    ),
    setting_option(Data, "bipartite", note=", as in tables of users and items"),
    setting_option(Data, "unit"),
    setting_option(Data, "sort"),
    setting_option(Data, "on_bad", default="error", show_default=True),
)
READING_NAMES = (
    *("format_", "src", "dst", "t", "weight", "label", "edge_features"),
    *("bipartite", "unit", "sort", "on_bad"),
)


def reading_options(command: _Command) -> _Command:
    """Give a command the options that say how to read a file of events."""
    for option in reversed(_READING):
        command = option(command)
    return command


def time_options(command: _Command) -> _Command:
    """Give a command the times of the protocol `time`."""
    for name in ("test_after", "validation_after"):
        command = setting_option(Evaluation, name, metavar="T")(command)
    return command


def snapshot_options(command: _Command) -> _Command:
    """Give a command the snapshots of the protocol `roland`, and whether to learn from them."""
    command = setting_option(Evaluation, "live", note=", with --protocol roland")(command)
    command = setting_option(Evaluation, "first_test", metavar="K")(command)
    return setting_option(Evaluation, "snapshot_seconds", metavar="S")(command)


def print_settings(settings: Mapping[str, Setting], width: int) -> None:
    """Print settings by key, with their defaults and meanings."""
    for key, each in settings.items():
        shown = each.default if isinstance(each.default, str) else json.dumps(each.default)
        line = f"{key}={'none' if each.default is None else shown}"
        click.echo(f"  {line:<{width}} {each.described}")


def _help_on_settings(
    ctx: click.Context, param: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    if "help" in words:
        print_settings(declared(LinkSettings), 24)
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
PRESET_OPTION = setting_option(
    RunSettings,
    "preset",
    metavar="NAME",
    note=f". Presets: {', '.join(LINK_PRESETS)}. Those of the paper are per data set (a file has"
    " Wikipedia's) and may be followed by +high-pass or -high-pass, +time or -time",
)


def preset_settings(name: str | None, data: str | None) -> dict[str, Any]:
    """Return the settings of a preset for what the user gave as DATA."""
    if name is None:
        return {}
    from tidegraph.events import datasets

    return preset_for("link", name, data if data in datasets.DATA_SETS else None)
