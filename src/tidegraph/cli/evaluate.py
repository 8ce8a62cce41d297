"""The command `tidegraph evaluate`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from tidegraph.cli.options import (
    JSON_OPTION,
    LABEL_DELAY_OPTION,
    PRESET_OPTION,
    SETTINGS_OPTION,
    TASK_OPTION,
    WRITABLE_FILE,
    as_seeds,
    check_node_tables,
    model_options,
    node_table_options,
    option,
    sampler_option,
    setting_option,
    snapshot_options,
    time_options,
)
from tidegraph.cli.reading import data_options, read_and_report
from tidegraph.cli.results import print_results
from tidegraph.cli.terminal import Command, console, echo_json, on_interrupt, progress
from tidegraph.core.declarations import declared
from tidegraph.learning.settings import Evaluation


@click.command(cls=Command)
@data_options
@TASK_OPTION
@LABEL_DELAY_OPTION
@setting_option(Evaluation, "protocol", default="tgn")
@sampler_option("random-dst")
@option(
    "--seeds",
    "One training each. Negatives of the evaluation have the protocol's own seeds.",
    "0,1,2",
    callback=as_seeds,
)
@PRESET_OPTION
@SETTINGS_OPTION
@setting_option(Evaluation, "knowledge", default="event", show_default=True)
@setting_option(Evaluation, "rank", note=", as TGB does")
@setting_option(Evaluation, "rank_sample", metavar="N", note="; implies --rank")
@time_options
@snapshot_options
@option(
    "--reversed also_reversed",
    "With --protocol roland: count every edge in the other direction too, as in the numbers"
    " that ROLAND published for Bitcoin.",
    is_flag=True,
)
@node_table_options
@option("-o --output", "Write the results there as JSON.", type=WRITABLE_FILE)
@JSON_OPTION
def evaluate(
    data: str,
    task: str | None,
    label_delay: int | None,
    protocol: str,
    also_reversed: bool,
    output: Path | None,
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
      tidegraph evaluate payments.csv --task events --label fraud

    A true pair competes with negative ones: random-dst exchanges the destination, random-all takes
    any node at all (easy if users meet items), historical draws pairs that met before, inductive
    those that first met after training. Compare numbers under one sampler only.
    """
    if also_reversed and protocol != "roland":
        raise click.UsageError("--reversed belongs to --protocol roland")
    model = {name: options.pop(name) for name in ("seeds", "preset")}
    task = task or ("node" if options["labels"] else "link")
    check_node_tables(task, options)
    model["settings"] = model_options(task, options.pop("settings"), label_delay)
    asked = {name: options.pop(name) for name in declared(Evaluation) if name in options}
    from tidegraph.runs import evaluating
    from tidegraph.runs.protocol import Protocol

    asked["samplers"] = asked["samplers"] or None
    asked_by = Protocol(protocol, task=task, **asked)
    evaluating.check_evaluation(asked_by, name=data, **model)
    begun = time.perf_counter()
    stream = read_and_report(data, options, own_columns=task == "events")
    if also_reversed:
        stream = stream.with_reversed()
    read_s = round(time.perf_counter() - begun, 3)
    on_interrupt(
        "An evaluation keeps nothing: give the same command again, or tidegraph run, which keeps"
        " finished stages and resumes."
    )
    with progress("evaluate") as report:
        results = evaluating.evaluate(
            stream, protocol=asked_by, name=data, progress=report, **model
        )
    elapsed = results["elapsed_s"]
    results["elapsed_s"] = {"read": read_s, **elapsed, "total": round(elapsed["total"] + read_s, 3)}
    print_results(console(), results)
    if output is not None:
        output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        click.echo(f"Wrote {output}")
    echo_json(results)
