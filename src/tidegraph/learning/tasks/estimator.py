"""What all tasks do alike: settings as scikit-learn has them, the record of a stream, files."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from tidegraph.core import display
from tidegraph.core.durable import link_or_copy, put_in_place
from tidegraph.core.errors import DataError, ParameterError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.engine.channels import Channel, RMaxUnit, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.evaluation import Split
from tidegraph.events.batch import Batch
from tidegraph.events.stream import EventStream
from tidegraph.learning.history import History
from tidegraph.learning.models import Window
from tidegraph.learning.tasks.presets import preset
from tidegraph.learning.training import Epoch, read_tensors, write_tensors
from tidegraph.store.trajectories import Trajectories, copy_store, record

__all__ = [
    "RECORD_SETTINGS",
    "Estimator",
    "all_or_nothing",
    "shown",
    "train_and_validation",
]

IntArray = NDArray[np.int64]
_Own = TypeVar("_Own", bound="Estimator")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

# The settings on which the record of a stream depends; all others are about the network that
# reads it, so that estimators with the same of these share a record.
RECORD_SETTINGS = (
    *("columns", "alpha", "half_lives", "high_pass", "beta"),
    *("r_max", "r_max_unit", "scale_by_degree", "epsilon"),
)
_FORMAT = 1
_HELD_BACK = 0.15  # of the events, where no split is given


def train_and_validation(stream: EventStream) -> Split:
    """All events but the last 15 % for training, those for validation, and none for a test."""
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
    """The method, after which a failure leaves the estimator with all that it had before."""

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
def shown(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """The function to report progress to; True shows a bar on standard error."""
    if isinstance(progress, bool):
        if not progress:
            yield None
            return
        with display.progress("fit") as report:
            yield report
    else:
        yield progress


class Estimator:
    """The parent of the tasks, each of which is a dataclass of its settings."""

    presets: ClassVar[tuple[str, ...]]

    alpha: float
    half_lives: Sequence[float] | None
    high_pass: bool
    beta: float
    r_max: float
    r_max_unit: RMaxUnit
    scale_by_degree: bool
    epsilon: float
    encoder: str | Callable[..., nn.Module] | None
    window: int
    threads: int | None
    device: str
    path: str | None
    epochs_: list[Epoch]
    _network: Any  # the module of the task
    _stream: EventStream
    _shared_events: tuple[Path | None, EventStream | None] = (None, None)
    _directory: Path
    _saved: bool  # whether the record is part of a saved model
    _trajectories: Trajectories
    _history: History
    _span: float  # of the training period

    # Settings -------------------------------------------------------------------------------------

    @classmethod
    def preset(cls: type[_Own], name: str, data: str | None = None, **changes: Any) -> _Own:
        """One with the settings of this name (see `presets.preset`), and changes to them."""
        settings = preset(name, data)
        if not name.startswith(cls.presets):
            raise ParameterError(
                f"{name!r} is no preset of {cls.__name__}; give one of {', '.join(cls.presets)}"
            )
        return cls(**{**settings, **changes})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings given to the constructor."""
        settings: Any = self
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(settings)}

    def set_params(self: _Own, **params: Any) -> _Own:
        """Changes settings. Where one of them shapes the model, what was learned is forgotten."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ParameterError(f"there is no setting {name!r}; there are {', '.join(known)}")
        type(self)(**{**known, **params})  # judges them before anything has changed
        shaping = {name for name in params if name not in ("threads", "path")}
        if hasattr(self, "_network") and any(known[name] != params[name] for name in shaping):
            del self._network
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The settings that are not as by default, and what it has learned from."""
        default = type(self)().get_params()
        own = {name: value for name, value in self.get_params().items() if value != default[name]}
        words = [f"{name}={value!r}" for name, value in own.items()]
        call = f"{type(self).__name__}({', '.join(words)})"
        return f"<{call}, fitted to {self._stream!r}>" if hasattr(self, "_network") else call

    def _check_at_least_one(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise ParameterError(f"{name} is {getattr(self, name)}; it is at least 1")

    def _check_fitted(self) -> None:
        if not hasattr(self, "_network"):
            raise ParameterError(
                f"the {type(self).__name__} has learned nothing yet; call fit, or load one"
            )

    # The record -----------------------------------------------------------------------------------

    def _channels(self) -> list[Channel]:
        half_lives = [self._span / 30] if self.half_lives is None else self.half_lives
        channels = []
        for half_life in (None, *half_lives):
            channels.append(Channel.low_pass(self.alpha, half_life=half_life))
            if self.high_pass:
                channels.append(Channel.high_pass(self.alpha, half_life=half_life))
        return channels

    def propagated(self, stream: EventStream) -> Sketch | ArrayLike:
        """The features of the stream's nodes that are propagated: its own, or random ones."""
        raise NotImplementedError

    def propagator(self, stream: EventStream) -> Propagator:
        """A new engine as `observe` makes it for the stream, before any of its events."""
        edges, initial = stream.initial, None
        if edges is not None:  # it has no times of its own: it counts as of the first event
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

    def _record(self, stream: EventStream, progress: Progress | None) -> None:
        """Runs the stream through the propagation engine and records how every node moved."""
        self._directory = self._temporary() if self.path is None else Path(self.path)
        self._saved = False
        propagator = self.propagator(stream)
        record(stream, propagator, self._directory, epsilon=self.epsilon, progress=progress)

    def _temporary(self) -> Path:
        """Where to keep a record for as long as this object lives."""
        directory = Path(tempfile.mkdtemp(prefix="tidegraph-"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        return directory / "trajectories"

    def _append(self, events: EventStream) -> None:
        """Records later events; a saved model stays as it was saved, and a copy goes on."""
        if self._saved:
            copy = self._temporary()
            copy_store(self._directory, copy)
            self._directory, self._saved = copy, False
            self._trajectories = Trajectories.open(copy)
        self._trajectories.append(events)

    def _history_with(self, events: EventStream, stream: EventStream) -> History:
        """The history after later events, made anew where `stream`, with them, has more nodes."""
        if stream.nodes == self._history.nodes:
            self._history.append(events)
            return self._history
        history = History(stream.nodes, self._history.half_lives)
        history.append(stream)
        return history

    def _window(self, nodes: IntArray, t: IntArray) -> Window | None:
        """What the encoder reads, where there is one."""
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

    # Files ----------------------------------------------------------------------------------------

    def share_events(self, file: Path | None) -> None:
        """Let `save` link this file, which holds the stream as it is now, not write another."""
        self._shared_events = file, self._stream

    def _write(self, path: str | Path, overwrite: bool, **more: Any) -> None:
        """Weights, settings, the events and the record of all nodes, in a new directory.

        It appears when it is whole; one that is to be overwritten stays until then.
        """
        self._check_fitted()
        whole = Path(path)
        a_model = (whole / "model.safetensors").is_file()
        if whole.exists() and not (overwrite and a_model):
            advice = ", or say overwrite=True" if a_model else ""
            raise StateFileError(f"{whole} exists; give a directory that does not{advice}")
        directory = whole.with_name(f".{whole.name}.saving")
        if directory.exists():  # of a save that was killed
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
            **more,
        }
        (directory / "settings.json").write_text(json.dumps(about, indent=2), encoding="utf-8")
        write_tensors(directory / "model.safetensors", self._network.state_dict(), about)
        if a_model:
            before = whole.with_name(f".{whole.name}.replaced")
            shutil.rmtree(before, ignore_errors=True)  # of a save that was killed
            put_in_place(whole, before)
            put_in_place(directory, whole)
            shutil.rmtree(before)
        else:
            put_in_place(directory, whole)

    @classmethod
    def _read(
        cls: type[_Own], path: str | Path, modules: dict[str, Callable[..., nn.Module] | None]
    ) -> tuple[_Own, dict[str, Tensor], dict[str, Any]]:
        """What `_write` wrote, as an estimator without a network, the tensors and the rest."""
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
