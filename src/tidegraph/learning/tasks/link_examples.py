"""The examples of link prediction: events, and pairs that did not happen at their times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.stream import EventStream
from tidegraph.learning.settings import LinkSettings

__all__ = ["Examples", "link_examples"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs that happened and pairs that did not, each at the time of an event."""

    src: IntArray
    dst: IntArray
    t: IntArray
    label: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.src)


def link_examples(
    stream: EventStream,
    settings: LinkSettings,
    events: IntArray,
    earlier: IntArray,
    *,
    seed: tuple[int, int],
) -> Examples:
    """Return the events and the negatives of each, first all random ones, then those of the past.

    Pairs of the past are those of the events themselves and of `earlier` ones.
    """
    generator = np.random.default_rng(seed)
    count, randoms, pasts = len(events), settings.random_negatives, settings.past_negatives
    src, dst, t = stream.src[events], stream.dst[events], stream.t[events]
    sources, targets = [src], [dst]
    known = np.arange(stream.nodes) if settings.any_node else np.unique(dst)
    for _ in range(randoms):
        sources.append(src)
        targets.append(generator.choice(known, count))
    past, before = _past_pairs(stream, events, earlier)
    for _ in range(pasts):
        pick = (generator.random(count) * before).astype(np.int64)
        sources.append(past[pick, 0])
        targets.append(past[pick, 1])
    times = np.array([1, randoms, pasts]) * count
    label = np.array([1, 0, 0], dtype=np.float32)
    weight = np.array([1, 1, settings.past_weight], dtype=np.float32)
    weights = np.repeat(weight, times)
    if pasts:  # an event before which nothing happened has no such negative
        weights[-pasts * count :] *= np.tile(before > 0, pasts)
    return Examples(
        np.concatenate(sources),
        np.concatenate(targets),
        np.tile(t, len(sources)),
        np.repeat(label, times),
        weights,
    )


def _past_pairs(
    stream: EventStream, events: IntArray, earlier: IntArray
) -> tuple[IntArray, IntArray]:
    """Return distinct pairs in order of their first meeting, and how many met before each event.

    The pairs are those of `earlier` and of `events`. Pairs that meet at the very time of an event
    do not count as before it.
    """
    seen = np.concatenate([earlier, events])
    key = stream.src[seen] * stream.nodes + stream.dst[seen]
    first = seen[np.sort(np.unique(key, return_index=True)[1])]
    before = np.searchsorted(stream.t[first], stream.t[events], side="left")
    return np.stack([stream.src[first], stream.dst[first]], axis=1), before
