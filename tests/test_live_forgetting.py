"""A forgotten node is gone from memory and from every file, and all others are as without it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegraph import Batch, BusyError, Live, LiveSettings, StorageError, UnknownNodeError
from tidegraph.cli.commands import main
from tidegraph.live.forgetting import audit_forgetting
from tidegraph.live.state import State

QUICK: dict[str, Any] = {
    "columns": 4,
    "learn": False,
    "idle_s": 0.05,
    "lateness": "10",
    "half_lives": (50.0,),
}
SECRET = "somebody-special"


def opened(path: Path, **changes: Any) -> Live:
    return Live.open(path, settings=LiveSettings(**{**QUICK, **changes}))


def events(count: int = 200, seed: int = 0) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    names = [SECRET, *(f"n{each}" for each in range(12))]
    found = []
    for t in range(count):
        src, dst = (names[each] for each in generator.integers(0, len(names), 2))
        found.append({"src": src, "dst": dst, "t": t, "id": f"{t} of {src}"})
    return found


def drain(live: Live) -> None:
    for _ in range(2000):
        if live.stats()["queue"] == 0:
            return
        time.sleep(0.005)
    raise AssertionError("events are still queued")


def contains(path: Path, text: str) -> list[str]:
    files = [each for each in path.rglob("*") if each.is_file()]
    return [each.name for each in files if text.encode() in each.read_bytes()]


def test_nothing_is_left_in_any_file_and_nobody_else_has_moved(tmp_path: Path) -> None:
    path, rows = tmp_path / "live", events()
    with opened(path) as live:
        live.ingest(rows[:100], wait="applied")
        live.snapshot()
        live.history("n1")  # writes trajectories
        live.ingest(rows[100:])
        assert contains(path, SECRET)
        answer = live.forget(SECRET)
        assert answer.data["events"] == sum(SECRET in (e["src"], e["dst"]) for e in rows)
        assert not contains(path, SECRET)
        with pytest.raises(UnknownNodeError):
            live.node(SECRET)
        with pytest.raises(UnknownNodeError):
            live.forget(SECRET)
        assert not any(SECRET in (row["src"], row["dst"]) for row in live.recent(limit=1000))
        assert SECRET not in live.top("n1", 50).data["names"]
        live.ingest([{"src": "n1", "dst": "n2", "t": 300}], wait="applied")
        assert live.stats()["forgotten"] == 1
        digest = live.digest()
        check_others(live, [*rows, {"src": "n1", "dst": "n2", "t": 300}], SECRET)
        assert live.history("n1").data["times"].size
    assert not contains(path, SECRET)
    with opened(path) as live:
        assert live.digest() == digest


def test_events_that_waited_while_a_node_was_forgotten_survive_a_crash(tmp_path: Path) -> None:
    rows = [e for e in events(40) if SECRET not in (e["src"], e["dst"])]
    with opened(tmp_path / "live", lateness="0") as live:
        live.ingest([{"src": SECRET, "dst": "n1", "t": 0}], wait="applied")
        with live._state.lock:  # they are stored, and nothing is applied meanwhile
            live.ingest(rows)
            live.forget(SECRET)
            shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    with opened(tmp_path / "live") as whole, opened(tmp_path / "crashed") as crashed:
        whole.ingest([{"src": "n1", "dst": "n2", "t": 50}], wait="applied")
        crashed.ingest([{"src": "n1", "dst": "n2", "t": 50}], wait="applied")
        assert crashed.stats()["nodes"] == whole.stats()["nodes"]
        assert crashed.digest() == whole.digest()


def check_others(live: Live, rows: list[dict[str, Any]], gone: str) -> None:
    """Compare all nodes with an engine that was never given the events of one."""
    state = live._state
    engine = state.about.propagator(nodes=state._room)
    kept = [each for each in rows if gone not in (each["src"], each["dst"])]
    for t in sorted({each["t"] for each in kept}):
        now = [each for each in kept if each["t"] == t]
        src, dst = ([state.named(each[side]) for each in now] for side in ("src", "dst"))
        engine.apply(Batch(src, dst, t=t))
    nodes = state.known()
    assert {state.name(each) for each in nodes.tolist()} == {
        name for each in kept for name in (each["src"], each["dst"])
    }
    far = np.abs(state.propagator.embedding(nodes) - engine.embedding(nodes))
    allowed = state.propagator.threshold(nodes) + engine.threshold(nodes)
    assert (far <= allowed).all()


pairs = st.tuples(
    st.sampled_from([SECRET, "a", "b", "c"]), st.sampled_from([SECRET, "a", "b", "d"])
)
streams = st.lists(st.tuples(pairs, st.integers(0, 3)), min_size=1, max_size=25)


@given(streams)
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_others_are_as_in_a_stream_that_never_had_it(
    tmp_path_factory: pytest.TempPathFactory, found: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("law") / "live"
    t, rows = 0, []
    for (src, dst), gap in found:
        t += 20 * gap
        rows.append({"src": src, "dst": dst, "t": t})
    with opened(path, idle_s=3600.0, lateness="0") as live:
        live.ingest(rows)
        if not any(SECRET in (each["src"], each["dst"]) for each in rows):
            return
        live.forget(SECRET)
        last = {"src": "x", "dst": "y", "t": t + 1000}
        live.ingest([{"src": "x", "dst": "y", "t": t + 100}, last])
        drain(live)
        check_others(live, [*rows, {"src": "x", "dst": "y", "t": t + 100}], SECRET)
        digest = live.digest()
    with opened(path, idle_s=3600.0, lateness="0") as live:
        assert live.digest() == digest
    assert audit_forgetting(path, SECRET).holds


def test_a_name_that_comes_back_is_somebody_new(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as live:
        live.ingest(events(), wait="applied")
        before = live.node(SECRET).data["number"]
        live.forget(SECRET)
        receipt = live.ingest(
            [{"src": SECRET, "dst": "n1", "t": 500, "id": "0 of somebody"}], wait="applied"
        )
        assert receipt.accepted == 1
        data = live.node(SECRET).data
        assert data["number"] > before
        assert data["events_as_src"] == 1
        digest = live.digest()
    with opened(tmp_path / "live") as live:
        assert live.digest() == digest
        assert live.node(SECRET).data["number"] == data["number"]


def test_events_that_wait_are_forgotten_too(tmp_path: Path) -> None:
    with opened(tmp_path / "live", idle_s=3600.0) as live:
        live.ingest([{"src": "a", "dst": SECRET, "t": 1}, {"src": "a", "dst": "b", "t": 1}])
        assert live.forget(SECRET).data["events"] == 1
        live.ingest([{"src": "c", "dst": "d", "t": 100}])
        drain(live)
        assert [row["dst"] for row in live.recent()] == ["b"]


def test_events_that_come_meanwhile_survive_a_crash_right_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = State.without
    with opened(tmp_path / "live", lateness="0") as live:
        live.ingest(events(), wait="applied")

        def meanwhile(state: State, number: int) -> State:
            fresh = without(state, number)
            state.lock.acquire()  # they stay queued, as when there are many
            live.ingest([{"src": "late", "dst": "n1", "t": 1000 + each} for each in range(9)])
            return fresh

        monkeypatch.setattr(State, "without", meanwhile)
        live.forget(SECRET)
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
        live._state.lock.release()
    for name in ("live", "killed"):
        with opened(tmp_path / name, lateness="0") as live:
            live.ingest([{"src": "n2", "dst": "n1", "t": 2000}], wait="applied")
            assert live.node("late").data["events_as_src"] == 9, name


def test_what_was_learned_is_named_and_learned_anew(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as live:
        live.ingest(events(400), wait="applied")
        live.train(wait=True)
        live.ingest([{"src": "n1", "dst": "n2", "t": 1000}], wait="applied")
        assert live.forget("n5").data["remains"] == {"models": ["0001"]}
        assert live.version == "0001"
        assert live.forget(SECRET, refit=True).data["remains"] == {"models": []}
        assert [each["version"] for each in live.versions()] == ["0002"]


def test_forgetting_that_could_not_finish_is_finished_by_the_next_call(tmp_path: Path) -> None:
    path = tmp_path / "live"
    with opened(path) as live:
        live.ingest(events(), wait="applied")
        live._log._writer.execute("pragma busy_timeout = 1")
        reader = sqlite3.connect(path / "log.sqlite")
        reader.execute("begin")
        reader.execute("select count(*) from batches").fetchone()
        with pytest.raises(StorageError, match="forget the node again"):
            live.forget(SECRET)
        assert contains(path, SECRET)
        reader.close()
        with pytest.raises(UnknownNodeError):
            live.forget(SECRET)
        assert not contains(path, SECRET)


def test_a_training_begins_again_without_what_is_forgotten_meanwhile(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as live:
        live.ingest(events(400), wait="applied")
        live.train(wait=True)
        live.train()
        training = tmp_path / "live" / "models" / "training"
        while not (training / "errors").exists():
            time.sleep(0.01)
        assert live.forget("n5").data["remains"] == {"models": ["0001"]}
        assert live._trained_without in (None, 1)
        assert live.forget(SECRET, refit=True).data["remains"] == {"models": []}
        (version,) = live.versions()
        assert version["events"] == len(live._state.meetings) < 300
        assert live.notes == []


def test_who_asks_about_the_past_does_not_record_a_forgotten_node_again(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as live:
        live.ingest(events(), wait="applied")
        before = live._movements
        live.forget(SECRET)
        with pytest.raises(BusyError, match="ask again"):
            before.caught_up(1.0)
        assert not (tmp_path / "live" / "trajectories").exists()
        assert live.history("n1").data["times"].size


def test_an_audit_says_what_is_left(tmp_path: Path) -> None:
    path, out = tmp_path / "live", tmp_path / "certificate.json"
    with opened(path) as live:
        live.ingest(events(), wait="applied")
    audit = ["audit", "forgetting", str(path), "--node", SECRET, "-o", str(out)]
    result = CliRunner().invoke(main, audit)
    assert result.exit_code == 1
    found = json.loads(out.read_text())
    assert found["known"]
    assert not found["holds"]
    assert "log.sqlite" in found["found"]
    result = CliRunner().invoke(main, ["forget", str(path), "--node", SECRET])
    assert result.exit_code == 0, result.output
    assert CliRunner().invoke(main, audit).exit_code == 0
    found = json.loads(out.read_text())
    assert found["holds"]
    assert (found["found"], found["nameless_rows"], found["forgotten"]) == ([], 0, 1)
    assert 0 <= found["ratio"] <= 1
    page = out.with_suffix(".html").read_text()
    assert f"{SECRET} is forgotten" in page
    assert "http" not in page


def test_an_audit_finds_a_copy_that_was_left(tmp_path: Path) -> None:
    path = tmp_path / "live"
    with opened(path) as live:
        live.ingest(events(), wait="applied")
        live.forget(SECRET)
    (path / "models" / "notes.tide.txt").write_bytes(b"\0" * 100 + SECRET.encode())
    (path / "left").write_bytes(SECRET.encode("utf-16-le"))
    certificate = audit_forgetting(path, SECRET)
    assert certificate.found == ["left"]  # the other one was nobody's, and removed
    assert not certificate.holds


def test_keys_of_requests_keep_no_name_and_stay_keys(tmp_path: Path) -> None:
    key, source = f"import of {SECRET}", f"redis://{SECRET}@host/calls"
    with opened(tmp_path / "live") as live:
        first = live.ingest(events(), key=key)
        live.ingest([{"src": "n1", "dst": "n2", "t": 300}], key=f"{source}@0007")
        live.ingest([{"src": "n1", "dst": "n2", "t": 301}], key=f"{source}@0012", wait="applied")
        live.forget(SECRET)
    assert contains(tmp_path / "live", SECRET) == []
    with opened(tmp_path / "live") as live:
        assert live.ingest(events(), key=key) == first
        assert live.position(source) == "0012"
        assert live.position(SECRET) is None


def test_a_name_may_be_part_of_another(tmp_path: Path) -> None:
    longer = [f"{SECRET}-2", f"not-{SECRET}", f"{SECRET}{SECRET}"]
    with opened(tmp_path / "live") as live:
        live.ingest(events())
        rows = [{"src": each, "dst": "n1", "t": 300 + t} for t, each in enumerate(longer)]
        live.ingest(rows, wait="applied")
        live.forget(SECRET)
    assert contains(tmp_path / "live", SECRET) != []
    found = audit_forgetting(tmp_path / "live", SECRET)
    assert (found.found, found.holds) == ([], True)
    (tmp_path / "live" / "notes.txt").write_text(f"{longer[0]}, {SECRET}, {longer[1]}")
    found = audit_forgetting(tmp_path / "live", SECRET)
    assert (found.found, found.holds) == (["notes.txt"], False)


def test_an_audit_notices_rows_of_a_node_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "live"
    with opened(path) as live:
        live.ingest(events(), wait="applied")
    connection = sqlite3.connect(path / "log.sqlite")
    connection.execute("delete from nodes where name = ?", (SECRET,))
    connection.commit()
    connection.close()
    certificate = audit_forgetting(path, SECRET)
    assert certificate.nameless_rows > 0
    assert not certificate.holds
