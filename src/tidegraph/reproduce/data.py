"""The data of the tables: streams, splits, and small pieces of both to try things out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegraph.evaluation import ROLAND_SETTINGS, Split, tgb_split, tgn_split, time_split
from tidegraph.events import datasets
from tidegraph.events.stream import EventStream

if TYPE_CHECKING:
    from tidegraph.runs.trials import Trial

_FAST_EVENTS = 6000
_FAST_FIRST_TEST = {"uci": 85, "bitcoin-otc": 136, "bitcoin-alpha": 136}  # only the last
_SAMPLERS = ("random-dst", "historical", "inductive", "random-all")
_DAY_MIN = 24 * 60
_REVERSED = "-reversed"  # suffix of a data set: with every edge reversed as well


@dataclass(frozen=True)
class NodeTask:
    """How labels of nodes are split, and the settings the task needs."""

    split: Callable[[EventStream], Split]
    settings: dict[str, Any] = field(default_factory=dict)
    paper: str | None = None  # the data set of the paper whose settings are used


NODE_TASKS = {
    "wikipedia": NodeTask(tgn_split, paper="wikipedia"),
    "reddit": NodeTask(tgn_split, paper="reddit"),
    # New labels are drawn at random: only later events depend on them.
    "like-gdelt": NodeTask(tgb_split, {"ask_after": 2 * _DAY_MIN}, paper="gdelt"),
    # Papers are classified after the citations of their own year.
    "like-mag": NodeTask(
        partial(time_split, validation_time=2017, test_time=2018), {"ask_after": 1}, paper="mag"
    ),
    "pubmed-temporal": NodeTask(
        partial(time_split, validation_time=2007, test_time=2008), {"ask_after": 1}, paper="mag"
    ),
}


def original(name: str) -> str:
    """Return the data set without the suffix of a variant.

    >>> original("bitcoin-otc-reversed"), original("uci")
    ('bitcoin-otc', 'uci')
    """
    return name.removesuffix(_REVERSED)


def absent(name: str) -> str | None:
    """Return why a data set cannot be used here, or None if it can."""
    if name in _GENERATORS:
        return None
    known = datasets.DATA_SETS.get(original(name))
    return None if known is not None and datasets.find(known) is not None else "data not here"


def load(name: str, *, fast: bool) -> EventStream:
    """Return the events of a data set or a generated one; the first few thousand if fast."""
    make = _GENERATORS.get(name)
    if make is not None:
        return _generated(make, fast)
    stream = datasets.load_dataset(name)
    return stream[:_FAST_EVENTS] if fast and name != "pubmed-temporal" else stream


def trial(name: str, protocol: str, *, fast: bool) -> Trial:
    """Return events to learn links from, with their evaluation under `tgn` or `roland`."""
    from tidegraph.runs.protocol import Protocol
    from tidegraph.runs.trials import make_trial

    if protocol == "tgn":
        return make_trial(load(name, fast=fast), Protocol(samplers=_SAMPLERS), name=name)
    # Snapshots are fixed: to be fast, fewer of them are tested.
    published = ROLAND_SETTINGS[original(name)]
    stream = datasets.load_dataset(original(name))
    asked = Protocol(
        protocol,
        snapshot_seconds=published["width_s"],
        first_test=_FAST_FIRST_TEST[original(name)] if fast else published["first_test"],
    )
    reversed_too = name != original(name)
    return make_trial(stream.with_reversed() if reversed_too else stream, asked, name=name)


# Generated data -----------------------------------------------------------------------------------


def _like_gdelt(path: Path, fast: bool) -> Path:
    size: Any = {"nodes": 400, "events": 8_000, "pairs": 1_500, "steps": 2_000, "classes": 4}
    if not fast:
        size = {"nodes": 2_000, "events": 400_000, "pairs": 20_000, "steps": 8_000, "classes": 81}
    return datasets.generate_gdelt_like(path, **size, features=8 if fast else 64, changes=3.0)


def _like_mag(path: Path, fast: bool) -> Path:
    size: Any = {"nodes": 2_000, "edges": 12_000, "years": 30, "classes": 4, "features": 8}
    if not fast:
        size = {"nodes": 50_000, "edges": 500_000, "years": 60, "classes": 152, "features": 64}
    return datasets.generate_mag_like(path, **size)


_GENERATORS = {"like-gdelt": _like_gdelt, "like-mag": _like_mag}


def _generated(make: Callable[[Path, bool], Path], fast: bool) -> EventStream:
    with tempfile.TemporaryDirectory(prefix="tidegraph-generated-") as directory:
        written = datasets.load_dataset(make(Path(directory) / "data", fast))
        # Copied out of the files, which are deleted.
        return EventStream(
            np.array(written.src),
            np.array(written.dst),
            np.array(written.t),
            nodes=written.nodes,
            unit=written.unit,
            node_features=np.array(written.node_features, dtype=np.float32),
            node_labels=written.node_labels,
            title=written.title,
        )
