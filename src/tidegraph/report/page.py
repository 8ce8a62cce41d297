"""The report of one run: its sections in order."""

from __future__ import annotations

from tidegraph.report.markup import Html, document, element
from tidegraph.report.run_files import FinishedRun
from tidegraph.report.sections.data import data, node_map
from tidegraph.report.sections.details import all_numbers, parameters, repeat
from tidegraph.report.sections.engine import engine
from tidegraph.report.sections.headline import headline, opening
from tidegraph.report.sections.learning import learning
from tidegraph.report.sections.movers import movers
from tidegraph.report.sections.quality import quality

__all__ = ["page"]


def page(run: FinishedRun) -> str:
    """Return the whole report as HTML."""
    seen = run.observations
    observed: list[Html | None]
    if seen is None:
        missing = "The run has no observations, so there are no figures of how it got here."
        observed = [element("p", missing, class_="note")]
    else:
        observed = [
            learning(seen),
            quality(seen),
            engine(seen),
            data(seen),
            node_map(seen),
            movers(seen),
        ]
    return document(
        f"{run.title} · tidegraph",
        opening(run),
        headline(run),
        *observed,
        all_numbers(run),
        parameters(run),
        repeat(run),
    )
