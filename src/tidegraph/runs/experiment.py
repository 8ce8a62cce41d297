"""Whole experiments: train and keep a model, or judge one by a protocol over seeds."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegraph import evaluation
from tidegraph.core.durable import only_writer, put_in_place, replace_file
from tidegraph.core.errors import DataError, ParameterError, StateFileError, TidegraphError
from tidegraph.core.progress import Progress, prefixed, silent
from tidegraph.core.words import counted
from tidegraph.evaluation import ROLAND_SETTINGS, Result, SnapshotSplit, Split
from tidegraph.events.batch import Op
from tidegraph.events.datasets import DATA_SETS
from tidegraph.events.moments import moment
from tidegraph.events.stream import EventStream
from tidegraph.learning import training
from tidegraph.learning.tasks import LinkPredictor, NodeClassifier, preset_name

__all__ = [
    "PROTOCOLS",
    "Judgement",
    "Protocol",
    "Trained",
    "Trial",
    "check_evaluation",
    "check_training",
    "evaluate",
    "make_trial",
    "model_settings",
    "summary",
    "train",
    "unfinished",
    "validate",
]

IntArray = NDArray[np.int64]
Model = LinkPredictor | NodeClassifier
_AnyModel = TypeVar("_AnyModel", LinkPredictor, NodeClassifier)

PROTOCOLS = ("tgn", "tgb", "time", "roland")
_MODEL = "tidegraph"  # among scorers
# How a live model learns from a snapshot, in the words of `LinkPredictor.refine`: the best of seven
# tried on the validation tasks of Bitcoin-Alpha with one seed. None was ahead of not learning on.
LIVE: Mapping[str, Any] = {"epochs": 3, "pace": 0.03, "replay": 2.0}
_STOP_BY = 0.15  # share of the events that decide when to stop, where none is kept for a test
# What the results call the parts of the protocols.
_PARTS = {"test": "all", "new_test": "new"}
_FEW = 1000  # events to judge by; the chance error of a share is then 1.6 points


@dataclass(frozen=True)
class Protocol:
    """How events are divided, and what is asked about those kept for the test.

    name: `tgn` and `tgb` divide at quantiles of time, `time` at the times given; `roland` ranks all
        nodes for every source of the next snapshot.
    task: `link`; or `node`, whose labels are asked for after the same times.
    samplers: of negatives; `random-dst` by default. `roland` and nodes have none.
    rank: also ranks every destination for each test event, or for `rank_sample` of them.
    validation_after, test_after: for `time`, in the unit of the events or as ISO dates.
    snapshot_seconds, first_test: for `roland`; where None, as published for the data.
    live: for `roland`; a model goes on learning: before each task also from every snapshot that has
        become known since its training.
    """

    name: str = "tgn"
    _: KW_ONLY
    task: str = "link"
    samplers: Sequence[str] | None = None
    rank: bool = False
    rank_sample: int | None = None
    validation_after: float | str | None = None
    test_after: float | str | None = None
    snapshot_seconds: int | None = None
    first_test: int | None = None
    live: bool = False

    def __post_init__(self) -> None:
        if self.name not in PROTOCOLS:
            raise ParameterError(f"protocol is {self.name!r}; give one of {', '.join(PROTOCOLS)}")
        if self.task not in ("link", "node"):
            raise ParameterError(f"task is {self.task!r}; give 'link' or 'node'")
        if self.name == "roland" and self.task == "node":
            raise ParameterError("the protocol roland is about links; give tgn, tgb or time")
        if (self.name == "roland" or self.task == "node") and (
            self.samplers is not None or self.ranks
        ):
            reason = "the task node has no negatives"
            if self.name == "roland":
                reason = "the protocol roland ranks all nodes"
            raise ParameterError(f"{reason}; samplers and rank belong to the others")
        times = self.validation_after, self.test_after
        if self.name == "time" and None in times:
            raise ParameterError(
                "the protocol 'time' needs to be told after which times validation and test begin;"
                " give validation_after and test_after"
            )
        if self.name != "time" and times != (None, None):
            raise ParameterError("validation_after and test_after belong to the protocol 'time'")
        if self.live and self.name != "roland":
            raise ParameterError(
                f"live belongs to the protocol roland, and this is {self.name}: under it weights"
                " stay as they were trained; leave live out, or give roland"
            )

    @classmethod
    def of(cls, protocol: Protocol | str) -> Protocol:
        """The protocol itself, or the one of that name."""
        return cls(protocol) if isinstance(protocol, str) else protocol

    @property
    def title(self) -> str:
        """Its name as results have it: numbers of a model that goes on learning are others."""
        return f"{self.name}+live" if self.live else self.name

    @property
    def ranks(self) -> bool:
        """Whether destinations are ranked."""
        return self.rank or self.rank_sample is not None

    def times(self, unit: str) -> tuple[float, float] | tuple[None, None]:
        """When validation and test begin, as numbers of the unit; None where nobody says."""
        if self.validation_after is None or self.test_after is None:
            return None, None
        validation, test = (
            moment(time, unit) if isinstance(time, str) else time
            for time in (self.validation_after, self.test_after)
        )
        return validation, test

    def snapshots(self, data: str | None) -> tuple[int, int]:
        """The seconds of a snapshot and the first test task, given or published for the data."""
        known = ROLAND_SETTINGS.get(data or "", {})
        width_s = known.get("width_s") if self.snapshot_seconds is None else self.snapshot_seconds
        first = known.get("first_test") if self.first_test is None else self.first_test
        if width_s is None or first is None:
            raise ParameterError(
                "the protocol 'roland' needs snapshot_seconds, the width of a snapshot, and"
                " first_test, the first test task; published ones are for"
                f" {', '.join(ROLAND_SETTINGS)}"
            )
        return width_s, first


# Train and keep -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, where it is kept, and how it does on the events that decided when to stop."""

    predictor: LinkPredictor
    path: Path
    validation: Result


def unfinished(path: str | Path) -> Path:
    """Where `train` works until the model at `path` is whole."""
    whole = Path(path).absolute()
    return whole.with_name(f"{whole.name}.unfinished")


def train(
    stream: EventStream,
    path: str | Path,
    *,
    protocol: Protocol | str | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Trained:
    """A `LinkPredictor` fitted to the stream and saved in a new directory.

    Without a protocol the last 15 % of the events decide when to stop and all others train; with
    one, its test events are kept out of training. The directory appears when it is whole. What a
    run that was killed leaves beside it (`unfinished`) is taken up by the next one with the same
    events and settings, which ends with the same weights.

    Started by `torchrun` in several processes that see one file system, the first propagates and
    writes while the others wait, and all train together; each of them returns the model.
    """
    protocol = None if protocol is None else Protocol.of(protocol)
    check_training(path, settings=settings)
    directory, work = Path(path), unfinished(path)
    if stream.op is not None and (stream.op != Op.ADD).any():
        raise DataError(
            "the stream removes or sets edges, and links that appear are learned; give only the"
            " events that add, as stream.where(stream.op == Op.ADD) does"
        )
    split = _split(stream, protocol)
    predictor = _with(LinkPredictor(), settings, {"path": str(work / "trajectories")})
    with training.joined(predictor.device) as ranks, contextlib.ExitStack() as held:
        report = progress if progress is not None and ranks.leads else silent
        if ranks.leads:
            work.mkdir(exist_ok=True)
            held.enter_context(only_writer(work))
            _observe(stream, split, predictor, work, report)
        ranks.share(None)  # from here on there is a record
        if not ranks.leads:
            predictor.reopen(stream, split)
        report(0, 1, "reading features of pairs")
        predictor.train(split, checkpoint=work / "training.safetensors", progress=report)
        report(0, 1, "saving and validating")
        if ranks.leads:
            whole = work / "model"
            if whole.exists():  # the last run was killed while it was being written
                shutil.rmtree(whole)
            predictor.save(whole)
            put_in_place(whole, directory)
        ranks.share(None)  # from here on there is a model, and nobody needs the record
        if ranks.leads:
            shutil.rmtree(work)
        kept = LinkPredictor.load(directory)
        result = ranks.share(_validated(kept, stream, split) if ranks.leads else None)
    assert result is not None  # it is the first one's
    return Trained(kept, directory, result)


def _observe(
    stream: EventStream, split: Split, predictor: LinkPredictor, work: Path, report: Progress
) -> None:
    """Records the stream, or what an earlier run has left to record."""
    _take_up(work, _run(stream, split, predictor))
    report(0, 1, "looking for records")
    try:
        predictor.observe(stream, split, progress=report)
    except TidegraphError:
        # Refused before there was anything to keep.
        if not (work / "trajectories" / "manifest.json").exists():
            shutil.rmtree(work)
        raise


def _validated(kept: LinkPredictor, stream: EventStream, split: Split) -> Result:
    """How a model does on the events that decided when to stop."""
    result = evaluation.evaluate_link(
        kept.score,
        stream,
        split,
        parts=("validation",),
        model=_MODEL,
        training_negatives=kept.training_negatives,
    )
    own = result.row("validation")
    return replace(result, warnings=(*result.warnings, *_too_few(own.examples)))


def check_training(path: str | Path, *, settings: Mapping[str, Any] | None = None) -> None:
    """Refuses of `train`'s arguments what can be refused before there are events."""
    directory, work = Path(path), unfinished(path)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        if (directory / "model.safetensors").is_file() and (work / "run.json").is_file():
            shutil.rmtree(work)  # of a run that was killed after its model had become whole
        raise StateFileError(f"{directory} exists already; give another directory, or delete it")
    if not work.parent.is_dir():
        raise StateFileError(f"{work.parent} is not a directory; make it first")
    _with(LinkPredictor(), settings, {"path": None})
    _check_writable(settings)


def _check_writable(settings: Mapping[str, Any] | None) -> None:
    """Refuses a module of one's own: a run is told from another by its settings, as words."""
    for name, value in (settings or {}).items():
        if callable(value):
            raise ParameterError(
                f"the setting {name!r} is {value!r}, which cannot be written down for a run to be"
                f" resumed; give a name, or use LinkPredictor({name}=...).fit and save"
            )


def _run(stream: EventStream, split: Split, predictor: LinkPredictor) -> dict[str, Any]:
    """All that the outcome depends on, in plain types."""
    run = {
        "events": stream.digest(),
        "split": split.name,
        "validation_time": split.validation_time,
        "test_time": str(split.test_time),  # infinity is no JSON
        **{f"setting {name}": value for name, value in predictor.get_params().items()},
    }
    plain: dict[str, Any] = json.loads(json.dumps(run))
    return plain


def _take_up(work: Path, run: Mapping[str, Any]) -> None:
    """Begins in the place to work in, or finds it as an earlier run like this one left it."""
    about = work / "run.json"
    if about.exists():
        before = json.loads(about.read_text(encoding="utf-8"))
        differing = [name for name, value in run.items() if before.get(name) != value]
        if not differing:
            return
        # A run that recorded nothing, refused for its settings perhaps, has nothing to lose.
        if (work / "trajectories" / "manifest.json").exists():
            name = differing[0]
            raise StateFileError(
                f"{work} is what is left of a run with {name} {before.get(name)!r}, and this one"
                f" has {run[name]!r}; repeat that run to go on, or delete it to start afresh"
            )
    elif any(path.name != "run.json.part" for path in work.iterdir()):
        raise StateFileError(f"{work} holds something else than a run; move it away")
    text = json.dumps(run, indent=2).encode()
    replace_file(about, lambda file: file.write(text))


# Judge by a protocol ------------------------------------------------------------------------------


def evaluate(
    stream: EventStream,
    *,
    protocol: Protocol | str = "tgn",
    seeds: Sequence[int] = (0, 1, 2),
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What models trained with several seeds achieve on the test events, in plain types.

    A seed decides on features, weights and training negatives; the negatives of the evaluation
    have the protocol's own seeds, the same for all. Heuristics are evaluated once.

    `metrics[sampler][part][metric]` has `mean`, `std` (of the sample; 0 where there is one seed)
    and `per_seed`, all fractions of 1; `part` is `all` or `new` (events that touch a node unseen
    in training). `heuristics[name][sampler][part][metric]` is a number; `verdicts` says in words
    who is ahead. `elapsed_s` is by stage, over all seeds.

    preset: where settings begin (see `tasks.preset`); by default that of the task and the protocol.
        `settings` are changes to it.
    name: of the data set, where it is a known one.
    """
    clock = _Clock()
    report = progress or silent
    _check_seeds(seeds)
    trial = make_trial(stream, protocol, preset=preset, settings=settings, name=name)
    models = [trial.model(seed=seed, path=None) for seed in seeds]
    report(0, len(seeds), "heuristics")
    with clock.stage("heuristics"):
        rules = trial.judge(None)
    judged = []
    for number, seed in enumerate(seeds):
        model = models.pop(0)  # so that its record on disk goes when it goes
        told = prefixed(report, f"seed {seed} ({number + 1} of {len(seeds)}), ")
        with clock.stage("record"):
            model.observe(trial.events, trial.training, progress=told)
        told(0, 1, "reading features of pairs")
        with clock.stage("train"):
            model.train(trial.training, progress=told)
        report(number, len(seeds), f"seed {seed}, scoring")
        with clock.stage("score"):
            judged.append(trial.judge(model))
        del model
    return summary(trial, seeds, rules, judged, elapsed_s=clock.stages())


def summary(
    trial: Trial,
    seeds: Sequence[int],
    rules: Judgement,
    judged: Sequence[Judgement],
    *,
    elapsed_s: Mapping[str, float],
) -> dict[str, Any]:
    """What `evaluate` gives, from judgements of the heuristics and of the model of each seed."""
    metrics = _over_seeds([one.table[_MODEL] for one in judged])
    model, stream = trial.model(seed=seeds[0], path=None), trial.stream
    return {
        "task": trial.protocol.task,
        "data": {
            "name": trial.name,
            "title": stream.title,
            "digest": stream.digest(),
            "events": len(stream),
            "nodes": stream.nodes,
            "unit": stream.unit,
        },
        "protocol": trial.protocol.title,
        "live": dict(LIVE) if trial.protocol.live else None,
        "split": rules.split,
        "seeds": list(seeds),
        "evaluation": rules.settings,
        "headlines": rules.headlines,
        "training_negatives": getattr(model, "training_negatives", None),
        "settings": {
            key: value for key, value in model.get_params().items() if key not in ("seed", "path")
        },
        "metrics": metrics,
        "heuristics": rules.table,
        "verdicts": [
            str(verdict) for verdict in evaluation.verdicts(metrics, rules.table, rules.headlines)
        ],
        "warnings": [
            *rules.notes,
            *_too_few(rules.split["sizes"]["test"] if trial.protocol.name != "roland" else None),
        ],
        "elapsed_s": dict(elapsed_s),
        "version": version("tidegraph"),
    }


def validate(
    stream: EventStream,
    *,
    protocol: Protocol | str = "tgn",
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What a model trained with one seed achieves on the validation events, in plain types.

    For choosing among settings: no number here has seen a test event as an answer. `metrics` are
    those against random destinations.
    """
    clock = _Clock()
    split = _split(stream, Protocol.of(protocol))
    own = {"seed": seed, "path": None, **({} if threads is None else {"threads": threads})}
    predictor = _with(LinkPredictor(), settings, own)
    with clock.stage("record"):
        predictor.observe(stream, split, progress=progress)
    with clock.stage("train"):
        predictor.train(split, progress=progress)
    with clock.stage("score"):
        result = evaluation.evaluate_link(
            predictor.score,
            stream,
            split,
            parts=("validation",),
            model=_MODEL,
            heuristics=list,
        )
    row = result.row("validation")
    return {
        "metrics": {_plainly(metric): float(value) for metric, value in row.metrics.items()},
        "events": row.examples,
        "epochs": len(predictor.epochs_),
        "elapsed_s": clock.stages(),
    }


def check_evaluation(
    protocol: Protocol | str = "tgn",
    *,
    seeds: Sequence[int] = (0, 1, 2),
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> None:
    """Refuses of `evaluate`'s arguments what can be refused before there are events."""
    protocol = Protocol.of(protocol)
    _check_seeds(seeds)
    if protocol.name == "roland":
        protocol.snapshots(name)
    _judged_settings(protocol, settings, preset, name)


def _judged_settings(
    protocol: Protocol, settings: Mapping[str, Any] | None, preset: str | None, name: str | None
) -> dict[str, Any]:
    """All settings of a trial's model, which has accepted them."""
    chosen = model_settings(
        settings, task=protocol.task, protocol=protocol.name, preset=preset, name=name
    )
    own = {"seed": 0, "path": None}
    if protocol.task == "node":
        _with(NodeClassifier(), chosen, own)
    else:
        _with(LinkPredictor(), chosen, own)
    return chosen


def _check_seeds(seeds: Sequence[int]) -> None:
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise ParameterError(f"seeds are {list(seeds)}; give at least one, each once")


_Table = dict[str, dict[str, dict[str, float]]]  # [sampler][part][metric]


@dataclass(frozen=True)
class Judgement:
    """What scorers achieved, and all that is needed to compare it, in plain types."""

    table: dict[str, _Table]  # [scorer]
    split: dict[str, Any]
    settings: dict[str, Any]
    headlines: dict[str, str]  # [sampler]: the metric by which scorers are compared
    notes: list[str]

    @classmethod
    def of(cls, results: Sequence[Result]) -> Judgement:
        table: dict[str, _Table] = {}
        headlines: dict[str, str] = {}
        for result in results:
            for row in result.to_dict()["rows"]:
                headlines[row["sampler"]] = _plainly(result.headline)
                parts = table.setdefault(row["scorer"], {}).setdefault(row["sampler"], {})
                values = parts.setdefault(_PARTS[row["part"]], {})
                values |= {
                    _plainly(metric): value
                    for metric, value in row["metrics"].items()
                    if value is not None  # undefined, of which the notes tell
                }
        return cls(
            table,
            results[0].to_dict()["split"],
            {result.task: result.settings for result in results},
            headlines,
            [note for result in results for note in result.warnings],
        )


class Trial(ABC):
    """Events to learn from, models to learn with, and a way to judge what was learned."""

    stream: EventStream  # as it was given
    protocol: Protocol
    name: str | None
    events: EventStream  # as a model sees it
    training: Split

    def __init__(
        self,
        stream: EventStream,
        protocol: Protocol,
        name: str | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.stream, self.protocol, self.name = stream, protocol, name
        self._settings = settings

    @abstractmethod
    def model(self, *, seed: int, path: str | None) -> Model:
        """One that has not learned yet; `path` is where it records."""

    @abstractmethod
    def judge(self, model: Model | None) -> Judgement:
        """The model, or the heuristics where there is none."""


class _LinkTrial(Trial):
    def model(self, *, seed: int, path: str | None) -> LinkPredictor:
        return _with(LinkPredictor(), self._settings, {"seed": seed, "path": path})


class _EventTrial(_LinkTrial):
    """Test events against sampled negatives, and among all destinations."""

    def __init__(self, *about: Any, split: Split) -> None:
        super().__init__(*about)
        self.events, self.training = self.stream, split

    def judge(self, model: Model | None) -> Judgement:
        assert not isinstance(model, NodeClassifier)
        score = None if model is None else model.score
        options: dict[str, Any] = {"model": _MODEL}
        if model is not None:
            options["heuristics"] = list
        asked = self.protocol
        samplers = asked.samplers or ("random-dst",)
        results = [
            evaluation.evaluate_link(
                score, self.events, self.training, samplers=samplers, **options
            )
        ]
        if asked.ranks:
            results.append(
                evaluation.evaluate_ranking(
                    score, self.events, self.training, sample=asked.rank_sample, **options
                )
            )
        return Judgement.of(results)


class _SnapshotTrial(_LinkTrial):
    """The edges of the next snapshot among all pairs of its sources.

    Time counts snapshots: what is known strictly before `task + 1` are the snapshots up to `task`.
    """

    def __init__(self, *about: Any, split: SnapshotSplit) -> None:
        super().__init__(*about)
        kept = split.index >= 0
        self.events = replace(
            self.stream.where(kept), t=split.index[kept], unit="step", node_labels=None
        )
        # Task k is about snapshot k + 1, so the last snapshot to train on is that of the last task.
        self.training = evaluation.time_split(
            self.events, validation_time=split.validation.start, test_time=split.test.start
        )
        self._split = split

    def judge(self, model: Model | None) -> Judgement:
        assert not isinstance(model, NodeClassifier)
        options: dict[str, Any] = {"model": _MODEL}
        if model is not None:
            options["heuristics"] = list
        return Judgement.of(
            [
                evaluation.evaluate_snapshots(
                    None if model is None else self._answers(model),
                    self.stream,
                    self._split,
                    **options,
                )
            ]
        )

    def _answers(self, model: LinkPredictor) -> Callable[[IntArray, int], NDArray[np.float32]]:
        """The scores of a model for all nodes, by source and task; the model stays as it is.

        One that learns on has to be asked about tasks in their order.
        """
        model = copy.copy(model)
        nodes = self.events.nodes
        learned = self._split.validation.start  # the last snapshot that trained

        def score_all(sources: IntArray, task: int) -> NDArray[np.float32]:
            nonlocal learned
            # What was learned from later snapshots would answer for this one.
            assert not self.protocol.live or task >= learned, f"task {task} after {learned}"
            while self.protocol.live and learned < task:
                learned += 1
                model.refine(np.flatnonzero(self.events.t == learned), **LIVE)
            pairs = np.repeat(sources, nodes), np.tile(np.arange(nodes), len(sources))
            return model.score(*pairs, task + 1).reshape(len(sources), nodes)

        return score_all


class _NodeTrial(Trial):
    """Labels of nodes in the test period."""

    def __init__(self, *about: Any, split: Split) -> None:
        super().__init__(*about)
        self.events, self.training = self.stream, split
        if self.stream.labels is None and self.stream.node_labels is None:
            raise DataError(
                "the task node needs labels, and the data has none; name the column that holds them"
                " (--label COLUMN, label under [data]), or give the task link"
            )

    def model(self, *, seed: int, path: str | None) -> NodeClassifier:
        return _with(NodeClassifier(), self._settings, {"seed": seed, "path": path})

    def judge(self, model: Model | None) -> Judgement:
        if model is not None:
            assert isinstance(model, NodeClassifier)
            return Judgement.of([model.evaluate(self.training, parts=("test",))])
        unlearned = self.model(seed=0, path=None)
        return Judgement.of(
            [
                evaluation.evaluate_nodes(
                    None,
                    self.events,
                    unlearned.examples(self.events, self.training),
                    known_at=unlearned.known(self.events),
                    parts=("test",),
                    split_name=self.training.name,
                )
            ]
        )


def make_trial(
    stream: EventStream,
    protocol: Protocol | str = "tgn",
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Trial:
    """The trial of a protocol on a stream; the other arguments are those of `evaluate`."""
    protocol = Protocol.of(protocol)
    about = stream, protocol, name, _judged_settings(protocol, settings, preset, name)
    if protocol.name == "roland":
        width_s, first = protocol.snapshots(name)
        return _SnapshotTrial(
            *about, split=evaluation.roland_split(stream, width_s=width_s, first_test=first)
        )
    split = _split(stream, protocol)
    return (_NodeTrial if protocol.task == "node" else _EventTrial)(*about, split=split)


def _over_seeds(tables: Sequence[_Table]) -> dict[str, dict[str, dict[str, Any]]]:
    """`[sampler][part][metric]` with mean, standard deviation and the values themselves."""

    def summed(values: list[float]) -> dict[str, Any]:
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return {"mean": statistics.fmean(values), "std": spread, "per_seed": values}

    return {
        sampler: {
            part: {
                metric: summed([table[sampler][part][metric] for table in tables])
                for metric in values
            }
            for part, values in parts.items()
        }
        for sampler, parts in tables[0].items()
    }


def _too_few(events: int | None) -> Iterator[str]:
    """A note where chance alone makes differences that look like something."""
    if events is not None and events < _FEW:
        points = 100 * 0.5 / np.sqrt(max(events, 1))
        yield (
            f"judged by only {counted(events, 'event')}: differences of some {points:.0f} points"
            " are chance"
        )


# What both share ----------------------------------------------------------------------------------


def model_settings(
    settings: Mapping[str, Any] | None,
    *,
    task: str,
    protocol: str,
    preset: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """All settings of a trial's model: those given, and else those of its preset for the data.

    A preset that is named wins over the one that comes with the protocol. Seed and path belong to
    the trial, and are there only where somebody gave them.
    """
    kind: type[Model] = NodeClassifier if task == "node" else LinkPredictor
    base = preset_name(preset, task=task, protocol=protocol)
    begun = kind.preset(base, name if name in DATA_SETS else None).get_params()
    own = {key: value for key, value in begun.items() if key not in ("seed", "path")}
    return {**own, **(settings or {})}


def _with(
    model: _AnyModel, settings: Mapping[str, Any] | None, own: Mapping[str, Any]
) -> _AnyModel:
    """The model with these settings, and those that are decided here."""
    given = dict(settings or {})
    for name in own:
        if name in given:
            raise ParameterError(f"the setting {name!r} is decided by the run; leave it out")
    return model.set_params(**given, **own)


def _split(stream: EventStream, protocol: Protocol | None) -> Split:
    """The parts of the stream; without a protocol nothing is kept for a test."""
    after, later = (None, None) if protocol is None else protocol.times(stream.unit)
    if after is not None and later is not None:
        return evaluation.time_split(stream, validation_time=after, test_time=later)
    if len(stream) == 0 or stream.t[0] == stream.t[-1]:
        raise DataError(
            f"the stream holds {counted(len(stream), 'event')}, none later than another; what comes"
            " next is learned from events at different times"
        )
    if protocol is None:
        latest = float(np.quantile(stream.t, 1 - _STOP_BY))
        return evaluation.time_split(stream, validation_time=latest, test_time=np.inf)
    if protocol.name == "tgn":
        return evaluation.tgn_split(stream)
    if protocol.name == "tgb":
        return evaluation.tgb_split(stream)
    raise ParameterError(f"the protocol {protocol.name!r} divides snapshots; `evaluate` does it")


class _Clock:
    """Seconds spent, by stage."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._spent: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - begun

    def stages(self) -> dict[str, float]:
        spent = {**self._spent, "total": time.perf_counter() - self._begun}
        return {name: round(seconds, 3) for name, seconds in spent.items()}


def _plainly(metric: str) -> str:
    """The name of a metric as a name: mrr-full is mrr_full, hits@10 is hits_10."""
    return metric.replace("-", "_").replace("@", "_")
