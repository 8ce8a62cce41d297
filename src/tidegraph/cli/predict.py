"""The command `tidegraph predict`."""

from __future__ import annotations

import contextlib
import csv
import difflib
import itertools
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from tidegraph.cli.options import COUNT, JSON_OPTION, NEW_FILE, PATH
from tidegraph.cli.results import moment_text, names_by_side
from tidegraph.cli.terminal import Command
from tidegraph.core.errors import DataError, StateFileError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tidegraph.events.stream import EventStream
    from tidegraph.learning.tasks import LinkPredictor

__all__ = ["predict"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


@click.command(cls=Command)
@click.argument("model", metavar="DIRECTORY", type=PATH)
@click.option("--src", metavar="ID", help="Who acts, by the id in your data.")
@click.option("--dst", metavar="ID", help="On whom.")
@click.option("--t", "when", metavar="T", help="When. Default: just after the last event.")
@click.option(
    "--pairs",
    type=click.File("r", encoding="utf-8-sig"),
    metavar="FILE",
    help="A CSV with columns src, dst and perhaps t; - reads standard input.",
)
@click.option("--rank", type=COUNT, metavar="K", help="The K likeliest destinations of --src.")
@click.option("--new", is_flag=True, help="With --rank: only those --src has not met before.")
@click.option(
    "-o", "--output", type=NEW_FILE, help="Write the CSV there instead of to standard output."
)
@JSON_OPTION
def predict(
    model: Path,
    src: str | None,
    dst: str | None,
    when: str | None,
    pairs: IO[str] | None,
    rank: int | None,
    new: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Predict how likely links are, with a model that tidegraph train or run made.

    DIRECTORY is what train was given as -o, or a run such as runs/calls (the model of its first
    seed).

    \b
      tidegraph predict calls.model --src ann --dst bob             just after the last event
      tidegraph predict calls.model --src ann --dst bob --t 2024-05-01T12:00
      tidegraph predict calls.model --src ann --rank 5              who is next
      tidegraph predict calls.model --pairs asked.csv -o answers.csv

    Ids are those of your data. T is a number in the unit of the data or, where that is s, ms, us or
    ns, an ISO date (UTC where no zone is written); an answer for T uses the events before T. The
    result is a CSV whose last column is the probability among pairs like those of the training: a
    true link against random destinations and past pairs. It ranks pairs; it is not the share of
    all possible pairs that will meet.
    """
    if pairs is not None and (src is not None or dst is not None or rank is not None or new):
        raise click.UsageError("--pairs goes with --t only; leave out the others")
    if pairs is None and src is None:
        raise click.UsageError("give --src with --dst or --rank, or --pairs FILE")
    if pairs is None and (dst is None) == (rank is None):
        raise click.UsageError("give --dst ID for one pair, or --rank K for the likeliest ones")
    if new and rank is None:
        raise click.UsageError("--new belongs to --rank")
    directory = _model_directory(model)
    asked = None if pairs is None else _Pairs.read(pairs)
    from tidegraph.core.words import counted
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
    if asked is not None:
        header, rows = _answer(predictor, asked, now)
    elif rank is not None:
        header, rows = _ranked(predictor, src or "", rank, now, new)
        if len(rows) < rank:
            only = "that it has not met" if new else "that were destinations before"
            nodes = f"only {counted(len(rows), 'node')}" if rows else "no nodes"
            click.echo(f"Note: there are {nodes} {only}", err=True)
    else:
        header = ["src", "dst", "t", "probability"]
        ends = _numbers(stream, [src or ""], "src"), _numbers(stream, [dst or ""], "dst")
        shown = when or str(now)
        probability = predictor.predict_proba(*ends, now)[0]
        rows = [[src or "", dst or "", shown, f"{probability:.6g}"]]
    with contextlib.ExitStack() as stack:
        file: IO[str] = sys.stdout
        if output is not None:
            file = stack.enter_context(output.open("w", encoding="utf-8", newline=""))
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    if output is not None:
        click.echo(f"Wrote {output}: {counted(len(rows), 'row')}", err=True)
    if as_json:
        answers: list[dict[str, Any]] = [dict(zip(header, row, strict=True)) for row in rows]
        numbers: dict[str, Callable[[str], float]] = {"probability": float} | (
            {} if rank is None else {"rank": int}
        )
        for answer in answers:
            answer.update({name: kind(answer[name]) for name, kind in numbers.items()})
        click.echo(
            json.dumps({"model": str(model), "t": now, "unit": stream.unit, "answers": answers})
        )


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
    if settings.get("task") == "node":
        raise StateFileError(
            f"the run in {path} classifies nodes, and predict is about links; in Python,"
            " NodeClassifier.load reads its seed-N/model"
        )
    first = next(iter(settings.get("seeds") or [0]))
    model = model_directory(path, first)
    if not (model / "model.safetensors").is_file():
        raise StateFileError(
            f"the run in {path} has no model yet; tidegraph resume {path} trains it"
        )
    return model


@dataclass(frozen=True)
class _Pairs:
    """The rows of a CSV of pairs."""

    header: list[str]
    rows: list[list[str]]
    places: list[str]  # file and line of each row

    @classmethod
    def read(cls, file: IO[str]) -> _Pairs:
        source = getattr(file, "name", "standard input")
        first = file.readline()
        marks = [mark for mark in ",;\t" if mark in first]
        reader = csv.reader(
            itertools.chain([first] if first else [], file),
            delimiter=marks[0] if len(marks) == 1 else ",",
        )
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in ("src", "dst") if name not in header]
        if missing:
            raise DataError(
                f"{source} has the columns {', '.join(header) or '(none)'}; src and dst are needed,"
                " t is optional, separated by commas, semicolons or tabs"
            )
        rows, places = [], []
        line = reader.line_num + 1  # a quoted cell may hold line breaks
        for row in reader:
            line, begun = reader.line_num + 1, line
            if not row:
                continue
            rows.append(row)
            places.append(f"{source}, line {begun}")
            if len(row) != len(header):
                raise DataError(
                    f"{places[-1]} has {len(row)} cell{'s' * (len(row) > 1)} under a header of"
                    f" {len(header)}; give every row as many cells as the header has"
                )
        return cls(header, rows, places)

    def column(self, name: str) -> list[str]:
        place = self.header.index(name)
        return [row[place].strip() for row in self.rows]


def _answer(predictor: LinkPredictor, asked: _Pairs, now: int) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of a CSV of pairs, with the column probability."""
    stream, rows = predictor.stream, asked.rows
    t = [now] * len(rows)
    if "t" in asked.header:
        t = [
            _at(place, stream.time, word)
            for place, word in zip(asked.places, asked.column("t"), strict=True)
        ]
    src, dst = (_numbers(stream, asked.column(name), name, asked.places) for name in ("src", "dst"))
    if rows:
        probabilities = predictor.predict_proba(src, dst, t)
        rows = [
            [*row, f"{probability:.6g}"]
            for row, probability in zip(rows, probabilities, strict=True)
        ]
    return [*asked.header, "probability"], rows


def _at(place: str, answer: Callable[[Any], Any], question: Any) -> Any:
    """Return the answer, or raise its DataError with the place of the question."""
    try:
        return answer(question)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


def _ranked(
    predictor: LinkPredictor, src: str, k: int, now: int, new: bool
) -> tuple[list[str], list[list[str]]]:
    """Return the likeliest destinations, by name."""
    stream = predictor.stream
    node = int(_numbers(stream, [src], "src")[0])
    nodes, found = predictor.rank(node, now, k, without_known=new)
    before_id = "dst " if names_by_side(stream) else ""
    names = [str(name).removeprefix(before_id) for name in stream.name(nodes)]
    rows = [
        [str(place + 1), name, f"{probability:.6g}"]
        for place, (name, probability) in enumerate(zip(names, found, strict=True))
    ]
    return ["rank", "dst", "probability"], rows


def _numbers(
    stream: EventStream, ids: Sequence[str], end: str, places: Sequence[str] = ()
) -> NDArray[np.int64]:
    """Return the numbers of the nodes with these ids, as sources or destinations (`end`).

    places: where each id was found, for the error about one that is unknown.
    """
    import numpy as np

    names = range(stream.nodes) if stream.names is None else stream.names.values.tolist()
    numbers = {name: number for number, name in enumerate(names)}
    before_id = f"{end} " if names_by_side(stream) else ""
    if stream.names is not None and stream.names.values.dtype.kind != "i":
        wanted: list[Any] = [before_id + name for name in ids]
    else:
        wanted = [int(name) if _INTEGER.fullmatch(name) else name for name in ids]
    found = [numbers.get(name, -1) for name in wanted]
    if -1 in found:
        row = found.index(-1)
        possible = [str(name) for name in names if str(name).startswith(before_id)]
        asked = f"{before_id}{ids[row]}"
        # Spreadsheets drop leading zeros of ids that look like numbers.
        bare = _unpadded(asked)
        near = [name for name in possible if _unpadded(name) == bare]
        near = near or difflib.get_close_matches(asked, sorted(possible), n=1)
        how = "the nearest id is" if near else "ids look like"
        like = (near or possible)[0].removeprefix(before_id)
        where = f"{places[row]}: " if places else ""
        raise DataError(
            f"{where}{end} {ids[row]!r} is unknown: no event of the data has it; {how} {like!r}"
        )
    return np.array(found, dtype=np.int64)


def _unpadded(name: str) -> str:
    return re.sub(r"\b0+(?=\d)", "", name)
