"""`LinkPredictor`: which edges come next."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import evaluation
from tidegraph.core.declarations import Setting
from tidegraph.core.errors import DataError
from tidegraph.core.progress import Progress, silent
from tidegraph.core.words import counted
from tidegraph.evaluation import Result, Split
from tidegraph.evaluation.protocols.scoring import BATCH_SIZE
from tidegraph.events.columns import IntArray, Op, whole_numbers
from tidegraph.events.stream import EventStream
from tidegraph.learning.candidates import Candidates
from tidegraph.learning.features import (
    EdgeFeatures,
    PairFeatures,
    PartOfLinks,
    Sketches,
    carried,
)
from tidegraph.learning.history import Ages
from tidegraph.learning.inference import PairNetwork, sigmoid
from tidegraph.learning.local import LocalPropagation
from tidegraph.learning.settings import SAMPLERS, LinkSettings, Task
from tidegraph.learning.tasks.estimator import Estimator, pieces
from tidegraph.learning.tasks.recorded import check_lengths

if TYPE_CHECKING:
    from torch import Tensor

    from tidegraph.learning.models import LinkNetwork

FloatArray = NDArray[np.float32]

_PAIRS_AT_ONCE = 1 << 16
_VALIDATED = 25_000  # events that decide when to stop, the latest ones
_WINDOWS_AT_ONCE = 1 << 13
_K = Setting("k", int, 10, "how many destinations", least=1)
_MOST = Setting("most", int, 1000, "how many candidates", least=1)


@dataclass(frozen=True, eq=False)
class _Examples:
    """Pairs that happened and pairs that did not, each at the time of an event."""

    src: IntArray
    dst: IntArray
    t: IntArray
    as_of: IntArray  # before which events are known
    label: FloatArray
    weight: FloatArray
    of_src: FloatArray  # 1 where the source is that of an event, so that destinations compete


@dataclass(eq=False, kw_only=True, repr=False)
class LinkPredictor(LinkSettings, Estimator):
    """A model of how likely an edge `src -> dst` is at a time `t`, given the events before `t`.

    `fit(stream)` counts what happened to nodes and pairs, and trains a small network on that and on
    walks of a few hops over the events before each question. `settings.LinkSettings` describes the
    settings. With an encoder, or `sketches` among `pair_features`, it first runs the stream through
    the propagation engine and records how every node moved, and the network reads that too.

    Nodes are given as node numbers or by the names they have in the data, times as numbers in the
    stream's unit or as dates.
    """

    task: ClassVar[Task] = "link"
    saved_format: ClassVar[int] = 3  # 2 did not rank by a logit of its own

    # Fitting --------------------------------------------------------------------------------------

    def _check_learnable(self, stream: EventStream, split: Split) -> None:
        self._like_own(stream)
        for part in ("train", "validation"):
            if len(getattr(split, part)) == 0:
                raise DataError(
                    f"there are no events for {part} among {len(stream):,};"
                    " give a longer stream or another split"
                )

    @property
    def reads_record(self) -> bool:
        """Whether the network reads representations, so that the stream has to be recorded."""
        return self.encoder is not None or (
            "sketches" in self.pair_features and self._reads_pairs()
        )

    def _new_features(self) -> PairFeatures:
        parts: list[PartOfLinks] = []
        local = LocalPropagation(self._history)
        self._candidates = Candidates(self._stream, local)
        if "history" in self.pair_features:
            parts += [self._history, Ages(self._history)]
        if "local" in self.pair_features:
            parts.append(local)
        if "sketches" in self.pair_features and self._reads_pairs():
            parts.append(Sketches(self._trajectories, self._sketch()))
        found = carried(self._stream) if self.edge_features else None
        if found is not None:
            parts.append(EdgeFeatures(self._stream, found))
        return PairFeatures(parts)

    def _pair_features(
        self, src: IntArray, dst: IntArray, t: IntArray, as_of: IntArray
    ) -> FloatArray:
        """Return what the decoder reads about pairs; no columns where it reads none."""
        if not self._reads_pairs():
            return np.zeros((len(src), 0), dtype=np.float32)
        read: FloatArray = self._features(src, dst, t, as_of)
        return read

    def _reads_pairs(self) -> bool:
        if callable(self.decoder):
            return bool(getattr(self.decoder, "reads_pairs", True))
        return self.decoder == "pair"

    def _divided(self, split: Split) -> tuple[_Examples, _Examples]:
        # Events that do not train, such as those of held-out nodes, make no negatives either.
        earlier, latest = np.split(split.train, [max(0, len(split.train) - self.max_examples)])
        held = split.validation[-min(self.max_examples, _VALIDATED) :]
        return (
            self._examples(latest, earlier, seed=0),
            self._examples(held, np.arange(held[0]), seed=1),
        )

    def _read(self, examples: _Examples) -> FloatArray:
        return self._read_many(examples, silent)

    def _read_many(self, examples: _Examples, progress: Progress) -> FloatArray:
        count, columns = len(examples.t), len(self._features) if self._reads_pairs() else 0
        features = np.empty((count, columns), dtype=np.float32)
        # Questions about one source and time are cheap one after the other.
        order = np.lexsort((examples.t, examples.src, examples.as_of))
        for piece in pieces(count, _PAIRS_AT_ONCE) if columns else ():
            rows = order[piece]
            asked = examples.src[rows], examples.dst[rows], examples.t[rows], examples.as_of[rows]
            features[rows] = self._pair_features(*asked)
            progress(int(piece[-1]) + 1, count, "")
        return features

    def _prepare(self, features: FloatArray) -> FloatArray:
        standard: FloatArray = self._network.standardise(features)
        return standard

    def _loss(self, examples: _Examples, features: FloatArray, rows: IntArray) -> Tensor:
        import torch
        from torch import nn

        asked = examples.src[rows], examples.dst[rows], examples.as_of[rows]
        read = torch.from_numpy(features).index_select(0, torch.from_numpy(rows))
        label, weight, of_src = (
            torch.from_numpy(column[rows]).to(self.device)
            for column in (examples.label, examples.weight, examples.of_src)
        )
        loss = nn.functional.binary_cross_entropy_with_logits
        pair, *destination = self._logits(read, *asked).unbind(1)
        total = loss(pair, label, weight=weight)
        for logits in destination:
            total = total + loss(logits, label, weight=weight * of_src)
        return total

    def _new_network(self, columns: int, features: int) -> LinkNetwork:
        from tidegraph.learning.models import LinkNetwork

        return LinkNetwork(self, columns, features)

    def _check_features(self, columns: int) -> None:
        found = len(self._features) if self._reads_pairs() else 0
        if found != columns:
            raise ValueError(f"it reads {columns} numbers of a pair, and there are {found}")

    def _plain(self) -> bool:
        return self.encoder is None and self.decoder == "pair" and self.device == "cpu"

    def _examples(self, events: IntArray, earlier: IntArray, *, seed: int) -> _Examples:
        """Return events, then their random negatives, then those of the past; or, where training
        goes in order, each event with its own.

        Pairs of the past are those of the events themselves and of `earlier` ones.
        """
        stream, generator = self._stream, np.random.default_rng((self.seed, seed))
        count, randoms, pasts = len(events), self.random_negatives, self.past_negatives
        src, dst, t = stream.src[events], stream.dst[events], stream.t[events]
        by_batch = self.knowledge == "batch"
        as_of = stream.t[events // BATCH_SIZE * BATCH_SIZE] if by_batch else t
        sources, targets = [src] * (1 + randoms), [dst]
        known = np.arange(stream.nodes) if self.any_node else np.unique(dst)
        targets += [generator.choice(known, count) for _ in range(randoms)]
        if randoms > 1 and not self.any_node:  # so that no kind of candidate surprises
            targets[-1] = generator.choice(np.union1d(known, src), count)
        past, before = _past_pairs(stream, events, earlier, as_of)
        for _ in range(pasts):
            pick = (generator.random(count) * before).astype(np.int64)
            sources.append(past[pick, 0])
            targets.append(past[pick, 1])
        times = np.array([1, randoms, pasts]) * count
        weight = np.repeat(np.array([1, 1, self.past_weight], dtype=np.float32), times)
        if pasts:  # an event before which nothing happened has no such negative
            weight[-pasts * count :] *= np.tile(before > 0, pasts)
        order: Any = slice(None)
        if self.in_order:  # every event next to its negatives
            order = np.arange(len(weight)).reshape(-1, count).T.ravel()
        return _Examples(
            np.concatenate(sources)[order],
            np.concatenate(targets)[order],
            np.tile(t, len(sources))[order],
            np.tile(as_of, len(sources))[order],
            np.repeat(np.array([1, 0, 0], dtype=np.float32), times)[order],
            weight[order],
            np.repeat(np.array([1, 1, 0], dtype=np.float32), times)[order],
        )

    @property
    def training_negatives(self) -> str:
        """The negatives of the training, in words."""
        other = "random node" if self.any_node else "random destination"
        mixed = self.random_negatives > 1 and not self.any_node
        any_kind = " (one of them any node)" if mixed else ""
        return (
            f"per event {counted(self.random_negatives, other)}{any_kind} and"
            f" {counted(self.past_negatives, 'whole pair')} of the past (weight"
            f" {self.past_weight:g})"
        )

    # Questions ------------------------------------------------------------------------------------

    def _logits(self, pair: Tensor, src: IntArray, dst: IntArray, as_of: IntArray) -> Tensor:
        """Return the logits of pairs, given their standardised features, `[n, questions]`."""
        pair = pair.to(self.device)
        if self.encoder is None:
            logits: Tensor = self._network(pair, None, None)
            return logits
        import torch

        # A ranking asks about few nodes and times in many pairs: encode each of them once.
        nodes, times, place = _distinct(np.concatenate([src, dst]), np.tile(as_of, 2))
        encoded = torch.cat(
            [
                self._network.encoder(self._window(nodes[rows], times[rows]))
                for rows in pieces(len(nodes), _WINDOWS_AT_ONCE)
            ]
        )
        ends = encoded[torch.from_numpy(place).to(self.device)].chunk(2)
        logits = self._network(pair, *ends)
        return logits

    def decision_function(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        t: ArrayLike,
        as_of: ArrayLike | None = None,
        *,
        given_src: bool = False,
    ) -> FloatArray:
        """Return the logit of every pair `(src, dst)` at `t`, `[n]`; positive means likely.

        Only events strictly before `t` count, or before `as_of` if that is given. One value may be
        given for all pairs. An encoder sees the changes of nodes until `as_of`.

        given_src: that `src` acts at `t` is taken for granted, and the logit compares its
            destinations, as `rank` does. Otherwise it also says whether `src` acts at all.
        """
        self._check_fitted()
        known = {} if as_of is None else {"as_of": as_of}
        sources, targets, times, *given = self._columns(src=src, dst=dst, t=t, **known)
        before = given[0] if given else times
        out = np.empty(len(sources), dtype=np.float32)
        network = PairNetwork(self._weights()) if self._plain() else self._answer
        answer = functools.partial(network, given_src=given_src)
        for rows in pieces(len(sources), _PAIRS_AT_ONCE):
            pairs, when = (sources[rows], targets[rows]), (times[rows], before[rows])
            out[rows] = answer(self._pair_features(*pairs, *when), *pairs, before[rows])
        return out

    def _answer(self, features: FloatArray, *asked: IntArray, given_src: bool) -> FloatArray:
        """Return the logits of pairs by the network in torch, given their features."""
        import torch

        with torch.no_grad():
            logits = self._logits(torch.from_numpy(self._prepare(features)), *asked)
            found: FloatArray = logits[:, -1 if given_src else 0].cpu().numpy()
            return found

    def predict_proba(
        self, src: ArrayLike, dst: ArrayLike, t: ArrayLike, *, given_src: bool = False
    ) -> FloatArray:
        """Return the probability of every pair `(src, dst)` at `t`, `[n]`: the one of class 1.

        It is the probability among pairs like those of the training (events against their
        negatives), not among all possible pairs. `given_src` is that of `decision_function`.
        """
        return sigmoid(self.decision_function(src, dst, t, given_src=given_src))

    def predict(self, src: ArrayLike, dst: ArrayLike, t: ArrayLike) -> IntArray:
        """Return the class of every pair, `[n]`: 1 where the link is likelier than not, else 0."""
        return (self.decision_function(src, dst, t) > 0).astype(np.int64)

    def score(self, src: ArrayLike, dst: ArrayLike, t: ArrayLike, y: ArrayLike) -> float:
        """Return the accuracy of `predict` on pairs whose classes `y` are known: 1 a link, 0 none.

        `evaluate` measures average precision and AUC under a protocol, which says more.
        """
        check_lengths(src=src, dst=dst, t=t, y=y)
        return float((self.predict(src, dst, t) == np.asarray(y)).mean())

    def rank(
        self,
        src: Any,
        t: Any,
        k: int = 10,
        *,
        candidates: ArrayLike | None = None,
        most: int | None = 1000,
        without_self: bool = True,
        without_known: bool = False,
    ) -> tuple[IntArray, FloatArray]:
        """Return the numbers of the `k` likeliest destinations of `src` at `t`, best first, and
        their probabilities, given that `src` acts at `t`.

        Candidates are the nodes that were destinations before `t`, unless others are given;
        `without_known` leaves out those that `src` was linked to before. Where there are more than
        `most`, or `k` if that is larger, as many are read: those that a walk of three hops from
        `src` reaches, its latest partners first, and the most popular ones of late. None reads all.
        """
        self._check_fitted()
        if np.ndim(src) or np.ndim(t):
            raise DataError("rank answers for one source at one time; rank_all for many sources")
        given = None if candidates is None else self._columns(dst=candidates)[0]
        _, nodes, found = self.rank_all(
            t,
            k,
            src=src,
            candidates=given,
            most=most,
            without_self=without_self,
            without_known=without_known,
        )
        return nodes, found

    def rank_all(
        self,
        t: Any,
        k: int = 10,
        *,
        src: ArrayLike | None = None,
        candidates: ArrayLike | None = None,
        most: int | None = 1000,
        without_self: bool = True,
        without_known: bool = False,
        progress: Progress | None = None,
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the `k` likeliest destinations of many sources at `t`, best first, as three
        columns: sources in the given order, destinations, and their probabilities.

        src: by default all nodes that were a source before `t`.
        The other arguments are those of `rank`.
        """
        self._check_fitted()
        _K.check(k)
        if most is not None:
            _MOST.check(most)
        if np.ndim(t):
            raise DataError(f"t holds {np.size(t)} times; rank at one time")
        time = int(self._columns(t=t)[0][0])
        sources = (
            np.unique(self._stream.before(time).src) if src is None else self._columns(src=src)[0]
        )
        everyone = (
            self._candidates.before(time)
            if candidates is None
            else np.unique(self._columns(dst=candidates)[0])
        )
        width = len(everyone) if most is None else min(len(everyone), max(most, k))
        all_of_them = candidates is not None or width == len(everyone)

        def candidates_of(source: int) -> IntArray:
            def wanted(nodes: IntArray) -> NDArray[np.bool_]:
                kept = nodes != source if without_self else np.ones(len(nodes), dtype=np.bool_)
                return kept & ~self._met(source, nodes, time) if without_known else kept

            if all_of_them:
                return everyone[wanted(everyone)]
            return self._candidates.of(source, time, width, wanted)

        found = [(sources[:0], everyone[:0], np.zeros(0, np.float32))]
        at_once = max(1, _PAIRS_AT_ONCE // max(1, len(everyone) if all_of_them else width))
        for rows in pieces(len(sources), at_once):
            asked = [candidates_of(source) for source in sources[rows].tolist()]
            place = np.repeat(rows, [len(each) for each in asked])
            begin, end = sources[place], np.concatenate(asked)
            logit = self.decision_function(begin, end, time, given_src=True)
            order = np.lexsort((end, -logit, place))
            ordered = place[order]
            best = order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < k]
            probability = sigmoid(logit[best])
            found.append((begin[best], end[best], probability))
            if progress is not None:
                progress(int(rows[-1]) + 1, len(sources), "ranking, sources")
        ranked = [np.concatenate(column) for column in zip(*found, strict=True)]
        return ranked[0], ranked[1], ranked[2]

    def _met(self, src: int, dst: IntArray, t: int) -> NDArray[np.bool_]:
        """Return whether `src` was linked to each of `dst` before `t`."""
        known = self._history.of_links(np.full(len(dst), src), dst, np.full(len(dst), t))
        met: NDArray[np.bool_] = known[:, self._history.link_names.index("pair.known")] > 0
        return met

    def evaluate(
        self, split: Split, *, samplers: Sequence[str] = SAMPLERS, **options: Any
    ) -> Result:
        """Return AP and AUC under TGN's protocol, of the model and of the heuristics."""
        self._check_fitted()
        return evaluation.evaluate_link(
            self.decision_function,
            self._stream,
            split,
            samplers=samplers,
            model="tidegraph",
            training_negatives=self.training_negatives,
            **{"knowledge": self.knowledge, **options},
        )

    def validate(self, split: Split, *, progress: Progress | None = None) -> Result:
        """Return AP and AUC against random destinations on the validation events."""
        options: dict[str, Any] = {"parts": ("validation",), "progress": progress}
        return self.evaluate(split, samplers=("random-dst",), **options)

    # Learning on ----------------------------------------------------------------------------------

    def _like_own(self, events: EventStream) -> EventStream:
        if events.op is not None and (events.op != Op.ADD).any():
            raise DataError(
                "the stream removes or sets edges, and the model learns which links appear; give"
                " only the events that add, as stream.where(stream.op == Op.ADD) does"
            )
        return events

    def _lessons(self, events: EventStream) -> IntArray:
        return len(self._stream) + np.arange(len(events))

    def _further(self, lessons: ArrayLike, most: int, replay: float) -> _Examples | None:
        if not np.size(lessons):
            return None
        advice = "give whole numbers, positions in the stream"
        places = whole_numbers(lessons, "events", advice=advice, error=DataError)
        count = len(self._stream)
        if (
            places.ndim != 1
            or (np.diff(places) <= 0).any()
            or not 0 <= places[0] <= places[-1] < count
        ):
            raise DataError(
                f"events are {places.dtype} {list(places.shape)}, from {places.flat[0]} to"
                f" {places.flat[-1]}; give whole numbers [k], positions in the stream from 0 to"
                f" below {count:,}, ascending, each once"
            )
        places = places[-most:]
        first = int(places[0])
        again = self._repeated(len(places), first, replay, seed=first)
        return self._examples(np.concatenate([again, places]), np.arange(first), seed=first)


def _distinct(nodes: IntArray, t: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return every `(node, time)` once, and the position of each given one among them."""
    times, rank = np.unique(t, return_inverse=True)
    keys, place = np.unique(nodes * len(times) + rank.reshape(-1), return_inverse=True)
    return keys // len(times), times[keys % len(times)], place.reshape(-1)


def _past_pairs(
    stream: EventStream, events: IntArray, earlier: IntArray, t: IntArray
) -> tuple[IntArray, IntArray]:
    """Return distinct pairs in order of their first meeting, and how many met before each `t`.

    The pairs are those of `earlier` and of `events`.
    """
    seen = np.concatenate([earlier, events])
    key = stream.src[seen] * stream.nodes + stream.dst[seen]
    first = seen[np.sort(np.unique(key, return_index=True)[1])]
    before = np.searchsorted(stream.t[first], t, side="left")
    return np.stack([stream.src[first], stream.dst[first]], axis=1), before
