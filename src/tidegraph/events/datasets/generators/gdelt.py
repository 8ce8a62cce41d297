"""A stream like GDELT: few nodes, very many repeated edges, labels that change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.progress import Progress
from tidegraph.events.columns import FloatArray, IntArray
from tidegraph.events.datasets.generators.draws import (
    VERSION,
    Draws,
    first_of,
    normalised,
    require,
    shares,
)
from tidegraph.events.datasets.storage import EDGES, LABELS, write_directory


def generate_gdelt_like(
    path: str | os.PathLike[str],
    *,
    nodes: int = 16_682,
    events: int = 191_290_882,
    pairs: int = 200_000,
    steps: int = 170_522,
    features: int = 413,
    classes: int = 81,
    changes: float = 8.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Write a stream shaped like GDELT into the directory `path` and return the path.

    Actors meet in `steps` steps of 15 minutes, with the rhythm of days and weeks and with bursts.
    Exactly `pairs` pairs occur, each at least once; a few of them make up most events, and which
    ones shifts slowly. Every actor has one of `classes` labels, which changes `changes` times on
    average; actors of the same label meet more often. `features` binary columns depend on the
    actor's first label. Defaults are the numbers of the real data set, except for `pairs`.
    """
    require(
        classes=(classes, 2),
        nodes=(nodes, 2 * classes),
        pairs=(pairs, nodes, nodes * (nodes - 1) // 2),
        events=(events, pairs),
        steps=(steps, 1),
        features=(features, 0),
        changes=(changes, 0.0, _News.EPOCHS / 2),
    )
    news = _News(Draws(seed), nodes, events, pairs, steps, classes, changes)
    labels = news.labels()
    return write_directory(
        path,
        {
            EDGES: (events, news.rows, {"src": "int32", "dst": "int32", "t": "int64"}),
            LABELS: (
                len(labels["node"]),
                lambda first, last: {name: each[first:last] for name, each in labels.items()},
                {"node": "int32", "t": "int64", "label": "int16"},
            ),
        },
        news.features,
        "uint8",
        {
            "generator": "gdelt",
            "title": f"Made up in the shape of GDELT: {events:,} events (seed {seed})",
            "unit": "min",
            "events": events,
            "nodes": nodes,
            "pairs": pairs,
            "steps": steps,
            "classes": classes,
            "changes": changes,
            "features": features,
            "seed": seed,
            "version": VERSION,
        },
        progress,
    )


class _News:
    """The columns of a GDELT-like stream, computed row by row."""

    EPOCHS = 64  # the most equal spans of time at whose borders labels change
    STEP_MIN = 15
    _SKEW = 4.0
    _TRIES = 4  # pairs tried to find one whose actors have the same label

    def __init__(
        self,
        draws: Draws,
        nodes: int,
        events: int,
        pairs: int,
        steps: int,
        classes: int,
        changes: float,
    ) -> None:
        self._draws = draws
        self._nodes, self._events, self._pairs, self._classes = nodes, events, pairs, classes
        self._begin = shares(self._rhythm(steps), events)
        self._steps = steps
        self._epochs = min(self.EPOCHS, steps)
        self._label = self._labels(changes)
        self._src, self._dst = self._pool()
        self._guaranteed = events // pairs  # events from one use of a fresh pair to the next

    def _rhythm(self, steps: int) -> FloatArray:
        step = np.arange(steps)
        hour = step / 4
        day = 1 + 0.5 * np.sin(2 * np.pi * hour / 24)
        week = np.where(hour // 24 % 7 < 5, 1.0, 0.6)
        burst = (1 - self._draws.uniform(0, step // 96)) ** -0.4  # of a day, with a heavy tail
        return np.asarray(day * week * burst * (0.5 + self._draws.exponential(1, step)))

    def _labels(self, changes: float) -> NDArray[np.int16]:
        """Return the label of every node in every epoch, `[nodes, epochs]`."""
        cells = np.arange(self._nodes * self._epochs).reshape(self._nodes, self._epochs)
        label = first_of(self._draws.uniform(2, cells), self._classes, 1.5)
        stays = self._draws.uniform(3, cells) >= changes / max(1, self._epochs - 1)
        stays[:, 0] = False
        since = np.maximum.accumulate(np.where(stays, 0, cells), axis=1)
        return np.asarray(label.ravel()[since], dtype=np.int16)

    def _pool(self) -> tuple[IntArray, IntArray]:
        """Return distinct pairs without self-edges that cover every node, in random order."""
        popularity = normalised((1 - self._draws.uniform(4, np.arange(self._nodes))) ** -0.6)
        everyone = np.arange(self._nodes)
        chosen = everyone * self._nodes + (everyone + 1) % self._nodes
        row = 0
        while len(chosen) < self._pairs:
            wanted = 2 * (self._pairs - len(chosen)) + 100
            rows = np.arange(row, row + wanted)
            row += wanted
            src = np.searchsorted(popularity, self._draws.uniform(5, rows), side="right")
            dst = self._partners(src, rows)
            # Popular nodes run out of partners: then any pair will do.
            anyone = self._draws.uniform(6, rows) < min(1.0, 0.1 + row / (50 * self._pairs))
            src = np.where(anyone, (self._draws.uniform(7, rows) * self._nodes).astype(int), src)
            dst = np.where(anyone, (self._draws.uniform(8, rows) * self._nodes).astype(int), dst)
            fresh = (src * self._nodes + dst)[src != dst]
            _, first = np.unique(fresh, return_index=True)
            fresh = fresh[np.sort(first)]
            fresh = fresh[~np.isin(fresh, chosen)]
            chosen = np.concatenate([chosen, fresh[: self._pairs - len(chosen)]])
        chosen = chosen[np.argsort(self._draws.bits(9, chosen), kind="stable")]
        return chosen // self._nodes, chosen % self._nodes

    def _partners(self, src: IntArray, rows: IntArray) -> IntArray:
        """Return a node with the label that `src` has at a random epoch."""
        epoch = (self._draws.uniform(10, rows) * self._epochs).astype(np.int64)
        label = self._label[src, epoch].astype(np.int64)
        order = np.argsort(self._label.T, axis=1, kind="stable")  # [epochs, nodes]
        wanted = np.arange(self._classes + 1)
        begin = np.array(
            [
                np.searchsorted(of_epoch[members], wanted)
                for of_epoch, members in zip(self._label.T, order, strict=True)
            ]
        )
        low, high = begin[epoch, label], begin[epoch, label + 1]
        return order[epoch, low + first_of(self._draws.uniform(11, rows), high - low, 2.0)]

    def rows(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        rows = np.arange(first, last)
        step = np.searchsorted(self._begin, rows, side="right") - 1
        epoch = step * self._epochs // self._steps
        # Half of the attention is constant, half wanders over the pool.
        wander = step * min(2_000, self._pairs // 100) // self._steps
        seeks_like = self._draws.uniform(30, rows) < 0.8
        chosen = np.empty(len(rows), dtype=np.int64)
        waiting = np.arange(len(rows))
        for attempt in range(self._TRIES):
            uniform = self._draws.uniform(31 + attempt, rows[waiting])
            today = uniform < 0.5
            uniform = np.where(today, 2 * uniform, 2 * uniform - 1)
            pair = first_of(uniform, self._pairs, self._SKEW)
            pair = np.where(today, (pair + wander[waiting]) % self._pairs, pair)
            chosen[waiting] = pair
            now = epoch[waiting]
            alike = self._label[self._src[pair], now] == self._label[self._dst[pair], now]
            waiting = waiting[~alike & seeks_like[waiting]]
        turn = rows // self._guaranteed
        chosen = np.where((rows % self._guaranteed == 0) & (turn < self._pairs), turn, chosen)
        return {"src": self._src[chosen], "dst": self._dst[chosen], "t": step * self.STEP_MIN}

    def labels(self) -> dict[str, NDArray[Any]]:
        """Return node, time and label at the start and at each change, by time."""
        changed = np.diff(self._label, axis=1, prepend=np.int16(-1)) != 0
        epoch, node = np.nonzero(changed.T)
        # The first step that rows() assigns to the epoch.
        t = -(-epoch * self._steps // self._epochs) * self.STEP_MIN
        return {"node": node, "t": t, "label": self._label[node, epoch]}

    def features(self, first: int, last: int, columns: int) -> NDArray[np.uint8]:
        cell = np.arange(first * columns, last * columns).reshape(-1, columns)
        column = np.arange(columns)
        rare = 0.3 * (1 + column) ** -0.7
        of_class = self._label[first:last, :1].astype(np.int64) * columns + column
        typical = self._draws.uniform(50, of_class) < 0.1
        chance = np.where(typical, np.minimum(0.8, 10 * rare), rare)
        return (self._draws.uniform(51, cell) < chance).astype(np.uint8)
