"""Evaluations to the letter of their protocols, with what no learning achieves beside them.

A model is a function of pairs and times that uses events strictly before each time only. The
heuristics are asked with their memory at the start of a batch, as EdgeBank is in its publications,
and are then shown its events; those that can are asked once more with what a model may know, all
events of the stream before each one, and carry `@event` in their names then. Weights do not change
here; whatever state a model has of the events is its own affair, as long as it answers for the time
it was asked about.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import EvaluationError, ParameterError
from tidegraph.evaluation import metrics
from tidegraph.evaluation.heuristics import (
    Heuristic,
    link_heuristics,
    node_heuristics,
    snapshot_heuristics,
)
from tidegraph.evaluation.negatives import GivenNegatives, NegativeSampler, negative_sampler
from tidegraph.evaluation.splits import SnapshotSplit, Split
from tidegraph.evaluation.verdicts import outcome_of_heuristic
from tidegraph.events.batch import Op
from tidegraph.events.moments import time_numbers
from tidegraph.events.names import node_numbers
from tidegraph.events.stream import EventStream, NodeLabels

__all__ = [
    "SEEDS",
    "Result",
    "Row",
    "evaluate_link",
    "evaluate_nodes",
    "evaluate_ranking",
    "evaluate_snapshots",
    "tgb_evaluate",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
PairScore = Callable[[IntArray, IntArray, IntArray], ArrayLike]  # src, dst, t -> [B]
TableScore = Callable[[IntArray, int], ArrayLike]  # sources, task -> [sources, nodes]
NodeScore = Callable[[IntArray, IntArray], ArrayLike]  # node, t -> [B] or [B, classes]

SEEDS = {"validation": 0, "new_validation": 1, "test": 2, "new_test": 3}

# A model is a function of its arguments, so it may be asked for many batches at once.
_PAIRS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Row:
    """What one scorer achieved on one part of the data under one kind of negatives."""

    part: str
    sampler: str
    scorer: str
    metrics: dict[str, float]
    examples: int
    seed: int | None = None
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """Numbers and all that is needed to compare them: data, split, negatives, seeds, heuristics."""

    task: str  # link, snapshots, ranking or nodes
    model: str | None  # None: only the heuristics were evaluated
    data: dict[str, Any]
    split: dict[str, Any]
    training_negatives: str | None  # what the caller says it trained with
    settings: dict[str, Any]
    rows: tuple[Row, ...]
    headline: str  # the metric by which scorers are compared
    elapsed_s: float
    warnings: tuple[str, ...] = ()

    def row(self, part: str = "test", sampler: str | None = None, scorer: str | None = None) -> Row:
        """The row of this part, sampler (the first one) and scorer (the model)."""
        wanted = scorer or self.model
        for row in self.rows:
            if row.part == part and row.scorer == wanted and sampler in (None, row.sampler):
                return row
        present = sorted({f"{row.part}/{row.sampler}/{row.scorer}" for row in self.rows})
        raise EvaluationError(
            f"no row for {part}/{sampler or 'any'}/{wanted}; there are {', '.join(present)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain types; a metric that is undefined is None."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for row in self.rows for name in row.metrics))
        table = [["part", "negatives", "scorer", *names]]
        for row in self.rows:
            values = [f"{row.metrics[name]:.4f}" if name in row.metrics else "" for name in names]
            table.append([row.part, row.sampler, row.scorer, *values])
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
        head = f"{self.task} on {self.data['title'] or self.data['digest']}, "
        head += f"{self.split['name']} split"
        if self.task != "nodes":
            head += f", training negatives: {self.training_negatives or 'not stated'}"
        return "\n".join([head, *lines, *(f"note: {warning}" for warning in self.warnings)])


def evaluate_link(
    score: PairScore | None,
    stream: EventStream,
    split: Split,
    *,
    samplers: Sequence[str | GivenNegatives] = ("random-dst",),
    parts: Sequence[str] = ("test", "new_test"),
    batch_size: int = 200,
    seeds: Mapping[str, int] = SEEDS,
    heuristics: Callable[[], Sequence[Heuristic]] | None = None,
    model: str = "model",
    training_negatives: str | None = None,
) -> Result:
    """True pairs against one false pair each: AP and AUC, per batch and global, as TGN has them.

    `score(src, dst, t)` gives a number per pair; with None only the heuristics are evaluated. A
    negative is asked about at the time of its positive. Negatives of `validation` and `test` come
    from the whole stream, those of the new-node parts from their own events; `inductive` leaves
    out edges that occurred before the part began. Heuristics know the events of training,
    validation and test that precede the batch or, as `<name>@event`, every event of the stream
    that precedes the one asked about, those of nodes held out of training among them.
    `heuristics` makes fresh ones and may give none.
    """
    clock = _Clock()
    _only_additions(stream)
    unseeded = [part for part in parts if part not in seeds]
    if unseeded:
        raise ParameterError(f"{unseeded[0]} has no seed; seeds are given for {', '.join(seeds)}")
    make = heuristics or _heuristics_for(stream, split)
    informed = _informed(make(), stream)
    rows: list[Row] = []
    for part in parts:
        positions = split.part(part)
        if len(positions) == 0:
            clock.warn(f"{part} is empty and was left out")
            continue
        batches = _batches(positions, batch_size)
        drawn: dict[str, list[tuple[IntArray, IntArray]]] = {}  # sampler -> pairs of each batch
        for wanted in samplers:
            sampler = _sampler(wanted, stream, split, part, seeds)
            drawn[sampler.name] = [sampler.sample(*_columns(stream, batch)) for batch in batches]
        answers = [] if score is None else [(model, _asked(score, stream, batches, drawn))]
        for rule in make():
            answers.append((rule.name, _predicted(rule, stream, split, batches, drawn)))
        for name, rule_score in informed.items():
            answers.append((name, _asked(rule_score, stream, batches, drawn)))
        for name in drawn:
            seed = None if name == GivenNegatives.name else seeds[part]
            for scorer, (positive, negative, elapsed_s) in answers:
                values = metrics.link_metrics(positive, negative[name], batch_size=batch_size)
                rows.append(Row(part, name, scorer, values, len(positive), seed, elapsed_s))
    return clock.result(
        "link",
        model if score is not None else None,
        stream,
        split,
        training_negatives,
        {"batch_size": batch_size, "seeds": dict(seeds)},
        rows,
        headline="ap",
    )


_Drawn = Mapping[str, Sequence[tuple[IntArray, IntArray]]]
_Answer = tuple[FloatArray, dict[str, FloatArray], float]  # positives, negatives, seconds


def _asked(
    score: PairScore, stream: EventStream, batches: Sequence[IntArray], drawn: _Drawn
) -> _Answer:
    """The scores of a model, which answers for any time and so for all batches together."""
    begun = time.perf_counter()
    src, dst, t = _columns(stream, np.concatenate(batches))
    positive = _ask(score, src, dst, t)
    negative = {}
    for name, pairs in drawn.items():
        sources, destinations = zip(*pairs, strict=True)
        negative[name] = _ask(score, np.concatenate(sources), np.concatenate(destinations), t)
    return positive, negative, time.perf_counter() - begun


def _predicted(
    rule: Heuristic,
    stream: EventStream,
    split: Split,
    batches: Sequence[IntArray],
    drawn: _Drawn,
) -> _Answer:
    """The scores of a heuristic, which must see each batch after it has predicted it."""
    begun = time.perf_counter()
    positive: list[FloatArray] = []
    negative: dict[str, list[FloatArray]] = {name: [] for name in drawn}
    for number, batch in enumerate(_shown(rule, stream, split, batches)):
        src, dst, t = _columns(stream, batch)
        positive.append(rule.score(src, dst, t))
        for name, pairs in drawn.items():
            negative[name].append(rule.score(*pairs[number], t))
    joined = {name: np.concatenate(scores) for name, scores in negative.items()}
    return np.concatenate(positive), joined, time.perf_counter() - begun


def evaluate_ranking(
    score: PairScore | None,
    stream: EventStream,
    split: Split,
    *,
    negatives: ArrayLike | None = None,
    part: str = "test",
    sample: int | None = None,
    seed: int = 0,
    batch_size: int = 200,
    heuristics: Callable[[], Sequence[Heuristic]] | None = None,
    model: str = "model",
    training_negatives: str | None = None,
) -> Result:
    """The rank of each true destination among others, TGB's way: MRR and hits, ties half.

    The others are `negatives` [events of the part, K] (`given`), or every destination of the
    stream (`all-dst`) but those that the same source reaches at the same time. With `sample` only
    so many events, drawn by `seed`, are ranked. What heuristics know is as in `evaluate_link`.
    """
    clock = _Clock()
    _only_additions(stream)
    positions = split.part(part)
    given = None if negatives is None else node_numbers(negatives)
    if given is not None and (given.ndim != 2 or len(given) != len(positions)):
        raise EvaluationError(
            f"negatives have shape {given.shape}; {part} has {len(positions)} events, "
            "each of which needs a row"
        )
    if len(positions) == 0:
        raise EvaluationError(f"{part} is empty; there is nothing to rank")
    chosen = np.arange(len(positions))
    if sample is not None and sample < len(positions):
        generator = np.random.default_rng(seed)
        chosen = np.sort(generator.choice(len(positions), size=sample, replace=False))
    destinations = np.unique(stream.dst)
    answers = _answers(stream) if given is None else None
    kind = "all-dst" if given is None else GivenNegatives.name
    width = 1 + (len(destinations) if given is None else given.shape[1])
    at_once = max(1, _PAIRS_AT_ONCE // width)

    def ranked(ask: PairScore, batch: IntArray) -> FloatArray:
        return np.concatenate([ranked_at_once(ask, rows) for rows in _batches(batch, at_once)])

    def ranked_at_once(ask: PairScore, batch: IntArray) -> FloatArray:
        src, dst, t = _columns(stream, positions[batch])
        others = np.tile(destinations, (len(batch), 1)) if given is None else given[batch]
        candidates = np.concatenate([dst[:, None], others], axis=1)  # [B, width]
        flat = _ask(ask, np.repeat(src, width), candidates.ravel(), np.repeat(t, width))
        table = flat.reshape(candidates.shape)
        own = None if answers is None else answers(src, t, others)
        return metrics.ranks(table[:, 0], table[:, 1:], without=own)

    rows = []

    def add(scorer: str, rank: FloatArray, begun: float) -> None:
        spent = time.perf_counter() - begun
        rows.append(Row(part, kind, scorer, _ranking_metrics(rank), len(rank), None, spent))

    make = heuristics or _heuristics_for(stream, split)
    if score is not None:
        begun = time.perf_counter()
        add(model, ranked(score, chosen), begun)
    # The batches are those of the whole part, so that a sample finds the same memory as all would.
    batches = _batches(np.arange(len(positions)), batch_size)
    for rule in make():
        begun = time.perf_counter()
        shown = _shown(rule, stream, split, [positions[batch] for batch in batches])
        found = []
        for batch, _ in zip(batches, shown, strict=True):
            asked = batch[np.isin(batch, chosen)]
            if len(asked):
                found.append(ranked(rule.score, asked))
        add(rule.name, np.concatenate(found), begun)
    for name, rule_score in _informed(make(), stream).items():
        begun = time.perf_counter()
        add(name, ranked(rule_score, chosen), begun)
    return clock.result(
        "ranking",
        model if score is not None else None,
        stream,
        split,
        training_negatives,
        {"batch_size": batch_size, "sample": sample, "seed": seed},
        rows,
        headline="mrr",
    )


def evaluate_snapshots(
    score_all: TableScore | None,
    stream: EventStream,
    split: SnapshotSplit,
    *,
    part: str = "test",
    negatives: int = 1000,
    seed: int = 0,
    heuristics: Callable[[], Sequence[Heuristic]] | None = None,
    model: str = "model",
    training_negatives: str | None = None,
) -> Result:
    """The edges of the next snapshot among all pairs of its sources, by both MRRs in use.

    `score_all(sources, k)` gives [sources, nodes] from the snapshots up to and including `k`.
    `mrr-full` ranks every true destination among all nodes, ties half; `mrr-1000` the best one of
    each source against 1,000 drawn nodes, ties against it, and `mrr-1000-expected` is its mean
    over all draws. Heuristics know the same snapshots. A pair that occurs several times in a
    snapshot counts once. Each is the mean over sources, then over snapshots.
    """
    clock = _Clock()
    _only_additions(stream)
    tasks = split.part(part)
    if len(tasks) == 0:
        raise EvaluationError(f"the split has no {part} tasks; there is nothing to evaluate")
    order = np.argsort(split.index, kind="stable")
    bounds = np.searchsorted(split.index[order], np.arange(split.snapshots + 1))

    def snapshots(first: int, last: int) -> EventStream:
        taken = order[bounds[first] : bounds[last]]
        return EventStream(
            stream.src[taken], stream.dst[taken], split.index[taken], stream.nodes, unit="step"
        )

    rules = list((heuristics or snapshot_heuristics)())
    scorers: dict[str, TableScore] = {} if score_all is None else {model: score_all}
    for rule in rules:
        if rule.name in scorers:
            raise ParameterError(f"two scorers are called {rule.name!r}; rename one")
        scorers[rule.name] = partial(_all_nodes, rule, stream.nodes)
        rule.update(snapshots(0, tasks[0]))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in scorers}
    spent = dict.fromkeys(scorers, 0.0)
    pairs = 0
    for task in tasks:
        for rule in rules:
            rule.update(snapshots(task, task + 1))
        target = snapshots(task + 1, task + 2)
        keys = np.unique(target.src * stream.nodes + target.dst)
        sources, row = np.unique(keys // stream.nodes, return_inverse=True)
        column = keys % stream.nodes
        pairs += len(keys)
        for name, scorer in scorers.items():
            begun = time.perf_counter()
            table = np.asarray(scorer(sources, task), dtype=np.float64)
            spent[name] += time.perf_counter() - begun
            if table.shape != (len(sources), stream.nodes):
                raise EvaluationError(
                    f"{name} gave scores of shape {table.shape} for task {task}; "
                    f"[{len(sources)}, {stream.nodes}] is needed, every node for each source"
                )
            found[name].append(
                {
                    "mrr-full": metrics.mrr_full(table, row, column),
                    f"mrr-{negatives}": metrics.mrr_sampled(
                        table, row, column, negatives=negatives, seed=seed + task
                    ),
                    f"mrr-{negatives}-expected": metrics.expected_mrr_sampled(
                        table, row, column, negatives=negatives
                    ),
                }
            )
    rows = []
    for name, values in found.items():
        means = {key: float(np.mean([value[key] for value in values])) for key in values[0]}
        rows.append(Row(part, "all-nodes", name, means, pairs, seed, spent[name]))
    return clock.result(
        "snapshots",
        model if score_all is not None else None,
        stream,
        split,
        training_negatives,
        {"negatives": negatives, "seed": seed},
        rows,
        headline="mrr-full",
    )


def evaluate_nodes(
    score: NodeScore | None,
    stream: EventStream,
    examples: NodeLabels,
    *,
    known_at: ArrayLike | NodeLabels | None = None,
    parts: Sequence[str] = ("validation", "test"),
    split_name: str = "time",
    model: str = "model",
) -> Result:
    """Classes of nodes at times: AUC and AP where there are two classes, micro-F1 always.

    `score(node, t)` gives [B], the score of class 1, above 0.5 meaning it, or [B, classes].
    `examples.part` divides them. `known_at` says when each label became known, for the heuristic
    that repeats the last one, or gives the labels with those times; by default each is known at its
    own time. AUC and AP are over the whole part, and
    undefined (nan, with a note) where only one class occurs.
    """
    clock = _Clock()
    if examples.part is None:
        raise EvaluationError(
            "the examples are not divided; give part: 0 train, 1 validation, 2 test"
        )
    numbers = {"train": 0, "validation": 1, "test": 2}
    unknown = [part for part in parts if part not in numbers]
    if unknown:
        raise ParameterError(f"no part is called {unknown[0]!r}; give {', '.join(numbers)}")
    classes = int(examples.label.max()) + 1 if len(examples.label) else 0
    if classes < 2 or examples.label.min() < 0:
        raise EvaluationError("labels are classes from 0, and at least two; see NodeLabels")
    known = _known(examples, known_at)
    train = _chosen(examples, examples.part == numbers["train"])
    if len(train.label) == 0:
        raise EvaluationError("no example is for training (part 0); the heuristics need some")
    scorers: dict[str, NodeScore] = {} if score is None else {model: score}
    for rule in node_heuristics(stream, train, known, classes=classes):
        scorers[rule.name] = rule.score
    rows = []
    for part in parts:
        asked = _chosen(examples, examples.part == numbers[part])
        if len(asked.label) == 0:
            clock.warn(f"{part} is empty and was left out")
            continue
        one_class = len(np.unique(asked.label)) < 2
        if classes == 2 and one_class:
            clock.warn(f"only one class occurs in {part}: AUC and AP are undefined there")
        for name, scorer in scorers.items():
            begun = time.perf_counter()
            given = np.asarray(scorer(asked.node, asked.t), dtype=np.float64)
            spent = time.perf_counter() - begun
            values = _node_metrics(given, asked.label, classes, name, defined=not one_class)
            rows.append(Row(part, "none", name, values, len(asked.label), None, spent))
    sizes = {part: int((examples.part == number).sum()) for part, number in numbers.items()}
    return clock.result(
        "nodes",
        model if score is not None else None,
        stream,
        {"name": split_name, "sizes": sizes, "parameters": {}},
        None,
        {"classes": classes},
        rows,
        headline="auc" if classes == 2 else "micro-f1",
    )


def tgb_evaluate(
    positive: ArrayLike, negatives: ArrayLike, *, data_set: str = "tgbl-wiki"
) -> dict[str, float | str]:
    """The MRR of scores [B] against [B, K] by TGB's own evaluator, or ours where it is absent.

    Both rank by (optimistic + pessimistic) / 2 + 1. `evaluator` in what comes back says which
    one spoke.
    """
    rank = metrics.ranks(positive, negatives)
    try:
        from tgb.linkproppred.evaluate import Evaluator
    except ImportError:
        return {"mrr": metrics.mrr(rank), "evaluator": "tidegraph"}
    answer = Evaluator(name=data_set).eval(
        {
            "y_pred_pos": np.asarray(positive, dtype=np.float64),
            "y_pred_neg": np.asarray(negatives, dtype=np.float64),
            "eval_metric": ["mrr"],
        }
    )
    return {"mrr": float(np.mean(answer["mrr"])), "evaluator": "py-tgb"}


# What the protocols share -------------------------------------------------------------------------


class _Clock:
    """The time since an evaluation began, and what was found worth a note."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._warnings: list[str] = []

    def warn(self, note: str) -> None:
        self._warnings.append(note)

    def result(
        self,
        task: str,
        model: str | None,
        stream: EventStream,
        split: Split | SnapshotSplit | dict[str, Any],
        training_negatives: str | None,
        settings: dict[str, Any],
        rows: Sequence[Row],
        *,
        headline: str,
    ) -> Result:
        if not rows:
            raise EvaluationError("nothing was evaluated: every part asked for is empty")
        if not isinstance(split, dict):
            parameters = dict(split.parameters)
            split = {"name": split.name, "sizes": split.sizes(), "parameters": parameters}
        return Result(
            task=task,
            model=model,
            data={
                "title": stream.title,
                "digest": stream.digest(),
                "events": len(stream),
                "nodes": stream.nodes,
            },
            split=split,
            training_negatives=training_negatives,
            settings=settings,
            rows=tuple(rows),
            headline=headline,
            elapsed_s=time.perf_counter() - self._begun,
            warnings=(*self._warnings, *_beaten(rows, model, headline)),
        )


def _beaten(rows: Sequence[Row], model: str | None, headline: str) -> Iterator[str]:
    """A note for every part and sampler under which some heuristic is at least as good."""
    for own in rows:
        if own.scorer != model:
            continue
        rivals = [
            row
            for row in rows
            if (row.part, row.sampler) == (own.part, own.sampler) and row.scorer != model
        ]
        best = max(rivals, key=lambda row: row.metrics.get(headline, -math.inf), default=None)
        if best is None:
            continue
        if outcome := outcome_of_heuristic(best.metrics[headline], own.metrics[headline]):
            yield (
                f"a heuristic is {outcome}: {best.scorer} has {headline}"
                f" {best.metrics[headline]:.4f} on {own.part} under {own.sampler}, {model}"
                f" {own.metrics[headline]:.4f}"
            )


def _heuristics_for(stream: EventStream, split: Split) -> Callable[[], Sequence[Heuristic]]:
    # Memories fade within a thirtieth of the training time: a day where that is a month.
    scale = max(1.0, float(np.ptp(stream.t[split.train])) / 30)
    return partial(link_heuristics, scale)


def _all_nodes(rule: Heuristic, nodes: int, sources: IntArray, task: int) -> FloatArray:
    return rule.score_all(sources, task, nodes)


def _batches(positions: IntArray, size: int) -> list[IntArray]:
    if size < 1:
        raise ParameterError(f"batch_size is {size}; it is at least 1")
    return [positions[first : first + size] for first in range(0, len(positions), size)]


def _only_additions(stream: EventStream) -> None:
    if stream.op is not None and (stream.op != Op.ADD).any():
        raise EvaluationError(
            "the stream removes or sets edges; links that appear are predicted: "
            "evaluate on stream.where(stream.op == Op.ADD)"
        )


def _bare(stream: EventStream) -> EventStream:
    """Who met whom and when: a part of this is cheap to take, features are not."""
    return EventStream(stream.src, stream.dst, stream.t, stream.nodes)


def _columns(stream: EventStream, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    return stream.src[rows], stream.dst[rows], stream.t[rows]


def _sampler(
    wanted: str | GivenNegatives,
    stream: EventStream,
    split: Split,
    part: str,
    seeds: Mapping[str, int],
) -> NegativeSampler:
    if isinstance(wanted, GivenNegatives):
        return wanted
    pool = stream
    if part.startswith("new_"):
        inside = np.zeros(len(stream), dtype=bool)
        inside[split.part(part)] = True
        pool = _bare(stream).where(inside)
    before = split.train if part.endswith("validation") else split.validation
    observed_until = int(stream.t[before[-1]])
    return negative_sampler(wanted, pool, seed=seeds[part], observed_until=observed_until)


def _informed(rules: Sequence[Heuristic], stream: EventStream) -> dict[str, PairScore]:
    """Those of the rules that can answer from all events before each single one, by name."""
    scores = {f"{rule.name}@event": rule.per_event(_bare(stream)) for rule in rules}
    return {name: score for name, score in scores.items() if score is not None}


def _shown(
    rule: Heuristic, stream: EventStream, split: Split, batches: Sequence[IntArray]
) -> Iterator[IntArray]:
    """Each batch, once the rule was shown every event of the split before its first."""
    visible = np.zeros(len(stream), dtype=bool)
    for rows in (split.train, split.validation, split.test):
        visible[rows] = True
    bare = _bare(stream)
    done = 0
    for batch in batches:
        first = int(batch[0])
        rule.update(bare[done:first].where(visible[done:first]))
        done = first
        yield batch


def _ask(score: PairScore, src: IntArray, dst: IntArray, t: IntArray) -> FloatArray:
    found = []
    for first in range(0, len(src), _PAIRS_AT_ONCE):
        rows = slice(first, first + _PAIRS_AT_ONCE)
        answer = np.asarray(score(src[rows], dst[rows], t[rows]), dtype=np.float64)
        if answer.shape != src[rows].shape:
            raise EvaluationError(
                f"{len(src[rows])} pairs were asked about and scores of shape {answer.shape} came "
                "back; give one number per pair"
            )
        if not np.isfinite(answer).all():
            pair = int(np.argmin(np.isfinite(answer)))
            raise EvaluationError(
                f"the score of ({src[rows][pair]}, {dst[rows][pair]}) at t={t[rows][pair]} is "
                f"{answer[pair]}; a score is a finite number"
            )
        found.append(answer)
    return np.concatenate(found)


def _answers(
    stream: EventStream,
) -> Callable[[IntArray, IntArray, IntArray], NDArray[np.bool_]]:
    """A test of which candidates [B, K] a source [B] truly reaches at a time [B]."""
    times = np.unique(stream.t)
    # One number per (source, time) that occurs, so that a triple fits into 64 bits.
    events = stream.src * len(times) + np.searchsorted(times, stream.t)
    moments, number = np.unique(events, return_inverse=True)
    triples = np.unique(number.reshape(-1) * stream.nodes + stream.dst)

    def true(src: IntArray, t: IntArray, candidates: IntArray) -> NDArray[np.bool_]:
        moment = np.searchsorted(moments, src * len(times) + np.searchsorted(times, t))
        wanted = moment[:, None] * stream.nodes + candidates
        place = np.minimum(np.searchsorted(triples, wanted), len(triples) - 1)
        return np.asarray(triples[place] == wanted)

    return true


def _ranking_metrics(rank: FloatArray) -> dict[str, float]:
    hits = {f"hits@{k}": metrics.hits_at(rank, k) for k in (1, 3, 10)}
    return {"mrr": metrics.mrr(rank), **hits}


def _known(examples: NodeLabels, known_at: ArrayLike | NodeLabels | None) -> NodeLabels:
    if isinstance(known_at, NodeLabels):
        return known_at
    known_t = examples.t if known_at is None else time_numbers(known_at)
    if known_t.shape != examples.t.shape:
        raise EvaluationError(
            f"known_at has shape {known_t.shape}; {examples.t.shape} is needed, a time per example"
        )
    return NodeLabels(examples.node, known_t, examples.label)


def _chosen(labels: NodeLabels, mask: NDArray[np.bool_]) -> NodeLabels:
    return NodeLabels(labels.node[mask], labels.t[mask], labels.label[mask])


def _node_metrics(
    given: FloatArray, labels: IntArray, classes: int, name: str, *, defined: bool
) -> dict[str, float]:
    if given.shape not in ((len(labels),), (len(labels), classes)):
        raise EvaluationError(
            f"{name} gave scores of shape {given.shape} for {len(labels)} examples; "
            f"give [{len(labels)}] or [{len(labels)}, {classes}]"
        )
    if not np.isfinite(given).all():
        raise EvaluationError(f"{name} gave scores that are not finite numbers")
    if given.ndim == 1 and classes != 2:
        raise EvaluationError(f"{name} gave one score per example, but there are {classes} classes")
    predicted = (given > 0.5).astype(np.int64) if given.ndim == 1 else given.argmax(axis=1)
    values = {"micro-f1": metrics.micro_f1(labels, predicted)}
    if classes == 2:
        one = given if given.ndim == 1 else given[:, 1] - given[:, 0]
        values["auc"] = metrics.roc_auc(labels, one) if defined else math.nan
        values["ap"] = metrics.average_precision(labels, one) if defined else math.nan
    return values


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
