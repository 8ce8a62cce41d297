"""How good scores are. Undefined metrics raise an error.

One rule for ties: no metric depends on the order in which scores are listed. In a rank, a rival of
equal score counts half. AUC counts it half as well, AP takes equal scores in one step, and what is
counted among the best k shares its places. `mrr_sampled` alone counts rivals of equal score in
full, as the program that defines it does. Half a place is at most what a random order earns, since
1 / (mean rank) is at most the mean of 1 / rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.events.columns import FloatArray, IntArray, whole_numbers

# The share of the negatives of equal score that count.
_TIES = {"half": 0.5, "against": 1.0, "for": 0.0}


def average_precision(labels: ArrayLike, scores: ArrayLike) -> float:
    """Return the average precision of scores for labels 0 and 1, equal scores in one step.

    Both labels must occur.
    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_two_classes(labels, scores)))


def roc_auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Return the chance that a random 1 scores above a random 0, ties half; both must occur."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_two_classes(labels, scores)))


def link_metrics(
    positive: ArrayLike, negative: ArrayLike, *, batch_size: int = 200
) -> dict[str, float]:
    """Return AP and AUC of true against false pairs, as the mean over batches and over all at once.

    Batch k holds the k-th `batch_size` positives and as many negatives. The mean over batches
    (`ap`, `auc`) is what is published for temporal graphs; `ap_global` and `auc_global` also
    compare scores across time.
    """
    true, false = _scores(positive, "positive scores"), _scores(negative, "negative scores")
    if true.shape != false.shape or true.ndim != 1:
        raise EvaluationError(
            f"scores have shapes {true.shape} and {false.shape}; "
            "one negative per positive is needed"
        )
    if batch_size < 1:
        raise ParameterError(f"batch_size is {batch_size}; it must be at least 1")
    values = [
        _of_batch(true[first : first + batch_size], false[first : first + batch_size])
        for first in range(0, len(true), batch_size)
    ]
    ap, auc = np.mean(values, axis=0)
    ap_global, auc_global = _of_all(true, false)
    return {
        "ap": float(ap),
        "auc": float(auc),
        "ap_global": ap_global,
        "auc_global": auc_global,
    }


def pair_metrics(positive: ArrayLike, negative: ArrayLike) -> dict[str, float]:
    """Return AP and AUC of true against false pairs, all at once."""
    true, false = _scores(positive, "positive scores"), _scores(negative, "negative scores")
    ap, auc = _of_all(true, false)
    return {"ap": ap, "auc": auc}


# What follows agrees to the bit with scikit-learn's `roc_curve` and `auc` on a batch, and with its
# `average_precision_score` and `roc_auc_score` on all. Those check their arguments for longer than
# they compute on a batch, and sort all scores anew for each metric.


def _curve(true: FloatArray, false: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return how many of each are at or above every distinct score, from none to all."""
    scores = np.concatenate([true, false])
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)  # of equal scores
    hits = np.append(0.0, np.cumsum(order < len(true))[ends])
    return hits, np.append(0.0, ends + 1.0) - hits


def _of_batch(true: FloatArray, false: FloatArray) -> tuple[float, float]:
    """Return AP and AUC of a batch."""
    hits, misses = _curve(true, false)
    recall, false_rate = hits / len(true), misses / len(false)
    found, wrong = recall[1:] * len(true), false_rate[1:] * len(false)
    return float(np.sum(np.diff(recall) * (found / (found + wrong)))), _area(false_rate, recall)


def _of_all(true: FloatArray, false: FloatArray) -> tuple[float, float]:
    """Return AP and AUC of all batches at once: AP is summed from below, AUC over corners only."""
    hits, misses = _curve(true, false)
    gained = np.diff(hits / len(true)) * (hits[1:] / (hits[1:] + misses[1:]))
    corner = np.ones(len(hits), dtype=bool)
    corner[2:-1] = (np.diff(hits[1:], 2) != 0) | (np.diff(misses[1:], 2) != 0)
    area = _area(misses[corner] / len(false), hits[corner] / len(true))
    return float(np.sum(gained[::-1].copy())), area


def _area(x: FloatArray, y: FloatArray) -> float:
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2.0))


def ranks(
    positive: ArrayLike,
    negatives: ArrayLike,
    *,
    ties: str = "half",
    without: NDArray[np.bool_] | None = None,
) -> FloatArray:
    """Return the rank, from 1, of each positive [B] among its negatives [B, K].

    A negative of equal score counts `half` (TGB's mean of the optimistic and the pessimistic
    rank), fully (`against` the positive) or not at all (`for` it). Negatives marked in `without`
    [B, K] do not count.
    """
    true, false = _scores(positive, "positive scores"), _scores(negatives, "negative scores")
    if true.ndim != 1 or false.ndim != 2 or len(true) != len(false):
        raise EvaluationError(
            f"positives have shape {true.shape} and negatives {false.shape}; "
            "give [B] and [B, K], a row of negatives per positive"
        )
    counted = np.True_ if without is None else ~without
    above = ((false > true[:, None]) & counted).sum(axis=1)
    equal = ((false == true[:, None]) & counted).sum(axis=1)
    return _rank(above, equal, ties)


def _rank(above: NDArray[Any], equal: NDArray[Any], ties: str) -> FloatArray:
    if ties not in _TIES:
        raise ParameterError(f"ties={ties!r} is unknown; give one of {', '.join(_TIES)}")
    return np.asarray(1.0 + above + _TIES[ties] * equal, dtype=np.float64)


def tied_at_top(scores: ArrayLike, true: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which true candidates share the highest score with one that is not true.

    `scores` and `true` are [..., candidates]; each row has its own highest score. An order decides
    about these candidates, where a metric depends on one.
    """
    table = _scores(scores, "scores")
    if table.shape != true.shape:
        raise EvaluationError(
            f"scores have shape {table.shape} and true {true.shape}; mark every candidate"
        )
    top = table == table.max(axis=-1, keepdims=True)
    shared = (top & ~true).any(axis=-1, keepdims=True)
    return np.asarray(top & true & shared)


def mrr(rank: ArrayLike) -> float:
    """Return the mean of 1 / rank."""
    return float(np.mean(1.0 / _ranks(rank)))


def standard_error(values: NDArray[Any], lowest: float = 0.0) -> float:
    """Return the standard error of the mean of values from `lowest` to 1.

    One more value at either end is added, so that a few that agree do not look certain.
    """
    return float(np.std(np.append(values, [lowest, 1.0])) / np.sqrt(len(values) + 2))


def hits_at(rank: ArrayLike, k: int) -> float:
    """Return the share of ranks that are at most `k`; half a place beyond `k` is beyond it."""
    return float(np.mean(_ranks(rank) <= k))


def mrr_full(scores: ArrayLike, row: ArrayLike, column: ArrayLike, *, ties: str = "half") -> float:
    """Return 1 / rank among ALL candidates, mean per source, then over sources, as ROLAND's table.

    `scores` is [sources, candidates]; true pairs are at (`row[k]`, `column[k]`). The other true
    destinations of a source compete like any candidate.
    """
    means = []
    for candidates, columns in _sources(scores, row, column):
        true, ordered = candidates[columns], np.sort(candidates)
        not_above = np.searchsorted(ordered, true, side="right")
        equal = not_above - np.searchsorted(ordered, true, side="left") - 1  # not itself
        means.append((1.0 / _rank(len(ordered) - not_above, equal, ties)).sum() / len(true))
    return float(np.mean(means))


def mrr_sampled(
    scores: ArrayLike,
    row: ArrayLike,
    column: ArrayLike,
    *,
    negatives: int = 1000,
    seed: int = 0,
    ties: str = "against",
) -> float:
    """Return the mean of 1 / rank of each source's best true destination among sampled ones.

    `negatives` are drawn per source, uniformly and with replacement, from the candidates that are
    not true. The same true pairs and seed give the same negatives for every model.
    """
    generator = np.random.default_rng(seed)
    best, drawn = [], []
    for candidates, true in _sources(scores, row, column, some_free=True):
        best.append(candidates[true].max())
        # The k-th candidate that is not true is candidate k + (true ones before it).
        picked = generator.integers(0, len(candidates) - len(true), negatives)
        picked += np.searchsorted(true - np.arange(len(true)), picked, side="right")
        drawn.append(candidates[picked])
    return mrr(ranks(best, drawn, ties=ties))


def expected_mrr_sampled(
    scores: ArrayLike, row: ArrayLike, column: ArrayLike, *, negatives: int = 1000
) -> float:
    """Return the mean of `mrr_sampled` (ties against) over all seeds, in closed form.

    If a share p of the candidates is at least as good as the best true one, the number of them
    drawn is binomial and the mean of 1 / (1 + number) is (1 - (1-p)^(N+1)) / ((N+1)·p).
    """
    means, draws = [], negatives + 1
    for candidates, true in _sources(scores, row, column, some_free=True):
        best = candidates[true].max()
        rivals = (candidates >= best).sum() - (candidates[true] >= best).sum()
        p = rivals / (len(candidates) - len(true))
        means.append((1 - (1 - p) ** draws) / (draws * p) if rivals else 1.0)
    return float(np.mean(means))


def micro_f1(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Return the micro-averaged F1 of predicted classes, one per example: their accuracy."""
    return _f1(labels, predicted, "micro")


def macro_f1(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Return the mean of the F1 of each class that occurs or is predicted."""
    return _f1(labels, predicted, "macro")


def _f1(labels: ArrayLike, predicted: ArrayLike, average: str) -> float:
    from sklearn.metrics import f1_score

    truth, guess = np.asarray(labels), np.asarray(predicted)
    if truth.shape != guess.shape or truth.ndim != 1 or len(truth) == 0:
        raise EvaluationError(
            f"labels have shape {truth.shape} and predictions {guess.shape}; "
            "both must be [N] with N at least 1"
        )
    for what, classes in (("labels", truth), ("predictions", guess)):
        if classes.dtype.kind not in "iub":
            raise EvaluationError(f"{what} have dtype {classes.dtype}; give classes as integers")
    return float(f1_score(truth, guess, average=average, zero_division=0.0))


def log_loss(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the mean of -log of the probability [N, classes] given to each true class."""
    truth, given = np.asarray(labels), _scores(probabilities, "probabilities")
    likely = given[np.arange(len(truth)), truth] / given.sum(axis=1)
    return float(-np.log(np.maximum(likely, np.finfo(np.float64).eps)).mean())


def precision_at(labels: ArrayLike, scores: ArrayLike, k: int) -> float:
    """Return the share of ones among the `k` highest scores; equal scores share their places."""
    truth, given = _labelled(labels, scores)
    k = min(k, len(given))
    if k < 1:
        raise ParameterError(f"k is {k}; it must be at least 1")
    bound = np.partition(given, len(given) - k)[len(given) - k]
    above, tied = given > bound, given == bound
    return float((truth[above].sum() + (k - above.sum()) * truth[tied].mean()) / k)


def ndcg_at(relevance: ArrayLike, scores: ArrayLike, k: int = 10) -> float:
    """Return the NDCG of the best `k` by score, mean over rows; tied scores share gains evenly."""
    from sklearn.metrics import ndcg_score

    wanted, given = _scores(relevance, "relevance"), _scores(scores, "scores")
    if wanted.shape != given.shape or wanted.ndim != 2 or wanted.shape[1] < 2:
        raise EvaluationError(
            f"relevance has shape {wanted.shape} and scores {given.shape}; "
            "both must be [rows, candidates] with at least 2 candidates"
        )
    return float(ndcg_score(wanted, given, k=k))


@dataclass(frozen=True, eq=False, slots=True)
class Calibration:
    """Predicted and observed frequencies by bin, and the weight of the examples in each."""

    predicted: FloatArray
    observed: FloatArray
    weight: FloatArray

    @property
    def error(self) -> float:
        """The mean distance of the two over all examples (expected calibration error)."""
        return float(np.average(np.abs(self.predicted - self.observed), weights=self.weight))


def calibration(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    bins: int = 10,
    weights: ArrayLike | None = None,
    by_rank: bool = False,
    least: int = 1,
) -> Calibration:
    """Return how often examples of about the same probability were of class 1.

    Bins have equal width, or with `by_rank` equally many examples; those with fewer than `least`
    are left out. scikit-learn's `calibration_curve` takes no weights and returns no counts.
    """
    truth, given = _labelled(labels, probabilities)
    if given.min() < 0 or given.max() > 1:
        raise EvaluationError(
            f"probabilities range from {given.min():g} to {given.max():g}; they must be in [0, 1]: "
            "apply the sigmoid first"
        )
    scale = given
    if by_rank:
        scale = np.empty(len(given))
        scale[np.argsort(given, kind="stable")] = np.arange(len(given)) / len(given)
    place = np.minimum((scale * bins).astype(np.int64), bins - 1)
    weight = np.ones(len(given)) if weights is None else _scores(weights, "weights")
    enough = np.bincount(place, minlength=bins) >= least
    total = np.bincount(place, weight, bins)[enough].astype(np.float64)
    predicted = np.bincount(place, weight * given, bins)[enough] / total
    observed = np.bincount(place, weight * truth, bins)[enough] / total
    return Calibration(predicted, observed, total)


def _scores(values: ArrayLike, what: str) -> FloatArray:
    scores = np.asarray(values, dtype=np.float64)
    if scores.size == 0:
        raise EvaluationError(f"{what} are empty; give at least one")
    bad = ~np.isfinite(scores)
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), scores.shape)
        where = ", ".join(str(int(index)) for index in place)
        raise EvaluationError(
            f"{what} contain {scores[place]} at [{where}] and {int(bad.sum()) - 1} more such; "
            "scores must be finite: find where the model produced them"
        )
    return scores


def _ranks(rank: ArrayLike) -> FloatArray:
    values = _scores(rank, "ranks")
    if values.min() < 1:
        raise EvaluationError(f"a rank is {values.min():g}; ranks count from 1")
    return values


def _labelled(labels: ArrayLike, scores: ArrayLike) -> tuple[IntArray, FloatArray]:
    truth, given = np.asarray(labels), _scores(scores, "scores")
    if truth.shape != given.shape or truth.ndim != 1:
        raise EvaluationError(
            f"labels have shape {truth.shape} and scores {given.shape}; both must be [N]"
        )
    if not np.isin(truth, (0, 1)).all():
        raise EvaluationError(f"labels contain {np.unique(truth)[:5]}; they must be 0 or 1")
    return truth.astype(np.int64), given


def _two_classes(labels: ArrayLike, scores: ArrayLike) -> tuple[IntArray, FloatArray]:
    truth, given = _labelled(labels, scores)
    if truth.min() == truth.max():
        raise EvaluationError(
            f"all {len(truth)} labels are {truth[0]}; AP and AUC compare two classes: "
            "evaluate a part in which both occur"
        )
    return truth, given


def _sources(
    scores: ArrayLike, row: ArrayLike, column: ArrayLike, *, some_free: bool = False
) -> Iterator[tuple[FloatArray, IntArray]]:
    """Yield the scores of each source and its true columns, with `some_free` each column once.

    some_free: whether at least one candidate of each source must not be true.
    """
    table = _scores(scores, "scores")
    rows = whole_numbers(row, "row", error=EvaluationError)
    columns = whole_numbers(column, "column", error=EvaluationError)
    if table.ndim != 2 or rows.ndim != 1 or rows.shape != columns.shape or len(rows) == 0:
        raise EvaluationError(
            f"scores have shape {table.shape}, true pairs {rows.shape} and {columns.shape}; "
            "give [sources, candidates] and one row and column per true pair"
        )
    fits = (rows >= 0) & (rows < table.shape[0]) & (columns >= 0) & (columns < table.shape[1])
    if not fits.all():
        pair = int(np.argmin(fits))
        raise EvaluationError(
            f"the true pair ({rows[pair]}, {columns[pair]}) is outside scores of {table.shape}"
        )
    without = np.bincount(rows, minlength=len(table)) == 0
    if without.any():
        raise EvaluationError(
            f"the source in row {int(np.argmax(without))} has no true pair; leave its row out"
        )
    for source, candidates in enumerate(table):
        true = columns[rows == source]
        if some_free:
            true = np.unique(true)
            if len(true) == len(candidates):
                raise EvaluationError(
                    f"every candidate is a true destination of the source in row {source}; "
                    "no negative can be drawn"
                )
        yield candidates, true
