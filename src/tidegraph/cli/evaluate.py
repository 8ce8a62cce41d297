"""The command `tidegraph evaluate`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from tidegraph.cli.options import JSON_OPTION, as_seeds, data_options, require_writable
from tidegraph.cli.reading import requested_events, require_exists
from tidegraph.cli.results import print_results
from tidegraph.cli.setting_options import (
    PRESET_OPTION,
    SETTINGS_OPTION,
    setting_option,
    snapshot_options,
    time_options,
)
from tidegraph.cli.terminal import Command, console, echo_json, progress
from tidegraph.core.declarations import assignments
from tidegraph.learning.settings import Evaluation, LinkSettings

__all__ = ["evaluate"]


@click.command(cls=Command)
@data_options
@setting_option(Evaluation, "protocol", default="tgn", show_default=True)
@setting_option(
    Evaluation,
    "samplers",
    "--sampler",
    "samplers",
    multiple=True,
    help="Sampler of negatives; may be given several times. Default: random-dst.",
)
@click.option(
    "--seeds",
    callback=as_seeds,
    default="0,1,2",
    show_default=True,
    help="One training each. Negatives of the evaluation have the protocol's own seeds.",
)
@PRESET_OPTION
@SETTINGS_OPTION
@setting_option(Evaluation, "rank", note=", as TGB does")
@setting_option(Evaluation, "rank_sample", metavar="N", note="; implies --rank")
@time_options
@snapshot_options
@click.option(
    "--reversed",
    "also_reversed",
    is_flag=True,
    help="With --protocol roland: count every edge in the other direction too, as in the numbers"
    " that ROLAND published for Bitcoin.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results there as JSON.",
)
@JSON_OPTION
def evaluate(
    given: str | None,
    data: str | None,
    protocol: str,
    samplers: tuple[str, ...],
    seeds: tuple[int, ...],
    preset: str | None,
    settings: tuple[str, ...],
    also_reversed: bool,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train once per seed, evaluate by a protocol, and compare with heuristics.

    \b
    tgn      the last 15 % of the events test, the 15 % before validate; a tenth of the nodes is
             hidden from training, and events with unseen nodes are also evaluated alone (new)
    tgb      the same without hidden nodes; with --rank its MRR
    time     divided by --validation-after and --test-after
    roland   from the snapshots so far rank all nodes for every source of the next one; the
             default --preset is snapshots

    \b
      tidegraph evaluate wikipedia --sampler random-dst --sampler historical
      tidegraph evaluate calls.csv --seeds 0 --set epochs=4
      tidegraph evaluate uci --preset paper-lstm --sampler random-dst --sampler random-all
      tidegraph evaluate bitcoin-otc --protocol roland --reversed --json

    A true pair competes with negative ones: random-dst exchanges the destination, random-all takes
    any node at all (easy if users meet items), historical draws pairs that met before, inductive
    those that first met after training. Compare numbers under one sampler only.
    """
    require_writable(output, "--output")
    asked = {
        name: options.pop(name)
        for name in (
            *("rank", "rank_sample", "validation_after", "test_after"),
            *("snapshot_seconds", "first_test", "live"),
        )
    }
    if also_reversed and protocol != "roland":
        raise click.UsageError("--reversed belongs to --protocol roland")
    chosen = assignments(LinkSettings, settings)
    require_exists(given or data)
    from tidegraph.runs import evaluating
    from tidegraph.runs.protocol import Protocol

    asked_by = Protocol(protocol, samplers=samplers or None, **asked)
    evaluating.check_evaluation(
        asked_by, seeds=seeds, preset=preset, settings=chosen, name=given or data
    )
    begun = time.perf_counter()
    name, stream = requested_events(given, data, options)
    if also_reversed:
        stream = stream.with_reversed()
    read_s = round(time.perf_counter() - begun, 3)
    with progress("evaluate") as report:
        results = evaluating.evaluate(
            stream,
            protocol=asked_by,
            seeds=seeds,
            preset=preset,
            settings=chosen,
            name=name,
            progress=report,
        )
    elapsed = results["elapsed_s"]
    results["elapsed_s"] = {"read": read_s, **elapsed, "total": round(elapsed["total"] + read_s, 3)}
    print_results(console(), results)
    if output is not None:
        output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        click.echo(f"Wrote {output}")
    echo_json(as_json, results)
