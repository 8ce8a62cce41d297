"""What `mkdocs build` does besides rendering docs/: links to other files, the rest of the API.

Pages link to files of the repository as they lie (`../benchmarks/results/scale.json`), so that the
links work there too; here each such file becomes one of the site.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Documents of the repository that are pages of the site.
PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
_LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
_REST = "<!-- every public name that no other page has -->"


def _documents() -> list[Path]:
    return [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in PAGES)]


def _outside(page: Path) -> set[str]:
    """Return the files outside docs/ that a page links to, relative to the repository."""
    found = set()
    for _, target, _ in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name = os.path.relpath(page.parent / target, ROOT)
        if not name.startswith("docs" + os.sep) and name not in PAGES:
            found.add(name)
    return found


def on_files(files: Files, config: Any) -> Files:
    """Add the documents of the repository, and the files that pages link to."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for name in sorted(set().union(*(_outside(page) for page in _documents()))):
        uri = f"files/{name}"
        if name.endswith(".md"):
            uri += ".txt"  # a page would need a place in the navigation
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the files of the site, and list the names no page of the API has."""
    here = Path(page.file.abs_src_path)
    uri = page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if "://" in target:
            return match.group(0)
        name = os.path.relpath(here.parent / target, ROOT)
        if name in PAGES:
            place = PAGES[name]
        elif name.startswith("docs" + os.sep):
            place = os.path.relpath(name, "docs")
        else:
            place = f"files/{name}" + (".txt" if name.endswith(".md") else "")
        return f"{before}{posixpath.relpath(place, posixpath.dirname(uri) or '.')}{after}"

    markdown = _LINK.sub(moved, markdown)
    return markdown.replace(_REST, rest_of_the_api()) if _REST in markdown else markdown


def rest_of_the_api() -> str:
    """Return directives for the public names that no page in docs/api names."""
    import tidegraph

    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/api").glob("*.md"))
    named = set(re.findall(r"^::: tidegraph\.(\w+)", pages, flags=re.MULTILINE))
    left = [name for name in tidegraph.__all__ if name not in named and name != "__version__"]
    return (
        "\n\n".join(["## Other names", *(f"::: tidegraph.{name}" for name in left)]) if left else ""
    )
