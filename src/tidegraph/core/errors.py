"""The exceptions tidegraph raises on purpose; `TidegraphError` catches them all."""

from __future__ import annotations

from typing import Any


class TidegraphError(Exception):
    """Base class of all errors of this package."""


class ParameterError(TidegraphError, ValueError):
    """A setting that cannot work: `r_max <= 0`, `|gamma| >= 1`, directed without self-loops."""


class PrecisionError(ParameterError):
    """An `r_max` that the chosen dtype cannot hold; `dtype="float64"` or a larger `r_max` can."""


class EventError(TidegraphError, ValueError):
    """A batch or stream that is malformed or does not fit the graph; nothing was changed."""


class RowError(EventError):
    """One of several events given together that is malformed; none of them was taken.

    row: its place among them, from 0. field: which of its fields, where one is to blame.
    """

    def __init__(self, message: str, row: int, field: str | None = None) -> None:
        super().__init__(message)
        self.row, self.field = row, field

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.row, self.field)


class StateFileError(TidegraphError, ValueError):
    """A saved state that is truncated, altered or of another version; nothing was loaded."""


class DataError(TidegraphError, ValueError):
    """A data set or file that is missing or not in the expected form."""


class UnknownNodeError(DataError, EventError):
    """A node name or node number that does not exist in the stream, graph or store."""


class EvaluationError(TidegraphError, ValueError):
    """Scores, labels or a split from which no meaningful number can be computed."""


class StorageError(TidegraphError, OSError):
    """A file that could not be written, e.g. on a full disk; data stored before is intact."""


class BusyError(TidegraphError):
    """More events waiting than the queue holds; none of those given was taken.

    retry_after_s: when to send them again.
    """

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.retry_after_s)


class ShortOfMemoryError(TidegraphError, MemoryError):
    """More memory needed than the process may use; finished work is intact."""


class ClusterError(TidegraphError, ConnectionError):
    """Workers or a cluster that were lost or never reached; finished work is intact."""


class ServerError(TidegraphError, ConnectionError):
    """A server that cannot be reached, rejects the token, or failed; it keeps what it confirmed."""
