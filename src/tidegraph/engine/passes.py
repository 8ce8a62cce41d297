"""More columns than fit into memory, propagated over a compact graph some at a time.

Columns are independent of each other, so that any number of them can be propagated in passes over
one graph. Each pass leaves its columns in a file; `embeddings` reads them back.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.durable import link_or_copy, replace_file
from tidegraph.core.errors import DataError, ParameterError, StorageError
from tidegraph.core.progress import Progress
from tidegraph.core.resume import require_free, require_same
from tidegraph.core.statefile import digest
from tidegraph.core.words import counted
from tidegraph.engine import embeddings
from tidegraph.engine.channels import Channel, EngineSettings, Sketch
from tidegraph.engine.compact import (
    CompactGraph,
    file_digests,
    memory_bytes,
    memory_text,
    resumable,
)
from tidegraph.engine.embeddings import (
    FORMAT,
    MANIFEST,
    ROUNDING,
    VERSION,
    Block,
    Embeddings,
    listed_blocks,
    pieces,
)
from tidegraph.engine.planning import WIDEST_PASS, Stored, pass_bytes, plan
from tidegraph.engine.precision import Dtype, check_dtype, check_features
from tidegraph.engine.propagator import Propagator

_KIND = "a directory of embeddings"


def propagate_in_passes(
    graph: CompactGraph,
    features: Sketch | NDArray[Any],
    out: str | os.PathLike[str],
    *,
    memory: str | int = "8G",
    channels: Sequence[Channel] = EngineSettings.channels,
    beta: float = EngineSettings.beta,
    r_max: float = EngineSettings.r_max,
    dtype: Dtype = "float32",
    stored: Stored = "float32",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Embeddings:
    """Propagate any number of columns over a graph into the new directory `out`.

    features: a sketch, or an array `[nodes, columns]`, possibly a memory map. It is read in pieces;
        during a pass, the columns of that pass are in a temporary file in `out`.
    memory: an upper limit for this process; the graph is mapped and counts only as page cache.
        The number of passes follows from it.
    dtype: the dtype of the computation; float64 can hold a smaller `r_max`, in twice the memory.
    stored: the dtype of the files; float16 halves them and has three digits.

    After an interruption, a full disk (`StorageError`) or lack of memory (`ShortOfMemoryError`),
    the same call resumes after the last complete pass, even with another `memory`. It compares
    every byte of earlier passes with its digest and makes damaged files again
    (`Embeddings.mended`). Which columns share a pass affects the result's bits, within `r_max`.

    Before a pass is stored, its residuals are recomputed in float64 and recorded as
    `Embeddings.residuals`. Raise StorageError if they exceed what `r_max` allows: the graph is
    damaged then.
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
        # Absent by default, so that directories begun before there was a choice can be resumed.
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
            block_columns=WIDEST_PASS,
        )

    def report(done: int, what: str) -> None:
        if progress is not None:
            progress(done, columns.count, what)

    with resumable(path, memory):
        manifest = _Manifest(path, order, graph, len(channels), columns.count)
        manifest.take_names(graph)
        damaged = manifest.damaged(report)
        for block in damaged:
            needed = pass_bytes(graph.nodes, block.columns, len(channels), dtype)
            if needed > room:
                raise ParameterError(
                    f"{path / block.file} is damaged, and memory={memory} is too little to make"
                    f" its {counted(block.columns, 'column')} again together; give"
                    f" memory={memory_text(needed)} or more"
                )
            report(block.first, f"columns propagated ({block.file} again: it was damaged)")
            manifest.store(block, propagated(block.first, block.columns), graph)
        while (first := manifest.done) < columns.count:
            rest = columns.count - first
            options: dict[str, Any] = {"channels": len(channels), "dtype": dtype}
            chosen = plan(graph.nodes, graph.edges, rest, memory=memory, **options)
            report(first, "columns propagated")
            block = manifest.next_block(min(rest, chosen.columns_per_pass))
            manifest.store(block, propagated(first, block.columns), graph)
            report(manifest.done, "columns propagated")
    made = Embeddings.open(out)
    made.mended = tuple(block.file for block in damaged)
    return made


def _checked_residuals(propagator: Propagator, graph: CompactGraph) -> NDArray[np.float64]:
    """Return the largest residual over what `r_max` allows, per channel.

    Raise StorageError if one is larger than rounding can explain.
    """
    residuals = propagator.audit().residual
    if not (residuals <= 1 + ROUNDING).all():
        raise StorageError(
            f"residuals over {graph.path} are {residuals.max():.3g} times what r_max allows, more"
            " than rounding explains, and this pass was discarded. The graph is probably damaged:"
            f" run `tidegraph graph info {graph.path} --verify`; if it reports damage, build the"
            " graph again, otherwise give dtype='float64'"
        )
    return residuals


class _Columns:
    """The features to propagate, some columns at a time."""

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
        """Return what identifies the features: the sketch, or a digest of the numbers.

        Raise ParameterError if a number cannot be propagated.
        """
        if isinstance(self._features, Sketch):
            return {"sketch": asdict(self._features)}
        of_all = digest(_checked(self._features))
        return {"features": {"digest": of_all, "dtype": self._features.dtype.str}}

    def part(self, first: int, count: int) -> Sketch | NDArray[Any]:
        """Return some columns in a form that a propagator reads in place."""
        if isinstance(self._features, Sketch):
            return self._features.part(first, count)
        scratch = self._directory / "features.new"
        with scratch.open("wb") as file:
            for rows in pieces(self._features):
                part = rows[:, first : first + count]
                file.write(np.ascontiguousarray(part, dtype=self._dtype).data)
        shape = (len(self._features), count)
        mapped = np.memmap(scratch, dtype=self._dtype, mode="r", shape=shape)
        scratch.unlink()  # the file lives on until it is unmapped
        return mapped


def _checked(features: NDArray[Any]) -> Iterator[NDArray[Any]]:
    first = 0
    for rows in pieces(features):
        # Whatever the dtype of the computation, files hold at most float32.
        check_features(rows, "float32", first_node=first, advice="scale the column")
        yield rows
        first += len(rows)


class _Manifest:
    """The complete passes in a directory, and the order (the request) they belong to."""

    def __init__(
        self, path: Path, order: dict[str, Any], graph: CompactGraph, channels: int, columns: int
    ) -> None:
        self._path = path
        self._body: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "order": json.loads(json.dumps(order)),
            "nodes": graph.nodes,
            "channels": channels,
            "columns": columns,
            "blocks": [],
        }
        if graph.named is not None:
            self._body["names"] = {"kind": graph.named, "files": graph.name_files}
        file = path / MANIFEST
        if file.is_file():
            try:
                saved = json.loads(file.read_bytes())
                begun = len(listed_blocks(saved)) > 0
            except (ValueError, KeyError, TypeError) as error:
                raise StorageError(
                    f"{file} is damaged; give a new directory, or delete this one"
                ) from error
            if begun:
                before, advice = {**saved, "blocks": []}, "give a new directory"
                words: dict[str, Any] = {"kind": _KIND, "advice": advice, "error": StorageError}
                require_same(path, before, self._body, **words)
                self._body = saved
                return
        else:
            require_free(path, _KIND, own=re.compile(rf"{MANIFEST}\.new"), error=StorageError)
        self._save()  # also over an order that was rejected before its first pass

    def take_names(self, graph: CompactGraph) -> None:
        """Link or copy the graph's files of names, unless they are here and undamaged.

        They are never written to, so directories on one file system can share them.
        """
        for name, file in graph.name_files.items():
            source, target = graph.path / name, self._path / name
            if target.is_file() and file_digests(target) == file["digests"]:
                continue
            target.unlink(missing_ok=True)
            link_or_copy(source, target)
            if file_digests(target) != file["digests"]:
                raise StorageError(f"{source} is damaged: build the graph again")

    @property
    def done(self) -> int:
        """The number of columns stored."""
        return sum(block.columns for block in listed_blocks(self._body))

    def damaged(self, report: Callable[[int, str], None]) -> list[Block]:
        """Return the blocks whose header, length or digest is not as it was written."""
        found = []
        for block in listed_blocks(self._body):
            report(block.first, "columns compared with their digests")
            try:
                block.mapped(self._path, *self._form(), verify=block.digest is not None)
            except DataError:
                found.append(block)
        return found

    def next_block(self, columns: int) -> Block:
        """Return a new block of this many columns, after those that are stored."""
        number = len(self._body["blocks"])
        return Block(number, f"block-{number:03}.npy", self.done, columns)

    def _form(self) -> tuple[int, int, np.dtype[Any]]:
        body = self._body
        return body["nodes"], body["channels"], np.dtype(body["order"]["stored"])

    def store(self, block: Block, propagator: Propagator, graph: CompactGraph) -> None:
        """Store the estimates of all nodes, replacing an existing block.

        The manifest lists the block only after its file is safe on disk.
        """
        residuals = _checked_residuals(propagator, graph)
        nodes, channels, stored = self._form()
        shape = (nodes, channels, block.columns)
        header = {"descr": stored.str, "fortran_order": False, "shape": shape}
        # Written, not mapped: a full disk then raises an error instead of killing the process.
        state = hashlib.blake2b(digest_size=16)

        def write(file: Any) -> None:
            np.lib.format.write_array_header_1_0(file, header)
            row_bytes = channels * block.columns * propagator.dtype.itemsize
            step = max(1, embeddings.PIECE_BYTES // row_bytes)
            for first in range(0, nodes, step):
                rows = propagator.embedding(np.arange(first, min(first + step, nodes)))
                part = _rounded(rows, stored, first, block.first).data
                file.write(part)
                state.update(part)

        replace_file(self._path / block.file, write, only_writer=True)
        self._body["blocks"][block.number : block.number + 1] = [
            {
                "file": block.file,
                "columns": block.columns,
                "digest": state.hexdigest(),
                # The largest residual over what r_max allows, per channel: at most 1 by promise.
                "residual": residuals.tolist(),
            }
        ]
        self._save()

    def _save(self) -> None:
        replace_file(self._path / MANIFEST, json.dumps(self._body, indent=1), only_writer=True)


def _rounded(
    rows: NDArray[Any], stored: np.dtype[Any], first_node: int, first_column: int
) -> NDArray[Any]:
    """Return estimates in the dtype of the files; raise ParameterError if it cannot hold them."""
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
