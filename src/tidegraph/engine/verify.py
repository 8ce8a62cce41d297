"""The promise checked: a stream replayed through the engine and compared with exact solutions."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import ParameterError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, EngineSettings, Sketch
from tidegraph.engine.precision import Dtype
from tidegraph.engine.propagator import Propagator
from tidegraph.engine.reference import exact_of
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream

_PIECES = 100  # calls in which a replay is applied, so that progress can be shown


def sampled(steps: int, samples: int) -> list[int]:
    """Return up to `samples` evenly spaced step counts, the last of them `steps`."""
    return [int(step) for step in np.unique(np.linspace(0, steps, samples + 1)[1:].round()) if step]


class Replay:
    """Steps that are applied to a propagator in pieces and timed.

    steps, touched, elapsed_s: steps applied so far, nodes they touched, and seconds they took.
    """

    def __init__(
        self, propagator: Propagator, steps: Steps, *, progress: Progress | None = None
    ) -> None:
        self.steps = self.touched = 0
        self.elapsed_s = 0.0
        self._propagator, self._all, self._progress = propagator, steps, progress
        self._piece = max(1, len(steps) // _PIECES)

    @property
    def total(self) -> int:
        """The number of all steps."""
        return len(self._all)

    @property
    def events(self) -> int:
        """The number of events applied so far."""
        return int(self._all.offsets[self.steps])

    def advance(self, until: int) -> None:
        """Apply the steps up to `until`."""
        while self.steps < until:
            last = min(self.steps + self._piece, until)
            start = time.perf_counter()
            touched = self._propagator.apply_steps(self._all[self.steps : last])
            self.elapsed_s += time.perf_counter() - start
            self.touched += int(touched.sum())
            self.steps = last
            self.report(f"{self.events:,} events")

    def report(self, what: str) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(self.steps, len(self._all), what)


@dataclass(frozen=True)
class Sample:
    """The largest errors of the engine after a number of steps."""

    step: int
    events: int
    touched_per_step: float  # since the sample before
    error_over_bound: float  # relative to the certificate, `error_bound`
    error_over_threshold: float  # relative to the promise, `threshold`
    drift: float  # of the stored residuals, in thresholds

    @property
    def holds(self) -> bool:
        """Whether the certificate and the promise hold."""
        return self.error_over_bound <= 1 and self.error_over_threshold <= 1


@dataclass(frozen=True)
class Verification:
    """The errors at the samples of a replay, and the time the engine took."""

    samples: tuple[Sample, ...]
    steps: int
    events: int
    engine_s: float

    @property
    def holds(self) -> bool:
        return all(sample.holds for sample in self.samples)

    @property
    def worst_error_over_bound(self) -> float:
        return max(sample.error_over_bound for sample in self.samples)

    @property
    def worst_error_over_threshold(self) -> float:
        return max(sample.error_over_threshold for sample in self.samples)

    @property
    def drift(self) -> float:
        return max(sample.drift for sample in self.samples)

    @property
    def events_per_s(self) -> float:
        return self.events / self.engine_s


def verify(
    events: EventStream,
    *,
    steps: int | None = None,
    snapshots: int | None = None,
    columns: int = 64,
    r_max: float = EngineSettings.r_max,
    alpha: float = 0.2,
    half_life: float | None = None,
    dtype: Dtype = "float32",
    samples: int = 8,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Return the engine's errors on the first `steps` steps of a stream, or on all; needs scipy.

    It propagates random features through a low-pass and a high-pass channel, and with `half_life`
    through the same two under decay. Exact solutions come from sparse solves in float64 on the
    graph as the engine reports it.
    """
    if samples < 1 or (steps is not None and steps < 1):
        raise ParameterError(f"steps={steps} and samples={samples}; give at least 1 for each")
    replayed = (events.steps() if snapshots is None else events.snapshots(snapshots))[:steps]
    channels = [
        make(alpha, half_life=forgetting)
        for forgetting in ([None] if half_life is None else [None, half_life])
        for make in (Channel.low_pass, Channel.high_pass)
    ]
    propagator = Propagator(
        Sketch(columns, seed=seed),
        nodes=events.nodes,
        channels=channels,
        r_max=r_max,
        dtype=dtype,
        threads=threads,
    )
    replay = Replay(propagator, replayed, progress=progress)
    compared: list[Sample] = []
    for step in sampled(len(replayed), samples):
        steps_before, touched_before = replay.steps, replay.touched
        replay.advance(step)
        replay.report(f"exact solution after {replay.events:,} events")
        touched_per_step = (replay.touched - touched_before) / (step - steps_before)
        compared.append(_compare(propagator, step, replay.events, touched_per_step))
    return Verification(tuple(compared), replay.steps, replay.events, replay.elapsed_s)


def _compare(propagator: Propagator, step: int, events: int, touched_per_step: float) -> Sample:
    error = np.abs(propagator.embedding() - exact_of(propagator))
    return Sample(
        step=step,
        events=events,
        touched_per_step=touched_per_step,
        error_over_bound=_worst(error, propagator.error_bound()),
        error_over_threshold=_worst(error, propagator.threshold()),
        drift=float(propagator.audit().drift.max()),
    )


def _worst(error: NDArray[np.float64], allowed: NDArray[np.float64]) -> float:
    """Return the largest `error / allowed`; infinity for an error where none is allowed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(error > 0, error / allowed, 0.0).max())
