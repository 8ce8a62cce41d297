"""The first stage of a build: the rows of a table become pairs of 32-bit numbers in files.

`Work` is the unfinished build, which every stage starts from and adds to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.durable import replace_file, sync
from tidegraph.core.errors import DataError, ParameterError, StorageError
from tidegraph.core.progress import Progress
from tidegraph.core.resume import read_json, require_free, require_same
from tidegraph.engine.compact import UNFINISHED, mapped, memory_text, split_weights
from tidegraph.events.columns import WEIGHT_MAX, WEIGHT_MIN, WEIGHT_RANGE
from tidegraph.events.stored_names import Kind, Naming, StoredNames
from tidegraph.events.tables import scan_edges
from tidegraph.events.tables.cells import is_arrow, is_text, plain_column

MAX_NODES = 0xFFFFFFFE
_READ_BYTES = 1 << 20  # of a file at once
_READ_ROWS = 1 << 18  # rows of a table read at once
_TEXT_ROWS = 1 << 14  # where ids are texts, which may be long
_GROUPS = 16  # row groups between two points at which an interrupted build can resume
_OVERHEAD = 256 << 20  # interpreter, libraries and what they set apart, batches of the reader
_SPLIT = 1 << 14  # weights split for their files at once


class Work:
    """An unfinished build: what was ordered, a manifest, and files of which a known part counts."""

    def __init__(
        self,
        path: Path,
        table: Path,
        order: dict[str, Any],
        *,
        memory: int,
        threads: int,
        progress: Progress | None,
    ) -> None:
        self.path, self.directory, self.table = path, path / UNFINISHED, table
        self.order, self.threads = order, threads
        self.weighted = order["columns"][2] is not None
        self._memory, self._progress = memory, progress
        self._manifest = self.directory / "manifest.json"
        kind = "an unfinished build"
        if not self.directory.is_dir():
            require_free(path, kind, error=StorageError)
        self.directory.mkdir(exist_ok=True)
        self.state: dict[str, Any] = {"stage": "read"}
        self.restart("integers" if order["ids"] == "number" else None)
        if self._manifest.is_file():
            saved = read_json(self._manifest)
            if saved["order"] == order:
                self.state = saved["state"]
            elif saved["state"]["stage"] != "read" or saved["state"]["group"]:
                advice = "give a new directory, or delete it"
                require_same(
                    path, saved["order"], order, kind=kind, advice=advice, error=StorageError
                )
        self.save()  # replaces an order of which nothing was done yet

    def restart(self, named: Kind | None) -> None:
        """Start reading the table again, with ids numbered as of a kind, or kept."""
        self.state |= {"rows": 0, "group": 0, "loops": 0, "largest": -1}
        self.state |= {"named": named, "names": 0, "text_bytes": 0}

    def save(self, **changes: Any) -> None:
        """Save changes of the state; the files it refers to must be safe on disk before."""
        self.state |= changes
        content = json.dumps({"order": self.order, "state": self.state})
        replace_file(self._manifest, content, only_writer=True)

    @contextmanager
    def appending(self, sizes: Mapping[Path, int]) -> Iterator[list[Any]]:
        """Open files for appending, cut to the part that counts, and sync them at the end."""
        with ExitStack() as opened:
            files = []
            for path, size in sizes.items():
                mode = "r+b" if path.exists() else "w+b"
                files.append(opened.enter_context(path.open(mode)))
                files[-1].truncate(size)
                files[-1].seek(size)
            yield files
            sync(*files)

    def report(self, done: int, total: int, what: str) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(done, total, what)

    @property
    def room(self) -> int:
        """Bytes of memory for what depends on the graph."""
        return self._memory - _OVERHEAD

    def require_memory(self, needed: int, advice: str = "") -> None:
        """Raise ParameterError if so many bytes are more than there is room for."""
        if needed > self.room:
            raise ParameterError(
                f"memory={memory_text(self._memory)} is too little to build this graph; give"
                f" memory={memory_text(needed + _OVERHEAD)} or more{advice}"
            )

    def require_memory_of_ids(self, ids: int, needed: int, rows: tuple[int, int]) -> None:
        """Raise ParameterError, with an estimate of what is needed, if ids need too much memory.

        rows: how many were read, and of how many.
        """
        if needed <= self.room:
            return
        done, total = rows
        # Later rows rarely bring new ids faster. The number of rows of a text file is unknown.
        share = total / done if total > done > 0 else 2
        raise ParameterError(
            f"memory={memory_text(self._memory)} is too little to number the nodes: {ids:,} ids in"
            f" the rows read so far take {memory_text(needed)} on top of the"
            f" {memory_text(_OVERHEAD)} of the process, and there are rows left; give"
            f" memory={memory_text(int(needed * share) + _OVERHEAD)}, which is enough if those"
            " bring new ids no faster: the build resumes where it stopped"
        )

    def reject_edge(self, src: int, dst: int, weight: float) -> None:
        """Raise DataError for an edge that is heavier than the engine takes, with its ids."""
        nodes, kind = np.array([src, dst]), self.state["named"]
        if kind is not None:
            nodes = StoredNames(self.directory, kind, int(self.state["nodes"])).names(nodes)
        between = " and ".join(repr(name) for name in nodes.tolist())
        raise DataError(
            f"{self.table}: the weights of the edge between {between} add up to {weight:g};"
            f" {WEIGHT_RANGE}: use another unit"
        )

    def row_types(self) -> dict[str, Any]:
        """Return the files of rows, and the types of the numbers in them."""
        types: dict[str, Any] = {"src": np.uint32, "dst": np.uint32}
        return types | ({"weight": np.float64} if self.weighted else {})

    def rows(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """Return src, dst and weight of all rows but self-edges, as memory maps."""
        count = int(self.state["rows"])
        types = self.row_types().items()
        src, dst, *weight = (mapped(self.directory / name, kind, count) for name, kind in types)
        return src, dst, weight[0] if weight else None


def append(files: list[Any], *parts: NDArray[Any]) -> int:
    """Append one part to each file; return the length of the first."""
    for file, part in zip(files, parts, strict=True):
        file.write(part.data)
    return len(parts[0])


def append_weights(files: list[Any], weights: NDArray[np.float64]) -> bool:
    """Append weights and their fractions to two files; return whether any fraction is not 0.

    Fractions that are all 0 become a hole in the file, which takes no disk.
    """
    fine = False
    for first in range(0, len(weights), _SPLIT):
        near, fractions = split_weights(weights[first : first + _SPLIT])
        files[0].write(near.data)
        if fractions.any():
            files[1].write(fractions.data)
            fine = True
        else:
            files[1].truncate(files[1].seek(fractions.nbytes, os.SEEK_CUR))
    return fine


# Rows ---------------------------------------------------------------------------------------------


class _OtherIds(Exception):
    """Raised when ids are not of the kind they were read as, with the kind to number them as."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.kind = kind


def spool(work: Work) -> None:
    """Read the table from where the manifest says; start again where ids turn out to be others."""
    while True:
        try:
            return _spool_rows(work)
        except _OtherIds as found:
            work.restart(found.kind)
            work.save()  # before any file that counted is cut


def _spool_rows(work: Work) -> None:
    state, types, rows_read = work.state, work.row_types(), (0, 0)
    naming = None
    if state["named"] is not None:
        naming = Naming(
            work.directory,
            state["named"],
            int(state["names"]),
            int(state["text_bytes"]),
            lambda ids, needed: work.require_memory_of_ids(ids, needed, rows_read),
        )
    largest, rows, loops = (int(state[name]) for name in ("largest", "rows", "loops"))
    sizes = {work.directory / name: np.dtype(kind).itemsize * rows for name, kind in types.items()}
    sizes |= {work.directory / "loops.nodes": 4 * loops}
    sizes |= {work.directory / "loops.weights": 8 * loops} if work.weighted else {}
    spools = len(sizes)
    sizes |= {} if naming is None else naming.sizes
    with work.appending(sizes) as files:
        for group, columns, rows_read in _groups(work, int(state["group"])):
            if naming is None:
                columns[:2] = [_kept(ids, work) for ids in columns[:2]]
                largest = max([largest, *(int(ids.max()) for ids in columns[:2] if len(ids))])
            else:
                src, dst = (_of_kind(ids, naming.kind) for ids in columns[:2])
                columns[:2] = naming(src, dst, files[spools:])
                largest = len(naming) - 1
            looping = columns[0] == columns[1]
            if looping.any():
                parts = [columns[1][looping].astype(np.uint32)]
                parts += [column[looping].astype(np.float64) for column in columns[2:]]
                loops += append(files[len(types) : spools], *parts)
                columns = [column[~looping] for column in columns]
            parts = [*map(np.ascontiguousarray, columns, types.values())]
            rows += append(files[: len(types)], *parts)
            if group is not None:
                sync(*files)
                if naming is not None:
                    state |= {"names": len(naming), "text_bytes": naming.text_bytes}
                work.save(rows=rows, group=group, largest=largest, loops=loops)
            work.report(*rows_read, "rows read")
    nodes = work.order["nodes"] or largest + 1
    if nodes == 0:
        raise DataError(f"{work.table} holds no rows; give nodes to make a graph without edges")
    state |= {"rows": rows, "nodes": nodes, "loops": loops}
    fine = ["selves"] if _add_up_loops(work, loops, nodes) else []
    work.save(stage="lists", side="sources", node=0, entries=0, fine=fine)


def _kept(ids: Any, work: Work) -> NDArray[Any]:
    """Return ids that can be the numbers of nodes; raise if these cannot."""
    order = work.order
    limit = order["nodes"] or MAX_NODES
    if is_arrow(ids):
        kind: Kind = "texts"
        given = ids[0].as_py()
        advice = "leave out nodes" if order["nodes"] else "give ids='auto'"
    elif len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= limit):
        kind, given = "integers", min(int(ids.min()), 0) or int(ids.max())
        advice = "give more nodes" if order["nodes"] else "give ids='number'"
    else:
        return ids  # type: ignore[no-any-return]
    if order["ids"] != "keep":
        raise _OtherIds(kind)
    raise DataError(
        f"{work.table} names node {given!r}; ids that are kept are integers from 0 to {limit - 1}:"
        f" {advice}"
    )


def _of_kind(ids: Any, kind: Kind) -> Any:
    """Return a column of ids as `Naming` takes them: int64, or text, numbers converted."""
    import pyarrow as pa

    if kind == "texts":
        return ids if is_arrow(ids) else pa.array(ids).cast(pa.string())
    if is_arrow(ids) or (len(ids) and int(ids.max()) >= 2**63):
        raise _OtherIds("texts")
    return ids.astype(np.int64)


def _add_up_loops(work: Work, loops: int, nodes: int) -> bool:
    """Write the self-edges, one for each node that has any, by windows of nodes.

    Weights are added in the order of rows, so that windows change no bit. Return whether any has a
    fraction.
    """
    directory = work.directory
    node = mapped(directory / "loops.nodes", np.uint32, loops)
    weight = mapped(directory / "loops.weights", np.float64, loops) if work.weighted else None
    window = max(1 << 16, work.room // 32)
    sizes = {work.path / name: 0 for name in ("selves.nodes", "selves.weights")}
    sizes |= {directory / "selves.fractions": 0}
    fine = False
    with work.appending(sizes) as files:
        for begun in range(0, nodes if loops else 0, window):
            sums = np.zeros(min(window, nodes - begun))
            for first in range(0, loops, _READ_ROWS):
                rows = slice(first, first + _READ_ROWS)
                place = node[rows].astype(np.int64) - begun
                inside = (place >= 0) & (place < len(sums))
                np.add.at(sums, place[inside], 1.0 if weight is None else weight[rows][inside])
            if sums[heaviest := int(sums.argmax())] > WEIGHT_MAX:
                work.reject_edge(begun + heaviest, begun + heaviest, float(sums[heaviest]))
            found = np.flatnonzero(sums)
            fine |= append_weights(files[1:], sums[found])
            append(files[:1], (begun + found).astype(np.uint32))
    return fine


# Tables -------------------------------------------------------------------------------------------


def _groups(work: Work, begin: int) -> Iterator[tuple[int | None, list[Any], tuple[int, int]]]:
    """Yield `(group to resume at, or None; columns; (rows done, of how many))` of the table."""
    src, dst, weight = work.order["columns"]
    names = [src or "src", dst or "dst", *([weight] if work.weighted else [])]
    found = _parquet(work.table, names)
    if found is None:
        done = 0
        for columns in scan_edges(work.table, src=src, dst=dst, weight=weight):
            done += len(columns[0])
            yield None, [column for column in columns if column is not None], (done, done)
        return
    file, rows_at_once = found
    metadata = file.metadata
    ends = np.cumsum([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)])
    done = int(ends[begin - 1]) if begin else 0
    for group in range(begin, len(ends)):
        is_point = group + 1 == len(ends) or (group + 1) % _GROUPS == 0
        for piece in _pieces(work.table, file, group, names, rows_at_once):
            if work.weighted:
                piece[2] = _checked(piece[2], f"{work.table}, row", done, names[2])
            done += len(piece[0])
            point = group + 1 if is_point and done == ends[group] else None
            yield point, piece, (done, int(ends[-1]))


def _parquet(path: Path, names: list[str]) -> tuple[Any, int] | None:
    """Return a Parquet file and how many rows to read at once.

    None if it is not Parquet or lacks columns of ids, and of weights, with these names.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Row groups may be large: without pre-buffering only the pages in use are in memory.
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES)
    except (pa.ArrowInvalid, OSError):
        return None
    schema = file.schema_arrow
    if not all(name in schema.names for name in names):
        return None
    kinds = [schema.field(name).type for name in names]
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    others = [kind for kind in kinds[:2] if not pa.types.is_integer(kind)]
    if not all(is_text(pa.array([], kind)) for kind in others):
        return None
    if not all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds[2:]):
        return None
    return file, _TEXT_ROWS if others else _READ_ROWS


def _pieces(
    path: Path, file: Any, group: int, names: list[str], rows_at_once: int
) -> Iterator[list[Any]]:
    """Yield the columns of a row group, which may be larger than memory, in pieces."""
    import pyarrow as pa

    try:
        for batch in file.iter_batches(
            rows_at_once, row_groups=[group], columns=names, use_threads=False
        ):
            columns = []
            for name in names:
                column = batch[name]
                if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
                    column = plain_column(column)
                if column.null_count:
                    raise DataError(f"column {name} has rows without a value; leave them out")
                columns.append(column if is_text(column) else column.to_numpy())
            yield columns
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error


def _checked(weights: NDArray[Any], place: str, first: int, name: str) -> NDArray[np.float64]:
    """Return the weights of the rows from `first` on; raise DataError if one is out of range."""
    values = weights.astype(np.float64)
    taken = (values >= WEIGHT_MIN) & (values <= WEIGHT_MAX)  # NaN is not
    if not taken.all():
        row = int(taken.argmin())
        raise DataError(
            f"{place} {first + row} (counted from 0): {name} is {values[row]:g}; {WEIGHT_RANGE}:"
            " use another unit, or leave out such rows"
        )
    return values
