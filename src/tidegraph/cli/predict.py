"""The command `tidegraph predict`."""

from __future__ import annotations

import bisect
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.models import saved_model, task_of
from tidegraph.cli.options import AS_OF_OPTION, COUNT, JSON_OPTION, PATH, option, writing_options
from tidegraph.cli.reading import read_events
from tidegraph.cli.results import names_by_side, note_far
from tidegraph.cli.terminal import NOTHING_KEPT, Command, echo_json, on_interrupt, progress
from tidegraph.cli.writing import NEW_TABLE, Columns, write_answers
from tidegraph.core.errors import DataError
from tidegraph.core.words import counted

if TYPE_CHECKING:
    from tidegraph.events.stream import EventStream
    from tidegraph.learning.tasks import LinkPredictor

_UNKNOWN_SHOWN = 3  # rows
_INTEGER = re.compile("0|-?([1-9][0-9]{0,17}|[1-8][0-9]{18})")  # and within 64 bits


@click.command(cls=Command)
@click.argument("model", metavar="MODEL|RUN", type=PATH)
@option("--src", "Who acts, by the id in your data.", metavar="ID")
@option("--dst", "On whom.", metavar="ID")
@AS_OF_OPTION
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
@option(
    "--node named",
    "For a model of nodes: one of them; may be given several times. Default: all.",
    multiple=True,
    metavar="ID",
)
@option("--unlabelled", "For a model of nodes: only those without a label.", is_flag=True)
@option("-k --rank", "The K likeliest destinations of --src.", type=COUNT, metavar="K")
@option("--for-all", "Rank for every node that was a source before; K is 10.", is_flag=True)
@option("--all-nodes", "With --for-all: for nodes that never were a source, too.", is_flag=True)
@option(
    "--candidates",
    "With --rank or --for-all: rank at most so many destinations, those near the source and the"
    " most active ones lately.",
    1000,
    type=COUNT,
    metavar="N",
)
@option("--new", "With --rank or --for-all: only those not met before.", is_flag=True)
@option(
    "-o --output",
    "Write the table there, as .csv or .parquet, instead of to standard output.",
    type=NEW_TABLE,
)
@writing_options
@JSON_OPTION
def predict(
    model: Path,
    src: str | None,
    dst: str | None,
    when: str | None,
    pairs: Path | None,
    events: Path | None,
    named: tuple[str, ...],
    unlabelled: bool,
    rank: int | None,
    for_all: bool,
    all_nodes: bool,
    candidates: int,
    new: bool,
    output: Path | None,
    **reading: Any,
) -> None:
    """Predict how likely links are, or classes of nodes or events, with the model of a training.

    MODEL|RUN is what train was given as -o, or a run such as runs/calls (the model of its first
    seed).

    \b
      tidegraph predict calls.model --src ann --dst bob             just after the last event
      tidegraph predict calls.model --src ann --dst bob --as-of 2024-05-01T12:00
      tidegraph predict calls.model --src ann --rank 5              who is next
      tidegraph predict calls.model --for-all -k 10 -o top.parquet  who is next, for everyone
      tidegraph predict calls.model --pairs asked.csv -o answers.csv
      tidegraph predict payments.model --events today.csv -o answers.csv
      tidegraph predict runs/calls-nodes --unlabelled -o classes.csv

    Ids are those of your data. TIME is a number in the unit of the data or, where that is s, ms, us
    or ns, an ISO date (UTC where no zone is written); a column t of --pairs gives each row its own.
    An answer for a time uses the events before it. The last column is the probability among pairs
    like those of the training: a true link against random destinations and past pairs. It ranks
    pairs; it is not the share of all possible pairs that will meet. That of --rank and --for-all
    takes for granted that the source acts, and compares its destinations. Rows of --pairs with a
    node that the model does not know have no probability, and a column unknown says which.

    With --events the result has the class and the calibrated probability of each class for every
    row, from what the row carries and all events before it: those of the model, and rows of FILE
    that are later than these. A label in FILE counts once it is known; new nodes are welcome. FILE
    is read as the data of the model was; --unit, --date-format, --decimal, --sort and --on-bad are
    for a FILE that is written differently.

    A model of nodes answers for all of them, for those without a label, or for each --node: its
    label, if it has one, the likeliest class, and the probability of each class. With
    -o FILE.parquet the result is Parquet.
    """
    directory = saved_model(model)
    task = task_of(directory)
    if task != "node" and (named or unlabelled):
        raise click.UsageError(f"--node and --unlabelled are for a model of nodes, not of {task}")
    if (task == "events") != (events is not None):
        wanted = _ASKED_BY[task]
        raise click.UsageError(f"{model} holds a model of the task {task}; {wanted}")
    ranking = rank is not None or for_all
    if events is not None:
        if not all(given in (None, False) for given in (src, dst, when, pairs, ranking, new)):
            raise click.UsageError("--events goes with -o only; leave out the others")
        _predict_events(model, directory, events, reading, output)
        return
    if any(value not in (None, False, "error") for value in reading.values()):
        raise click.UsageError(
            "--unit, --date-format, --decimal, --sort and --on-bad belong to --events"
        )
    if task == "node":
        if not all(given in (None, False) for given in (src, dst, pairs, ranking, new)):
            raise click.UsageError(f"{model} holds a model of nodes; {_ASKED_BY[task]}")
        from tidegraph.cli.node_classes import predict_nodes

        predict_nodes(model, directory, named, unlabelled=unlabelled, when=when, output=output)
        return
    if pairs is not None and (src is not None or dst is not None or ranking or new):
        raise click.UsageError("--pairs goes with --as-of and -o only; leave out the others")
    if for_all and (src is not None or dst is not None):
        raise click.UsageError("--for-all ranks for all sources; leave out --src and --dst")
    if pairs is None and src is None and not for_all:
        raise click.UsageError("give --src with --dst or --rank, --for-all, or --pairs FILE")
    if pairs is None and not for_all and (dst is None) == (rank is None):
        raise click.UsageError("give --dst ID for one pair, or --rank K for the likeliest ones")
    if new and not ranking:
        raise click.UsageError("--new belongs to --rank or --for-all")
    if all_nodes and not for_all:
        raise click.UsageError("--all-nodes belongs to --for-all")
    asked = _Pairs({"src": [src or ""], "dst": [dst or ""]}) if pairs is None else _pairs(pairs)
    from tidegraph.learning.tasks import LinkPredictor

    predictor = LinkPredictor.load(directory)
    stream = predictor.stream
    now = int(stream.t[-1]) + 1 if when is None else stream.time(when)
    if pairs is None:
        note_far(stream, [now])
    about = {"model": str(model), "t": now, "unit": stream.unit}
    columns: dict[str, list[Any]]
    if for_all:
        options = {"src": range(stream.nodes) if all_nodes else None, "without_known": new}
        columns = _for_all(predictor, now, rank or 10, candidates, **options)
        _write(output, columns)
        echo_json({**about, "output": str(output), "rows": len(columns["src"])})
        return
    if rank is not None:
        all_ranked = _note_candidates(stream, now, candidates)
        source = asked.nodes("src", stream)[0]
        nodes, found = predictor.rank(source, now, rank, most=candidates, without_known=new)
        names = _names(stream, nodes, "dst")
        columns = {"rank": list(range(1, len(names) + 1)), "dst": names}
        columns["probability"] = found.tolist()
        if len(names) < rank and all_ranked:
            only = "that it has not met" if new else "that were destinations before"
            there = f"only {counted(len(names), 'node')}" if names else "no nodes"
            click.echo(f"Note: there are {there} {only}", err=True)
    elif pairs is None:
        ends = asked.nodes("src", stream), asked.nodes("dst", stream)
        columns = {**asked.columns, "t": [when or str(now)]}
        columns["probability"] = predictor.predict_proba(*ends, now).tolist()
    else:
        columns = _of_pairs(predictor, asked, now)
    _write(output, columns)
    answers = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    echo_json({**about, "answers": answers})


def _of_pairs(predictor: LinkPredictor, asked: _Pairs, now: int) -> dict[str, list[Any]]:
    """Return the rows of a file with their probabilities, None where a node is unknown."""
    import numpy as np

    stream = predictor.stream
    t = asked.times(stream) if "t" in asked.columns else [now] * len(asked.columns["src"])
    note_far(stream, t if "t" in asked.columns else [now])
    ends, unknown = zip(*(asked.known_nodes(side, stream) for side in ("src", "dst")), strict=True)
    known = np.flatnonzero(~(unknown[0] | unknown[1]))
    found: list[float | None] = [None] * len(t)
    asked_t = np.asarray(t, dtype=np.int64)[known]
    answers = predictor.predict_proba(ends[0][known], ends[1][known], asked_t)
    for row, probability in zip(known.tolist(), answers.tolist(), strict=True):
        found[row] = probability
    if len(known) == len(t):
        return {**asked.columns, "probability": found}
    sides = {
        (False, False): "",
        (True, False): "src",
        (False, True): "dst",
        (True, True): "src dst",
    }
    which = [sides[row] for row in zip(*(column.tolist() for column in unknown), strict=True)]
    asked.note_unknown(which)
    return {**asked.columns, "unknown": which, "probability": found}


def _note_candidates(stream: EventStream, now: int, candidates: int) -> bool:
    """Return whether so many candidates are all; say so if not."""
    import numpy as np

    there = len(np.unique(stream.before(now).dst))
    if there > candidates:
        click.echo(
            f"Note: of {there:,} destinations, the {candidates:,} nearest to the source and most"
            f" active lately are ranked; --candidates {there} ranks all",
            err=True,
        )
    return there <= candidates


def _for_all(
    predictor: LinkPredictor, now: int, k: int, candidates: int, **options: Any
) -> dict[str, list[Any]]:
    """Return the likeliest destinations of many sources as columns."""
    import numpy as np

    stream = predictor.stream
    _note_candidates(stream, now, candidates)
    on_interrupt(NOTHING_KEPT)
    with progress("predict") as report:
        ends = predictor.rank_all(now, k, most=candidates, progress=report, **options)
    src, dst, probability = ends
    first = np.append(True, src[1:] != src[:-1])
    begin = np.flatnonzero(first)[np.cumsum(first) - 1] if len(src) else src
    return {
        "src": _names(stream, src, "src"),
        "rank": (np.arange(len(src)) - begin + 1).tolist(),
        "dst": _names(stream, dst, "dst"),
        "probability": probability.tolist(),
    }


def _names(stream: EventStream, nodes: Any, side: str) -> list[str]:
    """Return the ids of nodes in the data."""
    prefix = f"{side} " if names_by_side(stream) else ""
    return [str(name).removeprefix(prefix) for name in stream.name(nodes)]


def _write(output: Path | None, columns: Columns) -> None:
    count = write_answers(output, columns)
    if output is not None:
        click.echo(f"Wrote {output}: {counted(count, 'row')}", err=True)


# How to ask the model of each task.
_ASKED_BY = {
    "link": "leave --events out, and give --src or --pairs",
    "node": "give --node ID, --unlabelled, or nothing for all nodes, and perhaps --as-of and -o",
    "events": "give --events FILE",
}


def _predict_events(
    model: Path, directory: Path, file: Path, reading: dict[str, Any], output: Path | None
) -> None:
    """Write the class and the probabilities of every row of a table."""
    from tidegraph.events import moments
    from tidegraph.learning.tasks import EventClassifier

    classifier = EventClassifier.load(directory)
    stream = classifier.stream
    asked = read_events(file, reading, like=stream)
    later = asked.where(asked.t > stream.t[-1])
    if len(later):
        classifier.advance(later)
    found = classifier.predict_proba(asked)
    names = classifier.class_names
    columns = {
        "src": _names(asked, asked.src, "src"),
        "dst": _names(asked, asked.dst, "dst"),
        "t": [moments.dates(t, t, asked.unit)[0] or t for t in asked.t.tolist()],
        "class": [names[k] for k in found.argmax(axis=1).tolist()],
        **{f"probability of {name}": found[:, k].tolist() for k, name in enumerate(names)},
    }
    _write(output, columns)
    answers = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    echo_json({"model": str(model), "unit": stream.unit, "answers": answers})


@dataclass(frozen=True)
class _Pairs:
    """Pairs as the user wrote them, by column, and where each row is."""

    columns: dict[str, list[str]]
    place: Callable[[int], str] | None = None  # None: they were given as options

    def nodes(self, side: Any, stream: EventStream) -> Any:
        """Return the numbers of the sources, or destinations, of all pairs."""
        return self._converted(side, lambda ids: stream.number(ids, side))

    def known_nodes(self, side: Any, stream: EventStream) -> tuple[Any, Any]:
        """Return the numbers of the sources, or destinations, and which of them are unknown."""
        import numpy as np

        names, cells = stream.names, [cell.strip() for cell in self.columns[side]]
        known = np.ones(len(cells), dtype=np.bool_)
        if names is None or names.are_integers:
            known[:] = [_INTEGER.fullmatch(cell) is not None for cell in cells]
        asked = [cell for cell, spelled in zip(cells, known, strict=True) if spelled]
        numbers = np.full(len(cells), -1)
        numbers[known] = [int(cell) for cell in asked] if names is None else names.find(asked, side)
        return numbers, (numbers < 0) | (numbers >= stream.nodes)

    def note_unknown(self, which: Sequence[str]) -> None:
        """Print how many rows have unknown nodes, and the first of them."""
        assert self.place is not None
        rows = [row for row, sides in enumerate(which) if sides]
        examples = [
            f"{self.place(row).rpartition(', ')[2]}: "
            + " and ".join(" ".join(self.columns[side][row].split()) for side in which[row].split())
            for row in rows[:_UNKNOWN_SHOWN]
        ]
        more = ", ..." if len(rows) > _UNKNOWN_SHOWN else ""
        click.echo(
            f"Note: {len(rows):,} of {counted(len(which), 'row')} name nodes that the model does"
            f" not know ({', '.join(examples)}{more}); their probability is empty, and the column"
            " unknown says which end it is. tidegraph append adds nodes with their first events",
            err=True,
        )

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
    from tidegraph.events.tables import TableError
    from tidegraph.events.tables.source import read_head
    from tidegraph.events.tables.text import text_source

    piped = str(path) == "-"
    if piped:  # a source is read several times
        directory = tempfile.TemporaryDirectory(prefix="tidegraph-predict-")
        path = Path(click.get_current_context().with_resource(directory)) / "standard input"
        path.write_bytes(sys.stdin.buffer.read())
    head = read_head(path)
    first = head.decode("utf-8-sig", errors="replace").lstrip().partition("\n")[0]
    marks = [mark for mark in ",;\t" if mark in first]
    mark = marks[0] if len(marks) == 1 else ","
    source = text_source(path, header=True, delimiter=mark, head=head)
    if piped:
        source.name = path.name
    if not {"src", "dst"} <= set(source.columns):
        raise DataError(
            f"{source.name} has the columns {', '.join(source.columns)}; src and dst are needed, t"
            " is optional, separated by commas, semicolons or tabs"
        )
    for added in ("probability", "unknown"):
        if added in source.columns:
            raise DataError(
                f"{source.name} has a column {added!r}, which would be replaced; rename it"
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
