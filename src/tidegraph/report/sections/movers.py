"""The nodes that moved most at the end of the stream, and why."""

from __future__ import annotations

from typing import Any

from tidegraph.core.words import counted
from tidegraph.report.markup import Html, element, figures, section, table, unbroken
from tidegraph.report.observations import Observations
from tidegraph.report.vocabulary import moment, signed_percent

__all__ = ["mover", "movers"]

_LEAST = 5e-4  # share below which nothing is named


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
    caption = element(
        "figcaption",
        element("h3", row["node"]),
        element(
            "p", f"moved by {row['moved']:.3g}{relative}; it had {counted(row['events'], 'event')}"
        ),
    )
    if why is None:
        reason = element("p", "Not explained: the time was up.", class_="small soft")
        return element("figure", caption, reason, data_figure="mover")
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
    return element(
        "figure",
        caption,
        _bar(shares),
        element(
            "ul",
            [
                element("li", element("span", f"{name} {signed_percent(share)}"), class_=f"c{k}")
                for k, (name, share) in enumerate(shares)
                if abs(share) >= _LEAST
            ],
            class_="legend",
        ),
        table(["event", "when", "share"], lines, numbers=2) if lines else None,
        element("p", f"Through {', '.join(through)}.", class_="small soft") if through else None,
        data_figure="mover",
    )


def _bar(shares: list[tuple[str, float]]) -> Html:
    """Return shares as one bar; those that pulled the other way lie left of a mark."""
    size = sum(abs(share) for _, share in shares) or 1.0
    drawn = [
        (share, element("i", class_=f"c{k}", style=f"width:{100 * abs(share) / size:.1f}%"))
        for k, (_, share) in enumerate(shares)
    ]
    against = [piece for share, piece in drawn if share < 0]
    return element(
        "div",
        [*against, element("b")] if against else None,
        [piece for share, piece in drawn if share >= 0],
        class_="share",
        role="img",
        aria_label="; ".join(f"{name} {share:+.0%}" for name, share in shares),
    )
