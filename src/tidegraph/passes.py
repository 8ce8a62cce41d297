"""More columns than fit into memory: planned, propagated in passes, read back by node.

Columns do not know each other, so that any number of them can be propagated some at a time over one
graph. What a pass leaves is a block of columns in a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.channels import Channel, Sketch
from tidegraph.compact import CompactGraph, memory_bytes
from tidegraph.errors import (
    DataError,
    EventError,
    ParameterError,
    ShortOfMemoryError,
    StorageError,
)
from tidegraph.propagation import Propagator

__all__ = ["Embeddings", "Plan", "plan", "propagate_in_passes"]

Progress: TypeAlias = Callable[[int, int, str], None]
Stored: TypeAlias = Literal["float32", "float16"]

# What things cost, in one place. Bytes follow from the structures in native/. Times are those of
# one thread of an AMD EPYC, as benchmarks/scale.py measured them (`cpu_s`: entries and columns on a
# tenth of MAG with 4 and 16 columns, rows and events on a hundredth); plans go by them.
_PROCESS_BYTES = 128 << 20  # interpreter, libraries, stacks
_NODE_BYTES = 8 + 4 + 1 + 1  # degree, place in a step, removed, touched
_CHANNEL_NODE_BYTES = 4 + 4  # limit, pivot
_BLOCK_NODE_BYTES = 4 + 1 + 0.25  # queue, marks, list of touched nodes
_VALUE_BYTES = 2 * 4  # estimate and residual of one column
_ENTRY_NS = 19.3  # of a sweep over one entry of a list
_ENTRY_COLUMN_NS = 2.1  # the same, for each column
_ROW_NS = 207.0  # to read, count, fill and sort one row of a table of edges
_EVENT_COLUMN_US = 0.27  # to apply one event of a stream to one column
_WIDEST_PASS = 96  # columns of a block; beyond it nothing is gained


def _blocks(columns: int) -> tuple[int, int]:
    """How many blocks the engine makes of so many columns, and their width with padding."""
    if columns <= 4:
        return 1, 4
    vectors = -(-columns // 8)
    count = -(-vectors // (_WIDEST_PASS // 8))
    return count + (count % 2 == 1 and vectors >= 4), 8 * vectors


def _pass_bytes(nodes: int, columns: int, channels: int) -> int:
    """Anonymous memory of a propagator on a compact graph."""
    blocks, width = _blocks(columns)
    per_node = _NODE_BYTES + channels * (
        _CHANNEL_NODE_BYTES + blocks * _BLOCK_NODE_BYTES + width * _VALUE_BYTES
    )
    return _PROCESS_BYTES + math.ceil(nodes * per_node)


@dataclass(frozen=True)
class Plan:
    """What propagating columns over a graph will take; seconds are an estimate."""

    columns_per_pass: int
    passes: int
    memory_bytes: int  # of the process, files in the page cache not counted
    graph_bytes: int  # of the compact graph on disk, which is best kept in the page cache
    build_disk_bytes: int  # while the graph is being built from a table without weights
    embedding_bytes: int
    build_s: float
    propagate_s: float
    update_s: float


def plan(
    nodes: int,
    edges: int,
    columns: int,
    *,
    memory: str | int = "8G",
    channels: int = 1,
    r_max: float = 1e-2,
    events: int = 0,
    stored: Stored = "float32",
    threads: int = 2,
) -> Plan:
    """How many columns fit into a pass, and what all passes take.

    events: of a stream that is applied afterwards, in every pass.

    >>> plan(121_751_665, 1_297_748_926, 64, memory="8G").columns_per_pass
    4
    """
    for name, value, least in (("nodes", nodes, 1), ("edges", edges, 0), ("columns", columns, 1)):
        if value < least:
            raise ParameterError(f"{name} is {value}; give at least {least}")
    if not 0 < r_max < 1:
        raise ParameterError(f"r_max is {r_max}; give a number between 0 and 1")
    room = memory_bytes(memory)
    fitting = [
        k
        for k in (*range(1, 5), *range(8, _WIDEST_PASS + 1, 8))
        if _pass_bytes(nodes, k, channels) <= room
    ]
    if not fitting:
        raise ParameterError(
            f"memory is {room:,} bytes; one pass over {nodes:,} nodes takes at least"
            f" {_pass_bytes(nodes, 1, channels):,}"
        )
    passes = -(-columns // fitting[-1])
    # No more columns in a pass than an even share: the last pass is not a rest.
    per_pass = min(k for k in fitting if k >= -(-columns // passes))
    entries = 2 * edges
    # A sweep over random features leaves about a third of the residuals; one more look rewrites.
    sweeps = max(2, math.ceil(2 * math.log10(1 / r_max))) + 1
    sweep_ns = entries * (_ENTRY_NS + _ENTRY_COLUMN_NS * per_pass) * channels
    graph = 8 * (nodes + 1) + 4 * entries
    return Plan(
        columns_per_pass=per_pass,
        passes=passes,
        memory_bytes=_pass_bytes(nodes, per_pass, channels),
        graph_bytes=graph,
        build_disk_bytes=graph + 8 * edges + 4 * nodes,
        embedding_bytes=nodes * channels * columns * (2 if stored == "float16" else 4),
        build_s=edges * _ROW_NS * 1e-9 / threads,
        propagate_s=passes * sweeps * sweep_ns * 1e-9 / threads,
        update_s=events * columns * channels * _EVENT_COLUMN_US * 1e-6,
    )


# Passes -------------------------------------------------------------------------------------------

_MANIFEST = "embeddings.json"
_FORMAT, _VERSION = "tidegraph embeddings", 1
_ROWS = 1 << 16  # nodes written, or read, at once
_PIECE_BYTES = 1 << 23  # of an array read at once


def propagate_in_passes(
    graph: CompactGraph,
    features: Sketch | NDArray[Any],
    out: str | os.PathLike[str],
    *,
    memory: str | int = "8G",
    channels: Sequence[Channel] = (Channel.low_pass(),),
    beta: float = 0.5,
    r_max: float = 1e-2,
    stored: Stored = "float32",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Embeddings:
    """Propagates any number of columns over a graph into the new directory `out`.

    features: a sketch, or `[nodes, columns]`, which may be a memory map: it is read in pieces, and
        the columns of a pass lie in `out` as a file for as long as it takes.
    memory: a promise about the memory of this process; the graph is mapped, and counts only as
        page cache. Columns are taken in as many passes as that needs.
    stored: float16 halves the files and keeps three digits.

    Called again in the same way after an interruption, a full disk (`StorageError`) or a refusal of
    memory (`ShortOfMemoryError`) it goes on after the last whole pass, also with another `memory`.
    Which columns share a pass is part of the result's bits, within `r_max`.
    """
    if stored not in ("float32", "float16"):
        raise ParameterError(f"stored is {stored!r}; give 'float32' or 'float16'")
    columns = _Columns(features, graph.nodes, Path(out))
    order = {
        "graph": graph.fingerprint,
        **columns.described(),
        "channels": [asdict(channel) for channel in channels],
        "beta": beta,
        "r_max": r_max,
        "stored": stored,
    }
    manifest = _Manifest(Path(out), order, graph.nodes, len(channels), columns.count)
    try:
        while (first := manifest.done) < columns.count:
            rest = columns.count - first
            chosen = plan(graph.nodes, graph.edges, rest, memory=memory, channels=len(channels))
            if progress is not None:
                progress(first, columns.count, "columns propagated")
            count = min(rest, chosen.columns_per_pass)
            propagator = Propagator(
                columns.part(first, count),
                initial=graph,
                channels=channels,
                directed=graph.directed,
                beta=beta,
                r_max=r_max,
                threads=threads,
                block_columns=_WIDEST_PASS,
            )
            manifest.add(propagator, count)
            del propagator
            if progress is not None:
                progress(manifest.done, columns.count, "columns propagated")
    except MemoryError as error:
        raise ShortOfMemoryError(
            f"{out}: the system refused memory, though memory is {memory}; whole passes are kept:"
            " repeat the command with less, or where there is more"
        ) from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"{out}: {error.strerror or error}; whole passes are kept: make room and repeat the"
            " command"
        ) from error
    return Embeddings.open(out)


class _Columns:
    """What is propagated, some columns at a time."""

    def __init__(self, features: Sketch | NDArray[Any], nodes: int, directory: Path) -> None:
        self._features, self._directory = features, directory
        if isinstance(features, Sketch):
            self.count = features.columns
            return
        if features.ndim != 2 or features.shape[0] != nodes or features.shape[1] == 0:
            raise ParameterError(
                f"features have shape {features.shape}; give [{nodes}, columns], a row for every"
                " node of the graph"
            )
        if features.dtype.kind not in "fiu":
            raise ParameterError(f"features have dtype {features.dtype}; give numbers")
        self.count = features.shape[1]

    def described(self) -> dict[str, Any]:
        """What makes two runs one: the sketch in words, or the digest of the numbers."""
        if isinstance(self._features, Sketch):
            return {"sketch": asdict(self._features)}
        return {"features": {"digest": _digest(self._features), "dtype": self._features.dtype.str}}

    def part(self, first: int, count: int) -> Sketch | NDArray[Any]:
        """Some columns, as a propagator reads them without copying."""
        if isinstance(self._features, Sketch):
            return self._features.part(first, count)
        scratch = self._directory / "features.new"
        with scratch.open("wb") as file:
            for rows in _pieces(self._features):
                part = rows[:, first : first + count]
                file.write(np.ascontiguousarray(part, dtype=np.float32).data)
        shape = (len(self._features), count)
        mapped = np.memmap(scratch, dtype=np.float32, mode="r", shape=shape)
        scratch.unlink()  # its pages stay until the last reader has gone
        return mapped


class _Manifest:
    """The passes that are whole, and the order they belong to."""

    def __init__(
        self, path: Path, order: dict[str, Any], nodes: int, channels: int, columns: int
    ) -> None:
        self._path = path
        self._body: dict[str, Any] = {
            "format": _FORMAT,
            "version": _VERSION,
            "order": json.loads(json.dumps(order)),
            "nodes": nodes,
            "channels": channels,
            "columns": columns,
            "blocks": [],
        }
        file = path / _MANIFEST
        if file.is_file():
            try:
                saved = json.loads(file.read_bytes())
                begun = len(saved["blocks"]) > 0
            except (ValueError, KeyError, TypeError) as error:
                raise StorageError(
                    f"{file} is damaged; give a new directory, or delete this one"
                ) from error
            same = {key: saved.get(key) for key in self._body if key != "blocks"} == {
                key: value for key, value in self._body.items() if key != "blocks"
            }
            if begun and not same:
                raise StorageError(
                    f"{path} holds embeddings of another order; give a new directory"
                )
            if begun:
                self._body = saved
            else:  # an order of which nothing was done, because it was refused, say
                self._save()
        elif path.exists() and any(path.iterdir()):
            raise StorageError(f"{path} is not empty; give a new directory")
        else:
            path.mkdir(parents=True, exist_ok=True)
            self._save()

    @property
    def done(self) -> int:
        """The columns that are stored."""
        return sum(block["columns"] for block in self._body["blocks"])

    def add(self, propagator: Propagator, columns: int) -> None:
        """Stores the estimates of all nodes; the pass counts when they are safe."""
        blocks = self._body["blocks"]
        name = f"block-{len(blocks):03}.npy"
        fresh = self._path / f"{name}.new"
        nodes, channels = self._body["nodes"], self._body["channels"]
        dtype = np.dtype(self._body["order"]["stored"])
        header = {
            "descr": dtype.str,
            "fortran_order": False,
            "shape": (nodes, channels, columns),
        }
        # Written, not mapped: a full disk is then an error and not the end of the process.
        digest = hashlib.blake2b(digest_size=16)
        with fresh.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for first in range(0, nodes, _ROWS):
                rows = propagator.embedding(np.arange(first, min(first + _ROWS, nodes)))
                part = rows.astype(dtype, copy=False).data
                file.write(part)
                digest.update(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._path / name)
        audit = propagator.audit()
        blocks.append(
            {
                "file": name,
                "columns": columns,
                "digest": digest.hexdigest(),
                # The largest residual over what r_max allows, per channel: below 1 it is kept.
                "residual": audit.residual.tolist(),
            }
        )
        self._save()

    def _save(self) -> None:
        fresh = self._path / f"{_MANIFEST}.new"
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(self._body, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._path / _MANIFEST)


class Embeddings:
    """Propagated columns of all nodes in files, read by node: `embeddings[nodes]`.

    Nothing is loaded but the rows asked for. `residuals` is the largest residual over the promise,
    per pass and channel.
    """

    def __init__(
        self,
        blocks: list[NDArray[Any]],
        shape: tuple[int, int, int],
        residuals: NDArray[np.float64],
    ) -> None:
        self._blocks, self.shape, self.residuals = blocks, shape, residuals

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> Embeddings:
        """The embeddings in a directory; passes must be complete.

        With `verify` every byte is compared with the digest of its block.
        """
        path = Path(path)
        try:
            body = json.loads((path / _MANIFEST).read_bytes())
            if body["format"] != _FORMAT or body["version"] != _VERSION:
                raise DataError(f"{path} has another format; this release reads {_VERSION}")
            shape = (int(body["nodes"]), int(body["channels"]), int(body["columns"]))
            stored = sum(block["columns"] for block in body["blocks"])
            if stored != shape[2]:
                raise DataError(
                    f"{path} holds {stored} of {shape[2]} columns: repeat the command that makes"
                    " them"
                )
            blocks = [np.load(path / block["file"], mmap_mode="r") for block in body["blocks"]]
            dtype = np.dtype(body["order"]["stored"])
            for block, array in zip(body["blocks"], blocks, strict=True):
                whole = array.shape == (*shape[:2], block["columns"]) and array.dtype == dtype
                if not whole or (verify and _digest(array) != block["digest"]):
                    raise DataError(f"{path / block['file']} is damaged: make it anew")
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} holds no embeddings that can be read: {error}") from error
        return cls(blocks, shape, np.array([block["residual"] for block in body["blocks"]]))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._blocks[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, nodes: ArrayLike) -> NDArray[Any]:
        """`[k, channels, columns]` of the given nodes."""
        ids = np.atleast_1d(np.asarray(nodes))
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise EventError(f"nodes have dtype {ids.dtype}; give integer ids [k]")
        ids = ids.astype(np.int64, copy=False)
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self):
            raise EventError(f"nodes must be ids from 0 to {len(self) - 1}")
        out = np.empty((ids.size, *self.shape[1:]), dtype=self.dtype)
        first = 0
        for block in self._blocks:
            last = first + block.shape[2]
            out[:, :, first:last] = block[ids]
            first = last
        return out


def _digest(array: NDArray[Any]) -> str:
    """Of the values of an array, read in pieces."""
    digest = hashlib.blake2b(digest_size=16)
    for rows in _pieces(array):
        digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()


def _pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Rows of an array that are few enough to be held in memory."""
    step = max(1, _PIECE_BYTES // (array[:1].nbytes or 1))
    for first in range(0, len(array), step):
        yield array[first : first + step]
