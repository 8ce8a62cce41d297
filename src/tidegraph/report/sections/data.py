"""The data, and a map of its nodes."""

from __future__ import annotations

import numpy as np

from tidegraph.core.palette import GREY, SERIES
from tidegraph.report.axes import linear, logarithmic
from tidegraph.report.figures import Bars, Curve, Points, chart
from tidegraph.report.markup import Html, details, figures, section, table
from tidegraph.report.observations import Observations
from tidegraph.report.sections.engine import over_stream, stream_axis
from tidegraph.report.telemetry import COLOURED_BY
from tidegraph.report.vocabulary import percent

__all__ = ["data", "node_map"]


def data(seen: Observations) -> Html:
    """Return the section on the stream: activity, degrees, repeated pairs."""
    about, arrays = seen.about, seen.arrays
    x, activity = stream_axis(seen), np.array(about["activity"])
    bounds = np.linspace(x.low, x.high, len(activity) + 1)
    words = [f"{value:,} events" for value in activity.tolist()]
    return section(
        "The data",
        figures(
            over_stream(
                seen,
                "Events over time",
                "The rhythm of the data. Gaps and steps here explain much of the other figures.",
                linear(f"events per {len(activity)}th of the time", activity, low=0),
                Bars("", bounds[:-1], bounds[1:], activity, words),
                kind="activity",
            ),
            _degrees(about["degrees"]),
            over_stream(
                seen,
                "Events that repeat a pair",
                "If nearly all events repeat, memory alone predicts well; if few do, there is more"
                " to learn.",
                linear("share of events", [], low=0, high=1, words=percent),
                Curve("", arrays["repeat.t"], arrays["repeat.rate"], 3),
                kind="repeats",
            ),
        ),
        details(
            "More about the data",
            table(["", ""], [list(fact) for fact in about["facts"]], numbers=2),
        ),
        name="data",
    )


def _degrees(degrees: list[tuple[int, int, int]]) -> Html:
    low, high, count = (np.array(column) for column in zip(*degrees, strict=True))
    words = [f"{a:,} to {b:,} events: {n:,} nodes" for a, b, n in degrees]
    return chart(
        "Nodes by number of events",
        "Both axes are logarithmic: a straight fall is a heavy tail, few nodes with most of the"
        " events.",
        logarithmic("events of a node", [*low, *(high + 1)]),
        logarithmic("nodes", [*count, 1]),
        [Bars("", low, high + 1, count, words, 2)],
        numbers=(
            ["events", "nodes"],
            [[f"{a:,}" if a == b else f"{a:,} to {b:,}", f"{n:,}"] for a, b, n in degrees],
        ),
        kind="degrees",
    )


def node_map(seen: Observations) -> Html:
    """Return the section that shows where the nodes are."""
    about, place = seen.about["map"], seen.arrays["map.place"]
    group, events = seen.arrays["map.group"], seen.arrays["map.events"]
    names, by_label = about["groups"], about["by"] == "label"
    words = [
        f"{name}: {count:,} events" for name, count in zip(about["names"], events, strict=True)
    ]
    drawn = []
    # The largest group first, so that the small ones lie on top of it.
    for k in np.argsort(-np.bincount(group, minlength=len(names)), kind="stable").tolist():
        rows = np.flatnonzero(group == k)
        if len(rows):
            is_rest = by_label and k == len(names) - 1
            drawn.append(
                Points(
                    f"{names[k]} ({len(rows):,})",
                    place[rows, 0],
                    place[rows, 1],
                    [words[row] for row in rows.tolist()],
                    GREY if is_rest else k % SERIES,
                )
            )
    part = "All" if about["active"] == len(place) else f"{len(place):,} of the"
    share = about["share"]
    reading = "Nodes close to each other have similar neighbours."
    if by_label:
        reading = "Good: colours stay together, so that the place predicts the label."
    return section(
        "Where the nodes are",
        figures(
            chart(
                "A map of the representations",
                f"{part} {about['active']:,} nodes with events, by what they received from others"
                " until the end of the stream, in the two directions in which they differ most."
                f" Each is coloured by {COLOURED_BY[about['by']]}. {reading} The map shows"
                f" {percent(round(sum(share), 3))} of the variance and hides the rest.",
                linear(f"first direction ({percent(round(share[0], 4))})", place[:, 0]),
                linear(f"second direction ({percent(round(share[1], 4))})", place[:, 1]),
                drawn,
                kind="map",
            )
        ),
        name="map",
    )
