"""A description counts what is there, and its pictures show it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from tidegraph.core.errors import DataError
from tidegraph.events.describe import Description, bars, describe, facts
from tidegraph.events.moments import span_in_words
from tidegraph.events.stream import Edges, EventStream, NodeLabels
from tidegraph.report.description import description


def stream(rows: list[tuple[int, int, int]], nodes: int, unit: str = "s") -> EventStream:
    src, dst, t = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return EventStream(src, dst, t, nodes, unit, title="A <small> stream")


SMALL = stream([(0, 1, 10), (1, 0, 10), (0, 1, 12), (2, 2, 14), (0, 1, 14), (3, 0, 14)], 5)


def test_everything_is_counted_as_by_hand() -> None:
    what = describe(SMALL)
    assert (what.events, what.nodes, what.active_nodes, what.pairs) == (6, 5, 4, 4)
    assert what.repeat_rate == pytest.approx(2 / 6)
    assert (what.self_edges, what.sources, what.destinations) == (1, 4, 3)
    assert not what.bipartite
    assert (what.times, what.events_per_time_median, what.events_per_time_max) == (3, 2.0, 3)
    # Events per node: 5, 4, 1, 1. Neighbours: 2, 1, 0, 1.
    assert what.events_per_node[2] == 1
    assert what.events_per_node[-1] == 5
    assert what.neighbours_per_node[-1] == 2
    assert what.degrees == ((1, 1, 2), (2, 3, 0), (4, 7, 2))
    assert sum(what.activity) == 6
    assert what.activity == (2, 0, 1, 0, 3)
    assert (what.event_classes, what.node_classes, what.edge_features) == (0, 0, 0)


def test_sources_that_are_never_destinations_make_it_bipartite() -> None:
    assert describe(stream([(0, 2, 1), (1, 2, 2)], 3)).bipartite


def test_burstiness_tells_clockwork_chance_and_bursts_apart() -> None:
    def of(t: np.ndarray) -> Description:
        ones = np.ones(len(t), dtype=np.int64)
        return describe(EventStream(0 * ones, ones, t.astype(np.int64), 2))

    clockwork = of(np.arange(0, 30_000, 10))
    assert clockwork.burstiness == clockwork.burstiness_of_nodes == -1
    rng = np.random.default_rng(0)
    poisson = of(np.cumsum(rng.exponential(1_000, 30_000)))
    assert poisson.burstiness == pytest.approx(0, abs=0.02)
    assert poisson.burstiness_of_nodes == pytest.approx(0, abs=0.02)
    bursts = of(np.cumsum(rng.pareto(1.1, 30_000) * 1_000))
    assert bursts.burstiness is not None
    assert bursts.burstiness > 0.5


def test_too_few_gaps_have_no_burstiness() -> None:
    assert describe(stream([(0, 1, 5), (1, 0, 9)], 2)).burstiness is None


def test_a_moment_has_no_burstiness_and_still_a_picture() -> None:
    what = describe(stream([(0, 1, 5), (1, 0, 5)], 2))
    assert what.burstiness is None
    assert what.burstiness_of_nodes is None
    assert what.activity == (2,)
    assert "<svg" in description(what)


def test_a_description_includes_labels_features_and_removals() -> None:
    one = np.array([1, 1, 1, 1, 0, 1])
    labels = NodeLabels(np.array([0, 1, 0, 0]), np.array([0, 1, 2, 3]), np.array([4, 4, 5, 5]))
    full = EventStream(
        SMALL.src,
        SMALL.dst,
        SMALL.t,
        5,
        op=np.array([0, 0, 0, 0, 1, 2], dtype=np.uint8),
        weight=np.ones(6),
        edge_features=np.zeros((6, 3), dtype=np.float32),
        labels=one,
        initial=Edges(np.array([0]), np.array([1])),
        node_features=np.zeros((5, 1), dtype=np.float32),
        node_labels=labels,
    )
    what = describe(full)
    assert what.event_labels == {"1": 5, "0": 1}
    assert (what.labelled_nodes, what.node_classes, what.label_changes) == (2, 2, 1)
    assert (what.removals, what.initial_edges) == (1, 1)
    lines = dict(facts(what))
    assert lines["edge features"] == "3 columns"
    assert lines["node features"] == "1 column"
    assert lines["weights"] == "yes"
    assert lines["nodes"] == "5, 1 of them without events"
    assert "2 nodes, 1 changes" in lines["node labels"]


@pytest.mark.parametrize(
    ("first", "last", "unit", "dates"),
    [
        (1_082_040_961, 1_082_040_999, "s", ("2004-04-15 14:56:01", "2004-04-15 14:56:39")),
        (1_082_040_961_500, 1_082_040_961_900, "ms", ("2004-04-15 14:56:01",) * 2),
        (0, 2_678_373, "s", (None, None)),  # counted from a beginning of its own
        (0, 9_000_000_000, "s", (None, None)),
        (0, 600, "min", (None, None)),
        (1967, 2010, "year", ("1967", "2010")),
    ],
)
def test_times_are_dates_only_where_they_can_be(
    first: int, last: int, unit: str, dates: tuple[str | None, str | None]
) -> None:
    what = describe(stream([(0, 1, first), (0, 1, last)], 2, unit))
    assert (what.first_date, what.last_date) == dates


@pytest.mark.parametrize(
    ("length", "unit", "words"),
    [
        (2_678_373, "s", "31 days"),
        (2_678_373_000_000, "us", "31 days"),
        (7_200, "s", "2.0 hours"),
        (90, "s", "90 seconds"),
        (260_639, "min", "181 days"),
        (1, "year", "1 year"),
        (25_106, "step", "25,106 steps"),
        (0, "s", "0 seconds"),
    ],
)
def test_spans_are_said_in_words(length: int, unit: str, words: str) -> None:
    assert span_in_words(length, unit) == words


def test_bars_grow_with_their_values_and_nothing_hides() -> None:
    lines = bars((0, 1, 500, 1_000), height=3)
    columns = ["".join(column) for column in zip(*lines, strict=True)]
    assert columns[0] == "   "
    assert columns[1].strip()
    assert columns[3] == "███"
    assert all(ord(mark) < 128 for mark in "".join(bars((0, 1, 2, 3), plain=True)))
    assert bars((0, 0), height=1) == ["  "]


class Page(HTMLParser):
    """What a browser would load from elsewhere, and whether tags are balanced."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    text = description(describe(SMALL))
    parsed = Page(text)
    assert parsed.open == []
    assert parsed.loaded == []
    assert "http" not in text
    assert "A &lt;small&gt; stream" in text
    assert "prefers-color-scheme: dark" in text
    assert len(re.findall("<rect", text)) == 3 + 2  # times with events, classes with nodes


def test_nothing_cannot_be_described() -> None:
    with pytest.raises(DataError, match="no events"):
        describe(SMALL[:0])
