"""How every node's representation moved: recorded once, asked for any (node, time) later.

A store is a directory. Records live in segments, files that are written once and never changed;
`manifest.json` lists those that count and is replaced as a whole, so a store is always one that was
complete at some moment. Where segments begin and when they are merged is a function of the records
alone: a run that was killed and resumed leaves the same bytes as one that was not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import _native
from tidegraph.channels import Channel
from tidegraph.durable import not_written, only_writer, replace_file
from tidegraph.errors import EventError, ParameterError, StateFileError
from tidegraph.events import Batch
from tidegraph.propagation import Propagator
from tidegraph.segments import (
    PIECE_BYTES,
    VERSION,
    Entry,
    Layout,
    Records,
    Segment,
    StoreDtype,
    as_bytes,
    digest,
    first_to_merge,
    merged,
    other_version,
    write_segment,
)
from tidegraph.stream import EventStream, NodeNames, Steps

__all__ = ["Trajectories", "copy_store", "record"]

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float32]
ChangeKind: TypeAlias = Literal["difference", "l2", "cosine"]
Progress: TypeAlias = Callable[[int, int, str], None]  # done, of how many, what is going on

_FORMAT = "tidegraph trajectories"
_MANIFEST = "manifest.json"
_NAMES = "names.json"
_BEGINNING = np.iinfo(np.int64).min
_END = np.iinfo(np.int64).max
SEGMENT_BYTES = 1 << 27  # of records, after which a segment is sealed
_STEPS_PER_CALL = 4096  # between two looks at the keyboard and the progress


# The manifest -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A stream that was recorded, or is being recorded, as one."""

    digest: str  # of its steps
    steps: int


@dataclass(frozen=True)
class _Manifest:
    """Everything about a store that is not in a segment."""

    nodes: int
    columns: int
    dtype: StoreDtype
    epsilon: float
    unit: str | None
    names: str | None  # digest of the file of ids
    propagator: dict[str, Any]  # its settings
    thresholds: tuple[float, ...]
    features: str  # digest of what is propagated
    segment_records: int
    parts: tuple[_Part, ...]
    steps: int  # recorded so far, of all parts
    time: int | None  # of the last of them
    complete: bool  # whether the last part was recorded to its end
    events: int  # that the propagator had seen when a part was last begun or completed
    drift: tuple[float, ...]  # the largest measured, per channel
    segments: tuple[Entry, ...]
    names_file: str = _NAMES
    begun: int | None = None  # the time of the propagator before the first step
    graph: str | None = None  # digest of its edges at that moment; None: not known

    @property
    def layout(self) -> Layout:
        return Layout(len(self.propagator["settings"]["channels"]), self.columns, self.dtype)

    @property
    def records(self) -> int:
        return sum(entry.records for entry in self.segments)

    @property
    def steps_before_part(self) -> int:
        return sum(part.steps for part in self.parts[:-1])

    def write(self, directory: Path) -> None:
        body = {"format": _FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        body["digest"] = _json_digest(body)
        replace_file(directory / _MANIFEST, json.dumps(body, indent=1))

    @classmethod
    def read(cls, directory: Path) -> _Manifest:
        path = directory / _MANIFEST
        try:
            body = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise StateFileError(
                f"{directory} is not a store of trajectories: it has no {_MANIFEST}"
            ) from None
        except OSError as error:
            raise StateFileError(f"cannot read {path}: {error.strerror or error}") from error
        except ValueError:
            body = None
        if not isinstance(body, dict) or body.pop("format", None) != _FORMAT:
            raise StateFileError(
                f"{path} is not the manifest of a store of trajectories, or is damaged"
            )
        version, written = body.pop("version", None), body.pop("digest", None)
        if version != VERSION:
            raise other_version(path, version)
        if written != _json_digest({"format": _FORMAT, "version": version, **body}):
            raise StateFileError(f"{path} was altered: it does not match its digest")
        body["parts"] = tuple(_Part(**part) for part in body["parts"])
        body["segments"] = tuple(Entry(**entry) for entry in body["segments"])
        body["thresholds"], body["drift"] = tuple(body["thresholds"]), tuple(body["drift"])
        return cls(**body)


def _json_digest(body: dict[str, Any]) -> str:
    return digest(json.dumps(body, sort_keys=True).encode())


def _steps_digest(steps: Steps) -> str:
    columns = (steps.src, steps.dst, steps.t, steps.weight, steps.op, steps.offsets, steps.times)
    return digest(*(b"-" if column is None else as_bytes(column) for column in columns))


def _features_digest(propagator: Propagator) -> str:
    state = hashlib.blake2b(digest_size=16)
    step = max(1, PIECE_BYTES // (8 * propagator.columns))
    for first in range(0, propagator.nodes, step):
        nodes = np.arange(first, min(first + step, propagator.nodes))
        state.update(as_bytes(propagator.features(nodes)))
    return state.hexdigest()


def _graph_digest(propagator: Propagator) -> str:
    src, dst, weight = propagator.edges()
    order = np.lexsort((dst, src))
    return digest(*(as_bytes(column[order]) for column in (src, dst, weight)))


def _settings_of(propagator: Propagator) -> dict[str, Any]:
    """A propagator's settings as they come back from JSON."""
    settings: dict[str, Any] = json.loads(json.dumps(propagator._description()))
    return settings


# Writing ------------------------------------------------------------------------------------------


class _Writer:
    """Moves a store forward, one durable state after the other."""

    def __init__(
        self,
        directory: Path,
        manifest: _Manifest,
        propagator: Propagator,
        *,
        progress: Progress | None,
        checkpoint_every_s: float,
    ) -> None:
        self.manifest = manifest
        self._directory = directory
        self._propagator = propagator
        self._layout = manifest.layout
        self._progress = progress
        self._checkpoint_every_s = checkpoint_every_s
        self._saved_at = time.monotonic()
        layout = self._layout
        self._recorder = _native.Recorder(
            layout.channels, layout.columns, layout.half, manifest.nodes, manifest.epsilon
        )

    def begin(self) -> None:
        """Makes the store: every node as it is before the first step."""
        entry = self._beginnings(0, number=0)
        self._save_checkpoint()
        self._publish(segments=(entry,))

    def grow(self, known: int) -> None:
        """Gives the nodes from `known` on their beginnings, among those of the others.

        All segments become one, because a node is looked up in the first without a search; they
        and the new number of nodes are published together.
        """
        entry = self._beginnings(known, number=self._number())
        self.manifest = dataclasses.replace(
            self.manifest,
            propagator=_settings_of(self._propagator),
            features=_features_digest(self._propagator),
            segments=(*self.manifest.segments, entry),
        )
        self._merge(0)

    def _beginnings(self, known: int, *, number: int) -> Entry:
        """A segment of the nodes from `known` on, as they are while they have no edge."""
        nodes, layout = self.manifest.nodes, self._layout
        step = max(1, PIECE_BYTES // layout.record_bytes)

        def pieces() -> Iterator[Records]:
            for first in range(known, nodes, step):
                self._record_all(first, min(first + step, nodes))
                yield self._sealed()[2]

        offsets = np.arange(nodes - known + 1)
        until = self.manifest.steps
        return write_segment(
            self._directory, layout, number, until, np.arange(known, nodes), offsets, pieces()
        )

    def _record_all(self, first: int, last: int) -> None:
        try:
            self._propagator._begin_record(self._recorder, first, last)
        except ValueError as error:
            raise _out_of_range(error) from None

    def _sealed(self) -> tuple[IntArray, IntArray, Records]:
        sealed: tuple[NDArray[Any], ...] = self._recorder.seal()
        nodes, offsets, *flat = sealed
        arrays = [
            array.view(dtype).reshape(len(flat[0]), width)
            for array, (dtype, width) in zip(flat, self._layout.arrays().values(), strict=True)
        ]
        return nodes, offsets, Records(*arrays)

    def restore(self) -> None:
        """Goes on where the records end."""
        store = _open_reader(self._directory, self.manifest)
        step = max(1, PIECE_BYTES // (4 * self._layout.columns * self._layout.channels))
        for first in range(0, self.manifest.nodes, step):
            nodes = np.arange(first, min(first + step, self.manifest.nodes))
            times = np.full(len(nodes), _END)
            rows = np.empty((len(nodes), self._layout.channels, self._layout.columns), np.float32)
            scales = np.empty(rows.shape[:2], np.float32)
            store.state(nodes, times, rows, self._propagator.threads)
            store.scales(nodes, times, scales, self._propagator.threads)
            self._recorder.restore(first, rows, scales)
        self._tidy()

    def look_at_all(self) -> None:
        """Has every node looked at after the next step, not only those it touches."""
        self._recorder.look_at_all()

    def run(self, steps: Steps) -> None:
        """Records the steps of the last part that are still to come, and completes it.

        The first part ends as one segment; later ones are merged where there are many.
        """
        self._merge()  # what an earlier run had no time for
        refusal = ""
        batch = steps.batch(0, len(steps))
        first = self.manifest.steps_before_part
        done = self.manifest.steps - first
        while done < len(steps):
            last = min(done + _STEPS_PER_CALL, len(steps))
            try:
                count, refusal = self._propagator._record_steps(
                    self._recorder,
                    batch,
                    steps.offsets[done : last + 1] - steps.offsets[0],
                    steps.times[done:last],
                    self.manifest.segment_records,
                )
            except ValueError as error:
                raise _out_of_range(error) from None
            done += count
            if refusal:
                break
            if self._recorder.waiting >= self.manifest.segment_records:
                self._seal(first + done, int(steps.times[done - 1]))
                if time.monotonic() - self._saved_at >= self._checkpoint_every_s:
                    self._save_checkpoint()
                self._merge()
            self._report(done, len(steps))
        if self._recorder.waiting:
            self._seal(first + done, int(steps.times[done - 1]))
        elif done:
            self._publish(steps=first + done, time=int(steps.times[done - 1]))
        self._save_checkpoint()
        self._merge()
        if first == 0:
            self._merge(0)
        # Before a refused step the part ends: what is mended can be appended.
        part = _Part(_steps_digest(_first_steps(steps, done)), done)
        parts = (*self.manifest.parts[:-1], part if refusal else self.manifest.parts[-1])
        events = self._propagator.statistics()["events"]
        self._publish(parts=parts, complete=True, events=events)
        self._tidy()
        if refusal:
            raise EventError(
                f"step {done}: {refusal}; the {done} steps before it are recorded: mend the rest"
                " and append it"
            )

    def _report(self, done: int, total: int) -> None:
        if self._progress is not None:
            records = self.manifest.records + self._recorder.waiting
            size = records * self._layout.record_bytes
            self._progress(done, total, f"{records:,} records, {size / 1e6:,.0f} MB")

    def _publish(self, **changes: Any) -> None:
        manifest = dataclasses.replace(self.manifest, **changes)
        manifest.write(self._directory)
        self.manifest = manifest

    def _number(self) -> int:
        return 1 + max(entry.number for entry in self.manifest.segments)

    def _seal(self, until: int, last_time: int) -> None:
        nodes, offsets, records = self._sealed()
        entry = write_segment(
            self._directory, self._layout, self._number(), until, nodes, offsets, iter([records])
        )
        # The promise is missed by what the engine has drifted, which is measured now and then.
        audit = self._propagator.audit()
        beyond = np.maximum(audit.drift, audit.residual - 1)
        self._publish(
            segments=(*self.manifest.segments, entry),
            steps=until,
            time=last_time,
            drift=tuple(np.maximum(self.manifest.drift, beyond).tolist()),
        )

    def _merge(self, first: int | None = None) -> None:
        """Merges the segments from `first` on, or those that have become too many."""
        entries = self.manifest.segments
        if first is None:
            first = first_to_merge([entry.records for entry in entries])
        if len(entries) - first < 2:
            return
        # Behind a merge there is no way back to an older checkpoint.
        self._save_checkpoint()
        chosen = [Segment(self._directory, self._layout, entry) for entry in entries[first:]]
        nodes, offsets, pieces = merged(chosen, self._layout)
        until = entries[-1].until
        entry = write_segment(
            self._directory, self._layout, self._number(), until, nodes, offsets, pieces
        )
        self._publish(segments=(*entries[:first], entry))
        self._tidy()

    def _checkpoint(self) -> Path:
        return self._directory / _checkpoint_name(self.manifest.steps)

    def _save_checkpoint(self) -> None:
        """Keeps the propagator as of the last sealed record; called at no other moment."""
        path = self._checkpoint()
        if not path.exists():
            try:
                self._propagator.save(path)
            except OSError as error:
                raise not_written(path, error) from error
        for steps in _checkpoints(self._directory):
            if steps < self.manifest.steps:
                (self._directory / _checkpoint_name(steps)).unlink()
        self._saved_at = time.monotonic()

    def _tidy(self) -> None:
        """Deletes what a run that ended early or a merge has left behind."""
        keep = {_MANIFEST, self.manifest.names_file}
        keep.update(entry.file for entry in self.manifest.segments)
        keep.update(map(_checkpoint_name, _checkpoints(self._directory)))
        for path in self._directory.iterdir():
            if path.name not in keep and _OWN_FILE.fullmatch(path.name):
                path.unlink()


_OWN_FILE = re.compile(
    r"\.?(segment-\d+\.records|checkpoint-\d+\.state|names\.json|manifest\.json)(\.\w+)?"
)


def _checkpoint_name(steps: int) -> str:
    return f"checkpoint-{steps:09d}.state"


def _checkpoints(directory: Path) -> list[int]:
    """After how many steps there are checkpoints."""
    found = (re.fullmatch(r"checkpoint-(\d+)\.state", path.name) for path in directory.iterdir())
    return sorted(int(match[1]) for match in found if match)


def _out_of_range(error: ValueError) -> ParameterError:
    return ParameterError(f"{error}; scale the features down")


def _rolled_back(directory: Path, manifest: _Manifest) -> tuple[_Manifest, Path]:
    """The store as of its newest checkpoint, and that checkpoint."""
    steps = max(_checkpoints(directory), default=None)
    if steps is None:
        raise StateFileError(
            f"{directory} has no checkpoint of its propagator from which it could go on; record"
            " anew"
        )
    # No segment reaches across: before a merge there was a checkpoint.
    kept = tuple(entry for entry in manifest.segments if entry.until <= steps)
    checkpoint = directory / _checkpoint_name(steps)
    return dataclasses.replace(manifest, segments=kept, steps=steps), checkpoint


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


def _steps_of(events: EventStream | Steps) -> Steps:
    if isinstance(events, EventStream):
        return events.steps()
    if not isinstance(events, Steps):
        raise EventError(f"got {type(events).__name__}; give an EventStream or Steps")
    rows, bounds, times = len(events.src), np.asarray(events.offsets), np.asarray(events.times)
    if bounds.shape != (len(times) + 1,) or bounds[0] < 0 or bounds[-1] > rows:
        raise EventError(
            f"the steps have {len(times)} times and offsets {bounds.shape};"
            " give one offset more than times, within the rows"
        )
    if (np.diff(bounds) < 0).any() or (np.diff(times) < 0).any():
        raise EventError("offsets and times of the steps must not decrease")
    filled = np.flatnonzero(np.diff(bounds))
    if (np.asarray(events.t)[bounds[filled + 1] - 1] > times[filled]).any():
        raise EventError(
            "a step has rows later than its time; a question about that time would see the future"
        )
    return events


def _first_steps(steps: Steps, count: int) -> Steps:
    rows = slice(0, int(steps.offsets[count]))
    return Steps(
        steps.src[rows],
        steps.dst[rows],
        steps.t[rows],
        None if steps.weight is None else steps.weight[rows],
        None if steps.op is None else steps.op[rows],
        steps.offsets[: count + 1],
        steps.times[:count],
    )


def _check_nodes(steps: Steps, nodes: int) -> None:
    for name, ids in (("src", steps.src), ("dst", steps.dst)):
        if len(ids) and not 0 <= ids.min() <= ids.max() < nodes:
            raise EventError(
                f"{name} holds nodes {ids.min()} to {ids.max()}; there are nodes 0 to {nodes - 1}"
            )


def _check_propagator(manifest: _Manifest, propagator: Propagator, directory: Path) -> None:
    """Refuses a propagator that computes something else than what was recorded."""
    settings = _settings_of(propagator)
    other = [key for key, value in settings.items() if manifest.propagator.get(key) != value]
    if not other and tuple(propagator._thresholds.tolist()) != manifest.thresholds:
        other = ["thresholds"]
    if not other and _features_digest(propagator) != manifest.features:
        other = ["features"]
    if other:
        raise ParameterError(
            f"{directory} was recorded from a propagator with other {' and '.join(other)}; make"
            " one like it, or record to another path"
        )


def _begins_alike(manifest: _Manifest, propagator: Propagator, steps: Steps) -> bool:
    """Whether the propagator may have begun with the graph that was recorded from.

    One that has been through steps already says no more where it began.
    """
    now = propagator.time
    begins = now in (None, manifest.begun) or (len(steps.t) > 0 and now < steps.t[0])
    if manifest.graph is None or not begins:
        return True
    return (now, _graph_digest(propagator)) == (manifest.begun, manifest.graph)


def _resumed(
    directory: Path, manifest: _Manifest, propagator: Propagator | None, **options: Any
) -> _Writer:
    """A writer that goes on at the newest checkpoint; the given propagator becomes that one."""
    manifest, checkpoint = _rolled_back(directory, manifest)
    threads = None if propagator is None else propagator.threads
    saved = Propagator.load(checkpoint, threads=threads)
    if saved.nodes < manifest.nodes:
        saved.apply(Batch(new_nodes=manifest.nodes - saved.nodes))
    if propagator is None:
        propagator = saved
    else:
        propagator._become(saved)
    writer = _Writer(directory, manifest, propagator, **options)
    known = manifest.segments[0].nodes
    if known < manifest.nodes:
        writer.grow(known)
    else:
        manifest.write(directory)
    writer.restore()
    return writer


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
    steps = _steps_of(events)
    if not _is_number(epsilon, (int, float, np.integer, np.floating)) or not 0 <= epsilon < 1:
        raise ParameterError(f"epsilon is {epsilon!r}; give a number from 0 to below 1")
    if dtype not in get_args(StoreDtype):
        raise ParameterError(f"dtype is {dtype!r}; give 'float32' or 'float16'")
    directory = Path(path)
    _check_nodes(steps, propagator.nodes)
    options: dict[str, Any] = {"progress": progress, "checkpoint_every_s": checkpoint_every_s}
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(directory, error) from error
    with only_writer(directory):
        if (directory / _MANIFEST).exists():
            if not resume:
                raise ParameterError(
                    f"{directory} holds a store already; resume it, or give another path"
                )
            manifest = _Manifest.read(directory)
            _check_propagator(manifest, propagator, directory)
            if (epsilon, dtype) != (manifest.epsilon, manifest.dtype):
                raise ParameterError(
                    f"{directory} was recorded with epsilon={manifest.epsilon},"
                    f" dtype={manifest.dtype!r}; give the same, or another path"
                )
            if not _begins_alike(manifest, propagator, steps):
                raise ParameterError(
                    f"{directory} was recorded from another initial graph; begin with the same"
                    " edges, or record to another path"
                )
            if _steps_digest(steps) != manifest.parts[-1].digest:
                raise EventError(
                    f"{directory} holds a record of other events; give another path, or open it"
                    " and append to it"
                )
            writer = _resumed(directory, manifest, propagator, **options)
        else:
            manifest = _new_manifest(
                directory, events, steps, propagator, float(epsilon), dtype, segment_bytes
            )
            writer = _Writer(directory, manifest, propagator, **options)
            writer.begin()
        if not writer.manifest.complete:
            writer.run(steps)
    return Trajectories.open(directory, threads=propagator.threads)


def _new_manifest(
    directory: Path,
    events: EventStream | Steps,
    steps: Steps,
    propagator: Propagator,
    epsilon: float,
    dtype: StoreDtype,
    segment_bytes: int,
) -> _Manifest:
    """What will be true of a store before its first step; writes the ids beside it."""
    strangers = [name for path in directory.iterdir() if not _OWN_FILE.fullmatch(name := path.name)]
    if strangers:
        raise ParameterError(
            f"{directory} holds {strangers[0]} and no store; give an empty or a new directory"
        )
    for leftover in directory.iterdir():  # of a run that ended before there was a manifest
        leftover.unlink()
    layout = Layout(len(propagator.channels), propagator.columns, dtype)
    names, unit = None, None
    if isinstance(events, EventStream):
        unit = events.unit
        if events.names is not None:
            names = _write_names(directory, _NAMES, _names_text(events.names))
    return _Manifest(
        nodes=propagator.nodes,
        columns=propagator.columns,
        dtype=dtype,
        epsilon=epsilon,
        unit=unit,
        names=names,
        propagator=_settings_of(propagator),
        thresholds=tuple(propagator._thresholds.tolist()),
        features=_features_digest(propagator),
        segment_records=max(1, segment_bytes // layout.record_bytes),
        parts=(_Part(_steps_digest(steps), len(steps)),),
        steps=0,
        time=None,
        complete=False,
        events=propagator.statistics()["events"],
        drift=(0.0,) * layout.channels,
        segments=(),
        begun=propagator.time,
        graph=_graph_digest(propagator),
    )


def _names_text(names: NodeNames, nodes: int | None = None) -> bytes:
    """The ids of all nodes, or of the first so many, as they are written down."""
    return json.dumps(names.values[:nodes].tolist()).encode()


def _write_names(directory: Path, name: str, text: bytes) -> str:
    replace_file(directory / name, lambda file: file.write(text))
    return digest(text)


# Reading ------------------------------------------------------------------------------------------


def _open_reader(
    directory: Path, manifest: _Manifest, *, verify: bool = False
) -> _native.TrajectoryReader:
    layout = manifest.layout
    segments = [Segment(directory, layout, entry) for entry in manifest.segments]
    if verify:
        for segment in segments:
            segment.verify()
    arrays = [segment.native() for segment in segments]
    return _native.TrajectoryReader(layout.channels, layout.columns, layout.half, arrays)


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

    def _newest(self, verify: bool) -> tuple[_Manifest, _native.TrajectoryReader]:
        manifest = _Manifest.read(self._directory)
        while True:
            try:
                return manifest, _open_reader(self._directory, manifest, verify=verify)
            except FileNotFoundError as error:
                # Merged away after the manifest was read, or missing for good.
                before, manifest = manifest, _Manifest.read(self._directory)
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
        steps = _steps_of(events)
        options: dict[str, Any] = {"progress": progress, "checkpoint_every_s": checkpoint_every_s}
        directory = self._directory
        with only_writer(directory):
            manifest = _Manifest.read(directory)
            self._check_same_stream(events, manifest)
            nodes = manifest.nodes
            if isinstance(events, EventStream) and manifest.complete:
                nodes = max(nodes, events.nodes)
            _check_nodes(steps, nodes)
            if nodes > manifest.nodes and manifest.propagator["sketch"] is None:
                raise EventError(
                    f"the events are between {nodes} nodes, the store has {manifest.nodes} with"
                    " features that were given, and those of new nodes are unknown: record anew"
                )
            if propagator is not None:
                _check_propagator(manifest, propagator, directory)
            part = _Part(_steps_digest(steps), len(steps))
            if not manifest.complete:
                if part != manifest.parts[-1]:
                    raise EventError(
                        f"{directory} is not finished: call again with the events that were being"
                        " recorded first"
                    )
                writer = _resumed(directory, manifest, propagator, **options)
            else:
                if len(steps) and manifest.time is not None and steps.times[0] < manifest.time:
                    raise EventError(
                        f"the events begin at {steps.times[0]}; {directory} is recorded up to"
                        f" {manifest.time}: append what is not earlier"
                    )
                seen = manifest.events
                if propagator is not None and propagator.statistics()["events"] != seen:
                    raise EventError(
                        f"the propagator has seen {propagator.statistics()['events']} events; this"
                        f" store continues after {seen}: leave it out to go on with the stored one"
                    )
                known = manifest.nodes
                manifest = dataclasses.replace(
                    manifest, parts=(*manifest.parts, part), complete=False, nodes=nodes
                )
                if known < nodes and isinstance(events, EventStream) and events.names is not None:
                    text = _names_text(events.names)
                    file = f"{_NAMES}.{digest(text)[:16]}"  # the old ones count until all is there
                    names = _write_names(directory, file, text)
                    manifest = dataclasses.replace(manifest, names=names, names_file=file)
                if propagator is None:
                    writer = _resumed(directory, manifest, None, **options)
                else:
                    if known < nodes:
                        propagator.apply(Batch(new_nodes=nodes - known))
                    writer = _Writer(directory, manifest, propagator, **options)
                    if known < nodes:
                        writer.grow(known)
                    else:
                        manifest.write(directory)
                    writer.restore()
                    writer.look_at_all()  # it may have been repaired since
            writer.run(steps)
        self.refresh()

    def _check_same_stream(self, events: EventStream | Steps, manifest: _Manifest) -> None:
        if not isinstance(events, EventStream):
            return
        if manifest.unit is not None and events.unit != manifest.unit:
            raise EventError(
                f"the events count time in {events.unit!r}, the store in {manifest.unit!r}"
            )
        if (events.names is None) != (manifest.names is None) and events.nodes > manifest.nodes:
            raise EventError(
                f"the events are between {events.nodes} nodes, the store has {manifest.nodes}, and"
                " only one of them has ids; events that bring new nodes say which are the old ones"
            )
        known = manifest.names
        if events.names is None or known is None:
            return
        if digest(_names_text(events.names, manifest.nodes)) != known:
            raise EventError(
                "the events have other node ids than the store, or number them otherwise;"
                " later.continuing(stream) numbers them as the recorded stream does"
            )

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
        if not _is_number(k, (int, np.integer)) or k < 1:
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
        was at the record (it can only have become less); and the rounding of store and engine. The
        promise is enlarged by the drift of the engine's residuals, `(1 + drift)`, whose largest
        value at the ends of segments stands in the store. Between those drift is not measured, so
        this bound is a promise and not a certificate like `Propagator.error_bound`.
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
        if before.size and (before.max() > _END or before.min() <= _BEGINNING):
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


def _is_number(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


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
