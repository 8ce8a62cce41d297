"""The machine a number was measured on, and probes of its memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import stat
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np


def describe() -> dict[str, Any]:
    """Return processor, usable cores, memory and system."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": cores(),
        "memory_gb": round(_kilobytes("/proc/meminfo", "MemTotal") * 1024 / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_average() -> float | None:
    """Return the load average of the last minute; None where the system does not report it."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None


def memory_bytes(*, peak: bool = False) -> int:
    """Return the resident memory of this process, now or at its peak; 0 where it is unknown."""
    return 1024 * _kilobytes("/proc/self/status", "VmHWM" if peak else "VmRSS")


def memory_field(field: str, process: int) -> int:
    """Return a field of the memory of a process in bytes, such as RssAnon; 0 where unknown."""
    return 1024 * _kilobytes(f"/proc/{process}/status", field)


def forget_peak_memory() -> int:
    """Return freed memory to the system, reset the peak, and return the resident memory."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    # Where this is not permitted the old peak remains: an overestimate, never an underestimate.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory_bytes()


def _kilobytes(path: str, field: str) -> int:
    return int(_field(path, field).partition(" ")[0] or 0)


def _field(path: str, name: str) -> str:
    """Return the value of the first line `name: value`, or an empty string."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")


def copy_bandwidth(threads: int, *, megabytes: int = 64, copies: int = 8) -> float:
    """Return the bytes per second that `threads` threads write, each copying its own array."""
    arrays = [np.ones(megabytes << 17) for _ in range(2 * threads)]  # 8 bytes each

    def copy(thread: int) -> None:
        for _ in range(copies):
            np.copyto(arrays[2 * thread], arrays[2 * thread + 1])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(copy, range(threads)))  # starts the threads
        start = time.perf_counter()
        list(pool.map(copy, range(threads)))
        elapsed_s = time.perf_counter() - start
    return threads * copies * (megabytes << 20) / elapsed_s


def row_access_ns(rows: int, *, columns: int, seed: int = 0, runs: int = 3) -> float:
    """Return the nanoseconds to update a float32 row at a random position; the best of `runs`.

    It shows how much of an event's time on a larger graph is memory latency.
    """
    rng = np.random.default_rng(seed)
    state = np.zeros((rows, columns), dtype=np.float32)
    piece = min(rows, 1024)  # stays in cache
    places = [rng.choice(rows, piece, replace=False) for _ in range(max(1, 100_000 // piece))]
    buffer = np.empty((piece, columns), dtype=np.float32)
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        for place in places:
            np.take(state, place, axis=0, out=buffer, mode="clip")
            buffer += 1
            state[place] = buffer
        times.append(time.perf_counter() - start)
    return 1e9 * min(times) / (len(places) * piece)


def disk_bytes(files: Iterable[Path]) -> int:
    """Return the size of files, some of which may be deleted meanwhile."""
    size = 0
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            size += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return size
