"""Writes the results tables of README.md from benchmarks/results/, or checks them.

python benchmarks/readme_results.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tidegraph.evaluation import best_heuristic

ROOT = Path(__file__).parent.parent
BEGIN = "<!-- results: written by benchmarks/readme_results.py -->\n"
END = "<!-- end of results -->\n"


# What others have published for the same split and negatives, in percent: the best of EdgeBank,
# TGN, GraphMixer, DyGFormer, TPNet and PINT, or of ROLAND and the paper where the metric is theirs.
PUBLISHED = {
    ("wikipedia", "random-dst", "all"): "TPNet 99.32",
    ("wikipedia", "random-dst", "new"): "TPNet 98.91",
    ("wikipedia", "historical", "all"): "PINT 91.33",
    ("wikipedia", "inductive", "all"): "GraphMixer 88.59",
    ("wikipedia", "all-dst", "all"): "TPNet 82.7 (TGB's own negatives)",
    ("uci", "random-dst", "all"): "TPNet 97.35",
    ("uci", "random-dst", "new"): "TPNet 95.74",
    ("uci", "historical", "all"): "PINT 93.96",
    ("uci", "inductive", "all"): "PINT 83.61",
    ("uci-snapshots", "all-nodes", "all"): "ROLAND 22.89",
    ("bitcoin-otc-snapshots", "all-nodes", "all"): "ROLAND 22.03 (both ways)",
    ("bitcoin-alpha-snapshots", "all-nodes", "all"): "ROLAND 28.85 (both ways)",
    ("bitcoin-otc-reversed", "all-nodes", "all"): "ROLAND 22.03",
    ("bitcoin-alpha-reversed", "all-nodes", "all"): "ROLAND 28.85",
    ("bitcoin-otc-reversed-live", "all-nodes", "all"): "ROLAND 22.03",
    ("bitcoin-alpha-reversed-live", "all-nodes", "all"): "ROLAND 28.85",
}
TITLES = {
    "wikipedia": "Wikipedia",
    "uci": "UCI",
    "uci-snapshots": "UCI, snapshots",
    "bitcoin-otc-snapshots": "Bitcoin-OTC, snapshots",
    "bitcoin-alpha-snapshots": "Bitcoin-Alpha, snapshots",
    "bitcoin-otc-reversed": "Bitcoin-OTC, edges both ways",
    "bitcoin-alpha-reversed": "Bitcoin-Alpha, edges both ways",
    "bitcoin-otc-reversed-live": "Bitcoin-OTC, both ways, learning on",
    "bitcoin-alpha-reversed-live": "Bitcoin-Alpha, both ways, learning on",
}


def accuracy(results: dict[str, Any]) -> str:
    """A row per data set, kind of negatives and part: ours, the best heuristic, the published.

    The better of the first two is set in bold.
    """
    lines = ["| links, negatives | ours | best heuristic | published |", "|---|---|---|---|"]
    seeds = set()
    for section, title in TITLES.items():
        if section not in results:
            continue
        result = results[section]
        seeds.add(len(result["seeds"]))
        for sampler, parts in result["metrics"].items():
            for part, metrics in parts.items():
                if part == "new" and sampler != "random-dst":
                    continue
                metric = next(iter(metrics))
                best = best_heuristic(result["heuristics"], sampler, part, metric)
                assert best is not None  # every protocol has some
                name = f"{title}{', new nodes' if part == 'new' else ''}: {sampler}"
                own = metrics[metric]
                shown = [f"{100 * own['mean']:.2f}", f"{100 * best[1]:.2f}"]
                ahead = int(best[1] > own["mean"])
                shown[ahead] = f"**{shown[ahead]}**"
                lines.append(
                    f"| {name}, {metric.upper().replace('_', '-')} |"
                    f" {shown[0]} ± {100 * own['std']:.2f} | {best[0]} {shown[1]} |"
                    f" {PUBLISHED.get((section, sampler, part), '')} |"
                )
    lines.append("")
    lines.append(
        f"`python benchmarks/link_prediction.py`: percent, mean and standard deviation over"
        f" {' or '.join(map(str, sorted(seeds)))} seeds of features and weights, one set of"
        " settings for all negatives and one for snapshots; TGN's split and seeds of negatives for"
        " events (AP per batch of 200), ROLAND's fixed split for snapshots, where “both ways” has"
        " every edge reversed too and “learning on” goes on training during the test, both as"
        " ROLAND does. Heuristics know what happened before a batch of 200, as published; those"
        " marked @event, like the model, all that happened before each event, events of nodes held"
        " out of training among it."
    )
    return "\n".join(lines) + "\n\n"


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
        " run, medians of five; settings, goals and raw times in `benchmarks/results/`. The"
        " yardstick is a plain C++ program for the same task: one column at a time in float64, on"
        " as many threads."
    )
    return "\n".join(lines) + "\n"


# The paper's rows that stand beside ours: target, its task, row of the paper, ours of that kind.
OF_PAPER = (
    ("ctdg-link", "links", "the paper (LSTM)", "tidegraph, paper-lstm"),
    ("dtdg-link", "links in snapshots", "the paper LSTM", "tidegraph, paper-lstm"),
    ("time-encoding", "links", "the paper LSTM, with times", "tidegraph, paper-lstm, with times"),
    ("node-classification", "who gets banned", "the paper", "tidegraph, paper-node"),
)


def _spelled(name: str) -> str:
    """A data set, or a part of one, as its authors write it."""
    title = name.capitalize()
    for written, spelled in {"Uci": "UCI", "-alpha": "-Alpha", "-otc": "-OTC"}.items():
        title = title.replace(written, spelled)
    return title


def of_paper(folder: Path) -> str:
    """What the paper says, what its settings give here, and what ours give, by data set."""
    lines = [
        "| the paper's tables | published | its settings here | ours | best heuristic |",
        "|---|---|---|---|---|",
    ]
    seeds: set[int] = set()
    targets: set[str] = set()
    for target, task, theirs, same in OF_PAPER:
        file = folder / "reproduce" / target / "results.json"
        if not file.exists():
            continue
        result = json.loads(file.read_text(encoding="utf-8"))
        rows = result["tables"][0]["rows"]
        paper = next(row for row in rows if row["name"] == theirs)
        kind = paper["sampler"], paper["metric"]
        beside = {
            row["name"]: row["values"] for row in rows if (row["sampler"], row["metric"]) == kind
        }
        for column, published in paper["values"].items():
            ours = [
                beside.get(name, {}).get(column, {})
                for name in (same, "tidegraph, default", "the best heuristic")
            ]
            if ours[0].get("mean") is None:
                continue
            sequence = theirs.removeprefix("the paper").strip(" ()")
            where = ", ".join(word for word in (_spelled(column), task, sequence) if word)
            kinds = ", ".join(word for word in (kind[0], kind[1].upper().replace("_", "-")) if word)
            kinds = "likewise" if "," in kind[1] else kinds  # where each column has its own
            lines.append(
                f"| {where}: {kinds} | {published['text']} |"
                f" {' | '.join(value.get('text', '') for value in ours)} |"
            )
            seeds.update(result["seeds"])
            targets.add(target)
    command = f"tidegraph reproduce {' '.join(sorted(targets))}"
    lines += [
        "",
        f"`{command} --seeds {','.join(map(str, sorted(seeds)))}`: percent, except for MRR-1000;"
        " `n` counts seeds. The paper classifies with edge features, which the file at hand has"
        " not. What else was measured of its tables, and of its claims, is in"
        " [benchmarks/results/reproduce](benchmarks/results/reproduce/overview.md).",
    ]
    return "\n".join(lines) + "\n\n"


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    folder = ROOT / "benchmarks" / "results"
    result = json.loads((folder / "propagation.json").read_text(encoding="utf-8"))
    links = json.loads((folder / "link_prediction.json").read_text(encoding="utf-8"))
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    fresh = head + BEGIN + accuracy(links) + of_paper(folder) + table(result) + END + tail
    if "--check" in sys.argv:
        return int(fresh != text)
    readme.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
