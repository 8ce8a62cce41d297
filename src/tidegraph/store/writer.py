"""Recording: the writer that moves a store from one durable state to the next.

Where segments end and when they are merged depends on the records alone: a recording that was
killed and resumed leaves the same bytes as one that was not.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph import _native
from tidegraph.core.durable import not_written
from tidegraph.core.errors import EventError, ParameterError, PrecisionError
from tidegraph.core.progress import Progress
from tidegraph.engine.propagator import Propagator
from tidegraph.events.steps import Steps
from tidegraph.store.manifest import (
    MANIFEST,
    OWN_FILE,
    StoreManifest,
    checkpoint_path,
    checkpoints,
    first_steps,
    part_of,
    recorded_from,
)
from tidegraph.store.segments import (
    PIECE_BYTES,
    Entry,
    Records,
    Segment,
    first_to_merge,
    merge,
    write_segment,
)

IntArray: TypeAlias = NDArray[np.int64]
# Looks at a propagator: gets the steps done and the nodes they touched, returns the next stop.
Watch: TypeAlias = Callable[[Propagator, int, int], int]

_END = np.iinfo(np.int64).max
_STEPS_PER_CALL = 4096  # between two checks for interrupts and two reports of progress


@dataclass
class Writer:
    """Applies steps to a propagator and records them, one durable state after the other."""

    directory: Path
    manifest: StoreManifest
    propagator: Propagator
    progress: Progress | None
    checkpoint_every_s: float
    watch: Watch | None = None

    def __post_init__(self) -> None:
        self._saved_at = time.monotonic()
        self._layout = layout = self.manifest.layout
        shape = layout.channels, layout.columns, layout.half
        self._recorder = _native.Recorder(*shape, self.manifest.nodes, self.manifest.epsilon)

    # Before the first step ------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the store, with every node's state before the first step."""
        entry = self._initial_states(0, number=0)
        self._save_checkpoint()
        self._publish(segments=(entry,))

    def grow(self, known: int) -> None:
        """Add the initial states of the nodes from `known` on to those of the others.

        All segments are merged into one, because a node is looked up in the first segment without
        a search. That segment and the new number of nodes are published together.
        """
        entry = self._initial_states(known, number=self._next_number())
        self.manifest = dataclasses.replace(
            self.manifest,
            segments=(*self.manifest.segments, entry),
            **recorded_from(self.propagator),
        )
        self._merge(0)

    def _initial_states(self, known: int, *, number: int) -> Entry:
        """Write a segment of the nodes from `known` on, which have no edge yet."""
        nodes, layout = self.manifest.nodes, self._layout
        step = max(1, PIECE_BYTES // layout.record_bytes)

        def pieces() -> Iterator[Records]:
            for first in range(known, nodes, step):
                try:
                    self.propagator._begin_record(self._recorder, first, min(first + step, nodes))
                except ValueError as error:
                    raise _out_of_range(error) from None
                yield self._take_records()[2]

        offsets = np.arange(nodes - known + 1)
        until = self.manifest.steps
        return write_segment(
            self.directory, layout, number, until, np.arange(known, nodes), offsets, pieces()
        )

    def restore(self) -> None:
        """Set the recorder to the last record of every node."""
        store = self.manifest.reader(self.directory)
        step = max(1, PIECE_BYTES // (4 * self._layout.columns * self._layout.channels))
        for first in range(0, self.manifest.nodes, step):
            nodes = np.arange(first, min(first + step, self.manifest.nodes))
            times = np.full(len(nodes), _END)
            rows = np.empty((len(nodes), self._layout.channels, self._layout.columns), np.float32)
            scales = np.empty(rows.shape[:2], np.float32)
            store.state(nodes, times, rows, self.propagator.threads)
            store.scales(nodes, times, scales, self.propagator.threads)
            self._recorder.restore(first, rows, scales)
        self._tidy()

    def look_at_all(self) -> None:
        """Examine every node after the next step, not only those it touches."""
        self._recorder.look_at_all()

    # Steps ----------------------------------------------------------------------------------------

    def run(self, steps: Steps) -> None:
        """Record the remaining steps of the last part, and complete it.

        The first part ends as one segment; those of later parts are merged once there are many.
        """
        self._merge()  # left over from an interrupted run
        first = self.manifest.steps_before_part
        done, rejection = self._apply(steps, first)
        if self._recorder.waiting:
            self._seal(first + done, int(steps.times[done - 1]))
        elif done:
            self._publish(steps=first + done, time=int(steps.times[done - 1]))
        self._save_checkpoint()
        self._merge()
        if first == 0:
            self._merge(0)
        # A part ends before a rejected step, so that corrected events can be appended.
        last = self.manifest.parts[-1] if rejection is None else part_of(first_steps(steps, done))
        self._publish(
            parts=(*self.manifest.parts[:-1], last),
            complete=True,
            events=self.propagator.statistics()["events"],
        )
        self._tidy()
        if rejection is not None:
            raise rejection

    def _apply(self, steps: Steps, first: int) -> tuple[int, EventError | PrecisionError | None]:
        """Apply steps until the end or a rejected one: return how many, and the rejection."""
        done, stop = self.manifest.steps - first, 0
        while done < len(steps):
            stop = self._look(done, stop, len(steps))
            last = min(done + _STEPS_PER_CALL, stop)
            try:
                count, reason, of_precision = self.propagator._record_steps(
                    self._recorder,
                    steps[done:last],
                    self.manifest.segment_records,
                )
            except ValueError as error:
                raise _out_of_range(error) from None
            done += count
            if reason:
                kind = PrecisionError if of_precision else EventError
                return done, kind(
                    f"step {done}: {reason}; the {done} steps before it are recorded: correct the"
                    " rest and append it"
                )
            if self._recorder.waiting >= self.manifest.segment_records:
                self._seal(first + done, int(steps.times[done - 1]))
                if time.monotonic() - self._saved_at >= self.checkpoint_every_s:
                    self._save_checkpoint()
                self._merge()
            self._report(done, len(steps))
        self._look(done, stop, len(steps))
        return done, None

    def _look(self, done: int, stop: int, steps: int) -> int:
        """Let the watch look at the propagator if this is its stop; return its next one."""
        if self.watch is None:
            return steps
        return stop if done < stop else self.watch(self.propagator, done, self._recorder.touched)

    def _report(self, done: int, total: int) -> None:
        if self.progress is not None:
            records = self.manifest.records + self._recorder.waiting
            size = records * self._layout.record_bytes
            self.progress(done, total, f"{records:,} records, {size / 1e6:,.0f} MB")

    # Durable states -------------------------------------------------------------------------------

    def _take_records(self) -> tuple[IntArray, IntArray, Records]:
        """Return the waiting records: nodes, offsets and arrays."""
        sealed: tuple[NDArray[Any], ...] = self._recorder.seal()
        nodes, offsets, *flat = sealed
        arrays = [
            array.view(dtype).reshape(len(flat[0]), width)
            for array, (dtype, width) in zip(flat, self._layout.arrays().values(), strict=True)
        ]
        return nodes, offsets, Records(*arrays)

    def _publish(self, **changes: Any) -> None:
        manifest = dataclasses.replace(self.manifest, **changes)
        manifest.write(self.directory)
        self.manifest = manifest

    def _next_number(self) -> int:
        return 1 + max(entry.number for entry in self.manifest.segments)

    def _seal(self, until: int, last_time: int) -> None:
        """Write the waiting records as a segment, and publish it."""
        nodes, offsets, records = self._take_records()
        number = self._next_number()
        entry = write_segment(
            self.directory, self._layout, number, until, nodes, offsets, iter([records])
        )
        self._publish(segments=(*self.manifest.segments, entry), steps=until, time=last_time)

    def _merge(self, first: int | None = None) -> None:
        """Merge the segments from `first` on; by default the small ones, once there are many."""
        entries = self.manifest.segments
        if first is None:
            first = first_to_merge([entry.records for entry in entries])
        if len(entries) - first < 2:
            return
        # Rolling back to an older checkpoint is impossible after a merge.
        self._save_checkpoint()
        chosen = [Segment(self.directory, self._layout, entry) for entry in entries[first:]]
        nodes, offsets, pieces = merge(chosen, self._layout)
        number, until = self._next_number(), entries[-1].until
        entry = write_segment(self.directory, self._layout, number, until, nodes, offsets, pieces)
        self._publish(segments=(*entries[:first], entry))
        self._tidy()

    def _save_checkpoint(self) -> None:
        """Save the propagator as of the last sealed record; called at no other moment."""
        path = checkpoint_path(self.directory, self.manifest.steps)
        if not path.exists():
            try:
                self.propagator.save(path)
            except OSError as error:
                raise not_written(path, error) from error
        for steps in checkpoints(self.directory):
            if steps < self.manifest.steps:
                checkpoint_path(self.directory, steps).unlink()
        self._saved_at = time.monotonic()

    def _tidy(self) -> None:
        """Delete what a merge or an interrupted run has left behind."""
        keep = {MANIFEST, self.manifest.names_file}
        keep.update(entry.file for entry in self.manifest.segments)
        keep.update(
            checkpoint_path(self.directory, steps).name for steps in checkpoints(self.directory)
        )
        for path in self.directory.iterdir():
            if path.name not in keep and OWN_FILE.fullmatch(path.name):
                path.unlink()


def _out_of_range(error: ValueError) -> ParameterError:
    return ParameterError(f"{error}; scale the features down")
