"""The command `tidegraph`. What takes long to import is imported inside the commands."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.data import data, reading_options, told_events
from tidegraph.cli.explain import explain
from tidegraph.cli.learn import evaluate, predict, train
from tidegraph.cli.record import record
from tidegraph.cli.reproduce import reproduce
from tidegraph.cli.run import compare, completion, resume, run
from tidegraph.cli.scale import embeddings, graph, plan, propagate
from tidegraph.cli.sweep import sweep
from tidegraph.cli.terminal import Command, Refusal, Stopped, failure, refusal
from tidegraph.cli.terminal import console as _console
from tidegraph.cli.terminal import progress as _progress
from tidegraph.cli.terminal import table as _table
from tidegraph.core.errors import TidegraphError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["main"]

_EXTRAS = {  # what brings a module that not every installation has
    "scipy": "bench",
    "matplotlib": "report",
    "jinja2": "report",
    "torch": "train",
    "sklearn": "train",
    "safetensors": "train",
    "ray": "ray",
    "torch_geometric": "bench",
}
_BUSY = 0.5  # load average from which times are not to be trusted


class _Commands(click.Group):
    """Commands whose expected errors end them with one line and an exit code."""

    command_class = Command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidegraphError as error:
            raise refusal(error) from error
        except OSError as error:
            if (failed := failure(error)) is None:
                raise
            raise failed from error
        except KeyboardInterrupt:
            raise Stopped("Give the command again to begin anew.") from None
        except ModuleNotFoundError as error:
            module = (error.name or "").split(".")[0]
            if module not in _EXTRAS:
                raise
            raise Refusal(
                f"this needs {module}, which is not installed;"
                f" pip install 'tidegraph[{_EXTRAS[module]}]'"
            ) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidegraph", prog_name="tidegraph")
def main() -> None:
    """Node representations on changing graphs, kept up to date with a certified error.

    Features are propagated over a graph; when edges come and go, only what changes is recomputed,
    and at any moment a bound on the distance from the exact solution can be read.

    \b
    Start here:
      tidegraph demo                                     a year of flights, in seconds
      tidegraph verify --data nyc-flights --steps 2000   compare with exact solutions
      tidegraph verify --data my.csv --steps 500 --json  your own events: src,dst,t[,weight]
      tidegraph bench propagation --only latency         measure this machine
      tidegraph data info nyc-flights                    what a stream looks like
      tidegraph explain --help                           which events moved a node

    \b
    From a CSV of events to answers:
      tidegraph run calls.csv                            everything, with a report to look at
      tidegraph resume runs/calls                        go on after a kill; compare: several runs
      tidegraph train calls.csv -o calls.model           learn who meets whom, and when
      tidegraph predict calls.model --src ann --rank 5   the likeliest next ones of ann
      tidegraph evaluate calls.csv                       how good, and against which heuristics

    \b
    In Python:
      from tidegraph import Batch, Propagator, Sketch
      propagator = Propagator(Sketch(columns=64), nodes=1000)
      touched = propagator.apply(Batch(src=[3], dst=[7]))
      propagator.embedding(touched), propagator.error_bound(touched)

    Data sets that are not shipped are looked for in $TIDEGRAPH_DATA and
    in the cache, where tidegraph data fetch puts them.
    Progress goes to standard error, results to standard output; with --json the last line of
    standard output is one JSON object.
    """
    # torch's threads spin while they wait for each other; on a machine that does something else
    # too, training then takes several times as long. Heard before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


for command in (
    run,
    resume,
    compare,
    data,
    explain,
    record,
    train,
    predict,
    evaluate,
    sweep,
    reproduce,
    graph,
    plan,
    propagate,
    embeddings,
    completion,
):
    main.add_command(command)


# verify -------------------------------------------------------------------------------------------


@main.command()
@click.option(
    "--data",
    default="nyc-flights",
    show_default=True,
    metavar="NAME|FILE",
    help="A data set, or a CSV or Parquet file with columns src, dst, t and perhaps weight.",
)
@reading_options
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many time steps to replay.",
)
@click.option(
    "--snapshots",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="A step is so much time (in the data's unit) instead of a distinct time.",
)
@click.option("--columns", type=click.IntRange(min=1), default=64, show_default=True)
@click.option(
    "--r-max",
    type=float,
    default=1e-2,
    show_default=True,
    help="The promised error, relative to a typical feature value.",
)
@click.option("--alpha", type=float, default=0.2, show_default=True, help="Of both filters.")
@click.option(
    "--half-life",
    type=float,
    metavar="TIME",
    help="Adds two channels that forget with this half-life (in the data's unit).",
)
@click.option(
    "--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="How often to compare; each takes a sparse solve per channel.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="Default: all cores.")
@click.option("--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON.")
def verify(data: str, as_json: bool, **options: Any) -> None:
    """Replay a stream and compare the engine with exact solutions along the way.

    The stream runs through a low-pass and a high-pass filter on random features. At evenly spaced
    steps every number is compared with a sparse solve in float64. It holds when, at every sample,

    \b
      error <= error_bound  the live certificate
      error <= threshold    the promise made by --r-max

    and the exit code is 1 where it does not. Errors are shown as parts of what is allowed: at
    1.0000 the worst of all numbers would be exactly as far off as it may be.

    \b
      tidegraph verify --data wikipedia --steps 20000
      tidegraph verify --data uci --snapshots 190080 --steps 89 --r-max 1e-3
      tidegraph verify --half-life 604800 --steps 20000
    """
    from rich.markup import escape

    from tidegraph.engine import verify as verification
    from tidegraph.engine.channels import Channel

    Channel.low_pass(options["alpha"], half_life=options["half_life"])  # judges them
    events = told_events(data, options)
    with _progress("verify") as progress:
        result = verification.verify(events, progress=progress, **options)
    console = _console()
    console.print(
        f"[bold]{escape(events.title)}[/]: {events.nodes:,} nodes, {options['columns']} columns,"
        f" r_max {options['r_max']:g}, {options['dtype']}"
    )
    table = _table(
        "The worst of all numbers",
        ["step", "events", "touched nodes/step", "error/bound", "error/threshold", "drift"],
    )
    for sample in result.samples:
        table.add_row(
            f"{sample.step:,}",
            f"{sample.events:,}",
            f"{sample.touched_per_step:.1f}",
            f"{sample.error_over_bound:.4f}",
            f"{sample.error_over_threshold:.4f}",
            f"{sample.drift:.1e}",
            style=None if sample.holds else "red",
        )
    console.print(table)
    verdict = (
        "[green]It holds[/]: no error above its certified bound, none above the promise"
        if result.holds
        else "[red]It does not hold[/]: an error is above its certified bound, or above the promise"
    )
    console.print(
        f"{verdict}. {result.events_per_s:,.0f} events/s in the engine.\n"
        "At 1.0000 the worst number would be as far off as it may be: by the certificate of that"
        " step (error/bound),\nor by the promise of --r-max (error/threshold). Drift is"
        " what rounding did to\nresiduals, as a part of the promise, and is included in both."
    )
    if as_json:
        report = {
            "data": data,
            **options,
            "nodes": events.nodes,
            "steps": result.steps,
            "events": result.events,
            "holds": result.holds,
            "worst_error_over_bound": result.worst_error_over_bound,
            "worst_error_over_threshold": result.worst_error_over_threshold,
            "drift": result.drift,
            "events_per_s": result.events_per_s,
        }
        click.echo(json.dumps(report))
    if not result.holds:
        sys.exit(1)


# bench --------------------------------------------------------------------------------------------


@main.group()
def bench() -> None:
    """Measure speed and memory, as ratios in one run."""


# Written out here, and compared by a test with bench.SECTIONS: that module takes long to import.
_SECTIONS = {
    "uci": "UCI messages in snapshots, against the yardstick",
    "wikipedia": "Wikipedia edits, against the yardstick",
    "recompute": "an update, against warm-started power iteration",
    "static": "one propagation of 10 M edges, against scipy",
    "growth": "work per event at 10^4, 10^5 and 10^6 nodes",
    "threads": "one thread against several",
    "latency": "one event at a time through Python",
    "memory": "bytes per edge, peak of a propagation",
}


_NO_MEASUREMENTS = {"repeat", "threads", "scale", "changed_since_commit"}


@bench.command(
    epilog="\b\nSections:\n" + "\n".join(f"  {name:<10} {what}" for name, what in _SECTIONS.items())
)
@click.option(
    "--only",
    type=click.Choice(list(_SECTIONS)),
    multiple=True,
    metavar="NAME",
    help="Only this section; may be given several times.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Rounds in which all sides take turns; the median counts.",
)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option(
    "--scale",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Shrinks graphs and streams, for trying things out.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Writes the results as JSON, and a plot of the growth table beside it.",
)
@click.option("--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON.")
@click.pass_context
def propagation(ctx: click.Context, /, output: Path | None, as_json: bool, **options: Any) -> None:
    """Measure the propagation engine against its competitors and itself.

    The yardstick is compiled from $TIDEGRAPH_YARDSTICK, data is read
    from $TIDEGRAPH_DATA; what is absent is skipped, and said so. All
    sections take half an hour on a quiet machine; a busy one gives numbers that mean little.
    """
    from tidegraph import bench as benchmarks
    from tidegraph.core import machine

    if output is not None and not output.absolute().parent.is_dir():
        raise click.BadParameter(f"{output.parent} is not a directory", param_hint="--output")
    console = _console()
    load = machine.load_average()
    console.print(f"Load average {load}", style="yellow" if load and load > _BUSY else None)
    if load and load > _BUSY:
        console.print("The machine is busy: expect less than it can do.", style="yellow")
    command = " ".join(["tidegraph bench propagation", *_given(ctx)])
    with _progress("bench") as progress:
        results = benchmarks.propagation(command=command, progress=progress, **options)
    _print_bench(console, results, benchmarks.GOALS)
    if output is not None:
        for path in benchmarks.write(results, output):
            console.print(f"Wrote {path}")
    if as_json:
        click.echo(json.dumps(results))
    if results["failed"]:
        sys.exit(1)


def _given(ctx: click.Context) -> list[str]:
    """The options given on the command line, those about output left out."""
    words = []
    for option in ctx.command.params:
        name = option.name or ""
        source = ctx.get_parameter_source(name)
        if source is not click.core.ParameterSource.COMMANDLINE or name in ("output", "as_json"):
            continue
        value = ctx.params[name]
        for one in value if isinstance(value, tuple) else [value]:
            words += [option.opts[0], str(one)]
    return words


def _print_bench(
    console: Console, results: dict[str, Any], goals: dict[str, tuple[str, float]]
) -> None:
    table = _table("Propagation", ["measured", "value", "goal"])
    table.columns[0].justify = "left"
    for name, value in results.items():
        if name in _NO_MEASUREMENTS or not isinstance(value, (int, float)):
            continue
        sign, goal = goals.get(name, ("", 0.0))
        met = not sign or (value >= goal if sign == "≥" else value <= goal)
        numbers = f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
        table.add_row(
            name, numbers, f"{sign} {goal:g}" if sign else "", style=None if met else "yellow"
        )
    if table.row_count:
        console.print(table)
    if "growth" in results:
        _print_growth(console, results["growth"])
    for reason in dict.fromkeys(results["skipped"].values()):
        names = ", ".join(name for name, why in results["skipped"].items() if why == reason)
        console.print(f"Skipped {names}: {reason}", markup=False)
    for name, reason in results["failed"].items():
        console.print(f"Failed {name}: {reason}", style="red", markup=False)
    machine = results["machine"]
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB;"
        f" load average {machine['load_average_before']} before,"
        f" {machine['load_average_after']} after; median of {results['repeat']};"
        f" scale {results['scale']:g}"
    )


def _print_growth(console: Console, rows: list[dict[str, Any]]) -> None:
    table = _table(
        "Growth", ["nodes", "edges", "pushes/event", "edge pushes/event", "µs/event", "access, ns"]
    )
    for row in rows:
        table.add_row(
            f"{row['nodes']:,}",
            f"{row['edges']:,}",
            f"{row['pushes_per_event']:.2f}",
            f"{row['edge_pushes_per_event']:.1f}",
            f"{row['us_per_event']:.2f}",
            f"{row['random_access_ns']:.0f}",
        )
    console.print(table)


# demo ---------------------------------------------------------------------------------------------


@main.command()
@click.option("--threads", type=click.IntRange(min=1), help="Default: all cores.")
def demo(threads: int | None) -> None:
    """Stream the shipped flights through the engine and say what happened."""
    from tidegraph.cli import demo as flights

    with _progress("demo") as progress:
        story = flights.run(threads=threads, progress=progress)
    console = _console()
    console.print(
        f"[bold]{story.title}[/]: {story.events:,} events in {story.steps:,} steps"
        f" between {story.nodes:,} nodes.\n"
        f"{len(story.channels)} channels ({'; '.join(story.channels)}) kept up to date at"
        f" {story.events / story.engine_s:,.0f} events/s."
    )
    table = _table(
        "Month by month",
        ["month", "events", "events/s", "touched nodes/step", "certified error/promise"],
    )
    for month in story.months:
        table.add_row(
            month.name,
            f"{month.events:,}",
            f"{month.events_per_s:,.0f}",
            f"{month.touched_per_step:.1f}",
            "  ".join(f"{ratio:.4f}" for ratio in month.certified_over_promised),
        )
    console.print(table)
    console.print(
        f"A step touches a few of the {story.nodes:,} nodes; events/s are those of the engine. The"
        " promise is an error of at most"
        f" r_max · √degree = {story.r_max:g} · √degree\nin units of a typical feature value;"
        " the certified error is the worst of all nodes and columns, per channel."
    )
    table = _table(
        f"Moved most in {story.months[-1].name} ({story.channels[-1]})",
        ["node", "kind", "flights", "moved", "certain to"],
    )
    table.columns[0].justify = table.columns[1].justify = "left"
    for mover in story.movers:
        table.add_row(
            mover.name,
            mover.kind,
            f"{mover.flights:,}",
            f"{mover.moved:.3f}",
            f"± {mover.uncertainty:.3f}",
        )
    console.print(table)
    console.print(
        "moved is the root mean square over the columns, from the month's beginning to its end, in"
        " the same units;\ncertain to is how far from it the exact movement may be. flights are"
        " those of the month."
    )
    console.print(
        "Next: tidegraph verify --steps 2000 compares with exact solutions"
        " (where the shell does not find it: . .venv/bin/activate)."
    )


if __name__ == "__main__":
    main()
