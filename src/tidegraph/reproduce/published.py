"""Published results of others, from `published.toml`, the only place that has their numbers."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Published", "best_published", "number", "published"]

_FILE = Path(__file__).with_name("published.toml")
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Published:
    """A row of a published table, as printed, without empty columns."""

    name: str
    source: str
    sampler: str
    metric: str
    values: dict[str, str]  # by column


def published(table: str) -> tuple[list[str], list[Published]]:
    """Return the columns and rows of a table."""
    found = _tables()[table]
    columns: list[str] = found["columns"]
    return columns, [
        Published(
            name,
            group["source"],
            group["sampler"],
            group["metric"],
            {column: text for column, text in zip(columns, values, strict=True) if text},
        )
        for group in found["groups"]
        for name, *values in group["rows"]
    ]


def best_published() -> dict[tuple[str, str, str], str]:
    """Return the best published result by data set, sampler and part, with its model's name."""
    rows: list[list[str]] = _tables()["best"]["rows"]
    return {(data, sampler, part): text for data, sampler, part, text in rows}


def number(text: str) -> tuple[float, float | None] | None:
    """Return mean and spread of a printed number; None for anything else, such as a percentage.

    >>> number("98.46 ± 0.1"), number("0.2885"), number("3.16%")
    ((98.46, 0.1), (0.2885, None), None)
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    return float(found[1]), None if found[2] is None else float(found[2])


@cache
def _tables() -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
