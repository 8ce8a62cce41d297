"""What the engine is compared with: the yardstick, and power iteration with scipy."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.bench.graphs import Stream
from tidegraph.bench.measuring import Skipped
from tidegraph.engine.propagator import Propagator


class Yardstick:
    """The plain method in C++: one column at a time, with new threads for every step."""

    def __init__(self, directory: Path) -> None:
        """Compile `$TIDEGRAPH_YARDSTICK/yardstick.cpp` into `directory`, or raise Skipped."""
        source = Path(os.environ.get("TIDEGRAPH_YARDSTICK", "")) / "yardstick.cpp"
        if not source.is_file():
            raise Skipped("no yardstick; set TIDEGRAPH_YARDSTICK to the directory of yardstick.cpp")
        compiler = shutil.which("g++")
        if compiler is None:
            raise Skipped("g++, which compiles the yardstick, is not installed")
        self._directory = directory
        self._program = directory / "yardstick"
        flags = ["-O3", "-march=native", "-std=c++17", "-pthread"]
        self.build = f"g++ {' '.join(flags)}"
        if self._program.exists():
            return
        command = [compiler, *flags, str(source), "-o", str(self._program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skipped(f"the yardstick does not compile: {done.stderr.strip()[-300:]}")

    def write(self, stream: Stream) -> None:
        """Write a stream to the file that `run` reads."""
        self._file(stream).write_text(stream.text(), encoding="ascii")

    def run(self, stream: Stream, *, threads: int, merge: bool) -> float:
        """Return the seconds the stream took, without reading it and the first propagation."""
        numbers = stream.nodes, stream.columns, stream.r_max, threads, stream.steps, int(merge)
        command = [str(self._program), str(self._file(stream)), *map(str, numbers)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        report = dict(zip(output[::2], output[1::2], strict=True))
        if int(report["steps"]) != stream.steps:
            raise RuntimeError(f"the yardstick ran {report['steps']} of {stream.steps} steps")
        return float(report["stream_s"])

    def _file(self, stream: Stream) -> Path:
        return self._directory / f"{stream.name}.txt"


def needs_scipy() -> None:
    """Raise Skipped unless scipy is installed."""
    try:
        import scipy.sparse  # noqa: F401
    except ImportError:
        raise Skipped("scipy is not installed; pip install scipy") from None


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a power iteration."""

    ratio: NDArray[np.float32]  # [nodes, columns]: pi / d^(1-beta)
    iterations: int
    elapsed_s: float


class PowerIteration:
    """`pi <- gamma0·x + gamma·P·pi` in float32 with scipy's sparse times dense product.

    The graph, features and filter are those of a propagator's first channel. The iteration is on
    `y = pi / d^(1-beta)`: P becomes the row-stochastic `D^-1·A`, and the certificate
    `|pi - exact| / d^(1-beta) <= |gamma| / (1 - |gamma|) · max |y_new - y|` needs no degrees.
    """

    def __init__(self, propagator: Propagator) -> None:
        from scipy import sparse

        channel = propagator.channels[0]
        beta = propagator.beta if channel.beta is None else channel.beta
        src, dst, weight = propagator.edges(0)
        loops, degree = propagator.loops(0), propagator.degree()[:, 0]
        start = time.perf_counter()
        nodes = np.arange(propagator.nodes)
        back = src != dst  # an undirected self-edge counts once
        rows = np.concatenate([src, dst[back], nodes])
        columns = np.concatenate([dst, src[back], nodes])
        values = np.concatenate([weight, weight[back], loops])
        values /= degree[rows]
        shape = (len(nodes), len(nodes))
        matrix = sparse.coo_array((values.astype(np.float32), (rows, columns)), shape=shape)
        self._matrix: Any = sparse.csr_array(matrix)
        self.build_s = time.perf_counter() - start
        self._gamma = np.float32(channel.gamma)
        self._shrink = abs(channel.gamma) / (1 - abs(channel.gamma))
        scaled = propagator.features() * (channel.gamma0 * degree ** (beta - 1))[:, None]
        self.first: NDArray[np.float32] = scaled.astype(np.float32)

    def solve(self, start: NDArray[np.float32], limit: NDArray[np.float64]) -> Solution:
        """Iterate from `start` until the certificate is at most `limit`, `[columns]`.

        `limit` bounds `|pi - exact| / d^(1-beta)`; `start` is not changed.
        """
        ratio, iterations = start.copy(), 0
        begin = time.perf_counter()
        while True:
            following = self._matrix @ ratio
            following *= self._gamma
            following += self.first
            ratio -= following
            iterations += 1
            moved = np.maximum(ratio.max(axis=0), -ratio.min(axis=0))
            ratio = following
            if (self._shrink * moved <= limit).all():
                return Solution(ratio, iterations, time.perf_counter() - begin)
            if iterations == 10_000:
                raise RuntimeError("float32 power iteration does not reach the limit")
