"""What to predict: future links, and the classes of nodes and of events."""

from __future__ import annotations

from tidegraph.learning.tasks.estimator import Estimator
from tidegraph.learning.tasks.events import EventClassifier
from tidegraph.learning.tasks.link import LinkPredictor
from tidegraph.learning.tasks.nodes import NodeClassifier

__all__ = ["MODELS", "Estimator", "EventClassifier", "LinkPredictor", "NodeClassifier"]

# The model of each task.
MODELS: dict[str, type[LinkPredictor | NodeClassifier | EventClassifier]] = {
    model.task: model for model in (LinkPredictor, NodeClassifier, EventClassifier)
}
