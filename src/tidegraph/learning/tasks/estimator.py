"""What both tasks share: parameters as in scikit-learn, the record of a stream, and model files."""

from __future__ import annotations

import contextlib
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
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tidegraph.core import display
from tidegraph.core.declarations import Setting, declared
from tidegraph.core.durable import link_or_copy, put_in_place
from tidegraph.core.errors import DataError, ParameterError, StateFileError, UnknownNodeError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.evaluation import Split
from tidegraph.events.batch import Batch
from tidegraph.events.moments import time_numbers, times_of
from tidegraph.events.names import Side, as_names_or_numbers, node_numbers
from tidegraph.events.stream import EventStream
from tidegraph.learning.history import History
from tidegraph.learning.models import Window
from tidegraph.learning.presets import preset_for
from tidegraph.learning.settings import (
    ModelSettings,
    TrainingSettings,
    activity_half_lives,
    default_half_lives,
)
from tidegraph.learning.training import Epoch, Loss, Training, fit, read_tensors, write_tensors
from tidegraph.store.trajectories import Trajectories, copy_store, record

if TYPE_CHECKING:
    import pandas

__all__ = ["Estimator", "all_or_nothing", "train_and_validation"]

IntArray = NDArray[np.int64]
_Own = TypeVar("_Own", bound="Estimator")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

_FORMAT = 1
_HISTORY = "history"  # a file next to those of the record, and shared with them
_HELD_BACK = 0.15  # of the events, where no split is given
_PACE = Setting("pace", float, 0.1, "learning rate, as a share of that of the training", above=0)
_REPLAY = Setting("replay", float, 0.0, "earlier examples repeated per example", least=0)


def train_and_validation(stream: EventStream) -> Split:
    """Return a split of all events: the last 15 % for validation, the others for training."""
    if not len(stream):
        raise DataError("the stream holds no events; nothing can be learned")
    bound = float(np.quantile(stream.t, 1 - _HELD_BACK))
    later = stream.t > bound
    nothing = np.zeros(0, dtype=np.int64)
    return Split(
        name="time",
        train=np.flatnonzero(~later),
        validation=np.flatnonzero(later),
        test=nothing,
        new_validation=nothing,
        new_test=nothing,
        validation_time=bound,
        test_time=np.inf,
    )


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
    _network: Any  # the module of the task
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

    def _training(self, examples: int) -> Training:
        """Return how to fit the network to so many examples."""
        own = {name: getattr(self, name) for name in declared(TrainingSettings)}
        return Training(**own)

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
        split = train_and_validation(stream) if split is None else split
        self._check_learnable(stream, split)
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

    def train(
        self,
        split: Split,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fit the network to what `observe` recorded: the part of `fit` that needs no graph."""
        raise NotImplementedError

    def _fit(
        self,
        examples: int,
        loss: Loss,
        validate: Callable[[], float],
        checkpoint: str | Path | None,
        progress: Progress | None,
    ) -> None:
        self.epochs_ = fit(
            self._network,
            examples,
            loss,
            validate,
            self._training(examples),
            checkpoint=None if checkpoint is None else Path(checkpoint),
            progress=progress,
        )

    def _check_further(self, epochs: int, pace: float, replay: float) -> None:
        self._check_fitted()
        declared(TrainingSettings)["epochs"].check(epochs)
        _PACE.check(pace)
        _REPLAY.check(replay)

    def _most_further(self, replay: float) -> int:
        """Return how many examples to train further on at most, with room for those repeated."""
        return max(1, int(self.max_examples / (1 + replay)))

    def _repeated(self, examples: int, earlier: int, replay: float, seed: int) -> IntArray:
        """Draw which of the earlier examples to repeat along with so many new ones."""
        count = min(earlier, round(replay * examples), self.max_examples - examples)
        generator = np.random.default_rng((self.seed, seed, examples))
        return np.sort(generator.choice(earlier, count, replace=False))

    def _fit_further(
        self, examples: int, loss: Loss, *, epochs: int, pace: float, progress: Progress | None
    ) -> None:
        training = dataclasses.replace(
            self._training(examples),
            epochs=epochs,
            patience=epochs,
            learning_rate=pace * self.learning_rate,
        )
        passes = itertools.count()
        # Nothing is held out for validation: the last pass counts as the best.
        fit(self._network, examples, loss, lambda: float(next(passes)), training, progress=progress)

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
        half_lives = activity_half_lives(self._span)
        file = self._directory / _HISTORY
        self._history = History.of(stream, half_lives, file, keep=not self._saved)

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
        self._history.append(events)
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
        asked = np.arange(self._stream.nodes) if nodes is None else self._node_numbers(nodes)
        states = self._trajectories.state(asked, last if at is None else self._stream.time(at))
        names = [
            f"{'low' if channel.gamma > 0 else 'high'}_pass"
            + ("" if channel.half_life is None else f"_half_life_{channel.half_life:g}")
            for channel in self._trajectories.channels
        ]
        columns = [f"{name}_{column}" for name in names for column in range(states.shape[2])]
        index = pandas.Index(self._stream.name(asked).tolist(), name="node")
        return pandas.DataFrame(states.reshape(len(asked), -1), index=index, columns=columns)

    # Questions ------------------------------------------------------------------------------------

    def _asked(self, t: ArrayLike, **ends: ArrayLike) -> list[IntArray]:
        """Return the nodes of a question and its times as int64 columns of one length."""
        sides: dict[str, Side] = {"src": "src", "dst": "dst"}
        numbers = [self._node_numbers(nodes, sides.get(end)) for end, nodes in ends.items()]
        columns = [np.atleast_1d(column) for column in (*numbers, self._time_numbers(t))]
        return [np.ascontiguousarray(column) for column in np.broadcast_arrays(*columns)]

    def _node_numbers(self, nodes: ArrayLike, side: Side | None = None) -> IntArray:
        """Return nodes as node numbers, from numbers or names.

        side: for streams in which an id is one node as a source and another as a destination.
        """
        array = as_names_or_numbers(nodes)
        if not array.size or array.dtype.kind not in "OUT":
            return node_numbers(array)
        try:
            return self._stream.number(array, side)
        except UnknownNodeError:
            if side is None or self._stream.names is None or not self._stream.names.by_side:
                raise
            return self._stream.number(array)  # the whole name

    def _time_numbers(self, t: ArrayLike) -> IntArray:
        """Return times in the stream's unit, from numbers or dates."""
        array = np.asarray(t)
        if array.dtype.kind not in "MOUT" or not array.size:
            return time_numbers(t)
        return times_of(t, self._stream.unit)

    # Files ----------------------------------------------------------------------------------------

    def share_events(self, file: Path | None) -> None:
        """Let `save` link this file, which holds the stream as it is now, not write another."""
        self._shared_events = file, self._stream

    def _write(self, path: str | Path, overwrite: bool, **more: Any) -> None:
        """Write weights, settings, the events and the record of all nodes to a new directory.

        It appears when it is complete; one that is to be overwritten stays until then.
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
        self._history.save(directory / "trajectories" / _HISTORY)
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
            **more,
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

    @classmethod
    def _read(
        cls: type[_Own], path: str | Path, modules: dict[str, Callable[..., nn.Module] | None]
    ) -> tuple[_Own, dict[str, Tensor], dict[str, Any]]:
        """Return an estimator without a network, its tensors, and all else that `_write` wrote."""
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
        given = {name: module for name, module in modules.items() if module is not None}
        for name, module in about["own_modules"].items():
            if name not in given:
                raise StateFileError(
                    f"{directory} was saved with {name} {module}, which is not part of tidegraph;"
                    f" give it again: load(path, {name}=...)"
                )
        for name in given:
            if name not in about["own_modules"]:
                raise StateFileError(
                    f"{directory} was saved with {name} {about['settings'][name]!r}; leave"
                    f" {name}=... out"
                )
        estimator = cls(**{**about["settings"], **given})
        estimator._span = about["span"]
        estimator._directory = directory / "trajectories"
        estimator._saved = True
        estimator._stream = EventStream.load(directory / "events")
        estimator.epochs_ = [Epoch(**epoch) for epoch in about["epochs"]]
        return estimator, tensors, about

    def _restore(self, network: nn.Module, tensors: dict[str, Tensor]) -> None:
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            raise StateFileError(
                f"the saved weights do not fit the network; give the modules it was saved with:"
                f" {error}"
            ) from None
        network.eval()
        self._network = network


def _full_name(module: Any) -> str:
    name = getattr(module, "__qualname__", type(module).__qualname__)
    return f"{getattr(module, '__module__', '')}.{name}"


def _span(stream: EventStream, split: Split) -> float:
    """Return the length of the training period."""
    return max(1.0, float(split.validation_time) - float(stream.t[0]))
