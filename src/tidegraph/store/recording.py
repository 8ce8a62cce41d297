"""Begin a recording, resume one that was interrupted, or append to one that is complete."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.core.durable import not_written, only_writer
from tidegraph.core.errors import EventError, ParameterError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import is_number
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream
from tidegraph.store.inputs import (
    as_steps,
    check_initial_graph,
    check_nodes,
    check_propagator,
    check_same_stream,
    features_digest,
    graph_digest,
    part_of,
    settings_of,
)
from tidegraph.store.manifest import (
    MANIFEST,
    NAMES,
    OWN_FILE,
    StoreManifest,
    checkpoint_path,
    checkpoints,
    names_text,
    write_names,
)
from tidegraph.store.segments import Layout, StoreDtype, digest
from tidegraph.store.writer import Watch, Writer

__all__ = ["SEGMENT_BYTES", "append_to", "new_manifest", "record_into"]

SEGMENT_BYTES = 1 << 27  # of records, after which a segment is sealed


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
    watch: Watch | None,
) -> None:
    """Record all events to a directory, or resume what was begun there; see `record`."""
    steps = as_steps(events)
    if not is_number(epsilon, (int, float, np.integer, np.floating)) or not 0 <= epsilon < 1:
        raise ParameterError(f"epsilon is {epsilon!r}; give a number from 0 to below 1")
    layout = Layout(len(propagator.channels), propagator.columns, dtype)
    check_nodes(steps, propagator.nodes)
    options: dict[str, Any] = {
        "progress": progress,
        "checkpoint_every_s": checkpoint_every_s,
        "watch": watch,
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(directory, error) from error
    with only_writer(directory):
        if (directory / MANIFEST).exists():
            if not resume:
                raise ParameterError(
                    f"{directory} already holds a store; resume it, or give another path"
                )
            manifest = StoreManifest.read(directory)
            check_propagator(manifest, propagator, directory)
            if (epsilon, dtype) != (manifest.epsilon, manifest.dtype):
                raise ParameterError(
                    f"{directory} was recorded with epsilon={manifest.epsilon},"
                    f" dtype={manifest.dtype!r}; give the same, or another path"
                )
            check_initial_graph(manifest, propagator, steps, directory)
            if part_of(steps).digest != manifest.parts[-1].digest:
                raise EventError(
                    f"{directory} was recorded from other events; give another path, or open it"
                    " and append to it"
                )
            writer = _resume(directory, manifest, propagator, **options)
        else:
            manifest = new_manifest(
                directory, events, steps, propagator, float(epsilon), layout, segment_bytes
            )
            writer = Writer(directory, manifest, propagator, **options)
            writer.begin()
        if not writer.manifest.complete:
            writer.run(steps)


def new_manifest(
    directory: Path,
    events: EventStream | Steps,
    steps: Steps,
    propagator: Propagator,
    epsilon: float,
    layout: Layout,
    segment_bytes: int,
) -> StoreManifest:
    """Return the manifest of a store before its first step; write the node names next to it."""
    strangers = [name for path in directory.iterdir() if not OWN_FILE.fullmatch(name := path.name)]
    if strangers:
        raise ParameterError(
            f"{directory} holds {strangers[0]} and no store; give an empty or a new directory"
        )
    for leftover in directory.iterdir():  # from a run that ended before it wrote a manifest
        leftover.unlink()
    names, unit = None, None
    if isinstance(events, EventStream):
        unit = events.unit
        if events.names is not None:
            names = write_names(directory, NAMES, names_text(events.names))
    return StoreManifest(
        nodes=propagator.nodes,
        columns=propagator.columns,
        dtype=layout.dtype,
        epsilon=epsilon,
        unit=unit,
        names=names,
        propagator=settings_of(propagator),
        thresholds=tuple(propagator._thresholds.tolist()),
        features=features_digest(propagator),
        segment_records=max(1, segment_bytes // layout.record_bytes),
        parts=(part_of(steps),),
        steps=0,
        time=None,
        complete=False,
        events=propagator.statistics()["events"],
        drift=(0.0,) * layout.channels,
        segments=(),
        begun=propagator.time,
        graph=graph_digest(propagator),
    )


def append_to(
    directory: Path,
    events: EventStream | Steps,
    propagator: Propagator | None,
    *,
    progress: Progress | None,
    checkpoint_every_s: float,
) -> None:
    """Record further events after those of a store; see `Trajectories.append`."""
    steps = as_steps(events)
    options: dict[str, Any] = {"progress": progress, "checkpoint_every_s": checkpoint_every_s}
    with only_writer(directory):
        manifest = StoreManifest.read(directory)
        check_same_stream(events, manifest)
        known = nodes = manifest.nodes
        if isinstance(events, EventStream) and manifest.complete:
            nodes = max(nodes, events.nodes)
        check_nodes(steps, nodes)
        if nodes > known and manifest.propagator["sketch"] is None:
            raise EventError(
                f"the events are between {nodes} nodes, the store has {known}; the features of new"
                " nodes are unknown, since features were given as an array: record all again"
            )
        if propagator is not None:
            check_propagator(manifest, propagator, directory)
        part = part_of(steps)
        if not manifest.complete:
            if part != manifest.parts[-1]:
                raise EventError(
                    f"{directory} is not finished: append the events that were being recorded first"
                )
            _resume(directory, manifest, propagator, **options).run(steps)
            return
        _check_continues(manifest, steps, propagator, directory)
        manifest = dataclasses.replace(
            manifest, parts=(*manifest.parts, part), complete=False, nodes=nodes
        )
        if known < nodes and isinstance(events, EventStream) and events.names is not None:
            text = names_text(events.names)
            file = f"{NAMES}.{digest(text)[:16]}"  # the old file counts until all is published
            names = write_names(directory, file, text)
            manifest = dataclasses.replace(manifest, names=names, names_file=file)
        if propagator is None:
            _resume(directory, manifest, None, **options).run(steps)
            return
        writer = _restored(directory, manifest, propagator, **options)
        writer.look_at_all()  # the propagator may have been repaired since
        writer.run(steps)


def _check_continues(
    manifest: StoreManifest, steps: Steps, propagator: Propagator | None, directory: Path
) -> None:
    """Raise EventError unless steps and propagator continue a complete store."""
    if len(steps) and manifest.time is not None and steps.times[0] < manifest.time:
        raise EventError(
            f"the events begin at {steps.times[0]}; {directory} is recorded up to"
            f" {manifest.time}: append events that are not earlier"
        )
    if propagator is None:
        return
    seen = propagator.statistics()["events"]
    if seen != manifest.events:
        raise EventError(
            f"the propagator has seen {seen} events; this store continues after {manifest.events}:"
            " leave the propagator out to continue with the stored one"
        )


def _resume(
    directory: Path, manifest: StoreManifest, propagator: Propagator | None, **options: Any
) -> Writer:
    """Return a writer at the newest checkpoint, whose state the given propagator takes over."""
    steps = max(checkpoints(directory), default=None)
    if steps is None:
        raise StateFileError(
            f"{directory} has no checkpoint of its propagator to resume from; record again"
        )
    # No segment spans the checkpoint, since one is saved before every merge.
    segments = tuple(entry for entry in manifest.segments if entry.until <= steps)
    manifest = dataclasses.replace(manifest, segments=segments, steps=steps)
    threads = None if propagator is None else propagator.threads
    saved = Propagator.load(checkpoint_path(directory, steps), threads=threads)
    if propagator is None:
        propagator = saved
    else:
        propagator._become(saved)
    return _restored(directory, manifest, propagator, **options)


def _restored(
    directory: Path, manifest: StoreManifest, propagator: Propagator, **options: Any
) -> Writer:
    """Return a writer that continues after the last record, with all nodes of the manifest."""
    if propagator.nodes < manifest.nodes:
        propagator.apply(Batch(new_nodes=manifest.nodes - propagator.nodes))
    writer = Writer(directory, manifest, propagator, **options)
    known = manifest.segments[0].nodes
    if known < manifest.nodes:
        writer.grow(known)
    else:
        manifest.write(directory)
    writer.restore()
    return writer
