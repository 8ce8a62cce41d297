"""Everything tidegraph raises on purpose; catch `TidegraphError` to catch it all."""

from __future__ import annotations


class TidegraphError(Exception):
    """The common parent of all errors of this package."""


class ParameterError(TidegraphError, ValueError):
    """A setting that cannot work: `r_max <= 0`, `|gamma| >= 1`, directed without self-loops."""


class PrecisionError(ParameterError):
    """An `r_max` that the chosen dtype cannot hold; `dtype="float64"` or a larger `r_max` can."""


class EventError(TidegraphError, ValueError):
    """A batch that is malformed or does not fit the graph; nothing was changed by it."""


class StateFileError(TidegraphError, ValueError):
    """A saved state that is truncated, altered or of another version; nothing was loaded."""


class DataError(TidegraphError, ValueError):
    """A data set or data file that is missing or not in the expected form."""


class EvaluationError(TidegraphError, ValueError):
    """Scores, labels or a split on which no honest number can be computed."""


class StorageError(TidegraphError, OSError):
    """A file that could not be written, for instance on a full disk; what was stored is intact."""


class ShortOfMemoryError(TidegraphError, MemoryError):
    """More memory than the process was given; what was finished before is kept."""


class ClusterError(TidegraphError, ConnectionError):
    """Workers or a cluster that were lost or never there; what was finished before is kept."""
