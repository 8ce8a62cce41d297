"""The stream: how the engine followed it, its data, a map of its nodes, and who moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidegraph.core.palette import GREY, SERIES
from tidegraph.core.words import counted
from tidegraph.report.axes import Axis, compact, linear, logarithmic, time_axis
from tidegraph.report.figures import Bars, Curve, Points, Rule, chart, figure, legend, share_bar
from tidegraph.report.markup import Html, details, element, figures, section, table, unbroken
from tidegraph.report.observations import Observations
from tidegraph.report.telemetry import COLOURED_BY
from tidegraph.report.vocabulary import moment, percent, signed_percent

_LEAST = 5e-4  # share of a movement below which nothing is named


def engine(seen: Observations) -> Html:
    """Return the section."""
    about = seen.about
    names = ("t", "events", "steps", "seconds", "touched", "certified")
    t, events, steps, seconds, touched, certified = (seen.arrays[f"replay.{k}"] for k in names)
    rate = events / np.maximum(seconds, 1e-9)
    total = float(events.sum() / max(seconds.sum(), 1e-9))
    done, of = "replayed", " of engine time"
    if about.get("recorded"):
        done, of = "recorded", ", recording included"
    elif events.sum() < sum(about["activity"]):
        done = f"replayed, its latest {int(events.sum()):,} events one time after the other,"
    return section(
        "How the representations were updated",
        element(
            "p",
            f"The stream was {done} with the model's settings"
            f" ({counted(len(about['channels']), 'channel')}, r_max {about['r_max']:g} in units of"
            f" {about['r_max_unit']}, {counted(about['threads'], 'thread')}): {compact(total)}"
            f" events per second{of}. The certified error was at most"
            f" {percent(round(float(certified.max()), 3))} of the threshold.",
        ),
        details(
            "Telemetry of the engine",
            figures(
                chart(
                    "Certified error as a fraction of the threshold",
                    "Good: at most 1, apart from rounding, which the certificate includes. It is"
                    " computed from estimates and graph alone.",
                    _axis(seen),
                    linear(
                        "certified error / threshold", [], low=0, high=max(1.2, certified.max())
                    ),
                    [
                        Curve(name, t, certified[:, k], k % SERIES)
                        for k, name in enumerate(about["channels"])
                    ],
                    rules=[Rule("threshold", y=1.0)],
                    kind="certified",
                ),
                _over_stream(
                    seen,
                    "Speed",
                    "Good: level while the graph grows. Dips are bursts that move many nodes, or"
                    " another program on the machine.",
                    linear("events per second", rate, low=0),
                    Curve("", t, rate, 0),
                    kind="speed",
                ),
                _over_stream(
                    seen,
                    "Nodes touched per step",
                    "How far one step (the events of one time) reaches. Good: far below the number"
                    " of nodes.",
                    linear("nodes per step", touched / steps, low=0),
                    Curve("", t, touched / steps, 2),
                    kind="touched",
                ),
            ),
        ),
        name="engine",
    )


def _axis(seen: Observations) -> Axis:
    """Return the time axis of the whole stream."""
    time = seen.about["time"]
    return time_axis(time["first"], time["last"], time["unit"])


def _over_stream(
    seen: Observations, title: str, aid: str, y: Axis, drawn: Curve | Bars, *, kind: str
) -> Html:
    """Return a chart over the whole stream that marks where the test begins, if there is one."""
    begins = seen.about["time"]["test"]
    rules = [] if begins is None else [Rule("test begins", x=begins)]
    return chart(title, aid, _axis(seen), y, [drawn], rules=rules, kind=kind)


def data(seen: Observations) -> Html:
    """Return the section on the stream: activity, degrees, repeated pairs."""
    about, arrays = seen.about, seen.arrays
    activity = about["activity"]
    return section(
        "The data",
        figures(
            _over_stream(
                seen,
                "Events over time",
                "The rhythm of the data. Gaps and steps here explain much of the other figures.",
                linear(f"events per {len(activity)}th of the time", activity, low=0),
                activity_bars(_axis(seen), activity),
                kind="activity",
            ),
            degrees(about["degrees"]),
            _over_stream(
                seen,
                "Events that repeat a pair",
                "If nearly all events repeat, memory alone predicts well; if few do, there is more"
                " to learn.",
                linear("share of events", [], low=0, high=1, words=percent),
                Curve("", arrays["repeat.t"], arrays["repeat.rate"], 3),
                kind="repeats",
            ),
        ),
        details("More about the data", table(["", ""], about["facts"], numbers=2)),
        name="data",
    )


def activity_bars(time: Axis, activity: Sequence[int]) -> Bars:
    """Return the events in equal parts of a time axis as bars."""
    bounds = np.linspace(time.low, time.high, len(activity) + 1)
    return Bars("", bounds[:-1], bounds[1:], activity, [f"{value:,} events" for value in activity])


def degrees(classes: Sequence[tuple[int, int, int]]) -> Html:
    """Return the chart of nodes by number of events, given (fewest, most, nodes) per class."""
    low, high, count = (np.array(column) for column in zip(*classes, strict=True))
    words = [f"{a:,} to {b:,} events: {n:,} nodes" for a, b, n in classes]
    return chart(
        "Nodes by number of events",
        "Both axes are logarithmic: a straight fall is a heavy tail, few nodes with most of the"
        " events.",
        logarithmic("events of a node", [*low, *(high + 1)]),
        logarithmic("nodes", [*count, 1]),
        [Bars("", low, high + 1, count, words, 2)],
        numbers=(
            ["events", "nodes"],
            [[f"{a:,}" if a == b else f"{a:,} to {b:,}", f"{n:,}"] for a, b, n in classes],
        ),
        kind="degrees",
    )


def node_map(seen: Observations) -> Html:
    """Return the section that shows where the nodes are."""
    about, place = seen.about["map"], seen.arrays["map.place"]
    group, events = seen.arrays["map.group"], seen.arrays["map.events"]
    names, by_label = about["groups"], about["by"] == "label"
    drawn = []
    # The largest group first, so that the small ones lie on top of it.
    for k in np.argsort(-np.bincount(group, minlength=len(names)), kind="stable").tolist():
        rows = np.flatnonzero(group == k)
        if len(rows):
            is_rest = by_label and k == len(names) - 1
            words = [f"{about['names'][row]}: {events[row]:,} events" for row in rows.tolist()]
            colour = GREY if is_rest else k % SERIES
            x, y = place[rows].T
            drawn.append(Points(f"{names[k]} ({len(rows):,})", x, y, words, colour))
    part = "All" if about["active"] == len(place) else f"{len(place):,} of the"
    share = about["share"]
    reading = "Nodes close to each other have similar neighbours."
    if by_label:
        reading = "Good: colours stay together, so that the place predicts the label."
    drawing = chart(
        "A map of the representations",
        f"{part} {about['active']:,} nodes with events, by what they received from others until the"
        " end of the stream, in the two directions in which they differ most. Each is coloured by"
        f" {COLOURED_BY[about['by']]}. {reading} The map shows {percent(round(sum(share), 3))} of"
        " the variance and hides the rest.",
        linear(f"first direction ({percent(round(share[0], 4))})", place[:, 0]),
        linear(f"second direction ({percent(round(share[1], 4))})", place[:, 1]),
        drawn,
        kind="map",
    )
    return section("Where the nodes are", figures(drawing), name="map")


def movers(seen: Observations) -> Html:
    """Return the section."""
    about, unit = seen.about["movers"], seen.about["time"]["unit"]
    events = f"the last {about['events']:,} events"
    introduction = (
        f"Of {about['among']:,} nodes with earlier events, these are the ones whose representation"
        f" ({seen.about['channels'][0]}) moved farthest in {events}, from"
        f" {moment(about['begin'], unit)} to {moment(about['end'] - 1, unit)}. Shares add up to the"
        " whole movement; negative ones pulled the other way."
    )
    if not about["rows"]:
        introduction = f"In {events} no node with earlier events moved."
    return section(
        "What moved most, and why",
        element("p", introduction),
        figures([mover(row, unit) for row in about["rows"]]),
        name="movers",
    )


def mover(row: dict[str, Any], unit: str) -> Html:
    """Return what moved one node."""
    why = row["why"]
    relative = "" if row["relative"] is None else f", {row['relative']:.0%} of its length"
    moved = f"moved by {row['moved']:.3g}{relative}; it had {counted(row['events'], 'event')}"
    if why is None:
        reason = element("p", "Not explained: the time was up.", class_="small soft")
        return figure(row["node"], moved, reason, kind="mover")
    shares = [
        ("its own events", why["direct"]),
        ("events elsewhere", why["elsewhere"]),
        ("time passing", why["time_passing"]),
    ]
    lines = [
        [
            f"{event['src']} → {event['dst']}"
            + ("" if event["op"] == "add" else f" ({event['op']})"),
            unbroken(moment(event["t"], unit)),
            signed_percent(event["share"]),
        ]
        for event in why["events"]
        if abs(event["share"]) >= _LEAST
    ]
    through = [
        f"{one['node']} ({signed_percent(one['share'])})"
        for one in why["neighbours"]
        if abs(one["share"]) >= _LEAST
    ]
    named = [
        (f"{name} {signed_percent(share)}", k)
        for k, (name, share) in enumerate(shares)
        if abs(share) >= _LEAST
    ]
    return figure(
        row["node"],
        moved,
        share_bar(shares),
        legend(named),
        table(["event", "when", "share"], lines, numbers=2) if lines else None,
        element("p", f"Through {', '.join(through)}.", class_="small soft") if through else None,
        kind="mover",
    )
