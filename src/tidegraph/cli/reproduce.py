"""The command `tidegraph reproduce`."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from pathlib import Path

import click

from tidegraph.cli.terminal import progress

__all__ = ["reproduce"]

# Written out here, and compared by a test with reproduce.TARGETS: that takes long to import.
TARGETS = {
    "ctdg-link": "Table 2: future links, event by event",
    "node-classification": "Table 3: which users get banned",
    "dtdg-link": "Table 4: future links, snapshot by snapshot",
    "large": "Table 5: classes of nodes, on look-alikes of GDELT and MAG",
    "time-cost": "Table 9: time per epoch, beside TGN on this machine",
    "ablation-high-pass": "Table 10: with and without high-pass filters",
    "time-encoding": "Table 11: with and without an encoding of times",
    "sensitivity": "Figure 2: r_max, alpha, layers",
    "samplers": "why negatives from all nodes flatter",
    "error-vs-speed": "what a tighter promise costs",
}
_OUTPUT = Path("benchmarks/results/reproduce")


def _seeds(ctx: click.Context, option: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    try:
        return [int(seed) for seed in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list like 0,1,2") from None


@click.command(
    epilog="\b\nTargets:\n" + "\n".join(f"  {name:<20} {what}" for name, what in TARGETS.items())
)
@click.argument(
    "targets", nargs=-1, required=True, metavar="TARGET...", type=click.Choice(list(TARGETS))
)
@click.option(
    "--seeds",
    callback=_seeds,
    metavar="0,1,...",
    help="Default: ten for ctdg-link, three for the others.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help=f"Where pages and finished cells are kept.  [default: {_OUTPUT}, with --fast a temporary"
    " directory]",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    metavar="MINUTES",
    help="Begin nothing new after so long, and say what is missing; 0 only lays out what is there.",
)
@click.option(
    "--older",
    is_flag=True,
    help="Count what an earlier state of the code measured as well; pages name the commits.",
)
@click.option(
    "--fast",
    is_flag=True,
    help="Small pieces of the data and one seed, to see that it works; the numbers mean nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON.")
def reproduce(
    targets: tuple[str, ...],
    seeds: list[int] | None,
    output: Path | None,
    budget: float | None,
    older: bool,
    fast: bool,
    as_json: bool,
) -> None:
    """Measure the tables of the paper anew, and print them with the published rows.

    For every target a directory is written in --output: results.json, a page (README.md) and a
    figure; overview.md beside them says what was seen of the paper's claims. What was measured is
    kept cell by cell (one model, data set and seed), so that a run that was stopped goes on when it
    is repeated, and more seeds add to those that are there. When the code has changed they are
    measured anew, unless --older lets them count.

    \b
      tidegraph reproduce ctdg-link --budget 120
      tidegraph reproduce dtdg-link ablation-high-pass --seeds 0
      tidegraph reproduce samplers --fast
    """
    from tidegraph import reproduce as reproduction

    if output is None:
        output = Path(tempfile.gettempdir()) / "tidegraph-reproduce-fast" if fast else _OUTPUT
    command = shlex.join(["tidegraph", *sys.argv[1:]])
    left_s = None if budget is None else 60 * budget
    everything = {}
    for name in targets:
        with progress(name) as report:
            results, tables = reproduction.reproduce(
                reproduction.TARGETS[name],
                output,
                seeds=seeds,
                fast=fast,
                budget_s=left_s,
                older=older,
                command=command,
                progress=report,
            )
        if left_s is not None:
            left_s = max(0.0, left_s - results["spent_s"])
        everything[name] = results
        click.echo(f"{results['title']}. {results['description']}")
        if fast:
            click.echo("Tried out on small pieces of the data: these numbers mean nothing.")
        for table in tables:
            click.echo(f"\n{table.title}\n{table.markdown()}")
        for what in results["missing"]:
            click.echo(f"not measured yet: {what}; run it again to go on")
        click.echo(f"\nWrote {output / name / 'README.md'}\n")
    click.echo(f"Of all targets, and of what the paper claims: {output / reproduction.OVERVIEW}")
    if as_json:
        click.echo(json.dumps(everything))
