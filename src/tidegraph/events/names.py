"""Node names and node numbers: what a file calls its nodes, and checks of nodes asked for."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import DataError, UnknownNodeError
from tidegraph.events.columns import IntArray, whole_numbers

Side: TypeAlias = Literal["src", "dst"]
STRING = np.dtypes.StringDType()
_FEW = 8  # up to so many names are compared with all, to answer before pyarrow is imported
_NO_NAME = -(1 << 62)  # minus its number: an integer in the place of the name of a forgotten node
_COMPARED = 20_000  # up to so many names the nearest one is searched for
_LONGEST = 100  # and up to so many characters: the search takes as long as both together


class NodeNames:
    """The names a file gives its nodes, strings or integers: `values[number]` is the name.

    by_side: whether an id of the file means one node as a source and another as a destination, as
        in tables of users and items. A name then is the id after "src " or "dst ".

    >>> NodeNames(["ann", "bob"]).numbers(["bob", "ann"])
    array([1, 0])
    """

    __slots__ = ("_index", "by_side", "values")

    def __init__(self, values: ArrayLike, *, by_side: bool = False) -> None:
        array = np.asarray(values)
        if array.ndim != 1:
            raise DataError(f"names have shape {array.shape}; give one per node")
        if array.dtype.kind in "iu":
            array = np.array(whole_numbers(array, "names", error=DataError))
        else:
            array = np.array(array.tolist() if array.dtype.kind == "O" else array, dtype=STRING)
        array.setflags(write=False)
        self.values: NDArray[Any] = array
        self.by_side = by_side
        self._index: Any = None  # integers: numbers in order of names; strings: an Arrow array

    @classmethod
    def of_sides(cls, sources: Iterable[Any], destinations: Iterable[Any]) -> NodeNames:
        """Return the names of two sides whose ids may coincide: all sources, then destinations.

        >>> NodeNames.of_sides([7], [7, 8]).values.tolist()
        ['src 7', 'dst 7', 'dst 8']
        """
        names = [f"src {name}" for name in sources] + [f"dst {name}" for name in destinations]
        return cls(np.array(names, dtype=STRING), by_side=True)

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the names as arrays of numbers, from which `of_arrays` restores them."""
        if self.are_integers:
            return {"names": self.values}
        encoded = [name.encode() for name in self.values.tolist()]
        return {
            "names.bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8),
            "names.length": np.array([len(name) for name in encoded], dtype=np.int64),
        }

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], by_side: bool | None
    ) -> NodeNames | None:
        """Return the names that `as_arrays` put among these arrays, if any."""
        if "names" in arrays:
            return cls(arrays["names"])
        if "names.length" not in arrays:
            return None
        data, ends = arrays["names.bytes"].tobytes(), np.cumsum(arrays["names.length"]).tolist()
        names = [data[i:j].decode() for i, j in itertools.pairwise([0, *ends])]
        if by_side is None:  # saved before this was a field: the names themselves show it
            by_side = bool(names) and all(name.startswith(("src ", "dst ")) for name in names)
        return cls(np.array(names, dtype=STRING), by_side=by_side)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Any:
        value = self.values[number]
        return value if isinstance(value, str) else value.item()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeNames) and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    @property
    def are_integers(self) -> bool:
        return self.values.dtype.kind == "i"

    def extends(self, known: NodeNames) -> bool:
        """Whether these names begin with the known ones."""
        return np.array_equal(self.values[: len(known)], known.values)

    def without(self, number: int) -> NodeNames:
        """Return the names in which a node has none any more; all others keep their numbers.

        >>> NodeNames(["ann", "bob"]).without(1).values.tolist()
        ['ann', '(forgotten 1)']
        """
        values: NDArray[Any] = self.values.copy()
        values[number] = self._placeholder(number)
        if int((values == values[number]).sum()) > 1:
            raise DataError(
                f"another node is called {values[number]!r}, which stands for one that was"
                " forgotten; rename it"
            )
        return NodeNames(values, by_side=self.by_side)

    def _placeholder(self, number: int) -> str | int:
        """Return what stands in the place of the name of a node that was forgotten."""
        if self.are_integers:
            return _NO_NAME - number
        side = self[number][:4] if self.by_side else ""  # "src " or "dst "
        return f"{side}(forgotten {number})"

    def forgotten(self) -> IntArray:
        """Return the numbers of the nodes that were forgotten, ascending."""
        if self.are_integers:
            return np.flatnonzero(self.values == _NO_NAME - np.arange(len(self)))
        likely = np.flatnonzero(np.strings.endswith(self.values, ")"))
        found = [each for each in likely.tolist() if self[each] == self._placeholder(each)]
        return np.array(found, dtype=np.int64)

    def numbers(self, names: ArrayLike, side: Side | None = None) -> IntArray:
        """Return the numbers of names, in the same shape; raise `UnknownNodeError` if one is none.

        side: whether the names are ids of sources or of destinations, where `by_side`.
        """
        wanted = self._of_side(np.asarray(names), side)
        found = self._look_up(wanted)
        if side is None and self.by_side and (found < 0).any():
            found = self._numbers_on_either_side(wanted, found)
        unknown = found.ravel() < 0
        if unknown.any():
            raise self._unknown(wanted.ravel().tolist()[int(unknown.argmax())])
        return found

    def _numbers_on_either_side(self, wanted: NDArray[Any], found: IntArray) -> IntArray:
        """Return the numbers of ids, too, that occur on one side only."""
        src, dst = (self._string_numbers(_on_side(wanted, side)) for side in ("src", "dst"))
        both = ((found < 0) & (src >= 0) & (dst >= 0)).ravel()
        if both.any():
            name = wanted.ravel().tolist()[int(both.argmax())]
            raise UnknownNodeError(
                f"{name!r} is a source and, as another node, a destination; give 'src {name}' or"
                f" 'dst {name}'"
            )
        return np.where(found < 0, np.maximum(src, dst), found)

    def find(self, names: ArrayLike, side: Side | None = None) -> IntArray:
        """Return what `numbers` does, with -1 for names that no node has."""
        return self._look_up(self._of_side(np.asarray(names), side))

    def _of_side(self, names: NDArray[Any], side: Side | None) -> NDArray[Any]:
        return names if side is None or not self.by_side else _on_side(names, side)

    def _look_up(self, wanted: NDArray[Any]) -> IntArray:
        return (self._integer_numbers if self.are_integers else self._string_numbers)(wanted)

    def _integer_numbers(self, wanted: NDArray[Any]) -> IntArray:
        if wanted.dtype.kind in "OUT":
            wanted = parsed_integers(wanted)
        if wanted.size == 0 or not len(self) or wanted.dtype.kind not in "iu":
            return np.full(wanted.shape, -1, dtype=np.int64)
        if self._index is None:
            self._index = np.argsort(self.values, kind="stable")
        order = self._index
        # int64 against uint64 would be searched in float64. A value that wraps around here is
        # unequal to what it is compared with below.
        key = wanted.astype(np.int64)
        at = np.minimum(np.searchsorted(self.values, key, sorter=order), len(order) - 1)
        numbers = order[at]
        return np.where(self.values[numbers] == wanted, numbers, -1)

    def _string_numbers(self, wanted: NDArray[Any]) -> IntArray:
        if wanted.size <= _FEW and self._index is None:
            places = [np.flatnonzero(self.values == str(name)) for name in wanted.ravel().tolist()]
            numbers = [place[0] if len(place) else -1 for place in places]
            return np.array(numbers, dtype=np.int64).reshape(wanted.shape)
        import pyarrow as pa  # here: it takes longer to import than everything else together
        import pyarrow.compute

        if self._index is None:
            self._index = pa.array(self.values, type=pa.large_string())
        asked = pa.array([str(name) for name in wanted.ravel().tolist()], type=pa.large_string())
        found = pyarrow.compute.index_in(asked, value_set=self._index).fill_null(-1)
        return found.to_numpy(zero_copy_only=False).astype(np.int64).reshape(wanted.shape)  # type: ignore[no-any-return]

    def _unknown(self, name: Any) -> UnknownNodeError:
        if not len(self):
            return UnknownNodeError(f"node {name!r} is unknown; no node has a name")
        if self.are_integers:
            return UnknownNodeError(
                f"node {name!r} is unknown; names are integers like {self[0]!r}"
            )
        names = self.values.tolist() if len(self) <= _COMPARED else []
        # Programs that take names for numbers lose their leading zeros.
        near = [known for known in names if _unpadded(known) == _unpadded(str(name))]
        if len(str(name)) <= _LONGEST:
            near = near or difflib.get_close_matches(str(name), names, n=1)
        hint = f"the nearest name is {near[0]!r}" if near else f"names look like {self[0]!r}"
        return UnknownNodeError(f"node {name!r} is unknown; {hint}")


def _on_side(names: NDArray[Any], side: str) -> NDArray[Any]:
    """Return ids of one side as names."""
    prefixed = [f"{side} {name}" for name in names.ravel().tolist()]
    return np.array(prefixed, dtype=STRING).reshape(names.shape)


def _unpadded(name: str) -> str:
    return re.sub(r"\b0+(?=\d)", "", name)


def parsed_integers(values: NDArray[Any]) -> NDArray[Any]:
    """Return texts as the integers they spell, in the same shape; the texts if one spells none."""
    parsed = []
    for value in values.ravel().tolist():
        if isinstance(value, str) and re.fullmatch("0|-?[1-9][0-9]*", value):
            parsed.append(int(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            parsed.append(value)
        else:
            return values
    return np.array(parsed).reshape(values.shape)


def as_names_or_numbers(values: ArrayLike) -> NDArray[Any]:
    """Return node names as an array of texts, and anything else as it is.

    Raise DataError for a mixture. NumPy would turn the numbers of a list into texts, and a number
    would be taken for a name; it would turn booleans into numbers.

    >>> as_names_or_numbers(["ann", "bob"]).dtype.kind, as_names_or_numbers([0, 1]).dtype.kind
    ('U', 'i')
    """
    array = np.asarray(values)
    mixed = "OUT" if hasattr(values, "dtype") else "OUTiu"  # what NumPy may make of a mixture
    if array.size == 0 or array.dtype.kind not in mixed:
        return array
    items = np.asarray(values, dtype=object).ravel().tolist()
    if all(isinstance(item, str) for item in items):
        return array
    if all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in items):
        return np.array([int(item) for item in items]).reshape(array.shape)
    kinds = sorted({type(item).__name__ for item in items})
    raise DataError(f"nodes are given as {' and '.join(kinds)}; give all names or all numbers")


def node_numbers(values: ArrayLike) -> IntArray:
    """Return node numbers as int64, in the same shape; whether such nodes exist is not checked."""
    array = np.asarray(values)
    if array.size == 0:
        return array.astype(np.int64)  # an empty question may have any type
    advice = "stream.nodes_of(names) returns the numbers of names"
    return whole_numbers(array, "nodes", advice=advice, error=DataError)


def known_nodes(numbers: ArrayLike, nodes: int) -> IntArray:
    """Return node numbers as int64, in the same shape; raise `UnknownNodeError` for others."""
    array = np.asarray(numbers)
    if array.size == 0:
        return array.astype(np.int64)
    there = f"nodes are 0 to {nodes - 1}" if nodes else "there are no nodes"
    if array.dtype.kind not in "iu":
        raise UnknownNodeError(
            f"node {array.ravel()[:1].tolist()[0]!r} is unknown; {there}, given as integers and not"
            f" as {array.dtype}"
        )
    wrong = ((array < 0) | (array >= nodes)).ravel()
    if wrong.any():
        raise UnknownNodeError(f"node {array.ravel()[int(wrong.argmax())]} is unknown; {there}")
    return array.astype(np.int64)
