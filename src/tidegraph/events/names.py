"""What a table calls its nodes, where they may be too many to be held: in files, by bisection.

names.ids                   int64 [nodes], where ids are integers
names.offsets, names.text   elsewhere: int64 [nodes + 1], and the ids one after another in UTF-8
names.order                 uint32 [nodes]: the nodes in ascending order of their ids
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.durable import replace_file
from tidegraph.core.errors import DataError
from tidegraph.events.tables.numbering import Numbering, interleaved

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ORDER_BYTES", "Kind", "Naming", "StoredNames", "files_of"]

Kind: TypeAlias = Literal["integers", "texts"]
IntArray: TypeAlias = NDArray[np.int64]

ORDER_BYTES = 24  # of memory per node, to put the nodes in the order of their ids

_ORDER = "names.order"
_IDS = {"integers": ("names.ids",), "texts": ("names.offsets", "names.text")}
_TEXT_ROWS = 1 << 14  # numbered at once: texts may be long
_PIECE = 1 << 20  # names read, or written, at once


def files_of(kind: Kind) -> tuple[str, ...]:
    """The names of the files in which ids of a kind are kept."""
    return (*_IDS[kind], _ORDER)


class StoredNames:
    """The ids of all nodes in the files of a directory, of which only those asked for are read."""

    def __init__(self, directory: Path, kind: Kind, nodes: int) -> None:
        self._directory, self._kind, self._nodes = directory, kind, nodes

    def __len__(self) -> int:
        return self._nodes

    def names(self, nodes: IntArray) -> NDArray[Any]:
        """The ids of nodes, which must be from 0 on and less than the length, in the same shape."""
        found = self._take(nodes.ravel())
        if self._kind == "integers":
            return found.to_numpy().reshape(nodes.shape)  # type: ignore[no-any-return]
        texts = np.array(found.to_pylist(), dtype=np.dtypes.StringDType())
        return texts.reshape(nodes.shape)

    def numbers(self, ids: ArrayLike) -> IntArray:
        """The nodes with these ids, in the same shape; an unknown id is an error that names it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = np.asarray(ids)
        if wanted.size == 0:
            return np.empty(wanted.shape, dtype=np.int64)
        given = wanted.ravel()
        if self._kind == "texts":
            asked = pa.array([str(name) for name in given.tolist()], type=pa.large_string())
        elif given.dtype.kind not in "iu":
            raise self._unknown(given[0])
        elif int(given.max()) >= 2**63:
            raise self._unknown(given.max())
        else:
            asked = pa.array(given.astype(np.int64))
        # All bisect together: a step for each doubling of the nodes, however many are asked for.
        low = np.zeros(given.size, dtype=np.int64)
        high = np.full(given.size, self._nodes)
        while (apart := low < high).any():
            middle = np.where(apart, (low + high) // 2, 0)
            names = self._take(self._order[middle])
            below = pc.less(names, asked).to_numpy(zero_copy_only=False)
            low = np.where(apart & below, middle + 1, low)
            high = np.where(apart & ~below, middle, high)
        found = self._order[np.minimum(low, self._nodes - 1)].astype(np.int64)
        known = pc.equal(self._take(found), asked).to_numpy(zero_copy_only=False)
        if not known.all():
            raise self._unknown(given[int(known.argmin())])
        return found.reshape(wanted.shape)

    def sort(self) -> None:
        """Writes the order of the ids, once all of them are there."""
        import pyarrow.compute as pc

        order = pc.sort_indices(self._column).to_numpy()

        def write(file: Any) -> None:
            for first in range(0, len(order), _PIECE):
                file.write(order[first : first + _PIECE].astype(np.uint32).data)

        replace_file(self._directory / _ORDER, write, only_writer=True)

    def piece(self, first: int) -> Any:
        """Some ids from the one of a node on, in the form in which tables give them."""
        import pyarrow as pa

        rows = _PIECE if self._kind == "integers" else _TEXT_ROWS
        ids = self._column.slice(first, rows)
        return ids.to_numpy() if self._kind == "integers" else ids.cast(pa.string())

    def _unknown(self, name: Any) -> DataError:
        example = self.names(np.zeros(1, dtype=np.int64)).tolist()[0]
        shown = name.item() if isinstance(name, np.generic) else name
        return DataError(f"node {shown!r} is unknown; ids look like {example!r}")

    def _take(self, nodes: NDArray[Any]) -> pa.Array:
        import pyarrow as pa

        return self._column.take(pa.array(nodes))

    @cached_property
    def _order(self) -> NDArray[np.uint32]:
        return np.memmap(self._directory / _ORDER, dtype=np.uint32, mode="r")

    @cached_property
    def _column(self) -> pa.Array:
        """All ids as an Arrow array over the files."""
        import pyarrow as pa

        kind = pa.int64() if self._kind == "integers" else pa.large_string()
        files = (self._directory / name for name in _IDS[self._kind])
        mapped = [pa.py_buffer(np.memmap(file, dtype=np.uint8, mode="r")) for file in files]
        return pa.Array.from_buffers(kind, self._nodes, [None, *mapped])


class Naming:
    """Numbers the ids of a table in the order in which they first appear, and keeps them in files.

    The source of a row comes before its destination. What the files hold already is known.

    text_bytes: of the ids that the files hold, where those are texts.
    within: is called with how many ids there are and the memory they take, and may refuse it.
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
            directory / name: length for name, length in zip(_IDS[kind], lengths, strict=True)
        }
        stored = StoredNames(directory, kind, nodes)
        while len(self) < nodes:
            self._numbering(stored.piece(len(self)))
            within(len(self), self._numbering.nbytes)

    def __len__(self) -> int:
        return len(self._numbering)

    def __call__(self, src: Any, dst: Any, files: Sequence[Any]) -> list[NDArray[np.int32]]:
        """The numbers of both ends of rows; new ids are written to files, which are `sizes`."""
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
