"""Replicas follow a writer over HTTP: at the same sequence number they give the same bytes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.serving import Served, served
from tests.test_live_ingest import streams
from tests.test_live_learning import habits
from tests.test_service import HOSTILE

from tidegraph import Client, Live, LiveSettings, ServerError, UnknownNodeError
from tidegraph.live.forwarding import FORWARDED
from tidegraph.live.replica import Replica

QUICK: dict[str, Any] = {
    "columns": 4,
    "learn": False,
    "idle_s": 0.05,
    "lateness": "10",
    "half_lives": (7.0,),
}


@contextlib.contextmanager
def opened(path: Path, **changes: Any) -> Iterator[Live]:
    with Live.open(path, settings=LiveSettings(**{**QUICK, **changes})) as live:
        yield live


@contextlib.contextmanager
def following(writer: Served, name: str = "r", token: str | None = None) -> Iterator[Replica]:
    with Replica(str(writer.base_url), name=name, token=token) as replica:
        replica.wait()
        yield replica


def until(true: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def settle(live: Live) -> int:
    """Wait until the writer has applied all it has, and return where it stands."""

    def settled() -> bool:
        now = live.stats()
        marked = now["newest"] is None or now["watermark"] > now["newest"]
        if live.settings.idle_s < 60 and not marked:
            return False  # the watermark will move on by itself
        return bool(now["queue"] == 0 and now["applied_seq"] == now["seq"])

    until(settled)
    return int(live.stats()["seq"])


def event(src: Any, dst: Any, t: Any, **more: Any) -> dict[str, Any]:
    return {"src": src, "dst": dst, "t": t, **more}


def answers(live: Live | Replica, names: list[Any]) -> dict[str, bytes]:
    """The bytes of every answer that is about the state."""
    found = {}
    for name in names:
        for verb, words in (
            ("top", (name, 5)),
            ("top", (name, 5, 20)),
            ("similar", (name, 5)),
            ("embedding", ([name],)),
            ("node", (name,)),
            ("score", (name, names)),
            ("explain", (name, names[0])),
        ):
            try:
                answer = msgspec.json.encode(getattr(live, verb)(*words).plain())
            except UnknownNodeError:
                answer = b"unknown"
            found[f"{verb} {words}"] = answer
    found["recent"] = msgspec.json.encode(live.recent(after=0, limit=20))
    found["version"] = live.version.encode()
    return found


def check_same(live: Live, replica: Replica, names: list[Any], *, recent: bool = True) -> None:
    replica.wait(settle(live))
    assert replica.stats()["behind"] == 0
    here, there = answers(live, names), answers(replica, names)
    if not recent:  # a state that was loaded has none
        del here["recent"], there["recent"]
    assert there == here
    assert replica.digest() == live.digest()


@given(streams, streams, st.sampled_from(["reject", "now"]), st.booleans())
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_answers_are_the_same_bytes_whenever_a_replica_starts(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[Any],
    later: list[Any],
    late: str,
    saved: bool,
) -> None:
    names = ["a", "b", "c", "ü", "5", "nobody"]
    path = tmp_path_factory.mktemp("replicas") / "live"
    with (
        opened(path, late=late, idle_s=3600.0) as live,  # some rows wait all the time
        served(live, feeds=True) as writer,
        following(writer) as early,
    ):
        for rows in (first, later):
            live.ingest(rows)
            if saved:
                live.snapshot()  # perhaps with rows that wait
            check_same(live, early, names)
        with following(writer) as fresh:
            check_same(live, fresh, names, recent=False)
            live.ingest([event("a", "new", 200), event("new", "b", 230)])
            check_same(live, early, [*names, "new"])
            check_same(live, fresh, [*names, "new"], recent=False)


def test_every_answer_is_the_writers_at_the_same_number_while_events_arrive(
    tmp_path: Path,
) -> None:
    """Nobody sees a state that the writer never had."""
    columns = habits(1200)
    with (
        opened(tmp_path / "live", lateness="0", unit="s") as live,
        served(live, feeds=True) as writer,
        following(writer) as replica,
    ):
        seen: dict[tuple[Any, ...], bytes] = {}
        done = threading.Event()
        problems: list[Any] = []

        def ask(state: Any) -> None:
            while not done.is_set():
                for verb, given in (("top", ("s1", 5)), ("embedding", (["s1"],))):
                    with contextlib.suppress(UnknownNodeError):
                        found = getattr(state, verb)(*given).plain()
                        content = msgspec.json.encode(found)
                        if seen.setdefault((verb, found["as_of_seq"]), content) != content:
                            problems.append(found)

        threads = [threading.Thread(target=ask, args=(each,)) for each in (live, replica)]
        for each in threads:
            each.start()
        for k in range(0, 1200, 20):
            live.ingest({name: values[k : k + 20] for name, values in columns.items()})
        replica.wait(settle(live))
        done.set()
        for each in threads:
            each.join()
        assert not problems
        assert len(seen) > 4


def test_the_model_is_the_writers(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "live", lateness="0", unit="s", half_lives=None) as live,
        served(live, feeds=True) as writer,
        following(writer) as replica,
    ):
        live.ingest(habits(600), wait="applied")
        names = ["s1", "s2", "d7", "d8"]
        check_same(live, replica, names)
        live.train(wait=True)
        assert live.version == "0001"
        until(lambda: replica.version == "0001")
        check_same(live, replica, names)
        with following(writer) as late:
            assert late.version == "0001"
            check_same(live, late, names, recent=False)
            live.rollback("heuristics")
            until(lambda: late.version == replica.version == "heuristics")
            check_same(live, late, names, recent=False)
        check_same(live, replica, names)


def test_a_forgotten_node_is_gone_from_replicas_when_the_answer_says_so(tmp_path: Path) -> None:
    rows = [event("ann", "bob", 1), event("bob", "eve", 2), event("eve", "ann", 3)]
    with (
        opened(tmp_path / "live") as live,
        served(live, feeds=True) as writer,
        following(writer, "one") as one,
        following(writer, "two") as two,
        served(one) as public,
    ):
        live.ingest([*rows, event("dan", "bob", 50)], wait="applied")
        one.wait(settle(live))
        assert one.node("ann").data["degree"] == 2
        found = public.post("/v1/forget", json={"node": "ann"}).json()["data"]
        assert found == {"node": "ann", "events": 2, "remains": {"models": [], "replicas": 0}}
        for replica in (one, two):
            assert replica.stats()["forgotten"] == 1
            with pytest.raises(UnknownNodeError):
                replica.node("ann")
            assert all("ann" not in (each["src"], each["dst"]) for each in replica.recent())
            check_same(live, replica, ["bob", "eve"], recent=False)
        live.ingest([event("ann", "bob", 60)], wait="applied")  # a new node of that name
        for replica in (one, two):
            check_same(live, replica, ["ann", "bob", "eve"], recent=False)


def test_a_replica_that_lost_its_place_in_the_log_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        opened(tmp_path / "live", keep_log="20") as live,
        served(live, feeds=True) as writer,
        following(writer) as replica,
    ):
        live.ingest([event("a", "b", 1)], wait="applied")
        replica.wait(settle(live))
        held = threading.Event()
        advance = Replica._advance

        def waits(self: Replica, given: Any) -> None:
            held.wait(60)
            advance(self, given)

        monkeypatch.setattr(Replica, "_advance", waits)
        time.sleep(1.5)  # whatever it asked before is answered
        for t in (100, 200, 300, 400):
            live.ingest([event("a", "c", t)], wait="applied")
            live.snapshot()
        assert live._log.first > 3
        held.set()
        check_same(live, replica, ["a", "b", "c"], recent=False)


def test_a_replica_answers_while_its_writer_is_away_and_goes_on_with_it(tmp_path: Path) -> None:
    path, port = tmp_path / "live", 0
    with contextlib.ExitStack() as stack:
        with opened(path) as live, served(live, feeds=True) as writer:
            port = writer.base_url.port or 0
            live.ingest([event("a", "b", 1), event("b", "c", 30)], wait="applied")
            replica = stack.enter_context(following(writer))
            public = stack.enter_context(served(replica))
            seq = settle(live)
            replica.wait(seq)
            assert public.get("/readyz").status_code == 200
        until(lambda: not replica.stats()["writer"]["answers"])
        assert public.get("/v1/nodes/a").json()["as_of_seq"] == seq
        stats = public.get("/v1/stats").json()
        assert stats["writer"]["silent_s"] >= 0
        assert any("writer" in note for note in stats["notes"])
        for answer in (
            public.post("/v1/events", json=event("a", "d", 40)),
            public.get("/v1/nodes/a/history"),
            public.get("/v1/nodes/a/embedding?at=2"),
        ):
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert "writer" in answer.json()["error"]["message"]
        assert public.get("/readyz").status_code == 200
        with opened(path) as live, served(live, port=port, feeds=True):
            sent = public.post("/v1/events", json=event("a", "d", 40))
            assert sent.status_code == 200
            check_same(live, replica, ["a", "b", "c", "d"], recent=False)
            assert replica.stats()["writer"]["answers"]
            assert replica.stats()["notes"] == []


def test_a_writer_with_another_log_is_another_writer(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        with opened(tmp_path / "one") as live, served(live, feeds=True) as writer:
            port = writer.base_url.port or 0
            live.ingest([event("a", "b", 1)], wait="applied")
            replica = stack.enter_context(following(writer))
        with opened(tmp_path / "two") as live, served(live, port=port, feeds=True):
            for t in range(5):
                live.ingest([event("x", "y", t)], wait="applied")
            until(lambda: "x" in replica._state.names.plain())
            check_same(live, replica, ["a", "x", "y"], recent=False)


# The service of a replica -------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Live, Replica, Served, Served]]:
    """A writer, its replica, and clients of both."""
    with (
        opened(tmp_path / "live", lateness="1h") as live,
        served(live, feeds=True) as writer,
        following(writer) as replica,
        served(replica) as public,
    ):
        yield live, replica, writer, public


Pair = tuple[Live, Replica, Served, Served]


def test_every_route_of_a_replica_answers_as_the_writers(pair: Pair) -> None:
    live, replica, writer, public = pair
    with Client(str(public.base_url), patience_s=10) as client:
        receipt = client.ingest([event("ann", n, k) for k, n in enumerate("bcbdb")], wait="applied")
        assert (receipt.accepted, receipt.applied) == (5, True)
        replica.wait(settle(live))
        for verb, given in (
            ("score", ("ann", ["b", "c"])),
            ("top", ("ann", 2)),
            ("similar", ("ann",)),
            ("node", ("ann",)),
            ("history", ("ann", 10)),
            ("explain", ("ann", "b")),
            ("embedding", (["ann", "b"],)),
            ("embedding", (["ann", "b"], 2)),
        ):
            here, there = getattr(live, verb)(*given), getattr(client, verb)(*given)
            assert there.plain() == here.plain(), verb
        assert client.versions() == []
        with pytest.raises(UnknownNodeError):
            client.node("nobody")
    for path in (
        "/v1/nodes/ann/top",
        "/v1/nodes/ann/embedding?at=3",
        "/v1/quality",
        "/v1/nodes/no",
    ):
        assert public.get(path).content == writer.get(path).content, path
    assert public.get("/v1/position?source=x").json()["position"] is None
    for path in ("/", "/docs", "/openapi.json", "/metrics", "/livez", "/readyz"):
        assert public.get(path).status_code == 200, path
    assert 'route="/v1/events"' in public.get("/metrics").text
    assert public.get("/openapi.json").json() == writer.get("/openapi.json").json()
    with public.stream("GET", "/v1/stream") as stream:
        told = "".join(line for line, _ in zip(stream.iter_lines(), range(5), strict=False))
    assert '"src":"ann"' in told


def test_a_request_is_passed_on_with_its_key_and_its_errors(pair: Pair) -> None:
    live, _, writer, public = pair
    headers = {"Idempotency-Key": "once"}
    first = public.post("/v1/events", json=event("a", "b", 1), headers=headers)
    assert (
        public.post("/v1/events", json=event("a", "b", 1), headers=headers).json() == first.json()
    )
    assert live.stats()["events"] == 1
    bad = public.post("/v1/events", json={"src": "a"})
    assert (bad.status_code, bad.json()) == (
        422,
        writer.post("/v1/events", json={"src": "a"}).json(),
    )
    assert public.post("/v1/events", content=b"a=b").status_code == 415
    assert public.post("/v1/versions/rollback", json={"version": "9"}).status_code == 422
    assert public.get("/v1/follow?after=0&names=0&forgotten=0&replica=x").status_code == 404


def test_names_reach_the_writer_as_they_are(pair: Pair) -> None:
    live, replica, writer, public = pair
    live.ingest([event(name, "b", k) for k, name in enumerate(HOSTILE)], wait="applied")
    replica.wait(settle(live))
    for name in HOSTILE:
        for path in ("top?node={}", "history?node={}", "nodes/{}/top", "nodes/{}/history"):
            if "/" not in path or name not in (".", ".."):  # which clients take out of a path
                asked = f"/v1/{path.format(quote(name, safe=''))}"
                assert public.get(asked).content == writer.get(asked).content
                assert public.get(asked).status_code == 200, asked


def test_bodies_that_are_too_large_are_rejected_before_they_are_passed_on(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "live") as live,
        served(live, feeds=True) as writer,
        following(writer) as replica,
        served(replica, max_body_bytes=100) as public,
    ):
        answer = public.post("/v1/events", content=b" " * 101)
        assert answer.status_code == 413


def test_followers_need_the_token_and_only_writers_with_feeds_have_the_routes(
    tmp_path: Path,
) -> None:
    with (
        opened(tmp_path / "live") as live,
        served(live, feeds=True, token="a long token") as writer,
    ):
        for path in ("/v1/snapshot", "/v1/follow", "/v1/versions/0001/file"):
            assert writer.get(path).status_code == 401
        with following(writer, token="a long token") as replica:
            live.ingest([event("a", "b", 1)], wait="applied")
            check_same(live, replica, ["a"])
            with served(replica, token="a long token") as public:
                assert public.post("/v1/events", json=event("a", "c", 2)).status_code == 401
                public.headers["Authorization"] = "Bearer a long token"
                assert public.post("/v1/events", json=event("a", "c", 2)).status_code == 200
        with Replica(str(writer.base_url), token="another token") as stranger:
            with pytest.raises(ServerError, match=r"401.*token"):
                stranger.wait(timeout_s=2)
            with served(stranger) as public:
                assert public.get("/readyz").status_code == 503
                assert public.get("/v1/nodes/a").status_code == 503
                assert public.get("/livez").status_code == 200
        with served(live) as plain:
            assert plain.get("/v1/snapshot").status_code == 404


def test_the_writer_lists_its_replicas(pair: Pair) -> None:
    live, replica, writer, public = pair
    live.ingest([event("a", "b", 1)], wait="applied")
    seq = settle(live)
    replica.wait(seq)

    def found() -> Any:
        return writer.get("/v1/stats").json()["replicas"]

    until(lambda: found()[0]["applied_seq"] == seq)
    assert [each["replica"] for each in found()] == ["r"]
    assert found()[0]["behind"] == 0
    assert public.get("/v1/stats").json()["replica"] == "r"


def test_a_replica_whose_thread_died_is_found_out(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, replica, _, _ = pair
    replica.check()

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Replica, "_apply", fail)
    live.ingest([event("a", "b", 1)])
    replica._thread.join(10)
    with pytest.raises(ServerError, match="MemoryError"):
        replica.check()


def test_each_route_is_answered_or_passed_on(pair: Pair) -> None:
    """Whoever adds a route decides which."""
    paths = pair[3].get("/openapi.json").json()["paths"]
    found = {f"{verb.upper()} {path}" for path, verbs in paths.items() for verb in verbs}
    own = {
        *("POST /v1/score", "POST /v1/explain", "GET /v1/nodes", "GET /v1/top", "GET /v1/similar"),
        *("GET /v1/embedding", "GET /v1/stats", "GET /v1/stream"),
        *("GET /livez", "GET /readyz", "GET /metrics"),
    }
    assert {each for each in found if "{node}" not in each} == FORWARDED | own
