"""Options that several commands have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tidegraph.cli.setting_options import reading_options
from tidegraph.core.errors import DataError, ParameterError

__all__ = [
    "JSON_OPTION",
    "SEED_OPTION",
    "as_seeds",
    "data_options",
    "engine_options",
    "require_new_file",
    "require_writable",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])

JSON_OPTION = click.option(
    "--json", "as_json", is_flag=True, help="End with the results as one line of JSON."
)
SEED_OPTION = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
THREADS_OPTION = click.option("--threads", type=click.IntRange(min=1), help="Default: all cores.")
R_MAX_OPTION = click.option(
    "--r-max",
    type=float,
    default=1e-2,
    show_default=True,
    help="The promised error, relative to a typical feature value.",
)


def data_options(command: _Command) -> _Command:
    """Give a command DATA, as an argument or as --data, and how to read it."""
    command = reading_options(command)
    command = click.option("--data", metavar="NAME|FILE", help="The same as DATA.")(command)
    return click.argument("given", metavar="[DATA]", required=False)(command)


def engine_options(work: str) -> Callable[[_Command], _Command]:
    """Let a command choose where each `work` is done: here, or on a Ray cluster."""

    def with_options(command: _Command) -> _Command:
        engine = click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help=f"One {work} after the other here, or several at a time on a Ray cluster.",
        )
        address = click.option(
            "--address",
            metavar="ADDRESS",
            help="Of a running Ray cluster, such as auto. Default: one is started on this machine.",
        )
        workers = click.option(
            "--workers",
            type=click.IntRange(min=1),
            help=f"{work.capitalize()}s at a time, with --engine ray.",
        )
        return engine(address(workers(command)))

    return with_options


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
    return tuple(int(word) for word in words)


def require_new_file(output: Path) -> None:
    """Raise DataError if a file exists already or its directory does not."""
    if output.exists():
        raise DataError(f"{output} exists already; give another --output, or delete it")
    if not output.absolute().parent.is_dir():
        raise DataError(f"{output.absolute().parent} is not a directory; make it first")


def require_writable(output: Path | None, option: str) -> None:
    """Raise an error if no file can be written at `output`, which `option` gave, if it did."""
    if output is None:
        return
    directory = output.absolute().parent
    if not directory.is_dir():
        raise click.BadParameter(f"{output.parent} is not a directory", param_hint=option)
    if not os.access(directory, os.W_OK):
        raise click.BadParameter(
            f"{output.parent} may not be written to; give another place", param_hint=option
        )
