"""Train a model and save it in a directory, resumably and by several processes if there are."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegraph.core.durable import only_writer, put_in_place
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.progress import Progress, prefixed, silent
from tidegraph.core.resume import resume_or_create
from tidegraph.evaluation import Result, Split
from tidegraph.events.stream import EventStream
from tidegraph.learning import training
from tidegraph.learning.settings import model_settings_of
from tidegraph.learning.tasks import MODELS
from tidegraph.learning.tasks.recorded import STORE
from tidegraph.runs.evaluating import too_few
from tidegraph.runs.fitting import CHECKPOINT, Fitting
from tidegraph.runs.protocol import Protocol, split_stream
from tidegraph.runs.stages import Stages, fingerprint
from tidegraph.runs.trials import Model, with_settings

_INPUTS = "run.json"


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, where it is saved, and how it does on the events that decided when to stop."""

    predictor: Model
    path: Path
    validation: Result


def unfinished(path: str | Path) -> Path:
    """Return the directory in which `train` works until the model at `path` is complete."""
    whole = Path(path).absolute()
    return whole.with_name(f"{whole.name}.unfinished")


def is_unfinished(path: str | Path) -> bool:
    """Return whether an interrupted training of the model at `path` can be resumed."""
    return (unfinished(path) / _INPUTS).is_file()


def train(
    stream: EventStream,
    path: str | Path,
    *,
    protocol: Protocol | str | None = None,
    task: str = "link",
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Fit the model of a task to the stream and save it in a new directory.

    Without a protocol the last 15 % of the events decide when to stop and all others train; with
    one, its test events take no part in training. The directory appears when it is complete. What
    a killed process leaves next to it (`unfinished`) is resumed by the next call with the same
    events and settings, which ends with the same weights.

    Started by `torchrun` in several processes that see one file system, the first prepares and
    writes while the others wait, and all train together; each of them returns the model.
    """
    protocol = None if protocol is None else Protocol.of(protocol)
    check_training(path, task=task, settings=settings)
    directory, work = Path(path), unfinished(path)
    split = split_stream(stream, protocol)
    predictor = with_settings(MODELS[task](), settings, {"path": str(work / STORE)})
    with training.joined(predictor.device) as ranks, contextlib.ExitStack() as held:
        report = progress if progress is not None and ranks.leads else silent
        fitting = None
        if ranks.leads:
            work.mkdir(exist_ok=True)
            held.enter_context(only_writer(work))
            held.enter_context(_nothing_useless(work))
            fitting = _fitting(stream, split, predictor, work, report)
            fitting.record(predictor)
        # From here on all that the model reads is there, and perhaps a model to be put in place.
        trained = ranks.share(fitting is not None and fitting.trained())
        if not trained:
            if not ranks.leads:
                predictor.reopen(stream, split)
            if fitting is not None:
                fitting.train(predictor)
            else:
                predictor.train(split, checkpoint=work / CHECKPOINT)
        if fitting is not None:
            put_in_place(fitting.saved, directory)
        ranks.share(None)  # from here on there is a model, and nobody needs the record
        report(0, 1, "validating")
        if ranks.leads:
            shutil.rmtree(work)
        saved = MODELS[task].load(directory)
        validating = prefixed(report, "validating, ")
        result = ranks.share(saved.validate(split, progress=validating) if ranks.leads else None)
    assert result is not None  # the first process shares its own
    notes = too_few(result.row("validation").examples)
    return Trained(saved, directory, replace(result, warnings=(*result.warnings, *notes)))


def _fitting(
    stream: EventStream, split: Split, predictor: Model, work: Path, report: Progress
) -> Fitting:
    """Return the stages of a training in `work`, new or as an earlier process left them."""
    inputs = {
        "events": stream.digest(),
        "split": split.name,
        "validation_time": split.validation_time,
        "test_time": str(split.test_time),  # JSON has no infinity
        **({} if predictor.task == "link" else {"task": predictor.task}),
        **{f"setting {name}": value for name, value in predictor.get_params().items()},
    }
    resume_or_create(
        work,
        inputs,
        file=_INPUTS,
        kind="an unfinished run",
        advice="repeat that run to resume it, or delete it to start afresh",
        result=work / STORE / "manifest.json" if predictor.reads_record else work / CHECKPOINT,
    )
    made_from = fingerprint(**inputs)
    return Fitting(
        directory=work,
        stages=Stages(work),
        events=stream,
        split=split,
        recorded_as=made_from,
        trained_as=made_from,
        progress=report,
    )


@contextlib.contextmanager
def _nothing_useless(work: Path) -> Iterator[None]:
    """Remove what an error leaves in `work`, unless another call can resume it."""
    try:
        yield
    except Exception as error:
        # Wrong settings or events would be wrong again.
        rejected = isinstance(error, (ValueError, TypeError))
        rejected = rejected and not isinstance(error, StateFileError)
        recorded = (work / STORE / "manifest.json").exists() and not rejected
        own = (work / _INPUTS).is_file() or not any(work.iterdir())
        if own and not recorded and not (work / CHECKPOINT).exists():
            shutil.rmtree(work)
        raise


def check_training(
    path: str | Path, *, task: str = "link", settings: Mapping[str, Any] | None = None
) -> None:
    """Raise an error for arguments of `train` that are wrong whatever the events are."""
    directory, work = Path(path), unfinished(path)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        if (directory / "model.safetensors").is_file() and is_unfinished(path):
            shutil.rmtree(work)  # left by a process that was killed after its model was complete
        raise StateFileError(f"{directory} exists already; give another directory, or delete it")
    if not work.parent.is_dir():
        raise StateFileError(f"{work.parent} is not a directory; make it first")
    model_settings_of(task)  # rejects an unknown one
    with_settings(MODELS[task](), settings, {"path": None})
    for name, value in (settings or {}).items():
        try:
            json.dumps(value)  # settings identify what is resumed
        except TypeError:
            raise ParameterError(
                f"the setting {name!r} is {value!r}, which cannot be written to a file; give a"
                f" name or a plain number, or use {MODELS[task].__name__}({name}=...).fit and save"
            ) from None
