"""The commands for graphs near the size of memory: `graph`, `plan` and `propagate`."""

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
    STORED_OPTION,
    THREADS_OPTION,
    option,
)
from tidegraph.cli.terminal import Command, Group, console, echo_json, progress, resumable
from tidegraph.core.errors import DataError
from tidegraph.core.words import bytes_in_words, counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidegraph.engine.embeddings import Embeddings

_MEMORY = option(
    "--memory", "What the process may use; files in the page cache do not count.", "8G"
)
_DTYPE = option(
    "--dtype",
    "Of the computation; float64 allows a smaller --r-max, in twice the memory.",
    "float32",
    type=FLOATS,
)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


@click.group(cls=Group)
def graph() -> None:
    """Graphs in files, built in bounded memory and mapped instead of loaded."""


@graph.command("build")
@click.argument("edges", type=click.Path(exists=True, path_type=Path))
@option("-o --output", "A new directory.", type=DIRECTORY, required=True)
@option("--src", "Ids: integers or words. Default: src.", metavar="COLUMN")
@option("--dst", "Likewise. Default: dst.", metavar="COLUMN")
@option(
    "--weight",
    "Kept as float64 numbers, from 2**-64 to 2**64. Default: every row counts one.",
    metavar="COLUMN",
)
@option(
    "--ids",
    "Number nodes in the order of first appearance, or keep ids that are integers from 0 on;"
    " auto keeps them if it can.",
    "auto",
    type=click.Choice(["auto", "keep", "number"]),
)
@option(
    "--nodes", "Number of nodes, if ids are kept. Default: the largest id plus one.", type=COUNT
)
@option("--directed", is_flag=True)
@_MEMORY
@option("--threads", default=2, type=COUNT)
@JSON_OPTION
def build(edges: Path, output: Path, **options: Any) -> None:
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
    resumable(output)
    with progress("build") as report:
        built = building.build(edges, output, progress=report, **options)
    _describe(built, {"seconds": round(time.perf_counter() - begin, 2)})


@graph.command("info")
@click.argument("directory", type=DIRECTORY)
@option("--verify", "Compare every byte with its digest.", is_flag=True)
@JSON_OPTION
def info(directory: Path, verify: bool) -> None:
    """Show what a compact graph holds, and whether it is complete."""
    from tidegraph.engine import compact

    opened = compact.open_graph(directory)
    if verify:
        with progress("verify") as report:
            opened.verify(report)
    _describe(opened, {"verified": verify})


def _describe(built: Any, more: dict[str, Any]) -> None:
    names = ("nodes", "edges", "directed", "weighted", "named", "disk_bytes")
    per_edge = round(built.disk_bytes / max(1, built.edges), 2)
    facts = {"path": str(built.path), **{name: getattr(built, name) for name in names}}
    kind = "directed" if built.directed else "undirected"
    console().print(
        f"{built.path}: {built.nodes:,} nodes, {built.edges:,} {kind} edges,"
        f" {bytes_in_words(built.disk_bytes)}, {per_edge:g} bytes per edge"
        + (", with ids" if built.named else ""),
        markup=False,
    )
    echo_json({**facts, "bytes_per_edge": per_edge, **more})


@click.command(cls=Command)
@option("--nodes", type=COUNT, required=True)
@option("--edges", type=click.IntRange(min=0), required=True)
@option("--columns", type=COUNT, required=True)
@option("--channels", default=1, type=COUNT)
@_MEMORY
@option("--r-max", default=1e-2)
@_DTYPE
@STORED_OPTION
@option("--events", "Of a stream to apply afterwards.", 0, type=click.IntRange(min=0))
@option("--weighted", "Edges have weights, of any size.", is_flag=True)
@JSON_OPTION
def plan(**options: Any) -> None:
    """Estimate what propagating columns over a graph will take.

    \b
      tidegraph plan --nodes 121751665 --edges 1297748926 --columns 64 --memory 8G
    """
    from tidegraph.engine import planning

    made = planning.plan(**options)
    console().print(
        f"{counted(made.passes, 'pass')} of {counted(made.columns_per_pass, 'column')},"
        f" {bytes_in_words(made.memory_bytes)} of memory{' each' if made.passes > 1 else ''}\n"
        f"graph on disk {bytes_in_words(made.graph_bytes)}"
        f" ({bytes_in_words(made.build_disk_bytes)} while it is being built),"
        f" embeddings {bytes_in_words(made.embedding_bytes)}\n"
        f"about {_duration(made.build_s)} to build, {_duration(made.propagate_s)} to propagate"
        + (f", {_duration(made.update_s)} to apply the events" if options["events"] else "")
    )
    echo_json(asdict(made))


def _mapped(path: Path) -> NDArray[Any]:
    """Return the array in a NumPy file, mapped instead of loaded."""
    import numpy as np

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
@option("--columns", "Number of random features.", type=COUNT)
@option(
    "--features",
    "A NumPy file, a row per node, instead of a sketch; it is mapped, not loaded.",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@option("-o --output", "A new directory.", type=DIRECTORY, required=True)
@_MEMORY
@option("--alpha", "Of the filter.", 0.2)
@option("--high-pass", "Add the filter with alternating signs.", is_flag=True)
@option("--r-max", default=1e-2)
@_DTYPE
@SEED_OPTION
@STORED_OPTION
@THREADS_OPTION
@JSON_OPTION
def propagate(
    directory: Path,
    columns: int | None,
    features: Path | None,
    output: Path,
    alpha: float,
    high_pass: bool,
    seed: int,
    **options: Any,
) -> None:
    """Propagate features, random or given, over a compact graph, in passes within the memory given.

    Finished passes are stored: repeat the command to resume after an interruption, or to replace
    files that were damaged since. The residuals of every pass are computed from scratch in float64
    before it is stored: a pass above what --r-max promises, over a damaged graph, is an error.

    \b
      tidegraph propagate mag.graph --columns 64 --memory 8G -o mag.embeddings
      tidegraph propagate mag.graph --features papers.npy -o mag.embeddings
    """
    from tidegraph.engine import compact, passes
    from tidegraph.engine.channels import Channel, Sketch

    given: Sketch | NDArray[Any]
    if columns is not None and features is None:
        given = Sketch(columns, seed=seed)
    elif features is not None and columns is None:
        given = _mapped(features)
    else:
        raise click.UsageError("give --columns or --features FILE, one of the two")

    begin = time.perf_counter()
    channels = [Channel.low_pass(alpha)] + ([Channel.high_pass(alpha)] if high_pass else [])
    resumable(output, "What was finished, pass by pass,")
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
    describe_embeddings(made, {"mended": list(made.mended), "seconds": seconds})


def describe_embeddings(made: Embeddings, more: dict[str, Any]) -> None:
    """Print what passes have stored, and how exact it is."""
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
    results = {
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
    echo_json(results)
