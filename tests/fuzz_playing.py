"""Plays one history: every step is taken by a propagator and by the oracle, and checked.

After every step these laws hold:

    finite      there is no NaN and no infinity
    error       |exact - embedding| <= error_bound
    bound       error_bound <= threshold
    threshold   equals the oracle's to 1e-9
    degree      equals the oracle's to 1e-9
    edges       the user's graph equals the oracle's
    refusal     a step that fits is accepted; any other is rejected and changes no bit
    clone       a copy is equal to the bit, and stays so when both go on
    exception   nothing else is raised
"""

from __future__ import annotations

import copy
import pickle
import re
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tests.fuzz_histories import History, Make, Step, write
from tests.oracle import Answer, Refused, Unclear

from tidegraph import Propagator
from tidegraph.core.errors import EventError, ParameterError, PrecisionError
from tidegraph.engine.channels import Sketch
from tidegraph.events.batch import Batch

__all__ = ["MILDEST", "Outcome", "chosen", "play", "run"]

Pair: TypeAlias = tuple[int, int]

MILDEST = 6  # how often a history is written again, milder each time, if its start is rejected


@dataclass
class Outcome:
    """The result of playing one history."""

    number: int = -1
    status: str = "held"  # or "violated", "refused" (at the start), "hang", "crash"
    steps: int = 0
    checks: int = 0
    imprecise: int = 0  # steps rejected with a PrecisionError
    misfits: int = 0  # steps rejected because they do not fit
    skipped: int = 0  # steps whose fate depends on rounding
    milder: int = 0  # times the history was written again
    error_over_bound: float = 0.0
    bound_over_threshold: float = 0.0
    violations: list[tuple[int, str, str]] = field(default_factory=list)  # step, law, what
    seconds: float = 0.0

    @property
    def laws(self) -> list[str]:
        """The laws that were broken, or how the process ended."""
        if self.status in ("hang", "crash"):
            return [self.status]
        return sorted({law for _, law, _ in self.violations})


def run(seed: int, number: int, make: Make = Propagator) -> Outcome:
    """Play a history, made milder until its start is accepted."""
    for mildness in range(MILDEST + 1):
        outcome = play(write(seed, number, mildness), make)
        outcome.number, outcome.milder = number, mildness
        if outcome.status != "refused":
            break
    return outcome


def chosen(seed: int, number: int, make: Make = Propagator) -> History:
    """Return the history that `run` plays: the first whose start is accepted."""
    for mildness in range(MILDEST + 1):
        history = write(seed, number, mildness)
        try:
            history.start(make)
        except PrecisionError:
            continue
        except Exception:
            return history
        return history
    return history


def play(
    history: History,
    make: Make = Propagator,
    *,
    say: Callable[[str], None] | None = None,
    through: bool = False,
) -> Outcome:
    """Play a history and check every step; stop at the first that breaks a law.

    say: prints every step and how close it is to what is allowed.
    through: do not stop.
    """
    player = _Player(history, make, say or (lambda text: None), through)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy: a NaN is a violation anyway
        player.play()
    player.outcome.seconds = time.perf_counter() - begun
    return player.outcome


@dataclass(frozen=True)
class _State:
    """Everything that a rejected step must leave unchanged, to the bit."""

    embedding: bytes
    edges: tuple[bytes, bytes, bytes]
    time: int | None

    @classmethod
    def of(cls, propagator: Propagator) -> _State:
        src, dst, weight = propagator.edges()
        order = np.lexsort((dst, src))
        edges = src[order].tobytes(), dst[order].tobytes(), weight[order].tobytes()
        return cls(propagator.embedding().tobytes(), edges, propagator.time)


class _Player:
    """A propagator and an oracle that take the steps of one history together."""

    def __init__(
        self, history: History, make: Make, say: Callable[[str], None], through: bool
    ) -> None:
        self.history, self.make, self.say, self.through = history, make, say, through
        self.outcome = Outcome()
        self.number = 0  # of the step
        self.propagator: Any = None
        self.oracle: Any = None
        self.state: _State | None = None
        self.twin: Propagator | None = None  # a copy that takes the next step too
        self.keep = ""
        info = np.finfo(history.options.get("dtype", "float32"))
        self.eps, self.smallest = float(info.eps), float(info.smallest_subnormal)

    def violate(self, law: str, what: str) -> None:
        self.outcome.violations.append((self.number, law, what))
        self.outcome.status = "violated"
        self.say(f"  VIOLATION of {law}: {what}")

    def play(self) -> None:
        outcome = self.outcome
        try:
            self.oracle = self.history.oracle()
        except (Refused, Unclear, EventError, ParameterError):  # only in shrunken histories
            outcome.status = "refused"
            return
        try:
            self.propagator = self.history.start(self.make)
        except PrecisionError as error:
            self.say(f"the start is rejected: {error}")
            outcome.status = "refused"
            return
        except Exception as error:
            self.violate("exception", f"at the start {type(error).__name__}: {error}")
            return
        self.say(f"start: {_describe(self.history)}")
        self.check()
        for number, step in enumerate(self.history.steps, start=1):
            if outcome.violations and not self.through:
                return
            self.number = number
            self.say(f"step {number}: {_described(step)}")
            outcome.steps += 1
            try:
                self.take(step)
            except Exception as error:
                self.violate("exception", f"{type(error).__name__}: {error}")
                return
            self.check()

    # Steps

    def take(self, step: Step) -> None:
        if step.call == "clone":
            self.clone(**step.arguments)
            return
        before = self.state
        twin, self.twin = self.twin, None
        if step.call in ("apply", "apply_steps", "apply_snapshot"):
            self.take_batch(step)
        elif step.call == "refine":
            try:
                self.propagator.refine(**step.arguments)
            except PrecisionError as error:
                self.imprecise(error, before)
            else:
                self.oracle.refine(step.arguments["r_max"])
        else:
            getattr(self.propagator, step.call)()
        if twin is not None:
            self.take_with_twin(twin, step)

    def take_with_twin(self, twin: Propagator, step: Step) -> None:
        try:
            _call(twin, step)
        except (EventError, PrecisionError) as error:
            self.say(f"  the copy rejects it too: {error}")
        self.outcome.checks += 1
        if _State.of(twin) != _State.of(self.propagator):
            self.violate("clone", "a copy and its original went on differently")
        if self.keep == "twin":
            self.propagator = twin

    def clone(self, by: str, keep: str) -> None:
        if by == "copy":
            twin = copy.copy(self.propagator)
        elif by == "pickle":
            twin = pickle.loads(pickle.dumps(self.propagator))
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "state"
                self.propagator.save(path)
                twin = type(self.propagator).load(path, threads=self.propagator.threads)
        self.outcome.checks += 1
        if _State.of(twin) != self.state:
            self.violate("clone", f"a copy made by {by} differs from its original")
        self.twin, self.keep = twin, keep

    def imprecise(self, error: Exception, before: _State | None) -> None:
        self.outcome.imprecise += 1
        self.say(f"  rejected: {error}")
        self.unchanged(before)

    def unchanged(self, before: _State | None) -> None:
        self.outcome.checks += 1
        if _State.of(self.propagator) != before:
            self.violate("refusal", "a rejected step changed something")

    def take_batch(self, step: Step) -> None:
        try:
            batches = _batches(step)
        except EventError as error:
            self.outcome.misfits += 1
            if not step.wrong:
                self.violate("refusal", f"a well-formed batch is rejected: {error}")
            return
        # Ask the oracle about each part before the propagator sees any.
        ahead = copy.deepcopy(self.oracle) if len(batches) > 1 else self.oracle
        verdict = "fits"
        for batch in batches:
            try:
                rows = ahead.difference(batch) if step.call == "apply_snapshot" else batch
                opinion = ahead.judge(rows)
            except Refused:
                opinion = "refused"
            if opinion != "fits":
                verdict = opinion
            if opinion in ("refused", "unclear"):
                break
            if len(batches) > 1:
                ahead.apply(rows)
        if verdict == "unclear":
            self.outcome.skipped += 1
            self.say("  skipped: rounding decides whether this fits")
            return
        before = self.state
        rewound = copy.copy(self.propagator) if len(batches) > 1 else None
        try:
            _call(self.propagator, step)
        except (EventError, PrecisionError) as error:
            self.refused(step, batches, error, verdict, before, rewound)
            return
        if verdict == "refused":
            self.violate("refusal", "a step that does not fit is accepted")
            return
        for batch in batches:
            self.oracle.apply(
                self.oracle.difference(batch) if step.call == "apply_snapshot" else batch
            )

    def refused(
        self,
        step: Step,
        batches: list[Batch],
        error: Exception,
        verdict: str,
        before: _State | None,
        rewound: Propagator | None,
    ) -> None:
        """Check that a rejection is right and that only the steps before it were taken."""
        self.say(f"  rejected: {error}")
        if isinstance(error, PrecisionError):
            self.outcome.imprecise += 1
        else:
            self.outcome.misfits += 1
            if verdict == "fits":
                self.violate("refusal", f"a step that fits is rejected: {error}")
        if rewound is None:
            self.unchanged(before)
            return
        found = re.search(r"step (\d+)", str(error))
        if found is None:
            self.violate("refusal", f"the error does not name the step: {error}")
            return
        done = int(found[1])
        kept = dict(step.arguments)
        kept["offsets"] = kept["offsets"][: done + 1]
        _call(rewound, Step(step.call, kept))
        self.unchanged(_State.of(rewound))
        for batch in batches[:done]:
            self.oracle.apply(batch)

    # Laws

    def check(self) -> None:
        """Check all laws on the present state."""
        propagator = self.propagator
        self.state = _State.of(propagator)
        if propagator.nodes != self.oracle.nodes or propagator.time != self.oracle.now:
            self.violate(
                "edges",
                f"{propagator.nodes} nodes at {propagator.time},"
                f" not {self.oracle.nodes} at {self.oracle.now}",
            )
            return
        answer = self.oracle.answer()
        embedding, bound = propagator.embedding(), propagator.error_bound()
        threshold, degree = propagator.threshold(), propagator.degree()
        self.outcome.checks += 6
        for name, array in [
            ("embedding", embedding),
            ("error_bound", bound),
            ("threshold", threshold),
            ("degree", degree),
        ]:
            if not np.isfinite(array).all():
                self.violate("finite", f"{name} holds NaN or infinity")
                return
        self.check_error(answer, embedding, bound)
        self.check_promise(answer, bound, threshold, degree)
        self.check_edges()

    def check_error(
        self, answer: Answer, embedding: NDArray[Any], bound: NDArray[np.float64]
    ) -> None:
        error = np.abs(embedding.astype(np.longdouble) - answer.pi)
        beyond = np.where(error > answer.rounding, error - answer.rounding, 0)
        ratio = np.divide(
            beyond,
            bound,
            out=np.where(beyond > 0, np.inf, 0.0).astype(beyond.dtype),
            where=bound > 0,
        )
        worst = float(ratio.max(initial=0))
        self.outcome.error_over_bound = max(self.outcome.error_over_bound, worst)
        self.say(f"  error/bound {worst:.3g}")
        if worst > 1:
            at = np.unravel_index(int(ratio.argmax()), ratio.shape)
            self.violate(
                "error",
                f"node {at[0]}, channel {at[1]}, column {at[2]}: exact {float(answer.pi[at]):.17g},"
                f" estimate {float(embedding[at]):.17g}, bound {bound[at]:.3g}:"
                f" {worst:.4g} times",
            )

    def check_promise(
        self,
        answer: Answer,
        bound: NDArray[np.float64],
        threshold: NDArray[np.float64],
        degree: NDArray[np.float64],
    ) -> None:
        wrong = np.abs(degree - answer.degree) > 1e-9 * answer.degree
        if wrong.any():
            node, channel = np.argwhere(wrong)[0]
            self.violate(
                "degree",
                f"node {node}, channel {channel}: {degree[node, channel]:.17g},"
                f" not {float(answer.degree[node, channel]):.17g}",
            )
        known = np.broadcast_to((answer.degree > 0)[:, :, None], bound.shape)
        wrong = known & (np.abs(threshold - answer.threshold) > 1e-9 * answer.threshold)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            self.violate(
                "threshold",
                f"node {at[0]}, channel {at[1]}, column {at[2]}: {threshold[at]:.17g},"
                f" not {float(answer.threshold[at]):.17g}",
            )
        # A node without edges is exact up to the rounding of the returned number.
        alone = np.where(answer.pi != 0, 8 * self.eps * np.abs(answer.pi) + self.smallest, 0)
        allowed = np.where(known, threshold, alone).astype(np.float64)
        ratio = np.divide(bound, allowed, out=np.where(bound > 0, np.inf, 0.0), where=allowed > 0)
        worst = float(ratio.max(initial=0))
        self.outcome.bound_over_threshold = max(self.outcome.bound_over_threshold, worst)
        self.say(f"  bound/threshold {worst:.3g}")
        if worst > 1 + 1e-6:
            at = tuple(np.argwhere(ratio == worst)[0])
            self.violate(
                "bound",
                f"node {at[0]}, channel {at[1]}, column {at[2]}: bound {bound[at]:.3g},"
                f" allowed {allowed[at]:.3g}: {worst:.4g} times",
            )

    def check_edges(self) -> None:
        src, dst, weight = self.propagator.edges()
        seen: dict[Pair, float] = {}
        for a, b, w in zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True):
            seen[(a, b) if self.oracle.directed or a <= b else (b, a)] = w
        if len(seen) != len(src):
            self.violate("edges", "an edge is listed twice")
        if seen.keys() != self.oracle.graph.keys():
            differing = sorted(seen.keys() ^ self.oracle.graph.keys())[:3]
            self.violate("edges", f"only one side has the edges {differing}")
            return
        for pair, expected in self.oracle.graph.items():
            if seen[pair] != expected:
                self.violate("edges", f"{pair} weighs {seen[pair]!r}, not {expected!r}")
                return


def _batches(step: Step) -> list[Batch]:
    """Return the batches that a step applies one after another."""
    fields = dict(step.arguments)
    offsets = fields.pop("offsets", None)
    whole = Batch(**fields)
    if offsets is None:
        return [whole]
    return [_part(whole, a, b) for a, b in pairwise(offsets)]


def _part(batch: Batch, first: int, last: int) -> Batch:
    def part(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else values[first:last]

    return Batch(
        batch.src[first:last],
        batch.dst[first:last],
        weight=part(batch.weight),
        op=part(batch.op),
        t=part(batch.t),
    )


def _call(propagator: Propagator, step: Step) -> None:
    """Call a propagator as a step says."""
    fields = dict(step.arguments)
    if step.call == "apply":
        propagator.apply(Batch(**fields))
    elif step.call == "apply_steps":
        offsets = fields.pop("offsets")
        propagator.apply_steps(Batch(**fields), offsets)
    else:
        getattr(propagator, step.call)(**fields)


def _described(step: Step) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in step.arguments.items())
    return f"{step.call}({arguments})" + (f"  meant to fail: {step.wrong}" if step.wrong else "")


def _describe(history: History) -> str:
    options = ", ".join(f"{name}={value}" for name, value in history.options.items())
    features = history.features if isinstance(history.features, Sketch) else history.handed
    return f"{history.nodes} nodes, {features}, {options}, initial={history.initial}"
