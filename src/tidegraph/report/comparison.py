"""Several runs beside each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidegraph.report import curves
from tidegraph.report.figures import COLOURS, Axis, Curve, Rule, chart, linear, strip, time_axis
from tidegraph.report.markup import Html, document, element, table
from tidegraph.report.page import measure_over_time, percent
from tidegraph.report.results import METRIC_WORDS, Finding, Run, flat

__all__ = ["comparison"]

_ABSENT = "–"


def comparison(runs: Sequence[Run]) -> str:
    """The whole page as HTML. Runs whose names are alike are told apart by a number."""
    names = _distinct([run.name for run in runs])
    parts = [
        element("h1", f"{len(runs)} runs compared"),
        [element("p", note, class_="note") for note in _warnings(runs)],
        _headlines(runs, names),
        _differing(runs, names),
        _curves(runs, names),
    ]
    return document("Runs compared · tidegraph", *parts)


def _distinct(names: list[str]) -> list[str]:
    return [
        name if names.count(name) == 1 else f"{name} ({names[: k + 1].count(name)})"
        for k, name in enumerate(names)
    ]


def _digest(run: Run) -> Any:
    data = run.results.get("data") or {}
    return data.get("hash") or data.get("digest")


def _warnings(runs: Sequence[Run]) -> list[str]:
    """What makes numbers incomparable."""
    found = []
    data = {_digest(run) for run in runs}
    if len(data) > 1:
        found.append("The runs are on different data: their numbers cannot be compared.")
    protocols = {str(run.results.get("protocol")) for run in runs}
    if len(protocols) > 1:
        found.append(
            f"The runs were judged by different protocols ({', '.join(sorted(protocols))}): their"
            " numbers cannot be compared."
        )
    return found


def _headlines(runs: Sequence[Run], names: Sequence[str]) -> Html:
    findings = [
        {(one.sampler, one.part, one.metric): one for one in run.findings()} for run in runs
    ]
    keys = list(dict.fromkeys(key for found in findings for key in found))
    head = ["", *names, "best heuristic"]
    rows: list[list[Any]] = []
    strips = []
    for key in keys:
        having = [found[key] for found in findings if key in found]
        best = max(one.mean for one in having)
        cells = [_cell(found.get(key), best) for found in findings]
        rival = max(
            (one.best for one in having if one.best), key=lambda item: item[1], default=None
        )
        metric = METRIC_WORDS.get(key[2], key[2])
        rows.append(
            [
                f"{metric} {having[0].words}",
                *cells,
                _ABSENT if rival is None else f"{rival[1]:.4f} ({rival[0]})",
            ]
        )
        own = {
            name: (found[key].mean, found[key].spread)
            for name, found in zip(names, findings, strict=True)
            if key in found
        }
        if len(own) == len(runs):
            strips.append((f"{metric} {having[0].words}", own, having[0].heuristics))
    figure = None
    if strips:
        metrics = dict.fromkeys(METRIC_WORDS.get(key[2], key[2]) for key in keys)
        figure = element(
            "div",
            strip(
                "The runs, and what no learning achieves",
                "Filled marks are runs, with their spread over seeds; rings are heuristics of the"
                " first run.",
                " or ".join(metrics),
                strips,
                kind="headline",
            ),
            class_="figures",
        )
    return element(
        "section",
        element("h2", "Results"),
        element("p", "Mean over seeds ± standard deviation; the best of each line is bold."),
        table(head, rows),
        figure,
        id="headline",
    )


def _cell(finding: Finding | None, best: float) -> Any:
    if finding is None:
        return _ABSENT
    return element("strong", finding.value) if finding.mean == best else finding.value


def _differing(runs: Sequence[Run], names: Sequence[str]) -> Html:
    every = [_all_settings(run) for run in runs]
    keys = [
        key
        for key in dict.fromkeys(key for settings in every for key in settings)
        if len({json.dumps(settings.get(key), default=str) for settings in every}) > 1
    ]
    content: Html = element("p", "All settings are the same.")
    if keys:
        content = table(
            ["setting", *names],
            [[key, *(_written(settings, key) for settings in every)] for key in keys],
        )
    return element("section", element("h2", "Settings that differ"), content, id="settings")


def _all_settings(run: Run) -> dict[str, Any]:
    """What the run was told, and beside it the model's settings where they were observed."""
    seen = run.observations
    own = {} if seen is None else dict(seen.about["settings"])
    for name in ("path", "seed"):  # where the first model lay, and one of several
        own.pop(name, None)
    return {**flat({"model": own}), **run.settings, "version": run.results.get("version")}


def _written(settings: dict[str, Any], key: str) -> str:
    value = settings.get(key)
    return _ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)


def _curves(runs: Sequence[Run], names: Sequence[str]) -> Html | None:
    seen = [
        (name, run.observations, k % (COLOURS - 1))
        for k, (name, run) in enumerate(zip(names, runs, strict=True))
        if run.observations is not None
    ]
    if not seen:
        return None
    figures = [_validation(seen), _roc(seen), _over_time(seen)]
    return element(
        "section",
        element("h2", "Curves"),
        element("p", "From the model of each run's first seed."),
        element("div", figures, class_="figures"),
        id="curves",
    )


def _validation(seen: list[Any]) -> Html | None:
    drawn = [
        Curve(
            name,
            [epoch["epoch"] for epoch in one.about["history"]],
            [-epoch["validation"] for epoch in one.about["history"]],
            colour,
            dots=True,
        )
        for name, one, colour in seen
        if one.about["history"]
    ]
    if not drawn:
        return None
    epochs = [number for curve in drawn for number in np.asarray(curve.x).tolist()]
    losses = [value for curve in drawn for value in np.asarray(curve.y).tolist()]
    x = linear("epoch", epochs, low=min(epochs), high=max(epochs))
    whole = tuple((tick, text) for tick, text in x.ticks if tick == round(tick))
    return chart(
        "Validation loss by epoch",
        "Good: low and flat at the end. Losses compare only where negatives are alike.",
        Axis(x.label, x.low, x.high, whole),
        linear("loss (cross-entropy)", losses),
        drawn,
        kind="training",
    )


def _roc(seen: list[Any]) -> Html | None:
    drawn = []
    for name, one, colour in seen:
        for asked in curves.judged(one)[:1]:
            if 0 < asked.label.sum() < len(asked.label):
                area = curves.roc_area(asked.label, asked.score)
                points = curves.roc(asked.label, asked.score)
                drawn.append(Curve(f"{name}, AUC {area:.3f}", *points, colour))
    if not drawn:
        return None
    return chart(
        "ROC",
        "Good: the curve hugs the upper left corner. Links are told from random destinations.",
        linear("share of false ones accepted", [], low=0, high=1, words=percent),
        linear("share of true ones found", [], low=0, high=1, words=percent),
        drawn,
        rules=[Rule("guessing")],
        kind="roc",
    )


def _over_time(seen: list[Any]) -> Html | None:
    drawn, names, units, begins = [], set(), set(), []
    for name, one, colour in seen:
        classes = one.arrays.get("score.classes")
        word, measure, least = measure_over_time(
            one.about["task"], classes is not None and len(classes) > 2
        )
        for asked in curves.judged(one)[:1]:
            when, value, _ = curves.over_time(asked, measure, least=least)
            if np.isfinite(value).any():
                drawn.append(Curve(name, when, value, colour, dots=True))
                names.add(word)
                units.add(one.about["time"]["unit"])
                begins.append(one.about["time"]["first"])
    if not drawn or len(names) > 1 or len(units) > 1:  # they share no axis
        return None
    times = np.concatenate([np.asarray(curve.x) for curve in drawn])
    values = np.concatenate([np.asarray(curve.y) for curve in drawn])
    return chart(
        "Quality over time",
        "Good: high and level over the test period.",
        time_axis(times.min(), times.max(), units.pop(), origin=min(begins)),
        linear(names.pop(), values, high=1.0),
        drawn,
        kind="over-time",
    )
