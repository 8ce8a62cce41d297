"""The names of nodes, numbered in the order in which events of the log name them first."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tidegraph.core.errors import UnknownNodeError
from tidegraph.events.columns import IntArray
from tidegraph.events.names import STRING, NodeNames
from tidegraph.live.order import NOBODY

_NEAREST = 1000  # names among which to look for one that was meant


class Names:
    """Names and numbers. One thread adds; any number may read."""

    def __init__(self, known: Iterable[tuple[int, str]] = ()) -> None:
        self._names: list[str | None] = []  # None: a node that was forgotten
        self._numbers: dict[str, int] = {}
        self.add(known)

    def __len__(self) -> int:
        """Return how many numbers are taken, including those of nodes that were forgotten."""
        return len(self._names)

    def add(self, names: Iterable[tuple[int, str]]) -> None:
        """Add names with their numbers, which ascend."""
        for number, name in names:
            self._names += [None] * (number - len(self._names))
            self._names.append(name)
            self._numbers[name] = number

    def reserve(self, count: int) -> None:
        """Take all numbers below one, as those of forgotten nodes."""
        self._names += [None] * (count - len(self._names))

    def forget(self, number: int) -> None:
        """Remove a name; its number is not given to another."""
        name = self._names[number]
        self._names[number] = None
        if name is not None:
            del self._numbers[name]

    def __getitem__(self, number: int) -> str | None:
        return self._names[number]

    def get(self, name: str) -> int | None:
        """Return the number of a name, if there is one."""
        return self._numbers.get(name)

    def unknown(self, name: str) -> UnknownNodeError:
        """Return the error for a name that no node has."""
        some = [each for each in self._names[-_NEAREST:] if each is not None]
        if not some:
            return UnknownNodeError(f"node {name!r} is unknown; there are no nodes yet")
        return NodeNames(np.array(some, dtype=STRING))._unknown(name)

    def numbered(
        self, src: Sequence[str], dst: Sequence[str | None], new: dict[str, int]
    ) -> tuple[IntArray, IntArray]:
        """Return the numbers of two columns of names; those that are not known yet get numbers in
        `new`, which become known by `add`.
        """
        get: Any = self._numbers.get
        unknown = itertools.repeat(NOBODY)
        a = np.fromiter(map(get, src, unknown), np.int64, len(src))
        b = np.fromiter(map(get, dst, unknown), np.int64, len(dst))
        for place in np.flatnonzero((a == NOBODY) | (b == NOBODY)).tolist():
            name = dst[place]
            if a[place] == NOBODY:
                a[place] = self._given(src[place], new)
            if b[place] == NOBODY and name is not None:
                b[place] = self._given(name, new)
        return a, b

    def _given(self, name: str, new: dict[str, int]) -> int:
        return new.setdefault(name, len(self._names) + len(new))

    def between(self, first: int, last: int) -> list[str | None]:
        """Return the names with numbers from the first to below the last."""
        return self._names[first:last]

    def plain(self) -> list[str | None]:
        """Return all names by number; None for forgotten nodes."""
        return list(self._names)
