"""Which events a model may learn from, and which evaluate it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidegraph.core.errors import DataError, EvaluationError, ParameterError
from tidegraph.events.columns import IntArray
from tidegraph.events.moments import PER_SECOND, SECONDS
from tidegraph.events.stream import EventStream, NodeLabels

PARTS = ("validation", "new_validation", "test", "new_test")
_NEEDED = ("train", "validation", "test")
_NOBODY: IntArray = np.zeros(0, dtype=np.int64)

# Snapshot width and first test task of the published fixed splits. The first tasks do
# not follow from the number of snapshots: both Bitcoin graphs have 138, and theirs differ by one.
ROLAND_SETTINGS = {
    "uci": {"width_s": 190_080, "first_test": 72},
    "bitcoin-otc": {"width_s": 1_200_000, "first_test": 110},
    "bitcoin-alpha": {"width_s": 1_200_000, "first_test": 109},
}


@dataclass(frozen=True, eq=False, slots=True)
class Split:
    """Ascending positions in a stream, by purpose.

    `new_validation` and `new_test` are the events of their part that touch a node which no
    training event touches. `held_out` are the nodes whose events were excluded from training on
    purpose. An event belongs to validation when `validation_time < t <= test_time`, to test later.
    """

    name: str
    train: IntArray
    validation: IntArray
    test: IntArray
    new_validation: IntArray
    new_test: IntArray
    validation_time: float
    test_time: float
    held_out: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    parameters: dict[str, Any] = field(default_factory=dict)

    def part(self, name: str) -> IntArray:
        """Return the positions of `validation`, `new_validation`, `test` or `new_test`."""
        if name not in PARTS:
            raise ParameterError(f"a split has no part {name!r}; give one of {', '.join(PARTS)}")
        rows: IntArray = getattr(self, name)
        return rows

    def sizes(self) -> dict[str, int]:
        """Return the number of events per part."""
        return {name: len(getattr(self, name)) for name in ("train", *PARTS)}


@dataclass(frozen=True, eq=False, slots=True)
class SnapshotSplit:
    """Snapshots of a stream, and the tasks on them: from snapshots <= k predict the edges of k+1.

    `index[e]` is the number of event `e`'s snapshot, or -1 if that snapshot was dropped.
    """

    name: str
    index: IntArray
    snapshots: int
    train: range  # of tasks
    validation: range
    test: range
    parameters: dict[str, Any] = field(default_factory=dict)

    def part(self, name: str) -> range:
        """Return the tasks of `train`, `validation` or `test`."""
        if name not in _NEEDED:
            raise ParameterError(f"no tasks are called {name!r}; give train, validation or test")
        tasks: range = getattr(self, name)
        return tasks

    def sizes(self) -> dict[str, int]:
        """Return the number of snapshots, and of tasks per part."""
        return {"snapshots": self.snapshots, **{name: len(self.part(name)) for name in _NEEDED}}


def tgn_split(
    stream: EventStream,
    *,
    seed: int = 2020,
    validation: float = 0.15,
    test: float = 0.15,
    new_nodes: float = 0.1,
) -> Split:
    """Split as the TGN paper does: by quantiles of time, some nodes hidden from training.

    Of the nodes that occur after `validation_time`, `int(new_nodes · nodes)` are drawn and every
    training event that touches one is dropped. The draw depends on numbers that start at 1 and on
    the order in which CPython lists a set of integers; this code repeats both, so that sizes and
    results compare with published ones event by event.
    """
    if not 0 <= new_nodes < 1:
        raise ParameterError(f"new_nodes is {new_nodes}; give a share of the nodes in [0, 1)")
    bounds = _quantiles(stream, validation, test)
    later = stream.t > bounds[0]
    seen_later = tuple(
        set((stream.src[later] + 1).tolist()) | set((stream.dst[later] + 1).tolist())
    )
    present = len(np.union1d(stream.src, stream.dst))
    wanted = int(new_nodes * present)
    if wanted > len(seen_later):
        raise EvaluationError(
            f"{wanted} nodes are to be hidden, but only {len(seen_later)} occur after training; "
            f"lower new_nodes={new_nodes}"
        )
    drawn = random.Random(seed).sample(seen_later, wanted)
    held_out = np.sort(np.array(drawn, dtype=np.int64)) - 1
    parameters = {"seed": seed, "validation": validation, "test": test, "new_nodes": new_nodes}
    return _split("tgn", stream, bounds, held_out, parameters)


def tgb_split(stream: EventStream, *, validation: float = 0.15, test: float = 0.15) -> Split:
    """Split as the Temporal Graph Benchmark does: by quantiles of time, no node hidden."""
    bounds = _quantiles(stream, validation, test)
    parameters = {"validation": validation, "test": test}
    return _split("tgb", stream, bounds, _NOBODY, parameters)


def node_split(stream: EventStream) -> Split:
    """Return the split of node labels that divide the nodes themselves: every event is known."""
    last = int(stream.t[-1])
    empty = (_NOBODY,) * 4
    return Split("nodes at random", np.arange(len(stream)), *empty, last, last)


def time_split(stream: EventStream, *, validation_time: float, test_time: float) -> Split:
    """Train up to and including `validation_time`, validate up to `test_time`, test after it.

    With `test_time=inf` there is no test part.
    """
    if not validation_time < test_time:
        raise ParameterError(
            f"validation_time {validation_time} is not before test_time {test_time}; swap them"
        )
    needed = ("train", "validation") if test_time == np.inf else _NEEDED
    return _split("time", stream, (validation_time, test_time), _NOBODY, {}, needed)


def latest_split(stream: EventStream, validation: float = 0.15) -> Split:
    """Validate by the latest events, this share of all, and train on the others; nothing tests.

    Where most events are at the last time, none may be left to validate.
    """
    if len(stream) == 0:
        raise DataError("the stream holds no events; nothing can be learned")
    bound = float(np.quantile(stream.t, 1 - validation))
    return _split("time", stream, (bound, np.inf), _NOBODY, {}, needed=())


def _quantiles(stream: EventStream, validation: float, test: float) -> tuple[float, float]:
    if not (validation > 0 and test > 0 and validation + test < 1):
        raise ParameterError(
            f"validation={validation} and test={test} are shares of the events; "
            "both must be above 0 and leave some for training"
        )
    if len(stream) == 0:
        raise EvaluationError("the stream holds no events; there is nothing to split")
    first, second = np.quantile(stream.t, [1 - validation - test, 1 - test])
    return float(first), float(second)


def _split(
    name: str,
    stream: EventStream,
    bounds: tuple[float, float],
    held_out: IntArray,
    parameters: dict[str, Any],
    needed: Sequence[str] = _NEEDED,
) -> Split:
    """Return the split at two times; raise EvaluationError if a part that is needed is empty."""
    first, second = bounds
    hidden = np.zeros(stream.nodes, dtype=bool)
    hidden[held_out] = True
    is_train = (stream.t <= first) & ~hidden[stream.src] & ~hidden[stream.dst]
    is_test = stream.t > second
    is_validation = (stream.t > first) & ~is_test
    masks = {"train": is_train, "validation": is_validation, "test": is_test}
    for part in needed:
        if not masks[part].any():
            raise EvaluationError(
                f"no event is left for {part}: of {len(stream):,} events {is_train.sum():,} are for"
                f" train, {is_validation.sum():,} for validation and {is_test.sum():,} for test;"
                " give more events, or other times to divide them at"
            )
    known = np.zeros(stream.nodes, dtype=bool)
    known[stream.src[is_train]] = True
    known[stream.dst[is_train]] = True
    touches_new = ~known[stream.src] | ~known[stream.dst]
    return Split(
        name=name,
        **{part: np.flatnonzero(mask) for part, mask in masks.items()},
        new_validation=np.flatnonzero(is_validation & touches_new),
        new_test=np.flatnonzero(is_test & touches_new),
        validation_time=first,
        test_time=second,
        held_out=held_out,
        parameters=parameters,
    )


def roland_split(
    stream: EventStream,
    *,
    width_s: int,
    first_test: int,
    validation: float = 0.1,
    least_edges: int = 2,
) -> SnapshotSplit:
    """Cut snapshots of `width_s` seconds and split the tasks on them as ROLAND does.

    A snapshot is `floor(t / width)` of the absolute time; those with fewer than `least_edges`
    events are dropped and the others numbered from 0. Test tasks run from `first_test` to the last
    one that has a successor; the share `validation` of all tasks, just before them, validates. See
    `ROLAND_SETTINGS` for the published values.
    """
    width = in_units(width_s, stream.unit)
    occupied, position, events = np.unique(
        stream.t // width, return_inverse=True, return_counts=True
    )
    kept = events >= least_edges
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    snapshots = int(kept.sum())
    tasks = snapshots - 1
    checked = round(validation * tasks)
    if first_test <= checked or first_test >= tasks:
        raise EvaluationError(
            f"first_test={first_test} with {checked} validation tasks before it does not fit "
            f"{snapshots} snapshots of {width_s} s ({len(occupied)} occupied), which make tasks "
            f"0..{tasks - 1}; choose another width_s or first_test"
        )
    return SnapshotSplit(
        name="roland",
        index=number[position.reshape(-1)].astype(np.int64),
        snapshots=snapshots,
        train=range(first_test - checked),
        validation=range(first_test - checked, first_test),
        test=range(first_test, tasks),
        parameters={"width_s": width_s, "first_test": first_test, "least_edges": least_edges},
    )


def in_units(width_s: int, unit: str) -> int:
    """Return a number of seconds in a unit of time."""
    if width_s < 1:
        raise ParameterError(f"width_s is {width_s}; a snapshot must last at least a second")
    if unit in PER_SECOND:
        return width_s * PER_SECOND[unit]
    if unit in SECONDS and width_s % SECONDS[unit] == 0:
        return int(width_s // SECONDS[unit])
    raise ParameterError(
        f"snapshots of {width_s} s cannot be cut from times in {unit!r}; give a multiple of the"
        f" unit ({', '.join(SECONDS)} are understood)"
    )


def label_split(stream: EventStream, split: Split) -> NodeLabels:
    """Return the state labels of the events' sources as examples, divided at the split's times.

    Nodes hidden from link training are not hidden here: as usual for this task, every event up to
    `validation_time` trains.
    """
    if stream.labels is None:
        raise EvaluationError("the stream has no labels; give labels or node_labels")
    part = np.digitize(stream.t, [split.validation_time, split.test_time], right=True)
    return NodeLabels(stream.src, stream.t, stream.labels, part.astype(np.uint8))
