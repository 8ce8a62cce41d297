"""The features a propagator starts from: a sketch, or the rows of an array, read in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import ParameterError
from tidegraph.engine.channels import RMaxUnit, Sketch
from tidegraph.engine.precision import Dtype, advise_float64, check_features

# A copy of all features in float64 would double their memory. Pieces are small because the
# allocator holds on to the memory of large ones.
_PIECE_ROWS = 1 << 12
_READABLE_IN_PLACE = {np.dtype(np.float32).str, np.dtype(np.float64).str}  # native byte order


class Features:
    """A sketch for a number of nodes, or an array `[nodes, columns]` that is never copied whole.

    unchanging: the caller vouches that nobody writes to the array while features are needed, even
        if it is writeable.
    """

    def __init__(self, features: Any, nodes: int | None, *, unchanging: bool = False) -> None:
        self._unchanging = unchanging
        if isinstance(features, Sketch):
            if isinstance(nodes, bool) or not isinstance(nodes, (int, np.integer)) or nodes < 0:
                raise ParameterError(f"nodes is {nodes!r}; with a Sketch give the number of nodes")
            self.nodes, self.columns = int(nodes), features.columns
            self.sketch: Sketch | None = features
            self._array = np.empty((0, self.columns))
            return
        try:
            array = np.asarray(features)
        except (ValueError, TypeError) as error:
            raise ParameterError(f"features are not a matrix of numbers: {error}") from None
        if array.dtype.kind not in "fiu":
            raise ParameterError(f"features have dtype {array.dtype}; give floating-point numbers")
        if array.ndim != 2 or array.shape[1] == 0:
            raise ParameterError(f"features have shape {array.shape}; give [nodes, columns]")
        if nodes is not None and nodes != array.shape[0]:
            raise ParameterError(
                f"nodes is {nodes} but features has {array.shape[0]} rows; leave it out"
            )
        self.nodes, self.columns = array.shape
        self.sketch = None
        self._array = array

    def check(self, dtype: Dtype) -> None:
        """Raise ParameterError if a value is not finite or beyond the range of `dtype`."""
        for first, rows in self.pieces():
            advice = f"scale the column{advise_float64(dtype)}"
            check_features(rows, dtype, first_node=first, advice=advice)

    def matrix(self) -> NDArray[np.float64]:
        """Return all features as a fresh float64 array `[nodes, columns]`."""
        if self.sketch is not None:
            return self.sketch.rows(np.arange(self.nodes))
        return self._array.astype(np.float64, order="C")

    def in_place(self) -> NDArray[Any] | None:
        """Return the array if it can be read where it lies for as long as needed, else None."""
        array = self._array
        if self.sketch is not None or array.dtype.str not in _READABLE_IN_PLACE:
            return None
        if not (array.flags.c_contiguous and array.flags.aligned):
            return None
        if self._unchanging:
            return array
        owner: Any = array
        while isinstance(owner, np.ndarray):
            if owner.flags.writeable:  # a read-only view may show writeable memory
                return None
            owner = owner.base
        return array if _is_read_only(owner) else None

    def pieces(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield `(first node, float64 rows)` from first to last; nothing for a sketch."""
        for first in range(0, len(self._array), _PIECE_ROWS):
            rows = self._array[first : first + _PIECE_ROWS]
            yield first, np.ascontiguousarray(rows, dtype=np.float64)

    def norms(self, unit: RMaxUnit) -> NDArray[np.float64]:
        """Return the unit of `r_max` per column: its RMS, 1, or its L1 norm; 1 for zero columns."""
        if self.sketch is not None:
            return self.sketch.norms(unit, self.nodes)
        if unit == "absolute" or self.nodes == 0:
            return np.ones(self.columns)
        peak, total = np.zeros(self.columns), np.zeros(self.columns)
        for _, rows in self.pieces():
            peak = np.maximum(peak, np.abs(rows).max(axis=0))
        peak[peak == 0] = 1.0  # relative to the peak no square can overflow or vanish
        for _, rows in self.pieces():
            sizes = np.abs(rows) / peak
            total += np.square(sizes).sum(axis=0) if unit == "rms" else sizes.sum(axis=0)
        norms = peak * np.sqrt(total / self.nodes) if unit == "rms" else peak * total
        return np.where(norms > 0, norms, 1.0)


def _is_read_only(owner: Any) -> bool:
    """Return whether nobody can write to the memory that an array shows but does not own."""
    while owner is not None:
        try:
            view = memoryview(owner)
        except TypeError:  # no buffer, so nothing is known about it
            return False
        if not view.readonly:
            return False
        # A read-only view may show memory that its owner can write to.
        owner = view.obj if isinstance(owner, memoryview) else None
    return True
