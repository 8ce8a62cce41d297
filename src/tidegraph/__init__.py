"""Representation learning on graphs that change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from tidegraph import evaluation
    from tidegraph.core.errors import (
        BusyError,
        ClusterError,
        DataError,
        EvaluationError,
        EventError,
        ParameterError,
        PrecisionError,
        RowError,
        ServerError,
        ShortOfMemoryError,
        StateFileError,
        StorageError,
        TidegraphError,
        UnknownNodeError,
    )
    from tidegraph.engine import reference
    from tidegraph.engine.building import build
    from tidegraph.engine.channels import Audit, Channel, EngineSettings, Sketch
    from tidegraph.engine.compact import CompactGraph, open_graph
    from tidegraph.engine.embeddings import Embeddings
    from tidegraph.engine.explanation import Explanation, explain
    from tidegraph.engine.passes import propagate_in_passes
    from tidegraph.engine.planning import Plan, plan
    from tidegraph.engine.propagator import Propagator, propagate
    from tidegraph.events.batch import Batch, Op
    from tidegraph.events.datasets import generate_communities, load_dataset
    from tidegraph.events.formats import read
    from tidegraph.events.node_tables import with_node_features, with_node_labels
    from tidegraph.events.steps import Steps
    from tidegraph.events.stream import Edges, EventStream, NodeLabels
    from tidegraph.events.tables import read_table, scan_table
    from tidegraph.events.vocabulary import Vocabulary
    from tidegraph.learning.tasks import EventClassifier, LinkPredictor, NodeClassifier
    from tidegraph.live.answers import Answer, Receipt
    from tidegraph.live.client import Client
    from tidegraph.live.live import Live
    from tidegraph.live.settings import LiveSettings
    from tidegraph.store.shards import ShardedTrajectories, record_shards
    from tidegraph.store.trajectories import Trajectories, record

__all__ = [
    "Answer",
    "Audit",
    "Batch",
    "BusyError",
    "Channel",
    "Client",
    "ClusterError",
    "CompactGraph",
    "DataError",
    "Edges",
    "Embeddings",
    "EngineSettings",
    "EvaluationError",
    "EventClassifier",
    "EventError",
    "EventStream",
    "Explanation",
    "LinkPredictor",
    "Live",
    "LiveSettings",
    "NodeClassifier",
    "NodeLabels",
    "Op",
    "ParameterError",
    "Plan",
    "PrecisionError",
    "Propagator",
    "Receipt",
    "RowError",
    "ServerError",
    "ShardedTrajectories",
    "ShortOfMemoryError",
    "Sketch",
    "StateFileError",
    "Steps",
    "StorageError",
    "TidegraphError",
    "Trajectories",
    "UnknownNodeError",
    "Vocabulary",
    "__version__",
    "build",
    "evaluation",
    "explain",
    "generate_communities",
    "load_dataset",
    "open_graph",
    "plan",
    "propagate",
    "propagate_in_passes",
    "read",
    "read_table",
    "record",
    "record_shards",
    "reference",
    "scan_table",
    "with_node_features",
    "with_node_labels",
]

# Names are looked up when first used: the command line answers --help without NumPy and the core.
_HOMES = {
    "core.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "engine.building": ("build",),
    "engine.channels": ("Audit", "Channel", "EngineSettings", "Sketch"),
    "engine.compact": ("CompactGraph", "open_graph"),
    "engine.embeddings": ("Embeddings",),
    "engine.explanation": ("Explanation", "explain"),
    "engine.passes": ("propagate_in_passes",),
    "engine.planning": ("Plan", "plan"),
    "engine.propagator": ("Propagator", "propagate"),
    "events.batch": ("Batch", "Op"),
    "events.datasets": ("generate_communities", "load_dataset"),
    "events.formats": ("read",),
    "events.node_tables": ("with_node_features", "with_node_labels"),
    "events.steps": ("Steps",),
    "events.stream": ("Edges", "EventStream", "NodeLabels"),
    "events.tables": ("read_table", "scan_table"),
    "events.vocabulary": ("Vocabulary",),
    "learning.tasks": ("EventClassifier", "LinkPredictor", "NodeClassifier"),
    "live.answers": ("Answer", "Receipt"),
    "live.client": ("Client",),
    "live.live": ("Live",),
    "live.settings": ("LiveSettings",),
    "store.shards": ("ShardedTrajectories", "record_shards"),
    "store.trajectories": ("Trajectories", "record"),
}
_MODULES = {"evaluation": "evaluation", "reference": "engine.reference"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("tidegraph")
    elif name in _MODULES:
        value = import_module(f"tidegraph.{_MODULES[name]}")
    else:
        home = next((module for module, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'tidegraph' has no attribute {name!r}")
        value = getattr(import_module(f"tidegraph.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
