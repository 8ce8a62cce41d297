"""The words and numbers of a report: one way to write each metric, sampler, share and time."""

from __future__ import annotations

from tidegraph.evaluation import Verdict
from tidegraph.events.moments import dates

ABSENT = "–"
_METRICS = {
    "ap": "AP",
    "auc": "AUC",
    "ap_global": "AP over all at once",
    "auc_global": "AUC over all at once",
    "mrr": "MRR",
    "mrr_full": "MRR among all nodes",
    "mrr_1000": "MRR among 1,000",
    "mrr_1000_expected": "MRR among 1,000, expected",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "precision_positives": "precision among as many as are positive",
    "precision_100": "precision among the top 100",
    "brier": "Brier score, lower is better",
    "log_loss": "log-loss, lower is better",
    "hits_1": "hits@1",
    "hits_3": "hits@3",
    "hits_10": "hits@10",
}
_SAMPLERS = {
    "random-dst": "against random destinations",
    "random-all": "against random nodes",
    "historical": "against past pairs",
    "inductive": "against pairs first seen after training",
    "all-dst": "among all destinations",
    "all-nodes": "among all nodes",
    "none": "on labels of the test period",
}


def metric_words(metric: str) -> str:
    """Return a metric as the report calls it."""
    return _METRICS.get(metric, metric)


def against(sampler: str) -> str:
    """Return what a prediction competes with."""
    return _SAMPLERS.get(sampler, f"under {sampler}")


def condition(verdict: Verdict) -> str:
    """Return what the prediction competes with, and on which nodes."""
    return against(verdict.sampler) + (" on new nodes" if verdict.part == "new" else "")


def with_spread(mean: float, spread: float | None) -> str:
    """Return a mean over seeds with its standard deviation, if that is known."""
    return f"{mean:.4f}" if spread is None else f"{mean:.4f} ± {spread:.4f}"


def percent(share: float) -> str:
    """Return a share as an axis or a table shows it."""
    return f"{100 * share:.4g}%"


def signed_percent(share: float) -> str:
    """Return a share with its sign, for shares that may pull either way."""
    return f"{100 * share:+.1f}%"


def moment(t: float, unit: str) -> str:
    """Return a time as a date if it is one."""
    date = dates(int(t), int(t), unit)[0]
    return date or (f"step {int(t):,}" if unit == "step" else f"{int(t):,} {unit}")
