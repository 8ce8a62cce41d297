"""What a live state returns: receipts, and answers that name the moment they hold for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEURISTICS = "heuristics"  # the version of an answer while there is no model


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What became of events: those accepted are on disk, and stay there whatever happens.

    first_seq, seq: the sequence numbers of the first and the last accepted one; where none was, the
        number after the last one in the log, and that last one.
    duplicate, late: how many were known by their id, or came too late and were rejected or moved.
    watermark: earlier events are late from now on, in `unit`; None before the first event.
    applied: whether answers follow all of the accepted ones by now.
    """

    seq: int
    first_seq: int
    accepted: int
    duplicate: int
    late: int
    watermark: int | None
    applied: bool
    unit: str

    def plain(self) -> dict[str, Any]:
        """Return the receipt in plain types."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """An answer, and the moment it holds for.

    as_of_seq: it follows the log up to this sequence number; the events of `as_of_time` and later,
        which may still be out of order, are not in it.
    as_of_time: in the directory's unit; None before the first event.
    error: how far representations are from exact ones at most, per node; None where none is read.
    version: the model that answered, or "heuristics".
    """

    data: Mapping[str, Any]
    as_of_seq: int
    as_of_time: int | None
    error: NDArray[np.float64] | None = None
    version: str = HEURISTICS

    def plain(self) -> dict[str, Any]:
        """Return the answer in plain types, arrays as lists."""
        return {
            "as_of_seq": self.as_of_seq,
            "as_of_time": self.as_of_time,
            "error": None if self.error is None else self.error.tolist(),
            "version": self.version,
            "data": plain_types(self.data),
        }


def plain_types(value: Any) -> Any:
    """Return a value with its arrays as lists, to be written as JSON."""
    if isinstance(value, Mapping):
        return {str(name): plain_types(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_types(each) for each in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
