"""Reproduce a target: measure and store its cells one by one, and write its page and figure."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegraph.bench.results import circumstances, write_json
from tidegraph.core import machine
from tidegraph.core.durable import replace_file
from tidegraph.core.errors import ParameterError
from tidegraph.core.progress import Progress, silent
from tidegraph.core.provenance import code_digest
from tidegraph.core.resume import read_json
from tidegraph.reproduce.cells import Cell, Workplace, fingerprint, measure
from tidegraph.reproduce.claims import overview
from tidegraph.reproduce.page import Table, page
from tidegraph.reproduce.plan import Found, Plan, Target

_STEPS_PER_CELL = 100  # of progress
_FIGURE = "figure.svg"
OVERVIEW = "overview.md"  # of all targets in a directory


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
    """Measure missing cells, and write `results.json`, a page and a figure.

    They are written to `output / target.name`, next to an overview of all targets. Every cell is
    stored in `output / "cells"` as soon as it is measured, named by a fingerprint of its settings,
    data and version, and shared by all targets: repeat a call that was interrupted to resume it.
    Cells measured by other code are measured again.

    budget_s: no cell is begun after so many seconds; the tables show what is there.
    older: use cells that an earlier state of the code measured; the page lists the commits.
    """
    begun = time.monotonic()
    seeds = _seeds(target, seeds, fast)
    plan = Plan(seeds, fast=fast)
    target.plan(plan)
    stored, here = output / "cells", output / target.name
    for directory in (stored, here):
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidegraph-reproduce-") as records:
        workplace = Workplace(Path(records), fast=fast)
        # By seed, so that a budget leaves no gaps, then by shared store.
        ordered = sorted(
            (cell for cells in plan.cells.values() for cell in cells),
            key=lambda cell: (cell.seed, cell.data, cell.kind, cell.recorded),
        )
        paths = {cell: stored / _file_name(cell, workplace) for cell in ordered}
        # Two models may need the same cell.
        todo = {path: cell for cell, path in paths.items() if not _is_current(path, older)}
        _measure_all(todo, workplace, budget_s, command, progress or silent)
        there = {cell: path for cell, path in paths.items() if _is_current(path, older)}
        streams = {cell.data: workplace.stream(cell) for cell in there}
    results = {
        name: [read_json(there[cell]) for cell in cells if cell in there]
        for name, cells in plan.cells.items()
    }
    found = Found(results, plan)
    tables = target.tables(found)
    figure = here / _FIGURE
    target.draw(tables, found, figure)
    cells = [result for each in results.values() for result in each]
    everything = {
        "target": target.name,
        "title": target.title,
        "description": target.description,
        "fast": fast,
        "seeds": list(seeds),
        "notes": list(target.notes),
        "missing": [
            f"{model} on {name}: {len(results[name, model])} of {len(planned)} seeds"
            for (name, model), planned in plan.cells.items()
            if len(results[name, model]) < len(planned)
        ],
        "absent": plan.absent,
        "data": {
            name: {"title": stream.title, "events": len(stream), "nodes": stream.nodes}
            | {"digest": stream.digest()}
            for name, stream in streams.items()
        },
        "trained_against": {
            model: each[0]["training_negatives"]
            for (_, model), each in results.items()
            if each and "training_negatives" in each[0]
        },
        "cells": len(cells),
        "elapsed_s": round(sum(sum(cell["elapsed_s"].values()) for cell in cells), 1),
        "commits": sorted({cell["commit"][:10] for cell in cells if cell["commit"]}),
        **circumstances(command),
        "tables": [table.plain() for table in tables],
        "files": sorted({path.name for path in there.values()}),
        "spent_s": round(time.monotonic() - begun, 1),
    }
    write_json(everything, here / "results.json")
    replace_file(here / "README.md", page(everything, tables, _FIGURE))
    replace_file(output / OVERVIEW, overview(output))
    return everything, tables


def _seeds(target: Target, seeds: Sequence[int] | None, fast: bool) -> Sequence[int]:
    if seeds is None:
        return range(1 if fast else target.seeds)
    if len(seeds) == 0 or len(set(seeds)) != len(seeds):
        raise ParameterError(f"seeds are {list(seeds)}; give at least one, without repetition")
    return seeds


def _file_name(cell: Cell, workplace: Workplace) -> str:
    return f"{cell.kind}-{cell.data}-{cell.seed}-{fingerprint(cell, workplace)}.json"


def _is_current(path: Path, older: bool) -> bool:
    return path.exists() and (older or read_json(path)["code"] == code_digest())


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
        measured = measure(cell, workplace, report)
        write_json(
            {
                "kind": cell.kind,
                "data": cell.data,
                "seed": cell.seed,
                "settings": dict(cell.settings),
                "fast": workplace.fast,
                **measured,
                "load_average": {"before": load, "after": machine.load_average()},
                "code": code_digest(),
                **circumstances(command),
            },
            path,
        )
