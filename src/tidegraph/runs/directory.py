"""The directories of runs: which is whose, and what can be read from a finished one.

runs/calls/config.toml       all settings
           metrics.json      the numbers, and where they come from
           report.html       the same to look at
           log.txt           what happened when
           events.tide       the events as they were read
           command.txt       the command that started it
           stages.json       which stages are done
           heuristics.json   what the heuristics achieve
           seed-0/           checkpoint, model, history and score of a seed; if the model reads
                             representations, their trajectories and the telemetry of the first
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.runs import config, stages
from tidegraph.runs.config import Settings

CONFIG, METRICS = "config.toml", "metrics.json"
_SUFFIXES = {"link": "", "node": "-nodes", "events": "-events"}  # of names, by task
# Without these in its metrics.json a run cannot be compared with another.
_RESULTS = ("config", "data", "split", "seeds", "metrics", "heuristics", "headlines", "elapsed_s")


def read_settings(directory: str | Path) -> Settings:
    """Return the settings of the run in this directory."""
    path = Path(directory) / CONFIG
    if not path.is_file():
        raise StateFileError(
            f"{directory} is not a run: it has no {CONFIG}; give a directory that tidegraph run"
            " made, such as runs/NAME"
        )
    return config.resolve(config.read(path))


def read_metrics(directory: str | Path) -> dict[str, Any]:
    """Return what a finished run achieved: the content of its metrics.json."""
    path = Path(directory) / METRICS
    if not path.is_file():
        read_settings(directory)  # raises if it is not a run at all
        raise StateFileError(
            f"the run in {directory} is not finished; tidegraph resume {directory} finishes it"
        )
    try:
        metrics: dict[str, Any] = json.loads(path.read_bytes())
        missing = [name for name in _RESULTS if not isinstance(metrics[name], (dict, list))]
    except (ValueError, LookupError, TypeError) as error:
        missing = [str(error)]
    if missing:
        raise StateFileError(
            f"{path} is damaged ({missing[0]}); tidegraph resume {directory} writes it again"
        )
    return metrics


def compare(directories: Sequence[str | Path]) -> dict[str, Any]:
    """Return the results of finished runs and their differences, in plain types.

    `runs` has the metrics of each, `differences` the settings that are not the same in all, with
    the value of each run (None if it has none), `warnings` why the numbers are not comparable.
    """
    found = [{"run": str(each), **read_metrics(each)} for each in directories]
    trees = [dict(config.leaves(metrics["config"])) for metrics in found]
    values = {key: [tree.get(key) for tree in trees] for tree in trees for key in tree}
    differing = {key: each for key, each in values.items() if any(v != each[0] for v in each)}
    warnings = []
    if len({metrics["data"]["digest"] for metrics in found}) > 1:
        warnings.append("the runs are on different events; their numbers cannot be compared")
    elif len({json.dumps(metrics["split"], sort_keys=True) for metrics in found}) > 1:
        warnings.append("the runs are evaluated on different parts of the events")
    if len({metrics.get("knowledge") for metrics in found}) > 1:
        warnings.append("the runs differ in knowledge; their numbers cannot be compared")
    return {"runs": found, "differences": differing, "warnings": warnings}


def model_directory(directory: Path, seed: int) -> Path:
    """Return where a run saves the model of a seed."""
    return directory / f"seed-{seed}" / "model"


def run_directory(out: str | Path, name: str | None, settings: Settings) -> Path:
    """Return the directory below `out` for a run with these settings.

    Without a name it is named after the data, and numbered if a run with other settings has that
    name: only a run that is named can replace the results of another.
    """
    if name is not None:
        if name in ("", ".", "..") or re.search(r"[/\\\0]", name):
            raise ParameterError(
                f"name is {name!r}; give a name that is not empty, without / and \\, and not . or"
                " .., such as trial-2"
            )
        return Path(out) / name
    # Neither an option nor a pattern: "-" is standard input, and logs/*.csv several files.
    base = re.sub(r"^-+|[*?\[\]]+", "", Path(settings.data.name).name.split(".")[0]) or "run"
    base += _SUFFIXES[settings.task] + ("-quick" if settings.quick else "")
    for number in itertools.count(1):
        directory = Path(out) / (base if number == 1 else f"{base}-{number}")
        if not directory.exists():
            break
        with contextlib.suppress(StateFileError, ParameterError):  # it is not a run
            known = read_settings(directory)
            if is_run(directory) and not config.differences(known, settings):
                break
    return directory


def is_run(directory: Path) -> bool:
    """Return whether it holds a run, or only what one leaves that is killed at its first writes."""
    if not directory.is_dir():
        return False
    names = (path.name for path in directory.iterdir())
    found = {name for name in names if not stages.UNFINISHED.fullmatch(name)}
    try:
        stages.read_stages(directory)
        if not found <= {stages.FILE}:
            read_settings(directory)
    except (StateFileError, ParameterError):
        return False
    return not found or stages.FILE in found
