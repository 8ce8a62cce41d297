"""Progress of a long task, shown on standard error."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

import click

from tidegraph.core.progress import Progress

_QUIET_S = 2.0  # shorter tasks show nothing
_LINE_EVERY_S = 10.0


@contextlib.contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Yield a callback `(done, total, current work)` that shows progress on standard error.

    A terminal gets a bar; anything else gets an occasional line after the first two seconds. The
    time left is that of the current stage; a stage begins when the total changes or the count
    falls.
    """
    with (_bar if sys.stderr.isatty() else _lines)(title) as report:
        yield report


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Progress]:
    from rich import progress as rich
    from rich.console import Console

    columns = (
        "{task.fields[title]}",
        rich.BarColumn(),
        rich.TimeElapsedColumn(),
        "left",
        rich.TimeRemainingColumn(),
        "{task.description}",
    )
    console = Console(stderr=True)
    # Redraw rarely, because the task itself may be timed.
    with rich.Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
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
        pace.update(done, total, time.monotonic())
        state = f"{done:,} of {total:,}, {what}"

    def print_lines() -> None:
        wait_s = _QUIET_S
        while not over.wait(wait_s):
            now = time.monotonic()
            left_s = pace.left_s(now)
            left = "" if left_s is None else f", about {left_s:.0f} s left"
            click.echo(f"{title}: {state} ({now - begin:.0f} s{left})", err=True)
            wait_s = _LINE_EVERY_S

    # On its own thread, because a long task is often a single call.
    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield report
    finally:
        over.set()
        printer.join()


class _Pace:
    """An estimate of the time left, from the pace since the first report of the stage."""

    def __init__(self) -> None:
        self._begun = (0, 0.0)  # count and time of the first report of the stage
        self._seen = (0, 0)  # done, total

    def update(self, done: int, total: int, now: float) -> None:
        if total != self._seen[1] or done < self._seen[0]:
            self._begun = (done, now)
        self._seen = (done, total)

    def left_s(self, now: float) -> float | None:
        """Return the seconds left, or None while the pace is unknown."""
        done, total = self._seen
        first, begun_at = self._begun
        if done <= first or now <= begun_at:
            return None
        return (total - done) * (now - begun_at) / (done - first)
