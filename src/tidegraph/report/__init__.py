"""What came out of a run, as one page that opens anywhere."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from tidegraph.errors import ParameterError
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
    return _written(Path(run_directory) / "report.html", page(read_run(run_directory)))


def write_comparison(run_directories: Sequence[str | Path], path: str | Path) -> Path:
    """The path of a page that shows several runs beside each other."""
    if not run_directories:
        raise ParameterError("no runs are given to compare; give the directories of some")
    return _written(Path(path), comparison([read_run(each) for each in run_directories]))


def _written(path: Path, text: str) -> Path:
    """Writes the file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path
