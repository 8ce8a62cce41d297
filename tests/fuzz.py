"""Random histories of everything a user can do, each checked against `tests.oracle` at every step.

    python tests/fuzz.py --histories 20000 --seed 0 --jobs 2 -o benchmarks/results/fuzz.json
    python tests/fuzz.py --seed 0 --replay 17     print what happens in history 17
    python tests/fuzz.py --seed 0 --shrink 17     print a short script that fails as it does

A history is a function of the seed and its number. It may hold steps that do not fit the graph: the
oracle says so, and the propagator has to refuse them and stay as it was. After every step hold:

    finite      no NaN and no infinity anywhere
    error       |exact - embedding| <= error_bound
    bound       error_bound <= threshold
    threshold   as the oracle has it, to 1e-9
    degree      as the oracle has it, to 1e-9
    edges       the user's graph, as the oracle has it
    refusal     what fits is accepted; what does not is refused and changes no bit
    clone       a copy is the same to the bit and goes on in the same way
    exception   nothing else is raised

Histories run in processes of their own; one that hangs or crashes takes nobody with it.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import multiprocessing
import os
import pickle
import re
import shlex
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # then only this file's own folder is on the path
    sys.path.insert(0, str(ROOT))

from tests.fuzz_histories import Fields, History, Make, Step, write  # noqa: E402
from tests.fuzz_shrinking import script, shrink  # noqa: E402
from tests.oracle import Answer, Refused, Unclear  # noqa: E402

from tidegraph import Propagator  # noqa: E402
from tidegraph.core.errors import EventError, ParameterError, PrecisionError  # noqa: E402
from tidegraph.engine.channels import Sketch  # noqa: E402
from tidegraph.events.batch import Batch  # noqa: E402

__all__ = ["LAWS", "Outcome", "Summary", "Workers", "chosen", "fuzz", "play", "run"]

Pair: TypeAlias = tuple[int, int]

LAWS = (
    "finite",
    "error",
    "bound",
    "threshold",
    "degree",
    "edges",
    "refusal",
    "clone",
    "exception",
)
MILDEST = 6  # how often a history is written anew, milder each time, when its start is refused


# Playing histories -------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What playing one history showed."""

    number: int = -1
    status: str = "held"  # or "violated", "refused" (at the start), "hang", "crash"
    steps: int = 0
    checks: int = 0
    imprecise: int = 0  # steps refused with a PrecisionError
    misfits: int = 0  # steps refused since they do not fit
    skipped: int = 0  # steps on which nothing can be asked
    milder: int = 0  # times the history was written anew
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
    """Play a history, written as mild as its start needs."""
    for mildness in range(MILDEST + 1):
        outcome = play(write(seed, number, mildness), make)
        outcome.number, outcome.milder = number, mildness
        if outcome.status != "refused":
            break
    return outcome


def chosen(seed: int, number: int, make: Make = Propagator) -> History:
    """Return the history that `run` plays, which is as mild as its start needs."""
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
    """Play a history and check every step; end at the first that breaks a law.

    say: is told every step and how far it is from what is allowed. through: do not end.
    """
    player = _Player(history, make, say or (lambda text: None), through)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy: what is not a number is a violation anyway
        player.play()
    player.outcome.seconds = time.perf_counter() - begun
    return player.outcome


@dataclass(frozen=True)
class _State:
    """Everything that has to stay as it is when a step is refused, to the bit."""

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
    def __init__(
        self, history: History, make: Make, say: Callable[[str], None], through: bool
    ) -> None:
        self.history, self.make, self.say, self.through = history, make, say, through
        self.outcome = Outcome()
        self.number = 0  # of the step
        self.propagator: Any = None
        self.oracle: Any = None
        self.state: _State | None = None
        self.twin: Propagator | None = None  # a copy that takes the next step as well
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
        except (Refused, Unclear, EventError, ParameterError):  # only what was cut starts so
            outcome.status = "refused"
            return
        try:
            self.propagator = self.history.start(self.make)
        except PrecisionError as error:
            self.say(f"the start is refused: {error}")
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
            self.say(f"step {number}: {_told(step)}")
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
            self.take_as_well(twin, step)

    def take_as_well(self, twin: Propagator, step: Step) -> None:
        try:
            _call(twin, step)
        except (EventError, PrecisionError) as error:
            self.say(f"  the copy refuses too: {error}")
        self.outcome.checks += 1
        if _State.of(twin) != _State.of(self.propagator):
            self.violate("clone", "a copy and what it was made of went on differently")
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
            self.violate("clone", f"a copy made by {by} is not what it was made of")
        self.twin, self.keep = twin, keep

    def imprecise(self, error: Exception, before: _State | None) -> None:
        self.outcome.imprecise += 1
        self.say(f"  refused: {error}")
        self.unchanged(before)

    def unchanged(self, before: _State | None) -> None:
        self.outcome.checks += 1
        if _State.of(self.propagator) != before:
            self.violate("refusal", "a refused step changed something")

    def take_batch(self, step: Step) -> None:
        try:
            batches = _batches(step)
        except EventError as error:
            self.outcome.misfits += 1
            if not step.wrong:
                self.violate("refusal", f"a batch that is well-formed is refused: {error}")
            return
        # What the oracle would make of it, part by part, before the propagator is asked.
        ahead = copy.deepcopy(self.oracle) if len(batches) > 1 else self.oracle
        verdict = "fits"
        for batch in batches:
            try:
                rows = ahead.difference(batch) if step.call == "apply_snapshot" else batch
                judged = ahead.judge(rows)
            except Refused:
                judged = "refused"
            if judged != "fits":
                verdict = judged
            if judged in ("refused", "unclear"):
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
        """Check that a refusal is right and that only the steps before it have been taken."""
        self.say(f"  refused: {error}")
        if isinstance(error, PrecisionError):
            self.outcome.imprecise += 1
        else:
            self.outcome.misfits += 1
            if verdict == "fits":
                self.violate("refusal", f"a step that fits is refused: {error}")
        if rewound is None:
            self.unchanged(before)
            return
        found = re.search(r"step (\d+)", str(error))
        if found is None:
            self.violate("refusal", f"the refusal does not name the step: {error}")
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
        """Check all laws on the propagator as it is."""
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
        # A node without any degree is exact but for the rounding of the number that is returned.
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
    """Return the batches that take effect one after another in a step."""
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
    """Have a propagator take a step."""
    fields = dict(step.arguments)
    if step.call == "apply":
        propagator.apply(Batch(**fields))
    elif step.call == "apply_steps":
        offsets = fields.pop("offsets")
        propagator.apply_steps(Batch(**fields), offsets)
    else:
        getattr(propagator, step.call)(**fields)


def _told(step: Step) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in step.arguments.items())
    return f"{step.call}({arguments})" + (f"  meant to fail: {step.wrong}" if step.wrong else "")


def _describe(history: History) -> str:
    options = ", ".join(f"{name}={value}" for name, value in history.options.items())
    features = history.features if isinstance(history.features, Sketch) else history.handed
    return f"{history.nodes} nodes, {features}, {options}, initial={history.initial}"


# Processes ---------------------------------------------------------------------------------------


Task: TypeAlias = tuple[int, int] | History  # a seed and a number, or what was written


def work_on(task: Task) -> Outcome:
    """Play what a task names or holds."""
    return play(task) if isinstance(task, History) else run(*task)


def _serve(connection: Connection, work: Callable[[Task], Outcome]) -> None:
    """Work on whatever is sent, until the other end is closed."""
    connection.send(None)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(work(connection.recv()))


class _Worker:
    """A process that plays one history at a time."""

    def __init__(self, context: Any, work: Callable[[Task], Outcome]) -> None:
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self.ready = False
        self.deadline = time.monotonic() + 120  # for its imports

    def give(self, task: Task, limit_s: float) -> None:
        self.task = task
        self.connection.send(task)
        self.deadline = time.monotonic() + limit_s

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


class Workers:
    """Processes that play histories; one that hangs or dies is replaced.

    >>> with Workers(jobs=2, limit_s=20.0) as workers:
    ...     outcomes = list(workers.play([(0, 1), (0, 2)]))
    """

    def __init__(
        self, *, jobs: int, limit_s: float, work: Callable[[Task], Outcome] = work_on
    ) -> None:
        self._limit_s, self._work = limit_s, work
        self._context = multiprocessing.get_context("spawn")
        self._workers = [_Worker(self._context, work) for _ in range(jobs)]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()

    def play(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """Yield what each task led to, in the order in which they end."""
        waiting = iter(tasks)
        more = True
        while True:
            for worker in self._workers:
                if more and worker.ready and worker.task is None:
                    task = next(waiting, None)
                    more = task is not None
                    if task is not None:
                        worker.give(task, self._limit_s)
            busy = [w for w in self._workers if w.task is not None or not w.ready]
            if not more and not any(w.task is not None for w in busy):
                return
            soonest = min(worker.deadline for worker in busy) - time.monotonic()
            heard = wait([w.connection for w in busy], timeout=max(0.0, soonest))
            for place, worker in enumerate(self._workers):
                if worker.connection in heard:
                    try:
                        outcome = worker.connection.recv()
                    except (EOFError, OSError):
                        outcome = self._lost(place, "crash")
                    if outcome is None:
                        worker.ready = True
                        continue
                elif worker in busy and worker.deadline <= time.monotonic():
                    outcome = self._lost(place, "hang")
                else:
                    continue
                worker.task = None
                yield outcome

    def _lost(self, place: int, how: str) -> Outcome:
        worker = self._workers[place]
        task = worker.task
        code = worker.process.exitcode
        worker.end()
        if task is None:
            raise RuntimeError(f"a worker ended with code {code} before it had anything to do")
        self._workers[place] = _Worker(self._context, self._work)
        return Outcome(number=task[1] if isinstance(task, tuple) else -1, status=how)


# Command line ------------------------------------------------------------------------------------


@dataclass
class Summary:
    """What all histories showed together."""

    histories: int = 0
    steps: int = 0
    checks: int = 0
    imprecise: int = 0
    misfits: int = 0
    skipped: int = 0
    rewritten: int = 0
    unstarted: int = 0
    error_over_bound: float = 0.0
    error_at: int = -1
    bound_over_threshold: float = 0.0
    bound_at: int = -1
    hangs: list[int] = field(default_factory=list)
    crashes: list[int] = field(default_factory=list)
    violations: dict[int, list[str]] = field(default_factory=dict)  # number, laws
    messages: dict[int, str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.histories += 1
        self.steps += outcome.steps
        self.checks += outcome.checks
        self.imprecise += outcome.imprecise
        self.misfits += outcome.misfits
        self.skipped += outcome.skipped
        self.rewritten += outcome.milder > 0
        self.unstarted += outcome.status == "refused"
        if outcome.error_over_bound > self.error_over_bound:
            self.error_over_bound, self.error_at = outcome.error_over_bound, outcome.number
        if outcome.bound_over_threshold > self.bound_over_threshold:
            self.bound_over_threshold = outcome.bound_over_threshold
            self.bound_at = outcome.number
        if outcome.status == "hang":
            self.hangs.append(outcome.number)
        elif outcome.status == "crash":
            self.crashes.append(outcome.number)
        elif outcome.violations:
            self.violations[outcome.number] = outcome.laws
            step, law, what = outcome.violations[0]
            self.messages[outcome.number] = f"step {step}, {law}: {what}"

    @property
    def refused_share(self) -> float:
        return self.imprecise / max(self.steps, 1)

    @property
    def laws(self) -> Counter[str]:
        """How many histories broke each law."""
        return Counter(law for laws in self.violations.values() for law in laws)

    def results(self) -> Fields:
        """Return everything as plain types, for JSON."""
        return {
            "histories": self.histories,
            "steps": self.steps,
            "checks": self.checks,
            "refused_steps": self.imprecise,
            "refused_steps_share": round(self.refused_share, 4),
            "misfits_refused": self.misfits,
            "steps_skipped": self.skipped,
            "histories_made_milder": self.rewritten,
            "histories_not_started": self.unstarted,
            "worst_error_over_bound": _finite(self.error_over_bound),
            "worst_error_in": self.error_at,
            "worst_bound_over_threshold": _finite(self.bound_over_threshold),
            "worst_bound_in": self.bound_at,
            "hangs": sorted(self.hangs),
            "crashes": sorted(self.crashes),
            "violations": sorted(self.violations),
            "violations_by_law": dict(self.laws),
        }


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def fuzz(
    numbers: Sequence[int],
    seed: int,
    *,
    jobs: int,
    limit_s: float,
    progress: Callable[[Summary], None] = lambda summary: None,
) -> Summary:
    """Play the histories of these numbers in processes and return what they showed."""
    summary = Summary()
    with Workers(jobs=jobs, limit_s=limit_s) as workers:
        for outcome in workers.play((seed, number) for number in numbers):
            summary.add(outcome)
            progress(summary)
    return summary


def _progress(total: int) -> Callable[[Summary], None]:
    """Return what prints how far it is: on a terminal often, elsewhere seldom."""
    begun = time.monotonic()
    last = [begun]
    terminal = sys.stderr.isatty()

    def show(summary: Summary) -> None:
        now = time.monotonic()
        if now - last[0] < (0.5 if terminal else 20) and summary.histories < total:
            return
        last[0] = now
        left = (now - begun) / summary.histories * (total - summary.histories)
        line = (
            f"{summary.histories:,} of {total:,} histories, {summary.steps:,} steps,"
            f" {len(summary.violations)} violations, {len(summary.hangs)} hangs,"
            f" {len(summary.crashes)} crashes, {left:.0f} s left"
        )
        end = "\n" if not terminal or summary.histories == total else ""
        print(("\r\x1b[K" if terminal else "") + line, end=end, file=sys.stderr, flush=True)

    return show


def _print_table(results: Fields, summary: Summary) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    for name in (
        "histories",
        "steps",
        "checks",
        "refused_steps_share",
        "histories_made_milder",
        "histories_not_started",
        "steps_skipped",
        "worst_error_over_bound",
        "worst_bound_over_threshold",
    ):
        table.add_row(name.replace("_", " "), _shown(results[name]))
    for name in ("hangs", "crashes", "violations"):
        table.add_row(name, _some(results[name]))
    for law, _ in summary.laws.most_common():
        examples = [number for number, laws in summary.violations.items() if law in laws]
        table.add_row(f"  {law}", _some(sorted(examples)))
    Console().print(table)
    for number in sorted(summary.messages)[:10]:
        print(f"{number}: {summary.messages[number]}")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _some(numbers: list[int]) -> str:
    shown = " ".join(map(str, numbers[:8])) + (" …" if len(numbers) > 8 else "")
    return f"{len(numbers)}" + (f" ({shown})" if numbers else "")


def _shrink(seed: int, number: int, limit_s: float) -> None:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with Workers(jobs=1, limit_s=limit_s) as workers:

        def outcome(task: Task) -> Outcome:
            return next(iter(list(workers.play([task]))))

        first = outcome((seed, number))
        if not first.laws:
            say(f"history {number} breaks no law")
            return
        law = first.laws[0]
        say(f"history {number} ends with {law}; looking for less that does")
        history = write(seed, number, first.milder)
        if first.status in ("hang", "crash"):
            history = next(
                candidate
                for mildness in range(MILDEST + 1)
                if law in outcome(candidate := write(seed, number, mildness)).laws
            )
        print(script(shrink(history, lambda smaller: law in outcome(smaller).laws, say)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 1 where a law was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--histories", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds per history (20)")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file for the results")
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="print one history's steps")
    parser.add_argument("--shrink", type=int, metavar="NUMBER", help="print a minimal script")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        outcome = play(chosen(options.seed, options.replay), say=print)
        return int(bool(outcome.laws))
    if options.shrink is not None:
        _shrink(options.seed, options.shrink, options.limit)
        return 0
    begun = time.perf_counter()
    numbers = range(options.first, options.first + options.histories)
    summary = fuzz(
        numbers,
        options.seed,
        jobs=options.jobs,
        limit_s=options.limit,
        progress=_progress(len(numbers)),
    )
    results = summary.results()
    results["seconds"] = round(time.perf_counter() - begun, 1)
    _print_table(results, summary)
    print(f"{results['seconds']} s, {1e3 * results['seconds'] / len(numbers):.1f} ms per history")
    if options.output is not None:
        _save(results, options)
    return int(bool(summary.violations or summary.hangs or summary.crashes))


def _save(results: Fields, options: argparse.Namespace) -> None:
    from tidegraph.bench.results import circumstances

    output: Path = options.output
    named = os.path.relpath(output, ROOT) if output.resolve().is_relative_to(ROOT) else output.name
    words = ["--histories", options.histories, "--seed", options.seed, "--jobs", options.jobs]
    words += ["--first", options.first] if options.first else []
    command = ["python", "tests/fuzz.py", *map(str, words), "-o", named]
    results |= {
        "seed": options.seed,
        "first": options.first,
        "limit_s": options.limit,
        **circumstances(shlex.join(command)),
    }
    output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
