"""The command `tidegraph compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.options import DIRECTORY, JSON_OPTION, WRITABLE_FILE, option
from tidegraph.cli.results import percent
from tidegraph.cli.terminal import Command, console, echo_json, table

if TYPE_CHECKING:
    from rich.console import Console


@click.command(cls=Command)
@click.argument("directories", metavar="RUN...", nargs=-1, required=True, type=DIRECTORY)
@option("--html html_file", "Also write a page that compares the runs.", type=WRITABLE_FILE)
@JSON_OPTION
def compare(directories: tuple[Path, ...], html_file: Path | None) -> None:
    """Compare finished runs: their numbers, and the settings in which they differ.

    \b
      tidegraph compare runs/uci runs/uci-2 --html compared.html
    """
    from tidegraph import report, runs

    if len(directories) == 1:
        runs.read_metrics(directories[0])  # a mistake in the path comes first
        raise click.UsageError("there is nothing to compare with; give two or more runs")
    compared = runs.compare(directories)
    _print_comparison(console(), compared)
    page = None
    if html_file is not None:
        page = str(report.write_comparison(directories, html_file))
        click.echo(f"Wrote {page}")
    echo_json({**compared, "html": page})


def _print_comparison(out: Console, compared: Mapping[str, Any]) -> None:
    found = compared["runs"]
    columns = {
        (sampler, part): one["headlines"][sampler]
        for one in found
        for sampler, parts in one["metrics"].items()
        for part in parts
    }
    titles = [
        f"{'labels' if sampler == 'none' else sampler}, {part}: {metric}"
        for (sampler, part), metric in columns.items()
    ]
    title = "Percent; in brackets the best heuristic"
    shown = table(title, ["run", "seeds", *titles, "seconds"], left=1)
    for one in found:
        cells = [_cell(one, sampler, part, metric) for (sampler, part), metric in columns.items()]
        seconds = f"{one['elapsed_s']['total']:.0f}"
        shown.add_row(one["run"], str(len(one["seeds"])), *cells, seconds)
    out.print(shown)
    if compared["differences"]:
        shown = table("Settings that differ", ["setting", *(one["run"] for one in found)])
        for key, values in compared["differences"].items():
            shown.add_row(key, *("none" if value is None else str(value) for value in values))
        out.print(shown)
    for warning in compared["warnings"]:
        out.print(f"Note: {warning}", style="yellow", markup=False)


def _cell(one: Mapping[str, Any], sampler: str, part: str, metric: str) -> str:
    value = one["metrics"].get(sampler, {}).get(part, {}).get(metric)
    if value is None:
        return ""
    from tidegraph.evaluation import best_heuristic

    best = best_heuristic(one["heuristics"], sampler, part, metric)
    return percent(value) + (f" ({100 * best[1]:.2f})" if best else "")
