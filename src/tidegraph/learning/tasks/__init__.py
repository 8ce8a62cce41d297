"""What to predict: future links, and what nodes are. Needs torch."""

from __future__ import annotations

from tidegraph.learning.tasks.estimator import RECORD_SETTINGS
from tidegraph.learning.tasks.link import LinkPredictor
from tidegraph.learning.tasks.nodes import NodeClassifier
from tidegraph.learning.tasks.presets import preset, preset_name

__all__ = ["RECORD_SETTINGS", "LinkPredictor", "NodeClassifier", "preset", "preset_name"]
