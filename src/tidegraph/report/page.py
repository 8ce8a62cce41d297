"""The report of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidegraph.events.moments import dates, span_in_words
from tidegraph.report import curves
from tidegraph.report.figures import (
    COLOURS,
    Axis,
    Bars,
    Curve,
    Points,
    Rule,
    chart,
    compact,
    linear,
    logarithmic,
    strip,
    time_axis,
)
from tidegraph.report.markup import Html, details, document, element, join, table, unbroken
from tidegraph.report.observations import Observations
from tidegraph.report.results import METRIC_WORDS, Finding, Run, negatives_in_words

__all__ = ["measure_over_time", "page", "percent"]

_GREY = COLOURS - 1
_LABEL = "its latest label"  # as `observations` says by what it coloured
_FIRST_HITS = 0.05  # of recall, over which precision jumps about


def percent(value: float) -> str:
    """A share below an axis."""
    return f"{100 * value:.4g}%"


def page(run: Run) -> str:
    """The whole report as HTML."""
    seen = run.observations
    parts: list[Html | None] = [_opening(run), _headline(run)]
    if seen is None:
        parts.append(
            element(
                "p",
                "The run kept no observations, so there are no figures of how it came to these"
                " numbers.",
                class_="note",
            )
        )
    else:
        parts += [
            _learning(seen),
            _quality(seen),
            _engine(seen),
            _data(seen),
            _map(seen),
            _movers(seen),
        ]
    parts += [_numbers(run), _settings(run), _repeat(run)]
    return document(f"{run.title} · tidegraph", *parts)


def _section(title: str, *content: Any, name: str) -> Html:
    return element("section", element("h2", title), *content, id=name)


def _figures(*figures: Html | None) -> Html:
    return element("div", *figures, class_="figures")


# The beginning ------------------------------------------------------------------------------------


def _opening(run: Run) -> Html:
    """What was asked, of what, and how it is judged."""
    results = run.results
    data = results.get("data") or {}
    what = (
        "Which links come next?"
        if run.task == "link"
        else "What is each node, as of the time it is asked about?"
    )
    size = ", ".join(
        f"{data[name]:,} {name}" for name in ("events", "nodes") if isinstance(data.get(name), int)
    )
    when = "" if run.observations is None else _span(run.observations.about["time"])
    seeds = results.get("seeds") or []
    trained = ""
    if seeds:
        one = len(seeds) == 1
        trained = (
            f" One model was trained, with seed {seeds[0]}."
            if one
            else f" {len(seeds)} models were trained, with seeds {', '.join(map(str, seeds))}."
        )
    protocol = results.get("protocol")
    judged = f" It is judged by the protocol {protocol}{_sizes(results)}." if protocol else ""
    return element(
        "header",
        element("h1", run.title),
        element(
            "p",
            element("strong", what),
            f" Asked of {size}{when}." if size else None,
            judged,
            trained,
            id="asked",
        ),
    )


def _span(time: dict[str, Any]) -> str:
    """How long the stream is, and from when to when where its times are dates."""
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
    return f": {', '.join(parts)}, in the order of time" if parts else ""


def _headline(run: Run) -> Html:
    findings = run.findings()
    main = [finding for finding in findings if finding.part == "all"] or findings
    warnings = [
        # What the verdict says already is not repeated.
        str(note)
        for note in run.results.get("warnings") or []
        if not str(note).startswith("a heuristic ")
    ]
    rows = [
        (
            finding.words,
            {"this model": (finding.mean, finding.spread)},
            finding.heuristics,
        )
        for finding in findings
    ]
    metric = METRIC_WORDS.get(findings[0].metric, findings[0].metric) if findings else ""
    figure = (
        _figures(
            strip(
                f"{metric} beside what no learning achieves",
                "The filled mark is this model, with its spread over seeds; rings are heuristics."
                " Good is far to the right of every ring. New nodes are those unseen in training.",
                metric,
                rows,
                kind="headline",
            )
        )
        if findings
        else None
    )
    return _section(
        "The result",
        element("div", [_card(finding) for finding in main], class_="cards"),
        element("p", _verdict(findings), class_="verdict", id="verdict"),
        [element("p", aside, class_="small note") for aside in run.asides()],
        [element("p", f"Note: {note}", class_="small note") for note in warnings],
        figure,
        name="headline",
    )


def _card(finding: Finding) -> Html:
    metric = METRIC_WORDS.get(finding.metric, finding.metric)
    spread = f" ± {finding.spread:.3f}" if len(finding.per_seed) > 1 else ""
    best = finding.best
    rival = None
    if best is not None:
        points = 100 * (finding.mean - best[1])
        rival = element(
            "p",
            "best heuristic: ",
            f"{best[0]} {best[1]:.3f} ",
            element("span", f"({points:+.1f} points)", class_="bad" if finding.outcome else "good"),
        )
    return element(
        "div",
        element("p", f"{metric} {finding.words}", class_="soft"),
        element("p", f"{finding.mean:.3f}", element("small", spread), class_="value"),
        rival,
        class_="card",
    )


def _verdict(findings: Sequence[Finding]) -> Html:
    """In plain words whether learning was worth it."""
    rivalled = [finding for finding in findings if finding.best is not None]
    if not rivalled:
        return join("No heuristic was evaluated, so nothing says how hard the task is.")
    lost = [finding for finding in rivalled if finding.outcome]
    if not lost:
        closest = min(rivalled, key=_lead)
        name, value = closest.best or ("", 0.0)
        metric = METRIC_WORDS.get(closest.metric, closest.metric)
        return join(
            "The model is ahead of every heuristic. ",
            f"The closest of them, {name}, reaches {metric} {value:.4f} {closest.words}, the model"
            f" {closest.value}.",
        )
    told = [
        f"{finding.words} {(finding.best or ('', 0))[0]} reaches"
        f" {METRIC_WORDS.get(finding.metric, finding.metric)}"
        f" {(finding.best or ('', 0.0))[1]:.4f}, the model {finding.value}"
        for finding in lost
    ]
    outcome = next((one.outcome for one in lost if one.outcome == "ahead"), lost[0].outcome)
    rest = len(rivalled) - len(lost)
    return join(
        element("strong", f"A heuristic is {outcome}: ", class_="bad"),
        "; ".join(told),
        ".",
        f" In the other {rest} comparisons the model is ahead." if rest > 1 else None,
        " In the other comparison the model is ahead." if rest == 1 else None,
    )


def _lead(finding: Finding) -> float:
    return finding.mean - (finding.best[1] if finding.best else 0.0)


# Learning -----------------------------------------------------------------------------------------


def _learning(seen: Observations) -> Html | None:
    history = seen.about["history"]
    if not history:
        return None
    epoch = [entry["epoch"] for entry in history]
    loss = [entry["loss"] for entry in history]
    held_back = [-entry["validation"] for entry in history]  # scores are losses turned round
    best = int(np.argmin(held_back))
    x = linear("epoch", epoch, low=min(epoch), high=max(epoch), words=lambda k: f"{k:.0f}")
    whole = tuple((tick, text) for tick, text in x.ticks if tick == round(tick))
    x = Axis(x.label, x.low, x.high, whole)
    seconds = sum(entry["seconds"] for entry in history)
    rows = [
        [f"{number}", f"{a:.4f}", f"{b:.4f}", f"{entry['seconds']:.1f}"]
        for number, a, b, entry in zip(epoch, loss, held_back, history, strict=True)
    ]
    return _section(
        "How it learned",
        element(
            "p",
            f"{len(history)} epochs in {seconds:,.0f} s; the weights kept are those of epoch"
            f" {epoch[best]}, the best on validation events.",
        ),
        _figures(
            chart(
                "Loss by epoch",
                "Good: both fall and flatten. Validation that rises while training falls is"
                " learning by heart.",
                x,
                linear("loss (cross-entropy)", loss + held_back),
                [
                    Curve("training", epoch, loss, 0, dots=True),
                    Curve("validation", epoch, held_back, 1, dots=True),
                ],
                rules=[Rule("kept", x=epoch[best])] if len(epoch) > 1 else [],
                numbers=(["epoch", "training", "validation", "seconds"], rows),
                kind="training",
            )
        ),
        name="learning",
    )


# Quality ------------------------------------------------------------------------------------------


def measure_over_time(task: str, several_classes: bool) -> tuple[str, Any, int]:
    """What is shown over time: its name, the function, and how many of each kind it needs."""
    if task == "link":
        return "average precision", curves.average_precision, 1
    if several_classes:
        return "AP, classes pooled", curves.average_precision, 1
    return "AUC", curves.roc_area, 5


def _quality(seen: Observations) -> Html | None:
    asked = [one for one in curves.judged(seen) if 0 < one.label.sum() < len(one.label)]
    of = seen.about["examples_of"]
    shown = seen.about["examples"]
    part = seen.about["part"]
    kind = "events" if seen.about["task"] == "link" else "labels"
    sample = f"{of:,} {kind} of the {part} period" + (
        "" if shown == of else f", of which {shown:,} are shown, evenly over time"
    )
    if not asked:
        return _section(
            "How good the answers are",
            element("p", f"Only one answer occurs among the {sample}: there is nothing to draw."),
            name="quality",
        )
    first = ", against one false pair each" if kind == "events" else ""
    return _section(
        "How good the answers are",
        element(
            "p",
            f"From the first seed's model and the {sample}{first}. Areas (AUC, AP) are over all of"
            " them at once, where headline numbers may be means over batches.",
        ),
        _figures(_roc(asked), _precision(asked), _over_time(seen, asked), _calibration(seen)),
        name="quality",
    )


def _roc(asked: Sequence[curves.Judged]) -> Html:
    drawn = [
        Curve(
            f"{one.name}, AUC {curves.roc_area(one.label, one.score):.3f}",
            *curves.roc(one.label, one.score),
            k,
        )
        for k, one in enumerate(asked)
    ]
    return chart(
        _named("ROC", drawn),
        "Good: the curve hugs the upper left corner. The diagonal is guessing.",
        linear("share of false ones accepted", [], low=0, high=1, words=percent),
        linear("share of true ones found", [], low=0, high=1, words=percent),
        drawn,
        rules=[Rule("guessing")],
        kind="roc",
    )


def _precision(asked: Sequence[curves.Judged]) -> Html:
    found = [curves.precision_recall(one.label, one.score) for one in asked]
    drawn = [
        Curve(f"{one.name}, AP {curves.average_precision(one.label, one.score):.3f}", *points, k)
        for k, (one, points) in enumerate(zip(asked, found, strict=True))
    ]
    base = float(np.mean(asked[0].label))
    # Of what is rare few can be found surely: the scale follows, but not the first few hits.
    steady = [float(y[x >= _FIRST_HITS].max()) for x, y in found]
    high = 1.0 if max(steady) > 0.4 else linear("", [0, *steady], low=0).high
    return chart(
        _named("Precision and recall", drawn),
        "Good: precision stays high until nearly all true ones are found.",
        linear("share of true ones found (recall)", [], low=0, high=1, words=percent),
        linear(
            "share of true ones among accepted (precision)", [], low=0, high=high, words=percent
        ),
        drawn,
        rules=[Rule(f"guessing, {percent(round(base, 4))}", y=base)],
        kind="precision",
    )


def _named(title: str, drawn: Sequence[Curve]) -> str:
    """The title; one curve needs no legend, so its name goes here."""
    return f"{title}: {drawn[0].name}" if len(drawn) == 1 else title


def _over_time(seen: Observations, asked: Sequence[curves.Judged]) -> Html | None:
    classes = seen.arrays.get("score.classes")
    name, measure, least = measure_over_time(
        seen.about["task"], classes is not None and len(classes) > 2
    )
    drawn, values, rows, time = [], [], [], seen.about["time"]
    for k, one in enumerate(asked):
        when, value, count = curves.over_time(one, measure, least=least)
        if not np.isfinite(value).any():
            continue
        drawn.append(Curve(one.name, when, value, k, dots=True))
        values.append(value[np.isfinite(value)])
        rows += [
            [_moment(t, time["unit"]), one.name, f"{v:.4f}" if np.isfinite(v) else "–", f"{n:,}"]
            for t, v, n in zip(when.tolist(), value.tolist(), count.tolist(), strict=True)
        ]
    if not drawn:
        return None
    times = np.concatenate([np.asarray(curve.x) for curve in drawn])
    return chart(
        _named("Quality over time", drawn),
        "Good: level. A fall says that the world has moved on and a new training would pay.",
        time_axis(times.min(), times.max(), time["unit"], origin=time["first"]),
        linear(name, np.concatenate(values), high=1.0),
        drawn,
        numbers=(["when", "what", name, "questions"], rows),
        kind="over-time",
    )


def _calibration(seen: Observations) -> Html | None:
    said, came, weight = curves.calibrated(seen)
    if not len(said):
        return None
    error = float(np.average(np.abs(said - came), weights=weight))
    high = float(max(said.max(), came.max()))
    top = 1.0 if high > 0.4 else linear("", [0, high], low=0).high
    mixture = ""
    if seen.about["task"] == "link":
        trained = seen.about["training_negatives"]
        mixture = f" True and false pairs are mixed as in training: {trained}."
    rows = [
        [percent(round(a, 4)), percent(round(b, 4)), percent(round(w / weight.sum(), 4))]
        for a, b, w in zip(said.tolist(), came.tolist(), weight.tolist(), strict=True)
    ]
    return chart(
        f"Calibration: off by {100 * error:.2g} points on average",
        "Good: on the diagonal, where what is given 70 % happens 7 times in 10. Above it the"
        f" model is too careful, below too sure.{mixture}",
        linear("probability given", [], low=0, high=top, words=percent),
        linear("how often it came true", [], low=0, high=top, words=percent),
        [Curve("", said, came, 0, dots=True)],
        rules=[Rule("")],
        numbers=(["given", "came true", "share of questions"], rows),
        kind="calibration",
    )


def _moment(t: float, unit: str) -> str:
    """A time as a date where it is one."""
    date = dates(int(t), int(t), unit)[0]
    return date or (f"step {int(t):,}" if unit == "step" else f"{int(t):,} {unit}")


# The engine ---------------------------------------------------------------------------------------


def _engine(seen: Observations) -> Html:
    arrays, about = seen.arrays, seen.about
    t = arrays["replay.t"]
    events, seconds = arrays["replay.events"], arrays["replay.seconds"]
    certified = arrays["replay.certified"]
    x = _stream_axis(seen)
    rate = events / np.maximum(seconds, 1e-9)
    touched = arrays["replay.touched"] / np.maximum(arrays["replay.steps"], 1)
    total = float(events.sum() / max(seconds.sum(), 1e-9))
    rules = _divisions(seen)
    return _section(
        "How the representations were kept up to date",
        element(
            "p",
            f"The stream was replayed with the model's settings ({len(about['channels'])} channels,"
            f" r_max {about['r_max']:g} in units of {about['r_max_unit']}, {about['threads']}"
            f" threads): {compact(total)} events per second of engine time.",
        ),
        _figures(
            chart(
                "Certified error, in parts of the promised one",
                "Good: not above 1, but for what rounding adds, which it counts in; the largest"
                f" here is {certified.max():.3f}. The certificate is computed from estimates and"
                " graph alone.",
                x,
                linear("certified / promised error", [], low=0, high=max(1.2, certified.max())),
                [
                    Curve(name, t, certified[:, k], k % _GREY)
                    for k, name in enumerate(about["channels"])
                ],
                rules=[Rule("promised", y=1.0)],
                kind="certified",
            ),
            chart(
                "Speed",
                "Good: level while the graph grows. Dips are bursts that move many nodes, or"
                " another program on the machine.",
                x,
                linear("events per second", rate, low=0),
                [Curve("", t, rate, 0)],
                rules=rules,
                kind="speed",
            ),
            chart(
                "Nodes touched per step",
                "How far one step (the events of one time) reaches. Good: far below the number of"
                " nodes.",
                x,
                linear("nodes per step", touched, low=0),
                [Curve("", t, touched, 2)],
                rules=rules,
                kind="touched",
            ),
        ),
        name="engine",
    )


def _stream_axis(seen: Observations) -> Axis:
    time = seen.about["time"]
    return time_axis(time["first"], time["last"], time["unit"])


def _divisions(seen: Observations) -> list[Rule]:
    """Where the test begins."""
    begins = seen.about["time"]["test"]
    return [] if begins is None else [Rule("test begins", x=begins)]


# The data -----------------------------------------------------------------------------------------


def _data(seen: Observations) -> Html:
    about, arrays = seen.about, seen.arrays
    x = _stream_axis(seen)
    activity = np.array(about["activity"])
    bounds = np.linspace(x.low, x.high, len(activity) + 1)
    degrees = about["degrees"]
    low = np.array([row[0] for row in degrees])
    high = np.array([row[1] + 1 for row in degrees])
    count = np.array([row[2] for row in degrees])
    rules = _divisions(seen)
    return _section(
        "The data",
        _figures(
            chart(
                "Events over time",
                "The rhythm of the data. Gaps and steps here explain much of what happens in the"
                " other figures.",
                x,
                linear(f"events per {len(activity)}th of the time", activity, low=0),
                [
                    Bars(
                        "",
                        bounds[:-1],
                        bounds[1:],
                        activity,
                        [f"{value:,} events" for value in activity.tolist()],
                    )
                ],
                rules=rules,
                kind="activity",
            ),
            chart(
                "Nodes by number of events",
                "Both axes are logarithmic: a straight fall is a heavy tail, few nodes with most"
                " of the events.",
                logarithmic("events of a node", [*low, *high]),
                logarithmic("nodes", [*count, 1]),
                [
                    Bars(
                        "",
                        low,
                        high,
                        count,
                        [
                            f"{a:,} to {b - 1:,} events: {n:,} nodes"
                            for a, b, n in zip(
                                low.tolist(), high.tolist(), count.tolist(), strict=True
                            )
                        ],
                        2,
                    )
                ],
                numbers=(
                    ["events", "nodes"],
                    [[f"{a:,}" if a == b else f"{a:,} to {b:,}", f"{n:,}"] for a, b, n in degrees],
                ),
                kind="degrees",
            ),
            chart(
                "Events that repeat a pair",
                "Where nearly all events repeat, memory alone predicts well; where few do, there"
                " is something to learn.",
                x,
                linear("share of events", [], low=0, high=1, words=percent),
                [Curve("", arrays["repeat.t"], arrays["repeat.rate"], 3)],
                rules=rules,
                kind="repeats",
            ),
        ),
        details(
            "More about the data",
            table(["", ""], [list(fact) for fact in about["facts"]], numbers=2),
        ),
        name="data",
    )


def _map(seen: Observations) -> Html:
    about, place = seen.about["map"], seen.arrays["map.place"]
    group, events = seen.arrays["map.group"], seen.arrays["map.events"]
    names = about["groups"]
    words = [
        f"{name}: {count:,} events" for name, count in zip(about["names"], events, strict=True)
    ]
    drawn = []
    # The largest group first, so that the small ones lie on top of it.
    for k in np.argsort(-np.bincount(group, minlength=len(names)), kind="stable").tolist():
        rows = np.flatnonzero(group == k)
        if len(rows):
            grey = k == len(names) - 1 and about["by"] == _LABEL
            drawn.append(
                Points(
                    f"{names[k]} ({len(rows):,})",
                    place[rows, 0],
                    place[rows, 1],
                    [words[row] for row in rows.tolist()],
                    _GREY if grey else k % _GREY,
                )
            )
    part = "All" if about["active"] == len(place) else f"{len(place):,} of the"
    share = about["share"]
    tells = "; those close to each other keep similar company"
    if about["by"] == _LABEL:
        tells = ". Good: colours keep together, so that the place tells the label"
    return _section(
        "Where the nodes are",
        _figures(
            chart(
                "A map of the representations",
                f"{part} {about['active']:,} nodes with events, by what reached each from others"
                " until the end of the stream, in the two directions in which they differ most."
                f" Each is coloured by {about['by']}{tells}. The map shows"
                f" {percent(round(sum(share), 3))} of the differences and hides the rest.",
                linear(f"first direction ({percent(round(share[0], 4))})", place[:, 0]),
                linear(f"second direction ({percent(round(share[1], 4))})", place[:, 1]),
                drawn,
                kind="map",
            )
        ),
        name="map",
    )


# Movers -------------------------------------------------------------------------------------------


def _movers(seen: Observations) -> Html:
    told, unit = seen.about["movers"], seen.about["time"]["unit"]
    introduction = element(
        "p",
        f"Of {told['among']:,} nodes that had been seen before, those whose representation"
        f" ({seen.about['channels'][0]}) moved farthest in the last {told['events']:,} events,"
        f" from {_moment(told['begin'], unit)} to {_moment(told['end'] - 1, unit)}. Shares add up"
        " to the whole movement; negative ones pulled the other way.",
    )
    if not told["rows"]:
        introduction = element("p", f"In the last {told['events']:,} events no known node moved.")
    return _section(
        "What moved most, and why",
        introduction,
        element("div", [_mover(row, unit) for row in told["rows"]], class_="figures"),
        name="movers",
    )


def _mover(row: dict[str, Any], unit: str) -> Html:
    why = row["why"]
    relative = "" if row["relative"] is None else f", {row['relative']:.0%} of its length"
    events = f"{row['events']:,} event{'' if row['events'] == 1 else 's'} of its own"
    caption = element(
        "figcaption",
        element("h3", row["node"]),
        element("p", f"moved by {row['moved']:.3g}{relative}; {events}"),
    )
    if why is None:
        reason: Html = element(
            "p", "Not explained: it would have taken too long.", class_="small soft"
        )
        return element("figure", caption, reason, data_figure="mover")
    shares = [
        ("its own events", why["direct"]),
        ("events elsewhere", why["elsewhere"]),
        ("time passing", why["time_passing"]),
    ]
    size = sum(abs(share) for _, share in shares) or 1.0
    widths = [
        (share, element("i", class_=f"c{k}", style=f"width:{100 * abs(share) / size:.1f}%"))
        for k, (_, share) in enumerate(shares)
    ]
    against = [drawn for share, drawn in widths if share < 0]
    bar = element(
        "div",
        # What pulled the other way lies left of a mark, and what moved the node right of it.
        [*against, element("b")] if against else None,
        [drawn for share, drawn in widths if share >= 0],
        class_="share",
        role="img",
        aria_label="; ".join(f"{name} {share:+.0%}" for name, share in shares),
    )
    legend = element(
        "ul",
        [
            element("li", element("span", f"{name} {_signed(share)}"), class_=f"c{k}")
            for k, (name, share) in enumerate(shares)
            if abs(share) >= 5e-4
        ],
        class_="legend",
    )
    lines = [
        [
            f"{event['src']} → {event['dst']}"
            + ("" if event["op"] == "add" else f" ({event['op']})"),
            unbroken(_moment(event["t"], unit)),
            _signed(event["share"]),
        ]
        for event in why["events"]
        if abs(event["share"]) >= 5e-4
    ]
    through = [
        f"{one['node']} ({_signed(one['share'])})"
        for one in why["neighbours"]
        if abs(one["share"]) >= 5e-4
    ]
    return element(
        "figure",
        caption,
        bar,
        legend,
        table(["event", "when", "share"], lines, numbers=2) if lines else None,
        element("p", f"Through {', '.join(through)}.", class_="small soft") if through else None,
        data_figure="mover",
    )


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}\N{NO-BREAK SPACE}%"


# The end ------------------------------------------------------------------------------------------


def _numbers(run: Run) -> Html:
    """Every metric of every scorer."""
    blocks = []
    for sampler, parts in run.results["metrics"].items():
        for part, values in parts.items():
            names = [name for name, value in values.items() if value.get("mean") is not None]
            rows = [
                [
                    element("strong", "this model"),
                    *(_with_spread(values[name]) for name in names),
                ]
            ]
            for rule, found in (run.results.get("heuristics") or {}).items():
                own = found.get(sampler, {}).get(part, {})
                rows.append(
                    [
                        rule,
                        *("–" if own.get(name) is None else f"{own[name]:.4f}" for name in names),
                    ]
                )
            where = " (events with a node unseen in training)" if part == "new" else ""
            blocks.append(
                details(
                    f"{negatives_in_words(sampler)}{where}".capitalize(),
                    table(["", *(METRIC_WORDS.get(name, name) for name in names)], rows),
                )
            )
    informed = any("@" in name for name in run.results.get("heuristics") or {})
    note = element(
        "p",
        "Heuristics whose names end in @event know all events before each one they are asked"
        " about, as the model does; the others are told batch by batch, as they are published.",
    )
    return _section("All the numbers", note if informed else None, *blocks, name="numbers")


def _with_spread(value: dict[str, Any]) -> str:
    if len(value["per_seed"]) < 2:
        return f"{value['mean']:.4f}"
    return f"{value['mean']:.4f} ± {value['std']:.4f}"


def _settings(run: Run) -> Html:
    seen = run.observations
    blocks: list[Html] = []
    if seen is not None:
        defaults = seen.about["defaults"]
        settings = {
            name: value
            for name, value in seen.about["settings"].items()
            if name not in ("path", "seed")  # where it lay, and one of many
        }
        changed = [name for name, value in settings.items() if value != defaults.get(name)]
        rows = [
            [
                element("span", name, class_="changed") if name in changed else name,
                _said(value),
                _said(defaults.get(name)) if name in changed else "",
            ]
            for name, value in settings.items()
        ]
        words = (
            f"{len(changed)} of {len(settings)} settings of the model differ from their defaults"
            f" ({', '.join(changed)})."
            if changed
            else "All settings of the model are the defaults."
        )
        blocks += [
            element("p", words),
            details(
                "All settings of the model",
                table(["setting", "value", "default, if changed"], rows, numbers=3),
            ),
        ]
    if run.config:
        blocks.append(details("config.toml of the run", element("pre", run.config)))
    if not blocks:
        blocks = [
            table(
                ["setting", "value"],
                [[name, _said(value)] for name, value in run.settings.items()],
                numbers=2,
            )
        ]
    return _section("Parameters", *blocks, name="parameters")


def _said(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_said, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _repeat(run: Run) -> Html:
    results, seen = run.results, run.observations
    versions = dict(seen.about["versions"]) if seen is not None else {}
    if results.get("version"):
        versions["tidegraph"] = results["version"]
    data = results.get("data") or {}
    rows: list[list[Any]] = [
        ["versions", ", ".join(f"{name} {value}" for name, value in versions.items())]
    ]
    machine = results.get("machine")
    if isinstance(machine, dict):
        machine = ", ".join(f"{name} {value}" for name, value in machine.items())
    digest = data.get("hash") or data.get("digest")
    spent = results.get("elapsed_s")
    if isinstance(spent, dict):
        spent = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in spent.items())
    elif isinstance(spent, (int, float)):
        spent = f"{spent:,.0f} s"
    for name, value in (
        ("machine", machine),
        ("time taken", spent),
        ("digest of the data", digest),
        ("run", run.name),
    ):
        if value:
            rows.append([name, value])
    command = results.get("command")
    if isinstance(command, (list, tuple)):
        command = " ".join(map(str, command))
    return _section(
        "To repeat it",
        element("pre", element("code", command), id="command") if command else None,
        table(["", ""], rows, numbers=2),
        name="repeat",
    )
