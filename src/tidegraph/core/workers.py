"""Independent jobs, run in sequence in this process or in parallel on a Ray cluster.

A job is restarted when its worker dies, so it must resume from what it left on disk. Ray's
telemetry is switched off, and a local cluster has no dashboard.
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

Engine: TypeAlias = Literal["local", "ray"]
Work: TypeAlias = Callable[[Any, Any, Progress], Any]  # (shared data, the job, progress)

_RESTARTS = 5  # of a job whose worker died
_PARTS = 1000  # units in which the progress of a job is counted
_POLL_EVERY_S = 0.5
_REPORT_EVERY_S = 1.0
# Ray kills a process whose cluster has been silent for 60 s. Raise a clear error before that.
_SILENCE_S = 25.0
_STORE_BYTES = 80 << 20  # the smallest object store that Ray accepts
_FINISHED = "finished jobs are saved: repeat the command once it is back, and it resumes"


def check_engine(engine: str, address: str | None, workers: int | None) -> None:
    """Raise ParameterError unless these settings of `run` can work."""
    if engine not in get_args(Engine):
        raise ParameterError(f"engine is {engine!r}; give 'local' or 'ray'")
    if engine == "local" and (address is not None or workers is not None):
        raise ParameterError(
            "address and workers apply to engine='ray'; the local engine is this process"
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
    """Return the results of `work(shared, job, progress)` by job name.

    The first error of a job ends the run. With Ray, `shared` is sent once to every machine, where
    all workers read its arrays in place; `work` must be a function of an installed module, and
    `folder` must be visible to every machine.

    address: of a running cluster, such as "auto"; None starts one on this machine for the run.
    workers: the most jobs to run at a time; None: as many as there are cores for.
    cores: the number each job uses.
    """
    check_engine(engine, address, workers)
    overall = _Overall(progress, list(jobs))
    if engine == "local":
        results = {}
        for name, job in jobs.items():
            results[name] = work(shared, job, overall.of(name))
            overall.finish(name)
        return results
    most = cores * (workers or max(1, (os.cpu_count() or 1) // cores))
    with connected(address, most, 2 * _array_bytes(shared)):
        return _on_ray(work, shared, jobs, folder, workers, cores, overall)


class _Overall:
    """The overall progress, from that of each job."""

    def __init__(self, report: Progress | None, names: list[str]) -> None:
        self._report = report
        self._done = dict.fromkeys(names, 0)

    def of(self, name: str) -> Progress:
        return lambda done, total, what: self.update(name, done, total, what)

    def update(self, name: str, done: int, total: int, what: str) -> None:
        self._done[name] = _PARTS * min(done, total) // max(total, 1)
        self._notify(f"{name}: {what}")

    def finish(self, name: str) -> None:
        self._done[name] = _PARTS
        finished = sum(done == _PARTS for done in self._done.values())
        self._notify(f"{finished} of {len(self._done)} finished")

    def _notify(self, what: str) -> None:
        if self._report is not None:
            self._report(sum(self._done.values()), _PARTS * len(self._done), what)


# Ray ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(address: str | None, cores: int, more_bytes: int = 0) -> Iterator[None]:
    """Connect to Ray for the duration, unless this process is connected already.

    address: of a running cluster; None starts one on this machine, with so many cores and so many
        bytes of shared memory beyond the least.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray warns when it is unset
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {
            "num_cpus": cores,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",  # nobody else is to reach what runs any code
            "object_store_memory": _STORE_BYTES + more_bytes,
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
    """Return the bytes a value takes in the object store, without copying its arrays."""
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
    results: dict[str, Any] = {}
    waiting = list(jobs)
    running: dict[Any, str] = {}
    watch = Watch()
    try:
        shared_reference = ray.put(shared)
        while waiting or running:
            while waiting and (workers is None or len(running) < workers):
                name = waiting.pop(0)
                file = _progress_file(folder, name)
                running[remote.remote(work, shared_reference, jobs[name], file)] = name
            ended, _ = ray.wait(list(running), timeout=_POLL_EVERY_S)
            for reference in ended:
                name = running.pop(reference)  # if _result raises, nothing is left to cancel
                results[name] = _result(reference, name)
                overall.finish(name)
            for name in running.values():
                if state := _read(_progress_file(folder, name)):
                    overall.update(name, *state)
            if not ended and not watch.responds():
                raise ClusterError(f"the Ray cluster has stopped responding; {_FINISHED}")
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())
        raise ClusterError(f"the Ray cluster failed ({reason}); {_FINISHED}") from error
    finally:
        watch.end()
        if watch.responds():
            for reference in running:
                ray.cancel(reference, force=True)
        for name in jobs:
            _progress_file(folder, name).unlink(missing_ok=True)
    return results


def _result(reference: Any, name: str) -> Any:
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        raise ClusterError(
            f"the worker of {name} was started {_RESTARTS + 1} times and died each time, perhaps"
            f" for lack of memory; {_FINISHED}. Smaller jobs, or fewer at a time, need less"
        ) from error


def _job(work: Work, shared: Any, job: Any, progress_file: Path) -> Any:
    """Run one job in a worker."""
    reported_at = 0.0

    def report(done: int, total: int, what: str) -> None:
        nonlocal reported_at
        if time.monotonic() - reported_at >= _REPORT_EVERY_S:
            reported_at = time.monotonic()
            with contextlib.suppress(OSError):  # the job itself reports a full disk
                progress_file.write_text(f"{done} {total} {what}", encoding="utf-8")

    return work(shared, job, report)


def _progress_file(folder: Path, name: str) -> Path:
    """Return where a job reports its progress: workers and this process share only the folder."""
    return folder.absolute() / f".{name}.progress"


def _read(progress_file: Path) -> tuple[int, int, str] | None:
    try:
        done, total, what = progress_file.read_text(encoding="utf-8").split(" ", 2)
        return int(done), int(total), what
    except (OSError, ValueError):  # absent, or half written
        return None


class Watch:
    """Whether the cluster responds, polled on a thread because a query may block for ever."""

    def __init__(self) -> None:
        self._heard_at = time.monotonic()
        self._over = threading.Event()
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()

    def _poll(self) -> None:
        import ray

        while not self._over.is_set():
            with contextlib.suppress(Exception):
                if any(node["Alive"] for node in ray.nodes()):
                    self._heard_at = time.monotonic()
            self._over.wait(_REPORT_EVERY_S)

    def responds(self) -> bool:
        """Return whether it has answered lately."""
        return time.monotonic() - self._heard_at < _SILENCE_S

    def end(self) -> None:
        """Stop polling, so that disconnecting cannot race a pending query."""
        self._over.set()
        if self.responds():  # otherwise the pending query may never return
            self._poller.join(_SILENCE_S)
