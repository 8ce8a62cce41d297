"""The command `tidegraph train`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.options import (
    JSON_OPTION,
    LABEL_DELAY_OPTION,
    PATH,
    PRESET_OPTION,
    SETTINGS_OPTION,
    SPLITTING_PROTOCOLS,
    TASK_OPTION,
    check_node_tables,
    model_options,
    node_table_options,
    option,
    time_options,
)
from tidegraph.cli.reading import data_options, read_and_report
from tidegraph.cli.results import moment_text, next_steps
from tidegraph.cli.terminal import Command, console, echo_json, on_interrupt, progress
from tidegraph.core.words import counted
from tidegraph.learning.presets import preset_for

if TYPE_CHECKING:
    from rich.console import Console

    from tidegraph.runs.training import Trained


@click.command(cls=Command)
@data_options
@option("-o --output", "A new directory for the model.", type=PATH, required=True)
@TASK_OPTION
@LABEL_DELAY_OPTION
@PRESET_OPTION
@SETTINGS_OPTION
@option(
    "--protocol",
    "Leave the test events of this protocol out of training. Default: use all events.",
    type=SPLITTING_PROTOCOLS,
)
@time_options
@node_table_options
@JSON_OPTION
def train(
    data: str,
    output: Path,
    task: str | None,
    label_delay: int | None,
    preset: str | None,
    settings: tuple[str, ...],
    protocol: str | None,
    validation_after: str | None,
    test_after: str | None,
    **options: Any,
) -> None:
    """Learn from events which links come next, or classes, and save the model in a directory.

    DATA is the name of a data set (tidegraph data list), a file of events (CSV, Parquet, ...) or
    what tidegraph data import wrote. A file needs a column for who acts, one for on whom, and one
    for when: numbers or ISO dates. Which is which is guessed from the header, and reported.

    \b
      tidegraph train calls.csv -o calls.model
      tidegraph train calls.csv --src Caller --dst Callee --time When --sort -o calls.model
      tidegraph train wikipedia --set epochs=4 --set columns=64 -o wikipedia.model
      tidegraph train payments.csv --task events --label fraud -o payments.model

    The last 15 % of the events decide when to stop, all others train. A training that was killed
    resumes when the same command is given again, and ends with the same weights; until then its
    files are in OUTPUT.unfinished.

    \b
    On several processors or machines that share a file system:
      torchrun --nproc_per_node 2 -m tidegraph train calls.csv -o calls.model
    """
    begun = time.perf_counter()
    task = task or ("node" if options["labels"] else "link")
    check_node_tables(task, options)
    chosen = model_options(task, settings, label_delay)
    from tidegraph.events.datasets import DATA_SETS
    from tidegraph.runs import training
    from tidegraph.runs.protocol import Protocol

    if preset is not None:
        chosen = preset_for(task, preset, data if data in DATA_SETS else None) | chosen
    divided = None
    if (protocol, validation_after, test_after) != (None, None, None):
        # Any protocol but `time` rejects the times.
        divided = Protocol(
            protocol or "tgn", validation_after=validation_after, test_after=test_after
        )
    leads = os.environ.get("RANK", "0") == "0"  # torchrun numbers its processes
    training.check_training(output, task=task, settings=chosen)
    stream = read_and_report(data, options, quiet=not leads, own_columns=task == "events")
    work = training.unfinished(output)
    if leads and training.is_unfinished(output):
        click.echo(f"Resuming {work}")
    on_interrupt(
        lambda: (
            f"The model is complete, in {output}; only its validation is missing."
            if (output / "model.safetensors").is_file()
            else f"What was done up to the last checkpoint is in {work}; give the same command"
            " again to resume."
        )
    )
    with progress("train", quiet=not leads) as report:
        trained = training.train(
            stream, output, protocol=divided, task=task, settings=chosen, progress=report
        )
    if not leads:
        return
    _print_trained(console(), trained, time.perf_counter() - begun)
    own = trained.validation.row("validation")
    results = {
        "output": str(output),
        "events": len(stream),
        "nodes": stream.nodes,
        "unit": stream.unit,
        "digest": stream.digest(),
        "task": task,
        "validation": {"sampler": own.sampler, **own.metrics},
        "epochs": len(trained.predictor.epochs_),
        "training_negatives": trained.validation.training_negatives,
        "settings": trained.predictor.get_params(),
        "warnings": list(trained.validation.warnings),
        "elapsed_s": round(time.perf_counter() - begun, 3),
    }
    echo_json(results)


def _print_trained(out: Console, trained: Trained, elapsed_s: float) -> None:
    result, stream = trained.validation, trained.predictor.stream
    own = result.row("validation")
    best = result.verdict("validation").best
    assert best is not None  # training compares with the default heuristics
    epochs = trained.predictor.epochs_
    chosen = max(epochs, key=lambda epoch: epoch.validation).number + 1
    headline, task = result.headline, trained.predictor.task
    measured = ", ".join(
        f"{name.upper()} {own.metrics[name]:.4f}"
        for name in dict.fromkeys((headline, "auc", "ap"))
        if name in own.metrics
    )
    against = (
        ", each against a random destination (0.5 is chance; the" if task == "link" else " (the"
    )
    inputs = getattr(trained.predictor, "inputs", [])
    what = "label" if task == "node" else "event"
    lines = [
        f"Trained in {elapsed_s:.0f} s; of {counted(len(epochs), 'epoch')} the best was number"
        f" {chosen}.",
        f"Validation {measured}, on {counted(own.examples, what)}{against} best heuristic,"
        f" {best[0]}, has {headline.upper()} {best[1]:.4f}).",
        *(f"Reads {line}." for line in inputs),
        *(f"Note: {warning}" for warning in result.warnings),
        f"Saved in {trained.path}; times count {stream.unit}, the last event is at"
        f" {moment_text(int(stream.t[-1]), stream.unit)}.",
        *next_steps(trained.path, stream, task),
    ]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
