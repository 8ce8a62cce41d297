"""The proof that a node was forgotten: every byte searched, and the others computed without it.

The certificate holds numbers that anybody can compare who has the directory.
"""

from __future__ import annotations

import contextlib
import json
import mmap
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tidegraph.core.certificate import Certificate
from tidegraph.core.durable import only_writer
from tidegraph.core.errors import StateFileError
from tidegraph.core.progress import Progress, silent
from tidegraph.live.live import restored
from tidegraph.live.log import FILE, Log
from tidegraph.live.order import NOBODY
from tidegraph.live.state import State
from tidegraph.live.versions import Versions

_AT_ONCE = 1 << 14  # nodes compared at once


def audit_forgetting(
    directory: str | Path, node: str, *, progress: Progress | None = None
) -> Certificate:
    """Search a directory that nobody has open for a node, compute all others anew without it, and
    return what was found.
    """
    path, report = Path(directory), progress or silent
    if not (path / FILE).is_file():
        raise StateFileError(f"{path} holds no live state; give the directory of tidegraph serve")
    with only_writer(path), contextlib.closing(Log(path / FILE)) as log:
        state, _ = restored(path, log, [], None)
        nameless = 0
        for rows in log.rows(log.first):
            for ends in (rows.src, rows.dst):
                nameless += _nameless(state, ends[ends != NOBODY])
        for ends in (state.meetings.src, state.meetings.dst):
            nameless += _nameless(state, ends)
        rebuilt, source = _rebuilt(path, log, state)
        ratio, distance = _compared(state, rebuilt)
        forgotten, models = log.meta.get("forgotten", 0), Versions(path).all()
        known = any(state.names.get(side + node) is not None for side in ("", "src ", "dst "))
    files = sorted(each for each in path.rglob("*") if each.is_file())
    total, found = 0, []
    sought = _sought(node, state.names.plain())
    for place, file in enumerate(files):
        total += file.stat().st_size
        if node in file.name or _contains(file, sought):
            found.append(str(file.relative_to(path)))
        report(place + 1, len(files), "searching every byte")
    return Certificate(
        node=node,
        directory=path.name,
        audited=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tidegraph=version("tidegraph"),
        files=len(files),
        bytes=total,
        found=found,
        by_chance=total * 256.0 ** -len(node.encode()),
        known=known,
        nameless_rows=nameless,
        events=len(state.meetings) + len(state.others),
        nodes=len(state.known()),
        rebuilt_from=source,
        ratio=ratio,
        largest_distance=distance,
        forgotten=forgotten,
        remains={"models": models},
    )


def _nameless(state: State, numbers: Any) -> int:
    """Return how many of these nodes have no name."""
    distinct, counts = np.unique(numbers, return_counts=True)
    pairs = zip(distinct.tolist(), counts.tolist(), strict=True)
    return sum(count for number, count in pairs if state.names[number] is None)


def _rebuilt(path: Path, log: Log, state: State) -> tuple[State, str]:
    """Return a state computed from the events that are left alone, and where these are from."""
    if log.first == 1 and not state.counts["features"]:
        fresh = State(state.about, state.names, near=path)
        restored(path, log, [], None, into=fresh)
        return fresh, "those in the log"
    return state.without(NOBODY), "those in the newest snapshot and the log"


def _compared(state: State, other: State) -> tuple[float, float]:
    """Return the largest distance between representations over twice the bound, and as it is."""
    ratio, distance = 0.0, 0.0
    if not np.array_equal(state.known(), other.known()):
        return float("inf"), float("inf")
    nodes = state.known()
    for first in range(0, len(nodes), _AT_ONCE):
        some = nodes[first : first + _AT_ONCE]
        far = np.abs(state.propagator.embedding(some) - other.propagator.embedding(some))
        allowed = state.propagator.threshold(some) + other.propagator.threshold(some)
        ratio = max(ratio, float((far / allowed).max()))
        distance = max(distance, float(far.max()))
    return ratio, distance


_Sought: TypeAlias = tuple[bytes, dict[tuple[int, int], set[bytes]]]


def _sought(node: str, names: Iterable[str | None]) -> list[_Sought]:
    """Return the bytes that a name may have in a file, and for each the names of other nodes that
    it is part of, by where it begins in them and how long they are.
    """
    longer = [name for name in names if name is not None and node in name and name != node]
    found: dict[bytes, dict[tuple[int, int], set[bytes]]] = {}
    encodings: list[Callable[[str], bytes]] = [
        str.encode,
        lambda text: text.encode("utf-16-le"),
        lambda text: json.dumps(text)[1:-1].encode(),
    ]
    for encoded in encodings:
        pattern = encoded(node)
        others = found.setdefault(pattern, {})
        for name in map(encoded, longer):
            at = name.find(pattern)
            while at >= 0:
                others.setdefault((at, len(name)), set()).add(name)
                at = name.find(pattern, at + 1)
    return list(found.items())


def _contains(file: Path, sought: list[_Sought]) -> bool:
    """Return whether a name is in a file other than as part of another name."""
    if not file.stat().st_size:
        return False
    with (
        open(file, "rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        for pattern, others in sought:
            at = content.find(pattern)
            while at >= 0:
                if not any(
                    at >= before and content[at - before : at - before + length] in names
                    for (before, length), names in others.items()
                ):
                    return True
                at = content.find(pattern, at + 1)
    return False
