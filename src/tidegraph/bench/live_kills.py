"""Whether a live state survives kill -9: processes that ingest are killed and started again.

Requests follow from a seed. What was acknowledged must be there after every restart, and in the end
the state must be, byte for byte, that of a process nobody killed, and hold exactly the events that
a plain model of the rules accepts. In the manner of the tests of SQLite and etcd.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tidegraph.bench.results import circumstances
from tidegraph.core.errors import TidegraphError, UnknownNodeError
from tidegraph.core.progress import Progress, silent
from tidegraph.live import failpoints
from tidegraph.live.live import Live
from tidegraph.live.models import Model
from tidegraph.live.movements import DIRECTORY as TRAJECTORIES
from tidegraph.live.settings import LiveSettings

LATENESS = 25
_PATIENCE_S = 120.0
_SETTINGS: dict[str, Any] = {
    "columns": 4,
    "half_lives": (40.0,),
    "learn": False,
    "idle_s": 3600.0,  # no mark of the clock, so that two runs have the same rows
    "lateness": str(LATENESS),
    "judged_per_s": 0.0,
    "keep_log": "60",
}
_NODES = 30
FORGOTTEN = "node-3"
_FAR = 10**6  # the time of the last event, which lets all others be applied


@dataclass(frozen=True)
class Script:
    """Requests that follow from a seed, and what happens between them."""

    seed: int
    requests: int = 40
    forgets: bool = False

    def request(self, number: int) -> tuple[list[dict[str, Any]], str | None]:
        """Return the events of a request and its key; either the request has a key, or all of its
        events have ids.
        """
        generator = np.random.default_rng((self.seed, number))
        by_key = bool(generator.random() < 0.3)
        events = []
        for place in range(int(generator.integers(1, 25))):
            kind = generator.choice(
                ["add", "remove", "set", "remove_node"], p=[0.9, 0.05, 0.04, 0.01]
            )
            event: dict[str, Any] = {
                "t": number * 10 + int(generator.integers(-40, 10)),
                "op": str(kind),
            }
            ends = [f"node-{each}" for each in generator.integers(0, _NODES, 2)]
            if number == self.forgotten_at:  # so that whatever is left of it was left
                ends = ["node-4" if end == FORGOTTEN else end for end in ends]
            if kind == "remove_node":
                event["node"] = ends[0]
            else:
                event["src"], event["dst"] = ends
            if not by_key:
                # Some repeat an event of the request before.
                repeated = number and generator.random() < 0.1
                event["id"] = f"{number - 1 if repeated else number}.{place}"
            events.append(event)
        return events, f"request {number}" if by_key else None

    def accepted(self) -> list[tuple[int, str, str]]:
        """Return time, source and destination of every link that takes effect, in that order, by
        going through all events one after the other.
        """
        newest: int | None = None
        known: dict[str, set[str]] = {}  # the nodes of an event by its id
        links: list[tuple[int, int, str, str]] = []
        count = 0
        for number in range(self.requests):
            if number == self.forgotten_at:
                links = [each for each in links if FORGOTTEN not in each[2:]]
                known = {own: ends for own, ends in known.items() if FORGOTTEN not in ends}
            for event in self.request(number)[0]:
                t, own = event["t"], event.get("id")
                if own in known or (newest is not None and t < newest - LATENESS):
                    continue
                newest = t if newest is None else max(t, newest)
                count += 1
                if own is not None:
                    known[own] = {str(event.get(end)) for end in ("src", "dst", "node")}
                if event["op"] == "add":
                    links.append((t, count, event["src"], event["dst"]))
        return [(t, src, dst) for t, _, src, dst in sorted(links)]

    @property
    def forgotten_at(self) -> int:
        """The request before which a node is forgotten; -1: never."""
        return self.requests * 2 // 3 if self.forgets else -1


@dataclass
class Outcome:
    """What a process has reported before it ended.

    acknowledged: the number of the last request, -1 before the first. seq: of its last event.
    forgot: whether a node was forgotten. opened_forgot: whether it was when the directory was
        opened. left: files that have its name although it was.
    """

    acknowledged: int = -1
    seq: int = 0
    forgot: bool = False
    opened_seq: int | None = None
    opened_forgot: bool = False
    left: list[str] = field(default_factory=list)
    end: dict[str, Any] | None = None
    killed: bool = False
    error: str | None = None


def _drained(live: Live) -> None:
    until = time.monotonic() + _PATIENCE_S
    while live.stats()["queue"]:
        if time.monotonic() > until:
            raise TimeoutError("events are still queued")
        time.sleep(0.0005)


class Pipe(Protocol):
    """Where a process reports."""

    def send(self, said: dict[str, Any], /) -> None:
        """Report."""


def _files_with(name: str, directory: str) -> list[str]:
    """Return files with a name in them, and trajectories, which have numbers instead of names."""
    files = (path for path in Path(directory).rglob("*") if path.is_file())
    found = [path.name for path in files if name.encode() in path.read_bytes()]
    found += [path.name for path in Path(directory).glob(TRAJECTORIES)]
    return sorted(found)


def work(pipe: Pipe, directory: str, script: Script, first: int, failpoint: str = "") -> None:
    """Send requests from one on to a live state, and report: the work of a process to be killed."""
    failpoints.arm(failpoint)
    try:
        live = Live.open(directory, settings=LiveSettings(**_SETTINGS))
        forgot = bool(live.stats()["forgotten"])
        pipe.send({"opened_seq": live.stats()["seq"], "opened_forgot": forgot})
        if forgot and first == script.forgotten_at:
            pipe.send({"left": _files_with(FORGOTTEN, directory)})
        for number in range(first, script.requests):
            if number == script.forgotten_at:
                _drained(live)
                with contextlib.suppress(UnknownNodeError):  # it is gone already
                    live.history(FORGOTTEN)  # writes trajectories
                    live.forget(FORGOTTEN)
                pipe.send({"forgot": True})
            events, key = script.request(number)
            receipt = live.ingest(events, key=key)
            pipe.send({"acknowledged": number, "seq": receipt.seq})
            if number % 7 == 3:
                live.snapshot()
            if number % 11 == 5:
                live._log.checkpoint()
            if number % 13 == 6 and not live._versions.all():
                live._versions.add(_MODEL)
                live.rollback("0001")
                live.rollback("heuristics")
        live.ingest([{"src": "node-1", "dst": "the last", "t": _FAR, "id": "the last"}])
        _drained(live)
        live.rollback("heuristics")  # the model of a killed process is no real one
        pipe.send({"end": _described(live)})
        live.close()
    except TidegraphError as error:
        pipe.send({"error": f"{type(error).__name__}: {error}"})
        raise


_MODEL = Model(
    "",
    {
        "mean": np.zeros(1, dtype=np.float32),
        "scale": np.ones(1, dtype=np.float32),
        "decoder.net.0.weight": np.zeros((1, 1), dtype=np.float32),
        "decoder.net.0.bias": np.zeros(1, dtype=np.float32),
    },
    span=2592e6,
)


def _described(live: Live) -> dict[str, Any]:
    """Return all there is to compare about a live state."""
    state = live._state
    events = state.meetings
    columns = events.t.tolist(), events.src.tolist(), events.dst.tolist()
    return {
        "digest": live.digest(),
        "events": live.stats()["events"],
        "links": [(t, state.name(a), state.name(b)) for t, a, b in zip(*columns, strict=True)],
        "top": live.top("node-1").plain()["data"],
        "similar": live.similar("node-1").plain()["data"],
    }


class Killer:
    """Starts processes on one directory and kills them."""

    def __init__(self, directory: Path, script: Script) -> None:
        self.directory, self.script = directory, script
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tidegraph.bench.live_kills"])

    def run(
        self, first: int = 0, *, failpoint: str = "", kill_after_s: float | None = None
    ) -> Outcome:
        """Let a process send requests from one on, to be killed after a time, or at a failpoint, or
        not at all; return what it has reported.
        """
        ours, theirs = self._context.Pipe(duplex=False)
        arguments = theirs, str(self.directory), self.script, first, failpoint
        process = self._context.Process(target=work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        outcome = Outcome(acknowledged=first - 1)
        until = time.monotonic() + (_PATIENCE_S if kill_after_s is None else kill_after_s)
        with contextlib.suppress(EOFError):
            while True:
                if not ours.poll(max(0.0, until - time.monotonic())):
                    assert process.pid is not None
                    os.kill(process.pid, signal.SIGKILL)
                    if kill_after_s is None:
                        outcome.error = f"it hung for {_PATIENCE_S:g} seconds"
                    until = time.monotonic() + _PATIENCE_S
                for name, value in ours.recv().items():
                    setattr(outcome, name, value)
        process.join()
        outcome.killed = process.exitcode == -signal.SIGKILL
        if process.exitcode not in (0, -signal.SIGKILL):
            outcome.error = outcome.error or f"it ended with {process.exitcode}"
        return outcome


def check_outcome(outcome: Outcome, when: str, seq: int, forgot: bool) -> None:
    """Raise AssertionError if a process did not find what was acknowledged before: an event, and
    that a node was forgotten.
    """
    assert outcome.error is None, f"{when}: {outcome.error}"
    if outcome.opened_seq is not None:
        assert outcome.opened_seq >= seq, (
            f"{when}: event {seq} was acknowledged, and {outcome.opened_seq} is the last one that"
            " is there"
        )
        assert outcome.opened_forgot or not forgot, f"{when}: what was forgotten is there again"
        assert not outcome.left, f"{when}: {outcome.left} hold what was forgotten"


def check_end(end: dict[str, Any], when: str, expected: dict[str, Any]) -> None:
    """Raise AssertionError if the end differs from that of a process nobody killed."""
    for name, value in expected.items():
        assert end[name] == value, f"{when}: {name} differs"


def check_links(script: Script, end: dict[str, Any]) -> None:
    """Raise AssertionError if the events in the end are not those that the model accepts."""
    links = [*script.accepted(), (_FAR, "node-1", "the last")]
    found = [tuple(each) for each in end["links"]]
    same = found == links[: len(found)]
    assert same, f"seed {script.seed}: the events differ from those of the model"
    assert len(found) == len(links) - 1, "the last event waits, and no other"


def check(directory: Path, script: Script, expected: dict[str, Any], ends: Iterator[Any]) -> int:
    """Let processes die one after the other until one finishes; return how many did.

    ends: how each one dies: seconds, or the name of a failpoint. Raise AssertionError if anything
    acknowledged was lost, or what is there in the end is not as expected.
    """
    killer, first, seq, kills, forgot = Killer(directory, script), 0, 0, 0, False
    while True:
        how = next(ends, None)
        if isinstance(how, str):
            outcome = killer.run(first, failpoint=how)
        else:
            outcome = killer.run(first, kill_after_s=how)
        check_outcome(outcome, f"seed {script.seed}, {how}", seq, forgot)
        forgot |= outcome.forgot
        first, seq = outcome.acknowledged + 1, max(seq, outcome.seq)
        kills += outcome.killed
        if outcome.end is not None:
            check_end(outcome.end, f"seed {script.seed}, {how}", expected)
        if not outcome.killed:
            assert outcome.end is not None
            return kills


def uninterrupted(script: Script) -> tuple[dict[str, Any], float]:
    """Return what a process leaves that nobody kills, and how many seconds it takes."""
    with tempfile.TemporaryDirectory() as directory:
        begin = time.monotonic()
        outcome = Killer(Path(directory) / "live", script).run()
        assert outcome.error is None, outcome.error
        assert outcome.end is not None
        check_links(script, outcome.end)
        return outcome.end, time.monotonic() - begin


def live_kills(
    kills: int,
    *,
    seed: int = 0,
    directory: Path | None = None,
    command: str = "tidegraph.bench.live_kills",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Kill processes at random moments, so often, and one at every failpoint; return how that went.

    Raise AssertionError at the first event that is lost, doubled or moved.
    """
    report, begin = progress or silent, time.monotonic()
    work = Path(tempfile.mkdtemp(dir=directory))
    generator = np.random.default_rng(seed)
    done, scripts = 0, 0
    points = []
    try:
        for place, name in enumerate(failpoints.NAMES):
            script = Script(seed=seed, forgets="forget" in name or "purge" in name)
            expected, _ = uninterrupted(script)
            hit = check(work / "points" / str(place), script, expected, iter([name]))
            points.append({"failpoint": name, "kills": hit})
            report(place + 1, len(failpoints.NAMES), "failpoints")
        while done < kills:
            script = Script(seed=seed + 1 + scripts, forgets=scripts % 4 == 3)
            expected, seconds = uninterrupted(script)
            moments = (float(generator.uniform(0, seconds)) for _ in range(min(8, kills - done)))
            done += check(work / str(scripts), script, expected, moments)
            shutil.rmtree(work / str(scripts))
            scripts += 1
            report(done, kills, "kills at random moments")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {
        **circumstances(command),
        "seed": seed,
        "kills": done,
        "directories": scripts,
        "failpoints": points,
        "requests_per_directory": Script(0).requests,
        "lost": 0,
        "doubled": 0,
        "differing_states": 0,
        "seconds": time.monotonic() - begin,
    }
