"""Compact graphs from tables of edges, in bounded memory; an interrupted build resumes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph import _native
from tidegraph.core.durable import put_in_place, replace_file, sync
from tidegraph.core.errors import DataError, ParameterError, StorageError
from tidegraph.core.progress import Progress
from tidegraph.engine.compact import (
    HEADER,
    UNFINISHED,
    VERSION,
    CompactGraph,
    file_digests,
    mapped,
    memory_bytes,
    memory_text,
    open_graph,
    resumable,
    split_weights,
    write_header,
)
from tidegraph.events.columns import WEIGHT_MAX, WEIGHT_MIN, WEIGHT_RANGE
from tidegraph.events.datasets import storage
from tidegraph.events.stored_names import ORDER_BYTES, Kind, Naming, StoredNames, files_of
from tidegraph.events.tables import scan_edges
from tidegraph.events.tables.cells import is_arrow, is_text, plain_column
from tidegraph.events.tables.numbering import Ids

__all__ = ["build"]

_STAGES = 3  # of what an unfinished build has left
_MAX_NODES = 0xFFFFFFFE
_READ_BYTES = 1 << 20  # of a file at once
_READ_ROWS = 1 << 18  # rows of a table read at once
_TEXT_ROWS = 1 << 14  # where ids are texts, which may be long
_ROWS = 1 << 24  # pairs handed to the core at once
_OVERHEAD = 256 << 20  # interpreter, libraries and what they set apart, batches of the reader
_SPLIT = 1 << 14  # weights split for their files at once
_ENTRY_BYTES, _WEIGHT_BYTES = 4, 8  # of a list in memory
_SORT_BYTES = 16  # for each entry of a list with weights while it is sorted
# Of a build: the rows of the table but for self-edges.
_ROW_FILES = {"src": np.uint32, "dst": np.uint32, "weight": np.float64}
_SRC, _DST, _BOTH = range(3)


def build(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    nodes: int | None = None,
    directed: bool = False,
    src: str | None = None,
    dst: str | None = None,
    weight: str | None = None,
    ids: Ids = "auto",
    memory: str | int = "4G",
    threads: int = 2,
    progress: Progress | None = None,
) -> CompactGraph:
    """Build the graph of all edges in `source` in the new directory `path`, and open it.

    source: a Parquet file with columns `src` and `dst`, any other table of edges that
        `tidegraph.read` takes, or the directory of a generated stream. Times are not read, and need
        not be there: the graph is that of all edges.
    nodes: how many there are, where ids are kept; by default one more than the largest id.
    weight: the column of weights, from 2**-64 to 2**64, which are kept as the float64 numbers they
        are; by default every row counts one. Those of rows that repeat an edge are added.
    ids: "auto" keeps integers from 0 to 2**32 - 3 and numbers nodes where any id is another, or a
        word; "keep" takes no others, "number" numbers in any case. Numbers are given in the order
        of first appearance, the source of a row before its destination; `CompactGraph.number` and
        `name` translate. The ids are held while the table is read: 24 bytes of memory for each
        integer, 98 for each word and the word itself, which takes some 50 more than its letters.
    memory: what the process may take, files in the page cache not counted.

    A build that was interrupted goes on where it stood when it is called again in the same way, and
    ends with the same bytes, also with another `memory`. Until the end it takes another 8 bytes of
    disk per row, 16 with weights.
    """
    table = Path(source)
    if (table / storage.DESCRIPTION).is_file():
        table = table / storage.EDGES
    if not table.is_file():
        raise DataError(f"{table} is not a file of edges")
    if nodes is not None and not 0 < nodes <= _MAX_NODES:
        raise ParameterError(f"nodes is {nodes}; give 1 to {_MAX_NODES}")
    if ids not in ("auto", "keep", "number"):
        raise ParameterError(f"ids is {ids!r}; give 'auto', 'keep' or 'number'")
    if ids == "number" and nodes is not None:
        raise ParameterError(
            f"nodes={nodes} and ids='number' exclude each other: numbering makes as many nodes as"
            " there are ids; leave one of them out"
        )
    stat = table.stat()
    order = {
        "source": str(table.resolve()),
        "bytes": stat.st_size,
        "modified_ns": stat.st_mtime_ns,
        "nodes": nodes,
        "directed": directed,
        "columns": [src, dst, weight],
        "ids": "keep" if nodes is not None else ids,
        "version": VERSION,
        "stages": _STAGES,
    }
    room = memory_bytes(memory)
    target = Path(path)
    with resumable(target, memory):
        if (target / HEADER).exists():
            raise StorageError(f"{path} holds a graph already; give a new directory")
        work = _Work(target, order)
        return _Build(work, table, room, threads, progress).run()


class _Work:
    """The progress of a build: a manifest, and files of which only a known part counts."""

    def __init__(self, path: Path, order: dict[str, Any]) -> None:
        self.path, self.directory = path, path / UNFINISHED
        self._manifest = self.directory / "manifest.json"
        if path.exists() and not self.directory.is_dir() and any(path.iterdir()):
            raise StorageError(f"{path} is not empty; give a new directory")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.order = order
        self.state: dict[str, Any] = {"stage": "read"}
        self.restart("integers" if order["ids"] == "number" else None)
        if self._manifest.is_file():
            saved = json.loads(self._manifest.read_bytes())
            if saved["order"] == order:
                self.state = saved["state"]
            elif saved["state"]["stage"] != "read" or saved["state"]["group"]:
                raise StorageError(
                    f"{path} holds an unfinished build of other inputs; give a new directory, or"
                    " delete it"
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


class _Build:
    """The stages of a build, each of which starts where the manifest says.

    read     rows of the table become pairs of 32-bit ids in files; self-edges are put aside. Where
             ids cannot be kept it begins again, and numbers them
    lists    for each side: how long lists are; then window by window of as many nodes as memory
             allows the lists are filled by a pass over all pairs, sorted and appended; with
             weights, repetitions are merged before
    merge    where repetitions prevail
    seal     offsets, the order of names, fractions of weights where there are any, digests, and the
             header that makes it a graph
    """

    def __init__(
        self, work: _Work, table: Path, memory: int, threads: int, progress: Progress | None
    ) -> None:
        self._work, self._table, self._memory = work, table, memory
        self._threads, self._progress = threads, progress
        self._rows_read = 0, 0  # of how many
        self._weighted_rows = work.order["columns"][2] is not None
        self._sides = (
            {"sources": _DST, "targets": _SRC} if work.order["directed"] else {"sources": _BOTH}
        )

    def run(self) -> CompactGraph:
        state = self._work.state
        if state["stage"] == "read":
            self._read()
        for side in self._sides:
            if state["stage"] == "lists" and state["side"] == side:
                self._fill(side)
        if state["stage"] == "merge":
            self._merge()
        self._seal()
        return open_graph(self._work.path)

    def _report(self, done: int, total: int, what: str) -> None:
        if self._progress is not None:
            self._progress(done, total, what)

    # read

    def _read(self) -> None:
        while True:
            try:
                return self._read_rows()
            except _OtherIds as found:
                self._work.restart(found.kind)
                self._work.save()  # before any file that counted is cut

    def _read_rows(self) -> None:
        work, state = self._work, self._work.state
        naming = None
        if state["named"] is not None:
            known = int(state["names"]), int(state["text_bytes"])
            naming = Naming(work.directory, state["named"], *known, self._within_memory)
        largest, rows, loops = (int(state[name]) for name in ("largest", "rows", "loops"))
        kinds = self._row_files()
        sizes = {
            work.directory / name: np.dtype(kind).itemsize * rows for name, kind in kinds.items()
        }
        sizes |= {work.directory / "loops.nodes": 4 * loops}
        sizes |= {work.directory / "loops.weights": 8 * loops} if self._weighted_rows else {}
        spools = len(sizes)
        sizes |= {} if naming is None else naming.sizes
        with work.appending(sizes) as files:
            for group, columns, (done, total) in self._groups(int(state["group"])):
                self._rows_read = done, total
                if naming is None:
                    columns[:2] = [self._integers(ids) for ids in columns[:2]]
                    largest = max(largest, self._largest(columns[:2]))
                else:
                    src, dst = (_of_kind(ids, naming.kind) for ids in columns[:2])
                    columns[:2] = naming(src, dst, files[spools:])
                    largest = len(naming) - 1
                looping = columns[0] == columns[1]
                if looping.any():
                    parts = [columns[1][looping].astype(np.uint32)]
                    parts += [column[looping].astype(np.float64) for column in columns[2:]]
                    loops += _append(files[len(kinds) : spools], *parts)
                    columns = [column[~looping] for column in columns]
                rows += _append(
                    files[: len(kinds)],
                    *map(np.ascontiguousarray, columns, kinds.values()),
                )
                if group is not None:
                    sync(*files)
                    work.save(
                        rows=rows, group=group, largest=largest, loops=loops, **_names_of(naming)
                    )
                self._report(done, total, "rows read")
        nodes = work.order["nodes"] or largest + 1
        if nodes == 0:
            raise DataError(
                f"{self._table} holds no rows; give nodes to make a graph without edges"
            )
        work.state |= {"rows": rows, "nodes": nodes, "loops": loops}
        fine = ["selves"] if self._add_up_loops(loops, nodes) else []
        work.save(stage="lists", side="sources", node=0, entries=0, fine=fine)

    def _row_files(self) -> dict[str, Any]:
        return {
            name: kind
            for name, kind in _ROW_FILES.items()
            if name != "weight" or self._weighted_rows
        }

    def _integers(self, ids: Any) -> NDArray[Any]:
        """Return ids if their type allows them to be kept, else raise."""
        if not is_arrow(ids):
            return ids  # type: ignore[no-any-return]
        order = self._work.order
        if order["ids"] != "keep":
            raise _OtherIds("texts")
        advice = "leave out nodes" if order["nodes"] else "say ids='auto'"
        raise DataError(
            f"{self._table} has the node id {ids[0].as_py()!r}; ids that are kept must be integers"
            f" from 0 on: {advice} to have nodes numbered"
        )

    def _within_memory(self, ids: int, needed: int) -> None:
        """Raise ParameterError, with an estimate of what is needed, if ids need too much memory."""
        if needed + _OVERHEAD <= self._memory:
            return
        done, total = self._rows_read
        # Later rows rarely bring new ids faster. The number of rows of a text file is unknown.
        share = total / done if total > done > 0 else 2
        raise ParameterError(
            f"memory={memory_text(self._memory)} is too little to number the nodes: {ids:,} ids in"
            f" the rows read so far take {memory_text(needed)} on top of the"
            f" {memory_text(_OVERHEAD)} of the process, and there are rows left; give"
            f" memory={memory_text(int(needed * share) + _OVERHEAD)}, which is enough if those"
            " bring new ids no faster: the build resumes where it stopped"
        )

    def _largest(self, columns: list[NDArray[Any]]) -> int:
        limit = self._work.order["nodes"] or _MAX_NODES
        largest = -1
        for ids in columns:
            if not len(ids):
                continue
            largest = max(largest, int(ids.max()))
            if int(ids.min()) < 0 or largest >= limit:
                if self._work.order["ids"] != "keep":
                    raise _OtherIds("integers")
                advice = "give more nodes" if self._work.order["nodes"] else "say ids='number'"
                raise DataError(
                    f"{self._table} names node {min(int(ids.min()), 0) or largest}; ids that are"
                    f" kept run from 0 to {limit - 1}: {advice}"
                )
        return largest

    def _add_up_loops(self, loops: int, nodes: int) -> bool:
        """Write the self-edges, one for each node that has any, by windows of nodes.

        Weights are added in the order of rows, so that windows change no bit. Return whether any
        has a fraction.
        """
        directory = self._work.directory
        node = mapped(directory / "loops.nodes", np.uint32, loops)
        weight = None
        if self._weighted_rows:
            weight = mapped(directory / "loops.weights", np.float64, loops)
        window = max(1 << 16, (self._memory - _OVERHEAD) // 32)
        sizes = {self._work.path / name: 0 for name in ("selves.nodes", "selves.weights")}
        sizes |= {directory / "selves.fractions": 0}
        fine = False
        with self._work.appending(sizes) as files:
            for begun in range(0, nodes if loops else 0, window):
                sums = np.zeros(min(window, nodes - begun))
                for first in range(0, loops, _READ_ROWS):
                    rows = slice(first, first + _READ_ROWS)
                    place = node[rows].astype(np.int64) - begun
                    inside = (place >= 0) & (place < len(sums))
                    np.add.at(sums, place[inside], 1.0 if weight is None else weight[rows][inside])
                found = np.flatnonzero(sums)
                if sums[heaviest := int(sums.argmax())] > WEIGHT_MAX:
                    node_at = begun + heaviest
                    self._refuse_sum(node_at, node_at, float(sums[heaviest]))
                fine |= _append_weights(files[1:], sums[found])
                _append(files[:1], (begun + found).astype(np.uint32))
        return fine

    def _refuse_sum(self, src: int, dst: int, weight: float) -> None:
        """Refuse an edge that is heavier than the engine takes, by the ids of the table."""
        nodes, kind = np.array([src, dst]), self._work.state["named"]
        if kind is not None:
            stored = StoredNames(self._work.directory, kind, int(self._work.state["nodes"]))
            nodes = stored.names(nodes)
        between = " and ".join(repr(name) for name in nodes.tolist())
        raise DataError(
            f"{self._table}: the weights of the edge between {between} add up to {weight:g};"
            f" {WEIGHT_RANGE}: use another unit"
        )

    def _groups(self, begin: int) -> Iterator[tuple[int | None, list[Any], tuple[int, int]]]:
        """Yield `(group to resume at, or None; columns; (rows done, of how many))` of the table."""
        src, dst, weight = self._work.order["columns"]
        parquet = _ParquetEdges.of(self._table, src or "src", dst or "dst", weight)
        if parquet is not None:
            yield from parquet.groups(begin)
            return
        done = 0
        for ends in scan_edges(self._table, src=src, dst=dst, weight=weight):
            done += len(ends[0])
            yield None, [column for column in ends if column is not None], (done, done)

    # lists

    def _pairs(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        directory, rows = self._work.directory, int(self._work.state["rows"])
        src, dst, *weight = (
            mapped(directory / name, kind, rows) for name, kind in self._row_files().items()
        )
        return src, dst, weight[0] if weight else None

    def _lengths(self, side: str) -> NDArray[np.uint32]:
        """Return how many entries the list of each node has, repetitions included."""
        work, nodes = self._work, int(self._work.state["nodes"])
        path = work.directory / f"{side}.lengths"
        if not path.is_file():
            if 4 * nodes + _OVERHEAD > self._memory:
                auto = work.order["nodes"] is None and work.state["named"] is None
                sparse = auto and 4 * int(work.state["rows"]) < nodes
                self._refuse(4 * nodes, ", or ids='number': most ids do not occur" * sparse)
            lengths = np.zeros(nodes, dtype=np.uint32)
            src, dst, _ = self._pairs()
            for first in range(0, len(src), _ROWS):
                last = min(first + _ROWS, len(src))
                _native.count_entries(
                    src[first:last], dst[first:last], self._sides[side], lengths, self._threads
                )
                self._report(last, len(src), "rows counted")
            replace_file(path, lambda file: file.write(lengths.data), only_writer=True)
        return np.asarray(np.memmap(path, dtype=np.uint32, mode="r"))

    def _refuse(self, needed: int, advice: str = "") -> None:
        raise ParameterError(
            f"memory={memory_text(self._memory)} is too little to build this graph; give"
            f" memory={memory_text(needed + _OVERHEAD)} or more{advice}"
        )

    def _window(
        self, lengths: NDArray[np.uint32], first: int, per_entry: int, to_sort: int = 0
    ) -> int:
        """Up to which node lists fit into memory.

        to_sort: bytes for each entry of the lists that are being sorted, one by each thread.
        """
        room = self._memory - _OVERHEAD
        entries = longest = 0
        last = first
        step = 1 << 16
        while last < len(lengths):
            sizes = lengths[last : last + step].astype(np.int64)
            ends = entries + np.cumsum(sizes)
            longests = np.maximum(np.maximum.accumulate(sizes), longest)
            nodes = np.arange(last - first + 1, last - first + 1 + len(sizes))
            bytes_ = ends * per_entry + 16 * nodes  # places and counts
            bytes_ += to_sort * np.minimum(ends, self._threads * longests)
            fitting = int(np.searchsorted(bytes_, room, side="right"))
            last += fitting
            if fitting < len(sizes):
                break
            entries, longest = int(ends[-1]), int(longests[-1])
        if last == first:
            self._refuse(int(lengths[first]) * (per_entry + to_sort) + 16)
        return last

    def _fill(self, side: str) -> None:
        work, state = self._work, self._work.state
        lengths = self._lengths(side)
        begun, entries = int(state["node"]), int(state["entries"])
        distinct = int(state.get("distinct", 0))
        sizes = {work.path / f"{side}.neighbours": 4 * entries}
        per_entry = [_ENTRY_BYTES]
        if self._weighted_rows:
            sizes |= {work.path / f"{side}.weights": 4 * entries}
            sizes |= {work.directory / f"{side}.fractions": 4 * entries}
            sizes |= {work.directory / f"{side}.merged": 4 * begun}
            per_entry = [_ENTRY_BYTES + _WEIGHT_BYTES, _SORT_BYTES]
        with work.appending(sizes) as files:
            while begun < len(lengths):
                last = self._window(lengths, begun, *per_entry)
                found, written, fine = self._fill_window(side, lengths, begun, last, files)
                sync(*files)
                begun, entries, distinct = last, entries + written, distinct + found
                work.save(node=begun, entries=entries, distinct=distinct, **self._fine(side, fine))
        sides = list(self._sides)
        if side != sides[-1]:
            work.save(side=sides[sides.index(side) + 1], node=0, entries=0, distinct=0)
            return
        repeated = not self._weighted_rows and 0 < 2 * distinct <= entries
        work.save(stage="merge" if repeated else "seal", merged=self._weighted_rows)

    def _fill_window(
        self, side: str, lengths: NDArray[np.uint32], begun: int, last: int, files: list[Any]
    ) -> tuple[int, int, bool]:
        """Write the lists of some nodes.

        Return how many entries differ, how many were written, and whether any has a fraction. All
        that a window holds is let go before the next: one is as large as memory allows.
        """
        src, dst, weight = self._pairs()
        begin = _starts(lengths[begun:last])
        neighbours = np.empty(int(begin[-1]), dtype=np.uint32)
        weights = None if weight is None else np.empty(int(begin[-1]))
        filled = np.zeros(last - begun, dtype=np.uint32)
        for first in range(0, len(src), _ROWS):
            rows = slice(first, min(first + _ROWS, len(src)))
            _native.fill_lists(
                src[rows],
                dst[rows],
                None if weight is None else weight[rows],
                self._sides[side],
                begun,
                begin,
                neighbours,
                weights,
                filled,
                self._threads,
            )
            what = f"rows, for the lists of nodes {begun:,} to {last - 1:,} of {len(lengths):,}"
            self._report(rows.stop, len(src), what)
        distinct = _native.sort_lists(begin, neighbours, weights, self._threads)
        if weights is None:
            return distinct, _append(files, neighbours), False
        count = _native.merge_lists(begin, neighbours, weights, True, filled)
        fine = self._append_lists(files, begun, filled, neighbours[:count], weights[:count])
        return distinct, count, fine

    def _append_lists(
        self,
        files: list[Any],
        first: int,
        lengths: NDArray[np.uint32],
        neighbours: NDArray[np.uint32],
        weights: NDArray[np.float64],
    ) -> bool:
        """Write lists of the nodes from `first` on; return whether any weight has a fraction."""
        if len(weights) and weights[heaviest := int(weights.argmax())] > WEIGHT_MAX:
            node = first + int(np.searchsorted(np.cumsum(lengths), heaviest, side="right"))
            self._refuse_sum(node, int(neighbours[heaviest]), float(weights[heaviest]))
        fine = _append_weights(files[1:3], weights)
        _append([files[0], files[3]], neighbours, lengths)
        return fine

    def _fine(self, name: str, fine: bool) -> dict[str, list[str]]:
        """Return whose weights have fractions, as the manifest keeps it, with one more window."""
        return {"fine": sorted({*self._work.state["fine"], *([name] if fine else [])})}

    # merge

    def _merge(self) -> None:
        """Write the lists again, with every neighbour once and with a weight."""
        work = self._work
        for side in self._sides:
            lengths = self._lengths(side)
            old = np.memmap(work.path / f"{side}.neighbours", dtype=np.uint32, mode="r")
            names = ("neighbours", "weights", "fractions", "merged")
            begun = place = 0
            with work.appending({work.directory / f"{side}.{name}": 0 for name in names}) as files:
                while begun < len(lengths):
                    last = self._window(lengths, begun, _ENTRY_BYTES + _WEIGHT_BYTES)
                    lists = old[place : place + int(lengths[begun:last].sum(dtype=np.int64))]
                    fine = self._merge_window(lists, begun, lengths[begun:last], files)
                    work.state |= self._fine(side, fine)
                    begun, place = last, place + len(lists)
                    self._report(last, len(lengths), "lists merged")
        # The old lists are replaced last: until then merging can start again.
        work.save(stage="seal", merged=True, moving=True)

    def _merge_window(
        self, old: NDArray[Any], first: int, lengths: NDArray[np.uint32], files: list[Any]
    ) -> bool:
        """Write the lists of the nodes from `first` on, which are `old`; whether with fractions."""
        neighbours = np.array(old)
        weights = np.empty(len(neighbours))
        kept = np.empty(len(lengths), dtype=np.uint32)
        count = _native.merge_lists(_starts(lengths), neighbours, weights, False, kept)
        return self._append_lists(files, first, kept, neighbours[:count], weights[:count])

    # seal

    def _seal(self) -> None:
        work, state = self._work, self._work.state
        if state.get("moving"):
            for side in self._sides:
                for name in ("neighbours", "weights"):
                    if (work.directory / f"{side}.{name}").is_file():
                        put_in_place(
                            work.directory / f"{side}.{name}", work.path / f"{side}.{name}"
                        )
        files = {"selves.nodes", "selves.weights"}
        for of in state["fine"]:
            name = f"{of}.fractions"
            files |= {name}
            if (work.directory / name).is_file():
                put_in_place(work.directory / name, work.path / name)
        if state["named"] is not None:
            files |= set(self._place_names(state["named"], int(state["nodes"])))
        entries = 0
        for side in self._sides:
            kept = work.directory / f"{side}.merged"
            lengths = np.fromfile(kept, dtype=np.uint32) if state["merged"] else self._lengths(side)
            entries += self._write_offsets(side, lengths)
            files |= {f"{side}.offsets", f"{side}.neighbours"}
            files |= {f"{side}.weights"} if state["merged"] else set()
        selves = (work.path / "selves.nodes").stat().st_size // 4
        described: dict[str, Any] = {}
        for done, name in enumerate(sorted(files)):
            path = work.path / name
            self._report(done, len(files), "files under digests")
            described[name] = {"bytes": path.stat().st_size, "digests": file_digests(path)}
        distinct = int(state["distinct"])
        directed = bool(work.order["directed"])
        body = {
            "nodes": state["nodes"],
            "edges": (distinct if directed else distinct // 2) + selves,
            "entries": entries,
            "directed": directed,
            "weighted": bool(state["merged"]),
            "files": described,
            **({} if state["named"] is None else {"names": state["named"]}),
        }
        write_header(work.path, body)
        shutil.rmtree(work.directory)

    def _place_names(self, kind: Kind, nodes: int) -> tuple[str, ...]:
        """Move the files of names and of their order into the graph; return their names."""
        directory, names = self._work.directory, files_of(kind)
        if (directory / names[0]).is_file():  # which is moved first
            if ORDER_BYTES * nodes + _OVERHEAD > self._memory:
                self._refuse(ORDER_BYTES * nodes)
            self._report(0, nodes, "names sorted")
            StoredNames(directory, kind, nodes).sort()
        for name in names:
            if (directory / name).is_file():
                put_in_place(directory / name, self._work.path / name)
        return names

    def _write_offsets(self, side: str, lengths: NDArray[np.uint32]) -> int:
        total, step = 0, 1 << 20
        with (self._work.path / f"{side}.offsets").open("wb") as file:
            file.write(np.zeros(1, dtype=np.uint64).data)
            for first in range(0, len(lengths), step):
                ends = total + np.cumsum(lengths[first : first + step], dtype=np.uint64)
                file.write(np.ascontiguousarray(ends, dtype=np.uint64).data)
                total = int(ends[-1])
            sync(file)
        return total


class _OtherIds(Exception):
    """Raised when ids are not of the kind they were read as, with the kind to number them as."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.kind = kind


def _of_kind(ids: Any, kind: Kind) -> Any:
    """Return a column of ids as `Naming` takes them: int64, or text, numbers converted."""
    import pyarrow as pa

    if kind == "texts":
        return ids if is_arrow(ids) else pa.array(ids).cast(pa.string())
    if is_arrow(ids) or (len(ids) and int(ids.max()) >= 2**63):
        raise _OtherIds("texts")
    return ids.astype(np.int64)


def _names_of(naming: Naming | None) -> dict[str, int]:
    """Return what the manifest records about the names so far."""
    return {} if naming is None else {"names": len(naming), "text_bytes": naming.text_bytes}


def _append(files: list[Any], *parts: NDArray[Any]) -> int:
    """Append one part to each file; return the length of the first."""
    for file, part in zip(files, parts, strict=True):
        file.write(part.data)
    return len(parts[0])


def _append_weights(files: list[Any], weights: NDArray[np.float64]) -> bool:
    """Write weights and fractions to the ends of two files; return whether any fraction is not 0.

    Where all are, nothing is written in the place of fractions but a hole, which takes no disk.
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


def _starts(lengths: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return where each list begins, followed by where the last ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.uint64)
    np.cumsum(lengths, dtype=np.uint64, out=starts[1:])
    return starts


class _ParquetEdges:
    """A Parquet file of which only ids and weights are read, by row group."""

    _GROUPS = 16  # between two points at which an interrupted build can resume

    def __init__(self, path: Path, file: Any, names: list[str], rows: int) -> None:
        self._path, self._file, self._names, self._rows_at_once = path, file, names, rows

    @classmethod
    def of(cls, path: Path, src: str, dst: str, weight: str | None) -> _ParquetEdges | None:
        """Return the file, or None if it is not Parquet or lacks such columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # Row groups may be large: without pre-buffering only the pages in use are in memory.
            file = pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES)
        except (pa.ArrowInvalid, OSError):
            return None
        schema = file.schema_arrow
        names = [src, dst] + ([weight] if weight is not None else [])
        if not all(name in schema.names for name in names):
            return None
        kinds = [schema.field(name).type for name in names]
        kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
        numbers = [pa.types.is_integer(kind) for kind in kinds]
        texts = [
            not number and is_text(pa.array([], kind))
            for number, kind in zip(numbers[:2], kinds[:2], strict=True)
        ]
        if not all(text or number for text, number in zip(texts, numbers[:2], strict=True)):
            return None
        if weight is not None and not (numbers[2] or pa.types.is_floating(kinds[2])):
            return None
        return cls(path, file, names, _TEXT_ROWS if any(texts) else _READ_ROWS)

    def groups(self, begin: int) -> Iterator[tuple[int | None, list[Any], tuple[int, int]]]:
        metadata = self._file.metadata
        ends = np.cumsum([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)])
        done = int(ends[begin - 1]) if begin else 0
        for group in range(begin, len(ends)):
            is_point = group + 1 == len(ends) or (group + 1) % self._GROUPS == 0
            for columns in self._rows(group):
                if len(columns) > 2:
                    columns[2] = self._checked(columns[2], done)
                done += len(columns[0])
                point = group + 1 if is_point and done == ends[group] else None
                yield point, columns, (done, int(ends[-1]))

    def _rows(self, group: int) -> Iterator[list[Any]]:
        """Yield the columns of a row group, which may be larger than memory, in pieces."""
        import pyarrow as pa

        try:
            for batch in self._file.iter_batches(
                self._rows_at_once, row_groups=[group], columns=self._names, use_threads=False
            ):
                columns = []
                for name in self._names:
                    column = batch[name]
                    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
                        column = plain_column(column)
                    if column.null_count:
                        raise DataError(f"column {name} has rows without a value; leave them out")
                    columns.append(column if is_text(column) else column.to_numpy())
                yield columns
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{self._path} cannot be read as parquet: {error}") from error

    def _checked(self, weights: NDArray[Any], first: int) -> NDArray[np.float64]:
        """Return the weights of the rows from `first` on; refuse what the engine cannot take."""
        values = weights.astype(np.float64)
        taken = (values >= WEIGHT_MIN) & (values <= WEIGHT_MAX)  # NaN is not
        if not taken.all():
            row = int(taken.argmin())
            raise DataError(
                f"{self._path}, row {first + row} (counted from 0): {self._names[2]} is"
                f" {values[row]:g}; {WEIGHT_RANGE}: use another unit, or leave out such rows"
            )
        return values
