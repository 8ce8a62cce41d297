"""Settings tried against each other, over seeds, judged by validation events alone."""

from __future__ import annotations

import csv
import io
import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tidegraph.core.durable import not_written, replace_file
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.core.workers import Engine, check_engine, run
from tidegraph.events.stream import EventStream
from tidegraph.learning.settings import PROTOCOLS
from tidegraph.runs import experiment
from tidegraph.runs.experiment import Protocol
from tidegraph.store.segments import digest

__all__ = ["check_sweep", "sweep"]

_METRICS = ("ap", "auc", "ap_global", "auc_global")
_PROTOCOLS = tuple(name for name in PROTOCOLS if name != "roland")
_FORMAT = 1


@dataclass(frozen=True, eq=False)
class _Common:
    """What all cells are computed from."""

    stream: EventStream
    directory: Path
    protocol: Protocol
    threads: int | None  # of the propagation


@dataclass(frozen=True)
class _Cell:
    """One choice of settings with one seed."""

    choice: dict[str, Any]  # of the grid
    settings: dict[str, Any]  # all that were given
    seed: int

    @property
    def name(self) -> str:
        text = json.dumps({"settings": self.settings, "seed": self.seed}, sort_keys=True)
        return f"cell-{digest(text.encode())[:16]}"

    def path(self, directory: Path) -> Path:
        return directory / f"{self.name}.json"


def sweep(
    stream: EventStream,
    path: str | Path,
    *,
    grid: Mapping[str, Sequence[Any]],
    seeds: Sequence[int] = (0,),
    settings: Mapping[str, Any] | None = None,
    protocol: Protocol | str = "tgn",
    metric: str = "ap",
    test: bool = False,
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """All choices from a grid of settings of a `LinkPredictor`, the best on validation first.

    Every cell, a choice with a seed, is kept in the directory once it is computed, so a sweep that
    was stopped goes on, and a larger grid computes what is new. `results.json` and `results.csv`
    there hold what is returned: `choices`, each with `settings` and, over the seeds, the `mean`,
    `std` and `per_seed` of every validation metric. Test events decide nothing; with `test` the
    chosen settings are afterwards judged by them, once, as `experiment.evaluate` does.

    grid: names of settings and the values to try; settings: those that all choices share.
    metric: by which choices are ordered.
    engine: "local" computes one cell after the other here, "ray" side by side, each on one core.
    """
    check_sweep(
        grid=grid,
        seeds=seeds,
        settings=settings,
        protocol=protocol,
        metric=metric,
        engine=engine,
        address=address,
        workers=workers,
    )
    directory = Path(path)
    protocol = Protocol.of(protocol)
    about = {"format": _FORMAT, "events": stream.digest(), "protocol": protocol.name}
    about["validation_after"], about["test_after"] = protocol.times(stream.unit)
    _take_up(directory, about)
    choices = list(_choices(grid))
    shared = dict(settings or {})
    cells = [_Cell(choice, {**shared, **choice}, seed) for choice in choices for seed in seeds]
    missing = {cell.name: cell for cell in cells if not cell.path(directory).exists()}
    threads = 1 if engine == "ray" else None
    run(
        _compute,
        _Common(stream, directory.absolute(), protocol, threads),
        missing,
        directory,
        engine=engine,
        address=address,
        workers=workers,
        progress=progress,
    )
    found = [_read(cell, directory) for cell in cells]
    per_choice = [found[first : first + len(seeds)] for first in range(0, len(found), len(seeds))]
    rows = [_summed(choice, runs) for choice, runs in zip(choices, per_choice, strict=True)]
    rows.sort(key=lambda row: -row["metrics"][metric]["mean"])
    results = {
        "events": stream.digest(),
        "protocol": protocol.name,
        "metric": f"validation {metric}",
        "seeds": list(seeds),
        "settings": shared,
        "choices": rows,
        "version": version("tidegraph"),
    }
    if test:
        results["test"] = _tested(
            stream, directory, {**shared, **rows[0]["settings"]}, seeds, protocol, progress
        )
    _write(directory / "results.json", json.dumps(results, indent=2) + "\n")
    _write(directory / "results.csv", _as_csv(rows, list(grid)))
    return results


def check_sweep(
    *,
    grid: Mapping[str, Sequence[Any]],
    seeds: Sequence[int],
    settings: Mapping[str, Any] | None = None,
    protocol: Protocol | str = "tgn",
    metric: str = "ap",
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Refuses of `sweep`'s arguments what can be refused before there are events."""
    check_engine(engine, address, workers)
    protocol = Protocol.of(protocol)
    if protocol.name not in _PROTOCOLS:
        raise ParameterError(f"protocol is {protocol.name!r}; give one of {', '.join(_PROTOCOLS)}")
    if metric not in _METRICS:
        raise ParameterError(f"metric is {metric!r}; give one of {', '.join(_METRICS)}")
    if not grid or not all(len(values) for values in grid.values()):
        raise ParameterError("the grid is empty; give at least one setting with a value")
    for name, values in grid.items():
        if len({json.dumps(value) for value in values}) < len(values):
            raise ParameterError(f"the grid has {name} {list(values)}; give each value once")
        if name in (settings or {}):
            raise ParameterError(f"{name} is in the grid and in the settings; leave one out")
    for choice in _choices(grid):
        experiment.check_evaluation(protocol, seeds=seeds, settings={**(settings or {}), **choice})


def _choices(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _take_up(directory: Path, about: dict[str, Any]) -> None:
    """Makes the directory of a sweep, or finds that of one over the same events."""
    path = directory / "sweep.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        differing = [name for name, value in about.items() if before.get(name) != value]
        if differing:
            name = differing[0]
            raise StateFileError(
                f"{directory} holds a sweep with {name} {before.get(name)!r}, and this one has"
                f" {about[name]!r}; give another directory"
            )
        return
    if directory.exists() and any(directory.iterdir()):
        raise StateFileError(f"{directory} holds something else than a sweep; give another one")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(directory, error) from error
    _write(path, json.dumps(about, indent=2) + "\n")


def _compute(common: _Common, cell: _Cell, progress: Progress) -> None:
    found = experiment.validate(
        common.stream,
        protocol=common.protocol,
        settings=cell.settings,
        seed=cell.seed,
        threads=common.threads,
        progress=progress,
    )
    about = {"settings": cell.settings, "seed": cell.seed, **found}
    _write(cell.path(common.directory), json.dumps(about, indent=2) + "\n")


def _read(cell: _Cell, directory: Path) -> dict[str, Any]:
    path = cell.path(directory)
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise StateFileError(f"{path} is damaged; delete it, and it is computed again") from None
    return found


def _summed(choice: dict[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    metrics = {}
    for metric in runs[0]["metrics"]:
        values = [one["metrics"][metric] for one in runs]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        metrics[metric] = {"mean": statistics.fmean(values), "std": spread, "per_seed": values}
    seconds = sum(one["elapsed_s"]["total"] for one in runs)
    return {"settings": choice, "metrics": metrics, "elapsed_s": round(seconds, 3)}


def _tested(
    stream: EventStream,
    directory: Path,
    chosen: dict[str, Any],
    seeds: Sequence[int],
    protocol: Protocol,
    progress: Progress | None,
) -> dict[str, Any]:
    """What the chosen settings achieve on the test events; kept, as cells are."""
    text = json.dumps({"settings": chosen, "seeds": list(seeds)}, sort_keys=True)
    path = directory / f"test-{digest(text.encode())[:16]}.json"
    if not path.exists():
        found = experiment.evaluate(
            stream, protocol=protocol, seeds=seeds, settings=chosen, progress=progress
        )
        _write(path, json.dumps(found, indent=2) + "\n")
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept


def _as_csv(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    metrics = list(rows[0]["metrics"])
    titles = [f"{metric}_{what}" for metric in metrics for what in ("mean", "std")]
    writer.writerow([*names, *titles, "elapsed_s"])
    for row in rows:
        values = [row["metrics"][metric][what] for metric in metrics for what in ("mean", "std")]
        chosen = [json.dumps(row["settings"][name]).strip('"') for name in names]
        writer.writerow([*chosen, *values, row["elapsed_s"]])
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    replace_file(path, lambda file: file.write(text.encode()))
