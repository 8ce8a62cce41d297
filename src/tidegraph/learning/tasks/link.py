"""Which edges come next."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tidegraph import evaluation
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.progress import Progress
from tidegraph.core.words import counted
from tidegraph.engine.channels import Channel, RMaxUnit, Sketch, is_number
from tidegraph.evaluation import Result, Split
from tidegraph.events.columns import whole_numbers
from tidegraph.events.moments import time_numbers
from tidegraph.events.names import node_numbers
from tidegraph.events.stream import EventStream
from tidegraph.learning.edge_features import EdgeFeatures
from tidegraph.learning.features import PairFeatures
from tidegraph.learning.history import History
from tidegraph.learning.models import (
    DECODERS,
    check_decoder,
    check_encoder,
    make_decoder,
    make_encoder,
)
from tidegraph.learning.tasks.estimator import (
    Estimator,
    all_or_nothing,
    shown,
    train_and_validation,
)
from tidegraph.learning.tasks.presets import LINK_PRESETS
from tidegraph.learning.training import Loss, Training, fit
from tidegraph.store.trajectories import Trajectories

__all__ = ["LinkPredictor"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_PAIRS_AT_ONCE = 1 << 16
_WINDOWS_AT_ONCE = 1 << 13
_CLIP = 8.0  # standard deviations; what lies beyond was not seen in training
_HISTORY_PARTS = (3000, 300, 30, 3)  # of the training period: half-lives of recent activity


class _Network(nn.Module):
    """Standardised pair features and encoded windows of both nodes to one logit."""

    mean: Tensor
    scale: Tensor

    def __init__(self, settings: LinkPredictor, columns: int, pair: int) -> None:
        super().__init__()
        self.encoder: nn.Module | None = None
        if settings.encoder is not None:
            self.encoder = make_encoder(
                settings.encoder, columns, settings.width, settings.encoder_options
            )
        self.decoder = make_decoder(
            settings.decoder,
            settings.width if self.encoder is not None else 0,
            pair,
            hidden=settings.hidden,
            layers=settings.layers,
            dropout=settings.dropout,
        )
        self.register_buffer("mean", torch.zeros(pair))
        self.register_buffer("scale", torch.ones(pair))

    def forward(self, pair: Tensor, src: Tensor | None, dst: Tensor | None) -> Tensor:
        """Logits from pair features and what the encoder, where there is one, said of both ends."""
        pair = ((pair - self.mean) / self.scale).clamp(-_CLIP, _CLIP)
        logits: Tensor = self.decoder(src, dst, pair)
        return logits


@dataclass(frozen=True, eq=False)
class _Examples:
    """Pairs that happened and pairs that did not, each at the time of an event."""

    src: IntArray
    dst: IntArray
    t: IntArray
    label: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.src)


@dataclass(eq=False, kw_only=True, repr=False)
class LinkPredictor(Estimator):
    """Predicts how likely an edge `src -> dst` is at time `t`, from what happened before `t`.

    `fit(stream)` runs the stream once through the propagation engine, records how every node moved,
    and trains a small network on those records; no graph is touched during training.
    """

    presets: ClassVar[tuple[str, ...]] = LINK_PRESETS

    # Propagation and its record.
    columns: int = 128  # random feature columns per channel
    alpha: float = 0.2  # of the low- and high-pass filters
    half_lives: Sequence[float] | None = None  # of channels that forget; None: training period / 30
    high_pass: bool = True  # whether there are high-pass filters beside the low-pass ones
    beta: float = 0.5
    r_max: float = 1e-2  # the promised error, in r_max_unit
    r_max_unit: RMaxUnit = "rms"
    scale_by_degree: bool = True
    epsilon: float = 0.05  # how far a node moves before it is recorded again
    edge_features: bool = True  # of the latest events of the pair and both nodes, where any are
    # The network.
    # Over both nodes' changes: "state", "lstm", "gru", "transformer", or what makes an nn.Module.
    encoder: str | Callable[..., nn.Module] | None = None
    encoder_options: dict[str, Any] | None = None
    decoder: str | Callable[..., nn.Module] = "pair"  # or "concatenation", "hadamard", one's own
    window: int = 8  # changes an encoder sees
    width: int = 64  # of an encoder's answer
    hidden: int = 256
    layers: int = 2
    dropout: float = 0.1
    # Training.
    random_negatives: int = 6  # per event: a random destination for the same source
    past_negatives: int = 1  # per event: a whole pair that happened before
    past_weight: float = 0.2  # of each of them in the loss
    any_node: bool = False  # random negatives from all nodes, not from destinations alone
    max_examples: int = 200_000  # events to train on, the latest ones
    epochs: int = 10
    batch_size: int = 2000
    learning_rate: float = 3e-3
    patience: int = 5
    seed: int = 0
    threads: int | None = None
    device: str = "cpu"
    path: str | None = None  # of the record; None: a temporary directory

    def __post_init__(self) -> None:
        check_encoder(self.encoder)
        check_decoder(self.decoder)
        Channel.low_pass(self.alpha)  # judges it
        self._check_at_least_one("columns", "window", "width", "hidden", "layers", "max_examples")
        if not 0 <= self.dropout < 1 or self.past_weight < 0:
            raise ParameterError(
                f"dropout is {self.dropout}, past_weight is {self.past_weight}; dropout is from 0"
                " to below 1, a weight is not negative"
            )
        if self.encoder is None and self.decoder in ("concatenation", "hadamard"):
            raise ParameterError(f"decoder {self.decoder!r} needs an encoder; 'pair' does not")
        if min(self.random_negatives, self.past_negatives) < 0 or not (
            self.random_negatives + self.past_negatives
        ):
            raise ParameterError(
                f"random_negatives is {self.random_negatives}, past_negatives is"
                f" {self.past_negatives}; at least one negative per event is needed"
            )
        self._training()  # judges its own settings

    def _training(self) -> Training:
        return Training(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            patience=self.patience,
            seed=self.seed,
            device=self.device,
        )

    # Fitting --------------------------------------------------------------------------------------

    @all_or_nothing
    def fit(
        self,
        stream: EventStream,
        split: Split | None = None,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | bool | None = None,
    ) -> LinkPredictor:
        """Learns from the events of `split.train`, stops by those of `split.validation`.

        Without a split the last 15 % of the events decide when to stop, and all others train.
        Representations follow all events of the stream; an answer for a time uses those before it.
        `progress=True` shows a bar; a function is called with (done, of how many, what is going
        on). A failure leaves what was fitted before.
        """
        split = train_and_validation(stream) if split is None else split
        for part in ("train", "validation"):
            if len(getattr(split, part)) == 0:
                raise DataError(
                    f"there are no events for {part} among {len(stream):,};"
                    " give a longer stream or another split"
                )
        with shown(progress) as report:
            self.observe(stream, split, progress=report)
            self.train(split, checkpoint=checkpoint, progress=report)
        return self

    @all_or_nothing
    def observe(
        self, stream: EventStream, split: Split, *, progress: Progress | None = None
    ) -> None:
        """Propagates and records: the part of `fit` that works on the graph."""
        self._span = _span(stream, split)
        self._record(stream, progress)
        self._open(stream)

    def reopen(self, stream: EventStream, split: Split) -> None:
        """As `observe`, where another process has recorded this stream to `path`."""
        if self.path is None:
            raise ParameterError("path is None; give the path to which the stream was recorded")
        self._span = _span(stream, split)
        self._directory, self._saved = Path(self.path), False
        self._open(stream)

    def propagated(self, stream: EventStream) -> Sketch:
        return Sketch(self.columns, seed=self.seed)

    def _open(self, stream: EventStream) -> None:
        self._stream = stream
        self._trajectories = Trajectories.open(self._directory)
        self._history = History(stream.nodes, [self._span / part for part in _HISTORY_PARTS])
        self._history.append(stream)
        self._features = self._new_features()

    def _new_features(self) -> PairFeatures:
        sketch = self.propagated(self._stream)
        carried = self.edge_features and self._stream.edge_features is not None
        edges = EdgeFeatures(self._stream) if carried else None
        return PairFeatures(self._trajectories, self._history, sketch, edges)

    def _pair_features(self, src: IntArray, dst: IntArray, t: IntArray) -> Tensor:
        """What the decoder reads about pairs; nothing where it does not."""
        if not self._reads_pairs():
            return torch.zeros(len(src), 0)
        return torch.from_numpy(self._features(src, dst, t))

    def _reads_pairs(self) -> bool:
        decoder = DECODERS.get(self.decoder) if isinstance(self.decoder, str) else self.decoder
        return bool(getattr(decoder, "reads_pairs", True))

    @all_or_nothing
    def train(
        self,
        split: Split,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fits the network to what `observe` recorded: the part of `fit` that needs no graph."""
        # What is not for training, such as events of nodes held out, makes no negatives either.
        earlier, latest = np.split(split.train, [max(0, len(split.train) - self.max_examples)])
        examples = self._examples(latest, earlier, seed=0)
        held = split.validation[-self.max_examples :]
        held_back = self._examples(held, np.arange(held[0]), seed=1)
        features = self._pair_features(examples.src, examples.dst, examples.t)
        held_features = self._pair_features(held_back.src, held_back.dst, held_back.t)
        torch.manual_seed(self.seed)
        network = self._new_network()
        if self._reads_pairs():
            network.mean.copy_(features.mean(0))
            network.scale.copy_(features.std(0) + 1e-3)
        self._network = network

        def validate() -> float:
            rows = np.arange(len(held_back))
            asked = held_back.src, held_back.dst, held_back.t
            with torch.no_grad():
                return -float(self._loss(self._in_pieces(held_features, *asked), held_back, rows))

        self.epochs_ = fit(
            network,
            len(examples),
            self._loss_on(examples, features),
            validate,
            self._training(),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            progress=progress,
        )

    def _loss_on(self, examples: _Examples, features: Tensor) -> Loss:
        """The loss of examples by their places; the features of their pairs are read once."""

        def loss(rows: IntArray) -> Tensor:
            asked = examples.src[rows], examples.dst[rows], examples.t[rows]
            return self._loss(
                self._logits(features[torch.from_numpy(rows)], *asked), examples, rows
            )

        return loss

    def _loss(self, logits: Tensor, examples: _Examples, rows: IntArray) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(
            logits,
            torch.from_numpy(examples.label[rows]).to(logits.device),
            weight=torch.from_numpy(examples.weight[rows]).to(logits.device),
        )

    def _new_network(self) -> _Network:
        columns = len(self._trajectories.channels) * self._trajectories.columns
        pair = len(self._features) if self._reads_pairs() else 0
        return _Network(self, columns, pair).to(self.device)

    def _examples(self, events: IntArray, earlier: IntArray, *, seed: int) -> _Examples:
        """The events, and for each of them its negatives, one kind after the other.

        Pairs of the past are those of the events themselves and of `earlier` ones.
        """
        generator = np.random.default_rng((self.seed, seed))
        stream, count = self._stream, len(events)
        src, dst, t = stream.src[events], stream.dst[events], stream.t[events]
        sources, targets = [src], [dst]
        known = np.arange(stream.nodes) if self.any_node else np.unique(dst)
        for _ in range(self.random_negatives):
            sources.append(src)
            targets.append(generator.choice(known, count))
        past, before = self._past_pairs(events, earlier)
        for _ in range(self.past_negatives):
            pick = (generator.random(count) * before).astype(np.int64)
            sources.append(past[pick, 0])
            targets.append(past[pick, 1])
        times = np.array([1, self.random_negatives, self.past_negatives]) * count
        label = np.array([1, 0, 0], dtype=np.float32)
        weight = np.array([1, 1, self.past_weight], dtype=np.float32)
        weights = np.repeat(weight, times)
        if self.past_negatives:  # where nothing had happened before there is no such negative
            weights[-self.past_negatives * count :] *= np.tile(before > 0, self.past_negatives)
        return _Examples(
            np.concatenate(sources),
            np.concatenate(targets),
            np.tile(t, len(sources)),
            np.repeat(label, times),
            weights,
        )

    def _past_pairs(self, events: IntArray, earlier: IntArray) -> tuple[IntArray, IntArray]:
        """Distinct pairs in the order in which they first met, and per event how many met before.

        They are those of `earlier` and of `events`; what meets at the very time of an event does
        not count as before it.
        """
        stream = self._stream
        seen = np.concatenate([earlier, events])
        key = stream.src[seen] * stream.nodes + stream.dst[seen]
        first = seen[np.sort(np.unique(key, return_index=True)[1])]
        before = np.searchsorted(stream.t[first], stream.t[events], side="left")
        return np.stack([stream.src[first], stream.dst[first]], axis=1), before

    @property
    def training_negatives(self) -> str:
        """What it was trained against, in words."""
        other = "random node" if self.any_node else "random destination"
        return (
            f"per event {counted(self.random_negatives, other)} and"
            f" {counted(self.past_negatives, 'whole pair')} of the past (weight"
            f" {self.past_weight:g})"
        )

    # Asking ---------------------------------------------------------------------------------------

    def _logits(self, pair: Tensor, src: IntArray, dst: IntArray, t: IntArray) -> Tensor:
        pair = pair.to(self.device)
        if self.encoder is None:
            logits: Tensor = self._network(pair, None, None)
            return logits
        # A ranking asks about few nodes and times in many pairs: each of them is encoded once.
        nodes, times, place = _distinct(np.concatenate([src, dst]), np.tile(t, 2))
        encoded = torch.cat(
            [
                self._network.encoder(self._window(nodes[rows], times[rows]))
                for rows in _pieces(len(nodes), _WINDOWS_AT_ONCE)
            ]
        )
        ends = encoded[torch.from_numpy(place).to(self.device)].chunk(2)
        logits = self._network(pair, *ends)
        return logits

    def _in_pieces(self, pair: Tensor, src: IntArray, dst: IntArray, t: IntArray) -> Tensor:
        return torch.cat(
            [
                self._logits(pair[rows], src[rows], dst[rows], t[rows]).cpu()
                for rows in _pieces(len(src), _PAIRS_AT_ONCE)
            ]
        )

    def score(self, src: ArrayLike, dst: ArrayLike, t: ArrayLike) -> FloatArray:
        """The logit of every pair, from what happened strictly before its time."""
        self._check_fitted()
        asked = node_numbers(src), node_numbers(dst), time_numbers(t)
        columns = np.broadcast_arrays(*(np.atleast_1d(column) for column in asked))
        sources, targets, times = (np.ascontiguousarray(column) for column in columns)
        out = np.empty(len(sources), dtype=np.float32)
        for rows in _pieces(len(sources), _PAIRS_AT_ONCE):
            asked = sources[rows], targets[rows], times[rows]
            with torch.no_grad():
                out[rows] = self._logits(self._pair_features(*asked), *asked).cpu()
        return out

    def predict_proba(self, src: ArrayLike, dst: ArrayLike, t: ArrayLike) -> FloatArray:
        """One probability per pair `(src, dst)` at `t`, among pairs like those it was trained on.

        Nodes are numbers of the stream; `stream.number(ids)` gives them.
        """
        return torch.sigmoid(torch.from_numpy(self.score(src, dst, t))).numpy()

    def rank(
        self,
        src: int,
        t: int,
        k: int = 10,
        *,
        candidates: ArrayLike | None = None,
        without_self: bool = True,
        without_known: bool = False,
    ) -> tuple[IntArray, FloatArray]:
        """The `k` likeliest destinations of `src` at `t`, likeliest first, and their probabilities.

        Candidates are the nodes that were destinations before `t`, unless others are given;
        `without_known` leaves out those that `src` was linked to before.
        """
        self._check_fitted()
        if k < 1 or k != int(k):
            raise ParameterError(f"k is {k!r}; ask for 1 destination or more")
        if np.ndim(src) or np.ndim(t):
            raise DataError("rank answers for one source at one time; ask for others one by one")
        past = self._stream.before(t)
        nodes = np.unique(past.dst if candidates is None else node_numbers(candidates))
        if without_self:
            nodes = nodes[nodes != src]
        if without_known:
            nodes = np.setdiff1d(nodes, past.dst[past.src == src])
        probability = self.predict_proba(src, nodes, t) if len(nodes) else np.zeros(0, np.float32)
        best = np.argsort(-probability, kind="stable")[:k]
        return nodes[best], probability[best]

    def evaluate(
        self,
        split: Split,
        *,
        samplers: Sequence[str] = ("random-dst", "historical", "inductive", "random-all"),
        **options: Any,
    ) -> Result:
        """AP and AUC under TGN's protocol, with the heuristics beside."""
        self._check_fitted()
        return evaluation.evaluate_link(
            self.score,
            self._stream,
            split,
            samplers=samplers,
            model="tidegraph",
            training_negatives=self.training_negatives,
            **options,
        )

    @property
    def stream(self) -> EventStream:
        """The events it answers from, with the names of their nodes."""
        self._check_fitted()
        return self._stream

    # Going on -------------------------------------------------------------------------------------

    def advance(self, events: EventStream) -> LinkPredictor:
        """Takes later events into the state; the weights stay.

        They may bring new nodes, after the known ones: `events.continuing(predictor.stream)`.
        """
        self._check_fitted()
        stream = self._stream.joined(events)  # judges them before anything has changed
        self._append(events)
        self._history = self._history_with(events, stream)
        self._stream = stream
        self._features = self._new_features()
        return self

    def partial_fit(
        self, events: EventStream, *, progress: Progress | None = None
    ) -> LinkPredictor:
        """Takes later events into the state, and goes on training on them from where it was."""
        self._check_fitted()
        seen = len(self._stream)
        self.advance(events)
        return self.refine(np.arange(seen, len(self._stream)), progress=progress)

    @all_or_nothing
    def refine(
        self,
        events: ArrayLike,
        *,
        epochs: int = 1,
        pace: float = 0.1,
        replay: float = 0.0,
        progress: Progress | None = None,
    ) -> LinkPredictor:
        """Goes on training on some of the events it answers from, from where it was.

        What is learned depends on no event after them; by default it is one careful pass.

        events: their places in the stream, ascending. Where they and those repeated are more than
            `max_examples`, the latest are learned from.
        pace: learning rate, in parts of that of the training.
        replay: how many earlier events, drawn at random, are repeated beside each of these, lest
            they be forgotten.
        """
        self._check_fitted()
        if not is_number(epochs, Integral) or epochs < 1:
            raise ParameterError(f"epochs is {epochs!r}; give a whole number from 1 on")
        if not is_number(pace, Real) or pace <= 0:
            raise ParameterError(f"pace is {pace!r}; give a positive number")
        if not is_number(replay, Real) or replay < 0:
            raise ParameterError(f"replay is {replay!r}; give a number from 0 on")
        training = dataclasses.replace(
            self._training(),
            epochs=epochs,
            patience=epochs,
            learning_rate=pace * self.learning_rate,
        )
        places = np.asarray(events)
        if places.size == 0:
            return self
        _check_places(places, len(self._stream))
        places = places[-max(1, int(self.max_examples / (1 + replay))) :]
        first, count = int(places[0]), len(places)
        repeated = min(first, round(replay * count), self.max_examples - count)
        again = np.random.default_rng((self.seed, first, count)).choice(
            first, repeated, replace=False
        )
        examples = self._examples(
            np.concatenate([np.sort(again), places]), np.arange(first), seed=first
        )
        features = self._pair_features(examples.src, examples.dst, examples.t)
        self._network = copy.deepcopy(self._network)  # what was learned before stays whole

        passes = itertools.count()
        fit(
            self._network,
            len(examples),
            self._loss_on(examples, features),
            lambda: float(next(passes)),  # nothing is held back: the last pass is the best
            training,
            progress=progress,
        )
        return self

    # Files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Weights, settings, the events and the record of all nodes, in a directory.

        overwrite: a model that is there already is replaced.
        """
        self._write(path, overwrite)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        encoder: Callable[..., nn.Module] | None = None,
        decoder: Callable[..., nn.Module] | None = None,
    ) -> LinkPredictor:
        """What `save` wrote: it answers as before. It may go on; what was saved stays as it is.

        An encoder or decoder that is not one of the package's has to be given again.
        """
        predictor, tensors, _ = cls._read(path, {"encoder": encoder, "decoder": decoder})
        predictor._open(predictor._stream)
        predictor._restore(predictor._new_network(), tensors)
        return predictor


def _span(stream: EventStream, split: Split) -> float:
    """How long the training period is."""
    return max(1.0, float(split.validation_time) - float(stream.t[0]))


def _pieces(count: int, size: int) -> list[slice]:
    return [slice(first, first + size) for first in range(0, count, size)]


def _distinct(nodes: IntArray, t: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Every `(node, time)` once, and where each of those given is among them."""
    times, rank = np.unique(t, return_inverse=True)
    keys, place = np.unique(nodes * len(times) + rank.reshape(-1), return_inverse=True)
    return keys // len(times), times[keys % len(times)], place.reshape(-1)


def _check_places(events: NDArray[Any], count: int) -> None:
    """Refuses what are no places in a stream of that many events, each once and in order."""
    if events.dtype.kind not in "iu" or events.ndim != 1:
        raise DataError(
            f"places of events are whole numbers [k], not {events.dtype} {list(events.shape)}"
        )
    events = whole_numbers(events, "places of events", error=DataError)  # uint64 has no -1
    if (np.diff(events) <= 0).any() or events[0] < 0 or events[-1] >= count:
        raise DataError(
            f"events are {events[0]} to {events[-1]}; give places in the stream, from 0 to below"
            f" {count:,}, ascending, each once"
        )
