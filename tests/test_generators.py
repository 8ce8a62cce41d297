"""Made-up streams have the size asked for, the shapes promised, and depend on the seed alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events import datasets
from tidegraph.events.datasets import storage
from tidegraph.events.stream import EventStream, NodeLabels

GDELT: dict[str, Any] = {
    "nodes": 300,
    "events": 40_000,
    "pairs": 2_000,
    "steps": 3_000,
    "features": 12,
    "classes": 6,
    "changes": 3.0,
}
MAG: dict[str, Any] = {
    "nodes": 5_000,
    "edges": 60_000,
    "years": 30,
    "classes": 8,
    "features": 4,
}
Generator = Callable[..., Path]
LARGE = [
    pytest.param(datasets.generate_gdelt_like, GDELT, id="gdelt"),
    pytest.param(datasets.generate_mag_like, MAG, id="mag"),
]


def label_at(labels: NodeLabels, node: NDArray[Any], t: NDArray[Any]) -> NDArray[Any]:
    """The label of each node at each time: the last one known by then."""
    order = np.lexsort([labels.t, labels.node])
    last = int(max(labels.t.max(), t.max())) + 1
    key = (labels.node * last + labels.t)[order]
    place = np.searchsorted(key, node * last + t, side="right") - 1
    assert (labels.node[order][place] == node).all()
    return np.asarray(labels.label[order][place])


def alike(stream: EventStream) -> tuple[float, float]:
    """The share of events between nodes of one label, and what it were without preference."""
    assert stream.node_labels is not None
    src = label_at(stream.node_labels, stream.src, stream.t)
    dst = label_at(stream.node_labels, stream.dst, stream.t)
    shuffled = np.random.default_rng(0).permutation(dst)
    return float((src == dst).mean()), float((src == shuffled).mean())


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


# Communities --------------------------------------------------------------------------------------


def test_communities_have_the_size_asked_for_and_are_a_function_of_the_seed() -> None:
    one, same, other = (
        datasets.generate_communities(nodes=200, events=5_000, features=3, seed=seed)
        for seed in (1, 1, 2)
    )
    assert (len(one), one.nodes) == (5_000, 200)
    assert (np.diff(one.t) >= 0).all()
    assert (one.src != one.dst).all()
    assert one.node_features is not None
    assert one.node_features.shape == (200, 3)
    assert one.digest() == same.digest()
    assert one.digest() != other.digest()


def test_most_events_stay_within_a_community_even_as_nodes_move() -> None:
    stream = datasets.generate_communities(
        nodes=300, events=30_000, communities=4, mixing=0.1, switches=2.0
    )
    share, chance = alike(stream)
    assert chance < 0.4
    assert 0.75 < share < 0.95
    first, last = alike(stream[:3_000]), alike(stream[-3_000:])
    assert min(first[0], last[0]) > 0.75


def test_labels_change_as_often_as_asked_and_events_carry_those_of_their_sources() -> None:
    stream = datasets.generate_communities(nodes=400, events=20_000, switches=1.5)
    labels = stream.node_labels
    assert labels is not None
    assert stream.labels is not None
    assert (np.diff(labels.t) >= 0).all()
    assert np.array_equal(label_at(labels, stream.src, stream.t), stream.labels)
    order = np.lexsort([labels.t, labels.node])
    node, label = labels.node[order], labels.label[order]
    again = node[1:] == node[:-1]
    assert (label[1:][again] != label[:-1][again]).all()
    # Moves that meet at one moment count once, so there may be a few less than asked for.
    assert 0.97 * 600 <= again.sum() <= 600
    still = datasets.generate_communities(nodes=400, events=100, switches=0.0)
    assert still.node_labels is not None
    assert len(still.node_labels.node) == 400


def test_repeats_are_repeats() -> None:
    def pairs(repeats: float) -> int:
        stream = datasets.generate_communities(nodes=2_000, events=20_000, repeats=repeats)
        return len(np.unique(stream.src * stream.nodes + stream.dst))

    fresh, half = pairs(0.0), pairs(0.5)
    assert half == pytest.approx(fresh / 2, rel=0.1)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"nodes": 3}, "nodes is 3; give at least 10"),
        ({"communities": 1}, "communities is 1; give at least 2"),
        ({"mixing": 1.0}, "mixing is 1.0"),
        ({"seed": -1}, "seed is -1; give 0 to"),
        ({"repeats": -0.1}, "repeats is -0.1"),
        ({"switches": float("nan")}, "switches is nan"),
        ({"events_per_time": 0}, "events_per_time is 0; give a positive"),
    ],
)
def test_impossible_communities_raise(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(ParameterError, match=advice):
        datasets.generate_communities(**options)


# Large ones ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("generate", "options"), LARGE)
def test_bytes_depend_on_the_seed_and_not_on_the_pieces(
    generate: Generator, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "ROW_GROUP", 10_000)
    whole = contents(generate(tmp_path / "a", seed=3, **options))
    monkeypatch.setattr(storage, "_CHUNK", 777)
    monkeypatch.setattr(storage, "_WORKERS", 3)
    assert contents(generate(tmp_path / "b", seed=3, **options)) == whole
    other = contents(generate(tmp_path / "c", seed=4, **options))
    assert all(other[name] != whole[name] for name in whole)


@pytest.mark.parametrize(("generate", "options"), LARGE)
def test_counts_are_exact_and_events_in_order(
    generate: Generator, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "ROW_GROUP", 10_000)
    said: list[tuple[int, int, str]] = []
    path = generate(tmp_path / "a", progress=lambda *words: said.append(words), **options)
    stream = datasets.load_dataset(path)
    events = options.get("events", options.get("edges"))
    assert (len(stream), stream.nodes) == (events, options["nodes"])
    assert (np.diff(stream.t) >= 0).all()
    assert (stream.src != stream.dst).all()
    for ends in (stream.src, stream.dst):
        assert 0 <= ends.min() <= ends.max() < stream.nodes
    assert stream.node_features is not None
    assert stream.node_features.dtype == np.float32
    assert stream.node_features.shape == (options["nodes"], options["features"])
    labels = stream.node_labels
    assert labels is not None
    assert (np.diff(labels.t) >= 0).all()
    assert np.array_equal(np.unique(labels.node), np.arange(stream.nodes))
    assert np.array_equal(np.unique(labels.label), np.arange(options["classes"]))
    groups = pq.ParquetFile(path / storage.EDGES).metadata
    assert [groups.row_group(k).num_rows for k in range(2)] == [10_000, 10_000]
    assert (events, events, f"rows of {storage.EDGES}") in said
    description = json.loads((path / storage.DESCRIPTION).read_text())
    asked = {name: value for name, value in options.items() if name != "edges"}
    assert (asked | {"events": events}).items() <= description.items()
    assert {"title", "unit", "seed", "version", "generator"} <= set(description)


@pytest.mark.parametrize(("generate", "options"), LARGE)
def test_like_meets_like(generate: Generator, options: dict[str, Any], tmp_path: Path) -> None:
    share, chance = alike(datasets.load_dataset(generate(tmp_path / "a", **options)))
    assert share > 1.5 * chance


@pytest.mark.parametrize(("generate", "options"), LARGE)
def test_features_tell_something_about_labels(
    generate: Generator, options: dict[str, Any], tmp_path: Path
) -> None:
    stream = datasets.load_dataset(generate(tmp_path / "a", **options))
    assert stream.node_features is not None
    assert stream.node_labels is not None
    first = np.zeros(stream.nodes, dtype=np.int64)
    order = np.argsort(-stream.node_labels.t, kind="stable")
    first[stream.node_labels.node[order]] = stream.node_labels.label[order]
    features = np.asarray(stream.node_features)
    half = np.random.default_rng(0).random(stream.nodes) < 0.5
    centres = np.array([features[half & (first == c)].mean(axis=0) for c in np.unique(first[half])])
    distance = ((features[~half, None] - centres) ** 2).sum(axis=2)
    guessed = np.unique(first[half])[distance.argmin(axis=1)]
    shuffled = np.random.default_rng(1).permutation(guessed)
    assert (guessed == first[~half]).mean() > 1.2 * (shuffled == first[~half]).mean()


def test_features_given_afterwards_are_those_of_generating_with_them(tmp_path: Path) -> None:
    at_once = datasets.generate_mag_like(tmp_path / "a", **MAG)
    later = datasets.generate_mag_like(tmp_path / "b", **MAG | {"features": 0})
    file = datasets.generate_mag_features(later, MAG["features"])
    assert {path.name: path.read_bytes() for path in later.iterdir()} == {
        path.name: path.read_bytes() for path in at_once.iterdir()
    }
    assert datasets.generate_mag_features(later, MAG["features"]) == file
    with pytest.raises(DataError, match="has 4 features already"):
        datasets.generate_mag_features(later, 5)
    with pytest.raises(DataError, match="no generated citations"):
        datasets.generate_mag_features(tmp_path, 5)


def test_gdelt_has_the_pairs_asked_for_and_labels_that_change(tmp_path: Path) -> None:
    stream = datasets.load_dataset(datasets.generate_gdelt_like(tmp_path / "a", **GDELT))
    pairs, counts = np.unique(stream.src * stream.nodes + stream.dst, return_counts=True)
    assert len(pairs) == GDELT["pairs"]
    # A twentieth of the pairs make up most of the events.
    assert np.sort(counts)[-len(counts) // 20 :].sum() > 0.4 * len(stream)
    assert stream.unit == "min"
    assert (stream.t % 15 == 0).all()
    assert stream.t.max() < 15 * GDELT["steps"]
    labels = stream.node_labels
    assert labels is not None
    order = np.lexsort([labels.t, labels.node])
    node, label = labels.node[order], labels.label[order]
    again = node[1:] == node[:-1]
    assert (label[1:][again] != label[:-1][again]).all()
    assert 1 < again.sum() / stream.nodes <= GDELT["changes"]


def test_mag_grows_and_cites_the_past_with_a_heavy_tail(tmp_path: Path) -> None:
    stream = datasets.load_dataset(
        datasets.generate_mag_like(tmp_path / "a", nodes=50_000, edges=500_000, years=40)
    )
    labels = stream.node_labels
    assert labels is not None
    assert np.array_equal(labels.node, np.arange(stream.nodes))
    year = labels.t
    assert (year[0], year[-1]) == (1980, 2019)
    assert np.array_equal(year[stream.src], stream.t)
    assert (year[stream.dst] <= stream.t).all()
    per_year = np.bincount(year - 1980)
    assert per_year[-5:].sum() > 4 * per_year[:5].sum()
    recent = (stream.t - year[stream.dst]) <= 8
    assert 0.5 < recent.mean() < 0.95
    # Hill's estimate over the most cited, of papers that had ten years to be cited.
    cited = np.sort(np.bincount(stream.dst, minlength=stream.nodes)[year < 2010])[::-1]
    tail = cited[:200].astype(float)
    exponent = 1 + 1 / np.log(tail[:-1] / tail[-1]).mean()
    assert 2.0 < exponent < 3.5
    assert cited[0] > 20 * np.median(cited)
    # Seldom is the same citation made twice, though the graph is small.
    assert len(np.unique(stream.src * stream.nodes + stream.dst)) > 0.9 * len(stream)


def test_a_tiny_graph_works_too(tmp_path: Path) -> None:
    path = datasets.generate_mag_like(tmp_path / "a", nodes=3, edges=4, years=3, classes=5)
    stream = datasets.load_dataset(path)
    assert len(stream) == 4
    assert (stream.src != stream.dst).all()
    path = datasets.generate_gdelt_like(
        tmp_path / "b", nodes=4, events=6, pairs=6, steps=1, classes=2, features=0, changes=0
    )
    assert len(datasets.load_dataset(path)) == 6


@pytest.mark.parametrize(
    ("generate", "options", "advice"),
    [
        (datasets.generate_gdelt_like, GDELT | {"pairs": 100}, "pairs is 100; give 300 to"),
        (datasets.generate_gdelt_like, GDELT | {"events": 10}, "events is 10; give at least 2,000"),
        (datasets.generate_gdelt_like, GDELT | {"changes": 40.0}, "changes is 40.0"),
        (datasets.generate_mag_like, MAG | {"nodes": 10}, "nodes is 10; give 30 to"),
        (datasets.generate_mag_like, MAG | {"edges": 0}, "edges is 0; give at least 1"),
    ],
)
def test_impossible_sizes_raise_and_nothing_is_written(
    generate: Generator, options: dict[str, Any], advice: str, tmp_path: Path
) -> None:
    with pytest.raises(ParameterError, match=advice):
        generate(tmp_path / "a", **options)
    assert not (tmp_path / "a").exists()


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(DataError, match="exists already"):
        datasets.generate_mag_like(tmp_path, **MAG)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
