"""Write the measured tables of docs/scaling.md from benchmarks/results/, or check them.

python benchmarks/scaling_results.py [--check]

Tables that have not been measured are replaced by the command that measures them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "scaling.md"
RESULTS = ROOT / "benchmarks" / "results"
GDELT_EVENTS = 191_290_882
LOOK_ALIKES = ("mag-hundredth", "mag-tenth", "mag-full", "gdelt")
BLOCK = re.compile(
    r"(<!-- (\w+): written by benchmarks/scaling_results\.py -->\n).*?(<!-- end -->)", re.S
)


def look_alikes(scale: dict[str, Any]) -> str:
    """Return time, memory and disk of the stages of each look-alike."""
    rows = [
        "| look-alike | nodes | edges or events | columns | stage | seconds | peak anonymous |",
        "|---|---|---|---|---|---|---|",
    ]
    for section in LOOK_ALIKES:
        for stage, report in scale.get(section, {}).get("stages", {}).items():
            whole = scale[section]
            size = whole["edges"] if section.startswith("mag") else whole["events"]
            rows.append(
                f"| {section} | {whole['nodes']:,} | {size:,} |"
                f" {report.get('columns', '')} | {stage} | {report['seconds']:,.0f} |"
                f" {_size(report['peak_anonymous_bytes'])} |"
            )
    return _measured(rows, "python benchmarks/scale.py " + " | ".join(LOOK_ALIKES))


def constants(scale: dict[str, Any]) -> str:
    """Return the constants of the formulas, from the look-alikes that were measured."""
    rows = ["| constant | look-alike | value | fields of scale.json |", "|---|---|---|---|"]
    for section in LOOK_ALIKES:
        stages = scale.get(section, {}).get("stages", {})
        build, first, events = (stages.get(name) for name in ("build", "first", "events"))
        if build:
            rows += [
                f"| bytes of a compact graph per edge | {section} |"
                f" {build['bytes_per_edge']:.2f} | `build.bytes_per_edge` |",
                f"| to build, per row, one thread | {section} |"
                f" {1e9 * build['cpu_s'] / build['rows']:.0f} ns | `build.cpu_s / build.rows` |",
            ]
        if build and first and first["statistics"]["sweeps"]:
            visits = 2 * build["edges"] * (first["statistics"]["sweeps"] + 1)
            rows += [
                f"| a sweep over one entry, {first['columns']} columns, one thread | {section} |"
                f" {1e9 * first['cpu_s'] / visits:.0f} ns |"
                " `first.cpu_s / (2 · build.edges · (first.statistics.sweeps + 1))` |",
                f"| memory of a pass over what was planned | {section} |"
                f" {first['peak_anonymous_bytes'] / first['planned']['memory_bytes']:.2f} |"
                " `first.peak_anonymous_bytes / first.planned.memory_bytes` |",
            ]
        if events:
            rows += [
                f"| `h + p·C·D_s`, an event with {events['columns']} columns | {section} |"
                f" {1e6 / events['events_per_s']:.1f} µs | `1 / events.events_per_s` |",
                f"| all {GDELT_EVENTS / 1e6:.0f} M events of GDELT at that rate | {section} |"
                f" {GDELT_EVENTS / events['events_per_s'] / 60:.0f} min (projected) |"
                " `1 / events.events_per_s` |",
            ]
    return _measured(rows, "python benchmarks/scale.py mag-tenth | mag-full | gdelt")


def growth(scale: dict[str, Any]) -> str:
    """Return time and memory by edges, including larger look-alikes, by columns and by r_max."""
    rows = [
        "| by | edges | columns | r_max | generate s | build s | first s | first, CPU s |"
        " first, peak anonymous | graph on disk |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]

    def add(by: str, edges: int, reports: dict[str, Any], first: dict[str, Any]) -> None:
        rows.append(
            f"| {by} | {edges:,} | {first['columns']} | {first['r_max']:g} |"
            f" {reports['seconds']['generate']:.1f} | {reports['seconds']['build']:.1f} |"
            f" {reports['seconds']['first']:.1f} | {reports['cpu_s']:.1f} |"
            f" {_size(reports['memory'])} | {_size(reports['disk'])} |"
        )

    measured = scale.get("growth", {})
    for by in ("edges", "columns", "r_max"):
        for row in measured.get(by, []):
            reports = {
                "seconds": row["seconds"],
                "cpu_s": row["cpu_s"]["first"],
                "memory": row["peak_anonymous_bytes"]["first"],
                "disk": row["disk_bytes"]["build"],
            }
            add(by, row["edges"], reports, row)
        for section in ("mag-tenth", "mag-full") if by == "edges" and measured else ():
            stages = scale.get(section, {}).get("stages", {})
            if {"generate", "build", "first"} <= set(stages):
                reports = {
                    "seconds": {name: stages[name]["seconds"] for name in stages},
                    "cpu_s": stages["first"]["cpu_s"],
                    "memory": stages["first"]["peak_anonymous_bytes"],
                    "disk": stages["build"]["disk_bytes"],
                }
                add(by, stages["build"]["edges"], reports, stages["first"])
    table = _measured(rows, "python benchmarks/scale.py growth")
    if len(rows) > 2 and (RESULTS / "scale-growth.svg").is_file():
        table += "\n![Time, memory and disk by size](../benchmarks/results/scale-growth.svg)\n"
    return table


def classification(scale: dict[str, Any]) -> str:
    """Return the micro-F1 of networks that read stored embeddings, and of others."""
    rows = [
        "| look-alike | read | micro-F1 on the test, mean (range over seeds) |",
        "|---|---|---|",
    ]
    for section in LOOK_ALIKES:
        for name, found in _classified(scale, section).get("micro_f1", {}).items():
            values = found if isinstance(found, list) else [found]
            mean = sum(values) / len(values)
            spread = f" ({min(values):.4f} to {max(values):.4f})" if len(values) > 1 else ""
            rows.append(f"| {section} | {name.replace('_', ' ')} | {mean:.4f}{spread} |")
    sizes = [
        f"{section}: {report['questions']['train']:,} labels to learn from,"
        f" {report['questions']['test']:,} asked for, {report['classes']} classes,"
        f" {_size(report['embedding_bytes'])} of embeddings, {report['propagate_s']:.0f} s to"
        f" propagate, {report['train_s']:.0f} s to train,"
        f" {_size(report['peak_anonymous_bytes'])} of memory."
        for section in LOOK_ALIKES
        if (report := _classified(scale, section))
    ]
    table = _measured(rows, "python benchmarks/scale.py mag-tenth --stages generate build classify")
    return table + ("\n" + "\n".join(sizes) + "\n" if sizes else "")


def _classified(scale: dict[str, Any], section: str) -> dict[str, Any]:
    found: dict[str, Any] = scale.get(section, {}).get("stages", {}).get("classify", {})
    return found


def recording(workers: dict[str, Any]) -> str:
    """Return the peak memory of recordings next to the formula."""
    rows = [
        "| nodes | edges | columns | peak anonymous | of the formula | of the engine's own count |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {row['nodes']:,} | {row['edges']:,} | {row['columns']} |"
        f" {_size(row['peak_anonymous_bytes'])} | {row['peak_over_formula']:.2f} |"
        f" {row['peak_over_engine']:.2f} |"
        for row in workers.get("memory", [])
    ]
    return _measured(rows, "python benchmarks/workers.py --memory NODES EDGES COLUMNS")


STAGES = ("heuristics", "record", "train", "score", "observations", "total")


def runs(measured: dict[str, Any]) -> str:
    """Return the seconds of whole runs by stage, with memory and disk."""
    rows = [
        f"| data | events | {' | '.join(f'{stage} s' for stage in STAGES)} | µs per event |"
        " CPU s | peak resident | disk |",
        "|---|---|" + "---|" * (len(STAGES) + 4),
    ]
    for row in measured.get("rows", []):
        seconds = " | ".join(f"{row['seconds'][stage]:,.1f}" for stage in STAGES)
        rows.append(
            f"| {row['data']} | {row['events']:,} | {seconds} | {row['us_per_event']:,.0f} |"
            f" {row['cpu_s']:,.0f} | {_size(row['peak_bytes'])} | {_size(row['disk_bytes'])} |"
        )
    table = _measured(rows, "tidegraph bench run-growth")
    if len(rows) > 2 and (RESULTS / "run_growth.svg").is_file():
        table += "\n![Whole runs by events](../benchmarks/results/run_growth.svg)\n"
    return table


SIDES = {
    "passes_1_thread": "passes, 1 thread",
    "passes_2_threads": "passes, 2 threads",
    "ray_1_workers": "Ray, 1 worker",
    "ray_2_workers": "Ray, 2 workers",
}


def sides(workers: dict[str, Any]) -> str:
    """Return times of the same work with threads and workers, and of starting a cluster."""
    rows = ["| | seconds, median | of all rounds | starting the cluster |", "|---|---|---|---|"]
    for side, title in SIDES.items():
        if side not in workers.get("seconds", {}):
            continue
        each, start = workers["seconds_each"][side], workers["cluster_start_s"].get(side)
        rows.append(
            f"| {title} | {workers['seconds'][side]:.1f} | {min(each):.1f} to {max(each):.1f} |"
            f" {'' if start is None else f'{start:.1f}'} |"
        )
    table = _measured(rows, "python benchmarks/workers.py")
    if len(rows) == 2:
        return table
    return table + (
        f"\n{workers['events']:,} events, {workers['columns']} columns, {workers['channels']}"
        f" channels, {workers['shards']} shards; load average"
        f" {workers['machine']['load_average_before']} before. One worker of Ray took"
        f" {workers['ray_1_worker_over_1_thread']:.2f} times as long as one thread in passes, two"
        f" workers {workers['ray_2_workers_over_2_threads']:.2f} times as long as two threads;"
        f" two threads were {workers['threads_1_over_2']:.2f} times as fast as one, two workers"
        f" {workers['ray_1_worker_over_2_workers']:.2f} times.\n"
    )


def _measured(rows: list[str], command: str) -> str:
    if len(rows) == 2:
        return f"Not measured yet: `{command}`.\n"
    return "\n".join(rows) + "\n"


def _size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def main() -> int:
    def results(name: str) -> dict[str, Any]:
        path = RESULTS / name
        found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
        return found

    scale = results("scale.json")
    tables = {
        "lookalikes": look_alikes(scale),
        "constants": constants(scale),
        "growth": growth(scale),
        "classification": classification(scale),
        "recording": recording(results("workers.json")),
        "workers": sides(results("workers.json")),
        "runs": runs(results("run_growth.json")),
    }
    text = PAGE.read_text(encoding="utf-8")
    fresh = BLOCK.sub(lambda found: found[1] + tables[found[2]] + found[3], text)
    if "--check" in sys.argv:
        return int(fresh != text)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
