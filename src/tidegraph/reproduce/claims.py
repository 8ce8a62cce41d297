"""The paper's claims in words, and what our measurements show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tidegraph.reproduce.page import NOT_YET

_SNAPSHOTS = ("uci", "bitcoin-alpha", "bitcoin-otc")  # on which the paper compares its variants


class _Measured:
    """The rows of one target from its `results.json`."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._tables = results["tables"]

    def values(self, name: str, metric: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the measured values of a row of the first table, by column."""
        for row in self._tables[0]["rows"]:
            if row["name"] == name and metric in (None, row["metric"]):
                return _measured(row)
        return {}

    def along(self, title: str, column: str) -> dict[str, str]:
        """Return a column of the table that varies a setting, as texts by value of the setting."""
        rows = (row for table in self._tables if table["title"] == title for row in table["rows"])
        found = {row["name"].rpartition(" ")[2]: _measured(row) for row in rows}
        return {value: _text(row[column]) for value, row in found.items() if column in row}


_Describe: TypeAlias = Callable[[_Measured], str]  # in words; empty if nothing was measured


class _Claim(NamedTuple):
    words: str  # the claim in short
    target: str
    describe: _Describe


def overview(output: Path) -> str:
    """Return a page about all targets with results in a directory, and the paper's claims."""
    return "\n".join(_lines(output)) + "\n"


def _lines(output: Path) -> Iterator[str]:
    found, unreadable = _results(output)
    yield from ("# The paper's tables, measured again", "")
    yield "Written by `tidegraph reproduce` from the `results.json` of each page."
    yield from ("", "| page | seeds | cells | incomplete rows |", "|---|---|---|---|")
    for name, results in found.items():
        seeds = ", ".join(map(str, results["seeds"]))
        fast = ", **fast: these numbers mean nothing**" if results["fast"] else ""
        yield (
            f"| [{results['title']}]({name}/README.md){fast} | {seeds} | {results['cells']} |"
            f" {len(results['missing']) or ''} |"
        )
    for path in unreadable:
        yield from ("", f"`{path}` holds no results and was left out.")
    yield from ("", "## Claims and measurements", "")
    yield "Measured with the paper's settings in this implementation. Numbers on snapshots are MRR"
    yield "against 1,000 nodes; those on Wikipedia are AP in percent, under random-all by default."
    yield from ("", "| the paper says | measured here | page |", "|---|---|---|")
    for claim in _CLAIMS:
        page, measured = claim.target, ""
        if page in found:
            measured = claim.describe(_Measured(found[page]))
            page = f"[{page}]({page}/README.md)"
        yield f"| {claim.words} | {measured or NOT_YET} | {page} |"


def _results(output: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the results of every target, and the names of files that hold none."""
    found, unreadable = {}, []
    for path in sorted(output.glob("*/results.json")):
        name = path.parent.name
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            if results["target"] != name:
                raise ValueError(f"results of {results['target']}")
            found[name] = results
        except (OSError, ValueError, KeyError, TypeError):
            unreadable.append(f"{name}/{path.name}")
    return found, unreadable


def _measured(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {column: value for column, value in row["values"].items() if value["mean"] is not None}


def _text(value: Mapping[str, Any]) -> str:
    """Return a number with its spread; the list of pages gives the seeds."""
    return str(value["text"]).partition(" (n=")[0]


# What measurements show ---------------------------------------------------------------------------


def _ours(encoder: str) -> str:
    return f"tidegraph, paper-{encoder}"


def _compared(
    who: str, first: str, second: str, columns: Sequence[str], metric: str | None = None
) -> _Describe:
    """Describe in how many columns the first row is higher, with all numbers."""

    def describe(measured: _Measured) -> str:
        one, other = measured.values(first, metric), measured.values(second, metric)
        shared = [name for name in columns if name in one and name in other]
        if not shared:
            return ""
        ahead = sum(one[name]["mean"] > other[name]["mean"] for name in shared)
        pairs = [f"{name} {_text(one[name])} against {_text(other[name])}" for name in shared]
        missing = [f"{name} {NOT_YET}" for name in columns if name not in shared]
        return f"{who} higher in {ahead} of {len(shared)}: {'; '.join(pairs + missing)}"

    return describe


def _over(first: str, second: str) -> _Describe:
    return _compared(first, _ours(first), _ours(second), _SNAPSHOTS, "mrr_1000")


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
    return f"higher in {up} of {len(gains)}: {shown}" if gains else ""


def _varied(title: str, first: str, second: str, words: str) -> _Describe:
    """Describe two columns of the table that varies a setting, the second in brackets."""

    def describe(measured: _Measured) -> str:
        in_brackets = measured.along(title, second)
        found = [
            f"{value}: {text} ({in_brackets[value]})"
            for value, text in measured.along(title, first).items()
            if value in in_brackets
        ]
        return f"{first}, with {words} in brackets: {'; '.join(found)}" if found else ""

    return describe


def _both(title: str) -> _Describe:
    return _varied(title, "random-all", "random-dst", "random-dst")


def _others_move(measured: _Measured) -> str:
    found = measured.along("r_max", "records per event")
    shown = "; ".join(f"r_max {value}: {text}" for value, text in found.items())
    return (
        "records per event: two for its endpoints, a few for initial states, the rest for other"
        f" nodes that moved enough to be recorded: {shown}"
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
    _Claim("high-pass filters help in eight of nine cells", "ablation-high-pass", _high_pass),
    _Claim(
        "a time encoding helps a little",
        "time-encoding",
        _compared(
            "with times",
            f"{_ours('lstm')}, with times",
            f"{_ours('lstm')}, without times",
            ("wikipedia", *_SNAPSHOTS),
        ),
    ),
    _Claim(
        "r_max of 1e-3 and 1e-2 leave nothing to learn from",
        "sensitivity",
        _varied("r_max", "random-dst", "moved", "the share of endpoints that had moved"),
    ),
    _Claim("alpha hardly matters", "sensitivity", _both("alpha")),
    _Claim(
        "up to eight LSTM layers have little effect; more converge badly",
        "sensitivity",
        _both("LSTM layers"),
    ),
    _Claim("layers of the last network have little effect", "sensitivity", _both("MLP layers")),
    _Claim(
        "with a small r_max, nodes move without events of their own", "sensitivity", _others_move
    ),
    _Claim("an epoch on Wikipedia takes a sixth of TGN's", "time-cost", _epochs),
)
