"""HTML by construction: everything that is not markup is escaped, so names may contain anything."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from tidegraph.core.palette import LIGHT, SCHEMES, SERIES_CLASSES


class Html(str):
    """Text that is markup."""

    __slots__ = ()


_VOID = ("meta", "br", "col")


def element(name: str, /, *content: Any, **attributes: Any) -> Html:
    """Return an element; None in its content or attributes is left out, lists are flattened.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(*content)}</{name}>")


def join(*content: Any) -> Html:
    """Concatenate content, escaping all that is not markup."""
    parts = []
    for item in content:
        if isinstance(item, Html):
            parts.append(str(item))
        elif isinstance(item, (list, tuple)):
            parts.append(str(join(*item)))
        elif item is not None:
            parts.append(html.escape(str(item)))
    return Html("".join(parts))


def table(head: list[Any], rows: list[list[Any]], *, numbers: int | None = None) -> Html:
    """Return a table that scrolls by itself if it is wider than the page.

    Cells from column `numbers` on (by default all but the first) are aligned to the right.
    """
    first = 1 if numbers is None else numbers
    kinds = [None if k < first else "number" for k in range(len(head))]

    def line(cells: list[Any], scopes: list[str | None]) -> Html:
        found = zip(cells, kinds, scopes, strict=True)
        return element(
            "tr", [element("th" if s else "td", c, class_=kind, scope=s) for c, kind, s in found]
        )

    top = element("thead", line(head, ["col"] * len(head))) if any(head) else None
    scopes = ["row", *[None] * (len(head) - 1)]
    content = element("table", top, element("tbody", [line(row, scopes) for row in rows]))
    return element("div", content, class_="scroll", tabindex="0")  # for the keyboard to scroll it


def unbroken(text: str) -> Html:
    """Return text that a narrow page breaks only between words."""
    words = [element("span", word, class_="whole") for word in text.split(" ")]
    return element("span", [part for word in words for part in (word, " ")][:-1])


def details(summary: str, *content: Any) -> Html:
    """Return content that is shown on request."""
    return element("details", element("summary", summary), *content)


def card(title: Any, *content: Any) -> Html:
    """Return content in a box below its title."""
    return element("div", element("p", title, class_="soft"), *content, class_="card")


def section(title: str, *content: Any, name: str) -> Html:
    """Return a section of the page with its heading."""
    return element("section", element("h2", title), *content, id=name)


def figures(*content: Any) -> Html:
    """Return figures in one column, or in two if the page is wide."""
    return element("div", *content, class_="figures")


def document(title: str, *content: Any) -> str:
    """Return a whole page that loads nothing from outside."""
    printed = f"@media print {{ :root {{ color-scheme: light; {LIGHT} }} }}"
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(f"{SCHEMES}{SERIES_CLASSES}\n{printed}\n{style}")),
    )
    body = element("body", element("main", *content))
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'
