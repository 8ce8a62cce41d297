"""The command `tidegraph verify`."""

from __future__ import annotations

import sys
from typing import Any

import click

from tidegraph.cli.options import (
    COUNT,
    FLOATS,
    JSON_OPTION,
    R_MAX_OPTION,
    SEED_OPTION,
    THREADS_OPTION,
    option,
)
from tidegraph.cli.reading import flights_options, read_and_report
from tidegraph.cli.terminal import Command, console, echo_json, progress, table

_REPORTED = (
    *("steps", "events", "holds", "worst_error_over_bound", "worst_error_over_threshold"),
    *("drift", "events_per_s"),
)


@click.command(cls=Command)
@flights_options
@option("--steps", "How many time steps to replay.", 1000, type=COUNT)
@option(
    "--snapshot-seconds",
    "Make steps of this length instead of one per distinct time.",
    type=COUNT,
    metavar="S",
)
@option("--columns", default=64, type=COUNT)
@R_MAX_OPTION
@option("--alpha", "Of both filters.", 0.2)
@option(
    "--half-life",
    "Add two channels that forget with this half-life (in the data's unit).",
    type=float,
    metavar="TIME",
)
@option("--dtype", default="float32", type=FLOATS)
@option(
    "--samples",
    "How often to compare; each comparison takes a sparse solve per channel.",
    8,
    type=COUNT,
)
@SEED_OPTION
@THREADS_OPTION
@JSON_OPTION
def verify(data: str, snapshot_seconds: int | None, **options: Any) -> None:
    """Replay a stream and compare the engine with exact solutions along the way.

    The stream runs through a low-pass and a high-pass filter on random features. At evenly spaced
    steps every number is compared with a sparse solve in float64. The promise holds if, at every
    sample,

    \b
      error <= error_bound  the live certificate
      error <= threshold    the promise made by --r-max

    and the exit code is 1 if it does not. Errors are shown relative to what is allowed: at 1.0000
    the worst of all numbers would be exactly as far off as it may be.

    \b
      tidegraph verify wikipedia --steps 20000
      tidegraph verify uci --snapshot-seconds 190080 --steps 89 --r-max 1e-3
      tidegraph verify --half-life 604800 --steps 20000

    DATA is the name of a data set, a file of events, or a run; by default nyc-flights.
    """
    from rich.markup import escape

    from tidegraph.engine import verify as verification
    from tidegraph.engine.channels import Channel
    from tidegraph.evaluation.splits import in_units

    Channel.low_pass(options["alpha"], half_life=options["half_life"])  # raises if they cannot work
    events = read_and_report(data, options)
    width = None if snapshot_seconds is None else in_units(snapshot_seconds, events.unit)
    with progress("verify") as report:
        result = verification.verify(events, snapshots=width, progress=report, **options)
    out = console()
    out.print(
        f"[bold]{escape(events.title)}[/]: {events.nodes:,} nodes, {options['columns']} columns,"
        f" r_max {options['r_max']:g}, {options['dtype']}"
    )
    shown = table(
        "The worst of all numbers",
        ["step", "events", "touched nodes/step", "error/bound", "error/threshold", "drift"],
    )
    for sample in result.samples:
        shown.add_row(
            f"{sample.step:,}",
            f"{sample.events:,}",
            f"{sample.touched_per_step:.1f}",
            f"{sample.error_over_bound:.4f}",
            f"{sample.error_over_threshold:.4f}",
            f"{sample.drift:.1e}",
            style=None if sample.holds else "red",
        )
    out.print(shown)
    verdict = (
        "[green]It holds[/]: no error above its certified bound, none above the promise"
        if result.holds
        else "[red]It does not hold[/]: an error is above its certified bound, or above the promise"
    )
    out.print(
        f"{verdict}. {result.events_per_s:,.0f} events/s in the engine.\n"
        "At 1.0000 the worst number would be as far off as it may be: by the certificate of that"
        " step (error/bound),\nor by the promise of --r-max (error/threshold). Drift is the effect"
        " of rounding on\nresiduals, relative to the promise, and is included in both."
    )
    results = {
        "data": data,
        "snapshot_seconds": snapshot_seconds,
        **options,
        "nodes": events.nodes,
        **{name: getattr(result, name) for name in _REPORTED},
    }
    echo_json(results)
    if not result.holds:
        sys.exit(1)
