"""HTML by construction: whatever is not markup already is escaped, so names may hold anything."""

from __future__ import annotations

import html
from typing import Any

__all__ = ["Html", "details", "document", "element", "join", "table", "unbroken"]


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


_VOID = ("meta", "br", "col")


def element(name: str, /, *content: Any, **attributes: Any) -> Html:
    """An element; None among the content or the attributes is left out, lists are joined.

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
    """All of it, one after the other."""
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
    """A table that scrolls by itself where it is wider than the page.

    From column `numbers` on (all but the first by default) cells stand to the right.
    """
    first = 1 if numbers is None else numbers
    kinds = [None if k < first else "number" for k in range(len(head))]
    lines = [
        element(
            "tr",
            [
                element("td" if k else "th", cell, class_=kind, scope=None if k else "row")
                for k, (cell, kind) in enumerate(zip(row, kinds, strict=True))
            ],
        )
        for row in rows
    ]
    top = [
        element("th", cell, class_=kind, scope="col")
        for cell, kind in zip(head, kinds, strict=True)
    ]
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", top)) if any(head) else None,
            element("tbody", lines),
        ),
        class_="scroll",
        tabindex="0",  # so that the keyboard can scroll it
    )


def unbroken(text: str) -> Html:
    """Words that a narrow page divides between, and not within."""
    words = [element("span", word, class_="whole") for word in text.split(" ")]
    return element("span", [part for word in words for part in (word, " ")][:-1])


def details(summary: str, *content: Any) -> Html:
    """What is shown on request."""
    return element("details", element("summary", summary), *content)


def document(title: str, *content: Any) -> str:
    """A whole page that needs nothing from outside."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(_STYLE)),
    )
    body = element("body", element("main", *content))
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


# Colours of series are chosen to be told apart by most eyes, in both schemes.
_LIGHT = """--ink: #1d2530; --soft: #596575; --line: #dfe3e8; --paper: #ffffff; --card: #f6f7f9;
  --good: #14713d; --bad: #a8341c;
  --c0: #1f66b0; --c1: #c2570c; --c2: #15805f; --c3: #9a3f93; --c4: #8a6d00; --c5: #3b8fb8;
  --c6: #8b929c;"""
_DARK = """--ink: #e5e9ef; --soft: #9ca7b5; --line: #333b46; --paper: #13171c; --card: #1b2027;
  --good: #66cc8f; --bad: #f09a80;
  --c0: #6aaef2; --c1: #f0975a; --c2: #55c9a1; --c3: #d990d2; --c4: #d9bd4f; --c5: #86cfee;
  --c6: #7d8794;"""
_STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }}
body {{ margin: 0; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  overflow-wrap: anywhere; }}
main {{ max-width: 62rem; margin: 0 auto; padding: 2.5rem 1rem 4rem; }}
h1 {{ font-size: 1.75rem; line-height: 1.2; margin: 0 0 .4rem; font-weight: 650; }}
h2 {{ font-size: 1.2rem; line-height: 1.3; margin: 3rem 0 .25rem; padding-top: 1rem;
  border-top: 1px solid var(--line); font-weight: 650; }}
h3 {{ font-size: 1rem; line-height: 1.35; margin: 0; font-weight: 600; }}
p {{ margin: .4rem 0; max-width: 46rem; }}
.soft, figcaption p, summary {{ color: var(--soft); }}
figcaption p, summary, .small {{ font-size: .875rem; line-height: 1.45; }}
.cards {{ display: grid; gap: .75rem; margin: 1.25rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); }}
.card {{ background: var(--card); border-radius: .5rem; padding: .9rem 1rem; }}
.card p {{ margin: 0; font-size: .875rem; line-height: 1.45; }}
.card .value {{ font-size: 2rem; line-height: 1.25; font-weight: 650;
  font-variant-numeric: tabular-nums; }}
.card .value small {{ font-size: 1rem; font-weight: 400; color: var(--soft); }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }}
.verdict {{ font-size: 1.1rem; line-height: 1.5; }}
.note {{ border-left: 3px solid var(--bad); padding-left: .75rem; }}
.figures {{ display: grid; gap: 2rem 2.5rem; margin: 1.25rem 0; align-items: start;
  grid-template-columns: minmax(0, 1fr); }}
figure {{ margin: 0; min-width: 0; }}
figcaption {{ margin-bottom: .5rem; }} figcaption p {{ margin: .15rem 0; }}
svg {{ display: block; width: 100%; height: auto; max-width: 34rem; }}
svg text {{ fill: var(--soft); font-size: 12px; font-family: inherit; paint-order: stroke;
  stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }}
svg .grid {{ stroke: var(--line); stroke-width: 1; }}
svg .rule {{ stroke: var(--soft); stroke-width: 1; stroke-dasharray: 4 3; fill: none; }}
svg .curve {{ stroke: currentColor; stroke-width: 1.8; fill: none; stroke-linejoin: round; }}
svg .mark {{ fill: currentColor; }}
svg .faint {{ fill: currentColor; fill-opacity: .65; }}
svg .hollow {{ stroke: var(--soft); stroke-width: 1.3; fill: none; }}
{" ".join(f".c{k} {{ color: var(--c{k}); }}" for k in range(7))}
.legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: 0;
  margin: 0 0 .4rem; font-size: .8125rem; line-height: 1.5; }}
.legend li::before {{ content: ""; display: inline-block; width: .7rem; height: .7rem;
  border-radius: .2rem; background: currentColor; margin-right: .4rem; vertical-align: -.05rem; }}
.legend span {{ color: var(--ink); }}
@media (min-width: 54.5rem), print {{ /* two beside each other, of 25rem at least on a screen */
  .figures {{ grid-template-columns: repeat(2, minmax(0, 1fr)); }}
  .figures > figure:last-child:nth-child(odd) {{ grid-column: 1 / -1; }}
  /* A picture left over stands in the middle; one all alone has its words beside it. */
  .figures > figure:has(> svg):last-child:nth-child(odd):not(:only-child) {{
    width: calc(50% - 1.25rem); justify-self: center; }}
  .figures > figure:has(> svg):only-child {{ display: grid; column-gap: 2.5rem;
    grid-template: auto auto 1fr / repeat(2, minmax(0, 1fr)); }}
  .figures > figure:has(> svg):only-child > * {{ grid-column: 1; }}
  .figures > figure:has(> svg):only-child > svg {{ grid-column: 2; grid-row: 1 / span 4; }} }}
.scroll {{ overflow-x: auto; max-width: 100%; }}
table {{ border-collapse: collapse; font-size: .875rem; line-height: 1.4; margin: .5rem 0;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0;
  border-bottom: 1px solid var(--line); }}
td {{ overflow-wrap: anywhere; min-width: 4rem; }}
.whole {{ white-space: nowrap; }}
th {{ font-weight: 500; color: var(--soft); }}
th.number, td.number {{ text-align: right; padding: .3rem 0 .3rem 1rem; white-space: nowrap; }}
.changed {{ font-weight: 650; }}
details {{ margin: .5rem 0; }} summary {{ cursor: pointer; }}
pre {{ background: var(--card); border-radius: .5rem; padding: .75rem 1rem; overflow-x: auto;
  font-size: .875rem; line-height: 1.5; margin: .5rem 0; white-space: pre-wrap; }}
code, pre {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }}
.share {{ display: flex; height: .7rem; border-radius: .2rem; overflow: hidden; margin: .5rem 0;
  background: var(--line); }}
.share i {{ background: currentColor; display: block; }}
.share b {{ background: var(--ink); flex: none; width: 2px; margin: 0 2px; }}
@media (max-width: 40rem) {{ main {{ padding-top: 1.25rem; }} h1 {{ font-size: 1.4rem; }}
  .card .value {{ font-size: 1.75rem; }} }}
@media print {{ :root {{ color-scheme: light; {_LIGHT} }}
  body {{ font-size: 10pt; }} main {{ max-width: none; padding: 0; }}
  figure, .card, tr {{ break-inside: avoid; }} h2, h3, figcaption {{ break-after: avoid; }}
  svg {{ max-width: none; }} }}
"""
