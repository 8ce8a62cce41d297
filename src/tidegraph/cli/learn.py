"""The commands `tidegraph train`, `predict` and `evaluate`: predictions of links."""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from tidegraph.cli.data import (
    check_there,
    reading_options,
    refuse_to_overwrite,
    told_events,
)
from tidegraph.cli.terminal import Command, Stopped, console, progress, table
from tidegraph.core.errors import DataError, ParameterError, StateFileError
from tidegraph.runs.config import value_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from tidegraph.events.stream import EventStream
    from tidegraph.learning.tasks import LinkPredictor
    from tidegraph.runs.experiment import Trained

__all__ = [
    "JSON_OPTION",
    "MEANINGS",
    "PROTOCOLS",
    "SAMPLERS",
    "SETTINGS_OPTION",
    "as_seeds",
    "asked_events",
    "check_early",
    "data_options",
    "evaluate",
    "next_steps",
    "predict",
    "print_results",
    "settings_of",
    "snapshot_options",
    "time_options",
    "train",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
# Written out here, and compared by a test with what they stand for: those modules are slow.
PROTOCOLS = ("tgn", "tgb", "time", "roland")
SAMPLERS = ("random-dst", "random-all", "historical", "inductive")
_PRESETS = (
    "default",
    "snapshots",
    "historical",
    "paper-lstm",
    "paper-gru",
    "paper-transformer",
)

# What the settings of a LinkPredictor mean, for the shell; a test keeps the list whole.
MEANINGS = {
    "columns": "random feature columns per channel: more is finer and slower",
    "alpha": "how far a node looks: at 0.9 hardly beyond itself, at 0.05 far",
    "half_lives": "of the channels that forget, as [60,3600] in the data's unit; none: one, a"
    " thirtieth of the training period",
    "high_pass": "whether there are filters that tell neighbours apart beside those that average",
    "beta": "how the degrees of both ends share the normalisation; 0.5 is symmetric",
    "r_max": "the promised error of representations, in r_max_unit",
    "r_max_unit": "rms, l1 (of a feature column) or absolute",
    "scale_by_degree": "whether nodes with many edges are allowed a larger error",
    "epsilon": "how far a node moves, as a part of its norm, before it is recorded again",
    "edge_features": "whether to read those of the latest events, where the data has any",
    "encoder": "reads a node's latest changes: none, state, lstm, gru or transformer",
    "encoder_options": 'of the encoder, as {"heads": 4}',
    "decoder": "joins two nodes: pair, or with an encoder concatenation or hadamard",
    "window": "how many changes an encoder sees",
    "width": "of an encoder's answer",
    "hidden": "width of the decoder's layers",
    "layers": "of the decoder",
    "dropout": "share of its inputs a layer forgets in training",
    "random_negatives": "per event, pairs of its source and a random destination",
    "past_negatives": "per event, pairs that met before",
    "past_weight": "what each of those counts",
    "any_node": "random negatives from all nodes, not from destinations alone",
    "max_examples": "events to train on, the latest ones",
    "epochs": "passes over the events, at most",
    "batch_size": "examples per step of training",
    "learning_rate": "its highest value; it rises and falls",
    "patience": "epochs without a better validation after which to stop",
    "seed": "of features, weights and negatives",
    "threads": "of the propagation; none: all cores",
    "device": "on which the network is trained: cpu, cuda, ...",
    "path": "decided by the command",
}

JSON_OPTION = click.option(
    "--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON."
)


def _help_on_settings(
    ctx: click.Context, param: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    if "help" in words:
        from tidegraph.learning.tasks import LinkPredictor

        for name, default in LinkPredictor().get_params().items():
            value = "none" if default is None else str(default).lower()
            click.echo(f"  {f'{name}={value}':<24} {MEANINGS.get(name, '')}".rstrip())
        ctx.exit()
    return words


SETTINGS_OPTION = click.option(
    "--set",
    "settings",
    multiple=True,
    is_eager=True,
    callback=_help_on_settings,
    metavar="NAME=VALUE",
    help="A setting of LinkPredictor, such as epochs=20; may be given several times."
    " `--set help` lists them.",
)


_PRESET = click.option(
    "--preset",
    metavar="NAME",
    help=f"Settings by name, to which --set makes changes: {', '.join(_PRESETS)}. Those of the"
    " paper are per data set (a file has Wikipedia's) and may be followed by +high-pass or"
    " -high-pass, +time or -time.",
)


def data_options(command: _Command) -> _Command:
    """DATA, as an argument or as --data, and how to read it."""
    command = reading_options(command)
    command = click.option("--data", metavar="NAME|FILE", help="The same as DATA.")(command)
    return click.argument("given", metavar="[DATA]", required=False)(command)


def time_options(command: _Command) -> _Command:
    """Gives a command the times of the protocol `time`."""
    for part in ("test", "validation"):
        command = click.option(
            f"--{part}-after",
            metavar="T",
            help=f"With --protocol time: when {part} begins; a number or an ISO date.",
        )(command)
    return command


def snapshot_options(command: _Command) -> _Command:
    """Gives a command the snapshots of the protocol `roland`, and whether to learn from them."""
    command = click.option(
        "--live",
        is_flag=True,
        help="With --protocol roland: before each task also learns from the snapshots that have"
        " become known, as ROLAND does.",
    )(command)
    command = click.option(
        "--first-test",
        type=click.IntRange(min=1),
        metavar="K",
        help="With --protocol roland: the first test task. Default: as published for the data.",
    )(command)
    return click.option(
        "--snapshot-seconds",
        type=click.IntRange(min=1),
        metavar="S",
        help="With --protocol roland: the width of a snapshot. Default: as published for the data.",
    )(command)


def asked_events(
    given: str | None, data: str | None, options: dict[str, Any]
) -> tuple[str, EventStream]:
    """The name and the events of what the user asked for; says how a file was understood."""
    if (given is None) == (data is None):
        raise click.UsageError("give DATA or --data: the name of a data set, or a file of events")
    name = given or data or ""
    return name, told_events(name, options)


# Settings -----------------------------------------------------------------------------------------


def _preset(name: str | None, data: str | None) -> dict[str, Any]:
    """The settings of a preset for what the user gave as DATA."""
    if name is None:
        return {}
    from tidegraph.events import datasets
    from tidegraph.learning.tasks import LinkPredictor, preset

    known = data if data in datasets.DATA_SETS else None
    LinkPredictor.preset(name, known)  # refuses those of other tasks
    return preset(name, known)


def _named(words: Sequence[str]) -> list[tuple[str, str]]:
    """Name and value of `NAME=VALUE` words, after checking the names."""
    named = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--set")
        if name not in MEANINGS:
            near = difflib.get_close_matches(name, MEANINGS, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]!r}? " if near else ""
            raise ParameterError(
                f"there is no setting {name!r}; {advice}`--set help` lists what there is"
            )
        named.append((name, text))
    return named


def check_early(data: str | None, words: Sequence[str]) -> None:
    """Refuses data that is not there and settings that do not exist, before torch is imported."""
    _named(words)
    if data is not None:
        check_there(data)


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` words as settings of a LinkPredictor; values are of the type they should be."""
    named = _named(words)
    from typing import get_type_hints

    from tidegraph.learning.tasks import LinkPredictor

    hints = get_type_hints(LinkPredictor)
    return {name: value_of(name, text, hints[name]) for name, text in named}


# train --------------------------------------------------------------------------------------------


@click.command(cls=Command)
@data_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="A new directory for the model.",
)
@_PRESET
@SETTINGS_OPTION
@click.option(
    "--protocol",
    type=click.Choice([name for name in PROTOCOLS if name != "roland"]),
    help="Keeps the test events of this protocol out of training. Default: none are kept out.",
)
@time_options
@JSON_OPTION
def train(
    given: str | None,
    data: str | None,
    output: Path,
    preset: str | None,
    settings: tuple[str, ...],
    protocol: str | None,
    validation_after: str | None,
    test_after: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn from events which links come next, and keep the model in a directory.

    DATA is the name of a data set (tidegraph data list), a file of events (CSV, Parquet, ...) or
    what tidegraph data import wrote. A file needs a column for who acts, one for on whom, and one
    for when: numbers or ISO dates. Which is which is guessed from the header, and said.

    \b
      tidegraph train calls.csv -o calls.model
      tidegraph train calls.csv --src Caller --dst Callee --time When --sort -o calls.model
      tidegraph train wikipedia --set epochs=4 --set columns=64 -o wikipedia.model

    The last 15 % of the events decide when to stop, all others train. A run that was killed goes
    on when the same command is given again, and ends with the same weights; until it is finished
    its files are in OUTPUT.unfinished.

    \b
    On several processors or machines that share a file system:
      torchrun --nproc_per_node 2 -m tidegraph train calls.csv -o calls.model
    """
    begun = time.perf_counter()
    check_early(given or data, settings)
    chosen = {**_preset(preset, given or data), **settings_of(settings)}
    from tidegraph.runs import experiment

    divided = None
    if (protocol, validation_after, test_after) != (None, None, None):
        # Times without the protocol that they belong to are refused under any other.
        divided = experiment.Protocol(
            protocol or "tgn", validation_after=validation_after, test_after=test_after
        )
    leads = os.environ.get("RANK", "0") == "0"  # as torchrun counts the processes it starts
    experiment.check_training(output, settings=chosen)
    with contextlib.ExitStack() as quiet:
        if not leads:
            quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
        _, stream = asked_events(given, data, options)
    work = experiment.unfinished(output)
    if leads and (work / "run.json").exists():
        click.echo(f"Going on from {work}")
    try:
        with progress("train") if leads else contextlib.nullcontext() as report:
            trained = experiment.train(
                stream, output, protocol=divided, settings=chosen, progress=report
            )
    except KeyboardInterrupt:
        if not work.exists():
            raise
        raise Stopped(
            f"What is done so far is in {work}; give the same command again to go on, or delete it"
        ) from None
    if not leads:
        return
    _print_trained(console(), trained, time.perf_counter() - begun)
    if as_json:
        ap = trained.validation.row("validation").metrics
        click.echo(
            json.dumps(
                {
                    "output": str(output),
                    "events": len(stream),
                    "nodes": stream.nodes,
                    "unit": stream.unit,
                    "digest": stream.digest(),
                    "validation": {"sampler": "random-dst", **ap},
                    "epochs": len(trained.predictor.epochs_),
                    "training_negatives": trained.predictor.training_negatives,
                    "settings": trained.predictor.get_params(),
                    "warnings": list(trained.validation.warnings),
                    "elapsed_s": round(time.perf_counter() - begun, 3),
                }
            )
        )


def _print_trained(out: Console, trained: Trained, elapsed_s: float) -> None:
    from tidegraph.core.words import counted

    result, stream = trained.validation, trained.predictor.stream
    own = result.row("validation")
    rules = [row for row in result.rows if row.scorer != result.model]
    best = max(rules, key=lambda row: row.metrics["ap"])
    epochs = trained.predictor.epochs_
    chosen = max(epochs, key=lambda epoch: epoch.validation).number + 1
    lines = [
        f"Trained in {elapsed_s:.0f} s; of {counted(len(epochs), 'epoch')} the best was number"
        f" {chosen}.",
        f"Validation AP {own.metrics['ap']:.4f}, AUC {own.metrics['auc']:.4f}, on"
        f" {counted(own.examples, 'event')}, each against a random destination (0.5 is chance; the"
        f" best heuristic, {best.scorer}, has AP {best.metrics['ap']:.4f}).",
        *(f"Note: {warning}" for warning in result.warnings),
        f"Saved in {trained.path}; times count {stream.unit}, the last event is at"
        f" {_moment(int(stream.t[-1]), stream.unit)}.",
        *next_steps(trained.path, stream),
    ]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def next_steps(model: Path, stream: EventStream) -> list[str]:
    """Lines that say how to ask what was trained."""
    import shlex

    path = shlex.quote(str(model))
    return [
        "Next:",
        f"  tidegraph predict {path} --src {_an_id(stream)} --rank 5",
        f"  tidegraph predict {path} --pairs FILE.csv   (columns src, dst and perhaps t)",
    ]


def _an_id(stream: EventStream) -> str:
    """The source of the last event as a word for the shell."""
    import shlex

    name = str(stream.name(stream.src[-1:])[0])
    return shlex.quote(name.removeprefix("src ") if _apart(stream) else name)


# predict ------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("model", metavar="DIRECTORY", type=click.Path(path_type=Path))
@click.option("--src", metavar="ID", help="Who acts, by the id in your data.")
@click.option("--dst", metavar="ID", help="On whom.")
@click.option("--t", "when", metavar="T", help="When. Default: just after the last event.")
@click.option(
    "--pairs",
    type=click.File("r", encoding="utf-8-sig"),
    metavar="FILE",
    help="A CSV with columns src, dst and perhaps t; - reads standard input.",
)
@click.option(
    "--rank",
    type=click.IntRange(min=1),
    metavar="K",
    help="The K likeliest destinations of --src.",
)
@click.option("--new", is_flag=True, help="With --rank: only those --src has not met before.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Writes the CSV there instead of to standard output.",
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
    """Say how likely links are, with a model that tidegraph train or run made.

    DIRECTORY is what train was given as -o, or a run such as runs/calls (the model of its first
    seed).

    \b
      tidegraph predict calls.model --src ann --dst bob             just after the last event
      tidegraph predict calls.model --src ann --dst bob --t 2024-05-01T12:00
      tidegraph predict calls.model --src ann --rank 5              who is next
      tidegraph predict calls.model --pairs asked.csv -o answers.csv

    Ids are those of your data. T is a number in the unit of the data or, where that is s, ms, us or
    ns, an ISO date (UTC where no zone is written); an answer for T uses the events before T. The
    result is a CSV whose last column is the probability, among pairs like those of the training: a
    true link against random destinations and past pairs. It ranks pairs; it is not the share of
    all possible pairs that will meet.
    """
    if pairs is not None and (src is not None or dst is not None or rank is not None or new):
        raise click.UsageError("--pairs stands alone, but for --t; leave out the others")
    if pairs is None and src is None:
        raise click.UsageError("give --src with --dst or --rank, or --pairs FILE")
    if pairs is None and (dst is None) == (rank is None):
        raise click.UsageError("give --dst ID for one pair, or --rank K for the likeliest ones")
    if new and rank is None:
        raise click.UsageError("--new belongs to --rank")
    if output is not None:
        refuse_to_overwrite(output)
    directory = _model_in(model)
    asked = None if pairs is None else _Asked.read(pairs)
    from tidegraph.core.words import counted
    from tidegraph.learning.tasks import LinkPredictor

    predictor = LinkPredictor.load(directory)
    stream = predictor.stream
    now = int(stream.t[-1]) + 1 if when is None else stream.time(when)
    span = int(stream.t[-1]) - int(stream.t[0])
    if not int(stream.t[0]) < now <= int(stream.t[-1]) + max(1, span):
        click.echo(
            f"Note: {_moment(now, stream.unit)} is far from the events, which are from"
            f" {_moment(int(stream.t[0]), stream.unit)} to"
            f" {_moment(int(stream.t[-1]), stream.unit)}; an answer says little there",
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


def _model_in(path: Path) -> Path:
    """The directory of the model: `path` itself, or in a run's directory that of its first seed."""
    unfinished = path.absolute().with_name(f"{path.absolute().name}.unfinished")
    if (path / "model.safetensors").is_file():
        return path
    if (path / "config.toml").is_file():
        return _model_of_run(path)
    if unfinished.exists():
        raise StateFileError(
            f"the training of {path} was not finished; give the same command of tidegraph train"
            " again, and it goes on"
        )
    problem = "holds no model" if path.exists() else "does not exist"
    raise StateFileError(
        f"{path} {problem}; give a directory that tidegraph train wrote (its -o), or one of"
        " tidegraph run (runs/NAME)"
    )


def _model_of_run(path: Path) -> Path:
    from tidegraph.runs import config

    told = config.read(path / "config.toml")
    if told.get("task") == "node":
        raise StateFileError(
            f"the run in {path} is about classes of nodes, and links are predicted here; in Python,"
            " NodeClassifier.load reads its seed-N/model"
        )
    first = next(iter(told.get("seeds") or [0]))
    model = path / f"seed-{first}" / "model"
    if not (model / "model.safetensors").is_file():
        raise StateFileError(
            f"the run in {path} has no model yet; tidegraph resume {path} goes on with it"
        )
    return model


@dataclass(frozen=True)
class _Asked:
    """The rows of a CSV of pairs."""

    header: list[str]
    rows: list[list[str]]
    places: list[str]  # where a person finds each row

    @classmethod
    def read(cls, file: IO[str]) -> _Asked:
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
                " t is optional, parted by commas, semicolons or tabs"
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


def _answer(predictor: LinkPredictor, asked: _Asked, now: int) -> tuple[list[str], list[list[str]]]:
    """The rows of a CSV of pairs with a column more."""
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
    """The answer, or an error that says where the question was asked."""
    try:
        return answer(question)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


def _ranked(
    predictor: LinkPredictor, src: str, k: int, now: int, new: bool
) -> tuple[list[str], list[list[str]]]:
    """The likeliest destinations, by name."""
    stream = predictor.stream
    node = int(_numbers(stream, [src], "src")[0])
    nodes, found = predictor.rank(node, now, k, without_known=new)
    before_id = "dst " if _apart(stream) else ""
    names = [str(name).removeprefix(before_id) for name in stream.name(nodes)]
    rows = [
        [str(place + 1), name, f"{probability:.6g}"]
        for place, (name, probability) in enumerate(zip(names, found, strict=True))
    ]
    return ["rank", "dst", "probability"], rows


def _apart(stream: EventStream) -> bool:
    """Whether an id is one node as a source and another as a destination."""
    return stream.names is not None and stream.names.by_side


def _numbers(
    stream: EventStream, ids: Sequence[str], end: str, places: Sequence[str] = ()
) -> NDArray[np.int64]:
    """The numbers of the nodes with these ids, where `end` tells a source from a destination.

    places: where each id was found, to be said where it is unknown.
    """
    import numpy as np

    names = range(stream.nodes) if stream.names is None else stream.names.values.tolist()
    numbers = {name: number for number, name in enumerate(names)}
    before_id = f"{end} " if _apart(stream) else ""
    if stream.names is not None and stream.names.values.dtype.kind != "i":
        wanted: list[Any] = [before_id + name for name in ids]
    else:
        wanted = [int(name) if _WHOLE.fullmatch(name) else name for name in ids]
    found = [numbers.get(name, -1) for name in wanted]
    if -1 in found:
        row = found.index(-1)
        possible = [str(name) for name in names if str(name).startswith(before_id)]
        asked = f"{before_id}{ids[row]}"
        # Programs that take ids for numbers lose the zeros before them.
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


# Times --------------------------------------------------------------------------------------------


def _moment(t: int, unit: str) -> str:
    """A time as it was counted, with its date where it is likely to have one."""
    from tidegraph.events.moments import PER_SECOND

    if unit in PER_SECOND and 0 < t // PER_SECOND[unit] < 2**32:
        seconds = t // PER_SECOND[unit]
        if seconds > 10**8:  # 1973; smaller numbers count from a beginning of their own
            date = datetime.fromtimestamp(seconds, tz=timezone.utc)
            return f"{t} ({date:%Y-%m-%dT%H:%M:%S} UTC)"
    return str(t)


# evaluate -----------------------------------------------------------------------------------------


def as_seeds(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Whole numbers parted by commas, where any are given."""
    if text is None:
        return None
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ParameterError(
            f"--seeds is {text!r}; give whole numbers from 0 on, parted by commas, such as 0,1,2"
        )
    return tuple(int(word) for word in words)


@click.command(cls=Command)
@data_options
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default="tgn",
    show_default=True,
    help="How events are divided, and what is asked.",
)
@click.option(
    "--sampler",
    "samplers",
    type=click.Choice(SAMPLERS),
    multiple=True,
    help="Of the negatives; may be given several times. Default: random-dst.",
)
@click.option(
    "--seeds",
    callback=as_seeds,
    default="0,1,2",
    show_default=True,
    help="One training each. Negatives of the evaluation keep the protocol's seeds.",
)
@_PRESET
@SETTINGS_OPTION
@click.option("--rank", is_flag=True, help="Also ranks all destinations, as TGB does.")
@click.option(
    "--rank-sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ranks for so many test events only; implies --rank.",
)
@time_options
@snapshot_options
@click.option(
    "--reversed",
    "also_reversed",
    is_flag=True,
    help="With --protocol roland: every edge also counts in the other direction, as in the numbers"
    " that ROLAND published for Bitcoin.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Writes the results there as JSON.",
)
@JSON_OPTION
def evaluate(
    given: str | None,
    data: str | None,
    protocol: str,
    samplers: tuple[str, ...],
    seeds: tuple[int, ...],
    preset: str | None,
    settings: tuple[str, ...],
    also_reversed: bool,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train once per seed and judge by a protocol, with heuristics that learn nothing beside.

    \b
    tgn      test are the last 15 % of the events, validation the 15 % before; a tenth of the nodes
             is hidden from training, and events that touch unseen nodes are also judged alone (new)
    tgb      the same without hidden nodes; with --rank its MRR
    time     divided by --validation-after and --test-after
    roland   from snapshots up to now rank all nodes for every source of the next one; without
             --preset it begins from the preset snapshots

    \b
      tidegraph evaluate wikipedia --sampler random-dst --sampler historical
      tidegraph evaluate calls.csv --seeds 0 --set epochs=4
      tidegraph evaluate uci --preset paper-lstm --sampler random-dst --sampler random-all
      tidegraph evaluate bitcoin-otc --protocol roland --reversed --json

    A true pair is told from a negative one: random-dst exchanges the destination, random-all takes
    any node at all (easy where users meet items), historical draws pairs that met before,
    inductive those that met first after training. Compare numbers under one sampler only.
    """
    # Judged before the work that it takes to have something to write.
    if output is not None and not output.absolute().parent.is_dir():
        raise click.BadParameter(f"{output.parent} is not a directory", param_hint="--output")
    if output is not None and not os.access(output.absolute().parent, os.W_OK):
        raise click.BadParameter(
            f"{output.parent} may not be written to; give another place", param_hint="--output"
        )
    asked = {
        name: options.pop(name)
        for name in (
            *("rank", "rank_sample", "validation_after", "test_after"),
            *("snapshot_seconds", "first_test", "live"),
        )
    }
    if also_reversed and protocol != "roland":
        raise click.UsageError("--reversed belongs to --protocol roland")
    check_early(given or data, settings)
    chosen = settings_of(settings)
    from tidegraph.runs import experiment

    judged_by = experiment.Protocol(protocol, samplers=samplers or None, **asked)
    experiment.check_evaluation(
        judged_by, seeds=seeds, preset=preset, settings=chosen, name=given or data
    )
    begun = time.perf_counter()
    name, stream = asked_events(given, data, options)
    if also_reversed:
        stream = stream.with_reversed()
    read_s = round(time.perf_counter() - begun, 3)
    with progress("evaluate") as report:
        results = experiment.evaluate(
            stream,
            protocol=judged_by,
            seeds=seeds,
            preset=preset,
            settings=chosen,
            name=name,
            progress=report,
        )
    elapsed = results["elapsed_s"]
    results["elapsed_s"] = {"read": read_s, **elapsed, "total": round(elapsed["total"] + read_s, 3)}
    print_results(console(), results)
    if output is not None:
        output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        click.echo(f"Wrote {output}")
    if as_json:
        click.echo(json.dumps(results))


def print_results(out: Console, results: Mapping[str, Any]) -> None:
    """Prints what `experiment.evaluate` gives: tables, notes, verdicts, and seconds."""
    from rich.markup import escape

    sizes = ", ".join(f"{part} {count:,}" for part, count in results["split"]["sizes"].items())
    about = results["data"]
    out.print(
        f"[bold]{escape(about['title'] or about['name'])}[/]: {about['events']:,} events between"
        f" {about['nodes']:,} nodes; protocol {results['protocol']} ({sizes})"
    )
    if results["training_negatives"] is not None:
        out.print(f"Trained against {results['training_negatives']}.", markup=False)
    for sampler, parts in results["metrics"].items():
        names = [
            (part, metric) for part in parts for metric in parts[part] if "global" not in metric
        ]
        titles = [metric if part == "all" else f"{metric}, {part}" for part, metric in names]
        seeds = len(results["seeds"])
        title = "labels" if sampler == "none" else sampler
        shown = table(
            f"{title} (percent; model: {seeds} seed{'s' if seeds > 1 else ''})",
            ["scorer", *titles],
        )
        shown.columns[0].justify = "left"
        own = [parts[part][metric] for part, metric in names]
        cells = [
            f"{100 * value['mean']:.2f}" + (f" ± {100 * value['std']:.2f}" if seeds > 1 else "")
            for value in own
        ]
        shown.add_row("tidegraph", *cells, style="bold")
        for rule, scores in results["heuristics"].items():
            values = [scores[sampler][part][metric] for part, metric in names]
            shown.add_row(rule, *(f"{100 * value:.2f}" for value in values))
        out.print(shown)
    for warning in results["warnings"]:
        out.print(f"Note: {warning}", style="yellow", markup=False)
    for verdict in results["verdicts"]:
        out.print(verdict, style="bold", markup=False, soft_wrap=True)
    if len(results["seeds"]) == 1:
        out.print("One seed says nothing about the spread; --seeds 0,1,2 does.", markup=False)
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in results["elapsed_s"].items())
    out.print(f"Seconds: {stages}")
