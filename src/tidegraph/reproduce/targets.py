"""The tables and figures of the paper, and two of our own: what each needs, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegraph.reproduce import figures
from tidegraph.reproduce.driver import Column, Found, Plan, Target
from tidegraph.reproduce.page import HERE, OURS, RULE, Row, Table, Value, published_rows

__all__ = ["TARGETS"]

_DEFAULT = "tidegraph, default"
_PAPER = {name: f"tidegraph, paper-{name}" for name in ("gru", "lstm", "transformer")}
_SNAPSHOTS = ("uci", "bitcoin-alpha", "bitcoin-otc")
_BOTH_WAYS = ("bitcoin-alpha-reversed", "bitcoin-otc-reversed")
_RANDOM = (("random-all", "ap"), ("random-dst", "ap"))
_MRR = (("all-nodes", "mrr_1000"), ("all-nodes", "mrr_full"))

_ON_SAMPLERS = (
    "random-dst draws negatives from the destinations, as TGN does; random-all from all nodes, as"
    " the paper's program does, which is easier wherever destinations are few among the nodes."
)
_ON_PRESETS = (
    "paper-… are the paper's settings in our implementation: its encoder over each node's changes,"
    " both nodes side by side, a small network, negatives from all nodes in training; the default"
    " reads inner products of representations and the history of the pair instead."
)
_ON_MRR = (
    "mrr_full ranks every true destination among all nodes (ROLAND's table), mrr_1000 the best one"
    " of each source against 1,000 drawn nodes (the paper's program): the same scores give very"
    " different numbers."
)
_ON_REVERSED = (
    "ROLAND's numbers on Bitcoin are for graphs in which every edge also counts in the other"
    " direction; they stand in the columns -reversed, beside ours on the same graphs."
)
_ON_WIKIPEDIA = "Wikipedia is used without its edge features, which the file at hand has not."


def _dots(tables: list[Table], found: Found, path: Path) -> None:
    figures.dots(tables[0], path)


def _table(
    name: str, title: str, rows: Sequence[Row], more: Sequence[str] = (), *, log: bool = False
) -> Table:
    """A published table with our rows below it, and columns that it does not have."""
    columns, theirs, sources = published_rows(name)
    return Table(title, [*columns, *more], [*theirs, *rows], log, sources)


# ctdg-link ----------------------------------------------------------------------------------------


def _plan_ctdg(plan: Plan) -> None:
    names = ("wikipedia", "reddit")
    plan.rules(names, "event-rules")
    plan.events(names, _DEFAULT, "default")
    plan.events(names, _PAPER["lstm"], "paper-lstm")


def _tables_ctdg(found: Found) -> list[Table]:
    columns = [
        Column(f"{name} {part}", name, part)
        for name in ("wikipedia", "reddit")
        for part in ("all", "new")
    ]
    ours = found.rows(columns, (_DEFAULT, _PAPER["lstm"]), *_RANDOM)
    rules = found.best_rules(columns, *_RANDOM)
    return [_table("ctdg-link", "Average precision, percent", [*ours, *rules])]


# node-classification, large -----------------------------------------------------------------------


def _plan_nodes(plan: Plan) -> None:
    plan.nodes(("wikipedia", "reddit"), _DEFAULT, "node")
    plan.nodes(("wikipedia", "reddit"), "tidegraph, paper-node", "paper-node")


def _tables_nodes(found: Found) -> list[Table]:
    columns = [Column(name, name) for name in ("wikipedia", "reddit")]
    ours = found.rows(columns, (_DEFAULT, "tidegraph, paper-node"), ("none", "auc"))
    rules = found.best_rules(columns, ("none", "auc"), model=_DEFAULT)
    return [_table("node-classification", "AUC, percent", _unsampled([*ours, *rules]))]


_LOOK_ALIKES = ("like-gdelt", "like-mag", "pubmed-temporal")


def _plan_large(plan: Plan) -> None:
    plan.nodes(_LOOK_ALIKES, _DEFAULT, "node")
    plan.nodes(_LOOK_ALIKES, "tidegraph, paper-node", "paper-node")


def _tables_large(found: Found) -> list[Table]:
    columns = [Column(name, name) for name in _LOOK_ALIKES]
    ours = found.rows(columns, (_DEFAULT, "tidegraph, paper-node"), ("none", "micro-f1"))
    rules = found.best_rules(columns, ("none", "micro-f1"), model=_DEFAULT)
    rows = _unsampled([*ours, *rules])
    for row in rows:
        row.values.update({name: Value("data not here") for name in ("gdelt", "mag")})
    return [_table("large", "Micro-F1, percent", rows, _LOOK_ALIKES)]


def _unsampled(rows: Sequence[Row]) -> list[Row]:
    """Rows of tasks that have no negatives."""
    return [Row(row.name, row.whose, "", row.metric, row.values) for row in rows]


# dtdg-link, ablation-high-pass, time-encoding -----------------------------------------------------


def _plan_dtdg(plan: Plan) -> None:
    names = (*_SNAPSHOTS, *_BOTH_WAYS)
    plan.rules(names, "snapshot-rules")
    plan.snapshots(names, _DEFAULT, "snapshots")
    for encoder, model in _PAPER.items():
        plan.snapshots(names, model, f"paper-{encoder}")


def _tables_dtdg(found: Found) -> list[Table]:
    columns = [Column(name, name) for name in (*_SNAPSHOTS, *_BOTH_WAYS)]
    ours = found.rows(columns, (_DEFAULT, *_PAPER.values()), *_MRR)
    rules = found.best_rules(columns, *_MRR)
    return [_table("dtdg-link", "Mean reciprocal rank", [*ours, *rules])]


_PASSES = {"-high-pass": "low-pass only", "+high-pass": "low- and high-pass"}


def _plan_ablation(plan: Plan) -> None:
    for variant, words in _PASSES.items():
        for encoder, model in _PAPER.items():
            plan.snapshots(_SNAPSHOTS, f"{model}, {words}", f"paper-{encoder}{variant}")
        high = variant.startswith("+")
        plan.snapshots(_SNAPSHOTS, f"{_DEFAULT}, {words}", "snapshots", high_pass=high)


def _tables_ablation(found: Found) -> list[Table]:
    columns = [Column(name, name) for name in _SNAPSHOTS]
    rows: list[Row] = []
    for model in (*_PAPER.values(), _DEFAULT):
        low, both = found.rows(
            columns, [f"{model}, {words}" for words in _PASSES.values()], _MRR[0]
        )
        for name in _SNAPSHOTS:
            before, after = low.values[name].mean, both.values[name].mean
            if before and after is not None:
                gain = 100 * (after - before) / before
                both.values[f"{name} gain"] = Value(f"{gain:.2f}%")
        rows += [low, both]
    return [_table("ablation-high-pass", "Mean reciprocal rank", rows)]


_TIMES = {"-time": "without times", "+time": "with times"}


def _plan_times(plan: Plan) -> None:
    for variant, words in _TIMES.items():
        model = f"{_PAPER['lstm']}, {words}"
        plan.events(["wikipedia"], model, f"paper-lstm{variant}")
        plan.snapshots(_SNAPSHOTS, model, f"paper-lstm{variant}")


def _tables_times(found: Found) -> list[Table]:
    more = "wikipedia random-dst"
    columns = [
        Column("wikipedia", "wikipedia", measure=_RANDOM[0]),
        Column(more, "wikipedia", measure=_RANDOM[1]),
        *(Column(name, name, measure=_MRR[0]) for name in _SNAPSHOTS),
    ]
    _, theirs, _ = published_rows("time-encoding")
    named = theirs[0].sampler, theirs[0].metric
    rows = found.rows(columns, [f"{_PAPER['lstm']}, {words}" for words in _TIMES.values()], named)
    return [_table("time-encoding", "With and without an encoding of times", rows, [more])]


# sensitivity --------------------------------------------------------------------------------------

_FEWER = {"max_examples": 20_000, "epochs": 4}
_R_MAX = tuple(10.0**power for power in range(-9, -1))
_ALPHA = (0.05, 0.1, 0.2, 0.5, 0.9)
_LSTM_LAYERS = (1, 2, 4, 8, 10)
_MLP_LAYERS = (1, 2, 4, 6)


@dataclass(frozen=True)
class _Varied:
    """A setting and the values it takes."""

    values: tuple[float, ...]
    change: Callable[[Any], dict[str, Any]]
    log: bool = False  # whether they are drawn on a logarithmic scale

    def taken(self, fast: bool) -> tuple[float, ...]:
        """The values to try: the first and the last where it has to be fast."""
        return (self.values[0], self.values[-1]) if fast else self.values


_VARIED = {
    "r_max": _Varied(_R_MAX, lambda value: {"r_max": value}, log=True),
    "alpha": _Varied(_ALPHA, lambda value: {"alpha": value}),
    "LSTM layers": _Varied(
        _LSTM_LAYERS,
        lambda value: {"encoder_options": {"layers": value, "time_encoding": False}},
    ),
    # Beside them there is always the layer that gives the answer.
    "MLP layers": _Varied(_MLP_LAYERS, lambda value: {"layers": value}),
}


def _varied(what: str, value: float) -> str:
    return f"{_PAPER['lstm']}, {what} {value:g}"


def _plan_sensitivity(plan: Plan) -> None:
    for what, varied in _VARIED.items():
        for value in varied.taken(plan.fast):
            changes = {**_FEWER, **varied.change(value)}
            plan.events(["wikipedia"], _varied(what, value), "paper-lstm", **changes)


_BESIDE = {
    "moved": ["moved"],
    "records per event": ["records_per_event"],
    "propagation, s": ["record_s"],
}


def _tables_sensitivity(found: Found) -> list[Table]:
    columns = [
        Column("random-all", "wikipedia", measure=_RANDOM[0]),
        Column("random-dst", "wikipedia", measure=_RANDOM[1]),
    ]
    tables = []
    for what, varied in _VARIED.items():
        models = [_varied(what, value) for value in varied.taken(found.fast)]
        rows = found.rows(columns, models, ("as the column says", "ap"))
        beside = _BESIDE if what in ("r_max", "alpha") else {}
        for row in rows:
            for title, path in beside.items():
                row.values[title] = found.value("wikipedia", row.name, path, title)
        tables.append(Table(what, [*(column.title for column in columns), *beside], rows))
    return tables


def _draw_sensitivity(tables: list[Table], found: Found, path: Path) -> None:
    panels = []
    for table, (what, varied) in zip(tables, _VARIED.items(), strict=True):
        lines = {
            sampler: [
                (value, row.values[sampler])
                for value, row in zip(varied.taken(found.fast), table.rows, strict=True)
            ]
            for sampler in ("random-all", "random-dst")
        }
        panels.append((what, f"{what} (L1)" if what == "r_max" else what, lines))
    logs = [varied.log for varied in _VARIED.values()]
    figures.curves(panels, path, y="AP, percent", log_x=logs)


# time-cost ----------------------------------------------------------------------------------------

_TGN = "TGN of torch_geometric"
_EPOCHS = 3


def _plan_cost(plan: Plan) -> None:
    names = ("wikipedia", "reddit")
    plan.events(names, _DEFAULT, "default", epochs=_EPOCHS)
    plan.events(names, _PAPER["lstm"], "paper-lstm", epochs=_EPOCHS)
    for name in names:
        plan.add("tgn", name, _TGN, {"epochs": 1 if plan.fast else _EPOCHS})


def _tables_cost(found: Found) -> list[Table]:
    names = ("wikipedia", "reddit")
    metric = "seconds per epoch"
    rows = []
    for model, whose in ((_TGN, HERE), (_DEFAULT, OURS), (_PAPER["lstm"], OURS)):
        values = {name: found.mean_epoch(name, model) for name in names}
        rows.append(Row(model, whose, "", metric, values))
    for model in (_DEFAULT, _PAPER["lstm"]):
        once = {name: found.value(name, model, ["record_s"], "seconds") for name in names}
        rows.append(Row(f"{model}, propagation and record", OURS, "", "seconds, once", once))
    return [_table("time-cost", "Time per epoch of training", rows, log=True)]


# samplers -----------------------------------------------------------------------------------------

_ITEM = "seen, else is it an item?"
_KINDS = ("random-all", "random-dst", "historical", "inductive")


def _plan_samplers(plan: Plan) -> None:
    names = ("wikipedia", "uci")
    plan.rules(names, "event-rules")
    plan.events(names, _DEFAULT, "default")
    plan.events(names, _PAPER["lstm"], "paper-lstm")


def _tables_samplers(found: Found) -> list[Table]:
    columns = [
        Column(f"{name} {kind}", name, measure=(kind, "ap"))
        for name in ("wikipedia", "uci")
        for kind in _KINDS
    ]
    named = ("as the column says", "ap")
    ours = found.rows(columns, (_DEFAULT, _PAPER["lstm"]), named)
    item = Row(
        f"“{_ITEM}”",
        RULE,
        *named,
        {
            column.title: found.value(
                column.data,
                "heuristics",
                ["rules", _ITEM, *(column.measure or named)[:1], "all", "ap"],
                "ap",
            )
            for column in columns
        },
    )
    rules = [item, *found.best_rules(columns, named)]
    return [_table("samplers", "Average precision, percent", [*ours, *rules])]


# error-vs-speed -----------------------------------------------------------------------------------

_PROMISES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5)
_OF_PAPER = "r_max 1e-07 of the paper (L1)"
_STREAMS = ("wikipedia", "uci")


def _promise(r_max: float) -> str:
    return f"r_max {r_max:g}"


def _plan_errors(plan: Plan) -> None:
    size = {"steps": 300, "columns": 8} if plan.fast else {"steps": 20_000, "columns": 172}
    for name in _STREAMS:
        for r_max in _PROMISES:
            plan.add("errors", name, _promise(r_max), {"r_max": r_max, **size})
        as_paper = {"r_max": 1e-7, "r_max_unit": "l1", "scale_by_degree": False}
        plan.add("errors", name, _OF_PAPER, {**as_paper, **size})


_SHOWN = {
    "events/s": "events_per_s",
    "touched nodes/step": "touched_per_step",
    "error, RMS": "error_rms",
    "error, worst": "error_max",
    "certified, worst": "certified_max",
}
_HELD = "certificate holds"


def _tables_errors(found: Found) -> list[Table]:
    tables = []
    for name in _STREAMS:
        rows = []
        for model in (*map(_promise, _PROMISES), _OF_PAPER):
            shown = {title: found.value(name, model, [key], key) for title, key in _SHOWN.items()}
            held = found.values(name, model, "holds")
            if held:
                shown[_HELD] = Value("yes" if all(held) else "no")
            rows.append(Row(model, OURS, "", "", shown))
        tables.append(Table(name, [*_SHOWN, _HELD], rows))
    return tables


def _draw_errors(tables: list[Table], found: Found, path: Path) -> None:
    panels = []
    for table in tables:
        lines: dict[str, list[tuple[float, Value]]] = {"tidegraph": [], "the paper's 1e-7": []}
        for row in table.rows:
            error = row.values["error, worst"].mean
            if error:
                line = "the paper's 1e-7" if row.name == _OF_PAPER else "tidegraph"
                lines[line].append((error, row.values["events/s"]))
        panels.append((table.title, "worst error, in units of a typical feature", lines))
    figures.curves(panels, path, y="events/s", log_x=[True] * len(panels), log_y=True)


# All of them --------------------------------------------------------------------------------------

TARGETS = {
    target.name: target
    for target in (
        Target(
            "ctdg-link",
            "Future links, event by event",
            "The paper's Table 2: which of two pairs is the true one, TGN's split, on all test"
            " events and on those that touch a node unseen in training (the paper's inductive"
            " columns).",
            10,
            _plan_ctdg,
            _tables_ctdg,
            _dots,
            (_ON_SAMPLERS, _ON_PRESETS, _ON_WIKIPEDIA),
        ),
        Target(
            "node-classification",
            "Which users get banned",
            "The paper's Table 3: the state of the user at each event, AUC over the test period.",
            3,
            _plan_nodes,
            _tables_nodes,
            _dots,
            (
                _ON_WIKIPEDIA,
                "Few users get banned, so that AUC moves by points from seed to seed.",
            ),
        ),
        Target(
            "dtdg-link",
            "Future links, snapshot by snapshot",
            "The paper's Table 4: the edges of the next snapshot, ROLAND's fixed split.",
            3,
            _plan_dtdg,
            _tables_dtdg,
            _dots,
            (_ON_MRR, _ON_REVERSED, _ON_PRESETS),
        ),
        Target(
            "large",
            "Classes of nodes on large graphs",
            "The paper's Table 5. GDELT and MAG cannot be had here: ours are measured on small"
            " made-up streams in their shape and on a real citation graph, and cannot be compared"
            " with the published columns.",
            3,
            _plan_large,
            _tables_large,
            _dots,
            (
                "like-gdelt and like-mag are generated (tidegraph data generate); pubmed-temporal"
                " are real citations between papers on diabetes.",
            ),
        ),
        Target(
            "ablation-high-pass",
            "With and without high-pass filters",
            "The paper's Table 10: what high frequencies add, ROLAND's fixed split.",
            3,
            _plan_ablation,
            _tables_ablation,
            _dots,
            (_ON_MRR,),
        ),
        Target(
            "time-encoding",
            "With and without an encoding of times",
            "The paper's Table 11: whether telling the encoder when each change was helps.",
            3,
            _plan_times,
            _tables_times,
            _dots,
            (_ON_SAMPLERS, _ON_MRR, _ON_WIKIPEDIA),
        ),
        Target(
            "sensitivity",
            "What the settings change",
            "The paper's Figure 2, on Wikipedia: r_max in its units (of the columns' L1 norms),"
            " alpha, the layers of the LSTM and of the network behind it. It claims that r_max of"
            " 1e-3 and 1e-2 leave nothing to learn from, that alpha and the number of layers hardly"
            " matter, and that more than eight LSTM layers do not converge. It prints no numbers.",
            3,
            _plan_sensitivity,
            _tables_sensitivity,
            _draw_sensitivity,
            (
                _ON_SAMPLERS,
                f"Trained on the latest {_FEWER['max_examples']:,} events only, and for"
                f" {_FEWER['epochs']} epochs: there are many settings.",
                "moved is the share of the ends of test events whose representation changed at its"
                " last record, and so what an encoder of changes has to go by; propagation is the"
                " time to follow all events once.",
            ),
        ),
        Target(
            "time-cost",
            "Time per epoch",
            "The paper's Table 9, and TGN as torch_geometric has it on the same machine and the"
            " same events.",
            3,
            _plan_cost,
            _tables_cost,
            _dots,
            (
                "Published times are from a GPU; the others are from the machine below. Compare"
                " within a machine.",
                "An epoch of ours includes the validation after it; TGN's is training alone, with"
                " one negative per event. The default has several, as said below.",
                _ON_PRESETS,
            ),
        ),
        Target(
            "samplers",
            "Why negatives from all nodes flatter",
            "The same models and heuristics under four kinds of negatives. The rule “seen before,"
            " else is it an item?” learns nothing: what it reaches under random-all comes with the"
            " sampler, since on a bipartite graph most nodes can be no destination at all.",
            3,
            _plan_samplers,
            _tables_samplers,
            _dots,
            (_ON_SAMPLERS, _ON_PRESETS),
        ),
        Target(
            "error-vs-speed",
            "Error against speed",
            "No table of the paper: events per second of the engine under promises from loose to"
            " tight, and the distance from the exact solution at the end, by sparse solve.",
            3,
            _plan_errors,
            _tables_errors,
            _draw_errors,
            ("Errors are in units of a typical feature value, over all nodes and columns.",),
        ),
    )
}
