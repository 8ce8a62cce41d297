"""Whether a live state survives a power failure, which loses what was written and not synced.

A process ingests while its file operations are recorded. For every sync, the directory is made as
the disk could be right before it, in several ways, and a process continues from there. It must find
what had been acknowledged by then, and end as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.bench.disk import (
    WAYS,
    Disk,
    Operation,
    digest_of,
    read_paths,
    recorded,
    write_paths,
)
from tidegraph.bench.live_kills import Killer, Script, check_end, check_links, check_outcome, work
from tidegraph.core.progress import Progress, silent

_DIRECTORY = "live"
_SAID = "said"  # a file next to the directory: its writes stand between the other operations


class _Said:
    """Reports as lines of a file."""

    def __init__(self, path: Path) -> None:
        self._to = os.open(path, os.O_WRONLY | os.O_CREAT)

    def send(self, said: dict[str, Any], /) -> None:
        """Report."""
        os.write(self._to, json.dumps(said).encode() + b"\n")


def _record(script: Script, work_directory: Path) -> tuple[Path, list[Operation]]:
    """Return a directory in which a script was run, and what was done to its files."""
    root = work_directory / "recorded"
    root.mkdir()
    command = [sys.executable, "-m", __name__, str(root), json.dumps(asdict(script))]
    return root, recorded(command, root, work_directory)


def lost_writes(
    script: Script,
    *,
    every: int = 1,
    directory: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Lose what was not synced before each sync of a script, in every way; return how that went.

    every: takes each n-th sync only. Raise AssertionError at the first event that is lost, doubled
    or moved, and if a forgotten node comes back.
    """
    report = progress or silent
    work_directory = Path(tempfile.mkdtemp(dir=directory))
    generator = np.random.default_rng(script.seed)
    try:
        root, operations = _record(script, work_directory)
        told = [json.loads(line) for line in (root / _SAID).read_text().splitlines()]
        expected = next(each["end"] for each in told if "end" in each)
        check_links(script, expected)
        disk, said, seen, tried = Disk(root), dict[str, Any](), set[Any](), 0
        places = [n for n, each in enumerate(operations) if each.kind == "s"]
        crashes = {*places[::every], len(operations)}
        for place, operation in enumerate([*operations, None]):
            if place in crashes:
                for way in WAYS:
                    paths = disk.left(way, generator)
                    paths.pop(_SAID, None)
                    state = digest_of(paths), said.get("acknowledged", -1), said.get("forgot")
                    if state not in seen:
                        seen.add(state)
                        when = f"seed {script.seed}, operation {place}, {way} kept"
                        _continue(script, paths, said, expected, work_directory / "left", when)
                        tried += 1
                report(place, len(operations), "crashes that lose what was not synced")
            if operation is not None:
                disk.apply(operation)
                said |= _said(operation)
        _check_record(disk, root)
    finally:
        shutil.rmtree(work_directory, ignore_errors=True)
    return {
        "seed": script.seed,
        "forgets": script.forgets,
        "operations": len(operations),
        "syncs": len(places),
        "crashes": tried,
    }


def _said(operation: Operation) -> dict[str, Any]:
    """Return what a process reported by an operation, if it did."""
    if operation.kind == "w" and operation.first.startswith(b'{"') and b"}\n" in operation.first:
        try:
            found = json.loads(operation.first)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}
    return {}


def _continue(
    script: Script,
    paths: dict[str, bytes | None],
    said: dict[str, Any],
    expected: dict[str, Any],
    root: Path,
    when: str,
) -> None:
    """Let a process continue with what a crash has left, and check what it finds and makes."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    write_paths(paths, root)
    outcome = Killer(root / _DIRECTORY, script).run(said.get("acknowledged", -1) + 1)
    check_outcome(outcome, when, said.get("seq", 0), said.get("forgot", False))
    assert outcome.end is not None, when
    check_end(json.loads(json.dumps(outcome.end)), when, expected)


def _check_record(disk: Disk, root: Path) -> None:
    """Raise AssertionError if the operations do not lead to the files that are there."""
    made, there = disk.now(), read_paths(root)
    differing = [name for name in {*made, *there} if made.get(name, 0) != there.get(name, 0)]
    assert not differing, f"the record is incomplete: {sorted(differing)} differ"


if __name__ == "__main__":
    _root = Path(sys.argv[1])
    work(_Said(_root / _SAID), str(_root / _DIRECTORY), Script(**json.loads(sys.argv[2])), 0)
