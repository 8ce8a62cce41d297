"""Read the events a command is about, and report how a file was understood."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.models import events_file
from tidegraph.cli.options import NODE_TABLES, READING_NAMES, node_table, option, reading_options
from tidegraph.cli.terminal import progress
from tidegraph.core.errors import DataError
from tidegraph.core.words import counted

if TYPE_CHECKING:
    from tidegraph.events.read_report import ReadReport
    from tidegraph.events.stream import EventStream


def data_options(command: Callable[..., Any], default: str | None = None) -> Callable[..., Any]:
    """Give a command `data`, from DATA or --data, and how to read it."""

    @click.argument("given", metavar="[DATA]", required=False)
    @option("--data", "The same as DATA.", metavar="NAME|FILE|RUN")
    @reading_options
    @wraps(command)
    def with_data(given: str | None, data: str | None, **options: Any) -> Any:
        if (given is not None and data is not None) or (given or data or default) is None:
            raise click.UsageError(
                "give DATA or --data: the name of a data set, a file of events, or a run"
            )
        name = given or data or default
        require_exists(name)
        return command(data=name, **options)

    return with_data


flights_options = partial(data_options, default="nyc-flights")


def read_events(
    name: str | Path | list[str | Path],
    options: dict[str, Any],
    *,
    any_order: bool = False,
    own_columns: bool = False,
    like: EventStream | None = None,
) -> EventStream:
    """Return the events of a data set, file or files, with what tables say about their nodes.

    Remove `reading_options` and `node_table_options` from `options`.

    any_order: sort the rows of a file even without --sort.
    own_columns: where no --edge-feature names columns of a table, take all that have no other
        role; a column is the weight only if --weight says so.
    like: read them as the events of this stream were read, and let them continue it.

    A `Path` is never the name of a data set; the directory of a run or model has events too.
    """
    labels, features = (options.pop(key, None) for key in NODE_TABLES)
    unit, on_bad = options["unit"], options["on_bad"]
    stream = _read_events(name, options, any_order, own_columns, like)
    if not labels and not features:
        return stream
    from tidegraph.events.node_tables import with_node_features, with_node_labels

    for each in features or ():
        table, how = node_table(each)
        if labels and Path(table).resolve() == Path(node_table(labels)[0]).resolve():
            raise DataError(
                f"{table} is given as --labels and as --node-features, so the labels would be read"
                " as features; give a table of features without them"
            )
        if how.keys() - {"node", "side"}:
            raise DataError(f"--node-features {each}: after FILE: node and side are understood")
        stream = with_node_features(stream, table, on_bad=on_bad, **how)
    if labels:
        table, how = node_table(labels)
        stream = with_node_labels(stream, table, unit=unit, on_bad=on_bad, **how)
    return stream


def _read_events(
    name: str | Path | list[str | Path],
    options: dict[str, Any],
    any_order: bool,
    own_columns: bool,
    like: EventStream | None,
) -> EventStream:
    from tidegraph.events import datasets, formats
    from tidegraph.events.alike import continued, read_like
    from tidegraph.events.datasets import storage
    from tidegraph.events.tables import TableError

    if not isinstance(name, list) and name not in datasets.DATA_SETS:
        name = events_file(name)
    given: dict[str, Any] = {
        key: value
        for key in READING_NAMES
        if (value := options.pop(key, None)) or (key == "bipartite" and value is False)
    }
    format_, on_bad = given.pop("format_", "auto"), given.pop("on_bad")
    source: Any = name
    if not isinstance(name, list):
        as_it_is = name in datasets.DATA_SETS or (Path(name) / storage.DESCRIPTION).is_file()
        if as_it_is or not formats.is_there(name):
            if given and as_it_is:
                raise _needs_no_options(name, given)
            events = datasets.load_dataset(name)
            return events if like is None else continued(events, like)
    columns = [key for key in given if key not in ("unit", "sort")]
    if columns and format_ not in ("auto", "table"):
        raise click.BadParameter(
            f"{format_} says which columns are which; leave out --format or the columns",
            param_hint="--format",
        )
    try:
        if format_ == "auto" and like is None:
            format_, source = ("table", source) if columns else formats.look(source)
        if format_ == "saved":
            if given:
                raise _needs_no_options(source, given)
            return formats.read(source)
        if any_order:
            given["sort"] = True
        if like is not None:
            return read_like(like, source, format=format_, on_bad=on_bad, **given)
        if own_columns and format_ == "table":
            given = {"weight": False, "edge_features": "rest"} | given
        return formats.read(source, format=format_, on_bad=on_bad, **given)
    except TableError as error:
        raise DataError(error.spelled(_as_options)) from error


def require_exists(name: str | None) -> None:
    """Raise the error of reading a name that is neither a data set nor a source, but at once."""
    from tidegraph.events import datasets, formats

    if name is not None and name not in datasets.DATA_SETS and not formats.is_there(name):
        datasets.load_dataset(name)  # raises, and lists what there is


def _needs_no_options(name: str | Path, given: Iterable[str]) -> click.UsageError:
    options = ", ".join(_option(key) for key in given)
    return click.UsageError(f"the columns of {name} are known; leave out {options}")


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


def read_and_report(
    name: str | Path | list[str | Path],
    options: dict[str, Any],
    *,
    quiet: bool = False,
    **more: Any,
) -> EventStream:
    """Return the events as `read_events` does; print how a file was understood, unless `quiet`.

    Warn if a name is read as a data set although a path has it too.
    """
    from tidegraph.events import datasets

    known = isinstance(name, str) and name in datasets.DATA_SETS
    if not known and not isinstance(name, list):
        name = events_file(name)
    tables = any(options.get(key) for key in NODE_TABLES)
    if known and isinstance(name, str) and Path(name).exists() and not quiet:
        kind = "directory" if Path(name).is_dir() else "file"
        click.echo(
            f"{name} is read as the name of a data set; for the {kind} of that name give ./{name}",
            err=True,
        )
    with progress("read", quiet=quiet) as report:
        report(0, 1, f"{name[0]} and {len(name) - 1} more" if isinstance(name, list) else str(name))
        stream = read_events(name, options, **more)
    if quiet or (known and not tables):
        return stream
    if is_saved_stream(name):
        click.echo(f"{name}: {counted(len(stream), 'event')}, {counted(stream.nodes, 'node')}")
    elif stream.report is not None:
        print_report(stream.report)
    return stream


def is_saved_stream(name: str | Path | list[str | Path]) -> bool:
    """Return whether a name is that of a file in tidegraph's own format."""
    from tidegraph.events import formats

    return not isinstance(name, list) and formats.is_saved(name)


def print_report(report: ReadReport) -> None:
    """Print how a file was understood and what became of its rows."""

    for note in report.notes:
        click.echo(f"  {note}")
    click.echo(f"{counted(report.read, 'row')} read, {report.kept:,} kept")
    for reason, rows in report.dropped.items():
        click.echo(f"  {rows:,} dropped: {reason}")
