"""What a propagator computes: filters on versions of the graph, random features, settings."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import ParameterError

Direction: TypeAlias = Literal["out", "in", "both"]
Distribution: TypeAlias = Literal["gaussian", "uniform", "sign"]
RMaxUnit: TypeAlias = Literal["rms", "absolute", "l1"]

_MAX_HALF_LIVES = 63  # each adds a weight to every edge
_WINDOW_LIMIT = 2**62  # as for times: no sum or difference overflows int64


def is_number(value: Any, kinds: Any) -> bool:
    """Return whether `value` is a finite number of one of these kinds; booleans are not."""
    return isinstance(value, kinds) and not isinstance(value, bool) and abs(value) < math.inf


def _real(settings: Any, name: str, accepted: str, holds: Callable[[float], bool]) -> None:
    """Make a field a float; raise ParameterError unless it is a finite number that `holds`."""
    value = getattr(settings, name)
    if not (is_number(value, (int, float, np.number)) and holds(float(value))):
        raise ParameterError(f"{name} is {value!r}; give {accepted}")
    object.__setattr__(settings, name, float(value))


def _whole(settings: Any, name: str, accepted: str, least: int, end: int) -> None:
    """Make a field an int; raise ParameterError unless it is whole, from `least` to below `end`."""
    value = getattr(settings, name)
    try:
        number = least - 1 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number < end:
        raise ParameterError(f"{name} is {value!r}; give {accepted}")
    object.__setattr__(settings, name, number)


def _one_of(settings: Any, name: str, choices: Any) -> None:
    """Raise ParameterError unless a field is one of the choices of a Literal."""
    value = getattr(settings, name)
    if value not in get_args(choices):
        *others, last = map(repr, get_args(choices))
        raise ParameterError(f"{name} is {value!r}; give {', '.join(others)} or {last}")


@dataclass(frozen=True)
class Channel:
    """One filter on one version of the graph: `pi = gamma0 · Σ_k (gamma·P)^k · x`.

    The version is all edges, edges whose weight halves every `half_life`, edges of the last
    `window` units of time, or edges of the `last` events. On a directed graph `direction` says
    which edges a node gathers from: those it sends ("out"), those it receives ("in"), or the sum of
    both. With `beta=None` the channel uses the propagator's `beta`.

    >>> channel = Channel.low_pass(0.2, half_life=3600)
    >>> channel, channel.gamma0, channel.gamma
    (Channel.low_pass(0.2, half_life=3600.0), 0.2, 0.8)
    """

    gamma0: float
    gamma: float
    half_life: float | None = None
    window: int | None = None
    last: int | None = None
    direction: Direction = "out"
    beta: float | None = None

    def __post_init__(self) -> None:
        _real(self, "gamma0", "a finite number other than 0", lambda gamma0: gamma0 != 0)
        _real(self, "gamma", "a number with 0 < |gamma| < 1", lambda gamma: 0 < abs(gamma) < 1)
        if sum(rule is not None for rule in (self.half_life, self.window, self.last)) > 1:
            raise ParameterError(
                f"half_life={self.half_life}, window={self.window}, last={self.last}: a channel"
                " forgets in at most one way; use several channels"
            )
        if self.half_life is not None:
            accepted = "a number of time units, at least 0.001 and below 2**62"
            _real(self, "half_life", accepted, lambda time: 1e-3 <= time < _WINDOW_LIMIT)
        for name, counted in (("window", "time units"), ("last", "events")):
            if getattr(self, name) is not None:
                accepted = f"a positive whole number of {counted}, below 2**62"
                _whole(self, name, accepted, 1, _WINDOW_LIMIT)
        _one_of(self, "direction", Direction)
        if self.beta is not None:
            _real(self, "beta", "a number from 0 to 1, or None", lambda beta: 0 <= beta <= 1)

    @classmethod
    def low_pass(cls, alpha: float = 0.2, **version: Any) -> Channel:
        """Return personalised PageRank: `gamma0 = alpha, gamma = 1 - alpha`."""
        alpha = _alpha(alpha)
        return cls(alpha, 1 - alpha, **version)

    @classmethod
    def high_pass(cls, alpha: float = 0.2, **version: Any) -> Channel:
        """Return the filter with alternating signs: `gamma0 = alpha, gamma = alpha - 1`."""
        alpha = _alpha(alpha)
        return cls(alpha, alpha - 1, **version)

    @property
    def timed(self) -> bool:
        """Whether this version of the graph depends on the times of the events."""
        return self.half_life is not None or self.window is not None

    @property
    def sees_all_edges(self) -> bool:
        """Whether the channel forgets nothing: neither decay nor a window."""
        return not self.timed and self.last is None

    def __repr__(self) -> str:
        version = _changed_fields(self, skip=("gamma0", "gamma"))
        for name, gamma in (("low_pass", 1 - self.gamma0), ("high_pass", self.gamma0 - 1)):
            if 0 < self.gamma0 < 1 and gamma == self.gamma:
                return f"Channel.{name}({', '.join([repr(self.gamma0), *version])})"
        gammas = [f"gamma0={self.gamma0!r}", f"gamma={self.gamma!r}"]
        return f"Channel({', '.join([*gammas, *version])})"


def _changed_fields(settings: Any, *, skip: tuple[str, ...]) -> list[str]:
    """Return `name=value` for the fields of a dataclass that differ from their defaults."""
    return [
        f"{field.name}={getattr(settings, field.name)!r}"
        for field in fields(settings)
        if field.name not in skip and getattr(settings, field.name) != field.default
    ]


def _alpha(alpha: float) -> float:
    if not (is_number(alpha, (int, float, np.number)) and 0 < alpha < 1):
        raise ParameterError(f"alpha is {alpha!r}; give a number strictly between 0 and 1")
    return float(alpha)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_PIECE = np.uint64(0xFFFF)
_GAUSSIAN_MEAN = 12 * 65535 // 2  # of twelve 16-bit integers; their variance is 65536**2 - 1
_GAUSSIAN_STD = math.sqrt(65536.0**2 - 1)
_RMS = {"gaussian": 1.0, "uniform": 1 / math.sqrt(3), "sign": 1.0}
# E|x| of twelve summed uniforms: 2/13! · Σ_k (-1)^k C(12, k) (6 - k)^13, 0.4 % above a normal's.
_GAUSSIAN_ABS = (
    2 * sum((-1) ** k * math.comb(12, k) * (6 - k) ** 13 for k in range(6)) / math.factorial(13)
)
_MEAN_ABS = {"gaussian": _GAUSSIAN_ABS, "uniform": 0.5, "sign": 1.0}


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the finaliser of splitmix64; uint64 arrays wrap around silently, as intended."""
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Sketch:
    """Random features as a function of (seed, node, column): nothing is stored, even for new nodes.

    Arithmetic is on integers up to one final division, so every implementation agrees to the bit.
    "gaussian" is the sum of twelve 16-bit integers scaled to variance 1; "uniform" lies in [0, 1);
    "sign" is -1 or 1. `first_column` is the number of the first column: columns 8 to 15 of a wider
    sketch are `Sketch(8, first_column=8)`.

    >>> Sketch(columns=4, distribution="sign").rows([7]).shape
    (1, 4)
    """

    columns: int
    seed: int = 0
    distribution: Distribution = "gaussian"
    first_column: int = 0

    def __post_init__(self) -> None:
        _whole(self, "columns", "a positive whole number of columns", 1, _WINDOW_LIMIT)
        _whole(self, "seed", "an integer from 0 to 2**64 - 1", 0, 2**64)
        _one_of(self, "distribution", Distribution)
        _whole(self, "first_column", "a number from 0 to 2**32 - 1", 0, 2**32)

    def part(self, first: int, columns: int) -> Sketch:
        """Return the sketch of this many columns, starting at column `first` of this one."""
        return replace(self, columns=columns, first_column=self.first_column + first)

    def rows(self, nodes: ArrayLike) -> NDArray[np.float64]:
        """Return the features `[len(nodes), columns]` of nodes, given by their numbers."""
        ids = np.atleast_1d(np.asarray(nodes, dtype=np.uint64))
        columns = np.arange(self.columns, dtype=np.uint64) + np.uint64(self.first_column)
        key = _mix(np.array([self.seed], dtype=np.uint64) + _GOLDEN)
        h = _mix(_mix(key ^ (ids + _GOLDEN))[:, None] ^ (columns + _GOLDEN))  # [nodes, columns]
        if self.distribution == "sign":
            return np.where(h >> np.uint64(63), 1.0, -1.0)
        if self.distribution == "uniform":
            return (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
        total = np.zeros(h.shape, dtype=np.uint64)
        for _ in range(3):
            for shift in (0, 16, 32, 48):
                total += (h >> np.uint64(shift)) & _PIECE
            h = _mix(h + _GOLDEN)
        return (total.astype(np.float64) - _GAUSSIAN_MEAN) / _GAUSSIAN_STD

    def norms(self, unit: RMaxUnit, nodes: int) -> NDArray[np.float64]:
        """Return the unit of `r_max` per column: its RMS, 1, or its L1 norm over so many nodes.

        These are expected values, not those of the rows, so that they do not depend on chance.
        """
        expected = {
            "rms": _RMS[self.distribution],
            "absolute": 1.0,
            "l1": nodes * _MEAN_ABS[self.distribution],
        }
        return np.full(self.columns, expected[unit] or 1.0)

    def __repr__(self) -> str:
        changed = _changed_fields(self, skip=("columns",))
        return f"Sketch({', '.join([repr(self.columns), *changed])})"


@dataclass(frozen=True)
class EngineSettings:
    """The settings of a propagator that decide what it computes and how closely."""

    channels: tuple[Channel, ...] = (Channel.low_pass(),)
    directed: bool = False
    beta: float = 0.5
    r_max: float = 1e-2
    r_max_unit: RMaxUnit = "rms"
    scale_by_degree: bool = True
    self_loop: float = 1.0

    def __post_init__(self) -> None:
        put = object.__setattr__
        given: Any = self.channels
        put(self, "channels", tuple(given) if np.iterable(given) else ())
        if not self.channels or not all(isinstance(c, Channel) for c in self.channels):
            raise ParameterError("channels must be a sequence of one or more Channel objects")
        for name in ("directed", "scale_by_degree"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ParameterError(f"{name} is {getattr(self, name)!r}; give True or False")
            put(self, name, bool(getattr(self, name)))
        _real(self, "beta", "a number from 0 to 1", lambda beta: 0 <= beta <= 1)
        _real(self, "r_max", "a positive number, such as 1e-2", lambda r_max: r_max > 0)
        _one_of(self, "r_max_unit", RMaxUnit)
        accepted = "0 or a weight between 2^-32 and 2^64"
        _real(self, "self_loop", accepted, lambda w: w == 0 or 2.0**-32 <= w <= 2.0**64)
        if self.directed and self.self_loop == 0:
            raise ParameterError(
                "directed=True needs self_loop > 0: nodes without out-edges may still be pointed at"
            )
        half_lives = {c.half_life for c in self.channels if c.half_life is not None}
        if len(half_lives) > _MAX_HALF_LIVES:
            raise ParameterError(
                f"the channels have {len(half_lives)} different half-lives; one propagator takes"
                f" at most {_MAX_HALF_LIVES}: divide the channels among several"
            )
        for number, channel in enumerate(self.channels):
            if channel.direction != "out" and not self.directed:
                raise ParameterError(
                    f"channel {number} has direction={channel.direction!r}, which only directed"
                    " graphs have; leave it out or set directed=True"
                )

    def beta_of(self, channel: Channel) -> float:
        """Return the normalisation exponent that a channel uses."""
        return self.beta if channel.beta is None else channel.beta

    def forget_bits(self, half_life: float) -> int:
        """Return F: without self-loops a decayed edge is dropped after F or more half-lives (8-24).

        An edge is dropped at the first boundary, a whole number of half-lives after the first
        event, at which it is lighter than `2^-F` times the lightest weight that any earlier batch
        gave or left. Until then the threshold of a node shrinks by `2^(F·(1-beta))`, which F keeps
        near 2^8 for every channel that shares the half-life. With self-loops, which are renewed at
        every boundary, edges fade away, and are dropped once all those of a row together weigh
        less than rounding.
        """
        lowest = min(self.beta_of(c) for c in self.channels if c.half_life == half_life)
        return 24 if lowest == 1 else min(max(math.floor(8 / (1 - lowest)), 8), 24)


@dataclass(frozen=True, eq=False)
class Audit:
    """How far a propagator has drifted, per channel, in multiples of its stopping threshold.

    drift: the largest difference between the stored and the true residual of the stored estimate.
    residual: the largest true residual; at most 1 after every call.
    untracked: the most by which a drift exceeds the engine's own account of it; 0 if none does.
    """

    drift: NDArray[np.float64]  # [channels]
    residual: NDArray[np.float64]  # [channels]
    untracked: NDArray[np.float64]  # [channels]
