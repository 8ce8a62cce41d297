"""What a store is recorded from: the steps, the propagator, and their fingerprints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.core.errors import EventError, ParameterError
from tidegraph.core.statefile import digest
from tidegraph.engine.propagator import Propagator
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream
from tidegraph.store.manifest import Part, StoreManifest, names_text
from tidegraph.store.segments import PIECE_BYTES

__all__ = [
    "as_steps",
    "check_initial_graph",
    "check_nodes",
    "check_same_stream",
    "first_steps",
    "graph_digest",
    "part_of",
    "recorded_from",
]


# Steps --------------------------------------------------------------------------------------------


def as_steps(events: EventStream | Steps) -> Steps:
    """Return the steps of a stream, one per distinct time, or steps as they are."""
    if isinstance(events, EventStream):
        return events.steps()
    if not isinstance(events, Steps):
        raise EventError(f"got {type(events).__name__}; give an EventStream or Steps")
    return events


def first_steps(steps: Steps, count: int) -> Steps:
    """Return the first `count` steps."""
    columns = (steps.src, steps.dst, steps.t, steps.weight, steps.op)
    rows = (None if column is None else column[: steps.offsets[count]] for column in columns)
    return Steps(*rows, steps.offsets[: count + 1], steps.times[:count])


def part_of(steps: Steps) -> Part:
    """Return steps as the manifest names them: by digest and number."""
    columns = (steps.src, steps.dst, steps.t, steps.weight, steps.op, steps.offsets, steps.times)
    return Part(digest(b"-" if column is None else column for column in columns), len(steps))


def check_nodes(steps: Steps, nodes: int) -> None:
    """Raise EventError unless all events are between nodes that exist."""
    for name, numbers in (("src", steps.src), ("dst", steps.dst)):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < nodes:
            raise EventError(
                f"{name} has nodes {numbers.min()} to {numbers.max()}; there are nodes 0 to"
                f" {nodes - 1}"
            )


def check_same_stream(events: EventStream | Steps, manifest: StoreManifest) -> None:
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


# Propagators --------------------------------------------------------------------------------------


def recorded_from(propagator: Propagator) -> dict[str, Any]:
    """Return what decides what a propagator computes, as the manifest has it."""
    return {
        "propagator": json.loads(json.dumps(propagator._description())),
        "thresholds": tuple(propagator._thresholds.tolist()),
        "features": _features_digest(propagator),
    }


def _features_digest(propagator: Propagator) -> str:
    """Return the digest of all features, read in pieces."""
    step = max(1, PIECE_BYTES // (8 * propagator.columns))
    return digest(
        propagator.features(np.arange(first, min(first + step, propagator.nodes)))
        for first in range(0, propagator.nodes, step)
    )


def graph_digest(propagator: Propagator) -> str:
    """Return the digest of all edges, whatever their order."""
    src, dst, weight = propagator.edges()
    order = np.lexsort((dst, src))
    return digest(column[order] for column in (src, dst, weight))


def check_initial_graph(
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
