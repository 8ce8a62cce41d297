"""Representation learning on graphs that change."""

from tidegraph import reference
from tidegraph.channels import Audit, Channel, Sketch
from tidegraph.errors import (
    DataError,
    EventError,
    ParameterError,
    PrecisionError,
    StateFileError,
    TidegraphError,
)
from tidegraph.events import Batch, Op
from tidegraph.propagation import Propagator, propagate

__all__ = [
    "Audit",
    "Batch",
    "Channel",
    "DataError",
    "EventError",
    "Op",
    "ParameterError",
    "PrecisionError",
    "Propagator",
    "Sketch",
    "StateFileError",
    "TidegraphError",
    "propagate",
    "reference",
]
