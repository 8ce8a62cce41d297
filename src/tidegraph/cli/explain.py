"""The command `tidegraph explain`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.data import reading_options, told_events
from tidegraph.cli.terminal import Command, progress
from tidegraph.core.errors import DataError

if TYPE_CHECKING:
    pass

__all__ = ["explain"]


@click.command(cls=Command)
@click.option(
    "--data",
    default="nyc-flights",
    show_default=True,
    metavar="NAME|FILE",
    help="A data set, a file of events, or what `tidegraph data import` wrote.",
)
@reading_options
@click.option("--node", required=True, metavar="ID", help="As the data calls it.")
@click.option(
    "--from",
    "begin",
    required=True,
    metavar="TIME",
    help="Where the span begins: a date, in UTC, or a number in the data's unit.",
)
@click.option("--to", "end", required=True, metavar="TIME", help="Where it ends, itself left out.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How many events and nodes to list.",
)
@click.option("--alpha", type=float, default=0.2, show_default=True, help="Of the filter.")
@click.option("--high-pass", is_flag=True, help="The filter with alternating signs.")
@click.option(
    "--half-life",
    type=float,
    metavar="TIME",
    help="Edges are forgotten with this half-life, in the data's unit.",
)
@click.option("--window", type=int, metavar="TIME", help="Edges last so long, in the data's unit.")
@click.option("--directed", is_flag=True, help="Nodes gather along the edges they send only.")
@click.option("--columns", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--r-max",
    type=float,
    default=1e-3,
    show_default=True,
    help="Smaller leaves less of the movement unattributed, and takes longer.",
)
@click.option("--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON.")
def explain(
    data: str,
    node: str,
    begin: str,
    end: str,
    as_json: bool,
    high_pass: bool,
    half_life: float | None,
    window: int | None,
    columns: int,
    seed: int,
    **options: Any,
) -> None:
    """Say which events and which nodes moved a node's representation in a span of time.

    The representation is random features propagated over the graph, as everywhere in tidegraph. An
    event moves it where it takes place and, less and less, some steps away. The shares of all
    events, and of time passing where edges fade or are forgotten, add up to the whole movement.

    \b
    share    of the movement; negative: the event pulled the other way
    norm     how large the event's contribution was, whatever its direction
    direct   how many of the events through a node were with the node asked about

    \b
      tidegraph explain --node HNL --from 2013-02-01 --to 2013-02-08
      tidegraph explain --node N14228 --from 2013-01-01 --to 2013-02-01 --half-life 604800
      tidegraph explain --data my.csv --node ann --from 0 --to 5000 --top 3 --json
    """
    from tidegraph.engine import explanation
    from tidegraph.engine.channels import Channel, Sketch

    make = Channel.high_pass if high_pass else Channel.low_pass
    channel = make(options.pop("alpha"), half_life=half_life, window=window)
    stream = told_events(data, options)
    span = stream.time(begin), stream.time(end)
    if span[0] >= span[1]:
        raise DataError(f"--from {begin} is not before --to {end}; give a span that has a length")
    with progress("explain") as report:
        result = explanation.explain(
            stream,
            int(stream.nodes_of([node])[0]),
            *span,
            channel=channel,
            features=Sketch(columns, seed=seed),
            progress=report,
            **options,
        )
    click.echo(str(result))
    if as_json:
        click.echo(json.dumps({"data": data, **result.to_dict()}))
