"""What commands print about results: tables of scores, verdicts, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.terminal import table
from tidegraph.core.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from tidegraph.events.stream import EventStream


_LOSSES = ("brier", "log_loss")  # no shares, and the lower the better


def percent(value: Mapping[str, Any], metric: str = "") -> str:
    """Return a mean over seeds as a percentage, with its spread if there are several."""
    spread = f" ± {_number(value['std'], metric)}" if len(value["per_seed"]) > 1 else ""
    return f"{_number(value['mean'], metric)}{spread}"


def _number(value: float, metric: str) -> str:
    return f"{value:.4f}" if metric in _LOSSES else f"{100 * value:.2f}"


def print_results(out: Console, results: Mapping[str, Any]) -> None:
    """Print what `runs.evaluate` returns: tables, notes, verdicts, and seconds."""
    from rich.markup import escape

    from tidegraph.evaluation import knowledge_words

    sizes = ", ".join(f"{part} {count:,}" for part, count in results["split"]["sizes"].items())
    about = results["data"]
    out.print(
        f"[bold]{escape(about['title'] or about['name'])}[/]: {about['events']:,} events between"
        f" {about['nodes']:,} nodes; protocol {results['protocol']} ({sizes})"
    )
    if results["task"] == "link":
        out.print(knowledge_words(results["knowledge"]), markup=False)
    for warning in results["warnings"]:
        out.print(f"Note: {warning}", style="yellow", markup=False)
    if results["training_negatives"] is not None:
        out.print(f"Trained against {results['training_negatives']}.", markup=False)
    for line in results.get("inputs") or ():
        out.print(f"Reads {line}", markup=False)
    if len(results.get("classes") or ()) == 2:
        out.print(f"Positive is {results['classes'][1]!r}.", markup=False)
    for sampler, parts in results["metrics"].items():
        names = _shown(parts)
        titles = [_title(*each) for each in names]
        seeds = len(results["seeds"])
        title = "labels" if sampler == "none" else sampler
        title = f"{title} (percent; model: {counted(seeds, 'seed')})"
        shown = table(title, ["scorer", *titles], left=1)
        own = [(parts[part][metric], metric) for part, metric in names]
        shown.add_row("tidegraph", *(percent(*each) for each in own), style="bold")
        for heuristic, scores in results["heuristics"].items():
            values = [(scores[sampler][part][metric], metric) for part, metric in names]
            shown.add_row(heuristic, *(_number(*each) for each in values))
        out.print(shown)
        if errors := _errors(parts):
            out.print(f"Standard errors over events, percent: {errors}.", markup=False)
    for verdict in results["verdicts"]:
        out.print(verdict, style="bold", markup=False, soft_wrap=True)
    if len(results["seeds"]) == 1:
        out.print("One seed shows no spread; --seeds 0,1,2 does.", markup=False)
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in results["elapsed_s"].items())
    out.print(f"Seconds: {stages}")


def _errors(parts: Mapping[str, Any]) -> str:
    """Return the standard errors over events, where results have them."""
    return ", ".join(
        f"{_title(part, metric)} {_number(parts[part][metric]['error'], metric)}"
        for part, metric in _shown(parts)
        if "error" in parts[part][metric]
    )


def _shown(parts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parts and metrics that fit on a screen; the JSON has all."""
    return [
        (part, metric)
        for part, values in parts.items()
        for metric in values
        if "global" not in metric and (part == "all" or "hits" not in metric)
    ]


def _title(part: str, metric: str) -> str:
    return metric if part == "all" else f"{metric}, {part}"


def next_steps(model: Path, stream: EventStream, task: str = "link") -> list[str]:
    """Return lines that say how to use a model."""
    path = shlex.quote(str(model))
    if task == "node":
        return ["Next:", f"  tidegraph predict {path} -o classes.csv   (every node)"]
    if task == "events":
        return [
            "Next:",
            f"  tidegraph predict {path} --events FILE.csv   (the columns of the data)",
        ]
    return [
        "Next:",
        f"  tidegraph predict {path} --src {_an_id(stream)} --rank 5",
        f"  tidegraph predict {path} --pairs FILE.csv   (columns src, dst and perhaps t)",
    ]


def _an_id(stream: EventStream) -> str:
    """Return the source of the last event as a word for the shell."""
    name = str(stream.name(stream.src[-1:])[0])
    return shlex.quote(name.removeprefix("src ") if names_by_side(stream) else name)


def names_by_side(stream: EventStream) -> bool:
    """Return whether an id is one node as a source and another as a destination."""
    return stream.names is not None and stream.names.by_side


def note_far(stream: EventStream, times: Sequence[int]) -> None:
    """Print a note if some times are before all events, or after them by more than they last."""
    from tidegraph.events.moments import epoch_unit

    first, last = int(stream.t[0]), int(stream.t[-1])
    far = [t for t in times if not first < t <= last + max(1, last - first)]
    if not far:
        return
    shown = moment_text(far[0], stream.unit)
    several = f"{len(far):,} of {len(times):,} times, such as {shown}, are"
    which = f"{shown} is" if len(times) == 1 else several
    looks = epoch_unit(far[0])
    hint = f" (times count {stream.unit}, and this looks like {looks} since 1970)"
    click.echo(
        f"Note: {which} far from the events, which are from {moment_text(first, stream.unit)} to"
        f" {moment_text(last, stream.unit)}{hint if looks not in (None, stream.unit) else ''};"
        " expect little from an answer there",
        err=True,
    )


def moment_text(t: int, unit: str) -> str:
    """Return a time as the data counts it, with its date if it seems to count from 1970."""
    from tidegraph.events.moments import PER_SECOND

    if unit in PER_SECOND and 0 < t // PER_SECOND[unit] < 2**32:
        seconds = t // PER_SECOND[unit]
        if seconds > 10**8:  # 1973; smaller numbers hardly count from 1970
            date = datetime.fromtimestamp(seconds, tz=timezone.utc)
            return f"{t} ({date:%Y-%m-%dT%H:%M:%S} UTC)"
    return str(t)
