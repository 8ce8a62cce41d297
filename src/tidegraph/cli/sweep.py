"""The command `tidegraph sweep`: settings tried against each other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.data import check_there, engine_options
from tidegraph.cli.learn import (
    JSON_OPTION,
    as_seeds,
    asked_events,
    data_options,
    print_results,
)
from tidegraph.cli.setting_options import SETTINGS_OPTION, SPLITTING_PROTOCOLS, time_options
from tidegraph.cli.terminal import Command, console, progress, table
from tidegraph.core.declarations import assignments
from tidegraph.learning.settings import LinkSettings

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["sweep"]

_BETWEEN_VALUES = re.compile(r",(?![^\[{]*[\]}])")  # a comma inside a list or object is part of it


def _grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """`NAME=VALUE,VALUE` words as settings to try."""
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
@click.option(
    "--grid",
    "words",
    multiple=True,
    required=True,
    metavar="NAME=V1,V2",
    help="Values of a setting to try; several settings are combined.",
)
@SETTINGS_OPTION
@click.option(
    "--seeds",
    callback=as_seeds,
    default="0,1",
    show_default=True,
    help="One training each, for every combination.",
)
@click.option(
    "--protocol",
    type=click.Choice(SPLITTING_PROTOCOLS),
    default="tgn",
    show_default=True,
    help="How events are divided.",
)
@time_options
@click.option(
    "--metric",
    type=click.Choice(["ap", "auc", "ap_global", "auc_global"]),
    default="ap",
    show_default=True,
    help="Of the validation events: orders the combinations.",
)
@click.option("--test", is_flag=True, help="Judges the best one by the test events, at the end.")
@engine_options("training")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="A directory for what is found.",
)
@JSON_OPTION
def sweep(
    given: str | None,
    data: str | None,
    words: tuple[str, ...],
    settings: tuple[str, ...],
    protocol: str,
    validation_after: str | None,
    test_after: str | None,
    test: bool,
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Try settings against each other, judged by validation events alone.

    \b
      tidegraph sweep calls.csv --grid alpha=0.1,0.2 --grid columns=64,128 -o calls.sweep
      tidegraph sweep wikipedia --grid "half_lives=[3600],[60,3600]" --engine ray -o wiki.sweep

    Every training that is done is kept: the same command goes on where it was stopped, and a larger
    grid adds to what there is. OUTPUT/results.csv and results.json hold the table. Test events are
    not looked at before --test asks for them, of the best combination only.
    """
    own = {name: options.pop(name) for name in ("seeds", "metric", "engine", "address", "workers")}
    chosen, grid = assignments(LinkSettings, settings), _grid(words)
    check_there(given or data)
    from tidegraph.runs import sweep as sweeps
    from tidegraph.runs.experiment import Protocol

    own["protocol"] = Protocol(protocol, validation_after=validation_after, test_after=test_after)
    sweeps.check_sweep(grid=grid, settings=chosen, **own)
    _, stream = asked_events(given, data, options)
    with progress(
        "sweep", stopped=f"What is found is in {output}; give the same command again"
    ) as report:
        results = sweeps.sweep(
            stream,
            output,
            grid=grid,
            settings=chosen,
            test=test,
            progress=report,
            **own,
        )
    _print_sweep(console(), results, list(grid))
    click.echo(f"Wrote {output / 'results.csv'} and results.json")
    if as_json:
        click.echo(json.dumps(results))


def _print_sweep(out: Console, results: Mapping[str, Any], names: Sequence[str]) -> None:
    seeds = len(results["seeds"])
    metrics = list(results["choices"][0]["metrics"])
    shown = table(
        f"Validation, percent ({seeds} seed{'s' if seeds > 1 else ''} each)",
        [*names, *metrics, "seconds"],
    )
    for row in results["choices"]:
        cells = [
            f"{100 * value['mean']:.2f}" + (f" ± {100 * value['std']:.2f}" if seeds > 1 else "")
            for value in row["metrics"].values()
        ]
        chosen = [str(row["settings"][name]) for name in names]
        shown.add_row(*chosen, *cells, f"{row['elapsed_s']:.1f}")
    out.print(shown)
    if "test" in results:
        print_results(out, results["test"])
