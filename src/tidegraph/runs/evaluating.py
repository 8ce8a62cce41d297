"""Evaluate models by a protocol over seeds, and validate one for choosing among settings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from tidegraph import evaluation
from tidegraph.core.errors import ParameterError
from tidegraph.core.progress import Progress, prefixed, silent
from tidegraph.core.words import counted
from tidegraph.evaluation import Result, Split
from tidegraph.evaluation.results import Scores, over_seeds, plain_name
from tidegraph.events.stream import EventStream
from tidegraph.learning.tasks import LinkPredictor
from tidegraph.runs.protocol import Protocol, split_stream
from tidegraph.runs.trials import (
    LIVE,
    MODEL,
    Trial,
    decided,
    make_trial,
    trial_settings,
    with_settings,
)

_FEW = 1000  # events of a test; differences of some 4 points are then chance


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
    """Return what models trained with several seeds achieve on the test events, in plain types.

    A seed decides on features, weights and training negatives; the negatives of the evaluation
    have the protocol's own seeds, the same for all. Heuristics are evaluated once.

    `knowledge` says what models and heuristics knew, except for those marked `@published`.
    `metrics[sampler][part][metric]` has `mean`, `std` (of the sample; 0 for one seed) and
    `per_seed`, all fractions of 1; ranks also have `error`, the standard error over events. `part`
    is `all`, `new` (events that touch a node unseen in training) or `first` (events whose nodes
    never met before), and `examples[sampler][part]` is how many there are.
    `heuristics[name][sampler][part][metric]` is a number; `verdicts` says in words who is ahead.
    `elapsed_s` is by stage, over all seeds.

    preset: where settings start (see `tasks.preset`); by default that of the task and the protocol.
        `settings` are changes to it.
    name: of the data set, if it is a known one.
    """
    times = _StageTimes()
    report = progress or silent
    _check_seeds(seeds)
    trial = make_trial(stream, protocol, preset=preset, settings=settings, name=name)
    models = [trial.model(seed=seed, path=None) for seed in seeds]
    report(0, len(seeds), "heuristics")
    with times.stage("heuristics"):
        heuristics = trial.evaluate(None, progress=prefixed(report, "heuristics, "))
    scores = []
    for number, seed in enumerate(seeds):
        model = models.pop(0)  # so that its record on disk is deleted with it
        of_seed = prefixed(report, f"seed {seed} ({number + 1} of {len(seeds)}), ")
        with times.stage("record"):
            model.observe(trial.events, trial.training, progress=of_seed)
        of_seed(0, 1, "reading features")
        with times.stage("train"):
            model.train(trial.training, progress=of_seed)
        report(number, len(seeds), f"seed {seed}, scoring")
        with times.stage("score"):
            scores.append(trial.evaluate(model, progress=of_seed))
        del model
    return summary(trial, seeds, heuristics, scores, elapsed_s=times.elapsed_s())


def summary(
    trial: Trial,
    seeds: Sequence[int],
    heuristics: Scores,
    scores: Sequence[Scores],
    *,
    elapsed_s: Mapping[str, float],
) -> dict[str, Any]:
    """Return what `evaluate` does, from the scores of the heuristics and of each seed's model."""
    metrics = over_seeds(
        [one.table[MODEL] for one in scores], [one.errors[MODEL] for one in scores]
    )
    model, stream = trial.model(seed=seeds[0], path=None), trial.stream
    verdicts = evaluation.verdicts(
        metrics, heuristics.table, heuristics.headlines, heuristics.examples
    )
    tested = heuristics.split["sizes"]["test"] if trial.protocol.name != "roland" else None
    return {
        "task": trial.protocol.task,
        **trial.about(),
        "data": {
            "name": trial.name,
            "title": stream.title,
            "digest": stream.digest(),
            "events": len(stream),
            "nodes": stream.nodes,
            "unit": stream.unit,
        },
        "protocol": trial.title,
        "knowledge": heuristics.knowledge,
        "live": dict(LIVE) if trial.protocol.live else None,
        "split": heuristics.split,
        "seeds": list(seeds),
        "evaluation": heuristics.settings,
        "headlines": heuristics.headlines,
        "examples": heuristics.examples,
        "training_negatives": getattr(model, "training_negatives", None),
        "settings": {
            key: list(value) if isinstance(value, tuple) else value  # as JSON returns it
            for key, value in model.get_params().items()
            if key not in ("seed", "path")
        },
        "metrics": metrics,
        "heuristics": heuristics.table,
        "verdicts": [str(verdict) for verdict in verdicts],
        "warnings": [*too_few(tested), *heuristics.notes],
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
    """Return what a model trained with one seed achieves on the validation events, in plain types.

    For choosing among settings: no number here has seen a test event as an answer. `metrics` are
    those against random destinations.
    """
    times = _StageTimes()
    protocol = Protocol.of(protocol)
    split = split_stream(stream, protocol)
    own = decided(protocol, seed=seed) | ({} if threads is None else {"threads": threads})
    predictor = with_settings(LinkPredictor(), settings, own)
    with times.stage("record"):
        predictor.observe(stream, split, progress=progress)
    with times.stage("train"):
        predictor.train(split, progress=progress)
    with times.stage("score"):
        row = validation_result(predictor, stream, split, heuristics=list).row("validation")
    return {
        "metrics": {plain_name(metric): float(value) for metric, value in row.metrics.items()},
        "events": row.examples,
        "epochs": len(predictor.epochs_),
        "elapsed_s": times.elapsed_s(),
    }


def validation_result(
    predictor: LinkPredictor, stream: EventStream, split: Split, **options: Any
) -> Result:
    """Return how a model does on the events that decided when to stop."""
    options |= {"parts": ("validation",), "knowledge": predictor.knowledge, "model": MODEL}
    return evaluation.evaluate_link(predictor.decision_function, stream, split, **options)


def check_evaluation(
    protocol: Protocol | str = "tgn",
    *,
    seeds: Sequence[int] = (0, 1, 2),
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> None:
    """Raise ParameterError for arguments of `evaluate` that are wrong whatever the events are."""
    protocol = Protocol.of(protocol)
    _check_seeds(seeds)
    if protocol.name == "roland":
        protocol.snapshots(name)
    trial_settings(protocol, settings, preset, name)


def _check_seeds(seeds: Sequence[int]) -> None:
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise ParameterError(f"seeds are {list(seeds)}; give at least one, each once")


def too_few(events: int | None) -> Iterator[str]:
    """Yield a note if chance alone makes visible differences on this number of test events."""
    if events is not None and events < _FEW:
        points = 100 * evaluation.noise(0.5, 0.5, events)
        yield (
            f"evaluated on only {counted(events, 'event')}: differences of some {points:.0f} points"
            " are chance"
        )


class _StageTimes:
    """Seconds spent, by stage."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._spent: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - begun

    def elapsed_s(self) -> dict[str, float]:
        spent = {**self._spent, "total": time.perf_counter() - self._begun}
        return {name: round(seconds, 3) for name, seconds in spent.items()}
