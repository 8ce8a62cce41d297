"""The command `tidegraph record`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import click

from tidegraph.cli.options import (
    COUNT,
    JSON_OPTION,
    PATH,
    R_MAX_OPTION,
    SEED_OPTION,
    STORED_OPTION,
    engine_options,
    option,
)
from tidegraph.cli.reading import data_options, read_and_report
from tidegraph.cli.terminal import Command, echo_json, progress, resumable
from tidegraph.core.errors import DataError
from tidegraph.core.words import counted


@click.command(cls=Command)
@data_options
@option(
    "-o --output",
    "A directory for the record; with --address one that every machine sees.",
    type=PATH,
    required=True,
)
@option("--columns", "Random feature columns.", 128, type=COUNT)
@option("--node-features", "Propagate the node features of the data.", is_flag=True)
@option("--shards", "Divide the columns; a pass needs memory for one shard only.", 1, type=COUNT)
@SEED_OPTION
@option("--alpha", "Of all filters.", 0.2)
@option("--high-pass", "Add filters with alternating signs.", is_flag=True)
@option(
    "--half-life half_lives",
    "Add channels that forget with this half-life, in the data's unit; repeatable.",
    type=float,
    multiple=True,
    metavar="TIME",
)
@option("--directed", "Nodes gather along the edges they send only.", is_flag=True)
@R_MAX_OPTION
@option(
    "--epsilon", "How far a node moves, relative to its norm, before it is recorded again.", 0.05
)
@STORED_OPTION
@engine_options("shard")
@option("--threads", "Of each shard.", type=COUNT)
@JSON_OPTION
def record(
    data: str,
    output: Path,
    columns: int,
    node_features: bool,
    seed: int,
    alpha: float,
    high_pass: bool,
    half_lives: tuple[float, ...],
    directed: bool,
    r_max: float,
    stored: Literal["float32", "float16"],
    **options: Any,
) -> None:
    """Record how the representation of every node moves, in passes over ranges of columns.

    \b
      tidegraph record wikipedia -o wikipedia.shards --columns 128 --shards 4 --high-pass
      tidegraph record big.tide -o /shared/big --shards 32 --engine ray --address auto

    A recording that was stopped, or lost a worker, resumes when the same command is given again,
    and ends with the same bytes, whatever the engine. In Python, tidegraph.ShardedTrajectories.open
    reads the result by node and time.
    """
    from tidegraph.core.workers import check_engine
    from tidegraph.engine.channels import Channel, EngineSettings, Sketch
    from tidegraph.store.shards import record_shards

    check_engine(options["engine"], options["address"], options["workers"])
    filters = (Channel.low_pass, Channel.high_pass) if high_pass else (Channel.low_pass,)
    channels = tuple(
        make(alpha, half_life=half_life) for half_life in (None, *half_lives) for make in filters
    )
    settings = EngineSettings(channels=channels, directed=directed, r_max=r_max)
    stream = read_and_report(data, options)
    features: Any = Sketch(columns, seed=seed)
    if node_features:
        if stream.node_features is None:
            raise DataError(f"{data} has no node features; leave --node-features out")
        features = stream.node_features
    begun = time.perf_counter()
    resumable(output, "What was recorded up to a minute ago")
    with progress("record") as report:
        store = record_shards(
            stream,
            features,
            output,
            settings=settings,
            dtype=stored,
            progress=report,
            **options,
        )
    elapsed_s = time.perf_counter() - begun
    click.echo(
        f"{store.records:,} records of {store.nodes:,} nodes in"
        f" {counted(len(store.shards), 'shard')},"
        f" {counted(store.columns, 'column')} in {counted(len(store.channels), 'channel')}:"
        f" {store.nbytes / 1e6:,.1f} MB in {output}, after {elapsed_s:.1f} s"
    )
    results = {
        "output": str(output),
        "events": len(stream),
        **{name: getattr(store, name) for name in ("nodes", "columns", "records", "epsilon")},
        "channels": len(store.channels),
        "shards": len(store.shards),
        "engine": options["engine"],
        "r_max": r_max,
        "dtype": str(store.dtype),
        "disk_bytes": store.nbytes,
        "elapsed_s": round(elapsed_s, 3),
    }
    echo_json(results)
