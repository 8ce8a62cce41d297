"""The commands, and what they print on a terminal.

It may import from every package, and none imports from it. Modules that are slow to import are
imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

from tidegraph.cli.commands import main

__all__ = ["main"]
