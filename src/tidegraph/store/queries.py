"""What every store accepts in a query: nodes by number or name, times as numbers or dates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.engine.channels import Channel
from tidegraph.events.stream import NodeNames, known_nodes, moment

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Queries"]

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float32]

_BEGINNING = np.iinfo(np.int64).min  # the time of a node's state before any event


class Queries(ABC):
    """A store that can be queried for the state of nodes before a time.

    Nodes are integers (node numbers) or, where the recorded stream had them, strings (node names).
    Times are integers in the store's unit or, where the unit is that of a calendar, dates: ISO
    strings, `datetime` or `numpy.datetime64`, in UTC unless they have a zone.
    """

    @property
    @abstractmethod
    def nodes(self) -> int:
        """The number of nodes."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """The number of columns per channel."""

    @property
    @abstractmethod
    def channels(self) -> tuple[Channel, ...]:
        """The channels that were recorded."""

    @property
    @abstractmethod
    def unit(self) -> str | None:
        """The unit of time, if a stream was recorded."""

    @property
    @abstractmethod
    def names(self) -> NodeNames | None:
        """The names of the nodes, if the recorded stream had any."""

    @abstractmethod
    def state(
        self, nodes: ArrayLike, times: ArrayLike, *, out: FloatArray | None = None
    ) -> FloatArray:
        """Return the states `[B, channels, columns]` of `nodes[b]` strictly before `times[b]`."""

    def frame(self, at: Any, nodes: ArrayLike | None = None) -> pd.DataFrame:
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

    def _resolve(self, nodes: ArrayLike, times: Any) -> tuple[IntArray, IntArray]:
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
        given = _vector(nodes, "nodes")
        if not _holds_text(given):
            return known_nodes(given, self.nodes)
        names = self.names
        if names is None:
            raise DataError(
                f"node {given.tolist()[0]!r} is unknown: the store has no node names; give numbers"
                f" from 0 to {self.nodes - 1}"
            )
        return names.numbers(given)

    def _times(self, times: Any) -> IntArray:
        given = _vector(times, "times")
        if given.dtype.kind not in "iu" and given.size:
            # Without a stream there is no unit, and no dates.
            given = np.array([moment(when, self.unit or "step") for when in given])
        if given.size and not _BEGINNING < int(given.min()) <= int(given.max()) < 2**63:
            raise DataError("times lie strictly between -2**63 and 2**63")
        return given.astype(np.int64)


def _vector(values: Any, name: str) -> NDArray[Any]:
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}; give one value, or [B]")
    return array


def _holds_text(array: NDArray[Any]) -> bool:
    if array.dtype.kind == "O":
        return array.size > 0 and all(isinstance(value, str) for value in array.tolist())
    return array.dtype.kind in "UT"
