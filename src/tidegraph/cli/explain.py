"""The command `tidegraph explain`."""

from __future__ import annotations

from typing import Any

import click

from tidegraph.cli.options import COUNT, JSON_OPTION, SEED_OPTION, option
from tidegraph.cli.reading import flights_options, read_and_report
from tidegraph.cli.terminal import Command, echo_json, progress
from tidegraph.core.errors import DataError


@click.command(cls=Command)
@flights_options
@option("--node", "As the data calls it.", required=True, metavar="ID")
@option(
    "--from begin",
    "Start of the span: a date, in UTC, or a number in the data's unit.",
    required=True,
    metavar="TIME",
)
@option("--to end", "End of the span, exclusive.", required=True, metavar="TIME")
@option("--top", "How many events and nodes to list.", 10, type=COUNT)
@option("--alpha", "Of the filter.", 0.2)
@option("--high-pass", "The filter with alternating signs.", is_flag=True)
@option(
    "--half-life",
    "Edges are forgotten with this half-life, in the data's unit.",
    type=float,
    metavar="TIME",
)
@option("--window", "After which edges expire, in the data's unit.", type=int, metavar="TIME")
@option("--directed", "Nodes gather along the edges they send only.", is_flag=True)
@option("--columns", default=64, type=COUNT)
@SEED_OPTION
@option("--r-max", "Smaller attributes more of the movement, and takes longer.", 1e-3)
@JSON_OPTION
def explain(
    data: str,
    node: str,
    begin: str,
    end: str,
    high_pass: bool,
    half_life: float | None,
    window: int | None,
    columns: int,
    seed: int,
    **options: Any,
) -> None:
    """Show which events and nodes moved the representation of a node in a span of time.

    The representation is random features propagated over the graph, as everywhere in tidegraph. An
    event moves those of its own nodes and, less and less, of nodes some steps away. The shares of
    all events, and of time passing if edges fade or expire, add up to the whole movement.

    \b
    share    of the movement; negative: the event pulled the other way
    norm     how large the contribution of the event was, whatever its direction
    direct   how many of the events of a node were with the node in question

    \b
      tidegraph explain --node HNL --from 2013-02-01 --to 2013-02-08
      tidegraph explain --node N14228 --from 2013-01-01 --to 2013-02-01 --half-life 604800
      tidegraph explain my.csv --node ann --from 0 --to 5000 --top 3 --json
      tidegraph explain runs/calls --node ann --from 2024-05-01 --to 2024-05-08

    DATA is the name of a data set, a file of events, or a run; by default nyc-flights.
    """
    from tidegraph.engine import explanation
    from tidegraph.engine.channels import Channel, Sketch

    make = Channel.high_pass if high_pass else Channel.low_pass
    channel = make(options.pop("alpha"), half_life=half_life, window=window)
    stream = read_and_report(data, options)
    span = stream.time(begin), stream.time(end)
    if span[0] >= span[1]:
        raise DataError(f"--from {begin} is not before --to {end}; give an earlier --from")
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
    echo_json({"data": data, **result.to_dict()})
