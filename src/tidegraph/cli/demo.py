"""The command `tidegraph demo`."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import click

from tidegraph.cli.options import DIRECTORY, THREADS_OPTION, option
from tidegraph.cli.terminal import Command, console, progress, table

_LOADED_UNTIL = "2013-02-01"  # of the flights that --live replays


@click.command(cls=Command)
@option("--live", "Replay them into a server with a page, until Ctrl-C.", is_flag=True)
@option(
    "--speed",
    "With --live: how many times as fast as they happened.",
    1000.0,
    type=click.FloatRange(min=0, min_open=True),
)
@option(
    "--dir directory",
    "With --live: where the server keeps its state; given again, it continues.",
    "runs/live",
    type=DIRECTORY,
)
@option("--port", "With --live: of the page.", 8013, type=click.IntRange(0, 65535))
@THREADS_OPTION
def demo(live: bool, speed: float, directory: Path, port: int, threads: int | None) -> None:
    """Stream the shipped flights through the engine and show what happened.

    With --live the first months are loaded into a server, and the others follow as if they happened
    now, but faster.

    \b
      tidegraph demo                  a year of flights in seconds
      tidegraph demo --live           then look at http://127.0.0.1:8013
    """
    from tidegraph.cli import flights

    if live:
        _replay(directory, port, speed)
        return
    with progress("demo") as report:
        story = flights.stream_flights(threads=threads, progress=report)
    out = console()
    out.print(
        f"[bold]{story.title}[/]: {story.events:,} events in {story.steps:,} steps"
        f" between {story.nodes:,} nodes.\n"
        f"{len(story.channels)} channels ({'; '.join(story.channels)}) kept up to date at"
        f" {story.events / story.engine_s:,.0f} events/s."
    )
    shown = table(
        "Month by month",
        ["month", "events", "events/s", "touched nodes/step", "certified error/promise"],
    )
    for month in story.months:
        shown.add_row(
            month.name,
            f"{month.events:,}",
            f"{month.events_per_s:,.0f}",
            f"{month.touched_per_step:.1f}",
            "  ".join(f"{ratio:.4f}" for ratio in month.certified_over_promised),
        )
    out.print(shown)
    out.print(
        f"A step touches a few of the {story.nodes:,} nodes; events/s are those of the engine. The"
        " promise is an error of at most"
        f" r_max · √degree = {story.r_max:g} · √degree\nin units of a typical feature value;"
        " the certified error is the worst of all nodes and columns, per channel."
    )
    shown = table(
        f"Moved most in {story.months[-1].name} ({story.channels[-1]})",
        ["node", "kind", "flights", "moved", "certain to"],
        left=2,
    )
    for mover in story.movers:
        shown.add_row(
            mover.name,
            mover.kind,
            f"{mover.flights:,}",
            f"{mover.moved:.3f}",
            f"± {mover.uncertainty:.3f}",
        )
    out.print(shown)
    out.print(
        "moved is the root mean square over the columns, from the beginning of the month to its"
        " end, in the same units;\ncertain to is how far from it the exact movement may be. flights"
        " are those of the month."
    )
    out.print(
        "Next: tidegraph verify --steps 2000 compares with exact solutions"
        " (if the shell does not find it: . .venv/bin/activate)."
    )


def _replay(directory: Path, port: int, speed: float) -> None:
    """Serve the first month of flights, and let the others follow until a signal ends it."""
    from tidegraph.cli import flights
    from tidegraph.core.errors import TidegraphError
    from tidegraph.events.datasets import load_dataset
    from tidegraph.live import serving
    from tidegraph.live.client import Client
    from tidegraph.live.ingesting import StreamRows, send_lines
    from tidegraph.live.live import Live
    from tidegraph.live.service import ServiceSettings
    from tidegraph.live.settings import LiveSettings

    stream = load_dataset(flights.DATA)
    first = stream.before(_LOADED_UNTIL)
    settings = LiveSettings(lateness="10min")

    def feed(url: str) -> None:
        later = stream[len(first) :]
        try:
            with Client(url, patience_s=10) as client:
                send_lines(client, StreamRows(later), flights.DATA, speed=speed)
        except TidegraphError:
            return  # the server has stopped

    with contextlib.ExitStack() as stack:
        made = stack.enter_context(serving.listening("127.0.0.1", port))
        with progress("load") as report:
            live = stack.enter_context(
                Live.open(directory, first, settings=settings, progress=report)
            )

        def started() -> None:
            url = serving.address(made)
            click.echo(f"Flights of 2013, {speed:g} times as fast: look at {url}. Ctrl-C stops.")
            threading.Thread(target=feed, args=(url,), daemon=True).start()

        serving.run(live, made, ServiceSettings(), started=started)
    click.echo(f"Stopped. The same command continues; remove {directory} to start over.", err=True)
