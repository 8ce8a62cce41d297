"""How the model learned, and how good its answers are: curves, over time, calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.words import counted
from tidegraph.evaluation.metrics import Calibration, average_precision, roc_auc
from tidegraph.evaluation.metrics import calibration as calibration_of
from tidegraph.report.axes import linear, time_axis, whole_numbers
from tidegraph.report.figures import Curve, Rule, chart
from tidegraph.report.markup import Html, element, figures, section
from tidegraph.report.observations import Observations
from tidegraph.report.vocabulary import ABSENT, against, moment, percent

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TIME_BINS = 24
_PER_TIME_BIN = 100  # examples, at least
_PER_CALIBRATION_BIN = 10  # examples, at least: fewer mean nothing
_RARE = 0.1  # below this share of ones, probabilities are divided by rank and not by size
_FIRST_HITS = 0.05  # recall below which precision jumps
_SMALL = 0.4  # an axis of shares that stay below this does not reach to 1


def learning(seen: Observations) -> Html | None:
    """Return the section, or None if no epoch was observed."""
    history = seen.about["history"]
    if not history:
        return None
    validation = validation_curve(seen, "validation", 1)
    epoch = [entry["epoch"] for entry in history]
    last = seen.about["settings"].get("patience", 0) is None
    kept = epoch[-1] if last else epoch[int(np.argmin(validation.y))]
    which = "last" if last else "best on validation events"
    words = (
        f"{counted(len(history), 'epoch')} in {sum(entry['seconds'] for entry in history):,.0f} s;"
        f" the model has the weights of epoch {kept}, the {which}."
    )
    rows = [
        [str(e["epoch"]), f"{e['loss']:.4f}", f"{-e['validation']:.4f}", f"{e['seconds']:.1f}"]
        for e in history
    ]
    drawing = loss_chart(
        "Loss by epoch",
        "Good: both fall and flatten. If validation rises while training falls, the model"
        " memorises.",
        [Curve("training", epoch, [e["loss"] for e in history], 0, dots=True), validation],
        rules=[Rule("best", x=kept)] if len(epoch) > 1 and not last else [],
        numbers=(["epoch", "training", "validation", "seconds"], rows),
    )
    return section("How it learned", element("p", words), figures(drawing), name="learning")


def validation_curve(seen: Observations, name: str, colour: int) -> Curve:
    """Return the validation loss by epoch; scores in the history are negated losses."""
    history = seen.about["history"]
    epochs = [entry["epoch"] for entry in history]
    return Curve(name, epochs, [-entry["validation"] for entry in history], colour, dots=True)


def loss_chart(
    title: str,
    aid: str,
    drawn: Sequence[Curve],
    *,
    rules: Sequence[Rule] = (),
    numbers: tuple[list[str], list[list[str]]] | None = None,
) -> Html:
    """Return a chart of losses by epoch."""
    epochs, losses = _all_points(drawn)
    x = whole_numbers("epoch", float(epochs.min()), float(epochs.max()))
    y = linear("loss (cross-entropy)", losses)
    return chart(title, aid, x, y, drawn, rules=rules, numbers=numbers, kind="training")


def _all_points(drawn: Sequence[Curve]) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = zip(*((np.asarray(curve.x), np.asarray(curve.y)) for curve in drawn), strict=True)
    return np.concatenate(x), np.concatenate(y)


def quality(seen: Observations) -> Html:
    """Return the section."""
    examples = [one for one in scored(seen) if one.has_both]
    of, shown, part = seen.about["examples_of"], seen.about["examples"], seen.about["part"]
    links = seen.about["task"] == "link"
    sample = f"{of:,} {'events' if links else 'labels'} of the {part} period" + (
        "" if shown == of else f", of which {shown:,} are shown, evenly over time"
    )
    title = "How good the answers are"
    if not examples:
        nothing = f"Only one class occurs among the {sample}: there is nothing to draw."
        return section(title, element("p", nothing), name="quality")
    false = ", against one false pair each" if links else ""
    return section(
        title,
        element(
            "p",
            f"From the first seed's model and the {sample}{false}. Areas (AUC, AP) are over all"
            " of them at once, while headline numbers may be means over batches.",
        ),
        figures(
            roc_chart([roc_curve(one, one.name, k) for k, one in enumerate(examples)]),
            _precision(examples),
            _over_time(seen, examples),
            _calibration(seen),
        ),
        name="quality",
    )


def roc_curve(examples: ScoredExamples, name: str, colour: int) -> Curve:
    """Return the ROC curve, with its area in its name."""
    area = roc_auc(examples.label, examples.score)
    return Curve(f"{name}, AUC {area:.3f}", *roc(examples), colour)


def roc_chart(drawn: Sequence[Curve]) -> Html:
    """Return a chart of ROC curves."""
    return chart(
        _titled("ROC", drawn),
        "Good: the curve hugs the upper left corner. The diagonal is guessing.",
        linear("false positive rate", [], low=0, high=1, words=percent),
        linear("true positive rate (recall)", [], low=0, high=1, words=percent),
        drawn,
        rules=[Rule("guessing")],
        kind="roc",
    )


def _precision(examples: Sequence[ScoredExamples]) -> Html:
    found = [precision_recall(one) for one in examples]
    drawn = [
        Curve(f"{one.name}, AP {average_precision(one.label, one.score):.3f}", *points, k)
        for k, (one, points) in enumerate(zip(examples, found, strict=True))
    ]
    base = float(np.mean(examples[0].label))
    # The precision of rare classes is low: the scale follows it, except for the first few hits.
    high = _top(max(float(y[x >= _FIRST_HITS].max()) for x, y in found))
    return chart(
        _titled("Precision and recall", drawn),
        "Good: precision stays high until nearly all positives are found.",
        linear("recall", [], low=0, high=1, words=percent),
        linear("precision", [], low=0, high=high, words=percent),
        drawn,
        rules=[Rule(f"guessing, {percent(round(base, 4))}", y=base)],
        kind="precision",
    )


def _top(share: float) -> float:
    """Return where an axis of shares ends: at 1 unless all of them are small."""
    return 1.0 if share > _SMALL else linear("", [0, share], low=0).high


def _titled(title: str, drawn: Sequence[Curve]) -> str:
    """Return the title, with the name of the curve if there is only one and so no legend."""
    return f"{title}: {drawn[0].name}" if len(drawn) == 1 else title


def measure_over_time(seen: Observations) -> tuple[str, Callable[..., float], int]:
    """Return the measure shown over time: its name, the function, and the examples it needs.

    The number is that of examples of the rarer class in an interval.
    """
    if seen.about["task"] == "link":
        return "average precision", average_precision, 1
    if len(seen.arrays["score.classes"]) > 2:
        return "AP, classes pooled", average_precision, 1
    return "AUC", roc_auc, 5


def _over_time(seen: Observations, examples: Sequence[ScoredExamples]) -> Html | None:
    name, measure, least = measure_over_time(seen)
    drawn, rows, time = [], [], seen.about["time"]
    for k, one in enumerate(examples):
        when, value, count = over_time(one, measure, least=least)
        if not np.isfinite(value).any():
            continue
        drawn.append(Curve(one.name, when, value, k, dots=True))
        rows += [
            [moment(t, time["unit"]), one.name, f"{v:.4f}" if np.isfinite(v) else ABSENT, f"{n:,}"]
            for t, v, n in zip(when.tolist(), value.tolist(), count.tolist(), strict=True)
        ]
    return time_chart(
        _titled("Quality over time", drawn),
        "Good: level. If it falls, the data has changed since training: train again.",
        name,
        drawn,
        time,
        numbers=(["when", "what", name, "examples"], rows),
    )


def time_chart(
    title: str,
    aid: str,
    measure: str,
    drawn: Sequence[Curve],
    time: Mapping[str, Any],
    *,
    numbers: tuple[list[str], list[list[str]]] | None = None,
) -> Html | None:
    """Return a chart of a measure over the test period, or None without curves."""
    if not drawn:
        return None
    times, values = _all_points(drawn)
    x = time_axis(times.min(), times.max(), time["unit"], origin=time["first"])
    y = linear(measure, values, high=1.0)
    return chart(title, aid, x, y, drawn, numbers=numbers, kind="over-time")


def _calibration(seen: Observations) -> Html | None:
    found = calibration(seen)
    if found is None:
        return None
    top = _top(float(max(found.predicted.max(), found.observed.max())))
    mixture = ""
    if seen.about["task"] == "link":
        trained = seen.about["training_negatives"]
        mixture = f" True and false pairs are mixed as in training: {trained}."
    share = found.weight / found.weight.sum()
    rows = [
        [percent(round(value, 4)) for value in row]
        for row in np.stack([found.predicted, found.observed, share], axis=1).tolist()
    ]
    return chart(
        f"Calibration: off by {100 * found.error:.2g} points on average",
        "Good: on the diagonal, where a prediction of 70% comes true 7 times in 10. Above it the"
        f" model is too cautious, below it too confident.{mixture}",
        linear("predicted probability", [], low=0, high=top, words=percent),
        linear("observed frequency", [], low=0, high=top, words=percent),
        [Curve("", found.predicted, found.observed, 0, dots=True)],
        rules=[Rule("")],
        numbers=(["predicted", "observed", "share of examples"], rows),
        kind="calibration",
    )


# From scores to curves ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScoredExamples:
    """Examples of the classes 0 and 1 with their scores and times."""

    name: str
    label: IntArray
    score: FloatArray
    t: IntArray

    @property
    def has_both(self) -> bool:
        """Whether both classes occur."""
        return 0 < int(self.label.sum()) < len(self.label)


def scored(observations: Observations) -> list[ScoredExamples]:
    """Return the examples of a run: one list per sampler, or each class against the others."""
    about, arrays = observations.about, observations.arrays
    t = arrays["score.t"]
    if about["task"] == "link":
        true, found = arrays["score.true"], []
        for sampler in ("random-dst", "historical"):
            if (false := arrays.get(f"score.{sampler}")) is not None:
                label = np.repeat([1, 0], [len(true), len(false)])
                score = np.concatenate([true, false]).astype(np.float64)
                found.append(ScoredExamples(against(sampler), label, score, np.tile(t, 2)))
        return found
    classes, label = arrays["score.classes"], arrays["score.label"]
    probability = arrays["score.probability"].astype(np.float64)
    if len(classes) == 2:
        is_second = (label == classes[1]).astype(np.int64)
        _, name = about.get("class_names") or classes
        return [ScoredExamples(f"class {name}", is_second, probability[:, 1], t)]
    pooled = (label[:, None] == classes[None, :]).astype(np.int64)
    times = np.repeat(t, len(classes))
    name = "each class against the others"
    return [ScoredExamples(name, pooled.ravel(), probability.ravel(), times)]


def roc(examples: ScoredExamples) -> tuple[FloatArray, FloatArray]:
    """Return the shares of zeros and of ones at or above every threshold, from (0, 0) to (1, 1)."""
    from sklearn.metrics import roc_curve

    zeros, ones, _ = roc_curve(examples.label, examples.score, drop_intermediate=False)
    return zeros, ones


def precision_recall(examples: ScoredExamples) -> tuple[FloatArray, FloatArray]:
    """Return the share of ones found (recall) and the precision at every threshold."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(examples.label, examples.score)
    # The highest threshold first, without the point (0, 1) that scikit-learn adds.
    return recall[-2::-1], precision[-2::-1]


def over_time(
    examples: ScoredExamples, measure: Callable[[IntArray, FloatArray], float], *, least: int = 1
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return times, the measure and the number of examples, in intervals of equally many examples.

    An interval has `least` of the rarer class on average, and no value if it has only one class.
    The arrays are empty if there are too few examples for two intervals.
    """
    ones = int(examples.label.sum())
    rarer = min(ones, len(examples.label) - ones)
    intervals = min(_TIME_BINS, len(examples.t) // _PER_TIME_BIN, rarer // least)
    if intervals < 2:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
    order = np.argsort(examples.t, kind="stable")
    when, value, count = [], [], []
    for rows in np.array_split(order, intervals):
        label, score = examples.label[rows], examples.score[rows]
        when.append(int(np.median(examples.t[rows])))
        value.append(measure(label, score) if 0 < label.sum() < len(rows) else np.nan)
        count.append(len(rows))
    return np.array(when), np.array(value), np.array(count)


def calibration(observations: Observations) -> Calibration | None:
    """Return how often predictions of a probability came true, or None without examples.

    Links are weighted as in training, since probabilities refer to that mixture. Of several
    classes the most probable one counts.
    """
    about, arrays = observations.about, observations.arrays
    if about["task"] == "link":
        kinds = [(1, arrays["score.true"], 1.0)]
        for sampler, each in about["training_weights"].items():
            if each > 0 and f"score.{sampler}" in arrays:
                kinds.append((0, arrays[f"score.{sampler}"], each))
        label = np.concatenate([np.full(len(scores), truth) for truth, scores, _ in kinds])
        weight = np.concatenate([np.full(len(scores), each) for _, scores, each in kinds])
        logit = np.concatenate([scores for _, scores, _ in kinds]).astype(np.float64)
        predicted = 1 / (1 + np.exp(-np.clip(logit, -60, 60)))
    else:
        probability = arrays["score.probability"].astype(np.float64)
        classes, truth = arrays["score.classes"], arrays["score.label"]
        if len(classes) == 2:
            predicted, label = probability[:, 1], (truth == classes[1]).astype(np.int64)
        else:
            predicted = probability.max(axis=1)
            label = (classes[probability.argmax(axis=1)] == truth).astype(np.int64)
        weight = np.ones(len(predicted))
    if not len(predicted):
        return None
    found = calibration_of(
        label,
        predicted,
        weights=weight,
        by_rank=bool(np.average(label, weights=weight) < _RARE),
        least=_PER_CALIBRATION_BIN,
    )
    return found if len(found.weight) else None
