"""Random histories of everything a user can do, each checked against `tests.oracle` at every step.

    python tests/fuzz.py --histories 20000 --seed 0 --jobs 2 -o benchmarks/results/fuzz.json
    python tests/fuzz.py --seed 0 --replay 17     print the steps of history 17
    python tests/fuzz.py --seed 0 --shrink 17     print a short script that fails as it does

A history is a function of the seed and its number. Some steps do not fit the graph: then the
propagator has to reject them, as the oracle does, and stay as it was. `fuzz_playing` lists the laws
that are checked, `fuzz_histories` writes histories, `fuzz_shrinking` shortens those that fail.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # then only this file's folder is on the path
    sys.path.insert(0, str(ROOT))

from tests.fuzz_histories import Fields, write  # noqa: E402
from tests.fuzz_playing import MILDEST, Outcome, chosen, play  # noqa: E402
from tests.fuzz_shrinking import script, shrink  # noqa: E402
from tests.fuzz_workers import Task, Workers  # noqa: E402

__all__ = ["Summary", "fuzz", "main"]


@dataclass
class Summary:
    """The outcomes of all histories together."""

    histories: int = 0
    steps: int = 0
    checks: int = 0
    imprecise: int = 0
    misfits: int = 0
    skipped: int = 0
    rewritten: int = 0
    unstarted: int = 0
    error_over_bound: float = 0.0
    error_at: int = -1
    bound_over_threshold: float = 0.0
    bound_at: int = -1
    hangs: list[int] = field(default_factory=list)
    crashes: list[int] = field(default_factory=list)
    violations: dict[int, list[str]] = field(default_factory=dict)  # number, laws
    messages: dict[int, str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of one history."""
        self.histories += 1
        self.steps += outcome.steps
        self.checks += outcome.checks
        self.imprecise += outcome.imprecise
        self.misfits += outcome.misfits
        self.skipped += outcome.skipped
        self.rewritten += outcome.milder > 0
        self.unstarted += outcome.status == "refused"
        if outcome.error_over_bound > self.error_over_bound:
            self.error_over_bound, self.error_at = outcome.error_over_bound, outcome.number
        if outcome.bound_over_threshold > self.bound_over_threshold:
            self.bound_over_threshold = outcome.bound_over_threshold
            self.bound_at = outcome.number
        if outcome.status == "hang":
            self.hangs.append(outcome.number)
        elif outcome.status == "crash":
            self.crashes.append(outcome.number)
        elif outcome.violations:
            self.violations[outcome.number] = outcome.laws
            step, law, what = outcome.violations[0]
            self.messages[outcome.number] = f"step {step}, {law}: {what}"

    @property
    def refused_share(self) -> float:
        return self.imprecise / max(self.steps, 1)

    @property
    def laws(self) -> Counter[str]:
        """How many histories broke each law."""
        return Counter(law for laws in self.violations.values() for law in laws)

    def results(self) -> Fields:
        """Return everything as plain types, for JSON."""
        return {
            "histories": self.histories,
            "steps": self.steps,
            "checks": self.checks,
            "refused_steps": self.imprecise,
            "refused_steps_share": round(self.refused_share, 4),
            "misfits_refused": self.misfits,
            "steps_skipped": self.skipped,
            "histories_made_milder": self.rewritten,
            "histories_not_started": self.unstarted,
            "worst_error_over_bound": _finite(self.error_over_bound),
            "worst_error_in": self.error_at,
            "worst_bound_over_threshold": _finite(self.bound_over_threshold),
            "worst_bound_in": self.bound_at,
            "hangs": sorted(self.hangs),
            "crashes": sorted(self.crashes),
            "violations": sorted(self.violations),
            "violations_by_law": dict(self.laws),
        }


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def fuzz(
    numbers: Sequence[int],
    seed: int,
    *,
    jobs: int,
    limit_s: float,
    progress: Callable[[Summary], None] = lambda summary: None,
) -> Summary:
    """Play the histories with these numbers in processes and return their summary."""
    summary = Summary()
    with Workers(jobs=jobs, limit_s=limit_s) as workers:
        for outcome in workers.play((seed, number) for number in numbers):
            summary.add(outcome)
            progress(summary)
    return summary


def _progress(total: int) -> Callable[[Summary], None]:
    """Return a function that prints progress: often on a terminal, rarely elsewhere."""
    begun = time.monotonic()
    last = [begun]
    terminal = sys.stderr.isatty()

    def show(summary: Summary) -> None:
        now = time.monotonic()
        if now - last[0] < (0.5 if terminal else 20) and summary.histories < total:
            return
        last[0] = now
        left = (now - begun) / summary.histories * (total - summary.histories)
        line = (
            f"{summary.histories:,} of {total:,} histories, {summary.steps:,} steps,"
            f" {len(summary.violations)} violations, {len(summary.hangs)} hangs,"
            f" {len(summary.crashes)} crashes, {left:.0f} s left"
        )
        end = "\n" if not terminal or summary.histories == total else ""
        print(("\r\x1b[K" if terminal else "") + line, end=end, file=sys.stderr, flush=True)

    return show


def _print_table(results: Fields, summary: Summary) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    for name in (
        "histories",
        "steps",
        "checks",
        "refused_steps_share",
        "histories_made_milder",
        "histories_not_started",
        "steps_skipped",
        "worst_error_over_bound",
        "worst_bound_over_threshold",
    ):
        table.add_row(name.replace("_", " "), _shown(results[name]))
    for name in ("hangs", "crashes", "violations"):
        table.add_row(name, _some(results[name]))
    for law, _ in summary.laws.most_common():
        examples = [number for number, laws in summary.violations.items() if law in laws]
        table.add_row(f"  {law}", _some(sorted(examples)))
    Console().print(table)
    for number in sorted(summary.messages)[:10]:
        print(f"{number}: {summary.messages[number]}")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _some(numbers: list[int]) -> str:
    shown = " ".join(map(str, numbers[:8])) + (" …" if len(numbers) > 8 else "")
    return f"{len(numbers)}" + (f" ({shown})" if numbers else "")


def _shrink(seed: int, number: int, limit_s: float) -> None:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with Workers(jobs=1, limit_s=limit_s) as workers:

        def outcome(task: Task) -> Outcome:
            return next(iter(list(workers.play([task]))))

        first = outcome((seed, number))
        if not first.laws:
            say(f"history {number} breaks no law")
            return
        law = first.laws[0]
        say(f"history {number} ends with {law}; shrinking it")
        history = write(seed, number, first.milder)
        if first.status in ("hang", "crash"):
            history = next(
                candidate
                for mildness in range(MILDEST + 1)
                if law in outcome(candidate := write(seed, number, mildness)).laws
            )
        print(script(shrink(history, lambda smaller: law in outcome(smaller).laws, say)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 1 if a law was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--histories", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds per history (20)")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file for the results")
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="print one history's steps")
    parser.add_argument("--shrink", type=int, metavar="NUMBER", help="print a minimal script")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        outcome = play(chosen(options.seed, options.replay), say=print)
        return int(bool(outcome.laws))
    if options.shrink is not None:
        _shrink(options.seed, options.shrink, options.limit)
        return 0
    begun = time.perf_counter()
    numbers = range(options.first, options.first + options.histories)
    summary = fuzz(
        numbers,
        options.seed,
        jobs=options.jobs,
        limit_s=options.limit,
        progress=_progress(len(numbers)),
    )
    results = summary.results()
    results["seconds"] = round(time.perf_counter() - begun, 1)
    _print_table(results, summary)
    print(f"{results['seconds']} s, {1e3 * results['seconds'] / len(numbers):.1f} ms per history")
    if options.output is not None:
        _save(results, options)
    return int(bool(summary.violations or summary.hangs or summary.crashes))


def _save(results: Fields, options: argparse.Namespace) -> None:
    from tidegraph.bench.results import circumstances

    output: Path = options.output
    named = os.path.relpath(output, ROOT) if output.resolve().is_relative_to(ROOT) else output.name
    words = ["--histories", options.histories, "--seed", options.seed, "--jobs", options.jobs]
    words += ["--first", options.first] if options.first else []
    command = ["python", "tests/fuzz.py", *map(str, words), "-o", named]
    results |= {
        "seed": options.seed,
        "first": options.first,
        "limit_s": options.limit,
        **circumstances(shlex.join(command)),
    }
    output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
