"""The commands `tidegraph train`, `predict` and `evaluate`: from events to predictions of links."""

from __future__ import annotations

import contextlib
import csv
import difflib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from tidegraph.cli_data import echo_report, read_events, reading_options, refuse_to_overwrite
from tidegraph.config import value_of
from tidegraph.errors import DataError, ParameterError, StateFileError
from tidegraph.terminal import console, progress, table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from tidegraph.experiment import Trained
    from tidegraph.stream import EventStream
    from tidegraph.tasks import LinkPredictor

__all__ = ["PROTOCOLS", "SAMPLERS", "as_seeds", "evaluate", "predict", "print_results", "train"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Written out here, and compared by a test with what they stand for: those modules are slow.
PROTOCOLS = ("tgn", "tgb", "time", "roland")
SAMPLERS = ("random-dst", "random-all", "historical", "inductive")

_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON."
)


def _help_on_settings(
    ctx: click.Context, param: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    if "help" in words:
        from tidegraph.tasks import LinkPredictor

        for name, default in LinkPredictor().get_params().items():
            click.echo(f"  {name}={'none' if default is None else default}")
        ctx.exit()
    return words


_SETTINGS = click.option(
    "--set",
    "settings",
    multiple=True,
    is_eager=True,
    callback=_help_on_settings,
    metavar="NAME=VALUE",
    help="A setting of LinkPredictor, such as epochs=20; may be given several times."
    " `--set help` lists them.",
)


def _data_options(command: _Command) -> _Command:
    """DATA, as an argument or as --data, and how to read it."""
    command = reading_options(command)
    command = click.option("--data", metavar="NAME|FILE", help="The same as DATA.")(command)
    return click.argument("given", metavar="[DATA]", required=False)(command)


def _time_options(command: _Command) -> _Command:
    for part in ("test", "validation"):
        command = click.option(
            f"--{part}-after",
            metavar="T",
            help=f"With --protocol time: when {part} begins; a number or an ISO date.",
        )(command)
    return command


def _events(
    given: str | None, data: str | None, options: dict[str, Any]
) -> tuple[str, EventStream]:
    """The name and the events of what the user asked for; says how a file was understood."""
    if (given is None) == (data is None):
        raise click.UsageError("give DATA or --data: the name of a data set, or a file of events")
    name = given or data or ""
    with progress("read") as report:
        report(0, 1, name)
        stream = read_events(name, options)
    from tidegraph import datasets

    if stream.report is not None and name not in datasets.DATA_SETS:
        echo_report(stream.report)
    return name, stream


# Settings -----------------------------------------------------------------------------------------


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` words as settings of a LinkPredictor; values are of the type they should be."""
    from typing import get_type_hints

    from tidegraph.tasks import LinkPredictor

    known = LinkPredictor().get_params()
    hints = get_type_hints(LinkPredictor)
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--set")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]!r}? " if near else ""
            raise ParameterError(
                f"there is no setting {name!r}; {advice}`--set help` lists what there is"
            )
        settings[name] = value_of(name, text, hints[name])
    return settings


# train --------------------------------------------------------------------------------------------


@click.command()
@_data_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="A new directory for the model.",
)
@_SETTINGS
@click.option(
    "--protocol",
    type=click.Choice([name for name in PROTOCOLS if name != "roland"]),
    help="Keeps the test events of this protocol out of training. Default: none are kept out.",
)
@_time_options
@_JSON
def train(
    given: str | None,
    data: str | None,
    output: Path,
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
    """
    begun = time.perf_counter()
    chosen = _settings(settings)
    _, stream = _events(given, data, options)
    from tidegraph import experiment

    work = experiment.unfinished(output)
    if (work / "run.json").exists():
        click.echo(f"Going on from {work}")
    with progress("train") as report:
        trained = experiment.train(
            stream,
            output,
            protocol=protocol,
            settings=chosen,
            validation_after=_time_or_none(validation_after, stream.unit),
            test_after=_time_or_none(test_after, stream.unit),
            progress=report,
        )
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
    result, stream = trained.validation, trained.predictor.stream
    own = result.row("validation")
    rules = [row for row in result.rows if row.scorer != result.model]
    best = max(rules, key=lambda row: row.metrics["ap"])
    epochs = trained.predictor.epochs_
    chosen = max(epochs, key=lambda epoch: epoch.validation).number + 1
    lines = [
        f"Trained in {elapsed_s:.0f} s; of {len(epochs)} epochs the best was number {chosen}.",
        f"Validation AP {own.metrics['ap']:.4f}, AUC {own.metrics['auc']:.4f}, on"
        f" {own.examples:,} events, each against a random destination (0.5 is chance; the best"
        f" heuristic, {best.scorer}, has AP {best.metrics['ap']:.4f}).",
        *(f"Note: {warning}" for warning in result.warnings),
        f"Saved in {trained.path}; times count {stream.unit}, the last event is at"
        f" {_moment(int(stream.t[-1]), stream.unit)}.",
        "Next:",
        f"  tidegraph predict {trained.path} --src {_an_id(stream)} --rank 5",
        f"  tidegraph predict {trained.path} --pairs FILE.csv   (columns src, dst and perhaps t)",
    ]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _an_id(stream: EventStream) -> str:
    """The source of the last event as a word for the shell."""
    import shlex

    name = str(stream.name(stream.src[-1:])[0])
    return shlex.quote(name.removeprefix("src ") if _apart(stream) else name)


# predict ------------------------------------------------------------------------------------------


@click.command()
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
def predict(
    model: Path,
    src: str | None,
    dst: str | None,
    when: str | None,
    pairs: IO[str] | None,
    rank: int | None,
    new: bool,
    output: Path | None,
) -> None:
    """Say how likely links are, with a model that tidegraph train made.

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
    predictor = _load(model)
    stream = predictor.stream
    now = int(stream.t[-1]) + 1 if when is None else stream.time(when)
    span = int(stream.t[-1]) - int(stream.t[0])
    if not int(stream.t[0]) < now <= int(stream.t[-1]) + max(1, span):
        click.echo(
            f"Note: {when} is {now} {stream.unit}, and the events are from {stream.t[0]} to"
            f" {stream.t[-1]}; so far from them an answer says little",
            err=True,
        )
    if pairs is not None:
        header, rows = _answer(predictor, pairs, now)
    elif rank is not None:
        header, rows = _ranked(predictor, src or "", rank, now, new)
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
        click.echo(f"Wrote {output}: {len(rows):,} rows", err=True)


def _load(path: Path) -> LinkPredictor:
    from tidegraph import experiment
    from tidegraph.tasks import LinkPredictor

    if not (path / "model.safetensors").is_file():
        if experiment.unfinished(path).exists():
            raise StateFileError(
                f"the training of {path} was not finished; give the same command of tidegraph train"
                " again, and it goes on"
            )
        raise StateFileError(
            f"{path} holds no model; give a directory that tidegraph train wrote (its -o)"
        )
    return LinkPredictor.load(path)


def _answer(predictor: LinkPredictor, file: IO[str], now: int) -> tuple[list[str], list[list[str]]]:
    """The rows of a CSV of pairs with a column more."""
    stream, source = predictor.stream, getattr(file, "name", "standard input")
    reader = csv.reader(file)
    header = next(reader, [])
    rows = [row for row in reader if row]
    places = {name.strip(): place for place, name in enumerate(header)}
    missing = [name for name in ("src", "dst") if name not in places]
    if missing:
        raise DataError(
            f"{source} has the columns {', '.join(header) or '(none)'}; src and dst are needed,"
            " t is optional, parted by commas"
        )
    for line, row in enumerate(rows):
        if len(row) != len(header):
            raise DataError(
                f"{source} has {len(row)} cells in row {line + 1} under a header of"
                f" {len(header)}; give every row as many cells as the header has"
            )
    columns = {name: [row[place].strip() for row in rows] for name, place in places.items()}
    asked = columns.get("t", [])
    t = [stream.time(word) for word in asked] if asked else [now] * len(rows)
    src, dst = (_numbers(stream, columns[name], name) for name in ("src", "dst"))
    if rows:
        for row, probability in zip(rows, predictor.predict_proba(src, dst, t), strict=True):
            row.append(f"{probability:.6g}")
    return [*header, "probability"], rows


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
    """Whether an id is one node as a source and another as a destination, as names then tell."""
    names = stream.names
    if names is None or names.values.dtype.kind == "i":
        return False
    return all(
        str(names[number]).startswith(end)
        for number, end in ((0, "src "), (len(names) - 1, "dst "))
    )


def _numbers(stream: EventStream, ids: Sequence[str], end: str) -> NDArray[np.int64]:
    """The numbers of the nodes with these ids, where `end` tells a source from a destination."""
    import numpy as np

    if not ids:
        return np.zeros(0, dtype=np.int64)
    if stream.names is not None and stream.names.values.dtype.kind != "i":
        before_id = f"{end} " if _apart(stream) else ""
        wanted = [before_id + name for name in ids]
        known = set(stream.names.values.tolist())
        for name, node in zip(ids, wanted, strict=True):
            if node not in known:
                possible = sorted(other for other in known if other.startswith(before_id))
                near = difflib.get_close_matches(node, possible, n=1)
                how = "the nearest id is" if near else "ids look like"
                like = (near or possible)[0].removeprefix(before_id)
                raise DataError(
                    f"{end} {name!r} is unknown: no event of the data has it; {how} {like!r}"
                )
        return stream.number(wanted)
    numbers = []
    for name in ids:
        try:
            numbers.append(int(name))
        except ValueError:
            raise DataError(
                f"{end} {name!r} is unknown; ids are integers like {stream.name([0])[0]}"
            ) from None
    return stream.number(numbers)


# Times --------------------------------------------------------------------------------------------


def _time_or_none(word: str | None, unit: str) -> int | None:
    from tidegraph.stream import moment

    return None if word is None else moment(word, unit)


def _moment(t: int, unit: str) -> str:
    """A time as it was counted, with its date where it is likely to have one."""
    if unit in _PER_SECOND and 0 < t // _PER_SECOND[unit] < 2**32:
        seconds = t // _PER_SECOND[unit]
        if seconds > 10**8:  # 1973; smaller numbers count from a beginning of their own
            date = datetime.fromtimestamp(seconds, tz=timezone.utc)
            return f"{t} ({date:%Y-%m-%dT%H:%M:%S} UTC)"
    return str(t)


# evaluate -----------------------------------------------------------------------------------------


def as_seeds(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    """Whole numbers parted by commas."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise click.BadParameter(
            f"{text!r} are not whole numbers parted by commas, such as 0,1,2", ctx, param
        )
    return tuple(int(word) for word in words)


@click.command()
@_data_options
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
@_SETTINGS
@click.option("--rank", is_flag=True, help="Also ranks all destinations, as TGB does.")
@click.option(
    "--rank-sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ranks for so many test events only; implies --rank.",
)
@_time_options
@click.option(
    "--snapshot-seconds",
    type=click.IntRange(min=1),
    metavar="S",
    help="With --protocol roland: the width of a snapshot.",
)
@click.option(
    "--first-test",
    type=click.IntRange(min=1),
    metavar="K",
    help="With --protocol roland: the first test task.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Writes the results there as JSON.",
)
@_JSON
def evaluate(
    given: str | None,
    data: str | None,
    samplers: tuple[str, ...],
    settings: tuple[str, ...],
    rank: bool,
    rank_sample: int | None,
    validation_after: str | None,
    test_after: str | None,
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
    roland   from snapshots up to now rank all nodes for every source of the next one

    \b
      tidegraph evaluate wikipedia --sampler random-dst --sampler historical
      tidegraph evaluate calls.csv --seeds 0 --set epochs=4
      tidegraph evaluate uci --protocol roland --json

    A true pair is told from a negative one: random-dst exchanges the destination, random-all takes
    any node at all (easy where users meet items), historical draws pairs that met before,
    inductive those that met first after training. Compare numbers under one sampler only.
    """
    if output is not None and not output.absolute().parent.is_dir():
        raise click.BadParameter(f"{output.parent} is not a directory", param_hint="--output")
    protocol = {
        name: options.pop(name) for name in ("protocol", "seeds", "snapshot_seconds", "first_test")
    }
    chosen = _settings(settings)
    begun = time.perf_counter()
    name, stream = _events(given, data, options)
    read_s = round(time.perf_counter() - begun, 3)
    from tidegraph import experiment

    with progress("evaluate") as report:
        results = experiment.evaluate(
            stream,
            samplers=samplers or None,
            settings=chosen,
            rank=rank or rank_sample is not None,
            rank_sample=rank_sample,
            validation_after=_time_or_none(validation_after, stream.unit),
            test_after=_time_or_none(test_after, stream.unit),
            name=name,
            progress=report,
            **protocol,
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
    """Prints what `experiment.evaluate` gives: a table per sampler, notes, and seconds."""
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
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in results["elapsed_s"].items())
    out.print(f"Seconds: {stages}")
