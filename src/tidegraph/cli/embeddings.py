"""The command `tidegraph embeddings`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.models import events_file, load_model, saved_model
from tidegraph.cli.options import AS_OF_OPTION, JSON_OPTION, PATH, option
from tidegraph.cli.results import moment_text
from tidegraph.cli.scale import describe_embeddings
from tidegraph.cli.terminal import NOTHING_KEPT, Command, echo_json, on_interrupt, progress
from tidegraph.cli.writing import NEW_TABLE, write_table
from tidegraph.core.words import counted

if TYPE_CHECKING:
    from tidegraph.cli.writing import Columns
    from tidegraph.learning.tasks import Estimator

_NODES_AT_ONCE = 1 << 14


@click.command(cls=Command)
@click.argument("directory", metavar="MODEL|RUN|DIRECTORY", type=PATH)
@AS_OF_OPTION
@option("-o --output", "A new table, .parquet or .csv, with a row per node.", type=NEW_TABLE)
@option("--verify", "Of what propagate wrote: compare every byte with its digest.", is_flag=True)
@JSON_OPTION
def embeddings(directory: Path, when: str | None, output: Path | None, verify: bool) -> None:
    """Write the representations of all nodes to a table, as of any time.

    \b
      tidegraph embeddings runs/calls -o now.parquet
      tidegraph embeddings calls.model --as-of 2024-05-29 -o then.parquet

    The first column is the node, by the id in your data; the others are named after the channel (a
    filter and its half-life) and the number of the feature. A model whose network does not read
    representations, as that of links by default, propagates its events for this.

    Of a directory that tidegraph propagate wrote, show what it holds, whether it is complete, and
    how exact it is; it has no times and needs no table, since tidegraph.Embeddings maps it.

    \b
      tidegraph embeddings mag.embeddings --verify
    """
    if output is None and when is None and events_file(directory) == directory:
        from tidegraph.engine.embeddings import Embeddings

        with progress("verify") as report:
            opened = Embeddings.open(directory, verify=verify, progress=report)
        describe_embeddings(opened, {"verified": verify})
        return
    if output is None or verify:
        raise click.UsageError("of a model or run give -o FILE.parquet or FILE.csv, not --verify")
    estimator = load_model(saved_model(directory))
    stream = estimator.stream
    t = int(stream.t[-1]) + 1 if when is None else stream.time(when)
    on_interrupt(NOTHING_KEPT)
    with progress("embeddings") as report:
        rows = write_table(output, _pieces(estimator, t, stream.nodes, report))
    click.echo(
        f"Wrote {output}: {counted(rows, 'node')} as of {moment_text(t, stream.unit)}", err=True
    )
    echo_json({"output": str(output), "nodes": rows, "t": t, "unit": stream.unit})


def _pieces(estimator: Estimator, t: int, nodes: int, report: Any) -> Iterator[Columns]:
    for first in range(0, nodes, _NODES_AT_ONCE):
        some = range(first, min(first + _NODES_AT_ONCE, nodes))
        frame = estimator.embeddings(t, list(some), progress=report)
        report(some.stop, nodes, "nodes")
        yield {"node": frame.index.tolist(), **{name: frame[name].to_numpy() for name in frame}}
