"""Targets: what each table or figure measures, and how it is laid out.

`targets.toml` has their texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegraph.learning.settings import LinkSettings
from tidegraph.reproduce import figures
from tidegraph.reproduce.page import (
    HERE,
    HEURISTIC,
    OURS,
    Row,
    Table,
    Value,
    published_rows,
    published_with,
)
from tidegraph.reproduce.plan import HEURISTICS, Column, Found, Measure, Plan, Target
from tidegraph.reproduce.texts import about_targets

_DEFAULT = "tidegraph, default"
_PAPER = {name: f"tidegraph, paper-{name}" for name in ("gru", "lstm", "transformer")}
_SNAPSHOTS = ("uci", "bitcoin-alpha", "bitcoin-otc")
_RANDOM = (("random-all", "ap"), ("random-dst", "ap"))
_MRR = (("all-nodes", "mrr_1000"), ("all-nodes", "mrr_full"))
_BY_COLUMN = "as the column says"


# Accuracy: ctdg-link, dtdg-link, node-classification, large, samplers -----------------------------


@dataclass(frozen=True)
class _Comparison:
    """Models and the best heuristics on the same data, below the published rows."""

    name: str
    title: str
    kind: str  # of its cells
    models: Mapping[str, str]  # and their presets
    columns: Sequence[Column]
    measures: Sequence[Measure]

    def plan(self, plan: Plan) -> None:
        names = list(dict.fromkeys(column.data for column in self.columns))
        if self.kind != "nodes":  # whose cells have heuristics of their own
            for name in names:
                rules = f"{self.kind.removesuffix('s')}-rules"
                plan.add(rules, name, HEURISTICS, {}, seeds=(0,))  # they have no seeds
        for model, preset in self.models.items():
            plan.models(self.kind, names, model, preset)

    def tables(self, found: Found) -> list[Table]:
        rows = found.rows(self.columns, self.models, *self.measures)
        if self.name == "samplers":
            rows.append(_seen_or_item(found, self.columns))
        model = _DEFAULT if self.kind == "nodes" else HEURISTICS
        rows += found.best_heuristics(self.columns, *self.measures, model=model)
        return [published_with(self.name, self.title, rows)]


def _seen_or_item(found: Found, columns: Sequence[Column]) -> Row:
    item = "seen, else is it an item?"
    values = {
        each.title: found.value(each.data, HEURISTICS, ["rules", item, sampler, "all", "ap"], "ap")
        for each in columns
        for sampler, _ in (each.measure or _RANDOM[0],)
    }
    return Row(f"“{item}”", HEURISTIC, _BY_COLUMN, "ap", values, "event")


def _named(*names: str) -> list[Column]:
    return [Column(name, name) for name in names]


_EVENT_MODELS = {_DEFAULT: "default", _PAPER["lstm"]: "paper-lstm"}
_NODE_MODELS = {_DEFAULT: "node", "tidegraph, paper-node": "paper-node"}
_COMPARISONS = (
    _Comparison(
        "ctdg-link",
        "Average precision, percent",
        "events",
        _EVENT_MODELS,
        [
            Column(f"{name} {part}", name, part)
            for name in ("wikipedia", "reddit")
            for part in ("all", "new")
        ],
        _RANDOM,
    ),
    _Comparison(
        "node-classification",
        "AUC, percent",
        "nodes",
        _NODE_MODELS,
        _named("wikipedia", "reddit"),
        [("none", "auc")],
    ),
    _Comparison(
        "large",
        "Micro-F1, percent",
        "nodes",
        _NODE_MODELS,
        _named("gdelt", "mag", "like-gdelt", "like-mag", "pubmed-temporal"),
        [("none", "micro-f1")],
    ),
    _Comparison(
        "dtdg-link",
        "Mean reciprocal rank",
        "snapshots",
        {_DEFAULT: "snapshots", **{model: f"paper-{name}" for name, model in _PAPER.items()}},
        _named(*_SNAPSHOTS, "bitcoin-alpha-reversed", "bitcoin-otc-reversed"),
        _MRR,
    ),
    _Comparison(
        "samplers",
        "Average precision, percent",
        "events",
        _EVENT_MODELS,
        [
            Column(f"{name} {sampler}", name, measure=(sampler, "ap"))
            for name in ("wikipedia", "uci")
            for sampler in ("random-all", "random-dst", "historical", "inductive")
        ],
        [(_BY_COLUMN, "ap")],
    ),
)


# parts --------------------------------------------------------------------------------------------

_WITH_RATINGS = ("movielens-100k", "bitcoin-otc")
_OF_PARTS = ("wikipedia", "uci", "movielens-100k", "nyc-flights", "bitcoin-otc")
_ENCODED = ("wikipedia", "uci", "bitcoin-otc")  # an encoder takes most of the time
_ASKED = {  # sampler and part, by the title of their column
    "random-dst, all": ("random-dst", "all"),
    "random-dst, new nodes": ("random-dst", "new"),
    "random-dst, first meetings": ("random-dst", "first"),
    "historical, all": ("historical", "all"),
    "inductive, all": ("inductive", "all"),
}
_DRAWN = {"random-dst, all": "all", "random-dst, first meetings": "first meetings"}
_GRU = {"encoder": "gru", "encoder_options": {"time_encoding": True}}
# What a model reads, and the data sets on which it is measured.
_READ: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
    "history": ({"pair_features": ("history",)}, _OF_PARTS),
    "local": ({"pair_features": ("local",)}, _OF_PARTS),
    "sketches": ({"pair_features": ("sketches",)}, _OF_PARTS),
    "history + sketches": ({"pair_features": ("history", "sketches")}, _OF_PARTS),
    "history + local": ({"pair_features": ("history", "local")}, _OF_PARTS),
    "history + local + sketches": (
        {"pair_features": ("history", "local", "sketches")},
        _OF_PARTS,
    ),
    "history + local + ratings": (
        {"pair_features": ("history", "local"), "edge_features": True},
        _WITH_RATINGS,
    ),
    "history + local + GRU": ({"pair_features": ("history", "local"), **_GRU}, _ENCODED),
}


def _plan_parts(plan: Plan) -> None:
    for name in _OF_PARTS:
        plan.add("event-rules", name, HEURISTICS, {}, seeds=(0,))
    for model, (reads, names) in _READ.items():
        settings = {"edge_features": False, "max_examples": LinkSettings.max_examples, **reads}
        plan.models("events", names, model, "default", **settings)


def _tables_parts(found: Found) -> list[Table]:
    tables = []
    for name in _OF_PARTS:
        if name in found.absent:
            continue
        columns = [
            Column(title, name, part, (sampler, "ap")) for title, (sampler, part) in _ASKED.items()
        ]
        models = [model for model, (_, names) in _READ.items() if name in names]
        rows = found.rows(columns, models, (_BY_COLUMN, "ap"))
        rows += found.best_heuristics(columns, (_BY_COLUMN, "ap"))
        judged = {
            title: Value(f"{counts[0]:,.0f}")
            for title, asked in _ASKED.items()
            if (counts := found.values(name, HEURISTICS, "examples", *asked))
        }
        rows.append(Row("events judged", "", _BY_COLUMN, "count", judged, "event"))
        tables.append(Table(name, list(_ASKED), rows))
    return tables


def _draw_parts(tables: list[Table], found: Found, path: Path) -> None:
    """Draw two columns of every data set."""
    drawn = [
        (f"{table.title} {short}", title, table)
        for table in tables
        for title, short in _DRAWN.items()
    ]
    by_model: dict[str, Row] = {}
    for panel, title, table in drawn:
        for row in table.rows:
            shown = by_model.setdefault(row.name, replace(row, values={}))
            if title in row.values:
                shown.values[panel] = row.values[title]
    order = [*_READ, *by_model]  # no data set has all models
    rows = sorted(by_model.values(), key=lambda row: order.index(row.name))
    columns = [panel for panel, _, _ in drawn]
    figures.dots(Table("random-dst, average precision in percent", columns, rows), path)


# ablation-high-pass -------------------------------------------------------------------------------

_PASSES = {"-high-pass": "low-pass only", "+high-pass": "low- and high-pass"}


def _plan_ablation(plan: Plan) -> None:
    for variant, words in _PASSES.items():
        for encoder, model in _PAPER.items():
            preset = f"paper-{encoder}{variant}"
            plan.models("snapshots", _SNAPSHOTS, f"{model}, {words}", preset)
        high, model = variant.startswith("+"), f"{_DEFAULT}, {words}"
        plan.models("snapshots", _SNAPSHOTS, model, "snapshots", high_pass=high)


def _tables_ablation(found: Found) -> list[Table]:
    rows: list[Row] = []
    for model in (*_PAPER.values(), _DEFAULT):
        models = [f"{model}, {words}" for words in _PASSES.values()]
        low, both = found.rows(_named(*_SNAPSHOTS), models, _MRR[0])
        for name in _SNAPSHOTS:
            before, after = low.values[name].mean, both.values[name].mean
            if before and after is not None:
                gain = 100 * (after - before) / before
                both.values[f"{name} gain"] = Value(f"{gain:.2f}%")
        rows += [low, both]
    return [published_with("ablation-high-pass", "Mean reciprocal rank", rows)]


# time-encoding ------------------------------------------------------------------------------------

_TIMES = {
    variant: f"{_PAPER['lstm']}, {words} times"
    for variant, words in {"-time": "without", "+time": "with"}.items()
}


def _plan_times(plan: Plan) -> None:
    for variant, model in _TIMES.items():
        plan.models("events", ["wikipedia"], model, f"paper-lstm{variant}")
        plan.models("snapshots", _SNAPSHOTS, model, f"paper-lstm{variant}")


def _tables_times(found: Found) -> list[Table]:
    columns = [
        Column("wikipedia", "wikipedia", measure=_RANDOM[0]),
        *(Column(name, name, measure=_MRR[0]) for name in _SNAPSHOTS),
        Column("wikipedia random-dst", "wikipedia", measure=_RANDOM[1]),
    ]
    _, (theirs, *_), _ = published_rows("time-encoding")
    rows = found.rows(columns, _TIMES.values(), (theirs.sampler, theirs.metric))
    return [published_with("time-encoding", "With and without a time encoding", rows)]


# sensitivity --------------------------------------------------------------------------------------

_FEWER = {"max_examples": 20_000, "epochs": 4}


@dataclass(frozen=True)
class _Varied:
    """A setting and its values."""

    values: tuple[float, ...]
    change: Callable[[Any], dict[str, Any]]
    log: bool = False  # whether its axis is logarithmic

    def tried(self, fast: bool) -> tuple[float, ...]:
        """Return the values to try: if fast, only the first and the last."""
        return (self.values[0], self.values[-1]) if fast else self.values


_VARIED = {
    "r_max": _Varied(
        tuple(10.0**power for power in range(-9, -1)), lambda value: {"r_max": value}, log=True
    ),
    "alpha": _Varied((0.05, 0.1, 0.2, 0.5, 0.9), lambda value: {"alpha": value}),
    "LSTM layers": _Varied(
        (1, 2, 4, 8, 10),
        lambda value: {"encoder_options": {"layers": value, "time_encoding": False}},
    ),
    # In addition to the output layer.
    "MLP layers": _Varied((1, 2, 4, 6), lambda value: {"layers": value}),
}
_MORE_COLUMNS = {
    "moved": ["moved"],
    "records per event": ["records_per_event"],
    "propagation, s": ["record_s"],
}


def _varied(what: str, value: float) -> str:
    return f"{_PAPER['lstm']}, {what} {value:g}"


def _plan_sensitivity(plan: Plan) -> None:
    for what, varied in _VARIED.items():
        for value in varied.tried(plan.fast):
            changes = {**_FEWER, **varied.change(value)}
            plan.models("events", ["wikipedia"], _varied(what, value), "paper-lstm", **changes)


def _tables_sensitivity(found: Found) -> list[Table]:
    columns = [Column(measure[0], "wikipedia", measure=measure) for measure in _RANDOM]
    tables = []
    for what, varied in _VARIED.items():
        models = [_varied(what, value) for value in varied.tried(found.fast)]
        rows = found.rows(columns, models, (_BY_COLUMN, "ap"))
        more = _MORE_COLUMNS if what in ("r_max", "alpha") else {}
        for row in rows:
            for title, path in more.items():
                row.values[title] = found.value("wikipedia", row.name, path, title)
        tables.append(Table(what, [*(column.title for column in columns), *more], rows))
    return tables


def _draw_sensitivity(tables: list[Table], found: Found, path: Path) -> None:
    panels = []
    for table, (what, varied) in zip(tables, _VARIED.items(), strict=True):
        lines = {
            sampler: [
                (value, row.values[sampler])
                for value, row in zip(varied.tried(found.fast), table.rows, strict=True)
            ]
            for sampler, _ in _RANDOM
        }
        panels.append((what, f"{what} (L1)" if what == "r_max" else what, lines))
    logs = [varied.log for varied in _VARIED.values()]
    figures.curves(panels, path, y="AP, percent", log_x=logs)


# time-cost ----------------------------------------------------------------------------------------

_TGN = "TGN of torch_geometric"
_TIMED = ("wikipedia", "reddit")
_EPOCHS = 3


def _plan_cost(plan: Plan) -> None:
    for model, preset in _EVENT_MODELS.items():
        plan.models("events", _TIMED, model, preset, epochs=_EPOCHS)
    for name in _TIMED:
        plan.add("tgn", name, _TGN, {"epochs": 1 if plan.fast else _EPOCHS})


def _tables_cost(found: Found) -> list[Table]:
    rows = []
    for model in (_TGN, *_EVENT_MODELS):
        values = {name: found.value(name, model, ["epoch_s"], "seconds") for name in _TIMED}
        rows.append(Row(model, HERE if model == _TGN else OURS, "", "seconds per epoch", values))
    for model in _EVENT_MODELS:
        once = {name: found.value(name, model, ["record_s"], "seconds") for name in _TIMED}
        rows.append(Row(f"{model}, propagation and record", OURS, "", "seconds, once", once))
    return [published_with("time-cost", "Time per epoch of training", rows, log=True)]


# error-vs-speed -----------------------------------------------------------------------------------

_OF_PAPER = "r_max 1e-07 of the paper (L1)"
_PROMISES: dict[str, dict[str, Any]] = {
    **{f"r_max {r:g}": {"r_max": r} for r in (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5)},
    _OF_PAPER: {"r_max": 1e-7, "r_max_unit": "l1", "scale_by_degree": False},
}
_STREAMS = ("wikipedia", "uci")
_SHOWN = {
    "events/s": "events_per_s",
    "touched nodes/step": "touched_per_step",
    "error, RMS": "error_rms",
    "error, worst": "error_max",
    "certified, worst": "certified_max",
}
_HELD = "certificate holds"


def _plan_errors(plan: Plan) -> None:
    size = {"steps": 300, "columns": 8} if plan.fast else {"steps": 20_000, "columns": 172}
    for name in _STREAMS:
        for model, promise in _PROMISES.items():
            plan.add("errors", name, model, {**promise, **size})


def _tables_errors(found: Found) -> list[Table]:
    tables = []
    for name in _STREAMS:
        rows = []
        for model in _PROMISES:
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

_PARTS: dict[str, tuple[Any, ...]] = {  # what to measure, its tables, and perhaps a figure
    **{each.name: (each.plan, each.tables) for each in _COMPARISONS},
    "parts": (_plan_parts, _tables_parts, _draw_parts),
    "ablation-high-pass": (_plan_ablation, _tables_ablation),
    "time-encoding": (_plan_times, _tables_times),
    "sensitivity": (_plan_sensitivity, _tables_sensitivity, _draw_sensitivity),
    "time-cost": (_plan_cost, _tables_cost),
    "error-vs-speed": (_plan_errors, _tables_errors, _draw_errors),
}
TARGETS = {name: Target(name, *_PARTS[name], **about) for name, about in about_targets().items()}
