"""What every store accepts in a query: nodes by number or name, times as numbers or dates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.engine.channels import Channel
from tidegraph.events.moments import dates, times_of
from tidegraph.events.names import NodeNames, as_names_or_numbers, known_nodes
from tidegraph.store.manifest import StoreManifest

if TYPE_CHECKING:
    import pandas as pd

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float32]
Times: TypeAlias = ArrayLike | datetime | Sequence[datetime]

_BEGINNING = np.iinfo(np.int64).min  # the time of a node's state before any event


class Queries(ABC):
    """A store that can be queried for the state of nodes before a time.

    Nodes are integers (node numbers) or, where the recorded stream had them, strings (node names).
    Times are integers in the store's unit or, where the unit is that of a calendar, dates: ISO
    strings, `datetime` or `numpy.datetime64`, in UTC unless they have a zone.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    @abstractmethod
    def _manifests(self) -> tuple[StoreManifest, ...]:
        """The manifests of all shards."""

    @abstractmethod
    def state(self, nodes: ArrayLike, times: Times, *, out: FloatArray | None = None) -> FloatArray:
        """Return the states `[B, channels, columns]` of `nodes[b]` strictly before `times[b]`."""

    def frame(self, at: Times, nodes: ArrayLike | None = None) -> pd.DataFrame:
        """Return the states strictly before the time `at` as a pandas DataFrame.

        The index holds node names, or node numbers if there are no names; the columns are pairs
        (channel, column), so that `frame[0]` is the first channel. All nodes by default.
        """
        import pandas as pd

        chosen: ArrayLike = np.arange(self.nodes) if nodes is None else nodes
        numbers, times = self._resolve(chosen, at)
        states = self.state(numbers, times)
        names = self.names
        labels = numbers if names is None else [names[int(number)] for number in numbers]
        return pd.DataFrame(
            states.reshape(len(numbers), -1),
            index=pd.Index(labels, name="node"),
            columns=pd.MultiIndex.from_product(
                [range(len(self.channels)), range(self.columns)], names=["channel", "column"]
            ),
        )

    @property
    @abstractmethod
    def names(self) -> NodeNames | None:
        """The names of the nodes, if the recorded stream had any."""

    @property
    def path(self) -> Path:
        return self._directory

    @property
    def nodes(self) -> int:
        return self._manifests[0].nodes

    @property
    def columns(self) -> int:
        """The number of columns of each channel."""
        return sum(manifest.columns for manifest in self._manifests)

    @property
    def channels(self) -> tuple[Channel, ...]:
        settings = self._manifests[0].propagator["settings"]
        return tuple(Channel(**channel) for channel in settings["channels"])

    @property
    def epsilon(self) -> float:
        return self._manifests[0].epsilon

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._manifests[0].dtype)

    @property
    def unit(self) -> str | None:
        """The unit of time, if a stream was recorded."""
        return self._manifests[0].unit

    @property
    def records(self) -> int:
        """The number of records, including the states before any event."""
        return sum(manifest.records for manifest in self._manifests)

    @property
    def nbytes(self) -> int:
        """The size of the segments on disk."""
        return sum(entry.bytes for manifest in self._manifests for entry in manifest.segments)

    def __repr__(self) -> str:
        first, *more = self._manifests
        shards = f"{1 + len(more)} shards, " if more else ""
        until = ""
        if first.time is not None:
            unit = first.unit or "step"
            day = dates(first.time, first.time, unit)[1]
            until = f", up to {day or f'{first.time:,} {unit}'}"
        return (
            f"{type(self).__name__}({str(self.path)!r}, {shards}{self.nodes:,} nodes,"
            f" {self.records:,} records of {len(self.channels)} × {self.columns} {self.dtype},"
            f" {self.nbytes / 1e6:,.1f} MB{until}{'' if first.complete else ', not complete'})"
        )

    def _resolve(self, nodes: ArrayLike, times: Times) -> tuple[IntArray, IntArray]:
        """Return node numbers and times `[B]`; one time may stand for all nodes."""
        numbers, before = self._node_numbers(nodes), self._times(times)
        if len(before) == 1 != len(numbers):
            before = np.broadcast_to(before, numbers.shape)
        if len(before) != len(numbers):
            raise DataError(
                f"there are {len(numbers)} nodes and {len(before)} times; give one time per node,"
                " or one for all"
            )
        return np.ascontiguousarray(numbers), np.ascontiguousarray(before)

    def _one_node(self, node: Any) -> int:
        numbers = self._node_numbers(node)
        if len(numbers) != 1:
            raise ParameterError(f"{len(numbers)} nodes were given; give one")
        return int(numbers[0])

    def _node_numbers(self, nodes: ArrayLike) -> IntArray:
        given = _vector(as_names_or_numbers(nodes), "nodes")
        if given.size == 0 or given.dtype.kind not in "OUT":
            return known_nodes(given, self.nodes)
        names = self.names
        if names is None:
            raise DataError(
                f"node {given.tolist()[0]!r} is unknown: the store has no node names; give numbers"
                f" from 0 to {self.nodes - 1}"
            )
        return names.numbers(given)

    def _times(self, times: Times) -> IntArray:
        given = _vector(times, "times")
        if given.dtype.kind not in "iu" and given.size:
            # Without a stream there is no unit, and no dates.
            given = times_of(given, self.unit or "step")
        if given.size and not _BEGINNING < int(given.min()) <= int(given.max()) < 2**63:
            raise DataError("times lie strictly between -2**63 and 2**63")
        return given.astype(np.int64, copy=False)


def _vector(values: Any, name: str) -> NDArray[Any]:
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}; give one value, or [B]")
    return array
