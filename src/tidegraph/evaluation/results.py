"""What an evaluation measured, with all that is needed to compare it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tidegraph.core.errors import EvaluationError
from tidegraph.evaluation.splits import SnapshotSplit, Split
from tidegraph.evaluation.verdicts import PUBLISHED, Verdict
from tidegraph.events.stream import EventStream

Table = dict[str, dict[str, dict[str, float]]]  # [sampler][part][metric]
_TIES_WORTH_A_NOTE = 0.05  # of the positives
# What model and heuristics know when they are asked, by its name in results.
_KNOWLEDGE = {
    "event": "all events before each test event",
    "batch": "all events before the first of each batch of 200 test events",
    "snapshot": "all snapshots before the one they predict",
}
# The parts of protocols, as runs name them.
_PARTS = {"test": "all", "new_test": "new", "first_test": "first"}


@dataclass(frozen=True, slots=True)
class Row:
    """What one scorer achieved on one part of the data against one kind of negatives."""

    part: str
    sampler: str
    scorer: str
    metrics: dict[str, float]
    examples: int
    seed: int | None = None
    elapsed_s: float = 0.0
    rarest: int | None = None  # of two classes that are not equally frequent: examples of the rarer
    knowledge: str = "event"  # that of the result, or published: see docs/protocols.md
    errors: dict[str, float] = field(default_factory=dict)  # of means over events: standard errors

    @property
    def decisive(self) -> int:
        """The number of examples that the chance error of the metrics depends on."""
        return self.examples if self.rarest is None else self.rarest


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of one evaluation, and its data, split, negatives and seeds."""

    task: str  # link, snapshots, ranking, nodes or events
    knowledge: str  # all before each event, batch or snapshot
    model: str | None  # None: only the heuristics were evaluated
    data: dict[str, Any]
    split: dict[str, Any]
    training_negatives: str | None  # as stated by the caller
    settings: dict[str, Any]
    rows: tuple[Row, ...]
    headline: str  # the metric by which scorers are compared
    elapsed_s: float
    warnings: tuple[str, ...] = ()

    def row(self, part: str = "test", sampler: str | None = None, scorer: str | None = None) -> Row:
        """Return the row of a part, a sampler (by default the first) and a scorer (the model)."""
        wanted = scorer or self.model
        for row in self.rows:
            if row.part == part and row.scorer == wanted and sampler in (None, row.sampler):
                return row
        present = sorted({f"{row.part}/{row.sampler}/{row.scorer}" for row in self.rows})
        raise EvaluationError(
            f"no row for {part}/{sampler or 'any'}/{wanted}; there are {', '.join(present)}"
        )

    def verdict(self, part: str = "test", sampler: str | None = None) -> Verdict:
        """Compare the model with the heuristics by the headline metric."""
        return _verdict(self.row(part, sampler), self.rows, self.headline)

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain types; an undefined metric is None."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for row in self.rows for name in row.metrics))
        table = [["part", "negatives", "scorer", "knowledge", *names]]
        for row in self.rows:
            values = [f"{row.metrics[name]:.4f}" if name in row.metrics else "" for name in names]
            table.append([row.part, row.sampler, row.scorer, row.knowledge, *values])
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
        head = f"{self.task} on {self.data['title'] or self.data['digest']}, "
        head += f"{self.split['name']} split"
        if self.task not in ("nodes", "events"):
            head += f", training negatives: {self.training_negatives or 'not stated'}"
        return "\n".join([head, *lines, *(f"note: {warning}" for warning in self.warnings)])


@dataclass(frozen=True)
class Scores:
    """Results of the test events as runs save them: by scorer, in plain types."""

    table: dict[str, Table]  # [scorer]
    knowledge: str
    split: dict[str, Any]
    settings: dict[str, Any]  # [task]
    headlines: dict[str, str]  # [sampler]: the metric by which scorers are compared
    examples: dict[str, dict[str, int]]  # [sampler][part]
    errors: dict[str, Table]  # [scorer]: standard errors over events, where known
    notes: list[str]

    @classmethod
    def of(cls, results: Sequence[Result]) -> Scores:
        """Merge results; an undefined metric is left out."""
        table: dict[str, Table] = {}
        headlines: dict[str, str] = {}
        examples: dict[str, dict[str, int]] = {}
        errors: dict[str, Table] = {}
        for result in results:
            for own, row in zip(result.rows, result.to_dict()["rows"], strict=True):
                headlines[row["sampler"]] = plain_name(result.headline)
                examples.setdefault(row["sampler"], {})[_PARTS[row["part"]]] = own.decisive
                for found, values in ((table, row["metrics"]), (errors, row["errors"])):
                    parts = found.setdefault(row["scorer"], {}).setdefault(row["sampler"], {})
                    parts.setdefault(_PARTS[row["part"]], {}).update(
                        (plain_name(metric), value)
                        for metric, value in values.items()
                        if value is not None
                    )
        return cls(
            table,
            results[0].knowledge,
            results[0].to_dict()["split"],
            {result.task: result.settings for result in results},
            headlines,
            examples,
            errors,
            [warning for result in results for warning in result.warnings],
        )


def knowledge_words(knowledge: str) -> str:
    """Return what was known when a model and the heuristics were asked.

    >>> knowledge_words("snapshot")
    'Model and heuristics know all snapshots before the one they predict.'
    """
    return f"Model and heuristics know {_KNOWLEDGE[knowledge]}."


def plain_name(metric: str) -> str:
    """Return a metric as an identifier: mrr-full is mrr_full, hits@10 is hits_10."""
    return metric.replace("-", "_").replace("@", "_")


def mean_and_spread(values: list[float]) -> dict[str, Any]:
    """Return the `mean` of values, their standard deviation `std` (0 for one), and `per_seed`."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "std": spread, "per_seed": values}


def over_seeds(
    tables: Sequence[Table], errors: Sequence[Table] = ()
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return `[sampler][part][metric]` with what `mean_and_spread` gives.

    Where `errors` has the standard errors over events, `error` is their mean.
    """

    def of(sampler: str, part: str, metric: str) -> dict[str, Any]:
        found = mean_and_spread([table[sampler][part][metric] for table in tables])
        known = [each.get(sampler, {}).get(part, {}).get(metric) for each in errors]
        mean = [error for error in known if error is not None]
        return found | ({"error": statistics.fmean(mean)} if mean else {})

    return {
        sampler: {
            part: {metric: of(sampler, part, metric) for metric in values}
            for part, values in parts.items()
        }
        for sampler, parts in tables[0].items()
    }


@dataclass
class ResultBuilder:
    """A result in the making: the time it began, its rows and its warnings so far."""

    task: str
    stream: EventStream
    model: str | None
    headline: str
    training_negatives: str | None = None
    knowledge: str = "event"
    _begun: float = field(default_factory=time.perf_counter)
    _rows: list[Row] = field(default_factory=list)
    _warnings: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        knowledge = "published" if row.scorer.endswith(PUBLISHED) else self.knowledge
        self._rows.append(replace(row, knowledge=knowledge))

    def warn(self, warning: str) -> None:
        self._warnings.append(warning)

    def warn_of_ties(self, part: str, negatives: str, tied: float) -> None:
        """Warn if a large share of the positives ties with negatives at the model's best score."""
        if tied > _TIES_WORTH_A_NOTE:
            self.warn(
                f"{self.model} gives {tied:.0%} of the positives of {part} the highest score, and"
                f" {negatives} negatives the same: it cannot order them, and no metric here does it"
                " for it. Often these are probabilities in float32, which are exactly 1.0 from a"
                " logit of 17 on: return logits, or compute probabilities in float64; see"
                " docs/published-numbers.md"
            )

    def result(
        self, split: Split | SnapshotSplit | dict[str, Any], settings: dict[str, Any]
    ) -> Result:
        """Return the finished result; a warning names every heuristic that the model does not beat.

        Raise EvaluationError if there are no rows.
        """
        if not self._rows:
            raise EvaluationError("nothing was evaluated: every part asked for is empty")
        if not isinstance(split, dict):
            parameters = dict(split.parameters)
            split = {"name": split.name, "sizes": split.sizes(), "parameters": parameters}
        stream = self.stream
        return Result(
            task=self.task,
            knowledge=self.knowledge,
            model=self.model,
            data={
                "title": stream.title,
                "digest": stream.digest(),
                "events": len(stream),
                "nodes": stream.nodes,
            },
            split=split,
            training_negatives=self.training_negatives,
            settings=settings,
            rows=tuple(self._rows),
            headline=self.headline,
            elapsed_s=time.perf_counter() - self._begun,
            warnings=(*self._warnings, *self._not_beaten()),
        )

    def _not_beaten(self) -> Iterator[str]:
        for own in self._rows:
            if own.scorer == self.model and math.isfinite(own.metrics[self.headline]):
                verdict = _verdict(own, self._rows, self.headline)
                if verdict.outcome:
                    yield str(verdict)


def _verdict(own: Row, rows: Sequence[Row], metric: str) -> Verdict:
    """Compare the model's row with those of the heuristics that were asked and know the same."""
    heuristics = {
        row.scorer: row.metrics[metric]
        for row in rows
        if (row.part, row.sampler, row.knowledge) == (own.part, own.sampler, own.knowledge)
        and row.scorer != own.scorer
        and math.isfinite(row.metrics.get(metric, math.nan))
    }
    return Verdict(
        *(own.sampler, own.part, metric, own.metrics[metric]),
        spread=None,
        heuristics=heuristics,
        examples=own.decisive,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
