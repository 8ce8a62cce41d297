"""What to predict: future links, and what nodes are. Needs torch."""

from __future__ import annotations

from tidegraph.tasks.link import LinkPredictor

__all__ = ["LinkPredictor"]
