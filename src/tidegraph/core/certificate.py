"""The certificate that a node was forgotten, as JSON and as a page, and the search for its name."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidegraph.core.durable import replace_file
from tidegraph.core.palette import SCHEMES
from tidegraph.core.words import bytes_in_words, counted

_CHANCE = 1e-3  # a text so short that it occurs by chance proves nothing by occurring
_CHUNK = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What an audit has found.

    found: files that contain the name, by its bytes, other than as part of another name.
    by_chance: how often so short a text occurs by chance in so many bytes; where that is not next
        to never, `found` does not count.
    nameless_rows: events of nodes that have no name any more; those of a forgotten node would be.
    ratio: the largest distance between a representation and the one computed anew without the
        node, over twice the bound.
    remains: what was learned from events before, which no search can find.
    """

    node: str
    directory: str
    audited: str
    tidegraph: str
    files: int
    bytes: int
    found: list[str]
    by_chance: float
    known: bool
    nameless_rows: int
    events: int
    nodes: int
    rebuilt_from: str
    ratio: float
    largest_distance: float
    forgotten: int
    remains: dict[str, Any]

    @property
    def holds(self) -> bool:
        """Whether nothing of the node is left but what `remains`."""
        hidden = not self.found or self.by_chance > _CHANCE
        return hidden and not self.known and not self.nameless_rows and self.ratio <= 1

    def plain(self) -> dict[str, Any]:
        """Return the certificate in plain types; None for what is infinitely far."""
        found = {"holds": self.holds, **asdict(self)}
        far = ("ratio", "largest_distance")
        return found | {name: None for name in far if math.isinf(found[name])}

    def write(self, path: Path) -> list[Path]:
        """Write the certificate as JSON and as a page next to it; return both paths."""
        page = path.with_suffix(".html")
        replace_file(path, json.dumps(self.plain(), indent=2, ensure_ascii=False) + "\n")
        replace_file(page, self.page())
        return [path, page]

    def page(self) -> str:
        """Return the certificate as one page."""
        short = f" (so short a text occurs {self.by_chance:.3g} times by chance)"
        models = self.remains["models"]
        rows = {
            "Directory": self.directory,
            "Audited": f"{self.audited}, tidegraph {self.tidegraph}",
            "Searched": f"{counted(self.files, 'file')}, {bytes_in_words(self.bytes)}",
            "Files with the name": (", ".join(self.found) or "none")
            + (short if self.by_chance > _CHANCE else ""),
            "Known as a node": "yes" if self.known else "no",
            "Events of nodes without a name": f"{self.nameless_rows:,}",
            "Computed anew without it": f"{counted(self.nodes, 'node')} from"
            f" {counted(self.events, 'event')}, {self.rebuilt_from}",
            "Largest distance": f"{self.largest_distance:.3g}, {self.ratio:.3g} of what twice the"
            " bound allows",
            "Nodes forgotten in all": str(self.forgotten),
            "What remains": f"weights learned from events before: {', '.join(models)}"
            if models
            else "nothing: no model is kept that was trained before",
        }
        cells = "\n".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in rows.items()
        )
        verdict, colour = ("is forgotten", "good") if self.holds else ("is not forgotten", "bad")
        name = html.escape(self.node)
        return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name} {verdict}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{SCHEMES}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 46rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.4rem; color: var(--{colour}); }}
th {{ text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; color: var(--soft);
  font-weight: normal; }} td {{ padding: .3rem 0; }} table {{ border-collapse: collapse; }}
</style></head><body><h1>{name} {verdict}</h1><table>
{cells}
</table></body></html>
"""


def files_with(files: Iterable[Path], name: str, *, whole: bool = False) -> list[Path]:
    """Return the files with a name among their bytes, as any of our files would have it, or in
    their own names.

    whole: whether letters and digits right before or after it make it another name.
    """
    texts = {name, json.dumps(name)[1:-1], html.escape(name)}
    spelled = {text.encode() for text in texts} | {name.encode("utf-16-le")}
    ends = (rb"(?<![\w.])", rb"(?![\w.])") if whole else (b"", b"")
    pattern = re.compile(ends[0] + b"(?:" + b"|".join(map(re.escape, spelled)) + b")" + ends[1])
    overlap = max(map(len, spelled)) + 1
    return [
        file
        for file in files
        if pattern.search(file.name.encode(errors="replace")) or _occurs(pattern, file, overlap)
    ]


def _occurs(pattern: re.Pattern[bytes], file: Path, overlap: int) -> bool:
    before = b""
    with open(file, "rb") as opened:
        while chunk := opened.read(_CHUNK):
            if pattern.search(before + chunk):
                return True
            before = (before + chunk)[-overlap:]
    return False
