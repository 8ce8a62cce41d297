"""A live state learns while events arrive: versions, swaps, rollback, and how good it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegraph import EventStream, LinkPredictor, Live, LiveSettings, ParameterError
from tidegraph.learning.history import History
from tidegraph.learning.settings import activity_half_lives

LINKS = 1500
SETTINGS: dict[str, Any] = {"columns": 4, "idle_s": 0.05, "lateness": "0", "unit": "s"}


def habits(count: int = LINKS, seed: int = 0) -> dict[str, Any]:
    """Events of 40 sources, each of which returns to few of 60 destinations."""
    generator = np.random.default_rng(seed)
    src = generator.integers(0, 40, count)
    dst = (src * 7 + generator.integers(0, 3, count)) % 60
    t = np.sort(generator.integers(0, 100_000, count))
    return {
        "src": [f"s{each}" for each in src],
        "dst": [f"d{each}" for each in dst],
        "t": t.tolist(),
    }


def opened(path: Path, source: Any = None, **changes: Any) -> Live:
    return Live.open(path, source, settings=LiveSettings(**{**SETTINGS, **changes}))


def until(true: Callable[[], Any], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed directory with one model."""
    path = tmp_path_factory.mktemp("trained") / "live"
    with opened(path, train_after=1000) as live:
        live.ingest(habits(), wait="applied")
        until(lambda: live.version == "0001")
    return path


def copied(path: Path, to: Path) -> Path:
    import shutil

    return Path(shutil.copytree(path, to))


def test_it_starts_with_heuristics_and_learns_once_it_has_seen_enough(tmp_path: Path) -> None:
    with opened(tmp_path / "live", train_after=1000, judged_per_s=5000.0) as live:
        live.ingest({key: values[:600] for key, values in habits().items()}, wait="applied")
        before = live.score("s1", "d7")
        assert before.version == "heuristics"
        assert 0 < before.data["probability"][0] <= 1
        live.ingest({key: values[600:] for key, values in habits().items()}, wait="applied")
        until(lambda: live.version == "0001")
        likely, unlikely = live.score("s1", ["d7", "d50"]).data["probability"]
        assert likely > 0.5 > unlikely
        assert set(live.top("s1", 3).data["names"]) == {"d7", "d8", "d9"}
        assert [each["current"] for each in live.versions()] == [True]
        why = live.explain("s1", "d7").data
        assert why["facts"]["meetings"] > 0
        assert why["reasons"][0]["drive"] > 0


def test_answers_are_those_of_a_predictor_of_the_same_stream(tmp_path: Path) -> None:
    columns = habits(seed=3)
    names = sorted({*columns["src"], *columns["dst"]})
    number = {name: place for place, name in enumerate(names)}
    stream = EventStream(
        [number[name] for name in columns["src"]],
        [number[name] for name in columns["dst"]],
        columns["t"],
        names=names,
    )
    first, later = stream[:1000], stream[1000:]
    predictor = LinkPredictor(epochs=1, columns=4).fit(first)
    with opened(tmp_path / "live", predictor, learn=False) as live:
        assert live.version == "0001"
        live.ingest({key: values[1000:] for key, values in columns.items()}, wait="applied")
        predictor.advance(later)
        src, dst = columns["src"][::50], columns["dst"][::50]
        until_now = live.score("s1", "d7").as_of_time
        assert until_now is not None
        for at in (until_now, columns["t"][1200]):
            found = live.score(src, dst, at).data["probability"]
            expected = predictor.predict_proba(src, dst, at)
            assert np.array_equal(found, expected)
        nodes, probabilities = predictor.rank("s1", until_now, 5)
        answer = live.top("s1", 5).data
        assert answer["names"] == [names[each] for each in nodes]
        assert np.allclose(answer["probability"], probabilities)
        assert live.explain("s1", "d7").data["probability"] == pytest.approx(
            float(live.score("s1", "d7").data["probability"][0])
        )


def test_the_past_is_that_of_a_history_of_the_same_stream(tmp_path: Path) -> None:
    columns = habits(seed=5)
    with opened(tmp_path / "live", learn=False) as live:
        for first in range(0, LINKS, 37):
            live.ingest({key: values[first : first + 37] for key, values in columns.items()})
        live.ingest([], wait="applied")
        until(lambda: live.stats()["applied"] == LINKS)
        number = live._state.named
        src, dst = ([number(name) for name in columns[side]] for side in ("src", "dst"))
        stream = EventStream(src, dst, columns["t"])
        history = History(stream.nodes, activity_half_lives(live._state.about.span))
        history.append(stream)
        asked = src, dst, columns["t"]
        assert np.array_equal(live._state.past.history.of_links(*asked), history.of_links(*asked))


def test_a_version_survives_a_restart_and_is_rolled_back(trained: Path, tmp_path: Path) -> None:
    path = copied(trained, tmp_path / "live")
    with opened(path, learn=False) as live:
        assert live.version == "0001"
        one = live.score("s1", ["d7", "d50"]).data["probability"]
        live.train(wait=True)
        assert live.version == "0002"
        assert live.rollback("0001") == "0001"
        assert np.array_equal(live.score("s1", ["d7", "d50"]).data["probability"], one)
        with pytest.raises(ParameterError, match="0001, 0002"):
            live.rollback("0007")
    with opened(path) as live:  # rolled back: it stays, although it may learn
        assert live.version == "0001"
        live.ingest(
            {
                key: values if key != "t" else [t + 200_000 for t in values]
                for key, values in habits(2 * LINKS, seed=1).items()
            },
            wait="applied",
        )
        time.sleep(0.6)
        assert [each["version"] for each in live.versions()] == ["0001", "0002"]
        assert live.rollback("heuristics") == "heuristics"


def test_a_training_that_fails_is_said_and_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "live", learn=False) as live:
        live.ingest([{"src": "a", "dst": "b", "t": 1}], wait="applied")
        with pytest.raises(ParameterError, match="1 links"):
            live.train(wait=True)
        assert live.version == "heuristics"
        assert any("too few" in note for note in live.stats()["notes"])


def test_events_are_judged_before_they_are_learned_from(trained: Path, tmp_path: Path) -> None:
    path = copied(trained, tmp_path / "live")
    with opened(path, learn=False, judged_per_s=100_000.0) as live:
        before = live.quality()["judged"]
        assert live._state.answering[0].events == LINKS
        later = habits(seed=1)
        later["t"] = [t + 200_000 for t in later["t"]]
        live.ingest(later, wait="applied")
        until(lambda: live._quality._seen == 2 * LINKS)
        found = live.quality()
        bucket = found["buckets"][-1]
        assert found["judged"] > before
        assert bucket["time"] % found["bucket"] == 0
        assert bucket["version"] == "0001"
        assert bucket["model"]["ap"] > 0.9
        assert bucket["heuristics"]["popularity"]["ap"] < bucket["model"]["ap"]
        assert 0 < bucket["heuristics"]["recency-pair"]["mrr"] <= 1
        assert 0 < found["share"] <= 1
        assert live.stats()["quality"]["model"] == live.quality()["buckets"][-1]["model"]
    with opened(path, learn=False) as live:
        assert live.quality()["buckets"][-1]["model"] == bucket["model"]


@pytest.mark.parametrize(
    "content",
    ["[]", '{"seen": "x"}', '{"seen": 0, "buckets": [1]}', '{"seen": 0, "buckets": [{"time": 0}]}'],
)
def test_a_damaged_record_of_quality_is_begun_anew(
    content: str, trained: Path, tmp_path: Path
) -> None:
    path = copied(trained, tmp_path / "live")
    (path / "quality.json").write_text(content)
    with opened(path, learn=False, judged_per_s=100_000.0) as live:
        later = {
            key: [each + 200_000 for each in values] if key == "t" else values
            for key, values in habits(seed=1).items()
        }
        live.ingest(later, wait="applied")
        until(lambda: live._quality._seen == 2 * LINKS)
        assert live.quality()["buckets"]
        assert live.stats()["quality"]


def test_quality_goes_on_after_a_node_was_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path / "live", learn=False, judged_per_s=100_000.0) as live:
        live.ingest(habits(), wait="applied")
        until(lambda: live._quality._seen == LINKS)
        live.forget("s1")
        judged, links = live.quality()["judged"], len(live._state.meetings)
        later = habits(seed=1)
        later["t"] = [t + 200_000 for t in later["t"]]
        live.ingest({key: values[:50] for key, values in later.items()}, wait="applied")
        until(lambda: live._quality._seen == links + 50)
        assert live.quality()["judged"] > judged


def test_steps_share_the_buckets_of_quality(tmp_path: Path) -> None:
    with opened(tmp_path / "live", learn=False, unit="step", judged_per_s=100_000.0) as live:
        columns = habits()
        columns["t"] = list(range(LINKS))
        for first in range(0, LINKS, 100):
            live.ingest({key: values[first : first + 100] for key, values in columns.items()})
            until(lambda: live._quality._seen == first + 100)  # noqa: B023
        buckets = live.quality()["buckets"]
        assert 1 < len(buckets) <= LINKS / 50 + 1
        assert all(each["judged"] >= 50 for each in buckets[:-1])


@pytest.mark.parametrize("damaged", ["altered", "deleted"])
def test_a_damaged_model_is_passed_over_and_said(
    damaged: str, trained: Path, tmp_path: Path
) -> None:
    path = copied(trained, tmp_path / "live")
    with opened(path, learn=False) as live:
        live._switch(live._versions.add(live._state.answering[0]), pinned=False)
    for version, then in (("0002", "0001"), ("0001", "heuristics")):
        file = path / "models" / f"{version}.tide"
        if damaged == "deleted":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-1])
        with opened(path, learn=False) as live:
            assert live.version == then
            assert any("0002" in note for note in live.notes)
            assert [each["version"] for each in live.versions()] == [then][: then != "heuristics"]
            assert live.top("s1", 3).version == then
            live.forget(f"s{int(version) + 1}")


def test_a_fall_in_quality_is_noticed(trained: Path, tmp_path: Path) -> None:
    with opened(copied(trained, tmp_path / "live"), learn=False) as live:
        quality = live._quality
        quality._buckets = [
            {"time": day, "judged": 100, "events": 100, "model": {"ap": ap}}
            for day, ap in enumerate((0.9, 0.95, 0.8))
        ]
        quality._scores.clear()
        assert quality.has_fallen(0.1)
        assert not quality.has_fallen(0.2)


def test_a_training_ends_when_the_state_is_closed(trained: Path, tmp_path: Path) -> None:
    live = opened(copied(trained, tmp_path / "live"), learn=False)
    live.train()
    until(lambda: (tmp_path / "live" / "models" / "training").exists())
    begin = time.monotonic()
    live.close()
    assert time.monotonic() - begin < 10
    assert not (tmp_path / "live" / "models" / "training").exists()
