"""The commands for graphs near the size of memory: `graph`, `plan`, `propagate`, `embeddings`."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.options import (
    COUNT,
    DIRECTORY,
    FLOATS,
    JSON_OPTION,
    SEED_OPTION,
    THREADS_OPTION,
)
from tidegraph.cli.terminal import Command, Group, console, echo_json, on_interrupt, progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidegraph.engine.embeddings import Embeddings

__all__ = ["embeddings", "graph", "plan", "propagate"]

_MEMORY = click.option(
    "--memory", default="8G", help="What the process may use; files in the page cache do not count."
)
_DTYPE = click.option(
    "--dtype",
    type=FLOATS,
    default="float32",
    help="Of the computation; float64 allows a smaller --r-max, in twice the memory.",
)
_STORED = click.option(
    "--stored",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    help="Of the files; float16 halves them and has three digits.",
)


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


@click.group(cls=Group)
def graph() -> None:
    """Graphs in files, built in bounded memory and mapped instead of loaded."""


@graph.command("build")
@click.argument("edges", type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", type=DIRECTORY, required=True, help="A new directory.")
@click.option("--src", metavar="COLUMN", help="Ids: integers or words. Default: src.")
@click.option("--dst", metavar="COLUMN", help="Likewise. Default: dst.")
@click.option(
    "--weight",
    metavar="COLUMN",
    help="Kept as float64 numbers, from 2**-64 to 2**64. Default: every row counts one.",
)
@click.option(
    "--ids",
    type=click.Choice(["auto", "keep", "number"]),
    default="auto",
    help="Number nodes in the order of first appearance, or keep ids that are integers from 0 on;"
    " auto keeps them if it can.",
)
@click.option(
    "--nodes",
    type=COUNT,
    help="Number of nodes, if ids are kept. Default: the largest id plus one.",
)
@click.option("--directed", is_flag=True)
@_MEMORY
@click.option("--threads", type=COUNT, default=2)
@JSON_OPTION
def build(edges: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Build a compact graph from a Parquet file, a text file or a generated stream.

    The table may be far larger than memory. An interrupted build resumes when the command is
    repeated. If nodes are numbered, their ids must fit into memory while the table is read: 24
    bytes for an integer, about 150 and its letters for a word; they are stored with the graph, and
    `Embeddings.number` finds nodes by them.

    \b
      tidegraph data generate mag -o mag --nodes 1000000 --edges 10000000
      tidegraph graph build mag -o mag.graph --memory 4G
    """
    # Arrow's own pools reserve a gigabyte at once, too much for a process with a limit.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from tidegraph.engine import building

    begin = time.perf_counter()
    on_interrupt(f"What is done is in {output}; give the same command again to resume.")
    with progress("build") as report:
        built = building.build(edges, output, progress=report, **options)
    _describe(built, as_json, {"seconds": round(time.perf_counter() - begin, 2)})


@graph.command("info")
@click.argument("directory", type=DIRECTORY)
@click.option("--verify", is_flag=True, help="Compare every byte with its digest.")
@JSON_OPTION
def info(directory: Path, verify: bool, as_json: bool) -> None:
    """Show what a compact graph holds, and whether it is complete."""
    from tidegraph.engine import compact

    opened = compact.open_graph(directory)
    if verify:
        with progress("verify") as report:
            opened.verify(report)
    _describe(opened, as_json, {"verified": verify})


def _describe(built: Any, as_json: bool, more: dict[str, Any]) -> None:
    facts = {
        "path": str(built.path),
        "nodes": built.nodes,
        "edges": built.edges,
        "directed": built.directed,
        "weighted": built.weighted,
        "named": built.named,
        "disk_bytes": built.disk_bytes,
        "bytes_per_edge": round(built.disk_bytes / max(1, built.edges), 2),
        **more,
    }
    kind = "directed" if built.directed else "undirected"
    console().print(
        f"{built.path}: {built.nodes:,} nodes, {built.edges:,} {kind} edges,"
        f" {_size(built.disk_bytes)}, {facts['bytes_per_edge']:g} bytes per edge"
        + (", with ids" if built.named else ""),
        markup=False,
    )
    echo_json(as_json, facts)


@click.command(cls=Command)
@click.option("--nodes", type=COUNT, required=True)
@click.option("--edges", type=click.IntRange(min=0), required=True)
@click.option("--columns", type=COUNT, required=True)
@click.option("--channels", type=COUNT, default=1)
@_MEMORY
@click.option("--r-max", default=1e-2)
@_DTYPE
@_STORED
@click.option(
    "--events", type=click.IntRange(min=0), default=0, help="Of a stream to apply afterwards."
)
@click.option("--weighted", is_flag=True, help="Edges have weights, of any size.")
@JSON_OPTION
def plan(as_json: bool, **options: Any) -> None:
    """Estimate what propagating columns over a graph will take.

    \b
      tidegraph plan --nodes 121751665 --edges 1297748926 --columns 64 --memory 8G
    """
    from tidegraph.core.words import counted
    from tidegraph.engine import planning

    made = planning.plan(**options)
    console().print(
        f"{counted(made.passes, 'pass')} of {counted(made.columns_per_pass, 'column')},"
        f" {_size(made.memory_bytes)} of memory{' each' if made.passes > 1 else ''}\n"
        f"graph on disk {_size(made.graph_bytes)} ({_size(made.build_disk_bytes)} while it is"
        f" being built), embeddings {_size(made.embedding_bytes)}\n"
        f"about {_duration(made.build_s)} to build, {_duration(made.propagate_s)} to propagate"
        + (f", {_duration(made.update_s)} to apply the events" if options["events"] else "")
    )
    echo_json(as_json, asdict(made))


def _mapped(path: Path) -> NDArray[Any]:
    """Return the array in a NumPy file, mapped instead of loaded."""
    import numpy as np

    from tidegraph.core.errors import DataError

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} is not an array that NumPy can map; write one with numpy.save"
        ) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(f"{path} holds several arrays; write one with numpy.save")
    return array


@click.command(cls=Command)
@click.argument("directory", type=DIRECTORY)
@click.option("--sketch", type=COUNT, metavar="COLUMNS", help="Number of random features.")
@click.option(
    "--features",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A NumPy file, a row per node, instead of a sketch; it is mapped, not loaded.",
)
@click.option("-o", "--output", type=DIRECTORY, required=True, help="A new directory.")
@_MEMORY
@click.option("--alpha", default=0.2, help="Of the filter.")
@click.option("--high-pass", is_flag=True, help="Add the filter with alternating signs.")
@click.option("--r-max", default=1e-2)
@_DTYPE
@SEED_OPTION
@_STORED
@THREADS_OPTION
@JSON_OPTION
def propagate(
    directory: Path,
    sketch: int | None,
    features: Path | None,
    output: Path,
    alpha: float,
    high_pass: bool,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Propagate features, random or given, over a compact graph, in passes within the memory given.

    Finished passes are stored: repeat the command to resume after an interruption, or to replace
    files that were damaged since. The residuals of every pass are computed from scratch in float64
    before it is stored: a pass above what --r-max promises, over a damaged graph, is an error.

    \b
      tidegraph propagate mag.graph --sketch 64 --memory 8G -o mag.embeddings
      tidegraph propagate mag.graph --features papers.npy -o mag.embeddings
    """
    from tidegraph.engine import compact, passes
    from tidegraph.engine.channels import Channel, Sketch

    given: Sketch | NDArray[Any]
    if sketch is not None and features is None:
        given = Sketch(sketch, seed=seed)
    elif features is not None and sketch is None:
        given = _mapped(features)
    else:
        raise click.UsageError("give --sketch COLUMNS or --features FILE, one of the two")

    begin = time.perf_counter()
    channels = [Channel.low_pass(alpha)] + ([Channel.high_pass(alpha)] if high_pass else [])
    on_interrupt(f"Finished passes are in {output}; give the same command again to resume.")
    with progress("propagate") as report:
        made = passes.propagate_in_passes(
            compact.open_graph(directory),
            given,
            output,
            channels=channels,
            progress=report,
            **options,
        )
    for file in made.mended:
        console().print(f"{output / file} was damaged and has been replaced", markup=False)
    seconds = round(time.perf_counter() - begin, 2)
    _describe_embeddings(made, as_json, {"mended": list(made.mended), "seconds": seconds})


@click.group(cls=Group)
def embeddings() -> None:
    """Embeddings that `tidegraph propagate` wrote."""


@embeddings.command("info")
@click.argument("directory", type=DIRECTORY)
@click.option("--verify", is_flag=True, help="Compare every byte with its digest.")
@JSON_OPTION
def embeddings_info(directory: Path, verify: bool, as_json: bool) -> None:
    """Show what a directory of embeddings holds, whether it is complete, and how exact it is.

    \b
      tidegraph embeddings info mag.embeddings --verify
    """
    from tidegraph.engine.embeddings import Embeddings

    with progress("verify") as report:
        opened = Embeddings.open(directory, verify=verify, progress=report)
    _describe_embeddings(opened, as_json, {"verified": verify})


def _describe_embeddings(made: Embeddings, as_json: bool, more: dict[str, Any]) -> None:
    from tidegraph.core.words import counted

    nodes, channels, columns = made.shape
    passes, residual = len(made.residuals), float(made.residuals.max())
    in_time = f", {_duration(more['seconds'])}" if "seconds" in more else ""
    apart = "" if made.computed_in == made.dtype else f", rounding to {made.dtype} apart"
    finer = "--dtype float64 or " if made.computed_in == "float32" else ""
    verdict = (
        f"within the promise{apart}: the largest residual is {residual:.4f} of what r_max allows"
        if not made.excess
        else f"above the promise by {made.excess:.2%}: {made.computed_in} cannot hold this r_max"
        f" here; give {finer}a larger --r-max, and another directory"
    )
    console().print(
        f"{made.path}: {counted(nodes, 'node')}, {counted(channels, 'channel')},"
        f" {counted(columns, 'column')} in {counted(passes, 'pass')}{in_time}\n{verdict}",
        markup=False,
        style=None if not made.excess else "yellow",
    )
    echo_json(
        as_json,
        {
            "path": str(made.path),
            "nodes": nodes,
            "channels": channels,
            "columns": columns,
            "passes": passes,
            "stored": str(made.dtype),
            "residual": residual,
            "within_promise": not made.excess,
            **more,
        },
    )
