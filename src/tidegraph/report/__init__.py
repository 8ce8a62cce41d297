"""What came out of a run, as one page that opens anywhere.

It reads the directory of a run and what a fitted predictor answers. It may import from `core`,
`events`, `engine`, `store`, `evaluation` and `learning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidegraph.core.durable import replace_file
from tidegraph.core.errors import ParameterError
from tidegraph.report.comparison import comparison
from tidegraph.report.observations import Observations, read_observations, save_observations
from tidegraph.report.page import page
from tidegraph.report.results import OBSERVATIONS, read_run

__all__ = [
    "OBSERVATIONS",
    "Observations",
    "read_observations",
    "save_observations",
    "write",
    "write_comparison",
]


def write(run_directory: str | Path) -> Path:
    """The path of `report.html`, written into the directory of a run from what lies there.

    `metrics.json` must be there; `config.toml` and `observations` (see `save_observations`) add
    what they can.
    """
    path = Path(run_directory) / "report.html"
    replace_file(path, page(read_run(run_directory)))
    return path


def write_comparison(run_directories: Sequence[str | Path], path: str | Path) -> Path:
    """The path of a page that shows several runs beside each other."""
    if not run_directories:
        raise ParameterError("no runs are given to compare; give the directories of some")
    replace_file(Path(path), comparison([read_run(each) for each in run_directories]))
    return Path(path)
