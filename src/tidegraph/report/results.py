"""What a run achieved, read from its directory and told beside what no learning achieves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegraph.core.errors import StateFileError
from tidegraph.evaluation import outcome_of_heuristic, verdicts
from tidegraph.report.observations import Observations, read_observations

__all__ = [
    "METRIC_WORDS",
    "OBSERVATIONS",
    "Finding",
    "Run",
    "flat",
    "negatives_in_words",
    "read_run",
]

OBSERVATIONS = "observations"
METRIC_WORDS = {
    "ap": "AP",
    "auc": "AUC",
    "ap_global": "AP over all at once",
    "auc_global": "AUC over all at once",
    "mrr": "MRR",
    "mrr_full": "MRR among all nodes",
    "mrr_1000": "MRR among 1,000",
    "mrr_1000_expected": "MRR among 1,000, expected",
    "micro_f1": "micro-F1",
    "hits_1": "hits@1",
    "hits_3": "hits@3",
    "hits_10": "hits@10",
}
_OF_LINKS = ("ap", "mrr", "mrr_full")  # the first of them that there is compares scorers
_OF_NODES = ("auc", "micro_f1")
_NEGATIVES = {
    "random-dst": "against random destinations",
    "random-all": "against random nodes",
    "historical": "against pairs of the past",
    "inductive": "against pairs first seen after training",
    "all-dst": "among all destinations",
    "all-nodes": "among all nodes",
    "none": "on labels of the test period",
}


def negatives_in_words(sampler: str) -> str:
    """What a prediction competes with."""
    return _NEGATIVES.get(sampler, f"under {sampler}")


@dataclass(frozen=True)
class Finding:
    """The model's headline number under one sampler on one part, and its rivals'."""

    sampler: str
    part: str  # all, or new: events that touch a node unseen in training
    metric: str
    mean: float
    spread: float  # standard deviation over seeds
    per_seed: tuple[float, ...]
    heuristics: dict[str, float]

    @property
    def best(self) -> tuple[str, float] | None:
        """The best heuristic."""
        if not self.heuristics:
            return None
        return max(self.heuristics.items(), key=lambda item: item[1])

    @property
    def outcome(self) -> str:
        """What the best heuristic is beside the model: `ahead`, `about as good`, or nothing."""
        if self.best is None:
            return ""
        spread = self.spread if len(self.per_seed) > 1 else None
        return outcome_of_heuristic(self.best[1], self.mean, spread)

    @property
    def words(self) -> str:
        """Under what it was found."""
        new = ", new nodes" if self.part == "new" else ""
        return negatives_in_words(self.sampler) + new

    @property
    def value(self) -> str:
        """The number with its spread, where there is one."""
        if len(self.per_seed) < 2:
            return f"{self.mean:.4f}"
        return f"{self.mean:.4f} ± {self.spread:.4f}"


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run, as its directory tells it."""

    name: str
    results: dict[str, Any]  # metrics.json
    config: str  # config.toml
    observations: Observations | None

    @property
    def title(self) -> str:
        """What the data is called."""
        data = self.results.get("data") or {}
        seen = self.observations.about.get("title") if self.observations else None
        return str(data.get("title") or seen or data.get("name") or self.name)

    @property
    def task(self) -> str:
        """`link` or `node`."""
        if self.observations is not None:
            return str(self.observations.about["task"])
        return "node" if "none" in self.results.get("metrics", {}) else "link"

    @property
    def settings(self) -> dict[str, Any]:
        """All that was set, flat, with dotted names."""
        told = self.results.get("config")
        return flat(told if told else {"model": self.results.get("settings") or {}})

    def findings(self) -> list[Finding]:
        """One per sampler and part, in the order of the results, `all` first."""
        found = []
        metrics, heuristics = self.results["metrics"], self.results.get("heuristics") or {}
        for part in ("all", "new"):
            for sampler, parts in metrics.items():
                values = parts.get(part) or {}
                wanted = _OF_NODES if sampler == "none" else _OF_LINKS
                metric = next(
                    (name for name in wanted if (values.get(name) or {}).get("mean") is not None),
                    None,
                )
                if metric is None:
                    continue
                rivals = {
                    name: table.get(sampler, {}).get(part, {}).get(metric)
                    for name, table in heuristics.items()
                }
                found.append(
                    Finding(
                        sampler,
                        part,
                        metric,
                        values[metric]["mean"],
                        values[metric]["std"],
                        tuple(values[metric]["per_seed"]),
                        {name: value for name, value in rivals.items() if value is not None},
                    )
                )
        return found

    def asides(self) -> list[str]:
        """Where a heuristic is not behind by a metric that is not the headline."""
        given = self.results.get("heuristics") or {}, self.results.get("headlines") or {}
        found = verdicts(self.results["metrics"], *given)
        return [str(verdict) for verdict in found if not verdict.headline]


def flat(tree: dict[str, Any]) -> dict[str, Any]:
    """The leaves of a tree by their dotted names."""
    return dict(_leaves("", tree))


def _leaves(prefix: str, tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def read_run(directory: str | Path) -> Run:
    """What is in the directory of a run; it may lack everything but its metrics."""
    path = Path(directory)
    metrics, config = path / "metrics.json", path / "config.toml"
    try:
        results = json.loads(metrics.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateFileError(
            f"{path} holds no metrics.json, which a finished run has; give the directory of a run,"
            f" or finish it with: tidegraph resume {path}"
        ) from None
    except (OSError, ValueError) as error:
        raise StateFileError(f"{metrics} cannot be read ({error}); run it again") from None
    if not isinstance(results, dict) or not isinstance(results.get("metrics"), dict):
        raise StateFileError(f"{metrics} does not hold the metrics of a run; run it again")
    return Run(
        path.absolute().name,
        results,
        config.read_text(encoding="utf-8") if config.is_file() else "",
        read_observations(path / OBSERVATIONS),
    )
