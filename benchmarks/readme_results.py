"""Writes the results table of README.md from benchmarks/results/propagation.json, or checks it.

python benchmarks/readme_results.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEGIN = "<!-- results: written by benchmarks/readme_results.py -->\n"
END = "<!-- end of results -->\n"


def table(result: dict[str, Any]) -> str:
    """The rows of the table; a number that was not measured is left out with its row."""
    machine = result["machine"]
    growth = result.get("growth") or []
    rows = [
        ("UCI-Message, 89 snapshots, against the yardstick", "yardstick_ratio_uci", "{:.0f}×"),
        ("… with repeated edges merged in the yardstick too", "merged_ratio_uci", "{:.0f}×"),
        (
            "Wikipedia, 20,000 time steps, against the yardstick",
            "yardstick_ratio_wikipedia",
            "{:.0f}×",
        ),
        ("… with repeated edges merged in the yardstick too", "merged_ratio_wikipedia", "{:.0f}×"),
        (
            "Wikipedia, one event, against warm-started power iteration",
            "recompute_ratio",
            "{:.0f}×",
        ),
        (
            "1 M nodes, 10 M edges once, against SciPy power iteration",
            "static_ratio_scipy",
            "{:.1f}×",
        ),
        ("… counting the building of our graph", "static_ratio_scipy_with_building", "{:.1f}×"),
        ("one event through Python (median)", "event_latency_us", "{:.0f} µs"),
        ("two threads over one", "thread_scaling", "{:.2f}×"),
        ("… and what memory bandwidth scales by", "bandwidth_scaling", "{:.2f}×"),
        ("bytes per undirected edge", "bytes_per_edge", "{:.1f}"),
    ]
    lines = ["| measured | |", "|---|---|"]
    for label, key, form in rows:
        if isinstance(result.get(key), (int, float)):
            lines.append(f"| {label} | {form.format(result[key])} |")
    for point in growth:
        lines.append(
            f"| one event on {point['nodes']:,} nodes of degree 20 |"
            f" {point['us_per_event']:.0f} µs, {point['pushes_per_event']:.1f} pushes |"
        )
    lines.append("")
    lines.append(
        f"`make bench` on {machine['cores']} cores of {machine['cpu']}; ratios of times within one"
        " run, medians of five; settings, goals and raw times in `benchmarks/results/`."
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    result = json.loads((ROOT / "benchmarks/results/propagation.json").read_text(encoding="utf-8"))
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    fresh = head + BEGIN + table(result) + END + tail
    if "--check" in sys.argv:
        return int(fresh != text)
    readme.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
