"""The models and events in the directories that `train` and `run` write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tidegraph.core.errors import StateFileError
from tidegraph.learning.settings import TASKS

if TYPE_CHECKING:
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
