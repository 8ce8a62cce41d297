"""Classify events of three data sets; write benchmarks/results/event_classes.json.

python benchmarks/event_classes.py [DATA ...] [--seeds N ...] [--output FILE]

Only the named data sets are measured again, with the default settings and TGB's split. An edge of
Bitcoin is positive where its rating is negative, and nothing but the label is read of the rating;
an edit of Wikipedia is where its author is banned after it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegraph import EventStream
from tidegraph.bench.results import circumstances, script_command, write_json
from tidegraph.events.datasets import load_dataset
from tidegraph.runs import Protocol, evaluate

DATA = ("bitcoin-otc", "bitcoin-alpha", "wikipedia")
KEPT = ("data", "split", "seeds", "settings", "metrics", "heuristics", "verdicts", "elapsed_s")


def labelled(name: str) -> EventStream:
    """Return the events of a data set with the labels to predict."""
    stream = load_dataset(name)
    if stream.labels is not None or stream.edge_features is None:
        return stream
    return replace(stream, labels=(stream.edge_features[:, 0] < 0).astype(int), edge_features=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", choices=[*DATA, []], help="data sets; default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    output = Path(__file__).parent / "results" / "event_classes.json"
    parser.add_argument("--output", type=Path, default=output)
    options = parser.parse_args()
    old = json.loads(options.output.read_text()) if options.output.exists() else {}
    results: dict[str, Any] = old.get("results", {})
    for name in options.data or DATA:
        print(f"{name} ...", flush=True)
        found = evaluate(
            labelled(name), protocol=Protocol("tgb", task="events"), seeds=options.seeds, name=name
        )
        results[name] = {**circumstances(script_command()), **{key: found[key] for key in KEPT}}
        write_json(
            {"results": {each: results[each] for each in DATA if each in results}}, options.output
        )
        print(*found["verdicts"], sep="\n", flush=True)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
