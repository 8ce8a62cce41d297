"""What a propagator is told to compute: filters on versions of the graph, and random features."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import ParameterError

__all__ = [
    "Audit",
    "Channel",
    "Direction",
    "Distribution",
    "RMaxUnit",
    "Settings",
    "Sketch",
    "column_norms",
    "feature_matrix",
    "is_number",
]

Direction: TypeAlias = Literal["out", "in", "both"]
Distribution: TypeAlias = Literal["gaussian", "uniform", "sign"]
RMaxUnit: TypeAlias = Literal["rms", "absolute", "l1"]

_MAX_HALF_LIVES = 63  # each is a further weight per edge
_WINDOW_LIMIT = 2**62  # as for times: no sum or difference leaves int64


def is_number(value: Any, kinds: Any) -> bool:
    """Whether it is a finite one of those kinds; a truth value is none."""
    return isinstance(value, kinds) and not isinstance(value, bool) and abs(value) < math.inf


def _real(value: Any, name: str, accepted: str) -> float:
    """`value` as a finite float; texts, booleans and arrays are not numbers here."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        raise ParameterError(f"{name} is {value!r}; give {accepted}")
    number = float(value)
    if not math.isfinite(number):
        raise ParameterError(f"{name} is {value!r}; give {accepted}")
    return number


def _count(value: Any, name: str, accepted: str) -> int:
    """`value` as a positive int below 2**62."""
    try:
        number = 0 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = 0
    if not 0 < number < _WINDOW_LIMIT:
        raise ParameterError(f"{name} is {value!r}; give {accepted}")
    return number


@dataclass(frozen=True)
class Channel:
    """One filter on one version of the graph: `pi = gamma0 · Σ_k (gamma·P)^k · x`.

    The version is all edges, or the edges forgotten with `half_life`, or those of the last `window`
    units of time, or those of the `last` events. On a directed graph `direction` says which edges
    a node gathers from: those it sends ("out"), receives ("in"), or both, added up.
    `beta` None means the propagator's.

    >>> channel = Channel.low_pass(0.2, half_life=3600)
    >>> channel.gamma0, channel.gamma
    (0.2, 0.8)
    """

    gamma0: float
    gamma: float
    half_life: float | None = None
    window: int | None = None
    last: int | None = None
    direction: Direction = "out"
    beta: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "gamma0", _real(self.gamma0, "gamma0", "a finite number other than 0"))
        put(self, "gamma", _real(self.gamma, "gamma", "a number with 0 < |gamma| < 1"))
        if self.gamma0 == 0:
            raise ParameterError("gamma0 is 0; give a finite number other than 0")
        if not 0 < abs(self.gamma) < 1:
            raise ParameterError(
                f"gamma is {self.gamma}; the series converges for 0 < |gamma| < 1 only"
            )
        if sum(rule is not None for rule in (self.half_life, self.window, self.last)) > 1:
            raise ParameterError(
                f"half_life={self.half_life}, window={self.window}, last={self.last}: a channel"
                " forgets in one way at most; use several channels"
            )
        if self.half_life is not None:
            accepted = "a number of time units, at least 0.001 and below 2**62"
            put(self, "half_life", _real(self.half_life, "half_life", accepted))
            if not 1e-3 <= self.half_life < _WINDOW_LIMIT:
                raise ParameterError(f"half_life is {self.half_life}; give {accepted}")
        if self.window is not None:
            accepted = "a positive whole number of time units, below 2**62"
            put(self, "window", _count(self.window, "window", accepted))
        if self.last is not None:
            accepted = "a positive whole number of events, below 2**62"
            put(self, "last", _count(self.last, "last", accepted))
        if self.direction not in get_args(Direction):
            raise ParameterError(f"direction is {self.direction!r}; give 'out', 'in' or 'both'")
        if self.beta is not None:
            put(self, "beta", _real(self.beta, "beta", "a number from 0 to 1, or None"))
            if not 0 <= self.beta <= 1:
                raise ParameterError(f"beta is {self.beta}; give a number from 0 to 1, or None")

    @classmethod
    def low_pass(cls, alpha: float = 0.2, **version: Any) -> Channel:
        """Personalised PageRank: `gamma0 = alpha, gamma = 1 - alpha`."""
        alpha = _alpha(alpha)
        return cls(alpha, 1 - alpha, **version)

    @classmethod
    def high_pass(cls, alpha: float = 0.2, **version: Any) -> Channel:
        """The same with alternating signs: `gamma0 = alpha, gamma = alpha - 1`."""
        alpha = _alpha(alpha)
        return cls(alpha, alpha - 1, **version)

    @property
    def timed(self) -> bool:
        """Whether this version of the graph depends on the times of the events."""
        return self.half_life is not None or self.window is not None


def _alpha(alpha: float) -> float:
    accepted = "a number strictly between 0 and 1"
    if not 0 < _real(alpha, "alpha", accepted) < 1:
        raise ParameterError(f"alpha is {alpha}; give {accepted}")
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
    """The finaliser of splitmix64; arrays of uint64 wrap around silently, as meant."""
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Sketch:
    """Random features as a function of (seed, node, column): nothing to store, new nodes included.

    Integer arithmetic up to one final division, so every implementation agrees to the bit.
    "gaussian" is the sum of twelve 16-bit integers scaled to variance 1; "uniform" lies in [0, 1);
    "sign" is -1 or 1. `first_column` is the number of the first column: the columns 8 to 15 of a
    wider sketch are `Sketch(8, first_column=8)`.

    >>> Sketch(columns=4, distribution="sign").rows([7]).shape
    (1, 4)
    """

    columns: int
    seed: int = 0
    distribution: Distribution = "gaussian"
    first_column: int = 0

    def __post_init__(self) -> None:
        first: Any = self.first_column
        if isinstance(first, bool) or not isinstance(first, int) or not 0 <= first < 2**32:
            raise ParameterError(f"first_column is {first!r}; give a number from 0 to 2**32 - 1")
        accepted = "a positive whole number of columns"
        object.__setattr__(self, "columns", _count(self.columns, "columns", accepted))
        try:
            seed = -1 if isinstance(self.seed, (bool, np.bool_)) else operator.index(self.seed)
        except TypeError:
            seed = -1
        if not 0 <= seed < 2**64:
            raise ParameterError(f"seed is {self.seed!r}; give an integer from 0 to 2**64 - 1")
        object.__setattr__(self, "seed", seed)
        if self.distribution not in get_args(Distribution):
            raise ParameterError(
                f"distribution is {self.distribution!r}; give 'gaussian', 'uniform' or 'sign'"
            )

    def part(self, first: int, columns: int) -> Sketch:
        """So many columns of this sketch from its column `first` on, as a sketch."""
        return replace(self, columns=columns, first_column=self.first_column + first)

    def rows(self, nodes: ArrayLike) -> NDArray[np.float64]:
        """Features `[len(nodes), columns]` of the given node ids."""
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


def column_norms(
    features: NDArray[np.float64] | Sketch, unit: RMaxUnit, nodes: int
) -> NDArray[np.float64]:
    """What `r_max` counts in, `[columns]`: each column's RMS, 1, or its L1 norm; 1 where that is 0.

    A sketch answers in theory and not from its rows, so that the value does not depend on luck.
    """
    if isinstance(features, Sketch):
        theory = {
            "rms": _RMS[features.distribution],
            "absolute": 1.0,
            "l1": nodes * _MEAN_ABS[features.distribution],
        }
        norms = np.full(features.columns, theory[unit])
    elif unit == "absolute" or nodes == 0:
        norms = np.ones(features.shape[1])
    elif unit == "rms":
        norms = np.sqrt(np.mean(np.square(features), axis=0))
    else:
        norms = np.abs(features).sum(axis=0)
    return np.where(norms > 0, norms, 1.0)


def feature_matrix(features: Any, nodes: int | None) -> NDArray[np.float64]:
    """The features to start with as a fresh float64 `[n, columns]`; a sketch needs `nodes`."""
    if isinstance(features, Sketch):
        if isinstance(nodes, bool) or not isinstance(nodes, (int, np.integer)) or nodes < 0:
            raise ParameterError(f"nodes is {nodes!r}; with a Sketch give the number of nodes")
        return features.rows(np.arange(nodes))
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
    if not np.isfinite(array).all():
        raise ParameterError("features hold NaN or infinity; they must be finite")
    return array.astype(np.float64, order="C")


@dataclass(frozen=True)
class Settings:
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
        try:
            put(self, "channels", tuple(self.channels))
        except TypeError:
            put(self, "channels", ())
        if not self.channels or not all(isinstance(c, Channel) for c in self.channels):
            raise ParameterError("channels must be a sequence of one or more Channel objects")
        put(self, "beta", _real(self.beta, "beta", "a number from 0 to 1"))
        put(self, "r_max", _real(self.r_max, "r_max", "a positive number"))
        put(self, "self_loop", _real(self.self_loop, "self_loop", "a weight of 0 or more"))
        for name in ("directed", "scale_by_degree"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ParameterError(f"{name} is {getattr(self, name)!r}; give True or False")
            put(self, name, bool(getattr(self, name)))
        if not 0 <= self.beta <= 1:
            raise ParameterError(f"beta is {self.beta}; give a number from 0 to 1")
        if self.r_max <= 0:
            raise ParameterError(f"r_max is {self.r_max}; give a positive number, such as 1e-2")
        if self.r_max_unit not in get_args(RMaxUnit):
            raise ParameterError(
                f"r_max_unit is {self.r_max_unit!r}; give 'rms', 'absolute' or 'l1'"
            )
        if self.self_loop != 0 and not 2.0**-32 <= self.self_loop <= 2.0**64:
            raise ParameterError(
                f"self_loop is {self.self_loop}; give 0 or a weight between 2^-32 and 2^64"
            )
        if self.directed and self.self_loop == 0:
            raise ParameterError(
                "directed=True needs self_loop > 0: nodes without out-edges may still be pointed at"
            )
        half_lives = {c.half_life for c in self.channels if c.half_life is not None}
        if len(half_lives) > _MAX_HALF_LIVES:
            raise ParameterError(
                f"the channels have {len(half_lives)} different half-lives; one propagator takes"
                f" at most {_MAX_HALF_LIVES}: share the channels out over several"
            )
        for number, channel in enumerate(self.channels):
            if channel.direction != "out" and not self.directed:
                raise ParameterError(
                    f"channel {number} has direction={channel.direction!r}, which only directed"
                    " graphs have; leave it out or set directed=True"
                )

    def beta_of(self, channel: Channel) -> float:
        """The normalisation this channel uses."""
        return self.beta if channel.beta is None else channel.beta

    def forget_bits(self, half_life: float) -> int:
        """F: without self-loops a decayed edge is forgotten after F half-lives or more (8 to 24).

        It goes at the first boundary, a whole number of half-lives after the first event, at which
        it is lighter than `2^-F` times the lightest weight that any earlier batch gave or left. The
        threshold of a node shrinks by `2^(F·(1-beta))` until then, which F keeps near 2^8 for every
        channel that shares the half-life. With self-loops, which are renewed at every boundary,
        edges fade away, and go when all that go in a row weigh less than rounding.
        """
        betas = [self.beta_of(c) for c in self.channels if c.half_life == half_life]
        lowest = min(betas)
        return 24 if lowest == 1 else min(max(math.floor(8 / (1 - lowest)), 8), 24)


@dataclass(frozen=True, eq=False)
class Audit:
    """How far a propagator has drifted, per channel, as multiples of its stopping threshold.

    drift: the largest difference between the stored and the true residual of the stored estimate.
    residual: the largest true residual; at most 1 after every call.
    untracked: how far, at most, a drift exceeds what the engine has accounted for; 0 if none does.
    """

    drift: NDArray[np.float64]  # [channels]
    residual: NDArray[np.float64]  # [channels]
    untracked: NDArray[np.float64]  # [channels]
