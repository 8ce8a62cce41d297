"""Tables of published rows and ours, as text and as a page."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegraph.reproduce.texts import number, published

PUBLISHED, OURS, HEURISTIC, HERE = "published", "ours", "heuristic", "theirs, measured here"
_PERCENT = ("ap", "auc", "micro-f1")
_FORMS = {"ap": ".2f", "auc": ".2f", "micro-f1": ".2f", "mrr": ".4f", "events_per_s": ",.0f"}
_NOTHING = "–"
NOT_YET = "not measured yet"
FAST_WARNING = "Measured on small pieces of the data: these numbers mean nothing."
_NAMED = 4  # more models than this are counted instead of listed


@dataclass(frozen=True)
class Value:
    """The content of one place in a table."""

    text: str
    mean: float | None = None
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float], metric: str, *, note: str = "") -> Value:
        """Return mean and spread of some measurements, in the units of publications."""
        scale = 100.0 if metric in _PERCENT else 1.0
        form = next((form for name, form in _FORMS.items() if metric.startswith(name)), ".3g")
        mean = scale * statistics.fmean(values)
        text = format(mean, form)
        std = None
        if len(values) > 1:
            std = scale * statistics.stdev(values)
            text += f" ± {std:{form}}"
        return cls(f"{text} {note or f'(n={len(values)})'}", mean, std)

    @classmethod
    def printed(cls, text: str) -> Value:
        """Return a number as it was published."""
        found = number(text)
        return cls(text) if found is None else cls(text, *found)


@dataclass(frozen=True)
class Row:
    name: str
    whose: str  # PUBLISHED, OURS, HEURISTIC or HERE
    sampler: str
    metric: str
    values: dict[str, Value]  # by column
    knowledge: str = ""  # of what was known when links were asked about

    def is_measured(self, column: str) -> bool:
        return column in self.values and self.values[column].mean is not None


@dataclass(frozen=True)
class Table:
    """Rows of results, each with its negatives and metric."""

    title: str
    columns: list[str]
    rows: list[Row]
    log: bool = False  # whether figures use a logarithmic scale
    sources: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the table in aligned Markdown, without empty columns."""
        lines = [["model", "whose", "negatives", "knowledge", "metric", *self.columns]]
        for row in self.rows:
            found = [row.values.get(column) for column in self.columns]
            texts = [_NOTHING if value is None else value.text for value in found]
            about = (word or _NOTHING for word in (row.sampler, row.knowledge, row.metric))
            lines.append([row.name, row.whose, *about, *texts])
        shown = [
            place
            for place in range(len(lines[0]))
            if any(line[place] != _NOTHING for line in lines[1:]) or place == 0
        ]
        lines = [[line[place] for place in shown] for line in lines]
        widths = [max(len(line[place]) for line in lines) for place in range(len(shown))]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)

    def plain(self) -> dict[str, Any]:
        """Return the table in plain types."""
        return asdict(self)


def published_rows(table: str) -> tuple[list[str], list[Row], list[str]]:
    """Return columns and rows of a published table, and their sources."""
    columns, found = published(table)
    rows, by_source = [], dict[str, list[str]]()
    for row in found:
        values = {column: Value.printed(text) for column, text in row["values"].items()}
        about = row["name"], PUBLISHED, row["sampler"], row["metric"]
        rows.append(Row(*about, values, row["knowledge"]))
        by_source.setdefault(row["source"], []).append(row["name"])
    return columns, rows, [f"{', '.join(names)}: {source}" for source, names in by_source.items()]


def published_with(name: str, title: str, rows: Sequence[Row], *, log: bool = False) -> Table:
    """Return a published table with our rows below it, and columns that only ours have."""
    columns, theirs, sources = published_rows(name)
    ours = [column for row in rows for column in row.values]
    return Table(title, list(dict.fromkeys([*columns, *ours])), [*theirs, *rows], log, sources)


def page(results: dict[str, Any], tables: Sequence[Table], figure: str | None) -> str:
    """Return the results as a Markdown page."""
    return "\n".join(_lines(results, tables, figure)) + "\n"


def _lines(results: dict[str, Any], tables: Sequence[Table], figure: str | None) -> Iterator[str]:
    yield from (f"# {results['title']}", "", results["description"], "")
    if results["fast"]:
        yield from (f"**{FAST_WARNING}**", "")
    if figure is not None:
        yield from (f"![{results['title']}]({figure})", "")
    for table in tables:
        yield from (f"## {table.title}", "", table.markdown(), "")
        sources = [f"{source}." for source in table.sources]
        yield from _listed("Published rows appear as printed:", sources)
    yield from _listed("## How to read it", results["notes"])
    absent = [f"{name}: {why}" for name, why in results["absent"].items()]
    yield from _listed("## Not measured yet", [*results["missing"], *absent])
    yield from ("## How it was made", "", f"    {results['command']}", "")
    machine = results["machine"]
    yield f"- seeds {', '.join(map(str, results['seeds']))}; n counts those in a number"
    yield f"- tidegraph {results['version']}, commits {', '.join(results['commits']) or 'unknown'}"
    yield f"- {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB"
    by_negatives: dict[str, list[str]] = {}
    for model, negatives in results["trained_against"].items():
        by_negatives.setdefault(negatives, []).append(model)
    for negatives, models in by_negatives.items():
        whose = "; ".join(models) if len(models) <= _NAMED else f"{len(models)} models"
        yield f"- trained against {negatives}: {whose}"
    yield f"- {results['elapsed_s'] / 60:.0f} minutes of measurement in {results['cells']} cells"
    for name, about in results["data"].items():
        yield f"- {name}: {about['title']}, {about['events']:,} events, digest {about['digest']}"


def _listed(heading: str, items: Sequence[str]) -> list[str]:
    """Return a heading and a list, or nothing if the list is empty."""
    return [heading, "", *(f"- {item}" for item in items), ""] if items else []
