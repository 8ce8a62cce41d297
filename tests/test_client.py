"""The client, and what sends files, pipes and Redis streams: nothing is lost and nothing twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.serving import Served, served

from tidegraph import (
    BusyError,
    Client,
    DataError,
    EventStream,
    Live,
    LiveSettings,
    ParameterError,
    RowError,
    ServerError,
    UnknownNodeError,
)
from tidegraph.live.exporting import export
from tidegraph.live.ingesting import LineFile, StreamRows, send_lines, send_pipe
from tidegraph.live.redis_source import RedisSource, _event

SETTINGS = LiveSettings(columns=4, idle_s=0.05, lateness="1h", learn=False)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with Live.open(tmp_path / "live", settings=SETTINGS) as opened:
        yield opened


@pytest.fixture
def server(live: Live) -> Iterator[Served]:
    with served(live) as made:
        yield made


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    with Client(str(server.base_url), patience_s=10) as made:
        yield made


def written(path: Path, count: int, first: int = 0) -> Path:
    with path.open("a") as file:
        for k in range(first, first + count):
            file.write(json.dumps({"src": f"a{k % 7}", "dst": f"b{k % 5}", "t": 1000 + k}) + "\n")
    return path


# The client ---------------------------------------------------------------------------------------


def test_client_and_live_answer_alike(live: Live, client: Client) -> None:
    events = [{"src": "ann", "dst": name, "t": k} for k, name in enumerate("bcbdb")]
    receipt = client.ingest(events, wait="applied")
    assert (receipt.accepted, receipt.applied) == (5, True)
    for verb, given in (
        ("score", ("ann", ["b", "c"])),
        ("top", ("ann", 2)),
        ("similar", ("ann",)),
        ("node", ("ann",)),
        ("history", ("ann", 10)),
        ("explain", ("ann", "b")),
        ("embedding", (["ann", "b"],)),
    ):
        here, there = getattr(live, verb)(*given), getattr(client, verb)(*given)
        assert there.plain() == here.plain(), verb
    assert isinstance(client.embedding("ann").data["embedding"], np.ndarray)
    assert client.stats()["events"] == 5


@pytest.mark.parametrize(
    "events",
    [
        {"src": "a", "dst": "b", "t": 1},
        [{"src": "a", "dst": "b", "t": 1}],
        {"src": ["a"], "dst": ["b"], "t": np.array([1])},
        {"src": "a", "dst": ["b"], "t": 1},
        pa.table({"src": ["a"], "dst": ["b"], "t": [1]}),
    ],
)
def test_the_client_takes_what_live_takes(events: Any, live: Live, client: Client) -> None:
    client.ingest(events, wait="applied")
    (found,) = live.recent()
    assert (found["src"], found["dst"], found["t"]) == ("a", "b", 1)


def test_errors_of_the_server_are_those_of_live(client: Client) -> None:
    with pytest.raises(RowError) as caught:
        client.ingest([{"src": "a", "dst": "b"}, {"src": "a", "t": 1}])
    assert (caught.value.row, caught.value.field) == (1, "dst")
    with pytest.raises(UnknownNodeError, match="nobody"):
        client.top("nobody")
    with pytest.raises(ParameterError, match="k"):
        client.top("nobody", k=0)
    with pytest.raises(ParameterError, match="nowhere"):
        Client("nowhere")


def test_a_wrong_token_and_a_missing_server_are_named(live: Live) -> None:
    with served(live, token="the-right-one") as server:
        url = str(server.base_url)
        with Client(url, token="wrong") as client, pytest.raises(ServerError, match="token"):
            client.stats()
        with Client(url, token="the-right-one") as client:
            assert client.stats()["events"] == 0
    with Client(url, patience_s=0.3) as client, pytest.raises(ServerError, match="running"):
        client.stats()


def _all(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


class _Flaky:
    """A proxy that closes connections: before the request arrives, or before the answer does."""

    def __init__(self, port: int) -> None:
        self._port, self.lost = port, 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._plan = iter(["request", "answer", "answer", "", "answer", "", "request"])
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            near = self._socket.accept()[0]
            lost = next(self._plan, "")
            with near, socket.create_connection(("127.0.0.1", self._port)) as far:
                self.lost += bool(lost)
                if lost == "request":
                    continue
                request = near.recv(1 << 20)
                while request.partition(b"\r\n\r\n")[2] == b"" and b"POST" in request:
                    request += near.recv(1 << 20)
                far.sendall(request.replace(b"keep-alive", b"close"))
                answer = _all(far)
                if lost != "answer":
                    near.sendall(answer)


def test_events_are_taken_once_whatever_gets_lost_on_the_way(live: Live, server: Served) -> None:
    flaky = _Flaky(server.base_url.port or 0)
    with Client(flaky.url, patience_s=20, timeout_s=5) as client:
        for k in range(3):
            assert client.ingest({"src": "a", "dst": "b", "t": k}).accepted == 1
    assert flaky.lost >= 4
    assert live.stats()["events"] == 3
    assert live.stats()["repeated_requests"] >= 2


def test_long_work_is_waited_for_and_asked_for_once(
    live: Live, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.ingest({"src": "ann", "dst": "bob", "t": 1}, wait="applied")
    forget = live.forget

    def slow(*given: Any, **named: Any) -> Any:
        time.sleep(1.0)
        return forget(*given, **named)

    monkeypatch.setattr(live, "forget", slow)
    with Client(str(server.base_url), timeout_s=0.3) as client:
        assert client.forget("ann").data["events"] == 1


# Files and pipes ----------------------------------------------------------------------------------


def test_a_file_is_resumed_where_it_stopped_and_its_growth_is_sent(
    tmp_path: Path, live: Live, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "calls.ndjson", 950)
    ingest, calls = live.ingest, 0

    def failing(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        receipt = ingest(*args, **named)
        if calls == 4:  # stored, but the answer never arrives
            raise ZeroDivisionError
        return receipt

    monkeypatch.setattr(live, "ingest", failing)
    with pytest.raises(ServerError):
        send_lines(client, LineFile(path), "calls", size=100)
    assert live.stats()["events"] == 400
    sent = send_lines(client, LineFile(path), "calls", size=100)
    assert (sent.accepted, sent.duplicate) == (550, 0)
    assert send_lines(client, LineFile(path), "calls", size=100).accepted == 0
    written(path, 30, first=950)
    assert send_lines(client, LineFile(path), "calls", size=100).accepted == 30
    assert live.stats()["events"] == 980


def test_a_line_that_is_still_being_written_is_sent_once_it_is_complete(
    tmp_path: Path, live: Live, client: Client
) -> None:
    path = written(tmp_path / "calls.ndjson", 25)
    last = '{"src": "ann ü", "dst": "b", "t": 99}'.encode()
    whole = path.read_bytes()
    for cut in (1, 12, last.index(b"\xbc"), len(last) - 1):
        path.write_bytes(whole + last[:cut])
        lines = LineFile(path)
        send_lines(client, lines, "calls", size=5)
        assert lines.unfinished
        assert live.stats()["events"] == 25
    path.write_bytes(whole + last)
    lines = LineFile(path)
    assert send_lines(client, lines, "calls", size=5).accepted == 1
    assert not lines.unfinished


def test_a_file_that_was_replaced_is_not_resumed(tmp_path: Path, client: Client) -> None:
    path = written(tmp_path / "calls.ndjson", 10)
    send_lines(client, LineFile(path), "calls")
    path.unlink()
    with pytest.raises(DataError, match="--name"):
        send_lines(client, LineFile(written(path, 20, first=500)), "calls")
    path.write_text("")
    with pytest.raises(DataError, match="--name"):
        send_lines(client, LineFile(path), "calls")


def test_a_bad_line_is_named_and_those_before_it_are_kept(
    tmp_path: Path, live: Live, client: Client
) -> None:
    path = written(tmp_path / "calls.ndjson", 25)
    with path.open("a") as file:
        file.write('{"src": "a", "dst": "b", "t": "soon"}\n')
    with pytest.raises(DataError, match=r"line 26 .*soon"):
        send_lines(client, LineFile(path), "calls", size=10)
    assert live.stats()["events"] == 20
    path = written(tmp_path / "more.ndjson", 25)
    with path.open("a") as file:
        file.write("{oops}\n")
    with pytest.raises(DataError, match=r"line 26 .*not JSON"):
        send_lines(client, LineFile(path), "more", size=10)


def test_a_stream_arrives_as_it_is(live: Live, client: Client) -> None:
    stream = EventStream([0, 1, 0], [1, 2, 1], [5, 6, 7], 3, weight=[1, 2, 1], op=[0, 2, 1])
    assert send_lines(client, StreamRows(stream), "s", size=2).accepted == 3
    client.ingest([], wait="applied")
    deadline = time.monotonic() + 10
    while len(found := live.recent()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [(e["src"], e["dst"], e["t"], e["op"]) for e in found] == [
        ("0", "1", 5, "add"),
        ("1", "2", 6, "set"),
        ("0", "1", 7, "remove"),
    ]


def test_lines_of_a_pipe_are_sent_before_it_ends(live: Live, client: Client) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe:
        result: list[Any] = []
        thread = threading.Thread(target=lambda: result.append(send_pipe(client, pipe)))
        thread.start()
        os.write(write, b'{"src": "a", "dst": "b", "t": 1}\n{"src": "a", "dst"')
        deadline = time.monotonic() + 10
        while live.stats()["events"] < 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.write(write, b': "c", "t": 2}')
        os.close(write)
        thread.join(10)
    assert result[0].accepted == live.stats()["events"] == 2


# Out ----------------------------------------------------------------------------------------------


def test_exports_have_every_node_with_its_error_and_the_newest_stay(
    tmp_path: Path, live: Live
) -> None:
    assert export(live, tmp_path / "out") is None
    for k in range(5):
        live.ingest({"src": "ann", "dst": f"n{k}", "t": k}, wait="applied")
        path = export(live, tmp_path / "out", keep=3)
        assert path is not None
    assert len(list((tmp_path / "out").iterdir())) == 3
    table = pq.read_table(path)
    assert table["node"].to_pylist() == ["ann", *(f"n{k}" for k in range(5))]
    answer = live.embedding(table["node"].to_pylist())
    found = np.array(table["embedding"].to_pylist(), dtype=np.float32)
    np.testing.assert_array_equal(found, answer.data["embedding"].reshape(6, -1))
    assert answer.error is not None
    assert table["error"].to_pylist() == answer.error.tolist()
    assert set(table["as_of_seq"].to_pylist()) == {answer.as_of_seq}


def test_an_export_of_nodes_that_are_numbers_has_their_names(tmp_path: Path) -> None:
    stream = EventStream([0], [1], [5], names=np.array([10, 20]))
    with Live.open(tmp_path / "live", stream, settings=LiveSettings(columns=4)) as live:
        path = export(live, tmp_path / "out")
    assert pq.read_table(path)["node"].to_pylist() == ["10", "20"]


def test_an_export_during_which_a_node_was_forgotten_does_not_appear(
    tmp_path: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.ingest([{"src": "ann", "dst": "bob", "t": 1}, {"src": "bob", "dst": "eve", "t": 2}])
    live.ingest({"src": "bob", "dst": "eve", "t": 3}, wait="applied")
    embedding_of = live.embedding_of

    def meanwhile(numbers: Any) -> Any:
        answer = embedding_of(numbers)
        live.forget("ann")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(live, "embedding_of", meanwhile)
        with pytest.raises(BusyError, match="forgotten"):
            export(live, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    path = export(live, tmp_path / "out")
    assert pq.read_table(path)["node"].to_pylist() == ["bob", "eve"]


def test_an_entry_of_redis_that_is_too_deep_is_no_event() -> None:
    assert _event({b"event": b"[" * 100_000}) is None


# The commands -------------------------------------------------------------------------------------


def _command(*words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidegraph", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )


class _Process:
    """A server in a process of its own."""

    def __init__(self, *words: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidegraph", "serve", *map(str, words), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = ""
        while "Serving" not in line:
            line = self.process.stdout.readline()
            assert line, "the server ended"
        self.url = line.split(" at ")[1].split(": ")[0]

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def test_a_server_continues_after_a_stop_and_after_a_kill(tmp_path: Path) -> None:
    table = tmp_path / "calls.csv"
    table.write_text("src,dst,t\n" + "".join(f"a{k % 3},b,{k}\n" for k in range(30)))
    directory, lines = tmp_path / "live", written(tmp_path / "more.ndjson", 100)
    first = _Process(table, "--unit", "s", "--dir", directory)
    again = _command("serve", "--dir", directory, "--port", "0")
    assert again.returncode == 1
    assert len(again.stderr.strip().splitlines()) == 1, again.stderr
    done = _command("ingest", lines, "--to", first.url, "--json")
    assert json.loads(done.stdout.splitlines()[-1])["accepted"] == 100, done.stderr
    first.process.kill()
    first.end(signal.SIGKILL)

    second = _Process("--dir", directory)
    done = _command("ingest", lines, "--to", second.url)
    assert done.returncode == 0
    assert "0 events accepted" in done.stdout
    with Client(second.url) as client:
        assert client.stats()["events"] == 130
    assert second.end(signal.SIGTERM) == 0

    with Live.open(directory, settings=LiveSettings(learn=False)) as live:
        assert live.stats()["events"] == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "0.0.0.0"), "token"),
        (("--host", "0.0.0.0", "--token", "short"), "8"),
        (("--from", "http://x/y"), "redis://"),
        (("--lateness", "soon"), "soon"),
        (("nothing-there.csv",), "nothing-there.csv"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = _command("serve", "--dir", tmp_path / "live", "--port", "0", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# Redis --------------------------------------------------------------------------------------------


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    path = shutil.which("redis-server")
    if path is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [path, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.slow
def test_entries_of_a_redis_stream_arrive_exactly_once_through_kills(
    tmp_path: Path, redis_url: str
) -> None:
    import redis

    server = redis.Redis.from_url(redis_url)
    directory, count = tmp_path / "live", 6000
    for k in range(count):
        fields: dict[Any, Any] = {"src": f"a{k % 11}", "dst": f"b{k % 13}", "t": 1000 + k}
        if k % 2:
            fields = {"event": json.dumps(fields)}
        server.xadd("calls", fields)
        if k % 1000 == 0:
            server.xadd("calls", {"src": "nobody"})  # no event
            server.xadd("calls", {"event": "{"})
    words = ("--dir", directory, "--from", f"{redis_url}/calls", "--lateness", "1h")
    for wait_s in (0.0, 0.05, 0.2):
        started = _Process(*words)
        time.sleep(wait_s)
        started.end(signal.SIGKILL)
    last = _Process(*words)
    with Client(last.url) as client:
        deadline = time.monotonic() + 60
        while client.stats()["events"] < count and time.monotonic() < deadline:
            time.sleep(0.1)
        server.xadd("calls", {"src": "late", "dst": "comer", "t": 9000})
        while client.stats()["events"] < count + 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        assert client.stats()["events"] == count + 1
        assert client.node("late").data["events_as_src"] == 1
    assert last.end(signal.SIGTERM) == 0
    with Live.open(directory, settings=SETTINGS) as live:
        found = [each["t"] for each in live.recent(limit=1000)]
        assert found == sorted(found)
        assert len(found) == len(set(found))


@pytest.mark.slow
def test_a_redis_server_may_come_and_go(live: Live, redis_url: str) -> None:
    import redis

    server = redis.Redis.from_url(redis_url)
    with RedisSource(live, f"{redis_url}/0/calls") as source:
        server.xadd("calls", {"src": "a", "dst": "b", "weight": "2.5", "t": "2024-05-01T12:00"})
        deadline = time.monotonic() + 20
        while source.taken < 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        server.config_set("maxclients", 1)
        server.client_kill_filter(skipme=True)
        server.config_set("maxclients", 100)
        server.xadd("calls", {"src": "a", "dst": "c", "t": 1_714_570_000_000})
        while source.taken < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert source.plain()["taken"] == 2
    assert live.stats()["events"] == 2
