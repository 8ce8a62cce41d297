"""What a fitted predictor answers: what comes next, how high the truth ranks, and who meets first.

All of it is a sample, so that it takes seconds on any stream, and is saved with its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.progress import Progress, silent
from tidegraph.evaluation import Split, metrics
from tidegraph.evaluation.memory import Meetings, Memory
from tidegraph.evaluation.metrics import standard_error
from tidegraph.evaluation.protocols.scoring import (
    BATCH_SIZE,
    PAIRS_AT_ONCE,
    columns,
    heuristics_for,
    known_before,
    slices,
    without_features,
)
from tidegraph.events.batch import Op
from tidegraph.events.stream import EventStream
from tidegraph.report.telemetry import Gathered, short

if TYPE_CHECKING:
    from tidegraph.learning.tasks import LinkPredictor, NodeClassifier

IntArray = NDArray[np.int64]
Pairs = tuple[IntArray, IntArray, IntArray]  # sources, destinations, times

_NODES, _ANSWERS = 10, 3  # nodes asked about, and answers for each
_PAIRS = 300_000  # scored for each question, at most: seconds
_RANKED, _LEAST_RANKED = 1_000, 50  # test events: more are not needed, fewer say nothing
_MEETINGS = 5_000  # test events of each kind that are compared with a false pair, at most
_DRAWS = 20  # attempts to find a destination that a source has never met


def next_links(
    predictor: LinkPredictor, stream: EventStream, split: Split, report: Progress = silent
) -> Gathered:
    """Return the likeliest next links of active nodes, ranks of true destinations, and meetings."""
    rows = _tested(stream, split)
    random = np.random.default_rng(0)
    pairs = Meetings(stream)
    as_of = stream.t.copy()
    as_of[rows] = known_before(stream.t[rows], predictor.knowledge, BATCH_SIZE)
    ranking, arrays = _ranks(predictor, stream, rows, as_of, pairs, random, report)
    about = {
        "answers": _likeliest(predictor, stream, rows, pairs),
        "ranking": ranking,
        "meetings": _meetings(predictor, stream, split, rows, as_of, pairs, random),
    }
    return about, arrays


def next_classes(classifier: NodeClassifier, stream: EventStream, split: Split) -> Gathered:
    """Return the likeliest classes of the most active nodes after the last event.

    Of two classes the second is looked for: the nodes are those that are likeliest of it.
    """
    rows = _tested(stream, split)
    classes = getattr(classifier, "class_names", None) or classifier.classes_.tolist()
    ends = np.concatenate([stream.src[rows], stream.dst[rows]])
    ends = ends[np.isin(ends, classifier.examples(stream, split).node)]
    binary = len(classes) == 2
    nodes, events = _most(stream, ends, _PAIRS // _NODES if binary else _NODES)
    t = int(stream.t[-1]) + 1
    if not len(nodes):
        return {}, {}
    found = classifier.predict_proba(nodes, t)
    best = np.argsort(-found, axis=1, kind="stable")[:, :_ANSWERS]
    if binary:
        first = np.argsort(-found[:, 1], kind="stable")[:_NODES]
        nodes, events, found = nodes[first], events[first], found[first]
        best = np.ones((len(first), 1), dtype=np.int64)
    answers = [
        [{"what": f"class {classes[k]}", "probability": float(one[k])} for k in of]
        for of, one in zip(best.tolist(), found, strict=True)
    ]
    about = {"t": t, "looked_for": f"class {classes[1]}" if binary else None}
    return {"answers": {**about, "rows": _named(stream, nodes, events, answers)}}, {}


def _tested(stream: EventStream, split: Split) -> IntArray:
    """Return the events of the test, or else of validation, that add an edge."""
    rows = split.test if len(split.test) else split.validation
    return rows if stream.op is None else rows[stream.op[rows] == Op.ADD]


def _most(stream: EventStream, ends: IntArray, wanted: int) -> tuple[IntArray, IntArray]:
    """Return the nodes that occur most often among some ends of events, and how often."""
    events = np.bincount(ends, minlength=stream.nodes)
    nodes = np.argsort(-events, kind="stable")[:wanted]
    nodes = nodes[events[nodes] > 0]
    return nodes, events[nodes]


def _named(
    stream: EventStream, nodes: IntArray, events: IntArray, answers: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    found = zip(stream.name(nodes), events.tolist(), answers, strict=True)
    return [
        {"node": short(name), "events": count, "answers": given} for name, count, given in found
    ]


def _likeliest(
    predictor: LinkPredictor, stream: EventStream, rows: IntArray, pairs: Meetings
) -> dict[str, Any]:
    nodes, events = _most(stream, stream.src[rows], _NODES)
    asked, _ = _most(stream, stream.dst, _PAIRS // _NODES)
    t, answers = int(stream.t[-1]) + 1, []
    for node in nodes.tolist():
        found, probability = predictor.rank(node, t, k=_ANSWERS, candidates=asked)
        met = pairs.before(np.full(len(found), node), found, np.full(len(found), t))
        given = zip(stream.name(found), probability.tolist(), met.tolist(), strict=True)
        answers.append([{"what": short(a), "probability": b, "met": c} for a, b, c in given])
    return {
        "t": t,
        "candidates": len(asked),
        "candidates_of": len(np.unique(stream.dst)),
        "rows": _named(stream, nodes, events, answers),
    }


def _ranks(
    predictor: LinkPredictor,
    stream: EventStream,
    rows: IntArray,
    as_of: IntArray,
    pairs: Meetings,
    random: np.random.Generator,
    report: Progress,
) -> Gathered:
    """Return the rank of true destinations among all, as `evaluate_ranking` defines it.

    `as_of[k]` is the time before which all is known when event k of the stream is asked about.
    """
    destinations, of = np.unique(stream.dst), len(rows)
    width = len(destinations)
    count = min(_RANKED, of, _PAIRS // width)
    if count < min(_LEAST_RANKED, of):
        return {"destinations": width, "events": 0, "of": of}, {}
    rows = np.sort(random.choice(rows, count, replace=False))
    src, dst, t = columns(stream, rows)
    scores = np.empty((count, width), dtype=np.float32)
    for some in slices(count, max(1, PAIRS_AT_ONCE // width)):
        report(some.start, count, "ranking all destinations")
        asked = np.repeat(src[some], width), np.tile(destinations, len(src[some]))
        times = np.repeat(t[some], width), np.repeat(as_of[rows[some]], width)
        answers = predictor.decision_function(*asked, *times, given_src=True)
        scores[some] = answers.reshape(-1, width)
    # Other destinations that the source reaches at the same time are as true.
    true = np.zeros(scores.shape, dtype=bool)
    begin, end = (np.searchsorted(stream.t, t, side=side) for side in ("left", "right"))
    for k, (first, last) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        reached = stream.dst[first:last][stream.src[first:last] == src[k]]
        true[k, np.searchsorted(destinations, reached)] = True
    own = scores[np.arange(count), np.searchsorted(destinations, dst)]
    return {"destinations": width, "events": count, "of": of}, {
        "rank.place": metrics.ranks(own, scores, without=true),
        "rank.met": pairs.before(src, dst, t).astype(np.int64),
    }


def _meetings(
    predictor: LinkPredictor,
    stream: EventStream,
    split: Split,
    rows: IntArray,
    as_of: IntArray,
    pairs: Meetings,
    random: np.random.Generator,
) -> list[dict[str, Any]]:
    """Return how often a true pair scores above a false one: first meetings, then repeats.

    A first meeting is compared with another destination that its source has never met, a repeat
    with another pair that has met before.
    """
    met = pairs.before(*columns(stream, rows))
    heuristics, memory = heuristics_for(stream, split)(), Memory(without_features(stream))
    found = []
    for first, of in ((True, rows[~met]), (False, rows[met])):
        asked = np.sort(random.choice(of, min(len(of), _MEETINGS), replace=False))
        true = columns(stream, asked)
        false, usable = (_strangers if first else _acquainted)(stream, true, pairs, random)
        if not usable.any():
            continue
        true, false, before = _where(true, usable), _where(false, usable), as_of[asked[usable]]
        known = np.searchsorted(stream.t, before)
        own = _above(*(predictor.decision_function(*one, before) for one in (true, false)))
        of_rules = {}
        for rule in heuristics:
            above = _above(*(rule.score(memory.ask(*one, known)) for one in (true, false)))
            lead = {
                "share": float(np.mean(own - above)),
                "error": standard_error(own - above, -1.0),
            }
            of_rules[rule.name] = _share(above) | {"lead": lead}
        about = {"first": first, "events": int(usable.sum()), "of": len(of)}
        found.append(about | _share(own) | {"heuristics": of_rules})
    return found


def _above(true: NDArray[Any], false: NDArray[Any]) -> NDArray[np.float64]:
    """Return 1 where the true pair scores higher, 1/2 where both score the same, else 0."""
    return np.asarray((np.sign(true - false) + 1) / 2, dtype=np.float64)


def _where(pairs: Pairs, mask: NDArray[np.bool_]) -> Pairs:
    src, dst, t = pairs
    return src[mask], dst[mask], t[mask]


def _share(above: NDArray[np.float64]) -> dict[str, float]:
    return {"share": float(np.mean(above)), "error": standard_error(above)}


def _strangers(
    stream: EventStream, true: Pairs, pairs: Meetings, random: np.random.Generator
) -> tuple[Pairs, NDArray[np.bool_]]:
    """Return the same sources with destinations they have not met up to the time, where found."""
    src, _, t = true
    destinations = np.unique(stream.dst)
    dst, left = src.copy(), np.arange(len(src))
    for _ in range(_DRAWS):
        dst[left] = random.choice(destinations, len(left))
        known = (dst[left] == src[left]) | pairs.by(src[left], dst[left], t[left])
        left = left[known]
    usable = np.ones(len(src), dtype=bool)
    usable[left] = False
    return (src, dst, t), usable


def _acquainted(
    stream: EventStream, true: Pairs, pairs: Meetings, random: np.random.Generator
) -> tuple[Pairs, NDArray[np.bool_]]:
    """Return pairs that met before the time, and where they do not meet again at it."""
    _, first = np.unique(stream.src * stream.nodes + stream.dst, return_index=True)
    first = np.sort(first)
    before = np.searchsorted(stream.t[first], true[2])  # at least one: the true pair has met
    row = first[(random.random(len(before)) * before).astype(np.int64)]
    false = stream.src[row], stream.dst[row], true[2]
    return false, ~pairs.at(*false)
