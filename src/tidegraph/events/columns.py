"""Checks of event columns: the one place that validates them for `Batch`, `EventStream`, `Steps`.

Every function returns a read-only array of the final dtype or raises `EventError`. With `copy` the
array is fresh; without it an array that already has the right dtype is shared.
"""

from __future__ import annotations

import operator
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import EventError, ParameterError, TidegraphError, UnknownNodeError

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]

TIME_LIMIT = 2**62  # |t| stays below it, so that no difference of two times overflows int64
WEIGHT_MIN, WEIGHT_MAX = 2.0**-64, 2.0**64  # leaves room for sums and decay in float32
WEIGHT_RANGE = "weights lie between 2**-64 and 2**64"
_SMALL = 32  # up to here a Python loop over a list beats the fixed cost of a NumPy reduction
_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)


class Op(IntEnum):
    """What a row does to its edge: add weight, remove weight, or set the weight."""

    ADD = 0
    REMOVE = 1
    SET = 2


def frozen(array: Any, *, own: bool = False) -> Any:
    """Return the array contiguous and read-only; a caller's array (`own` false) stays writable."""
    if not own:
        given, array = array, np.ascontiguousarray(array)
        if array is given and array.flags.writeable:
            array = array.view()
    array.setflags(write=False)
    return array


def whole_numbers(
    values: Any, name: str, *, advice: str = "", error: type[TidegraphError] = EventError
) -> IntArray:
    """Return `values` as int64 in the same shape; raise `error` unless they are integers that fit.

    >>> whole_numbers(np.array([3], dtype=np.uint64), "nodes")
    array([3])
    """
    array = np.asarray(values)
    if array.dtype == _INT64:
        return array
    if array.size == 0 and not isinstance(values, np.ndarray):
        return array.astype(np.int64)  # an empty list has no type
    if array.dtype.kind not in "iu":
        given = f", not {array.ravel()[:1].tolist()[0]!r}" if array.size else ""
        end = f": {advice}" if advice else ""
        raise error(f"{name} has dtype {array.dtype}; integers are needed{given}{end}")
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 2**63:
        raise error(
            f"{name} holds {int(array.max())}, which does not fit into int64; give integers below"
            " 2**63"
        )
    return array.astype(np.int64)


def integers(values: Any, name: str, rows: int | None = None, *, copy: bool = False) -> IntArray:
    """Return an int64 vector, of length `rows` where given; nothing is rounded or parsed."""
    array = _array(values, name, "a vector of integers", copy)
    if array.ndim != 1 or (rows is not None and len(array) != rows):
        wanted = "a vector, one entry per row" if rows is None else f"[{rows}], one entry per row"
        raise EventError(f"{name} has shape {array.shape}; give {wanted}")
    if array.dtype != _INT64:
        if array.size == 0 and not isinstance(values, np.ndarray):
            array = array.astype(np.int64)  # an empty list has no type
        advice = "convert with .astype('int64') if that loses nothing"
        array, copy = whole_numbers(array, name, advice=advice), True
    return frozen(array, own=copy)  # type: ignore[no-any-return]


def nodes(values: Any, name: str, rows: int | None = None, *, copy: bool = False) -> IntArray:
    """Return node numbers, which count from 0; whether such nodes exist is not checked here."""
    array = integers(values, name, rows, copy=copy)
    if array.size:
        low = min(array.tolist()) if array.size <= _SMALL else int(array.min())
        if low < 0:
            row = int(np.argmax(array < 0))
            raise EventError(f"{name} of row {row} is {array[row]}; nodes are numbered from 0")
    return array


def count(
    value: Any,
    name: str,
    accepted: str,
    *,
    least: int = 1,
    error: type[TidegraphError] = ParameterError,
) -> int:
    """Return `value` as an int; raise `error` unless it is an integer from `least` to 2**62 - 1."""
    try:
        number = -1 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = -1
    if not least <= number < TIME_LIMIT:
        raise error(f"{name} is {value!r}; give {accepted}")
    return number


def require_below(array: IntArray, count: int, name: str) -> None:
    """Raise `UnknownNodeError` if a node number is `count` or more."""
    if array.size and int(array.max()) >= count:
        row = int(np.argmax(array >= count))
        there = f"nodes are 0 to {count - 1}" if count else "there are no nodes"
        raise UnknownNodeError(f"{name} of row {row} is {array[row]}; {there}")


def check_time(time: int, name: str = "t") -> None:
    """Raise `EventError` if a time is out of range."""
    if not -TIME_LIMIT < time < TIME_LIMIT:
        raise EventError(f"{name} is {time}; times lie strictly between -2**62 and 2**62")


def times(values: Any, name: str, rows: int | None = None, *, copy: bool = False) -> IntArray:
    """Return times within range, in any order."""
    array = integers(values, name, rows, copy=copy)
    if array.size:
        check_time(int(array.min()), name)
        check_time(int(array.max()), name)
    return array


def first_decrease(t: IntArray) -> int | None:
    """Return the first row that is earlier than the row before it; None if there is none."""
    back = t[1:] < t[:-1]
    return int(back.argmax()) + 1 if back.any() else None


def operations(op: Any, rows: int, *, copy: bool = False) -> NDArray[np.uint8] | None:
    """Return one code per row, or None where `op` is None or `Op.ADD` for all rows."""
    if op is None:
        return None
    if isinstance(op, Op):
        return None if op is Op.ADD else frozen(np.full(rows, int(op), dtype=np.uint8), own=True)
    array = _array(op, "op", "a vector of Op codes", copy)
    if array.ndim == 0 and array.dtype.kind in "iu":
        array = np.full(rows, array)
    if array.shape != (rows,):
        raise EventError(f"op has shape {array.shape}; give [{rows}], one entry per row, or one Op")
    codes = "Op.ADD (0), Op.REMOVE (1) and Op.SET (2)"
    if array.dtype.kind not in "iu" and rows:
        raise EventError(f"op has dtype {array.dtype}; accepted are {codes}")
    if rows <= _SMALL:
        known = all(0 <= code <= 2 for code in array.tolist())
    else:
        known = int(array.min()) >= 0 and int(array.max()) <= 2
    if not known:
        row = int(((array < 0) | (array > 2)).argmax())
        raise EventError(f"op of row {row} is {array[row]}; accepted are {codes}")
    if array.dtype != np.uint8:
        array, copy = array.astype(np.uint8), True
    return frozen(array, own=copy)  # type: ignore[no-any-return]


def weights(
    values: Any,
    op: NDArray[np.uint8] | None,
    rows: int,
    name: str = "weight",
    *,
    copy: bool = False,
) -> FloatArray | None:
    """Return positive float64 weights; only a removal may be inf, which removes the whole edge."""
    if values is None:
        return None
    array = _array(values, name, "a vector of numbers", copy)
    if array.dtype.kind not in "iuf" and rows:
        raise EventError(f"{name} has dtype {array.dtype}; floating-point numbers are needed")
    if array.shape != (rows,):
        raise EventError(f"{name} has shape {array.shape}; give [{rows}], one entry per row")
    if array.dtype != _FLOAT64:
        array, copy = array.astype(np.float64), True
    array = frozen(array, own=copy)
    if op is None and rows <= _SMALL and all(WEIGHT_MIN <= w <= WEIGHT_MAX for w in array.tolist()):
        return array  # type: ignore[no-any-return]
    fine = (array >= WEIGHT_MIN) & (array <= WEIGHT_MAX)
    if op is not None:
        fine |= (op == Op.REMOVE) & (array > 0)
    if not fine.all():
        row = int(fine.argmin())
        raise EventError(
            f"{name} of row {row} is {array[row]}; weights lie between 2^-64 and 2^64, and only a"
            " REMOVE may be inf, for the whole edge. Give other quantities as edge_features"
        )
    return array  # type: ignore[no-any-return]


def features(
    values: Any, rows: int, name: str, *, dtype: Any = np.float32, copy: bool = False
) -> NDArray[Any] | None:
    """Return a finite feature matrix `[rows, columns]`."""
    if values is None:
        return None
    array = _array(values, name, "a matrix of numbers", copy)
    if array.dtype.kind not in "iufb":
        raise EventError(f"{name} has dtype {array.dtype}; numbers are needed")
    if array.ndim != 2 or len(array) != rows:
        raise EventError(f"{name} has shape {array.shape}; give [{rows}, columns]")
    if array.dtype != dtype:
        with np.errstate(over="ignore"):
            array, copy = array.astype(dtype), True
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise EventError(f"{name} holds NaN or infinity in row {row}; fill or drop such rows")
    return frozen(array, own=copy)  # type: ignore[no-any-return]


def _array(values: Any, name: str, wanted: str, copy: bool) -> NDArray[Any]:
    try:
        return np.array(values, order="C") if copy else np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise EventError(f"{name} is not {wanted}: {error}") from None
