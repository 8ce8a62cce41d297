"""All numbers, all settings, and how to repeat the run."""

from __future__ import annotations

from typing import Any

from tidegraph.report.markup import Html, details, element, section, table
from tidegraph.report.run_files import FinishedRun
from tidegraph.report.vocabulary import ABSENT, against, metric_words, with_spread

__all__ = ["all_numbers", "parameters", "repeat"]


def all_numbers(run: FinishedRun) -> Html:
    """Return every metric of every scorer."""
    blocks = []
    for sampler, parts in run.results["metrics"].items():
        for part, values in parts.items():
            names = [name for name, value in values.items() if value.get("mean") is not None]
            own = [
                with_spread(one["mean"], one["std"] if len(one["per_seed"]) > 1 else None)
                for one in (values[name] for name in names)
            ]
            rows: list[list[Any]] = [[element("strong", "this model"), *own]]
            for heuristic, found in run.heuristics.items():
                of = found.get(sampler, {}).get(part, {})
                cells = [ABSENT if of.get(name) is None else f"{of[name]:.4f}" for name in names]
                rows.append([heuristic, *cells])
            where = " (events with a node unseen in training)" if part == "new" else ""
            blocks.append(
                details(
                    f"{against(sampler)}{where}".capitalize(),
                    table(["", *map(metric_words, names)], rows),
                )
            )
    per_event = any("@" in name for name in run.heuristics)
    note = element(
        "p",
        "Heuristics whose names end in @event know all events before the one they score, as the"
        " model does; the others learn of events batch by batch, as published.",
    )
    return section("All numbers", note if per_event else None, *blocks, name="numbers")


def parameters(run: FinishedRun) -> Html:
    """Return the settings, and which of them differ from their defaults."""
    seen = run.observations
    blocks: list[Html] = []
    if seen is not None:
        defaults = seen.about["defaults"]
        settings = {
            name: value
            for name, value in seen.about["settings"].items()
            if name not in ("path", "seed")  # they belong to the run
        }
        changed = [name for name, value in settings.items() if value != defaults.get(name)]
        rows = [
            [
                element("span", name, class_="changed") if name in changed else name,
                _written(value),
                _written(defaults.get(name)) if name in changed else "",
            ]
            for name, value in settings.items()
        ]
        words = (
            f"{len(changed)} of {len(settings)} settings of the model differ from their defaults"
            f" ({', '.join(changed)})."
            if changed
            else "All settings of the model are the defaults."
        )
        blocks += [
            element("p", words),
            details(
                "All settings of the model",
                table(["setting", "value", "default, if changed"], rows, numbers=3),
            ),
        ]
    if run.config:
        blocks.append(details("config.toml of the run", element("pre", run.config)))
    if not blocks:
        plain = [[name, _written(value)] for name, value in run.settings.items()]
        blocks = [table(["setting", "value"], plain, numbers=2)]
    return section("Settings", *blocks, name="parameters")


def _written(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_written, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def repeat(run: FinishedRun) -> Html:
    """Return the command, the versions, the machine and the digest of the data."""
    results, seen = run.results, run.observations
    versions = dict(seen.about["versions"]) if seen is not None else {}
    if results.get("version"):
        versions["tidegraph"] = results["version"]
    seconds = {stage: f"{s:,.0f} s" for stage, s in (results.get("elapsed_s") or {}).items()}
    rows: list[list[Any]] = [
        [name, value]
        for name, value in (
            ("versions", _listed(versions)),
            ("machine", _listed(results.get("machine") or {})),
            ("time taken", _listed(seconds)),
            ("digest of the data", run.digest),
            ("run", run.name),
        )
        if value
    ]
    command = results.get("command")
    return section(
        "How to repeat it",
        element("pre", element("code", command), id="command") if command else None,
        table(["", ""], rows, numbers=2),
        name="repeat",
    )


def _listed(named: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in named.items())
