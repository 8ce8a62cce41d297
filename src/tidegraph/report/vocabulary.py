"""The words and numbers of a report: one way to write each metric, sampler, share and time."""

from __future__ import annotations

from tidegraph.evaluation import Verdict, part_words
from tidegraph.evaluation.verdicts import PUBLISHED
from tidegraph.events.moments import dates
from tidegraph.report.markup import Html, element

ABSENT = "–"
_METRICS = {
    "ap": "AP",
    "auc": "AUC",
    "ap_global": "AP over all at once",
    "auc_global": "AUC over all at once",
    "mrr": "MRR",
    "mrr_full": "MRR",
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
# What a real link competes with: one of them, and many.
_RIVALS = {
    "random-dst": ("one to a random destination", "to random destinations"),
    "random-all": ("one to a random node", "to random nodes"),
    "historical": ("a past pair that does not meet now", "past pairs that do not meet now"),
    "inductive": ("a pair first seen after training", "pairs first seen after training"),
}
_OF_LINKS = {
    "auc": "Given one real link and {one}, the model ranks the real one first in {share} cases.",
    "ap": "List real links and equally many {many}, the likeliest first: down to each real one,"
    " {share} are real on average.",
    "hits_1": "The real destination is the model's first choice in {share} cases.",
    "hits_3": "The real destination is among the model's first three choices in {share} cases.",
    "hits_10": "The real destination is among the model's first ten choices in {share} cases.",
} | dict.fromkeys(
    ("mrr", "mrr_full"),
    "{among}, the real one does as well as if it always were at place {place}: the first counts"
    " 1, the second ½, the third ⅓ and so on.",
)
_OF_CLASSES = {
    "auc": "Given one of either class, the model ranks the one of class 1 first in {share} cases.",
    "ap": "List all, the likeliest of class 1 first: down to each true one, {share} are of class 1"
    " on average.",
    "micro_f1": "The class that the model finds likeliest is the true one in {share} cases.",
}
# What each heuristic is called, and its score of u → v (of a class, for nodes).
_HEURISTICS = {
    "edgebank-unlimited": ("met before", "1 if u → v happened before, else 0"),
    "edgebank-window": ("met lately", "1 if u → v is among the latest 15% of events, else 0"),
    "edgebank-interval": (
        "met within the usual gap",
        "1 if u → v last happened within the mean time between repetitions, else 0",
    ),
    "edgebank-repeat": (
        "met often",
        "1 if u → v happened at least as often as the mean pair, else 0",
    ),
    "memory": ("recent meetings", "Σ e^(-age/s) over past u → v"),
    "reverse": ("recent replies", "Σ e^(-age/s) over past v → u"),
    "popularity": ("popularity", "number of past events into v, in snapshots Σ e^(-age/s)"),
    "reverse+popularity": (
        "recent replies, popularity",
        "Σ e^(-age/s) over past v → u, plus 0.001 times that over events into v",
    ),
    "memory+reverse+popularity": (
        "recent meetings, replies, popularity",
        "Σ e^(-age/s) over past u → v and v → u, plus 0.001 times that over events into v",
    ),
    "recency-pair": ("latest meeting", "1 / (1 + time since the last u → v), 0 without one"),
    "recency-destination": (
        "destination's latest event",
        "1 / (1 + time since the last event into v), 0 without one",
    ),
    "majority": ("most frequent class", "share of the class in training"),
    "last-label": ("last known class", "1 for the node's last known class; shares without one"),
    "source-last-label": ("source's last class", "1 for the source's last known class"),
    "destination-last-label": (
        "destination's last class",
        "1 for the destination's last known class",
    ),
    "degree": ("number of events", "logistic regression on log(1 + earlier events of the node)"),
    "gradient-boosting": ("gradient boosting", "boosted trees on the event's own columns"),
}


def metric_words(metric: str) -> str:
    """Return a metric as the report calls it."""
    return _METRICS.get(metric, metric)


def against(sampler: str) -> str:
    """Return what a prediction competes with."""
    return _SAMPLERS.get(sampler, f"under {sampler}")


def condition(verdict: Verdict) -> str:
    """Return what the prediction competes with, and for which events."""
    return against(verdict.sampler) + part_words(verdict.part)


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


def out_of(share: float) -> str:
    """Return a share as so many of 100, or of 1,000 where that says too little.

    >>> out_of(0.984), out_of(0.9973), out_of(1.0)
    ('98 of 100', '997 of 1,000', '100 of 100')
    """
    of = 1000 if 0 < share < 0.05 or 0.995 <= share < 1 else 100
    return f"{of * share:.0f} of {of:,}"


def meaning(metric: str, sampler: str, value: float) -> str | None:
    """Return what a value says in a plain sentence, or None if there is none."""
    sentences = _OF_CLASSES if sampler == "none" else _OF_LINKS
    if metric not in sentences or not value > 0:
        return None
    one, many = _RIVALS.get(sampler, ("a false one", "false ones"))
    among = against(sampler).capitalize()
    place = f"{1 / value:.2g}" if value > 0.1 else f"{1 / value:,.0f}"
    return sentences[metric].format(
        share=out_of(value), place=place, one=one, many=many, among=among
    )


def heuristic_words(name: str) -> str:
    """Return a heuristic as the report calls it."""
    base = name.removesuffix(PUBLISHED)
    words = _HEURISTICS[base][0] if base in _HEURISTICS else base
    return words if base == name else f"{words} (as published)"


def formula(name: str) -> str:
    """Return how a heuristic scores u → v, or a class; nothing if that is not known."""
    base = name.removesuffix(PUBLISHED)
    known = _HEURISTICS.get(base, ("", ""))[1]
    return known if base == name else f"{known}; knows the batches before, as published"


def heuristic(name: str) -> Html:
    """Return a heuristic with its formula, which shows when the mouse points at it."""
    return element("abbr", heuristic_words(name), title=f"{formula(name)} [{name}]".strip())
