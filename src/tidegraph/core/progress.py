"""The callback through which a long task reports its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]  # done, total, current work


def silent(done: int, total: int, what: str) -> None:
    """Ignore the report."""


def prefixed(report: Progress, prefix: str) -> Progress:
    """Return a callback that puts `prefix` before the description of the current work."""
    return lambda done, total, what: report(done, total, prefix + what)
