"""The report of a run as one HTML page that needs nothing else.

Reads the directory of a run and asks a fitted predictor. May import from `core`, `events`,
`engine`, `store`, `evaluation` and `learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidegraph.core.durable import replace_file
from tidegraph.core.errors import ParameterError
from tidegraph.report.comparison import comparison
from tidegraph.report.markup import Html, document, element
from tidegraph.report.observations import Observations, read_observations, save_observations
from tidegraph.report.run_files import OBSERVATIONS, FinishedRun, read_run
from tidegraph.report.sections import answers, quality, results, stream
from tidegraph.report.telemetry import Telemetry

__all__ = [
    "OBSERVATIONS",
    "Observations",
    "Telemetry",
    "read_observations",
    "save_observations",
    "write",
    "write_comparison",
]


def write(run_directory: str | Path) -> Path:
    """Write `report.html` into the directory of a run, and return its path.

    `metrics.json` must exist; `config.toml` and `observations` (see `save_observations`) add to
    it.
    """
    path = Path(run_directory) / "report.html"
    replace_file(path, _page(read_run(run_directory)))
    return path


def _page(run: FinishedRun) -> str:
    """Return the whole report as HTML: its sections in order."""
    missing = "The run has no observations, so there are no figures of how it got here."
    observed: list[Html | None] = [element("p", missing, class_="note")]
    answered: list[Html | None] = []
    if run.observations is not None:
        answered = [part(run.observations) for part in (answers.answers, answers.meetings)]
        of_model = (quality.quality, quality.learning)
        of_stream = (stream.data, stream.node_map, stream.movers, stream.engine)
        observed = [part(run.observations) for part in (*of_model, *of_stream)]
    return document(
        f"{run.title} · tidegraph",
        results.opening(run),
        results.what_it_means(run),
        *answered,
        results.headline(run),
        results.split(run),
        *observed,
        results.all_numbers(run),
        results.parameters(run),
        results.repeat(run),
    )


def write_comparison(run_directories: Sequence[str | Path], path: str | Path) -> Path:
    """Write a page that compares several runs, and return its path."""
    if not run_directories:
        raise ParameterError("no runs to compare; give their directories")
    replace_file(Path(path), comparison([read_run(each) for each in run_directories]))
    return Path(path)
