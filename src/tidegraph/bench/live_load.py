"""A day of load in an hour: events at a steady pace, readers throughout, the server's memory."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.bench.live import lines_of, served, temporary
from tidegraph.bench.plots import drawing
from tidegraph.bench.results import circumstances
from tidegraph.core.errors import TidegraphError, UnknownNodeError
from tidegraph.core.progress import Progress, silent
from tidegraph.live.client import Client

_NODES = 20_000
_BATCH = 1000
_READERS = 2
_PAUSE_S = 0.02  # of a reader between two questions
_EVERY_S = 10.0  # between two looks at the server
_SETTLED = 1 / 6  # of the time, after which memory should be level


def live_load(
    *,
    events: int = 5_000_000,
    minutes: float = 60.0,
    seed: int = 0,
    command: str = "tidegraph.bench.live_load",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Send events to a server over so many minutes while readers ask; return how that went."""
    report, asked, errors = progress or silent, Counter[str](), list[str]()
    latencies: list[float] = []
    ended = threading.Event()
    # A sender that is held up for longer than idle_s finds the rest of a second late.
    patient = "--set=idle_s=60"
    with temporary() as path, served(path, "s", patient) as (client, server):
        readers = [
            threading.Thread(
                target=_read, args=(client.url, (seed, number), ended, asked, errors, latencies)
            )
            for number in range(_READERS)
        ]
        for each in readers:
            each.start()
        begin = time.monotonic()
        try:
            looks = _send(client, server.pid, events, 60 * minutes, seed, report)
        finally:
            ended.set()
            for each in readers:
                each.join()
        seconds, stats = time.monotonic() - begin, client.stats()
    if stats["events"] != events:
        errors.append(f"{stats['events']:,} of {events:,} were stored, {stats['late']:,} were late")
    settled = next(look for look in looks if look["seconds"] >= _SETTLED * seconds)
    return {
        **circumstances(command),
        "seed": seed,
        "events": stats["events"],
        "nodes": stats["nodes"],
        "edges": stats["edges"],
        "model": stats["version"],
        "seconds": seconds,
        "questions": dict(asked),
        "answer_p99_ms": 1e3 * float(np.quantile(latencies, 0.99)),
        "errors": errors,
        "own_memory_settled": settled["own_bytes"],
        "own_memory_end": looks[-1]["own_bytes"],
        "looks": looks,
    }


def _send(
    client: Client, process: int, events: int, seconds: float, seed: int, report: Progress
) -> list[dict[str, float]]:
    """Send events at a steady pace, in order of time; return what the server took meanwhile.

    Most are repeats: a node meets one of its ten friends, and now and then anybody.
    """
    random = np.random.default_rng(seed)
    friends = random.integers(0, _NODES, (_NODES, 10))
    begin, looks = time.monotonic(), list[dict[str, float]]()
    for first in range(0, events, _BATCH):
        count = min(_BATCH, events - first)
        src = random.integers(0, _NODES, count)
        near = friends[src, random.integers(0, 10, count)]
        dst = np.where(random.random(count) < 0.98, near, random.integers(0, _NODES, count))
        t = (first + np.arange(count)) * 86_400 // events
        names = {"src": [f"n{k}" for k in src], "dst": [f"n{k}" for k in dst], "t": t.tolist()}
        client.send(lines_of(names))
        elapsed = time.monotonic() - begin
        if not looks or elapsed >= looks[-1]["seconds"] + _EVERY_S or first + count == events:
            stats = client.stats()
            own, mapped = _memory(process)
            looks.append(
                {
                    "seconds": elapsed,
                    "events": stats["events"],
                    "own_bytes": own,
                    "mapped_bytes": mapped,
                    "disk_bytes": stats["disk_bytes"],
                    "queue": stats["queue"],
                }
            )
            report(first + count, events, "events")
        time.sleep(max(0.0, (first + count) / events * seconds - elapsed))
    return looks


def _memory(process: int) -> tuple[int, int]:
    """Return the resident bytes of a process: its own, and those of files, which it can lose."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    found = dict(re.findall(r"^(Rss\w+):\s+(\d+) kB$", status, re.MULTILINE))
    return 1024 * int(found["RssAnon"]), 1024 * (int(found["RssFile"]) + int(found["RssShmem"]))


def _read(
    url: str,
    seed: tuple[int, int],
    ended: threading.Event,
    asked: Counter[str],
    errors: list[str],
    latencies: list[float],
) -> None:
    """Ask one question after the other until the end: the work of a thread."""
    random = np.random.default_rng(seed)
    with Client(url) as client:
        while not ended.wait(_PAUSE_S):
            a, b = (f"n{k}" for k in random.integers(0, _NODES, 2))
            name, ask, *about = (
                ("score", client.score, a, b),
                ("top", client.top, a),
                ("similar", client.similar, a),
                ("embedding", client.embedding, [a, b]),
                ("node", client.node, a),
                ("explain", client.explain, a, b),
            )[random.integers(6)]
            begin = time.monotonic()
            try:
                ask(*about)
            except UnknownNodeError:  # in the first minutes
                asked["of unknown nodes"] += 1
            except TidegraphError as error:
                errors.append(f"{name}: {error}")
            latencies.append(time.monotonic() - begin)
            asked[name] += 1


def plot_load(results: dict[str, Any], path: Path) -> None:
    """Plot memory and disk of the server over time."""
    looks = results["looks"]
    minutes = [look["seconds"] / 60 for look in looks]
    with drawing(path, 1, 1, (6, 3.4)) as (panel,):
        for name, label in (
            ("own_bytes", "memory of its own"),
            ("mapped_bytes", "pages of files"),
            ("disk_bytes", "disk"),
        ):
            panel.plot(minutes, [look[name] / 1e6 for look in looks], label=label)
        panel.set_xlabel("minutes")
        panel.set_ylabel("MB")
        panel.set_ylim(bottom=0)
        panel.set_title(f"{results['events']:,} events while readers ask")
        panel.legend()
