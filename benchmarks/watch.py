"""What benchmarks of large graphs measure: time, peak memory and disk space of a piece of work."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from tidegraph.core import machine


class Watch:
    """The wall time, CPU time and peak memory of a `with` block."""

    def __init__(self, every_s: float = 0.05) -> None:
        self._every_s = every_s

    def __enter__(self) -> Watch:
        self.peak_anonymous = 0
        machine.forget_peak_memory()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()
        self._begin, self._cpu = time.perf_counter(), time.process_time()
        return self

    def _poll(self) -> None:
        while not self._over.wait(self._every_s):
            self.peak_anonymous = max(self.peak_anonymous, anonymous_bytes())

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._begin
        self.cpu_s = time.process_time() - self._cpu
        self._over.set()
        self._thread.join()
        self.peak_anonymous = max(self.peak_anonymous, anonymous_bytes())

    def report(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 2),
            "cpu_s": round(self.cpu_s, 2),
            "peak_rss_bytes": machine.memory_bytes(peak=True),
            "peak_anonymous_bytes": self.peak_anonymous,
        }


def anonymous_bytes() -> int:
    """Return the memory of this process that is not mapped from files."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def disk_bytes(path: Path) -> int:
    """Return the size of all files in a directory."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


class Progress:
    """Prints progress on standard error, at most every ten seconds."""

    def __init__(self) -> None:
        self._printed_at = 0.0

    def __call__(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if now - self._printed_at > 10 or done == total:
            self._printed_at = now
            print(f"  {done:,} of {total:,} {what}", file=sys.stderr, flush=True)
