"""The commands for graphs near the size of memory: `graph`, `plan`, `propagate`, `embeddings`."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.terminal import Command, console, progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidegraph.engine.embeddings import Embeddings

__all__ = ["embeddings", "graph", "plan", "propagate"]

_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON."
)
_MEMORY = click.option(
    "--memory",
    default="8G",
    show_default=True,
    help="What the process may take; files in the page cache are not counted.",
)
_DTYPE = click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="In which is computed; float64 holds a smaller --r-max, in twice the memory.",
)
_STORED = click.option(
    "--stored",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="How embeddings are written; float16 halves the files and keeps three digits.",
)
_DIRECTORY = click.Path(file_okay=False, path_type=Path)


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


class _Commands(click.Group):
    command_class = Command


@click.group(cls=_Commands)
def graph() -> None:
    """Graphs in files: built in bounded memory, read where they lie."""


@graph.command("build")
@click.argument("edges", type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", type=_DIRECTORY, required=True, help="A new directory.")
@click.option("--src", metavar="COLUMN", help="Ids: integers or words. Default: src.")
@click.option("--dst", metavar="COLUMN", help="Likewise. Default: dst.")
@click.option("--weight", metavar="COLUMN", help="Default: every row counts one.")
@click.option(
    "--ids",
    type=click.Choice(["auto", "keep", "number"]),
    default="auto",
    show_default=True,
    help="Numbers nodes in the order of first appearance, or keeps ids, which are then integers"
    " from 0 on; auto keeps them where it can.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    help="How many, where ids are kept. Default: the largest id plus one.",
)
@click.option("--directed", is_flag=True)
@_MEMORY
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@_JSON
def build(edges: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Build a compact graph from a Parquet file, a text file or a generated stream.

    The table may be far larger than memory. An interrupted build goes on where it stood when the
    command is repeated. Where nodes are numbered their ids must fit into memory while the table is
    read: 24 bytes for an integer, about 150 and its letters for a word; they are kept beside the
    graph, and `Embeddings.number` finds nodes by them.

    \b
      tidegraph data generate mag -o mag --nodes 1000000 --edges 10000000
      tidegraph graph build mag -o mag.graph --memory 4G
    """
    # Arrow's own pools set apart a gigabyte at once, which counts where a process is limited.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from tidegraph.engine import building

    begin = time.perf_counter()
    with progress(
        "build", stopped=f"What is done is kept in {output}; give the same command again to go on."
    ) as report:
        built = building.build(edges, output, progress=report, **options)
    _describe(built, as_json, {"seconds": round(time.perf_counter() - begin, 2)})


@graph.command("info")
@click.argument("directory", type=_DIRECTORY)
@click.option("--verify", is_flag=True, help="Compares every byte with its digest.")
@_JSON
def info(directory: Path, verify: bool, as_json: bool) -> None:
    """Say what a compact graph holds, and whether it is whole."""
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
        + (", ids kept beside it" if built.named else ""),
        markup=False,
    )
    if as_json:
        click.echo(json.dumps(facts))


@click.command(cls=Command)
@click.option("--nodes", type=click.IntRange(min=1), required=True)
@click.option("--edges", type=click.IntRange(min=0), required=True)
@click.option("--columns", type=click.IntRange(min=1), required=True)
@click.option("--channels", type=click.IntRange(min=1), default=1, show_default=True)
@_MEMORY
@click.option("--r-max", type=float, default=1e-2, show_default=True)
@_DTYPE
@_STORED
@click.option(
    "--events",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of a stream that is applied afterwards.",
)
@_JSON
def plan(as_json: bool, **options: Any) -> None:
    """Say what propagating columns over a graph will take, before it starts.

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
    if as_json:
        click.echo(json.dumps(asdict(made)))


def _mapped(path: Path) -> NDArray[Any]:
    """The array in a NumPy file, read where it lies."""
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
@click.argument("directory", type=_DIRECTORY)
@click.option(
    "--sketch", type=click.IntRange(min=1), metavar="COLUMNS", help="So many random features."
)
@click.option(
    "--features",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A NumPy file, a row per node, instead of a sketch; it is mapped, not loaded.",
)
@click.option("-o", "--output", type=_DIRECTORY, required=True, help="A new directory.")
@_MEMORY
@click.option("--alpha", type=float, default=0.2, show_default=True, help="Of the filter.")
@click.option("--high-pass", is_flag=True, help="Adds the filter with alternating signs.")
@click.option("--r-max", type=float, default=1e-2, show_default=True)
@_DTYPE
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@_STORED
@click.option("--threads", type=click.IntRange(min=1), help="Default: all cores.")
@_JSON
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

    Whole passes are kept: repeat the command to go on after an interruption, or to have what was
    damaged since made anew. The residuals of every pass are computed from scratch in float64 before
    it is kept: a pass above what --r-max promises, over a damaged graph, is an error.

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
    with progress(
        "propagate",
        stopped=f"Whole passes are kept in {output}; give the same command again to go on.",
    ) as report:
        made = passes.propagate_in_passes(
            compact.open_graph(directory),
            given,
            output,
            channels=channels,
            progress=report,
            **options,
        )
    for file in made.mended:
        console().print(f"{output / file} was damaged and has been made anew", markup=False)
    seconds = round(time.perf_counter() - begin, 2)
    _describe_embeddings(made, as_json, {"mended": list(made.mended), "seconds": seconds})


@click.group(cls=_Commands)
def embeddings() -> None:
    """What `tidegraph propagate` wrote."""


@embeddings.command("info")
@click.argument("directory", type=_DIRECTORY)
@click.option("--verify", is_flag=True, help="Compares every byte with its digest.")
@_JSON
def embeddings_info(directory: Path, verify: bool, as_json: bool) -> None:
    """Say what is in a directory of embeddings, whether it is whole, and how exact it is.

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
    if as_json:
        facts = {
            "path": str(made.path),
            "nodes": nodes,
            "channels": channels,
            "columns": columns,
            "passes": passes,
            "stored": str(made.dtype),
            "residual": residual,
            "within_promise": not made.excess,
            **more,
        }
        click.echo(json.dumps(facts))
