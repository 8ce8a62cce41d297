"""Evaluation of any model on temporal graphs: splits, negatives, metrics, protocols, results.

Nothing here knows how a model works: a scorer is a function, see `protocols`. May import from
`core` and `events`.
"""

from __future__ import annotations

from tidegraph.evaluation import heuristics, metrics
from tidegraph.evaluation.negatives import (
    SAMPLERS,
    GivenNegatives,
    NegativeSampler,
    negative_sampler,
)
from tidegraph.evaluation.protocols import (
    SEEDS,
    evaluate_events,
    evaluate_link,
    evaluate_nodes,
    evaluate_ranking,
    evaluate_snapshots,
    tgb_evaluate,
)
from tidegraph.evaluation.results import Result, Row, Scores, knowledge_words, over_seeds
from tidegraph.evaluation.splits import (
    ROLAND_SETTINGS,
    SnapshotSplit,
    Split,
    label_split,
    latest_split,
    node_split,
    roland_split,
    tgb_split,
    tgn_split,
    time_split,
)
from tidegraph.evaluation.verdicts import (
    Heuristics,
    Verdict,
    best_heuristic,
    leader,
    noise,
    outcome_of_heuristic,
    part_words,
    verdicts,
)

__all__ = [
    "ROLAND_SETTINGS",
    "SAMPLERS",
    "SEEDS",
    "GivenNegatives",
    "Heuristics",
    "NegativeSampler",
    "Result",
    "Row",
    "Scores",
    "SnapshotSplit",
    "Split",
    "Verdict",
    "best_heuristic",
    "evaluate_events",
    "evaluate_link",
    "evaluate_nodes",
    "evaluate_ranking",
    "evaluate_snapshots",
    "heuristics",
    "knowledge_words",
    "label_split",
    "latest_split",
    "leader",
    "metrics",
    "negative_sampler",
    "node_split",
    "noise",
    "outcome_of_heuristic",
    "over_seeds",
    "part_words",
    "roland_split",
    "tgb_evaluate",
    "tgb_split",
    "tgn_split",
    "time_split",
    "verdicts",
]
