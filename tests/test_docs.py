"""The documentation shows what runs, leads somewhere, and leaves nothing public out."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.test_readme import write_calls

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [*PAGES, *sorted(ROOT.glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_calls(tmp_path / "calls.csv")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)


def commands(page: Path) -> list[str]:
    """Return the lines of a page's code blocks that call tidegraph in a shell."""
    text = page.read_text(encoding="utf-8")
    lines = "".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)).splitlines()
    lines += re.findall(r"^    (\S.*)", text, flags=re.MULTILINE)
    return [line for line in lines if line.startswith("tidegraph ")]


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if commands(page)], ids=name_of)
def test_commands_of_a_page_exist_and_know_their_options(page: Path) -> None:
    from tidegraph.cli import main

    for line in commands(page):
        command: click.Command = main
        words = shlex.split(line, comments=True)[1:]
        while isinstance(command, click.Group) and words:
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        unknown = {word for word in words if re.match(r"--?[a-z]", word)} - known - {"--help"}
        assert not unknown, line


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


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_setting_is_documented() -> None:
    from tidegraph import EventClassifier, LinkPredictor, NodeClassifier

    text = (DOCS / "parameters.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)`", text))
    for task in (LinkPredictor, NodeClassifier, EventClassifier):
        missing = {field.name for field in dataclasses.fields(task)} - documented
        assert not missing, f"docs/parameters.md lacks {missing} of {task.__name__}"


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_a_page_names_no_directory_of_the_machine_it_was_written_on(page: Path) -> None:
    assert "../shared" not in page.read_text(encoding="utf-8")


def test_where_to_change_what_names_one_existing_file_each() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    answers = re.findall(r"^\| \.\.\. (.+\?) \| `([^`]+)` \|$", text, flags=re.MULTILINE)
    assert len(answers) >= 20
    assert len(answers) == text.count("\n| ... ")
    for question, file in answers:
        assert (ROOT / file).is_file(), f"{question} {file} does not exist"


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_has_every_public_name(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'mkdocs<2'")
    import tidegraph

    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    api = "".join(page.read_text(encoding="utf-8") for page in (tmp_path / "api").glob("*.html"))
    for name in tidegraph.__all__:
        assert name == "__version__" or f'id="tidegraph.{name}"' in api, name
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r'(?:src|<link[^>]* href)="(?:https?:)?//[^"]+"', page.read_text("utf-8")
        )
        assert not loaded, f"{page.name} loads {loaded} from another host"


def test_measured_tables_of_scaling_are_those_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/scaling_results.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, (
        "run: python benchmarks/scaling_results.py"
    )


@pytest.mark.parametrize("page", ["protocols.md", "faq.md"])
def test_numbers_of_a_heuristic_are_those_of_the_last_benchmark(page: str) -> None:
    results = json.loads((ROOT / "benchmarks/results/link_prediction.json").read_bytes())
    heuristic = results["wikipedia"]["heuristics"]["memory+reverse+popularity"]
    text = (DOCS / page).read_text(encoding="utf-8")
    shown = re.findall(r"([\d.]+) %\s+\(`([a-z-]+)`\)", text)
    assert len(shown) >= 2
    for number, sampler in shown:
        assert number == f"{100 * heuristic[sampler]['all']['ap']:.1f}", sampler
