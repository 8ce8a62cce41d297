"""Independent jobs: one after the other in this process, or side by side on a Ray cluster.

A job may be begun again after its worker has died, so it must be one that goes on from what it left
on disk. Ray's own telemetry is switched off, and a local cluster has no dashboard.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tidegraph.core.errors import ClusterError, ParameterError
from tidegraph.core.progress import Progress

__all__ = ["Engine", "check_engine", "run"]

Engine: TypeAlias = Literal["local", "ray"]
Work: TypeAlias = Callable[[Any, Any, Progress], Any]  # (what all jobs share, the job, progress)

_RESTARTS = 5  # of a job whose worker died
_PARTS = 1000  # in which the progress of a job is counted
_LOOK_EVERY_S = 0.5
_TELL_EVERY_S = 1.0
# Ray ends a process whose cluster has been silent for 60 s. Before that it can still be said why.
_SILENCE_S = 25.0
_STORE_BYTES = 80 << 20  # the least that Ray accepts for its store of objects
_KEPT = "what is finished is kept: repeat the command when it is back, and it goes on"


def check_engine(engine: str, address: str | None, workers: int | None) -> None:
    """Refuses settings of `run` that cannot work."""
    if engine not in get_args(Engine):
        raise ParameterError(f"engine is {engine!r}; give 'local' or 'ray'")
    if engine == "local" and (address is not None or workers is not None):
        raise ParameterError(
            "address and workers belong to engine='ray'; the local engine is this process"
        )
    if workers is not None and (isinstance(workers, bool) or workers < 1):
        raise ParameterError(f"workers is {workers!r}; give 1 or more")


def run(
    work: Work,
    shared: Any,
    jobs: Mapping[str, Any],
    folder: Path,
    *,
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
    cores: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The answers `work(shared, job, progress)` of all jobs, by their names.

    The first error of a job ends the run. With Ray, `shared` is sent once to every machine and its
    arrays are read in place by all workers there; `work` is a function of an installed module, and
    `folder` one that every machine sees.

    address: of a running cluster, such as "auto"; None starts one on this machine for the run.
    workers: how many jobs at a time, at most; None: as many as there are cores for.
    cores: that each job takes.
    """
    check_engine(engine, address, workers)
    overall = _Overall(progress, list(jobs))
    if engine == "local":
        answers = {}
        for name, job in jobs.items():
            answers[name] = work(shared, job, overall.of(name))
            overall.finish(name)
        return answers
    with _cluster(address, workers, cores, shared):
        return _on_ray(work, shared, jobs, folder, workers, cores, overall)


class _Overall:
    """One progress for all jobs, from that of each."""

    def __init__(self, report: Progress | None, names: list[str]) -> None:
        self._report = report
        self._done = dict.fromkeys(names, 0)

    def of(self, name: str) -> Progress:
        return lambda done, total, what: self.see(name, done, total, what)

    def see(self, name: str, done: int, total: int, what: str) -> None:
        self._done[name] = _PARTS * min(done, total) // max(total, 1)
        self._tell(f"{name}: {what}")

    def finish(self, name: str) -> None:
        self._done[name] = _PARTS
        finished = sum(done == _PARTS for done in self._done.values())
        self._tell(f"{finished} of {len(self._done)} finished")

    def _tell(self, what: str) -> None:
        if self._report is not None:
            self._report(sum(self._done.values()), _PARTS * len(self._done), what)


# Ray ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _cluster(address: str | None, workers: int | None, cores: int, shared: Any) -> Iterator[None]:
    """A connection to Ray: the one this process has already, or one for as long as is needed."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray warns where it is unset
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {
            "num_cpus": cores * (workers or max(1, (os.cpu_count() or 1) // cores)),
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES + 2 * _array_bytes(shared),
        }
    try:
        ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ClusterError(
            f"no Ray cluster could be reached at {address or 'this machine'!r} ({reason}); check"
            " that `ray status` answers there"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _array_bytes(value: Any) -> int:
    """What a value takes in the store, its arrays not copied for the answer."""
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(rest) + sum(buffer.raw().nbytes for buffer in buffers)


def _on_ray(
    work: Work,
    shared: Any,
    jobs: Mapping[str, Any],
    folder: Path,
    workers: int | None,
    cores: int,
    overall: _Overall,
) -> dict[str, Any]:
    import ray

    remote = ray.remote(num_cpus=cores, max_retries=_RESTARTS)(_job)
    answers: dict[str, Any] = {}
    waiting = list(jobs)
    running: dict[Any, str] = {}
    watch = _Watch()
    try:
        place = ray.put(shared)
        while waiting or running:
            while waiting and (workers is None or len(running) < workers):
                name = waiting.pop(0)
                running[remote.remote(work, place, jobs[name], _board(folder, name))] = name
            ended, _ = ray.wait(list(running), timeout=_LOOK_EVERY_S)
            for reference in ended:
                name = running.pop(reference)  # also where it failed: nothing is left to cancel
                answers[name] = _answer(reference, name)
                overall.finish(name)
            for name in running.values():
                if told := _read(_board(folder, name)):
                    overall.see(name, *told)
            if not ended and not watch.answers():
                raise ClusterError(f"the Ray cluster does not answer any more; {_KEPT}")
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())
        raise ClusterError(f"the Ray cluster failed ({reason}); {_KEPT}") from error
    finally:
        watch.end()
        if watch.answers():
            for reference in running:
                ray.cancel(reference, force=True)
        for name in jobs:
            _board(folder, name).unlink(missing_ok=True)
    return answers


def _answer(reference: Any, name: str) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise ClusterError(
            f"the worker of {name} was started {_RESTARTS + 1} times and died each time, perhaps"
            f" for want of memory; {_KEPT}. Smaller jobs, or fewer at a time, need less"
        ) from error


def _job(work: Work, shared: Any, job: Any, board: Path) -> Any:
    """What a worker does."""
    told_at = 0.0

    def tell(done: int, total: int, what: str) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _TELL_EVERY_S:
            told_at = time.monotonic()
            with contextlib.suppress(OSError):  # a full disk is for the job itself to complain of
                board.write_text(f"{done} {total} {what}", encoding="utf-8")

    return work(shared, job, tell)


def _board(folder: Path, name: str) -> Path:
    """Where a job writes how far it is; workers and this process share nothing but the folder."""
    return folder.absolute() / f".{name}.progress"


def _read(board: Path) -> tuple[int, int, str] | None:
    try:
        done, total, what = board.read_text(encoding="utf-8").split(" ", 2)
        return int(done), int(total), what
    except (OSError, ValueError):  # not there yet, or half written
        return None


class _Watch:
    """Whether the cluster answers: asked on a thread, because the question may wait for ever."""

    def __init__(self) -> None:
        self._heard_at = time.monotonic()
        self._over = threading.Event()
        self._asking = threading.Thread(target=self._ask, daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        import ray

        while not self._over.is_set():
            with contextlib.suppress(Exception):
                if any(node["Alive"] for node in ray.nodes()):
                    self._heard_at = time.monotonic()
            self._over.wait(_TELL_EVERY_S)

    def answers(self) -> bool:
        return time.monotonic() - self._heard_at < _SILENCE_S

    def end(self) -> None:
        """Asks no more: whoever disconnects afterwards does not do so below a question."""
        self._over.set()
        if self.answers():  # else the question under way may never come back
            self._asking.join(_SILENCE_S)
