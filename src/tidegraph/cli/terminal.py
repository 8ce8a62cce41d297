"""What commands print, and how they end: tables, progress, errors, and what Ctrl-C does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.core import display
from tidegraph.core.errors import ShortOfMemoryError, StorageError, TidegraphError
from tidegraph.core.progress import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# The packages a command may miss, by module. Installing one compiles nothing of tidegraph again.
_PACKAGES = {
    **{name: name for name in ("matplotlib", "safetensors", "scipy", "torch")},
    "sklearn": "scikit-learn",
    "torch_geometric": "torch_geometric",
    **dict.fromkeys(
        ("fastapi", "httpx", "msgspec", "prometheus_client", "uvicorn"), "'tidegraph[serve]'"
    ),
    "ray": "'tidegraph[ray]'",
    "redis": "redis",
}
_PLAIN_WIDTH = 110  # of tables that are not shown on a terminal
# In the context of a command:
_ADVICE = "tidegraph.interrupted"
_JSON = "tidegraph.json"


class Rejection(click.ClickException):
    """An error that says what to do, on one line and without a traceback."""

    exit_code = 2

    def format_message(self) -> str:
        return " ".join(self.message.split())


class Failure(Rejection):
    """An error that other input would not avoid: a full disk, a run that is being written to."""

    exit_code = 1


def _rejection(error: TidegraphError, message: str) -> Rejection:
    """Return the error as the end of a command."""
    if isinstance(error, StorageError) and error.errno is not None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)  # its own message says what is intact
        if error.filename and not full and (failed := failure(error)):
            return failed
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}")
    if isinstance(error, (StorageError, ShortOfMemoryError)):
        return Failure(message)
    return Rejection(message)


# What is wrong with a path that cannot be written to, and what to do.
_PLACES = {
    errno.EACCES: "permission denied; give another place, or ask its owner",
    errno.EPERM: "not permitted there; give another place, or ask its owner",
    errno.EROFS: "the file system is read-only; give another place",
    errno.ENOSPC: "the disk is full; make room and give the command again",
    errno.EDQUOT: "the quota of the disk is used up; make room and give the command again",
    errno.ENOTDIR: "part of this path is a file and not a directory; give another place",
    errno.EEXIST: "something else is there already; give another place",
    errno.EISDIR: "this is a directory, and a file is to be written; give another name",
    errno.ENAMETOOLONG: "the name is too long; give a shorter one",
}


def failure(error: OSError) -> Failure | None:
    """Return the end of a command that could not use a path; None for errors of another kind."""
    advice = _PLACES.get(error.errno or 0)
    if advice is None:
        return None
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return Failure(f"cannot use {' or '.join(names) or 'a file'}: {advice}")


def _out_of_memory(error: Exception) -> bool:
    """Return whether the system denied memory, or a thread, usually for want of memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # How Python and the native core report a thread that could not start: there is no error code.
    denied = ("can't start new thread", os.strerror(errno.EAGAIN))
    return isinstance(error, MemoryError) or str(error) in denied


# Ctrl-C -------------------------------------------------------------------------------------------


class _Interruption(click.ClickException):
    """The end of a command that the user stopped, with the exit code of Ctrl-C."""

    exit_code = 130

    def show(self, file: Any = None) -> None:
        click.echo(f"\nStopped. {self.message}", file=file, err=file is None)


_START_OVER = "Give the same command again to start over."
NOTHING_KEPT = f"Nothing was written. {_START_OVER}"


def on_interrupt(advice: str | Callable[[], str]) -> None:
    """Set what a user who stops the current command reads from now on."""
    click.get_current_context().meta[_ADVICE] = advice


def resumable(place: Path, what: str = "What was done up to the last checkpoint") -> None:
    """On Ctrl-C, name the place from which the same command resumes, if there is anything."""

    def advice() -> str:
        if not (place.is_dir() and any(place.iterdir())):
            return NOTHING_KEPT
        return f"{what} is in {place}; give the same command again to resume."

    on_interrupt(advice)


# Commands -----------------------------------------------------------------------------------------

_VALUE = r"'[^']*'|\"[^\"]*\"|[\w.+-]*\w"


@contextlib.contextmanager
def _ending(ctx: click.Context, spell: Callable[[str], str] = str) -> Iterator[None]:
    """End a command with one line and an exit code for every error that is expected."""
    try:
        yield
    except TidegraphError as error:
        raise _rejection(error, spell(str(error))) from error
    except ModuleNotFoundError as error:
        module = (error.name or "").split(".")[0]
        if module not in _PACKAGES:
            raise
        raise Rejection(
            f"this needs {module}, which is not installed; pip install {_PACKAGES[module]}"
        ) from error
    except (MemoryError, OSError, RuntimeError) as error:
        if _out_of_memory(error):
            raise Failure(
                "the system denied memory, or a thread, to this process; finished work is intact:"
                " give the command again where it may use more"
            ) from error
        if not isinstance(error, OSError) or (failed := failure(error)) is None:
            raise
        raise failed from error
    except KeyboardInterrupt:
        advice = ctx.meta.get(_ADVICE, _START_OVER)
        raise _Interruption(advice() if callable(advice) else advice) from None


class Command(click.Command):
    """A command that ends with one line for an expected error, in terms of its own options."""

    def invoke(self, ctx: click.Context) -> Any:
        with _ending(ctx, self._with_options):
            return super().invoke(ctx)

    def _with_options(self, message: str) -> str:
        """Spell Python arguments in a message, `name=value` or `long_name`, as options."""
        options = {str(each.name): each for each in self.params if isinstance(each, click.Option)}

        def spell(match: re.Match[str]) -> str:
            option, value = options[match[1]], match[2]
            word = max(option.opts, key=len)
            if value is None or option.is_flag:  # a name without _ may be a word like any other
                meant = "_" in match[1] if value is None else value == "True"
                return word if meant else match[0]
            return word + " " + shlex.quote(value.strip("'\""))

        names = "|".join(options)
        pattern = rf"(?<![\w-])({names})(?:=({_VALUE})|(?![\w=]))"
        return re.sub(pattern, spell, message) if options else message


class Group(click.Group):
    """A group of such commands; also ends them if their arguments cannot be parsed."""

    command_class = Command
    group_class = type

    def invoke(self, ctx: click.Context) -> Any:
        with _ending(ctx):
            return super().invoke(ctx)


# Output -------------------------------------------------------------------------------------------


def console() -> Console:
    """Return a console on standard output, of a fixed width unless it is a terminal."""
    from rich.console import Console

    shown = Console(highlight=False)
    return shown if shown.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


@contextlib.contextmanager
def progress(title: str, *, quiet: bool = False) -> Iterator[Progress]:
    """Yield a callback that shows progress on standard error, or nothing."""
    with contextlib.nullcontext(silent) if quiet else display.progress(title) as report:
        yield report


def print_json_at_end(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Let `echo_json` print, if --json is given."""
    ctx.meta[_JSON] = wanted


def echo_json(results: Any) -> None:
    """Print results as one line of JSON, if --json asks for it."""
    if click.get_current_context().meta[_JSON]:
        click.echo(json.dumps(results))


def table(title: str, columns: Sequence[str], *, left: int = 0) -> Table:
    """Return an empty table whose columns are aligned to the right, except the first `left`."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        made.add_column(column, justify="left" if place < left else "right")
    return made
