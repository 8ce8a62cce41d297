"""Whether learning was worth it: a model compared with the best heuristic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# [heuristic][sampler][part][metric]
Heuristics = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float | None]]]]
Examples = Mapping[str, Mapping[str, int]]  # [sampler][part]

# Ends the names of heuristics that know what they know in publications, not what the model knows.
PUBLISHED = "@published"
_SECOND_METRIC = "auc"  # reported next to the headline where the model does not lead by it
_BY_CHANCE = 0.01  # a lead that one seed may have over another
# Headline metrics of results that do not name them, in the order in which they are looked for.
_HEADLINES = ("ap", "mrr", "mrr_full")
_NODE_HEADLINES = ("auc", "micro_f1")
# Of runs; others are named as protocols name them.
_PARTS = {"all": "", "new": " on new nodes", "first": " at first meetings"}


def best_heuristic(
    heuristics: Heuristics, sampler: str, part: str, metric: str
) -> tuple[str, float] | None:
    """Return the name and value of the heuristic with the highest metric, or None without one.

    Those as published do not count: they know less than a model, or more of events at one time.
    """
    return _best(_values(heuristics, sampler, part, metric))


def _values(heuristics: Heuristics, sampler: str, part: str, metric: str) -> dict[str, float]:
    found = {
        name: table.get(sampler, {}).get(part, {}).get(metric)
        for name, table in heuristics.items()
        if not name.endswith(PUBLISHED)
    }
    return {name: value for name, value in found.items() if value is not None}


def _best(values: Mapping[str, float]) -> tuple[str, float] | None:
    return max(values.items(), key=lambda item: item[1], default=None)


def part_words(part: str) -> str:
    """Return which events a part has, as words to append; none for all of them.

    >>> part_words("all"), part_words("first"), part_words("new_validation")
    ('', ' at first meetings', ' on new_validation')
    """
    return _PARTS.get(part, f" on {part}")


def noise(a: float, b: float, examples: int | None) -> float:
    """Return the difference that two scorers may have by the choice of so many examples alone.

    It is two standard errors, each at most that of a share, sqrt(p (1 - p) / n): no mean of values
    between 0 and 1 has a larger one, nor has AUC, where n counts the rarer class. As for shares of
    few, two successes and two failures are added. None: the number is unknown, and it is 0.
    """
    if examples is None:
        return 0.0
    shares = ((value * examples + 2) / (examples + 4) for value in (a, b))
    return 2 * math.sqrt(sum(p * (1 - p) / (examples + 4) for p in shares))


def outcome_of_heuristic(
    value: float, own: float, spread: float | None = None, examples: int | None = None
) -> str:
    """Return how a heuristic compares with a model: `ahead`, `about as good`, or "" if behind.

    A lead of either below the spread over seeds does not count; if the spread is unknown, neither
    does one below a point. Nor does one below the `noise` of so many examples. Values that agree in
    four digits are the same.
    """
    by_chance = max(_BY_CHANCE if spread is None else spread, noise(value, own, examples))
    if abs(value - own) < by_chance or f"{value:.4f}" == f"{own:.4f}":
        return "about as good"
    return "ahead" if value > own else ""


@dataclass(frozen=True)
class Verdict:
    """A model and the heuristics by one metric, under one sampler on one part."""

    sampler: str
    part: str  # in runs all, new (a node unseen in training), or first (they never met before)
    metric: str
    mean: float  # of the model, over seeds
    spread: float | None  # standard deviation over seeds; None with one seed
    heuristics: dict[str, float]
    headline: bool = True  # whether scorers are compared by this metric
    examples: int | None = None  # test events, or those of the rarer class; None: unknown

    @property
    def best(self) -> tuple[str, float] | None:
        """The best heuristic and its value."""
        return _best(self.heuristics)

    @property
    def outcome(self) -> str:
        """How the best heuristic compares: `ahead`, `about as good`, or "" if behind."""
        return self._outcome(self.examples)

    def _outcome(self, examples: int | None) -> str:
        if self.best is None:
            return ""
        return outcome_of_heuristic(self.best[1], self.mean, self.spread, examples)

    @property
    def too_few(self) -> bool:
        """Whether the lead of either would count on more examples."""
        return self.outcome != self._outcome(None)

    @property
    def lead(self) -> float:
        """By how much the model exceeds the best heuristic."""
        return self.mean - (0.0 if self.best is None else self.best[1])

    def __str__(self) -> str:
        where = "" if self.sampler == "none" else f" under {self.sampler}"
        where += part_words(self.part)
        metric = self.metric.upper().replace("_", " ")
        own = f"{100 * self.mean:.2f}"
        own += "" if self.spread is None else f" ± {100 * self.spread:.2f}"
        if self.best is None:
            return f"No heuristic was evaluated{where}: the model has {metric} {own}."
        name, value = self.best[0], f"{100 * self.best[1]:.2f}"
        if self.too_few:
            chance = noise(self.mean, self.best[1], self.examples)
            return (
                f"The model and the best heuristic cannot be told apart{where}: {metric} {own},"
                f" {name} {value}; with {self.examples:,} to evaluate, {100 * chance:.1f} points"
                " are chance."
            )
        if not self.headline:
            state = self.outcome or "behind"
            return f"By {metric} {name} is {state}{where}: {value}, the model {own}."
        if self.outcome:
            return (
                f"A heuristic is {self.outcome}{where}: {name} has {metric} {value}, the model"
                f" {own}."
            )
        return f"The model is ahead{where}: {metric} {own}, the best heuristic ({name}) {value}."


def verdicts(
    metrics: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]],
    heuristics: Heuristics,
    headlines: Mapping[str, str],
    examples: Examples | None = None,
) -> Iterator[Verdict]:
    """Yield a verdict by the headline for every sampler and part, and by AUC if that differs.

    metrics: `[sampler][part][metric]` with `mean`, `std` and `per_seed`.
    headlines: the metric by which scorers are compared, by sampler.
    examples: how many were evaluated, by sampler and part.
    """
    for sampler, parts in metrics.items():
        for part, values in parts.items():
            defined = {name: of for name, of in values.items() if of.get("mean") is not None}
            main = _headline(sampler, defined, headlines)
            if main is None:
                continue
            for metric in dict.fromkeys((main, _SECOND_METRIC)):
                if metric not in defined:
                    continue
                own = defined[metric]
                verdict = Verdict(
                    sampler,
                    part,
                    metric,
                    own["mean"],
                    spread=own["std"] if len(own["per_seed"]) > 1 else None,
                    heuristics=_values(heuristics, sampler, part, metric),
                    headline=metric == main,
                    examples=(examples or {}).get(sampler, {}).get(part),
                )
                if verdict.headline or verdict.outcome:
                    yield verdict


def leader(of: Mapping[str, Verdict]) -> str | None:
    """Return whose model is ahead of all others; None if that may be chance."""
    first, *others = sorted(of, key=lambda name: -of[name].mean)
    best = of[first]
    for other in map(of.__getitem__, others):
        spreads = [one.spread for one in (best, other) if one.spread is not None]
        spread = math.hypot(*spreads) if len(spreads) == 2 else None
        if outcome_of_heuristic(other.mean, best.mean, spread, best.examples):
            return None
    return first


def _headline(sampler: str, values: Mapping[str, Any], headlines: Mapping[str, str]) -> str | None:
    usual = _NODE_HEADLINES if sampler == "none" else _HEADLINES
    wanted = (headlines.get(sampler, ""), *usual, *values)
    return next((metric for metric in wanted if metric in values), None)
