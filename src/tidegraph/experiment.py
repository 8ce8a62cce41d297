"""Whole experiments with links: train and keep a model, or judge one by a protocol over seeds."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph import evaluation, training
from tidegraph.errors import DataError, ParameterError, StateFileError, TidegraphError
from tidegraph.evaluation import ROLAND_SETTINGS, Result, SnapshotSplit, Split
from tidegraph.events import Op
from tidegraph.stream import EventStream
from tidegraph.tasks import LinkPredictor, preset

__all__ = [
    "PROTOCOLS",
    "Trained",
    "check_evaluation",
    "check_training",
    "evaluate",
    "train",
    "unfinished",
    "validate",
]

IntArray = NDArray[np.int64]
Progress = Callable[[int, int, str], None]

PROTOCOLS = ("tgn", "tgb", "time", "roland")
_MODEL = "tidegraph"  # among scorers
_STOP_BY = 0.15  # share of the events that decide when to stop, where none is kept for a test
# What the results call the parts of the protocols.
_PARTS = {"test": "all", "new_test": "new"}
_FEW = 1000  # events to judge by; the chance error of a share is then 1.6 points
_HEADLINES = ("ap", "mrr", "mrr_full")  # the first of them that there is compares scorers


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
    protocol: str | None = None,
    settings: Mapping[str, Any] | None = None,
    validation_after: float | None = None,
    test_after: float | None = None,
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
    check_training(
        path,
        protocol=protocol,
        settings=settings,
        validation_after=validation_after,
        test_after=test_after,
    )
    directory, work = Path(path), unfinished(path)
    if stream.op is not None and (stream.op != Op.ADD).any():
        raise DataError(
            "the stream removes or sets edges, and links that appear are learned; give only the"
            " events that add, as stream.where(stream.op == Op.ADD) does"
        )
    split = _split(stream, protocol, validation_after, test_after)
    predictor = _predictor(settings, {"path": str(work / "trajectories")})
    with training.joined(predictor.device) as ranks:
        report = progress if progress is not None and ranks.leads else _silent
        if ranks.leads:
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
            whole.replace(directory)
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


def check_training(
    path: str | Path,
    *,
    protocol: str | None = None,
    settings: Mapping[str, Any] | None = None,
    validation_after: Any = None,
    test_after: Any = None,
) -> None:
    """Refuses of `train`'s arguments what can be refused before there are events."""
    directory, work = Path(path), unfinished(path)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise StateFileError(f"{directory} exists already; give another directory, or delete it")
    if not work.parent.is_dir():
        raise StateFileError(f"{work.parent} is not a directory; make it first")
    _check_protocol(protocol, validation_after, test_after)
    _predictor(settings, {"path": None})
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
    """Makes the place to work in, or finds it as an earlier run like this one left it."""
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
    elif work.exists() and any(work.iterdir()):
        raise StateFileError(f"{work} holds something else than a run; move it away")
    work.mkdir(exist_ok=True)
    temporary = work.with_name(f"{work.name}.tmp")
    temporary.write_text(json.dumps(run, indent=2), encoding="utf-8")
    temporary.replace(about)


# Judge by a protocol ------------------------------------------------------------------------------


def evaluate(
    stream: EventStream,
    *,
    protocol: str = "tgn",
    samplers: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    settings: Mapping[str, Any] | None = None,
    rank: bool = False,
    rank_sample: int | None = None,
    validation_after: float | None = None,
    test_after: float | None = None,
    snapshot_seconds: int | None = None,
    first_test: int | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What models trained with several seeds achieve on the test events, in plain types.

    A seed decides on features, weights and training negatives; the negatives of the evaluation
    have the protocol's own seeds, the same for all. Heuristics are evaluated once.

    `metrics[sampler][part][metric]` has `mean`, `std` (of the sample; 0 where there is one seed)
    and `per_seed`, all fractions of 1; `part` is `all` or `new` (events that touch a node unseen
    in training). `heuristics[name][sampler][part][metric]` is a number. `elapsed_s` is by stage,
    over all seeds.

    protocol: `tgn` and `tgb` divide at quantiles of time, `time` at the times given; `roland`
        ranks all nodes for every source of the next snapshot.
    samplers: of negatives; `random-dst` by default. `roland` has none.
    rank: also ranks every destination for each test event, or for `rank_sample` of them.
    validation_after, test_after: for `time`.
    snapshot_seconds, first_test: for `roland`, where `name` is none of `ROLAND_SETTINGS`.
    """
    clock = _Clock()
    report = progress or _silent
    check_evaluation(
        protocol=protocol,
        samplers=samplers,
        seeds=seeds,
        settings=settings,
        rank=rank or rank_sample is not None,
        validation_after=validation_after,
        test_after=test_after,
        snapshot_seconds=snapshot_seconds,
        first_test=first_test,
        name=name,
    )
    if protocol == "roland":
        width_s, first = _snapshot_settings(name, snapshot_seconds, first_test)
        snapshots = evaluation.roland_split(stream, width_s=width_s, first_test=first)
        trial: _Trial = _SnapshotTrial(stream, snapshots)
    else:
        split = _split(stream, protocol, validation_after, test_after)
        trial = _EventTrial(stream, split, samplers or ("random-dst",), rank, rank_sample)
    if protocol == "roland":
        settings = {**preset("snapshots"), **(settings or {})}
    predictors = [_predictor(settings, {"seed": seed, "path": None}) for seed in seeds]
    report(0, len(seeds), "heuristics")
    with clock.stage("heuristics"):
        rules = trial.judge(None)
    runs = []
    for number, seed in enumerate(seeds):
        predictor = predictors.pop(0)  # so that its record on disk goes when it goes
        told = _prefixed(report, f"seed {seed} ({number + 1} of {len(seeds)}), ")
        with clock.stage("record"):
            predictor.observe(trial.events, trial.training, progress=told)
        told(0, 1, "reading features of pairs")
        with clock.stage("train"):
            predictor.train(trial.training, progress=told)
        report(number, len(seeds), f"seed {seed}, scoring")
        with clock.stage("score"):
            runs.append(trial.judge(predictor))
        negatives, used = predictor.training_negatives, predictor.get_params()
        del predictor
    metrics = _over_seeds([run.table[_MODEL] for run in runs])
    return {
        "task": "link",
        "data": {
            "name": name,
            "title": stream.title,
            "digest": stream.digest(),
            "events": len(stream),
            "nodes": stream.nodes,
            "unit": stream.unit,
        },
        "protocol": protocol,
        "split": rules.split,
        "seeds": list(seeds),
        "evaluation": rules.settings,
        "training_negatives": negatives,
        "settings": {key: value for key, value in used.items() if key not in ("seed", "path")},
        "metrics": metrics,
        "heuristics": rules.table,
        "warnings": [
            *rules.notes,
            *_beaten(metrics, rules.table),
            *_too_few(rules.split["sizes"]["test"] if protocol != "roland" else None),
        ],
        "elapsed_s": clock.stages(),
        "version": version("tidegraph"),
    }


def validate(
    stream: EventStream,
    *,
    protocol: str = "tgn",
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    threads: int | None = None,
    validation_after: float | None = None,
    test_after: float | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What a model trained with one seed achieves on the validation events, in plain types.

    For choosing among settings: no number here has seen a test event as an answer. `metrics` are
    those against random destinations.
    """
    clock = _Clock()
    split = _split(stream, protocol, validation_after, test_after)
    own = {"seed": seed, "path": None, **({} if threads is None else {"threads": threads})}
    predictor = _predictor(settings, own)
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
    *,
    protocol: str = "tgn",
    samplers: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    settings: Mapping[str, Any] | None = None,
    rank: bool = False,
    validation_after: Any = None,
    test_after: Any = None,
    snapshot_seconds: int | None = None,
    first_test: int | None = None,
    name: str | None = None,
) -> None:
    """Refuses of `evaluate`'s arguments what can be refused before there are events."""
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise ParameterError(f"seeds are {list(seeds)}; give at least one, each once")
    if protocol == "roland" and (samplers is not None or rank):
        raise ParameterError(
            "the protocol roland ranks all nodes; samplers and rank belong to the others"
        )
    _check_protocol(protocol, validation_after, test_after)
    if protocol == "roland":
        _snapshot_settings(name, snapshot_seconds, first_test)
    _predictor(settings, {"seed": 0, "path": None})


_Table = dict[str, dict[str, dict[str, float]]]  # [sampler][part][metric]


@dataclass(frozen=True)
class _Judgement:
    """What scorers achieved, and all that is needed to compare it."""

    table: dict[str, _Table]  # [scorer]
    split: dict[str, Any]
    settings: dict[str, Any]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[Result]) -> _Judgement:
        table: dict[str, _Table] = {}
        for result in results:
            for row in result.to_dict()["rows"]:
                parts = table.setdefault(row["scorer"], {}).setdefault(row["sampler"], {})
                values = parts.setdefault(_PARTS[row["part"]], {})
                values |= {_plainly(metric): value for metric, value in row["metrics"].items()}
        return cls(
            table,
            results[0].to_dict()["split"],
            {result.task: result.settings for result in results},
            tuple(note for result in results for note in result.warnings),
        )


class _Trial(ABC):
    """Events to learn from, and a way to judge what was learned."""

    events: EventStream
    training: Split

    @abstractmethod
    def judge(self, predictor: LinkPredictor | None) -> _Judgement:
        """The predictor alone, or the heuristics where there is none."""


class _EventTrial(_Trial):
    """Test events against sampled negatives, and among all destinations."""

    def __init__(
        self,
        stream: EventStream,
        split: Split,
        samplers: Sequence[str],
        rank: bool,
        rank_sample: int | None,
    ) -> None:
        self.events, self.training = stream, split
        self._samplers, self._rank, self._rank_sample = samplers, rank, rank_sample

    def judge(self, predictor: LinkPredictor | None) -> _Judgement:
        score = None if predictor is None else predictor.score
        options: dict[str, Any] = {"model": _MODEL}
        if predictor is not None:
            options["heuristics"] = list
        results = [
            evaluation.evaluate_link(
                score, self.events, self.training, samplers=self._samplers, **options
            )
        ]
        if self._rank:
            results.append(
                evaluation.evaluate_ranking(
                    score, self.events, self.training, sample=self._rank_sample, **options
                )
            )
        return _Judgement.of(results)


class _SnapshotTrial(_Trial):
    """The edges of the next snapshot among all pairs of its sources.

    Time counts snapshots: what is known strictly before `task + 1` are the snapshots up to `task`.
    """

    def __init__(self, stream: EventStream, split: SnapshotSplit) -> None:
        kept = split.index >= 0
        self.events = replace(
            stream.where(kept), t=split.index[kept], unit="step", node_labels=None
        )
        # Task k is about snapshot k + 1, so the last snapshot to train on is that of the last task.
        self.training = evaluation.time_split(
            self.events, validation_time=split.validation.start, test_time=split.test.start
        )
        self._stream, self._split = stream, split

    def judge(self, predictor: LinkPredictor | None) -> _Judgement:
        def score_all(sources: IntArray, task: int) -> NDArray[np.float32]:
            assert predictor is not None
            nodes = self.events.nodes
            pairs = np.repeat(sources, nodes), np.tile(np.arange(nodes), len(sources))
            return predictor.score(*pairs, task + 1).reshape(len(sources), nodes)

        options: dict[str, Any] = {"model": _MODEL}
        if predictor is not None:
            options["heuristics"] = list
        return _Judgement.of(
            [
                evaluation.evaluate_snapshots(
                    None if predictor is None else score_all, self._stream, self._split, **options
                )
            ]
        )


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


def _beaten(
    metrics: Mapping[str, Mapping[str, Mapping[str, Any]]], heuristics: Mapping[str, _Table]
) -> Iterator[str]:
    """A note for every sampler and part under which some heuristic is at least as good."""
    for sampler, parts in metrics.items():
        for part, values in parts.items():
            metric = next(name for name in _HEADLINES if name in values)
            own = values[metric]["mean"]
            best = max(heuristics, key=lambda rule: heuristics[rule][sampler][part][metric])
            value = heuristics[best][sampler][part][metric]
            if outcome := evaluation.outcome_of_heuristic(value, own):
                yield (
                    f"a heuristic {outcome}: {best} has {metric} {value:.4f} under {sampler} on"
                    f" {part}, the model {own:.4f}"
                )


def _too_few(events: int | None) -> Iterator[str]:
    """A note where chance alone makes differences that look like something."""
    if events is not None and events < _FEW:
        points = 100 * 0.5 / np.sqrt(max(events, 1))
        yield (
            f"only {events:,} {'event is' if events == 1 else 'events are'} judged: differences of"
            f" some {points:.0f} points are chance"
        )


# What both share ----------------------------------------------------------------------------------


def _predictor(settings: Mapping[str, Any] | None, own: Mapping[str, Any]) -> LinkPredictor:
    """A predictor with these settings, and those that are decided here."""
    given = dict(settings or {})
    for name in own:
        if name in given:
            raise ParameterError(f"the setting {name!r} is decided by the run; leave it out")
    return LinkPredictor().set_params(**given, **own)


def _check_protocol(protocol: str | None, validation_after: Any, test_after: Any) -> None:
    if protocol is not None and protocol not in PROTOCOLS:
        raise ParameterError(f"protocol is {protocol!r}; give one of {', '.join(PROTOCOLS)}")
    if protocol == "time" and (validation_after is None or test_after is None):
        raise ParameterError(
            "the protocol 'time' needs to be told after which times validation and test begin;"
            " give validation_after and test_after"
        )
    if protocol != "time" and (validation_after is not None or test_after is not None):
        raise ParameterError("validation_after and test_after belong to the protocol 'time'")


def _split(
    stream: EventStream,
    protocol: str | None,
    validation_after: float | None,
    test_after: float | None,
) -> Split:
    if validation_after is not None and test_after is not None:
        return evaluation.time_split(stream, validation_time=validation_after, test_time=test_after)
    if len(stream) == 0 or stream.t[0] == stream.t[-1]:
        raise DataError(
            f"the stream holds {len(stream):,} events at {min(len(stream), 1)} time; what comes"
            " next is learned from events at different times"
        )
    if protocol is None:
        latest = float(np.quantile(stream.t, 1 - _STOP_BY))
        return evaluation.time_split(stream, validation_time=latest, test_time=np.inf)
    if protocol == "tgn":
        return evaluation.tgn_split(stream)
    if protocol == "tgb":
        return evaluation.tgb_split(stream)
    raise ParameterError(f"the protocol {protocol!r} divides snapshots; `evaluate` does it")


def _snapshot_settings(
    name: str | None, snapshot_seconds: int | None, first_test: int | None
) -> tuple[int, int]:
    """The width of a snapshot and the first test task, given or published."""
    known = ROLAND_SETTINGS.get(name or "", {})
    width_s = known.get("width_s") if snapshot_seconds is None else snapshot_seconds
    first = known.get("first_test") if first_test is None else first_test
    if width_s is None or first is None:
        raise ParameterError(
            "the protocol 'roland' needs snapshot_seconds, the width of a snapshot, and first_test,"
            f" the first test task; published ones are for {', '.join(ROLAND_SETTINGS)}"
        )
    return width_s, first


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


def _silent(done: int, total: int, what: str) -> None:
    pass


def _prefixed(report: Progress, prefix: str) -> Progress:
    return lambda done, total, what: report(done, total, prefix + what)


def _plainly(metric: str) -> str:
    """The name of a metric as a name: mrr-full is mrr_full, hits@10 is hits_10."""
    return metric.replace("-", "_").replace("@", "_")
