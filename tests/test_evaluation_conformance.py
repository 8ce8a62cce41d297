"""The protocols reproduce published numbers of heuristics on the real data sets.

Where negatives are drawn from published seeds in a published order, the printed digits must agree.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tidegraph import evaluation
from tidegraph.evaluation.heuristics import EdgeBank
from tidegraph.events import datasets
from tidegraph.events.stream import EventStream


@cache
def stream_of(name: str) -> EventStream:
    if datasets.find(datasets.DATA_SETS[name]) is None:
        pytest.skip(f"{name} is not on this machine")
    events = datasets.load_dataset(name)
    return EventStream(events.src, events.dst, events.t, events.nodes, unit=events.unit, title=name)


@cache
def split_of(name: str) -> evaluation.Split:
    return evaluation.tgn_split(stream_of(name))


def test_the_split_of_wikipedia_has_the_published_sizes() -> None:
    split = split_of("wikipedia")
    sizes = split.sizes()
    assert (sizes["train"], sizes["validation"], sizes["test"]) == (81_029, 23_621, 23_621)
    assert sizes["new_test"] == 11_715
    assert len(split.held_out) == 922


def test_the_bans_of_wikipedia_fall_into_the_parts_as_published() -> None:
    import pyarrow.csv

    stream = stream_of("wikipedia")
    found = datasets.find(datasets.DATA_SETS["wikipedia"])
    assert found is not None
    file = pyarrow.csv.read_csv(found.paths[0])
    labelled = EventStream(
        stream.src, stream.dst, stream.t, stream.nodes, labels=file["label"].to_numpy()
    )
    examples = evaluation.label_split(labelled, split_of("wikipedia"))
    assert examples.part is not None
    assert np.bincount(examples.part[examples.label == 1]).tolist() == [156, 17, 44]


@pytest.mark.parametrize(
    ("name", "printed"),
    [("wikipedia", {"ap": 90.37, "auc": 90.78}), ("uci", {"ap": 76.20})],
)
def test_edgebank_against_random_destinations_agrees_to_the_printed_digits(
    name: str, printed: dict[str, float]
) -> None:
    result = evaluation.evaluate_link(
        None, stream_of(name), split_of(name), parts=("test",), heuristics=lambda: [EdgeBank()]
    )
    measured = result.row(scorer="edgebank-unlimited@published").metrics
    assert {metric: round(100 * measured[metric], 2) for metric in printed} == printed


@pytest.mark.parametrize(
    ("name", "sampler", "memory", "published"),
    [
        ("wikipedia", "historical", "repeat", 0.7335),
        ("wikipedia", "inductive", "repeat", 0.8063),
        ("uci", "historical", "window", 0.6550),
        ("uci", "inductive", "interval", 0.5743),
    ],
)
def test_edgebank_against_past_edges_agrees_up_to_the_draw(
    name: str, sampler: str, memory: str, published: float
) -> None:
    # The published program draws from the order of a Python set of pairs, ours from the order of
    # first appearance. Other seeds move these values by 0.0017 (standard deviation): three of it.
    result = evaluation.evaluate_link(
        None,
        stream_of(name),
        split_of(name),
        parts=("test",),
        samplers=(sampler,),
        heuristics=lambda: [EdgeBank(memory)],
    )
    measured = result.row(scorer=f"edgebank-{memory}@published").metrics["ap"]
    assert measured == pytest.approx(published, abs=0.005)


# Standard deviations of mrr-1000 over 20 seeds; a published value is one draw.
SPREAD = {"uci": 0.005, "bitcoin-otc": 0.008, "bitcoin-alpha": 0.010}


@pytest.mark.parametrize(
    ("name", "snapshots", "test_tasks", "published"),
    [
        (
            "uci",
            87,
            range(72, 86),
            {"reverse": (0.485, 0.591), "memory+reverse+popularity": (0.474, 0.60)},
        ),
        (
            "bitcoin-otc",
            138,
            range(110, 137),
            {"popularity": (0.083, 0.316), "reverse+popularity": (0.092, 0.295)},
        ),
        (
            "bitcoin-alpha",
            138,
            range(109, 137),
            {"popularity": (0.054, 0.204), "reverse+popularity": (0.096, 0.256)},
        ),
    ],
)
def test_heuristics_on_snapshots_agree_in_both_mrrs(
    name: str, snapshots: int, test_tasks: range, published: dict[str, tuple[float, float]]
) -> None:
    stream = stream_of(name)
    split = evaluation.roland_split(stream, **evaluation.ROLAND_SETTINGS[name])
    assert (split.snapshots, split.test) == (snapshots, test_tasks)
    result = evaluation.evaluate_snapshots(None, stream, split)
    for scorer, (full, sampled) in published.items():
        measured = result.row(scorer=scorer).metrics
        assert round(measured["mrr-full"], 3) == full
        # Against the mean over all draws, so that only one of the two values compared is noisy.
        assert measured["mrr-1000-expected"] == pytest.approx(sampled, abs=3 * SPREAD[name])
        assert measured["mrr-1000"] == pytest.approx(
            measured["mrr-1000-expected"], abs=3 * SPREAD[name]
        )
    if name == "uci":
        memory = result.row(scorer="memory").metrics
        assert 0.395 <= round(memory["mrr-full"], 2) <= 0.40
        assert memory["mrr-1000-expected"] == pytest.approx(0.515, abs=3 * SPREAD[name])


def test_popularity_alone_is_strong_against_all_nodes_of_a_bipartite_graph() -> None:
    stream = stream_of("wikipedia")
    result = evaluation.evaluate_link(
        None,
        stream,
        split_of("wikipedia"),
        parts=("test",),
        samplers=("random-dst", "random-all"),
        heuristics=lambda: [evaluation.heuristics.Popularity()],
    )
    easy = result.row(sampler="random-all", scorer="popularity").metrics["ap"]
    hard = result.row(sampler="random-dst", scorer="popularity").metrics["ap"]
    assert easy > 0.9 > 0.7 > hard
