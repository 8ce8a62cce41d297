"""What to predict: future links, and the classes of nodes. Needs torch."""

from __future__ import annotations

from tidegraph.learning.tasks.link import LinkPredictor
from tidegraph.learning.tasks.nodes import NodeClassifier

__all__ = ["LinkPredictor", "NodeClassifier"]
