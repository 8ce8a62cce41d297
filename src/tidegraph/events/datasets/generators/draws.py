"""Random numbers addressed by seed, purpose and row, and the shapes drawn from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import ParameterError
from tidegraph.events.columns import FloatArray, IntArray

VERSION = 1  # of what a seed stands for: raised when the same seed gives another stream


class Draws:
    """Random numbers addressed by purpose and row (the mixing function of SplitMix64)."""

    def __init__(self, seed: int) -> None:
        require(seed=(seed, 0, 2**63 - 1))
        self._seed = _mix(np.array([seed], dtype=np.uint64))

    def bits(self, purpose: int, rows: NDArray[Any]) -> NDArray[np.uint64]:
        """Return 64 random bits per row."""
        key = _mix(self._seed + np.uint64(purpose))
        return _mix(key + rows.astype(np.uint64))

    def uniform(self, purpose: int, rows: NDArray[Any]) -> FloatArray:
        """Return numbers in [0, 1)."""
        return np.asarray((self.bits(purpose, rows) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)

    def exponential(self, purpose: int, rows: NDArray[Any]) -> FloatArray:
        """Return exponentially distributed numbers with mean 1."""
        return -np.log1p(-self.uniform(purpose, rows))


def _mix(counter: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # It wraps around on purpose. Plus one, because 0 would stay 0.
    mixed = (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def shares(weights: FloatArray, total: int) -> IntArray:
    """Return where each share of `total` begins, `[len + 1]`: integers in proportion to weights."""
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    return np.asarray(np.rint(cumulative * (total / cumulative[-1])), dtype=np.int64)


def first_of(uniform: FloatArray, sizes: IntArray | int, skew: float) -> IntArray:
    """Return numbers below `sizes`, small ones likelier.

    Counts have a tail of exponent 1 + k/(k-1), where k is `skew`: number `r` is drawn
    about `r^(1/k - 1)` times as often as the first.
    """
    numbers: IntArray = (sizes * uniform**skew).astype(np.int64)
    return np.minimum(numbers, np.subtract(sizes, 1))


def normal(draws: Draws, purpose: int, rows: IntArray) -> FloatArray:
    """Return normal numbers (Box-Muller transform); uses this purpose and the next."""
    radius = np.sqrt(2 * draws.exponential(purpose, rows))
    return np.asarray(radius * np.cos(2 * np.pi * draws.uniform(purpose + 1, rows)))


def normalised(weights: FloatArray) -> FloatArray:
    """Return cumulative weights that end at 1."""
    cumulative = np.cumsum(weights)
    return np.asarray(cumulative / cumulative[-1])


def require(**settings: tuple[float, ...]) -> None:
    """Raise ParameterError unless each `name=(value, least)` or `(value, least, most)` holds."""
    for name, (value, least, *most) in settings.items():
        if not value >= least or any(value > end for end in most):
            accepted = f"{least:,} to {most[0]:,}" if most else f"at least {least:,}"
            raise ParameterError(f"{name} is {value:,}; give {accepted}")
