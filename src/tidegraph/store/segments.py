"""Segments: immutable files of records, grouped by node, checksummed and mergeable.

A segment holds its nodes, the offset of each node's first record, and for every record its time,
its row, the exponents of the row (float16 only) and the scales of the promised error.
"""

from __future__ import annotations

import dataclasses
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.durable import replace_file
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.statefile import as_bytes, digest

IntArray: TypeAlias = NDArray[np.int64]
StoreDtype: TypeAlias = Literal["float32", "float16"]

VERSION = 1  # of segments and of the manifest that lists them
PIECE_BYTES = 1 << 23  # that merging and restoring hold in memory at a time
_MOST_SEGMENTS = 8
_COPY_AGAIN = "copy the store again, or record again"


@dataclass(frozen=True)
class Layout:
    """The shape of one record, and the precision in which it is stored.

    In float16 each channel of a record has its own power of two, so values of any size fit.
    """

    channels: int
    columns: int
    dtype: StoreDtype

    def __post_init__(self) -> None:
        if self.dtype not in get_args(StoreDtype):
            raise ParameterError(f"dtype is {self.dtype!r}; give 'float32' or 'float16'")

    @property
    def half(self) -> bool:
        return self.dtype == "float16"

    @property
    def rounding(self) -> tuple[float, float]:
        """Return how far storing may move a row: a share of its norm, and an absolute distance."""
        width = self.columns**0.5
        if not self.half:
            return 0.0, 2.0**-149 * width
        # Numbers below 2^-28 of a channel's largest are rounded to a multiple of 2^-38 of it.
        return 2.0**-11 + 2.0**-38 * width, 2.0**-145 * width

    def arrays(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Return the dtype and the numbers per record of each array of records."""
        return {
            "times": (np.dtype("<i8"), 1),
            "rows": (np.dtype("<f2" if self.half else "<f4"), self.channels * self.columns),
            "exponents": (np.dtype("i1"), self.channels if self.half else 0),
            "scales": (np.dtype("<f4"), self.channels),
        }

    @property
    def record_bytes(self) -> int:
        return sum(dtype.itemsize * width for dtype, width in self.arrays().values())


class Records(NamedTuple):
    """Records in some order: arrays `[records, numbers per record]`."""

    times: NDArray[Any]
    rows: NDArray[Any]
    exponents: NDArray[Any]
    scales: NDArray[Any]


_PREFIX = struct.Struct("<16sIIQQ")  # magic, version, row length, nodes, records
_MAGIC = b"tidegraph traj.\n"
_ALIGNMENT = 64


def _places(
    layout: Layout, nodes: int, records: int
) -> tuple[dict[str, tuple[np.dtype[Any], int, int]], int]:
    """Return dtype, offset and length of each array in a segment, and the size of the file."""
    whole = np.dtype("<i8")
    sizes = {"nodes": (whole, nodes), "offsets": (whole, nodes + 1)}
    sizes |= {name: (dtype, records * width) for name, (dtype, width) in layout.arrays().items()}
    places, at = {}, _PREFIX.size
    for name, (dtype, count) in sizes.items():
        at = -(-at // _ALIGNMENT) * _ALIGNMENT
        places[name] = (dtype, at, count)
        at += dtype.itemsize * count
    return places, at


class _Digests:
    """One digest per array of a segment, since all arrays are written in parallel."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        names = ("nodes", "offsets", *Records._fields)
        self._parts = {name: hashlib.blake2b(digest_size=16) for name in names}

    def add(self, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            self._parts[name].update(as_bytes(array))

    def value(self) -> str:
        return digest([self._prefix, *(part.digest() for part in self._parts.values())])


def _prefix(layout: Layout, nodes: int, records: int) -> bytes:
    return _PREFIX.pack(_MAGIC, VERSION, layout.columns * layout.channels, nodes, records)


@dataclass(frozen=True)
class Entry:
    """A segment as listed in the manifest."""

    number: int
    until: int  # the step after the last one it has records of
    nodes: int
    records: int
    bytes: int
    digest: str

    @property
    def file(self) -> str:
        return f"segment-{self.number:06d}.records"


class Segment:
    """The arrays of a segment, mapped from its file."""

    def __init__(self, directory: Path, layout: Layout, entry: Entry) -> None:
        self.entry, self.path = entry, directory / entry.file
        self._layout = layout
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.bytes:
                raise self._damaged(f"it holds {size} bytes, {entry.bytes} were written")
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._prefix = memory[: _PREFIX.size]
        magic, version, *_ = _PREFIX.unpack(self._prefix)
        if magic == _MAGIC and version != VERSION:
            raise other_version(self.path, version)
        if self._prefix != _prefix(layout, entry.nodes, entry.records):
            raise self._damaged("its header does not match the manifest")
        places, _ = _places(layout, entry.nodes, entry.records)
        self.nodes: IntArray
        self.offsets: IntArray
        self.nodes, self.offsets, *flat = (
            np.frombuffer(memory, dtype=dtype, count=count, offset=at)
            for dtype, at, count in places.values()
        )
        self._flat = Records(*flat)
        # The native reader follows these offsets without checking them.
        whole = self.offsets[0] == 0 and self.offsets[-1] == entry.records
        if not whole or (np.diff(self.offsets) < 0).any() or (np.diff(self.nodes) <= 0).any():
            raise self._damaged("its nodes or offsets are out of order")

    def _damaged(self, how: str) -> StateFileError:
        return StateFileError(f"{self.path} is damaged: {how}; {_COPY_AGAIN}")

    def native(self) -> tuple[Any, ...]:
        """Return the arrays in the form the native reader takes."""
        times, rows, exponents, scales = self._flat
        return self.nodes, self.offsets, times, rows.view(np.uint8), exponents, scales

    def records(self, first: int, last: int) -> Records:
        """Return the records from `first` up to, but not including, `last`."""
        widths = (width for _, width in self._layout.arrays().values())
        parts = zip(self._flat, widths, strict=True)
        return Records(*(a[first * w : last * w].reshape(last - first, w) for a, w in parts))

    def digests(self) -> _Digests:
        """Return digests that already include nodes and offsets."""
        digests = _Digests(self._prefix)
        digests.add(nodes=self.nodes, offsets=self.offsets)
        return digests

    def compare(self, digests: _Digests) -> None:
        """Raise StateFileError unless these are the digests of what was written."""
        if digests.value() != self.entry.digest:
            raise StateFileError(
                f"{self.path} was altered: it does not match its digest; {_COPY_AGAIN}"
            )

    def verify(self) -> None:
        """Compare every byte with the digest."""
        digests = self.digests()
        step = max(1, PIECE_BYTES // self._layout.record_bytes)
        for first in range(0, self.entry.records, step):
            digests.add(**self.records(first, min(first + step, self.entry.records))._asdict())
        self.compare(digests)


def write_segment(
    directory: Path,
    layout: Layout,
    number: int,
    until: int,
    nodes: IntArray,
    offsets: IntArray,
    pieces: Iterator[Records],
) -> Entry:
    """Write a segment atomically; its records come in pieces, ordered by node."""
    records = int(offsets[-1])
    places, size = _places(layout, len(nodes), records)
    positions = {name: at for name, (_, at, _) in places.items()}
    prefix = _prefix(layout, len(nodes), records)
    digests = _Digests(prefix)
    entry = Entry(number, until, len(nodes), records, size, "")

    def produce(file: Any) -> None:
        def put(**arrays: NDArray[Any]) -> None:
            digests.add(**arrays)
            for name, array in arrays.items():
                file.seek(positions[name])
                file.write(as_bytes(array))
                positions[name] += array.nbytes

        file.write(prefix)
        put(nodes=nodes, offsets=offsets)
        for piece in pieces:
            put(**piece._asdict())
        file.truncate(size)  # keeps the padding before empty arrays at the end

    replace_file(directory / entry.file, produce)
    return dataclasses.replace(entry, digest=digests.value())


def other_version(path: Path, version: Any) -> StateFileError:
    """Return the error for a file in a format of another release."""
    return StateFileError(
        f"{path} has format version {version}; this release reads version {VERSION}: open it with"
        " the release that wrote it, or record again"
    )


def merge(
    segments: Sequence[Segment], layout: Layout
) -> tuple[IntArray, IntArray, Iterator[Records]]:
    """Merge consecutive segments in bounded memory: return nodes, offsets and pieces of records.

    Every input is compared with its digest on the way, so that damage is not copied.
    """
    nodes = segments[0].nodes
    for segment in segments[1:]:
        nodes = np.union1d(nodes, segment.nodes)
    counts = np.zeros(len(nodes), dtype=np.int64)
    for segment in segments:
        counts[np.searchsorted(nodes, segment.nodes)] += np.diff(segment.offsets)
    offsets = np.concatenate([[0], np.cumsum(counts)])

    def pieces() -> Iterator[Records]:
        all_digests = [segment.digests() for segment in segments]
        per_piece = max(1, PIECE_BYTES // layout.record_bytes)
        first = 0
        while first < len(nodes):
            last = int(np.searchsorted(offsets, offsets[first] + per_piece, side="right")) - 1
            last = min(max(last, first + 1), len(nodes))
            owners, parts = [], []
            for segment, digests in zip(segments, all_digests, strict=True):
                begin, end = np.searchsorted(segment.nodes, [nodes[first], nodes[last - 1] + 1])
                bounds = segment.offsets[begin : end + 1]
                owners.append(np.repeat(segment.nodes[begin:end], np.diff(bounds)))
                parts.append(segment.records(int(bounds[0]), int(bounds[-1])))
                digests.add(**parts[-1]._asdict())
            yield _interleaved(owners, parts)
            first = last
        for segment, digests in zip(segments, all_digests, strict=True):
            segment.compare(digests)

    return nodes, offsets, pieces()


def _interleaved(owners: Sequence[IntArray], parts: Sequence[Records]) -> Records:
    """Merge records by owner; those of one owner stay in the order of the parts."""
    place = np.empty(sum(map(len, owners)), dtype=np.int64)
    place[np.argsort(np.concatenate(owners), kind="stable")] = np.arange(len(place))
    columns = []
    for column in zip(*parts, strict=True):
        result = np.empty((len(place), column[0].shape[1]), dtype=column[0].dtype)
        first = 0
        for array in column:
            result[place[first : first + len(array)]] = array
            first += len(array)
        columns.append(result)
    return Records(*columns)


def first_to_merge(records: Sequence[int]) -> int:
    """Return the index from which segments should be merged; their number if none should.

    records: the number of records in each segment.

    At least the last two are merged, together with preceding ones that are no larger than all
    that follow. So a record is copied only a few times, however many segments are written.
    """
    if len(records) <= _MOST_SEGMENTS:
        return len(records)
    first = len(records) - 2
    while first > 0 and records[first - 1] <= sum(records[first:]):
        first -= 1
    return first
