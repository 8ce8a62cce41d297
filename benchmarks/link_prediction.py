"""Measures link prediction over seeds; writes benchmarks/results/link_prediction.json.

python benchmarks/link_prediction.py [SECTION ...] [--seeds 0,1,2] [--fast] [--output FILE]

Sections that are not named keep the numbers they have. Events: TGN's split of Wikipedia and UCI
under four kinds of negatives, on Wikipedia also ranking every page for 1,500 test events.
Snapshots: ROLAND's fixed split of UCI and both Bitcoin graphs, the latter also with every edge
reversed too, as ROLAND has them; live, the model goes on learning during the test, as ROLAND does.
Heuristics that learn nothing stand beside every number, and seconds beside every stage. --fast
takes the beginning of each stream and little training, to see that all of it works; its numbers
mean nothing, and are printed, not written.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegraph import bench
from tidegraph.core import machine
from tidegraph.core.display import progress
from tidegraph.events import datasets
from tidegraph.runs import evaluating
from tidegraph.runs.protocol import Protocol

SAMPLERS = ("random-dst", "historical", "inductive", "random-all")
SECTIONS = {
    "wikipedia": Protocol(samplers=SAMPLERS, rank_sample=1500),
    "uci": Protocol(samplers=SAMPLERS),
    "uci-snapshots": Protocol("roland"),
    "bitcoin-otc-snapshots": Protocol("roland"),
    "bitcoin-alpha-snapshots": Protocol("roland"),
    "bitcoin-otc-reversed": Protocol("roland"),
    "bitcoin-alpha-reversed": Protocol("roland"),
    "uci-live": Protocol("roland", live=True),
    "bitcoin-otc-live": Protocol("roland", live=True),
    "bitcoin-alpha-live": Protocol("roland", live=True),
    "bitcoin-otc-reversed-live": Protocol("roland", live=True),
    "bitcoin-alpha-reversed-live": Protocol("roland", live=True),
}
RESULTS = Path(__file__).parent / "results" / "link_prediction.json"
FAST_EVENTS = 6000
FAST_SETTINGS = {"columns": 16, "epochs": 2, "max_examples": 5000}


def measure(section: str, seeds: tuple[int, ...], fast: bool) -> dict[str, Any]:
    """What `evaluating.evaluate` says about a section, and the machine it was measured on."""
    section_data = section.removesuffix("-live").removesuffix("-snapshots")
    name = section_data.removesuffix("-reversed")
    stream = datasets.load_dataset(name)
    if name != section_data:
        stream = stream.with_reversed()
    protocol = SECTIONS[section]
    if fast:
        # Snapshots are fixed, so only events may be fewer; few sources have to be ranked there.
        if protocol.name == "roland":
            protocol = replace(protocol, first_test={"uci": 83}.get(name, 134))
        else:
            stream = stream[:FAST_EVENTS]
            protocol = replace(protocol, rank_sample=50 if protocol.ranks else None)
    load = machine.load_average()
    with progress(section) as report:
        results = evaluating.evaluate(
            stream,
            protocol=protocol,
            seeds=seeds,
            settings=FAST_SETTINGS if fast else None,
            name=name,
            progress=report,
        )
    results["load_average"] = {"before": load, "after": machine.load_average()}
    return results


def summary(section: str, results: dict[str, Any]) -> str:
    """A line per kind of negatives: the model, and the best heuristic."""
    lines = []
    for sampler, parts in results["metrics"].items():
        for part, values in parts.items():
            metric = next(iter(values))
            rules = results["heuristics"]
            best = max(rules, key=lambda rule: rules[rule][sampler][part][metric])
            own = values[metric]
            lines.append(
                f"{section:<24} {sampler:<11} {part:<4} {metric:<9}"
                f" {own['mean']:.4f} ± {own['std']:.4f}"
                f"   {best} {rules[best][sampler][part][metric]:.4f}"
            )
    return "\n".join([*lines, f"{section:<24} {results['elapsed_s']}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    unknown = set(given.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    seeds = tuple(int(seed) for seed in given.seeds.split(","))
    written: dict[str, Any] = {}
    if given.output.exists() and not given.fast:
        written = json.loads(given.output.read_text(encoding="utf-8"))
    for section in given.sections or SECTIONS:
        results = measure(section, seeds, given.fast)
        print(summary(section, results), flush=True)
        if given.fast:
            continue
        written[section] = {
            **results,
            "command": shlex.join(["python", "benchmarks/link_prediction.py", *sys.argv[1:]]),
            "machine": machine.describe(),
            **bench._commit(),
        }
        # After every section: the whole takes long.
        bench.write(written, given.output)


if __name__ == "__main__":
    main()
