"""What both tasks share: fitting to a record, learning on, and model files."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegraph.core import display
from tidegraph.core.declarations import Setting, declared
from tidegraph.core.durable import exchange, link_or_copy, put_in_place
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.progress import Progress, prefixed, silent
from tidegraph.evaluation import Result, Split, latest_split
from tidegraph.events.columns import IntArray
from tidegraph.events.stream import EventStream
from tidegraph.events.vocabulary import Vocabulary
from tidegraph.learning.inference import FloatArray, PairNetwork
from tidegraph.learning.settings import TrainingSettings, default_epochs
from tidegraph.learning.tasks.recorded import HISTORY, STORE, Recorded, all_or_nothing
from tidegraph.learning.training import Epoch, Training, fit, read_arrays, write_arrays
from tidegraph.store.trajectories import copy_store

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tidegraph.learning.models import Network

_Own = TypeVar("_Own", bound="Estimator")

_EXAMPLES_AT_ONCE = 1 << 15
_PACE = Setting("pace", float, 0.1, "share of the learning rate", above=0, below=1000)
_REPLAY = Setting("replay", float, 0.0, "earlier examples repeated per example", least=0)


class Estimator(Recorded):
    """Base class of the tasks."""

    saved_format: ClassVar[int] = 1  # of model files; another one if a model reads other numbers

    epochs_: list[Epoch]
    forgotten_since_: int = 0  # nodes forgotten since the weights were learned
    _features: Any  # what the network reads, as a function of a question
    _shared_events: tuple[Path | None, EventStream | None] = (None, None)
    _built: Any = None  # the `Network`, once it is needed
    _saved_weights: dict[str, NDArray[Any]]  # as long as it is not

    def __post_init__(self) -> None:
        super().__post_init__()
        self._training(0)  # checks the device

    def _training(self, examples: int, **more: Any) -> Training:
        """Return how to fit the network to so many examples."""
        own = {name: getattr(self, name) for name in declared(TrainingSettings)}
        own["epochs"] = self.epochs or default_epochs(examples)
        return Training(**{**own, **more})

    # Fitting --------------------------------------------------------------------------------------

    @all_or_nothing
    def fit(
        self: _Own,
        stream: EventStream,
        split: Split | None = None,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | bool | None = None,
    ) -> _Own:
        """Learn from the training part of a split, score its validation part, return self.

        With `patience`, that score decides when to stop and which epoch counts.

        Without a split the last 15 % of the events decide when to stop, and all others train.
        Representations follow all events of the stream; an answer for a time uses those before it.
        `progress=True` shows a bar; a function is called with (done, total, what is going on).
        Where it fails, the model stays as it was before.
        """
        if not isinstance(stream, EventStream):
            raise ParameterError(
                f"fit was given a {type(stream).__name__}; give an EventStream, such as what"
                " tidegraph.read(path) returns"
            )
        split = latest_split(stream) if split is None else split
        shown = (
            display.progress("fit")
            if progress is True
            else contextlib.nullcontext(progress or None)
        )
        with shown as report:
            self.observe(stream, split, progress=report)
            self.train(split, checkpoint=checkpoint, progress=report)
        return self

    @all_or_nothing
    def train(
        self,
        split: Split,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fit the network to what `observe` recorded: the part of `fit` that needs no graph."""
        import torch

        learned, held_out = self._divided(split)
        self._features = self._new_features()
        reading = prefixed(progress or silent, "reading features of ")
        features = self._read_many(learned, prefixed(reading, "examples"))
        held_features = self._read_many(held_out, prefixed(reading, "validation"))
        torch.manual_seed(self.seed)
        self._network = self._made(features.shape[1])
        self._adjust(learned, features)
        features, held_features = self._prepare(features), self._prepare(held_features)
        self.epochs_ = fit(
            self._network,
            len(learned.t),
            functools.partial(self._loss, learned, features),
            lambda: -self._mean_loss(held_out, held_features),
            self._training(len(learned.t)),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            progress=progress,
        )
        self._fitted, self.forgotten_since_ = True, 0
        self._calibrate(held_out, held_features)

    def _divided(self, split: Split) -> tuple[Any, Any]:
        """Return the examples that train and those that validate, with their times `t`."""
        raise NotImplementedError

    def _new_features(self) -> Any:
        """Return what the network reads, as a function of questions."""
        raise NotImplementedError

    def _read(self, examples: Any) -> FloatArray:
        """Return the features of examples."""
        raise NotImplementedError

    def _read_many(self, examples: Any, progress: Progress) -> FloatArray:
        """Return the features of examples and report on the way."""
        return self._read(examples)

    def _new_network(self, columns: int, features: int) -> Network:
        """Return a network that reads so many features, and windows of so many columns."""
        raise NotImplementedError

    def _made(self, features: int) -> Network:
        record = self._record
        columns = 0 if record is None else len(record.channels) * record.columns
        return self._new_network(columns, features).to(self.device)

    @property
    def _network(self) -> Any:
        if self._built is None:
            with _fitting_weights():
                network = self._made(len(self._saved_weights["mean"]))
                network.load_weights(self._saved_weights)
            self._built = network.eval()
        return self._built

    @_network.setter
    def _network(self, network: Network) -> None:
        self._built = network

    def _weights(self) -> dict[str, NDArray[Any]]:
        """Return the weights of the network, which is not built for that."""
        if self._built is None:
            return self._saved_weights
        weights: dict[str, NDArray[Any]] = self._built.weights()
        return weights

    def _check_features(self, columns: int) -> None:
        """Raise ValueError if the network was trained on so many features, and there are others."""

    def _plain(self) -> bool:
        """Return whether `PairNetwork` gives the answers, so that questions need no torch."""
        return False

    def _adjust(self, examples: Any, features: FloatArray) -> None:
        """Fit the parts of the network that are not trained."""
        self._network.adjust(features)

    def _prepare(self, features: FloatArray) -> FloatArray:
        """Do once, in place, what the network need not do to every batch of features."""
        return features

    def _calibrate(self, examples: Any, features: FloatArray) -> None:
        """Fit what follows the network to examples that did not train it."""

    def _loss(self, examples: Any, features: FloatArray, rows: IntArray) -> Tensor:
        """Return the loss of some of the examples, given the features of all of them."""
        raise NotImplementedError

    def _mean_loss(self, examples: Any, features: FloatArray) -> float:
        import torch

        total = 0.0
        for rows in pieces(len(examples.t), _EXAMPLES_AT_ONCE):
            with torch.no_grad():
                total += float(self._loss(examples, features, rows)) * len(rows)
        return total / len(examples.t)

    def evaluate(self, split: Split, **options: Any) -> Result:
        """Return what model and heuristics achieve on parts of the split."""
        raise NotImplementedError

    def validate(self, split: Split, *, progress: Progress | None = None) -> Result:
        """Return what model and heuristics achieve on the part that decided when to stop."""
        return self.evaluate(split, parts=("validation",))

    # Learning on ----------------------------------------------------------------------------------

    def advance(self: _Own, events: EventStream, *, progress: Progress | None = None) -> _Own:
        """Add later events, and labels they bring, to the state without learning; return self.

        They may bring new nodes, after the known ones: `events.continuing(model.stream)`.
        """
        self._check_fitted()
        self._append(self._like_own(events), progress)
        self._features = self._new_features()
        return self

    def partial_fit(self: _Own, events: EventStream, *, progress: Progress | None = None) -> _Own:
        """Add later events to the state and train further on what they teach; return self.

        A `LinkPredictor` learns from the events, a `NodeClassifier` from their labels, or, where
        events carry none, from node labels that it does not know already. Raise DataError for a
        class that the model does not know, before anything changes.
        """
        self._check_fitted()
        events = self._like_own(events)
        lessons = self._lessons(events)
        if lessons is not None:
            self._check_lessons(lessons, events.vocabulary)
        self.advance(events)
        return self if lessons is None else self.train_further(lessons, progress=progress)

    def _like_own(self, events: EventStream) -> EventStream:
        """Return events with the codes that the model's own have; reject those of another kind."""
        return events

    def _check_lessons(self, lessons: Any, vocabulary: Vocabulary) -> None:
        """Raise DataError if the network cannot learn from lessons, coded by a vocabulary."""

    def _lessons(self, events: EventStream) -> Any:
        """Return what later events teach, as `train_further` takes it; None: nothing."""
        raise NotImplementedError

    @all_or_nothing
    def train_further(
        self: _Own,
        lessons: Any,
        *,
        epochs: int = 1,
        pace: float = 0.1,
        replay: float = 0.0,
        progress: Progress | None = None,
    ) -> _Own:
        """Train the network further on events of the stream, or labels of its nodes; return self.

        What it learns depends on no event after them. By default it makes one careful pass.

        lessons: for a `LinkPredictor`, ascending positions in the stream. For a `NodeClassifier`,
            `NodeLabels` with the times at which to ask: their classes must be among `classes_`,
            and those that are unknown (below 0) or of validation or test are left out. Where they
            and the repeated ones are more than `max_examples`, only the latest are used.
        pace: learning rate, as a share of that of the training.
        replay: how many earlier examples, drawn at random, to repeat per new one, so that what was
            learned from them is not forgotten.
        """
        self._check_fitted()
        declared(TrainingSettings)["epochs"].check(epochs)
        _PACE.check(pace)
        _REPLAY.check(replay)
        examples = self._further(lessons, max(1, int(self.max_examples / (1 + replay))), replay)
        if examples is None:
            return self
        loss = functools.partial(self._loss, examples, self._prepare(self._read(examples)))
        self._network = copy.deepcopy(self._network)  # so that a failure can restore it
        passes = itertools.count()
        fit(
            self._network,
            len(examples.t),
            loss,
            # Nothing is held out for validation: the last pass counts as the best.
            lambda: float(next(passes)),
            self._training(
                len(examples.t),
                epochs=epochs,
                patience=epochs,
                learning_rate=pace * self.learning_rate,
            ),
            progress=progress,
        )
        return self

    def _further(self, lessons: Any, most: int, replay: float) -> Any:
        """Return the examples of the latest lessons and of those repeated; None: no lessons."""
        raise NotImplementedError

    def _repeated(self, examples: int, earlier: int, replay: float, seed: int) -> IntArray:
        """Draw which of the earlier examples to repeat along with so many new ones."""
        count = min(earlier, round(replay * examples), self.max_examples - examples)
        generator = np.random.default_rng((self.seed, seed, examples))
        return np.sort(generator.choice(earlier, count, replace=False))

    # Forgetting -----------------------------------------------------------------------------------

    def without(
        self: _Own,
        node: int | str,
        *,
        path: str | Path | None = None,
        progress: Progress | None = None,
    ) -> _Own:
        """Return the model with the same weights on its events without a node.

        Events, history and record are made anew from the others (`EventStream.without`), which keep
        their numbers. What the weights learned from the node stays until `fit` learns anew.

        path: where to put history and record, which otherwise are as temporary as the object.
        """
        self._check_fitted()
        fresh = self.rebuilt(self._stream.without(node), path=path, progress=progress)
        fresh.forgotten_since_ += 1
        return fresh

    def rebuilt(
        self: _Own,
        stream: EventStream,
        *,
        path: str | Path | None = None,
        progress: Progress | None = None,
    ) -> _Own:
        """Return the model with the same weights, its history and record made anew of a stream."""
        self._check_fitted()
        fresh = type(self)(**{**self.get_params(), "path": None if path is None else str(path)})
        fresh._span, fresh.epochs_ = self._span, self.epochs_
        fresh._follow(stream, progress=progress)
        fresh._restore(self._learned())
        fresh._features = fresh._new_features()
        fresh._saved_weights = self._weights()
        fresh._fitted, fresh.forgotten_since_ = True, self.forgotten_since_
        return fresh

    # Files ----------------------------------------------------------------------------------------

    def share_events(self, file: Path | None) -> None:
        """Let `save` link this file, which holds the stream as it is now, not write another."""
        self._shared_events = file, self._stream

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write weights, settings, the events, their history and the record to a new directory.

        It appears when it is complete. overwrite: whether to replace a model that is already there,
        which stays until then.
        """
        self._check_fitted()
        whole = Path(path)
        a_model = (whole / "model.safetensors").is_file()
        if whole.exists() and not (overwrite and a_model):
            advice = ", or overwrite=True" if a_model else ""
            raise StateFileError(f"{whole} exists; give a directory that does not{advice}")
        directory = whole.with_name(f".{whole.name}.saving")
        if directory.exists():  # left by a save that was killed
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        try:
            self._write(directory)
        except BaseException:  # a full disk, say: give the room back
            shutil.rmtree(directory, ignore_errors=True)
            raise
        if a_model:
            exchange(directory, whole)
            shutil.rmtree(directory)
        else:
            put_in_place(directory, whole)

    def _write(self, directory: Path) -> None:
        if self._record is None:
            (directory / STORE).mkdir()
        else:
            copy_store(self._directory, directory / STORE)
        self._history.save(directory / STORE / HISTORY)
        events_file, held = self._shared_events
        if events_file is not None and held is self._stream:
            link_or_copy(events_file, directory / "events")
        else:
            self._stream.save(directory / "events")
        settings = {**self.get_params(), "path": None}
        own = {name: _full_name(value) for name, value in settings.items() if callable(value)}
        about = {
            "task": type(self).__name__,
            "format": self.saved_format,
            "settings": {**settings, **own},
            "own_modules": own,
            "span": self._span,
            "epochs": [dataclasses.asdict(epoch) for epoch in self.epochs_],
            **self._learned(),
        }
        if self.forgotten_since_:
            about["forgotten_since"] = self.forgotten_since_
        (directory / "settings.json").write_text(json.dumps(about, indent=2), encoding="utf-8")
        write_arrays(directory / "model.safetensors", self._weights(), about)

    def _learned(self) -> dict[str, Any]:
        """Return what the training found besides weights, in plain types."""
        return {}

    def _restore(self, about: dict[str, Any]) -> None:
        """Take over what `_learned` returned."""

    @classmethod
    def load(cls: type[_Own], path: str | Path, **modules: Callable[..., nn.Module]) -> _Own:
        """Return the model that `save` wrote; learning on leaves the saved files as they are.

        modules: `encoder` or `decoder`, which must be given again if it is not the package's own.
        """
        directory = Path(path)
        if not (directory / "model.safetensors").is_file():
            problem = "holds no model" if directory.exists() else "does not exist"
            raise StateFileError(f"{directory} {problem}; give a directory that save wrote")
        weights, about = read_arrays(directory / "model.safetensors")
        if about.get("format") != cls.saved_format or about.get("task") != cls.__name__:
            raise StateFileError(
                f"{directory} holds a {about.get('task')}, format {about.get('format')}; this reads"
                f" a {cls.__name__}, format {cls.saved_format}; open it with the release that"
                " wrote it, or train again"
            )
        own = about["own_modules"]
        for name in {**own, **modules}:
            if name not in modules:
                raise StateFileError(
                    f"{directory} was saved with {name} {own[name]}, which is not part of"
                    f" tidegraph; give it again: load(path, {name}=...)"
                )
            if name not in own:
                saved = about["settings"].get(name)
                raise StateFileError(
                    f"{directory} was saved with {name} {saved!r}; leave {name}=... out"
                )
        for name in about["settings"].keys() - declared(cls).keys():
            raise StateFileError(
                f"{directory} was saved with the setting {name}, which this release does not have;"
                " open it with the release that wrote it, or train again"
            )
        # Models saved before there was a choice were recorded in float32.
        estimator = cls(**{"dtype": "float32", **about["settings"], **modules})
        estimator._span = about["span"]
        estimator._directory, estimator._saved = directory / STORE, True
        estimator.epochs_ = [Epoch(**epoch) for epoch in about["epochs"]]
        estimator.forgotten_since_ = about.get("forgotten_since", 0)
        estimator._open(EventStream.load(directory / "events"))
        estimator._restore(about)
        estimator._features = estimator._new_features()
        estimator._saved_weights = weights
        with _fitting_weights():
            estimator._check_features(len(weights["mean"]))
            if estimator._plain():
                PairNetwork(weights)
            else:
                estimator._network  # noqa: B018 (builds it)
        estimator._fitted = True
        return estimator


def pieces(count: int, size: int) -> list[IntArray]:
    """Return positions below `count`, at most `size` at once."""
    return [np.arange(first, min(first + size, count)) for first in range(0, count, size)]


@contextlib.contextmanager
def _fitting_weights() -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError, RuntimeError) as error:
        raise StateFileError(
            "the saved weights do not fit the network; give the modules it was saved with, or train"
            f" again: {error}"
        ) from None


def _full_name(module: Any) -> str:
    name = getattr(module, "__qualname__", type(module).__qualname__)
    return f"{getattr(module, '__module__', '')}.{name}"
