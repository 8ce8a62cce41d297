"""The paper's tables with our own numbers beside them: measured, kept, printed and drawn.

It may import from every package but `cli`.
"""

from __future__ import annotations

from tidegraph.reproduce.driver import OVERVIEW, Target, reproduce
from tidegraph.reproduce.page import Table
from tidegraph.reproduce.targets import TARGETS

__all__ = ["OVERVIEW", "TARGETS", "Table", "Target", "reproduce"]
