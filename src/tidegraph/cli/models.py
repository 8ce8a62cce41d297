"""The models and events in the directories that `train` and `run` write."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegraph.cli.results import names_by_side
from tidegraph.core.errors import DataError, StateFileError
from tidegraph.learning.settings import TASKS

if TYPE_CHECKING:
    from tidegraph.events.stream import EventStream
    from tidegraph.learning.tasks import Estimator

_EVENTS = {"config.toml": "events.tide", "model.safetensors": "events"}  # beside what marks them


def events_file(name: str | Path) -> str | Path:
    """Return the file with the events of a run or model, if it is the directory of one."""
    for mark, events in _EVENTS.items():
        if (Path(name) / mark).is_file():
            if not (Path(name) / events).is_file():
                raise StateFileError(
                    f"{name} has no {events}: it was interrupted before it had saved its events"
                )
            return Path(name) / events
    return name


def saved_model(path: Path) -> Path:
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


def task_of(directory: Path) -> str:
    """Return the task of a saved model."""
    about = json.loads((directory / "settings.json").read_bytes())
    return next((task for task, kind in TASKS.items() if kind.model == about["task"]), "link")


def load_model(directory: Path) -> Estimator:
    """Return a saved model of any task."""
    from tidegraph.learning.tasks import MODELS

    return MODELS[task_of(directory)].load(directory)


# Reading as the events of a model were read -------------------------------------------------------


def events_like(stream: EventStream, file: Path) -> EventStream:
    """Read a table with the columns that the stream was read from; a label may be missing."""
    from tidegraph.events.own_columns import carried_columns
    from tidegraph.events.tables import TableError, read_table, sources

    uses = {} if stream.report is None else stream.report.columns
    roles: dict[str, Any] = {role: use.column for role, use in uses.items()}
    if "label" in roles and roles["label"] not in sources.source_of(file, None, None).columns:
        del roles["label"]
    options: dict[str, Any] = {"weight": False, "label": False} | roles
    options["edge_features"] = carried_columns(stream)
    if stream.weight is None:
        options["weight"] = False  # one that was <= 0 became a feature
    unit, bipartite = given_unit(stream), names_by_side(stream)
    try:
        events = read_table(file, bipartite=bipartite, unit=unit, **options)
    except TableError as error:
        raise DataError(error.spelled(lambda _: None)) from error
    return in_unit(events, stream.unit)


def given_unit(stream: EventStream) -> str | None:
    """Return the unit that was given when the stream was read, if it was."""
    remarks = " ".join(() if stream.report is None else stream.report.remarks)
    given = re.search(r"t (?:counts (\w+), as given|has fractions of (\w+))", remarks)
    return None if given is None else given[1] or given[2]


def in_unit(events: EventStream, unit: str) -> EventStream:
    """Return the events with times in a finer unit, where theirs is coarser for want of need."""
    from tidegraph.events.moments import PER_SECOND

    finer = [PER_SECOND.get(each, 0) for each in (unit, events.unit)]
    if finer[0] > finer[1] > 0:  # this file needs no fractions
        events = replace(events, t=events.t * (finer[0] // finer[1]), unit=unit)
    return events
