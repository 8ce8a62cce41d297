"""What docs/published-numbers.md states, shown on small lists and on the real data sets."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegraph import evaluation
from tidegraph.events import datasets
from tidegraph.events.stream import EventStream
from tidegraph.reproduce.texts import best_published, published

ROOT = Path(__file__).parents[1]
STORED = json.loads((ROOT / "benchmarks/results/published_numbers.json").read_bytes())


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "published_numbers", ROOT / "benchmarks/published_numbers.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


measuring: Any = script()


def need(name: str) -> None:
    if datasets.find(datasets.DATA_SETS[name]) is None:
        pytest.skip(f"{name} is not on this machine")


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_the_mean_over_orders_of_ties_is_that_of_all_permutations(
    seed: int, true: int, levels: int
) -> None:
    scores = np.random.default_rng(seed).integers(0, levels, 6).astype(np.float32)
    values = []
    for shuffled in itertools.permutations(range(6)):
        listed = np.array(shuffled)
        order = listed[np.argsort(-scores[listed], kind="stable")]
        values.append(measuring.row_mrr(order, true))
    assert measuring.row_mrr_at_random(scores, true) == pytest.approx(np.mean(values))


def test_a_stable_sort_that_is_reversed_puts_what_is_listed_first_last() -> None:
    scores = np.zeros(1000, dtype=np.float32)
    scores[:100] = 1  # the only true candidate is the first
    mrr = {name: measuring.row_mrr(order(scores), 1) for name, order in measuring.ORDERS.items()}
    assert mrr["true first"] == 1
    assert mrr["program, stable sort"] == 1 / 100
    assert measuring.row_mrr_at_random(scores, 1) == pytest.approx(
        sum(1 / place for place in range(1, 101)) / 100
    )


def hubs(seed: int) -> tuple[EventStream, evaluation.SnapshotSplit]:
    """Return events to 100 hubs, each drawn uniformly, of which nothing more can be known."""
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, 2000, 6000), 20 * generator.integers(0, 100, 6000)
    stream = EventStream(src, dst, np.arange(6000) // 300, 2000, unit="s")
    return stream, evaluation.roland_split(stream, width_s=1, first_test=17)


@pytest.mark.parametrize("seed", range(3))
def test_a_sort_gives_a_scorer_that_learns_nothing_many_times_what_it_earns(seed: int) -> None:
    mrr = measuring.learns_nothing(*hubs(seed))
    assert mrr["half"] <= mrr["at random"]
    for order in measuring.ORDERS:
        assert mrr["program, stable sort"] <= mrr[order] + 1e-12
        assert mrr[order] <= mrr["true first"] + 1e-12
    assert mrr["program"] > 5 * mrr["at random"]


def test_long_doubles_are_sorted_as_float32_is_without_vector_instructions() -> None:
    simd: Any = np.show_config(mode="dicts")
    found = simd["SIMD Extensions"].get("found", [])
    code = """
import numpy as np
generator = np.random.default_rng(0)
for size in (50, 1000, 5881):
    scores = (generator.random(size) < 0.1).astype(np.float32)
    assert (scores.argsort() == scores.astype(np.longdouble).argsort()).all(), size
"""
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(found)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# Numbers that were quoted without saying which nodes are popular. Of the weights that were tried,
# 0.9^age comes closest; the page shows another one, which was fixed before, and all of them.
@pytest.mark.parametrize(
    ("name", "by_sort", "at_random"),
    [
        ("bitcoin-otc", 0.455, 0.036),
        ("bitcoin-alpha", 0.551, 0.037),
        ("uci", 0.475, 0.033),
    ],
)
def test_the_sort_of_rolands_program_gives_popular_nodes_more_than_its_model(
    name: str, by_sort: float, at_random: float
) -> None:
    need(name)
    weigh = measuring.POPULARITY["0.9^age"]
    mrr = measuring.learns_nothing(*measuring.graph(name), weigh)
    assert mrr["program"] == pytest.approx(by_sort, abs=0.001)
    assert mrr["at random"] == pytest.approx(at_random, abs=0.001)
    stored = dict(STORED["ties"][name]["0.9^age, lowest"])
    for results in (mrr, stored):  # the one that depends on this machine
        del results["program, this NumPy"]
    assert mrr == pytest.approx(stored, rel=1e-9)


def test_a_rule_without_learning_is_strong_against_negatives_from_all_nodes() -> None:
    need("wikipedia")
    found = measuring.items()
    assert round(100 * found["random-all, test, batch"]["ap"], 2) == 98.38
    for name, values in STORED["items"].items():
        assert found[name] == pytest.approx(values, rel=1e-9), name


@pytest.mark.parametrize("name", ["wikipedia", "uci"])
def test_true_and_false_pairs_are_padded_alike_where_sequences_are_short(name: str) -> None:
    need(name)
    assert measuring.padding(name) == STORED["padding"][name]
    long = measuring.padding(name, longest=2048)
    assert long["differ"] > long["batches"] / 2  # so the count can tell


def test_every_number_of_roland_is_marked() -> None:
    rows = [row for row in published("dtdg-link")[1] if row["name"].startswith("ROLAND")]
    assert len(rows) == 3
    assert all("ties by a sort" in row["metric"] for row in rows)
    best = [text for text, _ in best_published().values() if text.startswith("ROLAND")]
    assert best
    assert all("ties by a sort" in text for text in best)
