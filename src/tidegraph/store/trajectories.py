"""How every node's representation moved: recorded once, asked for any (node, time) later.

What a store is made of, and how it grows, is in `writer`; here it is made and asked.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import _native
from tidegraph.core.errors import EventError, ParameterError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, is_number
from tidegraph.engine.propagator import Propagator
from tidegraph.events.names import NodeNames
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream
from tidegraph.store.segments import PIECE_BYTES, StoreDtype, digest
from tidegraph.store.writer import (
    BEGINNING,
    SEGMENT_BYTES,
    Manifest,
    append_to,
    record_into,
)

__all__ = ["Trajectories", "copy_store", "record"]

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float32]
ChangeKind: TypeAlias = Literal["difference", "l2", "cosine"]

_END = np.iinfo(np.int64).max


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
) -> Trajectories:
    """The trajectories of all nodes while the propagator goes through all events.

    A node gets a record before the first step and then at every step of which it is an endpoint,
    or after which in any channel `‖z - last recorded‖ > epsilon·‖z‖`, or after which the error the
    propagator promises for it has grown. A stream is taken in steps of one distinct time each:
    then what is known before `t` does not depend on anything at or after `t`. Steps of so many
    events are recorded at the time of their last event.

    path: a directory, made where absent. What was recorded before a crash is kept: called again
        with the same events, it goes on from the last checkpoint, whose state the propagator takes
        over, and ends with the same bytes. `resume=False` refuses a directory with a store in it.
    dtype: "float16" halves the store. Each channel of a record has its own power of two, so that
        any size of values will do; the rounding, 2^-11 of a value, is part of `bound`.
    progress: called as `progress(steps done, steps, text)` now and then.
    checkpoint_every_s: how much work, at most, a crash costs, plus the segment in the making.
    segment_bytes: so much is held in memory before it is written.

    >>> import tempfile
    >>> src, dst, t = np.array([[0, 1], [1, 2], [5, 9]])
    >>> stream = EventStream(src=src, dst=dst, t=t, nodes=3)
    >>> with tempfile.TemporaryDirectory() as path:
    ...     moved = record(stream, Propagator(np.eye(3)), path).changes(2)[0]
    >>> moved[1:].tolist()
    [9]
    """
    directory = Path(path)
    record_into(
        directory,
        events,
        propagator,
        epsilon=epsilon,
        dtype=dtype,
        resume=resume,
        segment_bytes=segment_bytes,
        progress=progress,
        checkpoint_every_s=checkpoint_every_s,
    )
    return Trajectories.open(directory, threads=propagator.threads)


def copy_store(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """A second store with the same records, in a new directory.

    Files of a store are replaced, never changed, so both share them on one file system; what is
    appended to either is its own.
    """
    shutil.copytree(source, target, copy_function=_link)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return target


class Trajectories:
    """The recorded states of every node, to be asked for what was known strictly before a time.

    Made by `record` or `Trajectories.open`. The files are mapped into memory and may be larger than
    it. An object shows the store as it was when it was opened or last refreshed, however much is
    appended meanwhile, here or in another process; any number of threads may ask it.

    A state at `t` is the one after the last step before `t`. Windows and decay stand where that
    step has moved them: what has expired between it and `t` is still there.

    nodes, columns, channels: the shape of what was recorded.
    epsilon, dtype: how it was recorded.
    unit: of the times, where a stream was recorded.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool, threads: int) -> None:
        self._directory = Path(path)
        self._threads = threads
        self._names: NodeNames | None = None
        self._view = self._newest(verify)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, verify: bool = False, threads: int | None = None
    ) -> Trajectories:
        """The store in a directory; with `verify` every byte is compared with its digest first.

        Without it sizes are compared only. `threads` None takes all cores.
        """
        if threads is None:
            threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return cls(path, verify=verify, threads=threads)

    def _newest(self, verify: bool) -> tuple[Manifest, _native.TrajectoryReader]:
        manifest = Manifest.read(self._directory)
        while True:
            try:
                return manifest, manifest.reader(self._directory, verify=verify)
            except FileNotFoundError as error:
                # Merged away after the manifest was read, or missing for good.
                before, manifest = manifest, Manifest.read(self._directory)
                if manifest == before:
                    raise StateFileError(
                        f"{error.filename} is missing; copy the store again or record anew"
                    ) from None
            except OSError as error:
                raise StateFileError(f"cannot read {error.filename}: {error.strerror}") from error

    def refresh(self) -> bool:
        """Shows what was recorded meanwhile; whether there was anything."""
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
        """Records further events, none earlier than the last that was recorded.

        The propagator is the one that was recorded, after all that was recorded; where None, it is
        read from the store's checkpoint. An unfinished `append` goes on when called again with the
        same events.

        A stream may bring new nodes, numbered after the known ones (`EventStream.continuing`). They
        have been there without an edge from the beginning; their features come from the sketch.
        """
        append_to(
            self._directory,
            events,
            propagator,
            progress=progress,
            checkpoint_every_s=checkpoint_every_s,
        )
        self.refresh()

    # Questions ------------------------------------------------------------------------------------

    def state(
        self, nodes: ArrayLike, times: ArrayLike, *, out: FloatArray | None = None
    ) -> FloatArray:
        """The states `[B, channels, columns]` of `nodes[b]` as last recorded before `times[b]`."""
        ids, before = self._questions(nodes, times)
        manifest, reader = self._view
        shape = (len(ids), manifest.layout.channels, manifest.columns)
        states = _output(out, shape, np.dtype(np.float32), "out")
        reader.state(ids, before, states, self._threads)
        return states

    def window(
        self,
        nodes: ArrayLike,
        times: ArrayLike,
        k: int,
        g: ChangeKind = "difference",
        *,
        out: tuple[FloatArray, IntArray, NDArray[np.bool_]] | None = None,
    ) -> tuple[FloatArray, IntArray, NDArray[np.bool_]]:
        """`(delta, dt, mask)`: the `k` latest changes of `nodes[b]` strictly before `times[b]`.

        The newest is last; where there are fewer, the front is zero and `mask` `[B, k]` is False.
        delta: of a state and the one recorded before it, `[B, k, channels, columns]` their
            difference, or `[B, k, channels]` its norm ("l2") or one less their cosine ("cosine";
            of two zero rows 0, of one 1).
        dt: `[B, k]`, the time from the change to `times[b]`.
        out: three arrays to write to and return, which saves making them.
        """
        ids, before = self._questions(nodes, times)
        if not is_number(k, (int, np.integer)) or k < 1:
            raise ParameterError(f"k is {k!r}; give how many changes to look back, 1 or more")
        if g not in get_args(ChangeKind):
            raise ParameterError(f"g is {g!r}; give 'difference', 'l2' or 'cosine'")
        manifest, reader = self._view
        shape: tuple[int, ...] = (len(ids), int(k), manifest.layout.channels)
        if g == "difference":
            shape += (manifest.columns,)
        given = out if out is not None else (None, None, None)
        delta = _output(given[0], shape, np.dtype(np.float32), "delta")
        dt = _output(given[1], shape[:2], np.dtype(np.int64), "dt")
        mask = _output(given[2], shape[:2], np.dtype(np.bool_), "mask")
        kind = get_args(ChangeKind).index(g)
        reader.window(ids, before, int(k), kind, delta, dt, mask, self._threads)
        return delta, dt, mask

    def changes(self, node: int) -> tuple[IntArray, FloatArray]:
        """`(times, states)`: the whole trajectory of a node, states `[n, channels, columns]`.

        The first entry is its state before any event, at time `-2**63`; the others are changes.
        """
        manifest, reader = self._view
        ids, _ = self._questions(node, 0)
        if len(ids) != 1:
            raise ParameterError(f"{len(ids)} nodes were given; give one")
        times = np.empty(reader.count(int(ids[0])), dtype=np.int64)
        states = np.empty((len(times), manifest.layout.channels, manifest.columns), np.float32)
        reader.records(int(ids[0]), times, states)
        return times, states

    def bound(self, nodes: ArrayLike, times: ArrayLike) -> NDArray[np.float64]:
        """How far `state` may be, per channel in the L2 norm, `[B, channels]`, from exact.

        Exact is the solution on the graph as the last step before `times[b]` has left it. Summed
        are what may have happened since the record, `epsilon·‖z‖` with `‖z‖` at most
        `‖state‖ / (1 - epsilon)`; what the propagator promises, `threshold` over all columns, as it
        was at the record (it can only have become less); and the rounding of store and engine.
        Nothing that happens at `times[b]` or later changes an answer.
        """
        ids, before = self._questions(nodes, times)
        manifest, reader = self._view
        layout, epsilon = manifest.layout, manifest.epsilon
        total = np.empty((len(ids), layout.channels))
        promise = np.linalg.norm(manifest.thresholds) * (1 + np.array(manifest.drift))
        relative = 2.0**-23 if manifest.propagator["dtype"] == "float32" else 2.0**-24
        smallest = 2.0**-149  # of float32
        if layout.half:
            # Numbers below 2^-28 of a channel's largest are rounded to a multiple of 2^-38 of it.
            relative += 2.0**-11 + 2.0**-38 * manifest.columns**0.5
            smallest = 2.0**-145
        step = max(1, PIECE_BYTES // (4 * layout.channels * layout.columns))
        for first in range(0, len(ids), step):
            part = slice(first, first + step)
            size = len(ids[part])
            states = np.empty((size, layout.channels, layout.columns), np.float32)
            scales = np.empty((size, layout.channels), np.float32)
            reader.state(ids[part], before[part], states, self._threads)
            reader.scales(ids[part], before[part], scales, self._threads)
            norm = np.linalg.norm(states.astype(np.float64), axis=2)
            moved = (epsilon + 2 * relative) / (1 - epsilon) * norm
            total[part] = moved + scales * promise + smallest * manifest.columns**0.5
        return total

    def _questions(self, nodes: ArrayLike, times: ArrayLike) -> tuple[IntArray, IntArray]:
        ids, before = np.atleast_1d(np.asarray(nodes)), np.atleast_1d(np.asarray(times))
        for name, array in (("nodes", ids), ("times", before)):
            if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
                raise EventError(
                    f"{name} has dtype {array.dtype} and shape {array.shape}; give integers [B]"
                )
        if len(before) == 1 != len(ids):
            before = np.broadcast_to(before, ids.shape)
        if len(before) != len(ids):
            raise EventError(
                f"there are {len(ids)} nodes and {len(before)} times; give one time per node, or"
                " one for all"
            )
        count = self.nodes
        if ids.size and (ids.min() < 0 or ids.max() >= count):
            wrong = ids[(ids < 0) | (ids >= count)][0]
            raise EventError(f"node {wrong} was asked for; there are nodes 0 to {count - 1}")
        if before.size and (before.max() > _END or before.min() <= BEGINNING):
            raise EventError("times lie strictly between -2**63 and 2**63")
        return (
            np.ascontiguousarray(ids, dtype=np.int64),
            np.ascontiguousarray(before, dtype=np.int64),
        )

    # What it is -----------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        return self._directory

    @property
    def nodes(self) -> int:
        return self._view[0].nodes

    @property
    def columns(self) -> int:
        return self._view[0].columns

    @property
    def channels(self) -> tuple[Channel, ...]:
        settings = self._view[0].propagator["settings"]
        return tuple(Channel(**channel) for channel in settings["channels"])

    @property
    def epsilon(self) -> float:
        return self._view[0].epsilon

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self._view[0].dtype)

    @property
    def unit(self) -> str | None:
        return self._view[0].unit

    @property
    def records(self) -> int:
        """How many there are, the states before any event included."""
        return self._view[0].records

    @property
    def nbytes(self) -> int:
        """The size of the segments on disk."""
        return sum(entry.bytes for entry in self._view[0].segments)

    @property
    def complete(self) -> bool:
        """Whether what was last being recorded was recorded to its end."""
        return self._view[0].complete

    @property
    def names(self) -> NodeNames | None:
        """The ids of the nodes in the stream that was recorded, where they were not numbers."""
        wanted = self._view[0].names
        if self._names is None and wanted is not None:
            path = self._directory / self._view[0].names_file
            try:
                text = path.read_bytes()
            except OSError as error:
                raise StateFileError(f"cannot read {path}: {error.strerror or error}") from error
            if digest(text) != wanted:
                raise StateFileError(f"{path} was altered: it does not match its digest")
            self._names = NodeNames(json.loads(text))
        return self._names

    def __repr__(self) -> str:
        return (
            f"Trajectories({str(self._directory)!r}, nodes={self.nodes}, records={self.records:,},"
            f" channels={len(self.channels)}, columns={self.columns}, dtype={self.dtype})"
        )


def _output(given: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    if given is None:
        return np.empty(shape, dtype=dtype)
    if (
        not isinstance(given, np.ndarray)
        or given.shape != shape
        or given.dtype != dtype
        or not (given.flags.c_contiguous and given.flags.writeable)
    ):
        raise ParameterError(f"{name} must be a writable, contiguous array of {dtype} {shape}")
    return given
