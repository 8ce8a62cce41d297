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


def _place(name: str) -> str:
    """Return where a file of the repository is in the site."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return PAGES.get(name, f"files/{name}")


def _target(page: Path, link: str) -> str | None:
    """Return the file that a link of a page leads to, relative to the repository."""
    return None if "://" in link else posixpath.relpath(os.path.abspath(page.parent / link), ROOT)


def _linked() -> set[str]:
    """Return the files outside docs/ that pages link to, and those that these link to."""
    found: set[str] = set()
    left = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in PAGES)]
    while left:
        page = left.pop()
        for _, link, _ in _LINK.findall(page.read_text(encoding="utf-8")):
            name = _target(page, link)
            if name is None or name in found or not _place(name).startswith("files/"):
                continue
            found.add(name)
            if name.endswith(".md"):
                left.append(ROOT / name)
    return found


def on_files(files: Files, config: Any) -> Files:
    """Add the documents of the repository, and the files that pages link to."""
    for name in sorted({*PAGES, *_linked()}):
        files.append(File.generated(config, _place(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the files of the site, and list the names no page of the API has."""
    here, folder = Path(page.file.abs_src_path), posixpath.dirname(page.file.src_uri) or "."

    def moved(match: re.Match[str]) -> str:
        before, link, after = match.groups()
        name = _target(here, link)
        return (
            match[0] if name is None else before + posixpath.relpath(_place(name), folder) + after
        )

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
