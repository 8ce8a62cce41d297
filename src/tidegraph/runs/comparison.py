"""Compare finished runs: their numbers, and the settings in which they differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegraph import report
from tidegraph.runs import config
from tidegraph.runs.directory import read_metrics

__all__ = ["compare", "write_comparison"]


def compare(directories: Sequence[str | Path]) -> dict[str, Any]:
    """Return the results of finished runs and their differences, in plain types.

    `runs` has the metrics of each, `differences` the settings that are not the same in all, with
    the value of each run (None if it has none), `warnings` why the numbers are not comparable.
    """
    found = [read_metrics(directory) for directory in directories]
    trees = [dict(config.leaves(metrics["config"])) for metrics in found]
    keys = dict.fromkeys(key for tree in trees for key in tree)
    values = {key: [tree.get(key) for tree in trees] for key in keys}
    differing = {key: each for key, each in values.items() if any(v != each[0] for v in each)}
    warnings = []
    if len({metrics["data"]["digest"] for metrics in found}) > 1:
        warnings.append("the runs are on different events; their numbers cannot be compared")
    elif len({json.dumps(metrics["split"], sort_keys=True) for metrics in found}) > 1:
        warnings.append("the runs are evaluated on different parts of the events")
    return {
        "runs": [
            {"run": str(directory), **metrics}
            for directory, metrics in zip(directories, found, strict=True)
        ],
        "differences": differing,
        "warnings": warnings,
    }


def write_comparison(directories: Sequence[str | Path], path: str | Path) -> Path:
    """Write a page that compares finished runs."""
    for directory in directories:
        read_metrics(directory)  # raises if it is not finished
    return report.write_comparison(directories, path)
