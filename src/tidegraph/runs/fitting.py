"""The stages that make one model in a directory: prepare what it reads, train, save."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegraph.core.durable import link_or_copy, put_in_place
from tidegraph.core.errors import TidegraphError
from tidegraph.core.progress import Progress
from tidegraph.core.resume import read_json, write_json
from tidegraph.evaluation import Split
from tidegraph.events.stream import EventStream
from tidegraph.learning.tasks.recorded import STORE
from tidegraph.report import Telemetry
from tidegraph.runs.stages import Spent, Stages, delete, read_stages
from tidegraph.runs.trials import Model
from tidegraph.store.trajectories import Trajectories, copy_store

CHECKPOINT, MODEL = "training.safetensors", "model"
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class Fitting:
    """One model in a directory, and the stages that make it.

    stages: where the stages `record` and `train` are noted, with `suffix` after their names.
    recorded_as, trained_as: the fingerprints of what they depend on.
    events_file: holds `events`, for the saved model to share; None: there is no such file.
    observed: whether to keep, beside the record, what a report shows of the propagation.
    """

    directory: Path
    stages: Stages
    events: EventStream
    split: Split
    recorded_as: str
    trained_as: str
    suffix: str = ""
    events_file: Path | None = None
    observed: bool = False
    progress: Progress

    def __post_init__(self) -> None:
        self.store, self.telemetry = self.directory / STORE, self.directory / "telemetry"
        self.saved, self._history = self.directory / MODEL, self.directory / "history.json"
        self._checkpoint = self.directory / CHECKPOINT
        self._outputs = self.saved, self._history, self._checkpoint

    def trained(self) -> bool:
        """Return whether the model has been trained and saved."""
        return self.stages.finished(f"train{self.suffix}", self.trained_as, *self._outputs)

    def record(self, model: Model, *, lenders: Iterable[Path] = ()) -> None:
        """Prepare what the model reads of the stream: its history and, if it reads one, its record.

        Resume recording, or take the record of a run among `lenders`.
        """
        name = f"record{self.suffix}"
        self.progress(0, 1, "looking for records")
        if self.stages.finished(name, self.recorded_as, self.store):
            model.observe(self.events, self.split)  # finds the record complete
            return
        with self.stages.stage(name, self.recorded_as, self.store, self.telemetry) as spent:
            if model.reads_record and not self.store.exists():
                spent.taken_from = None
                self._borrow(name, spent, lenders)
            watched = self.observed and model.reads_record
            watch = Telemetry(self.events, self.split) if watched else None
            model.observe(self.events, self.split, progress=self.progress, watch=watch)
            if watch is not None:
                watch.save(self.telemetry)

    def _borrow(self, name: str, spent: Spent, lenders: Iterable[Path]) -> None:
        part = self.directory / f"{STORE}.part"
        for run in lenders:
            store = run / self.directory.name / STORE
            # It may not be a run, or be removed while it is copied.
            with contextlib.suppress(OSError, TidegraphError):
                entry = read_stages(run).get(name, {})
                if entry.get("finished") != self.recorded_as or not store.is_dir():
                    continue
                delete(part)
                copy_store(store, part)
                if not Trajectories.open(part).complete:
                    continue
                put_in_place(part, self.store)
                with contextlib.suppress(OSError):  # it has none if its report was not wanted
                    link_or_copy(store.with_name(self.telemetry.name), self.telemetry)
                spent.elapsed_s, spent.taken_from = entry["elapsed_s"], str(run)
                _log.info("%s: taken from %s", name, run)
                return
        delete(part)

    def train(self, model: Model) -> None:
        """Train the model on its record, from the last checkpoint on, and save it."""
        self.progress(0, 1, "reading features")
        with self.stages.stage(f"train{self.suffix}", self.trained_as, *self._outputs):
            model.train(self.split, checkpoint=self._checkpoint, progress=self.progress)
            self.progress(0, 1, "saving the model")
            write_json(self._history, [epoch.plain() for epoch in model.epochs_])
            part = self.directory / f"{MODEL}.part"
            delete(part)
            delete(self.saved)
            model.share_events(self.events_file)
            model.save(part)
            put_in_place(part, self.saved)

    def history(self) -> list[dict[str, Any]]:
        """Return what each epoch of the training achieved."""
        epochs: list[dict[str, Any]] = read_json(self._history)
        return epochs

    def forget(self) -> None:
        """Remove what is large; scores, history and weights stay."""
        self.stages.forget_output(f"train{self.suffix}", self.saved)
        self.stages.forget_output(f"record{self.suffix}", self.store)
