"""Write the tables of settings in docs/parameters.md from their declarations, or check them.

python docs/parameters.py [--check]
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tidegraph.core.declarations import Setting, declared
from tidegraph.learning.settings import EventSettings, LinkSettings, NodeSettings
from tidegraph.runs.config import settings_by_key

PAGE = Path(__file__).with_name("parameters.md")
BLOCK = re.compile(r"(<!-- (\w+): written by docs/parameters\.py -->\n).*?(<!-- end -->)", re.S)


def table(settings: Mapping[str, Setting]) -> str:
    """Return a table with a row per setting."""
    rows = [
        "| parameter | meaning | default | accepts | when to change it |",
        "|---|---|---|---|---|",
    ]
    for name, each in settings.items():
        default = each.default if isinstance(each.default, str) else json.dumps(each.default)
        shown = "none" if each.default is None else default
        cells = f"`{name}`", each.meaning, f"`{shown}`" if shown else "", each.accepted, each.advice
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def tables() -> dict[str, str]:
    """Return the tables of the page by name."""
    link, node, events = map(declared, (LinkSettings, NodeSettings, EventSettings))
    known = settings_by_key("link").items()
    return {
        "link": table(link),
        "node": table({name: each for name, each in node.items() if link.get(name) != each}),
        "events": table({name: each for name, each in events.items() if name not in node}),
        "run": table({key: each for key, each in known if not key.startswith("model.")}),
    }


def main() -> int:
    written = tables()
    before = PAGE.read_text(encoding="utf-8")
    after = BLOCK.sub(lambda found: found[1] + written[found[2]] + found[3], before)
    if "--check" in sys.argv[1:]:
        return int(after != before)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
