"""The face of the native engine: features propagated over a changing graph, errors certified."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph import _native
from tidegraph.core import statefile
from tidegraph.core.errors import (
    DataError,
    EventError,
    ParameterError,
    PrecisionError,
    StateFileError,
)
from tidegraph.engine.channels import Audit, Channel, RMaxUnit, Settings, Sketch, column_norms
from tidegraph.engine.compact import CompactGraph, open_graph
from tidegraph.events.batch import Batch
from tidegraph.events.steps import Steps

__all__ = ["Dtype", "Propagator", "check_dtype", "check_features", "propagate"]

Dtype: TypeAlias = Literal["float32", "float64"]
_DISTRIBUTIONS = {"gaussian": 0, "uniform": 1, "sign": 2}
_DIRECTIONS = {"out": 0, "in": 1, "both": 2}
_ALL, _DECAY, _WINDOW, _LAST = range(4)
_KEPT, _SKETCHED, _BORROWED = range(3)
_STATE_LAYOUT = 3  # of the arrays in a saved state
# Features are handed over in pieces: a whole copy in float64 would double them. Small ones, since
# the allocator holds on to what large ones leave behind.
_FEATURE_ROWS = 1 << 12
_BLOCK_COLUMNS = 96
# From so many nodes on the first propagation begins with sweeps over all of them, which share out
# one block of columns among threads. Part of the result's bits.
_SWEEP_NODES = 1 << 20
# Over a compact graph lists that change are copied into memory. When they take so much of it, in
# bytes and as a share of the lists they stand over, all are written anew as one compact graph.
_MERGE_BYTES = 64 << 20
_MERGE_SHARE = 0.25
_ROWS_BETWEEN_MERGES = 1 << 20
_BORROWABLE = {np.dtype(np.float32).str, np.dtype(np.float64).str}  # in this machine's byte order


class Propagator:
    """Propagated features of every node, maintained while edges, features and nodes change.

    For each channel and feature column it keeps an estimate of `pi = gamma0 · Σ_k (gamma·P)^k · x`
    with `|pi(i) - estimate(i)| <= threshold(i)` after every `apply`, rounding included;
    `error_bound` certifies what holds right now. Weights are those given, in float64. A batch that
    asks for more than `dtype` can hold raises `PrecisionError` and changes nothing.

    Ctrl-C interrupts a long call. What it had begun is completed by the next call, so that a batch
    has happened or has not.

    features: `[nodes, columns]`, or a `Sketch` together with `nodes`. A sketch takes no memory, nor
        does a C-contiguous float array that nobody can write to (a memory map of mode "r", or one
        after `setflags(write=False)`): it is read where it lies. Other arrays are copied.
    channels: filters on versions of the graph; by default one low-pass filter on all edges.
    r_max, r_max_unit: the error that is allowed: relative to each column's RMS ("rms"), absolute,
        or relative to its L1 norm ("l1").
    scale_by_degree: False stops at `min(1, d^(1-beta))` instead of `d^(1-beta)`, which is stricter.
    self_loop: weight of the loop every node carries; 0 is allowed on undirected graphs.
    threads: None takes all cores. Results are the same to the bit for any number.
    block_columns: at most so many columns share a block, which one thread works on. Narrower
        blocks occupy more cores, wider ones do less work in total. Part of the result's bits.
    initial: rows of a graph to start from, or a graph that `tidegraph.engine.building.build` made
        (or the path of one), which is read where it lies: only the lists of nodes whose edges
        change are copied, and where these become many they go into nameless files beside the graph,
        of its size, that vanish with the propagator. With it `nodes` may be left out. Saved states
        name the graph's directory and need it again, unchanged.

    Calls from several threads queue; the interpreter lock is released while one computes. A child
    made by fork() can go on with it, unless another thread was computing at that moment.

    >>> propagator = Propagator(np.eye(3), initial=Batch(src=[0], dst=[1]))
    >>> propagator.apply(Batch(src=[1], dst=[2]))
    array([0, 1, 2])
    >>> propagator.embedding([2]).shape
    (1, 1, 3)
    """

    def __init__(
        self,
        features: ArrayLike | Sketch | _Features,
        *,
        nodes: int | None = None,
        channels: Sequence[Channel] = (Channel.low_pass(),),
        directed: bool = False,
        beta: float = 0.5,
        r_max: float = 1e-2,
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
        settings = Settings(
            channels=tuple(channels),
            directed=directed,
            beta=beta,
            r_max=r_max,
            r_max_unit=r_max_unit,
            scale_by_degree=scale_by_degree,
            self_loop=self_loop,
        )
        check_dtype(dtype)
        source = features if isinstance(features, _Features) else _Features(features, nodes)
        source.check(dtype)
        thresholds = settings.r_max * source.norms(settings.r_max_unit)
        _check_promise_in_range(settings, thresholds, dtype)
        borrowed = source.lasting()
        self._build(
            settings,
            source.nodes,
            thresholds,
            dtype,
            threads,
            block_columns,
            source.sketch,
            _KEPT if borrowed is None else _BORROWED,
        )
        if borrowed is not None:
            self._native.borrow_features(borrowed)
        else:
            for first, rows in source.pieces():
                self._native.set_features(first, rows)
        if isinstance(initial, CompactGraph):
            self._stand_on(initial)
        elif initial is not None:
            self._load(initial)
        self._native.read_peak()
        self._check_precision(1.0)
        self._native.start()

    def _build(
        self,
        settings: Settings,
        nodes: int,
        thresholds: NDArray[np.float64],
        dtype: str,
        threads: int | None,
        block_columns: Any,
        sketch: Sketch | None,
        rows: int = _KEPT,
    ) -> None:
        if not isinstance(block_columns, int) or not 8 <= block_columns <= 256:
            raise ParameterError(f"block_columns is {block_columns!r}; give a number from 8 to 256")
        self._settings = settings
        self._dtype = np.dtype(dtype)
        self._threads = _thread_count(threads)
        self._thresholds = thresholds
        self._block_columns = block_columns
        self._sketch = sketch
        self._graph: CompactGraph | None = None  # whose lists are read where they lie
        self._merged: _Merged | None = None  # where they lie once changes were merged with them
        self._merge_from = float("inf")  # bytes of changed lists
        self._lock = _Lock()
        versions: list[tuple[int, float, int, int]] = []
        views: list[tuple[int, int]] = []
        natives: list[tuple[int, float, float, float]] = []
        for channel in settings.channels:
            version = _version(channel, settings)
            if version not in versions:
                versions.append(version)
            view = (versions.index(version), _DIRECTIONS[channel.direction])
            if view not in views:
                views.append(view)
            beta = settings.beta_of(channel)
            natives.append((views.index(view), channel.gamma0, channel.gamma, beta))
        make = _native.PropagatorF32 if dtype == "float32" else _native.PropagatorF64
        self._native = make(
            nodes,
            thresholds,
            settings.directed,
            settings.self_loop,
            settings.scale_by_degree,
            block_columns,
            self._threads,
            versions,
            views,
            natives,
            (rows, 0, 0, 0)
            if sketch is None
            else (
                _SKETCHED,
                sketch.seed,
                sketch.first_column,
                _DISTRIBUTIONS[sketch.distribution],
            ),
            _SWEEP_NODES,
        )

    def _stand_on(self, graph: CompactGraph) -> None:
        if graph.directed != self.directed:
            kind = {True: "directed", False: "undirected"}
            raise ParameterError(
                f"initial is an {kind[graph.directed]} graph".replace("an d", "a d")
                + f" and the propagator is {kind[self.directed]}; give directed={graph.directed}"
            )
        if graph.nodes > self._native.nodes:
            raise ParameterError(
                f"initial has {graph.nodes} nodes and features has {self._native.nodes} rows;"
                " give a row for every node"
            )
        if any(_version(channel, self._settings)[0] != _ALL for channel in self.channels):
            self._load(graph.rows())  # windows and decay keep weights of their own
            return
        selves = graph.self_edges
        targets = graph.targets if graph.directed else None
        between = graph.edges - selves[0].size
        try:
            self._native.stand_on(graph.sources, targets, between, *selves)
        except _native.EventError as error:  # built by a release that did not look
            raise DataError(
                f"{graph.path}: {error}: build the graph anew, in another unit"
            ) from None
        self._graph = graph
        self._merge_from = max(_MERGE_BYTES, _MERGE_SHARE * 4 * graph.entries)

    def _merge_where_much_changed(self) -> None:
        """Moves the graph to fresh files once changed lists take much memory; no bit depends on it.

        Where there is no room for that, changed lists stay in memory until they have doubled.
        """
        if self._graph is None:
            return
        taken = self._native.changed_list_bytes()
        if taken < self._merge_from:
            return
        try:
            merged = _Merged(self._graph.path, self._native.nodes, self._native.extents())
        except OSError:
            self._merge_from = 2 * taken
            return
        former, self._merged = self._merged, merged
        try:
            self._native.merge_into(merged.sources, merged.targets)
        except MemoryError:
            merged.former = former  # lists of one direction may still lie there
            self._merge_from = 2 * taken
            return
        self._merge_from = max(_MERGE_BYTES, _MERGE_SHARE * 4 * merged.entries)

    def _load(self, batch: Batch) -> None:
        if batch.new_nodes or batch.feature_nodes.size or batch.removed_nodes.size:
            raise EventError(
                "initial takes edge rows only; give its nodes and features with features="
            )
        try:
            self._native.load(batch.src, batch.dst, batch.weight, batch.op, batch.t, batch.time)
        except _native.EventError as error:
            raise EventError(f"initial: {error}") from None

    def _check_precision(self, tolerance: float) -> None:
        finest = self._native.finest_tolerance()
        if not tolerance >= finest:
            r_max = self._settings.r_max / self._native.tolerance  # the one at the start
            much = (
                f" >= {_round_up(finest * r_max):g}" if np.isfinite(finest) else ", a larger one,"
            )
            advice = f"use r_max{much}" + (
                " or dtype='float64'" if self._dtype == np.float32 else ""
            )
            raise PrecisionError(
                f"r_max={tolerance * r_max:g} (unit {self._settings.r_max_unit!r}) asks for more"
                f" than {self._dtype} can hold on these features; {advice}"
            )

    def apply(self, batch: Batch) -> NDArray[np.int64]:
        """The nodes touched, sorted: those the batch names, and every other whose estimate moved.

        All or nothing: a batch that does not fit raises `EventError`, one that asks for more than
        the precision can hold `PrecisionError`, and neither changes anything.
        """
        with self._lock:
            return self._apply(batch)

    def _apply(self, batch: Batch) -> NDArray[np.int64]:
        try:
            touched = self._native.apply(
                batch.src,
                batch.dst,
                batch.weight,
                batch.op,
                batch.t,
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
        self._merge_where_much_changed()
        return touched

    def _advice(self) -> str:
        """Say what helps where the precision cannot hold what a batch brings."""
        wider = ", or use dtype='float64'" if self._dtype == np.float32 else ""
        return f"give it another unit, promise less with refine(){wider}"

    def apply_steps(
        self, batch: Batch | Steps, offsets: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """How many nodes each step touched; step `s` are the rows `offsets[s]:offsets[s+1]`.

        `Steps`, as `EventStream.steps` and `snapshots` give them, bring their offsets. One native
        call for a whole stream. Every step is all or nothing: an `EventError` names the first step
        that does not fit, and the steps before it stay applied.

        >>> from tidegraph import EventStream
        >>> stream = EventStream.from_arrays([0, 1], [1, 2], [5, 9])
        >>> Propagator(np.eye(3)).apply_steps(stream.steps()).tolist()
        [2, 3]
        """
        if isinstance(batch, Steps):
            if offsets is not None:
                raise EventError("Steps have offsets of their own; leave offsets out")
            offsets = batch.offsets
        elif offsets is None:
            raise EventError(
                f"apply_steps got {type(batch).__name__} and no offsets; give Steps, such as"
                " stream.steps(), or a Batch and the offsets of its steps"
            )
        elif batch.new_nodes or batch.feature_nodes.size or batch.removed_nodes.size:
            raise EventError(
                "apply_steps takes edge rows only; use apply for node and feature events"
            )
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
        done, refusal, of_precision = 0, "", False
        with self._lock:
            while done < counts.size and not refusal:
                end = counts.size
                if self._graph is not None:
                    until = bounds[done] + _ROWS_BETWEEN_MERGES
                    end = max(done + 1, int(np.searchsorted(bounds, until, side="right")) - 1)
                some, refusal, of_precision = self._native.apply_steps(
                    batch.src,
                    batch.dst,
                    batch.weight,
                    batch.op,
                    batch.t,
                    bounds[done : end + 1],
                    counts[done:end],
                )
                done += some
                self._merge_where_much_changed()
        if refusal:
            applied = f"the {done} steps before it are applied"
            if of_precision:
                raise PrecisionError(f"step {done}: {refusal}; {applied}; {self._advice()}")
            raise EventError(f"step {done}: {refusal}; {applied}")
        return counts

    def _record_steps(
        self,
        recorder: _native.Recorder,
        batch: Batch | Steps,
        offsets: NDArray[np.int64],
        times: NDArray[np.int64],
        limit: int,
    ) -> tuple[int, str, bool]:
        """As `apply_steps`, watched by a recorder and ending when `limit` records wait in it.

        Returns how many steps were done, why the next was refused or an empty text, and whether
        it asks for more than the precision can hold.
        """
        with self._lock:
            outcome = recorder.run(
                self._native,
                batch.src,
                batch.dst,
                batch.weight,
                batch.op,
                batch.t,
                offsets,
                times,
                limit,
            )
            self._merge_where_much_changed()
        return outcome

    def _begin_record(self, recorder: _native.Recorder, first: int, last: int) -> None:
        """Has the nodes `first` to `last` (not included) recorded as they are."""
        with self._lock:
            recorder.begin(self._native, first, last)

    def _become(self, other: Propagator) -> None:
        """Takes over the state of another one with the same settings, which is then used up."""
        with self._lock:
            self._native = other._native
            self._graph = other._graph
            self._merged, self._merge_from = other._merged, other._merge_from
            self._native.set_threads(self._threads)

    def apply_snapshot(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        t: int | None = None,
    ) -> NDArray[np.int64]:
        """Moves the graph to exactly these edges and returns the nodes touched.

        Repeated rows are merged, their weights summed. Only the difference is worked on. All or
        nothing, as `apply`.
        """
        snapshot = Batch(src=src, dst=dst, weight=weight)
        with self._lock:
            try:
                rows = self._native.difference(snapshot.src, snapshot.dst, snapshot.weight)
            except _native.EventError as error:
                raise EventError(str(error)) from None
            # Whatever could be wrong with a row was said by now, counting the rows given here.
            return self._apply(Batch(src=rows[0], dst=rows[1], weight=rows[2], op=rows[3], t=t))

    def refine(self, r_max: float) -> None:
        """Moves the promised error to a new `r_max`, in the unit chosen at the start."""
        settings = dataclasses.replace(self._settings, r_max=r_max)
        with self._lock:
            factor = settings.r_max / self._settings.r_max * self._native.tolerance
            self._check_precision(factor)
            try:
                self._native.refine(factor)
            finally:  # interrupted, it may have begun
                if self._native.tolerance == factor:
                    self._settings = settings

    def repair(self) -> None:
        """Compute all residuals from scratch; needed only by those who distrust the account."""
        with self._lock:
            self._native.repair()

    def embedding(self, nodes: ArrayLike | None = None) -> NDArray[Any]:
        """The estimates `[k, channels, columns]` of the given nodes, or of all.

        Raises `PrecisionError` where one is beyond the largest number of `dtype`.
        """
        return self._finite(self._rows("embedding", nodes, self._dtype, channels=True))

    def _finite(self, estimates: NDArray[Any]) -> NDArray[Any]:
        if not np.isfinite(estimates).all():
            wider = " or use dtype='float64'" if self._dtype == np.float32 else ""
            raise PrecisionError(
                f"an estimate is beyond {np.finfo(self._dtype).max:.2g}, the largest {self._dtype};"
                f" give features and gamma0 in other units{wider}"
            )
        return estimates

    def residual(self, nodes: ArrayLike | None = None) -> NDArray[Any]:
        """What is left to push, `[k, channels, columns]`."""
        return self._rows("residual", nodes, self._dtype, channels=True)

    def features(self, nodes: ArrayLike | None = None) -> NDArray[np.float64]:
        """The features `[k, columns]` that are being propagated."""
        return self._rows("features", nodes, np.dtype(np.float64))

    def degree(self, nodes: ArrayLike | None = None) -> NDArray[np.float64]:
        """Degrees `[k, channels]`, self-loops included, decayed weights at their present value."""
        ids = self._ids(nodes)
        out = np.empty((ids.size, len(self.channels)))
        with self._lock:
            self._native.degree(ids, out)
        return out

    def threshold(self, nodes: ArrayLike | None = None) -> NDArray[np.float64]:
        """The promise `[k, channels, columns]`: how far an estimate may be from exact."""
        return self._rows("threshold", nodes, np.dtype(np.float64), channels=True)

    def error_bound(self, nodes: ArrayLike | None = None) -> NDArray[np.float64]:
        """A certificate `[k, channels, columns]`: exact is at most this far from `embedding`.

        Computed from the estimates and the graph alone, in float64, with one pass over all edges:
        it needs no trust in the stored residuals and includes every rounding error ever made.
        """
        return self._rows("error_bound", nodes, np.dtype(np.float64), channels=True)

    def audit(self) -> Audit:
        """How far stored residuals have drifted from the true ones, over the threshold."""
        with self._lock:
            drift, residual, untracked = self._native.audit()
        return Audit(
            drift=np.array(drift), residual=np.array(residual), untracked=np.array(untracked)
        )

    def edges(
        self, channel: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """`src, dst, weight` of the graph, or of what a channel sees; undirected edges once."""
        number = None if channel is None else self._channel(channel)
        with self._lock:
            return self._native.edges(number)

    def loops(self, channel: int) -> NDArray[np.float64]:
        """The self-loop each node carries in a channel now."""
        number = self._channel(channel)
        with self._lock:
            out = np.empty(self._native.nodes)
            self._native.loops(number, out)
        return out

    def _channel(self, channel: Any) -> int:
        if isinstance(channel, (int, np.integer)) and 0 <= channel < len(self.channels):
            return int(channel)
        raise ParameterError(
            f"channel is {channel!r}; there are channels 0 to {len(self.channels) - 1}"
        )

    def _finish(self) -> NDArray[Any]:
        """`embedding()` of all nodes in less memory, after which this object is of no more use."""
        with self._lock:
            out = np.empty((self._native.nodes, len(self.channels), self.columns), self._dtype)
            self._native.finish(out)
        return self._finite(out)

    def statistics(self) -> dict[str, int]:
        """Counters since the start (events, pushes, edge_pushes, …) and sizes in bytes."""
        with self._lock:
            return dict(self._native.statistics())

    def _ids(self, nodes: ArrayLike | None) -> NDArray[np.int64]:
        count = self.nodes
        if nodes is None:
            return np.arange(count)
        ids = np.atleast_1d(np.asarray(nodes))
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise EventError(
                f"nodes has dtype {ids.dtype} and shape {ids.shape}; give integer ids [k]"
            )
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= count):
            wrong = ids[(ids < 0) | (ids >= count)][0]
            raise EventError(f"node {wrong} was asked for; there are nodes 0 to {count - 1}")
        return ids

    def _rows(
        self, what: str, nodes: ArrayLike | None, dtype: np.dtype[Any], channels: bool = False
    ) -> NDArray[Any]:
        ids = self._ids(nodes)
        shape = (
            (ids.size, len(self.channels), self.columns) if channels else (ids.size, self.columns)
        )
        out = np.empty(shape, dtype=dtype)
        with self._lock:
            getattr(self._native, what)(ids, out)
        return out

    @property
    def nodes(self) -> int:
        """Number of nodes, removed ones included: ids are never used again."""
        with self._lock:
            return int(self._native.nodes)

    @property
    def columns(self) -> int:
        return int(self._thresholds.size)

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self._settings.channels

    @property
    def directed(self) -> bool:
        return self._settings.directed

    @property
    def beta(self) -> float:
        return self._settings.beta

    @property
    def r_max(self) -> float:
        return self._settings.r_max

    @property
    def r_max_unit(self) -> RMaxUnit:
        return self._settings.r_max_unit

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def time(self) -> int | None:
        """The time of the last batch that had one."""
        with self._lock:
            return self._native.time

    def _description(self) -> dict[str, Any]:
        return {
            "kind": "propagator",
            "layout": _STATE_LAYOUT,
            "settings": dataclasses.asdict(self._settings),
            "nodes": self._native.nodes,
            "dtype": self._dtype.name,
            "block_columns": self._block_columns,
            "sketch": None if self._sketch is None else dataclasses.asdict(self._sketch),
            "graph": None
            if self._graph is None
            else {
                "path": str(self._graph.path.resolve()),
                "fingerprint": self._graph.fingerprint,
            },
        }

    def save(self, path: str | Path) -> None:
        """Writes everything needed to go on to the bit; the file appears whole or not at all."""
        with self._lock:
            statefile.write(path, self._description(), self._arrays())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"thresholds": self._thresholds, **self._native.state()}

    @classmethod
    def load(cls, path: str | Path, *, threads: int | None = None) -> Propagator:
        """The propagator that was saved; it continues as if it had never stopped."""
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
        if description.get("kind") != "propagator":
            raise StateFileError(f"{source} holds a {description.get('kind')}, not a propagator")
        if description.get("layout") != _STATE_LAYOUT:
            raise StateFileError(
                f"{source} has state layout {description.get('layout', 1)}; this release reads"
                f" layout {_STATE_LAYOUT}: load it with the release that saved it"
            )
        settings = dict(description["settings"])
        settings["channels"] = tuple(Channel(**channel) for channel in settings["channels"])
        propagator = cls.__new__(cls)
        propagator._build(
            Settings(**settings),
            description["nodes"],
            arrays.pop("thresholds"),
            description["dtype"],
            threads,
            description["block_columns"],
            None if description["sketch"] is None else Sketch(**description["sketch"]),
        )
        if (saved := description.get("graph")) is not None:
            try:
                graph = open_graph(saved["path"])
            except DataError as error:
                raise StateFileError(
                    f"{source} stands on a graph in a directory: {error}"
                ) from None
            if graph.fingerprint != saved["fingerprint"]:
                raise StateFileError(
                    f"{source} stands on another graph than the one now in {graph.path};"
                    " bring back the one it was saved with"
                )
            propagator._stand_on(graph)
        try:
            propagator._native.restore(arrays)
        except _native.ArchiveError as error:
            raise StateFileError(f"{source}: {error}") from None
        propagator._merge_where_much_changed()
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
        return (
            f"Propagator(nodes={self.nodes}, columns={self.columns}, channels={len(self.channels)},"
            f" r_max={self.r_max:g} {self.r_max_unit}, dtype={self._dtype})"
        )


def _unpack(data: bytes, threads: int) -> Propagator:
    return Propagator._from_state(
        *statefile.unpack(data), source="the pickled state", threads=threads
    )


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
    """Features propagated over a static graph, `[nodes, columns]`: GeneralPropagation.

    A low-pass filter with `alpha`, or the given `channel`; `options` are those of `Propagator`.
    C-contiguous floating-point features are read where they lie, so nobody may write to them
    meanwhile.

    >>> propagate([0, 1], [1, 2], np.eye(3)).shape
    (3, 3)
    """
    filters = (channel if channel is not None else Channel.low_pass(alpha),)
    source = _Features(features, options.pop("nodes", None), still=True)
    propagator = Propagator(
        source, channels=filters, initial=Batch(src=src, dst=dst, weight=weight), **options
    )
    return propagator._finish()[:, 0]


class _Lock:
    """A lock that a signal handler cannot wait for while it interrupts the call that holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise RuntimeError(
                "a signal handler called a propagator during a call that it interrupts; note what"
                " is to be done, and do it afterwards"
            )
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = None
        self._lock.release()


class _Merged:
    """Room for the lists of a compact graph and what changed in it, in files without a name.

    Beside the graph, or where that cannot be written to, in the system's folder for such files.
    Space is reserved: memory mapped to a full disk would end the process when it is written to.
    """

    def __init__(self, beside: Path, nodes: int, extents: list[tuple[int, bool, bool]]) -> None:
        self.former: _Merged | None = None  # that has to outlive this one
        self._beside = beside if os.access(beside, os.W_OK) else None
        self.entries = sum(entries for entries, _, _ in extents)
        self.sources, *others = (
            (
                self._room(nodes + 1, np.uint64),
                self._room(entries, np.uint32),
                None if plain else self._room(entries, np.float32),
                self._room(entries, np.int32) if fine else None,
            )
            for entries, plain, fine in extents
        )
        self.targets = others[0] if others else None

    def _room(self, count: int, dtype: Any) -> NDArray[Any]:
        size = count * np.dtype(dtype).itemsize
        if size == 0:
            return np.empty(0, dtype=dtype)
        with tempfile.TemporaryFile(dir=self._beside) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=(count,)))


class _Features:
    """Features to start with: a sketch, or rows that are never copied as a whole.

    still: nobody writes to the array while features are needed, though it may be writeable.
    """

    def __init__(self, features: Any, nodes: int | None, *, still: bool = False) -> None:
        self._still = still
        if isinstance(features, Sketch):
            if isinstance(nodes, bool) or not isinstance(nodes, (int, np.integer)) or nodes < 0:
                raise ParameterError(f"nodes is {nodes!r}; with a Sketch give the number of nodes")
            self.nodes, self.columns = int(nodes), features.columns
            self.sketch: Sketch | None = features
            self._array = np.empty((0, self.columns))
            return
        try:
            array = np.asarray(features)
        except (ValueError, TypeError) as error:
            raise ParameterError(f"features are not a matrix of numbers: {error}") from None
        if array.dtype.kind not in "fiu":
            raise ParameterError(f"features have dtype {array.dtype}; give floating-point numbers")
        if array.ndim != 2 or array.shape[1] == 0:
            raise ParameterError(f"features have shape {array.shape}; give [nodes, columns]")
        if nodes is not None and nodes != array.shape[0]:
            raise ParameterError(
                f"nodes is {nodes} but features has {array.shape[0]} rows; leave it out"
            )
        self.nodes, self.columns = array.shape
        self.sketch = None
        self._array = array

    def check(self, dtype: Dtype) -> None:
        """Refuses numbers that cannot be propagated."""
        for first, rows in self.pieces():
            wider = " or use dtype='float64'" if dtype == "float32" else ""
            check_features(rows, dtype, first_node=first, advice=f"scale the column{wider}")

    def lasting(self) -> NDArray[Any] | None:
        """The array, where it can be read in place for as long as features are needed."""
        array = self._array
        if self.sketch is not None or array.dtype.str not in _BORROWABLE:
            return None
        if not (array.flags.c_contiguous and array.flags.aligned):
            return None
        if self._still:
            return array
        owner: Any = array
        while isinstance(owner, np.ndarray):
            if owner.flags.writeable:  # a view may be read-only and what it shows may not
                return None
            owner = owner.base
        return array if _never_changes(owner) else None

    def pieces(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """`(first node, float64 rows)` from first to last; of a sketch there are none."""
        for first in range(0, len(self._array), _FEATURE_ROWS):
            rows = self._array[first : first + _FEATURE_ROWS]
            yield first, np.ascontiguousarray(rows, dtype=np.float64)

    def norms(self, unit: RMaxUnit) -> NDArray[np.float64]:
        """What `r_max` counts in, per column; 1 where a column is zero."""
        if self.sketch is not None:
            return column_norms(self.sketch, unit, self.nodes)
        if unit == "absolute" or self.nodes == 0:
            return np.ones(self.columns)
        peak, total = np.zeros(self.columns), np.zeros(self.columns)
        for _, rows in self.pieces():
            peak = np.maximum(peak, np.abs(rows).max(axis=0))
        peak[peak == 0] = 1.0  # relative to it no square can overflow or vanish
        for _, rows in self.pieces():
            sizes = np.abs(rows) / peak
            total += np.square(sizes).sum(axis=0) if unit == "rms" else sizes.sum(axis=0)
        norms = peak * np.sqrt(total / self.nodes) if unit == "rms" else peak * total
        return np.where(norms > 0, norms, 1.0)


def _check_promise_in_range(
    settings: Settings, thresholds: NDArray[np.float64], dtype: Dtype
) -> None:
    """Raise ParameterError where `dtype` cannot hold errors as small or large as promised."""
    info = np.finfo(dtype)
    for channel in settings.channels:
        degree = (settings.self_loop or 2.0**-40) / 2
        scale = abs(channel.gamma0) / (1 - abs(channel.gamma))
        least = scale * degree ** (1 - settings.beta_of(channel))
        promised = thresholds * min(least, scale, 1.0)
        if not (np.isfinite(thresholds) & (promised > 256 * float(info.tiny))).all():
            wider = " or use dtype='float64'" if dtype == "float32" else ""
            raise ParameterError(
                f"r_max={settings.r_max:g} times the norm of a column and gamma0={channel.gamma0:g}"
                f" leaves the range of {dtype}; scale the features{wider}"
            )


def check_dtype(dtype: Any) -> None:
    """Refuses what is not a dtype in which can be computed."""
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"dtype is {dtype!r}; give 'float32' or 'float64'")


def check_features(rows: NDArray[Any], dtype: Dtype, *, first_node: int, advice: str) -> None:
    """Refuses rows of features of which `dtype` cannot hold a value, and names that.

    advice: what to do with one that is too large.
    """
    largest = np.finfo(dtype).max
    held = np.abs(rows) <= largest  # NaN is not
    if held.all():
        return
    row, column = np.argwhere(~held)[0]
    value = rows[row, column]
    problem = (
        f"beyond {largest:.2g}, the largest {dtype}; {advice}"
        if np.isfinite(value)
        else "where a finite number is needed; replace it"
    )
    raise ParameterError(
        f"the feature of node {first_node + row} in column {column} is {value:g}, {problem}"
    )


def _never_changes(owner: Any) -> bool:
    """Whether nobody can write to the memory that an array shows and does not own."""
    while owner is not None:
        try:
            view = memoryview(owner)
        except TypeError:  # it does not say
            return False
        if not view.readonly:
            return False
        # A read-only view may show what can be written to by its owner.
        owner = view.obj if isinstance(owner, memoryview) else None
    return True


def _version(channel: Channel, settings: Settings) -> tuple[int, float, int, int]:
    """Kind, half-life, span and forgetting of the version of the graph a channel reads."""
    if channel.half_life is not None:
        return _DECAY, channel.half_life, 0, settings.forget_bits(channel.half_life)
    if channel.window is not None:
        return _WINDOW, 0.0, channel.window, 0
    if channel.last is not None:
        return _LAST, 0.0, channel.last, 0
    return _ALL, 0.0, 0, 0


def _thread_count(threads: Any) -> int:
    if threads is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if (
        isinstance(threads, bool)
        or not isinstance(threads, (int, np.integer))
        or not 1 <= threads <= 1024
    ):
        raise ParameterError(
            f"threads is {threads!r}; give a number from 1 to 1024, or None for all cores"
        )
    return int(threads)


def _round_up(value: float) -> float:
    """To two significant digits, upwards, so that the advice given is advice that works."""
    step = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(np.ceil(value / step) * step)
