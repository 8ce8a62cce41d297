"""`Embeddings`: propagated columns of all nodes in files, read back by node.

The directory holds one file of columns per pass, the files of names if the nodes have any, and a
manifest that lists them. `passes` writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import DataError, EventError
from tidegraph.core.progress import Progress
from tidegraph.core.statefile import digest
from tidegraph.engine.compact import file_digests
from tidegraph.events.names import known_nodes
from tidegraph.events.stored_names import StoredNames

MANIFEST = "embeddings.json"
FORMAT, VERSION = "tidegraph embeddings", 1
PIECE_BYTES = 1 << 22  # of an array read, or written, at once
ROUNDING = 1e-6  # of residuals, as a share of what `r_max` allows
_REPEAT = "repeat the command that made the embeddings to make it again"


@dataclass(frozen=True)
class Block:
    """The columns of one pass, and their file."""

    number: int
    file: str
    first: int
    columns: int
    digest: str | None = None  # None: not written yet, or by a release without digests

    def mapped(
        self,
        directory: Path,
        nodes: int,
        channels: int,
        stored: np.dtype[Any],
        *,
        verify: bool = False,
    ) -> NDArray[Any]:
        """Return the columns as a memory map; raise DataError if the file is missing or damaged.

        verify: whether to compare every byte with the digest.
        """
        path = directory / self.file
        try:
            array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        except FileNotFoundError:
            raise DataError(f"{path} is missing: {_REPEAT}") from None
        except (ValueError, EOFError) as error:
            raise DataError(f"{path} is damaged ({error}): {_REPEAT}") from None
        whole = array.shape == (nodes, channels, self.columns) and array.dtype == stored
        if not whole or (verify and digest(pieces(array)) != self.digest):
            raise DataError(f"{path} is damaged: {_REPEAT}")
        return array


def listed_blocks(body: dict[str, Any]) -> list[Block]:
    """Return the blocks that a manifest lists."""
    blocks: list[Block] = []
    first = 0
    for number, entry in enumerate(body["blocks"]):
        count = int(entry["columns"])
        blocks.append(Block(number, str(entry["file"]), first, count, entry.get("digest")))
        first += count
    return blocks


@dataclass(eq=False, repr=False)
class Embeddings:
    """Propagated columns of all nodes in files, read by node: `embeddings[nodes]`.

    Nodes are given by their numbers, or by names as text, as in `embeddings[["ann", "bob"]]`. Only
    the rows asked for are read.

    residuals: `[passes, channels]`, the largest residual over what `r_max` allows, computed in
        float64 before the pass was stored. If it is at most 1, every number is as close to the
        exact one as promised, apart from rounding to `dtype`.
    computed_in: the dtype of the propagation; `dtype` is that of the files.
    mended: damaged files that the call which returned this object has made again.
    """

    path: Path
    _blocks: list[NDArray[Any]]
    shape: tuple[int, int, int]
    residuals: NDArray[np.float64]
    computed_in: str
    _names: StoredNames | None = None
    mended: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        verify: bool = False,
        progress: Progress | None = None,
    ) -> Embeddings:
        """Open the embeddings in a directory; raise DataError unless all passes are complete.

        Files must exist and have the right length; with `verify`, every byte is compared with the
        digest of its file.
        """
        path = Path(path)
        try:
            body = json.loads((path / MANIFEST).read_bytes())
            if body["format"] != FORMAT or body["version"] != VERSION:
                raise DataError(f"{path} has another format; this release reads version {VERSION}")
            shape = (int(body["nodes"]), int(body["channels"]), int(body["columns"]))
            blocks = listed_blocks(body)
            residuals = np.array([entry["residual"] for entry in body["blocks"]], dtype=np.float64)
            stored = np.dtype(body["order"]["stored"])
            computed_in = str(body["order"].get("dtype", "float32"))
            done = sum(block.columns for block in blocks)
            if done != shape[2]:
                raise DataError(
                    f"{path} holds {done} of {shape[2]} columns: repeat the command that made them"
                )
            arrays = [block.mapped(path, *shape[:2], stored) for block in blocks]
            named = body.get("names")
            files = {} if named is None else named["files"]
            for name, file in files.items():
                if not (path / name).is_file() or (path / name).stat().st_size != file["bytes"]:
                    raise DataError(f"{path / name} is missing or damaged: {_REPEAT}")
            names = None if named is None else StoredNames(path, named["kind"], shape[0])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} holds no readable embeddings: {error}") from error
        for block in blocks if verify else ():
            if progress is not None:
                progress(block.first, done, "columns compared with their digests")
            if block.digest is None:
                raise DataError(
                    f"{path / block.file} was written by a release without digests and cannot be"
                    " verified: propagate into a new directory, or open it without verify"
                )
            block.mapped(path, *shape[:2], stored, verify=True)
        for name, file in files.items() if verify else ():
            if file_digests(path / name) != file["digests"]:
                raise DataError(f"{path / name} is damaged: {_REPEAT}")
        return cls(path, arrays, shape, residuals, computed_in, names)

    def number(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the numbers of nodes by name; raise UnknownNodeError for others."""
        return known_nodes(ids, len(self)) if self._names is None else self._names.numbers(ids)

    def name(self, nodes: ArrayLike) -> NDArray[Any]:
        """Return the names of the nodes with these numbers."""
        known = known_nodes(nodes, len(self))
        return known if self._names is None else self._names.names(known)

    @property
    def excess(self) -> float:
        """How far the largest residual exceeds what `r_max` allows, as a share of it; usually 0."""
        residual = float(self.residuals.max())
        return residual - 1 if residual > 1 + ROUNDING else 0.0

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._blocks[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        nodes, channels, columns = self.shape
        return (
            f"Embeddings({str(self.path)!r}, nodes={nodes}, channels={channels}, columns={columns},"
            f" dtype={self.dtype}, computed_in={self.computed_in},"
            f" residual={self.residuals.max():.3g})"
        )

    def __getitem__(self, nodes: ArrayLike) -> NDArray[Any]:
        """Return the columns `[k, channels, columns]` of nodes, by their numbers or names."""
        given = np.atleast_1d(np.asarray(nodes))
        if given.ndim != 1:
            raise EventError(f"nodes have shape {given.shape}; give node numbers or names [k]")
        named = given.size and given.dtype.kind in "OUT"
        ids = self.number(given) if named else known_nodes(given, len(self))
        out = np.empty((ids.size, *self.shape[1:]), dtype=self.dtype)
        first = 0
        for block in self._blocks:
            last = first + block.shape[2]
            out[:, :, first:last] = block[ids]
            first = last
        return out


def pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array in pieces of bounded size."""
    step = max(1, PIECE_BYTES // (array[:1].nbytes or 1))
    for first in range(0, len(array), step):
        yield array[first : first + step]
