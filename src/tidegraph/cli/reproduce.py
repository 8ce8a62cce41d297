"""The command `tidegraph reproduce`."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

import click

from tidegraph.cli.options import DIRECTORY, JSON_OPTION, as_seeds, option
from tidegraph.cli.terminal import Command, echo_json, progress, resumable
from tidegraph.reproduce.texts import about_targets

_SUMMARIES = {name: about["summary"] for name, about in about_targets().items()}
_OUTPUT = Path("benchmarks/results/reproduce")


@click.command(
    cls=Command,
    epilog="\b\nTargets:\n"
    + "\n".join(f"  {name:<20} {what}" for name, what in _SUMMARIES.items()),
)
@click.argument(
    "targets", nargs=-1, required=True, metavar="TARGET...", type=click.Choice(list(_SUMMARIES))
)
@option(
    "--seeds",
    "Default: ten for ctdg-link, three for the others.",
    callback=as_seeds,
    metavar="0,1,...",
)
@option(
    "-o --output",
    f"For pages and finished cells.  [default: {_OUTPUT}, with --fast a temporary directory]",
    type=DIRECTORY,
    metavar="DIRECTORY",
)
@option(
    "--budget",
    "Start nothing new after this time, and list what is missing; 0 only rewrites the pages.",
    type=click.FloatRange(min=0),
    metavar="MINUTES",
)
@option("--older", "Also use what earlier code measured; pages name the commits.", is_flag=True)
@option(
    "--fast",
    "Use small pieces of the data and one seed, to try it out; the numbers mean nothing.",
    is_flag=True,
)
@JSON_OPTION
def reproduce(
    targets: tuple[str, ...],
    seeds: tuple[int, ...] | None,
    output: Path | None,
    budget: float | None,
    older: bool,
    fast: bool,
) -> None:
    """Measure the tables of the paper again, and print them with the published rows.

    Every target gets a directory in --output with results.json, a page (README.md) and a figure;
    overview.md compares the results with the claims of the paper. Every cell (one model, data set
    and seed) is stored when it is measured, so that repeating a command that was stopped resumes
    it, and more seeds add to those measured. When the code has changed, cells are measured again
    unless --older accepts them.

    \b
      tidegraph reproduce ctdg-link --budget 120
      tidegraph reproduce dtdg-link ablation-high-pass --seeds 0
      tidegraph reproduce samplers --fast
    """
    from tidegraph.reproduce import driver, page
    from tidegraph.reproduce.targets import TARGETS

    if output is None:
        output = Path(tempfile.gettempdir()) / "tidegraph-reproduce-fast" if fast else _OUTPUT
    resumable(output, "What was finished")
    command = shlex.join(["tidegraph", *sys.argv[1:]])
    left_s = None if budget is None else 60 * budget
    everything = {}
    for name in targets:
        with progress(name) as report:
            results, tables = driver.reproduce(
                TARGETS[name],
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
            click.echo(page.FAST_WARNING)
        for table in tables:
            click.echo(f"\n{table.title}\n{table.markdown()}")
        for what in results["missing"]:
            click.echo(f"not measured yet: {what}; give the command again to resume")
        click.echo(f"\nWrote {output / name / 'README.md'}\n")
    click.echo(f"All targets, and the claims of the paper: {output / driver.OVERVIEW}")
    echo_json(everything)
