"""Processes that play histories; one that hangs or crashes affects no other."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

from tests.fuzz_histories import History
from tests.fuzz_playing import Outcome, play, run

__all__ = ["Task", "Workers", "work_on"]

Task: TypeAlias = tuple[int, int] | History  # a seed and a number, or a history


def work_on(task: Task) -> Outcome:
    """Play the history of a task."""
    return play(task) if isinstance(task, History) else run(*task)


def _serve(connection: Connection, work: Callable[[Task], Outcome]) -> None:
    """Work on every task received, until the other end is closed."""
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
        """Kill the process."""
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
        """Yield the outcome of each task, in the order in which they end."""
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
            raise RuntimeError(f"a worker ended with code {code} before it got a task")
        self._workers[place] = _Worker(self._context, self._work)
        return Outcome(number=task[1] if isinstance(task, tuple) else -1, status=how)
