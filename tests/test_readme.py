"""README.md shows what runs, and is short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def write_calls(path: Path) -> None:
    """Write a month of calls among six people, out of order."""
    people = ["ann", "bob", "cem", "dan", "eve", "fay"]
    lines = ["caller,callee,when"]
    for call in range(200):
        pair = people[call % 6], people[(call % 6 + 1 + call % 5 // 4) % 6]
        lines.append(f"{','.join(pair)},2024-05-{1 + call % 28:02d}T{call // 28:02d}:00")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_calls(tmp_path / "calls.csv")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_results_are_those_of_the_last_benchmark() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/readme_results.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, (
        "run: python benchmarks/readme_results.py"
    )


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([a-z-]+)", README))))
def test_make_targets_exist(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_readme_is_short_and_shows_how_to_begin() -> None:
    assert len(README.splitlines()) <= 130
    assert "make demo" in README
    assert "make test" in README
    first = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert first is not None
    assert "nyc-flights" in first[1]  # data that everybody has
    assert len([line for line in first[1].splitlines() if line]) <= 10


@pytest.mark.parametrize("path", re.findall(r"!?\[[^\]]*\]\(([^)]+)\)", README))
def test_linked_files_exist(path: str) -> None:
    assert (ROOT / path).exists()
