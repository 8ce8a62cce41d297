"""The description of a stream as a page of its own."""

from __future__ import annotations

from tidegraph.events.describe import Description, facts
from tidegraph.events.moments import span_in_words
from tidegraph.events.read_report import EVIDENCE, ReadReport
from tidegraph.report.axes import linear, time_axis
from tidegraph.report.figures import chart
from tidegraph.report.markup import Html, document, element, figures, section, table
from tidegraph.report.sections.stream import activity_bars, degrees

_ROLES = {
    "src": "who acts (source)",
    "dst": "on whom (destination)",
    "t": "when (time)",
    "weight": "how much (weight)",
    "op": "what happens to the edge (operation)",
    "label": "the label of the event",
}


def description(what: Description, report: ReadReport | None = None) -> str:
    """Return the description as a self-contained HTML page.

    report: how the file was understood, which the page then shows first.
    """
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
        None if report is None else _understood(report),
        section(
            "What is in it",
            table(["", ""], [list(fact) for fact in facts(what)], numbers=2),
            name="content",
        ),
        figures(over_time, degrees(what.degrees)),
        element("p", "Digest of the events: ", element("code", what.digest), class_="soft"),
    )


def _understood(report: ReadReport) -> Html:
    """Return what became of the columns and rows of a file."""
    used = report.columns.items()
    columns = [[use.column, _ROLES.get(role, role), EVIDENCE[use.by]] for role, use in used]
    columns += [[name, "a feature of the event", "as given"] for name in report.features]
    columns += [[name, "ignored", "no role of its own"] for name in report.ignored]
    rows = [["read", f"{report.read:,}"], ["kept", f"{report.kept:,}"]]
    rows += [[f"dropped: {reason}", f"{count:,}"] for reason, count in report.dropped.items()]
    if report.out_of_order:
        rows.append(["earlier than the row before, and sorted", f"{report.out_of_order:,}"])
    return section(
        "How the file was understood",
        element("p", report.source, class_="soft"),
        table(["column", "understood as", "how"], columns, numbers=3),
        table(["rows", ""], rows),
        element("ul", [element("li", remark) for remark in report.remarks]),
        name="understood",
    )
