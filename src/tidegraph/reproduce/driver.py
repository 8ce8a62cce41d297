"""What all targets share: cells are measured one by one, kept, and laid out as tables."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from tidegraph import bench
from tidegraph.core import machine
from tidegraph.core.durable import replace_file
from tidegraph.core.errors import ParameterError
from tidegraph.core.progress import Progress, silent
from tidegraph.core.provenance import code_digest
from tidegraph.evaluation import best_heuristic
from tidegraph.reproduce import data
from tidegraph.reproduce.cells import Cell, Workplace, fingerprint, measure
from tidegraph.reproduce.claims import overview
from tidegraph.reproduce.page import OURS, RULE, Row, Table, Value, page

__all__ = ["OVERVIEW", "Column", "Found", "Plan", "Target", "reproduce"]

Name: TypeAlias = tuple[str, str]  # data set, model
_RULES = "heuristics"  # as a model, for cells that learn nothing
_FAST = {
    "columns": 8,
    "window": 2,
    "width": 16,
    "hidden": 16,
    "epochs": 1,
    "batch_size": 256,
    "max_examples": 1500,
}
_ALL_OF_TRAIN = {"max_examples": 10**9}  # as TGN does; by default there are fewer than Reddit has
_STEPS_PER_CELL = 100  # of progress
_FIGURE = "figure.svg"
OVERVIEW = "overview.md"  # of all targets in a directory


@dataclass(frozen=True)
class Target:
    """One table or figure: which cells it needs, and how they are laid out."""

    name: str
    title: str
    description: str
    seeds: int  # how many, unless others are asked for
    plan: Callable[[Plan], None]
    tables: Callable[[Found], list[Table]]
    draw: Callable[[list[Table], Found, Path], None]
    notes: tuple[str, ...] = ()


class Plan:
    """The cells of a target, by data set and model."""

    def __init__(self, seeds: Sequence[int], *, fast: bool) -> None:
        self.fast = fast
        self.cells: dict[Name, list[Cell]] = {}
        self.absent: dict[str, str] = {}  # why, by data set
        self._seeds = seeds

    def events(self, names: Iterable[str], model: str, preset: str, **changes: Any) -> None:
        """Links one event after the other, under TGN's split; all of train is gone over."""
        for name in names:
            self._link("events", name, model, preset, {**_ALL_OF_TRAIN, **changes})

    def snapshots(self, names: Iterable[str], model: str, preset: str, **changes: Any) -> None:
        """Links of the next snapshot, under ROLAND's fixed split."""
        for name in names:
            self._link("snapshots", name, model, preset, changes)

    def nodes(self, names: Iterable[str], model: str, preset: str, **changes: Any) -> None:
        """Classes of nodes."""
        from tidegraph.learning.tasks import NodeClassifier

        for name in names:
            task = data.NODE_TASKS[name]
            whose = task.paper if preset.startswith("paper") else name
            settings = {**task.settings, **changes, **self._less()}
            self.add(
                "nodes", name, model, NodeClassifier.preset(preset, whose, **settings).get_params()
            )

    def rules(self, names: Iterable[str], kind: str) -> None:
        """What no learning achieves, once: `event-rules` or `snapshot-rules`."""
        for name in names:
            self.add(kind, name, _RULES, {}, seeds=(0,))

    def add(
        self,
        kind: str,
        name: str,
        model: str,
        settings: Mapping[str, Any],
        *,
        seeds: Sequence[int] | None = None,
    ) -> None:
        """Cells of any kind, one per seed; none where the data is not here."""
        why = data.absent(name)
        if why is not None:
            self.absent[name] = why
            return
        # A seed is the cell's own; the others have no influence on what comes out.
        kept = {
            key: value
            for key, value in settings.items()
            if key not in ("seed", "path", "threads", "device")
        }
        self.cells[name, model] = [
            Cell(kind, name, seed, kept) for seed in (self._seeds if seeds is None else seeds)
        ]

    def _link(
        self, kind: str, name: str, model: str, preset: str, changes: Mapping[str, Any]
    ) -> None:
        from tidegraph.learning.tasks import LinkPredictor

        settings = {**changes, **self._less()}
        whose = data.original(name)
        self.add(kind, name, model, LinkPredictor.preset(preset, whose, **settings).get_params())

    def _less(self) -> dict[str, Any]:
        return dict(_FAST) if self.fast else {}


@dataclass(frozen=True)
class Column:
    """Which numbers stand under a heading."""

    title: str
    data: str
    part: str = "all"
    measure: tuple[str, str] | None = None  # sampler and metric, where not the row's


class Found:
    """What the cells of a plan have shown so far."""

    def __init__(self, results: Mapping[Name, list[dict[str, Any]]], plan: Plan) -> None:
        self._results = results
        self.absent = plan.absent
        self.fast = plan.fast

    def values(self, name: str, model: str, *path: str) -> list[float]:
        """A number of every seed, by where it stands in a result."""
        found = []
        for result in self._results.get((name, model), []):
            at: Any = result
            for key in path:
                at = at.get(key) if isinstance(at, dict) else None
            if at is not None:
                found.append(float(at))
        return found

    def value(self, name: str, model: str, path: Sequence[str], metric: str) -> Value:
        """The mean over seeds, or the reason why there is none."""
        values = self.values(name, model, *path)
        if values:
            return Value.of(values, metric)
        return Value(self.absent.get(name, "not measured yet"))

    def mean_epoch(self, name: str, model: str) -> Value:
        """Seconds per epoch of training, the mean over all epochs of a seed."""
        results = self._results.get((name, model), [])
        if not results:
            return self.value(name, model, ["epoch_s"], "seconds")
        return Value.of([statistics.fmean(each["epoch_s"]) for each in results], "seconds")

    def rows(
        self, columns: Sequence[Column], models: Sequence[str], *measures: tuple[str, str]
    ) -> list[Row]:
        """A row for every model under every pair of sampler and metric."""
        return [
            Row(
                model,
                OURS,
                sampler,
                metric,
                {
                    column.title: self._of(column, model, column.measure or (sampler, metric))
                    for column in columns
                },
            )
            for model in models
            for sampler, metric in measures
        ]

    def _of(self, column: Column, model: str, measure: tuple[str, str]) -> Value:
        sampler, metric = measure
        path = ("metrics", sampler, column.part, metric)
        return self.value(column.data, model, path, metric)

    def best_rules(
        self, columns: Sequence[Column], *measures: tuple[str, str], model: str = _RULES
    ) -> list[Row]:
        """The best heuristic of every column, with its name."""
        return [
            Row(
                "the best heuristic",
                RULE,
                sampler,
                metric,
                {
                    column.title: self._best(column, model, column.measure or (sampler, metric))
                    for column in columns
                },
            )
            for sampler, metric in measures
        ]

    def _best(self, column: Column, model: str, measure: tuple[str, str]) -> Value:
        sampler, metric = measure
        results = self._results.get((column.data, model), [])
        if not results:
            return Value(self.absent.get(column.data, "not measured yet"))
        best = best_heuristic(results[0]["rules"], sampler, column.part, metric)
        if best is None:
            return Value("undefined")
        return Value.of([best[1]], metric, note=f"({best[0]})")


# Running ------------------------------------------------------------------------------------------


def reproduce(
    target: Target,
    output: Path,
    *,
    seeds: Sequence[int] | None = None,
    fast: bool = False,
    budget_s: float | None = None,
    older: bool = False,
    command: str = "tidegraph.reproduce",
    progress: Progress | None = None,
) -> tuple[dict[str, Any], list[Table]]:
    """Measures what is missing, and writes `results.json`, a page and a figure.

    They are written to `output / target.name`, and an overview of all targets beside it. Every
    cell is kept in `output / "cells"` as soon as it is measured, under a hash of its settings, its
    data and the version, and is shared by all targets: a run that was stopped goes on where it
    was. A cell of other code is measured anew.

    budget_s: after so many seconds no cell is begun; what is there is laid out.
    older: cells that an earlier state of the code measured count too; the page names its commits.
    """
    begun = time.monotonic()
    seeds = _seeds(target, seeds, fast)
    plan = Plan(seeds, fast=fast)
    target.plan(plan)
    kept, here = output / "cells", output / target.name
    for directory in (kept, here):
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidegraph-reproduce-") as records:
        workplace = Workplace(Path(records), fast=fast)
        paths = {cell: _path(kept, cell, workplace) for cell in _in_order(plan)}
        # The same cell may be asked for under two names.
        todo = {path: cell for cell, path in paths.items() if not _counts(path, older)}
        _measure_all(todo, workplace, budget_s, command, progress or silent)
        there = {cell: path for cell, path in paths.items() if _counts(path, older)}
        about = {cell.data: _about(workplace, cell) for cell in there}
    results = {
        name: [_read(there[cell]) for cell in cells if cell in there]
        for name, cells in plan.cells.items()
    }
    found = Found(results, plan)
    tables = target.tables(found)
    figure = here / _FIGURE
    target.draw(tables, found, figure)
    everything = _written(target, plan, results, seeds, command, about)
    everything["tables"] = [table.plain() for table in tables]
    everything["files"] = sorted({path.name for path in there.values()})
    everything["spent_s"] = round(time.monotonic() - begun, 1)
    bench.write(everything, here / "results.json")
    replace_file(here / "README.md", page(everything, tables, _FIGURE))
    replace_file(output / OVERVIEW, overview(output))
    return everything, tables


def _seeds(target: Target, seeds: Sequence[int] | None, fast: bool) -> Sequence[int]:
    if seeds is None:
        return range(1 if fast else target.seeds)
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise ParameterError(f"seeds are {list(seeds)}; give at least one, each once")
    return seeds


def _in_order(plan: Plan) -> list[Cell]:
    """Seed after seed, so that a budget leaves no hole; those that share a record together."""
    every = [cell for cells in plan.cells.values() for cell in cells]
    return sorted(every, key=lambda cell: (cell.seed, cell.data, cell.kind, cell.recorded))


def _path(directory: Path, cell: Cell, workplace: Workplace) -> Path:
    mark = fingerprint(cell, workplace)
    return directory / f"{cell.kind}-{cell.data}-{cell.seed}-{mark}.json"


def _counts(path: Path, older: bool) -> bool:
    return path.exists() and (older or _read(path)["code"] == code_digest())


def _measure_all(
    todo: Mapping[Path, Cell],
    workplace: Workplace,
    budget_s: float | None,
    command: str,
    progress: Progress,
) -> None:
    begun = time.monotonic()
    total = _STEPS_PER_CELL * len(todo)
    for number, (path, cell) in enumerate(todo.items()):
        if budget_s is not None and time.monotonic() - begun >= budget_s:
            return

        def report(share: float, what: str, number: int = number, cell: Cell = cell) -> None:
            about = f"cell {number + 1} of {len(todo)}: {cell.data}, seed {cell.seed}, {what}"
            progress(int(_STEPS_PER_CELL * (number + share)), total, about)

        report(0.0, "reading")
        load = machine.load_average()
        shown = measure(cell, workplace, report)
        bench.write(
            {
                "kind": cell.kind,
                "data": cell.data,
                "seed": cell.seed,
                "settings": dict(cell.settings),
                "fast": workplace.fast,
                **shown,
                "command": command,
                "machine": machine.describe(),
                "load_average": {"before": load, "after": machine.load_average()},
                "version": version("tidegraph"),
                "code": code_digest(),
                **bench._commit(),
            },
            path,
        )


def _written(
    target: Target,
    plan: Plan,
    results: Mapping[Name, list[dict[str, Any]]],
    seeds: Sequence[int],
    command: str,
    about: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    cells = [result for each in results.values() for result in each]
    missing = [
        f"{model} on {name}: {len(results[name, model])} of {len(cells)} seeds"
        for (name, model), cells in plan.cells.items()
        if len(results[name, model]) < len(cells)
    ]
    return {
        "target": target.name,
        "title": target.title,
        "description": target.description,
        "fast": plan.fast,
        "seeds": list(seeds),
        "notes": list(target.notes),
        "missing": missing,
        "absent": plan.absent,
        "data": about,
        "trained_against": {
            model: each[0]["training_negatives"]
            for (_, model), each in results.items()
            if each and "training_negatives" in each[0]
        },
        "cells": len(cells),
        "elapsed_s": round(sum(sum(cell["elapsed_s"].values()) for cell in cells), 1),
        "commits": sorted({cell["commit"][:10] for cell in cells if cell["commit"]}),
        "command": command,
        "machine": machine.describe(),
        "version": version("tidegraph"),
        **bench._commit(),
    }


def _about(workplace: Workplace, cell: Cell) -> dict[str, Any]:
    stream = workplace.stream(cell)
    return {
        "title": stream.title,
        "events": len(stream),
        "nodes": stream.nodes,
        "digest": stream.digest(),
    }


def _read(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result
