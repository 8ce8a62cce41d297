"""The command `tidegraph append`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.models import load_model, saved_model
from tidegraph.cli.options import JSON_OPTION, PATH, option, reading_options
from tidegraph.cli.reading import read_and_report
from tidegraph.cli.results import moment_text
from tidegraph.cli.terminal import Command, echo_json, on_interrupt, progress
from tidegraph.core.durable import only_writer
from tidegraph.core.errors import DataError, StateFileError
from tidegraph.core.words import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tidegraph.events.stream import EventStream


@click.command(cls=Command)
@click.argument("model", metavar="MODEL|RUN", type=PATH)
@click.argument("data", metavar="DATA")
@reading_options
@option("-o --output", "Save to a new directory, and leave the model as it is.", type=PATH)
@JSON_OPTION
def append(model: Path, data: str, output: Path | None, **options: Any) -> None:
    """Add later events to a model, without training it again.

    MODEL|RUN is what tidegraph train was given as -o, or a run such as runs/calls, of which the
    model of the first seed is changed; the numbers and the report of a run stay those of its own
    events. DATA is a file of events, with the columns of the model's own unless options say
    otherwise.

    \b
      tidegraph append calls.model today.csv
      tidegraph append runs/calls today.csv -o calls-today.model
      tidegraph predict calls.model --src ann --rank 5        answers from the new events

    New nodes are welcome. Rows that the model knows already are left out, so a file may hold old
    and new events. So are late ones, before the last event of the model: the state it keeps follows
    all events before, and is not undone. An append that is stopped changes nothing.
    """
    directory = saved_model(model)
    if output is not None and output.exists():
        raise StateFileError(f"{output} exists already; give another directory, or delete it")
    begun = time.perf_counter()
    saved, before = output or directory, directory.stat().st_ino
    on_interrupt(
        lambda: (
            f"The events are appended, in {saved}."
            if saved.exists() and saved.stat().st_ino != before
            else f"Nothing was changed: {model} is as it was. Give the same command again."
        )
    )
    with only_writer(directory):
        with progress("append") as report:
            report(0, 1, "loading the model")
            estimator = load_model(directory)
        stream = estimator.stream
        events = read_and_report(data, options, any_order=True, like=stream)
        known, late = _known_and_late(events, stream)
        new = events.where(~known & ~late)
        _explain(stream, int(known.sum()), int(late.sum()))
        if late.all() and len(late):
            raise DataError(f"all events of {data} are late; nothing was changed")
        if len(new):
            with progress("append") as report:
                estimator.advance(new, progress=report)
                report(0, 1, "saving the model")
                estimator.save(saved, overwrite=output is None)
    nodes = estimator.stream.nodes - stream.nodes
    if len(new):
        click.echo(
            f"Appended {counted(len(new), 'event')}, with {counted(nodes, 'new node')}, in"
            f" {time.perf_counter() - begun:.1f} s; saved in {saved}. The last event now is at"
            f" {moment_text(int(new.t[-1]), new.unit)}."
        )
    else:
        click.echo(f"Nothing to append: {data} has no later events; {model} is as it was.")
    results = {
        "model": str(model),
        "output": str(saved),
        "read": len(events),
        "appended": len(new),
        "known": int(known.sum()),
        "late": int(late.sum()),
        "new_nodes": nodes,
        "events": len(estimator.stream),
        "nodes": estimator.stream.nodes,
    }
    echo_json(results)


def _known_and_late(
    events: EventStream, stream: EventStream
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which events the stream has, and which others are before its last one."""
    import numpy as np

    pairs = [some.src * events.nodes + some.dst for some in (stream, events)]
    _, pair = np.unique(np.concatenate(pairs), return_inverse=True)
    times, time = np.unique(np.concatenate([stream.t, events.t]), return_inverse=True)
    key = pair.reshape(-1) * len(times) + time.reshape(-1)
    known = np.isin(key[len(stream) :], key[: len(stream)])
    return known, ~known & (events.t < stream.t[-1])


def _explain(stream: EventStream, known: int, late: int) -> None:
    if known:
        click.echo(f"  {counted(known, 'event')} left out: the model knows them already")
    if late:
        last = moment_text(int(stream.t[-1]), stream.unit)
        click.echo(
            f"  {counted(late, 'late event')} left out: before the model's last event at {last};"
            " train on all events together to include them"
        )
