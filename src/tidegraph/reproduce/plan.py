"""Targets: which cells a table or figure needs, and how their results become rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tidegraph.evaluation import best_heuristic
from tidegraph.reproduce import data, figures
from tidegraph.reproduce.cells import Cell
from tidegraph.reproduce.page import HEURISTIC, NOT_YET, OURS, Row, Table, Value

Measure: TypeAlias = tuple[str, str]  # sampler, metric
Name: TypeAlias = tuple[str, str]  # data set, model
HEURISTICS = "heuristics"  # the model of cells that learn nothing
_FAST = {"columns": 8, "window": 2, "width": 16, "hidden": 16, "epochs": 1}
_FAST |= {"batch_size": 256, "max_examples": 1500}
_ALL_OF_TRAIN = {"max_examples": 10**9}  # as TGN does; the default is fewer than Reddit has


@dataclass(frozen=True)
class Target:
    """One table or figure: the cells it needs, and their layout."""

    name: str
    plan: Callable[[Plan], None]
    tables: Callable[[Found], list[Table]]
    draw: Callable[[list[Table], Found, Path], None] = lambda tables, _, path: figures.dots(
        tables[0], path
    )
    _: KW_ONLY
    title: str
    description: str
    notes: tuple[str, ...] = ()
    seeds: int = 3  # how many by default
    summary: str = ""  # in the help of the command


class Plan:
    """The cells of a target, by data set and model."""

    def __init__(self, seeds: Sequence[int], *, fast: bool) -> None:
        self.fast = fast
        self.cells: dict[Name, list[Cell]] = {}
        self.absent: dict[str, str] = {}  # why, by data set
        self._seeds = seeds

    def models(
        self, kind: str, names: Iterable[str], model: str, preset: str, **changes: Any
    ) -> None:
        """Add a model with the settings of a preset on several data sets.

        kind: `events`, links one by one under TGN's split, all training events in an epoch;
            `snapshots`, links of the next one under ROLAND's fixed split; `nodes`, their classes.
        """
        from tidegraph.learning.tasks import LinkPredictor, NodeClassifier

        estimator = NodeClassifier if kind == "nodes" else LinkPredictor
        for name in names:
            whose: str | None = data.original(name)
            settings = {**(_ALL_OF_TRAIN if kind == "events" else {}), **changes}
            if kind == "nodes" and name in data.NODE_TASKS:
                task = data.NODE_TASKS[name]
                whose = task.paper if preset.startswith("paper") else name
                settings = {**task.settings, **changes}
            if self._is_here(name):
                settings |= _FAST if self.fast else {}
                self.add(
                    kind, name, model, estimator.preset(preset, whose, **settings).get_params()
                )

    def add(
        self,
        kind: str,
        name: str,
        model: str,
        settings: Mapping[str, Any],
        *,
        seeds: Sequence[int] | None = None,
    ) -> None:
        """Add cells of any kind, one per seed; none if the data is absent."""
        if not self._is_here(name):
            return
        # The cell has its own seed; the others do not change the result.
        relevant = {
            key: value
            for key, value in settings.items()
            if key not in ("seed", "path", "knowledge", "threads", "device")
        }
        self.cells[name, model] = [
            Cell(kind, name, seed, relevant) for seed in (self._seeds if seeds is None else seeds)
        ]

    def _is_here(self, name: str) -> bool:
        why = data.absent(name)
        if why is not None:
            self.absent[name] = why
        return why is None


@dataclass(frozen=True)
class Column:
    """The numbers under one heading."""

    title: str
    data: str
    part: str = "all"
    measure: Measure | None = None  # if not that of the row


class Found:
    """The results of a plan's cells so far."""

    def __init__(self, results: Mapping[Name, list[dict[str, Any]]], plan: Plan) -> None:
        self._results = results
        self.absent = plan.absent
        self.fast = plan.fast

    def values(self, name: str, model: str, *path: str) -> list[float]:
        """Return a number of every seed by its path in the results; the mean of a list."""
        found = []
        for result in self._results.get((name, model), []):
            at: Any = result
            for key in path:
                at = at.get(key) if isinstance(at, dict) else None
            if at is not None:
                found.append(statistics.fmean(at) if isinstance(at, list) else float(at))
        return found

    def value(self, name: str, model: str, path: Sequence[str], metric: str) -> Value:
        """Return the mean over seeds, or the reason why there is none."""
        values = self.values(name, model, *path)
        if values:
            return Value.of(values, metric)
        return Value(self.absent.get(name, NOT_YET))

    def rows(
        self, columns: Sequence[Column], models: Iterable[str], *measures: Measure
    ) -> list[Row]:
        """Return a row for every model under every measure."""

        def value(model: str, column: Column, sampler: str, metric: str) -> Value:
            path = ("metrics", sampler, column.part, metric)
            return self.value(column.data, model, path, metric)

        return [_row(m, OURS, columns, measure, value) for m in models for measure in measures]

    def best_heuristics(
        self, columns: Sequence[Column], *measures: Measure, model: str = HEURISTICS
    ) -> list[Row]:
        """Return a row with the best heuristic of every column, by name."""

        def value(_: str, column: Column, sampler: str, metric: str) -> Value:
            results = self._results.get((column.data, model), [])
            if not results:
                return Value(self.absent.get(column.data, NOT_YET))
            best = best_heuristic(results[0]["rules"], sampler, column.part, metric)
            if best is None:
                return Value("undefined")
            return Value.of([best[1]], metric, note=f"({best[0]})")

        name = "the best heuristic"
        return [_row(name, HEURISTIC, columns, measure, value) for measure in measures]


def _row(
    name: str,
    whose: str,
    columns: Sequence[Column],
    measure: Measure,
    value: Callable[[str, Column, str, str], Value],
) -> Row:
    """Return a row of values under its own measure, or that of the column."""
    values = {each.title: value(name, each, *(each.measure or measure)) for each in columns}
    sampler, metric = measure
    if sampler == "none":
        return Row(name, whose, "", metric, values)
    knowledge = "snapshot" if sampler == "all-nodes" else "event"
    return Row(name, whose, sampler, metric, values, knowledge)
