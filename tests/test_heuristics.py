"""Heuristics, compared with an oracle that reads every event."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from tests.random_streams import (
    SEEDS,
    IntArray,
    every_heuristic,
    pairs,
)

from tidegraph.core.errors import EvaluationError
from tidegraph.evaluation import heuristics
from tidegraph.evaluation.memory import Memory
from tidegraph.events.stream import EventStream

NUMBERS = range(len(every_heuristic()))
NAMES = [rule.name for rule in every_heuristic()]


def crowded_stream(seed: int, *, events: int = 250, nodes: int = 9, span: int = 60) -> EventStream:
    """Events among few nodes, with repeated and reversed pairs, self-loops and equal times."""
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, nodes, (2, events))
    return EventStream(src, dst, np.sort(generator.integers(0, span, events)), nodes)


def questions(stream: EventStream, seed: int, count: int = 120) -> tuple[IntArray, ...]:
    """Pairs, old and new, at times after the events that are known: src, dst, t, known."""
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, stream.nodes, (2, count))
    known = generator.integers(0, len(stream) + 1, count)
    known[:2] = 0, len(stream)
    t = np.append(-3, stream.t)[known] + generator.integers(0, 5, count)
    return src, dst, t, known


class Oracle:
    """All heuristics by their definitions, for one question, from a list of events."""

    def __init__(self, stream: EventStream, known: int) -> None:
        columns = (stream.src[:known], stream.dst[:known], stream.t[:known])
        self.times: dict[tuple[int, int], list[int]] = {}
        self.into: dict[int, list[int]] = {}
        for u, v, t in zip(*(column.tolist() for column in columns), strict=True):
            self.times.setdefault((u, v), []).append(t)
            self.into.setdefault(v, []).append(t)
        self.all = columns[2]

    def holds(self, u: int, v: int, memory: str) -> bool:
        if (u, v) not in self.times:
            return False
        mine, every = self.times[u, v], self.times.values()
        if memory == "repeat":
            return len(mine) >= Fraction(sum(map(len, every)), len(every))
        if memory == "window":
            return bool(mine[-1] >= np.quantile(self.all, 1 - 0.15))
        if memory == "interval":
            gaps = [Fraction(one[-1] - one[0], max(len(one) - 1, 1)) for one in every]
            return mine[-1] >= int(self.all[-1]) - sum(gaps) / len(gaps)
        return True

    def score(self, number: int, u: int, v: int, t: int) -> float:
        name, scale = NAMES[number], 20.0 if number < 9 else 15.0
        if name.startswith("edgebank-"):
            return float(self.holds(u, v, name.removeprefix("edgebank-")))
        pair, back, into = (
            *(self.times.get(key, []) for key in ((u, v), (v, u))),
            self.into.get(v, []),
        )
        if name.startswith("recency-"):
            series = pair if name == "recency-pair" else into
            return 1 / (1 + t - series[-1]) if series else 0.0
        if name == "popularity" and number < 9:
            return float(len(into))
        parts = name.split("+")
        weights = {"memory": 1.0, "reverse": 1.0, "popularity": 1e-3 if len(parts) > 1 else 1.0}
        return math.fsum(
            weights[part] * math.exp((event - t) / scale)
            for part, series in (("memory", pair), ("reverse", back), ("popularity", into))
            for event in series
            if part in parts
        )


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
@given(seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_heuristic_is_its_definition_after_any_number_of_events(number: int, seed: int) -> None:
    stream = crowded_stream(seed, span=60 if seed % 2 else 2000)
    src, dst, t, known = questions(stream, seed)
    found = every_heuristic()[number].score(Memory(stream).ask(src, dst, t, known))
    expected = [
        Oracle(stream, count).score(number, *one)
        for *one, count in zip(*(c.tolist() for c in (src, dst, t, known)), strict=True)
    ]
    if "memory" in NAMES[number] or "reverse" in NAMES[number] or number > 8:
        np.testing.assert_allclose(found, expected, rtol=1e-13)
    else:
        np.testing.assert_array_equal(found, expected)
    nothing = every_heuristic()[number].score(Memory(stream[:0]).ask(src, dst, t, 0 * known))
    np.testing.assert_array_equal(nothing, np.zeros(len(src)))


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
@pytest.mark.parametrize("since", [1_700_000_000 * 10**9, 2**62 - 10_000, 10_000 - 2**62])
def test_a_heuristic_does_not_depend_on_when_time_began(number: int, since: int) -> None:
    if NAMES[number] == "edgebank-window":
        pytest.skip("a quantile of times, in float64 as published")
    stream = crowded_stream(15)
    src, dst, t, known = questions(stream, 4)
    later = replace(stream, t=stream.t + since)
    rule = every_heuristic()[number]
    np.testing.assert_array_equal(
        rule.score(Memory(later).ask(src, dst, t + since, known)),
        rule.score(Memory(stream).ask(src, dst, t, known)),
    )


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
def test_an_answer_depends_on_nothing_but_the_known_events(number: int) -> None:
    stream = crowded_stream(14)
    src, dst, t, known = questions(stream, 3)
    rule = every_heuristic()[number]
    together = rule.score(Memory(stream).ask(src, dst, t, known))
    for count in np.unique(known):
        asked = known == count
        own = Memory(stream[:count]).ask(src[asked], dst[asked], t[asked], known[asked])
        np.testing.assert_array_equal(together[asked], rule.score(own))
    assert len(np.unique(together)) > 1


def test_a_mean_gap_that_is_a_whole_number_is_reached() -> None:
    # Three pairs with mean gaps of 4/3, 5/3 and 0 have 1 in the mean, although no third is exact.
    src, dst = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2]), np.array([3, 3, 3, 3, 4, 4, 4, 4, 5])
    t = np.array([0, 1, 2, 4, 0, 1, 2, 5, 5])
    order = np.argsort(t, kind="stable")
    for unit in (1, 10**9 * 86_400 * 365):  # nanoseconds and longer than a day
        stream = EventStream(src[order], dst[order], t[order] * unit, 6)
        assert Memory(stream).mean_gap[-1] == unit
        late = np.full(3, 5 * unit)
        asked = Memory(stream).ask(np.arange(3), np.arange(3, 6), late, np.full(3, 9))
        assert heuristics.EdgeBank("interval").score(asked).tolist() == [1, 1, 1]


def test_pairs_of_equal_ages_have_the_same_score() -> None:
    # Wherever the events are among others, and whatever the time is: rounding decides no rank.
    generator = np.random.default_rng(0)
    ages = np.array([0, 3, 40, 41, 900])
    begin = np.sort(generator.integers(0, 10**9, 300))
    t = (begin[:, None] - ages).ravel()
    order = np.argsort(t, kind="stable")
    pair = np.repeat(np.arange(300), len(ages))
    stream = EventStream(pair[order], 300 + pair[order], t[order], 600)
    known = np.searchsorted(stream.t, begin + 7)
    asked = Memory(stream).ask(np.arange(300), np.arange(300, 600), begin + 7, known)
    for rule in (
        heuristics.EdgeMemory(scale=123.4),
        heuristics.EdgeMemory(scale=123.4, popularity=0.1),
    ):
        assert len(np.unique(rule.score(asked))) == 1


def test_edge_memory_sums_the_faded_events_of_a_pair_its_reverse_and_its_destination() -> None:
    stream = EventStream(np.array([0, 1, 0, 2]), np.array([1, 0, 1, 1]), np.array([0, 1, 4, 5]), 3)
    rule = heuristics.EdgeMemory(scale=2.0, reverse=0.5, popularity=0.1)
    forward = math.exp(-7 / 2) + math.exp(-3 / 2)
    backward, into = math.exp(-6 / 2), forward + math.exp(-2 / 2)
    asked = Memory(stream).ask(np.array([0]), np.array([1]), np.array([7]), np.array([4]))
    assert rule.score(asked)[0] == pytest.approx(forward + 0.5 * backward + 0.1 * into)


def test_each_edgebank_remembers_the_pairs_of_its_memory() -> None:
    # Pair (0, 1) occurs four times, early; (0, 2) twice, 10 apart; (0, 3) once, last.
    dst = np.array([1, 1, 1, 1, 2, 2, 3])
    t = np.array([0, 1, 2, 3, 80, 90, 100])
    stream = EventStream(np.zeros(7, dtype=np.int64), dst, t, 5)
    asked = Memory(stream).ask(
        np.zeros(4, dtype=np.int64), np.arange(1, 5), np.full(4, 100), np.full(4, 7)
    )
    held = {
        memory: heuristics.EdgeBank(memory, proportion=0.3).score(asked)
        for memory in ("unlimited", "window", "interval", "repeat")
    }
    assert held["unlimited"].tolist() == [1, 1, 1, 0]
    assert held["window"].tolist() == [0, 1, 1, 0]  # since the 70 % quantile of time, t = 82
    assert held["interval"].tolist() == [0, 0, 1, 0]  # mean gap (1 + 10 + 0) / 3
    assert held["repeat"].tolist() == [1, 0, 0, 0]  # mean count 7 / 3
    # A pair that occurred exactly at the beginning of the window is in it.
    five, zero = np.arange(5), np.zeros(5, dtype=np.int64)
    asked = Memory(EventStream(zero, five, five, 5)).ask(zero, five, zero + 9, zero + 5)
    sharp = heuristics.EdgeBank("window", proportion=0.25)
    assert sharp.score(asked).tolist() == [0, 0, 0, 1, 1]


class Counting(heuristics.OnlineHeuristic):
    """EdgeBank and popularity by dictionaries."""

    name = "counting"

    def __init__(self) -> None:
        self.pairs: set[tuple[int, int]] = set()
        self.into: dict[int, int] = {}

    def update(self, events: EventStream) -> None:
        self.pairs |= pairs(events.src, events.dst)
        for v in events.dst.tolist():
            self.into[v] = self.into.get(v, 0) + 1

    def answer(self, src: IntArray, dst: IntArray, t: IntArray) -> NDArray[np.float64]:
        both = zip(src.tolist(), dst.tolist(), strict=True)
        return np.array([1000.0 * ((u, v) in self.pairs) + self.into.get(v, 0) for u, v in both])


def test_a_heuristic_with_a_memory_of_its_own_is_shown_what_is_known() -> None:
    stream = crowded_stream(5)
    src, dst, t, known = questions(stream, 6)
    asked = Memory(stream).ask(src, dst, t, known)
    seen, popular = heuristics.EdgeBank().score(asked), heuristics.Popularity().score(asked)
    online = Counting()
    np.testing.assert_array_equal(online.score(asked), 1000 * seen + popular)
    with pytest.raises(EvaluationError, match=f"counting has seen {len(stream)} events.* 0;"):
        online.score(asked)
