"""The description of a stream as a page of its own."""

from __future__ import annotations

from tidegraph.events.describe import Description, facts
from tidegraph.events.moments import span_in_words
from tidegraph.report.axes import linear, time_axis
from tidegraph.report.figures import chart
from tidegraph.report.markup import document, element, figures, table
from tidegraph.report.sections.stream import activity_bars, degrees


def description(what: Description) -> str:
    """Return the description as a self-contained HTML page."""
    title = what.title or "A stream of events"
    span = span_in_words((what.last - what.first + 1) // len(what.activity), what.unit)
    x = time_axis(what.first, what.last, what.unit)
    over_time = chart(
        "Events over time",
        f"Each bar is {span}; the tallest has {max(what.activity):,} events.",
        x,
        linear("events", what.activity, low=0),
        [activity_bars(x, what.activity)],
        kind="activity",
    )
    return document(
        title,
        element("h1", title),
        table(["", ""], [list(fact) for fact in facts(what)], numbers=2),
        figures(over_time, degrees(what.degrees)),
        element("p", "Digest of the events: ", element("code", what.digest), class_="soft"),
    )
