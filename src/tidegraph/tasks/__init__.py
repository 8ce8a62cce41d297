"""What to predict: future links, and what nodes are. Needs torch."""

from __future__ import annotations

from tidegraph.tasks.link import LinkPredictor
from tidegraph.tasks.nodes import NodeClassifier
from tidegraph.tasks.presets import preset

__all__ = ["LinkPredictor", "NodeClassifier", "preset"]
