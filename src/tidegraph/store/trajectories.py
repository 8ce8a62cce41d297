"""How every node's representation moved: record it once, query any (node, time) later."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import _native
from tidegraph.core.durable import link_or_copy, not_written
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.engine.bridge import thread_count
from tidegraph.engine.channels import is_number
from tidegraph.engine.propagator import Propagator
from tidegraph.events.names import NodeNames
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream
from tidegraph.store.manifest import StoreManifest
from tidegraph.store.queries import Queries, Times
from tidegraph.store.recording import SEGMENT_BYTES, append_to, record_into
from tidegraph.store.segments import PIECE_BYTES, Layout, StoreDtype
from tidegraph.store.writer import Watch

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float32]
ChangeKind: TypeAlias = Literal["difference", "l2", "cosine"]


def record(
    events: EventStream | Steps,
    propagator: Propagator,
    path: str | os.PathLike[str],
    *,
    epsilon: float = 0.05,
    dtype: StoreDtype = "float32",
    resume: bool = True,
    progress: Progress | None = None,
    checkpoint_every_s: float = 60.0,
    segment_bytes: int = SEGMENT_BYTES,
    watch: Watch | None = None,
) -> Trajectories:
    """Apply all events to the propagator and record the trajectories of all nodes.

    A node has a record before the first step. It gets another at every step of which it is an
    endpoint, and whenever in some channel `‖z - last recorded‖ > epsilon·‖z‖` or its promised error
    has grown. A stream is applied in steps of one distinct time each, so a state before `t` does
    not depend on anything at or after `t`. Steps of several times are recorded at their last.

    path: a directory, created if it does not exist. After a crash, call `record` again with the
        same events: it resumes from the last checkpoint, whose state the propagator takes over,
        and ends with the same bytes. `resume=False` rejects a directory that holds a store.
    dtype: "float16" halves the store. Values of any size fit; the rounding, 2^-11 of a value, is
        part of `bound`.
    progress: called now and then as `progress(steps done, steps, text)`.
    checkpoint_every_s: limits the work a crash can cost, apart from the unfinished segment.
    segment_bytes: how much is held in memory before it is written.
    watch: called as `watch(propagator, steps done, nodes touched so far)`, to look at the
        propagator on the way; returns after how many steps it is called again.

    >>> import tempfile
    >>> src, dst, t = np.array([[0, 1], [1, 2], [5, 9]])
    >>> stream = EventStream(src=src, dst=dst, t=t, nodes=3)
    >>> with tempfile.TemporaryDirectory() as path:
    ...     moved = record(stream, Propagator(np.eye(3)), path).changes(2)[0]
    >>> moved[1:].tolist()
    [9]
    """
    layout = Layout(len(propagator.channels), propagator.columns, dtype)
    writing: dict[str, Any] = {
        "progress": progress,
        "checkpoint_every_s": checkpoint_every_s,
        "watch": watch,
    }
    record_into(
        Path(path), events, propagator, epsilon, layout, segment_bytes, resume=resume, **writing
    )
    return Trajectories.open(path, threads=propagator.threads)


def copy_store(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy a store to a new directory.

    Files of a store are replaced, never changed, so both stores share them on one file system.
    Appending to one does not affect the other.
    """
    try:
        shutil.copytree(source, target, copy_function=link_or_copy)
    except shutil.Error as error:  # of several files; the first tells enough
        raise not_written(Path(target), OSError(errno.EIO, str(error.args[0][0][2]))) from error


class Trajectories(Queries):
    """The recorded states of every node, queried for what was known strictly before a time.

    Created by `record` or `Trajectories.open`. The files are mapped and may be larger than memory.
    An object shows the store as of when it was opened or last refreshed, even while this or another
    process appends to it. Any number of threads may query it.

    Nodes may be given by number or name, times as integers in the store's unit or as dates.

    The state at `t` is the one after the last step before `t`. That step also determines windows
    and decay: edges that expired between it and `t` still count.

    >>> import tempfile
    >>> stream = EventStream(
    ...     src=[0, 1], dst=[1, 2], t=[0, 86_400], names=["ann", "bob", "eve"]
    ... )
    >>> with tempfile.TemporaryDirectory() as path:
    ...     store = record(stream, Propagator(np.eye(3)), path)
    ...     before = store.frame("1970-01-02")  # eve has not met anybody yet
    >>> before[0].loc["eve"].round(1).tolist()
    [0.0, 0.0, 1.0]
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool, threads: int) -> None:
        super().__init__(Path(path))
        self._threads = threads
        self._names: NodeNames | None = None
        self._view = self._newest(verify)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, verify: bool = False, threads: int | None = None
    ) -> Trajectories:
        """Open the store in a directory.

        verify: compare every byte with its digest first; otherwise only sizes are compared.
        threads: all cores by default.
        """
        return cls(path, verify=verify, threads=thread_count(threads))

    def _newest(self, verify: bool) -> tuple[StoreManifest, _native.TrajectoryReader]:
        manifest = StoreManifest.read(self._directory)
        while True:
            try:
                return manifest, manifest.reader(self._directory, verify=verify)
            except FileNotFoundError as error:
                # Merged after the manifest was read, or missing for good.
                before, manifest = manifest, StoreManifest.read(self._directory)
                if manifest == before:
                    raise StateFileError(
                        f"{error.filename} is missing; copy the store again, or record again"
                    ) from None
            except OSError as error:
                raise StateFileError(f"cannot read {error.filename}: {error.strerror}") from error

    def refresh(self) -> bool:
        """Show what was recorded since; return whether there was anything."""
        before = self._view[0]
        self._view = self._newest(False)
        if self._view[0].names != before.names:
            self._names = None
        return self._view[0] != before

    def append(
        self,
        events: EventStream | Steps,
        propagator: Propagator | None = None,
        *,
        progress: Progress | None = None,
        checkpoint_every_s: float = 60.0,
    ) -> None:
        """Record further events, none earlier than the last recorded one.

        Call `append` again with the same events to resume one that was interrupted. A stream may
        bring new nodes, numbered after the known ones (`EventStream.continuing`): they count as
        present without edges from the beginning, with features from the sketch.

        propagator: the one that was recorded, in the state the recording left it; by default it is
            loaded from the store's checkpoint.
        """
        writing: dict[str, Any] = {"progress": progress, "checkpoint_every_s": checkpoint_every_s}
        append_to(self._directory, events, propagator, **writing)
        self.refresh()

    # Queries --------------------------------------------------------------------------------------

    def state(self, nodes: ArrayLike, times: Times, *, out: FloatArray | None = None) -> FloatArray:
        """Return the states `[B, channels, columns]` of `nodes[b]` strictly before `times[b]`.

        One time may be given for all nodes.
        """
        numbers, before = self._resolve(nodes, times)
        manifest, reader = self._view
        shape = (len(numbers), manifest.layout.channels, manifest.columns)
        states = _output(out, shape, np.dtype(np.float32), "out")
        reader.state(numbers, before, states, self._threads)
        return states

    def window(
        self,
        nodes: ArrayLike,
        times: Times,
        k: int,
        g: ChangeKind = "difference",
        *,
        out: tuple[FloatArray, IntArray, NDArray[np.bool_]] | None = None,
    ) -> tuple[FloatArray, IntArray, NDArray[np.bool_]]:
        """Return `(delta, dt, mask)`: the `k` latest changes of `nodes[b]` before `times[b]`.

        The newest change is last. If there are fewer than `k`, the front is zero and `mask`
        `[B, k]` is False there.

        delta: how a state differs from the one recorded before it: `[B, k, channels, columns]`
            ("difference"), or `[B, k, channels]` the norm of the difference ("l2") or one minus the
            cosine ("cosine"; 0 between two zero rows, 1 if only one is zero).
        dt: `[B, k]`, the time from the change to `times[b]`.
        out: three arrays to write to and return instead of new ones.
        """
        numbers, before = self._resolve(nodes, times)
        if not is_number(k, (int, np.integer)) or k < 1:
            raise ParameterError(f"k is {k!r}; give how many changes to look back, 1 or more")
        kind = change_kind(g)
        manifest, reader = self._view
        shape: tuple[int, ...] = (len(numbers), int(k), manifest.layout.channels)
        if g == "difference":
            shape += (manifest.columns,)
        given = out if out is not None else (None, None, None)
        delta = _output(given[0], shape, np.dtype(np.float32), "delta")
        dt = _output(given[1], shape[:2], np.dtype(np.int64), "dt")
        mask = _output(given[2], shape[:2], np.dtype(np.bool_), "mask")
        reader.window(numbers, before, int(k), kind, delta, dt, mask, self._threads)
        return delta, dt, mask

    def changes(self, node: int | str) -> tuple[IntArray, FloatArray]:
        """Return `(times, states)`: all records of a node, states `[n, channels, columns]`.

        The first entry is the state before any event, at time `-2**63`; the others are changes.
        """
        number = self._one_node(node)
        manifest, reader = self._view
        times = np.empty(reader.count(number), dtype=np.int64)
        states = np.empty((len(times), manifest.layout.channels, manifest.columns), np.float32)
        reader.records(number, times, states)
        return times, states

    def bound(self, nodes: ArrayLike, times: Times) -> NDArray[np.float64]:
        """Return how far `state` may be from exact, per channel in the L2 norm, `[B, channels]`.

        Exact is the solution on the graph after the last step before `times[b]`. The bound is the
        sum of three parts: what may have happened since the record, `epsilon·‖z‖` with `‖z‖` at
        most `‖state‖ / (1 - epsilon)`; the propagator's `threshold` over all columns at the time of
        the record (it can only have become smaller); and the rounding of store and engine. Nothing
        that happens at `times[b]` or later changes it.
        """
        numbers, before = self._resolve(nodes, times)
        manifest, reader = self._view
        layout, epsilon = manifest.layout, manifest.epsilon
        total = np.empty((len(numbers), layout.channels))
        promise = np.linalg.norm(manifest.thresholds) * (1 + np.array(manifest.drift))
        stored, smallest = layout.rounding
        relative = (2.0**-23 if manifest.propagator["dtype"] == "float32" else 2.0**-24) + stored
        step = max(1, PIECE_BYTES // (4 * layout.channels * layout.columns))
        for first in range(0, len(numbers), step):
            part = slice(first, first + step)
            size = len(numbers[part])
            states = np.empty((size, layout.channels, layout.columns), np.float32)
            scales = np.empty((size, layout.channels), np.float32)
            reader.state(numbers[part], before[part], states, self._threads)
            reader.scales(numbers[part], before[part], scales, self._threads)
            norm = np.linalg.norm(states.astype(np.float64), axis=2)
            moved = (epsilon + 2 * relative) / (1 - epsilon) * norm
            total[part] = moved + scales * promise + smallest
        return total

    # Properties -----------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether the last call of `record` or `append` ran to its end."""
        return self._view[0].complete

    @property
    def names(self) -> NodeNames | None:
        if self._names is None:
            self._names = self._view[0].read_names(self._directory)
        return self._names

    @property
    def _manifests(self) -> tuple[StoreManifest, ...]:
        return (self._view[0],)


def change_kind(g: ChangeKind) -> int:
    """Return the native engine's number of a kind of change; raise ParameterError for others."""
    if g not in get_args(ChangeKind):
        raise ParameterError(f"g is {g!r}; give 'difference', 'l2' or 'cosine'")
    return get_args(ChangeKind).index(g)


def _output(given: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    if given is None:
        try:
            return np.empty(shape, dtype=dtype)
        except (ValueError, MemoryError):
            raise ParameterError(
                f"{name} would have shape {shape}, which does not fit into memory; give fewer nodes"
                " or look back less far"
            ) from None
    if (
        not isinstance(given, np.ndarray)
        or given.shape != shape
        or given.dtype != dtype
        or not (given.flags.c_contiguous and given.flags.writeable)
    ):
        raise ParameterError(f"{name} must be a writable, contiguous array of {dtype} {shape}")
    return given
