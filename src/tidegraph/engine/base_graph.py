"""The compact graph below a propagator, and the files its changed lists are merged into."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph import _native
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.engine.bridge import Native
from tidegraph.engine.compact import CompactGraph

# Lists that change are copied into memory. Once the copies take this many bytes, and this share of
# the lists below them, all lists are written to new files.
_MERGE_BYTES = 64 << 20
_MERGE_SHARE = 0.25


def check_fits(graph: CompactGraph, *, directed: bool, nodes: int) -> None:
    """Raise ParameterError if a propagator with these settings cannot start from the graph."""
    if graph.directed != directed:
        raise ParameterError(
            f"the graph in initial has directed={graph.directed} and the propagator"
            f" directed={directed}; give directed={graph.directed}"
        )
    if graph.nodes > nodes:
        raise ParameterError(
            f"initial has {graph.nodes} nodes and features has {nodes} rows;"
            " give a row for every node"
        )


class BaseGraph:
    """A compact graph whose lists a native propagator reads where they lie."""

    def __init__(self, graph: CompactGraph, native: Native) -> None:
        self.graph, self._native = graph, native
        self._merged: _MergedLists | None = None  # where lists lie after a merge
        selves = graph.self_edges
        targets = graph.targets if graph.directed else None
        between = graph.edges - selves[0].size
        try:
            native.stand_on(graph.sources, targets, between, *selves)
        except _native.EventError as error:  # built by a release that did not check
            raise DataError(f"{graph.path}: {error}; rebuild the graph, in another unit") from None
        self._merge_from = _merge_from(graph.entries)  # bytes of changed lists

    def merge_if_large(self) -> None:
        """Move all lists to fresh files if changed ones take much memory; no bit depends on it.

        If there is no room for the files, changed lists stay in memory until they have doubled.
        """
        taken = self._native.changed_list_bytes()
        if taken < self._merge_from:
            return
        try:
            merged = _MergedLists(self.graph.path, self._native.nodes, self._native.extents())
        except OSError:
            self._merge_from = 2 * taken
            return
        former, self._merged = self._merged, merged
        try:
            self._native.merge_into(merged.sources, merged.targets)
        except MemoryError:
            merged.former = former  # lists of one direction may still lie there
            self._merge_from = 2 * taken
            return
        self._merge_from = _merge_from(merged.entries)


def _merge_from(entries: int) -> float:
    """Return the bytes of changed lists at which they are merged."""
    return max(_MERGE_BYTES, _MERGE_SHARE * 4 * entries)


class _MergedLists:
    """Space for the merged lists, in nameless files next to the graph.

    If that directory is not writeable, the system's temporary directory is used. Space is reserved
    up front, since writing to memory mapped from a full disk would kill the process.
    """

    def __init__(self, near: Path, nodes: int, extents: list[tuple[int, bool, bool]]) -> None:
        self.former: _MergedLists | None = None  # must outlive this object
        self._directory = near if os.access(near, os.W_OK) else None
        self.entries = sum(entries for entries, _, _ in extents)
        self.sources, *others = (
            (
                self._reserve(nodes + 1, np.uint64),
                self._reserve(entries, np.uint32),
                None if plain else self._reserve(entries, np.float32),
                self._reserve(entries, np.int32) if fine else None,
            )
            for entries, plain, fine in extents
        )
        self.targets = others[0] if others else None

    def _reserve(self, count: int, dtype: Any) -> NDArray[Any]:
        size = count * np.dtype(dtype).itemsize
        if size == 0:
            return np.empty(0, dtype=dtype)
        with tempfile.TemporaryFile(dir=self._directory) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=(count,)))
