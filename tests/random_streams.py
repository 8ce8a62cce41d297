"""Small random streams, for tests of evaluation."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tidegraph.evaluation import heuristics
from tidegraph.events.stream import EventStream, NodeLabels

IntArray = NDArray[np.int64]

SEEDS = st.integers(0, 2**32 - 1)


def random_stream(seed: int, *, events: int = 400, nodes: int = 30, span: int = 200) -> EventStream:
    """Events between two sides, with many repeated pairs and many equal times."""
    generator = np.random.default_rng(seed)
    src = generator.integers(0, nodes // 2, events)
    dst = nodes // 2 + (src * generator.integers(1, 4, events)) % (nodes - nodes // 2)
    t = np.sort(generator.integers(0, span, events))
    return EventStream(src, dst, t, nodes)


def crowd(seed: int, *, events: int = 500, per_time: int = 8) -> EventStream:
    """Any of 40 nodes with any other, many at a time: repeats, replies and ties."""
    src, dst = np.random.default_rng(seed).integers(0, 40, (2, events))
    return EventStream(src, dst, np.arange(events) // per_time, 40)


def batches(stream: EventStream, first: int, size: int = 40) -> list[EventStream]:
    return [stream[begin : begin + size] for begin in range(first, len(stream), size)]


def pairs(src: IntArray, dst: IntArray) -> set[tuple[int, int]]:
    return set(zip(src.tolist(), dst.tolist(), strict=True))


def every_heuristic() -> list[heuristics.Heuristic]:
    return [*heuristics.link_heuristics(20.0), *heuristics.snapshot_heuristics(15.0)]


def labelled(seed: int) -> tuple[EventStream, NodeLabels]:
    stream = random_stream(seed)
    label = (stream.src % 2).astype(np.int64)  # a node never changes its class
    part = np.digitize(stream.t, [100, 150]).astype(np.uint8)
    return stream, NodeLabels(stream.src, stream.t, label, part)
