"""Shrinks histories that fail, and writes scripts that play them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from tests.fuzz_histories import Fields, History

from tidegraph.engine.channels import Sketch

__all__ = ["script", "shrink"]


def shrink(
    history: History,
    fails: Callable[[History], bool],
    say: Callable[[str], None] = lambda text: None,
) -> History:
    """Return a smallest history that still fails: nothing can be removed from it."""
    smaller = True
    while smaller:
        smaller = False
        for what, cuts in _CUTS:
            tried = 0
            while True:
                candidates = list(cuts(history))
                # Cuts before this one failed on nearly the same history; the next round tries them.
                found = next(
                    (k for k in range(tried, len(candidates)) if fails(candidates[k])), None
                )
                if found is None:
                    break
                history, tried, smaller = candidates[found], found, True
                say(f"{what}: {_size(history)}")
    return history


def _size(history: History) -> str:
    rows = sum(len(step.arguments.get("src", ())) for step in history.steps)
    return (
        f"{len(history.steps)} steps, {rows} rows, {history.nodes} nodes,"
        f" {len(history.options['channels'])} channels"
    )


def _fewer_steps(history: History) -> Iterator[History]:
    steps, size = history.steps, len(history.steps)
    while size:
        for first in range(0, len(steps), size):
            yield replace(history, steps=steps[:first] + steps[first + size :])
        size //= 2


_PER_ROW = ("src", "dst", "weight", "op", "t")


def _without_row(fields: Fields, row: int) -> Fields:
    kept = {
        name: value[:row] + value[row + 1 :]
        if name in _PER_ROW and isinstance(value, list)
        else value
        for name, value in fields.items()
    }
    if "offsets" in kept:
        kept["offsets"] = [bound - (bound > row) for bound in kept["offsets"]]
    return kept


def _fewer_rows(history: History) -> Iterator[History]:
    if history.initial is not None:
        yield replace(history, initial=None)
        for row in range(len(history.initial.get("src", ()))):
            yield replace(history, initial=_without_row(history.initial, row))
    for number, step in enumerate(history.steps):
        for row in range(len(step.arguments.get("src", ()))):
            yield _with_step(history, number, _without_row(step.arguments, row))


def _with_step(history: History, number: int, fields: Fields, call: str = "") -> History:
    steps = list(history.steps)
    steps[number] = replace(steps[number], arguments=fields, call=call or steps[number].call)
    return replace(history, steps=tuple(steps))


_GROUPS = (
    ("new_nodes", "new_features"),
    ("new_features",),
    ("feature_nodes", "feature_values"),
    ("removed_nodes",),
    ("t",),
    ("weight",),
    ("op",),
)


def _fewer_fields(history: History) -> Iterator[History]:
    for number, step in enumerate(history.steps):
        for group in _GROUPS:
            if group[0] in step.arguments:
                rest = {k: v for k, v in step.arguments.items() if k not in group}
                yield _with_step(history, number, rest)
        if step.call == "apply_steps":
            rest = {k: v for k, v in step.arguments.items() if k != "offsets"}
            yield _with_step(history, number, rest, "apply")


def _fewer_channels(history: History) -> Iterator[History]:
    channels = history.options["channels"]
    for k in range(len(channels) if len(channels) > 1 else 0):
        yield replace(
            history, options=history.options | {"channels": channels[:k] + channels[k + 1 :]}
        )


def _fewer_columns(history: History) -> Iterator[History]:
    if isinstance(history.features, Sketch):
        return  # until it is made plain
    for k in range(len(history.features[0]) if len(history.features[0]) > 1 else 0):

        def cut(rows: list[list[float]], k: int = k) -> list[list[float]]:
            return [row[:k] + row[k + 1 :] for row in rows]

        steps = []
        for step in history.steps:
            fields = dict(step.arguments)
            for name in ("new_features", "feature_values"):
                if name in fields:
                    fields[name] = cut(fields[name])
            steps.append(replace(step, arguments=fields))
        yield replace(history, features=cut(history.features), steps=tuple(steps))


def _fewer_nodes(history: History) -> Iterator[History]:
    total = history.nodes + sum(s.arguments.get("new_nodes", 0) for s in history.steps)
    for node in reversed(range(total)):
        smaller = _without_node(history, node)
        if smaller.nodes > 0:
            yield smaller


def _without_node(history: History, node: int) -> History:
    """Return the history without a node and its rows; higher node numbers move down."""

    def cut(fields: Fields) -> Fields:
        rows = [
            row
            for row, pair in enumerate(
                zip(fields.get("src", ()), fields.get("dst", ()), strict=True)
            )
            if node in pair
        ]
        for row in reversed(rows):
            fields = _without_row(fields, row)
        fields = dict(fields)
        if node in fields.get("feature_nodes", ()):
            at = fields["feature_nodes"].index(node)
            fields["feature_values"] = [
                row for k, row in enumerate(fields["feature_values"]) if k != at
            ]
        for name in ("src", "dst", "feature_nodes", "removed_nodes"):
            if name in fields:
                fields[name] = [k - (k > node) for k in fields[name] if k != node]
        if "feature_nodes" in fields and not fields["feature_nodes"]:
            del fields["feature_nodes"], fields["feature_values"]
        return fields

    features, nodes = history.features, history.nodes
    if node < nodes:
        nodes -= 1
        if not isinstance(features, Sketch):
            features = features[:node] + features[node + 1 :]
    born = history.nodes
    steps = []
    for step in history.steps:
        fields = cut(step.arguments)
        count = step.arguments.get("new_nodes", 0)
        if born <= node < born + count:
            fields["new_nodes"] = count - 1
            if "new_features" in fields:
                at = node - born
                fields["new_features"] = (
                    fields["new_features"][:at] + fields["new_features"][at + 1 :]
                )
            if count == 1:
                fields.pop("new_nodes")
                fields.pop("new_features", None)
        born += count
        steps.append(replace(step, arguments=fields))
    initial = None if history.initial is None else cut(history.initial)
    return replace(history, features=features, nodes=nodes, initial=initial, steps=tuple(steps))


_PLAIN: Fields = {
    "threads": 1,
    "scale_by_degree": True,
    "r_max_unit": "absolute",
    "beta": 0.5,
    "self_loop": 1.0,
    "dtype": "float64",
    "directed": False,
}


def _plainer(history: History) -> Iterator[History]:
    """Yield the history with one setting or number made simpler."""
    options = history.options
    if "block_columns" in options:
        yield replace(history, options={k: v for k, v in options.items() if k != "block_columns"})
    for name, value in _PLAIN.items():
        if options.get(name, value) != value:
            yield replace(history, options=options | {name: value})
    if history.handed != "float64":
        yield replace(history, handed="float64")
    if isinstance(history.features, Sketch):
        rows = history.features.rows(np.arange(history.nodes)).tolist()
        yield replace(history, features=rows)
    else:
        for node, row in enumerate(history.features):
            for column, x in enumerate(row):
                for plain in (0.0, 1.0):
                    if x not in (0.0, plain):
                        features = [list(r) for r in history.features]
                        features[node][column] = plain
                        yield replace(history, features=features)
    for number, step in enumerate(history.steps):
        for k, weight in enumerate(step.arguments.get("weight", ())):
            for plain in (1.0, float(f"{weight:.1g}")):
                if weight not in (1.0, math.inf, plain):
                    weights = list(step.arguments["weight"])
                    weights[k] = plain
                    yield _with_step(history, number, step.arguments | {"weight": weights})


_CUTS: tuple[tuple[str, Callable[[History], Iterator[History]]], ...] = (
    ("fewer steps", _fewer_steps),
    ("fewer channels", _fewer_channels),
    ("fewer rows", _fewer_rows),
    ("fewer nodes", _fewer_nodes),
    ("fewer columns", _fewer_columns),
    ("fewer fields", _fewer_fields),
    ("plainer", _plainer),
)


def script(history: History) -> str:
    """Return a Python script that plays a history and prints how it breaks a law."""
    steps = "".join(
        f"    Step({step.call!r}, {step.arguments!r}"
        + (f", wrong={step.wrong!r}),\n" if step.wrong else "),\n")
        for step in history.steps
    )
    options = "".join(f"    {name!r}: {value!r},\n" for name, value in history.options.items())
    return (
        "from math import inf\n\n"
        "from tests.fuzz_histories import History, Step\n"
        "from tests.fuzz_playing import play\n"
        "from tidegraph import Channel, Sketch\n\n"
        f"features = {history.features!r}\n"
        f"options = {{\n{options}}}\n"
        f"initial = {history.initial!r}\n"
        f"steps = (\n{steps})\n"
        f"history = History(features, {history.nodes}, options, initial, steps,"
        f" {history.handed!r})\n"
        "outcome = play(history, say=print)\n"
        "assert not outcome.violations\n"
    )
