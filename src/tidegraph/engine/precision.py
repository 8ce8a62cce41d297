"""What float32 and float64 can hold: checks of features, thresholds and estimates, with advice."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import ParameterError, PrecisionError
from tidegraph.engine.channels import EngineSettings

Dtype: TypeAlias = Literal["float32", "float64"]


def check_dtype(dtype: Any) -> None:
    """Raise ParameterError unless the engine supports `dtype`."""
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"dtype is {dtype!r}; give 'float32' or 'float64'")


def advise_float64(dtype: Any, *, before: str = " or use") -> str:
    """Return the end of an error that suggests the wider dtype; empty if it is in use already."""
    return f"{before} dtype='float64'" if np.dtype(dtype) == np.float32 else ""


def check_features(rows: NDArray[Any], dtype: Dtype, *, first_node: int, advice: str) -> None:
    """Raise ParameterError, naming the first offender, unless `dtype` can hold every feature.

    first_node: the node that `rows[0]` belongs to.
    advice: what to do about a value that is too large.
    """
    largest = np.finfo(dtype).max
    held = np.abs(rows) <= largest  # False for NaN
    if held.all():
        return
    row, column = np.argwhere(~held)[0]
    value = rows[row, column]
    problem = (
        f"beyond {largest:.2g}, the largest {dtype}; {advice}"
        if np.isfinite(value)
        else "but must be finite; replace it"
    )
    raise ParameterError(
        f"the feature of node {first_node + row} in column {column} is {value:g}, {problem}"
    )


def check_thresholds(
    settings: EngineSettings, thresholds: NDArray[np.float64], dtype: Dtype
) -> None:
    """Raise ParameterError if promised errors are too small or too large for `dtype`."""
    smallest = 256 * float(np.finfo(dtype).tiny)
    for channel in settings.channels:
        degree = (settings.self_loop or 2.0**-40) / 2
        scale = abs(channel.gamma0) / (1 - abs(channel.gamma))
        least = scale * degree ** (1 - settings.beta_of(channel))
        promised = thresholds * min(least, scale, 1.0)
        if not (np.isfinite(thresholds) & (promised > smallest)).all():
            raise ParameterError(
                f"r_max={settings.r_max:g} times the norm of a column and gamma0={channel.gamma0:g}"
                f" is outside the range of {dtype}; scale the features{advise_float64(dtype)}"
            )


def check_tolerance(
    tolerance: float, native: Any, settings: EngineSettings, dtype: np.dtype[Any]
) -> None:
    """Raise PrecisionError if `dtype` cannot hold a tolerance, in thresholds of the start."""
    finest = native.finest_tolerance()
    if tolerance >= finest:
        return
    r_max = settings.r_max / native.tolerance  # the one at the start
    enough = f" >= {_round_up(finest * r_max):g}" if np.isfinite(finest) else " larger"
    raise PrecisionError(
        f"r_max={tolerance * r_max:g} (unit {settings.r_max_unit!r}) asks for more than {dtype} can"
        f" hold on these features; use r_max{enough}{advise_float64(dtype, before=' or')}"
    )


def check_estimates(estimates: NDArray[Any]) -> NDArray[Any]:
    """Return the estimates; raise PrecisionError if one is beyond the largest of their dtype."""
    if not np.isfinite(estimates).all():
        dtype = estimates.dtype
        raise PrecisionError(
            f"an estimate is beyond {np.finfo(dtype).max:.2g}, the largest {dtype};"
            f" give features and gamma0 in other units{advise_float64(dtype)}"
        )
    return estimates


def _round_up(value: float) -> float:
    """Round to two significant digits, upwards, so that following the advice works."""
    step = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(np.ceil(value / step) * step)
