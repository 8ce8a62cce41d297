"""What is answered about a time does not depend on anything that happens then or later."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegraph as tg
from tidegraph import Channel, EventStream, Propagator, Sketch, Trajectories
from tidegraph.store.trajectories import ChangeKind

NODES = 6
CHANNELS = (
    Channel.low_pass(),
    Channel.high_pass(half_life=3.0),
    Channel.low_pass(window=4),
    Channel.low_pass(last=3),
)
Event = tuple[int, int, int, float]  # t, src, dst, weight

# Few distinct times, so that most events share theirs with others.
events = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.integers(0, NODES - 1),
        st.integers(0, NODES - 1),
        st.sampled_from([1.0, 0.3, 7.0]),
    ),
    max_size=20,
)


def stream_of(rows: Sequence[Event]) -> EventStream:
    ordered = sorted(rows, key=lambda row: row[0])  # stable: ties stay as they are listed
    columns = list(zip(*ordered, strict=True)) or [(), (), (), ()]
    t, src, dst = (np.array(column, dtype=np.int64) for column in columns[:3])
    return EventStream(src=src, dst=dst, t=t, weight=np.array(columns[3], float), nodes=NODES)


def recorded(rows: Sequence[Event], path: Path, **options: Any) -> Trajectories:
    propagator = Propagator(Sketch(3), nodes=NODES, channels=CHANNELS)
    return tg.record(stream_of(rows), propagator, path, **options)


def answers(store: Trajectories, t: int) -> bytes:
    """Everything that can be asked about the time before `t`."""
    nodes, times = np.arange(NODES), np.full(NODES, t)
    parts: list[Any] = [store.state(nodes, times)]
    for g in get_args(ChangeKind):
        parts += store.window(nodes, times, 5, g)
    for node in range(NODES):
        when, states = store.changes(node)
        parts += [when[when < t], states[when < t]]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


@settings(max_examples=30, deadline=None)
@given(
    past=events,
    futures=st.tuples(events, events),
    t=st.integers(0, 9),
    segment_bytes=st.sampled_from([1, 400, 1 << 20]),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_no_answer_depends_on_events_at_or_after_its_time(
    tmp_path_factory: pytest.TempPathFactory,
    past: list[Event],
    futures: tuple[list[Event], list[Event]],
    t: int,
    segment_bytes: int,
    dtype: str,
) -> None:
    """Two streams that agree before `t`, and from `t` on have nothing to do with each other."""
    before = [row for row in past if row[0] < t]
    seen = []
    for future in futures:
        path = tmp_path_factory.mktemp("store")
        rows = before + [(t + row[0], *row[1:]) for row in future]
        store = recorded(rows, path, segment_bytes=segment_bytes, dtype=dtype)
        seen.append(answers(store, t))
        shutil.rmtree(path)
    assert seen[0] == seen[1]


@settings(max_examples=15, deadline=None)
@given(past=events, data=st.data())
def test_changing_adding_or_removing_one_event_changes_nothing_up_to_its_time(
    tmp_path_factory: pytest.TempPathFactory, past: list[Event], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("store")
    original = recorded(past, path / "original")
    added = (data.draw(st.integers(0, 8)), 0, data.draw(st.integers(0, NODES - 1)), 5.0)
    others = {"added": ([*past, added], added[0])}
    if past:
        victim = data.draw(st.integers(0, len(past) - 1))
        rest = past[:victim] + past[victim + 1 :]
        t, src, dst, weight = past[victim]
        others["removed"] = (rest, t)
        others["changed"] = ([*rest, (t, dst, (src + 1) % NODES, weight + 1)], t)
    for name, (rows, t) in others.items():
        other = recorded(rows, path / name)
        for asked in range(-1, t + 1):
            assert answers(other, asked) == answers(original, asked)
    shutil.rmtree(path)


def test_an_event_is_seen_right_after_its_time(tmp_path: Path) -> None:
    """The answers above are not all the same: what happened does show, one moment later."""
    with_it = recorded([(1, 0, 1, 1.0), (4, 2, 3, 1.0)], tmp_path / "with")
    without = recorded([(1, 0, 1, 1.0)], tmp_path / "without")
    assert answers(with_it, 4) == answers(without, 4)
    assert answers(with_it, 5) != answers(without, 5)
    assert with_it.window([2], [5], 1)[1].tolist() == [[1]]


def test_appended_events_leave_earlier_answers_alone(tmp_path: Path) -> None:
    store = recorded([(1, 0, 1, 1.0), (4, 2, 3, 1.0)], tmp_path)
    before = [answers(store, t) for t in range(5)]
    store.append(stream_of([(4, 0, 2, 1.0), (4, 1, 5, 1.0), (9, 0, 1, 1.0)]))
    assert [answers(store, t) for t in range(5)] == before
