"""Runs: from events to numbers and a report, in a directory, interrupted and resumed at any moment.

A run goes through stages (see `stages`), each with a fingerprint of all that its outcome depends
on: settings, the events, the stages before it and the code of the package. A stage that was
finished with the same fingerprint is reused, and one that was only begun continues from its own
checkpoints, so that a run that was killed ends with the same numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tidegraph import report
from tidegraph.core import machine
from tidegraph.core.durable import only_writer, replace_file
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.progress import Progress, prefixed, silent
from tidegraph.core.resume import read_json, write_json
from tidegraph.evaluation.results import Scores
from tidegraph.events.stream import EventStream
from tidegraph.learning.presets import QUICK
from tidegraph.learning.settings import RECORD_SETTINGS
from tidegraph.runs.config import Settings
from tidegraph.runs.directory import CONFIG, METRICS, is_run, read_settings
from tidegraph.runs.estimate import Estimate, estimate
from tidegraph.runs.evaluating import check_evaluation, summary
from tidegraph.runs.fitting import Fitting
from tidegraph.runs.protocol import Protocol
from tidegraph.runs.stages import FILE as STAGES
from tidegraph.runs.stages import OF_SEEDS, Stages, delete, fingerprint
from tidegraph.runs.trials import Model, Trial, make_trial

_EVENTS, _LOG, _COMMAND = "events.tide", "log.txt", "command.txt"
_DEFAULT_SAMPLERS = ("random-dst", "historical")
_log = logging.getLogger(__name__)


class Run:
    """A run with these settings on these events, checked before anything is written.

    `execute` does the work. Only one process works on a directory at a time. If the directory
    holds a run, the new one replaces it and reuses all stages whose inputs are the same.
    """

    def __init__(
        self,
        directory: str | Path,
        settings: Settings,
        stream: EventStream,
        *,
        command: str | None = None,
    ) -> None:
        self.directory, self.settings, self.stream = Path(directory), settings, stream
        self._command = command
        self._resumed_from: object = None  # the state of the files it was read from
        if self.directory.exists() and not is_run(self.directory):
            raise StateFileError(
                f"{self.directory} exists and is not a run; give another name, or move it away"
            )
        check(settings)
        self._trial = _make_trial(stream, settings)

    @classmethod
    def resumed(cls, directory: str | Path) -> Run:
        """Return the run that was begun in this directory, to finish it."""
        state = _state(directory)
        settings = read_settings(directory)
        events, begun = Path(directory) / _EVENTS, Path(directory) / _COMMAND
        if not events.is_file():
            raise StateFileError(
                f"the run in {directory} was interrupted before it had saved its events; start it"
                " again"
            )
        command = begun.read_text(encoding="utf-8").strip() if begun.is_file() else None
        run = cls(directory, settings, EventStream.load(events), command=command)
        run._resumed_from = state
        return run

    @property
    def command(self) -> str | None:
        """The command that started it."""
        return self._command

    def estimate(self) -> Estimate:
        """Return what the run takes, if nothing of it can be reused."""
        stream, features = self.stream, self.stream.node_features
        columns = None
        if self.settings.task == "node" and features is not None:
            columns = features.shape[1]
        return estimate(len(stream), stream.nodes, self.settings, columns=columns)

    def prepare(self) -> None:
        """Write settings and events to a new directory, so that `resumed` continues from there."""
        self.directory.mkdir(parents=True)
        stages = Stages(self.directory)
        self._write_settings()
        self._save_events(stages, silent)

    def _write_settings(self) -> None:
        replace_file(self.directory / CONFIG, self.settings.to_toml())
        if self._command is not None:
            replace_file(self.directory / _COMMAND, f"{self._command}\n")

    def _save_events(self, stages: Stages, progress: Progress) -> None:
        events = self.directory / _EVENTS
        if not stages.finished("data", self._data_as, events):
            progress(0, 1, "saving the events")
            with stages.stage("data", self._data_as, events):
                self.stream.save(events)

    def execute(self, *, progress: Progress | None = None) -> dict[str, Any]:
        """Return the content of metrics.json and, as `report`, the path of the report or None."""
        directory = self.directory
        self.estimate().check(directory)
        directory.mkdir(parents=True, exist_ok=True)
        with only_writer(directory):
            if self._resumed_from is not None and self._resumed_from != _state(directory):
                raise StateFileError(
                    f"the run in {directory} was changed by another process after it had been read;"
                    f" tidegraph resume {directory} continues with what it is now"
                )
            self._resumed_from = None  # from here on this process changes the files
            stages = Stages(directory)
            events = directory / _EVENTS
            if not stages.finished("data", self._data_as, events):
                events.unlink(missing_ok=True)  # so that a kill cannot mix them with new settings
            # They may belong to other settings; the new ones are written when all stages are done.
            for result in (METRICS, "report.html"):
                (directory / result).unlink(missing_ok=True)
            self._write_settings()
            with _log_to(directory / _LOG):
                _log.info("tidegraph %s: %s", version("tidegraph"), self._command or "from Python")
                return self._results(stages, progress or silent)

    def _results(self, stages: Stages, progress: Progress) -> dict[str, Any]:
        directory, trial, stream = self.directory, self._trial, self.stream
        seeds, wanted = self.settings.seeds, self.settings.report
        self._save_events(stages, progress)
        heuristics = self._heuristics(stages, progress)
        scores = self._scores_of_seeds(stages, progress)
        if heuristics is None:
            note = "heuristics were skipped, so that nothing says how easy the data is"
            heuristics = dataclasses.replace(scores[0], table={}, notes=[*scores[0].notes, note])
        if wanted.html:
            progress(0, 1, "looking back for the report")
            self._observe(stages, _Seed(self, seeds[0], stages, progress), progress)
        names = ["data", *({"heuristics"} - set(self.settings.skip))]
        names += [f"{kind}/{seed}" for kind in OF_SEEDS for seed in seeds]
        names += ["observations"] if wanted.html else []
        results = summary(trial, seeds, heuristics, scores, elapsed_s=stages.elapsed_s(names))
        if self.settings.quick:
            results["warnings"].insert(0, _quick_note(self.settings.model))
        results["data"]["hash"] = results["data"]["digest"]
        results["data"]["span"] = [int(stream.t[0]), int(stream.t[-1])]
        results |= {
            "config": self.settings.to_dict(),
            "command": self._command,
            "machine": machine.describe(),
            "reused": stages.reused,
            "taken_from": stages.taken_from(names),
        }
        for note in results["warnings"]:
            _log.warning("%s", note)
        write_json(directory / METRICS, results)
        if wanted.tensorboard:
            _write_tensorboard(directory, results)
        page = None
        if wanted.html:
            progress(0, 1, "report")
            page = str(report.write(directory))
        _log.info("finished")
        return {**results, "report": page}

    def _heuristics(self, stages: Stages, progress: Progress) -> Scores | None:
        """Return the scores of the heuristics, or None where they are skipped."""
        if "heuristics" in self.settings.skip:
            return None
        progress(0, 1, "heuristics")
        known_as = fingerprint(
            **self._inputs,
            split=self._split,
            evaluation=dataclasses.asdict(self.settings.evaluation),
            **{name: self.settings.model.get(name) for name in ("ask_after", "label_delay")},
        )
        path, report = self.directory / "heuristics.json", prefixed(progress, "heuristics, ")
        return self._scores(stages, "heuristics", known_as, path, lambda: None, report)

    def _scores_of_seeds(self, stages: Stages, progress: Progress) -> list[Scores]:
        """Return the scores of each seed's model; keep the first model, or all with `keep`."""
        scores, seeds = [], self.settings.seeds
        for number, seed in enumerate(seeds):
            of = f"seed {seed}, " if len(seeds) > 1 else ""
            report = prefixed(progress, of)
            one = _Seed(self, seed, stages, report)
            path, name = one.directory / "score.json", f"score/{seed}"
            scores.append(self._scores(stages, name, one.scored_as, path, one.model, report))
            if number and not self.settings.keep:
                one.fitting.forget()
        for seed in set(stages.seeds()) - set(seeds):  # of earlier settings
            stages.forget_seed(seed)
        return scores

    @cached_property
    def _data_as(self) -> str:
        return fingerprint(events=self.stream.digest())

    @cached_property
    def _inputs(self) -> dict[str, Any]:
        """What every stage depends on."""
        return {
            "task": self.settings.task,
            "events": self._trial.events.digest(),
            "validation_time": self._trial.training.validation_time,
        }

    @property
    def _split(self) -> dict[str, Any]:
        split = self._trial.training
        return {"name": split.name, "test_time": split.test_time, "parameters": split.parameters}

    def _scores(
        self,
        stages: Stages,
        name: str,
        scored_as: str,
        path: Path,
        model: Callable[[], Any],
        progress: Progress,
    ) -> Scores:
        """Return the scores of the model, which is made only if they are not known yet."""
        if not stages.finished(name, scored_as, path):
            asked = model()
            with stages.stage(name, scored_as, path):
                found = self._trial.evaluate(asked, progress=progress)
                write_json(path, dataclasses.asdict(found))
        return Scores(**read_json(path))

    def _observe(self, stages: Stages, seed: _Seed, progress: Progress) -> None:
        """Save what the report shows besides the numbers, from the model of a seed."""
        path, trained_as = self.directory / "observations", seed.fitting.trained_as
        if stages.finished("observations", trained_as, path):
            return
        model = seed.model()
        with stages.stage("observations", trained_as, path):
            report.save_observations(
                path,
                predictor=model,
                stream=self._trial.events,
                split=self._trial.training,
                history=seed.fitting.history(),
                telemetry=seed.fitting.telemetry,
                progress=progress,
            )


class _Seed:
    """The part of a run that belongs to one seed: its record, its model, its scores."""

    def __init__(self, run: Run, seed: int, stages: Stages, progress: Progress) -> None:
        self._run, self._seed = run, seed
        self.directory = run.directory / f"seed-{seed}"
        self.directory.mkdir(exist_ok=True)
        settings, trial = run.settings.model, run._trial
        of_record = {name: settings[name] for name in RECORD_SETTINGS}
        of_training = {name: value for name, value in settings.items() if name != "threads"}
        records = trial.model(seed=seed, path=None).reads_record
        recorded_as = fingerprint(**run._inputs, settings=of_record, seed=seed, records=records)
        trained_as = fingerprint(
            before=recorded_as,
            settings=of_training,
            split=run._split,
            knowledge=run.settings.evaluation.knowledge,
        )
        self.scored_as = fingerprint(
            before=trained_as, evaluation=dataclasses.asdict(run.settings.evaluation)
        )
        self.fitting = Fitting(
            directory=self.directory,
            stages=stages,
            events=trial.events,
            split=trial.training,
            recorded_as=recorded_as,
            trained_as=trained_as,
            suffix=f"/{seed}",
            events_file=run.directory / _EVENTS if trial.events is trial.stream else None,
            observed=run.settings.report.html and seed == run.settings.seeds[0],
            progress=progress,
        )

    def model(self) -> Model:
        """Return the model, trained now or before."""
        model = self._run._trial.model(seed=self._seed, path=str(self.fitting.store))
        if self.fitting.trained():
            self.fitting.progress(0, 1, "loading the model")
            return type(model).load(self.fitting.saved)
        runs = self._run.directory.parent
        others = (path.parent for path in sorted(runs.glob(f"*/{STAGES}")))
        self.fitting.record(model, lenders=others)
        self.fitting.train(model)
        return model


def check(settings: Settings) -> None:
    """Raise ParameterError for settings that are wrong whatever the events are."""
    protocol, name = _protocol(settings), settings.data.name
    check_evaluation(protocol, seeds=settings.seeds, settings=settings.model, name=name)
    if settings.report.tensorboard and find_spec("tensorboard") is None:
        raise ParameterError(
            "TensorBoard's files need the package tensorboard, which is not installed;"
            " pip install tensorboard, or leave report.tensorboard out"
        )


def _quick_note(model: Mapping[str, Any]) -> str:
    small = ", ".join(f"{name} {model[name]:,}" for name in QUICK)
    return f"a quick run ({small}), to look at and not to quote; without --quick it does better"


def _protocol(settings: Settings) -> Protocol:
    """Return the protocol of a run, which has more samplers by default than an evaluation."""
    asked = dataclasses.asdict(settings.evaluation)
    name = asked.pop("protocol")
    if asked["samplers"] is None and settings.task == "link" and name != "roland":
        asked["samplers"] = _DEFAULT_SAMPLERS
    return Protocol(name, task=settings.task, **asked)


def _make_trial(stream: EventStream, settings: Settings) -> Trial:
    return make_trial(stream, _protocol(settings), settings=settings.model, name=settings.data.name)


def _write_tensorboard(directory: Path, results: Mapping[str, Any]) -> None:
    """Write the curves of all seeds and the numbers of the test for TensorBoard."""
    from torch.utils.tensorboard import SummaryWriter

    delete(directory / "tensorboard")
    for number, seed in enumerate(results["seeds"]):
        history = read_json(directory / f"seed-{seed}" / "history.json")
        with SummaryWriter(str(directory / "tensorboard" / f"seed-{seed}")) as writer:
            for epoch in history:
                for name in ("loss", "validation"):
                    writer.add_scalar(f"training/{name}", epoch[name], epoch["epoch"])
            for sampler, parts in results["metrics"].items():
                for part, values in parts.items():
                    for metric, value in values.items():
                        tag = f"test/{sampler}/{part}/{metric}"
                        writer.add_scalar(tag, value["per_seed"][number], len(history))


@contextlib.contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Append what the package logs, and the error that ends it, to a file."""
    logger = logging.getLogger("tidegraph")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    except BaseException as error:
        _log.error("ended by %s: %s", type(error).__name__, error)
        raise
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


def _state(directory: str | Path) -> object:
    """Return what changes whenever a run in this directory gets other settings or events."""
    config_file, events = (Path(directory) / name for name in (CONFIG, _EVENTS))
    with contextlib.suppress(OSError):
        about = events.stat()
        return config_file.read_bytes(), about.st_ino, about.st_mtime_ns, about.st_size
    return None
