"""What the documentation shows is what runs."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_readme import write_calls

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda p: p.name)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_calls(tmp_path / "calls.csv")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_runs(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 60
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_setting_is_documented() -> None:
    from tidegraph import LinkPredictor, NodeClassifier

    text = (ROOT / "docs/parameters.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(\w+)`", text))
    for task in (LinkPredictor, NodeClassifier):
        missing = {field.name for field in dataclasses.fields(task)} - told
        assert not missing, f"docs/parameters.md does not tell {task.__name__}'s {missing}"


def test_measured_tables_of_scaling_are_those_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/scaling_results.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, (
        "run: python benchmarks/scaling_results.py"
    )


@pytest.mark.parametrize("page", ["protocols.md", "faq.md"])
def test_numbers_of_a_heuristic_are_those_of_the_last_benchmark(page: str) -> None:
    results = json.loads((ROOT / "benchmarks/results/link_prediction.json").read_bytes())
    rule = results["wikipedia"]["heuristics"]["memory+reverse+popularity"]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    told = re.findall(r"([\d.]+) %\s+\(`([a-z-]+)`\)", text)
    assert len(told) >= 2
    for number, sampler in told:
        assert number == f"{100 * rule[sampler]['all']['ap']:.1f}", sampler
