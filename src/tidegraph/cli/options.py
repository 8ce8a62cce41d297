"""Options that several commands have, among them those that `learning.settings` declares."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from tidegraph.cli.terminal import print_json_at_end
from tidegraph.core.declarations import Setting, assignments, declared
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.learning.presets import PRESETS
from tidegraph.learning.settings import (
    PROTOCOLS,
    TASKS,
    Data,
    Evaluation,
    EventSettings,
    RunSettings,
    task_name,
)

_Command = TypeVar("_Command", bound=Callable[..., Any])


# Types --------------------------------------------------------------------------------------------


class OutputFile(click.Path):
    """A file to write; if nothing can be written there, the command ends before any work."""

    def __init__(self, *, new: bool) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._new = new

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        directory = path.absolute().parent
        if self._new and path.exists():
            raise DataError(f"{path} exists already; give another name, or delete it")
        if not directory.is_dir():
            raise DataError(f"{directory} is not a directory; make it first")
        if not os.access(directory, os.W_OK):
            raise DataError(f"{directory} may not be written to; give another place")
        return path


class _Task(click.Choice):  # type: ignore[type-arg] # it has none in click 8.1
    """A task, in the singular or the plural."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(task_name(value), param, ctx)


COUNT = click.IntRange(min=1)
FLOATS = click.Choice(["float32", "float64"])
PATH = click.Path(path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)
WRITABLE_FILE = OutputFile(new=False)
NEW_FILE = OutputFile(new=True)
SPLITTING_PROTOCOLS = click.Choice([name for name in PROTOCOLS if name != "roland"])


def as_seeds(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Parse integers separated by commas; None if the option was not given."""
    if text is None:
        return None
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ParameterError(
            f"--seeds is {text!r}; give integers from 0 on, separated by commas, such as 0,1,2"
        )
    return tuple(map(int, words))


# Options ------------------------------------------------------------------------------------------


def option(
    names: str, meaning: str | None = None, default: Any = None, **more: Any
) -> Callable[[_Command], _Command]:
    """Return a click option: `-o --output`, or `--from begin` for the parameter `begin`."""
    if default is not None:
        more["default"] = default
    return click.option(*names.split(), help=meaning, **more)


JSON_OPTION = option(
    "--json as_json",
    "End with the results as one line of JSON.",
    is_flag=True,
    expose_value=False,
    callback=print_json_at_end,
)
SEED_OPTION = option("--seed", default=0, type=click.IntRange(min=0))
THREADS_OPTION = option("--threads", "Default: all cores.", type=COUNT)
STORED_OPTION = option(
    "--stored",
    "Of the files; float16 halves them and has three digits.",
    "float32",
    type=click.Choice(["float32", "float16"]),
)
AS_OF_OPTION = option(
    "--as-of when",
    "From the events before this time: a date, in UTC, or a number in the data's unit. Default:"
    " from all events.",
    metavar="TIME",
)
R_MAX_OPTION = option("--r-max", "The promised error, relative to a typical feature value.", 1e-2)


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


def together(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command several options, in this order."""

    def with_options(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def _column(name: str, *declarations: str, **options: Any) -> Callable[[_Command], _Command]:
    return setting_option(Data, name, *declarations, metavar="COLUMN", **options)


# How times and numbers are written in a file of events, and what to do with its rows.
writing_options = together(
    setting_option(Data, "unit"),
    setting_option(Data, "date_format", metavar="FORMAT"),
    setting_option(Data, "decimal"),
    setting_option(Data, "sort"),
    setting_option(Data, "on_bad", default="error"),
)
# How to read a file of events.
reading_options = together(
    setting_option(Data, "format", "--format", "format_", default="auto"),
    _column("src"),
    _column("dst"),
    _column("time", "--time", "t"),
    _column("weight"),
    _column("label"),
    _column(
        *("edge_features", "--edge-feature", "edge_features"),
        multiple=True,
        note="; may be given several times",
    ),
    setting_option(Data, "query", metavar="SQL"),
    setting_option(Data, "bipartite", "--bipartite/--no-bipartite", default=None),
    writing_options,
)
READING_NAMES = (
    *("format_", "src", "dst", "t", "weight", "label", "edge_features"),
    *("query", "bipartite", "unit", "date_format", "decimal", "sort", "on_bad"),
)
# Tables about the nodes of the events.
node_table_options = together(
    setting_option(Data, "labels", metavar="FILE", note="; implies --task nodes"),
    setting_option(
        *(Data, "node_features", "--node-features", "node_features"),
        multiple=True,
        metavar="FILE",
        note="; may be given several times",
    ),
)
NODE_TABLES = ("labels", "node_features")
_TABLE_KEYS = "node|label|time|side|date-format"


def node_table(given: str) -> tuple[str, dict[str, Any]]:
    """Return the file of a table about nodes, and how to read it.

    >>> node_table("teams.csv:node=who,time=none")
    ('teams.csv', {'node': 'who', 't': False})
    """
    said = re.search(f":((?:{_TABLE_KEYS})=.*)$", given)
    if said is None or Path(given).exists():
        return given, {}
    options: dict[str, Any] = {}
    for word in re.split(f",(?=(?:{_TABLE_KEYS})=)", said[1]):
        key, _, value = word.partition("=")
        options[{"time": "t"}.get(key, key.replace("-", "_"))] = value
    if options.get("t") == "none":
        options["t"] = False
    return given[: said.start()], options


def check_node_tables(task: str, given: Mapping[str, Any]) -> None:
    """Raise UsageError for tables about nodes that no model of the task reads."""
    for key in NODE_TABLES:
        if given[key] and task != "node":
            name = f"--{key.replace('_', '-')}"
            raise click.UsageError(
                f"{name} is for --task nodes, and the task is {task}; leave out {name}, or give"
                " --task nodes"
            )


# The times of the protocol `time`.
time_options = together(
    setting_option(Evaluation, "validation_after", metavar="T"),
    setting_option(Evaluation, "test_after", metavar="T"),
)
# The snapshots of the protocol `roland`, and whether to learn from them.
snapshot_options = together(
    setting_option(Evaluation, "snapshot_seconds", metavar="S"),
    setting_option(Evaluation, "first_test", metavar="K"),
    setting_option(Evaluation, "live", note=", with --protocol roland"),
)


def sampler_option(default: str) -> Callable[[_Command], _Command]:
    """Return the option of the samplers; what `default` names is up to the command."""
    text = f"Sampler of negatives; may be given several times. Default: {default}."
    return setting_option(Evaluation, "samplers", "--sampler", "samplers", multiple=True, help=text)


def engine_options(work: str) -> Callable[[_Command], _Command]:
    """Let a command choose where each `work` is done: here, or on a Ray cluster."""
    return together(
        option(
            "--engine",
            f"One {work} after the other here, or several at a time on a Ray cluster.",
            "local",
            type=click.Choice(["local", "ray"]),
        ),
        option(
            "--address",
            "Of a running Ray cluster, such as auto. Default: one is started on this machine.",
            metavar="ADDRESS",
        ),
        option("--workers", f"{work.capitalize()}s at a time, with --engine ray.", type=COUNT),
    )


def print_settings(settings: Mapping[str, Setting], width: int) -> None:
    """Print settings by key, with their defaults and meanings."""
    for key, each in settings.items():
        shown = each.default if isinstance(each.default, str) else json.dumps(each.default)
        line = f"{key}={'none' if each.default is None else shown}"
        click.echo(f"  {line:<{width}} {each.described}")


def set_option(
    parameter: str, form: str, meaning: str, print_all: Callable[[], None]
) -> Callable[[_Command], _Command]:
    """Return the option --set, of which `--set help` prints all settings."""

    def help_or_words(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> Any:
        if "help" in words:
            print_all()
            ctx.exit()
        return words

    return option(
        f"--set {parameter}",
        f"{meaning}; may be given several times. `--set help` lists them.",
        multiple=True,
        is_eager=True,
        callback=help_or_words,
        metavar=form,
    )


def _print_model_settings() -> None:
    for task, kind in TASKS.items():
        click.echo(f"task={task}:")
        print_settings(declared(kind), 24)


SETTINGS_OPTION = set_option(
    *("settings", "NAME=VALUE", "A setting of the model, such as epochs=20"),
    _print_model_settings,
)

TASK_OPTION = setting_option(
    *(RunSettings, "task"), type=_Task(list(TASKS)), note=" (nodes: the same). Default: link"
)
LABEL_DELAY_OPTION = setting_option(
    EventSettings, "label_delay", metavar="T", note=". With --task events; default: 0"
)


def model_options(task: str, words: Iterable[str], label_delay: int | None) -> dict[str, Any]:
    """Return the settings of a task's model from --set and --label-delay."""
    if label_delay is not None and task != "events":
        raise click.UsageError("--label-delay belongs to --task events")
    given = {} if label_delay is None else {"label_delay": label_delay}
    return given | assignments(TASKS[task], words)


PRESET_OPTION = setting_option(
    RunSettings,
    "preset",
    metavar="NAME",
    note=f". Presets: {', '.join(PRESETS)}. Those of the paper are per data set (a file has"
    " Wikipedia's) and may be followed by +high-pass or -high-pass, +time or -time",
)
