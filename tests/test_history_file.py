"""A history has the same bits however its events arrived, and lies in a file that is mapped."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.history_oracle import Row, link_row

from tidegraph.core.errors import EventError, StateFileError, StorageError
from tidegraph.events.stream import EventStream
from tidegraph.learning import history as module
from tidegraph.learning import history_file
from tidegraph.learning.history import History
from tidegraph.learning.history_file import HistoryFile

HALF_LIVES = (3.0, 40.0, 1e6)
FAR = 2**62 - 1


def stream_of(rows: list[Row], nodes: int) -> EventStream:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return EventStream(columns[:, 0], columns[:, 1], columns[:, 2], nodes)


def random_rows(seed: int, events: int, nodes: int) -> list[Row]:
    """Return events with ties, self-loops, repeated pairs and runs with one partner."""
    random = np.random.default_rng(seed)
    src, dst = random.zipf(1.5, (2, events)) % nodes
    again = random.random(events) < 0.4
    for i in np.flatnonzero(again[1:]) + 1:
        src[i], dst[i] = src[i - 1], dst[i - 1]
    t = np.cumsum(random.integers(0, 4, events))
    return list(zip(src.tolist(), dst.tolist(), t.tolist(), strict=True))


def everything(history: History, t: int) -> NDArray[np.uint32]:
    """Return the bits of all answers at a time."""
    src, dst = (ends.ravel() for ends in np.indices((history.nodes, history.nodes)))
    times = np.full(len(src), t)
    rows = [history.of_links(src, dst, times), history.of_nodes(src, times)]
    return np.concatenate(rows, axis=1).view(np.uint32)


@pytest.fixture(params=[3, module._MERGE_EVENTS])
def merged_after(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Merge later events often, or as usual."""
    monkeypatch.setattr(module, "_MERGE_EVENTS", request.param)
    return int(request.param)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Row], list[int], list[int]]:
    """Return events, where they are divided, and times to ask about."""
    nodes = draw(st.integers(1, 5))
    node = st.integers(0, nodes - 1)
    time = st.integers(0, 40) | st.sampled_from([-FAR, FAR, 2**40])
    rows = sorted(draw(st.lists(st.tuples(node, node, time), max_size=30)), key=lambda row: row[2])
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    times = draw(st.lists(time | st.integers(-5, 45), min_size=1, max_size=3))
    return rows, cuts, times


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(case=histories())
def test_answers_have_the_bits_of_counting_directly(
    merged_after: int, case: tuple[list[Row], list[int], list[int]]
) -> None:
    rows, cuts, times = case
    history = History(1, HALF_LIVES)
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[first:last]  # new nodes come when they are first named
        known = max([history.nodes - 1, *(max(src, dst) for src, dst, _ in part)]) + 1
        history.append(stream_of(part, known))
    assert len(history) == len(rows)
    for t in times:
        for src in range(history.nodes):
            for dst in range(history.nodes):
                told = history.of_links([src], [dst], [t])[0]
                expected = link_row(rows, src, dst, t, HALF_LIVES)
                np.testing.assert_array_equal(told.view(np.uint32), expected.view(np.uint32))


def test_long_series_have_the_bits_of_counting_directly(merged_after: int) -> None:
    rows = random_rows(0, 1200, 12)
    history = History(12, HALF_LIVES)
    for first in range(0, 1200, 150):
        history.append(stream_of(rows[first : first + 150], 12))
    random = np.random.default_rng(1)
    for _ in range(60):
        src, dst = random.integers(0, 12, 2).tolist()
        t = rows[int(random.integers(1200))][2] + int(random.integers(2))
        told = history.of_links([src], [dst], [t])[0]
        expected = link_row(rows, src, dst, t, HALF_LIVES)
        np.testing.assert_array_equal(told.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("half_lives", [(), tuple(range(1, 21))])
def test_any_number_of_half_lives_will_do(half_lives: tuple[float, ...]) -> None:
    rows = random_rows(2, 100, 4)
    history = History(4, half_lives)
    history.append(stream_of(rows, 4))
    told = history.of_links([1], [2], [90])[0]
    np.testing.assert_array_equal(told, link_row(rows, 1, 2, 90, half_lives))


def test_the_file_depends_on_the_events_alone(tmp_path: Path, merged_after: int) -> None:
    rows = random_rows(3, 500, 9)
    files = []
    for part in (500, 77, 1):
        history = History(9, HALF_LIVES)
        for first in range(0, 500, part):
            history.append(stream_of(rows[first : first + part], 9))
        history.save(tmp_path / "history")
        files.append((tmp_path / "history").read_bytes())
        assert os.listdir(tmp_path) == ["history"]
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize("events", [0, 1, 500])
def test_a_history_is_mapped_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    rows = random_rows(4, 600, 9)
    path = tmp_path / "history"
    history = History(9, HALF_LIVES)
    history.append(stream_of(rows[:events], 9))
    history.save(path)
    end = rows[-1][2] + 1
    with monkeypatch.context() as patch:
        patch.setattr(History, "_merge", lambda *_: pytest.fail("built again"))
        mapped = History.of(stream_of(rows[:events], 9), HALF_LIVES, path)
        assert np.array_equal(everything(mapped, end), everything(history, end))
        # Another stream that begins like it goes on in memory, and the file stays.
        before = path.read_bytes()
        longer = History.of(stream_of(rows, 9), HALF_LIVES, path, keep=False)
        assert len(longer) == 600
        assert path.read_bytes() == before
    history.append(stream_of(rows[events:], 9))
    for t in (0, rows[events][2], end):
        assert np.array_equal(everything(longer, t), everything(history, t))
    History.of(stream_of(rows, 9), HALF_LIVES, path)
    assert HistoryFile.open(path).description["events"] == 600


def test_a_history_can_be_saved_wherever_its_file_has_gone(tmp_path: Path) -> None:
    rows = random_rows(4, 300, 9)
    path = tmp_path / "history"
    history = History.of(stream_of(rows, 9), HALF_LIVES, path)
    whole = path.read_bytes()
    history.save(tmp_path / "second")
    assert (tmp_path / "second").samefile(path)
    history.save(tmp_path / "second")
    history.save(path)
    assert sorted(os.listdir(tmp_path)) == ["history", "second"]
    History.of(stream_of(rows[:10], 9), HALF_LIVES, path)  # other events under its name
    history.save(tmp_path / "third")
    path.unlink()
    history.save(tmp_path / "fourth")
    for name in ("second", "third", "fourth"):
        assert (tmp_path / name).read_bytes() == whole
    assert sorted(os.listdir(tmp_path)) == ["fourth", "second", "third"]


def test_the_file_of_other_events_is_replaced(tmp_path: Path) -> None:
    rows = random_rows(5, 200, 9)
    path = tmp_path / "history"
    end = rows[-1][2] + 1
    History.of(stream_of(rows, 9), HALF_LIVES, path)
    others = [(dst, src, t) for src, dst, t in rows]
    wanted = [
        (stream_of(others, 9), HALF_LIVES),
        (stream_of(others[:100], 9), HALF_LIVES),
        (stream_of(others, 12), HALF_LIVES),
        (stream_of(others, 9), (7.0,)),
    ]
    for stream, half_lives in wanted:
        fresh = History(stream.nodes, half_lives)
        fresh.append(stream)
        found = History.of(stream, half_lives, path)
        assert np.array_equal(everything(found, end), everything(fresh, end))
        assert HistoryFile.open(path).description["events"] == len(stream)


def test_a_damaged_history_cannot_be_merged_and_says_what_to_do(tmp_path: Path) -> None:
    stream = stream_of(random_rows(6, 300, 9), 9)
    history = History.of(stream, HALF_LIVES, tmp_path / "history")
    whole = bytearray((tmp_path / "history").read_bytes())
    header = json.loads(whole[history_file._PREFIX.unpack_from(whole)[3] :])
    first, count, _ = header["arrays"]["role0.partner"]
    whole[first : first + count] = b"\xff" * count
    (tmp_path / "history").write_bytes(whole)  # in place: it is mapped already
    history.append(stream_of([(1, 2, int(stream.t[-1]))], 9))
    with pytest.raises(StateFileError, match=r"damaged: .*record again"):
        history.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_damaged_file_is_rejected(tmp_path: Path) -> None:
    stream = stream_of(random_rows(6, 300, 9), 9)
    path = tmp_path / "history"
    History.of(stream, HALF_LIVES, path).verify()
    whole = path.read_bytes()

    def damaged(content: bytes) -> None:
        path.write_bytes(content)
        History.of(stream, HALF_LIVES, path, keep=False)

    for content, words in (
        (b"", "is not the history of a stream"),
        (b"x" + whole[1:], "is not the history of a stream"),
        (whole[:-1], r"is damaged: it holds \d+ bytes, \d+ were written"),
        (whole + b"x", r"is damaged: it holds \d+ bytes, \d+ were written"),
        (whole[:-5] + b"\0" + whole[-4:], "its header does not match its digest"),
        (whole[:16] + b"\x07" + whole[17:], "format version 7; this release reads version 2"),
    ):
        with pytest.raises(StateFileError, match=words):
            damaged(content)
        History.of(stream, HALF_LIVES, path)  # recording again replaces it
        assert path.read_bytes() == whole
    header = json.loads(whole[history_file._PREFIX.unpack_from(whole)[3] :])
    random = np.random.default_rng(0)
    for first, count, _ in header["arrays"].values():
        altered = bytearray(whole)
        altered[first + int(random.integers(count))] ^= 1 << int(random.integers(8))
        path.write_bytes(altered)
        history = History(9, HALF_LIVES)
        history._stand_on(HistoryFile.open(path))
        everything(history, 300)  # wrong perhaps, but nothing worse
        with pytest.raises(StateFileError, match="does not match its digest"):
            history.verify()


def dying_after(calls: int) -> Callable[[Any], bytes]:
    """Return the function that computes digests, and kills the process after some calls."""
    digest, left = history_file._digest, iter(range(calls))

    def dying(data: Any) -> bytes:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return digest(data)

    return dying


def test_a_writer_killed_anywhere_leaves_the_old_file(tmp_path: Path) -> None:
    rows = random_rows(7, 300, 9)
    stream = stream_of(rows, 9)
    path = tmp_path / "history"
    History.of(stream[:100], HALF_LIVES, path)
    before = path.read_bytes()
    for kill_at in range(1, 31, 3):
        child = os.fork()
        if child == 0:
            pytest.MonkeyPatch().setattr(history_file, "_digest", dying_after(kill_at))
            History.of(stream, HALF_LIVES, path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert path.read_bytes() == before
    found = History.of(stream, HALF_LIVES, path)
    found.verify()
    assert os.listdir(tmp_path) == ["history"]  # what the killed ones left is used up
    fresh = History(9, HALF_LIVES)
    fresh.append(stream)
    assert np.array_equal(everything(found, 10_000), everything(fresh, 10_000))


def test_more_events_than_can_be_counted_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_EVENTS", 10)
    history = History(2)
    history.append(stream_of(random_rows(0, 10, 2), 2))
    with pytest.raises(EventError, match="11 events are too many; a history holds at most 10"):
        history.append(stream_of([(0, 1, 1000)], 2))


def test_without_room_for_a_file_events_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MERGE_EVENTS", 10)
    rows = random_rows(8, 200, 9)
    attempts: list[int] = []

    def full(*_: Any) -> None:
        attempts.append(len(history))
        raise StorageError(28, "no space left")

    history = History(9, HALF_LIVES)
    with monkeypatch.context() as patch:
        patch.setattr(HistoryFile, "create", full)
        for row in rows[:150]:
            history.append(stream_of([row], 9))
        assert attempts == [10, 22, 46, 94]  # again when they have doubled
        with pytest.raises(StorageError):
            history.save(tmp_path / "history")
    history.append(stream_of(rows[150:], 9))
    assert history._native.later_events == 0
    fresh = History(9, HALF_LIVES)
    fresh.append(stream_of(rows, 9))
    for t in (0, 100, 10_000):
        assert np.array_equal(everything(history, t), everything(fresh, t))


def test_questions_are_answered_while_events_are_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MERGE_EVENTS", 10)
    rows = random_rows(9, 2000, 9)
    history = History(9, HALF_LIVES)
    history.append(stream_of(rows[:500], 9))
    t = rows[499][2]
    expected = everything(history, t)
    done = threading.Event()

    def ask() -> int:
        asked = 0
        while not done.is_set():
            assert np.array_equal(everything(history, t), expected)
            asked += 1
        return asked

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        for first in range(500, 2000, 7):
            history.append(stream_of(rows[first : first + 7], 9))
        done.set()
        assert min(task.result() for task in asking) > 0
    fresh = History(9, HALF_LIVES)
    fresh.append(stream_of(rows, 9))
    assert np.array_equal(everything(history, 10_000), everything(fresh, 10_000))
