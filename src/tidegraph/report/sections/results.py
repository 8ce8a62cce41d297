"""The result next to the heuristics', all numbers, all settings, and how to repeat the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegraph.evaluation import Verdict
from tidegraph.events.moments import dates, span_in_words
from tidegraph.report.figures import strip
from tidegraph.report.markup import Html, details, element, figures, join, section, table
from tidegraph.report.run_files import FinishedRun
from tidegraph.report.vocabulary import ABSENT, against, condition, metric_words, with_spread

_QUESTIONS = {
    "link": "Which links come next?",
    "node": "Which class does each node have at a given time?",
    "events": "Which class does each event have?",
}


def opening(run: FinishedRun) -> Html:
    """Return the title, the question, and how the answers are evaluated."""
    results = run.results
    data = results.get("data") or {}
    what = _QUESTIONS[run.task]
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
            f" Of an event it reads {'; '.join(results['inputs'])}; all else was before it."
            if results.get("inputs")
            else None,
            id="asked",
        ),
    )


def _trained(seeds: Sequence[int]) -> str | None:
    if len(seeds) == 1:
        return f" One model was trained, with seed {seeds[0]}."
    listed = ", ".join(map(str, seeds))
    return f" {len(seeds)} models were trained, with seeds {listed}." if seeds else None


def _span(time: dict[str, Any]) -> str:
    """Return how long the stream is, and its dates if its times are dates."""
    length = span_in_words(time["last"] - time["first"], time["unit"])
    begin, end = dates(time["first"], time["last"], time["unit"])
    return f" over {length}" + (f", {begin[:10]} to {end[:10]}" if begin and end else "")


def _sizes(results: dict[str, Any]) -> str:
    sizes = (results.get("split") or {}).get("sizes") or {}
    words = {"train": "for training", "validation": "for validation", "test": "for the test"}
    parts = [f"{sizes[k]:,} {words[k]}" for k in words if isinstance(sizes.get(k), int)]
    order = "" if results.get("protocol") == "nodes at random" else ", in order of time"
    return f" ({', '.join(parts)}{order})" if parts else ""


def headline(run: FinishedRun) -> Html:
    """Return the headline numbers, the verdict in a sentence, and all heuristics in a figure."""
    found = run.verdicts()
    main = [verdict for verdict in found if verdict.part == "all"] or found
    notes = [
        f"By {metric_words(one.metric)}, a heuristic is {one.outcome}: {_values(one)}."
        for one in run.verdicts(headline=False)
    ]
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
    figure = strip(
        f"{metric} of the model and the heuristics",
        "The filled mark is this model, with its spread over seeds; rings are heuristics, which do"
        " not learn. Good: far to the right of every ring. New nodes are those unseen in training.",
        metric,
        [
            (condition(one), {"this model": (one.mean, one.spread or 0.0)}, one.heuristics)
            for one in found
        ],
    )
    return figures(figure)


def _card(verdict: Verdict) -> Html:
    spread = "" if verdict.spread is None else f" ± {verdict.spread:.3f}"
    best = None
    if verdict.best is not None:
        kind = "bad" if verdict.outcome else "good"
        lead = element("span", f"({100 * verdict.lead:+.1f} points)", class_=kind)
        best = element("p", "best heuristic: {} {:.3f} ".format(*verdict.best), lead)
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
    named = lost or [min(compared, key=lambda verdict: verdict.lead)]
    values = "; ".join(_values(one, metric_words(one.metric)) for one in named)
    if not lost:
        return join(f"The model is ahead of every heuristic. The closest comparison: {values}.")
    outcome = next((one.outcome for one in lost if one.outcome == "ahead"), lost[0].outcome)
    rest = len(compared) - len(lost)
    others = "comparison" if rest == 1 else f"{rest} comparisons"
    return join(
        element("strong", f"A heuristic is {outcome}: ", class_="bad"),
        f"{values}.",
        f" In the other {others} the model is ahead." if rest else None,
    )


def _values(verdict: Verdict, metric: str = "") -> str:
    """Return what the best heuristic and the model reach."""
    name, value = verdict.best or ("", 0.0)
    own = with_spread(verdict.mean, verdict.spread)
    reached = f"{metric} {value:.4f}".lstrip()
    return f"{condition(verdict)}, {name} reaches {reached} and the model {own}"


def all_numbers(run: FinishedRun) -> Html:
    """Return every metric of every scorer."""
    blocks = []
    for sampler, parts in run.results["metrics"].items():
        for part, values in parts.items():
            known = {name: one for name, one in values.items() if one.get("mean") is not None}
            own = [
                with_spread(one["mean"], one["std"] if len(one["per_seed"]) > 1 else None)
                for one in known.values()
            ]
            rows: list[list[Any]] = [[element("strong", "this model"), *own]]
            for heuristic, found in run.heuristics.items():
                of = found.get(sampler, {}).get(part, {})
                cells = [ABSENT if of.get(name) is None else f"{of[name]:.4f}" for name in known]
                rows.append([heuristic, *cells])
            where = " (events with a node unseen in training)" if part == "new" else ""
            numbers = table(["", *map(metric_words, known)], rows)
            blocks.append(details(f"{against(sampler)}{where}".capitalize(), numbers))
    per_event = any("@" in name for name in run.heuristics)
    note = element(
        "p",
        "Heuristics whose names end in @event know all events before the one they score, as the"
        " model does; the others learn of events batch by batch, as published.",
    )
    return section("All numbers", note if per_event else None, *blocks, name="numbers")


def parameters(run: FinishedRun) -> Html:
    """Return the settings, and which of them differ from their defaults."""
    seen = run.observations
    blocks: list[Html] = []
    if seen is not None:
        defaults = seen.about["defaults"]
        settings = seen.settings
        changed = [name for name, value in settings.items() if value != defaults.get(name)]
        rows = [
            [
                element("span", name, class_="changed") if name in changed else name,
                _written(value),
                _written(defaults.get(name)) if name in changed else "",
            ]
            for name, value in settings.items()
        ]
        words = "All settings of the model are the defaults."
        if changed:
            count = f"{len(changed)} of {len(settings)} settings of the model"
            words = f"{count} differ from their defaults ({', '.join(changed)})."
        every = table(["setting", "value", "default, if changed"], rows, numbers=3)
        blocks += [element("p", words), details("All settings of the model", every)]
    if run.config:
        blocks.append(details("config.toml of the run", element("pre", run.config)))
    if not blocks:
        plain = [[name, _written(value)] for name, value in run.settings.items()]
        blocks = [table(["setting", "value"], plain, numbers=2)]
    return section("Settings", *blocks, name="parameters")


def _written(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_written, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def repeat(run: FinishedRun) -> Html:
    """Return the command, the versions, the machine and the digest of the data."""
    results, seen = run.results, run.observations
    versions = dict(seen.about["versions"]) if seen is not None else {}
    if results.get("version"):
        versions["tidegraph"] = results["version"]
    seconds = {stage: f"{s:,.0f} s" for stage, s in (results.get("elapsed_s") or {}).items()}
    known = {
        "versions": _listed(versions),
        "machine": _listed(results.get("machine") or {}),
        "time taken": _listed(seconds),
        "digest of the data": run.digest,
        "run": run.name,
    }
    rows = [[name, value] for name, value in known.items() if value]
    command = results.get("command")
    return section(
        "How to repeat it",
        element("pre", element("code", command), id="command") if command else None,
        table(["", ""], rows, numbers=2),
        name="repeat",
    )


def _listed(named: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in named.items())
