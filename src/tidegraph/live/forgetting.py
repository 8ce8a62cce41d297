"""The proof that a node was forgotten: every byte searched, and the others computed without it.

The certificate holds numbers that anybody can compare who has the directory.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

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

_CHUNK = 1 << 24
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
    patterns = {node.encode(), node.encode("utf-16-le"), json.dumps(node)[1:-1].encode()}
    for place, file in enumerate(files):
        total += file.stat().st_size
        if node in file.name or _contains(file, patterns):
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


def _contains(file: Path, patterns: set[bytes]) -> bool:
    longest = max(map(len, patterns))
    before = b""
    with open(file, "rb") as opened:
        while chunk := opened.read(_CHUNK):
            content = before + chunk
            if any(pattern in content for pattern in patterns):
                return True
            before = content[-longest:]
    return False
