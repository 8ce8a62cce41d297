"""What an installation brings is what the package imports."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))
)
MODULES = {"scikit-learn": "sklearn", "py-tgb": "tgb"}  # where a package has another name
TOOLS = {"dev", "docs"}  # extras for those who change tidegraph: programs, not modules


def requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"]
    listed = [*PROJECT["dependencies"]]
    listed += [line for extra, lines in extras.items() if extra not in TOOLS for line in lines]
    return sorted({re.split(r"[<>=!;\[ ]", line)[0] for line in listed})


@pytest.mark.parametrize("package", requirements())
def test_every_requirement_is_imported(package: str) -> None:
    module = MODULES.get(package, package.replace("-", "_"))
    used = rf"(^\s*(import|from) [\w.]*\b{module}\b)|((import_module|find_spec)\(\"{module}\b)"
    assert re.search(used, SOURCES, flags=re.MULTILINE), f"nothing imports {package}"


def test_the_workflow_for_wheels_builds_the_versions_that_are_supported() -> None:
    workflow = (ROOT / ".github/workflows/wheels.yml").read_text(encoding="utf-8")
    oldest = PROJECT["requires-python"].removeprefix(">=").replace(".", "")
    built = re.findall(r"cp(\d+)-\*", workflow)
    assert built[0] == oldest
    stable = re.search(r'py-api = "cp(\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert stable is not None
    assert built[-1] == stable[1]  # the wheel of this version serves all later ones
