"""The commands `tidegraph run` and `tidegraph resume`: from events to a report."""

from __future__ import annotations

import dataclasses
import logging
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tidegraph.cli.options import (
    DIRECTORY,
    JSON_OPTION,
    LABEL_DELAY_OPTION,
    NODE_TABLES,
    PATH,
    PRESET_OPTION,
    READING_NAMES,
    TASK_OPTION,
    as_seeds,
    check_node_tables,
    model_options,
    node_table,
    node_table_options,
    option,
    print_settings,
    reading_options,
    sampler_option,
    set_option,
    setting_option,
    snapshot_options,
    time_options,
    together,
)
from tidegraph.cli.reading import read_and_report, require_exists
from tidegraph.cli.results import next_steps, print_results
from tidegraph.cli.terminal import NOTHING_KEPT, Command, console, echo_json, on_interrupt, progress
from tidegraph.core.declarations import declared
from tidegraph.learning.settings import TASKS, Evaluation, RunSettings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.console import Console

    from tidegraph.events.stream import EventStream
    from tidegraph.runs.config import Settings
    from tidegraph.runs.run import Run

# Settings under [data] whose options have other names in Python.
_COLUMN_OPTIONS = {"format_": "format", "t": "time"}


_output_options = together(
    option("-q --quiet", "Show nothing but errors (and the line of --json).", is_flag=True),
    option("--verbose", "Also show the log, on standard error.", is_flag=True),
    JSON_OPTION,
)


def _data_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from tidegraph.events.datasets import NAMES

    known = [CompletionItem(name) for name in NAMES if name.startswith(incomplete)]
    return [*known, CompletionItem(incomplete, type="file")]


def _print_all_settings() -> None:
    from tidegraph.runs import config

    for task in TASKS:
        click.echo(f"task={task}:")
        known = config.settings_by_key(task).items()
        print_settings({key: one for key, one in known if key not in ("task", "data.name")}, 34)


# run ----------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("data", metavar="[DATA]", required=False, shell_complete=_data_names)
@option(
    "--config config_file",
    "Settings in TOML, such as the config.toml of a run.",
    type=PATH,
    metavar="FILE",
)
@option("--name", "Of the run. Default: that of the data.")
@set_option("words", "KEY=VALUE", "A setting, such as model.epochs=4", _print_all_settings)
@option("--seeds", "One training each. Default: 0.", callback=as_seeds, metavar="0,1,2")
@TASK_OPTION
@PRESET_OPTION
@LABEL_DELAY_OPTION
@setting_option(Evaluation, "protocol", note=". Default: tgn")
@sampler_option("random-dst and historical")
@setting_option(Evaluation, "knowledge", note=". Default: event")
@time_options
@snapshot_options
@option("--out", "The directory of all runs.", Path("runs"), type=DIRECTORY)
@option("--no-report", "Write no report.html.", is_flag=True)
@option("--tensorboard", "Also write curves for TensorBoard.", is_flag=True)
@setting_option(RunSettings, "quick")
@setting_option(RunSettings, "skip", multiple=True)
@setting_option(RunSettings, "keep")
@reading_options
@node_table_options
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
    **options: Any,
) -> None:
    """Propagate, record, train, evaluate and report, with one command.

    DATA is the name of a data set (tidegraph data list) or a file of events, which needs a column
    for who acts, one for on whom, and one for when. Which is which is guessed, and reported; rows
    may be in any order.

    \b
      tidegraph run nyc-flights                       the shipped data
      tidegraph run calls.csv --src Caller --dst Callee --time When
      tidegraph run wikipedia --task node --seeds 0,1,2
      tidegraph run payments.csv --task events --label fraud
      tidegraph run uci --set epochs=20 --set samplers=random-dst,inductive
      tidegraph run calls.csv --quick                 a first look, in a fraction of the time
      tidegraph run --config runs/uci/config.toml --seeds 3,4,5 --name uci-again

    Settings come from the defaults, --preset, --config, other options and --set, each overriding
    those before it; with another task or preset than its own, the [model] of --config is ignored.
    All files are in runs/NAME. A run that was interrupted resumes with tidegraph resume runs/NAME,
    or with the same command; stages whose inputs have not changed are reused. Exit codes: 0 done,
    1 failed, 2 rejected, 130 interrupted.
    """
    require_exists(data)
    settings = _settings(ctx, data, config_file, words, options)
    check_node_tables(settings.task, vars(settings.data))
    from tidegraph import runs

    directory = runs.run_directory(out, name, settings)
    command = shlex.join(["tidegraph", *sys.argv[1:]])
    if verbose:
        _show_log()
    on_interrupt(NOTHING_KEPT)
    runs.check(settings)  # before reading, which may take long
    stream = _read(settings, quiet)
    begun = runs.Run(directory, settings, stream, command=command)
    if not quiet:
        console().print(str(begun.estimate()), markup=False, highlight=False)
    _execute(begun, quiet)


def _settings(
    ctx: click.Context,
    data: str | None,
    config_file: Path | None,
    words: tuple[str, ...],
    options: Mapping[str, Any],
) -> Settings:
    """Return the settings of the file, the options and --set, each overriding those before it."""
    from tidegraph.runs import config

    def was_given(option: str) -> bool:
        return ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE

    file = {} if config_file is None else config.read(config_file)
    given: dict[str, Any] = {
        key: options[key] for key in ("task", "preset", "quick", "skip", "keep") if was_given(key)
    }
    if was_given("seeds"):
        given["seeds"] = options["seeds"]
    given["data"] = {
        _COLUMN_OPTIONS.get(key, key): options[key]
        for key in (*READING_NAMES, *NODE_TABLES)
        if was_given(key)
    }
    if was_given("labels") and not was_given("task") and "task" not in file:
        given["task"] = "node"
    if data is not None:
        given["data"]["name"] = data
    given["evaluation"] = {key: options[key] for key in declared(Evaluation) if was_given(key)}
    given["report"] = {"tensorboard": True} if options["tensorboard"] else {}
    if options["no_report"]:
        given["report"]["html"] = False
    task = str(given.get("task", file.get("task", "link")))
    if was_given("label_delay"):
        given["model"] = model_options(task, (), options["label_delay"])
    return _with_full_path(config.resolve(file, given, config.assignments(words, task)))


def _with_full_path(settings: Settings) -> Settings:
    """Return the settings with the absolute paths of files, the same from any directory."""
    from tidegraph.events.datasets import DATA_SETS

    def full(file: str) -> str:
        return str(Path(file).resolve()) if Path(file).exists() else file

    def of_nodes(given: str) -> str:
        file, _ = node_table(given)
        return full(file) + given[len(file) :]

    data = settings.data
    full_data = dataclasses.replace(
        data,
        name=data.name if data.name in DATA_SETS else full(data.name),
        labels=None if data.labels is None else of_nodes(data.labels),
        node_features=tuple(map(of_nodes, data.node_features)),
    )
    return dataclasses.replace(settings, data=full_data)


def _read(settings: Settings, quiet: bool) -> EventStream:
    """Return the events, whatever their format; print how a file was understood."""
    from tidegraph.events import datasets, formats

    data, path = settings.data, Path(settings.data.name)
    options: dict[str, Any] = {
        name: getattr(data, _COLUMN_OPTIONS.get(name, name))
        for name in (*READING_NAMES, *NODE_TABLES)
    }
    # Such rows are known to be in order.
    if data.name in datasets.DATA_SETS or path.is_dir() or formats.is_saved(path):
        options["sort"] = False
    return read_and_report(data.name, options, quiet=quiet, own_columns=settings.task == "events")


# resume -------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("directory", metavar="RUN", type=DIRECTORY)
@_output_options
def resume(directory: Path, quiet: bool, verbose: bool) -> None:
    """Finish a run that was interrupted, with the numbers it would have had.

    RUN is the directory of the run, such as runs/calls. A run that is finished prints its results
    again, and rewrites its report.
    """
    from tidegraph import runs

    if verbose:
        _show_log()
    _execute(runs.Run.resumed(directory), quiet)


def _execute(run: Run, quiet: bool) -> None:
    on_interrupt(lambda: _how_to_resume(run.directory))
    with progress("run", quiet=quiet) as report:
        results = run.execute(progress=report)
    if not quiet:
        _print(console(), run, results)
    echo_json(results)


def _print(out: Console, run: Run, results: Mapping[str, Any]) -> None:
    from tidegraph.runs.directory import model_directory

    directory = run.directory
    print_results(out, results)
    if results["reused"]:
        out.print(f"Reused stages: {', '.join(results['reused'])}.", markup=False)
    for stage, whose in results["taken_from"].items():
        out.print(f"{stage} was taken from {whose}, with its seconds.", markup=False)
    names = ("config.toml", "metrics.json", "log.txt", "events.tide")
    files = [name for name in names if (directory / name).is_file()]
    models = [model_directory(directory, seed) for seed in results["seeds"]]
    files += [str(model.relative_to(directory)) for model in models if model.is_dir()]
    out.print(f"Files in {directory}: {', '.join(files)}.", markup=False, soft_wrap=True)
    if results["report"] is not None:
        out.print(f"Report: {results['report']}", markup=False, soft_wrap=True)
    for line in next_steps(directory, run.stream, results["task"]):
        out.print(line, markup=False, soft_wrap=True)


def _how_to_resume(directory: Path) -> str:
    from tidegraph.runs.stages import read_stages

    stages = read_stages(directory)
    finished = [name for name, stage in stages.items() if stage["finished"] is not None]
    if "data" not in finished:
        return NOTHING_KEPT
    return (
        f"Finished: {', '.join(finished)}; another stage goes on from its last checkpoint."
        f" tidegraph resume {shlex.quote(str(directory))} continues."
    )


def _show_log() -> None:
    """Show what the package logs, until the command ends."""
    logger = logging.getLogger("tidegraph")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    click.get_current_context().call_on_close(lambda: logger.removeHandler(handler))
