"""The HTTP service: what it accepts, what it rejects, and that nothing else gets through."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from tests.serving import Served, served

from tidegraph import BusyError, Live, LiveSettings, Receipt, StorageError
from tidegraph.live.service import stop_streams

NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
HOSTILE = [
    *("a/b", "100%", "%2F", "ünï 名", "a b", "x/top", "top", "/", "//", "?q=1&r", "#", "a+b"),
    *("<script>alert(1)</script>", "..", ".", "a\nb", "'\"", "back\\slash", ";"),
]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    settings = LiveSettings(columns=4, idle_s=0.05, lateness="1h", learn=False)
    with Live.open(tmp_path / "live", settings=settings) as opened:
        yield opened


@pytest.fixture
def client(live: Live) -> Iterator[Served]:
    with served(live) as made:
        yield made


def until(look: Callable[[], list[Any]], count: int) -> list[Any]:
    """Return what a look finds once it finds so many things."""
    deadline = time.monotonic() + 20
    while len(found := look()) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def lines(*events: Any) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def error_of(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    found: dict[str, Any] = answer.json()["error"]
    assert found["code"]
    assert found["message"]
    return found


ANN_BOB = {"src": "ann", "dst": "bob", "t": 1000}


# Taking in ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["object", "array", "ndjson", "arrow"])
def test_events_arrive_in_every_accepted_form(kind: str, live: Live, client: Served) -> None:
    events = [ANN_BOB] if kind == "object" else [ANN_BOB, {"src": "bob", "dst": "eve", "t": 2000}]
    if kind == "object":
        answer = client.post("/v1/events", json=ANN_BOB)
    elif kind == "array":
        answer = client.post("/v1/events", json=events)
    elif kind == "ndjson":
        answer = client.post("/v1/events", content=lines(*events), headers=NDJSON)
    else:
        sink = pa.BufferOutputStream()
        table = pa.Table.from_pylist(events)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        answer = client.post("/v1/events", content=sink.getvalue().to_pybytes(), headers=ARROW)
    assert answer.status_code == 200, answer.text
    got = answer.json()
    assert (got["accepted"], got["duplicate"], got["late"]) == (len(events), 0, 0)
    assert got["seq"] == got["as_of_seq"] == len(events)
    assert got.keys() >= {"as_of_time", "error", "watermark", "applied", "unit"}
    happened = until(lambda: live.recent(), len(events))
    assert [(e["src"], e["dst"], e["t"]) for e in happened] == [
        (e["src"], e["dst"], e["t"]) for e in events
    ]


def arrow(table: pa.Table, compression: str | None = None) -> bytes:
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("column", "compression", "status"),
    [
        (pa.nulls(10**7), None, 413),
        (pa.array([0] * 1000), "zstd", 415),
        (pa.array(["a"] * 1000), "lz4", 415),
        (pa.array(["a"] * 1000).dictionary_encode(), "zstd", 415),
        (pa.RunEndEncodedArray.from_arrays([2**31 - 1], ["a"]), None, 422),
        (pa.ListArray.from_arrays([0, 2**31 - 1], pa.nulls(2**31 - 1)), None, 422),
        (pa.array(["a"], pa.string_view()), None, 422),
    ],
)
def test_few_bytes_cannot_stand_for_more_than_memory_holds(
    column: pa.Array, compression: str | None, status: int, live: Live, client: Served
) -> None:
    body = arrow(pa.table({"src": column}), compression)
    assert len(body) < 10_000
    begin = time.monotonic()
    error_of(client.post("/v1/events", content=body, headers=ARROW), status)
    assert time.monotonic() - begin < 5
    assert live.stats()["seq"] == 0


def test_names_of_a_dictionary_and_lists_of_features_arrive(live: Live, client: Served) -> None:
    edges = {"src": ["ann", "bob", "ann"], "dst": ["bob", "eve", "eve"], "t": [1, 2, 3]}
    table = pa.table({**edges, "src": pa.array(edges["src"]).dictionary_encode()})
    assert client.post("/v1/events", content=arrow(table), headers=ARROW).json()["accepted"] == 3
    table = pa.table({"node": ["ann"], "op": ["features"], "features": [[1.0, 2.0, 3.0, 4.0]]})
    answer = client.post("/v1/events", content=arrow(table), headers=ARROW)
    assert answer.status_code == 200, answer.text
    assert [row["src"] for row in until(live.recent, 3)] == ["ann", "bob", "ann"]


def test_a_repeated_request_gets_the_first_answer(live: Live, client: Served) -> None:
    headers = {"Idempotency-Key": "once"}
    first = client.post("/v1/events", json=ANN_BOB, headers=headers).json()
    assert client.post("/v1/events", json=ANN_BOB, headers=headers).json() == first
    assert live.stats()["events"] == 1


def test_a_repeated_event_is_counted_and_changes_nothing(client: Served) -> None:
    event = {**ANN_BOB, "id": "e1"}
    client.post("/v1/events", json=event)
    again = client.post("/v1/events", json=event).json()
    assert (again["accepted"], again["duplicate"]) == (0, 1)
    assert client.get("/v1/stats").json()["events"] == 1


@pytest.mark.parametrize(
    ("body", "line", "field"),
    [
        (lines(ANN_BOB, {"src": "ann", "t": 1}), 2, "dst"),
        (lines(ANN_BOB) + b"\n\n" + lines({**ANN_BOB, "t": "soon"}), 4, "t"),
        (lines(ANN_BOB, {**ANN_BOB, "wieght": 2}), 2, "wieght"),
        (lines(ANN_BOB, [1, 2]), 2, None),
        (lines({**ANN_BOB, "t": 2**80}), 1, "t"),
    ],
)
def test_a_bad_event_is_named_by_line_and_field_and_nothing_is_taken(
    body: bytes, line: int, field: str | None, live: Live, client: Served
) -> None:
    error = error_of(client.post("/v1/events", content=body, headers=NDJSON), 422)
    assert error["line"] == line
    assert error.get("field") == field
    assert live.stats()["seq"] == 0


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b'{"src": ', JSON, 400),
        (lines(ANN_BOB) + b'{"src"', NDJSON, 400),
        (b"\xff\xfe", JSON, 400),
        (b"", JSON, 400),
        (b"not arrow", ARROW, 400),
        (b"[" * 100_000, JSON, 400),
        (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {**JSON, "Content-Encoding": "gzip"}, 415),
        (b"7", JSON, 422),
        (lines(ANN_BOB), {**NDJSON, "Idempotency-Key": "with space"}, 400),
        (lines(ANN_BOB), {**NDJSON, "Idempotency-Key": "k" * 256}, 400),
    ],
)
def test_what_is_no_body_of_events_is_rejected(
    content: bytes, headers: dict[str, str], status: int, live: Live, client: Served
) -> None:
    error_of(client.post("/v1/events", content=content, headers=headers), status)
    assert live.stats()["seq"] == 0


def test_the_line_of_malformed_json_is_named(client: Served) -> None:
    body = lines(ANN_BOB) + b"{oops}\n" + lines(ANN_BOB)
    assert error_of(client.post("/v1/events", content=body, headers=NDJSON), 400)["line"] == 2


def test_too_much_at_once_is_413(live: Live) -> None:
    with served(live, max_body_bytes=1000, max_events=5) as client:
        error_of(client.post("/v1/events", content=b"x" * 1001, headers=NDJSON), 413)
        pieces = iter([b"x" * 600, b"x" * 600])  # without a Content-Length
        error_of(client.post("/v1/events", content=pieces, headers=NDJSON), 413)
        error_of(client.post("/v1/events", json=[{"src": "a", "dst": "b"}] * 6), 413)
    assert live.stats()["seq"] == 0


def test_a_full_queue_is_429_and_a_full_disk_503_while_reads_go_on(
    live: Live, fed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(error: Exception) -> Any:
        def ingest(*args: Any, **named: Any) -> Receipt:
            raise error

        return ingest

    with monkeypatch.context() as patch:
        patch.setattr(live, "ingest", failing(BusyError("100,000 events wait", 1.5)))
        busy = fed.post("/v1/events", json=ANN_BOB)
        assert error_of(busy, 429)["code"] == "busy"
        assert busy.headers["Retry-After"] == "2"
        patch.setattr(live, "ingest", failing(StorageError("the disk is full; make room")))
        full = fed.post("/v1/events", json=ANN_BOB)
        error_of(full, 503)
        assert int(full.headers["Retry-After"]) >= 1
        assert fed.get("/v1/nodes/ann").status_code == 200
    assert fed.post("/v1/events", json={**ANN_BOB, "t": 5000}).status_code == 200


def test_reads_go_on_while_commits_wait_and_further_writers_are_turned_away(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, waiting, ingest = threading.Event(), threading.Semaphore(0), live.ingest
    live.ingest(ANN_BOB, wait="applied")

    def slow(*args: Any, **named: Any) -> Receipt:
        waiting.release()
        assert gate.wait(20)
        return ingest(*args, **named)

    monkeypatch.setattr(live, "ingest", slow)
    answers: list[Any] = []
    later = {**ANN_BOB, "t": 9000}
    with served(live, writers=2) as client:
        threads = [
            threading.Thread(target=lambda: answers.append(client.post("/v1/events", json=later)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert waiting.acquire(timeout=20)
        error_of(client.post("/v1/events", json=later), 429)
        assert client.get("/v1/nodes/ann/top").status_code == 200
        gate.set()
        for thread in threads:
            thread.join(10)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert live.stats()["events"] == 3


def test_reads_go_on_while_many_wait_for_a_training(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, waiting = threading.Event(), threading.Semaphore(0)

    def train(*, wait: bool = False) -> None:
        waiting.release()
        assert gate.wait(20)

    monkeypatch.setattr(live, "train", train)
    with served(live, readers=1) as client:
        answers: list[Any] = []
        thread = threading.Thread(
            target=lambda: answers.append(client.post("/v1/versions/train", json={"wait": True}))
        )
        thread.start()
        assert waiting.acquire(timeout=20)
        assert client.get("/v1/stats").status_code == 200
        gate.set()
        thread.join(20)
    assert [answer.status_code for answer in answers] == [200]


def test_reads_go_on_while_the_past_is_recorded(
    live: Live, fed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.history("ann")
    monkeypatch.setattr("tidegraph.live.live._PATIENCE_S", 3.0)
    paths = ["/v1/history?node=ann", "/v1/embedding?node=ann&at=1002"] * 3
    answers: list[Any] = []
    with served(live, readers=1) as client:
        threads = [
            threading.Thread(target=lambda path=path: answers.append(client.get(path)))
            for path in paths
        ]
        with live._movements._lock:
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            begin = time.monotonic()
            assert client.get("/v1/top?node=ann").status_code == 200
            assert time.monotonic() - begin < 2
        for thread in threads:
            thread.join(30)
    assert [answer.status_code for answer in answers] == [200] * len(paths)


# Questions ----------------------------------------------------------------------------------------


@pytest.fixture
def fed(client: Served) -> Served:
    pairs = [("ann", "bob"), ("ann", "bob"), ("ann", "eve"), ("bob", "eve")]
    body = lines(*({"src": s, "dst": d, "t": 1000 + k} for k, (s, d) in enumerate(pairs)))
    answer = client.post("/v1/events?wait=applied", content=body, headers=NDJSON)
    assert answer.json()["applied"] is True
    return client


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/nodes/ann", None),
        ("GET", "/v1/nodes/ann/top?k=2&at=1003", None),
        ("GET", "/v1/nodes/ann/similar", None),
        ("GET", "/v1/nodes/ann/embedding?at=2024-05-01", None),
        ("GET", "/v1/embedding?node=ann&node=bob", None),
        ("GET", "/v1/nodes/ann/history?points=10", None),
        ("POST", "/v1/score", {"src": "ann", "dst": ["bob", "eve"]}),
        ("POST", "/v1/score", {"pairs": [["ann", "bob"]], "at": 1003}),
        ("POST", "/v1/explain", {"src": "ann", "dst": "bob"}),
        ("POST", "/v1/forget", {"node": "eve"}),
        ("GET", "/v1/stats", None),
        ("GET", "/v1/quality", None),
        ("GET", "/v1/versions", None),
        ("POST", "/v1/versions/rollback", {"version": "heuristics"}),
    ],
)
def test_every_answer_names_its_moment(method: str, path: str, body: Any, fed: Served) -> None:
    answer = fed.request(method, path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() >= {"as_of_seq", "as_of_time", "error"}
    assert answer.headers["cache-control"] == "no-store"


def test_the_likeliest_destination_comes_first(fed: Served) -> None:
    data = fed.get("/v1/nodes/ann/top?k=2").json()["data"]
    assert data["names"] == ["eve", "bob"]  # whom it met last
    scored = fed.post("/v1/score", json={"src": "ann", "dst": ["eve", "bob"]}).json()["data"]
    assert scored["probability"] == data["probability"]
    assert 1 >= data["probability"][0] > data["probability"][1] > 0


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_can_be_asked_about(name: str, live: Live, client: Served) -> None:
    event = {"src": name, "dst": "bob", "t": 1}
    assert client.post("/v1/events?wait=applied", json=event).status_code == 200
    by_query = client.get("/v1/nodes", params={"node": name})
    assert by_query.json()["data"]["name"] == name
    assert client.get("/v1/top", params={"node": name}).json()["data"]["names"] == ["bob"]
    if name not in (".", ".."):  # which clients remove from a path themselves
        path = f"/v1/nodes/{quote(name, safe='')}"
        assert client.get(path).json()["data"]["name"] == name
        assert client.get(f"{path}/top").json()["data"]["names"] == ["bob"]
        assert client.get(f"{path}/top?node=bob").json()["data"]["names"] == ["bob"]


def test_slashes_of_a_name_may_stay_as_they_are(client: Served) -> None:
    client.post("/v1/events?wait=applied", json={"src": "a/b", "dst": "bob", "t": 1})
    assert client.get("/v1/nodes/a/b").json()["data"]["name"] == "a/b"
    assert client.get("/v1/nodes/a/b/top").json()["data"]["names"] == ["bob"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("GET", "/v1/nodes/nobody", None, 404, None),
        ("GET", "/v1/nodes/nobody/top", None, 404, None),
        ("GET", "/v1/nodes/", None, 404, None),
        ("GET", "/v1/nodes", None, 422, "node"),
        ("GET", "/v1/nodes/ann/top?k=0", None, 422, "k"),
        ("GET", "/v1/nodes/ann/top?k=many", None, 422, "k"),
        ("GET", "/v1/nodes/ann/history?points=1", None, 422, "points"),
        ("GET", "/nothing", None, 404, None),
        ("GET", "/v1/events", None, 405, None),
        ("POST", "/v1/score", {"src": "ann"}, 422, "dst"),
        ("POST", "/v1/score", {"src": ["ann", "bob"], "dst": ["a", "b", "c"]}, 422, "dst"),
        ("POST", "/v1/score", {"src": "ann", "dst": "bob", "ta": 1}, 422, "ta"),
        ("POST", "/v1/score", {"src": "ann", "dst": "nobody"}, 404, None),
        ("POST", "/v1/explain", {"src": "ann", "dst": None}, 422, "dst.str"),
        ("POST", "/v1/forget", {"node": "nobody"}, 404, None),
        ("POST", "/v1/forget", {}, 422, "node"),
        ("POST", "/v1/versions/rollback", {"version": "9999"}, 422, None),
        ("POST", "/v1/versions/train", {"wait": True}, 422, None),  # four events are too few
        ("POST", "/v1/events?wait=long", ANN_BOB, 422, "wait"),
    ],
)
def test_a_bad_question_is_rejected_in_one_shape(
    method: str, path: str, body: Any, status: int, field: str | None, fed: Served
) -> None:
    answer = fed.request(method, path, json=body)
    error = error_of(answer, status)
    assert error.get("field") == field


def test_an_error_nobody_expected_is_500_without_a_traceback(
    live: Live, client: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> dict[str, Any]:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(live, "stats", fails)
    answer = client.get("/v1/stats")
    assert error_of(answer, 500)["code"] == "internal"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


# Who may ask --------------------------------------------------------------------------------------


def test_only_the_token_in_its_header_opens_the_service(live: Live) -> None:
    with served(live, token="s3cret") as client:
        for headers, query in (
            ({}, ""),
            ({"Authorization": "Bearer wrong"}, ""),
            ({"Authorization": "Bearer s3cret2"}, ""),
            ({"Authorization": "Basic s3cret"}, ""),
            ({"Authorization": "s3cret"}, ""),
            ({"Authorization": "Bearer"}, ""),
            ({}, "?token=s3cret"),
            ({}, "?access_token=s3cret"),
        ):
            for method, path in (("GET", "/v1/stats"), ("POST", "/v1/events"), ("GET", "/metrics")):
                answer = client.request(method, path + query, headers=headers)
                error_of(answer, 401)
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        allowed = {"Authorization": "Bearer s3cret"}
        assert client.get("/v1/stats", headers=allowed).status_code == 200
        for path in ("/", "/livez", "/readyz", "/docs", "/page.css"):
            assert client.get(path).status_code == 200


def test_a_server_that_can_store_nothing_is_alive_and_not_ready(
    live: Live, fed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(live._state, "apply", fail)
    assert fed.get("/readyz").status_code == 200
    fed.post("/v1/events", content=lines({"src": "ann", "dst": "bob", "t": 2000}), headers=NDJSON)
    until(lambda: [1] if fed.get("/readyz").status_code == 503 else [], 1)
    assert fed.get("/livez").status_code == 200
    assert fed.get("/v1/top?node=ann").status_code == 200


def test_pages_of_other_sites_may_not_ask(live: Live, client: Served) -> None:
    theirs = {"Origin": "https://evil.example"}
    error_of(client.post("/v1/versions/train", json={}, headers=theirs), 403)
    error_of(client.get("/v1/stats", headers={"Host": "evil.example"}), 403)
    own = {"Origin": str(client.base_url).rstrip("/")}
    assert client.get("/v1/stats", headers=own).status_code == 200
    preflight = {**theirs, "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in client.options("/v1/stats", headers=theirs).headers
    with served(live, origins=("https://evil.example",)) as invited:
        answer = invited.options("/v1/events", headers=preflight)
    assert answer.headers["access-control-allow-origin"] == "https://evil.example"


# About itself -------------------------------------------------------------------------------------


def test_probes_and_metrics_are_there(fed: Served) -> None:
    assert fed.get("/livez").json() == {"status": "ok"}
    assert fed.get("/readyz").json() == {"status": "ok"}
    text = fed.get("/metrics").text
    assert "tidegraph_events_total 4.0" in text
    assert 'route="/v1/events"' in text
    fed.get("/v1/nodes/ann/top")
    fed.get("/wp-login.php")
    fed.request("LOOK", "/v1/stats")
    text = fed.get("/metrics").text
    assert "LOOK" not in text
    assert "wp-login" not in text
    assert "ann" not in text
    stop_streams(fed.app)
    error_of(fed.get("/readyz"), 503)
    assert fed.get("/livez").status_code == 200


def test_the_description_has_every_route_with_its_body_and_answer(client: Served) -> None:
    described = client.get("/openapi.json").json()
    served = {
        "/v1/events /v1/score /v1/explain /v1/forget /v1/nodes/{node} /v1/nodes/{node}/top"
        " /v1/nodes/{node}/similar /v1/nodes/{node}/embedding /v1/nodes/{node}/history /v1/stats"
        " /v1/quality /v1/versions /v1/versions/train /v1/versions/rollback /v1/stream /livez"
        " /readyz /metrics"
    }
    assert set(" ".join(served).split()) <= described["paths"].keys()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["responses"]["200"]["content"], path
            assert operation["responses"]["429"]["content"], path
            if method == "post":
                assert operation["requestBody"]["content"], path


def test_the_reference_page_shows_every_route_and_loads_nothing_from_elsewhere(
    client: Served,
) -> None:
    page = client.get("/docs")
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_stream_shows_what_happens_and_resumes(live: Live) -> None:
    with served(live) as client:
        for k in range(3):
            client.post("/v1/events", json={"src": "ann", "dst": f"n{k}", "t": k})
        stopper = threading.Timer(1.0, lambda: stop_streams(client.app))
        stopper.start()
        text = client.get("/v1/stream", headers={"Last-Event-ID": "1"}).text
        assert [line for line in text.splitlines() if line.startswith("id:")] == ["id: 2", "id: 3"]
        assert '"dst":"n2"' in text
