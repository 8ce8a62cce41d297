"""`Propagator`, the Python face of the native engine: features propagated over a changing graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import _native
from tidegraph.core import statefile
from tidegraph.core.errors import EventError, ParameterError, PrecisionError, StateFileError
from tidegraph.engine.base_graph import BaseGraph, check_fits
from tidegraph.engine.bridge import CallLock, make_native, thread_count
from tidegraph.engine.channels import Audit, Channel, EngineSettings, RMaxUnit, Sketch
from tidegraph.engine.compact import CompactGraph, open_graph
from tidegraph.engine.features import Features
from tidegraph.engine.precision import (
    Dtype,
    advise_float64,
    check_dtype,
    check_estimates,
    check_thresholds,
    check_tolerance,
)
from tidegraph.engine.saving import Description
from tidegraph.events.batch import Batch
from tidegraph.events.names import known_nodes
from tidegraph.events.steps import Steps

_BLOCK_COLUMNS = 96
_FLOAT64 = np.dtype(np.float64)
_ROWS_BETWEEN_MERGES = 1 << 20  # over a compact graph, how often to look at changed lists


class Propagator:
    """Propagated features of every node, maintained while edges, features and nodes change.

    For each channel and feature column it maintains an estimate of
    `pi = gamma0 · Σ_k (gamma·P)^k · x` with `|pi(i) - estimate(i)| <= threshold(i)` after every
    `apply`, rounding included; `error_bound` certifies the present error. Weights are float64.
    A batch that asks for more than `dtype` can hold raises `PrecisionError` and changes nothing.

    Ctrl-C interrupts a long call. The next call completes what was begun, so that a batch is
    either applied or not.

    features: `[nodes, columns]`, or a `Sketch` together with `nodes`. A sketch takes no memory.
        Neither does a C-contiguous float array that nobody can write to (a memory map of mode "r",
        or an array after `setflags(write=False)`), which is read in place. Other arrays are copied.
    channels: filters on versions of the graph; by default one low-pass filter on all edges.
    r_max, r_max_unit: the allowed error, relative to each column's RMS ("rms"), absolute, or
        relative to its L1 norm ("l1").
    scale_by_degree: False stops at `min(1, d^(1-beta))` instead of `d^(1-beta)`, which is stricter.
    self_loop: weight of the loop that every node has; 0 is allowed on undirected graphs.
    threads: None uses all cores. Any number gives the same bits.
    block_columns: the most columns in a block, which one thread works on. Narrower blocks use more
        cores, wider ones do less work in total. Part of the result's bits.
    initial: rows of a graph to start from, or a compact graph made by `tidegraph.build`, or the
        path of one. A compact graph is read in place, and `nodes` may be omitted. Only lists that
        change are copied; once they become large, all lists move to nameless files next to the
        graph, as large as it, which vanish with the propagator. Saved states refer to the graph's
        directory and need it again, unchanged.

    Calls from several threads queue; the interpreter lock is released while one computes. A child
    process made by fork() can continue with a propagator, unless another thread was computing in it
    at that moment.

    >>> propagator = Propagator(np.eye(3), initial=Batch(src=[0], dst=[1]))
    >>> propagator.apply(Batch(src=[1], dst=[2]))
    array([0, 1, 2])
    >>> propagator.embedding([2]).shape
    (1, 1, 3)
    """

    def __init__(
        self,
        features: ArrayLike | Sketch | Features,
        *,
        nodes: int | None = None,
        channels: Sequence[Channel] = EngineSettings.channels,
        directed: bool = False,
        beta: float = EngineSettings.beta,
        r_max: float = EngineSettings.r_max,
        r_max_unit: RMaxUnit = "rms",
        scale_by_degree: bool = True,
        self_loop: float = 1.0,
        dtype: Dtype = "float32",
        threads: int | None = None,
        block_columns: int = _BLOCK_COLUMNS,
        initial: Batch | CompactGraph | str | Path | None = None,
    ) -> None:
        if isinstance(initial, (str, Path)):
            initial = open_graph(initial)
        if isinstance(initial, CompactGraph) and isinstance(features, Sketch) and nodes is None:
            nodes = initial.nodes
        settings = EngineSettings(
            tuple(channels), directed, beta, r_max, r_max_unit, scale_by_degree, self_loop
        )
        check_dtype(dtype)
        source = features if isinstance(features, Features) else Features(features, nodes)
        source.check(dtype)
        thresholds = settings.r_max * source.norms(settings.r_max_unit)
        check_thresholds(settings, thresholds, dtype)
        in_place = source.in_place()
        described = Description(settings, source.nodes, dtype, block_columns, source.sketch)
        self._build(described, thresholds, threads, in_place=in_place is not None)
        if in_place is not None:
            self._native.borrow_features(in_place)
        else:
            for first, rows in source.pieces():
                self._native.set_features(first, rows)
        if isinstance(initial, CompactGraph):
            self._start_from(initial)
        elif initial is not None:
            self._load(initial)
        self._native.read_peak()
        check_tolerance(1.0, self._native, settings, self._dtype)
        self._native.start()

    def _build(
        self,
        described: Description,
        thresholds: NDArray[np.float64],
        threads: int | None,
        *,
        in_place: bool = False,
    ) -> None:
        self._described, self._thresholds = described, thresholds
        self._dtype, self._threads = np.dtype(described.dtype), thread_count(threads)
        self._base: BaseGraph | None = None
        self._lock = CallLock()
        self._native = make_native(described, thresholds, self._threads, in_place=in_place)

    def _start_from(self, graph: CompactGraph) -> None:
        check_fits(graph, directed=self.directed, nodes=self._native.nodes)
        if all(channel.sees_all_edges for channel in self.channels):
            self._base = BaseGraph(graph, self._native)
        else:  # windows and decay have weights of their own
            self._load(graph.rows())

    def _load(self, batch: Batch) -> None:
        _require_edge_rows(batch, "initial", "give nodes and features with features=")
        try:
            self._native.load(*_rows(batch), batch.time)
        except _native.EventError as error:
            raise EventError(f"initial: {error}") from None

    def _merge_if_large(self) -> None:
        if self._base is not None:
            self._base.merge_if_large()

    def apply(self, batch: Batch) -> NDArray[np.int64]:
        """Apply a batch; return the nodes it names and all whose estimate moved, sorted.

        Raise EventError if the batch does not fit the graph, PrecisionError if it asks for more
        than the precision can hold. Either way nothing has changed then.
        """
        with self._lock:
            return self._apply(batch)

    def _apply(self, batch: Batch) -> NDArray[np.int64]:
        try:
            touched = self._native.apply(
                *_rows(batch),
                batch.time,
                batch.new_nodes,
                batch.new_features,
                batch.feature_nodes,
                batch.feature_values,
                batch.removed_nodes,
            )
        except _native.EventError as error:
            raise EventError(str(error)) from None
        except _native.PrecisionError as error:
            raise PrecisionError(f"{error}; {self._advice()}") from None
        self._merge_if_large()
        return touched

    def _advice(self) -> str:
        """Return advice for a batch that needs more than the precision can hold."""
        wider = advise_float64(self._dtype, before=", or use")
        return f"give it another unit, promise less with refine(){wider}"

    def apply_steps(
        self, batch: Batch | Steps, offsets: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Apply steps and return how many nodes each one touched.

        Step `s` is the rows `offsets[s]:offsets[s+1]`. `Steps`, as made by `EventStream.steps` and
        `snapshots`, contain their offsets. A whole stream takes one native call. Each step is
        applied completely or not at all: an EventError names the first step that does not fit, and
        the steps before it stay applied.

        >>> from tidegraph import EventStream
        >>> stream = EventStream([0, 1], [1, 2], [5, 9])
        >>> Propagator(np.eye(3)).apply_steps(stream.steps()).tolist()
        [2, 3]
        """
        if isinstance(batch, Steps):
            if offsets is not None:
                raise EventError("Steps contain their offsets; leave offsets out")
            offsets = batch.offsets
        elif offsets is None:
            raise EventError(
                f"apply_steps got {type(batch).__name__} and no offsets; give Steps, such as"
                " stream.steps(), or a Batch and the offsets of its steps"
            )
        else:
            _require_edge_rows(batch, "apply_steps", "use apply for node and feature events")
        bounds = np.ascontiguousarray(offsets)
        if bounds.dtype.kind not in "iu" or bounds.ndim != 1 or bounds.size == 0:
            raise EventError(
                f"offsets has dtype {bounds.dtype} and shape {bounds.shape};"
                " give integers [steps + 1]"
            )
        bounds = bounds.astype(np.int64, copy=False)
        rows = len(batch.src)
        if bounds[0] < 0 or bounds[-1] > rows or (np.diff(bounds) < 0).any():
            raise EventError(f"offsets must ascend from 0 to at most the number of rows, {rows}")
        counts = np.zeros(bounds.size - 1, dtype=np.int64)
        done, reason, of_precision = self._apply_until_rejected(batch, bounds, counts)
        if reason:
            text = f"step {done}: {reason}; the {done} steps before it are applied"
            raise PrecisionError(f"{text}; {self._advice()}") if of_precision else EventError(text)
        return counts

    def _apply_until_rejected(
        self, batch: Batch | Steps, bounds: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> tuple[int, str, bool]:
        """Apply steps, write how many nodes each one touched, and return what `_record_steps`
        does.
        """
        done, reason, of_precision = 0, "", False
        with self._lock:
            while done < counts.size and not reason:
                end = counts.size
                if self._base is not None:
                    until = bounds[done] + _ROWS_BETWEEN_MERGES
                    end = max(done + 1, int(np.searchsorted(bounds, until, side="right")) - 1)
                some, reason, of_precision = self._native.apply_steps(
                    *_rows(batch), bounds[done : end + 1], counts[done:end]
                )
                done += some
                self._merge_if_large()
        return done, reason, of_precision

    def _record_steps(
        self,
        recorder: _native.Recorder,
        steps: Steps,
        limit: int,
    ) -> tuple[int, str, bool]:
        """Apply steps watched by a recorder, and stop when `limit` records wait in it.

        Return how many steps were done, why the next was rejected (or an empty string), and whether
        it was rejected because it needs more than the precision can hold.
        """
        with self._lock:
            outcome = recorder.run(self._native, *_rows(steps), steps.offsets, steps.times, limit)
            self._merge_if_large()
        return outcome

    def _begin_record(self, recorder: _native.Recorder, first: int, last: int) -> None:
        """Record the present state of the nodes from `first` up to, not including, `last`."""
        with self._lock:
            recorder.begin(self._native, first, last)

    def _become(self, other: Propagator) -> None:
        """Take over the state of a propagator with the same settings, not to be used afterwards."""
        with self._lock:
            self._native, self._base = other._native, other._base
            self._native.set_threads(self._threads)

    def apply_snapshot(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        t: int | None = None,
    ) -> NDArray[np.int64]:
        """Change the graph to exactly these edges and return the nodes touched.

        Weights of repeated rows add up. Only the difference costs work. As with `apply`, an error
        leaves everything unchanged.
        """
        snapshot = Batch(src=src, dst=dst, weight=weight)
        with self._lock:
            try:
                rows = self._native.difference(snapshot.src, snapshot.dst, snapshot.weight)
            except _native.EventError as error:
                raise EventError(str(error)) from None
            # Errors in rows have been raised by now, with the numbers of the rows given here.
            return self._apply(Batch(src=rows[0], dst=rows[1], weight=rows[2], op=rows[3], t=t))

    def refine(self, r_max: float) -> None:
        """Change the promised error to a new `r_max`, in the unit chosen at the start."""
        settings = dataclasses.replace(self.settings, r_max=r_max)
        with self._lock:
            factor = settings.r_max / self.settings.r_max * self._native.tolerance
            check_tolerance(factor, self._native, self.settings, self._dtype)
            try:
                self._native.refine(factor)
            finally:  # it may have begun even if interrupted
                if self._native.tolerance == factor:
                    self._described = dataclasses.replace(self._described, settings=settings)

    def repair(self) -> None:
        """Recompute all residuals from scratch; the promise holds without it."""
        with self._lock:
            self._native.repair()

    def embedding(self, nodes: ArrayLike | None = None) -> NDArray[Any]:
        """Return the estimates `[k, channels, columns]` of the given nodes, or of all.

        Raise PrecisionError if one is beyond the largest number of `dtype`.
        """
        return check_estimates(self._rows("embedding", nodes, self._dtype, *self._shape))

    def residual(self, nodes: ArrayLike | None = None) -> NDArray[Any]:
        """Return the residuals `[k, channels, columns]`: what is left to push."""
        return self._rows("residual", nodes, self._dtype, *self._shape)

    def features(self, nodes: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the features `[k, columns]` that are being propagated."""
        return self._rows("features", nodes, _FLOAT64, self.columns)

    def degree(self, nodes: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return present degrees `[k, channels]`, self-loops included."""
        return self._rows("degree", nodes, _FLOAT64, len(self.channels))

    def threshold(self, nodes: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the promise `[k, channels, columns]`: how far an estimate may be from exact."""
        return self._rows("threshold", nodes, _FLOAT64, *self._shape)

    def error_bound(self, nodes: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return a certificate `[k, channels, columns]`: how far `embedding` is from exact at most.

        It is computed from the estimates and the graph alone, in float64, with one pass over all
        edges. So it does not rely on stored residuals, and includes every rounding error ever made.
        """
        return self._rows("error_bound", nodes, _FLOAT64, *self._shape)

    def audit(self) -> Audit:
        """Return how far stored residuals have drifted from the true ones, in thresholds."""
        with self._lock:
            drift, residual, untracked = self._native.audit()
        return Audit(np.array(drift), np.array(residual), np.array(untracked))

    def edges(
        self, channel: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return `src, dst, weight` of the graph, or of the version a channel sees.

        Undirected edges occur once.
        """
        number = None if channel is None else self._channel(channel)
        with self._lock:
            return self._native.edges(number)

    def edges_of(
        self, node: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return `src, dst, weight` of the edges of a node in the graph; undirected ones once."""
        (number,) = known_nodes([node], self.nodes)
        with self._lock:
            return self._native.edges_at(int(number))

    def loops(self, channel: int) -> NDArray[np.float64]:
        """Return the present weight of every node's self-loop in a channel."""
        number = self._channel(channel)
        with self._lock:
            out = np.empty(self._native.nodes)
            self._native.loops(number, out)
        return out

    def _channel(self, channel: Any) -> int:
        if isinstance(channel, (int, np.integer)) and 0 <= channel < len(self.channels):
            return int(channel)
        raise ParameterError(f"channel is {channel!r}; channels are 0 to {len(self.channels) - 1}")

    def _finish(self) -> NDArray[Any]:
        """Return `embedding()` of all nodes in less memory; the propagator is unusable then."""
        with self._lock:
            out = np.empty((self._native.nodes, *self._shape), self._dtype)
            self._native.finish(out)
        return check_estimates(out)

    def statistics(self) -> dict[str, int]:
        """Return counts since the start (events, pushes, edge_pushes, …) and sizes in bytes."""
        with self._lock:
            return dict(self._native.statistics())

    def _rows(
        self, what: str, nodes: ArrayLike | None, dtype: np.dtype[Any], *shape: int
    ) -> NDArray[Any]:
        """Return numbers of the given shape per node, from the native method `what`."""
        everyone = self.nodes
        ids = np.arange(everyone) if nodes is None else known_nodes(nodes, everyone)
        if ids.ndim > 1:
            raise EventError(f"nodes have shape {ids.shape}; give node numbers [k]")
        ids = np.ascontiguousarray(np.atleast_1d(ids))
        out = np.empty((ids.size, *shape), dtype=dtype)
        with self._lock:
            getattr(self._native, what)(ids, out)
        return out

    @property
    def nodes(self) -> int:
        """The number of nodes, removed ones included: their numbers are never used again."""
        with self._lock:
            return int(self._native.nodes)

    @property
    def columns(self) -> int:
        return int(self._thresholds.size)

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.channels), self.columns

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self.settings.channels

    @property
    def directed(self) -> bool:
        return self.settings.directed

    @property
    def beta(self) -> float:
        return self.settings.beta

    @property
    def r_max(self) -> float:
        return self.settings.r_max

    @property
    def r_max_unit(self) -> RMaxUnit:
        return self.settings.r_max_unit

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def time(self) -> int | None:
        """The time of the last batch that had one, else None."""
        with self._lock:
            return self._native.time

    @property
    def settings(self) -> EngineSettings:
        """Everything that decides what is computed and how closely."""
        return self._described.settings

    def _description(self) -> dict[str, Any]:
        graph = None if self._base is None else self._base.graph
        now = dataclasses.replace(self._described, nodes=self._native.nodes, graph=graph)
        return now.to_dict()

    def save(self, path: str | Path) -> None:
        """Write everything needed to continue to the bit; an error leaves an old file unchanged."""
        with self._lock:
            statefile.write(path, self._description(), self._arrays())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"thresholds": self._thresholds, **self._native.state()}

    @classmethod
    def load(cls, path: str | Path, *, threads: int | None = None) -> Propagator:
        """Return the propagator that was saved; it continues as if it had never stopped."""
        return cls._from_state(*statefile.read(path), source=str(path), threads=threads)

    @classmethod
    def _from_state(
        cls,
        description: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        *,
        source: str,
        threads: int | None = None,
    ) -> Propagator:
        described = Description.from_dict(description, source)
        propagator = cls.__new__(cls)
        propagator._build(described, arrays.pop("thresholds"), threads)
        if described.graph is not None:
            propagator._start_from(described.graph)
        try:
            propagator._native.restore(arrays)
        except _native.ArchiveError as error:
            raise StateFileError(f"{source}: {error}") from None
        propagator._merge_if_large()
        return propagator

    def _packed(self) -> bytes:
        with self._lock:
            return statefile.pack(self._description(), self._arrays())

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (self._packed(), self._threads)

    def __copy__(self) -> Propagator:
        return _unpack(self._packed(), self._threads)

    def __deepcopy__(self, memo: dict[int, Any]) -> Propagator:
        return self.__copy__()

    def __repr__(self) -> str:
        kind = "directed, " if self.directed else ""
        channels = ", ".join(map(repr, self.channels))
        at = "" if self.time is None else f", time={self.time}"
        return (
            f"Propagator({kind}nodes={self.nodes}, edges={self.statistics()['edges']},"
            f" columns={self.columns}, channels=[{channels}], r_max={self.r_max:g}"
            f" {self.r_max_unit}, dtype={self._dtype}{at})"
        )


def _unpack(data: bytes, threads: int) -> Propagator:
    return Propagator._from_state(
        *statefile.unpack(data), source="the pickled state", threads=threads
    )


def _rows(batch: Batch | Steps) -> tuple[Any, Any, Any, Any, Any]:
    """Return the columns of edge rows, as the native engine takes them."""
    return batch.src, batch.dst, batch.weight, batch.op, batch.t


def _require_edge_rows(batch: Batch, name: str, advice: str) -> None:
    if batch.new_nodes or batch.feature_nodes.size or batch.removed_nodes.size:
        raise EventError(f"{name} takes edge rows only; {advice}")


def propagate(
    src: ArrayLike,
    dst: ArrayLike,
    features: ArrayLike | Sketch,
    *,
    weight: ArrayLike | None = None,
    alpha: float = 0.2,
    channel: Channel | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Return features propagated over a static graph, `[nodes, columns]`: GeneralPropagation.

    The filter is low-pass with `alpha`, or the given `channel`; `options` are those of
    `Propagator`. C-contiguous floating-point features are read in place: do not write to them
    during the call.

    >>> propagate([0, 1], [1, 2], np.eye(3)).shape
    (3, 3)
    """
    filters = (channel if channel is not None else Channel.low_pass(alpha),)
    source = Features(features, options.pop("nodes", None), unchanging=True)
    propagator = Propagator(
        source, channels=filters, initial=Batch(src=src, dst=dst, weight=weight), **options
    )
    return propagator._finish()[:, 0]
