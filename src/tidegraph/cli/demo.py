"""The command `tidegraph demo`."""

from __future__ import annotations

import click

from tidegraph.cli.options import THREADS_OPTION
from tidegraph.cli.terminal import Command, console, progress, table


@click.command(cls=Command)
@THREADS_OPTION
def demo(threads: int | None) -> None:
    """Stream the shipped flights through the engine and show what happened."""
    from tidegraph.cli import flights

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
