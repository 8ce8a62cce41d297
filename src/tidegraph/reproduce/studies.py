"""Targets about the method: what its parts and settings change, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegraph.reproduce import figures
from tidegraph.reproduce.page import HERE, OURS, Row, Table, Value, published_rows
from tidegraph.reproduce.plan import Column, Found, Plan, Target
from tidegraph.reproduce.wording import (
    DEFAULT,
    MRR,
    ON_MRR,
    ON_PRESETS,
    ON_SAMPLERS,
    ON_WIKIPEDIA,
    PAPER,
    RANDOM,
    SNAPSHOTS,
    published_with,
)

__all__ = ["TARGETS"]


# ablation-high-pass -------------------------------------------------------------------------------

_PASSES = {"-high-pass": "low-pass only", "+high-pass": "low- and high-pass"}


def _plan_ablation(plan: Plan) -> None:
    for variant, words in _PASSES.items():
        for encoder, model in PAPER.items():
            plan.snapshots(SNAPSHOTS, f"{model}, {words}", f"paper-{encoder}{variant}")
        high = variant.startswith("+")
        plan.snapshots(SNAPSHOTS, f"{DEFAULT}, {words}", "snapshots", high_pass=high)


def _tables_ablation(found: Found) -> list[Table]:
    columns = [Column(name, name) for name in SNAPSHOTS]
    rows: list[Row] = []
    for model in (*PAPER.values(), DEFAULT):
        low, both = found.rows(columns, [f"{model}, {words}" for words in _PASSES.values()], MRR[0])
        for name in SNAPSHOTS:
            before, after = low.values[name].mean, both.values[name].mean
            if before and after is not None:
                gain = 100 * (after - before) / before
                both.values[f"{name} gain"] = Value(f"{gain:.2f}%")
        rows += [low, both]
    return [published_with("ablation-high-pass", "Mean reciprocal rank", rows)]


_ABLATION_HIGH_PASS = Target(
    "ablation-high-pass",
    "With and without high-pass filters",
    "The paper's Table 10: what high frequencies add, under ROLAND's fixed split.",
    _plan_ablation,
    _tables_ablation,
    (ON_MRR,),
)


# time-encoding ------------------------------------------------------------------------------------

_TIMES = {"-time": "without times", "+time": "with times"}


def _plan_times(plan: Plan) -> None:
    for variant, words in _TIMES.items():
        model = f"{PAPER['lstm']}, {words}"
        plan.events(["wikipedia"], model, f"paper-lstm{variant}")
        plan.snapshots(SNAPSHOTS, model, f"paper-lstm{variant}")


def _tables_times(found: Found) -> list[Table]:
    more = "wikipedia random-dst"
    columns = [
        Column("wikipedia", "wikipedia", measure=RANDOM[0]),
        Column(more, "wikipedia", measure=RANDOM[1]),
        *(Column(name, name, measure=MRR[0]) for name in SNAPSHOTS),
    ]
    _, theirs, _ = published_rows("time-encoding")
    named = theirs[0].sampler, theirs[0].metric
    rows = found.rows(columns, [f"{PAPER['lstm']}, {words}" for words in _TIMES.values()], named)
    return [published_with("time-encoding", "With and without a time encoding", rows, [more])]


_TIME_ENCODING = Target(
    "time-encoding",
    "With and without a time encoding",
    "The paper's Table 11: whether the encoder gains from the times of changes.",
    _plan_times,
    _tables_times,
    (ON_SAMPLERS, ON_MRR, ON_WIKIPEDIA),
)


# sensitivity --------------------------------------------------------------------------------------

_FEWER = {"max_examples": 20_000, "epochs": 4}
_R_MAX = tuple(10.0**power for power in range(-9, -1))
_ALPHA = (0.05, 0.1, 0.2, 0.5, 0.9)
_LSTM_LAYERS = (1, 2, 4, 8, 10)
_MLP_LAYERS = (1, 2, 4, 6)


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
    "r_max": _Varied(_R_MAX, lambda value: {"r_max": value}, log=True),
    "alpha": _Varied(_ALPHA, lambda value: {"alpha": value}),
    "LSTM layers": _Varied(
        _LSTM_LAYERS,
        lambda value: {"encoder_options": {"layers": value, "time_encoding": False}},
    ),
    # In addition to the output layer.
    "MLP layers": _Varied(_MLP_LAYERS, lambda value: {"layers": value}),
}


def _varied(what: str, value: float) -> str:
    return f"{PAPER['lstm']}, {what} {value:g}"


def _plan_sensitivity(plan: Plan) -> None:
    for what, varied in _VARIED.items():
        for value in varied.tried(plan.fast):
            changes = {**_FEWER, **varied.change(value)}
            plan.events(["wikipedia"], _varied(what, value), "paper-lstm", **changes)


_MORE_COLUMNS = {
    "moved": ["moved"],
    "records per event": ["records_per_event"],
    "propagation, s": ["record_s"],
}


def _tables_sensitivity(found: Found) -> list[Table]:
    columns = [
        Column("random-all", "wikipedia", measure=RANDOM[0]),
        Column("random-dst", "wikipedia", measure=RANDOM[1]),
    ]
    tables = []
    for what, varied in _VARIED.items():
        models = [_varied(what, value) for value in varied.tried(found.fast)]
        rows = found.rows(columns, models, ("as the column says", "ap"))
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
            for sampler in ("random-all", "random-dst")
        }
        panels.append((what, f"{what} (L1)" if what == "r_max" else what, lines))
    logs = [varied.log for varied in _VARIED.values()]
    figures.curves(panels, path, y="AP, percent", log_x=logs)


_SENSITIVITY = Target(
    "sensitivity",
    "What the settings change",
    "The paper's Figure 2, on Wikipedia: r_max in its unit (of the columns' L1 norms), alpha, and"
    " the layers of the LSTM and of the network after it. The paper claims that r_max of 1e-3 and"
    " 1e-2 leave nothing to learn from, that alpha and the number of layers hardly matter, and that"
    " more than eight LSTM layers do not converge. It prints no numbers.",
    _plan_sensitivity,
    _tables_sensitivity,
    (
        ON_SAMPLERS,
        f"Trained on the latest {_FEWER['max_examples']:,} events for {_FEWER['epochs']} epochs"
        " only, since there are many settings.",
        "moved is the share of endpoints of test events whose representation changed at its last"
        " record: what an encoder of changes can learn from. propagation is the time to apply all"
        " events once.",
    ),
    draw=_draw_sensitivity,
)


# time-cost ----------------------------------------------------------------------------------------

_TGN = "TGN of torch_geometric"
_EPOCHS = 3


def _plan_cost(plan: Plan) -> None:
    names = ("wikipedia", "reddit")
    plan.events(names, DEFAULT, "default", epochs=_EPOCHS)
    plan.events(names, PAPER["lstm"], "paper-lstm", epochs=_EPOCHS)
    for name in names:
        plan.add("tgn", name, _TGN, {"epochs": 1 if plan.fast else _EPOCHS})


def _tables_cost(found: Found) -> list[Table]:
    names = ("wikipedia", "reddit")
    metric = "seconds per epoch"
    rows = []
    for model, whose in ((_TGN, HERE), (DEFAULT, OURS), (PAPER["lstm"], OURS)):
        values = {name: found.mean_epoch(name, model) for name in names}
        rows.append(Row(model, whose, "", metric, values))
    for model in (DEFAULT, PAPER["lstm"]):
        once = {name: found.value(name, model, ["record_s"], "seconds") for name in names}
        rows.append(Row(f"{model}, propagation and record", OURS, "", "seconds, once", once))
    return [published_with("time-cost", "Time per epoch of training", rows, log=True)]


_TIME_COST = Target(
    "time-cost",
    "Time per epoch",
    "The paper's Table 9, and torch_geometric's TGN on the same machine and the same events.",
    _plan_cost,
    _tables_cost,
    (
        "Published times are from a GPU; the others are from the machine below. Compare within a"
        " machine.",
        "Our epochs include the validation after them; TGN's are training only, with one negative"
        " per event. The default has several negatives, as listed below.",
        ON_PRESETS,
    ),
)


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


_ERROR_VS_SPEED = Target(
    "error-vs-speed",
    "Error against speed",
    "Not a table of the paper: events per second of the engine for thresholds from loose to tight,"
    " and the final distance from the exact solution, by sparse solve.",
    _plan_errors,
    _tables_errors,
    ("Errors are in units of a typical feature value, over all nodes and columns.",),
    draw=_draw_errors,
)

TARGETS = (_ABLATION_HIGH_PASS, _TIME_ENCODING, _SENSITIVITY, _TIME_COST, _ERROR_VS_SPEED)
