"""Replicas on a Ray cluster: the same answers, and none of what was confirmed is lost."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tidegraph import Client, Live
from tidegraph.cli.commands import main

TOKEN = "a token of the tests"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["--replicas", "2"], "--engine ray"),
        (["--address", "auto"], "--engine ray"),
        (["--engine", "ray", "--writer", "somewhere"], "HOST:PORT"),
        (["--engine", "ray", "--writer", "0.0.0.0:80"], "HOST:PORT"),
        (["--engine", "ray", "--writer", "10.0.0.5:8001"], "token"),
        (["--engine", "ray", "--replicas", "0"], "x>=1"),
    ],
)
def test_options_that_cannot_work_are_rejected(
    words: list[str], advice: str, tmp_path: Path
) -> None:
    found = CliRunner().invoke(main, ["serve", "--dir", str(tmp_path / "live"), *words])
    assert found.exit_code == 2
    assert advice in found.output
    assert not (tmp_path / "live").exists()


@pytest.mark.parametrize("missing", ["ray", "ray.serve"])
def test_without_ray_the_error_says_what_to_install(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "ray.serve":
        pytest.importorskip("ray", reason="ray is not installed: pip install 'ray[serve]'")
    monkeypatch.setitem(sys.modules, missing, None)
    words = ["serve", "--dir", str(tmp_path / "live"), "--engine", "ray"]
    found = CliRunner().invoke(main, words)
    assert found.exit_code != 0
    assert "pip install 'tidegraph[ray]'" in found.output
    assert len(found.output.strip().splitlines()) == 1


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run the command, and yield its process, its address and that of the writer."""
    command = [sys.executable, "-m", "tidegraph", "serve", "--dir", str(directory), "--port", "0"]
    quick = ("--set", "columns=4", "--set", "learn=false", "--set", "idle_s=0.05")
    errors = directory.parent / "errors"
    with errors.open("w") as file:
        process = subprocess.Popen(
            [*command, "--engine", "ray", "--replicas", "2", *quick],
            env={**os.environ, "TIDEGRAPH_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.findall(r"http://[0-9.:]+[0-9]", line)
        assert len(found) == 2, line + errors.read_text()
        yield process, found[0], found[1]
    finally:
        process.terminate()
        try:
            process.wait(40)
        finally:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()


def replicas(http: httpx.Client, address: str) -> dict[int, int]:
    """The processes that answer, and where each stands."""
    found: dict[int, int] = {}
    for _ in range(30):
        stats = http.get(f"{address}/v1/stats")
        if stats.status_code == 200:
            found[stats.json()["pid"]] = stats.json()["applied_seq"]
    return found


def event(number: int) -> dict[str, Any]:
    return {"src": f"a{number % 7}", "dst": f"b{number % 5}", "t": 1000 + number}


PATHS = (
    *("nodes/a1", "nodes/a1/top", "nodes/b2/similar", "nodes/a3/embedding"),
    *("nodes/a1/history", "nodes/a1/embedding?at=1050", "nodes/nobody"),
)


@pytest.mark.slow
@pytest.mark.ray
def test_replicas_give_the_writers_bytes_and_one_that_is_killed_is_replaced(tmp_path: Path) -> None:
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        serving(tmp_path / "live") as (process, public, writer),
        httpx.Client(headers=headers, timeout=30, trust_env=False) as http,
        Client(public, token=TOKEN) as client,
    ):
        assert httpx.get(f"{public}/v1/stats", trust_env=False).status_code == 401
        assert httpx.get(f"{public}/readyz", trust_env=False).status_code == 200
        assert "<html" in http.get(f"{public}/docs").text

        def check_same() -> None:
            deadline = time.monotonic() + 60
            while True:  # until all stand where the writer will stay
                last = http.get(f"{writer}/v1/stats").json()
                there = replicas(http, public)
                waits = last["watermark"] is None or last["watermark"] <= last["newest"]
                if not waits and len(there) == 2 and set(there.values()) == {last["seq"]}:
                    break
                assert time.monotonic() < deadline, (last, there)
                time.sleep(0.2)
            for path in PATHS:
                expected = http.get(f"{writer}/v1/{path}").content
                for _ in range(6):
                    assert http.get(f"{public}/v1/{path}").content == expected, path
            asked = {"src": "a1", "dst": ["b1", "b2"]}
            expected = http.post(f"{writer}/v1/score", json=asked).content
            for _ in range(6):
                assert http.post(f"{public}/v1/score", json=asked).content == expected

        confirmed, over = 0, threading.Event()
        statuses: list[int] = []
        client.ingest([event(k) for k in range(100)])
        check_same()

        def send() -> None:
            nonlocal confirmed
            while not over.is_set():
                client.ingest([event(100 + confirmed)])
                confirmed += 1

        def read() -> None:
            with httpx.Client(headers=headers, timeout=30, trust_env=False) as own:
                while not over.is_set():
                    statuses.append(own.get(f"{public}/v1/nodes/a1/top").status_code)

        threads = [threading.Thread(target=each) for each in (send, read)]
        for each in threads:
            each.start()
        before = replicas(http, public)
        os.kill(min(before), signal.SIGKILL)
        deadline = time.monotonic() + 60
        while len(now := replicas(http, public)) < 2 or min(before) in now:
            assert time.monotonic() < deadline, now
        over.set()
        for each in threads:
            each.join()
        assert confirmed > 10
        failed = [each for each in statuses if each != 200]
        assert len(statuses) > 50
        assert len(failed) <= 3, failed  # those that the process was answering
        check_same()
        assert client.stats()["events"] == 100 + confirmed

        stream = http.stream("GET", f"{public}/v1/stream")
        with stream as lines:
            told = "".join(line for line, _ in zip(lines.iter_lines(), range(5), strict=False))
        assert "event: applied" in told
        answer = client.forget("a6")
        # Nobody knows yet that the silent one is dead, and not merely cut off.
        assert answer.data["remains"] == {"models": [], "replicas": 1}
        for _ in range(6):
            assert http.get(f"{public}/v1/nodes/a6").status_code == 404
        check_same()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with Live.open(tmp_path / "live") as live:
        assert live.stats()["events"] == 100 + confirmed
