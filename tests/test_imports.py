"""The package is layered, and its front door is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tidegraph"

# A module imports only from lines above its own. Modules on one line do not know each other.
LAYERS = [
    {"errors", "provenance"},
    {"durable"},
    {"events", "channels", "statefile", "segments", "terminal", "past", "workers"},
    {"stream"},
    {"tables", "evaluation", "edge_features"},
    {"formats", "names"},
    {"datasets", "describe"},
    {"_native"},
    {"compact"},
    {"building", "reference", "propagation", "history"},
    {"recording"},
    {"trajectories", "models", "training", "passes"},
    {"shards"},
    {"features"},
    {"tasks"},
    {"experiment"},
    {"sweep"},
    {"verify", "explanation"},
    {"bench", "demo", "report"},
    {"reproduce", "config"},
    {"runs"},
    {"cli_data"},
    {"cli_explain", "cli_learn", "cli_record", "cli_reproduce", "cli_scale"},
    {"cli_run", "cli_sweep"},
    {"cli"},
    {"__main__"},
]
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}
# Each takes longer to import than all of tidegraph: imported inside the functions that need it.
HEAVY = ["matplotlib", "pyarrow", "ray", "scipy", "sklearn", "torch"]


def module_of(path: Path) -> str:
    """The module or sub-package directly under tidegraph to which a file belongs."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


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
            full_names = [f"{prefix}.{alias.name}" for alias in node.names]
        else:
            continue
        for full_name in full_names:
            top, _, rest = f"{full_name}.".partition(".")
            if top == "tidegraph":
                yield node.lineno, rest.partition(".")[0]


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_from_the_layers_below_its_own(path: Path) -> None:
    own = module_of(path)
    assert own in RANK, f"{own} has no place in LAYERS yet: give it one"
    for line, module in imported(path):
        # What is not in RANK is a name of the public face, which is made of everything.
        assert module == own or RANK.get(module, len(LAYERS)) < RANK[own], (
            f"{path.name}:{line} imports tidegraph.{module}, which is not below {own}"
        )


def test_importing_tidegraph_imports_nothing_heavy() -> None:
    code = f"import sys, tidegraph; print(*sorted(sys.modules.keys() & set({HEAVY})))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
