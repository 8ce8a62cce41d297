"""More columns than fit into memory: planned, propagated in passes, read back by node.

Columns do not know each other, so that any number of them can be propagated some at a time over one
graph. What a pass leaves is a block of columns in a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.durable import only_writer, replace_file
from tidegraph.core.errors import (
    DataError,
    EventError,
    ParameterError,
    ShortOfMemoryError,
    StorageError,
)
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.compact import CompactGraph, file_digests, memory_bytes, memory_text
from tidegraph.engine.precision import Dtype, check_dtype, check_features
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import whole_numbers
from tidegraph.events.names import StoredNames
from tidegraph.events.stream import counted, known_nodes

__all__ = ["Embeddings", "Plan", "plan", "propagate_in_passes"]

Stored: TypeAlias = Literal["float32", "float16"]

# What things cost, in one place. Bytes follow from the structures in native/. Times are those of
# one thread of an AMD EPYC, as benchmarks/scale.py measured them (`cpu_s`: entries and columns on a
# tenth of MAG with 4 and 16 columns, rows and events on a hundredth); plans go by them.
_PROCESS_BYTES = 128 << 20  # interpreter, libraries, stacks
_NODE_BYTES = 8 + 4 + 1 + 1  # degree, place in a step, removed, touched
_CHANNEL_NODE_VALUES = 1  # pivot
_BLOCK_NODE_VALUES = 3  # limit, drift, excess
_BLOCK_NODE_BYTES = 1 + 0.25  # marks, list of touched nodes
_COLUMN_VALUES = 2  # estimate and residual
_LARGE_PAGE = 2 << 20  # at whose multiples the arrays of a block begin
_NARROW_BYTES, _VECTOR_BYTES = 16, 32  # of a row: as few columns as fit, or whole vectors
_ENTRY_NS = 19.3  # of a sweep over one entry of a list
_ENTRY_COLUMN_NS = 2.1  # the same, for each column
_ROW_NS = 207.0  # to read, count, fill and sort one row of a table of edges
_EVENT_COLUMN_US = 0.27  # to apply one event of a stream to one column
_WIDEST_PASS = 96  # columns of a block; beyond it nothing is gained


def _blocks(columns: int, value_bytes: int) -> tuple[int, int]:
    """How many blocks the engine makes of so many columns, and their width with padding."""
    narrow = columns * value_bytes <= _NARROW_BYTES
    lanes = (_NARROW_BYTES if narrow else _VECTOR_BYTES) // value_bytes
    vectors = -(-columns // lanes)
    count = -(-vectors // (_WIDEST_PASS // lanes))
    return count + (count % 2 == 1 and vectors >= 4), lanes * vectors


def _pass_bytes(nodes: int, columns: int, channels: int, dtype: Dtype = "float32") -> int:
    """Anonymous memory of a propagator on a compact graph."""
    value_bytes = np.dtype(dtype).itemsize
    blocks, width = _blocks(columns, value_bytes)
    values = _CHANNEL_NODE_VALUES + _BLOCK_NODE_VALUES * blocks + _COLUMN_VALUES * width
    per_node = _NODE_BYTES + channels * (blocks * _BLOCK_NODE_BYTES + values * value_bytes)
    queues = channels * blocks * 4 * (1 << nodes.bit_length())
    arrays = channels * blocks * _COLUMN_VALUES
    return _PROCESS_BYTES + arrays * _LARGE_PAGE + queues + math.ceil(nodes * per_node)


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
    dtype: Dtype = "float32",
    threads: int = 2,
) -> Plan:
    """How many columns fit into a pass, and what all passes take.

    events: of a stream that is applied afterwards, in every pass.
    dtype: in which is computed; times are those of float32.

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
        if _pass_bytes(nodes, k, channels, dtype) <= room
    ]
    if not fitting:
        raise ParameterError(
            f"memory={memory} is too little for a pass over {nodes:,} nodes; give"
            f" memory={memory_text(_pass_bytes(nodes, 1, channels, dtype))} or more"
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
        memory_bytes=_pass_bytes(nodes, per_pass, channels, dtype),
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
_PIECE_BYTES = 1 << 22  # of an array read, or written, at once
_ROUNDING = 1e-6  # of residuals, in parts of what `r_max` allows


def propagate_in_passes(
    graph: CompactGraph,
    features: Sketch | NDArray[Any],
    out: str | os.PathLike[str],
    *,
    memory: str | int = "8G",
    channels: Sequence[Channel] = (Channel.low_pass(),),
    beta: float = 0.5,
    r_max: float = 1e-2,
    dtype: Dtype = "float32",
    stored: Stored = "float32",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Embeddings:
    """Propagates any number of columns over a graph into the new directory `out`.

    features: a sketch, or `[nodes, columns]`, which may be a memory map: it is read in pieces, and
        the columns of a pass lie in `out` as a file for as long as it takes.
    memory: a promise about the memory of this process; the graph is mapped, and counts only as
        page cache. Columns are taken in as many passes as that needs.
    dtype: in which is computed; float64 holds an `r_max` that float32 cannot, in twice the memory.
    stored: float16 halves the files and keeps three digits.

    Called again in the same way after an interruption, a full disk (`StorageError`) or a refusal of
    memory (`ShortOfMemoryError`) it goes on after the last whole pass, also with another `memory`.
    Every byte of the passes before is then compared with its digest, and what differs is made anew
    (`Embeddings.mended`). Which columns share a pass is part of the result's bits, within `r_max`.

    Before a pass is stored its residuals are computed from scratch in float64, and kept as
    `Embeddings.residuals`. Residuals above what `r_max` allows are a `StorageError`: the graph is
    damaged.
    """
    if stored not in ("float32", "float16"):
        raise ParameterError(f"stored is {stored!r}; give 'float32' or 'float16'")
    check_dtype(dtype)
    room = memory_bytes(memory)
    path = Path(out)
    columns = _Columns(features, graph.nodes, path, dtype)
    order = {
        "graph": graph.fingerprint,
        **columns.described(),
        "channels": [asdict(channel) for channel in channels],
        "beta": beta,
        "r_max": r_max,
        "stored": stored,
        # What was begun when there was no choice can be gone on with.
        **({} if dtype == "float32" else {"dtype": dtype}),
    }

    def propagated(first: int, count: int) -> Propagator:
        return Propagator(
            columns.part(first, count),
            initial=graph,
            channels=channels,
            directed=graph.directed,
            beta=beta,
            r_max=r_max,
            dtype=dtype,
            threads=threads,
            block_columns=_WIDEST_PASS,
        )

    def report(done: int, what: str) -> None:
        if progress is not None:
            progress(done, columns.count, what)

    if path.exists() and not path.is_dir():
        raise StorageError(f"{path} is a file; give a new directory")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with only_writer(path):
            manifest = _Manifest(path, order, graph, len(channels), columns.count)
            manifest.take_names(graph)
            damaged = manifest.damaged(report)
            for block in damaged:
                needed = _pass_bytes(graph.nodes, block.columns, len(channels), dtype)
                if needed > room:
                    raise ParameterError(
                        f"{path / block.file} is damaged, and memory={memory} is too little to make"
                        f" its {counted(block.columns, 'column')} anew together; give"
                        f" memory={memory_text(needed)} or more"
                    )
                report(block.first, f"columns propagated ({block.file} anew: it was damaged)")
                manifest.store(block, propagated(block.first, block.columns), graph)
            while (first := manifest.done) < columns.count:
                rest = columns.count - first
                chosen = plan(
                    graph.nodes,
                    graph.edges,
                    rest,
                    memory=memory,
                    channels=len(channels),
                    dtype=dtype,
                )
                report(first, "columns propagated")
                block = manifest.next_block(min(rest, chosen.columns_per_pass))
                manifest.store(block, propagated(first, block.columns), graph)
                report(manifest.done, "columns propagated")
    except MemoryError as error:
        raise ShortOfMemoryError(
            f"{out}: the system refused memory, though memory={memory} was allowed; whole passes"
            " are kept: repeat the command with less, or where there is more"
        ) from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"{out}: {error.strerror or error}; whole passes are kept: make room and repeat the"
            " command"
        ) from error
    made = Embeddings.open(out)
    made.mended = tuple(block.file for block in damaged)
    return made


def _checked_residuals(propagator: Propagator, graph: CompactGraph) -> NDArray[np.float64]:
    """Return the largest residual over what `r_max` allows, per channel."""
    residuals = propagator.audit().residual
    if not (residuals <= 1 + _ROUNDING).all():
        raise StorageError(
            f"residuals over {graph.path} are {residuals.max():.3g} times what r_max allows, which"
            " rounding does not explain; nothing of this pass is kept. The graph is probably"
            f" damaged: `tidegraph graph info {graph.path} --verify` compares it with its digests;"
            " build it anew where they differ, and give dtype='float64' where they do not"
        )
    return residuals


class _Columns:
    """What is propagated, some columns at a time."""

    def __init__(
        self, features: Sketch | NDArray[Any], nodes: int, directory: Path, dtype: Dtype
    ) -> None:
        self._features, self._directory, self._dtype = features, directory, dtype
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
        """What makes two runs one: the sketch in words, or the digest of the numbers.

        Numbers that cannot be propagated are refused on the way.
        """
        if isinstance(self._features, Sketch):
            return {"sketch": asdict(self._features)}
        digest = hashlib.blake2b(digest_size=16)
        first = 0
        for rows in _pieces(self._features):
            # In whatever is computed, no more than float32 is stored.
            check_features(rows, "float32", first_node=first, advice="scale the column")
            digest.update(np.ascontiguousarray(rows).data)
            first += len(rows)
        return {"features": {"digest": digest.hexdigest(), "dtype": self._features.dtype.str}}

    def part(self, first: int, count: int) -> Sketch | NDArray[Any]:
        """Some columns, as a propagator reads them without copying."""
        if isinstance(self._features, Sketch):
            return self._features.part(first, count)
        scratch = self._directory / "features.new"
        with scratch.open("wb") as file:
            for rows in _pieces(self._features):
                part = rows[:, first : first + count]
                file.write(np.ascontiguousarray(part, dtype=self._dtype).data)
        shape = (len(self._features), count)
        mapped = np.memmap(scratch, dtype=self._dtype, mode="r", shape=shape)
        scratch.unlink()  # its pages stay until the last reader has gone
        return mapped


@dataclass(frozen=True)
class _Block:
    """The columns of one pass and the file they are in."""

    number: int
    file: str
    first: int
    columns: int
    digest: str | None = None  # None: written before there were digests, or not yet

    def mapped(
        self, directory: Path, nodes: int, channels: int, stored: np.dtype[Any]
    ) -> NDArray[Any]:
        """The numbers, read where they lie; `DataError` where the file is missing or too short."""
        path = directory / self.file
        try:
            array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        except FileNotFoundError:
            raise DataError(f"{path} is missing: {_ANEW}") from None
        except (ValueError, EOFError) as error:
            raise DataError(f"{path} is damaged ({error}): {_ANEW}") from None
        if array.shape != (nodes, channels, self.columns) or array.dtype != stored:
            raise DataError(f"{path} is damaged: {_ANEW}")
        return array


_ANEW = "repeat the command that made the embeddings, and it is made anew"


def _blocks_of(body: dict[str, Any]) -> list[_Block]:
    """The blocks that a manifest lists."""
    blocks: list[_Block] = []
    first = 0
    for number, entry in enumerate(body["blocks"]):
        count = int(entry["columns"])
        blocks.append(_Block(number, str(entry["file"]), first, count, entry.get("digest")))
        first += count
    return blocks


class _Manifest:
    """The passes that are whole, and the order they belong to."""

    def __init__(
        self,
        path: Path,
        order: dict[str, Any],
        graph: CompactGraph,
        channels: int,
        columns: int,
    ) -> None:
        self._path = path
        self._body: dict[str, Any] = {
            "format": _FORMAT,
            "version": _VERSION,
            "order": json.loads(json.dumps(order)),
            "nodes": graph.nodes,
            "channels": channels,
            "columns": columns,
            "blocks": [],
        }
        if graph.named is not None:
            self._body["names"] = {"kind": graph.named, "files": graph.name_files}
        file = path / _MANIFEST
        if file.is_file():
            try:
                saved = json.loads(file.read_bytes())
                begun = len(_blocks_of(saved)) > 0
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
        # A manifest that never got its name, for want of room or time, is as good as none.
        elif any(other.name != f"{_MANIFEST}.new" for other in path.iterdir()):
            raise StorageError(f"{path} is not empty; give a new directory")
        else:
            self._save()

    def take_names(self, graph: CompactGraph) -> None:
        """Has the files of names here too, where they are not, or not as they were.

        They are never written to, so that both directories share them on one file system.
        """
        for name, file in graph.name_files.items():
            source, target = graph.path / name, self._path / name
            if target.is_file() and file_digests(target) == file["digests"]:
                continue
            target.unlink(missing_ok=True)
            try:
                os.link(source, target)
            except OSError:  # another file system, or one without links
                _copy(source, target)
            if file_digests(target) != file["digests"]:
                raise StorageError(f"{source} is damaged: build the graph anew")

    @property
    def done(self) -> int:
        """The columns that are stored."""
        return sum(block.columns for block in _blocks_of(self._body))

    def damaged(self, report: Callable[[int, str], None]) -> list[_Block]:
        """The blocks that are not as they were written, by their header, length and digest."""
        found = []
        for block in _blocks_of(self._body):
            report(block.first, "columns compared with their digests")
            try:
                array = block.mapped(self._path, *self._form())
            except DataError:
                found.append(block)
                continue
            if block.digest is not None and _digest(array) != block.digest:
                found.append(block)
        return found

    def next_block(self, columns: int) -> _Block:
        """One that is not there yet, of so many columns after those that are."""
        number = len(self._body["blocks"])
        return _Block(number, f"block-{number:03}.npy", self.done, columns)

    def _form(self) -> tuple[int, int, np.dtype[Any]]:
        body = self._body
        return body["nodes"], body["channels"], np.dtype(body["order"]["stored"])

    def store(self, block: _Block, propagator: Propagator, graph: CompactGraph) -> None:
        """Stores the estimates of all nodes; the pass counts when they are safe.

        A block that is there already is replaced.
        """
        residuals = _checked_residuals(propagator, graph)
        nodes, channels, stored = self._form()
        header = {
            "descr": stored.str,
            "fortran_order": False,
            "shape": (nodes, channels, block.columns),
        }
        # Written, not mapped: a full disk is then an error and not the end of the process.
        digest = hashlib.blake2b(digest_size=16)

        def write(file: Any) -> None:
            np.lib.format.write_array_header_1_0(file, header)
            row_bytes = channels * block.columns * propagator.dtype.itemsize
            step = max(1, _PIECE_BYTES // row_bytes)
            for first in range(0, nodes, step):
                rows = propagator.embedding(np.arange(first, min(first + step, nodes)))
                part = _rounded(rows, stored, first, block.first).data
                file.write(part)
                digest.update(part)

        replace_file(self._path / block.file, write, only_writer=True)
        self._body["blocks"][block.number : block.number + 1] = [
            {
                "file": block.file,
                "columns": block.columns,
                "digest": digest.hexdigest(),
                # The largest residual over what r_max allows, per channel: up to 1 it is kept.
                "residual": residuals.tolist(),
            }
        ]
        self._save()

    def _save(self) -> None:
        replace_file(self._path / _MANIFEST, json.dumps(self._body, indent=1), only_writer=True)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as content:
        replace_file(target, lambda file: shutil.copyfileobj(content, file), only_writer=True)


class Embeddings:
    """Propagated columns of all nodes in files, read by node: `embeddings[nodes]`.

    Nothing is loaded but the rows asked for. Where the nodes of the graph have names,
    `embeddings[embeddings.number(["ann", "bob"])]` reads by these.

    residuals: `[passes, channels]`, the largest residual over what `r_max` allows, as computed in
        float64 before the pass was stored: where it is at most 1, no number is further from the
        exact one than was promised, rounding to `dtype` apart.
    computed_in: the dtype of the propagation; `dtype` is that of the files.
    mended: the files that were damaged, and were made anew by the call that returned this.
    """

    def __init__(
        self,
        path: Path,
        blocks: list[NDArray[Any]],
        shape: tuple[int, int, int],
        residuals: NDArray[np.float64],
        computed_in: str,
        names: StoredNames | None = None,
    ) -> None:
        self.path, self._blocks, self.shape, self.residuals = path, blocks, shape, residuals
        self.computed_in, self._names = computed_in, names
        self.mended: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        verify: bool = False,
        progress: Progress | None = None,
    ) -> Embeddings:
        """The embeddings in a directory; passes must be complete.

        It is looked whether blocks are there and long enough; with `verify` every byte is compared
        with the digest of its block.
        """
        path = Path(path)
        try:
            body = json.loads((path / _MANIFEST).read_bytes())
            if body["format"] != _FORMAT or body["version"] != _VERSION:
                raise DataError(f"{path} has another format; this release reads {_VERSION}")
            shape = (int(body["nodes"]), int(body["channels"]), int(body["columns"]))
            blocks = _blocks_of(body)
            residuals = np.array([entry["residual"] for entry in body["blocks"]], dtype=np.float64)
            stored = np.dtype(body["order"]["stored"])
            computed_in = str(body["order"].get("dtype", "float32"))
            done = sum(block.columns for block in blocks)
            if done != shape[2]:
                raise DataError(
                    f"{path} holds {done} of {shape[2]} columns: repeat the command that makes them"
                )
            arrays = [block.mapped(path, *shape[:2], stored) for block in blocks]
            named = body.get("names")
            files = {} if named is None else named["files"]
            for name, file in files.items():
                if not (path / name).is_file() or (path / name).stat().st_size != file["bytes"]:
                    raise DataError(f"{path / name} is missing or damaged: {_ANEW}")
            names = None if named is None else StoredNames(path, named["kind"], shape[0])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} holds no embeddings that can be read: {error}") from error
        for block, array in zip(blocks, arrays, strict=True) if verify else ():
            if progress is not None:
                progress(block.first, done, "columns compared with their digests")
            if block.digest is None:
                raise DataError(
                    f"{path / block.file} was written by a release that kept no digests, so there"
                    " is nothing to compare it with: propagate into a new directory, or open it"
                    " unverified"
                )
            if _digest(array) != block.digest:
                raise DataError(f"{path / block.file} is damaged: {_ANEW}")
        for name, file in files.items() if verify else ():
            if file_digests(path / name) != file["digests"]:
                raise DataError(f"{path / name} is damaged: {_ANEW}")
        return cls(path, arrays, shape, residuals, computed_in, names)

    def number(self, ids: ArrayLike) -> NDArray[np.int64]:
        """The numbers of nodes that the table calls `ids`; an unknown one is an error naming it."""
        return known_nodes(ids, len(self)) if self._names is None else self._names.numbers(ids)

    def name(self, nodes: ArrayLike) -> NDArray[Any]:
        """What the table calls the nodes with these numbers."""
        known = known_nodes(nodes, len(self))
        return known if self._names is None else self._names.names(known)

    @property
    def excess(self) -> float:
        """By which share of it the largest residual is above what `r_max` allows; mostly 0."""
        residual = float(self.residuals.max())
        return residual - 1 if residual > 1 + _ROUNDING else 0.0

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._blocks[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        nodes, channels, columns = self.shape
        return (
            f"Embeddings({str(self.path)!r}, nodes={nodes}, channels={channels},"
            f" columns={columns}, dtype={self.dtype})"
        )

    def __getitem__(self, nodes: ArrayLike) -> NDArray[Any]:
        """`[k, channels, columns]` of the given nodes."""
        ids = np.atleast_1d(whole_numbers(nodes, "nodes", advice="give integer ids [k]"))
        if ids.ndim != 1:
            raise EventError(f"nodes have shape {ids.shape}; give integer ids [k]")
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self):
            raise EventError(f"nodes must be ids from 0 to {len(self) - 1}")
        out = np.empty((ids.size, *self.shape[1:]), dtype=self.dtype)
        first = 0
        for block in self._blocks:
            last = first + block.shape[2]
            out[:, :, first:last] = block[ids]
            first = last
        return out


def _rounded(
    rows: NDArray[Any], stored: np.dtype[Any], first_node: int, first_column: int
) -> NDArray[Any]:
    """Estimates of some nodes in the dtype of the files, which has to hold them."""
    with np.errstate(over="ignore"):
        rounded = rows.astype(stored, copy=False)
    if not np.isfinite(rounded).all():
        row, channel, column = np.argwhere(~np.isfinite(rounded))[0]
        wider = " or give stored='float32'" if stored == np.float16 else ""
        raise ParameterError(
            f"node {first_node + row} becomes {rows[row, channel, column]:g} in column"
            f" {first_column + column}, beyond {np.finfo(stored).max:.2g}, the largest {stored};"
            f" scale the column{wider}"
        )
    return rounded


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
