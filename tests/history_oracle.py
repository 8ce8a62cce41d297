"""What a history answers, counted directly: each series is a list, walked from its start.

It rounds where `History` rounds, so that answers can be compared to the bit.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Sequence
from itertools import pairwise
from math import log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Row", "age_row", "link_row"]

Row = tuple[int, int, int]  # source, destination, time

# The exp2 of the native code. NumPy has its own, and Python had none before 3.11.
_exp2 = ctypes.CDLL(ctypes.util.find_library("m")).exp2
_exp2.restype, _exp2.argtypes = ctypes.c_double, [ctypes.c_double]
_LATEST = 64


def link_row(
    rows: Sequence[Row],
    src: int,
    dst: int,
    t: int,
    half_lives: Sequence[float],
    *,
    as_of: int | None = None,
) -> NDArray[np.float32]:
    """Return the row of `History.of_links` for one pair and time."""
    past = [row for row in rows if row[2] < (t if as_of is None else as_of)]
    unseen = log1p(t - past[0][2] if past else 0) + 1

    def since(times: Sequence[int], back: int = 1) -> float:
        return log1p(float(t - times[-back])) if len(times) >= back else unseen

    def recent(times: Sequence[int]) -> list[float]:
        return [_recent(times, t, half_life) for half_life in half_lives]

    def of_node(node: int) -> list[float]:
        told: list[float] = []
        for role in (0, 1):
            times = [row[2] for row in past if row[role] == node]
            told += [log1p(len(times)), *(since(times, k) for k in (1, 2, 5)), *recent(times)]
        return told

    def of_pair(first: int, second: int) -> list[float]:
        at = [i for i, row in enumerate(past) if row[:2] == (first, second)]
        times = [past[i][2] for i in at]
        later = past[at[-1] + 1 :] if at else past
        ends = [row[0] for row in later] + [row[1] for row in later]
        counts = [log1p(ends.count(node)) for node in (first, second)]
        return [float(bool(at)), log1p(len(at)), since(times), *recent(times), *counts]

    def of_habits(node: int, partner: int, role: int) -> list[Any]:
        partners = [row[1 - role] for row in past if row[role] == node]
        new = [met not in partners[:i] for i, met in enumerate(partners)]
        repeated = [i > 0 and met == partners[i - 1] for i, met in enumerate(partners)]
        told: list[Any] = [log1p(sum(new))]
        for kind in (new, repeated):
            for k in (5, 20):
                among = max(1, min(k, len(kind)))
                told.append(np.float32(sum(kind[-k:])) / np.float32(among))
        found = partner in partners[-_LATEST:]
        behind = partners[len(partners) - partners[::-1].index(partner) :] if found else partners
        told += [float(found), log1p(len(set(behind)))]
        others = [met for met in partners if met != partners[-1]]
        for before in (partners[-1:], others[-1:]):
            times = [
                b[2]
                for each in {row[role] for row in past}
                for a, b in pairwise([row for row in past if row[role] == each])
                if [a[1 - role], b[1 - role]] == [*before, partner]
            ]
            times.sort()
            told += [log1p(len(times)), since(times), *recent(times)]
        return told

    return np.array(
        [
            *of_node(src),
            *of_node(dst),
            *of_pair(src, dst),
            *of_pair(dst, src),
            *of_habits(src, dst, 0),
            *of_habits(dst, src, 1),
            *recent([row[2] for row in past]),
        ],
        dtype=np.float32,
    )


def age_row(rows: Sequence[Row], src: int, dst: int, t: int) -> NDArray[np.float32]:
    """Return the row of `Ages.of_links` for one pair and time, from the events known then."""
    unseen = log1p(t - rows[0][2] if rows else 0) + 1
    told = []
    for node in (src, dst):
        for role in (0, 1):
            times = [row[2] for row in rows if row[role] == node]
            told.append(log1p(t - times[0]) if times else unseen)
    return np.array(told, dtype=np.float32)


def _recent(times: Sequence[int], t: int, half_life: float) -> float:
    if not times:
        return 0.0
    value = np.float32(1)
    for a, b in pairwise(times):
        value = np.float32(float(value) * _exp2(-float(b - a) / half_life) + 1)
    return log1p(10 * (float(value) * _exp2(-float(t - times[-1]) / half_life)))
