"""Graphs near the size of memory: lists of neighbours in memory-mapped files.

A compact graph is a directory:

graph.json             counts, and the digest of every piece of every file; written last
sources.offsets        uint64 [nodes + 1]: where the list of a node begins
sources.neighbours     uint32: for every node those with an edge into it, ascending
sources.weights        float32, where weights are not all one
sources.fractions      int32: what float32 rounds away from the weights, in units of 2^-31 of its
                       last place, where that is not nothing
targets.*              the same for the nodes an edge leads to; of directed graphs only
selves.*               nodes, weights and fractions of edges from a node to itself
names.*                what the table calls its nodes, where they were numbered; see `names`

An edge that occurs twice stands twice in a list without weights: 8 bytes per undirected edge. Where
most entries would be repetitions they are merged into weights instead. Weights are the float64
numbers of the table: an undirected edge takes 16 bytes where all are float32 numbers, and 24
elsewhere. Those of an edge that occurs twice are added in the order of rows.

`building` makes compact graphs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.durable import only_writer, replace_file
from tidegraph.core.errors import DataError, ParameterError, ShortOfMemoryError, StorageError
from tidegraph.core.progress import Progress
from tidegraph.core.resume import make_directory
from tidegraph.core.statefile import digest
from tidegraph.events.batch import Batch
from tidegraph.events.names import known_nodes
from tidegraph.events.stored_names import Kind, StoredNames, files_of

Weights: TypeAlias = NDArray[np.float32]
Fractions: TypeAlias = NDArray[np.int32]
Lists: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.uint32], Weights | None, Fractions | None]

HEADER, UNFINISHED = "graph.json", "building"  # the latter holds what a build has left
VERSION = 2  # of a graph with fractions; one without is of version 1

_FORMAT = "tidegraph compact graph"
_PIECE = 1 << 26  # bytes of a file under one digest
_READ = 1 << 20  # bytes of a file read at once
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def memory_bytes(memory: str | int) -> int:
    """Return the number of bytes meant by a number, or by text such as "8G" or "500M".

    >>> memory_bytes("1.5G")
    1610612736
    """
    if isinstance(memory, int) and not isinstance(memory, bool) and memory > 0:
        return memory
    match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*)\s*([KMGT]?)I?B?\s*", str(memory).upper())
    if not isinstance(memory, str) or match is None or float(match[1]) == 0:
        raise ParameterError(
            f"memory={memory!r} is not a size; give a number of bytes, or 500M, 8G, ..."
        )
    return int(float(match[1]) * _UNITS[match[2]])


def memory_text(size: int) -> str:
    """Return a short text for this many bytes, rounded up.

    >>> memory_text(1_600_000_000)
    '1.5G'
    """
    unit = "G" if size > 1000 << 20 else "M"
    tenths = -(-size * 10 // _UNITS[unit])
    return f"{tenths / 10:g}{unit}"


@contextmanager
def resumable(directory: Path, memory: str | int) -> Iterator[None]:
    """Be the only writer of a directory; explain how to continue if memory or disk is short."""
    try:
        make_directory(directory)
        with only_writer(directory):
            yield
    except MemoryError as error:
        raise ShortOfMemoryError(
            f"{directory}: the system has less memory than memory={memory}; finished work is safe:"
            " repeat the command with a smaller memory, or on a larger machine"
        ) from error
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{directory}: {error.strerror or error}; finished work is safe: make room and repeat"
            " the command"
        ) from error


# The graph ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompactGraph:
    """A graph in a directory: mapped into memory, shared by its readers, never written to.

    `tidegraph.Propagator(features, initial=graph)` starts from it without copying an edge.
    """

    path: Path
    nodes: int
    edges: int  # distinct ones
    entries: int  # in all lists
    directed: bool
    weighted: bool
    fingerprint: str  # of everything in it
    _files: dict[str, dict[str, Any]] = field(repr=False)
    named: Kind | None = None  # what kind of ids the table has, where nodes were numbered

    def number(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the numbers of nodes by name; raise UnknownNodeError for others."""
        return known_nodes(ids, self.nodes) if self._names is None else self._names.numbers(ids)

    def name(self, nodes: ArrayLike) -> NDArray[Any]:
        """Return the names of the nodes with these numbers."""
        known = known_nodes(nodes, self.nodes)
        return known if self._names is None else self._names.names(known)

    @cached_property
    def _names(self) -> StoredNames | None:
        return None if self.named is None else StoredNames(self.path, self.named, self.nodes)

    @property
    def name_files(self) -> dict[str, dict[str, Any]]:
        """The files with the names of nodes, with `bytes` and `digests`; empty without names."""
        names = () if self.named is None else files_of(self.named)
        return {name: self._files[name] for name in names}

    @cached_property
    def sources(self) -> Lists:
        """Offsets, neighbours, weights and fractions of the lists of nodes with an edge into one.

        There are no weights where all are one, and no fractions where all weights are float32
        numbers; `joined_weights` gives the float64 that both stand for.
        """
        return self._lists("sources")

    @cached_property
    def targets(self) -> Lists:
        """The lists of nodes that a node has an edge to."""
        return self._lists("targets") if self.directed else self.sources

    @cached_property
    def self_edges(self) -> tuple[NDArray[np.uint32], Weights, Fractions | None]:
        """The nodes with an edge to themselves, its weight, and fractions as lists have them."""
        nodes = self._map("selves.nodes", np.uint32)
        return nodes, self._map("selves.weights", np.float32), self._fractions("selves")

    @property
    def disk_bytes(self) -> int:
        return sum(int(file["bytes"]) for file in self._files.values())

    def _lists(self, side: str) -> Lists:
        weights = self._map(f"{side}.weights", np.float32) if self.weighted else None
        offsets = self._map(f"{side}.offsets", np.uint64)
        neighbours = self._map(f"{side}.neighbours", np.uint32)
        return offsets, neighbours, weights, self._fractions(side)

    def _fractions(self, of: str) -> Fractions | None:
        name = f"{of}.fractions"
        return self._map(name, np.int32) if name in self._files else None

    def _map(self, name: str, dtype: Any) -> NDArray[Any]:
        length = self._files[name]["bytes"] // np.dtype(dtype).itemsize
        return mapped(self.path / name, dtype, length)

    def neighbours(self, node: int) -> NDArray[np.uint32]:
        """Those a node has an edge to, ascending; repeated edges are repeated."""
        offsets, neighbours, _, _ = self.targets
        return neighbours[int(offsets[node]) : int(offsets[node + 1])]

    def rows(self) -> Batch:
        """All edges as rows, undirected ones once: for graphs that fit into memory."""
        offsets, src, weights, fractions = self.sources
        dst = np.repeat(np.arange(self.nodes), np.diff(offsets).astype(np.int64))
        once = np.ones(len(dst), dtype=bool) if self.directed else src <= dst
        selves, self_weights, self_fractions = self.self_edges
        values = (
            np.ones(int(once.sum()))
            if weights is None
            else joined_weights(weights[once], None if fractions is None else fractions[once])
        )
        return Batch(
            src=np.concatenate([src[once], selves]).astype(np.int64),
            dst=np.concatenate([dst[once], selves]),
            weight=np.concatenate([values, joined_weights(self_weights, self_fractions)]),
        )

    def verify(self, progress: Progress | None = None) -> None:
        """Compare every byte with the digests; raise StorageError if one differs."""
        total = len(self._files)
        for done, (name, file) in enumerate(self._files.items()):
            if file_digests(self.path / name) != file["digests"]:
                raise StorageError(f"{self.path / name} is damaged: build the graph again")
            if progress is not None:
                progress(done + 1, total, "files compared with their digests")


def open_graph(path: str | os.PathLike[str]) -> CompactGraph:
    """Open the graph in a directory; sizes are checked, contents are not (see `verify`)."""
    path = Path(path)
    try:
        header = json.loads((path / HEADER).read_bytes())
        body = header["graph"]
        whole = header["digest"] == digest([json.dumps(body).encode()])
    except FileNotFoundError as error:
        unfinished = (path / UNFINISHED).is_dir()
        raise DataError(
            f"{path} holds an unfinished graph; repeat the command that builds it"
            if unfinished
            else f"{path} holds no compact graph; make one with tidegraph graph build"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path / HEADER} cannot be read ({error}); build it anew") from error
    if not whole:
        raise DataError(f"{path / HEADER} was altered; build the graph anew")
    if body["format"] != _FORMAT or not 1 <= body["version"] <= VERSION:
        raise DataError(
            f"{path} has version {body['version']} of {body['format']!r}; this release reads"
            f" versions 1 to {VERSION}: build the graph anew"
        )
    for name, file in body["files"].items():
        size = (path / name).stat().st_size if (path / name).is_file() else None
        if size != file["bytes"]:
            raise DataError(
                f"{path / name} has {size} bytes where {file['bytes']} were written;"
                " copy it again, or build the graph again"
            )
    names = ("nodes", "edges", "entries", "directed", "weighted")
    return CompactGraph(
        path=path,
        fingerprint=header["digest"],
        _files=body["files"],
        named=body.get("names"),
        **{name: body[name] for name in names},
    )


def write_header(path: Path, body: dict[str, Any]) -> None:
    """Makes a graph of the files in a directory, which `body` describes as `open_graph` has it."""
    fine = any(name.endswith(".fractions") for name in body["files"])
    body = {"format": _FORMAT, "version": VERSION if fine else 1, **body}
    header = {"graph": body, "digest": digest([json.dumps(body).encode()])}
    replace_file(path / HEADER, json.dumps(header), only_writer=True)


def split_weights(weights: NDArray[np.float64]) -> tuple[Weights, Fractions]:
    """Return the nearest float32 numbers, and what they round away as files keep it."""
    near = weights.astype(np.float32)
    return near, np.rint((weights - near) / _fraction_unit(near)).astype(np.int32)


def joined_weights(weights: Weights, fractions: Fractions | None) -> NDArray[np.float64]:
    """Return the weights that were split.

    >>> float(joined_weights(*split_weights(np.array([0.1])))[0])
    0.1
    """
    if fractions is None:
        return weights.astype(np.float64)
    return weights + fractions * _fraction_unit(weights)


def _fraction_unit(weights: Weights) -> NDArray[np.float64]:
    return np.spacing(weights) * np.float64(2.0**-31)


def mapped(path: Path, dtype: Any, length: int) -> NDArray[Any]:
    """Return the numbers in a file as a memory map; an empty array if there are none."""
    if length == 0:
        return np.empty(0, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(length,)))


def file_digests(path: Path) -> list[str]:
    """Return the digests of the pieces of a file, in order."""
    size = path.stat().st_size

    def piece(first: int) -> str:
        with path.open("rb") as file:
            file.seek(first)
            return digest(file.read(_READ) for _ in range(0, min(_PIECE, size - first), _READ))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(piece, range(0, size, _PIECE)))
