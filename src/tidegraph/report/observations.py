"""What a report shows of a fitted predictor, gathered once and saved as arrays in one file."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core import statefile
from tidegraph.core.errors import EvaluationError, StateFileError
from tidegraph.core.progress import Progress, silent
from tidegraph.evaluation import SEEDS, Split, negative_sampler
from tidegraph.evaluation.protocols.scoring import BATCH_SIZE, columns, known_before, slices
from tidegraph.events.describe import describe, facts
from tidegraph.events.stream import EventStream
from tidegraph.report.answering import next_classes, next_links
from tidegraph.report.telemetry import COLOURED_BY, INTERVALS, Gathered, engine, evenly

if TYPE_CHECKING:  # torch takes seconds to import, and reading a report needs none of it
    from tidegraph.learning.tasks import EventClassifier, LinkPredictor, NodeClassifier

IntArray = NDArray[np.int64]

_FORMAT = 1
_USED = ("tidegraph", "numpy", "torch")  # packages whose versions are kept
_SCORED = 50_000  # test examples that curves are drawn from, evenly over the test period


@dataclass(frozen=True, eq=False)
class Observations:
    """What `save_observations` gathered: facts in plain types, and arrays by name."""

    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the model without those that belong to the run."""
        settings = self.about["settings"].items()
        return {name: value for name, value in settings if name not in ("path", "seed")}


def read_observations(path: str | Path) -> Observations | None:
    """Read observations, or return None if there is no file."""
    if not Path(path).exists():
        return None
    about, arrays = statefile.read(path)
    if about.get("format") != _FORMAT:
        raise StateFileError(
            f"{path} contains observations of format {about.get('format')}, and this release reads"
            f" {_FORMAT}: delete it and run again"
        )
    # Earlier runs saved the words instead of the key.
    keys = {words: key for key, words in COLOURED_BY.items()}
    about["map"]["by"] = keys.get(about["map"]["by"], about["map"]["by"])
    return Observations(about, arrays)


def save_observations(
    path: str | Path,
    *,
    predictor: LinkPredictor | NodeClassifier | EventClassifier,
    stream: EventStream,
    split: Split,
    history: Sequence[Mapping[str, Any]] | None = None,
    telemetry: Path | None = None,
    progress: Progress | None = None,
) -> None:
    """Gather what the figures of a report need into one file, written whole or not at all.

    `stream` and `split` are those the predictor was fitted with. `history` has a mapping per epoch
    with `epoch` (from 1), `loss`, `validation` and `seconds`; by default that of the predictor.

    `telemetry` is what `Telemetry.save` wrote while the stream was recorded; if there is none, the
    stream is replayed. Explanations of the nodes that moved most stop after some seconds; the
    others are named without one.
    """
    report = progress or silent
    if history is None:
        history = [epoch.plain() for epoch in predictor.epochs_]
    about: dict[str, Any] = {
        "format": _FORMAT,
        "time": _times(stream, split),
        "hidden_nodes": len(split.held_out),
        "history": [dict(epoch) for epoch in history],
        "settings": _plain(predictor.get_params()),
        "defaults": _plain(type(predictor)().get_params()),
        "versions": {"python": platform.python_version()} | {each: version(each) for each in _USED},
    }
    arrays: dict[str, NDArray[Any]] = {}
    parts: list[tuple[str, Callable[[], Gathered]]] = [
        ("scores", lambda: _SCORES[predictor.task](predictor, stream, split)),
        ("the data", lambda: _data(stream)),
        ("answers", lambda: _answers(predictor, stream, split, report)),
        ("the engine", lambda: engine(predictor, stream, split, telemetry, report)),
    ]
    for number, (what, part) in enumerate(parts):
        report(number, len(parts), f"observing {what}")
        about_part, found = part()
        about |= about_part
        arrays |= found
    statefile.write(path, about, arrays)


def _times(stream: EventStream, split: Split) -> dict[str, Any]:
    begun = {"validation": split.validation_time, "test": split.test_time}
    return {
        "unit": stream.unit,
        "first": int(stream.t[0]),
        "last": int(stream.t[-1]),
        **{part: float(t) if np.isfinite(t) else None for part, t in begun.items()},
    }


def _plain(settings: Mapping[str, Any]) -> Any:
    """Return settings in the types of JSON; custom modules by their names."""
    text = json.dumps(settings, default=lambda value: getattr(value, "__qualname__", str(value)))
    return json.loads(text)


# Scores -------------------------------------------------------------------------------------------


def _link_scores(predictor: LinkPredictor, stream: EventStream, split: Split) -> Gathered:
    """Return scores of true pairs of the test period, and of false ones of each sampler."""
    part = "test" if len(split.test) else "validation"
    asked = split.part(part)
    shown = evenly(len(asked), _SCORED)
    src, dst, t = columns(stream, asked[shown])
    as_of = known_before(stream.t[asked], predictor.knowledge, BATCH_SIZE)[shown]
    arrays: dict[str, NDArray[Any]] = {
        "score.t": t,
        "score.true": predictor.decision_function(src, dst, t, as_of).astype(np.float32),
    }
    # The kind it was trained against is always needed: probabilities refer to it.
    own = "random-all" if predictor.any_node else "random-dst"
    for name in dict.fromkeys(["random-dst", "historical", own]):
        sampler = negative_sampler(name, stream, seed=SEEDS[part])
        try:
            drawn = [
                sampler.sample(src[some], dst[some], t[some])
                for some in slices(len(shown), BATCH_SIZE)
            ]
        except EvaluationError:  # the graph is so small that all pairs happen
            continue
        false_src, false_dst = (np.concatenate(ends) for ends in zip(*drawn, strict=True))
        false = predictor.decision_function(false_src, false_dst, t, as_of)
        arrays[f"score.{name}"] = false.astype(np.float32)
    about = {
        "task": "link",
        "part": part,
        "examples": len(shown),
        "examples_of": len(asked),
        "training_negatives": predictor.training_negatives,
        # The weights of false pairs in training; a true one weighs 1.
        "training_weights": {
            own: float(predictor.random_negatives),
            "historical": predictor.past_negatives * predictor.past_weight,
        },
    }
    return about, arrays


def _node_scores(classifier: NodeClassifier, stream: EventStream, split: Split) -> Gathered:
    """Return labels of the test period and the probabilities of all classes."""
    examples = classifier.examples(stream, split)
    assert examples.part is not None  # examples are divided
    about, rows = _shown_examples(examples.t, examples.part)
    arrays: dict[str, NDArray[Any]] = {
        "score.t": examples.t[rows],
        "score.label": examples.label[rows].astype(np.int64),
        "score.probability": classifier.predict_proba(examples.node[rows], examples.t[rows]),
        "score.classes": classifier.classes_,
    }
    return {"task": "node", "class_names": classifier.class_names, **about}, arrays


def _event_scores(classifier: EventClassifier, stream: EventStream, split: Split) -> Gathered:
    """Return labels of the test events and the probabilities of all classes."""
    events, parts = classifier.examples(stream, split)
    about, rows = _shown_examples(stream.t[events], parts)
    chosen = np.zeros(len(stream), dtype=np.bool_)
    chosen[events[rows]] = True
    asked = stream.where(chosen)
    assert asked.labels is not None
    arrays: dict[str, NDArray[Any]] = {
        "score.t": asked.t,
        "score.label": asked.labels,
        "score.probability": classifier.predict_proba(asked),
        "score.classes": classifier.classes_,
    }
    return {"task": "events", "class_names": classifier.class_names, **about}, arrays


def _shown_examples(t: IntArray, parts: NDArray[np.uint8]) -> tuple[dict[str, Any], IntArray]:
    """Return which examples of the test, or else of validation, are shown, in order of time."""
    number, part = (2, "test") if (parts == 2).any() else (1, "validation")
    of_part = np.flatnonzero(parts == number)
    of_part = of_part[np.argsort(t[of_part], kind="stable")]
    rows = of_part[evenly(len(of_part), _SCORED)] if len(of_part) else of_part
    return {"part": part, "examples": len(rows), "examples_of": len(of_part)}, rows


_SCORES: Mapping[str, Callable[..., Gathered]] = {
    "link": _link_scores,
    "node": _node_scores,
    "events": _event_scores,
}


def _answers(predictor: Any, stream: EventStream, split: Split, report: Progress) -> Gathered:
    """Return answers of the predictor, none for tasks that are about events of the past."""
    if predictor.task == "link":
        return next_links(predictor, stream, split, report)
    return next_classes(predictor, stream, split) if predictor.task == "node" else ({}, {})


# The data -----------------------------------------------------------------------------------------


def _data(stream: EventStream) -> Gathered:
    what = describe(stream)
    _, first = np.unique(stream.src * stream.nodes + stream.dst, return_index=True)
    repeated = np.ones(len(stream))
    repeated[first] = 0.0
    bounds = np.unique(np.linspace(0, len(stream), INTERVALS + 1).round().astype(np.int64))
    about = {
        "title": what.title,
        "facts": [list(fact) for fact in facts(what)],
        "activity": list(what.activity),
        "degrees": [list(degree) for degree in what.degrees],
    }
    arrays = {
        "repeat.t": stream.t[bounds[1:] - 1],
        "repeat.rate": np.add.reduceat(repeated, bounds[:-1]) / np.diff(bounds),
    }
    return about, arrays
