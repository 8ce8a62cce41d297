"""How a long task reports what it has done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Progress", "prefixed", "silent"]

Progress: TypeAlias = Callable[[int, int, str], None]  # done, of how many, what is going on


def silent(done: int, total: int, what: str) -> None:
    """Progress that nobody wants to see."""


def prefixed(report: Progress, prefix: str) -> Progress:
    """The same, which says something before what is going on."""
    return lambda done, total, what: report(done, total, prefix + what)
