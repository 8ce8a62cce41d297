"""The result next to the heuristics', all numbers, all settings, and how to repeat the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegraph.core.words import counted
from tidegraph.evaluation import Verdict, knowledge_words
from tidegraph.events.moments import dates, span_in_words
from tidegraph.report.figures import legend, share_bar, strip
from tidegraph.report.markup import Html, card, details, element, figures, join, section, table
from tidegraph.report.run_files import FinishedRun
from tidegraph.report.sections.answers import ranked, unranked
from tidegraph.report.vocabulary import (
    ABSENT,
    against,
    condition,
    formula,
    heuristic,
    heuristic_words,
    meaning,
    metric_words,
    with_spread,
)

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
            f" The protocol is {protocol}." if protocol else None,
            _knowledge(run),
            _trained(results.get("seeds") or []),
            f" Of an event it reads {'; '.join(results['inputs'])}; all else was before it."
            if results.get("inputs")
            else None,
            id="asked",
        ),
    )


def _knowledge(run: FinishedRun) -> str | None:
    known = run.results.get("knowledge") if run.task == "link" else None
    return None if known is None else f" {knowledge_words(known)}"


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


def what_it_means(run: FinishedRun) -> Html:
    """Return every number with a sentence that says what it means, and the verdict."""
    measured = run.results["metrics"]
    values = [
        (metric, sampler, of["mean"], against(sampler))
        for sampler, parts in measured.items()
        for metric, of in sorted(parts.get("all", {}).items(), key=lambda one: one[0] != "auc")
        if of.get("mean") is not None
    ]
    if run.observations is not None and "all-dst" not in measured:
        values += [
            (metric, "all-dst", value, f"± {error:.3f} {what}")
            for metric, value, error, what in ranked(run.observations)
        ]
    items = [
        element(
            "li",
            element("strong", f"{value:.3f}"),
            element("p", words, element("small", f"{metric_words(metric)} {of}")),
        )
        for metric, sampler, value, of in values
        if (words := meaning(metric, sampler, value)) is not None
    ]
    return section(
        "What it means",
        element("ul", items, class_="meaning") if items else None,
        None if "all-dst" in measured or run.observations is None else unranked(run.observations),
        element("p", _summary(run.verdicts()), class_="verdict", id="verdict"),
        name="meaning",
    )


_PARTS = {
    "train": ("training", "the model learns from these"),
    "hidden": ("hidden", ""),
    "validation": ("validation", "decide when training stops"),
    "test": ("test", "every number of this page is about these"),
}


def split(run: FinishedRun) -> Html | None:
    """Return how the events were divided, so that they add up; None for splits of snapshots."""
    of_split = run.results.get("split") or {}
    sizes, total = of_split.get("sizes") or {}, (run.results.get("data") or {}).get("events")
    if not {"train", "validation", "test"} <= sizes.keys() or "snapshots" in sizes:
        return None
    sizes = dict(sizes)
    things = "events" if "new_test" in sizes else "labels"
    if things == "labels" or not isinstance(total, int):
        total = sum(sizes[part] for part in ("train", "validation", "test"))
    sizes["hidden"] = total - sum(sizes[part] for part in ("train", "validation", "test"))
    parts = [(part, *words) for part, words in _PARTS.items() if sizes[part] > 0]
    rows: list[list[Any]] = [
        [
            join(name, element("small", what or _hidden(run))),
            f"{sizes[part]:,}",
            f"{100 * sizes[part] / total:.1f}%",
        ]
        for part, name, what in parts
    ]
    rows.append([element("strong", f"all {things}"), f"{total:,}", "100%"])
    new = sizes.get("new_test")
    return section(
        f"How the {things} were divided",
        share_bar([(name, sizes[part] / total) for part, name, _ in parts]),
        legend([(name, k) for k, (_, name, _) in enumerate(parts)]),
        table(["", things, "share"], rows),
        element(
            "p",
            f"{new:,} of the {sizes['test']:,} test events touch a node that training never saw:"
            " one that was hidden, or that came later. Results call them new nodes.",
        )
        if new
        else None,
        name="split",
    )


def _hidden(run: FinishedRun) -> str:
    seen = run.observations
    nodes = None if seen is None else seen.about.get("hidden_nodes")
    which = "some nodes" if nodes is None else counted(nodes, "node")
    return (
        f"earlier events of {which} hidden from training, so that they are new later; their events"
        " of validation and test remain there"
    )


def headline(run: FinishedRun) -> Html:
    """Return the headline numbers next to the best heuristics, and all of these in a figure."""
    found = run.verdicts()
    main = [verdict for verdict in found if verdict.part == "all"] or found
    notes = [
        (
            f"By {metric_words(one.metric)}, a heuristic is {one.outcome}: {_values(one)}.",
            "small note" + " even" * (colour(one) == "soft"),
        )
        for one in run.verdicts(headline=False)
    ]
    notes += [(f"Note: {text}", "small note") for text in run.results.get("warnings") or []]
    return section(
        "Compared with heuristics",
        element("div", [_card(verdict) for verdict in main], class_="cards"),
        [element("p", note, class_=kind) for note, kind in notes],
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
        " not learn. Good: far to the right of every ring. New nodes are those unseen in training;"
        " first meetings join nodes that never met before, and compete with others that never did.",
        metric,
        [
            (condition(one), {"this model": (one.mean, one.spread or 0.0)}, named(one.heuristics))
            for one in found
        ],
    )
    return figures(figure)


def named(heuristics: dict[str, float]) -> dict[str, float]:
    """Return values of heuristics by the names that the report gives them."""
    return {heuristic_words(name): value for name, value in heuristics.items()}


def colour(verdict: Verdict) -> str:
    """Return the class of a verdict's colour, which follows the weight of the evidence."""
    return {"ahead": "bad", "": "good"}.get(verdict.outcome, "soft")


def _card(verdict: Verdict) -> Html:
    spread = "" if verdict.spread is None else f" ± {verdict.spread:.3f}"
    best, kind = None, colour(verdict)
    if verdict.best is not None:
        points = f"({100 * verdict.lead:+.1f} points{', within chance' * (kind == 'soft')})"
        rule, value = heuristic(verdict.best[0]), f" {verdict.best[1]:.3f} "
        best = element("p", "best heuristic: ", rule, value, element("span", points, class_=kind))
    return card(
        f"{metric_words(verdict.metric)} {condition(verdict)}",
        element("p", f"{verdict.mean:.3f}", element("small", spread), class_="value"),
        best,
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
    ahead = any(one.outcome == "ahead" for one in lost)
    outcome = "ahead" if ahead else lost[0].outcome
    rest = len(compared) - len(lost)
    others = "comparison" if rest == 1 else f"{rest} comparisons"
    return join(
        element("strong", f"A heuristic is {outcome}: ", class_="bad" if ahead else "soft"),
        f"{values}.",
        f" In the other {others} the model is ahead." if rest else None,
    )


def _values(verdict: Verdict, metric: str = "") -> str:
    """Return what the best heuristic and the model reach."""
    name, value = verdict.best or ("", 0.0)
    own = with_spread(verdict.mean, verdict.spread)
    reached = f"{metric} {value:.4f}".lstrip()
    return f"{condition(verdict)}, “{heuristic_words(name)}” reaches {reached} and the model {own}"


_EVENTS = {
    "new": "events with a node unseen in training",
    "first": "first meetings: pairs that never met before, against others that never did",
}


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
            if any("error" in one for one in known.values()):
                cells = [f"{one['error']:.4f}" if "error" in one else "" for one in known.values()]
                rows.append(["its standard error over events", *cells])
            for name, found in run.heuristics.items():
                of = found.get(sampler, {}).get(part, {})
                cells = [ABSENT if of.get(one) is None else f"{of[one]:.4f}" for one in known]
                rows.append([heuristic(name), *cells])
            judged = (run.results.get("examples") or {}).get(sampler, {}).get(part)
            count = "" if judged is None else f", {judged:,} of them"
            where = f" ({_EVENTS[part]}{count})" if part in _EVENTS else ""
            numbers = table(["", *map(metric_words, known)], rows)
            blocks.append(details(f"{against(sampler)}{where}".capitalize(), numbers))
    return section("All numbers", *blocks, _heuristics(run), name="numbers")


def _heuristics(run: FinishedRun) -> Html | None:
    """Return what the heuristics compute."""
    plain = [name for name in run.heuristics if formula(name) and "@" not in name]
    if not plain:
        return None
    rows = [[join(heuristic_words(name), element("small", name)), formula(name)] for name in plain]
    return details(
        "What the heuristics compute",
        table(["heuristic", "its score of u → v, or of a class"], rows, numbers=2),
        element(
            "p",
            "They know what the model knows, and within s memories fade. Those marked “as"
            " published” (@published in files) know the batches of 200 before, and are compared"
            " with nothing here.",
            class_="small soft",
        ),
    )


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
