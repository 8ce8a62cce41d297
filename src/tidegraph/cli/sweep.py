"""The command `tidegraph sweep`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.options import (
    JSON_OPTION,
    PATH,
    SETTINGS_OPTION,
    SPLITTING_PROTOCOLS,
    as_seeds,
    engine_options,
    option,
    time_options,
)
from tidegraph.cli.reading import data_options, read_and_report
from tidegraph.cli.results import percent, print_results
from tidegraph.cli.terminal import Command, console, echo_json, on_interrupt, progress, table
from tidegraph.core.declarations import assignments
from tidegraph.core.words import counted
from tidegraph.learning.settings import LinkSettings

if TYPE_CHECKING:
    from rich.console import Console

_BETWEEN_VALUES = re.compile(r",(?![^\[{]*[\]}])")  # a comma inside a list or object is part of it


def _grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """Parse `NAME=VALUE,VALUE` words into the values to try of each setting."""
    grid: dict[str, list[Any]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.BadParameter(f"{word!r} is not NAME=VALUE,VALUE", param_hint="--grid")
        if name in grid:
            raise click.BadParameter(f"{name} is given twice", param_hint="--grid")
        values = _BETWEEN_VALUES.split(text)
        grid[name] = [assignments(LinkSettings, [f"{name}={value}"])[name] for value in values]
    return grid


@click.command(cls=Command)
@data_options
@option(
    "--grid words",
    "Values of a setting to try; several settings are combined.",
    multiple=True,
    required=True,
    metavar="NAME=V1,V2",
)
@SETTINGS_OPTION
@option("--seeds", "One training each, for every combination.", "0,1", callback=as_seeds)
@option("--protocol", "How events are divided.", "tgn", type=SPLITTING_PROTOCOLS)
@time_options
@option(
    "--metric",
    "Of the validation events; the order of the combinations.",
    "ap",
    type=click.Choice(["ap", "auc", "ap_global", "auc_global"]),
)
@option("--test", "Finally evaluate the best one on the test events.", is_flag=True)
@engine_options("training")
@option("-o --output", "A directory for the results.", type=PATH, required=True)
@JSON_OPTION
def sweep(
    data: str,
    words: tuple[str, ...],
    settings: tuple[str, ...],
    protocol: str,
    validation_after: str | None,
    test_after: str | None,
    test: bool,
    output: Path,
    **options: Any,
) -> None:
    """Try combinations of settings and order them by validation events alone.

    \b
      tidegraph sweep calls.csv --grid hidden=128,256 --grid dropout=0.1,0.3 -o calls.sweep
      tidegraph sweep wikipedia --grid past_weight=0.1,0.3,1 --engine ray -o wiki.sweep

    Every finished training is stored: the same command resumes a sweep that was stopped, and a
    larger grid adds to its results. OUTPUT/results.csv and results.json hold the table. Test events
    are used only with --test, and only for the best combination.
    """
    own = {name: options.pop(name) for name in ("seeds", "metric", "engine", "address", "workers")}
    chosen, grid = assignments(LinkSettings, settings), _grid(words)
    from tidegraph.runs import sweep as sweeps
    from tidegraph.runs.protocol import Protocol

    own["protocol"] = Protocol(protocol, validation_after=validation_after, test_after=test_after)
    sweeps.check_sweep(grid=grid, settings=chosen, **own)
    stream = read_and_report(data, options)
    on_interrupt(lambda: _kept(output))
    with progress("sweep") as report:
        results = sweeps.sweep(
            stream, output, grid=grid, settings=chosen, test=test, progress=report, **own
        )
    _print_sweep(console(), results, list(grid))
    click.echo(f"Wrote {output / 'results.csv'} and results.json")
    echo_json(results)


def _kept(output: Path) -> str:
    finished = counted(len(list(output.glob("cell-*.json"))), "training")
    return f"{finished} of the sweep finished, in {output}; the same command resumes with the rest."


def _alike(first: Mapping[str, Any], other: Mapping[str, Any], metric: str) -> bool:
    """Whether the lead of a choice may come from seeds or from the choice of events."""
    from tidegraph.evaluation import outcome_of_heuristic

    best, value = first["metrics"][metric], other["metrics"][metric]
    spread = max(best["std"], value["std"]) if len(best["per_seed"]) > 1 else None
    return bool(outcome_of_heuristic(value["mean"], best["mean"], spread, first["events"]))


def _print_sweep(out: Console, results: Mapping[str, Any], names: Sequence[str]) -> None:
    seeds = len(results["seeds"])
    metrics = list(results["choices"][0]["metrics"])
    title = f"Validation, percent ({counted(seeds, 'seed')} each)"
    shown = table(title, [*names, *metrics, "seconds"])
    for row in results["choices"]:
        cells = map(percent, row["metrics"].values())
        chosen = [str(row["settings"][name]) for name in names]
        shown.add_row(*chosen, *cells, f"{row['elapsed_s']:.1f}")
    out.print(shown)
    first, *others = results["choices"]
    alike = sum(_alike(first, other, results["metric"].split()[-1]) for other in others)
    if alike:
        out.print(
            f"Note: the first cannot be told apart from {counted(alike, 'other')} on"
            f" {counted(first['events'], 'validation event')}",
            style="yellow",
            markup=False,
        )
    if "test" in results:
        print_results(out, results["test"])
