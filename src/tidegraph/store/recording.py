"""Begin a recording, resume one that was interrupted, or append to one that is complete."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.core.durable import only_writer
from tidegraph.core.errors import EventError, ParameterError, StateFileError
from tidegraph.core.resume import make_directory, require_free, require_same
from tidegraph.core.statefile import digest
from tidegraph.engine.channels import is_number
from tidegraph.engine.propagator import Propagator
from tidegraph.events.batch import Batch
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream
from tidegraph.store.manifest import (
    MANIFEST,
    NAMES,
    OWN_FILE,
    StoreManifest,
    checkpoint_path,
    checkpoints,
    graph_digest,
    names_text,
    part_of,
    recorded_from,
    write_names,
)
from tidegraph.store.segments import Layout
from tidegraph.store.writer import Writer

SEGMENT_BYTES = 1 << 27  # of records, after which a segment is sealed


def record_into(
    directory: Path,
    events: EventStream | Steps,
    propagator: Propagator,
    epsilon: float,
    layout: Layout,
    segment_bytes: int,
    *,
    resume: bool,
    **options: Any,
) -> None:
    """Record all events to a directory, or resume what was begun there; see `record`.

    options: those of `Writer`.
    """
    steps = _as_steps(events)
    if not is_number(epsilon, (int, float, np.integer, np.floating)) or not 0 <= epsilon < 1:
        raise ParameterError(f"epsilon is {epsilon!r}; give a number from 0 to below 1")
    _check_nodes(steps, propagator.nodes)
    make_directory(directory)
    with only_writer(directory):
        if (directory / MANIFEST).exists():
            if not resume:
                raise ParameterError(
                    f"{directory} already holds a store; resume it, or give another path"
                )
            manifest = StoreManifest.read(directory)
            _require_same(manifest, propagator, directory, epsilon=epsilon, dtype=layout.dtype)
            _check_initial_graph(manifest, propagator, steps, directory)
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
    require_free(directory, "a store", own=OWN_FILE, error=ParameterError)
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
        **recorded_from(propagator),
    )


def _require_same(
    manifest: StoreManifest, propagator: Propagator, directory: Path, **options: Any
) -> None:
    """Raise ParameterError unless the propagator computes what was recorded, with such options."""
    require_same(
        directory,
        vars(manifest),
        {**recorded_from(propagator), **options},
        kind="a store",
        advice="give the same, or another path",
        error=ParameterError,
    )


def append_to(
    directory: Path,
    events: EventStream | Steps,
    propagator: Propagator | None,
    **options: Any,
) -> None:
    """Record further events after those of a store; see `Trajectories.append`."""
    steps = _as_steps(events)
    with only_writer(directory):
        manifest = StoreManifest.read(directory)
        _check_same_stream(events, manifest)
        known = nodes = manifest.nodes
        if isinstance(events, EventStream) and manifest.complete:
            nodes = max(nodes, events.nodes)
        _check_nodes(steps, nodes)
        if nodes > known and manifest.propagator["sketch"] is None:
            raise EventError(
                f"the events are between {nodes} nodes, the store has {known}; the features of new"
                " nodes are unknown, since features were given as an array: record all again"
            )
        if propagator is not None:
            _require_same(manifest, propagator, directory)
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
            file = f"{NAMES}.{digest([text])[:16]}"  # the old file counts until all is published
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


# Checks ------------------------------------------------------------------------------------------


def _as_steps(events: EventStream | Steps) -> Steps:
    """Return the steps of a stream, one per distinct time, or steps as they are."""
    if isinstance(events, EventStream):
        return events.steps()
    if not isinstance(events, Steps):
        raise EventError(f"got {type(events).__name__}; give an EventStream or Steps")
    return events


def _check_nodes(steps: Steps, nodes: int) -> None:
    """Raise EventError unless all events are between nodes that exist."""
    for name, numbers in (("src", steps.src), ("dst", steps.dst)):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < nodes:
            raise EventError(
                f"{name} has nodes {numbers.min()} to {numbers.max()}; there are nodes 0 to"
                f" {nodes - 1}"
            )


def _check_same_stream(events: EventStream | Steps, manifest: StoreManifest) -> None:
    """Raise EventError if a stream has other nodes or another unit of time than the store."""
    if not isinstance(events, EventStream):
        return
    if manifest.unit is not None and events.unit != manifest.unit:
        raise EventError(
            f"the events count time in {events.unit!r}, the store in {manifest.unit!r}"
        )
    if (events.names is None) != (manifest.names is None) and events.nodes > manifest.nodes:
        raise EventError(
            f"the events are between {events.nodes} nodes, the store has {manifest.nodes}, and"
            " only one of them has node names; new nodes can be appended if both or neither do"
        )
    if events.names is None or manifest.names is None:
        return
    if digest([names_text(events.names, manifest.nodes)]) != manifest.names:
        raise EventError(
            "the events have other node names than the store, or number them differently;"
            " later.continuing(stream) numbers them as in the recorded stream"
        )


def _check_initial_graph(
    manifest: StoreManifest, propagator: Propagator, steps: Steps, directory: Path
) -> None:
    """Raise ParameterError if the propagator starts from another graph than was recorded.

    A propagator that has already applied some of the steps cannot be checked, and passes.
    """
    now = propagator.time
    unused = now in (None, manifest.begun) or (len(steps.t) > 0 and now < steps.t[0])
    if manifest.graph is None or not unused:
        return
    if (now, graph_digest(propagator)) != (manifest.begun, manifest.graph):
        raise ParameterError(
            f"{directory} was recorded from another initial graph; start from the same edges, or"
            " record to another path"
        )
