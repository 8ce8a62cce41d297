"""Sweeps: settings tried against each other over seeds, ordered by validation events alone."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tidegraph.core.durable import replace_file
from tidegraph.core.errors import ParameterError
from tidegraph.core.progress import Progress
from tidegraph.core.resume import fingerprint, read_json, resume_or_create, write_json
from tidegraph.core.workers import Engine, check_engine, run
from tidegraph.evaluation.results import mean_and_spread
from tidegraph.events.stream import EventStream
from tidegraph.learning.settings import PROTOCOLS
from tidegraph.runs import evaluating
from tidegraph.runs.protocol import Protocol

_METRICS = ("ap", "auc", "ap_global", "auc_global")
_PROTOCOLS = tuple(name for name in PROTOCOLS if name != "roland")
_FORMAT = 1


@dataclass(frozen=True, eq=False)
class _Common:
    """What all cells, each a choice of settings with one seed, are computed from."""

    stream: EventStream
    directory: Path
    protocol: Protocol
    threads: int | None  # of the propagation

    def path(self, kind: str, **inputs: Any) -> Path:
        """Return where a result is stored that is computed once from these inputs."""
        return self.directory / f"{kind}-{fingerprint(**inputs)[:16]}.json"


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
    """Try all choices from a grid of settings of a `LinkPredictor`, and order them by validation.

    Every cell, a choice with a seed, is stored in the directory once it is computed, so that a
    sweep that was stopped resumes and a larger grid computes only what is new. `results.json` and
    `results.csv` there hold what is returned: `choices`, the best first, each with `settings` and,
    over the seeds, the `mean`, `std` and `per_seed` of every validation metric. Test events decide
    nothing; with `test` the best settings are afterwards evaluated on them, once, by `evaluate`.

    grid: names of settings and the values to try; settings: those that all choices share.
    metric: by which choices are ordered.
    engine: "local" computes one cell after the other, "ray" several at a time, each on one core.
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
    resume_or_create(
        directory, about, file="sweep.json", kind="a sweep", advice="give another directory"
    )
    choices = list(_choices(grid))
    shared = dict(settings or {})
    threads = 1 if engine == "ray" else None
    common = _Common(stream, directory.absolute(), protocol, threads)
    cells = [{"settings": shared | choice, "seed": seed} for choice in choices for seed in seeds]
    paths = [common.path("cell", **cell) for cell in cells]
    run(
        _compute,
        common,
        {path.stem: cell for path, cell in zip(paths, cells, strict=True) if not path.exists()},
        directory,
        engine=engine,
        address=address,
        workers=workers,
        progress=progress,
    )
    found = [read_json(path) for path in paths]
    per_choice = [found[first : first + len(seeds)] for first in range(0, len(found), len(seeds))]
    rows = [_row(choice, runs) for choice, runs in zip(choices, per_choice, strict=True)]
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
        best = shared | rows[0]["settings"]
        file = common.path("test", settings=best, seeds=list(seeds))
        if not file.exists():
            options: dict[str, Any] = {"protocol": protocol, "seeds": seeds, "progress": progress}
            write_json(file, evaluating.evaluate(stream, settings=best, **options))
        results["test"] = read_json(file)
    write_json(directory / "results.json", results)
    replace_file(directory / "results.csv", _as_csv(rows, list(grid)))
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
    """Raise ParameterError for arguments of `sweep` that are wrong whatever the events are."""
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
        evaluating.check_evaluation(protocol, seeds=seeds, settings={**(settings or {}), **choice})


def _choices(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _compute(common: _Common, cell: dict[str, Any], progress: Progress) -> None:
    found = evaluating.validate(
        common.stream,
        protocol=common.protocol,
        threads=common.threads,
        progress=progress,
        **cell,
    )
    write_json(common.path("cell", **cell), {**cell, **found})


def _row(choice: dict[str, Any], cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    metrics = {
        metric: mean_and_spread([cell["metrics"][metric] for cell in cells])
        for metric in cells[0]["metrics"]
    }
    seconds = sum(cell["elapsed_s"]["total"] for cell in cells)
    events = cells[0]["events"]
    return {
        "settings": choice,
        "metrics": metrics,
        "events": events,
        "elapsed_s": round(seconds, 3),
    }


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
