"""The package is layered, and its front door is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tidegraph"

# A file imports only from packages on lines above its own package, and within its package only from
# modules on lines above its own. Modules on one line do not know each other, and a package's
# __init__.py, which stands for the package, comes after all that is inside.
LAYERS: dict[str, list[str]] = {
    "core": [
        "errors progress machine palette provenance words",
        "declarations durable display workers",
        "certificate resume statefile",
    ],
    "events": [
        "columns read_report",
        "moments names notebook past vocabulary",
        "batch",
        "steps",
        "stream",
        "describe own_columns tables.advice tables.cells",
        "tables.source tables.whole",
        "tables.text",
        "tables.sources tables.numbering tables.times",
        "tables.columns",
        "tables.rows",
        "tables",
        "formats.objects node_tables stored_names",
        "formats.files",
        "formats",
        "alike",
        "datasets.registry datasets.storage",
        "datasets.generators.draws",
        "datasets.generators.communities datasets.generators.gdelt datasets.generators.mag",
        "datasets.generators",
        "datasets",
    ],
    "_native": [],
    "engine": [
        "adjoint channels compact",
        "embeddings precision spooling",
        "building features planning saving",
        "bridge reference",
        "base_graph",
        "propagator",
        "attribution passes verify",
        "explanation",
    ],
    "store": [
        "segments",
        "manifest",
        "queries writer",
        "recording",
        "trajectories",
        "shards",
    ],
    "evaluation": [
        "memory metrics negatives splits verdicts",
        "heuristics results",
        "event_heuristics protocols.classes protocols.scoring",
        "protocols.events protocols.link_events protocols.nodes",
        "protocols.ranking protocols.snapshots",
        "protocols",
    ],
    "learning": [
        "history_file inference settings",
        "history models presets training",
        "features local",
        "candidates",
        "tasks.recorded",
        "tasks.estimator tasks.node_features",
        "tasks.classifier tasks.event_features",
        "tasks.events tasks.link tasks.nodes",
        "tasks",
    ],
    "report": [
        "axes markup telemetry",
        "answering vocabulary",
        "observations",
        "figures run_files",
        "sections.answers sections.quality sections.stream",
        "sections.results",
        "sections",
        "comparison description",
    ],
    "runs": [
        "protocol stages",
        "trials",
        "config evaluating fitting",
        "directory estimate sweep training",
        "run",
        "forgetting",
    ],
    "live": [
        "answers api_page bodies columns failpoints guard order schemas settings",
        "client events log names snapshots",
        "ingesting intake state",
        "models movements",
        "quality questions sources versions",
        "live",
        "exporting feed forgetting metrics redis_source",
        "failures replica",
        "forwarding",
        "service",
        "serving",
        "cluster",
    ],
    "bench": [
        "disk graphs measuring plots results",
        "competitors",
        "live live_kills recomputing run_growth scaling streams",
        "live_load lost_writes",
    ],
    "reproduce": [
        "data texts tgn",
        "cells page",
        "claims figures",
        "plan",
        "driver targets",
    ],
    "cli": [
        "flights terminal",
        "options",
        "bench demo report reproduce results scale writing",
        "compare models node_classes",
        "embeddings reading",
        "append data explain forgetting ingest predict record serve verify",
        "evaluate run sweep train",
        "commands",
    ],
    "__main__": [],
}
# The place of every module, by its full name: that of its package, and its own within it.
RANK = {
    ".".join(filter(None, ("tidegraph", package, module))): (of_package, of_module)
    for of_package, (package, lines) in enumerate(LAYERS.items())
    for of_module, line in enumerate([*lines, ""])
    for module in line.split(" ")
}
# Each takes longer to import than all of tidegraph: imported inside the functions that need it.
HEAVY = ["matplotlib", "pyarrow", "ray", "scipy", "sklearn", "torch"]


def module_of(path: Path) -> str:
    """The full name of the module that a file holds."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module for every import of tidegraph's own, those inside functions included."""
    # The package a relative import of one dot starts from.
    here = ["tidegraph", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            full_names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) + 1 - node.level] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            # A module by its own name; any other name is one of the module it comes from.
            full_names = [
                name if (name := f"{prefix}.{alias.name}") in RANK else prefix
                for alias in node.names
            ]
        else:
            continue
        for full_name in full_names:
            if full_name.partition(".")[0] == "tidegraph":
                yield node.lineno, full_name


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_from_the_layers_below_its_own(path: Path) -> None:
    own = module_of(path)
    assert own in RANK, f"{own} has no place in LAYERS yet: give it one"
    for line, module in imported(path):
        # What is not in RANK is the public face, which is made of everything.
        assert RANK.get(module, (len(LAYERS), 0)) < RANK[own], (
            f"{path.name}:{line} imports {module}, which is not below {own}"
        )


def test_every_place_is_that_of_a_module() -> None:
    assert RANK.keys() - {"tidegraph._native"} == {module_of(path) for path in FILES}


@pytest.mark.parametrize(
    "name", ["tidegraph", *(f"tidegraph.{name}" for name in LAYERS if name != "__main__")]
)
def test_importing_a_package_imports_nothing_heavy(name: str) -> None:
    code = f"import sys, {name}; print(*sorted(sys.modules.keys() & set({HEAVY})))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []


def test_what_the_front_door_names_is_there_after_a_bare_import() -> None:
    code = (
        "import tidegraph\n"
        "for name in tidegraph.__all__: getattr(tidegraph, name)\n"
        "print(tidegraph.reference.__name__, tidegraph.evaluation.__name__, tidegraph.__version__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [
        "tidegraph.engine.reference",
        "tidegraph.evaluation",
        version("tidegraph"),
    ]
