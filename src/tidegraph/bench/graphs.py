"""What the benchmarks run on: recorded streams in steps, and power-law graphs of any size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.engine.channels import Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events import datasets
from tidegraph.events.batch import Batch

EXPONENT = 2.5
MEAN_DEGREE = 20


@dataclass(frozen=True, eq=False)
class Stream:
    """The first steps of a data set, with the settings of the yardstick on it."""

    name: str
    batch: Batch
    offsets: NDArray[np.int64]  # [steps + 1]
    nodes: int
    columns: int
    r_max: float = 1e-7

    @property
    def steps(self) -> int:
        return len(self.offsets) - 1

    def propagator(self, threads: int, seed: int) -> Propagator:
        """Return a propagator before the first step, with the settings of the yardstick."""
        return Propagator(
            Sketch(self.columns, seed=seed, distribution="uniform"),
            nodes=self.nodes,
            r_max=self.r_max,
            r_max_unit="l1",
            scale_by_degree=False,
            threads=threads,
        )

    def settings(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "events": self.batch.rows,
            "nodes": self.nodes,
            "columns": self.columns,
            "features": "uniform",
            "r_max": self.r_max,
            "r_max_unit": "l1",
            "scale_by_degree": False,
        }

    def text(self) -> str:
        """Return lines `src dst step`, which the yardstick reads."""
        steps = np.repeat(np.arange(self.steps), np.diff(self.offsets))
        rows = zip(self.batch.src.tolist(), self.batch.dst.tolist(), steps.tolist(), strict=True)
        return "".join(f"{src} {dst} {step}\n" for src, dst, step in rows)


# name -> (snapshot length or None for one step per time, steps at most, columns)
_STREAMS: dict[str, tuple[int | None, int, int]] = {
    "uci": (190_080, 89, 128),
    "wikipedia": (None, 20_000, 172),
}


def load_stream(name: str, scale: float = 1.0) -> Stream:
    """Return a stream of the benchmark, shortened by `scale`; raise DataError if it is absent."""
    length, steps, columns = _STREAMS[name]
    events = datasets.load_dataset(name)
    cut = events.steps() if length is None else events.snapshots(length)
    offsets = cut.offsets[: max(1, round(steps * scale)) + 1]
    rows = int(offsets[-1])
    # Without times on either side: the filter does not use them.
    batch = Batch(events.src[:rows], events.dst[:rows])
    return Stream(name, batch, offsets, events.nodes, columns)


class PowerLaw:
    """Random edges of a graph whose expected degrees follow a power law (Chung and Lu's model).

    Expected degrees are `~ (i + i0)^(-1/(exponent-1))` with `i0` such that the mean is 20 and the
    largest is the square root of the sum of degrees, beyond which the model does not hold. Numbers
    are shuffled: a node's degree is unrelated to its place in memory.
    """

    def __init__(self, nodes: int, seed: int) -> None:
        self.nodes = nodes
        self._rng = np.random.default_rng([seed, nodes])
        self._ids = self._rng.permutation(nodes)
        largest = math.sqrt(MEAN_DEGREE * nodes)
        share = MEAN_DEGREE * (EXPONENT - 2) / (EXPONENT - 1) / largest
        self._i0 = nodes * share ** (EXPONENT - 1)

    def edges(self, count: int) -> Batch:
        """Return independent edges of weight 1; edges may repeat, as in any stream."""
        src, dst = self._ends(count), self._ends(count)
        return Batch(src, dst, weight=np.ones(count))

    def _ends(self, count: int) -> NDArray[np.int64]:
        """Draw nodes in proportion to their expected degrees, by the inverse of their sum."""
        power = (EXPONENT - 1) / (EXPONENT - 2)
        low, high = self._i0 ** (1 / power), (self.nodes + self._i0) ** (1 / power)
        rank = self._rng.uniform(low, high, count) ** power - self._i0
        return np.asarray(self._ids[np.clip(rank, 0, self.nodes - 1).astype(np.int64)])
