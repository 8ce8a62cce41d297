"""What commands print: tables on standard output, progress and refusals on standard error."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tidegraph.core import display
from tidegraph.core.errors import ShortOfMemoryError, StorageError, TidegraphError
from tidegraph.core.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "Command",
    "Failure",
    "Refusal",
    "Stopped",
    "console",
    "failure",
    "progress",
    "refusal",
    "table",
]


_PLAIN_WIDTH = 110  # of tables that are not shown on a terminal


class Refusal(click.ClickException):
    """An error that says what to do, on one line and without a traceback."""

    exit_code = 2

    def format_message(self) -> str:
        return " ".join(self.message.split())


class Failure(Refusal):
    """One for which not the input has to change: a full disk, a run that others work on."""

    exit_code = 1


def refusal(error: TidegraphError, message: str | None = None) -> Refusal:
    """The error as the end of a command, with another message if one is given."""
    if isinstance(error, StorageError) and error.errno is None:
        return Failure(str(error) if message is None else message)
    if isinstance(error, StorageError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)  # its own words say what is intact
        if error.filename and not full and (failed := failure(error)):
            return failed
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}")
    if isinstance(error, ShortOfMemoryError):
        return Failure(str(error) if message is None else message)
    return Refusal(str(error) if message is None else message)


# What is wrong with a place that cannot be written to, and what to do.
_PLACES = {
    errno.EACCES: "permission denied; give another place, or ask whom it belongs to",
    errno.EPERM: "not permitted there; give another place, or ask whom it belongs to",
    errno.EROFS: "the file system is read-only; give another place",
    errno.ENOSPC: "the disk is full; make room and give the command again",
    errno.EDQUOT: "the quota of the disk is used up; make room and give the command again",
    errno.ENOTDIR: "a part of this path is a file and not a directory; give another place",
    errno.EEXIST: "something else is there already; give another place",
    errno.EISDIR: "this is a directory, and a file is to be written; give another name",
    errno.ENAMETOOLONG: "the name is too long; give a shorter one",
}


def failure(error: OSError) -> Failure | None:
    """The end of a command that could not use a place; None for errors of another kind."""
    advice = _PLACES.get(error.errno or 0)
    if advice is None:
        return None
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return Failure(f"cannot use {' or '.join(names) or 'a file'}: {advice}")


def _starved(error: Exception) -> bool:
    """Whether the system refused memory, or a thread, which is mostly for want of memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # What Python and the core say of a thread.
    refused = ("can't start new thread", os.strerror(errno.EAGAIN))
    return isinstance(error, MemoryError) or str(error) in refused


class Stopped(click.ClickException):
    """What there is to know when the user stopped a command: the exit code is that of Ctrl-C."""

    exit_code = 130

    def show(self, file: Any = None) -> None:
        click.echo(f"\nStopped. {self.message}", file=file, err=file is None)


class Command(click.Command):
    """A command whose errors speak of its options, and not of arguments in Python."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidegraphError as error:
            raise refusal(error, self._in_options(str(error))) from error
        except (MemoryError, OSError, RuntimeError) as error:
            if not _starved(error):
                raise
            raise Failure(
                "the system refused memory, or a thread, to this process; what was finished is"
                " kept: give the command again where it may take more"
            ) from error

    def _in_options(self, message: str) -> str:
        for option in self.params:
            if not isinstance(option, click.Option) or option.name is None:
                continue
            name, spelled = re.escape(option.name), max(option.opts, key=len)
            if option.is_flag:
                message = re.sub(rf"\b{name}=True\b", spelled, message)
            else:
                message = re.sub(rf"\b{name}=(?=[\w'\"])", f"{spelled} ", message)
            if "_" in option.name:  # elsewhere it may be a word like any other
                message = re.sub(rf"(?<![\w-]){name}(?![\w=])", spelled, message)
        return message


def console() -> Console:
    from rich.console import Console

    shown = Console(highlight=False)
    return shown if shown.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def table(title: str, columns: list[str]) -> Table:
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="right")
    return made


@contextlib.contextmanager
def progress(title: str, *, stopped: str | None = None) -> Iterator[Progress]:
    """A function to call with (done, of how many, what is going on), shown on standard error.

    stopped: what there is to know for a user who stops what runs inside.
    """
    try:
        with display.progress(title) as report:
            yield report
    except KeyboardInterrupt:
        if stopped is None:
            raise
        raise Stopped(stopped) from None
