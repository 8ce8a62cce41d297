"""Measure link prediction over seeds; write benchmarks/results/link_prediction.json.

python benchmarks/link_prediction.py [SECTION ...] [--seeds 0,1,2] [--fast] [--output FILE]

Only the named sections are measured again. Events: TGN's split of Wikipedia, UCI and
MovieLens-100k under four kinds of negatives, with the knowledge of each event and, for the first
two, of each batch; on Wikipedia, all test events also rank every page, once more with TGB's split.
Snapshots: ROLAND's fixed split of UCI and both Bitcoin graphs, the latter also with every edge
reversed, as ROLAND uses them; live, the model keeps learning during the test, as ROLAND does.
Results include heuristics and the seconds of every stage. --fast uses the beginning of each stream
and little training to try everything out; its numbers mean nothing and are printed, not written.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegraph.bench.results import circumstances, script_command, write_json
from tidegraph.core import machine
from tidegraph.core.display import progress
from tidegraph.evaluation import best_heuristic
from tidegraph.events import datasets
from tidegraph.runs import evaluating
from tidegraph.runs.protocol import Protocol

SAMPLERS = ("random-dst", "historical", "inductive", "random-all")
SECTIONS = {
    "wikipedia": Protocol(samplers=SAMPLERS, rank=True),
    "wikipedia-batch": Protocol(samplers=SAMPLERS, knowledge="batch", rank=True),
    "wikipedia-tgb": Protocol("tgb", rank=True),
    "movielens-100k": Protocol(samplers=SAMPLERS),
    "uci": Protocol(samplers=SAMPLERS),
    "uci-batch": Protocol(samplers=SAMPLERS, knowledge="batch"),
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
    """Return the evaluation of a section, and the load of the machine."""
    section_data = re.sub("-(live|snapshots|batch|tgb)$", "", section)
    name = section_data.removesuffix("-reversed")
    stream = datasets.load_dataset(name)
    if name != section_data:
        stream = stream.with_reversed()
    protocol = SECTIONS[section]
    if fast:
        # Snapshots are fixed: later tests leave fewer sources to rank.
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
    """Return a line per kind of negatives: the model, and the best heuristic."""
    lines = []
    for sampler, parts in results["metrics"].items():
        for part, values in parts.items():
            metric = next(iter(values))
            best = best_heuristic(results["heuristics"], sampler, part, metric)
            assert best is not None  # every protocol has some
            own = values[metric]
            lines.append(
                f"{section:<24} {sampler:<11} {part:<4} {metric:<9}"
                f" {own['mean']:.4f} ± {own['std']:.4f}"
                f"   {best[0]} {best[1]:.4f}"
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
        written[section] = {**results, **circumstances(script_command())}
        # After every section, since all of them take long.
        write_json(written, given.output)


if __name__ == "__main__":
    main()
