"""The commands `tidegraph run`, `resume` and `compare`: from events to a report, in one go."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from tidegraph.cli.data import (
    check_there,
    echo_read,
    read_events,
    tell_which,
)
from tidegraph.cli.learn import (
    as_seeds,
    next_steps,
    print_results,
)
from tidegraph.cli.setting_options import (
    READING_NAMES,
    print_settings,
    reading_options,
    setting_option,
    snapshot_options,
    time_options,
)
from tidegraph.cli.terminal import Command, Stopped, console, progress, table
from tidegraph.core.declarations import declared
from tidegraph.core.progress import Progress
from tidegraph.learning.presets import PRESETS
from tidegraph.learning.settings import Evaluation, RunSettings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.console import Console

    from tidegraph.events.stream import EventStream
    from tidegraph.learning.settings import Data
    from tidegraph.runs.config import Settings
    from tidegraph.runs.run import Run

__all__ = ["compare", "completion", "resume", "run"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

# Settings under [data] that are called otherwise by the options of other commands.
_COLUMN_OPTIONS = {"format_": "format", "t": "time"}


def _output_options(command: _Command) -> _Command:
    for option in (
        click.option(
            "--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON."
        ),
        click.option("--verbose", is_flag=True, help="Also shows the log, on standard error."),
        click.option(
            "-q", "--quiet", is_flag=True, help="Shows nothing but errors (and --json's line)."
        ),
    ):
        command = option(command)
    return command


def _data_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from tidegraph.events.datasets import NAMES

    known = [CompletionItem(name) for name in NAMES if name.startswith(incomplete)]
    return [*known, CompletionItem(incomplete, type="file")]


def _help_on_settings(
    ctx: click.Context, param: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    if "help" in words:
        from tidegraph.runs import config

        for task in ("link", "node"):
            click.echo(f"task={task}:")
            known = config.settings_by_key(task).items()
            print_settings({key: one for key, one in known if key not in ("task", "data.name")}, 34)
        ctx.exit()
    return words


# run ----------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("data", metavar="[DATA]", required=False, shell_complete=_data_names)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings in TOML, as every run keeps them in its config.toml.",
)
@click.option("--name", help="Of the run. Default: that of the data.")
@click.option(
    "--set",
    "words",
    multiple=True,
    is_eager=True,
    callback=_help_on_settings,
    metavar="KEY=VALUE",
    help="A setting, such as model.epochs=4; may be given several times. `--set help` lists them.",
)
@click.option("--seeds", callback=as_seeds, metavar="0,1,2", help="One training each. Default: 0.")
@setting_option(RunSettings, "task", note=". Default: link")
@setting_option(RunSettings, "preset", metavar="NAME", note=f". Presets: {', '.join(PRESETS)}")
@setting_option(Evaluation, "protocol", note=". Default: tgn")
@setting_option(
    Evaluation,
    "samplers",
    "--sampler",
    "samplers",
    multiple=True,
    help="Sampler of negatives; may be given several times. Default: random-dst and historical.",
)
@time_options
@snapshot_options
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="The directory of all runs.",
)
@click.option("--no-report", is_flag=True, help="Writes no report.html.")
@click.option("--tensorboard", is_flag=True, help="Also writes curves for TensorBoard.")
@setting_option(RunSettings, "keep")
@reading_options
@_output_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    data: str | None,
    config_file: Path | None,
    name: str | None,
    words: tuple[str, ...],
    out: Path,
    quiet: bool,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Propagate, record, train, evaluate and report: all of it, with one command.

    DATA is the name of a data set (tidegraph data list) or a file of events, which needs a column
    for who acts, one for on whom, and one for when. Which is which is guessed, and said; rows may
    be in any order.

    \b
      tidegraph run nyc-flights                       the shipped data
      tidegraph run calls.csv --src Caller --dst Callee --time When
      tidegraph run wikipedia --task node --seeds 0,1,2
      tidegraph run uci --set epochs=20 --set samplers=random-dst,inductive
      tidegraph run --config runs/uci/config.toml --seeds 3,4,5 --name uci-again

    Settings come from the defaults, --preset, --config, other options and --set, each overriding
    those before it; with another task or preset than its own, what --config says of the model is
    left out. All is kept in runs/NAME. A run that was interrupted goes on with tidegraph
    resume runs/NAME, or with the same command; stages whose inputs have not changed are not done
    again. Exit codes: 0 done, 1 failed, 2 refused, 130 interrupted.
    """
    check_there(data)
    settings = _settings(ctx, data, config_file, words, options)
    from tidegraph import runs

    directory = runs.place(out, name, settings)
    command = shlex.join(["tidegraph", *sys.argv[1:]])
    with _logging(verbose), _stoppable(directory):
        runs.check(settings)  # before reading, which may take long
        stream = _read(settings.data, quiet)
        _execute(runs.Run(directory, settings, stream, command=command), quiet, as_json)


def _settings(
    ctx: click.Context,
    data: str | None,
    config_file: Path | None,
    words: tuple[str, ...],
    options: Mapping[str, Any],
) -> Settings:
    """What the file, the options and the words of --set say, each overriding those before it."""
    from tidegraph.runs import config

    def was_given(option: str) -> bool:
        return ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE

    file = {} if config_file is None else config.read(config_file)
    given: dict[str, Any] = {
        key: options[key] for key in ("task", "preset", "keep") if was_given(key)
    }
    if was_given("seeds"):
        given["seeds"] = options["seeds"]
    given["data"] = {
        _COLUMN_OPTIONS.get(key, key): options[key] for key in READING_NAMES if was_given(key)
    }
    if data is not None:
        given["data"]["name"] = data
    given["evaluation"] = {key: options[key] for key in declared(Evaluation) if was_given(key)}
    given["report"] = {"tensorboard": True} if options["tensorboard"] else {}
    if options["no_report"]:
        given["report"]["html"] = False
    task = str(given.get("task", file.get("task", "link")))
    return _located(config.resolve(file, given, config.assignments(words, task)))


def _located(settings: Settings) -> Settings:
    """The same with the whole path of a file, so that the run can be told from any directory."""
    from tidegraph.events.datasets import DATA_SETS

    path = Path(settings.data.name)
    if settings.data.name in DATA_SETS or not path.exists():
        return settings
    data = dataclasses.replace(settings.data, name=str(path.resolve()))
    return dataclasses.replace(settings, data=data)


def _read(data: Data, quiet: bool) -> EventStream:
    """The events, however they are stored; says how a file was understood."""
    from tidegraph.events import datasets, formats

    if not quiet:
        tell_which(data.name)
    path = Path(data.name)
    options: dict[str, Any] = {
        name: getattr(data, _COLUMN_OPTIONS.get(name, name)) for name in READING_NAMES
    }
    # A default that has no meaning where rows are known to be in order.
    if data.name in datasets.DATA_SETS or path.is_dir() or formats.recognised(path) == "saved":
        options["sort"] = False
    with _shown("read", quiet) as report:
        report(0, 1, data.name)
        stream = read_events(data.name, options)
    if not quiet:
        echo_read(data.name, stream)
    return stream


# resume -------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("directory", metavar="RUN", type=click.Path(file_okay=False, path_type=Path))
@_output_options
def resume(directory: Path, quiet: bool, verbose: bool, as_json: bool) -> None:
    """Go on with a run that was interrupted, to the numbers it would have had.

    RUN is the directory of the run, such as runs/calls. A run that is finished says again what it
    achieved, and writes its report anew.
    """
    from tidegraph import runs

    with _logging(verbose), _stoppable(directory):
        _execute(runs.Run.resumed(directory), quiet, as_json)


def _execute(run: Run, quiet: bool, as_json: bool) -> None:
    with _shown("run", quiet) as report:
        results = run.execute(progress=report)
    if not quiet:
        _print(console(), run, results)
    if as_json:
        click.echo(json.dumps(results))


def _print(out: Console, run: Run, results: Mapping[str, Any]) -> None:
    directory = run.directory
    print_results(out, results)
    if results["reused"]:
        out.print(f"As before, and not done again: {', '.join(results['reused'])}.", markup=False)
    for stage, whose in results["taken_from"].items():
        out.print(f"{stage} was taken from {whose}, with its seconds.", markup=False)
    names = ("config.toml", "metrics.json", "log.txt", "events.tide")
    kept = [name for name in names if (directory / name).is_file()]
    kept += [f"seed-{seed}/model" for seed in results["seeds"] if _model(directory, seed).is_dir()]
    out.print(f"Kept in {directory}: {', '.join(kept)}.", markup=False, soft_wrap=True)
    if results["report"] is not None:
        out.print(f"Report: {results['report']}", markup=False, soft_wrap=True)
    if results["task"] == "link":
        for line in next_steps(directory, run.stream):
            out.print(line, markup=False, soft_wrap=True)


def _model(directory: Path, seed: int) -> Path:
    return directory / f"seed-{seed}" / "model"


@contextlib.contextmanager
def _shown(title: str, quiet: bool) -> Iterator[Progress]:
    if quiet:
        yield lambda done, total, what: None
    else:
        with progress(title) as report:
            yield report


@contextlib.contextmanager
def _stoppable(directory: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if (directory / "config.toml").is_file():
            advice = f"tidegraph resume {shlex.quote(str(directory))} goes on."
        else:
            advice = "Nothing was written."
        raise Stopped(advice) from None


@contextlib.contextmanager
def _logging(verbose: bool) -> Iterator[None]:
    """Shows what the package logs, where that is wanted."""
    if not verbose:
        yield
        return
    logger = logging.getLogger("tidegraph")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


# compare ------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument(
    "directories",
    metavar="RUN...",
    nargs=-1,
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also writes a page that shows the runs beside each other.",
)
@click.option("--json", "as_json", is_flag=True, help="Ends with the results as one line of JSON.")
def compare(directories: tuple[Path, ...], html_file: Path | None, as_json: bool) -> None:
    """Put finished runs beside each other: numbers, and the settings in which they differ.

    \b
      tidegraph compare runs/uci runs/uci-2 --html compared.html
    """
    from tidegraph import runs

    if len(directories) == 1:
        runs.read_metrics(directories[0])  # a mistake in the path is told first
        raise click.UsageError("one run has nothing beside it; give two or more")
    if html_file is not None and not html_file.absolute().parent.is_dir():
        raise click.BadParameter(f"{html_file.parent} is not a directory", param_hint="--html")
    compared = runs.compare(directories)
    _print_comparison(console(), compared)
    page = None
    if html_file is not None:
        page = str(runs.write_comparison(directories, html_file))
        click.echo(f"Wrote {page}")
    if as_json:
        click.echo(json.dumps({**compared, "html": page}))


def _print_comparison(out: Console, compared: Mapping[str, Any]) -> None:
    found = compared["runs"]
    columns = {
        (sampler, part): one["headlines"][sampler]
        for one in found
        for sampler, parts in one["metrics"].items()
        for part in parts
    }
    titles = [
        f"{'labels' if sampler == 'none' else sampler}, {part}: {metric}"
        for (sampler, part), metric in columns.items()
    ]
    shown = table("Percent; in brackets the best heuristic", ["run", "seeds", *titles, "seconds"])
    shown.columns[0].justify = "left"
    for one in found:
        cells = [_cell(one, sampler, part, metric) for (sampler, part), metric in columns.items()]
        seconds = f"{one['elapsed_s']['total']:.0f}"
        shown.add_row(one["run"], str(len(one["seeds"])), *cells, seconds)
    out.print(shown)
    if compared["differences"]:
        shown = table("Settings that differ", ["setting", *(one["run"] for one in found)])
        for key, values in compared["differences"].items():
            shown.add_row(key, *("none" if value is None else str(value) for value in values))
        out.print(shown)
    for warning in compared["warnings"]:
        out.print(f"Note: {warning}", style="yellow", markup=False)


def _cell(one: Mapping[str, Any], sampler: str, part: str, metric: str) -> str:
    value = one["metrics"].get(sampler, {}).get(part, {}).get(metric)
    if value is None:
        return ""
    best = max(rule[sampler][part][metric] for rule in one["heuristics"].values())
    spread = f" ± {100 * value['std']:.2f}" if len(one["seeds"]) > 1 else ""
    return f"{100 * value['mean']:.2f}{spread} ({100 * best:.2f})"


# completion ---------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands, options and data sets.

    \b
      bash   eval "$(tidegraph completion bash)" in ~/.bashrc
      zsh    eval "$(tidegraph completion zsh)" in ~/.zshrc, after compinit
      fish   tidegraph completion fish > ~/.config/fish/completions/tidegraph.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "tidegraph", "_TIDEGRAPH_COMPLETE").source())
    if sys.stdout.isatty():  # somebody reads it, and not a shell
        click.echo("tidegraph completion --help says where to put this", err=True)
