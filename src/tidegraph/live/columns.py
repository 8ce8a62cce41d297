"""Columns of numbers that grow at their end, without copying what is there at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FIRST = 1024


class Columns:
    """Named columns of one length. What was read stays valid and unchanged while rows are added.

    One thread may add while others read; a column read later is at least as long as one before.
    """

    def __init__(self, **types: Any) -> None:
        self._arrays = {name: np.empty(_FIRST, dtype=kind) for name, kind in types.items()}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, name: str) -> NDArray[Any]:
        count = self._count  # before the array: another thread may exchange it for a longer one
        return self._arrays[name][:count]

    def append(self, count: int, **values: Any) -> None:
        """Add rows; a single value holds for all of them."""
        end = self._count + count
        if end > len(next(iter(self._arrays.values()))):
            longer = {name: np.empty(end + end // 2, each.dtype) for name, each in self._items()}
            for name, array in self._items():
                longer[name][: self._count] = array[: self._count]
            self._arrays = longer
        for name, array in self._items():
            array[self._count : end] = values[name]
        self._count = end

    def _items(self) -> list[tuple[str, NDArray[Any]]]:
        return list(self._arrays.items())
