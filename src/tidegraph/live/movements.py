"""How nodes moved: trajectories recorded behind the state, when somebody asks or nothing arrives.

They can be computed again from the applied rows, so that a store which does not fit these is simply
recorded anew, and nothing waits for a disk.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from pathlib import Path

from tidegraph.core.durable import sync_names
from tidegraph.core.errors import BusyError, ParameterError, StorageError, TidegraphError
from tidegraph.live.state import State
from tidegraph.store.trajectories import Trajectories, record

DIRECTORY = "trajectories"


class Movements:
    """The store of trajectories of a directory; one thread records at a time."""

    def __init__(self, directory: Path, state: State, *, enabled: bool) -> None:
        self._path, self._state, self._enabled = directory / DIRECTORY, state, enabled
        self._lock = threading.Lock()
        self._store: Trajectories | None = None
        self._rows = 0  # of the state that are recorded
        self._deleted = False

    def behind(self) -> int:
        """Return how many applied rows are not recorded yet."""
        return len(self._state.meetings) + len(self._state.others) - self._rows

    def delete(self) -> None:
        """Delete the store, durably; who waits for this one is not to record it again."""
        with self._lock:
            self._store, self._rows, self._deleted = None, 0, True
            shutil.rmtree(self._path, ignore_errors=True)
            sync_names(self._path.parent)

    def caught_up(self, timeout_s: float) -> Trajectories:
        """Record what is missing, and return the store."""
        if not self._enabled:
            raise ParameterError(
                "questions about representations of the past need record=true, and it is off"
            )
        if self._state.counts["features"]:
            raise ParameterError(
                "features of nodes were changed, and a record of the past does not follow that; ask"
                " about now"
            )
        if not self._lock.acquire(timeout=timeout_s):
            raise BusyError("the past is still being recorded; ask again", retry_after_s=5.0)
        try:
            if self._deleted:
                raise BusyError("the past is recorded anew; ask again", retry_after_s=1.0)
            if self._store is None:
                self._store = self._reopened()
            if self._store is None or self.behind():
                self._record()
            assert self._store is not None
            return self._store
        finally:
            self._lock.release()

    def _reopened(self) -> Trajectories | None:
        """Return the store of an earlier process, if it holds the first applied rows."""
        try:
            store = Trajectories.open(self._path)
            (manifest,) = store._manifests
            stream = self._state.stream()
            if store.complete and manifest.events <= len(stream):
                if manifest.events and int(stream.t[manifest.events - 1]) != manifest.time:
                    raise StorageError("it holds other events")
                self._rows = manifest.events
                return store
        except (TidegraphError, OSError):
            pass
        return None

    def _record(self) -> None:
        stream = self._state.stream()
        if self._store is not None:
            with contextlib.suppress(TidegraphError):
                self._store.append(stream[self._rows :])
                self._rows = len(stream)
                return
        shutil.rmtree(self._path, ignore_errors=True)
        propagator = self._state.about.propagator(nodes=stream.nodes)
        self._store = record(stream, propagator, self._path, dtype="float16")
        self._rows = len(stream)
