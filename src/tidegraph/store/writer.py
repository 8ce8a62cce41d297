"""The writing side of a store of trajectories: its manifest, and what moves it forward.

A store is a directory. Records live in segments, files that are written once and never changed;
`manifest.json` lists those that count and is replaced as a whole, so a store is always one that was
complete at some moment. Where segments begin and when they are merged is a function of the records
alone: a run that was killed and resumed leaves the same bytes as one that was not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tidegraph import _native
from tidegraph.core.durable import not_written, only_writer, replace_file
from tidegraph.core.errors import EventError, ParameterError, PrecisionError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import is_number
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch
from tidegraph.events.names import NodeNames
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream
from tidegraph.store.segments import (
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

__all__ = [
    "BEGINNING",
    "SEGMENT_BYTES",
    "Manifest",
    "append_to",
    "new_manifest",
    "record_into",
]

IntArray: TypeAlias = NDArray[np.int64]

_FORMAT = "tidegraph trajectories"
_MANIFEST = "manifest.json"
_NAMES = "names.json"
BEGINNING = np.iinfo(np.int64).min
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
class Manifest:
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
    drift: tuple[float, ...]  # by which an earlier release may have missed the promise, or 0
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

    def reader(self, directory: Path, *, verify: bool = False) -> _native.TrajectoryReader:
        """Answers from the segments; with `verify` they are compared with their digests first."""
        layout = self.layout
        segments = [Segment(directory, layout, entry) for entry in self.segments]
        if verify:
            for segment in segments:
                segment.verify()
        arrays = [segment.native() for segment in segments]
        return _native.TrajectoryReader(layout.channels, layout.columns, layout.half, arrays)

    def write(self, directory: Path) -> None:
        body = {"format": _FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        body["digest"] = _json_digest(body)
        replace_file(directory / _MANIFEST, json.dumps(body, indent=1))

    @classmethod
    def read(cls, directory: Path) -> Manifest:
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
        manifest: Manifest,
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
        store = self.manifest.reader(self._directory)
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
        refusal, of_precision = "", False
        first = self.manifest.steps_before_part
        done = self.manifest.steps - first
        while done < len(steps):
            last = min(done + _STEPS_PER_CALL, len(steps))
            try:
                count, refusal, of_precision = self._propagator._record_steps(
                    self._recorder,
                    steps,
                    steps.offsets[done : last + 1],
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
            kind = PrecisionError if of_precision else EventError
            raise kind(
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
        self._publish(segments=(*self.manifest.segments, entry), steps=until, time=last_time)

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


def _rolled_back(directory: Path, manifest: Manifest) -> tuple[Manifest, Path]:
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


def _steps_of(events: EventStream | Steps) -> Steps:
    if isinstance(events, EventStream):
        return events.steps()
    if not isinstance(events, Steps):
        raise EventError(f"got {type(events).__name__}; give an EventStream or Steps")
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


def _check_propagator(manifest: Manifest, propagator: Propagator, directory: Path) -> None:
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


def _begins_alike(manifest: Manifest, propagator: Propagator, steps: Steps) -> bool:
    """Whether the propagator may have begun with the graph that was recorded from.

    One that has been through steps already says no more where it began.
    """
    now = propagator.time
    begins = now in (None, manifest.begun) or (len(steps.t) > 0 and now < steps.t[0])
    if manifest.graph is None or not begins:
        return True
    return (now, _graph_digest(propagator)) == (manifest.begun, manifest.graph)


def _resumed(
    directory: Path, manifest: Manifest, propagator: Propagator | None, **options: Any
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


# Recording ----------------------------------------------------------------------------------------


def record_into(
    directory: Path,
    events: EventStream | Steps,
    propagator: Propagator,
    *,
    epsilon: float,
    dtype: StoreDtype,
    resume: bool,
    segment_bytes: int,
    progress: Progress | None,
    checkpoint_every_s: float,
) -> None:
    """Records all events to a directory, or goes on with what was begun there; see `record`."""
    steps = _steps_of(events)
    if not is_number(epsilon, (int, float, np.integer, np.floating)) or not 0 <= epsilon < 1:
        raise ParameterError(f"epsilon is {epsilon!r}; give a number from 0 to below 1")
    if dtype not in get_args(StoreDtype):
        raise ParameterError(f"dtype is {dtype!r}; give 'float32' or 'float16'")
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
            manifest = Manifest.read(directory)
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
            manifest = new_manifest(
                directory, events, steps, propagator, float(epsilon), dtype, segment_bytes
            )
            writer = _Writer(directory, manifest, propagator, **options)
            writer.begin()
        if not writer.manifest.complete:
            writer.run(steps)


def new_manifest(
    directory: Path,
    events: EventStream | Steps,
    steps: Steps,
    propagator: Propagator,
    epsilon: float,
    dtype: StoreDtype,
    segment_bytes: int,
) -> Manifest:
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
    return Manifest(
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


def append_to(
    directory: Path,
    events: EventStream | Steps,
    propagator: Propagator | None,
    *,
    progress: Progress | None,
    checkpoint_every_s: float,
) -> None:
    """Records further events behind those of a store; see `Trajectories.append`."""
    steps = _steps_of(events)
    options: dict[str, Any] = {"progress": progress, "checkpoint_every_s": checkpoint_every_s}
    with only_writer(directory):
        manifest = Manifest.read(directory)
        _check_same_stream(events, manifest)
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


def _check_same_stream(events: EventStream | Steps, manifest: Manifest) -> None:
    """Refuses a stream of other nodes, or with another unit of time, than what was recorded."""
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
