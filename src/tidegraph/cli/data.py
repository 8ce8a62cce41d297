"""The commands `tidegraph data ...`: list, describe, download, import and generate streams."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.options import (
    COUNT,
    DIRECTORY,
    JSON_OPTION,
    NEW_FILE,
    SEED_OPTION,
    WRITABLE_FILE,
    option,
    reading_options,
)
from tidegraph.cli.reading import is_saved_stream, print_report, read_and_report, read_events
from tidegraph.cli.terminal import Group, console, echo_json, progress, table
from tidegraph.core.errors import DataError
from tidegraph.core.words import bytes_in_words, counted

if TYPE_CHECKING:
    from tidegraph.events.describe import Description

_SHARE = click.FloatRange(0, 1, max_open=True)
_FILE = option("-o --output", "A new file.", type=NEW_FILE, required=True)
_DIRECTORY = option("-o --output", "A new or empty directory.", type=DIRECTORY, required=True)


@click.group(cls=Group)
def data() -> None:
    """List, download, describe, import and generate streams of events.

    \b
      tidegraph data list                                all data sets, and where they are
      tidegraph data info wikipedia                      what a stream looks like
      tidegraph data info my.csv --html my.html          your own file, as a page
      tidegraph data fetch reddit                        download what authors publish
      tidegraph data import my.csv -o my.tide            read a file, sort and save it
      tidegraph data generate communities -o toy.tide    synthetic streams of any size
    """


# list ---------------------------------------------------------------------------------------------


@data.command("list")
@JSON_OPTION
def list_() -> None:
    """List the data sets, and where each was found or how to get it.

    They are looked for in $TIDEGRAPH_DATA and in the cache.
    """
    from tidegraph.events import datasets

    listed = table("Data sets", ["name", "title", "events", "nodes"], left=2)
    listed.add_column("where", overflow="fold")
    listed.columns[0].no_wrap = True
    rows = []
    for data_set in datasets.DATA_SETS.values():
        found = datasets.find(data_set)
        if data_set.shipped:
            where = "shipped"
        elif found is not None:
            where = str(found.paths[0])
        elif data_set.published:
            size = bytes_in_words(data_set.about_bytes)
            where = f"tidegraph data fetch {data_set.name} (about {size})"
        else:
            where = f"absent; set TIDEGRAPH_DATA to where {data_set.compact[0][0]} is"
        sizes = f"{data_set.events:,}", f"{data_set.nodes:,}"
        style = None if found else "dim"
        listed.add_row(data_set.name, data_set.title, *sizes, where, style=style)
        names = ("name", "title", "events", "nodes", "unit", "citation")
        about = {name: getattr(data_set, name) for name in names}
        files = [str(path) for path in found.paths] if found else []
        rows.append({**about, "files": files, "urls": [each.url for each in data_set.published]})
    console().print(listed)
    echo_json({"data_sets": rows})


# info ---------------------------------------------------------------------------------------------


@data.command()
@click.argument("names", metavar="NAME|FILE...", nargs=-1, required=True)
@option(
    "--html html_file", "Also write a page with figures that any browser shows.", type=WRITABLE_FILE
)
@reading_options
@JSON_OPTION
def info(names: tuple[str, ...], html_file: Path | None, **options: Any) -> None:
    """Show how a file was understood, and what the stream looks like: counts, span, rhythm, labels.

    NAME is a data set of `tidegraph data list`; FILE is a file of events, in any order, or what
    `tidegraph data import` and `tidegraph data generate` wrote. Files are text (.csv, .txt, ...),
    Parquet, Arrow, lines of JSON, workbooks (.xlsx) or databases, perhaps compressed; several are
    read as one table. Standard input is -.

    \b
      tidegraph data info 'logs/*.csv' --time 0 --date-format %d/%m/%Y
      tidegraph data info shop.db --query "select buyer, item, day from sales"
      zcat calls.csv.gz | tidegraph data info - --html calls.html

    \b
    repeats      how often the same pair meets again; high: remembering pairs predicts well
    time steps   how many events happen at once, and so cannot predict each other
    burstiness   (σ-μ)/(σ+μ) of the gaps between events: near 1, activity comes in bursts
    """
    from tidegraph.events import datasets
    from tidegraph.events.describe import describe

    name: str | list[str | Path] = names[0] if len(names) == 1 else list(names)
    as_it_is = options["sort"] or is_saved_stream(name)
    stream = read_and_report(name, options, any_order=True)
    if not as_it_is and stream.report is not None and stream.report.out_of_order:
        click.echo("  (only here and by tidegraph run; other commands need --sort)")
    with progress("info") as report:
        report(0, 1, f"describing {len(stream):,} events")
        what = describe(stream)
    data_set = datasets.DATA_SETS.get(names[0])
    _print_description(what, None if data_set is None else data_set.citation)
    if html_file is not None:
        from tidegraph.report.description import description

        html_file.write_text(description(what, stream.report), encoding="utf-8")
        click.echo(f"Wrote {html_file}")
    read = None if stream.report is None else stream.report.to_dict()
    echo_json({"data": " ".join(names), **what.as_dict(), "report": read})


def _print_description(what: Description, citation: str | None) -> None:
    from rich.markup import escape

    from tidegraph.events.describe import bars, facts

    out = console()
    # Block characters on terminals that show them; ASCII for files and all other terminals.
    plain = not (out.is_terminal and out.encoding.startswith("utf"))
    out.print(f"[bold]{escape(what.title)}[/]")
    lines = facts(what)
    if citation is not None:
        lines.append(("cite", citation))
    for name, value in lines:
        out.print(f"  {name:<15} {value}", markup=False, soft_wrap=True)
    out.print(f"\nEvents over time (a full column is {max(what.activity):,})")
    for line in bars(what.activity, plain=plain):
        out.print(f"  {line}", markup=False)
    begin = what.first_date or f"{what.first:,}"
    end = what.last_date or f"{what.last:,}"
    out.print(f"  {begin}{end:>{max(1, len(what.activity) - len(begin))}}", markup=False)
    out.print("\nNodes by number of events")
    peak = max(count for _, _, count in what.degrees)
    for low, high, count in what.degrees:
        several = f"{low:,}" if low == high else f"{low:,}-{high:,}"
        bar = ("#" if plain else "█") * -(-40 * count // peak)
        out.print(f"  {several:>21} {bar} {count:,}", markup=False)


# fetch --------------------------------------------------------------------------------------------


@data.command()
@click.argument("name")
@option(
    "--directory",
    "Where to put it. Default: tidegraph/ in $XDG_CACHE_HOME or ~/.cache.",
    type=DIRECTORY,
)
@JSON_OPTION
def fetch(name: str, directory: Path | None) -> None:
    """Download a data set as its authors publish it.

    No checksums are published: that of the first download is stored next to the file
    (FILE.sha256), and every later download and read is compared with it.
    """
    from tidegraph.events import datasets

    with progress("fetch") as report:
        paths = datasets.fetch(name, directory=directory, progress=report)
    for path in paths:
        click.echo(f"{path} ({path.stat().st_size:,} bytes)")
    echo_json({"data": name, "files": [str(path) for path in paths]})


# import -------------------------------------------------------------------------------------------


@data.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@_FILE
@reading_options
@JSON_OPTION
def import_(files: tuple[str, ...], output: Path, **options: Any) -> None:
    """Read events from FILE, report how it was understood, and save them in a fast format.

    FILE is anything that `tidegraph data info` reads, or the address of a database.

    Columns and unit are guessed if they are not given. The result is one checksummed file that also
    holds ids, unit, labels and features; every --data option and load_dataset read it, much faster
    than text.

    \b
      tidegraph data import calls.csv --src caller --dst callee --time when --sort -o calls.tide
      tidegraph data import sqlite:///shop.db --query "select * from calls" --sort -o calls.tide
      tidegraph data info calls.tide
    """
    from tidegraph.events import formats

    for file in files:
        if not formats.is_there(file):
            raise DataError(f"there is no file {file}; give the path of a table")
    paths: list[str | Path] = [Path(file) if Path(file).exists() else file for file in files]
    with progress("import") as report:
        report(0, 2, f"reading {files[0]}")
        stream = read_events(paths[0] if len(paths) == 1 else paths, options)
        report(1, 2, f"writing {len(stream):,} events")
        stream.save(output)
    events, read = len(stream), {}
    if stream.report is not None:
        print_report(stream.report)
        read = {key: getattr(stream.report, key) for key in ("read", "kept", "dropped", "notes")}
    _echo_written(output, events, stream.nodes)
    sizes = {"events": events, "nodes": stream.nodes, "unit": stream.unit}
    echo_json({"output": str(output), **sizes, **read})


def _echo_written(output: Path, events: int, nodes: int, more: str = "") -> None:
    between = f"{counted(events, 'event')} between {counted(nodes, 'node')}"
    click.echo(f"Wrote {output}: {between}{more}")


# generate -----------------------------------------------------------------------------------------


@data.group()
def generate() -> None:
    """Generate streams with the properties of real ones, of any size and from a seed.

    The same options and seed give the same stream.
    """


@generate.command()
@_FILE
@option("--nodes", default=1_000, type=click.IntRange(min=2))
@option("--events", default=50_000, type=COUNT)
@option("--communities", default=5, type=click.IntRange(min=2))
@option(
    "--switches",
    "How often a node moves to another community, on average.",
    1.0,
    type=click.FloatRange(min=0),
)
@option(
    "--mixing",
    "Share of fresh events that leave the community.",
    0.1,
    type=_SHARE,
)
@option(
    "--repeats",
    "Share of events that repeat a recent pair.",
    0.3,
    type=_SHARE,
)
@SEED_OPTION
@JSON_OPTION
def communities(output: Path, **options: Any) -> None:
    """Generate communities between which nodes move: for links, and for labels that change.

    The label of an event is the community of its source at the event; node labels are the
    community of every node and the time from which it holds.
    """
    from tidegraph.events import datasets

    with progress("generate") as report:
        report(0, 1, f"{options['events']:,} events")
        stream = datasets.generate_communities(**options)
        stream.save(output)
    _echo_written(output, len(stream), stream.nodes)
    echo_json({"output": str(output), **options})


@generate.command()
@_DIRECTORY
@option("--nodes", default=16_682, type=click.IntRange(min=4))
@option("--events", default=191_290_882, type=COUNT)
@option("--pairs", "Distinct pairs, from --nodes upwards.", 200_000, type=COUNT)
@option("--steps", default=170_522, type=COUNT)
@option("--classes", default=81, type=click.IntRange(min=2))
@option("--changes", "How often a label changes, on average.", 8.0, type=click.FloatRange(min=0))
@option("--features", default=413, type=click.IntRange(min=0))
@SEED_OPTION
@JSON_OPTION
def gdelt(output: Path, **options: Any) -> None:
    """Generate a look-alike of GDELT: few actors, many repeated events, labels that change.

    The full size takes some minutes and 1 GB of disk; to try it out: --events 1000000.
    """
    from tidegraph.events import datasets

    _generate(datasets.generate_gdelt_like, "events", output, options)


@generate.command()
@_DIRECTORY
@option("--nodes", default=121_751_665, type=click.IntRange(min=2))
@option("--edges", default=1_297_748_926, type=COUNT)
@option("--years", default=120, type=COUNT)
@option("--classes", default=152, type=COUNT)
@option("--features", "Columns of float32 per paper.", 0, type=click.IntRange(min=0))
@SEED_OPTION
@JSON_OPTION
def mag(output: Path, **options: Any) -> None:
    """Generate a look-alike of MAG: a citation graph that grows over the years.

    The full size takes about an hour; to try it out: --nodes 100000 --edges 1000000.
    """
    from tidegraph.events import datasets

    _generate(datasets.generate_mag_like, "edges", output, options)


def _generate(make: Any, rows: str, output: Path, options: dict[str, Any]) -> None:
    start = time.perf_counter()
    with progress("generate") as report:
        path = make(output, progress=report, **options)
    elapsed_s = time.perf_counter() - start
    rate = options[rows] / elapsed_s
    size = sum(file.stat().st_size for file in path.iterdir())
    more = f", {size / 1e6:,.1f} MB, {rate:,.0f} events/s"
    _echo_written(path, options[rows], options["nodes"], more)
    echo_json({"output": str(path), **options, "bytes": size, "events_per_s": rate})
