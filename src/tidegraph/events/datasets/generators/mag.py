"""A graph like MAG: citations between papers, growing over the years."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError
from tidegraph.core.progress import Progress
from tidegraph.events.columns import FloatArray, IntArray
from tidegraph.events.datasets import storage
from tidegraph.events.datasets.generators.draws import (
    VERSION,
    Draws,
    first_of,
    normalised,
    require,
    shares,
)
from tidegraph.events.datasets.storage import DESCRIPTION, EDGES, LABELS, NODE_FEATURES


def generate_mag_like(
    path: str | os.PathLike[str],
    *,
    nodes: int = 121_751_665,
    edges: int = 1_297_748_926,
    years: int = 120,
    classes: int = 152,
    features: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Write a citation graph shaped like MAG into the directory `path` and return the path.

    Papers are numbered by year, the last of which is 2019, and their number grows exponentially. A
    paper cites papers of its own year or earlier, never itself: recent ones more, those of its own
    class more, and a few of each year and class far more (in-degrees have a tail with exponent
    2.5). A pair may occur twice. `features` float32 columns are noise around the centre of the
    class. Labels are known from a paper's year on. Memory is that of one year's papers; defaults
    are the numbers of the real data set.
    """
    require(classes=(classes, 1), years=(years, 1), nodes=(nodes, max(2, years), 2**31 - 1))
    require(edges=(edges, 1), features=(features, 0))
    papers = _Papers(Draws(seed), nodes, edges, years, classes)
    return storage.write_directory(
        path,
        {
            EDGES: (edges, papers.rows, {"src": "int32", "dst": "int32", "t": "int16"}),
            LABELS: (nodes, papers.labels, {"node": "int32", "t": "int16", "label": "int16"}),
        },
        papers.features,
        "float32",
        {
            "generator": "mag",
            "title": f"Made up in the shape of MAG: {edges:,} citations (seed {seed})",
            "unit": "year",
            "events": edges,
            "nodes": nodes,
            "years": years,
            "classes": classes,
            "features": features,
            "seed": seed,
            "version": VERSION,
        },
        progress,
    )


def generate_mag_features(
    path: str | os.PathLike[str], columns: int, *, progress: Progress | None = None
) -> Path:
    """Add `columns` features to a MAG-like directory that has none, and return their file.

    The file equals the one that `generate_mag_like` writes with `features=columns`, so that a large
    graph need not be generated again.
    """
    require(columns=(columns, 1))
    directory = Path(path)
    try:
        described = json.loads((directory / DESCRIPTION).read_text(encoding="utf-8"))
        if described["generator"] != "mag" or described["version"] != VERSION:
            raise ValueError("another release or generator made it")
        sizes = [described[name] for name in ("nodes", "events", "years", "classes")]
        papers = _Papers(Draws(described["seed"]), *sizes)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{directory} holds no generated citations: {error}") from error
    if described["features"] not in (0, columns):
        raise DataError(
            f"{directory} has {described['features']} features already; ask for that number, or"
            " generate another directory"
        )
    if not described["features"]:
        described["features"] = columns
        storage.write_features(directory, papers.features, "float32", described, progress)
        storage.describe(directory, described)
    return directory / NODE_FEATURES


class _Papers:
    """The columns of a MAG-like graph, computed row by row.

    The papers of a year have a hidden order: class by class, and in each class the most cited
    first. A bijection maps it to the year's numbers. So the class of any paper and the papers of
    any class are computed, not stored.
    """

    _LAST_YEAR = 2019
    _GROWTH = 0.055  # of the number of papers, per year
    _HALF_LIFE = 8.0  # of the attention a paper gets, in years
    _SKEW = 3.0
    _OWN_CLASS = 0.6

    def __init__(self, draws: Draws, nodes: int, edges: int, years: int, classes: int) -> None:
        self._draws = draws
        self._years, self._classes = years, classes
        year = np.arange(years)
        # One paper a year at least, so that no year is empty.
        self._first = shares(np.exp(self._GROWTH * year), nodes - years) + np.arange(years + 1)
        papers = np.diff(self._first)
        references = papers * (1 + year / 30.0)
        references[self._first[1:] < 2] = 0.0  # there is nothing to cite
        self._edges = shares(references, edges)
        popularity = (1.0 + np.arange(classes, dtype=np.float64)) ** -0.5
        # [years, classes + 1]
        self._class = np.array([shares(popularity, count) for count in papers])
        # One sorted list for all years, by year and then by place.
        self._class_first = (self._class[:, :-1] + self._first[:-1, None]).ravel()
        age = year[:, None] - year
        attention = np.where(age >= 0, papers * 2.0 ** (-age / self._HALF_LIFE), 0.0)
        self._cited_year = np.cumsum(attention, axis=1) / attention.sum(axis=1, keepdims=True)
        self._factor = np.array([_coprime(1_000_000_007, count) for count in papers.tolist()])
        self._fame = np.array([_coprime(998_244_353, count) for count in papers.tolist()])
        pairs = zip(self._factor.tolist(), papers.tolist(), strict=True)
        self._inverse = np.array([pow(a, -1, n) if n > 1 else 0 for a, n in pairs])
        self._shift = (draws.uniform(0, year) * papers).astype(np.int64)
        self._lengths: dict[int, FloatArray] = {}

    def _year_of(self, node: IntArray) -> IntArray:
        return np.searchsorted(self._first, node, side="right") - 1

    def _number(self, year: NDArray[Any], place: IntArray) -> IntArray:
        """Return the paper at a place of its year's hidden order."""
        count = self._first[year + 1] - self._first[year]
        return np.asarray(
            self._first[year] + (place * self._factor[year] + self._shift[year]) % count
        )

    def _class_of(self, node: IntArray, year: IntArray) -> IntArray:
        first = self._first[year]
        count = self._first[year + 1] - first
        place = (node - first - self._shift[year]) % count * self._inverse[year] % count
        found = np.searchsorted(self._class_first, first + place, side="right") - 1
        return np.asarray(found - year * self._classes)

    def _references(self, year: int) -> FloatArray:
        """Return the cumulative share of the year's citations up to each of its papers."""
        lengths = self._lengths.get(year)
        if lengths is None:
            papers = np.arange(self._first[year], self._first[year + 1])
            lengths = normalised(self._draws.exponential(1, papers))
            # Two years suffice, because threads work on neighbouring rows. If two threads get here,
            # both compute the same.
            self._lengths = {**dict(list(self._lengths.items())[-1:]), year: lengths}
        return lengths

    def rows(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        pieces = []
        year = int(np.searchsorted(self._edges, first, side="right")) - 1
        while first < last:
            end = min(last, int(self._edges[year + 1]))
            if end > first:
                pieces.append(self._rows_of(year, first, end))
            first, year = max(first, end), year + 1
        src, dst, t = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return {"src": src, "dst": dst, "t": t}

    def _rows_of(self, year: int, first: int, last: int) -> tuple[IntArray, IntArray, IntArray]:
        rows = np.arange(first, last)
        begin, end = self._edges[year], self._edges[year + 1]
        share = (rows - begin + 0.5) / (end - begin)
        src = self._first[year] + np.searchsorted(self._references(year), share)
        cited = np.searchsorted(self._cited_year[year], self._draws.uniform(2, rows), side="right")
        cited = np.minimum(cited, year)
        label = self._class_of(src, np.full(len(src), year))
        low, high = self._class[cited, label], self._class[cited, label + 1]
        papers = self._first[cited + 1] - self._first[cited]
        own = (self._draws.uniform(3, rows) < self._OWN_CLASS) & (high > low)
        sizes = np.where(own, high - low, papers)
        rank = first_of(self._draws.uniform(4, rows), sizes, self._SKEW)
        # The famous papers of a year are spread over its hidden order, so over the classes.
        place = np.where(own, low + rank, rank * self._fame[cited] % papers)
        dst = self._number(cited, place)
        neighbour = np.where(src > 0, src - 1, 1)
        return src, np.where(dst == src, neighbour, dst), np.full(len(rows), self._date(year))

    def _date(self, year: Any) -> Any:
        return self._LAST_YEAR - self._years + 1 + year

    def labels(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        node = np.arange(first, last)
        year = self._year_of(node)
        return {"node": node, "t": self._date(year), "label": self._class_of(node, year)}

    def features(self, first: int, last: int, columns: int) -> NDArray[np.float32]:
        node = np.arange(first, last)
        label = self._class_of(node, self._year_of(node))
        cell = np.arange(first * columns, last * columns).reshape(-1, columns)
        centre = self._draws.uniform(50, label[:, None] * columns + np.arange(columns)) - 0.5
        noise = 4 * (self._draws.uniform(51, cell) - 0.5)
        return (centre + noise).astype(np.float32)


def _coprime(start: int, count: int) -> int:
    """Return the first number from `start` on that is coprime to `count`, modulo `count`."""
    return next(k for k in itertools.count(start) if math.gcd(k, count) == 1) % count
