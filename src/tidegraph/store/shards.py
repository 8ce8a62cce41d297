"""Trajectories in shards: ranges of columns, recorded one by one here or in parallel on a cluster.

Columns do not depend on each other, so every shard is a complete recording with its own copy of the
graph. Shards exchange nothing, and recording one at a time needs the memory of one.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.core.resume import make_directory, require_free, require_same
from tidegraph.core.statefile import digest
from tidegraph.core.workers import Engine, check_engine, run
from tidegraph.engine.channels import EngineSettings, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import EventStream
from tidegraph.store.manifest import MANIFEST, StoreManifest, read_sealed, write_sealed
from tidegraph.store.queries import Queries, Times
from tidegraph.store.recording import SEGMENT_BYTES
from tidegraph.store.segments import Layout, StoreDtype
from tidegraph.store.trajectories import ChangeKind, Trajectories, change_kind, record

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float32]

_FORMAT = "tidegraph shards"
_VERSION = 1
_SHARDS = "shards.json"


# The list of shards -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shard:
    """A range of columns and the store that holds them."""

    name: str
    first: int
    columns: int
    digest: str | None = None  # of its store's manifest, once all shards are recorded


@dataclass(frozen=True)
class _ShardList:
    """What was recorded, and how its columns are divided."""

    settings: dict[str, Any]
    features: dict[str, Any]  # the sketch, or the digest of a matrix
    events: str  # digest
    epsilon: float
    dtype: str
    shards: tuple[_Shard, ...]

    @property
    def complete(self) -> bool:
        return all(shard.digest is not None for shard in self.shards)

    def write(self, directory: Path) -> None:
        write_sealed(directory / _SHARDS, _FORMAT, _VERSION, dataclasses.asdict(self))

    @classmethod
    def read(cls, directory: Path) -> _ShardList:
        body = read_sealed(directory / _SHARDS, _FORMAT, _VERSION)
        body["shards"] = tuple(_Shard(**shard) for shard in body["shards"])
        return cls(**body)

    def inputs(self) -> dict[str, Any]:
        """Return all that the stores of the shards depend on."""
        return {**vars(self), "shards": len(self.shards)}

    def resume_or_create(self, directory: Path) -> _ShardList:
        """Return the list in the directory, if it has the same inputs, or write this one."""
        words: dict[str, Any] = {"kind": "a store in shards", "error": ParameterError}
        if (directory / _SHARDS).exists():
            found = _ShardList.read(directory)
            advice = "give the same, or another path"
            require_same(directory, found.inputs(), self.inputs(), advice=advice, **words)
            return found
        make_directory(directory)
        require_free(directory, **words)
        self.write(directory)
        return self


def _store_digest(store: Path) -> str:
    return digest([(store / MANIFEST).read_bytes()])


def _is_recorded(directory: Path, shard: _Shard) -> bool:
    """Return whether the store of a shard is there as it was finished."""
    try:
        return shard.digest is not None and _store_digest(directory / shard.name) == shard.digest
    except OSError:
        return False


def _divided(columns: int, shards: int) -> Iterator[_Shard]:
    """Yield ranges of columns whose lengths differ by at most one, the longer ones first."""
    first = 0
    for number in range(shards):
        width = columns // shards + (number < columns % shards)
        yield _Shard(f"shard-{number:03d}", first, width)
        first += width


# Recording ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Common:
    """What all shards are recorded from, and how."""

    events: EventStream | Path
    features: Sketch | NDArray[Any]
    settings: EngineSettings
    directory: Path
    options: dict[str, Any]  # of `record`
    threads: int | None


def record_shards(
    events: EventStream | str | os.PathLike[str],
    features: Sketch | ArrayLike,
    path: str | os.PathLike[str],
    *,
    shards: int,
    settings: EngineSettings | None = None,
    epsilon: float = 0.05,
    dtype: StoreDtype = "float32",
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    checkpoint_every_s: float = 60.0,
    segment_bytes: int = SEGMENT_BYTES,
) -> ShardedTrajectories:
    """Record the trajectories of all nodes, with the columns divided into `shards` ranges.

    `record` writes each shard to its own directory, from a propagator with those columns only: one
    after the other in this process ("local"), or on the workers of a Ray cluster, with the same
    bytes. Each shard decides on its own columns when a node gets a record. After a crash, or when a
    worker died, call it again: shards resume from their last checkpoints, finished ones are reused.

    events: a stream, or the path of a saved one that every machine can read.
    path: a directory that every machine sees, created if it does not exist.
    address, workers: of the Ray cluster; see `tidegraph.core.workers.run`.
    threads: of each shard; by default all cores here, and one on a cluster.
    checkpoint_every_s, segment_bytes: of each shard; see `record`.

    >>> import tempfile
    >>> stream = EventStream(src=[0, 1], dst=[1, 2], t=[5, 9], nodes=3)
    >>> with tempfile.TemporaryDirectory() as path:
    ...     store = record_shards(stream, Sketch(5), path, shards=2)
    ...     store.state([2], [10]).shape
    (1, 1, 5)
    """
    check_engine(engine, address, workers)
    stream = events if isinstance(events, EventStream) else EventStream.load(Path(events))
    settings = EngineSettings() if settings is None else settings
    matrix = features if isinstance(features, Sketch) else np.asarray(features)
    if not isinstance(matrix, Sketch) and matrix.ndim != 2:
        raise ParameterError(f"features have shape {matrix.shape}; give [nodes, columns]")
    columns = matrix.columns if isinstance(matrix, Sketch) else matrix.shape[1]
    if isinstance(shards, bool) or not 1 <= shards <= columns:
        raise ParameterError(
            f"shards is {shards!r}; give a number from 1 to the number of columns, {columns}"
        )
    layout = Layout(len(settings.channels), columns, dtype)
    directory = Path(path)
    listed = _ShardList(
        settings=json.loads(json.dumps(dataclasses.asdict(settings))),
        features=_described(matrix),
        events=stream.digest(),
        epsilon=float(epsilon),
        dtype=layout.dtype,
        shards=tuple(_divided(columns, shards)),
    ).resume_or_create(directory)
    missing = {shard.name: shard for shard in listed.shards if not _is_recorded(directory, shard)}
    if missing:
        common = _Common(
            stream if isinstance(events, EventStream) else Path(events).absolute(),
            matrix,
            settings,
            directory.absolute(),
            {
                "epsilon": epsilon,
                "dtype": dtype,
                "checkpoint_every_s": checkpoint_every_s,
                "segment_bytes": segment_bytes,
            },
            threads if engine == "local" else threads or 1,
        )
        digests = run(
            _record_shard,
            common,
            missing,
            directory,
            engine=engine,
            address=address,
            workers=workers,
            cores=threads or 1,
            progress=progress,
        )
        finished = tuple(
            dataclasses.replace(shard, digest=digests.get(shard.name, shard.digest))
            for shard in listed.shards
        )
        dataclasses.replace(listed, shards=finished).write(directory)
    return ShardedTrajectories.open(directory)


def _described(features: Sketch | NDArray[Any]) -> dict[str, Any]:
    if isinstance(features, Sketch):
        return {"sketch": dataclasses.asdict(features)}
    return {"digest": digest([features]), "dtype": str(features.dtype)}


def _record_shard(common: _Common, shard: _Shard, progress: Progress) -> str:
    """Record one shard, or what is missing of it; return the digest of its manifest."""
    events = common.events
    stream = events if isinstance(events, EventStream) else EventStream.load(events)
    features: Sketch | NDArray[Any] = (
        common.features.part(shard.first, shard.columns)
        if isinstance(common.features, Sketch)
        else np.ascontiguousarray(common.features[:, shard.first : shard.first + shard.columns])
    )
    edges, initial = stream.initial, None
    if edges is not None:  # these have no times: they count as of the first event
        begin = int(stream.t[0]) if len(stream) else None
        initial = Batch(src=edges.src, dst=edges.dst, weight=edges.weight, t=begin)
    propagator = Propagator(
        features,
        nodes=stream.nodes,
        threads=common.threads,
        initial=initial,
        **vars(common.settings),
    )
    store = common.directory / shard.name
    record(stream, propagator, store, progress=progress, **common.options)
    return _store_digest(store)


# Reading ------------------------------------------------------------------------------------------


class ShardedTrajectories(Queries):
    """The stores of all shards as one store with all columns, queried like `Trajectories`.

    Nothing is loaded; a query reads what it needs from every shard. A node has changed whenever a
    shard has a record of it; the columns of the other shards then keep their last state.
    """

    def __init__(self, directory: Path, listed: _ShardList, stores: list[Trajectories]) -> None:
        super().__init__(directory)
        self._list = listed
        self._stores = stores

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, verify: bool = False, threads: int | None = None
    ) -> ShardedTrajectories:
        """Open what `record_shards` wrote; with `verify`, compare every byte with its digest."""
        directory = Path(path)
        listed = _ShardList.read(directory)
        if not listed.complete:
            raise StateFileError(
                f"{directory} is not finished; repeat what was recording it to resume"
            )
        stores = []
        for shard in listed.shards:
            store = directory / shard.name
            if not _is_recorded(directory, shard):
                raise StateFileError(
                    f"{store} is missing or was changed after it was recorded; copy it again, or"
                    " delete it and repeat what recorded it"
                )
            stores.append(Trajectories.open(store, verify=verify, threads=threads))
        return cls(directory, listed, stores)

    def _columns_of(self) -> Iterator[tuple[Trajectories, slice]]:
        for store, shard in zip(self._stores, self._list.shards, strict=True):
            yield store, slice(shard.first, shard.first + shard.columns)

    # Queries --------------------------------------------------------------------------------------

    def state(self, nodes: ArrayLike, times: Times, *, out: FloatArray | None = None) -> FloatArray:
        """Return the states `[B, channels, columns]`; see `Trajectories.state`."""
        numbers, before = self._resolve(nodes, times)
        for store, columns in self._columns_of():
            part = store.state(numbers, before)
            shape = (len(part), len(self.channels), self.columns)
            out = np.empty(shape, np.float32) if out is None else out
            if out.shape != shape:
                raise ParameterError(f"out has shape {out.shape}; give {shape}")
            out[:, :, columns] = part
        assert out is not None  # there is at least one shard
        return out

    def window(
        self, nodes: ArrayLike, times: Times, k: int, g: ChangeKind = "difference"
    ) -> tuple[FloatArray, IntArray, NDArray[np.bool_]]:
        """Return the `k` latest changes in any shard; see `Trajectories.window`."""
        change_kind(g)
        numbers, before = self._resolve(nodes, times)
        found = [store.window(numbers, before, k, "l2") for store in self._stores]
        dt, mask = _latest([(elapsed, known) for _, elapsed, known in found], k)
        # A state stays the same between changes: the one before a change is the one after the last.
        moments = before[:, None] - dt
        after = np.where(mask, moments + 1, before[:, None])
        asked = np.concatenate([moments[:, :1], after], axis=1)
        states = self.state(np.repeat(numbers, k + 1), asked.ravel()).reshape(
            len(numbers), k + 1, len(self.channels), self.columns
        )
        first = mask.argmax(axis=1)  # no column holds the state before the first change
        rows = np.flatnonzero(mask.any(axis=1) & (first > 0))
        states[rows, first[rows]] = self.state(numbers[rows], moments[rows, first[rows]])
        delta = _change(states[:, :-1], states[:, 1:], g)
        delta[~mask] = 0
        return delta, dt, mask

    def changes(self, node: int | str) -> tuple[IntArray, FloatArray]:
        """Return the states at every time any shard has a record of; see `Trajectories.changes`."""
        number = self._one_node(node)
        parts = [store.changes(number) for store in self._stores]
        times = np.unique(np.concatenate([times for times, _ in parts]))
        states = np.empty((len(times), len(self.channels), self.columns), np.float32)
        for (known, rows), (_, columns) in zip(parts, self._columns_of(), strict=True):
            states[:, :, columns] = rows[np.searchsorted(known, times, side="right") - 1]
        return times, states

    def bound(self, nodes: ArrayLike, times: Times) -> NDArray[np.float64]:
        """Return the bounds over the columns of all shards; see `Trajectories.bound`."""
        numbers, before = self._resolve(nodes, times)
        parts = [store.bound(numbers, before) for store in self._stores]
        bounds: NDArray[np.float64] = np.sqrt(np.sum(np.square(parts), axis=0))
        return bounds

    # Properties -----------------------------------------------------------------------------------

    @property
    def shards(self) -> tuple[Trajectories, ...]:
        """The store of each range of columns."""
        return tuple(self._stores)

    @property
    def names(self) -> NodeNames | None:
        return self._stores[0].names

    @property
    def _manifests(self) -> tuple[StoreManifest, ...]:
        return tuple(store._view[0] for store in self._stores)


def _latest(
    parts: list[tuple[IntArray, NDArray[np.bool_]]], k: int
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the `k` shortest distinct elapsed times of each row, newest last, and their mask.

    The `k` latest changes of all shards are among the `k` latest of each.
    """
    never = np.iinfo(np.int64).max
    elapsed = np.concatenate([np.where(known, dt, never) for dt, known in parts], axis=1)
    elapsed.sort(axis=1)
    elapsed[:, 1:][elapsed[:, 1:] == elapsed[:, :-1]] = never
    elapsed.sort(axis=1)
    newest = elapsed[:, :k][:, ::-1]
    mask = newest != never
    return np.where(mask, newest, 0), mask


def _change(before: FloatArray, after: FloatArray, g: ChangeKind) -> FloatArray:
    """Return changes as `Trajectories.window` defines them, `[B, k, channels(, columns)]`."""
    if g == "difference":
        return after - before
    if g == "l2":
        return np.linalg.norm(after - before, axis=-1)  # type: ignore[no-any-return]
    norms = np.linalg.norm(before, axis=-1), np.linalg.norm(after, axis=-1)
    product = np.einsum("bkcd,bkcd->bkc", before, after)
    one, other = norms[0] > 0, norms[1] > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = 1 - product / (norms[0] * norms[1])
    changed: FloatArray = np.where(one & other, apart, (one | other).astype(np.float32))
    return changed.astype(np.float32)
