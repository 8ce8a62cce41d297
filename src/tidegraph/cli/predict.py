"""The command `tidegraph predict`."""

from __future__ import annotations

import bisect
import csv
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.options import COUNT, JSON_OPTION, NEW_FILE, PATH, option
from tidegraph.cli.results import moment_text, names_by_side
from tidegraph.cli.terminal import Command, echo_json
from tidegraph.core.errors import DataError, StateFileError
from tidegraph.core.words import counted

if TYPE_CHECKING:
    from tidegraph.events.stream import EventStream


@click.command(cls=Command)
@click.argument("model", metavar="DIRECTORY", type=PATH)
@option("--src", "Who acts, by the id in your data.", metavar="ID")
@option("--dst", "On whom.", metavar="ID")
@option("--t when", "When. Default: just after the last event.", metavar="T")
@option(
    "--pairs",
    "A CSV with columns src, dst and perhaps t; - reads standard input.",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
)
@option(
    "--events",
    "For a model of events: a table with the columns of its data, in order of time.",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
)
@option("--rank", "The K likeliest destinations of --src.", type=COUNT, metavar="K")
@option("--new", "With --rank: only those --src has not met before.", is_flag=True)
@option("-o --output", "Write the CSV there instead of to standard output.", type=NEW_FILE)
@JSON_OPTION
def predict(
    model: Path,
    src: str | None,
    dst: str | None,
    when: str | None,
    pairs: Path | None,
    events: Path | None,
    rank: int | None,
    new: bool,
    output: Path | None,
) -> None:
    """Predict how likely links are, or classes of events, with a model of tidegraph train or run.

    DIRECTORY is what train was given as -o, or a run such as runs/calls (the model of its first
    seed).

    \b
      tidegraph predict calls.model --src ann --dst bob             just after the last event
      tidegraph predict calls.model --src ann --dst bob --t 2024-05-01T12:00
      tidegraph predict calls.model --src ann --rank 5              who is next
      tidegraph predict calls.model --pairs asked.csv -o answers.csv
      tidegraph predict payments.model --events today.csv -o answers.csv

    Ids are those of your data. T is a number in the unit of the data or, where that is s, ms, us or
    ns, an ISO date (UTC where no zone is written); an answer for T uses the events before T. The
    result is a CSV whose last column is the probability among pairs like those of the training: a
    true link against random destinations and past pairs. It ranks pairs; it is not the share of
    all possible pairs that will meet.

    With --events the result has the class and the calibrated probability of each class for every
    row, from what the row carries and all events before it: those of the model, and rows of FILE
    that are later than these. A label in FILE counts once it is known; new nodes are welcome.
    """
    directory = _model_directory(model)
    task = _task(directory)
    if (task == "events") != (events is not None):
        wanted = _ASKED_BY[task]
        raise click.UsageError(f"{model} holds a model of the task {task}; {wanted}")
    if events is not None:
        if not all(given in (None, False) for given in (src, dst, when, pairs, rank, new)):
            raise click.UsageError("--events goes with -o only; leave out the others")
        _predict_events(model, directory, events, output)
        return
    if pairs is not None and (src is not None or dst is not None or rank is not None or new):
        raise click.UsageError("--pairs goes with --t only; leave out the others")
    if pairs is None and src is None:
        raise click.UsageError("give --src with --dst or --rank, or --pairs FILE")
    if pairs is None and (dst is None) == (rank is None):
        raise click.UsageError("give --dst ID for one pair, or --rank K for the likeliest ones")
    if new and rank is None:
        raise click.UsageError("--new belongs to --rank")
    asked = _Pairs({"src": [src or ""], "dst": [dst or ""]}) if pairs is None else _pairs(pairs)
    from tidegraph.learning.tasks import LinkPredictor

    predictor = LinkPredictor.load(directory)
    stream = predictor.stream
    now = int(stream.t[-1]) + 1 if when is None else stream.time(when)
    span = int(stream.t[-1]) - int(stream.t[0])
    if not int(stream.t[0]) < now <= int(stream.t[-1]) + max(1, span):
        click.echo(
            f"Note: {moment_text(now, stream.unit)} is far from the events, which are from"
            f" {moment_text(int(stream.t[0]), stream.unit)} to"
            f" {moment_text(int(stream.t[-1]), stream.unit)}; expect little from an answer there",
            err=True,
        )
    columns: dict[str, list[Any]]
    if rank is not None:
        nodes, found = predictor.rank(asked.nodes("src", stream)[0], now, rank, without_known=new)
        side = "dst " if names_by_side(stream) else ""
        names = [str(name).removeprefix(side) for name in stream.name(nodes)]
        columns = {"rank": list(range(1, len(names) + 1)), "dst": names}
        if len(names) < rank:
            only = "that it has not met" if new else "that were destinations before"
            there = f"only {counted(len(names), 'node')}" if names else "no nodes"
            click.echo(f"Note: there are {there} {only}", err=True)
    else:
        columns = {} if pairs is not None else {"t": [when or str(now)]}
        columns = {**asked.columns, **columns}
        t = asked.times(stream) if "t" in asked.columns else now
        ends = asked.nodes("src", stream), asked.nodes("dst", stream)
        found = predictor.predict_proba(*ends, t)
    header = [*columns, "probability"]
    rows = [[*cells, f"{each:.6g}"] for *cells, each in zip(*columns.values(), found, strict=True)]
    _write(output, header, rows)
    answers = [
        {**dict(zip(header, row, strict=True)), "probability": float(row[-1])} for row in rows
    ]
    echo_json({"model": str(model), "t": now, "unit": stream.unit, "answers": answers})


def _write(output: Path | None, header: list[str], rows: list[list[Any]]) -> None:
    with click.open_file(str(output or "-"), "w", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    if output is not None:
        click.echo(f"Wrote {output}: {counted(len(rows), 'row')}", err=True)


# How to ask the model of each task.
_ASKED_BY = {
    "link": "leave --events out, and give --src or --pairs",
    "node": "in Python, NodeClassifier.load reads it",
    "events": "give --events FILE",
}


def _task(directory: Path) -> str:
    """Return the task of a saved model."""
    about = json.loads((directory / "settings.json").read_bytes())
    tasks = {"NodeClassifier": "node", "EventClassifier": "events"}
    return tasks.get(about.get("task"), "link")


def _predict_events(model: Path, directory: Path, file: Path, output: Path | None) -> None:
    """Write the class and the probabilities of every row of a table."""
    from tidegraph.events import moments
    from tidegraph.learning.tasks import EventClassifier

    classifier = EventClassifier.load(directory)
    stream = classifier.stream
    asked = _events_like(stream, file).continuing(stream)
    later = asked.where(asked.t > stream.t[-1])
    if len(later):
        classifier.advance(later)
    found = classifier.predict_proba(asked)
    names = classifier.class_names
    side = names_by_side(stream)
    ends = [
        [str(name).removeprefix(f"{end} " if side else "") for name in asked.name(nodes)]
        for end, nodes in (("src", asked.src), ("dst", asked.dst))
    ]
    times = [moments.dates(t, t, asked.unit)[0] or t for t in asked.t.tolist()]
    header = ["src", "dst", "t", "class", *(f"probability of {name}" for name in names)]
    likeliest = [names[k] for k in found.argmax(axis=1).tolist()]
    probabilities = [[f"{each:.6g}" for each in row] for row in found.tolist()]
    cells = zip(*ends, times, likeliest, probabilities, strict=True)
    rows = [[*row, *each] for *row, each in cells]
    _write(output, header, rows)
    answers = [dict(zip(header, [*row[:4], *map(float, row[4:])], strict=True)) for row in rows]
    echo_json({"model": str(model), "unit": stream.unit, "answers": answers})


def _events_like(stream: EventStream, file: Path) -> EventStream:
    """Read a table with the columns that the stream was read from; a label may be missing."""
    from tidegraph.events.moments import PER_SECOND
    from tidegraph.events.own_columns import carried_columns
    from tidegraph.events.tables import TableError, read_table, sources

    uses = {} if stream.report is None else stream.report.columns
    roles: dict[str, Any] = {role: use.column for role, use in uses.items()}
    if "label" in roles and roles["label"] not in sources.source_of(file, None, None).columns:
        del roles["label"]
    options = {"weight": False, "label": False, "edge_features": carried_columns(stream)} | roles
    if stream.weight is None:
        options["weight"] = False  # one that was <= 0 became a feature
    remarks = " ".join(() if stream.report is None else stream.report.remarks)
    given = re.search(r"t (?:counts (\w+), as given|has fractions of (\w+))", remarks)
    unit = None if given is None else given[1] or given[2]
    try:
        events = read_table(file, bipartite=names_by_side(stream), unit=unit, **options)
    except TableError as error:
        raise DataError(error.spelled(lambda _: None)) from error
    finer = [PER_SECOND.get(each, 0) for each in (stream.unit, events.unit)]
    if finer[0] > finer[1] > 0:  # this file needs no fractions
        events = replace(events, t=events.t * (finer[0] // finer[1]), unit=stream.unit)
    return events


def _model_directory(path: Path) -> Path:
    """Return the directory of the model: `path` itself, or that of the first seed of a run."""
    # As `runs.training` names it; importing that would take longer than this answer.
    unfinished = path.absolute().with_name(f"{path.absolute().name}.unfinished")
    if (path / "model.safetensors").is_file():
        return path
    if (path / "config.toml").is_file():
        return _model_of_run(path)
    if unfinished.exists():
        raise StateFileError(
            f"the training of {path} was not finished; give the same tidegraph train command again"
            " to resume it"
        )
    problem = "holds no model" if path.exists() else "does not exist"
    raise StateFileError(
        f"{path} {problem}; give a directory that tidegraph train wrote (its -o), or one of"
        " tidegraph run (runs/NAME)"
    )


def _model_of_run(path: Path) -> Path:
    from tidegraph.runs import config
    from tidegraph.runs.directory import CONFIG, model_directory

    settings = config.read(path / CONFIG)
    first = next(iter(settings.get("seeds") or [0]))
    model = model_directory(path, first)
    if not (model / "model.safetensors").is_file():
        raise StateFileError(
            f"the run in {path} has no model yet; tidegraph resume {path} trains it"
        )
    return model


@dataclass(frozen=True)
class _Pairs:
    """Pairs as the user wrote them, by column, and where each row is."""

    columns: dict[str, list[str]]
    place: Callable[[int], str] | None = None  # None: they were given as options

    def nodes(self, side: Any, stream: EventStream) -> Any:
        """Return the numbers of the sources, or destinations, of all pairs."""
        return self._converted(side, lambda ids: stream.number(ids, side))

    def times(self, stream: EventStream) -> Any:
        """Return the times of all pairs, in the unit of the stream."""
        return self._converted("t", lambda words: [stream.time(word) for word in words])

    def _converted(self, column: str, convert: Callable[[Sequence[str]], Any]) -> Any:
        """Return a column converted, or raise DataError with the place of the first bad cell."""
        cells = [cell.strip() for cell in self.columns[column]]

        def fails(count: int) -> bool:
            try:
                convert(cells[:count])
            except DataError:
                return True
            return False

        try:
            return convert(cells)
        except DataError:
            row = bisect.bisect_left(range(len(cells)), True, key=lambda last: fails(last + 1))
        where = f"--{column}" if self.place is None else f"{self.place(row)}, {column}"
        try:
            return convert(cells[row : row + 1])
        except DataError as error:
            raise DataError(f"{where}: {error}") from error


def _pairs(path: Path) -> _Pairs:
    """Read a text of pairs as the files of events are read; - is standard input."""
    from tidegraph.events.tables import TableError, sources

    piped = str(path) == "-"
    if piped:  # a source is read several times
        directory = tempfile.TemporaryDirectory(prefix="tidegraph-predict-")
        path = Path(click.get_current_context().with_resource(directory)) / "standard input"
        path.write_bytes(sys.stdin.buffer.read())
    head = sources.read_head(path)
    first = head.decode("utf-8-sig", errors="replace").lstrip().partition("\n")[0]
    marks = [mark for mark in ",;\t" if mark in first]
    mark = marks[0] if len(marks) == 1 else ","
    source = sources.text_source(path, header=True, delimiter=mark, head=head)
    if piped:
        source.name = path.name
    if not {"src", "dst"} <= set(source.columns):
        raise DataError(
            f"{source.name} has the columns {', '.join(source.columns)}; src and dst are needed, t"
            " is optional, separated by commas, semicolons or tabs"
        )
    try:
        batches = list(source.batches(source.columns, "error"))
    except TableError as error:
        raise DataError(error.spelled(lambda _: "another")) from error
    columns = {
        name: [cell or "" for batch in batches for cell in batch.column(name).to_pylist()]
        for name in source.columns
    }
    return _Pairs(columns, lambda row: f"{source.name}, {source.place(row)}")
