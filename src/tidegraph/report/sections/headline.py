"""What was asked, and the result: the model's headline numbers next to the heuristics'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegraph.evaluation import Verdict
from tidegraph.events.moments import dates, span_in_words
from tidegraph.report.figures import strip
from tidegraph.report.markup import Html, element, figures, join, section
from tidegraph.report.run_files import FinishedRun
from tidegraph.report.vocabulary import condition, metric_words, with_spread

__all__ = ["headline", "opening"]


def opening(run: FinishedRun) -> Html:
    """Return the title, the question, and how the answers are evaluated."""
    results = run.results
    data = results.get("data") or {}
    what = (
        "Which links come next?"
        if run.task == "link"
        else "Which class does each node have at a given time?"
    )
    size = " and ".join(
        f"{data[name]:,} {name}" for name in ("events", "nodes") if isinstance(data.get(name), int)
    )
    when = "" if run.observations is None else _span(run.observations.about["time"])
    protocol = results.get("protocol")
    return element(
        "header",
        element("h1", run.title),
        element(
            "p",
            element("strong", what),
            f" The data has {size}{when}." if size else None,
            f" The protocol is {protocol}{_sizes(results)}." if protocol else None,
            _trained(results.get("seeds") or []),
            id="asked",
        ),
    )


def _trained(seeds: Sequence[int]) -> str | None:
    if not seeds:
        return None
    if len(seeds) == 1:
        return f" One model was trained, with seed {seeds[0]}."
    return f" {len(seeds)} models were trained, with seeds {', '.join(map(str, seeds))}."


def _span(time: dict[str, Any]) -> str:
    """Return how long the stream is, and its dates if its times are dates."""
    length = span_in_words(time["last"] - time["first"], time["unit"])
    begin, end = dates(time["first"], time["last"], time["unit"])
    return f" over {length}" + (f", {begin[:10]} to {end[:10]}" if begin and end else "")


def _sizes(results: dict[str, Any]) -> str:
    sizes = (results.get("split") or {}).get("sizes") or {}
    parts = [
        f"{sizes[name]:,} {words}"
        for name, words in (
            ("train", "for training"),
            ("validation", "for validation"),
            ("test", "for the test"),
        )
        if isinstance(sizes.get(name), int)
    ]
    return f" ({', '.join(parts)}, in order of time)" if parts else ""


def headline(run: FinishedRun) -> Html:
    """Return the headline numbers, the verdict in a sentence, and all heuristics in a figure."""
    found = run.verdicts()
    main = [verdict for verdict in found if verdict.part == "all"] or found
    notes = [_by_other_metric(verdict) for verdict in run.verdicts(headline=False)]
    notes += [f"Note: {warning}" for warning in run.results.get("warnings") or []]
    return section(
        "The result",
        element("div", [_card(verdict) for verdict in main], class_="cards"),
        element("p", _summary(found), class_="verdict", id="verdict"),
        [element("p", note, class_="small note") for note in notes],
        _figure(found),
        name="headline",
    )


def _figure(found: Sequence[Verdict]) -> Html | None:
    if not found:
        return None
    metric = metric_words(found[0].metric)
    rows = [
        (condition(one), {"this model": (one.mean, one.spread or 0.0)}, one.heuristics)
        for one in found
    ]
    return figures(
        strip(
            f"{metric} of the model and the heuristics",
            "The filled mark is this model, with its spread over seeds; rings are heuristics,"
            " which do not learn. Good: far to the right of every ring. New nodes are those unseen"
            " in training.",
            metric,
            rows,
            kind="headline",
        )
    )


def _card(verdict: Verdict) -> Html:
    spread = "" if verdict.spread is None else f" ± {verdict.spread:.3f}"
    best = None
    if verdict.best is not None:
        name, value = verdict.best
        best = element(
            "p",
            f"best heuristic: {name} {value:.3f} ",
            element(
                "span",
                f"({100 * verdict.lead:+.1f} points)",
                class_="bad" if verdict.outcome else "good",
            ),
        )
    return element(
        "div",
        element("p", f"{metric_words(verdict.metric)} {condition(verdict)}", class_="soft"),
        element("p", f"{verdict.mean:.3f}", element("small", spread), class_="value"),
        best,
        class_="card",
    )


def _summary(found: Sequence[Verdict]) -> Html:
    """Return in plain words whether learning was worth it."""
    compared = [verdict for verdict in found if verdict.best is not None]
    if not compared:
        return join("No heuristic was evaluated, so it is unknown how hard the task is.")
    lost = [verdict for verdict in compared if verdict.outcome]
    if not lost:
        closest = min(compared, key=lambda verdict: verdict.lead)
        return join(
            "The model is ahead of every heuristic. The closest comparison: ",
            f"{_values(closest, metric_words(closest.metric))}.",
        )
    outcome = next((one.outcome for one in lost if one.outcome == "ahead"), lost[0].outcome)
    rest = len(compared) - len(lost)
    return join(
        element("strong", f"A heuristic is {outcome}: ", class_="bad"),
        "; ".join(_values(one, metric_words(one.metric)) for one in lost),
        ".",
        f" In the other {rest} comparisons the model is ahead." if rest > 1 else None,
        " In the other comparison the model is ahead." if rest == 1 else None,
    )


def _by_other_metric(verdict: Verdict) -> str:
    metric = metric_words(verdict.metric)
    return f"By {metric}, a heuristic is {verdict.outcome}: {_values(verdict)}."


def _values(verdict: Verdict, metric: str = "") -> str:
    """Return what the best heuristic and the model reach."""
    name, value = verdict.best or ("", 0.0)
    return (
        f"{condition(verdict)}, {name} reaches {metric}{' ' if metric else ''}{value:.4f} and the"
        f" model {with_spread(verdict.mean, verdict.spread)}"
    )
