"""What the model answers: the likeliest next links, how high the truth ranks, first meetings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.words import counted
from tidegraph.evaluation.metrics import standard_error
from tidegraph.report.markup import Html, card, element, join, section
from tidegraph.report.observations import Observations
from tidegraph.report.vocabulary import heuristic, metric_words, moment, out_of, percent

_CHANCE = 2.0  # standard errors within which a lead may be chance
_TOP = 10  # of hits@10
_LEAST = 10  # ranks whose mean says something


def answers(seen: Observations) -> Html | None:
    """Return the likeliest answers for the most active nodes, or None if none were asked for."""
    about, unit = seen.about.get("answers"), seen.about["time"]["unit"]
    if about is None or not about["rows"]:
        return None
    links = seen.about["task"] == "link"
    some = "" if not links or about["candidates"] == about["candidates_of"] else " most popular"
    among = f", among the {about['candidates']:,}{some} destinations" if links else ""
    cards = [
        card(
            join(
                element("strong", row["node"]),
                " ",
                element("small", counted(row["events"], "event")),
            ),
            element("ol", [_answer(one) for one in row["answers"]]),
        )
        for row in about["rows"]
    ]
    mixture = ""
    if links:
        mixture = (
            " Probabilities are among pairs like those of the training"
            f" ({seen.about['training_negatives']}), not among all pairs; they need not add up to"
            " 100%. New ones have never met before."
        )
    wanted = about.get("looked_for")
    which = f"likeliest of {wanted} among those with" if wanted else "with most"
    title = f"Nodes likeliest of {wanted}" if wanted else "The likeliest classes"
    return section(
        "The likeliest next links" if links else title,
        element(
            "p",
            f"The {len(cards)} nodes {which} events in the {seen.about['part']} period, asked at"
            f" the end of the stream, {moment(about['t'] - 1, unit)}{among}.{mixture}",
        ),
        element("div", cards, class_="cards tight"),
        name="answers",
    )


def _answer(one: dict[str, Any]) -> Html:
    new = element("small", " new") if one.get("met") is False else None
    chance = element("b", percent(round(one["probability"], 3)))
    return element("li", element("span", one["what"], new), chance)


def ranked(seen: Observations) -> Iterator[tuple[str, float, float, str]]:
    """Yield a metric of the ranks, its value, its standard error and what was ranked."""
    place = seen.arrays.get("rank.place")
    if place is None:
        return
    about = seen.about["ranking"]
    of = "all" if about["events"] == about["of"] else f"a sample of {about['events']:,} of"
    what = (
        f"among all {about['destinations']:,} destinations, on {of} {about['of']:,}"
        f" {seen.about['part']} events"
    )
    for metric, value in _of_ranks(place):
        yield metric, float(np.mean(value)), standard_error(value), what


def unranked(seen: Observations) -> Html | None:
    """Return why nothing was ranked; None if something was, or nobody looked."""
    about = seen.about.get("ranking")
    if about is None or about["events"]:
        return None
    return element(
        "p",
        f"Ranks among all {about['destinations']:,} destinations were not measured, since that"
        " takes long; tidegraph run with --set rank_sample=1000 measures them.",
        class_="small soft",
    )


def _of_ranks(place: NDArray[Any]) -> list[tuple[str, NDArray[Any]]]:
    return [("hits_10", place <= _TOP), ("mrr", 1 / place)]


def meetings(seen: Observations) -> Html | None:
    """Return first meetings apart from repeats, or None if they were not observed."""
    found = seen.about.get("meetings")
    if not found:
        return None
    total = sum(one["of"] for one in found)
    return section(
        "First meetings and repeats",
        element(
            "p",
            f"Of the {total:,} {seen.about['part']} events some join nodes that have met before, in"
            " either direction; the others are first meetings, which memory alone cannot predict.",
        ),
        element("div", [_meeting(seen, one, total) for one in found], class_="cards"),
        element("p", "± is one standard error; guessing gives 0.5.", class_="small soft"),
        name="meetings",
    )


def _meeting(seen: Observations, one: dict[str, Any], total: int) -> Html:
    kind, real, rival = "Repeats", "real repeat", "another pair that met before"
    if one["first"]:
        kind, real, rival = "First meetings", "first meeting", "another pair that never met"
    best, rule = max(one["heuristics"].items(), key=lambda item: item[1]["share"])
    lead = rule["lead"]
    points = f"({100 * lead['share']:+.1f} points{', within chance' * (_colour(lead) == 'soft')})"
    return card(
        f"{kind}: {one['of']:,} events, {percent(round(one['of'] / total, 3))}",
        element(
            "p", f"{one['share']:.3f}", element("small", f" ± {one['error']:.3f}"), class_="value"
        ),
        element(
            "p",
            f"Given one {real} and {rival}, the model ranks the real one first in"
            f" {out_of(one['share'])} cases ({one['events']:,} compared).",
        ),
        element(
            "p",
            "best heuristic: ",
            heuristic(best),
            f" {rule['share']:.3f} ",
            element("span", points, class_=_colour(lead)),
        ),
        _ranks(seen, first=one["first"]),
    )


def _ranks(seen: Observations, *, first: bool) -> Html | None:
    """Return how high the true destinations of first meetings, or of repeats, were ranked."""
    if "rank.place" not in seen.arrays:
        return None
    place = seen.arrays["rank.place"][seen.arrays["rank.met"] == (not first)]
    if len(place) < _LEAST:
        return None
    parts = [
        f"{metric_words(name)} {np.mean(of):.2f} ± {standard_error(of):.2f}"
        for name, of in _of_ranks(place)
    ]
    events = f"among all destinations, {counted(len(place), 'event')}"
    return element("p", f"{', '.join(parts)} ({events})", class_="soft")


def _colour(lead: dict[str, float]) -> str:
    """Return the class of a lead: grey where it is within chance."""
    if abs(lead["share"]) <= _CHANCE * lead["error"]:
        return "soft"
    return "good" if lead["share"] > 0 else "bad"
