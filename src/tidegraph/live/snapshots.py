"""Saved states: each one file, whole or not there, and the newest two kept.

A start loads the newest one that is whole, and replays the rows of the log that came after it.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tidegraph.core import statefile
from tidegraph.core.durable import not_written, put_in_place, sync_names
from tidegraph.core.errors import StateFileError
from tidegraph.core.machine import disk_bytes
from tidegraph.core.resume import make_directory
from tidegraph.live.failpoints import reach

DIRECTORY = "snapshots"
_KEPT = 2
_NAME = re.compile(r"([0-9]{16})\.tide")


class Snapshots:
    """The snapshots of a directory, by the sequence number they stand at."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / DIRECTORY
        make_directory(self.directory)
        for path in self.directory.iterdir():  # what a killed process left
            if not _NAME.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()

    def numbers(self) -> list[int]:
        """Return the sequence numbers, ascending."""
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, seq: int) -> Path:
        """Return the file of a snapshot."""
        return self.directory / f"{seq:016}.tide"

    def write(self, seq: int, description: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Write a snapshot, and delete those before the last two."""
        path = self.path(seq)
        aside = path.with_suffix(".new")
        reach("snapshot.write.before")
        try:
            statefile.write(aside, description, arrays)
            reach("snapshot.rename.before")
            put_in_place(aside, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise not_written(path, error) from error
        reach("snapshot.rename.after")
        for old in self.numbers()[:-_KEPT]:
            reach("snapshot.prune.before")
            with contextlib.suppress(OSError):
                self.path(old).unlink()
            reach("snapshot.prune.after")

    def newest(
        self, notes: list[str], forgotten: int
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        """Return the newest snapshot that is whole; say in `notes` which ones were not.

        forgotten: how many nodes were. A snapshot from before one was forgotten, or of a forgetting
            that was not finished, is deleted.
        """
        for seq in reversed(self.numbers()):
            try:
                found = statefile.read(self.path(seq))
            except StateFileError as error:
                notes.append(f"{error}; an older snapshot and the log replace it")
                continue
            if found[0].get("forgotten", 0) == forgotten:
                self.delete_others(seq, forgotten)
                return found
            self.path(seq).unlink()
        return None

    def delete_others(self, seq: int, forgotten: int) -> None:
        """Delete the snapshots that hold what was forgotten since, all but this one, durably."""
        for other in self.numbers():
            if other == seq:
                continue
            try:
                held = statefile.describe(self.path(other)).get("forgotten", 0)
            except StateFileError:
                held = -1  # nobody knows
            if held != forgotten:
                reach("snapshot.prune.before")
                self.path(other).unlink(missing_ok=True)
                reach("snapshot.prune.after")
        sync_names(self.directory)

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return disk_bytes(self.directory.iterdir())
