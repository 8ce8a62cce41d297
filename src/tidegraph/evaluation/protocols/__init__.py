"""Evaluations exactly as the published protocols define them, with heuristics for comparison.

A model is a function of pairs and times that uses only events strictly before each time or, with
the knowledge `batch`, before the time of the first event of its batch. Heuristics know the same;
`@published` marks those that know what they know in their publications. Weights do not change here.
A model may update its own state, as long as it answers for the time it is asked about.
"""

from __future__ import annotations

from tidegraph.evaluation.protocols.events import evaluate_events
from tidegraph.evaluation.protocols.link_events import SEEDS, evaluate_link
from tidegraph.evaluation.protocols.nodes import evaluate_nodes
from tidegraph.evaluation.protocols.ranking import evaluate_ranking, tgb_evaluate
from tidegraph.evaluation.protocols.snapshots import evaluate_snapshots

__all__ = [
    "SEEDS",
    "evaluate_events",
    "evaluate_link",
    "evaluate_nodes",
    "evaluate_ranking",
    "evaluate_snapshots",
    "tgb_evaluate",
]
