"""How streams, steps and batches appear in a notebook: facts, and their first and last rows."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any

from tidegraph.events.columns import Op

_SHOWN = 6  # rows, half of them from the end


def event_rows(
    events: Any, name: Callable[[int], Any] = int, time: Callable[[int], Any] = int
) -> list[dict[str, Any]]:
    """Return the first and last rows of anything with event columns, as cells by column.

    name, time: how to show a node number and a time.
    """
    count = len(events.src)
    at = [*range(count)] if count <= _SHOWN else [*range(3), *range(count - 3, count)]
    rows = []
    for row in at:
        cells = {"": row, "src": name(events.src[row]), "dst": name(events.dst[row])}
        if events.t is not None:
            cells["t"] = time(events.t[row])
        if events.weight is not None:
            cells["weight"] = f"{events.weight[row]:g}"
        if events.op is not None:
            cells["op"] = Op(events.op[row]).name
        rows.append(cells)
    return rows


def html_table(title: str, facts: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return a title, a line of facts and a table of rows as HTML."""

    def line(tag: str, cells: Any) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"

    shown = ", ".join(
        f"{name.replace('_', ' ')}: {f'{value:,}' if isinstance(value, int) else value}"
        for name, value in facts.items()
    )
    head = f"<p><strong>{html.escape(title)}</strong><br>{html.escape(shown)}</p>"
    if not rows:
        return head
    body = [line("td", cells.values()) for cells in rows]
    if len(rows) == _SHOWN and rows[-1][""] != _SHOWN - 1:
        body.insert(3, line("td", "…" * len(rows[0])))
    return f"{head}<table>{line('th', rows[0])}{''.join(body)}</table>"
