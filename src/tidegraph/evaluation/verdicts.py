"""Whether learning was worth it: a model beside the best of the heuristics, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Verdict", "outcome_of_heuristic", "verdicts"]

_BESIDE = "auc"  # told beside the headline, where a heuristic is ahead or about as good by it
_BY_CHANCE = 0.01  # what one seed may differ from another, where only one was tried


def outcome_of_heuristic(value: float, own: float, spread: float | None = None) -> str:
    """What a heuristic is beside a model of `own` value: `ahead`, `about as good`, or nothing.

    A lead of either below the spread over seeds is none; where that is not known, one below a
    point. What looks the same in four digits is the same.
    """
    by_chance = _BY_CHANCE if spread is None else spread
    if abs(value - own) < by_chance or f"{value:.4f}" == f"{own:.4f}":
        return "about as good"
    return "ahead" if value > own else ""


@dataclass(frozen=True)
class Verdict:
    """A model and the best heuristic by one metric, under one sampler on one part."""

    sampler: str
    part: str  # all, or new: events that touch a node unseen in training
    metric: str
    own: float
    spread: float | None  # over seeds; None where there is one
    rule: str  # the best heuristic
    value: float  # its own
    headline: bool  # whether it is the metric by which scorers are compared

    @property
    def outcome(self) -> str:
        """What the heuristic is: `ahead`, `about as good`, or nothing where it is behind."""
        return outcome_of_heuristic(self.value, self.own, self.spread)

    def __str__(self) -> str:
        where = "" if self.sampler == "none" else f" under {self.sampler}"
        where += " on new nodes" if self.part == "new" else ""
        metric = self.metric.upper().replace("_", " ")
        own = f"{100 * self.own:.2f}"
        own += "" if self.spread is None else f" ± {100 * self.spread:.2f}"
        value = f"{100 * self.value:.2f}"
        if not self.headline:
            state = self.outcome or "behind"
            return f"By {metric} {self.rule} is {state}{where}: {value}, the model {own}."
        if self.outcome:
            return (
                f"A heuristic is {self.outcome}{where}: {self.rule} has {metric} {value}, the model"
                f" {own}."
            )
        return (
            f"The model is ahead{where}: {metric} {own}, the best heuristic ({self.rule}) {value}."
        )


def verdicts(
    metrics: Mapping[str, Mapping[str, Mapping[str, Any]]],
    heuristics: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]],
    headlines: Mapping[str, str],
) -> Iterator[Verdict]:
    """A verdict by the headline for every sampler and part, and by AUC where that says otherwise.

    metrics: `[sampler][part][metric]` with `mean`, `std` and `per_seed`.
    heuristics: `[rule][sampler][part][metric]`.
    headlines: the metric by which scorers are compared, by sampler.
    """
    for sampler, parts in metrics.items():
        for part, values in parts.items():
            if not values:
                continue
            wanted = headlines.get(sampler, "")
            main = wanted if wanted in values else next(iter(values))
            for metric in dict.fromkeys((main, _BESIDE)):
                own = values.get(metric) or {}
                rivals = {
                    rule: table[sampler][part][metric]
                    for rule, table in heuristics.items()
                    if table.get(sampler, {}).get(part, {}).get(metric) is not None
                }
                if own.get("mean") is None or not rivals:
                    continue
                best = max(rivals, key=lambda rule: rivals[rule])
                found = Verdict(
                    *(sampler, part, metric, own["mean"]),
                    spread=own["std"] if len(own["per_seed"]) > 1 else None,
                    rule=best,
                    value=rivals[best],
                    headline=metric == main,
                )
                if found.headline or found.outcome:
                    yield found
