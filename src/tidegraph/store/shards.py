"""Trajectories recorded in shards: ranges of columns, in passes here or side by side on a cluster.

Columns do not depend on each other, so a shard is a whole recording of its own, with its own copy
of the graph: nothing is exchanged between shards, and a pass needs the memory of one of them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.durable import not_written, replace_file
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.core.workers import Engine, check_engine, run
from tidegraph.engine.channels import Channel, EngineSettings, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import EventStream
from tidegraph.store.segments import StoreDtype, as_bytes, digest
from tidegraph.store.trajectories import ChangeKind, Trajectories, record
from tidegraph.store.writer import SEGMENT_BYTES

__all__ = ["ShardedTrajectories", "record_shards"]

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float32]

_FORMAT = "tidegraph shards"
_VERSION = 1
_MANIFEST = "shards.json"


# The manifest -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shard:
    """A range of columns and the store that holds them."""

    name: str
    first: int
    columns: int
    digest: str | None = None  # of the manifest of its store, once all are recorded


@dataclass(frozen=True)
class _Manifest:
    """What was divided, and how."""

    settings: dict[str, Any]
    features: dict[str, Any]  # a sketch in words, or the digest of a matrix
    events: str  # digest
    epsilon: float
    dtype: str
    shards: tuple[_Shard, ...]

    @property
    def complete(self) -> bool:
        return all(shard.digest is not None for shard in self.shards)

    def write(self, directory: Path) -> None:
        body = {"format": _FORMAT, "version": _VERSION, **dataclasses.asdict(self)}
        body["digest"] = _digest(body)
        text = json.dumps(body, indent=1).encode()
        replace_file(directory / _MANIFEST, lambda file: file.write(text))

    @classmethod
    def read(cls, directory: Path) -> _Manifest:
        path = directory / _MANIFEST
        try:
            body = json.loads(path.read_bytes())
        except OSError as error:
            raise StateFileError(f"{directory} holds no shards: cannot read {path}") from error
        except ValueError:
            body = None
        if not isinstance(body, dict) or body.pop("format", None) != _FORMAT:
            raise StateFileError(f"{path} is not a list of shards, or is damaged")
        version, written = body.pop("version", None), body.pop("digest", None)
        if version != _VERSION:
            raise StateFileError(
                f"{path} has format version {version}; this release reads version {_VERSION}"
            )
        if written != _digest({"format": _FORMAT, "version": version, **body}):
            raise StateFileError(f"{path} was altered: it does not match its digest")
        body["shards"] = tuple(_Shard(**shard) for shard in body["shards"])
        return cls(**body)

    def undone(self) -> _Manifest:
        """As it was before anything was recorded."""
        shards = (dataclasses.replace(shard, digest=None) for shard in self.shards)
        return dataclasses.replace(self, shards=tuple(shards))


def _digest(body: dict[str, Any]) -> str:
    return digest(json.dumps(body, sort_keys=True).encode())


def _store_digest(store: Path) -> str:
    return digest((store / "manifest.json").read_bytes())


def _is_recorded(directory: Path, shard: _Shard) -> bool:
    """Whether the store of a shard is there as it was finished."""
    try:
        return shard.digest is not None and _store_digest(directory / shard.name) == shard.digest
    except OSError:
        return False


def _divided(columns: int, shards: int) -> Iterator[_Shard]:
    """Ranges of columns whose lengths differ by one at most, the longer ones first."""
    first = 0
    for number in range(shards):
        width = columns // shards + (number < columns % shards)
        yield _Shard(f"shard-{number:03d}", first, width)
        first += width


# Recording ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Common:
    """What all shards are recorded from."""

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
    """The trajectories of all nodes, their columns divided into `shards` ranges.

    Each shard is recorded by `record` into a directory of its own, from a propagator that has those
    columns alone: one after the other in this process ("local"), or by workers of a Ray cluster,
    with the same bytes. A shard is its own judge of what is worth a record. A run that ended early,
    or a worker that died, goes on from the last checkpoint of each shard; what is finished is kept.

    events: a stream, or the path of a saved one that every machine can read.
    path: a directory, made where absent, that every machine sees.
    address, workers: of the Ray cluster; see `tidegraph.core.workers.run`.
    threads: of each shard; by default all cores here and one on a cluster, where shards fill them.
    checkpoint_every_s, segment_bytes: of each shard; see `record`.

    >>> import tempfile
    >>> stream = EventStream.from_arrays(src=[0, 1], dst=[1, 2], t=[5, 9], nodes=3)
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
            f"shards is {shards!r}; give a number from 1 to that of the columns, {columns}"
        )
    if dtype not in get_args(StoreDtype):
        raise ParameterError(f"dtype is {dtype!r}; give 'float32' or 'float16'")
    directory = Path(path)
    manifest = _taken_up(
        directory,
        _Manifest(
            settings=json.loads(json.dumps(dataclasses.asdict(settings))),
            features=_described(matrix),
            events=stream.digest(),
            epsilon=float(epsilon),
            dtype=dtype,
            shards=tuple(_divided(columns, shards)),
        ),
    )
    missing = {shard.name: shard for shard in manifest.shards if not _is_recorded(directory, shard)}
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
            for shard in manifest.shards
        )
        dataclasses.replace(manifest, shards=finished).write(directory)
    return ShardedTrajectories.open(directory)


def _described(features: Sketch | NDArray[Any]) -> dict[str, Any]:
    if isinstance(features, Sketch):
        return {"sketch": dataclasses.asdict(features)}
    return {"digest": digest(as_bytes(features)), "dtype": str(features.dtype)}


def _taken_up(directory: Path, wanted: _Manifest) -> _Manifest:
    """The manifest of the directory: a new one, or that of an earlier run like this one."""
    if (directory / _MANIFEST).exists():
        found = _Manifest.read(directory)
        if found.undone() != wanted:
            other = next(
                field.name
                for field in dataclasses.fields(wanted)
                if getattr(found.undone(), field.name) != getattr(wanted, field.name)
            )
            raise ParameterError(
                f"{directory} was begun with other {other}; repeat what was given then, or give"
                " another path"
            )
        return found
    try:
        directory.mkdir(parents=True, exist_ok=True)
        strangers = [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise not_written(directory, error) from error
    if strangers:
        raise ParameterError(
            f"{directory} holds {strangers[0]} and no shards; give an empty or a new directory"
        )
    wanted.write(directory)
    return wanted


def _record_shard(common: _Common, shard: _Shard, progress: Progress) -> str:
    """Records one shard, or what is missing of it; the digest of its manifest."""
    events = common.events
    stream = events if isinstance(events, EventStream) else EventStream.load(events)
    features: Sketch | NDArray[Any] = (
        common.features.part(shard.first, shard.columns)
        if isinstance(common.features, Sketch)
        else np.ascontiguousarray(common.features[:, shard.first : shard.first + shard.columns])
    )
    edges, initial = stream.initial, None
    if edges is not None:  # it has no times of its own: it counts as of the first event
        begin = int(stream.t[0]) if len(stream) else None
        initial = Batch(src=edges.src, dst=edges.dst, weight=edges.weight, t=begin)
    propagator = Propagator(
        features,
        nodes=stream.nodes,
        threads=common.threads,
        initial=initial,
        **{
            field.name: getattr(common.settings, field.name)
            for field in dataclasses.fields(EngineSettings)
        },
    )
    store = common.directory / shard.name
    record(stream, propagator, store, progress=progress, **common.options)
    return _store_digest(store)


# Reading ------------------------------------------------------------------------------------------


class ShardedTrajectories:
    """The stores of all shards as one: columns side by side, asked as `Trajectories` is.

    Nothing is loaded; a question reads what it asks for from every shard. A node has changed where
    any shard has a record of it: of those that have none the last one stands.
    """

    def __init__(self, directory: Path, manifest: _Manifest, stores: list[Trajectories]) -> None:
        self._directory = directory
        self._manifest = manifest
        self._stores = stores

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, verify: bool = False, threads: int | None = None
    ) -> ShardedTrajectories:
        """What `record_shards` wrote; with `verify` every byte is compared with its digest."""
        directory = Path(path)
        manifest = _Manifest.read(directory)
        if not manifest.complete:
            raise StateFileError(
                f"{directory} is not finished; repeat what was recording it, and it goes on"
            )
        stores = []
        for shard in manifest.shards:
            store = directory / shard.name
            if not _is_recorded(directory, shard):
                raise StateFileError(
                    f"{store} is missing or not as it was recorded; copy it again, or delete it and"
                    " repeat what recorded it"
                )
            stores.append(Trajectories.open(store, verify=verify, threads=threads))
        return cls(directory, manifest, stores)

    def _columns_of(self) -> Iterator[tuple[Trajectories, slice]]:
        for store, shard in zip(self._stores, self._manifest.shards, strict=True):
            yield store, slice(shard.first, shard.first + shard.columns)

    # Questions ------------------------------------------------------------------------------------

    def state(
        self, nodes: ArrayLike, times: ArrayLike, *, out: FloatArray | None = None
    ) -> FloatArray:
        """As `Trajectories.state`: `[B, channels, columns]`."""
        for store, columns in self._columns_of():
            part = store.state(nodes, times)
            if out is None:
                out = np.empty((len(part), len(self.channels), self.columns), np.float32)
            elif out.shape != (len(part), len(self.channels), self.columns):
                raise ParameterError(
                    f"out has shape {out.shape}; give"
                    f" {(len(part), len(self.channels), self.columns)}"
                )
            out[:, :, columns] = part
        assert out is not None  # there is at least one shard
        return out

    def window(
        self, nodes: ArrayLike, times: ArrayLike, k: int, g: ChangeKind = "difference"
    ) -> tuple[FloatArray, IntArray, NDArray[np.bool_]]:
        """As `Trajectories.window`, of the `k` latest changes in any shard."""
        found = [store.window(nodes, times, k, "l2") for store in self._stores]
        dt, mask = _latest([(elapsed, known) for _, elapsed, known in found], k)
        ids = np.atleast_1d(np.asarray(nodes, dtype=np.int64))
        before = np.broadcast_to(np.atleast_1d(np.asarray(times, dtype=np.int64)), ids.shape)
        # Between changes a state stands still: what was before one is what was after the last.
        moments = before[:, None] - dt
        after = np.where(mask, moments + 1, before[:, None])
        asked = np.concatenate([moments[:, :1], after], axis=1)
        states = self.state(np.repeat(ids, k + 1), asked.ravel()).reshape(
            len(ids), k + 1, len(self.channels), self.columns
        )
        first = mask.argmax(axis=1)  # what is before the first change is not in its predecessor
        rows = np.flatnonzero(mask.any(axis=1) & (first > 0))
        states[rows, first[rows]] = self.state(ids[rows], moments[rows, first[rows]])
        delta = _change(states[:, :-1], states[:, 1:], g)
        delta[~mask] = 0
        return delta, dt, mask

    def changes(self, node: int) -> tuple[IntArray, FloatArray]:
        """As `Trajectories.changes`: at every time at which any shard has a record."""
        parts = [store.changes(node) for store in self._stores]
        times = np.unique(np.concatenate([times for times, _ in parts]))
        states = np.empty((len(times), len(self.channels), self.columns), np.float32)
        for (known, rows), (_, columns) in zip(parts, self._columns_of(), strict=True):
            states[:, :, columns] = rows[np.searchsorted(known, times, side="right") - 1]
        return times, states

    def bound(self, nodes: ArrayLike, times: ArrayLike) -> NDArray[np.float64]:
        """As `Trajectories.bound`: over all columns, from the bounds of all shards."""
        parts = [store.bound(nodes, times) for store in self._stores]
        bounds: NDArray[np.float64] = np.sqrt(np.sum(np.square(parts), axis=0))
        return bounds

    # What it is -----------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        return self._directory

    @property
    def shards(self) -> tuple[Trajectories, ...]:
        """The store of each range of columns."""
        return tuple(self._stores)

    @property
    def nodes(self) -> int:
        return self._stores[0].nodes

    @property
    def columns(self) -> int:
        return sum(shard.columns for shard in self._manifest.shards)

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self._stores[0].channels

    @property
    def epsilon(self) -> float:
        return self._manifest.epsilon

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._manifest.dtype)

    @property
    def unit(self) -> str | None:
        return self._stores[0].unit

    @property
    def names(self) -> NodeNames | None:
        return self._stores[0].names

    @property
    def records(self) -> int:
        """How many there are in all shards, the states before any event included."""
        return sum(store.records for store in self._stores)

    @property
    def nbytes(self) -> int:
        """The size of the segments on disk."""
        return sum(store.nbytes for store in self._stores)

    def __repr__(self) -> str:
        return (
            f"ShardedTrajectories({str(self._directory)!r}, shards={len(self._stores)},"
            f" nodes={self.nodes}, columns={self.columns}, dtype={self.dtype})"
        )


def _latest(
    parts: list[tuple[IntArray, NDArray[np.bool_]]], k: int
) -> tuple[IntArray, NDArray[np.bool_]]:
    """The `k` shortest distinct elapsed times of each row, newest last, and which there are.

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
    """What `Trajectories.window` calls a change, `[B, k, channels(, columns)]`."""
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
