"""The texts of the pages, and what others published: all that is typed in, from TOML files."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?")


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def about_targets() -> dict[str, dict[str, Any]]:
    """Return what is written about each target: `summary`, `title`, `description`, `notes`."""
    written = dict(_read("targets.toml"))
    shared = written.pop("shared notes")
    return {
        name: {**about, "notes": tuple(shared.get(note, note) for note in about["notes"])}
        for name, about in written.items()
    }


def published(table: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns of a table as printed, and its rows.

    A row has `name`, `source`, `sampler`, `metric`, `knowledge` and `values` by column, without
    empty ones.
    """
    found = _read("published.toml")[table]
    columns: list[str] = found["columns"]
    return columns, [
        {
            **group,
            "name": name,
            "knowledge": knowledge_of(name) if group["sampler"] else "",
            "values": {key: text for key, text in zip(columns, texts, strict=True) if text},
        }
        for group in found["groups"]
        for name, *texts in group["rows"]
    ]


def best_published() -> dict[tuple[str, str, str], tuple[str, str]]:
    """Return the best published result by data set, sampler and part, and what its model knows.

    The name of the model comes first.
    """
    rows: list[list[str]] = _read("published.toml")["best"]["rows"]
    return {
        (data, sampler, part): (text, knowledge_of(text.split(maxsplit=1)[0]))
        for data, sampler, part, text in rows
    }


def knowledge_of(model: str) -> str:
    """Return what a published model of links knows when it scores an event.

    >>> knowledge_of("TPNet"), knowledge_of("DyGFormer"), knowledge_of("GAE")
    ('mixed', 'event', 'not said')
    """
    known: dict[str, list[str]] = _read("published.toml")["knowledge"]
    return next((kind for kind, models in known.items() if model in models), "not said")


def number(text: str) -> tuple[float, float | None] | None:
    """Return mean and spread of a printed number; None for anything else, such as a percentage.

    >>> number("98.46 ± 0.1"), number("0.2885"), number("3.16%")
    ((98.46, 0.1), (0.2885, None), None)
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    return float(found[1]), None if found[2] is None else float(found[2])
