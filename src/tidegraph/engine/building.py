"""Compact graphs from tables of edges, in bounded memory; an interrupted build resumes."""

from __future__ import annotations

import os
import shutil
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
    VERSION,
    CompactGraph,
    file_digests,
    memory_bytes,
    open_graph,
    resumable,
    write_header,
)
from tidegraph.engine.spooling import MAX_NODES, Work, append, append_weights, spool
from tidegraph.events.columns import WEIGHT_MAX
from tidegraph.events.datasets import storage
from tidegraph.events.stored_names import ORDER_BYTES, StoredNames, files_of
from tidegraph.events.tables.numbering import Ids

_STAGES = 3  # of what an unfinished build has left
_ROWS = 1 << 24  # pairs handed to the core at once
_ENTRY_BYTES, _WEIGHT_BYTES = 4, 8  # of a list in memory
_SORT_BYTES = 16  # for each entry of a list with weights while it is sorted
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
    if nodes is not None and not 0 < nodes <= MAX_NODES:
        raise ParameterError(f"nodes is {nodes}; give 1 to {MAX_NODES}")
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
    target, room = Path(path), memory_bytes(memory)
    with resumable(target, memory):
        if (target / HEADER).exists():
            raise StorageError(f"{path} holds a graph already; give a new directory")
        work = Work(target, table, order, memory=room, threads=threads, progress=progress)
        return _Build(work).run()


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

    def __init__(self, work: Work) -> None:
        self._work = work
        self._sides = (
            {"sources": _DST, "targets": _SRC} if work.order["directed"] else {"sources": _BOTH}
        )

    def run(self) -> CompactGraph:
        state = self._work.state
        if state["stage"] == "read":
            spool(self._work)
        for side in self._sides:
            if state["stage"] == "lists" and state["side"] == side:
                self._fill(side)
        if state["stage"] == "merge":
            self._merge()
        self._seal()
        return open_graph(self._work.path)

    # lists

    def _lengths(self, side: str) -> NDArray[np.uint32]:
        """Return how many entries the list of each node has, repetitions included."""
        work, nodes = self._work, int(self._work.state["nodes"])
        path = work.directory / f"{side}.lengths"
        if not path.is_file():
            src, dst, _ = work.rows()
            auto = work.order["nodes"] is None and work.state["named"] is None
            sparse = auto and 4 * len(src) < nodes
            work.require_memory(4 * nodes, ", or ids='number': most ids do not occur" * sparse)
            lengths = np.zeros(nodes, dtype=np.uint32)
            for first in range(0, len(src), _ROWS):
                last = min(first + _ROWS, len(src))
                _native.count_entries(
                    src[first:last], dst[first:last], self._sides[side], lengths, work.threads
                )
                work.report(last, len(src), "rows counted")
            replace_file(path, lambda file: file.write(lengths.data), only_writer=True)
        return np.asarray(np.memmap(path, dtype=np.uint32, mode="r"))

    def _window(
        self, lengths: NDArray[np.uint32], first: int, per_entry: int, to_sort: int = 0
    ) -> int:
        """Return up to which node lists fit into memory.

        to_sort: bytes for each entry of the lists that are being sorted, one by each thread.
        """
        entries, longest, last, step = 0, 0, first, 1 << 16
        while last < len(lengths):
            sizes = lengths[last : last + step].astype(np.int64)
            ends = entries + np.cumsum(sizes)
            longests = np.maximum(np.maximum.accumulate(sizes), longest)
            nodes = np.arange(last - first + 1, last - first + 1 + len(sizes))
            bytes_ = ends * per_entry + 16 * nodes  # places and counts
            bytes_ += to_sort * np.minimum(ends, self._work.threads * longests)
            fitting = int(np.searchsorted(bytes_, self._work.room, side="right"))
            last += fitting
            if fitting < len(sizes):
                break
            entries, longest = int(ends[-1]), int(longests[-1])
        if last == first:
            self._work.require_memory(int(lengths[first]) * (per_entry + to_sort) + 16)
        return last

    def _fill(self, side: str) -> None:
        work, state = self._work, self._work.state
        lengths = self._lengths(side)
        begun, entries = int(state["node"]), int(state["entries"])
        distinct = int(state.get("distinct", 0))
        sizes = {work.path / f"{side}.neighbours": 4 * entries}
        per_entry = [_ENTRY_BYTES]
        if work.weighted:
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
        repeated = not work.weighted and 0 < 2 * distinct <= entries
        work.save(stage="merge" if repeated else "seal", merged=work.weighted)

    def _fill_window(
        self, side: str, lengths: NDArray[np.uint32], begun: int, last: int, files: list[Any]
    ) -> tuple[int, int, bool]:
        """Write the lists of some nodes.

        Return how many entries differ, how many were written, and whether any has a fraction. All
        that a window holds is let go before the next: one is as large as memory allows.
        """
        work = self._work
        src, dst, weight = work.rows()
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
                work.threads,
            )
            what = f"rows, for the lists of nodes {begun:,} to {last - 1:,} of {len(lengths):,}"
            work.report(rows.stop, len(src), what)
        distinct = _native.sort_lists(begin, neighbours, weights, work.threads)
        if weights is None:
            return distinct, append(files, neighbours), False
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
            self._work.reject_edge(node, int(neighbours[heaviest]), float(weights[heaviest]))
        fine = append_weights(files[1:3], weights)
        append([files[0], files[3]], neighbours, lengths)
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
                    work.report(last, len(lengths), "lists merged")
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
        work, state, sides = self._work, self._work.state, self._sides
        parts = ("offsets", "neighbours", *(["weights"] if state["merged"] else []))
        files = ["selves.nodes", "selves.weights", *(f"{of}.fractions" for of in state["fine"])]
        files += [f"{side}.{part}" for side in sides for part in parts]
        files += self._sort_names()
        files.sort()
        for name in files:
            if (work.directory / name).is_file():
                put_in_place(work.directory / name, work.path / name)
        entries = 0
        for side in sides:
            kept = work.directory / f"{side}.merged"
            lengths = np.fromfile(kept, dtype=np.uint32) if state["merged"] else self._lengths(side)
            entries += self._write_offsets(side, lengths)
        described: dict[str, Any] = {}
        for done, name in enumerate(files):
            path = work.path / name
            work.report(done, len(files), "files under digests")
            described[name] = {"bytes": path.stat().st_size, "digests": file_digests(path)}
        distinct, directed = int(state["distinct"]), bool(work.order["directed"])
        body = {
            "nodes": state["nodes"],
            "edges": (distinct if directed else distinct // 2)
            + described["selves.nodes"]["bytes"] // 4,
            "entries": entries,
            "directed": directed,
            "weighted": bool(state["merged"]),
            "files": described,
            **({} if state["named"] is None else {"names": state["named"]}),
        }
        write_header(work.path, body)
        shutil.rmtree(work.directory)

    def _sort_names(self) -> tuple[str, ...]:
        """Write the order of names, if nodes have any; return the files of both."""
        work, kind, nodes = self._work, self._work.state["named"], int(self._work.state["nodes"])
        if kind is None:
            return ()
        names = files_of(kind)
        if (work.directory / names[0]).is_file():  # which is moved first
            work.require_memory(ORDER_BYTES * nodes)
            work.report(0, nodes, "names sorted")
            StoredNames(work.directory, kind, nodes).sort()
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


def _starts(lengths: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return where each list begins, followed by where the last ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.uint64)
    np.cumsum(lengths, dtype=np.uint64, out=starts[1:])
    return starts
