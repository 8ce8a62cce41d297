"""Runs: from events to numbers and a report, in a directory that can be left and taken up again.

A run goes through stages. Each has a fingerprint of all that its outcome depends on: settings, the
events, the stages before it and the code of the package. `stages.json` says which were begun and
finished with which fingerprint; one that was finished with the same is not done again, and one that
was only begun goes on from its own checkpoints. Killed at any moment, a run that is resumed ends
with the same numbers: what a stage has left is removed only after `stages.json` has ceased to vouch
for it, and all of it at once.

    runs/calls/config.toml       all settings
               metrics.json      the numbers, and where they come from
               report.html       the same to look at
               log.txt           what happened when
               events.tide       the events as they were understood
               command.txt       what it was begun with
               stages.json       what was done
               heuristics.json   what no learning achieves
               seed-0/           trajectories, checkpoint, model, history and score of a seed
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegraph import report
from tidegraph.core.durable import only_writer, put_in_place, replace_file
from tidegraph.core.errors import ParameterError, StateFileError, TidegraphError
from tidegraph.core.progress import Progress, prefixed, silent
from tidegraph.core.provenance import code_digest
from tidegraph.runs import config
from tidegraph.runs.config import Settings
from tidegraph.store.trajectories import Trajectories, copy_store

if TYPE_CHECKING:
    from tidegraph.events.stream import EventStream
    from tidegraph.runs.experiment import Judgement, Model, Protocol, Trial

__all__ = ["Run", "check", "compare", "place", "read_metrics", "read_settings", "write_comparison"]


CONFIG, METRICS, REPORT = "config.toml", "metrics.json", "report.html"
EVENTS, LOG = "events.tide", "log.txt"
_STAGES, _COMMAND = "stages.json", "command.txt"
_REMOVED = ".removed"  # where directories wait for being deleted
# What is being written, or was when a run was killed.
_UNFINISHED = re.compile(
    r"(config\.toml|command\.txt|report\.html|\w+\.json|trajectories|model)\.part\d*"
)
_DEFAULT_SAMPLERS = ("random-dst", "historical")
_OF_SEEDS = ("record", "train", "score")  # stages that there are per seed
# Without these in its metrics.json no run can be put beside another.
_RESULTS = ("config", "data", "split", "seeds", "metrics", "heuristics", "headlines", "elapsed_s")
_log = logging.getLogger(__name__)


def read_settings(directory: str | Path) -> Settings:
    """The settings with which the run in this directory was begun."""
    path = Path(directory) / CONFIG
    if not path.is_file():
        raise StateFileError(
            f"{directory} is not a run: it has no {CONFIG}; give a directory that tidegraph run"
            " made, such as runs/NAME"
        )
    return config.resolve(config.read(path))


def read_metrics(directory: str | Path) -> dict[str, Any]:
    """What a finished run achieved, as it is in its metrics.json."""
    path = Path(directory) / METRICS
    if not path.is_file():
        read_settings(directory)  # says so where it is no run at all
        raise StateFileError(
            f"the run in {directory} is not finished; tidegraph resume {directory} goes on"
        )
    try:
        metrics: dict[str, Any] = json.loads(path.read_bytes())
        missing = [name for name in _RESULTS if not isinstance(metrics[name], (dict, list))]
    except (ValueError, LookupError, TypeError) as error:
        missing = [str(error)]
    if missing:
        raise StateFileError(
            f"{path} is damaged ({missing[0]}); tidegraph resume {directory} writes it again"
        )
    return metrics


def place(out: str | Path, name: str | None, settings: Settings) -> Path:
    """The directory of a run with these settings below `out`.

    Without a name it is that of the data, with a number where a run with other settings has it
    already: no result is overwritten that was not named.
    """
    if name is not None:
        if name in ("", ".", "..") or re.search(r"[/\\\0]", name):
            raise ParameterError(
                f"name is {name!r}; give a name that is not empty, without / and \\, and not . or"
                " .., such as trial-2"
            )
        return Path(out) / name
    base = Path(settings.data.name).name.split(".")[0] or "run"
    if settings.task == "node":
        base += "-nodes"
    for number in itertools.count(1):
        directory = Path(out) / (base if number == 1 else f"{base}-{number}")
        if not directory.exists():
            break
        with contextlib.suppress(StateFileError, ParameterError):  # something else is there
            known = read_settings(directory)
            if _may_be_taken(directory) and not config.differences(known, settings):
                break
    return directory


def compare(directories: Sequence[str | Path]) -> dict[str, Any]:
    """Finished runs beside each other, in plain types.

    `runs` has the metrics of each, `differences` the settings that are not the same in all, with
    the value of each run (None where it has none), `warnings` what forbids a comparison.
    """
    found = [read_metrics(directory) for directory in directories]
    trees = [dict(config.leaves(metrics["config"])) for metrics in found]
    keys = dict.fromkeys(key for tree in trees for key in tree)
    values = {key: [tree.get(key) for tree in trees] for key in keys}
    differing = {key: each for key, each in values.items() if any(v != each[0] for v in each)}
    warnings = []
    if len({metrics["data"]["digest"] for metrics in found}) > 1:
        warnings.append("the runs are on different events; their numbers cannot be compared")
    elif len({json.dumps(metrics["split"], sort_keys=True) for metrics in found}) > 1:
        warnings.append("the runs are judged on different parts of the events")
    return {
        "runs": [
            {"run": str(directory), **metrics}
            for directory, metrics in zip(directories, found, strict=True)
        ],
        "differences": differing,
        "warnings": warnings,
    }


def write_comparison(directories: Sequence[str | Path], path: str | Path) -> Path:
    """A page that shows finished runs beside each other."""
    for directory in directories:
        read_metrics(directory)  # refuses what is not finished
    return report.write_comparison(directories, path)


# Stages -------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Spent:
    """What a stage has taken so far, and whose work it was if not its own."""

    elapsed_s: float
    taken_from: str | None = None


class _Stages:
    """Which stages of a run were begun and finished, with which inputs, in how many seconds.

    Its file is what tells a run from any other directory. It is written first.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._path = directory, directory / _STAGES
        self._entries = _read_stages(directory)
        self._done: set[str] = set()  # in this pass
        self.reused: list[str] = []
        if not self._path.exists():
            _write_json(self._path, self._entries)
        for leftover in _leftovers(directory, self.seeds()):
            _delete(leftover)

    def seeds(self) -> list[int]:
        """Those of which some stage was begun, by this run or by one before it in its place."""
        return _seeds_of(self._entries)

    def finished(self, name: str, fingerprint: str, *outputs: Path) -> bool:
        """Whether a stage with this name and these inputs has left its outputs."""
        entry = self._entries.get(name, {})
        done = entry.get("finished") == fingerprint and all(path.exists() for path in outputs)
        if done and name not in self._done:
            self._done.add(name)
            self.reused.append(name)
            _log.info("%s: as before", name)
        return done

    @contextlib.contextmanager
    def stage(self, name: str, fingerprint: str, *outputs: Path) -> Iterator[_Spent]:
        """Marks a stage as begun and then finished; what one with other inputs left is removed."""
        entry = self._entries.get(name, {})
        if entry.get("begun") != fingerprint:
            # Not begun either: killed before all is removed, it must not go on from the rest.
            self._withdraw([name], *outputs)
            entry = {}
        begun_at, finished = time.perf_counter(), False
        spent = _Spent(entry.get("elapsed_s", 0.0), entry.get("taken_from"))
        self._note(name, fingerprint, None, spent)
        _log.info("%s: begun", name)
        try:
            yield spent
            finished = True
            self._done.add(name)
        finally:
            spent.elapsed_s += time.perf_counter() - begun_at
            _log.info("%s: %s (%.1f s)", name, "finished" if finished else "left", spent.elapsed_s)
            self._note(name, fingerprint, fingerprint if finished else None, spent)

    def forget_output(self, name: str, output: Path) -> None:
        """Removes what a stage has left; it can be done again, and its time stays known."""
        entry = self._entries.get(name)
        if entry is not None and entry["finished"] is not None:
            entry["finished"] = None
            _write_json(self._path, self._entries)
        self._remove(output)

    def forget_seed(self, seed: int, output: Path) -> None:
        """Removes all that there is of a seed."""
        self._withdraw([f"{kind}/{seed}" for kind in _OF_SEEDS], output)

    def _withdraw(self, names: Sequence[str], *outputs: Path) -> None:
        known = [name for name in names if self._entries.pop(name, None) is not None]
        if known:
            _write_json(self._path, self._entries)
        for path in outputs:
            self._remove(path)

    def _remove(self, path: Path) -> None:
        """Removes a file or a directory at once: a kill leaves it whole or not at all."""
        if path.is_dir():
            removed = self._directory / _REMOVED
            _delete(removed)
            put_in_place(path, removed)
            path = removed
        _delete(path)

    def _note(self, name: str, begun: str, finished: str | None, spent: _Spent) -> None:
        entry = {"begun": begun, "finished": finished, "elapsed_s": spent.elapsed_s}
        if spent.taken_from is not None:
            entry["taken_from"] = spent.taken_from
        self._entries[name] = entry
        _write_json(self._path, self._entries)

    def taken_from(self, names: Iterable[str]) -> dict[str, str]:
        """Stages that were not done but taken over, and the runs that did them."""
        found = {name: self._entries.get(name, {}).get("taken_from") for name in names}
        return {name: whose for name, whose in found.items() if whose is not None}

    def elapsed_s(self, names: Iterable[str]) -> dict[str, float]:
        """Seconds by kind of stage, seeds taken together, whenever and by whichever run spent."""
        spent: dict[str, float] = {}
        for name in names:
            kind = name.partition("/")[0]
            spent[kind] = spent.get(kind, 0.0) + self._entries.get(name, {}).get("elapsed_s", 0.0)
        spent["total"] = sum(spent.values())
        return {kind: round(seconds, 3) for kind, seconds in spent.items()}


def _read_stages(directory: Path) -> dict[str, dict[str, Any]]:
    path = directory / _STAGES
    try:
        entries = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        entries = None
    if not isinstance(entries, dict) or not all(
        isinstance(entry, dict) and {"begun", "finished", "elapsed_s"} <= entry.keys()
        for entry in entries.values()
    ):
        raise StateFileError(
            f"{path} does not hold the stages of a run; give another name, or move it away"
        )
    return entries


def _seeds_of(stages: Iterable[str]) -> list[int]:
    found = (re.fullmatch(rf"({'|'.join(_OF_SEEDS)})/(\d+)", name) for name in stages)
    return sorted({int(match[2]) for match in found if match})


def _leftovers(directory: Path, seeds: Iterable[int]) -> Iterator[Path]:
    """What a run that was killed was removing or writing."""
    yield directory / _REMOVED
    for place in (directory, *(directory / f"seed-{seed}" for seed in seeds)):
        if place.is_dir():
            yield from (path for path in place.iterdir() if _UNFINISHED.fullmatch(path.name))


def _fingerprint(**inputs: Any) -> str:
    code = {"version": version("tidegraph"), "code": code_digest()}
    text = json.dumps({**code, **inputs}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _write_json(path: Path, content: Any) -> None:
    replace_file(path, json.dumps(content, indent=2) + "\n")


def _delete(path: Path) -> None:
    """Deletes a file or, piece by piece, a directory that nothing vouches for."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# Running ------------------------------------------------------------------------------------------


class Run:
    """A run of these settings on these events, judged before anything is written.

    `execute` takes it to its end. Only one process works on a directory at a time. One with a run
    in it is taken over: stages whose inputs are the same are not done again.
    """

    def __init__(
        self,
        directory: str | Path,
        settings: Settings,
        stream: EventStream,
        *,
        command: str | None = None,
    ) -> None:
        self.directory, self.settings = Path(directory), settings
        self._command = command
        self._resumed_from: object = None  # the state of the files it was read from
        if self.directory.exists() and not _may_be_taken(self.directory):
            raise StateFileError(
                f"{self.directory} exists and is not a run; give another name, or move it away"
            )
        check(settings)
        self._trial = _make_trial(stream, settings)

    @property
    def stream(self) -> EventStream:
        """The events, as they were given."""
        return self._trial.stream

    @classmethod
    def resumed(cls, directory: str | Path) -> Run:
        """The run that was begun in this directory, to go on where it was left."""
        from tidegraph.events.stream import EventStream

        state = _state(directory)
        settings = read_settings(directory)
        events, begun = Path(directory) / EVENTS, Path(directory) / _COMMAND
        if not events.is_file():
            raise StateFileError(
                f"the run in {directory} was left before it had kept its events; begin it again"
            )
        command = begun.read_text(encoding="utf-8").strip() if begun.is_file() else None
        run = cls(directory, settings, EventStream.load(events), command=command)
        run._resumed_from = state
        return run

    def execute(self, *, progress: Progress | None = None) -> dict[str, Any]:
        """The content of metrics.json and, as `report`, where the report is (None: nowhere)."""
        directory = self.directory
        directory.mkdir(parents=True, exist_ok=True)
        with only_writer(directory):
            if self._resumed_from is not None and self._resumed_from != _state(directory):
                raise StateFileError(
                    f"the run in {directory} was changed by another process after it had been read;"
                    f" tidegraph resume {directory} goes on with what it is now"
                )
            self._resumed_from = None  # from here on the files are its own
            stages = _Stages(directory)
            events = directory / EVENTS
            if not stages.finished("data", self._data_as, events):
                events.unlink(missing_ok=True)  # or a kill could leave them beside other settings
            # They may be of other settings, and come again when all stages have been looked at.
            for result in (METRICS, REPORT):
                (directory / result).unlink(missing_ok=True)
            replace_file(directory / CONFIG, self.settings.to_toml())
            if self._command is not None:
                replace_file(directory / _COMMAND, f"{self._command}\n")
            with _logged(directory / LOG):
                _log.info("tidegraph %s: %s", version("tidegraph"), self._command or "from Python")
                return self._results(stages, progress or silent)

    def _results(self, stages: _Stages, progress: Progress) -> dict[str, Any]:
        from tidegraph.core import machine
        from tidegraph.runs import experiment

        directory, trial, stream = self.directory, self._trial, self._trial.stream
        seeds, wanted = self.settings.seeds, self.settings.report
        events = directory / EVENTS
        if not stages.finished("data", self._data_as, events):
            with stages.stage("data", self._data_as, events):
                stream.save(events)
        progress(0, 1, "heuristics")
        rules = self._judged(stages, "heuristics", self._rules_as, directory, lambda: None)
        judged = self._judged_seeds(stages, progress)
        if wanted.html:
            progress(0, 1, "looking back for the report")
            self._observe(stages, _Seed(self, seeds[0], stages, progress), progress)
        names = ["data", "heuristics"]
        names += [f"{kind}/{seed}" for kind in _OF_SEEDS for seed in seeds]
        names += ["observations"] if wanted.html else []
        results = experiment.summary(trial, seeds, rules, judged, elapsed_s=stages.elapsed_s(names))
        results["data"] |= {
            "hash": results["data"]["digest"],
            "span": [int(stream.t[0]), int(stream.t[-1])],
        }
        results |= {
            "config": self.settings.to_dict(),
            "command": self._command,
            "machine": machine.describe(),
            "reused": stages.reused,
            "taken_from": stages.taken_from(names),
        }
        for note in results["warnings"]:
            _log.warning("%s", note)
        _write_json(directory / METRICS, results)
        if wanted.tensorboard:
            _write_tensorboard(directory, results)
        page = None
        if wanted.html:
            progress(0, 1, "report")
            page = str(report.write(directory))
        _log.info("finished")
        return {**results, "report": page}

    def _judged_seeds(self, stages: _Stages, progress: Progress) -> list[Judgement]:
        """What the model of each seed achieves; what is large is kept of the first alone."""

        judged, seeds = [], self.settings.seeds
        for number, seed in enumerate(seeds):
            of = f"seed {seed}, " if len(seeds) > 1 else ""
            one = _Seed(self, seed, stages, prefixed(progress, of))
            judged.append(self._judged(stages, f"score/{seed}", one.scored_as, one.path, one.model))
            if number and not self.settings.keep:
                one.forget()
        for seed in set(stages.seeds()) - set(seeds):  # of settings before these
            stages.forget_seed(seed, self.directory / f"seed-{seed}")
        return judged

    @cached_property
    def _data_as(self) -> str:
        return _fingerprint(events=self._trial.stream.digest())

    @cached_property
    def _rules_as(self) -> str:
        return _fingerprint(
            **self._inputs,
            split=self._split,
            evaluation=dataclasses.asdict(self.settings.evaluation),
            ask_after=self.settings.model.get("ask_after"),
        )

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
        return {
            "name": split.name,
            "test_time": split.test_time,
            "parameters": split.parameters,
        }

    def _judged(
        self,
        stages: _Stages,
        name: str,
        fingerprint: str,
        directory: Path,
        model: Callable[[], Any],
    ) -> Judgement:
        """What the model achieves, which is made only where that is not known yet."""
        from tidegraph.runs.experiment import Judgement

        path = directory / f"{name.partition('/')[0]}.json"
        if not stages.finished(name, fingerprint, path):
            asked = model()
            with stages.stage(name, fingerprint, path):
                _write_json(path, dataclasses.asdict(self._trial.judge(asked)))
        return Judgement(**json.loads(path.read_bytes()))

    def _observe(self, stages: _Stages, seed: _Seed, progress: Progress) -> None:
        """Keeps what the report shows beside the numbers, from the model of a seed."""
        path = self.directory / "observations"
        if stages.finished("observations", seed.trained_as, path):
            return
        model = seed.model()
        with stages.stage("observations", seed.trained_as, path):
            report.save_observations(
                path,
                predictor=model,
                stream=self._trial.events,
                split=self._trial.training,
                history=seed.history(),
                progress=progress,
            )


class _Seed:
    """The part of a run that belongs to one seed: its record, its model, its scores."""

    def __init__(self, run: Run, seed: int, stages: _Stages, progress: Progress) -> None:
        from tidegraph.learning.settings import RECORD_SETTINGS

        self._run, self._seed = run, seed
        self._stages, self._progress = stages, progress
        self.path = run.directory / f"seed-{seed}"
        self.path.mkdir(exist_ok=True)
        self._store, self._saved = self.path / "trajectories", self.path / "model"
        self._checkpoint = self.path / "training.safetensors"
        self._history = self.path / "history.json"
        settings = run.settings.model
        of_record = {name: settings[name] for name in RECORD_SETTINGS}
        of_training = {name: value for name, value in settings.items() if name != "threads"}
        self.recorded_as = _fingerprint(**run._inputs, settings=of_record, seed=seed)
        self.trained_as = _fingerprint(
            before=self.recorded_as, settings=of_training, split=run._split
        )
        asked = dataclasses.asdict(run.settings.evaluation)
        self.scored_as = _fingerprint(before=self.trained_as, evaluation=asked)

    def model(self) -> Model:
        """The model, learned now or before."""
        model = self._run._trial.model(seed=self._seed, path=str(self._store))
        outputs = self._saved, self._history, self._checkpoint
        if self._stages.finished(f"train/{self._seed}", self.trained_as, *outputs):
            return type(model).load(self._saved)
        self._record(model)
        self._progress(0, 1, "reading features")
        with self._stages.stage(f"train/{self._seed}", self.trained_as, *outputs):
            model.train(
                self._run._trial.training, checkpoint=self._checkpoint, progress=self._progress
            )
            _write_json(self._history, [epoch.plain() for epoch in model.epochs_])
            part = self.path / "model.part"
            for leftover in (part, self._saved):
                _delete(leftover)
            model.save(part)
            put_in_place(part, self._saved)
        return model

    def _record(self, model: Model) -> None:
        name, trial = f"record/{self._seed}", self._run._trial
        self._progress(0, 1, "looking for records")
        if self._stages.finished(name, self.recorded_as, self._store):
            model.observe(trial.events, trial.training)  # finds it whole
            return
        with self._stages.stage(name, self.recorded_as, self._store) as spent:
            if not self._store.exists():
                spent.taken_from = None
                self._borrow(name, spent)
            model.observe(trial.events, trial.training, progress=self._progress)

    def _borrow(self, name: str, spent: _Spent) -> None:
        """Takes the record of another run beside this one, where one has the same."""
        run, part = self._run.directory, self.path / "trajectories.part"
        for about in sorted(run.parent.glob(f"*/{_STAGES}")):
            store = about.parent / self._store.relative_to(run)
            # It may be no run's, or be removed while it is looked at.
            with contextlib.suppress(OSError, TidegraphError):
                entry = _read_stages(about.parent).get(name, {})
                if entry.get("finished") != self.recorded_as or not store.is_dir():
                    continue
                _delete(part)
                copy_store(store, part)
                if not Trajectories.open(part).complete:
                    continue
                put_in_place(part, self._store)
                spent.elapsed_s, spent.taken_from = entry["elapsed_s"], str(about.parent)
                _log.info("%s: taken from %s", name, about.parent)
                return
        _delete(part)

    def history(self) -> list[dict[str, Any]]:
        """What each epoch of the training achieved."""
        epochs: list[dict[str, Any]] = json.loads(self._history.read_bytes())
        return epochs

    def forget(self) -> None:
        """Removes what is large; scores, history and weights stay."""
        self._stages.forget_output(f"train/{self._seed}", self._saved)
        self._stages.forget_output(f"record/{self._seed}", self._store)


def check(settings: Settings) -> None:
    """Refuses of the settings what can be refused before there are events."""
    from tidegraph.runs.experiment import check_evaluation

    check_evaluation(
        _protocol(settings),
        seeds=settings.seeds,
        settings=settings.model,
        name=settings.data.name,
    )
    if settings.report.tensorboard and find_spec("tensorboard") is None:
        raise ParameterError(
            "TensorBoard's files need the package tensorboard, which is not installed;"
            " pip install 'tidegraph[tensorboard]', or leave report.tensorboard out"
        )


def _protocol(settings: Settings) -> Protocol:
    """How a run is judged; by more kinds of negatives than an evaluation, where none are named."""
    from tidegraph.runs.experiment import Protocol

    asked = dataclasses.asdict(settings.evaluation)
    name = asked.pop("protocol")
    if asked["samplers"] is None and settings.task == "link" and name != "roland":
        asked["samplers"] = _DEFAULT_SAMPLERS
    return Protocol(name, task=settings.task, **asked)


def _make_trial(stream: EventStream, settings: Settings) -> Trial:
    from tidegraph.runs.experiment import make_trial

    return make_trial(stream, _protocol(settings), settings=settings.model, name=settings.data.name)


def _write_tensorboard(directory: Path, results: Mapping[str, Any]) -> None:
    """The curves of all seeds and the numbers of the test, where TensorBoard reads them."""
    from torch.utils.tensorboard import SummaryWriter

    _delete(directory / "tensorboard")
    for number, seed in enumerate(results["seeds"]):
        history = json.loads((directory / f"seed-{seed}" / "history.json").read_bytes())
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
def _logged(path: Path) -> Iterator[None]:
    """Adds what the package logs to a file, and what ends it."""
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


def _may_be_taken(directory: Path) -> bool:
    """Whether it holds a run, or nothing but what one leaves that is killed at its first writes."""
    if not directory.is_dir():
        return False
    found = {path.name for path in directory.iterdir() if not _UNFINISHED.fullmatch(path.name)}
    try:
        _read_stages(directory)
        if not found <= {_STAGES}:
            read_settings(directory)
    except (StateFileError, ParameterError):
        return False
    return not found or _STAGES in found


def _state(directory: str | Path) -> object:
    """What changes whenever a run in this directory is given other settings or events."""
    config_file, events = (Path(directory) / name for name in (CONFIG, EVENTS))
    with contextlib.suppress(OSError):
        about = events.stat()
        return config_file.read_bytes(), about.st_ino, about.st_mtime_ns, about.st_size
    return None
