"""What all sections share: their settings, their result, and the check of the certified error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import ParameterError, TidegraphError
from tidegraph.engine.propagator import Propagator

_PROMISE = 1 + 1e-6  # the largest accepted ratio of certified to promised error


class Skipped(Exception):
    """Why something was not measured."""


class BrokenPromise(TidegraphError):
    """The engine exceeded the promised error, so its times mean nothing."""


@dataclass(frozen=True)
class BenchSettings:
    """How to measure. A `scale` below 1 shrinks graphs and streams, to try a section out."""

    workplace: Path  # for temporary files
    repeat: int = 5
    threads: int = 2
    scale: float = 1.0
    seed: int = 0
    report: Callable[[str], None] = lambda what: None

    def __post_init__(self) -> None:
        if self.repeat < 1 or self.threads < 1 or not 0 < self.scale <= 1:
            raise ParameterError(
                f"repeat={self.repeat}, threads={self.threads}, scale={self.scale}; give at least"
                " 1 for the first two, and a scale above 0 and at most 1"
            )

    def scaled(self, count: int) -> int:
        return max(1, round(count * self.scale))


@dataclass(frozen=True)
class Measurement:
    """The result of a section: headline numbers, and what they were computed from."""

    results: dict[str, Any]
    details: dict[str, Any]


def worst_ratio(propagator: Propagator, nodes: NDArray[np.int64] | None = None) -> float:
    """Return the largest ratio of certified to promised error among the nodes, or all nodes."""
    return float((propagator.error_bound(nodes) / propagator.threshold(nodes)).max())


def check_promise(propagator: Propagator, nodes: NDArray[np.int64] | None = None) -> float:
    """Return the worst ratio; raise BrokenPromise if it is above 1."""
    ratio = worst_ratio(propagator, nodes)
    if not ratio <= _PROMISE:
        raise BrokenPromise(f"the certified error is {ratio:.3g} times the promised one")
    return ratio


def median_ratio(slow: list[float], fast: list[float]) -> float:
    """Return the median ratio over rounds: within a round both sides met the same machine."""
    return median(a / b for a, b in zip(slow, fast, strict=True))


def spread_nodes(nodes: int, count: int = 4096) -> NDArray[np.int64]:
    """Return evenly spaced nodes: the bound per unit of degree is the same for all nodes."""
    return np.unique(np.linspace(0, nodes - 1, min(nodes, count)).astype(np.int64))
