"""What to predict: future links, and what nodes are. Needs torch."""

from __future__ import annotations

from tidegraph.tasks.estimator import RECORD_SETTINGS
from tidegraph.tasks.link import LinkPredictor
from tidegraph.tasks.nodes import NodeClassifier
from tidegraph.tasks.presets import preset, preset_name

__all__ = ["RECORD_SETTINGS", "LinkPredictor", "NodeClassifier", "preset", "preset_name"]
