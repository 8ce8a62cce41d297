"""The commands `tidegraph bench ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tidegraph.bench import SECTIONS
from tidegraph.cli.options import COUNT, JSON_OPTION, SEED_OPTION, WRITABLE_FILE, option
from tidegraph.cli.terminal import Group, console, echo_json, progress, table

if TYPE_CHECKING:
    from rich.console import Console

_BUSY = 0.5  # load average from which times are not to be trusted


@click.group(cls=Group)
def bench() -> None:
    """Measure speed and memory, as ratios in one run."""


_NO_MEASUREMENTS = {"repeat", "threads", "scale", "changed_since_commit"}


@bench.command(
    epilog="\b\nSections:\n"
    + "\n".join(f"  {name:<10} {what}" for name, (_, what) in SECTIONS.items())
)
@option(
    "--only",
    "Only this section; may be given several times.",
    type=click.Choice(list(SECTIONS)),
    multiple=True,
    metavar="NAME",
)
@option("--repeat", "Rounds in which all sides take turns; the median counts.", 5, type=COUNT)
@option("--threads", default=2, type=COUNT)
@option(
    "--scale",
    "Shrink graphs and streams, to try things out.",
    1.0,
    type=click.FloatRange(0, 1, min_open=True),
)
@SEED_OPTION
@option(
    "-o --output",
    "Write the results as JSON, and a plot of the growth table next to it.",
    type=WRITABLE_FILE,
)
@JSON_OPTION
@click.pass_context
def propagation(ctx: click.Context, /, output: Path | None, **options: Any) -> None:
    """Measure the propagation engine against its competitors and itself.

    The yardstick is compiled from $TIDEGRAPH_YARDSTICK, data is read
    from $TIDEGRAPH_DATA; sections whose files are missing are skipped and
    listed. All sections take half an hour on a quiet machine; numbers from a busy one mean little.
    """
    from tidegraph import bench as benchmarks
    from tidegraph.core import machine

    out = console()
    load = machine.load_average()
    out.print(f"Load average {load}", style="yellow" if load and load > _BUSY else None)
    if load and load > _BUSY:
        out.print("The machine is busy: expect less than it can do.", style="yellow")
    command = " ".join(["tidegraph bench propagation", *_given(ctx)])
    with progress("bench") as report:
        results = benchmarks.propagation(command=command, progress=report, **options)
    _print_bench(out, results, benchmarks.GOALS)
    if output is not None:
        for path in benchmarks.write(results, output):
            out.print(f"Wrote {path}")
    echo_json(results)
    if results["failed"]:
        sys.exit(1)


@bench.command("live")
@option("--repeat", "Rounds in which both sides of a ratio take turns.", 3, type=COUNT)
@option(
    "--scale",
    "Shrink graphs and streams, to try things out.",
    1.0,
    type=click.FloatRange(0, 1, min_open=True),
)
@SEED_OPTION
@option(
    "--output",
    "Write the results here.",
    Path("benchmarks/results/live.json"),
    type=WRITABLE_FILE,
)
@JSON_OPTION
@click.pass_context
def live(ctx: click.Context, /, output: Path, **options: Any) -> None:
    """Measure a live state: ingest, single events, scores, rankings and restarts.

    Wikipedia is read from $TIDEGRAPH_DATA. A quarter of an hour on a quiet machine.
    """
    from tidegraph.bench import live as measuring
    from tidegraph.bench.results import write_json

    command = " ".join(["tidegraph bench live", *_given(ctx)])
    with progress("bench") as report:
        results = measuring.live(command=command, progress=report, **options)
    write_json(results, output)
    shown = table("Live", ["what", "measured", "goal"], left=1)
    for name, value in results["headline"].items():
        word, goal = measuring.GOALS[name]
        shown.add_row(name, f"{value:.3g}", f"{word} {goal:g}")
    console().print(shown)
    for name, why in results["skipped"].items():
        console().print(f"Skipped {name}: {why}", style="yellow")
    echo_json(results)


@bench.command("live-load")
@option("--events", "How many to send.", 5_000_000, type=COUNT)
@option("--minutes", "How long to send for.", 60.0, type=click.FloatRange(0, min_open=True))
@SEED_OPTION
@option(
    "--output",
    "Write the results here, and a plot next to it.",
    Path("benchmarks/results/live_load.json"),
    type=WRITABLE_FILE,
)
@JSON_OPTION
@click.pass_context
def live_load(ctx: click.Context, /, output: Path, **options: Any) -> None:
    """Send a server a day of events in an hour while readers ask, and watch its memory.

    It learns meanwhile. Needs Linux. The exit code is 1 if any call failed.
    """
    from tidegraph.bench import live_load as loading
    from tidegraph.bench.results import write_json

    command = " ".join(["tidegraph bench live-load", *_given(ctx)])
    with progress("bench") as report:
        results = loading.live_load(command=command, progress=report, **options)
    write_json(results, output)
    loading.plot_load(results, output.with_suffix(".svg"))
    settled, end = results["own_memory_settled"] / 1e6, results["own_memory_end"] / 1e6
    console().print(
        f"{results['events']:,} events in {results['seconds'] / 60:,.0f} min and"
        f" {sum(results['questions'].values()):,} questions, of which {len(results['errors']):,}"
        f" failed; the server has {settled:,.0f} MB after a sixth of the time and {end:,.0f} MB at"
        f" the end. Wrote {output}"
    )
    echo_json(results)
    if results["errors"]:
        sys.exit(1)


@bench.command("live-kills")
@option("--kills", "Kills at random moments, besides one at every failpoint.", 1000, type=COUNT)
@SEED_OPTION
@option(
    "--output",
    "Write how it went here.",
    Path("benchmarks/results/live_kills.json"),
    type=WRITABLE_FILE,
)
@JSON_OPTION
@click.pass_context
def live_kills(ctx: click.Context, /, kills: int, seed: int, output: Path) -> None:
    """Kill processes that ingest, and check that nothing is lost, doubled or moved.

    After every kill -9 all acknowledged events must be there, and in the end the state must be that
    of a process nobody killed, byte for byte. The same holds where a power failure loses what was
    written before a sync: file operations are recorded, which needs Linux and a C compiler. About
    twelve minutes for 1,000 kills.
    """
    from tidegraph.bench import live_kills as killing
    from tidegraph.bench.lost_writes import lost_writes
    from tidegraph.bench.results import write_json

    command = " ".join(["tidegraph bench live-kills", *_given(ctx)])
    with progress("bench") as report:
        results = killing.live_kills(kills, seed=seed, command=command, progress=report)
        results["lost_writes"] = [
            lost_writes(killing.Script(seed, forgets=forgets), progress=report)
            for forgets in (False, True)
        ]
    write_json(results, output)
    console().print(
        f"{results['kills']:,} kills at random moments, {len(results['failpoints'])} at failpoints"
        f" and {sum(each['crashes'] for each in results['lost_writes']):,} losses of what was not"
        f" synced in {results['seconds']:,.0f} s: nothing lost. Wrote {output}"
    )
    echo_json(results)


def _counts(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[int, ...]:
    """Return numbers of events, which may be written as 1e6."""
    try:
        counts = tuple(int(float(word)) for word in words)
    except (ValueError, OverflowError):
        counts = (0,)
    if any(count < 1000 for count in counts):
        raise click.BadParameter("give numbers of events from 1000 on, such as 1e6")
    return counts


@bench.command("run-growth")
@option(
    "--events",
    "Events of a generated stream; may be given several times. Default: 1e5, 1e6 and 1e7.",
    multiple=True,
    callback=_counts,
    metavar="N",
)
@option(
    "--data",
    "A data set; may be given several times. Default: flights-3m, unless --events is given.",
    multiple=True,
    metavar="NAME",
)
@option(
    "--output",
    "Write results here, and a plot next to it. What is there is not measured again.",
    Path("benchmarks/results/run_growth.json"),
    type=WRITABLE_FILE,
)
@JSON_OPTION
@click.pass_context
def run_growth(
    ctx: click.Context, /, events: tuple[int, ...], data: tuple[str, ...], output: Path
) -> None:
    """Measure how `tidegraph run` grows with the number of events.

    Generates communities between which nodes move, runs on each table in a process of its own, and
    reports seconds by stage, peak memory and disk. An hour and 20 GB of disk for all sizes.
    """
    from tidegraph.bench import run_growth as growth
    from tidegraph.bench.plots import plot_run_growth
    from tidegraph.core.words import bytes_in_words

    if not events and not data:
        events, data = growth.EVENTS, growth.DATA
    command = " ".join(["tidegraph bench run-growth", *_given(ctx)])
    with progress("bench") as report:
        results = growth.run_growth(
            output, events=events, data=data, command=command, progress=report
        )
    titles = ["data", "events", "seconds", "µs/event", "memory", "anonymous", "disk"]
    shown = table("Runs", titles, left=1)
    for row in results["rows"]:
        sizes = ("peak_bytes", "peak_anonymous_bytes", "disk_bytes")
        shown.add_row(
            row["data"],
            f"{row['events']:,}",
            f"{row['seconds']['total']:,.0f}",
            f"{row['us_per_event']:,.0f}",
            *(bytes_in_words(row[size]) for size in sizes),
        )
    console().print(shown)
    plot_run_growth(results["rows"], output.with_suffix(".svg"))
    echo_json(results)


def _given(ctx: click.Context) -> list[str]:
    """Return the options given on the command line, except those about output."""
    words = []
    for given in ctx.command.params:
        name = given.name or ""
        source = ctx.get_parameter_source(name)
        if source is not ParameterSource.COMMANDLINE or name in ("output", "as_json"):
            continue
        value = ctx.params[name]
        for one in value if isinstance(value, tuple) else [value]:
            words += [given.opts[0], str(one)]
    return words


def _print_bench(
    out: Console, results: dict[str, Any], goals: dict[str, tuple[str, float]]
) -> None:
    shown = table("Propagation", ["measured", "value", "goal"], left=1)
    for name, value in results.items():
        if name in _NO_MEASUREMENTS or not isinstance(value, (int, float)):
            continue
        sign, goal = goals.get(name, ("", 0.0))
        met = not sign or (value >= goal if sign == "≥" else value <= goal)
        numbers = f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
        shown.add_row(
            name, numbers, f"{sign} {goal:g}" if sign else "", style=None if met else "yellow"
        )
    if shown.row_count:
        out.print(shown)
    if "growth" in results:
        _print_growth(out, results["growth"])
    for reason in dict.fromkeys(results["skipped"].values()):
        names = ", ".join(name for name, why in results["skipped"].items() if why == reason)
        out.print(f"Skipped {names}: {reason}", markup=False)
    for name, reason in results["failed"].items():
        out.print(f"Failed {name}: {reason}", style="red", markup=False)
    machine = results["machine"]
    out.print(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB;"
        f" load average {machine['load_average_before']} before,"
        f" {machine['load_average_after']} after; median of {results['repeat']};"
        f" scale {results['scale']:g}"
    )


def _print_growth(out: Console, rows: list[dict[str, Any]]) -> None:
    titles = ["nodes", "edges", "pushes/event", "edge pushes/event", "µs/event", "access, ns"]
    shown = table("Growth", titles)
    forms = {"nodes": ",", "edges": ",", "pushes_per_event": ".2f", "edge_pushes_per_event": ".1f"}
    forms |= {"us_per_event": ".2f", "random_access_ns": ".0f"}
    for row in rows:
        shown.add_row(*(f"{row[name]:{form}}" for name, form in forms.items()))
    out.print(shown)
