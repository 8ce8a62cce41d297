"""The paper's tables with our own numbers: measured, stored, printed and drawn.

May import from every package but `cli`, which alone imports it.
"""

from __future__ import annotations

from tidegraph.reproduce import accuracy, studies
from tidegraph.reproduce.driver import OVERVIEW, reproduce
from tidegraph.reproduce.page import Table
from tidegraph.reproduce.plan import Target

__all__ = ["OVERVIEW", "TARGETS", "Table", "Target", "reproduce"]

TARGETS = {target.name: target for target in (*accuracy.TARGETS, *studies.TARGETS)}
