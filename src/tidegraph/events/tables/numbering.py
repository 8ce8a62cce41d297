"""Node numbers for the ids of a table: as they are, or assigned in order of appearance."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError
from tidegraph.events.columns import IntArray
from tidegraph.events.names import STRING, NodeNames
from tidegraph.events.tables.cells import is_arrow

Ids: TypeAlias = Literal["auto", "keep", "number"]

_KEPT_IDS = 2**31  # "keep" accepts ids below it
_FAR_APART = 2
_INTEGER_BYTES = 24  # 12 in two sorted arrays, and the same again while inserting
# A dict takes 22 to 44 bytes per entry, and 66 while it is copied into one of twice the size; the
# number is an object of 32 bytes.
_NAME_BYTES = 66 + 32


class Numbering:
    """Assigns numbers to ids in the order of their first appearance.

    Integers are looked up in one sorted array, which takes 12 bytes per node. The first id that is
    not an integer turns all of them into text.
    """

    def __init__(self) -> None:
        self._sorted: IntArray = np.empty(0, dtype=np.int64)
        self._numbers: NDArray[np.int32] = np.empty(0, dtype=np.int32)  # of the ids in `_sorted`
        self._names: dict[str, int] | None = None
        self._text_bytes = 0  # of the names as Python objects

    @property
    def nbytes(self) -> int:
        """The most memory it takes, also while it grows."""
        if self._names is None:
            return _INTEGER_BYTES * len(self)
        return _NAME_BYTES * len(self) + self._text_bytes

    def __len__(self) -> int:
        return len(self._sorted) if self._names is None else len(self._names)

    def __call__(self, ids: Any) -> NDArray[np.int32]:
        import pyarrow as pa

        if self._names is None and is_arrow(ids):
            self._names = {str(name): number for number, name in enumerate(self.ids().tolist())}
            self._text_bytes = sum(map(_object_bytes, self._names))
            self._sorted, self._numbers = self._sorted[:0], self._numbers[:0]
        column = ids if is_arrow(ids) else pa.array(ids)
        if self._names is not None:
            column = column.cast(pa.string())
        encoded = column.dictionary_encode()
        if self._names is not None:
            names, known = self._names, len(self._names)
            seen = encoded.dictionary.to_pylist()
            new = [names.setdefault(name, len(names)) for name in seen]
            numbers = np.array(new, dtype=np.int32)
            fresh = np.flatnonzero(numbers >= known).tolist()
            self._text_bytes += sum(_object_bytes(seen[place]) for place in fresh)
        else:
            numbers = self._number(encoded.dictionary.to_numpy())
        return numbers[encoded.indices.to_numpy()]  # type: ignore[no-any-return]

    def _number(self, seen: IntArray) -> NDArray[np.int32]:
        """Return the numbers of distinct integers, given in order of first appearance."""
        order = np.argsort(seen)
        ascending = seen[order]
        at = np.searchsorted(self._sorted, ascending)
        known = np.zeros(len(seen), dtype=np.bool_)
        inside = at < len(self._sorted)
        known[inside] = self._sorted[at[inside]] == ascending[inside]
        numbers = np.empty(len(seen), dtype=np.int32)
        numbers[order[known]] = self._numbers[at[known]]
        fresh = np.sort(order[~known])  # in order of appearance again
        if len(self) + len(fresh) >= _KEPT_IDS:
            raise DataError("the table has more than 2**31 nodes; at most 2**31 can be numbered")
        if not len(fresh):
            return numbers
        numbers[fresh] = np.arange(len(self), len(self) + len(fresh), dtype=np.int32)
        self._numbers = np.insert(self._numbers, at[~known], numbers[order[~known]])
        self._sorted = np.insert(self._sorted, at[~known], ascending[~known])
        return numbers

    def ids(self) -> NDArray[Any]:
        """Return the ids by number."""
        if self._names is not None:
            return np.array(list(self._names), dtype=STRING)
        ids = np.empty(len(self), dtype=np.int64)
        ids[self._numbers] = self._sorted
        return ids


def _object_bytes(name: str) -> int:
    return -(-sys.getsizeof(name) // 16) * 16  # Python allocates multiples of 16 bytes


def interleaved(src: Any, dst: Any) -> Any:
    """Return src[0], dst[0], src[1], ...: numbers then do not depend on the size of batches."""
    import pyarrow as pa

    if not is_arrow(src) and not is_arrow(dst):
        return np.stack([src, dst], axis=1).ravel()
    both = [
        column if is_arrow(column) else pa.array(column).cast(pa.string()) for column in (src, dst)
    ]
    order = np.arange(2 * len(src)).reshape(2, -1).T.ravel()
    return pa.concat_arrays(both).take(pa.array(order))


def _kept(ids: Any, table: str) -> NDArray[np.int32]:
    """Return the ids of a table as node numbers; raise DataError unless they are small integers."""
    if is_arrow(ids) or int(ids.min()) < 0 or int(ids.max()) >= _KEPT_IDS:
        shown = ids[0] if is_arrow(ids) else ids[int(np.argmax((ids < 0) | (ids >= _KEPT_IDS)))]
        raise DataError(
            f"{table} has the node id {shown}; ids='keep' takes integers from 0 to"
            " 2**31 - 1: use ids='number'"
        )
    return ids.astype(np.int32)  # type: ignore[no-any-return]


class EndNumbering:
    """Numbers both ends of the rows of a table.

    bipartite: whether an id is one node as a source and another as a destination; "two" and
        "perhaps two" leave it to the ids that occur on both sides, see `final`.
    """

    def __init__(self, ids: Ids, bipartite: bool | str, table: str) -> None:
        self._ids, self._table = ids, table
        self._bipartite = bipartite if ids == "auto" or bipartite is True else False
        self.sides = [Numbering(), Numbering()] if self._bipartite else [Numbering()]
        self.shared = 0  # ids on both sides, if these decide
        self.apart = bipartite is True  # whether they are two nodes each

    def __call__(self, src: Any, dst: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the numbers of some rows; those of the next rows may add nodes."""
        if self._ids == "keep":
            return _kept(src, self._table), _kept(dst, self._table)
        if self._bipartite:
            return self.sides[0](src), self.sides[1](dst)
        numbers = self.sides[0](interleaved(src, dst))
        return numbers[0::2], numbers[1::2]

    def final(
        self, src: NDArray[np.int32], dst: NDArray[np.int32]
    ) -> tuple[NDArray[Any], NDArray[Any], int | None, NodeNames | None]:
        """Return all rows in their final numbers, the number of nodes if known, and the names."""
        if self._ids == "keep":
            return src, dst, None, None
        given, *others = (side.ids() for side in self.sides)
        if others and self._bipartite is not True:
            both, place = _merged(given, others[0])
            self.shared = int((place < len(given)).sum())
            self.apart = self._are_apart(given, others[0])
            if not self.apart:
                given, dst, others = both, place[dst], []
        nodes = len(given)
        whole = self._ids == "auto" and all(map(_is_range, (given, *others)))
        if others:
            if whole:  # in the order of the ids
                src, dst = given[src], others[0][dst]
                given, others[0] = np.sort(given), np.sort(others[0])
            names = NodeNames.of_sides(given.tolist(), others[0].tolist())
            return src, dst.astype(np.int64) + nodes, len(names), names
        if whole:
            return given[src], given[dst], nodes, None
        if self._ids == "number":
            return src, dst, nodes, NodeNames(given)
        # Numbers follow first appearance already; now put the sources first.
        first = np.full(nodes, len(src), dtype=np.int64)
        first[src[::-1]] = np.arange(len(src) - 1, -1, -1)
        order = np.argsort(first, kind="stable")
        place = np.empty(nodes, dtype=np.int64)
        place[order] = np.arange(nodes)
        return place[src], place[dst], nodes, NodeNames(given[order])

    def _are_apart(self, src: NDArray[Any], dst: NDArray[Any]) -> bool:
        """Whether the shared ids are two nodes each.

        They are if the names of the columns are clear about it. Otherwise the ids decide: each side
        counts its own from 0 or 1, almost without gaps, up to ends that are far apart.
        """
        few, many = sorted((len(src), len(dst)))
        counted = all(
            ids.dtype.kind == "i" and ids.min() in (0, 1) and ids.max() < 1.1 * len(ids)
            for ids in (src, dst)
        )
        return self.shared > 0 and (
            self._bipartite == "two" or (counted and many >= _FAR_APART * few)
        )


class TwoKinds:
    """Numbers both ends of rows, an id of one side apart from the same id of the other.

    Numbers follow the first appearance, the source of a row before its destination.
    """

    def __init__(self) -> None:
        self._sides = Numbering(), Numbering()
        self._numbers = [np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)]  # by side

    def __call__(self, src: Any, dst: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the numbers of some rows; those of the next rows may add nodes."""
        known = sum(map(len, self._numbers))
        ends = [side(ids) for side, ids in zip(self._sides, (src, dst), strict=True)]
        first = []  # where nodes that are new appear, by side
        for place, (own, numbers) in enumerate(zip(ends, self._numbers, strict=True)):
            seen, row = np.unique(own, return_index=True)
            first.append(2 * row[seen >= len(numbers)] + place)
        order = np.argsort(np.argsort(np.concatenate(first))).astype(np.int32) + known
        added = np.split(order, [len(first[0])])
        pairs = zip(self._numbers, added, strict=True)
        self._numbers = [np.concatenate([numbers, new]).astype(np.int32) for numbers, new in pairs]
        return self._numbers[0][ends[0]], self._numbers[1][ends[1]]

    def names(self) -> NodeNames:
        """Return the names by number."""
        both = NodeNames.of_sides(*(side.ids().tolist() for side in self._sides)).values
        return NodeNames(both[np.argsort(np.concatenate(self._numbers))], by_side=True)


def _merged(src: NDArray[Any], dst: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return the ids of both sides, those of sources first, and the places of dst's among them."""
    import pyarrow as pa

    numbering = Numbering()
    for ids in (src, dst) if src.dtype.kind == dst.dtype.kind else (src.astype(STRING), dst):
        numbers = numbering(ids if ids.dtype.kind == "i" else pa.array(ids.tolist(), pa.string()))
    return numbering.ids(), numbers


def _is_range(ids: NDArray[Any]) -> bool:
    """Whether the ids are exactly 0 .. n-1, in any order."""
    if ids.dtype.kind != "i" or not len(ids) or int(ids.min()) != 0:
        return False
    return int(ids.max()) == len(ids) - 1  # the ids are distinct
