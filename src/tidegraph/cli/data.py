"""The commands `tidegraph data ...`: which data there is, what it looks like, how to get more."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidegraph.cli.terminal import Command, console, progress, table
from tidegraph.core.errors import DataError

if TYPE_CHECKING:
    from tidegraph.events.describe import Description
    from tidegraph.events.read_report import ReadReport
    from tidegraph.events.stream import EventStream

__all__ = [
    "READING_NAMES",
    "check_there",
    "data",
    "echo_read",
    "engine_options",
    "read_events",
    "reading_options",
    "refuse_to_overwrite",
    "tell_which",
    "told_events",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON."
)
_FILE = click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="A new file.",
)
_DIRECTORY = click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="A new or empty directory.",
)
_SEED = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)

_READING = (
    click.option(
        "--format",
        "format_",
        type=click.Choice(["auto", "table", "jodie", "tgn", "tgl", "snap"]),
        default="auto",
        show_default=True,
        help="Of the file.",
    ),
    click.option("--src", metavar="COLUMN", help="Who acts. Default: guessed, and said."),
    click.option("--dst", metavar="COLUMN", help="On whom."),
    click.option("--time", "t", metavar="COLUMN", help="When."),
    click.option("--weight", metavar="COLUMN", help="How much; above 0."),
    click.option("--label", metavar="COLUMN", help="The state of the source at the event."),
    click.option(
        "--edge-feature",
        "edge_features",
        multiple=True,
        metavar="COLUMN",
        help="A number that describes the event; may be given several times.",
    ),
    click.option(
        "--bipartite",
        is_flag=True,
        help="An id is one node as --src and another as --dst, as in tables of users and items.",
    ),
    click.option("--unit", help="Of the times: ns, us, ms, s, min, h, day, year or step."),
    click.option("--sort", is_flag=True, help="Sorts rows by time instead of refusing them."),
    click.option(
        "--on-bad",
        type=click.Choice(["error", "drop"]),
        default="error",
        show_default=True,
        help="Whether a row that cannot be used is an error, or dropped and counted.",
    ),
)
READING_NAMES = (
    *("format_", "src", "dst", "t", "weight", "label", "edge_features"),
    *("bipartite", "unit", "sort", "on_bad"),
)


def engine_options(work: str) -> Callable[[_Command], _Command]:
    """Where a command does its pieces of `work`: here, or on a Ray cluster."""

    def with_options(command: _Command) -> _Command:
        engine = click.option(
            "--engine",
            type=click.Choice(["local", "ray"]),
            default="local",
            show_default=True,
            help=f"One {work} after the other here, or side by side on a Ray cluster.",
        )
        address = click.option(
            "--address",
            metavar="ADDRESS",
            help="Of a running Ray cluster, such as auto. Default: one is started on this machine.",
        )
        workers = click.option(
            "--workers",
            type=click.IntRange(min=1),
            help=f"{work.capitalize()}s at a time, with --engine ray.",
        )
        return engine(address(workers(command)))

    return with_options


def reading_options(command: _Command) -> _Command:
    """Gives a command the options that say how a file of events is to be understood."""
    for option in reversed(_READING):
        command = option(command)
    return command


def read_events(
    name: str | Path, options: dict[str, Any], *, any_order: bool = False
) -> EventStream:
    """The events of a data set or file; takes the values of `reading_options` out of `options`.

    any_order: rows of a file are sorted, whether or not that was asked for.

    A `Path` is never taken for the name of a data set. Where an id means two nodes, nodes have
    names: the file's ids after "src" or "dst".
    """
    from tidegraph.events import datasets, formats
    from tidegraph.events.datasets import storage
    from tidegraph.events.names import NodeNames
    from tidegraph.events.tables import TableError

    given = {key: value for key in READING_NAMES if (value := options.pop(key))}
    format_, on_bad = given.pop("format_"), given.pop("on_bad")
    path = Path(name)
    as_it_is = name in datasets.DATA_SETS or (path / storage.DESCRIPTION).is_file()
    if as_it_is or not path.exists():
        if given and as_it_is:
            raise _needs_no_options(name, given)
        return datasets.load_dataset(name)
    columns, source = [key for key in given if key not in ("unit", "sort")], path
    if columns and format_ not in ("auto", "table"):
        raise click.BadParameter(
            f"{format_} says which columns are which; leave out --format or the columns",
            param_hint="--format",
        )
    if format_ == "auto":
        format_, source = ("table", path) if columns else formats.look(path)
    if format_ == "saved":
        if given:
            raise _needs_no_options(name, given)
        return formats.read(path)
    if any_order:
        given["sort"] = True
    try:
        stream = formats.read(source, format=format_, on_bad=on_bad, **given)
    except TableError as error:
        raise DataError(error.spelled(_as_options)) from error
    if stream.names is None and (format_ == "jodie" or "bipartite" in given):
        users = int(stream.src.max()) + 1
        names = NodeNames.of_sides(range(users), range(stream.nodes - users))
        stream = replace(stream, names=names)
    return stream


def check_there(name: str) -> None:
    """Refuses a name that is neither a data set nor a path, as reading it would, but at once."""
    from tidegraph.events import datasets

    if name not in datasets.DATA_SETS and not Path(name).exists():
        datasets.load_dataset(name)  # says what there is


def _needs_no_options(name: str | Path, given: Iterable[str]) -> click.UsageError:
    options = ", ".join(_option(key) for key in given)
    return click.UsageError(f"{name} says itself what its columns are; leave out {options}")


def _option(key: str) -> str:
    """Return how the command line spells an option of `read_table`."""
    return {"t": "--time", "edge_features": "--edge-feature"}.get(key, f"--{key.replace('_', '-')}")


def _as_options(options: Mapping[str, Any]) -> str | None:
    """Return options of `read_table` as words of the command line; None for those it lacks."""
    words = []
    for key, value in options.items():
        if value is False:
            return None
        values = value if isinstance(value, list) else [value]
        words += [_option(key) if v is True else f"{_option(key)} {shlex.quote(v)}" for v in values]
    return " ".join(words)


def told_events(
    name: str | Path, options: dict[str, Any], *, any_order: bool = False
) -> EventStream:
    """As `read_events`; says how a file was understood, and shows progress."""
    tell_which(name)
    with progress("read") as report:
        report(0, 1, str(name))
        stream = read_events(name, options, any_order=any_order)
    echo_read(name, stream)
    return stream


def tell_which(name: str | Path) -> None:
    """Says which one is taken where both a data set and something that lies here have the name."""
    from tidegraph.events import datasets

    if name in datasets.DATA_SETS and Path(name).exists():
        kind = "directory" if Path(name).is_dir() else "file"
        click.echo(
            f"{name} is taken as the name of a data set; for the {kind} that lies here give"
            f" ./{name}",
            err=True,
        )


def echo_read(name: str | Path, stream: EventStream) -> None:
    """Says how a file was understood, or in one line what it holds where `import` said it."""
    from tidegraph.core.words import counted
    from tidegraph.events import datasets

    if name in datasets.DATA_SETS:
        return
    if _is_saved(name):
        click.echo(f"{name}: {counted(len(stream), 'event')}, {counted(stream.nodes, 'node')}")
    elif stream.report is not None:
        echo_report(stream.report)


def _is_saved(name: str | Path) -> bool:
    from tidegraph.events import formats

    return Path(name).is_file() and formats.is_saved(name)


def echo_report(report: ReadReport) -> None:
    """Says how a file was understood and what became of its rows."""
    for note in report.notes:
        click.echo(f"  {note}")
    from tidegraph.core.words import counted

    click.echo(f"{counted(report.read, 'row')} read, {report.kept:,} kept")
    for reason, rows in report.dropped.items():
        click.echo(f"  {rows:,} dropped: {reason}")


class _Commands(click.Group):
    command_class = Command
    group_class = type


@click.group(cls=_Commands)
def data() -> None:
    """List, fetch, look at, import and make up streams of events.

    \b
      tidegraph data list                                what there is, and where
      tidegraph data info wikipedia                      what a stream looks like
      tidegraph data info my.csv --html my.html          ... of your own, as a page
      tidegraph data fetch reddit                        download what authors publish
      tidegraph data import my.csv -o my.tide            understand columns, sort, save
      tidegraph data generate communities -o toy.tide    made-up streams of any size
    """


# list ---------------------------------------------------------------------------------------------


@data.command("list")
@_JSON
def list_(as_json: bool) -> None:
    """Say which data sets there are, and where each was found or how to get it.

    They are looked for in $TIDEGRAPH_DATA and the cache.
    """
    from tidegraph.core.words import bytes_in_words
    from tidegraph.events import datasets

    listed = table("Data sets", ["name", "title", "events", "nodes", "where"])
    for column in (0, 1, 4):
        listed.columns[column].justify = "left"
    listed.columns[0].no_wrap = True
    listed.columns[4].overflow = "fold"
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
        listed.add_row(
            data_set.name,
            data_set.title,
            f"{data_set.events:,}",
            f"{data_set.nodes:,}",
            where,
            style=None if found else "dim",
        )
        rows.append(
            {
                "name": data_set.name,
                "title": data_set.title,
                "events": data_set.events,
                "nodes": data_set.nodes,
                "unit": data_set.unit,
                "files": [str(path) for path in found.paths] if found else [],
                "urls": [file.url for file in data_set.published],
                "citation": data_set.citation,
            }
        )
    console().print(listed)
    if as_json:
        click.echo(json.dumps({"data_sets": rows}))


# info ---------------------------------------------------------------------------------------------


@data.command()
@click.argument("name", metavar="NAME|FILE")
@click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also writes a page with pictures; it needs nothing but a browser.",
)
@reading_options
@_JSON
def info(name: str, html_file: Path | None, as_json: bool, **options: Any) -> None:
    """Show what a stream looks like: counts, span, repetition, rhythm, degrees, labels.

    NAME is a data set of `tidegraph data list`; FILE is a file of events, in any order, or what
    `tidegraph data import` and `tidegraph data generate` wrote.

    \b
    repeats      how often the same pair meets again; high: memory of pairs is a strong baseline
    time steps   how many events happen at once, and so cannot inform each other
    burstiness   (σ-μ)/(σ+μ) of the gaps between events: near 1, activity comes in bursts
    """
    from tidegraph.events import datasets
    from tidegraph.events.describe import describe, page

    if html_file is not None and not html_file.absolute().parent.is_dir():
        raise click.BadParameter(f"{html_file.parent} is not a directory", param_hint="--html")
    as_it_is = options["sort"] or _is_saved(name)
    stream = told_events(name, options, any_order=True)
    if not as_it_is and stream.report is not None and stream.report.out_of_order:
        click.echo("  (for a look; other commands but run ask for --sort)")
    with progress("info") as report:
        report(0, 1, f"describing {len(stream):,} events")
        what = describe(stream)
    data_set = datasets.DATA_SETS.get(name)
    _print_description(what, None if data_set is None else data_set.citation)
    if html_file is not None:
        html_file.write_text(page(what), encoding="utf-8")
        click.echo(f"Wrote {html_file}")
    if as_json:
        click.echo(json.dumps({"data": name, **what.as_dict()}))


def _print_description(what: Description, citation: str | None) -> None:
    from rich.markup import escape

    from tidegraph.events.describe import bars, facts

    out = console()
    # Blocks where a person looks on; ASCII for files and terminals that cannot show more.
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
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to put it. Default: tidegraph/ in $XDG_CACHE_HOME or ~/.cache.",
)
@_JSON
def fetch(name: str, directory: Path | None, as_json: bool) -> None:
    """Download a data set as its authors publish it.

    No checksums are published: the one of the first download is recorded beside the file
    (FILE.sha256), and every later download and read is compared with it.
    """
    from tidegraph.events import datasets

    with progress("fetch") as report:
        paths = datasets.fetch(name, directory=directory, progress=report)
    for path in paths:
        click.echo(f"{path} ({path.stat().st_size:,} bytes)")
    if as_json:
        click.echo(json.dumps({"data": name, "files": [str(path) for path in paths]}))


# import -------------------------------------------------------------------------------------------


@data.command("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@_FILE
@reading_options
@_JSON
def import_(file: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Read events from FILE, say how they were understood, and save them for later.

    Columns and unit are guessed where they are not given. The result is one checksummed file that
    holds ids, unit, labels and features too; every --data option and load_dataset read it, and much
    faster than text.

    \b
      tidegraph data import calls.csv --src caller --dst callee --time when --sort -o calls.tide
      tidegraph data info calls.tide
    """
    refuse_to_overwrite(output)
    with progress("import") as report:
        report(0, 2, f"reading {file}")
        stream = read_events(file, options)
        report(1, 2, f"writing {len(stream):,} events")
        stream.save(output)
    result: dict[str, Any] = {
        "output": str(output),
        "events": len(stream),
        "nodes": stream.nodes,
        "unit": stream.unit,
    }
    if stream.report is not None:
        read = stream.report
        echo_report(read)
        result |= {
            "read": read.read,
            "kept": read.kept,
            "dropped": read.dropped,
            "notes": list(read.notes),
        }
    _echo_written(output, len(stream), stream.nodes)
    if as_json:
        click.echo(json.dumps(result))


def _echo_written(output: Path, events: int, nodes: int, more: str = "") -> None:
    from tidegraph.core.words import counted

    between = f"{counted(events, 'event')} between {counted(nodes, 'node')}"
    click.echo(f"Wrote {output}: {between}{more}")


def refuse_to_overwrite(output: Path) -> None:
    if output.exists():
        raise DataError(f"{output} exists already; give another --output, or delete it")
    if not output.absolute().parent.is_dir():
        raise DataError(f"{output.absolute().parent} is not a directory; make it first")


# generate -----------------------------------------------------------------------------------------


@data.group()
def generate() -> None:
    """Make up streams that have what real ones have, of any size and from a seed.

    The same options and seed give the same stream.
    """


@generate.command()
@_FILE
@click.option("--nodes", type=click.IntRange(min=2), default=1_000, show_default=True)
@click.option("--events", type=click.IntRange(min=1), default=50_000, show_default=True)
@click.option("--communities", type=click.IntRange(min=2), default=5, show_default=True)
@click.option(
    "--switches",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="How often a node moves to another community, on average.",
)
@click.option(
    "--mixing",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.1,
    show_default=True,
    help="Share of fresh events that leave the community.",
)
@click.option(
    "--repeats",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.3,
    show_default=True,
    help="Share of events that repeat a recent pair.",
)
@_SEED
@_JSON
def communities(output: Path, as_json: bool, **options: Any) -> None:
    """Communities between which nodes move: a toy for links and for labels that change.

    The label of an event is the community of its source at the event; node labels are the
    community of every node and the time from which it holds.
    """
    from tidegraph.events import datasets

    refuse_to_overwrite(output)
    with progress("generate") as report:
        report(0, 1, f"{options['events']:,} events")
        stream = datasets.generate_communities(**options)
        stream.save(output)
    _echo_written(output, len(stream), stream.nodes)
    if as_json:
        click.echo(json.dumps({"output": str(output), **options}))


@generate.command()
@_DIRECTORY
@click.option("--nodes", type=click.IntRange(min=4), default=16_682, show_default=True)
@click.option("--events", type=click.IntRange(min=1), default=191_290_882, show_default=True)
@click.option(
    "--pairs",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Distinct pairs, from --nodes upwards.",
)
@click.option("--steps", type=click.IntRange(min=1), default=170_522, show_default=True)
@click.option("--classes", type=click.IntRange(min=2), default=81, show_default=True)
@click.option(
    "--changes",
    type=click.FloatRange(min=0),
    default=8.0,
    show_default=True,
    help="How often a label is drawn anew, on average.",
)
@click.option("--features", type=click.IntRange(min=0), default=413, show_default=True)
@_SEED
@_JSON
def gdelt(output: Path, as_json: bool, **options: Any) -> None:
    """Few actors, very many repeated events, labels that change: in the shape of GDELT.

    Full size takes some minutes and 1 GB of disk; for a try: --events 1000000.
    """
    from tidegraph.events import datasets

    _generate(datasets.generate_gdelt_like, "events", output, as_json, options)


@generate.command()
@_DIRECTORY
@click.option("--nodes", type=click.IntRange(min=2), default=121_751_665, show_default=True)
@click.option("--edges", type=click.IntRange(min=1), default=1_297_748_926, show_default=True)
@click.option("--years", type=click.IntRange(min=1), default=120, show_default=True)
@click.option("--classes", type=click.IntRange(min=1), default=152, show_default=True)
@click.option(
    "--features",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Columns of float32 per paper.",
)
@_SEED
@_JSON
def mag(output: Path, as_json: bool, **options: Any) -> None:
    """A citation graph that grows over the years: in the shape of MAG.

    Full size takes some quarters of an hour; for a try: --nodes 100000 --edges 1000000.
    """
    from tidegraph.events import datasets

    _generate(datasets.generate_mag_like, "edges", output, as_json, options)


def _generate(
    make: Any, counted: str, output: Path, as_json: bool, options: dict[str, Any]
) -> None:
    start = time.perf_counter()
    with progress("generate") as report:
        path = make(output, progress=report, **options)
    elapsed_s = time.perf_counter() - start
    rate = options[counted] / elapsed_s
    size = sum(file.stat().st_size for file in path.iterdir())
    more = f", {size / 1e6:,.1f} MB, {rate:,.0f} events/s"
    _echo_written(path, options[counted], options["nodes"], more)
    if as_json:
        click.echo(
            json.dumps({"output": str(path), **options, "bytes": size, "events_per_s": rate})
        )
