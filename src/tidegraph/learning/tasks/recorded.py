"""Settings as in scikit-learn, and what models keep of a stream: all below learning."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.declarations import declared
from tidegraph.core.errors import ParameterError, UnknownNodeError
from tidegraph.core.progress import Progress
from tidegraph.core.resume import make_directory
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.engine.propagator import Propagator
from tidegraph.engine.verify import Replay
from tidegraph.evaluation import Split
from tidegraph.events.batch import Batch
from tidegraph.events.columns import IntArray
from tidegraph.events.names import Side
from tidegraph.events.stream import EventStream
from tidegraph.learning.history import History
from tidegraph.learning.presets import preset_for
from tidegraph.learning.settings import (
    ModelSettings,
    Task,
    activity_half_lives,
    default_half_lives,
)
from tidegraph.store.trajectories import Trajectories, copy_store, record
from tidegraph.store.writer import Watch

if TYPE_CHECKING:  # torch takes seconds to import, and most questions need none of it
    import pandas

    from tidegraph.learning.models import Window

_Own = TypeVar("_Own", bound="Recorded")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

STORE = "trajectories"  # the directory of history and record, in a model or a run
HISTORY = "history"  # a file in it, which models share as they share a record


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


class Recorded(ModelSettings):
    """A model's settings, its history and record of a stream, and the questions they answer.

    Each task is a dataclass of its settings. How nodes moved is recorded only for models that read
    it; others propagate when they are asked for representations.
    """

    task: ClassVar[Task]

    _fitted = False
    _stream: EventStream
    _directory: Path  # of history and record
    _saved: bool  # whether they are part of a saved model
    _record: Trajectories | None  # None: the model does not read one
    _replayed: tuple[int, Propagator] | None = None  # an engine after the first events
    _history: History
    _span: float  # of the training period

    # Settings -------------------------------------------------------------------------------------

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
        if not all(settings[name].inert for name in changed):
            self._fitted = False
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
        return f"<{call}, fitted to {self._stream!r}>" if self._fitted else call

    def _check_fitted(self) -> None:
        if not self._fitted:
            raise ParameterError(
                f"the {type(self).__name__} has learned nothing yet; call fit, or load one"
            )

    @property
    def stream(self) -> EventStream:
        """The events the model answers from, with the names of their nodes."""
        self._check_fitted()
        return self._stream

    # The record -----------------------------------------------------------------------------------

    def _check_learnable(self, stream: EventStream, split: Split) -> None:
        """Raise DataError where the stream and the split hold nothing to learn from."""
        raise NotImplementedError

    @all_or_nothing
    def observe(
        self,
        stream: EventStream,
        split: Split,
        *,
        progress: Progress | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Prepare what the network reads: the part of `fit` that works on the graph.

        A model that reads representations propagates and records, any other only counts.
        """
        self._check_learnable(stream, split)
        self._span = _span(stream, split)
        self._follow(stream, progress=progress, watch=watch)

    def _follow(
        self, stream: EventStream, *, progress: Progress | None = None, watch: Watch | None = None
    ) -> None:
        """Count the stream and, where the model reads representations, propagate and record it."""
        self._directory = self._temporary() if self.path is None else Path(self.path)
        self._saved = False
        if self.reads_record:
            how: dict[str, Any] = {"epsilon": self.epsilon, "dtype": self.dtype}
            how |= {"progress": progress, "watch": watch}
            record(stream, self.propagator(stream), self._directory, **how)
        else:
            self.propagator(stream)  # rejects now what it would reject when it is needed
            make_directory(self._directory)
        self._open(stream)

    def reopen(self, stream: EventStream, split: Split) -> None:
        """Do what `observe` does, where another process has recorded this stream to `path`."""
        if self.path is None:
            raise ParameterError("path is None; give the path to which the stream was recorded")
        self._span = _span(stream, split)
        self._directory, self._saved = Path(self.path), False
        self._open(stream)

    @property
    def reads_record(self) -> bool:
        """Whether the network reads representations, so that the stream has to be recorded."""
        return True

    @property
    def _trajectories(self) -> Trajectories:
        assert self._record is not None  # only what reads a record asks for it
        return self._record

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
        return self._sketch()

    def _sketch(self) -> Sketch:
        return Sketch(self.columns, seed=self.seed, distribution=self.distribution)

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
        """Return a place for history and record that exists for as long as this object."""
        directory = Path(tempfile.mkdtemp(prefix="tidegraph-"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        return directory / "trajectories"

    def _open(self, stream: EventStream) -> None:
        self._stream, self._replayed = stream, None
        self._record = Trajectories.open(self._directory) if self.reads_record else None
        half_lives, file = activity_half_lives(self._span), self._directory / HISTORY
        self._history = History.of(stream, half_lives, file, keep=not self._saved)

    def _joined(self, events: EventStream) -> EventStream:
        return self._stream.joined(events)

    def _append(self, events: EventStream, progress: Progress | None = None) -> None:
        """Add later events to the history and the record, those of a saved model to a copy."""
        stream = self._joined(events)  # checks them before anything changes
        if self._record is not None:
            if self._saved:
                copy = self._temporary()
                copy_store(self._directory, copy)
                self._directory, self._saved = copy, False
                self._record = Trajectories.open(copy)
            self._record.append(events, progress=progress)
        if stream.nodes > self._stream.nodes:
            self._replayed = None
        self._history.append(events)
        self._stream = stream

    def _window(self, nodes: IntArray, t: IntArray) -> Window | None:
        """Return what the encoder reads, where there is one."""
        if self.encoder is None:
            return None
        import torch

        from tidegraph.learning.models import Window

        change, elapsed, known = self._trajectories.window(nodes, t, self.window)
        state = self._trajectories.state(nodes, t)
        return Window(
            torch.from_numpy(change).flatten(2).to(self.device),
            torch.log1p(torch.from_numpy(elapsed).float()).to(self.device),
            torch.from_numpy(known).to(self.device),
            torch.from_numpy(state).flatten(1).to(self.device),
        )

    def embeddings(
        self,
        at: Any = None,
        nodes: ArrayLike | None = None,
        *,
        progress: Progress | None = None,
    ) -> pandas.DataFrame:
        """Return the representations of nodes as of a time, as a data frame with a row per node.

        They follow the events strictly before `at`, a number or a date; by default all events. The
        index holds the names of the nodes, and a column is named after its channel and number.

        A model that has no record propagates the events before `at` first; asked about a later
        time, it continues from there. `tidegraph.record` makes a record of all times.
        """
        try:
            import pandas
        except ImportError as error:
            raise ParameterError("a data frame needs pandas; pip install pandas") from error

        self._check_fitted()
        last = int(self._stream.t[-1]) + 1
        (asked,) = self._columns(nodes=np.arange(self._stream.nodes) if nodes is None else nodes)
        states = self._states(asked, last if at is None else self._stream.time(at), progress)
        names = [
            f"{'low' if channel.gamma > 0 else 'high'}_pass"
            + ("" if channel.half_life is None else f"_half_life_{channel.half_life:g}")
            for channel in self._channels()
        ]
        columns = [f"{name}_{column}" for name in names for column in range(states.shape[2])]
        index = pandas.Index(self._stream.name(asked).tolist(), name="node")
        return pandas.DataFrame(states.reshape(-1, len(columns)), index=index, columns=columns)

    def _states(self, nodes: IntArray, t: int, progress: Progress | None) -> NDArray[np.float32]:
        """Return representations strictly before `t`, `[nodes, channels, columns]`."""
        if self._record is not None:
            return self._record.state(nodes, t)
        events = self._stream.before(t)
        done, engine = self._replayed or (0, None)
        if engine is None or done > len(events):
            done, engine = 0, self.propagator(self._stream)
        if done < len(events):
            self._replayed = None  # an interrupted replay leaves an engine between two times
            replay = Replay(engine, events[done:].steps(), progress=progress)
            replay.advance(replay.total)
        self._replayed = len(events), engine
        return engine.embedding(nodes).astype(np.float32, copy=False)

    # Questions ------------------------------------------------------------------------------------

    def _columns(self, **given: ArrayLike) -> list[IntArray]:
        """Return nodes, given as numbers or names, and times (`t`, `as_of`) of one length.

        In streams in which an id is one node as a source and another as a destination, `src` and
        `dst` are looked up by their side.
        """
        check_lengths(**given)
        sides: dict[str, Side] = {"src": "src", "dst": "dst"}
        numbers = [
            self._stream.times_of(values)
            if name in ("t", "as_of")
            else self._numbers(values, sides.get(name))
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


def _span(stream: EventStream, split: Split) -> float:
    """Return the length of the training period."""
    return max(1.0, float(split.validation_time) - float(stream.t[0]))
