"""What the paper says in words, and what the tables that were measured here say to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["overview"]

_NOT_YET = "not measured yet"
_SNAPSHOTS = ("uci", "bitcoin-alpha", "bitcoin-otc")  # on which the paper compares its variants


class _Measured:
    """The rows of one target, as `results.json` has them."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._tables = results["tables"]

    def values(self, name: str, metric: str | None = None) -> dict[str, dict[str, Any]]:
        """What was measured in a row of the first table, by column."""
        for row in self._tables[0]["rows"]:
            if row["name"] == name and metric in (None, row["metric"]):
                return _measured(row)
        return {}

    def along(self, title: str, column: str) -> dict[str, str]:
        """A column of the table in which this setting varies, as text by the setting's value."""
        rows = (row for table in self._tables if table["title"] == title for row in table["rows"])
        found = {row["name"].rpartition(" ")[2]: _measured(row) for row in rows}
        return {value: _text(row[column]) for value, row in found.items() if column in row}


_Say: TypeAlias = Callable[[_Measured], str]  # what was seen; nothing where nothing was measured


@dataclass(frozen=True)
class _Claim:
    words: str  # what the paper says, in short
    target: str
    seen: _Say


def overview(output: Path) -> str:
    """A page about all targets whose results are in a directory, and about the paper's claims."""
    return "\n".join(_lines(output)) + "\n"


def _lines(output: Path) -> Iterator[str]:
    found, strange = _results(output)
    yield from ("# The paper's tables, measured anew", "")
    yield "Written by `tidegraph reproduce`, from the results beside each page."
    yield from ("", "| page | seeds | cells | rows that lack some |", "|---|---|---|---|")
    for name, results in found.items():
        seeds = ", ".join(map(str, results["seeds"]))
        tried = ", **tried out: its numbers mean nothing**" if results["fast"] else ""
        yield (
            f"| [{results['title']}]({name}/README.md){tried} | {seeds} | {results['cells']} |"
            f" {len(results['missing']) or ''} |"
        )
    for path in strange:
        yield from ("", f"`{path}` cannot be read as results and was left out.")
    yield from ("", "## What it says, and what was seen", "")
    yield "Its settings in this implementation. Numbers are MRR against 1,000 nodes on snapshots,"
    yield "and on Wikipedia AP in percent, under random-all unless said."
    yield from ("", "| the paper says | seen here | page |", "|---|---|---|")
    for claim in _CLAIMS:
        page, seen = claim.target, ""
        if page in found:
            seen, page = claim.seen(_Measured(found[page])), f"[{page}]({page}/README.md)"
        yield f"| {claim.words} | {seen or _NOT_YET} | {page} |"


def _results(output: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The results of every target, and the names of files that are none."""
    found, strange = {}, []
    for path in sorted(output.glob("*/results.json")):
        name = path.parent.name
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            if results["target"] != name:
                raise ValueError(f"results of {results['target']}")
            found[name] = results
        except (OSError, ValueError, KeyError, TypeError):
            strange.append(f"{name}/{path.name}")
    return found, strange


def _measured(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {column: value for column, value in row["values"].items() if value["mean"] is not None}


def _text(value: Mapping[str, Any]) -> str:
    """A number with its spread; of how many seeds it is stands in the list of pages."""
    return str(value["text"]).partition(" (n=")[0]


# What was seen ------------------------------------------------------------------------------------

_MRR = "mrr_1000"


def _ours(encoder: str) -> str:
    return f"tidegraph, paper-{encoder}"


def _compared(
    who: str,
    first: Mapping[str, dict[str, Any]],
    second: Mapping[str, dict[str, Any]],
    columns: Sequence[str],
) -> str:
    """Where the first has the higher number, and all of them; spreads and seeds as measured."""
    shared = [name for name in columns if name in first and name in second]
    if not shared:
        return ""
    ahead = sum(first[name]["mean"] > second[name]["mean"] for name in shared)
    pairs = [f"{name} {_text(first[name])} against {_text(second[name])}" for name in shared]
    lacking = [f"{name} {_NOT_YET}" for name in columns if name not in shared]
    return f"{who} higher in {ahead} of {len(shared)}: {'; '.join(pairs + lacking)}"


def _over(first: str, second: str) -> _Say:
    def seen(measured: _Measured) -> str:
        one, other = (measured.values(_ours(encoder), _MRR) for encoder in (first, second))
        return _compared(first, one, other, _SNAPSHOTS)

    return seen


def _high_pass(measured: _Measured) -> str:
    gains = {}
    for encoder in ("gru", "lstm", "transformer"):
        low, both = (
            measured.values(f"{_ours(encoder)}, {words}")
            for words in ("low-pass only", "low- and high-pass")
        )
        for name in _SNAPSHOTS:
            if name in low and name in both:
                gain = 100 * (both[name]["mean"] / low[name]["mean"] - 1)
                gains[f"{encoder} on {name}"] = gain
    shown = "; ".join(f"{where} {gain:+.1f} %" for where, gain in gains.items())
    up = sum(gain > 0 for gain in gains.values())
    return f"more in {up} of {len(gains)}: {shown}" if gains else ""


def _times(measured: _Measured) -> str:
    with_times, without = (
        measured.values(f"{_ours('lstm')}, {words}") for words in ("with times", "without times")
    )
    return _compared("with times", with_times, without, ("wikipedia", *_SNAPSHOTS))


def _varied(title: str, first: str, second: str, words: str) -> _Say:
    """Two columns of the table in which this setting varies, the second in brackets."""

    def seen(measured: _Measured) -> str:
        beside = measured.along(title, second)
        found = [
            f"{value}: {text} ({beside[value]})"
            for value, text in measured.along(title, first).items()
            if value in beside
        ]
        return f"{first}, and {words} in brackets: {'; '.join(found)}" if found else ""

    return seen


def _both(title: str) -> _Say:
    return _varied(title, "random-all", "random-dst", "random-dst")


def _others_move(measured: _Measured) -> str:
    found = measured.along("r_max", "records per event")
    shown = "; ".join(f"r_max {value}: {text}" for value, text in found.items())
    return (
        "records per event, of which two are of its own ends, a few of the beginning, and the rest"
        f" of others that had moved by more than 5 %: {shown}"
        if found
        else ""
    )


def _epochs(measured: _Measured) -> str:
    names = ("TGN of torch_geometric", _ours("lstm"), "tidegraph, default")
    found = {name: measured.values(name, "seconds per epoch").get("wikipedia") for name in names}
    shown = [f"{name} {_text(value)} s" for name, value in found.items() if value is not None]
    return f"on one machine: {'; '.join(shown)}" if shown else ""


_CLAIMS: Sequence[_Claim] = (
    _Claim("the LSTM is consistently ahead of the GRU", "dtdg-link", _over("lstm", "gru")),
    _Claim(
        "the Transformer tends to have the highest MRR", "dtdg-link", _over("transformer", "lstm")
    ),
    _Claim("high-pass filters add in eight of nine cells", "ablation-high-pass", _high_pass),
    _Claim("an encoding of times adds a little", "time-encoding", _times),
    _Claim(
        "r_max of 1e-3 and 1e-2 leave nothing to learn from",
        "sensitivity",
        _varied("r_max", "random-dst", "moved", "the share of ends that had moved"),
    ),
    _Claim("alpha scarcely matters", "sensitivity", _both("alpha")),
    _Claim(
        "LSTM layers have little effect up to eight; more converge badly",
        "sensitivity",
        _both("LSTM layers"),
    ),
    _Claim("layers of the last network have little effect", "sensitivity", _both("MLP layers")),
    _Claim(
        "where r_max is small, nodes move without events of their own", "sensitivity", _others_move
    ),
    _Claim("an epoch on Wikipedia takes a sixth of TGN's", "time-cost", _epochs),
)
