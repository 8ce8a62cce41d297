"""Node names on disk, for graphs whose names do not fit into memory; looked up by bisection.

names.ids                   int64 [nodes], if names are integers
names.offsets, names.text   otherwise: int64 [nodes + 1], and the concatenated names in UTF-8
names.order                 uint32 [nodes]: the nodes in ascending order of their names
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.durable import replace_file
from tidegraph.core.errors import UnknownNodeError
from tidegraph.events.columns import IntArray
from tidegraph.events.names import STRING, parsed_integers
from tidegraph.events.tables.numbering import Numbering, interleaved

if TYPE_CHECKING:
    import pyarrow as pa

Kind: TypeAlias = Literal["integers", "texts"]

ORDER_BYTES = 24  # of memory per node, to sort the nodes by name

_ORDER = "names.order"
_FILES = {"integers": ("names.ids",), "texts": ("names.offsets", "names.text")}
_TEXT_ROWS = 1 << 14  # numbered at once: names may be long
_PIECE = 1 << 20  # names read, or written, at once


def files_of(kind: Kind) -> tuple[str, ...]:
    """Return the files that hold names of a kind."""
    return (*_FILES[kind], _ORDER)


class StoredNames:
    """The names of all nodes in the files of a directory; only the names asked for are read."""

    def __init__(self, directory: Path, kind: Kind, nodes: int) -> None:
        self._directory, self._kind, self._nodes = directory, kind, nodes

    def __len__(self) -> int:
        return self._nodes

    def names(self, nodes: IntArray) -> NDArray[Any]:
        """Return the names of nodes in the same shape; the nodes must exist."""
        found = self._take(nodes.ravel())
        if self._kind == "integers":
            return found.to_numpy().reshape(nodes.shape)  # type: ignore[no-any-return]
        texts = np.array(found.to_pylist(), dtype=STRING)
        return texts.reshape(nodes.shape)

    def numbers(self, names: ArrayLike) -> IntArray:
        """Return the nodes with these names, in the same shape; raise `UnknownNodeError` else."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = np.asarray(names)
        if wanted.size == 0:
            return np.empty(wanted.shape, dtype=np.int64)
        given = wanted.ravel()
        if self._kind == "integers" and given.dtype.kind in "OUT":
            given = parsed_integers(given)
        if self._kind == "texts":
            asked = pa.array([str(name) for name in given.tolist()], type=pa.large_string())
        elif given.dtype.kind not in "iu":
            raise self._unknown(given[0])
        elif int(given.max()) >= 2**63:
            raise self._unknown(given.max())
        else:
            asked = pa.array(given.astype(np.int64))
        # All bisect together, so the number of steps does not depend on how many are asked for.
        low = np.zeros(given.size, dtype=np.int64)
        high = np.full(given.size, self._nodes)
        while (apart := low < high).any():
            middle = np.where(apart, (low + high) // 2, 0)
            found_names = self._take(self._order[middle])
            below = pc.less(found_names, asked).to_numpy(zero_copy_only=False)
            low = np.where(apart & below, middle + 1, low)
            high = np.where(apart & ~below, middle, high)
        found = self._order[np.minimum(low, self._nodes - 1)].astype(np.int64)
        known = pc.equal(self._take(found), asked).to_numpy(zero_copy_only=False)
        if not known.all():
            raise self._unknown(given[int(known.argmin())])
        return found.reshape(wanted.shape)

    def sort(self) -> None:
        """Write the order of the names, once all of them are there."""
        import pyarrow.compute as pc

        order = pc.sort_indices(self._column).to_numpy()

        def write(file: Any) -> None:
            for first in range(0, len(order), _PIECE):
                file.write(order[first : first + _PIECE].astype(np.uint32).data)

        replace_file(self._directory / _ORDER, write, only_writer=True)

    def piece(self, first: int) -> Any:
        """Return some names from that of node `first` on, in the form that tables give them."""
        import pyarrow as pa

        rows = _PIECE if self._kind == "integers" else _TEXT_ROWS
        ids = self._column.slice(first, rows)
        return ids.to_numpy() if self._kind == "integers" else ids.cast(pa.string())

    def _unknown(self, name: Any) -> UnknownNodeError:
        example = self.names(np.zeros(1, dtype=np.int64)).tolist()[0]
        shown = name.item() if isinstance(name, np.generic) else name
        return UnknownNodeError(f"node {shown!r} is unknown; names look like {example!r}")

    def _take(self, nodes: NDArray[Any]) -> pa.Array:
        import pyarrow as pa

        return self._column.take(pa.array(nodes))

    @cached_property
    def _order(self) -> NDArray[np.uint32]:
        return np.memmap(self._directory / _ORDER, dtype=np.uint32, mode="r")

    @cached_property
    def _column(self) -> pa.Array:
        """All names as an Arrow array over the files."""
        import pyarrow as pa

        kind = pa.int64() if self._kind == "integers" else pa.large_string()
        files = (self._directory / name for name in _FILES[self._kind])
        mapped = [pa.py_buffer(np.memmap(file, dtype=np.uint8, mode="r")) for file in files]
        return pa.Array.from_buffers(kind, self._nodes, [None, *mapped])


class Naming:
    """Numbers the names of a table in order of first appearance and writes new ones to files.

    The source of a row comes before its destination. Names already in the files are known.

    text_bytes: the size of the names in the files, if they are texts.
    within: called with the number of names and the memory they take; may raise.
    """

    def __init__(
        self,
        directory: Path,
        kind: Kind,
        nodes: int,
        text_bytes: int,
        within: Callable[[int, int], None],
    ) -> None:
        self.kind, self._within = kind, within
        self._numbering = Numbering()
        self.text_bytes = text_bytes
        lengths = [8 * nodes] if kind == "integers" else [8 * (nodes + 1) * (nodes > 0), text_bytes]
        self.sizes = {
            directory / name: length for name, length in zip(_FILES[kind], lengths, strict=True)
        }
        stored = StoredNames(directory, kind, nodes)
        while len(self) < nodes:
            self._numbering(stored.piece(len(self)))
            within(len(self), self._numbering.nbytes)

    def __len__(self) -> int:
        return len(self._numbering)

    def __call__(self, src: Any, dst: Any, files: Sequence[Any]) -> list[NDArray[np.int32]]:
        """Return the numbers of both ends of rows; write new names to the files of `sizes`."""
        rows = max(len(src), 1) if self.kind == "integers" else _TEXT_ROWS
        pieces = []
        for first in range(0, len(src), rows):
            known = len(self)
            ids = interleaved(src[first : first + rows], dst[first : first + rows])
            numbers = self._numbering(ids)
            self._within(len(self), self._numbering.nbytes)
            fresh = np.flatnonzero(numbers >= known)
            _, at = np.unique(numbers[fresh], return_index=True)
            self._write(ids, fresh[at], files, known == 0)
            pieces.append(numbers)
        both = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int32)
        return [both[0::2], both[1::2]]

    def _write(self, ids: Any, places: IntArray, files: Sequence[Any], begin: bool) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.kind == "integers":
            files[0].write(np.ascontiguousarray(ids[places]).data)
            return
        if begin:
            files[0].write(np.zeros(1, dtype=np.int64).data)
        texts = ids.take(pa.array(places)).cast(pa.binary())
        lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
        files[0].write((self.text_bytes + np.cumsum(lengths)).data)
        files[1].write(b"".join(texts.to_pylist()))
        self.text_bytes += int(lengths.sum())
