"""The paper's tables with our own numbers: measured, stored, printed and drawn.

May import from every package but `cli`, which alone imports it.
"""

from __future__ import annotations

from tidegraph.reproduce.driver import OVERVIEW, reproduce
from tidegraph.reproduce.page import Table
from tidegraph.reproduce.plan import Target
from tidegraph.reproduce.targets import TARGETS

__all__ = ["OVERVIEW", "TARGETS", "Table", "Target", "reproduce"]
