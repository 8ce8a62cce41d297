"""How far a long task has come, shown on standard error."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

import click

from tidegraph.core.progress import Progress

__all__ = ["progress"]

_QUIET_S = 2.0  # what is over sooner needs no progress
_LINE_EVERY_S = 10.0


@contextlib.contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A function to call with (done, of how many, what is going on), shown on standard error.

    A bar on a terminal; elsewhere a line now and then, once two seconds have passed. The time left
    is that of the stage reported: one begins wherever the total changes or the count falls.
    """
    with (_bar if sys.stderr.isatty() else _lines)(title) as report:
        yield report


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
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
    pace = _Pace()
    over = threading.Event()
    begin = time.monotonic()

    def report(done: int, total: int, what: str) -> None:
        nonlocal state
        pace.see(done, total, time.monotonic())
        state = f"{done:,} of {total:,}, {what}"

    def speak() -> None:
        wait_s = _QUIET_S
        while not over.wait(wait_s):
            now = time.monotonic()
            left_s = pace.left_s(now)
            left = "" if left_s is None else f", about {left_s:.0f} s left"
            click.echo(f"{title}: {state} ({now - begin:.0f} s{left})", err=True)
            wait_s = _LINE_EVERY_S

    # A thread of its own, because what takes long is often a single call.
    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield report
    finally:
        over.set()
        speaker.join()


class _Pace:
    """How long a stage will still take, if it goes on as it went since its first report."""

    def __init__(self) -> None:
        self._begun = (0, 0.0)  # what was done at the first report of the stage, and when
        self._seen = (0, 0)  # done, of how many

    def see(self, done: int, total: int, now: float) -> None:
        if total != self._seen[1] or done < self._seen[0]:
            self._begun = (done, now)
        self._seen = (done, total)

    def left_s(self, now: float) -> float | None:
        """Seconds, or None while nothing can be said."""
        done, total = self._seen
        first, begun_at = self._begun
        if done <= first or now <= begun_at:
            return None
        return (total - done) * (now - begun_at) / (done - first)
