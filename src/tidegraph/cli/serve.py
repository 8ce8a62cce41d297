"""The command `tidegraph serve`."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tidegraph.cli.models import events_file
from tidegraph.cli.options import (
    COUNT,
    DIRECTORY,
    option,
    print_settings,
    reading_options,
    set_option,
    setting_option,
)
from tidegraph.cli.terminal import Command, progress
from tidegraph.core.declarations import assignments, declared
from tidegraph.core.words import counted
from tidegraph.live.settings import LiveSettings

_REPLICAS = 2


@click.command(cls=Command)
@click.argument("source", metavar="[RUN|MODEL|TABLE]", required=False)
@option(
    "--dir directory",
    "Where log and snapshots are, and nothing else. A new one is made.",
    type=DIRECTORY,
    required=True,
    metavar="DIR",
)
@option("--host", "Where to listen. Beyond this machine a token is compulsory.", "127.0.0.1")
@option("--port", "0 takes a free one.", 8000, type=click.IntRange(0, 65535))
@option(
    "--token",
    "What requests have to carry in Authorization: Bearer TOKEN. Other users of the machine can see"
    " options: the variable TIDEGRAPH_TOKEN is safer.",
    envvar="TIDEGRAPH_TOKEN",
    metavar="TOKEN",
)
@setting_option(LiveSettings, "lateness", metavar="SPAN", default=LiveSettings.lateness)
@setting_option(LiveSettings, "late", default=LiveSettings.late)
@option(
    "--from sources",
    "Read a Redis stream, too: redis://HOST:PORT/STREAM. May be given several times.",
    multiple=True,
    metavar="URL",
)
@option(
    "--export",
    "Write the representations of all nodes there, as embeddings-SEQ.parquet; the newest three"
    " stay.",
    type=DIRECTORY,
    metavar="DIR",
)
@option("--export-every", "How often.", "1h", metavar="SPAN")
@option("--cors origins", "Let pages of this site ask: https://example.org.", multiple=True)
@option("--max-events", "Events of one request.", 100_000, type=COUNT)
@option("--max-body", "Megabytes of one request.", 32, type=COUNT)
@option(
    "--engine",
    "Answer in this process, or by replicas on a Ray cluster, which follow this process.",
    "here",
    type=click.Choice(["here", "ray"]),
)
@option("--replicas", "Processes that answer, with --engine ray.  [default: 2]", type=COUNT)
@option(
    "--address",
    "Of a running Ray cluster, such as auto. Default: one is started on this machine.",
    metavar="ADDRESS",
)
@option(
    "--writer",
    "Where replicas on other machines find this process, with --address: an address of this"
    " machine and a port. Default: a free port that only this machine reaches.",
    metavar="HOST:PORT",
)
@set_option(
    *("words", "NAME=VALUE", "A setting of the live state, such as snapshot_every_s=60"),
    lambda: print_settings(declared(LiveSettings), 28),
)
@reading_options
def serve(
    source: str | None,
    directory: Path,
    host: str,
    port: int,
    token: str | None,
    lateness: str,
    late: Any,
    sources: tuple[str, ...],
    export: Path | None,
    export_every: str,
    origins: tuple[str, ...],
    max_events: int,
    max_body: int,
    engine: str,
    replicas: int | None,
    address: str | None,
    writer: str | None,
    words: tuple[str, ...],
    **reading: Any,
) -> None:
    """Answer questions about a graph over HTTP while its edges come and go.

    DIR holds everything. Started again, the server continues there. An event that was acknowledged
    is on disk, and is there exactly once whatever happens. Ctrl-C (or SIGTERM) saves and stops.

    \b
      tidegraph serve --dir live                          starts empty, or continues
      tidegraph serve calls.csv --dir live                starts with the events of a table
      tidegraph serve runs/calls --dir live               with events and model of a run
      tidegraph serve --dir live --from redis://localhost/calls
      TIDEGRAPH_TOKEN=... tidegraph serve --dir live --host 0.0.0.0
      tidegraph serve --dir live --engine ray --replicas 4

    \b
    Then, from anywhere:
      http://127.0.0.1:8000/                              a page that shows what happens
      http://127.0.0.1:8000/docs                          everything that can be asked
      tidegraph ingest calls.ndjson --to http://127.0.0.1:8000
      curl -d '{"src": "ann", "dst": "bob"}' -H 'Content-Type: application/json' \\
        http://127.0.0.1:8000/v1/events
      curl http://127.0.0.1:8000/v1/nodes/ann/top

    Events are applied in the order of their times. Those that come later than --lateness after
    newer ones are rejected or, with --late now, applied as if they happened now; both are counted.
    With --engine ray, Ray Serve listens at --host and --port and spreads requests over replicas.
    Each holds the whole state in memory and follows this process, the only one that writes; its
    answers at a sequence number are the same bytes. One that dies is replaced.

    The options of a table say how to read it, and are as those of tidegraph run.
    """
    from tidegraph.events.moments import span
    from tidegraph.live import cluster, serving
    from tidegraph.live.exporting import Exporter
    from tidegraph.live.live import Live
    from tidegraph.live.redis_source import RedisSource
    from tidegraph.live.service import ServiceSettings

    serving.check_token(host, token)
    behind = _behind(engine, replicas, address, writer, token)
    every_s = span(export_every, "ms") / 1000
    settings = LiveSettings(
        **{"lateness": lateness, "late": late, **assignments(LiveSettings, words)}
    )
    service = ServiceSettings(
        token=token, origins=origins, max_body_bytes=max_body << 20, max_events=max_events
    )
    given = None if source is None else _source(source, reading)
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(serving.listening(*(behind or (host, port))))
        if behind and not port:
            port = _free_port(host)
        with progress("start") as report:
            live = stack.enter_context(
                Live.open(directory, given, settings=settings, progress=report)
            )
        for note in live.notes:
            click.echo(note, err=True)
        others = [stack.enter_context(RedisSource(live, url)) for url in sources]
        exports = [] if export is None else [stack.enter_context(Exporter(live, export, every_s))]

        def started(at: str, note: str = "") -> None:
            stats = live.stats()
            click.echo(
                f"Serving {directory} at {at}:"
                f" {counted(stats['events'], 'event')}, {counted(stats['nodes'], 'node')}."
                f"{note} Ctrl-C saves and stops."
            )

        own = serving.address(made)
        if behind is None:
            serving.run(
                *(live, made, service), more=[*others, *exports], started=lambda: started(own)
            )
        else:
            count = replicas or _REPLICAS
            note = f" {counted(count, 'replica')} answer; the writer is at {own}."
            stack.enter_context(cluster.ready(address, count))
            serving.run(
                live,
                made,
                replace(service, feeds=True),
                more=[*others, *exports],
                meanwhile=lambda stopping: cluster.serve_until(
                    *(stopping, own, host, port, count, service),
                    lambda: started(serving.url(host, port), note),
                ),
            )
        click.echo("Saving ...", err=True)
    click.echo(f"Stopped. The same command continues {directory}.", err=True)


def _behind(
    engine: str, replicas: int | None, address: str | None, writer: str | None, token: str | None
) -> tuple[str, int] | None:
    """Return where the writer listens if replicas answer, or None."""
    from tidegraph.live import cluster, serving

    if engine == "here":
        if replicas is not None or address is not None or writer is not None:
            raise click.UsageError("--replicas, --address and --writer need --engine ray")
        return None
    host, _, port = (writer or "127.0.0.1:0").rpartition(":")
    if not host or not port.isdecimal() or host in ("0.0.0.0", "[::]"):
        raise click.UsageError(f"--writer is {writer}; give HOST:PORT, such as 10.0.0.5:8001")
    serving.check_token(host.strip("[]"), token)
    cluster.check(replicas or _REPLICAS, address, host)
    return host.strip("[]"), int(port)


def _free_port(host: str) -> int:
    from tidegraph.live import serving

    with serving.listening(host, 0) as made:
        return int(made.getsockname()[1])


def _source(source: str, reading: dict[str, Any]) -> Any:
    """Return the path of a run or model, or the events of a table or data set."""
    from tidegraph.cli.reading import read_and_report, require_exists

    path = Path(source)
    if path.is_dir() and events_file(path) != path:
        if any(value not in (None, False, "error", "auto") for value in reading.values()):
            raise click.UsageError(f"{source} is a run or model; leave out how to read a table")
        return path
    require_exists(source)
    return read_and_report(source, reading)
