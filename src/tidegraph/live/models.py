"""The network that answers about links, and what is answered while there is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tidegraph.core import statefile
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.events.columns import IntArray, Op
from tidegraph.learning.features import PairFeatures, PartOfLinks, carried
from tidegraph.learning.history import Ages
from tidegraph.learning.inference import PairNetwork, sigmoid
from tidegraph.learning.tasks.link import LinkPredictor
from tidegraph.live.answers import HEURISTICS
from tidegraph.live.state import Past

FloatArray = NDArray[np.float32]

_FORMAT = 1
_READABLE = ("history", "local")
# What drives a probability, in words, by the beginnings of the names of what is read.
_REASONS = {
    "how often and how lately they met": ("pair.",),
    "how often and how lately it went the other way": ("reverse.",),
    "how active the source is": ("src.",),
    "how popular the destination is": ("dst.",),
    "whether the source seeks new partners or old ones": ("src_habits.",),
    "who usually comes to the destination, and after whom": ("dst_habits.",),
    "how much is going on anywhere": ("all.",),
    "walks of one or two hops between them": ("hop_", "met_after_2", "overlap_after_2"),
    "partners they have in common": ("common_neighbours",),
    "walks of three hops between them": ("met_after_3",),
    "where those went next who met the same partners": ("followed_",),
}


@dataclass(frozen=True, eq=False)
class Model:
    """A trained network, and what it reads.

    span: that of its training period, which shapes what it reads of the past.
    events: how many links it was trained on or could have been, the first ones of the state.
    """

    version: str
    weights: dict[str, NDArray[Any]]
    span: float
    parts: tuple[str, ...] = _READABLE
    events: int = 0

    @classmethod
    def of(cls, predictor: LinkPredictor, version: str) -> Model:
        """Return the network of a fitted predictor; raise ParameterError if it reads too much."""
        predictor._check_fitted()
        reads = [part for part in predictor.pair_features if part not in _READABLE]
        if predictor.encoder is not None or callable(predictor.decoder) or reads:
            what = reads[0] if reads else "an encoder"
            raise ParameterError(
                f"the model reads {what}, which a live state does not have; train one that reads"
                " history and local: tidegraph train --set pair_features=history,local --set"
                " encoder=none"
            )
        if predictor.edge_features and carried(predictor.stream) is not None:
            raise ParameterError(
                "the model reads the features of events, which a live state does not have; train"
                " with edge_features=false"
            )
        weights = {name: np.asarray(array) for name, array in predictor._weights().items()}
        parts, stream = tuple(predictor.pair_features), predictor.stream
        links = len(stream) if stream.op is None else int(np.count_nonzero(stream.op == Op.ADD))
        return cls(version, weights, predictor._span, parts, links)

    def write(self, path: Path, version: str) -> None:
        """Write the model to a file, under a version."""
        description = {
            "kind": "live model",
            "format": _FORMAT,
            "version": version,
            "span": self.span,
            "parts": list(self.parts),
            "events": self.events,
        }
        statefile.write(path, description, self.weights)

    @classmethod
    def read(cls, path: Path) -> Model:
        """Return the model in a file."""
        return cls._of(*statefile.read(path), str(path))

    @classmethod
    def read_from(cls, file: BinaryIO, source: str) -> Model:
        """Return the model in an open file; `source` is what errors call it."""
        return cls._of(*statefile.read_from(file, source), source)

    @classmethod
    def _of(cls, about: dict[str, Any], weights: dict[str, NDArray[Any]], source: str) -> Model:
        if about.get("kind") != "live model" or about.get("format") != _FORMAT:
            raise StateFileError(
                f"{source} holds {about.get('kind')!r}, and no model of a live state"
            )
        return cls(about["version"], weights, about["span"], tuple(about["parts"]), about["events"])

    def __post_init__(self) -> None:
        object.__setattr__(self, "_network", PairNetwork(self.weights))

    def logits(
        self, past: Past, src: IntArray, dst: IntArray, t: IntArray, *, given_src: bool = False
    ) -> FloatArray:
        """Return the logit of every pair at a time, or of the destination if the source acts."""
        read = self._features(past)(src, dst, t)
        found: FloatArray = self._network(read, given_src=given_src)  # type: ignore[attr-defined]
        return found

    def _features(self, past: Past) -> PairFeatures:
        parts: list[PartOfLinks] = []
        if "history" in self.parts:
            parts += [past.history, Ages(past.history)]
        if "local" in self.parts:
            parts.append(past.local)
        return PairFeatures(parts)

    def reasons(self, past: Past, src: int, dst: int, t: int) -> list[dict[str, Any]]:
        """Return what drives the logit of a pair: how much it falls if a group of what is read is
        as it is on average, strongest first.
        """
        features = self._features(past)
        row = features(*(np.array([value]) for value in (src, dst, t)))
        mean = self.weights["mean"]
        groups = {
            words: [i for i, name in enumerate(features.names) if name.startswith(begins)]
            for words, begins in _REASONS.items()
        }
        groups = {words: columns for words, columns in groups.items() if columns}
        rows = np.repeat(row, 1 + len(groups), axis=0)
        for place, columns in enumerate(groups.values(), 1):
            rows[place, columns] = mean[columns]
        logits = self._network(rows)  # type: ignore[attr-defined]
        drives = [
            {"reason": words, "drive": float(logits[0] - without)}
            for words, without in zip(groups, logits[1:], strict=True)
        ]
        return sorted(drives, key=lambda each: -abs(each["drive"]))


class Heuristics:
    """What is answered while there is no model: recency of the pair, then popularity."""

    version = HEURISTICS
    names = ("recency-pair", "popularity", "edgebank-unlimited")

    @staticmethod
    def scores(past: Past, src: IntArray, dst: IntArray, t: IntArray) -> dict[str, FloatArray]:
        """Return the score of every pair by each heuristic, from 0 to 1."""
        history = past.history
        read = history.of_links(src, dst, t)
        column = history.link_names.index
        known = read[:, column("pair.known")]
        recency = known / (1 + read[:, column("pair.time_since_last")])
        popular = read[:, column("dst.events_as_dst")]
        return {
            "recency-pair": recency,
            "popularity": popular / (1 + popular),
            "edgebank-unlimited": known,
        }

    @classmethod
    def probability(cls, past: Past, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
        """Return a score from 0 to 1: any pair that met is above all that did not."""
        found = cls.scores(past, src, dst, t)
        met = found["edgebank-unlimited"] > 0
        score: FloatArray = np.where(
            met, 0.5 + found["recency-pair"] / 2, found["popularity"] / 2
        ).astype(np.float32)
        return score


def probability(
    model: Model | None,
    past: Past,
    src: IntArray,
    dst: IntArray,
    t: IntArray,
    *,
    given_src: bool = False,
) -> FloatArray:
    """Return how likely every pair is at its time, or the destination if the source acts."""
    if model is None:
        return Heuristics.probability(past, src, dst, t)
    return sigmoid(model.logits(past, src, dst, t, given_src=given_src))
