"""Write the tables of docs/results.md, docs/published-numbers.md and README.md.

They come from benchmarks/results/.

With --check, write nothing and exit with 1 where a file is not up to date.

python benchmarks/readme_results.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tidegraph.evaluation import best_heuristic, part_words
from tidegraph.reproduce import texts

ROOT = Path(__file__).parent.parent
BEGIN = "<!-- results: written by benchmarks/readme_results.py -->\n"
END = "<!-- end of results -->\n"


PUBLISHED = texts.best_published()
TITLES = {
    "wikipedia": "Wikipedia",
    "wikipedia-batch": "Wikipedia",
    "wikipedia-tgb": "Wikipedia, TGB's split",
    "movielens-100k": "MovieLens-100k",
    "uci": "UCI",
    "uci-batch": "UCI",
    "uci-snapshots": "UCI, snapshots",
    "bitcoin-otc-snapshots": "Bitcoin-OTC, snapshots",
    "bitcoin-alpha-snapshots": "Bitcoin-Alpha, snapshots",
    "bitcoin-otc-reversed": "Bitcoin-OTC, edges both ways",
    "bitcoin-alpha-reversed": "Bitcoin-Alpha, edges both ways",
    "bitcoin-otc-reversed-live": "Bitcoin-OTC, both ways, learning on",
    "bitcoin-alpha-reversed-live": "Bitcoin-Alpha, both ways, learning on",
}


# The rows of README.md: data set, negatives, part.
SHORT = (
    ("wikipedia", "random-dst", "all"),
    ("wikipedia", "historical", "all"),
    ("movielens-100k", "random-dst", "first"),
    ("uci", "random-dst", "new"),
    ("uci-snapshots", "all-nodes", "all"),
    ("bitcoin-alpha-reversed-live", "all-nodes", "all"),
)
HEADER = [
    "| links, negatives, metric | knowledge | ours | best heuristic | published | its knowledge |",
    "|---|---|---|---|---|---|",
]


def accuracy_row(results: dict[str, Any], section: str, sampler: str, part: str) -> str:
    """Return our mean, the best heuristic's value and the published one, as a row.

    The better of the first two is set in bold. A published number stands only next to one of the
    same protocol, whatever its knowledge.
    """
    metrics = results[section]["metrics"][sampler][part]
    metric = next(iter(metrics))
    found = best_heuristic(results[section]["heuristics"], sampler, part, metric)
    assert found is not None  # every protocol has some
    ours, (best, theirs) = metrics[metric], found
    shown = [f"{100 * ours['mean']:.2f}", f"{100 * theirs:.2f}"]
    ahead = int(theirs > ours["mean"])
    shown[ahead] = f"**{shown[ahead]}**"
    error = f" (events: {100 * ours['error']:.2f})" if "error" in ours else ""
    name = f"{TITLES[section]}{part_words(part)}: {sampler}"
    ranked = results[section]["evaluation"].get("ranking", {}).get("sample")
    if sampler == "all-dst" and ranked is not None:
        name += f" for {ranked:,} test events"
    return (
        f"| {name}, {metric.upper().replace('_', '-')} | {results[section]['knowledge']} |"
        f" {shown[0]} ± {100 * ours['std']:.2f}{error} | {best} {shown[1]} |"
        f" {' | '.join(PUBLISHED.get((section.removesuffix('-batch'), sampler, part), ('', '')))} |"
    )


def short(results: dict[str, Any]) -> str:
    """Return the table of README.md."""
    lines = HEADER + [accuracy_row(results, *row) for row in SHORT]
    seeds = sorted({len(results[section]["seeds"]) for section, _, _ in SHORT})
    lines += [
        "",
        f"Percent, mean and standard deviation over {' or '.join(map(str, seeds))} seeds; bold is"
        " the better of our result and the best heuristic, which learns nothing and knows as much."
        " [Knowledge](docs/protocols.md) is what was known of the test when an event was asked"
        " about. [All results](docs/results.md) come with the commands that made them."
        " “Ties by a sort” are [not comparable](docs/published-numbers.md).",
    ]
    return "\n".join(lines) + "\n"


def accuracy(results: dict[str, Any]) -> str:
    """Return a row per data set, kind of negatives and part."""
    lines = list(HEADER)
    seeds = set()
    for section in TITLES:
        if section not in results:
            continue
        seeds.add(len(results[section]["seeds"]))
        for sampler, parts in results[section]["metrics"].items():
            for part in parts:
                if part in ("all", "first") or sampler == "random-dst":
                    lines.append(accuracy_row(results, section, sampler, part))
    lines += [
        "",
        f"`python benchmarks/link_prediction.py`: percent, mean and standard deviation over"
        f" {' or '.join(map(str, sorted(seeds)))} seeds of features and weights. One set of"
        " settings serves all negatives, another all snapshots. Events use TGN's split and its"
        " seeds of negatives (AP per batch of 200), snapshots ROLAND's fixed split. “Both ways”"
        " adds the reverse of every edge and “learning on” keeps training during the test, both"
        " as ROLAND does. Heuristics know what the model knows: all that happened before each event"
        " (or batch of 200, or snapshot), including events of nodes held out of training. Models"
        " with mixed knowledge have a state as of the batch's start and sample neighbours from"
        " before each event; compare numbers of the same knowledge. Where a test event ranks all"
        " destinations, the standard error over events is given too. “Ties by a sort” are"
        " [not comparable](published-numbers.md).",
    ]
    return "\n".join(lines) + "\n"


def table(result: dict[str, Any]) -> str:
    """Return the speed and memory of the engine; leave out rows that were not measured."""
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
        ("… counting the time to build our graph", "static_ratio_scipy_with_building", "{:.1f}×"),
        ("one event through Python (median)", "event_latency_us", "{:.0f} µs"),
        ("two threads over one", "thread_scaling", "{:.2f}×"),
        ("… and the scaling of memory bandwidth", "bandwidth_scaling", "{:.2f}×"),
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
        f"`make bench` on {machine['cores']} cores of {machine['cpu']}: ratios of times within one"
        " run, medians of five. Settings, goals and raw times are in"
        " [propagation.json](../benchmarks/results/propagation.json). The yardstick is a plain C++"
        " program for the same task: one column at a time in float64, on as many threads."
    )
    return "\n".join(lines) + "\n"


# The paper's rows to compare with: target, its task, row of the paper, ours with its settings.
OF_PAPER = (
    ("ctdg-link", "links", "the paper (LSTM)", "tidegraph, paper-lstm"),
    ("dtdg-link", "links in snapshots", "the paper LSTM", "tidegraph, paper-lstm"),
    ("time-encoding", "links", "the paper LSTM, with times", "tidegraph, paper-lstm, with times"),
    ("node-classification", "who gets banned", "the paper", "tidegraph, paper-node"),
)


_SPELLINGS = {"Uci": "UCI", "-alpha": "-Alpha", "-otc": "-OTC"}
_SPELLINGS |= {"Movielens": "MovieLens", "Nyc-flights": "NYC flights"}


def _spelled(name: str) -> str:
    """Return the name of a data set, or of a part of one, as its authors write it."""
    title = name.capitalize()
    for written, spelled in _SPELLINGS.items():
        title = title.replace(written, spelled)
    return title


def of_paper(folder: Path) -> str:
    """Return what the paper printed, what its settings give here, and what ours give."""
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
        same_kind = {
            row["name"]: row["values"] for row in rows if (row["sampler"], row["metric"]) == kind
        }
        for column, published in paper["values"].items():
            ours = [
                same_kind.get(name, {}).get(column, {})
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
        " `n` counts seeds. Its settings on links are those of before the presets followed its"
        " program: features of mean zero, and the 8 latest changes of 5 % or more. The paper"
        " classifies nodes with edge features, which the available file lacks. The other tables of"
        " the paper, and its claims, are in the"
        " [overview](../benchmarks/results/reproduce/overview.md).",
    ]
    return "\n".join(lines) + "\n"


KNOWLEDGE = ("batch", "event")  # in the order of the columns


def parts(folder: Path) -> str:
    """Return what each part of a model of links adds, a table per data set."""
    command = "tidegraph reproduce parts"
    file = folder / "reproduce" / "parts" / "results.json"
    if not file.exists():
        return f"Not measured yet: `{command}` measures what each part of the model adds.\n"
    result = json.loads(file.read_text(encoding="utf-8"))
    lines = []
    for table in result["tables"]:
        lines += [
            f"| {_spelled(table['title'])}: AP | {' | '.join(table['columns'])} |",
            "|---|" + "---|" * len(table["columns"]),
        ]
        for row in table["rows"]:
            values = [row["values"].get(column, {}).get("text", "") for column in table["columns"]]
            lines.append(f"| {row['name']} | {' | '.join(values)} |")
        lines.append("")
    missing = [*result["missing"], *(f"{name}: {why}" for name, why in result["absent"].items())]
    lines += [
        f"`{command} --seeds {','.join(map(str, result['seeds']))}`: average precision in percent,"
        " mean and standard deviation over `n` seeds. Columns name the negatives and the test"
        " events that are judged. Model and heuristics know all events before each of them. What"
        " the parts are and how to read the columns is on the page"
        " [What each part adds](../benchmarks/results/reproduce/parts/README.md), with the figure."
        + (f" Not measured yet: {'; '.join(missing)}." if missing else ""),
    ]
    return "\n".join(lines) + "\n"


GRAPHS = {
    "bitcoin-otc": ("Bitcoin-OTC", "bitcoin-otc-reversed"),
    "bitcoin-alpha": ("Bitcoin-Alpha", "bitcoin-alpha-reversed"),
    "uci": ("UCI", "uci"),
}


def ties(measured: dict[str, Any]) -> str:
    """Return the MRR of a scorer that learns nothing, by how equal scores are ordered."""
    rows = {row["name"]: row["values"] for row in texts.published("dtdg-link")[1]}["ROLAND GRU"]
    lines = [
        "| graph | ROLAND, published | its sort | its sort, all variants | … above published |"
        " random order | half a place | true first | NumPy {numpy} |".format(**measured),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (title, column) in GRAPHS.items():
        variants = measured["ties"][name]
        chosen = next(iter(variants.values()))
        sorted_by = [variant["program"] for variant in variants.values()]
        printed = texts.number(rows[column])
        assert printed is not None
        others = ("at random", "half", "true first", "program, this NumPy")
        lines.append(
            f"| {title} | {rows[column]} | {chosen['program']:.3f} |"
            f" {min(sorted_by):.3f} to {max(sorted_by):.3f} |"
            f" {sum(value > printed[0] for value in sorted_by)} of {len(sorted_by)} |"
            f" {' | '.join(f'{chosen[key]:.3f}' for key in others)} |"
        )
    return "\n".join(lines) + "\n\n" + _made(measured)


def items(measured: dict[str, Any]) -> str:
    """Return the AP of a rule that asks whether a pair was seen and whether a node is an item."""
    lines = [
        "| Wikipedia, AP | known: before the batch of 200 | known: before the event |",
        "|---|---|---|",
    ]
    for sampler in ("random-all", "random-dst"):
        for part, title in (("test", "all events"), ("new_test", "new nodes")):
            values = [measured["items"][f"{sampler}, {part}, {known}"]["ap"] for known in KNOWLEDGE]
            lines.append(
                f"| {sampler}, {title} | {' | '.join(f'{100 * value:.2f}' for value in values)} |"
            )
    apart = max(
        abs(found["ap"] - found["ap_global"])
        for name, found in measured["items"].items()
        if name.startswith("random-all")
    )
    lines += [
        "",
        "AP is the mean over batches of 200. Over all test events at once, as the paper's program"
        f" computes it, it differs by at most {100 * apart:.2f} under random-all.",
    ]
    return "\n".join(lines) + "\n\n" + _made(measured)


def padding(measured: dict[str, Any]) -> str:
    """Return in how many batches true and false pairs are padded to different lengths."""
    counts = [
        f"{_spelled(name)} {found['differ']} of {found['batches']}"
        for name, found in measured["padding"].items()
    ]
    return (
        "Test batches in which true and false destinations are padded to different lengths, at"
        f" DyGFormer's settings for these data sets: {', '.join(counts)}.\n\n{_made(measured)}"
    )


def knowledge(measured: dict[str, Any]) -> str:
    """Return the same heuristics with what is known before a batch and before an event."""
    shown = (
        ("random-dst", "ap", "AP"),
        ("historical", "ap", "AP"),
        ("all-dst", "mrr", "MRR"),
    )
    lines = ["| Wikipedia, percent | before the batch of 200 | before the event |", "|---|---|---|"]
    for name in ("recency-pair", "memory+reverse+popularity"):
        for sampler, metric, title in shown:
            values = [
                100 * measured["knowledge"][f"{sampler}, {name}, {known}"][metric]
                for known in KNOWLEDGE
            ]
            lines.append(f"| {name}: {sampler}, {title} | {values[0]:.2f} | {values[1]:.2f} |")
    return "\n".join(lines) + "\n\n" + _made(measured)


def _made(measured: dict[str, Any]) -> str:
    machine = measured["machine"]
    return (
        f"`{measured['command']}` at commit {measured['commit'][:10]}, {machine['cores']} cores of"
        f" {machine['cpu']}.\n"
    )


def main() -> int:
    folder = ROOT / "benchmarks" / "results"
    engine = json.loads((folder / "propagation.json").read_text(encoding="utf-8"))
    links = json.loads((folder / "link_prediction.json").read_text(encoding="utf-8"))
    measured = json.loads((folder / "published_numbers.json").read_text(encoding="utf-8"))
    tables = {
        "README.md": [short(links)],
        "docs/published-numbers.md": [
            ties(measured),
            padding(measured),
            items(measured),
            knowledge(measured),
        ],
        "docs/results.md": [
            f"## Links\n\n{accuracy(links)}\n## What each part adds\n\n{parts(folder)}\n"
            f"## The paper's tables\n\n"
            f"{of_paper(folder)}\n## The engine\n\n{table(engine)}"
        ],
    }
    stale = False
    for name, fresh in tables.items():
        file = ROOT / name
        text = file.read_text(encoding="utf-8")
        written, *rest = text.split(BEGIN)
        for part, old in zip(fresh, rest, strict=True):
            _, tail = old.split(END)
            written += f"{BEGIN}{part}{END}{tail}"
        if written != text and "--check" not in sys.argv:
            file.write_text(written, encoding="utf-8")
        stale |= written != text
    return int(stale and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
