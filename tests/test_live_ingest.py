"""Events of a live state: what is accepted, in which order it takes effect, and that it stays."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegraph import (
    BusyError,
    DataError,
    EventError,
    EventStream,
    Live,
    LiveSettings,
    ParameterError,
    RowError,
    StateFileError,
    StorageError,
    UnknownNodeError,
)
from tidegraph.engine.reference import exact_of
from tidegraph.live.events import Reader
from tidegraph.live.order import Buffer, Rows, Watermark

QUICK: dict[str, Any] = {"columns": 4, "learn": False, "idle_s": 0.05, "lateness": "10"}


@contextlib.contextmanager
def opened(path: Path, source: Any = None, **changes: Any) -> Iterator[Live]:
    """A live state with few columns that is closed at the end."""
    live = Live.open(path, source, settings=LiveSettings(**{**QUICK, **changes}))
    try:
        yield live
    finally:
        live.close()


def event(src: Any, dst: Any, t: Any, **more: Any) -> dict[str, Any]:
    return {"src": src, "dst": dst, "t": t, **more}


# What is accepted ---------------------------------------------------------------------------------

READER = Reader("ms", False, False, 3)


@pytest.mark.parametrize(
    ("events", "row", "field"),
    [
        ([event("a", "b", 1), {"src": "a"}], 1, "dst"),
        ([{"dst": "b"}], 0, "src"),
        ([event(1.5, "b", 1)], 0, "src"),
        ([event(True, "b", 1)], 0, "src"),
        ([event("a", "\ud800", 1)], 0, "dst"),
        ([event("a", "b" * 1025, 1)], 0, "dst"),
        ([event("a", "b", 1.5)], 0, "t"),
        ([event("a", "b", math.nan)], 0, "t"),
        ([event("a", "b", 2**62)], 0, "t"),
        ([event("a", "b", 10**30)], 0, "t"),
        ([event("a", "b", "yesterday")], 0, "t"),
        ([event("a", "b", 1, weight=math.nan)], 0, "weight"),
        ([event("a", "b", 1, weight=math.inf)], 0, "weight"),
        ([event("a", "b", 1, weight=-1)], 0, "weight"),
        ([event("a", "b", 1, weight="1")], 0, "weight"),
        ([event("a", "b", 1, weight=10**400)], 0, "weight"),
        ([event("a", "b", 1), event("a", "b", 1, op="delete")], 1, "op"),
        ([event("a", "b", 1, op=0)], 0, "op"),
        ([event("a", "b", 1, id="")], 0, "id"),
        ([event("a", "b", 1, id=1.0)], 0, "id"),
        ([event("a", "b", 1, wieght=2)], 0, "wieght"),
        ([{"op": "remove_node", "src": "a", "t": 1}], 0, "src"),
        ([{"op": "remove_node", "node": "a", "t": 1, "weight": 1.0}], 0, "weight"),
        ([event("a", "b", 1, node="c")], 0, "node"),
        ([{"op": "features", "node": "a", "t": 1}], 0, "features"),
        ([{"op": "features", "node": "a", "t": 1, "features": [1, 2]}], 0, "features"),
        ([{"op": "features", "node": "a", "t": 1, "features": [1, 2, math.inf]}], 0, "features"),
        (["a"], 0, None),
    ],
)
def test_an_error_names_the_row_and_the_field(
    events: list[Any], row: int, field: str | None
) -> None:
    with pytest.raises(RowError) as caught:
        READER.read(events, 100)
    assert (caught.value.row, caught.value.field) == (row, field)


def test_events_are_objects_columns_or_a_stream() -> None:
    rows = [event("a", "b", 1), event("b", "c", 2)]
    one = READER.read(rows, 10)
    columns = READER.read({"src": ["a", "b"], "dst": ["b", "c"], "t": np.array([1, 2])}, 10)
    stream = EventStream([0, 1], [1, 2], [1, 2], unit="ms", names=["a", "b", "c"])
    for other in (columns, READER.read(stream, 10)):
        assert (one.src, list(one.dst), one.t.tolist()) == (
            other.src,
            list(other.dst),
            other.t.tolist(),
        )
    assert READER.read(event("a", "b", "1970-01-02"), 10).t.tolist() == [86_400_000]
    assert READER.read(event(7, "b", 5.0), 10).src == ["7"]
    assert READER.read([], 10).src == []


def test_a_time_of_arrival_needs_a_unit_with_a_clock() -> None:
    assert READER.read({"src": "a", "dst": "b"}, 10).t[0] > 10**12
    with pytest.raises(RowError, match="step"):
        Reader("step", False, False, 3).read({"src": "a", "dst": "b"}, 10)


def test_too_many_events_at_once_are_rejected() -> None:
    with pytest.raises(EventError, match="at most 1"):
        READER.read([event("a", "b", 1)] * 2, 1)


# Order --------------------------------------------------------------------------------------------

times = st.lists(st.integers(-50, 50), max_size=40)


def applied_by_definition(
    t: list[int], lateness: int, late: str
) -> tuple[list[list[tuple[int, int]]], int]:
    """Steps as (time, place), by going through the events one after the other."""
    newest: int | None = None
    accepted: list[tuple[int, int]] = []
    late_ones = 0
    for place, when in enumerate(t):
        low = None if newest is None else newest - lateness
        if low is not None and when < low:
            late_ones += 1
            if late == "now":
                accepted.append((low, place))
            continue
        newest = when if newest is None else max(newest, when)
        accepted.append((when, place))
    steps: dict[int, list[tuple[int, int]]] = {}
    for when, place in sorted(accepted):
        steps.setdefault(when, []).append((when, place))
    due = [step for when, step in steps.items() if newest is not None and when < newest - lateness]
    return due, late_ones


@given(times, st.integers(0, 20), st.sampled_from(["reject", "now"]), st.data())
def test_events_take_effect_by_time_however_they_are_divided(
    t: list[int], lateness: int, late: str, data: st.DataObject
) -> None:
    watermark, buffer, late_ones, first = Watermark(), Buffer(), 0, 0
    steps: list[tuple[int, int]] = []
    while first < len(t):
        last = data.draw(st.integers(first + 1, len(t)))
        part = np.array(t[first:last])
        watermark, effective, too_late = watermark.admit(part, lateness)
        late_ones += int(too_late.sum())
        kept = np.ones(len(part), bool) if late == "now" else ~too_late
        places = np.arange(first, last)[kept]
        buffer.add(Rows.of(effective[kept], places, places, places))
        ready = buffer.release(watermark.low)
        steps += zip(ready.t.tolist(), ready.seq.tolist(), strict=True)
        first = last
    expected, expected_late = applied_by_definition(t, lateness, late)
    assert steps == [each for step in expected for each in step]
    assert late_ones == expected_late


# A live state -------------------------------------------------------------------------------------


def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as live:
        receipt = live.ingest([event("a", "b", 1), event("b", "c", 2)], wait="applied")
        assert (receipt.accepted, receipt.first_seq, receipt.seq) == (2, 1, 2)
        assert receipt.applied
        digest = live.digest()
    with opened(tmp_path / "live") as live:
        assert live.digest() == digest
        assert live.stats()["events"] == 2
        assert live.node("b").data["degree"] == 2


def test_a_repeated_event_or_request_changes_nothing(tmp_path: Path) -> None:
    rows = [event("a", "b", 1, id="x"), event("a", "b", 1, id="x"), event("a", "c", 2)]
    with opened(tmp_path / "live") as live:
        first = live.ingest(rows, key="k")
        assert (first.accepted, first.duplicate) == (2, 1)
    with opened(tmp_path / "live") as live:
        assert live.ingest(rows, key="k") == first
        again = live.ingest([event("a", "b", 9, id="x")])
        assert (again.accepted, again.duplicate) == (0, 1)
        assert live.stats()["events"] == 2


def test_a_repeated_event_or_request_is_waited_for_like_the_first(tmp_path: Path) -> None:
    with opened(tmp_path / "live", lateness="1h") as live:
        for number, key in enumerate(("k", None)):
            rows = [event(f"a{number}", "b", number, id=f"{number}")]
            assert not live.ingest(rows, key=key).applied
            assert live.ingest(rows, key=key, wait="applied").applied
            assert live.node(f"a{number}").data["degree"] == 1


def test_an_event_without_fields_is_no_event(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as live:
        nothing: list[Any] = [{}, [{}], [{}, {}], [{}, event("a", "b", 1)]]
        for rows in nothing:
            with pytest.raises(RowError, match="row 0 has no src"):
                live.ingest(rows)
        assert live.ingest([]).accepted == 0


def test_late_events_are_rejected_or_applied_now_and_counted(tmp_path: Path) -> None:
    for late, accepted in (("reject", 1), ("now", 2)):
        with opened(tmp_path / late, late=late, idle_s=60.0) as live:
            receipt = live.ingest([event("a", "b", 100), event("a", "c", 50)])
            assert (receipt.accepted, receipt.late) == (accepted, 1)
            assert live.stats()["late"] == 1
            assert receipt.watermark == 90


def test_one_wrong_date_does_not_make_all_later_events_late(tmp_path: Path) -> None:
    now = event("a", "b", None)
    for unit in ("ms", "s"):
        with opened(tmp_path / unit, unit=unit) as live:
            live.ingest(now)
            for wrong in ("9999-12-31", 2**61):
                with pytest.raises(RowError, match=r"row 1: t is .* the clock") as caught:
                    live.ingest([now, event("a", "b", wrong), now])
                assert (caught.value.row, caught.value.field) == (1, "t")
            tomorrow = datetime.now(timezone.utc) + timedelta(hours=23)
            assert live.ingest([now, event("a", "c", tomorrow.isoformat())]).accepted == 2
    with opened(tmp_path / "any", ahead="any") as live:
        assert live.ingest(event("a", "b", "9999-12-31")).accepted == 1
    with opened(tmp_path / "step", unit="step") as live:
        assert live.ingest(event("a", "b", 2**61)).accepted == 1
    with pytest.raises(DataError, match="soon"), opened(tmp_path / "wrong", ahead="soon"):
        pass


def test_an_event_within_the_lateness_takes_its_place(tmp_path: Path) -> None:
    with opened(tmp_path / "live", idle_s=60.0) as live:
        live.ingest([event("a", "b", 100), event("c", "d", 95), event("e", "f", 200)])
        live.ingest([event("x", "y", 300)], wait="durable")
        with contextlib.suppress(StorageError):
            live.ingest([event("x", "y", 400)], wait="applied", timeout_s=0.3)
        assert [row["src"] for row in sorted(live.recent(), key=lambda row: row["t"])][:2] == [
            "c",
            "a",
        ]


def test_what_does_not_fit_the_graph_is_left_out_and_said(tmp_path: Path) -> None:
    rows = [
        event("a", "b", 1),
        event("a", "c", 2, op="remove"),
        event("b", "c", 2),
        event("a", "b", 3, op="remove"),
        event("a", "b", 3, op="remove"),
        {"op": "remove_node", "node": "nobody", "t": 4},
        event("b", "d", 4),
        {"op": "remove_node", "node": "b", "t": 4},
    ]
    with opened(tmp_path / "live") as live:
        live.ingest(rows, wait="applied")
        rejected = {row["seq"] for row in live.recent() if row["rejected"]}
        assert rejected == {2, 5, 6}
        assert live.stats()["rejected"] == 3
        assert live.stats()["edges"] == 0
        assert live.node("b").data["degree"] == 0
        assert live.node("b").data["events_as_src"] == 2  # it happened


def test_a_full_queue_turns_events_away(tmp_path: Path) -> None:
    with opened(tmp_path / "live", queue_events=5) as live:
        with live._state.lock:  # nothing is applied meanwhile
            live.ingest([event("a", "b", t) for t in range(5)])
            with pytest.raises(BusyError) as caught:
                live.ingest([event("a", "b", 9)])
        assert caught.value.retry_after_s > 0
        _drain(live)
        live.ingest([event("a", "b", 20)], wait="applied")
        assert live.stats()["events"] == 6


def test_many_callers_share_a_commit_and_none_is_lost(tmp_path: Path) -> None:
    receipts: list[Any] = []
    with opened(tmp_path / "live", lateness="1000") as live:

        def send(caller: int) -> None:
            for number in range(20):
                receipts.append(live.ingest([event(f"{caller}", f"{number}", number)] * 3))

        threads = [threading.Thread(target=send, args=(caller,)) for caller in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        numbers = [n for each in receipts for n in range(each.first_seq, each.seq + 1)]
        assert sorted(numbers) == list(range(1, 481))
        live.ingest([], wait="applied")
        assert live.stats()["applied"] in range(481)


def test_a_wait_ends_in_time(tmp_path: Path) -> None:
    with opened(tmp_path / "live", idle_s=60.0) as live:
        with pytest.raises(StorageError, match="applied"):
            live.ingest([event("a", "b", 1)], wait="applied", timeout_s=0.1)
        with pytest.raises(UnknownNodeError, match="may still wait"):
            live.node("a")


def test_a_directory_has_one_writer(tmp_path: Path) -> None:
    with opened(tmp_path / "live"):
        with pytest.raises(StorageError, match="another writer") as caught:
            Live.open(tmp_path / "live")
        assert "\n" not in str(caught.value)


def test_what_a_killed_start_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "live"
    (path / "snapshots").mkdir(parents=True)
    for name in ("log.sqlite", "log.sqlite-journal", "log.sqlite-wal", "quality.json.part7"):
        (path / name).write_bytes(b"")
    with opened(path) as live:
        assert live.ingest([event("a", "b", 1)]).seq == 1


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StateFileError, match=r"notes\.txt"):
        Live.open(tmp_path)


def test_a_directory_starts_from_a_stream_once(tmp_path: Path) -> None:
    stream = EventStream([0, 1], [1, 2], [5, 9], names=["ann", "bob", "eve"])
    with opened(tmp_path / "live", stream) as live:
        assert (live.unit, live.stats()["applied"]) == ("s", 2)
        live.ingest([event("eve", "zoe", 20)], wait="applied")
        digest = live.digest()
    with opened(tmp_path / "live", stream) as live:
        assert live.digest() == digest
    with pytest.raises(ParameterError, match="other events"):
        Live.open(tmp_path / "live", stream[:1])


def test_ids_of_two_sides_are_two_nodes(tmp_path: Path) -> None:
    with opened(tmp_path / "live", bipartite=True) as live:
        live.ingest([event(7, 7, 1), event(7, 8, 2)], wait="applied")
        assert live.stats()["nodes"] == 3
        assert live.top("7").data["names"] == ["dst 8", "dst 7"]
        assert live.node("dst 7").data["events_as_dst"] == 1
        for ask in (live.node, live.forget):  # either might be meant
            with pytest.raises(UnknownNodeError, match="'src 7' or 'dst 7'"):
                ask("7")
        assert live.forget("dst 7").data["events"] == 1
        assert live.node("7").data["events_as_src"] == 1


def test_damaged_snapshots_are_passed_over_and_a_damaged_log_is_not(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as live:
        live.ingest([event("a", "b", 1)], wait="applied")
        live.snapshot()
        live.ingest([event("a", "c", 50)], wait="applied")
        live.snapshot()
        digest = live.digest()
    snapshots = sorted((tmp_path / "live" / "snapshots").iterdir())
    assert len(snapshots) == 2
    (tmp_path / "live" / "snapshots" / "0000.tide.part7").write_bytes(b"left")
    for damaged in (snapshots[1:], snapshots):
        for path in damaged:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 255
            path.write_bytes(data)
        with opened(tmp_path / "live") as live:
            assert live.digest() == digest
            assert any("snapshot" in note for note in live.notes)
    log = tmp_path / "live" / "log.sqlite"
    data = bytearray(log.read_bytes())
    data[4096:8192] = bytes(4096)
    log.write_bytes(data)
    with pytest.raises(StateFileError, match=r"log\.sqlite.*recover"):
        Live.open(tmp_path / "live")


def test_a_snapshot_stays_as_it_was_while_events_go_on(tmp_path: Path) -> None:
    with opened(tmp_path / "live") as live:
        live.ingest([event("a", "b", 1), event("b", "c", 2)], wait="applied")
        _, arrays = live._state.capture()
        before = {name: array.copy() for name, array in arrays.items()}
        live.ingest([event("a", "c", 50), event("c", "d", 51)], wait="applied")
        for name, array in arrays.items():
            assert np.array_equal(array, before[name]), name


def test_sizes_are_told_while_files_come_and_go(tmp_path: Path) -> None:
    with opened(tmp_path / "live", lateness="0") as live:
        problems: list[Exception] = []
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                try:
                    assert live.stats()["disk_bytes"] > 0
                except Exception as error:
                    problems.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        for t in range(60):
            live.ingest([event("a", "b", t)])
            live.snapshot()
        done.set()
        thread.join()
        assert problems == []


def test_the_log_is_compacted_behind_the_snapshots(tmp_path: Path) -> None:
    with opened(tmp_path / "live", keep_log="20") as live:
        for t in (1, 100, 200, 300):
            live.ingest([event("a", "b", t, id=f"{t}")], wait="applied")
            live.snapshot()
        digest, first = live.digest(), live._log.first
        assert first > 1
    with opened(tmp_path / "live", keep_log="20") as live:
        assert live.digest() == digest
        assert live.ingest([event("a", "b", 400, id="1")]).duplicate == 1


# Laws ---------------------------------------------------------------------------------------------

names = st.one_of(st.sampled_from(["a", "b", "c", "", "ü", "5", " a"]), st.sampled_from([5, 6]))
edges = st.fixed_dictionaries(
    {"src": names, "dst": names, "t": st.integers(0, 60)},
    optional={
        "op": st.sampled_from(["add", "remove", "set"]),
        "weight": st.sampled_from([0.5, 1.0, 3.0]),
        "id": st.integers(0, 20),
    },
)
removals = st.fixed_dictionaries(
    {"op": st.just("remove_node"), "node": names, "t": st.integers(0, 60)}
)
features = st.fixed_dictionaries(
    {
        "op": st.just("features"),
        "node": names,
        "t": st.integers(0, 60),
        "features": st.lists(st.integers(-3, 3), min_size=4, max_size=4),
    }
)
streams = st.lists(st.one_of(edges, edges, edges, removals, features), min_size=1, max_size=30)


@given(streams, st.data(), st.sampled_from(["reject", "now"]))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_state_does_not_depend_on_how_events_were_divided(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], data: st.DataObject, late: str
) -> None:
    path = tmp_path_factory.mktemp("law")
    slow = {"idle_s": 3600.0, "late": late, "half_lives": (7.0,)}
    with opened(path / "one", **slow) as live:
        live.ingest(rows)
        _finish(live)
        expected, counts = live.digest(), live.stats()
        _check_promise(live)
    live = Live.open(path / "many", settings=LiveSettings(**{**QUICK, **slow}))
    first = 0
    while first < len(rows):
        last = data.draw(st.integers(first + 1, len(rows)))
        live.ingest(rows[first:last])
        first = last
        action = data.draw(st.sampled_from(["", "", "snapshot", "reopen"]))
        if action == "snapshot":
            live.snapshot()
        elif action == "reopen":
            live.close()
            live = Live.open(path / "many", settings=LiveSettings(**{**QUICK, **slow}))
    _finish(live)
    for name in ("events", "late", "duplicates", "applied", "rejected", "nodes"):
        assert live.stats()[name] == counts[name], name
    assert live.digest() == expected
    live.close()


def _finish(live: Live) -> None:
    """Let everything be applied, by an event that is later than all."""
    live.ingest([event("last", "last one", 10_000)])
    _drain(live)


def _drain(live: Live) -> None:
    """Wait until nothing is queued."""
    for _ in range(1000):
        if live.stats()["queue"] == 0:
            return
        time.sleep(0.01)
    raise AssertionError("events are still queued")


def _check_promise(live: Live) -> None:
    """Representations are as far from an exact solution as promised, at most."""
    propagator = live._state.propagator
    far = np.abs(propagator.embedding() - exact_of(propagator))
    assert (far <= propagator.threshold() * (1 + 1e-6) + 1e-12).all()
