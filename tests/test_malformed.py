"""Malformed requests: no failure of the server, no change of its state, no traceback.

`make malformed` sends 100,000 of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.serving import served

from tidegraph import Live, LiveSettings
from tidegraph.live.service import create_app

COUNT = int(os.environ.get("TIDEGRAPH_MALFORMED", "3000"))
VERBS = ("top", "similar", "embedding", "history")
EVENT = {"src": "ann", "dst": "bob", "t": 1000, "id": "1", "weight": 1.5, "op": "add"}
BODIES: dict[str, list[Any]] = {
    "/v1/events": [EVENT, [EVENT, EVENT], {"op": "remove_node", "node": "bob"}, []],
    "/v1/score": [{"src": "ann", "dst": ["bob"]}, {"pairs": [["ann", "bob"]], "at": 3}],
    "/v1/explain": [{"src": "ann", "dst": "bob", "at": "2024-05-01"}],
    "/v1/forget": [{"node": "nobody", "refit": False}],
    "/v1/versions/rollback": [{"version": "9999"}],
}
PATHS = [
    *("/v1/nodes", "/v1/stats", "/v1/quality", "/v1/versions", "/v1/position", "/metrics"),
    *("/livez", "/readyz", "/", "/docs", "/openapi.json", "/v1/nodes/ann", "/v1/nodes/a%2Fb/top"),
    *(f"/v1/{verb}" for verb in VERBS),
    *(f"/v1/nodes/ann/{verb}" for verb in VERBS),
    *("/v1/../v1/stats", "//", "/v1/nodes/", "/v1/nodes/%ff%00/top", "/etc/passwd"),
]
TYPES = [
    *("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"),
    *("application/json; charset=latin-1", "text/plain", "multipart/form-data", "", "\x00"),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        [
            *(2**63, -(2**63), 2**64, 1e308, "ann", "bob", "", "\x00", "\ud800", "a" * 2000),
            *("2024-05-01", "9999-12-31T23:59:60", "-1", "1e9", "NaN", "add", "remove", "features"),
        ]
    )
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
fields = st.sampled_from(["src", "dst", "t", "id", "op", "weight", "node", "features", "at", "k"])


def plain(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except (UnicodeEncodeError, ValueError):
        return b"{}"


@st.composite
def bodies(draw: st.DrawFn, path: str) -> bytes:
    """A body that is right but for one thing, or not right at all."""
    kind = draw(
        st.sampled_from(["field", "field", "cut", "bytes", "any", "arrow", "lines", "deep"])
    )
    template = draw(st.sampled_from(BODIES.get(path, [{}])))
    if kind == "field":
        one = dict(template[0] if isinstance(template, list) and template else template or EVENT)
        one[draw(fields | st.text(max_size=5))] = draw(values)
        if draw(st.booleans()):
            one.pop(draw(st.sampled_from(sorted(one))))
        return plain(one)
    if kind == "cut":
        whole = plain(template)
        return whole[: draw(st.integers(0, len(whole) - 1))] + draw(st.binary(max_size=5))
    if kind == "bytes":
        return draw(st.binary(max_size=200))
    if kind == "arrow":
        sink = pa.BufferOutputStream()
        columns = draw(
            st.dictionaries(
                fields,
                st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2)
                | st.lists(st.text(max_size=3), min_size=2, max_size=2)
                | st.lists(st.none() | st.floats(), min_size=2, max_size=2)
                | st.lists(st.binary(max_size=3), min_size=2, max_size=2),
            )
        )
        table = pa.table(columns)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        stream = bytearray(sink.getvalue().to_pybytes())
        for _ in range(draw(st.integers(0, 4))):
            stream[draw(st.integers(0, len(stream) - 1))] = draw(st.integers(0, 255))
        return bytes(stream)
    if kind == "lines":
        return b"\n".join(plain(each) for each in draw(st.lists(values, max_size=4)))
    if kind == "deep":
        return draw(st.sampled_from([b"[", b'{"src":'])) * draw(st.integers(1, 5000))
    return plain(draw(values))


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A request to a path that is there, or nearly."""
    path = draw(st.sampled_from([*PATHS, *BODIES, *BODIES, *BODIES]))
    if draw(st.integers(0, 9)) == 0:
        path = "/" + quote(draw(st.text(max_size=20)), safe="/%.")
    method = "POST" if path in BODIES else "GET"
    if draw(st.integers(0, 9)) == 0:
        method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "X"]))
    names = st.sampled_from(["node", "k", "at", "points", "wait", "source", "after", "token"])
    query = "&".join(
        f"{name}={quote(str(value), errors='replace')}"
        for name, value in draw(st.lists(st.tuples(names, scalars), max_size=3))
    )
    headers = [(b"host", b"127.0.0.1")]
    kind = draw(st.sampled_from(TYPES)) if draw(st.integers(0, 4)) == 0 else ""
    body = draw(bodies(path)) if method == "POST" else b""
    if not kind:
        arrow = body.startswith(b"\xff\xff\xff\xff")
        kind = TYPES[2] if arrow else TYPES[draw(st.integers(0, 1))] if body else TYPES[0]
    headers.append((b"content-type", kind.encode()))
    if draw(st.integers(0, 4)) == 0:
        name = draw(
            st.sampled_from(
                [
                    "idempotency-key",
                    "content-length",
                    "last-event-id",
                    "host",
                    "origin",
                    "authorization",
                ]
            )
        )
        value = draw(st.text(max_size=300)).encode("utf-8", "replace").decode("latin-1")
        headers.append((name.encode(), value.encode("latin-1")))
    return {"method": method, "path": path, "query": query, "headers": headers, "body": body}


async def answer(app: Any, request: dict[str, Any]) -> tuple[int, bytes]:
    """Return status and body of the answer to a request, without a network between."""
    given, status, pieces = False, 0, []

    async def receive() -> dict[str, Any]:
        nonlocal given
        if given:
            return {"type": "http.disconnect"}
        given = True
        return {"type": "http.request", "body": request["body"], "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        pieces.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request["method"],
        "scheme": "http",
        "path": unquote(request["path"], errors="replace"),
        "raw_path": request["path"].encode("latin-1", "replace"),
        "query_string": request["query"].encode("latin-1", "replace"),
        "root_path": "",
        "headers": request["headers"],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await asyncio.wait_for(app(scope, receive, send), 60)
    return status, b"".join(pieces)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = tmp_path_factory.mktemp("malformed") / "live"
    # Nothing moves the watermark but events, so that the state stands still between requests.
    fixed = LiveSettings(columns=4, idle_s=3600, lateness="0s", learn=False)
    with Live.open(path, settings=fixed) as opened:
        opened.ingest([{"src": "ann", "dst": "bob", "t": k} for k in range(5)])
        yield opened


def test_malformed_requests_neither_fail_nor_change_anything(live: Live) -> None:
    app = create_app(live)
    runner = asyncio.new_event_loop()

    @settings(
        max_examples=COUNT,
        deadline=None,
        database=None,
        derandomize=COUNT <= 3000,
        suppress_health_check=list(HealthCheck),
    )
    @given(requests())
    def attack(request: dict[str, Any]) -> None:
        before = live.stats()
        status, body = runner.run_until_complete(answer(app, request))
        after = live.stats()
        event(f"{status}")
        assert 200 <= status < 500, (request, body)
        assert b"Traceback" not in body, request
        assert b'File "' not in body, request
        taken = json.loads(body) if request["path"].rstrip("/") == "/v1/events" else {}
        accepted = taken.get("accepted", 0) if status == 200 else 0
        changed = [name for name in ("seq", "events") if after[name] != before[name]]
        forgotten = status == 200 and request["path"] == "/v1/forget"
        assert not changed or accepted or forgotten, (request, body)
        if status >= 400 and request["method"] != "HEAD":
            assert json.loads(body)["error"]["message"], (request, body)

    try:
        attack()
    finally:
        runner.close()
    receipt = live.ingest({"src": "ann", "dst": "bob", "t": 10})  # some of them took the time on
    assert receipt.accepted + receipt.late == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/stats HTTP/1.1\r\nHost: \xff\xfe[\r\n\r\n",
        b"GET /v1/stats HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"\r\n" * 1000,
    ],
)
def test_what_is_no_http_does_not_stop_the_server(garbage: bytes, tmp_path: Path) -> None:
    opened = Live.open(tmp_path / "live", settings=LiveSettings(columns=4, learn=False))
    with opened as live, served(live) as client:
        port = client.base_url.port
        with socket.create_connection(("127.0.0.1", port or 0), 10) as connection:
            connection.settimeout(2)
            answered = b""
            with contextlib.suppress(OSError):  # closed, or silent because it waits for more
                connection.sendall(garbage)
                answered = connection.recv(1 << 16)
        assert b"Traceback" not in answered
        assert b" 500 " not in answered.partition(b"\r\n")[0]
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/stats").json()["seq"] == 0
