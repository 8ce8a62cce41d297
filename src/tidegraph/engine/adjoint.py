"""The adjoint of one node: how much a change of any equation moves that node's representation.

With `p = pi / d^(1-beta)` the representation solves `M·p = gamma0·d^beta·x`, `M = D - gamma·W`. A
change `c` of the right-hand side moves `p` at node v by `Σ_u a(u)·c(u)`, where `a = M^-T·e_v` is
the adjoint: one number per node of the graph, whatever the number of columns.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


class Changes(NamedTuple):
    """Changes of entries of W: `W[i, j] += delta`."""

    i: IntArray
    j: IntArray
    delta: FloatArray


def sums(at: IntArray, values: FloatArray, length: int) -> FloatArray:
    """Return the sum of the values at each position, `[length]`."""
    # Without values bincount returns integers.
    return np.bincount(at, values, minlength=length).astype(np.float64)


class Adjoint:
    """`values = M^-T·e_node` on a graph whose weights change within a fixed pattern of entries.

    The residual `rho = e_node - M^T·values` is maintained too, so that what `converge` leaves does
    not add up.
    """

    def __init__(self, node: int, gamma: float, i: IntArray, j: IntArray, nodes: int) -> None:
        """Start without weights; `i`, `j` is where W may have entries, in any order."""
        self._node, self._gamma, self._nodes = node, gamma, nodes
        self._keys = np.unique((i * nodes + j)[i != j])
        self.i, self.j = self._keys // nodes, self._keys % nodes
        self._begin = np.searchsorted(self.i, np.arange(nodes + 1))
        self.weight = np.zeros(len(self._keys))
        self.diagonal, self.degree, self.values = (np.zeros(nodes) for _ in range(3))
        self._rho = np.zeros(nodes)
        self._rho[node] = 1.0
        self._changed = [np.empty(0, dtype=np.int64)]

    def places(self, i: IntArray, j: IntArray) -> IntArray:
        """Return the positions of off-diagonal entries in the pattern."""
        return np.searchsorted(self._keys, i * self._nodes + j)

    def set_weights(self, weight: FloatArray, diagonal: FloatArray, degree: FloatArray) -> None:
        """Set the graph to start from; call it before `converge`."""
        self.weight, self.diagonal, self.degree = weight, diagonal, degree

    def fade(self, halvings: int, degree: float) -> None:
        """Halve all weights so many times, which changes neither P nor pi.

        Stop early when the node has the degree it is about to get: the error of estimates grows
        with the change of weights still to come, relative to the faded weights.
        """
        old = float(self.degree[self._node])
        if old == 0 or degree == 0:  # nothing reaches the node
            self.values[:] = self._rho[:] = 0.0
            self._rho[self._node] = 1.0
            return
        factor = 2.0 ** -min(halvings, math.ceil(math.log2(old / degree)))
        for weights in (self.weight, self.diagonal, self.degree):
            weights *= factor
        self.values /= factor

    def refresh(self) -> None:
        """Recompute the residual, which removes its rounding errors."""
        arriving = self._arriving(self.values) + self.diagonal * self.values
        self._rho = self._gamma * arriving - self.degree * self.values
        self._rho[self._node] += 1.0

    def _arriving(self, values: FloatArray) -> FloatArray:
        """Return the transpose of W, without its diagonal, times values."""
        return sums(self.j, self.weight * values[self.i], self._nodes)

    def change(self, changes: Changes) -> None:
        """Apply changes to entries of W and to the degrees of their rows."""
        i, j, delta = changes
        off = i != j
        np.add.at(self.diagonal, i[~off], delta[~off])
        np.add.at(self.weight, self.places(i[off], j[off]), delta[off])
        np.add.at(self.degree, i, delta)
        pushed = delta * self.values[i]
        np.add.at(self._rho, i, -pushed)
        np.add.at(self._rho, j, self._gamma * pushed)
        self._changed += [i, j]

    def converge(self, tolerance: float, *, everywhere: bool = False) -> None:
        """Push until no changed residual, or none `everywhere`, is above the tolerance."""
        rho, gamma = self._rho, self._gamma
        everyone = np.arange(self._nodes)
        candidates = everyone if everywhere else np.concatenate(self._changed)
        del self._changed[1:]
        while True:
            above = candidates[
                (np.abs(rho[candidates]) > tolerance) & (self.degree[candidates] > 0)
            ]
            if not above.size:
                return
            if candidates is not everyone:
                above = np.unique(above)
            q = rho[above] / (self.degree[above] - gamma * self.diagonal[above])
            self.values[above] += q
            rho[above] = 0.0
            counts = self._begin[above + 1] - self._begin[above]
            reached = int(counts.sum())
            if 4 * reached > len(self.j):  # most of the graph: one pass over all of it
                pushed = np.zeros(self._nodes)
                pushed[above] = q
                rho += gamma * self._arriving(pushed)
                candidates = everyone
            else:
                ends = np.cumsum(counts)
                at = np.arange(reached) + np.repeat(self._begin[above] - (ends - counts), counts)
                to = self.j[at]
                np.add.at(rho, to, gamma * self.weight[at] * np.repeat(q, counts))
                candidates = to
