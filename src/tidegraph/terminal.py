"""What commands print: tables on standard output, progress on standard error."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Progress", "console", "progress", "table"]

Progress: TypeAlias = Callable[[int, int, str], None]  # done, of how many, what is going on

_QUIET_S = 2.0  # what is over sooner needs no progress
_LINE_EVERY_S = 10.0
_PLAIN_WIDTH = 110  # of tables that are not shown on a terminal


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
def progress(title: str) -> Iterator[Progress]:
    """A function to call with (done, of how many, what is going on), shown on standard error.

    A bar on a terminal; elsewhere a line now and then, once two seconds have passed.
    """
    if sys.stderr.isatty():
        with _bar(title) as report:
            yield report
    else:
        with _lines(title) as report:
            yield report


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    # Seldom redrawn: what runs beside it is being timed.
    with Progress(
        *columns, console=Console(stderr=True), transient=True, refresh_per_second=4
    ) as bar:
        task = bar.add_task("", title=title, total=None)

        def report(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield report


@contextlib.contextmanager
def _lines(title: str) -> Iterator[Progress]:
    state = ""
    over = threading.Event()
    begin = time.monotonic()

    def report(done: int, total: int, what: str) -> None:
        nonlocal state
        state = f"{done:,} of {total:,}, {what}"

    def speak() -> None:
        wait_s = _QUIET_S
        while not over.wait(wait_s):
            click.echo(f"{title}: {state} ({time.monotonic() - begin:.0f} s)", err=True)
            wait_s = _LINE_EVERY_S

    # A thread of its own, because what takes long is often a single call.
    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield report
    finally:
        over.set()
        speaker.join()
