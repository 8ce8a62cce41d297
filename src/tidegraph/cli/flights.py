"""The demo: a year of flights through the engine, its cost, its certificates, and who moved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.engine.verify import Replay
from tidegraph.events import datasets
from tidegraph.events.stream import EventStream

DATA = "nyc-flights"
HALF_LIFE_DAYS = 7
_COLUMNS = 64
_RECENT = 2  # the channel that forgets
_MOVERS = 5
_NEW_YORK = -5 * 3600  # its standard time, in which the data's year begins
_LAST_MONTH = np.datetime64("2013-12", "M")  # delayed departures on its last night belong to it


@dataclass(frozen=True)
class Month:
    """What the events of a month did."""

    name: str  # as in 2013-01
    events: int
    events_per_s: float
    touched_per_step: float
    certified_over_promised: tuple[float, ...]  # per channel, at the end of the month


@dataclass(frozen=True)
class Mover:
    """A node whose representation moved far in the last month of the stream."""

    name: str
    kind: str
    flights: int
    moved: float  # RMS over the columns, in units of a typical feature value
    uncertainty: float  # how far the exact move may be from it


@dataclass(frozen=True)
class Story:
    """All that the demo shows."""

    title: str
    nodes: int
    steps: int
    events: int
    engine_s: float
    r_max: float
    channels: tuple[str, ...]
    months: tuple[Month, ...]
    movers: tuple[Mover, ...]


def stream_flights(*, threads: int | None = None, progress: Progress | None = None) -> Story:
    """Stream the shipped flights, a step per distinct time, and measure after every month."""
    events = datasets.load_dataset(DATA)
    half_life = HALF_LIFE_DAYS * 86_400
    filters = Channel.low_pass(), Channel.high_pass(), Channel.low_pass(half_life=half_life)
    propagator = Propagator(Sketch(_COLUMNS), nodes=events.nodes, channels=filters, threads=threads)
    by_time = events.steps()
    replay = Replay(propagator, by_time, progress=progress)
    local = (by_time.times + _NEW_YORK).astype("datetime64[s]")
    month_of = np.minimum(local.astype("datetime64[M]"), _LAST_MONTH)
    last_steps = np.flatnonzero(np.append(month_of[1:] != month_of[:-1], True)) + 1
    months: list[Month] = []
    recent, bound = _recent(propagator)
    first_event = 0
    for last_step in last_steps.tolist():
        recent_before, bound_before, first_event = recent, bound, replay.events
        steps, touched, elapsed_s = replay.steps, replay.touched, replay.elapsed_s
        replay.advance(last_step)
        recent, bound = _recent(propagator)
        certified = (propagator.error_bound() / propagator.threshold()).max(axis=(0, 2))
        months.append(
            Month(
                name=str(month_of[last_step - 1]),
                events=replay.events - first_event,
                events_per_s=(replay.events - first_event) / (replay.elapsed_s - elapsed_s),
                touched_per_step=(replay.touched - touched) / (replay.steps - steps),
                certified_over_promised=tuple(certified.tolist()),
            )
        )
    moved = _rms(recent - recent_before)
    return Story(
        title=events.title,
        nodes=events.nodes,
        steps=replay.steps,
        events=replay.events,
        engine_s=replay.elapsed_s,
        r_max=propagator.r_max,
        channels=("low-pass", "high-pass", f"low-pass, half-life {HALF_LIFE_DAYS} days"),
        months=tuple(months),
        movers=_movers(events, first_event, moved, _rms(bound + bound_before)),
    )


def _recent(propagator: Propagator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return estimates and bounds `[nodes, columns]` in the channel that forgets."""
    estimate = propagator.embedding()[:, _RECENT].astype(np.float64)
    return estimate, propagator.error_bound()[:, _RECENT]


def _rms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(np.mean(np.square(rows), axis=1)))


def _movers(
    events: EventStream,
    first_event: int,
    moved: NDArray[np.float64],
    uncertainty: NDArray[np.float64],
) -> tuple[Mover, ...]:
    """Return those that moved most among the airports, and among the planes."""
    movers: list[Mover] = []
    for kind, all_ids in (("airport", events.dst), ("plane", events.src)):
        ids = np.unique(all_ids)
        nodes = ids[np.argsort(-moved[ids], kind="stable")][:_MOVERS]
        flights = np.bincount(all_ids[first_event:], minlength=events.nodes)
        columns = (events.name(nodes), flights[nodes], moved[nodes], uncertainty[nodes])
        rows = zip(*(column.tolist() for column in columns), strict=True)
        movers += [Mover(str(name), kind, *numbers) for name, *numbers in rows]
    return tuple(movers)
