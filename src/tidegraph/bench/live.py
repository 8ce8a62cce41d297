"""What a live state takes: pace over HTTP, latencies, rankings and restarts, as ratios."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.bench.results import circumstances
from tidegraph.core.errors import BusyError, DataError
from tidegraph.core.progress import Progress, silent
from tidegraph.events.datasets import generate_communities, load_dataset
from tidegraph.events.steps import Steps
from tidegraph.events.stream import EventStream
from tidegraph.learning.tasks.link import LinkPredictor
from tidegraph.live.client import Client
from tidegraph.live.live import Live
from tidegraph.live.models import Model, probability
from tidegraph.live.settings import LiveSettings

GOALS = {
    "ingest_over_engine": ("at least", 0.8),
    "one_event_over_commit": ("at most", 5.0),
    "score_p99_ms": ("at most", 5.0),
    "top_p99_ms_of_1e4": ("at most", 30.0),
    "top_p99_ms_of_1e6": ("at most", 250.0),
    "recall_of_1e6": ("at least", 0.95),
    "restart_s_with_1e6": ("at most", 30.0),
}
_BATCH = 1000
_SINGLE = 400
_ASKED = 400
_EXHAUSTIVE = 20  # questions that are also answered by reading every candidate
_PAIRS = 1 << 16


def live(
    *,
    repeat: int = 3,
    scale: float = 1.0,
    seed: int = 0,
    command: str = "tidegraph.bench.live",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure all of it and return the results; those without data are skipped, and said."""
    report = progress or silent
    sections: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        ("ingest", lambda: _ingest(repeat, scale)),
        ("one event", _one_event),
        ("questions among 10⁴ nodes", lambda: _questions(10_000, scale, seed)),
        ("questions among 10⁶ nodes", lambda: _questions(1_000_000, scale, seed)),
        ("restart", lambda: _restart(round(1e6 * scale), seed)),
    ]
    results: dict[str, Any] = {**circumstances(command), "repeat": repeat, "scale": scale}
    skipped: dict[str, str] = {}
    for place, (name, measure) in enumerate(sections):
        report(place, len(sections), name)
        try:
            results[name] = measure()
        except DataError as error:
            skipped[name] = str(error)
    headline = {key: value for name, _ in sections for key, value in _headline(results.get(name))}
    return {**results, "skipped": skipped, "headline": headline, "goals": GOALS}


def _headline(section: dict[str, Any] | None) -> list[tuple[str, float]]:
    return [(key, value) for key, value in (section or {}).items() if key in GOALS]


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """Yield the path of a directory to make, and delete it afterwards."""
    path = Path(tempfile.mkdtemp())
    try:
        yield path / "live"
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _columns(stream: EventStream, first: int, last: int) -> dict[str, Any]:
    rows = slice(first, last)
    return {
        "src": list(map(str, stream.name(stream.src[rows]).tolist())),
        "dst": list(map(str, stream.name(stream.dst[rows]).tolist())),
        "t": stream.t[rows].tolist(),
    }


def _send(live: Live, events: Any) -> None:
    while True:
        try:
            live.ingest(events)
            return
        except BusyError as error:
            time.sleep(min(0.005, error.retry_after_s))


def _drain(stats: Callable[[], Any]) -> None:
    while stats()["queue"]:
        time.sleep(0.005)


def _ingest(repeat: int, scale: float) -> dict[str, Any]:
    """Send Wikipedia in durable batches to a server and to `Live`, and to the engine alone."""
    stream = load_dataset("wikipedia")
    stream = stream[: max(_BATCH, round(scale * len(stream)))]
    count = len(stream)
    batches = [_columns(stream, at, at + _BATCH) for at in range(0, count, _BATCH)]
    settings = LiveSettings(learn=False, unit=stream.unit, idle_s=3600.0)
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(stream.t)) + 1, [count]])
    times = stream.t[bounds[1:] - 1]
    steps = Steps(stream.src, stream.dst, stream.t, offsets=bounds, times=times)
    bodies = [lines_of(batch) for batch in batches]
    rounds = []
    for _ in range(repeat):
        with temporary() as path, Live.open(path, settings=settings) as live:
            begin = time.perf_counter()
            for batch in batches:
                _send(live, batch)
            durable = time.perf_counter() - begin
            _drain(live.stats)
            called = time.perf_counter() - begin
            engine = live._state.about.propagator(nodes=stream.nodes)
        begin = time.perf_counter()
        engine.apply_steps(steps)
        alone = time.perf_counter() - begin
        quiet = "--set=learn=false", "--set=idle_s=3600"
        with temporary() as path, served(path, stream.unit, *quiet) as (client, _):
            begin = time.perf_counter()
            for body in bodies:
                client.send(body)
            _drain(client.stats)
            over_http = time.perf_counter() - begin
        rounds.append(
            {
                "served_s": over_http,
                "called_s": called,
                "called_durable_s": durable,
                "engine_s": alone,
            }
        )
    ratios = [each["engine_s"] / each["served_s"] for each in rounds]
    return {
        "events": count,
        "batch": _BATCH,
        "rounds": rounds,
        "us_per_event": 1e6 * float(np.median([each["served_s"] for each in rounds])) / count,
        "called_over_engine": float(
            np.median([each["engine_s"] / each["called_s"] for each in rounds])
        ),
        "ingest_over_engine": float(np.median(ratios)),
    }


def lines_of(batch: dict[str, Any]) -> bytes:
    """Return columns of events as NDJSON."""
    events = zip(batch["src"], batch["dst"], batch["t"], strict=True)
    rows = (json.dumps({"src": src, "dst": dst, "t": t}) for src, dst, t in events)
    return "\n".join(rows).encode()


@contextlib.contextmanager
def served(
    path: Path, unit: str, *options: str
) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    """Serve an empty directory in a process of its own; yield a client of it, and the process."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port = made.getsockname()[1]
    where = f"--dir={path}", f"--port={port}", f"--unit={unit}"
    command = [sys.executable, "-m", "tidegraph", "serve", *where, *options]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            client.stats()  # repeated until there is a server
            yield client, process
    finally:
        process.terminate()
        process.wait(60)


def _one_event() -> dict[str, Any]:
    """Single durable events, in turn with single rows that bare SQLite commits."""
    with temporary() as path:
        path.mkdir(parents=True)
        bare = sqlite3.connect(path / "bare.sqlite", isolation_level=None)
        bare.execute("pragma journal_mode = wal")
        bare.execute("pragma synchronous = full")
        bare.execute("create table events (seq integer primary key, src text, dst text, t integer)")
        ours, theirs = [], []
        with Live.open(path / "live", settings=LiveSettings(learn=False)) as live:
            for number in range(_SINGLE):
                event = {"src": f"s{number % 97}", "dst": f"d{number % 89}", "t": number}
                begin = time.perf_counter()
                live.ingest(event)
                middle = time.perf_counter()
                bare.execute("begin immediate")
                bare.execute(
                    "insert into events (src, dst, t) values (?, ?, ?)", (*event.values(),)
                )
                bare.execute("commit")
                theirs.append(time.perf_counter() - middle)
                ours.append(middle - begin)
            _drain(live.stats)
        bare.close()
    return {
        "live_ms": _quantiles(ours),
        "bare_commit_ms": _quantiles(theirs),
        "one_event_over_commit": _quantiles(ours)["p99"] / _quantiles(theirs)["p99"],
    }


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    values = 1e3 * np.array(seconds)
    return {name: float(np.quantile(values, q)) for name, q in (("p50", 0.5), ("p99", 0.99))}


def _questions(nodes: int, scale: float, seed: int) -> dict[str, Any]:
    """Scores and rankings by a trained model while events arrive."""
    size = max(200, round(nodes * scale))
    few = generate_communities(2_000, 40_000, communities=20, seed=seed)
    predictor = LinkPredictor(epochs=3, max_examples=30_000, seed=seed).fit(few)
    stream = generate_communities(size, 3 * size, communities=max(5, size // 200), seed=seed)
    first = len(stream) * 9 // 10
    settings = LiveSettings(learn=False, columns=4, idle_s=0.2, judged_per_s=0.0, lateness="0")
    model = Model.of(predictor, "0001")
    generator = np.random.default_rng(seed)
    asked = list(map(str, generator.choice(stream.src[:first], _ASKED)))
    others = list(map(str, generator.choice(stream.dst[:first], _ASKED)))
    with temporary() as path, Live.open(path, stream[:first], settings=settings) as live:
        live._state.stand_on(model, model.span)
        live.top(asked[0])  # the first ranking counts who is popular
        stop = threading.Event()
        sender = threading.Thread(target=_keep_sending, args=(live, stream, first, stop))
        sender.start()
        try:
            scores = [_timed(live.score, a, b) for a, b in zip(asked, others, strict=True)]
            tops = [_timed(live.top, name) for name in asked]
            sent = live.stats()["events"] - first
        finally:
            stop.set()
            sender.join()
        recall = float(np.mean([_recall(live, name) for name in asked[:_EXHAUSTIVE]]))
    end = "1e6" if nodes == 1_000_000 else "1e4"
    found = {
        "nodes": size,
        "events": len(stream),
        "events_meanwhile": sent,
        "score_ms": _quantiles(scores),
        "top_ms": _quantiles(tops),
        f"top_p99_ms_of_{end}": _quantiles(tops)["p99"],
        f"recall_of_{end}": recall,
    }
    return found if end == "1e6" else {**found, "score_p99_ms": _quantiles(scores)["p99"]}


def _timed(ask: Callable[..., Any], *arguments: Any) -> float:
    begin = time.perf_counter()
    ask(*arguments)
    return time.perf_counter() - begin


def _keep_sending(live: Live, stream: EventStream, first: int, stop: threading.Event) -> None:
    """Send the rest of a stream, a thousand events per second."""
    for at in itertools.count(first, 100):
        if stop.wait(0.1) or at >= len(stream):
            return
        _send(live, _columns(stream, at, at + 100))


def _recall(live: Live, name: Any) -> float:
    """Return which share of the ten best of all destinations `top` finds, ties counted as found."""
    state = live._state
    answer = live.top(name, 10)
    model, past = state.answering
    number, t = state.number(name, "src"), answer.as_of_time
    assert t is not None
    everyone = past.candidates.before(t)
    everyone = everyone[everyone != number]
    scores = np.concatenate(
        [
            probability(model, past, np.full(len(some), number), some, np.full(len(some), t))
            for some in np.split(everyone, range(_PAIRS, len(everyone), _PAIRS))
        ]
    )
    least = np.sort(scores)[-10]
    return float(np.mean(answer.data["probability"] >= least))


def _restart(count: int, seed: int) -> dict[str, Any]:
    """A start that replays the whole log, and one from a snapshot."""
    stream = generate_communities(max(200, count // 100), count, seed=seed)
    settings = LiveSettings(learn=False, idle_s=3600.0)
    with temporary() as path:
        begin = time.perf_counter()
        Live.open(path, stream, settings=settings).close()
        created = time.perf_counter() - begin
        shutil.rmtree(path / "snapshots")
        begin = time.perf_counter()
        live = Live.open(path, settings=settings)
        replayed = time.perf_counter() - begin
        digest = live.digest()
        live.close()
        begin = time.perf_counter()
        live = Live.open(path, settings=settings)
        loaded = time.perf_counter() - begin
        same = live.digest() == digest
        live.close()
    return {
        "events": len(stream),
        "created_s": created,
        "restart_s_with_1e6": replayed,
        "restart_from_snapshot_s": loaded,
        "same_bytes": same,
    }
