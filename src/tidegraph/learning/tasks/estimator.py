"""What both tasks share: parameters as in scikit-learn, the record of a stream, and model files."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tidegraph.core import display
from tidegraph.core.declarations import Setting, declared
from tidegraph.core.durable import link_or_copy, put_in_place
from tidegraph.core.errors import ParameterError, StateFileError, UnknownNodeError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.evaluation import Split, latest_split
from tidegraph.events.batch import Batch
from tidegraph.events.columns import IntArray
from tidegraph.events.names import Side
from tidegraph.events.stream import EventStream
from tidegraph.learning.history import History
from tidegraph.learning.models import Network, Window
from tidegraph.learning.presets import preset_for
from tidegraph.learning.settings import (
    ModelSettings,
    TrainingSettings,
    activity_half_lives,
    default_half_lives,
)
from tidegraph.learning.training import Epoch, Training, fit, read_tensors, write_tensors
from tidegraph.store.trajectories import Trajectories, copy_store, record

if TYPE_CHECKING:
    import pandas

__all__ = ["Estimator", "check_lengths", "pieces"]

_Own = TypeVar("_Own", bound="Estimator")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

_FORMAT = 1
_EXAMPLES_AT_ONCE = 1 << 15
_PACE = Setting("pace", float, 0.1, "share of the learning rate", above=0, below=1000)
_REPLAY = Setting("replay", float, 0.0, "earlier examples repeated per example", least=0)


def all_or_nothing(
    method: Callable[Concatenate[_Own, _Arguments], _Answer],
) -> Callable[Concatenate[_Own, _Arguments], _Answer]:
    """Wrap a method so that a failure leaves the estimator's attributes as they were before."""

    @functools.wraps(method)
    def wrapped(self: _Own, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        before = dict(vars(self))
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return wrapped


@contextlib.contextmanager
def _reporting(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Yield the function to report progress to; True shows a bar on standard error."""
    if progress is True:
        with display.progress("fit") as report:
            yield report
    else:
        yield progress or None


class Estimator(ModelSettings):
    """Base class of the tasks, each of which is a dataclass of its settings."""

    task: ClassVar[Literal["link", "node"]]

    epochs_: list[Epoch]
    _network: Any  # a `Network`
    _features: Any  # what the network reads, as a function of a question
    _stream: EventStream
    _directory: Path
    _saved: bool  # whether the record is part of a saved model
    _trajectories: Trajectories
    _history: History
    _span: float  # of the training period
    _shared_events: tuple[Path | None, EventStream | None] = (None, None)

    # Settings -------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        super().__post_init__()
        self._training(0)  # checks the device

    @classmethod
    def preset(cls: type[_Own], name: str, data: str | None = None, **changes: Any) -> _Own:
        """Return a model with the settings of a preset (see `presets.preset`) and these changes."""
        return cls(**{**preset_for(cls.task, name, data), **changes})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings given to the constructor."""
        return {name: getattr(self, name) for name in declared(type(self))}

    def set_params(self: _Own, **params: Any) -> _Own:
        """Change settings. Where one of them shapes the model, forget what was learned."""
        known, settings = self.get_params(), declared(type(self))
        for name in params:
            if name not in known:
                raise ParameterError(f"there is no setting {name!r}; there are {', '.join(known)}")
        type(self)(**{**known, **params})  # checks them before anything changes
        changed = {name for name, value in params.items() if known[name] != value}
        if hasattr(self, "_network") and not all(settings[name].inert for name in changed):
            del self._network
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Return the settings that differ from their defaults, and what the model was fitted to."""
        own = {
            name: getattr(self, name)
            for name, setting in declared(type(self)).items()
            if getattr(self, name) != setting.default
        }
        words = [f"{name}={value!r}" for name, value in own.items()]
        call = f"{type(self).__name__}({', '.join(words)})"
        return f"<{call}, fitted to {self._stream!r}>" if hasattr(self, "_network") else call

    def _training(self, examples: int, **more: Any) -> Training:
        """Return how to fit the network to so many examples."""
        own = {name: getattr(self, name) for name in declared(TrainingSettings)}
        return Training(**{**own, **more})

    def _check_fitted(self) -> None:
        if not hasattr(self, "_network"):
            raise ParameterError(
                f"the {type(self).__name__} has learned nothing yet; call fit, or load one"
            )

    @property
    def stream(self) -> EventStream:
        """The events the model answers from, with the names of their nodes."""
        self._check_fitted()
        return self._stream

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
        """Learn from the training part of a split, stop by its validation part, return self.

        Without a split the last 15 % of the events decide when to stop, and all others train.
        Representations follow all events of the stream; an answer for a time uses those before it.
        `progress=True` shows a bar; a function is called with (done, total, what is going on).
        Where it fails, the model stays as it was before.
        """
        split = latest_split(stream) if split is None else split
        with _reporting(progress) as report:
            self.observe(stream, split, progress=report)
            self.train(split, checkpoint=checkpoint, progress=report)
        return self

    def _check_learnable(self, stream: EventStream, split: Split) -> None:
        """Raise DataError where the stream and the split hold nothing to learn from."""
        raise NotImplementedError

    @all_or_nothing
    def observe(
        self, stream: EventStream, split: Split, *, progress: Progress | None = None
    ) -> None:
        """Propagate and record: the part of `fit` that works on the graph."""
        self._check_learnable(stream, split)
        self._span = _span(stream, split)
        self._directory = self._temporary() if self.path is None else Path(self.path)
        self._saved = False
        propagator = self.propagator(stream)
        record(stream, propagator, self._directory, epsilon=self.epsilon, progress=progress)
        self._open(stream)

    def reopen(self, stream: EventStream, split: Split) -> None:
        """Do what `observe` does, where another process has recorded this stream to `path`."""
        if self.path is None:
            raise ParameterError("path is None; give the path to which the stream was recorded")
        self._span = _span(stream, split)
        self._directory, self._saved = Path(self.path), False
        self._open(stream)

    @all_or_nothing
    def train(
        self,
        split: Split,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fit the network to what `observe` recorded: the part of `fit` that needs no graph."""
        learned, held_out = self._divided(split)
        self._features = self._new_features()
        features, held_features = self._read(learned), self._read(held_out)
        torch.manual_seed(self.seed)
        self._network = self._new_network(features.shape[1])
        self._adjust(learned, features)
        self.epochs_ = fit(
            self._network,
            len(learned.t),
            functools.partial(self._loss, learned, features),
            lambda: -self._mean_loss(held_out, held_features),
            self._training(len(learned.t)),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            progress=progress,
        )

    def _divided(self, split: Split) -> tuple[Any, Any]:
        """Return the examples that train and those that validate, with their times `t`."""
        raise NotImplementedError

    def _new_features(self) -> Any:
        """Return what the network reads, as a function of questions."""
        raise NotImplementedError

    def _read(self, examples: Any) -> Tensor:
        """Return the features of examples."""
        raise NotImplementedError

    def _new_network(self, features: int) -> Network:
        raise NotImplementedError

    def _adjust(self, examples: Any, features: Tensor) -> None:
        """Fit the parts of the network that are not trained."""
        self._network.adjust(features)

    def _loss(self, examples: Any, features: Tensor, rows: IntArray) -> Tensor:
        """Return the loss of some of the examples, given the features of all of them."""
        raise NotImplementedError

    def _mean_loss(self, examples: Any, features: Tensor) -> float:
        total = 0.0
        for rows in pieces(len(examples.t), _EXAMPLES_AT_ONCE):
            with torch.no_grad():
                total += float(self._loss(examples, features, rows)) * len(rows)
        return total / len(examples.t)

    # Learning on ----------------------------------------------------------------------------------

    def advance(self: _Own, events: EventStream) -> _Own:
        """Add later events, and labels they bring, to the state without learning; return self.

        They may bring new nodes, after the known ones: `events.continuing(model.stream)`.
        """
        self._check_fitted()
        self._append(events, self._joined(events))  # checks them before anything changes
        self._features = self._new_features()
        return self

    def _joined(self, events: EventStream) -> EventStream:
        return self._stream.joined(events)

    def partial_fit(self: _Own, events: EventStream, *, progress: Progress | None = None) -> _Own:
        """Add later events to the state and train further on what they teach; return self.

        A `LinkPredictor` learns from the events, a `NodeClassifier` from their labels, or, where
        events carry none, from node labels that it does not know already.
        """
        self._check_fitted()
        lessons = self._lessons(events)
        self.advance(events)
        return self if lessons is None else self.train_further(lessons, progress=progress)

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
        loss = functools.partial(self._loss, examples, self._read(examples))
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

    # The record -----------------------------------------------------------------------------------

    def _channels(self) -> list[Channel]:
        half_lives = default_half_lives(self._span) if self.half_lives is None else self.half_lives
        channels = []
        for half_life in (None, *half_lives):
            channels.append(Channel.low_pass(self.alpha, half_life=half_life))
            if self.high_pass:
                channels.append(Channel.high_pass(self.alpha, half_life=half_life))
        return channels

    def propagated(self, stream: EventStream) -> Sketch | ArrayLike:
        """Return the features of the stream's nodes to propagate: its own, or random ones."""
        raise NotImplementedError

    def propagator(self, stream: EventStream) -> Propagator:
        """Return a new engine as `observe` makes it for the stream, before any of its events."""
        edges, initial = stream.initial, None
        if edges is not None:  # it has no times of its own, and counts from the first event on
            first = int(stream.t[0]) if len(stream) else None
            initial = Batch(src=edges.src, dst=edges.dst, weight=edges.weight, t=first)
        return Propagator(
            self.propagated(stream),
            nodes=stream.nodes,
            channels=self._channels(),
            beta=self.beta,
            r_max=self.r_max,
            r_max_unit=self.r_max_unit,
            scale_by_degree=self.scale_by_degree,
            threads=self.threads,
            initial=initial,
        )

    def _temporary(self) -> Path:
        """Return a place for a record that exists for as long as this object."""
        directory = Path(tempfile.mkdtemp(prefix="tidegraph-"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        return directory / "trajectories"

    def _open(self, stream: EventStream) -> None:
        self._stream = stream
        self._trajectories = Trajectories.open(self._directory)
        self._history = History(stream.nodes, activity_half_lives(self._span))
        self._history.append(stream)

    def _append(self, events: EventStream, stream: EventStream) -> None:
        """Record later events, with which the stream is `stream`.

        A saved model stays as it was saved: the events go to a copy of its record.
        """
        if self._saved:
            copy = self._temporary()
            copy_store(self._directory, copy)
            self._directory, self._saved = copy, False
            self._trajectories = Trajectories.open(copy)
        self._trajectories.append(events)
        if stream.nodes == self._history.nodes:
            self._history.append(events)
        else:  # its tables have a row per node
            self._history = History(stream.nodes, self._history.half_lives)
            self._history.append(stream)
        self._stream = stream

    def _window(self, nodes: IntArray, t: IntArray) -> Window | None:
        """Return what the encoder reads, where there is one."""
        if self.encoder is None:
            return None
        change, elapsed, known = self._trajectories.window(nodes, t, self.window)
        state = self._trajectories.state(nodes, t)
        return Window(
            torch.from_numpy(change).flatten(2).to(self.device),
            torch.log1p(torch.from_numpy(elapsed).float()).to(self.device),
            torch.from_numpy(known).to(self.device),
            torch.from_numpy(state).flatten(1).to(self.device),
        )

    def embeddings(self, at: Any = None, nodes: ArrayLike | None = None) -> pandas.DataFrame:
        """Return the representations of nodes as of a time, as a data frame with a row per node.

        They follow the events strictly before `at`, a number or a date; by default all events. The
        index holds the names of the nodes, and a column is named after its channel and number.
        """
        try:
            import pandas
        except ImportError as error:
            raise ParameterError("a data frame needs pandas; pip install pandas") from error

        self._check_fitted()
        last = int(self._stream.t[-1]) + 1
        (asked,) = self._columns(nodes=np.arange(self._stream.nodes) if nodes is None else nodes)
        states = self._trajectories.state(asked, last if at is None else self._stream.time(at))
        names = [
            f"{'low' if channel.gamma > 0 else 'high'}_pass"
            + ("" if channel.half_life is None else f"_half_life_{channel.half_life:g}")
            for channel in self._trajectories.channels
        ]
        columns = [f"{name}_{column}" for name in names for column in range(states.shape[2])]
        index = pandas.Index(self._stream.name(asked).tolist(), name="node")
        return pandas.DataFrame(states.reshape(-1, len(columns)), index=index, columns=columns)

    # Questions ------------------------------------------------------------------------------------

    def _columns(self, **given: ArrayLike) -> list[IntArray]:
        """Return nodes, given as numbers or names, and times `t` as vectors of one length.

        In streams in which an id is one node as a source and another as a destination, `src` and
        `dst` are looked up by their side.
        """
        check_lengths(**given)
        sides: dict[str, Side] = {"src": "src", "dst": "dst"}
        numbers = [
            self._stream.times_of(values) if name == "t" else self._numbers(values, sides.get(name))
            for name, values in given.items()
        ]
        return [
            np.ascontiguousarray(column)
            for column in np.broadcast_arrays(*map(np.atleast_1d, numbers))
        ]

    def _numbers(self, nodes: ArrayLike, side: Side | None) -> IntArray:
        with contextlib.suppress(UnknownNodeError):
            return self._stream.nodes_of(nodes, side)
        return self._stream.nodes_of(nodes)  # by the whole name

    # Files ----------------------------------------------------------------------------------------

    def share_events(self, file: Path | None) -> None:
        """Let `save` link this file, which holds the stream as it is now, not write another."""
        self._shared_events = file, self._stream

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write weights, settings, the events and the record of all nodes to a new directory.

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
        copy_store(self._directory, directory / "trajectories")
        events_file, held = self._shared_events
        if events_file is not None and held is self._stream:
            link_or_copy(events_file, directory / "events")
        else:
            self._stream.save(directory / "events")
        settings = {**self.get_params(), "path": None}
        own = {name: _full_name(value) for name, value in settings.items() if callable(value)}
        about = {
            "task": type(self).__name__,
            "format": _FORMAT,
            "settings": {**settings, **own},
            "own_modules": own,
            "span": self._span,
            "epochs": [dataclasses.asdict(epoch) for epoch in self.epochs_],
            **self._learned(),
        }
        (directory / "settings.json").write_text(json.dumps(about, indent=2), encoding="utf-8")
        write_tensors(directory / "model.safetensors", self._network.state_dict(), about)
        if a_model:
            before = whole.with_name(f".{whole.name}.replaced")
            shutil.rmtree(before, ignore_errors=True)  # left by a save that was killed
            put_in_place(whole, before)
            put_in_place(directory, whole)
            shutil.rmtree(before)
        else:
            put_in_place(directory, whole)

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
        tensors, about = read_tensors(directory / "model.safetensors")
        if about.get("format") != _FORMAT or about.get("task") != cls.__name__:
            raise StateFileError(
                f"{directory} holds a {about.get('task')}, format {about.get('format')}; this reads"
                f" a {cls.__name__}, format {_FORMAT}"
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
        estimator = cls(**{**about["settings"], **modules})
        estimator._span = about["span"]
        estimator._directory, estimator._saved = directory / "trajectories", True
        estimator.epochs_ = [Epoch(**epoch) for epoch in about["epochs"]]
        estimator._open(EventStream.load(directory / "events"))
        estimator._restore(about)
        estimator._features = estimator._new_features()
        try:
            network = estimator._new_network(len(tensors["mean"]))
            network.load_state_dict(tensors)
        except (KeyError, RuntimeError) as error:
            raise StateFileError(
                f"the saved weights do not fit the network; give the modules it was saved with:"
                f" {error}"
            ) from None
        estimator._network = network.eval()
        return estimator


def pieces(count: int, size: int) -> list[IntArray]:
    """Return positions below `count`, at most `size` at once."""
    return [np.arange(first, min(first + size, count)) for first in range(0, count, size)]


def check_lengths(**columns: ArrayLike) -> None:
    """Raise ParameterError unless the columns are vectors of one length, or one value for all."""
    lengths = {}
    for name, values in columns.items():
        try:
            shape = np.shape(values)
        except ValueError:  # NumPy's, for lists of different lengths
            shape = (0, 0)
        if len(shape) > 1:
            raise ParameterError(f"{name} is a list of lists; give a list of single values")
        lengths[name] = shape[0] if shape else 1
    if len(set(lengths.values()) - {1}) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ParameterError(
            f"the numbers of values differ: {found}; give as many of each, or one for all"
        )


def _full_name(module: Any) -> str:
    name = getattr(module, "__qualname__", type(module).__qualname__)
    return f"{getattr(module, '__module__', '')}.{name}"


def _span(stream: EventStream, split: Split) -> float:
    """Return the length of the training period."""
    return max(1.0, float(split.validation_time) - float(stream.t[0]))
