"""Representation learning on graphs that change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegraph import reference
    from tidegraph.channels import Audit, Channel, Sketch
    from tidegraph.datasets import generate_communities, load_dataset
    from tidegraph.errors import (
        ClusterError,
        DataError,
        EvaluationError,
        EventError,
        ParameterError,
        PrecisionError,
        ShortOfMemoryError,
        StateFileError,
        StorageError,
        TidegraphError,
    )
    from tidegraph.events import Batch, Op
    from tidegraph.explanation import Explanation, explain
    from tidegraph.formats import read
    from tidegraph.passes import Embeddings
    from tidegraph.propagation import Propagator, propagate
    from tidegraph.shards import ShardedTrajectories, record_shards
    from tidegraph.stream import EventStream, Steps
    from tidegraph.tables import read_table, scan_table
    from tidegraph.tasks import LinkPredictor, NodeClassifier
    from tidegraph.trajectories import Trajectories, record

__all__ = [
    "Audit",
    "Batch",
    "Channel",
    "ClusterError",
    "DataError",
    "Embeddings",
    "EvaluationError",
    "EventError",
    "EventStream",
    "Explanation",
    "LinkPredictor",
    "NodeClassifier",
    "Op",
    "ParameterError",
    "PrecisionError",
    "Propagator",
    "ShardedTrajectories",
    "ShortOfMemoryError",
    "Sketch",
    "StateFileError",
    "Steps",
    "StorageError",
    "TidegraphError",
    "Trajectories",
    "explain",
    "generate_communities",
    "load_dataset",
    "propagate",
    "read",
    "read_table",
    "record",
    "record_shards",
    "reference",
    "scan_table",
]

# Names are looked up when first used: the command line answers --help without NumPy and the core.
_HOMES = {
    "channels": ("Audit", "Channel", "Sketch"),
    "errors": tuple(name for name in __all__ if name.endswith("Error")),
    "datasets": ("generate_communities", "load_dataset"),
    "events": ("Batch", "Op"),
    "explanation": ("Explanation", "explain"),
    "formats": ("read",),
    "passes": ("Embeddings",),
    "propagation": ("Propagator", "propagate"),
    "shards": ("ShardedTrajectories", "record_shards"),
    "stream": ("EventStream", "Steps"),
    "tasks": ("LinkPredictor", "NodeClassifier"),
    "tables": ("read_table", "scan_table"),
    "trajectories": ("Trajectories", "record"),
}


def __getattr__(name: str) -> Any:
    if name == "reference":
        return import_module("tidegraph.reference")
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"tidegraph.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'tidegraph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
