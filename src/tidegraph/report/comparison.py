"""Several runs on one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidegraph.core.palette import SERIES
from tidegraph.evaluation import Verdict, leader
from tidegraph.report.figures import Curve, strip
from tidegraph.report.markup import Html, document, element, figures, join, section, table
from tidegraph.report.observations import Observations
from tidegraph.report.run_files import FinishedRun, flat
from tidegraph.report.sections import quality
from tidegraph.report.sections.results import named
from tidegraph.report.vocabulary import ABSENT, condition, heuristic, metric_words, with_spread

_Seen = Sequence[tuple[str, Observations, int]]  # name and colour of each run observed


def comparison(runs: Sequence[FinishedRun]) -> str:
    """Return the whole page as HTML. Runs of the same name are numbered."""
    names = _distinct([run.name for run in runs])
    return document(
        "Runs compared · tidegraph",
        element("h1", f"{len(runs)} runs compared"),
        [element("p", warning, class_="note") for warning in _warnings(runs)],
        _headlines(runs, names),
        _differing(runs, names),
        _curves(runs, names),
    )


def _distinct(names: list[str]) -> list[str]:
    return [
        name if names.count(name) == 1 else f"{name} ({names[: k + 1].count(name)})"
        for k, name in enumerate(names)
    ]


def _warnings(runs: Sequence[FinishedRun]) -> list[str]:
    """Return what makes numbers incomparable."""
    reasons = []
    if len({run.digest for run in runs}) > 1:
        reasons.append("are on different data")
    for key, what in (("protocol", "protocols"), ("knowledge", "knowledge")):
        found = {str(run.results.get(key)) for run in runs}
        if len(found) > 1:
            reasons.append(f"have different {what} ({', '.join(sorted(found))})")
    return [f"The runs {reason}: their numbers cannot be compared." for reason in reasons]


def _headlines(runs: Sequence[FinishedRun], names: Sequence[str]) -> Html:
    found = [{(one.sampler, one.part, one.metric): one for one in run.verdicts()} for run in runs]
    rows: list[list[Any]] = []
    strips = []
    for key in dict.fromkeys(key for of_run in found for key in of_run):
        own = {
            name: of_run[key] for name, of_run in zip(names, found, strict=True) if key in of_run
        }
        first = next(iter(own.values()))
        ahead = leader(own)
        bests = [one.best for one in own.values() if one.best is not None]
        best = max(bests, key=lambda item: item[1], default=None)
        title = f"{metric_words(first.metric)} {condition(first)}"
        cells = [_cell(own.get(name), bold=name == ahead) for name in names]
        rule = (
            ABSENT if best is None else join(f"{best[1]:.4f}", element("small", heuristic(best[0])))
        )
        rows.append([title, *cells, rule])
        if len(own) == len(runs):
            marks = {name: (one.mean, one.spread or 0.0) for name, one in own.items()}
            strips.append((title, marks, named(first.heuristics)))
    metrics = dict.fromkeys(metric_words(metric) for of_run in found for _, _, metric in of_run)
    figure = strip(
        "The runs and the heuristics",
        "Filled marks are runs, with their spread over seeds; rings are heuristics of the first"
        " run, which do not learn.",
        " or ".join(metrics),
        strips,
    )
    return section(
        "Results",
        element(
            "p",
            "Mean over seeds ± standard deviation; bold is ahead of all others by more than"
            " seeds and the choice of test events explain.",
        ),
        table(["", *names, "best heuristic"], rows),
        figures(figure) if strips else None,
        name="headline",
    )


def _cell(verdict: Verdict | None, *, bold: bool) -> Any:
    if verdict is None:
        return ABSENT
    value = with_spread(verdict.mean, verdict.spread)
    return element("strong", value) if bold else value


def _differing(runs: Sequence[FinishedRun], names: Sequence[str]) -> Html:
    every = [_all_settings(run) for run in runs]
    keys = [
        key
        for key in dict.fromkeys(key for settings in every for key in settings)
        if len({json.dumps(settings.get(key), default=str) for settings in every}) > 1
    ]
    rows = [[key, *(_written(settings.get(key)) for settings in every)] for key in keys]
    same = element("p", "All settings are the same.")
    content = table(["setting", *names], rows) if keys else same
    return section("Settings that differ", content, name="settings")


def _all_settings(run: FinishedRun) -> dict[str, Any]:
    """Return the run's settings, and the model's if they were observed."""
    own = {} if run.observations is None else run.observations.settings
    return {**flat({"model": own}), **run.settings, "version": run.results.get("version")}


def _written(value: Any) -> str:
    return ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)


def _curves(runs: Sequence[FinishedRun], names: Sequence[str]) -> Html | None:
    seen = [
        (name, run.observations, k % SERIES)
        for k, (name, run) in enumerate(zip(names, runs, strict=True))
        if run.observations is not None
    ]
    if not seen:
        return None
    return section(
        "Curves",
        element("p", "From the model of each run's first seed; links against random destinations."),
        figures(_validation(seen), _roc(seen), _over_time(seen)),
        name="curves",
    )


def _validation(seen: _Seen) -> Html | None:
    drawn = [
        quality.validation_curve(one, name, colour)
        for name, one, colour in seen
        if one.about["history"]
    ]
    aid = (
        "Good: low and flat at the end. Losses compare only if the training negatives are the same."
    )
    return quality.loss_chart("Validation loss by epoch", aid, drawn) if drawn else None


def _roc(seen: _Seen) -> Html | None:
    drawn = [
        quality.roc_curve(examples, name, colour)
        for name, one, colour in seen
        for examples in quality.scored(one)[:1]
        if examples.has_both
    ]
    return quality.roc_chart(drawn) if drawn else None


def _over_time(seen: _Seen) -> Html | None:
    drawn, measures, times = [], set(), []
    for name, one, colour in seen:
        measured, measure, least = quality.measure_over_time(one)
        for examples in quality.scored(one)[:1]:
            when, value, _ = quality.over_time(examples, measure, least=least)
            if np.isfinite(value).any():
                drawn.append(Curve(name, when, value, colour, dots=True))
                measures.add(measured)
                times.append(one.about["time"])
    if not drawn or len(measures) > 1 or len({time["unit"] for time in times}) > 1:
        return None  # there is no common axis
    earliest = min(times, key=lambda time: time["first"])
    aid = "Good: high and level over the test period."
    return quality.time_chart("Quality over time", aid, measures.pop(), drawn, earliest)
