"""The command `tidegraph ingest`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tidegraph.cli.options import COUNT, JSON_OPTION, option, reading_options
from tidegraph.cli.terminal import Command, echo_json, on_interrupt, progress
from tidegraph.core.words import counted

_LINES = (".ndjson", ".jsonl")


@click.command(cls=Command)
@click.argument("file", metavar="FILE|DATA|-")
@option("--to url", "The server, as http://127.0.0.1:8000.", required=True, metavar="URL")
@option("--token", "Of the server; or TIDEGRAPH_TOKEN.", envvar="TIDEGRAPH_TOKEN", metavar="TOKEN")
@option("--batch", "Events of one request.", 1000, type=COUNT)
@option(
    "--name",
    "The name under which the server keeps the position. Default: the path of FILE.",
    metavar="NAME",
)
@option(
    "--speed",
    "Of a table: send events when they are due, so many times as fast as they happened.",
    type=click.FloatRange(min=0, min_open=True),
)
@option("--patience", "Seconds to try again while the server is away.", 60.0, type=float)
@reading_options
@JSON_OPTION
def ingest(
    file: str,
    url: str,
    token: str | None,
    batch: int,
    name: str | None,
    speed: float | None,
    patience: float,
    **reading: Any,
) -> None:
    """Send events to a server, and resume where it stopped.

    FILE is NDJSON (.ndjson or .jsonl, an object per line), any table that tidegraph run reads, or
    the name of a data set; - reads NDJSON from standard input.

    \b
      tidegraph ingest calls.ndjson --to http://127.0.0.1:8000
      tidegraph ingest calls.csv --src caller --dst callee --time when --to http://127.0.0.1:8000
      tidegraph ingest nyc-flights --speed 1000 --to http://127.0.0.1:8000
      kcat -b broker -t calls -C | tidegraph ingest - --to http://127.0.0.1:8000

    \b
    An event is {"src": "ann", "dst": "bob"} and, if wanted,
      "t"       when: a number in the unit of the server, or an ISO date; none: now
      "id"      a repeated event with the same id changes nothing
      "weight"  of the edge
      "op"      add, remove or set; remove_node and features take "node" instead

    The server keeps the position in FILE with the events. After any interruption, of either side,
    the same command sends what is missing, and nothing twice; a file that has grown is sent from
    where it ended. A pipe has no position: give its events an id, which Kafka's offsets make well.
    """
    from tidegraph.live.client import Client
    from tidegraph.live.ingesting import (
        LineFile,
        Lines,
        StreamRows,
        send_lines,
        send_pipe,
        source_name,
    )

    on_interrupt("What was sent is stored; give the same command again to resume.")
    with Client(url, token=token, patience_s=patience) as client:
        if file == "-":
            if name is not None or speed is not None:
                raise click.UsageError("--name and --speed are for a FILE")
            sent = send_pipe(client, sys.stdin.buffer, size=batch)
        else:
            lines: Lines
            if file.endswith(_LINES):
                lines = LineFile(_existing(file))
            else:
                from tidegraph.cli.reading import read_events, require_exists

                require_exists(file)
                lines = StreamRows(read_events(file, reading))
            source = name or source_name(Path(file))
            with progress("ingest") as report:
                sent = send_lines(client, lines, source, size=batch, speed=speed, progress=report)
            if sent.resumed_at:
                click.echo(f"Resumed after {sent.resumed_at:,} {lines.of}.", err=True)
            if lines.unfinished:
                click.echo(
                    "The last line is not complete yet; give the command again once it is.",
                    err=True,
                )
    click.echo(
        f"{counted(sent.accepted, 'event')} accepted, {sent.duplicate:,} duplicate,"
        f" {sent.late:,} late."
    )
    echo_json(
        {
            "accepted": sent.accepted,
            "duplicate": sent.duplicate,
            "late": sent.late,
            "seq": sent.seq,
            "resumed_at": sent.resumed_at,
        }
    )


def _existing(file: str) -> Path:
    path = Path(file)
    if not path.is_file():
        raise click.BadParameter(f"{file} is no file", param_hint="FILE")
    return path
